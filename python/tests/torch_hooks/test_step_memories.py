"""Error memories after a step that does not count, because it fails or a gradient is not finite; whose memories a state
has, and of what type; one rank alone."""

import itertools
import logging

import gradwire.torch
import pytest
import torch
from gradwire.torch.buckets import Bucket
from ranks import run
from test_classic_hooks import classic_of, one_bucket_each
from test_ddp import batch, model
from test_levels import PATHS, tree
from test_planned import ORDER, plan
from test_thc_sums import step_of as step_of_buckets
from torch.nn.parallel import DistributedDataParallel as DDP

TOPK = ("classic", {"scheme": "topk", "ratio": 0.3})
TREES = [tree(3 * PATHS[1:3], *TOPK), tree(3 * PATHS[1:3], "thc", {"bits": 4})]
BUCKETS = plan(*3 * [(1, "thc"), (1, *classic_of("topk", ratio=0.3, small_len=0))])
MIXED = plan((1, "gcomp-t12"), (1, *classic_of("dgc", ratio=0.1, small_len=0)), (1, "fp32"), (2, "thc"), (1, "fp16"))


def memories(state):
    """Copies of all error memories and momenta in a state, by their path of keys."""
    found = {}

    def walk(kept, path):
        for key, one in kept.items():
            if isinstance(one, dict):
                walk(one, (*path, key))
            elif isinstance(one, torch.Tensor):
                found[*path, key] = one.clone()

    walk(state, ())
    return found


def cast(kept, dtype):
    """A state as a checkpoint that was cast has it."""
    if isinstance(kept, dict):
        return {key: cast(one, dtype) for key, one in kept.items()}
    return kept.to(dtype) if isinstance(kept, torch.Tensor) else kept


def changed(before, after):
    """Of which memories, the new and the lost ones among them."""
    return sorted(
        str(key)
        for key in before.keys() | after.keys()
        if key not in before or key not in after or not torch.equal(before[key], after[key])
    )


