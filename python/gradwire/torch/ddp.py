"""DistributedDataParallel: ddp.register_comm_hook(*gradwire.torch.ddp_hook(optimizer)).

docs/pytorch.md, "The way of a bucket", has the stations and threads between here and the pool.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import given, planned, staging
from .buckets import Bucket
from .choice import Choice
from .classic import ClassicState
from .codecs import Codecs
from .engine import EngineOwner
from .gcomp import hint
from .losses import LossWatch
from .map_timing import ForwardWatch, MapTiming, watch_steps
from .optimizers import ParamRegistry
from .options import CodecOptions
from .recording import Recording, check_writable
from .reducer import Hook, hook
from .resume import Resume
from .stats import Report, open_csv
from .thc import thc_hook
from .transport import Start, Transport
from .watch import BackwardWatch
from .workers import weakly

_HINT_STEP = 3  # DDP has made its last buckets

LossScale = (
    Any  # a number, a callable that returns one, or a GradScaler; None: 1, or that of a GradScaler that is found
)


def ddp_hook(
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer], *, codec: str = "gradwire", **options: Any
) -> tuple[Any, Callable[[Any, dist.GradBucket], torch.futures.Future]]:
    """State and hook for DistributedDataParallel.register_comm_hook().

        state, hook = gradwire.torch.ddp_hook(optimizer)
        ddp.register_comm_hook(state, hook)

    codec: "gradwire", with the options of DdpState and CodecOptions; "thc", with those of thc_hook(); or a name of
    gradwire.classic.SCHEMES ("dgc", "topk", "qsgd", ...), with those of ClassicState. To be called by all ranks, after
    the optimizer is made.
    """
    if codec == "gradwire":
        return DdpState(optimizer, **options), hook
    if codec == "thc":
        return thc_hook(optimizer, **options)
    return ClassicState(optimizer, codec, **options), hook


class DdpState(EngineOwner, Hook):
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
    machines: of a plan of an option tree: None: the ranks of a machine follow each other, as many as the plan has; that
    number; or the machine of each rank, by any numbers. plan_device: "cpu": codecs that such a plan has on a GPU run on
    the CPU; None: ValueError for them.
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
        machines: int | Sequence[int] | None = None,
        plan_device: str | None = None,
        record: str | os.PathLike | None = None,
        record_steps: tuple[int, int] = (3, 13),
        **options: Any,
    ) -> None:
        with Start("gradwire", group, transport, timeout) as start:
            rank, size = dist.get_rank(start.group), dist.get_world_size(start.group)
            buckets = [] if plan is None else planned.load(plan, size)
            planned.check_device(buckets, plan_device)
            made = given.optimizers_of(optimizer)
            given.check_keywords(options, CodecOptions, DdpState)
            _check_numbers(small_len=small_len, report_every=report_every)
            chosen = CodecOptions(**options)
            settings = chosen.settings(made)
            if buckets and chosen.algorithm != "a2a":
                raise ValueError(f"algorithm={chosen.algorithm!r}; with a plan it is 'a2a', which plans are solved for")
            registry = ParamRegistry(made, seed, chosen.rates(made))
            if record is not None and rank == 0:
                check_writable(record)
            self.choice = Choice("always" if buckets and compress == "auto" else compress, self._slowest, rank)
            file = open_csv(csv, rank)
            start.options = {
                **chosen.agreed(settings),
                "compress": compress,
                "small_len": small_len,
                "seed": seed,
                "plan": planned.digest(buckets),
                "machines": machines if machines is None or isinstance(machines, int) else list(machines),
                "record": record is not None,
                "record_steps": record_steps,
            }
        self.step = 0  # synchronised backward passes so far
        self.instead: Callable[[dist.GradBucket], torch.futures.Future] | None = None  # of the probe: for all buckets
        self._in_backward = self._hinted = False
        self._begin(start, settings, registry, chosen.notice(made))
        self._watch = BackwardWatch(self.gate.fail)
        self.gate.on_fail.append(self._watch.end)
        # Others may wait in an all-reduce of DDP's own group.
        self.gate.on_break.append(Transport(self.group, self.timeout).abort)
        # The module alone: DDP's C++ code keeps this state, and no collector sees that.
        model = model.module if isinstance(model, DistributedDataParallel) else model
        losses = LossWatch(registry, self.rank)
        self.maps = MapTiming(self.engine, losses, lambda: self.codecs.plans(), loss_scale, given.scaler_of(optimizer))
        where = {"group": self.group, "timeout": self.timeout, "machines": machines}
        self.codecs = Codecs(self.maps, chosen, **where, small_len=small_len, plan=buckets, model=model)
        self.resume = Resume(self.engine, self.choice, self.codecs)
        reducers = self.codecs.reducers
        self.report = Report(self, reducers, file=file, tensorboard=tensorboard, every=report_every)
        self._forward = ForwardWatch(self._on_forward)
        self.recording: Recording | None = None
        if record is not None:
            slowest = weakly(self._slowest)  # the parameters have hooks that keep the recording
            self.recording = Recording(os.fspath(record), range(*record_steps), registry.params(), slowest, self.rank)
            self.codecs.recording = self.recording
            self.engine.timing = True
            self._forward.begin()
        for one in made:
            watch_steps(one, weakly(self.maps.before_step), weakly(self._after_step))

    def sizes_of_others(self) -> tuple[int, int]:
        """Bytes that the plan's other codecs than this one sent and received, an all-reduce as a ring of all ranks."""
        return self.report.sizes()

    def _slowest(self, seconds: list[float]) -> list[float]:
        """Element by element the largest of all ranks' numbers, after all that was submitted: collective calls have
        one order on all ranks."""
        return self.engine.call(lambda: self.engine.transport.largest_seconds(seconds))

    # ---- between backward passes ----

    def _after_step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """The optimizer has made a step: state is new. None: as if it had."""
        if optimizer is not None:
            self.maps.losses.stepped(optimizer)
        if self.gate.closed:
            return
        if self.recording is not None:
            self.recording.step_ended()
        self.maps.after_step(self.choice.next_compresses(self.step))
        if self.maps.due or (self.recording is not None and not self.recording.written):
            self._forward.begin()

    def _on_forward(self) -> None:
        """The first forward pass of a step begins."""
        self._forward.end()
        if self.recording is not None and not self.gate.shut:
            self.recording.begin(self.step, self.codecs.names())
        self.maps.build()

    # ---- the hook ----

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future:
        with self.gate:
            if self.instead is not None:
                return self.instead(bucket)
            if not self._in_backward:
                self._in_backward = True
                self._watch.begin(sys._getframe())
                self._begin_backward()
            values, regroup = bucket.buffer(), self.codecs.regroup
            start = self.codecs.start if regroup is None else regroup.add
            future = start(Bucket(values, bucket.parameters(), bucket.gradients(), self.step))
            if bucket.is_last():
                future = self.codecs.end(future, values, f"step {self.step}, its end")
                self._end_backward(future, values.device)
            return future

    def _begin_backward(self) -> None:
        self.resume.compare(self.step)
        if self.recording is not None and self.step >= self.recording.steps.stop:
            self.recording.write()  # here all ranks are; a forward pass may be of one alone
        if self.choice.decision is None:  # the last step's time is there before one decides
            self.report.clock.known.wait(self.timeout.total_seconds())
        compressing = self.choice.compresses(self.step)
        self.maps.begin_backward(compressing)
        self.codecs.begin(compressing)
        if compressing and self.maps.used:
            self.maps.compare(self.step)
        elif compressing and self.engine.settings.books_every:
            where = f"step {self.step}, comparing codebooks"
            self.engine.compare_maps(self.codecs.plans(), where, step=self.step)

    def _end_backward(self, future: torch.futures.Future, device: torch.device) -> None:
        self._in_backward = False
        self._watch.end()
        step, self.step = self.step, self.step + 1
        if self.codecs.compressing or self.choice.decision is False:
            for one in self.codecs.gcomp:
                one.end()
        if self.codecs.compressing:
            self.engine.count_codebooks(self.codecs.plans(), step)
        if step >= _HINT_STEP and self.choice.decision and not self._hinted:
            self._hinted = True
            if self.rank == 0 and self.codecs.planned is None:
                hint(self.codecs.plans())
        self.report.clock.known.clear()
        future.then(lambda done: self._synchronised(step, device))

    def _synchronised(self, step: int, device: torch.device) -> None:
        stage, clock = staging.of(device), self.report.clock
        try:
            if stage is not None and self.choice.decision is None:
                stage.synchronize()  # the future of a GPU's bucket is done when the work is in the queue
            self.choice.record(step, clock.lap())
        finally:
            clock.known.set()
        self.report.step(step)

    # ---- state and end ----

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, besides model and optimizer, to give the same bits."""
        return self.resume.state_dict(self.step)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first backward pass, on all ranks: else all raise in that pass. ValueError for a state of another
        version or hook, or of THC or a classic codec for another model; nothing has changed then."""
        self.step = self.resume.load(state)

    def close(self) -> None:
        """Ends the threads. The hook raises afterwards. A state that is dropped ends them by itself, a little later."""
        self._forward.end()
        self._watch.close()
        self.codecs.close()
        self.engine.close()
        self.report.close()


def _check_numbers(**options: Any) -> None:
    """ValueError for one that is no integer from 0, or 1 for report_every."""
    for name, value in options.items():
        low = 1 if name == "report_every" else 0
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name}={value!r}; it is an integer from {low}")
