#!/usr/bin/env python3
"""Each algorithm of the hooks and the backend on many ranks over the loopback: bits, errors and their bounds.

    many_ranks.py RANKS ...     prints docs/results/ranks.md

Gradients are given, so that the mean is known: half of a rank's is common to all ranks.
"""

import contextlib
import hashlib
import sys
from dataclasses import dataclass
from functools import cache, partial

import gradwire.torch
import numpy as np
import ranks as processes
import torch
import torch.distributed as dist
from gradwire.torch.sums import bits_a_value
from test_thc_server import COMMAND, serving
from test_thc_sums import Model
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, RATE, TOLERANCE_BITS, NMSE = 3, 0.1, 14, 1e-3
SHARES = 8 * 17  # lengths are multiples of it, so that each number of ranks has equal shards
LEN, TABLE_LEN = 964 * SHARES, 1928 * SHARES
SLACK = 1.5  # nmse is about the error of a message, docs/pytorch.md
NEW = hasattr(torch, "compile")


@dataclass
class Found:
    """Of one rank. full_bits: of fp32."""

    bits: float
    full_bits: int
    error: float
    bound: float
    unit: str
    digest: str
    expected_bits: float | None = None


# ---- data ----


@cache
def gradient(rank, step, length):
    """rank -1: what all have in common."""
    values = torch.randn(length, generator=torch.Generator().manual_seed(1000 * step + rank + 1))
    values *= 3e-4 * (1 + torch.arange(length) // 5000 % 7)
    return values if rank < 0 else gradient(-1, step, length) + values


@cache
def mean_of(size, step, length):
    return sum(gradient(rank, step, length).double() for rank in range(size)) / size


@cache
def rounding_of(size, step, length):
    """What sums in fp32 may lose in any order: for parameters near 0 more than a quantum."""
    return 2**-23 * sum(gradient(rank, step, length).double().abs() for rank in range(size))


def square(values):
    return values.double().square().sum().item()


def nmse(found, exact):
    return square(found.double() - exact) / square(exact)


def digest_of(tensors):
    return hashlib.sha256(b"".join(one.contiguous().numpy().tobytes() for one in tensors)).hexdigest()


def a2a_bound(size, length):
    """Of the NMSE of a mean by carried quanta: each contribution has its error, and the sum another one."""
    total = size * size * square(mean_of(size, 0, length))
    return SLACK * NMSE * (sum(square(gradient(rank, 0, length)) for rank in range(size)) / total + 1)


def ring_bound(size, length):
    """The same in a ring: each partial sum has its error."""
    partial_sums = torch.stack([gradient(rank, 0, length) for rank in range(size)]).double().cumsum(0)
    return SLACK * NMSE * sum(square(one) for one in partial_sums) / square(partial_sums[-1])


# ---- the hooks ----


class Given(torch.nn.Module):
    """Its gradient is what it is called with."""

    def __init__(self, length):
        super().__init__()
        self.a = torch.nn.Parameter(0.05 * torch.randn(length, generator=torch.Generator().manual_seed(7)))

    def forward(self, given):
        return (self.a * given).sum()


def train(rank, size, length, make, kind=torch.optim.SGD, plan=None):
    """Means of the steps; the largest deviation of a parameter, in 2^-TOLERANCE_BITS of it; bits of the last step."""
    net = Given(length)
    ddp = DDP(net) if plan is None else gradwire.torch.planned_ddp(net, plan)
    optimizer = kind(net.parameters(), lr=RATE)
    state, hook = make(optimizer, net)
    ddp.register_comm_hook(state, hook)
    means, deviation, sent = [], 0.0, 0
    for step in range(STEPS):
        optimizer.zero_grad()
        ddp(gradient(rank, step, length)).backward()
        state.check()
        means.append(net.a.grad.clone())
        lost = (means[-1].double() - mean_of(size, step, length)).abs() - rounding_of(size, step, length)
        change = RATE * lost.clamp(min=0)
        deviation = max(deviation, (change / net.a.detach().double().abs()).max().item())
        optimizer.step()
        before, sent = sent, state.report.totals()["sent_size"]
    received = state.report.totals()["received_size"] / STEPS
    state.close()
    return means, deviation * 2**TOLERANCE_BITS, bits_of(sent - before, size, length), received


def bits_of(sent_size, size, length):
    """Of a value's way to the owner and back, where a rank sends so much; the mean of the ranks is what counts."""
    return 8 * sent_size / length * size / (size - 1)


def gcomp(rank, size, length, **options):
    """Derived quanta: an encode changes no parameter by more than 2^-TOLERANCE_BITS of its value."""
    make = partial(hook_of, tolerance_bits=TOLERANCE_BITS, compress="always", debug=True, **options)
    means, deviation, bits, _ = train(rank, size, length, make)
    return Found(bits, 64, deviation, size, "2^-14", digest_of(means))


def hook_of(optimizer, net, **options):
    return gradwire.torch.ddp_hook(optimizer, **options)


def carried(rank, size, length, algorithm):
    """An optimizer that has no bound for a parameter."""
    make = partial(hook_of, nmse=NMSE, compress="always", algorithm=algorithm)
    means, _, bits, _ = train(rank, size, length, make, torch.optim.Rprop)
    bound = (a2a_bound if algorithm == "a2a" else ring_bound)(size, length)
    return Found(bits, 64, nmse(means[0], mean_of(size, 0, length)), bound, "NMSE", digest_of(means))


def thc(rank, size, length, sums):
    """Bit for bit those of an all-reduce of integers."""
    make = partial(hook_of, codec="thc", sums=sums, seed=5)
    means, _, bits, _ = train(rank, size, length, make)
    if rank == 0:
        model = Model(size, length, 4, True, sums)
        for step, mean in enumerate(means):
            given = [gradient(one, step, length).numpy() for one in range(size)]
            assert np.array_equal(mean.numpy(), model.mean(given, step)), f"step {step}"
    error = nmse(means[0], mean_of(size, 0, length))
    return Found(bits, 64, error, 0.08, "NMSE", digest_of(means), bits_a_value(4, size, sums))


def thc_server(rank, size, length, address):
    make = partial(hook_of, codec="thc", server=address, seed=5)
    means, _, bits, received = train(rank, size, length, make)
    bits = bits * (size - 1) / size + 8 * received / length  # it goes to the server whole and comes back from it
    return Found(bits, 64, nmse(means[0], mean_of(size, 0, length)), 0.08, "NMSE", digest_of(means))


def levels(rank, size, length):
    """Machines of two ranks where the number is even. Encoded are the values, the sums of machines and the sum."""
    gpus = 2 if size % 2 == 0 else 1
    path = "comp-cpu>intra-alltoall>decomp-cpu>comp-cpu>inter-alltoall>decomp-cpu>comp-cpu>inter-allgather"
    path += ">intra-allgather>decomp-cpu"
    entry = {"names": ["a"], "elems": length, "option": path, "codec": f"gcomp-t{TOLERANCE_BITS}"}
    entry["options"] = {"quantum_mode": "explicit"}  # a quantum for each parameter
    counts = {"ranks": size, "nodes": size // gpus, "gpus": gpus}
    plan = {"schema": "gradwire-buckets/1", **counts, "groups": [entry]}

    def make(optimizer, net):
        return gradwire.torch.ddp_hook(optimizer, plan=plan, model=net, debug=True)

    means, deviation, bits, _ = train(rank, size, length, make, plan=plan)
    return Found(bits, 64, deviation, size + size // gpus + 1, "2^-14", digest_of(means))


# ---- the backend ----


def backend_group():
    options = gradwire.torch.BackendOptions(nmse=NMSE, gathers="frames", gather_len=1 << 14)
    return dist.new_group(backend="gradwire", pg_options=options)


def scatter(output, values, group):
    (dist.reduce_scatter_tensor if NEW else dist._reduce_scatter_base)(output, values, dist.ReduceOp.AVG, group=group)


def gather(output, values, group):
    (dist.all_gather_into_tensor if NEW else dist._all_gather_base)(output, values, group=group)


def summed(value):
    """Over the ranks."""
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.tolist()


def sent_by(group):
    totals = gradwire.torch.backend_totals(group)
    return totals["sent_size"], totals["gather_sent_size"]


def all_reduce(rank, size, length, group):
    before, values = sent_by(group)[0], gradient(rank, 0, length).clone()
    dist.all_reduce(values, dist.ReduceOp.AVG, group=group)
    bits = bits_of(sent_by(group)[0] - before, size, length)
    error, bound = nmse(values, mean_of(size, 0, length)), a2a_bound(size, length)
    return Found(bits, 64, error, bound, "NMSE", digest_of([values]))


def reduce_scatter(rank, size, length, group):
    before, part = sent_by(group)[0], torch.empty(length // size)
    scatter(part, gradient(rank, 0, length), group)
    bits = bits_of(sent_by(group)[0] - before, size, length)
    exact = mean_of(size, 0, length).view(size, -1)[rank]
    lost, whole = summed([square(part.double() - exact), square(exact)])
    bound = a2a_bound(size, length) - SLACK * NMSE  # the sum is not encoded
    return Found(bits, 32, lost / whole, bound, "NMSE", "")


def all_gather(rank, size, length, group):
    before, output = sent_by(group)[1], torch.empty(length)
    whole = torch.cat([gradient(one, 0, length // size) for one in range(size)])
    gather(output, gradient(rank, 0, length // size), group)
    bits = bits_of(sent_by(group)[1] - before, size, length)
    return Found(bits, 32, nmse(output, whole.double()), 0.0, "NMSE", digest_of([output]))


def sharded(rank, size, length, group):
    """Steps as FSDP and ZeRO make them: each rank has the optimizer of a shard of the parameters."""
    first = Given(length).a.detach()
    exact, whole, before = first.double(), first.clone(), sent_by(group)
    shard = torch.nn.Parameter(whole.view(size, -1)[rank].clone())
    optimizer = torch.optim.SGD([shard], lr=RATE)
    for step in range(STEPS):
        shard.grad = torch.empty_like(shard)
        scatter(shard.grad, gradient(rank, step, length), group)
        optimizer.step()
        gather(whole, shard.detach(), group)
        exact -= RATE * mean_of(size, step, length)
    bits = sum(bits_of(sent - start, size, length) for sent, start in zip(sent_by(group), before)) / STEPS
    error = square(whole.double() - exact) / square(exact - first.double())
    return Found(bits, 64, error, a2a_bound(size, length) - SLACK * NMSE, "NMSE of the change", digest_of([whole]))


# ---- all ----

HOOKS = {
    "hook, A2A+AG": gcomp,
    "hook, A2A+AG, codebooks renewed": partial(gcomp, books="renewed", books_every=1),
    "hook, ring": partial(gcomp, algorithm="ring"),
    "hook, A2A+AG, carried": partial(carried, algorithm="a2a"),
    "hook, ring, carried": partial(carried, algorithm="ring"),
    "THC, lanes": partial(thc, sums="lanes"),
    "THC, requantized": partial(thc, sums="requantized"),
    "THC, server": thc_server,
    "plan of two levels": levels,
}
CALLS = {
    "backend, all_reduce": all_reduce,
    "backend, reduce_scatter": reduce_scatter,
    "backend, all_gather": all_gather,
    "backend, sharded step": sharded,
}


def all_of(rank, size, length, address):
    found = {}
    for name, call in HOOKS.items():
        if call is not thc_server:
            found[name] = call(rank, size, length)
        elif address is not None:
            found[name] = call(rank, size, length, address)
    group = backend_group()
    for name, call in CALLS.items():
        found[name] = call(rank, size, length, group)
    return found


def measure(size, length=LEN, timeout_s=50):
    """Of all ranks, for each algorithm."""
    with serving() if COMMAND is not None else contextlib.nullcontext() as server:
        found = processes.run(all_of, size, length, None if server is None else server.address, timeout_s=timeout_s)
    return {name: [found[rank][name] for rank in range(size)] for name in found[0]}


def mean_bits(ranks):
    return sum(one.bits for one in ranks) / len(ranks)


HEAD = """# Hooks and backend on 2 to 17 ranks

Written by `python/tests/torch_hooks/many_ranks.py`; `test_many_ranks.py` asserts the same of shorter gradients. Ranks
are processes of one machine, which talk over the loopback: bytes and errors do not depend on that, times would.

{length:,} values of fp32, {steps} steps. Half of a rank's gradient is common to all ranks.

- *Bits*: messages of all ranks in the last step, for a value's way to the owner of its shard and back; for a
  reduce-scatter and an all-gather one way.
- *Error* in 2^-14 (t = 14, SGD): the largest change of a parameter, as a share of the parameter, beyond what sums
  in fp32 lose. Its bound is one for each encode on the way.
- *Error* without a unit: the NMSE of the mean in the first step. Its bound is 1.5 times what `nmse=1e-3` asks of each
  message; for THC, which has none, it is the limit of the test.

All ranks have the same bits in all rows. The server's bits count messages that were sent again, of which a loaded
machine makes more.

| algorithm | ranks | bits | fp32 | error | bound |
|---|---|---|---|---|---|"""


def main():
    processes.TIMEOUT_S = 600
    print(HEAD.format(length=TABLE_LEN, steps=STEPS))
    rows = {}
    for size in map(int, sys.argv[1:]):
        for name, ranks in measure(size, TABLE_LEN, 300).items():
            one = ranks[0]
            assert len({other.digest for other in ranks}) == 1 and one.error <= one.bound, (name, size, one)
            unit = "" if one.unit == "NMSE" else f" {one.unit}"
            line = f"| {mean_bits(ranks):.3f} | {one.full_bits} | {one.error:.3g}{unit} | {one.bound:.3g}{unit} |"
            rows.setdefault(name, []).append(f"| {name} | {size} {line}")
    for lines in rows.values():
        print("\n".join(lines))


if __name__ == "__main__":
    main()
