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
from .buckets import Bucket, offset_of
from .casts import Caster
from .failure import Gate
from .optimizers import ParamRegistry, family
from .reducer import CodecHook, agreed_error
from .states import (
    Finite,
    Undo,
    as_memory,
    check_memories,
    check_nonfinite,
    check_sizes,
    check_version,
    is_finite,
    lost,
)
from .stats import size_of
from .transport import Start
from .watch import BackwardWatch
from .workers import Worker

_UNKNOWN = 255  # a status for what is no error of the library
_SIGNS = ("signsgd", "signum")


@dataclass
class _Tensor:
    """A parameter's values in a bucket. number: in the optimizer, None for a parameter that none has."""

    number: int | None
    offset: int
    len: int
    plain: bool  # travels as it is


@dataclass
class _Message:
    """A bucket on its way."""

    bucket: Bucket
    copy: staging.HostCopy
    tensors: list[_Tensor]
    frames: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    sizes: list[int] = field(default_factory=list)  # bytes of each tensor in the message
    fault: tuple[int, int] = (0, 0)  # status and number of the parameter, plus one
    finite: list[Finite] = field(default_factory=list)  # of the last bucket: of those that travelled plain
    undo: Undo = field(default_factory=Undo)

    @property
    def values(self) -> torch.Tensor:
        return self.copy.host


