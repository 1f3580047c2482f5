/*
 * Streaming reader of profiler recordings.
 *
 * The text is inflated piece by piece; a scanner follows strings and brackets just far enough to find the
 * objects of the array "traceEvents", and Jansson parses the few of them that matter. Kernels are kept as
 * text, keyed by their correlation number, and parsed when a gradient needs one.
 *
 * CPU time stamps do not say when a gradient is ready: launches run ahead of the GPU by up to a step. A
 * gradient is ready when the kernel ends whose launch (same thread, NCCL excluded) is the last before its
 * AccumulateGrad starts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_kineto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "../cli_common.h"
#include "text_source.h"

#define READ_SIZE      ((size_t)1 << 17)
#define EVENT_SIZE_MAX ((size_t)16 << 20)
#define DEPTH_MAX      64

typedef struct launch {
    int64_t tid;
    double ts;
    int64_t correlation;
} launch;

typedef struct accumulate {
    int64_t tid;
    double ts;
    int64_t elems;
    char *name;  /* owned; NULL: not recorded */
    int is_hook; /* ts is the time when it was ready */
} accumulate;

typedef struct kernel_text {
    int64_t correlation;
    size_t offset; /* in texts */
    uint32_t size;
    int8_t is_nccl;
} kernel_text;

/* A growing array. */
typedef struct list {
    void *items;
    size_t count, capacity, item_size;
} list;

typedef struct reader {
    const char *path;
    list launches, accumulates, kernels, texts, steps, collectives;
    size_t events;
    int out_of_memory;
} reader;

static void *list_add(list *l, size_t count)
{
    if (l->count + count > l->capacity) {
        size_t capacity = 2 * (l->count + count);
        capacity = capacity < 256 ? 256 : capacity;
        void *grown = realloc(l->items, capacity * l->item_size);
        if (grown == NULL) {
            return NULL;
        }
        l->items = grown;
        l->capacity = capacity;
    }
    void *at = (char *)l->items + l->count * l->item_size;
    l->count += count;
    return at;
}

static const char *find(const char *text, size_t size, const char *what)
{
    return memmem(text, size, what, strlen(what));
}

/* The text after "key": in an object's text, NULL if absent. Quotes inside strings are escaped, so the
 * pattern with both quotes only matches keys and whole string values. */
static const char *value_of(const char *text, size_t size, const char *quoted_key)
{
    const char *end = text + size;
    const char *at = text;
    while ((at = find(at, (size_t)(end - at), quoted_key)) != NULL) {
        at += strlen(quoted_key);
        const char *colon = at;
        while (colon < end && (*colon == ' ' || *colon == '\t' || *colon == '\n' || *colon == '\r')) {
            colon++;
        }
        if (colon < end && *colon == ':') {
            colon++;
            while (colon < end && (*colon == ' ' || *colon == '\t' || *colon == '\n' || *colon == '\r')) {
                colon++;
            }
            return colon;
        }
    }
    return NULL;
}

static int starts(const char *at, const char *end, const char *prefix)
{
    size_t length = strlen(prefix);
    return (size_t)(end - at) >= length && memcmp(at, prefix, length) == 0;
}

static int bad_event(const reader *r, uint64_t offset, const char *why)
{
    return gw_cli_error_at(GW_CLI_BAD_DATA, r->path, offset, "event %zu: %s", r->events, why);
}

static json_t *parse_event(const reader *r, uint64_t offset, const char *text, size_t size)
{
    json_error_t error;
    json_t *event = json_loadb(text, size, 0, &error);
    if (event == NULL) {
        (void)gw_cli_error_at(GW_CLI_BAD_DATA, r->path,
                              offset + (uint64_t)(error.position > 0 ? error.position : 0), "event %zu: %s",
                              r->events, error.text);
    }
    return event;
}

static int times(json_t *event, double *ts, double *duration)
{
    json_t *start = json_object_get(event, "ts");
    json_t *dur = json_object_get(event, "dur");
    *ts = json_is_number(start) ? json_number_value(start) : NAN;
    *duration = json_is_number(dur) ? json_number_value(dur) : dur == NULL ? 0 : NAN;
    /* Beyond 2^53 us (285 years) a double no longer holds every microsecond. */
    return *ts >= 0 && *ts <= 0x1p53 && *duration >= 0 && *duration <= 0x1p53;
}

