"""What counts as an array: types, strides, read-only memory, overlap, DLPack, buffers."""

import array
import ctypes

import gradwire
import ml_dtypes
import numpy as np
import pytest
from conftest import same_bits
from gradwire import arrays, dlpack


class Producer:
    """A DLPack producer: what torch does for its tensors, with the type and device that a test wants."""

    def __init__(self, base, *, code=2, bits=32, device=1, versioned=True, read_only=False, explicit_strides=True):
        self.base, self.device, self.versioned = base, device, versioned
        shape = (ctypes.c_int64 * base.ndim)(*base.shape)
        strides = (ctypes.c_int64 * base.ndim)(*(step // base.itemsize for step in base.strides))
        self.keep = shape, strides
        tensor = dlpack._Tensor(
            data=base.ctypes.data, device_type=device, ndim=base.ndim, code=code, bits=bits, lanes=1, shape=shape
        )
        if explicit_strides:
            tensor.strides = strides
        self.managed = dlpack._Versioned(major=1, flags=int(read_only), tensor=tensor)
        self.old = tensor

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **arguments):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        if self.versioned:
            return new(ctypes.addressof(self.managed), b"dltensor_versioned", None)
        if arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        return new(ctypes.addressof(self.old), b"dltensor", None)


@pytest.fixture
def values(gradient):
    return gradient[:4000]


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(values, versioned):
    table = values.reshape(40, 100)
    expected = gradwire.encode(values)
    for base in (table, table.T):
        frame = gradwire.encode(Producer(base, versioned=versioned))
        assert frame == gradwire.encode(np.ascontiguousarray(base))
    assert gradwire.encode(Producer(table, versioned=versioned, explicit_strides=False)) == expected
    out = np.zeros((40, 100), np.float32)
    producer = Producer(out, versioned=versioned)
    assert gradwire.decode(expected, out=producer) is producer
    assert same_bits(out, values)


def test_dlpack_bf16(values):
    short = values.astype(ml_dtypes.bfloat16)
    expected = gradwire.encode(short)
    bits = short.view(np.uint16)
    assert gradwire.encode(Producer(bits, code=4, bits=16)) == expected
    assert gradwire.inspect(expected).dtype == "bf16"
    out = np.zeros(4000, np.uint16)
    gradwire.decode(expected, out=Producer(out, code=4, bits=16))
    assert same_bits(out, bits)


def test_dlpack_refusals(values):
    with pytest.raises(TypeError, match="memory of the CPU"):
        gradwire.encode(Producer(values, device=2))
    with pytest.raises(TypeError, match="DLPack 0, 64"):
        gradwire.encode(Producer(values, code=0, bits=64))
    frame = gradwire.encode(values)
    with pytest.raises(ValueError, match="read-only"):
        gradwire.decode(frame, out=Producer(values.copy(), read_only=True))
    with pytest.raises(ValueError, match="contiguous"):
        gradwire.decode(frame, out=Producer(values.reshape(40, 100).T))


def test_numpy_consumes_its_own_dlpack(values):
    class Only:
        def __init__(self, base):
            self.base = base

        def __dlpack__(self, **arguments):
            return self.base.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.base.__dlpack_device__()

    assert gradwire.encode(Only(values)) == gradwire.encode(values)


def test_bf16_as_bit_patterns(values):
    short = values.astype(ml_dtypes.bfloat16)
    bits = short.view(np.uint16)
    frame = gradwire.encode(bits, dtype="bf16")
    assert frame == gradwire.encode(short)
    out = np.zeros_like(bits)
    gradwire.decode(frame, out=out)
    assert same_bits(out, bits)
    with pytest.raises(TypeError, match="uint16"):
        gradwire.encode(bits)


def test_bf16_without_ml_dtypes(values, monkeypatch):
    frame = gradwire.encode(values.astype(ml_dtypes.bfloat16))
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="install ml_dtypes"):
        gradwire.decode(frame)


def test_memory_that_does_not_hold_the_values(values):
    """Torch's views with a pending operation: their memory has other values, and the export says nothing of it."""
    frame = gradwire.encode(values)
    for bit, resolve in (("is_neg", "resolve_neg"), ("is_conj", "resolve_conj")):
        pending = Producer(values.copy())
        setattr(pending, bit, lambda: True)
        before = pending.base.copy()
        with pytest.raises(TypeError, match=rf"{resolve}\(\)"):
            gradwire.encode(pending)
        with pytest.raises(TypeError, match=rf"{resolve}\(\)"):
            gradwire.decode(frame, out=pending)
        assert same_bits(pending.base, before)
        setattr(pending, bit, lambda: False)
        assert gradwire.encode(pending) == frame
    nothing = Producer(values)
    nothing.managed.tensor.data = None
    with pytest.raises(TypeError, match="no memory"):
        gradwire.encode(nothing)
    with pytest.raises(TypeError, match="masked"):
        gradwire.encode(np.ma.masked_greater(values, 0))


