/*
 * Fitting cost curves to measurements, minimising sum ((fit - y) / y)^2: times span decades, so relative
 * errors count. Coefficients are kept non-negative. Every form is solved exactly for a given split of the
 * sorted points; all splits are tried.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_cost.h"

/* Weighted normal equations of a + b u with weights 1 / y^2. */
typedef struct line_sums {
    double w, wu, wuu, wy, wuy;
} line_sums;

static void add_point(line_sums *s, double u, double y)
{
    double w = 1.0 / (y * y);
    s->w += w;
    s->wu += w * u;
    s->wuu += w * u * u;
    s->wy += w * y;
    s->wuy += w * u * y;
}

/* Best a, b >= 0: the free solution, or the better edge when it leaves the quadrant. */
static void solve_line(const line_sums *s, double *a, double *b)
{
    double det = s->w * s->wuu - s->wu * s->wu;
    if (det > 1e-12 * s->w * s->wuu) {
        *a = (s->wy * s->wuu - s->wuy * s->wu) / det;
        *b = (s->w * s->wuy - s->wu * s->wy) / det;
        if (*a >= 0 && *b >= 0) {
            return;
        }
    }
    double only_a = s->w > 0 ? s->wy / s->w : 0;
    double only_b = s->wuu > 0 ? s->wuy / s->wuu : 0;
    /* Reduction of the squared error by each edge. */
    if (s->wuu > 0 && only_b * s->wuy > only_a * s->wy) {
        *a = 0;
        *b = only_b;
    } else {
        *a = only_a;
        *b = 0;
    }
}

static gw_plan_tick to_tick(double value)
{
    return !(value > 0)                        ? 0
           : value >= (double)GW_PLAN_TICK_MAX ? GW_PLAN_TICK_MAX
                                               : (gw_plan_tick)(value + 0.5);
}

/* The points, and the best curve for them so far. */
typedef struct fit_search {
    const gw_plan_point *points;
    size_t count;
    gw_plan_fit best;
    double best_squares;
} fit_search;

/* Takes a curve if its sum of squared relative errors is smaller than that of the best so far. */
static void consider(fit_search *search, const gw_plan_cost *cost)
{
    gw_plan_fit fit = {*cost, 0, 0, 0};
    double squares = 0;
    double mean = 0;
    double residual = 0;
    double variance = 0;
    double count = (double)search->count;
    for (size_t i = 0; i < search->count; i++) {
        mean += (double)search->points[i].ticks / count;
    }
    for (size_t i = 0; i < search->count; i++) {
        double y = (double)search->points[i].ticks;
        double difference = (double)gw_plan_cost_eval(cost, search->points[i].len) - y;
        double relative = (difference < 0 ? -difference : difference) / y;
        fit.error_max = relative > fit.error_max ? relative : fit.error_max;
        fit.error_mean += relative / count;
        squares += relative * relative;
        residual += difference * difference;
        variance += (y - mean) * (y - mean);
    }
    fit.r2 = variance > 0 ? 1.0 - residual / variance : residual == 0 ? 1.0 : 0.0;
    if (squares < search->best_squares) {
        search->best_squares = squares;
        search->best = fit;
    }
}

static void consider_line(fit_search *search, gw_plan_cost_kind kind, double a, double b, int64_t t)
{
    const gw_plan_cost cost = {kind, to_tick(a), to_tick(b), t, 0, NULL, NULL};
    consider(search, &cost);
}

/* MAXLIN with points of at most `split` elements on the flat piece. */
static void fit_maxlin(fit_search *search, int64_t split)
{
    line_sums flat = {0, 0, 0, 0, 0};
    line_sums line = {0, 0, 0, 0, 0};
    for (size_t i = 0; i < search->count; i++) {
        add_point(search->points[i].len <= split ? &flat : &line, (double)search->points[i].len,
                  (double)search->points[i].ticks);
    }
    consider_line(search, GW_PLAN_COST_MAXLIN, flat.w > 0 ? flat.wy / flat.w : 0,
                  line.wuu > 0 ? line.wuy / line.wuu : 0, 0);
}

