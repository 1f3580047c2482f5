/*
 * Cases: codec costs, links, methods and level of a planning problem, from the built-in cases file or from
 * one given by the user.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_CASE_H
#define GW_PLAN_CASE_H

#include <jansson.h>

#include "gradwire/plan.h"
#include "plan_model.h"

#define PLAN_CODECS_MAX 64
#define PLAN_LABEL_SIZE 64

typedef enum plan_kind { PLAN_JOINT, PLAN_FUSION, PLAN_TREE } plan_kind;

typedef struct plan_codec {
    gw_plan_codec codec;
    json_t *source;         /* the object of its file */
    int overlap;            /* the exchanges of a2a-ag overlap, piece by piece */
    unsigned thc_bits;      /* not 0: the payload depends on the number of ranks, plan_library_find() */
    unsigned thc_lane_bits; /* 8, 16, 32; 0: the narrowest that hold the sum */
    char name[PLAN_LABEL_SIZE];
} plan_codec;

/* A cost file or cases file in memory. */
typedef struct plan_library {
    plan_codec codecs[PLAN_CODECS_MAX];
    uint32_t codec_count;
    double payload_scale; /* of all codecs; sweeps change it */
    json_t *root;         /* cases file */
} plan_library;

typedef struct plan_case {
    char name[PLAN_LABEL_SIZE];
    plan_kind kind;
    char method_names[GW_PLAN_METHODS_MAX][PLAN_LABEL_SIZE];
    uint32_t method_count;
    gw_plan_cluster cluster;
    gw_plan_level level;
    gw_plan_decode decode;
    int decode_none; /* leave decode costs out, as Cupcake and MergeComp do */
    int cpu;         /* encodes on the CPU are allowed */
    int fuse;        /* tree: neighbours are fused before options are chosen */
    int64_t group_len_max;
    double error_max;  /* mean over all values; 0: no bound */
    uint32_t comp_max; /* tree: compressions an option may have */
} plan_case;

/* Names in files and on the command line, by value; NULL ends each list. */
extern const char *const plan_kind_names[4];   /* by plan_kind */
extern const char *const plan_level_names[4];  /* by gw_plan_level */
extern const char *const plan_decode_names[4]; /* by gw_plan_decode, then decode_none */

/* The compiled-in cases file. */
extern const char plan_cases_text[];

/* path NULL: the compiled-in file. Messages are printed; exit codes of cli_common.h. */
int plan_library_open(plan_library *library, const char *path);
/* Without a file: codecs of an array, no cases. */
int plan_library_read(plan_library *library, const char *path, json_t *codecs);
/* Adds or replaces codecs from a file with a "codecs" array. */
int plan_library_add_codecs(plan_library *library, const char *path);
void plan_library_close(plan_library *library);
/* The codec of that name as its file has it; NULL: none. */
const plan_codec *plan_library_codec(const plan_library *library, const char *name);
/* The "options" of a codec, for the program that runs the plan; borrowed, NULL: none. */
json_t *plan_library_options(const plan_library *library, const char *name);
/* The codec of that name as it is for so many ranks; its curves stay those of the library. Message printed,
 * exit code. */
int plan_library_find(const plan_library *library, const char *name, uint64_t ranks, gw_plan_codec *codec);

/* plan_thc.c: sets the payload of THC, an all-reduce of norms and one of lanes and counts, for indices of
 * `bits` bits and lanes of 8, 16 or 32 bits (0: the narrowest that hold the sum): never less than what is
 * sent, at most a block more. what: of a message, printed. Exit code. */
int plan_thc_payload(const char *what, unsigned bits, unsigned lane_bits, uint64_t worker_count,
                     gw_plan_codec *codec);

/* A case from its object; path: for messages. */
int plan_case_read(const char *path, json_t *object, plan_case *out);

/* Sets the methods from a list with commas. Message printed, exit code. */
int plan_case_set_methods(plan_case *c, const char *list);

/* Sets the decode rule by its index among plan_decode_names. */
void plan_case_set_decode(plan_case *c, int decode);

/* Leaves one way to send: float32, fused. */
void plan_case_fp32(plan_case *c);
/* The case of an algorithm's plans and bounds: that for "ddp", and of a tree single tensors for all but
 * "auto". NULL: auto. */
void plan_case_for_algorithm(plan_case *c, const char *algorithm);

/* name NULL: the first case. */
int plan_case_find(const plan_library *library, const char *name, plan_case *out);
/* Case number index; 0 when there is none. */
int plan_case_at(const plan_library *library, size_t index, plan_case *out, json_t **models);

/* Errors of codecs are stored in units of 2^-30. */
#define PLAN_ERROR_UNIT 0x1p-30

/* GPUs of the case. */
static inline uint64_t plan_case_ranks(const plan_case *c)
{
    return (uint64_t)c->cluster.nodes * c->cluster.gpus;
}

/* Time of 1024 bytes at a rate. */
double plan_us_per_kib(double gbit_per_s);

/* Cluster file: {"nodes", "gpus", "intra": LINK, "inter": LINK, "host": LINK, "latency_per_step",
 * "operations": {OPERATION: LINK}}, or {"ranks", link members, ...}. LINK: {"latency_us", "us_per_kib" or
 * "gbit_per_s"}. */
int plan_cluster_read(const char *path, gw_plan_cluster *cluster);

#endif
