/*
 * Durations of one option for one tensor size, and the curves of flat methods for fused groups.
 *
 * Payload state along an option: the elements of the tensor that a rank holds (scatter steps divide them, the
 * second step restores them) and m, the number of compressed contributions not yet summed (0: dense).
 * Payload = 4 held bytes when dense, m c(held) when compressed, c(x) = header + ceil(x num / den). Per
 * operation over r ranks, bytes through the bottleneck link: reduce-scatter (r-1)/r payload; all-reduce 2
 * (r-1)/r payload; reduce, broadcast: payload; all-gather (r-1) payload; all-to-all (r-1)/r payload;
 * gather (r-1) payload. Between machines the k GPUs of a machine share one link, so bytes count k times
 * after a scatter step inside the machine and once after a rooted one. A flat ring crosses a machine's
 * link once; a flat all-to-all sends the part for other machines, (n-1)/n, from each of k GPUs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_cost.h"

static int64_t sat_add(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t sat_mul(int64_t a, int64_t b)
{
    return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static int link_valid(const gw_plan_link *link)
{
    return link->alpha >= 0 && link->beta_kib >= 0;
}

static gw_status check(const gw_plan_codec *codec, const gw_plan_cluster *cluster)
{
    if (cluster == NULL || cluster->nodes == 0 || cluster->gpus == 0 || cluster->nodes > 65536 ||
        cluster->gpus > 65536) {
        return GW_ERR_ARG;
    }
    if (!link_valid(&cluster->intra) || !link_valid(&cluster->inter)) {
        return GW_ERR_NEGATIVE;
    }
    if (codec == NULL) {
        return GW_OK;
    }
    if (codec->payload_header < 0 || codec->payload_num < 0 || codec->dec_peer_kib < 0) {
        return GW_ERR_NEGATIVE;
    }
    if (codec->payload_den <= 0) {
        return GW_ERR_ARG;
    }
    for (int device = 0; device < 2; device++) {
        if ((codec->devices >> device & 1u) == 0) {
            continue;
        }
        gw_status status = gw_plan_cost_check(&codec->enc[device], NULL);
        if (status == GW_OK) {
            status = gw_plan_cost_check(&codec->dec[device], NULL);
        }
        if (status != GW_OK) {
            return status;
        }
    }
    return GW_OK;
}

/* num / den to nearest, for non-negative values. */
static int64_t round_div(int64_t num, int64_t den)
{
    return num / den + (num % den >= den - num % den);
}

gw_status gw_plan_method_make(const gw_plan_codec *codec, const gw_plan_cluster *cluster, uint32_t collective,
                              gw_plan_device device, gw_plan_method *method)
{
    gw_status status = method == NULL || (device != GW_PLAN_GPU && device != GW_PLAN_CPU)
                           ? GW_ERR_ARG
                           : check(codec, cluster);
    if (status != GW_OK) {
        return status;
    }
    if (codec != NULL &&
        ((codec->collectives & collective) == 0 || (codec->devices >> (unsigned)device & 1u) == 0)) {
        return GW_ERR_OPTION;
    }
    int64_t ranks = (int64_t)cluster->nodes * cluster->gpus;
    const gw_plan_link *link = cluster->nodes > 1 ? &cluster->inter : &cluster->intra;
    int64_t steps;
    int64_t share_num = ranks - 1; /* link bytes = payload * share_num / share_den */
    int64_t share_den = 1;
    switch (collective) {
    case GW_PLAN_ALLREDUCE:
    case GW_PLAN_ALLTOALL:
        share_num *= 2;
        share_den = ranks;
        steps = 2 * (ranks - 1);
        break;
    case GW_PLAN_ALLGATHER:
    case GW_PLAN_GATHER:
        steps = ranks - 1;
        break;
    default:
        return GW_ERR_ARG;
    }
    int64_t num = codec != NULL ? codec->payload_num : 4;
    int64_t den = codec != NULL ? codec->payload_den : 1;
    int64_t header = codec != NULL ? codec->payload_header : 0;
    int64_t slope_num = sat_mul(sat_mul(link->beta_kib, num), share_num);
    int64_t slope_den = sat_mul(sat_mul(den, share_den), 1024);
    int64_t header_cost = sat_mul(sat_mul(header, share_num), link->beta_kib) / sat_mul(share_den, 1024);
    if (slope_num == INT64_MAX || slope_den == INT64_MAX || header_cost >= GW_PLAN_TICK_MAX) {
        return GW_ERR_TICKS;
    }
    static const gw_plan_cost zero = {GW_PLAN_COST_AFFINE, 0, 0, 0, 0, NULL, NULL};
    method->name = codec != NULL ? codec->name : "fp32";
    method->enc = codec != NULL ? codec->enc[device] : zero;
    method->dec = codec != NULL ? codec->dec[device] : zero;
    method->enc_device = device;
    method->net = zero;
    method->net.a = sat_add(
        cluster->flags & GW_PLAN_ALPHA_PER_STEP ? sat_mul(steps, link->alpha) : link->alpha, header_cost);
    method->net.b = round_div(slope_num, slope_den);
    return GW_OK;
}

