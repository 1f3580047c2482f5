/*
 * Times of events against a copy in the same process.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { WARM_UP = 3, SETS_MAX = 128, BENCH_WORKERS = 8 };

int repeats = REPEATS_MAX; /* timed calls */

/*
 * What is timed works on one of `sets` equal sets of buffers, ring_at counted through all calls. Cold: on the
 * next one each time, so that a set comes back only after all others, many times the device's cache. Hot: on
 * the first each time, which is in the cache if it fits.
 */
static size_t ring_at;

/* Median milliseconds of what launch_ puts on the default stream; it may name `set`. */
#define TIME_LAUNCHES(ms, sets_, launch_)                                                                    \
    do {                                                                                                     \
        float samples_[REPEATS_MAX];                                                                         \
        for (int i_ = repeats > 1 ? -WARM_UP : 0; i_ < repeats; i_++) {                                      \
            const size_t set = ring_at++ % (sets_);                                                          \
            driver_must(device.call.event_record(b->start, NULL), "cuEventRecord");                          \
            launch_;                                                                                         \
            driver_must(device.call.event_record(b->stop, NULL), "cuEventRecord");                           \
            driver_must(device.call.event_wait(b->stop), "cuEventSynchronize");                              \
            if (i_ >= 0) {                                                                                   \
                driver_must(device.call.event_time(&samples_[i_], b->start, b->stop), "cuEventElapsedTime"); \
            }                                                                                                \
            (void)set;                                                                                       \
        }                                                                                                    \
        qsort(samples_, (size_t)repeats, sizeof samples_[0], compare_floats);                                \
        ms = samples_[repeats / 2];                                                                          \
    } while (0)

/* Of a call, which names `stream`. */
#define TIME(ms, sets_, call_)                                                                               \
    do {                                                                                                     \
        void *const stream = NULL;                                                                           \
        (void)stream;                                                                                        \
        TIME_LAUNCHES(ms, sets_, call_);                                                                     \
    } while (0)

/* Of graphs of the call, one a set: the host's share of several launches is left out. */
#define TIME_GRAPH(ms, sets_, call_)                                                                         \
    do {                                                                                                     \
        void *stream, *graphs_[SETS_MAX], *executables_[SETS_MAX];                                           \
        driver_must(device.call.stream_create(&stream, 1), "cuStreamCreate");                                \
        for (size_t set = 0; set < (sets_); set++) {                                                         \
            driver_must(device.call.capture_begin(stream, 0), "cuStreamBeginCapture");                       \
            call_;                                                                                           \
            driver_must(device.call.capture_end(stream, &graphs_[set]), "cuStreamEndCapture");               \
            driver_must(device.call.graph_instantiate(&executables_[set], graphs_[set], 0),                  \
                        "cuGraphInstantiate");                                                               \
        }                                                                                                    \
        TIME_LAUNCHES(ms, sets_,                                                                             \
                      driver_must(device.call.graph_launch(executables_[set], NULL), "cuGraphLaunch"));      \
        for (size_t i_ = 0; i_ < (sets_); i_++) {                                                            \
            driver_must(device.call.graph_exec_destroy(executables_[i_]), "cuGraphExecDestroy");             \
            driver_must(device.call.graph_destroy(graphs_[i_]), "cuGraphDestroy");                           \
        }                                                                                                    \
        driver_must(device.call.stream_destroy(stream), "cuStreamDestroy");                                  \
    } while (0)

enum { COLD, HOT };

typedef struct bench {
    void *start, *stop; /* events */
    gw_dtype dtype;
    size_t len, value_size, sets;
    int with_graphs; /* short calls, whose launches take the host as long as the device takes for them */
    double copy_rate[2];
} bench;

/* moved: bytes that the call has to read and write. */
static void print_row(const bench *b, const char *work, int is_hot, const char *how, double moved, float ms)
{
    static const char *const dtypes[] = {"", "fp32", "bf16", "fp16"};
    const double rate = moved / (double)ms / 1e6; /* GB/s */
    printf("| %s%s | %s, %.1f MiB | %s | %.1f us | %.0f GB/s | %.0f %% |\n", work, how, dtypes[b->dtype],
           (double)b->value_size / 1048576.0, is_hot ? "hot" : "cold", (double)ms * 1e3, rate,
           100.0 * rate / b->copy_rate[is_hot]);
}

