"""What precision maps need to know of torch's optimizers: kind, hyperparameters and state of a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import POINTER, cast, pointer
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.optim.nadam import nadam

import gradwire.maps
from gradwire._structs import gw_collective_segment, gw_collective_segments

from . import staging
from .forecast import plain_number
from .rates import Rates

# State arrays of a parameter, under the names of gradwire.maps.State: m, v, a.
_STATE = {
    "sgd": {"m": "momentum_buffer"},
    "adagrad": {"v": "sum"},
    "rmsprop": {"m": "momentum_buffer", "v": "square_avg", "a": "grad_avg"},
    "adam": {"m": "exp_avg", "v": "exp_avg_sq", "a": "max_exp_avg_sq"},
    "nadam": {"m": "exp_avg", "v": "exp_avg_sq"},
    "radam": {"m": "exp_avg", "v": "exp_avg_sq"},
    "adamax": {"m": "exp_avg", "v": "exp_inf"},
    "adadelta": {"v": "square_avg", "a": "acc_delta"},
}
# Hyperparameters under the names of gradwire.maps.Optimizer, whose defaults are torch's.
_NUMBERS = ("lr", "weight_decay", "momentum", "dampening", "alpha", "eps", "lr_decay", "momentum_decay")
_FLAGS = ("centered", "amsgrad", "maximize", "decoupled_weight_decay")
_FAMILIES = {
    torch.optim.SGD: "sgd",
    torch.optim.Adagrad: "adagrad",
    torch.optim.RMSprop: "rmsprop",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adam",
    torch.optim.NAdam: "nadam",
    torch.optim.RAdam: "radam",
    torch.optim.Adamax: "adamax",
    torch.optim.Adadelta: "adadelta",
}

# Why no bound holds for every gradient, by the name of the class, which need not be torch's (docs/numerics.md 2.7).
_UNBOUNDED = {
    "Lion": "Lion's update is a sign: the smallest change of a gradient can turn it around",
    "Muon": "Muon orthogonalises the momentum of a whole matrix: a change of one gradient moves all of its parameters",
    "Adafactor": "Adafactor divides by a product of row and column means, which other gradients can make very small",
    "Rprop": "Rprop's update is a sign: the smallest change of a gradient can turn it around",
    "LBFGS": "L-BFGS multiplies gradients of the whole model with each other",
}


def family(optimizer: torch.optim.Optimizer) -> str | None:
    """A key of _STATE; None for an optimizer whose update is not known or has no bound: why_unbounded()."""
    for cls in type(optimizer).__mro__:
        if cls in _FAMILIES:
            # A class that overrides step() may do anything in it.
            return _FAMILIES[cls] if _same_step(type(optimizer), cls) else None
    return None


def why_unbounded(optimizer: torch.optim.Optimizer) -> str:
    """One sentence for an optimizer whose family() is None: why no tolerance can be kept."""
    names = [cls.__name__ for cls in type(optimizer).__mro__]
    for name in names:
        for part, reason in _UNBOUNDED.items():
            if part.lower() in name.lower():
                return reason
    known = [cls.__name__ for cls in type(optimizer).__mro__ if cls in _FAMILIES]
    if known:
        return f"{names[0]} has a step() of its own, which may do more than that of {known[0]}"
    return f"the update of {names[0]} is not known to gradwire"


def _same_step(cls: type, known: type) -> bool:
    own = [base for base in cls.__mro__[: cls.__mro__.index(known)] if "step" in vars(base)]
    return all(base in _FAMILIES for base in own)


def has_second_moment(optimizer: torch.optim.Optimizer) -> bool:
    return "v" in _STATE.get(family(optimizer), {})


def _plain(value: Any) -> Any:
    """A value that is compared, not the tensor that changes in place."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def _kind(optimizer: torch.optim.Optimizer, group: dict[str, Any], made: str) -> str:
    if made == "adam":
        # In torch 2.x Adam and AdamW are one algorithm, and the group says which.
        decoupled = group.get("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW))
        return "adamw" if decoupled else "adam"
    if made == "sgd":
        if not group["momentum"]:
            return "sgd"
        return "nesterov" if group["nesterov"] else "momentum"
    return made


def _mu_product(state: dict[str, Any]) -> float:
    """NAdam's product of mu before the update; 1 for other optimizers and before the first update."""
    return plain_number(state.get("mu_product", 1.0))


@cache
def _nadam_has_known_step() -> bool:
    """False where NAdam multiplies mu_product by mu once too often (torch 1.13): in what it takes of exp_avg."""
    tensors = [[torch.full((), value)] for value in (0.0, 1.0, 0.0, 0.0, 1.0, 0.0)]
    nadam(*tensors, foreach=False, beta1=0.5, beta2=0.0, lr=1.0, weight_decay=0.0, momentum_decay=0.0, eps=0.0)
    # mu = 1/4 in every step, exp_avg = 1/2: minus (1 - mu) / (1 - mu) minus mu / (1 - mu^2) / 2, or mu^3
    return abs(float(tensors[0][0]) + 1 + 2 / 15) < 1e-3


def is_update_known(made: str, state: dict[str, Any]) -> bool:
    """Whether maps know the update that comes. If not, nothing of this parameter is dropped."""
    return made != "nadam" or _mu_product(state) < 2**-24 or _nadam_has_known_step()


def refusal(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> str | None:
    """Which hyperparameter of a group no map can be made for: its name, value and range. torch takes these."""
    kind = _kind(optimizer, group, family(optimizer))
    ranges: dict[str, tuple[float, float]] = {"weight_decay": (0.0, 1e300)}
    if kind == "momentum":
        ranges.update(momentum=(0.0, 1e300), dampening=(-1e300, 1.0))
    elif kind == "rmsprop":
        ranges.update(momentum=(0.0, 1e300), alpha=(0.0, 1.0))
    elif kind == "nadam":
        ranges["momentum_decay"] = 0.0, 1e300
    if has_second_moment(optimizer):
        ranges["eps"] = 0.0, 1e30
    for name, (low, high) in ranges.items():
        value = plain_number(group.get(name, low))
        if not low <= value < high:
            which = [i for i, one in enumerate(optimizer.param_groups) if one is group]
            where = f"group {which[0]} of {type(optimizer).__name__}" if which else type(optimizer).__name__
            why = ": no gradient would count" if value == 1.0 == high else ""
            bounds = "" if low < -1e299 else f"{low:g} or more", "" if high > 1e299 else f"less than {high:g}"
            return f"{name}={value:g} in {where}{why}; a map needs {' and '.join(filter(None, bounds))}"
    return None


def describe(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], step: int, mu_product: float = 1.0, peak_lr: float = 0.0
) -> gradwire.maps.Optimizer:
    """Kind and hyperparameters for the update number `step`, from 1, as the group has them now. mu_product: of NAdam's
    state. peak_lr: the rate that counts, of Rates.look()."""
    made = family(optimizer)
    if made is None:
        raise ValueError(f"{type(optimizer).__name__} is not an optimizer that maps are known for")
    wrong = refusal(optimizer, group)
    if wrong:
        raise ValueError(f"gradwire: {wrong}")
    beta1, beta2 = group.get("betas", (0.9, 0.999))
    numbers = {name: group[name] for name in _NUMBERS if name in group} | {"beta1": beta1, "beta2": beta2}
    if made == "adadelta":
        numbers["alpha"] = group["rho"]
    return gradwire.maps.Optimizer(
        kind=_kind(optimizer, group, made),
        step=step,
        peak_lr=peak_lr,
        mu_product=mu_product,
        **{name: plain_number(value) for name, value in numbers.items()},
        **{name: bool(group[name]) for name in _FLAGS if name in group},
    )


def next_step(made: str, state: dict[str, Any]) -> int:
    """Number of the update that this parameter's next gradient makes."""
    if made == "sgd":
        return 1 if state.get("momentum_buffer") is None else 2  # only "the first" and "not the first" differ
    return int(plain_number(state.get("step", 0))) + 1


class Place:
    """A parameter in a bucket: where its values are, and its random stream."""

    __slots__ = ("param", "offset", "len", "seed")

    def __init__(self, param: torch.Tensor, offset: int, length: int, seed: int) -> None:
        self.param, self.offset, self.len, self.seed = param, offset, length, seed


Entry = tuple[torch.optim.Optimizer, dict[str, Any], str | None]  # optimizer, group and family of a parameter


class ParamRegistry:
    """The parameters of some optimizers: group, random seed and name of each.

    Parameters are numbered in the order of the groups; this number, not the address, makes seeds and state_dict().
    rates: what is known of learning rates to come; None: this step's count.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], seed: int, rates: Rates | None = None) -> None:
        self.optimizers = list(optimizers)
        self.seed = seed
        self.rates = rates
        self._peaks: dict[int, float] = {}
        self._numbers: dict[int, int] = {}
        self._others: dict[int, tuple[int, torch.Tensor]] = {}  # the tensor: its id belongs to no other one
        self._groups: dict[int, Entry] = {}
        self.refresh()

    def refresh(self) -> None:
        """Groups can be added to an optimizer, and their dicts are new after load_state_dict()."""
        groups: dict[int, Entry] = {}
        for optimizer in self.optimizers:
            made = family(optimizer)
            for group in optimizer.param_groups:
                entry = (optimizer, group, made)
                for param in group["params"]:
                    groups[id(param)] = entry
                    self._numbers.setdefault(id(param), len(self._numbers))
        self._groups = groups  # at once: another thread may read them

    def params(self) -> list[torch.Tensor]:
        """In the order of their numbers, as long as no group was added after a later optimizer's."""
        return [param for one in self.optimizers for group in one.param_groups for param in group["params"]]

    def number(self, param: torch.Tensor) -> int | None:
        """None for a parameter that no optimizer has."""
        if id(param) not in self._numbers:
            self.refresh()
        return self._numbers.get(id(param))

    def label(self, param: torch.Tensor) -> int:
        """The number; of parameters that no optimizer has -1, -2, ... in the order in which they are asked for. In a
        resumed run that is the same: DDP starts with the same buckets again."""
        number = self.number(param)
        if number is None:
            number = self._others.setdefault(id(param), (-1 - len(self._others), param))[0]
        return number

    def stream_seed(self, number: int) -> int:
        """The key of a parameter's random numbers: SplitMix64 of its number and the seed."""
        mask = (1 << 64) - 1
        z = (self.seed + (number + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def look(self) -> tuple[float, ...]:
        """The learning rates that count for the next update; maps are made with them."""
        if self.rates is not None:
            self._peaks = self.rates.look()  # at once: another thread may read them
        return tuple(self._peaks.values())

    def peak_lr(self, group: dict[str, Any]) -> float:
        return self._peaks.get(id(group), 0.0)

    def hyperparameters(self) -> tuple[Any, ...]:
        """Those of all groups, to see whether they changed."""
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        return tuple((name, _plain(value)) for group in groups for name, value in group.items() if name != "params")

    def loads(self) -> tuple[int, ...]:
        """Changes when an optimizer loads a state: its list of groups is another one then."""
        return tuple(id(optimizer.param_groups) for optimizer in self.optimizers)

    def versions(self) -> tuple[int, ...]:
        """Changes with every change that torch counts (not those through .data) of a parameter or of what the map rules
        read of its state."""
        found = []
        for optimizer in self.optimizers:
            names = _STATE.get(family(optimizer), {}).values()
            for group in optimizer.param_groups:
                for param in group["params"]:
                    state = optimizer.state.get(param, {})
                    tensors = [param, *(state.get(name) for name in names)]
                    found += [tensor._version for tensor in tensors if isinstance(tensor, torch.Tensor)]
        return tuple(found)

    def segments(self, places: Iterable[Place], wire_scale: float, limits: gradwire.maps.Limits) -> SegmentTable:
        """What has changed in the groups since the last refresh() is not seen."""
        return SegmentTable(self, list(places), wire_scale, limits)

    def entry(self, param: torch.Tensor) -> Entry | None:
        return self._groups.get(id(param))


class SegmentTable:
    """The segments of a bucket as C structs, with all that they borrow: keep it until the map is built."""

    def __init__(
        self, registry: ParamRegistry, places: list[Place], wire_scale: float, limits: gradwire.maps.Limits
    ) -> None:
        self._keep: list[torch.Tensor] = []
        self._registry, self._scale, self._limits = registry, wire_scale, limits
        self._rules: dict[tuple[int, int, float], Any] = {}
        self._array = (gw_collective_segment * len(places))()
        for segment, place in zip(self._array, places):
            self._fill(segment, place)
        self.wire_scale = wire_scale if self._rules else 1.0  # that of the rules
        self.struct = gw_collective_segments(cast(self._array, POINTER(gw_collective_segment)), len(places))

    @property
    def segments(self) -> Iterable[gw_collective_segment]:
        return self._array

    def _fill(self, segment: gw_collective_segment, place: Place) -> None:
        """Every step, for every parameter, beside the forward pass, which also needs the interpreter."""
        segment.offset, segment.len, segment.seed = place.offset, place.len, place.seed
        param = place.param
        entry = self._registry.entry(param)
        if entry is None or entry[2] is None:
            return  # no optimizer has it, or none that maps are known for: nothing of it is dropped
        optimizer, group, made = entry
        state = optimizer.state.get(param, {})
        stride = param.stride()
        # detached: its memory stays if param.data is set meanwhile
        address = self._address_of(param.detach(), stride, param)
        if address is None:
            return
        arrays = segment.state
        arrays.param = address
        for name, key in _STATE[made].items():
            if state.get(key) is not None:
                setattr(arrays, name, self._address_of(state[key], stride, param))
        if is_update_known(made, state):
            segment.rule = self._rule(optimizer, group, next_step(made, state), _mu_product(state))

    def _rule(self, optimizer: torch.optim.Optimizer, group: dict[str, Any], step: int, mu_product: float) -> Any:
        key = (id(group), step, mu_product)
        if key not in self._rules:
            described = describe(optimizer, group, step, mu_product, self._registry.peak_lr(group))
            rule = gradwire.maps.Rule(described, self._scale, self._limits_of(optimizer, group))
            self._rules[key] = pointer(rule.struct)
        return self._rules[key]

    def _limits_of(self, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> gradwire.maps.Limits:
        """Without those that this optimizer has no state for, or does not need."""
        limits, rates = self._limits, self._registry.rates
        if not has_second_moment(optimizer):
            limits = replace(limits, noise=0.0)
        if rates is None or rates.is_known(group) or limits.noise:  # by the second moment then
            limits = replace(limits, update_bits=0)
        return limits

    def _address_of(self, tensor: torch.Tensor, stride: tuple[int, ...], param: torch.Tensor) -> int | None:
        """Address of fp32 values in the memory order of the parameter, which is that of its gradient in the bucket."""
        stage = staging.of(param.device)
        if stage is not None and tensor.device == param.device:
            tensor = stage.read(tensor, param)
        elif tensor.stride() != stride:
            copy = torch.empty_like(param, dtype=torch.float32, device="cpu", requires_grad=False)
            tensor = copy.copy_(tensor.detach())
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            tensor = tensor.detach().to(device="cpu", dtype=torch.float32, memory_format=torch.preserve_format)
        self._keep.append(tensor)
        return tensor.data_ptr() or None
