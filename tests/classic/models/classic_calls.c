/*
 * Public calls of the classic codecs for programs in Python: requests on stdin, answers on stdout, until
 * stdin ends. A request is 24 words of 8 bytes and what they announce; classic_calls.py has the other side.
 * A request that cannot be read ends the program with status 1.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire/classic.h"

enum { WORDS = 24, ANSWER_WORDS = 3 };

static uint64_t word[WORDS];

static void *take(size_t size)
{
    void *memory = calloc(size == 0 ? 1 : size, 1);
    if (memory == NULL) {
        exit(1);
    }
    return memory;
}

/* Exact sizes: a sanitizer sees what goes beyond. */
static void *take_input(size_t size)
{
    void *memory = take(size);
    if (fread(memory, 1, size, stdin) != size) {
        exit(1);
    }
    return memory;
}

static void put(const void *data, size_t size)
{
    if (size > 0 && fwrite(data, 1, size, stdout) != size) {
        exit(1);
    }
}

static void answer(gw_status status, uint64_t size, uint64_t other)
{
    const uint64_t words[ANSWER_WORDS] = {(uint64_t)status, size, other};
    put(words, sizeof words);
}

static float as_float(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}

static gw_workspace workspace_of(size_t size)
{
    const gw_workspace workspace = {take(size), size};
    return workspace;
}

static gw_classic_options options_of_words(void)
{
    gw_classic_options o;
    memset(&o, 0, sizeof o);
    o.scheme = (gw_classic_scheme)word[1];
    o.dtype = (gw_dtype)word[2];
    o.seed = word[3];
    o.backends = (uint32_t)word[4];
    o.checksum = (int)word[5];
    o.error_feedback = (int)word[6];
    o.momentum = as_float(word[7]);
    o.nesterov = (int)word[8];
    o.momentum_mask = (int)word[9];
    o.clip = as_float(word[10]);
    o.unbiased = (int)word[11];
    o.values = (gw_classic_values)word[12];
    o.coding = (gw_classic_coding)word[13];
    o.norm = (gw_classic_norm)word[14];
    o.level_max = (uint32_t)word[15];
    o.block_len = (uint32_t)word[16];
    return o;
}

/* Answers the usual options of a scheme. */
static void defaults(void)
{
    gw_classic_options o;
    const gw_status status = gw_classic_options_init(&o, (gw_classic_scheme)word[1]);
    uint32_t momentum, clip;
    memcpy(&momentum, &o.momentum, sizeof momentum);
    memcpy(&clip, &o.clip, sizeof clip);
    const uint64_t words[16] = {(uint64_t)o.scheme,
                                (uint64_t)o.dtype,
                                o.seed,
                                o.backends,
                                (uint64_t)o.checksum,
                                (uint64_t)o.error_feedback,
                                momentum,
                                (uint64_t)o.nesterov,
                                (uint64_t)o.momentum_mask,
                                clip,
                                (uint64_t)o.unbiased,
                                (uint64_t)o.values,
                                (uint64_t)o.coding,
                                (uint64_t)o.norm,
                                o.level_max,
                                o.block_len};
    answer(status, sizeof words, 0);
    put(words, sizeof words);
}

/* Values, residual, momentum, norms follow, those that there are. The answer has frame, residual, momentum;
 * its last word is the mask of state arrays. */
