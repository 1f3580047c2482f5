"""Messages between ranks by point-to-point calls of torch.distributed, on a process group of their own.

Gloo takes a message that is shorter than the posted receive, and frames delimit themselves, so receives are posted with
the bound of a message and no sizes are exchanged. What lies behind the message in the buffer is not looked at.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
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


def tag(operation: int, stage: int, piece: int) -> int:
    return (operation % (1 << _OPERATION_BITS)) << (_PIECE_BITS + 1) | stage << _PIECE_BITS | piece


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

    def abort(self) -> None:
        """Breaks the connections: what the other ranks wait for from this one fails now, not at their timeout."""
        # When one wait runs out of time, Gloo breaks all connections of its group. A connection that is broken already
        # raises at once and breaks no other: so all peers are tried.
        for i in range(1, self.size):
            room = torch.empty(1, dtype=torch.uint8)
            with contextlib.suppress(RuntimeError):
                self.receive(room, (self.rank + i) % self.size, _NEVER_SENT).wait(timedelta(milliseconds=1))


class Worker:
    """A daemon thread that runs jobs in order. What a job raises goes to `on_error`; later jobs still run."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._on_error = on_error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def close(self, timeout_s: float) -> bool:
        """Ends the thread after the jobs that are queued; False if it is still busy after that time."""
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                job()
            except BaseException as error:
                self._on_error(error)
