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

static int reader_error(const header_reader *reader, const char *rule)
{
    return gw_cli_error_at(GW_CLI_BAD_DATA, reader->name, reader->offset + reader->position, "npy header: %s",
                           rule);
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
static int string_read(header_reader *reader, char *string, size_t capacity)
{
    const uint8_t quote = next_peek(reader);
    if (quote != '\'' && quote != '"') {
        return reader_error(reader, "a quoted string is expected");
    }
    reader->position++;
    size_t len = 0;
    for (;;) {
        if (reader->position >= reader->size) {
            return reader_error(reader, "a string does not end");
        }
        const uint8_t c = reader->text[reader->position];
        if (c == quote) {
            reader->position++;
            break;
        }
        if (c == '\\' || len + 1 >= capacity) {
            return reader_error(reader, "a string is too long or has escapes");
        }
        string[len++] = (char)c;
        reader->position++;
    }
    string[len] = '\0';
    return GW_CLI_OK;
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

static int number_read(header_reader *reader, uint64_t *number)
{
    const uint8_t first = next_peek(reader);
    if (first < '0' || first > '9') {
        return reader_error(reader, "a dimension must be a non-negative integer");
    }
    uint64_t value = 0;
    while (reader->position < reader->size) {
        const uint8_t c = reader->text[reader->position];
        if (c < '0' || c > '9') {
            break;
        }
        const uint64_t digit = (uint64_t)(c - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return reader_error(reader, "a dimension does not fit 64 bits");
        }
        value = value * 10 + digit;
        reader->position++;
    }
    reader->position +=
        reader->position < reader->size && reader->text[reader->position] == 'L'; /* Python 2 */
    *number = value;
    return GW_CLI_OK;
}

/* () or (3,) or (3, 4) */
static int shape_read(header_reader *reader, npy_header *header)
{
    if (!next_accept(reader, '(')) {
        return reader_error(reader, "shape must be a tuple");
    }
    header->dimensions = 0;
    while (!next_accept(reader, ')')) {
        if (header->dimensions == DIMENSION_MAX) {
            return reader_error(reader, "more than 32 dimensions");
        }
        const int result = number_read(reader, &header->dimension[header->dimensions]);
        if (result != GW_CLI_OK) {
            return result;
        }
        header->dimensions++;
        if (!next_accept(reader, ',')) {
            if (header->dimensions == 1 || next_peek(reader) != ')') {
                return reader_error(reader, "shape must be a tuple: a comma is missing");
            }
        }
    }
    return GW_CLI_OK;
}

static int entry_read(header_reader *reader, npy_header *header)
{
    char key[16];
    const size_t key_position = reader->position;
    int result = string_read(reader, key, sizeof key);
    if (result != GW_CLI_OK) {
        return result;
    }
    if (!next_accept(reader, ':')) {
        return reader_error(reader, "':' is expected after a key");
    }
    blanks_skip(reader);
    const uint64_t offset = reader->offset + reader->position;
    if (strcmp(key, "descr") == 0 && !header->has_descr) {
        header->has_descr = 1;
        header->descr_offset = offset;
        if (next_peek(reader) == '[') {
            return reader_error(reader, "structured types are not supported; save plain arrays");
        }
        return string_read(reader, header->descr, sizeof header->descr);
    }
    if (strcmp(key, "fortran_order") == 0 && !header->has_fortran) {
        header->has_fortran = 1;
        header->fortran_offset = offset;
        header->fortran = word_accept(reader, "True");
        if (!header->fortran && !word_accept(reader, "False")) {
            return reader_error(reader, "fortran_order must be True or False");
        }
        return GW_CLI_OK;
    }
    if (strcmp(key, "shape") == 0 && !header->has_shape) {
        header->has_shape = 1;
        header->shape_offset = offset;
        return shape_read(reader, header);
    }
    reader->position = key_position;
    return reader_error(reader, "the keys must be 'descr', 'fortran_order' and 'shape', each once");
}

static int dictionary_read(header_reader *reader, npy_header *header)
{
    if (!next_accept(reader, '{')) {
        return reader_error(reader, "a dictionary is expected");
    }
    while (!next_accept(reader, '}')) {
        const int result = entry_read(reader, header);
        if (result != GW_CLI_OK) {
            return result;
        }
        if (!next_accept(reader, ',') && next_peek(reader) != '}') {
            return reader_error(reader, "',' or '}' is expected after a value");
        }
    }
    if (!header->has_descr || !header->has_fortran || !header->has_shape) {
        return reader_error(reader, "'descr', 'fortran_order' or 'shape' is missing");
    }
    blanks_skip(reader);
    if (reader->position != reader->size) {
        return reader_error(reader, "only blanks may follow the dictionary");
    }
    return GW_CLI_OK;
}

/* Finds the header text: magic, version, length. */
static int preamble_read(header_reader *reader, gw_input_file *input)
{
    const char *name = input->name;
    int result = gw_input_file_fill(input, PREAMBLE_LEN_MAX);
    if (result != GW_CLI_OK) {
        return result;
    }
    const uint8_t *data = input->data;
    const size_t common = input->size < sizeof npy_magic ? input->size : sizeof npy_magic;
    for (size_t i = 0; i < common; i++) {
        if (data[i] != npy_magic[i]) {
            return gw_cli_error_at(GW_CLI_BAD_DATA, name, i,
                                   "not a .npy file: it must begin with 93 4e 55 4d 50 59");
        }
    }
    if (input->size < 10) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, input->size, "the file ends within the .npy header");
    }
    if (data[6] < 1 || data[6] > 3 || data[7] != 0) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, 6, ".npy version %u.%u is not one of 1.0, 2.0, 3.0",
                               data[6], data[7]);
    }
    const size_t start = data[6] == 1 ? 10 : 12;
    if (input->size < start) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, input->size, "the file ends within the .npy header");
    }
    uint32_t len = data[8] | (uint32_t)data[9] << 8;
    if (data[6] != 1) {
        len |= (uint32_t)data[10] << 16 | (uint32_t)data[11] << 24;
    }
    if (len > HEADER_LEN_MAX) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, 8, "the header of %u bytes is longer than %u", len,
                               HEADER_LEN_MAX);
    }
    result = gw_input_file_fill(input, start + len);
    if (result != GW_CLI_OK) {
        return result;
    }
    if (input->size - start < len) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, input->size,
                               "the file ends within the .npy header of %u bytes", len);
    }
    reader->text = input->data + start;
    reader->size = len;
    reader->position = 0;
    reader->offset = start;
    reader->name = name;
    return GW_CLI_OK;
}

