"""Numbers, names and objects of a wrong kind, everywhere in the package: TypeError or ValueError that names the
argument, and the range where there is one. ctypes would wrap an integer that is too large, or raise an ArgumentError
without a name."""

import re
from concurrent.futures import ThreadPoolExecutor

import gradwire
import numpy as np
import pytest
from gradwire import backends, classic, codebooks, frames, maps, parallel, plan, rate, thc

VALUES = np.linspace(-1, 1, 3000, dtype=np.float32)
SGD = gradwire.Optimizer(kind="sgd", lr=0.1)
STATE = gradwire.State(param=VALUES)
RULE = gradwire.Rule(SGD)
MAP = gradwire.Map.of(RULE, STATE)
CODEC = gradwire.Codec()
FRAME = CODEC.encode(VALUES)
QSGD = classic.Codec(classic.options("qsgd"))
TOPK = classic.Codec(classic.options("topk"))
LEVELS = QSGD.encode(VALUES)
THC = thc.Codec(thc.options(4, 2))
PATTERNS = THC.norms(VALUES)
SHARE = THC.encode_frame(VALUES, PATTERNS)
POOL = ThreadPoolExecutor(1)
COST = plan.Cost.affine(1, 1)


def total():
    return np.zeros_like(VALUES)


def encoded(**stream):
    return CODEC.encode(VALUES, stream=gradwire.Stream(**stream))


def problem(*, len=10, bwd_us=1.0, owner_count=0, error=0.0, **fields):
    tensors = [plan.Tensor(len=len, bwd_us=bwd_us)]
    return plan.Problem(tensors, [plan.Method(name="a", net=COST, owner_count=owner_count, error=error)], **fields)


def flat(codec=None, *, latency_us=1.0, us_per_kib=1.0, nodes=2, gpus=1):
    return plan.method(codec, plan.Cluster(nodes=nodes, gpus=gpus, inter=plan.Link(latency_us, us_per_kib)))


def plan_codec(**fields):
    given = {"payload": (0, 1, 1), **fields}
    return plan.Codec(name="c", costs={"gpu": (COST, COST)}, collectives=("allreduce",), **given)


