/*
 * Finds the rule of docs/format.md that a frame breaks. The library has refused the frame; this only looks
 * for the place, in the order of section 8.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "frame_explain.h"

#include "cli_common.h"
#include "frame_parts.h"
#include "little_endian.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    HEADER_SIZE = 32,
    ENTRY_SIZE = 16,
    FLAG_DERIVED = 2,
    FLAG_INSTALLED = 4,
    FLAG_CHECKSUM = 8,
    FLAG_CONSTANT = 16,
    FLAG_CARRIED = 32
};

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* A frame and why the library refused it. */
typedef struct refusal {
    const gw_input_file *input;
    gw_status status;
} refusal;

__attribute__((noreturn, format(printf, 4, 5))) static void
rule_fail(const refusal *refused, int rule, uint64_t offset, const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    gw_cli_fail_at(GW_CLI_BAD_DATA, refused->input->name, offset, "%s (rule %d of docs/format.md: %s)", text,
                   rule, gw_status_name(refused->status));
}

/* Bytes of the parts of the extension that the flags announce. */
static uint32_t parts_size(uint32_t flags)
{
    return ((flags & FLAG_INSTALLED) != 0 ? 16u : 0u) +
           ((flags & (FLAG_DERIVED | FLAG_CONSTANT)) == FLAG_DERIVED ? 16u : 0u) +
           ((flags & FLAG_CHECKSUM) != 0 ? 8u : 0u);
}

/* Rules 1 to 8: the header by itself. */
static void header_explain(const refusal *refused)
{
    static const uint8_t magic[4] = {0x67, 0x57, 0x66, 0x1a};
    static const uint8_t cap_max[2][3] = {{18, 6, 9}, {23, 7, 10}};
    /* Bit n: step n is allowed. */
    static const uint8_t steps[2][3] = {{1u << 6, 1u << 2, 1u << 3}, {0x4e, 0x06, 0x0a}};
    const uint8_t *frame = refused->input->data;
    if (refused->input->size < HEADER_SIZE) {
        rule_fail(refused, 1, refused->input->size, "the file ends within the 32 bytes of the header");
    }
    for (unsigned i = 0; i < 4; i++) {
        if (frame[i] != magic[i]) {
            rule_fail(refused, 2, i, "not a gradwire frame: it must begin with 67 57 66 1a");
        }
    }
    const uint32_t flags = gw_cli_load16(frame + 8);
    const unsigned dtype = frame[6];
    const int derived = (flags & FLAG_DERIVED) != 0;
    const int constant = (flags & FLAG_CONSTANT) != 0;
    const int carried = (flags & FLAG_CARRIED) != 0;
    const unsigned last = gw_cli_load16(frame + 14);
    const unsigned step = frame[12];
    const unsigned cap = frame[13];
    if (frame[4] >> 4 < (frame[4] & 15)) {
        rule_fail(refused, 3, 4, "the version that a reader needs is above that of the writer");
    } else if ((frame[4] & 15) != 0) {
        rule_fail(refused, 3, 4, "a format version that this library does not read");
    } else if (frame[5] == 2 || frame[5] == 3) {
        rule_fail(refused, 4, 5,
                  frame[5] == 2
                      ? "a THC frame: use inspect or decompress with --codec thc"
                      : "a frame of a classic codec: use inspect or decompress with --codec classic");
    } else if (frame[5] != 1) {
        rule_fail(refused, 4, 5, "an unknown codec");
    } else if (dtype < 1 || dtype > 3) {
        rule_fail(refused, 4, 6, "an unknown dtype");
    } else if (flags > 63) {
        rule_fail(refused, 4, 8, "an unknown flag");
    } else if (frame[7] < 10 || frame[7] > 15) {
        rule_fail(refused, 5, 7, "chunk_log2 must be 10 to 15");
    } else if (constant && !derived) {
        rule_fail(refused, 6, 8, "the flag CONSTANT needs DERIVED");
    } else if (carried && derived) {
        rule_fail(refused, 6, 8, "the flag CARRIED excludes DERIVED and CONSTANT");
    } else if (constant || carried ? step != 1 : step > 7 || (steps[derived][dtype - 1] >> step & 1) == 0) {
        rule_fail(refused, 7, 12, "a step that such frames do not have");
    } else if (carried && cap != cap_max[1][dtype - 1]) {
        rule_fail(refused, 7, 13, "the cap of a carried frame must be the largest");
    } else if (!carried && (cap > cap_max[derived][dtype - 1] || (!constant && cap % step != 0))) {
        rule_fail(refused, 7, 13, "cap too large or not a multiple of the step");
    } else if (carried && (last < 6 || last > 14 || last > frame[7])) {
        rule_fail(refused, 7, 14, "block_log2 must be 6 to 14 and at most chunk_log2");
    } else if (last != 0 && !carried && (!derived || constant)) {
        rule_fail(refused, 7, 14, "drop_offset must be zero in explicit and constant frames");
    } else if (8u * frame[11] < parts_size(flags)) {
        rule_fail(refused, 7, 11, "the extension is announced shorter than what its flags need");
    } else if (gw_cli_load64(frame + 16) > (uint64_t)1 << 48) {
        rule_fail(refused, 8, 16, "more than 2^48 values");
    } else if (gw_cli_load64(frame + 16) > (uint64_t)1 << (32 + frame[7])) {
        rule_fail(refused, 8, 16, "more than 2^32 chunks");
    }
}

