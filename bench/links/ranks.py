"""Runs one command per rank of a Network, with outputs and a time limit."""

import dataclasses
import glob
import os
import signal
import subprocess
import tempfile
import time


@dataclasses.dataclass
class RankResult:
    rank: int
    status: int | None  # exit status, negative: signal, None: stopped at the time limit or because another rank failed
    output: str  # stdout and stderr, in the order written


class RanksFailed(RuntimeError):
    """A rank failed or the time limit passed; `results` has all ranks."""

    def __init__(self, message, results):
        super().__init__(message)
        self.results = results


def environment(net, rank):
    """What torch.distributed and our programs read, on top of the environment of this process. net: a Network or an
    emulated.Loopback."""
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(net.ranks),
        "GW_LINK": str(net.spec),
        **net.settings(),
    }


def run_ranks(net, words, limit, patience=10.0, extra=None):
    """Runs `words` (a list, or a function rank -> list) on every rank; returns the RankResults.

    limit: seconds for all. When a rank fails the others have `patience` seconds to end by themselves. `extra`: more
    environment, a dictionary or a function rank -> dictionary. Raises RanksFailed unless every rank ends with status 0.
    """
    ranks = list(range(net.ranks))
    children, files = [], []
    try:
        for rank in ranks:
            files.append(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
            own = words(rank) if callable(words) else words
            more = extra(rank) if callable(extra) else extra or {}
            children.append(
                subprocess.Popen(
                    [*net.inside(rank), *map(str, own)],
                    stdin=subprocess.DEVNULL,
                    stdout=files[-1],
                    stderr=subprocess.STDOUT,
                    env={**environment(net, rank), **more},
                    start_new_session=True,
                )
            )
        problem = _wait(children, limit, patience)
    finally:
        for child in children:
            _stop(child)
    results = []
    for rank, child, file in zip(ranks, children, files):
        file.seek(0)
        results.append(RankResult(rank, getattr(child, "ended", None), file.read()))
        file.close()
    if problem:
        last = "".join(f"\n--- rank {r.rank}, status {r.status}:\n{r.output[-2000:]}" for r in results)
        raise RanksFailed(problem + last, results)
    return results


def _wait(children, limit, patience):
    """Waits for all; returns what went wrong, None if nothing did."""
    end, problem = time.monotonic() + limit, None
    while True:
        for rank, child in enumerate(children):
            if not hasattr(child, "ended") and child.poll() is not None:
                child.ended = child.returncode
                if child.returncode != 0 and problem is None:
                    problem = f"rank {rank} failed with status {child.returncode}"
                    end = min(end, time.monotonic() + patience)
        if all(hasattr(child, "ended") for child in children):
            return problem
        if time.monotonic() > end:
            return problem or f"not done after {limit} s"
        time.sleep(0.01)


def _stop(child):
    """Ends the rank's whole process group, and waits until nothing of it runs."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            pass
    end = time.monotonic() + 5  # a killed process needs a processor to end
    while _running(child.pid) and time.monotonic() < end:
        time.sleep(0.01)


def _running(group):
    """Whether a process of the group has not ended. Nobody may ever wait for zombies: they count as ended."""
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat, encoding="utf-8", errors="replace") as f:
                state, _, of = f.read().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == group and state not in "ZX":
            return True
    return False
