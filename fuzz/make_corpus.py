#!/usr/bin/env python3
"""Write seeds for the fuzz targets into DIRECTORY/TARGET/: the same files on every run.

    fuzz/make_corpus.py DIRECTORY

The garbage target gets the golden vectors (tests/golden, valid and rejected ones) after the six bytes with which its
receiver is chosen. The others read options and a recipe for values from their input (gcomp_sender.c), so their seeds
are short strings of bytes that walk through dtypes, quantum mode, roundings, presets, lengths and kinds of damage.
thc_seeds.py and thc_session_seeds.py make those of THC, classic_seeds.py those of the classic codecs. Inputs that
libFuzzer found worth keeping, and those of fixed bugs, are in fuzz/corpus.
"""

import gzip
import json
import pathlib
import random
import struct
import sys

import classic_seeds
import thc_seeds
import thc_session_seeds

FUZZ = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FUZZ.parent / "tests" / "golden"))
import golden_archive  # noqa: E402

GOLDEN = golden_archive.unpacked()
GOLDEN_SIZE_MAX = 24 * 1024
DIRECTORY = pathlib.Path(sys.argv[1])


def write(target, name, data):
    folder = DIRECTORY / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def sender_bytes(number, rng, len_kind):
    """Bytes for gw_fuzz_sender_init(): one of each choice in turn, the rest random. Numbers from 48 have the dial."""
    choice = (number % 4) | (number // 4 % 2) << 2 | (number // 8 % 3) << 3 | rng.randrange(8) << 5
    cut = rng.randrange(256)
    with_dial = number >= 48
    shape = rng.randrange(4) | len_kind << 2 | rng.randrange(8) << 4 | with_dial << 7
    length = rng.randrange(65536)
    kind = rng.choice([0, 0, 0, 1, 2, 3, 4, 7, 128])
    center = rng.choice([15, 30, 110, 118, 126, 200])
    spread = rng.randrange(4, 40)
    data = bytes([choice, cut, shape])
    if with_dial:  # derived and carried in turn, half of them with dead zones; tolerance, blocks and target_nmse
        kind = number % 4
        data += bytes([(1, 3, 5, 7)[kind] | rng.randrange(32) << 3])
        if kind % 2:
            data += bytes([rng.randrange(256)])
    data += length.to_bytes(2, "little") + rng.randbytes(4)
    data += bytes([kind, center, spread]) + rng.randbytes(4)
    if kind == 7:
        data += rng.randbytes(200)
    # The map: low and high byte, generator, base / 4 near the exponents of the data.
    data += bytes([rng.randrange(1, 40), rng.randrange(1, 120)]) + rng.randbytes(2)
    data += bytes([max(0, min(255, center + rng.randrange(-4, 12)))])
    return data + rng.randbytes(12)


def make_decode():
    target = "fuzz_gcomp_decode"
    count = 0
    for path in sorted(GOLDEN.rglob("*.gw")):
        if path.stat().st_size <= GOLDEN_SIZE_MAX:
            for choice in (0x44,) if "reject" in path.parts else (0x44, 0xEC):
                write(target, f"seed-{path.stem}-{choice:02x}", bytes([choice, 1, 9, 20, 30, 40]) + path.read_bytes())
                count += 1
    rng = random.Random(1)
    header = b"gWf\x1a" + bytes([0, 1])
    for dtype in (1, 2, 3):
        # An empty frame, and one ZERO chunk: no golden file is needed for these.
        for length, entries in ((0, b""), (5, (48).to_bytes(8, "little") + bytes(8))):
            step = {1: 6, 2: 2, 3: 3}[dtype]
            frame = header + bytes([dtype, 12, 0, 0, 0, 0, step, 3 * step, 0, 0])
            frame += length.to_bytes(8, "little") + (32 + len(entries)).to_bytes(8, "little") + entries
            write(target, f"seed-plain-{dtype}-{length}", bytes([0x44, 1, 0, 0, 0, 0]) + frame)
            count += 1
    for i in range(8):
        write(target, f"seed-random-{i}", rng.randbytes(6) + header + rng.randbytes(20 * i + 8))
        count += 1
    return target, count


def make_recipes(target, seed, prefix, len_kinds):
    rng = random.Random(seed)
    count = 80
    for i in range(count):
        data = prefix(i, rng) + sender_bytes(i, rng, len_kinds[i % len(len_kinds)])
        write(target, f"seed-{i:02d}", data)
    return target, count


def make_plan_problem():
    target = "fuzz_plan_problem"
    rng = random.Random(5)
    count = 24
    for i in range(count):
        # shape, then curves and tensors: small numbers, a few large ones.
        data = bytes([i * 11 & 255]) + bytes(rng.choice([rng.randrange(128), rng.randrange(256)]) for _ in range(160))
        write(target, f"seed-{i:02d}", data)
    return target, count


def make_plan_files():
    """One byte says which reader, the file follows."""
    event = {"ph": "X", "args": {"name": "Comm.a"}, "tid": "total", "ts": 5, "dur": 3}
    kineto = {
        "traceEvents": [
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "tid": 1, "ts": 0, "dur": 99},
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "tid": 2,
                "ts": 3,
                "dur": 1,
                "args": {"correlation": 4},
            },
            {"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "ts": 5, "dur": 6, "args": {"correlation": 4}},
            {"ph": "X", "cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "tid": 2, "ts": 8, "dur": 1},
            {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum_f32",
                "tid": 7,
                "ts": 20,
                "dur": 6,
                "args": {"correlation": 5, "Collective name": "allreduce", "In msg nelems": 7, "Group size": 2},
            },
        ]
    }
    groups = [{"first": 0, "last": 1, "method": "fp32", "names": ["a", "b"]}]
    plan = {"schema": "gradwire-plan/1", "kind": "joint", "tensors": 2, "makespan_us": 3.5, "groups": groups}
    ready = {"TensorReadyTraceEvents": [{"name": "a", "ts": 1, "elems": 3}, {"name": "b", "ts": 2, "elems": 4}]}
    text = json.dumps(kineto).encode()
    cases = (FUZZ.parent / "planner" / "data" / "cases.json").read_bytes()
    seeds = [
        b"\0" + text,
        b"\0" + gzip.compress(text, mtime=0),
        b"\1name,elems,gap_us\na,7,0\nb,9,2.5\n",
        b'\1name,elems,bwd_us,flags\n"a, ""x""",7,1e3,dense\n',
        b"\1" + json.dumps(ready).encode(),
        b"\2" + json.dumps({"traceEvents": [event, dict(event, args={"name": "Comm.Gradient.b"})]}).encode(),
        b"\3" + json.dumps({"traceEvents": [event, dict(event, ts=9, dur=4)]}).encode(),
        b"\4" + cases[: cases.index(b'    {"name": "randomk"')].rstrip(b",\n ") + b'], "cases": [{"name": "x", '
        b'"kind": "joint", "methods": ["fp32"], "latency_us": 1, "us_per_kib": 1, "ranks": 8}]}',
        b"\5" + json.dumps(plan).encode(),
    ]
    for i, data in enumerate(seeds):
        write("fuzz_plan_files", f"seed-{i:02d}", data)
    return "fuzz_plan_files", len(seeds)


def make_collective():
    """Every step, quantum mode, number of ranks and kind of damage in turn; words and notices follow."""
    target = "fuzz_collective"
    rng = random.Random(6)
    count = 96
    for i in range(count):
        step = i % 4 | (i // 4 % 2) << 2 | 1 << 3 | rng.randrange(16) << 4
        kind = rng.randrange(4) | (i // 4 % 3) << 2 | rng.randrange(3) << 4 | rng.randrange(2) << 7
        data = bytes([step, i // 4 % 4, kind, rng.randrange(256)])
        length = rng.choice([0, 1, 4096, rng.randrange(20000), rng.randrange(20000)])
        data += bytes([rng.randrange(256)]) + length.to_bytes(2, "little") + bytes([rng.randrange(256)])
        data += bytes(rng.randrange(30, 80) for _ in range(4)) + bytes([rng.randrange(200)])  # map
        data += bytes([rng.randrange(256)]) + struct.pack("<f", rng.uniform(-4, 4)) + rng.randbytes(2)  # scale, values
        streams = rng.randrange(5)
        data += bytes([streams]) + rng.randbytes(8 * streams)
        # Damage: rank in the low bits, what in the next three.
        for damage in range(i // 4 % 4):
            data += bytes([rng.randrange(4) | (i + damage) % 8 << 2]) + rng.randbytes(4)
        write(target, f"seed-{i:02d}", data + rng.randbytes(8) + b"gWn\x1a" + rng.randbytes(28))
    return target, count


def main():
    made = [
        make_plan_problem(),
        make_plan_files(),
        make_decode(),
        make_recipes(
            "fuzz_gcomp_roundtrip", 2, lambda i, r: bytes([r.randrange(128) | (i % 8 == 0) << 7]), (0, 1, 2, 3)
        ),
        # choice and number of damages, 40 bytes that say which.
        make_recipes(
            "fuzz_gcomp_structured",
            3,
            lambda i, r: bytes([r.randrange(16) | (i % 8 == 0) << 7, i % 5]) + r.randbytes(40),
            (0, 1, 2, 3),
        ),
        make_recipes(
            "fuzz_gcomp_codebook",
            4,
            lambda i, r: bytes([(2, 3, 6, 0)[i % 4], r.randrange(133)]) + r.randbytes(16),
            (0, 2),
        ),
        make_collective(),
        thc_session_seeds.make(write),
        *thc_seeds.make(write, GOLDEN),
        *classic_seeds.make(write, GOLDEN),
    ]
    for target, count in made:
        print(f"{target}: {count} seeds")


main()
