/*
 * Events of a recording.
 *
 * yajl parses the text piece by piece. It is strict and profilers are not: a text in which it finds no token
 * is read again, and each piece is mended before it is parsed. inf and NaN become empty strings, which are no
 * numbers where one is used. Every change keeps the length, so offsets in messages are those of the text.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "trace_events.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <yajl/yajl_parse.h>

#include "cli_common.h"
#include "plan_memory.h"
#include "text_source.h"

#define READ_SIZE ((size_t)1 << 17)
/* yajl keeps a token that no piece has ended, and reads it again from its start with each piece */
#define TOKEN_SIZE_MAX ((size_t)1 << 20)
#define WORD_SIZE_MAX  10 /* -Infinity and a byte more */
#define DEPTH_MAX      64

/* Depth, in open brackets, of what is read. */
enum { DEPTH_ROOT = 1, DEPTH_EVENTS = 2, DEPTH_EVENT = 3, DEPTH_ARGS = 4, DEPTH_DIMS = 5, DEPTH_SHAPE = 6 };

/* What becomes of the value of a member. */
typedef enum taking {
    TAKE_NUMBER,
    TAKE_CATEGORY,
    TAKE_NAME,
    TAKE_TEXT,
    TAKE_WORD,
    TAKE_ARGS,
    TAKE_DIMS
} taking;

typedef struct member {
    const char *name;
    taking what;
    size_t offset, size; /* in trace_event, of a number or a word */
} member;

#define MEMBER(name, what, field)                                                                            \
    {                                                                                                        \
        name, what, offsetof(trace_event, field), sizeof(((trace_event *)NULL)->field)                       \
    }

static const member event_members[] = {MEMBER("cat", TAKE_CATEGORY, category),
                                       MEMBER("name", TAKE_NAME, name),
                                       MEMBER("ts", TAKE_NUMBER, ts),
                                       MEMBER("dur", TAKE_NUMBER, dur),
                                       MEMBER("tid", TAKE_NUMBER, tid),
                                       {"args", TAKE_ARGS, 0, 0},
                                       {NULL, TAKE_ARGS, 0, 0}};
static const member arg_members[] = {MEMBER("correlation", TAKE_NUMBER, correlation),
                                     MEMBER("Collective name", TAKE_WORD, collective),
                                     MEMBER("In msg nelems", TAKE_NUMBER, msg_len),
                                     MEMBER("Group size", TAKE_NUMBER, group_size),
                                     MEMBER("Input Dims", TAKE_DIMS, dims_len),
                                     MEMBER("name", TAKE_TEXT, text),
                                     MEMBER("elems", TAKE_NUMBER, len),
                                     MEMBER("codec", TAKE_WORD, codec),
                                     MEMBER("encoded_us", TAKE_NUMBER, encoded_us),
                                     {NULL, TAKE_ARGS, 0, 0}};

typedef struct parser {
    const char *path;
    yajl_handle yajl;
    trace_take *take;
    void *user;
    int code;      /* of a callback that ended the reading */
    int has_value; /* the piece ended a token */
    unsigned depth;
    int key_is_events; /* the last key of the root is "traceEvents" */
    int in_events, in_event, in_args, in_dims;
    int seen_events, is_done;
    unsigned shapes;         /* of "Input Dims", begun */
    const member *key, *arg; /* of the event, of its args; NULL: not used */
    uint64_t piece_offset;
    size_t event_count; /* begun */
    trace_event event;
} parser;

double trace_number_real(const trace_number *number, double fallback)
{
    return number->kind == 0 ? fallback : number->kind == 1 ? strtod(number->text, NULL) : (double)NAN;
}

int64_t trace_number_whole(const trace_number *number, int64_t fallback)
{
    if (number->kind != 1 || strpbrk(number->text, ".eE") != NULL) {
        return fallback;
    }
    errno = 0;
    const int64_t value = number->text[0] == '-' ? (int64_t)strtoll(number->text, NULL, 10)
                                                 : (int64_t)strtoull(number->text, NULL, 10);
    return errno == 0 ? value : fallback;
}

