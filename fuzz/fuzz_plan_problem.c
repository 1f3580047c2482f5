/*
 * Planner core on arbitrary problems: what gw_plan_problem_check() refuses every
 * solver refuses with the same status; what it accepts is solved, and evaluator and brute force confirm the
 * result.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "gradwire/plan.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 7, METHODS_MAX = 3, TABLE_MAX = 3, CURVES = 7 };

typedef struct storage {
    gw_plan_tensor tensors[TENSORS_MAX];
    gw_plan_method methods[METHODS_MAX];
    int64_t table_x[METHODS_MAX][CURVES][TABLE_MAX];
    gw_plan_tick table_y[METHODS_MAX][CURVES][TABLE_MAX];
} storage;

/* Mostly small numbers with ties, now and then any 64 bits. */
static int64_t number(gw_fuzz_reader *reader)
{
    const uint8_t kind = gw_fuzz_u8(reader);
    if (kind == 255) {
        const uint64_t high = gw_fuzz_u32(reader);
        return (int64_t)(high << 32 | gw_fuzz_u32(reader));
    }
    return kind < 128 ? kind & 7 : (int64_t)gw_fuzz_u32(reader) << (kind & 15);
}

static gw_plan_cost curve(gw_fuzz_reader *reader, int64_t *x, gw_plan_tick *y)
{
    const uint8_t kind = gw_fuzz_u8(reader);
    gw_plan_cost cost = {(gw_plan_cost_kind)(kind & 7), number(reader), number(reader), 0, 0, NULL, NULL};
    if (cost.kind == GW_PLAN_COST_HINGE) {
        cost.t = number(reader);
    } else if (cost.kind == GW_PLAN_COST_TABLE) {
        cost.table_len = (kind >> 3) % (TABLE_MAX + 1);
        for (uint32_t i = 0; i < cost.table_len; i++) {
            x[i] = number(reader) + (i > 0 ? x[i - 1] & 0xffff : 0);
            y[i] = number(reader) + (i > 0 ? y[i - 1] & 0xffff : 0);
        }
        cost.table_x = x;
        cost.table_y = y;
    }
    return cost;
}

static void solve(const gw_plan_problem *problem, gw_status expected, gw_plan_algorithm algorithm,
                  size_t size, gw_plan_cert *cert)
{
    gw_plan_group groups[TENSORS_MAX];
    gw_plan plan = {groups, TENSORS_MAX, 0};
    const gw_workspace workspace = {malloc(size + 8), size};
    const gw_plan_solver solver = {.algorithm = algorithm};
    const gw_status status = gw_plan_solve(problem, &solver, &plan, cert, &workspace);
    if (expected != GW_OK) {
        FUZZ_CHECK(status == expected);
    }
    if (status == GW_OK) {
        gw_plan_tick makespan = -1;
        FUZZ_CHECK(gw_plan_eval(problem, &plan, &makespan) == GW_OK);
        FUZZ_CHECK(makespan == cert->makespan && cert->lower_bound <= makespan);
        FUZZ_CHECK(cert->proven == (cert->lower_bound == makespan));
    } else {
        cert->makespan = -1;
    }
    free(workspace.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    storage s;
    memset(&s, 0, sizeof s);
    const uint8_t shape = gw_fuzz_u8(&reader);
    gw_plan_problem problem = {s.tensors,
                               shape % (TENSORS_MAX + 1),
                               s.methods,
                               1u + (shape >> 4) % METHODS_MAX,
                               (gw_plan_decode)(shape >> 6 & 1),
                               0,
                               0};
    problem.group_len_max = (shape & 128) != 0 ? number(&reader) : 0;
    for (uint32_t m = 0; m < problem.method_count; m++) {
        s.methods[m].enc = curve(&reader, s.table_x[m][0], s.table_y[m][0]);
        s.methods[m].net = curve(&reader, s.table_x[m][1], s.table_y[m][1]);
        s.methods[m].dec = curve(&reader, s.table_x[m][2], s.table_y[m][2]);
        const uint8_t extras = gw_fuzz_u8(&reader);
        s.methods[m].device = (gw_plan_device)(extras & 1);
        if ((extras & 2) != 0) {
            s.methods[m].host = curve(&reader, s.table_x[m][3], s.table_y[m][3]);
            s.methods[m].dec_more = curve(&reader, s.table_x[m][4], s.table_y[m][4]);
        }
        if ((extras & 4) != 0) {
            s.methods[m].owner_count = gw_fuzz_u8(&reader);
            s.methods[m].sum = curve(&reader, s.table_x[m][5], s.table_y[m][5]);
            s.methods[m].gather = curve(&reader, s.table_x[m][6], s.table_y[m][6]);
        }
        if ((extras & 8) != 0) {
            s.methods[m].error = number(&reader);
            problem.error_max = number(&reader);
        }
    }
    for (uint32_t i = 0; i < problem.tensor_count; i++) {
        s.tensors[i].len = number(&reader);
        s.tensors[i].bwd = number(&reader);
        s.tensors[i].forbidden = gw_fuzz_u8(&reader) & 3;
    }
    gw_plan_fault fault;
    const gw_status checked = gw_plan_problem_check(&problem, &fault);
    gw_plan_cert best, labels, brute;
    solve(&problem, checked, GW_PLAN_AUTO, gw_plan_workspace_size(&problem, GW_PLAN_AUTO), &best);
    solve(&problem, checked, GW_PLAN_LABELS, gw_plan_workspace_size(&problem, GW_PLAN_LABELS), &labels);
    solve(&problem, checked, GW_PLAN_BRUTE, gw_plan_workspace_size(&problem, GW_PLAN_BRUTE), &brute);
    if (checked == GW_OK && brute.makespan >= 0) {
        FUZZ_CHECK(best.makespan >= 0 && labels.makespan >= 0);
        FUZZ_CHECK(best.lower_bound <= brute.makespan && labels.lower_bound <= brute.makespan);
        FUZZ_CHECK(!best.proven || best.makespan == brute.makespan);
        FUZZ_CHECK(!labels.proven || labels.makespan == brute.makespan);
        FUZZ_CHECK(best.proven); /* nothing limits a search as small as this */
    }
    for (int a = GW_PLAN_LAYERWISE; a < GW_PLAN_ALGORITHM_COUNT; a++) {
        gw_plan_cert cert;
        const gw_plan_algorithm algorithm = (gw_plan_algorithm)a;
        solve(&problem, checked, algorithm, gw_plan_workspace_size(&problem, algorithm), &cert);
        FUZZ_CHECK(cert.makespan < 0 || brute.makespan < 0 || cert.makespan >= brute.makespan);
    }
    return 0;
}
