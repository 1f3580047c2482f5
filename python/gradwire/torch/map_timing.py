"""When DDP's hook makes its precision maps: once a step, beside the forward pass, from the state that counts then."""

from __future__ import annotations

import logging
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .engine import Engine, Plan
from .losses import LossWatch
from .scalers import Scalers, on_stack

log = logging.getLogger("gradwire")
_SCALER_LOOKS = 16  # steps of any of the optimizers


class MapTiming:
    """Maps wait for the first forward pass after optimizer.step(), when a scheduler has set the rate of the next
    step. plans: of all buckets with maps or without. loss_scale: as in DdpState; wrapped: a GradScaler that a wrapper
    of the optimizer has."""

    def __init__(
        self, engine: Engine, losses: LossWatch, plans: Callable[[], list[Plan]], loss_scale: Any, wrapped: Any
    ) -> None:
        self.loss_scale = loss_scale
        self.used = engine.settings.maps  # by any bucket
        self.due = False
        self.inputs: tuple[Any, ...] = ()  # of the last maps
        self.engine, self._registry, self.losses, self._plans = engine, engine.registry, losses, plans
        self._scalers = Scalers()
        self._looks = _SCALER_LOOKS if loss_scale is None else 0  # steps in which a scaler is looked for
        if loss_scale is None and wrapped is not None:
            self._scalers.add(wrapped)
        self._scale: float | None = None  # of a backward pass that compresses: a GradScaler's is on the GPU
        self._submitted = False
        self._versions: tuple[int, ...] | None = None  # at the first backward pass with the last maps
        self._warned = False

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """State is about to change: no map may be being built from it."""
        self._find_scaler(optimizer)
        if self._submitted and not self.engine.gate.shut and not self.engine.gate.closed:
            self._submitted = False
            self.engine.call(lambda: None)

    def after_step(self, compresses: bool) -> None:
        """State is new. compresses: the coming step may."""
        self.due |= compresses and self.used and bool(self._plans())

    def build(self) -> None:
        """Maps for the next backward pass, from the state as it is now."""
        plans = self._plans() if self.due else []
        if plans:
            self.due = False
            self.inputs = self.inputs_now()
            self._submitted = True
            self._versions = None
            self.engine.build_maps([plan for plan in plans if plan.settings.maps], self.inputs[0])

    def begin_backward(self, compresses: bool) -> None:
        self._registry.look()  # in plain steps too: a forecast follows its scheduler step by step
        self._scalers.begin()
        self._scale = self._wire_scale() if compresses else None

    def compare(self, step: int) -> None:
        """A backward pass that compresses by maps begins: the ranks compare theirs."""
        self.losses.backward()
        plans = self._plans()
        if plans and self.due:
            self.build()  # no forward pass was seen
        elif plans and self.inputs:
            self._check_inputs()
        if self._versions is None or not plans:  # new buckets get maps when they come
            self._versions = self._registry.versions()
        self.engine.compare_maps(plans, f"step {step}, comparing maps", step=step)

    def new_bucket(self) -> None:
        """Its map is built from the state as it is now."""
        self.inputs = self.inputs_now()

    def inputs_now(self) -> tuple[Any, ...]:
        """What a map depends on, besides parameters and state."""
        return (self._wire_scale(), self._registry.hyperparameters(), self._registry.loads(), self._registry.look())

    def scale(self) -> float:
        """Of the wire, in this backward pass."""
        return self._wire_scale() if self._scale is None else self._scale

    def _wire_scale(self) -> float:
        scale = self.loss_scale
        if scale is None:
            scale = self._scalers.scale()
        elif hasattr(scale, "get_scale"):
            scale = scale.get_scale()
        elif callable(scale):
            scale = scale()
        return float(scale) * self.engine.transport.size

    def _find_scaler(self, optimizer: torch.optim.Optimizer) -> None:
        """In optimizer.step(), which a GradScaler may have called."""
        if self._looks == 0:
            return
        self._looks -= 1
        scaler = on_stack(sys._getframe(1))
        if scaler is not None and self._scalers.add(scaler) and self.engine.transport.rank == 0:
            name = type(optimizer).__name__
            log.info("gradwire: found the GradScaler that calls %s.step(): quanta follow its scale", name)

    def _check_inputs(self) -> None:
        """A rate that grew after the maps were made, or a loss scale that fell when a step was skipped, loosens
        the tolerance: such maps are made again. So are those of a state that has changed since a backward pass without
        a step of the optimizer after it."""
        before, now = self.inputs, self.inputs_now()
        same_state = self._versions is None or self._versions == self._registry.versions()
        if before == now and same_state:
            return
        if not self._warned and before[1] != now[1]:
            self._warned = True
            warnings.warn(
                "gradwire: a learning rate or another hyperparameter changed between forward and backward: maps are "
                "made again, and the step waits for them. Step schedulers before the forward pass.",
                stacklevel=2,
            )
        self.due = True
        self.build()


class ForwardWatch:
    """Calls the method `on_forward` at the next forward pass in training mode. Keeps nothing alive."""

    def __init__(self, on_forward: Callable[[], None]) -> None:
        self._on_forward = weakref.WeakMethod(on_forward)
        self._handle: Any = None

    def begin(self) -> None:
        if self._handle is not None:
            return
        reference, handles = self._on_forward, []

        def trigger(module: torch.nn.Module, *_: Any) -> None:
            on_forward = reference()
            if on_forward is None:
                handles[0].remove()
            # not for an evaluation, before a scheduler's step or of other weights; a loss has no eval() then
            elif module.training and torch.is_grad_enabled():
                on_forward()

        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(trigger)
        handles.append(self._handle)

    def end(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def watch_steps(
    optimizer: torch.optim.Optimizer,
    before: Callable[[torch.optim.Optimizer], Any],
    after: Callable[[torch.optim.Optimizer], Any],
) -> None:
    """Calls before(optimizer) and after(optimizer) around optimizer.step()."""
    # a wrapper that skips Optimizer.__init__ has the method, but not what it needs
    if hasattr(optimizer, "register_step_post_hook") and hasattr(optimizer, "_optimizer_step_post_hooks"):
        optimizer.register_step_pre_hook(lambda *_: before(optimizer))
        optimizer.register_step_post_hook(lambda *_: after(optimizer))
        return
    # torch 1.13 has no such hooks. Schedulers wrap optimizer.step too and need a bound method.
    original = optimizer.step.__func__ if hasattr(optimizer.step, "__func__") else None

    def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        before(optimizer)
        result = original(self, *args, **kwargs) if original else inner(*args, **kwargs)
        after(optimizer)
        return result

    inner = optimizer.step
    if hasattr(inner, "_with_counter"):
        step._with_counter = inner._with_counter
    optimizer.step = types.MethodType(step, optimizer)