/* ---- values ---- */

static int fail(parser *p, const char *why)
{
    p->code = gw_cli_error_at(GW_CLI_BAD_DATA, p->path, p->piece_offset + yajl_get_bytes_consumed(p->yajl),
                              "%s", why);
    return 0;
}

/* The member whose value comes next; NULL: it is not used. */
static const member *current(const parser *p)
{
    return p->depth == DEPTH_EVENT && p->in_event ? p->key
           : p->depth == DEPTH_ARGS && p->in_args ? p->arg
                                                  : NULL;
}

/* The number that the current key names; NULL: none. */
static trace_number *number_of(parser *p)
{
    const member *m = current(p);
    return m != NULL && m->what == TAKE_NUMBER ? (trace_number *)(void *)((char *)&p->event + m->offset)
                                               : NULL;
}

/* A value that is neither a number nor a string, or a bracket. */
static void take_other(parser *p)
{
    trace_number *number = number_of(p);
    if (number != NULL) {
        number->kind = 2;
    }
    if (p->in_dims && p->depth == DEPTH_DIMS) { /* in place of a shape */
        p->shapes++;
    } else if (p->in_dims && p->depth == DEPTH_SHAPE && p->shapes == 1) { /* in place of an extent */
        p->event.dims_len = -1;
    }
}

static int take_null(void *user)
{
    ((parser *)user)->has_value = 1;
    take_other(user);
    return ((parser *)user)->depth > 0 ? 1 : fail(user, "no JSON object");
}

static int take_boolean(void *user, int value)
{
    (void)value;
    return take_null(user);
}

static void take_extent(parser *p, const char *text, size_t size)
{
    trace_number number = {"", 2};
    if (size < sizeof number.text) {
        memcpy(number.text, text, size);
        number.text[size] = '\0';
        number.kind = 1;
    }
    const int64_t value = trace_number_whole(&number, -1);
    int64_t *product = &p->event.dims_len;
    const int64_t limit = INT64_C(1) << 50;
    *product =
        value >= 0 && *product >= 0 && (value == 0 || *product <= limit / value) ? *product * value : -1;
}

static int take_number(void *user, const char *text, size_t size)
{
    parser *p = user;
    p->has_value = 1;
    if (p->in_dims && p->depth == DEPTH_SHAPE && p->shapes == 1) {
        take_extent(p, text, size);
        return 1;
    }
    trace_number *number = number_of(p);
    if (number == NULL || size >= sizeof number->text) {
        return take_null(p);
    }
    memcpy(number->text, text, size);
    number->text[size] = '\0';
    number->kind = 1;
    return 1;
}

static void copy_text(char *target, size_t target_size, const unsigned char *text, size_t size)
{
    size = size < target_size ? size : target_size - 1;
    memcpy(target, text, size);
    target[size] = '\0';
}

/* For reports, which are UTF-8: of other characters than those of ASCII each byte becomes one. */
static void copy_word(char *target, size_t target_size, const unsigned char *text, size_t size)
{
    copy_text(target, target_size, text, size);
    for (char *c = target; *c != '\0'; c++) {
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    }
}

static int is_text(const unsigned char *text, size_t size, const char *expected)
{
    return size == strlen(expected) && memcmp(text, expected, size) == 0;
}

static trace_category category_of(const unsigned char *text, size_t size)
{
    static const struct {
        const char *text;
        trace_category category;
    } names[] = {{"kernel", TRACE_KERNEL},        {"Kernel", TRACE_KERNEL},
                 {"cuda_runtime", TRACE_RUNTIME}, {"Runtime", TRACE_RUNTIME},
                 {"cuda_driver", TRACE_RUNTIME},  {"cpu_op", TRACE_CPU_OP},
                 {"Operator", TRACE_CPU_OP},      {"user_annotation", TRACE_ANNOTATION},
                 {"gradwire", TRACE_GRADWIRE}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (size > 0 && text[0] == (unsigned char)names[i].text[0] && is_text(text, size, names[i].text)) {
            return names[i].category;
        }
    }
    return TRACE_OTHER;
}

