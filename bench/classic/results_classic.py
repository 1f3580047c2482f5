#!/usr/bin/env python3
"""docs/results/classic.md and its plot, from docs/results/classic.tsv, classic-speed.tsv and gcomp-dial.tsv.

    bench/classic/results_classic.py            says whether page and plot are those of the tables
    bench/classic/results_classic.py --write    writes them
    bench/classic/results_classic.py --measure CLASSIC_CALLS SNAPSHOT.json...
                                                prints classic.tsv (needs NumPy)
    bench/classic/results_classic.py --speed BENCH.json TORCH.tsv
                                                prints classic-speed.tsv

bench/classic/results_classic runs all of it.
"""

import csv
import json
import math
import os
import statistics
import sys

from results_classic_page import PAGE

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from result_pages import (  # noqa: E402
    RESULTS,
    ROOT,
    Axes,
    backends,
    curve,
    marker,
    show,
    svg_head,
    table,
    text,
    write_or_compare,
)

COLUMNS = ("snapshot", "scheme", "setting", "bits", "position_bits", "nmse", "nmse_median", "cosine")
SHARES = (("0.1 %", 0.001), ("1 %", 0.01), ("10 %", 0.1))
VALUES = ("fp32", "fp16", "gcomp")
CODINGS = ("packed", "mask", "elias")

# Least share of memcpy of encode, by way, for these two.
GOAL_BACKENDS = ("avx512", "avx2")
GOALS = {
    "signsgd": (0.9, 0.7),
    "qsgd4": (0.5, 0.3),
    "qsgd4_packed": (0.5, 0.3),
    "terngrad": (0.5, 0.3),
    "terngrad_b512": (0.5, 0.3),
    "topk_1": (0.6, 0.4),
}

# ---- measuring ------------------------------------------------------------------------------------------------------


def ways():
    """(scheme, setting, options, share of values sent)"""
    yield "fp16", "-", {}, 0
    yield "bf16", "-", {}, 0
    for label, share in SHARES:
        for number, values in enumerate(VALUES):
            yield "topk", f"{label} {values}", {"error_feedback": 0, "values": number}, share
    yield "dgc", "1 % fp32", {}, 0.01
    for label, share in SHARES:
        yield "randk", f"{label} unbiased", {}, share
        yield "randk", f"{label} biased", {"unbiased": 0}, share
    for scheme in ("signsgd", "signum", "efsignsgd"):
        yield scheme, "-", {}, 0
    for length in (0, 4096, 512, 64):
        yield "onebit", f"column={length}", {"block_len": length}, 0
    for levels in (1, 4, 16, 64, 127):
        for number, coding in enumerate(CODINGS):
            yield "qsgd", f"l2 s={levels} {coding}", {"level_max": levels, "coding": number}, 0
    for levels in (1, 4, 16, 64, 127):
        for number, coding in enumerate(CODINGS[:2]):
            yield "qsgd", f"max s={levels} {coding}", {"level_max": levels, "norm": 1, "coding": number}, 0
    for length in (0, 4096, 512, 64):
        for clip in (2.5, 0):
            for number, coding in enumerate(CODINGS[:2]):
                options = {"block_len": length, "clip": clip, "coding": number}
                yield "terngrad", f"block={length} clip={clip} {coding}", options, 0


