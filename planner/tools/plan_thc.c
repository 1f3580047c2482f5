/*
 * Payload of THC, by the rules of thc.h: it depends on the number of workers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_case.h"

#include <stdlib.h>

#include "cli_common.h"
#include "gradwire/thc.h"

#define PATTERN_SIZE 4 /* a pattern travels as uint32 */

/* The handle that gw_thc_options_init() recommends for so many workers. */
static gw_status open_thc(unsigned bits, unsigned lane_bits, uint32_t worker_count, gw_thc *thc)
{
    const gw_thc_goal goal = {.bits = bits, .worker_max = worker_count, .lane_bits = lane_bits};
    gw_workspace workspace = {.size = GW_THC_TABLE_WORKSPACE_SIZE};
    gw_thc_options options;
    workspace.data = malloc(workspace.size);
    gw_status status = gw_thc_options_init(&options, &goal, workspace.data != NULL ? &workspace : NULL);
    free(workspace.data);
    return status == GW_OK ? gw_thc_init(thc, &options) : status;
}

/* Bytes of both all-reduces of a tensor. */
static int64_t bytes_of(const gw_thc *thc, uint64_t len)
{
    const uint64_t blocks = gw_thc_block_count(thc, len);
    return (int64_t)(gw_thc_reduced_size(thc, len, 0, blocks) +
                     blocks * gw_thc_patterns_per_block(thc) * PATTERN_SIZE);
}

int plan_thc_payload(const char *what, unsigned bits, unsigned lane_bits, uint64_t worker_count,
                     gw_plan_codec *codec)
{
    gw_thc thc;
    if (worker_count > GW_THC_WORKERS_MAX) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "%s: THC has at most %u workers, not %llu", what,
                            GW_THC_WORKERS_MAX, (unsigned long long)worker_count);
    }
    gw_status status = open_thc(bits, lane_bits, (uint32_t)worker_count, &thc);
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "%s for %llu workers: %s", what,
                            (unsigned long long)worker_count, gw_status_message(status));
    }
    /* Four blocks have no padding of their own. Within a block the rest is rounded up to a power of two, so
     * the header is the most by which that exceeds the slope. */
    const int64_t block = (int64_t)1 << gw_thc_options_of(&thc)->block_log2;
    codec->payload_num = bytes_of(&thc, 4 * (uint64_t)block);
    codec->payload_den = 4 * block;
    codec->payload_header = 0;
    for (int64_t len = 1; len <= 4 * block; len++) {
        const int64_t over = bytes_of(&thc, (uint64_t)len) - len * codec->payload_num / codec->payload_den;
        codec->payload_header = over > codec->payload_header ? over : codec->payload_header;
    }
    codec->rounds = 2;
    return GW_CLI_OK;
}
