/*
 * gradwire table: optimal quantization tables; gradwire thc-design: recommended parameters.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>

#include "cmd.h"
#include "thc_options.h"

static void print_values(const gw_thc_table *table)
{
    for (unsigned z = 0; z < 1u << table->bits; z++) {
        printf("%s%u", z > 0 ? " " : "", table->value[z]);
    }
    printf("\n");
}

int gw_cmd_table(int argc, char **argv)
{
    static const gw_option options[] = {
        {"bits", "B", "Bits per index, 1 to 4", THC_NUMBER(bits, 1, GW_THC_BITS_MAX), .letter = 'b'},
        {"granularity", "G", "Grid steps, 2^B-1 to 255", THC_NUMBER(granularity, 1, GW_THC_GRANULARITY_MAX)},
        {"p", "P", "Share of values clamped, such as 1/32", GW_OTHER(thc_request, p, thc_p_parse)},
        GW_JSON_ROW("Report as JSON"),
        {0},
    };
    static const gw_command_line line = {
        "",          "The quantization table of least variance for a standard normal variable.",
        GW_NO_INPUT, {.options = options},
        {{0}},
    };
    thc_request a = {.bits = 0};
    gw_thc_table table;
    gw_thc_table_cost cost;

    gw_command_line_parse(&line, argc, argv, &a);
    if (a.bits == 0 || a.granularity == 0 || a.p == 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "table needs --bits, --granularity and --p");
    }
    gw_status status = gw_thc_table_solve(a.bits, a.granularity, a.p, &table, &cost, thc_workspace());
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no table of %u bits, granularity %u, p %g: %s", a.bits,
                            a.granularity, a.p, gw_status_message(status));
    }
    if (a.common.json) {
        json_t *o = json_object();
        json_object_set_new(o, "bits", json_integer(a.bits));
        json_object_set_new(o, "granularity", json_integer(a.granularity));
        json_object_set_new(o, "p", json_real(a.p));
        json_object_set_new(o, "table", thc_table_json(&table));
        json_object_set_new(o, "cost", json_real(cost.quantization));
        json_object_set_new(o, "truncation", json_real(cost.truncation));
        json_object_set_new(o, "total", json_real(cost.total));
        json_object_set_new(o, "threshold", json_real(cost.threshold));
        return gw_cli_json_print(o);
    }
    print_values(&table);
    printf("cost %.10f  truncation %.10f  total %.10f  threshold %.7f\n", cost.quantization, cost.truncation,
           cost.total, cost.threshold);
    return GW_CLI_OK;
}

int gw_cmd_thc_design(int argc, char **argv)
{
    static const gw_option options[] = {
        {"bits", "B", "Bits per index, 1 to 4 (default 4)", THC_NUMBER(bits, 1, GW_THC_BITS_MAX),
         .letter = 'b'},
        {"workers", "N", "Workers of the job", THC_NUMBER(workers, 1, GW_THC_WORKERS_MAX), .letter = 'n'},
        {"lane", "W", "Lane width of sums: 8, 16 or 32 (default: by workers)", THC_NUMBER(lane_bits, 8, 32)},
        {"ef", NULL, "With error feedback", GW_FLAG(thc_request, error_feedback)},
        GW_JSON_ROW("Report as JSON"),
        {0},
    };
    static const gw_command_line line = {
        "",          "Recommended THC parameters, with the error and the bytes to expect.",
        GW_NO_INPUT, {.options = options},
        {{0}},
    };
    thc_request a = {.bits = 4};
    gw_thc_design design;

    gw_command_line_parse(&line, argc, argv, &a);
    if (a.workers == 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "thc-design needs --workers");
    }
    const gw_thc_goal goal = {a.bits, a.workers, a.lane_bits, a.error_feedback};
    gw_status status = gw_thc_design_make(&design, &goal, thc_workspace());
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no design for %u workers, %u bits, lanes of %u bits: %s",
                            a.workers, a.bits, a.lane_bits, gw_status_message(status));
    }
    const gw_thc_options *o = &design.options;
    double both = design.up_bits + design.down_bits;
    if (a.common.json) {
        json_t *object = json_object();
        json_object_set_new(object, "workers", json_integer(a.workers));
        json_object_set_new(object, "bits", json_integer(a.bits));
        json_object_set_new(object, "error_feedback", json_boolean(a.error_feedback));
        json_object_set_new(object, "granularity", json_integer(o->table.granularity));
        json_object_set_new(object, "p", json_real(design.p));
        json_object_set_new(object, "threshold", json_real(design.cost.threshold));
        json_object_set_new(object, "lane_bits", json_integer(o->lane_bits));
        json_object_set_new(object, "block", json_integer(1 << o->block_log2));
        json_object_set_new(object, "table", thc_table_json(&o->table));
        json_object_set_new(object, "error_one_worker", json_real(design.error_one));
        json_object_set_new(object, "error_mean", json_real(design.error_mean));
        json_object_set_new(object, "up_bits", json_real(design.up_bits));
        json_object_set_new(object, "down_bits", json_real(design.down_bits));
        json_object_set_new(object, "up_rate_fp32", json_real(design.up_bits / 32));
        json_object_set_new(object, "down_rate_fp32", json_real(design.down_bits / 32));
        json_object_set_new(object, "round_trip_rate_fp32", json_real(both / 64));
        json_object_set_new(object, "round_trip_rate_bf16", json_real(both / 32));
        return gw_cli_json_print(object);
    }
    printf("%u workers, %u bits%s\n", a.workers, a.bits, a.error_feedback ? ", error feedback" : "");
    printf("  granularity %u, p %g (threshold %.6f), lanes of %u bits, blocks of %u\n  table ",
           o->table.granularity, design.p, design.cost.threshold, o->lane_bits, 1u << o->block_log2);
    print_values(&o->table);
    printf("  normalised squared error: %.5f of one worker, %.5f of the mean of %u equal gradients\n",
           design.error_one, design.error_mean, a.workers);
    printf("  bits a value: %.3f up, %.3f down; round trip %.1f %% of fp32, %.1f %% of bf16\n",
           design.up_bits, design.down_bits, 100 * both / 64, 100 * both / 32);
    return GW_CLI_OK;
}
