/*
 * The header of a .npy file is a Python dictionary literal; only the subset that NumPy writes is accepted.
 * Every position is checked against the end of the header before it is read.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "npy.h"

#include "cli_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t npy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* NumPy refuses headers above 10,000 bytes by default. */
#define HEADER_LEN_MAX   65536u
#define PREAMBLE_LEN_MAX 12 /* magic, version, length of the header */
#define DIMENSION_MAX    32

/* The header text and a cursor in it. */
typedef struct header_reader {
    const uint8_t *text;
    size_t size;
    size_t position;
    uint64_t offset; /* of text[0] in the file */
    const char *name;
} header_reader;

typedef struct npy_header {
    char descr[16];
    uint64_t descr_offset, fortran_offset, shape_offset;
    int fortran;
    unsigned dimensions;
    uint64_t dimension[DIMENSION_MAX];
    int has_descr, has_fortran, has_shape;
} npy_header;

static _Noreturn void reader_fail(const header_reader *reader, const char *rule)
{
    gw_cli_fail_at(GW_CLI_BAD_DATA, reader->name, reader->offset + reader->position, "npy header: %s", rule);
}

static void blanks_skip(header_reader *reader)
{
    while (reader->position < reader->size &&
           (reader->text[reader->position] == ' ' || reader->text[reader->position] == '\n' ||
            reader->text[reader->position] == '\t')) {
        reader->position++;
    }
}

/* The next character after blanks, or 0 at the end. */
static uint8_t next_peek(header_reader *reader)
{
    blanks_skip(reader);
    return reader->position < reader->size ? reader->text[reader->position] : 0;
}

static int next_accept(header_reader *reader, uint8_t c)
{
    if (next_peek(reader) != c) {
        return 0;
    }
    reader->position++;
    return 1;
}

/* A quoted string without escapes. */
static void string_read(header_reader *reader, char *string, size_t capacity)
{
    const uint8_t quote = next_peek(reader);
    if (quote != '\'' && quote != '"') {
        reader_fail(reader, "a quoted string is expected");
    }
    reader->position++;
    size_t len = 0;
    for (;;) {
        if (reader->position >= reader->size) {
            reader_fail(reader, "a string does not end");
        }
        const uint8_t c = reader->text[reader->position];
        if (c == quote) {
            reader->position++;
            break;
        }
        if (c == '\\' || len + 1 >= capacity) {
            reader_fail(reader, "a string is too long or has escapes");
        }
        string[len++] = (char)c;
        reader->position++;
    }
    string[len] = '\0';
}

static int word_accept(header_reader *reader, const char *word)
{
    const size_t len = strlen(word);
    blanks_skip(reader);
    if (reader->size - reader->position < len || memcmp(reader->text + reader->position, word, len) != 0) {
        return 0;
    }
    reader->position += len;
    return 1;
}

static void number_read(header_reader *reader, uint64_t *number)
{
    const uint8_t first = next_peek(reader);
    if (first < '0' || first > '9') {
        reader_fail(reader, "a dimension must be a non-negative integer");
    }
    uint64_t value = 0;
    while (reader->position < reader->size) {
        const uint8_t c = reader->text[reader->position];
        if (c < '0' || c > '9') {
            break;
        }
        const uint64_t digit = (uint64_t)(c - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            reader_fail(reader, "a dimension does not fit 64 bits");
        }
        value = value * 10 + digit;
        reader->position++;
    }
    reader->position +=
        reader->position < reader->size && reader->text[reader->position] == 'L'; /* Python 2 */
    *number = value;
}

/* () or (3,) or (3, 4) */
static void shape_read(header_reader *reader, npy_header *header)
{
    if (!next_accept(reader, '(')) {
        reader_fail(reader, "shape must be a tuple");
    }
    header->dimensions = 0;
    while (!next_accept(reader, ')')) {
        if (header->dimensions == DIMENSION_MAX) {
            reader_fail(reader, "more than 32 dimensions");
        }
        number_read(reader, &header->dimension[header->dimensions++]);
        if (!next_accept(reader, ',') && (header->dimensions == 1 || next_peek(reader) != ')')) {
            reader_fail(reader, "shape must be a tuple: a comma is missing");
        }
    }
}

static void entry_read(header_reader *reader, npy_header *header)
{
    char key[16];
    const size_t key_position = reader->position;
    string_read(reader, key, sizeof key);
    if (!next_accept(reader, ':')) {
        reader_fail(reader, "':' is expected after a key");
    }
    blanks_skip(reader);
    const uint64_t offset = reader->offset + reader->position;
    if (strcmp(key, "descr") == 0 && !header->has_descr) {
        header->has_descr = 1;
        header->descr_offset = offset;
        if (next_peek(reader) == '[') {
            reader_fail(reader, "structured types are not supported; save plain arrays");
        }
        string_read(reader, header->descr, sizeof header->descr);
    } else if (strcmp(key, "fortran_order") == 0 && !header->has_fortran) {
        header->has_fortran = 1;
        header->fortran_offset = offset;
        header->fortran = word_accept(reader, "True");
        if (!header->fortran && !word_accept(reader, "False")) {
            reader_fail(reader, "fortran_order must be True or False");
        }
    } else if (strcmp(key, "shape") == 0 && !header->has_shape) {
        header->has_shape = 1;
        header->shape_offset = offset;
        shape_read(reader, header);
    } else {
        reader->position = key_position;
        reader_fail(reader, "the keys must be 'descr', 'fortran_order' and 'shape', each once");
    }
}

