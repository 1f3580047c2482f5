/*
 * Codebooks of the groups of an encode, counted over a sample (preset fast) or all values (preset small); the
 * first steps of a batch.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_codebook.cuh"
#include "cuda/gcomp_items.cuh"
#include "cuda/gcomp_quanta.cuh"

struct alignas(128) gw_survey_state {
    alignas(128) uint8_t exchange[GW_WARPS * 2048]; /* at last the tree */
    uint32_t bin[1024];
    uint32_t mask_count[16]; /* by class */
    gw_codebook_state codebook;
    uint64_t group;
    uint32_t item, status;
    uint8_t quanta[2048]; /* histograms of carried frames: of the chunk, or of all chunks of a group */
};

/* The drop_offsets of these chunks, at most 128. Histograms make no code lengths, so they are where those
 * would be made. */
GW_DEVICE int32_t *gw_survey_drop_offsets(gw_survey_state &s)
{
    static_assert(sizeof s.codebook.row >= 128 * sizeof(int32_t), "a group has 128 chunks of 2^10 values");
    return (int32_t *)s.codebook.row[0];
}

static_assert(sizeof(gw_cuda_tree) + sizeof(gw_tree_scratch) <= GW_WARPS * 2048 &&
                  sizeof(gw_quanta_state) <= GW_WARPS * 2048 &&
                  sizeof(gw_survey_state) <= GW_CUDA_SURVEY_SHARED_SIZE,
              "the host reserves enough");

/*
 * Calls sink(bin, map byte, its drop_offset) for values first + i, i < len, i mod period < 64. A thread takes
 * 32 values at a time. Returns the classes of the thread's bytes of the zero mask, counted by
 * gw_mask_class_bit().
 */
template <uint32_t DTYPE, bool DERIVED, typename SINK>
GW_DEVICE uint64_t gw_survey(gw_survey_state &s, const gw_cuda_rounder &r, uint64_t first, uint32_t len,
                             uint32_t period, SINK sink)
{
    constexpr uint32_t BATCH = 64 / gw_type<DTYPE>::SIZE;
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t stage = gw_place_of(s.exchange) + 2048 * warp;
    uint64_t classes = 0;
    uint32_t mask = 0;
    GW_NO_UNROLL
    for (uint32_t half = 32 * warp;; half += GW_THREADS) {
        /* Half runs: two to a period. */
        if ((uint64_t)(half >> 1) * period >= len) { /* the lane with the first values of the warp has none */
            break;
        }
        const uint64_t at = (uint64_t)((half + lane) >> 1) * period + 32 * (lane & 1);
        const uint32_t valid = gw_left_of<uint64_t>(len, at, 32);
        uint32_t k[8];
        GW_UNROLL
        for (int j = 0; j < 8; j++) {
            k[j] = 0;
        }
        int32_t drop_offset = r.from.drop_offset;
        if (r.rule.has_map && valid != 0) {
            if (r.from.drop_offsets != nullptr) {
                drop_offset = r.from.drop_offsets[(first + at) >> r.from.chunk_log2];
            }
            gw_load_map<DTYPE>(k, r.from, drop_offset, first + at, valid);
        }
        gw_cuda_random random = gw_random_begin(r, first + at);
        GW_UNROLL
        for (uint32_t batch = 0; batch < 32 / BATCH; batch++) {
            uint32_t v[16];
            gw_load_batch<DTYPE>(v, stage, r.from.values, r.from.len, batch, [=](uint32_t owner) {
                return first + (uint64_t)((half + owner) >> 1) * period + 32 * (owner & 1);
            });
            GW_UNROLL
            for (uint32_t j = 0; j < BATCH / 4; j++) {
                const uint32_t quad = batch * (BATCH / 4) + j;
                uint32_t words[4];
                gw_random_next(words, r, random);
                GW_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    /* Window 0 is as good as any: only the rounded bits and the drop steps are used. */
                    const gw_rounded x =
                        gw_round_value<DTYPE, DERIVED>(r, drop_offset, gw_batch_value<DTYPE>(v, 4 * j + i),
                                                       k[quad] >> 8 * i & 255, words[i], 0);
                    if (4 * quad + i < valid) {
                        sink(gw_bin_of<DTYPE, DERIVED>(x), k[quad] >> 8 * i & 255, drop_offset);
                        mask |= (uint32_t)(x.bits != 0) << (4 * (quad & 1) + i);
                    }
                }
                if ((quad & 1) != 0) {
                    classes += 4 * (quad - 1) < valid ? gw_mask_class_bit(mask) : 0;
                    mask = 0;
                }
            }
        }
    }
    return classes;
}

