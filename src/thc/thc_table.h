/*
 * Costs of tables by threshold instead of by p, for handles and plans.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_TABLE_H
#define GW_THC_TABLE_H

#include "gradwire/thc.h"

/* All costs of a valid table at threshold t. */
void gw_thc_table_price_at(gw_thc_table_cost *cost, const gw_thc_table *table, double t);

#endif
