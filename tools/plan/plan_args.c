/*
 * Command-line options of `gradwire plan`.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_args.h"

#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cli_common.h"
#include "text_source.h"

enum {
    KEY_CASE = 256,
    KEY_CASES,
    KEY_CLUSTER,
    KEY_CODECS,
    KEY_METHODS,
    KEY_DECODE,
    KEY_LEVEL,
    KEY_KIND,
    KEY_LATENCY,
    KEY_PER_KIB,
    KEY_RANKS,
    KEY_CPU,
    KEY_COMP_MAX,
    KEY_GROUP_MAX,
    KEY_ALGORITHM,
    KEY_METHOD,
    KEY_TIME,
    KEY_GAP,
    KEY_CAP,
    KEY_WORK,
    KEY_BUCKET,
    KEY_REPEAT,
    KEY_COUNT,
    KEY_HISTOGRAM,
    KEY_ONLY,
    KEY_AXIS,
    KEY_VALUES,
    KEY_PARAMS,
    KEY_FILTER,
    KEY_FORM,
    KEY_STEP,
    KEY_MAX_SIZE,
    KEY_SVG,
    KEY_CHROME,
    KEY_JSON
};

#define ON(c) (1u << (c))
#define MODELLED                                                                                             \
    (ON(PLAN_CMD_SOLVE) | ON(PLAN_CMD_COMPARE) | ON(PLAN_CMD_EXPLAIN) | ON(PLAN_CMD_SWEEP) |                 \
     ON(PLAN_CMD_EVAL) | ON(PLAN_CMD_VERIFY) | ON(PLAN_CMD_EXPORT))
#define SOLVING                                                                                              \
    (ON(PLAN_CMD_SOLVE) | ON(PLAN_CMD_COMPARE) | ON(PLAN_CMD_EXPLAIN) | ON(PLAN_CMD_SWEEP) |                 \
     ON(PLAN_CMD_EXPORT) | ON(PLAN_CMD_VERIFY))
#define ALL ((1u << PLAN_CMD_COUNT) - 1)

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "The case: what is planned", 1},
    {"case", KEY_CASE, "NAME", 0, "Case of the cases file (default: its first); plan cases lists them", 1},
    {"cases", KEY_CASES, "FILE", 0, "Cases file instead of the built-in one", 1},
    {"codecs", KEY_CODECS, "FILE", 0, "More codecs, or other costs for known ones; may be repeated", 1},
    {"cluster", KEY_CLUSTER, "FILE", 0, "Cluster file: nodes, gpus, intra and inter links", 1},
    {"kind", KEY_KIND, "joint|fusion|tree", 0, "Fuse and choose, only fuse, or choose an option per tensor",
     1},
    {"methods", KEY_METHODS, "LIST", 0, "Codecs allowed, comma separated; fp32 is uncompressed", 1},
    {"latency-us", KEY_LATENCY, "US", 0, "Startup of a collective", 1},
    {"us-per-kib", KEY_PER_KIB, "US", 0, "Time of 1024 bytes through a rank's link", 1},
    {"ranks", KEY_RANKS, "N", 0, "GPUs on the flat network", 1},
    {"decode", KEY_DECODE, "none|serial|parallel", 0,
     "Decodes left out, in order on the GPU after backprop, or free in parallel", 1},
    {"level", KEY_LEVEL, "serial|pipelined|event", 0, "Level at which eval, compare and charts run a plan",
     1},
    {"cpu", KEY_CPU, NULL, 0, "Allow encoding (tree: any step) on the CPU", 1},
    {"comp-max", KEY_COMP_MAX, "N", 0, "Tree: most compressions in one option", 1},
    {"group-mib-max", KEY_GROUP_MAX, "MIB", 0, "Largest fused buffer", 1},
    {NULL, 0, NULL, 0, "Solving", 2},
    {"algorithm", KEY_ALGORITHM, "NAME", 0,
     "auto, labels, fuse-affine, brute, ddp, horovod, cupcake, ... (plan compare "
     "shows all)",
     2},
    {"method", KEY_METHOD, "NAME", 0, "Codec that baselines use for every group (default: the last)", 2},
    {"time-limit-ms", KEY_TIME, "MS", 0, "Stop with a certified gap (default 1000; 0: none)", 2},
    {"gap", KEY_GAP, "PERCENT", 0, "Stop when the gap is proven to be at most this", 2},
    {"label-cap", KEY_CAP, "N", 0, "Labels kept per tensor", 2},
    {"work-limit", KEY_WORK, "N", 0, "Most label extensions: a limit that does not depend on the clock", 2},
    {"repeat", KEY_REPEAT, "N", 0,
     "Solve or read N times and report the median time (default: up to 11 short solves)", 2},
    {"bucket-mib", KEY_BUCKET, "MIB", 0, "Evaluate buckets of this size instead of a plan file", 2},
    {NULL, 0, NULL, 0, "Output", 3},
    {"json", KEY_JSON, NULL, 0, "Print JSON", 3},
    {"output", 'o', "FILE", 0, "Write the plan, table or CSV to FILE", 3},
    {"svg", KEY_SVG, "FILE", 0, "Draw the timeline (compare: of three plans; sweep: the curve)", 3},
    {"chrome", KEY_CHROME, "FILE", 0, "Write the timeline as a Chrome trace for Perfetto", 3},
    {NULL, 0, NULL, 0, "Subcommands", 4},
    {"count", KEY_COUNT, NULL, 0, "options: print the bare number", 4},
    {"histogram", KEY_HISTOGRAM, NULL, 0, "options: count by number of compressions", 4},
    {"only", KEY_ONLY, "LIST", 0, "options: gpu, dense, scatter, one-device", 4},
    {"axis", KEY_AXIS, "bandwidth|nodes|ratio|batch", 0, "sweep: what varies", 4},
    {"values", KEY_VALUES, "A:B:N", 0,
     "sweep: factors (bandwidth, ratio, batch; geometric) or ranks from A to B", 4},
    {"params", KEY_PARAMS, "CSV", 0, "import, check, fit: names and sizes in backprop order", 4},
    {"step", KEY_STEP, "N", 0, "import: the recorded step to use, from 0 (default: the median over steps)",
     4},
    {"max-size", KEY_MAX_SIZE, "SIZE", 0,
     "import, check, fit: largest text that a gzip recording may expand to, with K, M, G (default 1G)", 4},
    {"filter", KEY_FILTER, "TEXT", 0,
     "fit: only benchmarks whose name contains TEXT; A,B,!C: A and B but not C", 4},
    {"form", KEY_FORM, "best|affine|maxlin|hinge|table", 0, "fit: form of the curve", 4},
    {NULL, 0, NULL, 0, NULL, 0},
};

/* Subcommands an option makes sense for; the others refuse it. */
static unsigned commands_of(int key)
{
    switch (key) {
    case KEY_JSON:
        return ALL;
    case 'o':
        return ALL & ~ON(PLAN_CMD_VERIFY);
    case KEY_CASES:
        return MODELLED | ON(PLAN_CMD_CASES);
    case KEY_CASE:
    case KEY_CODECS:
    case KEY_CLUSTER:
    case KEY_METHODS:
    case KEY_LATENCY:
    case KEY_PER_KIB:
    case KEY_RANKS:
    case KEY_DECODE:
    case KEY_KIND:
    case KEY_CPU:
    case KEY_GROUP_MAX:
        return MODELLED;
    case KEY_COMP_MAX:
        return MODELLED | ON(PLAN_CMD_OPTIONS);
    case KEY_LEVEL:
        return MODELLED;
    case KEY_ALGORITHM:
        return ON(PLAN_CMD_SOLVE) | ON(PLAN_CMD_EXPLAIN) | ON(PLAN_CMD_EXPORT);
    case KEY_METHOD:
        return ON(PLAN_CMD_SOLVE) | ON(PLAN_CMD_COMPARE) | ON(PLAN_CMD_EVAL) | ON(PLAN_CMD_EXPORT);
    case KEY_TIME:
    case KEY_GAP:
    case KEY_CAP:
    case KEY_WORK:
        return SOLVING;
    case KEY_REPEAT:
        return ON(PLAN_CMD_SOLVE) | ON(PLAN_CMD_IMPORT);
    case KEY_BUCKET:
        return ON(PLAN_CMD_EVAL);
    case KEY_SVG:
        return ON(PLAN_CMD_COMPARE) | ON(PLAN_CMD_SOLVE) | ON(PLAN_CMD_EVAL) | ON(PLAN_CMD_SWEEP);
    case KEY_CHROME:
        return ON(PLAN_CMD_SOLVE) | ON(PLAN_CMD_EVAL);
    case KEY_COUNT:
    case KEY_HISTOGRAM:
    case KEY_ONLY:
        return ON(PLAN_CMD_OPTIONS);
    case KEY_AXIS:
    case KEY_VALUES:
        return ON(PLAN_CMD_SWEEP);
    case KEY_PARAMS:
    case KEY_MAX_SIZE:
        return ON(PLAN_CMD_IMPORT) | ON(PLAN_CMD_CHECK) | ON(PLAN_CMD_FIT);
    case KEY_STEP:
        return ON(PLAN_CMD_IMPORT);
    case KEY_FILTER:
    case KEY_FORM:
        return ON(PLAN_CMD_FIT);
    default:
        return ALL;
    }
}

