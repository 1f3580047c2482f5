/*
 * GCOMP and THC on a GPU under the names of the other backends, with backend cuda:
 *
 *   gcomp_encode/cuda/<data>/<mode>/<size>/<cold|hot>   also gcomp_decode, gcomp_decode_add, gcomp_hop
 *   gcomp_hop_batch/cuda/<data>/<mode>/<size>/<cold|hot>
 *       the hops of up to 64 tensors in one call: the first has half of the chunks, the others share the rest
 *   thc_encode/cuda/<data>/b4n8u8/<size>/<cold|hot>     also thc_norms, thc_sum (of 8 workers), thc_decode
 *
 * Times are measured with the driver's events around one call on the default stream, in turn with a
 * device-to-device copy of the same fp32 bytes. cold: 256 MiB are written before each of the two, which
 * empties the device's cache. All data are in device memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "bench_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench_data.h"
#include "bench_modes.h"
#include "bench_pairs.h"
extern "C" {
#include "cuda_device.h"
}

namespace
{

enum { PAIRS_MIN = 9, PAIRS_MAX = 301, WORKERS = 8 };
const size_t kFlushSize = size_t{256} << 20;

struct Failure {
    std::string text;
};

/* The device, opened once and for the life of the program. */
class Device
{
public:
    Device()
    {
        status = cuda_device_open(&device, 0);
        if (status == GW_OK) {
            status = gw_cuda_init(&cuda);
        }
        if (status == GW_OK &&
            (device.call.event_create(&start_, 0) != 0 || device.call.event_create(&stop_, 0) != 0)) {
            status = GW_ERR_DEVICE;
        }
    }

    /* Seconds that the device needs for the work that body puts on the default stream. */
    double TimeOf(const std::function<void()> &body)
    {
        float ms = 0;
        Must(device.call.event_record(start_, nullptr), "cuEventRecord");
        body();
        Must(device.call.event_record(stop_, nullptr), "cuEventRecord");
        Must(device.call.event_wait(stop_), "cuEventSynchronize");
        Must(device.call.event_time(&ms, start_, stop_), "cuEventElapsedTime");
        return static_cast<double>(ms) * 1e-3;
    }

    void Must(int code, const char *what)
    {
        if (code != 0) {
            throw Failure{std::string(what) + " failed: " + std::to_string(code)};
        }
    }

    cuda_device device;
    gw_cuda cuda = {};
    gw_status status;

private:
    void *start_ = nullptr, *stop_ = nullptr;
};

Device &the_device()
{
    static Device device;
    return device;
}

