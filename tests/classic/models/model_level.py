"""QSGD and TERNGRAD, from the papers and docs/numerics-classic.md "Level"."""

import numpy as np
from classic_numbers import F32, F64, U64, flush, fold, lane_sums, philox, root

PIECE = 4096


def blocks(n, block_len):
    return [(at, min(n, at + (block_len or n))) for at in range(0, n, block_len or n)]


def moments(x):
    """Sum of values and of squares."""
    s1 = s2 = F64(0)
    for at in range(0, len(x), PIECE):
        piece = x[at : at + PIECE].astype(F64)
        s1 += fold(lane_sums(piece))
        s2 += fold(lane_sums(piece * piece))
    return s1, s2


def norm_of(x, scheme, norm, clip):
    m = np.max(np.abs(x))
    s1, s2 = moments(x)
    n = F64(len(x))
    if scheme == "qsgd":
        value = F32(root(s2)) if norm == 0 and s2 > 0 else m
    else:
        value = m
        variance = (s2 - s1 * s1 / n) / n
        if clip > 0 and variance > s2 / n * 2.0**-32:
            value = min(m, F32(F32(clip) * F32(root(variance))))
    return F32(0) if value < F32(2.0**-100) else value


def norms(p, options, scheme):
    return np.array(
        [norm_of(p[a:b], scheme, options["norm"], options["clip"]) for a, b in blocks(len(p), options["block_len"])],
        F32,
    )


def random16(n, seed, round_, rank, element_first):
    e = np.arange(n, dtype=U64) + U64(element_first)
    place = (e % U64(128)).astype(np.int64)
    w, h, lane = place // 32, place // 16 % 2, place % 16
    c = U64(16) * (e // U64(128)) + lane.astype(U64)
    words = np.stack(philox(seed, c & U64(0xFFFFFFFF), (c >> U64(32)) | U64(0x20000000), round_, rank))
    return (words[w, np.arange(n)] >> (U64(16) * h.astype(U64))) & U64(0xFFFF)


def per_value(norms_, n, block_len):
    return np.repeat(norms_, [b - a for a, b in blocks(n, block_len)])


def positions(p, norms_, s, block_len):
    """P of every value: 65536 times the mean of its level's magnitude."""
    with np.errstate(divide="ignore"):
        scales = np.where(norms_ > 0, F32(65536 * s) / norms_, F32(0)).astype(F32)
    with np.errstate(over="ignore"):
        at = np.abs(p) * per_value(scales, len(p), block_len) + F32(0.5)
    return np.minimum(at, F32(65536 * s)).astype(np.int64)


def levels(p, norms_, s, block_len, random):
    magnitude = (positions(p, norms_, s, block_len) + random.astype(np.int64)) >> 16
    return np.where(p < 0, -magnitude, magnitude)


def decoded(levels_, norms_, s, block_len):
    steps = (norms_ / F32(s)).astype(F32)
    return (levels_.astype(F32) * per_value(steps, len(levels_), block_len)).astype(F32) + F32(0)


def packed(levels_, s):
    width = (2 * s).bit_length()
    bits = ((levels_ + s)[:, None] >> np.arange(width)) & 1
    flat = np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()
    return flat + bytes(-len(flat) % 4)


def input_of(x, residual):
    return flush(x) if residual is None else flush(flush(x) + flush(residual))


def omega(n):
    """Elias' omega code of n >= 1 as text (Elias, 1975)."""
    text = "0"
    while n > 1:
        digits = f"{n:b}"
        text = digits + text
        n = len(digits) - 1
    return text


def elias_run(levels_):
    """The run of one chunk (docs/format-classic.md section 5.2) with its head."""
    text, last = [], -1
    places = np.flatnonzero(levels_)
    for place in places:
        level = int(levels_[place])
        text += [omega(int(place) - last), "1" if level < 0 else "0", omega(abs(level))]
        last = int(place)
    bits = np.frombuffer("".join(text).encode(), np.uint8) - ord("0")
    run = np.packbits(bits, bitorder="little").tobytes()
    return len(places).to_bytes(2, "little") + bytes(2) + run + bytes(-len(run) % 4)
