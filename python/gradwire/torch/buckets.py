"""A bucket with parameters of optimizers that maps are known for and of others: each kind is a message of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from . import staging
from .optimizers import Book


class Part:
    """The gradients of one kind in a bucket, in memory of their own."""

    def __init__(self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        self.params = params
        self._ranges = [_range(values, gradient) for gradient in gradients]
        self._room = torch.empty(sum(size for _, size in self._ranges), dtype=values.dtype, device=values.device)
        self.gradients, at = [], 0
        for (_, size), gradient in zip(self._ranges, gradients):
            self.gradients.append(self._room[at : at + size].as_strided(gradient.size(), gradient.stride(), at))
            at += size

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        torch.cat([values[offset : offset + size] for offset, size in self._ranges], out=self._room)
        return self._room

    def scatter(self, result: torch.Tensor, values: torch.Tensor) -> None:
        at = 0
        for offset, size in self._ranges:
            values[offset : offset + size].copy_(result[at : at + size])
            at += size


def _range(values: torch.Tensor, gradient: torch.Tensor) -> tuple[int, int]:
    size = gradient.numel()
    return (gradient.data_ptr() - values.data_ptr()) // values.element_size() if size else 0, size


def known_of(book: Book, params: Sequence[torch.Tensor]) -> list[bool]:
    """Whether maps are known for each; those that no optimizer has lose nothing in a bucket with maps."""
    for param in params:
        book.number(param)  # an optimizer may have got a group
    entries = [book.entry(param) for param in params]
    return [entry is None or entry[2] is not None for entry in entries]


class Mixed:
    """The parts of a bucket that comes again every step."""

    def __init__(
        self, values: torch.Tensor, params: list[torch.Tensor], gradients: list[torch.Tensor], known: list[bool]
    ) -> None:
        self.parts: list[tuple[bool, Part]] = []
        for kind in (True, False):
            chosen = [i for i, one in enumerate(known) if one is kind]
            part = Part(values, [params[i] for i in chosen], [gradients[i] for i in chosen])
            self.parts.append((kind, part))

    def reduce(
        self, values: torch.Tensor, run: Callable[[bool, torch.Tensor, Part], torch.futures.Future]
    ) -> torch.futures.Future:
        """run: of the kind, the values and the part. The future of all, in place."""
        futures = [run(kind, part.gather(values), part) for kind, part in self.parts]

        def end() -> None:
            for (_, part), future in zip(self.parts, futures):
                part.scatter(future.wait(), values)

        return staging.joined(futures, values, end)
