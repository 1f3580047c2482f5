"""Gradients as fp16 or bf16: two bytes a value through an all-reduce.

torch 1.13's Gloo does not add bf16. There the same bytes go by an all-to-all of shards, which their owners add up in
fp32 in the order of the ranks, and an all-gather; on a thread, as these calls block.
"""

from __future__ import annotations

import time

import torch

from . import staging
from .buckets import Bucket
from .failure import Gate
from .reducer import Stateless
from .stats import size_of
from .transport import Transport, collective_error
from .workers import Worker

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Caster(Stateless):
    """Means of buckets as `kind` on a Gloo group for nothing else. Collective, as is making one."""

    def __init__(self, kind: str, transport: Transport, gate: Gate) -> None:
        super().__init__()
        self.transport, self.size, self.gate = transport, transport.size, gate
        self.adds = kind != "bf16" or self._try_bf16()
        self._dtype = DTYPES[kind]
        self._worker = None if self.adds else Worker("gradwire-cast", self._failed)

    def _failed(self, error: BaseException) -> None:
        self.gate.fail(error)

    def _try_bf16(self) -> bool:
        """Whether this torch's Gloo adds bf16: the same answer on all ranks."""
        try:
            probe = torch.ones(4, dtype=torch.bfloat16)
            self.transport.group.allreduce([probe]).wait()
            return bool((probe == self.size).all())
        except RuntimeError:
            return False

    def start(self, bucket: Bucket) -> torch.futures.Future:
        values = bucket.values
        self.full_size += size_of(values)
        self.sent_size += 2 * (self.size - 1) * values.numel() * 2 // self.size
        if self.adds:
            narrow = values.div(self.size).to(self._dtype)
            return staging.all_reduce(narrow, self.transport.group, self.gate.end_of(bucket.where, values.copy_))
        copy, begin = staging.HostCopy(values), time.monotonic()
        self.gate.add(copy.future)

        def run() -> None:
            try:
                copy.wait()
                mean = self._mean(copy.host)
            except Exception as error:
                raise collective_error(error, bucket.where, begin)  # noqa: B904  it has its cause
            with self.gate.passing(copy.future):
                copy.host.copy_(mean)
                copy.finish()

        self._worker.submit(run)
        return copy.future

    @torch.no_grad()
    def _mean(self, values: torch.Tensor) -> torch.Tensor:
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
        return torch.cat([row.view(torch.bfloat16) for row in rows])[: values.numel()]

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close(10.0)
