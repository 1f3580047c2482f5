"""Hooks over a group of the backend "gradwire" that has an error: what they send plain is exact."""

import gradwire.torch
import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch.nn.parallel import DistributedDataParallel as DDP

FEATURES = 200  # 40000 values: above small_len of a group


def gradient_of(rank, hook_of):
    torch.manual_seed(0)
    net = torch.nn.Linear(FEATURES, FEATURES)
    ddp = DDP(net)
    state, hook = hook_of(torch.optim.SGD(net.parameters(), lr=0.1))
    ddp.register_comm_hook(state, hook)
    values = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(rank))
    ddp(values).pow(2).mean().backward()
    state.check()
    state.close()
    return net.weight.grad.clone()


def never(optimizer):
    return gradwire.torch.ddp_hook(optimizer, compress="never")


def small(optimizer):
    return gradwire.torch.ddp_hook(optimizer, compress="always", small_len=10**9)


def thc(optimizer):
    return gradwire.torch.thc_hook(optimizer, small_len=10**9)


def body(rank, size, name):
    gradwire.torch.set_default_error(1e-2)
    before = gradwire.torch.backend_totals()["compressed_count"]
    found = gradient_of(rank, globals()[name])
    compressed = gradwire.torch.backend_totals()["compressed_count"] - before
    large = torch.randn(1 << 15, generator=torch.Generator().manual_seed(rank))
    dist.all_reduce(large)  # others still compress
    return found.numpy(), compressed, gradwire.torch.backend_totals()["compressed_count"] - before


@pytest.mark.parametrize("name", ["never", "small", "thc"])
def test_plain_sums_are_exact(name):
    over_gloo = run(lambda rank, size: gradient_of(rank, globals()[name]).numpy(), 2)
    for rank, (found, compressed, after) in run(body, 2, name, backend="gradwire").items():
        assert (found == over_gloo[rank]).all()
        assert (compressed, after) == (0, 1)  # that of `large`
