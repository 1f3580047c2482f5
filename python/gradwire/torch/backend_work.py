"""Work objects of the backend: what a program waits for.

torch 2 hands a program not the object that a backend in Python returns but a holder of it, which passes on wait() and
get_future() alone: is_completed() of a holder is False for ever. answer_for_holders() mends that. torch 1.13 has no
holders: its own code does not keep the Python half of a work that it uses, so the last ones are kept here.
"""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

HAS_HOLDERS = hasattr(torch, "compile")  # torch 2, whose groups have backends
_ANSWERS = ("is_completed", "is_success", "exception", "result", "source_rank", "_source_rank", "get_future_result")
_KEPT = 16  # works that torch 1.13 may have at hand at a time: DDP takes the future at once
_asked = threading.local()
_live: weakref.WeakSet[Work] = weakref.WeakSet()  # without any, a work of torch's holds none of them
_kept: collections.deque[Work] = collections.deque(maxlen=_KEPT)


class Outcome:
    """Of an operation: a result or an error, once. For any thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.result: list[torch.Tensor] = []
        self.done = threading.Event()
        self._lock = threading.Lock()
        self._ended: torch.futures.Future | None = None
        self._future: torch.futures.Future | None = None

    @property
    def future(self) -> torch.futures.Future:
        with self._lock:
            is_new, is_done = self._future is None, self.done.is_set()
            if is_new:
                self._ended = torch.futures.Future()
                # then() makes a future that has failed for C++ code, too. One of set_exception() has a result there.
                self._future = self._ended.then(lambda _: self._value())
                self._future.add_done_callback(lambda _: self.done.set())  # the first one: before the program's
        if is_new and is_done:
            self._ended.set_result(None)
        return self._future

    def _value(self) -> list[torch.Tensor]:
        if self.error is not None:
            raise RuntimeError(str(self.error))
        return self.result

    def end(self, result: list[torch.Tensor], error: BaseException | None = None) -> None:
        """Then the future has its value, too, and its callbacks run elsewhere."""
        with self._lock:
            self.result, self.error = result, error
            ended = self._ended
            if ended is None:
                self.done.set()
        if ended is not None:
            # Not on the thread of the group: a callback may wait for the group's next operation, as PowerSGD's does.
            name = "gradwire-callbacks"
            try:
                threading.Thread(target=ended.set_result, args=(None,), name=name, daemon=True).start()
            except RuntimeError:  # there can be no more threads: nobody may wait for ever for this operation
                ended.set_result(None)
            self.done.wait()

    def wait(self, timeout: timedelta | None) -> bool:
        limit = None if timeout is None or timeout <= timedelta(0) else timeout.total_seconds()
        if not self.done.wait(limit):
            raise RuntimeError(f"gradwire: timed out waiting {limit:g} s for {self.name} to complete")
        if self.error is not None:
            raise self.error
        return True


class _Own(Work):
    """Work of an operation that the group's thread runs."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self._outcome = outcome
        _live.add(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        return self._outcome.wait(timeout)

    def synchronize(self) -> None:
        self._outcome.wait(None)

    def is_completed(self) -> bool:
        return self._outcome.done.is_set()

    def is_success(self) -> bool:
        return self._outcome.done.is_set() and self._outcome.error is None

    def exception(self) -> BaseException | None:
        return self._outcome.error

    def result(self) -> list[torch.Tensor]:
        return self._outcome.result

    def get_future(self) -> torch.futures.Future:
        _asked.work = self
        return self._outcome.future

    def get_future_result(self) -> torch.futures.Future:
        return self._outcome.future


class _Passed(Work):
    """Gloo's own work."""

    def __init__(self, work: Any) -> None:
        super().__init__()
        self._work = work
        _live.add(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        return self._work.wait() if timeout is None or timeout <= timedelta(0) else self._work.wait(timeout)

    def synchronize(self) -> None:
        self._work.synchronize()

    def is_completed(self) -> bool:
        return self._work.is_completed()

    def is_success(self) -> bool:
        return self._work.is_success()

    def exception(self) -> BaseException | None:
        return self._work.exception()

    def result(self) -> list[torch.Tensor]:
        return self._work.result()

    def source_rank(self) -> int:
        return self._work._source_rank()

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        _asked.work = self
        return self._work.get_future()

    def get_future_result(self) -> torch.futures.Future:
        return self._work.get_future_result()


def own(outcome: Outcome) -> Work:
    work = _Own(outcome)
    if not HAS_HOLDERS:
        _kept.append(work)
    return work


def passed(work: Any) -> Any:
    return _Passed(work) if HAS_HOLDERS and work is not None else work


_answering = False


def answer_for_holders() -> None:
    """Lets torch's holders of this module's works answer what they do not pass on. All other works answer as ever."""
    global _answering
    if HAS_HOLDERS and not _answering:
        _answering = True
        for name in _ANSWERS:
            if hasattr(Work, name):
                setattr(Work, name, _answer(name, getattr(Work, name)))


def _answer(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any) -> Any:
        work = _held(self)
        return original(self, *arguments) if work is None else getattr(work, name)(*arguments)

    method.__name__, method.__doc__ = name, original.__doc__
    return method


def _held(holder: Any) -> Any:
    """The work that torch holds in another one, if it is of this module: it is what get_future() then reaches."""
    if not _live or type(holder) is not dist.Work:
        return None
    _asked.work = None
    try:
        holder.get_future()
    except RuntimeError:  # there is none
        pass
    work, _asked.work = _asked.work, None
    return work