/* The bin with a relative exponent. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_turned_bin(uint32_t bin, uint32_t k, int32_t drop_offset)
{
    const bool ordinary = (gw_type<DTYPE>::IS_FP16 || bin >= 4) && bin < 4 * gw_type<DTYPE>::SPECIAL;
    return ordinary ? 4 * gw_cuda_exponent_turn<DTYPE>(bin >> 2, gw_cuda_turn_of<DTYPE>(k, drop_offset))
                    : bin;
}

/* gw_group_choose_relative() of core for values first + i, i < len, of derived frames with dead zone: 1 for
 * relative exponents. About 1024 values are counted either way. Leaves s.bin zero; begins and ends with a
 * barrier. */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_choose_relative(gw_survey_state &s, const gw_cuda_rounder &r, uint64_t first,
                                      uint32_t len)
{
    const uint32_t t = threadIdx.x, period = 64u << (len < 2048 ? 0 : 31 - __clz(len / 1024));
    __syncthreads();
    gw_survey<DTYPE, true>(s, r, first, len, period, [&](uint32_t bin, uint32_t k, int32_t drop_offset) {
        const uint32_t turned = gw_turned_bin<DTYPE>(bin, k, drop_offset);
        atomicAdd(&s.bin[gw_cuda_label_of_bin(bin, DTYPE, true, 0)], 1u);
        atomicAdd(&s.bin[256 + gw_cuda_label_of_bin(turned, DTYPE, true, 0)], 1u);
    });
    __syncthreads();
    const uint64_t plain = gw_cuda_labels_cost(t == 0 ? 0 : s.bin[t], s.codebook.sums);
    const uint64_t turned = gw_cuda_labels_cost(t == 0 ? 0 : s.bin[256 + t], s.codebook.sums);
    s.bin[t] = 0;
    s.bin[256 + t] = 0;
    __syncthreads();
    return turned < plain;
}

/* The codebook of the counts in s.codebook.count and s.mask_count, of a sample or of all values; with or
 * without a mask, whichever takes fewer bits. chunk_len: values of the first chunk. Begins and ends with a
 * barrier.
 */
GW_DEVICE void gw_codebook_choose(gw_survey_state &s, uint32_t chunk_len, bool is_sample)
{
    const uint32_t t = threadIdx.x;
    gw_codebook_state &b = s.codebook;
    uint32_t len;
    gw_block_scan(b.count[t], b.sums, &len);
    uint32_t count = b.count[t], mask_count = t < GW_MASK_CLASSES ? s.mask_count[t] : 0;
    const uint32_t zeros = b.count[0];
    /* Chunks of zeros only have no code at all. */
    const bool is_masked =
        (is_sample || zeros != len) &&
        gw_cuda_is_mask_better(count, mask_count, zeros, len,
                               256 * (uint64_t)GW_MASK_OVERHEAD_BITS * len / chunk_len, b.sums);
    if (is_sample) { /* what it did not see may still come */
        count += t < 2 && count == 0;
        mask_count += mask_count == 0;
    }
    gw_cuda_codebook_make(b, count, mask_count, is_masked);
}

GW_DEVICE void gw_survey_clear(gw_survey_state &s)
{
    const uint32_t t = threadIdx.x;
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        s.bin[GW_THREADS * i + t] = 0;
    }
    if (t < 16) {
        s.mask_count[t] = 0;
    }
}

