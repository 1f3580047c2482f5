/*
 * What the steps of THC's exchanges work on.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RUNTIME_THC_STEPS_H
#define GW_RUNTIME_THC_STEPS_H

#include "gradwire/runtime_thc.h"

/* Of the exchange of one phase. */
typedef struct gw_thc_steps_context {
    gw_thc_steps *steps;
    gw_thc_phase phase;
} gw_thc_steps_context;

struct gw_thc_steps {
    gw_thc_steps_config config;
    gw_thc thc;
    gw_thc_agg agg;
    gw_thc sum_thc; /* REQUANTIZED */
    gw_collective_layout layout[2];
    uint64_t block_count; /* of a tensor */
    uint32_t *members;    /* rank_count, for as many blocks as a piece of sums has */
    gw_thc_steps_context context[2];
    gw_thc_steps_run run; /* constant while an exchange runs */
};

/* gw_exchange_steps of a phase; context: a gw_thc_steps_context. */
void gw_thc_steps_step(void *context, gw_exchange_step *step, const gw_workspace *workspace);
uint64_t gw_thc_steps_message_size(void *context, gw_runtime_event_kind kind, uint32_t piece);

#endif
