/*
 * A stack of arrays inside the caller's workspace, each aligned to 8 bytes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_ARENA_H
#define GW_PLAN_ARENA_H

#include "gradwire/gradwire.h"

typedef struct gw_arena {
    unsigned char *base;
    size_t size;
    size_t used;
} gw_arena;

/* 0 when there is no workspace, or one too small to be aligned. */
static inline int gw_arena_open(gw_arena *arena, const gw_workspace *workspace)
{
    if (workspace == NULL || workspace->data == NULL) {
        return 0;
    }
    size_t skip = (8u - ((uintptr_t)workspace->data & 7u)) & 7u;
    if (skip > workspace->size) {
        return 0;
    }
    arena->base = (unsigned char *)workspace->data + skip;
    arena->size = workspace->size - skip;
    arena->used = 0;
    return 1;
}

/* count * item bytes, or NULL when they do not fit. */
static inline void *gw_arena_take(gw_arena *arena, size_t count, size_t item)
{
    if (item != 0 && count > (SIZE_MAX - 7u) / item) {
        return NULL;
    }
    size_t size = (count * item + 7u) & ~(size_t)7u;
    if (size > arena->size - arena->used) {
        return NULL;
    }
    void *taken = arena->base + arena->used;
    arena->used += size;
    return taken;
}

#endif
