"""A training run with THC whose workers are all in this process: `python3 -m training.thc_workers --help`, from bench/.

Every worker has the gradient of its part of the batch, an error memory and a rank. The library computes norms,
indices, lanes and means (gradwire.thc); the maximum of the norms and the sum of the lanes, which an all-reduce, a
server or a switch would make, are NumPy's. What can go wrong:

    loss        A packet is a block of 1024 values. Up: it is missing in the sum, and the mean is that of the others.
                Down: its worker takes zeros for it, as the library decodes a block without contributors. From then on
                replicas differ, and every worker computes gradients at its own parameters.
    stragglers  So many workers come too late in a step, others in every step: nothing of theirs is in the sum.

An answer names the contributors of each block. A worker that gets an answer without itself puts its contribution back
into the error memory (gw_thc_error_restore). As it counts in a later step, sums are divided by the number of workers: a
mean over contributors would count everything workers/contributors times. With --dropped nothing returns, and means are
over the contributors. Norms, one word a block, are never lost.

The learning rate falls linearly to zero: validation losses at the end then differ little from step to step.

Prints a line of JSON: losses, and how far means and replicas are off.
"""

import argparse
import copy
import dataclasses
import json
import statistics

import numpy as np
import torch
from gradwire import thc
from gradwire._library import check, lib
from gradwire._structs import gw_thc_indices, gw_thc_range
from gradwire.workspace import scratch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from . import task_list
from .worker import make_optimizer

PACKET = 1024  # values
TAIL = 0.1  # share of the steps whose mean is the training loss
VARIANTS = ("fp32", "thc", "uniform", "no-feedback", "plain", "plain-uniform")


def options_of(variant, bits, workers, seed):
    """Options of a variant, each with the share p of clamped values that the library recommends for it.

    uniform: the indices are the grid points, as a table of granularity 2^bits - 1. plain: no rotation; the range of a
    block is that of its values over all workers, and there is no error feedback.
    """
    recommended = thc.options(bits, workers, seed=seed, error_feedback=variant in ("thc", "uniform"))
    if variant in ("thc", "no-feedback"):
        return recommended
    fullest = 255 // ((1 << bits) - 1)  # of so many workers no other table fits lanes of 8 bits
    even = thc.options(bits, fullest, lane_bits=8, error_feedback=True)
    if variant == "uniform":
        return dataclasses.replace(recommended, table=even.table, threshold_bits=even.threshold_bits)
    table = even.table if variant == "plain-uniform" else recommended.table
    return dataclasses.replace(recommended, table=table, transform="plain", threshold_bits=0)


