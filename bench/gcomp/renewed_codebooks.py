#!/usr/bin/env python3
"""docs/results/gcomp-codebooks.md, from gcomp-codebooks.tsv beside it: codebooks that are renewed, and fresh ones.

    bench/gcomp/renewed_codebooks.py             says whether the page is that of the table
    bench/gcomp/renewed_codebooks.py --write     writes it
    bench/gcomp/renewed_codebooks.py --measure TASK RANKS FIRST_STEP...
                                             prints the table; needs torch, NumPy and the package `gradwire`
    bench/gcomp/renewed_codebooks.py --hook TASK RANKS
                                             prints that of DDP's hook, gcomp-codebooks-hook.tsv

All ranks are in one process, each with batches of its own, and train a task of bench/training by AdamW with the mean of
their gradients. From each FIRST_STEP on codebooks are counted and used in the 50 steps that follow.
"""

import csv
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from result_pages import RESULTS, table, write_or_compare  # noqa: E402

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


# ---- in DDP's hook --------------------------------------------------------------------------------------------------

HOOK_COLUMNS = (
    *("task", "ranks", "books", "every", "steps", "sent", "encode", "reduce", "decode", "counting", "digest"),
)
HOOK_WAYS = (("fresh", 1), ("renewed", 10), ("renewed", 50))
HOOK_FROM, HOOK_STEPS, HOOK_ROUNDS = 50, 110, 2


def hook_rank(name, ranks, rank, store, books, every, results):
    """Trains; (bytes, CPU seconds of the stages) a step of this rank, and the digest of the parameters."""
    import hashlib

    import gradwire.torch
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from training.task_list import make_task

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    task = make_task(name, 1)
    model = task.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.lr["adamw"])
    ddp = DistributedDataParallel(model)
    state, hook = gradwire.torch.ddp_hook(optimizer, compress="always", books=books, books_every=every)
    ddp.register_comm_hook(state, hook)
    before = {}
    for step in range(HOOK_STEPS):
        if step == HOOK_FROM:
            state.check()
            before = stages(state)
        optimizer.zero_grad()
        task.loss(ddp, task.sample(step, rank, ranks, task.batch)).backward()
        optimizer.step()
    state.check()
    spent = [(value - before[name]) / (HOOK_STEPS - HOOK_FROM) for name, value in stages(state).items()]
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:8]
    state.close()
    if rank == 0:
        results.put((spent, digest))
        results.close()
        results.join_thread()
    dist.barrier()
    os._exit(0)  # threads of Gloo must not keep the process


def stages(state):
    stats = state.engine.stats()
    names = ("encode_ns", "reduce_ns", "decode_ns", "codebooks_ns")
    return {"sent_size": stats.sent_size, **{name: getattr(stats, name) / 1e9 for name in names}}


def measure_hook(name, ranks):
    """In turns; the medians of the rounds."""
    import multiprocessing
    import tempfile

    context, found = multiprocessing.get_context("fork"), {}
    for _ in range(HOOK_ROUNDS):
        for way in HOOK_WAYS:
            results = context.Queue()
            with tempfile.TemporaryDirectory() as folder:
                store = os.path.join(folder, "store")
                given = [(name, ranks, rank, store, *way, results) for rank in range(ranks)]
                started = [context.Process(target=hook_rank, args=one) for one in given]
                for process in started:
                    process.start()
                found.setdefault(way, []).append(results.get(timeout=1200))
                for process in started:
                    process.join()
    for way, rounds in found.items():
        sent, *spent = (statistics.median(values) for values in zip(*(spent for spent, _ in rounds)))
        row = [name, ranks, *way, HOOK_STEPS - HOOK_FROM, f"{sent:.0f}", *(f"{1000 * value:.3f}" for value in spent)]
        print("\t".join(map(str, [*row, rounds[0][1]])), flush=True)


# ---- page -----------------------------------------------------------------------------------------------------------

PAGE = """\
# Codebooks that are renewed

Sizes and times of frames with installed codebooks, which are renewed every k steps, beside those with codebooks of
their own ("fresh"). This page is made by `bench/gcomp/renewed_codebooks.py` from
[gcomp-codebooks.tsv](gcomp-codebooks.tsv) and [gcomp-codebooks-hook.tsv](gcomp-codebooks-hook.tsv), which it measures
(`--measure gpt1m 4 20 200`, `--measure gpt10m 2 20 150`, `--hook gpt1m 2`).

Gradients are those of the GPTs of bench/training (AdamW, constant rate, ranks with batches of their own), in DDP's
buckets of 25 MiB, cut into the pieces of DDP's hook: 2^16 values for the GPT of 1 M with 4 ranks, 2^18 for that of 10
M with 2. Both contributions and sums are counted, as often as they are sent. Codebooks are made of what all ranks
sent in one step, and used from the next one on until they are renewed. The paper renews them every 50 steps (section
4.4); its figures for what that saves are not available here.

{shows}
## Sizes

In percent of frames in preset fast with fresh codebooks; means of five steps, 3 to 50 after the first one. "Two per
piece" is what `books="renewed"` does: a codebook of the contributions to a piece and one of its sums.

{sizes}
## Time of an encode

Divided by that of preset fast with fresh codebooks: CPU time of one thread for all contributions of a rank, {rounds}
alternating rounds, the median of the ratios and in brackets the ratio of the least times. The machine was busy with
other work.

{times}
## In DDP's hook

GPT of 1 M, 2 ranks on one machine, derived quanta with t = 14, steps {hook_from} to {hook_end}: bytes and CPU
milliseconds of the pool's threads for each step of a rank, the medians of {hook_rounds} alternating rounds.
"Counting" is the background task of `gw_exchange_codebooks_count()`, spread over all steps. All runs end with the
same parameters, bit for bit.

{hook}"""

