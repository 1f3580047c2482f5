"""Sums of a group of the backend: compressed by carried quanta, each under its own error, or exact where all say so."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from . import backend_choice, staging
from .communicator import Communicator, _Call, _check, _flat, _gathered, _host, _kind, _len, _order, _write
from .engine import Settings
from .options import CodecOptions


class Sums(Communicator):
    """own: a Gloo group of the ranks for nothing else. ranks: the job's numbers of them. For one thread."""

    def __init__(self, own: Any, timeout: timedelta, ranks: Sequence[int] | None) -> None:
        super().__init__(own, transport=own, small_len=1, timeout=timeout)
        self._transport._ranks = ranks
        self.compressed_count = self.exact_count = 0

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = self._transport.timeout = timeout

    @torch.no_grad()
    def sum_in_place(self, tensors: list[torch.Tensor], nmse: float, mean: bool) -> None:
        """all_reduce() of tensors of one type under an error, exact where the values look so."""
        tensors = [staging.ordinary(tensor) for tensor in tensors]

        def prepare() -> _Call:
            for number, tensor in enumerate(tensors):
                _check(f"tensor {number}", tensor)
            what = ", ".join(map(_kind, tensors))
            call = _Call(f"all_reduce(mean={mean}, nmse={nmse:g}) of {len(tensors)} tensors: {what}", tensors)
            call.orders = [_order(tensor) for tensor in tensors]
            alone = len(tensors) == 1 and tensors[0].is_contiguous() and not tensors[0].is_neg()
            call.flats = [([0], tensors[0].detach().view(-1))] if alone else _gathered(call)
            call.word = backend_choice.look(call.flats[0][1], self.size)[0]
            return call

        call = self._agree(prepare)
        ((_, flat),) = call.flats
        with self._together():
            if self._is_exact(call):
                total = self._plain_sum(flat, mean)
            else:
                total = flat
                key = ("all", mean, flat.numel(), flat.dtype, nmse)
                plan = self._plan(key, flat, [], settings=_settings(nmse), mean=mean)
                self._run(plan, flat, flat, 1.0 / self.size if mean else 1.0)
            with self.gate.passing():
                for tensor, part, order in zip(tensors, total.split([_len(one) for one in tensors]), call.orders):
                    if part.data_ptr() != tensor.data_ptr():  # else the result is there already
                        _write(tensor, part, order)

    @torch.no_grad()
    def scatter_sum(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], nmse: float, mean: bool
    ) -> None:
        """The same for reduce_scatter(). inputs: for each output one tensor of all ranks' values in the order of the
        ranks, or one for each rank."""
        outputs = [staging.ordinary(output) for output in outputs]
        inputs = [[staging.ordinary(part) for part in parts] for parts in inputs]

        def prepare() -> _Call:
            for number, output in enumerate(outputs):
                _check(f"output {number}", output)
            rows = [[_flat(part, ()) for part in parts] for parts in inputs]
            rows = [row[0].view(self.size, -1).unbind() if len(row) == 1 else row for row in rows]
            alone = len(inputs) == len(inputs[0]) == 1
            flat = _flat(inputs[0][0], ()) if alone else torch.cat([row[r] for r in range(self.size) for row in rows])
            what = ", ".join(map(_kind, outputs))
            call = _Call(f"reduce_scatter(mean={mean}, nmse={nmse:g}) to {len(outputs)} tensors: {what}", outputs)
            call.flats = [([0], flat)]
            call.word = backend_choice.look(call.flats[0][1], self.size)[0]
            return call

        call = self._agree(prepare)
        ((_, flat),) = call.flats
        with self._together():
            if self._is_exact(call):
                part = self._plain_sum(flat.clone(), mean).view(self.size, -1)[self.rank]
            else:
                flat, part = _host(flat), torch.empty(sum(map(_len, outputs)), dtype=flat.dtype)
                key = ("scatter", mean, flat.numel(), flat.dtype, nmse)
                plan = self._plan(key, flat, [], shard_len=part.numel(), settings=_settings(nmse), mean=mean)
                self._run(plan, flat, part, 1.0 / self.size if mean else 1.0, scatter=True)
            with self.gate.passing():
                for output, values in zip(outputs, part.split([_len(output) for output in outputs])):
                    _write(output, values, ())

    def _is_exact(self, call: _Call) -> bool:
        """The same on all ranks."""
        exact = call.word == backend_choice.INTEGERS
        if call.word == backend_choice.SPARSE:
            where = f"operation {self.step}"
            # Looked at now: where memory orders differ, _agree() has put the values into that of their indices.
            filled = backend_choice.filled(call.flats[0][1])
            ranks = self._call(lambda: self._transport.gather(filled.to(torch.uint8), where))
            exact = backend_choice.are_apart([one != 0 for one in ranks])
        self.exact_count += exact
        self.compressed_count += not exact
        return exact


@functools.lru_cache(maxsize=64)
def _settings(nmse: float) -> Settings:
    return CodecOptions(nmse=nmse).settings([])
