"""Collectives among some ranks of a job, by messages between two of them. Bytes of rings, of all-to-all and of gather
are those that the planner counts (planner/src/option_price.c). For reduce and broadcast it counts a message once, but
in a binomial tree ceil(log2 r) of them pass the link of the first of r ranks.

Values are fp32. Messages of frames begin with the frames' sizes, and receives are posted with a bound: Gloo takes a
message that is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from .transport import Transport

# Tags: thread, message modulo 2^12, operation, step. A thread has one operation of one message at a time, in the same
# order on all ranks, so that more messages than 2^12 on their way do no harm. Agreements have bit 30 (transport.py).
_STEP_BITS, _OP_BITS, _MESSAGE_BITS = 11, 4, 12  # and three of the thread, which are below bit 30
RANKS_MAX = 1 << (_STEP_BITS - 1)  # a ring has two steps a rank


def bounds(low: int, high: int, count: int) -> list[tuple[int, int]]:
    """Equal parts of a range; the last ones may be shorter, or empty."""
    size = -(-(high - low) // count)
    return [(min(low + i * size, high), min(low + (i + 1) * size, high)) for i in range(count)]


class Message:
    """Frames as one message: the size of each, then all of them. room: where it was received."""

    def __init__(self, room: torch.Tensor, count: int) -> None:
        """ValueError for sizes that the room has no place for."""
        words = room[: 8 * count].numpy().view(np.int64)
        if count and (int(words.min()) < 0 or 8 * count + sum(map(int, words)) > room.numel()):
            raise ValueError("gradwire: a message of frames has sizes that do not fit it")
        ends = (8 * count + np.cumsum(words)).tolist()
        array = room.numpy()
        self.frames = [array[end - int(size) : end] for end, size in zip(ends, words)]
        self.bytes = room[: ends[-1] if ends else 0]

    @classmethod
    def of(cls, frames: Sequence[np.ndarray]) -> Message:
        sizes = np.array([frame.size for frame in frames], np.int64)
        return cls(torch.from_numpy(np.concatenate([sizes.view(np.uint8), *frames])), len(frames))


class Peers:
    """The ranks of one collective of one message. ranks: of the transport, in the order of their parts. number, op,
    thread: of the message, of its operation and of what runs it, for tags that no other one on its way has."""

    def __init__(
        self, transport: Transport, ranks: Sequence[int], number: int, op: int, where: str, thread: int = 0
    ) -> None:
        self.transport, self.ranks, self.where = transport, ranks, where
        self.me, self.size = ranks.index(transport.rank), len(ranks)
        self.sent_size = self.received_size = 0
        message = thread << _MESSAGE_BITS | number % (1 << _MESSAGE_BITS)
        self._tag = (message << _OP_BITS | op) << _STEP_BITS

    def _exchange(
        self, step: int, sends: Sequence[tuple[int, torch.Tensor]], receives: Sequence[tuple[int, torch.Tensor]]
    ) -> None:
        """All at once. Peers by their place. What is empty does not travel."""
        transport, tag = self.transport, self._tag | step
        coming = [(transport.receive(room, self.ranks[i], tag), i) for i, room in receives if room.numel()]
        going = [(transport.send(values, self.ranks[i], tag), i) for i, values in sends if values.numel()]
        for work, i in coming:
            transport.wait(work, self.ranks[i], self.where, direct=False)
        for work, i in going:
            transport.wait(work, self.ranks[i], self.where, sending=True)
        self.sent_size += sum(values.numel() * values.element_size() for _, values in sends)
        self.received_size += sum(room.numel() * 4 for _, room in receives if room.dtype == torch.float32)

    # ---- values ----

    def reduce_scatter(self, parts: Sequence[torch.Tensor]) -> None:
        """A ring: this rank's part becomes the mean. Other parts are used up."""
        after, before = (self.me + 1) % self.size, (self.me - 1) % self.size
        for step in range(self.size - 1):
            out, into = parts[(self.me - 1 - step) % self.size], parts[(self.me - 2 - step) % self.size]
            room = torch.empty_like(into)
            self._exchange(step, [(after, out)], [(before, room)])
            into.add_(room)
        parts[self.me].div_(self.size)

    def all_gather(self, parts: Sequence[torch.Tensor], step_first: int = 0) -> None:
        """A ring: every rank's part of the values, in place."""
        after, before = (self.me + 1) % self.size, (self.me - 1) % self.size
        for step in range(self.size - 1):
            out, into = parts[(self.me - step) % self.size], parts[(self.me - 1 - step) % self.size]
            self._exchange(step_first + step, [(after, out)], [(before, into)])

    def all_reduce(self, parts: Sequence[torch.Tensor]) -> None:
        self.reduce_scatter(parts)
        self.all_gather(parts, self.size - 1)

    def reduce(self, values: torch.Tensor) -> None:
        """A binomial tree: the first rank's values become the mean. Those of others are used up."""
        reach = 1
        while reach < self.size:
            if self.me % (2 * reach) == reach:
                self._exchange(reach, [(self.me - reach, values)], [])
                return
            if self.me + reach < self.size:
                room = torch.empty_like(values)
                self._exchange(reach, [], [(self.me + reach, room)])
                values.add_(room)
            reach *= 2
        values.div_(self.size)

    def broadcast(self, values: torch.Tensor) -> None:
        """The first rank's values, in place."""
        for sends, receives in self._tree():
            self._exchange(0, [(i, values) for i in sends], [(i, values) for i in receives])

    def _tree(self) -> list[tuple[list[int], list[int]]]:
        """Steps of a binomial tree from the first rank: to whom, from whom."""
        steps: list[tuple[list[int], list[int]]] = []
        reach = 1
        while reach < self.size:
            reach *= 2
        while reach > 1:
            reach //= 2
            if self.me % (2 * reach) == 0 and self.me + reach < self.size:
                steps.append(([self.me + reach], []))
            elif self.me % (2 * reach) == reach:
                steps.append(([], [self.me - reach]))
        return steps

    # ---- frames: counts are those of each rank's message; room_size: bytes that suffice for one ----

    def all_to_all(self, parts: Sequence[Message], count: int, room_size: int) -> list[Message]:
        """parts[i] goes to rank i; theirs, in the order of the ranks."""
        others = [(self.me + i) % self.size for i in range(1, self.size)]
        rooms = {i: _room(room_size) for i in others}
        self._exchange(0, [(i, parts[i].bytes) for i in others], list(rooms.items()))
        return [parts[i] if i == self.me else self._taken(rooms[i], count) for i in range(self.size)]

    def gather(self, mine: Message, count: int, room_size: int) -> list[Message] | None:
        """All ranks' messages on the first one; None on others."""
        if self.me:
            self._exchange(0, [(0, mine.bytes)], [])
            return None
        rooms = {i: _room(room_size) for i in range(1, self.size)}
        self._exchange(0, [], list(rooms.items()))
        return [mine, *(self._taken(room, count) for room in rooms.values())]

    def all_gather_frames(self, mine: Message, counts: Sequence[int], room_sizes: Sequence[int]) -> list[Message]:
        """A ring: all ranks' messages, in their order."""
        found: list[Message | None] = [None] * self.size
        found[self.me] = mine
        after, before = (self.me + 1) % self.size, (self.me - 1) % self.size
        for step in range(self.size - 1):
            comes = (self.me - 1 - step) % self.size
            room = _room(room_sizes[comes])
            self._exchange(step, [(after, found[(self.me - step) % self.size].bytes)], [(before, room)])
            found[comes] = self._taken(room, counts[comes])
        return found

    def broadcast_frames(self, mine: Message | None, count: int, room_size: int) -> Message:
        """The first rank's message."""
        message = mine
        for sends, receives in self._tree():
            room = _room(room_size)
            self._exchange(0, [(i, message.bytes) for i in sends], [(i, room) for i in receives])
            if receives:
                message = self._taken(room, count)
        return message

    def _taken(self, room: torch.Tensor, count: int) -> Message:
        """A message that has been received: shorter than its room."""
        message = Message(room, count)
        self.received_size += message.bytes.numel()
        return message


def _room(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8)
