"""Installed codebooks that are renewed every few steps (runtime.h, "Codebooks that outlive a frame").

    end of a step        every rank counts the labels of what it has sent, in the background
    before the next one  the ranks add up their counts, make equal codebooks and install them; then they compare what
                         they have: generation and CRC32C. If these are equal they encode with them, else the frames of
                         this step have codebooks of their own

Values do not depend on codebooks: a step with others, or none, gives the same bits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import torch

from gradwire.errors import Error

from ._pool import Exchange
from .transport import Transport

WORDS = 2  # of a bucket, that the ranks compare before a step: the stamp and its complement
_MASK = (1 << 64) - 1
log = logging.getLogger("gradwire")


class BucketBooks:
    """Those of a bucket. For the control thread, but for counted() and stop()."""

    def __init__(self, exchange: Exchange) -> None:
        self.due = False  # the ranks have counted, and not yet added up
        self.generation = 0  # that operations use; 0: codebooks in the frames
        self._exchange = exchange
        self._ended = threading.Event()  # nothing is being counted
        self._ended.set()
        self._counted = False
        self._in_use = 0

    def count(self) -> None:
        """Starts counting what the last operation has sent. There may be nothing: a step of the fallback codec."""
        self.due, self._counted = True, False
        self._ended.clear()
        try:
            self._exchange.count_codebooks()
        except BaseException as error:
            self._ended.set()
            if not isinstance(error, Error):
                raise

    def counted(self, word: int) -> None:
        """The event CODEBOOKS."""
        self._counted = word == 0
        self._ended.set()

    def wait(self) -> None:
        """Until the exchange can do something else."""
        self._ended.wait()

    def stop(self) -> None:
        self._ended.set()

    def begin(self) -> None:
        """An operation begins."""
        self.wait()
        if self._in_use != self.generation:
            self._exchange.use_codebooks(self.generation)
            self._in_use = self.generation

    def told(self) -> torch.Tensor:
        """Of the counts, what the others need: whether there are any, and the counts."""
        self.wait()
        words = torch.zeros(1 + self._exchange.info.codebook_word_count, dtype=torch.int32)
        if self._counted:
            words[0] = 1
            self._exchange.codebook_words(words.data_ptr() + words.element_size())
        return words

    def install(self, told: Sequence[torch.Tensor], generation: int) -> None:
        """What all ranks have told. Nothing changes if one of them could not count."""
        self.due = False
        if all(int(words[0]) for words in told):
            pooled = torch.cat([words[1:] for words in told])
            self._exchange.install_codebooks(generation, pooled.data_ptr())

    def words(self) -> list[int]:
        stamp = self._exchange.codebooks_stamp()
        return [stamp, stamp ^ _MASK]


class Books:
    """Those of an engine. every: steps from one renewal to the next; 0: there are none."""

    def __init__(self, transport: Transport, every: int) -> None:
        self._transport, self._every = transport, every
        self.mismatches = 0  # steps in which the ranks had different codebooks
        self._differed: int | None = None  # the last of them

    def are_due(self, step: int) -> bool:
        """Whether what this step has sent is counted."""
        return self._every > 0 and (step + 1) % self._every == 0

    def renew(self, plans: Sequence[Any], where: str, step: int) -> None:
        """The ranks add up what they have counted. Collective: all have counted in the same step."""
        due = [plan.books for plan in plans if plan.books.due]
        if not due:
            return
        told = [one.told() for one in due]
        sizes = [words.numel() for words in told]
        by_rank = [words.split(sizes) for words in self._transport.gather(torch.cat(told), where)]
        for i, one in enumerate(due):
            one.install([words[i] for words in by_rank], step & 0xFFFFFFFF or 1)

    def agree(self, plans: Sequence[Any], words: Sequence[int], step: int) -> None:
        """words: WORDS of each plan, the largest of all ranks. All ranks have the same codebooks of a bucket, or none
        uses its own."""
        for i, plan in enumerate(plans):
            stamp, complement = words[i * WORDS : (i + 1) * WORDS]
            differ = stamp != complement ^ _MASK
            plan.books.generation = 0 if differ else stamp >> 32
            if differ and self._differed != step:
                self._differed = step
                self.mismatches += 1
                if self.mismatches == 1 and self._transport.rank == 0:
                    log.warning(
                        "gradwire: the codebooks of the ranks differ; until they are renewed, frames have their own"
                    )