/* Codebook of one group into p.codebooks. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_codebook_group(gw_survey_state &s, const gw_gcomp_encode_params &p)
{
    typedef gw_type<DTYPE> type;
    const uint32_t t = threadIdx.x;
    const gw_cuda_gcomp_item &item = gw_item_of(p.work, s.item);
    if (t == 0) {
        s.status = gw_item_status(p.work, item);
    }
    gw_survey_clear(s);
    __syncthreads();
    if (s.status != GW_OK) {
        return;
    }
    const uint32_t group_log2 = gw_group_log2(p.work.codec);
    const uint64_t first = (s.group - gw_first_of(p.group_first, s.item)) << group_log2;
    const uint32_t len = gw_at_most(item.src_size - first, 1u << group_log2);
    uint32_t blocks = len / 4096;
    blocks = p.work.codec.preset != 0 || blocks < 1 ? 1 : blocks > 16 ? 16 : 1u << (31 - __clz(blocks));
    gw_cuda_source source = gw_source_of(p.work, item);
    if (DERIVED) {
        gw_source_carry(source, p, gw_first_of(p.unit_first, s.item));
    }
    const gw_cuda_rounder r = {p.work.rounding, source};
    uint32_t window_start = 0;
    if (DERIVED && p.work.rounding.dead_zone) {
        window_start = gw_choose_relative<DTYPE>(s, r, first, len);
    }
    const uint64_t classes = gw_survey<DTYPE, DERIVED>(
        s, r, first, len, 64 * blocks, [&](uint32_t bin, uint32_t k, int32_t drop_offset) {
            const bool is_turned = DERIVED && window_start != 0;
            atomicAdd(&s.bin[is_turned ? gw_turned_bin<DTYPE>(bin, k, drop_offset) : bin], 1u);
        });
    gw_mask_add_classes(s.mask_count, classes);
    __syncthreads();

    gw_codebook_state &b = s.codebook;
    if (!DERIVED && !type::IS_FP16) {
        window_start = gw_window_of(gw_largest_exponent(b.sums, type::SPECIAL, [&](uint32_t bin) {
            return s.bin[bin] != 0;
        }));
    }
    b.count[t] = 0;
    __syncthreads();
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t count = s.bin[4 * t + i];
        if (count != 0) {
            atomicAdd(&b.count[gw_cuda_label_of_bin(4 * t + i, DTYPE, DERIVED, window_start)], count);
        }
    }
    __syncthreads();
    if (t == 0) {
        b.window_start = window_start;
    }
    gw_codebook_choose(s, gw_at_most(len, 1u << p.work.codec.chunk_log2), blocks > 1);
    const uint32_t crc = gw_cuda_crc32c(0, b.size >> 2, b.sums, [&](uint64_t i) {
        return gw_read32(b.bytes + 4 * i);
    });
    gw_cuda_group_codebook &out = p.codebooks[s.group];
    gw_cuda_tree &tree = *(gw_cuda_tree *)(void *)s.exchange;
    gw_cuda_codebook_place_leaves(tree, b);
    gw_cuda_tree_build(tree, *(gw_tree_scratch *)(void *)(s.exchange + sizeof tree));
    gw_tree_store(out.tree, tree);
    if (t < GW_CUDA_CODEBOOK_SIZE_MAX) {
        out.bytes[t] = b.bytes[t];
    }
    if (t == 0) {
        out.window_start = window_start;
        out.size = b.size;
        out.crc = crc;
    }
}

template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_codebook_all(const gw_gcomp_encode_params &p)
{
    gw_survey_state &s = GW_SHARED(gw_survey_state);
    const uint64_t groups = p.work.items == nullptr ? p.group_total : p.group_first[p.work.item_count];
    GW_NO_UNROLL
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) {
            s.group = gw_atomic_add64(&p.head->group_ticket, 1);
            s.item = p.work.items != nullptr && s.group < groups
                         ? gw_item_find(p.group_first, p.work.item_count, s.group)
                         : 0;
        }
        __syncthreads();
        if (s.group >= groups) {
            break;
        }
        gw_codebook_group<DTYPE, DERIVED>(s, p);
    }
}

/* ---- first steps of batches ---------------------------------------------------------------------------- */

