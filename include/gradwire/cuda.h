/*
 * cuda.h: GCOMP and THC on NVIDIA GPUs (compute capability 8.0 and later), with the bytes and values of the
 * CPU.
 *
 * This header includes no CUDA header, and a program that uses it links no CUDA library: gw_cuda_init() opens
 * the driver (libcuda.so.1) at run time, and the kernels are in libgradwire. If the build has no kernels, or
 * the machine no driver, no device or a device without a kernel, gw_cuda_init() returns a status that says
 * which. The rest of the library then still works.
 *
 * gcomp.h and thc.h explain the words used here. An item is one frame or tensor of a batch, which is many of
 * them in one call. "Host" and "device" name the memory that a pointer refers to.
 *
 * Rules of all calls with a stream:
 *   - Stream: a CUstream or cudaStream_t; NULL is the default stream of the context. A call puts work on the
 *     stream and returns. It does not wait, allocate, use another stream or change a device setting, so it
 *     may be captured into a CUDA graph (on a stream other than NULL). Only gw_cuda_init() and
 *     gw_cuda_close() wait, because they load and unload modules.
 *   - Threads: the context that was current in gw_cuda_init() must be current in the calling thread. Threads
 *     and streams may share the handle. Calls whose kernels may run at the same time need results and
 *     workspaces of their own.
 *   - Memory: pointers to data, patterns, results and workspaces are device pointers (or host memory that the
 *     device can address). Handles, structs, contributor sets and arrays of pointers are host memory and are
 *     copied before the call returns, unless a comment says "device".
 *   - Status: the host checks arguments. If a call returns another status than GW_OK, nothing was put on the
 *     stream, except after GW_ERR_DEVICE. Statuses that depend on data go to a gw_cuda_result in device
 *     memory. Hostile input ends in a status there, never in a trap: the context stays usable.
 *   - Alignment: values to their element (16 bytes are faster); frames, packed indices and lanes to 16;
 *     patterns, members, results, items, hops and histograms to 8; workspaces to 256; else GW_ERR_ARG.
 *   - Graphs: random keys and rounds can be read from device memory (gw_cuda_gcomp_key, gw_cuda_thc_key), so
 *     that replays advance.
 *   - GW_ERR_STATE: a handle is not initialised. GW_ERR_DEVICE: the driver refused; gw_cuda_driver_error()
 *     has its code.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_CUDA_H
#define GRADWIRE_CUDA_H

#include "gradwire/gcomp.h"
#include "gradwire/gradwire.h"
#include "gradwire/thc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -----------------------------------------------------------------------------------------------------------
 * Handle
 * -------------------------------------------------------------------------------------------------------- */

/* An open driver and the kernels, loaded into one context. In the caller's memory; must not be copied. */
typedef struct gw_cuda {
    union {
        uint64_t align;
        unsigned char bytes[2048];
    } opaque;
} gw_cuda;

/* What gw_cuda_init() found. */
typedef struct gw_cuda_info {
    uint32_t driver_version;         /* as cuDriverGetVersion(): 1000 * major + 10 * minor */
    uint32_t arch_major, arch_minor; /* compute capability */
    uint32_t multiprocessor_count;
    uint32_t shared_size_max; /* bytes of dynamic shared memory that a block can have */
} gw_cuda_info;

/* 1 if this library contains kernels (it was built with nvcc), else 0. */
GW_API int gw_cuda_is_built(void);

