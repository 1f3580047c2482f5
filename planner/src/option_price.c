/*
 * Durations of one option for one tensor size.
 *
 * Payload state along an option: the elements of the tensor that a rank holds (scatter steps divide them, the
 * second step restores them) and m, the number of compressed contributions not yet summed (0: dense).
 * Payload = 4 held bytes when dense, m c(held) when compressed, c(x) = header + ceil(x num / den). Per
 * operation over r ranks, bytes through the bottleneck link: reduce-scatter (r-1)/r payload; all-reduce 2
 * (r-1)/r payload; reduce, broadcast: payload; all-gather (r-1) payload; all-to-all (r-1)/r payload;
 * gather (r-1) payload. Between machines the k GPUs of a machine share one link, so bytes count k times
 * after a scatter step inside the machine and once after a rooted one. A flat ring crosses a machine's
 * link once; a flat all-to-all sends the part for other machines, (n-1)/n, from each of k GPUs. An operation
 * that was measured has its own startup and time per byte; the bytes are these.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "price.h"

_Static_assert(GW_PLAN_OP_COUNT <= GW_PLAN_OPS_MAX, "each operation can have a cost of its own");

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
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

/* Payload state along an option. */
typedef struct payload {
    const gw_plan_codec *codec;
    const gw_plan_cluster *cluster;
    int64_t held;          /* elements of the tensor that a rank holds */
    int64_t whole[3];      /* held before the first step of each scope */
    int64_t contributions; /* compressed, not summed yet; 0: dense */
    int seen_inter;        /* a step between machines has occurred */
    int scattered_inside;  /* the GPUs of a machine hold different parts */
    int on_gpu, on_host;   /* where the payload is; both after a network step, which delivers to either */
} payload;

/* Makes sure that the payload is on the host, or on the GPU. */
static void price_copy(payload *p, int to_host, gw_plan_job *job)
{
    const int is_there = to_host ? p->on_host : p->on_gpu;
    const int64_t bytes = p->contributions == 0
                              ? gw_mul_saturated(4, p->held)
                              : gw_mul_saturated(p->contributions, gw_price_payload(p->codec, p->held));
    const gw_plan_tick duration =
        gw_add_saturated(p->cluster->host.alpha, gw_price_bytes(&p->cluster->host, bytes));
    if (!is_there && duration > 0) {
        job->stages[job->stage_count++] = (gw_plan_stage){
            duration, GW_PLAN_ON_CPU, (uint8_t)(p->seen_inter ? 2 : 0), GW_PLAN_SPAN_COPY, GW_PLAN_OP_COUNT};
    }
    p->on_host = to_host;
    p->on_gpu = !to_host;
}

static gw_status price_codec(payload *p, uint8_t op, gw_plan_stage *stage)
{
    const gw_plan_codec *codec = p->codec;
    int device = op == GW_PLAN_OP_COMP_CPU || op == GW_PLAN_OP_DEC_CPU;
    if (codec == NULL || (codec->devices >> device & 1u) == 0) {
        return GW_ERR_OPTION;
    }
    stage->resource = (uint8_t)(device ? GW_PLAN_ON_CPU : GW_PLAN_ON_GPU);
    stage->queue = (uint8_t)(p->seen_inter ? 2 : 0);
    stage->kind = op <= GW_PLAN_OP_COMP_CPU ? GW_PLAN_SPAN_ENCODE : GW_PLAN_SPAN_DECODE;
    if (op <= GW_PLAN_OP_COMP_CPU) {
        stage->duration = gw_plan_cost_eval(&codec->enc[device], p->held);
        p->contributions = 1;
        return GW_OK;
    }
    if (p->contributions == 0) {
        return GW_ERR_ARG;
    }
    const int64_t peers = p->contributions == INT64_MAX ? INT64_MAX : p->contributions - 1;
    const int64_t extra = gw_mul_saturated(peers, gw_price_payload(codec, p->held));
    const gw_plan_link decoder = {0, codec->dec_peer_kib};
    stage->duration =
        gw_add_saturated(gw_plan_cost_eval(&codec->dec[device], p->held), gw_price_bytes(&decoder, extra));
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
    int64_t piece = gw_mul_saturated(p->contributions, gw_price_payload(p->codec, part));
    p->whole[where] = p->held;
    p->held = part;
    p->contributions = gw_mul_saturated(p->contributions, ranks);
    return where == SCOPE_FLAT && cluster->nodes > 1
               ? gw_mul_saturated(gw_mul_saturated(piece, cluster->gpus),
                                  (int64_t)(cluster->nodes - 1) * cluster->gpus)
               : gw_mul_saturated(piece, ranks - 1);
}

/* Bytes of a collective over `ranks` through the bottleneck link, and its steps. Changes the payload
 * state. */
