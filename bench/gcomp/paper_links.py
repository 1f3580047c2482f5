#!/usr/bin/env python3
"""Measures docs/results/gcomp-paper-links.tsv: all-reduces of a gradient over limited links, with GCOMP, zstd, zlib and
LZ4. The table is continued where it exists.

    bench/gcomp/paper_links.py TASK [--link 100mbit ...] [--steps 100] [--repeats 5]

TASK, of bench/training, trains so many steps first; the gradients of its four workers are those of the four ranks.
Needs root or user namespaces: without them it says so, measures nothing and ends with 77. Otherwise as
paper_measure.py.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time

import gradwire
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import paper_measure as measure  # noqa: E402

RANKS = 4
COLUMNS = ("task", "link", "mbit", "codec", "values", "sent", "seconds", "ratio", "low", "high")
GLOO = "fp32, Gloo"
FRAMES = ("lossless", "explicit 23", "derived 14", "derived 12")


class Raw:
    """fp32 by the same messages as all codecs."""

    def encode(self, values, _hop):
        return memoryview(values).cast("B")

    def decode_add(self, message, total):
        total += np.frombuffer(message, np.float32)

    def decode(self, message, out):
        out[:] = np.frombuffer(message, np.float32)


class Packed:
    """zstd, zlib or LZ4. `peer` keeps what it has made or is given in its area."""

    def __init__(self, peer):
        self.peer = peer

    def encode(self, values, _hop):
        size = self.peer.encode(values)
        return self.peer.packed if isinstance(self.peer, measure.Zlib) else bytes(memoryview(self.peer.area)[:size])

    def decode(self, message, out):
        if isinstance(self.peer, measure.Zlib):
            self.peer.packed = message
        else:
            ctypes.memmove(self.peer.area, np.frombuffer(message, np.uint8).ctypes.data, len(message))
        self.peer.decode(len(message), out)

    def decode_add(self, message, total):
        values = np.full_like(total, np.nan)  # what a codec leaves is seen
        self.decode(message, values)
        total += values


class Frames:
    """GCOMP, without the map of a step, which begin() makes: it is a part of the time."""

    def __init__(self, options, case, rank):
        self.codec, self.case, self.rank, self.map = gradwire.Codec(**options), case, rank, None
        self.mapped = "constant_drop" not in options

    def begin(self):
        if self.mapped:
            self.map = gradwire.Map.of(self.case["rule"], gradwire.State(*self.case["state"]))

    def part_of(self, part):
        self.part = part
        return self

    def encode(self, values, hop):
        stream = gradwire.Stream(seed=1, first_element=self.part.start, step_index=1, rank=self.rank, hop=hop)
        return self.codec.encode(values, map=self._map(), stream=stream)

    def decode_add(self, message, total):
        self.codec.decode_add(message, total, map=self._map())

    def decode(self, message, out):
        self.codec.decode(message, map=self._map(), out=out)

    def _map(self):
        return self.map[self.part] if self.mapped else None


# ---- one rank -------------------------------------------------------------------------------------------------------


def exchange(messages, rank):
    """Sends messages[r] to each other rank r; returns theirs. A message's size goes ahead of it."""
    import torch
    import torch.distributed as dist

    others = [(rank + i) % RANKS for i in range(1, RANKS)]  # not all to one at a time
    packed = {r: torch.frombuffer(bytearray(messages[r]), dtype=torch.uint8) for r in others}
    sizes = {r: torch.zeros(1, dtype=torch.int64) for r in others}
    works = [dist.isend(torch.tensor([len(packed[r])]), r, tag=1) for r in others]
    works += [dist.isend(packed[r], r, tag=2) for r in others]
    for r in others:
        dist.recv(sizes[r], r, tag=1)
    found = {r: torch.empty(sizes[r].item(), dtype=torch.uint8) for r in others}
    works += [dist.irecv(found[r], r, tag=2) for r in others]
    for work in works:
        work.wait()
    return {r: found[r].numpy().data for r in others}, sum(len(packed[r]) for r in others)


def all_reduce(codec, values, total, rank):
    """A2A+AG: shards to their owners, which add and send the sum to all. Returns the bytes sent."""
    from simulated_workers import shards

    parts = shards(values.size, RANKS)

    def at(part):
        return codec.part_of(part) if isinstance(codec, Frames) else codec

    if isinstance(codec, Frames):
        codec.begin()
    own = parts[rank]
    theirs, sent = exchange([at(p).encode(values[p], 0) if p is not own else b"" for p in parts], rank)
    total[own] = 0
    for r in range(RANKS):
        if r == rank:
            total[own] += values[own]
        else:
            at(own).decode_add(theirs[r], total[own])
    message = at(own).encode(total[own], 1)
    sums, more = exchange([message] * RANKS, rank)
    for r, part in enumerate(parts):
        at(part).decode(message if r == rank else sums[r], total[part])
    return sent + more


