"""The way of a bucket from DDP's call to the runtime: functions of the package that it passes, one in another."""

import functools
import sys
import threading
import types
from pathlib import Path

import gradwire.torch
import torch
from gradwire.torch import _pool
from ranks import run
from torch.nn.parallel import DistributedDataParallel as DDP

STATIONS_MAX, THREADS_MAX = 5, 2
PACKAGE = str(Path(gradwire.torch.__file__).parent.parent)


def stations(frame):
    """Functions of the package in which this frame is, the outermost first. What runs a thread is called once for the
    thread, not for a bucket, and does not count."""
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name != "_run_jobs":
            found.append(f"{Path(frame.f_code.co_filename).name}: {frame.f_code.co_name}")
        frame = frame.f_back
    return found[::-1]


class Way:
    """Notes each hand-over of a job to a thread, and the start of exchanges in the runtime."""

    def __init__(self):
        self.ways = []  # (functions, threads) of each bucket
        self._before = threading.local()  # of the job that this thread runs: functions up to its hand-over, and threads

    def _here(self, frame):
        functions, threads = getattr(self._before, "way", ([], []))
        return functions + stations(frame), [*threads, threading.get_ident()]

    def submit(self, submit, job):
        """In place of Worker.submit()."""
        way = self._here(sys._getframe(1))

        def noted():
            self._before.way = way
            try:
                job()
            finally:
                del self._before.way

        submit(noted)

    def start(self, start, *arguments):
        """In place of gw_exchange_start()."""
        self.ways.append(self._here(sys._getframe(1)))
        return start(*arguments)


def ways(rank, size):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(40, 600), torch.nn.Tanh(), torch.nn.Linear(600, 600))
    ddp = DDP(net, bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    state, hook = gradwire.torch.ddp_hook(optimizer, compress="always", small_len=256)
    ddp.register_comm_hook(state, hook)
    way = Way()
    for step in range(4):
        if step == 3:  # an ordinary one: buckets are known, and have maps
            control = state.engine.control
            assert isinstance(control.submit, types.BuiltinMethodType)  # no function of the package that is not seen
            control.submit = functools.partial(way.submit, control.submit)
            native = _pool.native
            native.gw_exchange_start = functools.partial(way.start, native.gw_exchange_start)
        optimizer.zero_grad()
        ddp(torch.randn(8, 40)).square().mean().backward()
        optimizer.step()
    state.check()
    state.close()
    return [(functions, len(set(threads))) for functions, threads in way.ways]


def test_a_bucket_passes_few_functions_and_threads_on_its_way_to_the_runtime():
    for found in run(ways, 2).values():
        assert len(found) >= 2  # buckets of a step
        for functions, threads in found:
            print(" > ".join(functions), f"({threads} threads)")
            assert functions[0] == "reducer.py: hook"
            assert len(functions) <= STATIONS_MAX, functions
            assert threads <= THREADS_MAX
