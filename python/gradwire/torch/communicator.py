"""Compressed all-reduce and reduce-scatter outside DDP: DiLoCo-like outer steps, FSDP2, HSDP."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import given, staging
from .engine import CODEC_DTYPES, Engine, Operation, Plan
from .optimizers import Book, Place
from .options import CodecOptions
from .transport import Start, timeout_of

_PLANS_MAX = 256  # lengths (with an optimizer: sets of parameters) whose memory a communicator keeps

log = logging.getLogger("gradwire")


class Communicator:
    """Blocking compressed operations on a process group, in the same order on all of its ranks. For one thread.

    group: None: the default group. optimizer: the one that consumes what is reduced, with equal state on all ranks:
    quanta then follow from its state, and all_reduce() needs `params`. Without one levels are carried, and nmse is the
    share of error that a message may add. small_len, seed, transport, timeout: as in DdpState. options: those of
    CodecOptions, but levels.
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
        self.group = dist.group.WORLD if group is None else group
        self.timeout = timeout or timeout_of(self.group)
        self.small_len = small_len
        self.step = 0
        with Start("communicator", self.group, transport, self.timeout) as start:
            made = [] if optimizer is None else given.optimizers_of(optimizer)
            given.check_keywords(options, CodecOptions, Communicator, but=["levels"])
            self._book = Book(made, seed)
            chosen = CodecOptions(levels="auto", **options)
            settings = chosen.settings(made)
            start.options = {**chosen.agreed(settings), "small_len": small_len, "seed": seed}
        self._transport = start.transport
        self.rank, self.size = self._transport.rank, self._transport.size
        notice = chosen.notice(made)
        if notice and self.rank == 0:
            log.warning("gradwire: %s", notice)
        self.engine = Engine(self._transport, settings, self._book)
        weakref.finalize(self, self.engine.abandon).atexit = False
        self._plans: dict[tuple[Any, ...], Plan] = {}

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
        the codec does not take, and dtypes with few values, travel plain.
        """
        self.engine.raise_error()
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        params = None if params is None else list(params)
        if self.engine.settings.maps and (params is None or len(params) != len(tensors)):
            raise ValueError("with an optimizer, all_reduce() needs the parameter of each tensor")
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            chosen = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
            self._all_reduce([tensors[i] for i in chosen], [params[i] for i in chosen] if params else None, mean)
        self.step += 1

    @torch.no_grad()  # parameters are tensors too
    def reduce_scatter(self, output: torch.Tensor, values: torch.Tensor, *, mean: bool = False) -> None:
        """output: this rank's part of the sum (or mean) of `values`, which has output.numel() values for each rank.

        ValueError where it has not, or another dtype. Of a communicator with an optimizer it travels plain: a rank has
        the optimizer state of its own part only, so quanta cannot follow from it.
        """
        self.engine.raise_error()
        if values.numel() != output.numel() * self.size or values.dtype != output.dtype:
            raise ValueError("values must have the output's dtype and output.numel() values for each rank")
        if self._travels_plain(values) or self.engine.settings.maps:
            self._plain_scatter(output, values, mean)
        else:
            values, result = _host(values), _host(output)
            plan = self._plan(("scatter", values.numel(), values.dtype), values, [], shard_len=output.numel())
            self._run(plan, values, result, 1.0 / self.size if mean else 1.0, scatter=True)
            if result.data_ptr() != output.data_ptr():
                output.copy_(result.view_as(output))
        self.step += 1

    def _travels_plain(self, values: torch.Tensor) -> bool:
        taken = values.dtype in CODEC_DTYPES and staging.reaches(values.device)
        return self.size == 1 or not taken or values.numel() < max(self.small_len, 1)

    def _all_reduce(self, tensors: list[torch.Tensor], params: Sequence[torch.Tensor] | None, mean: bool) -> None:
        flat = torch.cat([_in_memory_order(tensor) for tensor in tensors])
        if self._travels_plain(flat):
            dist.all_reduce(flat, group=self.group)
            if mean:
                flat.div_(self.size) if flat.dtype.is_floating_point else flat.floor_divide_(self.size)
        else:
            flat = _host(flat)
            places = self._places(tensors, params)
            key = ("all", flat.numel(), flat.dtype, *(id(place.param) for place in places))
            plan = self._plan(key, flat, places)
            if self.engine.settings.maps:
                self.engine.build_maps([plan], float(self.size if mean else 1))
                self.engine.compare_maps([plan])
            self._run(plan, flat, flat, 1.0 / self.size if mean else 1.0)
        at = 0
        for tensor in tensors:
            part = flat[at : at + tensor.numel()]
            at += tensor.numel()
            with torch.no_grad():  # parameters are tensors too
                tensor.copy_(_like(part, tensor))

    def _plain_scatter(self, output: torch.Tensor, values: torch.Tensor, mean: bool) -> None:
        """Gloo has no reduce-scatter: sums everything and keeps a part."""
        total = values.clone()
        dist.all_reduce(total, group=self.group)
        output.copy_(total.view(self.size, -1)[self.rank].view_as(output))
        if mean:
            output.div_(self.size)

    def _places(self, tensors: list[torch.Tensor], params: Sequence[torch.Tensor] | None) -> list[Place]:
        places, at = [], 0
        for tensor, param in zip(tensors, params or []):
            number = self._book.number(param)
            if number is not None and 0 < tensor.numel() == param.numel():
                if tensor.stride() == param.stride():
                    places.append(Place(param, at, param.numel(), self._book.stream_seed(number)))
            at += tensor.numel()
        return places

    def _plan(self, key: tuple[Any, ...], values: torch.Tensor, places: list[Place], shard_len: int = 0) -> Plan:
        plan = self._plans.pop(key, None)
        if plan is None:
            plan = self.engine.plan(values.numel(), values.dtype, places, shard_len)
            if len(self._plans) >= _PLANS_MAX:  # lengths that change from call to call must not fill the memory
                self.engine.retire(self._plans.pop(next(iter(self._plans))))
        self._plans[key] = plan  # the last one: of those that are longest unused the first goes
        return plan

    def _run(self, plan: Plan, values: torch.Tensor, result: torch.Tensor, scale: float, scatter: bool = False) -> None:
        done = threading.Event()
        errors: list[BaseException] = []

        def fail(error: BaseException) -> None:
            errors.append(error)
            done.set()

        self.engine.submit(
            Operation(
                plan=plan,
                values=values,
                result=result,
                scale=scale,
                wire_scale=1.0 / scale,
                step=self.step,
                scatter=scatter,
                on_done=lambda operation: None,
                on_error=lambda error: None,
            )
        )
        self.engine.conclude(done.set, fail)
        done.wait()
        if errors:
            raise RuntimeError(f"gradwire: {errors[0]}") from errors[0]

    # ---- FSDP2 ----

    def all_reduce_hook(self, *, mean: bool = True) -> Callable[[torch.Tensor], None]:
        """For FSDPModule.set_all_reduce_hook(): the reduction between replicas, in place, over this communicator's
        group, which is that of the ranks with the same shard."""
        return lambda reduce_output: self.all_reduce(reduce_output, mean=mean)

    def reduce_scatter_comm(self) -> Any:
        """For FSDPModule.set_custom_reduce_scatter()."""
        return _ReduceScatter(self)

    def close(self) -> None:
        """Ends the threads."""
        self.engine.close()


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
        if async_op:
            raise ValueError("gradwire: this reduce-scatter is not asynchronous")
        if dist.get_process_group_ranks(group) != dist.get_process_group_ranks(self._communicator.group):
            raise ValueError("gradwire: the communicator has another process group")
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise ValueError(f"gradwire: {op} is not SUM or AVG; call set_force_sum_reduction_for_comms(True)")
        self._communicator.reduce_scatter(output_tensor, input_tensor, mean=op == dist.ReduceOp.AVG)


_cached: dict[Any, Communicator] = {}


def all_reduce(tensors: torch.Tensor | Iterable[torch.Tensor], group: Any = None, *, mean: bool = True) -> None:
    """Communicator(group).all_reduce(tensors, mean=mean), with a communicator that is made once for each group. The
    first call for a group is collective for all processes; for options make a Communicator."""
    key = dist.group.WORLD if group is None else group
    if key not in _cached or _cached[key].engine.error is not None:
        _cached[key] = Communicator(group)
    _cached[key].all_reduce(tensors, mean=mean)


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """The values as one dimension: of a dense tensor as they lie in memory, as in DDP's buckets."""
    tensor = tensor.detach()
    dense = tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
    return tensor.as_strided((tensor.numel(),), (1,)) if dense else tensor.reshape(-1)


def _like(part: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The inverse of _in_memory_order()."""
    if not tensor.is_contiguous() and tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return part.as_strided(tensor.size(), tensor.stride())
    return part.view(tensor.size())


def _host(tensor: torch.Tensor) -> torch.Tensor:
    """The values where the codec sees them."""
    stage = staging.of(tensor.device)
    if stage is None:
        return tensor.contiguous()
    room = stage.room(tensor.numel(), tensor.dtype)
    stage.fetch(tensor.reshape(-1), room)()
    return room.values
