/*
 * The kernel table: one slot for each hot loop of the codecs. core/gcomp_kernels.h, core/thc_kernels.h and
 * core/classic_kernels.h state what each kernel must do; src/scalar fills every slot and is the
 * specification.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KERNELS_H
#define GW_KERNELS_H

#include "core/classic_kernels.h"
#include "core/gcomp_kernels.h"
#include "core/thc_kernels.h"

/* gw_crc32c() of gradwire.h. */
typedef uint32_t gw_crc32c_fn(uint32_t crc, const uint8_t *src, size_t size);

typedef struct gw_kernels {
    gw_gcomp_kernels gcomp;
    gw_thc_kernels thc;
    gw_classic_kernels classic;
    gw_crc32c_fn *crc32c;
} gw_kernels;

/* Fills every slot with the best permitted kernel: backends & gw_backends_available(). */
void gw_kernels_init(gw_kernels *kernels, uint32_t backends);

/* Overwrites the slots that a backend improves. `cpu` holds gw_cpu_flag bits (core/cpu.h): instructions
 * beyond the backend's own, and quirks. Called by dispatch.c in the order of backends.def. */
#define GW_CPU_BACKEND(bit, name, NAME, title) void gw_backend_init_##name(gw_kernels *kernels, uint32_t cpu);
#include "core/backends.def"

/* Declares a backend's kernels by the types of their slots, so that no signature can drift. A backend need
 * not define all of them. */
#define GW_DECLARE_KERNELS(backend)                                                                          \
    GW_DECLARE_GCOMP_KERNELS(backend);                                                                       \
    GW_DECLARE_THC_KERNELS(backend);                                                                         \
    GW_DECLARE_CLASSIC_KERNELS(backend);                                                                     \
    gw_crc32c_fn gw_crc32c_##backend

/* A slot of a gw_thc_kernels. The firmware profile has neither tables nor function pointers: there it is
 * the scalar kernel itself. */
#if defined(GW_FIRMWARE)
GW_DECLARE_THC_KERNELS(scalar);
#define GW_THC_SLOT(kernels, slot) gw_thc_##slot##_scalar
#else
#define GW_THC_SLOT(kernels, slot) ((kernels)->slot)
#endif

#endif
