"""Statistics of a DdpState: to a line, a CSV file or TensorBoard."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Sequence
from io import RawIOBase
from typing import Any

log = logging.getLogger("gradwire")

COLUMNS = (
    "step",
    "sent_size",
    "received_size",
    "plain_size",
    "share",
    "map_s",
    "encode_s",
    "reduce_s",
    "decode_s",
    "operation_s",
    "step_s",
    "nmse",
    "mismatches",
)


class StepClock:
    """Seconds between the ends of two synchronisations."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.seconds = 0.0
        self.known = threading.Event()  # the last step has been timed
        self.known.set()

    def lap(self) -> float | None:
        now = time.perf_counter()
        seconds = None if self._last is None else now - self._last
        self._last = now
        if seconds is not None:
            self.seconds += seconds
        return seconds


class Samples:
    """Error of the sampled steps: what this rank's contributions to other ranks' sums lost, over all fp32 buckets
    of each such step. In a ring that is the first hop only: the left neighbour's shard. The mean of the steps'
    NMSE: a step with large gradients counts as much as another."""

    def __init__(self) -> None:
        self._sum, self._steps = 0.0, 0  # of the steps before the current one
        self._current: tuple[int, float, float] = (-1, 0.0, 0.0)  # step, squares of values and of errors

    def add(self, step: int, square: float, error: float) -> None:
        """Of one bucket."""
        if step != self._current[0]:
            self._sum, self._steps = self.totals()
            self._current = (step, 0.0, 0.0)
        self._current = (step, self._current[1] + square, self._current[2] + error)

    def totals(self) -> tuple[float, int]:
        """The sum of the steps' NMSE and their number. A step with a value that is not finite has none."""
        _, square, error = self._current
        if square > 0 and math.isfinite(square) and math.isfinite(error):
            return self._sum + error / square, self._steps + 1
        return self._sum, self._steps


def size_of(values: Any) -> int:
    """Bytes of a bucket; a sparse gradient of an embedding is one of its own."""
    if not values.is_sparse:
        return values.numel() * values.element_size()
    return sum(part.numel() * part.element_size() for part in (values._indices(), values._values()))


class SizesReport:
    """Of a hook that counts bytes alone. reducers: those that it has; None: it is one itself."""

    def __init__(self, hook: Any, reducers: Sequence[Any] | None = None) -> None:
        self._hook = weakref.proxy(hook)
        self._reducers = [self._hook] if reducers is None else reducers

    def sizes(self) -> tuple[int, int]:
        """Bytes that the reducers have sent and received."""
        sent, received = map(sum, zip(*(one.sizes() for one in self._reducers)))
        return sent, received

    def totals(self) -> dict[str, float]:
        """Sums since the start of this process."""
        sent, received = self.sizes()
        names = ("plain_size", "full_size")
        sizes = {name: sum(getattr(one, name) for one in self._reducers) for name in names}
        return {"sent_size": sent, "received_size": received, **sizes}

    def share(self, sums: dict[str, float]) -> float | None:
        """Bytes sent as a share of those of a plain reduce-scatter and all-gather of the same buckets."""
        ranks = self._hook.size
        full = 2 * sums["full_size"] * (ranks - 1) / ranks
        return sums["sent_size"] / full if full else None

    def summary(self) -> str:
        """One line for a progress display, from the start of this process."""
        totals = self.totals()
        return _bytes({**totals, "share": self.share(totals)})


class Report(SizesReport):
    """Sums since the last line, for rank 0. file: for lines of CSV, from open_csv(). hook: has an engine."""

    def __init__(
        self, hook: Any, reducers: Sequence[Any], *, file: RawIOBase | None, tensorboard: Any, every: int
    ) -> None:
        super().__init__(hook, reducers)
        self._hook, self._engine, self._rank = hook, hook.engine, hook.rank  # it may be asked when the hook is gone
        self._every = every
        self._writer = tensorboard
        self._file = file
        self.clock = StepClock()
        self._before: dict[str, float] = {}

    def totals(self) -> dict[str, float]:
        """Sums since the start of this process. Stages are CPU seconds of the pool's threads; operation_s is the wall
        time of operations, which overlap."""
        stats = self._engine.stats()
        nmse_sum, sampled_steps = self._engine.samples.totals()
        sums = super().totals()
        return {
            **sums,
            "sent_size": sums["sent_size"] + stats.sent_size,
            "received_size": sums["received_size"] + stats.received_size,
            **{f"{name}_s": getattr(stats, f"{name}_ns") / 1e9 for name in ("map", "encode", "reduce", "decode")},
            "operation_s": self._engine.seconds,
            "step_s": self.clock.seconds,
            "nmse_sum": nmse_sum,
            "sampled_steps": sampled_steps,
            "mismatches": self._engine.mismatches,
        }

    def row(self) -> dict[str, float | None]:
        """Sums since the last call."""
        totals = self.totals()
        sums = {name: value - self._before.get(name, 0) for name, value in totals.items()}
        self._before = totals
        return {**sums, "share": self.share(sums), "nmse": _nmse(sums)}

    def step(self, step: int) -> None:
        """A step is synchronised."""
        if self._rank != 0 or (step + 1) % self._every:
            return
        row = {"step": step, **self.row()}
        if self._file is not None:
            self._write(",".join(_text(row[name]) for name in COLUMNS) + "\n")
        if self._writer is not None:
            for name in COLUMNS[1:]:
                if row[name] is not None:
                    self._writer.add_scalar(f"gradwire/{name}", row[name], step)
        log.info("gradwire: step %d, %s", step, _line(row))

    def _write(self, line: str) -> None:
        """A full disk ends the file, not the run."""
        try:
            self._file.write(line.encode())
        except OSError as error:
            log.warning("gradwire: no more statistics: %s", error)
            self.close()

    def summary(self) -> str:
        """One line for a progress display, from the start of this process."""
        totals = self.totals()
        return _line({**totals, "share": self.share(totals), "nmse": _nmse(totals)})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _nmse(sums: dict[str, float]) -> float | None:
    return sums["nmse_sum"] / sums["sampled_steps"] if sums["sampled_steps"] else None


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _bytes(row: dict[str, float | None]) -> str:
    share = "plain" if row["share"] is None else f"{100 * row['share']:.1f} % of the bytes"
    return f"{share}, {row['sent_size'] / 1e6:.1f} MB sent"


def _line(row: dict[str, float | None]) -> str:
    nmse = "" if row["nmse"] is None else f", NMSE {row['nmse']:.1e}"
    return (
        f"{_bytes(row)}, map {row['map_s']:.3f} s, encode {row['encode_s']:.3f} s, "
        f"reduce {row['reduce_s']:.3f} s, decode {row['decode_s']:.3f} s{nmse}"
    )


def open_csv(path: str | None, rank: int) -> RawIOBase | None:
    """A new file, with the names of the columns. OSError if rank 0 cannot write it; of other ranks there is none."""
    if path is None or rank != 0:
        return None
    file = open(path, "wb", buffering=0)
    file.write((",".join(COLUMNS) + "\n").encode())
    return file
