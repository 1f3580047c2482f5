/*
 * A model from a recording of the hook.
 *
 * Steps record the same gradients, but not always in one order: two that are ready within microseconds of
 * each other change places. So they are matched by name.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_hook.h"

#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_memory.h"

typedef struct hook_gradient {
    const plan_kineto_gradient *gradient;
    double ready_us; /* median */
    size_t index;
} hook_gradient;

static int by_ready(const void *a, const void *b)
{
    const hook_gradient *x = a;
    const hook_gradient *y = b;
    return x->ready_us != y->ready_us ? (x->ready_us < y->ready_us ? -1 : 1)
                                      : (x->index > y->index) - (x->index < y->index);
}

/* The gradient of that name; most often the one in that place. NULL: none. */
static const plan_kineto_gradient *find_gradient(const plan_kineto_step *step, const char *name, size_t place)
{
    for (size_t i = 0; i < step->gradient_count; i++) {
        const plan_kineto_gradient *g = &step->gradients[(place + i) % step->gradient_count];
        if (g->name != NULL && strcmp(g->name, name) == 0) {
            return g;
        }
    }
    return NULL;
}

/* Medians of all gradients; 0 when one has no name, or a step lacks one. */
static int medians(const plan_kineto *trace, size_t count, int64_t only, hook_gradient *out, double *scratch)
{
    const plan_kineto_step *like = NULL;
    for (size_t s = 0; s < trace->step_count && like == NULL; s++) {
        like = trace->steps[s].gradient_count == count ? &trace->steps[s] : NULL;
    }
    for (size_t i = 0; like != NULL && i < count; i++) {
        const plan_kineto_gradient *g = &like->gradients[i];
        size_t used = 0;
        int64_t full = 0;
        for (size_t s = 0; s < trace->step_count && g->name != NULL; s++) {
            const plan_kineto_step *step = &trace->steps[s];
            if (step->gradient_count != count || (full++ != only && only >= 0)) {
                continue;
            }
            const plan_kineto_gradient *same = find_gradient(step, g->name, i);
            if (same == NULL || same->len != g->len) {
                return 0;
            }
            scratch[used++] = same->ready_us - step->start_us;
        }
        if (used == 0 || g->len < 0) {
            return 0;
        }
        out[i] = (hook_gradient){g, gw_cli_median(scratch, used), i};
    }
    return like != NULL;
}

void plan_hook_model(const plan_kineto *trace, const char *path, size_t count, int64_t only,
                     plan_model *model)
{
    hook_gradient *gradients = plan_alloc(count, sizeof *gradients);
    double *scratch = plan_alloc(trace->step_count, sizeof *scratch);
    if (!medians(trace, count, only, gradients, scratch)) {
        gw_cli_fail(GW_CLI_BAD_DATA, path,
                    "the steps do not have the same gradients with name and size, or are not within "
                    "ProfilerStep events");
    }
    qsort(gradients, count, sizeof *gradients, by_ready);
    double before = 0;
    for (size_t i = 0; i < count; i++) {
        gw_plan_tick bwd = 0;
        if (!plan_ticks_from_us(gradients[i].ready_us - before, &bwd)) {
            gw_cli_fail(GW_CLI_BAD_DATA, path, "gradient %zu has no time within its step", i);
        }
        plan_model_add(model, gradients[i].gradient->name, gradients[i].gradient->len, bwd, 0);
        before = gradients[i].ready_us;
    }
    free(gradients);
    free(scratch);
    gw_cli_must(plan_model_finish(path, model, GW_CLI_OK));
}
