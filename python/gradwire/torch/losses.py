"""Notices that a hook compresses less than it could, and says so once, with the reason and what to do.

Quanta come from the optimizer that the hook was given. If that is not the one that makes the steps, or the gradients
have a scale that the hook does not know, quanta are far too fine: nothing is wrong then, but most bits travel.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch

from .optimizers import ParamRegistry, Place, family

log = logging.getLogger("gradwire")
_PARAMS = 8  # of an optimizer whose changes are watched
_MISSED = 2  # passes whose parameters have changed without a step; one may be a model that loads a state
_MISSED_AFTER_STEPS = 33  # of one that has made steps: passes may be accumulated and parameters clamped meanwhile
_SHARE = 0.1  # of the values in buckets that may have no quantum without a word
_FIRST_PASS = 2  # DDP has made its last buckets


class LossWatch:
    """For the optimizers of a registry. rank: 0 speaks."""

    def __init__(self, registry: ParamRegistry, rank: int) -> None:
        self._registry, self._rank = registry, rank
        self._stepped: set[int] = set()  # since the last pass, by id of the optimizer
        self._ever: set[int] = set()  # since the hook was made
        self._versions: dict[int, tuple[int, ...]] = {}
        self._missed: dict[int, int] = {}
        self._said: set[str] = set()
        self._passes = 0
        self._values = self._unowned = self._odd = 0  # of buckets that have maps

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped.add(id(optimizer))
        self._ever.add(id(optimizer))

    def bucket(self, values: int, params: Sequence[torch.Tensor], places: Iterable[Place]) -> None:
        """A bucket with maps."""
        placed = {id(place.param) for place in places}
        self._values += values
        for param in params:
            if self._registry.entry(param) is None:
                self._unowned += param.numel()
            elif id(param) not in placed:
                self._odd += param.numel()

    def backward(self) -> None:
        """A backward pass that compresses by maps begins."""
        self._passes += 1
        for optimizer in self._registry.optimizers:
            if family(optimizer) is not None:
                self._look_for_steps(optimizer)
        self._stepped.clear()
        if self._passes > _FIRST_PASS and self._values:
            self._look_at_shares()

    def _look_for_steps(self, optimizer: torch.optim.Optimizer) -> None:
        key = id(optimizer)
        params = (p for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
        mine = [p for p in islice(params, _PARAMS) if (self._registry.entry(p) or (None,))[0] is optimizer]
        versions = tuple(param._version for param in mine)
        changed = self._versions.get(key, versions) != versions
        self._versions[key] = versions
        if key in self._stepped:
            self._missed[key] = 0
        elif changed:
            self._missed[key] = self._missed.get(key, 0) + 1
            if self._missed[key] >= (_MISSED_AFTER_STEPS if key in self._ever else _MISSED):
                self._say(
                    f"step {key}",
                    "gradwire: parameters change, but the %s that ddp_hook() was given makes no step(): quanta come "
                    "from a state that is not used. Was another optimizer made after the hook, or is the step that of "
                    "a wrapper? Give ddp_hook() the optimizer that makes the steps.",
                    type(optimizer).__name__,
                )

    def _look_at_shares(self) -> None:
        unowned, odd = self._unowned / self._values, self._odd / self._values
        if unowned > _SHARE:
            self._say(
                "unowned",
                "gradwire: %.0f %% of the values in the buckets are of parameters that no optimizer given to "
                "ddp_hook() has; they travel lossless. Give it all optimizers, as a list, made over the parameters of "
                "the model itself, not over copies.",
                100 * unowned,
            )
        if odd > _SHARE:
            self._say(
                "odd",
                "gradwire: %.0f %% of the values in the buckets travel lossless, as their gradients have another "
                "memory order than their parameters: convert the model (memory_format) before DDP is made.",
                100 * odd,
            )

    def _say(self, what: str, text: str, *arguments: Any) -> None:
        if what not in self._said:
            self._said.add(what)
            if self._rank == 0:
                log.warning(text, *arguments)
