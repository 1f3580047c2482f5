"""The backend "gradwire" of torch.distributed: init_process_group("gradwire").

A group of it has two groups of Gloo. One gets every call as it is, except large sums of floats, and large gathers and
broadcasts of them, while an error is set: these go to a thread of the group, which does them in order over the other.

    Operations       what a group does with a call; torch 2: under torch's Backend, torch 1.13: under its ProcessGroup
    backend_sums     sums, compressed or exact        backend_choice   which are exact
    backend_gathers  lossless frames                  backend_work     what a program waits for
    backend_posts    which ranks have set an error
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import backend_choice, staging
from . import backend_work as works
from .backend_gathers import Gathers
from .backend_posts import Posts
from .backend_sums import Sums
from .communicator import _Call
from .transport import Transport
from .workers import Worker

NAME = "gradwire"
_VARIABLE = "GRADWIRE_TORCH_NMSE"
_ENDED = "gradwire: this group has ended: "
_DIFFERS = "set_default_error() differs between ranks"
_TOLD_SIZE = 256  # bytes of options that ranks compare
_CLOSE_S = 10.0  # for what was submitted before a group is destroyed
log = logging.getLogger("gradwire")


def _checked_nmse(value: float | None, name: str = "nmse") -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and math.isfinite(value) and 0 < value <= 1):
        raise ValueError(f"{name}={value!r}; it is above 0 and at most 1, or None")
    return None if value is None else float(value)


class _Default:
    """The error of groups that have none of their own, and whether the line was written that there is none."""

    nmse: float | None = None
    is_set = False
    told = False


def _error_of_environment() -> float | None:
    """For programs that are not changed at all."""
    text = os.environ.get(_VARIABLE, "")
    if not text:
        return None
    try:
        return _checked_nmse(float(text))
    except ValueError:
        raise ValueError(f"{_VARIABLE}={text}; it is above 0 and at most 1") from None


def set_default_error(nmse: float | None) -> None:
    """Lets groups of the backend "gradwire" compress large sums of floats: each message of a sum may add a squared
    error of about `nmse` of its squared values. None, the default: they are Gloo's, bit for bit.

    To be called on all ranks, with one value, before the first large sum, or between the same two operations. If some
    ranks alone call it, all raise: at the group's first large call, or at one of the next two. A group that has done
    large calls without an error does one more sum or all_gather by Gloo, in which its ranks compare, before it
    compresses. Without a call it is the environment variable GRADWIRE_TORCH_NMSE. A group with an error of its own
    (BackendOptions) does not heed it. ValueError unless above 0 and at most 1.
    """
    _Default.nmse, _Default.is_set = _checked_nmse(nmse), True


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """Options of one group of the backend "gradwire": new_group(backend="gradwire", pg_options=BackendOptions(...)).
    Equal on all of its ranks.

    nmse: the error of sums in place of set_default_error()'s. small_len: sums of fewer values are Gloo's. gathers: how
    all_gather and broadcast of floats travel where sums are compressed: "auto" measures whether lossless frames are
    faster than Gloo, "frames", "gloo". gather_nmse: an error that they may have, too; None: they are exact. gather_len:
    those of fewer values are Gloo's.
    """

    nmse: float | None = None
    small_len: int = 1 << 14
    gathers: str = "auto"
    gather_nmse: float | None = None
    gather_len: int = 1 << 18

    def __post_init__(self) -> None:
        _checked_nmse(self.nmse)
        _checked_nmse(self.gather_nmse, "gather_nmse")
        if self.gathers not in ("auto", "frames", "gloo"):
            raise ValueError(f"gathers={self.gathers!r}; there are: auto, frames, gloo")
        if self.gathers == "gloo" and self.gather_nmse is not None:
            raise ValueError("gathers='gloo' is exact: it goes without gather_nmse")
        for name in ("small_len", "gather_len"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}; it is an integer from 1")

    def error(self) -> float | None:
        """Of sums, now."""
        return _Default.nmse if self.nmse is None else self.nmse


class Operations:
    """What a group does with a call of torch's. From any thread, as Gloo's."""

    def _open(self, opts: Any, options: BackendOptions) -> None:
        """A collective call of the group's ranks. opts: torch's, of a new group."""
        self._rank, self._size, self._timeout = opts.group_rank, opts.group_size, opts.timeout
        self._ranks = list(opts.global_ranks_in_group) or None
        self._options = options
        self._gloo = _new_gloo(opts.store, opts)
        self._own = _new_gloo(dist.PrefixStore("gradwire/", opts.store), opts) if self._size > 1 else None
        if self._own is not None:
            self._compare_options()
        self._sums: Sums | None = None
        self._gathers: Gathers | None = None
        self._worker = Worker("gradwire-group", self._on_error)
        self._lock = threading.Lock()
        self._last: works.Outcome | None = None  # of the operation that was submitted last
        self._count = 0
        self._posts = Posts(opts.store, self._rank, self._size)
        self._has_error: bool | None = None  # what the ranks have told each other of it
        self._calls = 0  # whose error was looked at: as many on all ranks
        self._posted: int | None = None  # the one, now being begun, for which this rank has posted its error
        self.error: BaseException | None = None  # what ended the group
        self._is_destroyed = False

    def _compare_options(self) -> None:
        """They decide what a rank does with a call."""
        transport = Transport(self._own, self._timeout, self._ranks)
        mine = repr(self._options).encode()[:_TOLD_SIZE].ljust(_TOLD_SIZE, b"\0")
        told = transport.gather(torch.tensor(list(mine), dtype=torch.uint8), "comparing options")
        for rank, one in enumerate(told):
            if bytes(one.tolist()) != mine:
                theirs = bytes(one.tolist()).rstrip(b"\0").decode(errors="replace")
                raise ValueError(
                    f"gradwire: the ranks differ: {transport.name(rank)} has {theirs}; this one {self._options}"
                )

    # ---- sums ----

    def allreduce(self, tensors: list[torch.Tensor], *arguments: Any, **keywords: Any) -> Any:
        if isinstance(tensors, list) and len(tensors) == 1 and self._compresses(tensors, arguments):
            return self._sum("all_reduce", tensors, tensors, arguments[0])
        return self._pass("allreduce", tensors, *arguments, **keywords)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], *arguments: Any, **keywords: Any) -> Any:
        if self._compresses(tensors, arguments):
            return self._sum("all_reduce_coalesced", tensors, tensors, arguments[0])
        return self._pass("allreduce_coalesced", tensors, *arguments, **keywords)

    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], *arguments: Any, **keywords: Any
    ) -> Any:
        if isinstance(outputs, list) and len(outputs) == len(inputs) == 1:
            parts = inputs[0]
            fits = len(parts) == self._size and all(one.numel() == outputs[0].numel() for one in parts)
            if fits and self._compresses([*parts, outputs[0]], arguments, of=parts):
                return self._scatter("reduce_scatter", outputs, inputs, arguments[0])
        return self._pass("reduce_scatter", outputs, inputs, *arguments, **keywords)

    def reduce_scatter_single(
        self, output: torch.Tensor, values: torch.Tensor, *arguments: Any, **keywords: Any
    ) -> Any:
        fits = values.numel() == self._size * output.numel()
        if fits and self._compresses([values, output], arguments, of=[values]):
            return self._scatter("reduce_scatter_tensor", [output], [[values]], arguments[0])
        return self._pass(_SCATTER, output, values, *arguments, **keywords)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], *arguments: Any, **keywords: Any
    ) -> Any:
        fits = len(outputs) == len(inputs)
        fits = fits and all(one.numel() == self._size * to.numel() for one, to in zip(inputs, outputs))
        if fits and self._compresses([*inputs, *outputs], arguments, of=inputs):
            return self._scatter("reduce_scatter_coalesced", outputs, [[one] for one in inputs], arguments[0])
        return self._pass("reduce_scatter_single_coalesced", outputs, inputs, *arguments, **keywords)

    def _compresses(
        self, tensors: Sequence[torch.Tensor], arguments: Sequence[Any], of: Sequence[torch.Tensor] | None = None
    ) -> bool:
        """Whether a sum travels compressed, or exact in its place: equal on all ranks where these call alike. of: those
        whose values are added; None: all."""
        op = getattr(arguments[0], "reduceOp", None) if arguments else None
        is_sum = op is not None and (op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG)  # "in" asks the other one
        if not is_sum or not self._reaches(tensors, self._options.small_len, of):
            return False
        nmse = self._compared_error()
        if self._options.error() is None and not _Default.told:
            _Default.told = True
            if (self._rank if self._ranks is None else self._ranks[self._rank]) == 0:  # of the job: once in it
                log.warning(
                    "gradwire: no error is set, so sums are Gloo's: gradwire.torch.set_default_error(1e-3) compresses"
                )
        return nmse is not None

    def _compared_error(self, *, meets: bool = True) -> float | None:
        """Of sums, now, for a call that _reaches(). None: it is Gloo's. The ranks compare whether there is one at the
        first such call, and where that has changed. meets: the call ends on a rank only once all have begun it."""
        nmse = self._options.error()
        had, has = self._has_error, nmse is not None
        self._calls += 1
        if had is None:
            self._has_error = has
            self._compare_errors(nmse)
        elif had and not has:
            self._has_error = False
            self._compare_taken_back()
        elif has and not had:
            if meets:
                self._posted = self._calls
            return None
        return nmse

    def _reaches(self, tensors: Sequence[torch.Tensor], length: int, of: Sequence[torch.Tensor] | None = None) -> bool:
        """Whether the codec takes these tensors, they have so many values, and the caller lets them be encoded."""
        if self._size == 1 or not tensors or backend_choice.is_exact():
            return False
        dtype = tensors[0].dtype
        taken = dtype in staging.CODEC_DTYPES and all(
            one.dtype == dtype and one.device.type == "cpu" and one.layout == torch.strided for one in tensors
        )
        return taken and sum(one.numel() for one in (tensors if of is None else of)) >= length

    def _sum(self, name: str, tensors: list[torch.Tensor], result: list[torch.Tensor], opts: Any) -> Any:
        tensors, mean, nmse = list(tensors), opts.reduceOp == dist.ReduceOp.AVG, self._options.error()
        return self._submit(name, result, lambda: self._made_sums().sum_in_place(tensors, nmse, mean), opts)

    def _scatter(self, name: str, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        outputs, inputs = list(outputs), [list(one) for one in inputs]
        mean, nmse = opts.reduceOp == dist.ReduceOp.AVG, self._options.error()
        return self._submit(name, outputs, lambda: self._made_sums().scatter_sum(outputs, inputs, nmse, mean), opts)

    # ---- gathers ----

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], *arguments: Any, **keywords: Any
    ) -> Any:
        lists = isinstance(inputs, list) and len(outputs) == len(inputs) == 1
        fits = lists and len(outputs[0]) == self._size
        if fits and all(one.numel() == inputs[0].numel() for one in outputs[0]) and self._frames(outputs[0], inputs):
            return self._gather("all_gather", outputs[0], [(list(outputs[0]), inputs[0])], arguments)
        return self._pass("allgather", outputs, inputs, *arguments, **keywords)

    def all_gather_single(self, output: torch.Tensor, mine: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        if output.numel() == self._size * mine.numel() and self._frames([output], [mine]):
            return self._gather_whole("all_gather_into_tensor", [output], [mine], arguments)
        return self._pass(_GATHER, output, mine, *arguments, **keywords)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], *arguments: Any, **keywords: Any
    ) -> Any:
        fits = len(outputs) == len(inputs) and all(
            one.numel() == self._size * mine.numel() for one, mine in zip(outputs, inputs)
        )
        if fits and self._frames(outputs, inputs):
            return self._gather_whole("all_gather_coalesced", outputs, inputs, arguments)
        return self._pass("all_gather_single_coalesced", outputs, inputs, *arguments, **keywords)

    def broadcast(self, tensors: list[torch.Tensor], *arguments: Any, **keywords: Any) -> Any:
        opts = arguments[0] if arguments else None
        one = isinstance(opts, dist.BroadcastOptions) and len(tensors) == 1 and 0 <= opts.rootRank < self._size
        if one and self._frames(tensors, [], meets=False):
            tensor, root = tensors[0], opts.rootRank
            return self._submit("broadcast", [tensor], lambda: self._made_gathers().broadcast(tensor, root), opts)
        return self._pass("broadcast", tensors, *arguments, **keywords)

    def _frames(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], *, meets: bool = True) -> bool:
        """Whether these may travel in frames: equal on all ranks where these call alike, however their tensors lie in
        memory."""
        options = self._options
        if options.gathers == "gloo" or not self._reaches([*outputs, *inputs], options.gather_len, outputs):
            return False
        return self._compared_error(meets=meets) is not None

    def _gather_whole(
        self, name: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], arguments: Sequence[Any]
    ) -> Any:
        """To outputs with the values of all ranks."""
        pairs, copies = [], []
        for output, mine in zip(outputs, inputs):
            whole = output.detach()
            if not whole.is_contiguous() or whole.is_neg():
                whole = torch.empty(output.numel(), dtype=output.dtype, device="cpu")
            copies.append((output, whole))
            pairs.append((list(whole.view(self._size, mine.numel()).unbind()), mine))
        return self._gather(name, outputs, pairs, arguments, copies)

    def _gather(
        self, name: str, result: list[torch.Tensor], pairs: Any, arguments: Sequence[Any], copies: Any = ()
    ) -> Any:
        opts = arguments[0] if arguments else None
        return self._submit(name, result, lambda: self._made_gathers().all_gather(pairs, copies), opts)

    # ---- the thread of the group ----

    def _submit(self, name: str, result: list[torch.Tensor], job: Callable[[], Any], opts: Any) -> Any:
        self._raise_ended()
        outcome = works.Outcome(name)
        timeout = getattr(opts, "timeout", None)

        def run() -> None:
            try:
                sums = self._made_sums()
                sums.set_timeout(timeout if timeout is not None and timeout > timedelta(0) else self._timeout)
                job()
            except BaseException as error:
                if self._sums is None or self._sums.error is not None:
                    self._end((self._sums and self._sums.error) or error)
                if self._is_destroyed:  # the cause speaks of hooks and communicators
                    ended = RuntimeError(f"{_ENDED}{self.error}")
                    ended.__cause__, error = error, ended
                outcome.end(result, error)
            else:
                outcome.end(result)
            with self._lock:
                if self._last is outcome:  # it keeps the tensors
                    self._last = None

        with self._lock:  # the order of outcomes is that of jobs
            self._last = outcome
            self._count += 1
            self._worker.submit(run)
        return works.own(outcome)

    def _made_sums(self) -> Sums:
        """When it is first needed. A collective call."""
        if self._sums is None:
            self._raise_ended()
            self._sums = Sums(self._own, self._timeout, self._ranks)
            self._sums.gate.on_break.append(Transport(self._gloo, self._timeout).abort)
        return self._sums

    def _made_gathers(self) -> Gathers:
        if self._gathers is None:
            mode = self._options.gathers
            self._gathers = Gathers(self._made_sums(), mode, self._options.gather_nmse)
        return self._gathers

    def _compare_errors(self, nmse: float | None) -> None:
        """Where some ranks alone have an error, these raise it in place of waiting for the others, which do their sums
        by Gloo."""

        def compare() -> None:
            transport = Transport(self._own, self._timeout, self._ranks)
            try:
                said = transport.gather(torch.tensor([nmse is not None], dtype=torch.uint8), "comparing errors")
            except RuntimeError:
                return  # as a group of Gloo this one may live on; what needs the connection says what is wrong
            other = next((rank for rank, one in enumerate(said) if bool(one) != (nmse is not None)), None)
            if other is not None:
                which = "has none" if nmse is not None else "has one"
                name, mine = transport.name(other), "none is set here" if nmse is None else f"nmse={nmse:g} here"
                self._end(ValueError(f"gradwire: {_DIFFERS}: {mine}, {name} {which}"))

        self._raise_ended()
        self._worker.submit(compare)

    def _compare_taken_back(self) -> None:
        """This rank's call is Gloo's now. Where others still have an error, theirs meets this in place of the call."""

        def compare() -> None:
            try:
                self._made_sums()._agree(lambda: _Call(f"a call without an error ({_DIFFERS})", []))
            except ValueError as error:
                self._end_on_all(ValueError(f"gradwire: {_DIFFERS}: none is set here; {error}"))
            except RuntimeError:
                return  # as in _compare_errors()

        self._raise_ended()
        self._worker.submit(compare)

    def _compare_posts(self, number: int, work: Any) -> None:
        """When a call by Gloo, whose work this is, has ended: whether all ranks had posted an error before it."""

        def compare() -> None:
            try:
                work.wait()
            except RuntimeError:
                return  # whoever waits for the call raises it, too
            absent = self._posts.absent(number)
            if absent:
                name = Transport(self._own, self._timeout, self._ranks).name(absent[0])
                mine = f"nmse={self._options.error() or 0:g} here"
                self._end_on_all(ValueError(f"gradwire: {_DIFFERS}: {mine}, {name} has none"))

        self._worker.submit(compare)

    def _on_error(self, error: BaseException) -> None:
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """No rank may wait for this one."""
        if self.error is None:
            self.error = error
            Transport(self._gloo, self._timeout).abort()

    def _end_on_all(self, error: BaseException) -> None:
        """Of this rank alone, so that its connections for sums break, too."""
        self._end(error)
        if self._sums is not None:
            self._sums.fail(error)

    def _raise_ended(self) -> None:
        if self.error is not None:
            raise RuntimeError(f"{_ENDED}{self.error}") from self.error

    # ---- what is Gloo's ----

    def _pass(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        self._raise_ended()
        call = getattr(self._gloo, name)
        number, self._posted = self._posted, None
        if number is None:
            return works.passed(call(*arguments, **keywords))
        self._posts.post(number)
        work = call(*arguments, **keywords)
        self._has_error = True
        self._compare_posts(number, work)
        return works.passed(work)

    def barrier(self, *arguments: Any, **keywords: Any) -> Any:
        """Comes after what any rank has submitted before. Gloo's own is entered in the order of Gloo's calls, which is
        that of all ranks; then, once there were operations of the group's thread, whose number all ranks know, the
        ranks meet in the order of these."""
        self._raise_ended()
        first = self._gloo.barrier(*arguments, **keywords)
        if self._count == 0:
            return works.passed(first)

        def meet() -> None:
            sums = self._made_sums()
            sums._call(lambda: sums._transport.wait_all(lambda: first, "a barrier"))
            sums._agree(lambda: _Call("barrier()", []))

        return self._submit("barrier", [], meet, arguments[0] if arguments else None)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """opts: as torch 2 gives them, or a timeout."""
        self._raise_ended()
        timeout = getattr(opts, "timeout", opts)
        last = self._last
        if last is not None:
            last.wait(None)
        self._gloo.monitored_barrier(timeout if timeout >= timedelta(0) else self._timeout, wait_all_ranks)

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        return NAME

    def _get_sequence_number_for_group(self) -> int:
        return self._gloo._get_sequence_number_for_group() + self._count

    def _set_sequence_number_for_group(self) -> None:
        self._gloo._set_sequence_number_for_group()

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout  # what each operation of the group's thread begins with
        for gloo in (self._gloo, self._own):
            if gloo is not None:
                gloo.set_timeout(timeout)

    def totals(self) -> dict[str, int]:
        """Sums since the group was made: bytes of this rank, and operations."""
        names = ("sent_size", "received_size", "full_size", "plain_size")
        sums, gathers = self._sums, self._gathers
        found = dict.fromkeys(names, 0) if sums is None else {name: int(sums.report.totals()[name]) for name in names}
        found["gather_sent_size"] = 0 if gathers is None else gathers.sent_size
        found["compressed_count"] = 0 if sums is None else sums.compressed_count
        found["exact_count"] = 0 if sums is None else sums.exact_count
        return found

    def shutdown(self) -> None:
        """Ends the thread after what was submitted."""
        if self.error is None:
            self._worker.close(_CLOSE_S)
            self.error, self._is_destroyed = RuntimeError("it was destroyed"), True
            if self._sums is not None:
                self._sums.close()

    def abort(self) -> None:
        """Breaks the connections: this rank's operations, and those of others that wait for it, raise."""
        self._end(RuntimeError("it was aborted"))
        if self._sums is not None:
            self._sums.fail(self.error)
        elif self._own is not None:
            Transport(self._own, self._timeout).abort()


