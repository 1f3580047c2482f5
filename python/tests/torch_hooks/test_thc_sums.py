"""THC's hook over its own exchanges: the bits of an integer all-reduce, the bytes it sends, damaged messages."""

import time
import types
from datetime import timedelta

import gradwire.thc
import gradwire.torch
import numpy as np
import pytest
import torch
from gradwire._constants import GW_THC_SUM_SEED
from gradwire.torch.buckets import Bucket
from gradwire.torch.sums import NORMS, SUMS, bits_a_value
from ranks import run

LENS = (1, 1000, 70_001, 140_000)


def values_of(rank, length, step):
    random = np.random.default_rng([rank, length, step])
    return (random.standard_normal(length) * 1e-3 * (1 + np.arange(length) // 5000 % 7)).astype(np.float32)


class Model:
    """The sums of one bucket as an all-reduce of integers makes them: MAX of the norms, SUM of the lanes."""

    def __init__(self, size, length, bits, feedback, sums):
        options = gradwire.thc.options(bits, size, seed=5, error_feedback=feedback, nonfinite="propagate")
        self.codec = gradwire.thc.Codec(options)
        again = gradwire.thc.options(bits, 1, seed=5 ^ GW_THC_SUM_SEED, nonfinite="propagate", error_feedback=feedback)
        self.again = gradwire.thc.Codec(again) if sums == "requantized" else None
        self.errors = [np.zeros(length, np.float32) if feedback else None for _ in range(size)]
        self.sum_error = np.zeros(length, np.float32) if feedback else None

    def mean(self, values, number):
        parts = [gradwire.thc.Part(round=number, rank=rank) for rank in range(len(values))]
        given = list(zip(values, parts, self.errors))
        maxima = np.max([self.codec.norms(one, part, error=error) for one, part, error in given], axis=0)
        lanes = [self.codec.encode_lanes(one, maxima, part, error=error) for one, part, error in given]
        total = np.sum(lanes, axis=0, dtype=lanes[0].dtype)
        mean = np.asarray(self.codec.decode_reduced(total, maxima, values[0].size, parts[0]), np.float32)
        if self.again is None:
            return mean
        patterns = self.again.norms(mean, parts[0], error=self.sum_error)
        lanes = self.again.encode_lanes(mean, patterns, parts[0], error=self.sum_error)
        return np.asarray(self.again.decode_reduced(lanes, patterns, mean.size, parts[0]), np.float32)


def bucket_of(param, values):
    flat = torch.from_numpy(values.copy())
    return Bucket(flat, [param], [flat])


def equal_bits(rank, size, bits, feedback, sums):
    params = [torch.nn.Parameter(torch.zeros(length)) for length in LENS]
    optimizer = torch.optim.SGD(params, lr=0.1)
    state, _ = gradwire.torch.thc_hook(optimizer, bits=bits, error_feedback=feedback, sums=sums, seed=5)
    models = [Model(size, length, bits, feedback, sums) for length in LENS]
    for step in range(3):
        buckets = [bucket_of(param, values_of(rank, param.numel(), step)) for param in params]
        futures = [state.start(bucket) for bucket in buckets]
        for i, (future, model) in enumerate(zip(futures, models)):
            future.wait()
            all_values = [values_of(other, LENS[i], step) for other in range(size)]
            expected = model.mean(all_values, len(LENS) * step + i)
            assert np.array_equal(buckets[i].values.numpy(), expected), (step, i)
            if feedback:
                assert np.array_equal(state._errors[i].numpy(), model.errors[rank]), (step, i)
            if feedback and sums == "requantized":
                kept, blocks = state._sum_errors[(i,)].numpy(), -(-LENS[i] // 1024)
                first = rank * -(-blocks // size) * 1024
                assert np.array_equal(kept, model.sum_error[first : first + kept.size]), (step, i)
        if step == 1:  # as in a run that goes on
            saved = state.state_dict()
            state.close()
            state, _ = gradwire.torch.thc_hook(optimizer, bits=bits, error_feedback=feedback, sums=sums, seed=5)
            state.load_state_dict(saved)
    sizes = state.sizes()
    state.close()
    return sizes


@pytest.mark.parametrize(
    "size, bits, feedback, sums",
    [
        (1, 4, True, "lanes"),
        (2, 4, True, "lanes"),
        (3, 4, False, "lanes"),
        (3, 4, False, "requantized"),
        (4, 2, True, "requantized"),
    ],
)
def test_results_and_memories_are_those_of_an_integer_all_reduce(size, bits, feedback, sums):
    found = run(equal_bits, size, bits, feedback, sums, timeout_s=20)
    sent, received = (sum(sizes[way] for sizes in found.values()) for way in (0, 1))
    assert sent == received and (sent > 0) == (size > 1)


def sizes(rank, size, sums, length):
    param = torch.nn.Parameter(torch.zeros(length))
    optimizer = torch.optim.SGD([param], lr=0.1)
    state, _ = gradwire.torch.thc_hook(optimizer, sums=sums)
    state.start(bucket_of(param, values_of(rank, length, 0))).wait()
    state.check()
    totals = state.report.totals()
    state.close()
    return totals["sent_size"], totals["received_size"], totals["full_size"]


@pytest.mark.parametrize("size, sums, expected", [(2, "lanes", 12), (4, "lanes", 12), (4, "requantized", 8)])
def test_bits_a_value(size, sums, expected):
    length = 1 << 19
    found = run(sizes, size, sums, length, timeout_s=20).values()
    for sent, received, full in found:
        assert full == 4 * length
        bits = 8 * (sent + received) / 2 / length * size / (size - 1)
        assert bits == pytest.approx(bits_a_value(4, size, sums), rel=0.002) and expected < bits < expected + 0.12


@pytest.mark.parametrize("ranks, expected", [(2, 12), (17, 12), (18, 20), (64, 20), (1285, 20)])
def test_bits_a_value_of_many_ranks(ranks, expected):
    assert expected < bits_a_value(4, ranks) < expected + 0.1
    assert 8 < bits_a_value(4, ranks, "requantized") < 8.1


def damaged(rank, size, phase, stage):
    param = torch.nn.Parameter(torch.zeros(LENS[2]))
    optimizer = torch.optim.SGD([param], lr=0.1)
    state, _ = gradwire.torch.thc_hook(optimizer, timeout=timedelta(seconds=20))

    def damage(of_phase, of_stage, piece, message):
        if rank == 1 and (of_phase, of_stage) == (phase, stage):
            message[message.numel() // 2] ^= 0x10

    state.start(bucket_of(param, values_of(rank, LENS[2], 0))).wait()
    before = {number: error.clone() for number, error in state.state_dict()["errors"].items()}
    state._engine.fault = damage
    with pytest.raises(RuntimeError, match="compressed all-reduce failed"):
        state.start(bucket_of(param, values_of(rank, LENS[2], 1))).wait()
    with pytest.raises(RuntimeError, match="an earlier operation failed"):
        state.check()
    same = all(torch.equal(before[number], error) for number, error in state.state_dict()["errors"].items())
    state.close()
    return type(state.error).__name__, state.error.name, state.error.rank, str(state.error), same


@pytest.mark.parametrize("phase", [NORMS, SUMS])
@pytest.mark.parametrize("stage", [0, 1])
def test_a_damaged_message_is_an_error_on_all_ranks(phase, stage):
    found = run(damaged, 3, phase, stage, timeout_s=20)
    assert len({text for _, _, _, text, _ in found.values()}) == 1
    for kind, name, blamed, _, same in found.values():
        assert kind == "ExchangeError" and same
        assert name == "corrupt" and blamed == 1


def wrong(rank, size):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1)
    said = []
    for options in ({"sums": "bytes"}, {"sums": "lanes" if rank else "requantized"}):
        with pytest.raises(ValueError) as caught:
            gradwire.torch.thc_hook(optimizer, **options)
        said.append(str(caught.value))
    return said


def test_wrong_sums():
    for said in run(wrong, 2, timeout_s=20).values():
        assert said[0] == "gradwire: sums is one of: lanes, requantized; not 'bytes'"
        assert said[1] == "gradwire: the ranks have different options: sums"


def step_of(state, hook, params, all_values):
    """The futures of a backward pass with a bucket for each parameter."""
    futures = []
    for i, (param, values) in enumerate(zip(params, all_values)):
        flat = torch.as_tensor(values).clone()
        bucket = types.SimpleNamespace(
            buffer=lambda flat=flat: flat,
            parameters=lambda param=param: [param],
            gradients=lambda flat=flat: [flat],
            is_last=lambda i=i: i + 1 == len(params),
        )
        futures.append(hook(state, bucket))
    return futures


def with_a_plain_end():
    """A hook whose first bucket travels by THC and whose last one plain."""
    params = [torch.nn.Parameter(torch.zeros(length)) for length in (LENS[2], 100)]
    optimizer = torch.optim.SGD(params, lr=0.1)
    return (*gradwire.torch.thc_hook(optimizer, small_len=1000, timeout=timedelta(seconds=20)), params)


def errors_of(state):
    return {number: error.clone() for number, error in state.state_dict()["errors"].items()}


def equal(errors, others):
    return errors.keys() == others.keys() and all(torch.equal(errors[number], others[number]) for number in errors)


def damaged_at_one(rank, size):
    """Rank 2 alone gets a sum of rank 0 that is damaged."""
    state, hook, params = with_a_plain_end()
    values = [values_of(rank, param.numel(), 0) for param in params]
    step_of(state, hook, params, values)[-1].wait()
    before = errors_of(state)
    ((_, bucket),) = state._engine.buckets.items()
    messages = bucket.phases[SUMS].messages
    receive = messages.exchange.receive

    def damage(piece, maker):
        for room in messages._rooms:
            if (room.stage, room.piece, room.maker) == (1, piece, maker) and maker == 0:
                room.memory[room.memory.numel() // 4] ^= 1
        receive(piece, maker)

    if rank == 2:
        messages.exchange.receive = damage
    with pytest.raises(RuntimeError, match="compressed all-reduce failed"):
        step_of(state, hook, params, values)[-1].wait()
    same = equal(before, errors_of(state))
    state.close()
    return state.error.name, state.error.rank, same


def test_a_plain_last_bucket_fails_on_all_ranks_if_a_rank_has_failed():
    assert set(run(damaged_at_one, 3, timeout_s=20).values()) == {("corrupt", 0, True)}


def infinite_with_a_plain_end(rank, size):
    state, hook, params = with_a_plain_end()
    values = [values_of(rank, param.numel(), 0) for param in params]
    step_of(state, hook, params, values)[-1].wait()
    before, wait = errors_of(state), state._engine.wait
    state._engine.wait = lambda: (time.sleep(0.2), wait())[1]  # the end of the step comes late
    if rank == 1:
        values[0][7] = np.inf
    futures = step_of(state, hook, params, values)
    results = [future.wait() for future in futures]
    same = equal(before, errors_of(state))
    state.close()
    return same, bool(results[0].isfinite().all()), bool(results[1].isfinite().all())


def test_memories_are_those_from_before_when_a_plain_last_bucket_is_there():
    assert set(run(infinite_with_a_plain_end, 2, timeout_s=20).values()) == {(True, False, True)}


def failing_later(rank, size):
    """The first of two buckets has come when rank 0 gives up."""
    params = [torch.nn.Parameter(torch.zeros(length)) for length in LENS[2:]]
    state, hook = gradwire.torch.thc_hook(torch.optim.SGD(params, lr=0.1), timeout=timedelta(seconds=20))
    values = [values_of(rank, param.numel(), 0) for param in params]
    step_of(state, hook, params, values)[-1].wait()
    before = errors_of(state)
    first = Bucket(torch.from_numpy(values[0].copy()), params[:1], [], is_last=False)
    state.start(first).wait()
    changed = not equal(before, errors_of(state))
    if rank == 0:
        state.fail(ValueError("given up"))
    with pytest.raises(RuntimeError):
        state.check()
    same = equal(before, errors_of(state))
    state.close()
    return changed, same


def test_memories_are_those_from_before_whatever_has_failed():
    assert set(run(failing_later, 3, timeout_s=20).values()) == {(True, True)}


def loads(rank, size, server=None):
    """A checkpoint that was cast is that of its values in fp32."""
    param = torch.nn.Parameter(torch.zeros(LENS[2]))
    options = {"sums": "requantized"} if server is None else {"server": server}
    saved, results = None, {}
    for name, cast in (
        ("none", lambda kept: kept),
        ("double", torch.Tensor.double),
        ("half", torch.Tensor.half),
        ("half as fp32", lambda kept: kept.half().float()),
        ("strided", lambda kept: torch.stack((kept, kept), 1)[:, 0]),
    ):
        state, _ = gradwire.torch.thc_hook(torch.optim.SGD([param], lr=0.1), **options)
        if saved is None:
            state.start(bucket_of(param, values_of(rank, LENS[2], 0))).wait()
            saved = state.state_dict()
        kinds = [kind for kind in ("errors", "sum_errors") if kind in saved]
        casts = {kind: {key: cast(kept) for key, kept in saved[kind].items()} for kind in kinds}
        state.load_state_dict({**saved, **casts})
        results[name] = state.start(bucket_of(param, values_of(rank, LENS[2], 1))).wait()
        after = state.state_dict()
        assert all(kept.dtype == torch.float32 for kind in kinds for kept in after[kind].values())
        for kind in kinds:
            for wrong in ([0.0] * LENS[2], torch.zeros(LENS[2], dtype=torch.int32)):
                with pytest.raises(ValueError, match="an error memory is a dense tensor of floating-point numbers"):
                    state.load_state_dict({**saved, kind: dict.fromkeys(saved[kind], wrong)})
        state.check()
        state.close()
    assert results["none"].isfinite().all() and results["half"].isfinite().all()
    assert torch.equal(results["none"], results["double"]) and torch.equal(results["none"], results["strided"])
    return torch.equal(results["half"], results["half as fp32"])


def test_memories_of_other_types_are_loaded_as_fp32():
    assert set(run(loads, 2, timeout_s=20).values()) == {True}


def refusing(rank, size):
    param = torch.nn.Parameter(torch.zeros(LENS[2]))
    state, _ = gradwire.torch.thc_hook(torch.optim.SGD([param], lr=0.1))
    state.start(bucket_of(param, values_of(rank, LENS[2], 0))).wait()
    (bucket,) = state._engine.buckets.values()
    good, bad = torch.zeros(LENS[2]), torch.zeros(LENS[2], dtype=torch.float64)
    for values, error in ((bad, good), (good, bad), (good, torch.zeros(2 * LENS[2])[::2])):
        with pytest.raises(TypeError, match="memories are fp32 of the CPU"):
            bucket.run_of(values, error, None, 1)
    bucket.phases[SUMS].done.clear()
    with pytest.raises(RuntimeError, match="the bucket's last sums have not ended"):
        bucket.begin(NORMS, bucket.run_of(good, good, None, 1), 1, "round 1")
    bucket.phases[SUMS].done.set()
    with pytest.raises(ValueError, match="belongs to a tuple"):
        state.load_state_dict({**state.state_dict(), "sum_errors": {0: good}})
    state.close()
    return True


def test_what_the_library_cannot_check_is_refused():
    assert run(refusing, 1, timeout_s=20) == {0: True}


def cut_otherwise(rank, size):
    """Keys of the memories of sums after a load, and after the steps that follow."""
    params = [torch.nn.Parameter(torch.zeros(length)) for length in LENS[2:]]
    state, hook = gradwire.torch.thc_hook(torch.optim.SGD(params, lr=0.1), sums="requantized")
    saved = {**state.state_dict(), "sum_errors": {(0, 1): torch.zeros(5), (1,): torch.zeros(70_656)}}
    state.load_state_dict(saved)
    keys = [sorted(state.state_dict()["sum_errors"])]
    for step in range(2):
        values = [values_of(rank, param.numel(), step) for param in params]
        step_of(state, hook, params, values)[-1].wait()
        keys.append(sorted(state.state_dict()["sum_errors"]))
    state.close()
    return keys


def test_memories_of_sums_of_no_bucket_are_forgotten():
    for keys in run(cut_otherwise, 2, timeout_s=20).values():
        assert keys == [[(0, 1), (1,)], [(0,), (0, 1), (1,)], [(0,), (1,)]]


def overlapping(rank, size):
    """Buckets of a backward pass; the future of the last one is the end of the step."""
    params = [torch.nn.Parameter(torch.zeros(40_000)) for _ in range(6)]
    optimizer = torch.optim.SGD(params, lr=0.1)
    state, hook = gradwire.torch.thc_hook(optimizer, small_len=1)
    kinds = []
    for step in range(3):
        chosen = params if step < 2 else params[:3]  # DDP rebuilds its buckets
        futures = []
        for i, param in enumerate(chosen):
            values = torch.from_numpy(values_of(rank, 40_000, 10 * step + i))
            bucket = types.SimpleNamespace(
                buffer=lambda values=values: values,
                parameters=lambda param=param: [param],
                gradients=lambda values=values: [values],
                is_last=lambda i=i, chosen=chosen: i + 1 == len(chosen),
            )
            futures.append(hook(state, bucket))
        results = [future.wait() for future in futures]
        assert all(result.abs().sum() > 0 for result in results)
        state.check()
        kinds.append(len(state._engine.buckets))
    state.close()
    return kinds, state.sizes()


def test_buckets_overlap_and_those_that_do_not_come_again_are_forgotten():
    for kinds, (sent, received) in run(overlapping, 3, timeout_s=20).values():
        assert kinds == [6, 6, 3] and sent > 0 and received > 0
