/*
 * Any bytes to gw_gcomp_codebook_install(). An independent reading of docs/format.md section 5.1 says whether
 * they are a codebook; the library must agree. A refused codebook leaves the handle as it was, byte for byte;
 * an accepted one must carry values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_sender.h"

#include <string.h>

/* Can a frame of this kind have the label at all? */
static int label_exists(unsigned label, gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode)
{
    if (label < 2) {
        return 1;
    }
    if (quantum_mode != GW_GCOMP_EXPLICIT) {
        return dtype == GW_FP16 ? label <= 32 : label <= 255;
    }
    return label >= 4 && (dtype != GW_FP16 || label <= 4 * 31 + 3);
}

/* Section 5.1: the classes of mask bytes, all of which an installed codebook has to code. */
static int are_classes(const uint8_t *nibbles)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < 10; i++) {
        unsigned length = nibbles[i / 2] >> 4 * (i & 1) & 15;
        if (length < 1 || length > 11) {
            return 0;
        }
        sum += 1u << (11 - length);
    }
    return sum == 1u << 11 && gw_fuzz_all_bytes(nibbles + 5, 3, 0);
}

static int is_codebook(const uint8_t *codebook, size_t size, gw_dtype dtype,
                       gw_gcomp_quantum_mode quantum_mode)
{
    uint8_t length[256] = {0};
    if (size < 4) {
        return 0;
    }
    unsigned base = codebook[0], first = codebook[1], last = codebook[2];
    int masked = (codebook[3] & 15) == 15;
    if (base > (quantum_mode != GW_GCOMP_EXPLICIT ? 1u : dtype == GW_FP16 ? 0u : 191u)) {
        return 0;
    }
    length[0] = masked ? 0 : codebook[3] & 15;
    length[1] = codebook[3] >> 4;
    size_t expected = 4;
    if (first != 0 || last != 0) {
        if (first < 2 || last < first) {
            return 0;
        }
        expected = 4 + (last - first + 2) / 2;
        if (size < expected) {
            return 0;
        }
        for (unsigned i = 0; i <= last - first; i++) {
            length[first + i] = codebook[4 + i / 2] >> 4 * (i & 1) & 15;
        }
        if (length[first] == 0 || length[last] == 0 ||
            ((last - first) % 2 == 0 && codebook[expected - 1] >> 4 != 0)) {
            return 0;
        }
    }
    size_t padded = (expected + 3) & ~(size_t)3;
    if (masked) {
        if (size != padded + 8 || !are_classes(codebook + padded)) {
            return 0;
        }
        size -= 8;
    }
    if (size != padded ||
        (padded > expected && !gw_fuzz_all_bytes(codebook + expected, padded - expected, 0))) {
        return 0;
    }
    unsigned sum = 0, count = 0;
    for (unsigned label = 0; label < 256; label++) {
        if (length[label] == 0) {
            continue;
        }
        if (length[label] > 11 || !label_exists(label, dtype, quantum_mode)) {
            return 0;
        }
        sum += 1u << (11 - length[label]);
        count++;
    }
    /* A single label has length 1; an installed codebook with one label masks zeros. */
    return (sum == 1u << 11 || (count == 1 && length[1] == 1)) && (masked || length[0] != 0) &&
           length[1] != 0;
}

/* Code lengths of the classes of mask bytes: a random complete tree. Returns its size. */
static size_t make_classes(uint8_t *nibbles, uint64_t *state)
{
    uint8_t length[10] = {0};
    for (unsigned i = 1; i < 10; i++) {
        unsigned from = (unsigned)(gw_fuzz_random(state) % i);
        length[i] = ++length[from];
    }
    memset(nibbles, 0, 8);
    for (unsigned i = 0; i < 10; i++) {
        nibbles[i / 2] |= (uint8_t)(length[i] << 4 * (i & 1));
    }
    return 8;
}

/* Makes a valid codebook of the fuzz bytes, so that the second half of the target is reached: a random
 * complete tree, absolute or relative exponents, zeros with a label or masked. */
