/*
 * Reading and writing norm files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "norm_file.h"

#include <stdlib.h>
#include <string.h>

#include "cli_output.h"
#include "input_file.h"
#include "little_endian.h"
#include "thc_options.h"

enum { HEADER_SIZE = 24 };

static const uint8_t magic[5] = {'g', 'W', 'n', 0x1a, 0};

static uint32_t checksum(const uint8_t *data, size_t size)
{
    return gw_crc32c(gw_crc32c(0, data, HEADER_SIZE - 4), data + HEADER_SIZE, size - HEADER_SIZE);
}

norm_file norm_file_read(const char *path)
{
    gw_input_file input;
    norm_file file;
    gw_cli_must(gw_input_file_open(&input, path));
    gw_cli_must(gw_input_file_fill(&input, HEADER_SIZE));
    const uint8_t *data = input.data;
    if (input.size < HEADER_SIZE || memcmp(data, magic, sizeof magic) != 0) {
        gw_cli_fail(GW_CLI_BAD_DATA, input.name, "not a norm file");
    }
    file.transform = data[5];
    file.block_log2 = data[6];
    file.count = gw_cli_load64(data + 8);
    file.merged = gw_cli_load32(data + 16);
    if (file.transform > GW_THC_ROTATED || file.block_log2 < GW_THC_BLOCK_LOG2_MIN ||
        file.block_log2 > GW_THC_BLOCK_LOG2_MAX || data[7] != 0 || file.merged == 0) {
        gw_cli_fail(GW_CLI_BAD_DATA, input.name, "header breaks a rule");
    }
    const uint64_t blocks =
        (file.count >> file.block_log2) + ((file.count & ((1u << file.block_log2) - 1u)) != 0);
    const uint64_t wanted = blocks * (file.transform == GW_THC_ROTATED ? 1 : 2);
    gw_cli_must(gw_input_file_fill(&input, HEADER_SIZE + 4 * wanted + 1));
    data = input.data;
    file.pattern_count = (input.size - HEADER_SIZE) / 4;
    if (file.pattern_count != wanted || input.size != HEADER_SIZE + file.pattern_count * 4) {
        gw_cli_fail(GW_CLI_BAD_DATA, input.name, "%zu bytes do not hold %llu patterns", input.size,
                    (unsigned long long)wanted);
    }
    if (checksum(data, input.size) != gw_cli_load32(data + 20)) {
        gw_cli_fail(GW_CLI_BAD_DATA, input.name, "checksum mismatch");
    }
    file.patterns = gw_cli_alloc(file.pattern_count * 4);
    for (size_t i = 0; i < file.pattern_count; i++) {
        file.patterns[i] = gw_cli_load32(data + HEADER_SIZE + 4 * i);
    }
    gw_input_file_close(&input);
    return file;
}

void norm_file_write(const norm_file *file, const char *path)
{
    size_t size = HEADER_SIZE + file->pattern_count * 4;
    uint8_t *data = gw_cli_alloc(size);
    memset(data, 0, HEADER_SIZE);
    memcpy(data, magic, sizeof magic);
    data[5] = file->transform;
    data[6] = file->block_log2;
    gw_cli_store32(data + 8, (uint32_t)file->count);
    gw_cli_store32(data + 12, (uint32_t)(file->count >> 32));
    gw_cli_store32(data + 16, file->merged);
    for (size_t i = 0; i < file->pattern_count; i++) {
        gw_cli_store32(data + HEADER_SIZE + 4 * i, file->patterns[i]);
    }
    gw_cli_store32(data + 20, checksum(data, size));
    gw_cli_write_file(path, data, size);
    free(data);
}

void norm_file_free(norm_file *file)
{
    free(file->patterns);
    file->patterns = NULL;
}
