#!/usr/bin/env python3
"""A snapshot of the GPT of bench/training after some steps of AdamW: files NAME.json and NAME-*.npy. Needs torch.

    bench/gcomp/gpt_gradient.py FOLDER [--task gpt10m] [--steps 100] [--seed 1]

The gradient is that of the next step. A tenth of every tensor is kept, its first values, at least 256.
"""

import argparse
import json
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from training.task_list import make_task  # noqa: E402


def kept(tensor):
    return tensor.detach().flatten()[: max(256, tensor.numel() // 10)].numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--task", default="gpt10m")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    task = make_task(chosen.task, chosen.seed)
    model = task.model()
    hyper = {"lr": task.lr["adamw"], "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
    optimizer = torch.optim.AdamW(model.parameters(), **hyper)
    for step in range(chosen.steps + 1):
        optimizer.zero_grad()
        loss = task.loss(model, task.sample(step, 0, 1, task.batch))
        loss.backward()
        if step < chosen.steps:
            optimizer.step()
    name = f"{chosen.task}-adamw-step{chosen.steps + 1:04d}"
    tensors = list(model.named_parameters())
    arrays = {"grad": [p.grad for _, p in tensors], "param": [p for _, p in tensors]}
    for key in ("exp_avg", "exp_avg_sq"):
        arrays[key] = [optimizer.state[p][key] for _, p in tensors]
    for key, parts in arrays.items():
        np.save(os.path.join(chosen.folder, f"{name}-{key}.npy"), np.concatenate([kept(part) for part in parts]))
    about = {
        "model": chosen.task,
        "optimizer": "adamw",
        "step": chosen.steps + 1,
        "loss": loss.item(),
        "hyper": hyper | {"amsgrad": False, "maximize": False},
        "tensors": [{"name": n, "shape": list(p.shape), "taken": len(kept(p))} for n, p in tensors],
    }
    with open(os.path.join(chosen.folder, f"{name}.json"), "w", encoding="utf-8") as f:
        json.dump(about, f, indent=1)
    print(os.path.join(chosen.folder, f"{name}.json"))


if __name__ == "__main__":
    main()
