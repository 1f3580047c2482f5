/*
 * The hot loops of gradwire, one slot each, and what each must do: read this first.
 *
 * src/scalar fills every slot and is the specification. Another backend may replace a slot by a faster
 * function with the same typedef; outputs, counts and return values must be equal bit for bit, for every
 * input, valid or not.
 *
 * "Workspace" arrays belong to the library and have GW_SLOP bytes of room after their last element: a kernel
 * may read and, where its contract says so, write there. Everything else (values, maps, frames, accumulators)
 * is the caller's memory: not a byte outside the stated range is read or written, at any alignment. Lengths
 * may be 0 unless said otherwise. No two arguments overlap unless said otherwise.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_KERNELS_H
#define GW_GCOMP_KERNELS_H

#include "core/bytes.h"
#include "core/traits.h"
#include "gradwire/gcomp.h"

enum { GW_SLOP = 64 };

/* ---- precision ----------------------------------------------------------------------------------------- */

/* gw_gcomp_map_scan() and gw_gcomp_map_build() of gcomp.h; docs/numerics.md section 2 gives the arithmetic.
 * The base passed to build is that of gw_gcomp_map_base(). Any len; state arrays have any alignment. */
typedef uint32_t gw_map_scan_fn(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len);
typedef void gw_map_build_fn(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                             uint32_t base, uint8_t *map_bytes);

/* How values are rounded: constant over a call. */
typedef struct gw_round_rule {
    uint32_t dtype;
    uint32_t rounding; /* gw_gcomp_rounding */
    /* 1: quarter-octave of a value = 4 * exponent + 3, and the drop is computed again after rounding */
    uint32_t derived;
    uint32_t strict;
    uint32_t constant; /* 1: the drop is `cap`, map_bytes is not read */
    /* 1: a value below its quantum becomes 0 or one quantum (docs/numerics.md section 3). Only if derived and
     * not constant, with step 1 and the largest cap of the dtype */
    uint32_t dead_zone;
    /* 1: bins and labels have relative exponents, see gw_turn_of(). Only if derived and not constant */
    uint32_t relative;
    uint32_t cap; /* <= 23 */
    /* docs/format.md section 3; explicit frames use it too, with the value's own quarter-octave */
    int32_t drop_offset;
    uint8_t floor[32]; /* floor[n] = n rounded down to the step, for n <= cap */
    /* stochastic rounding: Philox key, then counter words 2 and 3 (docs/numerics.md section 4) */
    uint64_t seed;
    uint32_t step_index;
    uint32_t rank_hop;
} gw_round_rule;

/* Values to be encoded, with their map bytes: the caller's memory. */
typedef struct gw_span {
    const void *values;       /* len elements of the rule's dtype, any alignment */
    const uint8_t *map_bytes; /* their map bytes; not read if the rule says `constant` */
    size_t len;
    uint64_t element; /* absolute index of the first value, for stochastic rounding */
    /* hint: this many values after the span, and their map bytes, will be read next */
    size_t ahead;
} gw_span;

/* Flushes, cuts and rounds the values of a span (docs/numerics.md section 3) to out: len elements of the
 * dtype, the caller's memory. out may be the values themselves. */
typedef void gw_round_fn(void *out, const gw_span *span, const gw_round_rule *rule);

/* ---- split and entropy --------------------------------------------------------------------------------- */

/* Bins: 4 * e + drop_steps of a rounded value, where drop_steps = drop / explicit step in explicit mode and 0
 * in derived mode; e is the exponent field, or the relative one if the rule says so. For fp32 and bf16 e = 0
 * has bin 0 for +0 and bin 1 for everything else; for fp16 +0 has bin 1023, and -0 the bin of infinity and
 * NaN. A bin carries the same information as a label, but needs no window. */
enum { GW_BINS = 1024, GW_BIN_FP16_ZERO = 1023 };

