/*
 * gradwire inspect of THC frames: contributors, lane use, norms, missing blocks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verbs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype_convert.h"
#include "little_endian.h"
#include "thc_options.h"

typedef struct frame_facts {
    uint32_t members_min, members_max;
    uint32_t lane_max;
    double lane_mean;           /* over k * g, of blocks with contributors */
    float norm_min, norm_max;   /* of rotated frames */
    float range_min, range_max; /* of plain ones: the least minimum and the largest maximum */
    uint64_t zero_blocks, marked_blocks, missing;
} frame_facts;

static const gw_option inspect_options[] = {GW_JSON_ROW("Report as JSON"), GW_CODEC_ROW("thc", 0), {0}};

const gw_command_line thc_inspect_line = {
    "FRAME.gw",   "What a THC frame says about itself; everything in it is checked.",
    GW_ONE_INPUT, {.options = inspect_options},
    {{0}},
};

/* The number that a code of a plain block stands for. */
static float number_of_code(uint32_t code)
{
    uint32_t bits = code >> 31 != 0 ? code ^ 0x80000000u : ~code;
    float number;

    memcpy(&number, &bits, sizeof number);
    return number;
}

static void look_at_range(const uint8_t *codes, frame_facts *facts)
{
    uint32_t maximum_code = gw_cli_load32(codes);

    if (maximum_code == UINT32_MAX) {
        facts->marked_blocks++;
        return;
    }
    float maximum = number_of_code(maximum_code);
    float minimum = 0.0f - number_of_code(gw_cli_load32(codes + 4));
    facts->zero_blocks += maximum == 0 && minimum == 0;
    facts->range_min = minimum < facts->range_min ? minimum : facts->range_min;
    facts->range_max = maximum > facts->range_max ? maximum : facts->range_max;
}

static void look_at_norm(uint32_t pattern, frame_facts *facts)
{
    float norm;

    if (pattern == GW_THC_NORM_NONFINITE) {
        facts->marked_blocks++;
        return;
    }
    facts->zero_blocks += pattern == 0;
    memcpy(&norm, &pattern, sizeof norm);
    facts->norm_min = norm < facts->norm_min ? norm : facts->norm_min;
    facts->norm_max = norm > facts->norm_max ? norm : facts->norm_max;
}

static frame_facts collect(const uint8_t *frame, const gw_thc_frame_info *info)
{
    frame_facts facts;
    size_t lane_size = info->options.lane_bits / 8u;
    size_t per_block = info->options.transform == GW_THC_ROTATED ? 1 : 2;
    uint64_t at = info->payload_offset;
    double used = 0;
    double of = 0;

    memset(&facts, 0, sizeof facts);
    facts.members_min = UINT32_MAX;
    facts.norm_min = INFINITY;
    facts.range_min = INFINITY;
    facts.range_max = -INFINITY;
    for (uint64_t b = 0; b < info->block_count; b++) {
        uint32_t k = gw_thc_frame_members(frame, info, b);
        facts.members_min = k < facts.members_min ? k : facts.members_min;
        facts.members_max = k > facts.members_max ? k : facts.members_max;
        facts.missing += k == 0;
        const uint8_t *patterns = frame + info->norms_offset + b * per_block * 4;
        if (info->options.transform == GW_THC_PLAIN) {
            look_at_range(patterns, &facts);
        } else {
            look_at_norm(gw_cli_load32(patterns), &facts);
        }
        if ((info->flags & GW_THC_FLAG_SUM) == 0) {
            continue;
        }
        uint64_t end = b + 1 < info->block_count ? at + ((uint64_t)lane_size << info->options.block_log2)
                                                 : info->payload_offset + info->payload_size;
        for (; at < end; at += lane_size) {
            uint32_t lane = lane_size == 1   ? frame[at]
                            : lane_size == 2 ? (uint32_t)(frame[at] | frame[at + 1] << 8)
                                             : gw_cli_load32(frame + at);
            facts.lane_max = lane > facts.lane_max ? lane : facts.lane_max;
            used += lane;
            of += (double)k * info->options.table.granularity;
        }
    }
    facts.lane_mean = of > 0 ? used / of : 0;
    if (info->block_count == 0) {
        facts.members_min = 0;
    }
    return facts;
}

static json_t *members_json(const uint8_t *frame, const gw_thc_frame_info *info)
{
    json_t *list = json_array();
    size_t set_size = (size_t)info->set_size;

    if ((info->flags & GW_THC_FLAG_SUM) == 0) {
        json_array_append_new(list, json_integer(info->rank));
        return list;
    }
    uint64_t sets = (info->flags & GW_THC_FLAG_BLOCK_SETS) != 0 ? info->block_count : 1;
    for (uint32_t r = 0; r < info->options.worker_max; r++) {
        int is_in = 0;
        for (uint64_t s = 0; s < sets; s++) {
            is_in |= frame[info->sets_offset + s * set_size + r / 8] >> (r % 8) & 1;
        }
        if (is_in) {
            json_array_append_new(list, json_integer(r));
        }
    }
    return list;
}

