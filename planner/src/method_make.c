/*
 * Curves of the methods that send a fused group flat over all ranks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "price.h"

static const gw_plan_cost zero_cost = {GW_PLAN_COST_AFFINE, 0, 0, 0, 0, NULL, NULL};

/* One collective: how often a payload passes the bottleneck link, as a fraction, and its steps. */
typedef struct exchange {
    int64_t num, den;
    int64_t steps;
    int64_t rounds; /* how often its startup is paid */
} exchange;

/* Startup, header and slope of an exchange as a curve. */
static gw_status exchange_curve(const gw_plan_codec *codec, const gw_plan_cluster *cluster,
                                const exchange *way, gw_plan_cost *curve)
{
    static const gw_plan_codec dense = {.payload_num = 4, .payload_den = 1};
    const gw_plan_link *link = cluster->nodes > 1 ? &cluster->inter : &cluster->intra;
    const gw_plan_codec *payload = codec != NULL ? codec : &dense;
    const gw_wide share = gw_wide_mul(gw_wide_from(way->num), link->beta_kib);
    const gw_wide whole = gw_wide_mul(gw_wide_from(way->den), 1024);
    const int64_t header = gw_wide_div(gw_wide_mul(share, payload->payload_header), whole, GW_WIDE_DOWN);
    const int64_t slope = gw_wide_div(gw_wide_mul(share, payload->payload_num),
                                      gw_wide_mul(whole, payload->payload_den), GW_WIDE_NEAREST);
    const int64_t startup = gw_mul_saturated(way->rounds, gw_price_startup(cluster, link, way->steps));
    *curve = zero_cost;
    curve->a = gw_add_saturated(startup, header);
    curve->b = slope;
    return curve->a > GW_PLAN_TICK_MAX || curve->b > GW_PLAN_TICK_MAX ? GW_ERR_TICKS : GW_OK;
}

/* The network curves of a collective. */
static gw_status set_network(const gw_plan_codec *codec, const gw_plan_cluster *cluster, uint32_t collective,
                             gw_plan_method *method)
{
    const int64_t nodes = cluster->nodes;
    const int64_t gpus = cluster->gpus;
    const int64_t ranks = nodes * gpus;
    const int64_t rounds = codec != NULL && codec->rounds > 0 ? codec->rounds : 1;
    const exchange allreduce = {2 * (ranks - 1), ranks, 2 * (ranks - 1), rounds};
    const exchange allgather = {ranks - 1, 1, ranks - 1, 1};
    /* k GPUs send (n - 1) k of their n k shares through one link */
    const exchange shares = {nodes > 1 ? gpus * gpus * (nodes - 1) : ranks - 1, ranks, ranks - 1, 1};
    const exchange sums = {ranks - 1, ranks, ranks - 1, 1};
    switch (collective) {
    case GW_PLAN_ALLREDUCE:
        return exchange_curve(codec, cluster, &allreduce, &method->net);
    case GW_PLAN_ALLGATHER:
        return exchange_curve(codec, cluster, &allgather, &method->net);
    default: {
        gw_status status = exchange_curve(codec, cluster, &shares, &method->net);
        return status == GW_OK ? exchange_curve(codec, cluster, &sums, &method->gather) : status;
    }
    }
}

/* What the decoder does for the contributions of an all-gather beyond the first. */
static gw_status set_peers(const gw_plan_codec *codec, int64_t ranks, gw_plan_cost *curve)
{
    const gw_wide rate = gw_wide_mul(gw_wide_from(ranks - 1), codec->dec_peer_kib);
    *curve = zero_cost;
    curve->a = gw_wide_div(gw_wide_mul(rate, codec->payload_header), gw_wide_from(1024), GW_WIDE_DOWN);
    curve->b = gw_wide_div(gw_wide_mul(rate, codec->payload_num),
                           gw_wide_mul(gw_wide_from(codec->payload_den), 1024), GW_WIDE_NEAREST);
    return curve->a > GW_PLAN_TICK_MAX || curve->b > GW_PLAN_TICK_MAX ? GW_ERR_TICKS : GW_OK;
}

static gw_status set_codec(const gw_plan_codec *codec, const gw_plan_cluster *cluster, uint32_t collective,
                           gw_plan_method *method)
{
    const int64_t ranks = (int64_t)cluster->nodes * cluster->gpus;
    method->name = codec->name;
    method->error = codec->error;
    method->enc = codec->enc[method->device];
    method->dec = codec->dec[method->device];
    if (method->device == GW_PLAN_CPU) {
        method->host.a = cluster->host.alpha;
        method->host.b = gw_wide_div(gw_wide_mul(gw_wide_from(4), cluster->host.beta_kib), gw_wide_from(1024),
                                     GW_WIDE_NEAREST);
    }
    if (collective == GW_PLAN_A2A_AG) {
        if (ranks > UINT32_MAX) {
            return GW_ERR_TICKS;
        }
        method->owner_count = (uint32_t)ranks;
        method->sum = codec->sum[method->device];
    }
    return collective == GW_PLAN_ALLGATHER ? set_peers(codec, ranks, &method->dec_more) : GW_OK;
}

gw_status gw_plan_method_make(const gw_plan_codec *codec, const gw_plan_cluster *cluster, uint32_t collective,
                              gw_plan_device device, gw_plan_method *method)
{
    gw_status status = method == NULL || (device != GW_PLAN_GPU && device != GW_PLAN_CPU)
                           ? GW_ERR_ARG
                           : gw_price_check(codec, cluster);
    if (status != GW_OK) {
        return status;
    }
    if (collective == 0 || (collective & (collective - 1)) != 0 || collective > GW_PLAN_A2A_AG) {
        return GW_ERR_ARG;
    }
    const uint32_t has = codec != NULL ? codec->collectives : GW_PLAN_ALLREDUCE | GW_PLAN_ALLGATHER;
    const uint32_t devices = codec != NULL ? codec->devices : UINT32_MAX;
    const uint32_t complete = GW_PLAN_ALLREDUCE | GW_PLAN_ALLGATHER | GW_PLAN_A2A_AG;
    if ((has & complete & collective) == 0 || (devices >> (unsigned)device & 1u) == 0) {
        return GW_ERR_OPTION;
    }
    gw_plan_method made = {.name = "fp32", .device = device};
    status = codec != NULL ? set_codec(codec, cluster, collective, &made) : GW_OK;
    status = status == GW_OK ? set_network(codec, cluster, collective, &made) : status;
    if (status == GW_OK) {
        *method = made;
    }
    return status;
}
