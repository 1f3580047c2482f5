/*
 * Output files that appear complete or not at all: written under a temporary name in the same directory,
 * synchronised, then renamed. The temporary file is removed on failure, by exit() and by the signals that end
 * a process, except SIGKILL and those of a crash. An existing target keeps its contents until the rename.
 *
 * Targets that are not regular files ("-" for standard output, /dev/null, pipes) are written directly, and
 * so are descriptors of the caller's (/dev/fd/3), after what is in them. Symbolic links are followed, also
 * those to what does not exist yet.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_ATOMIC_FILE_H
#define GW_ATOMIC_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "input_file.h"

typedef struct gw_atomic_file {
    int fd;           /* -1 when closed */
    int direct;       /* written in place, without a rename */
    const char *name; /* for messages; the caller's string */
    char *path_final; /* where the rename goes: the target of a symbolic link, not the link */
    char *path_temporary;
} gw_atomic_file;

/* Return an exit code and print messages. After a failure nothing is left on disk and the object is closed.
 * At most one file may be open at a time: the signal handler removes one name. */
int gw_atomic_file_open(gw_atomic_file *file, const char *path);
int gw_atomic_file_write(gw_atomic_file *file, const void *data, size_t size);
int gw_atomic_file_commit(gw_atomic_file *file);

/* Removes the temporary file. Does nothing on a closed object. */
void gw_atomic_file_discard(gw_atomic_file *file);

/* Removes the temporary file of the open file, if there is one. Async-signal-safe. */
void gw_atomic_file_discard_pending(void);

/* 1 for "-" and for names and links that stand for standard output, such as /dev/stdout. */
int gw_atomic_file_is_stdout(const char *path);

/* 1 if both names lead to one regular file, which need not exist yet. Never for standard output. */
int gw_atomic_file_is_same(const char *a, const char *b);

/* 1 if path names the same file on disk as the input. */
int gw_atomic_file_is_input(const char *path, const gw_input_file *input);

#endif
