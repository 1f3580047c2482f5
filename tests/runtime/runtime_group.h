/*
 * All ranks of a collective in one process, over a transport that delays and reorders messages and sends some
 * twice, and the same by the calls of collective.h one after the other.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RUNTIME_GROUP_H
#define GW_RUNTIME_GROUP_H

#include "../gcomp/gcomp_support.h"

#include <pthread.h>
#include <stdatomic.h>

#include "gradwire/runtime.h"

enum { GROUP_RANKS_MAX = 17, GROUP_PARAMS = 3, GROUP_HELPERS = 2 };

typedef enum group_place {
    PLACE_APART, /* the result has memory of its own */
    PLACE_SAME,  /* it is where the values are */
    PLACE_FRONT  /* reduce-scatter: at the first shard, as MPI_IN_PLACE has it */
} group_place;

typedef enum group_damage {
    DAMAGE_BIT,   /* one bit is another */
    DAMAGE_EMPTY, /* it has no bytes; needs buffers */
    DAMAGE_LONG   /* it has more bytes than any message; needs buffers */
} group_damage;

/* Set to zeros, then fill in. */
typedef struct group_setup {
    uint32_t ranks;
    uint32_t threads; /* 0: the caller runs the tasks, or helpers */
    int has_helpers;  /* threads of the program that run tasks too */
    uint64_t len, shard_len;
    uint32_t flags;     /* gw_exchange_flags */
    uint32_t algorithm; /* gw_exchange_algorithm */
    int is_explicit;    /* quantum mode */
    int has_maps, has_buffers;
    int has_steps; /* of its own, with values as messages and sums that are not scaled; needs buffers */
    uint32_t contribution_bits;
    uint32_t chunk_log2; /* 0: 12 */
    int has_codebooks;
    group_place place;
    uint64_t seed;
    /* Faults. Counts of take() begin with 1. */
    uint32_t lost_rank_1;                                 /* rank + 1 that is cut off */
    uint32_t poor_rank, poor_take;                        /* whose take() gives nothing this time, or 0 */
    uint32_t damage_kind, damage_piece;                   /* the message that is changed on its way, or 0 */
    uint32_t damage_from_1;                               /* only that of this rank + 1; 0: that of any */
    group_damage damage;                                  /* how */
    uint32_t failing_rank_1, failing_kind, failing_piece; /* has_steps: rank + 1 whose step fails */
} group_setup;

typedef struct group_rank {
    struct group *group;
    uint32_t rank;
    gw_exchange *exchange;
    uint8_t *memory;
    float *values, *result;
    float *apart;              /* memory of PLACE_APART */
    atomic_uint takes, blocks; /* calls of take(), buffers that exist */
    uint32_t *share_left;      /* by piece: receivers of SHARE that have not got it */
    int is_stopped;
    int done, maps; /* events; maps: CODEBOOKS too */
    uint64_t sent_size, received_size;
    uint64_t word, map_word;
} group_rank;

/* A message on its way. */
typedef struct group_parcel {
    uint32_t from, to, piece, kind;
    void *data;
    size_t size;
    int is_notice;
} group_parcel;

typedef struct group {
    group_setup setup;
    gw_runtime *runtime;
    gw_workspace workspace;
    test_random random;
    gw_collective_layout layout;
    float *param, *m, *v; /* state of one optimizer, equal on all ranks */
    gw_gcomp_map_rule rule;
    gw_collective_segment segment[GROUP_PARAMS];
    gw_collective_segments segments;
    group_rank rank[GROUP_RANKS_MAX];
    group_parcel *parcels;
    size_t parcel_count;
    pthread_t helper[GROUP_HELPERS];
    atomic_int helpers_end;
} group;

gw_runtime *group_open_runtime(uint32_t threads);
gw_exchange_config group_config(const group *g, uint32_t rank);

void group_make(group *g, const group_setup *setup);
/* Everything is closed, and all buffers are released. */
void group_free(group *g);

/* Until all ranks have a map; all must succeed. */
void group_build_maps(group *g);
/* The same for one rank, whose parameters have become others; those of the group stay as they are. */
void group_build_other_map(group *g, uint32_t rank);
void group_start(group *g);
/* Moves messages until all ranks but those that are stopped or lost are done, and returns 1; 0 if nothing
 * moves any more, or after so many rounds if that is not 0. */
int group_pump(group *g, uint32_t rounds);
/* gw_exchange_stop() of a rank; what it has on the way is lost. */
void group_stop(group *g, uint32_t rank);

/* Until all ranks have counted what they sent; all must succeed. */
void group_count_codebooks(group *g);

/* The results, at their places in a bucket of all: to free. */
float *group_reference(const group *g);
/* All ranks have these. */
void group_check(const group *g, const float *expected);

#endif