/*
 * Opens the driver and loads the kernels into the context that is current in the calling thread. It makes no
 * context and chooses no device: do that before, with cudaSetDevice() and any call of the CUDA runtime, with
 * cuDevicePrimaryCtxRetain() and cuCtxSetCurrent(), or by a framework. It may wait for the device and must
 * not be called while a stream is captured.
 *   - GW_ERR_ARG (NULL)
 *   - GW_ERR_NO_CUDA_BUILD: build the library with nvcc
 *   - GW_ERR_NO_DRIVER: no libcuda.so.1, or one older than CUDA 12.0
 *   - GW_ERR_NO_DEVICE
 *   - GW_ERR_STATE: no context is current
 *   - GW_ERR_NO_IMAGE: no kernel for the device, nor one that its driver can translate, or the driver is
 *     older than the compiler's CUDA 13. Update the driver, or build the library for this device
 *   - GW_ERR_DEVICE: gw_cuda_driver_error() has the driver's code
 *   - on failure nothing stays open and *cuda is zeroed, except what gw_cuda_driver_error() returns
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_init(gw_cuda *cuda);

/* Unloads the kernels and closes the driver. All work that uses them must have ended. The context must be
 * current, unless it was destroyed: then nothing is left to unload. A zeroed handle or NULL is ignored. */
GW_API void gw_cuda_close(gw_cuda *cuda);

/* Fills *info. GW_OK; GW_ERR_ARG; GW_ERR_STATE (*info is zeroed). */
GW_API GW_MUST_CHECK gw_status gw_cuda_device_info(const gw_cuda *cuda, gw_cuda_info *info);

/* The code (CUresult) of the last driver call that failed under this handle, in any thread; 0 if none did. */
GW_API uint32_t gw_cuda_driver_error(const gw_cuda *cuda);

/* Outcome of a call, written to device memory when its work is done. `size` and `len` are those that the
 * function of the CPU gives, and 0 on failure. */
typedef struct gw_cuda_result {
    uint32_t status;    /* gw_status */
    uint32_t bad_frame; /* gw_cuda_gcomp_decode_add_frames(): index of the frame at fault; else 0 */
    uint64_t size;      /* bytes of the frame or codebook made */
    uint64_t len;       /* values decoded, encoded or counted */
    /* lowest bad chunk (GCOMP) or block of the tensor (THC); UINT64_MAX unless one is at fault */
    uint64_t bad_index;
    uint64_t missing; /* THC decode: blocks without a contributor */
} gw_cuda_result;

/* Device memory that a call writes bytes to. Their number goes to the result. */
typedef struct gw_cuda_buffer {
    void *data;
    uint64_t capacity; /* bytes */
} gw_cuda_buffer;

/* Device memory that a call of THC writes values to. Their number goes to the result. */
typedef struct gw_cuda_target {
    void *values;
    uint64_t capacity; /* elements */
} gw_cuda_target;

/* -----------------------------------------------------------------------------------------------------------
 * Precision map (GCOMP section 4.2): the functions of gcomp.h with state and map in device memory
 * -------------------------------------------------------------------------------------------------------- */

/* What a map is made from. */
typedef struct gw_cuda_gcomp_map_input {
    const gw_gcomp_map_rule *rule; /* from gw_gcomp_map_rule_init() */
    /* NULL, or the rule in device memory, which is read when the kernel runs and is not checked; `rule` still
     * says which arrays are needed and which limits count. For graphs: a copy on the stream can update it
     * every step */
    const gw_gcomp_map_rule *device_rule;
    const gw_optimizer_state *state; /* its arrays in device memory */
    uint64_t len;
} gw_cuda_gcomp_map_input;

/* gw_gcomp_map_scan(): *top = the largest quarter-octave of the range. top is device memory, aligned to 4.
 * For several ranges use one word each and take their maximum. GW_OK; GW_ERR_ARG; GW_ERR_STATE;
 * GW_ERR_DEVICE. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_map_scan(gw_cuda *cuda, const gw_cuda_gcomp_map_input *input,
                                                      uint32_t *top, void *stream);

/* gw_gcomp_map_build() with base = gw_gcomp_map_base(*top). top is device memory, read when the kernel runs.
 * *base (device; base may be NULL) is set to that base. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_map_build(gw_cuda *cuda, const gw_cuda_gcomp_map_input *input,
                                                       const uint32_t *top, uint8_t *map_bytes,
                                                       uint32_t *base, void *stream);

/* gw_gcomp_map_digest(): digest[i] = CRC32C of the map bytes of chunk i. chunk_log2: 10..15. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_map_digest(gw_cuda *cuda, const uint8_t *map_bytes, uint64_t len,
                                                        uint32_t chunk_log2, uint32_t *digest, void *stream);

/* -----------------------------------------------------------------------------------------------------------
 * GCOMP: the functions of gcomp.h with values, maps and frames in device memory
 * -------------------------------------------------------------------------------------------------------- */

