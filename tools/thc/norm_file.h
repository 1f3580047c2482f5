/*
 * Norm files (.norm): the patterns of one worker, or their maxima.
 *
 *    0  4  magic 'g','W','n',0x1a     8  8  elements           20  4  CRC32C of bytes 0..19 and the patterns
 *    4  1  version 0                 16  4  files merged        24 ..  patterns, uint32 little-endian
 *    5  1  transform   6  1  log2 of the block length   7  1  zero
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_NORM_FILE_H
#define GW_NORM_FILE_H

#include "gradwire/thc.h"

typedef struct norm_file {
    uint8_t transform;
    uint8_t block_log2;
    uint64_t count;
    uint32_t merged;
    size_t pattern_count;
    uint32_t *patterns; /* malloc */
} norm_file;

/* Both end the process with a message if they fail. */
norm_file norm_file_read(const char *path);
void norm_file_write(const norm_file *file, const char *path);
void norm_file_free(norm_file *file);

#endif
