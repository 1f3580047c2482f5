/*
 * Whole calls of the classic codecs: encode, decode and decode_add of one tensor. A family adds rows to
 * kModes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <memory>

#include "bench_data.h"
#include "bench_pairs.h"
#include "gradwire/classic.h"

namespace
{

enum class Call { Encode, Decode, DecodeAdd };

const std::pair<Call, const char *> kCalls[] = {{Call::Encode, "classic_encode"},
                                                {Call::Decode, "classic_decode"},
                                                {Call::DecodeAdd, "classic_decode_add"}};

struct Mode {
    const char *name;
    gw_classic_scheme scheme;
    int error_feedback;
    gw_classic_values values;
};

/* Sparse ones keep 1 %. */
const Mode kModes[] = {
    {"topk1", GW_CLASSIC_TOPK, 0, GW_CLASSIC_VALUES_FP32},
    {"topk1_ef", GW_CLASSIC_TOPK, 1, GW_CLASSIC_VALUES_FP32},
    {"topk1_ef_gcomp", GW_CLASSIC_TOPK, 1, GW_CLASSIC_VALUES_GCOMP},
    {"dgc1", GW_CLASSIC_DGC, 1, GW_CLASSIC_VALUES_FP32},
    {"randk1", GW_CLASSIC_RANDK, 0, GW_CLASSIC_VALUES_FP32},
};

const double kRatio = 0.01;

class Job
{
public:
    Job(uint32_t backends, const gw_bench_data &data, const Mode &mode) : data_(data), backends_(backends)
    {
        gw_classic_options options;
        Keep(gw_classic_options_init(&options, mode.scheme));
        options.backends = backends;
        options.error_feedback = mode.error_feedback;
        options.values = mode.values;
        Keep(gw_classic_init(&classic_, &options));
        const bool is_sparse = mode.scheme == GW_CLASSIC_TOPK || mode.scheme == GW_CLASSIC_DGC ||
                               mode.scheme == GW_CLASSIC_RANDK;
        step_ = {data.len, 0, is_sparse ? gw_classic_keep_len(data.len, kRatio) : 0, 0, 0};
        const uint32_t arrays = gw_classic_state_arrays(&classic_);
        residual_.assign((arrays & GW_CLASSIC_RESIDUAL) != 0 ? data.len : 0, 0.0f);
        momentum_.assign((arrays & GW_CLASSIC_MOMENTUM) != 0 ? data.len : 0, 0.0f);
        frame_.resize(gw_classic_frame_size_max(&classic_, &step_));
        workspace_.resize(gw_classic_workspace_size(&classic_, &step_));
        out_.assign(data.len, 1.0f);
        Run(Call::Encode);
        gw_classic_frame_info info;
        Keep(gw_classic_frame_peek(frame_.data(), size_, &info));
        const size_t decode_size = gw_classic_decode_workspace_size(&info);
        workspace_.resize(decode_size > workspace_.size() ? decode_size : workspace_.size());
    }

    double BitsPerValue() const
    {
        return 8.0 * static_cast<double>(size_) / static_cast<double>(data_.len);
    }

    std::vector<Touched> TouchedBy(Call call) const
    {
        const Touched frame = {frame_.data(), size_};
        if (call != Call::Encode) {
            return {frame, {out_.data(), data_.len * 4}};
        }
        return {{data_.values, data_.len * 4},
                {residual_.data(), residual_.size() * 4},
                {momentum_.data(), momentum_.size() * 4},
                frame};
    }

    void Run(Call call)
    {
        const gw_workspace workspace = {workspace_.data(), workspace_.size()};
        if (call == Call::Encode) {
            const gw_classic_source source = {data_.values, residual_.empty() ? nullptr : residual_.data(),
                                              momentum_.empty() ? nullptr : momentum_.data(), nullptr};
            gw_buffer dst = {frame_.data(), frame_.size(), 0};
            Keep(gw_classic_encode(&classic_, &step_, &source, &dst, &workspace));
            size_ = dst.size;
            step_.round++;
            return;
        }
        const gw_classic_frame frame = {frame_.data(), size_, data_.len, backends_};
        gw_classic_target target = {out_.data(), data_.len, 0, 1.0f};
        Keep(call == Call::Decode ? gw_classic_decode(&frame, &target, &workspace)
                                  : gw_classic_decode_add(&frame, &target, &workspace));
    }

    gw_status status = GW_OK;

private:
    void Keep(gw_status s)
    {
        status = s != GW_OK ? s : status;
    }

    const gw_bench_data &data_;
    uint32_t backends_;
    gw_classic classic_;
    gw_classic_step step_;
    std::vector<float> residual_, momentum_, out_;
    std::vector<uint8_t> frame_, workspace_;
    size_t size_ = 0;
};

void bench_call(benchmark::State &state, Call call, uint32_t backend, const std::string &name,
                const Mode &mode, size_t bytes, bool cold)
{
    const auto job = std::make_unique<Job>(backend, data_of(name, bytes), mode);
    Work work;
    work.size = bytes;
    work.bits_per_value = job->BitsPerValue();
    work.run = [&] {
        job->Run(call);
    };
    work.touched = job->TouchedBy(call);
    work.cold = cold;
    if (job->status == GW_OK) {
        run_pairs(state, work);
    }
    if (job->status != GW_OK) {
        state.SkipWithError(gw_status_message(job->status));
    }
}

} // namespace

void add_classic_benchmarks()
{
    for (const Size &size : kSizes) {
        for (const auto &name : data_names()) {
            for (const auto &backend : backends()) {
                for (const Mode &mode : kModes) {
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
}
