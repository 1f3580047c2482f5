#!/usr/bin/env python3
"""docs/results/gcomp-dial.md and its plot, from docs/results/gcomp-dial.tsv and gcomp-dial-others.tsv.

    bench/gcomp/results_gcomp_dial.py            says whether page and plot are those of the tables
    bench/gcomp/results_gcomp_dial.py --write    writes them
    bench/gcomp/results_gcomp_dial.py --others SNAPSHOT.json...
                                                 prints the rows of zfp and SZ3 (zfpy 1.0.1, pysz 1.1.0, NumPy)

bench/gcomp/results_gcomp runs all of it.
"""

import csv
import json
import math
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from result_pages import RESULTS, Axes, curve, dots, marker, show, svg_head, table, text, write_or_compare  # noqa: E402

COLUMNS = ("snapshot", "codec", "setting", "bits", "nmse", "nmse_median", "v_mean", "v_total")

# Most bits a value that derived, stochastic frames with dead zones (preset small) may need.
GOALS = {
    "resnet50-sgdm-step0400": {"t=23": 9.8, "t=16": 4.5, "t=14": 3.15, "t=12": 1.95, "t=10": 1.15, "t=8": 0.7},
    "resnet50-adamw-step0400": {"t=23": 9.7, "t=16": 4.35, "t=14": 2.95, "t=12": 1.8, "t=10": 1.0, "t=8": 0.6}
    | {"alpha=1/4": 0.65, "alpha=1/8": 0.95},
    "bertbase-adamw-step0050": {"t=23": 10.8, "t=16": 4.5, "t=14": 3.1, "t=12": 1.95, "t=10": 1.2, "t=8": 0.75}
    | {"alpha=1/4": 1.25, "alpha=1/8": 1.65},
}
# The same for carried frames at the error of int8; int4: 90 % of its bits everywhere.
GOALS_INT8 = {"resnet50-sgdm-step0400": 4.8, "resnet50-adamw-step0400": 5.8, "bertbase-adamw-step0050": 7.4}

# ---- zfp and SZ3 ----------------------------------------------------------------------------------------------------


def others(paths):
    import numpy as np
    import pysz
    import zfpy

    def sz3(x, bound):
        config = pysz.szConfig(x.size)
        config.errorBoundMode, config.absErrorBound = pysz.szErrorBoundMode.ABS, bound
        packed, _ = pysz.sz.compress(x, config)
        return len(packed), pysz.sz.decompress(packed, x.dtype, x.shape)[0]

    def zfp(x, bound):
        packed = zfpy.compress_numpy(x, tolerance=bound)
        return len(packed), zfpy.decompress_numpy(packed)

    print("\t".join(COLUMNS))
    for path in paths:
        stem = path.removesuffix(".json")
        with open(path, encoding="utf-8") as f:
            about = json.load(f)
        x = np.load(stem + "-grad.npy")
        v = np.zeros(0)
        if os.path.exists(stem + "-exp_avg_sq.npy"):
            beta2 = about["hyper"]["betas"][1]
            v = np.load(stem + "-exp_avg_sq.npy").astype(np.float64) * beta2 / (1 - beta2 ** about["step"])
        ends = np.cumsum([t["taken"] for t in about["tensors"]])
        squares = x.astype(np.float64) ** 2
        rms = math.sqrt(squares.mean())
        for codec, run in (("zfp", zfp), ("SZ3", sz3)):
            for octave in range(-8, 5, 2):
                size, y = run(x, rms * 2.0**octave)
                error = (y.astype(np.float64) - x) ** 2
                parts = zip(np.split(error, ends[:-1]), np.split(squares, ends[:-1]))
                row = [error.sum() / squares.sum(), statistics.median(e.sum() / s.sum() for e, s in parts if s.any())]
                if v.size:
                    row += [(error[v > 0] / v[v > 0]).mean(), error[v > 0].sum() / v.sum()]
                cells = [f"{cell:.4g}" for cell in row] + ["-"] * (4 - len(row))
                name = os.path.basename(stem)
                print("\t".join([name, codec, f"rms*2^{octave}", f"{size * 8 / x.size:.4f}", *cells]))


# ---- tables ---------------------------------------------------------------------------------------------------------


