/*
 * Calls of the classic codecs, each scheme in the ways that docs/results/classic.md speaks of.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <cstring>
#include <memory>

#include "bench_data.h"
#include "bench_pairs.h"
#include "gradwire/classic.h"

namespace
{

enum class ClassicCall { Encode, Decode, DecodeAdd };

const std::pair<ClassicCall, const char *> kClassicCalls[] = {{ClassicCall::Encode, "classic_encode"},
                                                              {ClassicCall::Decode, "classic_decode"},
                                                              {ClassicCall::DecodeAdd, "classic_decode_add"}};

/* A scheme and what differs from its usual options. */
struct Way {
    const char *name;
    gw_classic_scheme scheme;
    double ratio; /* of values sent, where the scheme selects */
    void (*change)(gw_classic_options *);
};

const Way kWays[] = {
    {"fp16", GW_CLASSIC_FP16, 1, nullptr},
    {"bf16", GW_CLASSIC_BF16, 1, nullptr},
    {"topk_1", GW_CLASSIC_TOPK, 0.01,
     [](gw_classic_options *o) {
         o->error_feedback = 0;
     }},
    {"topk_0.1", GW_CLASSIC_TOPK, 0.001,
     [](gw_classic_options *o) {
         o->error_feedback = 0;
     }},
    {"topk_10", GW_CLASSIC_TOPK, 0.1,
     [](gw_classic_options *o) {
         o->error_feedback = 0;
     }},
    {"topk_1_ef", GW_CLASSIC_TOPK, 0.01, nullptr},
    {"topk_1_fp16", GW_CLASSIC_TOPK, 0.01,
     [](gw_classic_options *o) {
         o->error_feedback = 0;
         o->values = GW_CLASSIC_VALUES_FP16;
     }},
    {"topk_1_ef_gcomp", GW_CLASSIC_TOPK, 0.01,
     [](gw_classic_options *o) {
         o->values = GW_CLASSIC_VALUES_GCOMP;
     }},
    {"dgc_1", GW_CLASSIC_DGC, 0.01, nullptr},
    {"dgc_0.1", GW_CLASSIC_DGC, 0.001, nullptr},
    {"randk_1", GW_CLASSIC_RANDK, 0.01, nullptr},
    {"signsgd", GW_CLASSIC_SIGNSGD, 1, nullptr},
    {"efsignsgd", GW_CLASSIC_EFSIGNSGD, 1, nullptr},
    {"signum", GW_CLASSIC_SIGNUM, 1, nullptr},
    {"onebit", GW_CLASSIC_ONEBIT, 1, nullptr},
    {"onebit_c1024", GW_CLASSIC_ONEBIT, 1,
     [](gw_classic_options *o) {
         o->block_len = 1024;
     }},
    {"qsgd4", GW_CLASSIC_QSGD, 1, nullptr},
    {"qsgd4_packed", GW_CLASSIC_QSGD, 1,
     [](gw_classic_options *o) {
         o->coding = GW_CLASSIC_CODING_PACKED;
     }},
    {"qsgd4_elias", GW_CLASSIC_QSGD, 1,
     [](gw_classic_options *o) {
         o->coding = GW_CLASSIC_CODING_ELIAS;
     }},
    {"qsgd127_packed", GW_CLASSIC_QSGD, 1,
     [](gw_classic_options *o) {
         o->level_max = 127;
         o->coding = GW_CLASSIC_CODING_PACKED;
     }},
    {"qsgd4_packed_ef", GW_CLASSIC_QSGD, 1,
     [](gw_classic_options *o) {
         o->coding = GW_CLASSIC_CODING_PACKED;
         o->error_feedback = 1;
     }},
    {"terngrad", GW_CLASSIC_TERNGRAD, 1, nullptr},
    {"terngrad_b512", GW_CLASSIC_TERNGRAD, 1,
     [](gw_classic_options *o) {
         o->block_len = 512;
     }},
    {"terngrad_mask", GW_CLASSIC_TERNGRAD, 1,
     [](gw_classic_options *o) {
         o->coding = GW_CLASSIC_CODING_MASK;
     }},
};

