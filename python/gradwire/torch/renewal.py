"""Installed codebooks that are renewed every few steps (runtime.h, "Codebooks that outlive a frame").

    end of a step        every rank counts the labels of what it has sent, in the background
    before the next one  the ranks add up their counts, make equal codebooks and install them; then they compare what
                         they have: generation and CRC32C. If these are equal they encode with them, else the frames of
                         this step have codebooks of their own

Values do not depend on codebooks: a step with others, or none, gives the same bits. But codebooks that do not fit make
messages about as large as raw values. Two rules bound that, and make a bucket use fresh codebooks until the next
renewal. Counts of which nearly all are zeros or escapes (of a loss of 0, of NaN and infinities) are not installed. And
a rank whose messages get other sizes than they had when they were counted says so, before the next step.
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
WORDS_OF_PIECE = 268  # GW_EXCHANGE_CODEBOOK_WORDS
ORDINARY_MIN = 1 / 64  # share of values that are neither zeros nor escapes, for counts that are installed
# Sizes of a step divided by those of the counted one, between which codebooks still fit. From step to step sizes change
# by a few percent, codebooks of 50 steps before add up to 4 %. Values that get smaller make frames smaller even with
# codebooks that do not fit, so a lower bound is needed as well.
CHANGE_MIN, CHANGE_MAX = 0.9, 1.1
_MASK = (1 << 64) - 1
log = logging.getLogger("gradwire")


def are_usable(pooled: torch.Tensor) -> bool:
    """Whether codebooks of these words of all ranks fit anything else than what was counted."""
    labels = (pooled.view(-1, WORDS_OF_PIECE)[:, 2:258].long() & 0xFFFFFFFF).sum(0)
    ordinary = int(labels[2:].sum())
    return ordinary > 0 and ordinary >= ORDINARY_MIN * int(labels.sum())


class BucketCodebooks:
    """Those of a bucket. For the control thread, but for counted(), sent() and stop()."""

    def __init__(self, exchange: Exchange) -> None:
        self.due = False  # the ranks have counted, and not yet added up
        self.generation = 0  # that operations use; 0: codebooks in the frames
        self.outgrown = False  # sizes have changed on this rank since the last renewal
        self._usable = False  # the last renewal has installed some
        self._exchange = exchange
        self._ended = threading.Event()  # nothing is being counted
        self._ended.set()
        self._counted = False
        self._in_use = 0
        self._sent = 0  # bytes of all operations
        self._size = 0  # of the last one with this codec
        self._counted_size = 0  # of the one that was counted last
        self._usual_size = 0  # of the one whose counts have made the codebooks

    def sent(self, total: int, *, counts: bool) -> None:
        """An operation has ended; total: bytes that this bucket has sent. counts: not one of the fallback codec."""
        size, self._sent = total - self._sent, total
        if not counts:
            return
        self._size = size
        if self._in_use and not CHANGE_MIN * self._usual_size <= size <= CHANGE_MAX * self._usual_size:
            self.outgrown = True

    def count(self) -> None:
        """Starts counting what the last operation has sent. There may be nothing: a step of the fallback codec."""
        self.due, self._counted, self._counted_size = True, False, self._size
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

    def install(self, told: Sequence[torch.Tensor], generation: int) -> str | None:
        """What all ranks have told. Returns why nothing is installed: if one of them could not count, all keep what
        they have, else this bucket has fresh codebooks."""
        self.due = False
        if not all(int(words[0]) for words in told):
            return "a rank could not count what it sent"
        pooled = torch.cat([words[1:] for words in told])
        self._usable, self.outgrown, self._usual_size = False, False, self._counted_size
        if not are_usable(pooled):
            return "nearly all values were zeros, NaN or infinite"
        try:
            self._exchange.install_codebooks(generation, pooled.data_ptr())
        except Error as error:
            return str(error)
        self._usable = True
        return None

    def words(self) -> list[int]:
        stamp = self._exchange.codebooks_stamp() if self._usable and not self.outgrown else 0
        return [stamp, stamp ^ _MASK]


class Codebooks:
    """Those of an engine. every: steps from one renewal to the next; 0: there are none."""

    def __init__(self, transport: Transport, every: int) -> None:
        self._transport, self._every = transport, every
        self._generation = 0  # renewals: equal on all ranks, whatever steps they think they are at
        self._said: set[str] = set()
        self.mismatches = 0  # steps in which the ranks had different codebooks
        self.skipped = 0  # renewals of a bucket that have installed nothing
        self.outgrown = 0  # buckets that went back to fresh codebooks before a renewal
        self.sent_size = 0  # bytes of counts that went to other ranks
        self._differed: int | None = None  # the last step with a mismatch

    def are_due(self, step: int) -> bool:
        """Whether what this step has sent is counted."""
        return self._every > 0 and (step + 1) % self._every == 0

    def renew(self, plans: Sequence[Any], where: str) -> None:
        """The ranks add up what they have counted. Collective: all have counted in the same step."""
        due = [plan.codebooks for plan in plans if plan.codebooks.due]
        if not due:
            return
        self._generation = self._generation % 0xFFFFFFFF + 1
        for one in due:  # one by one: each needs room for the counts of all ranks
            mine = one.told()
            by_rank = self._transport.gather(mine, where)
            self.sent_size += mine.numel() * mine.element_size() * (self._transport.size - 1)
            refused = one.install(by_rank, self._generation)
            if refused is not None:
                self.skipped += 1
                self._say("skipped", f"the codebooks of a bucket are not renewed: {refused} ({where})")

    def agree(self, plans: Sequence[Any], words: Sequence[int], step: int) -> None:
        """words: WORDS of each plan, the largest of all ranks. All ranks have the same codebooks of a bucket, or none
        uses its own."""
        for i, plan in enumerate(plans):
            stamp, complement = words[i * WORDS : (i + 1) * WORDS]
            before, one = plan.codebooks.generation, plan.codebooks
            one.generation = stamp >> 32 if stamp == complement ^ _MASK else 0
            if complement == _MASK:  # a rank has none, or none that fit
                if before and one._usable:
                    self.outgrown += 1
                    self._say(
                        "outgrown",
                        "messages have other sizes than when codebooks were renewed; "
                        "until they are renewed again, frames have their own",
                    )
            elif not one.generation and self._differed != step:
                self._differed = step
                self.mismatches += 1
                self._say("differ", "the codebooks of the ranks differ; until they are renewed, frames have their own")

    def _say(self, kind: str, text: str) -> None:
        """Each kind once."""
        if kind not in self._said and self._transport.rank == 0:
            self._said.add(kind)
            log.warning("gradwire: %s", text)
