"""all_gather and broadcast of the backend: lossless GCOMP frames where these are faster than Gloo.

Which is faster is measured: the first operations of a kind go both ways in turn, and the slowest rank's medians decide.
A group may ask for an error here, too: then all ranks hold the decoded values, that of the sender included.
"""

from __future__ import annotations

import functools
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import AllgatherOptions, BroadcastOptions

import gradwire.frames
from gradwire.gcomp import Codec

from . import staging
from .backend_sums import Sums
from .communicator import _Call, _check, _kind, _write
from .transport import MESSAGES

PIECE_LEN = 1 << 18  # values of a frame
_LAG = 2  # pieces whose messages are under way while the next one is encoded
_PIECES_MAX = 1 << 16
WARM, PAIRS = 2, 3  # operations before the measured ones, and pairs of measured ones
_SHARE = 0.95  # of Gloo's time that frames may take at most
log = logging.getLogger("gradwire")


class Choice:
    """Whether frames are faster than Gloo for one kind of operation. All ranks ask at the same operations."""

    def __init__(self, kind: str, sums: Sums) -> None:
        self.decision: bool | None = None
        self._kind, self._sums = kind, sums
        self._count = 0
        self._seconds: dict[bool, list[float]] = {True: [], False: []}  # for each value

    def run(self, length: int, ways: dict[bool, Callable[[], None]]) -> None:
        """One operation of `length` values. ways: by frames, by Gloo."""
        if self.decision is not None:
            ways[self.decision]()
            return
        framed, begin = self._count % 2 == 0, time.perf_counter()
        ways[framed]()
        if self._count >= WARM:
            self._seconds[framed].append((time.perf_counter() - begin) / length)
        self._count += 1
        if self._count == WARM + 2 * PAIRS:
            medians = [statistics.median(self._seconds[way]) for way in (True, False)]
            frames, gloo = self._sums._transport.largest_seconds(medians)
            self.decision = frames <= _SHARE * gloo
            if self._sums.rank == 0:
                what = "travels in lossless frames" if self.decision else "stays with Gloo"
                log.info("gradwire: %s %s (%.3g s a value in frames, %.3g s)", self._kind, what, frames, gloo)


