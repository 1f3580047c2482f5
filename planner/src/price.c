/*
 * Checks of codecs and clusters, and times of bytes. Numbers are at most 2^58 and products are taken in 128
 * bits; what does not fit saturates and is refused by the callers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "price.h"

#define NODES_MAX 65536u

static gw_status check_link(const gw_plan_link *link)
{
    return link->alpha < 0 || link->beta_kib < 0                                 ? GW_ERR_NEGATIVE
           : link->alpha > GW_PLAN_TICK_MAX || link->beta_kib > GW_PLAN_TICK_MAX ? GW_ERR_TICKS
                                                                                 : GW_OK;
}

static gw_status check_cluster(const gw_plan_cluster *cluster)
{
    if (cluster == NULL || cluster->nodes == 0 || cluster->gpus == 0 || cluster->nodes > NODES_MAX ||
        cluster->gpus > NODES_MAX) {
        return GW_ERR_ARG;
    }
    const gw_plan_link *links[3] = {&cluster->intra, &cluster->inter, &cluster->host};
    gw_status status = GW_OK;
    for (int i = 0; i < 3 && status == GW_OK; i++) {
        status = check_link(links[i]);
    }
    const uint32_t collectives =
        (UINT32_C(1) << GW_PLAN_OP_COUNT) - (UINT32_C(1) << GW_PLAN_OP_FLAT_ALLREDUCE);
    if ((cluster->op_set & ~collectives) != 0) {
        return GW_ERR_ARG;
    }
    for (int op = 0; op < GW_PLAN_OP_COUNT && status == GW_OK; op++) {
        status = (cluster->op_set >> op & 1u) != 0 ? check_link(&cluster->ops[op]) : GW_OK;
    }
    return status;
}

/* The curves of the devices that the codec has. */
static gw_status check_curves(const gw_plan_codec *codec)
{
    gw_status status = GW_OK;
    for (int device = 0; device < 2; device++) {
        const gw_plan_cost *curves[3] = {&codec->enc[device], &codec->dec[device], &codec->sum[device]};
        const int count = (codec->collectives & GW_PLAN_A2A_AG) != 0 ? 3 : 2;
        for (int i = 0; i < count && status == GW_OK && (codec->devices >> device & 1u) != 0; i++) {
            status = gw_plan_cost_check(curves[i], NULL);
        }
    }
    return status;
}

gw_status gw_price_check(const gw_plan_codec *codec, const gw_plan_cluster *cluster)
{
    gw_status status = check_cluster(cluster);
    if (status != GW_OK || codec == NULL) {
        return status;
    }
    if (codec->payload_header < 0 || codec->payload_num < 0 || codec->dec_peer_kib < 0 || codec->error < 0) {
        return GW_ERR_NEGATIVE;
    }
    if (codec->payload_den <= 0) {
        return GW_ERR_ARG;
    }
    if (codec->payload_header > GW_PLAN_PAYLOAD_MAX || codec->payload_num > GW_PLAN_PAYLOAD_MAX ||
        codec->payload_den > GW_PLAN_PAYLOAD_MAX || codec->dec_peer_kib > GW_PLAN_TICK_MAX ||
        codec->error > GW_PLAN_TICK_MAX) {
        return GW_ERR_TICKS;
    }
    return check_curves(codec);
}

int64_t gw_price_payload(const gw_plan_codec *codec, int64_t len)
{
    return gw_add_saturated(codec->payload_header,
                            gw_mul_div(len, codec->payload_num, codec->payload_den, GW_WIDE_UP));
}

gw_plan_tick gw_price_bytes(const gw_plan_link *link, int64_t bytes)
{
    return bytes == INT64_MAX ? INT64_MAX : gw_mul_div(bytes, link->beta_kib, 1024, GW_WIDE_DOWN);
}

gw_plan_tick gw_price_startup(const gw_plan_cluster *cluster, const gw_plan_link *link, int64_t steps)
{
    return (cluster->flags & GW_PLAN_ALPHA_PER_STEP) != 0 ? gw_mul_saturated(steps, link->alpha)
                                                          : link->alpha;
}
