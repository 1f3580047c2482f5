"""Error memories after a step that does not count, because it fails or a gradient is not finite; whose memories a state
has, and of what type; one rank alone."""

import itertools

import gradwire.torch
import pytest
import torch
from gradwire.torch.buckets import Bucket
from gradwire.torch.states import is_finite
from ranks import run
from test_classic_hooks import classic_of, one_bucket_each
from test_ddp import batch, model
from test_hook_codebooks import Lines
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


def faulty_gcomp(rank, size, document, two_kinds):
    """What a step raises in which a frame of GCOMP is damaged on rank 1, and which memories it changed. two_kinds: half
    of the parameters have an optimizer that no maps are known for."""
    net = model()
    params = list(net.parameters())
    optimizers = [torch.optim.SGD(params, lr=0.05)]
    if two_kinds:
        optimizers = [torch.optim.Adam(params[::2], lr=0.05), torch.optim.Rprop(params[1::2])]
    ddp = gradwire.torch.planned_ddp(net, document)
    options = {"nmse": 1e-3} if two_kinds else {}
    state, hook = gradwire.torch.ddp_hook(optimizers, plan=document, model=net, **options)
    ddp.register_comm_hook(state, hook)
    for step in range(2):
        step_of(net, ddp, rank, step)
    before = memories(state.state_dict())
    if rank == 1:
        state.engine.fault = lambda stage, piece, message: message.__setitem__(-1, message[-1] ^ 0xFF)
    with pytest.raises(RuntimeError, match="rank 1, piece .*CRC32C mismatch"):
        step_of(net, ddp, rank, 2)
    state.close()
    return len(before), changed(before, memories(state.state_dict()))


@pytest.mark.parametrize("two_kinds", [False, True])
@pytest.mark.parametrize("other", [("thc",), TOPK, ("fp32",)], ids=["thc", "topk", "fp32"])
def test_a_damaged_frame_of_gcomp_ends_a_step_of_codecs_with_memories(other, two_kinds):
    """Nobody waits for the result of an operation that has failed."""
    document = plan((2, "gcomp-t12"), (2, *other), (2, "gcomp-t12"))
    counts = {"thc": 2, "classic": 1, "fp32": 0}  # a bias is too small for top-k
    found = run(faulty_gcomp, 2, document, two_kinds, timeout_s=20)
    assert set(map(repr, found.values())) == {repr((counts[other[0]], []))}


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


@pytest.mark.parametrize("small_len", [0, 100])
def test_nan_in_a_bucket_of_gcomp_of_two_kinds_leaves_memories(small_len):
    """Its parameters travel as two messages; with few values one of them plain."""
    for steps, mixed in run(spoilt_of_two_kinds, 2, small_len).values():
        assert steps == [True, False, True, False, True] and mixed == 1


def spoilt_of_two_kinds(rank, size, small_len):
    """Whether each of five steps changed THC's memories: in the second a parameter of the first kind, in the fourth one
    of the second is NaN on rank 1. All skip then: there is an optimizer for each kind, and THC's bucket has both."""
    net = model()
    params = list(net.parameters())
    kinds = [torch.optim.Adam(params[::2]), torch.optim.Rprop(params[1::2])]
    document = plan((4, "gcomp-t12"), (2, "thc"))
    ddp = gradwire.torch.planned_ddp(net, document)
    state, hook = gradwire.torch.ddp_hook(kinds, plan=document, model=net, nmse=1e-3)
    for one in state.codecs.gcomp:
        one._small_len = max(small_len, 1)
    ddp.register_comm_hook(state, hook)
    bad, nan = [()], float("nan")
    for name in ("4.weight", "4.bias", "2.weight", "2.bias"):
        net.get_parameter(name).register_hook(lambda gradient, name=name: gradient * (nan if name in bad[0] else 1.0))
    kept = [memories(state.state_dict())]
    for step in range(5):
        bad[0] = {1: ("4.weight", "2.bias"), 3: ("2.weight", "4.bias")}.get(step, ()) if rank == 1 else ()
        step_of(net, ddp, rank, step)
        kept.append(memories(state.state_dict()))
    mixed = sum(len(one.rooms) for one in state.codecs.gcomp)
    state.close()
    return [bool(changed(a, b)) for a, b in itertools.pairwise(kept)], mixed


