/*
 * What the processor can do, as a mask of gw_backend bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CORE_CPU_H
#define GW_CORE_CPU_H

#include <stdint.h>

/* Asks the processor (and, on x86, the operating system through XGETBV). Scalar is always set. */
uint32_t gw_cpu_detect(void);

#endif
