/*
 * cuda.h: GCOMP and THC on NVIDIA GPUs (compute capability 8.0 and later), the bytes and values of the CPU.
 *
 * This header needs no CUDA header and a program that uses it links no CUDA library: the driver
 * (libcuda.so.1) is opened at run time by gw_cuda_init(), the kernels travel inside libgradwire. Where there
 * is no CUDA in the build, no driver, no device or no kernel for it, gw_cuda_init() says which by a status of
 * its own, and the rest of the library is unaffected.
 *
 * Rules of all calls that take a stream:
 *   - `stream` is a CUstream or cudaStream_t, NULL the default stream of the context. A call only puts work
 *     on it and returns; nothing waits, nothing is allocated, no other stream and no device setting is
 *     touched. (gw_cuda_init() and gw_cuda_close() load and unload modules and do wait.) So every such call
 *     may be captured into a CUDA graph (on a stream other than NULL, which CUDA does not capture).
 *   - The context that was current in gw_cuda_init() must be current in the calling thread. The handle may be
 *     shared by threads and streams. Calls share nothing but the memory that they are given: two calls that
 *     run at the same time need results (and workspaces) of their own.
 *   - Pointers to data, patterns, results and workspaces are device pointers (or host memory that the device
 *     can address). Contexts (gw_thc, gw_gcomp), ranges, contributor sets and arrays of pointers are host
 *     memory and are copied before the call returns, unless a comment says "device".
 *   - Arguments are checked on the host, and a status other than GW_OK means that nothing was put on the
 *     stream, unless it is GW_ERR_DEVICE. What only the bytes can tell is written to a gw_cuda_result in
 *     device memory. A hostile input ends in a status there, never in a trap: the context stays usable.
 *   - Elements may lie at any multiple of their size (16 bytes are faster: whole vectors are read). Packed
 *     indices, lanes and frames lie at multiples of 16, patterns, members and results at multiples of 8;
 *     GW_ERR_ARG otherwise.
 *   - Random keys and rounds can be read from device memory (gw_cuda_thc_key, gw_cuda_key), so that replays
 *     of a graph advance.
 *   - GW_ERR_STATE: the handle was not initialised. GW_ERR_DEVICE: the driver refused; gw_cuda_driver_error()
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

/* A driver, opened, and the kernels, loaded into one context. Caller's memory; not to be copied. */
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
    uint32_t shared_size_max; /* bytes of shared memory that one block may ask for */
} gw_cuda_info;

/* 1 if this library contains kernels (it was built with nvcc), else 0. */
GW_API int gw_cuda_is_built(void);

/*
 * gw_cuda_init() opens the driver and loads the kernels into the context that is current in the calling
 * thread. It makes no context and chooses no device: cudaSetDevice() and any call of the CUDA runtime,
 * cuDevicePrimaryCtxRetain() and cuCtxSetCurrent(), or a framework have done so. May wait for the device; not
 * to be called while a stream is captured.
 *
 * GW_OK; GW_ERR_ARG (NULL); GW_ERR_NO_CUDA_BUILD; GW_ERR_NO_DRIVER (no libcuda.so.1, or one older than CUDA
 * 12.0); GW_ERR_NO_DEVICE; GW_ERR_STATE (no context is current); GW_ERR_NO_IMAGE (no kernel for the device,
 * nor one that its driver can translate, or the driver is older than the compiler's CUDA 13); GW_ERR_DEVICE.
 * On failure nothing stays open and *cuda is zeroed,
 * but gw_cuda_driver_error() still tells the driver's code.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_init(gw_cuda *cuda);

/* Unloads the kernels and closes the driver. Work that uses them must have ended, and the context must be
 * current (or destroyed: then nothing is left to unload). A zeroed handle or NULL is ignored. */
GW_API void gw_cuda_close(gw_cuda *cuda);

/* GW_OK and *info; GW_ERR_ARG; GW_ERR_STATE (*info is zeroed). */
GW_API GW_MUST_CHECK gw_status gw_cuda_device_info(const gw_cuda *cuda, gw_cuda_info *info);

/* The driver's code (CUresult) of the last call of it that failed under this handle, in any thread; 0 if none
 * did. */
