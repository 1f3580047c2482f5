"""THC as a DDP hook whose sums are made by a parameter server in a process of its own, `gradwire thc-serve`.

    ddp.register_comm_hook(*gradwire.torch.thc_hook(optimizer, server="127.0.0.1:5610"))

Packed indices go up and sums come down, once each; ranks exchange no gradients among themselves. What a sum lacks of
this rank, which was late, stays in the error memories. docs/cli-thc.md says what the server does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from ctypes import byref
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import gradwire.thc
from gradwire import _constants
from gradwire import _structs as s
from gradwire._library import check, lib
from gradwire.errors import Error
from gradwire.workspace import scratch

from . import staging
from ._thc_client import Client
from .buckets import Bucket
from .peers import LOOK_S, PeerError
from .states import Finite, check_nonfinite
from .stats import size_of
from .thc_memory import NONFINITE, ThcMemory
from .transport import Start
from .workers import Worker

_PIECE_LEN = 1 << 22  # values of a round at most: what the server keeps memory for
_SILENCE_S = 30.0  # without a sign of life of the server, or the timeout if that is less
_SLICE_MS = 200  # between two looks at the other ranks
_RESULTS_SIZE = 1 << 12  # bytes received in LOOK_S: less are signs of life, not results
_GONE_S = 8.0  # a result that a queue has dropped three times has come by then
_TINY = np.finfo(np.float32).tiny


def runs(chosen: np.ndarray) -> Iterator[tuple[int, int]]:
    """The ranges of indices where a bool array is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False]))))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist())


