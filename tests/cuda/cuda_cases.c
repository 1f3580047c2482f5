/* Memory, values. SPDX-License-Identifier: BSD-2-Clause */
#include "cuda_cases.h"

#include <stdlib.h>
#include <string.h>

typedef struct memory {
    struct memory *next; /* taken before this one */
    unsigned long number;
    void *start, *at;
} memory;

static memory *all;

void *on_device_at(const void *src, size_t size, size_t offset)
{
    memory *m = take(sizeof *m);
    m->start = device_take(size + offset);
    m->at = (uint8_t *)m->start + offset;
    m->number = device_mark() + 1;
    m->next = all;
    all = m;
    if (src != NULL && size != 0) {
        device_put(m->at, src, size);
    }
    return m->at;
}

void *on_device(const void *src, size_t size)
{
    return on_device_at(src, size, 0);
}

int clears_workspaces;

void *workspace_on_device(size_t size)
{
    void *zeros = clears_workspaces ? take(size) : NULL;
    if (zeros != NULL) {
        memset(zeros, 0, size);
    }
    void *p = on_device(zeros, size);
    free(zeros);
    return p;
}

static void give_first(memory **link)
{
    memory *m = *link;
    *link = m->next;
    device_give(m->start);
    free(m);
}

void give(void *p)
{
    for (memory **link = &all; p != NULL && *link != NULL; link = &(*link)->next) {
        if ((*link)->at == p) {
            give_first(link);
            return;
        }
    }
}

unsigned long device_mark(void)
{
    return all == NULL ? 0 : all->number;
}

void give_since(unsigned long mark)
{
    while (device_mark() > mark) {
        give_first(&all);
    }
}

void expect_bytes(const void *at, const void *expected, size_t size, const char *what, const char *case_name)
{
    void *copy = take(size);
    fetch(copy, at, size);
    expect(size == 0 || memcmp(copy, expected, size) == 0, what, case_name);
    free(copy);
}

gw_cuda_result *new_result(void)
{
    return on_device(NULL, sizeof(gw_cuda_result));
}

gw_cuda_result fetch_result(const gw_cuda_result *result)
{
    gw_cuda_result r;
    fetch(&r, result, sizeof r);
    return r;
}

uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

typedef struct layout {
    unsigned mantissa;
    uint32_t top, middle; /* exponents */
} layout;

static layout layout_of(gw_dtype dtype)
{
    const layout l = {dtype == GW_FP32   ? 23
                      : dtype == GW_BF16 ? 7
                                         : 10,
                      dtype == GW_FP16 ? 31 : 255, dtype == GW_FP16 ? 12 : 118};
    return l;
}

static void store(void *dst, gw_dtype dtype, size_t i, uint32_t sign, uint32_t rest)
{
    const uint32_t bits = sign << (dtype == GW_FP32 ? 31 : 15) | rest;
    const uint16_t half = (uint16_t)bits;
    if (dtype == GW_FP32) {
        memcpy((uint8_t *)dst + 4 * i, &bits, 4);
    } else {
        memcpy((uint8_t *)dst + 2 * i, &half, 2);
    }
}

void fill(void *dst, gw_dtype dtype, size_t len, unsigned special, uint64_t *random)
{
    const layout l = layout_of(dtype);

    for (size_t i = 0; i < len; i++) {
        const uint64_t r = next_random(random);
        uint32_t exponent = l.middle, field = (uint32_t)(r >> 8) & ((1u << l.mantissa) - 1);
        for (uint64_t bits = r; (bits & 1) == 0 && exponent > l.middle - 9; bits >>= 1) {
            exponent--;
        }
        if ((r >> 40 & 255) < 8) {
            exponent = 0;
            field = (r >> 40 & 255) == 0 ? field : 0;
        }
        if ((r >> 20 & 4095) < special) {
            exponent = l.top;
        }
        store(dst, dtype, i, (uint32_t)(r >> 63), exponent << l.mantissa | field);
    }
}

void fill_widely(void *dst, gw_dtype dtype, size_t len, unsigned nonfinite_log2, uint64_t *random)
{
    const layout l = layout_of(dtype);

    for (size_t i = 0; i < len; i++) {
        const uint64_t r = next_random(random);
        const uint32_t kind = (uint32_t)(r >> 40) & 255;
        uint32_t exponent = l.middle - (uint32_t)__builtin_ctzll(r | (uint64_t)1 << 9);
        uint32_t field = (uint32_t)(r >> 8) & ((1u << l.mantissa) - 1);
        if (kind == 0) {
            exponent = 0; /* subnormal */
        } else if (kind < 4) {
            exponent = 0;
            field = 0;
        } else if (kind == 4) {
            exponent = (uint32_t)(r >> 32) % l.top; /* any */
        }
        if (nonfinite_log2 != 0 && (r >> 20 & ((1u << nonfinite_log2) - 1)) == 0) {
            exponent = l.top;
            field = (r >> 50 & 1) != 0 ? 0 : field;
        }
        store(dst, dtype, i, (uint32_t)(r >> 63), exponent << l.mantissa | field);
    }
}
