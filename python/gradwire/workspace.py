"""Scratch memory of calls: one block per thread, which grows to the largest that was asked for."""

from __future__ import annotations

import threading

import numpy as np

from gradwire._structs import gw_workspace

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
