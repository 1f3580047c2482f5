/*
 * Public calls of GCOMP.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <algorithm>
#include <cstring>
#include <memory>

#include "bench_data.h"
#include "bench_modes.h"
#include "bench_pairs.h"
extern "C" {
#include "parallel_tasks.h"
}

namespace
{

/* A codec with all buffers of its calls, every byte of them written once. */
class Job
{
public:
    Job(uint32_t backends, const gw_bench_data &data, const Mode &mode, unsigned threads = 1)
        : data_(data), threads_(threads)
    {
        gw_gcomp_options options = options_of(mode);
        options.backends = backends;
        status = gw_gcomp_init(&codec_, &options);
        source_.values = data.values;
        source_.len = data.len;
        source_.quantum = gw_gcomp_quantum_of_map(&data.map);
        source_.seed = 1;
        workspace_.resize(threads * gw_gcomp_workspace_size(&codec_));
        frame_.resize(gw_gcomp_frame_bound(&codec_, data.len));
        hop_.resize(frame_.size());
        out_.assign(data.len, 1.0f);
        if (status == GW_OK) {
            Encode();
        }
        if (status == GW_OK) {
            const gw_gcomp_frame frame = Frame();
            status = gw_gcomp_frame_parse(&codec_, &frame, &info_);
        }
    }

    double BitsPerValue() const
    {
        return 8.0 * static_cast<double>(size_) / static_cast<double>(data_.len);
    }

    std::vector<Touched> TouchedBy(Call call) const
    {
        std::vector<Touched> touched = {
            {data_.values, data_.len * 4}, {data_.map_bytes, data_.len}, {frame_.data(), size_}};
        if (call == Call::Hop) {
            touched.push_back({hop_.data(), size_ + size_ / 8});
        } else if (call != Call::Encode) {
            touched.push_back({out_.data(), data_.len * 4});
        }
        return touched;
    }

    void Run(Call call)
    {
        const gw_gcomp_frame frame = Frame();
        const gw_workspace workspace = Workspace(0);
        gw_gcomp_target target = {out_.data(), data_.len, 0, 0, 0, 0};
        gw_buffer hop = {hop_.data(), hop_.size(), 0};
        switch (call) {
        case Call::Encode:
            Encode();
            break;
        case Call::Decode:
            Keep(gw_gcomp_decode(&codec_, &frame, &target, &workspace));
            break;
        case Call::DecodeAdd:
            Keep(gw_gcomp_decode_add(&codec_, &frame, &target, &workspace));
            break;
        case Call::Hop:
            Keep(gw_gcomp_decode_add_encode(&codec_, &frame, &source_, &hop, nullptr, &workspace));
            break;
        }
    }

    /* The same by chunk ranges in threads; a hop has no ranges. */
    void RunInThreads(Call call)
    {
        call_ = call;
        const uint64_t chunks = gw_gcomp_chunk_count(&codec_, data_.len),
                       align = gw_gcomp_range_align(&codec_);
        /* Four ranges per thread, so that an interrupted thread does not delay the others. */
        const uint64_t wanted = 4 * threads_;
        range_chunks_ = (chunks / wanted / align + 1) * align;
        const uint64_t ranges = (chunks + range_chunks_ - 1) / range_chunks_;
        parts_.resize(ranges);
        areas_.resize(ranges);
        for (uint64_t i = 0; call == Call::Encode && i < ranges; i++) {
            const gw_gcomp_range range = RangeOf(i);
            const size_t bound = gw_gcomp_range_bound(&codec_, data_.len, &range);
            if (areas_[i].size() < bound) {
                areas_[i].assign(bound, 1);
            }
            parts_[i] = {areas_[i].data(), areas_[i].size(), range, 0};
        }
        gw_parallel_tasks(
            threads_, ranges,
            [](void *self, unsigned worker, uint64_t range) {
                static_cast<Job *>(self)->RunRange(worker, range);
            },
            this, 0);
        if (call == Call::Encode) {
            gw_buffer dst = {frame_.data(), frame_.size(), 0};
            Keep(gw_gcomp_join_begin(&codec_, &source_, parts_.data(), parts_.size(), &dst));
            size_ = dst.size;
            gw_parallel_tasks(
                threads_, ranges,
                [](void *self, unsigned, uint64_t range) {
                    static_cast<Job *>(self)->MovePart(range);
                },
                this, 0);
        }
    }

    gw_status status = GW_OK;

private:
    void Keep(gw_status s)
    {
        if (s != GW_OK) {
            status = s; /* threads write this only on failure; any of the failures may win */
        }
    }

    void Encode()
    {
        gw_buffer dst = {frame_.data(), frame_.size(), 0};
        const gw_workspace workspace = Workspace(0);
        Keep(gw_gcomp_encode(&codec_, &source_, &dst, &workspace));
        size_ = dst.size;
    }

    gw_gcomp_frame Frame() const
    {
        return {frame_.data(), size_, &data_.map};
    }

