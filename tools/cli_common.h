/*
 * What every subcommand of the gradwire command shares: exit codes, messages, numbers in arguments, time,
 * JSON output.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLI_COMMON_H
#define GW_CLI_COMMON_H

#include <stddef.h>
#include <stdint.h>

#include <argp.h>
#include <jansson.h>

/* Exit codes of the command (docs/cli.md). */
enum {
    GW_CLI_OK = 0,
    GW_CLI_BAD_DATA = 1, /* a file breaks a rule, or a comparison failed */
    GW_CLI_USAGE = 2, /* the command line asks for something that does not exist or does not fit together */
    GW_CLI_IO = 3     /* a file cannot be opened, read or written, or memory is short */
};

/* Offset of gw_cli_error_at() where none is known. */
#define GW_CLI_NO_OFFSET UINT64_MAX

/*
 * Print "gradwire: FILE: MESSAGE" and "gradwire: FILE: at byte N: MESSAGE" to stderr and return exit_code.
 * `file` may be NULL. Bytes of the message that are not printable ASCII are shown as '?', so hostile files
 * cannot write escape sequences to a terminal.
 */
int gw_cli_error(int exit_code, const char *file, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gw_cli_error_at(int exit_code, const char *file, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A note on stderr that does not change the exit code. */
void gw_cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whole-string conversions. Return 0, or -1 if the text is not a number or lies outside [min, max]. u64 takes
 * decimal and 0x hexadecimal, nothing else; double takes what strtod takes except NaN. */
int gw_cli_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value);
int gw_cli_parse_double(const char *text, double min, double max, double *value);

/* The argument of --backend: names with commas between, such as "scalar,avx2", or "all". Ends the command
 * with a message if a name is unknown, or known and not present here. */
void gw_cli_parse_backends(struct argp_state *state, const char *list, uint32_t *backends);

/* Seconds of a monotonic clock. */
double gw_cli_seconds(void);

/* Median; sorts the array. count > 0. */
double gw_cli_median(double *values, size_t count);

/* bytes / seconds / 1e9, 0 if no time was measured. */
double gw_cli_gbps(uint64_t bytes, double seconds);

/* A JSON number, or null for what JSON cannot say. */
json_t *gw_cli_json_real(double value);

/* Prints an object and a newline to stdout and releases it; returns an exit code. */
int gw_cli_json_print(json_t *object);

/* Flushes stdout; GW_CLI_IO with a message if anything that was printed got lost (a full disk behind a
   redirection). */
int gw_cli_finish_stdout(int exit_code);

/* Progress on stderr: a line that is rewritten at most five times a second and removed at the end. Active
 * only if stderr is a terminal. Not thread safe: one thread reports. */
typedef struct gw_cli_progress {
    const char *label;
    double start, last;
    int active, shown;
} gw_cli_progress;

void gw_cli_progress_start(gw_cli_progress *progress, const char *label);
void gw_cli_progress_update(gw_cli_progress *progress, uint64_t done, uint64_t total);
void gw_cli_progress_end(gw_cli_progress *progress);

#endif
