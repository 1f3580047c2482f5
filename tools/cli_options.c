/*
 * Builds argp's tables from those of gw_command_line.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_options.h"

#include "atomic_file.h"
#include "cli_output.h"

#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 32, GROUPS_MAX = 4, FILES_MAX = 64, KEY_FIRST = 0x100 };

/* A group with argp's form of it. */
typedef struct group_reader {
    const gw_command_line *line; /* NULL: not the command's own options */
    const gw_option_group *group;
    unsigned child_count; /* readers that follow this one */
    void *request;
    const gw_option *rows[OPTIONS_MAX];
    const char *late[OPTIONS_MAX]; /* values of late options: NULL, or the text ("" for a flag) */
    struct argp_option options[OPTIONS_MAX + 1];
    struct argp argp;
} group_reader;

/* ---- values ---- */

static void integer_store(void *member, size_t size, uint64_t value)
{
    const uint16_t narrow = (uint16_t)value;
    const uint32_t word = (uint32_t)value;
    memcpy(member,
           size == sizeof narrow ? &narrow
           : size == sizeof word ? (const void *)&word
                                 : &value,
           size);
}

static void integer_parse(struct argp_state *state, const gw_option *option, const char *text, void *member)
{
    uint64_t value = option->min;
    if (gw_cli_parse_u64(text, option->min, option->max, &value) != 0) {
        if (option->wanted != NULL) {
            argp_error(state, "--%s: '%s' is not %s", option->name, text, option->wanted);
        } else {
            argp_error(state, "--%s: '%s' is not %s from %llu to %llu", option->name, text,
                       option->noun != NULL ? option->noun : "an integer", (unsigned long long)option->min,
                       (unsigned long long)option->max);
        }
    }
    integer_store(member, option->size, value);
}

static void real_parse(struct argp_state *state, const gw_option *option, const char *text, void *member)
{
    double value = 0;
    if (gw_cli_parse_double(text, option->low, option->high, &value) != 0) {
        if (option->wanted != NULL) {
            argp_error(state, "--%s: '%s' is not %s", option->name, text, option->wanted);
        } else {
            argp_error(state, "--%s: '%s' is not a number from %g to %g", option->name, text, option->low,
                       option->high);
        }
    }
    const float narrow = (float)value;
    memcpy(member, option->size == sizeof narrow ? (const void *)&narrow : &value, option->size);
}

static void choice_parse(struct argp_state *state, const gw_option *option, const char *text, void *member)
{
    uint64_t index = 0;
    while (option->names[index] != NULL && strcmp(option->names[index], text) != 0) {
        index++;
    }
    if (option->names[index] == NULL) {
        argp_error(state, "--%s: '%s' is not %s", option->name, text,
                   option->wanted != NULL ? option->wanted : "one of its values");
    }
    integer_store(member, option->size, index);
}

static void list_add(struct argp_state *state, const gw_option *option, const char *text, gw_text_list *list)
{
    if (list->count == GW_TEXTS_MAX) {
        argp_error(state, "more than %d times --%s", GW_TEXTS_MAX, option->name);
    }
    list->items[list->count++] = text;
}

static void option_set(struct argp_state *state, const gw_option *option, const char *text, void *request)
{
    void *member = (char *)request + option->offset;
    const char *name = text;
    const int is_given = 1;
    switch (option->kind) {
    case GW_OPTION_FLAG:
        integer_store(member, option->size, option->max);
        break;
    case GW_OPTION_OUTPUT:
        name = gw_cli_output_name(text);
        /* fall through */
    case GW_OPTION_INPUT:
    case GW_OPTION_TEXT:
        memcpy(member, &name, sizeof name);
        break;
    case GW_OPTION_INPUTS:
        list_add(state, option, text, member);
        break;
    case GW_OPTION_SIZE:
        if (gw_cli_parse_size(text, member) != 0) {
            argp_error(state, "--%s: '%s' is not a size such as 500M or 2G", option->name, text);
        }
        break;
    case GW_OPTION_INTEGER:
        integer_parse(state, option, text, member);
        break;
    case GW_OPTION_REAL:
        real_parse(state, option, text, member);
        break;
    case GW_OPTION_CHOICE:
        choice_parse(state, option, text, member);
        break;
    case GW_OPTION_BACKENDS:
        gw_cli_parse_backends(state, text, member);
        break;
    case GW_OPTION_OTHER:
        option->parse(state, option, text, member);
        break;
    }
    if (option->given != 0) {
        memcpy((char *)request + option->given, &is_given, sizeof is_given);
    }
}

