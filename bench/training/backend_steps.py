"""One rank of a training with FSDP2 or DDP, over Gloo and over the backend gradwire in turn, step by step:

    cd bench && PYTHONPATH=../python:. python3 -m links --ranks 2 --link 100mbit -- \
        PYTHON -m training.backend_steps --with fsdp2 --task gpt10m --steps 6

Needs torch 2. Both models begin alike and see the same batches. Rank 0 prints medians and the last losses.
"""

import argparse
import os
import statistics
import time

import gradwire.torch
import torch
import torch.distributed as dist

from training.task_list import make_task


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--task", default="gpt10m")
    parser.add_argument("--with", dest="kind", default="fsdp2", choices=["fsdp2", "ddp"])
    parser.add_argument("--nmse", type=float, default=1e-3)
    parser.add_argument("--gathers", default="auto", choices=["auto", "frames", "gloo"])
    parser.add_argument("--steps", type=int, default=6, help="measured steps of each")
    parser.add_argument("--warm", type=int, default=3, help="steps of each before them")
    parser.add_argument("--batch", type=int, default=0, help="sequences of a rank; 0: the task's")
    return parser.parse_args()


class Run:
    """A model and its optimizer over one backend."""

    def __init__(self, name, chosen):
        options = gradwire.torch.BackendOptions(nmse=chosen.nmse, gathers=chosen.gathers)
        self.group = dist.new_group(backend=name, pg_options=options if name == "gradwire" else None)
        self.name, self.task = name, make_task(chosen.task, 0)
        self.batch = chosen.batch or self.task.batch
        torch.manual_seed(0)
        self.net = self._wrapped(self.task.model(), chosen.kind)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=self.task.lr["adamw"])
        self.losses, self.seconds = [], []

    def _wrapped(self, net, kind):
        if kind == "ddp":
            return torch.nn.parallel.DistributedDataParallel(net, process_group=self.group)
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(self.group, "cpu")
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    def step(self, number):
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        ranks = dist.get_rank(), dist.get_world_size()
        loss = self.task.loss(self.net, self.task.sample(number, *ranks, self.batch))
        loss.backward()
        self.optimizer.step()
        dist.barrier(group=self.group)
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - begin)


def main():
    chosen = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    runs = [Run(name, chosen) for name in ("gloo", "gradwire")]
    for number in range(chosen.warm + chosen.steps):
        for run in runs if number % 2 == 0 else reversed(runs):
            run.step(number)
    if dist.get_rank() == 0:
        gloo, ours = (statistics.median(run.seconds[chosen.warm :]) for run in runs)
        ratios = [a / b for a, b in zip(*(run.seconds[chosen.warm :] for run in runs))]
        totals = gradwire.torch.backend_totals(runs[1].group)
        share = totals["sent_size"] / totals["full_size"] if totals["full_size"] else 1.0
        print(f"{chosen.task} with {chosen.kind}, {dist.get_world_size()} ranks, {os.environ.get('LINK', '')}")
        print(f"seconds a step: gloo {gloo:.3f}, gradwire {ours:.3f}; ratio of pairs {statistics.median(ratios):.2f}")
        print(
            f"min {min(runs[0].seconds):.3f} {min(runs[1].seconds):.3f}; ratios {min(ratios):.2f} to {max(ratios):.2f}"
        )
        print(f"losses: gloo {runs[0].losses[-1]:.4f}, gradwire {runs[1].losses[-1]:.4f}")
        print(f"sums: {share:.3f} of their tensors' bytes; {totals}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