typedef struct parse_state {
    plan_args *args;
    plan_command command;
    const char *name;
} parse_state;

static double number(struct argp_state *state, const char *text, double min, double max)
{
    double value = 0;
    if (gw_cli_parse_double(text, min, max, &value) != 0) {
        argp_error(state, "\"%s\" is not a number in %g..%g", text, min, max);
    }
    return value;
}

static int64_t whole(struct argp_state *state, const char *text, uint64_t min, uint64_t max)
{
    uint64_t value = 0;
    if (gw_cli_parse_u64(text, min, max, &value) != 0) {
        argp_error(state, "\"%s\" is not a whole number in %llu..%llu", text, (unsigned long long)min,
                   (unsigned long long)max);
    }
    return (int64_t)value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    parse_state *s = state->input;
    plan_args *a = s->args;
    if ((key == 'o' || key >= 256) && key <= KEY_JSON && (commands_of(key) & ON(s->command)) == 0) {
        argp_error(state, "an option does not apply to plan %s", s->name);
    }
    switch (key) {
    case KEY_CASE:
        a->case_name = arg;
        break;
    case KEY_CASES:
        a->cases_path = arg;
        break;
    case KEY_CLUSTER:
        a->cluster_path = arg;
        break;
    case KEY_CODECS:
        if (a->codec_path_count == PLAN_CODEC_FILES_MAX) {
            argp_error(state, "too many --codecs files");
        }
        a->codec_paths[a->codec_path_count++] = arg;
        break;
    case KEY_METHODS:
        a->methods = arg;
        break;
    case KEY_DECODE:
        a->decode = arg;
        break;
    case KEY_LEVEL:
        a->level = arg;
        break;
    case KEY_KIND:
        a->kind = arg;
        break;
    case KEY_LATENCY:
        a->latency_us = number(state, arg, 0, 1e8);
        break;
    case KEY_PER_KIB:
        a->us_per_kib = number(state, arg, 0, 1e6);
        break;
    case KEY_RANKS:
        a->ranks = whole(state, arg, 1, 65536);
        break;
    case KEY_CPU:
        a->cpu = 1;
        break;
    case KEY_COMP_MAX:
        a->comp_max = whole(state, arg, 0, 12);
        break;
    case KEY_GROUP_MAX:
        a->group_mib_max = number(state, arg, 1e-6, 1e9);
        break;
    case KEY_ALGORITHM:
        a->algorithm = arg;
        break;
    case KEY_METHOD:
        a->method = arg;
        break;
    case KEY_TIME:
        a->time_limit_ms = number(state, arg, 0, 1e9);
        break;
    case KEY_GAP:
        a->gap = number(state, arg, 0, 100);
        break;
    case KEY_CAP:
        a->label_cap = whole(state, arg, 1, 1u << 20);
        break;
    case KEY_WORK:
        a->work_max = whole(state, arg, 1, UINT64_C(1) << 60);
        break;
    case KEY_REPEAT:
        a->repeat = whole(state, arg, 1, 1000000);
        break;
    case KEY_BUCKET:
        a->bucket_mib = number(state, arg, 1e-6, 1e9);
        break;
    case KEY_COUNT:
        a->count_only = 1;
        break;
    case KEY_HISTOGRAM:
        a->histogram = 1;
        break;
    case KEY_ONLY:
        a->options_filter = arg;
        break;
    case KEY_AXIS:
        a->axis = arg;
        break;
    case KEY_VALUES:
        a->values = arg;
        break;
    case KEY_PARAMS:
        a->params = arg;
        break;
    case KEY_MAX_SIZE:
        if (gw_cli_parse_size(arg, &a->max_size) != 0) {
            argp_error(state, "--max-size: '%s' is not a size such as 500M or 2G", arg);
        }
        break;
    case KEY_STEP:
        a->step = whole(state, arg, 0, 1000000);
        break;
    case KEY_FILTER:
        a->filter = arg;
        break;
    case KEY_FORM:
        a->form = arg;
        break;
    case KEY_SVG:
        a->svg = arg;
        break;
    case KEY_CHROME:
        a->chrome = arg;
        break;
    case KEY_JSON:
        a->json = 1;
        break;
    case 'o':
        a->output = arg;
        break;
    case ARGP_KEY_ARG:
        if (a->file_count == PLAN_FILES_MAX) {
            argp_error(state, "too many files");
        }
        a->files[a->file_count++] = arg;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int plan_args_parse(int argc, char **argv, plan_command command, plan_args *args)
{
    static const struct {
        const char *name, *files, *doc;
    } texts[PLAN_CMD_COUNT] = {
        {"solve", "MODEL", "Finds the schedule with the shortest iteration and proves how good it is."},
        {"compare", "MODEL...", "Compares the exact plan with the rules of frameworks and papers."},
        {"explain", "MODEL", "Says in words why each group is cut where it is."},
        {"sweep", "MODEL", "Varies bandwidth, ranks, ratio or batch; finds the break-even bandwidth."},
        {"eval", "MODEL [PLAN]", "Evaluates a plan file, or fixed buckets, at any level."},
        {"fit", "FILE...",
         "Fits cost curves to measurements: CSV elems,us; nccl-tests output; benchmark JSON."},
        {"import", "TRACE", "Turns a profiler recording (Kineto .json[.gz], BytePS) into a model CSV."},
        {"export", "MODEL [PLAN]",
         "Writes PyTorch's bucket_cap_mb_list and checks that it cuts the same groups."},
        {"check", "PLAN TRACE", "Holds a plan's prediction against a recording."},
        {"options", "", "Lists ByteComp's 4341 options."},
        {"verify", "MODEL [PLAN]", "Re-evaluates a plan; for small models compares with all plans."},
        {"cases", "", "Lists the cases of the cases file."},
    };
    memset(args, 0, sizeof *args);
    args->latency_us = args->us_per_kib = args->group_mib_max = args->time_limit_ms = args->gap =
        args->bucket_mib = -1;
    args->ranks = args->comp_max = args->label_cap = args->work_max = args->step = -1;
    args->max_size = TEXT_SOURCE_SIZE_MAX;
    args->repeat = 0; /* solve: as many as 10 ms allow, at most 11; import: one */
    char name[64];
    (void)snprintf(name, sizeof name, "gradwire plan %s", texts[command].name);
    parse_state state = {args, command, texts[command].name};
    const struct argp argp = {options, parse, texts[command].files, texts[command].doc, NULL, NULL, NULL};
    char *saved = argv[0];
    argv[0] = name;
    gw_cli_parse(&argp, argc, argv, 0, &state);
    argv[0] = saved;
    return GW_CLI_OK;
}

static int override_methods(const char *list, plan_case *out)
{
    out->method_count = 0;
    while (*list != '\0') {
        size_t length = strcspn(list, ",");
        if (length == 0 || length >= PLAN_LABEL_SIZE || out->method_count == GW_PLAN_METHODS_MAX) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--methods needs at most 32 names, comma separated");
        }
        char *name = out->method_names[out->method_count];
        memcpy(name, list, length);
        name[length] = '\0';
        for (uint32_t m = 0; m < out->method_count; m++) {
            if (strcmp(out->method_names[m], name) == 0) {
                return gw_cli_error(GW_CLI_USAGE, NULL, "--methods names \"%s\" twice", name);
            }
        }
        out->method_count++;
        list += length + (list[length] == ',');
    }
    return out->method_count > 0 ? GW_CLI_OK : gw_cli_error(GW_CLI_USAGE, NULL, "--methods is empty");
}

static int pick(const char *option, const char *text, const char *const *names, int *index)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            *index = i;
            return GW_CLI_OK;
        }
    }
    return gw_cli_error(GW_CLI_USAGE, NULL, "%s does not know \"%.40s\"", option, text);
}

