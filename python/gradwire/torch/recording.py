"""Recording of training steps, for `gradwire plan import` and `gradwire plan check`.

A trace in the Chrome format (Perfetto shows it) with events of the category "gradwire":

    gradient    when it was there; name, elems
    message     from its last gradient to the end; elems, codec, and times within it

and a ProfilerStep#N for every step, from the first forward pass to the end of optimizer.step(). Times are those of the
slowest rank, counted from the start of its own step: a message is sent when the last rank is ready.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

_TIMES = ("ready", "started", "encoded", "summed", "done")  # seconds from the start of the step
_STAGES = ("map_s", "encode_s", "reduce_s", "decode_s", "sent_size", "received_size", "inside_s", "between_s", "flat_s")
_ABSENT = -1.0


def check_writable(path: str | os.PathLike) -> None:
    """Raises OSError if no file can be written there. One that is there stays as it is; none is left behind."""
    new = not os.path.exists(path)
    if new or not stat.S_ISFIFO(os.stat(path).st_mode):  # opening a pipe would wait for its reader
        open(path, "ab").close()
    if new:
        os.remove(os.path.realpath(path))


class Message:
    """A bucket of one step."""

    def __init__(self, label: str, elems: int) -> None:
        self.label, self.elems = label, elems
        self.times: dict[str, float] = {"ready": time.perf_counter()}
        self.stages: dict[str, float] = {}

    def operation(self, operation: Any) -> None:
        """An engine's operation has ended; a bucket may have several."""
        self.times["started"] = min(self.times.get("started", operation.started), operation.started)
        for name in ("encoded", "summed"):  # a bucket of several operations is done with the last of them
            self.times[name] = max(self.times.get(name, 0.0), getattr(operation, name))
        for name, value in (operation.stages or {}).items():
            self.stages[name] = self.stages.get(name, 0) + value

    def ended(self, done: torch.futures.Future) -> torch.Tensor:
        """For the future of the bucket."""
        self.times["done"] = time.perf_counter()
        return done.value()

    def words(self, begin: float) -> list[float]:
        times = [self.times[name] - begin if self.times.get(name) else _ABSENT for name in _TIMES]
        return times + [self.stages.get(name, _ABSENT) for name in _STAGES]


class _Step:
    def __init__(self, number: int, begin: float) -> None:
        self.number, self.begin, self.end = number, begin, begin
        self.gradients: dict[int, float] = {}
        self.messages: list[Message] = []


class Recording:
    """Steps first..first + count - 1 of a run, into one file, which rank 0 writes.

    params: those of the optimizers. names: of params by id. largest: element by element the largest of all ranks'
    numbers, a collective call.
    """

    def __init__(
        self,
        path: str,
        steps: range,
        params: Iterable[torch.Tensor],
        largest: Callable[[list[float]], list[float]],
        rank: int,
    ) -> None:
        self.path, self.steps, self.rank = path, steps, rank
        self.written = False
        self._largest = largest
        self._params = [param for param in params if param.requires_grad]
        self._names: dict[int, str] = {}
        self._done: list[_Step] = []
        self._now: _Step | None = None
        self._handles = [param.register_hook(self._watch(i)) for i, param in enumerate(self._params)]

    def _watch(self, index: int) -> Callable[[torch.Tensor], None]:
        def ready(_: torch.Tensor) -> None:
            if self._now is not None:
                self._now.gradients[index] = time.perf_counter()

        return ready

    def begin(self, step: int, names: dict[int, str]) -> None:
        """A forward pass begins; it is the first one of a step unless that has begun."""
        if self.written:
            return
        self._names = names
        if self._now is not None and self._now.number == step:
            return
        self._close()
        if step in self.steps:
            self._now = _Step(step, time.perf_counter())

    def message(self, label: str, elems: int) -> Message | None:
        if self._now is None:
            return None
        self._now.messages.append(Message(label, elems))
        return self._now.messages[-1]

    def step_ended(self) -> None:
        """optimizer.step() has."""
        if self._now is not None:
            self._now.end = time.perf_counter()

    def _close(self) -> None:
        if self._now is not None and self._now.gradients and self._now.end > self._now.begin:
            self._done.append(self._now)
        self._now = None

    def write(self) -> None:
        """A collective call: of all ranks, after the same step."""
        self._close()
        if self.written:
            return
        self.written = True
        for handle in self._handles:
            handle.remove()
        words: list[float] = [float(len(self._done))]
        for step in self._done:
            words += [step.end - step.begin, float(len(step.messages))]
            words += [step.gradients.get(i, step.begin + _ABSENT) - step.begin for i in range(len(self._params))]
            for message in step.messages:
                words += message.words(step.begin)
        merged = self._largest(words)
        if self.rank == 0:
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump({"schemaVersion": 1, "traceEvents": self._events(merged)}, file)

    def _events(self, words: list[float]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        at, base = 1, 0.0
        for step in self._done:
            length = words[at]
            at += 2
            events.append(_event("user_annotation", f"ProfilerStep#{step.number}", base, length, 0, {}))
            ready = words[at : at + len(self._params)]
            at += len(self._params)
            for param, seconds in zip(self._params, ready):
                if seconds >= 0:
                    name = self._names.get(id(param), "")
                    args = {"name": name, "elems": param.numel()}
                    events.append(_event("gradwire", "gradient", base + seconds, 0.0, 1, args))
            for number, message in enumerate(step.messages):
                fields = dict(zip(_TIMES + _STAGES, words[at : at + len(_TIMES) + len(_STAGES)]))
                at += len(fields)
                events.append(_message(number, message, fields, base))
            base += length
        return events


def _message(number: int, message: Message, fields: dict[str, float], base: float) -> dict[str, Any]:
    begin, end = fields["ready"], fields["done"]
    args: dict[str, Any] = {"number": number, "elems": message.elems, "codec": message.label}
    for name in ("started", "encoded", "summed"):
        if fields[name] >= 0:
            args[f"{name}_us"] = _us(fields[name] - begin)
    for name in _STAGES:
        if fields[name] >= 0:
            args[name.replace("_s", "_us") if name.endswith("_s") else name] = (
                _us(fields[name]) if name.endswith("_s") else round(fields[name])
            )
    return _event("gradwire", "message", base + begin, max(end - begin, 0.0), 2, args)


def _event(category: str, name: str, begin: float, length: float, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": _us(begin), "dur": _us(length)}
    return {"ph": "X", "cat": category, "name": name, **times, "pid": 0, "tid": thread, "args": args}


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3) if math.isfinite(seconds) else 0.0
