"""The first step of a resumed run.

DDP starts with buckets in the order of the parameters and makes new ones, in the order of their gradients, after its
first iteration. Which rank owns a value, and so the rounding of its sum, depends on the bucket; a run that is resumed
would differ in its first step. So that step's buckets are collected, their values are put into the buckets of the run
before, reduced there, and copied back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from . import staging

Layout = list[list[int]]  # numbers of the parameters of every bucket, in order


class Part:
    """A parameter in one of DDP's buckets."""

    __slots__ = ("param", "gradient", "values")

    def __init__(self, param: torch.Tensor, gradient: torch.Tensor, values: torch.Tensor) -> None:
        if values.is_sparse:
            raise ValueError("gradwire: the plan has a parameter with sparse gradients, which travel alone and plain")
        self.param = param
        offset = (gradient.data_ptr() - values.data_ptr()) // values.element_size()
        self.gradient = gradient
        self.values = values[offset : offset + gradient.numel()]  # in memory order


class Replay:
    """Collects the buckets of one backward pass, then reduces those of `layout`.

    reduce(values, params, gradients) starts the reduction of a bucket and returns its future.
    """

    def __init__(self, layout: Layout, number: Callable[[torch.Tensor], int], reduce: Callable[..., Any]) -> None:
        self.layout, self._number, self._reduce = layout, number, reduce
        self._parts: dict[int, Part] = {}
        self._sparse: set[int] = set()  # whose gradients have a bucket each, before and after
        self._waiting: list[tuple[torch.futures.Future, torch.Tensor]] = []

    def add(
        self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> torch.futures.Future:
        if values.is_sparse:
            self._sparse.update(map(self._number, params))
            return self._reduce(values, params, gradients)
        for param, gradient in zip(params, gradients):
            self._parts[self._number(param)] = Part(param, gradient, values)
        future = staging.future_of(values)
        self._waiting.append((future, values))
        return future

    def run(self, conclude: Callable[[Any, torch.Tensor], Any]) -> torch.futures.Future:
        """After the last bucket. conclude: makes the last bucket's future that of the step. ValueError if the layout is
        that of another model."""
        if {number for bucket in self.layout for number in bucket} != self._parts.keys() | self._sparse:
            raise ValueError("gradwire: the state that was loaded is that of a model with other parameters")
        dense = [numbers for numbers in self.layout if self._sparse.isdisjoint(numbers)]
        buckets = [[self._parts[number] for number in numbers] for numbers in dense]
        flats = [torch.cat([part.values for part in parts]) for parts in buckets]
        futures = []
        for parts, flat in zip(buckets, flats):
            views, at = [], 0
            for part in parts:
                size = part.gradient.numel()
                views.append(flat[at : at + size].as_strided(part.gradient.size(), part.gradient.stride()))
                at += size
            futures.append(self._reduce(flat, [part.param for part in parts], views))
        if futures:
            futures[-1] = conclude(futures[-1], flats[-1])
        done: torch.futures.Future = torch.futures.Future()
        torch.futures.collect_all(futures).then(lambda all_done: self._finish(all_done, buckets, flats, done))
        return done

    def _finish(self, all_done: Any, buckets: list[list[Part]], flats: list[torch.Tensor], done: Any) -> None:
        stage = staging.of(flats[0].device) if flats else None
        try:
            with nullcontext() if stage is None else stage.stream():
                for future in all_done.value():
                    future.wait()  # raises what went wrong; this thread's stream comes after it
                for parts, flat in zip(buckets, flats):
                    at = 0
                    for part in parts:
                        part.values.copy_(flat[at : at + part.values.numel()])
                        at += part.values.numel()
                for future, values in self._waiting:
                    future.set_result(values)
        except Exception as error:
            for future, _ in self._waiting:
                if not future.done():
                    future.set_exception(RuntimeError(str(error)))
            return
        done.set_result(None)
