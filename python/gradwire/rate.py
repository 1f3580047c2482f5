"""Rate control: predicted size and error at every tolerance or noise limit (gcomp.h, "Rate control")."""

from __future__ import annotations

import copy
from ctypes import byref, c_float, c_uint32
from dataclasses import dataclass

from gradwire import _constants as c
from gradwire._fill import choose, integer
from gradwire._library import check, lib
from gradwire._structs import gw_gcomp_rate
from gradwire.arrays import ArrayLike
from gradwire.gcomp import Codec, Source, Stream
from gradwire.maps import Limits, Map, Optimizer, Rule, State

_KINDS = {"tolerance": (c.GW_GCOMP_RATE_TOLERANCE, 23), "noise": (c.GW_GCOMP_RATE_NOISE, 17)}


@dataclass(frozen=True)
class Point:
    """One point of a curve: limit: tolerance_bits or noise. size: bytes of all frames. nonzeros: decoded values that
    are not zero. nmse: expected squared error / sum of squares, 0 if there are only zeros."""

    limit: float
    size: int
    nonzeros: int
    nmse: float


class Curve:
    """Predicted size and error of encodes at every tolerance ("tolerance", 23 points) or noise limit ("noise", 17
    points).

    Curves of several sources or ranks are pooled by `+`: the points that fit a size are the same in any order of
    addition.
    """

    def __init__(self, kind: str = "tolerance") -> None:
        number = choose({name: entry[0] for name, entry in _KINDS.items()}, kind, "kind of curve")
        self.kind = kind
        self.struct = gw_gcomp_rate()
        check(lib.gw_gcomp_rate_init(self.struct, number))

    def add(self, codec: Codec, values: ArrayLike, map: Map, stream: Stream | None = None) -> None:
        """Adds the frame that codec would make of the values, in one pass over values and map.

        codec: derived quanta, step 1, largest cap, no installed codebook, else Error "option". map: for "tolerance"
        without a noise limit; for "noise" of Limits(noise=1, noise_only=True). On failure the curve is unchanged.
        """
        source = Source(codec, values, map, stream)
        check(lib.gw_gcomp_rate_add(self.struct, codec.handle, source.struct, codec.workspace()))

    def __add__(self, other: Curve) -> Curve:
        """The pooled curve. Both are of one kind, else ValueError."""
        if self.kind != other.kind:
            raise ValueError(f"a curve of {self.kind} and one of {other.kind}")
        result = Curve(self.kind)
        result.struct = copy.copy(self.struct)
        mine, theirs = result.struct, other.struct
        for name in ("len", "front_size", "square"):
            setattr(mine, name, getattr(mine, name) + getattr(theirs, name))
        for name in ("cost", "nonzeros", "error"):
            for i in range(c.GW_GCOMP_RATE_POINTS):
                getattr(mine, name)[i] += getattr(theirs, name)[i]
        return result

    @property
    def len(self) -> int:
        """Values that were added."""
        return self.struct.len

    @property
    def points(self) -> tuple[Point, ...]:
        """All points: tolerance_bits 1 to 23, or noise 1 down to 2^-8."""
        return tuple(self._point(i) for i in range(_KINDS[self.kind][1]))

    def _point(self, i: int) -> Point:
        limit = i + 1 if self.kind == "tolerance" else 2.0 ** (-i / 2)
        nmse = self.struct.error[i] / self.struct.square if self.struct.square else 0.0
        return Point(limit, lib.gw_gcomp_rate_size(self.struct, i), self.struct.nonzeros[i], nmse)

    def tolerance_bits(self, size_max: int) -> int:
        """The largest tolerance whose predicted size is at most size_max bytes; Error "limit" if none is."""
        bits = c_uint32()
        check(lib.gw_gcomp_rate_tolerance(self.struct, integer(size_max, "size_max"), byref(bits)))
        return bits.value

    def noise(self, size_max: int) -> float:
        """The smallest noise limit whose predicted size is at most size_max bytes; Error "limit" if none is."""
        noise = c_float()
        check(lib.gw_gcomp_rate_noise(self.struct, integer(size_max, "size_max"), byref(noise)))
        return noise.value


def tolerance_curve(
    values: ArrayLike, optimizer: Optimizer, state: State, *, wire_scale: float = 1.0, **options
) -> Curve:
    """The curve of one tensor: derived quanta; options: fields of gcomp.Options, those of the encode to
    come.

    values: gradient times wire_scale. state: parameters and optimizer state before the step.
    """
    curve = Curve("tolerance")
    settings = {"quantum_mode": "derived", **options}
    curve.add(Codec(**settings), values, Map.of(Rule(optimizer, wire_scale), state))
    return curve


def noise_curve(values: ArrayLike, optimizer: Optimizer, state: State, *, wire_scale: float = 1.0, **options) -> Curve:
    """The same by noise limit, for optimizers with a second moment."""
    curve = Curve("noise")
    codec = Codec(**{"quantum_mode": "derived", **options})
    limits = Limits(tolerance_bits=codec.tolerance_bits, noise=1.0, noise_only=True)
    curve.add(codec, values, Map.of(Rule(optimizer, wire_scale, limits), state))
    return curve
