/*
 * Cases of the CUDA calls against the CPU, for gpu_check (a GPU, or the fake driver) and for the tests under
 * the fake driver. The program that links them provides the first group of functions.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_CASES_H
#define GW_CUDA_CASES_H

#include <stddef.h>
#include <stdint.h>

#include "gradwire/cuda.h"

extern gw_cuda cuda;

/* ---- of the program ------------------------------------------------------------------------------------ */

extern uint32_t cpu_backends; /* what the CPU compares with */

/* Memory of the host; must not fail. */
void *take(size_t size);

/* Memory of the device, at multiples of 256; must not fail. The copies wait. */
void *device_take(size_t size);
void device_give(void *start);
void device_put(void *dst, const void *src, size_t size);
void fetch(void *dst, const void *src, size_t size);

/* What is done next, for messages and time limits. */
void begin_case(const char *name, const char *call);
void must(gw_status status, const char *what);
void expect(int is_equal, const char *what, const char *case_name);

/* ---- memory and values --------------------------------------------------------------------------------- */

/* Device memory that starts `offset` bytes after a multiple of 256, with a copy of src (NULL: unspecified).
 */
void *on_device_at(const void *src, size_t size, size_t offset);
void *on_device(const void *src, size_t size);
void give(void *p); /* NULL: nothing */

/* A workspace: unspecified bytes, or zeros where only what follows it is of interest. */
extern int clears_workspaces;
void *workspace_on_device(size_t size);

/* Gives everything that was taken since the mark. */
unsigned long device_mark(void);
void give_since(unsigned long mark);

/* Device memory equals host memory. */
void expect_bytes(const void *at, const void *expected, size_t size, const char *what, const char *case_name);

gw_cuda_result *new_result(void);
gw_cuda_result fetch_result(const gw_cuda_result *result);

/* SplitMix64. */
uint64_t next_random(uint64_t *state);

/* Gradient-like bits: geometric exponents, some zeros and subnormals, `special` in 4096 not finite. The
 * stored digests depend on them. */
void fill(void *dst, gw_dtype dtype, size_t len, unsigned special, uint64_t *random);

/* The same with exponents of all sizes; one in 2^nonfinite_log2 is NaN or infinite (0: none). */
void fill_widely(void *dst, gw_dtype dtype, size_t len, unsigned nonfinite_log2, uint64_t *random);

/* ---- GCOMP --------------------------------------------------------------------------------------------- */

gw_gcomp make_codec(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, gw_gcomp_preset preset,
                    gw_gcomp_rounding rounding, uint32_t chunk_log2, int checksum);

/* A tensor with its map, on both sides. */
typedef struct tensor {
    gw_dtype dtype;
    uint64_t len;
    uint8_t *values;
    gw_gcomp_map map, device_map; /* bytes NULL: none */
    gw_gcomp_source cpu, device;
} tensor;

/* The key of all tensors. */
extern const gw_cuda_gcomp_key case_key;

/* Owns values and map bytes. */
tensor tensor_of(gw_dtype dtype, uint64_t len, void *values, const gw_gcomp_map *map);
tensor random_tensor(gw_dtype dtype, uint64_t len, uint32_t chunk_log2, uint64_t *random);

/* Once the tensor will not move: the sources point into it. Values and map bytes on the device are at
 * addresses that are not multiples of 16. */
void tensor_upload(tensor *t);
void tensor_drop(tensor *t);

/* The CPU's frame and codebook; they return the size. */
size_t cpu_encode(const gw_gcomp *codec, const gw_gcomp_source *source, uint8_t **frame);
size_t cpu_codebook(const gw_gcomp *codec, const gw_gcomp_source *sources, size_t source_count,
                    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX]);

/* A tensor and the frame that the CPU makes of it. */
typedef struct gcomp_case {
    gw_gcomp codec;
    tensor t;
    size_t value_size;
    uint8_t *frame;
    size_t frame_size, bound;
    char name[160];
} gcomp_case;

/* The codec and the name are set. */
void make_case(gcomp_case *c, tensor t);
void drop_case(gcomp_case *c);

/* The CPU's frame once more: the codec or the source has changed. */
void encode_again(gcomp_case *c);

