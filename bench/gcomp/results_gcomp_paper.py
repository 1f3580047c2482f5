#!/usr/bin/env python3
"""docs/results/gcomp-paper.md and its picture, from the tables docs/results/gcomp-paper-*.tsv.

    bench/gcomp/results_gcomp_paper.py            says whether page and picture are those of the tables
    bench/gcomp/results_gcomp_paper.py --write    writes them

bench/gcomp/paper_measure.py and paper_links.py measure the tables.
"""

import csv
import math
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from result_pages import RESULTS, show, svg_head, table, text, write_or_compare  # noqa: E402

MISSING = "not available here"
SCHEMES = {  # column of the table of rates: label
    "published": "published scheme",
    "lossless": "lossless",
    "cut 18": "cut 18",
    "explicit 23": "explicit, t = 23",
    "explicit 23 small": "the same, small",
    "derived 23 step 6": "derived, t = 23, step 6",
    "derived 23": "derived, t = 23",
    "derived 14": "derived, t = 14",
    "derived 14 small": "the same, small",
    "derived 12": "derived, t = 12",
    "derived 12 small": "the same, small",
}
BOOKED = {"explicit 23": "explicit, t = 23", "derived 14": "derived, t = 14"}
AGES = {
    "own": "one codebook, of these values",
    "renewed": "renewed every 50 steps",
    "static first": "of step 0",
    "static late": "of step 100",
}
STEPS = (0, 100, 200, 500, 1000)
SPANS = ((10, 50), (110, 500), (510, 1000))  # steps over which sizes with codebooks are averaged
WAYS = {
    "fp32, opposite order": "fp32, sum in the opposite order",
    "metric, truncate": "metric, t = 23, explicit, truncation",
    "metric, nearest": "metric, t = 23, explicit, nearest",
    "derived 14": "derived, t = 14, dead zone, stochastic",
    "derived 12": "derived, t = 12, dead zone, stochastic",
    "cut 18": "18 bits cut from every value, truncation",
    "cut 18, every 8th step exact": "the same, every 8th step fp32",
    "every 8th step": "parameters averaged every 8th step, nothing between",
}
WINDOW = 8  # steps of a mean loss in the table of losses
LATE_WINDOWS = 8
LINKS = {"100mbit": "100 Mb/s", "1gbit": "1 Gb/s", "10gbit": "10 Gb/s"}
GLOO = "fp32, Gloo"

# ---- tables ---------------------------------------------------------------------------------------------------------


def read(name):
    path = os.path.join(RESULTS, f"gcomp-paper-{name}.tsv")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [{key: number(cell) for key, cell in row.items()} for row in csv.DictReader(f, delimiter="\t")]


def number(cell):
    if cell == "-":
        return None
    try:
        return float(cell)
    except ValueError:
        return cell


def share(bits):
    return f"{bits / 0.32:.1f}"


def unique(rows, key):
    return list(dict.fromkeys(row[key] for row in rows))


def mean(rows, key):
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.fmean(values) if values else None


class Data:
    def __init__(self):
        names = ("rate", "cut", "crossed", "loss", "wire", "links")
        self.rate, self.cut, self.crossed, self.loss, self.wire, self.links = map(read, names)

    def rates(self, task, source="local"):
        return [row for row in self.rate if row["task"] == task and row["source"] == source]

    def losses(self, task):
        """{seed: {way: row}} with the losses of windows as lists."""
        found = {}
        for row in self.loss:
            if row["task"] == task:
                training = [float(cell) for cell in row["training"].split()]
                found.setdefault(row["seed"], {})[row["way"]] = row | {"training": training}
        return found


