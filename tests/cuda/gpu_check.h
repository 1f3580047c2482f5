/*
 * What the stages of gpu_check share: the device, its memory, comparison, cases of GCOMP and THC.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GPU_CHECK_H
#define GW_GPU_CHECK_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_device.h"
#include "gradwire/cuda.h"
#include "vector.h"

extern cuda_device device;
extern gw_cuda cuda;
extern uint32_t cpu_backends;
extern int differences;
extern unsigned long compared;
extern unsigned case_seconds;
extern int clears_workspaces;
extern int repeats;

/* Cases, device and host memory, comparison. A failure of the device or of memory ends the program. */
void say_last(void);
void on_signal(int number);
void begin_case(const char *name, const char *call);
void *take(size_t size);
void *on_device(const void *src, size_t size);
void *workspace_on_device(size_t size);
void give(void *p);
void must(gw_status status, const char *what);
void fetch(void *dst, const void *src, size_t size);
gw_cuda_result fetch_result(const gw_cuda_result *result);
void expect(int is_equal, const char *what, const char *case_name);
void expect_bytes(const void *at, const void *expected, size_t size, const char *what, const char *case_name);
uint64_t next_random(uint64_t *state);
void fill(void *dst, gw_dtype dtype, size_t len, unsigned special, uint64_t *random);

/* A tensor with its map, on both sides, and the frame that the CPU makes of it. */
typedef struct gcomp_case {
    gw_gcomp codec;
    gw_gcomp_map map, device_map;
    gw_gcomp_source source, device_source;
    size_t value_size;
    uint8_t *frame;
    size_t frame_size, bound;
    char name[160];
} gcomp_case;

void make_codec(gcomp_case *c, gw_dtype dtype, int levels, int preset, int rounding, uint32_t chunk_log2,
                int checksum);
void make_case_of(gcomp_case *c, gw_dtype dtype, void *values, size_t len, uint8_t *levels, uint32_t base,
                  float wire_scale, uint32_t chunk_log2);
void make_case(gcomp_case *c, gw_dtype dtype, void *values, size_t len, int has_map, uint32_t chunk_log2,
               uint64_t *random);
void drop_case(gcomp_case *c);
gw_status compare_decode(const gcomp_case *c, const uint8_t *frame, size_t size, int is_add);
void compare_validate(const gcomp_case *c, const uint8_t *frame, size_t size);
void compare_encode(const gcomp_case *c);
void compare_hop(const gcomp_case *c);
void run_gcomp(size_t len, uint32_t all_chunk_log2, uint64_t seed);
void compare_book(gcomp_case *c, uint8_t book[GW_GCOMP_BOOK_SIZE_MAX], size_t *book_size);
void install_own_book(gcomp_case *c);
void compare_device_arguments(const gcomp_case *c, const gw_gcomp *plain, const uint8_t *book,
                              size_t book_size);
void run_hostile(unsigned long count, size_t len, uint32_t all_chunk_log2, uint64_t seed);

void run_calls(size_t len, uint64_t seed);
/* Workers of a sum of THC, and timed calls at most. */
enum { WORKERS = 4, REPEATS_MAX = 15 };

gw_thc make_thc(unsigned workers, unsigned bits, unsigned block_log2, gw_dtype dtype, unsigned lane_bits,
                int is_rotated, int feedback);
void compare_thc(const gw_thc *thc, const void *x, size_t len, const char *name);
void run_thc(size_t len, uint64_t seed);
void make_rule(unsigned kind, gw_gcomp_map_rule *rule);
uint8_t *compare_map(const gw_gcomp_map_rule *rule, const gw_optimizer_state *s, size_t len, const char *name,
                     uint32_t *base);
void run_map(size_t len, uint64_t seed);
int ends_with(const char *s, const char *end);
void check_npy(const char *path);
void check_states(const char *list, size_t len_max);
void check_vectors(const char *folder);
void check_frame(const char *path);
void driver_must(int code, const char *what);
void run_graph(size_t len, uint64_t seed);
void digest(const char *name, const char *part, const void *bytes, size_t size);
void run_digests(FILE *out, FILE *stored, int use_device, size_t len);
void run_bench(size_t bytes, size_t ring_bytes, gw_dtype dtype, uint64_t seed);
void encode_again(gcomp_case *c);
void run_dial(size_t len, uint64_t seed);

#endif
