/* SPDX-License-Identifier: BSD-2-Clause */
#define _POSIX_C_SOURCE 200809L /* posix_memalign() */

#include "cuda_testing.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library(void)
{
    static void *opened;
    if (opened == NULL) {
        opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (opened == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            abort();
        }
    }
    return opened;
}

void *testing_driver_function(const char *name)
{
    void *function = dlsym(library(), name);
    assert_non_null(function);
    return function;
}

gw_fake_control *testing_control(void)
{
    gw_fake_control_fn *get;
    void *symbol = testing_driver_function("gw_fake_control_of");
    memcpy(&get, &symbol, sizeof get);
    gw_fake_control *control = get();
    control->init_result = 0;
    control->version = 13000;
    control->device_count = 1;
    control->has_context = 1;
    control->multiprocessors = 4;
    control->arch = 80;
    control->shared_size_max = 166912;
    control->skips_work = 0;
    control->on_launch = NULL;
    control->load_result = 0;
    control->fail_at = 0;
    control->fail_code = 999;
    control->calls = 0;
    control->launches = 0;
    control->syncs = 0;
    return control;
}

void testing_open(gw_cuda *handle)
{
    testing_control();
    assert_int_equal(gw_cuda_init(handle), GW_OK);
}

void testing_close(void)
{
    gw_cuda_close(&cuda);
    give_since(0);
}

void testing_sync(void)
{
    int (*synchronize)(void);
    void *symbol = testing_driver_function("cuCtxSynchronize");
    memcpy(&synchronize, &symbol, sizeof synchronize);
    assert_int_equal(synchronize(), 0);
}

/* ---- of cuda_cases.h ----------------------------------------------------------------------------------- */

gw_cuda cuda;
uint32_t cpu_backends = GW_BACKEND_ALL;

void *take(size_t size)
{
    void *p = malloc(size + (size == 0));
    assert_non_null(p);
    return p;
}

/* From the allocator, not the driver: the end of the block is then the end of the buffer, which sanitizers
 * watch. */
void *device_take(size_t size)
{
    void *start = NULL;
    assert_int_equal(posix_memalign(&start, 256, size + (size == 0)), 0);
    memset(start, 0xa5, size);
    return start;
}

void device_give(void *start)
{
    free(start);
}

void device_put(void *dst, const void *src, size_t size)
{
    testing_sync();
    memcpy(dst, src, size);
}

void fetch(void *dst, const void *src, size_t size)
{
    testing_sync();
    memcpy(dst, src, size);
}

void begin_case(const char *name, const char *call)
{
    (void)name;
    (void)call;
}

void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fail_msg("%s: %s", what, gw_status_name(status));
    }
}

void expect(int is_equal, const char *what, const char *case_name)
{
    if (!is_equal) {
        fail_msg("%s: %s", case_name, what);
    }
}

/* ---- graphs -------------------------------------------------------------------------------------------- */

#define FIND(function, name)                                                                                 \
    do {                                                                                                     \
        void *symbol = testing_driver_function(name);                                                        \
        memcpy(&function, &symbol, sizeof function);                                                         \
    } while (0)

void *testing_graph_begin(testing_graph *graph)
{
    int (*stream_create)(void **, unsigned), (*begin)(void *, int);
    FIND(stream_create, "cuStreamCreate");
    FIND(begin, "cuStreamBeginCapture_v2");
    memset(graph, 0, sizeof *graph);
    assert_int_equal(stream_create(&graph->stream, 1), 0);
    assert_int_equal(begin(graph->stream, 0), 0);
    graph->control = testing_control();
    return graph->stream;
}

void testing_graph_end(testing_graph *graph)
{
    int (*end)(void *, void **), (*instantiate)(void **, void *, unsigned long long);
    FIND(end, "cuStreamEndCapture");
    FIND(instantiate, "cuGraphInstantiateWithFlags");
    assert_int_equal(graph->control->syncs, 0);
    assert_int_equal(end(graph->stream, &graph->graph), 0);
    assert_int_equal(instantiate(&graph->executable, graph->graph, 0), 0);
}

void testing_graph_run(testing_graph *graph)
{
    int (*launch)(void *, void *);
    FIND(launch, "cuGraphLaunch");
    assert_int_equal(launch(graph->executable, graph->stream), 0);
    testing_sync();
}

void testing_graph_drop(testing_graph *graph)
{
    int (*destroy)(void *), (*exec_destroy)(void *), (*stream_destroy)(void *);
    FIND(destroy, "cuGraphDestroy");
    FIND(exec_destroy, "cuGraphExecDestroy");
    FIND(stream_destroy, "cuStreamDestroy_v2");
    assert_int_equal(destroy(graph->graph), 0);
    assert_int_equal(exec_destroy(graph->executable), 0);
    assert_int_equal(stream_destroy(graph->stream), 0);
}
