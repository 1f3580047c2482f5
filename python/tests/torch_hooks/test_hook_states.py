"""What a hook keeps: memories through a step that is not finite, states of other models, copies; groups; statistics."""

import copy
import io
import math

import gradwire.torch
import pytest
import torch
import torch.distributed as dist
from gradwire.torch.engine import sampled
from gradwire.torch.stats import Samples
from ranks import run
from test_ddp import OPTIONS, batch, digest, model
from torch.nn.parallel import DistributedDataParallel as DDP

CODECS = {
    "thc": {"small_len": 64},
    "thc requantized": {"small_len": 64, "sums": "requantized"},
    "dgc": {"ratio": 0.1, "small_len": 256},
    "randk": {"ratio": 0.3},
    "signum": {},
    "onebit": {},
    "qsgd": {},
}
INF_STEP, INF_PARAM = 2, 2  # the weight of the middle layer


def made(codec, options, net, group=None, cut=True):
    """DDP with a bucket for each gradient, and the hook's state."""
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 1  # torch 1.13 has 1 MiB whatever bucket_cap_mb says
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    ddp = DDP(net, process_group=group, **({"bucket_cap_mb": 1e-6} if cut else {}))
    if codec.startswith("thc"):
        state, hook = gradwire.torch.thc_hook(optimizer, group=group, **options)
    else:
        state, hook = gradwire.torch.ddp_hook(optimizer, codec=codec, group=group, **options)
    ddp.register_comm_hook(state, hook)
    return ddp, optimizer, state


def step_of(ddp, optimizer, rank, step):
    """One that a GradScaler would skip is skipped."""
    optimizer.zero_grad()
    x, y = batch(rank, step)
    torch.nn.functional.mse_loss(ddp(x), y).backward()
    finite = [bool(p.grad.isfinite().all()) for p in ddp.parameters()]
    if all(finite):
        optimizer.step()
    return finite


def infinite(rank, step):
    """A hook of a parameter: rank 1 has an infinity in one step."""

    def spoil(gradient):
        if rank != 1 or step[0] != INF_STEP:
            return gradient
        gradient = gradient.clone()
        gradient.view(-1)[5] = float("inf")
        return gradient

    return spoil


def memories(state):
    kept, names = state.state_dict(), ("errors", "sum_errors", "residual", "momentum")
    return {(name, number): one for name in names for number, one in kept.get(name, {}).items()}


def through_infinity(rank, size):
    """By codec: which gradients were finite in each step, whether memories were untouched, the parameters."""
    found = {}
    for codec, options in CODECS.items():
        net, step = model(), [0]
        ddp, optimizer, state = made(codec, options, net)
        list(net.parameters())[INF_PARAM].register_hook(infinite(rank, step))
        finite = []
        for step[0] in range(5):
            before = memories(state)
            finite.append(step_of(ddp, optimizer, rank, step[0]))
            after = memories(state)
            same = before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
            if step[0] == INF_STEP:
                untouched = same
            elif before:
                assert not same
        assert all(one.isfinite().all() for one in memories(state).values())
        state.check()
        state.close()
        found[codec] = finite, untouched, digest(net)
    return found


def test_an_infinity_is_nan_on_all_ranks_in_that_step_alone_and_memories_stay():
    """What a GradScaler expects: it skips that step on all ranks."""
    found = run(through_infinity, 2)
    for codec in CODECS:
        assert found[0][codec] == found[1][codec]
        for step, flags in enumerate(found[0][codec][0]):
            assert flags == [step != INF_STEP or i != INF_PARAM for i in range(len(flags))], codec
        assert found[0][codec][1], codec


def refusing(rank, size, cut):
    net, step = model(), [0]
    ddp, optimizer, state = made("thc", {**CODECS["thc"], "nonfinite": "error"}, net, cut=cut)
    list(net.parameters())[INF_PARAM].register_hook(infinite(rank, step))
    for step[0] in range(4):
        try:
            step_of(ddp, optimizer, rank, step[0])
        except RuntimeError:
            return str(state.error), step[0]
    return None


@pytest.mark.parametrize("cut", [True, False])
def test_thc_names_rank_and_parameter_where_that_is_asked_for(cut):
    found = run(refusing, 3, cut, timeout_s=600)
    for message, step in found.values():
        assert "rank 1, parameter 2" in message and "nonfinite" in message and step == INF_STEP
    assert len(set(found.values())) == 1