/* Elements from "Input Dims": [[...], ...]; the first non-empty shape's product, 1 for [[]], -1 if not
 * recorded. */
static int64_t dims_elems(json_t *args)
{
    json_t *dims = json_object_get(args, "Input Dims");
    if (!json_is_array(dims) || json_array_size(dims) == 0) {
        return -1;
    }
    json_t *shape = json_array_get(dims, 0);
    int64_t product = 1;
    size_t i;
    json_t *extent;
    json_array_foreach(shape, i, extent)
    {
        int64_t value = json_is_integer(extent) ? (int64_t)json_integer_value(extent) : -1;
        if (value < 0 || (value > 0 && product > (INT64_C(1) << 50) / value)) {
            return -1;
        }
        product *= value;
    }
    return product;
}

/* Elements of a message; -1: none that a model could have. */
static int64_t elems_of(json_t *elems)
{
    const json_int_t value = json_is_integer(elems) ? json_integer_value(elems) : -1;
    return value <= INT64_C(1) << 50 ? (int64_t)value : -1;
}

static int add_collective(reader *r, json_t *event, double ts, double duration)
{
    json_t *args = json_object_get(event, "args");
    json_t *elems = json_object_get(args, "In msg nelems");
    if (elems_of(elems) < 0) {
        return GW_CLI_OK; /* recorded without NCCL metadata */
    }
    plan_kineto_collective *c = list_add(&r->collectives, 1);
    if (c == NULL) {
        r->out_of_memory = 1;
        return GW_CLI_OK;
    }
    memset(c, 0, sizeof *c);
    const char *name = json_string_value(json_object_get(args, "Collective name"));
    (void)snprintf(c->name, sizeof c->name, "%s", name != NULL ? name : "");
    c->elems = elems_of(elems);
    c->start_us = ts;
    c->duration_us = duration;
    c->group_size = (int64_t)json_integer_value(json_object_get(args, "Group size"));
    return GW_CLI_OK;
}

/* Keeps the text of a kernel; a collective of NCCL is parsed at once. */
static int take_kernel(reader *r, uint64_t offset, const char *text, size_t size)
{
    const char *number = value_of(text, size, "\"correlation\"");
    const char *name = value_of(text, size, "\"name\"");
    size_t rest = name != NULL ? (size_t)(text + size - name) : 0;
    rest = rest > 64 ? 64 : rest;
    kernel_text *kernel = list_add(&r->kernels, 1);
    char *copy = list_add(&r->texts, size);
    if (kernel == NULL || copy == NULL) {
        r->out_of_memory = 1;
        return GW_CLI_OK;
    }
    memcpy(copy, text, size);
    kernel->correlation = number != NULL ? (int64_t)strtoll(number, NULL, 10) : -1;
    kernel->offset = r->texts.count - size;
    kernel->size = (uint32_t)size;
    kernel->is_nccl = name != NULL && (find(name, rest, "nccl") != NULL || find(name, rest, "NCCL") != NULL);
    if (!kernel->is_nccl) {
        return GW_CLI_OK;
    }
    double ts, duration;
    json_t *event = parse_event(r, offset, text, size);
    if (event == NULL) {
        return GW_CLI_BAD_DATA;
    }
    int code = times(event, &ts, &duration)
                   ? add_collective(r, event, ts, duration)
                   : bad_event(r, offset, "ts or dur is missing, negative, too large or no number");
    json_decref(event);
    return code;
}