static size_t make_codebook(uint8_t *codebook, gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode,
                            gw_fuzz_reader *reader)
{
    uint8_t length[256] = {1, 1};
    const int fine = quantum_mode != GW_GCOMP_EXPLICIT;
    unsigned label_max = fine ? (dtype == GW_FP16 ? 32 : 255) : (dtype == GW_FP16 ? 127 : 255);
    unsigned label_min = fine ? 2 : 4;
    unsigned splits = gw_fuzz_u8(reader);
    uint64_t state = gw_fuzz_u32(reader);
    const int masked = state >> 31 & 1, relative = state >> 30 & 1;
    unsigned first = 0, last = 0;

    if (masked) {
        length[0] = 0;
        length[label_min] = splits != 0;
    }
    /* Splitting the leaf of a label into two keeps the sum at one. */
    for (unsigned i = 0; i < splits; i++) {
        uint64_t r = gw_fuzz_random(&state);
        unsigned from = r & 1 ? (unsigned)(r >> 1 & 1) : (unsigned)(r >> 8 & 255);
        unsigned to = label_min + (unsigned)(r >> 16) % (label_max - label_min + 1);
        if (length[from] != 0 && length[from] < 11 && length[to] == 0) {
            length[from]++;
            length[to] = length[from];
        }
    }
    for (unsigned label = 2; label < 256; label++) {
        if (length[label] != 0) {
            first = first == 0 ? label : first;
            last = label;
        }
    }
    memset(codebook, 0, GW_GCOMP_CODEBOOK_SIZE_MAX);
    codebook[0] = fine ? (uint8_t)relative : dtype == GW_FP16 ? 0 : gw_fuzz_u8(reader) % 192;
    codebook[1] = (uint8_t)first;
    codebook[2] = (uint8_t)last;
    codebook[3] = (uint8_t)((masked ? 15 : length[0]) | length[1] << 4);
    size_t size = 4;
    if (first != 0) {
        for (unsigned i = 0; i <= last - first; i++) {
            codebook[4 + i / 2] |= (uint8_t)(length[first + i] << 4 * (i & 1));
        }
        size = (4 + (last - first + 2) / 2 + 3) & ~(size_t)3;
    }
    return masked ? size + make_classes(codebook + size, &state) : size;
}

static void use_codebook(const gw_gcomp *codec, const gw_fuzz_sender *sender, int is_relative)
{
    size_t len = (size_t)sender->source.len;
    size_t workspace_size = gw_gcomp_workspace_size(codec), capacity = gw_gcomp_frame_bound(codec, len);
    void *workspace = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace_size, 0x6b);
    void *frame = gw_fuzz_buffer(GW_FUZZ_FRAME, capacity, 0);
    void *dst = gw_fuzz_buffer(GW_FUZZ_DST, len * sender->element, 0xa5);

    gw_buffer out = {frame, capacity, 0};
    const gw_status status =
        gw_gcomp_encode(codec, &sender->source, &out, &(gw_workspace){workspace, workspace_size});
    if (is_relative && sender->options.quantum_mode == GW_GCOMP_DERIVED &&
        sender->source.quantum.map == NULL) {
        FUZZ_CHECK(status == GW_ERR_ARG); /* constant frames have no quanta */
        return;
    }
    FUZZ_CHECK(status == GW_OK);
    gw_gcomp_target target = {.values = dst, .capacity = len};
    FUZZ_CHECK(
        gw_gcomp_decode(codec,
                        &(gw_gcomp_frame){.data = frame, .size = out.size, .map = sender->source.quantum.map},
                        &target, &(gw_workspace){workspace, workspace_size}) == GW_OK);
    FUZZ_CHECK(target.len == len);
    gw_fuzz_check_values(sender, dst);
    gw_fuzz_buffers_check();

    /* Another generation, and no codebook at all, are refused. */
    static gw_gcomp other;
    FUZZ_CHECK(gw_gcomp_init(&other, &sender->options) == GW_OK);
    gw_gcomp_target target2 = {.values = dst, .capacity = len};
    FUZZ_CHECK(
        gw_gcomp_decode(&other,
                        &(gw_gcomp_frame){.data = frame, .size = out.size, .map = sender->source.quantum.map},
                        &target2, &(gw_workspace){workspace, workspace_size}) == GW_ERR_TABLE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    gw_fuzz_sender sender;
    uint8_t choice = gw_fuzz_u8(&reader);
    gw_fuzz_place_at_end(choice & 1);

    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX + 4] = {0};
    size_t codebook_size = gw_fuzz_u8(&reader) % (sizeof codebook + 1);
    gw_fuzz_reader codebook_reader = reader;
    reader.data += reader.size < 16 ? reader.size : 16;
    reader.size -= reader.size < 16 ? reader.size : 16;
    gw_fuzz_sender_init(&sender, &reader, 5000);
    if (choice & 2) {
        codebook_size =
            make_codebook(codebook, sender.options.dtype, sender.options.quantum_mode, &codebook_reader);
        if (choice & 4) { /* and one wrong byte */
            codebook[gw_fuzz_u8(&codebook_reader) % codebook_size] ^= gw_fuzz_u8(&codebook_reader);
        }
    } else {
        for (size_t i = 0; i < codebook_size; i++) {
            codebook[i] = gw_fuzz_u8(&reader);
        }
    }

    static gw_gcomp codec, before;
    FUZZ_CHECK(gw_gcomp_init(&codec, &sender.options) == GW_OK);
    before = codec;
    uint8_t *placed = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SRC, codebook_size, 0);
    memcpy(placed, codebook, codebook_size);
    gw_status status = gw_gcomp_codebook_install(&codec, 5, 1, placed, codebook_size, 1);
    gw_fuzz_buffers_check();
    if (is_codebook(codebook, codebook_size, sender.options.dtype, sender.options.quantum_mode)) {
        FUZZ_CHECK(status == GW_OK);
        use_codebook(&codec, &sender, sender.options.quantum_mode != GW_GCOMP_EXPLICIT && codebook[0] == 1);
    } else {
        FUZZ_CHECK(status == GW_ERR_TABLE);
        FUZZ_CHECK(memcmp(&codec, &before, sizeof codec) == 0);
    }
    return 0;
}
