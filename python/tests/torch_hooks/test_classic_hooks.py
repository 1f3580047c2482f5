"""The classic codecs as DDP hooks: replicas, models of what they compute, resuming, buckets, failures."""

import io
import time

import gradwire.torch
import numpy as np
import pytest
import torch
from gradwire import classic
from ranks import run
from test_ddp import batch, digest, model
from test_planned import plan, train
from torch.nn.parallel import DistributedDataParallel as DDP

SMALL = 100  # parameters of fewer values travel as they are
OPTIONS = {
    "fp16": {},
    "bf16": {},
    "topk": {"ratio": 0.1},
    "dgc": {"ratio": 0.1, "warmup_steps": 3},
    "randk": {"ratio": 0.3},
    "signsgd": {},
    "efsignsgd": {},
    "signum": {"vote": True},
    "onebit": {"block_len": 64},
    "qsgd": {},
    "terngrad": {},
}
RATE = {"signsgd": 1e-3, "signum": 1e-3}


def make(net, codec, lr=0.05, ddp_options=None, **options):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    ddp = DDP(net, **(ddp_options or {}))
    if codec not in ("signsgd", "signum", "fp16", "bf16"):
        options.setdefault("small_len", SMALL)
    state, hook = gradwire.torch.ddp_hook(optimizer, codec=codec, **options)
    ddp.register_comm_hook(state, hook)
    return ddp, optimizer, state


def one_step(ddp, optimizer, rank, step):
    optimizer.zero_grad()
    x, y = batch(rank, step)
    loss = torch.nn.functional.mse_loss(ddp(x).float(), y.float())
    loss.backward()
    optimizer.step()
    return loss.item()


def one_bucket_each():
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 1  # torch 1.13 has 1 MiB whatever bucket_cap_mb says
    return {"bucket_cap_mb": 1e-6}


def equal(found):
    return len({value[0] for value in found.values()}) == 1


# ---- replicas ----


def training(rank, size, codec, options, steps, buckets):
    net = model()
    cut = one_bucket_each() if buckets else None
    ddp, optimizer, state = make(net, codec, RATE.get(codec, 0.05), cut, **options)
    losses = [one_step(ddp, optimizer, 0 if steps > 5 else rank, step % 4) for step in range(steps)]
    sent = state.sent_size
    state.close()
    return digest(net), losses, sent


@pytest.mark.parametrize("codec", OPTIONS)
def test_replicas_are_equal_and_learn(codec):
    found = run(training, 2, codec, OPTIONS[codec], 24, False)
    assert equal(found)
    losses = found[0][1]
    assert sum(losses[-4:]) < 0.97 * sum(losses[:4])
    if codec not in ("fp16", "bf16"):
        assert found[0][2] > 0


@pytest.mark.parametrize("codec", OPTIONS)
def test_how_ddp_cuts_buckets_changes_nothing(codec):
    """Four ranks, whose sums depend on the order; casts are left out, as they go by an all-reduce of whole buckets."""
    whole = run(training, 4, codec, OPTIONS[codec], 4, False)
    assert equal(whole)
    if codec not in ("fp16", "bf16"):
        cut = run(training, 4, codec, OPTIONS[codec], 4, True)
        assert equal(cut) and cut[0][0] == whole[0][0]


def counted(rank, size):
    net = model()
    ddp, optimizer, state = make(net, "signsgd", 1e-3, one_bucket_each())
    frames, buckets = [], []
    encode, start = classic.Codec.encode, state.start

    def measured(*arguments, **options):
        frames.append(encode(*arguments, **options))
        return frames[-1]

    def started(*arguments, **options):
        buckets.append(arguments)
        return start(*arguments, **options)

    classic.Codec.encode, state.start = measured, started
    for step in range(3):
        one_step(ddp, optimizer, rank, step)
    sent, received = state.sent_size, state.received_size
    state.close()
    return sent, received, sum(len(frame) + 8 for frame in frames) + 16 * len(buckets), len(frames)


def test_frames_and_their_sizes_are_counted_and_no_other_agreements():
    """As docs/pytorch.md says: of the word of a status at the end of a step nothing is."""
    found = run(counted, 3)
    for sent, received, size, frames in found.values():
        assert frames == 3 * 6 and received == sent == 2 * size


# ---- models of what they compute ----


