/*
 * THC on every backend of this machine, whatever its byte order and word size:
 *
 *   test_thc_vectors DIR MINIMUM    DIR holds index.tsv (make_thc_vectors.py) with at least MINIMUM vectors
 *
 * Every vector is decoded: status, bad block, values, and what must stay as it was. Valid frames are also cut
 * at every length. Then whole jobs run from written inputs, and the bytes of their frames, sums, saved error
 * memory and decoded values are those of the table below. The table was made by this program on x86-64 with
 * scalar code: it shows that machines agree, not that they are right, which the vectors are there for.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_file.h"
#include "gradwire/thc.h"

enum { CANARY = 0xa5, COUNT_MAX = 1 << 20 };

static int failures;
static const char *backend_name;
static uint8_t memory[GW_THC_WORKSPACE_SIZE_MAX];
static const gw_workspace workspace = {memory, sizeof memory};

#define CHECK(name, condition, ...)                                                                          \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            failures++;                                                                                      \
            printf("%s (%s): ", (name), backend_name);                                                       \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

/* ---- vectors ------------------------------------------------------------------------------------------- */

typedef struct vector {
    char path[1024]; /* without extension */
    char folder[16], name[64], status[16];
    long bad_block; /* -1: none */
} vector;

static int is_filled(const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (p[i] != CANARY) {
            return 0;
        }
    }
    return 1;
}

/* Values are written whole where content is bad, not at all after other errors. */
static int writes_output(gw_status status)
{
    return status == GW_OK || status == GW_ERR_CORRUPT || status == GW_ERR_DUP || status == GW_ERR_CHECKSUM;
}

static void test_mode(const vector *v, const uint8_t *frame, size_t size, int is_mean, uint32_t backends)
{
    enum { CAPACITY = 64 * 1024 };
    static uint8_t dst[CAPACITY];
    const gw_thc_frame received = {frame, size, COUNT_MAX, backends};
    gw_thc_target target = {.values = dst};
    gw_thc_frame_info info;
    const int has_header = gw_thc_frame_peek(frame, size, &info) == GW_OK;
    target.capacity = CAPACITY / (has_header ? gw_dtype_size(info.options.dtype) : 4);
    memset(dst, CANARY, sizeof dst);
    const gw_status status =
        gw_thc_frame_decode(&received, is_mean ? GW_THC_MEAN : GW_THC_SUM, &target, &workspace);
    CHECK(v->name, strcmp(gw_status_name(status), v->status) == 0, "%s instead of %s", gw_status_name(status),
          v->status);
    if (v->bad_block >= 0) {
        CHECK(v->name, target.bad_block == (uint64_t)v->bad_block, "bad block %llu, not %ld",
              (unsigned long long)target.bad_block, v->bad_block);
    }
    if (status == GW_OK) {
        char path[sizeof v->path + 8];
        size_t expected_size;
        snprintf(path, sizeof path, "%s.%s", v->path, is_mean ? "mean" : "sum");
        uint8_t *expected = golden_read(path, &expected_size);
        CHECK(v->name, expected_size <= CAPACITY && memcmp(dst, expected, expected_size) == 0,
              "values differ from those of %s", path);
        CHECK(v->name, is_filled(dst + expected_size, CAPACITY - expected_size), "wrote past its values");
        free(expected);
    } else {
        CHECK(v->name, target.len == 0, "%llu elements after an error", (unsigned long long)target.len);
        CHECK(v->name, writes_output(status) || is_filled(dst, CAPACITY), "wrote before it refused");
    }
}

static void test_vector(const vector *v, uint32_t backends)
{
    char path[sizeof v->path + 8];
    size_t size;
    snprintf(path, sizeof path, "%s.gw", v->path);
    uint8_t *frame = golden_read(path, &size);
    test_mode(v, frame, size, 1, backends);
    test_mode(v, frame, size, 0, backends);
    for (size_t cut = 0; cut < size && strcmp(v->folder, "decode") == 0; cut++) {
        uint8_t *part = golden_take(cut); /* of its own size, for sanitizers */
        memcpy(part, frame, cut);
        gw_thc_frame_info info;
        const gw_status status =
            gw_thc_frame_check(&(gw_thc_frame){part, cut, COUNT_MAX, backends}, &info, NULL);
        CHECK(v->name, status == GW_ERR_SHORT, "%s for the first %zu bytes", gw_status_name(status), cut);
        free(part);
    }
    free(frame);
}

