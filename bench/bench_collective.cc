/*
 * The collective layer's own cost: steps of an all-reduce of 4 ranks, in one thread, in turn with the calls
 * of the codec that they consist of. `speedup` below 1 is what the layer costs.
 *
 *   collective_encode   3 shards            gw_gcomp_encode() of their pieces
 *   collective_reduce   one shard           a copy of the own values, 3 decode_add, encode
 *   collective_decode   4 shards            gw_gcomp_decode() of their pieces
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <cstring>
#include <memory>

#include "bench_data.h"
#include "bench_modes.h"
#include "bench_pairs.h"
#include "gradwire/collective.h"

namespace
{

enum { RANKS = 4 };
enum class Step { Encode, Reduce, Decode };

const std::pair<Step, const char *> kSteps[] = {{Step::Encode, "collective_encode"},
                                                {Step::Reduce, "collective_reduce"},
                                                {Step::Decode, "collective_decode"}};

/* The last rank of four, whose values are all those of the data set. */
class Exchange
{
public:
    Exchange(uint32_t backends, const gw_bench_data &data, const Mode &mode) : data_(data), map_()
    {
        gw_gcomp_options options = options_of(mode);
        options.backends = backends;
        gw_collective_shape shape = {};
        shape.len = data.len;
        shape.rank_count = RANKS;
        Keep(gw_gcomp_init(&codec_, &options));
        Keep(gw_collective_layout_init(&layout_, &shape));
        digest_.resize(size_t{layout_.piece_count} * layout_.piece_chunks);
        map_ = {data.map_bytes, digest_.data(), data.map.base, data.map.wire_scale};
        bucket_.layout = &layout_;
        bucket_.codec = &codec_;
        bucket_.map = &map_;
        bucket_.values = data.values;
        bucket_.rank = RANKS - 1;
        bucket_.seed = 1;
        bound_ = gw_collective_message_bound(&layout_, &codec_);
        workspace_.resize(gw_gcomp_workspace_size(&codec_));
        sums_.assign(data.len, 0);
        frames_.assign(layout_.piece_count * bound_, 1);
        out_.assign(bound_, 1);
        messages_.resize(layout_.piece_count);
        for (uint32_t i = 0; i < layout_.piece_count && status == GW_OK; i++) {
            const gw_collective_piece piece = PieceAt(i);
            Keep(gw_gcomp_map_digest(data.map_bytes + piece.first, piece.len, layout_.shape.chunk_log2,
                                     digest_.data() + piece.digest_first));
            EncodePiece(i, true);
        }
    }

    /* By the layer, or by the codec alone. */
    void Run(Step step, bool by_layer)
    {
        for (uint32_t i = 0; i < layout_.piece_count; i++) {
            const bool is_own = i / layout_.shard_pieces == bucket_.rank;
            if (step == Step::Decode) {
                DecodePiece(i, by_layer);
            } else if (step == Step::Encode && !is_own) {
                EncodePiece(i, by_layer);
            } else if (step == Step::Reduce && is_own) {
                by_layer ? ReducePiece(i) : AddAndEncodePiece(i);
            }
        }
    }

    /* fp32 bytes of a step. */
    size_t SizeOf(Step step) const
    {
        const size_t shard = data_.len / RANKS * sizeof(float);
        return step == Step::Decode ? RANKS * shard : step == Step::Encode ? (RANKS - 1) * shard : shard;
    }

    double BitsPerValue() const
    {
        size_t size = 0;
        for (const gw_gcomp_frame &message : messages_) {
            size += message.size;
        }
        return 8.0 * static_cast<double>(size) / static_cast<double>(data_.len);
    }

    gw_status status = GW_OK;

private:
    void Keep(gw_status s)
    {
        status = s == GW_OK ? status : s;
    }

    gw_collective_piece PieceAt(uint32_t index)
    {
        gw_collective_piece piece = {};
        Keep(gw_collective_piece_at(&layout_, index, &piece));
        return piece;
    }

    gw_workspace Workspace()
    {
        return {workspace_.data(), workspace_.size()};
    }

    gw_gcomp_map MapOf(const gw_collective_piece &piece) const
    {
        return {
            map_.bytes + piece.first, map_.digest + piece.digest_first, map_.base, map_.wire_scale, piece.len,
            layout_.shape.chunk_log2};
    }