def measure(program, paths):
    sys.path.insert(0, os.path.join(ROOT, "tests/classic/models"))
    import numpy as np
    from classic_calls import Calls, Frame

    calls = Calls(program)
    print("\t".join(COLUMNS))
    for path in paths:
        stem = path.removesuffix(".json")
        with open(path, encoding="utf-8") as f:
            about = json.load(f)
        x = np.load(stem + "-grad.npy").astype(np.float32)
        exact = x.astype(np.float64)
        ends = np.cumsum([t["taken"] for t in about["tensors"]])[:-1]
        squares = exact**2
        position_bits = {}
        for scheme, setting, changes, share in ways():
            if "clip" in changes:
                changes = changes | {"clip": np.float32(changes["clip"])}
            options = calls.options(scheme, seed=1, **changes)
            keep_len = max(1, math.ceil(x.size * share)) if share else 0
            frame = calls.encode(options, x, keep_len=keep_len, round=1)[0]
            y = calls.decode(frame).astype(np.float64)
            cosine = float(exact @ y / math.sqrt(squares.sum() * (y @ y))) if y.any() else 0.0
            if scheme in ("signsgd", "signum"):
                y *= (exact @ y) / (y @ y)  # signs have no length: that of the least error
            error = (y - exact) ** 2
            parts = zip(np.split(error, ends), np.split(squares, ends))
            median = statistics.median(e.sum() / s.sum() for e, s in parts if s.any())
            positions = "-"
            if scheme in ("topk", "dgc"):
                if options["values"] == 0:
                    position_bits[share] = 8 * (Frame(frame).payload_size - 4 * keep_len) / x.size
                positions = f"{position_bits[share]:.4f}"
            bits = 8 * len(frame) / x.size
            cells = [f"{bits:.4f}", positions, f"{error.sum() / squares.sum():.4g}", f"{median:.4g}", f"{cosine:.5f}"]
            print("\t".join([os.path.basename(stem), scheme, setting, *cells]), flush=True)
    calls.close()


def speed(bench, torch):
    with open(bench, encoding="utf-8") as f:
        report = json.load(f)
    context = report["context"]
    print("call\tbackend\tway\tvs_memcpy\tp10\tp90\tbits")
    print(f"# {context['cpu']}; {context['compiler']}; load {context['load_avg'][0]:.2f}; {context['data']}")
    for record in report["benchmarks"]:
        if record.get("error_occurred"):
            sys.exit(f"{record['name']}: {record['error_message']}")
        call, backend, _, way = record["name"].split("/")[:4]
        cells = [f"{record[key]:.3f}" for key in ("vs_memcpy", "vs_memcpy_p10", "vs_memcpy_p90", "bits_per_value")]
        print("\t".join([call.removeprefix("classic_"), backend, way, *cells]))
    with open(torch, encoding="utf-8") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            print("\t".join([row["call"], "torch", row["way"], f"{float(row['vs_memcpy']):.3f}", "-", "-", "-"]))


# ---- tables ---------------------------------------------------------------------------------------------------------


class Data:
    def __init__(self):
        self.rows, self.dial, self.speed = {}, {}, {}
        for row in self.read("classic.tsv"):
            for key in COLUMNS[3:]:
                row[key] = None if row[key] == "-" else float(row[key])
            self.rows.setdefault(row["snapshot"], []).append(row)
        for row in self.read("gcomp-dial.tsv"):
            row = row | {key: float(row[key]) for key in ("bits", "nmse", "nmse_median")}
            self.dial.setdefault(row["snapshot"], []).append(row)
        self.machine = ""
        for row in self.read("classic-speed.tsv"):
            if row["call"].startswith("#"):
                self.machine = row["call"][2:]
            else:
                self.speed[row["call"], row["backend"], row["way"]] = row["vs_memcpy"]

    @staticmethod
    def read(name):
        with open(os.path.join(RESULTS, name), encoding="utf-8") as f:
            return list(csv.DictReader(f, delimiter="\t"))

    def one(self, snapshot, scheme, setting):
        return next(r for r in self.rows[snapshot] if r["scheme"] == scheme and r["setting"] == setting)

    def series(self, snapshot, scheme, start, end=""):
        rows = [r for r in self.rows[snapshot] if r["scheme"] == scheme]
        return [r for r in rows if r["setting"].startswith(start) and r["setting"].endswith(end)]


def is_shown(row):
    """Other codings of the same levels are in a table of their own."""
    return row["scheme"] not in ("qsgd", "terngrad") or row["setting"].endswith("mask")


