/*
 * Quantization tables: costs, and the exact optimum.
 *
 * The cost of a table is a sum over neighbouring table values, so the best table is a shortest path over grid
 * points with 2^bits - 1 steps. (The paper enumerates tables, and assumes a symmetry that an optimum need not
 * have.)
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/float_bits.h"
#include "thc/thc_handle.h"
#include "thc/thc_normal.h"

#define GW_P_MIN     0x1p-13 /* t < 4: allowed in options, and every cost in units of 2^-60 fits 64 bits */
#define GW_P_MAX     0.9
#define GW_COST_UNIT 0x1p60

/* Grid points, and their density and distribution. */
typedef struct normal_grid {
    double x[256];
    double density[256];
    double half_cdf[256];
} normal_grid;

/* Dynamic programming state. cost[m][i]: the least cost from grid point i to the last one in m steps;
 * next[m][i]: the first point of the lexicographically smallest path of that cost. */
typedef struct table_search {
    normal_grid grid;
    uint64_t cost[16][256];
    uint64_t weight[256]; /* of the intervals from the current point */
    uint8_t next[16][256];
} table_search;

_Static_assert(sizeof(table_search) + _Alignof(table_search) <= GW_THC_TABLE_WORKSPACE_SIZE, "workspace");

gw_thc_table gw_thc_table_uniform(unsigned bits)
{
    gw_thc_table table;

    GW_MEMSET(&table, 0, sizeof table);
    if (bits < 1 || bits > GW_THC_BITS_MAX) {
        return table;
    }
    table.bits = (uint8_t)bits;
    table.granularity = (uint8_t)((1u << bits) - 1u);
    for (unsigned z = 0; z <= table.granularity; z++) {
        table.value[z] = (uint8_t)z;
    }
    return table;
}

/* One point of the grid of g steps over [-t, t]. Points beyond the middle mirror those before it. */
static void grid_point(double out[3], unsigned i, unsigned g, double t)
{
    unsigned mirror = 2 * i > g ? g - i : i;
    double x = -t + (double)mirror * (2.0 * t / (double)g);
    double sign = 2 * i > g ? -1.0 : 1.0;

    out[0] = sign * x;
    out[1] = gw_normal_density(x);
    out[2] = sign * gw_normal_half_cdf(x);
}

/*
 * Integral over [a, b] of (x - a)(b - x) phi(x) dx, with phi = -x-integral of itself:
 *     b phi(a) - a phi(b) - (1 + a b) (Phi(b) - Phi(a)).
 * For |a|, |b| <= 4 the terms are below 17, so the roundings here add less than 17 * 4 * 2^-53 < 8e-15. With
 * the errors of phi and Phi (thc_normal.h: 4 * 0.4 * 8e-15 and 17 * 2 * 2e-15) the absolute error is below
 * 1e-13.
 */
static double interval_cost(const double a[3], const double b[3])
{
    double cost = (b[0] * a[1] - a[0] * b[1]) - (1.0 + a[0] * b[0]) * (b[2] - a[2]);
    return cost > 0.0 ? cost : 0.0;
}

/* The same in units of 2^-60, for interval (i, j) or its mirror image, whichever is further left: tables that
 * mirror each other then have equal costs, and the choice among them does not depend on rounding. */
static uint64_t interval_weight(const normal_grid *grid, unsigned i, unsigned j, unsigned g)
{
    if (i + j > g) {
        unsigned mirrored = g - j;
        j = g - i;
        i = mirrored;
    }
    double a[3] = {grid->x[i], grid->density[i], grid->half_cdf[i]};
    double b[3] = {grid->x[j], grid->density[j], grid->half_cdf[j]};
    return (uint64_t)(interval_cost(a, b) * GW_COST_UNIT);
}

static void solve_from_point(table_search *s, unsigned i, unsigned steps, unsigned g)
{
    for (unsigned j = i + 1; j <= g; j++) {
        s->weight[j] = interval_weight(&s->grid, i, j, g);
    }

    s->cost[1][i] = s->weight[g];
    s->next[1][i] = (uint8_t)g;
    for (unsigned m = 2; m <= steps && m <= g - i; m++) {
        uint64_t best = UINT64_MAX;
        unsigned best_next = g;
        /* m - 1 steps must still fit after j. Strictly less: ties go to the smallest j. */
        for (unsigned j = i + 1; j + (m - 1) <= g; j++) {
            uint64_t cost = s->weight[j] + s->cost[m - 1][j];
            if (cost < best) {
                best = cost;
                best_next = j;
            }
        }
        s->cost[m][i] = best;
        s->next[m][i] = (uint8_t)best_next;
    }
}