_wrapped: list[Operations] = []  # TORCH_DISTRIBUTED_DEBUG=DETAIL: torch's wrapper does not keep their Python halves


def backend_totals(group: Any = None) -> dict[str, int]:
    """Sums of a group of this backend since it was made, on this rank. None: the default group.

    sent_size, received_size: bytes of compressed sums; full_size: their tensors; plain_size: tensors of sums that were
    exact; gather_sent_size: bytes of lossless frames; compressed_count, exact_count: sums.
    """
    group = dist.group.WORLD if group is None else group
    one = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    if not isinstance(one, Operations):
        raise ValueError("gradwire: the group is not of the backend gradwire")
    return one.totals()


def _new_gloo(store: Any, opts: Any) -> Any:
    gloo = dist.ProcessGroupGloo(store, opts.group_rank, opts.group_size, timeout=opts.timeout)
    if works.HAS_HOLDERS:
        gloo.options.global_ranks_in_group = opts.global_ranks_in_group
        gloo.options.group_name = opts.group_id
    return gloo


def _passing(name: str) -> Callable[..., Any]:
    def call(self: Operations, *arguments: Any, **keywords: Any) -> Any:
        return self._pass(name, *arguments, **keywords)

    call.__name__ = name
    return call


# Names of Gloo's calls in both versions; those that a version lacks are in no class of it.
_SCATTER = "reduce_scatter_single" if works.HAS_HOLDERS else "_reduce_scatter_base"
_GATHER = "all_gather_single" if works.HAS_HOLDERS else "_allgather_base"
_PASSED = (
    *("allreduce_sparse", "reduce", "gather", "gather_single", "scatter", "allgather_coalesced"),
    *("all_to_all_single", "alltoall_base", "alltoall", "send", "recv", "recv_anysource"),
)
_Base: Any = getattr(torch._C._distributed_c10d, "Backend", None) if works.HAS_HOLDERS else dist.ProcessGroup


