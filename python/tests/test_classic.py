"""The classic codecs: every scheme there and back, state, sums, and what is refused."""

import classic_decode
import golden_archive
import gradwire
import numpy as np
import pytest
from conftest import same_bits
from gradwire import classic
from gradwire.arrays import ELEMENTS

LEN = 5003
LIMIT = 50000  # values of a vector
VECTORS = sorted((golden_archive.unpacked() / "classic").rglob("*.gw"))
ERROR = {  # squared error relative to the square of the input, of one encode
    "fp16": 1e-6,
    "bf16": 1e-4,
    "topk": 0.8,
    "dgc": 0.8,
    "randk": 20.0,
    "signsgd": None,
    "efsignsgd": 0.5,
    "signum": None,
    "onebit": 0.5,
    "qsgd": 20.0,
    "terngrad": 10.0,
}


def make(scheme, **changes):
    return classic.Codec(classic.options(scheme, **changes))


def step_of(scheme, len=LEN, **fields):
    return classic.Step(keep_len=classic.keep_len(len, 0.1) if scheme in classic.SPARSE else 0, **fields)


@pytest.fixture
def values(rng):
    return rng.standard_normal(LEN).astype(np.float32)


def test_schemes_are_those_of_the_header():
    assert set(classic.SCHEMES) == set(ERROR)
    for number, scheme in enumerate(classic.SCHEMES, 1):
        assert gradwire._library.lib.gw_classic_scheme_name(number).decode() == scheme


@pytest.mark.parametrize("scheme", classic.SCHEMES)
def test_there_and_back(scheme, values):
    codec, step = make(scheme, checksum=True), step_of(scheme, round=3, rank=1)
    frame = codec.encode(values, step, state=codec.state(LEN))
    assert len(frame) <= codec.bound(LEN, step)
    result = classic.decode(frame)
    assert result.dtype == np.float32 and result.shape == (LEN,)
    if ERROR[scheme] is None:
        assert same_bits(result, np.where(values < 0, np.float32(-1), np.float32(1)))
    else:
        error = float(((result - values) ** 2).sum() / (values**2).sum())
        assert 0 < error < ERROR[scheme]
    info = classic.inspect(frame)
    assert (info.scheme, info.len, info.round, info.rank, info.checksum) == (scheme, LEN, 3, 1, True)
    assert info == classic.peek(frame[:80]) and info.frame_size == len(frame)
    assert info.bits_per_value < (33 if scheme == "randk" else 17)

    total = np.full(LEN, 0.25, np.float32)
    assert classic.decode_add(frame, total, scale=0.5) is total
    assert same_bits(total, np.float32(0.25) + result * np.float32(0.5))
    out = np.empty((LEN, 1), np.float32)
    assert classic.decode(frame, out=out, scale=2.0) is out
    assert same_bits(out.reshape(-1), result * np.float32(2))

    area = bytearray(codec.bound(LEN, step))
    view = codec.encode(values, step, state=codec.state(LEN), out=area)
    assert view == frame and isinstance(view, memoryview)


@pytest.mark.parametrize("scheme", classic.SCHEMES)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_types(scheme, dtype, values):
    codec, step = make(scheme, dtype=dtype), step_of(scheme)
    given = values.astype(np.float16) if dtype == "fp16" else (values.view(np.uint32) >> 16).astype(np.uint16)
    frame = codec.encode(given, step, state=codec.state(LEN))
    out = np.empty_like(given)
    classic.decode(frame, out=out)
    wide = out.astype(np.float32) if dtype == "fp16" else (out.astype(np.uint32) << 16).view(np.float32)
    total = classic.decode_add(frame, np.zeros(LEN, np.float32))
    assert np.allclose(wide, total, rtol=2**-8 if dtype == "bf16" else 2**-11, atol=1e-7)
    assert np.abs(total).max() > 0
    with pytest.raises(TypeError):
        codec.encode(values, step, state=codec.state(LEN))


