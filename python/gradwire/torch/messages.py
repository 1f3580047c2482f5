"""The messages of an exchange of the pool on their way through torch.distributed: where each is received, and what is
still being sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gradwire import _structs as s
from gradwire._library import lib

from . import _pool
from .failure import Gate
from .transport import FROM_OWNER, PIECES_MAX, TO_OWNER, Transport, tag
from .workers import Worker

#: Of tests, which damage messages with it: (stage, piece, message).
Fault = Callable[[int, int, torch.Tensor], None]


def usual_piece_len(shard_len: int) -> int:
    """Values of a piece. A shard's first piece cannot be sent before it is encoded, and its last not decoded before it
    has come, so a shard should have several; pieces below 2^16 cost more to code than they save."""
    return 1 << min(18, max(16, (shard_len // 4).bit_length() - 1))


@dataclass(frozen=True)
class Room:
    """Where a message of a peer is received. maker: the rank that has made it; not the peer if a ring passes it on.
    direct: as in Wait."""

    stage: int
    piece: int
    peer: int
    maker: int
    direct: bool
    memory: torch.Tensor


class Messages:
    """Of one exchange, which gets its memory here. hint: what to do against too many pieces."""

    def __init__(self, transport: Transport, exchange: _pool.Exchange, *, ring: bool = False, hint: str) -> None:
        self.transport, self.exchange = transport, exchange
        self.shard_pieces = exchange.info.layout.shard_pieces
        pieces = exchange.info.layout.piece_count
        if pieces > PIECES_MAX:
            raise ValueError(f"gradwire: {pieces} pieces in a bucket; {hint}")
        self.memory = torch.empty(exchange.info.memory_size, dtype=torch.uint8)
        exchange.memory(self.memory.data_ptr())
        self._rooms = self._make_ring_rooms() if ring else self._make_rooms()
        self._number, self._where = 0, ""  # of the operation that runs
        self._sends: list[tuple[Any, int]] = []  # with their ranks

    def _room(self, stage: int, piece: int, peer: int, maker: int, direct: bool) -> list[Room]:
        offset = self.exchange.buffer_offset(piece, maker)
        if offset is None:
            return []
        memory = self.memory[offset : offset + self.exchange.info.message_bound]
        return [Room(stage, piece, peer, maker, direct, memory)]

    def _make_rooms(self) -> list[Room]:
        """Of every message that comes, in the order in which they are expected."""
        rank, size = self.transport.rank, self.transport.size
        rooms = []
        for i in range(self.shard_pieces):
            for distance in range(1, size):
                peer = (rank - distance) % size
                for stage, piece in (
                    (TO_OWNER, rank * self.shard_pieces + i),
                    (FROM_OWNER, peer * self.shard_pieces + i),
                ):
                    rooms += self._room(stage, piece, peer, peer, stage == TO_OWNER)
        return rooms

    def _make_ring_rooms(self) -> list[Room]:
        """The same in a ring, in the order of its steps. Only the first partial sums wait for no third rank."""
        rank, size = self.transport.rank, self.transport.size
        left = (rank - 1) % size
        rooms = []
        for step in range(size - 1):
            summed = lib.gw_collective_ring_shard(size, rank, step + 1)
            finished = lib.gw_collective_ring_gather_shard(size, left, step)
            for i in range(self.shard_pieces):
                rooms += self._room(TO_OWNER, summed * self.shard_pieces + i, left, left, step == 0)
                rooms += self._room(FROM_OWNER, finished * self.shard_pieces + i, left, finished, False)
        return rooms

    # ---- an operation ----

    def begin(self, number: int, where: str) -> None:
        """number: of the operation, the same on all ranks, in the tags of its messages. where: for errors. After
        finish_sends(), before the exchange starts: its events may come at once."""
        self._number, self._where = number, where

    def receive(self, receivers: Sequence[Worker], gate: Gate, *, scatter: bool = False) -> None:
        """Posts the receives of an operation that has started. receivers: the thread that waits, by stage."""
        for room in self._rooms:
            if room.stage == FROM_OWNER and scatter:
                continue
            work = self.transport.receive(room.memory, room.peer, tag(self._number, room.stage, room.piece))
            receivers[room.stage].submit(partial(self._take, room, work, gate, self._where))

    def _take(self, room: Room, work: Any, gate: Gate, where: str) -> None:
        if not gate.shut:
            self.transport.wait(work, room.peer, where, direct=room.direct)
            self.exchange.receive(room.piece, room.maker)

    def send(self, event: s.gw_runtime_event, fault: Fault | None = None) -> None:
        """Sends the message that an event announces."""
        rank, size = self.transport.rank, self.transport.size
        message = self.memory[event.offset : event.offset + event.size]
        stage = TO_OWNER if event.kind == _pool.SEND else FROM_OWNER
        peers = [event.peer]
        if event.peer == _pool.ALL:
            peers = [(rank + i) % size for i in range(1, size)]
        if fault is not None:
            fault(stage, event.piece, message)
        for peer in peers:
            self._sends.append((self.transport.send(message, peer, tag(self._number, stage, event.piece)), peer))

    def finish_sends(self) -> None:
        """The buffers of the last operation's messages are free."""
        sends, self._sends = self._sends, []
        for work, peer in sends:
            self.transport.wait(work, peer, self._where, sending=True)
