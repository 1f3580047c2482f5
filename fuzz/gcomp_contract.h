/*
 * The contract of the GCOMP decoder, as a function that any bytes can be given to.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_CONTRACT_H
#define GW_GCOMP_CONTRACT_H

#include "fuzz_support.h"

/* A receiver: its options, map and codebook before a frame arrives. */
typedef struct gw_fuzz_receiver {
    gw_dtype dtype;
    int strict;
    uint64_t len_max;
    const uint8_t *map_bytes; /* the receiver's precision map, map_bytes_len bytes; may be NULL */
    uint64_t map_bytes_len;
    uint32_t chunk_log2; /* of the receiver's digests */
    int map_bytes_fit;   /* 1: only as many of them as the frame has values */
    uint32_t map_base;
    uint32_t tolerance_bits; /* of the handle; 0: the default */
    float wire_scale;
    gw_gcomp_quantum_mode quantum_mode; /* of the handle, which decides what an installed codebook means */
    const uint8_t *codebook;            /* installed under codebook_id and codebook_generation; may be NULL */
    size_t codebook_size;
    uint32_t codebook_id, codebook_generation;
    uint64_t capacity_cut; /* output capacity = min(len of the frame, ...) minus this */
} gw_fuzz_receiver;

/*
 * Gives src[0..src_size) to peek, check, validate, decode and decode_add, whole and chunk by chunk, on every
 * backend, and checks what docs/format.md section 8 and gcomp.h promise: the statuses agree, the same chunk
 * is reported, nothing is written on a structural error, a bad chunk is zero or left alone, no byte of the
 * output depends on what was there before, and the same call gives the same answer again. Returns the status
 * of decode. Does nothing (GW_ERR_LIMIT) for frames of more than 2^18 values that pass peek.
 */
gw_status gw_fuzz_gcomp_contract(const gw_fuzz_receiver *receiver, const uint8_t *src, size_t src_size);

/* A codec with a receiver's options; backends as in the options. Aborts if it is refused. */
void gw_fuzz_gcomp_codec(gw_gcomp *codec, const gw_fuzz_receiver *receiver, uint32_t backends);

#endif