struct gw_count_state {
    uint32_t sums[GW_WARPS];
    uint64_t unit_end, group_end; /* where the first item that the workspace has no room for would begin */
};

/* Units and groups of the items before. */
struct gw_count {
    uint64_t units, groups;
};

/*
 * First units and groups of the items i, a thread's each, which have len values to encode; by one block, tile
 * by tile. False for items that do not fit the workspace: these, and all after them, have no units.
 * has_room: whether the rest of the workspace has room for the item; once false, false for all after it.
 */
GW_DEVICE bool gw_count_items(gw_count_state &s, gw_count &before, const gw_gcomp_encode_params &p,
                              uint32_t i, uint64_t len, bool has_room)
{
    const uint32_t group_log2 = gw_group_log2(p.work.codec), chunk_log2 = p.work.codec.chunk_log2;
    uint64_t unit_count = 0, group_count = 0;
    if (i < p.work.item_count) {
        unit_count = len == 0 ? 1 : (len + ((uint64_t)1 << chunk_log2) - 1) >> chunk_log2;
        group_count = (len + ((uint64_t)1 << group_log2) - 1) >> group_log2;
    }
    uint32_t total[4];
    const uint64_t units_low = gw_block_scan((uint32_t)(unit_count & 0xffff), s.sums, &total[0]);
    const uint64_t units_high = gw_block_scan((uint32_t)(unit_count >> 16), s.sums, &total[1]);
    const uint64_t groups_low = gw_block_scan((uint32_t)(group_count & 0xffff), s.sums, &total[2]);
    const uint64_t groups_high = gw_block_scan((uint32_t)(group_count >> 16), s.sums, &total[3]);
    const uint64_t unit = before.units + units_low + (units_high << 16);
    const uint64_t group = before.groups + groups_low + (groups_high << 16);
    /* Sums only grow, so no item after the first that does not fit fits. */
    const bool fits = has_room && unit + unit_count <= p.unit_total && group + group_count <= p.group_total;
    if (i < p.work.item_count && !fits) {
        gw_atomic_min64(&s.unit_end, unit);
        gw_atomic_min64(&s.group_end, group);
    }
    __syncthreads();
    if (i < p.work.item_count) {
        p.unit_first[i] = unit < s.unit_end ? unit : s.unit_end;
        p.group_first[i] = group < s.group_end ? group : s.group_end;
    }
    before.units += total[0] + ((uint64_t)total[1] << 16);
    before.groups += total[2] + ((uint64_t)total[3] << 16);
    return fits;
}

GW_DEVICE void gw_count_end(const gw_count_state &s, const gw_count &all, const gw_gcomp_encode_params &p)
{
    if (threadIdx.x == 0) {
        p.unit_first[p.work.item_count] = all.units < s.unit_end ? all.units : s.unit_end;
        p.group_first[p.work.item_count] = all.groups < s.group_end ? all.groups : s.group_end;
    }
}

/* First units and groups of all items of a batch. One block. Items beyond what the host counted: LIMIT. */
GW_KERNEL(gw_device_gcomp_count, gw_gcomp_encode_params, 256, 1)
{
    gw_count_state &s = GW_SHARED(gw_count_state);
    gw_count all = {0, 0};
    if (threadIdx.x == 0) {
        s.unit_end = s.group_end = ~(uint64_t)0;
    }
    GW_NO_UNROLL
    for (uint32_t at = 0; at < p.work.item_count; at += GW_THREADS) {
        const uint32_t i = at + threadIdx.x;
        const bool is_item = i < p.work.item_count;
        const uint64_t len =
            is_item && gw_item_status(p.work, p.work.items[i]) == GW_OK ? p.work.items[i].src_size : 0;
        if (!gw_count_items(s, all, p, i, len, true) && is_item) {
            gw_item_fail(p.work.items[i], GW_ERR_LIMIT);
        }
    }
    gw_count_end(s, all, p);
}

/*
 * Items of the decode (frame + values -> sums in the workspace) and of the encode (sums -> frame) of all
 * hops, the place of the sums of each, and first units and groups of the encode. One block. Hops that cannot
 * be encoded, or that the workspace has no room for, are over before their frames are looked at.
 */
