"""Seeds for fuzz_classic, called by make_corpus.py: recipes for frames of every scheme, whole and damaged, and the
golden frames, each with and without a repaired checksum."""

import random
import struct

TARGET = "fuzz_classic"


def recipe(rng, scheme, choice):
    """Bytes for make_frame() of fuzz_classic.c."""
    length = rng.choice([0, 1, 63, 64, 65, 500, 2999])
    head = bytes([scheme - 1, choice, rng.randrange(256), rng.randrange(256)])
    return head + struct.pack("<HIBH", length, rng.getrandbits(32), rng.randrange(256), rng.getrandbits(16))


def damage(rng, count, first, last):
    return b"".join(struct.pack("<HB", rng.randrange(first, last), 1 << rng.randrange(8)) for _ in range(count))


def make(write, golden):
    rng = random.Random(9)
    count = 0
    for scheme in range(1, 12):
        for choice in range(0, 128, 3):
            kind = 4 | rng.randrange(4) | rng.choice([0, 8])
            ruin = rng.choice([b"", damage(rng, 1, 0, 80), damage(rng, 2, 80, 200), damage(rng, 3, 80, 65536)])
            write(TARGET, f"seed-{count:04d}", bytes([kind]) + recipe(rng, scheme, choice) + ruin)
            count += 1
    for path in sorted((golden / "classic").rglob("*.gw")):
        for choice in (0, 1 | 2 | 8):
            write(TARGET, f"seed-{path.parent.name}-{path.stem}-{choice}", bytes([choice]) + path.read_bytes())
            count += 1
    return [(TARGET, count)]