class Data:
    def __init__(self):
        self.rows = {}
        for name in ("gcomp-dial.tsv", "gcomp-dial-others.tsv"):
            with open(os.path.join(RESULTS, name), encoding="utf-8") as f:
                for row in csv.DictReader(f, delimiter="\t"):
                    for key in COLUMNS[3:]:
                        row[key] = None if row[key] == "-" else float(row[key])
                    self.rows.setdefault(row["snapshot"], []).append(row)

    def series(self, snapshot, codec):
        return [row for row in self.rows[snapshot] if row["codec"] == codec]

    def one(self, snapshot, codec, setting):
        return next(row for row in self.series(snapshot, codec) if row["setting"] == setting)


def errors(row):
    return [show(row[key]) for key in ("nmse", "nmse_median", "v_mean", "v_total")]


def against(bits, goal):
    if goal is None:
        return f"{bits:.2f}"
    return f"{bits:.2f} (at most {goal:.4g}{'' if bits <= goal else ', **missed**'})"


def dial_table(data, snapshot):
    rows = []
    for row in data.series(snapshot, "derived"):
        fast = data.one(snapshot, "derived fast", row["setting"])["bits"]
        bits = row["bits"]
        label = row["setting"].replace("alpha", "α").replace("=", " = ")
        goal = GOALS.get(snapshot, {}).get(row["setting"])
        rows.append(
            [label, against(bits, goal), f"{bits / 0.32:.1f} %", f"{bits / 0.16:.1f} %", f"{fast:.2f}", *errors(row)]
        )
    head = [
        "limit",
        "bits a value",
        "of fp32",
        "of bf16",
        "preset fast",
        "NMSE",
        "per tensor",
        "of v, mean",
        "of v, total",
    ]
    return table(head, rows)


def no_cut_table(data):
    rows = []
    for snapshot in data.rows:
        for t in (23, 16, 14, 12, 10, 8):
            cells = [snapshot, str(t)]
            for codec in ("derived", "derived no cut", "explicit"):
                row = data.one(snapshot, codec, f"t={t}")
                cells += [f"{row['bits']:.2f}", show(row["nmse"]), show(row["nmse_median"])]
            rows.append(cells)
    head = ["snapshot", "t"]
    for name in ("dead zone", "no dead zone", "explicit"):
        head += [f"{name}: bits", "NMSE", "per tensor"]
    return table(head, rows)


def equal_table(data):
    rows = []
    for snapshot in data.rows:
        for peer, goals in (("int8", GOALS_INT8), ("int4", {})):
            of = data.one(snapshot, peer, "nearest")
            goal = goals.get(snapshot) if peer == "int8" else 0.9 * of["bits"]
            nearest = data.one(snapshot, "equal nearest", f"{peer} block=9")
            stochastic = data.one(snapshot, "equal stochastic", peer)
            cells = [snapshot, peer, f"{of['bits']:.2f}", show(of["nmse"]), against(nearest["bits"], goal)]
            cells += [f"{stochastic['bits']:.2f}", show(of["nmse_median"]), show(nearest["nmse_median"])]
            rows.append(cells + [show(of["v_mean"]), show(nearest["v_mean"])])
    head = ["snapshot", "peer", "its bits", "NMSE", "carried, nearest", "carried, stochastic", "per tensor: peer"]
    return table(head + ["nearest", "of v, mean: peer", "nearest"], rows)


def bits_at(points, error):
    """Bits at an error from points (error, bits), straight in the logarithm of the error, also outside of them."""
    points = sorted((math.log(e), bits) for e, bits in points)
    at = min(max(sum(e < math.log(error) for e, _ in points), 1), len(points) - 1)
    (e0, b0), (e1, b1) = points[at - 1 : at + 1]
    return b0 + (b1 - b0) * (math.log(error) - e0) / (e1 - e0)


def block_table(data):
    rows = []
    for snapshot in data.rows:
        reference = data.one(snapshot, "carried map", "block=9 t=12")
        same_error, same_t, noise = [], [], []
        for block in range(6, 15):
            runs = [data.one(snapshot, "carried map", f"block={block} t={t}") for t in range(10, 15)]
            same_t.append(f"{runs[2]['bits']:.2f}")
            same_error.append(f"{bits_at([(r['nmse'], r['bits']) for r in runs], reference['nmse']):.2f}")
            noise.append(show(runs[2]["v_mean"]))
        rows.append([snapshot, "map, t = 12: bits", *same_t])
        rows.append([snapshot, "map, t = 12: of v, mean", *noise])
        rows.append([snapshot, "map, NMSE of 2^9: bits", *same_error])
        for peer in ("int8", "int4"):
            runs = [data.one(snapshot, "equal nearest", f"{peer} block={block}") for block in range(6, 15)]
            rows.append([snapshot, f"target, error of {peer}: bits", *(f"{r['bits']:.2f}" for r in runs)])
            rows.append([snapshot, f"target, error of {peer}: per tensor", *(show(r["nmse_median"]) for r in runs)])
    return table(["snapshot", "values a block", *(f"2^{block}" for block in range(6, 15))], rows)