SHOWS = """\
## What it shows

- **Fresh codebooks make smaller frames, or as small ones.** With derived and explicit quanta renewed ones make frames
  0 to 4 % larger at k = 50 once training has settled: nothing on the GPT of 1 M, 2 to 4 % on that of 10 M. In the first
  hundred steps it is 1 to 2 % and 7 to 14 %. Renewing every 10 steps leaves a third to three fifths of that on the
  larger GPT; a codebook of the very last step still costs 1 to 3 %. Fresh ones of preset small save 1 to 3 % more.
  With carried quanta renewed ones are within 0.3 %, and a single one for the whole bucket within 0.7 %.
- **An encode takes 0.72 to 0.88 of the time.** What is left is rounding, partition and packing.
- **Two per piece** make frames smaller than one does on four ranks, by 0.9 to 2.6 points with derived and explicit
  quanta: a sum has other exponents than a contribution. On two ranks the difference is 0.9 points at most, to either
  side. With derived and explicit quanta one per piece is better than one per bucket by 1 to 5 points, unless it is 50
  steps old and from the beginning of the larger GPT's training. With carried quanta it is within 1 point, to either
  side.
- **In a step of the hook** 1.4 % more bytes buy about 6 % of the codec's CPU time at k = 50; these times are of two
  rounds on a busy machine, so take them as an order of magnitude. At k = 10 counting takes about as much as is saved,
  or more: it decodes and surveys every frame, which takes about as long as encode and reduce together. 16 KB against
  0.19 ms would be even at 0.7 Gbit/s for a step that waits for nothing but one thread of the codec, at 1.4 with two.

So `books="fresh"` is the default: below these rates it is faster, and above them little is gained. `books="renewed"` is
for links that are faster than the codec, and for carried quanta, where it costs 0.3 % of size at most.
"""


class Data:
    def __init__(self):
        with open(os.path.join(RESULTS, "gcomp-codebooks.tsv"), encoding="utf-8", newline="") as f:
            self.rows = list(csv.DictReader(f, delimiter="\t"))
        with open(os.path.join(RESULTS, "gcomp-codebooks-hook.tsv"), encoding="utf-8", newline="") as f:
            self.hook = list(csv.DictReader(f, delimiter="\t"))
        self.subjects = list(dict.fromkeys((row["task"], row["ranks"], row["first"], row["mode"]) for row in self.rows))

    def one(self, subject, way, books="", every="0"):
        for row in self.rows:
            own = row["task"], row["ranks"], row["first"], row["mode"]
            if own == subject and (row["way"], row["books"], row["every"]) == (way, books, every):
                return row
        raise KeyError((subject, way, books, every))


def label(subject):
    task, ranks, first, mode = subject
    return f"{task.replace('gpt', 'GPT ').replace('m', ' M')}, {ranks} ranks, from step {first}", mode


def sizes_table(data):
    def cell(row):
        return f"{100 * float(row['size']) / float(row['fresh']) - 100:+.1f}".replace("-", "−")

    rows = []
    for subject in data.subjects:
        own = [data.one(subject, "small")]
        own += [data.one(subject, "installed", books, str(every)) for books in BOOKS for every in EVERY]
        rows.append([*label(subject), *map(cell, own)])
    names = [f"{books}, k = {every}" for books in BOOKS for every in EVERY]
    return table(["", "frames", "fresh, preset small", *names], rows)


def times_table(data):
    def cell(row):
        return f"{float(row['time']):.2f} ({float(row['time_min']):.2f})"

    rows = []
    for subject in data.subjects:
        own = [data.one(subject, "small")] + [data.one(subject, "installed", books, "1") for books in BOOKS]
        rows.append([*label(subject), *map(cell, own)])
    return table(["", "frames", "fresh, preset small", *BOOKS], rows)


def hook_table(data):
    rows = []
    for row in data.hook:
        name = "fresh" if row["books"] == "fresh" else f"renewed, k = {row['every']}"
        rows.append([name, f"{int(row['sent']):,}".replace(",", " ")])
        rows[-1] += [f"{float(row[stage]):.2f}" for stage in ("encode", "reduce", "decode", "counting")]
    return table(["books", "bytes sent", "encode", "reduce", "decode", "counting"], rows)


def page(data):
    return PAGE.format(
        shows=SHOWS,
        sizes=sizes_table(data),
        times=times_table(data),
        hook=hook_table(data),
        rounds=ROUNDS,
        hook_from=HOOK_FROM,
        hook_end=HOOK_STEPS - 1,
        hook_rounds=HOOK_ROUNDS,
    )


def main():
    if sys.argv[1:2] == ["--measure"]:
        print("\t".join(COLUMNS), flush=True)
        measure(sys.argv[2], int(sys.argv[3]), [int(step) for step in sys.argv[4:]])
        return 0
    if sys.argv[1:2] == ["--hook"]:
        print("\t".join(HOOK_COLUMNS), flush=True)
        measure_hook(sys.argv[2], int(sys.argv[3]))
        return 0
    pages = {os.path.join(RESULTS, "gcomp-codebooks.md"): page(Data())}
    return write_or_compare(pages, sys.argv[1:] == ["--write"], "bench/gcomp/renewed_codebooks.py")


if __name__ == "__main__":
    sys.exit(main())