#define ROWS(work, moved, call_)                                                                             \
    do {                                                                                                     \
        float ms_;                                                                                           \
        for (int is_hot_ = COLD; is_hot_ <= HOT; is_hot_++) {                                                \
            const size_t row_sets_ = is_hot_ ? 1 : b->sets;                                                  \
            begin_case(work, is_hot_ ? "time, hot" : "time, cold");                                          \
            TIME(ms_, row_sets_, call_);                                                                     \
            print_row(b, work, is_hot_, "", moved, ms_);                                                     \
            if (b->with_graphs) {                                                                            \
                begin_case(work, is_hot_ ? "graph, hot" : "graph, cold");                                    \
                TIME_GRAPH(ms_, row_sets_, call_);                                                           \
                print_row(b, work, is_hot_, ", as a graph", moved, ms_);                                     \
            }                                                                                                \
        }                                                                                                    \
    } while (0)

/* Device memory for all sets, each with a copy of src (may be NULL); *stride: bytes from one to the next. */
static uint8_t *take_sets(const bench *b, const void *src, size_t size, size_t *stride)
{
    *stride = (size + 255) / 256 * 256;
    uint8_t *p = on_device(NULL, b->sets * *stride);
    for (size_t set = 0; src != NULL && set < b->sets; set++) {
        if (cuda_device_put(&device, p + set * *stride, src, size) != 0) {
            fprintf(stderr, "gpu_check: the device failed (%u)\n", device.error);
            exit(1);
        }
    }
    return p;
}

/* The same bytes read and written as one would without a codec: what the shares are of. */
static void bench_copy(bench *b)
{
    size_t stride;
    uint8_t *from = take_sets(b, NULL, b->value_size, &stride),
            *to = take_sets(b, NULL, b->value_size, &stride);

    for (int is_hot = COLD; is_hot <= HOT; is_hot++) {
        float ms;
        begin_case("copy", is_hot ? "hot" : "cold");
        TIME(ms, is_hot ? 1 : b->sets,
             driver_must(device.call.on_device((uint64_t)(uintptr_t)(to + set * stride),
                                               (uint64_t)(uintptr_t)(from + set * stride), b->value_size,
                                               NULL),
                         "copy"));
        b->copy_rate[is_hot] = 2.0 * (double)b->value_size / (double)ms / 1e6;
        print_row(b, "copy (read + write)", is_hot, "", 2.0 * (double)b->value_size, ms);
    }
    give(from);
    give(to);
}

static void bench_gcomp(bench *b, const void *all_values, gw_gcomp_quantum_mode quantum_mode,
                        gw_gcomp_preset preset, int has_codebook, const char *mode, uint64_t *random)
{
    gcomp_case c;
    char work[96];
    tensor t = make_tensor(b->dtype, b->len, 0, 1, 14, random);
    const uint8_t *const values = t.values;

    memcpy(t.values, all_values, b->value_size);
    snprintf(c.name, sizeof c.name, "bench, %s", mode);
    c.codec = make_codec(b->dtype, quantum_mode, preset, GW_GCOMP_NEAREST, 14, 0);
    make_case(&c, t);
    if (has_codebook) {
        uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
        const size_t size = cpu_codebook(&c.codec, &c.t.cpu, 1, codebook);
        must(gw_gcomp_codebook_install(&c.codec, 7, 8, codebook, size, 1), "gw_gcomp_codebook_install");
        encode_again(&c);
    }
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&c.codec, 1, b->len);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&c.codec, 1, b->len);
    const size_t hop_size = gw_cuda_gcomp_hop_workspace_size(&c.codec, 1, b->len);
    void *encode_at = on_device(NULL, encode_size), *decode_at = on_device(NULL, decode_size),
         *hop_at = on_device(NULL, hop_size);
    size_t value_stride, map_byte_stride, frame_stride;
    uint8_t *source_at = take_sets(b, values, b->value_size, &value_stride),
            *out = take_sets(b, values, b->value_size, &value_stride),
            *map_bytes_at = take_sets(b, c.t.map.bytes, b->len, &map_byte_stride),
            *frame = take_sets(b, NULL, c.bound, &frame_stride),
            *next = take_sets(b, NULL, c.bound, &frame_stride);
    gw_cuda_result *result = on_device(NULL, 2 * b->sets * sizeof *result), *second = result + b->sets;
    static gw_gcomp_map maps[SETS_MAX];
    static gw_gcomp_source sources[SETS_MAX];

    for (size_t set = 0; set < b->sets; set++) {
        maps[set] = c.t.device_map;
        maps[set].bytes = map_bytes_at + set * map_byte_stride;
        sources[set] = c.t.device;
        sources[set].values = source_at + set * value_stride;
        sources[set].quantum = gw_gcomp_quantum_of_map(&maps[set]);
    }
