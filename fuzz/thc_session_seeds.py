"""Seeds for fuzz_thc_session, called by make_corpus.py: a worker joins and runs rounds with a server that is right,
late, damaged, started anew, or leaves workers out."""

import random

OUTPUT, TIME, MESSAGE, ANSWER, RAW, LOST, LEAVE, SERVE = range(8)
DAMAGED = 8
CHALLENGE, WELCOME, REFUSED, AGAIN = 1, 2, 3, 4  # types, less one


def message(kind, epoch, more):
    what = next(what for what in range(epoch << 6, 256) if what % 6 == kind)
    return bytes([MESSAGE, what, more])


def script(rng, is_damaged):
    data = bytearray([rng.randrange(32)])
    data += bytes([OUTPUT]) + message(CHALLENGE, 0, rng.randrange(1, 256)) + bytes([OUTPUT])
    data += message(WELCOME, 1, 0x80 | 3 | rng.choice([0, 4, 8]))
    for _ in range(rng.randrange(1, 24)):
        fate = rng.randrange(16) if is_damaged else 15
        if fate == 0:
            data += bytes(
                [ANSWER | DAMAGED, rng.randrange(64), rng.randrange(11), rng.randrange(256), rng.randrange(256)]
            )
        elif fate == 1:
            data += message(AGAIN, 0, 0) + bytes([OUTPUT]) + message(WELCOME, rng.randrange(4), 3)
        elif fate == 2:
            data += bytes([RAW, 4, *rng.randbytes(4)])
        elif fate == 3:
            data += message(REFUSED, 1, rng.choice([3, 0x80 | rng.randrange(10)]))
        elif fate == 4:
            data += bytes([LOST]) + message(WELCOME, 2, 3)
        elif fate < 8:
            for block in rng.sample(range(11), rng.randrange(1, 11)):
                data += bytes(
                    [
                        ANSWER,
                        rng.randrange(2)
                        | rng.choice([2, 2, 0])
                        | rng.randrange(1, 8) << 3
                        | (rng.randrange(32) == 0) << 7,
                        block,
                    ]
                )
        data += bytes([rng.choice([SERVE, SERVE, OUTPUT]), TIME, rng.randrange(64)])
    return bytes(data + bytes([LEAVE]))


def make(write):
    target, count = "fuzz_thc_session", 48
    rng = random.Random(10)
    for number in range(count):
        write(target, f"seed-{number:02d}", script(rng, number % 4 != 0))
    return target, count
