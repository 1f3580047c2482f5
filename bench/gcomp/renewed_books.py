#!/usr/bin/env python3
"""docs/results/gcomp-books.md, from gcomp-books.tsv beside it: installed codebooks that are renewed, and fresh ones.

    bench/gcomp/renewed_books.py             says whether the page is that of the table
    bench/gcomp/renewed_books.py --write     writes it
    bench/gcomp/renewed_books.py --measure TASK RANKS FIRST_STEP...
                                             prints the table; needs torch, NumPy and the package `gradwire`

All ranks are in one process, each with batches of its own, and train a task of bench/training by AdamW with the mean of
their gradients. From each FIRST_STEP on codebooks are counted and used in the 50 steps that follow.
"""

import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

COLUMNS = ("task", "ranks", "first", "mode", "way", "books", "every", "size", "fresh", "time", "time_min", "rounds")
BUCKET_LEN = 25 << 18  # DDP's default, 25 MiB of fp32
EVERY = (1, 10, 50)
AGES = (3, 13, 28, 36, 50)  # steps after the first at which frames are made
CHUNK_LOG2 = 14
ROUNDS = 15

# ---- measure --------------------------------------------------------------------------------------------------------


class Mode:
    """One setting of the codec, as DDP's hook has it."""

    def __init__(self, name, tolerance_bits=None, **options):
        self.name, self.tolerance_bits = name, tolerance_bits
        self.options = {"rounding": "stochastic", "checksum": True, **options}
        if tolerance_bits:
            self.options["tolerance_bits"] = tolerance_bits

    def limits(self):
        import gradwire

        return gradwire.Limits(tolerance_bits=self.tolerance_bits, noise=0.125)


MODES = (
    Mode("derived, t = 14", 14, quantum_mode="derived"),
    Mode("derived, t = 12", 12, quantum_mode="derived"),
    Mode("carried, NMSE 0.001", quantum_mode="carried", target_nmse=1e-3, dead_zone=True),
    Mode("explicit, t = 14", 14, quantum_mode="explicit"),
)


class Training:
    """Gradients of all ranks, and the state before each update, by buckets in the order of DDP's."""

    def __init__(self, name, ranks):
        import torch
        from training.task_list import make_task

        torch.manual_seed(1)
        self.task, self.ranks, self.step = make_task(name, 1), ranks, 0
        self.model = self.task.model()
        self.lr = self.task.lr["adamw"]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr)
        self.buckets, room = [], 0
        for param in reversed(list(self.model.parameters())):
            if not self.buckets or room + param.numel() > BUCKET_LEN:
                self.buckets.append([])
                room = 0
            self.buckets[-1].append(param)
            room += param.numel()

    def gradients(self):
        """By rank and bucket; the parameters keep the mean."""
        import numpy as np
        import torch

        params, found = list(self.model.parameters()), []
        total = [torch.zeros_like(p) for p in params]
        for rank in range(self.ranks):
            self.optimizer.zero_grad()
            self.task.loss(self.model, self.task.sample(self.step, rank, self.ranks, self.task.batch)).backward()
            found.append([np.concatenate([p.grad.flatten().numpy() for p in bucket]) for bucket in self.buckets])
            for one, p in zip(total, params):
                one += p.grad
        for one, p in zip(total, params):
            p.grad.copy_(one / self.ranks)
        return found

    def state(self, bucket):
        import gradwire
        import numpy as np

        def array(of):
            return np.concatenate([of(p).detach().flatten().numpy() for p in bucket])

        moments = [array(lambda p: self.optimizer.state[p][key]) for key in ("exp_avg", "exp_avg_sq")]
        return gradwire.State(array(lambda p: p), *moments)

    def rule(self, limits):
        import gradwire

        made = gradwire.Optimizer(
            kind="adamw", lr=self.lr, step=self.step + 1, weight_decay=0.01, beta1=0.9, beta2=0.999, eps=1e-8
        )
        return gradwire.Rule(made, float(self.ranks), limits)

    def advance(self):
        self.optimizer.step()
        self.step += 1


