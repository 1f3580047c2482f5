"""Runs compressed operations: the native pool computes, torch.distributed moves messages, threads here connect them.

    control    builds maps, lets the ranks agree, posts receives, starts operations: in the order of submission
    loop       takes the pool's events and sends what they announce
    two more   wait for receives: contributions to this rank's pieces (in a ring: partial sums of all pieces), and
               finished pieces

Receives of Gloo cannot be polled, only waited for one by one; hence a thread for each of the two stages, in the order
in which messages are expected. What arrives meanwhile is taken in by Gloo's own thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint64
from dataclasses import dataclass, replace
from typing import Any

import torch

import gradwire.maps
from gradwire import _structs as s
from gradwire._library import check, lib
from gradwire.errors import status_name
from gradwire.gcomp import Options

from . import _pool, staging
from .failure import Gate, Guarded
from .messages import Fault, Messages, usual_piece_len
from .optimizers import ParamRegistry, Place, SegmentTable
from .renewal import BucketCodebooks, Codebooks
from .stats import Samples
from .transport import FROM_OWNER, OPERATIONS_MAX, TO_OWNER, Start, Transport
from .workers import Worker

_MASK = (1 << 64) - 1
log = logging.getLogger("gradwire")


class ExchangeError(RuntimeError):
    """A compressed operation failed on this rank or on another one; all ranks raise it.

    Attributes: status, name (of the status), rank (at fault), piece.
    """

    on_all_ranks = True

    def __init__(self, word: int) -> None:
        failure = s.gw_collective_failure()
        lib.gw_collective_word_read(word, failure)
        self.status, self.rank, self.piece = failure.status, failure.rank, failure.piece
        self.name = status_name(failure.status)
        what = lib.gw_status_message(failure.status).decode()
        super().__init__(f"compressed all-reduce failed: rank {self.rank}, piece {self.piece}: {what} ({self.name})")


class ReplicaError(RuntimeError):
    """Debug mode: the ranks' results differ."""

    on_all_ranks = True


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all operations of an engine have in common; equal on all ranks."""

    codec: Options
    fallback: Options  # while maps differ between ranks
    limits: gradwire.maps.Limits
    maps: bool  # whether quanta come from optimizer state
    agree: bool  # whether receivers need equal maps
    algorithm: str = "a2a"
    contribution_bits: int = 0
    piece_len: int | None = None
    books_every: int = 0  # steps from one renewal of installed codebooks to the next; 0: codebooks in the frames
    threads: int = 2
    debug: bool = False
    sample_every: int = 16  # steps from one whose error is measured to the next; 0: none
    unknown: Settings | None = None  # of parameters whose optimizer maps are not known for, where that of others is

    def piece_len_of(self, shard_len: int) -> int:
        """Values of a piece where shards have shard_len."""
        return usual_piece_len(shard_len) if self.piece_len is None else self.piece_len


class Plan:
    """A bucket that comes again every step: its exchange, its map and the memory of its messages."""

    def __init__(
        self,
        engine: Engine,
        cookie: int,
        like: torch.Tensor,
        places: list[Place],
        shard_len: int,
        settings: Settings,
        mean: bool,
    ) -> None:
        self.engine, self.cookie, self.places, self.settings = engine, cookie, places, settings
        self.len, dtype, transport = like.numel(), staging.CODEC_DTYPES[like.dtype], engine.transport
        # Sums travel in the type of the values. One of fp16 may be out of range where the mean is not: so values of
        # it are divided by this power of two, at least the number of ranks, before they travel.
        self.divisor = 1 << (transport.size - 1).bit_length() if mean and like.dtype == torch.float16 else 1
        config = s.gw_exchange_config(
            shape=s.gw_collective_shape(
                len=self.len,
                rank_count=transport.size,
                piece_len=settings.piece_len_of(shard_len or self.len // transport.size),
                shard_len=shard_len,
            ),
            rank=transport.rank,
            contribution_bits=settings.contribution_bits,
            codebooks=int(settings.books_every > 0),
            codec=replace(settings.codec, dtype=dtype).struct(),
            fallback_codec=replace(settings.fallback, dtype=dtype).struct(),
            user=cookie,
            seed=engine.seed,
            segment_max=max(len(places), 1) if settings.maps else 0,
            algorithm=_pool.ALGORITHMS[settings.algorithm],
        )
        config.shape.chunk_log2 = config.codec.chunk_log2
        self.exchange = _pool.Exchange(engine.pool, config)
        self.codebooks = BucketCodebooks(self.exchange) if config.codebooks else None
        self.messages = Messages(transport, self.exchange, ring=settings.algorithm == "ring", hint="increase piece_len")
        self.room: staging.Room | None = None  # of a GPU's bucket, on the CPU
        self.devices = {place.param.device for place in places if staging.of(place.param.device) is not None}
        self.table: SegmentTable | None = None
        self.map_done = threading.Event()
        self.map_word = 0
        self.map_built = False
        self.compared = False  # the ranks have compared maps of this bucket
        self.agreed = False  # all ranks hold the same map
        self.operation: Operation | None = None

    def build_map(self, wire_scale: float, marks: Mapping[torch.device, Any]) -> None:
        """Starts it; map_done is set at its end. wire_scale: of sums of the values as they are given. marks: for each
        GPU, after which its state is to be read."""
        self.map_done.clear()
        self.map_built = False
        if self.codebooks is not None:
            self.codebooks.wait()  # it reads the last map
        if self.engine.gate.shut:
            self.map_done.set()
            return
        with contextlib.ExitStack() as stack:
            for device in self.devices:
                stack.enter_context(staging.of(device).reading(marks.get(device)))
            scale = wire_scale / self.divisor
            self.table = self.engine.registry.segments(self.places, scale, self.settings.limits)
        self.exchange.start_map(self.table.struct, self.table.wire_scale)

    def wait_map(self) -> int:
        """Returns its outcome, the word of the event MAP."""
        self.map_done.wait()
        self.table = None
        self.map_built = self.map_word == 0
        return self.map_word


@dataclass
class Operation:
    """One all-reduce (or reduce-scatter) of the values of a bucket."""

    plan: Plan
    values: torch.Tensor
    result: torch.Tensor
    scale: float
    wire_scale: float
    step: int
    where: str = ""  # step and bucket, for errors
    copy: staging.HostCopy | None = None  # of which these are the values; its future is that of the operation
    message: Any = None  # of a recording
    scatter: bool = False
    fallback: bool = False
    number: int = 0
    started: float = 0.0
    encoded: float = 0.0  # when the last contribution was on its way; in a ring the last partial sum
    summed: float = 0.0  # when the last piece that this rank owns was
    sampled: bool = False
    before: s.gw_exchange_stats | None = None  # of the bucket
    stages: dict[str, float] | None = None  # CPU seconds and bytes, with Engine.timing

    @torch.no_grad()
    def shrink(self) -> None:
        """Divides the values by the plan's divisor: in place, but where they may be the caller's."""
        room = torch.empty_like(self.values) if self.scatter else self.values
        self.values = torch.mul(self.values, 1.0 / self.plan.divisor, out=room)

    def hand_out(self) -> None:
        if self.message is not None:
            self.message.operation(self)
        if self.copy is not None:
            self.copy.finish()


def _stages(stats: s.gw_exchange_stats) -> dict[str, float]:
    """CPU seconds of the pool's threads by stage, and bytes."""
    names = ("map", "encode", "reduce", "decode")
    return {
        **{f"{name}_s": getattr(stats, f"{name}_ns") / 1e9 for name in names},
        "sent_size": stats.sent_size,
        "received_size": stats.received_size,
    }


