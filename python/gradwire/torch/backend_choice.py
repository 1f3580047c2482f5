"""Whether a sum's values must not be rounded: the rule of the MPI adapter (adapters/mpi/mpi_exact.c, which has its
reasons; docs/mpi.md, "Exact data").

Programs sum other things than gradients: counts in floats, and arrays of which each rank fills a part of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

NO, SPARSE, INTEGERS = range(3)  # what a rank says of its values; the largest word of all ranks counts
_SAMPLES = 1024
# Above it a type has no odd integers, so that a value being one says nothing.
_INTEGER_MAX = {torch.float32: 1 << 24, torch.float16: 1 << 11, torch.bfloat16: 1 << 8}
# Positions with values of several ranks are at most this share of those with any.
_OVERLAP_SHARE = 64
_STRIDE_LEN = 1 << 16  # values between two looks at whether to go on

_thread = threading.local()


@contextlib.contextmanager
def exactly() -> Iterator[None]:
    """Calls of this thread in the block are Gloo's in groups of the backend, too, whatever errors they have. On all
    ranks: hooks compress what may be rounded themselves."""
    before = is_exact()
    _thread.is_exact = True
    try:
        yield
    finally:
        _thread.is_exact = before


def is_exact() -> bool:
    """In a block of exactly()."""
    return getattr(_thread, "is_exact", False)


def look(values: torch.Tensor, ranks: int) -> tuple[int, torch.Tensor]:
    """The word of this rank, of at least one value in one dimension, and at which of the positions it has values."""
    sample = _sample(values)
    filled = sample != 0
    count = int(filled.sum())
    # A rank of zeros says nothing about the others.
    if count and _are_integers(sample) and all(map(_are_integers, values.split(_STRIDE_LEN))):
        return INTEGERS, filled
    return (SPARSE if count * ranks <= sample.numel() else NO), filled


def filled(values: torch.Tensor) -> torch.Tensor:
    """At which of the positions it has values."""
    return _sample(values) != 0


def are_apart(filled: list[torch.Tensor]) -> bool:
    """Whether few of the positions that any rank has filled were filled by several. filled: of all ranks."""
    ranks = torch.stack([one.int() for one in filled]).sum(0)
    return int((ranks > 1).sum()) * _OVERLAP_SHARE <= int((ranks > 0).sum())


def _sample(values: torch.Tensor) -> torch.Tensor:
    return values[_positions(values.numel())]


def _positions(length: int) -> torch.Tensor:
    """One in each of equal stretches, the same on all ranks, but at changing places inside: data may have a period."""
    count = min(length, _SAMPLES)
    stretch, sample = length // count, torch.arange(count)
    return sample * stretch + (sample * 2654435761 % (1 << 32) >> 8) % stretch


def _are_integers(values: torch.Tensor) -> bool:
    """NaN and infinity are none."""
    limit, wide = _INTEGER_MAX[values.dtype], values.float()
    return bool(((wide == wide.trunc()) & (wide.abs() <= limit)).all())
