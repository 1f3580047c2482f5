/*
 * Plain or gzip text.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "text_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_memory.h"

#define PACKED_SIZE ((size_t)1 << 16)

int text_source_open(text_source *source, const char *path, uint64_t size_max)
{
    memset(source, 0, sizeof *source);
    source->path = path;
    source->size_max = size_max;
    source->packed = plan_alloc(PACKED_SIZE, 1);
    source->file = fopen(path, "rb");
    int code = GW_CLI_OK;
    if (source->file == NULL) {
        code = gw_cli_error(GW_CLI_IO, path, "cannot open: %s", strerror(errno));
    } else if (inflateInit2(&source->stream, 15 + 16) != Z_OK) { /* 16: gzip only */
        code = gw_cli_error(GW_CLI_IO, path, "out of memory");
    } else {
        const int first = fgetc(source->file);
        const int second = first == 0x1f ? fgetc(source->file) : EOF;
        source->is_gzip = second == 0x8b;
        rewind(source->file);
    }
    if (code != GW_CLI_OK) {
        text_source_close(source);
    }
    return code;
}

void text_source_close(text_source *source)
{
    (void)inflateEnd(&source->stream); /* harmless on a zeroed stream */
    free(source->packed);
    if (source->file != NULL) {
        (void)fclose(source->file);
    }
    memset(source, 0, sizeof *source);
}

static int fail(const text_source *source, const char *what, const char *detail)
{
    return gw_cli_error_at(GW_CLI_BAD_DATA, source->path, source->offset, "%s%s", what, detail);
}

/* Reads more of the file once inflate() has used up its input. *end: there is no more. */
static int refill(text_source *source, int *end)
{
    size_t got = fread(source->packed, 1, PACKED_SIZE, source->file);
    if (got == 0 && ferror(source->file)) {
        return gw_cli_error(GW_CLI_IO, source->path, "read error: %s", strerror(errno));
    }
    source->stream.next_in = source->packed;
    source->stream.avail_in = (unsigned)got;
    *end = got == 0;
    return GW_CLI_OK;
}

static int read_gzip(text_source *source, char *text, size_t capacity, size_t *got)
{
    z_stream *stream = &source->stream;
    const unsigned room = capacity < ((size_t)1 << 30) ? (unsigned)capacity : 1u << 30;
    stream->next_out = (unsigned char *)text;
    stream->avail_out = room;
    while (stream->avail_out == room) {
        if (stream->avail_in == 0) {
            int end = 0;
            int code = refill(source, &end);
            if (code != GW_CLI_OK || end) {
                return code != GW_CLI_OK     ? code
                       : source->member_open ? fail(source, "the gzip stream is truncated", "")
                                             : code;
            }
        }
        if (!source->member_open && source->member_seen) {
            for (; stream->avail_in > 0 && *stream->next_in == 0; stream->avail_in--) {
                stream->next_in++;
            }
            if (stream->avail_in == 0) {
                continue;
            }
        }
        source->member_open = 1;
        const int status = inflate(stream, Z_NO_FLUSH);
        if (status == Z_STREAM_END) {
            source->member_open = 0;
            source->member_seen = 1;
            if (inflateReset(stream) != Z_OK) {
                return gw_cli_error(GW_CLI_IO, source->path, "out of memory");
            }
        } else if (status != Z_OK && status != Z_BUF_ERROR) {
            return fail(source, "the gzip stream is damaged: ",
                        stream->msg != NULL ? stream->msg : "no reason given");
        }
    }
    *got = room - stream->avail_out;
    if (*got > source->size_max - source->offset) {
        return fail(source, "the gzip file expands to more than --max-size allows", "");
    }
    return GW_CLI_OK;
}

int text_source_read(text_source *source, char *text, size_t capacity, size_t *got)
{
    int code = GW_CLI_OK;
    *got = 0;
    if (source->is_gzip) {
        code = read_gzip(source, text, capacity, got);
    } else {
        *got = fread(text, 1, capacity, source->file);
        if (*got == 0 && ferror(source->file)) {
            code = gw_cli_error(GW_CLI_IO, source->path, "read error: %s", strerror(errno));
        }
    }
    source->offset += *got;
    return code;
}