/* Key and counter of stochastic rounding in device memory, in place of the fields of the source. */
typedef struct gw_cuda_gcomp_key {
    uint64_t seed;
    uint32_t step_index;
    uint16_t rank, hop;
} gw_cuda_gcomp_key;

/*
 * Arguments in device memory, which kernels read when they run. A member that is NULL is taken from the host
 * at the call.
 *   - The memory that the members point to must not change while kernels of a call may run. A codebook is
 *     read by blocks of threads at different times. If it changes meanwhile, the result is undefined, and so
 *     is whether the kernel ends. Build the next codebook into other memory, or on the same stream.
 *   - For the call, the codebook takes the slot of the handle that gw_gcomp_codebook_install() would give it:
 *     the slot of a codebook with the same id and generation, else a free one, else the slot of the older
 *     one. Frames of the codebook that it replaces are refused with GW_ERR_TABLE. The handle itself does not
 *     change.
 */
typedef struct gw_cuda_gcomp_device {
    const uint32_t *map_base;     /* in place of map->base: what gw_cuda_gcomp_map_build() wrote */
    const gw_cuda_gcomp_key *key; /* in place of seed (not of segments), step_index, rank and hop */
    /* a serialised codebook (gw_cuda_gcomp_codebook_build()), with its id and generation below: frames are
     * encoded with it, and frames that name it are decoded. GW_ERR_TABLE in the result if it breaks the rules
     * of docs/format.md section 5.1 or lacks label 0 or 1 */
    const uint8_t *codebook;
    const uint32_t *codebook_size; /* bytes at codebook, at most GW_GCOMP_CODEBOOK_SIZE_MAX */
    uint32_t codebook_id;          /* below GW_GCOMP_CODEBOOK_ID_END */
    uint32_t codebook_generation;
} gw_cuda_gcomp_device;

/* Parameters of GCOMP calls other than their data. */
typedef struct gw_cuda_gcomp_request {
    const gw_cuda_gcomp_device *device; /* NULL: everything is read from the host */
    gw_cuda_result *result;             /* batches: not read, each item has a result of its own */
    gw_workspace workspace;             /* device memory */
    void *stream;
} gw_cuda_gcomp_request;

/*
 * Bytes of workspace. Its contents do not matter before and after. Every call under way needs its own. The
 * sizes follow from the options of the handle and from numbers that the host has.
 *   - item_count, value_total: as in the batch. For a single call: 1, and the len (encode, hop) or capacity
 *     (decode)
 *   - a batch of histograms does not depend on the number of values; a single histogram needs
 *     GW_CUDA_HISTOGRAM_WORKSPACE_SIZE
 *   - 0 for a handle that is not initialised or numbers beyond its limits
 */
GW_API size_t gw_cuda_gcomp_encode_workspace_size(const gw_gcomp *codec, uint32_t item_count,
                                                  uint64_t value_total);
GW_API size_t gw_cuda_gcomp_decode_workspace_size(const gw_gcomp *codec, uint32_t item_count,
                                                  uint64_t value_total);
GW_API size_t gw_cuda_gcomp_hop_workspace_size(const gw_gcomp *codec, uint32_t item_count,
                                               uint64_t value_total);
GW_API size_t gw_cuda_gcomp_histogram_workspace_size(const gw_gcomp *codec, uint32_t item_count);
#define GW_CUDA_HISTOGRAM_WORKSPACE_SIZE 256u
/* Bytes that encode, hop and histogram_add of a source with segments need in addition. segment_count: at most
 * 2^32 - 1 */
GW_API size_t gw_cuda_gcomp_segments_workspace_size(const gw_gcomp *codec, size_t segment_count,
                                                    uint64_t len);

