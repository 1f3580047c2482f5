/*
 * A sender made of fuzz bytes: options, values and precision map, all valid.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_SENDER_H
#define GW_GCOMP_SENDER_H

#include "fuzz_support.h"

typedef struct gw_fuzz_sender {
    gw_gcomp_options options;
    gw_gcomp_source source; /* values in slot GW_FUZZ_VALUES; map points to the field below or is NULL */
    gw_gcomp_map map;       /* slots GW_FUZZ_LEVELS and GW_FUZZ_DIGEST */
    /* Carried frames: the quantum of each block that the frame must have. NULL if a target chooses it, and
     * for other frames. source.quantum.blocks is in slot GW_FUZZ_QUANTA */
    const uint8_t *quanta;
    uint32_t step, cap; /* options.step and options.cap with the defaults filled in */
    size_t element;     /* bytes of one value */
} gw_fuzz_sender;

/* Reads options and values from the fuzz input; len_max bounds the number of values. */
void gw_fuzz_sender_init(gw_fuzz_sender *sender, gw_fuzz_reader *reader, uint64_t len_max);

/* Fills `len` values of a slot as gw_fuzz_sender_init() does for the source. */
void *gw_fuzz_values(unsigned slot, gw_dtype dtype, uint64_t len, gw_fuzz_reader *reader);

/* The value at an index as bits, 16-bit types in the low half. */
uint32_t gw_fuzz_bits(const void *values, size_t index, size_t element);

/*
 * Checks decoded values against what docs/format.md section 3 and docs/numerics.md allow, value by value,
 * with an arithmetic of its own: which values are flushed, how many low bits are cut, how far rounding may
 * go, which values below their quantum become 0 or the quantum. Where a target chose the quanta, only what
 * does not depend on them.
 */
void gw_fuzz_check_values(const gw_fuzz_sender *sender, const void *decoded);

#endif
