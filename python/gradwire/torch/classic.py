"""The classic codecs as a DDP hook: every rank's frames go to all ranks, which add them up in the order of the ranks.

    ddp.register_comm_hook(*gradwire.torch.ddp_hook(optimizer, codec="topk", ratio=0.01))

Each parameter is a tensor of its own, with state and random numbers by its number in the optimizer and the round, so
how DDP cuts buckets changes no bit. A bucket is encoded by one thread; another exchanges a status and the sizes of all
ranks' frames, then the frames, and decodes. C calls release the interpreter lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import gradwire.classic
from gradwire._library import lib
from gradwire.errors import Error

from . import given, staging
from .casts import Caster
from .engine import CODEC_DTYPES
from .optimizers import Book, family
from .pending import HookState
from .states import Undo, check_nonfinite, check_sizes, check_version
from .stats import size_of
from .transport import Start, timeout_of
from .watch import BackwardWatch
from .workers import Worker

_TAGS = 1 << 24
_UNKNOWN = 255  # a status for what is no error of the library
_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_SIGNS = ("signsgd", "signum")


@dataclass
class _Tensor:
    """A parameter's values in a bucket. number: in the optimizer, None for a parameter that none has."""

    number: int | None
    offset: int
    len: int
    plain: bool  # travels as it is


@dataclass
class _Bucket:
    """A bucket on its way."""

    copy: staging.HostCopy
    tensors: list[_Tensor]
    round: int
    is_last: bool
    where: str  # step and bucket, for errors
    message: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    sizes: list[int] = field(default_factory=list)  # bytes of each tensor in the message
    fault: tuple[int, int] = (0, 0)  # status and number of the parameter, plus one
    undo: Undo = field(default_factory=Undo)

    @property
    def values(self) -> torch.Tensor:
        return self.copy.host


