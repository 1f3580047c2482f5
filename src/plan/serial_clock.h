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
    gw_plan_tick p; /* end of the CPU queue */
    gw_plan_tick c; /* end of the network */
    gw_plan_tick w; /* sum of decodes */
    gw_plan_tick q; /* max(C_i + decodes from i on) */
    gw_plan_tick f; /* max(C_i + own decode) */
} gw_serial_clock;

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
    clock->f = gw_tick_max(clock->f, clock->c + v->tail);
}

static inline gw_plan_tick gw_serial_finish(const gw_serial_clock *clock, gw_plan_decode decode)
{
    return decode == GW_PLAN_DECODE_SERIAL ? gw_tick_max(clock->e + clock->w, clock->q)
                                           : gw_tick_max(clock->e, clock->f);
}

/* Times of a fused group of `elems` elements sent with a method; option is not set. */
static inline void gw_method_vector(const gw_plan_method *method, int64_t elems, gw_plan_vector *v)
{
    gw_plan_tick enc = gw_cost_at(&method->enc, elems);
    v->gpu = method->enc_device == GW_PLAN_GPU ? enc : 0;
    v->cpu = method->enc_device == GW_PLAN_GPU ? 0 : enc;
    v->net = gw_cost_at(&method->net, elems);
    v->tail = gw_cost_at(&method->dec, elems);
}

/* One step of the clock for a fused group. */
static inline void gw_serial_group(gw_serial_clock *clock, const gw_plan_method *method, gw_plan_tick bwd,
                                   int64_t elems)
{
    gw_plan_vector v;
    gw_method_vector(method, elems, &v);
    gw_serial_step(clock, bwd, &v);
}

#endif