/* Device memory. */
class Memory
{
public:
    explicit Memory(size_t size, const void *src = nullptr)
        : at_(cuda_device_take(&the_device().device, src, size))
    {
        if (at_ == nullptr) {
            throw Failure{"the device has not enough memory"};
        }
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory()
    {
        cuda_device_give(&the_device().device, at_);
    }

    template <typename T> T *As() const
    {
        return static_cast<T *>(at_);
    }
    uint64_t Address() const
    {
        return reinterpret_cast<uintptr_t>(at_);
    }

private:
    void *at_;
};

void keep(gw_status status)
{
    if (status != GW_OK) {
        throw Failure{gw_status_message(status)};
    }
}

void check(const Memory &results, size_t index, const char *what)
{
    gw_cuda_result result;
    if (cuda_device_get(&the_device().device, &result, results.As<gw_cuda_result>() + index, sizeof result) !=
        0) {
        throw Failure{"the device failed"};
    }
    if (result.status != GW_OK) {
        throw Failure{std::string(what) + ": " + gw_status_message(static_cast<gw_status>(result.status))};
    }
}

double quantile(const std::vector<double> &sorted, double q)
{
    return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

/*
 * Pairs of (copy, call) as in run_pairs(), timed by events. moved: bytes that the call has to read and write.
 * The same counters, and of_copy: moved bytes per second as a share of the copy's.
 * GW_BENCH_SECONDS=0: one pair.
 */
void run_device_pairs(benchmark::State &state, size_t size, double moved, double bits_per_value, bool cold,
                      const std::function<void()> &call)
{
    Device &d = the_device();
    const char *seconds = std::getenv("GW_BENCH_SECONDS");
    const double budget = seconds == nullptr ? 0.5 : std::atof(seconds);
    const size_t least = budget > 0 ? PAIRS_MIN : 1;
    const Memory from(size), to(size);
    std::unique_ptr<Memory> flush;
    if (cold) {
        flush = std::make_unique<Memory>(kFlushSize);
    }
    const std::function<void()> copy = [&] {
        d.Must(d.device.call.on_device(to.Address(), from.Address(), size, nullptr), "a copy");
    };
    std::vector<double> ratios, times, copy_times;
    for (auto _ : state) {
        call(); /* lazy loading happens at first use */
        copy();
        const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(budget);
        while (times.size() < least || (std::chrono::steady_clock::now() < end && times.size() < PAIRS_MAX)) {
            double own = 0, other = 0;
            for (unsigned half = 0; half < 2; half++) {
                const bool is_call = (times.size() + half) % 2 != 0;
                if (cold) {
                    d.Must(d.device.call.fill(flush->Address(), 1, kFlushSize / 4, nullptr), "a fill");
                }
                (is_call ? own : other) = d.TimeOf(is_call ? call : copy);
            }
            times.push_back(std::max(own, 1e-9));
            copy_times.push_back(std::max(other, 1e-9));
            ratios.push_back(copy_times.back() / times.back());
        }
        std::sort(times.begin(), times.end());
        std::sort(copy_times.begin(), copy_times.end());
        std::sort(ratios.begin(), ratios.end());
        state.SetIterationTime(quantile(times, 0.5));
    }
    const double bytes = static_cast<double>(size), time = quantile(times, 0.5);
    state.counters["GBps"] = bytes * 1e-9 / time;
    state.counters["us"] = time * 1e6;
    state.counters["vs_memcpy"] = quantile(ratios, 0.5);
    state.counters["vs_memcpy_p10"] = quantile(ratios, 0.1);
    state.counters["vs_memcpy_p90"] = quantile(ratios, 0.9);
    state.counters["of_copy"] = quantile(ratios, 0.5) * moved / (2 * bytes);
    state.counters["memcpy_GBps"] = bytes * 1e-9 / quantile(copy_times, 0.5);
    state.counters["bits_per_value"] = bits_per_value;
    state.counters["pairs"] = static_cast<double>(times.size());
}

/* ---- GCOMP --------------------------------------------------------------------------------------------- */

void bench_gcomp(benchmark::State &state, Call call, const std::string &name, const Mode &mode, size_t bytes,
                 bool cold)
{
    gw_cuda *const cuda = &the_device().cuda;
    const gw_bench_data &data = data_of(name, bytes);
    const size_t len = data.len, size = 4 * len;
    const gw_gcomp_options options = options_of(mode);
    gw_gcomp codec;
    keep(gw_gcomp_init(&codec, &options));
    const size_t bound = gw_gcomp_frame_bound(&codec, len),
                 chunks = (len + (size_t{1} << data.map.chunk_log2) - 1) >> data.map.chunk_log2;
    const Memory values(size, data.values), map_bytes(len, data.map_bytes), digest(4 * chunks, data.digest),
        frame(bound), hop(bound), out(size, data.values), results(3 * sizeof(gw_cuda_result));
    gw_gcomp_map map = data.map;
    map.bytes = map_bytes.As<uint8_t>();
    map.digest = digest.As<uint32_t>();
    gw_gcomp_source source = {};
    source.values = values.As<float>();
    source.len = len;
    source.quantum = gw_gcomp_quantum_of_map(&map);
    source.seed = 1;
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, len),
                 decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, 1, len),
                 hop_size = gw_cuda_gcomp_hop_workspace_size(&codec, 1, len);
    const Memory workspace(std::max({encode_size, decode_size, hop_size}));
    gw_cuda_result *const result = results.As<gw_cuda_result>();
    const gw_cuda_buffer encode_dst = {frame.As<void>(), bound}, hop_dst = {hop.As<void>(), bound};
    const gw_cuda_gcomp_frame encoded_frame = {frame.As<void>(), bound, &result[0].size, &map};
    const gw_cuda_gcomp_target target = {out.As<void>(), len, 0};
    const auto request_of = [&](int index, size_t workspace_size) {
        return gw_cuda_gcomp_request{
            nullptr, &result[index], {workspace.As<void>(), workspace_size}, nullptr};
    };
    const gw_cuda_gcomp_request encode_request = request_of(0, encode_size),
                                decode_request = request_of(1, decode_size),
                                hop_request = request_of(1, hop_size);
    const auto encode = [&] {
        keep(gw_cuda_gcomp_encode(cuda, &codec, &source, &encode_dst, &encode_request));
    };
    encode();
    check(results, 0, "encode");
    gw_cuda_result encoded;
    the_device().Must(cuda_device_get(&the_device().device, &encoded, result, sizeof encoded), "a copy");
    const double values_moved = 4.0 * static_cast<double>(len),
                 frame_moved = static_cast<double>(encoded.size);
    /* Explicit frames are decoded without the map. */
    const double map_moved =
        static_cast<double>(len) * (call == Call::Encode || mode.quantum_mode == GW_GCOMP_DERIVED ? 1 : 0);
    std::function<void()> run = encode;
    double moved = values_moved + frame_moved + map_moved;
    switch (call) {
    case Call::Encode:
        break;
    case Call::Decode:
        run = [&] {
            keep(gw_cuda_gcomp_decode(cuda, &codec, &encoded_frame, &target, &decode_request));
        };
        break;
    case Call::DecodeAdd:
        moved += values_moved;
        run = [&] {
            keep(gw_cuda_gcomp_decode_add(cuda, &codec, &encoded_frame, &target, &decode_request));
        };
        break;
    case Call::Hop:
        /* The new frame is about as long. The sums in the workspace are not counted as necessary traffic. */
        moved += frame_moved + (mode.quantum_mode == GW_GCOMP_DERIVED ? 0 : static_cast<double>(len));
        run = [&] {
            keep(gw_cuda_gcomp_decode_add_encode(cuda, &codec, &encoded_frame, &source, &hop_dst,
                                                 &hop_request));
        };
        break;
    }
    run_device_pairs(state, size, moved, 8.0 * frame_moved / static_cast<double>(len), cold, run);
    check(results, call == Call::Encode ? 0 : 1, "the call");
}