GW_KERNEL(gw_device_gcomp_hop_items, gw_gcomp_hop_params, 256, 1)
{
    gw_count_state &s = GW_SHARED(gw_count_state);
    const gw_cuda_codec &codec = p.out.work.codec;
    const uint32_t item_count = p.out.work.item_count;
    const uint64_t room = p.sums_size >> 4;
    gw_count all = {0, 0};
    uint64_t used = 0; /* of 16 bytes each by the hops before; room + 1: more than there is */
    if (threadIdx.x == 0) {
        s.unit_end = s.group_end = ~(uint64_t)0;
    }
    GW_NO_UNROLL
    for (uint32_t at = 0; at < item_count; at += GW_THREADS) {
        const uint32_t i = at + threadIdx.x;
        gw_cuda_gcomp_item out = {};
        uint32_t status = GW_ERR_ARG;
        uint64_t size = 0;
        if (i < item_count) {
            const gw_cuda_gcomp_hop &hop = p.hops[i];
            out.src = hop.values;
            out.src_size = hop.len;
            out.dst = hop.dst;
            out.dst_capacity = hop.dst_capacity;
            out.map_bytes = hop.map_bytes;
            out.digest = hop.digest;
            out.map_len = hop.map_len;
            out.first_element = hop.first_element;
            out.after = hop.after;
            out.result = hop.result;
            status = gw_item_status(p.out.work, out);
            if (status == GW_OK) {
                size = (hop.len * gw_type_size(codec.dtype) + 15) >> 4;
                size = size <= room ? size : room + 1;
            }
        }
        uint64_t total; /* room + 1 is below 2^48 */
        const uint64_t place = used + gw_block_scan64<24>(size, s.sums, &total);
        used += total;
        used = used <= room ? used : room + 1;
        const bool fits =
            gw_count_items(s, all, p.out, i, status == GW_OK ? out.src_size : 0, place + size <= room);
        if (i < item_count) {
            const gw_cuda_gcomp_hop &hop = p.hops[i];
            if (!fits) {
                status = GW_ERR_LIMIT;
                gw_item_fail(out, status);
            }
            /* Both items come after this: the decode, which puts its result here, too, and the encode. */
            p.between[i] = gw_failure_of(out, status);
            void *const sums = status == GW_OK ? p.sums + 16 * place : nullptr;
            gw_cuda_gcomp_item in = {};
            in.src = hop.src;
            in.src_size_at = hop.src_size_at;
            in.src_size = hop.src_size;
            in.dst = sums;
            in.dst_capacity = hop.len;
            in.addend = hop.values;
            in.map_bytes = hop.src_map_bytes;
            in.digest = hop.src_digest;
            in.map_len = hop.src_map_len;
            in.after = in.result = p.between + i;
            out.src = sums;
            out.after = p.between + i;
            p.in_items[i] = in;
            p.out_items[i] = out;
        }
    }
    gw_count_end(s, all, p.out);
}

GW_KERNELS_BY_MODE(gw_device_gcomp_codebook, gw_gcomp_encode_params, gw_codebook_all)

/* ---- histograms ---------------------------------------------------------------------------------------- */

/* First chunks of all items of a batch; those that are refused, or have no values, have none. One block. */
GW_KERNEL(gw_device_gcomp_histogram_items, gw_gcomp_histogram_params, 256, 1)
{
    gw_count_state &s = GW_SHARED(gw_count_state);
    const uint32_t log2 = p.work.codec.chunk_log2;
    uint64_t chunks = 0;
    GW_NO_UNROLL
    for (uint32_t at = 0; at < p.work.item_count; at += GW_THREADS) {
        const uint32_t i = at + threadIdx.x;
        uint64_t count = 0;
        if (i < p.work.item_count) {
            const gw_cuda_gcomp_item &item = p.work.items[i];
            if (gw_histogram_status(p.work, item) == GW_OK) {
                count = (item.src_size + ((uint64_t)1 << log2) - 1) >> log2;
                p.chunks_before[i] = ((const gw_cuda_gcomp_histogram *)item.dst)->chunk_count;
            }
        }
        uint64_t total; /* a count is at most 2^36 */
        const uint64_t before = gw_block_scan64<16>(count, s.sums, &total);
        if (i < p.work.item_count) {
            p.chunk_first[i] = chunks + before;
        }
        chunks += total;
    }
    if (threadIdx.x == 0) {
        p.chunk_first[p.work.item_count] = chunks;
    }
}