static json_t *missing_json(const uint8_t *frame, const gw_thc_frame_info *info)
{
    json_t *list = json_array();

    for (uint64_t b = 0; b < info->block_count; b++) {
        if (gw_thc_frame_members(frame, info, b) == 0) {
            json_array_append_new(list, json_integer((json_int_t)(info->block_first + b)));
        }
    }
    return list;
}

static json_t *frame_json(const uint8_t *frame, const gw_thc_frame_info *info)
{
    const gw_thc_options *c = &info->options;
    frame_facts facts = collect(frame, info);
    uint64_t lane_limit = c->lane_bits == 32 ? UINT32_MAX : ((uint64_t)1 << c->lane_bits) - 1;
    float t;
    json_t *o = json_object();

    memcpy(&t, &c->threshold_bits, sizeof t);
    json_object_set_new(o, "codec", json_string("thc"));
    json_object_set_new(o, "kind", json_string((info->flags & GW_THC_FLAG_SUM) != 0 ? "sum" : "indices"));
    json_object_set_new(o, "dtype", json_string(gw_dtype_name(c->dtype)));
    json_object_set_new(o, "values", json_integer((json_int_t)info->len));
    json_object_set_new(o, "bytes", json_integer((json_int_t)info->frame_size));
    json_object_set_new(o, "first_block", json_integer((json_int_t)info->block_first));
    json_object_set_new(o, "blocks", json_integer((json_int_t)info->block_count));
    json_object_set_new(o, "block", json_integer(1 << c->block_log2));
    json_object_set_new(o, "transform", json_string(c->transform == GW_THC_ROTATED ? "rotated" : "plain"));
    json_object_set_new(o, "bits", json_integer(c->table.bits));
    json_object_set_new(o, "granularity", json_integer(c->table.granularity));
    json_object_set_new(o, "table", thc_table_json(&c->table));
    json_object_set_new(o, "threshold", json_real((double)t));
    json_object_set_new(o, "p", json_real(c->threshold_bits != 0 ? erfc((double)t / sqrt(2.0)) : 0.0));
    json_object_set_new(o, "workers", json_integer(c->worker_max));
    json_object_set_new(o, "lane_bits", json_integer(c->lane_bits));
    json_object_set_new(o, "job", json_integer(c->job));
    json_object_set_new(o, "round", json_integer(info->round));
    json_object_set_new(o, "seed", json_sprintf("0x%016llx", (unsigned long long)c->seed));
    json_object_set_new(o, "contributors", members_json(frame, info));
    json_object_set_new(o, "contributors_min", json_integer(facts.members_min));
    json_object_set_new(o, "contributors_max", json_integer(facts.members_max));
    json_object_set_new(o, "missing_blocks", missing_json(frame, info));
    if ((info->flags & GW_THC_FLAG_SUM) != 0) {
        json_object_set_new(o, "lane_largest", json_integer(facts.lane_max));
        json_object_set_new(o, "lane_limit", json_integer((json_int_t)lane_limit));
        json_object_set_new(o, "lane_mean_of_range", json_real(facts.lane_mean));
    }
    if (c->transform == GW_THC_ROTATED) {
        json_object_set_new(o, "norm_min", gw_cli_json_real((double)facts.norm_min));
        json_object_set_new(o, "norm_max", json_real((double)facts.norm_max));
    } else {
        json_object_set_new(o, "range_min", gw_cli_json_real((double)facts.range_min));
        json_object_set_new(o, "range_max", gw_cli_json_real((double)facts.range_max));
    }
    json_object_set_new(o, "zero_blocks", json_integer((json_int_t)facts.zero_blocks));
    json_object_set_new(o, "nonfinite_blocks", json_integer((json_int_t)facts.marked_blocks));
    return o;
}

/* The JSON object line by line, so that both forms show the same. */
static void print_lines(const char *name, json_t *o)
{
    const char *key;
    json_t *value;

    gw_cli_puts(stdout, name);
    putchar('\n');
    json_object_foreach(o, key, value)
    {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
        printf("  %-20s %s\n", key, text != NULL ? text : "?");
        free(text);
    }
}

void thc_inspect(const gw_request *request, const gw_input_file *input)
{
    gw_thc_frame_info info;
    uint64_t bad = UINT64_MAX;
    const gw_thc_frame frame = {input->data, input->size, UINT64_MAX, GW_BACKEND_ALL};
    const gw_status status = gw_thc_frame_check(&frame, &info, &bad);
    thc_must(input->name, status, bad);
    json_t *o = frame_json(input->data, &info);
    if (request->json) {
        gw_cli_must(gw_cli_json_print(o));
    } else {
        print_lines(input->name, o);
        json_decref(o);
    }
}