/* Adds the bins of the rounded values whose index i in the span satisfies i mod period < 64 to
 * count[GW_BINS]. If mask_count is not NULL, adds the bytes of their zero mask to mask_count[256]: bit j of
 * a byte is set unless value j of eight consecutive values is +0; bits after the end of the span are 0.
 * period is a multiple of 64 and not 0; len < 2^20. */
typedef void gw_survey_fn(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                          const gw_round_rule *rule);

/* Labels (docs/format.md section 3). */
enum { GW_LABELS = 256, GW_LABEL_ZERO = 0, GW_LABEL_ESCAPE = 1 };

/* A codebook as the encoder sees it. */
typedef struct gw_ranker {
    /* By label; escape_rank for labels without a code. If there is no escape, such labels do not occur,
     * and the entry is 255, which no label uses. */
    uint8_t rank[GW_LABELS];
    uint32_t window_start; /* window of the labels; 0 in derived mode and for fp16 */
    uint32_t escape_rank;  /* GW_NO_RANK if label 1 has no code */
} gw_ranker;

enum { GW_NO_RANK = 256 };

/* Where a split leaves its digits and escapes. All are workspace arrays; slop after what was appended may
 * be written. */
typedef struct gw_digits {
    uint8_t *plane[GW_PLANES_MAX];
    size_t plane_len[GW_PLANES_MAX];
    uint8_t *escape;
    size_t escape_len;
} gw_digits;

/*
 * Rounds the values of a span and splits them (docs/format.md section 3): ranks[i] = rank of value i. Each
 * digit, a byte, is appended at plane[p] + plane_len[p]; p = 0..3 are the digit planes, 4..6 are R4, R2, R1,
 * which are used only if the rule says `derived`. A value whose rank is escape_rank has no digits; the
 * rounded value is appended, as an element of the dtype, at escape + size * escape_len. +0 that has a code
 * has neither. plane_len and escape_len are advanced. ranks is a workspace array, slop may be written. len <=
 * 2^15. Returns 1 if a rounded value is not +0, else 0.
 */
typedef uint32_t gw_split_fn(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                             const gw_round_rule *rule, const gw_ranker *ranker);

/* Adds the labels to count[GW_LABELS]. labels is a workspace array; len <= 2^15. */
typedef void gw_count_fn(uint32_t *count, const uint8_t *labels, size_t len);

/* labels[i] = rank[labels[i]]. labels is a workspace array, its slop may be written. */
typedef void gw_rank_fn(uint8_t *labels, size_t len, const uint8_t rank[GW_LABELS]);

/*
 * Splits ranks at an inner node of the code tree. bitmap gets exactly gw_run_size(len, 1) bytes: bit i =
 * (ranks[i] >= pivot), padding zero. Ranks below the pivot go to left, the others to right, in order. Returns
 * how many went right. left and right may be NULL: those ranks are not stored. left may be `ranks` itself,
 * which is overwritten, never ahead of what was read. Slop of left and right may be written (so, in place, up
 * to GW_SLOP bytes after ranks[len)).
 */
typedef size_t gw_partition_fn(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                               size_t len, uint8_t pivot);

/* The labels of a child of an inner node: an array, or, if that is NULL, one label for all. */
typedef struct gw_child {
    const uint8_t *labels;
    uint8_t label;
} gw_child;

/* A child after its first `count` labels. */
static inline gw_child gw_child_after(gw_child child, size_t count)
{
    child.labels = child.labels != NULL ? child.labels + count : NULL;
    return child;
}

/*
 * The reverse of partition, with what a leaf's unpack wrote: out[i] = next of right if bit i of bitmap is
 * set, else next of left. Returns the number of set bits, or SIZE_MAX if a padding bit is set. Of bitmap
 * gw_run_size(len, 1) bytes are read, each once. If the count is not the length of right, the contents of out
 * are meaningless; left and right may then be read up to len values and slop from their starts, which the
 * caller's workspace must allow. Slop of out may be written.
 */