static int64_t tree_steps(int64_t ranks)
{
    int64_t steps = 0;
    for (int64_t reach = 1; reach < ranks; reach *= 2) {
        steps++;
    }
    return steps;
}

typedef enum scope { SCOPE_FLAT, SCOPE_INTRA, SCOPE_INTER } scope;
typedef enum act {
    ACT_ALLREDUCE,
    ACT_RS,
    ACT_REDUCE,
    ACT_A2A,
    ACT_GATHER,
    ACT_ALLGATHERC,
    ACT_AG,
    ACT_BCAST
} act;

/* Scope and collective of a network operation. */
static void classify(uint8_t op, scope *where, act *what)
{
    static const uint8_t table[][2] = {
        {SCOPE_FLAT, ACT_ALLREDUCE}, {SCOPE_FLAT, ACT_RS},          {SCOPE_FLAT, ACT_REDUCE},
        {SCOPE_FLAT, ACT_A2A},       {SCOPE_FLAT, ACT_GATHER},      {SCOPE_FLAT, ACT_ALLGATHERC},
        {SCOPE_FLAT, ACT_AG},        {SCOPE_FLAT, ACT_BCAST},       {SCOPE_INTRA, ACT_RS},
        {SCOPE_INTRA, ACT_REDUCE},   {SCOPE_INTRA, ACT_A2A},        {SCOPE_INTRA, ACT_GATHER},
        {SCOPE_INTRA, ACT_AG},       {SCOPE_INTRA, ACT_BCAST},      {SCOPE_INTER, ACT_ALLREDUCE},
        {SCOPE_INTER, ACT_RS},       {SCOPE_INTER, ACT_REDUCE},     {SCOPE_INTER, ACT_A2A},
        {SCOPE_INTER, ACT_GATHER},   {SCOPE_INTER, ACT_ALLGATHERC}, {SCOPE_INTER, ACT_AG},
        {SCOPE_INTER, ACT_BCAST},
    };
    *where = (scope)table[op - GW_PLAN_OP_FLAT_ALLREDUCE][0];
    *what = (act)table[op - GW_PLAN_OP_FLAT_ALLREDUCE][1];
}

static int64_t codec_bytes(const gw_plan_codec *codec, int64_t elems)
{
    return sat_add(codec->payload_header, ceil_div(sat_mul(elems, codec->payload_num), codec->payload_den));
}

/* Payload state along an option. */
typedef struct payload {
    const gw_plan_codec *codec;
    const gw_plan_cluster *cluster;
    int64_t held;          /* elements of the tensor that a rank holds */
    int64_t whole[3];      /* held before the first step of each scope */
    int64_t contributions; /* compressed, not summed yet; 0: dense */
    int seen_inter;        /* a step between machines has occurred */
    int scattered_inside;  /* the GPUs of a machine hold different parts */
} payload;

static gw_status price_codec(payload *p, uint8_t op, gw_plan_stage *stage)
{
    const gw_plan_codec *codec = p->codec;
    int device = op == GW_PLAN_OP_COMP_CPU || op == GW_PLAN_OP_DEC_CPU;
    if (codec == NULL || (codec->devices >> device & 1u) == 0) {
        return GW_ERR_OPTION;
    }
    stage->resource = (uint8_t)(device ? GW_PLAN_ON_CPU : GW_PLAN_ON_GPU);
    stage->queue = (uint8_t)(p->seen_inter ? 2 : 0);
    if (op <= GW_PLAN_OP_COMP_CPU) {
        stage->duration = gw_plan_cost_eval(&codec->enc[device], p->held);
        p->contributions = 1;
        return GW_OK;
    }
    if (p->contributions == 0) {
        return GW_ERR_ARG;
    }
    int64_t extra = sat_mul(p->contributions - 1, codec_bytes(codec, p->held));
    stage->decode = 1;
    stage->duration =
        sat_add(gw_plan_cost_eval(&codec->dec[device], p->held), sat_mul(extra, codec->dec_peer_kib) / 1024);
    p->contributions = 0;
    return GW_OK;
}

/* What a collective of compressed payloads needs from the codec; 0: it carries any payload. */
static uint32_t collective_needed(act what)
{
    return what == ACT_A2A          ? GW_PLAN_ALLTOALL
           : what == ACT_GATHER     ? GW_PLAN_GATHER
           : what == ACT_ALLGATHERC ? GW_PLAN_ALLGATHER
                                    : 0;
}

/* Bytes of an all-to-all through the bottleneck link; the payload becomes the parts of all ranks. */
static int64_t all_to_all(payload *p, scope where, int64_t ranks)
{
    const gw_plan_cluster *cluster = p->cluster;
    int64_t part = ceil_div(p->held, ranks);
    int64_t piece = sat_mul(p->contributions, codec_bytes(p->codec, part));
    p->whole[where] = p->held;
    p->held = part;
    p->contributions = sat_mul(p->contributions, ranks);
    return where == SCOPE_FLAT && cluster->nodes > 1
               ? sat_mul(sat_mul(piece, cluster->gpus), (int64_t)(cluster->nodes - 1) * cluster->gpus)
               : sat_mul(piece, ranks - 1);
}