def sampled(step: int, every: int) -> bool:
    """Whether the error of this step is measured. Not of the first two, which are no example of those that follow, as
    the optimizer has hardly a state; nor of the steps that are recorded by default, as it takes time."""
    return every > 0 and step % every == min(2, every - 1)


def _digest(number: int, result: torch.Tensor) -> int:
    result = result.cpu()
    crc = lib.gw_crc32c(0, result.data_ptr(), result.numel() * result.element_size())
    return (number << 32 | crc) * 0x9E3779B97F4A7C15


class EngineOwner(Guarded):
    """A hook or communicator with an engine, whose threads end with it."""

    def _begin(self, start: Start, settings: Settings, registry: ParamRegistry, notice: str | None) -> None:
        """notice: what rank 0 says of the settings."""
        super()._begin(start)
        self.engine = Engine(start.transport, settings, registry, self.gate)
        weakref.finalize(self, self.engine.abandon).atexit = False
        if notice and self.rank == 0:
            log.warning("gradwire: %s", notice)

    def _conclude(self, where: str) -> torch.futures.Future:
        return self.engine.conclude(where)


class Engine:
    """Operations on buckets, in the order of submission, which must be the same on all ranks."""

    def __init__(self, transport: Transport, settings: Settings, registry: ParamRegistry, gate: Gate) -> None:
        self.transport, self.settings, self.registry, self.gate = transport, settings, registry, gate
        self.seed = registry.seed
        self.pool = _pool.Pool(settings.threads)
        self.plans: dict[int, Plan] = {}
        self.fault: Fault | None = None
        self.word = 0  # the worst outcome on this rank since the last conclusion
        self.digest = 0  # debug: of the results since then
        self.mismatches = 0  # steps in which the ranks had different maps
        self._differed: int | None = None  # the last of them
        self.samples = Samples()
        self.codebooks = Codebooks(transport, settings.books_every)
        self.seconds = 0.0  # operations, from start to end
        self.timing = False  # operations get their stages
        self._retired = s.gw_exchange_stats()
        self._cookies = 0
        self._operations = 0
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)  # nothing is active, or something has failed
        self._active: dict[int, Operation] = {}
        self._closing = False
        self._ended = threading.Event()
        self.control = Worker("gradwire-control", gate.fail)
        self._receivers = [Worker(f"gradwire-receive-{stage}", gate.fail) for stage in (TO_OWNER, FROM_OWNER)]
        self._loop = threading.Thread(target=self._run_loop, name="gradwire-loop", daemon=True)
        self._loop.start()
        gate.on_shut.append(self._stop)

    # ---- submission: any thread ----

    def plan(
        self,
        like: torch.Tensor,
        places: list[Place],
        shard_len: int = 0,
        settings: Settings | None = None,
        *,
        mean: bool = True,
    ) -> Plan:
        """Of buckets with as many values of this type. settings: of this bucket, if they are not the engine's; threads,
        debug and sampling are always those. mean: operations are means, not sums."""
        self._cookies += 1
        plan = Plan(self, self._cookies, like, places, shard_len, settings or self.settings, mean)
        self.plans[plan.cookie] = plan
        return plan

    def build_maps(self, plans: Sequence[Plan], wire_scale: float) -> None:
        """Maps of these plans from the state as it is now. Off the critical path. No matter of the other ranks."""
        chosen = list(plans)
        marks = {device: staging.of(device).mark() for device in set().union(*(plan.devices for plan in chosen))}
        self._submit(self._build, chosen, wire_scale, marks)

    def compare_maps(self, plans: Sequence[Plan], where: str = "", *, step: int) -> None:
        """The ranks compare the maps of these plans. As often on all ranks, whatever each of them has built."""
        self._submit(self._compare, list(plans), where, step)

    def count_codebooks(self, plans: Sequence[Plan], step: int) -> None:
        """At the end of a step, where that is due: for the codebooks of later steps. The next compare_maps() renews
        them, so the plans are the same on all ranks."""
        if self.codebooks.are_due(step):
            self._submit(self._count, [plan for plan in plans if plan.codebooks is not None])

    def conclude(self, where: str, good: torch.futures.Future | None = None) -> torch.futures.Future:
        """A future, or `good`, that is done after all operations before, if none has failed on any rank; in debug mode
        compares results."""
        done = torch.futures.Future() if good is None else good
        self.gate.add(done)
        self._submit(self._conclude, done, where)
        return done

    def retire(self, plan: Plan) -> None:
        """The bucket does not come again."""
        self._submit(self._retire, plan)

    def call(self, job: Callable[[], Any]) -> Any:
        """Runs a job after all that was submitted before, and returns its result."""
        self.gate.raise_closed()
        try:
            return self.control.call(job).result()
        except BaseException as error:
            raise self.gate.error or error  # noqa: B904  it is that of the job

    def _submit(self, job: Callable[..., None], *arguments: Any) -> None:
        """Nothing is begun after a failure."""
        self.control.submit(lambda: None if self.gate.shut else job(*arguments))

    # ---- control thread ----

    def _build(self, plans: list[Plan], wire_scale: float, marks: Mapping[torch.device, Any]) -> None:
        self.registry.refresh()
        words, started = [], []
        for plan in plans:
            plan.build_map(wire_scale, marks)
            started.append(plan)
            if plan.devices and len(started) > 1:  # each holds a copy of its state
                words.append(started.pop(0).wait_map())
        words += [plan.wait_map() for plan in started]
        with self._lock:
            self.word = max([self.word, *words])

    def _count(self, plans: list[Plan]) -> None:
        """Frames lie in memory when nothing is active any more: in debug mode, and with the codecs of a plan, this
        comes while operations run."""
        with self._idle:
            self._idle.wait_for(lambda: not self._active or self.gate.shut)
        if not self.gate.shut:
            for plan in plans:
                plan.codebooks.count()

    def _compare(self, plans: list[Plan], where: str, step: int) -> None:
        """Raises what went wrong with a map on any rank."""
        with_codebooks = [plan for plan in plans if plan.codebooks is not None]
        plans = [plan for plan in plans if plan.settings.agree]
        if not plans and not with_codebooks:
            return
        self.codebooks.renew(with_codebooks, where)
        with self._lock:
            words = [self.word]
        for plan in plans:
            words += plan.exchange.map_words() if plan.map_built else [0] * _pool.MAP_WORDS
        for plan in with_codebooks:
            words += plan.codebooks.words()
        words = self.transport.largest(words, where)
        if words[0]:
            raise ExchangeError(words[0])
        self.codebooks.agree(with_codebooks, words[1 + len(plans) * _pool.MAP_WORDS :], step)
        for i, plan in enumerate(plans):
            at = 1 + i * _pool.MAP_WORDS
            difference = lib.gw_collective_map_differs((c_uint64 * _pool.MAP_WORDS)(*words[at : at + _pool.MAP_WORDS]))
            plan.compared = True
            plan.agreed = difference == 0
            if difference and self._differed != step:
                self._differed = step
                self.mismatches += 1
                if self.mismatches == 1 and self.transport.rank == 0:
                    log.warning(
                        "gradwire: the optimizer states of the ranks differ; while they do, quanta are %s",
                        plan.settings.fallback.quantum_mode,
                    )

    def _conclude(self, good: torch.futures.Future, where: str) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._active or self.gate.shut)
            word, digest = self.word, self.digest
            self.word = self.digest = 0
        if self.gate.shut:
            return
        word, largest, complement = self.transport.largest([word, digest, digest ^ _MASK], where, direct=False)
        if word:
            raise ExchangeError(word)
        if largest != complement ^ _MASK:
            raise ReplicaError("gradwire: the results of the ranks differ")
        with self.gate.passing(good):
            good.set_result(None)

    def begin(self, operation: Operation) -> None:
        """To be submitted to `control`. Nothing is begun after a failure."""
        if self.gate.shut:
            return
        plan = operation.plan
        with self._lock:
            self._active[plan.cookie] = operation
            if len(self._active) > OPERATIONS_MAX:
                raise ValueError(f"more than {OPERATIONS_MAX} buckets in a step; increase bucket_cap_mb")
        plan.messages.finish_sends()
        if operation.copy is not None:
            operation.copy.wait()
        if plan.settings.maps and not (plan.compared if plan.settings.agree else plan.map_built):
            self._build([plan], operation.wire_scale, {})  # the bucket is new; its state is older than its values
            if plan.settings.agree:
                self._compare([plan], operation.where, operation.step)
        operation.fallback = operation.fallback or (plan.settings.agree and not plan.agreed)
        if plan.codebooks is not None:
            plan.codebooks.begin()
        if plan.divisor > 1:
            operation.shrink()
        self._operations += 1
        operation.number = self._operations
        plan.operation = operation
        plan.messages.begin(operation.number, operation.where)
        operation.started = time.perf_counter()
        operation.sampled = sampled(operation.step, self.settings.sample_every)
        if self.timing or operation.sampled:
            operation.before = plan.exchange.stats()
        flags = _pool.FALLBACK if operation.fallback else 0
        flags |= _pool.SCATTER if operation.scatter else 0
        flags |= _pool.SAMPLE if operation.sampled else 0
        run = s.gw_exchange_run(
            values=operation.values.data_ptr(),
            result=operation.result.data_ptr(),
            scale=operation.scale * plan.divisor,
            step_index=operation.step & 0xFFFFFFFF,
            flags=flags,
        )
        with plan.exchange as handle:
            check(_pool.native.gw_exchange_start(handle, run))
        plan.messages.receive(self._receivers, self.gate, scatter=operation.scatter)

    def _retire(self, plan: Plan) -> None:
        plan.messages.finish_sends()
        if plan.codebooks is not None:
            plan.codebooks.wait()  # the loop thread handles its event while it knows the plan
        with self._lock:  # stats() may be in it
            plan.exchange.stop()
            self._add_stats(self._retired, plan.exchange.stats())
            self.plans.pop(plan.cookie, None)

    # ---- loop thread ----

    def _run_loop(self) -> None:
        while not self._closing:
            try:
                for event in self.pool.wait(1.0):
                    if event.kind != _pool.WAKE and not self.gate.shut:
                        self._handle(self.plans[event.user], event)
                if not self.gate.shut:
                    self.transport.look()
            except BaseException as error:
                self.gate.fail(error)

    def _handle(self, plan: Plan, event: s.gw_runtime_event) -> None:
        if event.kind == _pool.MAP:
            plan.map_word = event.word
            plan.map_done.set()
        elif event.kind == _pool.CODEBOOKS:
            plan.codebooks.counted(event.word)
        elif event.kind == _pool.DONE:
            self._finish(plan, event.word)
        else:
            plan.messages.send(event, self.fault)
            now, operation = time.perf_counter(), plan.operation
            if event.kind == _pool.SEND:
                operation.encoded = now
            elif event.piece // plan.messages.shard_pieces == self.transport.rank:
                operation.summed = now

    def _finish(self, plan: Plan, word: int) -> None:
        operation = plan.operation
        self.seconds += time.perf_counter() - operation.started
        if operation.before is not None:
            now, before = plan.exchange.stats(), operation.before
            if self.timing:
                stages = _stages(before)
                operation.stages = {name: value - stages[name] for name, value in _stages(now).items()}
            if operation.sampled and not word:
                lost = now.sample_square - before.sample_square, now.sample_error - before.sample_error
                self.samples.add(operation.step, *lost)
        if plan.codebooks is not None and not word:
            plan.codebooks.sent(plan.exchange.stats().sent_size, counts=not (operation.fallback or operation.scatter))
        digest = 0
        if self.settings.debug and not word and not operation.scatter:
            digest = _digest(operation.number, operation.result)
        if not word:  # else its future waits for the conclusion: the other ranks need this rank's messages
            with self.gate.passing(operation.copy and operation.copy.future):
                operation.hand_out()
        with self._idle:
            if self._active.get(plan.cookie) is operation:  # else one that a callback of its future has started
                del self._active[plan.cookie]
            self.word = max(self.word, word)
            # A sum: the ranks end their operations in different orders.
            self.digest = (self.digest + digest) & _MASK
            self._idle.notify_all()

    def compared(self, number: int, result: torch.Tensor) -> torch.Tensor:
        """Debug mode: the next conclusion compares this result of another codec, too. number: below 2^31, the same on
        all ranks."""
        digest = _digest(1 << 31 | number, result)
        with self._lock:
            self.digest = (self.digest + digest) & _MASK
        return result

    # ---- statistics and end ----

    @staticmethod
    def _add_stats(total: s.gw_exchange_stats, more: s.gw_exchange_stats) -> None:
        for name, _ in total._fields_:
            setattr(total, name, getattr(total, name) + getattr(more, name))

    def stats(self) -> s.gw_exchange_stats:
        total = s.gw_exchange_stats()
        with self._lock:  # no plan is retired meanwhile
            self._add_stats(total, self._retired)
            for plan in list(self.plans.values()):
                self._add_stats(total, plan.exchange.stats())
        return total

    def _stop(self) -> None:
        """Something has failed: the pool does no more, and nobody waits for it."""
        for plan in list(self.plans.values()):
            plan.exchange.stop()
            plan.map_done.set()
            if plan.codebooks is not None:
                plan.codebooks.stop()
        with self._idle:
            self._active.clear()
            self._idle.notify_all()

    def abandon(self) -> None:
        """Ends the threads after what was submitted, and does not wait: for a finalizer, on any thread."""
        self.gate.closed = True
        if self._ended.is_set():
            return  # a job in the queue of a thread that has ended would keep the engine, and its connections
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
            patience = 0.1 if self.gate.shut else 10.0
            left = [receiver for receiver in self._receivers if not receiver.close(patience)]
            if left and not self.gate.shut:
                return
            for plan in list(self.plans.values()):
                plan.exchange.stop() if self.gate.shut else self._retire(plan)
            self._closing = True
            self.pool.wake()
            self._loop.join()
            self.pool.close()
        finally:
            self._ended.set()