#define FRAME(set_)                                                                                          \
    &(gw_cuda_gcomp_frame){frame + (set_)*frame_stride, c.bound, &result[set_].size, &maps[set_]}
    begin_case(c.name, "first encode, decode and hop");
    for (size_t set = 0; set < b->sets; set++) {
        must(gw_cuda_gcomp_encode(
                 &cuda, &c.codec, &sources[set], &(gw_cuda_buffer){frame + set * frame_stride, c.bound},
                 &(gw_cuda_gcomp_request){NULL, &result[set], {encode_at, encode_size}, NULL}),
             "encode");
    }
    must(gw_cuda_gcomp_decode_add_encode(
             &cuda, &c.codec, FRAME(0), &sources[0], &(gw_cuda_buffer){next, c.bound},
             &(gw_cuda_gcomp_request){NULL, &second[0], {hop_at, hop_size}, NULL}),
         "hop");
    const gw_cuda_result hop = fetch_result(&second[0]);
    expect(hop.status == GW_OK, "hop", c.name);
    must(gw_cuda_gcomp_decode(&cuda, &c.codec, FRAME(0), &(gw_cuda_gcomp_target){out, b->len, 0},
                              &(gw_cuda_gcomp_request){NULL, &second[0], {decode_at, decode_size}, NULL}),
         "decode");
    expect(fetch_result(&second[0]).status == GW_OK, "decode", c.name);
    expect_bytes(frame, c.frame, c.frame_size, "bytes", c.name);
    {
        void *workspace = take(gw_gcomp_workspace_size(&c.codec)), *decoded = take(b->value_size);
        gw_gcomp_target target = {.values = decoded, .capacity = b->len};
        must(gw_gcomp_decode(&c.codec,
                             &(gw_gcomp_frame){.data = c.frame, .size = c.frame_size, .map = &c.t.map},
                             &target, &(gw_workspace){workspace, gw_gcomp_workspace_size(&c.codec)}),
             "gw_gcomp_decode");
        expect_bytes(out, decoded, b->value_size, "values", c.name);
        free(decoded);
        free(workspace);
    }

    /* Levels are read by every encode, and by decodes of derived frames; a hop reads them once. */
    const double values_moved = (double)b->value_size, frame_moved = (double)c.frame_size,
                 map_bytes_moved = (double)b->len,
                 decode_moved = quantum_mode == GW_GCOMP_DERIVED ? map_bytes_moved : 0;
    printf("%s: %.2f bits a value\n", c.name, 8.0 * frame_moved / (double)b->len);
    snprintf(work, sizeof work, "GCOMP encode, %s", mode);
    ROWS(work, values_moved + map_bytes_moved + frame_moved,
         must(gw_cuda_gcomp_encode(
                  &cuda, &c.codec, &sources[set], &(gw_cuda_buffer){frame + set * frame_stride, c.bound},
                  &(gw_cuda_gcomp_request){NULL, &result[set], {encode_at, encode_size}, stream}),
              "encode"));
    snprintf(work, sizeof work, "GCOMP decode, %s", mode);
    ROWS(work, frame_moved + decode_moved + values_moved,
         must(gw_cuda_gcomp_decode(
                  &cuda, &c.codec, FRAME(set), &(gw_cuda_gcomp_target){out + set * value_stride, b->len, 0},
                  &(gw_cuda_gcomp_request){NULL, &second[set], {decode_at, decode_size}, stream}),
              "decode"));
    snprintf(work, sizeof work, "GCOMP decode_add, %s", mode);
    ROWS(work, frame_moved + decode_moved + 2 * values_moved,
         must(gw_cuda_gcomp_decode_add(
                  &cuda, &c.codec, FRAME(set), &(gw_cuda_gcomp_target){out + set * value_stride, b->len, 0},
                  &(gw_cuda_gcomp_request){NULL, &second[set], {decode_at, decode_size}, stream}),
              "decode_add"));
    snprintf(work, sizeof work, "GCOMP hop, %s", mode);
    ROWS(work, frame_moved + map_bytes_moved + values_moved + (double)hop.size,
         must(gw_cuda_gcomp_decode_add_encode(
                  &cuda, &c.codec, FRAME(set), &sources[set],
                  &(gw_cuda_buffer){next + set * frame_stride, c.bound},
                  &(gw_cuda_gcomp_request){NULL, &second[set], {hop_at, hop_size}, stream}),
              "hop"));