def gradients(rank, size, codec, options, steps):
    """Gradients of every step before and after the hook, with parameters that stay."""
    net = model()
    ddp, optimizer, state = make(net, codec, 0.0, **options)
    found = []
    for step in range(steps):
        x, y = batch(rank, step)
        own = torch.autograd.grad(torch.nn.functional.mse_loss(net(x), y), list(net.parameters()))
        one_step(ddp, optimizer, rank, step)
        found.append(([g.numpy().copy() for g in own], [p.grad.numpy().copy() for p in net.parameters()]))
    state.close()
    return found


def compared(found, size, expected):
    """expected(own gradients of all ranks, number of the parameter, step) is what all ranks got."""
    for step in range(len(found[0])):
        for number in range(len(found[0][0][0])):
            own = [found[rank][step][0][number].reshape(-1) for rank in range(size)]
            wanted = expected(own, number, step)
            for rank in range(size):
                np.testing.assert_allclose(found[rank][step][1][number].reshape(-1), wanted, rtol=1e-5, atol=1e-8)


def top(values, k):
    result = np.zeros_like(values)
    chosen = np.argsort(-np.abs(values), kind="stable")[:k]
    result[chosen] = values[chosen]
    return result, chosen


def test_top_k_is_the_mean_of_the_largest_with_what_was_left():
    found = run(gradients, 3, "topk", {"ratio": 0.05}, 4)
    residual = {}

    def expected(own, number, step):
        if own[0].size < SMALL:
            return sum(own) / 3
        total = np.zeros_like(own[0])
        for rank, values in enumerate(own):
            values = values + residual.get((rank, number), 0)
            sent, chosen = top(values, int(np.ceil(values.size * 0.05)))
            residual[rank, number] = values - sent
            total += sent
        return total / 3

    compared(found, 3, expected)


def test_dgc_has_momentum_for_small_parameters_too():
    found = run(gradients, 2, "dgc", {"ratio": 0.05, "warmup_steps": 2, "momentum": 0.8}, 5)
    u, v = {}, {}

    def expected(own, number, step):
        if own[0].size < SMALL:
            u[number] = 0.8 * u.get(number, 0) + sum(own) / 2
            return u[number]
        total = np.zeros_like(own[0])
        ratio = 0.05 ** (min(step + 1, 3) / 3)
        for rank, values in enumerate(own):
            key = rank, number
            u[key] = 0.8 * u.get(key, 0) + values
            v[key] = v.get(key, 0) + u[key]
            sent, chosen = top(v[key], int(np.ceil(values.size * ratio)))
            u[key][chosen] = v[key][chosen] = 0
            total += sent
        return total / 2

    compared(found, 2, expected)


def test_votes_are_signs_of_sums_of_signs():
    found = run(gradients, 3, "signsgd", {"vote": True}, 2)
    compared(found, 3, lambda own, number, step: np.sign(sum(np.where(x < 0, -1, 1) for x in own)))
    found = run(gradients, 3, "signsgd", {}, 2)
    compared(found, 3, lambda own, number, step: sum(np.where(x < 0, -1.0, 1.0) for x in own) / 3)


def test_random_values_are_those_of_the_mean():
    found = run(gradients, 3, "randk", {"ratio": 0.25}, 2)
    for step in range(2):
        for number in range(6):
            own = [found[rank][step][0][number].reshape(-1) for rank in range(3)]
            got = found[0][step][1][number].reshape(-1)
            scale = own[0].size / classic.keep_len(own[0].size, 0.25) if own[0].size >= SMALL else 1
            chosen = got != 0
            assert scale == 1 or chosen.sum() <= classic.keep_len(own[0].size, 0.25)
            np.testing.assert_allclose(got[chosen], (scale * sum(own) / 3)[chosen], rtol=1e-5, atol=1e-8)
    first, second = (found[0][step][1][2].reshape(-1) != 0 for step in range(2))
    assert (first != second).any()


# ---- resuming ----


def resumed(rank, size, codec, options, at, steps):
    net = model()
    ddp, optimizer, state = make(net, codec, 1e-2, one_bucket_each(), **options)
    for step in range(at):
        one_step(ddp, optimizer, rank, step)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "hook": state.state_dict(), "optimizer": optimizer.state_dict()}, file)
    state.close()
    file.seek(0)
    saved = torch.load(file)
    net = model(seed=2)
    ddp, optimizer, state = make(net, codec, 1e-2, **options)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    state.load_state_dict(saved["hook"])
    for step in range(at, steps):
        one_step(ddp, optimizer, rank, step)
    state.close()
    return (digest(net),)


