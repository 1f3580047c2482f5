"""Number formats and random bits of docs/numerics-classic.md "Common rules", and the data of the checks."""

import os
import sys

import numpy as np

F32, F64, U32, U64 = np.float32, np.float64, np.uint32, np.uint64
LEAST = 2.0**-126


def bits_of(x):
    return np.ascontiguousarray(x, F32).view(U32)


def flush(x):
    """Subnormals and -0 as +0."""
    x = np.asarray(x, F32)
    return np.where(np.abs(x) < F32(LEAST), F32(0), x)


def narrow(x):
    """fp64 to fp32; magnitudes below 2^-126 are +0."""
    x = np.asarray(x, F64)
    with np.errstate(over="ignore"):
        return np.where(np.abs(x) < LEAST, F32(0), x.astype(F32))


def product(a, b):
    """Narrow of the exact product of two fp32 numbers."""
    return narrow(np.asarray(a, F32).astype(F64) * np.asarray(b, F32).astype(F64))


def root(v):
    """The root of "Level" and of clipping: an fp32 mantissa in [1, 2] times 2^k."""
    k = (int(np.frexp(v)[1]) - 1) // 2
    return F64(np.sqrt(F32(np.ldexp(F64(v), -2 * k)))) * F64(2.0) ** k


def lane_sums(x, lanes=16):
    """Accumulator j adds elements j, j + lanes, ..., in this order."""
    rows = -(-len(x) // lanes)
    padded = np.zeros(rows * lanes, F64)
    padded[: len(x)] = x
    return np.cumsum(padded.reshape(rows, lanes), axis=0)[-1] if rows else np.zeros(lanes)


def fold(lanes):
    lanes = lanes.copy()
    half = len(lanes) // 2
    while half:
        lanes = lanes[:half] + lanes[half:]
        half //= 2
    return lanes[0]


def bf16_bits(x):
    """fp32 that is not NaN to bf16, to nearest even."""
    b = bits_of(x).astype(U64)
    return ((b + 0x7FFF + (b >> U64(16) & U64(1))) >> U64(16)).astype(np.uint16)


def widen(x, dtype):
    if dtype == 2:
        return (x.astype(U32) << U32(16)).view(F32)
    return x.astype(F32)


def to_dtype(x, dtype):
    with np.errstate(over="ignore"):
        return bf16_bits(x) if dtype == 2 else x.astype(np.float16) if dtype == 3 else np.asarray(x, F32)


def philox(seed, c0, c1, c2, c3):
    """Philox4x32-10: four words for each counter (Salmon et al., SC 2011)."""
    c = [np.broadcast_to(np.asarray(w, U64) & U64(0xFFFFFFFF), np.shape(c0)).copy() for w in (c0, c1, c2, c3)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * U64(0xD2511F53), c[2] * U64(0xCD9E8D57)
        low = U64(0xFFFFFFFF)
        c = [(b >> U64(32)) ^ c[1] ^ U64(key[0]), b & low, (a >> U64(32)) ^ c[3] ^ U64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


LENGTHS = (1, 2, 7, 16, 63, 130, 511, 4096, 4097, 20001)


def data_sets(folder, rng):
    """(name, fp32 values): real gradients, and random ones with extremes."""
    for name in sorted(os.listdir(folder)):
        if name.endswith("-grad.npy"):
            x = np.load(os.path.join(folder, name)).astype(F32)
            at = int(rng.integers(0, max(1, len(x) - 50000)))
            yield name, x[at : at + 50000]
    for n in LENGTHS:
        yield f"normal {n}", rng.normal(0, 1e-3, n).astype(F32)
    n = 9001
    yield "zeros", np.zeros(5000, F32)
    yield "wide exponents", (rng.normal(0, 1, n) * 10.0 ** rng.uniform(-40, 15, n)).astype(F32)
    small = rng.integers(0, 0x01000000, n).astype(U32) | (rng.integers(0, 2, n).astype(U32) << U32(31))
    yield "subnormals and the least numbers", small.view(F32)
    yield "ties", rng.choice(np.array([-2, -1, -0.0, 0, 1, 2], F32), n)
    spikes = rng.normal(0, 1e-6, n).astype(F32)
    spikes[rng.integers(0, n, 5)] = 1e18
    yield "spikes", spikes
    # The mean is a tie of fp32, unless the ones are added before they meet 2^53: the order of sums shows.
    order = np.zeros(8192, F32)
    order[0], order[1], order[2048:4096:16] = 2.0**53, 2.0**29, 1
    yield "order of sums", order
    yield "equal", np.full(3000, -0.375, F32)


class Check:
    """Counts comparisons; prints the first ones that fail."""

    def __init__(self):
        self.count = self.failed = 0

    def that(self, condition, text):
        self.count += 1
        if not condition:
            self.failed += 1
            if self.failed <= 20:
                print("FAILED:", text)

    def same(self, a, b, text):
        """Equal bits."""
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        if not same and a.shape == b.shape and a.dtype == b.dtype:
            kind = {2: np.uint16, 4: U32}.get(a.dtype.itemsize, np.uint8)
            where = np.flatnonzero(a.view(kind) != b.view(kind))
            text += f": {len(where)} of {a.size} differ, the first at {where[0]}: {a[where[0]]} {b[where[0]]}"
        self.that(same, text)

    def end(self, calls, least):
        status = calls.close()
        self.that(status == 0, f"classic_calls: status {status}")
        self.that(self.count >= least, f"only {self.count} comparisons, expected {least}")
        print(f"{self.count} comparisons, {self.failed} failed")
        return self.failed != 0


def feedback_bound(check, name, steps, length, encode_step):
    """Over many steps: what was sent, and the residual, is the sum of the inputs but for the roundings of fp32.

    encode_step(step, residual) returns (input, sent, new residual). A step rounds p = x + residual and p - sent, each
    by at most 2^-24 of its magnitude, or 2^-126 where a result is flushed; sums here are in fp64.
    """
    inputs, sent_sum, bound = np.zeros(length), np.zeros(length), np.zeros(length)
    residual = np.zeros(length, F32)
    for step in range(steps):
        before = residual
        x, sent, residual = encode_step(step, residual)
        inputs += x.astype(F64)
        sent_sum += sent.astype(F64)
        p = np.abs(x.astype(F64) + before.astype(F64))
        bound += 2.0**-24 * (p * (1 + 2.0**-20) + np.abs(residual.astype(F64))) * (1 + 2.0**-20) + 3 * LEAST
    error = np.abs(inputs - (sent_sum + residual.astype(F64)))
    check.that(bool(np.all(error <= bound + 2.0**-50 * steps * np.abs(inputs))), f"{name}: lost {error.max()}")
    check.that(bool(np.any(sent_sum != 0)), f"{name}: nothing was sent")
    # The bound notices one lost value.
    check.that(bool(np.max(np.abs(residual)) > np.max(bound)), f"{name}: the bound is too wide to say anything")


def samples_of(folder):
    return np.load(os.path.join(folder, "resnet50-sgdm-step0400-grad.npy")).astype(F32)


def arguments():
    program, folder = sys.argv[1:]
    return program, folder
