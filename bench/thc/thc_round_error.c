/*
 * Error of THC on synthetic and real gradients, as CSV: the numbers of docs/results/thc-error.md.
 *
 *   thc_error figure15                 LogNormal(0,1), 2^16 values, 10 copies, p = 1/1024, 20 repeats, by
 * granularity thc_error gradients FILE.npy ...   first 2^20 values of each, g = 31, by workers; copies, and
 * copies plus noise
 *
 * Normalised squared error (NMSE): |estimate - true mean|^2 / |true mean|^2. The transform goes through the
 * kernels, not through gw_thc_encode(), because two of the comparisons are misuses that it refuses or has no
 * switch for: one norm for all blocks, and the same rounding bits on all workers.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "thc/thc_handle.h"
#include "core/float_bits.h"

enum { BLOCK_LOG2 = 10, BLOCK = 1 << BLOCK_LOG2, WORKERS_MAX = 64 };

static uint8_t table_memory[GW_THC_TABLE_WORKSPACE_SIZE];
static const gw_workspace table_workspace = {table_memory, sizeof table_memory};

typedef enum norm_rule { NORM_PER_BLOCK, NORM_ONE } norm_rule;

typedef struct setup {
    unsigned bits, granularity;
    double p;
    uint32_t workers;
    norm_rule norms;
    int shared_rounding;
    uint32_t round;
} setup;

static double uniform(uint64_t seed, uint32_t a, uint32_t b)
{
    uint32_t out[4];
    gw_philox4x32(out, seed, a, b, 0x7e57, 0);
    return (((double)out[0] * 4294967296.0 + (double)out[1]) + 0.5) / 18446744073709551616.0;
}

static double normal(uint64_t seed, uint32_t a, uint32_t b)
{
    return sqrt(-2.0 * log(uniform(seed, a, b))) * cos(6.283185307179586 * uniform(seed + 1, a, b));
}

/* Worker r's vector: the base, plus noise of `noise` times the RMS of its block. */
static void make_worker(float *x, const float *base, size_t len, double noise, uint32_t r)
{
    memcpy(x, base, len * sizeof *x);
    for (size_t start = 0; noise > 0 && start < len; start += BLOCK) {
        size_t end = start + BLOCK < len ? start + BLOCK : len;
        double sum = 0;
        for (size_t i = start; i < end; i++) {
            sum += (double)base[i] * (double)base[i];
        }
        double scale = noise * sqrt(sum / (double)(end - start));
        for (size_t i = start; i < end; i++) {
            x[i] += (float)(scale * normal(1000 + r, (uint32_t)i, 0));
        }
    }
}

static gw_thc_options options_of(const setup *s)
{
    gw_thc_options options;
    gw_thc_table table;

    if (gw_thc_options_init(&options, &(gw_thc_goal){s->bits, s->workers, 32, 0}, &table_workspace) !=
            GW_OK ||
        gw_thc_table_solve(s->bits, s->granularity, s->p, &table, NULL, &table_workspace) != GW_OK) {
        exit(2);
    }
    options.table = table;
    options.threshold_bits = gw_thc_threshold_bits(s->p);
    options.seed = 42;
    return options;
}

