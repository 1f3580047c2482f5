"""runtime.h by ctypes: threads, exchanges, events. The interpreter lock is released in every call."""

from __future__ import annotations

import threading
from ctypes import byref, c_uint64, c_void_p

from gradwire import _abi, _prototypes
from gradwire import _constants as names
from gradwire import _structs as s
from gradwire._library import Library, check, load

WAKE, MAP, DONE = names.GW_RUNTIME_WAKE, names.GW_RUNTIME_MAP, names.GW_RUNTIME_DONE
SEND, SHARE = names.GW_RUNTIME_SEND, names.GW_RUNTIME_SHARE
FALLBACK, SCATTER, SAMPLE = names.GW_EXCHANGE_FALLBACK, names.GW_EXCHANGE_SCATTER, names.GW_EXCHANGE_SAMPLE
ALGORITHMS = {"a2a": names.GW_EXCHANGE_A2A, "ring": names.GW_EXCHANGE_RING}
ALL = names.GW_RUNTIME_ALL
MAP_WORDS = names.GW_COLLECTIVE_MAP_WORDS
THREADS_MAX = names.GW_RUNTIME_THREADS_MAX
NO_BUFFER = 0xFFFFFFFFFFFFFFFF


def _open() -> Library:
    cdll, path = load("gradwire-runtime")
    missing = [name for name in _prototypes.GRADWIRE_RUNTIME if not hasattr(cdll, name)]
    if missing:
        raise ImportError(f"{path} is not a library of this package: it has no {', '.join(missing)}")
    _abi.check(cdll, path, "gw_runtime_")
    return Library(cdll, path, _prototypes.GRADWIRE_RUNTIME)


native = _open()


class Pool:
    """Threads that run the steps of exchanges, and the queue of their events."""

    _EVENTS = 64

    def __init__(self, threads: int) -> None:
        self.handle = c_void_p()
        check(native.gw_runtime_open(s.gw_runtime_options(thread_count=threads), byref(self.handle)))
        started = native.gw_runtime_thread_count(self.handle)
        if started < threads:
            self.close()
            raise RuntimeError(f"gradwire: the system gives {started} of {threads} threads")
        self.threads = threads
        self._events = (s.gw_runtime_event * self._EVENTS)()

    def wait(self, timeout_s: float) -> list[s.gw_runtime_event]:
        """Events, oldest first; none if there is none in time. For one thread; valid until its next call."""
        count = native.gw_runtime_wait(self.handle, self._events, self._EVENTS, int(timeout_s * 1000))
        return self._events[:count]

    def wake(self) -> None:
        """Makes wait() return."""
        native.gw_runtime_wake(self.handle)

    def close(self) -> None:
        """Ends the threads. All exchanges must be closed."""
        native.gw_runtime_close(self.handle)
        self.handle = c_void_p()


class Exchange:
    """A bucket with its layout, codecs, map and message buffers. For any thread."""

    def __init__(self, pool: Pool, config: s.gw_exchange_config) -> None:
        self._handle = c_void_p()
        self._lock = threading.Lock()  # a call may come after stop() of another thread
        self._stats = s.gw_exchange_stats()
        check(native.gw_exchange_open(pool.handle, config, byref(self._handle)))
        self.info = s.gw_exchange_info()
        native.gw_exchange_info_get(self._handle, self.info)

    def memory(self, address: int) -> None:
        native.gw_exchange_memory(self._handle, address)

    def buffer_offset(self, piece: int, source: int) -> int | None:
        """Offset at which to receive the message that `source` has made, None if there is none."""
        offset = native.gw_exchange_buffer_offset(self._handle, piece, source)
        return None if offset == NO_BUFFER else offset

    def __enter__(self) -> c_void_p:
        """A block with calls of the library, to which stop() does not come. RuntimeError after it."""
        self._lock.acquire()
        if not self._handle:
            self._lock.release()
            raise RuntimeError("gradwire: the exchange has been stopped")
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def start_map(self, segments: s.gw_collective_segments, wire_scale: float) -> None:
        with self as handle:
            check(native.gw_exchange_map_start(handle, segments, wire_scale))

    def map_words(self) -> list[int]:
        words = (c_uint64 * MAP_WORDS)()
        with self as handle:
            check(native.gw_exchange_map_words(handle, words))
        return list(words)

    def receive(self, piece: int, source: int) -> None:
        with self as handle:
            check(native.gw_exchange_receive(handle, piece, source, None, 0))

    def stats(self) -> s.gw_exchange_stats:
        with self._lock:
            if self._handle:
                native.gw_exchange_stats_get(self._handle, self._stats)
            return s.gw_exchange_stats.from_buffer_copy(self._stats)

    def stop(self) -> None:
        """When it returns no thread of the runtime reads or writes values, results, messages or state of the optimizer,
        and none will: calls raise from then on, but for stats(). Does not wait for messages."""
        self.stats()
        with self._lock:
            if self._handle:
                native.gw_exchange_stop(self._handle)
            native.gw_exchange_close(self._handle)
            self._handle = c_void_p()
