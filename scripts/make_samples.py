#!/usr/bin/env python3
"""Cut the snapshots of data/samples out of the large ones.

    scripts/make_samples.py [SOURCE] [DESTINATION]

SOURCE defaults to $GW_SHARED_DATA/gradients, else ../shared/data/gradients; DESTINATION to data/samples.

A snapshot is NAME.json and one fp32 array NAME-KIND.npy per kind (grad, param and the optimizer's state), whose values
are the leading values of each tensor, the tensors in order, `taken` of each. A cut keeps 65536 values: of each tensor
the leading share of what was taken, the shares rounded so that they add up (largest remainder first). So every tensor
counts as much as it did and the mix of exponents stays that of the source; but a chunk of a cut sees more tensors than
a chunk of the source, and its codebook fits each of them less well. The shares of the large snapshots are in
docs/results/.
"""
import json
import os
import pathlib
import struct
import sys

VALUE_COUNT = 65536
NAMES = ("resnet50-sgdm-step0400", "resnet50-adamw-step0400", "bertbase-adamw-step0050")
ROOT = pathlib.Path(__file__).resolve().parent.parent


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


def shares(taken, total):
    """Splits `total` in proportion to `taken`, by largest remainder, ties to the earlier tensor."""
    whole = sum(taken)
    counts = [t * total // whole for t in taken]
    order = sorted(range(len(taken)), key=lambda i: (-(taken[i] * total % whole), i))
    for i in order[: total - sum(counts)]:
        counts[i] += 1
    return counts


def cut(source, destination, name):
    description = json.loads((source / f"{name}.json").read_text())
    taken = [tensor["taken"] for tensor in description["tensors"]]
    counts = shares(taken, VALUE_COUNT)
    written = 0
    for path in sorted(source.glob(f"{name}-*.npy")):
        values = read_npy(path)
        if len(values) != 4 * sum(taken):
            sys.exit(f"{path}: {len(values) // 4} values, but {name}.json says {sum(taken)}")
        parts, at = [], 0
        for whole, count in zip(taken, counts):
            parts.append(values[4 * at : 4 * (at + count)])
            at += whole
        data = npy_bytes(b"".join(parts))
        (destination / path.name).write_bytes(data)
        written += len(data)
    for tensor, count in zip(description["tensors"], counts):
        tensor["taken"] = count
    # A tensor of which nothing was taken has no place in the arrays and none in the list.
    description["tensors"] = [tensor for tensor in description["tensors"] if tensor["taken"] > 0]
    text = json.dumps(description, indent=1) + "\n"
    (destination / f"{name}.json").write_text(text)
    print(f"{name}: {sum(counts)} of {sum(taken)} values, {len(description['tensors'])} tensors, "
          f"{written + len(text)} bytes")


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
