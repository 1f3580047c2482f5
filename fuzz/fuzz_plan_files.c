/*
 * The planner's readers on arbitrary files: recordings (Kineto plain or gzip, BytePS), models, plan and
 * cases files. Every refusal has an exit code; what is accepted is used.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "plan_byteps.h"
#include "plan_file.h"
#include "plan_kineto.h"
#include "plan_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Refused inputs would flood the output with messages. Sanitizers and libFuzzer write to descriptor
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

/* The first built-in case, without a model. */
static void open_case(plan_opened *o)
{
    memset(o, 0, sizeof *o);
    o->path = "input";
    FUZZ_CHECK(plan_library_open(&o->library, NULL) == 0 && plan_case_find(&o->library, NULL, &o->c) == 0);
}

/* Frees the model. */
static void use_model(plan_model *model)
{
    static plan_opened o;
    FUZZ_CHECK(model->count > 0);
    open_case(&o);
    o.model = *model;
    if (model->count < 40) {
        (void)plan_opened_prepare(&o);
    }
    plan_opened_close(&o);
}

static void fuzz_kineto(const char *path)
{
    plan_kineto trace;
    if (plan_kineto_read(path, 1 << 24, &trace) == 0) {
        plan_kineto_free(&trace);
    }
}

static void fuzz_points(const char *path, const plan_model *sizes)
{
    gw_plan_point *points = NULL;
    size_t count = 0;
    double widest = 0;
    if (plan_byteps_read_points(path, sizes, &points, &count, &widest) == 0) {
        FUZZ_CHECK(count > 0 && widest >= 1);
    }
    free(points);
}

static void fuzz_cases(const char *path)
{
    plan_library library;
    plan_case c;
    if (plan_library_open(&library, path) == 0) {
        for (size_t i = 0; plan_case_at(&library, i, &c, NULL); i++) {
        }
        plan_library_close(&library);
    }
}

/* The problem inside a plan. */
static void fuzz_stored(const plan_file *file)
{
    static plan_opened o;
    memset(&o, 0, sizeof o);
    o.path = "input";
    if (plan_file_problem(file, &o) == 0) {
        FUZZ_CHECK(o.model.count > 0 && o.c.method_count > 0);
        if (o.model.count < 40 && o.c.kind != PLAN_TREE) {
            (void)plan_opened_prepare(&o);
        }
        plan_opened_close(&o);
    }
}

/* A plan for a model with the sizes; frees them. */
static void fuzz_plan(const char *path, plan_model *sizes)
{
    static plan_opened o;
    plan_file file;
    gw_plan plan = {NULL, 0, 0};
    open_case(&o);
    o.model = *sizes;
    memset(sizes, 0, sizeof *sizes);
    FUZZ_CHECK(plan_opened_prepare(&o) == 0);
    if (plan_file_read(path, &file) == 0) {
        if (plan_file_groups(&file, &o, &plan) == 0) {
            gw_plan_tick makespan;
            FUZZ_CHECK(gw_plan_eval(&o.setup.problem, &plan, &makespan) == GW_OK);
        }
        free(plan.groups);
        fuzz_stored(&file);
        plan_file_close(&file);
    }
    plan_opened_close(&o);
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
    plan_model_add(&sizes, "a", 7, 0, 0);
    plan_model_add(&sizes, "b", 9, 0, 0);
    switch (data[0] % 6) {
    case 0:
        fuzz_kineto(path);
        break;
    case 1:
        if (plan_input_model(path, &model) == 0) {
            use_model(&model);
        }
        break;
    case 2:
        if (plan_byteps_read_comm(path, &sizes, &model) == 0) {
            use_model(&model);
        }
        break;
    case 3:
        fuzz_points(path, &sizes);
        break;
    case 4:
        fuzz_cases(path);
        break;
    default:
        fuzz_plan(path, &sizes);
        break;
    }
    plan_model_free(&sizes);
    (void)close(fd);
    return 0;
}
