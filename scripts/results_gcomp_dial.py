#!/usr/bin/env python3
"""docs/results/gcomp-dial.md and its plot, from docs/results/gcomp-dial.tsv and gcomp-dial-others.tsv.

    scripts/results_gcomp_dial.py            says whether page and plot are those of the tables
    scripts/results_gcomp_dial.py --write    writes them
    scripts/results_gcomp_dial.py --others SNAPSHOT.json...
                                             prints the rows of zfp and SZ3 (pip install zfpy==1.0.1 pysz==1.1.0 numpy)

scripts/results_gcomp runs all of it.
"""

import csv
import json
import math
import os
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "docs/results")
COLUMNS = ("snapshot", "codec", "setting", "bits", "nmse", "nmse_median", "v_mean", "v_total")

# Most bits a value that derived, stochastic frames with deep cuts (preset small) may need.
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


def show(value):
    return "-" if value is None else f"{value:.2g}" if value >= 0.01 else f"{value:.1e}".replace("e-0", "e-")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


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
        rows.append([label, against(bits, goal), f"{bits / 0.32:.1f} %", f"{bits / 0.16:.1f} %", f"{fast:.2f}", *errors(row)])
    head = ["limit", "bits a value", "of fp32", "of bf16", "preset fast", "NMSE", "per tensor", "of v, mean", "of v, total"]
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
    for name in ("deep cut", "no deep cut", "explicit"):
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
    """Bits at an error by interpolation of (error, bits), straight in the logarithm; outside, the nearest piece goes on."""
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


PEERS = ("bf16", "fp8 e4m3", "fp8 e5m2", "int8", "int4", "THC", "QSGD", "TernGrad", "top-k", "zfp", "SZ3")


def peer_table(data, snapshot):
    rows = []
    for codec in PEERS + ("one quantum",):
        for row in data.series(snapshot, codec):
            setting = "" if row["setting"] == "-" else ", " + row["setting"]
            rows.append([("carried, " if codec == "one quantum" else "") + codec + setting, f"{row['bits']:.2f}", *errors(row)])
    return table(["codec", "bits a value", "NMSE", "per tensor", "of v, mean", "of v, total"], rows)


# ---- plot -----------------------------------------------------------------------------------------------------------

LINES = (  # codec, label, color, dash
    ("derived t", "derived, by tolerance, deep cut", "#0b6e75", ""),
    ("derived alpha", "derived, by noise limit, deep cut", "#d1492e", ""),
    ("derived no cut", "derived, no deep cut", "#0b6e75", "2 3"),
    ("carried stochastic", "carried, target NMSE, stochastic", "#7b3fa0", ""),
    ("carried nearest", "carried, target NMSE, nearest", "#7b3fa0", "2 3"),
    ("one quantum", "carried, one quantum, nearest", "#c08a00", ""),
    ("QSGD", "QSGD 1, 4, 16 levels, entropy", "#57606a", ""),
    ("zfp", "zfp, fixed accuracy", "#8c959f", "6 3"),
    ("SZ3", "SZ3, absolute bound", "#2f6fd0", "6 3"),
    ("top-k", "top-k 1 %, 10 %", "#57606a", "2 3"),
)
POINTS = (  # codec, label, shape, color
    ("int8", "int8 in blocks of 256, nearest, stochastic", "square", "#1f2328"),
    ("int4", "int4 in blocks of 256, nearest, stochastic", "diamond", "#1f2328"),
    ("THC", "THC, 4 bits", "up", "#1a7f37"),
    ("TernGrad", "TernGrad, entropy", "down", "#57606a"),
    ("fp8 e4m3", "fp8 e4m3", "up", "#9a6700"),
    ("fp8 e5m2", "fp8 e5m2", "down", "#9a6700"),
    ("bf16", "bf16", "square", "#9a6700"),
)
PANELS = (("nmse", "NMSE of the snapshot"), ("nmse_median", "NMSE, median of tensors"), ("v_mean", "error² / v, mean"))
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 264, 220, 52, 66, 62, 62
X_LOG2, Y_LOG10 = (-3.5, 4.25), {"nmse": (-8, 2), "nmse_median": (-8, 2), "v_mean": (-10, 2)}


def marker(shape, x, y, color):
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{color}"/>'
    corners = {
        "square": ((-3, -3), (3, -3), (3, 3), (-3, 3)),
        "diamond": ((0, -4.5), (4.5, 0), (0, 4.5), (-4.5, 0)),
        "up": ((0, -4), (4, 3), (-4, 3)),
        "down": ((0, 4), (4, -3), (-4, -3)),
    }[shape]
    return '<polygon points="' + " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners) + f'" fill="{color}"/>'