static int override_case(const plan_args *a, plan_case *c)
{
    static const char *const kinds[] = {"joint", "fusion", "tree", NULL};
    static const char *const levels[] = {"serial", "pipelined", "event", NULL};
    static const char *const decodes[] = {"serial", "parallel", "none", NULL};
    int index = 0;
    int result = GW_CLI_OK;
    if (a->cluster_path != NULL) {
        result = plan_cluster_read(a->cluster_path, &c->cluster);
    }
    if (result == GW_CLI_OK && a->kind != NULL &&
        (result = pick("--kind", a->kind, kinds, &index)) == GW_CLI_OK) {
        c->kind = (plan_kind)index;
        if (a->methods == NULL && c->kind != PLAN_JOINT && c->method_count > 1) {
            /* only fuse, or one codec's tree: the case's own codec is its last method */
            memmove(c->method_names[0], c->method_names[c->method_count - 1], PLAN_LABEL_SIZE);
            c->method_count = 1;
        }
    }
    if (result == GW_CLI_OK && a->level != NULL &&
        (result = pick("--level", a->level, levels, &index)) == GW_CLI_OK) {
        c->level = (gw_plan_level)index;
    }
    if (result == GW_CLI_OK && a->decode != NULL &&
        (result = pick("--decode", a->decode, decodes, &index)) == GW_CLI_OK) {
        c->decode = index == 1 ? GW_PLAN_DECODE_PARALLEL : GW_PLAN_DECODE_SERIAL;
        c->decode_none = index == 2;
    }
    if (result == GW_CLI_OK && a->methods != NULL) {
        result = override_methods(a->methods, c);
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    gw_plan_tick ticks;
    if (a->latency_us >= 0) {
        if (!plan_ticks_from_us(a->latency_us, &ticks)) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--latency-us is too long");
        }
        c->cluster.intra.alpha = ticks;
        c->cluster.inter.alpha = ticks;
    }
    if (a->us_per_kib >= 0) {
        if (!plan_ticks_from_us(a->us_per_kib, &ticks)) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--us-per-kib is too long");
        }
        if (c->cluster.nodes > 1) {
            c->cluster.inter.beta_kib = ticks;
        } else {
            c->cluster.intra.beta_kib = ticks;
            c->cluster.inter.beta_kib = ticks;
        }
    }
    if (a->ranks > 0) {
        c->cluster.nodes = 1;
        c->cluster.gpus = (uint32_t)a->ranks;
    }
    c->cpu |= a->cpu;
    c->comp_max = a->comp_max >= 0 ? (uint32_t)a->comp_max : c->comp_max;
    if (a->group_mib_max > 0) { /* below one element: 1, as 0 would mean no limit */
        c->group_elems_max = (int64_t)fmax(1, a->group_mib_max * (1 << 18));
    }
    return GW_CLI_OK;
}