def rate_table(data):
    rows = []
    for task in unique(data.rate, "task"):
        for source in ("local", "sum"):
            samples = data.rates(task, source)
            at = {row["step"]: row for row in samples}
            for scheme, label in SCHEMES.items() if samples else ():
                cells = [share(at[step][scheme]) if step in at else "-" for step in STEPS]
                low, high = (f(row[scheme] for row in samples) for f in (min, max))
                mean_of = statistics.fmean(row[scheme] for row in samples)
                rows.append([task, source, label, *cells, share(mean_of), f"{share(low)} to {share(high)}"])
    head = ["task", "values", "scheme", *(f"step {step}" for step in STEPS), "mean", "range"]
    return table(head, rows)


def age_table(data):
    rows = []
    for task in unique(data.rate, "task"):
        for codec, label in BOOKED.items():
            for first, last in SPANS:
                samples = [row for row in data.rates(task) if first <= row["step"] <= last]
                if not samples:
                    continue
                fresh = mean(samples, codec)
                cells = [task, label, f"{first} to {last}", f"{fresh:.3f}", f"{mean(samples, codec + ' small'):.3f}"]
                for age in AGES:
                    bits = mean(samples, f"{codec}, {age}")
                    cells.append("-" if bits is None else f"{bits:.3f} ({100 * (bits / fresh - 1):+.1f} %)")
                rows.append(cells)
    head = ["task", "frames", "steps", "fresh, fast", "fresh, small", *AGES.values()]
    return table(head, rows)


def crossed_table(data, codec):
    rows_of = [row for row in data.crossed if row["codec"] == codec]
    names = unique(rows_of, "values")
    bits = {(row["values"], row["codebook"]): row["bits"] for row in rows_of}
    rows = []
    for values in names:
        own = bits[values, values]
        cells = [values, f"{own:.2f}"]
        cells += [f"{100 * (bits[values, f'preset {p}'] / own - 1):+.1f}" for p in ("fast", "small")]
        cells += ["" if source == values else f"{100 * (bits[values, source] / own - 1):+.1f}" for source in names]
        rows.append(cells)
    return table(["values of", "own codebook: bits", "fresh, fast", "fresh, small", *names], rows)


def cut_table(data):
    rows = []
    for task in unique(data.cut, "task"):
        samples = [row for row in data.cut if row["task"] == task and row["step"] > 0]
        for way in unique(samples, "way"):
            own = [row for row in samples if row["way"] == way]
            bits, worst = mean(own, "bits"), [row["worst"] for row in own if row["worst"] is not None]
            cells = [task, way, f"{mean(own, 'published'):.2f}", "-" if bits is None else f"{bits:.2f}"]
            rows.append([*cells, show(mean(own, "nmse")), f"2^{max(worst):.1f}" if worst else "0"])
    head = ["task", "mantissas", "published coding: bits", "frames: bits", "NMSE", "worst move of a parameter"]
    return table(head, rows)


def deviations(seeds, way):
    """Loss less that of fp32 in every window, for each seed that has the way."""
    both = [(found[way]["training"], found["fp32"]["training"]) for found in seeds.values() if way in found]
    return [[a - b for a, b in zip(mine, plain)] for mine, plain in both]


def loss_table(data):
    rows = []
    for task in unique(data.loss, "task"):
        seeds = data.losses(task)
        plain = [found["fp32"] for found in seeds.values()]
        end = statistics.fmean(statistics.fmean(row["training"][-LATE_WINDOWS:]) for row in plain)
        check = statistics.fmean(row["validation"] for row in plain)
        rows.append([task, "fp32", len(plain), "100.0", "-", f"loss {end:.4f}", f"loss {check:.4f}"])
        for way, label in WAYS.items():
            found = deviations(seeds, way)
            if not found:
                continue
            own = [(runs[way], runs["fp32"]) for runs in seeds.values() if way in runs]
            size = statistics.fmean(statistics.fmean(map(abs, run)) for run in found)
            late = [statistics.fmean(run[-LATE_WINDOWS:]) for run in found]
            checks = [mine["validation"] - fp32["validation"] for mine, fp32 in own]
            sent = 100 * statistics.fmean(mine["sent"] for mine, _ in own)
            cells = [f"{size:.4f}", spread(late), spread(checks)]
            rows.append([task, label, len(found), f"{sent:.1f}", *cells])
    head = ["task", "way", "seeds", "bytes, % of fp32", "mean deviation", "training, last 64 steps", "validation, end"]
    return table(head, rows)


