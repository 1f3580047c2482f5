"""Options of ByteComp's decision tree in DDP's hook: messages that travel in two levels, inside machines and between
them, whole or in parts, as values or as frames.

A message passes five threads: what comes before its first collective, collectives of all ranks or the first ones inside
the machines, those between machines, the last ones inside, and what comes after them. On each of them messages have the
order in which they were started, on all ranks. So the link between machines works for one message while another one is
summed inside.

Every sum is a mean of its ranks, so that levels make the mean of all, and codecs see numbers of one size.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from gradwire.errors import Error

from . import staging
from .buckets import Bucket
from .failure import Gate
from .level_codecs import LevelCodec, Part
from .machines import Machines
from .option_path import DECODE, ENCODE, INTER, INTRA, Option, Stage
from .scopes import RANKS_MAX, Message, Peers, bounds
from .states import Undo, as_memory, check_memories, check_version, is_finite
from .stats import size_of
from .transport import Transport
from .workers import Worker

_THREAD_NAMES = ("encode", "first", "between", "second", "decode")


@dataclass
class Work:
    """A message of a plan: how it travels, by what codec. key: the same in every step and run."""

    option: Option
    codec: LevelCodec | None  # None: it is not compressed
    key: str


@dataclass
class _Job:
    """A message on its way, as this rank sees it.

    low, high: the values that the ranks with its part of the bucket hold; outer: those before the first step of a
    scope. splits: into how many parts the frames of one contribution cut them, again and again; count: contributions,
    0: the values themselves. holds: whether this rank has them, not only others of its machine; takes_part: whether
    it is one of those between machines.
    """

    work: Work
    bucket: Bucket
    copy: staging.HostCopy
    number: int
    scale: float  # of the wire, for one rank's gradients in the mean
    undo: Undo
    low: int = 0
    high: int = 0
    outer: dict[str, tuple[int, int]] = field(default_factory=dict)
    splits: list[int] = field(default_factory=list)
    count: int = 0
    frames: list[list[np.ndarray]] = field(default_factory=list)  # by contribution and part
    values: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # of the bucket, fp32
    holds: bool = True
    takes_part: bool = True
    seconds: dict[str, float] = field(default_factory=dict)  # by stage, of a recording
    sent_size: int = 0
    received_size: int = 0

    def parts(self) -> list[tuple[int, int]]:
        """Of each contribution."""
        found = [(self.low, self.high)]
        for count in self.splits:
            found = [part for low, high in found for part in bounds(low, high, count)]
        return found


class Levels:
    """Runs messages of a plan by their options. Collective, as is making one. scale: of the wire, in this backward
    pass: gradient on the wire / gradient that the optimizer will see, of a plain sum of all ranks. whole: of the step,
    which has other messages, too; None: each counts by itself."""

    def __init__(
        self,
        transport: Transport,
        machines: Machines,
        gate: Gate,
        scale: Callable[[], float],
        digest: int,
        whole: Undo | None = None,
    ) -> None:
        if transport.size > RANKS_MAX:
            raise ValueError(f"options of a tree run on up to {RANKS_MAX} ranks, not on {transport.size}")
        self.plain_size = self.full_size = self.sent_size = self.received_size = 0
        self._transport, self._machines, self._gate = transport, machines, gate
        self._scale, self._digest, self._whole = scale, digest, whole
        self._started = 0
        self._compared = False
        self._codecs: dict[str, LevelCodec] = {}  # with memory, by the key of their first message
        gate.shared = True
        gate.on_break.append(transport.abort)
        self._threads = [Worker(f"gradwire-level-{name}", self._failed) for name in _THREAD_NAMES]

    def _failed(self, error: BaseException) -> None:
        self._gate.fail(error, alone=True)

    def add(self, work: Work) -> Leveled:
        """What takes the buckets of a message."""
        if work.codec is not None and work.codec not in self._codecs.values():
            self._codecs[work.key] = work.codec
        return Leveled(self, work)

    def start(self, work: Work, bucket: Bucket) -> torch.futures.Future:
        """The mean of a bucket, in place."""
        self.full_size += size_of(bucket.values)
        copy = staging.HostCopy(bucket.values)
        self._gate.add(copy.future)
        scale = self._scale() / self._transport.size
        job = _Job(work, bucket, copy, self._started, scale, Undo(self._whole), high=bucket.values.numel())
        self._started += 1
        self._pass(job, ENCODE)
        return copy.future

    # ---- the way of a message ----

    def _pass(self, job: _Job, thread: int) -> None:
        """To a thread, which passes it on. All begin on the first: in the second, where all have
        collectives, they have its order."""
        self._threads[thread].submit(partial(self._run, job, thread))

    def _run(self, job: _Job, thread: int) -> None:
        if self._gate.shut:
            return
        if thread == ENCODE:
            job.copy.wait()
            job.values = job.copy.host.to(torch.float32, copy=True)
            if job.bucket.message is not None:
                job.bucket.message.times["started"] = time.perf_counter()
        elif not self._compared:
            self._compared = True
            self._transport.agree_on_state("levels", step=job.bucket.step, plan=self._digest)
        with torch.no_grad():
            for op, stage in enumerate(job.work.option.stages):
                if stage.thread == thread:
                    self._stage(job, op, stage)
        # Past threads where it has nothing to do. In none of them is there then a collective that it could overtake.
        later = [stage.thread for stage in job.work.option.stages if stage.thread > thread]
        if later:
            self._pass(job, min(later))
        else:
            self._finish(job)

    def _stage(self, job: _Job, op: int, stage: Stage) -> None:
        begin = time.perf_counter()
        if stage.what == "comp":
            self._encode(job, stage)
            name = "encode_s"
        elif stage.what == "decomp":
            self._decode(job)
            name = "decode_s" if stage.thread == DECODE else "reduce_s"
        else:
            self._collective(job, op, stage)
            name = "inside_s" if stage.where == INTRA else "between_s" if stage.where == INTER else "flat_s"
        now = time.perf_counter()
        job.seconds[name] = job.seconds.get(name, 0.0) + now - begin
        if job.bucket.message is not None and job.holds:
            mark = {"encode_s": "encoded", "reduce_s": "summed"}.get(name)
            job.bucket.message.times.update({mark: now} if mark else {})

    def _finish(self, job: _Job) -> None:
        self.sent_size += job.sent_size
        self.received_size += job.received_size
        if job.bucket.message is not None:
            sizes = {"sent_size": job.sent_size, "received_size": job.received_size}
            job.bucket.message.stages.update({**job.seconds, **sizes})
        with self._gate.passing(job.copy.future):  # with the memories: a failure undoes both or neither
            job.copy.host.copy_(job.values)
            if job.work.codec is not None and job.work.codec.has_memory:
                job.undo.spoilt = not is_finite(job.copy.host)  # the same on all ranks
                job.undo.put()
                job.undo.end_step(job.bucket.owners)
            job.copy.finish()

    # ---- codec work ----

    @contextlib.contextmanager
    def _named(self, job: _Job) -> Iterator[None]:
        """Errors of the library say whose they are."""
        try:
            yield
        except Error as error:
            where = f"{self._transport.name(self._transport.rank)}, {job.bucket.where}"
            raise Error(error.status, f"{where}: {error}") from error

    def _encode(self, job: _Job, stage: Stage) -> None:
        job.splits, job.count = [self._machines.count(where) for where in stage.splits], 1
        if not job.holds:
            return
        scale, array, rank = job.scale, job.values.numpy(), self._transport.rank
        for where in stage.later:
            scale *= self._machines.count(where)
        if not stage.later:  # machines that have the same mean must make the same frame of it: the first one's
            rank = self._machines.ranks(INTER, rank)[0]
        frames = []
        for low, high in job.parts():
            part = Part(job.bucket, job.work.key, rank, low, high, stage.position, scale, job.undo)
            with self._named(job):
                frames.append(job.work.codec.encode(array[low:high], part) if high > low else np.empty(0, np.uint8))
        job.frames = [frames]

    def _decode(self, job: _Job) -> None:
        """The mean of the contributions."""
        count, parts = job.count, job.parts()
        job.splits, job.count = [], 0
        if not job.holds:
            return
        values = job.values.numpy()
        for i, (low, high) in enumerate(parts):
            total = values[low:high]
            total[:] = 0
            for frames in job.frames:
                if frames[i].size:
                    with self._named(job):
                        job.work.codec.add(frames[i], total, 1.0 / count)
                elif high > low:
                    total[:] = np.nan  # its rank could not encode it
        job.frames = []

    # ---- collectives ----

    def _collective(self, job: _Job, op: int, stage: Stage) -> None:
        where = stage.where
        ranks = self._machines.ranks(where, self._transport.rank)
        peers = Peers(self._transport, ranks, job.number, op, job.bucket.where, stage.thread)
        takes_part = where != INTER or job.takes_part
        run = _RUNS[stage.what, job.count > 0]
        run(self, job, where, peers if takes_part else None)
        job.sent_size += peers.sent_size
        job.received_size += peers.received_size

    def _mine(self, where: str) -> int:
        """The number of this rank's part."""
        return self._machines.ranks(where, self._transport.rank).index(self._transport.rank)

    def _cut(self, job: _Job, where: str) -> list[tuple[int, int]]:
        """A first step takes what is held apart; the parts of all ranks."""
        job.outer[where] = (job.low, job.high)
        parts = bounds(job.low, job.high, self._machines.count(where))
        job.low, job.high = parts[self._mine(where)]
        return parts

    def _restore(self, job: _Job, where: str) -> list[tuple[int, int]]:
        """A second step puts it together; the parts."""
        job.low, job.high = job.outer.pop(where)
        return bounds(job.low, job.high, self._machines.count(where))

    def _to_root(self, job: _Job, where: str) -> None:
        """Only the first rank goes on."""
        job.outer[where] = (job.low, job.high)
        is_first = self._mine(where) == 0
        job.holds = job.holds and is_first
        if where != INTER:
            job.takes_part = is_first

    def _from_root(self, job: _Job, where: str) -> None:
        job.outer.pop(where)
        if where != INTER:
            job.takes_part = True
        job.holds = job.takes_part

    def _all_reduce(self, job: _Job, where: str, peers: Peers | None) -> None:
        if peers is not None:
            parts = bounds(job.low, job.high, self._machines.count(where))
            peers.all_reduce([job.values[low:high] for low, high in parts])

    def _reduce_scatter(self, job: _Job, where: str, peers: Peers | None) -> None:
        parts = self._cut(job, where)
        if peers is not None:
            peers.reduce_scatter([job.values[low:high] for low, high in parts])

    def _all_gather(self, job: _Job, where: str, peers: Peers | None) -> None:
        parts = self._restore(job, where)
        if peers is not None:
            peers.all_gather([job.values[low:high] for low, high in parts])

    def _reduce(self, job: _Job, where: str, peers: Peers | None) -> None:
        if peers is not None:
            peers.reduce(job.values[job.low : job.high])
        self._to_root(job, where)

    def _broadcast(self, job: _Job, where: str, peers: Peers | None) -> None:
        if peers is not None:
            peers.broadcast(job.values[job.low : job.high])
        self._from_root(job, where)

    # ---- of frames ----

    def _room_size(self, job: _Job, parts: Sequence[tuple[int, int]], count: int) -> int:
        """Bytes that suffice for a message of so many contributions of these parts."""
        return count * sum(8 + (job.work.codec.bound(high - low) if high > low else 0) for low, high in parts)

    def _message(self, job: _Job, first: int = 0, end: int | None = None) -> Message:
        """The frames of parts first to before end, of all contributions."""
        return Message.of([frame for frames in job.frames for frame in frames[first:end]])

    @staticmethod
    def _frames_of(message: Message, parts: int) -> list[list[np.ndarray]]:
        return [message.frames[i : i + parts] for i in range(0, len(message.frames), parts)]

    def _all_to_all(self, job: _Job, where: str, peers: Peers | None) -> None:
        self._cut(job, where)
        size = job.splits.pop(0)
        parts, count = job.parts(), job.count
        job.count *= size
        if peers is None:
            return
        each = len(parts)
        going = [self._message(job, i * each, (i + 1) * each) for i in range(size)]
        found = peers.all_to_all(going, count * each, self._room_size(job, parts, count))
        job.frames = [frames for message in found for frames in self._frames_of(message, each)]

    def _gather(self, job: _Job, where: str, peers: Peers | None) -> None:
        parts, count = job.parts(), job.count
        job.count *= self._machines.count(where)
        if peers is not None:
            room_size = self._room_size(job, parts, count)
            found = peers.gather(self._message(job), count * len(parts), room_size)
            job.frames = [frames for message in found or [] for frames in self._frames_of(message, len(parts))]
        self._to_root(job, where)

    def _all_gather_sums(self, job: _Job, where: str, peers: Peers | None) -> None:
        """Every rank gets all contributions."""
        parts, count, size = job.parts(), job.count, self._machines.count(where)
        job.count *= size
        if peers is not None:
            room_sizes = size * [self._room_size(job, parts, count)]
            found = peers.all_gather_frames(self._message(job), size * [count * len(parts)], room_sizes)
            job.frames = [frames for message in found for frames in self._frames_of(message, len(parts))]

    def _all_gather_frames(self, job: _Job, where: str, peers: Peers | None) -> None:
        """Every rank gets all parts of each contribution."""
        self._restore(job, where)
        each, size = len(job.parts()), self._machines.count(where)
        job.splits.insert(0, size)
        parts = job.parts()
        if peers is None:
            return
        room_sizes = [self._room_size(job, parts[i * each : (i + 1) * each], job.count) for i in range(size)]
        found = peers.all_gather_frames(self._message(job), size * [job.count * each], room_sizes)
        split = [self._frames_of(message, each) for message in found]
        job.frames = [[frame for frames in split for frame in frames[i]] for i in range(job.count)]

    def _broadcast_frames(self, job: _Job, where: str, peers: Peers | None) -> None:
        parts = job.parts()
        if peers is not None:
            mine = self._message(job) if job.holds else None
            message = peers.broadcast_frames(mine, job.count * len(parts), self._room_size(job, parts, job.count))
            job.frames = self._frames_of(message, len(parts))
        self._from_root(job, where)

    # ---- state and end ----

    def sizes(self) -> tuple[int, int]:
        return self.sent_size, self.received_size

    def state_dict(self) -> dict[str, Any]:
        """Of this rank alone: memories differ between ranks."""
        memories = {
            key: {name: one.clone() for name, one in codec.memory.items()} for key, codec in self._codecs.items()
        }
        return {
            "version": 1,
            "codec": "levels",
            "plan": self._digest,
            "machines": [list(ranks) for ranks in self._machines.places],
            "memory": memories,
        }

    def check_state(self, state: Mapping[str, Any]) -> None:
        """ValueError for a state that cannot be loaded."""
        check_version(state, "levels", ("plan", "machines", "memory"))
        if state["plan"] != self._digest:
            raise ValueError("the state that was loaded is that of a run with another plan")
        if state["machines"] != self._machines.places:  # memories are those of parts that depend on them
            raise ValueError("the state that was loaded is that of a run with other ranks on its machines")
        for memory in state["memory"].values():
            check_memories(memory)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.check_state(state)
        self._compared = False
        for key, codec in self._codecs.items():
            codec.memory = {name: as_memory(one) for name, one in state["memory"].get(key, {}).items()}

    def close(self) -> None:
        """Ends the threads."""
        for thread in self._threads:
            thread.close(10.0)


_RUNS: dict[tuple[str, bool], Callable[[Levels, _Job, str, Peers | None], None]] = {
    ("allreduce", False): Levels._all_reduce,
    ("reduce-scatter", False): Levels._reduce_scatter,
    ("reduce", False): Levels._reduce,
    ("allgather", False): Levels._all_gather,
    ("broadcast", False): Levels._broadcast,
    ("allgather-c", True): Levels._all_gather_sums,
    ("alltoall", True): Levels._all_to_all,
    ("gather", True): Levels._gather,
    ("allgather", True): Levels._all_gather_frames,
    ("broadcast", True): Levels._broadcast_frames,
}


class Leveled:
    """A message of a plan as a Reducer; bytes are those of the Levels."""

    plain_size = full_size = 0

    def __init__(self, levels: Levels, work: Work) -> None:
        self._levels, self._work = levels, work

    def start(self, bucket: Bucket) -> torch.futures.Future:
        return self._levels.start(self._work, bucket)
