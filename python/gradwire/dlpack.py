"""Borrows memory from anything that has __dlpack__, bf16 included, which numpy.from_dlpack() does not know.

The capsule of the producer is read and not consumed: its memory lives as long as the capsule does, which the array that
borrow() returns keeps alive.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

_CPU_DEVICES = (1, 3, 11)  # kDLCPU; kDLCUDAHost and kDLROCMHost: pinned memory of the CPU
_READ_ONLY = 1
_FORMATS = {
    (2, 16): ("fp16", np.float16),
    (2, 32): ("fp32", np.float32),
    (4, 16): ("bf16", np.uint16),
    (1, 8): ("uint8", np.uint8),
    (1, 16): ("uint16", np.uint16),
    (1, 32): ("uint32", np.uint32),
}


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_api = ctypes.pythonapi
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_get_pointer = _api.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def borrow(producer: Any) -> tuple[np.ndarray, str]:
    """An array of the producer's memory, with its shape and strides, and the name of its type; bf16 is seen as uint16.

    Raises TypeError for memory that is not the CPU's, for types that gradwire does not know, and for tensors whose
    memory does not hold their values (torch's negative and conjugate bits, its tensors without memory). The array is
    read-only where the producer says so.
    """
    _refuse_pending(producer)
    device = producer.__dlpack_device__()[0] if hasattr(producer, "__dlpack_device__") else 1
    if device not in _CPU_DEVICES:
        raise TypeError(f"{_kind(producer)} is not in the memory of the CPU (DLPack device type {int(device)})")
    capsule = _capsule(producer)
    tensor, flags = _read(capsule, producer)
    name, dtype = _FORMATS.get((tensor.code, tensor.bits), (None, None))
    if name is None or tensor.lanes != 1:
        raise TypeError(
            f"{_kind(producer)} has elements that gradwire does not know (DLPack {tensor.code}, {tensor.bits})"
        )
    if not tensor.data and 0 not in tensor.shape[: tensor.ndim]:
        raise TypeError(f"{_kind(producer)} has no memory: its values are computed when they are read; pass a copy")
    array = _array(capsule, tensor, np.dtype(dtype))
    if flags & _READ_ONLY:
        array.flags.writeable = False
    return array, name


def _refuse_pending(producer: Any) -> None:
    """Torch's views with a pending operation share memory that holds other values. Its export ignores the negative
    bit."""
    for pending, bit, resolve in (("is_neg", "negative", "resolve_neg"), ("is_conj", "conjugate", "resolve_conj")):
        if getattr(producer, pending, bool)():
            raise TypeError(
                f"{_kind(producer)} has its {bit} bit set: its memory holds other values; pass its {resolve}(), a copy"
            )


def _kind(producer: Any) -> str:
    return type(producer).__module__ + "." + type(producer).__qualname__


def _capsule(producer: Any) -> Any:
    try:
        return producer.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer of DLPack before 1.0
        return producer.__dlpack__()


def _read(capsule: Any, producer: Any) -> tuple[_Tensor, int]:
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise TypeError(f"{_kind(producer)} speaks DLPack {managed.major}, gradwire 0 and 1")
        return managed.tensor, managed.flags
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_get_pointer(capsule, b"dltensor")), 0
    raise TypeError(f"{_kind(producer)}.__dlpack__() returned no DLPack capsule")


class _Memory:
    """Memory of one element at an address, for numpy; keeps its owner alive."""

    def __init__(self, owner: Any, address: int, dtype: np.dtype) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "data": (address, False), "typestr": dtype.str, "shape": (1,)}


def _array(capsule: Any, tensor: _Tensor, dtype: np.dtype) -> np.ndarray:
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if 0 in shape:
        return np.empty(shape, dtype)
    if tensor.strides:
        steps = [tensor.strides[i] for i in range(tensor.ndim)]
    else:  # C order
        steps = [math.prod(shape[i + 1 :]) for i in range(tensor.ndim)]
    first = np.asarray(_Memory(capsule, tensor.data + tensor.byte_offset, dtype))
    return np.lib.stride_tricks.as_strided(first, shape, [step * dtype.itemsize for step in steps])