GW_API uint32_t gw_cuda_driver_error(const gw_cuda *cuda);

/*
 * What a call leaves in device memory, written when its work is done. Multiples of 8. `size` and `len` are
 * those of the CPU's function and 0 on failure.
 */
typedef struct gw_cuda_result {
    uint32_t status; /* gw_status */
    uint32_t reserved;
    uint64_t size; /* bytes of the frame or codebook made */
    uint64_t len;  /* values decoded, encoded or counted */
    /* lowest bad chunk (GCOMP) or block of the tensor (THC); UINT64_MAX if none is to blame */
    uint64_t bad_index;
    uint64_t missing; /* THC decode: blocks without a contributor */
} gw_cuda_result;

/* -----------------------------------------------------------------------------------------------------------
 * Precision map (GCOMP section 4.2): the functions of gcomp.h with state and map in device memory
 * -------------------------------------------------------------------------------------------------------- */

/*
 * *top = the largest quarter-octave of the range, as gw_gcomp_map_scan() gives it; 4 bytes of device memory
 * at a multiple of 4. More ranges: one word each, and their maximum is the top of the whole.
 *
 *   rule         from gw_gcomp_map_rule_init(): host memory, copied
 *   device_rule  NULL, or the rule in device memory, read when the kernel runs; then `rule` still says which
 *                arrays are needed. For graphs: renew it every step by a copy on the stream
 *
 * GW_OK; GW_ERR_ARG; GW_ERR_STATE; GW_ERR_DEVICE.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_map_scan(gw_cuda *cuda, const gw_gcomp_map_rule *rule,
                                                      const gw_gcomp_map_rule *device_rule,
                                                      const gw_optimizer_state *state, uint64_t len,
                                                      uint32_t *top, void *stream);

/*
 * levels[i] as gw_gcomp_map_build() makes them with base = gw_gcomp_map_base(*top); base (device memory, may
 * be NULL) gets that base. `top` is device memory; it is read when the kernel runs.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_map_build(gw_cuda *cuda, const gw_gcomp_map_rule *rule,
                                                       const gw_gcomp_map_rule *device_rule,
                                                       const gw_optimizer_state *state, uint64_t len,
                                                       const uint32_t *top, uint8_t *levels, uint32_t *base,
                                                       void *stream);

/* digest[i] = CRC32C of the map bytes of chunk i, as gw_gcomp_map_digest(). chunk_log2: 12..15. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_map_digest(gw_cuda *cuda, const uint8_t *levels, uint64_t len,
                                                        uint32_t chunk_log2, uint32_t *digest, void *stream);

/* -----------------------------------------------------------------------------------------------------------
 * GCOMP: the functions of gcomp.h with values, maps and frames in device memory
 * -------------------------------------------------------------------------------------------------------- */

/* Key and counter of stochastic rounding in device memory, in place of those of the source. */
typedef struct gw_cuda_key {
    uint64_t seed;
    uint32_t step_index;
    uint16_t rank, hop;
} gw_cuda_key;

/*
 * What a call shall read from device memory when its kernels run, instead of from the host now. NULL members
 * (or NULL for the whole) mean the host's.
 *
 * For the call, book takes the place that gw_gcomp_install() would give it: that of a codebook of the handle
 * with the same id and generation, else a free one, else that of the older one, whose frames the call then
 * refuses with GW_ERR_TABLE. The handle itself does not change.
 *
 * What members point to must not change from the moment that the kernels of a call may begin until they have
 * ended. That matters most for the book, which blocks read at different times: the check of a changing book
 * holds for none of its states, and what is made with it, or whether the kernel ends, is undefined. Build the
 * next one into other memory, or on the same stream.
 */
typedef struct gw_cuda_gcomp_device {
    const uint32_t *map_base;  /* in place of map->base: what gw_cuda_gcomp_map_build() wrote */
    const gw_cuda_key *key;    /* in place of seed, step_index, rank and hop */
    const uint8_t *book;       /* a serialised codebook (gw_cuda_gcomp_book_build()), installed under book_id
                                   and book_generation for this call: frames are encoded with it, and frames
                                   that name it are decoded. A book that breaks the rules of docs/format.md
                                   section 5.1, or lacks label 0 or 1, ends the call with GW_ERR_TABLE */
    const uint32_t *book_size; /* bytes at book, at most GW_GCOMP_BOOK_SIZE_MAX */
    uint32_t book_id, book_generation;
} gw_cuda_gcomp_device;