def spread(values):
    """Mean, and the seeds where there are several."""
    each = f" ({', '.join(f'{value:+.4f}' for value in values)})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):+.4f}{each}"


def wire_table(data):
    rows = []
    for name in unique(data.wire, "values"):
        for row in (row for row in data.wire if row["values"] == name):
            times = [row[key] / row["memcpy"] if row[key] is not None else None for key in ("encode", "decode")]
            cells = ["-" if row["bits"] is None else share(row["bits"])]
            cells += ["-" if row[key] is None else f"{row[key] / 4:.2f}" for key in ("encode", "decode")]
            cells += ["-" if ratio is None else f"{ratio:.1f}" for ratio in times]
            rows.append([name, row["codec"], *cells])
    times = ["encode, ms a MB", "decode, ms a MB", "encode, of memcpy", "decode, of memcpy"]
    return table(["gradient", "codec", "% of fp32", *times], rows)


def links_table(data):
    """Measured all-reduces: time, and how many times as fast as Gloo's, by link."""
    rows, links = [], unique(data.links, "link")
    head = ["gradient", "codec", "MB sent a rank", *(LINKS[link] for link in links)]
    for task in unique(data.links, "task"):
        for codec in unique(data.links, "codec"):
            own = {row["link"]: row for row in data.links if (row["task"], row["codec"]) == (task, codec)}
            sent = own[links[0]]["sent"]
            rows.append([task, codec, "-" if sent is None else f"{sent / 1e6:.2f}"])
            for link in links:
                row = own[link]
                spread_of = f" ({row['low']:.2f} to {row['high']:.2f})" if codec != GLOO else ""
                rows[-1].append(f"{1e3 * row['seconds']:.0f} ms, {row['ratio']:.2f}{spread_of}")
    return table(head, rows)


def paper_table(data):
    """What the paper says, where that is known, beside the same here."""
    found = {}
    for scheme in ("published", "explicit 23"):
        cells = []
        for task in unique(data.rate, "task"):
            shares = [row[scheme] / 0.32 for row in data.rates(task)]
            cells.append(f"{task} {statistics.fmean(shares):.1f} %, at best {min(shares):.1f} %")
        found[scheme] = "; ".join(cells)
    rows = [
        ["volume left, of fp32", "32.9 % at best (67.1 % less; abstract)", f"explicit, t = 23: {found['explicit 23']}"],
        ["the same, its scheme counted here", "-", found["published"]],
        ["speed of training", "up to 1.9 times (abstract)", SPEED],
        ["figure 9: rate over 1,000 steps", MISSING, "[below](#rate-over-the-steps)"],
        [
            "codebooks of other models, static and renewed",
            MISSING,
            "[by step](#codebooks-over-the-steps), [by model](#codebooks-of-other-models)",
        ],
        ["ablation of mantissas", MISSING, "[below](#what-is-cut-from-mantissas)"],
        ["figure 18: deviation of the loss", MISSING, "[below](#deviation-of-the-loss)"],
        ["figure 10: zstd, zlib", MISSING, "[below](#zstd-zlib-and-lz4-on-the-wire)"],
    ]
    return table(["", "paper", "here"], rows)


# ---- picture --------------------------------------------------------------------------------------------------------

