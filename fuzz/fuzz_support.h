/*
 * What the fuzz targets share: a reader of fuzz bytes, buffers that end at unmapped pages, a small generator
 * of numbers, and a check that stops the run.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FUZZ_SUPPORT_H
#define GW_FUZZ_SUPPORT_H

#include "gradwire/gcomp.h"
#include "gradwire/gradwire.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops the process with a message if a promise is broken; never compiled out. */
#define FUZZ_CHECK(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            gw_fuzz_fail(__FILE__, __LINE__, #condition);                                                    \
        }                                                                                                    \
    } while (0)

_Noreturn void gw_fuzz_fail(const char *file, int line, const char *condition);

/* A cursor over the fuzz input. Past the end every number is 0. */
typedef struct gw_fuzz_reader {
    const uint8_t *data;
    size_t size;
} gw_fuzz_reader;

uint8_t gw_fuzz_u8(gw_fuzz_reader *reader);
uint16_t gw_fuzz_u16(gw_fuzz_reader *reader);
uint32_t gw_fuzz_u32(gw_fuzz_reader *reader);

/* Numbers from a seed (SplitMix64), for what an input of a few bytes should spread over many values. */
uint64_t gw_fuzz_random(uint64_t *state);

/*
 * Buffers. Each slot is a mapping between two unmapped pages. gw_fuzz_buffer() returns `size` bytes (at least
 * 1 is mapped) that end exactly at the upper unmapped page or begin exactly after the lower one; the 64
 * bytes on the other side hold a canary that gw_fuzz_buffers_check() verifies. Filled with `fill`. A call
 * for a slot replaces its last buffer.
 */
enum {
    GW_FUZZ_SRC,
    GW_FUZZ_DST,
    GW_FUZZ_DST2,
    GW_FUZZ_SUM,
    GW_FUZZ_REFERENCE,
    GW_FUZZ_REFERENCE_SUM,
    GW_FUZZ_WORKSPACE,
    GW_FUZZ_FRAME,
    GW_FUZZ_FRAME2,
    GW_FUZZ_VALUES,
    GW_FUZZ_LOCAL,
    GW_FUZZ_MAP_BYTES,
    GW_FUZZ_DIGEST,
    GW_FUZZ_QUANTA,
    GW_FUZZ_AREA,
    GW_FUZZ_MUTANT = GW_FUZZ_AREA + 8, /* GW_FUZZ_AREA .. + 7: the areas of ranges */
    GW_FUZZ_SLOTS
};

void gw_fuzz_place_at_end(int at_end); /* applies to later calls of gw_fuzz_buffer() */
void *gw_fuzz_buffer(unsigned slot, size_t size, int fill);
void gw_fuzz_buffers_check(void);

int gw_fuzz_all_bytes(const void *data, size_t size, uint8_t byte);

/* The number of backends and the mask of each one alone with scalar; index 0 is scalar. */
unsigned gw_fuzz_backends(uint32_t masks[32]);

#endif