    void EncodeValues(const gw_collective_piece &piece, const float *values, uint16_t hop, gw_buffer *dst)
    {
        const gw_gcomp_map map = MapOf(piece);
        const gw_workspace workspace = Workspace();
        gw_gcomp_source source = {};
        source.values = values;
        source.len = piece.len;
        source.quantum = gw_gcomp_quantum_of_map(&map);
        source.seed = 1;
        source.first_element = piece.first;
        source.rank = RANKS - 1;
        source.hop = hop;
        Keep(gw_gcomp_encode(&codec_, &source, dst, &workspace));
    }

    void EncodePiece(uint32_t index, bool by_layer)
    {
        gw_buffer dst = {frames_.data() + index * bound_, bound_, 0};
        const gw_workspace workspace = Workspace();
        if (by_layer) {
            Keep(gw_collective_encode(&bucket_, index, &dst, &workspace));
        } else {
            const gw_collective_piece piece = PieceAt(index);
            EncodeValues(piece, data_.values + piece.first, 0, &dst);
        }
        messages_[index] = {dst.data, dst.size, nullptr};
    }

    void ReducePiece(uint32_t index)
    {
        const gw_workspace workspace = Workspace();
        const gw_gcomp_frame all[RANKS] = {messages_[index], messages_[index], messages_[index], {}};
        gw_buffer dst = {out_.data(), out_.size(), 0};
        gw_collective_failure failure;
        Keep(gw_collective_reduce(&bucket_, index, all, &dst, &failure, &workspace));
    }

    void AddAndEncodePiece(uint32_t index)
    {
        const gw_collective_piece piece = PieceAt(index);
        const gw_gcomp_map map = MapOf(piece);
        const gw_workspace workspace = Workspace();
        const gw_gcomp_frame frame = {messages_[index].data, messages_[index].size, &map};
        std::memcpy(sums_.data(), data_.values + piece.first, piece.len * sizeof(float));
        for (int i = 0; i < RANKS - 1; i++) {
            gw_gcomp_target target = {sums_.data(), piece.len, 0, 0, 0, 0};
            Keep(gw_gcomp_decode_add(&codec_, &frame, &target, &workspace));
        }
        gw_buffer dst = {out_.data(), out_.size(), 0};
        EncodeValues(piece, sums_.data(), 1, &dst);
    }

    void DecodePiece(uint32_t index, bool by_layer)
    {
        const gw_collective_piece piece = PieceAt(index);
        const gw_workspace workspace = Workspace();
        gw_gcomp_target target = {sums_.data() + piece.first, piece.len, 0, 0, 0, 0};
        if (by_layer) {
            gw_collective_failure failure;
            Keep(gw_collective_decode(&bucket_, index, &messages_[index], &target, &failure, &workspace));
            return;
        }
        const gw_gcomp_map map = MapOf(piece);
        const gw_gcomp_frame frame = {messages_[index].data, messages_[index].size, &map};
        Keep(gw_gcomp_decode(&codec_, &frame, &target, &workspace));
    }

    const gw_bench_data &data_;
    gw_gcomp codec_;
    gw_collective_layout layout_ = {};
    gw_collective_map map_;
    gw_collective_bucket bucket_ = {};
    size_t bound_ = 0;
    std::vector<uint32_t> digest_;
    std::vector<char> workspace_, frames_, out_;
    std::vector<float> sums_;
    std::vector<gw_gcomp_frame> messages_;
};

void bench_step(benchmark::State &state, Step step, uint32_t backend, const Mode &mode, size_t bytes)
{
    const auto exchange = std::make_unique<Exchange>(backend, data_of(data_names()[0], bytes), mode);
    Work work;
    work.size = exchange->SizeOf(step);
    work.bits_per_value = exchange->BitsPerValue();
    work.run = [&] {
        exchange->Run(step, true);
    };
    work.baseline = [&] {
        exchange->Run(step, false);
    };
    if (exchange->status == GW_OK) {
        run_pairs(state, work);
    }
    if (exchange->status != GW_OK) {
        state.SkipWithError(gw_status_message(exchange->status));
    }
}

} // namespace

void add_collective_benchmarks()
{
    const Size sizes[] = {
        {"256KiB", size_t{256} << 10}, {"4MiB", size_t{4} << 20}, {"25MiB", size_t{25} << 20}};
    for (const Size &size : sizes) {
        for (const auto &backend : backends()) {
            for (const Mode *mode : {&kModes[0], &kModes[1], &kModes[7]}) {
                for (const auto &step : kSteps) {
                    add_benchmark(std::string(step.second) + "/" + backend.second + "/" + data_names()[0] +
                                      "/" + mode->name + "/" + size.name,
                                  [=](benchmark::State &state) {
                                      bench_step(state, step.first, backend.first, *mode, size.bytes);
                                  });
                }
            }
        }
    }
}
