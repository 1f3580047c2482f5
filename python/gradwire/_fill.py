"""Structs from Python numbers, without the silent wrap of ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T", bound=ctypes.Structure)


def fill(kind: type[T], /, **values: Any) -> T:
    """kind(**values); ValueError for an integer that its field cannot hold, TypeError for what is no number where one
    goes."""
    struct = kind()
    assign(struct, **values)
    return struct


def whole(values: Iterable[Any], what: str) -> ctypes.Array:
    """An array of int64; exceptions as of fill()."""
    given = list(values)
    array = (ctypes.c_int64 * len(given))(*given)
    for value, held in zip(given, array):
        if value != held:
            raise ValueError(f"{what}: {value} does not fit 64 bits")
    return array


def assign(struct: ctypes.Structure, /, **values: Any) -> None:
    """Sets fields; exceptions as of fill()."""
    for name, value in values.items():
        setattr(struct, name, value)
        if isinstance(value, int) and isinstance(getattr(struct, name), int) and getattr(struct, name) != value:
            raise ValueError(f"{name}: {value} does not fit {8 * getattr(type(struct), name).size} bits")
