"""Precision maps of a part of a bucket, from the optimizer's state as it is in the backward pass: until the bucket's
result is there no optimizer makes a step."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_uint32

import numpy as np

import gradwire.maps
from gradwire import _constants
from gradwire import _structs as s
from gradwire._library import check, lib

from .optimizers import ParamRegistry, Place

_ARRAYS = ("param", "m", "v", "a")


class _Range:
    """Values of one parameter: their rule and state, from the first of them on."""

    def __init__(self, segment: s.gw_collective_segment, low: int, high: int) -> None:
        self.low, self.len, self.rule = low, high - low, segment.rule
        skipped = 4 * (low - segment.offset)
        self.state, self._zeros = s.gw_optimizer_state(), None
        for bit, name in enumerate(_ARRAYS):
            address = getattr(segment.state, name)
            if address:
                setattr(self.state, name, address + skipped)
            elif bit and self.rule.contents.uses >> (bit - 1) & 1:  # the optimizer has not made it yet
                self._zeros = np.zeros(self.len, np.float32) if self._zeros is None else self._zeros
                setattr(self.state, name, self._zeros.ctypes.data)


def map_of(
    registry: ParamRegistry,
    places: Sequence[Place],
    wanted: tuple[int, int],
    wire_scale: float,
    limits: gradwire.maps.Limits,
) -> gradwire.maps.Map:
    """Of the values `wanted`, from the first to before the last. Values of no place, and those of parameters that maps
    are not known for, lose no bits."""
    low, high = wanted
    chosen = [place for place in places if place.offset < high and place.offset + place.len > low]
    table = registry.segments(chosen, wire_scale, limits)
    ranges = [
        _Range(segment, max(low, segment.offset), min(high, segment.offset + segment.len))
        for segment in table.segments
        if segment.rule
    ]
    tops = []
    for one in ranges:
        top = c_uint32()
        check(lib.gw_gcomp_map_scan(one.rule, one.state, one.len, _constants.GW_BACKEND_ALL, byref(top)))
        tops.append(top.value)
    base = gradwire.maps.base(max(tops, default=0))
    made = np.zeros(high - low, np.uint8)
    for one in ranges:
        place = made[one.low - low : one.low - low + one.len]
        check(lib.gw_gcomp_map_build(one.rule, one.state, one.len, base, _constants.GW_BACKEND_ALL, place.ctypes.data))
    return gradwire.maps.Map(made, base, table.wire_scale)