@pytest.mark.parametrize("codec", [codec for codec in OPTIONS if codec not in ("fp16", "bf16")])
def test_a_resumed_run_gives_the_same_bits(codec):
    through = run(resumed, 3, codec, OPTIONS[codec], 0, 6)
    again = run(resumed, 3, codec, OPTIONS[codec], 3, 6)
    assert equal(again) and again[0][0] == through[0][0]


def refusing(rank, size):
    net = model()
    _, _, state = make(net, "topk")
    good = state.state_dict()
    _, _, other = make(model(), "dgc")
    found = []
    for bad in ({**good, "version": 2}, {**good, "codec": "dgc"}, {**good, "residual": {0: torch.zeros(3)}}):
        with pytest.raises(ValueError) as caught:
            state.load_state_dict(bad)
        found.append(str(caught.value))
    for codec, options in (("zip", {}), ("topk", {"ratio": 0.0}), ("topk", {"vote": True})):
        with pytest.raises(ValueError):
            gradwire.torch.ddp_hook(torch.optim.SGD(net.parameters(), lr=0.1), codec=codec, **options)
    with pytest.raises(TypeError):
        gradwire.torch.ddp_hook(torch.optim.SGD(net.parameters(), lr=0.1), codec="topk", tolerance_bits=3)
    with pytest.raises(gradwire.Error, match="option"):
        gradwire.torch.ddp_hook(torch.optim.SGD(net.parameters(), lr=0.1), codec="qsgd", level_max=1000)
    state.close()
    other.close()
    return found


def test_states_and_options_that_do_not_fit_are_refused():
    version, codec, other = run(refusing, 1)[0]
    assert "version 2" in version and "dgc" in codec and "other parameters" in other


def different(rank, size):
    with pytest.raises(ValueError, match="different options"):
        gradwire.torch.ddp_hook(torch.optim.SGD(model().parameters(), lr=0.1), codec="randk", seed=rank)
    return True


def test_options_that_differ_between_ranks_are_refused_on_all():
    assert all(run(different, 3).values())


def half(rank, size, at, steps):
    """A plan with a classic codec, resumed after `at` steps."""
    document = plan((3, *classic_of("dgc", ratio=0.1, small_len=0)), (3, "fp16"))
    net, saved = model(), None
    for first, last in ((0, at), (at, steps)):
        ddp = gradwire.torch.planned_ddp(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=ddp)
        ddp.register_comm_hook(state, hook)
        if saved is not None:
            state.load_state_dict(saved)
        for step in range(first, last):
            one_step(ddp, optimizer, rank, step)
        saved = state.state_dict()
        state.close()
    return (digest(net),)


def test_a_resumed_plan_gives_the_same_bits():
    through, again = run(half, 2, 0, 5), run(half, 2, 2, 5)
    assert equal(again) and again[0][0] == through[0][0]


# ---- what people do ----


