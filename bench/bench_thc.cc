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
        const gw_thc_goal goal = {4, 8, 8, 0};
        gw_thc_options options;
        range_ = {data.len, 0, 0, 1, 0};
        Keep(gw_thc_options_init(&options, &goal, nullptr));
        options.backends = backends;
        const gw_thc_agg_options agg_options = {options.table, 8, 8, backends};
        Keep(gw_thc_init(&thc_, &options));
        Keep(gw_thc_agg_init(&agg_, &agg_options));
        range_.block_count = gw_thc_block_count(&thc_, data.len);
        norms_.assign(range_.block_count, 1);
        members_.assign(range_.block_count, 1);
        indices_.assign(gw_thc_indices_size(&thc_, data.len, 0, range_.block_count), 1);
        lanes_.assign(gw_thc_lanes_size(&thc_, data.len, 0, range_.block_count), 0);
        sums_.assign(lanes_.size(), 0);
        out_.assign(data.len, 1.0f);
        workspace_.resize(gw_thc_workspace_size(&thc_));
        Run(Call::Norms);
        Run(Call::Encode);
        uint8_t set[8] = {0};
        const gw_thc_partial sum = {lanes_.data(), set, lanes_.size()};
        Keep(gw_thc_agg_add_indices(&agg_, &sum, indices_.data(), 0));
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
        const gw_workspace workspace = {workspace_.data(), workspace_.size()};
        const gw_thc_source source = {data_.values, nullptr, norms_.data(), nullptr, nullptr};
        switch (call) {
        case Call::Norms:
            Keep(gw_thc_norms(&thc_, &range_, &source, norms_.data(), nullptr, &workspace));
            break;
        case Call::Encode: {
            gw_buffer dst = {indices_.data(), indices_.size(), 0};
            Keep(gw_thc_encode(&thc_, &range_, &source, &dst, nullptr, &workspace));
            break;
        }
        case Call::Sum: {
            /* Every run adds to the same lanes with an empty set; wrap-around does no harm. */
            uint8_t set[8] = {0};
            const gw_thc_partial sum = {sums_.data(), set, sums_.size()};
            Keep(gw_thc_agg_add_indices(&agg_, &sum, indices_.data(), 0));
            break;
        }
        case Call::Decode: {
            const gw_thc_sum sum = {lanes_.data(), lanes_.size(), members_.data(), norms_.data()};
            gw_thc_target target = {out_.data(), out_.size(), 0, 0, 0};
            Keep(gw_thc_decode(&thc_, &range_, &sum, GW_THC_SUM, &target, &workspace));
            break;
        }
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
    std::vector<uint8_t> indices_, lanes_, sums_, workspace_;
    std::vector<float> out_;
};

void bench_call(benchmark::State &state, Call call, uint32_t backend, const std::string &name, size_t bytes,
                bool cold)
{
    const auto job = std::make_unique<Job>(backend, data_of(name, bytes));
    run_job(state, *job, call, job->BitsPerValue(call), bytes, cold);
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
