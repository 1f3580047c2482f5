"""Messages between ranks by point-to-point calls of torch.distributed, on a process group of their own.

Gloo takes a message that is shorter than the posted receive, and frames delimit themselves, so receives are posted with
the bound of a message and no sizes are exchanged. What lies behind the message in the buffer is not looked at.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Tags: operations modulo 2^12, stage, piece. A step has one operation for each bucket, and messages of operations with
# one tag would be mixed up. Agreements have tags of their own.
_OPERATION_BITS, _PIECE_BITS = 12, 17
OPERATIONS_MAX = 1 << _OPERATION_BITS  # on their way at a time
PIECES_MAX = 1 << _PIECE_BITS
TO_OWNER, FROM_OWNER = 0, 1
_AGREEMENT, _NEVER_SENT = 1 << 30, 3 << 29
_SETTINGS_MAX = 62  # options that agree() compares, so that all ranks send as many words
_WORD = (1 << 32) - 1


def tag(operation: int, stage: int, piece: int) -> int:
    return (operation % (1 << _OPERATION_BITS)) << (_PIECE_BITS + 1) | stage << _PIECE_BITS | piece


class DifferentError(ValueError):
    """The ranks have other options, or have loaded other states; all of them raise it."""


class Transport:
    """Point-to-point messages and small agreements within `group`, which must be a Gloo group for nothing else."""

    def __init__(self, group: Any, timeout: timedelta) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.timeout = timeout
        self._agreements = 0

    def send(self, message: torch.Tensor, rank: int, tag: int) -> Any:
        return self.group.send([message], rank, tag)

    def receive(self, room: torch.Tensor, rank: int, tag: int) -> Any:
        return self.group.recv([room], rank, tag)

    def wait(self, work: Any) -> None:
        """Raises RuntimeError if the peer is gone or nothing came in time."""
        work.wait(self.timeout)

    def largest(self, words: list[int]) -> list[int]:
        """Element by element the largest of all ranks' uint64 words. Blocks. For one thread."""
        flip = 1 << 63  # torch's integers are signed: moves the order
        values = self._largest(torch.tensor([word - flip for word in words], dtype=torch.int64))
        return [value + flip for value in values.tolist()]

    def largest_seconds(self, seconds: list[float]) -> list[float]:
        """Element by element the largest of all ranks' numbers. Blocks. For one thread."""
        return self._largest(torch.tensor(seconds, dtype=torch.float64)).tolist()

    def _largest(self, mine: torch.Tensor) -> torch.Tensor:
        """All to all: a few bytes take the time of one message, where Gloo's ring takes 2 (ranks - 1) of them."""
        self._agreements += 1
        number = _AGREEMENT | self._agreements % (1 << _OPERATION_BITS)
        peers = [(self.rank + i) % self.size for i in range(1, self.size)]
        rooms = [torch.empty_like(mine) for _ in peers]
        works = [self.receive(room, peer, number) for room, peer in zip(rooms, peers)]
        works += [self.send(mine, peer, number) for peer in peers]
        for work in works:
            self.wait(work)
        return torch.stack([mine, *rooms]).amax(0)

    def agree(self, kind: str, options: Mapping[str, Any], *, failed: bool = False, what: str = "options") -> None:
        """Raises on all ranks, and says why, unless all have this kind of hook and these options and none has failed.

        The first call of a hook, whatever it is, so that one that others lack keeps nobody waiting. A rank that failed
        does not raise here: it has an error of its own. what: the word for the options in the error.
        """
        names = sorted(options)
        texts = [kind, *(repr(options[name]) for name in names)]
        words = [zlib.crc32(text.encode()) for text in texts]
        words += [0] * (1 + _SETTINGS_MAX - len(words))
        bad, *largest = self.largest([self.rank + 1 if failed else 0, *words, *(word ^ _WORD for word in words)])
        if failed:
            return
        if bad:
            raise RuntimeError(f"gradwire: rank {bad - 1} failed to make its hook; its own error says why")
        differ = [i for i in range(len(words)) if largest[i] != largest[len(words) + i] ^ _WORD]
        if 0 in differ:
            raise DifferentError(f"gradwire: the ranks have different hooks; this one has {kind}")
        if differ:
            which = ", ".join(names[i - 1] for i in differ)
            raise DifferentError(f"gradwire: the ranks have different {what}: {which}")

    def agree_on_state(self, kind: str, **state: Any) -> None:
        """The same for what load_state_dict() may have changed on one rank alone. Before the first operation."""
        self.agree(f"the state of {kind}", state, what="states, which all ranks must load")

    def all_reduce(self, values: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        """In place. Blocks."""
        options = dist.AllreduceOptions()
        options.reduceOp = op
        options.timeout = self.timeout
        self.group.allreduce([values], options).wait()

    def abort(self) -> None:
        """Breaks the connections: what the other ranks wait for from this one fails now, not at their timeout."""
        # When one wait runs out of time, Gloo breaks all connections of its group. A connection that is broken already
        # raises at once and breaks no other: so all peers are tried.
        for i in range(1, self.size):
            room = torch.empty(1, dtype=torch.uint8)
            with contextlib.suppress(RuntimeError, ValueError):  # the latter: NCCL takes no tensors of the CPU
                self.receive(room, (self.rank + i) % self.size, _NEVER_SENT).wait(timedelta(milliseconds=1))


class Start:
    """Makes the transport of a hook, and lets the ranks agree, after a block with what may fail on a rank alone:

        with Start("gradwire", group, transport, timeout) as start:
            ...
            start.options = {...}  # that must be equal on all ranks
        start.transport

    What the block raises is raised when the other ranks have been told, so that none waits for this one.
    """

    transport: Transport

    def __init__(self, kind: str, group: Any, transport: Any, timeout: timedelta) -> None:
        self.options: Mapping[str, Any] = {}
        self._kind, self._arguments = kind, (group, transport, timeout)

    def __enter__(self) -> Start:
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if error is None or isinstance(error, Exception) and dist.is_initialized():
            self.transport = new_transport(*self._arguments)
            self.transport.agree(self._kind, self.options, failed=error is not None)


def new_transport(group: Any, transport: Any, timeout: timedelta) -> Transport:
    """A Gloo group of the ranks of `group` for nothing else, unless one is given."""
    if transport is None and group is dist.group.WORLD:
        transport = dist.new_group(backend="gloo", timeout=timeout)
    elif transport is None:
        ranks = [dist.get_global_rank(group, i) for i in range(dist.get_world_size(group))]
        # torch 2: the group's own ranks suffice; 1.13: all processes must make it.
        local = {"use_local_synchronization": True} if hasattr(torch, "compile") else {}
        transport = dist.new_group(ranks, backend="gloo", timeout=timeout, **local)
    return Transport(transport, timeout)


def timeout_of(group: Any) -> timedelta:
    """How long a call of a group may take; what torch takes by default where the group does not say."""
    for device in ("cpu", "cuda"):  # a group of NCCL has no backend for the CPU
        with contextlib.suppress(AttributeError, RuntimeError):
            backend = group._get_backend(torch.device(device)) if hasattr(group, "_get_backend") else group
            return backend.options._timeout
    return timedelta(minutes=30)


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a bound method that does not keep its object: nothing is called once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        alive = reference()
        return None if alive is None else alive(*arguments)

    return call


class Worker:
    """A daemon thread that runs jobs in order. What a job raises goes to the method `on_error`; later jobs still run.

    The thread keeps neither the worker nor the method's object, and ends after its last job once the worker is gone.
    """

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        _workers.add(self)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_run_jobs, args=(self._jobs, weakly(on_error)), name=name, daemon=True)
        self._thread.start()
        # SimpleQueue.put() may be called from a finalizer wherever that runs; a lock may not.
        weakref.finalize(self, self._jobs.put, None).atexit = False

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Ends the thread after the jobs that are queued."""
        self._jobs.put(None)

    def close(self, timeout_s: float) -> bool:
        """stop(), and waits; False if it is still busy after that time."""
        self.stop()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


def _run_jobs(jobs: queue.SimpleQueue, on_error: Callable[[BaseException], None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        try:
            job()
        except BaseException as error:
            on_error(error)
        del job  # what it holds must not live until the next one comes


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _end_workers() -> None:
    """A thread that comes back from C++ code of torch while the interpreter ends would abort the process. So those that
    have work get a little time; one that waits for a peer does not come back before the process ends."""
    workers = list(_workers)
    for worker in workers:
        worker.stop()
    until = time.monotonic() + 2.0
    for worker in workers:
        worker.close(max(0.0, until - time.monotonic()))