/*
 * Workspaces, 256-byte aligned, contents irrelevant before and after, one per call that is under way. Pure
 * functions of the handle's options and of numbers that the host knows; 0 for a handle that is not
 * initialised or numbers beyond its limits. item_count and value_total: 1 and the len (encode, hop) or
 * dst_capacity (decode) of a single call, or what the batch is given. A hop's is for its sums, too. That of
 * a batch of histograms does not depend on values; a single histogram needs
 * GW_CUDA_HISTOGRAM_WORKSPACE_SIZE bytes.
 */
GW_API size_t gw_cuda_gcomp_encode_workspace_size(const gw_gcomp *codec, uint32_t item_count,
                                                  uint64_t value_total);
GW_API size_t gw_cuda_gcomp_decode_workspace_size(const gw_gcomp *codec, uint32_t item_count,
                                                  uint64_t value_total);
GW_API size_t gw_cuda_gcomp_hop_workspace_size(const gw_gcomp *codec, uint32_t item_count,
                                               uint64_t value_total);
GW_API size_t gw_cuda_gcomp_histogram_workspace_size(const gw_gcomp *codec, uint32_t item_count);
#define GW_CUDA_HISTOGRAM_WORKSPACE_SIZE 256u

/*
 * gw_gcomp_encode(), the same bytes. source->values, and levels and digest of source->map, are device memory;
 * source and map themselves are the host's. dst: 16-byte aligned, dst_capacity at least gw_gcomp_bound().
 *
 * At once: GW_ERR_ARG, GW_ERR_STATE, GW_ERR_LIMIT, GW_ERR_DST, GW_ERR_WORKSPACE, GW_ERR_OPTION (the device
 * has too little shared memory for the handle's chunk_log2), GW_ERR_DEVICE. In *result: GW_OK, size and len;
 * GW_ERR_TABLE, GW_ERR_ARG (a map_base out of range).
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_encode(gw_cuda *cuda, const gw_gcomp *codec,
                                                    const gw_gcomp_source *source,
                                                    const gw_cuda_gcomp_device *device, void *dst,
                                                    uint64_t dst_capacity, gw_cuda_result *result,
                                                    void *workspace, size_t workspace_size, void *stream);

/*
 * gw_gcomp_decode(), _decode_add() and _validate(): same values, status and chunk.
 *
 *   src           the frame, device memory, 16-byte aligned
 *   src_capacity  bytes that may be read there
 *   src_size      NULL: src_capacity; or where the size lies in device memory (a result's size, a received
 *                 header): more than src_capacity counts as GW_ERR_SHORT
 *   map           as on the CPU, levels and digest in device memory
 *   dst           device memory, aligned to the dtype's size; dst_capacity in elements
 *
 * At once: GW_ERR_ARG, GW_ERR_STATE, GW_ERR_LIMIT (dst_capacity above 2^48), GW_ERR_WORKSPACE, GW_ERR_DEVICE.
 * All that the bytes can be guilty of, and GW_ERR_DST, is in *result.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode(gw_cuda *cuda, const gw_gcomp *codec, const void *src,
                                                    uint64_t src_capacity, const uint64_t *src_size,
                                                    const gw_gcomp_map *map,
                                                    const gw_cuda_gcomp_device *device, void *dst,
                                                    uint64_t dst_capacity, gw_cuda_result *result,
                                                    void *workspace, size_t workspace_size, void *stream);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_add(gw_cuda *cuda, const gw_gcomp *codec, const void *src,
                                                        uint64_t src_capacity, const uint64_t *src_size,
                                                        const gw_gcomp_map *map,
                                                        const gw_cuda_gcomp_device *device, void *accumulator,
                                                        uint64_t accumulator_len, gw_cuda_result *result,
                                                        void *workspace, size_t workspace_size, void *stream);
/* value_hint: about how many values the frame may have; it gives the workspace its size. A frame of more is
 * validated too, slower. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_validate(gw_cuda *cuda, const gw_gcomp *codec, const void *src,
                                                      uint64_t src_capacity, const uint64_t *src_size,
                                                      const gw_gcomp_map *map,
                                                      const gw_cuda_gcomp_device *device, uint64_t value_hint,
                                                      gw_cuda_result *result, void *workspace,
                                                      size_t workspace_size, void *stream);

/* A hop of a ring: gw_gcomp_decode_add_encode(). The sums go through the workspace. If the frame is bad,
 * result->size is 0 and dst is unspecified. device->map_base stands for both maps' base. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_add_encode(
    gw_cuda *cuda, const gw_gcomp *codec, const void *src, uint64_t src_capacity, const uint64_t *src_size,
    const gw_gcomp_map *src_map, const gw_gcomp_source *source, const gw_cuda_gcomp_device *device, void *dst,
    uint64_t dst_capacity, gw_cuda_result *result, void *workspace, size_t workspace_size, void *stream);

/*
 * One frame of a batch, or one tensor whose values are counted. The array lies in device memory and is read
 * when the kernels run. Pointers that are NULL or misaligned where single calls refuse them give GW_ERR_ARG
 * in the item's result; ranges that overlap are not found. Items share nothing but the handle; each has a
 * result of its own, a multiple of 8 and not NULL, which nothing checks. One that fails fails alone, with the
 * status and bytes of a single call.
 */
