"""Arrays of callers as memory that the library can read and write.

Accepted everywhere: NumPy arrays, objects with __dlpack__ (tensors of torch and others, in the memory of the CPU) and
objects with the buffer protocol (bytes, bytearray, memoryview, array.array, mmap). What is read may have any strides:
what is not contiguous is copied, in C order. What is written must be C-contiguous and writable.

Types of values: "fp32", "fp16" and "bf16". bf16 comes as ml_dtypes.bfloat16, as a bf16 tensor, or as uint16 bit
patterns where the codec says that values are bf16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire import dlpack

#: Anything that the functions of this package take as an array.
ArrayLike = Any

#: NumPy's type for the elements as the library sees them.
ELEMENTS: dict[str, np.dtype] = {"fp32": np.dtype("<f4"), "fp16": np.dtype("<f2"), "bf16": np.dtype("<u2")}


def look(values: ArrayLike) -> tuple[np.ndarray, str]:
    """The array without a copy, and the name of its type ("fp32", ..., "bf16", else NumPy's); bf16 is seen as
    uint16."""
    if not isinstance(values, np.ndarray):
        if hasattr(values, "__dlpack__"):
            return dlpack.borrow(values)
        try:
            values = np.asarray(memoryview(values))
        except TypeError:
            raise TypeError(
                f"{type(values).__name__} is no NumPy array and has neither __dlpack__ nor the buffer protocol"
            ) from None
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError("a masked array: what is behind its mask would be taken as values; pass .filled() or .data")
    if not values.dtype.isnative:
        raise TypeError(f"elements of type {values.dtype.str} are not in this machine's byte order")
    if values.dtype.name == "bfloat16":
        return values.view(np.uint16), "bf16"
    return values, {"float32": "fp32", "float16": "fp16"}.get(values.dtype.name, values.dtype.name)


def name_of(values: ArrayLike) -> str:
    """ "fp32", "fp16" or "bf16"; TypeError for anything else."""
    name = look(values)[1]
    if name not in ELEMENTS:
        raise TypeError(f"values of type {name}: gradwire takes fp32, fp16 and bf16 (convert, or name the dtype)")
    return name


def _typed(values: ArrayLike, dtype: str) -> np.ndarray:
    array, name = look(values)
    if name != dtype and not (dtype == "bf16" and name == "uint16"):
        raise TypeError(f"values are {name}, the codec's are {dtype}")
    return array


def _writable(array: np.ndarray, what: str) -> np.ndarray:
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} is not C-contiguous: it cannot be written in place")
    if not array.flags.writeable:
        raise ValueError(f"{what} is read-only")
    return array.reshape(-1)


def source(values: ArrayLike, dtype: str) -> np.ndarray:
    """Values to read, as a contiguous one-dimensional array; a copy only where `values` is not contiguous."""
    return np.ascontiguousarray(_typed(values, dtype)).reshape(-1)


def target(values: ArrayLike, dtype: str, what: str = "out") -> np.ndarray:
    """Values to write in place, as a one-dimensional view. ValueError if they are not contiguous or read-only."""
    return _writable(_typed(values, dtype), what)


def _place_of(out: ArrayLike, dtype: str, count: int, giver: str, *inputs: np.ndarray | None) -> np.ndarray:
    """target() for `count` values, which must not overlap the inputs. giver: what has so many, for the error."""
    values = target(out, dtype)
    if values.size != count:
        raise ValueError(f"out has {values.size} values, {giver} {count}")
    apart(values, *inputs)
    return values


def read(values: ArrayLike, dtype: Any, what: str) -> np.ndarray:
    """An array of exactly this NumPy type to read, one-dimensional and contiguous."""
    array, name = look(values)
    if array.dtype != np.dtype(dtype) or name == "bf16":
        raise TypeError(f"{what} is {name}, not {np.dtype(dtype).name}")
    return np.ascontiguousarray(array).reshape(-1)


def write(values: ArrayLike, dtype: Any, what: str) -> np.ndarray:
    """An array of exactly this NumPy type to write in place, as a one-dimensional view."""
    array, name = look(values)
    if array.dtype != np.dtype(dtype) or name == "bf16":
        raise TypeError(f"{what} is {name}, not {np.dtype(dtype).name}")
    return _writable(array, what)


def frame(data: ArrayLike) -> np.ndarray:
    """Bytes of a frame to read. TypeError if they are not bytes."""
    return read(data, np.uint8, "a frame")


def empty(dtype: str, shape: Any) -> np.ndarray:
    """A new array of values of this type. bf16 needs the package ml_dtypes."""
    if dtype != "bf16":
        return np.empty(shape, ELEMENTS[dtype])
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("NumPy has no bf16: install ml_dtypes, or give `out`, an array of uint16 or a tensor") from None
    return np.empty(shape, ml_dtypes.bfloat16)


def address(array: np.ndarray | None) -> int | None:
    """Where the elements are; None for no array or an empty one's NULL."""
    return None if array is None else array.ctypes.data


def apart(written: np.ndarray, *others: np.ndarray | None) -> None:
    """ValueError if memory that a call writes overlaps memory that it reads. All are contiguous."""
    for other in others:
        if other is not None and np.may_share_memory(written, other):
            raise ValueError("the output overlaps an input")
