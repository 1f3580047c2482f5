"""torch.distributed over an emulated link (bench/training/emulate.py), with a clock that only waiting moves."""

import sys
from pathlib import Path

import gradwire.torch
import pytest
import torch
import torch.distributed as dist
from ranks import run
from test_ddp import OPTIONS, digest, model, train_step
from torch.nn.parallel import DistributedDataParallel as DDP

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from links.link_spec import LinkSpec  # noqa: E402
from training import emulate, hook_list  # noqa: E402

LINK = "1mbit+20ms"


class VirtualClock:
    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

    def wait(self, condition, seconds):
        if seconds is None:
            condition.wait()
        else:
            self.seconds += seconds


def collectives(rank, size):
    """Virtual seconds of each collective of 6000 values, its bytes, and what came out."""
    clock = VirtualClock()
    link = emulate.install(LinkSpec.parse(LINK), clock)
    found, results = [], []

    def timed(call):
        before = clock.seconds, link.sent_bytes
        call()
        found.append((clock.seconds - before[0], link.sent_bytes - before[1]))

    values = torch.full((6000,), float(rank + 1))
    timed(lambda: dist.all_reduce(values))
    results.append(values[0].item())
    timed(lambda: dist.all_reduce(values, async_op=True).get_future().then(lambda done: done.value()[0]).wait())
    results.append(values[0].item())
    rows = [torch.zeros(6000) for _ in range(size)]
    timed(lambda: dist.all_gather(rows, torch.full((6000,), float(rank))))
    results.append([row[0].item() for row in rows])
    got = torch.zeros(6000)
    timed(lambda: dist.all_to_all_single(got, torch.arange(6000.0) + rank))
    results.append(got[-1].item())
    return found, results


def test_collectives_take_what_the_link_takes():
    second = LinkSpec.parse(LINK).goodput / 8
    expected = [(32000, 4), (32000, 4), (48000, 2), (16000, 1)]  # bytes and dependent messages of 3 ranks
    for rank, (found, results) in run(collectives, 3).items():
        for (seconds, size), (wanted, rounds) in zip(found, expected):
            assert size == wanted and seconds == pytest.approx(size / second + rounds * 0.01, abs=1e-6)
        assert results == [6.0, 18.0, [0.0, 1.0, 2.0], 2000.0 * (rank + 1) - 1 + 2]


def training(rank, size, emulated):
    clock = VirtualClock()
    link = emulate.install(LinkSpec.parse(LINK), clock) if emulated else None
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
    ddp.register_comm_hook(state, hook)
    for step in range(3):
        train_step(ddp, optimizer, rank, step)
    sent = state.report.totals()["sent_size"]
    state.close()
    return digest(net), sent, link and link.sent_bytes, clock.seconds - 1000.0


def test_the_hook_gives_the_same_bits_and_pays_for_its_messages():
    plain, held = run(training, 2, False), run(training, 2, True)
    second = LinkSpec.parse(LINK).goodput / 8
    for rank, (bits, sent, carried, seconds) in held.items():
        assert bits == plain[rank][0] and sent == plain[rank][1]
        assert carried > sent and seconds >= carried / second  # agreements too


def test_the_plan_of_a_hook_with_a_bucket_size():
    assert hook_list.plan_of("gradwire:plan=p.json,noise=0.5@0") == "p.json"
