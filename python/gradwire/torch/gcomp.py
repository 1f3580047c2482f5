"""GCOMP in DDP's hook: buckets become operations of the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from . import staging
from .buckets import Bucket, Part, Room, offset_of
from .engine import Operation, Plan, Settings
from .map_timing import MapTiming
from .optimizers import ParamRegistry, Place
from .reducer import Plain, Stateless
from .stats import size_of

log = logging.getLogger("gradwire")
_HINT_LEN = 1 << 21  # values of a bucket from which on its size matters


class GcompReducer(Stateless):
    """One setting of the codec; bytes are in the engine's statistics. small_len: parts of a bucket with fewer values
    travel plain."""

    def __init__(self, settings: Settings, timing: MapTiming, plain: Plain, small_len: int) -> None:
        super().__init__()
        self.engine, self.settings = timing.engine, settings
        self.plans: dict[tuple[Any, ...], Plan] = {}  # of the buckets that have come
        self.rooms: dict[tuple[Any, ...], tuple[Room, Room]] = {}  # of those with parameters of two kinds
        self._timing, self._plain, self._small_len = timing, plain, max(small_len, 1)
        self.used: set[tuple[Any, ...]] = set()  # in this backward pass
        # Of messages as they travel: (bucket, future, whether it is an operation of the engine) -> future
        self.follow: Callable[[Bucket, torch.futures.Future, bool], torch.futures.Future] | None = None

    def begin(self) -> None:
        """A backward pass."""
        self.used = set()

    def end(self) -> None:
        """What has not come in this backward pass does not come again."""
        for key in set(self.plans) - self.used:
            self.engine.retire(self.plans.pop(key))
        for key in set(self.rooms) - self.used:
            del self.rooms[key]

    def start(self, bucket: Bucket) -> torch.futures.Future:
        settings, engine = self.settings, self.engine
        if settings.unknown is not None:
            known = known_of(engine.registry, bucket.params)
            if any(known) and not all(known):
                return self._start_mixed(bucket, known)
            settings = settings if all(known) else settings.unknown
        plan = self._plan(bucket, settings)
        copy = staging.HostCopy(bucket.values, plan.room)
        plan.room = copy.room
        self.full_size += size_of(bucket.values)
        operation = Operation(
            plan=plan,
            values=copy.host,
            result=copy.host,
            scale=1.0 / engine.transport.size,
            wire_scale=self._timing.scale(),
            step=bucket.step,
            where=bucket.where,
            copy=copy,
            message=bucket.message,
        )
        engine.gate.add(copy.future)
        future = self._followed(bucket, copy.future, True)  # before it can be done
        engine.control.submit(partial(engine.begin, operation))
        return future

    def _followed(self, bucket: Bucket, future: torch.futures.Future, of_engine: bool) -> torch.futures.Future:
        return future if self.follow is None else self.follow(bucket, future, of_engine)

    def _start_mixed(self, bucket: Bucket, known: list[bool]) -> torch.futures.Future:
        """Parameters that maps are known for, and others: each kind is a message of its own."""
        key = self._key(bucket, bucket.values.device, *known)
        rooms = self.rooms.setdefault(key, (Room(), Room()))
        kinds: list[tuple[Room, list[Part]]] = []
        futures = []
        for room, kind in zip(rooms, (True, False)):
            given = zip(bucket.params, bucket.gradients, known)
            parts = [Part(param, gradient, bucket.values) for param, gradient, one in given if one is kind]
            mine = room.gather(parts)
            mine.step, mine.number, mine.message = bucket.step, bucket.number, bucket.message
            plain = mine.values.numel() < self._small_len
            futures.append(self._followed(mine, self._plain.start(mine), False) if plain else self.start(mine))
            kinds.append((room, parts))

        def end() -> None:
            for (room, parts), future in zip(kinds, futures):
                future.wait()
                with self.engine.gate.passing():
                    room.scatter(parts)

        return staging.joined(futures, bucket.values, end)

    def _key(self, bucket: Bucket, *more: Any) -> tuple[Any, ...]:
        key = (bucket.values.numel(), bucket.values.dtype, *more, *map(id, bucket.params))
        self.used.add(key)
        return key

    def _plan(self, bucket: Bucket, settings: Settings) -> Plan:
        key = self._key(bucket)
        if key not in self.plans:
            places = places_of(self.engine.registry, bucket)
            self.plans[key] = self.engine.plan(bucket.values, places, settings=settings)
            self._timing.new_bucket()
            if settings.maps:
                self._timing.losses.bucket(bucket.values.numel(), bucket.params, places)
        return self.plans[key]


def known_of(registry: ParamRegistry, params: Sequence[torch.Tensor]) -> list[bool]:
    """Whether maps are known for each; those that no optimizer has lose nothing in a bucket with maps."""
    for param in params:
        registry.number(param)  # an optimizer may have got a group
    entries = [registry.entry(param) for param in params]
    return [entry is None or entry[2] is not None for entry in entries]


def places_of(registry: ParamRegistry, bucket: Bucket) -> list[Place]:
    """Where each parameter lies in a bucket. One whose gradient has another memory order gets no quanta."""
    places = []
    for param, gradient in zip(bucket.params, bucket.gradients):
        number = registry.number(param)
        if number is not None and gradient.numel() and gradient.stride() == param.stride():
            offset = offset_of(bucket.values, gradient)
            places.append(Place(param, offset, gradient.numel(), registry.stream_seed(number)))
    return sorted(places, key=lambda place: place.offset)


def hint(plans: Sequence[Plan]) -> None:
    """A bucket of DDP starts when its last gradient is there. What is compressed is soon sent, and the link idle until
    then."""
    if not plans:
        return
    largest, total = max(plans, key=lambda plan: plan.len), sum(plan.len for plan in plans)
    longest = max((place.len for place in largest.places), default=0)
    if largest.len > max(_HINT_LEN, total // 4, 2 * longest - 1):  # a single gradient cannot be cut
        log.warning(
            "gradwire: one of DDP's buckets has %.0f %% of the gradients, and is sent when the last of them is "
            "there: DistributedDataParallel(..., bucket_cap_mb=4) may be faster",
            100 * largest.len / total,
        )