/* Tensors of a bucket: ranges of the data that begin with a chunk. */
std::vector<std::pair<size_t, size_t>> cut_bucket(size_t len, uint32_t chunk_log2)
{
    const size_t chunk = size_t{1} << chunk_log2, chunks = (len + chunk - 1) / chunk;
    const size_t count = std::min<size_t>(64, std::max<size_t>(chunks / 2, 1));
    std::vector<std::pair<size_t, size_t>> tensors;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        /* The first takes the rest. */
        const size_t share = count == 1 ? chunks : chunks / 2 / (count - 1);
        const size_t own = i == 0 ? chunks - share * (count - 1) : share;
        const size_t end = std::min(len, at + own * chunk);
        tensors.emplace_back(at, end - at);
        at = end;
    }
    return tensors;
}

void bench_hop_batch(benchmark::State &state, const std::string &name, const Mode &mode, size_t bytes,
                     bool cold)
{
    gw_cuda *const cuda = &the_device().cuda;
    const gw_bench_data &data = data_of(name, bytes);
    const size_t len = data.len;
    const gw_gcomp_options options = options_of(mode);
    gw_gcomp codec;
    keep(gw_gcomp_init(&codec, &options));
    const uint32_t log2 = data.map.chunk_log2;
    const auto tensors = cut_bucket(len, log2);
    const auto count = static_cast<uint32_t>(tensors.size());
    const size_t chunks = (len + (size_t{1} << log2) - 1) >> log2;
    const Memory values(4 * len, data.values), map_bytes(len, data.map_bytes),
        digest(4 * chunks, data.digest), results(2 * count * sizeof(gw_cuda_result));
    gw_cuda_result *const result = results.As<gw_cuda_result>();
    std::vector<size_t> place; /* of frames, in both areas */
    size_t room = 0;
    for (const auto &[first, tensor_len] : tensors) {
        place.push_back(room);
        room += (gw_gcomp_frame_bound(&codec, tensor_len) + 255) & ~size_t{255};
    }
    const Memory frames(room), sums(room);
    std::vector<gw_cuda_gcomp_item> items(count);
    std::vector<gw_cuda_gcomp_hop> hops(count);
    for (uint32_t i = 0; i < count; i++) {
        const auto [first, tensor_len] = tensors[i];
        const size_t bound = gw_gcomp_frame_bound(&codec, tensor_len);
        items[i] = {};
        items[i].src = values.As<float>() + first;
        items[i].src_size = tensor_len;
        items[i].dst = frames.As<uint8_t>() + place[i];
        items[i].dst_capacity = bound;
        items[i].map_bytes = map_bytes.As<uint8_t>() + first;
        items[i].digest = digest.As<uint32_t>() + (first >> log2);
        items[i].map_len = tensor_len;
        items[i].first_element = first;
        items[i].result = result + i;
        hops[i] = {};
        hops[i].src = items[i].dst;
        hops[i].src_size_at = &items[i].result->size;
        hops[i].src_size = bound;
        hops[i].values = items[i].src;
        hops[i].len = tensor_len;
        hops[i].first_element = first;
        hops[i].dst = sums.As<uint8_t>() + place[i];
        hops[i].dst_capacity = bound;
        hops[i].src_map_bytes = hops[i].map_bytes = items[i].map_bytes;
        hops[i].src_digest = hops[i].digest = items[i].digest;
        hops[i].src_map_len = hops[i].map_len = tensor_len;
        hops[i].result = result + count + i;
    }
    const Memory device_items(count * sizeof items[0], items.data()),
        device_hops(count * sizeof hops[0], hops.data());
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&codec, count, len),
                 hop_size = gw_cuda_gcomp_hop_workspace_size(&codec, count, len);
    const Memory workspace(std::max(encode_size, hop_size));
    const gw_cuda_gcomp_key key = {1, 0, 0, 0};
    const gw_cuda_gcomp_batch batch = {device_items.As<gw_cuda_gcomp_item>(), count, len, &data.map, &key, 0};
    const gw_cuda_gcomp_hop_batch hop_batch = {
        device_hops.As<gw_cuda_gcomp_hop>(), count, len, &data.map, &data.map, &key};
    const gw_cuda_gcomp_request encode_request = {
        nullptr, nullptr, {workspace.As<void>(), encode_size}, nullptr};
    const gw_cuda_gcomp_request hop_request = {nullptr, nullptr, {workspace.As<void>(), hop_size}, nullptr};
    keep(gw_cuda_gcomp_encode_batch(cuda, &codec, &batch, &encode_request));
    double frames_size = 0;
    for (uint32_t i = 0; i < count; i++) {
        gw_cuda_result encoded;
        check(results, i, "encode");
        the_device().Must(cuda_device_get(&the_device().device, &encoded, result + i, sizeof encoded),
                          "a copy");
        frames_size += static_cast<double>(encoded.size);
    }
    /* As for a single hop: values, map and frame in, a frame out. */
    run_device_pairs(state, 4 * len, 5.0 * static_cast<double>(len) + 2 * frames_size,
                     8.0 * frames_size / static_cast<double>(len), cold, [&] {
                         keep(gw_cuda_gcomp_decode_add_encode_batch(cuda, &codec, &hop_batch, &hop_request));
                     });
    for (uint32_t i = 0; i < count; i++) {
        check(results, count + i, "the call");
    }
}