class Group(Operations, _Base):
    """torch 2: a Backend, one device's part of a ProcessGroup. torch 1.13: a ProcessGroup."""

    def __init__(self, opts: Any, options: BackendOptions) -> None:
        _Base.__init__(self, opts.group_rank, opts.group_size)
        self._open(opts, options)

    @property
    def options(self) -> Any:
        return self._gloo.options

    # torch asks these as properties of the class, and without an end where it has none of its own.
    supports_splitting = True
    supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = False
    _supports_time_estimate = False

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> Any:
        """A group of these ranks of this one, with the same options.

        torch calls this on other ranks, too, for which its own backends return no group. It does not take that from a
        backend in Python: torch 2.15 ends the process where None is returned.
        """
        if self._rank not in ranks:
            raise ValueError(
                "gradwire: split_group() needs a group for each rank, and this one is in none of split_ranks; give it "
                "one of its own ([rank]), or use new_group()"
            )
        given = _Opened(self, store, list(ranks), opts)
        return Group(given, self._options)


for _name in _PASSED:
    if hasattr(_Base, _name) and hasattr(dist.ProcessGroupGloo, _name):
        setattr(Operations, _name, _passing(_name))


class _Opened:
    """What torch tells of a new group, of one that is split off."""

    def __init__(self, parent: Operations, store: Any, ranks: list[int], opts: Any) -> None:
        own = parent._ranks or list(range(parent._size))
        self.store = dist.PrefixStore("gradwire/", store)  # torch splits all devices' backends with one store
        self.group_rank, self.group_size = ranks.index(parent._rank), len(ranks)
        self.timeout = getattr(opts, "_timeout", parent._timeout)
        self.global_ranks_in_group = [own[rank] for rank in ranks]
        self.group_id = getattr(opts, "group_name", "")


def _create(opts: Any, options: Any) -> Any:
    if not isinstance(options, BackendOptions):
        if options is not None and not isinstance(options, _Base.Options):  # for a pair torch may give NCCL's to both
            raise TypeError(f"gradwire: pg_options is {type(options).__name__}, not gradwire.torch.BackendOptions")
        options = BackendOptions()
    if not _Default.is_set:
        set_default_error(_error_of_environment())
    works.answer_for_holders()
    group = Group(opts, options)
    if works.HAS_HOLDERS and dist.get_debug_level() == dist.DebugLevel.DETAIL:
        _wrapped.append(group)
    return group


def register() -> None:
    """Makes the name known to torch.distributed. Once."""
    if not dist.is_available() or not dist.is_gloo_available() or NAME.upper() in dist.Backend._plugins:
        return
    if works.HAS_HOLDERS:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    else:
        dist.Backend.register_backend(NAME, _create, extended_api=True)
