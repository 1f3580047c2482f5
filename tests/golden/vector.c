/* SPDX-License-Identifier: BSD-2-Clause */
#include "vector.h"

#include <stdlib.h>
#include <string.h>

enum {
    COLUMN_FILE,
    COLUMN_STATUS,
    COLUMN_BAD_CHUNK,
    COLUMN_RULE,
    COLUMN_DTYPE,
    COLUMN_QUANTUM_MODE,
    COLUMN_COUNT,
    COLUMN_VALUES_CRC,
    COLUMN_VALUES,
    COLUMN_MAP,
    COLUMN_DROP_OFFSET,
    COLUMN_WIRE_SCALE,
    COLUMN_CODEBOOK,
    COLUMN_CODEBOOK_ID,
    COLUMN_GENERATION,
    COLUMN_COUNT_LIMIT,
    COLUMN_CAPACITY,
    COLUMN_TOLERANCE_BITS,
    COLUMN_PRESET,
    COLUMN_CONSTANT_DROP,
    COLUMN_DEAD_ZONE,
    COLUMN_QUANTA,
    COLUMN_SOURCE,
    COLUMN_ROUNDING,
    COLUMN_SEGMENTS,
    COLUMN_COUNT_OF_COLUMNS
};

static const char header_line[] = "#file\tstatus\tbad_chunk\trule\tdtype\tlevels\tcount\tvalues_"
                                  "crc\tvalues\tmap\tdrop_base\twire_scale\tbook\tbook_id"
                                  "\tgeneration\tcount_limit\tcapacity\ttolerance_bits\tpreset"
                                  "\tconstant_drop\tdeep_cut\tquanta\tsource\trounding\tsegments\n";

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "vectors: %s: %s\n", what, detail);
    exit(2);
}

static int is_none(const char *field)
{
    return strcmp(field, "-") == 0;
}

static uint64_t number_of(const char *field, uint64_t none)
{
    if (is_none(field)) {
        return none;
    }
    char *end;
    uint64_t number = (uint64_t)strtoll(field, &end, 10);
    if (end == field || *end != '\0') {
        fail("not a number", field);
    }
    return number;
}

static uint32_t hex_of(const char *field)
{
    return is_none(field) ? 0 : (uint32_t)strtoul(field, NULL, 16);
}

static int choice_of(const char *field, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(field, names[i]) == 0) {
            return i;
        }
    }
    fail("unknown word in the index", field);
    return -1;
}

static vector_bytes read_file(const char *root, const char *name)
{
    vector_bytes bytes = {NULL, 0};
    if (is_none(name)) {
        return bytes;
    }
    char path[2048];
    if (snprintf(path, sizeof path, "%s/%s", root, name) >= (int)sizeof path) {
        fail("path too long", name);
    }
    bytes.data = golden_read(path, &bytes.size);
    return bytes;
}

uint32_t vector_chunk_log2(const vector *v)
{
    uint32_t log2 = v->frame.size > 7 ? v->frame.data[7] : 0;
    return log2 >= 10 && log2 <= 15 ? log2 : 12;
}

static void make_map(vector *v)
{
    v->digest = NULL;
    if (v->map.data == NULL) {
        return;
    }
    uint32_t log2 = vector_chunk_log2(v);
    size_t chunks = (v->map.size >> log2) + 1;
    v->digest = (uint32_t *)golden_take(chunks * sizeof *v->digest);
    if (gw_gcomp_map_digest(v->map.data, v->map.size, log2, v->digest) != GW_OK) {
        fail(v->file, "gw_gcomp_map_digest()");
    }
    /* docs/numerics.md section 2.5: drop_offset = base + 3 - 4 * (t - M) in derived frames. */
    int32_t mantissa_bits = v->dtype == GW_FP32 ? 23 : v->dtype == GW_BF16 ? 7 : 10;
    v->gw_map.bytes = v->map.data;
    v->gw_map.digest = v->digest;
    v->gw_map.len = v->map.size;
    v->gw_map.chunk_log2 = log2;
    v->gw_map.base = (uint32_t)(v->drop_offset - 3 + 4 * ((int32_t)v->tolerance_bits - mantissa_bits));
    memcpy(&v->gw_map.wire_scale, &v->wire_scale, 4);
}

