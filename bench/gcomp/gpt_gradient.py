#!/usr/bin/env python3
"""A snapshot of the GPT of bench/training after some steps of AdamW: files NAME.json and NAME-*.npy. Needs torch.

    bench/gcomp/gpt_gradient.py FOLDER [--task gpt10m] [--steps 100] [--seed 1] [--ranks 64]

The gradient is that of the next step. NAME-grad-rankNN.npy are those of ranks with batches of their own; rank 0 has the
snapshot's. A tenth of every tensor is kept, its first values, at least 256.
"""

import argparse
import json
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from training.task_list import make_task  # noqa: E402


def kept(tensors):
    return np.concatenate([t.detach().flatten()[: max(256, t.numel() // 10)].numpy() for t in tensors])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--task", default="gpt10m")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=64)
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    task = make_task(chosen.task, chosen.seed)
    model = task.model()
    hyper = {"lr": task.lr["adamw"], "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
    optimizer = torch.optim.AdamW(model.parameters(), **hyper)

    def gradient(step, rank):
        optimizer.zero_grad()
        loss = task.loss(model, task.sample(step, rank, chosen.ranks, task.batch))
        loss.backward()
        return loss.item()

    for step in range(chosen.steps):
        gradient(step, 0)
        optimizer.step()
    stem = os.path.join(chosen.folder, f"{chosen.task}-adamw-step{chosen.steps + 1:04d}")
    tensors = list(model.named_parameters())
    params = [p for _, p in tensors]
    for rank in reversed(range(chosen.ranks)):
        loss = gradient(chosen.steps, rank)
        np.save(f"{stem}-grad-rank{rank:02d}.npy", kept([p.grad for p in params]))
    np.save(f"{stem}-grad.npy", kept([p.grad for p in params]))
    np.save(f"{stem}-param.npy", kept(params))
    for key in ("exp_avg", "exp_avg_sq"):
        np.save(f"{stem}-{key}.npy", kept([optimizer.state[p][key] for p in params]))
    about = {
        "model": chosen.task,
        "optimizer": "adamw",
        "step": chosen.steps + 1,
        "loss": loss,
        "hyper": hyper | {"amsgrad": False, "maximize": False},
        "tensors": [{"name": n, "shape": list(p.shape), "taken": kept([p]).size} for n, p in tensors],
    }
    with open(f"{stem}.json", "w", encoding="utf-8") as f:
        json.dump(about, f, indent=1)
    print(f"{stem}.json")


if __name__ == "__main__":
    main()
