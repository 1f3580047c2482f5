"""Buckets that are not in the CPU's memory: through a stand-in for a GPU, and through one where there is one."""

import contextlib
import copy
import os

import fake_device
import gradwire.torch
import pytest
import torch
import torch.distributed as dist
from gradwire.torch import staging
from ranks import run
from test_ddp import OPTIMIZERS, OPTIONS, batch, digest, model, train_step
from test_planned import MIXED, plan
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSIC = plan((2, "classic", {"scheme": "topk", "ratio": 0.1}), (4, "gcomp-t14"))


def made(net, optimizer, kind, ddp):
    """State and hook of a kind."""
    if kind == "thc":
        return gradwire.torch.thc_hook(optimizer, small_len=256)
    if kind == "classic":
        return gradwire.torch.ddp_hook(optimizer, codec="onebit")
    if isinstance(kind, dict):
        return gradwire.torch.ddp_hook(optimizer, plan=kind, model=ddp, piece_len=1 << 12, debug=True)
    return gradwire.torch.ddp_hook(optimizer, **{**OPTIONS, "quantum_mode": kind})


def train(rank, size, kind, staged, cap=25.0, name="adamw"):
    """Digest of the parameters, and how much was copied from the stand-in."""
    device = fake_device.install() if staged else None
    net = model()
    ddp = DDP(net, bucket_cap_mb=cap)
    optimizer = OPTIMIZERS[name](net.parameters())
    state, hook = made(net, optimizer, kind, ddp)
    ddp.register_comm_hook(state, hook)
    for step in range(5):
        train_step(ddp, optimizer, rank, step)
    state.close()
    return digest(net), (device.fetched, device.read_count) if staged else None


@pytest.mark.parametrize("cap", [25.0, 0.004])
@pytest.mark.parametrize("kind", ["derived", "carried", "thc", "classic", MIXED, CLASSIC])
def test_results_are_those_of_the_cpu(kind, cap):
    there = run(train, 3, kind, False, cap)
    staged = run(train, 3, kind, True, cap)
    assert {found for found, _ in there.values()} == {found for found, _ in staged.values()}
    assert len({found for found, _ in staged.values()}) == 1
    for _, (fetched, read) in staged.values():
        assert fetched >= 5 and (read > 0) == (kind not in ("thc", "classic"))


@pytest.mark.parametrize("name", ["nesterov", "amsgrad", "rmsprop"])
def test_all_of_an_optimizers_state_is_read(name):
    there, staged = (run(train, 2, "derived", device, 25.0, name) for device in (False, True))
    assert {found for found, _ in there.values()} == {found for found, _ in staged.values()}


def resumed(rank, size, staged):
    """Digests of a run in one piece and of one that goes on after three steps."""
    if staged:
        fake_device.install()
    digests, saved = [], None
    for first, last in ((0, 6), (3, 6)):
        net = model()
        optimizer = OPTIMIZERS["adamw"](net.parameters())
        if saved:
            net.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        ddp = DDP(net, bucket_cap_mb=0.004)
        state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
        if saved:
            state.load_state_dict(saved[2])
        ddp.register_comm_hook(state, hook)
        for step in range(first, last):
            train_step(ddp, optimizer, rank, step)
            if step == 2:
                saved = copy.deepcopy([net.state_dict(), optimizer.state_dict(), state.state_dict()])
        state.close()
        digests.append(digest(net))
    return digests


def test_a_resumed_run_has_the_same_bits():
    found = [tuple(digests) for digests in run(resumed, 2, True).values()]
    assert len(set(found)) == 1 and found[0][0] == found[0][1]
    assert found == [tuple(digests) for digests in run(resumed, 2, False).values()]


def operations(rank, size, staged):
    if staged:
        fake_device.install()
    communicator = gradwire.torch.Communicator(small_len=64)
    values = torch.randn(5000, generator=torch.Generator().manual_seed(rank))
    communicator.all_reduce(values)
    part = torch.empty(2500)
    communicator.reduce_scatter(part, torch.randn(5000, generator=torch.Generator().manual_seed(7 + rank)))
    communicator.close()
    return values.tolist(), part.tolist()


def test_operations_outside_ddp():
    assert run(operations, 2, True) == run(operations, 2, False)


def damaged(rank, size):
    fake_device.install()
    net = model()
    ddp = DDP(net)
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
    ddp.register_comm_hook(state, hook)
    for step in range(2):
        train_step(ddp, optimizer, rank, step)
    if rank == 1:
        state.engine.fault = lambda stage, piece, message: message[70:90].fill_(0x55)
    try:
        train_step(ddp, optimizer, rank, 2)
    except RuntimeError as error:
        return str(error)
    return None


def test_damage_raises_on_all_ranks():
    for error in run(damaged, 2).values():
        assert error is not None and "compressed all-reduce failed" in error


# ---- a GPU ----

# Not by torch.cuda: processes that are forked later could not use CUDA then, nor could torch say why.
needs_gpu = pytest.mark.skipif(
    not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd"))), reason="no GPU: copies to one and back were not run"
)


def on_device(rank, size, kind, device, moved):
    """All ranks on one GPU, which Gloo permits; moved: under a stream of the caller's own. Losses, whether replicas are
    equal, and statistics."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # for deterministic matrix products
    torch.use_deterministic_algorithms(True)
    if device == "cuda":
        if not torch.cuda.is_available():
            return None
        give_back = staging.CudaStaging.give_back

        def late(stage, room, values, future):
            with stage._on(stage._up):
                torch.cuda._sleep(20_000_000)
            give_back(stage, room, values, future)

        staging.CudaStaging.give_back = late
    with torch.cuda.stream(torch.cuda.Stream()) if moved else contextlib.nullcontext():
        net = model().to(device)
        ddp = DDP(net, bucket_cap_mb=0.004)
        optimizer = OPTIMIZERS["adamw"](net.parameters())
        state = None
        if kind is not None:
            state, hook = made(net, optimizer, kind, ddp)
            ddp.register_comm_hook(state, hook)
        losses = []
        for step in range(8):
            x, y = (part.to(device) for part in batch(rank, step))
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(ddp(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found = digest(net.cpu())
    totals = state.report.totals() if hasattr(state, "report") else None
    if state is not None:
        state.close()
    hashes = [None] * size
    dist.all_gather_object(hashes, found)
    return losses, len(set(hashes)), totals


def check_device(kind, device, moved):
    found = run(on_device, 2, kind, device, moved, start="spawn")
    if found[0] is None:
        pytest.skip("torch sees no GPU")
    plain = run(on_device, 2, None, device, False, start="spawn")
    for rank, (losses, hashes, totals) in found.items():
        assert hashes == 1
        assert losses == pytest.approx(plain[rank][0], rel=0.3 if kind in ("thc", "classic", CLASSIC) else 0.05)
        assert totals is None or totals["mismatches"] == 0 and totals["sent_size"] > 0


def test_the_tests_for_a_gpu_on_the_cpu():
    check_device("derived", "cpu", False)


@needs_gpu
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("kind", ["derived", "carried", "thc", "classic", MIXED, CLASSIC])
def test_training_on_a_gpu(kind, moved):
    check_device(kind, "cuda", moved)
