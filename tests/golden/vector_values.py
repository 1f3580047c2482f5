"""Values for vectors: reproducible everywhere, so no use of Python's own generator, whose helpers may change.

SPDX-License-Identifier: BSD-2-Clause
"""

from frame_writer import FP16


class Rng:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed & (1 << 64) - 1

    def bits64(self):
        self.state = self.state + 0x9E3779B97F4A7C15 & (1 << 64) - 1
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
        z = (z ^ z >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
        return z ^ z >> 31

    def below(self, n):
        return self.bits64() % n  # the bias is of no interest here

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def one_in(self, n):
        return self.below(n) == 0

    def pick(self, items):
        return items[self.below(len(items))]

    def bytes(self, n):
        return bytes(self.below(256) for _ in range(n))


def octaves_down(rng, limit):
    """0 with probability 1/2, 1 with 1/4, ...: most gradients have few exponents."""
    bits = rng.bits64() | 1 << 63
    return min(limit, (bits & -bits).bit_length() - 1)


def plain_value(rng, dtype, top=None, spread=12):
    """A finite, normal value whose exponent field lies at most `spread` below top."""
    if top is None:
        top = 14 if dtype is FP16 else 120
    exponent = max(1, top - octaves_down(rng, spread))
    return dtype.bits(rng.below(2), exponent, rng.below(1 << dtype.mantissa_bits))


def special_values(dtype):
    """-0, subnormals, infinities, quiet and signalling NaN with payloads: everything that needs an escape in STRICT
    frames. The subnormals of fp16 are ordinary values and not here."""
    top, quiet = dtype.exponent_max + 1, 1 << dtype.mantissa_bits - 1
    values = [
        dtype.bits(1, 0, 0),
        dtype.bits(0, top, 0),
        dtype.bits(1, top, 0),
        dtype.bits(0, top, quiet),
        dtype.bits(1, top, quiet | 5),
        dtype.bits(0, top, 1),
        dtype.bits(1, top, quiet - 1),
    ]
    if dtype is not FP16:
        values += [dtype.bits(0, 0, 1), dtype.bits(1, 0, (1 << dtype.mantissa_bits) - 1), dtype.bits(0, 0, quiet)]
    return values


def truncated(format_, bits, drop):
    """Cut toward zero. Only a subnormal of fp16 can lose all its bits: it becomes +0."""
    magnitude_mask = (1 << format_.dtype.sign_bit) - 1
    cut = bits >> drop << drop
    return cut if cut & magnitude_mask or not bits & magnitude_mask else 0


def drop_by_level(format_, bits, level):
    """The drop of an explicit level, 0 where there is none to make."""
    d = format_.dtype
    _, exponent, _ = d.split(bits)
    if exponent > d.exponent_max or (exponent == 0 and d is not FP16):
        return 0
    return min(level * d.step, format_.cap)


def rounded(format_, values, levels=None, explicit_level=None):
    """Cuts values: by their map bytes or the constant (derived), by explicit_level(i) in explicit frames. Returns the
    rounded values and their drops."""
    d = format_.dtype
    result, drops = [], []
    for i, bits in enumerate(values):
        if format_.derived:
            drop = format_.derived_drop(d.split(bits)[1], levels[i] if format_.mapped else 0)
        else:
            drop = drop_by_level(format_, bits, explicit_level(i) if explicit_level else 0)
        cut = bits if d.split(bits)[1] > d.exponent_max else truncated(format_, bits, drop)
        if not format_.strict:
            _, exponent, mantissa = d.split(cut)
            if exponent == 0 and (d is not FP16 or mantissa == 0):
                cut = 0
        result.append(cut)
        drops.append(drop)
    return result, drops


def map_for(rng, format_, values):
    """Map bytes that cut about every depth, K = 0 and both ends included, and the drop_base they go with: that of a map
    of base 1..1023 for parameters of 23 mantissa bits."""
    d = format_.dtype
    octaves = []
    for bits in values:
        _, exponent, mantissa = d.split(bits)
        octaves.append(4 * ((max(exponent, 1) if d is FP16 and mantissa else exponent) + d.bias) + 3)
    lowest = 4 * (d.mantissa_bits - 23)
    wanted = min((octave for octave, bits in zip(octaves, values) if bits), default=0) - 20
    drop_base = min(max(wanted, lowest), lowest + 1022)
    levels = bytearray()
    for octave in octaves:
        if rng.one_in(16):
            levels.append(rng.pick((0, 1, 255)))
        else:
            want = octave - drop_base + rng.between(-8, 4 * d.mantissa_bits + 8)
            levels.append(min(255, max(0, want)))
    return bytes(levels), drop_base