void compare_encode(const gcomp_case *c);
void compare_hop(const gcomp_case *c);
/* Of any bytes: status, chunk, values. Return the device's status. */
gw_status compare_decode(const gcomp_case *c, const uint8_t *frame, size_t size, int is_add);
gw_status compare_scaled(const gcomp_case *c, const uint8_t *frame, size_t size, int is_add, float scale);
void compare_validate(const gcomp_case *c, const uint8_t *frame, size_t size);
void compare_all(const gcomp_case *c);

/* The frame with wrong bytes; a cut one every eighth time. */
void compare_damaged(gcomp_case *c, int turn, uint64_t *random);

/* The codebook of the case's values, counted and built on the device, equal to the CPU's, which is left in
 * codebook; then all calls with it installed in the codec. */
void compare_codebook(gcomp_case *c, uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX], size_t *codebook_size);

/* Codebook (NULL: none), map base and key from device memory; the host's values are wrong. `plain` is the
 * codec without the codebook. */
void compare_device_arguments(const gcomp_case *c, const gw_gcomp *plain, const uint8_t *codebook,
                              size_t codebook_size);

/* Stochastic rounding with dead zones where there are any; carried frames have quanta from the values unless
 * there is a map. */
gw_gcomp make_dial_codec(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, uint32_t chunk_log2);

/* Frames of the case's codec, on both sides. The size of the second is in device memory. */
enum { CASE_FRAMES = 3 };
typedef struct frame_list {
    gw_gcomp_frame cpu[CASE_FRAMES];
    gw_cuda_gcomp_frame device[CASE_FRAMES];
    uint8_t *bytes[CASE_FRAMES];
} frame_list;

void make_frames(frame_list *list, const gcomp_case *c, uint64_t *random); /* of random values */
void damage_frame(frame_list *list, int frame, size_t at);                 /* byte `at` from its end */
void drop_frames(frame_list *list);

/* The case's values plus the frames, and what is reported about them. Returns the status. */
gw_status compare_frames(const gcomp_case *c, const frame_list *list, uint64_t capacity, float scale);

/* The segments of both sources; those on the device are left to give_since(). */
void set_segments(tensor *t, const gw_gcomp_segment *segments, size_t count, uint64_t offset);

/* Encode, hop and codebook of a source with segments; then with that codebook installed. */
void compare_segments(gcomp_case *c);

/* ---- precision maps ------------------------------------------------------------------------------------ */

gw_optimizer make_optimizer(gw_optimizer_kind kind);

/* Top, base, map bytes and digests of an optimizer's state by both sides, with the rule from the host and
 * from the device; arrays start `offset` bytes after a multiple of 256. Returns the CPU's map bytes, to be
 * freed. */
uint8_t *compare_map(const gw_gcomp_map_rule *rule, const gw_optimizer_state *s, size_t len, size_t offset,
                     const char *name, uint32_t *base);

/* ---- THC ----------------------------------------------------------------------------------------------- */

enum { WORKERS = 5 };

typedef struct thc_case {
    gw_thc_options options;
    gw_thc thc;
    gw_thc_range range;
    size_t first_element, len; /* of the range */
    size_t patterns;           /* of the range */
    size_t offset;             /* elements by which arrays on the device are misaligned */
    char name[96];
} thc_case;

thc_case make_thc(uint32_t workers, unsigned bits, unsigned block_log2, gw_dtype dtype, unsigned lane_bits,
                  gw_thc_transform transform, int error_feedback);

/* The handle again: the options have changed. */
void change_thc(thc_case *j);
void set_range(thc_case *j, uint64_t count, uint64_t first, uint64_t blocks, uint32_t rank);

/* One worker's norms and indices. `maxima` gets patterns as of a maximum over workers. Returns the indices
 * of both sides, to be freed; NULL if the values are refused by both. */
uint8_t *compare_thc_worker(const thc_case *j, const void *x, const float *error, uint32_t *maxima,
                            uint64_t *random, int own_given);

/* members NULL: a raw reduction. */
void compare_thc_decode(const thc_case *j, const gw_thc_sum *sum, gw_thc_mode mode);

/* A round of WORKERS workers over [first, first + blocks) of `count` values: with the values of x, or random
 * ones (x NULL), one in 2^nonfinite_log2 of them not finite; sums of indices and of lanes, raw reduction,
 * decodes; then hostile lanes, patterns and members. */
void compare_thc(thc_case *j, uint64_t count, uint64_t first, uint64_t blocks, const void *x,
                 unsigned nonfinite_log2, uint64_t *random);

gw_thc_agg make_agg(const thc_case *j);

#endif
