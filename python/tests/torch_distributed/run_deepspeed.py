#!/usr/bin/env python3
"""Trains a small net by DeepSpeed's ZeRO 1, 2 and 3 over Gloo or the backend gradwire, on CPUs.

    DS_ACCELERATOR=cpu torchrun --standalone --nproc-per-node 2 run_deepspeed.py [--backend gloo] [--nmse E]

Prints for each stage the mean loss of all ranks and the last steps, and what `backend_totals()` counts in all groups of
rank 0. Needs the package deepspeed, which compiles an operation when it is first started.
"""

from __future__ import annotations

import argparse
import logging
import os

import deepspeed
import gradwire.torch
import torch
import torch.distributed as dist

LAST = 5  # steps whose loss is told
FEATURES, RESULTS, BATCH = 32, 8, 32


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="gradwire", choices=["gloo", "gradwire"])
    parser.add_argument("--nmse", type=float, default=1e-3)
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=384)
    return parser.parse_args()


def _batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    given = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(1000 * step + rank))
    weights = torch.randn(FEATURES, RESULTS, generator=torch.Generator().manual_seed(5))
    return given, torch.tanh(given @ weights / 4)


def _train(stage: int, steps: int, width: int) -> float:
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, RESULTS),
    )
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": 200000},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    engine = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=2e-3), config=config)[0]
    losses = []
    for step in range(steps):
        given, wanted = _batch(step, dist.get_rank())
        loss = torch.nn.functional.mse_loss(engine(given), wanted)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    told = torch.tensor(sum(losses[-LAST:]) / LAST)
    dist.all_reduce(told)
    return told.item() / dist.get_world_size()


def _totals() -> dict[str, int]:
    """DeepSpeed makes groups of its own."""
    totals: dict[str, int] = {}
    for group in list(dist.distributed_c10d._world.pg_map):
        for name, value in gradwire.torch.backend_totals(group).items():
            totals[name] = totals.get(name, 0) + value
    return totals


def main() -> None:
    chosen = _arguments()
    logging.getLogger("DeepSpeed").setLevel("ERROR")
    torch.set_num_threads(1)
    if chosen.backend == "gradwire":
        gradwire.torch.set_default_error(chosen.nmse)
    deepspeed.init_distributed(dist_backend=chosen.backend)
    before: dict[str, int] = {}
    for stage in chosen.stages:
        loss = _train(stage, chosen.steps, chosen.width)
        totals = _totals() if chosen.backend == "gradwire" else {}
        if dist.get_rank() == 0:
            new = {name: value - before.get(name, 0) for name, value in totals.items()}
            print(f"{chosen.backend}, ZeRO {stage}, {dist.get_world_size()} ranks: loss {loss:.6f} {new}", flush=True)
        before = totals
    dist.barrier()
    os._exit(0)  # threads of DeepSpeed may be left


if __name__ == "__main__":
    main()