static void dictionary_read(header_reader *reader, npy_header *header)
{
    if (!next_accept(reader, '{')) {
        reader_fail(reader, "a dictionary is expected");
    }
    while (!next_accept(reader, '}')) {
        entry_read(reader, header);
        if (!next_accept(reader, ',') && next_peek(reader) != '}') {
            reader_fail(reader, "',' or '}' is expected after a value");
        }
    }
    if (!header->has_descr || !header->has_fortran || !header->has_shape) {
        reader_fail(reader, "'descr', 'fortran_order' or 'shape' is missing");
    }
    blanks_skip(reader);
    if (reader->position != reader->size) {
        reader_fail(reader, "only blanks may follow the dictionary");
    }
}

/* Finds the header text: magic, version, length. */
static void preamble_read(header_reader *reader, gw_input_file *input)
{
    const char *name = input->name;
    gw_cli_must(gw_input_file_fill(input, PREAMBLE_LEN_MAX));
    const uint8_t *data = input->data;
    const size_t common = input->size < sizeof npy_magic ? input->size : sizeof npy_magic;
    for (size_t i = 0; i < common; i++) {
        if (data[i] != npy_magic[i]) {
            gw_cli_fail_at(GW_CLI_BAD_DATA, name, i, "not a .npy file: it must begin with 93 4e 55 4d 50 59");
        }
    }
    if (input->size < 10) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, input->size, "the file ends within the .npy header");
    }
    if (data[6] < 1 || data[6] > 3 || data[7] != 0) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, 6, ".npy version %u.%u is not one of 1.0, 2.0, 3.0", data[6],
                       data[7]);
    }
    const size_t start = data[6] == 1 ? 10 : 12;
    if (input->size < start) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, input->size, "the file ends within the .npy header");
    }
    uint32_t len = data[8] | (uint32_t)data[9] << 8;
    if (data[6] != 1) {
        len |= (uint32_t)data[10] << 16 | (uint32_t)data[11] << 24;
    }
    if (len > HEADER_LEN_MAX) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, 8, "the header of %u bytes is longer than %u", len,
                       HEADER_LEN_MAX);
    }
    gw_cli_must(gw_input_file_fill(input, start + len));
    if (input->size - start < len) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, input->size, "the file ends within the .npy header of %u bytes",
                       len);
    }
    reader->text = input->data + start;
    reader->size = len;
    reader->position = 0;
    reader->offset = start;
    reader->name = name;
}

static gw_dtype dtype_find(const npy_header *header, gw_npy_u2 u2, const char *name)
{
    const uint16_t one = 1;
    const int is_native_little = *(const uint8_t *)&one == 1;
    const char *descr = header->descr;
    char little[sizeof header->descr];
    if (is_native_little && descr[0] == '=') { /* native byte order */
        (void)snprintf(little, sizeof little, "<%s", descr + 1);
        descr = little;
    }
    if (strcmp(descr, "<f4") == 0) {
        return GW_FP32;
    }
    if (strcmp(descr, "<f2") == 0) {
        return GW_FP16;
    }
    if (strcmp(descr, "<u2") == 0 || strcmp(descr, "<V2") == 0 || strcmp(descr, "|V2") == 0) {
        if (u2 == GW_NPY_U2_BF16) {
            return GW_BF16;
        }
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, header->descr_offset,
                       "descr '%s' holds two-byte words; if they are bf16, use --dtype bf16", header->descr);
    }
    const char *hint = "the types are '<f4', '<f2' and, with --dtype bf16, '<u2'";
    if (strcmp(descr + (descr[0] != '\0'), "f8") == 0) {
        hint = "float64 is not supported; save a.astype('<f4')";
    } else if (descr[0] == '>') {
        hint = "big-endian data is not supported; save a.astype(a.dtype.newbyteorder('<'))";
    }
    gw_cli_fail_at(GW_CLI_BAD_DATA, name, header->descr_offset, "descr '%s': %s", header->descr, hint);
}

