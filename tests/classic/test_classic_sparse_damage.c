/*
 * Damaged sparse frames: every byte, every length, payloads that change between check and decode. Values are
 * in buffers of their exact size, so that the sanitizers see what is written outside.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>
#include <string.h>

#include "classic/classic_handle.h"
#include "sparse_testing.h"

enum { KINDS = 10, HEADER = GW_CLASSIC_FRAME_HEADER_SIZE };

typedef struct damage_case {
    gw_classic_scheme scheme;
    gw_classic_values format;
    size_t len, keep_len;
    unsigned pattern;
} damage_case;

static const damage_case cases[KINDS] = {
    {GW_CLASSIC_TOPK, GW_CLASSIC_VALUES_FP32, 700, 40, 0},
    {GW_CLASSIC_TOPK, GW_CLASSIC_VALUES_FP16, 2000, 1400, 4}, /* a mask */
    {GW_CLASSIC_TOPK, GW_CLASSIC_VALUES_GCOMP, 300, 60, 0},
    {GW_CLASSIC_DGC, GW_CLASSIC_VALUES_FP32, 1, 1, 0},
    {GW_CLASSIC_DGC, GW_CLASSIC_VALUES_FP16, 40000, 3, 0},
    {GW_CLASSIC_TOPK, GW_CLASSIC_VALUES_FP32, 64, 64, 0},
    {GW_CLASSIC_RANDK, GW_CLASSIC_VALUES_FP32, 700, 40, 0},
    {GW_CLASSIC_RANDK, GW_CLASSIC_VALUES_GCOMP, 300, 290, 0},
    {GW_CLASSIC_TOPK, GW_CLASSIC_VALUES_FP16, 20000, 5000, 7}, /* clusters */
    {GW_CLASSIC_RANDK, GW_CLASSIC_VALUES_FP16, 65, 33, 0},
};

static void make_frame(const damage_case *c, int checksum, gw_buffer *frame)
{
    gw_classic_options options;
    const gw_classic_step step = {c->len, 0, c->keep_len, 2, 1};
    float *const x = sparse_take(c->len * sizeof *x), *const state = sparse_take(2 * c->len * sizeof *x);
    sparse_rng rng = {c->len};
    assert_int_equal(gw_classic_options_init(&options, c->scheme), GW_OK);
    const int is_dgc = c->scheme == GW_CLASSIC_DGC;
    const gw_classic_source source = {x, is_dgc ? state : NULL, is_dgc ? state + c->len : NULL, NULL};
    options.error_feedback = is_dgc;
    options.values = c->format;
    options.checksum = checksum;
    sparse_fill(&rng, x, GW_FP32, c->len, c->pattern);
    memset(state, 0, 2 * c->len * sizeof *x);
    assert_int_equal(sparse_encode(&options, &step, &source, 0, frame), GW_OK);
    free(x);
    free(state);
}

/* Every byte in eight ways. A frame that is still accepted decodes to as many values as before; one that is
 * not leaves sums alone. */
static void test_bytes(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++) {
        for (int checksum = 0; checksum < 2; checksum++) {
            const damage_case *const c = &cases[k];
            gw_buffer frame;
            make_frame(c, checksum, &frame);
            uint8_t *const data = frame.data;
            float *const out = sparse_take(c->len * sizeof *out), *const zeros =
                                                                      sparse_take(c->len * sizeof *out);
            memset(zeros, 0, c->len * sizeof *out);
            const size_t stride = frame.size > 3000 ? 7 : 1;
            for (size_t at = 0; at < frame.size; at += stride) {
                for (unsigned bit = at % 2; bit<8; bit += frame.size> 3000 ? 3 : 1) {
                    data[at] ^= (uint8_t)(1u << bit);
                    memset(out, 0, c->len * sizeof *out);
                    const gw_status status = sparse_decode(&frame, GW_BACKEND_ALL, out, c->len, 1, 1.0f);
                    assert_true(status == GW_OK || memcmp(out, zeros, c->len * sizeof *out) == 0);
                    assert_true(status != GW_OK || checksum == 0);
                    data[at] ^= (uint8_t)(1u << bit);
                }
            }
            free(out);
            free(zeros);
            free(frame.data);
        }
    }
}