#: Arguments that are whole numbers of at most 64 bits and not negative.
WHOLE = {
    "len": (
        lambda x: problem(len=x),
        COST,
        lambda x: plan.fit([(x, 1.0), (3, 4.0)]),
        CODEC.bound,
        THC.block_count,
        THC.reduced_size,
        lambda x: THC.expand(np.zeros(1500, np.uint8), x),
        lambda x: THC.decode_reduced(np.zeros(6000, np.uint8), PATTERNS, x),
        lambda x: THC.norms(VALUES, thc.Part(len=x)),
        lambda x: classic.keep_len(x, 0.1),
        QSGD.state,
        QSGD.block_count,
        QSGD.bound,
        lambda x: encoded(segments=(gradwire.Segment(len=x, seed=1),)),
    ),
    "len_max": (
        lambda x: frames.peek(FRAME, len_max=x),
        lambda x: frames.inspect(FRAME, len_max=x),
        lambda x: thc.inspect(SHARE, len_max=x),
        lambda x: thc.decode_frame(SHARE, len_max=x),
        lambda x: classic.inspect(LEVELS, len_max=x),
        lambda x: classic.decode(LEVELS, len_max=x),
        lambda x: classic.decode_add(LEVELS, total(), len_max=x),
        lambda x: classic.Sum(LEVELS, len_max=x),
        lambda x: gradwire.Codec(len_max=x),
    ),
    "backends": (
        lambda x: maps.scan(RULE, STATE, backends=x),
        lambda x: maps.build(RULE, STATE, 500, backends=x),
        lambda x: gradwire.Codec(backends=x),
    ),
    "base": (lambda x: maps.build(RULE, STATE, x), lambda x: CODEC.encode(VALUES, map=gradwire.Map(MAP.bytes, x))),
    "top": (maps.base,),
    "chunk_log2": (lambda x: maps.digest(MAP.bytes, x), MAP.digest, lambda x: gradwire.Codec(chunk_log2=x)),
    "tolerance_bits": (
        lambda x: gradwire.Codec(tolerance_bits=x),
        lambda x: gradwire.Rule(SGD, 1.0, gradwire.Limits(tolerance_bits=x)),
    ),
    "strict": (lambda x: gradwire.Codec(strict=x),),
    "seed": (
        lambda x: encoded(seed=x),
        lambda x: thc.Codec(thc.options(4, 2, seed=x)),
        lambda x: classic.Codec(classic.options("qsgd", seed=x)),
    ),
    "rank": (
        lambda x: encoded(rank=x),
        lambda x: THC.norms(VALUES, thc.Part(rank=x)),
        lambda x: QSGD.encode(VALUES, classic.Step(rank=x)),
    ),
    "round": (lambda x: THC.norms(VALUES, thc.Part(round=x)), lambda x: QSGD.encode(VALUES, classic.Step(round=x))),
    "block_first": (lambda x: THC.norms(VALUES, thc.Part(block_first=x)),),
    "block_count": (lambda x: THC.norms(VALUES, thc.Part(block_count=x)),),
    "keep_len": (lambda x: TOPK.encode(VALUES, classic.Step(keep_len=x), state=TOPK.state(3000)),),
    "step": (
        lambda x: classic.warmup_ratio(0.1, x, 2),
        lambda x: gradwire.Optimizer(kind="sgd", lr=1, step=x).struct(),
    ),
    "warmup_steps": (lambda x: classic.warmup_ratio(0.1, 1, x),),
    "bits": (lambda x: thc.design(x, 2),),
    "worker_max": (lambda x: thc.design(4, x),),
    "lane_bits": (lambda x: thc.design(4, 2, lane_bits=x),),
    "grid point": (lambda x: thc.Codec(thc.options(1, 2, table=(x, 3))),),
    "threshold_bits": (lambda x: thc.Codec(thc.options(4, 2, threshold_bits=x)),),
    "level_max": (lambda x: classic.Codec(classic.options("qsgd", level_max=x)),),
    "id": (lambda x: codebooks.install(CODEC, b"1234", x, 1),),
    "generation": (lambda x: codebooks.install(CODEC, b"1234", 1, x),),
    "size_max": (lambda x: rate.Curve().tolerance_bits(x), lambda x: rate.Curve("noise").noise(x)),
    "parts": (lambda x: parallel.encode(CODEC, VALUES, POOL, x), lambda x: parallel.decode(CODEC, FRAME, POOL, x)),
    "owner_count": (lambda x: problem(owner_count=x),),
    "group_len_max": (lambda x: problem(group_len_max=x),),
    "work_max": (lambda x: problem().solve(work_max=x),),
    "cap": (lambda x: problem().buckets(x),),
    "cap_first": (lambda x: problem().buckets(1, cap_first=x),),
    "t": (lambda x: plan.Cost.hinge(1, 1, x)(3),),
    "nodes": (lambda x: flat(nodes=x),),
    "gpus": (lambda x: flat(gpus=x),),
    "first": (lambda x: problem().evaluate([plan.Group(x, 1, "a")]),),
    "count": (lambda x: problem().evaluate([plan.Group(0, x, "a")]),),
    "ranks": (lambda x: plan.thc_payload(4, x),),
    "rounds": (lambda x: flat(plan_codec(rounds=x)),),
    "payload": (lambda x: flat(plan_codec(payload=(x, 1, 1))),),
}
#: Arguments that are numbers.
REAL = {
    "scale": (
        lambda x: CODEC.decode(FRAME, scale=x),
        lambda x: CODEC.decode_add(FRAME, total(), scale=x),
        lambda x: CODEC.decode_add_frames([FRAME], total(), scale=x),
        lambda x: gradwire.decode(FRAME, scale=x),
        lambda x: classic.decode(LEVELS, scale=x),
        lambda x: classic.decode_add(LEVELS, total(), scale=x),
        lambda x: classic.Sum(QSGD.encode(VALUES, norms=QSGD.norms(VALUES))).decode(scale=x),
    ),
    "wire_scale": (lambda x: gradwire.Rule(SGD, x), lambda x: gradwire.Map(MAP.bytes, MAP.base, x)),
    "noise": (lambda x: gradwire.Rule(SGD, 1.0, gradwire.Limits(noise=x)),),
    "target_nmse": (lambda x: gradwire.Codec(quantum_mode="carried", target_nmse=x),),
    "lr": (lambda x: gradwire.Optimizer(kind="sgd", lr=x).struct(),),
    "ratio": (lambda x: classic.keep_len(5, x), lambda x: classic.warmup_ratio(x, 1, 2)),
    "clip": (lambda x: classic.Codec(classic.options("dgc", clip=x)),),
    "momentum": (lambda x: classic.Codec(classic.options("dgc", momentum=x)),),
    "error": (lambda x: problem(error=x),),
    "error_max": (lambda x: problem(error_max=x),),
    "gap": (lambda x: problem().solve(gap=x),),
    "bwd_us": (lambda x: problem(bwd_us=x),),
    "a_us": (lambda x: plan.Cost.affine(x, 1), lambda x: plan.Cost.maxlin(x, 1), lambda x: plan.Cost.hinge(x, 1, 1)),
    "b_us": (lambda x: plan.Cost.affine(1, x),),
    "us": (lambda x: plan.Cost.table([(1, x)]), lambda x: plan.fit([(1, x), (3, 4.0)])),
    "latency_us": (lambda x: flat(latency_us=x),),
    "us_per_kib": (lambda x: flat(us_per_kib=x),),
    "peer_us_per_kib": (lambda x: flat(plan_codec(peer_us_per_kib=x)),),
}
#: Arguments that are names out of a list.
NAMES = {
    "dtype": (
        lambda x: gradwire.Codec(dtype=x),
        lambda x: classic.Codec(classic.options("qsgd", dtype=x)),
        lambda x: thc.Codec(thc.options(4, 2, dtype=x)),
    ),
    "quantum_mode": (lambda x: gradwire.Codec(quantum_mode=x),),
    "rounding": (lambda x: gradwire.Codec(rounding=x),),
    "preset": (lambda x: gradwire.Codec(preset=x),),
    "scheme": (classic.options,),
    "coding": (lambda x: classic.Codec(classic.options("qsgd", coding=x)),),
    "mode": (lambda x: thc.decode_frame(SHARE, mode=x),),
    "kind": (
        rate.Curve,
        lambda x: gradwire.Rule(gradwire.Optimizer(kind=x, lr=1)),
        lambda x: plan.fit([(1, 1.0), (2, 2.0)], x),
    ),
    "decode": (lambda x: problem(decode=x),),
    "level": (lambda x: problem().timeline([plan.Group(0, 1, "a")], x),),
    "algorithm": (lambda x: problem().solve(x),),
    "method": (lambda x: problem().solve(method=x),),
    "backend": (backends.mask,),
}
#: Arguments that are objects of this package.
OBJECTS = {
    "map": (
        lambda x: CODEC.encode(VALUES, map=x),
        lambda x: CODEC.decode(FRAME, map=x),
        lambda x: parallel.decode(CODEC, FRAME, POOL, 1, map=x),
    ),
    "stream": (lambda x: CODEC.encode(VALUES, stream=x),),
    "options": (gradwire.Codec, classic.Codec, thc.Codec),
    "optimizer": (gradwire.Rule,),
    "limits": (lambda x: gradwire.Rule(SGD, 1.0, x),),
    "part": (lambda x: THC.norms(VALUES, x),),
    "Step": (lambda x: QSGD.encode(VALUES, x),),
    "State": (lambda x: TOPK.encode(VALUES, classic.Step(keep_len=1), state=x),),
}


