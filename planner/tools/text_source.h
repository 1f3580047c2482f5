/*
 * A file read as text, inflated on the way if it is gzip. Stricter than zlib's own gzip reader: only
 * further members and zeros, with which tapes and block devices pad, may follow a gzip member, so that a
 * damaged file is noticed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TEXT_SOURCE_H
#define GW_TEXT_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <zlib.h>

typedef struct text_source {
    const char *path;
    FILE *file;
    uint64_t offset;   /* bytes of text delivered: place of errors */
    uint64_t size_max; /* of text from a gzip file */
    int is_gzip;
    int member_open, member_seen; /* inside a gzip member; after one */
    z_stream stream;
    unsigned char *packed; /* bytes of the file that inflate() has not seen */
} text_source;

/* A gzip file of 2 MB can expand to 2 GB: one whose text exceeds size_max bytes is refused where it does. */
#define TEXT_SOURCE_SIZE_MAX ((uint64_t)1 << 30) /* the default of --max-size */

/* Messages printed, exit code. After a failed open nothing needs to be closed. */
int text_source_open(text_source *source, const char *path, uint64_t size_max);
void text_source_close(text_source *source);

/* Delivers up to capacity bytes; *got == 0 is the end. */
int text_source_read(text_source *source, char *text, size_t capacity, size_t *got);

#endif
