/*
 * plan explain: for every group or tensor, what happens if it is sent otherwise.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_common.h"
#include "plan_explain.h"

static int explain(const plan_request *a)
{
    static plan_opened o;
    plan_opened_open(&a->of_case, a->common.input, &o);
    plan_case_for_algorithm(&o.c, a->algorithm); /* what alternatives are made of */
    gw_cli_must(plan_opened_prepare(&o));
    const int code = o.c.kind == PLAN_TREE ? plan_explain_tree(a, &o) : plan_explain_fused(a, &o);
    plan_opened_close(&o);
    return code;
}

static const gw_option options[] = {
    {"algorithm", "NAME", "As for plan solve", GW_TEXT(plan_request, algorithm)},
    PLAN_JSON_ROW,
    {0},
};

const plan_verb plan_verb_explain = {
    .name = "explain",
    .summary = "why each group is cut where it is",
    .run = explain,
    .input_min = 1,
    .input_max = 1,
    .takes = "one model or one plan",
    .line = {.usage = "MODEL or PLAN",
             .help = "Says in words why each group is cut where it is.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP, PLAN_LIMIT_GROUP}},
};