/*
 * gw_gcomp_encode(), with the same bytes.
 *   - source: values, bytes and digest of the map, blocks of quanta and segments are in device memory.
 *     Kernels read the segments
 *   - dst->capacity: at least gw_gcomp_frame_bound()
 *   - returned: GW_ERR_ARG, GW_ERR_STATE, GW_ERR_LIMIT, GW_ERR_DST, GW_ERR_WORKSPACE, GW_ERR_OPTION (the
 *     device has too little shared memory for the handle's chunk_log2: use a smaller one), GW_ERR_DEVICE
 *   - in the result: GW_OK, size and len; GW_ERR_TABLE; GW_ERR_ARG (a map_base out of range, or segments
 *     without all values)
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_encode(gw_cuda *cuda, const gw_gcomp *codec,
                                                    const gw_gcomp_source *source, const gw_cuda_buffer *dst,
                                                    const gw_cuda_gcomp_request *request);

/* A received frame. */
typedef struct gw_cuda_gcomp_frame {
    const void *data;        /* device memory */
    uint64_t capacity;       /* bytes that may be read there */
    const uint64_t *size_at; /* NULL: the size is `capacity`. Else the size in device memory (a result's size,
                                a received header); if it is more than `capacity`: GW_ERR_SHORT */
    const gw_gcomp_map *map; /* as in gw_gcomp_frame, bytes and digest in device memory */
} gw_cuda_gcomp_frame;

/* Where decoded values go. Their number goes to the result. */
typedef struct gw_cuda_gcomp_target {
    void *values;
    uint64_t capacity; /* elements */
    float scale; /* as in gw_gcomp_target. 0 and 1: no multiplication; else a normal number, or GW_ERR_ARG */
} gw_cuda_gcomp_target;

/*
 * gw_gcomp_decode(), gw_gcomp_decode_add() and gw_gcomp_frame_check(), with the same values, status and bad
 * chunk.
 *   - value_hint: about how many values the frame may have; it determines the size of the workspace. A frame
 *     with more is checked too, but slower
 *   - returned: GW_ERR_ARG, GW_ERR_STATE, GW_ERR_LIMIT (capacity or value_hint above 2^48), GW_ERR_WORKSPACE,
 *     GW_ERR_DEVICE
 *   - in the result: all statuses that depend on the bytes, and GW_ERR_DST
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode(gw_cuda *cuda, const gw_gcomp *codec,
                                                    const gw_cuda_gcomp_frame *frame,
                                                    const gw_cuda_gcomp_target *target,
                                                    const gw_cuda_gcomp_request *request);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_add(gw_cuda *cuda, const gw_gcomp *codec,
                                                        const gw_cuda_gcomp_frame *frame,
                                                        const gw_cuda_gcomp_target *target,
                                                        const gw_cuda_gcomp_request *request);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_frame_check(gw_cuda *cuda, const gw_gcomp *codec,
                                                         const gw_cuda_gcomp_frame *frame,
                                                         uint64_t value_hint,
                                                         const gw_cuda_gcomp_request *request);

/*
 * gw_gcomp_decode_add_frames() of all chunks: accumulator + frames[0] + frames[1] ..., in this order, each
 * sum rounded. The same values, status, chunk and frame (result->bad_frame).
 *   - frames: host array of frame_count (1..2^20) frames
 *   - workspace: gw_cuda_gcomp_decode_add_frames_workspace_size(), for any number of frames
 *   - the sums go through the workspace, one frame after the other; target->values is written by the last
 *     kernel, and only where the chunk is good in all frames
 *   - returned: as gw_cuda_gcomp_decode_add()
 */
GW_API size_t gw_cuda_gcomp_decode_add_frames_workspace_size(const gw_gcomp *codec, uint64_t capacity);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_add_frames(gw_cuda *cuda, const gw_gcomp *codec,
                                                               const gw_cuda_gcomp_frame *frames,
                                                               size_t frame_count,
                                                               const gw_cuda_gcomp_target *target,
                                                               const gw_cuda_gcomp_request *request);