def error_table(data, snapshot):
    rows = []
    for row in data.rows[snapshot]:
        if is_shown(row):
            positions = "" if row["position_bits"] is None else f"{row['position_bits']:.3f}"
            setting = "" if row["setting"] == "-" else ", " + row["setting"]
            cells = [f"{row['bits']:.3f}", positions, show(row["nmse"]), show(row["nmse_median"])]
            rows.append([row["scheme"].upper() + setting, *cells, f"{row['cosine']:.4f}"])
    for row in data.dial[snapshot]:
        if row["codec"] in ("derived", "THC") or (row["codec"], row["setting"]) in CARRIED:
            name = {"derived": "GCOMP", "THC": "THC"}.get(row["codec"], "GCOMP, " + row["codec"])
            cells = [f"{row['bits']:.3f}", "", show(row["nmse"]), show(row["nmse_median"]), ""]
            rows.append([f"*{name}, {row['setting']}*", *cells])
    return table(["scheme", "bits a value", "of positions", "NMSE", "per tensor", "cosine"], rows)


CARRIED = {("carried nearest", f"nmse={goal}") for goal in ("0.0001", "0.001", "0.01", "0.1", "1")}


def coding_table(data):
    rows = []
    for snapshot in data.rows:
        for scheme, start, codings in (
            *(("qsgd", f"l2 s={s}", CODINGS) for s in (1, 4, 16, 64, 127)),
            *(("qsgd", f"max s={s}", CODINGS[:2]) for s in (1, 4, 16, 64, 127)),
            *(("terngrad", f"block={length} clip=2.5", CODINGS[:2]) for length in (0, 512, 64)),
        ):
            bits = [f"{data.one(snapshot, scheme, f'{start} {coding}')['bits']:.3f}" for coding in codings]
            rows.append([snapshot, f"{scheme.upper()} {start}", *bits, *[""] * (3 - len(bits))])
    return table(["snapshot", "levels", *CODINGS], rows)


def share(data, *key):
    return data.speed.get(key, "")


def against(value, goal):
    return (
        value
        if goal is None or value == ""
        else f"{value} (at least {goal}{'' if float(value) >= goal else ', **missed**'})"
    )


def speed_table(data):
    measured = {backend for _, backend, _ in data.speed}
    used = [(name, title) for name, title in reversed(backends.cpu()) if name in measured]
    columns = [name for name, _ in used] + ["torch"]
    rows = []
    for way in dict.fromkeys(way for call, _, way in data.speed if call == "encode"):
        goals = dict(zip(GOAL_BACKENDS, GOALS.get(way, ())))
        cells = [against(share(data, "encode", name, way), goals.get(name)) for name in columns]
        cells += [share(data, "decode", name, way) for name in columns]
        cells += [share(data, "decode_add", name, way) for name in columns[:-1]]
        rows.append([way, *cells])
    titles = [title for _, title in used] + ["torch"]
    head = ["way"]
    for call, names in (("encode", titles), ("decode", titles), ("decode_add", titles[:-1])):
        head += [f"{call}: {names[0]}", *names[1:]]
    return table(head, rows)


# ---- plot -----------------------------------------------------------------------------------------------------------

LINES = (  # scheme, start and end of its settings, label, color, dash
    ("topk", "", "fp32", "TOPK 0.1, 1, 10 %, fp32", "#57606a", ""),
    ("topk", "", "gcomp", "TOPK, GCOMP's levels", "#57606a", "2 3"),
    ("qsgd", "l2", "mask", "QSGD, L2 norm, s = 1..127, mask", "#d1492e", ""),
    ("qsgd", "max", "mask", "QSGD, maximum, s = 1..127, mask", "#d1492e", "2 3"),
    ("terngrad", "block", "clip=2.5 mask", "TERNGRAD, blocks of all to 64, mask", "#c08a00", ""),
    ("onebit", "", "", "ONEBIT, columns of all to 64", "#2f6fd0", ""),
    ("randk", "", " biased", "RANDK 0.1, 1, 10 %, not unbiased", "#8c959f", ""),
)
DIAL_LINES = (
    ("derived", "t", "GCOMP, by tolerance", "#0b6e75", ""),
    ("derived", "alpha", "GCOMP, by noise limit", "#0b6e75", "6 3"),
    ("carried nearest", "", "GCOMP, carried, target NMSE", "#7b3fa0", ""),
)
POINTS = (
    ("efsignsgd", "EFSIGNSGD", "up", "#1f2328"),
    ("signsgd", "SIGNSGD, best scale", "down", "#1f2328"),
    ("fp16", "FP16", "square", "#9a6700"),
    ("bf16", "BF16", "diamond", "#9a6700"),
)
WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 400, 280, 56, 70, 72, 72
X_LOG2, Y_LOG10 = (-5, 4.5), (-8, 2)


