"""THC: rounds over sums of integers and over frames."""

import golden_archive
import gradwire
import numpy as np
import pytest
import thc_decode
from gradwire import thc

WORKERS = 4
VECTORS = golden_archive.unpacked() / "thc"


@pytest.fixture
def codec():
    return thc.Codec(thc.options(4, WORKERS, seed=9))


@pytest.fixture
def tensors(rng):
    return [rng.standard_normal(5000).astype(np.float32) for _ in range(WORKERS)]


def maxima(codec, tensors):
    return np.maximum.reduce([codec.norms(tensor) for tensor in tensors])


def nmse(result, exact):
    return float(((result - exact) ** 2).sum() / (exact**2).sum())


def test_all_reduce_of_lanes(codec, tensors):
    patterns = maxima(codec, tensors)
    lanes = [codec.encode_lanes(x, patterns, thc.Part(rank=r)) for r, x in enumerate(tensors)]
    assert lanes[0].dtype == np.uint8
    total = np.add.reduce(lanes, dtype=lanes[0].dtype)
    mean = codec.decode_reduced(total, patterns, 5000)
    exact = np.mean(tensors, axis=0)
    assert 0 < nmse(mean, exact) < 0.05
    out = np.zeros((50, 100), np.float32)
    assert codec.decode_reduced(total, patterns, 5000, mode="sum", out=out) is out
    assert np.allclose(out.reshape(-1), 4 * mean, rtol=1e-5)
    assert lanes[1].nbytes < tensors[1].nbytes / 3


def test_parts_give_the_bytes_of_the_whole(codec, tensors):
    patterns = maxima(codec, tensors)
    whole = codec.encode(tensors[0], patterns)
    blocks = codec.block_count(5000)
    assert blocks == 5
    pieces = []
    for first, count in ((0, 2), (2, 3)):
        part = thc.Part(block_first=first, block_count=count, len=5000)
        piece = tensors[0][first * 1024 : (first + count) * 1024]
        assert np.array_equal(codec.norms(piece, part), codec.norms(tensors[0])[first : first + count])
        pieces.append(codec.encode(piece, patterns[first : first + count], part))
    assert np.array_equal(np.concatenate(pieces), whole)


def test_frames(codec, tensors):
    patterns = maxima(codec, tensors)
    frames = [codec.encode_frame(x, patterns, thc.Part(rank=r)) for r, x in enumerate(tensors)]
    total = thc.sum_begin(frames[0], checksum=True)
    for frame in frames:
        thc.sum_add(total, frame)
    mean = thc.decode_frame(total)
    info = thc.inspect(total)
    assert info.is_sum
    assert info.len == 5000
    lanes = [codec.encode_lanes(x, patterns, thc.Part(rank=r)) for r, x in enumerate(tensors)]
    expected = codec.decode_reduced(np.add.reduce(lanes, dtype=np.uint8), patterns, 5000)
    assert np.array_equal(mean, expected)
    assert thc_decode.decode(bytes(total)) == ("ok", None, mean.tobytes(), [])
    with pytest.raises(gradwire.Error, match="dup"):
        thc.sum_add(total, frames[1])
    other = thc.Codec(thc.options(4, WORKERS, seed=10))
    stranger = other.encode_frame(tensors[0], maxima(other, tensors))
    with pytest.raises(gradwire.Error, match="mismatch"):
        thc.sum_add(total, stranger)
    assert thc.inspect(frames[2]).rank == 2
    assert thc.inspect(frames[2]).options.table == codec.options.table


@pytest.mark.parametrize("path", sorted(VECTORS.rglob("*.gw")), ids=lambda path: path.name)
@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_golden_frames_decode_as_the_reference(path, mode):
    data = path.read_bytes()
    status, block, values, _missing = thc_decode.decode(data, mode == "mean")
    if status == "ok":
        assert thc.decode_frame(data, mode=mode).tobytes() == values
        return
    with pytest.raises(gradwire.Error) as caught:
        thc.decode_frame(data, mode=mode)
    assert (caught.value.name, caught.value.block) == (status, block)


def test_error_feedback(tensors):
    codec = thc.Codec(thc.options(4, 1, error_feedback=True))
    error = np.zeros(5000, np.float32)
    exact, sent = np.zeros(5000), np.zeros(5000)
    for round in range(10):
        patterns = codec.norms(tensors[0], error=error)
        part = thc.Part(round=round)
        lanes = codec.encode_lanes(tensors[0], patterns, part, error=error)
        sent += codec.decode_reduced(lanes, patterns, 5000, part)
        exact += tensors[0]
    assert np.allclose(sent + error, exact, atol=1e-3)
    with pytest.raises(gradwire.Error, match="arg"):
        codec.norms(tensors[0])
    with pytest.raises(ValueError, match="overlap"):
        codec.norms(error, error=error)


def test_errors(codec, tensors):
    bad = tensors[0].copy()
    bad[3000] = np.nan
    with pytest.raises(gradwire.Error) as caught:
        codec.norms(bad)
    assert (caught.value.name, caught.value.block) == ("nonfinite", 2)
    patterns = maxima(codec, tensors)
    with pytest.raises(ValueError, match="patterns"):
        codec.encode(tensors[0], patterns[:2])
    with pytest.raises(ValueError, match="values"):
        codec.encode(tensors[0], patterns[:2], thc.Part(block_count=2))
    lanes = codec.encode_lanes(tensors[0], patterns)
    with pytest.raises(gradwire.Error, match="short"):
        codec.decode_reduced(lanes[:100], patterns, 5000)
    with pytest.raises(TypeError, match="lanes"):
        codec.decode_reduced(lanes.astype(np.uint16), patterns, 5000)
    lanes[1024] = 255
    with pytest.raises(gradwire.Error) as caught:
        codec.decode_reduced(lanes, patterns, 5000)
    assert (caught.value.name, caught.value.block) == ("corrupt", 1)
    with pytest.raises(gradwire.Error, match="overflow"):
        thc.options(4, 1000, lane_bits=8)
    with pytest.raises(ValueError, match="grid"):
        thc.Codec(thc.Options(table=(0, 300), threshold_bits=0, worker_max=1, lane_bits=32))


def test_design():
    design = thc.design(4, 8, dtype="bf16")
    assert design.options.dtype == "bf16"
    assert design.options.bits == 4
    assert len(design.options.table) == 16
    assert 0 < design.error_mean < design.error_one < 0.05
    assert 4 < design.up_bits < 5
    assert thc.options(1, 60000).lane_bits == 32