typedef struct gw_cuda_gcomp_item {
    const void *src; /* decode: the frame; encode, histogram: values */
    /* decode: values or accumulator (validate: not looked at); encode: the frame; histogram: the
     * gw_cuda_histogram */
    void *dst;
    const void *addend;          /* set to NULL */
    const uint64_t *src_size_at; /* decode: bytes of the frame; NULL: src_size */
    /* decode: bytes that may be read; encode, histogram: number of values */
    uint64_t src_size;
    /* decode: elements; encode: bytes, at least gw_gcomp_bound(), else GW_ERR_DST */
    uint64_t dst_capacity;
    const uint8_t *levels; /* the map's levels and digests for this item, NULL without a map */
    const uint32_t *digest;
    uint64_t map_len;       /* as gw_gcomp_map.len */
    uint64_t first_element; /* encode, histogram: as gw_gcomp_source.first_element */
    /* NULL; or the result of an earlier call, a multiple of 8: unless its status is GW_OK, the item does
     * nothing but take over status and bad_index, whatever else is wrong with it */
    const gw_cuda_result *after;
    gw_cuda_result *result;
} gw_cuda_gcomp_item;

/*
 * Many frames in one call, balanced by chunk: a thousand small tensors and one large one cost what their
 * chunks cost.
 *
 *   items        device array of item_count (1 to 2^20) items, at a multiple of 8
 *   value_total  at least the sum of the items' values (encode) or dst_capacities (decode). Items for whose
 *                chunks it leaves no room in the workspace, and those with chunks behind the first such, get
 *                GW_ERR_LIMIT; of an encode all behind it
 *   value_hint   validate, histogram: about how many values all items have; it gives the workspace of a
 *                validation its size, and a call its number of blocks. With more values it is only slower
 *   map          NULL, or base (1 to 1023 unless device->map_base is given), wire_scale and chunk_log2 of all
 *                items' maps; levels, digest and len are not used
 *   key          encode, histogram: seed, step_index, rank and hop of all items; NULL: zeros
 *   device       as in single calls: one codebook, one base and one key for all items
 *   is_add       decode: 1 adds to the dst of every item
 *
 * At once: GW_ERR_ARG, GW_ERR_STATE, GW_ERR_LIMIT (item_count or values), GW_ERR_WORKSPACE, GW_ERR_OPTION
 * (encode, hops: as gw_cuda_gcomp_encode()), GW_ERR_DEVICE. Everything else is in the items' results.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_encode_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                          const gw_cuda_gcomp_item *items,
                                                          uint32_t item_count, uint64_t value_total,
                                                          const gw_gcomp_map *map, const gw_cuda_key *key,
                                                          const gw_cuda_gcomp_device *device, void *workspace,
                                                          size_t workspace_size, void *stream);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_batch(
    gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_item *items, uint32_t item_count,
    uint64_t value_total, const gw_gcomp_map *map, const gw_cuda_gcomp_device *device, int is_add,
    void *workspace, size_t workspace_size, void *stream);
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_validate_batch(
    gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_item *items, uint32_t item_count,
    uint64_t value_hint, const gw_gcomp_map *map, const gw_cuda_gcomp_device *device, void *workspace,
    size_t workspace_size, void *stream);

/*
 * One hop of a batch: gw_cuda_gcomp_decode_add_encode() of frame src + values -> frame dst. The array, its
 * pointers and results are as for gw_cuda_gcomp_item.
 */