/* A handle with all memory of its calls, every byte of it written once. */
class ClassicJob
{
public:
    ClassicJob(uint32_t backends, const gw_bench_data &data, const Way &way)
        : data_(data), backends_(backends)
    {
        gw_classic_options options;
        Keep(gw_classic_options_init(&options, way.scheme));
        options.backends = backends;
        if (way.change != nullptr) {
            way.change(&options);
        }
        Keep(gw_classic_init(&classic_, &options));
        step_.len = data.len;
        step_.keep_len = gw_classic_keep_len(data.len, way.ratio);
        const uint32_t arrays = gw_classic_state_arrays(&classic_);
        residual_.assign((arrays & GW_CLASSIC_RESIDUAL) != 0 ? data.len : 0, 0.0f);
        momentum_.assign((arrays & GW_CLASSIC_MOMENTUM) != 0 ? data.len : 0, 0.0f);
        frame_.assign(gw_classic_frame_bound(&classic_, &step_), 1);
        out_.assign(data.len, 1.0f);
        workspace_.assign(gw_classic_workspace_size(&classic_, &step_), 1);
        Encode();
        gw_classic_frame_info info;
        Keep(gw_classic_frame_peek(frame_.data(), size_, &info));
        if (status == GW_OK && gw_classic_decode_workspace_size(&info) > workspace_.size()) {
            workspace_.assign(gw_classic_decode_workspace_size(&info), 1);
        }
    }

    double BitsPerValue() const
    {
        return 8.0 * static_cast<double>(size_) / static_cast<double>(data_.len);
    }

    std::vector<Touched> TouchedBy(ClassicCall call) const
    {
        std::vector<Touched> touched = {{frame_.data(), size_}};
        if (call == ClassicCall::Encode) {
            touched.push_back({data_.values, data_.len * 4});
            touched.push_back({residual_.data(), residual_.size() * 4});
            touched.push_back({momentum_.data(), momentum_.size() * 4});
        } else {
            touched.push_back({out_.data(), data_.len * 4});
        }
        return touched;
    }

    void Run(ClassicCall call)
    {
        if (call == ClassicCall::Encode) {
            Encode();
            return;
        }
        const gw_classic_frame frame = {frame_.data(), size_, data_.len, backends_};
        const gw_workspace workspace = {workspace_.data(), workspace_.size()};
        gw_classic_target target = {out_.data(), data_.len, 0, 0};
        Keep(call == ClassicCall::Decode ? gw_classic_decode(&frame, &target, &workspace)
                                         : gw_classic_decode_add(&frame, &target, &workspace));
    }

    gw_status status = GW_OK;

private:
    void Encode()
    {
        const gw_classic_source source = {data_.values, residual_.empty() ? nullptr : residual_.data(),
                                          momentum_.empty() ? nullptr : momentum_.data(), nullptr};
        const gw_workspace workspace = {workspace_.data(), workspace_.size()};
        gw_buffer dst = {frame_.data(), frame_.size(), 0};
        Keep(gw_classic_encode(&classic_, &step_, &source, &dst, &workspace));
        size_ = dst.size;
        step_.round++;
    }

    void Keep(gw_status s)
    {
        status = status == GW_OK ? s : status;
    }

    const gw_bench_data &data_;
    uint32_t backends_;
    gw_classic classic_;
    gw_classic_step step_ = {};
    std::vector<float> residual_, momentum_, out_;
    std::vector<uint8_t> frame_, workspace_;
    size_t size_ = 0;
};

void bench_classic_call(benchmark::State &state, ClassicCall call, uint32_t backend, const std::string &name,
                        const Way &way, size_t bytes, bool cold)
{
    const auto job = std::make_unique<ClassicJob>(backend, data_of(name, bytes), way);
    run_job(state, *job, call, job->BitsPerValue(), bytes, cold);
}

/* What decoding a sparse frame is compared with: the output cleared, and nothing else. */
void bench_clear(benchmark::State &state, size_t bytes, bool cold)
{
    std::vector<char> out(bytes, 1);
    Work work;
    work.size = bytes;
    work.bits_per_value = 32;
    work.run = [&] {
        std::memset(out.data(), 0, out.size());
    };
    work.touched = {{out.data(), out.size()}};
    work.cold = cold;
    run_pairs(state, work);
}

} // namespace

void add_classic_benchmarks()
{
    for (const Size &size : kSizes) {
        for (const bool cold : {true, false}) {
            const std::string end = std::string("/") + size.name + (cold ? "/cold" : "/hot");
            add_benchmark("classic_clear/memset/none/none" + end, [=](benchmark::State &state) {
                bench_clear(state, size.bytes, cold);
            });
            for (const auto &name : data_names()) {
                for (const Way &way : kWays) {
                    for (const auto &backend : backends()) {
                        for (const auto &call : kClassicCalls) {
                            add_benchmark(std::string(call.second) + "/" + backend.second + "/" + name + "/" +
                                              way.name + end,
                                          [=, &way](benchmark::State &state) {
                                              bench_classic_call(state, call.first, backend.first, name, way,
                                                                 size.bytes, cold);
                                          });
                        }
                    }
                }
            }
        }
    }
}
