#!/usr/bin/env python3
"""Measures the tables of docs/results/gcomp-paper.md: files gcomp-paper-*.tsv, which are continued where they exist.

    bench/gcomp/paper_measure.py rate TASK [--steps 1000] [--every 10] [--workers 4] [--keep FOLDER]
                          sizes over a training with fp32, codebooks by age, and what is cut from mantissas
    bench/gcomp/paper_measure.py crossed SNAPSHOT...
                          codebooks of one gradient for another
    bench/gcomp/paper_measure.py loss TASK --seed 1 [--steps 256] [--workers 4]
                          losses of all ways to add gradients; runs that the table has are left out
    bench/gcomp/paper_measure.py wire SNAPSHOT...
                          sizes and times of zstd, zlib and LZ4 (libzstd.so.1, liblz4.so.1) beside GCOMP

SNAPSHOT: a .json of the shared gradients, or a .npz that `rate --keep FOLDER` wrote halfway. TASK: of bench/training.
Needs NumPy and the package `gradwire`; `rate` and `loss` torch, and scikit-learn for the digits.
bench/gcomp/results_gcomp_paper.py --write makes the page.
"""

import argparse
import csv
import ctypes
import ctypes.util
import os
import statistics
import sys
import time
import zlib

import gradwire
import numpy as np
from gradwire import codebooks

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import published_scheme as published  # noqa: E402
from allreduce_error import Snapshot  # noqa: E402
from result_pages import RESULTS  # noqa: E402

VALUES_MAX = 1 << 20
RENEWED_EVERY, LATE_STEP = 50, 100
NEAR = {"quantum_mode": "explicit", "tolerance_bits": 23}
DEEP = {"quantum_mode": "derived", "rounding": "stochastic", "dead_zone": True}
# Without codebooks of another step.
SIZES = {
    "lossless": {"constant_drop": 0},
    "cut 6": {"constant_drop": 6},
    "cut 12": {"constant_drop": 12},
    "cut 18": {"constant_drop": 18},
    "explicit 23": NEAR,
    "explicit 23 small": NEAR | {"preset": "small"},
    "derived 23 step 6": {"quantum_mode": "derived", "step": 6},
    "derived 23": {"quantum_mode": "derived"},
    "derived 14": DEEP | {"tolerance_bits": 14},
    "derived 14 small": DEEP | {"tolerance_bits": 14, "preset": "small"},
    "derived 12": DEEP | {"tolerance_bits": 12},
    "derived 12 small": DEEP | {"tolerance_bits": 12, "preset": "small"},
}
BOOKED = ("explicit 23", "derived 14")
AGES = ("own", "static first", "static late", "renewed")
RATE_COLUMNS = ("task", "step", "source", "published", *SIZES, *(f"{name}, {age}" for name in BOOKED for age in AGES))
CUT_COLUMNS = ("task", "step", "way", "published", "bits", "nmse", "worst")
CROSSED_COLUMNS = ("codec", "values", "codebook", "bits")
LOSS_COLUMNS = ("task", "optimizer", "seed", "way", "steps", "sent", "validation", "training")
WIRE_COLUMNS = ("values", "codec", "bits", "encode", "decode", "memcpy")
WINDOW = 8  # steps whose losses are averaged; Apart meets that often, too


def append(name, columns, rows):
    """Adds rows to a table of docs/results, numbers with five digits."""
    path = os.path.join(RESULTS, f"gcomp-paper-{name}.tsv")
    is_new = not os.path.exists(path)
    with open(path, "a", encoding="utf-8") as f:
        if is_new:
            f.write("\t".join(columns) + "\n")
        for row in rows:
            cells = ["-" if cell is None else f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row]
            f.write("\t".join(cells) + "\n")


def rows_of(name):
    path = os.path.join(RESULTS, f"gcomp-paper-{name}.tsv")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def needs_map(options):
    return "constant_drop" not in options


def stream(step=0):
    return gradwire.Stream(seed=1, step_index=step)


def codebook_of(options, arrays, map, step=0):
    """One codebook for all values, counted in all arrays."""
    codec = gradwire.Codec(**options)
    histogram = codebooks.Histogram(codec)
    for values in arrays:
        histogram.add(codec, values, map, stream(step))
    return histogram.codebook()


def bits(options, values, map, step=0, codebook=None):
    """Bits a value of a frame, whose codebooks are its own or an installed one."""
    codec = gradwire.Codec(**options)
    if codebook is not None:
        codebooks.install(codec, codebook, 1, 0)
    frame = codec.encode(values, map=map if needs_map(options) else None, stream=stream(step))
    return 8 * len(frame) / values.size


# ---- rate -----------------------------------------------------------------------------------------------------------


