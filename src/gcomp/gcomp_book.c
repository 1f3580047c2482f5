/*
 * Codebooks that outlive a frame: histograms gathered during training, codebooks made from them,
 * installation.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"

enum { HISTOGRAM_BASE_UNKNOWN = 255 };

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
    histogram->levels = (uint32_t)inside->options.levels;
    const int has_window = inside->options.levels == GW_GCOMP_EXPLICIT && inside->options.dtype != GW_FP16;
    histogram->base = has_window ? HISTOGRAM_BASE_UNKNOWN : 0;
    return GW_OK;
}

/* Sets the window from the first chunk that has an ordinary exponent. */
static void choose_base(gw_gcomp_histogram *histogram, const uint32_t *bin_count)
{
    const uint32_t end = 4u * gw_traits_of(histogram->dtype)->exponent_mask;
    uint32_t largest = 0;
    for (uint32_t bin = 4; bin < end; bin++) {
        largest = bin_count[bin] != 0 ? bin >> 2 : largest;
    }
    if (largest != 0) {
        histogram->base = gw_codebook_base(largest);
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
    if (histogram->dtype != e.rule.dtype || histogram->levels != (uint32_t)e.info.levels) {
        return GW_ERR_STATE;
    }
    const size_t size = gw_traits_of(e.rule.dtype)->size;
    const gw_scratch *s = &e.scratch;
    const size_t chunk_len = (size_t)1 << e.info.chunk_log2;
    for (uint64_t at = 0; at < source->len; at += chunk_len) {
        const gw_span chunk = {(const uint8_t *)source->values + (size_t)at * size,
                               source->map == NULL ? NULL : source->map->levels + at,
                               (size_t)gw_min_u64(source->len - at, chunk_len), source->first_element + at,
                               0};
        GW_MEMSET(s->bin_count, 0, GW_BINS * sizeof *s->bin_count);
        e.codec->kernels.gcomp.survey(s->bin_count, &chunk, GW_SAMPLE_RUN_LEN, &e.rule);
        if (histogram->base == HISTOGRAM_BASE_UNKNOWN) {
            choose_base(histogram, s->bin_count);
        }
        const uint32_t base = histogram->base == HISTOGRAM_BASE_UNKNOWN ? 0 : histogram->base;
        for (uint32_t bin = 0; bin < GW_BINS; bin++) {
            if (s->bin_count[bin] != 0) {
                histogram->count[gw_label_of_bin(bin, e.rule.dtype, e.rule.derived, base)] +=
                    s->bin_count[bin];
            }
        }
    }
    return GW_OK;
}

gw_status gw_gcomp_book_build(const gw_gcomp_histogram *histogram, gw_buffer *book)
{
    if (book == NULL) {
        return GW_ERR_ARG;
    }
    book->size = 0;
    if (histogram == NULL || book->data == NULL || gw_traits_of(histogram->dtype)->size == 0 ||
        histogram->levels > GW_GCOMP_DERIVED || histogram->base > HISTOGRAM_BASE_UNKNOWN) {
        return GW_ERR_ARG;
    }
    /* Weights: counts shifted right until their sum is below 2^28 (package-merge adds up to 11 times that),
     * at least 1 for a label that was counted. */
    uint64_t sum = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        const uint64_t count = histogram->count[label];
        sum = sum + count < sum ? UINT64_MAX : sum + count;
    }
    unsigned shift = 0;
    while (sum >> shift >= (uint64_t)1 << 28) {
        shift++;
    }
    uint32_t weight[GW_LABELS];
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        const uint32_t scaled = (uint32_t)(histogram->count[label] >> shift);
        weight[label] = scaled + (scaled == 0 && histogram->count[label] != 0);
    }
    weight[GW_LABEL_ZERO] += weight[GW_LABEL_ZERO] == 0;
    weight[GW_LABEL_ESCAPE] += weight[GW_LABEL_ESCAPE] == 0;

    gw_codebook codebook;
    gw_codebook_scratch scratch;
    codebook.base = (uint8_t)(histogram->base == HISTOGRAM_BASE_UNKNOWN ? 0 : histogram->base);
    gw_codebook_lengths(codebook.length, weight, &scratch);

    /* Reading the result back catches counts of labels that the dtype does not have. */
    uint8_t bytes[GW_GCOMP_BOOK_SIZE_MAX];
    gw_codebook check;
    size_t used;
    gw_codebook_write(bytes, &codebook);
    const size_t size = gw_codebook_size(&codebook);
    if (gw_codebook_read(&check, &used, bytes, size, histogram->dtype, histogram->levels) != GW_OK) {
        return GW_ERR_ARG;
    }
    if (book->capacity < size) {
        return GW_ERR_DST;
    }
    GW_MEMCPY(book->data, bytes, size);
    book->size = size;
    return GW_OK;
}

gw_status gw_gcomp_install(gw_gcomp *codec, uint32_t id, uint32_t generation, const uint8_t *book,
                           size_t book_size, int encode)
{
    if (codec == NULL || book == NULL) {
        return GW_ERR_ARG;
    }
    gw_codec *inside = (gw_codec *)(void *)codec;
    if (gw_codec_of(codec) == NULL) {
        return GW_ERR_STATE;
    }
    gw_codebook read;
    size_t used;
    gw_status status = gw_codebook_read(&read, &used, book, book_size, (uint32_t)inside->options.dtype,
                                        inside->options.levels == GW_GCOMP_DERIVED);
    if (status != GW_OK || used != book_size || read.length[GW_LABEL_ZERO] == 0 ||
        read.length[GW_LABEL_ESCAPE] == 0) {
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
    inside->installed[at].crc = inside->kernels.crc32c(0, book, book_size);
    inside->installed[at].book = read;
    inside->newest = at;
    if (encode) {
        inside->encode_with = (int32_t)at;
    } else if (inside->encode_with == (int32_t)at) {
        inside->encode_with = -1; /* the encoding codebook was replaced: codebooks travel in the frame */
    }
    return GW_OK;
}

gw_status gw_gcomp_uninstall(gw_gcomp *codec)
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
