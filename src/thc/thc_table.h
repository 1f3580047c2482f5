/*
 * Costs of tables by threshold instead of by p, for handles and plans.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_TABLE_H
#define GW_THC_TABLE_H

#include "gradwire/thc.h"

/* Integral part of the cost of a valid table over [-t, t], 0 < t <= 4. */
double gw_thc_table_quantization(const gw_thc_table *table, double t);

/* All costs of a valid table at threshold t. */
void gw_thc_table_price_at(gw_thc_table_cost *cost, const gw_thc_table *table, double t);

#endif
