"""The DDP hook: means, replicas, optimizers, and what people do around a training step."""

import hashlib

import gradwire.torch
import pytest
import torch
from ranks import run
from torch.nn.parallel import DistributedDataParallel as DDP

OPTIONS = {"compress": "always", "small_len": 256, "piece_len": 1 << 12, "debug": True}


def model(seed=1, width=64):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(20, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, 3),
    )


def batch(rank, step, n=16):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(n, 20, generator=generator)
    return x, (x[:, :3] * 2).sin()


def digest(net):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()


def train_step(ddp, optimizer, rank, step):
    """One step on the rank's batch; its loss."""
    x, y = batch(rank, step)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(ddp(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=3e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=3e-3, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=2e-3, weight_decay=1e-4),
    "radam": lambda p: torch.optim.RAdam(p, lr=2e-3),
    "adamax": lambda p: torch.optim.Adamax(p, lr=2e-3),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
}


def train(rank, size, name, steps, options):
    """Losses, digest and statistics of a short run; options None: plain DDP."""
    net = model()
    ddp = DDP(net)
    optimizer = OPTIMIZERS[name](net.parameters())
    state = None
    if options is not None:
        state, hook = gradwire.torch.ddp_hook(optimizer, **options)
        ddp.register_comm_hook(state, hook)
    losses = []
    for step in range(steps):
        losses.append(train_step(ddp, optimizer, rank, step))
    totals = None
    if state is not None:
        state.check()
        totals = state.report.totals()
        state.close()
    return losses, digest(net), totals


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_replicas_are_equal_and_follow_plain_training(name):
    found = run(train, 4, name, 6, OPTIONS)
    assert len({digest for _, digest, _ in found.values()}) == 1
    plain = run(train, 4, name, 6, None)
    for rank in range(4):
        assert found[rank][0] == pytest.approx(plain[rank][0], rel=0.02)
        assert found[rank][2]["mismatches"] == 0
        assert 0 < found[rank][2]["sent_size"]


def test_a_tight_tolerance_is_nearly_exact():
    found = run(train, 2, "adamw", 4, {**OPTIONS, "tolerance_bits": 23, "dead_zone": False})
    plain = run(train, 2, "adamw", 4, None)
    assert found[0][0] == pytest.approx(plain[0][0], rel=1e-5)


def test_noise_limit_alone_sends_less_than_the_smaller_quantum_of_both():
    sizes = {}
    for bits in (None, 20):
        found = run(train, 2, "adamw", 6, {**OPTIONS, "noise": 0.25, "tolerance_bits": bits})
        assert found[0][1] == found[1][1]
        sizes[bits] = found[0][2]["sent_size"]
    assert sizes[None] < 0.5 * sizes[20]
    with pytest.raises(AssertionError, match="tolerance_bits=None needs a noise limit"):
        run(train, 2, "adamw", 1, {**OPTIONS, "tolerance_bits": None})


@pytest.mark.parametrize("wrong", [{"noise": 2.0}, {"noise": 0.001, "tolerance_bits": None}, {"tolerance_bits": 24}])
def test_options_out_of_range_are_refused(wrong):
    """When the hook is made, not in the first backward pass."""
    optimizer = OPTIMIZERS["adamw"](model().parameters())
    with pytest.raises(ValueError, match="(noise|tolerance_bits)=.*; it is "):
        gradwire.torch.CodecOptions(**wrong).settings([optimizer])