def made(document, hook_options=None):
    """A model with the hook of a plan or, without one, of a codec with these options; a bucket for each gradient."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    if document is None:
        ddp = DDP(net, **one_bucket_each())
        state, hook = gradwire.torch.ddp_hook(optimizer, **hook_options)
    else:
        ddp = gradwire.torch.planned_ddp(net, document)
        state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net)
    ddp.register_comm_hook(state, hook)
    return net, ddp, state


def step_of(net, ddp, rank, step):
    net.zero_grad()
    x, y = batch(rank, step)
    torch.nn.functional.mse_loss(ddp(x), y).backward()


def spoil_later(encode, count=3):
    """An encoder that raises the third time, when others have gone."""
    calls = []

    def late(*arguments, **options):
        calls.append(1)
        if len(calls) == count:
            raise RuntimeError("no more ink")
        return encode(*arguments, **options)

    return late


# ---- a step that fails ----


def failing(rank, size, document, hook_options=None):
    """How many memories there are, and which of them a step changed in which rank 1 fails half-way."""
    net, ddp, state = made(document, hook_options)
    step_of(net, ddp, rank, 0)
    before = memories(state.state_dict())
    if rank == 1 and document is None:
        state._state = spoil_later(state._state)
    elif rank == 1 and document is BUCKETS:
        (classic,) = state.codecs.made["classic"].values()
        classic._state = spoil_later(classic._state)
    elif rank == 1:
        (levels,) = state.codecs.made["levels"].values()
        for codec in set(levels._codecs.values()):
            codec.encode = spoil_later(codec.encode)
    with pytest.raises(RuntimeError, match="no more ink"):
        step_of(net, ddp, rank, 1)
    return len(before), changed(before, memories(state.state_dict()))


@pytest.mark.parametrize("document", TREES, ids=["topk", "thc"])
def test_a_tree_that_fails_on_a_rank_leaves_all_memories_as_they_were(document):
    assert set(map(repr, run(failing, 4, document, timeout_s=20).values())) == {repr((6, []))}


def test_a_bucket_of_a_plan_that_fails_on_a_rank_leaves_all_memories_as_they_were():
    assert set(map(repr, run(failing, 3, BUCKETS, timeout_s=20).values())) == {repr((6, []))}


def test_a_classic_codec_that_fails_on_a_rank_leaves_all_memories_as_they_were():
    found = run(failing, 3, None, {"codec": "dgc", "small_len": 16, "ratio": 0.1}, timeout_s=20)
    assert set(map(repr, found.values())) == {repr((11, []))}  # a bias of three values has momentum alone


def failing_at_its_end(rank, size):
    """Rank 1 cannot decode the last message: it has sent all it had to send, and the others have got it."""
    net, ddp, state = made(TREES[0])
    step_of(net, ddp, rank, 0)
    before = memories(state.state_dict())
    (levels,) = state.codecs.made["levels"].values()
    finish = levels._finish

    def late(job):
        if rank == 1 and job.number % len(ORDER) == len(ORDER) - 1:
            raise RuntimeError("no more ink")
        finish(job)

    levels._finish = late
    with pytest.raises(RuntimeError, match="no more ink"):
        step_of(net, ddp, rank, 1)
    return len(before), changed(before, memories(state.state_dict()))


def test_a_rank_that_fails_when_all_is_sent_undoes_the_step_on_all():
    assert set(map(repr, run(failing_at_its_end, 4, timeout_s=20).values())) == {repr((6, []))}


# ---- gradients that are not finite ----


def spoilt(rank, size, document, name):
    """Which memories a step changed in which one gradient of the last rank is NaN, which gradients were finite then,
    and how many memories the next step changed."""
    net, ddp, state = made(document)
    bad = [False]
    net.get_parameter(name).register_hook(lambda gradient: gradient * float("nan") if bad[0] else gradient)
    step_of(net, ddp, rank, 0)
    before = memories(state.state_dict())
    bad[0] = rank == size - 1
    step_of(net, ddp, rank, 1)
    after = memories(state.state_dict())
    finite = {key for key, param in net.named_parameters() if param.grad.isfinite().all()}
    bad[0] = False
    step_of(net, ddp, rank, 2)
    next_one = memories(state.state_dict())
    state.close()
    return len(before), changed(before, after), finite, len(changed(after, next_one))


@pytest.mark.parametrize("document", TREES, ids=["topk", "thc"])
@pytest.mark.parametrize("name", [ORDER[0], ORDER[-1]])
def test_nan_in_one_message_of_a_tree_leaves_the_memories_of_all(document, name):
    """A GradScaler skips the step: what the other messages have sent does not count, either."""
    for count, touched, finite, later in run(spoilt, 4, document, name).values():
        assert count == 6 and touched == [] and finite == set(ORDER) - {name} and later >= 4


@pytest.mark.parametrize("name", ORDER)
def test_nan_in_any_bucket_of_a_plan_leaves_the_memories_of_all(name):
    """Also in those of codecs without memories: the first, the third and the last."""
    for count, touched, finite, later in run(spoilt, 2, MIXED, name).values():
        assert count >= 3 and touched == [] and name not in finite and later >= 3


def with_a_plain_end(rank, size):
    """Whether the residual is another one after each of four steps whose last bucket is of fp64, which travels plain;
    in the second one that has an infinity. Then rank 0 gives up: which residual is there?"""
    params = [torch.nn.Parameter(torch.zeros(2000)), torch.nn.Parameter(torch.zeros(5, dtype=torch.float64))]
    state, hook = gradwire.torch.ddp_hook(torch.optim.SGD(params, lr=0.1), codec="topk", ratio=0.1)
    kept = [memories(state.state_dict())]
    for step in range(4):
        values = [torch.randn(2000, generator=torch.Generator().manual_seed(step)), torch.ones(5, dtype=torch.float64)]
        if step == 1 and rank == 1:
            values[1][2] = float("inf")
        for future in step_of_buckets(state, hook, params, values):
            future.wait()
        kept.append(memories(state.state_dict()))
    if rank == 0:
        state.fail(ValueError("given up"))
    with pytest.raises(RuntimeError):
        state.check()
    return [bool(changed(a, b)) for a, b in itertools.pairwise(kept)], changed(kept[-1], memories(state.state_dict()))


def test_a_step_of_a_classic_codec_ends_with_a_plain_bucket_too():
    for steps, lost in run(with_a_plain_end, 2, timeout_s=20).values():
        assert steps == [True, False, True, True] and lost == []


# ---- states ----


def loading_casts(rank, size, document, hook_options=None):
    """Memories after a load of a state that was cast, of which type they are, and whether a step runs then."""
    net, ddp, state = made(document, hook_options)
    step_of(net, ddp, rank, 0)
    saved = state.state_dict()
    state.close()
    for dtype in (torch.float64, torch.float16):
        net, ddp, state = made(document, hook_options)
        state.load_state_dict(cast(saved, dtype))
        loaded = memories(state.state_dict())
        assert all(one.dtype == torch.float32 for one in loaded.values())
        assert not changed(memories(cast(cast(saved, dtype), torch.float32)), loaded)
        step_of(net, ddp, rank, 1)
        state.close()
    net, ddp, state = made(document, hook_options)
    with pytest.raises(ValueError, match="an error memory is a dense tensor of floating-point numbers"):
        state.load_state_dict(cast(saved, torch.int32))
    state.close()
    return len(loaded)


@pytest.mark.parametrize("document", TREES, ids=["topk", "thc"])
def test_states_of_trees_that_were_cast_are_loaded_as_fp32(document):
    assert set(run(loading_casts, 4, document).values()) == {6}


def test_states_of_classic_codecs_that_were_cast_are_loaded_as_fp32():
    assert set(run(loading_casts, 2, None, {"codec": "dgc", "small_len": 16}).values()) == {11}


def thc(**options):
    """THC's hook for one parameter of three blocks."""
    param = torch.nn.Parameter(torch.zeros(3072))
    state, _ = gradwire.torch.thc_hook(torch.optim.SGD([param], lr=0.1), small_len=1, **options)
    return param, state