static void encode(void)
{
    const gw_classic_options options = options_of_words();
    const gw_classic_step step = {word[17], word[18], word[19], (uint32_t)word[20], (uint32_t)word[21]};
    const size_t len = (size_t)step.len;
    gw_classic classic;
    gw_status status = gw_classic_init(&classic, &options);
    const uint32_t arrays = status == GW_OK ? gw_classic_state_arrays(&classic) : 0;
    void *values = take_input(len * (options.dtype == GW_FP32 ? 4 : 2));
    float *residual = (float *)take_input(4 * len), *momentum = (float *)take_input(4 * len);
    const uint64_t blocks = word[22] != 0 ? gw_classic_block_count(&classic, step.len) : 0;
    float *norms = (float *)take_input(4 * (size_t)blocks);
    const gw_classic_source source = {values, (arrays & GW_CLASSIC_RESIDUAL) != 0 ? residual : NULL,
                                      (arrays & GW_CLASSIC_MOMENTUM) != 0 ? momentum : NULL,
                                      word[22] != 0 ? norms : NULL};
    const size_t size = status == GW_OK ? gw_classic_frame_bound(&classic, &step) : 0;
    gw_workspace workspace = workspace_of(status == GW_OK ? gw_classic_workspace_size(&classic, &step) : 0);
    gw_buffer frame = {take(size), size, 0};

    if (status == GW_OK) {
        status = gw_classic_encode(&classic, &step, &source, &frame, &workspace);
    }
    answer(status, frame.size, arrays);
    put(frame.data, frame.size);
    put(residual, 4 * len);
    put(momentum, 4 * len);
    free(values);
    free(residual);
    free(momentum);
    free(norms);
    free(workspace.data);
    free(frame.data);
}

/* A frame follows, and for an addition the sum as fp32. The answer has the values. */
static void decode(int adds)
{
    const size_t size = (size_t)word[1], len = (size_t)word[5], value_size = adds ? 4 : (size_t)word[4];
    void *data = take_input(size);
    void *values = adds ? take_input(4 * len) : take(len * value_size);
    const gw_classic_frame frame = {data, size, len, (uint32_t)word[2]};
    gw_classic_target target = {values, len, 0, as_float(word[3])};
    gw_classic_frame_info info;
    gw_workspace workspace = {NULL, 0};
    gw_status status = gw_classic_frame_peek(data, size, &info);

    if (status == GW_OK) {
        workspace = workspace_of(gw_classic_decode_workspace_size(&info));
        status = adds ? gw_classic_decode_add(&frame, &target, &workspace)
                      : gw_classic_decode(&frame, &target, &workspace);
    }
    answer(status, len * value_size, target.len);
    put(values, len * value_size);
    free(data);
    free(values);
    free(workspace.data);
}

/* Frames of one size follow. The answer has the decoded sum, and the frame of the vote where it was asked
 * for. */
static void sum(void)
{
    const size_t count = (size_t)word[1], size = (size_t)word[2], len = (size_t)word[5];
    uint8_t *data = (uint8_t *)take_input(count * size);
    float *values = (float *)take(4 * len);
    const gw_classic_frame first = {data, size, len, GW_BACKEND_ALL};
    gw_classic_frame_info info;
    gw_status status = gw_classic_frame_peek(data, size, &info);
    gw_workspace workspace = workspace_of(status == GW_OK ? gw_classic_decode_workspace_size(&info) : 0);
    gw_classic_sum total = {NULL, status == GW_OK ? gw_classic_sum_size(&info) : 0, 0};
    gw_classic_target target = {values, len, 0, as_float(word[3])};
    gw_buffer vote = {take(size + 64), size + 64, 0};

    total.lanes = take(total.size);
    for (size_t i = 0; i < count && status == GW_OK; i++) {
        const gw_classic_frame frame = {data + i * size, size, len, GW_BACKEND_ALL};
        status = gw_classic_sum_add(&total, &first, &frame, &workspace);
    }
    if (status == GW_OK) {
        status = gw_classic_sum_decode(&total, &first, &target, &workspace);
    }
    if (status == GW_OK && word[4] != 0) {
        status = gw_classic_sum_vote(&total, &first, &vote, &workspace);
    }
    answer(status, 4 * len, vote.size);
    put(values, 4 * len);
    put(vote.data, vote.size);
    free(data);
    free(values);
    free(workspace.data);
    free(total.lanes);
    free(vote.data);
}

int main(void)
{
    while (fread(word, sizeof word[0], WORDS, stdin) == WORDS) {
        switch (word[0]) {
        case 1:
            encode();
            break;
        case 2:
        case 3:
            decode(word[0] == 3);
            break;
        case 4:
            sum();
            break;
        case 5:
            defaults();
            break;
        default:
            return 1;
        }
        if (fflush(stdout) != 0) {
            return 1;
        }
    }
    return 0;
}
