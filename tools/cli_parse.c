/*
 * Command lines: argp with one-line errors, numbers, sizes, names of backends.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_common.h"
#include "cuda_run.h"

#include "gradwire/gradwire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- argp ---- */

/* argp adds a hint to each error ("Try `gradwire --help' ...", two lines). This stream drops it, and prints
 * the error, which is before it, as one line. `cookie` points to a flag: the hint has been seen. */
static ssize_t one_line_write(void *cookie, const char *text, size_t size)
{
    static const char start[] = "Try `";
    int *seen = cookie;
    if (*seen) {
        return (ssize_t)size;
    }
    const char *hint = memmem(text, size, start, sizeof start - 1);
    const size_t len = hint == NULL ? size : (size_t)(hint - text);
    if (len > 0) {
        gw_cli_put(stderr, text, len - (text[len - 1] == '\n'));
    }
    if (len > 0 && hint != NULL) {
        putc('\n', stderr);
    }
    *seen = hint != NULL;
    return (ssize_t)size;
}

static error_t outer_parse(int key, char *text, struct argp_state *state)
{
    static int seen;
    const cookie_io_functions_t functions = {NULL, one_line_write, NULL, NULL};
    (void)text;
    if (key != ARGP_KEY_INIT) {
        return ARGP_ERR_UNKNOWN;
    }
    FILE *stream = fopencookie(&seen, "w", functions);
    state->err_stream = stream != NULL ? stream : stderr;
    state->child_inputs[0] = state->input;
    return 0;
}

/* Called last: no parser of the command took the argument. */
static error_t rest_parse(int key, char *text, struct argp_state *state)
{
    if (key != ARGP_KEY_ARG) {
        return ARGP_ERR_UNKNOWN;
    }
    argp_error(state, "unexpected argument '%s'", text);
    return 0;
}

/* Whether the parser has an option that takes a value: with this short name, or, if key is 0, with a long
 * name that starts like this. */
static int takes_value(const struct argp *argp, int key, const char *name)
{
    const struct argp_option *option = argp->options;
    for (; option != NULL && (option->name != NULL || option->key != 0 || option->doc != NULL); option++) {
        const int is_it = key != 0 ? option->key == key
                                   : option->name != NULL && strncmp(option->name, name, strlen(name)) == 0;
        if (is_it) {
            return option->arg != NULL && (option->flags & OPTION_ARG_OPTIONAL) == 0;
        }
    }
    for (const struct argp_child *child = argp->children; child != NULL && child->argp != NULL; child++) {
        if (takes_value(child->argp, key, name)) {
            return 1;
        }
    }
    return 0;
}

/* Whether the value of an option is the next argument. */
static int value_follows(const struct argp *argp, const char *option)
{
    if (option[0] != '-' || option[1] == '\0') {
        return 0;
    }
    if (option[1] == '-') {
        return strchr(option, '=') == NULL && takes_value(argp, 0, option + 2);
    }
    for (const char *c = option + 1; *c != '\0'; c++) {
        if (takes_value(argp, *c, NULL)) {
            return c[1] == '\0'; /* else the value is the rest */
        }
    }
    return 0;
}

/* getopt prints unknown options as they are; those with control characters end here instead. With
 * ARGP_IN_ORDER the first argument ends the options of this parser. */
static void options_check(const struct argp *argp, int argc, char **argv, unsigned flags)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if ((flags & ARGP_IN_ORDER) != 0 && argv[i][0] != '-') {
            return;
        }
        if (i > 1 && value_follows(argp, argv[i - 1])) {
            continue;
        }
        const size_t name_len = argv[i][0] != '-' ? 0 : (argv[i][1] == '-' ? strcspn(argv[i], "=") : 2);
        for (size_t j = 0; j < name_len && argv[i][j] != '\0'; j++) {
            if ((unsigned char)argv[i][j] < 0x20 || (unsigned char)argv[i][j] > 0x7e) {
                exit(gw_cli_error(GW_CLI_USAGE, argv[i], "is not an option"));
            }
        }
    }
}

void gw_cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input)
{
    const struct argp rest = {NULL, rest_parse, NULL, NULL, NULL, NULL, NULL};
    const struct argp_child children[] = {{argp, 0, NULL, 0}, {&rest, 0, NULL, 0}, {NULL, 0, NULL, 0}};
    const struct argp outer = {NULL, outer_parse, NULL, NULL, children, NULL, NULL};
    argp_err_exit_status = GW_CLI_USAGE;
    options_check(argp, argc, argv, flags);
    if (argp_parse(&outer, argc, argv, flags, NULL, input) != 0) {
        exit(GW_CLI_USAGE);
    }
}

/* ---- numbers and names ---- */

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

int gw_cli_parse_size(const char *text, uint64_t *value)
{
    static const char units[] = "KMGT";
    char digits[32];
    size_t len = strlen(text);
    const char *unit = len == 0 ? NULL : strchr(units, text[len - 1]);
    len -= unit != NULL;
    if (len >= sizeof digits) {
        return -1;
    }
    memcpy(digits, text, len);
    digits[len] = '\0';
    const unsigned shift = unit == NULL ? 0 : 10 * (unsigned)(unit - units + 1);
    if (gw_cli_parse_u64(digits, 0, UINT64_MAX >> shift, value) != 0) {
        return -1;
    }
    *value <<= shift;
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