class Narrow(torch.nn.Module):
    """fp16 parameters, for which torch 1.13 has no layers on the CPU."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.first = torch.nn.Parameter((torch.randn(20, 40) * 0.2).half())
        self.second = torch.nn.Parameter((torch.randn(40, 3) * 0.2).half())

    def forward(self, x):
        return torch.tanh(x @ self.first.float()) @ self.second.float()


def in_fp16(rank, size, codec, options):
    net = Narrow()
    ddp, optimizer, state = make(net, codec, RATE.get(codec, 0.05), **options)
    losses = [one_step(ddp, optimizer, rank, 0) for step in range(6)]
    state.close()
    return b"".join(p.detach().numpy().tobytes() for p in net.parameters()), losses


@pytest.mark.parametrize("codec", OPTIONS)
def test_fp16_gradients(codec):
    found = run(in_fp16, 2, codec, OPTIONS[codec])
    assert equal(found)
    assert sum(value[1][-1] for value in found.values()) < sum(value[1][0] for value in found.values())


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(20, 30), torch.nn.Linear(20, 30)
        self.out = torch.nn.Linear(30, 3)
        self.frozen = torch.nn.Linear(20, 3)
        self.frozen.requires_grad_(False)
        self.which = 0

    def forward(self, x):
        return self.out((self.first if self.which == 0 else self.second)(x)) + self.frozen(x)


def branching(rank, size):
    net = Branches()
    ddp, optimizer, state = make(net, "topk", ratio=0.1, ddp_options={"find_unused_parameters": True})
    for step in range(5):
        net.which = step % 2
        optimizer.zero_grad()
        with ddp.no_sync():
            ddp(batch(rank, 10 + step)[0]).square().mean().backward()
        one_step(ddp, optimizer, rank, step)
    steps = state.step
    state.close()
    return digest(net), steps


def test_unused_parameters_frozen_ones_and_accumulation():
    found = run(branching, 2)
    assert equal(found) and found[0][1] == 5


def narrow(rank, size, codec, dtype, options):
    net = model().to(dtype)
    torch.nn.parallel.distributed._sync_module_states = lambda *_, **__: None  # torch 1.13's Gloo has no bf16
    torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_, **__: None
    ddp, optimizer, state = make(net, codec, 1e-3, **options)
    for step in range(3):
        optimizer.zero_grad()
        x, y = batch(rank, step)
        ddp(x.to(torch.bfloat16)).float().sub(y).square().mean().backward()
        optimizer.step()
    state.close()
    return (b"".join(p.detach().view(torch.int16).numpy().tobytes() for p in net.parameters()),)


@pytest.mark.parametrize("codec", [codec for codec in OPTIONS if codec != "fp16"])
def test_bf16_gradients(codec):
    assert equal(run(narrow, 2, codec, torch.bfloat16, OPTIONS[codec]))


def classic_of(scheme, **options):
    return f"classic-{scheme}", {"codec": "classic", "scheme": scheme, **options}


def test_in_a_plan():
    document = plan(
        (2, *classic_of("qsgd", level_max=64, small_len=1)),
        (2, *classic_of("topk", ratio=0.9)),
        (1, "gcomp-t14"),
        (1, *classic_of("randk", ratio=0.9)),
    )
    found = run(train, 3, document, 5)
    plain = run(train, 3, plan((6, "fp32")), 5)
    assert equal({rank: value[1:] for rank, value in found.items()})
    assert found[0][0] == pytest.approx(plain[0][0], rel=0.1) and found[0][0] != plain[0][0]


# ---- failures ----


def failing(rank, size, codec, options, how, buckets):
    net = model()
    ddp, optimizer, state = make(net, codec, 1e-3, one_bucket_each() if buckets else None, **options)
    for step in range(5):
        try:
            if rank == 1 and step == 2:
                if how == "nan":
                    net[2].weight.register_hook(lambda gradient: gradient * float("nan"))
                elif how == "damage":
                    state.fault = damage
                elif how == "raise":
                    net[2].weight.register_hook(stop)
                else:
                    state.fail(RuntimeError("out of order"))
            one_step(ddp, optimizer, rank, step)
        except RuntimeError:
            while state.error is None:  # the thread that sets it may be later; without one the test has no result
                time.sleep(0.01)
            return str(state.error), step
    state.close()
    return "nothing", 5


def stop(gradient):
    raise RuntimeError("stopped")


def damage(message):
    if message.size > 200:
        message[100] ^= 0x55  # in the payload of the first frame


@pytest.mark.parametrize("codec", [codec for codec in OPTIONS if codec not in ("fp16", "bf16")])
def test_a_nan_on_one_rank_raises_on_all_in_that_step(codec):
    options = {**OPTIONS[codec], "nonfinite": "error"}
    found = run(failing, 3, codec, options, "nan", codec == "topk", timeout_s=600)
    assert len(set(found.values())) == 1
    for message, step in found.values():
        assert "rank 1" in message and "parameter 2" in message and "nonfinite" in message
        assert step == 2


@pytest.mark.parametrize("buckets", [False, True])
def test_a_damaged_frame_raises_on_all_ranks_in_that_step(buckets):
    found = run(failing, 3, "efsignsgd", {}, "damage", buckets, timeout_s=600)
    for message, step in found.values():
        assert "rank 1" in message and "checksum" in message
        assert step == 2


def test_a_backward_pass_that_ends_half_way_raises_on_all_ranks():
    found = run(failing, 3, "topk", {}, "raise", True, timeout_s=600)
    assert "before its last bucket" in found[1][0]
    assert all(step == 2 for _, step in found.values())


def test_a_rank_that_fails_alone_breaks_the_connections():
    for message, step in run(failing, 3, "topk", {}, "alone", False, timeout_s=600).values():
        assert message != "nothing" and step == 2


def probed(rank, size):
    net = model()
    torch.nn.functional.mse_loss(net(batch(rank, 0)[0]), batch(rank, 0)[1]).backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    name, options = classic_of("topk")
    with pytest.raises(ValueError, match="does not measure"):
        gradwire.torch.probe.measure(optimizer, {name: options}, lens=(1 << 10,), repeats=1)
    return True


def test_the_probe_refuses_what_it_does_not_measure():
    assert all(run(probed, 2).values())
