/*
 * plan export: a plan as PyTorch's bucket_cap_mb_list.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_opened.h"

/*
 * PyTorch's rule (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size): parameters in
 * the order the reducer sees them, a bucket closes when its bytes reach its limit; the next limit of the list
 * follows, the last repeats. A list entry in MB of 2^20 bytes reproduces a group when the group without its
 * last tensor is smaller and the whole group is not: any limit in (bytes - last tensor, bytes]; its middle is
 * used.
 */
int plan_cmd_export(const plan_args *args)
{
    if (args->file_count != 1 && args->file_count != 2) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan export takes a model and, if wanted, a plan");
    }
    plan_opened o;
    int code = plan_opened_open(args, 1, &o);
    if (code != GW_CLI_OK) {
        return code;
    }
    gw_plan_group *groups = NULL;
    uint32_t count = 0;
    if (o.c.kind == PLAN_TREE) {
        code = gw_cli_error(GW_CLI_USAGE, NULL, "option trees do not fuse; there are no buckets to export");
    } else if (args->file_count == 2) {
        double claimed;
        code = plan_opened_groups(args, &o, &groups, &count, &claimed);
    } else {
        plan_result result;
        gw_plan_limits limits = plan_args_limits(args, 1000);
        code = plan_run(&o.library, &o.c, &o.model, args->files[0],
                        args->algorithm != NULL ? args->algorithm : "auto", args->method, &limits, &result);
        if (code == GW_CLI_OK) {
            groups = result.fused;
            count = result.group_count;
            result.fused = NULL;
            plan_result_free(&result);
        }
    }
    if (code == GW_CLI_OK) {
        double *caps = calloc(count, sizeof *caps);
        int64_t *bytes = calloc(count, sizeof *bytes);
        json_t *list = json_array();
        for (uint32_t j = 0; caps != NULL && bytes != NULL && j < count; j++) {
            for (uint32_t i = groups[j].first; i < groups[j].first + groups[j].tensor_count; i++) {
                bytes[j] += 4 * o.model.tensors[i].elems;
            }
            /* Half the last tensor below the group's bytes, on a grid of 1e-6 MB (about a byte): survives
             * printing. */
            int64_t last = 4 * o.model.tensors[groups[j].first + groups[j].tensor_count - 1].elems;
            caps[j] = round((double)(bytes[j] - last / 2) / 1048576.0 * 1e6) / 1e6;
            json_array_append_new(list, json_real(caps[j]));
        }
        /* Cut again by PyTorch's rule and compare. */
        uint32_t bucket = 0;
        uint32_t first = 0;
        int64_t held = 0;
        const char *why = caps == NULL || bytes == NULL ? "memory is short" : NULL;
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < o.model.count && why == NULL; i++) {
            held += 4 * o.model.tensors[i].elems;
            int64_t limit = (int64_t)(caps[bucket < count ? bucket : count - 1] * 1048576.0);
            if (held >= limit || i + 1 == o.model.count) {
                if (bucket >= count || groups[bucket].first != first ||
                    groups[bucket].tensor_count != i + 1 - first) {
                    why = "a tensor without elements at a cut, or equal sums, would move a boundary";
                    wrong = bucket;
                }
                bucket++;
                first = i + 1;
                held = 0;
            }
        }
        if (why != NULL) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[0],
                                "PyTorch would not cut the same groups (bucket %u: %s)", wrong, why);
            json_decref(list);
        } else {
            json_t *root = json_pack("{s:o,s:i,s:b,s:s}", "bucket_cap_mb_list", list, "buckets", (int)count,
                                     "pytorch_cuts_the_same_groups", 1, "order",
                                     "gradients in backprop order, float32, MB = 2^20 bytes");
            if (args->output != NULL || args->json) {
                code = plan_json_write(root, args->output != NULL ? args->output : "-");
            } else {
                printf("bucket_cap_mb_list=[");
                for (uint32_t j = 0; j < count; j++) {
                    printf("%s%.6f", j > 0 ? ", " : "", caps[j]);
                }
                printf("]\n");
                json_decref(root);
            }
        }
        free(caps);
        free(bytes);
    }
    free(groups);
    plan_opened_close(&o);
    return code;
}