typedef struct gw_cuda_gcomp_hop {
    const void *src;             /* the frame that comes in */
    const uint64_t *src_size_at; /* its bytes; NULL: src_size */
    uint64_t src_size;           /* bytes that may be read there */
    const void *values;          /* what is added, len values */
    uint64_t len;                /* must be the frame's, else GW_ERR_ARG */
    uint64_t first_element;      /* as gw_gcomp_source.first_element */
    void *dst;                   /* the frame that goes out */
    uint64_t dst_capacity;       /* bytes, at least gw_gcomp_bound(), else GW_ERR_DST */
    const uint8_t *src_levels;   /* of the map with which src was made; NULL unless its frames are derived */
    const uint32_t *src_digest;
    uint64_t src_map_len;
    const uint8_t *levels; /* of the map of the sums, NULL without one; often the same */
    const uint32_t *digest;
    uint64_t map_len;
    const gw_cuda_result *after; /* as in gw_cuda_gcomp_item: of a receive, or of the hop before */
    gw_cuda_result *result;
} gw_cuda_gcomp_hop;

/*
 * Many hops in one call, balanced by chunk: each the bytes of a single one.
 *
 *   hops         device array of item_count (1 to 2^20), at a multiple of 8
 *   value_total  at least the sum of the hops' len. Hops for whose sums or chunks it leaves no room in the
 *                workspace, and all behind the first such, get GW_ERR_LIMIT
 *   src_map      NULL, or base, wire_scale and chunk_log2 of the maps of the frames that come in
 *   map, key     the same of the frames that go out; key: seed, step_index, rank and hop, NULL: zeros
 *   device       its map_base stands for both maps' base
 *
 * At once as the other batches. In a hop's result first what is wrong with its values, map of the sums and
 * dst (dst is then untouched), then what is wrong with its frame: size is 0, bad_index names the chunk, if it
 * was one, and dst is unspecified.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_decode_add_encode_batch(
    gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_hop *hops, uint32_t item_count,
    uint64_t value_total, const gw_gcomp_map *src_map, const gw_gcomp_map *map, const gw_cuda_key *key,
    const gw_cuda_gcomp_device *device, void *workspace, size_t workspace_size, void *stream);

/* Label counts in device memory, all zero at the start; add to it as often as you like. Not the layout of
 * gw_gcomp_histogram: the window is chosen when the codebook is built. */
typedef struct gw_cuda_histogram {
    uint64_t bin[1024];
    uint64_t first_chunk;
    uint64_t chunk_count;
} gw_cuda_histogram;