void gw_codec_name_check(struct argp_state *state, const gw_option *option, const char *text, void *codec)
{
    if (strcmp(text, *(const char *const *)codec) != 0) {
        argp_error(state, "--%s: this command line is for %s, not for '%s'", option->name,
                   *(const char *const *)codec, text);
    }
}

/* ---- groups ---- */

static void inputs_require(struct argp_state *state, const group_reader *reader)
{
    const gw_request *request = reader->request;
    int needs_output = 0;
    if (reader->line->inputs == GW_ANY_INPUTS) {
        return;
    }
    for (unsigned i = 0; i < OPTIONS_MAX && reader->rows[i] != NULL; i++) {
        needs_output |= reader->rows[i]->letter == 'o';
    }
    if (reader->line->inputs != GW_NO_INPUT && request->input_count == 0) {
        argp_error(state, "an input is missing");
    } else if (needs_output && request->output == NULL) {
        argp_error(state, "-o is missing");
    }
}

static void group_end(struct argp_state *state, const group_reader *reader)
{
    const gw_option_group *group = reader->group;
    for (unsigned i = 0; i < OPTIONS_MAX && reader->rows[i] != NULL; i++) {
        if (reader->late[i] != NULL) {
            if (group->check != NULL) {
                group->check(state, reader->rows[i], reader->request);
            }
            option_set(state, reader->rows[i], reader->late[i], reader->request);
        }
    }
    if (reader->line != NULL) {
        inputs_require(state, reader);
    }
    if (group->end != NULL) {
        group->end(state, reader->request);
    }
}

static error_t group_parse(int key, char *text, struct argp_state *state)
{
    group_reader *reader = state->input;
    gw_request *request = reader->request;
    switch (key) {
    case ARGP_KEY_INIT:
        for (unsigned i = 0; i < reader->child_count; i++) {
            state->child_inputs[i] = reader + 1 + i;
        }
        return 0;
    case ARGP_KEY_ARGS:
        if (reader->line == NULL || reader->line->inputs == GW_NO_INPUT) {
            return ARGP_ERR_UNKNOWN;
        }
        request->inputs = state->argv + state->next;
        request->input = request->inputs[0];
        request->input_count = state->argc - state->next;
        if (reader->line->inputs == GW_ONE_INPUT && request->input_count > 1) {
            argp_error(state, "one input at a time");
        }
        return 0;
    case ARGP_KEY_END:
        group_end(state, reader);
        return 0;
    default:
        for (unsigned i = 0; i < OPTIONS_MAX && reader->rows[i] != NULL; i++) {
            if (reader->options[i].key == key && reader->group->is_late) {
                reader->late[i] = text != NULL ? text : "";
                return 0;
            }
            if (reader->options[i].key == key) {
                option_set(state, reader->rows[i], text, request);
                return 0;
            }
        }
        return ARGP_ERR_UNKNOWN;
    }
}

static int is_listed(const char *const *names, const char *name)
{
    for (; names != NULL && *names != NULL; names++) {
        if (strcmp(*names, name) == 0) {
            return 1;
        }
    }
    return names == NULL;
}

