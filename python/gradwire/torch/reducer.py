"""What DDP's hook asks of a codec, and what hooks have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gradwire.errors import Error

from . import staging
from .buckets import Bucket
from .failure import Gate, Guarded
from .states import Copies, Undo
from .stats import SizesReport, size_of
from .transport import Start
from .workers import Worker, weakly


def agreed_error(status: int, text: str) -> Error:
    """Of the library; all ranks raise it at the same place."""
    error = Error(status, text)
    error.on_all_ranks = True
    return error


class Reducer(Protocol):
    """A codec of buckets. All ranks give it the same ones in the same order."""

    plain_size: int  # bytes of buckets that travelled plain
    full_size: int  # bytes of the buckets that were encoded

    def start(self, bucket: Bucket) -> torch.futures.Future:
        """The mean of a bucket over the ranks, in place."""

    def sizes(self) -> tuple[int, int]:
        """Bytes of compressed buckets that this rank has sent and received, an all-reduce as a ring of all ranks."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to give the same bits."""

    def check_state(self, state: Mapping[str, Any]) -> None:
        """ValueError for a state that cannot be loaded."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """On all ranks, before the first backward pass."""

    def close(self) -> None:
        """Ends its threads."""


class Stateless:
    """A reducer that keeps nothing from step to step."""

    def __init__(self) -> None:
        self.plain_size = self.full_size = self.sent_size = 0

    def sizes(self) -> tuple[int, int]:
        return self.sent_size, self.sent_size

    def state_dict(self) -> dict[str, Any]:
        return {}

    def check_state(self, state: Mapping[str, Any]) -> None:
        pass

    load_state_dict = check_state

    def close(self) -> None:
        pass


class Plain(Stateless):
    """The all-reduce of the values as they are, on DDP's own group. around: of the end, as of Finite."""

    def __init__(self, group: Any, size: int, gate: Gate) -> None:
        super().__init__()
        self._group, self._size, self._gate = group, size, gate

    def start(self, bucket: Bucket, around: Callable[[Any], Any] = lambda end: end) -> torch.futures.Future:
        values = bucket.values
        self.plain_size += size_of(values)
        if values.dtype.is_floating_point:
            values.div_(self._size)
        return staging.all_reduce(values, self._group, around(self._gate.end_of(bucket.where)))


class Hook(Guarded, Copies):
    """A communication hook."""

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        """A bucket of DDP. In a block of the gate, as it may raise on this rank alone."""
        raise NotImplementedError


def hook(state: Hook, bucket: dist.GradBucket) -> torch.futures.Future:
    """The communication hook: the mean of a bucket over the ranks, in place."""
    return state.reduce(bucket)


# DDP compares them with the types themselves, not with their names.
hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


class CodecHook(Hook):
    """A hook without an Engine, that is a Reducer of its own. A subclass has sizes(), check_state() and _load(), of a
    state that was checked, and the threads through which all messages pass, in this order: _workers()."""

    def __init__(self) -> None:
        self.full_size = 0
        self.step = 0  # synchronised backward passes so far
        self.report = SizesReport(self)
        self._undo = Undo()
        self._bucket = 0  # of this backward pass
        self._compared = False  # the ranks have the same state: rotations, positions, random numbers follow from it

    def _begin(self, start: Start) -> None:
        super()._begin(start)
        self._transport, self._plain = start.transport, Plain(self.group, self.size, self.gate)
        self.gate.on_shut.append(weakly(self._undo_step))

    @property
    def plain_size(self) -> int:
        return self._plain.plain_size

    def join(self, gate: Gate, whole: Undo | None) -> None:
        # Before the first bucket: the hook is one of several. What ends one of them ends all that have this gate.
        # whole: of the step, in which the memories of all count together; None: each bucket counts by itself.
        gate.shared, self._plain = True, Plain(self.group, self.size, gate)
        gate.on_break.append(self._transport.abort)
        gate.on_shut.append(weakly(self._undo_step))
        self.gate, self._undo = gate, Undo(whole)

    def _failed(self, error: BaseException) -> None:
        """Of a thread. With a shared gate what all ranks raise at the same place may leave one waiting for another
        codec."""
        self.gate.fail(error, alone=True if self.gate.shared else None)

    def _undo_step(self) -> None:
        """For Gate.on_shut: a step in which anything fails does not count. Nothing is in a block of the gate then, so
        memories that change in such blocks only do not change any more."""
        self._undo.cancel()

    def _workers(self) -> list[Worker]:
        raise NotImplementedError

    def _taken(self, bucket: dist.GradBucket) -> Bucket:
        """Of a backward pass."""
        number, is_last = self._bucket, bucket.is_last()
        taken = Bucket(bucket.buffer(), bucket.parameters(), bucket.gradients(), self.step, number, is_last)
        self._bucket = 0 if is_last else number + 1
        self.step += is_last
        return taken

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The one of this rank, before the first backward pass, on all ranks: else all raise in that pass. ValueError
        for a state of another version, codec or model."""
        self.check_state(state)
        self._undo = Undo(self._undo.whole)
        self._compared = False  # before anything changes: a load that fails halfway is found, too
        self._load(state)

    def _compare_states(self, codec: str, **state: Any) -> None:
        """Once, before the first bucket. On the thread that exchanges."""
        if not self._compared:
            self._transport.agree_on_state(codec, **state)
            self._compared = True

    def _conclude(self, where: str) -> torch.futures.Future:
        done: torch.futures.Future = torch.futures.Future()
        self.gate.add(done)

        def compare() -> None:
            self._transport.largest([0], where, direct=False)
            with self.gate.passing(done):
                done.set_result(None)

        run: Callable[[], None] = compare
        for worker in reversed(self._workers()):
            run = partial(worker.submit, run)
        run()
        return done

    def close(self) -> None:
        """Ends the threads. The hook raises afterwards."""
        self.gate.closed = True
        for worker in self._workers():
            worker.close(10.0)