typedef size_t gw_merge_fn(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len);

/* ---- pack ---------------------------------------------------------------------------------------------- */

/* Writes len numbers of `width` bits (1..7), digits[i] - bias, LSB first: exactly gw_run_size(len, width)
 * bytes, padding zero. digits[i] - bias < 2^width. digits is a workspace array. */
typedef void gw_pack_fn(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width, uint8_t bias);

/* The reverse: out[i] = number i, or table[number i] if table is not NULL. table is a workspace array of
 * 2^width bytes. Reads exactly gw_run_size(len, width) bytes of src. Returns 1 if all padding bits are zero,
 * else 0. Slop of out may be written. */
typedef int gw_unpack_fn(uint8_t *out, const uint8_t *src, size_t len, unsigned width, const uint8_t *table);

/* ---- join ---------------------------------------------------------------------------------------------- */

/* What a label means (docs/format.md section 3), and hints, which never change a byte and may be ignored. */
typedef struct gw_joiner {
    uint32_t dtype;
    uint32_t derived;
    uint32_t window_start; /* of the codebook; 0 for fp16 and derived */
    uint32_t constant;     /* derived only: the drop is `cap`, map_bytes is not read */
    uint32_t relative;     /* as in gw_round_rule */
    uint32_t cap;
    int32_t drop_offset;
    uint8_t floor[32]; /* as in gw_round_rule */
    /* If not NULL, dst gets the sums of these elements and the values, as gw_add_fn says: len elements of the
     * dtype, the caller's memory. */
    const uint8_t *addend;
    uint32_t strict; /* of the sums */
    /* hint: dst is not read soon, so non-temporal stores may be used; gw_fence_fn orders them */
    uint32_t stream;
    /* hints: next[0..next_size) and beside[0..beside_size) will be read soon */
    const uint8_t *next;
    size_t next_size;
    const uint8_t *beside;
    size_t beside_size;
} gw_joiner;

/* What a join consumed: input of the checks of docs/format.md section 8, rules 24 and 25. */
typedef struct gw_joined {
    size_t plane_len[GW_PLANES_MAX];
    size_t escape_len;
    uint32_t bad_zero; /* fp16: an ordinary label with exponent and mantissa zero occurred */
} gw_joined;

/* What a join reads. */
typedef struct gw_join_input {
    const uint8_t *labels; /* workspace array: labels that a codebook of the joiner's kind can have */
    /* GW_PLANES_MAX workspace arrays with room for len digits and slop: 0..5 hold unpacked digits,
     * GW_PLANE_R1 a bit string as it is in the frame. Explicit joins use 0..3 only. The byte after a
     * plane's last digit is 0, so that a value without a digit may read it. */
    uint8_t *const *plane;
    const uint8_t *map_bytes; /* the map bytes; read only if derived and not constant */
    const uint8_t *escape;    /* the caller's memory: escape_len elements of the dtype */
    size_t escape_len;
    size_t len; /* values */
} gw_join_input;

/*
 * Assembles the values into dst (the caller's memory, len elements of the dtype). If the labels need more
 * digits than a plane has, the bytes found there are used, values are meaningless and joined->plane_len shows
 * it. Missing escapes are +0; joined->escape_len counts all that the labels need. place[] (workspace, len
 * entries) gets the positions of the escapes, and its slop may be written.
 */
typedef void gw_join_fn(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                        const gw_joiner *joiner);

/*
 * The values of a masked chunk that are not +0 are joined by themselves, with their map bytes, and then
 * spread. bitmap is a workspace array, the zero mask: bit i is set unless value i is +0. Its slop may be
 * read.
 *
 * gather: out[0..n) = bytes[i] of the n set bits, in order. Returns n, or SIZE_MAX if a padding bit is set
 * (out is then meaningless). bytes is the caller's memory, what follows it may be prefetched; out is a
 * workspace array, its slop may be written.
 *
 * spread: dst[i] = the next of values if bit i is set, else +0, or, if joiner->addend is not NULL, the sums
 * of these and the addends. dst is the caller's memory, values a workspace array of as many elements as bits
 * are set, its slop may be read. No padding bit is set. Of the joiner dtype, addend, strict and the hints are
 * read.
 */
