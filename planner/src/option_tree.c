/*
 * ByteComp's decision tree (Figure 7 of the paper in the official repository) as a grammar. c stands for Comp
 * and d for Decomp, each on CPU or GPU wherever it occurs; a second step is fixed by its first (scatter ->
 * all-gather, rooted -> broadcast).
 *
 *   T1   = Comm2 | c Comm2c d                          second intra step, dense in         5 paths
 *   T2   = Comm2c d | d T1                             the same, compressed in            12
 *   T5   = Comm2 T1 | c Comm2c T2                      second inter step, dense in        29
 *   T3   = Allreduce T1 | Comm1 T5                     inter, dense in                    63
 *   T4   = AllgatherC T2 | Comm1c (Comm2c T2 | d T5)   inter, compressed in              152
 *   flat = Allreduce | Comm1 T1 | c (AllgatherC d | Comm1c T2)                            63
 *   hier = Comm1 (T3 | c T4) | c Comm1c (d (T3 | c T4) | T4)                            4278
 *
 * with Comm1 in {reduce-scatter, reduce} and Comm1c in {all-to-all, gather}: 63 + 4278 = 4341 options.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/plan.h"

typedef struct tree_walk {
    gw_plan_option path;
    uint8_t outer_second; /* second step of the outermost first step: flat or intra */
    uint8_t inter_second;
    uint32_t filter;
    uint32_t comp_max;
    gw_plan_option *options;
    uint32_t capacity;
    uint32_t count;
} tree_walk;

static void push(tree_walk *w, gw_plan_op op)
{
    w->path.ops[w->path.op_count++] = (uint8_t)op;
    w->path.comp_count =
        (uint8_t)(w->path.comp_count + (op == GW_PLAN_OP_COMP_GPU || op == GW_PLAN_OP_COMP_CPU));
}

static void pop(tree_walk *w)
{
    uint8_t op = w->path.ops[--w->path.op_count];
    w->path.comp_count =
        (uint8_t)(w->path.comp_count - (op == GW_PLAN_OP_COMP_GPU || op == GW_PLAN_OP_COMP_CPU));
    w->path.ops[w->path.op_count] = 0;
}

static void emit(tree_walk *w)
{
    int on_gpu = 0;
    int on_cpu = 0;
    int rooted = 0;
    for (uint32_t i = 0; i < w->path.op_count; i++) {
        uint8_t op = w->path.ops[i];
        on_gpu |= op == GW_PLAN_OP_COMP_GPU || op == GW_PLAN_OP_DEC_GPU;
        on_cpu |= op == GW_PLAN_OP_COMP_CPU || op == GW_PLAN_OP_DEC_CPU;
        rooted |= op == GW_PLAN_OP_FLAT_REDUCE || op == GW_PLAN_OP_FLAT_GATHER ||
                  op == GW_PLAN_OP_INTRA_REDUCE || op == GW_PLAN_OP_INTRA_GATHER ||
                  op == GW_PLAN_OP_INTER_REDUCE || op == GW_PLAN_OP_INTER_GATHER;
    }
    if (((w->filter & GW_PLAN_OPTIONS_GPU_ONLY) && on_cpu) ||
        ((w->filter & GW_PLAN_OPTIONS_DENSE_ONLY) && w->path.comp_count > 0) ||
        ((w->filter & GW_PLAN_OPTIONS_SCATTER_ONLY) && rooted) ||
        ((w->filter & GW_PLAN_OPTIONS_ONE_DEVICE) && on_gpu && on_cpu) || w->path.comp_count > w->comp_max) {
        return;
    }
    if (w->count < w->capacity) {
        w->options[w->count] = w->path;
    }
    w->count++;
}

/* Runs `rest` after each device's variant of an operation. */
static void on_each_device(tree_walk *w, gw_plan_op gpu_variant, void (*rest)(tree_walk *))
{
    for (int device = 0; device < 2; device++) {
        push(w, (gw_plan_op)((int)gpu_variant + device));
        rest(w);
        pop(w);
    }
}

static void comp(tree_walk *w, void (*rest)(tree_walk *))
{
    on_each_device(w, GW_PLAN_OP_COMP_GPU, rest);
}
static void decomp(tree_walk *w, void (*rest)(tree_walk *))
{
    on_each_device(w, GW_PLAN_OP_DEC_GPU, rest);
}

static void then(tree_walk *w, uint8_t op, void (*rest)(tree_walk *))
{
    push(w, (gw_plan_op)op);
    rest(w);
    pop(w);
}

static void last_decomp(tree_walk *w)
{
    decomp(w, emit);
}
static void second_compressed(tree_walk *w)
{
    then(w, w->outer_second, last_decomp);
}