class ThcServerState(ThcMemory):
    """What the hook keeps. optimizer: numbers the parameters for state_dict(), nothing else is read.

    server: HOST:PORT of `gradwire thc-serve`, by UDP; or udp://HOST:PORT, tcp://HOST:PORT. timeout: also how long to
    wait for the server's answer, and for ranks that are late; the server is given up after 30 s without a sign of
    life. bits, error_feedback, nonfinite, small_len, group, transport, seed: as in ThcState. Without error_feedback
    what a sum lacks of a late rank is lost. report, error, check() and fail(error) are as of DdpState; of the report's
    numbers there are sizes.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        server: str,
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
            self._number(optimizer)
            rank, size = dist.get_rank(start.group), dist.get_world_size(start.group)
            self._options = {"seed": seed, "error_feedback": error_feedback, "nonfinite": "propagate"}
            codec = gradwire.thc.Codec(gradwire.thc.options(bits, size, **self._options))
            self._len_max = max(1, min(_PIECE_LEN, sum(self._sizes.values())))
            limit_ms = int(min(max(start.timeout.total_seconds(), 1e-3) * 1e3, 2**31))
            self._timeouts = {"timeout_ms": limit_ms, "silence_ms": min(limit_ms, int(_SILENCE_S * 1e3))}
            Client(server, codec, rank, self._len_max, **self._timeouts).close()  # whether the address is one
            agreed = {"bits": bits, "error_feedback": error_feedback, "nonfinite": nonfinite, "by_server": True}
            start.options = {**agreed, "small_len": small_len, "seed": seed, "len_max": self._len_max}
        self._begin(start)
        self.server, self._bits = server, bits
        self._lock = threading.Lock()  # of the client, where it is replaced
        self._earlier = (0, 0)  # bytes sent and received by earlier clients
        self._take_job()
        self._is_used = False  # the server knows rounds of the job
        self.small_len, self.nonfinite = small_len, nonfinite
        self.round = 0
        self.left_out = 0  # values that a sum lacks of this rank, so far
        self._finite: list[Finite] = []  # of this step's plain buckets
        self._worker = Worker("gradwire-thc-server", self._failed)

    def sizes(self) -> tuple[int, int]:
        """Bytes that this rank has sent to the server and received from it, in packets of any kind."""
        with self._lock:
            counts = self._client.counts()
            return self._earlier[0] + counts.sent_size, self._earlier[1] + counts.received_size

    def _take_job(self) -> None:
        """A job of the server under a number that no other one has, nor an earlier run of this one. On all ranks."""
        drawn = int.from_bytes(os.urandom(4), "little") if self.rank == 0 else 0
        (job,) = self._transport.largest([drawn], "the number of the server's job")
        self.codec = gradwire.thc.Codec(gradwire.thc.options(self._bits, self.size, job=job, **self._options))
        self._client = Client(self.server, self.codec, self.rank, self._len_max, **self._timeouts)

    def _begin_job(self, number: int) -> None:
        """Before each bucket, of this round. The server has results of the rounds of a job, so those after
        load_state_dict(), which may be the same ones, are of another job. Random numbers do not depend on it."""
        if self._compared:
            return
        self._compare_states("THC", round=number, seed=self._options["seed"])
        # On all ranks alike: they have exchanged the same buckets, and compared the seeds.
        if self._is_used or self.codec.options.seed != self._options["seed"]:
            with self._lock:
                counts = self._client.counts()
                self._earlier = (self._earlier[0] + counts.sent_size, self._earlier[1] + counts.received_size)
                self._client.close()
            self._take_job()  # all have left when the ranks agree: the server need not hold both
        self._is_used = True

    def _workers(self) -> list[Worker]:
        return [self._worker]

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        with self.gate:
            taken = self._taken(bucket)
            if staging.takes(taken.values, (torch.float32,)) and taken.values.numel() >= max(self.small_len, 1):
                return self.start(taken)
            self._finite.append(Finite())
            future = self._plain.start(taken, self._finite[-1].around)
            if taken.is_last:
                return self._after_step(taken, future)
            return future

    def _after_step(self, taken: Bucket, future: torch.futures.Future) -> torch.futures.Future:
        """That of the last bucket, which travels plain, as one that is done at the end of the step."""
        ended: torch.futures.Future = torch.futures.Future()
        self.gate.add(ended)
        finite, self._finite = self._finite, []

        def job() -> None:
            if not self.gate.shut:
                self._wait_for_ranks(finite, f"step {taken.step}, its end")
                with self.gate.passing(ended):
                    self._undo.end_step()
                    ended.set_result(None)

        self._worker.submit(job)
        return staging.gated(ended, future, taken.values)

    def _wait_for_ranks(self, finite: list[Finite], where: str) -> None:
        """Until no rank can fail in this step any more; finite: of its buckets that travelled plain. In a step without
        those ranks do not wait for each other: one may be late, and the sums do without it."""
        self._undo.spoilt |= not all(one.wait() for one in finite)
        if finite:
            self._transport.largest([0], where, direct=False)

    def start(self, bucket: Bucket) -> torch.futures.Future:
        """The mean of a bucket of fp32 values, in place. Where it is the last one error memories count, unless a
        gradient since the last such bucket was not finite."""
        number = self.round
        self.round += -(-bucket.values.numel() // self._len_max)
        self.full_size += size_of(bucket.values)
        copy = staging.HostCopy(bucket.values)
        self.gate.add(copy.future)
        finite = None
        if bucket.is_last:
            finite, self._finite = self._finite, []
        self._worker.submit(lambda: self._exchange(copy, bucket.params, number, finite))
        return copy.future

    # ---- the thread ----

    def _exchange(
        self, copy: staging.HostCopy, params: list[torch.Tensor], number: int, finite: list[Finite] | None
    ) -> None:
        """finite: for the last bucket of a step, of those that travelled plain."""
        if self.gate.shut:
            return
        self._begin_job(number)
        feedback = self.codec.options.error_feedback
        memory = torch.cat([self._error_of(param) for param in params]) if feedback else None
        error = memory.numpy() if memory is not None else None
        copy.wait()
        values = copy.host.numpy()
        results, bad = [], 0
        for first in range(0, values.size, self._len_max):
            here = slice(first, min(first + self._len_max, values.size))
            piece = _Piece(self, values[here], None if error is None else error[here], number + len(results))
            piece.norms()
            if (piece.own >= NONFINITE).any() and not bad:
                bad = self._first_bad(piece.own, values[here], params, first)
            results.append(piece)
            if (piece.maxima >= NONFINITE).any():
                self._undo.spoilt = True
                if self.nonfinite == "error":
                    # All ranks know the same patterns, so all are here.
                    self._raise_nonfinite(*self._transport.largest([bad], f"round {number}"))
            elif bad and self.nonfinite == "error":
                self._raise_late(bad)
            piece.sums()
        with self.gate.passing():
            for piece in results:
                piece.decode()
            if memory is not None:
                for param, kept in zip(params, memory.split([param.numel() for param in params])):
                    self._undo.keep(self._errors, self._number_of(param), self._error_of(param))
                    self._errors[self._number_of(param)] = kept
        if finite is not None:
            self._wait_for_ranks(finite, f"round {number}, the end of its step")
        with self.gate.passing(copy.future):
            if finite is not None:
                self._undo.end_step()
            copy.finish()

    def _raise_late(self, word: int) -> None:
        """The norms that mark this rank's values came too late for the maxima. The others do not know of them, and do
        not wait for this rank: they learn of the error as of any that is of one rank alone."""
        try:
            self._raise_nonfinite(word)
        except Error as error:
            error.on_all_ranks = False
            raise

    def run(self, where: str) -> None:
        """The client's phase, unless another rank gives up meanwhile, or is gone. Nothing is expected from the ranks
        themselves, so a connection that is closed counts only where results do not come for _GONE_S: a rank that has
        ended with the last result of all keeps no other from getting that, be it sent again several times."""
        with self._transport.waiting(where):
            begin, received, closed_since = time.monotonic(), self._client.counts().received_size, None
            while not self._client.run(_SLICE_MS):
                self._transport.look()
                if self.gate.shut:
                    raise RuntimeError(f"failed while the parameter server at {self.server} was waited for")
                now, size = time.monotonic(), self._client.counts().received_size
                if now - begin <= LOOK_S:
                    continue
                if size - received >= _RESULTS_SIZE:
                    closed_since = None
                else:
                    closed_since = self._closed_since(closed_since, now, where)
                begin, received = now, size

    def _closed_since(self, before: float | None, now: float, where: str) -> float | None:
        """When a closed connection was seen first; None: there is none. Raises the error of one that was long ago."""
        try:
            self._transport.look_for_closed(where)
        except PeerError:
            if before is not None and now - before > _GONE_S:
                raise
            return now if before is None else before
        return None

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Of this rank alone: error memories differ between ranks."""
        seed = self._options["seed"]
        return {"version": 1, "codec": "thc", "round": self.round, "seed": seed, "errors": self._saved_errors()}

    def check_state(self, state: dict[str, Any]) -> None:
        """ValueError for a state that cannot be loaded."""
        self._check_errors(state)
        if state.get("sum_errors"):
            raise ValueError(
                'gradwire: the state has error memories of sums (sums="requantized"): a parameter server '
                "has none, and what they hold would be lost"
            )

    def _load(self, state: dict[str, Any]) -> None:
        self.round = state["round"]
        self._options["seed"] = state.get("seed", self._options["seed"])
        self._load_errors(state)

    def close(self) -> None:
        """Ends the thread, and leaves the server. The hook raises afterwards."""
        super().close()
        if not self._worker.is_alive():
            self._client.close()