LEFT, TOP, WIDTH, HEIGHT, GAP = 60, 64, 420, 220, 90
RATE_LINES = (
    ("lossless", "#8c959f", "lossless"),
    ("published", "#1f2328", "published scheme"),
    ("explicit 23", "#2f6fd0", "explicit, t = 23"),
    ("derived 23", "#7b3fa0", "derived, t = 23"),
    ("cut 18", "#c08a00", "18 bits cut"),
    ("derived 14", "#0b6e75", "derived, t = 14"),
    ("derived 12", "#d1492e", "derived, t = 12"),
)
LOSS_LINES = (
    ("fp32, opposite order", "#8c959f", "fp32, opposite order"),
    ("metric, truncate", "#2f6fd0", "metric, t = 23"),
    ("derived 14", "#0b6e75", "derived, t = 14"),
    ("cut 18", "#c08a00", "18 bits cut"),
    ("cut 18, every 8th step exact", "#d63c9f", "the same, every 8th step fp32"),
    ("every 8th step", "#d1492e", "averaged every 8th step"),
)
DECADES = (-6, 0)
MARKS = [(percent, f"{percent} %") for percent in range(0, 101, 20)]


def frame(x0, y0, steps, marks, place):
    """Axes: labels of steps below, (value, label) marks at the left."""
    out, grid = [], ""
    for value, label in marks:
        y = place(value)
        grid += f"M{x0},{y:.1f}h{WIDTH}"
        out.append(text(x0 - 6, y + 4, label, "end"))
    for part in range(5):
        x = x0 + WIDTH * part / 4
        grid += f"M{x:.1f},{y0}v{HEIGHT}"
        out.append(text(x, y0 + HEIGHT + 15, f"{steps * part / 4:.0f}", "middle"))
    return [*out, f'<path d="{grid}" stroke="#e3e7eb"/>']


def line(points, color):
    at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{color}" stroke-width="1.4" points="{at}"/>'


def legend(lines, x, y):
    out = []
    for i, (_, color, label) in enumerate(lines):
        out.append(line([(x, y + 14 * i), (x + 20, y + 14 * i)], color))
        out.append(text(x + 26, y + 14 * i + 4, label))
    return out


def rate_panel(data, task, x0, y0):
    samples = data.rates(task)
    steps = max(row["step"] for row in samples)

    def place(percent):
        return y0 + HEIGHT * (1 - percent / 100)

    out = [text(x0, y0 - 10, f"{task}: % of fp32 by step"), *frame(x0, y0, steps, MARKS, place)]
    for key, color, _ in RATE_LINES:
        points = [(x0 + WIDTH * row["step"] / steps, place(row[key] / 0.32)) for row in samples]
        out.append(line(points, color))
    return out


def loss_panel(data, task, x0, y0):
    seeds = data.losses(task)
    windows = max(len(run["training"]) for found in seeds.values() for run in found.values())
    low, high = DECADES

    def place(power):
        return y0 + HEIGHT * (high - power) / (high - low)

    marks = [(power, f"1e{power}") for power in range(low, high + 1)]
    out = [text(x0, y0 - 10, f"{task}: deviation of the training loss by step, mean of the seeds")]
    out += frame(x0, y0, windows * WINDOW, marks, place)
    for way, color, _ in LOSS_LINES:
        runs = deviations(seeds, way)
        points = []
        for window in range(windows if runs else 0):
            size = statistics.fmean(abs(run[window]) for run in runs)
            power = max(low, min(high, math.log10(size))) if size else low
            points.append((x0 + WIDTH * (window + 0.5) / windows, place(power)))
        out += [line(points, color)] if points else []
    return out


def picture(data):
    tasks, trained = unique(data.rate, "task"), unique(data.loss, "task")
    rows = max(len(tasks), len(trained), 1)
    width, height = LEFT + 2 * WIDTH + GAP + 240, TOP + rows * (HEIGHT + 60) + 10
    out = svg_head(width, height, "Sizes over training, and deviation of the loss", "GCOMP over training")
    for i, task in enumerate(tasks):
        out += rate_panel(data, task, LEFT, TOP + i * (HEIGHT + 60))
    for i, task in enumerate(trained):
        out += loss_panel(data, task, LEFT + WIDTH + GAP, TOP + i * (HEIGHT + 60))
    x = LEFT + 2 * WIDTH + GAP + 24
    out += [text(x, TOP - 10, "sizes"), *legend(RATE_LINES, x, TOP + 6)]
    out += [text(x, TOP + 150, "deviation"), *legend(LOSS_LINES, x, TOP + 166)]
    return "\n".join(out + ["</svg>"]) + "\n"


