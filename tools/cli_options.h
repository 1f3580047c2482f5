/*
 * Command lines as tables: a row per option says where its value goes and what it may be. argp reads them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLI_OPTIONS_H
#define GW_CLI_OPTIONS_H

#include "cli_common.h"

/* What most commands take; the requests of all commands begin with it. */
typedef struct gw_request {
    const char *codec; /* its name, where the command has several */
    char **inputs;
    int input_count;
    const char *input;  /* the first of them */
    const char *output; /* -o; "-" if it stands for standard output */
    int json;
    uint32_t backends; /* mask, checked against the machine; set it to GW_BACKEND_ALL */
    uint64_t len_max;  /* frames with more values are refused */
} gw_request;

/* The values of an option that may be repeated. */
enum { GW_TEXTS_MAX = 8 };
typedef struct gw_text_list {
    const char *items[GW_TEXTS_MAX];
    int count;
} gw_text_list;

typedef enum gw_option_kind {
    GW_OPTION_FLAG,     /* an integer, which becomes `max` */
    GW_OPTION_TEXT,     /* const char * */
    GW_OPTION_INPUT,    /* const char *, a file that the command reads */
    GW_OPTION_INPUTS,   /* gw_text_list of such files, one each time the option is given */
    GW_OPTION_OUTPUT,   /* const char *: "-" if the name stands for standard output */
    GW_OPTION_INTEGER,  /* an unsigned integer from `min` to `max` */
    GW_OPTION_REAL,     /* float or double from `low` to `high` */
    GW_OPTION_SIZE,     /* uint64_t: bytes, with K, M, G or T */
    GW_OPTION_CHOICE,   /* int or an enum: the index in `names`, which NULL ends */
    GW_OPTION_BACKENDS, /* uint32_t */
    GW_OPTION_OTHER     /* `parse` sets it */
} gw_option_kind;

typedef struct gw_option gw_option;
struct gw_option {
    const char *name;  /* NULL ends a table */
    const char *value; /* what the help calls its value; NULL: it has none */
    const char *help;
    gw_option_kind kind;
    size_t offset, size; /* of the member of the request that it sets */
    size_t given;        /* offset of an int of the request that becomes 1; 0: none */
    int letter;          /* short name, or 0 */
    int is_hidden;
    uint64_t min, max;
    double low, high;
    const char *const *names;
    const char *noun;   /* an integer in messages that give the range (default: "an integer") */
    const char *wanted; /* what messages say in place of the range */
    void (*parse)(struct argp_state *state, const gw_option *option, const char *text, void *member);
    uint32_t users; /* for gw_option_group.check */
};

/* Rows are {name, value, help, one of these, .letter = ...}. */
#define GW_AT(type, member)         .offset = offsetof(type, member), .size = sizeof(((type *)NULL)->member)
#define GW_SET(type, member, value) GW_OPTION_FLAG, GW_AT(type, member), .max = (value)
#define GW_FLAG(type, member)       GW_SET(type, member, 1)
#define GW_TEXT(type, member)       GW_OPTION_TEXT, GW_AT(type, member)
#define GW_INPUT(type, member)      GW_OPTION_INPUT, GW_AT(type, member)
#define GW_INPUTS_OF(type, member)  GW_OPTION_INPUTS, GW_AT(type, member)
#define GW_OUTPUT(type, member)     GW_OPTION_OUTPUT, GW_AT(type, member)
#define GW_SIZE(type, member)       GW_OPTION_SIZE, GW_AT(type, member)
#define GW_INTEGER(type, member, lowest, highest)                                                            \
    GW_OPTION_INTEGER, GW_AT(type, member), .min = (lowest), .max = (highest)
#define GW_REAL(type, member, lowest, highest)                                                               \
    GW_OPTION_REAL, GW_AT(type, member), .low = (lowest), .high = (highest)
#define GW_CHOICE(type, member, list)    GW_OPTION_CHOICE, GW_AT(type, member), .names = (list)
#define GW_OTHER(type, member, function) GW_OPTION_OTHER, GW_AT(type, member), .parse = (function)

#define GW_OUTPUT_ROW(value, help)                                                                           \
    {                                                                                                        \
        "output", value, help, GW_OPTION_OUTPUT, GW_AT(gw_request, output), .letter = 'o'                    \
    }
#define GW_JSON_ROW(help)                                                                                    \
    {                                                                                                        \
        "json", NULL, help, GW_FLAG(gw_request, json)                                                        \
    }
#define GW_CODEC_ROW(help, hidden)                                                                           \
    {                                                                                                        \
        "codec", "NAME", help, GW_OTHER(gw_request, codec, gw_codec_name_check), .is_hidden = (hidden)       \
    }
#define GW_LEN_MAX_ROW(log2, power)                                                                          \
    {                                                                                                        \
        "max-values", "N", "Refuse frames with more values (default " power ")",                             \
            GW_INTEGER(gw_request, len_max, 0, (uint64_t)1 << (log2)), .wanted = "an integer up to " power   \
    }
#define GW_BACKEND_ROW                                                                                       \
    {                                                                                                        \
        "backend", "NAME[,NAME]", "Permitted backends (default: all that the machine has)",                  \
            GW_OPTION_BACKENDS, GW_AT(gw_request, backends)                                                  \
    }

/* Refuses any name but that of the codec whose options these are: the first --codec has chosen it. */
void gw_codec_name_check(struct argp_state *state, const gw_option *option, const char *text, void *codec);

/* Options under one title of the help. */
typedef struct gw_option_group {
    const gw_option *options;
    int is_late; /* values are set after the command line has been read, in the table's order */
    /* Before the value of a late option is set. */
    void (*check)(struct argp_state *state, const gw_option *option, const void *request);
    void (*end)(struct argp_state *state, void *request); /* after all of the group are set */
} gw_option_group;

typedef enum gw_input_rule {
    GW_NO_INPUT,
    GW_ONE_INPUT,
    GW_INPUTS,
    GW_ANY_INPUTS /* also none: the command checks their number itself, and may do without "output" */
} gw_input_rule;

typedef struct gw_command_line {
    const char *usage;
    const char *help;
    gw_input_rule inputs;
    gw_option_group own; /* if it has "output", the command needs it */
    struct {
        const char *title; /* in the help; NULL: none */
        const gw_option_group *group;
        const char *const *only; /* NULL, or the names of the options that this command has; NULL ends them */
    } more[3];
} gw_command_line;

/* Reads a command line into a request, which has its defaults and begins with gw_request. Returns only if the
 * command line is good; ends the process with GW_CLI_USAGE and a message if it is not. */
void gw_command_line_parse(const gw_command_line *line, int argc, char **argv, void *request);

/* Ends the process with a message if the output would replace one of the inputs. */
void gw_cli_check_inputs(const gw_request *request);

/* The same for all outputs and inputs that options name; two outputs must be two files. */
void gw_command_line_check_files(const gw_command_line *line, const void *request);

#endif
