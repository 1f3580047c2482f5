"""thc_client.h by ctypes: a worker of a parameter server. The interpreter lock is released in every call."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    create_string_buffer,
    pointer,
)

import numpy as np

import gradwire.thc
from gradwire import _structs as s
from gradwire._library import load

_ERROR_SIZE = 600
_PENDING, _DONE = 1, 0


class _Options(Structure):
    _fields_ = [
        ("address", c_char_p),
        ("thc", POINTER(s.gw_thc)),
        ("len_max", c_uint64),
        ("rank", c_uint32),
        ("timeout_ms", c_uint32),
        ("silence_ms", c_uint32),
    ]


class Counts(Structure):
    """gw_thc_client_counts"""

    _fields_ = [
        (name, c_uint64)
        for name in ("sent", "sent_size", "received", "received_size", "sent_again", "ignored", "restarts")
    ]


def _open():
    cdll, _ = load("gradwire-thc-client")
    prototypes = {
        "open": (c_void_p, [POINTER(_Options), c_char_p, c_size_t]),
        "close": (None, [c_void_p]),
        "norms": (c_int, [c_void_p, c_uint32, c_uint64, c_void_p]),
        "indices": (c_int, [c_void_p, c_void_p, c_size_t]),
        "run": (c_int, [c_void_p, c_uint32]),
        "maxima": (c_int, [c_void_p, c_void_p, c_void_p]),
        "sums": (c_int, [c_void_p, POINTER(s.gw_buffer), c_void_p, c_void_p]),
        "error": (c_char_p, [c_void_p]),
        "count": (None, [c_void_p, POINTER(Counts)]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(cdll, f"gw_thc_client_{name}")
        function.restype, function.argtypes = result, arguments
    return cdll


_native = _open()


class Client:
    """A worker. For one thread at a time. Raises RuntimeError, which names the address. len_max: values of the largest
    tensor, equal on all workers."""

    def __init__(
        self, address: str, codec: gradwire.thc.Codec, rank: int, len_max: int, *, timeout_ms: int, silence_ms: int
    ) -> None:
        self._handle = None
        error = create_string_buffer(_ERROR_SIZE)
        options = _Options(address.encode(), pointer(codec.handle), len_max, rank, timeout_ms, silence_ms)
        handle = _native.gw_thc_client_open(byref(options), error, _ERROR_SIZE)
        if not handle:
            raise RuntimeError(error.value.decode(errors="replace"))
        self._handle = c_void_p(handle)

    def norms(self, round: int, len: int, patterns: np.ndarray) -> None:
        """Begins the phase of norms."""
        self._check(_native.gw_thc_client_norms(self._handle, round, len, patterns.ctypes.data))

    def indices(self, indices: np.ndarray) -> None:
        """Begins the phase of indices of the same tensor."""
        self._check(_native.gw_thc_client_indices(self._handle, indices.ctypes.data, indices.size))

    def run(self, slice_ms: int) -> bool:
        """Goes on for at most that long; True once the phase is done."""
        status = _native.gw_thc_client_run(self._handle, slice_ms)
        if status != _PENDING:
            self._check(status)
        return status == _DONE

    def maxima(self, blocks: int, words: int) -> tuple[np.ndarray, np.ndarray]:
        """After the phase of norms: the maxima, and the blocks to which this worker may not contribute, as bool."""
        maxima, is_left_out = np.empty(words, np.uint32), np.empty(blocks, np.uint8)
        self._check(_native.gw_thc_client_maxima(self._handle, maxima.ctypes.data, is_left_out.ctypes.data))
        return maxima, is_left_out.view(np.bool_)

    def sums(self, blocks: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """After the phase of indices: bytes of lanes, contributors of the blocks, and those whose sum lacks this
        worker."""
        lanes, members, is_left_out = np.empty(size, np.uint8), np.empty(blocks, np.uint32), np.empty(blocks, np.uint8)
        room = s.gw_buffer(data=lanes.ctypes.data, capacity=size)
        places = members.ctypes.data, is_left_out.ctypes.data
        self._check(_native.gw_thc_client_sums(self._handle, byref(room), *places))
        return lanes, members, is_left_out.view(np.bool_)

    def counts(self) -> Counts:
        """What has been sent and received so far."""
        counts = Counts()
        if self._handle:
            _native.gw_thc_client_count(self._handle, byref(counts))
        return counts

    def close(self) -> None:
        """Tells the server. No other thread may be in a call."""
        handle, self._handle = self._handle, None
        if handle and _native is not None:  # None while the interpreter ends
            _native.gw_thc_client_close(handle)

    def __del__(self) -> None:
        self.close()

    def _check(self, status: int) -> None:
        if status != _DONE:
            raise RuntimeError(_native.gw_thc_client_error(self._handle).decode(errors="replace"))