/* Rule 12: the parts of ignorable flags, from `at` to `end`. */
static void list_explain(const refusal *refused, uint64_t at, uint64_t end)
{
    const uint8_t *frame = refused->input->data;
    const unsigned flags = frame[10];
    unsigned last = 0;
    while (flags != 0 && at < end && frame[at] != 0) {
        const unsigned number = frame[at];
        const uint64_t part_size = 8u * (uint64_t)frame[at + 1];
        if (number > 8 || (flags >> (number - 1) & 1) == 0) {
            rule_fail(refused, 12, at, "a part of an ignorable flag that is not set");
        }
        if (number <= last) {
            rule_fail(refused, 12, at, "the parts of ignorable flags are out of order");
        }
        if (part_size == 0 || part_size > end - at) {
            rule_fail(refused, 12, at + 1, "a part of an ignorable flag does not fit the extension");
        }
        last = number;
        at += part_size;
    }
    if (flags != 0 && at == end) {
        rule_fail(refused, 12, at, "the list of parts of ignorable flags has no end");
    }
}

/* Rules 9 to 12, for frames with a valid header. */
static void structure_explain(const refusal *refused)
{
    const gw_input_file *input = refused->input;
    const uint8_t *frame = input->data;
    const size_t size = input->size;
    const uint32_t flags = gw_cli_load16(frame + 8);
    const uint64_t chunk_log2 = frame[7];
    const uint64_t chunk_count = (gw_cli_load64(frame + 16) + ((uint64_t)1 << chunk_log2) - 1) >> chunk_log2;
    const uint64_t directory = HEADER_SIZE + 8u * (uint64_t)frame[11];
    const uint64_t directory_end = directory + chunk_count * ENTRY_SIZE;
    const uint64_t payload = round_up(directory_end, 16);
    const uint64_t frame_size = gw_cli_load64(frame + 24);
    /* A stream was not read to its end if the header is invalid. */
    if (frame_size > size && !input->is_open) {
        rule_fail(refused, 9, size, "the header (byte 24) announces %llu bytes, the file has %llu",
                  (unsigned long long)frame_size, (unsigned long long)size);
    }
    if (frame_size < payload) {
        rule_fail(refused, 10, 24, "the frame is announced smaller than its header and directory");
    }
    /* RAW chunks are as long as their values, the last one padded to 16 bytes. */
    const uint64_t value_size = frame[6] == GW_FP32 ? 4 : 2;
    if (frame_size - payload > round_up(gw_cli_load64(frame + 16) * value_size, 16)) {
        rule_fail(refused, 10, 24, "the frame is announced larger than RAW chunks would be");
    }
    if (frame_size < size) {
        rule_fail(refused, 11, frame_size, "bytes follow the frame");
    }
    if (frame_size != size) {
        return;
    }
    /* Each part of the extension ends with a word that is zero; each flag has one part. */
    static const uint32_t part_flag[3] = {FLAG_INSTALLED, FLAG_DERIVED, FLAG_CHECKSUM};
    uint64_t part_end = HEADER_SIZE;
    for (unsigned i = 0; i < 3; i++) {
        const uint32_t part = parts_size(flags & (part_flag[i] | FLAG_CONSTANT));
        part_end += part;
        if (part != 0 && gw_cli_load32(frame + part_end - 4) != 0) {
            rule_fail(refused, 12, part_end - 4, "the reserved word of the extension is not zero");
        }
    }
    list_explain(refused, part_end, directory);
    for (uint64_t i = directory_end; i < payload; i++) {
        if (frame[i] != 0) {
            rule_fail(refused, 12, i, "padding before chunk 0 is not zero");
        }
    }
}

/* Rule 14: what one directory entry breaks by itself. `previous` is the start of the chunk before. */
static void entry_explain(const uint8_t *frame, const gw_gcomp_frame_info *info, uint64_t index,
                          uint64_t previous, const refusal *refused)
{
    const uint64_t offset = info->directory_offset + index * ENTRY_SIZE;
    const uint64_t place = gw_cli_load64(frame + offset);
    const uint64_t start = place & ~(uint64_t)15;
    const uint64_t kind = place & 15;
    const uint64_t codebook = gw_cli_load32(frame + offset + 8);
    const int has_codebook = kind == GW_GCOMP_CHUNK_CODED && !info->installed;
    const unsigned long long number = index;
    if (kind > 2) {
        rule_fail(refused, 14, offset, "directory entry %llu: an unknown kind of chunk", number);
    } else if (start < previous || start > info->frame_size || (index == 0 && start != previous)) {
        rule_fail(refused, 14, offset, "directory entry %llu: a chunk out of its place", number);
    } else if (has_codebook ? codebook > index : codebook != 0) {
        rule_fail(refused, 14, offset + 8, "directory entry %llu: an impossible codebook", number);
    } else if (!info->checksum && gw_cli_load32(frame + offset + 12) != 0) {
        rule_fail(refused, 14, offset + 12, "directory entry %llu: a checksum in a frame without checksums",
                  number);
    }
}

