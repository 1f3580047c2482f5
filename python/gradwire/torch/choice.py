"""Automatic off: whether compressed or plain all-reduce makes steps faster; measured, and decided equally by all."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable
from typing import Any

log = logging.getLogger("gradwire")

WARM = 2  # step 0 runs plain, and DDP makes its buckets anew after it; step 1 runs compressed and sets up maps
PAIRS = 3  # of a compressed and a plain step
# Before plain is chosen: messages shrink while Adam's second moments settle, a GPT's from 53 MB to 12.
MEASUREMENTS = 2
SHARE = 0.95  # of a plain step's time: three pairs do not show less than 5 %, and plain is exact


class Choice:
    """Which steps compress. The first steps alternate; then the ranks compare the medians of their step times. Where
    compression is not faster by that share they measure once more.

    The time of a step is that between the ends of two synchronisations, so what the codec takes from the rest of the
    step counts too. The slowest rank decides.
    """

    def __init__(self, mode: str, slowest: Callable[[list[float]], list[float]], rank: int) -> None:
        if mode not in ("auto", "always", "never"):
            raise ValueError(f"no mode {mode!r}; there are: auto, always, never")
        self.decision: bool | None = {"auto": None, "always": True, "never": False}[mode]
        self._slowest = slowest  # element by element the largest of all ranks' seconds
        self._rank = rank
        self._first: int | None = None  # step at which measuring began
        self._left = MEASUREMENTS  # that may be made
        self._seconds: dict[bool, list[float]] = {True: [], False: []}
        self.measured: tuple[float, float] | None = None  # seconds of a compressed and of a plain step

    def _turn(self, step: int) -> bool:
        """Whether a step that is measured compresses."""
        index = step - (self._first if self._first is not None else step)
        return index == 1 or (index >= WARM and index % 2 == 0)

    def next_compresses(self, step: int) -> bool:
        """Whether the coming step may compress; a map is needed then."""
        return self._turn(step) if self.decision is None else self.decision

    def compresses(self, step: int) -> bool:
        """To be asked once a step, by all ranks: the step after the last measurement waits for the decision."""
        if self.decision is not None:
            return self.decision
        if self._first is None:
            self._first = step
        if step - self._first == WARM + (MEASUREMENTS + 1 - self._left) * 2 * PAIRS:
            self._decide()
        return self.next_compresses(step)

    def record(self, step: int, seconds: float | None) -> None:
        if self.decision is None and self._first is not None and seconds is not None and step - self._first >= WARM:
            self._seconds[self._turn(step)].append(seconds)

    def _decide(self) -> None:
        times = [statistics.median(self._seconds[kind] or [0.0]) for kind in (True, False)]
        compressed, plain = self._slowest(times)
        self.measured = compressed, plain
        self._left -= 1
        if compressed >= SHARE * plain and self._left:
            self._seconds = {True: [], False: []}
            return
        self.decision = compressed < SHARE * plain
        if self._rank == 0:
            what = "compresses gradients" if self.decision else "steps aside: plain all-reduce is faster here"
            log.warning("gradwire %s (%.4f s a step compressed, %.4f s plain)", what, compressed, plain)

    def state_dict(self) -> dict[str, Any]:
        return {"decision": self.decision}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["decision"] is not None:
            self.decision = state["decision"]