DERIVED_BESIDE_MX = ("t=14", "t=12", "alpha=1/4", "alpha=1/8")
MX = ("MXFP4", "MXFP6", "MXFP8")
PEERS = ("bf16", "fp8 e4m3", "fp8 e5m2", *MX, "int8", "int4", "THC", "QSGD", "TernGrad", "top-k", "zfp", "SZ3")


def mx_table(data):
    rows = []
    for snapshot in data.rows:
        derived = [r for r in data.series(snapshot, "derived") if r["setting"] in DERIVED_BESIDE_MX]
        for row in derived + [r for codec in (*MX, "fp8 e4m3", "fp8 e5m2") for r in data.series(snapshot, codec)]:
            setting = "" if row["setting"] == "-" else ", " + row["setting"].replace("alpha", "α").replace("=", " = ")
            cells = [snapshot, row["codec"] + setting, f"{row['bits']:.2f}", show(row["nmse"]), show(row["v_mean"])]
            for codec in ("carried nearest", "carried stochastic"):
                points = [(r["nmse"], r["bits"]) for r in data.series(snapshot, codec)]
                cells.append(f"{bits_at(points, row['nmse']):.2f}" if row["nmse"] <= 1 else "-")
            rows.append(cells)
    head = ["snapshot", "codec", "bits a value", "NMSE", "of v, mean", "carried, nearest: bits", "stochastic: bits"]
    return table(head, rows)


def peer_table(data, snapshot):
    rows = []
    for codec in PEERS + ("one quantum",):
        for row in data.series(snapshot, codec):
            setting = "" if row["setting"] == "-" else ", " + row["setting"]
            rows.append(
                [("carried, " if codec == "one quantum" else "") + codec + setting, f"{row['bits']:.2f}", *errors(row)]
            )
    return table(["codec", "bits a value", "NMSE", "per tensor", "of v, mean", "of v, total"], rows)


# ---- plot -----------------------------------------------------------------------------------------------------------

LINES = (  # codec, start of its settings, label, color, dash
    ("derived", "t", "derived, by tolerance, dead zone", "#0b6e75", ""),
    ("derived", "alpha", "derived, by noise limit, dead zone", "#d1492e", ""),
    ("derived no cut", "", "derived, no dead zone", "#0b6e75", "2 3"),
    ("carried map", "block=9 ", "carried, quanta from the map, t = 10..14", "#d63c9f", ""),
    ("carried stochastic", "", "carried, target NMSE, stochastic", "#7b3fa0", ""),
    ("carried nearest", "", "carried, target NMSE, nearest", "#7b3fa0", "2 3"),
    ("one quantum", "", "carried, one quantum, nearest", "#c08a00", ""),
    ("QSGD", "", "QSGD 1, 4, 16 levels, entropy", "#57606a", ""),
    ("zfp", "", "zfp, fixed accuracy", "#8c959f", "6 3"),
    ("SZ3", "", "SZ3, absolute bound", "#2f6fd0", "6 3"),
    ("top-k", "", "top-k 1 %, 10 %", "#57606a", "2 3"),
)
POINTS = (  # start of codec, label, shape, color
    ("int8", "int8 in blocks of 256, nearest, stochastic", "square", "#1f2328"),
    ("int4", "int4 in blocks of 256, nearest, stochastic", "diamond", "#1f2328"),
    ("THC", "THC, 4 bits", "up", "#1a7f37"),
    ("TernGrad", "TernGrad, entropy", "down", "#57606a"),
    ("fp8 e4m3", "fp8 e4m3", "up", "#9a6700"),
    ("fp8 e5m2", "fp8 e5m2", "down", "#9a6700"),
    ("bf16", "bf16", "square", "#9a6700"),
    ("MXFP", "MXFP4, MXFP6, MXFP8", "diamond", "#9a6700"),
)
PANELS = (("nmse", "NMSE of the snapshot"), ("nmse_median", "NMSE, median of tensors"), ("v_mean", "error² / v, mean"))
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 264, 220, 52, 76, 62, 70
X_LOG2, Y_LOG10 = (-3.5, 4.25), {"nmse": (-8, 2), "nmse_median": (-8, 2), "v_mean": (-10, 2)}


