/*
 * Prices of exchanges and copies: checks of codecs and clusters, time of bytes on a link.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_PRICE_H
#define GW_PLAN_PRICE_H

#include "plan_cost.h"
#include "wide.h"

/* codec may be NULL. */
gw_status gw_price_check(const gw_plan_codec *codec, const gw_plan_cluster *cluster);

/* header + ceil(len num / den), saturated. */
int64_t gw_price_payload(const gw_plan_codec *codec, int64_t len);

/* Time of `bytes` on a link, without its startup, rounded down. Saturated if bytes are. */
gw_plan_tick gw_price_bytes(const gw_plan_link *link, int64_t bytes);

/* Startup of a collective of so many steps. */
gw_plan_tick gw_price_startup(const gw_plan_cluster *cluster, const gw_plan_link *link, int64_t steps);

#endif
