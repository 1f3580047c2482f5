/*
 * Prints docs/results/gcomp-size.md for the snapshots on the command line: sizes with every byte counted,
 * beside the scheme of the GCOMP paper as it is published, which is measured here by code of its own.
 *
 *   results_gcomp_size SNAPSHOT.json...
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>

#include "frame_parts.h"
#include "optimizer_reference.h"
#include "results_snapshot.h"

/* ---- published scheme ---------------------------------------------------------------------------------- */

typedef struct published {
    double exponents, map_bytes, mantissas; /* bits a value */
} published;

/* Total length of a Huffman code of the counts: the sum of all inner weights, without a length limit. */
static double huffman_bits(const uint64_t *count, size_t n)
{
    uint64_t weight[256];
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (count[i] != 0) {
            weight[left++] = count[i];
        }
    }
    double bits = left == 1 ? (double)weight[0] : 0.0;
    while (left > 1) {
        for (int pass = 0; pass < 2; pass++) { /* the two smallest to the end */
            size_t least = 0;
            for (size_t i = 0; i < left - (size_t)pass; i++) {
                least = weight[i] < weight[least] ? i : least;
            }
            const uint64_t swap = weight[left - 1 - (size_t)pass];
            weight[left - 1 - (size_t)pass] = weight[least];
            weight[least] = swap;
        }
        weight[left - 2] += weight[left - 1];
        bits += (double)weight[left - 2];
        left--;
    }
    return bits;
}

static param_state state_at(const gw_optimizer_state *s, uint64_t i)
{
    const param_state p = {(long double)s->param[i], s->m == NULL ? 0.0L : (long double)s->m[i],
                           s->v == NULL ? 0.0L : (long double)s->v[i],
                           s->a == NULL ? 0.0L : (long double)s->a[i], s->m != NULL};
    return p;
}

/* One Huffman table over all exponents (0 = pruned zero or subnormal), a 2-bit drop and sign and kept
 * mantissa for every other value. Level n if num / (lr c) is above 2^(6n) times the gradient: by magnitude,
 * or as printed, with its sign. The second moment is the one that the update uses, this gradient included. */
static published published_scheme(const gw_optimizer *o, const gw_optimizer_state *state, const float *g,
                                  uint64_t len, int by_magnitude)
{
    uint64_t exponent_count[256] = {0};
    double mantissas = 0.0, coded = 0.0;
    for (uint64_t i = 0; i < len; i++) {
        uint32_t bits;
        memcpy(&bits, &g[i], 4);
        const uint32_t exponent = bits >> 23 & 255;
        exponent_count[exponent]++;
        if (exponent == 0) {
            continue;
        }
        const param_state s = state_at(state, i);
        const affine update = optimizer_update(o, &s, (long double)g[i], 0);
        long double ratio = -update.constant / update.slope / (long double)g[i];
        ratio = by_magnitude ? fabsl(ratio) : ratio;
        const int drop_steps = ratio > 0x1p18L ? 3 : ratio > 0x1p12L ? 2 : ratio > 0x1p6L ? 1 : 0;
        mantissas += 24.0 - 6.0 * (double)drop_steps;
        coded += 1.0;
    }
    const published p = {huffman_bits(exponent_count, 256) / (double)len, 2.0 * coded / (double)len,
                         mantissas / (double)len};
    return p;
}

/* Values of an explicit frame whose cut is deeper than the exact quotient, at the bound of the second moment
 * that the map uses, would allow: there must be none. */
static uint64_t count_deeper(const gw_optimizer *o, const gw_optimizer_state *state, const float *g,
                             uint64_t len, const gw_gcomp_map *map)
{
    uint64_t deeper = 0;
    for (uint64_t i = 0; i < len; i++) {
        uint32_t bits;
        memcpy(&bits, &g[i], 4);
        const int room = (int)map->bytes[i] + (int)map->base - 1 - (int)(bits >> 21 & 1023);
        if (map->bytes[i] == 0 || room < 24 || (bits >> 23 & 255) == 0) {
            continue;
        }
        const int drop_steps = room >= 72 ? 3 : room / 24;
        const param_state s = state_at(state, i);
        deeper += optimizer_ratio(o, &s, 0.0L, 1) <= ldexpl(fabsl((long double)g[i]), 6 * drop_steps);
    }
    return deeper;
}

/* ---- tables -------------------------------------------------------------------------------------------- */

typedef struct mode {
    const char *name;
    gw_gcomp_quantum_mode quantum_mode;
    uint32_t step;
    gw_gcomp_preset preset;
} mode;

static const mode modes[] = {
    {"explicit, small", GW_GCOMP_EXPLICIT, 6, GW_GCOMP_SMALL},
    {"explicit, fast", GW_GCOMP_EXPLICIT, 6, GW_GCOMP_FAST},
    {"derived 6, small", GW_GCOMP_DERIVED, 6, GW_GCOMP_SMALL},
    {"derived 6, fast", GW_GCOMP_DERIVED, 6, GW_GCOMP_FAST},
    {"derived 3, small", GW_GCOMP_DERIVED, 3, GW_GCOMP_SMALL},
    {"derived 3, fast", GW_GCOMP_DERIVED, 3, GW_GCOMP_FAST},
    {"derived 2, small", GW_GCOMP_DERIVED, 2, GW_GCOMP_SMALL},
    {"derived 2, fast", GW_GCOMP_DERIVED, 2, GW_GCOMP_FAST},
    {"derived 1, small", GW_GCOMP_DERIVED, 1, GW_GCOMP_SMALL},
    {"derived 1, fast", GW_GCOMP_DERIVED, 1, GW_GCOMP_FAST},
};

