/*
 * What the stages of gpu_check share: the device, random tensors, the stages.
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

#include "cuda_cases.h"
#include "cuda_device.h"
#include "vector.h"

extern cuda_device device;
extern int differences;
extern unsigned long compared;
extern unsigned case_seconds;
extern int repeats;

void say_last(void);
void on_signal(int number);

/* `special` in 4096 of its values are not finite. */
tensor make_tensor(gw_dtype dtype, size_t len, unsigned special, int has_map, uint32_t chunk_log2,
                   uint64_t *random);

void run_gcomp(size_t len, uint32_t all_chunk_log2, uint64_t seed);
void run_hostile(unsigned long count, size_t len, uint32_t all_chunk_log2, uint64_t seed);

void run_calls(size_t len, uint64_t seed);
/* Timed calls at most. */
enum { REPEATS_MAX = 15 };

void run_thc(size_t len, uint64_t seed);
gw_gcomp_map_rule make_rule(gw_optimizer_kind kind);
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
void run_dial(size_t len, uint64_t seed);

#endif
