"""THC as a DDP hook: gradients as indices of a few bits, which the ranks add up as integers, each those of a shard.

    ddp.register_comm_hook(*gradwire.torch.thc_hook(optimizer, bits=4))

Every rank is a worker and a part of the parameter server (sums.py). Norms travel first: one word per block of 1024
values, of which all ranks get the maxima. Then indices go to the owners of shards, and their sums to all ranks. No
optimizer state is needed. The error memory of each parameter is added to its next gradient.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import gradwire.thc

from . import staging
from .buckets import Bucket
from .engine import ExchangeError
from .failure import Gate
from .reducer import hook
from .states import Finite, Undo, as_memory, check_memories, check_nonfinite, is_finite, lost
from .stats import size_of
from .sums import NORMS, SUMS, WAYS, SumEngine, feedback_of
from .thc_memory import NONFINITE, ThcMemory
from .thc_server import ThcServerState
from .transport import Start
from .workers import Worker

log = logging.getLogger("gradwire")


def thc_hook(
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer], *, server: str | None = None, **options: Any
) -> tuple[Any, Callable[[Any, dist.GradBucket], torch.futures.Future]]:
    """State and hook for DistributedDataParallel.register_comm_hook(). server: HOST:PORT of `gradwire thc-serve`; None:
    the ranks add by themselves. Options: those of ThcState, with a server those of ThcServerState."""
    if server is not None:
        return ThcServerState(optimizer, server, **options), hook
    return ThcState(optimizer, **options), hook


@dataclass
class _Operation:
    """A bucket on its way. memory, sum_memory: its new error memories. waits: its result is handed out at the end of
    the step."""

    copy: staging.HostCopy
    params: list[torch.Tensor]
    key: tuple[int, ...]  # of the bucket: numbers of the parameters
    memory: torch.Tensor | None
    sum_memory: torch.Tensor | None
    waits: bool
    word: int = 0  # outcome


class ThcState(ThcMemory):
    """What the hook keeps. optimizer: numbers the parameters for state_dict(), nothing else is read.

    bits: 1..4, of an index. error_feedback: keep what rounding lost. nonfinite: what NaN or infinity in a gradient
    does: "propagate": its block is NaN on all ranks, and error memories stay as they were before the step, as a
    GradScaler expects; "error": all ranks raise, with rank and parameter. sums: what the owner of a shard sends to all:
    "lanes": the sums as they are, in the narrowest lanes that hold them (up to 17 ranks with 4 bits: 8 bits, then 16);
    "requantized": rounded to indices again, which is half of that or less, and adds an error; with error feedback the
    owner keeps what that lost, too. threads: of the pool that encodes and sums. small_len, group, transport, timeout,
    seed: as in DdpState. report, error, check() and fail(error) are as of DdpState; of the report's numbers there are
    sizes.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        bits: int = 4,
        error_feedback: bool = True,
        nonfinite: str = "propagate",
        sums: str = "lanes",
        threads: int = 2,
        small_len: int = 1 << 14,
        group: Any = None,
        transport: Any = None,
        timeout: timedelta | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        with Start("THC", group, transport, timeout) as start:
            check_nonfinite(nonfinite)
            if sums not in WAYS:
                raise ValueError(f"gradwire: sums is one of: {', '.join(WAYS)}; not {sums!r}")
            self._number(optimizer)
            size = dist.get_world_size(start.group)
            chosen = gradwire.thc.options(bits, size, seed=seed, error_feedback=error_feedback, nonfinite="propagate")
            self.codec = gradwire.thc.Codec(chosen)
            agreed = {"bits": bits, "error_feedback": error_feedback, "nonfinite": nonfinite, "sums": sums}
            start.options = {**agreed, "small_len": small_len, "seed": seed}
        self._begin(start)
        self.small_len, self.nonfinite = small_len, nonfinite
        self.round = 0
        self._sum_errors: dict[tuple[int, ...], torch.Tensor] = {}  # of owners: of this rank's shard, by _Operation.key
        self._finite: list[Finite] = []  # of this step's plain buckets
        self._begun = False  # a bucket of this step travels by THC
        self._word = 0  # the worst outcome on this rank in the state's life: one that is not 0 ends it
        self._bad = 0  # with nonfinite="error": where this rank's first such value is
        self._has_sum_errors = bool(feedback_of(self.codec, sums))
        self._loaded = False  # no step since a load
        self._engine = SumEngine(start.transport, self.codec, sums, self.gate, threads, self._failed)
        weakref.finalize(self, self._engine.abandon).atexit = False

    @property
    def sent_size(self) -> int:
        """Bytes of compressed buckets that this rank has sent."""
        return self.sizes()[0]

    def sizes(self) -> tuple[int, int]:
        """Bytes of compressed buckets that this rank has sent and received."""
        return self._engine.sizes()

    @property
    def has_memory(self) -> bool:
        return self.codec.options.error_feedback

    def join(self, gate: Gate, whole: Undo | None) -> None:
        super().join(gate, whole)
        self._engine.join(gate)

    def _workers(self) -> list[Worker]:
        return [self._engine.control]

    # ---- the hook ----

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        with self.gate:
            taken = self._taken(bucket)
            if self._fits(taken.values):
                if self.size > 1:
                    return self._start(taken, taken.is_last)
                self._check_alone(taken)
            self._finite.append(Finite())
            future = self._plain.start(taken, self._finite[-1].around)
            if taken.is_last:
                return self._after_step(taken, future)
            return future

    def _fits(self, values: torch.Tensor) -> bool:
        return staging.takes(values, (torch.float32,)) and values.numel() >= max(self.small_len, 1)

    def _check_alone(self, bucket: Bucket) -> None:
        """One rank alone has nothing to send: its gradients stay as they are, if they may be what they are."""
        if self.nonfinite == "error" and not is_finite(bucket.values):
            for param, gradient in zip(bucket.params, bucket.gradients):
                if not is_finite(gradient):
                    self._raise_nonfinite(self.size << 32 | (self._number_of(param) + 1))

    def _after_step(self, taken: Bucket, future: torch.futures.Future) -> torch.futures.Future:
        """That of the last bucket, which travels plain, as one that is done at the end of the step."""
        ended: torch.futures.Future = torch.futures.Future()
        self.gate.add(ended)
        finite, self._finite = self._finite, []
        where = f"step {taken.step}, its end"
        self._submit(lambda: self._end_step(finite, where, True, ended, lambda: ended.set_result(None)))
        return staging.gated(ended, future, taken.values)

    def start(self, bucket: Bucket) -> torch.futures.Future:
        """The mean of a bucket of fp32 values, in place. Where it is the last one error memories count, unless a
        gradient since the last such bucket was not finite."""
        return self._start(bucket, False)

    def _start(self, bucket: Bucket, forget: bool) -> torch.futures.Future:
        """forget: with this bucket a backward pass ends, and buckets that it did not have do not come again."""
        number = self.round
        self.round += 1
        self.full_size += size_of(bucket.values)
        copy = staging.HostCopy(bucket.values)
        self.gate.add(copy.future)
        finite, where = [], f"round {number}"
        if bucket.is_last:
            finite, self._finite = self._finite, []

        def job() -> None:
            operation = self._exchange(copy, bucket.params, number, where, bucket.is_last)
            if operation is not None and bucket.is_last:
                self._end_step(finite, where, forget, copy.future, copy.finish, bucket.owners)

        self._submit(job)
        return copy.future

    def _submit(self, job: Callable[[], Any]) -> None:
        """Nothing is begun after a failure."""
        self._engine.control.submit(lambda: None if self.gate.shut else job())

    # ---- control thread ----

    def _exchange(
        self, copy: staging.HostCopy, params: list[torch.Tensor], number: int, where: str, is_last: bool
    ) -> _Operation | None:
        """Norms, then the start of the sums. None: something has failed."""
        self._compare_states("THC", round=number, seed=self.codec.options.seed)
        self._begun = True
        memory = None
        if self.codec.options.error_feedback:
            memory = torch.cat([self._error_of(param) for param in params])
        values, key = copy.host, tuple(map(self._number_of, params))
        bucket = self._engine.bucket(key, values.numel())
        sum_memory = self._sum_error_of(key, bucket.shard_len.value) if self._has_sum_errors else None
        copy.wait()
        run = bucket.run_of(values, memory, sum_memory, number)
        bucket.begin(NORMS, run, number, where)
        bucket.phases[NORMS].done.wait()
        if self.gate.shut:
            return None
        run.norms_word = bucket.phases[NORMS].word
        operation = _Operation(copy, params, key, memory, sum_memory, is_last, run.norms_word)
        if not operation.word and (bucket.maxima >= NONFINITE).any():
            self._undo.spoilt = True
            if self.nonfinite == "error":
                operation.waits = True  # for the error
                self._bad = self._bad or self._bad_of(values.numpy(), memory, params, number)
        sums = bucket.phases[SUMS]
        sums.on_done = lambda: self._summed(operation, sums.word)
        bucket.begin(SUMS, run, number, where)  # after a failure, too: others wait for this rank's messages
        return operation

    def _end_step(
        self,
        finite: list[Finite],
        where: str,
        forget: bool,
        future: torch.futures.Future,
        hand_out: Callable[[], None],
        owners: frozenset[Any] = frozenset(),
    ) -> None:
        """After the step's buckets; finite: of those that travelled plain. Hands out the last one, the result of
        `future`, or raises what has gone wrong on any rank."""
        if self._begun and not self._settle(where):
            return
        self._begun = False
        self._undo.spoilt |= not all(one.wait() for one in finite)
        if forget:
            self._forget_buckets()
        with self.gate.passing(future):  # with the memories: a failure undoes both or neither
            self._undo.end_step(owners)
            hand_out()

    def _forget_buckets(self) -> None:
        """Those that this backward pass did not have, with their memories: DDP cuts others now. In the first one after
        a load it may not have cut them yet as in the run that goes on."""
        unused = self._engine.forget_unused()
        if self._loaded:
            self._loaded = False
            return
        for key in unused | (self._sum_errors.keys() - self._engine.buckets.keys()):
            self._sum_errors.pop(key, None)

    def _settle(self, where: str) -> bool:
        """Waits for all sums, and compares their outcomes. False: something has failed."""
        if not self._engine.wait():
            return False
        word, bad = self._transport.largest([self._word, self._bad], where, direct=False)
        if bad:
            self._raise_nonfinite(bad)
        if word:
            raise ExchangeError(word)
        return True

    # ---- loop thread ----

    def _summed(self, operation: _Operation, word: int) -> None:
        operation.word = max(operation.word, word)
        self._word = max(self._word, operation.word)
        if operation.word:  # its future waits for the end of the step: the other ranks need this rank's messages
            return
        with self.gate.passing():
            self._keep_memories(operation)
        if not operation.waits:
            self._hand_out(operation)

    def _keep_memories(self, operation: _Operation) -> None:
        if operation.memory is not None:
            parts = operation.memory.split([param.numel() for param in operation.params])
            for param, kept in zip(operation.params, parts):
                number = self._number_of(param)
                self._undo.keep(self._errors, number, self._error_of(param))
                self._errors[number] = kept
        if operation.sum_memory is not None:
            shard_len = operation.sum_memory.numel()
            self._undo.keep(self._sum_errors, operation.key, self._sum_error_of(operation.key, shard_len))
            self._sum_errors[operation.key] = operation.sum_memory

    def _hand_out(self, operation: _Operation) -> None:
        with self.gate.passing(operation.copy.future):
            operation.copy.finish()

    # ---- gradients that are not finite ----

    def _bad_of(self, values: np.ndarray, memory: torch.Tensor | None, params: list[torch.Tensor], number: int) -> int:
        """_first_bad() of a bucket. Its norms again: those of the exchange are maxima by now."""
        part = gradwire.thc.Part(round=number & 0xFFFFFFFF, rank=self.rank)
        patterns = self.codec.norms(values, part, error=None if memory is None else memory.numpy())
        return self._first_bad(patterns, values, params)

    # ---- state ----

    def _sum_error_of(self, key: tuple[int, ...], shard_len: int) -> torch.Tensor:
        """A copy, for a bucket with these parameters. Zeros where it is new, or had other lengths in an earlier run."""
        error = self._sum_errors.get(key)
        if error is None or error.numel() != shard_len:
            return torch.zeros(shard_len, dtype=torch.float32, device="cpu")
        return error.clone()

    def state_dict(self) -> dict[str, Any]:
        """Of this rank alone: error memories differ between ranks."""
        sum_errors = {key: error.clone() for key, error in self._sum_errors.items()}
        return {
            "version": 1,
            "codec": "thc",
            "round": self.round,
            "seed": self.codec.options.seed,
            "errors": self._saved_errors(),
            "sum_errors": sum_errors,
            "shards": [self.rank, self.size],  # whose the memories of sums are
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """ValueError for a state that cannot be loaded."""
        self._check_errors(state)
        sum_errors = state.get("sum_errors", {})
        check_memories(sum_errors)
        if not all(isinstance(key, tuple) for key in sum_errors):
            raise ValueError("an error memory of sums belongs to a tuple of numbers of parameters")
        if sum_errors and not self._has_sum_errors:
            who = f'sums="{self._engine.way}"' + ("" if self.has_memory else " without error_feedback")
            raise lost('error memories of sums (sums="requantized")', who, "'sum_errors'")
        if self._engine.buckets and state.get("seed", self.codec.options.seed) != self.codec.options.seed:
            raise ValueError("gradwire: a state with another seed can only be loaded before the first backward pass")

    def _load(self, state: dict[str, Any]) -> None:
        self.round = state["round"]
        if "seed" in state:
            self.codec = gradwire.thc.Codec(replace(self.codec.options, seed=state["seed"]))
            self._engine.codec = self.codec
        self._load_errors(state)
        self._sum_errors = {key: as_memory(error) for key, error in self._own_sum_errors(state).items()}
        self._loaded = True

    def _own_sum_errors(self, state: dict[str, Any]) -> dict[tuple[int, ...], torch.Tensor]:
        """Those of a state, if they are of the shards that this rank owns. With another rank or number of ranks they
        are of other values, of which there may be as many."""
        found, shards = state.get("sum_errors", {}), list(state.get("shards") or ())
        if not found or shards == [self.rank, self.size]:
            return found
        if self.rank == 0 or shards[1:] == [self.size]:  # another number of ranks is one for all
            whose = f"rank {shards[0]} of {shards[1]}" if len(shards) == 2 else "a rank that it does not name"
            log.warning(
                "gradwire: rank %d of %d begins without THC's error memories of sums: the state that was loaded has "
                "those of the shards of %s",
                self.rank,
                self.size,
                whose,
            )
        return {}

    # ---- end ----

    def _conclude(self, where: str) -> torch.futures.Future:
        done: torch.futures.Future = torch.futures.Future()
        self.gate.add(done)

        def settle() -> None:
            if self._settle(where):
                with self.gate.passing(done):
                    done.set_result(None)

        self._submit(settle)
        return done

    def close(self) -> None:
        """Ends the threads. The hook raises afterwards."""
        self._engine.close()
