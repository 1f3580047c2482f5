/*
 * Codebooks that outlive a frame: histograms gathered during training, codebooks made from them,
 * installation.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/codebook_choice.h"
#include "gcomp/gcomp_encoding.h"
#include "gcomp/mask_code.h"

enum { HISTOGRAM_UNKNOWN = 255 /* base or relative, before the first values */ };

gw_status gw_gcomp_histogram_init(gw_gcomp_histogram *histogram, const gw_gcomp *codec)
{
    if (histogram == NULL || codec == NULL) {
        return GW_ERR_ARG;
    }
    const gw_codec *inside = gw_codec_of(codec);
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    GW_MEMSET(histogram, 0, sizeof *histogram);
    histogram->dtype = (uint32_t)inside->options.dtype;
    histogram->quantum_mode = (uint32_t)inside->options.quantum_mode;
    const int has_window =
        inside->options.quantum_mode == GW_GCOMP_EXPLICIT && inside->options.dtype != GW_FP16;
    histogram->window_start = has_window ? HISTOGRAM_UNKNOWN : 0;
    histogram->relative = inside->options.dead_zone ? HISTOGRAM_UNKNOWN : 0;
    return GW_OK;
}

/* Sets the window from the first chunk that has an ordinary exponent. */
static void choose_window_start(gw_gcomp_histogram *histogram, const uint32_t *bin_count)
{
    const uint32_t end = 4u * gw_traits_of(histogram->dtype)->exponent_mask;
    uint32_t largest = 0;
    for (uint32_t bin = 4; bin < end; bin++) {
        largest = bin_count[bin] != 0 ? bin >> 2 : largest;
    }
    if (largest != 0) {
        histogram->window_start = gw_codebook_window_start(largest);
    }
}

/* Counts the labels of a chunk of the group. */
static void add_chunk(gw_gcomp_histogram *histogram, gw_encoding *e, const gw_group *group, size_t at,
                      size_t len)
{
    const gw_scratch *s = &e->scratch;
    const gw_span chunk = gw_group_span(e, group, at, len);
    uint32_t byte_count[256] = {0}, mask_count[GW_MASK_CLASSES] = {0};
    GW_MEMSET(s->bin_count, 0, GW_BINS * sizeof *s->bin_count);
    e->codec->kernels.gcomp.survey(s->bin_count, byte_count, &chunk, GW_SAMPLE_RUN_LEN, &e->rule);
    gw_mask_fold(mask_count, byte_count);
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        histogram->mask_count[c] += mask_count[c];
    }
    if (histogram->window_start == HISTOGRAM_UNKNOWN) {
        choose_window_start(histogram, s->bin_count);
    }
    const uint32_t window_start = histogram->window_start == HISTOGRAM_UNKNOWN ? 0 : histogram->window_start;
    for (uint32_t bin = 0; bin < GW_BINS; bin++) {
        if (s->bin_count[bin] != 0) {
            histogram->count[gw_label_of_bin(bin, e->rule.dtype, e->rule.derived, window_start)] +=
                s->bin_count[bin];
        }
    }
}

gw_status gw_gcomp_histogram_add(gw_gcomp_histogram *histogram, const gw_gcomp *codec,
                                 const gw_gcomp_source *source, const gw_workspace *workspace)
{
    if (histogram == NULL) {
        return GW_ERR_ARG;
    }
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    if (histogram->dtype != e.rule.dtype || histogram->quantum_mode != (uint32_t)e.info.quantum_mode ||
        (histogram->relative == 1 && e.rule.constant)) {
        return GW_ERR_STATE;
    }
    const size_t size = gw_traits_of(e.rule.dtype)->size, chunk_len = (size_t)1 << e.info.chunk_log2;
    for (uint64_t first = 0; first < e.info.chunk_count; first += gw_group_chunks(e.codec)) {
        const uint64_t at = first << e.info.chunk_log2;
        const uint64_t len = gw_min_u64(source->len - at, gw_group_chunks(e.codec) * (uint64_t)chunk_len);
        gw_group group = {.first = first,
                          .values = (const uint8_t *)source->values + (size_t)at * size,
                          .len = (size_t)len};
        gw_group_begin(&e, &group, 1);
        if (histogram->relative == HISTOGRAM_UNKNOWN) {
            gw_group_choose_relative(&e, &group); /* none without a map */
            histogram->relative = e.rule.relative;
        }
        e.rule.relative = histogram->relative == 1;
        for (size_t i = 0; i < group.len; i += chunk_len) {
            add_chunk(histogram, &e, &group, i, gw_min_size(group.len - i, chunk_len));
        }
    }
    return GW_OK;
}

/* Weights for package-merge: the counts, shifted right until their sum is below 2^28, since package-merge
 * computes sums of up to 11 times as much. A label that was counted keeps at least 1. */
static void weights_of(uint32_t *weight, const uint64_t *count, uint32_t len)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < len; i++) {
        sum = sum + count[i] < sum ? UINT64_MAX : sum + count[i];
    }
    unsigned shift = 0;
    while (sum >> shift >= (uint64_t)1 << 28) {
        shift++;
    }
    for (uint32_t i = 0; i < len; i++) {
        const uint32_t scaled = (uint32_t)(count[i] >> shift);
        weight[i] = scaled + (scaled == 0 && count[i] != 0);
    }
}

