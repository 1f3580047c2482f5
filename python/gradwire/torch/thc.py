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
from gradwire import _constants
from gradwire._library import lib

from . import given, staging
from .buckets import Bucket
from .reducer import CodecHook, agreed_error, hook
from .states import Finite, check_nonfinite, check_sizes, check_version
from .stats import size_of
from .thc_server import ThcServerState
from .transport import Start
from .workers import Worker

_NONFINITE = 0x7F800000  # patterns from here on, up to 2^31, mark a block (GW_THC_NORM_NONFINITE)


def thc_hook(
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer], *, server: str | None = None, **options: Any
) -> tuple[Any, Callable[[Any, dist.GradBucket], torch.futures.Future]]:
    """State and hook for DistributedDataParallel.register_comm_hook(). server: HOST:PORT of `gradwire thc-serve`; None:
    the ranks add by themselves. Options: those of ThcState, with a server those of ThcServerState."""
    if server is not None:
        return ThcServerState(optimizer, server, **options), hook
    return ThcState(optimizer, **options), hook


def codec_of(bits: int, ranks: int, **changes: Any) -> gradwire.thc.Codec:
    """The codec of a job of so many ranks, by gradwire.thc.options()."""
    options = gradwire.thc.options(bits, ranks, **changes)
    if options.lane_bits == 16:  # Gloo does not add 16-bit integers
        options = gradwire.thc.options(bits, ranks, lane_bits=32, **changes)
    return gradwire.thc.Codec(options)