/* Results of all items and chunks of their histograms, when all `units` chunks are counted; chunks_before: of
 * the histogram of a single item. By one block. */
GW_DEVICE void gw_histogram_report(const gw_gcomp_histogram_params &p, uint64_t chunks_before, uint64_t units)
{
    GW_NO_UNROLL
    for (uint32_t i = threadIdx.x; i < p.work.item_count; i += GW_THREADS) {
        const gw_cuda_gcomp_item &item = gw_item_of(p.work, i);
        const uint32_t status = gw_histogram_status(p.work, item);
        if (status != GW_OK) {
            gw_item_fail(item, status);
            continue;
        }
        /* Items that share a histogram write the same. */
        ((gw_cuda_gcomp_histogram *)item.dst)->chunk_count =
            (p.work.items != nullptr ? p.chunks_before[i] : chunks_before) + units;
        const gw_cuda_result result = {GW_OK, 0, 0, item.src_size, ~(uint64_t)0, 0};
        *item.result = result;
    }
}

/* Notes in the histogram of the item whether its first group would have relative exponents. All chunks of an
 * item come after its first, of number `chunk`, whatever histogram they are counted in. */
template <uint32_t DTYPE>
GW_DEVICE void gw_histogram_choose(gw_survey_state &s, const gw_gcomp_histogram_params &p,
                                   const gw_cuda_rounder &r, uint64_t chunk)
{
    const gw_cuda_gcomp_item &item = gw_item_of(p.work, s.item);
    const uint32_t len = gw_at_most(item.src_size, 1u << gw_group_log2(p.work.codec));
    const uint32_t relative = gw_choose_relative<DTYPE>(s, r, 0, len);
    if (threadIdx.x == 0) {
        gw_atomic_max64(&((gw_cuda_gcomp_histogram *)item.dst)->first_relative, ~(chunk << 1 | relative));
    }
}

/* Carried: quanta of values first + i, i < len, a group at most, to s.quanta, and their drop_offsets; the
 * source then begins with them. Begins and ends with a barrier. */
template <uint32_t DTYPE>
GW_DEVICE void gw_histogram_carry(gw_survey_state &s, const gw_gcomp_histogram_params &p,
                                  gw_cuda_source &source, uint64_t first, uint32_t len)
{
    const gw_cuda_gcomp_item &item = gw_item_of(p.work, s.item);
    gw_quanta_state &state = *(gw_quanta_state *)(void *)s.exchange;
    const uint32_t chunk_len = 1u << p.work.codec.chunk_log2;
    GW_NO_UNROLL
    for (uint32_t at = 0; at < len; at += chunk_len) {
        const int32_t drop_offset = gw_quanta_chunk<DTYPE>(state, p.work.codec, p.work.map, item, first + at,
                                                           len - at < chunk_len ? len - at : chunk_len,
                                                           s.quanta + (at >> p.work.codec.block_log2));
        if (threadIdx.x == 0) {
            gw_survey_drop_offsets(s)[at >> p.work.codec.chunk_log2] = drop_offset;
        }
    }
    __syncthreads();
    source.values = (const uint8_t *)item.src + first * gw_type<DTYPE>::SIZE;
    source.len = item.src_size - first;
    source.first_element = item.first_element + first;
    source.map_bytes = s.quanta;
    source.block_log2 = p.work.codec.block_log2;
    source.drop_offsets = gw_survey_drop_offsets(s);
}

/* Bins of values whose exponent is never turned. */
template <uint32_t DTYPE> GW_DEVICE bool gw_is_single_bin(uint32_t bin)
{
    return gw_type<DTYPE>::IS_FP16 ? bin == 1023 : bin < 4;
}