class Two(torch.nn.Module):
    """Two parameters whose gradients are what is given."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.zeros(2048, dtype=dtype)) for _ in range(2))

    def forward(self, a, b):
        return (self.a.float() * a).sum() + (self.b.float() * b).sum()


def two_buckets(codec, *options):
    groups = [{"codec": codec, "elems": 2048, "names": [name]} for name in "ba"]
    return {"schema": "gradwire-buckets/1", "groups": [{**one, **dict(*options)} for one in groups]}


def two_optimizers(rank, size, document):
    """How far what b has got, and what its memories hold, is from its gradients, if a step of a's optimizer is
    skipped; and which memories that step changed. Then the same for b's: which memories did that change?"""
    net = Two()
    optimizers = [torch.optim.SGD([param], lr=1.0) for param in (net.a, net.b)]
    ddp = gradwire.torch.planned_ddp(net, document)
    state, hook = gradwire.torch.ddp_hook(optimizers, plan=document, model=net)
    ddp.register_comm_hook(state, hook)
    total, random, touched = torch.zeros(2048), torch.Generator().manual_seed(rank), []
    for step in range(6):
        a, b = torch.randn(2048, generator=random), torch.randn(2048, generator=random)
        if step >= 4 and rank == 1:
            (a, b)[step - 4][7] = float("nan")
        before = memories(state.state_dict())
        net.zero_grad()
        ddp(a, b).backward()
        if step < 5:
            total += b
        for optimizer, param in zip(optimizers, (net.a, net.b)):
            if param.grad.isfinite().all():
                optimizer.step()  # as a GradScaler does
        after = memories(state.state_dict())
        touched.append([key[-1] for key in before.keys() | after.keys() if str(key) in changed(before, after)])
    (b_memory,) = [one for key, one in after.items() if key[-1] == 1]
    state.close()
    return (total + net.b.detach() - b_memory).tolist(), touched[4:]


@pytest.mark.parametrize("codec", [("thc",), ("classic", {"options": {"scheme": "topk", "ratio": 0.1}})])
def test_a_step_that_one_of_two_optimizers_skips_counts_for_the_other(codec):
    found = run(two_optimizers, 2, two_buckets(*codec))
    assert [touched for _, touched in found.values()] == 2 * [[[1], [0]]]
    assert sum(torch.tensor(left) for left, _ in found.values()).abs().max() < 1e-3


def overflowing(rank, size, options):
    """Whether the mean of each of five steps is finite, and whether memories changed: gradients are those of fp16."""
    param = torch.nn.Parameter(torch.zeros(4096, dtype=torch.float16))
    state, _ = gradwire.torch.ddp_hook(torch.optim.SGD([param], lr=0.1), small_len=0, **options)
    found = []
    for step in range(5):
        before, values = memories(state.state_dict()), torch.full((4096,), 20000.0, dtype=torch.float16)
        mean = state.start(Bucket(values, [param], [values], step)).wait()
        found.append((bool(mean.isfinite().all()), bool(changed(before, memories(state.state_dict())))))
    state.close()
    return found


def overflowing_in_a_plan(rank, size):
    net = Two(torch.float16)
    document = two_buckets("classic", {"options": {"scheme": "topk", "ratio": 0.1}})
    ddp = gradwire.torch.planned_ddp(net, document)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net)
    ddp.register_comm_hook(state, hook)
    found = []
    for _ in range(5):
        before = memories(state.state_dict())
        net.zero_grad()
        ddp(20000.0, 0.125).backward()
        found.append((bool(net.a.grad.isfinite().all()), bool(changed(before, memories(state.state_dict())))))
    state.close()
    return found


RANDK = {"codec": "randk", "ratio": 0.1, "error_feedback": True, "unbiased": False}


@pytest.mark.parametrize("options", [None, {"codec": "topk", "ratio": 0.1}, {"codec": "dgc", "ratio": 0.1}, RANDK])
def test_a_mean_that_is_out_of_range_leaves_memories(options):
    """Each rank's gradients are finite, and so are its frames: what earlier steps have left is too much for fp16."""
    arguments = (overflowing_in_a_plan, 2) if options is None else (overflowing, 2, options)
    for found in run(*arguments).values():
        assert found[0] == (True, True) and (False, False) in found and (False, True) not in found


