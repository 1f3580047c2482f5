"""Seeds for the THC targets, called by make_corpus.py.

The decoder gets the golden frames, each with and without a repaired checksum. The round trip reads a choice of
configuration, a shape and a length; values follow, all kinds of them. The server gets rounds in order, with losses,
duplicates, late packets, seals, drops and damage. The server of `gradwire thc-serve` gets senders who join jobs and run
rounds, with the same, and then more of them while a job of its own workers runs. A worker gets challenges, welcomes and
answers to its packets, good and damaged ones.
"""

import random
import struct

SERVER_WORKERS, SERVER_CHUNKS, ROUNDS = 6, 3, 8


def decode_seeds(write, golden):
    target, count = "fuzz_thc_decode", 0
    for path in sorted((golden / "thc").rglob("*.gw")):
        for choice in (0, 1 | 2 | 4):
            write(target, f"seed-{path.parent.name}-{path.stem}-{choice}", bytes([choice]) + path.read_bytes())
            count += 1
    return target, count


def special_values(rng):
    """Little-endian fp32 words: subnormals, zeros, infinities, NaN, the largest, ordinary ones of all sizes."""
    kind = rng.randrange(8)
    sign = rng.getrandbits(1) << 31
    if kind == 0:
        return rng.choice([0, sign, sign | 1, sign | 0x7FFFFF, sign | 0x800000])
    if kind == 1:
        return sign | rng.choice([0x7F7FFFFF, 0x7F000000, 0x7EFFFFFF])
    return sign | rng.randrange(100, 150) << 23 | rng.getrandbits(23)


def roundtrip_seeds(write):
    target, count = "fuzz_thc_roundtrip", 0
    rng = random.Random(7)
    for choice in range(0, 256, 4):  # feedback, policy, plain; bits and shape in turn
        for wild in (0, 0x80):
            shape = wild | count % 64
            data = bytes([choice | count % 4, shape]) + struct.pack("<H", rng.randrange(300)) + rng.randbytes(4)
            values = 0 if count % 3 == 0 else rng.choice([40, 200])
            words = [special_values(rng) for _ in range(values)]
            if count % 5 == 0 and words:
                words[rng.randrange(len(words))] = rng.choice([0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001])
            write(target, f"seed-{count:03d}", data + struct.pack(f"<{values}I", *words))
            count += 1
    return target, count


def server_seeds(write):
    target, count = "fuzz_thc_server", 0
    rng = random.Random(8)
    for script in range(48):
        steps = bytearray([rng.randrange(SERVER_WORKERS)])  # quorum
        for round_ in range(ROUNDS):
            order = [(worker, chunk) for worker in range(SERVER_WORKERS) for chunk in range(SERVER_CHUNKS)]
            rng.shuffle(order)
            for worker, chunk in order:
                who = worker + SERVER_WORKERS * chunk
                fate = rng.randrange(40) if script > 0 else 39
                if fate == 0:
                    continue  # lost
                if fate == 1:
                    steps += bytes([0, who, rng.randrange(ROUNDS)])  # another round
                elif fate == 2:
                    steps += bytes([0, who, round_ | 0x80, rng.randrange(64), 1 << rng.randrange(8)])
                elif fate == 3:
                    steps += bytes([0, who, round_ | 0x80, rng.randrange(64, 140), 0])  # cut
                steps += bytes([0, who, round_])
                if fate == 4:
                    steps += bytes([0, who, round_])  # twice
            if rng.randrange(4) == 0:
                steps.append(rng.choice([0xE0, 0xE1, 0xF0, 0xF1]))
        write(target, f"seed-{script:02d}", bytes(steps))
        count += 1
    return target, count


JOIN, LEAVE, NORMS, INDICES, ASK, RAW, TIME, ENDED = range(8)


def serve_step(sender, what, *arguments, damage=None):
    return bytes([sender | what << 3 | (damage is not None) << 6, *arguments, *(damage or ())])


def serve_job(rng, job, workers, is_damaged):
    """Senders join a job, those by datagrams twice, and run rounds. Job 3: with the options of the workers' own."""
    steps = bytearray()
    mine, length = (0x80, 0x20) if job == 3 else (0, 0)

    def add(sender, what, *arguments):
        is_bad = is_damaged and rng.randrange(8) == 0
        damage = (rng.choice([5, rng.randrange(96), 128 + rng.randrange(128)]), 1 << rng.randrange(8))
        nonlocal steps
        steps += serve_step(sender, what, *arguments, damage=damage if is_bad else None)

    senders = rng.sample(range(8), workers)
    names = [job | rank << 2 | (workers - 1) << 4 for rank in range(workers)]
    for sender, name in zip(senders, names):
        add(sender, JOIN, name, mine, length)
        if sender < 4:
            add(sender, JOIN, name, mine | 1, length)
    for round_ in range(rng.randrange(4)):
        for what in (NORMS, INDICES):
            order = [(sender, name, slot) for sender, name in zip(senders, names) for slot in range(2)]
            rng.shuffle(order)
            for sender, name, slot in order:
                kind = ASK if what == INDICES and is_damaged and rng.randrange(8) == 0 else what
                add(sender, kind, name, mine | round_, slot | 8)
        if rng.randrange(3) == 0:
            steps += serve_step(0, TIME, rng.randrange(256))
        if is_damaged and rng.randrange(3) == 0:
            steps += serve_step(rng.randrange(8), RAW, 4, *rng.randbytes(4))
    for sender, name in zip(senders, names):
        if rng.randrange(2) == 0:
            add(sender, LEAVE, name, mine | 2, length)
        elif sender >= 4 and rng.randrange(2) == 0:
            steps += serve_step(sender, ENDED)
    return bytes(steps)


def serve_seeds(write):
    target, count = "fuzz_thc_serve", 0
    rng = random.Random(9)
    for script in range(64):
        is_damaged = script % 4 != 0
        data = bytes([rng.randrange(256), rng.choice([0, 0, 1, 2, 4, 8]) | rng.randrange(16) << 4])
        for _ in range(rng.randrange(1, 6)):
            data += serve_job(rng, rng.randrange(3), rng.choice([1, 2, 3]), is_damaged)
        if script % 8 == 0:
            data += b"".join(serve_step(rng.randrange(4), JOIN, 0, 0, 0) for _ in range(100))
        data += b"\xff"
        for _ in range(rng.randrange(3)):
            data += serve_job(rng, rng.choice([0, 3, 3]), rng.choice([1, 2, 2]), is_damaged)
        write(target, f"seed-{script:02d}", data)
        count += 1
    return target, count


def make(write, golden):
    return [decode_seeds(write, golden), roundtrip_seeds(write), server_seeds(write), serve_seeds(write)]
