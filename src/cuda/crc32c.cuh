/*
 * CRC32C of a message by a block of 256 threads.
 *
 * A CRC is linear: the state after n words, without start value and final complement, is the sum of w[i] *
 * x^(32 (n - i)) modulo the polynomial. Thread t takes the words t, t + 256, ... of the message, which zero
 * words in front fill up to a multiple of 256 (they change nothing): from one of its words to the next it
 * multiplies by x^8192, four look-ups, and at the end once by x^(32 (256 - t)). The start value is added to
 * the first word.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_CRC32C_CUH
#define GW_CUDA_CRC32C_CUH

#include "cuda/device.cuh"

/* Coefficients in reflected order, as CRCs have them: bit 31 is x^0. */
struct gw_crc_tables {
    uint32_t step[4][256]; /* (byte << 8 k) * x^8192 */
    uint32_t last[256];    /* x^(32 (256 - t)) */
};

GW_HOST_DEVICE constexpr uint32_t gw_crc_times_x(uint32_t a)
{
    return a >> 1 ^ ((a & 1) != 0 ? 0x82f63b78u : 0u);
}

constexpr gw_crc_tables gw_crc_make_tables()
{
    gw_crc_tables t = {};
    uint32_t power = 0x80000000u;
    for (int i = 0; i < 256; i++) {
        for (int j = 0; j < 32; j++) {
            power = gw_crc_times_x(power);
        }
        t.last[255 - i] = power;
    }
    /* power = x^8192, the image of bit 31; the others follow. */
    for (int bit = 31; bit >= 0; bit--) {
        const int k = bit / 8, low = 1 << bit % 8;
        for (int b = low; b < 256; b += 2 * low) {
            for (int i = b; i < b + low; i++) {
                t.step[k][i] ^= power;
            }
        }
        power = gw_crc_times_x(power);
    }
    return t;
}

GW_LOOKUP gw_crc_tables gw_crc_lookup = gw_crc_make_tables();

GW_DEVICE uint32_t gw_crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    GW_UNROLL
    for (int i = 31; i >= 0; i--) {
        product ^= (a >> i & 1) != 0 ? b : 0;
        b = gw_crc_times_x(b);
    }
    return product;
}

/*
 * CRC32C of word_count words, going on from crc; load(i) gives word i, its first byte lowest. All 256 threads
 * of the block call it and get the result; `sums` is 8 words of shared memory that nothing else uses.
 */
template <typename LOAD>
GW_DEVICE uint32_t gw_cuda_crc32c(uint32_t crc, uint64_t word_count, uint32_t *sums, LOAD load)
{
    const uint32_t t = threadIdx.x;
    const uint64_t rounds = (word_count + 255) >> 8;
    const uint64_t padding = 256 * rounds - word_count;
    uint32_t c = 0;
    GW_NO_UNROLL
    for (uint64_t j = 0; j < rounds; j++) {
        const uint64_t at = 256 * j + t;
        uint32_t word = 0;
        if (at >= padding) {
            word = load(at - padding) ^ (at == padding ? ~crc : 0);
        }
        c = gw_crc_lookup.step[0][c & 255] ^ gw_crc_lookup.step[1][c >> 8 & 255] ^
            gw_crc_lookup.step[2][c >> 16 & 255] ^ gw_crc_lookup.step[3][c >> 24] ^ word;
    }
    c = __reduce_xor_sync(0xffffffffu, gw_crc_multiply(c, gw_crc_lookup.last[t]));
    __syncthreads();
    if ((t & 31) == 0) {
        sums[t >> 5] = c;
    }
    __syncthreads();
    uint32_t all = 0;
    GW_UNROLL
    for (int w = 0; w < 8; w++) {
        all ^= sums[w];
    }
    return word_count == 0 ? crc : ~all;
}

/* The same for bytes at any alignment: zero bytes in front fill up the first word, and the start value
 * goes to the first four bytes of the message (fewer than four: thread 0 does it bit by bit). */
GW_DEVICE uint32_t gw_cuda_crc32c_bytes(uint32_t crc, const uint8_t *src, uint64_t size, uint32_t *sums)
{
    if (size < 4) {
        crc = ~crc;
        for (uint64_t i = 0; i < size; i++) {
            crc ^= src[i];
            for (int j = 0; j < 8; j++) {
                crc = gw_crc_times_x(crc);
            }
        }
        return ~crc;
    }
    const uint64_t words = (size + 3) >> 2;
    const uint64_t gap = 4 * words - size;
    const uint32_t start = ~crc;
    const uint32_t all = gw_cuda_crc32c(0xffffffffu, words, sums, [=](uint64_t i) {
        uint32_t word = 0;
        GW_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const uint64_t at = 4 * i + j;
            if (at >= gap) {
                const uint64_t byte = at - gap;
                word |= (uint32_t)(src[byte] ^ (byte < 4 ? start >> 8 * byte & 255 : 0)) << 8 * j;
            }
        }
        return word;
    });
    return all;
}

#endif
