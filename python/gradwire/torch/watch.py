"""Notices a backward pass that is left half-way.

An exception in a backward pass ends it without a word to the hook, which waits for buckets that never come, as do the
other ranks. The pass runs in the thread that called it, so it is over once the frame that called it has left that
thread's stack. Where autograd runs on a thread of its own (GPU) there is no such frame, and nothing is watched.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType

_EVERY_S = 0.1
_IDLE_S = 1.0  # between looks whether there still is a watch


class BackwardWatch:
    """on_left: called, on a thread that ends with the watch, with an error for a pass that ended without end()."""

    def __init__(self, on_left: Callable[[BaseException], None]) -> None:
        self._on_left = on_left
        self._lock = threading.Lock()
        self._caller: FrameType | None = None  # kept only while the pass runs: it holds variables
        self._thread_id = 0
        self._work = threading.Event()  # there is a pass, or nothing more to do
        self._closed = False
        self._thread: threading.Thread | None = None

    def begin(self, frame: FrameType) -> None:
        """A pass has called its hook; frame: that of the caller of begin()."""
        caller = _backward_frame(frame)
        if caller is None:
            return
        with self._lock:
            self._caller, self._thread_id = caller, threading.get_ident()
        if self._thread is None:
            arguments = (weakref.ref(self), self._work)
            self._thread = threading.Thread(target=_run, args=arguments, name="gradwire-watch", daemon=True)
            self._thread.start()
        self._work.set()

    def end(self, _: BaseException | None = None) -> None:
        with self._lock:
            self._caller = None
            self._work.clear()

    def close(self) -> None:
        self._closed = True
        self.end()
        self._work.set()

    def look(self) -> bool:
        """False when there is nothing more to do."""
        if not self._closed and self._left():
            self._on_left(RuntimeError("the backward pass ended before its last bucket"))
        return not self._closed

    def _left(self) -> bool:
        """Whether there is a pass whose frame is gone; forgets it."""
        with self._lock:
            if self._caller is None:
                return False
            frame = sys._current_frames().get(self._thread_id)
            while frame is not None and frame is not self._caller:
                frame = frame.f_back
            if frame is not None:
                return False
            self._caller = None
            self._work.clear()
            return True


def _run(reference: weakref.ref[BackwardWatch], work: threading.Event) -> None:
    tick, goes_on = threading.Event(), True
    while goes_on:
        if work.wait(_IDLE_S):
            tick.wait(_EVERY_S)
        watch = reference()
        goes_on = watch is not None and watch.look()
        del watch


def _backward_frame(frame: FrameType | None) -> FrameType | None:
    """The outermost frame of torch.autograd that runs the engine: checkpointing runs it within a pass."""
    found = None
    while frame is not None:
        if frame.f_globals.get("__name__") in ("torch.autograd", "torch.autograd.graph"):
            found = frame
        frame = frame.f_back
    return found
