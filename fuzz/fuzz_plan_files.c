/*
 * The planner's readers on arbitrary files: recordings (Kineto plain or gzip, BytePS), models, plan and
 * cases files. Every refusal has an exit code; what is read is used.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "plan_byteps.h"
#include "plan_file.h"
#include "plan_kineto.h"
#include "plan_opened.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Messages of refused inputs would be most of what is printed. Sanitizers and libFuzzer write to descriptor
 * 2 itself. */
static void silence(void)
{
    static int done;
    if (!done) {
        done = 1;
        stderr = fopen("/dev/null", "w");
        FUZZ_CHECK(stderr != NULL);
    }
}

static void use_model(const char *path, const plan_model *model)
{
    plan_library library;
    plan_case c;
    plan_setup setup;
    FUZZ_CHECK(model->count > 0);
    FUZZ_CHECK(plan_library_open(&library, NULL) == 0 && plan_case_find(&library, NULL, &c) == 0);
    if (model->count < 40 && plan_setup_make(&library, &c, model, path, &setup) == 0) {
        plan_setup_free(&setup);
    }
    plan_library_close(&library);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    plan_model sizes = {NULL, 0, 0};
    plan_model model;
    silence();
    if (size == 0) {
        return 0;
    }
    const int fd = memfd_create("input", 0);
    FUZZ_CHECK(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FUZZ_CHECK(plan_model_add(&sizes, "a", 7, 0, 0) && plan_model_add(&sizes, "b", 9, 0, 0));
    switch (data[0] % 6) {
    case 0: {
        plan_kineto trace;
        if (plan_kineto_read(path, UINT64_MAX, &trace) == 0) {
            plan_kineto_free(&trace);
        }
        break;
    }
    case 1:
        if (plan_model_read(path, &model) == 0) {
            use_model(path, &model);
            plan_model_free(&model);
        }
        break;
    case 2:
        if (plan_byteps_read_comm(path, &sizes, &model) == 0) {
            use_model(path, &model);
            plan_model_free(&model);
        }
        break;
    case 3: {
        gw_plan_point *points = NULL;
        size_t count = 0;
        double widest = 0;
        if (plan_byteps_read_points(path, &sizes, &points, &count, &widest) == 0) {
            FUZZ_CHECK(count > 0 && widest >= 1);
        }
        free(points);
        break;
    }
    case 4: {
        plan_library library;
        plan_case c;
        if (plan_library_open(&library, path) == 0) {
            for (size_t i = 0; plan_case_at(&library, i, &c, NULL); i++) {
            }
            plan_library_close(&library);
        }
        break;
    }
    default: {
        plan_file file;
        plan_library library;
        plan_case c;
        plan_setup setup;
        gw_plan_group *groups = NULL;
        uint32_t count = 0;
        FUZZ_CHECK(plan_library_open(&library, NULL) == 0 && plan_case_find(&library, NULL, &c) == 0);
        FUZZ_CHECK(plan_setup_make(&library, &c, &sizes, "sizes", &setup) == 0);
        if (plan_file_read(path, &file) == 0) {
            if (plan_file_groups(path, &file, &setup, &sizes, &groups, &count) == 0) {
                gw_plan_tick makespan;
                gw_plan plan = {groups, count, count};
                FUZZ_CHECK(gw_plan_eval(&setup.problem, &plan, &makespan) == GW_PLAN_OK);
            }
            free(groups);
            plan_file_close(&file);
        }
        plan_setup_free(&setup);
        plan_library_close(&library);
        break;
    }
    }
    plan_model_free(&sizes);
    (void)close(fd);
    return 0;
}