#undef FRAME
    expect(fetch_result(&second[0]).status == GW_OK, "the last calls", c.name);
    give(result);
    give(next);
    give(frame);
    give(map_bytes_at);
    give(out);
    give(source_at);
    give(hop_at);
    give(decode_at);
    give(encode_at);
    drop_case(&c);
}

static void bench_thc(bench *b, const void *values)
{
    const size_t len = b->len;
    const gw_thc thc = make_thc(BENCH_WORKERS, 4, 10, b->dtype, 8, GW_THC_ROTATED, 0).thc;
    const uint64_t blocks = gw_thc_block_count(&thc, len);
    const size_t indices_size = gw_thc_indices_size(&thc, len, 0, blocks), patterns_size = 4 * (size_t)blocks;
    const size_t lanes = (size_t)gw_thc_range_lanes(&thc, len, 0, blocks);
    const gw_thc_range range = {len, 0, blocks, 1, 0};
    size_t value_stride, pattern_stride, index_stride, lane_stride, member_stride;
    uint32_t *host_members = take(patterns_size);
    uint32_t ranks[BENCH_WORKERS];
    uint8_t *indices[BENCH_WORKERS];
    gw_thc_agg agg;

    for (uint64_t i = 0; i < blocks; i++) {
        host_members[i] = BENCH_WORKERS;
    }
    must(gw_thc_agg_init(
             &agg, &(gw_thc_agg_options){gw_thc_options_of(&thc)->table, BENCH_WORKERS, 8, cpu_backends}),
         "gw_thc_agg_init");
    uint8_t *x = take_sets(b, values, b->value_size, &value_stride),
            *y = take_sets(b, NULL, b->value_size, &value_stride),
            *patterns_at = take_sets(b, NULL, patterns_size, &pattern_stride),
            *members = take_sets(b, host_members, patterns_size, &member_stride),
            *lanes_at = take_sets(b, NULL, lanes, &lane_stride);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    for (uint32_t w = 0; w < BENCH_WORKERS; w++) {
        indices[w] = take_sets(b, NULL, indices_size, &index_stride);
        ranks[w] = w;
    }
#define PATTERNS(set_) ((uint32_t *)(void *)(patterns_at + (set_)*pattern_stride))
#define ENCODE(set_, worker_, stream_)                                                                       \
    must(gw_cuda_thc_encode(&cuda, &thc, &range,                                                             \
                            &(gw_thc_source){.values = x + (set_)*value_stride,                              \
                                             .error = NULL,                                                  \
                                             .patterns = PATTERNS(set_),                                     \
                                             .own_patterns = PATTERNS(set_)},                                \
                            &(gw_cuda_buffer){indices[worker_] + (set_)*index_stride, indices_size},         \
                            &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, stream_}),                      \
         "encode")
#define NORMS(set_, stream_)                                                                                 \
    must(gw_cuda_thc_norms(&cuda, &thc, &range, &(gw_thc_source){.values = x + (set_)*value_stride},         \
                           PATTERNS(set_), &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, stream_}),       \
         "norms")