static void t1(tree_walk *w)
{
    then(w, w->outer_second, emit);
    comp(w, second_compressed);
}

static void t2(tree_walk *w)
{
    second_compressed(w);
    decomp(w, t1);
}

static void inter_second_compressed(tree_walk *w)
{
    then(w, w->inter_second, t2);
}

static void t5(tree_walk *w)
{
    then(w, w->inter_second, t1);
    comp(w, inter_second_compressed);
}

static void t3(tree_walk *w)
{
    then(w, GW_PLAN_OP_INTER_ALLREDUCE, t1);
    w->inter_second = GW_PLAN_OP_INTER_AG;
    then(w, GW_PLAN_OP_INTER_RS, t5);
    w->inter_second = GW_PLAN_OP_INTER_BCAST;
    then(w, GW_PLAN_OP_INTER_REDUCE, t5);
}

static void t4_after_first(tree_walk *w)
{
    inter_second_compressed(w);
    decomp(w, t5);
}

static void t4(tree_walk *w)
{
    then(w, GW_PLAN_OP_INTER_ALLGATHERC, t2);
    w->inter_second = GW_PLAN_OP_INTER_AG;
    then(w, GW_PLAN_OP_INTER_A2A, t4_after_first);
    w->inter_second = GW_PLAN_OP_INTER_BCAST;
    then(w, GW_PLAN_OP_INTER_GATHER, t4_after_first);
}

static void inter_dense(tree_walk *w)
{
    t3(w);
    comp(w, t4);
}

static void hier_after_compressed(tree_walk *w)
{
    decomp(w, inter_dense);
    t4(w);
}

static void hier_compressed(tree_walk *w)
{
    w->outer_second = GW_PLAN_OP_INTRA_AG;
    then(w, GW_PLAN_OP_INTRA_A2A, hier_after_compressed);
    w->outer_second = GW_PLAN_OP_INTRA_BCAST;
    then(w, GW_PLAN_OP_INTRA_GATHER, hier_after_compressed);
}

static void flat_compressed(tree_walk *w)
{
    then(w, GW_PLAN_OP_FLAT_ALLGATHERC, last_decomp);
    w->outer_second = GW_PLAN_OP_FLAT_AG;
    then(w, GW_PLAN_OP_FLAT_A2A, t2);
    w->outer_second = GW_PLAN_OP_FLAT_BCAST;
    then(w, GW_PLAN_OP_FLAT_GATHER, t2);
}

gw_status gw_plan_options_list(uint32_t filter, uint32_t comp_max, gw_plan_option *options, uint32_t capacity,
                               uint32_t *count)
{
    if (count == NULL || (options == NULL && capacity > 0) || (filter & ~15u) != 0) {
        return GW_ERR_ARG;
    }
    tree_walk w = {{0, 0, {0}}, 0, 0, filter, comp_max, options, capacity, 0};
    then(&w, GW_PLAN_OP_FLAT_ALLREDUCE, emit);
    w.outer_second = GW_PLAN_OP_FLAT_AG;
    then(&w, GW_PLAN_OP_FLAT_RS, t1);
    w.outer_second = GW_PLAN_OP_FLAT_BCAST;
    then(&w, GW_PLAN_OP_FLAT_REDUCE, t1);
    comp(&w, flat_compressed);
    w.outer_second = GW_PLAN_OP_INTRA_AG;
    then(&w, GW_PLAN_OP_INTRA_RS, inter_dense);
    w.outer_second = GW_PLAN_OP_INTRA_BCAST;
    then(&w, GW_PLAN_OP_INTRA_REDUCE, inter_dense);
    comp(&w, hier_compressed);
    *count = w.count;
    return capacity > 0 && w.count > capacity ? GW_ERR_DST : GW_OK;
}

const char *gw_plan_op_name(gw_plan_op op)
{
    static const char *const names[GW_PLAN_OP_COUNT] = {
        "comp-gpu",
        "comp-cpu",
        "decomp-gpu",
        "decomp-cpu",
        "flat-allreduce",
        "flat-reduce-scatter",
        "flat-reduce",
        "flat-alltoall",
        "flat-gather",
        "flat-allgather-c",
        "flat-allgather",
        "flat-broadcast",
        "intra-reduce-scatter",
        "intra-reduce",
        "intra-alltoall",
        "intra-gather",
        "intra-allgather",
        "intra-broadcast",
        "inter-allreduce",
        "inter-reduce-scatter",
        "inter-reduce",
        "inter-alltoall",
        "inter-gather",
        "inter-allgather-c",
        "inter-allgather",
        "inter-broadcast",
    };
    return (unsigned)op < GW_PLAN_OP_COUNT ? names[op] : NULL;
}
