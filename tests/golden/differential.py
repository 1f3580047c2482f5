#!/usr/bin/env python3
"""Random frames through both decoders: the library's (decode_one) and the reference decoder.

    differential.py [--count N] [--seed S] [--test-vectors PROGRAM] [--keep DIR] DECODE_ONE [BACKEND ...]

make_vectors.py --random writes valid, mutated and structurally odd frames with the reference decoder's verdict; the
library must give the same status, bad chunk and values, on every backend named. With --test-vectors the same frames go
through that program too (canaries, ranges, sums, cut frames, encoder).

SPDX-License-Identifier: BSD-2-Clause
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile

from vector_index import HERE, read_index


def compare(root, vectors, program, backends):
    """Disagreements of one run of decode_one."""
    with open(os.path.join(root, "index.tsv"), "rb") as index:
        run = subprocess.run([program, root] + backends, stdin=index, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        yield "decode_one failed: %d\n%s%s" % (run.returncode, run.stdout[-500:], run.stderr[-500:])
        return
    lines = run.stdout.splitlines()
    if len(lines) != len(vectors):
        yield "decode_one answered %d of %d times" % (len(lines), len(vectors))
    for vector, line in zip(vectors, lines):
        expected = [vector.file, vector.status.lower()]
        expected += ["-" if field is None else field for field in (vector.fields["bad_chunk"], vector.values_crc)]
        if line.split("\t") != expected:
            yield "library: %s\nreference decoder: %s" % (line, "\t".join(expected))


def main():
    parser = argparse.ArgumentParser(description="Compare the library with the reference decoder on random frames.")
    parser.add_argument("program", metavar="DECODE_ONE")
    parser.add_argument("backends", metavar="BACKEND", nargs="*")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test-vectors", metavar="PROGRAM")
    parser.add_argument("--keep", metavar="DIR", help="write the frames there and keep them")
    options = parser.parse_args()

    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or temporary
        subprocess.run(
            [
                sys.executable,
                os.path.join(HERE, "make_vectors.py"),
                "--random",
                str(options.count),
                "--seed",
                str(options.seed),
                root,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        vectors = read_index(root)
        for backends in [[]] + [[backend] for backend in options.backends]:
            for complaint in compare(root, vectors, options.program, backends):
                print("%s:\n%s" % (backends[0] if backends else "all backends", complaint))
                failures += 1
        if options.test_vectors:
            run = subprocess.run(
                [options.test_vectors, root, str(options.count)], capture_output=True, text=True, check=False
            )
            print(run.stdout[-4000:] + run.stderr, end="")
            failures += run.returncode != 0
    statuses = collections.Counter(vector.status for vector in vectors)
    print(
        "seed %d, %d frames (%s): %d disagreements"
        % (options.seed, len(vectors), ", ".join("%s %d" % item for item in sorted(statuses.items())), failures)
    )
    # A generator that only makes easy frames must not pass for a test.
    if options.count >= 300 and (statuses["OK"] < 100 or statuses["CORRUPT"] < 20 or statuses["CHECKSUM"] < 5):
        print("too few frames of some kind")
        failures += 1
    kinds = collections.Counter(vector.fields["levels"] for vector in vectors if vector.status == "OK")
    if options.count >= 300 and min(kinds[name] for name in ("explicit", "derived", "carried")) < 15:
        print("too few valid frames of some kind: %s" % dict(kinds))
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
