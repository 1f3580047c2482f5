"""Precision maps: how many bits of each gradient the next update needs (gcomp.h, "Precision map")."""

from __future__ import annotations

from ctypes import byref, c_uint32, pointer
from dataclasses import dataclass

import numpy as np

from gradwire import _constants as c
from gradwire import arrays
from gradwire._fill import choose, fill, instance, integer, numbers_of, real
from gradwire._library import check, check_options, lib
from gradwire._structs import gw_gcomp_map, gw_gcomp_map_limits, gw_gcomp_map_rule, gw_optimizer, gw_optimizer_state
from gradwire.arrays import ArrayLike

_NAMES = "sgd momentum nesterov adagrad rmsprop adam adamw nadam radam adamax adadelta"
_KINDS = numbers_of("GW_OPTIMIZER_", *_NAMES.split())

_UINT32_MAX = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The optimizer and its hyperparameters, under PyTorch's names. Fields that a kind does not have are ignored.

    kind: "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "nadam", "radam", "adamax",
    "adadelta". step: number, from 1, of the update that the gradient will make. lr > 0. alpha: rho of Adadelta.
    mu_product: that of NAdam's state before the update, 1 in the first one.
    peak_lr: the largest rate that the gradient can meet while the momentum holds it, at the end of a warm-up or after a
    restart (numerics.md section 2.7); 0, or at most lr: lr itself.
    """

    kind: str
    lr: float
    peak_lr: float = 0.0
    step: int = 1
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    alpha: float = 0.99
    eps: float = 1e-8
    lr_decay: float = 0.0
    centered: bool = False
    amsgrad: bool = False
    maximize: bool = False
    decoupled_weight_decay: bool = False
    momentum_decay: float = 4e-3
    mu_product: float = 1.0

    def struct(self) -> gw_optimizer:
        """The C struct."""
        return fill(gw_optimizer, **{**vars(self), "kind": choose(_KINDS, self.kind, "optimizer kind")})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What limits the quantum of a parameter.

    tolerance_bits: 1..23, one encode moves no parameter by more than 2^-tolerance_bits of its own size. noise: 0 for
    none, else 2^-8..1, one encode adds at most noise^2 / 4 of the second moment to the square of a gradient (all but
    SGD; Adamax: noise of exp_inf to the gradient itself). noise_only: the noise limit alone counts. update_bits: 0
    for none, else 1..23: where rates to come are not known, the one that counts is at least that at which the momentum
    moves a parameter by 2^-update_bits of its size in one step; ignored without a momentum.
    """

    tolerance_bits: int = 23
    noise: float = 0.0
    noise_only: bool = False
    update_bits: int = 0


class Rule:
    """The factors of one optimizer step that maps are made from. Immutable; threads may share it.

    wire_scale: value on the wire / gradient that the optimizer will see: N for the plain sum of N ranks, 1 for data
    that is divided beforehand, times a loss scale. limits: None, the tolerance alone. Raises Error (name "option",
    "arg") for hyperparameters and limits out of range.
    """

    def __init__(self, optimizer: Optimizer, wire_scale: float = 1.0, limits: Limits | None = None) -> None:
        self.struct = gw_gcomp_map_rule()
        c_limits = None
        if limits is not None:
            c_limits = fill(gw_gcomp_map_limits, **vars(instance(limits, Limits, "limits")))
        optimizer = instance(optimizer, Optimizer, "optimizer")
        status = lib.gw_gcomp_map_rule_init(optimizer.struct(), real(wire_scale, "wire_scale"), c_limits, self.struct)
        check_options(status, vars(limits) if limits else {}, {"tolerance_bits": (1, 23), "noise": (0, 1)})

    @property
    def wire_scale(self) -> float:
        return self.struct.wire_scale

    @property
    def uses(self) -> tuple[str, ...]:
        """Which state arrays are read beside param: of "m", "v", "a"."""
        return tuple(name for bit, name in enumerate("mva") if self.struct.uses >> bit & 1)


class State:
    """Parameters and optimizer state from before the update: fp32 arrays of one length, of any shape.

    param: the parameters. m: momentum_buffer or exp_avg. v: sum, square_avg, exp_avg_sq or exp_inf. a: grad_avg,
    max_exp_avg_sq or acc_delta. Arrays that the rule does not use may be None. Contiguous arrays are borrowed.
    """

    def __init__(
        self,
        param: ArrayLike | None = None,
        m: ArrayLike | None = None,
        v: ArrayLike | None = None,
        a: ArrayLike | None = None,
    ) -> None:
        given = {"param": param, "m": m, "v": v, "a": a}
        self.arrays = {name: arrays.source(x, "fp32") for name, x in given.items() if x is not None}
        lengths = {x.size for x in self.arrays.values()}
        if len(lengths) != 1:
            raise ValueError("state has no array" if not lengths else f"state has arrays of lengths {sorted(lengths)}")
        self.len = lengths.pop()
        self.struct = gw_optimizer_state(**{name: x.ctypes.data for name, x in self.arrays.items()})


