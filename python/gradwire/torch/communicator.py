"""Compressed all-reduce and reduce-scatter outside DDP: DiLoCo-like outer steps, FSDP2, HSDP."""

from __future__ import annotations

import contextlib
import logging
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from . import given, staging
from .engine import EngineOwner, Operation, Plan, Settings
from .failure import wait_for
from .optimizers import ParamRegistry, Place
from .options import CodecOptions
from .reducer import Stateless
from .stats import Report, size_of
from .transport import Start

_PLANS_MAX = 256  # lengths (with an optimizer: sets of parameters) whose memory a communicator keeps
_HEAD = struct.Struct("<BIIB")  # of what the ranks tell before an operation: bad, its values, memory orders, a word
_TOLD_SIZE = 512
# What sums are made in where Gloo does not add a type.
_WIDER = {torch.int16: torch.int32, **({} if hasattr(torch, "compile") else {torch.bfloat16: torch.float32})}
# The same for a mean: a sum may be out of the range of a type that holds its mean.
_WIDER_MEAN = {
    **{torch.int8: torch.int32, torch.uint8: torch.int32, torch.int16: torch.int32, torch.int32: torch.int64},
    torch.float16: torch.float32,
}
_TAKEN = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
}


@dataclass
class _Call:
    """What one rank gives to an operation."""

    text: str  # what all ranks must give
    tensors: list[torch.Tensor]
    params: Sequence[torch.Tensor] | None = None
    orders: list[tuple[int, ...]] = field(default_factory=list)  # of dimensions in memory, _order()
    flats: list[tuple[list[int], torch.Tensor]] = field(default_factory=list)  # tensors that travel together
    word: int = 0  # a vote: this rank's, and after _agree() the largest of all ranks'


log = logging.getLogger("gradwire")


