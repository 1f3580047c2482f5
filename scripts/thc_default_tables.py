#!/usr/bin/env python3
"""Writes src/thc/thc_default_tables.c, the default tables of THC, or with --check proves that it is up to date.

Independent of the C generator: its own dynamic programming, with the error function of Python's math module. The C
tests hold the same constants against gw_thc_table_solve(). Costs of neighbouring candidates differ by far more than
rounding; where two tables tie, the lexicographically smaller one wins in both.
"""

import math
import os
import sys

BITS = (1, 2, 3, 4)
P_LOG2 = range(1, 11)  # p = 1/2 .. 1/1024
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(ROOT, "src/thc/thc_default_tables.c")


def threshold(p):
    low, high = 0.0, 8.0
    for _ in range(80):
        mid = (low + high) / 2
        if math.erfc(mid / math.sqrt(2)) > p:
            low = mid
        else:
            high = mid
    return low


def density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def cdf(x):
    return 0.5 * math.erf(x / math.sqrt(2))


def weights(g, t):
    x = [-t + 2 * t * k / g for k in range(g + 1)]
    w = [[0] * (g + 1) for _ in range(g + 1)]
    for i in range(g + 1):
        for j in range(i + 1, g + 1):
            if i + j > g:
                w[i][j] = w[g - j][g - i] if g - j < i else w[i][j]
                continue
            a, b = x[i], x[j]
            cost = b * density(a) - a * density(b) - (1 + a * b) * (cdf(b) - cdf(a))
            w[i][j] = int(max(cost, 0.0) * 2**60)
    for i in range(g + 1):  # mirror images of intervals that lie further left
        for j in range(i + 1, g + 1):
            if i + j > g:
                w[i][j] = w[g - j][g - i]
    return w


def solve(bits, g, p):
    t = threshold(p)
    w = weights(g, t)
    steps = 2**bits - 1
    best = {(0, g): (0, ())}
    for m in range(1, steps + 1):
        for i in range(g, -1, -1):
            options = [
                (w[i][j] + best[(m - 1, j)][0], (j,) + best[(m - 1, j)][1])
                for j in range(i + 1, g + 1)
                if (m - 1, j) in best
            ]
            if options:
                best[(m, i)] = min(options)
    cost, path = best[(steps, 0)]
    tail = 0.5 * math.erfc(t / math.sqrt(2))
    truncation = 2 * ((1 + t * t) * tail - t * density(t))
    return (0,) + path, cost / 2**60, truncation


def default_granularity(workers):
    """T10: eight-bit lanes as long as 15 fits, else sixteen."""
    return min(31, 255 // workers) if workers <= 17 else 51


def entries():
    cache = {}
    for bits in BITS:
        for feedback in (1, 0):
            runs = []
            for workers in range(1, 1286):
                g = default_granularity(workers)
                n = 1 if feedback else workers
                for k in P_LOG2:
                    if (bits, g, k) not in cache:
                        cache[(bits, g, k)] = solve(bits, g, 2.0**-k)
                price = {k: cache[(bits, g, k)][1] / n + cache[(bits, g, k)][2] for k in P_LOG2}
                p_log2 = min(P_LOG2, key=lambda k: price[k])
                if runs and runs[-1][0] == g and runs[-1][3] == p_log2:
                    runs[-1][2] = workers
                else:
                    runs.append([g, workers, workers, p_log2])
            for g, first, last, p_log2 in runs:
                yield bits, feedback, first, last, g, p_log2, cache[(bits, g, p_log2)][0]


def text():
    rows = []
    for bits, feedback, first, last, g, p_log2, values in entries():
        row = ", ".join(str(v) for v in values)
        rows.append(f"    {{{feedback}, {p_log2}, {first}, {last}, {{{bits}, {g}, {{{row}}}}}}},\n")
    return (
        """/*
 * Default tables by bits, error feedback and number of workers. Written by scripts/thc_default_tables.py; do
 * not edit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_default_tables.h"

const gw_thc_default_table gw_thc_default_tables[] = {
    /* error feedback, -log2 p, fewest workers, most workers, {bits, granularity, {values}} */
"""
        + "".join(rows)
        + """};

const size_t gw_thc_default_table_count = sizeof gw_thc_default_tables / sizeof gw_thc_default_tables[0];
"""
    )


def main():
    expected = text()
    if "--check" in sys.argv[1:]:
        with open(TARGET, encoding="ascii") as f:
            same = f.read() == expected
        print(f"{TARGET}: {'proved' if same else 'DIFFERS from the generator'}")
        return 0 if same else 1
    with open(TARGET, "w", encoding="ascii") as f:
        f.write(expected)
    return 0


if __name__ == "__main__":
    sys.exit(main())
