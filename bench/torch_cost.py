#!/usr/bin/env python3
"""CPU time of the stages of one step of gradwire.torch, without transport: all ranks in one process.

    bench/torch_cost.py [--params 10700000] [--ranks 4] [--threads 1] [--tolerance 12] [--dead-zone] [--steps 5]
                        [--snapshot data/samples/bertbase-adamw-step0050]

The gradients are those of the snapshot, repeated to the given number of parameters, plus noise of each rank's own. One
pool of --threads threads does the work of all ranks, so the wall time of a stage over the ranks is what --threads cores
need for one rank. Needs the package `gradwire` and torch.
"""

import argparse
import ctypes
import json
import time
from pathlib import Path

import gradwire.backends
import gradwire.maps
import numpy as np
import torch
from gradwire._library import check
from gradwire._structs import gw_collective_shape, gw_exchange_config, gw_exchange_run
from gradwire.gcomp import Options
from gradwire.torch import _pool
from gradwire.torch.optimizers import ParamRegistry, Place

STAGES = ("map_ns", "encode_ns", "reduce_ns", "decode_ns")


def load(prefix, name, length):
    values = np.load(f"{prefix}-{name}.npy")
    return torch.from_numpy(np.resize(values, length).astype(np.float32))


def make_optimizer(prefix, length):
    """An AdamW in the state of the snapshot, with one parameter for each 2^20 values."""
    about = json.loads(Path(f"{prefix}.json").read_text())
    arrays = [load(prefix, name, length).split(1 << 20) for name in ("param", "exp_avg", "exp_avg_sq")]
    params = [torch.nn.Parameter(part) for part in arrays[0]]
    hyper = {key: about["hyper"][key] for key in ("lr", "betas", "eps", "weight_decay")}
    optimizer = torch.optim.AdamW(params, **hyper)
    for param, m, v in zip(params, *arrays[1:]):
        optimizer.state[param] = {"step": torch.tensor(float(about["step"] - 1)), "exp_avg": m, "exp_avg_sq": v}
    return optimizer, params


class Rank:
    def __init__(self, pool, rank, args, values, options):
        config = gw_exchange_config(
            shape=gw_collective_shape(len=args.params, rank_count=args.ranks, piece_len=args.piece),
            rank=rank,
            codec=options.struct(),
            fallback_codec=options.struct(),
            user=rank + 1,
            segment_max=args.params // (1 << 20) + 1,
        )
        config.shape.chunk_log2 = config.codec.chunk_log2
        self.exchange = _pool.Exchange(pool, config)
        self.memory = torch.empty(self.exchange.info.memory_size, dtype=torch.uint8)
        self.address = self.memory.data_ptr()
        self.exchange.memory(self.address)
        self.shard_pieces = self.exchange.info.layout.shard_pieces
        self.values = values


def pump(pool, ranks, end):
    """Moves messages until every rank has had the event `end`."""
    ended = 0
    while ended < len(ranks):
        for event in pool.wait(10.0):
            source = event.user - 1
            ended += event.kind == end
            assert event.word == 0, hex(event.word)
            if event.kind not in (_pool.SEND, _pool.SHARE):
                continue
            piece, size = event.piece, event.size
            message = ranks[source].address + event.offset
            owner = piece // ranks[0].shard_pieces
            for peer in [owner] if event.kind == _pool.SEND else range(len(ranks)):
                if peer != source:
                    ctypes.memmove(
                        ranks[peer].address + ranks[peer].exchange.buffer_offset(piece, source), message, size
                    )
                    ranks[peer].exchange.receive(piece, source)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--params", type=int, default=10_700_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tolerance", type=int, default=12)
    parser.add_argument("--piece", type=int, default=1 << 18)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dead-zone", action="store_true")
    parser.add_argument("--no-checksum", action="store_true")
    parser.add_argument("--backends", help="permitted backends, such as scalar,avx2; all unless given")
    parser.add_argument("--snapshot", default=str(root / "data/samples/bertbase-adamw-step0050"))
    args = parser.parse_args()
    torch.set_num_threads(1)

    optimizer, params = make_optimizer(args.snapshot, args.params)
    gradient = load(args.snapshot, "grad", args.params)
    options = Options(
        quantum_mode="derived",
        rounding="stochastic",
        tolerance_bits=args.tolerance,
        dead_zone=args.dead_zone,
        checksum=not args.no_checksum,
        backends=args.backends and gradwire.backends.mask(*args.backends.split(",")),
    )
    pool = _pool.Pool(args.threads)
    generator = torch.Generator().manual_seed(1)
    ranks = []
    for rank in range(args.ranks):
        noise = torch.randn(args.params, generator=generator) * gradient.abs() * 0.5
        ranks.append(Rank(pool, rank, args, gradient + noise, options))
    originals = [rank.values.clone() for rank in ranks]
    registry = ParamRegistry([optimizer], seed=0)
    offsets = np.cumsum([0, *(p.numel() for p in params)])
    places = [Place(p, int(o), p.numel(), registry.stream_seed(i)) for i, (p, o) in enumerate(zip(params, offsets))]

    lines = []
    for step in range(args.steps + 1):
        before = [rank.exchange.stats() for rank in ranks]
        start = time.perf_counter()
        tables = [
            registry.segments(places, float(args.ranks), gradwire.maps.Limits(tolerance_bits=args.tolerance))
            for _ in ranks
        ]
        for rank, table in zip(ranks, tables):
            rank.exchange.start_map(table.struct, float(args.ranks))
        pump(pool, ranks, _pool.MAP)
        mapped = time.perf_counter()
        for rank, original in zip(ranks, originals):
            rank.values.copy_(original)
        run_start, copies_start = time.perf_counter(), time.thread_time()
        for rank in ranks:
            address = rank.values.data_ptr()
            run = gw_exchange_run(values=address, result=address, scale=1 / args.ranks, step_index=step)
            with rank.exchange as handle:
                check(_pool.native.gw_exchange_start(handle, run))
        pump(pool, ranks, _pool.DONE)
        end, copies_end = time.perf_counter(), time.thread_time()
        after = [rank.exchange.stats() for rank in ranks]
        stages = [
            np.mean([getattr(b, name) - getattr(a, name) for a, b in zip(before, after)]) / 1e6 for name in STAGES
        ]
        sent = np.mean([b.sent_size - a.sent_size for a, b in zip(before, after)])
        walls = [1e3 * t / args.ranks for t in (mapped - start, end - run_start, copies_end - copies_start)]
        if step:  # the first one touches memory for the first time
            lines.append((*stages, *walls, sent))
    for rank in ranks:
        assert torch.equal(rank.values, ranks[0].values)
    median = np.median(np.array(lines), axis=0)
    share = median[-1] / (8 * args.params * (args.ranks - 1) / args.ranks)
    print(f"{args.params * 4 / 1e6:.1f} MB, {args.ranks} ranks, t = {args.tolerance}, {args.threads} threads")
    print("CPU ms per rank: map %.1f, encode %.1f, owner step %.1f, decode %.1f" % tuple(median[:4]))
    print(f"CPU ms on the critical path: {median[1:4].sum():.1f}")
    print("wall ms per rank: map %.1f, the rest %.1f" % tuple(median[4:6]))
    print(f"CPU ms per rank in place of transport: {median[6]:.1f}, on a thread of its own")
    print(f"bytes: {100 * share:.2f} % of a plain reduce-scatter and all-gather")


if __name__ == "__main__":
    main()
