"""Messages between ranks by point-to-point calls of torch.distributed, on a process group of their own.

Gloo takes a message that is shorter than the posted receive, and frames delimit themselves, so receives are posted with
the bound of a message and no sizes are exchanged. What lies behind the message in the buffer is not looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import peers
from .peers import PeerError, Wait

# Tags: operations modulo 2^12, stage, piece. A step has one operation for each bucket, and messages of operations with
# one tag would be mixed up. Agreements have tags of their own.
_OPERATION_BITS, _PIECE_BITS = 12, 17
OPERATIONS_MAX = 1 << _OPERATION_BITS  # on their way at a time
PIECES_MAX = 1 << _PIECE_BITS
TO_OWNER, FROM_OWNER = 0, 1
_AGREEMENT, _NEVER_SENT = 1 << 30, 3 << 29
MESSAGES = 5 << 28  # to below 3 << 29: of other operations than the engine's
_SETTINGS_MAX = 62  # options that agree() compares, so that all ranks send as many words
_AGAIN_S = 0.3  # for the wait that ran out of time to say so, before those whose connections that has broken
_WORD = (1 << 32) - 1


def tag(operation: int, stage: int, piece: int) -> int:
    return (operation % (1 << _OPERATION_BITS)) << (_PIECE_BITS + 1) | stage << _PIECE_BITS | piece


class DifferentError(ValueError):
    """The ranks have other options, or have loaded other states; all of them raise it."""

    on_all_ranks = True


class Transport:
    """Point-to-point messages and small agreements within `group`, which must be a Gloo group for nothing else. ranks:
    the job's numbers of its ranks, where torch does not know the group."""

    def __init__(self, group: Any, timeout: timedelta, ranks: Sequence[int] | None = None) -> None:
        self.group = group
        self.rank, self.size = group.rank(), group.size()
        self._ranks = ranks
        self.timeout = timeout
        self._agreements = 0
        self._waits: dict[int, Wait] = {}  # by thread
        self._board: peers.Board | None = None
        self._next_look = 0.0

    def name(self, rank: int) -> str:
        """Of a rank of the group, for people."""
        with contextlib.suppress(Exception):
            other = self._ranks[rank] if self._ranks is not None else dist.get_global_rank(self.group, rank)
            if other != rank:
                return f"rank {rank} of the group, {other} of the job,"
        return f"rank {rank}"

    def send(self, message: torch.Tensor, rank: int, tag: int) -> Any:
        try:
            return self.group.send([message], rank, tag)
        except RuntimeError as error:  # of a connection that is broken already
            raise self._error(Wait(rank, time.monotonic(), "", sending=True), error) from error

    def receive(self, room: torch.Tensor, rank: int, tag: int) -> Any:
        try:
            return self.group.recv([room], rank, tag)
        except RuntimeError as error:
            raise self._error(Wait(rank, time.monotonic(), ""), error) from error

    def wait(self, work: Any, peer: int, where: str = "", *, direct: bool = True, sending: bool = False) -> None:
        """Raises PeerError if the peer is gone or nothing came in time. where: for the error. direct: as in Wait."""
        mine = Wait(peer, time.monotonic(), where, direct, sending)
        self._waits[threading.get_ident()] = mine
        try:
            work.wait(self.timeout)
        except RuntimeError as error:
            raise self._error(mine, error) from error
        finally:
            self._waits.pop(threading.get_ident(), None)

    def _error(self, mine: Wait, error: RuntimeError) -> PeerError:
        kind = peers.kind_of(error)
        if "caused pair closure" in str(error):
            time.sleep(_AGAIN_S)
        waits = sorted(self._waits.values(), key=lambda wait: (not wait.direct, wait.since))
        if kind == "silent":
            # Of two waits that run out at a time, the one for a rank that waits for nobody.
            half = (time.monotonic() + mine.since) / 2
            first = next((one for one in waits if one.since < half and one.peer is not None), mine)
            return (first if first.direct else mine).error(self.name, waits)
        name, where = self.name(mine.peer), peers.place(mine.where)
        if kind == "closed":
            return PeerError(f"{name} closed its connection{where}", mine.peer, waits)
        return PeerError(f"a message of {name} failed{where}: {error}", mine.peer, waits)

    def look(self) -> None:
        """Raises PeerError if another rank has given up, while this one waits for something else. Asks at most once a
        second, and only if something has been waited for as long."""
        now = time.monotonic()
        if self._board is None or now < self._next_look:
            return
        self._next_look = now + peers.LOOK_S
        waits = list(self._waits.values())
        if any(now - wait.since > peers.LOOK_S for wait in waits):
            first = self._board.first()
            if first is not None and first[1].unknown:
                raise PeerError(first[1].text, tail=first[1].tail, silent=first[1].silent)
            if first is not None:
                raise PeerError(f"{self.name(first[0])} gave up", first[0], waits)

    def look_for_closed(self, where: str) -> None:
        """Raises PeerError if the connection of a rank is closed from which nothing is expected. Gloo says so where a
        receive is posted; nothing ever comes for these, and nobody waits for them."""
        for i in range(1, self.size):
            peer = (self.rank + i) % self.size
            try:
                self.group.recv([torch.empty(1, dtype=torch.uint8)], peer, _NEVER_SENT)
            except RuntimeError as error:
                raise self._error(Wait(peer, time.monotonic(), where), error) from error

    def largest(self, words: list[int], where: str = "", *, direct: bool = True) -> list[int]:
        """Element by element the largest of all ranks' uint64 words. Blocks. For one thread."""
        flip = 1 << 63  # torch's integers are signed: moves the order
        mine = torch.tensor([word - flip for word in words], dtype=torch.int64)
        values = torch.stack(self.gather(mine, where, direct=direct)).amax(0)
        return [value + flip for value in values.tolist()]

    def largest_seconds(self, seconds: list[float]) -> list[float]:
        """Element by element the largest of all ranks' numbers. Blocks. For one thread."""
        mine = torch.tensor(seconds, dtype=torch.float64)
        return torch.stack(self.gather(mine, "comparing times", direct=False)).amax(0).tolist()

    def gather(self, mine: torch.Tensor, where: str = "", *, direct: bool = True) -> list[torch.Tensor]:
        """The tensors of all ranks, of one size. Blocks. For one thread."""
        rooms = [mine if rank == self.rank else torch.empty_like(mine) for rank in range(self.size)]
        self.to_all(rooms, where, direct=direct)
        return rooms

    def to_all(self, rooms: list[torch.Tensor], where: str = "", *, direct: bool = True) -> None:
        """rooms[rank] goes to all other ranks, theirs into the other rooms. All to all: a few bytes take the time of
        one message, where Gloo's ring takes 2 (ranks - 1) of them. Blocks. For one thread."""
        self._agreements += 1
        number = _AGREEMENT | self._agreements % (1 << _OPERATION_BITS)
        others = [(self.rank + i) % self.size for i in range(1, self.size)]
        receives = [(self.receive(rooms[peer], peer, number), peer) for peer in others if rooms[peer].numel()]
        sends = [(self.send(rooms[self.rank], peer, number), peer) for peer in others if rooms[self.rank].numel()]
        for work, peer in receives:
            self.wait(work, peer, where, direct=direct)
        for work, peer in sends:
            self.wait(work, peer, where, sending=True)

    def agree(
        self,
        kind: str,
        options: Mapping[str, Any],
        *,
        failed: bool = False,
        what: str = "options",
        where: str = "comparing options",
    ) -> None:
        """Raises on all ranks, and says why, unless all have this kind of hook and these options and none has failed.

        The first call of a hook, whatever it is, so that one that others lack keeps nobody waiting. A rank that failed
        does not raise here: it has an error of its own. what: the word for the options in the error.
        """
        names = sorted(options)
        texts = [kind, *(repr(options[name]) for name in names)]
        words = [zlib.crc32(text.encode()) for text in texts]
        words += [0] * (1 + _SETTINGS_MAX - len(words))
        own = [self.rank + 1 if failed else 0, int.from_bytes(os.urandom(7), "little")]
        found = self.largest([*own, *words, *(word ^ _WORD for word in words)], where)
        bad, name, *largest = found
        if failed:
            return
        if bad:
            raise RuntimeError(f"gradwire: rank {bad - 1} failed to make its hook; its own error says why")
        differ = [i for i in range(len(words)) if largest[i] != largest[len(words) + i] ^ _WORD]
        if 0 in differ:
            raise DifferentError(f"gradwire: the ranks have different hooks; this one has {kind}")
        if differ:
            which = ", ".join(names[i - 1] for i in differ)
            raise DifferentError(f"gradwire: the ranks have different {what}: {which}")
        if self._board is None:  # its name in the store is one that no other job or hook has used
            self._board = peers.Board(peers.store_of_job(), f"gradwire/failed/{name:x}", self.rank, self.size)

    def agree_on_state(self, kind: str, **state: Any) -> None:
        """The same for what load_state_dict() may have changed on one rank alone. Before the first operation."""
        what, where = "states, which all ranks must load", "before the first bucket; has its DDP the hook?"
        self.agree(f"the state of {kind}", state, what=what, where=where)

    def all_reduce(self, values: torch.Tensor, op: Any = dist.ReduceOp.SUM, where: str = "") -> None:
        """In place. Blocks. Raises PeerError if a rank is gone or silent."""
        options = dist.AllreduceOptions()
        options.reduceOp = op
        options.timeout = self.timeout
        self.wait_all(lambda: self.group.allreduce([values], options), where)

    def wait_all(self, call: Callable[[], Any], where: str = "") -> None:
        """Until a collective call, which returns its work, has ended on this rank. Raises as all_reduce()."""
        mine = Wait(None, time.monotonic(), where)
        self._waits[threading.get_ident()] = mine
        try:
            work = call()
            done = threading.Event()
            work.get_future().then(lambda _: done.set())
            while not done.wait(peers.LOOK_S):
                self.look()
            work.wait()
        except RuntimeError as error:
            raise collective_error(error, where, mine.since)  # noqa: B904  it has its cause
        finally:
            self._waits.pop(threading.get_ident(), None)

    @contextlib.contextmanager
    def waiting(self, where: str) -> Iterator[None]:
        """A block that waits for something else than a rank: what look() goes by."""
        self._waits[threading.get_ident()] = Wait(None, time.monotonic(), where)
        try:
            yield
        finally:
            self._waits.pop(threading.get_ident(), None)

    # ---- failure ----

    def tell(self, error: BaseException) -> peers.Finding:
        """Tells the other ranks why this one fails, and breaks the connections: what they wait for from this one fails
        now, not at their timeout."""
        finding = self._finding(error)
        if self._board is not None:
            self._board.tell(finding)
        self.abort()
        return finding

    def _finding(self, error: BaseException) -> peers.Finding:
        if not isinstance(error, PeerError):
            return peers.Finding(
                None, str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"
            )
        if error.rank is None:
            return peers.Finding(None, str(error), unknown=True, tail=error.tail, silent=error.silent)
        finding = peers.Finding(error.rank, str(error), silent=error.silent)
        if self._board is not None and not error.settled:
            if not error.silent:  # a rank that ran out of time says so a little after Gloo has broken its connections
                time.sleep(_AGAIN_S)
            found, ends = self._board.chain(finding)
            if ends and found is finding:  # that rank has given up because of this one, which waits for another
                others = [wait for wait in error.waits if wait.peer not in (None, error.rank)]
                if others:
                    other = others[0].error(self.name, ())
                    return peers.Finding(other.rank, str(other), silent=True)
        return finding

    def resolve(self, error: BaseException, finding: peers.Finding) -> BaseException:
        """The error that names the rank at fault, once the others have said what they found. Takes up to 3 s."""
        if not isinstance(error, PeerError) or error.settled or self._board is None:
            return error
        found = self._board.resolve(finding, self.name)
        named = PeerError(found.text, found.suspect)
        named.__cause__, named.settled = error.__cause__, True
        return named

    def abort(self) -> None:
        """Breaks the connections."""
        # When one wait runs out of time, Gloo breaks all connections of its group. A connection that is broken already
        # raises at once and breaks no other: so all peers are tried.
        for i in range(1, self.size):
            room = torch.empty(1, dtype=torch.uint8)
            with contextlib.suppress(RuntimeError, ValueError):  # the latter: NCCL takes no tensors of the CPU
                self.group.recv([room], (self.rank + i) % self.size, _NEVER_SENT).wait(timedelta(milliseconds=1))


