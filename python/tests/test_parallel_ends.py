"""gradwire.parallel: on every way out no task runs or will run, and nothing is a result that was not computed."""

import contextlib
import signal
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import gradwire
import numpy as np
import pytest
from gradwire import parallel


class Interrupted(BaseException):
    """What a signal handler raises."""


@contextlib.contextmanager
def interrupts():
    """A call that raises Interrupted in the main thread, as Ctrl-C does, for other threads."""

    def raise_it(*_):
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        yield lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


class InterruptedFuture(Future):
    """Who waits for it is interrupted."""

    def exception(self, timeout=None):
        raise Interrupted


class Later:
    """Keeps tasks and runs none by itself. refuse: submit() raises at this one."""

    def __init__(self, refuse=None):
        self.tasks, self.refuse = [], refuse
        self.make_future = Future

    def submit(self, task):
        if len(self.tasks) == self.refuse:
            raise OSError("no more threads")
        self.tasks.append(task)
        return self.make_future()

    def run(self):
        for task in self.tasks:
            task()


@pytest.fixture
def values(rng):
    return rng.standard_normal(4 * 64 * 4096).astype(np.float32)  # four ranges of whole codebook groups


@pytest.fixture
def codec():
    return gradwire.Codec(chunk_log2=12)


@pytest.mark.parametrize("count", [1, 3])
def test_an_interrupt_waits_for_what_runs_and_drops_the_rest(count):
    """Also one interrupt after the other while it waits."""
    began, ended = [], []

    def work(index):
        began.append(index)
        for _ in range(count):
            interrupt()
            time.sleep(0.02)
        ended.append(index)

    with interrupts() as interrupt, ThreadPoolExecutor(1) as pool:
        with pytest.raises(Interrupted):
            parallel._all(pool, work, 5)
        assert began == ended
        pool.submit(int).result()  # what the pool still had is over
        assert began == ended == [0]


def test_a_submit_that_raises(codec, values):
    """The tasks that were accepted do nothing, however late they run."""
    late = Later(refuse=2)
    with pytest.raises(OSError, match="no more threads"):
        parallel.encode(codec, values, late, 4)
    late.run()
    out, frame = np.full_like(values, 7), codec.encode(values)
    late = Later(refuse=2)
    with pytest.raises(OSError, match="no more threads"):
        parallel.decode(codec, frame, late, 4, out=out)
    late.run()
    assert (out == 7).all()


def test_nothing_is_written_after_an_interrupt(codec, values):
    out, frame = np.full_like(values, 7), codec.encode(values)
    for call in (
        lambda: parallel.encode(codec, values, late, 4),
        lambda: parallel.decode(codec, frame, late, 4, out=out),
    ):
        late = Later()
        late.make_future = InterruptedFuture
        with pytest.raises(Interrupted):
            call()
        late.run()
        assert len(late.tasks) == 4
    assert (out == 7).all()


def test_a_task_keeps_what_it_writes(codec, values):
    """A task that outlives its call all the same, as after an interrupt between two instructions."""
    late = Later()
    late.make_future = InterruptedFuture
    with pytest.raises(Interrupted):
        parallel.encode(codec, values.copy(), late, 4)
    work = late.tasks[0]._work
    np.full(1 << 20, 7, np.uint8)
    work(0)
    names = dict(zip(work.__code__.co_freevars, work.__closure__))
    assert {"areas", "source", "codec"} <= names.keys()


def test_a_dropped_task_is_an_error(codec, values):
    class Drops(Later):
        def submit(self, task):
            future = super().submit(task)
            if len(self.tasks) != 3:
                task()
            future.set_result(None)
            return future

    class Cancels(Later):
        def submit(self, task):
            future = super().submit(task)
            future.cancel()
            return future

    frame = codec.encode(values)
    for call in (parallel.encode, parallel.decode):
        what = values if call is parallel.encode else frame
        with pytest.raises(RuntimeError, match="has not run task 2 of 4"):
            call(codec, what, Drops(), 4)
        with pytest.raises(CancelledError):
            call(codec, what, Cancels(), 4)
    assert parallel.encode(codec, values, Runs(), 4) == frame
    assert parallel.decode(codec, frame, Runs(), 4).tobytes() == values.tobytes()


class Runs(Later):
    """In the calling thread, twice."""

    def submit(self, task):
        future = super().submit(task)
        task(), task()
        future.set_result(None)
        return future


def test_a_task_that_raises():
    def work(index):
        ended.append(index)
        if index == 1:
            raise MemoryError("no workspace")

    ended = []
    with ThreadPoolExecutor(2) as pool, pytest.raises(MemoryError, match="no workspace"):
        parallel._all(pool, work, 4)
    assert sorted(ended) == [0, 1, 2, 3]


def test_digests_of_a_map_are_made_once(map):
    """Structs of other threads borrow from the first array that was stored."""
    gate, made = threading.Barrier(4), []

    def make():
        gate.wait()
        made.append(map.digest(12))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one is map.digest(12) for one in made)


def test_a_workspace_is_kept_by_who_asked_for_it():
    from gradwire.workspace import scratch

    first = scratch(1000)
    second = scratch(1 << 24)  # as a signal handler would, before the call that has the first one
    assert first.block.ctypes.data == first.data
    assert second.block is not first.block
