/*
 * Options that several verbs of `gradwire plan` have.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_options.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "plan_case.h"

static const gw_option case_options[] = {
    {"case", "NAME", "Case of the cases file (default: its first); plan cases lists them",
     GW_TEXT(plan_request, of_case.case_name)},
    PLAN_CASES_ROW,
    {"codecs", "FILE", "More codecs, or other costs for known ones; may be repeated",
     GW_INPUTS_OF(plan_request, of_case.codec_paths)},
    {"cluster", "FILE", "Cluster file: nodes, gpus, intra and inter links",
     GW_INPUT(plan_request, of_case.cluster_path)},
    {"kind", "joint|fusion|tree", "Fuse and choose, only fuse, or choose an option per tensor",
     GW_CHOICE(plan_request, of_case.kind, plan_kind_names), .wanted = "joint, fusion or tree"},
    {"methods", "LIST", "Codecs allowed, comma separated; fp32 is uncompressed",
     GW_TEXT(plan_request, of_case.methods)},
    {"latency-us", "US", "Startup of a collective", GW_REAL(plan_request, of_case.latency_us, 0, 1e8)},
    {"us-per-kib", "US", "Time of 1024 bytes through a rank's link",
     GW_REAL(plan_request, of_case.us_per_kib, 0, 1e6)},
    {"gbit-per-s", "RATE", "The same as a rate in Gb/s: 8.192 / RATE us",
     GW_REAL(plan_request, of_case.gbit_per_s, 1e-6, 1e9)},
    {"ranks", "N", "GPUs on the flat network", GW_INTEGER(plan_request, of_case.ranks, 1, 65536)},
    {"decode", "none|serial|parallel",
     "Decodes left out, in order on the GPU after backprop, or free in parallel",
     GW_CHOICE(plan_request, of_case.decode, plan_decode_names), .wanted = "none, serial or parallel"},
    {"cpu", NULL, "Allow encoding (tree: any step) on the CPU", GW_FLAG(plan_request, of_case.cpu)},
    PLAN_COMP_MAX_ROW("Tree: most compressions in one option"),
    {"fuse", NULL, "Tree: fuse neighbours before an option is chosen for each group",
     GW_FLAG(plan_request, of_case.fuse)},
    {"group-mib-max", "MIB", "Largest fused buffer", GW_REAL(plan_request, of_case.group_mib_max, 1e-6, 1e9)},
    {"error-max", "E", "Bound of the codecs' \"error\", mean over all values",
     GW_REAL(plan_request, of_case.error_max, 1e-9, 0x1p20)},
    {0},
};
const gw_option_group plan_case_group = {.options = case_options};

static const gw_option limit_options[] = {
    {"time-limit-ms", "MS", "Stop with a certified gap (default 1000, sweep 200; 0: none)",
     GW_REAL(plan_request, limits.time_limit_ms, 0, 1e9)},
    {"gap", "PERCENT", "Stop when the gap is proven to be at most this",
     GW_REAL(plan_request, limits.gap, 0, 100)},
    {"label-cap", "N", "Labels kept per tensor", GW_INTEGER(plan_request, limits.label_cap, 1, 1 << 20)},
    {"work-limit", "N", "Most label extensions: a limit that does not depend on the clock",
     GW_INTEGER(plan_request, limits.work_max, 1, UINT64_C(1) << 60)},
    {0},
};
const gw_option_group plan_limit_group = {.options = limit_options};

static int64_t monotonic_us(void *context)
{
    (void)context;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

gw_plan_limits plan_limits(const plan_limit_args *args, double default_ms)
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
