/*
 * Bad kernels of the self-test, and helpers for writing them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KCHECK_BAD_H
#define GW_KCHECK_BAD_H

#include "kcheck.h"
#include "scalar/kernels_scalar.h"

typedef struct bad_kernel {
    const char *what;
    const char *kernel;
    kc_fn fn;
    unsigned expected; /* one of these kc_failure bits must be reported */
    int as_reference;  /* the fault is that of a scalar kernel: only models can see it */
} bad_kernel;

/* The bad kernels of THC, ended by one without a name. */
extern const bad_kernel bad_thc_kernels[];
/* Those of the sparse family. */
extern const bad_kernel bad_sparse_kernels[];
/* The same of levels. */
extern const bad_kernel bad_level_kernels[];
/* Those of casts and signs. */
extern const bad_kernel bad_sign_kernels[];

/* A read and a write that are not optimised away. */
static inline void read_byte(const uint8_t *p)
{
    (void)*(const volatile uint8_t *)p;
}

static inline void spoil(uint8_t *p)
{
    *(volatile uint8_t *)p = (uint8_t)(*p ^ 0x40);
}

#endif
