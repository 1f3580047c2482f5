"""CudaStaging on simulated streams: whatever order they run in, nobody sees a value too early or too late."""

import fake_cuda
import pytest
import torch
from fake_cuda import machine, memory
from gradwire.torch import staging

SEEDS = range(40)


@pytest.fixture(params=SEEDS)
def cuda(request, monkeypatch):
    machine.reset(request.param)
    monkeypatch.setattr(staging, "torch", fake_cuda.Torch())
    monkeypatch.setattr(staging, "_made", {})
    monkeypatch.setitem(staging.TYPES, "cpu", staging.CudaStaging)
    return staging.of(torch.device("cpu"))


def compute(job):
    """A kernel in the current stream."""
    machine.current[-1].give(job)


def halved(copy):
    """What the codec's threads do."""
    copy.wait()
    copy.host.mul_(0.5)
    machine.kept = set()
    copy.finish()
    assert machine.kept  # the copy writes memory of another stream


@pytest.mark.parametrize("own", [False, True])
def test_steps_of_a_bucket(cuda, own):
    values, room, seen = memory([0.0, 0.0]), None, []
    with fake_cuda.on(fake_cuda.Stream() if own else machine.default):
        for step in range(3):
            compute(lambda step=step: values.fill_(2.0 + step))
            copy = staging.HostCopy(values, room)
            room = copy.room
            halved(copy)
            copy.future.wait()
            compute(lambda: seen.append(values.tolist()))
            compute(lambda: values.zero_())
    machine.drain()
    assert seen == [[1.0, 1.0], [1.5, 1.5], [2.0, 2.0]]


def test_a_room_is_not_filled_before_it_is_left(cuda):
    """Even if nobody has waited for the result before."""
    first, second = memory([2.0]), memory([6.0])
    copy = staging.HostCopy(first)
    halved(copy)
    next_copy = staging.HostCopy(second, copy.room)
    next_copy.wait()
    machine.drain()
    assert first.tolist() == [1.0] and next_copy.host.tolist() == [6.0]


def test_the_last_bucket_waits_for_the_verdict(cuda):
    values, seen = memory([0.0]), []
    compute(lambda: values.fill_(4.0))
    copy, gate = staging.HostCopy(values), fake_cuda.Future()
    future = staging.gated(gate, copy.future, values)
    halved(copy)
    assert not future.done()
    gate.set_result(None)
    future.wait()
    compute(lambda: seen.append(values.tolist()))
    machine.drain()
    assert seen == [[2.0]]


def test_a_bad_verdict_is_raised(cuda):
    values = memory([0.0])
    copy, gate = staging.HostCopy(values), fake_cuda.Future()
    future = staging.gated(gate, copy.future, values)
    halved(copy)
    gate.set_exception(RuntimeError("bad"))
    with pytest.raises(RuntimeError, match="bad"):
        future.wait()


def test_state_is_that_of_the_mark(cuda):
    """Steps of the optimizer before the mark are seen, and those after it wait for the copies, as hooks see to."""
    state = memory([1.0, 2.0])
    with fake_cuda.on(fake_cuda.Stream()):
        compute(lambda: state.add_(1.0))
        mark = cuda.mark()
    machine.kept = set()
    with cuda.reading(mark):
        found = cuda.read(state, state)
    assert found.tolist() == [2.0, 3.0] and machine.kept


def test_results_of_several_groups_come_together(cuda):
    """As in Planned._end: a bucket of DDP whose parts two streams have written."""
    values, marks, seen = memory([0.0, 0.0]), [], []
    for i in range(2):
        with fake_cuda.on(fake_cuda.Stream()):
            compute(lambda i=i: values[i : i + 1].fill_(1.0))
            marks.append(cuda.mark())
    future = staging.future_of(values)
    with fake_cuda.on(fake_cuda.Stream()):
        cuda.after(marks)
        future.set_result(values)
    future.wait()
    compute(lambda: seen.append(values.tolist()))
    machine.drain()
    assert seen == [[1.0, 1.0]]


def test_results_of_gloo(cuda, monkeypatch):
    """Its future has no device; its thread's stream, the default one, waits for the copy back."""
    values, seen, gloo = memory([3.0]), [], fake_cuda.Future()

    class Group:
        def name(self):
            return "gloo"

        def get_future(self):
            return gloo

    monkeypatch.setattr(staging.dist, "all_reduce", lambda values, group, async_op: group)
    with fake_cuda.on(fake_cuda.Stream()):
        future = staging.all_reduce(values, Group())
    copies = fake_cuda.Stream()
    copies.give(lambda: values.fill_(7.0))
    machine.default.wait_stream(copies)
    gloo.set_result([values])
    with fake_cuda.on(fake_cuda.Stream()):
        assert future.wait() is values
        compute(lambda: seen.append(values.tolist()))
    machine.drain()
    assert seen == [[7.0]]