def loading(rank, size):
    """What load_state_dict() says to states of another model or hook; a state is then as it was."""
    said = []
    net, other = model(), model(width=32)
    ddp, optimizer, thc = made("thc", CODECS["thc"], net)
    _, _, foreign = made("thc", CODECS["thc"], other)
    _, _, topk = made("topk", {}, other)
    plain, _ = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
    step_of(ddp, optimizer, rank, 0)
    foreign._errors = {number: torch.zeros(p.numel()) for number, p in enumerate(other.parameters())}
    before = thc.state_dict()
    for state, given in (
        (thc, {**foreign.state_dict(), "round": 7}),
        (thc, topk.state_dict()),
        (thc, plain.state_dict()),
        (topk, thc.state_dict()),
        (topk, plain.state_dict()),
        (plain, thc.state_dict()),
        (plain, topk.state_dict()),
    ):
        with pytest.raises(ValueError) as caught:
            state.load_state_dict(given)
        said.append(str(caught.value))
    after = thc.state_dict()
    assert after["round"] == before["round"] and after["errors"].keys() == before["errors"].keys()
    old = {name: value for name, value in before.items() if name != "codec"}  # as older versions wrote it
    thc.load_state_dict(old)
    step_of(ddp, optimizer, rank, 1)
    return said


def test_a_state_of_another_model_or_hook_is_refused():
    said = run(loading, 1)[0]
    assert "a model with other parameters" in said[0]
    assert said[1:] == [
        "a state of topk, not of thc",
        "a state of another hook, not of thc",
        "a state of thc, not of topk",
        "a state of another hook, not of topk",
        "a state of thc, not of gradwire",
        "a state of topk, not of gradwire",
    ]


# ---- copies ----


def copying(rank, size):
    for codec, options in (("gradwire", OPTIONS), ("thc", CODECS["thc"]), ("topk", {})):
        net = model()
        ddp, optimizer, state = made(codec, options, net)
        step_of(ddp, optimizer, rank, 0)
        file = io.BytesIO()
        torch.save(ddp, file)
        file.seek(0)
        loaded = torch.load(file, **({"weights_only": False} if hasattr(torch, "compile") else {}))
        averaged = torch.optim.swa_utils.AveragedModel(ddp)
        averaged.update_parameters(ddp)
        for one in (copy.deepcopy(ddp), averaged.module, loaded):
            assert digest(one) == digest(ddp)
            one(batch(0, 0)[0])
        for one in (copy.deepcopy(state), copy.copy(state), copy.deepcopy(copy.deepcopy(state))):
            with pytest.raises(RuntimeError, match="is a copy .* make a hook for the copied model"):
                one.reduce(None)
            with pytest.raises(AttributeError, match="no more than its state_dict"):
                one.group  # noqa: B018
            one.close()
            state.load_state_dict(one.state_dict())  # what it is good for
        step_of(ddp, optimizer, rank, 1)  # the original goes on
        state.close()
    return True


def test_copies_of_ddp_and_of_a_state():
    assert run(copying, 1)[0]


# ---- groups ----


def side_by_side(rank, size):
    """Two data-parallel groups, of which each makes its hooks alone; one rank has made a group more before."""
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = groups[rank % 2]
    if hasattr(torch, "compile") and rank < 2:
        dist.new_group([0, 1], use_local_synchronization=True)
    found = []
    tight = {**OPTIONS, "small_len": 1, "tolerance_bits": 20}
    for codec, options in (("gradwire", tight), ("thc", {"small_len": 1}), ("bf16", {})):
        net = model()
        ddp, optimizer, state = made(codec, options, net, group=mine)
        step_of(ddp, optimizer, rank, 0)
        state.close()
        gradient = torch.cat([p.grad.view(-1) for p in net.parameters()])
        exact = torch.zeros_like(gradient)
        for one in (rank % 2, rank % 2 + 2):
            twin = model()
            x, y = batch(one, 0)
            torch.nn.functional.mse_loss(twin(x), y).backward()
            exact += torch.cat([p.grad.view(-1) for p in twin.parameters()]) / 2
        found.append(float((gradient - exact).square().sum() / exact.square().sum()))
    return found


