"""Which ranks of a group have set an error since its last large call, as the group's store knows.

Ranks without an error do their sums by Gloo and hear nothing else. So a rank that sets one says so in the store and
does one more call as they do. That call ends only once all ranks have begun it, and then those that have set one have
said so.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch.distributed as dist


class Posts:
    """number: of a call, the same on all ranks. One set and one look for each rank, and only where errors change."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = dist.PrefixStore("gradwire/errors", store), rank, size
        self._other: Any = None

    def post(self, number: int) -> None:
        """Before the call is begun."""
        self._store.add(f"{number}/{self._rank}", 1)

    def absent(self, number: int) -> list[int]:
        """Ranks that have not posted. From a thread of the group's own."""
        if self._other is None:
            self._other = self._store
            # The program may wait in its store for a rank that waits for this thread, and a store of TCP does one thing
            # at a time. torch 1.13 has no second connection.
            with contextlib.suppress(AttributeError, RuntimeError):
                self._other = self._store.clone()
        return [rank for rank in range(self._size) if not self._other.add(f"{number}/{rank}", 0)]