#define SUM(set_, stream_)                                                                                   \
    do {                                                                                                     \
        uint8_t in_sum_[GW_THC_SET_SIZE(BENCH_WORKERS)] = {0};                                               \
        const uint8_t *sources_[BENCH_WORKERS];                                                              \
        for (int w_ = 0; w_ < BENCH_WORKERS; w_++) {                                                         \
            sources_[w_] = indices[w_] + (set_)*index_stride;                                                \
        }                                                                                                    \
        must(gw_cuda_thc_sum_indices(                                                                        \
                 &cuda, &agg, &(gw_thc_partial){lanes_at + (set_)*lane_stride, in_sum_, lanes},              \
                 &(gw_cuda_thc_inputs){sources_, ranks, NULL, BENCH_WORKERS, 0}, stream_),                   \
             "sum");                                                                                         \
    } while (0)
    begin_case("bench, THC", "first norms, encodes and sums");
    for (size_t set = 0; set < b->sets; set++) {
        NORMS(set, NULL);
        for (int w = 0; w < BENCH_WORKERS; w++) {
            ENCODE(set, w, NULL);
        }
        SUM(set, NULL);
    }
    const double values_moved = (double)b->value_size, indices_moved = (double)indices_size,
                 lanes_moved = (double)lanes;
    ROWS("THC norms", values_moved, NORMS(set, stream));
    ROWS("THC encode, norms given, 4 bits", values_moved + indices_moved, ENCODE(set, 0, stream));
    ROWS("THC norms and encode, 4 bits", 2 * values_moved + indices_moved, {
        NORMS(set, stream);
        ENCODE(set, 0, stream);
    });
    ROWS("THC sum of 8 workers", BENCH_WORKERS * indices_moved + lanes_moved, SUM(set, stream));
    ROWS("THC decode", lanes_moved + values_moved,
         must(gw_cuda_thc_decode(&cuda, &thc, &range,
                                 &(gw_thc_sum){lanes_at + set * lane_stride, lanes,
                                               (uint32_t *)(void *)(members + set * member_stride),
                                               PATTERNS(set)},
                                 &(gw_cuda_target){y + set * value_stride, b->len},
                                 &(gw_cuda_thc_request){NULL, GW_THC_MEAN, result, stream}),
              "decode"));
#undef SUM
#undef NORMS
#undef ENCODE
#undef PATTERNS
    expect(fetch_result(result).status == GW_OK, "decode", "bench, THC");
    for (int w = 0; w < BENCH_WORKERS; w++) {
        give(indices[w]);
    }
    give(result);
    give(lanes_at);
    give(members);
    give(patterns_at);
    give(y);
    give(x);
    free(host_members);
}

/* bytes: of the values of one set; ring_bytes: of all sets. */
void run_bench(size_t bytes, size_t ring_bytes, gw_dtype dtype, uint64_t seed)
{
    bench bench_of_dtype = {0}, *const b = &bench_of_dtype;
    uint64_t random = seed;

    b->dtype = dtype;
    b->len = bytes / gw_dtype_size(dtype);
    b->value_size = b->len * gw_dtype_size(dtype);
    b->sets = ring_bytes / bytes < 2 ? 2 : ring_bytes / bytes > SETS_MAX ? SETS_MAX : ring_bytes / bytes;
    b->with_graphs = bytes <= (size_t)64 << 20;
    driver_must(device.call.event_create(&b->start, 0), "cuEventCreate");
    driver_must(device.call.event_create(&b->stop, 0), "cuEventCreate");
    printf(
        "cold: each call on the next of %zu sets of buffers, %zu MiB of values altogether; hot: on the same "
        "set each time; the copy likewise\n",
        b->sets, b->sets * b->value_size >> 20);
    bench_copy(b);
    begin_case("bench", "random values");
    void *values = take(b->value_size);
    fill(values, dtype, b->len, 0, &random);
    bench_gcomp(b, values, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 1, "installed codebook", &random);
    bench_gcomp(b, values, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 0, "fast", &random);
    bench_gcomp(b, values, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 1, "derived, installed codebook", &random);
    bench_gcomp(b, values, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 0, "derived, fast", &random);
    bench_gcomp(b, values, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, 0, "small", &random);
    bench_thc(b, values);
    free(values);
    driver_must(device.call.event_destroy(b->start), "cuEventDestroy");
    driver_must(device.call.event_destroy(b->stop), "cuEventDestroy");
}
