#!/usr/bin/env python3
"""Runs the reference decoder (docs/reference_decoder) over the golden vectors.

    check_vectors.py [DIR]    default: the archives of this directory, unpacked

Checked: status, bad chunk and values of every vector; that every frame of decode/, cut anywhere, is SHORT; that the
vectors are those that make_vectors.py makes now; that the command line of the decoder says the same.

SPDX-License-Identifier: BSD-2-Clause
"""

import filecmp
import json
import os
import subprocess
import sys
import tempfile

import golden_archive
from vector_index import HERE, gw_decode, read_index

PREFIXES_MAX = 200  # of one frame


def check_vector(vector):
    """Complaints about one vector."""
    status, bad_chunk, values = vector.decode()
    if (status, bad_chunk) != (vector.status, vector.bad_chunk):
        yield "got %s, chunk %s; expected %s, chunk %s" % (status, bad_chunk, vector.status, vector.bad_chunk)
        return
    if values is None:
        if vector.values_crc is not None:
            yield "no values"
        return
    if len(values) != vector.count * vector.dtype.size or "%08x" % gw_decode.crc32c(values) != vector.values_crc:
        yield "wrong values"
    if vector.values is not None and vector.values != values:
        yield "values are not those of " + vector.fields["values"]


def check_prefixes(vector):
    size = len(vector.data)
    step = max(1, size // PREFIXES_MAX)
    for length in sorted(set(range(0, size, step)) | set(range(0, min(size, 64))) | {size - 1}):
        status, _, _ = vector.decode(vector.data[:length])
        if status != "SHORT":
            yield "the first %d bytes: %s instead of SHORT" % (length, status)


def check_command(root, vector):
    """The same vector through the command line."""
    fields = vector.fields
    command = [
        sys.executable,
        gw_decode.__file__,
        os.path.join(root, vector.file),
        "--json",
        "--dtype",
        fields["dtype"],
    ]
    if fields["map"]:
        command += [
            "--map",
            os.path.join(root, fields["map"]),
            "--drop-offset=" + fields["drop_base"],
            "--wire-scale",
            "0x" + fields["wire_scale"],
        ]
    if fields["book"]:
        command += [
            "--codebook",
            os.path.join(root, fields["book"]),
            "--codebook-id",
            fields["book_id"],
            "--generation",
            fields["generation"],
        ]
    with tempfile.TemporaryDirectory() as directory:
        output = os.path.join(directory, "out.npy")
        run = subprocess.run(command + ["-o", output], capture_output=True, text=True, check=False)
        if run.returncode != (0 if vector.status == "OK" else 1):
            yield "exit status %d: %s" % (run.returncode, run.stderr)
            return
        report = json.loads(run.stdout)
        if (report["status"], report["bad_chunk"]) != (vector.status, vector.bad_chunk):
            yield "the command says " + run.stdout
        written = os.listdir(directory)
        if vector.status != "OK":
            if written:
                yield "the command left %s in place" % written
        else:
            content = gw_decode.read_file(output)
            start = 10 + gw_decode.u16(content, 8)
            if start % 64 != 0 or "%08x" % gw_decode.crc32c(content[start:]) != vector.values_crc:
                yield "the command wrote other values"


def check_fresh(root):
    """Do the committed files come from the committed generator?"""
    with tempfile.TemporaryDirectory() as fresh:
        subprocess.run(
            [sys.executable, os.path.join(HERE, "make_vectors.py"), fresh], check=True, stdout=subprocess.DEVNULL
        )

        def files(top):
            return sorted(
                os.path.relpath(os.path.join(folder, name), top)
                for part in ("decode", "reject", "receiver")
                for folder, _, names in os.walk(os.path.join(top, part))
                for name in names
            )

        if files(root) != files(fresh):
            yield "other files than make_vectors.py makes: %s" % sorted(set(files(root)) ^ set(files(fresh)))[:5]
        else:
            _, different, errors = filecmp.cmpfiles(root, fresh, files(root) + ["index.tsv"], shallow=False)
            if different or errors:
                yield "not what make_vectors.py makes: %s" % (different + errors)[:5]


def check_32_bits():
    """Rule 8 on a machine whose size_t has 32 bits: after rule 10, and only for what does not fit."""
    for dtype, count in ((1, 1 << 30), (1, (1 << 30) - 1), (2, 1 << 31), (3, (1 << 31) - 1)):
        element = gw_decode.DTYPES[dtype]
        size = 32 + 16 * (-(-count >> 15))  # no payload; the directory is nonsense, later rules see that
        frame = (
            gw_decode.MAGIC
            + bytes((0, 1, dtype, 15, 0, 0, 0, 0, element.step, 0, 0, 0))
            + count.to_bytes(8, "little")
            + size.to_bytes(8, "little")
            + bytes(size - 32)
        )
        fits = count * element.size < 1 << 32
        for bits, data, expected in (
            (32, frame, "HEADER" if fits else "LIMIT"),
            (64, frame, "HEADER"),
            (32, frame[:-1], "SHORT"),
            (64, frame[:-1], "SHORT"),
        ):
            status, _, _ = gw_decode.decode(data, size_t_bits=bits)
            if status != expected:
                yield "%d values of dtype %d with %d bits: %s instead of %s" % (count, dtype, bits, status, expected)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else golden_archive.unpacked()
    vectors = read_index(root)
    failures = 0

    def report(name, complaints):
        nonlocal failures
        for complaint in complaints:
            failures += 1
            print("%s: %s" % (name, complaint))

    kinds = {"decode": 0, "reject": 0}
    for number, vector in enumerate(vectors):
        kind = vector.file.split("/")[0]
        kinds[kind] += 1
        report(vector.file, check_vector(vector))
        if kind == "decode":
            report(vector.file, check_prefixes(vector))
        if number % 20 == 0 and vector.capacity is None and vector.count_limit is None:
            report(vector.file, check_command(root, vector))
    report("index.tsv", check_fresh(root))
    report("gw_decode.py", check_32_bits())
    # A list that lost its lines must not pass.
    if kinds["decode"] < 350 or kinds["reject"] < 480:
        report("index.tsv", ["only %(decode)d valid and %(reject)d reject vectors" % kinds])
    print("%d valid frames, %d reject vectors, %d failures" % (kinds["decode"], kinds["reject"], failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
