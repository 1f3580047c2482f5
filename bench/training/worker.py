"""One rank of a training run; `python3 -m training.worker --help`. Started by grid.py on every rank of a Network.

Writes OUT.rankR.jsonl: a first line that says what runs, a line per step, a line per check, a last line. Times are of
the step alone (forward to optimizer.step, until the gradients of all buckets are there); checks are outside.

--compute real    forward and backward of the task
--compute replay  four real gradients of this rank, recorded after the warm-up steps, go through DDP in turn instead
                  of a backward pass; hooks, optimizer and the moments it keeps are real. The time of such a step has
                  nearly no
                  computing of the model in it: what a step costs where the model runs elsewhere. Its losses mean
                  nothing.
"""

import argparse
import hashlib
import json
import os
import resource
import time

import torch
import torch.distributed as dist
from links.link_spec import LinkSpec
from torch.nn.parallel import DistributedDataParallel

from . import emulate, hook_list, task_list

REPLAYED = 4


def interface(emulated):
    """(bytes received, bytes sent) of the link so far; of this namespace only. None without a link of our own."""
    if emulated is not None:
        return None, emulated.sent_bytes
    with open("/proc/self/net/dev", encoding="ascii") as f:
        for line in f:
            name, _, numbers = line.partition(":")
            if name.strip() == "eth0" and "GW_LINK" in os.environ:
                numbers = numbers.split()
                return int(numbers[0]), int(numbers[8])
    return None


