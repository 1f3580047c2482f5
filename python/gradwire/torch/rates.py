"""The learning rate that counts for a precision map: the largest that a gradient meets while a momentum holds it."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim import lr_scheduler

from .forecast import Forecast, optimizer_of, plain_number, unwrapped

log = logging.getLogger("gradwire")

# Where rates to come are not known: as if the momentum moved a parameter by 2^-12 of its size in a step. Updates of
# common trainings move it by about 2^-10 (docs/numerics.md section 2.7 has what this costs, at most a point).
UPDATE_BITS = 12
_FALLEN = 0.25  # of the largest rate: from there on a scheduler would save a byte for every four values or more
_SAME = 1 + 1e-6  # a schedule computed in another order

Key = tuple[int, int]  # optimizer, group


def peaks_of(peak_lr: Any) -> float | tuple[float, ...] | None:
    """A number for all groups, or one for each: plain numbers. ValueError, TypeError say what is wrong."""
    if peak_lr is None:
        return None
    single = isinstance(peak_lr, torch.Tensor) and peak_lr.dim() == 0 or not isinstance(peak_lr, Iterable)
    try:
        peaks = [plain_number(x) for x in ([peak_lr] if single else peak_lr)]
    except (TypeError, ValueError):
        raise TypeError(f"peak_lr={peak_lr!r} is no number and no list of numbers") from None
    for group, peak in enumerate(peaks):
        if not 0 < peak < math.inf:
            where = "" if single else f" of group {group}"
            raise ValueError(f"peak_lr{where} is {peak:g}; it must be positive and finite")
    return peaks[0] if single else tuple(peaks)


class Rates:
    """Rates of all parameter groups of some optimizers, in their order.

    peak_lr: of peaks_of(), the largest rate of the training; a group's rate above it is warned of. schedulers: of
    torch, what they will do is computed ahead; one for each optimizer that has one. ReduceLROnPlateau is taken and
    tells nothing of rates that others raise. Without either the largest rate seen counts. bounded: which optimizers
    maps are known for; the rates of others do not matter. unwrap: from a scheduler's optimizer to that of the list.
    ValueError, TypeError say what is wrong.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        peak_lr: float | tuple[float, ...] | None = None,
        schedulers: Any = None,
        *,
        bounded: Sequence[bool] | None = None,
        unwrap: Callable[[Any], Any] = lambda optimizer: optimizer,
    ) -> None:
        self._optimizers = list(optimizers)
        self._bounded = [True] * len(self._optimizers) if bounded is None else list(bounded)
        keys = [(i, j) for i, optimizer in enumerate(self._optimizers) for j in range(len(optimizer.param_groups))]
        if isinstance(peak_lr, tuple) and len(peak_lr) != len(keys):
            raise ValueError(f"peak_lr has {len(peak_lr)} rates for {len(keys)} parameter groups")
        self._peak = peak_lr if isinstance(peak_lr, float) else None
        self._peaks: dict[Key, float] = dict(zip(keys, peak_lr)) if isinstance(peak_lr, tuple) else {}
        self._forecasts = self._forecasts_of(schedulers, unwrap)
        self._said: set[str] = set()
        self._counted: dict[Key, float] = {}  # of the last look
        self._known: set[int] = set()
        self.seen = {key: plain_number(self._group(key)["lr"]) for key in keys}  # the largest rate

    def _forecasts_of(self, schedulers: Any, unwrap: Callable[[Any], Any]) -> dict[int, Forecast]:
        found: dict[int, Any] = {}
        for scheduler in schedulers if isinstance(schedulers, Iterable) else [] if schedulers is None else [schedulers]:
            inner = unwrapped(scheduler)
            inside = unwrap(optimizer_of(inner))
            number = next((i for i, one in enumerate(self._optimizers) if one is inside), None)
            if number is None:
                name = type(scheduler).__name__
                raise ValueError(f"scheduler: {name} is of an optimizer that the hook does not have")
            if number in found:
                raise ValueError(f"scheduler: optimizer {number} has two; torch's ChainedScheduler makes them one")
            found[number] = inner
        return {
            number: Forecast(one)
            for number, one in found.items()
            if not isinstance(one, lr_scheduler.ReduceLROnPlateau)
        }

    def _group(self, key: Key) -> dict[str, Any]:
        return self._optimizers[key[0]].param_groups[key[1]]

    def is_known(self, group: dict[str, Any]) -> bool:
        """Whether the rates to come are, since the last look."""
        return id(group) in self._known

    def look(self) -> dict[int, float]:
        """The rate that counts for the next update, by the id of a group's dict. To be called for each update."""
        found: dict[int, float] = {}
        known: set[int] = set()
        for i, optimizer in enumerate(self._optimizers):
            forecast = self._forecasts.get(i)
            if forecast is not None:
                forecast.look()
            for j, group in enumerate(optimizer.param_groups):
                counts, is_known = self._counts((i, j), group, forecast)
                found[id(group)] = self._counted[(i, j)] = counts
                if is_known:
                    known.add(id(group))
        self._known = known  # at once: another thread may read it
        return found

    def _counts(self, key: Key, group: dict[str, Any], forecast: Forecast | None) -> tuple[float, bool]:
        """The rate that counts for a group, and whether those to come are known."""
        rate, left = plain_number(group["lr"]), self._memory(key[0], group)
        before = self.seen.get(key)
        marks = (plain_number(group[name]) for name in ("initial_lr", "max_lr") if name in group)
        self.seen[key] = max(rate, before or 0.0, *marks)
        peak = self._peaks.get(key, self._peak)
        if peak is not None:
            if left and rate > peak * _SAME:
                self._warn(key, f"is {rate:g}, above peak_lr={peak:g}. State the largest of the training.")
            return max(rate, peak), True
        if forecast is not None:
            counts = max(rate, forecast.peak(key[1], left))
            if forecast.error is None:
                if left and rate * left > self._counted.get(key, math.inf) * _SAME:
                    self._warn(key, f"is {rate:g}, above what its scheduler was to set. Something else sets it, too.")
                return counts, True
            self._warn(key, f"cannot be computed ahead ({forecast.error}): the largest seen counts. Pass peak_lr=.")
        largest = self.seen[key]
        if left and key in self._counted and before is not None and largest > before * _SAME:
            self._warn(
                key, f"has risen to {largest:g}, above all that were seen ({before:g}). Pass peak_lr= or scheduler=."
            )
        if left and rate < largest * _FALLEN:
            self._hint(
                f"group {key[1]} of optimizer {key[0]}: the learning rate is {rate:g}, but quanta are for {largest:g}, "
                "which may come again: with scheduler= they follow the schedule, and messages are smaller."
            )
        return largest, False

    def _memory(self, number: int, group: dict[str, Any]) -> float:
        """What is left of a gradient's weight in an update after one more, at most. 0: it meets one update only."""
        if not self._bounded[number]:
            return 0.0
        if "betas" not in group:
            return plain_number(group.get("momentum", 0.0))
        # exp_avg keeps beta1; the denominator can shrink by sqrt(beta2) meanwhile, Adamax's by beta2
        beta1, beta2 = map(plain_number, group["betas"])
        beta2 = beta2 if isinstance(self._optimizers[number], torch.optim.Adamax) else math.sqrt(beta2)
        return beta1 / beta2 if beta2 else beta1

    def _warn(self, key: Key, text: str) -> None:
        """Once: what earlier gradients were rounded for was too small."""
        if "warn" not in self._said:
            self._said.add("warn")
            warnings.warn(
                f"gradwire: the learning rate of group {key[1]} of optimizer {key[0]} {text} Gradients before were "
                "rounded for smaller rates; what a momentum holds of them may be off by more than the tolerance.",
                stacklevel=5,
            )

    def _hint(self, text: str) -> None:
        if "hint" not in self._said:
            self._said.add("hint")
            log.info("gradwire: %s", text)

    def state_dict(self) -> list[tuple[int, int, float]]:
        """The largest rates seen: what a resumed run cannot see again."""
        return [(*key, rate) for key, rate in self.seen.items()]

    def load_state_dict(self, state: Iterable[tuple[int, int, float]]) -> None:
        for i, j, rate in state:
            self.seen[(i, j)] = max(rate, self.seen.get((i, j), 0.0))
