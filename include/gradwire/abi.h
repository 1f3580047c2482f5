/*
 * abi.h: the layout of every public struct, as compiled into this library.
 *
 * Callers that cannot include the headers (Python, Rust, a plug-in of another build) compare these sizes and
 * offsets with their own before their first call.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_ABI_H
#define GRADWIRE_ABI_H

#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the two structs below, not of the library. Check it before reading them. */
#define GW_ABI_VERSION 1u

/* One field of a struct. */
typedef struct gw_abi_field {
    const char *name;
    uint32_t offset; /* bytes */
    uint32_t size;   /* bytes, of the whole array where it is one */
} gw_abi_field;

/* One public struct. */
typedef struct gw_abi_struct {
    const char *name; /* as in the header: "gw_buffer" */
    uint32_t size;    /* bytes */
    uint32_t field_count;
    const gw_abi_field *fields; /* field_count of them, in the order of their declaration */
} gw_abi_struct;

/* GW_ABI_VERSION of the library. */
GW_API uint32_t gw_abi_version(void);

/* All structs of the headers of libgradwire, those of cuda.h included. *count is their number; count must not
 * be NULL. Static storage; may be called from any thread. Libraries with headers of their own have queries of
 * their own (runtime.h, plan.h). */
GW_API const gw_abi_struct *gw_abi_structs(size_t *count);

#ifdef __cplusplus
}
#endif

#endif