def test_buffers(values):
    frame = gradwire.encode(values)
    plain = array.array("f", values.tolist())
    assert gradwire.encode(plain) == frame
    assert gradwire.encode(memoryview(values)) == frame
    for data in (frame, bytearray(frame), memoryview(frame), np.frombuffer(frame, np.uint8)):
        assert same_bits(gradwire.decode(data), values)
    out = array.array("f", bytes(values.nbytes))
    gradwire.decode(frame, out=out)
    assert out == plain
    area = bytearray(gradwire.Codec().bound(values.size))
    written = gradwire.encode(values, out=area)
    assert isinstance(written, memoryview)
    assert written == frame
    assert area[: len(frame)] == frame
    with pytest.raises(gradwire.Error, match="dst"):
        gradwire.encode(values, out=bytearray(100))


def test_strides(values):
    for view in (values[::2], values[::-1], values.reshape(40, 100).T, values.reshape(40, 100)[:, 3:50]):
        assert gradwire.encode(view) == gradwire.encode(np.ascontiguousarray(view))
    frame = gradwire.encode(values[:2000])
    for out in (np.zeros(4000, np.float32)[::2], np.zeros(2000, np.float32)[::-1]):
        with pytest.raises(ValueError, match="contiguous"):
            gradwire.decode(frame, out=out)
        assert not out.any()
    unaligned = np.zeros(8001, np.uint8)[1:].view(np.float32)
    assert same_bits(gradwire.decode(frame, out=unaligned), values[:2000])


def test_read_only_and_shape(values):
    fixed = values.copy()
    fixed.flags.writeable = False
    frame = gradwire.encode(fixed)
    with pytest.raises(ValueError, match="read-only"):
        gradwire.decode(frame, out=fixed)
    with pytest.raises(ValueError, match="read-only"):
        gradwire.encode(values, out=bytes(10000))
    for size in (3999, 4001):
        out = np.full(size, 7, np.float32)
        with pytest.raises(ValueError, match="4000"):
            gradwire.decode(frame, out=out)
        assert (out == 7).all()
    out = np.zeros((2, 2000), np.float32)
    assert gradwire.decode(frame, out=out) is out
    assert same_bits(out, values)
    scalar = np.array(3.0, np.float32)
    assert gradwire.decode(gradwire.encode(scalar))[0] == 3


def test_refused_types(values):
    for wrong, message in (
        (values.astype(np.float64), "float64"),
        (values.astype(">f4"), "byte order"),
        (values.tolist(), "buffer protocol"),
        (values.astype(np.int32), "int32"),
    ):
        with pytest.raises(TypeError, match=message):
            gradwire.encode(wrong)
    frame = gradwire.encode(values)
    with pytest.raises(TypeError, match="float64"):
        gradwire.decode(frame, out=np.zeros(4000))
    with pytest.raises(TypeError, match="fp16"):
        gradwire.decode(frame, out=np.zeros(4000, np.float16))
    with pytest.raises(TypeError, match="frame"):
        gradwire.decode(values)


def test_overlap_is_refused(values):
    """A frame must not be written over its own values."""
    area = np.zeros(1 << 20, np.uint8)
    inside = area[64 : 64 + values.nbytes].view(np.float32)
    inside[:] = values
    with pytest.raises(ValueError, match="overlap"):
        gradwire.encode(inside, out=area)
    assert same_bits(inside, values)
    frame = np.frombuffer(bytearray(gradwire.encode(values)), np.uint8)
    with pytest.raises(ValueError, match="overlap"):
        gradwire.decode(frame, out=frame[: frame.size // 4 * 4].view(np.float32))


def test_memory_of_a_borrowed_tensor_lives_on(values):
    view, name = dlpack.borrow(values.copy())  # NumPy's capsule owns the copy from here on
    np.zeros(values.size * 8, np.float32)
    assert name == "fp32"
    assert same_bits(arrays.source(view, "fp32"), values)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_torch_tensors(values, name):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(values.copy()).reshape(40, 100).to(getattr(torch, name))
    out = torch.zeros_like(tensor)
    assert gradwire.decode(gradwire.encode(tensor), out=out) is out
    assert torch.equal(out, tensor)
    turned = torch.zeros(100, 40, dtype=tensor.dtype)
    gradwire.decode(gradwire.encode(tensor.T), out=turned)
    assert torch.equal(turned, tensor.T)
    with pytest.raises(ValueError, match="contiguous"):
        gradwire.decode(gradwire.encode(tensor.T), out=tensor.T)
    for pending in (torch._neg_view(tensor), torch._efficientzerotensor(4000, dtype=tensor.dtype)):
        with pytest.raises(TypeError, match="memory"):
            gradwire.encode(pending)
        with pytest.raises(TypeError, match="memory"):
            gradwire.decode(gradwire.encode(tensor), out=pending)
