#!/usr/bin/env python3
"""Pack and unpack every snapshot of a directory on every backend of the machine and print a table.

    demo_table.py GRADWIRE DIRECTORY WORK RUNS

Each row is one `gradwire verify`: encode, decode, compare every value with what its cut allows, then apply the
optimizer to both gradients and compare the parameters. Besides, every frame is written to a file and unpacked again:
the frames of all backends must be equal byte for byte, and so must what they unpack to. Exit status 1 if anything
failed.
"""

import filecmp
import json
import pathlib
import subprocess
import sys

# Name, options of the encoder, and whether the receiver needs the snapshot.
MODES = (
    ("explicit small", ["--quantum-mode", "explicit", "--preset", "small"], False),
    ("explicit fast", ["--quantum-mode", "explicit", "--preset", "fast"], False),
    ("derived 1 small", ["--quantum-mode", "derived", "--drop-step", "1", "--preset", "small"], True),
)
HEADINGS = "snapshot,mode,backend,of fp32,of bf16,labels,digits,other,encode,decode,worst,mean".split(",")
UNITS = ("", "", "", "%", "%", "bits", "bits", "bits", "GB/s", "GB/s", "log2", "log2")


class Failure(Exception):
    """A command did not do what it should; the text says which."""


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def pack_and_unpack(gradwire, snapshot, mode, backend, work):
    """Writes a frame and its values to files; returns their paths."""
    _, options, derived = mode
    backend, permitted = backend
    frame, values = work / f"{backend}.gw", work / f"{backend}.npy"
    run([gradwire, "compress", snapshot, "-o", frame, "--backend", permitted, *options])
    unpack = [gradwire, "decompress", frame, "-o", values, "--backend", permitted]
    run(unpack + (["--snapshot", snapshot] if derived else []))
    return frame, values


def row_of(snapshot, mode, backend, report):
    bits = report["bits_per_value"]
    other = bits["total"] - bits["labels"] - bits["digits"]
    deviation = report.get("parameter_deviation") or {}

    def log2(key):
        value = deviation.get(key)
        return "none" if value is None else f"{value:.1f}"

    return (
        snapshot.stem,
        mode,
        backend,
        f"{100 * report['rate_fp32']:.1f}",
        f"{100 * report['rate_bf16']:.1f}",
        f"{bits['labels']:.2f}",
        f"{bits['digits']:.2f}",
        f"{other:.2f}",
        f"{report['encode_GBps']:.2f}",
        f"{report['decode_GBps']:.2f}",
        log2("max_log2"),
        log2("mean_log2"),
    )


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if i < 3 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def main():
    gradwire, directory, work, runs = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
    # A backend is run together with the simpler ones, which do what it has no kernels for.
    present = json.loads(run([gradwire, "info", "--json"]))["backends_available"]
    backends = {name: ",".join(present[: i + 1]) for i, name in enumerate(present)}
    snapshots = sorted(directory.glob("*.json"))
    if not snapshots:
        sys.exit(f"{directory}: no snapshot descriptions (*.json)")

    rows, failures = [HEADINGS, UNITS], []
    copies = []
    for snapshot in snapshots:
        for mode in MODES:
            first = None
            for backend, permitted in backends.items():
                try:
                    report = json.loads(
                        run([gradwire, "verify", snapshot, "--backend", permitted, "--runs", runs, "--json", *mode[1]])
                    )
                    rows.append(row_of(snapshot, mode[0], backend, report))
                    copies.append(report["memcpy_GBps"])
                    files = pack_and_unpack(gradwire, snapshot, mode, (backend, permitted), work)
                    if files[0].stat().st_size != report["output_bytes"]:
                        raise Failure(
                            f"{snapshot.stem}, {mode[0]}, {backend}: the file has another size than the frame"
                        )
                    first = first or files
                    if not all(filecmp.cmp(a, b, shallow=False) for a, b in zip(first, files)):
                        raise Failure(f"{snapshot.stem}, {mode[0]}: {backend} and {present[0]} differ")
                except Failure as failure:
                    failures.append(str(failure))
    print()
    print_table(rows)
    copy_speed = sorted(copies)[len(copies) // 2] if copies else 0
    print(
        f"""
of fp32, of bf16  size of the frame beside that of the values as fp32 or bf16; every byte is counted
bits              per value: labels (exponents and cuts), digits (signs and mantissas),
                  other (codebooks, headers, escapes)
GB/s              of fp32 values, one thread, median of {runs}; memcpy in the same runs: {copy_speed:.1f} GB/s"""
        if copies
        else ""
    )
    print("worst, mean       relative deviation of a parameter after the optimizer's update, as a power of two")
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)
    print(f"{len(rows) - 2} packed, unpacked and compared; the frames of {', '.join(backends)} are equal byte for byte")


main()