/* Adds a launch, an AccumulateGrad or a step mark; other names are ignored. */
static void add_event(reader *r, json_t *event, const char *name, double ts, double duration)
{
    json_t *args = json_object_get(event, "args");
    const int64_t tid = (int64_t)json_integer_value(json_object_get(event, "tid"));
    void *added = r;
    if (strcmp(name, "torch::autograd::AccumulateGrad") == 0) {
        accumulate *a = added = list_add(&r->accumulates, 1);
        if (a != NULL) {
            *a = (accumulate){tid, ts, dims_elems(args), NULL, 0};
        }
    } else if (strncmp(name, "ProfilerStep#", 13) == 0) {
        plan_kineto_step *step = added = list_add(&r->steps, 1);
        if (step != NULL) {
            *step = (plan_kineto_step){(int64_t)strtoll(name + 13, NULL, 10), ts, ts + duration, NULL, 0};
        }
    } else if (strstr(name, "Launch") != NULL) {
        json_t *correlation = json_object_get(args, "correlation");
        launch *l = added = list_add(&r->launches, 1);
        if (l != NULL) {
            *l = (launch){tid, ts,
                          json_is_integer(correlation) ? (int64_t)json_integer_value(correlation) : -1};
        }
    }
    r->out_of_memory |= added == NULL;
}

static double number_or(json_t *object, const char *key, double fallback)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : fallback;
}

/* A gradient or a message of the hook. */
static void add_hook_event(reader *r, json_t *event, const char *name, double ts, double duration)
{
    json_t *args = json_object_get(event, "args");
    json_t *elems = json_object_get(args, "elems");
    const char *text = json_string_value(json_object_get(args, "name"));
    const char *codec = json_string_value(json_object_get(args, "codec"));
    if (strcmp(name, "gradient") == 0) {
        accumulate *a = list_add(&r->accumulates, 1);
        if (a != NULL) {
            *a = (accumulate){0, ts, elems_of(elems), text != NULL ? strdup(text) : NULL, 1};
        }
        r->out_of_memory |= a == NULL || (text != NULL && a->name == NULL);
    } else if (strcmp(name, "message") == 0) {
        plan_kineto_collective *c = list_add(&r->collectives, 1);
        r->out_of_memory |= c == NULL;
        if (c != NULL) {
            memset(c, 0, sizeof *c);
            (void)snprintf(c->name, sizeof c->name, "message");
            (void)snprintf(c->codec, sizeof c->codec, "%s", codec != NULL ? codec : "");
            c->elems = elems_of(elems);
            c->start_us = ts;
            c->duration_us = duration;
            c->encoded_us = number_or(args, "encoded_us", -1);
        }
    }
}

static int take_hook_event(reader *r, uint64_t offset, const char *text, size_t size)
{
    json_t *event = parse_event(r, offset, text, size);
    if (event == NULL) {
        return GW_CLI_BAD_DATA;
    }
    int code = GW_CLI_OK;
    double ts, duration;
    const char *name = json_string_value(json_object_get(event, "name"));
    if (name == NULL || !times(event, &ts, &duration)) {
        code = bad_event(r, offset, "name, ts or dur is missing, negative, too large or no number");
    } else {
        add_hook_event(r, event, name, ts, duration);
    }
    json_decref(event);
    return code;
}

/* One object of traceEvents. */
static int take_event(reader *r, uint64_t offset, const char *text, size_t size)
{
    const char *end = text + size;
    r->events++;
    const char *cat = value_of(text, size, "\"cat\"");
    if (cat == NULL) {
        return GW_CLI_OK;
    }
    if (starts(cat, end, "\"kernel\"") || starts(cat, end, "\"Kernel\"")) {
        return take_kernel(r, offset, text, size);
    }
    if (starts(cat, end, "\"gradwire\"")) {
        return take_hook_event(r, offset, text, size);
    }
    /* By category, text that an event of interest contains. */
    const char *needed = starts(cat, end, "\"cuda_runtime\"") || starts(cat, end, "\"Runtime\"") ||
                                 starts(cat, end, "\"cuda_driver\"")
                             ? "Launch"
                         : starts(cat, end, "\"cpu_op\"") || starts(cat, end, "\"Operator\"")
                             ? "torch::autograd::AccumulateGrad"
                         : starts(cat, end, "\"user_annotation\"") ? "ProfilerStep#"
                                                                   : NULL;
    if (needed == NULL || find(text, size, needed) == NULL) {
        return GW_CLI_OK;
    }
    json_t *event = parse_event(r, offset, text, size);
    if (event == NULL) {
        return GW_CLI_BAD_DATA;
    }
    int code = GW_CLI_OK;
    double ts, duration;
    const char *name = json_string_value(json_object_get(event, "name"));
    if (name == NULL || !times(event, &ts, &duration)) {
        code = bad_event(r, offset, "name, ts or dur is missing, negative, too large or no number");
    } else if (strstr(name, needed) != NULL) {
        add_event(r, event, name, ts, duration);
    }
    json_decref(event);
    return code;
}