class ClassicState(CodecHook):
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
        with Start(f"codec {codec!r}", group, transport, timeout) as start:
            made = given.optimizers_of(optimizer)
            given.check_keywords(options, gradwire.classic.Options, ClassicState, but=["scheme", "dtype"])
            self.options = gradwire.classic.options(codec, checksum=checksum, **options)
            like = gradwire.classic.Codec(self.options)  # raises what is wrong with them
            self._keeps = {"residual": like.has_residual, "momentum": like.has_momentum or codec == "dgc"}
            if not 0 < ratio <= 1:
                raise ValueError(f"a ratio is above 0 and at most 1, not {ratio}")
            if vote and codec not in _SIGNS:
                raise ValueError(f"{codec} has no vote; there are: {', '.join(_SIGNS)}")
            check_nonfinite(nonfinite)
            check_optimizers(codec, made)
            self._registry = ParamRegistry(made, seed)
            self.ratio, self.warmup_steps, self.vote = ratio, warmup_steps, vote
            self.small_len = (0 if codec in _SIGNS else 1024) if small_len is None else small_len
            agreed = {"ratio": ratio, "warmup_steps": warmup_steps, "vote": vote, "small_len": self.small_len}
            self.nonfinite = nonfinite
            start.options = {**vars(self.options), **agreed, "nonfinite": nonfinite, "seed": seed}
        self._begin(start)
        self.sent_size = 0  # bytes of frames and their sizes that went to other ranks; casts, plain buckets not counted
        self.received_size = 0  # the same of theirs
        self.fault: Callable[[np.ndarray], None] | None = None  # of tests: changes a message before it is decoded
        self._codecs: dict[tuple[int, str], gradwire.classic.Codec] = {}
        self._residual: dict[int, torch.Tensor] = {}  # by number of the parameter, in memory order
        self._momentum: dict[int, torch.Tensor] = {}
        self._finite: list[Finite] = []  # of this step's plain buckets
        self._own_fault = (0, 0)  # found after this rank's status had gone out
        self._watch = BackwardWatch(self._failed)
        self.gate.on_fail.append(self._watch.end)
        self._encoder = Worker("gradwire-classic", self._failed)
        self._exchanger = Worker("gradwire-exchange", self._failed)
        self.caster = Caster(codec, start.transport, self.gate) if codec in ("fp16", "bf16") else None

    @property
    def has_memory(self) -> bool:
        return any(self._keeps.values())

    def join(self, gate: Gate, whole: Undo | None) -> None:
        super().join(gate, whole)
        if self.caster is not None:
            self.caster.gate = gate

    def sizes(self) -> tuple[int, int]:
        """Bytes of compressed buckets that this rank has sent and received, an all-reduce as a ring of all ranks."""
        casts = 0 if self.caster is None else self.caster.sent_size
        return self.sent_size + casts, self.received_size + casts

    def _workers(self) -> list[Worker]:
        return [self._encoder, self._exchanger]

    # ---- the hook ----

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        with self.gate:
            taken = self._taken(bucket)
            if taken.number == 0:
                self._watch.begin(sys._getframe())
            future = self.start(taken)
            if taken.is_last:
                self._watch.end()
            return future

    def start(self, bucket: Bucket) -> torch.futures.Future:
        """The mean of a bucket, in place. Where it is the last one the future also says that no rank found a fault in
        this step."""
        values = bucket.values
        if not staging.takes(values) or self.size == 1 and self.caster:
            return self._start_plain(bucket)
        self.full_size += size_of(values)
        if self.caster is not None:
            return self.caster.start(bucket)
        message = _Message(bucket, staging.HostCopy(values), self._tensors(bucket))
        if bucket.is_last:
            message.finite, self._finite = self._finite, []
        self.gate.add(message.copy.future)
        self._encoder.submit(lambda: self._encode(message))
        return message.copy.future

    def _start_plain(self, bucket: Bucket) -> torch.futures.Future:
        """That of the last bucket is done at the end of the step, too."""
        if self.caster is not None:
            return self._plain.start(bucket)
        self._finite.append(Finite())
        future = self._plain.start(bucket, self._finite[-1].around)
        if not bucket.is_last:
            return future
        ended: torch.futures.Future = torch.futures.Future()
        self.gate.add(ended)
        finite, self._finite = self._finite, []

        def end() -> None:
            if not self.gate.shut:
                self._agree_on_end(bucket, finite)
                with self.gate.passing(ended):
                    self._undo.end_step()
                    ended.set_result(None)

        self._encoder.submit(lambda: self._exchanger.submit(end))
        return staging.gated(ended, future, bucket.values)

    def _tensors(self, bucket: Bucket) -> list[_Tensor]:
        """In the order of the message: frames, whose sizes are multiples of 16, before what travels as it is."""
        found = []
        for param, gradient in zip(bucket.params, bucket.gradients):
            number, count = self._registry.number(param), gradient.numel()
            plain = number is None or count < self.small_len
            if count:
                found.append(_Tensor(number, offset_of(bucket.values, gradient), count, plain))
        return sorted(found, key=lambda one: (one.plain, one.offset))

    # ---- encoding, on its thread ----

    def _encode(self, message: _Message) -> None:
        if self.gate.shut:
            return
        message.copy.wait()
        array = _array(message.values)
        dtype = staging.CODEC_DTYPES[message.values.dtype]
        steps = [self._step(one, message.bucket.step) for one in message.tensors]
        room = 0
        for one, step in zip(message.tensors, steps):
            room += one.len * array.itemsize if one.plain else self._codec(one, dtype).bound(one.len, step)
        frames, at = np.empty(room, np.uint8), 0
        for one, step in zip(message.tensors, steps):
            values = array[one.offset : one.offset + one.len]
            if one.plain:
                size = values.nbytes
                frames[at : at + size] = values.view(np.uint8)
            else:
                try:
                    codec = self._codec(one, dtype)
                    state = self._state(one, codec, message.undo)
                    size = len(codec.encode(values, step, state=state, out=frames[at:]))
                except Error as error:
                    if error.name != "nonfinite" or self.nonfinite == "error":
                        message.fault = (error.status, one.number + 1)
                        break
                    size = 0  # says so to all ranks: a frame has a header
            message.sizes.append(size)
            at += size
        message.sizes += [0] * (len(message.tensors) - len(message.sizes))
        message.frames = torch.from_numpy(frames[:at])
        self._exchanger.submit(lambda: self._exchange(message))

    def _step(self, one: _Tensor, round: int) -> gradwire.classic.Step:
        keep_len = 0
        if self.options.scheme in gradwire.classic.SPARSE:
            ratio = gradwire.classic.warmup_ratio(self.ratio, round, self.warmup_steps)
            keep_len = gradwire.classic.keep_len(one.len, ratio)
        return gradwire.classic.Step(keep_len=keep_len, round=round & 0xFFFFFFFF, rank=self.rank)

    def _codec(self, one: _Tensor, dtype: str) -> gradwire.classic.Codec:
        key = (one.number, dtype)
        if key not in self._codecs:
            seed = self._registry.stream_seed(one.number)
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
        return undo.draft(kept, one.number, one.len).numpy()

    # ---- exchange and decoding, on theirs ----

    def _exchange(self, message: _Message) -> None:
        if self.gate.shut:
            return
        bucket, sizes, transport = message.bucket, message.sizes, self._transport
        self._compare_states(self.options.scheme, step=bucket.step, seed=self._registry.seed)
        fault = message.fault if message.fault[0] else self._own_fault
        rooms = transport.gather(torch.tensor([*fault, *sizes]), bucket.where)
        self._count(rooms)
        words = [room.tolist() for room in rooms]
        _raise_fault(words)
        with torch.no_grad():
            if self.options.scheme == "randk":
                self._add_lanes(message, words)
            frames = [one for one in message.tensors if not one.plain]
            first = len(frames) if self.options.scheme == "randk" else 0
            rooms = [torch.empty(sum(theirs[2 + first :]), dtype=torch.uint8) for theirs in words]
            rooms[self.rank] = message.frames[sum(sizes[:first]) :]
            transport.to_all(rooms, bucket.where)
            self._count(rooms)
            try:
                self._decode(message, first, words, [room.numpy() for room in rooms])
            except (Error, ValueError) as error:  # the others learn of it with the next status
                self._own_fault = (getattr(error, "status", _UNKNOWN), 0)
        if bucket.is_last:
            self._agree_on_end(bucket, message.finite)
        if self.has_memory and not message.undo.spoilt:  # means of finite frames may be out of the type's range
            message.undo.spoilt = not is_finite(message.values)
        with self.gate.passing(message.copy.future):  # with the memories: a failure undoes both or neither
            message.undo.put()
            self._undo.add(message.undo)
            if bucket.is_last:
                self._undo.end_step(bucket.owners)
            message.copy.finish()

    def _agree_on_end(self, bucket: Bucket, finite: list[Finite]) -> None:
        """No rank has found a fault in this step. finite: of its buckets that travelled plain."""
        rooms = self._transport.gather(torch.tensor(self._own_fault), f"step {bucket.step}, its end")
        _raise_fault([room.tolist() for room in rooms])
        self._undo.spoilt |= not all(one.wait() for one in finite)

    def _count(self, rooms: list[torch.Tensor]) -> None:
        """What has been sent to all ranks."""
        sizes = [room.numel() * room.element_size() for room in rooms]
        self.received_size += sum(sizes) - sizes[self.rank]
        self.sent_size += sizes[self.rank] * (self.size - 1)

    def _is_marked(self, message: _Message, words: list[list[int]], index: int) -> bool:
        """Whether a rank's gradient is not finite."""
        if all(theirs[2 + index] for theirs in words):
            return False
        message.undo.spoilt = True
        return True

    def _add_lanes(self, message: _Message, words: list[list[int]]) -> None:
        """RANDK: all ranks have the same positions, so values are added by an ordinary all-reduce. One for each tensor:
        the order of Gloo's additions depends on the length."""
        at = 0
        for index, (one, size) in enumerate(zip(message.tensors, message.sizes)):
            if one.plain:
                return
            if self._is_marked(message, words, index):
                self._write(message, one, np.full(one.len, np.nan, np.float32))
                at += size
                continue
            total = gradwire.classic.Sum(message.frames[at : at + size].numpy())
            total.add(message.frames[at : at + size].numpy())
            at += size
            lanes = torch.from_numpy(total.lanes.view(np.float32))
            self._transport.all_reduce(lanes, where=message.bucket.where)
            size = 2 * (self.size - 1) * lanes.numel() * 4 // self.size
            self.sent_size += size
            self.received_size += size
            self._write(message, one, total.decode(scale=1 / self.size))

    def _decode(self, message: _Message, first: int, words: list[list[int]], received: list[np.ndarray]) -> None:
        places = [0] * self.size
        if self.fault is not None:
            self.fault(received[self.rank])
        for index in range(first, len(message.tensors)):
            one, pieces = message.tensors[index], []
            for rank in range(self.size):
                size = words[rank][2 + index]
                pieces.append(received[rank][places[rank] : places[rank] + size])
                places[rank] += size
            if self._is_marked(message, words, index):
                mean = np.full(one.len, np.nan, np.float32)
            else:
                mean = self._plain_mean(one, pieces, message) if one.plain else self._mean(one, pieces)
            self._write(message, one, mean)

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

    def _plain_mean(self, one: _Tensor, pieces: list[np.ndarray], message: _Message) -> np.ndarray:
        total = torch.zeros(one.len)
        for piece in pieces:
            total += torch.from_numpy(piece).view(message.values.dtype).float()
        total /= self.size
        if not is_finite(total):  # the same on all ranks
            message.undo.spoilt = True
        elif self.options.scheme == "dgc" and one.number is not None:  # its momentum, which SGD has not
            momentum = torch.from_numpy(self._memory(self._momentum, one, message.undo))
            m = self.options.momentum
            momentum.mul_(m).add_(total)
            total = total.add(momentum, alpha=m) if self.options.nesterov else momentum
        return total.numpy()

    def _write(self, message: _Message, one: _Tensor, mean: np.ndarray) -> None:
        with self.gate.passing():
            message.values[one.offset : one.offset + one.len].copy_(torch.from_numpy(mean))

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, besides model and optimizer, to give the same bits. Of this rank alone: residuals
        differ between ranks."""
        return {
            "version": 1,
            "codec": self.options.scheme,
            "step": self.step,
            "seed": self._registry.seed,
            "residual": {number: kept.clone() for number, kept in self._residual.items()},
            "momentum": {number: kept.clone() for number, kept in self._momentum.items()},
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """ValueError for a state that cannot be loaded."""
        check_version(state, self.options.scheme, ("step", "seed", "residual", "momentum"))
        sizes = {self._registry.number(param): param.numel() for param in self._registry.params()}
        for kept, has_some in self._keeps.items():
            check_memories(state[kept])
            check_sizes(sizes, state[kept])
            if state[kept] and not has_some:
                raise lost(f"memories ({kept})", f"{self.options.scheme} with this hook's options", repr(kept))

    def _load(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        if state["seed"] != self._registry.seed:
            self._registry.seed = state["seed"]
            self._codecs = {}
        self._residual = {number: as_memory(kept) for number, kept in state["residual"].items()}
        self._momentum = {number: as_memory(kept) for number, kept in state["momentum"].items()}

    def close(self) -> None:
        """Ends the threads. The hook raises afterwards."""
        self._watch.close()
        super().close()
        if self.caster is not None:
            self.caster.close()


def _raise_fault(words: list[list[int]]) -> None:
    """What a rank has said that failed. All ranks find the same, and raise it here."""
    for rank, (status, number, *_) in enumerate(words):
        if status:
            where = f"rank {rank}" + (f", parameter {number - 1}" if number else "")
            text = lib.gw_status_message(status).decode() if status != _UNKNOWN else "failed"
            raise agreed_error(status, f"{where}: {text}")


def check_optimizers(codec: str, made: list[torch.optim.Optimizer]) -> None:
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