int vector_read(vector *v, FILE *index, const char *root)
{
    static const char *const dtypes[] = {"", "fp32", "bf16", "fp16"};
    static const char *const map_bytes[] = {"explicit", "derived", "carried"};
    static const char *const presets[] = {"fast", "small"};
    static const char *const roundings[] = {"truncate", "nearest", "stochastic"};
    memset(v, 0, sizeof *v);
    if (fgets(v->line, sizeof v->line, index) == NULL) {
        return 0;
    }
    if (v->line[0] == '#') {
        if (strcmp(v->line, header_line) != 0) {
            fail("columns of the index are not those that this program reads", v->line);
        }
        return vector_read(v, index, root);
    }
    char *fields[COLUMN_COUNT_OF_COLUMNS];
    int count = 0;
    for (char *at = strtok(v->line, "\t\n"); at != NULL && count < COLUMN_COUNT_OF_COLUMNS;
         at = strtok(NULL, "\t\n")) {
        fields[count++] = at;
    }
    if (count != COLUMN_COUNT_OF_COLUMNS) {
        fail("too few fields", v->line);
    }
    v->file = fields[COLUMN_FILE];
    snprintf(v->status, sizeof v->status, "%s", fields[COLUMN_STATUS]);
    v->bad_chunk = number_of(fields[COLUMN_BAD_CHUNK], UINT64_MAX);
    v->dtype = (gw_dtype)choice_of(fields[COLUMN_DTYPE], dtypes, 4);
    v->quantum_mode = (gw_gcomp_quantum_mode)choice_of(fields[COLUMN_QUANTUM_MODE], map_bytes, 3);
    v->has_values = !is_none(fields[COLUMN_COUNT]);
    v->count = number_of(fields[COLUMN_COUNT], 0);
    v->values_crc = hex_of(fields[COLUMN_VALUES_CRC]);
    v->drop_offset = (int32_t)number_of(fields[COLUMN_DROP_OFFSET], 0);
    v->wire_scale = hex_of(fields[COLUMN_WIRE_SCALE]);
    v->codebook_id = (uint32_t)number_of(fields[COLUMN_CODEBOOK_ID], 0);
    v->generation = (uint32_t)number_of(fields[COLUMN_GENERATION], 0);
    v->len_max = number_of(fields[COLUMN_COUNT_LIMIT], UINT64_MAX);
    v->capacity = number_of(fields[COLUMN_CAPACITY], UINT64_MAX);
    v->preset = is_none(fields[COLUMN_PRESET]) ? -1 : choice_of(fields[COLUMN_PRESET], presets, 2);
    v->constant_drop = (uint32_t)number_of(fields[COLUMN_CONSTANT_DROP], 0);
    v->dead_zone = (int)number_of(fields[COLUMN_DEAD_ZONE], 0);
    v->tolerance_bits = (uint32_t)number_of(fields[COLUMN_TOLERANCE_BITS], 23);
    v->rounding = (gw_gcomp_rounding)choice_of(fields[COLUMN_ROUNDING], roundings, 3);
    v->has_segments = (int)number_of(fields[COLUMN_SEGMENTS], 0);
    v->frame = read_file(root, fields[COLUMN_FILE]);
    v->values = read_file(root, fields[COLUMN_VALUES]);
    v->map = read_file(root, fields[COLUMN_MAP]);
    v->codebook = read_file(root, fields[COLUMN_CODEBOOK]);
    v->quanta = read_file(root, fields[COLUMN_QUANTA]);
    v->source = read_file(root, fields[COLUMN_SOURCE]);
    make_map(v);
    return 1;
}

void vector_free(vector *v)
{
    free(v->frame.data);
    free(v->values.data);
    free(v->map.data);
    free(v->codebook.data);
    free(v->quanta.data);
    free(v->source.data);
    free(v->digest);
}

int vector_receiver(const vector *v, uint32_t backends, gw_gcomp *codec)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, v->dtype);
    options.quantum_mode = v->quantum_mode;
    options.tolerance_bits = v->tolerance_bits;
    options.backends = backends;
    if (v->len_max != UINT64_MAX) {
        options.len_max = v->len_max;
    }
    gw_status status = gw_gcomp_init(codec, &options);
    if (status == GW_OK && v->codebook.data != NULL) {
        status = gw_gcomp_codebook_install(codec, v->codebook_id, v->generation, v->codebook.data,
                                           v->codebook.size, 0);
    }
    if (status != GW_OK) {
        printf("%s: no receiver: %s\n", v->file, gw_status_name(status));
    }
    return status == GW_OK;
}

const gw_gcomp_map *vector_map(const vector *v)
{
    return v->map.data != NULL ? &v->gw_map : NULL;
}

uint64_t vector_capacity(const vector *v)
{
    return v->capacity != UINT64_MAX ? v->capacity : v->has_values ? v->count : 20000;
}

int vector_is_status(const vector *v, gw_status status)
{
    const char *name = gw_status_name(status);
    size_t i = 0;
    for (; name[i] != '\0' && v->status[i] != '\0'; i++) {
        /* The names are ASCII letters: lower case in the library, upper case on the page. */
        if ((name[i] | 0x20) != (v->status[i] | 0x20)) {
            return 0;
        }
    }
    return name[i] == v->status[i];
}
