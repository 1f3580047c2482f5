"""The learning rate that counts for a precision map: the largest that a gradient meets while a momentum holds it."""

from __future__ import annotations

import copy
import logging
import math
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

log = logging.getLogger("gradwire")

# Where rates to come are not known: as if the momentum moved a parameter by 2^-12 of its size in a step. Updates of
# common trainings move it by about 2^-10 (docs/numerics.md section 2.7 has what this costs, at most a point).
UPDATE_BITS = 12
_HORIZON_MAX = 4096  # scheduler steps; a momentum of .998 at 14 bits needs as many
_FALLEN = 0.25  # of the largest rate: from there on a scheduler would save a byte for every four values or more
_SAME = 1 + 1e-6  # a schedule computed in another order


def horizon(left: float, bits: int) -> int:
    """Updates after which the weight of a gradient has fallen below 2^-bits."""
    if left <= 0:
        return 0
    return _HORIZON_MAX if left >= 1 else min(_HORIZON_MAX, math.ceil(bits * math.log(2) / -math.log(left)))


def plain_number(value: Any) -> float:
    """Of a hyperparameter, which may be a tensor."""
    return float(value.item() if isinstance(value, torch.Tensor) else value)


class Rates:
    """Rates of all parameter groups of some optimizers, in their order.

    peak_lr: the largest rate of the training, a number or one for each group; a group's rate above it is warned of.
    schedulers: of torch, what they will do is computed ahead; one for each optimizer that has one. Without either the
    largest rate seen counts, and is_known() is False. bits: the tolerance. bounded: which optimizers maps are known
    for; the rates of others do not matter. unwrap: from a scheduler's optimizer to that of the list. ValueError,
    TypeError say what is wrong.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        peak_lr: float | Sequence[float] | None = None,
        schedulers: Any = None,
        bits: int = 14,
        *,
        bounded: Sequence[bool] | None = None,
        unwrap: Callable[[Any], Any] = lambda optimizer: optimizer,
    ) -> None:
        self._optimizers = list(optimizers)
        self._bounded = [True] * len(self._optimizers) if bounded is None else list(bounded)
        self._bits = bits
        self._peaks = self._checked_peaks(peak_lr)
        self._forecasts = {}
        for scheduler in schedulers if isinstance(schedulers, Iterable) else [] if schedulers is None else [schedulers]:
            forecast = Forecast(scheduler)
            inside = unwrap(forecast.optimizer)
            number = next((i for i, one in enumerate(self._optimizers) if one is inside), None)
            if number is None:
                raise ValueError(
                    f"scheduler: {type(scheduler).__name__} is of an optimizer that the hook does not have"
                )
            if number in self._forecasts:
                raise ValueError(f"scheduler: optimizer {number} has two; torch's ChainedScheduler makes them one")
            self._forecasts[number] = forecast
        self._said: set[str] = set()
        self._has_looked = False
        self.seen = {
            (i, j): plain_number(group["lr"])
            for i, optimizer in enumerate(self._optimizers)
            for j, group in enumerate(optimizer.param_groups)
        }  # largest rate, by optimizer and group

    def _checked_peaks(self, peak_lr: float | Sequence[float] | None) -> list[float] | None:
        if peak_lr is None:
            return None
        count = sum(len(optimizer.param_groups) for optimizer in self._optimizers)
        peaks = [float(x) for x in peak_lr] if isinstance(peak_lr, Iterable) else [float(peak_lr)] * count
        if len(peaks) != count:
            raise ValueError(f"peak_lr has {len(peaks)} rates for {count} parameter groups")
        for group, peak in enumerate(peaks):
            if not 0 < peak < math.inf:
                raise ValueError(f"peak_lr of group {group} is {peak}; it must be positive and finite")
        return peaks

    def is_known(self, optimizer: torch.optim.Optimizer) -> bool:
        """Rates to come are, of this optimizer."""
        return self._peaks is not None or any(self._optimizers[i] is optimizer for i in self._forecasts)

    def look(self) -> dict[int, float]:
        """The rate that counts for the next update, by the id of a group's dict. Of groups added since, their own."""
        found: dict[int, float] = {}
        number = 0
        for i, optimizer in enumerate(self._optimizers):
            ahead = self._forecasts[i].look() if i in self._forecasts else None
            for j, group in enumerate(optimizer.param_groups):
                rate = plain_number(group["lr"])
                if self._peaks is not None:
                    counts = self._stated(number, rate)
                elif ahead is not None:
                    counts = max(rate, ahead.peak(j, self._memory(i, group), self._bits))
                else:
                    counts = self._largest((i, j), number, group, rate)
                found[id(group)] = counts
                number += 1
        self._has_looked = True
        return found

    def _stated(self, number: int, rate: float) -> float:
        peak = self._peaks[number] if number < len(self._peaks) else rate
        if rate > peak * _SAME:
            self._warn(
                f"group {number}: the learning rate {rate:g} is above peak_lr={peak:g}: gradients of the last updates "
                "were rounded for the latter. State the largest rate of the training."
            )
        return max(rate, peak)

    def _largest(self, key: tuple[int, int], number: int, group: dict[str, Any], rate: float) -> float:
        """The largest seen, with what schedulers of torch leave in the group."""
        seen = self.seen.get(key)
        largest = max(
            rate, seen or 0.0, *(plain_number(group[name]) for name in ("initial_lr", "max_lr") if name in group)
        )
        if self._has_looked and seen is not None and largest > seen * _SAME and self._memory(key[0], group):
            self._warn(
                f"group {number}: the learning rate has risen to {largest:g}, above all that were seen ({seen:g}). "
                "Gradients of the updates before were rounded for smaller rates, within a share of the momentum: pass "
                "peak_lr= or scheduler=, and they keep the tolerance."
            )
        if rate < largest * _FALLEN and self._memory(key[0], group):
            self._hint(
                f"group {number}: the learning rate is {rate:g}, but quanta are for {largest:g}, which may come "
                "again: with scheduler= they follow the schedule, and messages are smaller."
            )
        self.seen[key] = largest
        return largest

    def _memory(self, number: int, group: dict[str, Any]) -> float:
        """What is left of a gradient's weight in an update after one more, at most. 0: it meets one update only."""
        optimizer = self._optimizers[number]
        if not self._bounded[number]:
            return 0.0
        if (
            "betas" in group
        ):  # exp_avg keeps beta1; the denominator can shrink by sqrt(beta2) meanwhile, Adamax's by beta2
            beta1, beta2 = map(plain_number, group["betas"])
            beta2 = beta2 if isinstance(optimizer, torch.optim.Adamax) else math.sqrt(beta2)
            return beta1 / beta2 if beta2 else beta1
        return plain_number(group.get("momentum", 0.0))

    def _warn(self, text: str) -> None:
        if "warn" not in self._said:
            self._said.add("warn")
            warnings.warn(f"gradwire: {text}", stacklevel=4)

    def _hint(self, text: str) -> None:
        if "hint" not in self._said:
            self._said.add("hint")
            log.info("gradwire: %s", text)

    def state_dict(self) -> list[tuple[int, int, float]]:
        """The largest rates seen: what a resumed run cannot see again."""
        return [(*key, rate) for key, rate in self.seen.items()]

    def load_state_dict(self, state: Iterable[tuple[int, int, float]]) -> None:
        self.seen = {(i, j): rate for i, j, rate in state}