# ---- page -----------------------------------------------------------------------------------------------------------

SPEED = (
    "3.2 times over 100 Mb/s, 1.7 over 500 Mb/s (digits, `quantum_mode=explicit`, [training.md](training.md)); "
    "all-reduces [over links](#zstd-zlib-and-lz4-on-the-wire)"
)

SHOWS = """\
- **Rate.** Explicit frames of t = 23, the near-lossless ones, need 35 % of fp32 on digits in the mean of 1,000 steps
  (26 to 44 %), 67 % on gpt1m (63 to 71 % after the first step) and 61 % on resnet18 in 300 steps (53 to 77 %). The
  best case of the abstract is 33 %. What a gradient needs depends on how large parameters are beside their updates:
  digits changes with the batch, and falls as the loss does; resnet18 falls, too; gpt1m is even from step 10 on. In
  Adam's first step nothing can be cut (86 %).
- **Against the published scheme** explicit frames are 2.7 points smaller on digits, 3.9 on gpt1m and on resnet18,
  with every byte counted, against a count without headers: level and exponent share one code. Derived frames of t =
  23, which send no level and cut by single bits, need 27, 55 and 49 %; t = 14 needs 7, 27 and 21 %, t = 12 4, 21 and
  16 %. The sum of four workers needs 3 to 5 points more than a worker's gradient at t = 23.
- **A codebook must be renewed or fresh.** After step 100, one that is 10 to 50 steps old costs 1 to 2.3 % of an
  explicit frame against codebooks in the frame, and 1 to 9 % at t = 14. On gpt1m that is because one codebook serves
  all layers (one of the same values costs as much), on digits most of it is age. A codebook of step 100 costs 3 to 11
  % (explicit) and 5 to 43 % (t = 14) later on, that of step 0 is worse on gpt1m: Adam's first step cuts nothing, so
  there is no code for any level that later steps use. Values then escape, chunks become RAW, and frames are as large
  as fp32. No row has smaller frames with an installed codebook than with fresh ones: it saves time, not bytes.
- **Codebooks of other models** cost 0.5 to 29 % of explicit frames. At t = 14 those of BERT, of the two sampled
  ResNets and of digits cost each other and the contiguous ResNet less than 5 %, and gpt1m 16 to 37 %. That of the
  contiguous ResNet costs 15 to 32 %, and that of gpt1m, whose values are rarely zero, 71 to 176 %. Nothing is wrong
  in such a frame: what has no code escapes.
- **Cuts.** A third of the values on digits are zero, and pruning them saves 8 bits a value before anything is cut.
  The metric sends 11.4 bits a value, as many as a cut of 12 bits from every value does, and moves no parameter by
  more than 2^-23.3 of its size, where that cut moves one near 0 by 2^-2.3 and a cut of 18 bits one by 17 times its
  size. On gpt1m the metric sends as many as a cut of 6. The relative error of the whole gradient (NMSE) does not see
  this: by it the metric on digits lies between cuts of 12 and 18.
- **Loss.** In the mean of the way, the metric with truncation, the paper's rounding, deviates from fp32 by .0005 on
  digits and .0015 on gpt1m; 18 bits cut from every value by .0067 and .0036, 13 and 2 times as much. An exact
  exchange every 8th step hardly helps the cut: .0061 and .0062. Parameters that are averaged every 8th step, with an
  eighth of the bytes, deviate by .03 and .12, and end .15 above fp32's validation loss on gpt1m. A sum in the
  opposite order deviates by .0001 and .0002. t = 14 deviates about as much as the metric on digits, with a third of
  its bytes, but by .0052 on gpt1m, more than the 18-bit cut, which has the same size there. But for the averaged
  parameters, all end within .012 of fp32, above or below it: so few seeds do not tell their ends apart.
- **zstd and zlib** leave 65 to 94 % of fp32 and are slow: zstd -1 takes 12 to 22 times a copy to encode, zlib -1 over
  170. Lossless frames leave 62 to 85 % at 3 times a copy, explicit ones 36 to 67 % at 2.5 to 4 times.
- **Over links** fp32 takes 1.8 to 2 times as long by the messages that all codecs use here as by Gloo's own all-reduce,
  a ring. Against the same messages explicit frames are 1.2 to 2.1 times as fast, t = 14 2.6 to 4.1 times; zstd and LZ4
  .8 to 1.5 times, and zlib gains on digits at 100 Mb/s only. Against Gloo's ring zstd, zlib, LZ4 and lossless frames
  are slower everywhere, explicit ones gain on digits at 100 Mb/s only, t = 14 gains everywhere. The library's own
  collectives send in pieces while they encode: in training steps explicit frames are 3.2 times as fast as fp32 over
  100 Mb/s ([training.md](training.md)).
"""

