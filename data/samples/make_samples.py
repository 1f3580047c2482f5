#!/usr/bin/env python3
"""Cut the snapshots of data/samples out of the large ones.

    data/samples/make_samples.py [SOURCE] [DESTINATION]

SOURCE defaults to $GW_SHARED_DATA/gradients, else ../shared/data/gradients; DESTINATION to data/samples.

A snapshot is NAME.json and one fp32 array NAME-KIND.npy per kind (grad, param and the optimizer's state), whose
values are the leading values of each tensor, the tensors in order, `taken` of each. A cut keeps 65536 values: 32
windows of 2048 consecutive values, evenly spaced over the array, so that every layer counts by its size and a chunk
of 16384 values sees about as many tensors as a chunk of the source. Shares of fp32 (explicit levels, preset small) of
cut and source: resnet50-sgdm 36.2 and 37.2 %, resnet50-adamw 36.3 and 37.2 %, bertbase-adamw 44.6 and 42.6 %. Taking
the leading share of every tensor instead gave 36.2, 39.8 and 48.4 %: a codebook cannot fit the 40 tensors that a
chunk then spans.
"""

import json
import os
import pathlib
import struct
import sys

WINDOW_COUNT = 32
WINDOW_LEN = 2048
NAMES = ("resnet50-sgdm-step0400", "resnet50-adamw-step0400", "bertbase-adamw-step0050")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_npy(path):
    """The data bytes of a one-dimensional little-endian fp32 array."""
    data = path.read_bytes()
    if data[:6] != b"\x93NUMPY" or data[6] not in (1, 2):
        sys.exit(f"{path}: not a NumPy array of version 1 or 2")
    length_format = "<H" if data[6] == 1 else "<I"
    start = 8 + struct.calcsize(length_format)
    start += struct.unpack_from(length_format, data, 8)[0]
    header = data[8:start].decode("latin-1")
    if "'<f4'" not in header or "'fortran_order': False" not in header:
        sys.exit(f"{path}: not a plain array of little-endian fp32")
    return data[start:]


def npy_bytes(values):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % (len(values) // 4)
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("ascii") + values


def windows(total):
    """First and last + 1 value of each window: centred in equal parts of the array."""
    firsts = [(2 * i + 1) * total // (2 * WINDOW_COUNT) - WINDOW_LEN // 2 for i in range(WINDOW_COUNT)]
    return [(first, first + WINDOW_LEN) for first in firsts]


def taken_of(tensors, kept):
    """How many values of each tensor lie in the windows."""
    counts, end = [], 0
    for tensor in tensors:
        begin, end = end, end + tensor["taken"]
        counts.append(sum(max(0, min(end, last) - max(begin, first)) for first, last in kept))
    return counts


def cut(source, destination, name):
    description = json.loads((source / f"{name}.json").read_text())
    total = sum(tensor["taken"] for tensor in description["tensors"])
    kept = windows(total)
    written = 0
    for path in sorted(source.glob(f"{name}-*.npy")):
        values = read_npy(path)
        if len(values) != 4 * total:
            sys.exit(f"{path}: {len(values) // 4} values, but {name}.json says {total}")
        data = npy_bytes(b"".join(values[4 * first : 4 * last] for first, last in kept))
        (destination / path.name).write_bytes(data)
        written += len(data)
    for tensor, count in zip(description["tensors"], taken_of(description["tensors"], kept)):
        tensor["taken"] = count
    description["tensors"] = [tensor for tensor in description["tensors"] if tensor["taken"] > 0]
    text = json.dumps(description, indent=1) + "\n"
    (destination / f"{name}.json").write_text(text)
    print(
        f"{name}: {sum(tensor['taken'] for tensor in description['tensors'])} of {total} values, "
        f"{len(description['tensors'])} tensors, {written + len(text)} bytes"
    )


def main():
    shared = pathlib.Path(os.environ.get("GW_SHARED_DATA") or ROOT.parent / "shared" / "data")
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else shared / "gradients"
    destination = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "data" / "samples"
    if not source.is_dir():
        sys.exit(f"{source}: no such directory; name the one with the large snapshots")
    destination.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        cut(source, destination, name)


main()
