"""What a scheduler of torch will do: its learning rates to come, from steps of a copy."""

from __future__ import annotations

import copy
import math
import types
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import lr_scheduler

# What a momentum still holds of a gradient is looked at down to this weight: then a rate 2^14 times as large moves a
# parameter by 2^-14 of what the gradient's own update does.
WEIGHT_BITS = 28
_HORIZON_MAX = 4096  # scheduler steps; a momentum of .995 needs as many
_BASES = (lr_scheduler._LRScheduler, getattr(lr_scheduler, "LRScheduler", lr_scheduler._LRScheduler))


def horizon(left: float) -> int:
    """Updates after which the weight of a gradient, of which each leaves `left`, has fallen below 2^-WEIGHT_BITS."""
    if left <= 0:
        return 0
    return _HORIZON_MAX if left >= 1 else min(_HORIZON_MAX, math.ceil(WEIGHT_BITS * math.log(2) / -math.log(left)))


def plain_number(value: Any) -> float:
    """Of a hyperparameter, which may be a tensor."""
    return float(value.item() if isinstance(value, torch.Tensor) else value)


def unwrapped(scheduler: Any) -> Any:
    """Frameworks wrap schedulers; TypeError for what is none of torch's."""
    inner = scheduler
    while not hasattr(inner, "get_lr") and hasattr(inner, "scheduler"):  # Accelerate
        inner = inner.scheduler
    if not isinstance(inner, (*_BASES, lr_scheduler.ReduceLROnPlateau, lr_scheduler.ChainedScheduler)):
        name = type(scheduler).__name__
        raise TypeError(f"scheduler: {name} is not a scheduler of torch.optim; give peak_lr= instead")
    return inner


def optimizer_of(scheduler: Any) -> Any:
    """The optimizer whose rates it sets."""
    return next(part.optimizer for part in _parts(scheduler) if hasattr(part, "optimizer"))


class Forecast:
    """The rates that a scheduler, of unwrapped(), will set: a copy of it makes steps on groups without parameters.

    The copy has what the scheduler has but functions, which it shares: they must not depend on how often they are
    called. TypeError where a copy cannot be made or makes no step. error: what ended the forecast later.
    """

    def __init__(self, scheduler: Any) -> None:
        self.error: Exception | None = None
        self.optimizer = optimizer_of(scheduler)
        self._scheduler = scheduler
        self._copy: Any = None
        self._here: Any = None
        self._groups: list[dict[str, Any]] = []
        self._ahead: deque[tuple[Any, list[float]]] = deque()  # (where the copy is, its rates) after each of its steps
        self._is_over = False  # the schedule has ended
        self._stride = 1  # steps between the last two places
        self._found: dict[tuple[int, float], float] = {}  # peak() of this place: it is asked for more than once a step
        self.look()
        self._step()
        if self.error is not None:
            name = type(scheduler).__name__
            raise TypeError(f"scheduler: {name} cannot be computed ahead ({self.error}); give peak_lr= instead")

    def look(self) -> None:
        """Follows the scheduler to where it is now. To be called for each update."""
        here = (_place(self._scheduler), [plain_number(group["lr"]) for group in self.optimizer.param_groups])
        if here == self._here or self.error is not None:
            return
        for steps, ahead in enumerate(self._ahead, 1):
            if ahead == here:
                self._stride = steps
                for _ in range(steps):
                    self._ahead.popleft()
                break
        else:
            self._start()
        self._here = here
        self._found.clear()

    def peak(self, group: int, left: float) -> float:
        """Largest of the rates to come, each times the weight that this update's gradient still has then. `left`: what
        is left of it after one update."""
        if (group, left) not in self._found:
            self._found[(group, left)] = self._largest(group, left)
        return self._found[(group, left)]

    def _largest(self, group: int, left: float) -> float:
        count = horizon(left) * self._stride
        while len(self._ahead) < count and not self._is_over and self.error is None:
            self._step()
        largest = 0.0
        for i, (_, rates) in enumerate(self._ahead):
            if i >= count or group >= len(rates):
                break
            largest = max(largest, min(left, 1.0) ** (1 + i // self._stride) * rates[group])
        return largest

    def _start(self) -> None:
        names = ("params", "param_names")
        self._ahead.clear()
        self._is_over = False
        try:
            self._groups = [
                {name: copy.deepcopy(value) for name, value in group.items() if name not in names}
                for group in self.optimizer.param_groups
            ]
            self._copy = _copied(self._scheduler, self.optimizer, self._groups)
        except Exception as error:
            self.error = error

    def _step(self) -> None:
        if self.error is not None:
            return
        with warnings.catch_warnings():  # of the order of calls: the copy has no optimizer that steps
            warnings.simplefilter("ignore")
            try:
                self._copy.step()
            except Exception as error:
                if isinstance(self._scheduler, lr_scheduler.OneCycleLR) and isinstance(error, ValueError):
                    self._is_over = True  # past its total_steps
                else:
                    self.error = error
                return
        self._ahead.append((_place(self._copy), [plain_number(group["lr"]) for group in self._groups]))


def _parts(scheduler: Any) -> Iterator[Any]:
    yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from _parts(part)


def _place(scheduler: Any) -> tuple[Any, ...]:
    """Where it is in its schedule."""
    return tuple((getattr(part, "last_epoch", None), getattr(part, "T_cur", None)) for part in _parts(scheduler))


def _copied(scheduler: Any, optimizer: Any, groups: list[dict[str, Any]]) -> Any:
    """A scheduler of its own for these groups. Weak references, as to its methods, stay those of the original."""
    parts = list(_parts(scheduler))
    copies = [copy.copy(part) for part in parts]
    memo: dict[int, Any] = {id(part): made for part, made in zip(parts, copies)}
    memo[id(optimizer)] = types.SimpleNamespace(param_groups=groups, step=None, defaults={}, state={})
    for part, made in zip(parts, copies):
        for name, value in vars(part).items():
            kept = isinstance(value, weakref.ref)
            setattr(made, name, value if kept else copy.deepcopy(value, memo))
        made.verbose = False
    return copies[0]