/* HINGE with points of at most `split` >= 0 elements on the flat piece. */
static void fit_hinge(fit_search *search, int64_t split)
{
    line_sums left = {0, 0, 0, 0, 0};
    line_sums right = {0, 0, 0, 0, 0};
    line_sums hinge = {0, 0, 0, 0, 0};
    for (size_t i = 0; i < search->count; i++) {
        double x = (double)search->points[i].len;
        double y = (double)search->points[i].ticks;
        int is_left = search->points[i].len <= split;
        add_point(is_left ? &left : &right, x, y);
        add_point(&hinge, is_left ? 0 : x - (double)split, y);
    }
    double a, b;
    solve_line(&hinge, &a, &b);
    consider_line(search, GW_PLAN_COST_HINGE, a, b, split);
    /* Pieces fitted separately: the hinge lies where the right line meets the flat piece. */
    double det = right.w * right.wuu - right.wu * right.wu;
    if (det > 1e-12 * right.w * right.wuu) {
        double flat = left.w > 0 ? left.wy / left.w : 0;
        double intercept = (right.wy * right.wuu - right.wuy * right.wu) / det;
        double slope = (right.w * right.wuy - right.wu * right.wy) / det;
        double meet = slope > 0 ? (flat - intercept) / slope : -1;
        if (meet >= 0 && meet < (double)GW_PLAN_TICK_MAX) {
            consider_line(search, GW_PLAN_COST_HINGE, flat, slope, (int64_t)(meet + 0.5));
        }
    }
}

static gw_status check_points(const gw_plan_point *points, size_t count)
{
    int differ = 0;
    for (size_t i = 0; i < count; i++) {
        if (points[i].len < 0 || points[i].ticks <= 0) {
            return GW_ERR_NEGATIVE;
        }
        if (points[i].len > GW_PLAN_TICK_MAX || points[i].ticks > GW_PLAN_TICK_MAX) {
            return GW_ERR_TICKS;
        }
        differ |= points[i].len != points[0].len;
    }
    return differ ? GW_OK : GW_ERR_ARG;
}

gw_status gw_plan_cost_fit(const gw_plan_point *points, size_t point_count, gw_plan_cost_kind kind,
                           gw_plan_fit *fit)
{
    if (points == NULL || fit == NULL ||
        (kind != GW_PLAN_COST_AFFINE && kind != GW_PLAN_COST_MAXLIN && kind != GW_PLAN_COST_HINGE)) {
        return GW_ERR_ARG;
    }
    gw_status status = check_points(points, point_count);
    if (status != GW_OK) {
        return status;
    }
    fit_search search = {points, point_count, {{kind, 0, 0, 0, 0, NULL, NULL}, 0, 0, 0}, 1e300};
    if (kind == GW_PLAN_COST_AFFINE) {
        line_sums all = {0, 0, 0, 0, 0};
        for (size_t i = 0; i < point_count; i++) {
            add_point(&all, (double)points[i].len, (double)points[i].ticks);
        }
        double a, b;
        solve_line(&all, &a, &b);
        consider_line(&search, kind, a, b, 0);
    } else if (kind == GW_PLAN_COST_MAXLIN) {
        for (size_t i = 0; i < point_count; i++) {
            fit_maxlin(&search, points[i].len);
        }
        fit_maxlin(&search, -1); /* no flat piece */
    } else {
        for (size_t i = 0; i < point_count; i++) {
            fit_hinge(&search, points[i].len);
        }
        fit_hinge(&search, 0); /* t = 0 contains the affine form */
    }
    *fit = search.best;
    return GW_OK;
}

gw_status gw_plan_cost_fit_best(const gw_plan_point *points, size_t point_count, gw_plan_fit *fit)
{
    static const gw_plan_cost_kind kinds[3] = {GW_PLAN_COST_AFFINE, GW_PLAN_COST_MAXLIN, GW_PLAN_COST_HINGE};
    if (fit == NULL) {
        return GW_ERR_ARG;
    }
    gw_plan_fit best;
    for (int i = 0; i < 3; i++) {
        gw_plan_fit one;
        gw_status status = gw_plan_cost_fit(points, point_count, kinds[i], &one);
        if (status != GW_OK) {
            return status;
        }
        if (i == 0 || one.error_max < best.error_max) {
            best = one;
        }
    }
    *fit = best;
    return GW_OK;
}
