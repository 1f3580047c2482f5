#!/usr/bin/env python3
"""Runs every benchmark once, for as short as it can be, and what reads the results. Nothing here depends on a time.

    check_bench.py GRADWIRE_BENCH SOURCE-DIRECTORY BUILD-DIRECTORY

On the samples, 64 KiB and 1 MiB with threads: names are those that bench/measure filters, counters are there and are
numbers, every backend of this machine and every kernel that it has was timed. The tables of medians are written, and
speed.md, docs/kernels.md and the picture made from them pass their checks and notice a changed figure.
"""

import importlib.machinery
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True

DATA = ("resnet50-sgdm-step0400", "resnet50-adamw-step0400", "bertbase-adamw-step0050")
MODES = (
    "explicit_fast",
    "derived1_fast",
    "explicit_small",
    "derived1_small",
    "explicit_fast_stochastic",
    "derived1_fast_stochastic",
)
GCOMP = ("gcomp_encode", "gcomp_decode", "gcomp_decode_add", "gcomp_hop")
THC = ("thc_norms", "thc_encode", "thc_sum", "thc_decode")
SIZES = ("64KiB", "1MiB", "25MiB", "256MiB")
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def load_script(source, name):
    path = os.path.join(source, name)
    loader = importlib.machinery.SourceFileLoader(os.path.basename(name), path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def environment(**more):
    # No GW_SHARED_DATA: the samples, wherever the tree lies.
    return dict(os.environ, GW_SHARED_DATA="/nonexistent", GW_BENCH_SECONDS="0.001", GW_BENCH_COMMIT="test", **more)


def run(program, pattern, out, **more):
    log = subprocess.run(
        [program, f"--benchmark_filter={pattern}", f"--benchmark_out={out}", "--benchmark_out_format=json"],
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    expect(log.returncode == 0, f"gradwire_bench: status {log.returncode}\n{log.stdout[-2000:]}")
    with open(out, encoding="utf-8") as f:
        return json.load(f)


def names_of(program):
    listing = subprocess.run(
        [program, "--benchmark_list_tests"], env=environment(), check=True, stdout=subprocess.PIPE, text=True
    )
    return [re.sub(r"/iterations:1(/manual_time)?$", "", line) for line in listing.stdout.split()]


def check_names(names, backends):
    """All of the grid that --full runs."""
    have = set(names)
    expect(len(have) == len(names), "names occur twice")
    for size in SIZES:
        for heat in ("cold", "hot"):
            for data in DATA:
                for backend in backends:
                    wanted = [f"{call}/{backend}/{data}/{mode}" for call in GCOMP for mode in MODES]
                    wanted += [f"{call}/{backend}/{data}/b4n8u8" for call in THC]
                    for name in wanted:
                        expect(f"{name}/{size}/{heat}" in have, f"no benchmark {name}/{size}/{heat}")
                for peer in ("zstd1", "lz4", "bf16_cast", "int8_blocks"):
                    for way in ("encode", "decode"):
                        name = f"peer/{peer}_{way}/{data}/{size}/{heat}"
                        expect(name in have, f"no benchmark {name}")


def check_counters(report, wanted):
    """Counters that every result has, and no error."""
    expect(report["benchmarks"], "no benchmark ran")
    for record in report["benchmarks"]:
        name = record["name"].split("/iterations:")[0]
        if record.get("error_occurred"):
            problems.append(f"{name}: {record['error_message']}")
            continue
        keys = list(wanted)
        if not name.startswith("kernel/"):
            keys.append("bits_per_value")
        for key in keys:
            value = record.get(key)
            expect(isinstance(value, (int, float)) and math.isfinite(value) and value > 0, f"{name}: {key} is {value}")
        expect(record.get("pairs", 0) >= 9, f"{name}: {record.get('pairs')} pairs")
    for key in ("compiler", "commit", "cpu", "governor", "seconds", "data", "load_avg"):
        expect(key in report["context"], f"the results do not say {key}")
    expect(report["context"].get("data") == "data/samples", f"data is {report['context'].get('data')}")


def check_readers(source, folder, single, threaded):
    """What is made from results. The pages speak of 25 MiB: names are changed, no benchmark is that short there."""
    text = open(single, encoding="utf-8").read().replace("/64KiB/", "/25MiB/")
    open(single, "w", encoding="utf-8").write(text)
    other = os.path.join(folder, "clang.json")
    open(other, "w", encoding="utf-8").write(text.replace(json.loads(text)["context"]["compiler"], "Other 1.0 Release"))
    gcc, clang, threads = (os.path.join(folder, f"bench-{name}.tsv") for name in ("gcc", "clang", "threads"))
    speed, kernels, picture = (os.path.join(folder, name) for name in ("speed.md", "kernels.md", "picture.svg"))
    shutil.copy(os.path.join(source, "docs/kernels.md"), kernels)

    def script(*command):
        path = os.path.join(source, command[0])
        done = subprocess.run([sys.executable, "-B", path, *command[1:]], capture_output=True, text=True)
        return done.returncode, f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}"

    for source_file, table in ((single, gcc), (other, clang), (threaded, threads)):
        status, log = script("bench/bench_report.py", "--medians", source_file, table)
        expect(status == 0, log)
    pages = (
        (("bench/bench_report.py", "--results", folder), ("--write",), speed, r"(\| GCOMP decode \| )[0-9.]+"),
        (
            ("tests/tree/check_kernels_doc", "--results", folder, "--doc", kernels),
            ("--write", gcc),
            kernels,
            r"(\| `merge` \| )[0-9.]+",
        ),
        (("bench/readme_picture", "--table", gcc, "--svg", picture), ("--write",), picture, r"(>)[0-9.]+ %"),
    )
    for check, write, page, figure in pages:
        for command in (check + write, check):
            status, log = script(*command)
            expect(status == 0, log)
        text = open(page, encoding="utf-8").read() if os.path.exists(page) else ""
        changed = re.sub(figure, r"\g<1>0.99999", text, count=1)
        expect(changed != text, f"{page} has no figure like {figure}")
        open(page, "w", encoding="utf-8").write(changed)
        expect(script(*check)[0] == 1, f"{check[0]} does not notice a changed figure")
        if page == speed:
            for word in ("Other 1.0", "GCOMP encode", "commit test", "zstd -1", "## Small", "## 2 threads"):
                expect(word in text, f"speed.md says nothing of '{word}'")


def main():
    program, source, build = sys.argv[1:]
    folder = os.path.join(build, "check_bench")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    names = names_of(program)
    backends = sorted({name.split("/")[1] for name in names if name.startswith("gcomp_")})
    expect("scalar" in backends, "no scalar")
    cpu = open("/proc/cpuinfo", encoding="utf-8").read() if os.path.exists("/proc/cpuinfo") else ""
    kernels = {(name.split("/")[1], name.split("/")[2]) for name in names if name.startswith("kernel/")}
    check_names(names, backends)

    # Every kernel that the sources have for a backend of this machine; `fence` has no time of its own.
    doc = load_script(source, "tests/tree/check_kernels_doc")
    for table in doc.TABLES:
        for slot, owners in doc.kernels_of(table).items():
            bench = doc.BENCH_NAMES.get(slot, "thc_" + slot) if table == "thc" else slot
            for backend in owners & set(backends) if slot != "fence" else ():
                if slot == "crc32c" and backend != "scalar" and "pclmul" not in cpu:
                    continue
                expect((bench, backend) in kernels, f"no benchmark kernel/{bench}/{backend}")
    expect(doc.steps(), "bench_core.c has no steps")
    for step, _ in doc.steps():
        expect((step, "scalar") in kernels, f"no benchmark kernel/{step}/scalar")

    single = os.path.join(folder, "gcc.json")
    report = run(program, "/64KiB|^kernel/|^small_.*/(1|16)KiB", single)
    check_counters(report, ("GBps", "us", "vs_memcpy", "vs_memcpy_p10", "vs_memcpy_p90", "memcpy_GBps"))
    threaded = os.path.join(folder, "threads.json")
    report = run(program, "^threads2_.*/1MiB", threaded, GW_BENCH_THREADS="2")
    check_counters(report, ("GBps", "us", "speedup", "speedup_p10", "speedup_p90"))
    report = run(program, "^collective_.*/256KiB", os.path.join(folder, "collective.json"))
    check_counters(report, ("GBps", "us", "speedup", "speedup_p10", "speedup_p90"))
    if not problems:
        check_readers(source, folder, single, threaded)
    for problem in problems[:40]:
        print(problem)
    print(f"{len(names)} benchmarks, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
