"""Futures of a hook that works on threads of its own: what ends them when it fails."""

from __future__ import annotations

import contextlib
import threading

import torch


def fail_future(future: torch.futures.Future, error: BaseException) -> None:
    """Unless it is done."""
    with contextlib.suppress(RuntimeError):  # another thread has ended it since done()
        if not future.done():
            future.set_exception(RuntimeError(f"gradwire: {error}"))


class Pending:
    """The futures of what is under way, and the error that ends them all. For any thread."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._futures: list[torch.futures.Future] = []
        self._lock = threading.Lock()

    def add(self, future: torch.futures.Future) -> None:
        """Fails at once where there is an error already."""
        with self._lock:
            error = self.error
            if error is None:
                self._futures.append(future)
        if error is not None:
            fail_future(future, error)

    def remove(self, future: torch.futures.Future) -> None:
        """It is done. After it is: what raises meanwhile is an error that still ends it."""
        with self._lock:
            if future in self._futures:
                self._futures.remove(future)

    def take(self, error: BaseException) -> list[torch.futures.Future] | None:
        """Sets the error; the futures to fail with it. None where there was one before."""
        with self._lock:
            if self.error is not None:
                return None
            self.error = error
            futures, self._futures = self._futures, []
            return futures
