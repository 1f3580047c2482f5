/*
 * Command lines of `gradwire plan VERB`: what the verbs take, in one request, and the options that several
 * have.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_OPTIONS_H
#define GW_PLAN_OPTIONS_H

#include "cli_options.h"
#include "gradwire/plan.h"

/* Which case, and what of it is changed. NULL and negative numbers: not given. */
typedef struct plan_case_args {
    const char *case_name, *cases_path, *cluster_path, *methods;
    gw_text_list codec_paths;
    double latency_us, us_per_kib, gbit_per_s, group_mib_max, error_max;
    int64_t ranks, comp_max;
    int cpu, fuse;
    int kind, level, decode; /* indices of plan_kind_names, plan_level_names, plan_decode_names */
} plan_case_args;

/* Limits of the searching solvers; negative: not given. */
typedef struct plan_limit_args {
    double time_limit_ms, gap;
    int64_t label_cap, work_max;
} plan_limit_args;

typedef struct plan_request {
    gw_request common;
    plan_case_args of_case;
    plan_limit_args limits;
    const char *algorithm, *method; /* how groups are found, and how baselines send them; NULL: not given */
    const char *svg, *chrome;       /* charts to write; NULL: none */
    const char *params;             /* names and sizes of a recording's gradients; NULL: not given */
    uint64_t max_size;              /* of the text of a gzip recording */
    int64_t repeat;                 /* 0: not given */
    double bucket_mib;              /* eval; negative: not given */
    int form;                       /* fit: gw_plan_cost_kind; the next number: the best of the first three */
    const char *filter;             /* fit: which benchmarks; NULL: all */
    int64_t step;                   /* import: one step; -1: the median over steps */
    uint32_t option_filter;         /* options: of gw_plan_options_list() */
    int count_only, histogram;      /* options: what is printed */
    int axis;                       /* sweep */
    const char *values;             /* sweep: A:B:N; NULL: not given */
} plan_request;

/* A verb of `gradwire plan`. */
typedef struct plan_verb {
    const char *name;
    const char *summary;
    int (*run)(const plan_request *request); /* returns an exit code */
    int input_min, input_max;                /* how many files it takes; max 0: any number */
    const char *takes;                       /* which, in words */
    gw_command_line line;
} plan_verb;

extern const plan_verb plan_verb_solve, plan_verb_compare, plan_verb_explain, plan_verb_sweep, plan_verb_eval,
    plan_verb_fit, plan_verb_import, plan_verb_export, plan_verb_check, plan_verb_options, plan_verb_verify,
    plan_verb_cases;

/* Options under titles of their own. */
extern const gw_option_group plan_case_group, plan_limit_group;
#define PLAN_CASE_GROUP                                                                                      \
    {                                                                                                        \
        "The case: what is planned", &plan_case_group, NULL                                                  \
    }
#define PLAN_LIMIT_GROUP                                                                                     \
    {                                                                                                        \
        "Limits of the search", &plan_limit_group, NULL                                                      \
    }

#define PLAN_LEVEL_ROW                                                                                       \
    {                                                                                                        \
        "level", "serial|pipelined|event", "Level at which plans and charts are run",                        \
            GW_CHOICE(plan_request, of_case.level, plan_level_names), .wanted = "serial, pipelined or event" \
    }
#define PLAN_ALGORITHM_ROW                                                                                   \
    {                                                                                                        \
        "algorithm", "NAME",                                                                                 \
            "auto, labels, fuse-affine, brute, ddp (in float32), ddp-buckets, horovod, cupcake, ... (plan "  \
            "compare shows all)",                                                                            \
            GW_TEXT(plan_request, algorithm)                                                                 \
    }
#define PLAN_METHOD_ROW                                                                                      \
    {                                                                                                        \
        "method", "NAME", "Codec that baselines but ddp use for every group (default: the last)",            \
            GW_TEXT(plan_request, method)                                                                    \
    }
#define PLAN_COMP_MAX_ROW(help)                                                                              \
    {                                                                                                        \
        "comp-max", "N", help, GW_INTEGER(plan_request, of_case.comp_max, 0, 12)                             \
    }
#define PLAN_CASES_ROW                                                                                       \
    {                                                                                                        \
        "cases", "FILE", "Cases file instead of the built-in one",                                           \
            GW_INPUT(plan_request, of_case.cases_path)                                                       \
    }
#define PLAN_PARAMS_ROW(help)                                                                                \
    {                                                                                                        \
        "params", "CSV", help, GW_INPUT(plan_request, params)                                                \
    }
#define PLAN_MAX_SIZE_ROW                                                                                    \
    {                                                                                                        \
        "max-size", "SIZE", "Largest text that a gzip recording may expand to, with K, M, G (default 1G)",   \
            GW_SIZE(plan_request, max_size)                                                                  \
    }
#define PLAN_REPEAT_ROW(help)                                                                                \
    {                                                                                                        \
        "repeat", "N", help, GW_INTEGER(plan_request, repeat, 1, 1000000)                                    \
    }
#define PLAN_SVG_ROW(help)                                                                                   \
    {                                                                                                        \
        "svg", "FILE", help, GW_OUTPUT(plan_request, svg)                                                    \
    }
#define PLAN_CHROME_ROW                                                                                      \
    {                                                                                                        \
        "chrome", "FILE", "Write the timeline as a Chrome trace for Perfetto",                               \
            GW_OUTPUT(plan_request, chrome)                                                                  \
    }
#define PLAN_JSON_ROW GW_JSON_ROW("Print JSON")

/* Where a verb writes that prints without -o. */
static inline const char *plan_output_path(const plan_request *request)
{
    return request->common.output != NULL ? request->common.output : "-";
}

/* default_ms: the time limit when none was given; 0: none. */
gw_plan_limits plan_limits(const plan_limit_args *args, double default_ms);

#endif