/* A hop of a ring: gw_gcomp_decode_add_encode(), but the sums go through the workspace. If the frame is bad,
 * the result's size is 0 and dst is unspecified. device->map_base replaces the base of both maps. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_add_encode(gw_cuda *cuda, const gw_gcomp *codec,
                                                               const gw_cuda_gcomp_frame *frame,
                                                               const gw_gcomp_source *source,
                                                               const gw_cuda_buffer *dst,
                                                               const gw_cuda_gcomp_request *request);

/*
 * One frame of a batch, or one tensor whose values are counted. The array is device memory, read when the
 * kernels run.
 *   - NULL or misaligned pointers that single calls refuse give GW_ERR_ARG in the item's result; ranges that
 *     overlap are not detected
 *   - each item has a result of its own, aligned to 8 and not NULL; nothing checks that
 *   - an item that fails does not affect others; its status and bytes are the same as in a single call
 */
typedef struct gw_cuda_gcomp_item {
    const void *src; /* decode: the frame; encode, histogram: values */
    /* decode: where values go, or are added (frame_check: not read); encode: where the frame goes; histogram:
     * the gw_cuda_gcomp_histogram */
    void *dst;
    const void *addend;          /* set to NULL */
    const uint64_t *src_size_at; /* decode: bytes of the frame; NULL: src_size */
    uint64_t src_size;           /* decode: bytes that may be read; encode, histogram: number of values */
    /* decode: elements; encode: bytes, at least gw_gcomp_frame_bound(), else GW_ERR_DST */
    uint64_t dst_capacity;
    /* bytes and digests of the item's map; NULL without a map. Encode and histogram in carried mode without a
     * map: the quanta of the blocks (gw_gcomp_quantum.blocks); NULL: those that the options choose */
    const uint8_t *map_bytes;
    const uint32_t *digest;
    uint64_t map_len;       /* as gw_gcomp_map.len */
    uint64_t first_element; /* encode, histogram: as gw_gcomp_source.first_element */
    float scale;            /* decode: as gw_cuda_gcomp_target.scale */
    uint32_t reserved;      /* set to 0 */
    /* NULL, or the result of an earlier call that the item depends on. If its status is not GW_OK, nothing is
     * done and the item takes over status and bad_index, before all other checks */
    const gw_cuda_result *after;
    gw_cuda_result *result;
} gw_cuda_gcomp_item;

/* Items of one call, and what they share. */
typedef struct gw_cuda_gcomp_batch {
    const gw_cuda_gcomp_item *items; /* device array */
    uint32_t item_count;             /* 1..2^20 */
    /* encode, decode: at least the sum of the items' values or capacities. Items whose chunks do not fit the
     * workspace get GW_ERR_LIMIT, and so do all items with chunks after the first of them (encode: all items
     * after it). frame_check, histogram: about how many values all items have; with more, the call is only
     * slower */
    uint64_t value_total;
    const gw_gcomp_map *map; /* NULL, or base (1..1023 unless device->map_base is given), wire_scale and
                                chunk_log2 of all items' maps; bytes, digest and len are not read */
    /* encode, histogram: seed, step_index, rank and hop of all items; NULL: zeros */
    const gw_cuda_gcomp_key *key;
    int is_add; /* decode: 1 adds to the dst of every item */
} gw_cuda_gcomp_batch;

/*
 * Many frames in one call. Work is balanced by chunk: a thousand small tensors and one large one take the
 * time of their chunks.
 *   - request->device: one codebook, base and key for all items
 *   - returned: GW_ERR_ARG, GW_ERR_STATE, GW_ERR_LIMIT (item_count or value_total), GW_ERR_WORKSPACE,
 *     GW_ERR_OPTION (encode: as gw_cuda_gcomp_encode()), GW_ERR_DEVICE; everything else is in the items'
 *     results
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_encode_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                          const gw_cuda_gcomp_batch *batch,
                                                          const gw_cuda_gcomp_request *request);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                          const gw_cuda_gcomp_batch *batch,
                                                          const gw_cuda_gcomp_request *request);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_frame_check_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                               const gw_cuda_gcomp_batch *batch,
                                                               const gw_cuda_gcomp_request *request);

/* One hop of a batch: gw_cuda_gcomp_decode_add_encode() of frame src + values -> frame dst. The array, its
 * pointers and results are as in gw_cuda_gcomp_item. */
