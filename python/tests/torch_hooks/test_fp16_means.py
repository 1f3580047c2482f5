"""Means of fp16 whose sums are out of range: finite, as those of DDP, equal on all ranks, and within the error."""

import gradwire.torch
import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch.nn.parallel import DistributedDataParallel as DDP

LEN = 6000


def gradient(rank, step=0, factor=1.0):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (factor * (60000 + 3000 * torch.rand(LEN, generator=generator))).half()


def exact(size, step=0, factor=1.0):
    return sum(gradient(rank, step, factor).double() for rank in range(size)).numpy() / size


def error_of(found, wanted):
    return np.square(found.astype(np.float64) - wanted).sum() / np.square(wanted).sum()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Parameter(torch.zeros(LEN, dtype=torch.float16))

    def forward(self, values):
        return (self.inner.float() * values.float()).sum()


def hooked(rank, size, options):
    """Gradients of two steps."""
    net = Net()
    state, hook = gradwire.torch.ddp_hook(
        torch.optim.SGD(net.parameters(), lr=1e-3), compress="always", small_len=1, debug=True, **options
    )
    ddp, found = DDP(net), []
    ddp.register_comm_hook(state, hook)
    for step in range(2):
        net.inner.grad = None
        ddp(gradient(rank, step)).backward()
        found.append(net.inner.grad.clone().numpy())
    state.check()
    state.close()
    return found


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "options", [{}, {"quantum_mode": "carried"}, {"quantum_mode": "explicit"}, {"algorithm": "ring"}]
)
def test_of_the_hook(size, options):
    results = run(hooked, size, options)
    for step in range(2):
        first = results[0][step]
        assert all(np.array_equal(one[step], first) for one in results.values())
        assert np.isfinite(first).all() and error_of(first, exact(size, step)) < 1e-2


def trained(rank, size, dtype):
    """Gradients of the last of four steps with a momentum, whose map must be of the divided values."""
    net = Net()
    net.inner.data = (0.05 * torch.randn(LEN, generator=torch.Generator().manual_seed(7))).to(dtype)
    velocity = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    state, hook = gradwire.torch.ddp_hook(velocity, compress="always", small_len=1, debug=True)
    ddp = DDP(net)
    ddp.register_comm_hook(state, hook)
    for step in range(4):
        net.inner.grad = None
        ddp(drawn(rank, step).to(dtype)).backward()
        last = net.inner.grad.double().numpy()
        velocity.step()
    state.close()
    return last


def drawn(rank, step):
    """Exact in both types."""
    return torch.randn(LEN, generator=torch.Generator().manual_seed(rank + 100 * step)).half().float()


@pytest.mark.parametrize("size", [2, 3])
def test_tolerances_mean_the_same(size):
    """fp32 is not divided."""
    wanted = sum(drawn(rank, 3).double() for rank in range(size)).numpy() / size
    fp16, fp32 = (error_of(run(trained, size, dtype)[0], wanted) for dtype in (torch.float16, torch.float32))
    assert fp16 < 1.5 * fp32, (fp16, fp32)


def communicated(rank, size):
    communicator = gradwire.torch.Communicator(nmse=1e-4, small_len=1)
    mean = gradient(rank)
    communicator.all_reduce(mean)
    given = gradient(rank)
    part = torch.empty(LEN // size, dtype=torch.float16)
    communicator.reduce_scatter(part, given, mean=True)
    assert torch.equal(given, gradient(rank))  # the input is the caller's
    total = gradient(rank, factor=0.25)
    communicator.all_reduce(total, mean=False)  # a sum has no other range than it has
    communicator.close()
    return mean.numpy(), part.numpy(), total.numpy()


@pytest.mark.parametrize("size", [2, 3])
def test_of_a_communicator(size):
    results = run(communicated, size)
    shard = LEN // size
    for rank, (mean, part, total) in results.items():
        assert np.array_equal(mean, results[0][0]) and error_of(mean, exact(size)) < 1e-3
        assert error_of(part, exact(size)[rank * shard : (rank + 1) * shard]) < 1e-3
        assert error_of(total, size * exact(size, factor=0.25)) < 1e-3


def small(rank, size):
    """Next to the smallest normal, 6.1e-5, and below it."""
    values = gradient(rank, factor=1e-9)
    communicator = gradwire.torch.Communicator(nmse=1e-6, small_len=1)
    communicator.all_reduce(values)
    communicator.close()
    plain = gradient(rank, factor=1e-9).div_(size)
    dist.all_reduce(plain)
    return values.numpy(), plain.numpy()


def test_small_values_lose_about_as_much_as_by_ddp():
    wanted = exact(3, factor=1e-9)
    for values, plain in run(small, 3).values():
        assert error_of(values, wanted) < max(4 * error_of(plain, wanted), 4e-6)


def by_backend(rank, size):
    group = dist.new_group(backend="gradwire", pg_options=gradwire.torch.BackendOptions(nmse=1e-4, small_len=1))
    mean = gradient(rank)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=group)
    part, given = torch.empty(LEN // size, dtype=torch.float16), gradient(rank)
    if hasattr(dist, "reduce_scatter_tensor"):
        dist.reduce_scatter_tensor(part, given, op=dist.ReduceOp.AVG, group=group)
    else:
        dist._reduce_scatter_base(part, given, op=dist.ReduceOp.AVG, group=group)
    assert torch.equal(given, gradient(rank))
    return mean.numpy(), part.numpy()


def test_of_the_backend():
    results = run(by_backend, 2)
    for rank, (mean, part) in results.items():
        assert np.array_equal(mean, results[0][0]) and error_of(mean, exact(2)) < 1e-3
        assert error_of(part, exact(2)[rank * LEN // 2 : (rank + 1) * LEN // 2]) < 1e-3