typedef size_t gw_gather_fn(uint8_t *out, const uint8_t *bytes, const uint8_t *bitmap, size_t len);
typedef void gw_spread_fn(void *dst, const void *values, const uint8_t *bitmap, size_t len,
                          const gw_joiner *joiner);

/* Orders what join and spread with the hint `stream` have stored before all later stores of this thread. */
typedef void gw_fence_fn(void);

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* accumulator[i] = accumulator[i] + values[i] as docs/numerics.md section 5 says. out may be accumulator
 * itself; out and accumulator may be the caller's memory, values too. len elements each. */
typedef void gw_add_fn(void *out, const void *accumulator, const void *values, size_t len, uint32_t strict);

/* values[i] = values[i] * scale as docs/numerics.md section 5 says: len fp32 values, the caller's memory.
 * scale is a normal number. */
typedef void gw_scale_fn(void *values, size_t len, float scale, uint32_t strict);

typedef struct gw_gcomp_kernels {
    gw_map_scan_fn *map_scan;
    gw_map_build_fn *map_build;
    gw_round_fn *round;
    gw_survey_fn *survey;
    gw_split_fn *split;
    gw_count_fn *count;
    gw_rank_fn *rank;
    gw_partition_fn *partition;
    gw_merge_fn *merge;
    gw_pack_fn *pack;
    gw_unpack_fn *unpack;
    gw_join_fn *join;
    gw_gather_fn *gather;
    gw_spread_fn *spread;
    gw_fence_fn *fence;
    gw_add_fn *add_fp32;
    gw_add_fn *add_bf16;
    gw_add_fn *add_fp16;
    gw_scale_fn *scale_fp32;
} gw_gcomp_kernels;

/* f(..., has_left, has_right) with constants: four loops without tests. */
#define GW_BY_SIDES(f, has_left, has_right, ...)                                                             \
    ((has_left) && (has_right) ? f(__VA_ARGS__, 1, 1)                                                        \
     : (has_left)              ? f(__VA_ARGS__, 1, 0)                                                        \
     : (has_right)             ? f(__VA_ARGS__, 0, 1)                                                        \
                               : f(__VA_ARGS__, 0, 0))

/* For GW_DECLARE_KERNELS() of core/kernels.h. */
#define GW_DECLARE_GCOMP_KERNELS(backend)                                                                    \
    gw_map_scan_fn gw_map_scan_##backend;                                                                    \
    gw_map_build_fn gw_map_build_##backend;                                                                  \
    gw_round_fn gw_round_##backend;                                                                          \
    gw_survey_fn gw_survey_##backend;                                                                        \
    gw_split_fn gw_split_##backend;                                                                          \
    gw_count_fn gw_count_##backend;                                                                          \
    gw_rank_fn gw_rank_##backend;                                                                            \
    gw_partition_fn gw_partition_##backend;                                                                  \
    gw_merge_fn gw_merge_##backend;                                                                          \
    gw_pack_fn gw_pack_##backend;                                                                            \
    gw_unpack_fn gw_unpack_##backend;                                                                        \
    gw_join_fn gw_join_##backend;                                                                            \
    gw_gather_fn gw_gather_##backend;                                                                        \
    gw_spread_fn gw_spread_##backend;                                                                        \
    gw_fence_fn gw_fence_##backend;                                                                          \
    gw_add_fn gw_add_fp32_##backend, gw_add_bf16_##backend, gw_add_fp16_##backend;                           \
    gw_scale_fn gw_scale_fp32_##backend

#endif
