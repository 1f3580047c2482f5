/*
 * Validity of a table; a file of its own because it is the only table code that firmware needs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/thc.h"

gw_status gw_thc_table_check(const gw_thc_table *table)
{
    if (table == NULL) {
        return GW_ERR_ARG;
    }
    if (table->bits < 1 || table->bits > GW_THC_BITS_MAX) {
        return GW_ERR_TABLE;
    }
    unsigned last = (1u << table->bits) - 1u;
    if (table->value[0] != 0 || table->value[last] != table->granularity) {
        return GW_ERR_TABLE;
    }
    for (unsigned z = 1; z < 16; z++) {
        if (z <= last ? table->value[z] <= table->value[z - 1] : table->value[z] != 0) {
            return GW_ERR_TABLE;
        }
    }
    return GW_OK;
}
