#!/usr/bin/env python3
"""Checks every golden THC frame with the command and with the reference decoder: values, codes, block numbers.

check_thc_vectors.py path/to/gradwire [DIR]    default: the archives of this directory, unpacked
"""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../docs/reference_decoder"), os.path.join(HERE, "..")]
import golden_archive  # noqa: E402
import thc_decode  # noqa: E402


def command(tool, path, output, mode):
    """(status, block, values) as the command gives them."""
    run = subprocess.run(
        [tool, "decompress", "--codec", "thc", path, "-o", output] + (["--sum"] if mode == "sum" else []),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == 0:
        with open(output, "rb") as f:
            return "ok", "", f.read()[128:]
    status = re.search(r"\((\w+)\)$", run.stderr.strip().splitlines()[-1])
    block = re.search(r"block (\d+):", run.stderr)
    return status.group(1) if status else run.stderr, block.group(1) if block else "", b""


def main():
    tool = os.path.abspath(sys.argv[1])
    root = sys.argv[2] if len(sys.argv) > 2 else golden_archive.unpacked() / "thc"
    failures = 0
    with open(os.path.join(root, "index.tsv"), encoding="ascii") as f:
        rows = [line.rstrip("\n").split("\t") for line in f][1:]
    listed = {(row[0], row[1]) for row in rows}
    for kind in ("decode", "reject"):
        for name in os.listdir(os.path.join(root, kind)):
            if name.endswith(".gw") and (kind, name[:-3]) not in listed:
                print(f"{kind}/{name} is not in index.tsv")
                failures += 1
    with tempfile.TemporaryDirectory() as folder:
        for kind, name, status, block in rows:
            path = os.path.join(root, kind, name + ".gw")
            with open(path, "rb") as f:
                data = f.read()
            for mode in ("mean", "sum"):
                want = (status, block)
                got, bad, values, _ = thc_decode.decode(data, mode == "mean")
                python = (got, "" if bad is None else str(bad))
                c_status, c_block, c_values = command(tool, path, os.path.join(folder, "out.npy"), mode)
                if python != want or (c_status, c_block) != want:
                    print(f"{kind}/{name}: want {want}, reference decoder {python}, command {(c_status, c_block)}")
                    failures += 1
                if kind == "decode":
                    with open(os.path.join(root, kind, f"{name}.{mode}"), "rb") as f:
                        expected = f.read()
                    if values != expected or c_values != expected:
                        print(f"{kind}/{name}.{mode}: values differ")
                        failures += 1
    print(f"{len(rows)} vectors, {failures} failures")
    return 1 if failures or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