typedef struct gw_cuda_gcomp_hop {
    const void *src;              /* the received frame */
    const uint64_t *src_size_at;  /* its bytes; NULL: src_size */
    uint64_t src_size;            /* bytes that may be read there */
    const void *values;           /* what is added, len values */
    uint64_t len;                 /* must be the frame's, else GW_ERR_ARG */
    uint64_t first_element;       /* as gw_gcomp_source.first_element */
    void *dst;                    /* the frame to send */
    uint64_t dst_capacity;        /* bytes, at least gw_gcomp_frame_bound(), else GW_ERR_DST */
    const uint8_t *src_map_bytes; /* of the map with which src was made; NULL unless src is derived */
    const uint32_t *src_digest;
    uint64_t src_map_len;
    const uint8_t *map_bytes; /* of the map of the sums, NULL without one; often the same */
    const uint32_t *digest;
    uint64_t map_len;
    const gw_cuda_result *after; /* as in gw_cuda_gcomp_item: of a receive, or of the previous hop */
    gw_cuda_result *result;
} gw_cuda_gcomp_hop;

/* Hops of one call, and what they share. */
typedef struct gw_cuda_gcomp_hop_batch {
    const gw_cuda_gcomp_hop *hops; /* device array */
    uint32_t hop_count;            /* 1..2^20 */
    /* at least the sum of the hops' len. Hops whose sums or chunks do not fit the workspace, and all hops
     * after the first of them, get GW_ERR_LIMIT */
    uint64_t value_total;
    const gw_gcomp_map *src_map;  /* as gw_cuda_gcomp_batch.map: of the received frames */
    const gw_gcomp_map *map;      /* of the frames to send */
    const gw_cuda_gcomp_key *key; /* of the frames to send; NULL: zeros */
} gw_cuda_gcomp_hop_batch;

/*
 * Many hops in one call, balanced by chunk. Each makes the same bytes as a single one.
 *   - request->device->map_base replaces the base of both maps
 *   - returned: as the other batches
 *   - in a hop's result: first what is wrong with its values, map of the sums and dst (dst is then
 *     untouched), then what is wrong with its frame: size is 0, bad_index is the chunk if one is at fault,
 *     and dst is unspecified
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_add_encode_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                                     const gw_cuda_gcomp_hop_batch *batch,
                                                                     const gw_cuda_gcomp_request *request);

/* Label counts in device memory, all zero at the start; any number of calls may add to them. The layout
 * differs from gw_gcomp_histogram: window and kind of exponents are chosen only when the codebook is
 * built. */
typedef struct gw_cuda_gcomp_histogram {
    uint64_t bin[1024];
    uint64_t mask_count[10];
    uint64_t first_chunk;    /* complement of a chunk's number and its largest exponent */
    uint64_t first_relative; /* complement of a chunk's number and 1 for relative exponents */
    uint64_t chunk_count;
} gw_cuda_gcomp_histogram;

/* gw_gcomp_histogram_add(). histogram is device memory. Calls that add to the same histogram must not run at
 * the same time. In the result: GW_ERR_STATE for values without a map if the histogram has relative
 * exponents. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_histogram_add(gw_cuda *cuda, const gw_gcomp *codec,
                                                           const gw_gcomp_source *source,
                                                           gw_cuda_gcomp_histogram *histogram,
                                                           const gw_cuda_gcomp_request *request);

/*
 * gw_gcomp_histogram_add() of many tensors, balanced by chunk.
 *   - items[i].dst: the histogram that item i is added to: one for all items, one for each, or anything
 *     between
 *   - the counts are as if the items were added in their order. Only chunk_count, which serves to order
 *     chunks, differs: it grows by the chunks of the whole call
 *   - result->len: the values counted. A tensor that is refused changes nothing
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_histogram_add_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                                 const gw_cuda_gcomp_batch *batch,
                                                                 const gw_cuda_gcomp_request *request);

/* Where codebooks go, in device memory. */
typedef struct gw_cuda_gcomp_codebooks {
    uint8_t *codebooks; /* codebook i is at codebooks + GW_GCOMP_CODEBOOK_SIZE_MAX * i */
    uint32_t *sizes;    /* bytes of each; may be NULL */
    uint32_t count;     /* 1..2^20, else GW_ERR_LIMIT */
} gw_cuda_gcomp_codebooks;