def panel(data, snapshot, key, x0, y0):
    axes = Axes(x0, y0, PANEL_WIDTH, PANEL_HEIGHT, X_LOG2, Y_LOG10[key], "g")

    def place(row):
        return axes.place(row["bits"], row[key])

    out = axes.svg()
    for codec, start, _, color, dash in LINES:
        places = [place(row) for row in data.series(snapshot, codec) if row["setting"].startswith(start)]
        points = sorted(p for p in places if p is not None)
        out += curve(points, color, dash)
    for codec, _, shape, color in POINTS:
        places = [place(row) for row in data.rows[snapshot] if row["codec"].startswith(codec)]
        out += [marker(shape, *p, color) for p in places if p is not None]
    return out


def legend(x, y):
    out = []
    for i, (_, _, label, color, dash) in enumerate(LINES):
        at = y + 12.8 * i
        style = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(
            f'<line x1="{x}" x2="{x + 24}" y1="{at:.1f}" y2="{at:.1f}" stroke="{color}" stroke-width="1.5"{style}/>'
        )
        out += [dots([(x + 12, at)], color), text(x + 32, at + 4, label)]
    for i, (_, label, shape, color) in enumerate(POINTS):
        at = y + 12.8 * (len(LINES) + i)
        out += [marker(shape, x + 12, at, color), text(x + 32, at + 4, label)]
    return out


def picture(data):
    width = LEFT + 3 * PANEL_WIDTH + 2 * GAP_X + 44
    height = TOP + len(data.rows) * (PANEL_HEIGHT + GAP_Y)
    title = "Error against bits a value: the dial and other codecs"
    out = svg_head(width, height, title, "Error against bits a value (both logarithmic)")
    legend_is_placed = False
    for row, snapshot in enumerate(data.rows):
        y0 = TOP + row * (PANEL_HEIGHT + GAP_Y)
        out.append(text(16, y0 - 26, snapshot, size=12, more=' font-weight="bold"'))
        for column, (key, label) in enumerate(PANELS):
            x0 = LEFT + column * (PANEL_WIDTH + GAP_X)
            if any(entry[key] is not None for entry in data.rows[snapshot]):
                out.append(text(x0, y0 - 8, label))
                out += panel(data, snapshot, key, x0, y0)
            elif not legend_is_placed:
                out += legend(x0, y0 + 4)
                legend_is_placed = True
    out.append(text(LEFT, height - 26, "bits a value"))
    return "\n".join(out + ["</svg>"]) + "\n"


# ---- page -----------------------------------------------------------------------------------------------------------