static unsigned long test_index(const char *root, uint32_t backends)
{
    char path[1024], line[256];
    unsigned long count = 0;
    snprintf(path, sizeof path, "%s/index.tsv", root);
    FILE *index = fopen(path, "r");
    if (index == NULL || fgets(line, sizeof line, index) == NULL) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    while (fgets(line, sizeof line, index) != NULL) {
        vector v;
        v.bad_block = -1;
        if (sscanf(line, "%15s %63s %15s %ld", v.folder, v.name, v.status, &v.bad_block) < 3) {
            fprintf(stderr, "not a line of the index: %s", line);
            exit(2);
        }
        snprintf(v.path, sizeof v.path, "%s/%s/%s", root, v.folder, v.name);
        test_vector(&v, backends);
        count++;
    }
    fclose(index);
    return count;
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

enum { WORKERS = 3, ROUNDS = 2, LEN = 5000, SIZE_MAX_OF_VALUES = 4 * LEN };

typedef struct job {
    const char *name;
    unsigned bits;
    gw_thc_transform transform;
    gw_dtype dtype;
    uint32_t block_log2;
    int error_feedback;
    uint32_t wire, values; /* CRC32C of all that travels, and of all that is decoded or saved */
} job;

static const job jobs[] = {
    {"rotated 1 bit", 1, GW_THC_ROTATED, GW_FP32, 6, 0, 0xbd8cc85fu, 0x882cfbafu},
    {"rotated 2 bits fp16", 2, GW_THC_ROTATED, GW_FP16, 10, 0, 0x16ad3a21u, 0xc2756cf2u},
    {"rotated 3 bits bf16 feedback", 3, GW_THC_ROTATED, GW_BF16, 8, 1, 0x3299bb4du, 0x98c9c3dcu},
    {"rotated 4 bits feedback", 4, GW_THC_ROTATED, GW_FP32, 10, 1, 0xf79e6e4au, 0x1a036e43u},
    {"rotated 4 bits large blocks", 4, GW_THC_ROTATED, GW_FP32, 13, 0, 0xe7a37f4au, 0xd8012a8eu},
    {"plain 1 bit bf16", 1, GW_THC_PLAIN, GW_BF16, 7, 0, 0x95ced3e8u, 0x62ab8801u},
    {"plain 3 bits fp16", 3, GW_THC_PLAIN, GW_FP16, 6, 0, 0xbbe9741eu, 0xb3e4ac95u},
    {"plain 4 bits", 4, GW_THC_PLAIN, GW_FP32, 10, 0, 0xcf4324ebu, 0x7f0c87c6u},
};

static void must(const job *j, gw_status status, const char *what)
{
    if (status != GW_OK) {
        printf("%s (%s): %s: %s\n", j->name, backend_name, what, gw_status_name(status));
        exit(1);
    }
}

static uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* Finite values of all signs, of some ten octaves, a few of them zero or subnormal: little-endian bytes, as
 * every array in a dtype. */
static void fill_values(uint8_t *dst, unsigned dtype, uint64_t seed)
{
    const unsigned mantissa = dtype == GW_FP32 ? 23 : dtype == GW_BF16 ? 7 : 10;
    const uint32_t middle = dtype == GW_FP16 ? 8 : 118;
    const size_t size = dtype == GW_FP32 ? 4 : 2;
    for (size_t i = 0; i < LEN; i++) {
        const uint32_t r = random_bits(&seed), choice = random_bits(&seed) >> 16;
        const uint32_t exponent = choice % 50 == 0 ? 0 : middle + choice % 10;
        const uint32_t fraction = choice % 100 == 0 ? 0 : r & ((1u << mantissa) - 1);
        const uint32_t bits = r >> 31 << (8 * size - 1) | exponent << mantissa | fraction;
        for (size_t b = 0; b < size; b++) {
            dst[size * i + b] = (uint8_t)(bits >> 8 * b);
        }
    }
}

static gw_thc_options options_of(const job *j, uint32_t backends)
{
    const gw_thc_goal goal = {j->bits, WORKERS, 0, j->error_feedback};
    gw_thc_options options;
    must(j, gw_thc_options_init(&options, &goal, NULL), "default");
    options.backends = backends;
    options.seed = 0xfedcba9876543210u;
    options.job = 0x01020304u;
    options.dtype = j->dtype;
    options.transform = j->transform;
    options.block_log2 = j->block_log2;
    if (j->transform == GW_THC_PLAIN) {
        options.threshold_bits = 0;
        options.table = gw_thc_table_uniform(j->bits);
    }
    return options;
}

static void run_job(const job *j, uint32_t backends)
{
    static uint8_t values[WORKERS][SIZE_MAX_OF_VALUES], mean[SIZE_MAX_OF_VALUES];
    static float error[WORKERS][LEN];
    uint32_t wire = 0, decoded = 0;
    gw_thc thc;
    const gw_thc_options options = options_of(j, backends);
    must(j, gw_thc_init(&thc, &options), "init");
    gw_thc_range range = {LEN, 0, gw_thc_block_count(&thc, LEN), 0, 0};
    const size_t patterns_len = (size_t)range.block_count * gw_thc_patterns_per_block(&thc);
    const size_t value_size = j->dtype == GW_FP32 ? 4 : 2, bound = gw_thc_frame_bound(&thc, LEN);
    const size_t sum_bound = gw_thc_frame_sum_bound(&thc, LEN, GW_THC_FLAG_CHECKSUM);
    const size_t saved_size = gw_thc_error_saved_size(LEN);
    uint32_t *own = golden_take(4 * patterns_len), *maxima = golden_take(4 * patterns_len);
    gw_buffer frame = {golden_take(bound), bound, 0}, sum = {golden_take(sum_bound), sum_bound, 0};
    gw_buffer saved = {golden_take(saved_size), saved_size, 0};
    memset(error, 0, sizeof error);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        range.round = UINT32_MAX - round;
        memset(maxima, 0, 4 * patterns_len);
        for (uint32_t w = 0; w < WORKERS; w++) {
            fill_values(values[w], j->dtype, 100 * round + w);
            const gw_thc_source source = {.values = values[w], .error = j->error_feedback ? error[w] : NULL};
            range.rank = w;
            must(j, gw_thc_norms(&thc, &range, &source, own, NULL, &workspace), "norms");
            gw_thc_norms_max(maxima, own, patterns_len);
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            const gw_thc_source source = {
                .values = values[w], .error = j->error_feedback ? error[w] : NULL, .patterns = maxima};
            range.rank = w;
            must(j, gw_thc_frame_encode(&thc, &range, &source, &frame, NULL, &workspace), "encode");
            wire = gw_crc32c(wire, frame.data, frame.size);
            const gw_thc_frame received = {frame.data, frame.size, LEN, backends};
            if (w == 0) {
                must(j, gw_thc_frame_sum_init(&received, GW_THC_FLAG_CHECKSUM, &sum), "sum");
            }
            must(j, gw_thc_frame_sum_add(&sum, &received, NULL), "add");
            if (w == 1 && j->error_feedback) { /* as if it had come too late */
                gw_thc_frame_info info;
                must(j, gw_thc_frame_peek(frame.data, frame.size, &info), "peek");
                const gw_thc_indices indices = {(uint8_t *)frame.data + info.payload_offset,
                                                (size_t)info.payload_size, maxima};
                must(j, gw_thc_error_restore(&thc, &range, &indices, error[w], &workspace), "restore");
            }
        }
        wire = gw_crc32c(wire, sum.data, sum.size);
        const uint64_t hash = gw_thc_norms_hash(maxima, patterns_len) ^ gw_thc_options_hash(&thc);
        for (unsigned b = 0; b < 64; b += 8) { /* packets carry both hashes */
            const uint8_t byte = (uint8_t)(hash >> b);
            wire = gw_crc32c(wire, &byte, 1);
        }
        const gw_thc_frame received = {sum.data, sum.size, LEN, backends};
        gw_thc_target target = {.values = mean, .capacity = LEN};
        must(j, gw_thc_frame_decode(&received, GW_THC_MEAN, &target, &workspace), "decode");
        decoded = gw_crc32c(decoded, mean, value_size * LEN);
    }
    for (uint32_t w = 0; w < WORKERS && j->error_feedback; w++) {
        must(j, gw_thc_error_save(error[w], 0, LEN, &saved), "save");
        decoded = gw_crc32c(decoded, saved.data, saved.size);
    }
    CHECK(j->name, wire == j->wire && decoded == j->values, "0x%08x, 0x%08x instead of 0x%08x, 0x%08x",
          (unsigned)wire, (unsigned)decoded, (unsigned)j->wire, (unsigned)j->values);
    free(own);
    free(maxima);
    free(frame.data);
    free(sum.data);
    free(saved.data);
}

