/*
 * The rows of thc_default_tables.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_DEFAULT_TABLES_H
#define GW_THC_DEFAULT_TABLES_H

#include "gradwire/thc.h"

/* The optimal table for p = 2^-p_log2, the p of least total error for these workers, at the default
 * granularity. */
typedef struct gw_thc_default_table {
    uint8_t error_feedback;
    uint8_t p_log2;
    uint16_t worker_min;
    uint16_t worker_max;
    gw_thc_table table;
} gw_thc_default_table;

extern const gw_thc_default_table gw_thc_default_tables[];
extern const size_t gw_thc_default_table_count;

#endif