def test_memory(values):
    codec = make("topk")
    step, wide = step_of("topk"), np.repeat(values, 2)
    frame = codec.encode(values, step, state=codec.state(LEN))
    assert codec.encode(wide[::2], step, state=codec.state(LEN)) == frame  # what is read is copied
    with pytest.raises(ValueError, match="contiguous"):
        classic.decode(frame, out=np.empty(2 * LEN, np.float32)[::2])
    with pytest.raises(ValueError, match="contiguous"):
        codec.encode(values, step, state=classic.State(np.zeros(2 * LEN, np.float32)[::2]))
    with pytest.raises(ValueError, match="overlap"):
        codec.encode(values, step, state=classic.State(values))
    with pytest.raises(ValueError, match="residual"):
        codec.encode(values, step)
    with pytest.raises(ValueError, match="momentum"):
        codec.encode(values, step, state=classic.State(np.zeros(LEN, np.float32), np.zeros(LEN, np.float32)))
    with pytest.raises(ValueError, match="10 elements"):
        codec.encode(values, step, state=classic.State(np.zeros(10, np.float32)))
    with pytest.raises(ValueError, match="out has"):
        classic.decode(frame, out=np.empty(LEN - 1, np.float32))
    with pytest.raises(gradwire.Error) as caught:
        codec.encode(values, step, state=codec.state(LEN), out=bytearray(100))
    assert caught.value.name == "dst"


@pytest.mark.parametrize("scheme", ["topk", "dgc", "efsignsgd", "onebit"])
def test_what_was_sent_and_the_residual_are_the_sum(scheme, rng):
    codec = make(scheme, momentum=0.0) if scheme == "dgc" else make(scheme)
    state = codec.state(LEN)
    exact, sent = np.zeros(LEN), np.zeros(LEN)
    for round in range(20):
        given = rng.standard_normal(LEN).astype(np.float32)
        exact += given
        sent += classic.decode(codec.encode(given, step_of(scheme, round=round), state=state))
    assert np.allclose(sent + state.residual, exact, atol=1e-4)
    assert np.abs(sent - exact).max() > 0.1


def test_dgc_is_momentum_then_top_k(rng):
    codec, state = make("dgc"), make("dgc").state(100)
    u, v = np.zeros(100, np.float32), np.zeros(100, np.float32)
    for round in range(5):
        given = rng.standard_normal(100).astype(np.float32)
        u = np.float32(0.9) * u + given
        v = v + u
        chosen = np.sort(np.argsort(-np.abs(v), kind="stable")[:7])
        expected = np.zeros(100, np.float32)
        expected[chosen] = v[chosen]
        v[chosen] = u[chosen] = 0
        frame = codec.encode(given, classic.Step(keep_len=7, round=round), state=state)
        assert np.allclose(classic.decode(frame), expected, atol=1e-6)
        assert np.allclose(state.momentum, u, atol=1e-6) and np.allclose(state.residual, v, atol=1e-6)


def test_ratios():
    assert [classic.keep_len(n, 0.01) for n in (0, 1, 100, 101)] == [0, 1, 1, 2]
    assert classic.keep_len(100, 0.0) == 0
    ratios = [classic.warmup_ratio(0.001, step, 4) for step in range(6)]
    assert ratios[4] == ratios[5] == 0.001
    assert np.allclose(np.diff(np.log(ratios[:5])), np.log(0.001) / 5)


@pytest.mark.parametrize("scheme", ["signsgd", "signum"])
def test_votes(scheme, rng):
    tensors = [rng.standard_normal(LEN).astype(np.float32) for _ in range(3)]
    codec = make(scheme)
    frames = [codec.encode(x, classic.Step(rank=r), state=codec.state(LEN)) for r, x in enumerate(tensors)]
    total = classic.Sum(frames[0])
    for frame in reversed(frames):
        total.add(frame)
    signs = sum(np.where(x < 0, -1, 1) for x in tensors)
    assert total.members == 3 and same_bits(total.decode(), signs.astype(np.float32))
    outcome = total.vote()
    assert classic.inspect(outcome).vote
    assert same_bits(classic.decode(outcome), np.sign(signs).astype(np.float32))
    with pytest.raises(gradwire.Error) as caught:
        total.add(codec.encode(tensors[0], classic.Step(round=1), state=codec.state(LEN)))
    assert caught.value.name == "mismatch" and total.members == 3