def scan(rule: Rule, state: State, *, backends: int = c.GW_BACKEND_ALL) -> int:
    """First pass over a range of parameters: its largest quarter-octave. See base()."""
    top, backends = c_uint32(), integer(backends, "backends", 0, _UINT32_MAX)
    check(lib.gw_gcomp_map_scan(rule.struct, state.struct, state.len, backends, byref(top)))
    return top.value


def base(top: int) -> int:
    """Base of the map of which `top` is the maximum of scan() over all its ranges (and ranks)."""
    return lib.gw_gcomp_map_base(integer(top, "top", 0, _UINT32_MAX))


def build(
    rule: Rule, state: State, base: int, *, out: ArrayLike | None = None, backends: int = c.GW_BACKEND_ALL
) -> np.ndarray:
    """Second pass: one byte per parameter, 0 = nothing is dropped. out: uint8, as many as parameters."""
    map_bytes = np.empty(state.len, np.uint8) if out is None else arrays.write(out, np.uint8, "out")
    if map_bytes.size != state.len:
        raise ValueError(f"out has {map_bytes.size} bytes for {state.len} parameters")
    arrays.apart(map_bytes, *state.arrays.values())
    base, backends = integer(base, "base", 0, _UINT32_MAX), integer(backends, "backends", 0, _UINT32_MAX)
    check(lib.gw_gcomp_map_build(rule.struct, state.struct, state.len, base, backends, map_bytes.ctypes.data))
    return map_bytes


def digest(map_bytes: ArrayLike, chunk_log2: int = 14) -> np.ndarray:
    """CRC32C of the map bytes of every chunk of 2^chunk_log2 values (10..15), as uint32."""
    map_bytes = arrays.read(map_bytes, np.uint8, "map_bytes")
    chunk_log2 = integer(chunk_log2, "chunk_log2", 10, 15)
    words = np.empty(-(-map_bytes.size >> chunk_log2), np.uint32)
    check(lib.gw_gcomp_map_digest(map_bytes.ctypes.data, map_bytes.size, chunk_log2, words.ctypes.data))
    return words


class Map:
    """The map of the values of one frame. Immutable; threads may share it.

    map_bytes: uint8, one per value; borrowed, must not change while the map is in use. base: of base(), 1..1023.
    wire_scale: that of the rule. The digests that derived frames need are made when one is first encoded or decoded,
    and kept.
    """

    def __init__(self, map_bytes: ArrayLike, base: int, wire_scale: float = 1.0) -> None:
        self.bytes = arrays.read(map_bytes, np.uint8, "map_bytes")
        self.base = base
        self.wire_scale = real(wire_scale, "wire_scale")
        self._digests: dict[int, np.ndarray] = {}

    @classmethod
    def of(cls, rule: Rule, state: State) -> Map:
        """Both passes over the state: the map of parameters that travel as one frame."""
        map_base = base(scan(rule, state))
        return cls(build(rule, state, map_base), map_base, rule.wire_scale)

    def __len__(self) -> int:
        return self.bytes.size

    def __getitem__(self, part: slice) -> Map:
        """The map of a part of the values, `map[first:end]`."""
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise TypeError("a map is cut by a slice without a step")
        return Map(self.bytes[part], self.base, self.wire_scale)

    def digest(self, chunk_log2: int) -> np.ndarray:
        """digest() of the map bytes, made once."""
        chunk_log2 = integer(chunk_log2, "chunk_log2", 10, 15)
        made = self._digests.get(chunk_log2)
        if made is None:
            # The first one stays if threads make it at the same time: structs of others borrow from it.
            made = self._digests.setdefault(chunk_log2, digest(self.bytes, chunk_log2))
        return made

    def struct(self, chunk_log2: int | None = None) -> gw_gcomp_map:
        """The C struct, with digests if chunk_log2 is given. It borrows from this object."""
        result = fill(
            gw_gcomp_map, bytes=self.bytes.ctypes.data, base=self.base, wire_scale=self.wire_scale, len=self.bytes.size
        )
        if chunk_log2 is not None:
            result.digest = self.digest(chunk_log2).ctypes.data
            result.chunk_log2 = chunk_log2
        return result


def pointer_to(map: Map | None, chunk_log2: int | None):
    """A pointer to the C struct of a map, NULL for None."""
    return pointer(map.struct(chunk_log2)) if map is not None else None


def bytes_of(map: Map | None) -> np.ndarray | None:
    """The bytes of a map, None for None."""
    return None if map is None else map.bytes