/* gw_gcomp_histogram_add(). histogram: device, a multiple of 8. Calls that add to the same histogram must not
 * overlap. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_histogram_add(gw_cuda *cuda, const gw_gcomp *codec,
                                                           const gw_gcomp_source *source,
                                                           const gw_cuda_gcomp_device *device,
                                                           gw_cuda_histogram *histogram,
                                                           gw_cuda_result *result, void *workspace,
                                                           size_t workspace_size, void *stream);

/*
 * gw_gcomp_histogram_add() of many tensors, balanced by chunk. items[i].dst is the histogram that item i is
 * added to, at a multiple of 8: one for all of a bucket, one for each tensor, or anything between. It is as
 * if the items were added in their order, except that chunk_count, which only orders chunks, grows by the
 * chunks of the whole call. result->len: the values counted. A tensor that is refused changes nothing.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_histogram_add_batch(
    gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_item *items, uint32_t item_count,
    uint64_t value_hint, const gw_gcomp_map *map, const gw_cuda_key *key, const gw_cuda_gcomp_device *device,
    void *workspace, size_t workspace_size, void *stream);

/* gw_gcomp_book_build(): the codebook of the counts, for gw_cuda_gcomp_device.book or, once copied,
 * gw_gcomp_install(). book: device, GW_GCOMP_BOOK_SIZE_MAX bytes; *book_size (device, may be NULL): its
 * bytes, also in result->size. The handle says dtype and levels. result->status is GW_OK: any counts have a
 * codebook. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_book_build(gw_cuda *cuda, const gw_gcomp *codec,
                                                        const gw_cuda_histogram *histogram, uint8_t *book,
                                                        uint32_t *book_size, gw_cuda_result *result,
                                                        void *stream);

/* The same for an array of `count` (1 to 2^20, else GW_ERR_LIMIT) histograms: codebook i begins at
 * books + GW_GCOMP_BOOK_SIZE_MAX * i, its size is book_sizes[i] (the array may be NULL) and in
 * results[i].size. All arrays are device memory. */
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_book_build_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                              const gw_cuda_histogram *histograms,
                                                              uint32_t count, uint8_t *books,
                                                              uint32_t *book_sizes, gw_cuda_result *results,
                                                              void *stream);

/*
 * What kernels of the caller's own pass, by value, to the device entry points: encode and decode of one chunk
 * by a block of 256 threads. These are headers of device code, installed as
 * gradwire/device/cuda/gcomp_device.cuh, which documents them and defines struct gw_device_codec. They work
 * with the codebook that the handle encodes with, which must be installed (gw_gcomp_install()). Pure host
 * code, in every build, without a device.
 *
 *   map       NULL, or the map that all chunks use: its base, scale and chunk_log2 are taken; levels and
 *             digest are not looked at
 *   key       NULL (zeros), or that of stochastic rounding
 *   out_size  sizeof(struct gw_device_codec): tells a header of another version
 *   encode_shared_size, decode_shared_size
 *             bytes of dynamic shared memory that a block needs; may be NULL. An encode of explicit levels
 *             does less work with GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, dtype), of the device headers
 *
 * GW_OK; GW_ERR_ARG; GW_ERR_STATE; GW_ERR_TABLE: no codebook is installed. On failure *out is untouched.
 */
struct gw_device_codec;
GW_API GW_MUST_CHECK gw_status gw_cuda_gcomp_device_codec(const gw_gcomp *codec, const gw_gcomp_map *map,
                                                          const gw_cuda_key *key, struct gw_device_codec *out,
                                                          size_t out_size, uint32_t *encode_shared_size,
                                                          uint32_t *decode_shared_size);

/* -----------------------------------------------------------------------------------------------------------
 * THC: the functions of thc.h with tensors, patterns, indices and lanes in device memory
 * -------------------------------------------------------------------------------------------------------- */

/* Seed, round and rank in device memory, for graphs; NULL arguments mean those of the context and of the
 * range. The seed must be that of the configuration wherever frames or other machines take part. */
typedef struct gw_cuda_thc_key {
    uint64_t seed;
    uint32_t round;
    uint32_t rank;
} gw_cuda_thc_key;