def calls(table):
    return [pytest.param(name, call, id=f"{name}-{i}") for name in table for i, call in enumerate(table[name])]


def refused(kinds, name, call, wrong):
    with pytest.raises(kinds) as caught:
        call(wrong)
    if not isinstance(caught.value, gradwire.Error):  # those name what the library found
        assert re.search(rf"(\b|_){name}(\b|_)", str(caught.value)), caught.value


@pytest.mark.parametrize(("name", "call"), calls(WHOLE))
def test_whole_numbers(name, call):
    for wrong in ("7", [3], 1.5, 1e300, object()):
        refused(TypeError, name, call, wrong)
    for wrong in (-1, 1 << 64, -(1 << 70)):
        refused((ValueError, gradwire.Error), name, call, wrong)


@pytest.mark.parametrize(("name", "call"), calls(REAL))
def test_numbers(name, call):
    for wrong in ("7", b"7", [3], object(), 1j):
        refused(TypeError, name, call, wrong)


@pytest.mark.parametrize(("name", "call"), calls(NAMES))
def test_names(name, call):
    refused(ValueError, name, call, "no such name")
    for wrong in (7, [3], object()):
        refused((TypeError, ValueError), name, call, wrong)


@pytest.mark.parametrize(("name", "call"), calls(OBJECTS))
def test_objects(name, call):
    for wrong in ("7", [3], 7, object()):
        refused(TypeError, name, call, wrong)


def test_the_error_has_argument_value_and_range():
    for call, text in (
        (lambda: gradwire.Codec(chunk_log2=1 << 32), "chunk_log2=4294967296 does not fit 32 bits: 0..4294967295"),
        (lambda: maps.digest(MAP.bytes, 16), "chunk_log2=16 is not in 10..15"),
        (lambda: parallel.encode(CODEC, VALUES, POOL, 0), "parts=0 is not in 1.."),
        (lambda: THC.encode(VALUES, None), "patterns=None: encoding needs the patterns of norms()"),
        (lambda: encoded(rank="a"), "rank='a' is no integer"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert str(caught.value).startswith(text)


def test_an_error_of_the_library_names_the_option():
    for call, text in (
        (lambda: gradwire.Codec(tolerance_bits=99), r"tolerance_bits=99 is not in 1\.\.23 \(option\)"),
        (lambda: gradwire.Rule(SGD, 1.0, gradwire.Limits(tolerance_bits=0)), r"tolerance_bits=0 is not in 1\.\.23"),
    ):
        with pytest.raises(gradwire.Error, match=text) as caught:
            call()
        assert caught.value.name == "option"


@pytest.mark.parametrize("scale", [0, 0.0, 1e-45, float("inf"), float("nan"), 1e39])
def test_a_scale_that_is_no_normal_number(scale):
    """0 stood for "not given" in the library: values came unscaled."""
    out = total()
    for call in (
        lambda: CODEC.decode(FRAME, scale=scale, out=out),
        lambda: classic.decode_add(LEVELS, out, scale=scale),
    ):
        with pytest.raises(ValueError, match=r"scale=.*normal"):
            call()
    assert not out.any()
    assert CODEC.decode(FRAME, scale=-1)[0] == -VALUES[0]


def test_integers_of_numpy():
    assert CODEC.bound(np.uint32(3000)) == CODEC.bound(3000)
    assert encoded(rank=np.int64(3)) == encoded(rank=3)
    assert gradwire.Codec(chunk_log2=np.uint8(12)).chunk_log2 == 12
