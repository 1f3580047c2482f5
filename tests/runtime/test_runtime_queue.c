/*
 * Tasks and events of the runtime without exchanges.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gradwire/runtime.h"

enum { TASKS = 10 };

typedef struct job {
    gw_runtime_task task;
    gw_runtime *runtime;
    int number, again;
    atomic_int runs;
} job;

static int order[2 * TASKS], order_len;

static void note_order(gw_runtime_task *task, const gw_workspace *workspace)
{
    job *self = (job *)task;
    assert_int_equal(workspace->size, 123);
    order[order_len++] = self->number;
    if (self->again-- > 0) {
        assert_int_equal(gw_runtime_submit(self->runtime, task), GW_OK);
    }
}

static gw_runtime *open_runtime(uint32_t threads, size_t workspace_size)
{
    const gw_runtime_options options = {.thread_count = threads, .workspace_size = workspace_size};
    gw_runtime *runtime = NULL;
    assert_int_equal(gw_runtime_open(&options, &runtime), GW_OK);
    assert_int_equal(gw_runtime_thread_count(runtime), threads);
    return runtime;
}

/* Without threads tasks run in the caller: the most urgent ones first, those of one priority in their order.
 */
static void test_order(void **state)
{
    (void)state;
    static const uint32_t priority[TASKS] = {4, 0, 3, 2, 1, 0, 4, 1, 2, 3};
    static const int expected[TASKS + 1] = {1, 5, 1, 4, 7, 3, 8, 2, 9, 0, 6}; /* 1 submits itself again */
    const gw_workspace workspace = {.size = 123};
    gw_runtime *runtime = open_runtime(0, 0);
    job jobs[TASKS] = {{.number = 0}};
    order_len = 0;
    assert_int_equal(gw_runtime_work(runtime, &workspace), 0);
    for (int i = 0; i < TASKS; i++) {
        jobs[i].task = (gw_runtime_task){.run = note_order, .owner = &jobs[i % 2], .priority = priority[i]};
        jobs[i].runtime = runtime;
        jobs[i].number = i;
        jobs[i].again = i == 1;
        assert_int_equal(gw_runtime_submit(runtime, &jobs[i].task), GW_OK);
    }
    while (gw_runtime_work(runtime, &workspace)) {
    }
    assert_int_equal(order_len, TASKS + 1);
    assert_memory_equal(order, expected, sizeof expected);

    order_len = 0;
    for (int i = 0; i < TASKS; i++) {
        jobs[i].again = 0;
        assert_int_equal(gw_runtime_submit(runtime, &jobs[i].task), GW_OK);
    }
    assert_int_equal(gw_runtime_withdraw(runtime, &jobs[0]), TASKS / 2);
    assert_int_equal(gw_runtime_withdraw(runtime, &jobs[0]), 0);
    while (gw_runtime_work(runtime, &workspace)) {
    }
    static const int odd[] = {1, 5, 7, 3, 9};
    assert_int_equal(order_len, TASKS / 2);
    assert_memory_equal(order, odd, sizeof odd);
    gw_runtime_close(runtime);
}

static atomic_int all_blocked, room;

static void look_around(gw_runtime_task *task, const gw_workspace *workspace)
{
    sigset_t mask;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &mask);
    atomic_store(&all_blocked, sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT));
    atomic_store(&room, (int)workspace->size);
    ((uint8_t *)workspace->data)[workspace->size - 1] = 1;
    (void)atomic_fetch_add(&((job *)task)->runs, 1);
    gw_runtime_wake(((job *)task)->runtime);
}

/* Threads run tasks, with the workspace that was asked for and without the program's signals. */
static void test_threads(void **state)
{
    (void)state;
    gw_runtime *runtime = open_runtime(3, 5000);
    job jobs[TASKS] = {{.number = 0}};
    for (int i = 0; i < TASKS; i++) {
        jobs[i].task = (gw_runtime_task){.run = look_around};
        jobs[i].runtime = runtime;
        assert_int_equal(gw_runtime_submit(runtime, &jobs[i].task), GW_OK);
    }
    for (int i = 0; i < TASKS; i++) {
        while (!atomic_load(&jobs[i].runs)) {
            gw_runtime_event event;
            (void)gw_runtime_wait(runtime, &event, 1, 100);
        }
    }
    gw_runtime_close(runtime);
    assert_true(atomic_load(&all_blocked));
    assert_in_range(atomic_load(&room), 5000, 5063);
}

static void test_wake(void **state)
{
    (void)state;
    gw_runtime *runtime = open_runtime(2, 0);
    gw_runtime_event event;
    assert_int_equal(gw_runtime_wait(runtime, &event, 1, 0), 0);
    gw_runtime_wake(runtime);
    gw_runtime_wake(runtime);
    assert_int_equal(gw_runtime_wait(runtime, &event, 1, -1), 1);
    assert_int_equal(event.kind, GW_RUNTIME_WAKE);
    assert_int_equal(gw_runtime_wait(runtime, &event, 1, 1), 0);
    assert_int_equal(gw_runtime_wait(NULL, &event, 1, -1), 0);
    assert_int_equal(gw_runtime_wait(runtime, &event, 0, -1), 0);
    gw_runtime_close(runtime);
}

static void test_arguments(void **state)
{
    (void)state;
    gw_runtime *none = NULL;
    gw_runtime_options options = {.thread_count = GW_RUNTIME_THREADS_MAX + 1};
    assert_int_equal(gw_runtime_open(&options, NULL), GW_ERR_ARG);
    assert_int_equal(gw_runtime_open(NULL, &none), GW_ERR_ARG);
    assert_int_equal(gw_runtime_open(&options, &none), GW_ERR_ARG);
    options = (gw_runtime_options){.thread_count = 1, .workspace_size = SIZE_MAX};
    assert_int_equal(gw_runtime_open(&options, &none), GW_ERR_ARG);
    assert_null(none);
    assert_int_equal(gw_runtime_thread_count(NULL), 0);
    gw_runtime_close(NULL);
    gw_runtime_wake(NULL);

    gw_runtime *runtime = open_runtime(0, 0);
    gw_runtime_task task = {.run = note_order, .priority = GW_RUNTIME_PRIORITY_SCAN + 1};
    assert_int_equal(gw_runtime_submit(runtime, &task), GW_ERR_ARG);
    task = (gw_runtime_task){.run = NULL};
    assert_int_equal(gw_runtime_submit(runtime, &task), GW_ERR_ARG);
    assert_int_equal(gw_runtime_submit(runtime, NULL), GW_ERR_ARG);
    size_t count = 0;
    const gw_abi_struct *structs = gw_runtime_abi_structs(&count);
    assert_true(count > 0 && structs[0].size == sizeof(gw_runtime_options));
    gw_runtime_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