/* Bytes of a collective over `ranks` through the bottleneck link, and its steps. Changes the payload
 * state. */
static int64_t collective_bytes(payload *p, scope where, act what, int64_t ranks, int64_t *steps)
{
    int64_t part = ceil_div(p->held, ranks);
    int64_t whole = p->held;
    int64_t bytes =
        p->contributions == 0 ? sat_mul(4, whole) : sat_mul(p->contributions, codec_bytes(p->codec, whole));
    *steps = ranks - 1;
    switch (what) {
    case ACT_ALLREDUCE:
        *steps = 2 * (ranks - 1);
        return sat_mul(2 * (ranks - 1), sat_mul(4, part));
    case ACT_RS:
        p->whole[where] = whole;
        p->held = part;
        return sat_mul(ranks - 1, sat_mul(4, part));
    case ACT_REDUCE:
        p->whole[where] = whole;
        *steps = tree_steps(ranks);
        return bytes;
    case ACT_A2A:
        return all_to_all(p, where, ranks);
    case ACT_GATHER:
        p->whole[where] = whole;
        p->contributions = sat_mul(p->contributions, ranks);
        *steps = tree_steps(ranks);
        return sat_mul(ranks - 1, bytes);
    case ACT_ALLGATHERC:
        p->contributions = sat_mul(p->contributions, ranks);
        return sat_mul(ranks - 1, bytes);
    case ACT_AG:
        p->held = p->whole[where];
        return sat_mul(ranks - 1, bytes);
    case ACT_BCAST:
    default:
        *steps = tree_steps(ranks);
        return bytes;
    }
}

static gw_status price_network(payload *p, uint8_t op, gw_plan_stage *stage)
{
    const gw_plan_cluster *cluster = p->cluster;
    scope where;
    act what;
    classify(op, &where, &what);
    uint32_t needed = collective_needed(what);
    if (needed != 0 && p->contributions == 0) {
        return GW_ERR_ARG; /* nothing has been compressed; the codec may be NULL */
    }
    if (needed != 0 && (p->codec->collectives & needed) == 0) {
        return GW_ERR_OPTION;
    }
    int64_t ranks = where == SCOPE_INTRA   ? cluster->gpus
                    : where == SCOPE_INTER ? cluster->nodes
                                           : (int64_t)cluster->nodes * cluster->gpus;
    int on_intra = where == SCOPE_INTRA || (where == SCOPE_FLAT && cluster->nodes == 1);
    const gw_plan_link *link = on_intra ? &cluster->intra : &cluster->inter;
    int64_t steps;
    int64_t bytes = collective_bytes(p, where, what, ranks, &steps);
    if (where == SCOPE_INTRA) {
        p->scattered_inside |= what == ACT_RS || what == ACT_A2A;
    } else if (where == SCOPE_INTER && p->scattered_inside) {
        bytes = sat_mul(bytes, cluster->gpus);
    }
    p->seen_inter |= where == SCOPE_INTER;
    stage->resource = (uint8_t)(on_intra ? GW_PLAN_ON_INTRA : GW_PLAN_ON_INTER);
    stage->queue = (uint8_t)(where == SCOPE_INTER ? 1 : p->seen_inter ? 2 : 0);
    gw_plan_tick startup =
        cluster->flags & GW_PLAN_ALPHA_PER_STEP ? sat_mul(steps, link->alpha) : link->alpha;
    stage->duration = sat_add(startup, sat_add(sat_mul(bytes / 1024, link->beta_kib),
                                               sat_mul(bytes % 1024, link->beta_kib) / 1024));
    return GW_OK;
}

gw_status gw_plan_option_price(const gw_plan_option *option, const gw_plan_codec *codec,
                               const gw_plan_cluster *cluster, int64_t elems, gw_plan_job *job)
{
    gw_status status = option == NULL || job == NULL ? GW_ERR_ARG : check(codec, cluster);
    if (status != GW_OK) {
        return status;
    }
    if (elems < 0) {
        return GW_ERR_NEGATIVE;
    }
    if (option->op_count == 0 || option->op_count > GW_PLAN_OPTION_OPS_MAX) {
        return GW_ERR_ARG;
    }
    gw_plan_job priced = {0, 0, {{0, 0, 0, 0, 0}}};
    payload p = {codec, cluster, elems, {elems, elems, elems}, 0, 0, 0};
    for (uint32_t i = 0; i < option->op_count; i++) {
        uint8_t op = option->ops[i];
        gw_plan_stage *stage = &priced.stages[priced.stage_count++];
        stage->op = op;
        status = op >= GW_PLAN_OP_COUNT     ? GW_ERR_ARG
                 : op <= GW_PLAN_OP_DEC_CPU ? price_codec(&p, op, stage)
                                            : price_network(&p, op, stage);
        if (status == GW_OK && stage->duration >= GW_PLAN_TICK_MAX) {
            status = GW_ERR_TICKS;
        }
        if (status != GW_OK) {
            return status;
        }
    }
    *job = priced;
    return GW_OK;
}