static void reader_init(group_reader *reader, const gw_option_group *group, const char *const *only,
                        void *request)
{
    unsigned count = 0;
    reader->group = group;
    reader->request = request;
    for (const gw_option *row = group->options; row != NULL && row->name != NULL; row++) {
        if (is_listed(only, row->name)) {
            if (count == OPTIONS_MAX) {
                abort(); /* a table that is too long */
            }
            const int key = row->letter != 0 ? row->letter : KEY_FIRST + (int)count;
            reader->rows[count] = row;
            reader->options[count++] = (struct argp_option){
                row->name, key, row->value, row->is_hidden ? OPTION_HIDDEN : 0, row->help, 0};
        }
    }
    reader->argp = (struct argp){reader->options, group_parse, NULL, NULL, NULL, NULL, NULL};
}

void gw_command_line_parse(const gw_command_line *line, int argc, char **argv, void *request)
{
    static group_reader readers[GROUPS_MAX];
    struct argp_child children[GROUPS_MAX] = {{NULL, 0, NULL, 0}};
    memset(readers, 0, sizeof readers);
    reader_init(&readers[0], &line->own, NULL, request);
    readers[0].line = line;
    for (unsigned i = 0; i + 1 < GROUPS_MAX && line->more[i].group != NULL; i++) {
        reader_init(&readers[i + 1], line->more[i].group, line->more[i].only, request);
        children[i] = (struct argp_child){&readers[i + 1].argp, 0, line->more[i].title,
                                          line->more[i].title != NULL ? 2 + (int)i : 0};
        readers[0].child_count++;
    }
    readers[0].argp.args_doc = line->usage;
    readers[0].argp.doc = line->help;
    readers[0].argp.children = children;
    gw_cli_parse(&readers[0].argp, argc, argv, 0, &readers[0]);
}

void gw_cli_check_inputs(const gw_request *request)
{
    for (int i = 0; i < request->input_count; i++) {
        gw_cli_must(gw_cli_check_output(request->output, request->inputs[i]));
    }
}

/* ---- files ---- */

typedef struct file_list {
    const char *names[FILES_MAX];
    unsigned count;
} file_list;

static void file_add(file_list *list, const char *name)
{
    if (name != NULL) {
        if (list->count == FILES_MAX) {
            abort(); /* tables that are too long */
        }
        list->names[list->count++] = name;
    }
}

/* The files that the options of a table name. */
static void files_collect(const gw_option *row, const void *request, file_list *inputs, file_list *outputs)
{
    for (; row != NULL && row->name != NULL; row++) {
        const void *member = (const char *)request + row->offset;
        if (row->kind == GW_OPTION_INPUT || row->kind == GW_OPTION_OUTPUT) {
            file_add(row->kind == GW_OPTION_INPUT ? inputs : outputs, *(const char *const *)member);
        } else if (row->kind == GW_OPTION_INPUTS) {
            const gw_text_list *list = member;
            for (int i = 0; i < list->count; i++) {
                file_add(inputs, list->items[i]);
            }
        }
    }
}

void gw_command_line_check_files(const gw_command_line *line, const void *request)
{
    const gw_request *common = request;
    file_list inputs = {.count = 0};
    file_list outputs = {.count = 0};
    files_collect(line->own.options, request, &inputs, &outputs);
    for (unsigned i = 0; i + 1 < GROUPS_MAX && line->more[i].group != NULL; i++) {
        files_collect(line->more[i].group->options, request, &inputs, &outputs);
    }
    for (unsigned i = 0; i < outputs.count; i++) {
        for (int j = 0; j < common->input_count; j++) {
            gw_cli_must(gw_cli_check_output(outputs.names[i], common->inputs[j]));
        }
        for (unsigned j = 0; j < inputs.count; j++) {
            gw_cli_must(gw_cli_check_output(outputs.names[i], inputs.names[j]));
        }
        for (unsigned j = 0; j < i; j++) {
            if (gw_atomic_file_is_same(outputs.names[i], outputs.names[j])) {
                gw_cli_fail(GW_CLI_USAGE, outputs.names[i], "is named twice as an output");
            }
        }
    }
}
