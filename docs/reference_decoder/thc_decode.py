#!/usr/bin/env python3
"""Decodes THC frames, slowly, as docs/format-thc.md and docs/numerics-thc.md say. Python 3, standard library only.

    thc_decode.py FRAME.gw [-o OUT.bin] [--sum]

Prints the status on standard output: "ok", or the name of the code and, for content errors, the lowest bad block.
OUT.bin gets the raw little-endian values. Exit code 0 for ok, 1 otherwise.
"""

import argparse
import struct
import sys

SUM, ROTATED, NONFINITE, CHECKSUM, BLOCK_SETS = 1, 2, 4, 8, 16
MASK32 = 0xFFFFFFFF
DTYPE_SIZE = {1: 4, 2: 2, 3: 2}


class Reject(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


def need(condition, code):
    if not condition:
        raise Reject(code)


# ---------------------------------------------------------------------------------------------- fp32 arithmetic


def f32(x):
    """A double rounded to fp32; beyond the largest fp32 it is infinite. Exact enough: the double result of one +, -
    or * of fp32 numbers, rounded again, is the correctly rounded fp32 result."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def from_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


# ---------------------------------------------------------------------------------------------- checks of the header


def crc32c(data):
    crc = MASK32
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ MASK32


class Frame:
    def __init__(self, data):
        self.data = data
        need(len(data) >= 32, "short")
        need(data[:4] == b"gWf\x1a", "magic")
        need(data[4] >> 4 >= data[4] & 15, "header")
        need(data[4] & 15 == 0, "version")
        codec, self.dtype, self.log2 = data[5], data[6], data[7]
        self.flags, ignorable, units, self.blocks, self.count, self.size = struct.unpack_from("<HBBIQQ", data, 8)
        self.patterns_at = 32 + 8 * units
        need(codec == 2 and self.dtype in DTYPE_SIZE, "unsupported")
        need(6 <= self.log2 <= 13, "header")
        need(self.flags < 32, "unsupported")
        need(self.flags & SUM or not self.flags & BLOCK_SETS, "header")
        need(self.patterns_at >= 96, "header")
        need(self.blocks == -(-self.count >> self.log2), "header")
        need(len(data) >= 96, "short")
        self.bits, self.g, self.lane_bits, zero = data[32:36]
        self.n, self.rank, self.t_bits, self.first, self.round, self.job = struct.unpack_from("<HHIIII", data, 36)
        self.seed = struct.unpack_from("<Q", data, 56)[0]
        self.table = data[64:80]
        need(1 <= self.bits <= 4, "header")
        need(zero == 0, "header")
        need(self.n >= 1 and self.lane_bits in (8, 16, 32), "header")
        need(self.n * self.g <= min(2**self.lane_bits - 1, 2**23), "overflow")
        if self.flags & SUM:
            need(self.rank == 0, "header")
        else:
            need(self.rank < self.n, "dup")
        last = 2**self.bits - 1
        need(self.table[0] == 0 and self.table[last] == self.g, "table")
        need(all(self.table[z] < self.table[z + 1] for z in range(last)), "table")
        need(not any(self.table[last + 1 :]), "table")
        if self.flags & ROTATED:
            need(0x3D800000 <= self.t_bits <= 0x40800000, "header")
        else:
            need(self.t_bits == 0, "header")
        need(self.first + self.blocks <= 2**32, "header")
        need(not any(data[80:96]), "header")
        self.place()
        need(self.size == self.round16(self.payload_end + self.crc_size), "header")
        need(len(data) >= self.size, "short")
        need(len(data) <= self.size, "trailing")
        self.check_ignorable(ignorable, data[96 : self.patterns_at])
        need(not any(data[self.payload_end : self.size - self.crc_size]), "header")

    @staticmethod
    def check_ignorable(flags, extension):
        """The parts of ignorable flags, of which this decoder knows none."""
        at = last = 0
        while flags:
            need(at < len(extension), "header")
            number, size = extension[at], 8 * extension[at + 1]
            if number == 0:
                break
            need(last < number <= 8 and flags >> (number - 1) & 1, "header")
            need(size > 0 and at + size <= len(extension), "header")
            at, last = at + size, number

    def place(self):
        self.words = 1 if self.flags & ROTATED else 2
        self.sets_at = self.patterns_at + self.blocks * self.words * 4
        self.set_size = -(-self.n // 64) * 8 if self.flags & SUM else 0
        sets = self.blocks if self.flags & BLOCK_SETS else 1
        self.payload_at = self.sets_at + sets * self.set_size
        self.item_bits = self.lane_bits if self.flags & SUM else self.bits
        lanes = 0
        if self.blocks:
            lanes = ((self.blocks - 1) << self.log2) + self.lanes_of(self.blocks - 1)
        self.payload_end = self.payload_at + lanes * self.item_bits // 8
        self.crc_size = 4 if self.flags & CHECKSUM else 0

    @staticmethod
    def round16(size):
        return -(-size // 16) * 16

    def elements_of(self, block):
        return min(1 << self.log2, self.count - (block << self.log2))

    def lanes_of(self, block):
        lanes = 64
        while lanes < self.elements_of(block):
            lanes *= 2
        return lanes

    # ------------------------------------------------------------------------------------------ content of a block

    def patterns(self, block):
        return struct.unpack_from("<%dI" % self.words, self.data, self.patterns_at + block * self.words * 4)

    def kind(self, block):
        """coded, constant, nonfinite; CORRUPT for anything else."""
        p = self.patterns(block)
        if self.flags & ROTATED:
            if p[0] == 0:
                return "constant"
            if 0x00800000 <= p[0] < 0x7F800000:
                return "coded"
            need(p[0] == 0x7FC00000 and self.flags & NONFINITE, "corrupt")
            return "nonfinite"
        if p == (MASK32, MASK32):
            need(self.flags & NONFINITE, "corrupt")
            return "nonfinite"
        for code in p:
            bits = code_bits(code)
            need(bits == 0 or 0x00800000 <= bits & 0x7FFFFFFF < 0x7F000000, "corrupt")
        minimum, width = extent(p)
        need(from_bits(code_bits(p[0])) >= minimum, "corrupt")
        return "coded" if width > 0 else "constant"

    def members(self, block):
        if not self.flags & SUM:
            return 1
        at = self.sets_at + (block if self.flags & BLOCK_SETS else 0) * self.set_size
        value = int.from_bytes(self.data[at : at + self.set_size], "little")
        need(value >> self.n == 0, "dup")
        return bin(value).count("1")

    def payload(self, block):
        at = self.payload_at + (block << self.log2) * self.item_bits // 8
        return self.data[at : at + self.lanes_of(block) * self.item_bits // 8]

    def lanes(self, block):
        data = self.payload(block)
        if self.flags & SUM:
            return list(
                struct.unpack("<%d%s" % (self.lanes_of(block), {8: "B", 16: "H", 32: "I"}[self.lane_bits]), data)
            )
        out = []
        for at in range(0, len(data), 8 * self.bits):
            out += [self.table[z] for z in unpack_group(data[at : at + 8 * self.bits], self.bits)]
        return out

    def decode_block(self, block, mean):
        kind = self.kind(block)
        if not self.flags & SUM:
            need(kind == "coded" or not any(self.payload(block)), "corrupt")
        k = self.members(block)
        lanes = self.lanes(block)
        need(max(lanes) <= (k * self.g if kind == "coded" else 0), "corrupt")
        if k == 0:
            return [0.0] * self.elements_of(block), True
        if kind == "nonfinite":
            return [float("nan")] * self.elements_of(block), False
        if not self.flags & ROTATED:
            values = self.decode_plain(block, lanes, k, mean)
        elif kind == "constant":
            values = [0.0] * len(lanes)
        else:
            values = self.decode_rotated(block, lanes, k, mean)
        return values[: self.elements_of(block)], False

    def decode_rotated(self, block, lanes, k, mean):
        norm = self.patterns(block)[0]
        exponent = norm >> 23
        unit = from_bits(norm & 0x7FFFFF | 0x3F800000)
        scale = from_bits(self.t_bits) / self.g * (unit / len(lanes))
        if mean:
            scale /= k
        scale = f32(scale)
        y = [f32((2 * s - k * self.g) * scale) for s in lanes]
        stride = 1
        while stride < len(y):
            for start in range(0, len(y), 2 * stride):
                for i in range(start, start + stride):
                    a, b = y[i], y[i + stride]
                    y[i], y[i + stride] = f32(a + b), f32(a - b)
            stride *= 2
        limit = 2.0 ** (1 - exponent) if exponent < 128 else 0.0
        factor = 2.0 ** (exponent - 127)
        out = []
        for i, value in enumerate(y):
            if i % 128 == 0:
                random = philox(self.seed, (i // 128, self.first + block, self.round, 0))
            if random[i // 32 % 4] >> (i % 32) & 1:
                value = -value
            out.append(0.0 if value == 0 or abs(value) < limit else f32(value * factor))
        return out

    def decode_plain(self, block, lanes, k, mean):
        minimum, width = extent(self.patterns(block))
        step, base = width / self.g, minimum
        if mean:
            step /= k
        else:
            base *= k
        out = []
        for s in lanes:
            value = s * step + base
            out.append(0.0 if abs(value) < 2.0**-126 else f32(value))
        return out


def code_bits(code):
    return code & 0x7FFFFFFF if code >> 31 else ~code & MASK32


def extent(p):
    minimum = 0.0 - from_bits(code_bits(p[1]))
    width = f32(from_bits(code_bits(p[0])) - minimum)
    return minimum, 0.0 if abs(width) < 2.0**-126 else width


def unpack_group(data, bits):
    if bits == 3:
        low = unpack_group(data[:16], 2)
        high = unpack_group(data[16:], 1)
        return [a | b << 2 for a, b in zip(low, high)]
    stride = 8 * bits
    return [data[j % stride] >> (j // stride * bits) & (2**bits - 1) for j in range(64)]


def philox(key, counter):
    k0, k1 = key & MASK32, key >> 32
    c0, c1, c2, c3 = (c & MASK32 for c in counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


# ---------------------------------------------------------------------------------------------- output


def store(value, dtype):
    if value != value:
        return {1: b"\x00\x00\xc0\x7f", 2: b"\xc0\x7f", 3: b"\x00\x7e"}[dtype]
    if dtype == 1:
        return struct.pack("<f", value)
    if dtype == 2:
        bits = bits_of(value)
        return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    try:
        return struct.pack("<e", value).replace(b"\x00\x80", b"\x00\x00")  # no -0
    except OverflowError:
        return b"\x00\x7c" if value > 0 else b"\x00\xfc"


def decode(data, mean=True):
    """(status, lowest bad block or None, values as bytes, missing blocks)."""
    try:
        frame = Frame(data)
    except Reject as reject:
        return reject.code, None, b"", []
    zero = bytes(DTYPE_SIZE[frame.dtype])
    if frame.flags & CHECKSUM and crc32c(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        return "checksum", None, zero * frame.count, []
    if not frame.blocks and frame.set_size and not frame.flags & BLOCK_SETS:
        try:
            frame.members(0)  # the one set of a sum, which no block checks here
        except Reject as reject:
            return reject.code, None, b"", []
    status, bad, out, missing = "ok", None, [], []
    for block in range(frame.blocks):
        try:
            values, is_missing = frame.decode_block(block, mean)
            if is_missing:
                missing.append(frame.first + block)
            out += [store(v, frame.dtype) for v in values]
        except Reject as reject:
            out += [zero] * frame.elements_of(block)
            if bad is None:
                status, bad = reject.code, block
    return status, bad, b"".join(out), missing


def main():
    parser = argparse.ArgumentParser(description="Decode a THC frame.")
    parser.add_argument("frame")
    parser.add_argument("-o", "--output")
    parser.add_argument("--sum", action="store_true", help="the sum of the contributors, not their mean")
    arguments = parser.parse_args()
    with open(arguments.frame, "rb") as f:
        status, bad, values, missing = decode(f.read(), not arguments.sum)
    if arguments.output and status == "ok":
        with open(arguments.output, "wb") as f:
            f.write(values)
    print(status if bad is None else f"{status} block {bad}")
    if missing:
        print("missing", *missing)
    return 0 if status == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
