"""Gradients as fp16 or bf16: two bytes a value through an all-reduce.

torch 1.13's Gloo does not add bf16. There the same bytes go by an all-to-all of shards, which their owners add up in
fp32 in the order of the ranks, and an all-gather; on a thread, as these calls block.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from .pending import fail_future
from .staging import HostCopy, all_reduce
from .transport import Transport, collective_error
from .workers import Worker

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Caster:
    """Means of buckets on a Gloo group for nothing else. Collective, as is making one."""

    def __init__(self, transport: Transport, on_error: Callable[[BaseException], None]) -> None:
        self.transport, self.size = transport, transport.size
        self.sent_size = 0  # bytes that this rank sent, as many as it received
        self._on_error = on_error
        self._worker: Worker | None = None
        self._adds_bf16: bool | None = None

    def prepare(self, kind: str) -> None:
        """To be called on all ranks before the first reduce() of this kind."""
        if kind == "bf16" and self._adds_bf16 is None:
            self._adds_bf16 = self._try_bf16()
            if not self._adds_bf16:
                self._worker = Worker("gradwire-cast", self._on_error)

    def _try_bf16(self) -> bool:
        """Whether this torch's Gloo adds bf16: the same answer on all ranks."""
        try:
            probe = torch.ones(4, dtype=torch.bfloat16)
            self.transport.group.allreduce([probe]).wait()
            return bool((probe == self.size).all())
        except RuntimeError:
            return False

    def reduce(self, values: torch.Tensor, kind: str, where: str = "") -> torch.futures.Future:
        """The mean, in place. where: for errors."""
        self.sent_size += 2 * (self.size - 1) * values.numel() * 2 // self.size
        if kind == "bf16" and not self._adds_bf16:
            return self._exchanged(values, where)
        narrow, begin = values.div(self.size).to(DTYPES[kind]), time.monotonic()

        def end(total: Callable[[], torch.Tensor]) -> torch.Tensor:
            try:
                return values.copy_(total())
            except Exception as error:
                self._on_error(collective_error(error, where, begin))
                raise

        return all_reduce(narrow, self.transport.group, end)

    def _exchanged(self, values: torch.Tensor, where: str) -> torch.futures.Future:
        copy, begin = HostCopy(values), time.monotonic()

        def run() -> None:
            try:
                copy.wait()
                with torch.no_grad():
                    self._exchange(copy.host)
                copy.finish()
            except Exception as error:
                error = collective_error(error, where, begin)
                self._on_error(error)
                fail_future(copy.future, error)

        self._worker.submit(run)
        return copy.future

    def _exchange(self, values: torch.Tensor) -> None:
        length = -(-values.numel() // self.size)
        padded = torch.zeros(self.size, length, dtype=values.dtype)
        padded.view(-1)[: values.numel()] = values
        out = padded.to(torch.bfloat16).view(torch.uint8)
        got = torch.empty_like(out)
        group, rank = self.transport.group, self.transport.rank
        group.alltoall_base(got, out, [], []).wait()
        total = torch.zeros(length)
        for peer in range(self.size):  # the owner adds its own values unrounded
            total += padded[rank] if peer == rank else got[peer].view(torch.bfloat16).to(torch.float32)
        mine = (total / self.size).to(torch.bfloat16).view(torch.uint8)
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        group.allgather([rows], [mine]).wait()
        whole = torch.cat([row.view(torch.bfloat16) for row in rows])
        values.copy_(whole[: values.numel()])

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close(10.0)
