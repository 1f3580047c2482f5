/*
 * Shared inside src/plan: unchecked curve evaluation, the serial clock, workspace carving.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_INTERNAL_H
#define GW_PLAN_INTERNAL_H

#include "gradwire/plan.h"

#define GW_PLAN_BRUTE_MAX (UINT64_C(1) << 22)

static inline gw_plan_tick gw_tick_max(gw_plan_tick a, gw_plan_tick b)
{
    return a > b ? a : b;
}
static inline gw_plan_tick gw_tick_min(gw_plan_tick a, gw_plan_tick b)
{
    return a < b ? a : b;
}

/* Slow path of gw_cost_at(): the table. */
gw_plan_tick gw_cost_table_at(const gw_plan_cost *cost, int64_t elems);

/* Curve value without overflow checks: gw_plan_problem_check() has bounded a + b * (sum of all elements). */
static inline gw_plan_tick gw_cost_at(const gw_plan_cost *cost, int64_t elems)
{
    switch (cost->kind) {
    case GW_PLAN_COST_AFFINE:
        return cost->a + cost->b * elems;
    case GW_PLAN_COST_MAXLIN:
        return gw_tick_max(cost->a, cost->b * elems);
    case GW_PLAN_COST_HINGE:
        return cost->a + (elems > cost->t ? cost->b * (elems - cost->t) : 0);
    case GW_PLAN_COST_TABLE:
    default:
        return gw_cost_table_at(cost, elems);
    }
}

/* 1 when the curve is 0 everywhere. */
int gw_cost_is_zero(const gw_plan_cost *cost);

/* Everything gw_plan_problem_check() does but the comparison of names. */
gw_plan_status gw_problem_check_numbers(const gw_plan_problem *problem, gw_plan_fault *fault);

/*
 * The serial level by its definition (docs/planning.md): E end of backprop and GPU encoding, P end of the CPU
 * queue, C end of the network, W sum of decodes, Q = max(C_i + decodes from i on), F = max(C_i + own decode).
 */
typedef struct gw_serial_clock {
    gw_plan_tick e, p, c, w, q, f;
} gw_serial_clock;

static inline void gw_serial_step(gw_serial_clock *clock, gw_plan_tick bwd, gw_plan_tick gpu,
                                  gw_plan_tick cpu, gw_plan_tick net, gw_plan_tick tail)
{
    clock->e += bwd + gpu;
    gw_plan_tick ready = clock->e;
    if (cpu > 0) {
        clock->p = gw_tick_max(clock->p, clock->e) + cpu;
        ready = clock->p;
    }
    clock->c = gw_tick_max(clock->c, ready) + net;
    clock->w += tail;
    clock->q = gw_tick_max(clock->q, clock->c) + tail;
    clock->f = gw_tick_max(clock->f, clock->c + tail);
}

static inline gw_plan_tick gw_serial_finish(const gw_serial_clock *clock, gw_plan_decode decode)
{
    return decode == GW_PLAN_DECODE_SERIAL ? gw_tick_max(clock->e + clock->w, clock->q)
                                           : gw_tick_max(clock->e, clock->f);
}

/* One step of the clock for a fused group of `elems` elements. */
static inline void gw_serial_group(gw_serial_clock *clock, const gw_plan_method *method, gw_plan_tick bwd,
                                   int64_t elems)
{
    gw_plan_tick enc = gw_cost_at(&method->enc, elems);
    int on_cpu = method->enc_device == GW_PLAN_CPU;
    gw_serial_step(clock, bwd, on_cpu ? 0 : enc, on_cpu ? enc : 0, gw_cost_at(&method->net, elems),
                   gw_cost_at(&method->dec, elems));
}

/* A stack of arrays inside the caller's workspace, each aligned to 8 bytes. */
typedef struct gw_arena {
    unsigned char *base;
    size_t size;
    size_t used;
} gw_arena;

static inline int gw_arena_open(gw_arena *arena, void *workspace, size_t size)
{
    arena->base = (unsigned char *)workspace;
    arena->size = size;
    arena->used = 0;
    return workspace != NULL && ((uintptr_t)workspace & 7u) == 0;
}

/* count * item bytes, or NULL when they do not fit. */
static inline void *gw_arena_take(gw_arena *arena, size_t count, size_t item)
{
    if (item != 0 && count > (SIZE_MAX - 7u) / item) {
        return NULL;
    }
    size_t size = (count * item + 7u) & ~(size_t)7u;
    if (size > arena->size - arena->used) {
        return NULL;
    }
    void *taken = arena->base + arena->used;
    arena->used += size;
    return taken;
}

/* The two in-order timelines; jobs have been checked. Returns the makespan. */
gw_plan_tick gw_timeline_in_order(int pipelined, gw_plan_decode decode, const gw_plan_job *jobs,
                                  uint32_t job_count, gw_plan_span *spans, size_t span_capacity,
                                  size_t *span_count);

/* ---- solvers behind gw_plan_solve(); the problem has been checked ---- */

int gw_fuse_affine_applies(const gw_plan_problem *problem, int net_may_bend);
size_t gw_fuse_affine_workspace(uint32_t tensor_count);
gw_plan_status gw_fuse_affine(const gw_plan_problem *problem, int quadratic, gw_arena *arena, gw_plan *plan,
                              gw_plan_cert *cert);

size_t gw_label_workspace(uint32_t tensor_count, uint32_t vector_count_max);
gw_plan_status gw_label_fuse(const gw_plan_problem *problem, const gw_plan_limits *limits, gw_arena *arena,
                             gw_plan *plan, gw_plan_cert *cert);
/* Lower bound of the optimum from the relaxations alone; 0 when the workspace is too small. */
gw_plan_tick gw_label_root_bound(const gw_plan_problem *problem, gw_plan_tick ub, gw_arena *arena);

gw_plan_status gw_brute_fuse(const gw_plan_problem *problem, gw_plan *plan, gw_plan_cert *cert);

/* Baselines fill plan. gw_bucket_fill() is gw_plan_bucket() without its checks. */
gw_plan_status gw_bucket_fill(const gw_plan_problem *problem, uint32_t method, int64_t first_cap_elems,
                              int64_t cap_elems, int fill, gw_plan *plan);
gw_plan_status gw_even_split(const gw_plan_problem *problem, uint32_t method, uint32_t group_count,
                             gw_plan *plan);
gw_plan_status gw_baseline_best_even(const gw_plan_problem *problem, uint32_t method, gw_plan *plan);
gw_plan_status gw_baseline_bucket_sweep(const gw_plan_problem *problem, uint32_t method, gw_plan *plan);
gw_plan_status gw_mgwfbp(const gw_plan_problem *problem, uint32_t method, gw_plan *plan);
gw_plan_status gw_mergecomp(const gw_plan_problem *problem, uint32_t method, uint32_t group_count_max,
                            gw_arena *arena, gw_plan *plan, gw_plan_cert *cert);
size_t gw_cupcake_workspace(uint32_t tensor_count);
gw_plan_status gw_cupcake(const gw_plan_problem *problem, uint32_t method, int literal_empty,
                          const gw_plan_limits *limits, gw_arena *arena, gw_plan *plan, gw_plan_cert *cert);

#endif
