"""SIGNSGD, EFSIGNSGD, SIGNUM, ONEBIT and votes, from the papers and docs/numerics-classic.md "Sign"."""

import numpy as np
from classic_numbers import F32, F64, U64, flush, fold, lane_sums, narrow, philox

PIECE = 4096


def negative_and_other_sums(x, first):
    """Sums of x = elements first... of the tensor, in pieces that end at multiples of PIECE."""
    sums = [F64(0), F64(0)]
    at = 0
    while at < len(x):
        end = min(len(x), at + PIECE - (first + at) % PIECE)
        piece = x[at:end].astype(F64)
        sums[0] += fold(lane_sums(np.where(piece < 0, piece, 0)))
        sums[1] += fold(lane_sums(np.where(piece < 0, 0, piece)))
        at = end
    return sums


def mean(total, count):
    return F32(0) if count == 0 else F32(narrow(total / F64(count)))


def one_scale(p):
    negative, other = negative_and_other_sums(p, 0)
    return mean(other - negative, len(p))


def columns(n, column_len):
    return [(at, min(n, at + column_len)) for at in range(0, n, column_len or n)] if column_len else [(0, n)]


def onebit_scales(p, column_len):
    """Pairs (of the negative, of the others)."""
    scales = []
    for first, end in columns(len(p), column_len):
        part = p[first:end]
        negative, other = negative_and_other_sums(part, first)
        count = int(np.sum(part < 0))
        scales.append((mean(-negative, count), mean(other, len(part) - count)))
    return scales


def decoded(p, scales, column_len):
    out = np.empty(len(p), F32)
    for (first, end), (negative, other) in zip(columns(len(p), column_len), scales):
        out[first:end] = np.where(p[first:end] < 0, -negative + F32(0), other)
    return flush(out)


def momentum_step(m, x, beta):
    rest = F32(1) - F32(beta)
    return narrow(F64(F32(beta)) * flush(m).astype(F64) + F64(rest) * flush(x).astype(F64))


def tie_bits(n, seed, round_, element_first):
    e = np.arange(n, dtype=U64) + U64(element_first)
    c = e // U64(128)
    words = np.stack(philox(seed, c & U64(0xFFFFFFFF), (c >> U64(32)) | U64(0x40000000), round_, 0))
    bit = (e % U64(128)).astype(np.int64)
    return (words[bit // 32, np.arange(n)] >> (bit % 32).astype(U64)) & U64(1)


def payload(p, scales):
    bits = np.packbits(p < 0, bitorder="little").tobytes()
    return b"".join(F32(s).tobytes() for s in scales) + bits
