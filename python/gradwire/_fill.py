"""C structs and arguments from Python numbers, without the silent wrap of ctypes, and with errors that name them."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from gradwire import _constants

T = TypeVar("T", bound=ctypes.Structure)
V = TypeVar("V")

_FLOATS = (ctypes.c_float, ctypes.c_double)
_SIGNED = {ctypes.c_int, ctypes.c_int8, ctypes.c_int16, ctypes.c_int32, ctypes.c_int64}
_UNSIGNED = {ctypes.c_uint, ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t}
_NORMAL_MIN, _NORMAL_MAX = 2.0**-126, 2.0**128  # magnitudes of fp32: from the first to below the second


def integer(value: Any, what: str, low: int = 0, high: int = (1 << 64) - 1) -> int:
    """The value as an int, NumPy's integers too. TypeError for what is no integer, ValueError for one out of range."""
    number = _index(value, what)
    if not low <= number <= high:
        raise ValueError(f"{what}={number} is not in {low}..{high}")
    return number


def _index(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what}={value!r} is no integer") from None


def real(value: Any, what: str) -> float:
    """The value as a float, TypeError for what is no number. Infinities and NaN are numbers here."""
    if isinstance(value, (str, bytes, bytearray)):  # float() would read it
        raise TypeError(f"{what}={value!r} is no number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{what}={value!r} is too large") from None
    except (TypeError, ValueError):
        raise TypeError(f"{what}={value!r} is no number") from None


def choose(table: Mapping[str, int], name: Any, what: str) -> int:
    """The number of a name. ValueError for one that is not in the table, TypeError for what is no string."""
    if not isinstance(name, str):
        raise TypeError(f"{what}={name!r} is no string; there are: {', '.join(table)}")
    if name not in table:
        raise ValueError(f"no {what} {name!r}; there are: {', '.join(table)}")
    return table[name]


def numbers_of(prefix: str, *names: str) -> dict[str, int]:
    """A table for choose(): the constant of the headers that begins so and ends with the name, for each name."""
    return {name: getattr(_constants, prefix + name.upper()) for name in names}


def chosen(tables: Mapping[str, Mapping[str, int]], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with numbers in place of the names of those that have a table."""
    return {name: choose(tables[name], value, name) if name in tables else value for name, value in values.items()}


def instance(value: Any, kind: type[V], what: str) -> V:
    """The value. TypeError if it is not of this class."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} is of type {type(value).__name__}, not {kind.__module__}.{kind.__name__}")
    return value


def scale_of(value: Any, what: str = "scale") -> float:
    """A factor of decoded values. The library takes 0 as "not given", so that 0 must not get there."""
    number = real(value, what)
    if not _NORMAL_MIN <= abs(number) < _NORMAL_MAX:
        raise ValueError(f"{what}={number} is no normal fp32 number: its magnitude must be in 2^-126..2^128")
    return number


def fill(kind: type[T], /, **values: Any) -> T:
    """kind(**values); ValueError for a number that its field cannot hold, TypeError for what is no number where one
    goes."""
    struct = kind()
    assign(struct, **values)
    return struct


def whole(values: Iterable[Any], what: str) -> ctypes.Array:
    """An array of int64; exceptions as of fill()."""
    given = [_held(ctypes.c_int64, value, what) for value in values]
    return (ctypes.c_int64 * len(given))(*given)


def assign(struct: ctypes.Structure, /, **values: Any) -> None:
    """Sets fields; exceptions as of fill()."""
    types = _types(type(struct))
    for name, value in values.items():
        setattr(struct, name, _held(types.get(name), value, name))


@functools.cache
def _types(kind: type[ctypes.Structure]) -> dict[str, Any]:
    return {entry[0]: entry[1] for entry in kind._fields_}


def _held(kind: Any, value: Any, what: str) -> Any:
    """The value for a field of this type, which is left to ctypes if it is no number's."""
    if kind in _FLOATS:
        number = real(value, what)
        if kind is ctypes.c_float and math.isfinite(number) and abs(number) >= _NORMAL_MAX:
            raise ValueError(f"{what}={number} is too large for fp32, which ends below 2^128")
        return number
    if kind not in _SIGNED and kind not in _UNSIGNED:
        return value
    number, bits = _index(value, what), 8 * ctypes.sizeof(kind)
    low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if kind in _SIGNED else (0, (1 << bits) - 1)
    if not low <= number <= high:
        raise ValueError(f"{what}={number} does not fit {bits} bits: {low}..{high}")
    return number
