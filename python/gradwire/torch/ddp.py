"""DistributedDataParallel: ddp.register_comm_hook(*gradwire.torch.ddp_hook(optimizer))."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import given, planned, staging
from .casts import Caster
from .choice import Choice
from .engine import CODEC_DTYPES, Engine, Operation, Plan, Settings
from .losses import LossWatch
from .mixed import Mixed, Part, known_of
from .optimizers import Book, Place, family
from .options import CodecOptions
from .pending import fail_future
from .recording import Message, Recording, check_writable
from .replay import Layout, Replay
from .scalers import Scalers, on_stack
from .states import Copies, check_version
from .stats import Report, StepClock, size_of
from .transport import Start, Transport, collective_error, new_transport, timeout_of
from .watch import BackwardWatch
from .workers import weakly

log = logging.getLogger("gradwire")
_HINT_STEP = 3  # DDP has made its last buckets
_SCALER_LOOKS = 16  # steps of any of the optimizers
_HINT_LEN = 1 << 21  # values of a bucket from which on its size matters

LossScale = (
    Any  # a number, a callable that returns one, or a GradScaler; None: 1, or that of a GradScaler that is found
)


def ddp_hook(
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer], *, codec: str = "gradwire", **options: Any
) -> tuple[Any, Callable[[Any, dist.GradBucket], torch.futures.Future]]:
    """State and hook for DistributedDataParallel.register_comm_hook().

        state, hook = gradwire.torch.ddp_hook(optimizer)
        ddp.register_comm_hook(state, hook)

    codec: "gradwire", with the options of DdpState and CodecOptions, or a name of gradwire.classic.SCHEMES ("dgc",
    "topk", "qsgd", ...), with those of ClassicState. To be called by all ranks, after the optimizer is made.
    """
    if codec == "gradwire":
        return DdpState(optimizer, **options), hook
    from .classic import ClassicState  # it needs this module

    return ClassicState(optimizer, codec, **options), hook


def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future:
    """The communication hook: the mean of a bucket over the ranks, in place."""
    return state.reduce(bucket)


# DDP compares them with the types themselves, not with their names.
hook.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


class DdpState(Copies):
    """What the hook keeps from step to step. One for each DDP module.

    compress: "auto" measures the first steps and steps aside where plain all-reduce is faster; "always"; "never".
    small_len: buckets of fewer values travel plain. group: process group of DDP, None for the default one. transport: a
    Gloo group of the same ranks for nothing else; None: one is made, which is a collective call of these ranks.
    timeout: of a message; None: that of the group. loss_scale: a GradScaler, a number or a callable; None: that of a
    GradScaler that is seen to call an optimizer's step(), in passes whose loss it scales, else 1. seed: of
    stochastic rounding. csv: a path, rank 0 writes statistics there. tensorboard: a SummaryWriter. report_every: steps
    between two lines of statistics. options: those of CodecOptions.

    plan: a file of `gradwire plan solve` or `plan export`: gradients travel in its buckets, each by its codec; the
    other options hold for what the plan does not say. model: the module whose names of parameters the plan has; without
    one they are parameter.N in the order of the optimizer. ValueError if the plan was made for another number of ranks.
    record: a path, rank 0 writes there a recording of the steps from record_steps[0] to before record_steps[1], for
    `gradwire plan import` and `plan check`, over an existing file. OSError if it cannot write there.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        compress: str = "auto",
        small_len: int = 1 << 14,
        group: Any = None,
        transport: Any = None,
        timeout: timedelta | None = None,
        loss_scale: LossScale = None,
        seed: int = 0,
        csv: str | None = None,
        tensorboard: Any = None,
        report_every: int = 100,
        plan: str | os.PathLike | Mapping[str, Any] | None = None,
        model: torch.nn.Module | None = None,
        record: str | os.PathLike | None = None,
        record_steps: tuple[int, int] = (3, 13),
        **options: Any,
    ) -> None:
        self.group = dist.group.WORLD if group is None else group
        self.timeout = timeout or timeout_of(self.group)
        with Start("gradwire", self.group, transport, self.timeout) as start:
            self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
            buckets = [] if plan is None else planned.load(plan, self.size)
            made = given.optimizers_of(optimizer)
            given.check_keywords(options, CodecOptions, DdpState)
            _check_numbers(small_len=small_len, report_every=report_every)
            self._options = CodecOptions(**options)
            settings = self._options.settings(made)
            self._book = Book(made, seed, self._options.rates(made))
            if record is not None and self.rank == 0:
                check_writable(record)
            self.choice = Choice("always" if buckets and compress == "auto" else compress, self._slowest, self.rank)
            self.report = Report(self, csv=csv, tensorboard=tensorboard, every=report_every)
            start.options = {
                **self._options.agreed(settings),
                "compress": compress,
                "small_len": small_len,
                "seed": seed,
                "plan": planned.digest(buckets),
                "record": record is not None,
                "record_steps": record_steps,
            }
        self._transport = start.transport
        self.loss_scale = loss_scale
        self._scalers = Scalers()
        self._scaler_looks = _SCALER_LOOKS if loss_scale is None else 0  # steps in which one is looked for
        wrapped = given.scaler_of(optimizer)
        if loss_scale is None and wrapped is not None:
            self._scalers.add(wrapped)
        self.small_len = small_len
        self.engine = Engine(self._transport, settings, self._book)
        weakref.finalize(self, self.engine.abandon).atexit = False
        self.engine.on_fail.append(weakly(self._failed))
        self.engine.on_break.append(weakly(self._break))
        self.step = 0  # synchronised backward passes so far
        self.instead: Callable[[dist.GradBucket], torch.futures.Future] | None = None  # of the probe: for all buckets
        self.clock = StepClock()
        self._lapped = threading.Event()  # the last step has been timed
        self._lapped.set()
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._used: set[tuple[Any, ...]] = set()
        self._others: list[torch.futures.Future] = []  # debug: of other codecs' results in this backward pass
        self._in_backward = False
        self._bucket = -1  # the last of this backward pass, for errors
        self._scale: float | None = None  # of the wire, in a backward pass
        self._maps = settings.maps  # of any bucket
        self._compressing = False
        self._map_due = False
        self._map_submitted = False
        self._map_inputs: tuple[Any, ...] = ()  # of the last maps
        self._map_versions: tuple[int, ...] | None = None  # at the first backward pass with them
        self._warned = False
        self._compared = False  # the ranks have loaded the same state
        self._hinted = False
        self._forward_handle: Any = None
        self._layout: Layout = []  # of the last backward pass
        self._replay: Replay | None = None
        self._watch = BackwardWatch(self.engine.fail)
        # The module alone: DDP's C++ code keeps this state, and no collector sees that.
        self._model = model.module if isinstance(model, DistributedDataParallel) else model
        self._names: dict[int, str] | None = None
        self._casters: dict[str, Caster] = {}
        self._thc: dict[str, Any] = {}  # ThcState by its options
        self._classic: dict[str, Any] = {}  # ClassicState by its options
        self._planned: planned.Planned | None = None
        if buckets:
            self._planned = planned.Planned(buckets, [self._run_of(i, bucket) for i, bucket in enumerate(buckets)])
        self.recording: Recording | None = None
        if record is not None:
            slowest = weakly(self._slowest)  # the parameters have hooks that keep the recording
            self.recording = Recording(os.fspath(record), range(*record_steps), self._book.params(), slowest, self.rank)
            self.engine.timing = True
            self._watch_forward()
        self._mixed: dict[tuple[Any, ...], Mixed] = {}  # buckets of known and other optimizers
        self._losses = LossWatch(self._book, self.rank)
        notice = self._options.notice(made)
        if notice and self.rank == 0:
            log.warning("gradwire: %s", notice)
        for one in made:
            watch_steps(one, self)

    # ---- plans ----

    def _run_of(self, number: int, bucket: planned.Bucket) -> Callable[..., torch.futures.Future]:
        """What reduces bucket `number` of the plan: (values, params, gradients) -> future of the mean, in place."""
        run = self._codec(bucket.kind, dict(bucket.options), bucket.names)

        def start(values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]) -> Any:
            fits = self._compressing and self._codec_takes(values)
            if fits and bucket.kind == "thc" and values.dtype != torch.float32:
                raise ValueError(f"gradwire: the plan's thc takes gradients of torch.float32, not of {values.dtype}")
            chosen = run if fits else self._plain_of
            if fits and bucket.kind not in ("none", "gradwire"):
                self.report.full_size += values.numel() * values.element_size()
            label = bucket.label if fits or bucket.kind == "none" else "fp32"
            future = self._recorded(chosen, values, params, gradients, label)
            if self.engine.settings.debug and fits and bucket.kind not in ("none", "gradwire"):
                future = future.then(compare)
                self._others.append(future)
            return future

        def compare(done: torch.futures.Future) -> torch.Tensor:
            result = done.value()
            self.engine.compare(number, result)
            return result

        return start

    def _codec(
        self, kind: str, options: dict[str, Any], names: Sequence[str] = ()
    ) -> Callable[..., torch.futures.Future]:
        """A codec of ALGORITHMS with its options: (values, params, gradients, message) -> future."""
        if kind == "gradwire":
            of_all = {"threads", "debug", "peak_lr", "scheduler"}
            unknown = set(options) - set(vars(self._options)) | set(options) & of_all
            if unknown:
                raise ValueError(f"plan: gradwire has no option {', '.join(sorted(unknown))} for a bucket")
            owners = self._owners(names)
            settings = self._options_of(options, owners).settings(owners)
            self._maps = self._maps or settings.maps
            return lambda values, params, gradients, message: self._compressed(
                values, params, gradients, message, settings
            )
        if kind in ("fp16", "bf16"):
            self._refuse(kind, options)
            caster = self._make_caster(kind)
            return lambda values, params, gradients, message: caster.reduce(values, kind, self._where())
        if kind == "thc":
            thc = self._make_thc(options)
            return lambda values, params, gradients, message: thc.start(values, params)
        if kind == "classic":
            classic = self._make_classic(options)
            return lambda values, params, gradients, message: classic.start(values, params, gradients, self.step)
        self._refuse(kind, options)
        return self._plain_of

    def _owners(self, names: Sequence[str]) -> list[torch.optim.Optimizer]:
        """The optimizers of the parameters of these names; all if none has one."""
        by_id, wanted = planned.names_of(self._book.params(), self._model), set(names)
        found = [
            one
            for one in self._book.optimizers
            if any(by_id.get(id(param)) in wanted for group in one.param_groups for param in group["params"])
        ]
        return found or self._book.optimizers

    def _options_of(self, options: dict[str, Any], owners: Sequence[torch.optim.Optimizer]) -> CodecOptions:
        """The hook's options with those of a bucket, without those that are for parameters of other buckets."""
        known = [family(one) is not None for one in owners]
        usual: dict[str, Any] = {"nmse": None} if all(known) else {} if any(known) else {"tolerance_bits": "auto"}
        return replace(self._options, **{**usual, **options})

    @staticmethod
    def _refuse(kind: str, options: dict[str, Any]) -> None:
        if options:
            raise ValueError(f"plan: {kind} has no options, not {', '.join(sorted(options))}")

    def _make_caster(self, kind: str) -> Caster:
        """One for each kind: bf16 may run on a thread, whose calls would come in another order on each rank."""
        if kind not in self._casters:
            transport = new_transport(self.group, None, self.timeout)
            self._casters[kind] = Caster(transport, self.engine.fail)
            self._casters[kind].prepare(kind)
            transport.agree("casts", {})
            self.engine.on_break.append(transport.abort)
        return self._casters[kind]

    def _make_thc(self, options: dict[str, Any]) -> Any:
        from .thc import ThcState  # it needs this module

        key = repr(sorted(options.items()))
        if key not in self._thc:
            made = ThcState(
                self._book.optimizers, group=self.group, timeout=self.timeout, seed=self._book.seed, **options
            )
            self._fail_together(made)
            self._thc[key] = made
        return self._thc[key]

    def _make_classic(self, options: dict[str, Any]) -> Any:
        from .classic import ClassicState  # it needs this module

        key = repr(sorted(options.items()))
        if key not in self._classic:
            given = dict(options)
            if "scheme" not in given:
                raise ValueError("plan: a classic codec names its scheme in the options")
            scheme = given.pop("scheme")
            made = ClassicState(
                self._book.optimizers, scheme, group=self.group, timeout=self.timeout, seed=self._book.seed, **given
            )
            self._fail_together(made)
            self._classic[key] = made
        return self._classic[key]

    def _fail_together(self, other: Any) -> None:
        """An error of one ends both. Even one that all ranks raise: they do at the same place in the order of one, but
        not of the other, where one rank may wait for what another does not begin."""
        other.on_fail = partial(self.engine.fail, alone=True)
        self.engine.on_fail.append(partial(other.fail, alone=True))

    def sizes_of_others(self) -> tuple[int, int]:
        """Bytes that the plan's other codecs than this one sent and received, an all-reduce as a ring of all ranks."""
        made = self._classic.values()
        casters = [*self._casters.values(), *(one.caster for one in made if one.caster is not None)]
        same = sum(caster.sent_size for caster in casters)
        same += sum(2 * (self.size - 1) * thc.sent_size // self.size for thc in self._thc.values())
        return same + sum(one.sent_size for one in made), same + sum(one.received_size for one in made)

    # ---- failure ----

    @property
    def error(self) -> BaseException | None:
        """What ended the hook."""
        return self.engine.error

    def fail(self, error: BaseException) -> None:
        """Ends the hook on all ranks, as if an operation of this one had failed. For an error that the hook does not
        see: one in a forward pass, or before the first bucket of a backward pass."""
        self.engine.fail(error)

    def _failed(self, error: BaseException) -> None:
        self._watch.end()

    def _break(self) -> None:
        """Others may wait in an all-reduce of DDP's own group."""
        Transport(self.group, self.timeout).abort()

    # ---- maps ----

    def _on_step(self) -> None:
        """The optimizer has made a step: state is new. The maps wait for the next forward pass, when a scheduler has
        set the learning rate of the next step."""
        if self.engine.closed:
            return
        if self.recording is not None:
            self.recording.step_ended()
        if self._maps and self._plans and self.choice.next_compresses(self.step):
            self._map_due = True
        if self._map_due or (self.recording is not None and not self.recording.written):
            self._watch_forward()

    def _watch_forward(self) -> None:
        if self._forward_handle is None:
            register = torch.nn.modules.module.register_module_forward_pre_hook
            handles: list[Any] = []
            self._forward_handle = register(_forward_trigger(weakref.ref(self), handles))
            handles.append(self._forward_handle)

    def _on_forward(self) -> None:
        """The first forward pass of a step begins."""
        if self._forward_handle is not None:
            self._forward_handle.remove()
            self._forward_handle = None
        if self.recording is not None and self.engine.error is None:
            self.recording.begin(self.step, self._names_by_id())
        self._build_maps()

    def _before_step(self) -> None:
        """State is about to change: no map may be being built from it."""
        if self._map_submitted and self.engine.error is None and not self.engine.closed:
            self._map_submitted = False
            self.engine.call(lambda: None)

    def _build_maps(self) -> None:
        """Maps for the next backward pass, from the state as it is now."""
        if self._map_due and self._plans:
            self._map_due = False
            self._map_inputs = self._inputs()
            self._map_submitted = True
            self._map_versions = None
            self.engine.build_maps([plan for plan in self._plans.values() if plan.settings.maps], self._map_inputs[0])

    def _inputs(self) -> tuple[Any, ...]:
        """What a map depends on, besides parameters and state."""
        return (self._wire_scale(), self._book.hyperparameters(), self._book.loads(), self._book.look())

    def _wire_scale(self) -> float:
        scale = self.loss_scale
        if scale is None:
            scale = self._scalers.scale()
        elif hasattr(scale, "get_scale"):
            scale = scale.get_scale()
        elif callable(scale):
            scale = scale()
        return float(scale) * self.size

    def _find_scaler(self, optimizer: torch.optim.Optimizer) -> None:
        """In optimizer.step(), which a GradScaler may have called."""
        if self._scaler_looks == 0:
            return
        self._scaler_looks -= 1
        scaler = on_stack(sys._getframe(1))
        if scaler is not None and self._scalers.add(scaler) and self.rank == 0:
            name = type(optimizer).__name__
            log.info("gradwire: found the GradScaler that calls %s.step(): quanta follow its scale", name)

    def _check_inputs(self) -> None:
        """A rate that grew after the maps were made, or a loss scale that fell when a step was skipped, loosens
        the tolerance: such maps are made again. So are those of a state that has changed since a backward pass without
        a step of the optimizer after it."""
        before, now = self._map_inputs, self._inputs()
        same_state = self._map_versions is None or self._map_versions == self._book.versions()
        if before == now and same_state:
            return
        if not self._warned and before[1] != now[1]:
            self._warned = True
            warnings.warn(
                "gradwire: a learning rate or another hyperparameter changed between forward and backward: maps are "
                "made again, and the step waits for them. Step schedulers before the forward pass.",
                stacklevel=2,
            )
        self._map_due = True
        self._build_maps()

    def _slowest(self, seconds: list[float]) -> list[float]:
        """After all that was submitted: collective calls have one order on all ranks."""
        return self.engine.call(lambda: self._transport.largest_seconds(seconds))

    # ---- the hook ----

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        self.engine.raise_error()
        try:
            return self._reduce_bucket(bucket) if self.instead is None else self.instead(bucket)
        except Exception as error:  # on this rank alone, as far as it can know
            self.engine.fail(error)
            raise

    def _reduce_bucket(self, bucket: dist.GradBucket) -> torch.futures.Future:
        if not self._in_backward:
            self._begin_backward()
        values, params, gradients = bucket.buffer(), bucket.parameters(), bucket.gradients()
        if self._planned is not None:
            future = self._planned.add(values, params, gradients, self._names_by_id())
        elif self._replay is not None:
            future = self._replay.add(values, params, gradients)
        else:
            future = self._reduce(values, params, gradients)
        if bucket.is_last():
            if self._planned is not None:
                self._planned.finish()
            replay, self._replay = self._replay, None
            if replay is not None:
                self._end_backward(replay.run(self._conclude), values.device)
            else:
                future = self._conclude(future, values)
                self._end_backward(future, values.device)
        return future

    def _conclude(self, future: torch.futures.Future, values: torch.Tensor) -> torch.futures.Future:
        """Like that of the last bucket, but fails if any operation of the step failed on any rank."""
        if not self._used and not self._others:
            return future
        good: torch.futures.Future = torch.futures.Future()

        def conclude(_: Any = None) -> None:
            self.engine.conclude(lambda: good.set_result(None), lambda error: fail_future(good, error), where)

        where = f"step {self.step}, its end"
        if self._others:  # the engine does not wait for them
            torch.futures.collect_all(self._others).then(conclude)
        else:
            conclude()
        return staging.gated(good, future, values)

    def _reduce(
        self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> torch.futures.Future:
        self._layout.append([self._book.label(param) for param in params])
        if self._compressing and self._compressible(values):
            return self._recorded(self._compressed, values, params, gradients, "gradwire")
        return self._recorded(self._plain_of, values, params, gradients, "fp32")

    def _recorded(
        self,
        run: Callable[..., torch.futures.Future],
        values: torch.Tensor,
        params: list[torch.Tensor],
        gradients: list[torch.Tensor],
        label: str,
    ) -> torch.futures.Future:
        message = None if self.recording is None else self.recording.message(label, values.numel())
        self._bucket += 1
        future = run(values, params, gradients, message)
        if message is None:
            return future

        def end(done: torch.futures.Future) -> torch.Tensor:
            message.end()
            return done.value()

        return future.then(end)

    def _names_by_id(self) -> dict[int, str]:
        if self._names is None:
            self._names = planned.names_of(self._book.params(), self._model)
        return self._names

    def _begin_backward(self) -> None:
        self._in_backward = True
        self._watch.begin(sys._getframe())
        self._book.look()  # in plain steps too: a forecast follows its scheduler step by step
        self._scalers.begin()
        if not self._compared:
            self._compare_states()
        if self.recording is not None and self.step >= self.recording.steps.stop:
            self.recording.write()  # here all ranks are; a forward pass may be of one alone
        if self._planned is not None:
            self._planned.begin()
        if self.choice.decision is None:
            self._lapped.wait(self.timeout.total_seconds())  # the last step's time is there before one decides
        self._compressing = self.choice.compresses(self.step)
        self._scale = self._wire_scale() if self._compressing else None  # a GradScaler's is on the GPU
        self._used = set()
        self._others = []
        self._layout = []
        self._bucket = -1
        if not (self._compressing and self._maps):
            return
        self._losses.backward()
        if self._plans and self._map_due:
            self._build_maps()  # no forward pass was seen
        elif self._plans and self._map_inputs:
            self._check_inputs()
        if self._map_versions is None or not self._plans:  # new buckets get maps when they come
            self._map_versions = self._book.versions()
        self.engine.compare_maps(list(self._plans.values()), f"step {self.step}, comparing maps", step=self.step)

    def _compare_states(self) -> None:
        """A state that some ranks have not loaded: they would wait for messages that are not sent."""
        state = {
            "step": self.step,
            "seed": self._book.seed,
            "decision": self.choice.decision,
            "layout": None if self._replay is None else self._replay.layout,
        }
        self.engine.call(lambda: self._transport.agree_on_state("gradwire", **state))
        self._compared = True

    def _end_backward(self, future: torch.futures.Future, device: torch.device) -> None:
        self._in_backward = False
        self._watch.end()
        step, self.step = self.step, self.step + 1
        if self._compressing or self.choice.decision is False:
            for key in set(self._plans) - self._used:
                self.engine.retire(self._plans.pop(key))
            for key in set(self._mixed) - self._used:
                del self._mixed[key]
        if step >= _HINT_STEP and self.choice.decision and not self._hinted:
            self._hinted = True
            self._hint()
        self._lapped.clear()
        future.then(lambda done: self._synchronised(step, device))

    def _hint(self) -> None:
        """A bucket of DDP starts when its last gradient is there. What is compressed is soon sent, and the link idle
        until then."""
        plans = list(self._plans.values()) if self._planned is None else []
        if self.rank != 0 or not plans:
            return
        largest, total = max(plans, key=lambda plan: plan.len), sum(plan.len for plan in plans)
        longest = max((place.len for place in largest.places), default=0)
        if largest.len > max(_HINT_LEN, total // 4, 2 * longest - 1):  # a single gradient cannot be cut
            log.warning(
                "gradwire: one of DDP's buckets has %.0f %% of the gradients, and is sent when the last of them is "
                "there: DistributedDataParallel(..., bucket_cap_mb=4) may be faster",
                100 * largest.len / total,
            )

    def _synchronised(self, step: int, device: torch.device) -> None:
        stage = staging.of(device)
        try:
            if stage is not None and self.choice.decision is None:
                stage.synchronize()  # the future of a GPU's bucket is done when the work is in the queue
            self.choice.record(step, self.clock.lap())
        finally:
            self._lapped.set()
        self.report.step(step)

    def _compressible(self, values: torch.Tensor) -> bool:
        return self._codec_takes(values) and values.numel() >= self.small_len

    def _codec_takes(self, values: torch.Tensor) -> bool:
        fits = values.dtype in CODEC_DTYPES and staging.reaches(values.device) and not values.is_sparse
        return fits and values.numel() > 0 and self.size > 1

    def _plain_of(
        self,
        values: torch.Tensor,
        params: list[torch.Tensor],
        gradients: list[torch.Tensor],
        message: Message | None = None,
    ) -> torch.futures.Future:
        return self._plain(values)

    def _plain(self, values: torch.Tensor) -> torch.futures.Future:
        self.report.plain_size += size_of(values)
        if values.dtype.is_floating_point:
            values.div_(self.size)

        def end(total: Callable[[], torch.Tensor]) -> torch.Tensor:
            try:
                return total()
            except Exception as error:
                self.engine.fail(collective_error(error, where, begin))
                raise

        where, begin = self._where(), time.monotonic()
        return staging.all_reduce(values, self.group, end)

    def _where(self) -> str:
        return f"step {self.step}, bucket {max(self._bucket, 0)}"

    def _compressed(
        self,
        values: torch.Tensor,
        params: list[torch.Tensor],
        gradients: list[torch.Tensor],
        message: Message | None = None,
        settings: Settings | None = None,
    ) -> torch.futures.Future:
        chosen = settings or self.engine.settings
        if chosen.unknown is None:
            return self._exchanged(values, params, gradients, message, settings)
        known = known_of(self._book, params)
        if all(known):
            return self._exchanged(values, params, gradients, message, settings)
        if not any(known):
            return self._exchanged(values, params, gradients, message, chosen.unknown)
        key = (id(settings), values.numel(), values.dtype, values.device, *known, *map(id, params))
        mixed = self._mixed.get(key)
        if mixed is None:
            mixed = self._mixed[key] = Mixed(values, params, gradients, known)
        self._used.add(key)

        def run(kind: bool, flat: torch.Tensor, part: Part) -> torch.futures.Future:
            if flat.numel() < max(self.small_len if self._planned is None else 0, 1):
                return self._plain(flat)
            return self._exchanged(flat, part.params, part.gradients, message, chosen if kind else chosen.unknown)

        return mixed.reduce(values, run)

    def _exchanged(
        self,
        values: torch.Tensor,
        params: list[torch.Tensor],
        gradients: list[torch.Tensor],
        message: Message | None,
        settings: Settings | None,
    ) -> torch.futures.Future:
        plan = self._plan(values, params, gradients, settings)
        copy = staging.HostCopy(values, plan.room)
        plan.room = copy.room
        self.report.full_size += values.numel() * values.element_size()

        def done(operation: Operation) -> None:
            if message is not None:
                message.operation(operation)
            copy.finish()

        self.engine.submit(
            Operation(
                plan=plan,
                values=copy.host,
                result=copy.host,
                scale=1.0 / self.size,
                wire_scale=self._wire_scale() if self._scale is None else self._scale,
                step=self.step,
                where=self._where(),
                on_done=done,
                on_error=lambda error: fail_future(copy.future, error),
                wait=copy.wait,
            )
        )
        return copy.future

    def _plan(
        self,
        values: torch.Tensor,
        params: list[torch.Tensor],
        gradients: list[torch.Tensor],
        settings: Settings | None = None,
    ) -> Plan:
        key = (id(settings), values.numel(), values.dtype, *map(id, params))
        self._used.add(key)
        plan = self._plans.get(key)
        if plan is None:
            places = places_of(self._book, values, params, gradients)
            plan = self._plans[key] = self.engine.plan(values.numel(), values.dtype, places, settings=settings)
            self._map_inputs = self._inputs()
            if plan.settings.maps:
                self._losses.bucket(values.numel(), params, places)
        return plan

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, besides model and optimizer, to give the same bits."""
        return {
            "version": 1,
            "step": self.step,
            "seed": self._book.seed,
            "choice": self.choice.state_dict(),
            "rates": self._book.rates.state_dict(),
            "layout": [list(bucket) for bucket in self._layout],
            "thc": {key: thc.state_dict() for key, thc in self._thc.items()},
            "classic": {key: classic.state_dict() for key, classic in self._classic.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first backward pass, on all ranks: else all raise in that pass. ValueError for a state of another
        version or hook, or of THC or a classic codec for another model; nothing has changed then."""
        check_version(state, "gradwire", ("step", "seed", "choice", "layout"))
        for made, name in ((self._thc, "thc"), (self._classic, "classic")):  # before anything changes
            for key, other in made.items():
                if key in state.get(name, {}):
                    other.check_state(state[name][key])
        self.step = state["step"]
        self._book.seed = self.engine.seed = state["seed"]
        self.choice.load_state_dict(state["choice"])
        self._book.rates.load_state_dict(state.get("rates", ()))
        for key, thc in self._thc.items():
            if key in state.get("thc", {}):
                thc.load_state_dict(state["thc"][key])
        for key, classic in self._classic.items():
            if key in state.get("classic", {}):
                classic.load_state_dict(state["classic"][key])
        if self._planned is None and state["layout"] and not any(None in bucket for bucket in state["layout"]):
            self._replay = Replay(state["layout"], self._book.label, self._reduce)
        self._compared = False

    def check(self) -> None:
        """Raises if an operation failed on any rank or, in debug mode, if results differ. A collective call."""
        self.engine.raise_error()
        done = threading.Event()
        self.engine.conclude(done.set, lambda error: done.set(), "check()")
        done.wait()
        self.engine.raise_error()

    def close(self) -> None:
        """Ends the threads. The hook raises afterwards. A state that is dropped ends them by itself, a little later."""
        if self._forward_handle is not None:
            self._forward_handle.remove()
            self._forward_handle = None
        self._watch.close()
        for other in (*self._thc.values(), *self._classic.values(), *self._casters.values()):
            other.close()
        self.engine.close()
        self.report.close()


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


def _check_numbers(**options: Any) -> None:
    """ValueError for one that is no integer from 0, or 1 for report_every."""
    for name, value in options.items():
        low = 1 if name == "report_every" else 0
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name}={value!r}; it is an integer from {low}")


def watch_steps(optimizer: torch.optim.Optimizer, state: DdpState) -> None:
    """Calls state._before_step() and state._on_step() around optimizer.step()."""
    reference = weakref.ref(state)

    def before(*_: Any) -> None:
        alive = reference()
        if alive is not None:
            alive._find_scaler(optimizer)
            alive._before_step()

    def after(*_: Any) -> None:
        alive = reference()
        if alive is not None:
            alive._losses.stepped(optimizer)
            alive._on_step()

    # a wrapper that skips Optimizer.__init__ has the method, but not what it needs
    if hasattr(optimizer, "register_step_post_hook") and hasattr(optimizer, "_optimizer_step_post_hooks"):
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


def _forward_trigger(reference: weakref.ref, handles: list[Any]) -> Callable[..., None]:
    def trigger(module: torch.nn.Module, *_: Any) -> None:
        state = reference()
        if state is None:
            handles[0].remove()
        # not for an evaluation, before a scheduler's step or of other weights; a loss has no eval() then
        if state is not None and module.training and torch.is_grad_enabled():
            state._on_forward()

    return trigger