/* Scanner state: survives buffer ends. */
typedef struct scanner {
    int depth;              /* open brackets */
    char closes[DEPTH_MAX]; /* their closing characters */
    int in_string, escaped;
    int key_matches; /* last string at depth 1 was "traceEvents" */
    int in_events;   /* inside the array, at depth 2 */
    int seen_events, done;
    size_t string_start; /* buffer index */
    size_t event_start;  /* buffer index, valid while depth > 2 in_events */
} scanner;

/* Advances over buffer[from..size); complete events go to take_event(). */
static int scan(reader *r, scanner *s, const char *buffer, size_t from, size_t size, uint64_t base)
{
    for (size_t i = from; i < size; i++) {
        if (s->in_string) {
            if (s->escaped) {
                s->escaped = 0;
                continue;
            }
            /* Jump to the next quote or backslash. */
            while (i < size && buffer[i] != '"' && buffer[i] != '\\') {
                i++;
            }
            if (i == size) {
                break;
            }
            if (buffer[i] == '\\') {
                s->escaped = 1;
            } else {
                s->in_string = 0;
                if (s->depth == 1) {
                    s->key_matches = i - s->string_start == 12 &&
                                     memcmp(buffer + s->string_start, "\"traceEvents", 12) == 0;
                }
            }
            continue;
        }
        char c = buffer[i];
        switch (c) {
        case '"':
            s->in_string = 1;
            s->string_start = i;
            break;
        case '{':
        case '[':
            if (s->done || s->depth == DEPTH_MAX) {
                return gw_cli_error_at(GW_CLI_BAD_DATA, r->path, base + i,
                                       s->done ? "text after the JSON object" : "nested too deeply");
            }
            if (s->depth == 0 && c != '{') {
                return gw_cli_error_at(GW_CLI_BAD_DATA, r->path, base + i,
                                       "a trace is a JSON object, this is an array");
            }
            if (s->depth == 1 && c == '[' && s->key_matches) {
                s->in_events = 1;
                s->seen_events = 1;
            } else if (s->depth == 2 && s->in_events) {
                s->event_start = i;
            }
            s->closes[s->depth++] = c == '{' ? '}' : ']';
            break;
        case '}':
        case ']':
            if (s->depth == 0 || s->closes[s->depth - 1] != c) {
                return gw_cli_error_at(GW_CLI_BAD_DATA, r->path, base + i, "unbalanced \"%c\"", c);
            }
            s->depth--;
            if (s->in_events && s->depth == 2) {
                int code =
                    take_event(r, base + s->event_start, buffer + s->event_start, i + 1 - s->event_start);
                if (code != GW_CLI_OK) {
                    return code;
                }
            } else if (s->depth == 1) {
                s->in_events = 0;
                s->key_matches = 0;
            } else if (s->depth == 0) {
                s->done = 1;
            }
            break;
        default:
            break;
        }
    }
    return GW_CLI_OK;
}

