"""Memory of calls: scratch memory, one block per thread, which grows to the largest that was asked for; and output."""

from __future__ import annotations

import threading

import numpy as np

from gradwire import arrays
from gradwire._structs import gw_buffer, gw_workspace
from gradwire.arrays import ArrayLike

_local = threading.local()


def scratch(size: int) -> gw_workspace:
    """At least `size` bytes, valid in this thread until its next call of scratch()."""
    block = getattr(_local, "block", None)
    if block is None or block.size < size:
        block = _local.block = np.empty(size, np.uint8)
    workspace = gw_workspace(block.ctypes.data, block.size)
    # A signal handler or a finalizer may ask for a larger one before the call begins: this one must not go.
    workspace.block = block
    return workspace


class Output:
    """Bytes that one call writes: in `out`, which must not overlap the inputs; None: in `bound` new ones."""

    def __init__(self, bound: int, out: ArrayLike | None = None, *inputs: np.ndarray | None) -> None:
        self._is_new = out is None
        self.area = np.empty(bound, np.uint8) if out is None else arrays.write(out, np.uint8, "out")
        if out is not None:
            arrays.apart(self.area, *inputs)
        self.buffer = gw_buffer(self.area.ctypes.data, self.area.size)

    def written(self) -> bytes | memoryview:
        """What the call has written: bytes, or the part of `out`."""
        written = self.area[: self.buffer.size]
        return written.tobytes() if self._is_new else written.data
