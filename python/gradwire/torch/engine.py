"""Runs compressed operations: the native pool computes, torch.distributed moves messages, threads here connect them.

    control    builds maps, lets the ranks agree, posts receives, starts operations: in the order of submission
    loop       takes the pool's events and sends what they announce
    two more   wait for receives: contributions to this rank's pieces, and finished pieces

Receives of Gloo cannot be polled, only waited for one by one; hence a thread for each of the two stages, in the order
in which messages are expected. What arrives meanwhile is taken in by Gloo's own thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_uint64
from dataclasses import dataclass
from typing import Any

import torch

import gradwire.maps
from gradwire._library import lib
from gradwire._structs import gw_collective_blame, gw_collective_shape
from gradwire.errors import status_name
from gradwire.gcomp import Options

from . import _pool, staging
from .optimizers import Book, Place, SegmentTable
from .stats import Samples
from .transport import (
    FROM_OWNER,
    OPERATIONS_MAX,
    PIECES_MAX,
    TO_OWNER,
    DifferentError,
    Transport,
    collective_error,
    tag,
)
from .workers import Worker

CODEC_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_MASK = (1 << 64) - 1
log = logging.getLogger("gradwire")


class ExchangeError(RuntimeError):
    """A compressed operation failed on this rank or on another one; all ranks raise it.

    Attributes: status, name (of the status), rank (to blame), piece.
    """

    def __init__(self, word: int) -> None:
        blame = gw_collective_blame()
        lib.gw_collective_word_read(word, blame)
        self.status, self.rank, self.piece = blame.status, blame.rank, blame.piece
        self.name = status_name(blame.status)
        what = lib.gw_status_message(blame.status).decode()
        super().__init__(f"compressed all-reduce failed: rank {self.rank}, piece {self.piece}: {what} ({self.name})")


class ReplicaError(RuntimeError):
    """Debug mode: the ranks' results differ."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all operations of an engine have in common; equal on all ranks."""

    codec: Options
    spare: Options  # while maps differ between ranks
    limits: gradwire.maps.Limits
    maps: bool  # whether quanta come from optimizer state
    agree: bool  # whether receivers need equal maps
    contribution_bits: int = 0
    piece_len: int | None = None
    threads: int = 2
    debug: bool = False
    sample_every: int = 16  # steps from one whose error is measured to the next; 0: none
    unknown: Settings | None = None  # of parameters whose optimizer maps are not known for, where that of others is

    def piece_len_of(self, shard_len: int) -> int:
        """Values of a piece where shards have shard_len. A shard's first piece cannot be sent before it is encoded, and
        its last not decoded before it has come, so a shard should have several; pieces below 2^16 cost more to code
        than they save."""
        if self.piece_len is not None:
            return self.piece_len
        return 1 << min(18, max(16, (shard_len // 4).bit_length() - 1))


class Plan:
    """A bucket that comes again every step: its exchange, its map and the memory of its messages."""

    def __init__(
        self,
        engine: Engine,
        cookie: int,
        length: int,
        dtype: torch.dtype,
        places: list[Place],
        shard_len: int,
        settings: Settings,
    ) -> None:
        self.engine, self.cookie, self.len, self.dtype, self.places = engine, cookie, length, dtype, places
        self.settings, transport = settings, engine.transport
        config = _pool.gw_exchange_config(
            shape=gw_collective_shape(
                len=length,
                rank_count=transport.size,
                piece_len=settings.piece_len_of(shard_len or length // transport.size),
                shard_len=shard_len,
            ),
            rank=transport.rank,
            contribution_bits=settings.contribution_bits,
            codec=engine.options(settings.codec, dtype),
            fallback_codec=engine.options(settings.spare, dtype),
            user=cookie,
            seed=engine.seed,
            segment_max=max(len(places), 1) if settings.maps else 0,
        )
        config.shape.chunk_log2 = config.codec.chunk_log2
        self.exchange = _pool.Exchange(engine.pool, config)
        self.pieces = self.exchange.info.layout.piece_count
        self.shard_pieces = self.exchange.info.layout.shard_pieces
        if self.pieces > PIECES_MAX:
            raise ValueError(f"{self.pieces} pieces; increase piece_len")
        self.room: staging.Room | None = None  # of a GPU's bucket, on the CPU
        self.devices = {place.param.device for place in places if staging.of(place.param.device) is not None}
        self.memory = torch.empty(self.exchange.info.memory_size, dtype=torch.uint8)
        self.exchange.memory(self.memory.data_ptr())
        self._rooms = self._make_rooms()
        self.table: SegmentTable | None = None
        self.map_done = threading.Event()
        self.map_word = 0
        self.map_built = False
        self.compared = False  # the ranks have compared maps of this bucket
        self.agreed = False  # all ranks hold the same map
        self.sends: list[tuple[Any, int]] = []  # with their ranks
        self.operation: Operation | None = None

    def _make_rooms(self) -> list[tuple[int, int, int, torch.Tensor]]:
        """(stage, piece, rank, room) of every message that comes, in the order in which they are expected."""
        rank, size, bound = self.engine.transport.rank, self.engine.transport.size, self.exchange.info.message_bound
        rooms = []
        for i in range(self.shard_pieces):
            for distance in range(1, size):
                peer = (rank - distance) % size
                for stage, piece in (
                    (TO_OWNER, rank * self.shard_pieces + i),
                    (FROM_OWNER, peer * self.shard_pieces + i),
                ):
                    offset = self.exchange.slot(piece, peer)
                    if offset is not None:
                        rooms.append((stage, piece, peer, self.memory[offset : offset + bound]))
        return rooms

    def build_map(self, wire_scale: float, marks: Mapping[torch.device, Any]) -> None:
        """Starts it; map_done is set at its end. marks: for each GPU, after which its state is to be read."""
        self.map_done.clear()
        self.map_built = False
        with contextlib.ExitStack() as stack:
            for device in self.devices:
                stack.enter_context(staging.of(device).reading(marks.get(device)))
            self.table = self.engine.book.segments(self.places, wire_scale, self.settings.limits)
        self.exchange.start_map(self.table.struct, self.table.wire_scale)

    def wait_map(self) -> int:
        """Returns its outcome, the word of the event MAP."""
        self.map_done.wait()
        if self.engine.error is None:  # else threads of the pool may still read what the table borrows
            self.table = None
            self.map_built = self.map_word == 0
        return self.map_word

    def post_receives(self, operation: Operation) -> None:
        transport = self.engine.transport
        for stage, piece, peer, room in self._rooms:
            if stage == FROM_OWNER and operation.scatter:
                continue
            work = transport.receive(room, peer, tag(operation.number, stage, piece))
            self.engine.await_message(operation, work, stage, piece, peer)

    def send(self, event: _pool.gw_runtime_event) -> None:
        """Sends the message that an event announces."""
        transport, size = self.engine.transport, self.engine.transport.size
        message = self.memory[event.offset : event.offset + event.size]
        if event.kind == _pool.SEND:
            stage, peers = TO_OWNER, [event.piece // self.shard_pieces]
        else:
            stage, peers = FROM_OWNER, [(transport.rank + i) % size for i in range(1, size)]
        if self.engine.fault is not None:
            self.engine.fault(stage, event.piece, message)
        for peer in peers:
            work = transport.send(message, peer, tag(self.operation.number, stage, event.piece))
            self.sends.append((work, peer))

    def finish_sends(self) -> None:
        """The slots of the last operation's messages are free."""
        sends, self.sends = self.sends, []
        for work, peer in sends:
            self.engine.transport.wait(work, peer, self.operation.where, sending=True)

    def close(self) -> None:
        self.finish_sends()
        self.exchange.close()


@dataclass
class Operation:
    """One all-reduce (or reduce-scatter) of the values of a bucket."""

    plan: Plan
    values: torch.Tensor
    result: torch.Tensor
    scale: float
    wire_scale: float
    step: int
    on_done: Callable[[Operation], None]
    on_error: Callable[[BaseException], None]
    where: str = ""  # step and bucket, for errors
    scatter: bool = False
    spare: bool = False
    wait: Callable[[], None] | None = None  # until the values are there
    number: int = 0
    started: float = 0.0
    seconds: float = 0.0
    encoded: float = 0.0  # when the last contribution was on its way
    summed: float = 0.0  # when the last piece that this rank owns was
    sampled: bool = False
    errors: tuple[float, float] = (0.0, 0.0)  # of the bucket before it, _errors()
    stages: dict[str, float] | None = None  # CPU seconds and bytes, with Engine.timing


def _stages(stats: _pool.gw_exchange_stats) -> dict[str, float]:
    """CPU seconds of the pool's threads by stage, and bytes."""
    names = ("map", "encode", "reduce", "decode")
    return {
        **{f"{name}_s": getattr(stats, f"{name}_ns") / 1e9 for name in names},
        "sent_size": stats.sent_size,
        "received_size": stats.received_size,
    }


def _errors(stats: _pool.gw_exchange_stats) -> tuple[float, float]:
    return stats.sample_square, stats.sample_error


def sampled(step: int, every: int) -> bool:
    """Whether the error of this step is measured. Not of the first two, which are no example of those that follow, as
    the optimizer has hardly a state; nor of the steps that are recorded by default, as it takes time."""
    return every > 0 and step % every == min(2, every - 1)


def _digest(number: int, result: torch.Tensor) -> int:
    result = result.cpu()
    crc = lib.gw_crc32c(0, result.data_ptr(), result.numel() * result.element_size())
    return (number << 32 | crc) * 0x9E3779B97F4A7C15


class Engine:
    """Operations on buckets, in the order of submission, which must be the same on all ranks."""

    def __init__(self, transport: Transport, settings: Settings, book: Book) -> None:
        self.transport, self.settings, self.book = transport, settings, book
        self.seed = book.seed
        self.pool = _pool.Pool(settings.threads)
        self.plans: dict[int, Plan] = {}
        self.fault: Callable[[int, int, torch.Tensor], None] | None = None  # tests damage messages with it
        self.error: BaseException | None = None
        self.alone = False  # the other ranks may wait for this one, whose error they do not know or learn elsewhere
        self.on_fail: list[Callable[[BaseException], None]] = []
        self.on_break: list[Callable[[], None]] = []  # break other connections than those of the transport
        self._failing: int | None = None  # the thread that is in fail()
        self._has_failed = threading.Event()
        self.word = 0  # the worst outcome on this rank since the last conclusion
        self.digest = 0  # debug: of the results since then
        self.mismatches = 0  # steps in which the ranks had different maps
        self._differed: int | None = None  # the last of them
        self.samples = Samples()
        self.seconds = 0.0  # operations, from start to end
        self.timing = False  # operations get their stages
        self._retired = _pool.gw_exchange_stats()
        self._cookies = 0
        self._operations = 0
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)  # nothing is active, or there is an error
        self._active: dict[int, Operation] = {}
        self._failed: list[Operation] = []  # they wait for the conclusion
        self.closed = False  # nothing can be submitted any more
        self._closing = False
        self._ended = threading.Event()
        self._control = Worker("gradwire-control", self.fail)
        self._receivers = [Worker(f"gradwire-receive-{stage}", self.fail) for stage in (TO_OWNER, FROM_OWNER)]
        self._loop = threading.Thread(target=self._run_loop, name="gradwire-loop", daemon=True)
        self._loop.start()

    # ---- submission: any thread ----

    def options(self, options: Options, dtype: torch.dtype) -> Any:
        fields = {**vars(options), "dtype": CODEC_DTYPES[dtype]}
        return Options(**fields).struct()

    def plan(
        self, length: int, dtype: torch.dtype, places: list[Place], shard_len: int = 0, settings: Settings | None = None
    ) -> Plan:
        """settings: of this bucket, if they are not the engine's; threads, debug and sampling are always those."""
        self._cookies += 1
        plan = Plan(self, self._cookies, length, dtype, places, shard_len, settings or self.settings)
        self.plans[plan.cookie] = plan
        return plan

    def submit(self, operation: Operation) -> None:
        self._control.submit(lambda: self._begin(operation))

    def build_maps(self, plans: Sequence[Plan], wire_scale: float) -> None:
        """Maps of these plans from the state as it is now. Off the critical path. No matter of the other ranks."""
        chosen = list(plans)
        marks = {device: staging.of(device).mark() for device in set().union(*(plan.devices for plan in chosen))}
        self._control.submit(lambda: self._build(chosen, wire_scale, marks))

    def compare_maps(self, plans: Sequence[Plan], where: str = "", *, step: int) -> None:
        """The ranks compare the maps of these plans. As often on all ranks, whatever each of them has built."""
        chosen = list(plans)
        self._control.submit(lambda: self._compare(chosen, where, step))

    def conclude(self, on_done: Callable[[], None], on_error: Callable[[BaseException], None], where: str = "") -> None:
        """Waits for all operations before it and tells all ranks the worst outcome; in debug mode compares results.

        One of the two is called: the same one on all ranks that are there.
        """
        self._control.submit(lambda: self._conclude(on_done, on_error, where))

    def retire(self, plan: Plan) -> None:
        """The bucket does not come again."""
        self._control.submit(lambda: self._retire(plan))

    def call(self, job: Callable[[], Any]) -> Any:
        """Runs a job after all that was submitted before, and returns its result."""
        self._raise_closed()
        done = threading.Event()
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(job())
            except BaseException as error:
                self.fail(error)  # before the caller looks at it
            finally:
                done.set()

        self._control.submit(run)
        done.wait()
        if not outcome:
            raise self.error or RuntimeError("the job failed")
        return outcome[0]

    def raise_error(self) -> None:
        if self.error is not None:
            raise RuntimeError(f"gradwire: an earlier operation failed: {self.error}") from self.error
        self._raise_closed()

    def _raise_closed(self) -> None:
        if self.closed:
            raise RuntimeError("gradwire: closed; what goes on needs a new hook (with a new DDP) or communicator")

    # ---- control thread ----

    def _build(self, plans: list[Plan], wire_scale: float, marks: Mapping[torch.device, Any]) -> None:
        if self.error is not None:
            return
        self.book.refresh()
        words, started = [], []
        for plan in plans:
            plan.build_map(wire_scale, marks)
            started.append(plan)
            if plan.devices and len(started) > 1:  # each holds a copy of its state
                words.append(started.pop(0).wait_map())
        words += [plan.wait_map() for plan in started]
        with self._lock:
            self.word = max([self.word, *words])

    def _compare(self, plans: list[Plan], where: str, step: int) -> None:
        """Raises what went wrong with a map on any rank."""
        plans = [plan for plan in plans if plan.settings.agree]
        if self.error is not None or not plans:
            return
        with self._lock:
            words = [self.word]
        for plan in plans:
            words += plan.exchange.map_words() if plan.map_built else [0] * _pool.MAP_WORDS
        words = self.transport.largest(words, where)
        if words[0]:
            raise ExchangeError(words[0])
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
                        "gradwire: the optimizer states of the ranks differ; while they do, levels are %s",
                        plan.settings.spare.levels,
                    )

    def _conclude(self, on_done: Callable[[], None], on_error: Callable[[BaseException], None], where: str) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._active or self.error is not None)
            word, digest = self.word, self.digest
            self.word = self.digest = 0
        if self.error is None:
            try:
                words = [word, digest, digest ^ _MASK]
                word, largest, complement = self.transport.largest(words, where, direct=False)
                if word:
                    raise ExchangeError(word)
                if largest != complement ^ _MASK:
                    raise ReplicaError("gradwire: the results of the ranks differ")
            except Exception as error:
                self.fail(error)
        if self.error is None:
            on_done()
        else:
            on_error(self.error)

    def _begin(self, operation: Operation) -> None:
        if self.error is not None:
            operation.on_error(self.error)
            return
        plan = operation.plan
        with self._lock:
            failed = self.error  # of another thread, since the look above
            if failed is None:
                self._active[plan.cookie] = operation
            if len(self._active) > OPERATIONS_MAX:
                raise ValueError(f"more than {OPERATIONS_MAX} buckets in a step; increase bucket_cap_mb")
        if failed is not None:
            operation.on_error(failed)
            return
        plan.finish_sends()
        if operation.wait is not None:
            operation.wait()
        if plan.settings.maps and not (plan.compared if plan.settings.agree else plan.map_built):
            self._build([plan], operation.wire_scale, {})  # the bucket is new; its state is older than its values
            self._compare([plan], operation.where, operation.step)
        operation.spare = operation.spare or (plan.settings.agree and not plan.agreed)
        self._operations += 1
        operation.number = self._operations
        plan.operation = operation
        operation.started = time.perf_counter()
        if self.timing:
            operation.stages = _stages(plan.exchange.stats())
        operation.sampled = sampled(operation.step, self.settings.sample_every)
        if operation.sampled:
            operation.errors = _errors(plan.exchange.stats())
        flags = _pool.FALLBACK if operation.spare else 0
        flags |= _pool.SCATTER if operation.scatter else 0
        flags |= _pool.SAMPLE if operation.sampled else 0
        run = _pool.gw_exchange_run(
            values=operation.values.data_ptr(),
            result=operation.result.data_ptr(),
            scale=operation.scale,
            step_index=operation.step & 0xFFFFFFFF,
            flags=flags,
        )
        plan.exchange.start(run)
        plan.post_receives(operation)

    def _retire(self, plan: Plan) -> None:
        if self.error is not None:
            return  # the pool may still work on it
        with self._lock:  # stats() may be in it
            self._add_stats(self._retired, plan.exchange.stats())
            self.plans.pop(plan.cookie, None)
        plan.close()

    # ---- receiving threads ----

    def await_message(self, operation: Operation, work: Any, stage: int, piece: int, peer: int) -> None:
        def run() -> None:
            if self.error is None:
                self.transport.wait(work, peer, operation.where, direct=stage == TO_OWNER)
                operation.plan.exchange.receive(piece, peer)

        self._receivers[stage].submit(run)

    # ---- loop thread ----

    def _run_loop(self) -> None:
        while not self._closing:
            try:
                for event in self.pool.wait(1.0):
                    if event.kind != _pool.WAKE:
                        self._handle(self.plans[event.user], event)
                if self.error is None:
                    self.transport.look()
            except BaseException as error:
                self.fail(error)

    def _handle(self, plan: Plan, event: _pool.gw_runtime_event) -> None:
        if event.kind == _pool.MAP:
            plan.map_word = event.word
            plan.map_done.set()
        elif event.kind == _pool.DONE:
            self._finish(plan, event.word)
        else:
            plan.send(event)
            now, operation = time.perf_counter(), plan.operation
            if event.kind == _pool.SEND:
                operation.encoded = now
            else:
                operation.summed = now

    def _finish(self, plan: Plan, word: int) -> None:
        operation = self._active.get(plan.cookie)
        if operation is None:
            return  # failed meanwhile
        operation.seconds = time.perf_counter() - operation.started
        self.seconds += operation.seconds
        if operation.stages is not None:
            now = _stages(plan.exchange.stats())
            operation.stages = {name: now[name] - before for name, before in operation.stages.items()}
        if operation.sampled and not word:
            before, now = operation.errors, _errors(plan.exchange.stats())
            self.samples.add(operation.step, now[0] - before[0], now[1] - before[1])
        digest = 0
        if self.settings.debug and not word and not operation.scatter:
            digest = _digest(operation.number, operation.result)
        if not word:
            operation.on_done(operation)
        with self._idle:
            if self._active.get(plan.cookie) is operation:  # else one that on_done() has started, or fail()
                del self._active[plan.cookie]
                if word:  # the other ranks need this rank's messages: go on until the conclusion
                    self._failed.append(operation)
            self.word = max(self.word, word)
            # A sum: the ranks end their operations in different orders.
            self.digest = (self.digest + digest) & _MASK
            self._idle.notify_all()

    def compare(self, number: int, result: torch.Tensor) -> None:
        """Debug mode: the next conclusion compares this result of another codec, too. number: below 2^31, the same on
        all ranks."""
        digest = _digest(1 << 31 | number, result)
        with self._lock:
            self.digest = (self.digest + digest) & _MASK

    # ---- failure and end ----

    def fail(self, error: BaseException, *, alone: bool | None = None) -> None:
        """All operations, also later ones, raise; on the other ranks too. alone: these have not raised the same at the
        same place in the order of this engine's operations. None: as the type of the error says."""
        with self._lock:
            if self.error is not None or self._failing == threading.get_ident():
                return
            first = self._failing is None
            if first:
                self._failing = threading.get_ident()
        if not first:  # the error is that of the other thread
            self._has_failed.wait()
            return
        agreed = ExchangeError, ReplicaError, DifferentError
        alone = not isinstance(error, agreed) if alone is None else alone
        try:
            if alone:
                error = self._tell(collective_error(error, ""))
        finally:
            self._end_with(error, alone)

    def _tell(self, error: BaseException) -> BaseException:
        """The others learn of it at once. What is raised here says, if one can, which rank is at fault."""
        finding = self.transport.tell(error)
        for call in self.on_break:
            call()
        return self.transport.resolve(error, finding)

    def _end_with(self, error: BaseException, alone: bool) -> None:
        with self._idle:
            self.error, self.alone = error, alone
            waiting = [*self._active.values(), *self._failed]
            self._active, self._failed = {}, []
            self._idle.notify_all()
        self._has_failed.set()
        for plan in list(self.plans.values()):
            plan.map_done.set()
        for call in self.on_fail:
            call(error)
        for operation in waiting:
            operation.on_error(error)

    @staticmethod
    def _add_stats(total: _pool.gw_exchange_stats, more: _pool.gw_exchange_stats) -> None:
        for name, _ in total._fields_:
            setattr(total, name, getattr(total, name) + getattr(more, name))

    def stats(self) -> _pool.gw_exchange_stats:
        total = _pool.gw_exchange_stats()
        with self._lock:  # no plan is closed meanwhile
            self._add_stats(total, self._retired)
            for plan in list(self.plans.values()):
                self._add_stats(total, plan.exchange.stats())
        return total

    def abandon(self) -> None:
        """Ends the threads after what was submitted, and does not wait: for a finalizer, on any thread."""
        self.closed = True
        self._control.submit(self._end)
        self._control.stop()

    def close(self) -> None:
        """The same, and waits for it. After a failure threads may be left that wait for a peer; they end with the
        process, and so does the memory that they use."""
        self.abandon()
        self._ended.wait(20.0 if self.error is None else 0.3)

    def _end(self) -> None:
        """The last job of the control thread."""
        try:
            patience = 10.0 if self.error is None else 0.1
            left = [receiver for receiver in self._receivers if not receiver.close(patience)]
            if not left and self.error is None:
                for plan in list(self.plans.values()):
                    self._retire(plan)
                self._closing = True
                self.pool.poke()
                self._loop.join()
                self.pool.close()
        finally:
            self._ended.set()