class Gathers:
    """Of one group, with the connections of its sums. mode: "auto", "frames", "gloo". nmse: an error that the group
    asks for, or None for none. For one thread."""

    def __init__(self, sums: Sums, mode: str, nmse: float | None) -> None:
        self._sums, self._nmse = sums, nmse
        self._choices = {kind: Choice(kind, sums) for kind in ("all_gather", "broadcast")}
        for one in self._choices.values():
            one.decision = {"auto": None if nmse is None else True, "frames": True, "gloo": False}[mode]
        self._operations = 0
        self.sent_size = self.received_size = 0

    @torch.no_grad()
    def all_gather(
        self,
        pairs: Sequence[tuple[list[torch.Tensor], torch.Tensor]],
        copies: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
    ) -> None:
        """pairs: for each the outputs, one of each rank, and this rank's input. Values of one type. copies: outputs
        that get the values of a tensor at the end."""
        written = [output for output, _ in copies] if copies else [one for outputs, _ in pairs for one in outputs]
        pairs = [([staging.ordinary(one) for one in outputs], staging.ordinary(mine)) for outputs, mine in pairs]

        def prepare() -> _Call:
            for number, output in enumerate(written):
                _check(f"output {number}", output)
            return _Call(f"all_gather of {', '.join(_kind(mine) for _, mine in pairs)}", [])

        sums = self._sums
        sums._agree(prepare)
        with sums._together():
            for outputs, mine in pairs:
                if mine.numel() == 0:
                    continue
                values = mine.detach().contiguous().resolve_neg().view(-1)
                rooms = [_room(one) for one in outputs]
                calls = {True: self._gather, False: self._gather_by_gloo}
                ways = {framed: functools.partial(call, rooms, values) for framed, call in calls.items()}
                self._choices["all_gather"].run(values.numel() * sums.size, ways)
                for output, room in zip(outputs, rooms):
                    _hand_out(output, room)
            for output, values in copies:
                if values.data_ptr() != output.data_ptr():  # else it is the output's own memory
                    _write(output, values, ())

    @torch.no_grad()
    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """In place."""
        sums = self._sums
        is_written = sums.rank != root or self._nmse is not None
        tensor = staging.ordinary(tensor)

        def prepare() -> _Call:
            _check("the tensor", tensor, written=is_written)
            return _Call(f"broadcast(root={root}) of {_kind(tensor)}", [])

        sums._agree(prepare)
        with sums._together():
            values = tensor.detach().contiguous().resolve_neg().view(-1)
            ways = {True: lambda: self._broadcast(values, root), False: lambda: self._broadcast_by_gloo(values, root)}
            self._choices["broadcast"].run(values.numel(), ways)
            if is_written:
                _hand_out(tensor, values)

    # ---- by frames ----

    def _gather(self, rooms: list[torch.Tensor], mine: torch.Tensor) -> None:
        transport, codec = self._sums._transport, self._codec(mine)
        peers = [(transport.rank + i) % transport.size for i in range(1, transport.size)]
        where, pieces, begin = self._where(), mine.split(PIECE_LEN), self._begin(mine)
        receives: list[list[tuple[Any, torch.Tensor, int]]] = []
        sends = []
        theirs = {peer: rooms[peer].split(PIECE_LEN) for peer in peers}
        for i in range(len(pieces) + _LAG):
            if i < len(pieces):
                boxes = [torch.empty(codec.bound(pieces[i].numel()), dtype=torch.uint8) for _ in peers]
                receives.append(
                    [(transport.receive(box, peer, begin + i), box, peer) for box, peer in zip(boxes, peers)]
                )
                message = _message(codec, pieces[i])
                sends += [(transport.send(message, peer, begin + i), peer, message) for peer in peers]
                self.sent_size += message.numel() * len(peers)
                own = rooms[transport.rank].split(PIECE_LEN)[i]
                own.copy_(pieces[i]) if self._nmse is None else codec.decode(message, out=own)
            if i >= _LAG:
                for work, box, peer in receives[i - _LAG]:
                    transport.wait(work, peer, where)
                    self.received_size += _decode(codec, box, theirs[peer][i - _LAG]).numel()
                receives[i - _LAG] = []
        for work, peer, _ in sends:
            transport.wait(work, peer, where, sending=True)

    def _broadcast(self, values: torch.Tensor, root: int) -> None:
        """Along a binomial tree; the ranks between pass on the frames that they got."""
        transport, codec = self._sums._transport, self._codec(values)
        size, place = transport.size, (transport.rank - root) % transport.size  # in the tree
        parent = None if place == 0 else (place - (1 << place.bit_length() - 1) + root) % size
        steps = [1 << bit for bit in range(place.bit_length(), size.bit_length())]
        children = [(place + step + root) % size for step in reversed(steps) if place + step < size]
        where, pieces, begin = self._where(), values.split(PIECE_LEN), self._begin(values)
        receives, sends = [], []
        for i in range(len(pieces) + _LAG):
            if i < len(pieces) and parent is not None:
                box = torch.empty(codec.bound(pieces[i].numel()), dtype=torch.uint8)
                receives.append((transport.receive(box, parent, begin + i), box))
            if i < _LAG:
                continue
            piece = pieces[i - _LAG]
            if parent is None:
                message = _message(codec, piece)
            else:
                work, box = receives[i - _LAG]
                transport.wait(work, parent, where)
                message = box[: gradwire.frames.frame_size(box)]
                self.received_size += message.numel()
            sends += [(transport.send(message, peer, begin + i - _LAG), peer, message) for peer in children]
            self.sent_size += message.numel() * len(children)
            if parent is not None or self._nmse is not None:
                _decode(codec, message, piece)
        for work, peer, _ in sends:
            transport.wait(work, peer, where, sending=True)

    def _codec(self, values: torch.Tensor) -> Codec:
        return _codec(staging.CODEC_DTYPES[values.dtype], self._nmse)

    def _where(self) -> str:
        return f"operation {self._sums.step}"

    def _begin(self, values: torch.Tensor) -> int:
        """The tag of the first message. Those of consecutive operations differ: a rank may be one ahead."""
        if -(-values.numel() // PIECE_LEN) > _PIECES_MAX:
            raise ValueError(f"{values.numel()} values are too many for frames")
        self._operations += 1
        return MESSAGES | self._operations % (1 << 11) << 16

    # ---- by Gloo ----

    def _gather_by_gloo(self, rooms: list[torch.Tensor], mine: torch.Tensor) -> None:
        options, transport = AllgatherOptions(), self._sums._transport
        options.timeout = transport.timeout
        transport.wait_all(lambda: transport.group.allgather([rooms], [mine], options), self._where())

    def _broadcast_by_gloo(self, values: torch.Tensor, root: int) -> None:
        options, transport = BroadcastOptions(), self._sums._transport
        options.rootRank, options.rootTensor, options.timeout = root, 0, transport.timeout
        transport.wait_all(lambda: transport.group.broadcast([values], options), self._where())


def _room(output: torch.Tensor) -> torch.Tensor:
    """One dimension of the output's own memory where it has one."""
    output = output.detach()
    return output.view(-1) if output.is_contiguous() and not output.is_neg() else torch.empty_like(output).reshape(-1)


def _hand_out(output: torch.Tensor, room: torch.Tensor) -> None:
    if output.data_ptr() != room.data_ptr() or not output.is_contiguous():
        _write(output, room, ())


def _message(codec: Codec, values: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(codec.encode(values)), dtype=torch.uint8)


def _decode(codec: Codec, box: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The frame at the begin of the box, whose values it has decoded."""
    frame = box[: gradwire.frames.frame_size(box)]
    codec.decode(frame, out=values)
    return frame


@functools.lru_cache(maxsize=32)
def _codec(dtype: str, nmse: float | None) -> Codec:
    if nmse is None:
        return Codec(dtype=dtype, quantum_mode="explicit", constant_drop=0, strict=True, checksum=True)
    return Codec(dtype=dtype, quantum_mode="carried", target_nmse=nmse, dead_zone=True, checksum=True)
