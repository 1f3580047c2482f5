/* SPDX-License-Identifier: BSD-2-Clause */
#include "ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next_u64(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static double unit(uint64_t *state)
{
    return (double)(next_u64(state) >> 11) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += unit(state);
    }
    return sum;
}

typedef struct ring_memory {
    float *local, *theta, *decoded;
    /* adds: what fp32 additions may have rounded away, half an ulp of every partial sum */
    double *exact, *adds;
    uint8_t *frame[2], *map_bytes;
    uint32_t *digest;
    gw_workspace workspace;
} ring_memory;

static int fill_map(const ring_setup *s, ring_memory *m, gw_gcomp_map *map, uint64_t *random)
{
    /* SGD with lr = 0.01 and no weight decay: num / (lr c) = 100 * theta, on the wire times the number of
     * ranks. */
    gw_optimizer sgd;
    memset(&sgd, 0, sizeof sgd);
    sgd.kind = GW_OPTIMIZER_SGD;
    sgd.step = 1;
    sgd.lr = 0.01;
    for (uint32_t i = 0; i < s->len; i++) {
        m->theta[i] = (float)(0.05 * normal(random));
    }
    const gw_optimizer_state state = {m->theta, NULL, NULL, NULL};
    gw_gcomp_map_rule rule;
    uint32_t top;
    if (gw_gcomp_map_rule_init(&sgd, (float)s->ranks, NULL, &rule) != GW_OK ||
        gw_gcomp_map_scan(&rule, &state, s->len, GW_BACKEND_ALL, &top) != GW_OK) {
        return 0;
    }
    map->base = gw_gcomp_map_base(top);
    map->wire_scale = (float)s->ranks;
    map->bytes = m->map_bytes;
    map->len = s->len;
    map->chunk_log2 = 14;
    map->digest = m->digest;
    map->len = s->len;
    return gw_gcomp_map_build(&rule, &state, s->len, map->base, GW_BACKEND_ALL, m->map_bytes) == GW_OK &&
           gw_gcomp_map_digest(m->map_bytes, s->len, 14, m->digest) == GW_OK;
}

static void fill_local(const ring_setup *s, ring_memory *m, const double *mean, uint64_t *random)
{
    for (uint32_t i = 0; i < s->len; i++) {
        const double x =
            s->same_sign ? fabs(mean[i]) * (0.5 + unit(random)) : mean[i] + 1e-3 * normal(random);
        m->local[i] = (float)x;
        m->exact[i] += (double)m->local[i];
        m->adds[i] += fabs(m->exact[i]) * 0x1p-24 * 1.01;
    }
}

static void measure(const ring_setup *s, const ring_memory *m, int has_map, ring_result *r)
{
    double error = 0.0, whole = 0.0;
    for (uint32_t i = 0; i < s->len; i++) {
        const double difference = (double)m->decoded[i] - m->exact[i];
        const double size = fabs(m->exact[i]);
        error += m->exact[i] < 0 ? -difference : difference;
        whole += size;
        if (size > 0 && fabs(difference) / size > r->worst) {
            r->worst = fabs(difference) / size;
        }
        const double feel = 100.0 * fabs((double)m->theta[i]) * (double)s->ranks * 0x1p-23;
        if (has_map && feel > 0 && (fabs(difference) - m->adds[i]) / feel > r->worst_budget) {
            r->worst_budget = (fabs(difference) - m->adds[i]) / feel;
        }
    }
    r->bias = error / whole;
}

static int run(const ring_setup *s, const gw_gcomp *codec, ring_memory *m, size_t bound, ring_result *r)
{
    uint64_t random = s->seed;
    const int has_map = s->constant_drop == UINT32_MAX;
    gw_gcomp_map map;
    if (has_map && !fill_map(s, m, &map, &random)) {
        return 0;
    }
    double *mean = malloc(s->len * sizeof *mean);
    if (mean == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < s->len; i++) {
        mean[i] = 2e-4 * normal(&random) + 1e-9;
    }
    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = m->local;
    source.len = s->len;
    source.quantum = gw_gcomp_quantum_of_map(has_map ? &map : NULL);
    source.seed = s->seed;
    size_t size = 0;
    int ok = 1;
    for (uint32_t hop = 0; ok && hop < s->ranks; hop++) {
        fill_local(s, m, mean, &random);
        source.rank = (uint16_t)hop;
        source.hop = (uint16_t)hop;
        gw_buffer out = {m->frame[hop & 1], bound, 0};
        const gw_gcomp_frame in = {m->frame[(hop + 1) & 1], size, source.quantum.map};
        ok = (hop == 0 ? gw_gcomp_encode(codec, &source, &out, &m->workspace)
                       : gw_gcomp_decode_add_encode(codec, &in, &source, &out, NULL, &m->workspace)) == GW_OK;
        size = out.size;
    }
    free(mean);
    const gw_gcomp_frame last = {m->frame[(s->ranks + 1) & 1], size, source.quantum.map};
    gw_gcomp_target target = {.values = m->decoded, .capacity = s->len};
    ok = ok && gw_gcomp_decode(codec, &last, &target, &m->workspace) == GW_OK;
    if (ok) {
        measure(s, m, has_map, r);
        r->mean_bits = 8.0 * (double)size / (double)s->len;
    }
    return ok;
}

int ring_run(const ring_setup *s, ring_result *result)
{
    memset(result, 0, sizeof *result);
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    o.quantum_mode = s->quantum_mode;
    o.rounding = s->rounding;
    o.quantum = gw_gcomp_quantum_of_drop(s->constant_drop == UINT32_MAX ? 0 : s->constant_drop);
    gw_gcomp codec;
    if (gw_gcomp_init(&codec, &o) != GW_OK) {
        return 0;
    }
    const size_t bound = gw_gcomp_frame_bound(&codec, s->len);
    ring_memory m;
    m.local = malloc(s->len * sizeof *m.local);
    m.theta = calloc(s->len, sizeof *m.theta);
    m.decoded = malloc(s->len * sizeof *m.decoded);
    m.exact = calloc(s->len, sizeof *m.exact);
    m.adds = calloc(s->len, sizeof *m.adds);
    m.frame[0] = malloc(bound);
    m.frame[1] = malloc(bound);
    m.map_bytes = malloc(s->len);
    m.digest = malloc((s->len / 16384 + 1) * sizeof *m.digest);
    m.workspace.size = gw_gcomp_workspace_size(&codec);
    m.workspace.data = malloc(m.workspace.size);
    const int ok = m.local != NULL && m.theta != NULL && m.decoded != NULL && m.exact != NULL &&
                   m.adds != NULL && m.frame[0] != NULL && m.frame[1] != NULL && m.map_bytes != NULL &&
                   m.digest != NULL && m.workspace.data != NULL && run(s, &codec, &m, bound, result);
    free(m.local);
    free(m.theta);
    free(m.decoded);
    free(m.exact);
    free(m.adds);
    free(m.frame[0]);
    free(m.frame[1]);
    free(m.map_bytes);
    free(m.digest);
    free(m.workspace.data);
    return ok;
}
