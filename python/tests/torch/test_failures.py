"""What goes wrong: damaged messages, dead ranks, states and results that differ. All ranks learn of it in time."""

import os
import time

import gradwire.torch
import pytest
import torch
from ranks import run
from test_ddp import OPTIONS, batch, digest, model
from torch.nn.parallel import DistributedDataParallel as DDP

TIMEOUT_S = 5


def steps(rank, size, count, before, **options):
    """Trains; before(rank, step, net, optimizer, state) is called in each step. Returns (what was raised, its step)."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **{**OPTIONS, **options})
    ddp.register_comm_hook(state, hook)
    for step in range(count):
        started = time.monotonic()
        try:
            before(rank, step, net, optimizer, state)
            x, y = batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
        except RuntimeError as error:
            return str(error), step, time.monotonic() - started
    state.check()
    mismatches = state.report.totals()["mismatches"]
    state.close()
    return digest(net), mismatches, None


def damage(rank, step, net, optimizer, state, stage):
    def flip(at, piece, message):
        if at == stage and piece == 0:
            message[len(message) // 2] ^= 0x55

    if rank == 1 - stage and step == 3:  # piece 0 belongs to rank 0: rank 1 sends to it, then it sends to all
        state.engine.fault = flip


@pytest.mark.parametrize("levels", ["derived", "carried"])
@pytest.mark.parametrize("stage", [0, 1])
def test_a_damaged_message_raises_on_all_ranks(stage, levels):
    found = run(damaged, 3, stage, levels, timeout_s=TIMEOUT_S)
    for message, step, seconds in found.values():
        assert step in (3, 4, 5) and seconds < TIMEOUT_S + 4
        assert isinstance(message, str)
    if stage == 0:  # the owner tells all at once
        assert all("corrupt" in message or "checksum" in message for message, _, _ in found.values())
        assert all(step == 3 for _, step, _ in found.values())


def damaged(rank, size, stage, levels):
    return steps(rank, size, 6, lambda *arguments: damage(*arguments, stage), levels=levels)


def dying(rank, size):
    def die(rank, step, *_):
        if rank == 2 and step == 3:
            os._exit(1)

    return steps(rank, size, 6, die)


def test_a_dead_rank_raises_on_all_others():
    found = run(dying, 4, timeout_s=TIMEOUT_S, may_die=(2,))
    for message, step, seconds in found.values():
        assert isinstance(message, str) and step == 3 and seconds < TIMEOUT_S + 4


def silent(rank, size):
    def sleep(rank, step, *_):
        if rank == 1 and step == 3:
            time.sleep(TIMEOUT_S + 4)

    return steps(rank, size, 4, sleep)


def test_a_rank_that_hangs_raises_within_the_timeout():
    found = run(silent, 2, timeout_s=TIMEOUT_S)
    message, step, seconds = found[0]
    assert isinstance(message, str) and step == 3 and seconds < TIMEOUT_S + 3


@pytest.mark.parametrize("what", ["moment", "rate"])
@pytest.mark.parametrize("fallback", ["carried", "explicit"])
def test_states_that_differ_are_reported_and_gradients_stay_equal(what, fallback):
    """Debug mode compares the reduced gradients of every step, so an unequal fallback would raise."""
    found = run(diverging_with, 2, what, fallback)
    for _, mismatches, _ in found.values():
        assert mismatches >= 3


def diverging_with(rank, size, what, fallback):
    def change(rank, step, net, optimizer, state):
        if rank == 1 and step == 3:
            if what == "moment":
                next(iter(optimizer.state.values()))["exp_avg_sq"].mul_(64.0)
            else:
                optimizer.param_groups[0]["lr"] *= 8

    return steps(rank, size, 6, change, fallback=fallback)


def unequal_results(rank, size):
    def disturb(rank, step, net, optimizer, state):
        if rank == 1 and step == 3:
            state.engine.digest ^= 1

    return steps(rank, size, 6, disturb)


def test_debug_mode_finds_results_that_differ():
    found = run(unequal_results, 2, timeout_s=TIMEOUT_S)
    for message, step, _ in found.values():
        assert "results of the ranks differ" in message and step in (3, 4)


def test_gloo_takes_shorter_messages_than_were_posted():
    """The transport relies on it (transport.py)."""
    found = run(short_message, 2)
    assert found[0] == [7] * 10 + [0] * 90


def short_message(rank, size):
    import torch.distributed as dist

    group = dist.new_group(backend="gloo")
    if rank == 1:
        group.send([torch.full((10,), 7, dtype=torch.uint8)], 0, 5).wait()
        return None
    room = torch.zeros(100, dtype=torch.uint8)
    group.recv([room], 1, 5).wait()
    return room.tolist()
