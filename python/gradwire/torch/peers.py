"""Which rank keeps the others waiting. Gloo's errors name a port, or nobody, and the first connection that a rank finds
broken is often that of one which has only given up before it.

So a rank that fails writes what it found into the job's store before it breaks its connections, and reads there what
the rank that it would name has found. The rank at fault is the one that has an error of its own, or says nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .workers import Worker

log = logging.getLogger("gradwire")
_PATIENCE_S = 10.0  # before a line says whom a new hook waits for
_STORE_S = 1.0  # for what the store does; it may be on a rank that is gone
# For what other ranks have to say. One that gives up says so at once, but one that waits for something else learns of
# it when it looks (LOOK_S); Gloo breaks connections a little before the rank that ran out of time can say why.
CLOSED_S, SILENT_S = 0.5, 3.0
_MUTE_S = 2.0  # of a collective call with a connection closed: until all but one have said something
LOOK_S = 1.0
_CALLS = {"gradwire": "ddp_hook", "THC": "thc_hook", "communicator": "Communicator", "planned_ddp": "planned_ddp"}
_CLOSED = re.compile(r"connection (closed|reset|refused)|broken pipe|(read|write) error|peer closed", re.IGNORECASE)
_SILENT = re.compile(r"timed out|timeout", re.IGNORECASE)


class PeerError(RuntimeError):
    """Another rank has failed, is gone or sends nothing; the text says which, since when, in what step and bucket.

    Attributes: rank (in the group; None: more than one, or unknown).
    """

    def __init__(
        self, text: str, rank: int | None = None, waits: Iterable[Wait] = (), *, silent: bool = False, tail: str = ""
    ) -> None:
        super().__init__(text)
        self.rank, self.waits, self.silent, self.tail = rank, tuple(waits), silent, tail
        self.settled = False  # the ranks have said what they found


@dataclass(frozen=True)
class Wait:
    """What a thread waits for. direct: the peer waits for no other rank before it sends this, as far as one can say.
    peer: None: some of the ranks of a collective call."""

    peer: int | None
    since: float
    where: str
    direct: bool = True
    sending: bool = False

    def error(self, name: Callable[[int], str], waits: Iterable[Wait]) -> PeerError:
        """The peer is silent."""
        what = "took" if self.sending else "sent"
        text = f"{name(self.peer)} {what} nothing for {time.monotonic() - self.since:.3g} s{place(self.where)}"
        return PeerError(text, self.peer, waits, silent=True)


def place(where: str) -> str:
    return f" ({where})" if where else ""


def kind_of(error: BaseException) -> str | None:
    """What torch says of a peer: "silent" or "closed". None: something else."""
    text = str(error)
    return "silent" if _SILENT.search(text) else "closed" if _CLOSED.search(text) else None


@dataclass(frozen=True)
class Finding:
    """Why a rank has failed. suspect: the rank that it names; None: an error of its own. unknown: some other rank, in
    a collective call; tail: the end of a text that names it. silent: nothing came, else a connection is closed."""

    suspect: int | None
    text: str
    unknown: bool = False
    tail: str = ""
    silent: bool = False


class Board:
    """Findings of the ranks of one transport. Nothing here raises, or takes longer than _STORE_S: a store that does not
    answer is not asked again."""

    def __init__(self, store: Any, prefix: str, rank: int, size: int) -> None:
        self._store, self._prefix, self.rank, self.size = store, prefix, rank, size
        self._heard: dict[int, Finding] = {}
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        self._lost = store is None

    def tell(self, finding: Finding) -> None:
        def write() -> None:
            self._store.set(f"{self._prefix}/{self.rank}", json.dumps(asdict(finding)))
            self._store.add(f"{self._prefix}/{self.rank}/told", 1)
            self._store.add(f"{self._prefix}/told", 1)

        self._call(write)

    def first(self) -> tuple[int, Finding] | None:
        """A rank that has told why it failed."""
        if self._call(lambda: self._store.add(f"{self._prefix}/told", 0)):
            return next(iter(self.hear().items()), None)
        return None

    def hear(self, ranks: Iterable[int] | None = None) -> dict[int, Finding]:
        """What these ranks, or all others, have found so far."""
        wanted = [rank for rank in (range(self.size) if ranks is None else ranks) if rank != self.rank]

        def read() -> None:
            for rank in wanted:
                if rank not in self._heard and self._store.add(f"{self._prefix}/{rank}/told", 0):
                    self._heard[rank] = Finding(**json.loads(self._store.get(f"{self._prefix}/{rank}")))

        self._call(read)
        return {rank: self._heard[rank] for rank in wanted if rank in self._heard}

    def _call(self, job: Callable[[], Any]) -> Any:
        """On a thread, as torch's calls of a store may never end."""
        with self._lock:
            if self._lost:
                return None
            if self._worker is None:
                self._worker = Worker("gradwire-store", self._lose)
            try:
                return self._worker.call(job).result(_STORE_S)
            except Exception:  # or no answer in time
                self._lost = True
                return None

    def _lose(self, _: BaseException) -> None:
        self._lost = True

    # ---- who is at fault ----

    def chain(self, finding: Finding) -> tuple[Finding, bool]:
        """Follows from the rank that is blamed to the one that it names, as far as these have said. The finding of the
        last, and whether the chain ends: with an error that a rank has of its own; or with this rank, which is no use:
        then the finding is the one that it began with."""
        seen, now = {self.rank}, finding
        while now.suspect is not None:
            if now.suspect in seen:
                return finding, now.suspect == self.rank
            seen.add(now.suspect)
            said = self.hear([now.suspect]).get(now.suspect)
            if said is None or said.unknown:
                return now, False
            if said.suspect is None:
                return Finding(now.suspect, said.text), True
            now = said
        return now, False

    def resolve(self, finding: Finding, name: Callable[[int], str]) -> Finding:
        """The finding that names the rank at fault, as far as the ranks have said within some seconds."""
        begin = time.monotonic()
        while True:
            found, ends = self._fault_of(finding, name) if finding.unknown else self.chain(finding)
            said = None if found.suspect is None else self._heard.get(found.suspect)
            if said is not None and said.unknown and not finding.unknown:
                finding = said  # no more than that it was another one
                continue
            seconds = SILENT_S if finding.silent else _MUTE_S if finding.unknown else CLOSED_S
            waited = time.monotonic() - begin
            if ends or self._lost or waited > seconds:
                return self._with_name(found, name)
            others = set(range(self.size)) - {self.rank, found.suspect}
            if waited > CLOSED_S and found.suspect is not None and others <= self.hear(others).keys():
                return self._with_name(found, name)  # all others have found another at fault
            time.sleep(0.05)

    def _with_name(self, found: Finding, name: Callable[[int], str]) -> Finding:
        """An error that a rank has of its own, with its name."""
        said = None if found.suspect is None else self._heard.get(found.suspect)
        if said is not None and said.suspect is None and not said.unknown:
            return Finding(found.suspect, f"{name(found.suspect)} failed: {said.text}")
        return found

    def _fault_of(self, finding: Finding, name: Callable[[int], str]) -> tuple[Finding, bool]:
        """Of a collective call: who has said nothing, unless somebody knows more."""
        said = self.hear()
        for rank, one in said.items():
            if one.suspect is None and not one.unknown:
                return Finding(rank, one.text), True
        for one in said.values():
            if one.suspect is not None and one.suspect not in (self.rank, rank) and one.suspect not in said:
                return one, False
        mute = [rank for rank in range(self.size) if rank != self.rank and rank not in said]
        if self._lost or not mute:
            return finding, False
        what = "sent nothing" if finding.silent else "closed its connection" if len(mute) == 1 else "closed connections"
        who = ", ".join(map(name, mute[:5])) + (f" and {len(mute) - 5} more" if len(mute) > 5 else "")
        return Finding(mute[0] if len(mute) == 1 else None, f"{who} {what}{finding.tail}"), False