class _Piece:
    """A round: values of a bucket, and their error memory, which the round replaces."""

    def __init__(self, state: ThcServerState, values: np.ndarray, error: np.ndarray | None, number: int) -> None:
        self.state, self.codec, self.client = state, state.codec, state._client
        self.values, self.error = values, error
        self.round, self.where = number & 0xFFFFFFFF, f"round {number}"
        self.blocks, self.block_len = self.codec.block_count(values.size), 1 << self.codec.options.block_log2
        self.own = self.maxima = np.empty(0, np.uint32)
        self.lanes = self.members = np.empty(0, np.uint8)
        self.late: np.ndarray = np.empty(0, np.bool_)  # blocks whose maxima do not count this rank's norms

    def norms(self) -> None:
        """Phase one."""
        part = gradwire.thc.Part(round=self.round, rank=self.state.rank)
        self.own = self.codec.norms(self.values, part, error=self.error)
        self.client.norms(self.round, self.values.size, self.own)
        self.state.run(self.where)
        self.maxima, self.late = self.client.maxima(self.blocks, self.own.size)

    def sums(self) -> None:
        """Phase two. Error memories get what the sums lack of this rank."""
        indices = np.zeros(self._indices_size(0, self.blocks), np.uint8)
        for first, end in runs(~self.late):
            here = slice(self._indices_size(0, first), self._indices_size(0, end))
            indices[here] = self._encode(first, end)
        for first, end in runs(self.late):
            self._keep(first, end)
        self.client.indices(indices)
        self.state.run(self.where)
        size = lib.gw_thc_lanes_size(self.codec.handle, self.values.size, 0, self.blocks)
        self.lanes, self.members, left_out = self.client.sums(self.blocks, size)
        for first, end in runs(left_out & ~self.late):
            self._restore(first, end, indices[self._indices_size(0, first) : self._indices_size(0, end)])
        for first, end in runs(left_out):
            self.state.left_out += self._elements(first, end).stop - self._elements(first, end).start

    def decode(self) -> None:
        """The mean over the values. Without error memories it is that of the ranks that are in a block's sum. With them
        it is of all ranks: what was left out is still to come, and would count more than once otherwise."""
        total = s.gw_thc_sum(
            data=self.lanes.ctypes.data,
            size=self.lanes.size,
            members=self.members.ctypes.data,
            patterns=self.maxima.ctypes.data,
        )
        target = s.gw_thc_target(values=self.values.ctypes.data, capacity=self.values.size)
        where = self._range(0, self.blocks)
        status = lib.gw_thc_decode(self.codec.handle, where, total, _constants.GW_THC_MEAN, byref(target), self._room())
        check(status, block=target.bad_block)
        if self.error is not None:
            for block in np.flatnonzero(self.members < self.state.size):
                self.values[self._elements(block, block + 1)] *= np.float32(self.members[block] / self.state.size)

    def _encode(self, first: int, end: int) -> np.ndarray:
        here = self._elements(first, end)
        error = None if self.error is None else self.error[here]
        part = gradwire.thc.Part(
            block_first=first, block_count=end - first, len=self.values.size, round=self.round, rank=self.state.rank
        )
        return self.codec.encode(self.values[here], self.maxima[self._words(first, end)], part, error=error)

    def _keep(self, first: int, end: int) -> None:
        """This rank's norms came too late, so it has no part in these blocks: all of the values stay in the error
        memory, but where they are not finite."""
        if self.error is None:
            return
        here = self._elements(first, end)
        with np.errstate(all="ignore"):
            kept = self.values[here] + self.error[here]
        kept[np.abs(kept) < _TINY] = 0
        bad = np.repeat(self.own[self._words(first, end)] >= NONFINITE, self.block_len)[: kept.size]
        self.error[here] = np.where(bad, self.error[here], kept)

    def _restore(self, first: int, end: int, indices: np.ndarray) -> None:
        """The indices of these blocks came too late."""
        if self.error is None:
            return
        maxima, error = self.maxima[self._words(first, end)], self.error[self._elements(first, end)]
        packed = s.gw_thc_indices(data=indices.ctypes.data, size=indices.size, patterns=maxima.ctypes.data)
        where = self._range(first, end)
        check(lib.gw_thc_error_restore(self.codec.handle, where, packed, error.ctypes.data, self._room()))

    def _range(self, first: int, end: int) -> s.gw_thc_range:
        return s.gw_thc_range(
            len=self.values.size, block_first=first, block_count=end - first, round=self.round, rank=self.state.rank
        )

    def _elements(self, first: int, end: int) -> slice:
        return slice(first * self.block_len, min(end * self.block_len, self.values.size))

    def _words(self, first: int, end: int) -> slice:
        per_block = self.codec.patterns_per_block
        return slice(first * per_block, end * per_block)

    def _indices_size(self, first: int, end: int) -> int:
        return lib.gw_thc_indices_size(self.codec.handle, self.values.size, first, end - first)

    def _room(self) -> Any:
        return scratch(lib.gw_thc_workspace_size(self.codec.handle))
