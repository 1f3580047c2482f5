"""Buckets and optimizer state of a GPU: the codec runs on the CPU, so they pass through page-locked memory.

Copies have streams of their own. One from the GPU begins after what the calling thread's stream has been given, one to
it ends before what waits for the bucket's future; the backward pass goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .backend_choice import exactly
from .failure import fail_future

CODEC_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class Room:
    """Memory of the CPU for one bucket. left: on a device, the event after which the last copy from here has ended."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        self.left: Any = None


class CudaStaging:
    """Copies between the CPU and one device. For any thread. With CUDA, or ROCm under its name."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._down, self._up, self._state, self._other = (torch.cuda.Stream(device) for _ in range(4))

    @contextlib.contextmanager
    def _on(self, stream: torch.cuda.Stream) -> Iterator[None]:
        # The device, too, as in _wait(): else a context would be made on the thread's own, which is the first GPU.
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield

    def room(self, length: int, dtype: torch.dtype) -> Room:
        """Memory that copies are fast with."""
        return Room(torch.empty(length, dtype=dtype, pin_memory=True))

    def fetch(self, values: torch.Tensor, room: Room) -> Callable[[], None]:
        """Starts to copy into the room; a call that waits until the values are there."""
        self._down.wait_stream(torch.cuda.current_stream(self.device))
        if room.left is not None:
            self._down.wait_event(room.left)
        with self._on(self._down):
            room.values.copy_(values, non_blocking=True)
            values.record_stream(self._down)
        return functools.partial(self._wait, _record(self._down))

    def _wait(self, event: torch.cuda.Event) -> None:
        with torch.cuda.device(self.device):
            event.synchronize()

    def give_back(self, room: Room, values: torch.Tensor, future: torch.futures.Future) -> None:
        """Copies to the device; the future's result is `values`."""
        with self._on(self._up):
            values.copy_(room.values, non_blocking=True)
            values.record_stream(self._up)
            room.left = _record(self._up)
            future.set_result(values)  # records where this stream is; who waits, waits for that

    def future(self) -> torch.futures.Future:
        """One whose result is on the device."""
        return torch.futures.Future(devices=[self.device])

    def mark(self) -> torch.cuda.Event:
        """Where the calling thread's stream is now. For after() and reading()."""
        return _record(torch.cuda.current_stream(self.device))

    def after(self, marks: Iterable[torch.cuda.Event]) -> None:
        """What the calling thread's stream is given from now on comes after these marks."""
        for mark in marks:
            torch.cuda.current_stream(self.device).wait_event(mark)

    def stream(self) -> contextlib.AbstractContextManager[Any]:
        """In the block the calling thread has another stream than the one that computes."""
        return self._on(self._other)

    def gloo_stream(self) -> contextlib.AbstractContextManager[Any]:
        """In the block it has the stream that Gloo lets wait for its results."""
        return self._on(torch.cuda.default_stream(self.device))  # that of Gloo's threads, which set no other

    @contextlib.contextmanager
    def reading(self, mark: torch.cuda.Event | None) -> Iterator[None]:
        """In the block read() sees what is there after the mark (None: all that has ended); at its end copies are."""
        with self._on(self._state):
            if mark is not None:
                self._state.wait_event(mark)
            yield
            self._wait(_record(self._state))

    def read(self, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """A copy as fp32 in the CPU's memory, in the memory order of `like`. In a block of reading()."""
        room = torch.empty_like(like, dtype=torch.float32, device="cpu", requires_grad=False, pin_memory=True)
        room.copy_(values.detach(), non_blocking=True)
        values.record_stream(self._state)  # param.data may be set before the copy has ended
        return room

    def synchronize(self) -> None:
        """Waits for what the calling thread's stream has been given."""
        self._wait(_record(torch.cuda.current_stream(self.device)))


def _record(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(blocking=True)  # no thread spins while it waits
    event.record(stream)
    return event


TYPES: dict[str, Callable[[torch.device], CudaStaging]] = {"cuda": CudaStaging}  # by type of device
_made: dict[torch.device, CudaStaging] = {}


def of(device: torch.device) -> CudaStaging | None:
    """None for the CPU, and for devices that nothing is known of."""
    if device.type not in TYPES:
        return None
    if device not in _made:
        _made[device] = TYPES[device.type](device)
    return _made[device]


def ordinary(values: torch.Tensor) -> torch.Tensor:
    """The same memory of the CPU as a tensor that may be written outside of torch.inference_mode(), on a thread where
    that is off. Nothing tells the tensor of inference mode that it was written: such tensors do not ask."""
    if not values.is_inference() or values.is_neg() or hasattr(values, "to_local"):
        return values
    return torch.from_dlpack(values.detach())


def takes(values: torch.Tensor, dtypes: Container[torch.dtype] = CODEC_DTYPES) -> bool:
    """Whether a codec of these types gets at the values."""
    reached = values.device.type == "cpu" or values.device.type in TYPES
    return values.dtype in dtypes and reached and not values.is_sparse


def future_of(values: torch.Tensor) -> torch.futures.Future:
    """A future whose result is these values."""
    stage = of(values.device)
    return torch.futures.Future() if stage is None else stage.future()


class HostCopy:
    """The values of a bucket where the codec sees them, and the future of its result: on the CPU they are the bucket's
    own. room: that of another step's copy, to use its memory."""

    def __init__(self, values: torch.Tensor, room: Room | None = None) -> None:
        self.values, self.host, self.room = values, values, room
        self._stage, self._there = of(values.device), None
        self.future = future_of(values)
        if self._stage is not None:
            self.room = room or self._stage.room(values.numel(), values.dtype)
            self.host = self.room.values
            self._there = self._stage.fetch(values, self.room)

    def wait(self) -> None:
        """Until the values are there. To be called before they are read, not in the backward pass."""
        if self._there is not None:
            self._there()

    def finish(self) -> None:
        """They are the result now."""
        if self._stage is None:
            self.future.set_result(self.values)
        else:
            self._stage.give_back(self.room, self.values, self.future)


def all_reduce(
    values: torch.Tensor, group: Any, end: Callable[[Callable[[], torch.Tensor]], Any] = lambda total: total()
) -> torch.futures.Future:
    """The exact sum over the ranks, in place; the future of what `end` makes of it: that gets a call that returns it or
    raises."""
    future, stage = _sum(values, group).get_future(), of(values.device)
    if stage is None or _backend_of(group, values.device) != "gloo":
        return future.then(lambda done: end(lambda: done.value()[0]))
    # A future of Gloo has no device, and whoever waited for it would not wait for the copy back to the GPU.
    return _ordered(future, values, stage, stage.gloo_stream).then(lambda done: end(done.value))


def _sum(values: torch.Tensor, group: Any) -> Any:
    """dist.all_reduce() where torch knows the group; it need not know that of a transport."""
    is_gloo = dist.is_gloo_available() and isinstance(group, dist.ProcessGroupGloo)
    if is_gloo and not values.is_complex():
        return group.allreduce([values])
    with exactly():  # the group may be of the backend "gradwire"
        return dist.all_reduce(values, group=group, async_op=True)


def _backend_of(group: Any, device: torch.device) -> str:
    one = group._get_backend(device) if hasattr(group, "_get_backend") else group
    return one.name().lower()


def _ordered(
    future: torch.futures.Future,
    values: torch.Tensor,
    stage: CudaStaging,
    stream: Callable[[], contextlib.AbstractContextManager[Any]],
    wait: Callable[[], Any] = lambda: None,
) -> torch.futures.Future:
    """A future of `values` on a device that is done when `future`, which has no device, is: what waits for it comes
    after what `stream` has been given. wait: called before, with that stream."""
    ready, errors = stage.future(), []

    def end(done: torch.futures.Future) -> None:
        try:
            with stream():
                try:
                    done.value()
                    wait()
                except Exception as error:
                    errors.append(error)
                ready.set_result(values)  # records where the stream is: for the devices of what it is given
        except Exception as error:  # of the device
            fail_future(ready, error)

    def result(done: torch.futures.Future) -> torch.Tensor:
        if errors:
            raise errors[0]
        return done.value()

    future.then(end)
    return ready.then(result)


def joined(futures: list[torch.futures.Future], values: torch.Tensor, end: Callable[[], None]) -> torch.futures.Future:
    """A future of `values` that is done when `futures` are, and end() after them. It waits for each of them: on a GPU
    the stream on which it runs then comes after them."""
    gate: torch.futures.Future = torch.futures.Future()  # without a device
    gate.set_result(None)
    all_of_them, stage = torch.futures.collect_all([gate, *futures]), of(values.device)
    if stage is not None:
        return _ordered(all_of_them, values, stage, stage.stream, end)

    def result(_: torch.futures.Future) -> torch.Tensor:
        end()
        return values

    return all_of_them.then(result)


def gated(gate: torch.futures.Future, future: torch.futures.Future, values: torch.Tensor) -> torch.futures.Future:
    """Like `future`, the one of `values`, but not done before `gate` is, and failed if that has failed."""
    both, stage = torch.futures.collect_all([gate, future]), of(values.device)
    if stage is None:
        return both.then(lambda done: [one.value() for one in done.value()][1])
    return _ordered(both, values, stage, stage.stream, future.wait)  # it is done: the stream comes after it
