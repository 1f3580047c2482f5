#!/usr/bin/env python3
"""Decodes frames of the classic codecs, slowly, as docs/format-classic.md says. Python 3, standard library and, for
the parts that the format shares with GCOMP, gw_decode.py beside it.

    classic_decode.py FRAME.gw [-o OUT.bin] [--count-limit N]

Prints the status on standard output: "OK" or the name of the code. OUT.bin gets the raw little-endian values. Exit
code 0 for OK, 1 otherwise.
"""

import argparse
import math
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gw_decode  # noqa: E402
from gw_decode import Cursor, Rejected, has_padding, numbers_of, reject_if, round_up, u16, u32, u64  # noqa: E402

FP16, BF16, TOPK, DGC, RANDK, SIGNSGD, EFSIGNSGD, SIGNUM, ONEBIT, QSGD, TERNGRAD = range(1, 12)
CHECKSUM, UNBIASED, SHARED, VOTE = 1, 2, 4, 8
CAST, SPARSE, LEVEL = (FP16, BF16), (TOPK, DGC, RANDK), (QSGD, TERNGRAD)
CHUNK_LEN = 1 << 15


# ------------------------------------------------------------------------------------------------------------- numbers


def from_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def f32(x):
    """A double rounded to fp32."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def narrow(x):
    return 0.0 if abs(x) < 2.0**-126 else f32(x)


def half_number(bits, dtype):
    return from_bits(bits << 16) if dtype == 2 else struct.unpack("<e", struct.pack("<H", bits))[0]


def to_half(x, dtype):
    """Nearest even in bf16 (2) or fp16 (3); the sign of 0 stays, NaN is canonical."""
    if math.isnan(x):
        return 0x7FC0 if dtype == 2 else 0x7E00
    if dtype == 2:
        bits = struct.unpack("<I", struct.pack("<f", x))[0]
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    try:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    except OverflowError:
        return 0xFC00 if x < 0 else 0x7C00


def store(values, dtype, keeps_zero_sign=False):
    """Bytes of numbers in a dtype."""
    if not keeps_zero_sign:
        values = [x + 0.0 if x else 0.0 for x in values]
    if dtype == 1:
        words = [0x7FC00000 if math.isnan(x) else struct.unpack("<I", struct.pack("<f", x))[0] for x in values]
        return struct.pack("<%dI" % len(words), *words)
    halves = [to_half(x, dtype) for x in values]
    if not keeps_zero_sign:
        halves = [0 if h == 0x8000 else h for h in halves]
    return struct.pack("<%dH" % len(halves), *halves)


# -------------------------------------------------------------------------------------------------------------- header


class Header:
    def __init__(self, data):
        reject_if(len(data) < 32, "SHORT")
        reject_if(data[0:4] != b"gWf\x1a", "MAGIC")
        reject_if(data[4] >> 4 < data[4] & 15, "HEADER")
        reject_if(data[4] & 15 > 0, "VERSION")
        reject_if(data[5] != 3 or data[6] not in (1, 2, 3), "UNSUPPORTED")
        reject_if(data[7] != 0, "HEADER")
        self.dtype, self.flags, self.scheme = data[6], u16(data, 8), data[12]
        reject_if(self.flags > 15 or not 1 <= self.scheme <= 11, "UNSUPPORTED")
        self.ignorable = data[10]
        self.count, self.frame_size = u64(data, 16), u64(data, 24)
        reject_if(data[11] < 6 or self.count > 1 << 32, "HEADER")
        reject_if(len(data) < 80, "SHORT")
        self.values, self.coding, self.norm = data[13:16]
        self.seed, self.element_first, self.keep_len = (u64(data, at) for at in (32, 40, 48))
        self.round, self.rank, self.block_len, self.level_max = (u32(data, at) for at in (56, 60, 64, 68))
        self.payload_size, self.payload_at = u64(data, 72), 32 + 8 * data[11]
        self.crc_size = 4 if self.flags & CHECKSUM else 0
        reject_if(self.element_first + self.count >= 1 << 64, "HEADER")
        reject_if(self.frame_size != round_up(self.payload_at + self.payload_size + self.crc_size, 16), "HEADER")
        reject_if(self.count == 0 and self.payload_size != 0, "HEADER")
        self.check_scheme()

    def blocks(self):
        return -(-self.count // self.block_len) if self.block_len else min(self.count, 1)

    def check_scheme(self):
        if self.scheme in SPARSE:
            self.check_sparse()
        elif self.scheme in LEVEL:
            self.check_level()
        else:
            self.check_plain()

    def allow(self, flags):
        reject_if(self.flags & ~(flags | CHECKSUM), "HEADER")

    def check_plain(self):
        self.allow(VOTE if self.scheme in (SIGNSGD, SIGNUM) else 0)
        reject_if(self.values or self.coding or self.norm or self.level_max or self.keep_len, "HEADER")
        reject_if(self.block_len > (1 << 30 if self.scheme == ONEBIT else 0), "HEADER")
        size = 2 * self.count if self.scheme in CAST else 4 * self.scales() + (self.count + 7) // 8
        reject_if(self.payload_size != size, "HEADER")

    def scales(self):
        return {EFSIGNSGD: min(self.count, 1), ONEBIT: 2 * self.blocks()}.get(self.scheme, 0)

    def check_sparse(self):
        reject_if(self.values > 2, "UNSUPPORTED")
        self.allow(UNBIASED if self.scheme == RANDK else 0)
        reject_if(self.coding or self.norm or self.level_max or self.block_len, "HEADER")
        reject_if(self.keep_len > self.count or (self.keep_len == 0) != (self.count == 0), "HEADER")
        if self.scheme == RANDK:
            reject_if(self.values == 2 or self.payload_size != (4, 2)[self.values] * self.keep_len, "HEADER")

    def check_level(self):
        reject_if(self.coding > 2 or self.norm > 1, "UNSUPPORTED")
        self.allow(SHARED)
        reject_if(self.values or self.keep_len, "HEADER")
        reject_if(self.scheme == TERNGRAD and (self.norm != 1 or self.level_max != 1), "HEADER")
        reject_if(not 1 <= self.level_max <= 127, "HEADER")
        reject_if(self.block_len % 64 or self.block_len > 1 << 30, "HEADER")
        packed = sum(self.packed_size(n) for n in self.chunks())
        least = 4 * self.blocks() + (4 * len(self.chunks()) if self.coding else 0)
        reject_if(self.payload_size < least + (0 if self.coding else packed), "HEADER")
        reject_if(self.payload_size > least + packed, "HEADER")

    def width(self):
        return (2 * self.level_max).bit_length()

    def chunks(self):
        return [min(CHUNK_LEN, self.count - at) for at in range(0, self.count, CHUNK_LEN)]

    def packed_size(self, length):
        return round_up((length * self.width() + 7) // 8, 4)


# ---------------------------------------------------------------------------------------------------------------- cast


def decode_cast(header, payload):
    wire = 3 if header.scheme == FP16 else 2
    numbers = [half_number(h, wire) for (h,) in struct.iter_unpack("<H", payload)]
    return store(numbers, header.dtype, keeps_zero_sign=True)


# ---------------------------------------------------------------------------------------------------------------- sign


def decode_sign(header, payload):
    scales = [u32(payload, 4 * i) for i in range(header.scales())]
    for bits in scales:
        reject_if(bits != 0 and not 0x00800000 <= bits < 0x7F800000, "CORRUPT")
    bits = payload[4 * len(scales) :]
    reject_if(has_padding(bits, header.count), "CORRUPT")
    scales = [from_bits(b) for b in scales]
    values = []
    for i, negative in enumerate(numbers_of(bits, 1, header.count)):
        if header.scheme == ONEBIT:
            column = i // header.block_len if header.block_len else 0
            values.append(-scales[2 * column] if negative else scales[2 * column + 1])
        else:
            scale = scales[0] if scales else 1.0
            values.append(-scale if negative else scale)
    return store(values, header.dtype)


# -------------------------------------------------------------------------------------------------------------- sparse


class Bits:
    """A bit string, read from its first bit on."""

    def __init__(self, data):
        self.number, self.left, self.size = int.from_bytes(data, "little"), 8 * len(data), 8 * len(data)

    def take(self, width):
        reject_if(width > self.left, "CORRUPT")
        result = self.number & (1 << width) - 1
        self.number >>= width
        self.left -= width
        return result

    def zeros(self):
        """Zero bits before the next one, which is read, too."""
        reject_if(self.number == 0, "CORRUPT")
        count = (self.number & -self.number).bit_length() - 1
        self.take(count + 1)
        return count

    def end(self, unit):
        """What is left is zero and less than a unit."""
        reject_if(self.number != 0 or self.left >= unit, "CORRUPT")


def gap_positions(header, tables, stream):
    positions, at = [], -1
    for i in range(header.keep_len):
        b = tables[i // 512]
        reject_if(b > 31, "CORRUPT")
        gap = stream.zeros() << b
        at += 1 + gap + stream.take(b)
        reject_if(at >= header.count, "CORRUPT")
        positions.append(at)
    return positions


def class_codes(table):
    """{code as a string of bits: (first byte of the class in MASK_BYTES, width)}"""
    lengths = numbers_of(table, 4, 10)
    reject_if(max(lengths) > 9, "CORRUPT")
    used = sorted((length, number) for number, length in enumerate(lengths) if length)
    firsts = [sum(1 << w for w in gw_decode.CLASS_WIDTHS[:c]) for c in range(10)]
    if len(used) == 1:
        reject_if(used[0][0] != 1, "CORRUPT")
        return {"": (firsts[used[0][1]], gw_decode.CLASS_WIDTHS[used[0][1]])}
    reject_if(sum(2.0**-length for length, _ in used) != 1.0, "CORRUPT")
    codes, code, last = {}, 0, 0
    for length, number in used:
        code <<= length - last
        last = length
        codes[format(code, "0%db" % length)] = (firsts[number], gw_decode.CLASS_WIDTHS[number])
        code += 1
    return codes


def mask_positions(header, tables, stream):
    mask = bytearray()
    for i in range((header.count + 7) // 8):
        if i % 2048 == 0:
            codes = class_codes(tables[i // 2048 * 5 : i // 2048 * 5 + 5])
        code = ""
        while code not in codes:
            code += str(stream.take(1))
        first, width = codes[code]
        mask.append(gw_decode.MASK_BYTES[first + stream.take(width)])
    reject_if(has_padding(mask, header.count), "CORRUPT")
    positions = [i for i, bit in enumerate(numbers_of(mask, 1, header.count)) if bit]
    reject_if(len(positions) != header.keep_len, "CORRUPT")
    return positions


def read_positions(header, payload):
    """Positions, and the bytes after them."""
    reject_if(len(payload) < 8, "CORRUPT")
    kind, words = payload[0], u64(payload, 0) >> 8
    reject_if(kind > 1, "CORRUPT")
    tables_size = -(-header.keep_len // 512) if kind == 0 else 5 * -(-((header.count + 7) // 8) // 2048)
    stream_at = 8 + round_up(tables_size, 8)
    end = stream_at + 8 * words
    reject_if(end > len(payload) or any(payload[8 + tables_size : stream_at]), "CORRUPT")
    stream = Bits(payload[stream_at:end])
    positions = (gap_positions, mask_positions)[kind](header, payload[8 : 8 + tables_size], stream)
    stream.end(64)
    return positions, payload[end:]


def philox(seed, counter):
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ counter[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return counter


def random_positions(header):
    inverted = header.keep_len > header.count // 2
    wanted = header.count - header.keep_len if inverted else header.keep_len
    chosen, draw = set(), 0
    domain = 0x60000000 + (header.element_first >> 32) % (1 << 29)
    while len(chosen) < wanted and draw // 2 < min(2 * wanted + 4096, 1 << 32):
        words = philox(header.seed, [draw // 2, domain, header.round, header.element_first & 0xFFFFFFFF])
        number = words[2 * (draw % 2)] | words[2 * (draw % 2) + 1] << 32
        chosen.add(number * header.count >> 64)
        draw += 1
    at = 0
    while len(chosen) < wanted:
        chosen.add(at)
        at += 1
    return [i for i in range(header.count) if (i in chosen) != inverted]


def read_values(header, data):
    if header.values == 2:
        status, _, words = gw_decode.decode(data)
        reject_if(status != "OK" or data[6] != 1 or u16(data, 8) & (2 | 4 | 16 | 32), "CORRUPT")
        numbers = [from_bits(word) for word in words]
    else:
        size = (4, 2)[header.values]
        reject_if(len(data) != size * header.keep_len, "CORRUPT")
        numbers = [x for (x,) in struct.iter_unpack("<f" if size == 4 else "<e", data)]
    reject_if(len(numbers) != header.keep_len, "CORRUPT")
    reject_if(not all(math.isfinite(x) for x in numbers), "CORRUPT")
    return [0.0 if abs(x) < 2.0**-126 else x for x in numbers]


def decode_sparse(header, payload):
    if header.scheme == RANDK:
        positions, rest = random_positions(header), payload
    else:
        positions, rest = read_positions(header, payload)
    factor = f32(header.count / header.keep_len) if header.flags & UNBIASED else None
    values = [0.0] * header.count
    for at, x in zip(positions, read_values(header, rest)):
        values[at] = x if factor is None else narrow(factor * x)
    return store(values, header.dtype)


# --------------------------------------------------------------------------------------------------------------- level


def read_mask(cursor, length):
    table = cursor.take(8)
    if not any(table):
        return numbers_of(cursor.take_run(length, 1), 1, length)
    tree = gw_decode.Tree(gw_decode.mask_leaves(table))
    counts = cursor.take(round_up(2 * len(tree.inner_nodes), 4))
    reject_if(has_padding(counts, 16 * len(tree.inner_nodes)), "CORRUPT")
    gw_decode.share_out(tree, (length + 7) // 8, iter(numbers_of(counts, 16, len(tree.inner_nodes))))
    for node in tree.preorder:
        node.run = cursor.take_run(node.values, node.leaf.width if node.leaf else 1)
    mask = bytes(gw_decode.symbols_of(tree))
    reject_if(has_padding(mask, length), "CORRUPT")
    return numbers_of(mask, 1, length)


def mask_chunk(header, data, length):
    cursor = Cursor(data)
    coded_len, above_len = numbers_of(cursor.take(4), 16, 2)
    reject_if(not 1 <= coded_len <= length or (header.level_max == 1 and above_len != 0), "CORRUPT")
    is_coded = read_mask(cursor, length)
    reject_if(sum(is_coded) != coded_len, "CORRUPT")
    signs = numbers_of(cursor.take_run(coded_len, 1), 1, coded_len)
    magnitudes = [1] * coded_len
    if header.level_max > 1:
        magnitudes = [1 + bit for bit in read_mask(cursor, coded_len)]
        reject_if(sum(magnitudes) - coded_len != above_len, "CORRUPT")
    if header.level_max > 2:
        width = (header.level_max - 2).bit_length()
        above = iter(numbers_of(cursor.take_run(above_len, width), width, above_len))
        magnitudes = [next(above) + 2 if m == 2 else 1 for m in magnitudes]
    reject_if(any(m > header.level_max for m in magnitudes) or cursor.at != len(data), "CORRUPT")
    coded = iter(-m if s else m for m, s in zip(magnitudes, signs))
    return [next(coded) if bit else 0 for bit in is_coded]


def elias(bits):
    n = 1
    while bits.take(1):
        reject_if(n > 64, "CORRUPT")
        digits = [bits.take(1) for _ in range(n)]
        n = int("1" + "".join(map(str, digits)), 2)
    return n


def elias_chunk(header, data, length):
    cursor = Cursor(data)
    coded_len, zero = numbers_of(cursor.take(4), 16, 2)
    reject_if(not 1 <= coded_len <= length or zero != 0, "CORRUPT")
    bits, levels, at = Bits(data[4:]), [0] * length, -1
    for _ in range(coded_len):
        at += elias(bits)
        reject_if(at >= length, "CORRUPT")
        sign = bits.take(1)
        magnitude = elias(bits)
        reject_if(magnitude > header.level_max, "CORRUPT")
        levels[at] = -magnitude if sign else magnitude
    bits.end(32)
    return levels


def packed_chunk(header, data, length):
    reject_if(has_padding(data, length * header.width()), "CORRUPT")
    numbers = numbers_of(data, header.width(), length)
    reject_if(any(x > 2 * header.level_max for x in numbers), "CORRUPT")
    return [x - header.level_max for x in numbers]


def read_levels(header, data):
    lengths = header.chunks()
    if header.coding == 0:
        return packed_chunk(header, data, header.count)
    at, levels = 4 * len(lengths), []
    for i, length in enumerate(lengths):
        entry = u32(data, 4 * i)
        size, is_coded = entry & ~1, entry & 1
        packed = header.packed_size(length)
        reject_if(size % 4 or (size >= packed if is_coded else size != packed), "CORRUPT")
        reject_if(size > len(data) - at, "CORRUPT")
        chunk = data[at : at + size]
        at += size
        if not is_coded:
            levels += packed_chunk(header, chunk, length)
        elif size == 0:
            levels += [0] * length
        else:
            levels += (mask_chunk, elias_chunk)[header.coding - 1](header, chunk, length)
    reject_if(at != len(data), "CORRUPT")
    return levels


def decode_level(header, payload):
    patterns = [u32(payload, 4 * i) for i in range(header.blocks())]
    norms = [from_bits(bits) for bits in patterns]
    for bits, norm in zip(patterns, norms):
        limit = norm <= 65504 if header.dtype == 3 else norm < 2.0**127
        reject_if(bits != 0 and not (norm >= 2.0**-100 and limit), "CORRUPT")
    levels = read_levels(header, payload[4 * len(norms) :])
    steps = [f32(norm / header.level_max) for norm in norms]
    values = []
    for i, level in enumerate(levels):
        step = steps[i // header.block_len if header.block_len else 0]
        reject_if(step == 0.0 and level != 0, "CORRUPT")
        values.append(f32(level * step) if level else 0.0)
    return store(values, header.dtype)


# --------------------------------------------------------------------------------------------------------------- frame


def decode(data, count_limit=1 << 32):
    """(status, bytes of the values); the values are zeros if the content is bad, and missing after other errors."""
    try:
        header = Header(data)
        reject_if(header.count > count_limit, "LIMIT")
        reject_if(len(data) < header.frame_size, "SHORT")
        reject_if(len(data) > header.frame_size, "TRAILING")
        gw_decode.ignorable_parts(header.ignorable, data[80 : header.payload_at])  # this decoder knows none
        payload_end = header.payload_at + header.payload_size
        reject_if(any(data[payload_end : len(data) - header.crc_size]), "HEADER")
    except Rejected as rejection:
        return rejection.args[0], b""
    zeros = bytes(header.count * (4 if header.dtype == 1 else 2))
    if header.crc_size and gw_decode.crc32c(data[:-4]) != u32(data, len(data) - 4):
        return "CHECKSUM", zeros
    if header.count == 0:
        return "OK", b""
    family = decode_sign
    if header.scheme in CAST:
        family = decode_cast
    elif header.scheme in SPARSE:
        family = decode_sparse
    elif header.scheme in LEVEL:
        family = decode_level
    try:
        return "OK", family(header, data[header.payload_at : payload_end])
    except Rejected:
        return "CORRUPT", zeros


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("frame", metavar="FRAME.gw")
    parser.add_argument("-o", "--output", metavar="OUT.bin")
    parser.add_argument("--count-limit", type=int, default=1 << 32, metavar="N")
    options = parser.parse_args()
    with open(options.frame, "rb") as f:
        status, values = decode(f.read(), options.count_limit)
    print(status)
    if options.output and status == "OK":
        with open(options.output, "wb") as f:
            f.write(values)
    return 0 if status == "OK" else 1


if __name__ == "__main__":
    sys.exit(main())
