"""The codec that each bucket of DDP travels by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

import torch

from . import level_codecs, staging
from .buckets import Bucket
from .casts import Caster
from .classic import ClassicState
from .engine import Plan
from .gcomp import GcompReducer
from .levels import Levels, Work
from .machines import Given, agreed
from .map_timing import MapTiming
from .optimizers import family
from .options import CodecOptions
from .planned import LEVELS, PlanBucket, Planned, digest, names_of
from .recording import Recording
from .reducer import Plain, Reducer
from .regroup import Regroup
from .states import Undo, is_finite
from .thc import ThcState
from .transport import new_transport
from .workers import weakly

# Options that buckets have in common
_OF_ALL = {"algorithm", "threads", "debug", "peak_lr", "scheduler", "books", "books_every"}


@dataclass
class _Route:
    """What takes a bucket. kind: of ALGORITHMS; number: of a plan's bucket; label: in a recording."""

    reducer: Reducer
    kind: str
    label: str
    number: int | None = None


class Codecs:
    """Without a plan GCOMP, for buckets of small_len values or more that it takes; else plain. Making it is collective.
    model: for the names in a plan."""

    def __init__(
        self,
        timing: MapTiming,
        options: CodecOptions,
        *,
        group: Any,
        timeout: timedelta,
        small_len: int,
        plan: Sequence[PlanBucket],
        model: torch.nn.Module | None,
        machines: Given = None,
    ) -> None:
        self.compressing = False  # in this backward pass
        self.recording: Recording | None = None
        self.layout: list[list[int]] = []  # numbers of the parameters in the buckets of the last backward pass
        self.made: dict[str, dict[str, Any]] = {kind: {} for kind in ("fp16", "bf16", "thc", "classic", LEVELS)}
        self._engine, self._gate = timing.engine, timing.engine.gate
        self._timing, self._options = timing, options
        self._group, self._timeout, self.model = group, timeout, model
        self._small_len, self._has_plan = 0 if plan else small_len, bool(plan)
        self._names: dict[int, str] | None = None
        self._number = -1  # of the last bucket
        # Of results in this backward pass that its end waits for: debug, and with memories: those of other codecs than
        # GCOMP. The engine waits for its own operations, and the result of one that has failed comes never.
        self._awaited: list[torch.futures.Future] = []
        self._undo = Undo()  # of a plan: the memories of all its codecs count together
        self._has_memory = False  # a plan, and one of its codecs has
        self._gate.on_shut.append(weakly(self._undo_step))
        self.plain = Plain(group, self._engine.transport.size, self._gate)
        self.reducers: list[Reducer] = [self.plain]
        self.gcomp: list[GcompReducer] = []
        self._usual = _Route(self._add_gcomp(self._engine.settings), "gradwire", "gradwire")
        self._level_codecs: dict[str, level_codecs.LevelCodec] = {}
        routes = [
            _Route(self._reducer_of(number, one, plan, machines), one.kind, one.label, number)
            for number, one in enumerate(plan)
        ]
        self.planned: Planned | None = None
        if plan:
            self.planned = Planned(
                list(plan), lambda number, bucket: self.start(bucket, routes[number]), self.names, self._gate
            )
        self.regroup: Regroup | None = self.planned  # in the first step of a resumed run another one

    def plans(self) -> list[Plan]:
        """Of all buckets with GCOMP that have come."""
        return [plan for one in self.gcomp for plan in one.plans.values()]

    def names(self) -> dict[int, str]:
        """Of the parameters, by id."""
        if self._names is None:
            self._names = names_of(self._engine.registry.params(), self.model)
        return self._names

    # ---- a backward pass ----

    def begin(self, compressing: bool) -> None:
        self.compressing = compressing
        self.layout, self._number, self._awaited = [], -1, []
        for one in self.gcomp:
            one.begin()
        if self.regroup is not None:
            self.regroup.begin()

    def start(self, bucket: Bucket, route: _Route | None = None) -> torch.futures.Future:
        """Starts a bucket by its codec; the future of its mean. route: None: the one of buckets without a plan."""
        self._number += 1
        bucket.number = self._number
        length = bucket.values.numel()
        fits = self.compressing and self.takes(bucket.values)
        if route is None:
            self.layout.append([self._engine.registry.label(param) for param in bucket.params])
            route, fits = self._usual, fits and length >= self._small_len
        if fits and route.kind == "thc" and bucket.values.dtype != torch.float32:
            raise ValueError(f"gradwire: the plan's thc takes gradients of torch.float32, not of {bucket.values.dtype}")
        label = route.label if fits or route.kind == "none" else "fp32"
        message = bucket.message = None if self.recording is None else self.recording.message(label, length)
        reducer = route.reducer if fits else self.plain
        looks = self._has_memory and self.compressing
        if looks:
            bucket.owners = self._owners_in(bucket)
        future = reducer.start(bucket)
        if looks and not isinstance(reducer, GcompReducer):  # that follows what it makes of the bucket
            future = self._follow(bucket, future, False)
        if message is not None:
            future = future.then(message.ended)
        if self._options.debug and fits and route.kind not in ("none", "gradwire"):
            future = future.then(lambda done: self._engine.compared(route.number, done.value()))
            self._awaited.append(future)
        return future

    def _follow(self, bucket: Bucket, future: torch.futures.Future, of_engine: bool) -> torch.futures.Future:
        """Looks at the mean of a message before the step ends. of_engine: the engine ends the operation after what
        waits for its future."""
        if not (self._has_memory and self.compressing):
            return future
        future = future.then(lambda done: self._look(bucket, done.value()))
        if not of_engine:
            self._awaited.append(future)
        return future

    def _look(self, bucket: Bucket, result: torch.Tensor) -> torch.Tensor:
        """A mean that is not finite spoils the step of its optimizer: on all ranks, as all have the same bits."""
        if not is_finite(result):
            in_place = result.data_ptr() == bucket.values.data_ptr()
            given = zip(bucket.params, bucket.gradients)
            spoilt = [param for param, gradient in given if not (in_place and is_finite(gradient))]
            self._undo.spoil(self._owner_of(param) for param in spoilt)
        return result

    def _owner_of(self, param: torch.Tensor) -> int | None:
        """The number of its optimizer."""
        registry = self._engine.registry
        registry.number(param)  # an optimizer may have got a group
        entry, made = registry.entry(param), registry.optimizers
        return None if entry is None else next(number for number, one in enumerate(made) if one is entry[0])

    def _owners_in(self, bucket: Bucket) -> frozenset[int | None]:
        """Optimizers that may skip a step. A parameter that none has counts in a bucket of such parameters."""
        owners = frozenset(map(self._owner_of, bucket.params))
        return owners - {None} or owners

    def takes(self, values: torch.Tensor) -> bool:
        return staging.takes(values) and values.numel() > 0 and self._engine.transport.size > 1

    def end(self, future: torch.futures.Future, values: torch.Tensor, where: str) -> torch.futures.Future:
        """Like `future`, that of the last bucket, but fails if any operation of the step has failed on any rank."""
        if self.regroup is not None:
            self.regroup.finish()
            self.regroup = self.planned
        if not self._awaited and not any(one.used for one in self.gcomp):
            return future
        if self._awaited:  # the engine does not wait for them
            good: torch.futures.Future = torch.futures.Future()
            self._gate.add(good)
            torch.futures.collect_all(self._awaited).then(lambda _: self._engine.conclude(where, good))
        else:
            good = self._engine.conclude(where)
        ended = self._after_step(good) if self._has_memory else good
        return staging.gated(ended, future, values)

    def _after_step(self, good: torch.futures.Future) -> torch.futures.Future:
        """Done when the memories of all messages count, or none does. good: no rank has failed in any message."""
        ended: torch.futures.Future = torch.futures.Future()
        self._gate.add(ended)

        def end(_: torch.futures.Future) -> None:
            if self._gate.shut:  # which fails both
                return
            with self._gate.passing(ended):
                self._undo.end_step()
                ended.set_result(None)

        good.then(end)
        return ended

    def _undo_step(self) -> None:
        """For Gate.on_shut: a step in which anything fails does not count."""
        self._undo.cancel()

    # ---- codecs ----

    def reducer(self, kind: str, options: Mapping[str, Any], names: Sequence[str] = ()) -> Reducer:
        """A codec of ALGORITHMS for parameters of these names. Collective."""
        check_options(kind, options)
        if kind == "none":
            return self.plain
        if kind == "gradwire":
            owners = self._owners(names)
            return self._add_gcomp(self._options_of(options, owners).settings(owners))
        key = repr(sorted(options.items()))
        if key not in self.made[kind]:
            self.made[kind][key] = self._caster(kind) if kind in ("fp16", "bf16") else self._hook(kind, options)
            self.reducers.append(self.made[kind][key])
        return self.made[kind][key]

    def _reducer_of(self, number: int, one: PlanBucket, plan: Sequence[PlanBucket], given: Given) -> Reducer:
        """What runs a bucket of a plan. Collective."""
        if one.way is None:
            return self.reducer(one.kind, one.options, one.names)
        if LEVELS not in self.made[LEVELS]:
            transport = new_transport(self._group, None, self._timeout)
            transport.agree(LEVELS, {})
            placed = agreed(transport, given, one.way.nodes, one.way.gpus)
            scale = self._timing.scale
            self.made[LEVELS][LEVELS] = Levels(transport, placed, self._gate, scale, digest(plan), self._undo)
            self.reducers.append(self.made[LEVELS][LEVELS])
        codec = None if one.way.kind is None else self.level_codec(one.way.kind, one.options, one.names)
        self._has_memory |= codec is not None and codec.has_memory
        return self.made[LEVELS][LEVELS].add(Work(one.way.option, codec, str(number)))

    def level_codec(self, kind: str, options: Mapping[str, Any], names: Sequence[str]) -> level_codecs.LevelCodec:
        """One for all buckets with the same options, of the same optimizers."""
        check_options(kind, options)
        owners = self._owners(names)
        key = repr((kind, sorted(options.items()), [id(one) for one in owners]))
        if key not in self._level_codecs:
            self._level_codecs[key] = level_codecs.make(
                kind,
                options,
                lambda: self._options_of(options, owners),
                owners,
                self._engine.registry,
                self._engine.transport.size,
            )
        return self._level_codecs[key]

    def _add_gcomp(self, settings: Any) -> GcompReducer:
        made = GcompReducer(settings, self._timing, self.plain, self._small_len)
        self._timing.used |= settings.maps
        if self._has_plan:
            made.follow = self._follow
        self.gcomp.append(made)
        self.reducers.append(made)
        return made

    def _caster(self, kind: str) -> Caster:
        """One for each kind: bf16 may run on a thread, whose calls would come in another order on each rank."""
        transport = new_transport(self._group, None, self._timeout)
        made = Caster(kind, transport, self._gate)
        transport.agree("casts", {})
        self._gate.on_break.append(transport.abort)
        return made

    def _hook(self, kind: str, options: Mapping[str, Any]) -> ThcState | ClassicState:
        registry, given = self._engine.registry, {**options, "group": self._group, "timeout": self._timeout}
        if kind == "thc":
            made: Any = ThcState(registry.optimizers, seed=registry.seed, **given)
        else:
            made = ClassicState(registry.optimizers, given.pop("scheme"), seed=registry.seed, **given)
        made.join(self._gate, self._undo if self._has_plan else None)
        self._has_memory |= self._has_plan and made.has_memory
        return made

    def _owners(self, names: Sequence[str]) -> list[torch.optim.Optimizer]:
        """The optimizers of the parameters of these names; all if none has one."""
        by_id, wanted, made = self.names(), set(names), self._engine.registry.optimizers
        found = [
            one
            for one in made
            if any(by_id.get(id(param)) in wanted for group in one.param_groups for param in group["params"])
        ]
        return found or made

    def _options_of(self, options: Mapping[str, Any], owners: Sequence[torch.optim.Optimizer]) -> CodecOptions:
        """The hook's options with those of a bucket, without those that are for parameters of other buckets."""
        known = [family(one) is not None for one in owners]
        usual: dict[str, Any] = {"nmse": None} if all(known) else {} if any(known) else {"tolerance_bits": "auto"}
        return replace(self._options, **{**usual, **options})

    def close(self) -> None:
        for one in self.reducers:
            one.close()


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """ValueError for options that a codec of a plan does not have."""
    if kind == "gradwire":
        unknown = set(options) - {field.name for field in fields(CodecOptions)} | set(options) & _OF_ALL
        if unknown:
            raise ValueError(f"plan: gradwire has no option {', '.join(sorted(unknown))} for a bucket")
    elif kind not in ("thc", "classic") and options:
        raise ValueError(f"plan: {kind} has no options, not {', '.join(sorted(options))}")
    elif kind == "classic" and "scheme" not in options:
        raise ValueError("plan: a classic codec names its scheme in the options")
