"""DistributedDataParallel: ddp.register_comm_hook(*gradwire.torch.ddp_hook(optimizer))."""

from __future__ import annotations

import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import gradwire.maps
from gradwire.gcomp import Options

from . import optimizers
from .choice import Choice
from .engine import CODEC_DTYPES, Engine, Operation, Plan, Settings
from .optimizers import Book, Place
from .replay import Layout, Replay
from .stats import Report, StepClock
from .transport import Transport

LossScale = Any  # a number, a callable that returns one, or a GradScaler


def ddp_hook(
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer], **options: Any
) -> tuple[DdpState, Callable[[DdpState, dist.GradBucket], torch.futures.Future]]:
    """State and hook for DistributedDataParallel.register_comm_hook(). Options: those of DdpState.

        state, hook = gradwire.torch.ddp_hook(optimizer)
        ddp.register_comm_hook(state, hook)

    To be called by all ranks, after the optimizer is made.
    """
    return DdpState(optimizer, **options), hook


def hook(state: DdpState, bucket: dist.GradBucket) -> torch.futures.Future:
    """The communication hook: the mean of a bucket over the ranks, in place."""
    return state.reduce(bucket)


# DDP compares them with the types themselves, not with their names.
hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


class DdpState:
    """What the hook keeps from step to step. One for each DDP module.

    tolerance_bits: 1..23, an encode moves no parameter by more than 2^-tolerance_bits of it. noise: 0, or 2^-8..1,
    limit of the noise by the second moment (Adagrad, RMSprop, Adam, AdamW). levels: "derived" (receivers know the
    quanta from their own optimizer state), "carried" or "explicit"; "auto": derived where the optimizer is known, else
    carried. deep_cut: values below their quantum become 0 or one quantum; None: where there is a noise limit or no
    second moment. nmse: carried levels of an unknown optimizer: share of error that a message may add. rounding,
    checksum: as in gradwire.Options. contribution_bits: how much finer contributions are than their sum. fallback:
    levels while the ranks' states differ, "carried" or "explicit".

    compress: "auto" measures the first steps and steps aside where plain all-reduce is faster; "always"; "never".
    small_len: buckets of fewer values travel plain. threads: of the native pool. piece_len: values of a message.
    group: process group of DDP, None for the default one. transport: a Gloo group of the same ranks for nothing else;
    None: one is made, which is a collective call of *all* processes. timeout: of a message; None: that of the group.
    loss_scale: a GradScaler, a number or a callable. seed: of stochastic rounding. debug: results are compared across
    ranks. csv: a path, rank 0 writes statistics there. tensorboard: a SummaryWriter. report_every: steps between two
    lines of statistics.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        tolerance_bits: int = 14,
        noise: float = 0.0,
        levels: str = "auto",
        deep_cut: bool | None = None,
        nmse: float = 1e-3,
        rounding: str = "stochastic",
        checksum: bool = True,
        contribution_bits: int = 0,
        fallback: str = "carried",
        compress: str = "auto",
        small_len: int = 1 << 14,
        threads: int = 2,
        piece_len: int = 1 << 18,
        group: Any = None,
        transport: Any = None,
        timeout: timedelta | None = None,
        loss_scale: LossScale = 1.0,
        seed: int = 0,
        debug: bool = False,
        csv: str | None = None,
        tensorboard: Any = None,
        report_every: int = 100,
    ) -> None:
        made = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self.group = dist.group.WORLD if group is None else group
        self.timeout = timeout or timeout_of(self.group)
        self.loss_scale = loss_scale
        self.small_len = small_len
        self._book = Book(made, seed)
        settings = make_settings(
            made,
            tolerance_bits=tolerance_bits,
            noise=noise,
            levels=levels,
            deep_cut=deep_cut,
            nmse=nmse,
            rounding=rounding,
            checksum=checksum,
            contribution_bits=contribution_bits,
            fallback=fallback,
            threads=threads,
            piece_len=piece_len,
            debug=debug,
        )
        self._transport = new_transport(self.group, transport, self.timeout)
        self.rank, self.size = self._transport.rank, self._transport.size
        self.engine = Engine(self._transport, settings, self._book)
        self.choice = Choice(compress, self._slowest, self.rank)
        self.step = 0  # synchronised backward passes so far
        self.clock = StepClock()
        self.report = Report(self, csv=csv, tensorboard=tensorboard, every=report_every)
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._used: set[tuple[Any, ...]] = set()
        self._in_backward = False
        self._compressing = False
        self._map_due = False
        self._map_submitted = False
        self._map_inputs: tuple[Any, ...] = ()  # of the last maps
        self._warned = False
        self._forward_handle: Any = None
        self._layout: Layout = []  # of the last backward pass
        self._replay: Replay | None = None
        for one in made:
            watch_steps(one, self)

    # ---- maps ----

    def on_step(self) -> None:
        """The optimizer has made a step: state is new. The maps wait for the next forward pass, when a scheduler has
        set the learning rate of the next step."""
        if self.engine.settings.maps and self._plans and self.choice.next_compresses(self.step):
            self._map_due = True
            if self._forward_handle is None:
                register = torch.nn.modules.module.register_module_forward_pre_hook
                self._forward_handle = register(_forward_trigger(weakref.ref(self)))

    def before_step(self) -> None:
        """State is about to change: no map may be being built from it."""
        if self._map_submitted and self.engine.error is None:
            self._map_submitted = False
            self.engine.call(lambda: None)

    def build_maps(self) -> None:
        """Maps for the next backward pass, from the state as it is now."""
        if self._forward_handle is not None:
            self._forward_handle.remove()
            self._forward_handle = None
        if self._map_due and self._plans:
            self._map_due = False
            self._map_inputs = self._inputs()
            self._map_submitted = True
            self.engine.build_maps(list(self._plans.values()), self._wire_scale())

    def _inputs(self) -> tuple[Any, ...]:
        """What a map depends on, besides state that only optimizer.step() changes."""
        return (self._wire_scale(), *self._book.hyperparameters())

    def _wire_scale(self) -> float:
        scale = self.loss_scale
        if hasattr(scale, "get_scale"):
            scale = scale.get_scale()
        elif callable(scale):
            scale = scale()
        return float(scale) * self.size

    def _check_inputs(self) -> None:
        """A rate that grew after the maps were made, or a loss scale that fell when a step was skipped, loosens
        the tolerance: such maps are made again."""
        if self._map_inputs == self._inputs():
            return
        if not self._warned and self._map_inputs[1:] != self._inputs()[1:]:
            self._warned = True
            warnings.warn(
                "gradwire: a learning rate or another hyperparameter changed between forward and backward: maps are "
                "made again, and the step waits for them. Step schedulers before the forward pass.",
                stacklevel=2,
            )
        self._map_due = True
        self.build_maps()

    def _slowest(self, seconds: list[float]) -> list[float]:
        """After all that was submitted: collective calls have one order on all ranks."""
        return self.engine.call(lambda: self._transport.largest_seconds(seconds))

    # ---- the hook ----

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        self.engine.raise_error()
        if not self._in_backward:
            self._begin_backward()
        values, params, gradients = bucket.buffer(), bucket.parameters(), bucket.gradients()
        if self._replay is not None:
            future = self._replay.add(values, params, gradients)
        else:
            future = self._reduce(values, params, gradients)
        if bucket.is_last():
            replay, self._replay = self._replay, None
            if replay is not None:
                self._end_backward(replay.run(self._conclude))
            else:
                future = self._conclude(future)
                self._end_backward(future)
        return future

    def _conclude(self, future: torch.futures.Future) -> torch.futures.Future:
        """Like that of the last bucket, but fails if any operation of the step failed on any rank."""
        if not self._used:
            return future
        good: torch.futures.Future = torch.futures.Future()
        self.engine.conclude(lambda: good.set_result(None), lambda error: fail_future(good, error))
        return torch.futures.collect_all([good, future]).then(lambda both: [one.value() for one in both.value()][1])

    def _reduce(
        self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> torch.futures.Future:
        self._layout.append([self._book.number(param) for param in params])
        if self._compressing and self._compressible(values):
            return self._compressed(values, params, gradients)
        return self._plain(values)

    def _begin_backward(self) -> None:
        self._in_backward = True
        self._compressing = self.choice.compresses(self.step)
        self._used = set()
        self._layout = []
        if not (self._compressing and self._plans and self.engine.settings.maps):
            return
        if self._map_due:
            self.build_maps()  # no forward pass was seen
        elif self._map_inputs:
            self._check_inputs()
        self.engine.compare_maps(list(self._plans.values()))

    def _end_backward(self, future: torch.futures.Future) -> None:
        self._in_backward = False
        step, self.step = self.step, self.step + 1
        if self._compressing or self.choice.decision is False:
            for key in set(self._plans) - self._used:
                self.engine.retire(self._plans.pop(key))
        future.then(lambda done: self._synchronised(step))

    def _synchronised(self, step: int) -> None:
        self.choice.record(step, self.clock.lap())
        self.report.step(step)

    def _compressible(self, values: torch.Tensor) -> bool:
        fits = values.dtype in CODEC_DTYPES and values.device.type == "cpu"
        return fits and values.numel() >= max(self.small_len, 1) and self.size > 1

    def _plain(self, values: torch.Tensor) -> torch.futures.Future:
        self.report.plain_size += values.numel() * values.element_size()
        if values.dtype.is_floating_point:
            values.div_(self.size)
        work = dist.all_reduce(values, group=self.group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    def _compressed(
        self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> torch.futures.Future:
        plan = self._plan(values, params, gradients)
        future: torch.futures.Future = torch.futures.Future()
        self.report.full_size += values.numel() * values.element_size()
        self.engine.submit(
            Operation(
                plan=plan,
                values=values,
                result=values,
                scale=1.0 / self.size,
                wire_scale=self._wire_scale(),
                step=self.step,
                on_done=lambda operation: future.set_result(values),
                on_error=lambda error: fail_future(future, error),
            )
        )
        return future

    def _plan(self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]) -> Plan:
        key = (values.numel(), values.dtype, *map(id, params))
        self._used.add(key)
        plan = self._plans.get(key)
        if plan is None:
            places = places_of(self._book, values, params, gradients)
            plan = self._plans[key] = self.engine.plan(values.numel(), values.dtype, places)
            self._map_inputs = self._inputs()
        return plan

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, besides model and optimizer, to give the same bits."""
        return {
            "version": 1,
            "step": self.step,
            "seed": self._book.seed,
            "choice": self.choice.state_dict(),
            "layout": [list(bucket) for bucket in self._layout],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.get("version") != 1:
            raise ValueError(f"a state of version {state.get('version')}; this package reads 1")
        self.step = state["step"]
        self._book.seed = self.engine.seed = state["seed"]
        self.choice.load_state_dict(state["choice"])
        if state["layout"] and not any(None in bucket for bucket in state["layout"]):
            self._replay = Replay(state["layout"], self._book.number, self._reduce)

    def check(self) -> None:
        """Raises if an operation failed on any rank or, in debug mode, if results differ. A collective call."""
        self.engine.raise_error()
        done = threading.Event()
        self.engine.conclude(done.set, lambda error: done.set())
        done.wait()
        self.engine.raise_error()

    def close(self) -> None:
        """Ends the threads. The hook must not be called afterwards."""
        if self._forward_handle is not None:
            self._forward_handle.remove()
            self._forward_handle = None
        self.report.close()
        self.engine.close()


def make_settings(
    made: Sequence[torch.optim.Optimizer],
    *,
    tolerance_bits: int,
    noise: float,
    levels: str,
    deep_cut: bool | None,
    nmse: float,
    rounding: str,
    checksum: bool,
    contribution_bits: int,
    fallback: str,
    threads: int,
    piece_len: int,
    debug: bool,
) -> Settings:
    """Settings of an engine from the options of DdpState."""
    known = bool(made) and all(optimizers.family(one) for one in made)
    moments = known and all(optimizers.has_second_moment(one) for one in made)
    if levels == "auto":
        levels = "derived" if known else "carried"
    if levels not in ("derived", "carried", "explicit"):
        raise ValueError(f"no levels {levels!r}; there are: auto, derived, carried, explicit")
    if fallback not in ("carried", "explicit"):
        raise ValueError(f"no fallback {fallback!r}; there are: carried, explicit")
    if not known and levels != "carried":
        raise ValueError(f"{levels} levels need an optimizer that maps are known for; use levels='carried'")
    if noise and not moments:
        raise ValueError("a noise limit needs an optimizer with a second moment")
    if deep_cut is None:
        deep_cut = levels == "carried" or bool(noise) or (known and not any(map(optimizers.has_second_moment, made)))

    def codec(name: str) -> Options:
        cut = deep_cut if name == "derived" else name == "carried"
        return Options(
            levels=name,
            rounding=rounding,
            tolerance_bits=tolerance_bits,
            deep_cut=cut,
            target_nmse=nmse if name == "carried" and not known else None,
            checksum=checksum,
        )

    return Settings(
        codec=codec(levels),
        spare=codec(fallback),
        limits=gradwire.maps.Limits(tolerance_bits=tolerance_bits, noise=noise),
        maps=known,
        agree=levels == "derived",
        contribution_bits=contribution_bits if levels != "explicit" else 0,
        piece_len=piece_len,
        threads=threads,
        debug=debug,
    )


def places_of(
    book: Book, values: torch.Tensor, params: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
) -> list[Place]:
    """Where each parameter lies in a bucket. One whose gradient has another memory order gets no quanta."""
    places = []
    for param, gradient in zip(params, gradients):
        number = book.number(param)
        if number is None or gradient.numel() == 0 or gradient.stride() != param.stride():
            continue  # one without values has no address
        offset = (gradient.data_ptr() - values.data_ptr()) // values.element_size()
        places.append(Place(param, offset, gradient.numel(), book.stream_seed(number)))
    return sorted(places, key=lambda place: place.offset)


def fail_future(future: torch.futures.Future, error: BaseException) -> None:
    if not future.done():
        future.set_exception(RuntimeError(f"gradwire: {error}"))


def watch_steps(optimizer: torch.optim.Optimizer, state: DdpState) -> None:
    """Calls state.before_step() and state.on_step() around optimizer.step()."""
    reference = weakref.ref(state)

    def before(*_: Any) -> None:
        alive = reference()
        if alive is not None:
            alive.before_step()

    def after(*_: Any) -> None:
        alive = reference()
        if alive is not None:
            alive.on_step()

    if hasattr(optimizer, "register_step_post_hook"):
        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
        return
    # torch 1.13 has no such hooks. Schedulers wrap optimizer.step too and need a bound method.
    original = optimizer.step.__func__ if hasattr(optimizer.step, "__func__") else None

    def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        before()
        result = original(self, *args, **kwargs) if original else inner(*args, **kwargs)
        after()
        return result

    inner = optimizer.step
    if hasattr(inner, "_with_counter"):
        step._with_counter = inner._with_counter
    optimizer.step = types.MethodType(step, optimizer)


def _forward_trigger(reference: weakref.ref) -> Callable[..., None]:
    def trigger(module: torch.nn.Module, *_: Any) -> None:
        state = reference()
        if (
            state is not None and module.training
        ):  # not for an evaluation, before a scheduler's step or of other weights
            state.build_maps()

    return trigger


def new_transport(group: Any, transport: Any, timeout: timedelta) -> Transport:
    """A Gloo group of the ranks of `group` for nothing else, unless one is given."""
    if transport is None and group is dist.group.WORLD:
        transport = dist.new_group(backend="gloo", timeout=timeout)
    elif transport is None:
        ranks = [dist.get_global_rank(group, i) for i in range(dist.get_world_size(group))]
        # torch 2: the group's own ranks suffice; 1.13: all processes must make it.
        local = {"use_local_synchronization": True} if hasattr(torch, "compile") else {}
        transport = dist.new_group(ranks, backend="gloo", timeout=timeout, **local)
    return Transport(transport, timeout)


def timeout_of(group: Any) -> timedelta:
    """How long a call of a group may take; what torch takes by default where the group does not say."""
    try:
        backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
        return backend.options._timeout
    except (AttributeError, RuntimeError):
        return timedelta(minutes=30)
