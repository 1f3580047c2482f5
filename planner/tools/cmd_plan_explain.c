/*
 * plan explain: for every group or tensor, what happens if it is sent otherwise.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <string.h>

#include "cli_common.h"
#include "plan_commands.h"
#include "plan_explain.h"

static int parse(plan_explain_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    plan_parser_open(&a->parser, "explain", "MODEL or PLAN",
                     "Says in words why each group is cut where it is.");
    plan_case_args_add(&a->parser, &a->case_args, 0);
    plan_limit_args_add(&a->parser, &a->limit_args);
    const plan_arg algorithm = {"algorithm", "NAME", "As for plan solve", PLAN_ARG_TEXT, &a->algorithm, 0, 0};
    plan_parser_add(&a->parser, &algorithm, 1);
    plan_parser_add_output(&a->parser, NULL);
    return plan_parser_run(&a->parser, argc, argv, &(const plan_parser_files){1, 1, "one model or one plan"});
}

int plan_cmd_explain(int argc, char **argv)
{
    plan_explain_args a;
    plan_opened o;
    int code = parse(&a, argc, argv);
    if (code == GW_CLI_OK) {
        code = plan_opened_open(&a.case_args, a.parser.files[0], &o);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    if (a.algorithm != NULL && strcmp(a.algorithm, "ddp") == 0) {
        plan_case_fp32(&o.c); /* what that algorithm sends, and what alternatives are made of */
    }
    code = plan_opened_prepare(&o);
    if (code == GW_CLI_OK) {
        code = o.c.kind == PLAN_TREE ? plan_explain_tree(&a, &o) : plan_explain_fused(&a, &o);
    }
    plan_opened_close(&o);
    return code;
}