def a_bucket(param, values):
    return Bucket(values, [param], [values])


class Said(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("gradwire").addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


def saving_sums(rank, size):
    """A state of each rank after a step: the memory of the sum that it owns."""
    param, state = thc(sums="requantized")
    state.start(a_bucket(param, torch.randn(3072, generator=torch.Generator().manual_seed(rank)))).wait()
    saved = state.state_dict()
    state.close()
    return {**saved, "sum_errors": {key: one.numpy() for key, one in saved["sum_errors"].items()}, "errors": {}}


def loading_sums(rank, size, states):
    """What is loaded of one of these states, and what the log says."""
    said, (_, state) = Said(), thc(sums="requantized")
    given = states[min(rank, len(states) - 1)]
    sums = {key: torch.from_numpy(one) for key, one in given["sum_errors"].items()}
    state.load_state_dict({**given, "sum_errors": sums})
    kept = memories(state.state_dict()["sum_errors"])
    state.close()
    return bool(kept) and not changed(memories(sums), kept), bool(kept), said.lines


def test_memories_of_sums_are_of_one_rank_among_so_many():
    """Of three blocks rank 1 of 2 owns one, as all of 3 do: but another one."""
    saved = run(saving_sums, 2)
    states = [saved[0], saved[1]]
    assert [state["shards"] for state in states] == [[0, 2], [1, 2]]
    assert set(map(repr, run(loading_sums, 2, states).values())) == {repr((True, True, []))}
    three = run(loading_sums, 3, states)
    assert [kept for _, kept, _ in three.values()] == 3 * [False]
    assert "rank 0 of 3 begins without THC's error memories of sums" in three[0][2][0]
    assert len(three[0][2]) == 1 and three[1][2] == three[2][2] == []
    crossed = run(loading_sums, 2, states[::-1])
    for rank in range(2):
        assert not crossed[rank][1] and len(crossed[rank][2]) == 1
        assert f"rank {rank} of 2 begins" in crossed[rank][2][0] and f"of rank {1 - rank} of 2" in crossed[rank][2][0]
    unnamed = [{key: one for key, one in state.items() if key != "shards"} for state in states]
    assert [kept for _, kept, _ in run(loading_sums, 2, unnamed).values()] == [False, False]


def refusing(rank, size):
    """What hooks say to states with memories that they have no use for."""
    param, state = thc(sums="requantized")
    state.start(a_bucket(param, torch.randn(3072, generator=torch.Generator().manual_seed(rank)))).wait()
    saved, said = state.state_dict(), []
    state.close()
    without_sums = {**saved, "sum_errors": {}}
    for options, given in (({"sums": "lanes"}, saved), ({"error_feedback": False}, without_sums)):
        state = thc(**options)[1]
        with pytest.raises(ValueError) as caught:
            state.load_state_dict(given)
        assert state.round == 0  # nothing has changed
        said.append(str(caught.value))
        state.load_state_dict({**without_sums, "errors": {}})
        state.close()
    _, _, state = made(None, {"codec": "randk", "error_feedback": False})
    empty = state.state_dict()
    with pytest.raises(ValueError) as caught:
        state.load_state_dict({**empty, "residual": {0: torch.zeros(20 * 64)}})
    state.load_state_dict(empty)
    state.close()
    return [*said, str(caught.value)]


def test_memories_that_would_be_lost_are_refused():
    for sums, errors, residual in run(refusing, 2).values():
        assert 'the state has error memories of sums (sums="requantized"): sums="lanes" has none' in sums
        assert "the state has error memories: a hook with error_feedback=False has none" in errors
        assert "the state has memories (residual): randk with this hook's options has none" in residual


# ---- one rank ----


def alone(rank, size, sums):
    """Whether the hook of one rank alone leaves gradients as they are, and what it counts."""
    found = []
    for hooked in (False, True):
        net = model()
        ddp = DDP(net, **one_bucket_each())
        if hooked:
            state, hook = gradwire.torch.thc_hook(torch.optim.SGD(net.parameters(), lr=0.1), small_len=1, sums=sums)
            ddp.register_comm_hook(state, hook)
        for step in range(2):
            step_of(net, ddp, rank, step)
        found.append([param.grad.clone() for param in net.parameters()])
    state.check()
    assert not memories(state.state_dict())
    sizes = state.report.totals()
    state.close()
    return all(torch.equal(a, b) for a, b in zip(*found)), sizes["full_size"]


@pytest.mark.parametrize("sums", ["lanes", "requantized"])
def test_gradients_of_one_rank_alone_are_exact(sums):
    assert run(alone, 1, sums) == {0: (True, 0)}
