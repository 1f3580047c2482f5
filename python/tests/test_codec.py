"""Round trips of the codec: quantum modes, types, hops, errors."""

import pickle

import gradwire
import gw_decode
import ml_dtypes
import numpy as np
import pytest
from conftest import same_bits
from gradwire import backends, codebooks
from gradwire._constants import GW_ERR_CORRUPT

DTYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}


@pytest.mark.parametrize("dtype", DTYPES)
def test_lossless_without_a_map(gradient, dtype):
    values = gradient.astype(DTYPES[dtype])
    frame = gradwire.encode(values, strict=True)
    back = gradwire.decode(frame)
    assert back.dtype == values.dtype
    assert same_bits(back, values)
    if dtype == "fp32":  # for which the frame is smaller than the values
        assert len(frame) < values.nbytes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("quantum_mode", ["explicit", "derived", "carried"])
def test_reference_decoder_agrees(gradient, map, dtype, quantum_mode):
    options = {"quantum_mode": quantum_mode, "dtype": dtype, "checksum": True}
    if quantum_mode != "explicit":
        options["tolerance_bits"] = 12
    values = gradient.astype(DTYPES[dtype])[:20000]
    part = map[:20000]
    frame = gradwire.encode(values, map=part, **options)
    mine = gradwire.decode(frame, map=part, **options)
    info = gradwire.inspect(frame)
    receiver = None
    if quantum_mode == "derived":
        receiver = gw_decode.Map(part.bytes.tobytes(), info.drop_offset, np.float32(part.wire_scale).view(np.uint32))
    status, bad_chunk, theirs = gw_decode.decode(frame, receiver)
    assert (status, bad_chunk) == ("OK", None)
    assert gw_decode.values_to_bytes(theirs, values.itemsize) == mine.tobytes()
    if quantum_mode != "explicit" or dtype == "fp32":  # explicit frames keep what 16 bits have
        assert not same_bits(mine, values)


def test_tolerance_bounds_the_error(gradient, state, adam, map):
    frame = gradwire.encode(gradient, map=map, quantum_mode="derived", tolerance_bits=8)
    back = gradwire.decode(frame, map=map, tolerance_bits=8)
    largest = np.abs(back - gradient).max()
    tighter = gradwire.encode(gradient, map=map, quantum_mode="derived", tolerance_bits=16)
    assert len(frame) < len(tighter) < gradient.nbytes
    assert 0 < np.abs(gradwire.decode(tighter, map=map, tolerance_bits=16) - gradient).max() < largest


def test_decode_add_and_hop(gradient, map):
    codec = gradwire.Codec(quantum_mode="derived", tolerance_bits=14)
    frame = codec.encode(gradient, map=map)
    decoded = codec.decode(frame, map=map)
    own = gradient[::-1].copy()
    total = own.copy()
    assert codec.decode_add(frame, total, map=map) is total
    assert same_bits(total, own + decoded)
    scaled = own.copy()
    codec.decode_add(frame, scaled, map=map, scale=0.5)
    assert same_bits(scaled, own + decoded * np.float32(0.5))
    many = own.copy()
    codec.decode_add_frames([frame, frame], many, maps=[map, map])
    assert same_bits(many, own + decoded + decoded)
    hop = codec.decode_add_encode(frame, own, map=map)
    assert hop == codec.encode(decoded + own, map=map)


def test_stream_decides_stochastic_rounding(gradient, map):
    codec = gradwire.Codec(rounding="stochastic", quantum_mode="carried", tolerance_bits=10)
    one = codec.encode(gradient, map=map, stream=gradwire.Stream(seed=1))
    assert one == codec.encode(gradient, map=map, stream=gradwire.Stream(seed=1))
    assert one != codec.encode(gradient, map=map, stream=gradwire.Stream(seed=2))
    whole = gradwire.Stream(segments=(gradwire.Segment(len=gradient.size, seed=1),))
    assert one == codec.encode(gradient, map=map, stream=whole)
    with pytest.raises(gradwire.Error, match="arg"):
        codec.encode(gradient, map=map, stream=gradwire.Stream(segments=(gradwire.Segment(len=5, seed=1),)))