static int read_events(reader *r, text_source *source)
{
    size_t capacity = 2 * READ_SIZE;
    char *buffer = malloc(capacity);
    size_t held = 0;   /* bytes in the buffer */
    uint64_t base = 0; /* offset of buffer[0] in the text */
    scanner s;
    memset(&s, 0, sizeof s);
    int code = buffer != NULL ? GW_CLI_OK : gw_cli_error(GW_CLI_IO, r->path, "out of memory");
    while (code == GW_CLI_OK) {
        size_t got = 0;
        code = text_source_read(source, buffer + held,
                                capacity - held < READ_SIZE ? capacity - held : READ_SIZE, &got);
        if (code == GW_CLI_OK && got == 0) {
            if (!s.done) {
                code = gw_cli_error_at(GW_CLI_BAD_DATA, r->path, base + held, "%s",
                                       base + held == 0 ? "the file is empty"
                                       : s.depth > 0    ? "the JSON text is truncated"
                                                        : "no JSON object");
            } else if (!s.seen_events) {
                code = gw_cli_error(GW_CLI_BAD_DATA, r->path, "has no \"traceEvents\"");
            }
        }
        if (code != GW_CLI_OK || got == 0) {
            break;
        }
        code = scan(r, &s, buffer, held, held + got, base);
        held += got;
        if (r->out_of_memory && code == GW_CLI_OK) {
            code = gw_cli_error(GW_CLI_IO, r->path, "out of memory");
        }
        /* Keep from the start of the open event or string on. */
        size_t keep = s.in_events && s.depth > 2 ? s.event_start : s.in_string ? s.string_start : held;
        if (keep > 0) {
            memmove(buffer, buffer + keep, held - keep);
            base += keep;
            held -= keep;
            s.event_start -= s.in_events && s.depth > 2 ? keep : 0;
            s.string_start -= s.in_string ? keep : 0;
        }
        if (code == GW_CLI_OK && capacity - held < READ_SIZE / 2) {
            char *grown = held < EVENT_SIZE_MAX ? realloc(buffer, 2 * capacity) : NULL;
            if (grown == NULL) {
                code = gw_cli_error_at(GW_CLI_BAD_DATA, r->path, base, "an event is larger than 16 MiB");
            } else {
                buffer = grown;
                capacity *= 2;
            }
        }
    }
    free(buffer);
    return code;
}

static int by_thread_and_time(const void *a, const void *b)
{
    const launch *x = a;
    const launch *y = b;
    return x->tid != y->tid ? (x->tid < y->tid ? -1 : 1) : x->ts < y->ts ? -1 : x->ts > y->ts;
}

static int by_correlation(const void *a, const void *b)
{
    const kernel_text *x = a;
    const kernel_text *y = b;
    return x->correlation < y->correlation ? -1 : x->correlation > y->correlation;
}

static int by_start(const void *a, const void *b)
{
    const plan_kineto_step *x = a;
    const plan_kineto_step *y = b;
    return x->start_us < y->start_us ? -1 : x->start_us > y->start_us;
}

static int accumulate_by_time(const void *a, const void *b)
{
    const accumulate *x = a;
    const accumulate *y = b;
    return x->ts < y->ts ? -1 : x->ts > y->ts;
}

static int collective_by_time(const void *a, const void *b)
{
    const plan_kineto_collective *x = a;
    const plan_kineto_collective *y = b;
    return x->start_us < y->start_us ? -1 : x->start_us > y->start_us;
}

