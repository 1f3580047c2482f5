"""Buckets as the codecs get them, and gradients that travel in other buckets than DDP's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Bucket:
    """Gradients that travel together: a bucket of DDP, one of a plan, or a part of one."""

    values: torch.Tensor
    params: Sequence[torch.Tensor]
    gradients: Sequence[torch.Tensor]  # where they are in the values
    step: int = 0
    number: int = 0  # in its backward pass
    is_last: bool = True  # of the backward pass, as far as its codec is concerned
    message: Any = None  # of a recording
    owners: frozenset[Any] = frozenset()  # optimizers of the parameters, in a plan with memories

    @property
    def where(self) -> str:
        """For errors."""
        return f"step {self.step}, bucket {self.number}"


def offset_of(values: torch.Tensor, gradient: torch.Tensor) -> int:
    """Where a gradient begins in its bucket. One without values has no address."""
    return (gradient.data_ptr() - values.data_ptr()) // values.element_size() if gradient.numel() else 0


class Part:
    """A parameter in one of DDP's buckets."""

    __slots__ = ("gradient", "param", "values")

    def __init__(self, param: torch.Tensor, gradient: torch.Tensor, values: torch.Tensor) -> None:
        if values.is_sparse:
            raise ValueError("gradwire: the plan has a parameter with sparse gradients, which travel alone and plain")
        self.param, self.gradient = param, gradient
        offset = offset_of(values, gradient)
        self.values = values[offset : offset + gradient.numel()]  # in memory order


class Room:
    """Memory for parts that travel together; it serves again in the next step."""

    def __init__(self) -> None:
        self.flat: torch.Tensor | None = None

    def gather(self, parts: Sequence[Part]) -> Bucket:
        """A bucket of copies of these gradients, of one type."""
        length, like = sum(part.values.numel() for part in parts), parts[0].values
        if self.flat is None or self.flat.numel() != length or self.flat.dtype != like.dtype:
            self.flat = torch.empty(length, dtype=like.dtype, device=like.device)
        torch.cat([part.values for part in parts], out=self.flat)
        views = [
            flat.as_strided(part.gradient.size(), part.gradient.stride())
            for part, flat in zip(parts, self.flat.split([part.values.numel() for part in parts]))
        ]
        return Bucket(self.flat, [part.param for part in parts], views)

    def scatter(self, parts: Sequence[Part]) -> None:
        """Copies them back."""
        for part, flat in zip(parts, self.flat.split([part.values.numel() for part in parts])):
            part.values.copy_(flat)