def test_whether_values_are_finite():
    """Sums that are not finite may be of values that are."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        values = torch.full((1000,), torch.finfo(dtype).max, dtype=dtype)
        assert is_finite(values) and is_finite(-values) and is_finite(values[:0])
        for bad in (float("nan"), float("inf"), -float("inf")):
            values = torch.zeros(1000, dtype=dtype)
            values[617] = bad
            assert not is_finite(values)
        values[3] = float("inf")
        assert not is_finite(values)
    assert is_finite(torch.arange(3))


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


def loaded_and_spoilt(rank, size):
    """Which memories a step changed in which a gradient is NaN in another bucket, after a load, and a good one then."""
    saved = None
    for first in (0, 1):
        net, ddp, state = made(MIXED)
        if first:
            state.load_state_dict(saved)
            net.get_parameter(ORDER[0]).register_hook(lambda gradient: gradient * bad[0])
        bad = [float("nan") if first and rank == 1 else 1.0]
        before = memories(state.state_dict())
        step_of(net, ddp, rank, first)
        saved = state.state_dict()
        touched = changed(before, memories(saved))
        bad[0] = 1.0
        step_of(net, ddp, rank, 2)
        later = changed(memories(saved), memories(state.state_dict()))
        state.close()
    return len(before), touched, len(later)


def test_buckets_of_a_plan_count_together_after_a_load_too():
    for count, touched, later in run(loaded_and_spoilt, 2).values():
        assert count >= 3 and touched == [] and later >= 3


def saving_sums(rank, size):
    """A state of each rank after a step: the memory of the sum that it owns."""
    param, state = thc(sums="requantized")
    state.start(a_bucket(param, torch.randn(3072, generator=torch.Generator().manual_seed(rank)))).wait()
    saved = state.state_dict()
    state.close()
    return {**saved, "sum_errors": {key: one.numpy() for key, one in saved["sum_errors"].items()}, "errors": {}}


def loading_sums(rank, size, states):
    """What is loaded of one of these states, and what the log says."""
    said, (_, state) = Lines(), thc(sums="requantized")
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


def refusing_other_plans(rank, size):
    """What hooks with another plan, or none, say to the states of one with memories."""
    said = []
    for document in (plan((6, "thc")), TREES[0]):
        net, ddp, state = made(document)
        step_of(net, ddp, rank, 0)
        saved = state.state_dict()
        state.close()
        for other in (plan((6, "thc", {"bits": 3})), plan((6, "fp32")), None):
            net, ddp, state = made(other, {})
            with pytest.raises(ValueError) as caught:
                state.load_state_dict(saved)
            said.append(str(caught.value))
            assert state.step == 0  # nothing has changed
            if "thc" in said[-1]:
                state.load_state_dict({**saved, "thc": {"[]": {**saved["thc"]["[]"], "errors": {}}}})
            else:
                levels = {**saved["levels"]["levels"], "memory": {"1": {}}}
                state.load_state_dict({**saved, "levels": {"levels": levels}})
            assert state.step == 1
            state.close()
    return said


def test_memories_of_another_plan_are_refused():
    for said in run(refusing_other_plans, 4).values():
        assert len(said) == 6
        for text in said[:3]:
            assert "the state has memories of thc, options []: the hook, or its plan, has none" in text
            assert "load it with an empty ['thc']['[]']['errors']" in text
        assert all("load it with an empty ['levels']['levels']['memory']" in text for text in said[3:])


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


def alone_and_spoilt(rank, size, nonfinite):
    """What THC's hook on one rank says to a gradient that is NaN: the error, and which gradients are finite."""
    net = model()
    ddp = DDP(net, **one_bucket_each())
    state, hook = gradwire.torch.thc_hook(torch.optim.SGD(net.parameters(), lr=0.1), small_len=1, nonfinite=nonfinite)
    ddp.register_comm_hook(state, hook)
    net.get_parameter("2.weight").register_hook(lambda gradient: gradient * float("nan"))
    try:
        step_of(net, ddp, rank, 0)
    except RuntimeError as error:
        return str(error)
    return {name for name, param in net.named_parameters() if not param.grad.isfinite().all()}


def test_one_rank_alone_finds_gradients_that_are_not_finite():
    assert "rank 0, parameter 2: " in run(alone_and_spoilt, 1, "error")[0]
    assert run(alone_and_spoilt, 1, "propagate") == {0: {"2.weight"}}
