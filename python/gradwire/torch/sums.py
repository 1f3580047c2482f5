"""THC's sums: each bucket is two exchanges, of norms and of indices. The native pool computes, torch.distributed moves
messages, threads here connect them.

    control        starts a bucket, waits for its norms, starts its sums: in the order of submission
    loop           takes the pool's events and sends what they announce
    four more      wait for receives, as those of an Engine do: of norms and of sums, to an owner and from it

Norms have receivers of their own: those of the next bucket must not wait behind the sums of this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from ctypes import byref, c_uint64, c_void_p
from functools import partial
from typing import Any

import numpy as np
import torch

import gradwire.thc
from gradwire import _constants as names
from gradwire import _structs as s
from gradwire._library import check

from . import _pool
from .failure import Gate
from .messages import Messages, usual_piece_len
from .transport import FROM_OWNER, OPERATIONS_MAX, TO_OWNER, Transport
from .workers import Worker, weakly

NORMS, SUMS = names.GW_THC_PHASE_NORMS, names.GW_THC_PHASE_SUMS
WAYS = {"lanes": names.GW_THC_SUMS_LANES, "requantized": names.GW_THC_SUMS_REQUANTIZED}
_NORMS_BLOCKS = 1 << 12  # of a message: 16 KiB


def feedback_of(codec: gradwire.thc.Codec, way: str) -> int:
    """1: owners have an error memory for what they round; with contributors that have one."""
    return int(codec.options.error_feedback and WAYS[way] == names.GW_THC_SUMS_REQUANTIZED)


class Phase:
    """One of the two exchanges of a bucket, with the memory of its messages."""

    def __init__(self, engine: SumEngine, bucket: SumBucket, phase: int, cookie: int) -> None:
        self.engine, self.phase, self.cookie = engine, phase, cookie
        config = s.gw_exchange_config(user=cookie)
        check(_pool.native.gw_thc_steps_exchange(bucket.steps, phase, config))
        self.exchange = _pool.Exchange(engine.pool, config)
        self.messages = Messages(engine.transport, self.exchange, hint="decrease bucket_cap_mb")
        self.done = threading.Event()  # none is under way, or it never will be done
        self.done.set()
        self.word = 0  # its outcome
        self.on_done: Callable[[], None] | None = None

    def start(self, run: s.gw_exchange_run, number: int, where: str) -> None:
        self.messages.finish_sends()
        self.messages.begin(number, where)
        self.word = 0
        self.done.clear()
        self.engine.started(self)
        with self.exchange as handle:
            check(_pool.native.gw_exchange_start(handle, run))
        self.messages.receive(self.engine.receivers(self.phase), self.engine.gate)

    def send(self, event: s.gw_runtime_event) -> None:
        """Sends the message that an event announces."""
        fault = self.engine.fault
        self.messages.send(event, None if fault is None else partial(fault, self.phase))


class SumBucket:
    """A bucket that comes again every step: the steps and exchanges of its sums."""

    def __init__(self, engine: SumEngine, length: int, codec: gradwire.thc.Codec, way: str) -> None:
        transport = engine.transport
        self.length = length
        self.steps = c_void_p()
        blocks = usual_piece_len(length // transport.size) >> codec.options.block_log2
        config = s.gw_thc_steps_config(
            options=codec.options.struct(),
            rank=transport.rank,
            rank_count=transport.size,
            len=length,
            is_mean=1,
            sums=WAYS[way],
            sum_feedback=feedback_of(codec, way),
            piece_blocks=blocks,
            norms_blocks=_NORMS_BLOCKS,
        )
        check(_pool.native.gw_thc_steps_open(config, byref(self.steps)))
        try:
            first, self.shard_len = c_uint64(), c_uint64()
            check(_pool.native.gw_thc_steps_shard(self.steps, byref(first), byref(self.shard_len)))
            self.maxima = np.empty(_pool.native.gw_thc_steps_maxima_len(self.steps), np.uint32)
            self.phases = [Phase(engine, self, phase, engine.new_cookie()) for phase in (NORMS, SUMS)]
        except BaseException:
            self.close()
            raise

    def run_of(
        self, values: torch.Tensor, error: torch.Tensor | None, sum_error: torch.Tensor | None, number: int
    ) -> s.gw_thc_steps_run:
        """The mean of these fp32 values, in place. error: their memory, sum_error: that of the shard of the sum that
        this rank owns; both become the next ones."""
        for one in (values, error, sum_error):  # the library gets addresses
            if one is None:
                continue
            if one.dtype != torch.float32 or one.device.type != "cpu" or not one.is_contiguous():
                raise TypeError(f"gradwire: values and memories are fp32 of the CPU, not {one.dtype}, {one.device}")
        return s.gw_thc_steps_run(
            values=values.data_ptr(),
            result=values.data_ptr(),
            error=None if error is None else error.data_ptr(),
            sum_error=None if sum_error is None else sum_error.data_ptr(),
            maxima=self.maxima.ctypes.data,
            round=number & 0xFFFFFFFF,
        )

    def begin(self, phase: int, run: s.gw_thc_steps_run, number: int, where: str) -> None:
        """number: of the operation, the same on all ranks. Each phase after the one before: RuntimeError for norms
        while sums of this bucket are under way, which read the same maxima."""
        if phase == NORMS and not self.phases[SUMS].done.is_set():
            raise RuntimeError(f"gradwire: {where}: the bucket's last sums have not ended")
        own = s.gw_exchange_run()
        check(_pool.native.gw_thc_steps_begin(self.steps, phase, run, own))
        self.phases[phase].start(own, 2 * number + phase, where)

    def close(self) -> None:
        """When no exchange of it runs."""
        for phase in getattr(self, "phases", ()):
            phase.exchange.stop()
        _pool.native.gw_thc_steps_close(self.steps)
        self.steps = c_void_p()


class SumEngine:
    """The sums of buckets, in the same order on all ranks. What begins them is a job of `control`.

    on_error: a method that is told what fails in a thread; its object is not kept.
    """

    def __init__(
        self, transport: Transport, codec: gradwire.thc.Codec, way: str, gate: Gate, threads: int, on_error: Any
    ) -> None:
        self.transport, self.codec, self.way = transport, codec, way
        self.pool = _pool.Pool(threads)
        self.fault: Callable[[int, int, int, torch.Tensor], None] | None = None  # tests damage messages with it
        self.buckets: dict[Hashable, SumBucket] = {}
        self._used: set[Hashable] = set()  # since forget_unused()
        self._phases: dict[int, Phase] = {}  # by cookie
        self._cookies = 0
        self._retired = [0, 0]  # bytes sent and received
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)  # no sum is active, or something has failed
        self._active = 0
        self._closing = False
        self._ended = threading.Event()
        self._on_error = weakly(on_error)
        self.control = Worker("gradwire-thc", on_error)
        self._receivers = [
            Worker(f"gradwire-{what}-{stage}", on_error)
            for what in ("norms", "sums")
            for stage in (TO_OWNER, FROM_OWNER)
        ]
        self.join(gate)
        self._loop = threading.Thread(target=self._run_loop, name="gradwire-thc-loop", daemon=True)
        self._loop.start()

    def join(self, gate: Gate) -> None:
        self.gate = gate
        gate.on_shut.append(self._stop)

    def new_cookie(self) -> int:
        self._cookies += 1
        return self._cookies

    def bucket(self, key: Hashable, length: int) -> SumBucket:
        """The bucket of this key. No two operations of one run at a time."""
        self._used.add(key)
        if len(self._used) > OPERATIONS_MAX // 2:
            raise ValueError(f"gradwire: more than {OPERATIONS_MAX // 2} buckets in a step; increase bucket_cap_mb")
        if key not in self.buckets:
            made = SumBucket(self, length, self.codec, self.way)
            with self._lock:
                if not self.gate.shut:  # else nobody would stop it
                    self.buckets[key] = made
                    self._phases.update({phase.cookie: phase for phase in made.phases})
            if key not in self.buckets:
                made.close()
                raise RuntimeError("gradwire: an earlier operation failed")
        return self.buckets[key]

    def forget_unused(self) -> set[Hashable]:
        """Buckets that have not come since the last call do not come again: their keys. When nothing runs."""
        unused = set(self.buckets) - self._used
        for key in unused:
            for phase in self.buckets[key].phases:
                phase.messages.finish_sends()
            with self._lock:
                made = self.buckets.pop(key)
                for phase in made.phases:
                    self._phases.pop(phase.cookie)
                    self._add_sizes(self._retired, phase)
            made.close()
        self._used = set()
        return unused

    @staticmethod
    def _add_sizes(sizes: list[int], phase: Phase) -> None:
        stats = phase.exchange.stats()
        sizes[0] += stats.sent_size
        sizes[1] += stats.received_size

    def sizes(self) -> tuple[int, int]:
        """Bytes of messages sent and received."""
        with self._lock:
            sizes = list(self._retired)
            for phase in self._phases.values():
                self._add_sizes(sizes, phase)
        return sizes[0], sizes[1]

    def started(self, phase: Phase) -> None:
        if phase.phase == SUMS:
            with self._lock:
                self._active += 1

    def wait(self) -> bool:
        """Until all sums have ended; False if something has failed."""
        with self._idle:
            self._idle.wait_for(lambda: not self._active or self.gate.shut)
        return not self.gate.shut

    def receivers(self, phase: int) -> list[Worker]:
        """The threads that wait for the messages of a phase, by stage."""
        return self._receivers[2 * phase : 2 * phase + 2]

    # ---- loop thread ----

    def _run_loop(self) -> None:
        while not self._closing:
            try:
                for event in self.pool.wait(1.0):
                    if event.kind != _pool.WAKE and not self.gate.shut:
                        self._handle(self._phases[event.user], event)
                if not self.gate.shut:
                    self.transport.look()
            except BaseException as error:
                self._on_error(error)

    def _handle(self, phase: Phase, event: s.gw_runtime_event) -> None:
        if event.kind != _pool.DONE:
            phase.send(event)
            return
        phase.word = event.word
        on_done, phase.on_done = phase.on_done, None
        phase.done.set()
        if on_done is not None:
            on_done()
        if phase.phase == SUMS:
            with self._idle:
                self._active -= 1
                self._idle.notify_all()

    # ---- end ----

    def _stop(self) -> None:
        """Something has failed: the pool does no more, and nobody waits for it."""
        with self._lock:
            phases = list(self._phases.values())
        for phase in phases:
            phase.exchange.stop()
            phase.done.set()
        with self._idle:
            self._idle.notify_all()

    def abandon(self) -> None:
        """Ends the threads after what was submitted, and does not wait: for a finalizer, on any thread."""
        self.gate.closed = True
        if self._ended.is_set():
            return  # as in Engine
        self.control.submit(self._end)
        self.control.stop()

    def close(self) -> None:
        """The same, and waits for it. After a failure threads may be left that wait for a peer; they end with the
        process, and so does the memory that they use."""
        self.abandon()
        self._ended.wait(0.3 if self.gate.shut else 20.0)

    def _end(self) -> None:
        """The last job of the control thread."""
        try:
            self._end_threads()
        finally:
            self._ended.set()

    def _end_threads(self) -> None:
        left = [receiver for receiver in self._receivers if not receiver.close(0.1 if self.gate.shut else 10.0)]
        if left and not self.gate.shut:
            return
        with self._lock:
            buckets = list(self.buckets.values())
        for bucket in buckets:
            if not self.gate.shut:
                for phase in bucket.phases:
                    phase.messages.finish_sends()
            for phase in bucket.phases:
                phase.exchange.stop()
        self._closing = True
        self.pool.wake()
        self._loop.join()
        for bucket in buckets:
            bucket.close()
        self.pool.close()


def bits_a_value(bits: int, ranks: int, way: str = "lanes") -> float:
    """Of all messages to owners and from them, norms among them, for one value of a long bucket. Of its shard a rank
    neither sends nor receives them."""
    chosen = gradwire.thc.options(bits, ranks)
    norm = 32 / (1 << chosen.block_log2)
    return bits + 2 * norm + (bits + norm if WAYS[way] == names.GW_THC_SUMS_REQUANTIZED else chosen.lane_bits)