/* Adds the counts of one chunk to the histogram's. */
template <uint32_t DTYPE>
GW_DEVICE void gw_histogram_add_chunk(gw_survey_state &s, gw_cuda_gcomp_histogram *histogram, uint64_t chunk)
{
    const uint32_t t = threadIdx.x;
    __syncthreads();
    if (t < GW_MASK_CLASSES && s.mask_count[t] != 0) {
        gw_atomic_add64(&histogram->mask_count[t], s.mask_count[t]);
    }
    const uint32_t largest = gw_largest_exponent(s.codebook.sums, gw_type<DTYPE>::SPECIAL, [&](uint32_t bin) {
        return s.bin[bin] != 0;
    });
    if (t == 0 && largest != 0) {
        gw_atomic_max64(&histogram->first_chunk, ~(chunk << 9 | largest));
    }
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (s.bin[4 * t + i] != 0) {
            gw_atomic_add64(&histogram->bin[4 * t + i], s.bin[4 * t + i]);
        }
    }
}

/*
 * Adds a chunk at a time to the counts on the device, and notes the first chunk that has an ordinary
 * exponent. With dead zone, values are counted with relative exponents, too, in the odd bins. Chunks are
 * numbered over all items of the call, after those that their histogram has counted: which items share a
 * histogram does not matter then.
 */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_histogram_all(const gw_gcomp_histogram_params &p)
{
    gw_survey_state &s = GW_SHARED(gw_survey_state);
    const uint32_t t = threadIdx.x, log2 = p.work.codec.chunk_log2;
    uint64_t units = 0, chunks_before = 0;
    if (p.work.items != nullptr) {
        units = p.chunk_first[p.work.item_count];
    } else if (gw_histogram_status(p.work, p.work.item) == GW_OK) {
        units = p.work.item.src_size != 0 ? p.unit_total : 0;
        /* changed when all are done */
        chunks_before = ((const volatile gw_cuda_gcomp_histogram *)p.work.item.dst)->chunk_count;
    }
    GW_NO_UNROLL
    for (;;) {
        __syncthreads();
        if (t == 0) {
            s.group = gw_atomic_add64(&p.head->ticket, 1);
            s.item = p.work.items != nullptr && s.group < units
                         ? gw_item_find(p.chunk_first, p.work.item_count, s.group)
                         : 0;
        }
        gw_survey_clear(s);
        __syncthreads();
        if (s.group >= units) {
            break;
        }
        const gw_cuda_gcomp_item &item = gw_item_of(p.work, s.item);
        gw_cuda_gcomp_histogram *const histogram = (gw_cuda_gcomp_histogram *)item.dst;
        gw_cuda_source source = gw_source_of(p.work, item);
        const gw_cuda_rounder r = {p.work.rounding, source};
        uint64_t first = (s.group - gw_first_of(p.chunk_first, s.item)) << log2;
        const uint64_t left = item.src_size - first;
        const uint32_t len = gw_at_most(left, 1u << log2);
        const bool chooses = DERIVED && p.work.rounding.dead_zone && first == 0;
        if (DERIVED && p.work.codec.quantum_mode == GW_GCOMP_CARRIED) {
            gw_histogram_carry<DTYPE>(s, p, source, first,
                                      chooses ? gw_at_most(left, 1u << gw_group_log2(p.work.codec)) : len);
            first = 0;
        }
        if (chooses) {
            const uint64_t before = p.work.items != nullptr ? p.chunks_before[s.item] : chunks_before;
            gw_histogram_choose<DTYPE>(s, p, r, before + s.group);
        }
        const uint64_t classes = gw_survey<DTYPE, DERIVED>(
            s, r, first, len, 64, [&](uint32_t bin, uint32_t k, int32_t drop_offset) {
                atomicAdd(&s.bin[bin], 1u);
                if (DERIVED && p.work.codec.dead_zone && !gw_is_single_bin<DTYPE>(bin)) {
                    const uint32_t turned =
                        p.work.rounding.dead_zone ? gw_turned_bin<DTYPE>(bin, k, drop_offset) : bin;
                    atomicAdd(&s.bin[turned | 1], 1u);
                }
            });
        gw_mask_add_classes(s.mask_count, classes);
        gw_histogram_add_chunk<DTYPE>(
            s, histogram, (p.work.items != nullptr ? p.chunks_before[s.item] : chunks_before) + s.group);
    }
    __syncthreads();
    if (t == 0) {
        __threadfence();
        s.status = gw_atomic_add64(&p.head->group_ticket, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (s.status != 0) {
        gw_histogram_report(p, chunks_before, units);
    }
}

GW_KERNELS_BY_MODE(gw_device_gcomp_histogram, gw_gcomp_histogram_params, gw_histogram_all)

/* The weight of count[t]: counts are shifted right until their sum is below 2^28, and what was seen keeps at
 * least 1. 0 for threads without a count. */
GW_DEVICE uint32_t gw_weight_of(const uint64_t *count, uint32_t len)
{
    const uint32_t t = threadIdx.x;
    uint64_t sum = 0;
    GW_NO_UNROLL
    for (uint32_t i = 0; i < len; i++) {
        sum = sum + count[i] < sum ? ~(uint64_t)0 : sum + count[i];
    }
    uint32_t shift = 0;
    while (sum >> shift >= (uint64_t)1 << 28) {
        shift++;
    }
    const uint64_t own = t < len ? count[t] : 0;
    const uint32_t scaled = (uint32_t)(own >> shift);
    return scaled + (scaled == 0 && own != 0);
}

/* The codebook of each histogram, as gw_gcomp_codebook_build(). A block each. */
GW_KERNEL(gw_device_gcomp_codebook_build, gw_gcomp_codebook_build_params, 256, 1)
{
    gw_survey_state &s = GW_SHARED(gw_survey_state);
    gw_codebook_state &b = s.codebook;
    const uint32_t t = threadIdx.x;
    const gw_cuda_gcomp_histogram &h = p.histogram[blockIdx.x];
    uint64_t *const count = (uint64_t *)(void *)s.exchange; /* by label */
    uint32_t window_start = 0;
    if (!p.quantum_mode && p.dtype != GW_FP16 && h.first_chunk != 0) {
        window_start = gw_window_of((uint32_t)~h.first_chunk & 511);
    }
    if (p.quantum_mode && h.first_relative != 0) {
        window_start = (uint32_t)~h.first_relative & 1;
    }
    count[t] = 0;
    __syncthreads();
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t n = h.bin[4 * t + i];
        const bool is_single = p.dtype == GW_FP16 ? 4 * t + i == 1023 : t == 0;
        if (n != 0 && (!p.quantum_mode || is_single || i == window_start)) {
            gw_atomic_add64(&count[gw_cuda_label_of_bin(4 * t + i, p.dtype, p.quantum_mode, window_start)],
                            n);
        }
    }
    __syncthreads();
    uint32_t weight = gw_weight_of(count, 256), mask_weight = gw_weight_of(h.mask_count, GW_MASK_CLASSES);
    uint32_t len;
    b.count[t] = weight;
    gw_block_scan(weight, b.sums, &len);
    const bool is_masked =
        len != 0 && gw_cuda_is_mask_better(weight, mask_weight, b.count[0], len, 0, b.sums);
    if (t == 0) {
        b.window_start = window_start;
    }
    weight += t < 2 && weight == 0;
    mask_weight += mask_weight == 0;
    gw_cuda_codebook_make(b, weight, mask_weight, is_masked);
    if (t < b.size) {
        p.codebook[(uint64_t)blockIdx.x * GW_CUDA_CODEBOOK_SIZE_MAX + t] = b.bytes[t];
    }
    if (t == 0) {
        if (p.codebook_size != nullptr) {
            p.codebook_size[blockIdx.x] = b.size;
        }
        const gw_cuda_result result = {GW_OK, 0, b.size, 0, ~(uint64_t)0, 0};
        p.result[blockIdx.x] = result;
    }
}