/* End of the last non-NCCL kernel launched before `a` on its thread. */
static int ready_time(const reader *r, const accumulate *a, double *ready)
{
    if (a->is_hook) {
        *ready = a->ts;
        return GW_CLI_OK;
    }
    const launch *launches = r->launches.items;
    size_t low = 0;
    size_t high = r->launches.count;
    launch key = {a->tid, a->ts, 0};
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_thread_and_time(&launches[middle], &key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (size_t i = low; i-- > 0 && launches[i].tid == a->tid;) {
        kernel_text wanted = {launches[i].correlation, 0, 0, 0};
        const kernel_text *kernel =
            r->kernels.count == 0 || launches[i].correlation < 0
                ? NULL
                : bsearch(&wanted, r->kernels.items, r->kernels.count, sizeof wanted, by_correlation);
        if (kernel == NULL || kernel->is_nccl) {
            continue;
        }
        json_error_t error;
        json_t *event = json_loadb((const char *)r->texts.items + kernel->offset, kernel->size, 0, &error);
        double ts, duration;
        int good = event != NULL && times(event, &ts, &duration);
        json_decref(event);
        if (!good) {
            return gw_cli_error(
                GW_CLI_BAD_DATA, r->path,
                "kernel with correlation %lld: ts or dur is missing, negative, too large or no "
                "number",
                (long long)kernel->correlation);
        }
        *ready = ts + duration;
        return GW_CLI_OK;
    }
    return gw_cli_error(GW_CLI_BAD_DATA, r->path,
                        "no kernel was launched before the AccumulateGrad at %.3f us", a->ts);
}

/* Sorts gradients into steps. */
static int make_steps(reader *r, plan_kineto *trace)
{
    if (r->accumulates.count == 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, r->path,
                            "no torch::autograd::AccumulateGrad and no gradient of gradwire's hook: not a "
                            "recording of training");
    }
    if (r->launches.count > 0) { /* qsort must not see NULL */
        qsort(r->launches.items, r->launches.count, sizeof(launch), by_thread_and_time);
    }
    if (r->kernels.count > 0) {
        qsort(r->kernels.items, r->kernels.count, sizeof(kernel_text), by_correlation);
    }
    if (r->collectives.count > 0) {
        qsort(r->collectives.items, r->collectives.count, sizeof(plan_kineto_collective), collective_by_time);
    }
    qsort(r->accumulates.items, r->accumulates.count, sizeof(accumulate), accumulate_by_time);
    if (r->steps.count == 0) {
        plan_kineto_step *all = list_add(&r->steps, 1);
        if (all == NULL) {
            return gw_cli_error(GW_CLI_IO, r->path, "out of memory");
        }
        memset(all, 0, sizeof *all);
        all->number = -1;
        all->start_us = -INFINITY;
        all->end_us = INFINITY;
    }
    qsort(r->steps.items, r->steps.count, sizeof(plan_kineto_step), by_start);
    accumulate *list_of = r->accumulates.items;
    plan_kineto_step *steps = r->steps.items;
    size_t next = 0;
    for (size_t i = 0; i < r->steps.count; i++) {
        while (next < r->accumulates.count && list_of[next].ts < steps[i].start_us) {
            next++;
        }
        size_t first = next;
        while (next < r->accumulates.count && list_of[next].ts < steps[i].end_us) {
            next++;
        }
        steps[i].gradients = calloc(next - first + 1, sizeof *steps[i].gradients);
        if (steps[i].gradients == NULL) {
            return gw_cli_error(GW_CLI_IO, r->path, "out of memory");
        }
        for (size_t a = first; a < next; a++) {
            int code = ready_time(r, &list_of[a], &steps[i].gradients[a - first].ready_us);
            if (code != GW_CLI_OK) {
                return code;
            }
            steps[i].gradients[a - first].elems = list_of[a].elems;
            steps[i].gradients[a - first].name = list_of[a].name;
            steps[i].gradient_count = a - first + 1;
            trace->is_hook |= list_of[a].is_hook;
            list_of[a].name = NULL;
        }
        steps[i].gradient_count = next - first;
    }
    trace->event_count = r->events;
    return GW_CLI_OK;
}

void plan_kineto_free(plan_kineto *trace)
{
    for (size_t i = 0; i < trace->step_count; i++) {
        for (size_t g = 0; g < trace->steps[i].gradient_count; g++) {
            free(trace->steps[i].gradients[g].name);
        }
        free(trace->steps[i].gradients);
    }
    free(trace->steps);
    free(trace->collectives);
    memset(trace, 0, sizeof *trace);
}

int plan_kineto_read(const char *path, uint64_t size_max, plan_kineto *trace)
{
    memset(trace, 0, sizeof *trace);
    reader r;
    memset(&r, 0, sizeof r);
    r.path = path;
    r.launches.item_size = sizeof(launch);
    r.accumulates.item_size = sizeof(accumulate);
    r.kernels.item_size = sizeof(kernel_text);
    r.texts.item_size = 1;
    r.steps.item_size = sizeof(plan_kineto_step);
    r.collectives.item_size = sizeof(plan_kineto_collective);
    text_source source;
    int code = text_source_open(&source, path, size_max);
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_cli_progress_begin("read");
    code = read_events(&r, &source);
    gw_cli_progress_end();
    text_source_close(&source);
    if (code == GW_CLI_OK) {
        code = make_steps(&r, trace);
    }
    trace->steps = r.steps.items;
    trace->step_count = r.steps.count;
    trace->collectives = r.collectives.items;
    trace->collective_count = r.collectives.count;
    for (size_t i = 0; i < r.accumulates.count; i++) {
        free(((accumulate *)r.accumulates.items)[i].name);
    }
    free(r.launches.items);
    free(r.accumulates.items);
    free(r.kernels.items);
    free(r.texts.items);
    if (code != GW_CLI_OK) {
        plan_kineto_free(trace);
    }
    return code;
}