static void print_row(const char *name, double labels, const char *map_bytes, double digits,
                      double whole_values, double codebooks, double headers)
{
    const double total =
        labels + digits + whole_values + codebooks + headers + (map_bytes == NULL ? 0.0 : atof(map_bytes));
    printf("| %s | %.2f %% | %.2f %% | %.3f | %.3f | %s | %.3f | %.3f | %.3f | %.3f |\n", name, total / 0.32,
           total / 0.16, total, labels, map_bytes == NULL ? "joint" : map_bytes, digits, whole_values,
           codebooks, headers);
}

static int snapshot_table(const char *path)
{
    gw_snapshot snapshot;
    char name[256], text[32];
    if (!snapshot_open(&snapshot, path)) {
        return 0;
    }
    const float *g = (const float *)snapshot.array[GW_SNAPSHOT_GRAD].values;
    printf("## %s\n\n%llu values, %s, lr %g, weight decay %g, step %llu.\n\n",
           snapshot_name(path, name, sizeof name), (unsigned long long)snapshot.len,
           gw_optimizer_name(snapshot.optimizer.kind), snapshot.optimizer.lr, snapshot.optimizer.weight_decay,
           (unsigned long long)snapshot.optimizer.step);
    printf("| scheme | of fp32 | of bf16 | bits a value | exponents, labels | drops | sign, mantissa | "
           "whole values |"
           " codebooks | headers, directory, padding |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (int by_magnitude = 1; by_magnitude >= 0; by_magnitude--) {
        const published p =
            published_scheme(&snapshot.optimizer, &snapshot.state, g, snapshot.len, by_magnitude);
        snprintf(text, sizeof text, "%.3f", p.map_bytes);
        print_row(by_magnitude ? "published, by magnitude" : "published, with sign", p.exponents, text,
                  p.mantissas, 0.0, 0.0, 0.0);
    }
    int ok = 1;
    uint64_t deeper = 0;
    for (size_t m = 0; ok && m < sizeof modes / sizeof modes[0]; m++) {
        gw_gcomp_options o;
        gw_gcomp_options_init(&o, GW_FP32);
        o.quantum_mode = modes[m].quantum_mode;
        o.step = modes[m].step;
        o.preset = modes[m].preset;
        frame_run run;
        gw_gcomp_frame_info info;
        ok = frame_run_make(&run, &o, &snapshot.optimizer, &snapshot.state, g, snapshot.len) &&
             gw_gcomp_frame_parse(
                 &run.codec,
                 &(gw_gcomp_frame){.data = run.frame.data, .size = run.frame.size, .map = &run.map},
                 &info) == GW_OK;
        if (ok) {
            gw_frame_parts parts;
            gw_frame_parts_read(run.frame.data, run.frame.size, &info, &parts);
            if (m == 0) {
                deeper = count_deeper(&snapshot.optimizer, &snapshot.state, g, snapshot.len, &run.map);
            }
            const double per = 8.0 / (double)snapshot.len;
            print_row(modes[m].name, per * (double)parts.labels,
                      modes[m].quantum_mode == GW_GCOMP_DERIVED ? "0" : NULL, per * (double)parts.digits,
                      per * (double)(parts.escapes + parts.raw), per * (double)parts.codebooks,
                      per * (double)parts.headers);
            frame_run_free(&run);
        }
    }
    printf(
        "\n%llu values (%.2f %%) of the explicit frames are cut deeper than the exact quotient would allow\n"
        "(docs/numerics.md section 3).\n\n",
        (unsigned long long)deeper, 100.0 * (double)deeper / (double)snapshot.len);
    gw_snapshot_close(&snapshot);
    return ok;
}

int main(int argc, char **argv)
{
    printf(
        "# GCOMP: sizes\n\n"
        "Made by `bench/gcomp/results_gcomp`. Every byte of the frame is counted; nearest rounding, wire "
        "scale "
        "1, "
        "chunks of 2^14\n"
        "values. *of bf16* is the ratio against sending the gradient as bf16. In explicit "
        "frames the level\n"
        "is joint with the exponent; derived frames send none. *whole values* are escapes and RAW chunks.\n\n"
        "*published* is the scheme of the GCOMP paper without any header: one Huffman table over all "
        "exponents of the\n"
        "snapshot (without length limit, the table itself not counted), zeros and subnormals pruned to one "
        "code, for every other\n"
        "value a 2-bit drop and the sign and 23, 17, 11 or 5 mantissa bits. Its drop comes from the exact "
        "quotient\n"
        "num / (lr c g) in long double, with the second moment after the update: by magnitude, or as "
        "printed, where a quotient\n"
        "below zero means a drop of 0.\n\n");
    for (int i = 1; i < argc; i++) {
        if (!snapshot_table(argv[i])) {
            fprintf(stderr, "results_gcomp_size: %s failed\n", argv[i]);
            return 1;
        }
    }
    return argc > 1 ? 0 : 2;
}
