/*
 * Input files as one read-only range of bytes: mapped if the file can be mapped, else (pipes, devices) read
 * into memory as far as the caller needs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_INPUT_FILE_H
#define GW_INPUT_FILE_H

#include <stddef.h>
#include <stdint.h>

typedef struct gw_input_file {
    const uint8_t *data; /* NULL when size is 0 */
    size_t size;
    const char *name; /* for messages: the path, or "standard input"; the caller's string */
    int mapped;
    int is_open; /* `fd` may have more bytes */
    int fd;
    size_t capacity;        /* of `data`, if not mapped */
    uint64_t device, inode; /* identity of a file on disk; 0, 0 for pipes */
} gw_input_file;

/*
 * Opens path ("-" is standard input). Only a mapped file has bytes then: call gw_input_file_fill() before
 * each use of more bytes. Return an exit code and print messages. On failure *input is zeroed.
 *
 * If a mapped file is truncated while it is read, the kernel sends SIGBUS; gw_input_file_guard(), called once
 * at the start of main, turns it into a message and exit code GW_CLI_IO.
 */
int gw_input_file_open(gw_input_file *input, const char *path);

/* Reads until `size` bytes are there or the file ends; input->size is then the number. `data` may move.
 * Formats with a header fill the header, check it, and fill one byte more than it announces. */
int gw_input_file_fill(gw_input_file *input, uint64_t size);

/* Opens a frame of any codec: fills the header and, if it is valid and announces at most len_max values,
 * the frame and one byte more. An invalid header is no error here. */
int gw_input_file_open_frame(gw_input_file *input, const char *path, uint64_t len_max);

/* 1 if the bytes begin like a frame. */
int gw_input_file_is_frame(const gw_input_file *input);

/* The codec (docs/format.md section 2, byte 5) of a regular file that begins like a frame, else 0. */
unsigned gw_frame_file_codec(const char *path);

void gw_input_file_close(gw_input_file *input);
void gw_input_file_guard(void);

/* Gives pages back that lie in [start, start + size) as a whole. Their contents are undefined from then on,
 * except in a mapped file. `start` may point into a mapped file or into memory of malloc(). */
void gw_memory_release(const void *start, size_t size);

#endif
