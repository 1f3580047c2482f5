"""Buckets and optimizer state of a GPU: the codec runs on the CPU, so they pass through page-locked memory.

Copies have streams of their own. One from the GPU begins after what the calling thread's stream has been given, one to
it ends before what waits for the bucket's future; the backward pass goes on meanwhile, and no thread of it is blocked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch


class Staging(Protocol):
    """Copies between the CPU and one device. For any thread."""

    def room(self, length: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory of the CPU."""

    def fetch(self, values: torch.Tensor, room: torch.Tensor) -> Callable[[], None]:
        """Starts to copy into the room; a call that waits until the values are there."""

    def give_back(self, room: torch.Tensor, values: torch.Tensor, future: torch.futures.Future) -> None:
        """Copies to the device; the future's result is `values`."""

    def future(self) -> torch.futures.Future:
        """One whose result is on the device."""

    def mark(self) -> Any:
        """Where the calling thread's stream is now. For after() and reading()."""

    def after(self, marks: Iterable[Any]) -> None:
        """What the calling thread's stream is given from now on comes after these marks."""

    def stream(self) -> contextlib.AbstractContextManager[Any]:
        """In the block the calling thread has another stream than the one that computes."""

    def reading(self, mark: Any) -> contextlib.AbstractContextManager[Any]:
        """In the block read() sees what is there after the mark (None: all that has ended); at its end copies are."""

    def read(self, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """A copy as fp32 in the CPU's memory, in the memory order of `like`. In a block of reading()."""

    def synchronize(self) -> None:
        """Waits for what the calling thread's stream has been given."""


class CudaStaging:
    """With CUDA, or ROCm under its name."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._down, self._up, self._state, self._other = (torch.cuda.Stream(device) for _ in range(4))

    def room(self, length: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(length, dtype=dtype, pin_memory=True)

    def fetch(self, values: torch.Tensor, room: torch.Tensor) -> Callable[[], None]:
        self._down.wait_stream(torch.cuda.current_stream(self.device))
        self._down.wait_stream(self._up)  # it may still read the room's last values
        with torch.cuda.stream(self._down):
            room.copy_(values, non_blocking=True)
            values.record_stream(self._down)
            there = torch.cuda.Event(blocking=True)  # no thread spins while it waits
            there.record()
        return there.synchronize

    def give_back(self, room: torch.Tensor, values: torch.Tensor, future: torch.futures.Future) -> None:
        with torch.cuda.stream(self._up):
            values.copy_(room, non_blocking=True)
            values.record_stream(self._up)
            future.set_result(values)  # records where this stream is; who waits, waits for that

    def future(self) -> torch.futures.Future:
        return torch.futures.Future(devices=[self.device])

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def after(self, marks: Iterable[torch.cuda.Event]) -> None:
        for mark in marks:
            torch.cuda.current_stream(self.device).wait_event(mark)

    def stream(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(self._other)

    @contextlib.contextmanager
    def reading(self, mark: torch.cuda.Event | None) -> Iterator[None]:
        with torch.cuda.stream(self._state):
            if mark is not None:
                self._state.wait_event(mark)
            yield
            self._state.synchronize()

    def read(self, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        room = torch.empty_like(like, dtype=torch.float32, device="cpu", requires_grad=False, pin_memory=True)
        return room.copy_(values.detach(), non_blocking=True)

    def synchronize(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()


TYPES: dict[str, Callable[[torch.device], Staging]] = {"cuda": CudaStaging}  # by type of device
_made: dict[torch.device, Staging] = {}


def of(device: torch.device) -> Staging | None:
    """None for the CPU, and for devices that nothing is known of."""
    if device.type not in TYPES:
        return None
    if device not in _made:
        _made[device] = TYPES[device.type](device)
    return _made[device]


def reaches(device: torch.device) -> bool:
    """Whether the codec gets at values there."""
    return device.type == "cpu" or device.type in TYPES


def future_of(values: torch.Tensor) -> torch.futures.Future:
    """A future whose result is these values."""
    stage = of(values.device)
    return torch.futures.Future() if stage is None else stage.future()


class HostCopy:
    """The values of a bucket where the codec sees them, and the future of its result: on the CPU they are the bucket's
    own. room: memory to use, of another step's copy."""

    def __init__(self, values: torch.Tensor, room: torch.Tensor | None = None) -> None:
        self.values, self.host = values, values
        self._stage, self._there = of(values.device), None
        self.future = future_of(values)
        if self._stage is not None:
            self.host = self._stage.room(values.numel(), values.dtype) if room is None else room
            self._there = self._stage.fetch(values, self.host)

    def wait(self) -> None:
        """Until the values are there. To be called before they are read, not in the backward pass."""
        if self._there is not None:
            self._there()

    def finish(self) -> None:
        """They are the result now."""
        if self._stage is None:
            self.future.set_result(self.values)
        else:
            self._stage.give_back(self.host, self.values, self.future)


def gated(gate: torch.futures.Future, future: torch.futures.Future, values: torch.Tensor) -> torch.futures.Future:
    """Like `future`, the one of `values`, but not done before `gate` is, and failed if that has failed."""
    stage, result = of(values.device), future_of(values)

    def end(both: torch.futures.Future) -> None:
        try:
            both.value()
            with contextlib.nullcontext() if stage is None else stage.stream():
                result.set_result(future.wait())  # it is done: that stream comes after it
        except Exception as error:
            result.set_exception(RuntimeError(str(error)))

    torch.futures.collect_all([gate, future]).then(end)
    return result