PAGE = """# GCOMP: the dial

Bits a value and error of GCOMP from lossless to below one bit, beside other codecs on the same gradients. Made by
`bench/gcomp/results_gcomp`: the measurements are [gcomp-dial.tsv](gcomp-dial.tsv) (`tests/gcomp/results_gcomp_dial.c`,
public API only) and [gcomp-dial-others.tsv](gcomp-dial-others.tsv) (zfp and SZ3 from PyPI);
`bench/gcomp/results_gcomp_dial.py` writes this page and the plot from them. Speed is in [speed.md](speed.md).
Sizes over the steps of a training are in [gcomp-paper.md](gcomp-paper.md).

Every byte of a frame counts. Frames of GCOMP here: fp32, stochastic rounding and preset small where nothing else is
said, chunks of 2^14 values, one encode and decode.

- *NMSE*: squared error over the squared length of the gradient, over the whole snapshot. *per tensor*: the median of
  the same over the tensors (those of zeros alone left out).
- *of v*: squared error against the second moment v' = β2·v / (1 − β2^step) of AdamW (docs/numerics.md section
  2.6): the mean over parameters with v > 0 of error² / v', and the sum of error² over the sum of v'. For unbiased
  rounding that is the share that one encode adds to v where v is about constant. SGD has no v.

## What it shows

- **The tolerance is a dial from 9 or 10 bits to half a bit.** Each bit of t saves 0.5 to 0.9 bit a value down to t =
  12 and less below: 7.4 to 10.0 bits at t = 23, 2.7 to 3.0 at t = 14, 0.9 to 1.1 at t = 10, 0.5 to 0.6 at t = 8.
  Preset fast needs up to 4 % more with a tolerance (less than small below t = 12 at times: its tables are fewer)
  and 2 to 6 % more with a noise limit.
- **The dead zone is what leads below 3 bits.** Without it every value keeps sign and exponent: at t = 8 that is 2.6 to
  4.0 bits, with it 0.5 to 0.6. The error is then larger, too; at t = 23 it makes no difference. Explicit frames stay
  above 5 bits.
- **The tolerance does not promise an NMSE.** Its quanta follow parameters, not gradients. Where gradients are small
  beside their parameters (resnet50-adamw-step0400) NMSE passes 1 between t = 16 and t = 14, while the error is about
  1 / 10,000 of v. NMSE says something about SGD and about codecs that know nothing but the gradient; for Adam read
  the error relative to v.
- **The noise limit bounds what Adam feels**: α² / 4 of v, for every parameter. Measured in the mean over parameters:
  0.2 to 0.3 % at α = 1/4 with 0.5, 0.7 and 1.1 bits, 0.1 % or less at α = 1/8 with 0.8, 1.0 and 1.5 bits. On bertbase
  no other curve needs as few bits at equal noise by that measure from 0.8 bit up.
- **Over the model and per tensor differ.** A few layers hold most of the squared length of a gradient. What has one
  scale for everything (top-k, zfp, SZ3, carried with one quantum) reaches an NMSE of 10^-4 over bertbase, and yet
  loses at least half of its tensors completely: median 1, and an error of 1 % of v and more (SZ3, which predicts
  values from others: 270 times v). Derived frames lie between. Scales per block (int8, int4, carried with a target)
  have about the same NMSE everywhere. THC has, too, but it spreads the error of a block evenly, so that on bertbase
  small values next to large ones get 1.5 times v.
- **Carried frames beat integer blocks at their own error**: 16 % fewer bits than int8 on bertbase and 34 to 51 %
  elsewhere, 21 and 45 to 60 % fewer than int4. *Nearest* is the better rounding for the error of one encode:
  stochastic needs 0.3 to 0.5 bit more for the same error, the price of being unbiased. With quanta from the map,
  blocks of 2^9 at t = 12 need less than derived frames of that t on resnet50-sgdm-step0400 (1.5 against 1.8 bits, a
  sixth of the NMSE) and bertbase (1.5 against 1.8), more on the other two; they bound no parameter.
- **They beat MX formats and FP8, too.** At equal NMSE carried frames, nearest, need 28 to 55 % fewer bits than MXFP4,
  24 to 51 % fewer than MXFP6 (E2M3) and 44 to 63 % fewer than MXFP8 (E4M3); with stochastic rounding, which the
  others lack here, 18 to 46, 16 to 46 and 38 to 59 %. In blocks of 32 the exponents of FP8 are of little use: MXFP8
  (E4M3) errs no less than MXFP6 (E2M3), which has as many mantissa bits, and E5M2 as much as E3M2. FP8 with one scale
  a tensor errs less than MXFP8: scaling by a power of two lets E4M3 saturate at 448 where a block reaches up to 512.
  On bertbase a noise limit of 1/8 adds about as much to v as MXFP8 (E4M3), with 1.5 bits.
- **If NMSE over the model is all that counts, one quantum for everything is best**: at int8's error 1 to 4 bits.
- **Larger blocks** go in that direction. At equal NMSE blocks of 2^12 need fewer bits than the default of 2^9 on all
  four snapshots: 2 to 11 % at int8's error, 9 to 25 % at int4's, 5 to 13 % with quanta from the map at t = 12, with
  a median NMSE of the tensors of 0.5 to 1.3 times that of 2^9. The price is noise where a block holds layers of
  different size: on bertbase, at int8's error, 2^12 multiplies by 2.6 and 2^14 by 5.5 the mean of error² / v. Three
  snapshots have the first values of every tensor, so that a block of 2^12 covers many tensors; the contiguous one has
  whole tensors.
- **Where others are better.** At equal NMSE over the model SZ3 is smaller than one quantum in places below one bit
  (0.16 against 0.29 bit on resnet50-sgdm-step0400, 0.69 against 0.79 on the contiguous snapshot), and larger
  elsewhere. Top-k with 1 % is smaller than carried frames with a target per block at equal NMSE over the model (0.40
  against 1.0 to 2.5 bits), with 10 % only on bertbase; it is larger than carried frames with one quantum.
  TernGrad and QSGD with 1 and 4 levels have 0.1 to 0.7 bit without any header, at an NMSE above 1.

![Error against bits a value](gcomp-dial.svg)

## Tolerance and noise limit

Derived, stochastic, dead zone, preset small. *(at most)*: the goal that was set. *of fp32*, *of bf16*: share of the
bytes.

{dial}
## Without dead zone, and explicit

Stochastic, preset small, by tolerance. Explicit frames cut in steps of 6 bits.

{no_cut}
## Carried frames at the error of integer blocks

The target NMSE of carried frames (blocks of 2^9, preset small, dead zone) is searched until the error over the
snapshot is at most that of int8 or int4 in blocks of 256 scaled by their largest value, rounded to nearest, 8.125 and
4.125 bits. *per tensor* and *of v, mean* are those of the peer and of carried, nearest.

{equal}
## MX formats and FP8

Beside derived frames (stochastic, dead zone, preset small) by tolerance and noise limit. *carried*: bits that carried
frames with a target need for the NMSE of the row, straight in the logarithm of the error between the targets that
were measured; none above an NMSE of 1.

{mx}
## Carried frames by block

*map*: quanta from the median of the map bytes of a block, stochastic; bits and error² / v at t = 12, and bits at the
NMSE that blocks of 2^9 have at t = 12 (between t = 10 and 14, straight in the logarithm of the error; extrapolated
outside). *target*: bits at the error of int8 or int4, nearest, as in the table before, and the median over tensors of
the error reached. Bisection ends at most at the error asked for. Blocks of 2^9 reach 0.79 to 1.00 of it; those of
2^14, one a chunk, whose quanta are powers of two, 0.43 to 0.96.

{block}
## Other codecs

Sizes without headers or codes of their own are those that an ideal coder would need:

- int8, int4: blocks of 256, one fp32 scale each, so that the largest value is 127 or 7.
- QSGD: buckets of 512, scaled by their norm to 1, 4, 16 levels; entropy of the signed levels of each 2^14 values.
- TernGrad: the largest value of each tensor; entropy of each tensor.
- top-k: the largest 1 % or 10 % of the snapshot as fp32, log2(n / k) + 1.44 bits an index; no error feedback.
- MXFP4, MXFP6, MXFP8: the OCP Microscaling Formats v1.0, blocks of 32 over the snapshot with an E8M0 scale each: the
  largest power of two at most the largest value of the block, over that of the format. Nearest, ties to even,
  saturating.
- fp8: one fp32 scale a tensor, so that its largest value is the largest of the format; nearest. bf16: nearest.
- THC: 4 bits, one worker, the recommended options; the whole frame of indices and norms. Its sums travel in 8 bits.
- zfp (zfpy 1.0.1): one dimension, fixed accuracy; SZ3 (pysz 1.1.0): one dimension, absolute bound, default algorithm.
  The bound is a power of two times the root mean square of the snapshot. Both streams count whole.
- carried, one quantum: GCOMP's frames with one quantum for the whole snapshot, given by the caller; nearest.

{peers}
## Limits

Four snapshots, one step each, and one encode of one rank: hops and sums of ranks add as docs/numerics.md section 6
says. Three snapshots have the first values of every tensor: small tensors weigh more in them than in a whole model,
and blocks and chunks meet more borders of tensors; that is neutral for derived frames and to the disadvantage of what
shares a scale. In bertbase embedding rows that the batch did not use are zero. Whether an error matters to training
is not decided by any of these columns.
"""


def page(data):
    dial = "".join(f"### {snapshot}\n\n{dial_table(data, snapshot)}\n" for snapshot in data.rows)[:-1]
    peers = "".join(f"### Others on {snapshot}\n\n{peer_table(data, snapshot)}\n" for snapshot in data.rows)[:-1]
    return PAGE.format(
        dial=dial,
        no_cut=no_cut_table(data),
        equal=equal_table(data),
        mx=mx_table(data),
        block=block_table(data),
        peers=peers,
    )


def main():
    if sys.argv[1:2] == ["--others"]:
        others(sys.argv[2:])
        return 0
    data = Data()
    pages = {os.path.join(RESULTS, "gcomp-dial.md"): page(data), os.path.join(RESULTS, "gcomp-dial.svg"): picture(data)}
    return write_or_compare(pages, sys.argv[1:] == ["--write"], "bench/gcomp/results_gcomp_dial.py")


if __name__ == "__main__":
    sys.exit(main())