class Sampler:
    """Counts what every scheme would send in a step, and keeps the codebooks that are installed."""

    def __init__(self, task):
        self.task, self.kept = task, {name: {} for name in BOOKED}

    def sample(self, workers, gradients, total):
        step, state = workers.step, workers.state()
        map = workers.map(state)
        ratio = ratio_of(workers, state, total)
        rows = []
        for source, values in (("local", gradients[0]), ("sum", total))[: len(gradients)]:
            drop = published.metric_drop(values, ratio)
            row = [published.bits_a_value(values, drop, levels=True, pruned=True)]
            row += [bits(options, values, map, step) for options in SIZES.values()]
            for name in BOOKED:
                row += [self._booked(name, age, values, map, step, source) for age in AGES]
            rows.append((self.task, step, source, *row))
        append("rate", RATE_COLUMNS, rows)
        if step % 100 == 0:
            append("cut", CUT_COLUMNS, cut_rows(self.task, step, gradients[0], map, ratio))
        self._renew(gradients, map, step)

    def _booked(self, name, age, values, map, step, source):
        if source == "sum":  # codebooks are those of contributions
            return None
        own = age == "own"
        codebook = codebook_of(SIZES[name], [values], map, step) if own else self.kept[name].get(age)
        return None if codebook is None else bits(SIZES[name], values, map, step, codebook)

    def _renew(self, gradients, map, step):
        """After the step's frames: what is counted in this step's values, of all workers, serves later ones."""
        for name, kept in self.kept.items():
            ages = {"static first": step == 0, "static late": step == LATE_STEP, "renewed": step % RENEWED_EVERY == 0}
            if any(ages.values()):
                codebook = codebook_of(SIZES[name], gradients, map, step)
                kept.update({age: codebook for age, due in ages.items() if due})


def ratio_of(workers, state, gradient):
    from simulated_workers import BETAS, EPS, MOMENTUM, WEIGHT_DECAY

    if workers.kind != "adamw":
        return published.momentum_ratio(*state, workers.lr, MOMENTUM)
    betas = {"beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": WEIGHT_DECAY}
    return published.adamw_ratio(*state, gradient, lr=workers.lr, step=workers.step + 1, **betas)


def cut_rows(task, step, values, map, ratio):
    """What the ways to cut mantissas send, in the published scheme and in frames, and how they err, by truncation.
    worst: log2 of the largest error of a parameter, relative to |num|."""
    zeros = published.exponents(values) == 0
    metric = published.metric_drop(values, ratio)
    ways = [(f"cut {drop}", drop, False, {"constant_drop": drop}) for drop in (0, 6, 12, 18)]
    ways.append(("metric", metric, True, NEAR))
    exact = np.where(zeros, 0, values).astype(np.float64)
    for name, drop, levels, options in ways:
        codec = gradwire.Codec(**options, rounding="truncate")
        frame = codec.encode(values, map=map if levels else None)
        error = np.abs(codec.decode(frame).astype(np.float64) - exact)
        moved = np.max(np.divide(error, ratio, out=np.zeros_like(error), where=ratio > 0))
        nmse = float(np.sum(error**2) / np.sum(exact**2))
        worst = float(np.log2(moved)) if moved > 0 else None
        for pruned in (False, True):
            counted = published.bits_a_value(values, drop, levels=levels, pruned=pruned)
            frame_bits = 8 * len(frame) / values.size if pruned else None
            yield task, step, name + (", pruned" if pruned else ""), counted, frame_bits, nmse, worst


def measure_rate(chosen):
    import torch
    from simulated_workers import Plain, Workers

    torch.set_num_threads(1)
    if RENEWED_EVERY % chosen.every:
        sys.exit(f"--every {chosen.every} does not divide {RENEWED_EVERY}, the steps between renewed codebooks")
    if any(row["task"] == chosen.task for row in rows_of("rate")):
        sys.exit(f"gcomp-paper-rate.tsv has {chosen.task}: delete its rows there and in gcomp-paper-cut.tsv first")
    workers, sampler = Workers(chosen.task, chosen.seed, chosen.workers), Sampler(chosen.task)
    for step in range(chosen.steps + 1):
        gradients, _ = workers.gradients()
        total, _ = Plain().exchange(workers, gradients)
        if step % chosen.every == 0:
            sampler.sample(workers, gradients, total)
        if chosen.keep and step == chosen.steps // 2:
            map = workers.map(workers.state())
            path = os.path.join(chosen.keep, f"{chosen.task}-step{step:04d}.npz")
            np.savez(path, values=gradients[0], map=map.bytes, base=map.base)
        workers.apply(total)


# ---- crossed codebooks ----------------------------------------------------------------------------------------------