/* A decode without the check that comes before it, of damaged bytes. */
static void decode_unchecked(const damage_case *c, const gw_buffer *frame, const uint8_t *payload)
{
    gw_classic_frame_info info;
    gw_kernels kernels;
    assert_int_equal(gw_classic_frame_peek(frame->data, frame->size, &info), GW_OK);
    gw_kernels_init(&kernels, GW_BACKEND_ALL);
    const size_t size = gw_classic_decode_workspace_size(&info);
    uint8_t *const memory = sparse_take(size + 64);
    uint8_t *const exact = sparse_take((size_t)info.payload_size);
    uint16_t *const out = sparse_take(c->len * sizeof *out);
    memcpy(exact, payload, (size_t)info.payload_size);
    const gw_classic_payload changed = {&info, &kernels, exact, (size_t)info.payload_size,
                                        memory + (64 - (uintptr_t)memory % 64) % 64};
    const gw_classic_sink sink = {out, GW_BF16, 0, 0.5f};
    gw_classic_family_of(info.scheme)->decode(&changed, &sink);
    free(memory);
    free(exact);
    free(out);
}

static void test_changes(void **state)
{
    (void)state;
    sparse_rng rng = {4};
    for (unsigned k = 0; k < KINDS; k++) {
        gw_buffer frame;
        make_frame(&cases[k], 0, &frame);
        uint8_t *const data = frame.data, *const payload = sparse_take(frame.size);
        for (unsigned turn = 0; turn < 3000; turn++) {
            memcpy(payload, data + HEADER, frame.size - HEADER);
            const unsigned changes = 1 + sparse_below(&rng, 6);
            for (unsigned i = 0; i < changes; i++) {
                const uint32_t reach = sparse_below(&rng, 2) == 0 ? 64 : (uint32_t)(frame.size - HEADER);
                const uint32_t most = (uint32_t)(frame.size - HEADER);
                payload[sparse_below(&rng, reach < most ? reach : most)] = (uint8_t)sparse_random(&rng);
            }
            decode_unchecked(&cases[k], &frame, payload);
        }
        memset(payload, 0, frame.size);
        decode_unchecked(&cases[k], &frame, payload);
        memset(payload, 0xff, frame.size);
        decode_unchecked(&cases[k], &frame, payload);
        free(payload);
        free(frame.data);
    }
}

/* Other payload sizes with a header that fits them. */
static void test_sizes(void **state)
{
    (void)state;
    for (unsigned k = 0; k < KINDS; k++) {
        gw_buffer frame;
        gw_classic_frame_info info;
        make_frame(&cases[k], 0, &frame);
        assert_int_equal(gw_classic_frame_peek(frame.data, frame.size, &info), GW_OK);
        const size_t payload_size = (size_t)info.payload_size;
        float *const out = sparse_take(cases[k].len * sizeof *out);
        for (size_t size = payload_size > 200 ? payload_size - 200 : 0; size < payload_size + 40; size++) {
            const size_t total = (HEADER + size + 15) / 16 * 16;
            gw_buffer changed = {sparse_take(total), total, total};
            uint8_t *const data = changed.data;
            memset(data, 0, total);
            memcpy(data, frame.data, HEADER + (size < payload_size ? size : payload_size));
            for (unsigned b = 0; b < 8; b++) {
                data[24 + b] = (uint8_t)((uint64_t)total >> 8 * b);
                data[72 + b] = (uint8_t)((uint64_t)size >> 8 * b);
            }
            const gw_status status = sparse_decode(&changed, GW_BACKEND_ALL, out, cases[k].len, 0, 1.0f);
            assert_true(size == payload_size ? status == GW_OK
                                             : status == GW_ERR_CORRUPT || status == GW_ERR_HEADER);
            free(changed.data);
        }
        free(out);
        free(frame.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests_name("classic sparse damage", tests, NULL, NULL);
}
