"""pool.h by ctypes: threads of the library, exchanges, events. The interpreter lock is released in every call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from gradwire import _abi
from gradwire._library import Library, check, load
from gradwire._structs import (
    gw_abi_struct,
    gw_collective_layout,
    gw_collective_segments,
    gw_collective_shape,
    gw_gcomp_options,
)

POKE, MAP, SEND, SHARE, DONE = 1, 2, 3, 4, 5
SPARE, SCATTER, SAMPLE = 1, 2, 4
MAP_WORDS = 6
THREADS_MAX = 256  # of pool.h
NO_SLOT = 0xFFFFFFFFFFFFFFFF


class gw_pool_event(Structure):
    _fields_ = [
        ("cookie", c_uint64),
        ("kind", c_uint32),
        ("piece", c_uint32),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("word", c_uint64),
    ]


class gw_exchange_config(Structure):
    _fields_ = [
        ("shape", gw_collective_shape),
        ("rank", c_uint32),
        ("contribution_bits", c_uint32),
        ("codec", gw_gcomp_options),
        ("spare", gw_gcomp_options),
        ("cookie", c_uint64),
        ("seed", c_uint64),
    ]


class gw_exchange_info(Structure):
    _fields_ = [
        ("layout", gw_collective_layout),
        ("memory_size", c_uint64),
        ("message_bound", c_uint64),
        ("digest_len", c_uint64),
    ]


class gw_exchange_run(Structure):
    _fields_ = [
        ("values", c_void_p),
        ("result", c_void_p),
        ("scale", c_float),
        ("step_index", c_uint32),
        ("flags", c_uint32),
    ]


class gw_exchange_stats(Structure):
    _fields_ = [
        ("sent_size", c_uint64),
        ("received_size", c_uint64),
        ("map_ns", c_uint64),
        ("encode_ns", c_uint64),
        ("reduce_ns", c_uint64),
        ("decode_ns", c_uint64),
        ("operations", c_uint64),
        ("sample_square", c_double),
        ("sample_error", c_double),
    ]


_STRUCTS = (gw_pool_event, gw_exchange_config, gw_exchange_info, gw_exchange_run, gw_exchange_stats)
_PROTOTYPES = {
    "gw_pool_structs": (POINTER(gw_abi_struct), (POINTER(c_size_t),)),
    "gw_pool_open": (c_int, (c_uint32, POINTER(c_void_p))),
    "gw_pool_close": (None, (c_void_p,)),
    "gw_pool_wait": (c_size_t, (c_void_p, POINTER(gw_pool_event), c_size_t, c_int)),
    "gw_pool_poke": (None, (c_void_p,)),
    "gw_exchange_open": (c_int, (c_void_p, POINTER(gw_exchange_config), POINTER(c_void_p))),
    "gw_exchange_close": (None, (c_void_p,)),
    "gw_exchange_info_get": (None, (c_void_p, POINTER(gw_exchange_info))),
    "gw_exchange_memory": (None, (c_void_p, c_void_p)),
    "gw_exchange_slot": (c_uint64, (c_void_p, c_uint32, c_uint32)),
    "gw_exchange_map_start": (c_int, (c_void_p, POINTER(gw_collective_segments), c_float)),
    "gw_exchange_map_words": (c_int, (c_void_p, POINTER(c_uint64))),
    "gw_exchange_start": (c_int, (c_void_p, POINTER(gw_exchange_run))),
    "gw_exchange_receive": (c_int, (c_void_p, c_uint32, c_uint32)),
    "gw_exchange_stats_get": (None, (c_void_p, POINTER(gw_exchange_stats))),
}


def _open() -> Library:
    cdll, path = load("gradwire_pool")
    library = Library(cdll, path, _PROTOTYPES)
    missing = [name for name in _PROTOTYPES if not hasattr(library, name)]
    if missing:
        raise ImportError(f"{path} is not a library of this package: it has no {', '.join(missing)}")
    _abi.compare(library.gw_pool_structs, {struct.__name__: struct for struct in _STRUCTS}, path)
    return library


native = _open()


class Pool:
    """Threads that run the steps of exchanges, and the queue of their events."""

    _EVENTS = 64

    def __init__(self, threads: int) -> None:
        self._handle = c_void_p()
        check(native.gw_pool_open(threads, byref(self._handle)))
        self.threads = threads
        self._events = (gw_pool_event * self._EVENTS)()

    @property
    def handle(self) -> c_void_p:
        return self._handle

    def wait(self, timeout_s: float) -> list[gw_pool_event]:
        """Events, oldest first; none if there is none in time. For one thread; valid until its next call."""
        count = native.gw_pool_wait(self._handle, self._events, self._EVENTS, int(timeout_s * 1000))
        return self._events[:count]

    def poke(self) -> None:
        """Makes wait() return."""
        native.gw_pool_poke(self._handle)

    def close(self) -> None:
        """Ends the threads. All exchanges must be closed."""
        native.gw_pool_close(self._handle)
        self._handle = c_void_p()


class Exchange:
    """A bucket with its layout, codecs, map and message slots. For any thread."""

    def __init__(self, pool: Pool, config: gw_exchange_config) -> None:
        self._handle = c_void_p()
        self._lock = threading.Lock()  # a call may come after stop() of another thread
        self._stats = gw_exchange_stats()
        check(native.gw_exchange_open(pool.handle, config, byref(self._handle)))
        self.info = gw_exchange_info()
        native.gw_exchange_info_get(self._handle, self.info)

    def memory(self, address: int) -> None:
        native.gw_exchange_memory(self._handle, address)

    def slot(self, piece: int, source: int) -> int | None:
        """Offset at which to receive the message, None if there is none."""
        offset = native.gw_exchange_slot(self._handle, piece, source)
        return None if offset == NO_SLOT else offset

    def start_map(self, segments: gw_collective_segments, wire_scale: float) -> None:
        self._call(native.gw_exchange_map_start, segments, wire_scale)

    def map_words(self) -> list[int]:
        words = (c_uint64 * MAP_WORDS)()
        self._call(native.gw_exchange_map_words, words)
        return list(words)

    def start(self, run: gw_exchange_run) -> None:
        self._call(native.gw_exchange_start, run)

    def receive(self, piece: int, source: int) -> None:
        self._call(native.gw_exchange_receive, piece, source)

    def _call(self, function: Callable[..., int], *arguments: Any) -> None:
        with self._lock:
            if not self._handle:
                raise RuntimeError("gradwire: the exchange has been stopped")
            check(function(self._handle, *arguments))

    def stats(self) -> gw_exchange_stats:
        with self._lock:
            if self._handle:
                native.gw_exchange_stats_get(self._handle, self._stats)
            return gw_exchange_stats.from_buffer_copy(self._stats)

    def stop(self) -> None:
        """When it returns no thread of the pool reads or writes values, results, messages or state of the optimizer,
        and none will: calls raise from then on, but for stats(). Does not wait for messages."""
        self.stats()
        with self._lock:
            native.gw_exchange_close(self._handle)
            self._handle = c_void_p()
