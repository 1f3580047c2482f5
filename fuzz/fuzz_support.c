/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "fuzz_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY_SIZE = 64, CANARY = 0xc9 };

void gw_fuzz_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: broken promise: %s\n", file, line, condition);
    abort();
}

uint8_t gw_fuzz_u8(gw_fuzz_reader *reader)
{
    if (reader->size == 0) {
        return 0;
    }
    uint8_t byte = reader->data[0];
    reader->data++;
    reader->size--;
    return byte;
}

uint16_t gw_fuzz_u16(gw_fuzz_reader *reader)
{
    uint16_t low = gw_fuzz_u8(reader);
    return (uint16_t)(low | (uint16_t)(gw_fuzz_u8(reader) << 8));
}

uint32_t gw_fuzz_u32(gw_fuzz_reader *reader)
{
    uint32_t low = gw_fuzz_u16(reader);
    return low | (uint32_t)gw_fuzz_u16(reader) << 16;
}

uint64_t gw_fuzz_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

typedef struct slot {
    uint8_t *pages; /* first mapped byte after the lower unmapped page */
    size_t capacity;
    uint8_t *canary; /* CANARY_SIZE bytes, NULL if the slot is empty */
} slot;

static slot slots[GW_FUZZ_SLOTS];
static int place_at_end = 1;

void gw_fuzz_place_at_end(int at_end)
{
    place_at_end = at_end;
}

void *gw_fuzz_buffer(unsigned index, size_t size, int fill)
{
    slot *s = &slots[index];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t need = (size + CANARY_SIZE + page - 1) / page * page;

    if (s->capacity < need) {
        if (s->pages != NULL) {
            munmap(s->pages - page, s->capacity + 2 * page);
        }
        need = (need + (need >> 1) + page - 1) / page * page;
        uint8_t *mapping = (uint8_t *)mmap(NULL, need + 2 * page, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED || mprotect(mapping + page, need, PROT_READ | PROT_WRITE) != 0) {
            perror("gw_fuzz_buffer");
            exit(2);
        }
        s->pages = mapping + page;
        s->capacity = need;
    }
    uint8_t *buffer;
    if (place_at_end) {
        buffer = s->pages + s->capacity - size;
        s->canary = buffer - CANARY_SIZE;
    } else {
        buffer = s->pages;
        s->canary = buffer + size;
    }
    memset(s->canary, CANARY, CANARY_SIZE);
    memset(buffer, fill, size);
    return buffer;
}

void gw_fuzz_buffers_check(void)
{
    for (unsigned i = 0; i < GW_FUZZ_SLOTS; i++) {
        FUZZ_CHECK(slots[i].canary == NULL || gw_fuzz_all_bytes(slots[i].canary, CANARY_SIZE, CANARY));
    }
}

int gw_fuzz_all_bytes(const void *data, size_t size, uint8_t byte)
{
    const uint8_t *p = (const uint8_t *)data;
    return size == 0 || (p[0] == byte && memcmp(p, p + 1, size - 1) == 0);
}

unsigned gw_fuzz_backends(uint32_t masks[32])
{
    uint32_t available = gw_backends_available();
    unsigned count = 1;

    masks[0] = GW_BACKEND_SCALAR;
    for (unsigned bit = 1; bit < 32; bit++) {
        if (available >> bit & 1) {
            masks[count++] = GW_BACKEND_SCALAR | 1u << bit;
        }
    }
    return count;
}
