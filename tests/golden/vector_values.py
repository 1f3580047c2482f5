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


# The counter and key of stochastic vectors, as test_vectors.c passes them.
SEED, FIRST_ELEMENT, STEP_INDEX, RANK, HOP = 0x0123456789ABCDEF, (1 << 35) - 9, 7, 3, 2


def philox(counter, key):
    """Philox4x32-8: four words from four and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(8):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c0, c1, c2, c3


def random_word(index):
    """numerics.md section 4 for value `index` of a frame."""
    element = FIRST_ELEMENT + index & (1 << 64) - 1
    block = element // 8
    counter = block & 0xFFFFFFFF, block >> 32, STEP_INDEX, RANK << 16 | HOP
    word = philox(counter, (SEED & 0xFFFFFFFF, SEED >> 32))[element % 4]
    return word if element % 8 < 4 else (word & 0xFFFF) << 16 | word >> 16


def cut_low(format_, bits, drop, rounding, random):
    """numerics.md section 3: a finite value without its `drop` low bits."""
    d = format_.dtype
    sign, magnitude = bits >> d.sign_bit << d.sign_bit, bits & (1 << d.sign_bit) - 1
    down = magnitude >> drop << drop
    if rounding == "nearest" and drop:
        result = magnitude + (1 << drop - 1) - 1 + (magnitude >> drop & 1) >> drop << drop
    elif rounding == "stochastic":
        result = magnitude + (random >> 32 - drop) >> drop << drop
    else:
        result = down
    return sign | (down if result >> d.mantissa_bits > d.exponent_max else result)


def deep_cut(format_, bits, cut, rounding, random):
    """The same, Deep cut: 0 or the quantum for a value below it, None for others."""
    d = format_.dtype
    sign, exponent, mantissa = d.split(bits)
    if not format_.deep_cut or cut is None or exponent > d.exponent_max or (exponent == 0 and d is not FP16):
        return None
    own = (max(exponent, 1) if d is FP16 else exponent) + d.bias
    quantum = min(format_.quantum(cut), d.exponent_max + d.bias)
    if own >= quantum or exponent == mantissa == 0:
        return None
    significand = mantissa | (1 << d.mantissa_bits if exponent else 0)
    share = (significand << 32) // (1 << d.mantissa_bits + quantum - own)
    limit = {"truncate": 1 << 33, "nearest": 1 << 31, "stochastic": random}[rounding]
    return d.bits(sign, quantum - d.bias, 0) if share > limit else 0


def drop_by_level(format_, bits, level):
    """The drop of an explicit level, 0 where there is none to make."""
    d = format_.dtype
    _, exponent, _ = d.split(bits)
    if exponent > d.exponent_max or (exponent == 0 and d is not FP16):
        return 0
    return min(level * d.step, format_.cap)


def rounded(format_, values, levels=None, explicit_level=None, cuts=None, rounding="truncate"):
    """Cuts values: by their map bytes, their `cuts` or the constant, by explicit_level(i) in explicit frames. Returns
    the rounded values and their drops."""
    d = format_.dtype
    result, drops = [], []
    for i, bits in enumerate(values):
        random = random_word(i) if rounding == "stochastic" else None
        _, exponent, _ = d.split(bits)
        cut = cuts[i] if cuts else format_.cut(levels[i]) if format_.mapped else None
        if format_.fine:
            drop = format_.drop_at(exponent, cut)
        else:
            drop = drop_by_level(format_, bits, explicit_level(i) if explicit_level else 0)
        after = deep_cut(format_, bits, cut, rounding, random)
        if after is None:
            after = bits if exponent > d.exponent_max else cut_low(format_, bits, drop, rounding, random)
        _, exponent, mantissa = d.split(after)
        if not format_.strict and exponent == 0 and (d is not FP16 or mantissa == 0):
            after = 0
        if format_.fine:
            drop = format_.drop_at(exponent, cut)
        result.append(after)
        drops.append(drop)
    return result, drops


def explicit_level(format_, bits, map_byte, base):
    """numerics.md section 3: the drop steps of a value of an explicit frame with a map of this base."""
    d = format_.dtype
    _, exponent, mantissa = d.split(bits)
    if map_byte == 0 or exponent > d.exponent_max or (exponent == 0 and d is not FP16):
        return 0
    quarter = 4 * ((max(exponent, 1) if d is FP16 else exponent) + d.bias) + (mantissa >> d.mantissa_bits - 2)
    room = map_byte + base - 1 - 4 * (format_.tolerance_bits - d.mantissa_bits) - quarter
    return max(0, min(format_.cap, room // 4) // d.step)


def explicit_map_for(rng, format_, values, base):
    """Map bytes around the thresholds of the levels."""
    d = format_.dtype
    levels = bytearray()
    for bits in values:
        quarter = (bits & (1 << d.sign_bit) - 1) >> d.mantissa_bits - 2
        want = quarter + 4 * d.bias - base + 1 + 4 * (format_.tolerance_bits - d.mantissa_bits)
        want += 4 * d.step * rng.between(1, 3) + rng.between(-1, 2)
        levels.append(0 if rng.one_in(16) else min(255, max(0, want)))
    return bytes(levels)


def map_for(rng, format_, values):
    """Map bytes that cut about every depth, K = 0 and both ends included, and the drop_base they go with: that of a map
    of base 1..1023. With deep cuts half of the quanta are above their values."""
    d = format_.dtype
    octaves = []
    for bits in values:
        _, exponent, mantissa = d.split(bits)
        octaves.append(4 * ((max(exponent, 1) if d is FP16 and mantissa else exponent) + d.bias) + 3)
    lowest, highest = drop_bases(format_)
    wanted = min((octave for octave, bits in zip(octaves, values) if bits), default=0) - 20
    drop_base = min(max(wanted, lowest), highest)
    deepest = 4 * d.mantissa_bits + 8 + (40 if format_.deep_cut else 0)
    levels = bytearray()
    for octave in octaves:
        if rng.one_in(16):
            levels.append(rng.pick((0, 1, 255)))
        else:
            want = octave - drop_base + rng.between(-8, deepest)
            levels.append(min(255, max(0, want)))
    return bytes(levels), drop_base


def drop_bases(format_):
    """The smallest and largest drop_base that a map gives: base 1..1023."""
    lowest = 4 - 4 * (format_.tolerance_bits - format_.dtype.mantissa_bits)
    return lowest, lowest + 1022


def flat_map(format_, quantum, byte=128):
    """A map byte and drop_base of a quantum (an exponent in fp32's bias), or the nearest ones that a map can have; the
    byte is about the given one."""
    cut = format_.cut_of_quantum(quantum)
    lowest, highest = drop_bases(format_)
    drop_base = min(max(cut - byte, lowest), highest)
    return min(255, max(1, cut - drop_base)), drop_base


def quanta_for(rng, format_, values):
    """One quantum per block, near the exponents of its values; some 0, some far below the others."""
    d = format_.dtype
    block = 1 << format_.block_log2
    quanta = []
    for at in range(0, len(values), block):
        exponents = [d.split(bits)[1] for bits in values[at : at + block] if bits]
        exponents = [max(e, 1) for e in exponents if e <= d.exponent_max]
        top = max(exponents, default=1) + d.bias
        low, high = (-2, 6) if format_.deep_cut else (-d.mantissa_bits - 2, 1)
        quantum = min(d.exponent_max + d.bias, max(1, top - 3 + rng.between(low, high)))
        quanta.append(rng.pick((0, 1, max(1, quantum - 62), quantum)) if rng.one_in(6) else quantum)
    return bytes(quanta)
