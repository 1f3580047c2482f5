/*
 * Input files as one read-only range of bytes: mapped if the file can be mapped, read into memory otherwise
 * (pipes, "-").
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
    uint64_t device, inode; /* identity of a file on disk; 0, 0 for pipes */
} gw_input_file;

/*
 * Opens path ("-" is standard input). Returns an exit code; messages are printed. On failure *input is
 * zeroed.
 *
 * If somebody cuts a mapped file short while it is read, the kernel sends SIGBUS; gw_input_file_guard(),
 * called once at the start of main, turns it into a message and exit code GW_CLI_IO.
 */
int gw_input_file_open(gw_input_file *input, const char *path);
void gw_input_file_close(gw_input_file *input);
void gw_input_file_guard(void);

#endif