static int dtype_find(const npy_header *header, gw_npy_u2 u2, const char *name, gw_dtype *dtype)
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
        *dtype = GW_FP32;
        return GW_CLI_OK;
    }
    if (strcmp(descr, "<f2") == 0) {
        *dtype = GW_FP16;
        return GW_CLI_OK;
    }
    if (strcmp(descr, "<u2") == 0 || strcmp(descr, "<V2") == 0 || strcmp(descr, "|V2") == 0) {
        if (u2 == GW_NPY_U2_BF16) {
            *dtype = GW_BF16;
            return GW_CLI_OK;
        }
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, header->descr_offset,
                               "descr '%s' holds two-byte words; if they are bf16, use --dtype bf16",
                               header->descr);
    }
    const char *hint = "the types are '<f4', '<f2' and, with --dtype bf16, '<u2'";
    if (strcmp(descr + (descr[0] != '\0'), "f8") == 0) {
        hint = "float64 is not supported; save a.astype('<f4')";
    } else if (descr[0] == '>') {
        hint = "big-endian data is not supported; save a.astype(a.dtype.newbyteorder('<'))";
    }
    return gw_cli_error_at(GW_CLI_BAD_DATA, name, header->descr_offset, "descr '%s': %s", header->descr,
                           hint);
}

static int extent_check(gw_npy *npy, const npy_header *header)
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
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, header->fortran_offset,
                               "Fortran order is not supported; save numpy.ascontiguousarray(a)");
    }
    for (unsigned i = 0; i < header->dimensions && !empty; i++) {
        if (header->dimension[i] > UINT64_MAX / element_size / len) {
            return gw_cli_error_at(GW_CLI_BAD_DATA, name, header->shape_offset,
                                   "the shape does not fit 64 bits");
        }
        len *= header->dimension[i];
    }
    npy->len = empty ? 0 : len;
    const uint64_t data_size = npy->len * element_size;
    const uint64_t end =
        data_size < UINT64_MAX - npy->data_offset ? npy->data_offset + data_size : UINT64_MAX - 1;
    const int result = gw_input_file_fill(&npy->input, end + 1);
    if (result != GW_CLI_OK) {
        return result;
    }
    const uint64_t present = npy->input.size - npy->data_offset;
    if (present < data_size) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, npy->input.size,
                               "the file ends early: the shape needs %llu bytes of data, there are %llu",
                               (unsigned long long)data_size, (unsigned long long)present);
    }
    if (present > data_size) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, name, npy->data_offset + data_size,
                               "bytes follow the %llu bytes of data that the shape needs",
                               (unsigned long long)data_size);
    }
    return GW_CLI_OK;
}

static int array_find(gw_npy *npy, gw_npy_u2 u2)
{
    header_reader reader = {NULL, 0, 0, 0, NULL};
    int result = preamble_read(&reader, &npy->input);
    if (result != GW_CLI_OK) {
        return result;
    }
    npy_header header;
    memset(&header, 0, sizeof header);
    result = dictionary_read(&reader, &header);
    if (result != GW_CLI_OK) {
        return result;
    }
    npy->data_offset = reader.offset + reader.size;
    result = dtype_find(&header, u2, npy->input.name, &npy->dtype);
    if (result != GW_CLI_OK) {
        return result;
    }
    result = extent_check(npy, &header);
    if (result != GW_CLI_OK) {
        return result;
    }
    const size_t element_size = gw_dtype_size(npy->dtype);
    npy->values = npy->len != 0 ? npy->input.data + npy->data_offset : NULL;
    if ((uintptr_t)npy->values % element_size != 0) {
        const size_t size = (size_t)npy->len * element_size;
        npy->aligned = malloc(size);
        if (npy->aligned == NULL) {
            return gw_cli_error(GW_CLI_IO, npy->input.name, "out of memory");
        }
        memcpy(npy->aligned, npy->values, size);
        npy->values = npy->aligned;
    }
    return GW_CLI_OK;
}

int gw_npy_open_input(gw_npy *npy, gw_input_file *input, gw_npy_u2 u2)
{
    memset(npy, 0, sizeof *npy);
    npy->input = *input;
    memset(input, 0, sizeof *input);
    const int result = array_find(npy, u2);
    if (result != GW_CLI_OK) {
        gw_npy_close(npy);
    }
    return result;
}

int gw_npy_open(gw_npy *npy, const char *path, gw_npy_u2 u2)
{
    memset(npy, 0, sizeof *npy);
    gw_input_file input;
    const int result = gw_input_file_open(&input, path);
    return result != GW_CLI_OK ? result : gw_npy_open_input(npy, &input, u2);
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