PAGE = """# GCOMP: the measurements of its paper

What Li, Guo, Qian, Zhang, Yang and Xu, "Near-Lossless Gradient Compression for Data-Parallel Distributed DNN
Training" (GComp, SoCC 2024, doi 10.1145/3698038.3698541) measure, repeated with this codec on small models: sizes
over 1,000 steps, codebooks of other steps and other models, what is cut from mantissas, the deviation of the loss,
and zstd, zlib and LZ4 on the wire. Made from [rate](gcomp-paper-rate.tsv), [cut](gcomp-paper-cut.tsv),
[crossed](gcomp-paper-crossed.tsv), [loss](gcomp-paper-loss.tsv), [wire](gcomp-paper-wire.tsv) and
[links](gcomp-paper-links.tsv) by `bench/gcomp/results_gcomp_paper.py`; `bench/gcomp/paper_measure.py` and
`paper_links.py` beside it measure them (torch 1.13, one thread).

Only the abstract of the paper was at hand. Its scheme is known from the work on this library: four levels that drop
0, 6, 12 or 18 mantissa bits, chosen by the metric of [numerics.md](../numerics.md#3-flush-drop-and-rounding) and sent
as two bits a value, truncation, zeros pruned, one Huffman code for exponents, counted anew every 50 steps. The values
in its figures are **not available here**, and neither are its models: no row says whether they are reproduced, only
what the same measurement gives here.

{paper}
## How it was measured

- **Data.** `digits` and `gpt1m` of [training.md](training.md) train in one process with 4 simulated workers, each
  with a batch of its own. Gradients are divided by the number of workers before they travel, so the wire scale is 1.
  `resnet18` has one worker, and its sizes are counted every 25 steps. *local*: the gradient of the first worker; *sum*:
  that of all four, as an owner encodes it. Everything is counted with the parameters and the optimizer's state from
  before the step, every 10 steps.
- **Frames.** Every byte counts. One frame of all parameters, fp32, chunks of 2^14. *explicit*: nearest, levels 0, 6,
  12, 18. *derived*: t = 23 nearest; t = 14 and 12 stochastic with dead zone. Preset fast but where *small* is
  written.
- **Published scheme.** Counted without any header or codebook: one Huffman code over the exponents of these very
  values (no escape, no code from an earlier step), two bits of level and 24, 18, 12 or 6 bits of sign and mantissa
  for every value that is not zero or subnormal. The metric by magnitude, from exact quotients in double precision,
  with the second moment after the update.
- All sizes are for one seed.

## What it shows

{shows}
![Sizes over training and deviation of the loss](gcomp-paper.svg)

## Rate over the steps

% of fp32; bf16 is 50. *mean* and *range*: of all samples.

{rate}
## Codebooks over the steps

Bits a value, local gradients, means of the samples of these steps; in brackets against *fresh, fast*: codebooks that
travel in the frame, one for every 16 chunks. *small*: one for every chunk. Otherwise one installed codebook for the
whole frame, counted in the gradients of all four workers in an earlier step (*one codebook, of these values*: counted
in the frame's own values). A renewed codebook is 10 to 50 steps old where it is sampled.

{ages}
## Codebooks of other models

Bits a value with one codebook counted in the values themselves, and how many % a frame grows (or shrinks) with fresh
codebooks and with one of another gradient. The snapshots are those of [gcomp-size.md](gcomp-size.md), the first 2^20
values; `digits` and `gpt1m` are local gradients of the runs above.

{crossed}
## What is cut from mantissas

The paper's ablation has four ways, which are not named in its abstract. Here: no cut; the same cut for every value;
levels by the metric; levels by the metric with zeros pruned. Means over local gradients of steps 100 to 1,000 by 100.
*published coding*: bits a value by the scheme described above, without levels where the cut is constant. *frames*: of
this codec, explicit, which always prunes zeros. Errors by truncation. *worst move*: the largest error that a value
puts into its parameter's update, as a share of |num| (numerics.md section 2): 2^-24 of a number is between one half
and one unit in its last place.

{cut}
## Deviation of the loss

All gradients are added as by A2A+AG: a worker sends frames of shards to their owners, an owner adds them and its own
values in fp32 in the order of the workers, and sends one frame of the sum to all. Every worker's batch is the same in
all ways. *mean deviation*: mean of |training loss − that of fp32 with the same seed|, over windows of 8 steps. *last
64 steps* and *validation*: the signed difference, mean and each seed. *fp32, sum in the opposite order* rounds
differently in the last bit only: what it deviates by is what training makes of any error. "Every 8th step" is read in
two ways: 18 bits cut, with an exact exchange every 8th step; and no exchange but every 8th step, when the parameters
are averaged.

{loss}
## zstd, zlib and LZ4 on the wire

Sizes of the fp32 bytes as they are, and of frames, of up to 2^20 values; medians of 5 runs of one thread's processor
time, alternating with a copy of the same array ("of memcpy": 1 is as fast as that copy), on a machine that others
were using. *map*: both passes over parameters and optimizer state, once a step, for explicit and derived frames.
Derived frames round stochastically.

{wire}
**Over links.** An all-reduce of one step's gradients of four workers among four ranks by all-to-all and all-gather
(`bench/gcomp/paper_links.py`, messages by Gloo, codecs on one thread a rank, nothing overlaps; the map is part of the
time): medians of the slowest rank, and how many times as fast as Gloo's own all-reduce of fp32 in the same round, with
the range over the rounds. Four ranks share two cores.

{links}
## Limits

Three small models on small data sets, one seed for sizes, three for losses, on digits and gpt1m only, at most 1,000
steps. Workers are simulated in one process, but for the all-reduces over links. Times are from a machine that others
loaded: caches and memory were shared. Published sizes are a count, not an implementation: the paper's code for rare
exponents, its headers and its codebook from earlier steps would make them larger.
"""


def page(data):
    crossed = "".join(f"{label}:\n\n{crossed_table(data, codec)}\n" for codec, label in BOOKED.items())[:-1]
    return PAGE.format(
        paper=paper_table(data),
        shows=SHOWS,
        rate=rate_table(data),
        ages=age_table(data),
        crossed=crossed,
        cut=cut_table(data),
        loss=loss_table(data),
        wire=wire_table(data),
        links=links_table(data),
    )


def main():
    data = Data()
    pages = {os.path.join(RESULTS, f"gcomp-paper.{end}"): make(data) for end, make in (("md", page), ("svg", picture))}
    return write_or_compare(pages, sys.argv[1:] == ["--write"], "bench/gcomp/results_gcomp_paper.py")


if __name__ == "__main__":
    sys.exit(main())
