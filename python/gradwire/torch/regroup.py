"""Gradients of DDP's buckets in other buckets: those of a plan, or of the run that is resumed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from . import staging
from .buckets import Bucket, Part, Room
from .failure import Gate


class _Waiting:
    """A bucket of DDP whose gradients are on their way."""

    def __init__(self, bucket: Bucket) -> None:
        self.values, self.params = bucket.values, bucket.params
        self.future = staging.future_of(bucket.values)
        self.left = 0  # other buckets that have gradients of it
        self.marks: list[Any] = []  # on a GPU: where their results are in this one


class _Group:
    """One of the other buckets."""

    def __init__(self, number: int, keys: Sequence[Hashable]) -> None:
        self.number, self.keys, self.room = number, keys, Room()
        self.reset()

    def reset(self) -> None:
        self.parts: list[Part | None] = [None] * len(self.keys)
        self.missing = len(self.keys)
        self.waiting: list[_Waiting] = []

    def in_place(self) -> bool:
        """Whether one of DDP's buckets is this one, in this order."""
        if len(self.waiting) != 1 or len(self.waiting[0].params) != len(self.parts):
            return False
        return all(part.param is param for part, param in zip(self.parts, self.waiting[0].params))


class Regroup:
    """Puts the gradients of DDP's buckets into others, backward pass after backward pass. keys: of the parameters of
    each of the others; key: of a parameter.

    run: (number, bucket) -> future of its mean, in place; called in the order in which the buckets are complete, which
    is the same on all ranks, because that of DDP's buckets is.
    """

    def __init__(
        self,
        keys: Sequence[Sequence[Hashable]],
        run: Callable[[int, Bucket], torch.futures.Future],
        key: Callable[[torch.Tensor], Hashable],
        gate: Gate,
    ) -> None:
        self.groups = [_Group(number, one) for number, one in enumerate(keys)]
        self._places = {name: (group, i) for group in self.groups for i, name in enumerate(group.keys)}
        self._run, self._key, self._gate = run, key, gate
        self._lock = threading.Lock()

    # ---- of a subclass: texts, and what it says of buckets ----

    def _unknown(self, key: Any) -> str:
        raise NotImplementedError

    def _absent(self, keys: list[Any]) -> str:
        raise NotImplementedError

    def _taken(self, groups: list[int]) -> None:
        """A bucket of DDP has gradients of these others."""

    def _complete(self, number: int, length: int) -> None:
        """One of the others is, with so many values."""

    # ---- a backward pass ----

    def begin(self) -> None:
        for group in self.groups:
            group.reset()

    def add(self, bucket: Bucket) -> torch.futures.Future:
        """Takes a bucket of DDP; its future."""
        waiting = _Waiting(bucket)
        self._gate.add(waiting.future)
        complete = []
        for param, gradient in zip(bucket.params, bucket.gradients):
            key = self._key(param)
            if key not in self._places:
                raise ValueError(self._unknown(key))
            group, place = self._places[key]
            if group.parts[place] is not None:
                raise ValueError(f"gradwire: two gradients of {key} in one backward pass")
            group.parts[place] = Part(param, gradient, bucket.values)
            if waiting not in group.waiting:
                group.waiting.append(waiting)
                waiting.left += 1
            group.missing -= 1
            if group.missing == 0:
                complete.append(group)
        self._taken(sorted(group.number for group in self.groups if waiting in group.waiting))
        for group in sorted(complete, key=lambda group: group.number):
            self._start(group, bucket.step)
        return waiting.future

    def finish(self) -> None:
        """After the last bucket."""
        left = [key for group in self.groups for key, part in zip(group.keys, group.parts) if part is None]
        if left:
            raise ValueError(self._absent(left))

    def _start(self, group: _Group, step: int) -> None:
        parts = group.parts
        self._complete(group.number, sum(part.values.numel() for part in parts))
        if any(part.values.dtype != parts[0].values.dtype for part in parts):
            raise ValueError(f"gradwire: bucket {group.number} of the plan has gradients of several types")
        direct = group.in_place()
        if direct:
            bucket = Bucket(group.waiting[0].values, group.waiting[0].params, [part.gradient for part in parts])
        else:
            bucket = group.room.gather(parts)
        bucket.step = step
        self._run(group.number, bucket).then(lambda done: self._end(group, direct, done))

    def _end(self, group: _Group, direct: bool, done: torch.futures.Future) -> None:
        try:
            result = done.value()
            with self._gate.passing():
                if not direct:
                    group.room.scatter(group.parts)
                elif result.data_ptr() != group.waiting[0].values.data_ptr():
                    group.waiting[0].values.copy_(result)
            self._hand_out(group.waiting)
        except Exception as error:  # it ends the futures of all buckets
            self._gate.fail(error)

    def _hand_out(self, waiting: list[_Waiting]) -> None:
        stage = staging.of(waiting[0].values.device)
        mark = None if stage is None else stage.mark()
        for one in waiting:
            with self._lock:
                one.left -= 1
                last = one.left == 0
                one.marks.append(mark)
            if last:
                if stage is not None:
                    stage.after(one.marks)
                with self._gate.passing(one.future):
                    one.future.set_result(one.values)


class Replay(Regroup):
    """The first step of a resumed run.

    DDP starts with buckets in the order of the parameters and makes new ones, in the order of their gradients, after
    its first iteration. Which rank owns a value, and so the rounding of its sum, depends on the bucket; a run that is
    resumed would differ in its first step. So that step's gradients are put into the buckets of the run before. layout:
    numbers of the parameters of each of these.
    """

    def __init__(
        self,
        layout: list[list[int]],
        run: Callable[[Bucket], torch.futures.Future],
        number: Callable[[torch.Tensor], int],
        gate: Gate,
    ) -> None:
        super().__init__(layout, lambda _, bucket: run(bucket), number, gate)
        self.layout, self._run_sparse = layout, run
        self._sparse: set[Hashable] = set()  # whose gradients have a bucket each, before and after

    def add(self, bucket: Bucket) -> torch.futures.Future:
        if not bucket.values.is_sparse:
            return super().add(bucket)
        self._sparse.update(map(self._key, bucket.params))
        return self._run_sparse(bucket)

    def finish(self) -> None:
        missing = {key for group in self.groups if group.missing for key in group.keys}
        if missing != self._sparse:
            raise ValueError(self._absent([]))

    def _unknown(self, key: Any) -> str:
        return "gradwire: the state that was loaded is that of a model with other parameters"

    _absent = _unknown
