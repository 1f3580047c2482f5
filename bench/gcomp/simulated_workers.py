"""Data-parallel training with all workers in one process, and the ways in which their gradients are added.

Needs torch and the package `gradwire`. Gradients are divided by the number of workers before they travel, as DDP does:
the wire scale of maps is 1.
"""

import os
import sys

import gradwire
import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from training.task_list import make_task  # noqa: E402

MOMENTUM, BETAS, EPS, WEIGHT_DECAY = 0.9, (0.9, 0.999), 1e-8, 0.01


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors]).numpy()


class Workers:
    """One model, since replicas have equal parameters, and one optimizer: SGD with a momentum, or AdamW."""

    def __init__(self, task_name, seed, workers):
        torch.manual_seed(seed)
        self.task, self.workers = make_task(task_name, seed), workers
        self.model = self.task.model()
        self.params = list(self.model.parameters())
        self.kind, self.step = self.task.optimizer, 0
        self.lr = self.task.lr[self.kind]
        if self.kind == "adamw":
            make = torch.optim.AdamW
            self.optimizer = make(self.params, lr=self.lr, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
        else:
            self.optimizer = torch.optim.SGD(self.params, lr=self.lr, momentum=MOMENTUM)

    def gradient(self, worker):
        """Of one worker's batch, and its loss."""
        self.model.zero_grad(set_to_none=True)
        loss = self.task.loss(self.model, self.task.sample(self.step, worker, self.workers, self.task.batch))
        loss.backward()
        return flat([p.grad for p in self.params]) / np.float32(self.workers), loss.item()

    def gradients(self):
        """Of all workers, and the mean of their losses."""
        found = [self.gradient(worker) for worker in range(self.workers)]
        return [gradient for gradient, _ in found], sum(loss for _, loss in found) / self.workers

    def apply(self, mean):
        """An optimizer step with this gradient."""
        parts = torch.from_numpy(mean).split([p.numel() for p in self.params])
        for param, part in zip(self.params, parts):
            param.grad = part.view_as(param)
        self.optimizer.step()
        self.step += 1

    def kept(self, key):
        """An array of the optimizer's state, zeros before the first step."""
        state = self.optimizer.state
        return flat([state[p].get(key, torch.zeros(1)).expand_as(p) for p in self.params])

    def state(self):
        """Parameters and the optimizer's arrays, as the map reads them."""
        names = ("exp_avg", "exp_avg_sq") if self.kind == "adamw" else ("momentum_buffer",)
        return [flat(self.params), *map(self.kept, names)]

    def optimizer_options(self):
        """Of gradwire.Optimizer, for the update to come."""
        kind = {"kind": "adamw", "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": WEIGHT_DECAY}
        if self.kind != "adamw":
            kind = {"kind": "momentum", "momentum": MOMENTUM}
        return {"lr": self.lr, "step": self.step + 1, **kind}

    def map(self, state):
        """Of the update to come, at wire scale 1 and for any tolerance."""
        return gradwire.Map.of(gradwire.Rule(gradwire.Optimizer(**self.optimizer_options())), gradwire.State(*state))

    def validation(self):
        """Mean loss of the validation set."""
        self.model.eval()
        with torch.no_grad():
            found = [(self.task.loss(self.model, s).item(), len(s[0])) for s in self.task.validation(0, 1)]
        self.model.train()
        return sum(loss * count for loss, count in found) / sum(count for _, count in found)


# ---- ways to add gradients ------------------------------------------------------------------------------------------


def shards(count, workers):
    return [slice(count * i // workers, count * (i + 1) // workers) for i in range(workers)]


class Plain:
    """fp32: sums in the order of the workers, or in the opposite one."""

    def __init__(self, order=1):
        self.order = order

    def exchange(self, workers, gradients):
        """The sum of the gradients, and the bytes that a worker sends: its shards to their owners, its sum to all."""
        total = np.zeros_like(gradients[0])
        for gradient in gradients[:: self.order]:
            total += gradient
        return total, 2 * (len(gradients) - 1) / len(gradients) * total.nbytes


class Coded:
    """Frames all-to-all, sum, all-gather. The owner adds the frames of the others and its own values, unrounded, in the
    order of the workers, and encodes the sum once. exact_every: every so many steps go as fp32, 0: none."""

    def __init__(self, exact_every=0, **options):
        self.codec, self.exact_every = gradwire.Codec(**options), exact_every
        self.mapped = "constant_drop" not in options

    def exchange(self, workers, gradients):
        if self.exact_every and (workers.step + 1) % self.exact_every == 0:
            return Plain().exchange(workers, gradients)
        map = workers.map(workers.state()) if self.mapped else None
        total, sent = np.zeros_like(gradients[0]), 0
        for owner, part in enumerate(shards(total.size, len(gradients))):
            sent += self._shard(workers.step, gradients, part, owner, map[part] if map else None, total[part])
        return total, sent / len(gradients)

    def _shard(self, step, gradients, part, owner, map, total):
        """Fills the sum of a shard. Returns the bytes that all workers send for it."""
        received = 0

        def encode(values, rank, hop):
            stream = gradwire.Stream(seed=1, first_element=part.start, step_index=step, rank=rank, hop=hop)
            return self.codec.encode(values, map=map, stream=stream)

        for rank, gradient in enumerate(gradients):
            if rank == owner:
                total += gradient[part]
                continue
            frame = encode(gradient[part], rank, 0)
            received += len(frame)
            self.codec.decode_add(frame, total, map=map)
        frame = encode(total, owner, 1)
        self.codec.decode(frame, map=map, out=total)
        return received + (len(gradients) - 1) * len(frame)


class Apart:
    """Workers that go their own ways and take the mean of their parameters every so many steps. Optimizer state stays
    with its worker."""

    def __init__(self, task_name, seed, workers, every):
        self.copies, self.every = [Workers(task_name, seed, workers) for _ in range(workers)], every

    def step(self):
        """All workers' next step. Returns the mean of their losses, and the bytes that each sends."""
        losses, copies = [], self.copies
        for worker, own in enumerate(copies):
            gradient, loss = own.gradient(worker)
            own.apply(gradient * np.float32(len(copies)))
            losses.append(loss)
        sent = self._meet() if copies[0].step % self.every == 0 else 0
        return sum(losses) / len(copies), sent

    def _meet(self):
        mean, sent = Plain().exchange(None, [flat(c.params) / np.float32(len(self.copies)) for c in self.copies])
        with torch.no_grad():
            for own in self.copies:
                parts = torch.from_numpy(mean).split([p.numel() for p in own.params])
                for param, part in zip(own.params, parts):
                    param.copy_(part.view_as(param))
        return sent

    def validation(self):
        return self.copies[0].validation()
