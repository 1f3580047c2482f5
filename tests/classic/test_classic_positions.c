/*
 * The code of positions: round trips, and sizes against a model that tries every parameter and makes codes of
 * its own.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>
#include <string.h>

#include "classic/classic_positions.h"
#include "sparse_testing.h"

static uint64_t least_gaps(const uint32_t *positions, size_t count)
{
    uint64_t bits = 0;
    for (size_t first = 0; first < count; first += 512) {
        uint64_t best = UINT64_MAX;
        for (unsigned b = 0; b < 32; b++) {
            uint64_t sum = 0;
            for (size_t i = first; i < count && i < first + 512; i++) {
                const uint64_t gap = positions[i] - (i == 0 ? 0 : (uint64_t)positions[i - 1] + 1);
                sum += (gap >> b) + 1 + b;
            }
            best = sum < best ? sum : best;
        }
        bits += best;
    }
    return bits;
}

/* Huffman's algorithm: the sum of the weights of all inner nodes. */
static uint64_t huffman_bits(const uint64_t *weights)
{
    uint64_t heap[10], sum = 0;
    unsigned count = 0;
    for (unsigned i = 0; i < 10; i++) {
        if (weights[i] != 0) {
            heap[count++] = weights[i];
        }
    }
    while (count > 1) {
        for (unsigned turn = 0; turn < 2; turn++) { /* the least two to the end */
            for (unsigned i = 0; i + 1 < count - turn; i++) {
                if (heap[i] < heap[count - 1 - turn]) {
                    const uint64_t x = heap[i];
                    heap[i] = heap[count - 1 - turn];
                    heap[count - 1 - turn] = x;
                }
            }
        }
        heap[count - 2] += heap[count - 1];
        sum += heap[count - 2];
        count--;
    }
    return sum;
}

static uint64_t least_mask(const uint8_t *bits, uint64_t len)
{
    const uint64_t size = (len + 7) / 8;
    uint64_t sum = 0;
    for (uint64_t first = 0; first < size; first += 2048) {
        uint64_t count[10] = {0};
        for (uint64_t i = first; i < size && i < first + 2048; i++) {
            unsigned c = 0;
            for (unsigned byte_class = 0; byte_class < 10; byte_class++) {
                for (unsigned j = 0; j < 1u << gw_mask_class_width[byte_class]; j++) {
                    if (gw_mask_byte_order[gw_mask_class_first[byte_class] + j] == bits[i]) {
                        c = byte_class;
                    }
                }
            }
            count[c]++;
            sum += gw_mask_class_width[c];
        }
        sum += huffman_bits(count);
    }
    return sum;
}

static uint64_t round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

static void read_back(const uint8_t *data, size_t size, const gw_positions_layout *layout, size_t room)
{
    gw_positions_reader reader;
    uint32_t *const got = sparse_take(room * sizeof *got);
    uint64_t found = 0;
    assert_int_equal(gw_positions_open(&reader, data, size, layout->len, layout->keep_len), layout->size);
    for (size_t count; (count = gw_positions_next(&reader, got, room)) != 0; found += count) {
        assert_true(found + count <= layout->keep_len);
        assert_memory_equal(got, layout->positions + found, count * sizeof *got);
    }
    assert_int_equal(found, layout->keep_len);
    assert_true(gw_positions_is_complete(&reader));
    free(got);
}

static unsigned check(const uint32_t *positions, size_t count, uint64_t len, int with_mask)
{
    gw_codebook_scratch scratch;
    gw_positions_layout layout = {0};
    layout.positions = positions;
    layout.len = len;
    layout.keep_len = count;
    layout.scratch = &scratch;
    gw_positions_layout_make(&layout);
    assert_true(layout.size <= gw_positions_size_max(len, count));
    const uint64_t gaps =
        8 + round_up((count + 511) / 512, 8) + round_up(least_gaps(positions, count), 64) / 8;
    assert_true(layout.kind == GW_POSITIONS_MASK || layout.size == gaps);
    if (with_mask) {
        uint8_t *const bits = sparse_take((size_t)(len + 7) / 8);
        memset(bits, 0, (size_t)(len + 7) / 8);
        for (size_t i = 0; i < count; i++) {
            bits[positions[i] / 8] = (uint8_t)(bits[positions[i] / 8] | 1u << positions[i] % 8);
        }
        const uint64_t groups = ((len + 7) / 8 + 2047) / 2048;
        const uint64_t mask = 8 + round_up(5 * groups, 8) + round_up(least_mask(bits, len), 64) / 8;
        assert_int_equal(layout.kind, mask < gaps ? GW_POSITIONS_MASK : GW_POSITIONS_GAPS);
        assert_int_equal(layout.size, mask < gaps ? mask : gaps);
        free(bits);
    }
    uint8_t *const data = sparse_take((size_t)layout.size);
    gw_positions_write(data, &layout);
    read_back(data, (size_t)layout.size, &layout, 64);
    read_back(data, (size_t)layout.size, &layout, 1000);
    free(data);
    return layout.kind;
}

static void test_sets(void **state)
{
    (void)state;
    static const uint64_t lens[] = {1, 2, 7, 8, 9, 15, 64, 65, 511, 4096, 16383, 16384, 16385, 40000, 100001};
    sparse_rng rng = {1};
    unsigned masks = 0, gaps = 0;
    for (unsigned l = 0; l < 15; l++) {
        for (unsigned kind = 0; kind < 12; kind++) {
            uint32_t *const positions = sparse_take((size_t)lens[l] * sizeof *positions);
            size_t count = 0;
            for (uint64_t i = 0; i < lens[l]; i++) {
                const int taken = kind < 6 ? sparse_below(&rng, 2u << (2 * kind)) == 0
                                  : kind < 8
                                      ? i / (kind == 6 ? 8 : 100) % 9 == 3 && sparse_below(&rng, 20) != 0
                                  : kind < 9   ? sparse_below(&rng, 10) != 0
                                  : kind == 9  ? 1
                                  : kind == 10 ? i < lens[l] / 2
                                               : i == lens[l] - 1;
                if (taken) {
                    positions[count++] = (uint32_t)i;
                }
            }
            if (count != 0) {
                const unsigned got = check(positions, count, lens[l], 1);
                masks += got == GW_POSITIONS_MASK;
                gaps += got == GW_POSITIONS_GAPS;
            }
            free(positions);
        }
    }
    assert_true(masks > 10 && gaps > 10);
}

/* Gaps of all lengths, up to 2^32 - 1, in one group with short ones: zeros longer than a window. */
static void test_long_gaps(void **state)
{
    (void)state;
    const uint64_t len = (uint64_t)1 << 32;
    uint32_t positions[600];
    for (unsigned bit = 0; bit < 32; bit++) {
        size_t count = 0;
        for (uint32_t i = 0; i < 300; i++) {
            positions[count++] = i;
        }
        const uint32_t far = (uint32_t)(((uint64_t)1 << bit) + 1000);
        for (uint32_t i = 0; i < 300 && far + i > far - 1; i++) {
            positions[count++] = far + i;
        }
        (void)check(positions, count, len, 0);
    }
    positions[0] = UINT32_MAX;
    (void)check(positions, 1, len, 0);
    positions[0] = 0;
    positions[1] = UINT32_MAX;
    (void)check(positions, 2, len, 0);
    positions[2] = UINT32_MAX;
    positions[1] = UINT32_MAX - 1;
    (void)check(positions, 3, len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_long_gaps),
    };
    return cmocka_run_group_tests_name("classic positions", tests, NULL, NULL);
}