def load(path):
    """Name, values and map of a snapshot."""
    if path.endswith(".npz"):
        with np.load(path) as f:
            values, map_bytes, base = f["values"][:VALUES_MAX], f["map"][:VALUES_MAX], int(f["base"])
        return os.path.basename(path).removesuffix(".npz"), values, gradwire.Map(map_bytes, base)
    snapshot = Snapshot(path)
    return snapshot.name, snapshot.values, gradwire.Map.of(gradwire.Rule(snapshot.optimizer), snapshot.state)


def measure_crossed(chosen):
    snapshots = [load(path) for path in chosen.snapshots]
    for codec in BOOKED:
        options = SIZES[codec]
        counted = [(name, codebook_of(options, [values], map)) for name, values, map in snapshots]
        for name, values, map in snapshots:
            rows = [(codec, name, f"preset {p}", bits(options | {"preset": p}, values, map)) for p in ("fast", "small")]
            rows += [(codec, name, source, bits(options, values, map, 0, codebook)) for source, codebook in counted]
            append("crossed", CROSSED_COLUMNS, rows)


# ---- loss -----------------------------------------------------------------------------------------------------------


def ways():
    """Name: how gradients are added; None: Apart."""
    from simulated_workers import Coded, Plain

    truncated = {"rounding": "truncate"}
    yield "fp32", Plain()
    yield "fp32, opposite order", Plain(-1)
    yield "metric, truncate", Coded(**NEAR | truncated)
    yield "cut 18", Coded(constant_drop=18, **truncated)
    yield "cut 18, every 8th step exact", Coded(WINDOW, constant_drop=18, **truncated)
    yield "every 8th step", None
    yield "derived 14", Coded(**SIZES["derived 14"])
    yield "metric, nearest", Coded(**NEAR)
    yield "derived 12", Coded(**SIZES["derived 12"])


def train(chosen, way):
    """Losses of windows, validation loss, and bytes that a worker sent."""
    from simulated_workers import Apart, Workers

    own = (chosen.task, chosen.seed, chosen.workers)
    workers = Workers(*own) if way else Apart(*own, WINDOW)
    losses, all_sent = [], 0
    for _ in range(chosen.steps):
        if way:
            gradients, loss = workers.gradients()
            total, sent = way.exchange(workers, gradients)
            workers.apply(total)
        else:
            loss, sent = workers.step()
        losses.append(loss)
        all_sent += sent
    windows = [statistics.fmean(losses[i : i + WINDOW]) for i in range(0, len(losses), WINDOW)]
    return windows, workers.validation(), all_sent


def measure_loss(chosen):
    import torch
    from simulated_workers import Plain, Workers

    torch.set_num_threads(1)
    first = Workers(chosen.task, chosen.seed, 1)
    values = sum(p.numel() for p in first.params)
    _, plain = Plain().exchange(first, [np.zeros(values, np.float32)] * chosen.workers)
    done = {row["way"] for row in rows_of("loss") if (row["task"], row["seed"]) == (chosen.task, str(chosen.seed))}
    for name, way in ways():
        if name in done or chosen.only and name not in chosen.only:
            continue
        windows, validation, sent = train(chosen, way)
        training = " ".join(f"{loss:.6g}" for loss in windows)
        share = sent / (plain * chosen.steps)
        row = (chosen.task, first.kind, chosen.seed, name, chosen.steps, share, f"{validation:.6g}", training)
        append("loss", LOSS_COLUMNS, [row])


# ---- wire -----------------------------------------------------------------------------------------------------------


