"""One frame by several threads, which are the caller's: any concurrent.futures.Executor of threads.

Frames, values and errors are those of Codec.encode() and Codec.decode(). Worth it from about a million values on.
"""

from __future__ import annotations

from concurrent.futures import Executor
from ctypes import byref

import numpy as np

from gradwire import arrays
from gradwire._library import check, lib
from gradwire._structs import gw_buffer, gw_gcomp_info, gw_gcomp_part, gw_gcomp_range, gw_gcomp_target
from gradwire.arrays import ArrayLike
from gradwire.errors import index_or_none
from gradwire.gcomp import Codec, Frame, Source, Stream
from gradwire.maps import Map, levels_of


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
    source = Source(codec, values, map, stream)
    count = lib.gw_gcomp_chunk_count(codec.handle, source.values.size)
    ranges = _ranges(count, lib.gw_gcomp_range_align(codec.handle), parts)
    sizes = [lib.gw_gcomp_range_bound(codec.handle, source.values.size, byref(part)) for part in ranges]
    areas = [np.empty(size, np.uint8) for size in sizes]
    made = (gw_gcomp_part * len(ranges))(
        *(gw_gcomp_part(area.ctypes.data, area.size, part) for area, part in zip(areas, ranges))
    )

    def run(index: int) -> None:
        part = byref(made[index])
        check(lib.gw_gcomp_encode_range(codec.handle, source.struct, part, codec.workspace()))

    _all(executor, run, len(made))
    frame = np.empty(codec.bound(source.values.size), np.uint8)
    dst = gw_buffer(frame.ctypes.data, frame.size)
    check(lib.gw_gcomp_join(codec.handle, source.struct, made, len(made), byref(dst)))
    return frame[: dst.size].tobytes()


def decode(
    codec: Codec,
    frame: ArrayLike,
    executor: Executor,
    parts: int,
    *,
    map: Map | None = None,
    out: ArrayLike | None = None,
) -> ArrayLike:
    """Codec.decode() in up to `parts` >= 1 tasks. Error.chunk is the lowest bad chunk of the frame."""
    received, info = Frame(frame, map, codec.len_max), gw_gcomp_info()
    check(lib.gw_gcomp_check(codec.handle, received.struct, info))
    out = arrays.empty(codec.dtype, info.len) if out is None else out
    values = arrays.target(out, codec.dtype)
    arrays.apart(values, received.data, levels_of(map))
    if values.size != info.len:
        raise ValueError(f"out has {values.size} values, the frame {info.len}")
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
        check(status, chunk=index_or_none(chunk))
    return out


def _all(executor: Executor, run, count: int) -> None:
    """run(0), ... run(count - 1), all of which have ended on return, by an exception or not."""
    tasks = [executor.submit(run, index) for index in range(count)]
    failures = [task.exception() for task in tasks]
    for failure in failures:
        if failure is not None:
            raise failure
