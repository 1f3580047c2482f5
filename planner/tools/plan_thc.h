/*
 * What THC sends, by the rules of thc.h: it depends on the number of workers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_THC_H
#define GW_PLAN_THC_H

#include "gradwire/plan.h"

/* Sets the payload of an all-reduce of norms and one of lanes and counts, for indices of `bits` bits and
 * lanes of 8, 16 or 32 bits (0: the narrowest that hold the sum): never less than what is sent, at most a
 * block more. what: of a message, printed. Exit code. */
int plan_thc_payload(const char *what, unsigned bits, unsigned lane_bits, uint64_t worker_count,
                     gw_plan_codec *codec);

#endif
