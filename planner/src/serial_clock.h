/*
 * The serial level by its definition (docs/planning.md): the clocks of a schedule, advanced message by
 * message.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SERIAL_CLOCK_H
#define GW_SERIAL_CLOCK_H

#include "plan_cost.h"

typedef struct gw_serial_clock {
    gw_plan_tick e; /* end of backprop and GPU encoding */
    gw_plan_tick p; /* end of the CPU's encodes */
    gw_plan_tick c; /* end of the network */
    gw_plan_tick w; /* sum of decodes on the GPU */
    gw_plan_tick q; /* max(C_i + decodes from i on) */
    gw_plan_tick f; /* max(C_i + own decode) */
    gw_plan_tick r; /* end of the CPU's decodes */
} gw_serial_clock;

#define GW_SERIAL_CLOCK_ZERO ((gw_serial_clock){0, 0, 0, 0, 0, 0, 0})

static inline void gw_serial_step(gw_serial_clock *clock, gw_plan_tick bwd, const gw_plan_vector *v)
{
    clock->e += bwd + v->gpu;
    gw_plan_tick ready = clock->e;
    if (v->cpu > 0) {
        clock->p = gw_tick_max(clock->p, clock->e) + v->cpu;
        ready = clock->p;
    }
    clock->c = gw_tick_max(clock->c, ready) + v->net;
    clock->w += v->tail;
    clock->q = gw_tick_max(clock->q, clock->c) + v->tail;
    clock->f = gw_tick_max(clock->f, clock->c + v->tail + v->tail_cpu);
    if (v->tail_cpu > 0) {
        clock->r = gw_tick_max(clock->r, clock->c) + v->tail_cpu;
    }
}

static inline gw_plan_tick gw_serial_finish(const gw_serial_clock *clock, gw_plan_decode decode)
{
    return decode == GW_PLAN_DECODE_SERIAL ? gw_tick_max(gw_tick_max(clock->e + clock->w, clock->q), clock->r)
                                           : gw_tick_max(clock->e, clock->f);
}

/* The times of a tensor with one of its choices. */
static inline const gw_plan_vector *gw_tree_vector(const gw_plan_tree *tree, uint32_t tensor, uint32_t choice)
{
    return &tree->vectors[tree->class_first[tree->tensor_class[tensor]] + choice];
}

/* The owner's step between the exchanges of a group; 0 without owners. */
static inline gw_plan_tick gw_method_sum(const gw_plan_method *method, int64_t len)
{
    if (method->owner_count == 0) {
        return 0;
    }
    const int64_t share = len / method->owner_count;
    return gw_cost_at(&method->sum, len - share) +
           gw_cost_at(&method->enc, share + (len % method->owner_count != 0));
}

/* Times of a fused group of `len` elements sent with a method; option is not set. */
static inline void gw_method_vector(const gw_plan_method *method, int64_t len, gw_plan_vector *v)
{
    const gw_plan_tick enc = gw_cost_at(&method->enc, len);
    const gw_plan_tick dec = gw_cost_at(&method->dec, len) + gw_cost_at(&method->dec_more, len);
    const int on_cpu = method->device == GW_PLAN_CPU;
    const gw_plan_tick host = on_cpu ? gw_cost_at(&method->host, len) : 0;
    v->gpu = on_cpu ? 0 : enc;
    v->cpu = on_cpu ? host + enc : 0;
    v->net = gw_cost_at(&method->net, len);
    if (method->owner_count > 0) {
        v->net += gw_method_sum(method, len) + gw_cost_at(&method->gather, len);
    }
    v->tail = on_cpu ? 0 : dec;
    v->tail_cpu = on_cpu ? dec + host : 0;
}

/* One step of the clock for a fused group. */
static inline void gw_serial_group(gw_serial_clock *clock, const gw_plan_method *method, gw_plan_tick bwd,
                                   int64_t len)
{
    gw_plan_vector v;
    gw_method_vector(method, len, &v);
    gw_serial_step(clock, bwd, &v);
}

#endif
