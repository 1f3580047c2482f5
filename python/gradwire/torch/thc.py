"""THC as a DDP hook: gradients as small integers that an unmodified all-reduce adds up.

    ddp.register_comm_hook(*gradwire.torch.thc_hook(optimizer, bits=4))

Two all-reduces a bucket: the MAX of one word per block of 1024 values, and the SUM of one lane per value. No optimizer
state is needed. The error memory of each parameter is added to its next gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import gradwire.thc

from . import given, staging
from .pending import Pending, fail_future
from .transport import DifferentError, Start, Worker, timeout_of


def thc_hook(
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer], **options: Any
) -> tuple[ThcState, Callable[[ThcState, dist.GradBucket], torch.futures.Future]]:
    """State and hook for DistributedDataParallel.register_comm_hook(). Options: those of ThcState."""
    return ThcState(optimizer, **options), hook


def hook(state: ThcState, bucket: dist.GradBucket) -> torch.futures.Future:
    """The communication hook: the mean of a bucket over the ranks, in place."""
    return state.reduce(bucket)


hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


def codec_of(bits: int, ranks: int, **changes: Any) -> gradwire.thc.Codec:
    """The codec of a job of so many ranks, by gradwire.thc.options()."""
    options = gradwire.thc.options(bits, ranks, **changes)
    if options.lane_bits == 16:  # Gloo does not add 16-bit integers
        options = gradwire.thc.options(bits, ranks, lane_bits=32, **changes)
    return gradwire.thc.Codec(options)


class ThcState:
    """What the hook keeps. optimizer: numbers the parameters for state_dict(), nothing else is read.

    bits: 1..4, of an index. error_feedback: keep what rounding lost. small_len, group, transport, timeout, seed: as in
    DdpState. Lanes are the narrowest that hold the sum and that Gloo adds: 8 or 32 bits.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        bits: int = 4,
        error_feedback: bool = True,
        small_len: int = 1 << 14,
        group: Any = None,
        transport: Any = None,
        timeout: timedelta | None = None,
        seed: int = 0,
    ) -> None:
        self.group = dist.group.WORLD if group is None else group
        with Start("THC", self.group, transport, timeout or timeout_of(self.group)) as start:
            self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
            made = given.optimizers_of(optimizer)
            params = [param for one in made for part in one.param_groups for param in part["params"]]
            self._numbers = {id(param): number for number, param in enumerate(params)}
            self.codec = codec_of(bits, self.size, seed=seed, error_feedback=error_feedback)
            start.options = {"bits": bits, "error_feedback": error_feedback, "small_len": small_len, "seed": seed}
        self._transport = start.transport
        self.small_len = small_len
        self.round = 0
        self._compared = False  # the ranks have the same round: rotations and random numbers follow from it
        self.sent_size = 0  # bytes of lanes and patterns that were handed to all-reduce
        self._errors: dict[int, torch.Tensor] = {}  # by number of the parameter
        self.on_fail: Callable[[BaseException], None] | None = None  # told of errors of this rank
        self._worker = Worker("gradwire-thc", self.fail)
        self._pending = Pending()

    @property
    def error(self) -> BaseException | None:
        """What ended the hook."""
        return self._pending.error

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        if self.error is not None:
            raise RuntimeError(f"gradwire: an earlier operation failed: {self.error}") from self.error
        try:
            return self._reduce_bucket(bucket)
        except Exception as error:  # on this rank alone, as far as it can know
            self.fail(error)
            raise

    def _reduce_bucket(self, bucket: dist.GradBucket) -> torch.futures.Future:
        values = bucket.buffer()
        fits = values.dtype == torch.float32 and staging.reaches(values.device) and not values.is_sparse
        if not fits or values.numel() < self.small_len:
            values.div_(self.size)
            return staging.all_reduce(values, self.group)
        return self.start(values, bucket.parameters())

    def start(self, values: torch.Tensor, params: list[torch.Tensor]) -> torch.futures.Future:
        """The mean of a bucket of fp32 values, in place."""
        number = self.round
        self.round += 1
        copy = staging.HostCopy(values)
        self._pending.add(copy.future)
        self._worker.submit(lambda: self._reduce(copy, params, number))
        return copy.future

    def _reduce(self, copy: staging.HostCopy, params: list[torch.Tensor], number: int) -> None:
        if not self._compared:
            self._transport.agree_on_state("THC", round=number)
            self._compared = True
        part = gradwire.thc.Part(round=number & 0xFFFFFFFF, rank=self.rank)
        feedback = self.codec.options.error_feedback
        memory = torch.cat([self._error_of(param) for param in params]) if feedback else None
        error = memory.numpy() if memory is not None else None
        copy.wait()
        array = copy.host.numpy()
        patterns = self.codec.norms(array, part, error=error)
        self._all_reduce(torch.from_numpy(patterns.view(np.int32)), dist.ReduceOp.MAX)
        lanes = self.codec.encode_lanes(array, patterns, part, error=error)
        words = torch.from_numpy(lanes.view(np.int32) if lanes.dtype == np.uint32 else lanes)
        self._all_reduce(words, dist.ReduceOp.SUM)
        self.codec.decode_reduced(lanes, patterns, array.size, part, out=array)
        at = 0
        for param in params if memory is not None else []:
            self._error_of(param).copy_(memory[at : at + param.numel()])
            at += param.numel()
        copy.finish()
        self._pending.remove(copy.future)

    def _all_reduce(self, words: torch.Tensor, op: Any) -> None:
        self.sent_size += words.numel() * words.element_size()
        self._transport.all_reduce(words, op)

    def _error_of(self, param: torch.Tensor) -> torch.Tensor:
        """In memory order. A parameter that the optimizer lacks gets a number of its own."""
        number = self._numbers.setdefault(id(param), len(self._numbers))
        if number not in self._errors:
            self._errors[number] = torch.zeros(param.numel())
        return self._errors[number]

    def fail(self, error: BaseException, *, alone: bool | None = None) -> None:
        """Everything on its way, and all later calls, raise; on the other ranks too. alone: these may wait for this
        one, and their connections break; None: unless the error is one that all raise at the same place."""
        waiting = self._pending.take(error)
        if waiting is None:
            return
        if not isinstance(error, DifferentError) if alone is None else alone:
            self._transport.abort()
        if self.on_fail is not None:
            self.on_fail(error)
        for future in waiting:  # last: who waits for one finds the error recorded everywhere
            fail_future(future, error)

    def state_dict(self) -> dict[str, Any]:
        """Of this rank alone: error memories differ between ranks."""
        return {"version": 1, "round": self.round, "errors": {k: v.clone() for k, v in self._errors.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The one of this rank, before the first backward pass, on all ranks: else all raise in that pass. ValueError
        for a state of another version."""
        if state.get("version") != 1:
            raise ValueError(f"a state of version {state.get('version')}; this package reads 1")
        self.round = state["round"]
        self._compared = False
        self._errors = {number: error.clone() for number, error in state["errors"].items()}

    def close(self) -> None:
        """Ends the thread."""
        self._worker.close(10.0)