def collective_error(error: BaseException, where: str, since: float | None = None) -> BaseException:
    """For what torch says in a collective call, of which one does not know the peer. Other errors stay as they are."""
    # Gloo's name, in a path: what a program has raised is its own error, whatever word is in it.
    kind = peers.kind_of(error) if "gloo/" in str(error) or "NCCL" in str(error) else None
    if not isinstance(error, RuntimeError) or isinstance(error, PeerError) or kind is None:
        return error
    lasted = f" for {time.monotonic() - since:.3g} s" if since is not None and kind == "silent" else ""
    where = peers.place(where)
    found = PeerError(f"an all-reduce failed{where}: {error}", silent=kind == "silent", tail=f"{lasted}{where}")
    found.__cause__ = error
    return found


class Start:
    """Makes the transport of a hook, and lets the ranks agree, after a block with what may fail on a rank alone:

        with Start("gradwire", group, transport, timeout) as start:
            ...
            start.options = {...}  # that must be equal on all ranks
        start.transport

    What the block raises is raised when the other ranks have been told, so that none waits for this one. group: None:
    the default one. timeout: None: that of the group.
    """

    transport: Transport

    def __init__(self, kind: str, group: Any, transport: Any, timeout: timedelta | None) -> None:
        self.group = dist.group.WORLD if group is None else group
        self.timeout = timeout or timeout_of(self.group)
        self.options: Mapping[str, Any] = {}
        self._kind, self._transport = kind, transport

    def __enter__(self) -> Start:
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if error is None or isinstance(error, Exception) and dist.is_initialized():
            peers.arrive(self._kind, self.group, self.timeout)
            self.transport = new_transport(self.group, self._transport, self.timeout)
            self.transport.agree(self._kind, self.options, failed=error is not None)