static int take_string(void *user, const unsigned char *text, size_t size)
{
    parser *p = user;
    p->has_value = 1;
    trace_event *e = &p->event;
    const member *m = current(p);
    switch (m != NULL ? m->what : TAKE_NUMBER) {
    case TAKE_CATEGORY:
        e->category = category_of(text, size);
        return 1;
    case TAKE_NAME:
        e->has_name = 1;
        copy_text(e->name, sizeof e->name, text, size);
        return 1;
    case TAKE_TEXT: /* with a zero byte it is no name: an empty one is refused */
        e->has_text = 1;
        copy_text(e->text, sizeof e->text, text, memchr(text, '\0', size) == NULL ? size : 0);
        return 1;
    case TAKE_WORD:
        copy_word((char *)e + m->offset, m->size, text, size);
        return 1;
    default:
        return take_null(p);
    }
}

/* ---- objects and arrays ---- */

static const member *find_member(const member *members, const unsigned char *text, size_t size)
{
    while (members->name != NULL && !is_text(text, size, members->name)) {
        members++;
    }
    return members->name != NULL ? members : NULL;
}

static int take_key(void *user, const unsigned char *text, size_t size)
{
    parser *p = user;
    p->has_value = 1;
    if (p->depth == DEPTH_ROOT) {
        p->key_is_events = is_text(text, size, "traceEvents");
    } else if (p->in_event && p->depth == DEPTH_EVENT) {
        p->key = find_member(event_members, text, size);
    } else if (p->in_args && p->depth == DEPTH_ARGS) {
        p->arg = find_member(arg_members, text, size);
    }
    return 1;
}

static void begin_event(parser *p)
{
    trace_event *e = &p->event;
    p->in_event = 1;
    p->key = NULL;
    p->event_count++;
    e->offset = p->piece_offset + yajl_get_bytes_consumed(p->yajl) - 1;
    e->number = p->event_count;
    e->category = TRACE_OTHER;
    e->has_name = 0;
    e->has_text = 0;
    e->name[0] = e->collective[0] = e->codec[0] = e->text[0] = '\0';
    e->ts.kind = e->dur.kind = e->tid.kind = 0;
    e->correlation.kind = e->msg_len.kind = e->group_size.kind = e->len.kind = e->encoded_us.kind = 0;
    e->dims_len = -1;
}

static int open_bracket(parser *p)
{
    take_other(p);
    p->depth++;
    return p->depth <= DEPTH_MAX ? 1 : fail(p, "nested too deeply");
}

static int open_object(void *user)
{
    parser *p = user;
    const member *m = current(p);
    if (!open_bracket(p)) {
        return 0;
    }
    if (p->in_events && p->depth == DEPTH_EVENT) {
        begin_event(p);
    } else if (m != NULL && m->what == TAKE_ARGS) {
        p->in_args = 1;
        p->arg = NULL;
    }
    return 1;
}

static int close_object(void *user)
{
    parser *p = user;
    p->has_value = 1;
    p->depth--;
    p->is_done = p->depth == 0;
    p->in_args = p->in_args && p->depth >= DEPTH_ARGS;
    if (p->in_event && p->depth == DEPTH_EVENTS) {
        p->in_event = 0;
        p->code = p->take(p->user, &p->event);
    }
    return p->code == GW_CLI_OK;
}

static int open_array(void *user)
{
    parser *p = user;
    if (p->depth == 0) {
        return fail(p, "a trace is a JSON object, this is an array");
    }
    if (p->in_dims && p->depth == DEPTH_DIMS) { /* a shape; the first counts */
        p->shapes++;
        p->event.dims_len = p->shapes == 1 ? 1 : p->event.dims_len;
        p->depth++;
        return 1;
    }
    const member *m = current(p);
    if (!open_bracket(p)) {
        return 0;
    }
    if (p->depth == DEPTH_EVENTS && p->key_is_events) {
        p->in_events = 1;
        p->seen_events = 1;
    } else if (m != NULL && m->what == TAKE_DIMS) {
        p->in_dims = 1;
        p->shapes = 0;
        p->event.dims_len = -1;
    }
    return 1;
}

