/*
 * plan check PLAN RECORDING with a recording of gradwire's DDP hook: predicted and recorded times of every
 * bucket. Times count from the start of the step, or from the first gradient if the plan's do. Recorded times
 * are medians over the steps.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_hook.h"
#include "plan_memory.h"

/* Times of a bucket in us: its last gradient was ready, it was encoded (-1: unknown), it was done. */
typedef struct bucket_times {
    double ready, encoded, done;
} bucket_times;

typedef struct hook_check {
    const plan_kineto *trace;
    json_t *groups, *gradients;
    size_t count;            /* buckets */
    bucket_times *predicted; /* [count] */
    bucket_times *recorded;  /* [count] */
    size_t steps;            /* with the plan's buckets */
    size_t others;           /* with messages, but not the plan's */
    double step_us, done_us; /* medians: of the whole step, of the end of its last message */
    int from_gradient;       /* times count from the first gradient */
} hook_check;

static double number_at(json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

/* Whether the first encode of a group delays the gradients after it. */
static int encodes_on_gpu(json_t *group)
{
    const char *option = json_string_value(json_object_get(group, "option"));
    const char *device = json_string_value(json_object_get(group, "device"));
    if (option != NULL) {
        return strncmp(option, "comp-gpu", strlen("comp-gpu")) == 0;
    }
    return device == NULL || strcmp(device, "cpu") != 0;
}

/* What the plan says. An encode on the GPU before the first message delays the gradients after it. 0: the
 * file does not say it. */
static int predict(hook_check *x)
{
    double backprop = 0;
    double delay = 0;
    size_t next = 0;
    for (size_t j = 0; j < x->count; j++) {
        json_t *group = json_array_get(x->groups, j);
        json_t *last = json_object_get(group, "last");
        json_t *stages = json_object_get(group, "stages_us");
        int on_gpu = encodes_on_gpu(group);
        bucket_times *t = &x->predicted[j];
        if (!json_is_integer(last) || !json_is_array(stages)) {
            return 0;
        }
        for (; next <= (size_t)json_integer_value(last) && next < json_array_size(x->gradients); next++) {
            backprop += json_number_value(json_object_get(json_array_get(x->gradients, next), "bwd_us"));
        }
        *t = (bucket_times){backprop + delay, -1, backprop + delay};
        for (size_t s = 0; s < json_array_size(stages); s++) {
            json_t *stage = json_array_get(stages, s);
            const char *kind = json_string_value(json_array_get(stage, 0));
            const double end = number_at(stage, 2);
            if (kind != NULL && strcmp(kind, "encode") == 0) {
                t->encoded = end;
                delay += on_gpu ? end - number_at(stage, 1) : 0;
            }
            on_gpu = on_gpu && (kind == NULL || strcmp(kind, "network") != 0);
            t->done = fmax(t->done, end);
        }
    }
    return next == json_array_size(x->gradients);
}

/* The plan's method, or option of a tree, as the hook names it in a recording. */
static const char *label_of(json_t *group)
{
    const char *option = json_string_value(json_object_get(group, "option"));
    const char *method = json_string_value(json_object_get(group, "method"));
    return option != NULL ? option : method != NULL ? method : "";
}

/* The first bucket with the label of bucket j. */
static size_t first_alike(const hook_check *x, size_t j)
{
    size_t first = 0;
    while (strcmp(label_of(json_array_get(x->groups, first)), label_of(json_array_get(x->groups, j))) != 0) {
        first++;
    }
    return first;
}

/* Messages of a step in the order in which they began. Returns their number, 0 if they are not the plan's. */
static size_t step_messages(const hook_check *x, const plan_kineto_step *step,
                            const plan_kineto_collective **messages, int *any)
{
    size_t found = 0;
    int same = 1;
    for (size_t i = 0; i < x->trace->collective_count; i++) {
        const plan_kineto_collective *c = &x->trace->collectives[i];
        if (strcmp(c->name, "message") != 0 || c->start_us < step->start_us || c->start_us >= step->end_us) {
            continue;
        }
        json_t *group = json_array_get(x->groups, found);
        same = same && found < x->count &&
               c->len == (int64_t)json_integer_value(json_object_get(group, "elems")) &&
               strcmp(c->codec, label_of(group)) == 0;
        if (found < x->count) {
            messages[found] = c;
        }
        found++;
    }
    *any = found > 0;
    return same && found == x->count ? found : 0;
}

/* Times of all steps, [bucket * steps_max + step], to medians. */
static void record(hook_check *x)
{
    const size_t most = x->trace->step_count;
    const plan_kineto_collective **messages = plan_alloc(x->count, sizeof *messages);
    double *all = plan_alloc((3 * x->count + 2) * (most + 1), sizeof *all);
    double *lengths = all + 3 * x->count * most;
    double *ends = lengths + most;
    for (size_t s = 0; s < most; s++) {
        const plan_kineto_step *step = &x->trace->steps[s];
        int any;
        if (step_messages(x, step, messages, &any) == 0) {
            x->others += (size_t)any;
            continue;
        }
        const double from =
            x->from_gradient && step->gradient_count > 0 ? step->gradients[0].ready_us : step->start_us;
        double end = 0;
        for (size_t j = 0; j < x->count; j++) {
            double *times = all + 3 * j * most;
            const plan_kineto_collective *c = messages[j];
            times[x->steps] = c->start_us - from;
            times[most + x->steps] = c->encoded_us >= 0 ? c->start_us + c->encoded_us - from : -1;
            times[2 * most + x->steps] = c->start_us + c->duration_us - from;
            end = fmax(end, times[2 * most + x->steps]);
        }
        lengths[x->steps] = step->end_us - from;
        ends[x->steps++] = end;
    }
    for (size_t j = 0; j < x->count && x->steps > 0; j++) {
        double *times = all + 3 * j * most;
        x->recorded[j] = (bucket_times){gw_cli_median(times, x->steps), gw_cli_median(times + most, x->steps),
                                        gw_cli_median(times + 2 * most, x->steps)};
    }
    x->step_us = x->steps > 0 ? gw_cli_median(lengths, x->steps) : NAN;
    x->done_us = x->steps > 0 ? gw_cli_median(ends, x->steps) : NAN;
    free((void *)messages);
    free(all);
}

/* The bucket whose own time, from ready to done, differs most. */
static size_t worst_bucket(const hook_check *x)
{
    size_t worst = 0;
    double most = -1;
    for (size_t j = 0; j < x->count; j++) {
        const double difference = fabs((x->recorded[j].done - x->recorded[j].ready) -
                                       (x->predicted[j].done - x->predicted[j].ready));
        if (difference > most) {
            most = difference;
            worst = j;
        }
    }
    return worst;
}

static json_t *times_json(const bucket_times *t)
{
    json_t *object = json_pack("{s:f,s:f}", "ready_us", t->ready, "done_us", t->done);
    if (t->encoded >= 0) {
        json_object_set_new(object, "encoded_us", json_real(t->encoded));
    }
    return object;
}

static int report_json(const hook_check *x, double makespan_us)
{
    json_t *buckets = json_array();
    for (size_t j = 0; j < x->count; j++) {
        json_t *group = json_array_get(x->groups, j);
        json_array_append_new(buckets, json_pack("{s:s,s:O,s:o,s:o}", "method", label_of(group), "elems",
                                                 json_object_get(group, "elems"), "predicted",
                                                 times_json(&x->predicted[j]), "recorded",
                                                 times_json(&x->recorded[j])));
    }
    return gw_cli_json_print(json_pack(
        "{s:o,s:i,s:i,s:f,s:f,s:o,s:f,s:i}", "buckets", buckets, "steps", (int)x->steps, "other_steps",
        (int)x->others, "predicted_us", makespan_us, "recorded_us", x->done_us, "prediction_error",
        gw_cli_json_real(x->done_us > 0 ? makespan_us / x->done_us - 1 : INFINITY), "step_us", x->step_us,
        "worst_bucket", (int)worst_bucket(x)));
}

/* Paths of options are long: in a table they have the number of the first bucket that is sent so. */
static void print_options(const hook_check *x)
{
    for (size_t j = 0; j < x->count; j++) {
        json_t *group = json_array_get(x->groups, j);
        if (json_object_get(group, "option") != NULL && first_alike(x, j) == j) {
            printf("as %zu: %s\n", j, label_of(group));
        }
    }
}

static void print_label(const hook_check *x, size_t j)
{
    json_t *group = json_array_get(x->groups, j);
    if (json_object_get(group, "option") != NULL) {
        printf("%-6zu as %-15zu ", j, first_alike(x, j));
    } else {
        printf("%-6zu %-18s ", j, label_of(group));
    }
}

static int report_text(const hook_check *x, double makespan_us)
{
    printf("times in ms from the %s, predicted / recorded (median of %zu steps)\n",
           x->from_gradient ? "first gradient" : "start of the step", x->steps);
    printf("%-6s %-18s %10s %19s %19s %19s\n", "bucket", "method", "values", "ready", "encoded", "done");
    for (size_t j = 0; j < x->count; j++) {
        json_t *group = json_array_get(x->groups, j);
        const bucket_times *p = &x->predicted[j];
        const bucket_times *r = &x->recorded[j];
        print_label(x, j);
        printf("%10lld %9.2f / %7.2f ", (long long)json_integer_value(json_object_get(group, "elems")),
               p->ready / 1e3, r->ready / 1e3);
        if (p->encoded >= 0 && r->encoded >= 0) {
            printf("%9.2f / %7.2f ", p->encoded / 1e3, r->encoded / 1e3);
        } else {
            printf("%19s ", "");
        }
        printf("%9.2f / %7.2f\n", p->done / 1e3, r->done / 1e3);
    }
    print_options(x);
    const size_t worst = worst_bucket(x);
    printf("largest difference from ready to done: bucket %zu, predicted %.2f ms, recorded %.2f ms\n", worst,
           (x->predicted[worst].done - x->predicted[worst].ready) / 1e3,
           (x->recorded[worst].done - x->recorded[worst].ready) / 1e3);
    printf(
        "all buckets done: predicted %.2f ms, recorded %.2f ms (prediction %+.1f %%); the step ends %.2f ms "
        "later\n",
        makespan_us / 1e3, x->done_us / 1e3, 100 * (makespan_us / x->done_us - 1),
        (x->step_us - x->done_us) / 1e3);
    return GW_CLI_OK;
}

int plan_hook_check(const plan_file *plan, const plan_kineto *trace, const char *path, int json)
{
    hook_check x;
    memset(&x, 0, sizeof x);
    x.trace = trace;
    x.groups = plan->groups;
    x.gradients = json_object_get(json_object_get(plan->root, "problem"), "gradients");
    x.count = json_array_size(plan->groups);
    x.from_gradient = json_number_value(json_object_get(json_array_get(x.gradients, 0), "bwd_us")) <= 0;
    x.predicted = plan_alloc(x.count, sizeof *x.predicted);
    x.recorded = plan_alloc(x.count, sizeof *x.recorded);
    if (!isfinite(plan->claims.makespan_us) || !predict(&x)) {
        gw_cli_fail(GW_CLI_BAD_DATA, plan->path, "is not a plan of buckets with expected times");
    }
    record(&x);
    if (x.steps == 0) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "no step has the plan's buckets and methods%s",
                    x.others > 0 ? "; it was made with other ones" : "");
    }
    const int code =
        json ? report_json(&x, plan->claims.makespan_us) : report_text(&x, plan->claims.makespan_us);
    free(x.predicted);
    free(x.recorded);
    return code;
}