/* ---- THC
 * ----------------------------------------------------------------------------------------------------- */

enum class Thc { Norms, Encode, Sum, Decode };
const std::pair<Thc, const char *> kThcCalls[] = {{Thc::Norms, "thc_norms"},
                                                  {Thc::Encode, "thc_encode"},
                                                  {Thc::Sum, "thc_sum"},
                                                  {Thc::Decode, "thc_decode"}};

void bench_thc(benchmark::State &state, Thc call, const std::string &name, size_t bytes, bool cold)
{
    gw_cuda *const cuda = &the_device().cuda;
    const gw_bench_data &data = data_of(name, bytes);
    const size_t len = data.len, size = 4 * len;
    const gw_thc_goal goal = {4, WORKERS, 8, 0};
    gw_thc_options options;
    gw_thc thc;
    gw_thc_agg agg;
    keep(gw_thc_options_init(&options, &goal, nullptr));
    keep(gw_thc_init(&thc, &options));
    const gw_thc_agg_options agg_options = {options.table, WORKERS, 8, GW_BACKEND_ALL};
    keep(gw_thc_agg_init(&agg, &agg_options));
    gw_thc_range range = {len, 0, gw_thc_block_count(&thc, len), 1, 0};
    const size_t blocks = range.block_count, indices_size = gw_thc_indices_size(&thc, len, 0, blocks),
                 lanes_size = gw_thc_lanes_size(&thc, len, 0, blocks),
                 lanes_len = static_cast<size_t>(gw_thc_range_lanes(&thc, len, 0, blocks));
    const std::vector<uint32_t> member_counts(blocks, WORKERS);
    const Memory x(size, data.values), out(size), patterns(4 * blocks),
        members(4 * blocks, member_counts.data()), lanes(lanes_size), results(sizeof(gw_cuda_result));
    gw_cuda_result *const result = results.As<gw_cuda_result>();
    std::vector<std::unique_ptr<Memory>> indices;
    const uint8_t *sources[WORKERS];
    uint32_t ranks[WORKERS];
    gw_thc_source source = {};
    source.values = x.As<void>();
    source.patterns = source.own_patterns = patterns.As<uint32_t>();
    const gw_cuda_thc_request request = {nullptr, GW_THC_SUM, result, nullptr};
    const gw_cuda_thc_inputs inputs = {sources, ranks, nullptr, WORKERS, 0};
    const gw_thc_sum summed = {lanes.As<void>(), lanes_size, members.As<uint32_t>(), patterns.As<uint32_t>()};
    const gw_cuda_target target = {out.As<void>(), len};
    const auto norms = [&] {
        keep(gw_cuda_thc_norms(cuda, &thc, &range, &source, patterns.As<uint32_t>(), &request));
    };
    const auto encode = [&](uint32_t worker) {
        range.rank = worker;
        const gw_cuda_buffer dst = {indices[worker]->As<void>(), indices_size};
        keep(gw_cuda_thc_encode(cuda, &thc, &range, &source, &dst, &request));
    };
    const auto sum = [&] {
        uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0};
        const gw_thc_partial partial = {lanes.As<uint8_t>(), set, lanes_len};
        keep(gw_cuda_thc_sum_indices(cuda, &agg, &partial, &inputs, nullptr));
    };
    norms();
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        indices.push_back(std::make_unique<Memory>(indices_size));
        sources[worker] = indices[worker]->As<uint8_t>();
        ranks[worker] = worker;
        encode(worker);
    }
    check(results, 0, "encode");
    sum();
    const double values_moved = 4.0 * static_cast<double>(len),
                 indices_moved = static_cast<double>(indices_size),
                 lanes_moved = static_cast<double>(lanes_size);
    std::function<void()> run;
    double moved = 0, bits = 0;
    switch (call) {
    case Thc::Norms:
        moved = values_moved;
        bits = 32.0 * static_cast<double>(blocks) / static_cast<double>(len);
        run = norms;
        break;
    case Thc::Encode:
        moved = values_moved + indices_moved;
        bits = 8.0 * indices_moved / static_cast<double>(len);
        run = [&] {
            encode(0);
        };
        break;
    case Thc::Sum:
        moved = WORKERS * indices_moved + lanes_moved;
        bits = 8.0 * lanes_moved / static_cast<double>(len);
        run = sum;
        break;
    case Thc::Decode:
        moved = lanes_moved + values_moved;
        bits = 8.0 * lanes_moved / static_cast<double>(len);
        run = [&] {
            keep(gw_cuda_thc_decode(cuda, &thc, &range, &summed, &target, &request));
        };
        break;
    }
    run_device_pairs(state, size, moved, bits, cold, run);
    check(results, 0, "the call");
}