def cpu_seconds():
    """Of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def parameter_hash(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def make_optimizer(name, model, lr, hook):
    if name == "adamw":
        # One pass over memory, on CPUs from torch 2.4 on: 16 ms in place of 53 for 10.7 million values (torch 2.15).
        fused = {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {}
        return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, **fused)
    factor, momentum = hook_list.sgd_of(hook)
    return torch.optim.SGD(model.parameters(), lr=lr * factor, momentum=momentum)


class Run:
    def __init__(self, options):
        self.options = options
        dist.init_process_group("gloo")
        emulated = "GW_EMULATED" in os.environ
        self.link = emulate.install(LinkSpec.parse(os.environ["GW_LINK"])) if emulated else None
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.task = task_list.make_task(options.task, options.seed)
        self.batch = options.batch or self.task.batch
        torch.manual_seed(options.seed)
        self.model = self.task.model()
        cap = hook_list.bucket_of(options.hook)[1]
        self.ddp = self.wrap(cap if options.bucket_mb is None else options.bucket_mb)
        kind = options.optimizer or self.task.optimizer
        self.optimizer = make_optimizer(kind, self.model, options.lr or self.task.lr[kind], options.hook)
        self.hook = hook_list.install(self.ddp, self.optimizer, options.hook)
        self.validation = self.task.validation(self.rank, self.ranks) if options.check else []
        self.replayed = []
        self.samples = 0  # that the probe took
        self.ended = time.perf_counter()  # the last step
        self.file = open(f"{options.out}.rank{self.rank}.jsonl", "w", encoding="utf-8")
        self.write(
            kind="start",
            task=options.task,
            hook=options.hook,
            runs=self.hook.what,
            seed=options.seed,
            optimizer=kind,
            lr=self.optimizer.param_groups[0]["lr"],
            batch=self.batch,
            ranks=self.ranks,
            compute=options.compute,
            link=os.environ.get("GW_LINK"),
            emulated=self.link is not None,
            parameters=sum(p.numel() for p in self.model.parameters()),
            data=getattr(self.task, "digest", None),
            torch=torch.__version__,
            cpus=len(os.sched_getaffinity(0)),
        )

    def wrap(self, bucket_mb):
        if bucket_mb is None:
            return DistributedDataParallel(self.model)
        if bucket_mb > 0:
            return DistributedDataParallel(self.model, bucket_cap_mb=bucket_mb)
        import gradwire.torch

        return gradwire.torch.planned_ddp(self.model, hook_list.plan_of(self.options.hook))

    def probe(self, folder, codecs, options):
        """Costs of link and codecs of this run, with gradients and optimizer state as they are now; when gradients are
        there if nothing is sent. Every backward pass has a batch of its own, as steps have."""
        import gradwire.torch

        self.optimizer.zero_grad()
        with self.ddp.no_sync():  # gradients of this rank alone, as the hook gets them
            self.task.loss(self.ddp, self.next_sample()).backward()
        found = gradwire.torch.probe.measure(
            self.optimizer,
            {name: {} for name in codecs.split(",")},
            state=self.hook.state,
            backward=self.backward_alone,
            **hook_list.options_of(options),
        )
        found.write(folder)
        profile = os.path.join(folder, "profile.json")
        gradwire.torch.probe.record_backward(self.hook.state, profile, self.backward_alone)

    def probe_levels(self, folder, codecs, shape):
        """The same for plans of option trees; shape: machines x ranks of each."""
        import gradwire.torch

        nodes, gpus = map(int, shape.split("x"))
        self.optimizer.zero_grad()
        with self.ddp.no_sync():
            self.task.loss(self.ddp, self.next_sample()).backward()
        chosen = {name: {} for name in codecs.split(",")}
        found = gradwire.torch.probe_levels.measure(self.optimizer, chosen, nodes=nodes, gpus=gpus)
        found.write(folder)
        profile = os.path.join(folder, "profile.json")
        gradwire.torch.probe.record_backward(self.hook.state, profile, self.backward_alone)

    def next_sample(self):
        self.samples += 1
        return self.task.sample(self.options.steps + self.samples, self.rank, self.ranks, self.batch)

    def backward_alone(self):
        self.optimizer.zero_grad()
        self.task.loss(self.ddp, self.next_sample()).backward()

    def write(self, **row):
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def record_gradients(self, step):
        """Local gradients of four batches, before any exchange."""
        for turn in range(REPLAYED):
            self.model.zero_grad(set_to_none=True)
            self.task.loss(self.model, self.task.sample(step + turn, self.rank, self.ranks, self.batch)).backward()
            self.replayed.append([p.grad.clone() for p in self.model.parameters()])
        self.model.zero_grad(set_to_none=True)

    def loss(self, step):
        if not self.replayed:
            return self.task.loss(self.ddp, self.task.sample(step, self.rank, self.ranks, self.batch))
        return self.replay_model(step)

    def replay_model(self, step):
        """A loss whose gradients are the recorded ones; through DDP's forward, so that its reducer is armed."""
        gradients = self.replayed[step % REPLAYED]
        forward = self.model.forward
        self.model.forward = lambda: sum(torch.sum(p * g) for p, g in zip(self.model.parameters(), gradients))
        try:
            return self.ddp()
        finally:
            self.model.forward = forward

    def step(self, step):
        if not self.options.consecutive:
            dist.barrier()
        before, cpu, begin = interface(self.link), cpu_seconds(), time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.loss(step)
        loss.backward()
        self.optimizer.step()
        seconds, after = time.perf_counter() - begin, interface(self.link)
        if self.options.consecutive:
            seconds, self.ended = begin + seconds - self.ended, begin + seconds
        row = {"kind": "step", "step": step, "seconds": seconds, "cpu": cpu_seconds() - cpu, "loss": loss.item()}
        if before and after:
            row["sent"] = after[1] - before[1]
            row["received"] = None if self.link else after[0] - before[0]
        payload = self.hook.payload
        row["payload"] = payload(step + 1) if payload else None
        self.write(**row)

    def check(self, step):
        self.model.eval()
        with torch.no_grad():
            parts = [(self.task.loss(self.model, sample).item(), len(sample[0])) for sample in self.validation]
        self.model.train()
        mean = sum(loss * n for loss, n in parts) / sum(n for _, n in parts)
        self.write(
            kind="check", step=step, loss=mean, samples=sum(n for _, n in parts), hash=parameter_hash(self.model)
        )

    def run(self):
        options = self.options
        for step in range(options.steps):
            if options.compute == "replay" and step == options.warmup:
                self.record_gradients(step)
            self.step(step)
            if options.check and (step + 1) % options.check == 0:
                self.check(step + 1)
        if options.probe and options.machines:
            self.probe_levels(options.probe, options.codecs, options.machines)
        elif options.probe:
            self.probe(options.probe, options.codecs, options.probe_options)
        about = self.hook.about() if self.hook.about else None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.write(kind="end", hash=parameter_hash(self.model), hook_statistics=about, peak_memory=peak)
        self.file.close()
        dist.barrier()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--task", choices=task_list.TASKS, required=True)
    parser.add_argument("--hook", type=hook_list.check, default="none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=3, help="steps before --compute replay takes over")
    parser.add_argument("--batch", type=int, help="a rank's batch, default: the task's")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), help="default: the task's")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--check", type=int, default=0, help="validate and hash every so many steps; 0: never")
    parser.add_argument("--bucket-mb", type=float, help="bucket_cap_mb of DDP; 0: a bucket for each gradient")
    parser.add_argument("--probe", help="a folder: at the end cluster.json and codecs.json are written there")
    parser.add_argument("--machines", help="of --probe: 2x2 measures for plans of option trees")
    parser.add_argument("--codecs", default="bf16", help="of --probe, with commas")
    parser.add_argument("--probe-options", default="", help="NAME=VALUE of ddp_hook, with commas")
    parser.add_argument("--compute", choices=("real", "replay"), default="real")
    parser.add_argument(
        "--consecutive", action="store_true", help="no barrier before a step; its time is that from the last one's end"
    )
    return parser.parse_args()


def main():
    torch.set_num_threads(1)
    run = Run(arguments())
    run.run()
    os._exit(0)  # threads of hooks and of Gloo wait for work; they hold nothing that must be written


if __name__ == "__main__":
    main()
