"""One frame by several threads, which are the caller's: any concurrent.futures.Executor of threads.

Frames, values and errors are those of Codec.encode() and Codec.decode(). Worth it from about a million values on.

A call that ends early, by an exception of the executor, Ctrl-C or a time limit, first waits for its tasks that run;
those that have not begun do nothing. So nothing is written after it has raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from ctypes import byref

import numpy as np

from gradwire import arrays
from gradwire._fill import integer
from gradwire._library import check, lib
from gradwire._structs import gw_gcomp_frame_info, gw_gcomp_part, gw_gcomp_range, gw_gcomp_target
from gradwire.arrays import ArrayLike
from gradwire.gcomp import Codec, Frame, Source, Stream
from gradwire.maps import Map, bytes_of
from gradwire.workspace import Output


def _ranges(chunk_count: int, align: int, parts: int) -> list[gw_gcomp_range]:
    """At most `parts` ranges of about equal length that begin at multiples of `align` chunks."""
    step = -(-chunk_count // (align * parts)) * align
    return [gw_gcomp_range(first, min(step, chunk_count - first)) for first in range(0, chunk_count, step or 1)]


def encode(
    codec: Codec,
    values: ArrayLike,
    executor: Executor,
    parts: int,
    *,
    map: Map | None = None,
    stream: Stream | None = None,
) -> bytes:
    """Codec.encode() in up to `parts` >= 1 tasks; the bytes do not depend on their number."""
    parts = integer(parts, "parts", 1, 1 << 32)
    source = Source(codec, values, map, stream)
    count = lib.gw_gcomp_chunk_count(codec.handle, source.values.size)
    ranges = _ranges(count, lib.gw_gcomp_range_align(codec.handle), parts)
    sizes = [lib.gw_gcomp_range_bound(codec.handle, source.values.size, byref(part)) for part in ranges]
    areas = [np.empty(size, np.uint8) for size in sizes]
    made = (gw_gcomp_part * len(ranges))()

    def run(index: int) -> None:
        area = areas[index]  # from here, so that a task keeps what it writes
        made[index] = gw_gcomp_part(area.ctypes.data, area.size, ranges[index])
        part = byref(made[index])
        check(lib.gw_gcomp_encode_range(codec.handle, source.struct, part, codec.workspace()))

    _all(executor, run, len(made))
    frame = Output(codec.bound(source.values.size))
    check(lib.gw_gcomp_join(codec.handle, source.struct, made, len(made), frame.buffer))
    return frame.written()


def decode(
    codec: Codec,
    frame: ArrayLike,
    executor: Executor,
    parts: int,
    *,
    map: Map | None = None,
    out: ArrayLike | None = None,
) -> ArrayLike:
    """Codec.decode() in up to `parts` >= 1 tasks. Error.chunk is the lowest bad chunk of the frame. After an exception
    that is no Error any chunk of out may be decoded or not."""
    parts = integer(parts, "parts", 1, 1 << 32)
    received, info = Frame(frame, map, codec.len_max), gw_gcomp_frame_info()
    check(lib.gw_gcomp_frame_parse(codec.handle, received.struct, info))
    out = arrays.empty(codec.dtype, info.len) if out is None else out
    values = arrays._place_of(out, codec.dtype, info.len, "the frame", received.data, bytes_of(map))
    ranges = _ranges(info.chunk_count, 1, parts)
    outcomes: list[tuple[int, int]] = [(0, 0)] * len(ranges)

    def run(index: int) -> None:
        part = ranges[index]
        first, end = (chunk << info.chunk_log2 for chunk in (part.chunk_first, part.chunk_first + part.chunk_count))
        piece = values[first:end]
        target = gw_gcomp_target(values=piece.ctypes.data, capacity=piece.size)
        status = lib.gw_gcomp_decode_range(
            codec.handle, received.struct, info, byref(part), byref(target), codec.workspace()
        )
        outcomes[index] = status, target.bad_chunk

    _all(executor, run, len(ranges))
    for status, chunk in outcomes:
        check(status, chunk=chunk)
    return out


class _Task:
    """work(index) for an executor, which may run it late or never: once it is withdrawn it does nothing."""

    def __init__(self, work: Callable[[int], None], index: int) -> None:
        self._work, self._index = work, index
        self._first: dict[str, _Task | object] = {}  # who came first, the one run or withdraw(): setdefault() is atomic
        self.error: BaseException | None = None
        self.ended = False

    def __call__(self) -> None:
        run = object()
        if self._first.setdefault("who", run) is not run:
            return
        try:
            self._work(self._index)
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True

    def withdraw(self) -> bool:
        """False while the work runs, else it does not and will not run. May be interrupted and called again."""
        return self._first.setdefault("who", self) is self or self.ended


def _all(executor: Executor, work: Callable[[int], None], count: int) -> None:
    """work(0), ... work(count - 1). On return, by an exception or not, none of them runs or will run."""
    tasks = [_Task(work, index) for index in range(count)]
    futures: list[Future] = []
    try:
        for task in tasks:
            futures.append(executor.submit(task))
        failures = [future.exception() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    finally:
        _withdraw(tasks)
    for task, failure in zip(tasks, failures):
        if task.error is not None or failure is not None:
            raise task.error or failure
    missing = [index for index, task in enumerate(tasks) if not task.ended]
    if missing:
        raise RuntimeError(f"the executor has not run task {missing[0]} of {count}, which it says is done")


def _withdraw(tasks: list[_Task]) -> None:
    """Waits for tasks that run; what interrupts it is raised at its end. It polls: an exception in the middle of a
    Condition's wait may leave its lock taken."""
    interrupt: BaseException | None = None
    while True:
        try:
            while sum(not task.withdraw() for task in tasks):  # of all: what waits behind one that runs, too
                time.sleep(0.001)
            break
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
