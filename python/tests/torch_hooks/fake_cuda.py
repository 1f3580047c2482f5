"""CUDA's streams, events and futures as far as staging.py uses them, on CPU tensors: work runs as late as it may.

What a stream is given waits in its queue. Nothing runs before somebody waits for an event, or drain() is called; then
queues go on by chance, each at a speed of its own, as far as their events permit. So what is not ordered is, in some
order, wrong.
"""

import contextlib
import random

import torch


class Stream:
    def __init__(self, device=None):
        self.jobs = []
        self.speed = 10 ** machine.chance.uniform(-3, 3)
        machine.streams.append(self)

    def give(self, job):
        self.jobs.append(job)

    def wait_event(self, event):
        self.give(event)

    def wait_stream(self, other):
        event = Event()
        event.record(other)
        self.wait_event(event)


class Event:
    def __init__(self, blocking=False):
        self.done = True  # until it is recorded

    def record(self, stream):
        self.done = False
        stream.give(lambda: setattr(self, "done", True))

    def synchronize(self):
        assert machine.guards, "on the device of the thread"
        machine.run(lambda: self.done)


class Machine:
    def reset(self, seed):
        self.streams, self.chance = [], random.Random(seed)
        self.default = Stream()
        self.current = [self.default]  # the last one counts
        self.guards = 0  # blocks with a device that the thread is in
        self.kept = set()  # streams that memory must not be reused before

    def run(self, until):
        while not until():
            ready = [s for s in self.streams if s.jobs and not (isinstance(s.jobs[0], Event) and not s.jobs[0].done)]
            assert ready, "streams wait for each other"
            job = self.chance.choices(ready, [stream.speed for stream in ready])[0].jobs.pop(0)
            if not isinstance(job, Event):
                job()

    def drain(self):
        self.run(lambda: not any(stream.jobs for stream in self.streams))


machine = Machine()


class Future:
    """One with devices: done when the work is given, and who waits makes the current stream wait."""

    def __init__(self, *, devices=None):
        self.devices, self.calls, self.events, self.outcome = devices or [], [], [], None

    def set_result(self, value):
        self._end((value, None))

    def set_exception(self, error):
        self._end((None, error))

    def _end(self, outcome):
        assert self.outcome is None
        if self.devices and isinstance(outcome[0], Memory):  # torch looks where what the value holds is
            self.events.append(Event())
            self.events[-1].record(machine.current[-1])
        self.outcome = outcome
        for call in self.calls:
            call()

    def done(self):
        return self.outcome is not None

    def value(self):
        value, error = self.outcome
        if error is not None:
            raise error
        return value

    def wait(self):
        for event in self.events:
            machine.current[-1].wait_event(event)
        return self.value()

    def then(self, call):
        child = Future(devices=self.devices)

        def run():
            with contextlib.ExitStack() as stack:
                if self.devices:
                    stack.enter_context(on(Stream()))
                    for event in self.events:
                        machine.current[-1].wait_event(event)
                try:
                    child.set_result(call(self))
                except Exception as error:
                    child.set_exception(error)

        run() if self.done() else self.calls.append(run)
        return child


def collect_all(futures):
    both = Future()

    def look():
        failed = [one.outcome[1] for one in futures if one.done() and one.outcome[1]]
        if failed and not both.done():
            both.set_exception(failed[0])
        elif not both.done() and all(one.done() for one in futures):
            both.set_result(futures)

    for future in futures:
        look() if future.done() else future.calls.append(look)
    return both


@contextlib.contextmanager
def on(stream):
    machine.current.append(stream)
    try:
        yield
    finally:
        machine.current.pop()


class Memory(torch.Tensor):
    """Copies wait in the current stream."""

    def copy_(self, source, non_blocking=False):
        if not non_blocking:
            return super().copy_(source)
        machine.current[-1].give(lambda: torch.Tensor.copy_(self, source))
        return self

    def record_stream(self, stream):
        machine.kept.add(stream)


@contextlib.contextmanager
def device(_):
    machine.guards += 1
    try:
        yield
    finally:
        machine.guards -= 1


def stream_of_thread(stream):
    assert machine.guards, "the end of the block would choose the device of the thread"
    return on(stream)


class Cuda:
    Stream, Event = Stream, Event
    device = staticmethod(device)
    stream = staticmethod(stream_of_thread)
    current_stream = staticmethod(lambda device: machine.current[-1])
    default_stream = staticmethod(lambda device: machine.default)


class Futures:
    Future, collect_all = Future, staticmethod(collect_all)


class Torch:
    """In place of the module in staging.py."""

    cuda, futures = Cuda, Futures

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *size, pin_memory, **options):
        return torch.full(size, torch.nan, **options).as_subclass(Memory)

    def empty_like(self, like, pin_memory, device, **options):
        return torch.full_like(like, torch.nan, **options).as_subclass(Memory)


def memory(values):
    """Of the device."""
    return torch.tensor(values).as_subclass(Memory)
