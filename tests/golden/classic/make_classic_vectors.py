#!/usr/bin/env python3
"""Writes the golden classic frames, or with --check compares the library and the reference decoder on new ones.

    make_classic_vectors.py PATH/make_classic_frames
    make_classic_vectors.py PATH/make_classic_frames --check PATH/golden_test_classic_vectors --seed N

They go into the archives of this directory: decode/ has frames that the library made, reject/ some of them with one
defect each. Status and values of every vector are those of the reference decoder; index.tsv has the CRC32C of the
values. With --check nothing is kept: frames of random lengths, and many more defects at random, go through both.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../docs/reference_decoder"), os.path.join(HERE, "..")]
import classic_decode  # noqa: E402
import golden_archive  # noqa: E402
import gw_decode  # noqa: E402

# (byte, value) that every frame gets in reject/: fields of the header in order.
HEADER_EDITS = [(0, 0), (4, 1), (4, 0x11), (5, 2), (6, 4), (7, 1), (9, 1), (11, 5), (12, 12), (20, 2), (79, 1)]
# Added to the byte, modulo 256.
FIELD_EDITS = [(8, 2), (8, 4), (8, 8), (13, 3), (14, 3), (15, 2), (48, 1), (64, 1), (68, 1), (72, 1), (16, 1)]


def names_of(status):
    return status.lower().replace("_", "-")


class Index:
    def __init__(self, folder):
        self.folder, self.rows = folder, []

    def save(self, name, data):
        status, values = classic_decode.decode(data, 50000)
        path = os.path.join(self.folder, name + ".gw")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        self.rows.append((name, names_of(status), "%08x" % gw_decode.crc32c(values)))
        return status

    def write(self):
        with open(os.path.join(self.folder, "index.tsv"), "w") as f:
            f.write("#file\tstatus\tvalues_crc\n")
            for row in self.rows:
                f.write("\t".join(row) + "\n")


def flipped(data, at, value):
    return data[:at] + bytes([data[at] ^ value]) + data[at + 1 :]


def resealed(data):
    """With a right checksum, where the frame has one."""
    if data[8] & 1 and len(data) >= 96:
        return data[:-4] + gw_decode.crc32c(data[:-4]).to_bytes(4, "little")
    return data


def defects(rng, data, count):
    """Frames with one or two changed bits, most of them in the payload, with right checksums but for one."""
    payload_end = 80 + int.from_bytes(data[72:80], "little")
    for i in range(count):
        at = rng.randrange(80, payload_end) if payload_end > 80 and i % 4 else rng.randrange(len(data))
        near = min(at + rng.randrange(9), len(data) - 1)
        bad = flipped(data, at, 1 << rng.randrange(8))
        bad = bad if i % 3 else flipped(bad, near, 1 << rng.randrange(8))
        yield bad if i == 0 else resealed(bad)


def lengthened(data, more, flags):
    """With more bytes of extension, two units, and ignorable flags."""
    size = (int.from_bytes(data[24:32], "little") + len(more)).to_bytes(8, "little")
    return resealed(data[:10] + bytes((flags, 8)) + data[12:24] + size + data[32:80] + more + data[80:])


def add_extensions(index, name, data):
    """The list of parts of ignorable flags, bits 1 and 6, and what is none."""
    for kind, more, flags in (
        ("without-flags", b"\xa5" * 16, 0),
        ("no-parts", b"\0" + b"\xa5" * 15, 0x42),
        ("part", b"\7\1......" + bytes(8), 0x42),
    ):
        if index.save(f"decode/{name}-{kind}", lengthened(data, more, flags)) != "OK":
            sys.exit(f"{name}-{kind} is refused")
    for kind, more in (
        ("no-end", b"\2\2" + b"\xa5" * 14),
        ("size-0", b"\2\0......" + bytes(8)),
        ("past-extension", b"\2\3......" + bytes(8)),
        ("flag-not-set", b"\1\1......" + bytes(8)),
        ("number-9", b"\x09\1......" + bytes(8)),
        ("twice", b"\2\1......" * 2),
    ):
        index.save(f"reject/{name}-ignorable-{kind}", lengthened(data, more, 0x42))


def make(index, frames, count, rng):
    for path in frames:
        name = os.path.basename(path)[:-3]
        with open(path, "rb") as f:
            data = f.read()
        status = index.save("decode/" + name, data)
        if status != "OK":
            sys.exit(f"{name}: the reference decoder says {status}")
        for i, bad in enumerate(defects(rng, data, count)):
            if classic_decode.decode(bad, 50000)[0] != "OK" or count > 2:
                index.save(f"reject/{name}-{i}", bad)
    for name in ("efsignsgd-fp32-2", "topk-fp32-3", "qsgd-fp32-3", "randk-fp16-2", "fp16-bf16-2"):
        with open(next(p for p in frames if p.endswith("/" + name + ".gw")), "rb") as f:
            data = f.read()
        for at, value in HEADER_EDITS:
            index.save(f"reject/{name}-byte{at}-{value}", resealed(data[:at] + bytes([value]) + data[at + 1 :]))
        for at, value in FIELD_EDITS:
            index.save(
                f"reject/{name}-add{at}-{value}",
                resealed(data[:at] + bytes([(data[at] + value) % 256]) + data[at + 1 :]),
            )
        add_extensions(index, name, data)
        index.save(f"reject/{name}-trailing", data + b"\0")
        index.save(f"reject/{name}-short", data[:-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("maker", metavar="make_classic_frames")
    parser.add_argument("--check", metavar="PROGRAM")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.maker, folder] + ([str(options.seed)] if options.check else []), check=True)
        frames = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        index = Index(os.path.join(folder, "vectors"))
        make(index, frames, 8 if options.check else 2, rng)
        index.write()
        print(f"{len(index.rows)} vectors")
        if options.check:
            return subprocess.run([options.check, index.folder, str(len(index.rows))]).returncode
        golden_archive.pack(index.folder, "classic")
    return 0


if __name__ == "__main__":
    sys.exit(main())
