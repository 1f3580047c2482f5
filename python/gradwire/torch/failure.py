"""What hooks with threads of their own have in common: futures, what ends them, and what they say of themselves."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from .states import Copies
from .stats import SizesReport
from .transport import DifferentError, Transport, collective_error
from .workers import Worker


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

    def take(self, error: BaseException) -> list[torch.futures.Future]:
        """Sets the error; the futures to fail with it."""
        with self._lock:
            self.error = error
            futures, self._futures = self._futures, []
            return futures


class HookState(Copies):
    """Errors, statistics and agreement of a hook without an Engine. A subclass has rank, size, sizes(), _transport,
    and the threads through which all messages pass, in this order: _workers()."""

    rank: int
    size: int
    _transport: Transport

    def __init__(self) -> None:
        self.plain_size = 0  # bytes of buckets that travelled plain
        self.full_size = 0  # bytes of the buckets that were encoded
        self.report = SizesReport(self)
        self.on_fail: Callable[[BaseException], None] | None = None  # told of errors of this rank
        self._pending = Pending()
        self._failing: int | None = None  # the thread that is in fail()
        self._lock = threading.Lock()
        self._has_failed = threading.Event()
        self._closed = False

    def sizes(self) -> tuple[int, int]:
        """Bytes of compressed buckets that this rank has sent and received."""
        raise NotImplementedError

    def _workers(self) -> list[Worker]:
        raise NotImplementedError

    @property
    def error(self) -> BaseException | None:
        """What ended the hook."""
        return self._pending.error

    def check(self) -> None:
        """Raises if an operation failed on any rank. A collective call."""
        self.raise_error()
        done = threading.Event()

        def compare() -> None:
            try:
                if self.error is None:
                    self._transport.largest([0], "check()", direct=False)
            except Exception as error:
                self.fail(error)
            finally:
                done.set()

        run = compare
        for worker in reversed(self._workers()):
            run = _passed(worker, run)
        run()
        done.wait()
        self.raise_error()

    def raise_error(self) -> None:
        if self.error is not None:
            raise RuntimeError(f"gradwire: an earlier operation failed: {self.error}") from self.error
        if self._closed:
            raise RuntimeError("gradwire: closed; what goes on needs a new hook (with a new DDP)")

    def fail(self, error: BaseException, *, alone: bool | None = None) -> None:
        """Everything on its way, and all later calls, raise; on the other ranks too. alone: these may wait for this
        one, and their connections break; None: unless the error is one that all raise at the same place."""
        with self._lock:
            if self.error is not None or self._failing == threading.get_ident():
                return
            first = self._failing is None
            if first:
                self._failing = threading.get_ident()
        if not first:  # the error is that of the other thread
            self._has_failed.wait()
            return
        try:
            if not isinstance(error, DifferentError) if alone is None else alone:
                error = collective_error(error, "")
                error = self._transport.resolve(error, self._transport.tell(error))
        finally:
            waiting = self._pending.take(error)
            self._has_failed.set()
        if self.on_fail is not None:
            self.on_fail(error)
        for future in waiting:  # last: who waits for one finds the error recorded everywhere
            fail_future(future, error)

    def plain_end(self, where: str) -> Callable[[Callable[[], torch.Tensor]], torch.Tensor]:
        """For staging.all_reduce(): an error ends the hook."""
        begin = time.monotonic()

        def end(total: Callable[[], torch.Tensor]) -> torch.Tensor:
            try:
                return total()
            except Exception as error:
                self.fail(collective_error(error, where, begin))
                raise

        return end


def _passed(worker: Worker, job: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: worker.submit(job)