static void extent_check(gw_npy *npy, const npy_header *header)
{
    const char *name = npy->input.name;
    const uint64_t element_size = gw_dtype_size(npy->dtype);
    uint64_t len = 1;
    int empty = 0;
    unsigned long_dimensions = 0;
    for (unsigned i = 0; i < header->dimensions; i++) {
        empty |= header->dimension[i] == 0;
        long_dimensions += header->dimension[i] > 1;
    }
    if (header->fortran && long_dimensions > 1 && !empty) { /* else both orders are the same */
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, header->fortran_offset,
                       "Fortran order is not supported; save numpy.ascontiguousarray(a)");
    }
    for (unsigned i = 0; i < header->dimensions && !empty; i++) {
        if (header->dimension[i] > UINT64_MAX / element_size / len) {
            gw_cli_fail_at(GW_CLI_BAD_DATA, name, header->shape_offset, "the shape does not fit 64 bits");
        }
        len *= header->dimension[i];
    }
    npy->len = empty ? 0 : len;
    const uint64_t data_size = npy->len * element_size;
    const uint64_t end =
        data_size < UINT64_MAX - npy->data_offset ? npy->data_offset + data_size : UINT64_MAX - 1;
    gw_cli_must(gw_input_file_fill(&npy->input, end + 1));
    const uint64_t present = npy->input.size - npy->data_offset;
    if (present < data_size) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, npy->input.size,
                       "the file ends early: the shape needs %llu bytes of data, there are %llu",
                       (unsigned long long)data_size, (unsigned long long)present);
    }
    if (present > data_size) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, name, npy->data_offset + data_size,
                       "bytes follow the %llu bytes of data that the shape needs",
                       (unsigned long long)data_size);
    }
}

void gw_npy_open_input(gw_npy *npy, gw_input_file *input, gw_npy_u2 u2)
{
    header_reader reader = {NULL, 0, 0, 0, NULL};
    npy_header header;
    memset(npy, 0, sizeof *npy);
    memset(&header, 0, sizeof header);
    npy->input = *input;
    memset(input, 0, sizeof *input);
    preamble_read(&reader, &npy->input);
    dictionary_read(&reader, &header);
    npy->data_offset = reader.offset + reader.size;
    npy->dtype = dtype_find(&header, u2, npy->input.name);
    extent_check(npy, &header);
    npy->values = npy->len != 0 ? npy->input.data + npy->data_offset : NULL;
    if ((uintptr_t)npy->values % gw_dtype_size(npy->dtype) != 0) {
        const size_t size = (size_t)npy->len * gw_dtype_size(npy->dtype);
        npy->aligned = malloc(size);
        if (npy->aligned == NULL) {
            gw_cli_fail(GW_CLI_IO, npy->input.name, "out of memory");
        }
        memcpy(npy->aligned, npy->values, size);
        npy->values = npy->aligned;
    }
}

void gw_npy_open(gw_npy *npy, const char *path, gw_npy_u2 u2)
{
    gw_input_file input;
    gw_cli_must(gw_input_file_open(&input, path));
    gw_npy_open_input(npy, &input, u2);
}

void gw_npy_close(gw_npy *npy)
{
    gw_input_file_close(&npy->input);
    free(npy->aligned);
    memset(npy, 0, sizeof *npy);
}

void gw_npy_release(const gw_npy *npy, uint64_t first, uint64_t count)
{
    const size_t element_size = gw_dtype_size(npy->dtype);
    if (npy->input.mapped && npy->aligned == NULL) {
        gw_memory_release((const uint8_t *)npy->values + first * element_size, (size_t)count * element_size);
    }
}

int gw_npy_is_npy(const gw_input_file *input)
{
    return input->size > 0 && memcmp(input->data, npy_magic,
                                     input->size < sizeof npy_magic ? input->size : sizeof npy_magic) == 0;
}

int gw_npy_write_header(gw_atomic_file *file, gw_dtype dtype, uint64_t len)
{
    /* 10 bytes of preamble, 117 of dictionary and blanks, a newline. The longest dictionary takes 78. */
    enum { SIZE = 128 };
    static const uint8_t preamble[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, SIZE - 10, 0};
    const char *descr = dtype == GW_FP32 ? "<f4" : (dtype == GW_FP16 ? "<f2" : "<u2");
    uint8_t header[SIZE];
    char text[SIZE];
    const int text_len =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,), }", descr,
                 (unsigned long long)len);
    memset(header, ' ', sizeof header);
    memcpy(header, preamble, sizeof preamble);
    memcpy(header + sizeof preamble, text, (size_t)text_len);
    header[sizeof header - 1] = '\n';
    return gw_atomic_file_write(file, header, sizeof header);
}

void gw_npy_write(gw_atomic_file *file, gw_dtype dtype, const void *values, uint64_t len)
{
    gw_cli_must(gw_npy_write_header(file, dtype, len));
    gw_cli_must(gw_atomic_file_write(file, values, (size_t)len * gw_dtype_size(dtype)));
}

void gw_npy_save(const char *path, gw_dtype dtype, const void *values, uint64_t len)
{
    gw_atomic_file file;
    gw_cli_must(gw_atomic_file_open(&file, path));
    gw_npy_write(&file, dtype, values, len);
    gw_cli_must(gw_atomic_file_commit(&file));
}