class ClassicState(HookState):
    """What the hook keeps. One for each DDP module; equal options on all ranks.

    codec: a name of gradwire.classic.SCHEMES. ratio: TOPK, DGC, RANDK: share of a tensor's values that a rank sends.
    warmup_steps: steps over which the share falls from 1 to ratio. vote: SIGNSGD, SIGNUM: the majority of the signs
    in place of their mean. small_len: parameters of fewer values travel as they are; None: 1024, but 0 for SIGNSGD and
    SIGNUM, whose results have another size than gradients. checksum: finds damaged messages. nonfinite: what NaN or
    infinity in a gradient does: "propagate": the parameter's gradient is NaN on all ranks, and residuals and momentum
    stay as they were before the step, as a GradScaler expects; "error": all ranks raise, with rank and parameter.
    group, transport, timeout, seed: as in DdpState. options: other fields of gradwire.classic.Options. report, error,
    check() and fail(error) are as of DdpState; of the report's numbers there are sizes.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        codec: str,
        *,
        ratio: float = 0.01,
        warmup_steps: int = 0,
        vote: bool = False,
        small_len: int | None = None,
        checksum: bool = True,
        nonfinite: str = "propagate",
        group: Any = None,
        transport: Any = None,
        timeout: timedelta | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.group = dist.group.WORLD if group is None else group
        with Start(f"codec {codec!r}", self.group, transport, timeout or timeout_of(self.group)) as start:
            made = given.optimizers_of(optimizer)
            given.check_keywords(options, gradwire.classic.Options, ClassicState, but=["scheme", "dtype"])
            self.options = gradwire.classic.options(codec, checksum=checksum, **options)
            gradwire.classic.Codec(self.options)  # raises what is wrong with them
            if not 0 < ratio <= 1:
                raise ValueError(f"a ratio is above 0 and at most 1, not {ratio}")
            if vote and codec not in _SIGNS:
                raise ValueError(f"{codec} has no vote; there are: {', '.join(_SIGNS)}")
            check_nonfinite(nonfinite)
            _check_optimizers(codec, made)
            self._book = Book(made, seed)
            self.ratio, self.warmup_steps, self.vote = ratio, warmup_steps, vote
            self.small_len = (0 if codec in _SIGNS else 1024) if small_len is None else small_len
            agreed = {"ratio": ratio, "warmup_steps": warmup_steps, "vote": vote, "small_len": self.small_len}
            self.nonfinite = nonfinite
            start.options = {**vars(self.options), **agreed, "nonfinite": nonfinite, "seed": seed}
        self._transport = start.transport
        self.rank, self.size = self._transport.rank, self._transport.size
        self.step = 0  # synchronised backward passes so far
        self.sent_size = 0  # bytes of frames and their sizes that went to other ranks; casts, plain buckets not counted
        self.received_size = 0  # the same of theirs
        self.fault: Callable[[np.ndarray], None] | None = None  # of tests: changes a message before it is decoded
        self._codecs: dict[tuple[int, str], gradwire.classic.Codec] = {}
        self._residual: dict[int, torch.Tensor] = {}  # by number of the parameter, in memory order
        self._momentum: dict[int, torch.Tensor] = {}
        self._undo = Undo()
        self._messages = 0
        self._buckets, self._last_round = 0, -1  # of the last step, for errors
        self._own_fault = (0, 0)  # found after this rank's status had gone out
        self._in_backward = False
        self._compared = False  # the ranks have the same step and seed: positions and random numbers follow from them
        self._watch = BackwardWatch(self.fail)
        self._encoder = Worker("gradwire-classic", self.fail)
        self._exchanger = Worker("gradwire-exchange", self.fail)
        self.caster: Caster | None = None
        if codec in ("fp16", "bf16"):
            self.caster = Caster(self._transport, self.fail)
            self.caster.prepare(codec)

    def sizes(self) -> tuple[int, int]:
        """Bytes of compressed buckets that this rank has sent and received, an all-reduce as a ring of all ranks."""
        casts = 0 if self.caster is None else self.caster.sent_size
        return self.sent_size + casts, self.received_size + casts

    def _workers(self) -> list[Worker]:
        return [self._encoder, self._exchanger]

    # ---- the hook ----

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        self.raise_error()
        try:
            if not self._in_backward:
                self._in_backward = True
                self._watch.begin(sys._getframe())
            future = self.start(
                bucket.buffer(), bucket.parameters(), bucket.gradients(), self.step, is_last=bucket.is_last()
            )
            if bucket.is_last():
                self._in_backward = False
                self._watch.end()
                self.step += 1
            return future
        except Exception as error:  # on this rank alone, as far as it can know
            self.fail(error)
            raise

    def start(
        self,
        values: torch.Tensor,
        params: list[torch.Tensor],
        gradients: list[torch.Tensor],
        round: int,
        *,
        is_last: bool = True,
    ) -> torch.futures.Future:
        """The mean of a bucket, in place. is_last: the future also says that no rank found a fault in this step."""
        fits = values.dtype in CODEC_DTYPES and staging.reaches(values.device) and not values.is_sparse
        if not fits or self.size == 1 and self.caster:
            return self._plain(values)
        if self.caster is not None:
            self.full_size += size_of(values)
            return self.caster.reduce(values, self.options.scheme, f"step {round}")
        self._buckets = 0 if self._last_round != round else self._buckets + 1
        self._last_round = round
        tensors = self._tensors(values, params, gradients)
        bucket = _Bucket(staging.HostCopy(values), tensors, round, is_last, f"step {round}, bucket {self._buckets}")
        self.full_size += values.numel() * values.element_size()
        self._pending.add(bucket.copy.future)
        self._encoder.submit(lambda: self._encode(bucket))
        return bucket.copy.future

    def _plain(self, values: torch.Tensor) -> torch.futures.Future:
        self.plain_size += size_of(values)
        if values.dtype.is_floating_point:
            values.div_(self.size)
        return staging.all_reduce(values, self.group, self.plain_end(f"step {self.step}, a plain bucket"))

    def _tensors(
        self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> list[_Tensor]:
        """In the order of the message: frames, whose sizes are multiples of 16, before what travels as it is."""
        found = []
        for param, gradient in zip(params, gradients):
            number, count = self._book.number(param), gradient.numel()
            offset = (gradient.data_ptr() - values.data_ptr()) // values.element_size() if count else 0
            if count:
                found.append(_Tensor(number, offset, count, number is None or count < self.small_len))
        return sorted(found, key=lambda one: (one.plain, one.offset))

    # ---- encoding, on its thread ----

    def _encode(self, bucket: _Bucket) -> None:
        if self.error is not None:
            return
        bucket.copy.wait()
        array = _array(bucket.values)
        dtype = _NAMES[bucket.values.dtype]
        steps = [self._step(one, bucket.round) for one in bucket.tensors]
        room = 0
        for one, step in zip(bucket.tensors, steps):
            room += one.len * array.itemsize if one.plain else self._codec(one, dtype).bound(one.len, step)
        message, at = np.empty(room, np.uint8), 0
        for one, step in zip(bucket.tensors, steps):
            values = array[one.offset : one.offset + one.len]
            if one.plain:
                size = values.nbytes
                message[at : at + size] = values.view(np.uint8)
            else:
                try:
                    codec = self._codec(one, dtype)
                    state = self._state(one, codec, bucket.undo)
                    size = len(codec.encode(values, step, state=state, out=message[at:]))
                except Error as error:
                    if error.name != "nonfinite" or self.nonfinite == "error":
                        bucket.fault = (error.status, one.number + 1)
                        break
                    size = 0  # says so to all ranks: a frame has a header
            bucket.sizes.append(size)
            at += size
        bucket.sizes += [0] * (len(bucket.tensors) - len(bucket.sizes))
        bucket.message = torch.from_numpy(message[:at])
        self._exchanger.submit(lambda: self._exchange(bucket))

    def _step(self, one: _Tensor, round: int) -> gradwire.classic.Step:
        keep_len = 0
        if self.options.scheme in gradwire.classic.SPARSE:
            ratio = gradwire.classic.warmup_ratio(self.ratio, round, self.warmup_steps)
            keep_len = gradwire.classic.keep_len(one.len, ratio)
        return gradwire.classic.Step(keep_len=keep_len, round=round & 0xFFFFFFFF, rank=self.rank)

    def _codec(self, one: _Tensor, dtype: str) -> gradwire.classic.Codec:
        key = (one.number, dtype)
        if key not in self._codecs:
            seed = self._book.stream_seed(one.number)
            self._codecs[key] = gradwire.classic.Codec(replace(self.options, dtype=dtype, seed=seed))
        return self._codecs[key]

    def _state(self, one: _Tensor, codec: gradwire.classic.Codec, undo: Undo) -> gradwire.classic.State:
        return gradwire.classic.State(
            self._memory(self._residual, one, undo) if codec.has_residual else None,
            self._memory(self._momentum, one, undo) if codec.has_momentum else None,
        )

    @staticmethod
    def _memory(kept: dict[int, torch.Tensor], one: _Tensor, undo: Undo) -> np.ndarray:
        """To be changed in this step."""
        if one.number not in kept:
            kept[one.number] = torch.zeros(one.len)
        undo.keep(kept, one.number, kept[one.number].clone())
        return kept[one.number].numpy()

    # ---- exchange and decoding, on theirs ----

    def _exchange(self, bucket: _Bucket) -> None:
        if self.error is not None:
            return
        if not self._compared:
            self._transport.agree_on_state(self.options.scheme, step=bucket.round, seed=self._book.seed)
            self._compared = True
        fault = bucket.fault if bucket.fault[0] else self._own_fault
        words = self._gather_words([*fault, *bucket.sizes], bucket.where)
        if self._raise_fault(words):
            return
        with torch.no_grad():
            if self.options.scheme == "randk":
                self._add_lanes(bucket, words)
            frames = [one for one in bucket.tensors if not one.plain]
            first = len(frames) if self.options.scheme == "randk" else 0
            skipped = sum(bucket.sizes[:first])
            rooms = [torch.empty(sum(theirs[2 + first :]), dtype=torch.uint8) for theirs in words]
            rooms[self.rank] = bucket.message[skipped:]
            self._to_all(rooms, bucket.where)
            try:
                self._decode(bucket, first, words, [room.numpy() for room in rooms])
            except (Error, ValueError) as error:  # the others learn of it with the next status
                self._own_fault = (getattr(error, "status", _UNKNOWN), 0)
        self._undo.add(bucket.undo)
        if bucket.is_last:
            words = self._gather_words(list(self._own_fault), f"step {bucket.round}, its end", counted=False)
            if self._raise_fault(words):
                return
            self._undo.end_step()
        bucket.copy.finish()
        self._pending.remove(bucket.copy.future)

    def _gather_words(self, words: list[int], where: str, *, counted: bool = True) -> list[list[int]]:
        """Those of all ranks."""
        rooms = [torch.empty(len(words), dtype=torch.int64) for _ in range(self.size)]
        rooms[self.rank] = torch.tensor(words, dtype=torch.int64)
        self._to_all(rooms, where, counted=counted)
        return [room.tolist() for room in rooms]

    def _to_all(self, rooms: list[torch.Tensor], where: str, *, counted: bool = True) -> None:
        """rooms[rank] goes to all other ranks, theirs into the other rooms."""
        self._messages += 1
        number = self._messages % _TAGS
        peers = [(self.rank + i) % self.size for i in range(1, self.size)]
        others = [peer for peer in peers if rooms[peer].numel()]
        receives = [(self._transport.receive(rooms[peer], peer, number), peer) for peer in others]
        others = peers if rooms[self.rank].numel() else []
        sends = [(self._transport.send(rooms[self.rank], peer, number), peer) for peer in others]
        if counted:
            sizes = [room.numel() * room.element_size() for room in rooms]
            self.received_size += sum(sizes) - sizes[self.rank]
            self.sent_size += sizes[self.rank] * len(peers)
        for work, peer in receives:
            self._transport.wait(work, peer, where)
        for work, peer in sends:
            self._transport.wait(work, peer, where, sending=True)

    def _raise_fault(self, words: list[list[int]]) -> bool:
        """Whether a rank has said that something failed. All ranks find the same one, and stop here."""
        for rank, (status, number, *_) in enumerate(words):
            if status:
                where = f"rank {rank}" + (f", parameter {number - 1}" if number else "")
                text = lib.gw_status_message(status).decode() if status != _UNKNOWN else "failed"
                self.fail(Error(status, f"{where}: {text}"), alone=False)
                return True
        return False

    def _is_marked(self, bucket: _Bucket, words: list[list[int]], index: int) -> bool:
        """Whether a rank's gradient is not finite."""
        if all(theirs[2 + index] for theirs in words):
            return False
        bucket.undo.spoilt = True
        return True

    def _add_lanes(self, bucket: _Bucket, words: list[list[int]]) -> None:
        """RANDK: all ranks have the same positions, so values are added by an ordinary all-reduce. One for each tensor:
        the order of Gloo's additions depends on the length."""
        at = 0
        values = _array(bucket.values)
        for index, (one, size) in enumerate(zip(bucket.tensors, bucket.sizes)):
            if one.plain:
                return
            if self._is_marked(bucket, words, index):
                self._write(bucket, one, np.full(one.len, np.nan, np.float32), values)
                at += size
                continue
            total = gradwire.classic.Sum(bucket.message[at : at + size].numpy())
            total.add(bucket.message[at : at + size].numpy())
            at += size
            lanes = torch.from_numpy(total.lanes.view(np.float32))
            self._transport.all_reduce(lanes, where=bucket.where)
            size = 2 * (self.size - 1) * lanes.numel() * 4 // self.size
            self.sent_size += size
            self.received_size += size
            self._write(bucket, one, total.decode(scale=1 / self.size), values)

    def _decode(self, bucket: _Bucket, first: int, words: list[list[int]], received: list[np.ndarray]) -> None:
        values = _array(bucket.values)
        places = [0] * self.size
        if self.fault is not None:
            self.fault(received[self.rank])
        for index in range(first, len(bucket.tensors)):
            one, pieces = bucket.tensors[index], []
            for rank in range(self.size):
                size = words[rank][2 + index]
                pieces.append(received[rank][places[rank] : places[rank] + size])
                places[rank] += size
            if self._is_marked(bucket, words, index):
                mean = np.full(one.len, np.nan, np.float32)
            else:
                mean = self._plain_mean(one, pieces, bucket) if one.plain else self._mean(one, pieces)
            self._write(bucket, one, mean, values)

    def _mean(self, one: _Tensor, frames: list[np.ndarray]) -> np.ndarray:
        if self.vote:
            total = gradwire.classic.Sum(frames[0], len_max=one.len)
            for frame in frames:
                total.add(frame)
            vote = np.frombuffer(total.vote(), np.uint8)
            return gradwire.classic.decode_add(vote, np.zeros(one.len, np.float32))
        mean = np.zeros(one.len, np.float32)
        for frame in frames:
            gradwire.classic.decode_add(frame, mean, scale=1 / self.size, len_max=one.len)
        return mean

    def _plain_mean(self, one: _Tensor, pieces: list[np.ndarray], bucket: _Bucket) -> np.ndarray:
        total = torch.zeros(one.len)
        for piece in pieces:
            total += torch.from_numpy(piece).view(bucket.values.dtype).float()
        total /= self.size
        if not torch.isfinite(total).all():  # the same on all ranks
            bucket.undo.spoilt = True
        elif self.options.scheme == "dgc" and one.number is not None:  # its momentum, which SGD has not
            momentum = torch.from_numpy(self._memory(self._momentum, one, bucket.undo))
            m = self.options.momentum
            momentum.mul_(m).add_(total)
            total = total.add(momentum, alpha=m) if self.options.nesterov else momentum
        return total.numpy()

    @staticmethod
    def _write(bucket: _Bucket, one: _Tensor, mean: np.ndarray, values: np.ndarray) -> None:
        if values.dtype == np.float32:
            values[one.offset : one.offset + one.len] = mean
        else:
            bucket.values[one.offset : one.offset + one.len].copy_(torch.from_numpy(mean))

    # ---- failure ----

    def fail(self, error: BaseException, *, alone: bool | None = None) -> None:
        self._watch.end()
        super().fail(error, alone=alone)

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, besides model and optimizer, to give the same bits. Of this rank alone: residuals
        differ between ranks."""
        return {
            "version": 1,
            "codec": self.options.scheme,
            "step": self.step,
            "seed": self._book.seed,
            "residual": {number: kept.clone() for number, kept in self._residual.items()},
            "momentum": {number: kept.clone() for number, kept in self._momentum.items()},
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """ValueError for a state that cannot be loaded."""
        check_version(state, self.options.scheme, ("step", "seed", "residual", "momentum"))
        sizes = {self._book.number(param): param.numel() for param in self._book.params()}
        check_sizes(sizes, state["residual"], state["momentum"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The one of this rank, before the first backward pass, on all ranks: else all raise in that pass. ValueError
        for a state of another version, codec or model."""
        self.check_state(state)
        self.step = state["step"]
        self._undo = Undo()
        self._compared = False
        if state["seed"] != self._book.seed:
            self._book.seed = state["seed"]
            self._codecs = {}
        self._residual = {number: kept.clone() for number, kept in state["residual"].items()}
        self._momentum = {number: kept.clone() for number, kept in state["momentum"].items()}

    def close(self) -> None:
        """Ends the threads. The hook raises afterwards."""
        self._closed = True
        self._watch.close()
        self._encoder.close(10.0)
        self._exchanger.close(10.0)
        if self.caster is not None:
            self.caster.close()


def _check_optimizers(codec: str, made: list[torch.optim.Optimizer]) -> None:
    """ValueError for an optimizer with which the codec computes something else than it is known for: a momentum of
    momenta, or the second moments of signs."""
    if codec not in ("dgc", *_SIGNS):
        return
    needs = f"{codec} needs torch.optim.SGD without momentum"
    for one in made:
        if family(one) != "sgd":
            raise ValueError(f"{needs}, not {given.name_of(one)}")
        for index, group in enumerate(one.param_groups):
            if group["momentum"]:
                why = "" if codec == "signsgd" else "; the momentum is in the codec"
                raise ValueError(f"{needs}, not momentum={group['momentum']:g} in group {index}{why}")


def _array(values: torch.Tensor) -> np.ndarray:
    """The same memory; bf16 as uint16."""
    return values.view(torch.int16).numpy().view(np.uint16) if values.dtype == torch.bfloat16 else values.numpy()