/*
 * gw_gcomp_codebook_build(): makes codebook i from the counts of histograms[i] (device memory). The codebook
 * is for gw_cuda_gcomp_device.codebook or, copied to the host, for gw_gcomp_codebook_install().
 *   - codec: its dtype and quantum mode are read
 *   - request->result: an array of codebooks->count results, in which size is the size of the codebook. Their
 *     status is GW_OK: any counts have a codebook
 *   - request->device and workspace are not read
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_codebook_build(gw_cuda *cuda, const gw_gcomp *codec,
                                                            const gw_cuda_gcomp_histogram *histograms,
                                                            const gw_cuda_gcomp_codebooks *codebooks,
                                                            const gw_cuda_gcomp_request *request);

/* Bytes of dynamic shared memory that a block needs for the device entry points. */
typedef struct gw_cuda_shared_sizes {
    /* with GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, dtype) bytes (a macro of the device headers), an
     * encode in explicit mode does less work */
    uint32_t encode;
    uint32_t decode;
} gw_cuda_shared_sizes;

/*
 * Makes what kernels of the caller pass, by value, to the device entry points: functions of
 * gradwire/device/cuda/gcomp_device.cuh with which a block of 256 threads encodes or decodes one chunk. That
 * header documents them and defines struct gw_device_codec. This function is host code, part of every build,
 * and needs no device.
 *   - codec: must have an installed codebook that it encodes with (gw_gcomp_codebook_install()), else
 *     GW_ERR_TABLE
 *   - map: NULL, or the base, scale and chunk_log2 that all chunks use; bytes and digest are not read
 *   - key: NULL (zeros), or the key of stochastic rounding
 *   - out_size: sizeof(struct gw_device_codec), to detect a header of another version
 *   - sizes may be NULL
 *   - GW_OK; GW_ERR_ARG (also: no map, and the codebook has relative exponents); GW_ERR_STATE; GW_ERR_TABLE;
 *     GW_ERR_UNSUPPORTED (carried mode). On failure *out is untouched
 */
struct gw_device_codec;
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_device_codec(const gw_gcomp *codec, const gw_gcomp_map *map,
                                                          const gw_cuda_gcomp_key *key,
                                                          struct gw_device_codec *out, size_t out_size,
                                                          gw_cuda_shared_sizes *sizes);

/* -----------------------------------------------------------------------------------------------------------
 * THC: the functions of thc.h with tensors, patterns, indices and lanes in device memory
 * -------------------------------------------------------------------------------------------------------- */

/* Seed, round and rank in device memory, for graphs. If frames are made or other machines take part, the seed
 * must be equal to the seed of the options. */
typedef struct gw_cuda_thc_key {
    uint64_t seed;
    uint32_t round;
    uint32_t rank;
} gw_cuda_thc_key;

/* Parameters of THC calls other than their data. */
typedef struct gw_cuda_thc_request {
    const gw_cuda_thc_key *key; /* device memory; NULL: seed of the options, round and rank of the range */
    gw_thc_mode mode;           /* decode: sum or mean */
    gw_cuda_result *result;
    void *stream;
} gw_cuda_thc_request;