class Communicator(EngineOwner):
    """Blocking compressed operations on a process group, in the same order on all of its ranks. For one thread.

    group: None: the default group. optimizer: the one that consumes what is reduced, with equal state on all ranks:
    quanta then follow from its state, and all_reduce() needs `params`. Without one quanta are carried, and nmse is the
    share of error that a message may add. small_len, seed, transport, timeout: as in DdpState. options: those of
    CodecOptions, but quantum_mode, books and books_every.

    Before anything is sent the ranks compare what they give: where an argument is bad or differs all of them raise
    TypeError or ValueError, tensors are as they were, and the communicator goes on. report: as of DdpState, sums over
    the operations; error: what ended the communicator.
    """

    def __init__(
        self,
        group: Any = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        small_len: int = 1 << 14,
        seed: int = 0,
        transport: Any = None,
        timeout: timedelta | None = None,
        **options: Any,
    ) -> None:
        self.small_len = small_len
        self.step = 0
        with Start("communicator", group, transport, timeout) as start:
            made = [] if optimizer is None else given.optimizers_of(optimizer)
            given.check_keywords(options, CodecOptions, Communicator, but=["quantum_mode", "books", "books_every"])
            chosen = CodecOptions(quantum_mode="auto", **options)
            settings = chosen.settings(made)
            self._registry = ParamRegistry(made, seed, chosen.rates(made))
            start.options = {**chosen.agreed(settings), "small_len": small_len, "seed": seed}
        self._begin(start, settings, self._registry, chosen.notice(made))
        self._transport = start.transport
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._sizes = Stateless()
        self.report = Report(self, [self._sizes], file=None, tensorboard=None, every=1)

    # ---- operations ----

    def all_reduce(
        self,
        tensors: torch.Tensor | Iterable[torch.Tensor],
        *,
        mean: bool = True,
        params: Iterable[torch.Tensor] | None = None,
    ) -> None:
        """Replaces the tensors, in place, by their mean or sum over the ranks. All ranks get the same bits.

        params: the parameter of each tensor, where there is an optimizer. Tensors of one dtype travel together; what
        the codec does not take, and dtypes with few values, travel plain. Complex tensors travel as their real and
        imaginary parts; a mean of integers is rounded down. Refused, as nothing can be added up or written there:
        sparse, nested, quantized and meta tensors, DTensors, bool and 8-bit floats, expanded tensors and others of
        which two elements share memory.
        """

        def prepare() -> _Call:
            given = _listed(tensors)
            for number, tensor in enumerate(given):
                _check(f"tensor {number}", tensor)
            chosen = None if params is None else list(params)
            if self.engine.settings.maps and (chosen is None or len(chosen) != len(given)):
                raise ValueError("gradwire: with an optimizer, all_reduce() needs the parameter of each tensor")
            what = ", ".join(map(_kind, given))
            call = _Call(f"all_reduce(mean={bool(mean)}) of {len(given)} tensors: {what}", given, chosen)
            call.orders = [_order(tensor) for tensor in given]
            call.flats = _gathered(call)
            call.text += "".join(f"; {chosen}" for chosen, _ in call.flats if len(call.flats) > 1)
            return call

        call = self._agree(prepare)
        with self._together():
            for chosen, flat in call.flats:
                self._all_reduce(call, chosen, flat, bool(mean))

    def reduce_scatter(self, output: torch.Tensor, values: torch.Tensor, *, mean: bool = False) -> None:
        """output: this rank's part of the sum (or mean) of `values`, which has output.numel() values for each rank.

        Raises on all ranks where it has not, or another dtype, and refuses what all_reduce() does; `values` may be
        expanded, and `output` may be a part of them. Of a communicator with an optimizer it travels plain: a rank has
        the optimizer state of its own part only, so quanta cannot follow from it.
        """
        self._reduce_scatter(output, values, mean, lambda: None)

    @torch.no_grad()  # parameters are tensors too
    def _reduce_scatter(
        self, output: torch.Tensor, values: torch.Tensor, mean: bool, check: Callable[[], None]
    ) -> None:
        """check: raises what else is wrong on this rank."""

        def prepare() -> _Call:
            check()
            _check("the output", output)
            _check("the tensor of values", values, written=False)
            fits = values.numel() == output.numel() * self.size
            if not fits or values.dtype != output.dtype or values.device != output.device:
                raise ValueError(
                    "gradwire: values must have the output's dtype and device, and output.numel() values for each of "
                    f"{self.size} ranks: they are {_kind(values)}, the output {_kind(output)}"
                )
            text = f"reduce_scatter(mean={bool(mean)}) of {_kind(values)}"
            return _Call(text, [output], flats=[([0], _flat(values, ()))])

        ((_, flat),) = self._agree(prepare).flats
        with self._together():
            if self._travels_plain(flat) or self.engine.settings.maps:
                total = self._plain_sum(flat.clone(), mean)
                part = total.view(self.size, -1)[self.rank]
            else:
                flat, part = _host(flat), torch.empty(_len(output), dtype=flat.dtype)
                key = ("scatter", bool(mean), flat.numel(), flat.dtype)
                plan = self._plan(key, flat, [], shard_len=part.numel(), mean=bool(mean))
                self._run(plan, flat, part, 1.0 / self.size if mean else 1.0, scatter=True)
            with self.gate.passing():
                _write(output, part, ())

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """What raises now, on this rank alone, ends the communicator on all of them: they are in the operation."""
        with self.gate:
            yield
        self.step += 1

    def _agree(self, prepare: Callable[[], _Call]) -> _Call:
        """What this rank gives, when all ranks have said what they do. Raises on all of them before anything is sent
        where one has something bad, or something else."""
        self.gate.raise_error()
        problem, text, digests, word = None, "", (0, 0), 0
        try:
            call = prepare()
            text, word = call.text, call.word
            digests = zlib.crc32(text.encode()), zlib.crc32(repr(call.orders).encode())
        except BaseException as error:  # whatever it is, Ctrl-C too: the others wait for this rank
            problem, text = error, f"{type(error).__name__}: {error}"
        told = self._exchange(_HEAD.pack(problem is not None, *digests, word) + text.encode())
        if problem is not None:
            raise problem
        said = [_HEAD.unpack(one[: _HEAD.size]) for one in told]
        for rank, (bad, values, *_) in enumerate(said):
            if bad or values != digests[0]:
                theirs = told[rank][_HEAD.size :].rstrip(b"\0").decode(errors="replace").replace("gradwire: ", "", 1)
                who = self._transport.name(rank)
                why = f"{who} raised {theirs}" if bad else f"the ranks differ: {who} has {theirs}; this one {text}"
                raise ValueError(f"gradwire: nothing is reduced, as {why[:1000]}")
        call.word = max(word for *_, word in said)
        if any(orders != digests[1] for _, _, orders, _ in said):  # values must meet those of the same index
            call.orders = [() for _ in call.orders]
            call.flats = _gathered(call)
        return call

    def _exchange(self, told: bytes) -> list[bytes]:
        """What all ranks tell."""
        mine = torch.frombuffer(bytearray(told[:_TOLD_SIZE].ljust(_TOLD_SIZE, b"\0")), dtype=torch.uint8)
        rooms = self._call(lambda: self._transport.gather(mine, f"operation {self.step}"))
        return [bytes(room.tolist()) for room in rooms]

    def _call(self, job: Callable[[], Any]) -> Any:
        try:
            return self.engine.call(job)
        except RuntimeError as error:
            raise RuntimeError(f"gradwire: {error}") from error

    def _travels_plain(self, values: torch.Tensor) -> bool:
        return self.size == 1 or not staging.takes(values) or values.numel() < max(self.small_len, 1)

    def _all_reduce(self, call: _Call, chosen: list[int], flat: torch.Tensor, mean: bool) -> None:
        tensors = [call.tensors[i] for i in chosen]
        if self._travels_plain(flat):
            flat = self._plain_sum(flat, mean)
        else:
            flat = _host(flat)
            places = self._places(call, chosen)
            key = ("all", mean, flat.numel(), flat.dtype, *(id(place.param) for place in places))
            plan = self._plan(key, flat, places, mean=mean)
            if self.engine.settings.maps:
                self._registry.look()
                self.engine.build_maps([plan], float(self.size if mean else 1))
                self.engine.compare_maps([plan], f"operation {self.step}, comparing maps", step=self.step)
            self._run(plan, flat, flat, 1.0 / self.size if mean else 1.0)
        with self.gate.passing():
            for i, tensor, part in zip(chosen, tensors, flat.split([_len(tensor) for tensor in tensors])):
                _write(tensor, part, call.orders[i])

    def _plain_sum(self, flat: torch.Tensor, mean: bool) -> torch.Tensor:
        """Their sum or mean over the ranks, perhaps in place."""
        if flat.numel() == 0:
            return flat
        self._sizes.plain_size += size_of(flat)
        wider = {**_WIDER, **_WIDER_MEAN} if mean else _WIDER
        total = flat.to(wider.get(flat.dtype, flat.dtype))
        if self.size > 1 and total.device.type == "cpu":
            self._call(lambda: self._transport.all_reduce(total, where=f"operation {self.step}"))
        elif self.size > 1:
            dist.all_reduce(total, group=self.group)
        if mean:
            total.div_(self.size) if total.dtype.is_floating_point else total.floor_divide_(self.size)
        return total.to(flat.dtype)

    def _places(self, call: _Call, chosen: list[int]) -> list[Place]:
        places, at = [], 0
        for i in chosen if call.params else []:
            tensor, param = call.tensors[i], call.params[i]
            number = self._registry.number(param)
            if number is not None and 0 < tensor.numel() == param.numel() and tensor.stride() == param.stride():
                if call.orders[i] or tensor.is_contiguous():  # they travel as the parameter lies in memory
                    places.append(Place(param, at, param.numel(), self._registry.stream_seed(number)))
            at += _len(tensor)
        return places

    def _plan(
        self,
        key: tuple[Any, ...],
        values: torch.Tensor,
        places: list[Place],
        shard_len: int = 0,
        settings: Settings | None = None,
        *,
        mean: bool,
    ) -> Plan:
        plan = self._plans.pop(key, None)
        if plan is None:
            plan = self.engine.plan(values, places, shard_len, settings, mean=mean)
            if len(self._plans) >= _PLANS_MAX:  # lengths that change from call to call must not fill the memory
                self.engine.retire(self._plans.pop(next(iter(self._plans))))
        self._plans[key] = plan  # the last one: of those that are longest unused the first goes
        return plan

    def _run(self, plan: Plan, values: torch.Tensor, result: torch.Tensor, scale: float, scatter: bool = False) -> None:
        self._sizes.full_size += size_of(values)
        where = f"operation {self.step}"
        operation = Operation(plan, values, result, scale, 1.0 / scale, self.step, where, scatter=scatter)
        self.engine.control.submit(partial(self.engine.begin, operation))
        wait_for(self.engine.conclude(f"{where}, its end"))
        if self.error is not None:
            raise RuntimeError(f"gradwire: {self.error}") from self.error

    # ---- FSDP2 ----

    def all_reduce_hook(self, *, mean: bool = True) -> Callable[[torch.Tensor], None]:
        """For FSDPModule.set_all_reduce_hook(): the reduction between replicas, in place, over this communicator's
        group, which is that of the ranks with the same shard."""
        return lambda reduce_output: self.all_reduce(reduce_output, mean=mean)

    def reduce_scatter_comm(self) -> Any:
        """For FSDPModule.set_custom_reduce_scatter()."""
        return _ReduceScatter(self)

    # ---- end ----

    def close(self) -> None:
        """Ends the threads. Operations raise afterwards."""
        self.engine.close()
        self.report.close()


