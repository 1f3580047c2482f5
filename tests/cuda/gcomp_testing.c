/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp_testing.h"

#include <stdlib.h>
#include <string.h>

void *testing_take(size_t size)
{
    void *p = malloc(size + (size == 0));
    assert_non_null(p);
    return p;
}

gw_gcomp testing_codec(gw_dtype dtype, gw_gcomp_levels levels, gw_gcomp_preset preset, uint32_t chunk_log2,
                       int checksum)
{
    gw_gcomp_options options;
    gw_gcomp codec;
    gw_gcomp_options_init(&options, dtype);
    options.levels = levels;
    options.preset = preset;
    options.chunk_log2 = chunk_log2;
    options.checksum = checksum;
    options.rounding = GW_GCOMP_STOCHASTIC;
    assert_int_equal(gw_gcomp_init(&codec, &options), GW_OK);
    return codec;
}

testing_tensor testing_tensor_make(gw_dtype dtype, uint64_t len, uint32_t chunk_log2, uint64_t *random)
{
    testing_tensor t;
    memset(&t, 0, sizeof t);
    assert_true(len <= (sizeof t.digest / 4) << chunk_log2);
    t.dtype = dtype;
    t.len = len;
    t.values = testing_take(gw_dtype_size(dtype) * (size_t)len);
    testing_values(t.values, dtype, (size_t)len, 12, random);
    uint8_t *levels = testing_take((size_t)len);
    for (size_t i = 0; i < len; i++) {
        levels[i] = (uint8_t)(testing_random(random) % 200);
    }
    assert_int_equal(gw_gcomp_map_digest(levels, (size_t)len, chunk_log2, t.digest), GW_OK);
    t.map = (gw_gcomp_map){levels, t.digest, 300, 4.0f, len, chunk_log2};
    return t;
}

void testing_tensor_upload(testing_tensor *t)
{
    t->map.digest = t->digest;
    t->device_map = t->map;
    t->device_map.levels = testing_device(t->map.levels, (size_t)t->len, 3);
    t->device_map.digest = testing_device(t->digest, sizeof t->digest, 0);
    t->cpu = (gw_gcomp_source){.values = t->values,
                               .len = t->len,
                               .map = &t->map,
                               .seed = 77,
                               .first_element = 1000,
                               .step_index = 5,
                               .rank = 2,
                               .hop = 1};
    t->device = t->cpu;
    t->device.values =
        testing_device(t->values, gw_dtype_size(t->dtype) * (size_t)t->len, gw_dtype_size(t->dtype));
    t->device.map = &t->device_map;
}

void testing_tensor_drop(testing_tensor *t)
{
    free(t->values);
    free((void *)(uintptr_t)t->map.levels);
}

size_t testing_cpu_encode(const gw_gcomp *codec, const gw_gcomp_source *source, uint8_t **frame)
{
    const size_t bound = gw_gcomp_bound(codec, source->len);
    void *workspace = testing_take(gw_gcomp_workspace_size(codec));
    *frame = testing_take(bound);
    gw_buffer out = {*frame, bound, 0};
    assert_int_equal(
        gw_gcomp_encode(codec, source, &out, &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)}),
        GW_OK);
    free(workspace);
    return out.size;
}

size_t testing_cpu_book(const gw_gcomp *codec, const gw_gcomp_source *sources, size_t source_count,
                        uint8_t book[GW_GCOMP_BOOK_SIZE_MAX])
{
    gw_gcomp_histogram histogram;
    void *workspace = testing_take(gw_gcomp_workspace_size(codec));
    assert_int_equal(gw_gcomp_histogram_init(&histogram, codec), GW_OK);
    for (size_t i = 0; i < source_count; i++) {
        assert_int_equal(gw_gcomp_histogram_add(&histogram, codec, &sources[i],
                                                &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)}),
                         GW_OK);
    }
    gw_buffer out = {book, GW_GCOMP_BOOK_SIZE_MAX, 0};
    assert_int_equal(gw_gcomp_book_build(&histogram, &out), GW_OK);
    free(workspace);
    return out.size;
}

gw_cuda_result *testing_new_result(void)
{
    return testing_device(NULL, sizeof(gw_cuda_result), 0);
}

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