/*
 * Phase one: gw_thc_norms(). All pointers of *source, and patterns, are device memory; request->key is not
 * read.
 *   - in the result: GW_OK; or GW_ERR_NONFINITE with the lowest block that is not finite (policy
 *     GW_THC_NONFINITE_ERROR). The pattern of such a block is GW_THC_NORM_NONFINITE (plain: 0xffffffff
 *     twice); the others are right
 *   - the patterns may be reduced in place by any collective with MAX of uint32
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_norms(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                 const gw_thc_source *source, uint32_t *patterns,
                                                 const gw_cuda_thc_request *request);

/*
 * Phase two: gw_thc_encode(), error feedback included, in one pass over the values.
 *   - source->own_patterns: what gw_cuda_thc_norms() wrote for the same values and error; NULL: they are
 *     computed again. Plain handles do not read it
 *   - source->rotated: NULL, else GW_ERR_ARG
 *   - indices->capacity: at least gw_thc_indices_size(), else GW_ERR_DST
 *   - in the result: the status of gw_thc_encode() and the lowest block at fault. Unlike on the CPU, all
 *     other blocks are encoded; the indices of bad blocks are zero and their error memory is unchanged. To
 *     repeat the call, restore the error memory first, or encode only the blocks from bad_index on
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_encode(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                  const gw_thc_source *source, const gw_cuda_buffer *indices,
                                                  const gw_cuda_thc_request *request);

/* Inputs of a sum. Arrays of `count` in host memory. */
typedef struct gw_cuda_thc_inputs {
    const uint8_t *const *data; /* device pointers: packed indices, or lanes */
    const uint32_t *ranks;      /* sum_indices: their workers */
    const uint8_t *const *sets; /* sum_lanes: their contributor sets, host pointers */
    size_t count;
    /* 1: lanes += sum. 0: lanes = sum, whatever they held, and the set must be empty. A graph replays the
     * additions but not the changes of the set (host memory): capture calls with 0 */
    int accumulate;
} gw_cuda_thc_inputs;

/* gw_thc_agg_add_indices_many(): adds packed indices in one pass. sum->lanes is device memory. sum->set is
 * host memory; the ranks join it as soon as the work is on the stream. GW_ERR_ARG, GW_ERR_DUP,
 * GW_ERR_OVERFLOW as on the CPU. */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_sum_indices(gw_cuda *cuda, const gw_thc_agg *agg,
                                                       const gw_thc_partial *sum,
                                                       const gw_cuda_thc_inputs *inputs, void *stream);

/* Partial sums that one call of gw_cuda_thc_sum_lanes() takes. */
#define GW_CUDA_THC_SOURCES_MAX 64u

/*
 * gw_thc_agg_add_lanes_many(): adds at most GW_CUDA_THC_SOURCES_MAX partial sums in one pass.
 *   - all input lanes are checked against the number of their contributors; if the status is GW_OK, all are
 *     added
 *   - GW_ERR_CORRUPT in the result: the lanes are unchanged and bad_index is the lowest corrupt input. The
 *     sets have joined sum->set already, when the work was put on the stream: the caller must restore it
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_sum_lanes(gw_cuda *cuda, const gw_thc_agg *agg,
                                                     const gw_thc_partial *sum,
                                                     const gw_cuda_thc_inputs *inputs,
                                                     const gw_cuda_thc_request *request);

/* gw_thc_expand(): makes one worker's indices a buffer for a raw integer all-reduce (ncclUint8, ncclUint32).
 * GW_ERR_DST if dst->capacity is less than gw_thc_reduced_size(). */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_expand(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                  const gw_thc_indices *indices, const gw_cuda_buffer *dst,
                                                  void *stream);

/* gw_thc_decode(). All pointers of *sum are device memory. In the result: status, bad_index, missing and
 * len. */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_decode(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                  const gw_thc_sum *sum, const gw_cuda_target *target,
                                                  const gw_cuda_thc_request *request);

/* gw_thc_decode_reduced(): members come from the count lanes of the buffer. */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_decode_reduced(gw_cuda *cuda, const gw_thc *thc,
                                                          const gw_thc_range *range, const gw_thc_sum *sum,
                                                          const gw_cuda_target *target,
                                                          const gw_cuda_thc_request *request);

#ifdef __cplusplus
}
#endif

#endif