template <typename F> std::function<void(benchmark::State &)> guarded(F body)
{
    return [=](benchmark::State &state) {
        try {
            body(state);
        } catch (const Failure &failure) {
            state.SkipWithError(failure.text.c_str());
        }
    };
}

} // namespace

bool add_cuda_benchmarks()
{
    Device &d = the_device();
    if (d.status != GW_OK) {
        std::fprintf(stderr, "gradwire_bench: backend cuda is NOT timed: %s\n", gw_status_message(d.status));
        return false;
    }
    benchmark::AddCustomContext("gpu", d.device.name);
    for (const Size &size : kSizes) {
        for (const auto &name : data_names()) {
            for (const bool cold : {true, false}) {
                const std::string end = std::string("/") + size.name + (cold ? "/cold" : "/hot");
                for (const Mode &mode : kModes) {
                    for (const auto &call : kCalls) {
                        add_benchmark(std::string(call.second) + "/cuda/" + name + "/" + mode.name + end,
                                      guarded([=](benchmark::State &state) {
                                          bench_gcomp(state, call.first, name, mode, size.bytes, cold);
                                      }));
                    }
                    add_benchmark("gcomp_hop_batch/cuda/" + name + "/" + mode.name + end,
                                  guarded([=](benchmark::State &state) {
                                      bench_hop_batch(state, name, mode, size.bytes, cold);
                                  }));
                }
                for (const auto &call : kThcCalls) {
                    add_benchmark(std::string(call.second) + "/cuda/" + name + "/b4n8u8" + end,
                                  guarded([=](benchmark::State &state) {
                                      bench_thc(state, call.first, name, size.bytes, cold);
                                  }));
                }
            }
        }
    }
    return true;
}
