/*
 * Messages, number parsing, time and JSON output of the gradwire command.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_common.h"
#include "cuda_run.h"

#include "gradwire/gradwire.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_SIZE 4096

static void message_print(const char *file, uint64_t offset, const char *format, va_list arguments)
{
    char text[MESSAGE_SIZE];
    (void)vsnprintf(text, sizeof text, format, arguments);
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e) {
            *c = '?';
        }
    }
    if (file != NULL && offset != GW_CLI_NO_OFFSET) {
        fprintf(stderr, "gradwire: %s: at byte %llu: %s\n", file, (unsigned long long)offset, text);
    } else if (file != NULL) {
        fprintf(stderr, "gradwire: %s: %s\n", file, text);
    } else {
        fprintf(stderr, "gradwire: %s\n", text);
    }
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

void gw_cli_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    message_print(NULL, GW_CLI_NO_OFFSET, format, arguments);
    va_end(arguments);
}

int gw_cli_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    /* strtoull() alone would take "-1", leading blanks and octal. */
    if (text[0] < '0' || text[0] > '9') {
        return -1;
    }
    const int hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    char *end = NULL;
    errno = 0;
    const unsigned long long parsed = strtoull(text, &end, hexadecimal ? 16 : 10);
    if (errno != 0 || *end != '\0' || parsed < min || parsed > max) {
        return -1;
    }
    *value = parsed;
    return 0;
}

int gw_cli_parse_double(const char *text, double min, double max, double *value)
{
    char *end = NULL;
    const double parsed = strtod(text, &end);
    if (end == text || *end != '\0' || !(parsed >= min && parsed <= max)) {
        return -1;
    }
    *value = parsed;
    return 0;
}

void gw_cli_parse_backends(struct argp_state *state, const char *list, uint32_t *backends)
{
    char copy[128];
    if (strlen(list) >= sizeof copy) {
        argp_error(state, "--backend: the list is too long");
        return;
    }
    memcpy(copy, list, strlen(list) + 1);
    uint32_t mask = 0;
    char *position = NULL;
    for (const char *name = strtok_r(copy, ",", &position); name != NULL;
         name = strtok_r(NULL, ",", &position)) {
        if (strcmp(name, "all") == 0) {
            mask |= gw_backends_available();
            continue;
        }
        const uint32_t bit = gw_backend_from_name(name);
        if (bit == GW_BACKEND_CUDA) {
            const gw_status status = gw_cuda_run_open();
            if (status != GW_OK) {
                argp_error(state, "--backend: cuda: %s", gw_status_message(status));
            }
        } else if (bit == 0) {
            argp_error(state, "--backend: '%s' is not a backend (see gradwire info)", name);
        } else if ((gw_backends_available() & bit) == 0) {
            argp_error(state,
                       "--backend: '%s' is not in this build or not on this machine (see gradwire info)",
                       name);
        }
        mask |= bit;
    }
    if (mask == 0) {
        argp_error(state, "--backend: a name is missing");
    }
    *backends = mask;
}

double gw_cli_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

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

json_t *gw_cli_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

int gw_cli_json_print(json_t *object)
{
    if (object == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "not enough memory for the report");
    }
    const int failed = json_dumpf(object, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(object);
    putchar('\n');
    return failed != 0 ? gw_cli_error(GW_CLI_IO, NULL, "cannot print the report") : GW_CLI_OK;
}

int gw_cli_finish_stdout(int exit_code)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        const int reason = errno;
        (void)gw_cli_error(GW_CLI_IO, "standard output", "%s",
                           reason != 0 ? strerror(reason) : "write failed");
        return exit_code == GW_CLI_OK ? GW_CLI_IO : exit_code;
    }
    return exit_code;
}

void gw_cli_progress_start(gw_cli_progress *progress, const char *label)
{
    progress->label = label;
    progress->start = progress->last = gw_cli_seconds();
    progress->active = isatty(STDERR_FILENO);
    progress->shown = 0;
}

void gw_cli_progress_update(gw_cli_progress *progress, uint64_t done, uint64_t total)
{
    if (!progress->active || total == 0) {
        return;
    }
    /* Work that ends within a second shows nothing. */
    const double now = gw_cli_seconds();
    if (now - progress->start < 1.0 || now - progress->last < 0.2) {
        return;
    }
    progress->last = now;
    progress->shown = 1;
    fprintf(stderr, "\r%s: %3.0f %%", progress->label, 100.0 * (double)done / (double)total);
    fflush(stderr);
}

void gw_cli_progress_end(gw_cli_progress *progress)
{
    if (progress->shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->active = progress->shown = 0;
}