def test_quanta(gradient):
    codec = gradwire.Codec(quantum_mode="carried", block_log2=9, dead_zone=True)
    blocks = -(-gradient.size // 512)
    frame = codec.encode(gradient, quanta=np.full(blocks, 110, np.uint8))
    quantum = np.float32(2.0 ** (110 - 127))
    back = codec.decode(frame)
    assert np.array_equal(back, np.round(back / quantum) * quantum)
    assert np.abs(back - gradient).max() <= quantum
    with pytest.raises(ValueError, match="quanta"):
        codec.encode(gradient, quanta=np.zeros(blocks + 1, np.uint8))


def test_corrupt_chunk_is_named_and_zeroed(gradient):
    codec = gradwire.Codec(checksum=True)
    frame = bytearray(codec.encode(gradient))
    chunk = gradwire.inspect(frame).chunks[2]
    frame[chunk.offset + chunk.size // 2] ^= 4
    out = np.full(gradient.size, 7, np.float32)
    with pytest.raises(gradwire.Error) as caught:
        codec.decode(frame, out=out)
    assert caught.value.chunk == 2
    assert caught.value.name == "checksum"
    assert "chunk 2" in str(caught.value)
    bad = slice(2 * 16384, 3 * 16384)
    assert not out[bad].any()
    assert np.array_equal(np.delete(out, bad), np.delete(gradient, bad))
    total = np.ones(gradient.size, np.float32)
    with pytest.raises(gradwire.Error):
        codec.decode_add(frame, total)
    assert (total[bad] == 1).all()
    with pytest.raises(gradwire.Error) as caught:
        codec.check(frame)
    assert caught.value.chunk == 2


def test_bad_frame_of_several_is_named(gradient):
    codec = gradwire.Codec(checksum=True)
    good = codec.encode(gradient)
    bad = bytearray(good)
    bad[gradwire.inspect(good).chunks[1].offset] ^= 1
    with pytest.raises(gradwire.Error) as caught:
        codec.decode_add_frames([good, bad], gradient.copy())
    assert (caught.value.frame, caught.value.chunk) == (1, 1)


def test_structure_errors_leave_out_untouched(gradient, map):
    frame = gradwire.encode(gradient, map=map, quantum_mode="derived", tolerance_bits=12)
    out = np.full(gradient.size, 7, np.float32)
    for data, options, name in (
        (frame[:-1], {"map": map}, "short"),
        (frame + b"\0", {"map": map}, "trailing"),
        (b"x" + frame[1:], {"map": map}, "magic"),
        (frame, {}, "map"),
        (frame, {"map": gradwire.Map(map.bytes, map.base + 1)}, "map"),
        (frame, {"map": map, "len_max": 10}, "limit"),
    ):
        with pytest.raises(gradwire.Error) as caught:
            gradwire.decode(data, out=out, tolerance_bits=12, **options)
        assert caught.value.name == name
        assert caught.value.chunk is None
    assert (out == 7).all()
    with pytest.raises(gradwire.Error, match="option"):
        gradwire.Codec(dtype="fp16").decode(frame, map=map)


def test_hostile_len_takes_no_memory(gradient):
    """A header alone that announces 2^40 values is refused before an array is made for them."""
    frame = bytearray(gradwire.encode(gradient))
    info = gradwire.inspect(frame)
    at = frame.index(info.len.to_bytes(8, "little"))
    frame[at : at + 8] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(gradwire.Error):
        gradwire.decode(frame)


def test_errors_cross_processes():
    error = gradwire.Error(32, "text", chunk=3, frame=1)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "text (corrupt, frame 1, chunk 3)"
    assert (again.status, again.name, again.chunk, again.block, again.frame) == (32, "corrupt", 3, None, 1)


def test_backends_give_the_same_bytes(gradient, map):
    assert "scalar" in backends.available()
    frames = {gradwire.encode(gradient, map=map, backends=backends.mask(name)) for name in backends.available()}
    assert len(frames) == 1
    with pytest.raises(ValueError, match="no backend 'abacus'"):
        backends.mask("scalar", "abacus")


def test_options():
    with pytest.raises(gradwire.Error, match="option"):
        gradwire.Codec(chunk_log2=20)
    with pytest.raises(ValueError, match="no dtype 'fp64'"):
        gradwire.Codec(dtype="fp64")
    with pytest.raises(ValueError, match="chunk_log2"):
        gradwire.Codec(chunk_log2=1 << 40)
    with pytest.raises(ValueError, match="rank"):
        gradwire.encode(np.zeros(3, np.float32), stream=gradwire.Stream(rank=1 << 16))
    with pytest.raises(TypeError):
        gradwire.Codec(gradwire.Options(), dtype="fp32")
    with pytest.raises(TypeError):
        gradwire.Codec(no_such_option=1)


def test_empty():
    for dtype in DTYPES.values():
        frame = gradwire.encode(np.empty((0, 4), dtype))
        back = gradwire.decode(frame)
        assert back.size == 0
        assert back.dtype == np.dtype(dtype)
        assert gradwire.inspect(frame).len == 0


def test_inspect(gradient):
    frame = gradwire.encode(gradient, checksum=True, chunk_log2=13)
    info = gradwire.inspect(frame)
    assert (info.dtype, info.quantum_mode, info.checksum, info.chunk_log2) == ("fp32", "explicit", True, 13)
    assert info.len == gradient.size == sum(chunk.len for chunk in info.chunks)
    assert info.chunk_count == len(info.chunks) == -(-gradient.size // 8192)
    assert info.frame_size == len(frame) == info.chunks[-1].offset + info.chunks[-1].size
    assert {chunk.kind for chunk in info.chunks} == {"coded"}
    assert gradwire.peek(frame[:72]).frame_size == gradwire.frame_size(frame[:32]) == len(frame)
    unknown = bytearray(frame[:32])
    unknown[4:7] = b"\xff\xff\xff"  # a version, codec and dtype of the future
    assert gradwire.frame_size(unknown) == len(frame)
    with pytest.raises(gradwire.Error, match="short"):
        gradwire.frame_size(frame[:31])
    assert gradwire.inspect(gradwire.encode(np.zeros(5, np.float32))).chunks[0].kind == "zero"
    assert info.bits_per_value == 8 * len(frame) / gradient.size


def test_installed_codebook(gradient):
    codec = gradwire.Codec(dtype="fp32")
    histogram = codebooks.Histogram(codec)
    histogram.add(codec, gradient)
    codebook = (histogram + histogram).codebook()
    codebooks.install(codec, codebook, 7, 1)
    frame = codec.encode(gradient)
    assert gradwire.inspect(frame).installed
    assert same_bits(codec.decode(frame), gradient)
    with pytest.raises(gradwire.Error, match="table"):
        gradwire.decode(frame)
    codebooks.uninstall(codec)
    assert not gradwire.inspect(codec.encode(gradient)).installed
    with pytest.raises(gradwire.Error) as caught:
        codebooks.install(codec, b"\xff" * 20, 7, 2)
    assert caught.value.status != GW_ERR_CORRUPT