/* Makes the codebook of a histogram. All labels and classes of the mask that may occur get codes, counted or
 * not. */
static void build_codebook(gw_codebook *codebook, const gw_gcomp_histogram *histogram)
{
    gw_codebook_scratch scratch;
    uint32_t weight[GW_LABELS], mask_weight[GW_MASK_CLASSES];
    uint64_t len = 0;
    weights_of(weight, histogram->count, GW_LABELS);
    weights_of(mask_weight, histogram->mask_count, GW_MASK_CLASSES);
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        len += weight[label];
    }
    const gw_codebook_counts counts = {weight, mask_weight, len, UINT64_MAX, 1};
    GW_MEMSET(codebook, 0, sizeof *codebook);
    codebook->window_start =
        (uint8_t)(histogram->window_start == HISTOGRAM_UNKNOWN ? 0 : histogram->window_start);
    codebook->is_relative = histogram->relative == 1;
    gw_codebook_choose(codebook, &counts, &scratch);
}

gw_status gw_gcomp_codebook_build(const gw_gcomp_histogram *histogram, gw_buffer *dst)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    if (histogram == NULL || dst->data == NULL || gw_traits_of(histogram->dtype)->size == 0 ||
        histogram->quantum_mode > GW_GCOMP_CARRIED || histogram->window_start > HISTOGRAM_UNKNOWN ||
        (histogram->relative > 1 && histogram->relative != HISTOGRAM_UNKNOWN)) {
        return GW_ERR_ARG;
    }
    gw_codebook codebook;
    build_codebook(&codebook, histogram);

    /* Reading the result back catches counts of labels that the dtype does not have. */
    uint8_t bytes[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gw_codebook check;
    size_t used;
    gw_codebook_write(bytes, &codebook);
    const size_t size = gw_codebook_size(&codebook);
    const uint32_t derived = histogram->quantum_mode != GW_GCOMP_EXPLICIT;
    const gw_codebook_kind kind = {histogram->dtype, derived, derived};
    if (gw_codebook_read(&check, &used, bytes, size, kind) != GW_OK) {
        return GW_ERR_ARG;
    }
    if (dst->capacity < size) {
        return GW_ERR_DST;
    }
    GW_MEMCPY(dst->data, bytes, size);
    dst->size = size;
    return GW_OK;
}

/* 1 if the codebook can code any value: it has codes for zero, for the escape, and for every class of the
 * mask. */
static int has_all_codes(const gw_codebook *codebook)
{
    uint32_t classes = 0;
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        classes += codebook->mask_depth[c] != 0;
    }
    return codebook->length[GW_LABEL_ESCAPE] != 0 &&
           (codebook->is_masked ? classes == GW_MASK_CLASSES : codebook->length[GW_LABEL_ZERO] != 0);
}

gw_status gw_gcomp_codebook_install(gw_gcomp *codec, uint32_t id, uint32_t generation,
                                    const uint8_t *codebook, size_t codebook_size, int encode)
{
    if (codec == NULL || codebook == NULL) {
        return GW_ERR_ARG;
    }
    gw_codec *inside = (gw_codec *)(void *)codec;
    if (gw_codec_of(codec) == NULL) {
        return GW_ERR_STATE;
    }
    gw_codebook read;
    size_t used;
    const uint32_t derived = inside->options.quantum_mode != GW_GCOMP_EXPLICIT;
    const gw_codebook_kind kind = {(uint32_t)inside->options.dtype, derived, derived};
    gw_status status = gw_codebook_read(&read, &used, codebook, codebook_size, kind);
    if (status != GW_OK || used != codebook_size || !has_all_codes(&read)) {
        return GW_ERR_TABLE;
    }
    /* The slot with the same id and generation, else a free one, else the older one. */
    uint32_t at = inside->installed_count < GW_INSTALLED_MAX ? inside->installed_count : inside->newest ^ 1u;
    for (uint32_t i = 0; i < inside->installed_count; i++) {
        if (inside->installed[i].id == id && inside->installed[i].generation == generation) {
            at = i;
        }
    }
    if (at == inside->installed_count) {
        inside->installed_count++;
    }
    inside->installed[at].id = id;
    inside->installed[at].generation = generation;
    inside->installed[at].crc = inside->kernels.crc32c(0, codebook, codebook_size);
    inside->installed[at].codebook = read;
    inside->newest = at;
    if (encode) {
        inside->encode_with = (int32_t)at;
    } else if (inside->encode_with == (int32_t)at) {
        inside->encode_with = -1; /* the encoding codebook was replaced: codebooks travel in the frame */
    }
    return GW_OK;
}

gw_status gw_gcomp_codebook_uninstall(gw_gcomp *codec)
{
    if (codec == NULL) {
        return GW_ERR_ARG;
    }
    if (gw_codec_of(codec) == NULL) {
        return GW_ERR_STATE;
    }
    ((gw_codec *)(void *)codec)->encode_with = -1;
    return GW_OK;
}
