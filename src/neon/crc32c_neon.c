/*
 * CRC32C by the crc32 instructions of ARMv8 (a later part of the architecture, so GW_CPU_ARM_CRC32 must be
 * set).
 *
 * One crc32cx takes eight bytes with a latency of two or three cycles and a throughput of one: long inputs
 * are split into three streams. The register of a stream is advanced over the bytes of the next by a linear
 * map, so it is the XOR of one table entry for each of its eight nibbles.
 *
 * Not timed. Instructions a byte by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: 0.35 (4.5), 0.09 and 0.04. One crc32cx a cycle, which
 * the model ignores, makes 0.125 a byte the bound.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON) && (defined(__ARM_FEATURE_CRC32) || defined(__SSE4_2__))

#if defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#else
#define __crc32cb(crc, x) _mm_crc32_u8((crc), (x))
#define __crc32cd(crc, x) ((uint32_t)_mm_crc32_u64((crc), (x)))
#endif

enum { STREAM_SIZE = 1024 };

/* over_stream[n][v] = register v << 4n after STREAM_SIZE zero bytes. */
static const uint32_t over_stream[8][16] = {
    {0x00000000, 0xfe314258, 0xf98ef241, 0x07bfb019, 0xf6f19273, 0x08c0d02b, 0x0f7f6032, 0xf14e226a,
     0xe80f5217, 0x163e104f, 0x1181a056, 0xefb0e20e, 0x1efec064, 0xe0cf823c, 0xe7703225, 0x1941707d},
    {0x00000000, 0xd5f2d2df, 0xae09d34f, 0x7bfb0190, 0x59ffd06f, 0x8c0d02b0, 0xf7f60320, 0x2204d1ff,
     0xb3ffa0de, 0x660d7201, 0x1df67391, 0xc804a14e, 0xea0070b1, 0x3ff2a26e, 0x4409a3fe, 0x91fb7121},
    {0x00000000, 0x6213374d, 0xc4266e9a, 0xa63559d7, 0x8da0abc5, 0xefb39c88, 0x4986c55f, 0x2b95f212,
     0x1ead217b, 0x7cbe1636, 0xda8b4fe1, 0xb89878ac, 0x930d8abe, 0xf11ebdf3, 0x572be424, 0x3538d369},
    {0x00000000, 0x3d5a42f6, 0x7ab485ec, 0x47eec71a, 0xf5690bd8, 0xc833492e, 0x8fdd8e34, 0xb287ccc2,
     0xef3e6141, 0xd26423b7, 0x958ae4ad, 0xa8d0a65b, 0x1a576a99, 0x270d286f, 0x60e3ef75, 0x5db9ad83},
    {0x00000000, 0xdb90b473, 0xb2cd1e17, 0x695daa64, 0x60764adf, 0xbbe6feac, 0xd2bb54c8, 0x092be0bb,
     0xc0ec95be, 0x1b7c21cd, 0x72218ba9, 0xa9b13fda, 0xa09adf61, 0x7b0a6b12, 0x1257c176, 0xc9c77505},
    {0x00000000, 0x84355d8d, 0x0d86cdeb, 0x89b39066, 0x1b0d9bd6, 0x9f38c65b, 0x168b563d, 0x92be0bb0,
     0x361b37ac, 0xb22e6a21, 0x3b9dfa47, 0xbfa8a7ca, 0x2d16ac7a, 0xa923f1f7, 0x20906191, 0xa4a53c1c},
    {0x00000000, 0x6c366f58, 0xd86cdeb0, 0xb45ab1e8, 0xb535cb91, 0xd903a4c9, 0x6d591521, 0x016f7a79,
     0x6f87e1d3, 0x03b18e8b, 0xb7eb3f63, 0xdbdd503b, 0xdab22a42, 0xb684451a, 0x02def4f2, 0x6ee89baa},
    {0x00000000, 0xdf0fc3a6, 0xbbf3f1bd, 0x64fc321b, 0x720b958b, 0xad04562d, 0xc9f86436, 0x16f7a790,
     0xe4172b16, 0x3b18e8b0, 0x5fe4daab, 0x80eb190d, 0x961cbe9d, 0x49137d3b, 0x2def4f20, 0xf2e08c86},
};

static inline uint32_t move_over_stream(uint32_t crc)
{
    uint32_t moved = 0;
    for (unsigned n = 0; n < 8; n++) {
        moved ^= over_stream[n][crc >> 4 * n & 15];
    }
    return moved;
}

uint32_t gw_crc32c_neon(uint32_t crc, const uint8_t *src, size_t size)
{
    crc = ~crc;
    for (; size >= 3 * STREAM_SIZE; size -= 3 * STREAM_SIZE, src += 3 * STREAM_SIZE) {
        uint32_t second = 0, third = 0;
        for (size_t i = 0; i < STREAM_SIZE; i += 8) {
            crc = __crc32cd(crc, gw_load64(src + i));
            second = __crc32cd(second, gw_load64(src + STREAM_SIZE + i));
            third = __crc32cd(third, gw_load64(src + 2 * STREAM_SIZE + i));
        }
        crc = move_over_stream(move_over_stream(crc) ^ second) ^ third;
    }
    for (; size >= 8; size -= 8, src += 8) {
        crc = __crc32cd(crc, gw_load64(src));
    }
    for (; size > 0; size--, src++) {
        crc = __crc32cb(crc, *src);
    }
    return ~crc;
}

#else
typedef int gw_crc32c_neon_not_built; /* a translation unit must not be empty */
#endif