# ---- before there are connections ----


def store_of_job() -> Any:
    """None where there is none: torch has no public name for it."""
    with contextlib.suppress(Exception):
        return dist.distributed_c10d._get_default_store()
    return None


_arrivals: tuple[Any, Counter[tuple[int, ...]]] = (None, Counter())  # the store, and calls of arrive() with it


def arrive(kind: str, group: Any, timeout: timedelta) -> None:
    """Waits until all ranks of the group are here. RuntimeError names those that are not within the timeout."""
    global _arrivals
    store = store_of_job()
    try:
        ranks = global_ranks(group)
    except Exception:  # a group that torch does not keep
        return
    if store is None or len(ranks) == 1:
        return
    if _arrivals[0] is not store:
        _arrivals = store, Counter()
    _arrivals[1][ranks] += 1
    prefix = f"gradwire/here/{hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]}/{_arrivals[1][ranks]}"
    call, absent = _CALLS.get(kind, "ddp_hook"), ""
    try:
        store.add(f"{prefix}/{dist.get_rank(group)}", 1)
        store.add(prefix, 1)
        begin, pause, warned = time.monotonic(), 0.001, False
        while store.add(prefix, 0) < len(ranks):
            waited = time.monotonic() - begin
            late = waited > timeout.total_seconds()
            if late or waited > _PATIENCE_S and not warned:
                absent = _absent(store, prefix, ranks)
                if late and absent:
                    store.add(f"{prefix}/left", 1)
                    raise PeerError(f"gradwire: {absent} not called {call}() within {waited:.3g} s")
                if absent:
                    warned = True
                    log.warning("gradwire: still waiting: %s not called %s()", absent, call)
            time.sleep(pause)
            pause = min(0.05, pause * 1.5)
        if store.add(f"{prefix}/left", 0):
            raise PeerError(f"gradwire: another rank gave up waiting for this one to call {call}(): it came too late")
    except PeerError:
        raise
    except RuntimeError as error:  # a rank with the store ended
        who = absent or "some rank has"
        raise PeerError(f"gradwire: {who} not called {call}(), and the job's store is gone: {error}") from error


def _absent(store: Any, prefix: str, ranks: tuple[int, ...]) -> str:
    """Those that have not arrived, and the verb; empty: they just have."""
    absent = [rank for i, rank in enumerate(ranks) if not store.add(f"{prefix}/{i}", 0)]
    if len(absent) <= 1:
        return "".join(f"rank {rank} has" for rank in absent)
    more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
    return f"ranks {', '.join(map(str, absent[:5]))}{more} have"


def global_ranks(group: Any) -> tuple[int, ...]:
    size = dist.get_world_size(group)
    if group is dist.group.WORLD:
        return tuple(range(size))
    return tuple(dist.get_global_rank(group, rank) for rank in range(size))