/* Whether a CODED chunk names a chunk that owns no codebook. Its `codebook` is at most its index. */
static int owner_is_missing(const uint8_t *directory, uint64_t index)
{
    const uint8_t *entry = directory + index * ENTRY_SIZE;
    const uint32_t codebook = gw_cli_load32(entry + 8);
    const uint8_t *owner = directory + (uint64_t)codebook * ENTRY_SIZE;
    return (entry[0] & 15) == GW_GCOMP_CHUNK_CODED &&
           ((owner[0] & 15) != GW_GCOMP_CHUNK_CODED || gw_cli_load32(owner + 8) != codebook);
}

/* Rule 14: the directory. */
static _Noreturn void directory_explain(const uint8_t *frame, const gw_gcomp_frame_info *info,
                                        const refusal *refused)
{
    const uint8_t *directory = frame + info->directory_offset;
    uint64_t previous = info->payload_offset;
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        entry_explain(frame, info, i, previous, refused);
        previous = gw_cli_load64(directory + i * ENTRY_SIZE) & ~(uint64_t)15;
    }
    for (uint64_t i = 0; i < info->chunk_count && !info->installed; i++) {
        if (owner_is_missing(directory, i)) {
            rule_fail(refused, 14, info->directory_offset + i * ENTRY_SIZE + 8,
                      "directory entry %llu names a chunk that owns no codebook", (unsigned long long)i);
        }
    }
    rule_fail(refused, 14, info->directory_offset, "the chunk sizes do not add up to the frame");
}

static _Noreturn void chunk_explain(const refusal *refused, const gw_gcomp_frame_info *info, uint64_t index)
{
    const char *file = refused->input->name;
    gw_chunk_parts parts;
    gw_chunk_parts_read(refused->input->data, refused->input->size, info, index, &parts);
    if (refused->status == GW_ERR_CHECKSUM) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, file, parts.chunk.offset, "chunk %llu: checksum mismatch (rule 18)",
                       (unsigned long long)index);
    }
    if (parts.broken_rule != 0) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, file, parts.broken_offset, "chunk %llu is corrupt: %s (rule %d)",
                       (unsigned long long)index, parts.broken_text, parts.broken_rule);
    }
    gw_cli_fail_at(GW_CLI_BAD_DATA, file, parts.chunk.offset,
                   "chunk %llu is corrupt: its %s contradict its counts or each other (rules 19 to 26)",
                   (unsigned long long)index,
                   parts.chunk.kind == GW_GCOMP_CHUNK_RAW ? "values or padding" : "runs, planes or escapes");
}

void gw_frame_must(const gw_input_file *input, gw_status status, uint64_t bad_chunk)
{
    const refusal refused = {input, status};
    const uint8_t *frame = input->data;
    if (status == GW_OK) {
        return;
    }
    gw_gcomp_frame_info info;
    const gw_status peeked = gw_gcomp_frame_peek(frame, input->size, (uint64_t)1 << 48, &info);
    if (peeked == GW_OK && bad_chunk < info.chunk_count && info.frame_size == input->size &&
        (status == GW_ERR_CORRUPT || status == GW_ERR_CHECKSUM)) {
        chunk_explain(&refused, &info, bad_chunk);
    }
    header_explain(&refused);
    structure_explain(&refused);
    if (status == GW_ERR_CHECKSUM && peeked == GW_OK) {
        rule_fail(&refused, 13, HEADER_SIZE + parts_size(gw_cli_load16(frame + 8)) - 8,
                  "checksum mismatch of header and directory");
    }
    if (status == GW_ERR_HEADER && peeked == GW_OK) {
        directory_explain(frame, &info, &refused);
    }
    if (status == GW_ERR_TABLE && peeked == GW_OK) {
        rule_fail(&refused, 15, HEADER_SIZE,
                  "codebook %u, generation %u, CRC32C %08x, is not in the frame and not installed here",
                  info.codebook_id, info.codebook_generation, info.codebook_crc);
    }
    if (status == GW_ERR_LIMIT) {
        rule_fail(&refused, 8, 16, "more values than the limit");
    }
    gw_cli_fail(GW_CLI_BAD_DATA, input->name, "%s (%s)", gw_status_message(status), gw_status_name(status));
}