class _ReduceScatter:
    """torch.distributed.fsdp's interface ReduceScatter, without naming it: older versions of torch lack it."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Blocks: FSDP2 calls with async_op=False."""

        def check() -> None:
            if async_op:
                raise ValueError("gradwire: this reduce-scatter is not asynchronous")
            if dist.get_process_group_ranks(group) != dist.get_process_group_ranks(self._communicator.group):
                raise ValueError("gradwire: the communicator has another process group")
            if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                what = "call set_force_sum_reduction_for_comms(True)"
                raise ValueError(f"gradwire: {op} is not SUM or AVG; {what}")

        self._communicator._reduce_scatter(output_tensor, input_tensor, op == dist.ReduceOp.AVG, check)


_cached: dict[Any, Communicator] = {}


def all_reduce(tensors: torch.Tensor | Iterable[torch.Tensor], group: Any = None, *, mean: bool = True) -> None:
    """Communicator(group).all_reduce(tensors, mean=mean), with a communicator that is made once for each group. The
    first call for a group is collective for its ranks; for options make a Communicator."""
    key = dist.group.WORLD if group is None else group
    if key not in _cached or _cached[key].error is not None:
        _cached[key] = Communicator(group)
    _cached[key].all_reduce(tensors, mean=mean)


def _listed(tensors: Any) -> list[Any]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    if not isinstance(tensors, Iterable):
        raise TypeError(f"gradwire: all_reduce() takes tensors, not {type(tensors).__name__}")
    return list(tensors)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(tensor: torch.Tensor) -> str:
    """What must be equal on all ranks."""
    where = "" if tensor.device.type == "cpu" else f" on {tensor.device.type}"
    return f"{_name(tensor.dtype)} {tensor.numel()}{where}"


