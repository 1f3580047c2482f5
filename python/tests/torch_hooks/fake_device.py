"""A stand-in for staging.CudaStaging on the CPU: copies come late, and what must not be read yet, or any more, is NaN.

Its one stream is a thread that does jobs in order. Values of a bucket are NaN between the copy from them and the one to
them, rooms before and after, and what read() returns until the end of reading().
"""

import contextlib
import queue
import threading
import time

import torch
from gradwire.torch import staging

DELAY_S = 0.003


class FakeStaging:
    def __init__(self, device):
        self._jobs = queue.SimpleQueue()
        self._reads = threading.local()
        self.fetched = self.read_count = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            job = self._jobs.get()
            time.sleep(DELAY_S)
            job()

    def room(self, length, dtype):
        return staging.Room(torch.full((length,), torch.nan, dtype=dtype))

    def fetch(self, values, room):
        there = threading.Event()
        self.fetched += 1

        def copy():
            with torch.no_grad():
                room.values.copy_(values)
                values.fill_(torch.nan)
            there.set()

        self._jobs.put(copy)
        return there.wait

    def give_back(self, room, values, future):
        def copy():
            with torch.no_grad():
                values.copy_(room.values)
                room.values.fill_(torch.nan)
            future.set_result(values)

        self._jobs.put(copy)

    def future(self):
        return torch.futures.Future()

    def mark(self):
        return "mark"

    def after(self, marks):
        assert set(marks) == {"mark"}

    def stream(self):
        return contextlib.nullcontext()

    gloo_stream = stream

    @contextlib.contextmanager
    def reading(self, mark):
        assert mark in (None, "mark")
        self._reads.waiting = []
        yield
        time.sleep(DELAY_S)
        for room, values in self._reads.waiting:
            room.copy_(values)
        del self._reads.waiting

    def read(self, values, like):
        room = torch.full_like(like, torch.nan, dtype=torch.float32, requires_grad=False)
        self._reads.waiting.append((room, values.detach()))
        self.read_count += 1
        return room

    def synchronize(self):
        pass


def install():
    """Of this process, from now on: the CPU is a device."""
    staging.TYPES["cpu"] = FakeStaging
    return staging.of(torch.device("cpu"))
