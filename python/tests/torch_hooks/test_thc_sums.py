"""THC's hook over its own exchanges: the bits of an integer all-reduce, the bytes it sends, damaged messages."""

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
    return type(state.error).__name__, state.error.name, str(state.error), same


@pytest.mark.parametrize("phase", [NORMS, SUMS])
@pytest.mark.parametrize("stage", [0, 1])
def test_a_damaged_message_is_an_error_on_all_ranks(phase, stage):
    found = run(damaged, 3, phase, stage, timeout_s=20)
    assert len({text for _, _, text, _ in found.values()}) == 1
    for kind, name, _, same in found.values():
        assert kind == "ExchangeError" and same
        assert name == "corrupt"


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