/* The solver computes in double, in a written order: one table of each width. */
static void test_solver(void)
{
    uint32_t crc = 0;
    for (unsigned bits = 1; bits <= 4; bits++) {
        gw_thc_table table;
        if (gw_thc_table_solve(bits, 61, 0.02, &table, NULL, &(gw_workspace){memory, sizeof memory}) !=
            GW_OK) {
            crc = 0;
            break;
        }
        crc = gw_crc32c(crc, table.value, 16);
    }
    CHECK("solver", crc == 0xc019f234u, "0x%08x", (unsigned)crc);
    CHECK("threshold", gw_thc_threshold_bits(0.02) == 0x4014e2e2u, "0x%08x",
          (unsigned)gw_thc_threshold_bits(0.02));
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_thc_vectors DIR MINIMUM\n");
        return 2;
    }
    const unsigned long minimum = strtoul(argv[2], NULL, 10);
    const uint32_t available = gw_backends_available();
    backend_name = "core";
    test_solver();
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
        backend_name = gw_backend_name(bit);
        if ((available & bit) == 0 || backend_name == NULL) {
            continue;
        }
        const unsigned long count = test_index(argv[1], GW_BACKEND_SCALAR | bit);
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
            run_job(&jobs[i], GW_BACKEND_SCALAR | bit);
        }
        printf("%s: %lu vectors, %d failures so far\n", backend_name, count, failures);
        if (count < minimum) {
            printf("%lu vectors are missing\n", minimum - count);
            failures++;
        }
    }
    return failures != 0;
}