class Zstd:
    def __init__(self, size, level):
        self.lib, self.level = ctypes.CDLL("libzstd.so.1"), level
        for name in ("ZSTD_createCCtx", "ZSTD_createDCtx"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        for name in ("ZSTD_compressBound", "ZSTD_compressCCtx", "ZSTD_decompressDCtx"):
            getattr(self.lib, name).restype = ctypes.c_size_t
        self.contexts = [ctypes.c_void_p(self.lib.ZSTD_createCCtx()), ctypes.c_void_p(self.lib.ZSTD_createDCtx())]
        self.area = ctypes.create_string_buffer(self.lib.ZSTD_compressBound(ctypes.c_size_t(size)))

    def encode(self, values):
        sizes = ctypes.c_size_t(len(self.area)), ctypes.c_size_t(values.nbytes)
        source = ctypes.c_void_p(values.ctypes.data)
        return self.lib.ZSTD_compressCCtx(self.contexts[0], self.area, sizes[0], source, sizes[1], self.level)

    def decode(self, size, out):
        sizes = ctypes.c_size_t(out.nbytes), ctypes.c_size_t(size)
        self.lib.ZSTD_decompressDCtx(self.contexts[1], ctypes.c_void_p(out.ctypes.data), sizes[0], self.area, sizes[1])


class Lz4:
    def __init__(self, size):
        self.lib = ctypes.CDLL("liblz4.so.1")
        self.area = ctypes.create_string_buffer(self.lib.LZ4_compressBound(size))

    def encode(self, values):
        source = ctypes.c_void_p(values.ctypes.data)
        return self.lib.LZ4_compress_default(source, self.area, values.nbytes, len(self.area))

    def decode(self, size, out):
        self.lib.LZ4_decompress_safe(self.area, ctypes.c_void_p(out.ctypes.data), size, out.nbytes)


class Zlib:
    def __init__(self, level):
        self.level = level

    def encode(self, values):
        self.packed = zlib.compress(values, self.level)
        return len(self.packed)

    def decode(self, _size, out):
        out[:] = np.frombuffer(zlib.decompress(self.packed, bufsize=out.nbytes), out.dtype)


class Gcomp:
    def __init__(self, options, values, map):
        self.codec = gradwire.Codec(**options)
        self.map = map if needs_map(options) else None
        self.area = bytearray(self.codec.bound(values.size))

    def encode(self, values):
        self.frame = self.codec.encode(values, map=self.map, stream=stream(), out=self.area)
        return len(self.frame)

    def decode(self, _size, out):
        self.codec.decode(self.frame, map=self.map, out=out)


def seconds(run, *arguments):
    """Of this thread's processor time, so that others on the machine count less; and the result."""
    begin = time.thread_time()
    result = run(*arguments)
    return time.thread_time() - begin, result


def map_row(path, repeats):
    """Time of the two passes over parameters and optimizer state that a map takes."""
    snapshot = Snapshot(path)
    rule, state, found = gradwire.Rule(snapshot.optimizer), snapshot.state, []
    target = np.empty_like(snapshot.values)
    for _ in range(repeats + 1):
        copied, _ = seconds(np.copyto, target, snapshot.values)
        made, _ = seconds(gradwire.Map.of, rule, state)
        found.append((made, copied))
    made, copied = (1e9 * statistics.median(column) / snapshot.values.size for column in zip(*found[1:]))
    return snapshot.name, "map", None, made, None, copied


def measure_wire(chosen):
    for path in chosen.snapshots:
        name, values, map = load(path)
        flushed = np.where(published.exponents(values) == 0, np.float32(0), values)
        peers = {f"zstd -{level}": Zstd(values.nbytes, level) for level in (1, 3)}
        peers |= {"LZ4": Lz4(values.nbytes)} | {f"zlib -{level}": Zlib(level) for level in (1, 6)}
        wanted = ("lossless", "explicit 23", "derived 14", "derived 12")
        peers |= {f"gcomp {name}": Gcomp(SIZES[name], values, map) for name in wanted}
        out, target, found = np.empty_like(values), np.empty_like(values), {peer: [] for peer in peers}
        for repeat in range(chosen.repeats + 1):
            for peer, codec in peers.items():
                copied, _ = seconds(np.copyto, target, values)
                encoded, size = seconds(codec.encode, values)
                decoded, _ = seconds(codec.decode, size, out)
                if repeat:  # the first warms caches and workspaces
                    found[peer].append((encoded, decoded, copied))
                elif not np.array_equal(out, values) and peer.split()[0] != "gcomp":
                    sys.exit(f"{peer} does not give back {name}")
                elif peer == "gcomp lossless" and not np.array_equal(out, flushed):
                    sys.exit(f"{peer} does not give back {name}")
                found[peer, "bits"] = 8 * size / values.size
        if path.endswith(".json"):
            append("wire", WIRE_COLUMNS, [map_row(path, chosen.repeats)])
        medians = {peer: [statistics.median(column) for column in zip(*found[peer])] for peer in peers}
        append(
            "wire",
            WIRE_COLUMNS,
            [(name, p, found[p, "bits"], *(1e9 * t / values.size for t in medians[p])) for p in peers],
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    rate, loss = commands.add_parser("rate"), commands.add_parser("loss")
    for command, steps in ((rate, 1000), (loss, 256)):
        command.add_argument("task")
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--steps", type=int, default=steps)
        command.add_argument("--workers", type=int, default=4)
    rate.add_argument("--every", type=int, default=10)
    rate.add_argument("--keep", help="folder for a snapshot of the step in the middle")
    loss.add_argument("--only", nargs="*", help="names of ways")
    for name in ("crossed", "wire"):
        commands.add_parser(name).add_argument("snapshots", nargs="+")
    commands.choices["wire"].add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    measure = {"rate": measure_rate, "crossed": measure_crossed, "loss": measure_loss, "wire": measure_wire}
    measure[chosen.command](chosen)


if __name__ == "__main__":
    main()