static int p_in_range(double p)
{
    return p >= GW_P_MIN && p <= GW_P_MAX; /* false for NaN */
}

/* E[(|x| - t)^2; |x| > t] = 2 ((1 + t^2) Q(t) - t phi(t)), Q the upper tail. */
static double truncation_cost(double t)
{
    double tail = 0.5 - gw_normal_half_cdf(t);
    double cost = 2.0 * ((1.0 + t * t) * tail - t * gw_normal_density(t));
    return cost > 0.0 ? cost : 0.0;
}

/* Integral part of the cost of a valid table over [-t, t], 0 < t <= 4. */
static double quantization_cost(const gw_thc_table *table, double t)
{
    double total = 0.0;
    double a[3];
    double b[3];

    grid_point(a, 0, table->granularity, t);
    for (unsigned z = 1; z < 1u << table->bits; z++) {
        grid_point(b, table->value[z], table->granularity, t);
        total += interval_cost(a, b);
        GW_MEMCPY(a, b, sizeof a);
    }
    return total;
}

void gw_thc_table_price_at(gw_thc_table_cost *cost, const gw_thc_table *table, double t)
{
    cost->threshold = t;
    cost->quantization = quantization_cost(table, t);
    cost->truncation = truncation_cost(t);
    cost->total = cost->quantization + cost->truncation;
}

gw_status gw_thc_table_price(const gw_thc_table *table, double p, gw_thc_table_cost *cost)
{
    if (cost == NULL || table == NULL) {
        return GW_ERR_ARG;
    }
    if (!p_in_range(p)) {
        return GW_ERR_OPTION;
    }
    if (gw_thc_table_check(table) != GW_OK) {
        return GW_ERR_TABLE;
    }
    gw_thc_table_price_at(cost, table, gw_normal_threshold(p));
    return GW_OK;
}

gw_status gw_thc_table_solve(unsigned bits, unsigned granularity, double p, gw_thc_table *table,
                             gw_thc_table_cost *cost, const gw_workspace *workspace)
{
    if (table == NULL || workspace == NULL || workspace->data == NULL) {
        return GW_ERR_ARG;
    }
    if (bits < 1 || bits > GW_THC_BITS_MAX || granularity > GW_THC_GRANULARITY_MAX || !p_in_range(p)) {
        return GW_ERR_OPTION;
    }
    unsigned steps = (1u << bits) - 1u;
    if (granularity < steps) {
        return GW_ERR_OPTION;
    }
    if (workspace->size < GW_THC_TABLE_WORKSPACE_SIZE) {
        return GW_ERR_WORKSPACE;
    }

    uint8_t *start = workspace->data;
    start += (0 - (uintptr_t)start) % _Alignof(table_search);
    table_search *s = (table_search *)(void *)start;
    double t = gw_normal_threshold(p);
    for (unsigned i = 0; i <= granularity; i++) {
        double point[3];
        grid_point(point, i, granularity, t);
        s->grid.x[i] = point[0];
        s->grid.density[i] = point[1];
        s->grid.half_cdf[i] = point[2];
    }
    for (unsigned i = granularity; i-- > 0;) {
        solve_from_point(s, i, steps, granularity);
    }

    GW_MEMSET(table, 0, sizeof *table);
    table->bits = (uint8_t)bits;
    table->granularity = (uint8_t)granularity;
    unsigned point = 0;
    for (unsigned z = 1; z <= steps; z++) {
        point = s->next[steps - z + 1][point];
        table->value[z] = (uint8_t)point;
    }
    if (cost != NULL) {
        gw_thc_table_price_at(cost, table, t);
    }
    return GW_OK;
}

uint32_t gw_thc_threshold_bits(double p)
{
    return p_in_range(p) ? gw_bits_from_float((float)gw_normal_threshold(p)) : 0;
}
