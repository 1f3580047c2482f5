/*
 * Calls of THC's workers, server and receivers: 4 bits, blocks of 1024, lanes of 8 bits for 8 workers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <cstdlib>
#include <cstring>
#include <memory>

#include "bench_data.h"
#include "bench_pairs.h"
#include "gradwire/thc.h"

namespace
{

enum class Call { Norms, Encode, Sum, Decode };

const std::pair<Call, const char *> kCalls[] = {{Call::Norms, "thc_norms"},
                                                {Call::Encode, "thc_encode"},
                                                {Call::Sum, "thc_sum"},
                                                {Call::Decode, "thc_decode"}};

class Job
{
public:
    Job(uint32_t backends, const gw_bench_data &data) : data_(data)
    {
        gw_thc_config config;
        range_ = {data.len, 0, 0, 1, 0};
        Keep(gw_thc_config_default(&config, nullptr, 4, 8, 8, 0, nullptr, 0));
        Keep(gw_thc_init(&thc_, &config, backends));
        Keep(gw_thc_agg_init(&agg_, &config.table, 8, 8, backends));
        range_.block_count = gw_thc_block_count(&thc_, data.len);
        norms_.assign(range_.block_count, 1);
        members_.assign(range_.block_count, 1);
        indices_.assign(gw_thc_indices_size(&thc_, data.len, 0, range_.block_count), 1);
        lanes_.assign(gw_thc_lanes_size(&thc_, data.len, 0, range_.block_count), 0);
        sums_.assign(lanes_.size(), 0);
        out_.assign(data.len, 1.0f);
        workspace_.resize(gw_thc_workspace_size(&thc_) / sizeof(float));
        Run(Call::Norms);
        Run(Call::Encode);
        uint8_t set[8] = {0};
        Keep(gw_thc_agg_add_indices(&agg_, lanes_.data(), set, lanes_.size(), indices_.data(), 0));
    }

    double BitsPerValue(Call call) const
    {
        const double len = static_cast<double>(data_.len);
        return call == Call::Norms    ? 32.0 * static_cast<double>(norms_.size()) / len
               : call == Call::Encode ? 8.0 * static_cast<double>(indices_.size()) / len
                                      : 8.0 * static_cast<double>(lanes_.size()) / len;
    }

    std::vector<Touched> TouchedBy(Call call) const
    {
        const Touched values = {data_.values, data_.len * 4}, indices = {indices_.data(), indices_.size()};
        switch (call) {
        case Call::Norms:
            return {values};
        case Call::Encode:
            return {values, indices};
        case Call::Sum:
            return {indices, {sums_.data(), sums_.size()}};
        case Call::Decode:
            break;
        }
        return {{lanes_.data(), lanes_.size()}, {out_.data(), data_.len * 4}};
    }

    void Run(Call call)
    {
        void *const workspace = workspace_.data();
        const size_t room = workspace_.size() * sizeof(float);
        switch (call) {
        case Call::Norms:
            Keep(
                gw_thc_norms(&thc_, &range_, data_.values, nullptr, norms_.data(), workspace, room, nullptr));
            break;
        case Call::Encode:
            Keep(gw_thc_encode(&thc_, &range_, data_.values, nullptr, norms_.data(), indices_.data(),
                               indices_.size(), workspace, room, nullptr));
            break;
        case Call::Sum: {
            /* Every run adds to the same lanes with an empty set; wrap-around does no harm. */
            uint8_t set[8] = {0};
            Keep(gw_thc_agg_add_indices(&agg_, sums_.data(), set, sums_.size(), indices_.data(), 0));
            break;
        }
        case Call::Decode:
            Keep(gw_thc_decode(&thc_, &range_, lanes_.data(), lanes_.size(), members_.data(), norms_.data(),
                               GW_THC_SUM, out_.data(), out_.size() * sizeof(float), workspace, room, nullptr,
                               nullptr));
            break;
        }
    }

    gw_status status = GW_OK;

private:
    void Keep(gw_status s)
    {
        status = s != GW_OK ? s : status;
    }

    const gw_bench_data &data_;
    gw_thc thc_;
    gw_thc_agg agg_;
    gw_thc_range range_;
    std::vector<uint32_t> norms_, members_;
    std::vector<uint8_t> indices_, lanes_, sums_;
    std::vector<float> out_, workspace_;
};

void bench_call(benchmark::State &state, Call call, uint32_t backend, const std::string &name, size_t bytes,
                bool cold)
{
    const auto job = std::make_unique<Job>(backend, data_of(name, bytes));
    Work work;
    work.size = bytes;
    work.bits_per_value = job->BitsPerValue(call);
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

void add_thc_benchmarks()
{
    for (const Size &size : kSizes) {
        for (const auto &name : data_names()) {
            for (const auto &backend : backends()) {
                for (const auto &call : kCalls) {
                    for (const bool cold : {true, false}) {
                        add_benchmark(std::string(call.second) + "/" + backend.second + "/" + name +
                                          "/b4n8u8/" + size.name + (cold ? "/cold" : "/hot"),
                                      [=](benchmark::State &state) {
                                          bench_call(state, call.first, backend.first, name, size.bytes,
                                                     cold);
                                      });
                    }
                }
            }
        }
    }
    for (const Size &size : kSmallSizes) {
        for (const auto &backend : backends()) {
            for (const auto &call : kCalls) {
                add_benchmark("small_" + std::string(call.second) + "/" + backend.second + "/" +
                                  data_names()[0] + "/b4n8u8/" + size.name,
                              [=](benchmark::State &state) {
                                  bench_call(state, call.first, backend.first, data_names()[0], size.bytes,
                                             false);
                              });
            }
        }
    }
}
