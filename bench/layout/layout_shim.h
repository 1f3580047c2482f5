/*
 * Runs a kernel on the CPU: 256 operating-system threads for the lanes of a block, barriers for its
 * collectives. Slow; made
 * to check a kernel where there is no GPU. C++20.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LAYOUT_SHIM_H
#define GW_LAYOUT_SHIM_H

#include <atomic>
#include <barrier>
#include <cstdint>

#define KERNEL static void
#define INLINE static inline
#define BOTH   static inline
#define SHARED (*(shared_state *)shim_shared)
#define TID    shim_tid
#define BLOCK  shim_block

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};

alignas(128) static uint8_t shim_shared[256 * 1024];
static thread_local uint32_t shim_tid;
static uint32_t shim_block;
static std::barrier<> shim_all(256);
static std::barrier<> shim_warp[8] = {std::barrier<>(32), std::barrier<>(32), std::barrier<>(32),
                                      std::barrier<>(32), std::barrier<>(32), std::barrier<>(32),
                                      std::barrier<>(32), std::barrier<>(32)};
static uint32_t shim_lane_value[256];
static std::atomic<int> shim_any[2];

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return uint2{x, y};
}

/* Addresses of shared memory are offsets; as on the GPU 0 is not special. */
static inline uint32_t address_of(const void *p)
{
    return (uint32_t)((const uint8_t *)p - shim_shared);
}

static inline uint32_t load_shared(uint32_t a, int offset = 0)
{
    return *(const uint32_t *)(const void *)(shim_shared + a + offset);
}

static inline uint32_t load_shared8(uint32_t a)
{
    return shim_shared[a];
}

static inline uint32_t load_shared16(uint32_t a)
{
    return *(const uint16_t *)(const void *)(shim_shared + a);
}

static inline uint2 load_shared2(uint32_t a)
{
    return *(const uint2 *)(const void *)(shim_shared + a);
}

static inline uint4 load_shared4(uint32_t a)
{
    return *(const uint4 *)(const void *)(shim_shared + a);
}

static inline void store_shared4(uint32_t a, uint4 x)
{
    *(uint4 *)(void *)(shim_shared + a) = x;
}

static inline void store_shared(uint32_t a, uint32_t x)
{
    *(uint32_t *)(void *)(shim_shared + a) = x;
}

#define SELECT_BITS(a, b, mask) (((a) & (mask)) | ((b) & ~(mask)))

template <uint32_t FLAG> static inline void push_digit(uint32_t &z, uint32_t &w, uint32_t flags)
{
    if ((flags & FLAG) != 0) {
        z = z >> 6 | w << 26;
        w >>= 6;
    }
}

static inline uint32_t word_address(uint32_t w, uint32_t b)
{
    return w + b / 32 * 4;
}

static inline int __ffs(uint32_t x)
{
    return __builtin_ffs((int)x);
}

static inline uint32_t __popc(uint32_t x)
{
    return (uint32_t)__builtin_popcount(x);
}

static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t s)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        out |= (uint32_t)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
    }
    return out;
}

static inline uint32_t permute(uint32_t x, uint32_t y, uint32_t s)
{
    return __byte_perm(x, y, s);
}

static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}

static inline uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift < 32 ? shift : 32));
}

static inline void __syncthreads()
{
    shim_all.arrive_and_wait();
}

static inline void __syncwarp()
{
    shim_warp[shim_tid / 32].arrive_and_wait();
}

static inline bool __syncthreads_or(bool x)
{
    if (x) {
        shim_any[0] = 1;
    }
    __syncthreads();
    const bool any = shim_any[0] != 0;
    __syncthreads();
    shim_any[0] = 0;
    return any;
}

static inline uint32_t __shfl_sync(uint32_t, uint32_t x, uint32_t from)
{
    shim_lane_value[shim_tid] = x;
    __syncwarp();
    const uint32_t y = shim_lane_value[shim_tid / 32 * 32 + from];
    __syncwarp();
    return y;
}

static inline uint32_t __ballot_sync(uint32_t, bool x)
{
    shim_lane_value[shim_tid] = x;
    __syncwarp();
    uint32_t y = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        y |= shim_lane_value[shim_tid / 32 * 32 + lane] << lane;
    }
    __syncwarp();
    return y;
}

static inline bool __any_sync(uint32_t, bool x)
{
    return __ballot_sync(0, x) != 0;
}

static inline uint32_t __shfl_up_sync(uint32_t, uint32_t x, uint32_t by)
{
    shim_lane_value[shim_tid] = x;
    __syncwarp();
    const uint32_t y = shim_tid % 32 >= by ? shim_lane_value[shim_tid - by] : x;
    __syncwarp();
    return y;
}

#endif