    gw_workspace Workspace(unsigned worker)
    {
        const size_t size = workspace_.size() / threads_;
        return {workspace_.data() + worker * size, size};
    }

    gw_gcomp_range RangeOf(uint64_t range) const
    {
        const uint64_t first = range * range_chunks_;
        return {first, std::min(range_chunks_, gw_gcomp_chunk_count(&codec_, data_.len) - first)};
    }

    void MovePart(uint64_t range)
    {
        const gw_buffer dst = {frame_.data(), frame_.size(), size_};
        Keep(gw_gcomp_join_part(&codec_, &source_, parts_.data(), parts_.size(), range, &dst));
    }

    void RunRange(unsigned worker, uint64_t range)
    {
        const gw_workspace workspace = Workspace(worker);
        if (call_ == Call::Encode) {
            Keep(gw_gcomp_encode_range(&codec_, &source_, &parts_[range], &workspace));
            return;
        }
        const gw_gcomp_range chunks = RangeOf(range);
        const uint64_t value = chunks.chunk_first << info_.chunk_log2;
        const gw_gcomp_frame frame = Frame();
        gw_gcomp_target target = {out_.data() + value, data_.len - value, 0, 0, 0, 0};
        const auto decode = call_ == Call::Decode ? gw_gcomp_decode_range : gw_gcomp_decode_add_range;
        Keep(decode(&codec_, &frame, &info_, &chunks, &target, &workspace));
    }

    const gw_bench_data &data_;
    unsigned threads_;
    gw_gcomp codec_;
    gw_gcomp_source source_ = {};
    gw_gcomp_frame_info info_;
    std::vector<char> workspace_, frame_, hop_;
    std::vector<float> out_;
    size_t size_ = 0;
    Call call_ = Call::Encode;
    uint64_t range_chunks_ = 0;
    std::vector<gw_gcomp_part> parts_;
    std::vector<std::vector<char>> areas_;
};

bool failed(benchmark::State &state, const Job &job)
{
    if (job.status != GW_OK) {
        state.SkipWithError(gw_status_message(job.status));
    }
    return job.status != GW_OK;
}

void bench_call(benchmark::State &state, Call call, uint32_t backend, const std::string &name,
                const Mode &mode, size_t bytes, bool cold)
{
    const auto job = std::make_unique<Job>(backend, data_of(name, bytes), mode);
    run_job(state, *job, call, job->BitsPerValue(), bytes, cold);
}

void bench_threads(benchmark::State &state, Call call, uint32_t backend, const std::string &name,
                   const Mode &mode, size_t bytes, unsigned threads)
{
    const auto job = std::make_unique<Job>(backend, data_of(name, bytes), mode, threads);
    if (failed(state, *job)) {
        return;
    }
    Work work;
    work.size = bytes;
    work.bits_per_value = job->BitsPerValue();
    work.run = [&] {
        job->RunInThreads(call);
    };
    work.baseline = [&] {
        job->Run(call);
    };
    run_pairs(state, work);
    failed(state, *job);
}

} // namespace

void add_gcomp_benchmarks()
{
    for (const Size &size : kSizes) {
        for (const auto &name : data_names()) {
            for (const Mode &mode : kModes) {
                for (const auto &backend : backends()) {
                    for (const auto &call : kCalls) {
                        for (const bool cold : {true, false}) {
                            add_benchmark(std::string(call.second) + "/" + backend.second + "/" + name + "/" +
                                              mode.name + "/" + size.name + (cold ? "/cold" : "/hot"),
                                          [=](benchmark::State &state) {
                                              bench_call(state, call.first, backend.first, name, mode,
                                                         size.bytes, cold);
                                          });
                        }
                    }
                }
            }
        }
    }
    /* Small messages, where set-up dominates. */
    for (const Size &size : kSmallSizes) {
        for (const Mode *mode : {&kModes[0], &kModes[1], &kModes[2]}) {
            for (const auto &backend : backends()) {
                for (const auto &call : kCalls) {
                    add_benchmark("small_" + std::string(call.second) + "/" + backend.second + "/" +
                                      data_names()[0] + "/" + mode->name + "/" + size.name,
                                  [=](benchmark::State &state) {
                                      bench_call(state, call.first, backend.first, data_names()[0], *mode,
                                                 size.bytes, false);
                                  });
                }
            }
        }
    }
}

void add_gcomp_thread_benchmarks(unsigned threads)
{
    for (const Size &size : kSizes) {
        for (const auto &backend : backends()) {
            for (const Mode *mode : {&kModes[0], &kModes[1]}) {
                for (const auto &call : kCalls) {
                    if (call.first != Call::Hop) {
                        add_benchmark("threads" + std::to_string(threads) + "_" + call.second + "/" +
                                          backend.second + "/" + data_names()[0] + "/" + mode->name + "/" +
                                          size.name,
                                      [=](benchmark::State &state) {
                                          bench_threads(state, call.first, backend.first, data_names()[0],
                                                        *mode, size.bytes, threads);
                                      });
                    }
                }
            }
        }
    }
}