def panel(data, snapshot, x0, y0):
    axes = Axes(x0, y0, WIDTH, HEIGHT, X_LOG2, Y_LOG10, ".3g")

    def place(row):
        return axes.place(row["bits"], row["nmse"])

    def line(rows, color, dash):
        return curve([p for p in map(place, rows) if p is not None], color, dash)

    out = axes.svg()
    for scheme, start, end, _, color, dash in LINES:
        out += line(data.series(snapshot, scheme, start, end), color, dash)
    for codec, start, _, color, dash in DIAL_LINES:
        rows = [r for r in data.dial[snapshot] if r["codec"] == codec and r["setting"].startswith(start)]
        out += line(sorted(rows, key=lambda r: r["bits"]), color, dash)
    for scheme, _, shape, color in POINTS:
        at = place(data.one(snapshot, scheme, "-"))
        out += [marker(shape, *at, color)] if at is not None else []
    thc = place(next(r for r in data.dial[snapshot] if r["codec"] == "THC"))
    return out + ([marker("up", *thc, "#1a7f37")] if thc is not None else [])


def picture(data):
    snapshots = list(data.rows)
    rows = (len(snapshots) + 1) // 2
    labels = [(label, color, dash, "") for *_, label, color, dash in LINES + DIAL_LINES]
    labels += [(label, color, "", shape) for _, label, shape, color in POINTS] + [("THC, 4 bits", "#1a7f37", "", "up")]
    width = LEFT + 2 * WIDTH + GAP_X + 32
    height = TOP + rows * (HEIGHT + GAP_Y) + 16 * ((len(labels) + 2) // 3)
    title = "NMSE against bits a value: classic codecs, GCOMP and THC"
    out = svg_head(width, height, title, "NMSE against bits a value (both logarithmic)")
    for i, snapshot in enumerate(snapshots):
        x0, y0 = LEFT + i % 2 * (WIDTH + GAP_X), TOP + i // 2 * (HEIGHT + GAP_Y)
        out.append(text(x0, y0 - 10, snapshot, size=12, more=' font-weight="bold"'))
        out += panel(data, snapshot, x0, y0)
    for i, (label, color, dash, shape) in enumerate(labels):
        x, y = 24 + i % 3 * 300, TOP + rows * (HEIGHT + GAP_Y) - 12 + 16 * (i // 3)
        style = f' stroke-dasharray="{dash}"' if dash else ""
        if shape:
            out.append(marker(shape, x + 12, y, color))
        else:
            out.append(f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="1.5"{style}/>')
        out.append(text(x + 32, y + 4, label))
    return "\n".join(out + ["</svg>"]) + "\n"


def page(data):
    errors = "\n".join(f"### {snapshot}\n\n{error_table(data, snapshot)}" for snapshot in data.rows)
    memset = share(data, "clear", "memset", "none")
    parts = {"errors": errors, "codings": coding_table(data), "speed": speed_table(data)}
    out = PAGE
    for name, content in parts.items():
        out = out.replace(f"{{{name}}}\n", content)
    return out.replace("{machine}", data.machine).replace("{memset}", memset)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--measure"]:
        measure(arguments[1], arguments[2:])
        return 0
    if arguments[:1] == ["--speed"]:
        speed(*arguments[1:])
        return 0
    data = Data()
    pages = {os.path.join(RESULTS, "classic.md"): page(data), os.path.join(RESULTS, "classic.svg"): picture(data)}
    return write_or_compare(pages, arguments == ["--write"], "bench/classic/results_classic.py")


if __name__ == "__main__":
    sys.exit(main())
