"""What a hook is given as optimizer: one, a list of them, or a framework's wrapper around one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from . import optimizers

# Wrappers whose step() changes parameters by the step() of the optimizer inside and by nothing else that depends on the
# gradient: class, packages that have one of that name, attribute. Not LARC's or Lookahead's, which change the update.
_WRAPPERS = (
    ("AcceleratedOptimizer", ("accelerate",), "optimizer"),
    ("LightningOptimizer", ("lightning", "pytorch_lightning"), "_optimizer"),
    ("_FabricOptimizer", ("lightning", "lightning_fabric"), "_optimizer"),
    ("PostLocalSGDOptimizer", ("torch",), "optim"),  # means of parameters are taken after the update
)
# With their names for the optimizer inside, but only a part of the state on each rank.
_SHARDED = ("ZeroRedundancyOptimizer",)
_INNER = ("optimizer", "_optimizer", "optim", "base_optimizer")


def optimizers_of(optimizer: Any) -> list[torch.optim.Optimizer]:
    """The optimizers in what a hook was given, without wrappers. TypeError or ValueError says what is wrong with it."""
    single = isinstance(optimizer, (torch.optim.Optimizer, torch.nn.Module, torch.Tensor)) or _steps(optimizer)
    if not single and not isinstance(optimizer, Iterable):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer or a list of them, not {_kind_of(optimizer)}")
    made = [optimizer] if single else list(optimizer)
    if not made:
        raise ValueError("optimizer is an empty list; it needs the optimizers of the model's parameters")
    for index, one in enumerate(made):
        if not (isinstance(one, torch.optim.Optimizer) or _steps(one)):
            where = "" if single else f", entry {index},"
            raise TypeError(f"optimizer{where} must be a torch.optim.Optimizer, not {_kind_of(one)}")
    return [unwrapped(one) for one in made]


def _steps(one: Any) -> bool:
    """Whether it does what an optimizer does, though its class may not be one's."""
    return isinstance(getattr(one, "param_groups", None), list) and callable(getattr(one, "step", None))


def _kind_of(one: Any) -> str:
    hint = "; give the optimizer, not the model" if isinstance(one, torch.nn.Module) else ""
    return f"{type(one).__name__}{hint}"


def unwrapped(optimizer: Any) -> Any:
    """The optimizer in a wrapper that is known to do nothing to the update."""
    inner = optimizer
    while inner is not None:
        optimizer, inner = inner, _inside(inner)
    return optimizer


def _inside(optimizer: Any) -> Any:
    for name, packages, attribute in _WRAPPERS:
        for cls in type(optimizer).__mro__:
            if cls.__name__ == name and cls.__module__.split(".")[0] in packages:
                return getattr(optimizer, attribute, None)
    return None


def scaler_of(optimizer: Any) -> Any:
    """The GradScaler that a wrapper keeps, or None."""
    found = [
        getattr(one, "scaler", None) for one in (optimizer if isinstance(optimizer, (list, tuple)) else [optimizer])
    ]
    scalers = [one for one in found if hasattr(one, "get_scale") and getattr(one, "is_enabled", lambda: True)()]
    return scalers[0] if scalers else None


def name_of(optimizer: Any) -> str:
    """Its class, and why a bound that its contents have does not hold for it."""
    name = type(optimizer).__name__
    if any(cls.__name__ in _SHARDED for cls in type(optimizer).__mro__):
        return f"{name} (each rank has the state of some parameters only)"
    for attribute in _INNER:
        inner = getattr(optimizer, attribute, None)
        if isinstance(inner, torch.optim.Optimizer) and optimizers.family(inner):
            return (
                f"{name} (a wrapper of {type(inner).__name__}: if its step() is only that of the optimizer inside, "
                f"give ddp_hook that one)"
            )
    return name


def check_keywords(given: Iterable[str], *takes: Callable[..., Any], but: Sequence[str] = ()) -> None:
    """TypeError for an option that none of these has, or that is one of `but`."""
    known: list[str] = []
    for one in takes:
        parameters = inspect.signature(one).parameters.values()
        known += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in (*known, *but)]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise TypeError(f"no option {name!r}; {hint}there are: {', '.join(sorted(known))}")