def codecs_of(case, rank, size):
    found = {"fp32, A2A+AG": Raw(), "zstd -1": Packed(measure.Zstd(size, 1)), "LZ4": Packed(measure.Lz4(size))}
    found["zlib -1"] = Packed(measure.Zlib(1))
    return found | {f"gcomp {name}": Frames(measure.SIZES[name], case, rank) for name in FRAMES}


def load_case(path):
    with np.load(path) as f:
        names = sorted(name for name in f.files if name.startswith("state"))
        rule = gradwire.Rule(gradwire.Optimizer(**json.loads(str(f["optimizer"]))))
        return {"gradients": f["gradients"], "state": [f[name] for name in names], "rule": rule}


def rank_main(path, repeats):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, case = dist.get_rank(), load_case(path)
    values, exact = case["gradients"][rank], case["gradients"].astype(np.float64).sum(0)
    total, ways = np.empty_like(values), codecs_of(case, rank, values.nbytes)
    found = {name: {"sent": None, "seconds": []} for name in (GLOO, *ways)}
    for repeat in range(repeats + 1):
        for name, row in found.items():
            dist.barrier()
            begin = time.perf_counter()
            if name == GLOO:
                total[:] = values
                dist.all_reduce(torch.from_numpy(total))
            else:
                row["sent"] = all_reduce(ways[name], values, total, rank)
            took = torch.tensor(time.perf_counter() - begin)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            error = np.square(total - exact).sum() / np.square(exact).sum()
            if error > (0.2 if "derived" in name else 1e-8):
                sys.exit(f"{name}: the sum is wrong, NMSE {error:.3g}")
            row["seconds"] += [took.item()] if repeat else []  # the first one warms caches
    if rank == 0:
        print("FOUND " + json.dumps(found))


# ---- all of them ----------------------------------------------------------------------------------------------------


def make_case(task, steps, path):
    """The four workers' gradients of a step, parameters and optimizer, all from before it."""
    import torch
    from simulated_workers import Plain, Workers

    torch.set_num_threads(1)
    workers = Workers(task, 1, RANKS)
    for _ in range(steps):
        gradients, _ = workers.gradients()
        workers.apply(Plain().exchange(workers, gradients)[0])
    gradients, _ = workers.gradients()
    state = {f"state{i}": array for i, array in enumerate(workers.state())}
    np.savez(path, gradients=np.stack(gradients), optimizer=json.dumps(workers.optimizer_options()), **state)


def rows_of(task, link, path, repeats):
    from links import probe
    from links.link_spec import LinkSpec
    from links.network import Network
    from links.ranks import run_ranks

    with Network(RANKS, LinkSpec.parse(link)) as net:
        seen = probe.measure(net)
        words = [sys.executable, os.path.abspath(__file__), "--case", path, "--repeats", str(repeats)]
        outputs = run_ranks(net, words, 900)
    line = next(line for line in outputs[0].output.splitlines() if line.startswith("FOUND "))
    found = json.loads(line.removeprefix("FOUND "))
    with np.load(path) as f:
        values = f["gradients"].shape[1]
    for name, row in found.items():
        ratios = [a / b for a, b in zip(found[GLOO]["seconds"], row["seconds"])]
        numbers = (statistics.median(row["seconds"]), statistics.median(ratios), min(ratios), max(ratios))
        yield (task, link, float(min(seen["duplex_mbit"])), name, values, row["sent"], *map(float, numbers))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("task", nargs="?")
    parser.add_argument("--link", action="append")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--case", help=argparse.SUPPRESS)  # of a rank
    chosen = parser.parse_args()
    if chosen.case:
        return rank_main(chosen.case, chosen.repeats)
    if not chosen.task:
        parser.error("no task")
    from links import permission

    why = permission.refusal()
    if why:
        print(f"SKIP limited links: {why}")
        return 77
    permission.enter()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.npz")
        make_case(chosen.task, chosen.steps, path)
        for link in chosen.link or ["100mbit", "1gbit"]:
            measure.append("links", COLUMNS, list(rows_of(chosen.task, link, path, chosen.repeats)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