def text(x, y, content, anchor="start", size=11, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{content}</text>'


def panel(data, snapshot, key, x0, y0):
    """What lies outside the axes is left out."""
    low, high = Y_LOG10[key]

    def place(row):
        if not row[key]:
            return None
        x = (math.log2(row["bits"]) - X_LOG2[0]) / (X_LOG2[1] - X_LOG2[0])
        y = (high - math.log10(row[key])) / (high - low)
        return (x0 + x * PANEL_WIDTH, y0 + y * PANEL_HEIGHT) if 0 <= x <= 1 and 0 <= y <= 1 else None

    out = []
    for e in range(low, high + 1, 2):
        y = y0 + (high - e) / (high - low) * PANEL_HEIGHT
        out.append(f'<line x1="{x0}" x2="{x0 + PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e7eb"/>')
        out.append(text(x0 - 6, y + 4, f"1e{e}", "end"))
    for e in range(math.ceil(X_LOG2[0]), math.floor(X_LOG2[1]) + 1):
        x = x0 + (e - X_LOG2[0]) / (X_LOG2[1] - X_LOG2[0]) * PANEL_WIDTH
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y0}" y2="{y0 + PANEL_HEIGHT}" stroke="#e3e7eb"/>')
        out.append(text(x, y0 + PANEL_HEIGHT + 14, f"{2.0**e:g}", "middle"))
    for codec, _, color, dash in LINES:
        name, _, kind = codec.partition(" ") if codec in ("derived t", "derived alpha") else (codec, "", "")
        places = [place(row) for row in data.series(snapshot, name) if row["setting"].startswith(kind)]
        points = sorted(p for p in places if p is not None)
        style = f' stroke-dasharray="{dash}"' if dash else ""
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{style} points="{line}"/>')
        out += [marker("circle", *p, color) for p in points]
    for codec, _, shape, color in POINTS:
        places = [place(row) for row in data.series(snapshot, codec)]
        out += [marker(shape, *p, color) for p in places if p is not None]
    return out


def legend(x, y):
    out = []
    for i, (_, label, color, dash) in enumerate(LINES):
        at = y + 12.8 * i
        style = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<line x1="{x}" x2="{x + 24}" y1="{at:.1f}" y2="{at:.1f}" stroke="{color}" stroke-width="1.5"{style}/>')
        out += [marker("circle", x + 12, at, color), text(x + 32, at + 4, label)]
    for i, (_, label, shape, color) in enumerate(POINTS):
        at = y + 12.8 * (len(LINES) + i)
        out += [marker(shape, x + 12, at, color), text(x + 32, at + 4, label)]
    return out


def picture(data):
    width = LEFT + 3 * PANEL_WIDTH + 2 * GAP_X + 16
    height = TOP + len(data.rows) * (PANEL_HEIGHT + GAP_Y)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" fill="#1f2328">',
        "<title>Error against bits a value: the dial and other codecs</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(16, 26, "Error against bits a value (both logarithmic)", size=15, more=' font-weight="bold"'),
    ]
    legend_is_placed = False
    for row, snapshot in enumerate(data.rows):
        y0 = TOP + row * (PANEL_HEIGHT + GAP_Y)
        for column, (key, label) in enumerate(PANELS):
            x0 = LEFT + column * (PANEL_WIDTH + GAP_X)
            if any(entry[key] is not None for entry in data.rows[snapshot]):
                out.append(text(x0, y0 - 8, f"{snapshot}: {label}" if column == 0 else label))
                out += panel(data, snapshot, key, x0, y0)
            elif not legend_is_placed:
                out += legend(x0, y0 + 4)
                legend_is_placed = True
    out.append(text(LEFT, height - 14, "bits a value; every byte counts"))
    return "\n".join(out + ["</svg>"]) + "\n"


# ---- page -----------------------------------------------------------------------------------------------------------


def page(data):
    with open(os.path.join(RESULTS, "gcomp-dial.md.in"), encoding="utf-8") as f:
        text_of_page = f.read()
    dials = "".join(f"### {snapshot}\n\n{dial_table(data, snapshot)}\n" for snapshot in data.rows)
    peers = "".join(f"### {snapshot}, others\n\n{peer_table(data, snapshot)}\n" for snapshot in data.rows)
    return text_of_page


def main():
    if sys.argv[1:2] == ["--others"]:
        others(sys.argv[2:])
        return 0
    data = Data()
    same = True
    for name, content in (("gcomp-dial.md", page(data)), ("gcomp-dial.svg", picture(data))):
        path = os.path.join(RESULTS, name)
        if sys.argv[1:] == ["--write"]:
            with open(path, "w", encoding="utf-8") as f:
                f.write(content)
            continue
        with open(path, encoding="utf-8") as f:
            if f.read() != content:
                print(f"docs/results/{name} is not that of the tables; run scripts/results_gcomp_dial.py --write")
                same = False
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
