"""How hooks and communicators end: one gate that all results pass, and that an error shuts on all ranks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .transport import Start, Transport, collective_error


def fail_future(future: torch.futures.Future, error: BaseException) -> None:
    """Unless it is done."""
    with contextlib.suppress(RuntimeError):  # another thread has ended it since done()
        if not future.done():
            future.set_exception(RuntimeError(f"gradwire: {error}"))


def wait_for(future: torch.futures.Future) -> None:
    """Until it is done or has failed. Unlike its own wait() this ends with Ctrl-C."""
    done = threading.Event()
    future.then(lambda _: done.set())
    done.wait()


class Gate:
    """Whoever writes into a tensor of the caller's, or hands one back, does so in a block of passing(). fail() shuts
    the gate, tells the other ranks, lets the blocks under way end, stops the pool, and only then ends the
    futures with the error. So no result comes after an error, and nothing is written to a tensor that was handed back.

    For any thread. transport: that of the first codec; those of others are broken by `on_break`. shared: by several
    codecs, each with an order of its own: what all ranks raise at the same place of one may leave a rank waiting in
    another.
    """

    def __init__(self, transport: Transport) -> None:
        self.shut = False  # something has failed, though its error may not be known yet
        self.error: BaseException | None = None  # what ended everything
        self.closed = False  # nothing can be submitted any more
        self.shared = False
        self.on_break: list[Callable[[], Any]] = []  # break other connections than those of the transport
        self.on_shut: list[Callable[[], Any]] = []  # nothing may be written after them
        self.on_fail: list[Callable[[BaseException], Any]] = []  # told when the error is known
        self._transport = transport
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._failing: int | None = None  # the thread that was first in fail()
        self._inside: set[int] = set()  # threads in a block of passing()
        self._futures: dict[int, torch.futures.Future] = {}  # of what is under way, by id

    def add(self, future: torch.futures.Future) -> None:
        """It fails with everything else; at once where there is an error already."""
        with self._lock:
            error = self.error
            if error is None:
                self._futures[id(future)] = future
        if error is not None:
            fail_future(future, error)

    @contextlib.contextmanager
    def passing(self, future: torch.futures.Future | None = None) -> Iterator[None]:
        """A block that writes or hands back a result: that of `future`, which is done at its end. It must not wait for
        other ranks. RuntimeError, and no block, once something has failed."""
        mine = threading.get_ident()
        with self._lock:
            if self.shut:
                raise RuntimeError(f"gradwire: an earlier operation failed: {self.error or 'its error comes'}")
            nested = mine in self._inside  # in a callback of another block
            self._inside.add(mine)
        try:
            yield
            self._futures.pop(id(future), None)  # not before: what has raised is an error that ends it
        finally:
            with self._lock:
                if not nested:
                    self._inside.discard(mine)
                if self.shut:
                    self._changed.notify_all()

    def __enter__(self) -> None:
        """A block that starts something. Raises what has ended everything; what the block raises ends everything, too:
        it is of this rank alone, as far as it can know."""
        self.raise_error()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception):
            self.fail(error)

    def fail(self, error: BaseException, *, alone: bool | None = None) -> None:
        """Everything under way, and all later calls, raise; on the other ranks too. alone: these may wait for this one;
        None: unless the error is `on_all_ranks`, which all raise at the same place in the order of operations."""
        mine = threading.get_ident()
        with self._changed:
            if self.error is not None or self._failing == mine:
                return
            self._inside.discard(mine)  # its block writes nothing more; the first one does not wait for it
            self._changed.notify_all()
            if self._failing is not None:  # the error is that of the other thread
                self._changed.wait_for(lambda: self.error is not None)
                return
            self._failing, self.shut = mine, True
        try:
            if not getattr(error, "on_all_ranks", False) if alone is None else alone:
                # The others learn of it at once. What is raised here says, if one can, which rank is at fault.
                found = collective_error(error, "")
                finding = self._transport.tell(found)
                self._break()
                error = self._transport.resolve(found, finding)
            elif self.shared:
                self._break()
        finally:
            self._end_with(error)

    def _break(self) -> None:
        for call in self.on_break:
            call()

    def _end_with(self, error: BaseException) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._inside)
        try:
            for stop in self.on_shut:
                stop()
        finally:
            with self._changed:
                self.error = error
                futures, self._futures = list(self._futures.values()), {}
                self._changed.notify_all()
            try:
                for call in self.on_fail:
                    call(error)
            finally:
                for future in futures:  # last: who waits for one finds the error recorded everywhere
                    fail_future(future, error)

    def end_of(
        self, where: str, write: Callable[[torch.Tensor], torch.Tensor] = lambda total: total
    ) -> Callable[[Callable[[], torch.Tensor]], torch.Tensor]:
        """For staging.all_reduce(): an error ends everything. write: puts the total where it belongs."""
        begin = time.monotonic()

        def end(total: Callable[[], torch.Tensor]) -> torch.Tensor:
            try:
                result = total()
            except Exception as error:
                self.fail(collective_error(error, where, begin))
                raise
            with self.passing():
                return write(result)

        return end

    def raise_error(self) -> None:
        """Raises what has ended everything, or that it is closed. Waits for an error that is being found."""
        mine = threading.get_ident()
        if self.shut and self._failing != mine:
            with self._changed:
                self._inside.discard(mine)  # as in fail(): who finds the error may wait for this block
                self._changed.notify_all()
                self._changed.wait_for(lambda: self.error is not None)
        if self.error is not None:
            raise RuntimeError(f"gradwire: an earlier operation failed: {self.error}") from self.error
        self.raise_closed()

    def raise_closed(self) -> None:
        if self.closed:
            raise RuntimeError("gradwire: closed; what goes on needs a new hook (with a new DDP) or communicator")


class Guarded:
    """What hooks and communicators say of their errors. A subclass has _conclude()."""

    def _begin(self, start: Start) -> None:
        """When the ranks have agreed on their options."""
        self.group, self.timeout = start.group, start.timeout
        self.rank, self.size = start.transport.rank, start.transport.size
        self.gate = Gate(start.transport)

    @property
    def error(self) -> BaseException | None:
        """What ended it, on all ranks."""
        return self.gate.error

    def fail(self, error: BaseException) -> None:
        """Ends it on all ranks, as if an operation of this one had failed. For an error that a hook does not see: one
        in a forward pass, or before the first bucket of a backward pass."""
        self.gate.fail(error)

    def check(self) -> None:
        """Raises if an operation failed on any rank or, in debug mode, if results differ. A collective call."""
        self.gate.raise_error()
        wait_for(self._conclude("check()"))
        self.gate.raise_error()

    def _conclude(self, where: str) -> torch.futures.Future:
        """Done when all that was submitted before is, and has not failed on any rank."""
        raise NotImplementedError
