/*
 * What the subcommands of the gradwire command share: exit codes, messages, command lines, time, JSON output,
 * progress.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLI_COMMON_H
#define GW_CLI_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <argp.h>
#include <jansson.h>

/* Exit codes of the command (docs/cli.md). */
enum {
    GW_CLI_OK = 0,
    GW_CLI_BAD_DATA = 1, /* a file breaks a rule, or a comparison failed */
    GW_CLI_USAGE = 2,    /* bad command line */
    GW_CLI_IO = 3        /* a file cannot be opened, read or written, or out of memory */
};

/*
 * Called once at the start of main:
 * - standard streams that are closed are opened, so that no other file gets their numbers; reading or writing
 *   them still fails;
 * - when the process exits, standard output is closed. If that fails or anything that was printed is lost (a
 *   full disk), the exit code is GW_CLI_IO, with a message.
 */
void gw_cli_start(void);

/* ---- messages ---- */

/* Offset of gw_cli_error_at() where none is known. */
#define GW_CLI_NO_OFFSET UINT64_MAX

/*
 * Print "gradwire: FILE: MESSAGE" and "gradwire: FILE: at byte N: MESSAGE" to stderr and return exit_code.
 * `file` may be NULL. Both parts are printed like gw_cli_put() does, and end the progress line.
 */
int gw_cli_error(int exit_code, const char *file, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gw_cli_error_at(int exit_code, const char *file, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* For commands, of which a process runs one: the same, and the end of the process. The system frees and
 * closes what is left open; the temporary file of an output is removed (atomic_file.h). */
__attribute__((noreturn)) void gw_cli_fail(int exit_code, const char *file, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
__attribute__((noreturn)) void gw_cli_fail_at(int exit_code, const char *file, uint64_t offset,
                                              const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Ends the process with this exit code unless it is GW_CLI_OK: its message has been printed. */
void gw_cli_must(int code);

/* A note on stderr that does not change the exit code. */
void gw_cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print text from outside. Bytes of control and invisible characters and of invalid UTF-8 appear as \xNN, so
 * that file names and hostile files cannot forge lines or send escape sequences to a terminal. */
void gw_cli_put(FILE *stream, const char *text, size_t size);
void gw_cli_puts(FILE *stream, const char *text);

/* "INPUT -> OUTPUT" and a newline on stdout, printed like gw_cli_put() does. */
void gw_cli_print_arrow(const char *input, const char *output);

/* ---- command lines ---- */

/* argp_parse() with errors of one line. Returns only if the command line is good; ends the process with
 * GW_CLI_USAGE if it is not. */
void gw_cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input);

/* Whole-string conversions. Return 0, or -1 if the text is not a number or lies outside [min, max].
 * - u64: decimal or 0x hexadecimal, nothing else.
 * - size: decimal, then optionally K, M, G or T for powers of 1024.
 * - double: what strtod accepts except NaN. */
int gw_cli_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value);
int gw_cli_parse_size(const char *text, uint64_t *value);
int gw_cli_parse_double(const char *text, double min, double max, double *value);

/* The argument of --backend: names separated by commas, such as "scalar,avx2", or "all". Ends the process
 * with a message if a name is unknown or its backend is not present here. */
void gw_cli_parse_backends(struct argp_state *state, const char *list, uint32_t *backends);

/* ---- time ---- */

/* Seconds of a monotonic clock. */
double gw_cli_seconds(void);

/* Median; sorts the array. count > 0. */
double gw_cli_median(double *values, size_t count);

/* bytes / seconds / 1e9, 0 if no time was measured. */
double gw_cli_gbps(uint64_t bytes, double seconds);

/*
 * Repeats work and measures each run:
 *
 *     gw_cli_timer timer = {.runs = 5};
 *     while (gw_cli_timer_next(&timer)) {
 *         ...
 *     }
 *     seconds = gw_cli_timer_median(&timer);
 *
 * With runs != 0 there is one run more, which is not counted because it includes page faults, and the
 * progress line shows how many are done. With runs == 0 work that takes less than 0.2 s is repeated, up to 5
 * runs in all, unless is_once.
 */
enum { GW_CLI_RUNS_MAX = 1000 };
typedef struct gw_cli_timer {
    uint64_t runs; /* at most GW_CLI_RUNS_MAX */
    int is_once;
    uint64_t started;
    double start, total;
    double times[GW_CLI_RUNS_MAX + 1];
} gw_cli_timer;

int gw_cli_timer_next(gw_cli_timer *timer);
double gw_cli_timer_median(gw_cli_timer *timer);

/* ---- JSON ---- */

/* A JSON number, or null for what JSON cannot express. */
json_t *gw_cli_json_real(double value);

/* Set a member of an object. */
void gw_cli_json_text(json_t *object, const char *key, const char *text);
void gw_cli_json_count(json_t *object, const char *key, uint64_t count);
void gw_cli_json_flag(json_t *object, const char *key, int flag);
void gw_cli_json_number(json_t *object, const char *key, double value);

/* Prints an object and a newline to stdout and releases it; returns an exit code. */
int gw_cli_json_print(json_t *object);

/* ---- progress ---- */

/*
 * A line on stderr for work that takes more than a second; nothing if stderr is not a terminal. It shows
 * `done` / `total` in per cent, or the elapsed seconds while total is 0, and disappears at the end. There is
 * one line: begin ends the previous one. gw_cli_progress_set() may be called from any thread, also without
 * begin. `label` must live until the end.
 */
void gw_cli_progress_begin(const char *label);
void gw_cli_progress_set(uint64_t done, uint64_t total);
void gw_cli_progress_end(void);

#endif
