/*
 * Messages, times of runs, JSON output and standard streams of the gradwire command.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_common.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_SIZE 4096

/* ---- messages ---- */

/* Characters without width, line ends, and those that turn the direction of text: U+200B to U+200F, U+2028 to
 * U+202E, U+2060 to U+206F, U+FEFF (a byte order mark). */
static int is_invisible(const unsigned char *c, size_t len)
{
    if (len != 3) {
        return 0;
    }
    const unsigned code = (unsigned)(c[0] & 0x0f) << 12 | (unsigned)(c[1] & 0x3f) << 6 | (c[2] & 0x3f);
    return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

/* Bytes of the character at `text`, 0 if it is a control character, invisible or not UTF-8. */
static size_t printable_len(const char *text, size_t size)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80) {
        return c[0] >= 0x20 && c[0] != 0x7f;
    }
    if (c[0] < 0xc2 || c[0] > 0xf4) {
        return 0;
    }
    const size_t len = c[0] < 0xe0 ? 2 : (c[0] < 0xf0 ? 3 : 4);
    for (size_t i = 1; i < len; i++) {
        if (i == size || (c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if (is_invisible(c, len)) {
        return 0;
    }
    /* U+0080 to U+009F are control characters; the other two begin encodings that are longer than needed. */
    const int is_low = (c[0] == 0xc2 || c[0] == 0xe0) && c[1] < 0xa0;
    return is_low || (c[0] == 0xf0 && c[1] < 0x90) ? 0 : len;
}

void gw_cli_put(FILE *stream, const char *text, size_t size)
{
    for (size_t i = 0; i < size;) {
        const size_t len = printable_len(text + i, size - i);
        if (len == 0) {
            fprintf(stream, "\\x%02x", (unsigned)(unsigned char)text[i]);
            i++;
        } else {
            (void)fwrite(text + i, 1, len, stream);
            i += len;
        }
    }
}

void gw_cli_puts(FILE *stream, const char *text)
{
    gw_cli_put(stream, text, strlen(text));
}

void gw_cli_print_arrow(const char *input, const char *output)
{
    gw_cli_puts(stdout, input);
    fputs(" -> ", stdout);
    gw_cli_puts(stdout, output);
    putchar('\n');
}

static void message_print(const char *file, uint64_t offset, const char *format, va_list arguments)
{
    char text[MESSAGE_SIZE];
    (void)vsnprintf(text, sizeof text, format, arguments);
    gw_cli_progress_end();
    fputs("gradwire: ", stderr);
    if (file != NULL) {
        gw_cli_puts(stderr, file);
        fputs(": ", stderr);
        if (offset != GW_CLI_NO_OFFSET) {
            fprintf(stderr, "at byte %llu: ", (unsigned long long)offset);
        }
    }
    gw_cli_puts(stderr, text);
    putc('\n', stderr);
}

int gw_cli_error(int exit_code, const char *file, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    message_print(file, GW_CLI_NO_OFFSET, format, arguments);
    va_end(arguments);
    return exit_code;
}

int gw_cli_error_at(int exit_code, const char *file, uint64_t offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    message_print(file, offset, format, arguments);
    va_end(arguments);
    return exit_code;
}

void gw_cli_fail(int exit_code, const char *file, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    message_print(file, GW_CLI_NO_OFFSET, format, arguments);
    va_end(arguments);
    exit(exit_code);
}

void gw_cli_fail_at(int exit_code, const char *file, uint64_t offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    message_print(file, offset, format, arguments);
    va_end(arguments);
    exit(exit_code);
}

void gw_cli_must(int code)
{
    if (code != GW_CLI_OK) {
        exit(code);
    }
}

void gw_cli_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    message_print(NULL, GW_CLI_NO_OFFSET, format, arguments);
    va_end(arguments);
}

/* ---- time and JSON ---- */

static int double_compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

double gw_cli_median(double *values, size_t count)
{
    qsort(values, count, sizeof values[0], double_compare);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double gw_cli_gbps(uint64_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / seconds * 1e-9 : 0;
}

int gw_cli_timer_next(gw_cli_timer *timer)
{
    enum { SHORT_RUNS = 5 };
    const double now = gw_cli_seconds();
    const uint64_t done = timer->started;
    if (done != 0) {
        timer->times[done - 1] = now - timer->start;
        timer->total += now - timer->start;
    }
    if (timer->runs != 0) {
        gw_cli_progress_set(done, timer->runs + 1);
    }
    if (timer->runs != 0 ? done > timer->runs
                         : done == SHORT_RUNS || (done != 0 && (timer->is_once || timer->total >= 0.2))) {
        return 0;
    }
    timer->started++;
    timer->start = gw_cli_seconds();
    return 1;
}

double gw_cli_timer_median(gw_cli_timer *timer)
{
    return timer->runs != 0 ? gw_cli_median(timer->times + 1, (size_t)timer->runs)
                            : gw_cli_median(timer->times, (size_t)timer->started);
}

void gw_cli_json_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(text));
}

void gw_cli_json_count(json_t *object, const char *key, uint64_t count)
{
    json_object_set_new(object, key, json_integer((json_int_t)count));
}

void gw_cli_json_flag(json_t *object, const char *key, int flag)
{
    json_object_set_new(object, key, json_boolean(flag));
}

void gw_cli_json_number(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, gw_cli_json_real(value));
}

json_t *gw_cli_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

int gw_cli_json_print(json_t *object)
{
    if (object == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "out of memory for the report");
    }
    const int failed = json_dumpf(object, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(object);
    putchar('\n');
    /* A failed write is reported when standard output is closed. */
    return failed != 0 && !ferror(stdout) ? gw_cli_error(GW_CLI_IO, NULL, "cannot make the report")
                                          : GW_CLI_OK;
}

/* ---- standard streams ---- */

static void stdout_close(void)
{
    errno = 0;
    const int failed = ferror(stdout);
    if (fclose(stdout) != 0 || failed) {
        const int reason = errno;
        (void)gw_cli_error(GW_CLI_IO, "standard output", "%s",
                           reason != 0 ? strerror(reason) : "write failed");
        _exit(GW_CLI_IO);
    }
}

void gw_cli_start(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* open() takes the lowest free number, here fd. Its mode makes the stream's own use fail. */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) {
            _exit(GW_CLI_IO);
        }
    }
    (void)setvbuf(stderr, NULL, _IOLBF, 0); /* messages are made of several calls */
    (void)atexit(stdout_close);
}
