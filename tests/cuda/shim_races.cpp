/*
 * Races in shared memory. Device code for this is compiled with -fsanitize=thread, which puts a call before
 * every load and store, and is linked with these functions instead of that sanitizer's library: they note
 * accesses to the block's shared memory and leave all others alone.
 *
 * Not seen: copies that the compiler makes by calls of the C library, and global memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "shim.h"

static inline void note(const void *p, size_t size, bool is_write, const void *where)
{
    if ((size_t)((const unsigned char *)p - gw_shim_shared_begin) < gw_shim_shared_size) {
        gw_shim_note(p, size, is_write, where);
    }
}

extern "C" {

#define HOOK(name, size, is_write)                                                                           \
    void name(void *p);                                                                                      \
    void name(void *p)                                                                                       \
    {                                                                                                        \
        note(p, size, is_write, __builtin_return_address(0));                                                \
    }
#define HOOKS(size)                                                                                          \
    HOOK(__tsan_read##size, size, false)                                                                     \
    HOOK(__tsan_write##size, size, true)                                                                     \
    HOOK(__tsan_unaligned_read##size, size, false)                                                           \
    HOOK(__tsan_unaligned_write##size, size, true)                                                           \
    HOOK(__tsan_volatile_read##size, size, false)                                                            \
    HOOK(__tsan_volatile_write##size, size, true)                                                            \
    HOOK(__tsan_read_write##size, size, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *p, unsigned long size);
void __tsan_read_range(void *p, unsigned long size)
{
    note(p, size, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, unsigned long size);
void __tsan_write_range(void *p, unsigned long size)
{
    note(p, size, true, __builtin_return_address(0));
}
#define MEMORY_HOOK(name, type, reads)                                                                       \
    void *__tsan_##name(void *dst, type src, unsigned long size);                                            \
    void *__tsan_##name(void *dst, type src, unsigned long size)                                             \
    {                                                                                                        \
        if (reads) {                                                                                         \
            note((const void *)(uintptr_t)src, size, false, __builtin_return_address(0));                    \
        }                                                                                                    \
        note(dst, size, true, __builtin_return_address(0));                                                  \
        return name(dst, src, size);                                                                         \
    }
MEMORY_HOOK(memcpy, const void *, true)
MEMORY_HOOK(memmove, const void *, true)
MEMORY_HOOK(memset, int, false)

void __tsan_init(void);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
}