static int close_array(void *user)
{
    parser *p = user;
    p->has_value = 1;
    p->depth--;
    p->in_dims = p->in_dims && p->depth >= DEPTH_DIMS;
    p->in_events = p->in_events && p->depth >= DEPTH_EVENTS;
    return 1;
}

static const yajl_callbacks callbacks = {
    .yajl_null = take_null,
    .yajl_boolean = take_boolean,
    .yajl_number = take_number,
    .yajl_string = take_string,
    .yajl_start_map = open_object,
    .yajl_map_key = take_key,
    .yajl_end_map = close_object,
    .yajl_start_array = open_array,
    .yajl_end_array = close_array,
};

/* ---- text ---- */

/* State of mend() between pieces. */
typedef struct mender {
    int in_string, is_escaped;
    int in_word;              /* that is too long to need a look */
    uint8_t is_word[256];     /* outside strings: bytes of numbers and names */
    uint8_t is_ordinary[256]; /* in strings: bytes that need no look */
} mender;

static void mender_init(mender *m)
{
    memset(m, 0, sizeof *m);
    for (int c = 0; c < 256; c++) {
        m->is_word[c] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        c == '-' || c == '+' || c == '.';
        m->is_ordinary[c] = c >= 0x20 && c != '"' && c != '\\';
    }
}

static void mend_word(char *word, size_t size)
{
    static const char *const names[] = {"inf", "nan", "infinity"};
    if (size < 3) {
        return;
    }
    const size_t sign = word[0] == '-' || word[0] == '+';
    for (int i = 0; i < 3; i++) {
        if (size - sign == strlen(names[i]) && strncasecmp(word + sign, names[i], size - sign) == 0) {
            memset(word, ' ', size);
            memset(word, '"', 2);
        }
    }
}

/* Goes to the end of an open string, or of the piece. Control characters, and characters that no escape has,
 * become one that is harmless: profilers print names of functions and files as they are. */
static size_t mend_string(mender *m, char *text, size_t at, size_t size)
{
    for (; at < size; at++) {
        if (m->is_escaped) {
            m->is_escaped = 0;
            text[at] = text[at] == '\0' || strchr("\"\\/bfnrtu", text[at]) == NULL ? '\\' : text[at];
            continue;
        }
        while (at < size && m->is_ordinary[(unsigned char)text[at]]) {
            at++;
        }
        if (at == size) {
            break;
        }
        if (text[at] == '"') {
            m->in_string = 0;
            return at + 1;
        }
        m->is_escaped = text[at] == '\\';
        text[at] = m->is_escaped ? '\\' : '?';
    }
    return at;
}

/* Mends a piece. Returns how much of it can be parsed: less than `size` if it ends in a word that goes on. */
static size_t mend(mender *m, char *text, size_t size, int is_last)
{
    size_t at = 0;
    while (at < size) {
        if (m->in_string) {
            at = mend_string(m, text, at, size);
            continue;
        }
        const size_t begin = at;
        while (at < size && m->is_word[(unsigned char)text[at]]) {
            at++;
        }
        const int is_short = at - begin < WORD_SIZE_MAX && !m->in_word;
        if (at == size && !is_last && is_short) {
            return begin;
        }
        if (is_short) {
            mend_word(text + begin, at - begin);
        }
        m->in_word = at == size;
        m->in_string = at < size && text[at] == '"';
        at++; /* the byte after the word */
    }
    return size;
}

/* ---- files ---- */

#define READ_AGAIN (-1) /* in place of an exit code */

