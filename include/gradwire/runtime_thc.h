/*
 * runtime_thc.h: THC as a parameter server that is spread over the workers (colocated), as the steps of two
 * exchanges of runtime.h. Part of the library gradwire-runtime.
 *
 * An all-reduce of a tensor is two exchanges, one after the other; what each message holds:
 *
 *   GW_THC_PHASE_NORMS   SEND: the patterns of a piece's blocks; SHARE: their maxima over all ranks
 *   GW_THC_PHASE_SUMS    SEND: packed indices of 1 to 4 bits; SHARE: lanes of 8, 16 or 32 bits, the sum that
 *                        the owner of the piece makes of all ranks' indices
 *
 * All ranks take part in every sum, so contributor sets and counts do not travel: a sum of fewer ranks does
 * not exist, the owner waits for all of them. All ranks decode the same bytes.
 *
 *   gw_thc_steps_open(), gw_thc_steps_exchange() and gw_exchange_open() once for each phase
 *   then for each operation:
 *     gw_thc_steps_begin() with GW_THC_PHASE_NORMS, gw_exchange_start(), ... the event DONE
 *     gw_thc_steps_begin() with GW_THC_PHASE_SUMS, gw_exchange_start(), ... the event DONE
 *
 * The second exchange is started even if the first one failed on this rank: the other ranks may not know of
 * it yet, and wait for this rank's messages, which are notices then. The greater of both words is the
 * outcome.
 *
 * A message is 8 bytes, a mark and a CRC32C, and its words, as little-endian integers. The CRC begins with
 * the round, the piece, the rank that made the message and the hash of the options, which do not travel. So
 * damaged messages are found, and those of another operation, piece or rank (GW_ERR_CORRUPT, with the rank
 * that made the message or should have), and no message begins as a notice does.
 *
 * Words used in this header: those of runtime.h and thc.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_RUNTIME_THC_H
#define GRADWIRE_RUNTIME_THC_H

#include "gradwire/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_thc_steps gw_thc_steps;

typedef enum gw_thc_phase { GW_THC_PHASE_NORMS = 0, GW_THC_PHASE_SUMS = 1 } gw_thc_phase;

/* What the owner of a piece sends to all. */
typedef enum gw_thc_sums {
    GW_THC_SUMS_LANES = 0, /* the sum as it is */
    /* the decoded sum, encoded again as by a job of one worker: indices of as many bits as those of a
     * contribution, behind the patterns of their blocks. Half of the bytes of 8-bit lanes or less, and one
     * more rounding */
    GW_THC_SUMS_REQUANTIZED = 1
} gw_thc_sums;

/* REQUANTIZED: the codec of sums is that of gw_thc_options_init() for one worker and the same bits, with
 * options.block_log2, this seed xor options.seed, and policy PROPAGATE. */
#define GW_THC_SUM_SEED UINT64_C(0x9e3779b97f4a7c15)

/* Set to zeros, then fill in. Equal on all ranks but for `rank`. */
typedef struct gw_thc_steps_config {
    gw_thc_options options; /* worker_max: at least rank_count. REQUANTIZED: GW_FP32 and GW_THC_ROTATED */
    uint32_t rank, rank_count;
    uint64_t len; /* elements of a tensor */
    /* 0: all-reduce of one tensor. 1: reduce-scatter of rank_count tensors of `len` elements each, of which
     * rank r gets the sum of the r-th. It is not encoded again */
    int is_scatter;
    int is_mean;           /* 1: sums are divided by rank_count */
    uint32_t sums;         /* gw_thc_sums */
    int sum_feedback;      /* 1, REQUANTIZED: the owner has an error memory for its sums */
    uint32_t piece_blocks; /* blocks of a piece of sums. 0: 2^15 elements */
    uint32_t norms_blocks; /* of a piece of norms. 0: 1024 */
} gw_thc_steps_config;

/* GW_OK; GW_ERR_ARG; GW_ERR_OPTION (worker_max, sums, or what they need); GW_ERR_LIMIT (no memory, or too
 * many pieces); statuses of gw_thc_init() and gw_collective_layout_init(): *steps is NULL. */
GW_API GW_MUST_CHECK gw_status gw_thc_steps_open(const gw_thc_steps_config *config, gw_thc_steps **steps);

/* After its exchanges are closed. NULL is ignored. */
GW_API void gw_thc_steps_close(gw_thc_steps *steps);

/* Fills in shape, rank, codec.dtype and steps for the exchange of a phase; the others are the caller's. */
GW_API GW_MUST_CHECK gw_status gw_thc_steps_exchange(gw_thc_steps *steps, gw_thc_phase phase,
                                                     gw_exchange_config *config);

/* What one operation works on. Set to zeros, then fill in. Values and error memories must be the same in both
 * phases, and nothing may change them in between. */
typedef struct gw_thc_steps_run {
    const void *values; /* elements of options.dtype: one tensor, or those of all ranks one after the other */
    void *result;       /* one tensor. All-reduce: may be equal to values. Reduce-scatter: as in
                           gw_exchange_run */
    /* Error memory of `values`, NULL iff options.error_feedback is 0. The phase of sums writes it piece by
     * piece; if its outcome is an error it is partly new, so work on a copy */
    float *error;
    float *sum_error; /* error memory of this rank's shard of the sum (gw_thc_steps_shard()), by the same
                         rules; NULL iff sum_feedback is 0. Not read if the shard is empty */
    uint32_t *maxima; /* one for each block and pattern; of a scatter for each tensor one after the other.
                         Written in the phase of norms, read in that of sums */
    /* GW_THC_PHASE_SUMS: the word of the event DONE of the norms. If it is not 0 all steps fail with it,
     * since the maxima may not be those of this operation */
    uint64_t norms_word;
    uint32_t round; /* other than those of the operations before: random words follow from it */
} gw_thc_steps_run;

/* Before gw_exchange_start(): what to give to it. GW_ERR_ARG: nothing has changed. */
GW_API GW_MUST_CHECK gw_status gw_thc_steps_begin(gw_thc_steps *steps, gw_thc_phase phase,
                                                  const gw_thc_steps_run *run, gw_exchange_run *exchange_run);

/* Words of gw_thc_steps_run.maxima. */
GW_API size_t gw_thc_steps_maxima_len(const gw_thc_steps *steps);

/* The elements of the sum that this rank owns: all-reduce: of the tensor. GW_ERR_ARG. */
GW_API GW_MUST_CHECK gw_status gw_thc_steps_shard(const gw_thc_steps *steps, uint64_t *first, uint64_t *len);

/* Bytes of workspace that the steps need: below 512 KiB. */
GW_API size_t gw_thc_steps_workspace_size(const gw_thc_steps *steps);

#ifdef __cplusplus
}
#endif

#endif