def new_transport(group: Any, transport: Any, timeout: timedelta) -> Transport:
    """A Gloo group of the ranks of `group` for nothing else, unless one is given. A collective call of these ranks."""
    if transport is not None:
        return Transport(transport, timeout)
    store, ranks = peers.store_of_job(), peers.global_ranks(group)
    if store is None or not dist.is_gloo_available():  # of MPI: what torch says
        return Transport(dist.new_group(ranks, backend="gloo", timeout=timeout), timeout)
    return Transport(_gloo_group(store, group, ranks, timeout), timeout, ranks)


def _gloo_group(store: Any, group: Any, ranks: Sequence[int], timeout: timedelta) -> Any:
    """Not by dist.new_group(). In torch 1.13 all processes of the job must call that, and in the same order. In torch 2
    the group's own do, but the name of what they make counts all groups that a process has made, and one may have made
    more than another. The name here counts the groups of these ranks alone, in the store, which is new in a new job."""
    name = "world" if group is dist.group.WORLD else hashlib.sha256(repr(tuple(ranks)).encode()).hexdigest()[:32]
    rank = dist.get_rank(group)
    count = store.add(f"gradwire/groups/{name}/{rank}", 1)
    prefix = dist.PrefixStore(f"gradwire/groups/{name}/number {count}", store)
    return dist.ProcessGroupGloo(prefix, rank, len(ranks), timeout=timeout)


def timeout_of(group: Any) -> timedelta:
    """How long a call of a group may take; what torch takes by default where the group does not say."""
    for device in ("cpu", "cuda"):  # a group of NCCL has no backend for the CPU
        with contextlib.suppress(AttributeError, RuntimeError):
            backend = group._get_backend(torch.device(device)) if hasattr(group, "_get_backend") else group
            return backend.options._timeout
    return timedelta(minutes=30)