/* What is wrong, with yajl's words inside the object. */
static int parse_error(parser *p, int at_end, int is_mended)
{
    const uint64_t offset = p->piece_offset + (at_end ? 0 : yajl_get_bytes_consumed(p->yajl));
    const char *why = p->is_done                               ? "text after the JSON object"
                      : p->depth == 0 && at_end && offset == 0 ? "the file is empty"
                      : p->depth == 0                          ? "no JSON object"
                      : at_end                                 ? "the JSON text is truncated"
                                                               : NULL;
    if (p->code != GW_CLI_OK || why != NULL) {
        return p->code != GW_CLI_OK ? p->code : gw_cli_error_at(GW_CLI_BAD_DATA, p->path, offset, "%s", why);
    }
    unsigned char *text = yajl_get_error(p->yajl, 0, NULL, 0);
    int code = READ_AGAIN;
    if (text == NULL || is_mended || strncmp((const char *)text, "lexical error", 13) != 0) {
        const int length =
            text != NULL ? (int)strcspn((const char *)text, "\n") : 0; /* without the line end */
        code = gw_cli_error_at(GW_CLI_BAD_DATA, p->path, offset, "event %zu: %.*s", p->event_count, length,
                               text != NULL ? (const char *)text : "");
    }
    yajl_free_error(p->yajl, text);
    return code;
}

/* Parses all pieces; without a mender READ_AGAIN if there is need for one. */
static int parse_all(parser *p, text_source *source, char *buffer, mender *m)
{
    static const char byte_order_mark[3] = {'\xEF', '\xBB', '\xBF'};
    size_t held = 0;
    size_t got = 1;
    size_t token_size = 0; /* at least that of an open token */
    int code = GW_CLI_OK;
    while (code == GW_CLI_OK && got > 0) {
        code = text_source_read(source, buffer + held, READ_SIZE, &got);
        if (code != GW_CLI_OK) {
            break;
        }
        const size_t size = held + got;
        if (p->piece_offset == 0 && size < sizeof byte_order_mark && got > 0) {
            held = size;
            continue;
        }
        if (p->piece_offset == 0 && size >= sizeof byte_order_mark &&
            memcmp(buffer, byte_order_mark, sizeof byte_order_mark) == 0) {
            memset(buffer, ' ', sizeof byte_order_mark);
        }
        const size_t ready = m != NULL ? mend(m, buffer, size, got == 0) : size;
        p->has_value = 0;
        if (yajl_parse(p->yajl, (const unsigned char *)buffer, ready) != yajl_status_ok) {
            return parse_error(p, 0, m != NULL);
        }
        p->piece_offset += ready;
        held = size - ready;
        memmove(buffer, buffer + ready, held);
        token_size = p->has_value ? 0 : token_size + ready;
        if (token_size > TOKEN_SIZE_MAX) {
            return gw_cli_error_at(GW_CLI_BAD_DATA, p->path, p->piece_offset,
                                   "1 MiB without the end of a value");
        }
    }
    if (code == GW_CLI_OK && yajl_complete_parse(p->yajl) != yajl_status_ok) {
        code = parse_error(p, 1, m != NULL);
    }
    return code == GW_CLI_OK && !p->seen_events
               ? gw_cli_error(GW_CLI_BAD_DATA, p->path, "has no \"traceEvents\"")
               : code;
}

static int read_once(parser *p, uint64_t size_max, mender *m)
{
    text_source source;
    int code = text_source_open(&source, p->path, size_max);
    if (code != GW_CLI_OK) {
        return code;
    }
    char *buffer = plan_alloc(READ_SIZE + WORD_SIZE_MAX, 1);
    p->yajl = yajl_alloc(&callbacks, NULL, p);
    if (p->yajl == NULL) {
        gw_cli_fail(GW_CLI_IO, p->path, "out of memory");
    }
    (void)yajl_config(p->yajl, yajl_dont_validate_strings, 1);
    code = parse_all(p, &source, buffer, m);
    yajl_free(p->yajl);
    free(buffer);
    text_source_close(&source);
    return code;
}

int trace_events_read(const char *path, uint64_t size_max, trace_take *take, void *user)
{
    parser p;
    mender m;
    int code = READ_AGAIN;
    mender_init(&m);
    gw_cli_progress_begin("read");
    for (int is_mended = 0; code == READ_AGAIN; is_mended = 1) {
        p = (parser){.path = path, .take = take, .user = user};
        code = take(user, NULL);
        code = code == GW_CLI_OK ? read_once(&p, size_max, is_mended ? &m : NULL) : code;
    }
    gw_cli_progress_end();
    return code;
}