@pytest.mark.parametrize("scheme", ["qsgd", "terngrad"])
def test_levels_with_shared_norms_add_up(scheme, rng):
    tensors = [rng.standard_normal(LEN).astype(np.float32) for _ in range(4)]
    codec = make(scheme)
    norms = np.maximum.reduce([codec.norms(x) for x in tensors])
    assert norms.size == codec.block_count(LEN)
    frames = [codec.encode(x, classic.Step(rank=r), norms=norms) for r, x in enumerate(tensors)]
    total = classic.Sum(frames[1])
    for frame in frames:
        total.add(frame)
    assert np.allclose(total.decode(scale=0.25), np.mean([classic.decode(f) for f in frames], axis=0), atol=1e-5)
    with pytest.raises(ValueError, match="norms"):
        codec.encode(tensors[0], norms=norms[:0])
    with pytest.raises(gradwire.Error) as caught:
        codec.encode(tensors[0], norms=norms / 2**10)
    assert caught.value.name == "state"


def test_shared_positions_add_up(rng):
    tensors = [rng.standard_normal(LEN).astype(np.float32) for _ in range(3)]
    codec, exact = make("randk"), np.zeros(LEN, np.float32)
    frames = [codec.encode(x, step_of("randk", rank=r)) for r, x in enumerate(tensors)]
    total = classic.Sum(frames[0])
    for frame in frames:
        total.add(frame)
        classic.decode_add(frame, exact)
    assert total.lanes.size == classic.keep_len(LEN, 0.1)
    assert same_bits(total.decode(), exact)


def test_errors(values):
    with pytest.raises(ValueError, match="no scheme"):
        classic.options("zip")
    with pytest.raises(TypeError):
        classic.options("topk", ratio=0.1)
    for scheme, changes in (("fp16", {"momentum": 0.5}), ("qsgd", {"level_max": 128}), ("topk", {"block_len": 64})):
        with pytest.raises(gradwire.Error) as caught:
            make(scheme, **changes)
        assert caught.value.name == "option"
    with pytest.raises(ValueError, match="coding"):
        make("qsgd", coding="huffman")
    with pytest.raises(ValueError, match="round"):
        make("fp16").encode(values, classic.Step(round=1 << 32))
    codec = make("topk", checksum=True)
    state = codec.state(LEN)
    for keep_len in (0, LEN + 1):
        with pytest.raises(gradwire.Error) as caught:
            codec.encode(values, classic.Step(keep_len=keep_len), state=state)
        assert caught.value.name == "option"
    state.residual[:] = 1
    bad = values.copy()
    bad[77] = np.nan
    with pytest.raises(gradwire.Error) as caught:
        codec.encode(bad, step_of("topk"), state=state)
    assert caught.value.name == "nonfinite" and (state.residual == 1).all()
    frame = codec.encode(values, step_of("topk"), state=state)
    damaged = bytearray(frame)
    damaged[-20] ^= 1
    out, total = np.ones(LEN, np.float32), np.ones(LEN, np.float32)
    with pytest.raises(gradwire.Error) as caught:
        classic.decode(damaged, out=out)
    assert caught.value.name == "checksum" and not out.any()
    with pytest.raises(gradwire.Error):
        classic.decode_add(damaged, total)
    assert (total == 1).all()
    with pytest.raises(gradwire.Error) as caught:
        classic.decode(frame, len_max=100)
    assert caught.value.name == "limit"
    with pytest.raises(gradwire.Error) as caught:
        classic.inspect(frame[:50])
    assert caught.value.name == "short"
    with pytest.raises(gradwire.Error) as caught:
        classic.Sum(frame)
    assert caught.value.name == "option"
    with pytest.raises(gradwire.Error) as caught:
        make("topk").norms(values, step_of("topk"), state=state)
    assert caught.value.name == "option"


def test_nothing(rng):
    for scheme in classic.SCHEMES:
        codec = make(scheme)
        frame = codec.encode(np.empty(0, np.float32), state=codec.state(0))
        assert classic.decode(frame).size == 0 and classic.inspect(frame).len == 0


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden_frames_decode_as_the_reference(path):
    data = path.read_bytes()
    status, values = classic_decode.decode(data, LIMIT)
    if status == "OK":
        info = classic.inspect(data, len_max=LIMIT)
        out = np.empty(info.len, ELEMENTS[info.dtype])
        classic.decode(data, out=out, len_max=LIMIT)
        assert out.tobytes() == values
        return
    with pytest.raises(gradwire.Error) as caught:
        classic.inspect(data, len_max=LIMIT)
    assert caught.value.name.upper() == status