/* NMSE of the mean of `workers` vectors after one round. norms[] is scratch for one value a block. */
static double round_error(const setup *s, const float *base, size_t len, double noise)
{
    gw_kernels kernels;
    gw_kernels_init(&kernels, GW_BACKEND_ALL);
    const gw_thc_kernels *k = &kernels.thc;
    gw_thc_options options = options_of(s);
    gw_thc_state thc;
    size_t blocks = (len + BLOCK - 1) / BLOCK;
    float *x = malloc(len * sizeof *x);
    double *mean = calloc(len, sizeof *mean);
    uint32_t *norms = calloc(blocks, sizeof *norms);
    uint8_t *lanes = calloc(blocks * BLOCK, 4);
    double one_norm = 0;

    if (x == NULL || mean == NULL || norms == NULL || lanes == NULL ||
        gw_thc_state_init(&thc, &options) != GW_OK) {
        exit(2);
    }
    for (uint32_t r = 0; r < s->workers; r++) {
        double whole = 0;
        make_worker(x, base, len, noise, r);
        for (size_t b = 0; b < blocks; b++) {
            size_t n = len - b * BLOCK < BLOCK ? len - b * BLOCK : BLOCK;
            uint32_t pattern = k->norm(x + b * BLOCK, n);
            norms[b] = pattern > norms[b] ? pattern : norms[b];
        }
        for (size_t i = 0; i < len; i++) {
            mean[i] += (double)x[i] / s->workers;
            whole += (double)x[i] * (double)x[i];
        }
        one_norm = fmax(one_norm, sqrt(whole));
        if (noise == 0.0) { /* all copies are the same */
            for (size_t i = 0; i < len; i++) {
                mean[i] = (double)x[i];
            }
            break;
        }
    }
    double error = 0, size = 0;
    float rotated[BLOCK], block[BLOCK];
    uint8_t index[BLOCK], packed[BLOCK / 2];
    for (uint32_t r = 0; r < s->workers; r++) {
        if (noise > 0 || r == 0) {
            make_worker(x, base, len, noise, r);
        }
        for (size_t b = 0; b < blocks; b++) {
            size_t n = len - b * BLOCK < BLOCK ? len - b * BLOCK : BLOCK;
            size_t lane_count = gw_thc_padded_len(n);
            uint32_t own = k->norm(x + b * BLOCK, n);
            double l = s->norms == NORM_ONE ? one_norm * sqrt((double)lane_count / (double)len)
                                            : (double)gw_float_from_bits(norms[b]);
            gw_thc_stream stream = {options.seed, (uint32_t)b, s->round, s->shared_rounding ? 0 : r};
            double half = 32768.0 * s->granularity;
            double t = (double)gw_float_from_bits(options.threshold_bits);
            gw_thc_quantizer q = {0,
                                  -(float)half,
                                  (float)half,
                                  (int32_t)half,
                                  thc.cell,
                                  thc.options.table.value,
                                  (1u << s->bits) - 1u};
            k->load(block, x + b * BLOCK, GW_FP32, NULL, n, lane_count);
            memset(rotated, 0, sizeof rotated);
            if (own != 0) {
                k->rotate(rotated, block, lane_count, own >> 23, &stream);
                q.scale = (float)(half / t / (l * ldexp(1.0, 128 - (int)(own >> 23))));
            }
            k->quantize(index, rotated, lane_count, &q, &stream);
            k->pack(packed, index, lane_count, s->bits);
            k->add_indices(lanes + b * BLOCK * 4, packed, lane_count, s->bits, thc.options.table.value, 32);
        }
    }
    for (size_t b = 0; b < blocks; b++) {
        size_t n = len - b * BLOCK < BLOCK ? len - b * BLOCK : BLOCK;
        size_t lane_count = gw_thc_padded_len(n);
        gw_thc_stream stream = {options.seed, (uint32_t)b, s->round, 0};
        uint32_t pattern = norms[b];
        if (s->norms == NORM_ONE) {
            pattern = gw_bits_from_float((float)(one_norm * sqrt((double)lane_count / (double)len)));
        }
        memset(block, 0, sizeof block);
        if (pattern != 0) {
            gw_thc_block sum = {lanes + b * BLOCK * 4, lane_count, 32, s->workers, &pattern};
            gw_thc_block_decode(&thc, &sum, GW_THC_MEAN, &stream, block);
        }
        for (size_t i = 0; i < n; i++) {
            double d = (double)block[i] - mean[b * BLOCK + i];
            error += d * d;
            size += mean[b * BLOCK + i] * mean[b * BLOCK + i];
        }
    }
    free(lanes);
    free(norms);
    free(mean);
    free(x);
    return error / size;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* TernGrad: sign times Bernoulli(|x| / s), s the largest magnitude of the worker's vector; uplink only.
 * Top-k: each worker keeps its tenth of largest magnitude. */
static void baselines(const float *base, size_t len, double noise, uint32_t workers, double *terngrad,
                      double *top_k)
{
    float *x = malloc(len * sizeof *x);
    float *sorted = malloc(len * sizeof *sorted);
    double *mean = calloc(len, sizeof *mean);
    double *tern = calloc(len, sizeof *tern);
    double *top = calloc(len, sizeof *top);

    if (x == NULL || sorted == NULL || mean == NULL || tern == NULL || top == NULL) {
        exit(2);
    }
    for (uint32_t r = 0; r < workers; r++) {
        if (noise > 0 || r == 0) {
            make_worker(x, base, len, noise, r);
            for (size_t i = 0; i < len; i++) {
                sorted[i] = fabsf(x[i]);
            }
            qsort(sorted, len, sizeof *sorted, descending);
        }
        double largest = (double)sorted[0];
        float least_kept = sorted[len / 10 > 0 ? len / 10 - 1 : 0];
        for (size_t i = 0; i < len; i++) {
            mean[i] += (double)x[i] / workers;
            if (uniform(77 + r, (uint32_t)i, 1) * largest < fabs((double)x[i])) {
                tern[i] += copysign(largest, (double)x[i]) / workers;
            }
            if (fabsf(x[i]) >= least_kept) {
                top[i] += (double)x[i] / workers;
            }
        }
    }
    double size = 0;
    *terngrad = *top_k = 0;
    for (size_t i = 0; i < len; i++) {
        size += mean[i] * mean[i];
        *terngrad += (tern[i] - mean[i]) * (tern[i] - mean[i]);
        *top_k += (top[i] - mean[i]) * (top[i] - mean[i]);
    }
    *terngrad /= size;
    *top_k /= size;
    free(top);
    free(tern);
    free(mean);
    free(sorted);
    free(x);
}

static void figure15(void)
{
    enum { LEN = 1 << 16, REPEATS = 20 };
    static const unsigned grids[] = {3, 7, 11, 15, 21, 31, 41, 51};
    float *x = malloc(LEN * sizeof *x);

    if (x == NULL) {
        exit(2);
    }
    printf("bits,granularity,nmse\n");
    for (unsigned bits = 2; bits <= 4; bits++) {
        for (unsigned g = 0; g < sizeof grids / sizeof grids[0]; g++) {
            double sum = 0;
            if (grids[g] < (1u << bits) - 1) {
                continue;
            }
            for (uint32_t repeat = 0; repeat < REPEATS; repeat++) {
                setup s = {bits, grids[g], 1 / 1024., 10, NORM_PER_BLOCK, 0, repeat};
                for (uint32_t i = 0; i < LEN; i++) {
                    x[i] = (float)exp(normal(5000 + 2 * repeat, i, 0));
                }
                sum += round_error(&s, x, LEN, 0);
            }
            printf("%u,%u,%.6f\n", bits, grids[g], sum / REPEATS);
            fflush(stdout);
        }
    }
    free(x);
}

/* The first 2^20 values of a little-endian fp32 .npy; only what the shared snapshots are. */
static float *read_npy(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    uint8_t head[10];
    size_t limit = (size_t)1 << 20;
    float *x = malloc(limit * sizeof *x);

    if (f == NULL || x == NULL || fread(head, 1, 10, f) != 10 || memcmp(head, "\x93NUMPY\x01", 7) != 0 ||
        fseek(f, 10 + (head[8] | head[9] << 8), SEEK_SET) != 0) {
        fprintf(stderr, "%s: cannot read\n", path);
        exit(3);
    }
    *len = fread(x, sizeof *x, limit, f);
    fclose(f);
    return x;
}

static void gradients(int count, char **paths)
{
    static const uint32_t workers[] = {1, 2, 4, 8, 16, 64};

    printf("snapshot,data,workers,p,thc,one_norm,shared_rounding_p32,own_rounding_p32,terngrad,top_k\n");
    for (int file = 0; file < count; file++) {
        size_t len;
        float *x = read_npy(paths[file], &len);
        const char *name = strrchr(paths[file], '/');
        for (int noisy = 0; noisy < 2; noisy++) {
            for (unsigned w = 0; w < 6; w++) {
                gw_thc_design design;
                setup s = {4, 31, 0, workers[w], NORM_PER_BLOCK, 0, 1};
                double noise = noisy ? 2.0 : 0.0, one = -1, shared = -1, own = -1, tern = -1, top = -1;
                const gw_thc_goal goal = {4, workers[w] <= 8 ? workers[w] : 8, 0, 0};
                if (gw_thc_design_make(&design, &goal, NULL) != GW_OK) {
                    exit(2);
                }
                s.p = design.p;
                double thc = round_error(&s, x, len, noise);
                setup single = s;
                single.norms = NORM_ONE;
                if (workers[w] == 8) {
                    one = round_error(&single, x, len, noise);
                }
                setup p32 = s;
                p32.p = 1 / 32.;
                if (workers[w] == 8) {
                    own = round_error(&p32, x, len, noise);
                    p32.shared_rounding = 1;
                    shared = round_error(&p32, x, len, noise);
                }
                baselines(x, len, noise, workers[w], &tern, &top);
                printf("%s,%s,%u,%g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g\n", name != NULL ? name + 1 : paths[file],
                       noisy ? "noise" : "copies", workers[w], s.p, thc, one, shared, own, tern, top);
                fflush(stdout);
            }
        }
        free(x);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "figure15") == 0) {
        figure15();
        return 0;
    }
    if (argc > 2 && strcmp(argv[1], "gradients") == 0) {
        gradients(argc - 2, argv + 2);
        return 0;
    }
    fprintf(stderr, "usage: thc_error figure15 | thc_error gradients FILE.npy ...\n");
    return 2;
}