static int64_t collective_bytes(payload *p, scope where, act what, int64_t ranks, int64_t *steps)
{
    int64_t part = ceil_div(p->held, ranks);
    int64_t whole = p->held;
    int64_t bytes = p->contributions == 0
                        ? gw_mul_saturated(4, whole)
                        : gw_mul_saturated(p->contributions, gw_price_payload(p->codec, whole));
    *steps = ranks - 1;
    switch (what) {
    case ACT_ALLREDUCE:
        *steps = 2 * (ranks - 1);
        return gw_mul_saturated(2 * (ranks - 1), gw_mul_saturated(4, part));
    case ACT_RS:
        p->whole[where] = whole;
        p->held = part;
        return gw_mul_saturated(ranks - 1, gw_mul_saturated(4, part));
    case ACT_REDUCE:
        p->whole[where] = whole;
        *steps = tree_steps(ranks);
        return bytes;
    case ACT_A2A:
        return all_to_all(p, where, ranks);
    case ACT_GATHER:
        p->whole[where] = whole;
        p->contributions = gw_mul_saturated(p->contributions, ranks);
        *steps = tree_steps(ranks);
        return gw_mul_saturated(ranks - 1, bytes);
    case ACT_ALLGATHERC:
        p->contributions = gw_mul_saturated(p->contributions, ranks);
        return gw_mul_saturated(ranks - 1, bytes);
    case ACT_AG:
        p->held = p->whole[where];
        return gw_mul_saturated(ranks - 1, bytes);
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
        bytes = gw_mul_saturated(bytes, cluster->gpus);
    }
    p->seen_inter |= where == SCOPE_INTER;
    stage->resource = (uint8_t)(on_intra ? GW_PLAN_ON_INTRA : GW_PLAN_ON_INTER);
    stage->queue = (uint8_t)(where == SCOPE_INTER ? 1 : p->seen_inter ? 2 : 0);
    p->on_gpu = 1;
    p->on_host = 1;
    stage->kind = GW_PLAN_SPAN_NETWORK;
    const int is_measured = (cluster->op_set >> op & 1u) != 0;
    stage->duration =
        is_measured ? gw_add_saturated(cluster->ops[op].alpha, gw_price_bytes(&cluster->ops[op], bytes))
                    : gw_add_saturated(gw_price_startup(cluster, link, steps), gw_price_bytes(link, bytes));
    return GW_OK;
}

/* Stages on the CPU belong to its core for what comes before, between or after the network steps. */
static void place_on_cpu(gw_plan_job *job)
{
    uint32_t first = job->stage_count;
    uint32_t last = 0;
    for (uint32_t s = 0; s < job->stage_count; s++) {
        if (job->stages[s].kind == GW_PLAN_SPAN_NETWORK) {
            first = first == job->stage_count ? s : first;
            last = s;
        }
    }
    for (uint32_t s = first; s < job->stage_count; s++) {
        if (job->stages[s].resource == GW_PLAN_ON_CPU) {
            job->stages[s].resource = s < last ? GW_PLAN_ON_CPU_SUM : GW_PLAN_ON_CPU_DECODE;
        }
    }
}

/* Appends the stage of one operation, after the copy that it needs. */
static gw_status price_op(payload *p, uint8_t op, gw_plan_job *job)
{
    const int is_codec = op <= GW_PLAN_OP_DEC_CPU;
    if (op >= GW_PLAN_OP_COUNT) {
        return GW_ERR_ARG;
    }
    if (is_codec) {
        price_copy(p, op == GW_PLAN_OP_COMP_CPU || op == GW_PLAN_OP_DEC_CPU, job);
    }
    gw_plan_stage *stage = &job->stages[job->stage_count++];
    *stage = (gw_plan_stage){0, 0, 0, 0, op};
    return is_codec ? price_codec(p, op, stage) : price_network(p, op, stage);
}

gw_status gw_plan_option_price(const gw_plan_option *option, const gw_plan_codec *codec,
                               const gw_plan_cluster *cluster, int64_t len, gw_plan_job *job)
{
    gw_status status = option == NULL || job == NULL ? GW_ERR_ARG : gw_price_check(codec, cluster);
    if (status != GW_OK) {
        return status;
    }
    if (len < 0 || len > GW_PLAN_TICK_MAX) {
        return len < 0 ? GW_ERR_NEGATIVE : GW_ERR_TICKS;
    }
    if (option->op_count == 0 || option->op_count > GW_PLAN_OPTION_OPS_MAX) {
        return GW_ERR_ARG;
    }
    gw_plan_job priced = {0, 0, {{0, 0, 0, 0, 0}}};
    payload p = {codec, cluster, len, {len, len, len}, 0, 0, 0, 1, 0};
    for (uint32_t i = 0; i < option->op_count && status == GW_OK; i++) {
        status = price_op(&p, option->ops[i], &priced);
    }
    if (status == GW_OK) {
        price_copy(&p, 0, &priced);
    }
    for (uint32_t s = 0; s < priced.stage_count && status == GW_OK; s++) {
        status = priced.stages[s].duration >= GW_PLAN_TICK_MAX ? GW_ERR_TICKS : GW_OK;
    }
    if (status == GW_OK) {
        place_on_cpu(&priced);
        *job = priced;
    }
    return status;
}
