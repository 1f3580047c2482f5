/*
 * THC: an exchange of the norms of blocks, which leaves their maxima on all ranks, then one of indices, which
 * their owners add. The steps of both are the runtime's (gradwire/runtime_thc.h).
 *
 * The values are one tensor (all-reduce) or one for each rank's block (reduce-scatter).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include "gradwire/runtime_thc.h"

#include <stdlib.h>

struct gw_mpi_lanes {
    gw_mpi_operation *operation;
    gw_thc_steps *steps;
    uint32_t *maxima;
    int has_maxima; /* the exchange that runs is the one of sums */
};

static gw_status gw_mpi_lanes_init(gw_mpi_lanes *lanes)
{
    const gw_mpi_operation *operation = lanes->operation;
    const gw_mpi_call *call = &operation->call;
    const uint32_t ranks = (uint32_t)operation->context->size;
    const int is_scatter = call->kind == GW_MPI_REDUCE_SCATTER;
    const gw_thc_goal goal = {.bits = call->options.thc_bits, .worker_max = ranks};
    const gw_workspace workspace = gw_mpi_workspace();
    gw_thc_steps_config config = {
        .rank = (uint32_t)operation->context->rank,
        .rank_count = ranks,
        .len = is_scatter ? call->len / ranks : call->len,
        .is_scatter = is_scatter,
        .sums = call->options.thc_sums,
    };
    const gw_status status = gw_thc_options_init(&config.options, &goal, &workspace);
    if (status != GW_OK) {
        return status;
    }
    config.options.seed = call->options.seed;
    config.options.nonfinite = GW_THC_NONFINITE_PROPAGATE;
    return gw_thc_steps_open(&config, &lanes->steps);
}

/* The exchange of the phase that is next. With the operation's lock. */
static gw_mpi_exchange *gw_mpi_lanes_open(gw_mpi_lanes *lanes)
{
    gw_mpi_operation *operation = lanes->operation;
    const gw_mpi_call *call = &operation->call;
    const gw_thc_phase phase = lanes->has_maxima ? GW_THC_PHASE_SUMS : GW_THC_PHASE_NORMS;
    const gw_mpi_message message = lanes->has_maxima ? GW_MPI_MESSAGE_SCATTER : GW_MPI_MESSAGE_NORMS;
    const gw_thc_steps_run run = {
        .values = call->values,
        .result = call->result,
        .maxima = lanes->maxima,
        .norms_word = lanes->has_maxima ? operation->word : 0, /* then the maxima may be wrong */
        .round = operation->number,
    };
    gw_exchange_config config = {0};
    gw_exchange_run exchange_run;
    gw_status status = gw_thc_steps_begin(lanes->steps, phase, &run, &exchange_run);
    status = status == GW_OK ? gw_thc_steps_exchange(lanes->steps, phase, &config) : status;
    if (status != GW_OK) {
        gw_mpi_operation_fail(operation, status);
        return NULL;
    }
    return gw_mpi_exchange_open(operation, &config, message, &exchange_run);
}

gw_mpi_exchange *gw_mpi_lanes_begin(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = gw_mpi_allocate(1, sizeof(*lanes));
    operation->lanes = lanes;
    lanes->operation = operation;
    const gw_status status = gw_mpi_lanes_init(lanes);
    if (status == GW_ERR_LIMIT) { /* GW_MPI_VALUES_MAX leaves no other limit */
        gw_mpi_out_of_memory();
    }
    if (status != GW_OK) {
        gw_mpi_operation_fail(operation, status);
        lanes->has_maxima = 1;
        return NULL;
    }
    lanes->maxima = gw_mpi_allocate(gw_thc_steps_maxima_len(lanes->steps), sizeof(uint32_t));
    return gw_mpi_lanes_open(lanes);
}

int gw_mpi_lanes_continue(gw_mpi_operation *operation)
{
    gw_mpi_lanes *lanes = operation->lanes;
    if (lanes == NULL || lanes->has_maxima) {
        return 0;
    }
    lanes->has_maxima = 1;
    gw_mpi_exchange_close(operation->exchange);
    operation->exchange = gw_mpi_lanes_open(lanes);
    return 1;
}

void gw_mpi_lanes_free(gw_mpi_lanes *lanes)
{
    if (lanes != NULL) {
        gw_thc_steps_close(lanes->steps);
        free(lanes->maxima);
        free(lanes);
    }
}