int plan_args_case(const plan_args *args, plan_library *library, plan_case *out)
{
    int result = plan_library_open(library, args->cases_path);
    if (result != GW_CLI_OK) {
        return result;
    }
    for (int i = 0; i < args->codec_path_count && result == GW_CLI_OK; i++) {
        result = plan_library_add_codecs(library, args->codec_paths[i]);
    }
    if (result == GW_CLI_OK) {
        result = plan_case_find(library, args->case_name, out);
    }
    if (result == GW_CLI_OK) {
        result = override_case(args, out);
    }
    if (result != GW_CLI_OK) {
        plan_library_close(library);
    }
    return result;
}

static int64_t monotonic_us(void *context)
{
    (void)context;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

gw_plan_limits plan_args_limits(const plan_args *args, double default_ms)
{
    gw_plan_limits limits;
    memset(&limits, 0, sizeof limits);
    double ms = args->time_limit_ms >= 0 ? args->time_limit_ms : default_ms;
    if (ms > 0) {
        limits.clock = monotonic_us;
        limits.clock_max = (int64_t)ceil(ms * 1000.0); /* 0 would mean no limit */
    }
    limits.work_max = args->work_max > 0 ? (uint64_t)args->work_max : 0;
    limits.label_cap = args->label_cap > 0 ? (uint32_t)args->label_cap : 0;
    limits.gap_ppm = args->gap > 0 ? (uint32_t)lround(args->gap * 1e4) : 0;
    return limits;
}