def pieces_of(length, ranks):
    """(first, len) of the pieces of a bucket, as in the hook."""
    shard = -(-(length // 64 + 1) // ranks) * 64
    piece = 1 << min(18, max(16, (length // ranks // 4).bit_length() - 1))
    found = []
    for first in range(0, length, shard):
        end = min(first + shard, length)
        found += [(at, min(piece, end - at)) for at in range(first, end, piece)]
    return found


class Message:
    """What one rank encodes of a piece: a contribution (hop 0) or the sum (hop 1)."""

    def __init__(self, values, quanta, rank, hop, piece, bucket):
        self.values, self.map, self.rank, self.hop = values, quanta, rank, hop
        self.piece, self.bucket = piece, bucket


def messages_of(training, gradients, mode):
    """All that the ranks encode in a step."""
    import gradwire

    found = []
    for b, bucket in enumerate(training.buckets):
        full = gradwire.Map.of(training.rule(mode.limits()), training.state(bucket)) if mode.tolerance_bits else None
        arrays = [gradients[rank][b] for rank in range(training.ranks)]
        total = sum(arrays[1:], arrays[0].copy())
        for number, (first, length) in enumerate(pieces_of(total.size, training.ranks)):
            cut = slice(first, first + length)
            quanta = full[cut] if full is not None else None
            for rank, values in enumerate(arrays):
                found.append(Message(values[cut], quanta, rank, 0, (b, number), b))
            found.append(Message(total[cut], quanta, 0, 1, (b, number), b))
    return found


class Encoder:
    """A handle, with calls that measure nothing but the library's function."""

    def __init__(self, mode, preset):
        import gradwire

        self.codec = gradwire.Codec(preset=preset, **mode.options)

    def run(self, messages, step):
        """Size of the frames, and CPU seconds."""
        from gradwire import gcomp
        from gradwire._library import check, lib
        from gradwire.workspace import Output

        size, seconds = 0.0, 0.0
        for one in messages:
            stream = gcomp.Stream(seed=one.bucket, rank=one.rank, hop=one.hop, step_index=step)
            source = gcomp.Source(self.codec, one.values, one.map, stream)
            made = Output(self.codec.bound(one.values.size))
            workspace = self.codec.workspace()
            begin = time.thread_time_ns()
            status = lib.gw_gcomp_encode(self.codec.handle, source.struct, made.buffer, workspace)
            seconds += (time.thread_time_ns() - begin) / 1e9
            check(status)
            size += made.buffer.size
        return size, seconds


def key_of(books, message):
    """Which messages share a codebook."""
    return {
        "one per bucket": message.bucket,
        "one per piece": message.piece,
        "two per piece": (message.piece, message.hop),
    }[books]


BOOKS = ("one per bucket", "one per piece", "two per piece")


def parts_of(messages, mode):
    """Values and maps, in the order in which they are counted: the first chunk chooses the window of explicit labels,
    so the one with the largest value comes first."""
    import numpy as np

    def cut(one, first, end):
        part = slice(first, end)
        return one.values[part], one.map[part] if one.map is not None else None

    if mode.options["quantum_mode"] != "explicit":
        return [(one.values, one.map) for one in messages]
    peaks = [int(np.abs(one.values).argmax()) for one in messages]
    top = max(range(len(messages)), key=lambda i: abs(messages[i].values[peaks[i]]))
    largest, at = messages[top], peaks[top] >> CHUNK_LOG2 << CHUNK_LOG2
    end = min(at + (1 << CHUNK_LOG2), largest.values.size)
    parts = [cut(largest, at, end), cut(largest, 0, at), cut(largest, end, largest.values.size)]
    others = [(one.values, one.map) for i, one in enumerate(messages) if i != top]
    return [(values, quanta) for values, quanta in parts if values.size] + others


def count(mode, messages, books):
    """Serialised codebooks by key, pooled over the ranks; and CPU seconds."""
    import gradwire
    from gradwire import codebooks, gcomp

    codec, found, groups = gradwire.Codec(preset="fast", **mode.options), {}, {}
    for one in messages:
        groups.setdefault(key_of(books, one), []).append(one)
    begin = time.thread_time_ns()
    for key, own in groups.items():
        found[key] = codebooks.Histogram(codec)
        for values, quanta in parts_of(own, mode):
            found[key].add(codec, values, quanta, gcomp.Stream(seed=own[0].bucket))
    seconds = (time.thread_time_ns() - begin) / 1e9
    return {key: histogram.codebook() for key, histogram in found.items()}, seconds


def installed(encoders, mode, books, messages, step):
    """Size and CPU seconds with installed codebooks. encoders: handles that are kept, by key."""
    from gradwire import codebooks

    size, seconds, groups = 0.0, 0.0, {}
    for one in messages:
        groups.setdefault(key_of(books[0], one), []).append(one)
    for key, own in groups.items():
        encoder = encoders.setdefault(key, None) or Encoder(mode, "fast")
        encoders[key] = encoder
        codebooks.install(encoder.codec, books[1][key], 0, step)
        more = encoder.run(own, step)
        size, seconds = size + more[0], seconds + more[1]
    return size, seconds


def weighed(run, messages, ranks):
    """A rank sends a sum as often as all ranks together send its contributions."""
    sent = [one for one in messages if one.hop == 0], [one for one in messages if one.hop == 1]
    (first, first_s), (second, second_s) = run(sent[0]), run(sent[1])
    return (ranks - 1) / ranks * first + (ranks - 1) * second, (ranks - 1) / ranks * first_s + second_s


def measure(name, ranks, firsts):
    import torch

    torch.set_num_threads(1)
    training = Training(name, ranks)
    for first in firsts:
        while training.step < first:
            training.gradients()
            training.advance()
        books = {}  # by mode, kind, age at which they were counted
        sizes, times = {}, {}
        counted = {age - 1 for age in AGES} | {10 * ((age - 1) // 10) for age in AGES} | {0}
        while training.step <= first + AGES[-1]:
            age, gradients = training.step - first, training.gradients()
            for mode in MODES if age in AGES or age in counted else ():
                messages = messages_of(training, gradients, mode)
                if age in AGES:
                    step_sizes(mode, messages, training, books, age, sizes)
                if age == AGES[-1]:
                    step_times(mode, messages, training, books, times)
                if age in counted:
                    for kind in BOOKS:
                        books[mode.name, kind, age], seconds = count(mode, messages, kind)
                        times.setdefault((mode.name, "counting", kind), []).append(seconds)
            training.advance()
        for row in rows_of(name, ranks, first, sizes, times):
            print("\t".join(map(str, row)), flush=True)


def step_sizes(mode, messages, training, books, age, sizes):
    def add(key, run):
        sizes.setdefault((mode.name, *key), []).append(weighed(run, messages, training.ranks)[0])

    for preset in ("fast", "small"):
        encoder = Encoder(mode, preset)
        add((preset, "", 0), lambda own, encoder=encoder: encoder.run(own, training.step))
    for kind in BOOKS:
        for every in EVERY:
            made = books[mode.name, kind, every * ((age - 1) // every)]
            add(
                ("installed", kind, every),
                lambda own, kind=kind, made=made: installed({}, mode, (kind, made), own, training.step),
            )


def step_times(mode, messages, training, books, times):
    """CPU seconds of an encode in turns, each divided by that of preset fast in the same round."""
    own = [one for one in messages if one.hop == 0 and one.rank == 0]
    encoders = {preset: Encoder(mode, preset) for preset in ("fast", "small")}
    kept = {kind: {} for kind in BOOKS}
    for number in range(ROUNDS + 1):
        spent = {(preset, ""): encoder.run(own, training.step)[1] for preset, encoder in encoders.items()}
        for kind in BOOKS:
            made = books[mode.name, kind, AGES[-1] - 1]
            spent["installed", kind] = installed(kept[kind], mode, (kind, made), own, training.step)[1]
        for key, seconds in spent.items() if number else ():  # the first one is cold
            times.setdefault((mode.name, *key), []).append(seconds)


def rows_of(name, ranks, first, sizes, times):
    """The sizes are means over the steps; fresh: of preset fast."""
    for (mode, way, books, every), own in sizes.items():
        fast, spent = sizes[mode, "fast", "", 0], times[mode, way, books]
        ratios = [a / b for a, b in zip(spent, times[mode, "fast", ""])]
        times_of = statistics.median(ratios), min(spent) / min(times[mode, "fast", ""])
        yield (
            *(name, ranks, first, mode, way, books, every),
            *(f"{statistics.fmean(own):.0f}", f"{statistics.fmean(fast):.0f}"),
            *(f"{value:.3f}" for value in times_of),
            len(spent),
        )


# ---- page -----------------------------------------------------------------------------------------------------------


def main():
    if sys.argv[1:2] == ["--measure"]:
        print("\t".join(COLUMNS), flush=True)
        measure(sys.argv[2], int(sys.argv[3]), [int(step) for step in sys.argv[4:]])
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