class ThcState(CodecHook):
    """What the hook keeps. optimizer: numbers the parameters for state_dict(), nothing else is read.

    bits: 1..4, of an index. error_feedback: keep what rounding lost. nonfinite: what NaN or infinity in a gradient
    does: "propagate": its block is NaN on all ranks, and error memories stay as they were before the step, as a
    GradScaler expects; "error": all ranks raise, with rank and parameter. small_len, group, transport, timeout, seed:
    as in DdpState. Lanes are the narrowest that hold the sum and that Gloo adds: 8 or 32 bits. report, error, check()
    and fail(error) are as of DdpState; of the report's numbers there are sizes.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        bits: int = 4,
        error_feedback: bool = True,
        nonfinite: str = "propagate",
        small_len: int = 1 << 14,
        group: Any = None,
        transport: Any = None,
        timeout: timedelta | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        with Start("THC", group, transport, timeout) as start:
            check_nonfinite(nonfinite)
            made = given.optimizers_of(optimizer)
            params = [param for one in made for part in one.param_groups for param in part["params"]]
            self._numbers = {id(param): number for number, param in enumerate(params)}
            self._sizes = {number: param.numel() for number, param in enumerate(params)}
            size = dist.get_world_size(start.group)
            self.codec = codec_of(bits, size, seed=seed, error_feedback=error_feedback, nonfinite="propagate")
            agreed = {"bits": bits, "error_feedback": error_feedback, "nonfinite": nonfinite}
            start.options = {**agreed, "small_len": small_len, "seed": seed}
        self._begin(start)
        self.small_len, self.nonfinite = small_len, nonfinite
        self.round = 0
        self.sent_size = 0  # bytes of lanes and patterns that were handed to all-reduce
        self._errors: dict[int, torch.Tensor] = {}  # by number of the parameter, in memory order
        self._finite: list[Finite] = []  # of this step's plain buckets
        self._worker = Worker("gradwire-thc", self._failed)

    def sizes(self) -> tuple[int, int]:
        """Bytes of compressed buckets that this rank has sent and received, an all-reduce as a ring of all ranks."""
        size = 2 * (self.size - 1) * self.sent_size // self.size
        return size, size

    def _workers(self) -> list[Worker]:
        return [self._worker]

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        with self.gate:
            taken = self._taken(bucket)
            if staging.takes(taken.values, (torch.float32,)) and taken.values.numel() >= self.small_len:
                return self.start(taken)
            self._finite.append(Finite())
            future = self._plain.start(taken, self._finite[-1].around)
            if taken.is_last:
                finite, self._finite = self._finite, []
                self._worker.submit(lambda: self._end_step(finite))
            return future

    def _end_step(self, finite: list[Finite]) -> None:
        """After the step's buckets; finite: of those that travelled plain."""
        self._undo.spoilt |= not all(one.wait() for one in finite)
        self._undo.end_step()

    def start(self, bucket: Bucket) -> torch.futures.Future:
        """The mean of a bucket of fp32 values, in place. Where it is the last one error memories count, unless a
        gradient since the last such bucket was not finite."""
        number = self.round
        self.round += 1
        self.full_size += size_of(bucket.values)
        copy = staging.HostCopy(bucket.values)
        self.gate.add(copy.future)
        finite = None
        if bucket.is_last:
            finite, self._finite = self._finite, []
        self._worker.submit(lambda: self._exchange(copy, bucket.params, number, finite))
        return copy.future

    def _exchange(
        self, copy: staging.HostCopy, params: list[torch.Tensor], number: int, finite: list[Finite] | None
    ) -> None:
        """finite: for the last bucket of a step, of those that travelled plain."""
        self._compare_states("THC", round=number)
        part = gradwire.thc.Part(round=number & 0xFFFFFFFF, rank=self.rank)
        feedback = self.codec.options.error_feedback
        memory = torch.cat([self._error_of(param) for param in params]) if feedback else None
        error = memory.numpy() if memory is not None else None
        copy.wait()
        array = copy.host.numpy()
        patterns = self.codec.norms(array, part, error=error)
        bad = self._first_bad(patterns, array, params)
        self._all_reduce(torch.from_numpy(patterns.view(np.int32)), dist.ReduceOp.MAX, number)
        if (patterns >= _NONFINITE).any():
            self._undo.spoilt = True
            if self.nonfinite == "error":
                self._raise_nonfinite(bad, number)
        lanes = self.codec.encode_lanes(array, patterns, part, error=error)
        words = torch.from_numpy(lanes.view(np.int32) if lanes.dtype == np.uint32 else lanes)
        self._all_reduce(words, dist.ReduceOp.SUM, number)
        if memory is not None:
            for param, kept in zip(params, memory.split([param.numel() for param in params])):
                self._undo.keep(self._errors, self._number_of(param), self._error_of(param))
                self._errors[self._number_of(param)] = kept
        if finite is not None:
            self._end_step(finite)
        with self.gate.passing(copy.future):
            self.codec.decode_reduced(lanes, patterns, array.size, part, out=array)
            copy.finish()

    def _all_reduce(self, words: torch.Tensor, op: Any, number: int) -> None:
        self.sent_size += words.numel() * words.element_size()
        self._transport.all_reduce(words, op, f"round {number}")

    def _first_bad(self, patterns: np.ndarray, values: np.ndarray, params: list[torch.Tensor]) -> int:
        """The number of this rank's first parameter with a value that is not finite, plus one; 0: none."""
        marked = np.flatnonzero(patterns >= _NONFINITE)
        if not marked.size:
            return 0
        size = 1 << self.codec.options.block_log2
        first = int(marked[0]) // self.codec.patterns_per_block * size
        odd = np.flatnonzero(~np.isfinite(values[first : first + size]))
        left = first + int(odd[0] if odd.size else 0)  # else the norm, or the error memory, is too large
        for param in params:
            left -= param.numel()
            if left < 0:
                return self._number_of(param) + 1
        return 0

    def _raise_nonfinite(self, bad: int, number: int) -> None:
        """On all ranks, which know the same patterns: that of the first rank that has one."""
        (word,) = self._transport.largest([(self.size - self.rank) << 32 | bad if bad else 0], f"round {number}")
        rank, param = self.size - (word >> 32), (word & 0xFFFFFFFF) - 1
        text = lib.gw_status_message(_constants.GW_ERR_NONFINITE).decode()
        raise agreed_error(_constants.GW_ERR_NONFINITE, f"rank {rank}, parameter {param}: {text}")

    def _number_of(self, param: torch.Tensor) -> int:
        """A parameter that the optimizer lacks gets a number of its own."""
        return self._numbers.setdefault(id(param), len(self._numbers))

    def _error_of(self, param: torch.Tensor) -> torch.Tensor:
        number = self._number_of(param)
        if number not in self._errors:
            self._errors[number] = torch.zeros(param.numel())
        check_sizes({number: param.numel()}, {number: self._errors[number]})  # one that the optimizer lacks, loaded
        return self._errors[number]

    def state_dict(self) -> dict[str, Any]:
        """Of this rank alone: error memories differ between ranks."""
        errors = {number: error.clone() for number, error in self._errors.items()}
        return {"version": 1, "codec": "thc", "round": self.round, "errors": errors}

    def check_state(self, state: dict[str, Any]) -> None:
        """ValueError for a state that cannot be loaded."""
        check_version(state, "thc", ("round", "errors"))
        known = {number: error for number, error in state["errors"].items() if number < len(self._sizes)}
        check_sizes(self._sizes, known)

    def _load(self, state: dict[str, Any]) -> None:
        self.round = state["round"]
        self._errors = {number: error.clone() for number, error in state["errors"].items()}