def test_groups_side_by_side():
    for gradwire_, thc, bf16 in run(side_by_side, 4, timeout_s=15).values():
        assert gradwire_ < 1e-3 and thc < 0.1 and bf16 < 1e-4


# ---- statistics ----


def measuring(rank, size, seed):
    """Ranks with equal gradients, so what all contribute to others is the sum of all squares once."""
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 1
    net = model(width=256)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net, bucket_cap_mb=1e-6)
    options = {**OPTIONS, "small_len": 1, "quantum_mode": "carried", "seed": seed}
    state, hook = gradwire.torch.ddp_hook(optimizer, **options)
    ddp.register_comm_hook(state, hook)
    squares, add = [], state.engine.samples.add

    def note(step, square, error):
        squares.append((step, square))
        add(step, square, error)

    state.engine.samples.add = note
    for step in range(6):
        step_of(ddp, optimizer, 0, step)
        if step == 2:
            exact = float(sum(p.grad.double().square().sum() for p in net.parameters()))
    totals, text = state.report.totals(), state.report.summary()
    state.close()
    return squares, exact, totals, text


def test_the_error_of_sampled_steps_is_that_of_every_bucket():
    errors = []
    for seed in (0, 1):
        found = run(measuring, 2, seed)
        for squares, _, totals, text in found.values():
            assert len(squares) == 6 and {step for step, _ in squares} == {2}  # a bucket for each parameter
            assert totals["sampled_steps"] == 1 and "NMSE" in text
            errors.append(totals["nmse_sum"])
        assert sum(square for one in found.values() for _, square in one[0]) == pytest.approx(found[0][1], rel=0.02)
    assert max(errors) < 1e-4 and max(errors) < 3 * min(errors)  # equal trainings


def test_a_step_counts_as_much_as_another():
    samples = Samples()
    assert samples.totals() == (0.0, 0)
    samples.add(3, 3e6, 3.0)
    samples.add(3, 1e6, 1.0)
    assert samples.totals() == (1e-6, 1)
    samples.add(19, 1e-6, 3e-9)  # smaller gradients
    samples.add(35, math.inf, math.nan)  # a step that a GradScaler skips
    samples.add(35, 1.0, 0.5)
    samples.add(51, 0.0, 0.0)
    assert samples.totals() == (pytest.approx(1e-6 + 3e-3), 2)
    assert [step for step in range(40) if sampled(step, 16)] == [2, 18, 34]
    assert [sampled(step, 0) for step in range(4)] == 4 * [False] and sampled(5, 1)


def differing(rank, size):
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 1
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net, bucket_cap_mb=1e-6)
    state, hook = gradwire.torch.ddp_hook(optimizer, **{**OPTIONS, "small_len": 1})
    ddp.register_comm_hook(state, hook)
    for step in range(6):
        if rank == 1 and step == 3:
            for one in optimizer.state.values():
                one["exp_avg_sq"].mul_(64.0)
        step_of(ddp, optimizer, rank, step)
    state.check()
    mismatches = state.report.totals()["mismatches"]
    state.close()
    return mismatches


def test_mismatches_are_steps_not_buckets():
    assert run(differing, 2) == {0: 3, 1: 3}


def plain_infinity(rank, size):
    """THC's error memory before and after a step whose only infinity is in a bucket that travels plain."""
    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 1
    net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Linear(8, 512))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    ddp = DDP(net, bucket_cap_mb=1e-6)
    state, hook = gradwire.torch.thc_hook(optimizer, small_len=1024)
    ddp.register_comm_hook(state, hook)
    kept = []
    for step in range(4):
        optimizer.zero_grad()
        loss = ddp(torch.full((2, 1), 1.0 + step + rank)).square().mean()
        if step == 3 and rank == 1:
            loss = loss + net[0].bias.sum() * float("inf")
        loss.backward()
        state.check()
        kept.append({number: error.clone() for number, error in state.state_dict()["errors"].items()})
    state.close()
    same = all(torch.equal(kept[2][number], kept[3][number]) for number in kept[2])
    return same, all(torch.equal(kept[1][number], kept[2][number]) for number in kept[1])


def test_an_infinity_in_a_plain_bucket_counts_for_thc():
    for same, unchanged in run(plain_infinity, 2).values():
        assert same and not unchanged
