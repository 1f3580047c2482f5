#!/usr/bin/env python3
"""The THC subcommands from end to end: norms, frames, sums of sums, error feedback over rounds, refusals.

thc_cli.py path/to/gradwire
"""

import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

TOOL = os.path.abspath(sys.argv[1])
COUNT = 3000


def write(path, values):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % len(values)
    header += " " * (117 - len(header)) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(struct.pack("<%df" % len(values), *values))


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    data = data[10 + struct.unpack("<H", data[8:10])[0] :]
    return struct.unpack("<%df" % (len(data) // 4), data)


def run(*words, code=0, says=""):
    """Runs the command with all words of its arguments; no file name of this test has a space."""
    arguments = " ".join(words).split()
    result = subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False)
    if result.returncode != code or says not in result.stdout + result.stderr:
        sys.exit(
            f"{' '.join(arguments)}: exit code {result.returncode}, wanted {code} and '{says}'\n"
            f"{result.stdout}{result.stderr}"
        )
    return result.stdout


def nmse(estimate, truth):
    return sum((a - b) ** 2 for a, b in zip(estimate, truth)) / sum(b * b for b in truth)


def one_round(workers, ef, number):
    for w in range(workers):
        state = ["--ef", f"{w}.state.npy"] if ef else []
        run("norm", f"{w}.npy", "-o", f"{w}.norm", *state)
    run("norm", "--max", *[f"{w}.norm" for w in range(workers)], "-o", "all.norm")
    for w in range(workers):
        state = ["--ef", f"{w}.state.npy"] if ef else []
        job = f"--codec thc --norms all.norm --rank {w} --workers {workers} --seed 11 --round {number}"
        run("compress", f"{w}.npy", job, *state, "-o", f"{w}.gw")


def contents(path):
    with open(path, "rb") as f:
        return f.read()


def backends_agree(workers):
    """The scalar kernels alone give the same frames, sums and values."""
    scalar = ["--backend", "scalar"]
    run("norm", "0.npy", *scalar, "-o", "s.norm")
    job = f"--codec thc --norms all.norm --rank 0 --workers {workers} --seed 11 --round 0"
    run("compress", "0.npy", job, *scalar, "-o", "s.gw")
    run("aggregate", "s.gw", "1.gw", "2.gw", "3.gw", *scalar, "-o", "s-sum.gw")
    run("decompress", "s-sum.gw", *scalar, "-o", "s-mean.npy")
    run("decompress", "flat.gw", "-o", "mean.npy")
    for mine, all_backends in (
        ("s.norm", "0.norm"),
        ("s.gw", "0.gw"),
        ("s-sum.gw", "flat.gw"),
        ("s-mean.npy", "mean.npy"),
    ):
        if contents(mine) != contents(all_backends):
            sys.exit(f"{mine} and {all_backends} differ")
    run("aggregate", "0.gw", "--backend", "abacus", "-o", "x.gw", code=2, says="not a backend")


def main():
    generator = random.Random(3)
    base = [generator.gauss(0, 1) * math.exp(generator.gauss(0, 1)) for _ in range(COUNT)]
    workers = 4
    arrays = [[x + generator.gauss(0, 0.1) for x in base] for _ in range(workers)]
    truth = [sum(column) / workers for column in zip(*arrays)]
    for w in range(workers):
        write(f"{w}.npy", arrays[w])

    one_round(workers, False, 0)
    run("aggregate", "0.gw", "1.gw", "-o", "a.gw")
    run("aggregate", "2.gw", "3.gw", "-o", "b.gw", "--checksum")
    run("aggregate", "a.gw", "b.gw", "-o", "tree.gw")
    run("aggregate", "3.gw", "1.gw", "0.gw", "2.gw", "-o", "flat.gw")
    backends_agree(workers)
    with open("tree.gw", "rb") as a, open("flat.gw", "rb") as b:
        assert a.read() == b.read(), "the sum depends on the tree"
    run("decompress", "tree.gw", "-o", "mean.npy")
    run("decompress", "tree.gw", "-o", "sum.npy", "--sum")
    mean, total = read("mean.npy"), read("sum.npy")
    assert nmse(mean, truth) < 0.01, nmse(mean, truth)
    assert nmse([x / workers for x in total], mean) < 1e-12
    facts = json.loads(run("inspect", "a.gw", "--json"))
    assert facts["contributors"] == [0, 1] and facts["lane_largest"] <= 2 * facts["granularity"], facts
    assert facts["missing_blocks"] == [] and facts["kind"] == "sum"
    assert json.loads(run("inspect", "3.gw", "--json"))["contributors"] == [3]

    # Refusals: a worker twice, another round, maxima that do not cover, a frame without norms.
    run("aggregate", "a.gw", "1.gw", "-o", "x.gw", code=1, says="(dup)")
    run("compress 1.npy --codec thc --norms all.norm --rank 1 --workers 4 --seed 11 --round 9 -o late.gw")
    run(
        "aggregate",
        "0.gw",
        "late.gw",
        "-o",
        "x.gw",
        code=1,
        says="late.gw: cannot be added to 0.gw: round differs (round)",
    )
    # What differs has a name.
    run("norm", "1.npy", "-o", "1.norm")
    run("compress 1.npy --codec thc --norms all.norm --rank 1 --workers 4 --seed 12 -o other.gw")
    run("aggregate", "0.gw", "other.gw", "-o", "x.gw", code=1, says="cannot be added to 0.gw: seed differs (mismatch)")
    run("compress 1.npy --codec thc --norms 1.norm --rank 1 --workers 4 --seed 11 -o other.gw")
    run("aggregate", "0.gw", "other.gw", "-o", "x.gw", code=1, says="norms differ (mismatch)")
    run("compress 1.npy --codec thc --norms all.norm --rank 1 --workers 4 --seed 11 --bits 3 -o other.gw")
    run("aggregate", "0.gw", "other.gw", "-o", "x.gw", code=1, says="threshold differs (mismatch)")
    write("big.npy", [2 * x for x in arrays[0]])
    run("compress big.npy --codec thc --norms all.norm --workers 4 -o x.gw", code=1, says="below")
    run("compress", "0.npy", "--codec", "thc", "-o", "alone0.gw")
    run("compress", "1.npy", "--codec", "thc", "-o", "alone1.gw")
    run("aggregate", "alone0.gw", "alone1.gw", "-o", "x.gw", code=1, says="without --norms")
    run("compress", "0.npy", "--codec", "thc", "--workers", "4", "-o", "x.gw", code=2, says="--norms")
    # An output that is an input: nothing is lost.
    for arguments in (
        ("norm", "0.npy", "-o", "0.npy"),
        ("norm", "--max", "all.norm", "0.norm", "-o", "all.norm"),
        ("compress", "0.npy", "--codec", "thc", "-o", "0.npy"),
        ("compress", "0.npy", "--codec", "thc", "--ef", "0.npy", "-o", "x.gw"),
        ("aggregate", "0.gw", "1.gw", "-o", "./1.gw"),
        ("decompress", "tree.gw", "-o", "tree.gw"),
    ):
        run(*arguments, code=2, says="is an input file")
    assert not os.path.exists("x.gw"), "a refused command left its output"
    frame = subprocess.run(
        [TOOL, "compress", "0.npy", "--codec", "thc", "-o", "-"], capture_output=True, check=True
    ).stdout
    with open("alone0.gw", "rb") as f:
        assert frame == f.read(), "standard output holds more than the frame"

    # Of a snapshot the gradient counts.
    write("s-grad.npy", arrays[0])
    write("s-param.npy", base)
    with open("s.json", "w") as f:
        json.dump({"optimizer": "sgd", "step": 1, "hyper": {"lr": 0.1}}, f)
    run("compress", "s.json", "--codec", "thc", "-o", "s.gw")
    assert contents("s.gw") == contents("alone0.gw")
    run("compress", "alone0.gw", "--codec", "thc", "-o", "x.gw", code=1, says="is a gradwire frame")
    for output in ("-o s-grad.npy", "-o x.gw --ef s-param.npy"):
        run("compress", "s.json", "--codec", "thc", output, code=2, says="is an input file")
    write("short.npy", base[:5])
    run("compress", "0.npy", "--codec", "thc", "--ef", "short.npy", "-o", "x.gw", code=1, says="fp32 of 3000 values")

    # Error feedback: what arrives over 12 rounds of the same gradient is 12 times the gradient, but for the last
    # errors.
    got = [0.0] * COUNT
    for number in range(12):
        one_round(workers, True, number)
        run("aggregate", *[f"{w}.gw" for w in range(workers)], "-o", "sum.gw")
        run("decompress", "sum.gw", "-o", "mean.npy")
        got = [a + b for a, b in zip(got, read("mean.npy"))]
    rest = [sum(column) / workers for column in zip(*[read(f"{w}.state.npy") for w in range(workers)])]
    assert nmse([g + r for g, r in zip(got, rest)], [12 * t for t in truth]) < 1e-10
    assert nmse(got, [12 * t for t in truth]) < 0.001

    # Uniform THC: range in place of norms.
    for w in range(workers):
        run("norm", f"{w}.npy", "--plain", "-o", f"{w}.norm")
    run("norm", "--max", *[f"{w}.norm" for w in range(workers)], "-o", "all.norm")
    for w in range(workers):
        run(f"compress {w}.npy --codec thc --plain --uniform --norms all.norm --rank {w} --workers {workers} -o {w}.gw")
    run("aggregate", *[f"{w}.gw" for w in range(workers)], "-o", "sum.gw")
    run("decompress", "sum.gw", "-o", "mean.npy")
    every = [read(f"{w}.npy") for w in range(workers)]
    facts = json.loads(run("inspect", "sum.gw", "--json"))
    assert facts["transform"] == "plain" and facts["nonfinite_blocks"] == 0, facts
    for got_limit, limit in ((facts["range_min"], min(map(min, every))), (facts["range_max"], max(map(max, every)))):
        assert abs(got_limit - limit) <= 1e-8 * abs(limit), facts
    assert 1e-5 < nmse(read("mean.npy"), truth) < 0.2, nmse(read("mean.npy"), truth)

    # Options that make no configuration: exit code 2, and the option is named.
    lone = ("compress", "0.npy", "--codec", "thc", "-o", "x.gw")
    run(*lone, "--norms", "0.norm", "--workers", "9", "--granularity", "31", "--lane", "8", code=2, says="--lane")
    run(*lone, "--norms", "0.norm", "--workers", "18", "--lane", "8", code=2, says="18 workers")
    run(*lone, "--bits", "1", "--p", "1/32", "--ef", "x.npy", code=2, says="larger --p")
    run(*lone, "--plain", "--ef", "x.npy", code=2, says="--plain")
    run(*lone, "--p", "2^-14", code=2, says="granularity 31")
    assert not os.path.exists("x.gw") and not os.path.exists("x.npy")

    table = json.loads(run("table", "--bits", "4", "--granularity", "31", "--p", "1/32", "--json"))
    assert table["table"][7] == 15 and abs(table["cost"] - 0.0127515572) < 1e-9
    assert abs(table["total"] - table["cost"] - table["truncation"]) < 1e-9
    design = json.loads(run("thc-design", "--workers", "17", "--bits", "4", "--json"))
    assert design["granularity"] == 15 and design["lane_bits"] == 8
    run("thc-design", "--workers", "18", "--bits", "4", "--lane", "8", code=2, says="lanes")
    run("table", "--bits", "4", "--granularity", "14", "--p", "1/32", code=2)
    print("ok")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
