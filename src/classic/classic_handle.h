/*
 * The inside of a handle, and how the parts of the classic codecs fit together. A *family* is a form of
 * payload:
 *
 *   cast    classic_cast.c    FP16, BF16
 *   sparse  classic_sparse.c  TOPK, DGC, RANDK: positions, then values
 *   sign    classic_sign.c    SIGNSGD, EFSIGNSGD, SIGNUM, ONEBIT: scales, then one bit a value
 *   level   classic_level.c   QSGD, TERNGRAD: norms, then coded levels
 *
 * classic_codec.c checks arguments and writes headers; classic_frame.c reads them; a family sees checked
 * arguments and its payload only.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_HANDLE_H
#define GW_CLASSIC_HANDLE_H

#include "core/bytes.h"
#include "core/kernels.h"
#include "gradwire/classic.h"

#define GW_CLASSIC_TAG 0x53414c43u /* "CLAS": a handle that gw_classic_init() made */

#define GW_CLASSIC_LEN_MAX ((uint64_t)1 << 32)

/* Values that the families work on at a time, in the first cache. Sums over longer ranges add those of its
 * blocks. */
#define GW_CLASSIC_BLOCK_LEN 4096u

typedef struct gw_classic_state {
    uint32_t tag;
    gw_classic_options options;
    gw_kernels kernels;
} gw_classic_state;

/* An encoding in progress of at least one element. The workspace has at least the bytes that the family asked
 * for, aligned to 64. */
typedef struct gw_classic_encoding {
    const gw_classic_options *options;
    const gw_kernels *kernels;
    const gw_classic_step *step;
    const gw_classic_source *source;
    uint8_t *payload; /* where the family writes, any alignment */
    size_t capacity;  /* bytes */
    size_t size;      /* out */
    uint8_t *workspace;
} gw_classic_encoding;

/* A payload to decode, of at least one element; header fields are checked. The bytes may change while they
 * are read (shared memory), so a family reads what it checks once, or clamps what it uses. */
typedef struct gw_classic_payload {
    const gw_classic_frame_info *info;
    const gw_kernels *kernels;
    const uint8_t *data;
    size_t size; /* bytes, padding and checksum excluded */
    uint8_t *workspace;
} gw_classic_payload;

/* What becomes of decoded values. */
typedef struct gw_classic_sink {
    void *values;   /* elements of dtype, any alignment; is_sum: fp32 in the machine's byte order */
    unsigned dtype; /* gw_dtype */
    int is_sum;     /* 1: values[i] += decoded, fp32 */
    float scale;    /* 1: none */
} gw_classic_sink;

/* Values first.. of the target from x, which is changed. Scaled, then stored or added. */
void gw_classic_sink_put(const gw_classic_sink *sink, const gw_kernels *kernels, uint64_t first, float *x,
                         size_t len);

/* The sink of a target for `len` values: GW_OK, GW_ERR_ARG or GW_ERR_DST. is_sum is 0. */
gw_status gw_classic_sink_make(gw_classic_sink *sink, const gw_classic_target *target, uint64_t len,
                               unsigned dtype);

/* Where element `first` of the target is. */
uint8_t *gw_classic_sink_at(const gw_classic_sink *sink, uint64_t first);

typedef struct gw_classic_family {
    /* Bytes; SIZE_MAX where size_t cannot hold them. step is in range, with at least one element. A family
     * without workspace_size encodes without a workspace. */
    size_t (*workspace_size)(const gw_classic_options *options, const gw_classic_step *step);
    size_t (*payload_size_max)(const gw_classic_options *options, const gw_classic_step *step);
    size_t (*decode_workspace_size)(const gw_classic_frame_info *info);
    /* GW_OK, or GW_ERR_NONFINITE, GW_ERR_STATE or GW_ERR_DST. Everything that can fail comes before the first
     * write to state. */
    gw_status (*encode)(gw_classic_encoding *encoding);
    /* Fields of a header that differ between schemes: values, coding, norm, level_max, block_len, keep_len,
     * payload_size, and flags other than CHECKSUM. GW_OK, GW_ERR_UNSUPPORTED (a number that a later version
     * may define) or GW_ERR_HEADER. Fields that the scheme does not use are 0. Also for len 0, where the
     * caller has checked that payload_size is 0. */
    gw_status (*check_header)(const gw_classic_frame_info *info);
    /* GW_OK or GW_ERR_CORRUPT, with nothing written outside the workspace. */
    gw_status (*check)(const gw_classic_payload *payload);
    /* Follows check() of the same bytes; a payload that changed meanwhile may give other values, but no
     * access out of bounds. */
    void (*decode)(const gw_classic_payload *payload, const gw_classic_sink *sink);

    /* NULL in families without norms: gw_classic_norms(). */
    gw_status (*norms)(const gw_classic_encoding *encoding, float *norms);

    /* Sums; all NULL in families without them. sum_size: 0 if such frames have no sum. */
    size_t (*sum_size)(const gw_classic_frame_info *info);
    /* What headers do not say (shared norms): 1 if the two may be added. Headers agree; `first` may be
     * unchecked. NULL: headers say all. */
    int (*sum_matches)(const gw_classic_payload *first, const gw_classic_payload *payload);
    /* payload has been checked. */
    void (*sum_add)(void *lanes, const gw_classic_payload *payload);
    /* `first` has been checked. */
    void (*sum_decode)(const void *lanes, const gw_classic_payload *first, const gw_classic_sink *sink);
    /* NULL in families without votes. Writes info->payload_size bytes. */
    void (*sum_vote)(const void *lanes, const gw_classic_payload *first, uint8_t *payload);
} gw_classic_family;

extern const gw_classic_family gw_classic_cast, gw_classic_sparse, gw_classic_sign, gw_classic_level;

/* NULL for an unknown scheme. */
const gw_classic_family *gw_classic_family_of(gw_classic_scheme scheme);

/* NULL if it is not initialised. */
const gw_classic_state *gw_classic_state_of(const gw_classic *classic);

/* Number of blocks or columns: block_len 0 is the tensor. */
static inline uint64_t gw_classic_blocks(uint32_t block_len, uint64_t len)
{
    if (len == 0) {
        return 0;
    }
    return block_len == 0 ? 1 : len / block_len + (len % block_len != 0);
}

/* a + b and a * b, or SIZE_MAX where size_t cannot hold them or an argument is SIZE_MAX. */
static inline size_t gw_classic_size_add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static inline size_t gw_classic_size_of(uint64_t count, size_t size)
{
    return count > SIZE_MAX / size ? SIZE_MAX : (size_t)count * size;
}

#define GW_CLASSIC_ALIGN 64u

static inline size_t gw_classic_workspace_bytes(size_t need)
{
    return need == 0 ? 0 : gw_classic_size_add(need, GW_CLASSIC_ALIGN - 1);
}

/* The first multiple of 64 in a workspace, for `need` bytes that follow: GW_OK, GW_ERR_ARG or
 * GW_ERR_WORKSPACE. *at is NULL for need 0. */
static inline gw_status gw_classic_workspace_take(uint8_t **at, const gw_workspace *workspace, size_t need)
{
    *at = NULL;
    if (need == 0) {
        return GW_OK;
    }
    if (workspace == NULL || workspace->data == NULL) {
        return GW_ERR_ARG;
    }
    if (workspace->size < gw_classic_workspace_bytes(need)) {
        return GW_ERR_WORKSPACE;
    }
    uint8_t *data = (uint8_t *)workspace->data;
    *at = data + (0u - (uintptr_t)data) % GW_CLASSIC_ALIGN;
    return GW_OK;
}

#endif