class Forecast:
    """The rates that a scheduler of torch will set, from steps of a copy of it on groups without parameters.

    The copy shares what the scheduler was given (functions of LambdaLR, for example), which must not depend on how
    often it is called. ReduceLROnPlateau only lowers rates: its forecast is the rate as it is.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = _unwrapped(scheduler)
        self.optimizer = _unwrapped_optimizer(self._scheduler)
        self._copy: Any = None
        self._here: Any = None
        self._groups: list[dict[str, Any]] = []
        self._ahead: deque[tuple[Any, list[float]]] = deque()  # (where the copy is, its rates) after each of its steps
        self._is_over = False  # it raises: the schedule has ended
        self._stride = 1  # most steps seen between two looks

    def look(self) -> Forecast:
        """Follows the scheduler to where it is now."""
        here = (_place(self._scheduler), [plain_number(group["lr"]) for group in self.optimizer.param_groups])
        if self._copy is not None and here == self._here:
            return self
        for steps, ahead in enumerate(self._ahead, 1):
            if ahead == here:
                self._stride = max(self._stride, steps)
                for _ in range(steps):
                    self._ahead.popleft()
                break
        else:
            self._start()
        self._here = here
        return self

    def _start(self) -> None:
        self._groups = [
            {name: copy.deepcopy(value) for name, value in group.items() if name not in ("params", "param_names")}
            for group in self.optimizer.param_groups
        ]
        self._copy = _copied(self._scheduler, types.SimpleNamespace(param_groups=self._groups, step=None, defaults={}))
        self._ahead.clear()
        self._is_over = False

    def peak(self, group: int, left: float, bits: int) -> float:
        """Largest of the rates to come, each times the weight that this update's gradient still has then. `left`: what
        is left of it after one update."""
        count = horizon(left, bits) * self._stride
        while len(self._ahead) < count and not self._is_over:
            self._step()
        largest = 0.0
        for i, (_, rates) in enumerate(self._ahead):
            if i >= count or group >= len(rates):
                break
            largest = max(largest, min(left, 1.0) ** (1 + i // self._stride) * rates[group])
        return largest

    def _step(self) -> None:
        with warnings.catch_warnings():  # of the order of calls: the copy has no optimizer that steps
            warnings.simplefilter("ignore")
            try:
                self._copy.step()
            except Exception:  # OneCycleLR: past its end
                self._is_over = True
                return
        self._ahead.append((_place(self._copy), [plain_number(group["lr"]) for group in self._groups]))


def _unwrapped(scheduler: Any) -> Any:
    """Frameworks wrap schedulers; TypeError for what is none of torch's."""
    inner = scheduler
    while not hasattr(inner, "get_lr") and hasattr(inner, "scheduler"):  # Accelerate
        inner = inner.scheduler
    known = (torch.optim.lr_scheduler._LRScheduler, getattr(torch.optim.lr_scheduler, "LRScheduler", ()))
    others = (torch.optim.lr_scheduler.ReduceLROnPlateau, torch.optim.lr_scheduler.ChainedScheduler)
    if not isinstance(inner, known) and not isinstance(inner, others):
        raise TypeError(
            f"scheduler: {type(scheduler).__name__} is not a scheduler of torch.optim; give peak_lr= instead"
        )
    return inner


def _parts(scheduler: Any) -> Iterator[Any]:
    yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from _parts(part)


def _unwrapped_optimizer(scheduler: Any) -> Any:
    return next(part.optimizer for part in _parts(scheduler) if hasattr(part, "optimizer"))


def _place(scheduler: Any) -> tuple[Any, ...]:
    """Where it is in its schedule."""
    return tuple((getattr(part, "last_epoch", None), getattr(part, "T_cur", None)) for part in _parts(scheduler))


class _Constant:
    """In place of one that only lowers the rate, by what it is told."""

    last_epoch = 0

    def step(self, *_: Any) -> None:
        pass


def _copied(scheduler: Any, optimizer: Any) -> Any:
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        return _Constant()
    made = copy.copy(scheduler)
    made.verbose = False
    if hasattr(made, "optimizer"):
        made.optimizer = optimizer
    if hasattr(made, "_schedulers"):
        made._schedulers = [_copied(part, optimizer) for part in made._schedulers]
    return made