def runs_of(chosen):
    """(first, count) of each run of chosen blocks."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], chosen.astype(np.int8), [0]))))
    return [(int(first), int(end - first)) for first, end in zip(edges[::2], edges[1::2])]


class PlainSum:
    """As ThcSum, of fp32 values. What is left out and returns is added to the worker's next gradient."""

    def __init__(self, workers, len, returns):
        self.blocks = -(-len // PACKET)
        self.lens = np.minimum(PACKET, len - PACKET * np.arange(self.blocks))
        self.returns = returns
        self.errors = [np.zeros(len, np.float32) if returns else None for _ in range(workers)]
        self.values = [None] * workers  # of the last step

    def mean(self, gradients, step, arrived):
        """Of all workers' gradients and error memories. arrived: of each worker and block."""
        counts = len(gradients) if self.returns else np.maximum(1, arrived.sum(axis=0))
        shares = (arrived / counts).astype(np.float32)
        total = np.zeros(gradients.shape[1], np.float32)
        for rank, (gradient, share) in enumerate(zip(gradients, shares)):
            self.values[rank] = gradient + self.errors[rank] if self.returns else gradient
            total += self.values[rank] * np.repeat(share, self.lens)
        return total

    def put_back(self, told):
        for error, values, known in zip(self.errors, self.values, told):
            if self.returns:
                error[:] = values * np.repeat(known, self.lens)


class ThcSum:
    """Means by the library over the workers whose packets arrive; with returns, their sum over all workers."""

    def __init__(self, options, workers, len, returns):
        self.codec = thc.Codec(options)
        self.len, self.blocks = len, self.codec.block_count(len)
        self.lane_count = lib.gw_thc_range_lanes(self.codec.handle, len, 0, self.blocks)
        self.returns = returns and options.error_feedback
        feedback = options.error_feedback
        self.errors = [np.zeros(len, np.float32) if feedback else None for _ in range(workers)]
        self.indices = [None] * workers  # these three of the last step
        self.patterns = self.round = None

    def mean(self, gradients, step, arrived):
        parts = [thc.Part(round=step, rank=rank) for rank in range(len(self.errors))]
        work = list(zip(gradients, parts, self.errors))
        self.patterns = np.maximum.reduce([self.codec.norms(values, part, error=error) for values, part, error in work])
        self.round, total = step, None
        for rank, (values, part, error) in enumerate(work):
            self.indices[rank] = self.codec.encode(values, self.patterns, part, error=error)
            lanes = self.codec.expand(self.indices[rank], self.len, part)
            self._drop(lanes, ~arrived[rank])
            total = lanes if total is None else np.add(total, lanes, out=total)
        part = thc.Part(round=step)
        if not self.returns:
            return self.codec.decode_reduced(total, self.patterns, self.len, part)
        return self.codec.decode_reduced(total, self.patterns, self.len, part, mode="sum") / np.float32(len(work))

    def _drop(self, lanes, lost):
        """Takes lost blocks out of a worker's lanes and counts, which are one behind the other (gw_thc_expand)."""
        for first, count in runs_of(lost):
            lanes[first * PACKET : min((first + count) * PACKET, self.lane_count)] = 0
            lanes[self.lane_count + first : self.lane_count + first + count] = 0

    def put_back(self, told):
        """Contributions of the last step into error memories. told: of each worker and block, whether the worker knows
        that the block was left out."""
        for rank, error in enumerate(self.errors):
            for first, count in runs_of(told[rank]) if self.returns else ():
                self._restore(rank, error[first * PACKET : (first + count) * PACKET], first, count)

    def _restore(self, rank, error, first, count):
        handle = self.codec.handle
        begin = lib.gw_thc_indices_size(handle, self.len, 0, first)
        ours = self.indices[rank][begin : begin + lib.gw_thc_indices_size(handle, self.len, first, count)]
        maxima = self.patterns[first : first + count]
        packed = gw_thc_indices(ours.ctypes.data, ours.size, maxima.ctypes.data)
        blocks = gw_thc_range(self.len, first, count, self.round, rank)
        workspace = scratch(lib.gw_thc_workspace_size(handle))
        check(lib.gw_thc_error_restore(handle, blocks, packed, error.ctypes.data, workspace))


class Network:
    """What is lost, and who is late, in a step: the same for every codec."""

    def __init__(self, seed, workers, blocks, loss, stragglers):
        self.seed, self.shape, self.loss, self.stragglers = seed, (workers, blocks), loss, stragglers

    def draw(self, step):
        """Whether each worker's packets arrive in time, and whether answers arrive, by worker and block."""
        source = np.random.default_rng([self.seed, step])
        arrived, answered = source.random((2, *self.shape)) >= self.loss
        arrived[source.permutation(self.shape[0])[: self.stragglers]] = False
        return arrived, answered


class Replicas:
    """Models and optimizers of the workers: one for all as long as nothing tells them apart, or one each."""

    def __init__(self, task, seed, count, optimizer, lr):
        torch.manual_seed(seed)
        model = task.model()
        self.task, self.lr = task, lr
        self.models = [model, *(copy.deepcopy(model) for _ in range(count - 1))]
        self.optimizers = [make_optimizer(optimizer, one, lr, "none") for one in self.models]

    def gradient(self, worker, sample, out):
        """Loss of a worker's part of the batch; its flat gradient goes to out."""
        model = self.models[worker % len(self.models)]
        loss = self.task.loss(model, sample)
        parts = torch.autograd.grad(loss, list(model.parameters()))
        torch.cat([part.flatten() for part in parts], out=torch.from_numpy(out))
        return loss.item()

    def step(self, means, rate):
        """means: a flat gradient for each replica. rate: the learning rate over that of the first step."""
        for model, optimizer, mean in zip(self.models, self.optimizers, means):
            optimizer.param_groups[0]["lr"] = rate * self.lr
            params, mean = list(model.parameters()), torch.from_numpy(mean)
            for param, part in zip(params, mean.split([param.numel() for param in params])):
                param.grad = part.view_as(param)
            optimizer.step()

    def _vectors(self):
        return [parameters_to_vector(model.parameters()).detach() for model in self.models]

    def synchronise(self):
        """All replicas get the mean of their parameters; moments of optimizers stay."""
        if len(self.models) > 1:
            mean = sum(self._vectors()) / len(self.models)
            for model in self.models:
                vector_to_parameters(mean.clone(), model.parameters())

    def distance(self):
        """Largest distance of a replica from the mean of all, over the length of the mean."""
        vectors = self._vectors()
        mean = sum(vectors) / len(vectors)
        return max(float((one - mean).norm() / mean.norm()) for one in vectors)

    @torch.no_grad()
    def validate(self):
        """Loss and share of right answers of each replica."""
        found = []
        for model in self.models:
            loss = right = count = answers = 0
            for sample in self.task.validation(0, 1):
                scores = model(sample[0])
                loss += self.task.loss(lambda _: scores, sample).item() * len(sample[0])
                count += len(sample[0])
                right += (scores.argmax(-1) == sample[1]).sum().item()
                answers += sample[1].numel()
            found.append((loss / count, right / answers))
        return found


class Simulation:
    """options: those of arguments(). task: a task of task_list."""

    def __init__(self, task, options):
        self.task, self.options = task, options
        kind = task.optimizer
        self.replicas = Replicas(
            task,
            options.seed,
            options.workers if options.loss else 1,
            kind,
            task.lr[kind] if options.lr is None else options.lr,
        )
        size = sum(param.numel() for param in self.replicas.models[0].parameters())
        if options.variant == "fp32":
            self.sum = PlainSum(options.workers, size, not options.dropped)
        else:
            made = options_of(options.variant, options.bits, options.workers, options.seed)
            self.sum = ThcSum(made, options.workers, size, not options.dropped)
        self.network = Network(options.seed, options.workers, self.sum.blocks, options.loss, options.stragglers)
        self.gradients = np.empty((options.workers, size), np.float32)
        self.losses, self.errors, self.distance = [], [], 0.0

    def step(self, step):
        count = self.options.workers
        batch = self.task.sample(step, 0, 1, self.options.batch)
        if len(batch[0]) != self.options.batch:
            raise ValueError(f"the task has {len(batch[0])} samples for a batch of {self.options.batch}")
        parts = list(zip(*(values.chunk(count) for values in batch)))
        gradients = self.gradients
        losses = [self.replicas.gradient(worker, part, gradients[worker]) for worker, part in enumerate(parts)]
        arrived, answered = self.network.draw(step)
        mean = self.sum.mean(gradients, step, arrived)
        self.sum.put_back(answered & ~arrived)
        means = [mean]
        if len(self.replicas.models) > 1:
            means = [mean.copy() for _ in range(count)]
            for own, got in zip(means, answered):
                for first, blocks in runs_of(~got):
                    own[first * PACKET : (first + blocks) * PACKET] = 0
        self.replicas.step(means, 1 - step / self.options.steps)
        exact = gradients.mean(axis=0)
        self.losses.append(statistics.fmean(losses))
        self.errors.append(float(((mean - exact) ** 2).sum() / (exact**2).sum()))

    def end_epoch(self):
        self.distance = self.replicas.distance()
        if self.options.synchronise:
            self.replicas.synchronise()

    def run(self):
        """What main() prints."""
        for step in range(self.options.steps):
            self.step(step)
            if (step + 1) % self.options.epoch == 0:
                self.end_epoch()
        tail = max(1, int(TAIL * self.options.steps))
        found = self.replicas.validate()
        return {
            "train_loss": statistics.fmean(self.losses[-tail:]),
            "valid_loss": statistics.fmean(loss for loss, _ in found),
            "valid_worst": max(loss for loss, _ in found),
            "accuracy": statistics.fmean(share for _, share in found),
            "distance": self.distance,
            "nmse": statistics.fmean(self.errors),
        }


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--task", choices=task_list.TASKS, required=True)
    parser.add_argument("--variant", choices=VARIANTS, default="thc")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--batch", type=int, required=True, help="of all workers, a multiple of their number")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--epoch", type=int, required=True, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, help="default: the task's")
    parser.add_argument("--loss", type=float, default=0.0, help="share of packets that are lost, each way")
    parser.add_argument("--synchronise", action="store_true", help="replicas, at the end of every epoch")
    parser.add_argument("--stragglers", type=int, default=0)
    parser.add_argument("--dropped", action="store_true", help="what is left out does not return by error feedback")
    options = parser.parse_args(words)
    if options.batch % options.workers:
        parser.error(f"a batch of {options.batch} has no equal parts for {options.workers} workers")
    if not 0 <= options.stragglers < options.workers:
        parser.error(f"{options.stragglers} stragglers of {options.workers} workers")
    if not 0.0 <= options.loss < 1.0:
        parser.error("--loss is a share below 1")
    return options


def main():
    torch.set_num_threads(1)
    options = arguments()
    simulation = Simulation(task_list.make_task(options.task, options.seed), options)
    print(json.dumps({**simulation.run(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