/*
 * Phase one: gw_thc_norms(). patterns: device. result->status: GW_OK, or GW_ERR_NONFINITE with the lowest
 * such block (policy GW_THC_NONFINITE_ERROR; its pattern is then GW_THC_NORM_NONFINITE or 0xffffffff twice,
 * the others are right). The patterns may be reduced in place by any collective that takes the MAX of uint32.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_norms(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                 const void *src, const float *error, uint32_t *patterns,
                                                 gw_cuda_result *result, void *stream);

/*
 * Phase two: gw_thc_encode(), error feedback included, in one pass over src.
 *
 *   key           NULL, or device memory
 *   own_patterns  what gw_cuda_thc_norms() gave for the same src and error, device; NULL: they are worked out
 *                 again. For plain contexts NULL or ignored
 *   indices       gw_thc_indices_size() bytes, device, a multiple of 16
 *
 * result->status: that of gw_thc_encode() and the lowest block concerned. Unlike there, the other blocks are
 * encoded; the indices of the bad ones are zero and their error memory is as it was. So a caller that repeats
 * a call must put the error memory back first, or encode blocks from result->bad_index on again.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_encode(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                  const gw_cuda_thc_key *key, const void *src, float *error,
                                                  const uint32_t *own_patterns, const uint32_t *patterns,
                                                  uint8_t *indices, size_t indices_capacity,
                                                  gw_cuda_result *result, void *stream);

/*
 * Aggregation of packed indices in one pass: gw_thc_agg_add_indices_many() with lanes and indices in device
 * memory.
 *
 *   set         contributor set in host memory (GW_THC_SET_SIZE bytes); joined by the ranks once the work is
 *               on the stream
 *   indices     host array of source_count device pointers
 *   ranks       host array
 *   accumulate  1: lanes += sum; 0: lanes = sum, whatever they held, and the set must be empty. A graph
 *               replays the adds, not the set: capture calls with accumulate = 0
 *
 * GW_ERR_ARG, GW_ERR_DUP, GW_ERR_OVERFLOW as on the CPU.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_sum_indices(gw_cuda *cuda, const gw_thc_agg *agg, uint8_t *lanes,
                                                       uint8_t *set, size_t len,
                                                       const uint8_t *const *indices, const uint32_t *ranks,
                                                       size_t source_count, int accumulate, void *stream);

/* Partial sums that one call of gw_cuda_thc_sum_lanes() takes. */
#define GW_CUDA_THC_SOURCES_MAX 64u

/*
 * Sums of partial sums in one pass: gw_thc_agg_add_lanes_many(). in_lanes: host array of device pointers,
 * in_sets: host array of host pointers; at most GW_CUDA_THC_SOURCES_MAX. First all incoming lanes are checked
 * against the number of their contributors, then, if result->status is GW_OK, all are added; for
 * GW_ERR_CORRUPT the lanes stay as they are, and `set`, which is joined once the work is on the stream, must
 * be put back by the caller. result->bad_index: the source with the lowest index of those that are corrupt.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_sum_lanes(gw_cuda *cuda, const gw_thc_agg *agg, uint8_t *lanes,
                                                     uint8_t *set, size_t len, const uint8_t *const *in_lanes,
                                                     const uint8_t *const *in_sets, size_t source_count,
                                                     int accumulate, gw_cuda_result *result, void *stream);

/* One worker's indices as a buffer for a raw integer all-reduce (ncclUint8, ncclUint32): gw_thc_expand().
 * GW_ERR_DST if dst_capacity is less than gw_thc_reduced_size(). */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_expand(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                  const uint8_t *indices, size_t indices_size, uint8_t *dst,
                                                  size_t dst_capacity, void *stream);

/*
 * gw_thc_decode(): lanes, members, patterns and dst in device memory. result: status, bad_index, missing and
 * len. dst_capacity in bytes.
 */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_decode(gw_cuda *cuda, const gw_thc *thc, const gw_thc_range *range,
                                                  const gw_cuda_thc_key *key, const uint8_t *lanes,
                                                  size_t lanes_size, const uint32_t *members,
                                                  const uint32_t *patterns, gw_thc_mode mode, void *dst,
                                                  size_t dst_capacity, gw_cuda_result *result, void *stream);

/* gw_thc_decode_reduced(): members come from the count lanes of the buffer. */
GW_API GW_MUST_CHECK gw_status gw_cuda_thc_decode_reduced(gw_cuda *cuda, const gw_thc *thc,
                                                          const gw_thc_range *range,
                                                          const gw_cuda_thc_key *key, const uint8_t *reduced,
                                                          size_t reduced_size, const uint32_t *patterns,
                                                          gw_thc_mode mode, void *dst, size_t dst_capacity,
                                                          gw_cuda_result *result, void *stream);

#ifdef __cplusplus
}
#endif

#endif