def _check(what: str, tensor: Any, *, written: bool = True) -> None:
    """Raises what is wrong with a tensor. written: a result goes there."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"gradwire: {what} is {'None' if tensor is None else type(tensor).__name__}, not a tensor")
    if hasattr(tensor, "to_local"):
        raise TypeError(f"gradwire: {what} is a DTensor; give its part on this rank, to_local()")
    if tensor.layout != torch.strided or getattr(tensor, "is_nested", False):
        kind = "nested" if getattr(tensor, "is_nested", False) else _name(tensor.layout)
        raise TypeError(f"gradwire: {what} is {kind}; only dense (strided) tensors are taken")
    if tensor.device.type == "meta":
        raise TypeError(f"gradwire: {what} is on the device meta and has no values")
    if tensor.dtype not in _TAKEN:
        hint = "uint8 or int32" if tensor.dtype == torch.bool else "a type of 16 bits or more"
        raise TypeError(f"gradwire: {what} is of {_name(tensor.dtype)}, which is not added up; convert it to {hint}")
    if written and _overlaps(tensor):
        raise ValueError(
            f"gradwire: {what} has elements that share memory, as expand() makes them: no result can be written "
            "there; give a contiguous() copy"
        )


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements are at one place."""
    dims = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.size()) if size > 1)
    reach = 0  # of the dimensions so far
    if tensor.numel() < 2:
        return False
    for stride, size in dims:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if dims[0][0] == 0:
        return True
    places = torch.zeros(1, dtype=torch.int64)  # windows and the like: rare
    for stride, size in dims:
        places = (places.unsqueeze(1) + stride * torch.arange(size)).reshape(-1)
    return places.unique().numel() < places.numel()


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Its dimensions as they lie in memory, the outermost first. Empty: as they are, or with gaps."""
    order = tuple(sorted(range(tensor.dim()), key=lambda i: -tensor.stride(i)))
    if tensor.is_contiguous() or not tensor.permute(order).is_contiguous():
        return ()
    return order


def _flat(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The values as one dimension, in this order of dimensions: real ones, perhaps the tensor's own memory."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    flat = (tensor.permute(order) if order else tensor).reshape(-1)
    return torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat


def _len(tensor: torch.Tensor) -> int:
    """Of its values, as they travel."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def _gathered(call: _Call) -> list[tuple[list[int], torch.Tensor]]:
    """The tensors that travel together, by their numbers, and their values: copies."""
    kinds: dict[tuple[str, torch.device], list[int]] = {}
    for i, tensor in enumerate(call.tensors):
        kinds.setdefault((str(tensor.dtype), tensor.device), []).append(i)
    chosen = sorted(kinds.values(), key=lambda one: (str(call.tensors[one[0]].dtype), one[0]))
    return [(one, torch.cat([_flat(call.tensors[i], call.orders[i]) for i in one])) for one in chosen]


def _write(tensor: torch.Tensor, flat: torch.Tensor, order: tuple[int, ...]) -> None:
    """The inverse of _flat(), into the tensor."""
    if tensor.is_complex():
        flat = torch.view_as_complex(flat.view(-1, 2))
    with torch.inference_mode() if tensor.is_inference() else contextlib.nullcontext():
        place = tensor.detach()  # autograd has no say: parameters are tensors too
        place = place.permute(order) if order else place
        place.copy_(flat.view(place.size()))


def _host(tensor: torch.Tensor) -> torch.Tensor:
    """The values where the codec sees them."""
    stage = staging.of(tensor.device)
    if stage is None:
        return tensor.contiguous().resolve_neg()
    room = stage.room(tensor.numel(), tensor.dtype)
    stage.fetch(tensor.reshape(-1), room)()
    return room.values
