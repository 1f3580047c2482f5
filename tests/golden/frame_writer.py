"""Structural writer of GCOMP frames: docs/format.md from the writing side, for vectors and tests.

It shares no code with the reference decoder, so that the two check each other, and it can write frames that no encoder
makes: any kind, codebook, order of owners or field may be forced, and every defect of the reject vectors is put in
before sizes and checksums are computed. `write_frame()` follows docs/encoder-profile.md and makes the bytes that the
library's encoder makes from the same rounded values.

SPDX-License-Identifier: BSD-2-Clause
"""

import struct

STRICT, DERIVED, INSTALLED, CHECKSUM, CONSTANT, CARRIED = 1, 2, 4, 8, 16, 32
ZERO, RAW, CODED = 0, 1, 2
WIRE_SCALE_ONE = 0x3F800000


class Dtype:
    def __init__(self, number, name, size, mantissa_bits, exponent_max, widths, step, derived_steps, bias):
        self.number, self.name, self.size, self.mantissa_bits = number, name, size, mantissa_bits
        self.exponent_max = exponent_max  # of finite values
        self.widths, self.step, self.derived_steps, self.bias = widths, step, derived_steps, bias
        self.exponent_min = 0 if name == "fp16" else 1  # of values with a label
        self.explicit_cap, self.derived_cap = 3 * step, mantissa_bits
        self.sign_bit = 8 * size - 1

    def bits(self, sign, exponent, mantissa):
        return sign << self.sign_bit | exponent << self.mantissa_bits | mantissa

    def split(self, bits):
        """Sign, exponent field, mantissa field."""
        magnitude = bits & (1 << self.sign_bit) - 1
        return bits >> self.sign_bit, magnitude >> self.mantissa_bits, magnitude & (1 << self.mantissa_bits) - 1


FP32 = Dtype(1, "fp32", 4, 23, 254, (6, 6, 6, 6), 6, (1, 2, 3, 6), 0)
BF16 = Dtype(2, "bf16", 2, 7, 254, (2, 2, 2, 2), 2, (1, 2), 0)
FP16 = Dtype(3, "fp16", 2, 10, 30, (2, 3, 3, 3), 3, (1, 3), 112)
DTYPES = (FP32, BF16, FP16)


def align(x, multiple):
    return -(-x // multiple) * multiple


def padded(data, multiple):
    return data + bytes(-len(data) % multiple)


def pack(numbers, width):
    """Bit string of numbers, padded to 4 bytes."""
    if not numbers or not width:
        return b""
    digits = "".join(format(number, "0%db" % width) for number in reversed(numbers))
    return int(digits, 2).to_bytes(align(len(digits), 32) // 8, "little")


_CRC = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte // 2 ^ (0x82F63B78 if _byte % 2 else 0)
    _CRC.append(_byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def values_bytes(values, dtype):
    return struct.pack("<%d%s" % (len(values), "I" if dtype.size == 4 else "H"), *values)


# ---- codebooks ------------------------------------------------------------------------------------------------------


def package_merge(counts, limit=11):
    """Encoder profile, Lengths: {label: count} -> {label: length}."""
    leaves = [(count, 0, (label,)) for count, label in sorted((c, s) for s, c in counts.items() if c)]
    if len(leaves) == 1:
        return {leaves[0][2][0]: 1}
    row = []
    for _ in range(limit):
        packages = [(a[0] + b[0], 1, a[2] + b[2]) for a, b in zip(row[0::2], row[1::2])]
        row = sorted(
            leaves + packages, key=lambda item: item[:2]
        )  # stable: leaves by (count, label), packages in order
    lengths = dict.fromkeys((leaf[2][0] for leaf in leaves), 0)
    for item in row[: 2 * len(leaves) - 2]:
        for label in item[2]:
            lengths[label] += 1
    return lengths


CLASS_SIZES = (1, 8, 32, 64, 64, 64, 16, 4, 2, 1)
MASK_ORDER = sorted(range(256), key=lambda byte: (bin(byte).count("1"), byte))
MASK_CLASSES = []  # mask bytes of each class
for _size in CLASS_SIZES:
    _at = sum(map(len, MASK_CLASSES))
    MASK_CLASSES.append(MASK_ORDER[_at : _at + _size])
CLASS_OF = {byte: number for number, members in enumerate(MASK_CLASSES) for byte in members}


def planted(leaves):
    """Leaves (depth, width, symbols) in any order -> the preorder list of nodes (prefix string, width or None for inner
    nodes) and {symbol: (leaf prefix, index)}."""
    leaves = sorted(leaves, key=lambda leaf: leaf[0])
    nodes, place = {}, {}
    code, depth = -1, leaves[0][0]
    for leaf_depth, width, symbols in leaves:
        code = code + 1 << leaf_depth - depth
        depth = leaf_depth
        prefix = format(code, "0%db" % depth) if depth else ""
        nodes[prefix] = width
        for i in range(depth):
            nodes[prefix[:i]] = None
        for index, symbol in enumerate(symbols):
            place[symbol] = prefix, index
    # A node comes before its descendants, these before everything to the right: string order.
    return sorted(nodes.items()), place


class Book:
    """A codebook: lengths by label, serialised form, code tree. With `classes`, lengths by class of mask bytes, zeros
    are masked. Base 1 of DERIVED and CARRIED frames: relative exponents."""

    def __init__(self, lengths, base=0, classes=None):
        self.lengths, self.base = dict(lengths), base
        self.classes = None if classes is None else dict(classes)

    def to_bytes(self, first=None, last=None):
        ordinary = [label for label in self.lengths if label > 1]
        first = first if first is not None else min(ordinary, default=0)
        last = last if last is not None else max(ordinary, default=0)
        zero = self.lengths.get(0, 0) if self.classes is None else 15
        special = zero | self.lengths.get(1, 0) << 4
        nibbles = [self.lengths.get(label, 0) for label in range(first, last + 1)] if first else []
        masks = b"" if self.classes is None else pack([self.classes.get(i, 0) for i in range(10)] + [0] * 6, 4)
        return bytes((self.base, first, last, special)) + pack(nibbles, 4) + masks

    def tree(self):
        """planted() of the labels."""
        leaves = []
        for length in range(1, 12):
            rest = sorted(label for label in self.lengths if self.lengths[label] == length)
            while rest:
                width = min(7, len(rest).bit_length() - 1)
                leaves.append((length - width, width, rest[: 1 << width]))
                rest = rest[1 << width :]
        if len(self.lengths) == 1:
            leaves = [(0, 0, list(self.lengths))]
        return planted(leaves)

    def mask_tree(self):
        """planted() of the mask bytes."""
        alone = len(self.classes) == 1
        return planted(
            [
                (0 if alone else length, len(MASK_CLASSES[number]).bit_length() - 1, MASK_CLASSES[number])
                for number, length in sorted(self.classes.items())
            ]
        )


# ---- labels and drops -----------------------------------------------------------------------------------------------


class Format:
    """What of a frame the labels and drops of its values depend on."""

    def __init__(
        self,
        dtype,
        strict=False,
        derived=False,
        constant=False,
        step=None,
        cap=None,
        drop_base=0,
        block_log2=None,
        deep_cut=False,
        tolerance_bits=23,
    ):
        self.dtype, self.strict, self.derived, self.constant = dtype, strict, derived, constant
        self.carried = block_log2 is not None
        self.fine = derived or self.carried
        self.step = step or (1 if self.fine else dtype.step)
        full = dtype.derived_cap if self.fine else dtype.explicit_cap
        self.cap = full - full % self.step if cap is None else cap
        self.drop_base, self.block_log2 = drop_base, block_log2
        self.mapped = derived and not constant
        self.deep_cut, self.tolerance_bits = deep_cut, tolerance_bits  # of the handles; no fields of the frame
        self.levels_name = "carried" if self.carried else "derived" if derived else "explicit"

    def label(self, bits, drop, base, turn=0):
        """Label of a rounded value, 1 if it has none."""
        d = self.dtype
        if bits == 0:
            return 0
        _, exponent, mantissa = d.split(bits)
        if exponent > d.exponent_max or (exponent == 0 and (d is not FP16 or mantissa == 0)):
            return 1
        if self.fine:
            exponent -= turn
            if exponent < d.exponent_min:
                exponent += d.exponent_max - d.exponent_min + 1
            return exponent + (2 if d is FP16 else 1)
        x = exponent + 1 if d is FP16 else exponent - base
        return 4 * x + drop // d.step if 1 <= x <= 63 else 1

    def cut(self, map_byte):
        """K + drop_base: where the quantum of a map byte is; None if nothing is cut."""
        return map_byte + self.drop_base if map_byte else None

    def cut_of_quantum(self, quantum):
        """The same for a quantum of a CARRIED frame: q = quantum in section 3."""
        return 4 * (quantum + self.dtype.mantissa_bits) + 3 if quantum else None

    def quantum(self, cut):
        """Exponent of the quantum in fp32's bias."""
        return (cut - 3 >> 2) - self.dtype.mantissa_bits

    def turn(self, cut):
        if cut is None:
            return 0
        d = self.dtype
        return max(0, min(self.quantum(cut) - d.bias, d.exponent_max) - d.exponent_min)

    def drop_at(self, exponent, cut):
        d = self.dtype
        if exponent > d.exponent_max or (exponent == 0 and d is not FP16):
            return 0
        if self.constant:
            return self.cap
        if cut is None:
            return 0
        octave = 4 * ((max(exponent, 1) if d is FP16 else exponent) + d.bias) + 3
        t = cut - octave
        return 0 if t < 4 else min(self.cap, t >> 2) // self.step * self.step

    def derived_drop(self, exponent, map_byte):
        return self.drop_at(exponent, self.cut(map_byte))


# ---- chunks ---------------------------------------------------------------------------------------------------------


class Coded:
    """A CODED chunk in parts, each of which a reject vector may spoil before it is serialised."""

    def __init__(self, format_, book, values, drops, escape_at=(), cuts=None, quanta=b"", after=()):
        """`after`: bits of the zero mask after those of the values."""
        d = format_.dtype
        relative = format_.fine and book.base == 1
        nodes, place = book.tree()
        bits = {prefix: [] for prefix, _ in nodes}
        planes = [[] for _ in range(7 if format_.fine else 4)]
        self.escapes = []
        for i, (value, drop) in enumerate(zip(values, drops)):
            label = format_.label(value, drop, book.base, format_.turn(cuts[i]) if relative else 0)
            if label == 0 and book.classes is not None and i not in escape_at:
                continue
            if label not in place or i in escape_at:
                label = 1
            prefix, index = place[label]
            for depth in range(len(prefix)):
                bits[prefix[:depth]].append(int(prefix[depth]))
            bits[prefix].append(index)
            if label == 1:
                self.escapes.append(value)
            elif label > 1:
                sign, _, mantissa = d.split(value)
                left = d.mantissa_bits + 1
                z, kept = sign << d.mantissa_bits | mantissa, left - drop
                assert z & (1 << drop) - 1 == 0
                cuts_of_z = []
                for plane, width in enumerate(d.widths):
                    if width > kept:
                        break
                    cuts_of_z.append((plane, width))
                    kept -= width
                cuts_of_z += [(plane, width) for plane, width in ((4, 4), (5, 2), (6, 1)) if kept & width]
                for plane, width in cuts_of_z:
                    left -= width
                    planes[plane].append(z >> left & (1 << width) - 1)
        widths = list(d.widths) + [4, 2, 1]
        self.quanta = padded(bytes(quanta), 4)
        self.plane_len = [len(plane) for plane in planes]
        self.escape_len = len(self.escapes)
        self.coded_len = None  # no zero mask
        self.right_len, self.runs = right_lens_and_runs(nodes, bits)
        if book.classes is not None:
            self._mask(book, [value != 0 or i in escape_at for i, value in enumerate(values)], list(after))
        self.planes = [pack(plane, width) for plane, width in zip(planes, widths)]
        self.escapes = padded(values_bytes(self.escapes, d), 4)
        self.header_padding = 0
        self.padding = None  # bytes after the escapes; None: what is needed
        self.book_bytes = b""

    def _mask(self, book, coded, after):
        nodes, place = book.mask_tree()
        bits = {prefix: [] for prefix, _ in nodes}
        for byte in mask_bytes(coded + after):
            prefix, index = place[byte]
            for depth in range(len(prefix)):
                bits[prefix[:depth]].append(int(prefix[depth]))
            bits[prefix].append(index)
        right_len, runs = right_lens_and_runs(nodes, bits)
        self.coded_len = sum(coded)
        self.right_len, self.runs = right_len + self.right_len, runs + self.runs

    def to_bytes(self):
        words = self.plane_len + [self.escape_len] + [self.coded_len] * (self.coded_len is not None) + self.right_len
        header = struct.pack("<%dH" % len(words), *words)
        if len(header) % 4:
            header += struct.pack("<H", self.header_padding)
        body = self.quanta + header + b"".join(self.runs) + b"".join(self.planes) + self.escapes
        if self.padding is not None:
            return body + self.padding
        return body + bytes(-(len(self.book_bytes) + len(body)) % 16)


def right_lens_and_runs(nodes, bits):
    return (
        [sum(bits[prefix]) for prefix, width in nodes if width is None],
        [pack(bits[prefix], 1 if width is None else width) for prefix, width in nodes],
    )


def mask_bytes(coded):
    """Bytes of the zero mask from one bool per value."""
    return [sum(bit << i for i, bit in enumerate(coded[at : at + 8])) for at in range(0, len(coded), 8)]


class Chunk:
    """Kind, owner of the codebook, the codebook itself if this chunk owns one, the bytes after it."""

    def __init__(self, kind, book=0, book_bytes=b"", body=b""):
        self.kind, self.book, self.book_bytes, self.body = kind, book, book_bytes, body


def raw_chunk(values, dtype):
    return Chunk(RAW, body=padded(values_bytes(values, dtype), 16))


def coded_chunk(format_, book, values, drops, index=None, escape_at=(), cuts=None, quanta=b""):
    """A CODED chunk that owns its book if an index is given, else it needs `book` set (or an installed one)."""
    parts = Coded(format_, book, values, drops, escape_at, cuts, quanta)
    if index is None:
        return Chunk(CODED, body=parts.to_bytes())
    parts.book_bytes = book.to_bytes()
    return Chunk(CODED, index, parts.book_bytes, parts.to_bytes())


def ignorable_parts(parts, end=True, rest=b""):
    """The list of parts of ignorable flags, (bit, size in 8 bytes) each, and what follows it."""
    data = b"".join(bytes((bit + 1, units)) + b"\xa5" * (8 * units - 2) for bit, units in parts)
    return data + (b"\0" + b"\xb6" * 7 if end else b"") + rest


# ---- frames ---------------------------------------------------------------------------------------------------------


class Frame:
    """Header fields, chunks and receiver's context. Entries of `force` replace what is computed, before the
    checksums are made: the fields of section 2, reserved, pad (bytes), ("place" | "book" | "crc", index); and
    meta_crc."""

    def __init__(
        self, format_, count, chunk_log2=12, checksum=False, installed=None, levels=b"", wire_scale=WIRE_SCALE_ONE
    ):
        self.format, self.count, self.chunk_log2, self.checksum = format_, count, chunk_log2, checksum
        self.installed = installed  # (id, generation, bytes)
        self.levels, self.wire_scale = levels, wire_scale
        self.chunks, self.force = [], {}
        self.tail = b""  # of the extension: parts of ignorable flags, or what a later version might write there

    def chunk_range(self, index):
        return slice(index << self.chunk_log2, min(self.count, index + 1 << self.chunk_log2))

    def flags(self):
        f = self.format
        return (
            STRICT * f.strict
            | DERIVED * f.derived
            | INSTALLED * bool(self.installed)
            | CHECKSUM * self.checksum
            | CONSTANT * f.constant
            | CARRIED * f.carried
        )

    def map_hash(self):
        f = self.format
        head = struct.pack("<hBBBBH", f.drop_base, f.step, f.cap, f.dtype.number, self.chunk_log2, 0)
        head += struct.pack("<IIQ", self.wire_scale, 0, self.count)
        digests = [
            crc32c(self.levels[at : at + (1 << self.chunk_log2)]) for at in range(0, self.count, 1 << self.chunk_log2)
        ]
        low, high = (
            crc32c(head + b"".join((digest * factor % 2**32).to_bytes(4, "little") for digest in digests))
            for factor in (1, 0x9E3779B1)
        )
        return high << 32 | low

    def to_bytes(self):
        f, force = self.format, self.force

        def get(key, value):
            return force.get(key, value)

        extension = 16 * bool(self.installed) + 16 * f.mapped + 8 * self.checksum + len(self.tail)
        directory_end = 32 + extension + 16 * len(self.chunks)
        payload_at = align(directory_end, 16)
        at, directory, payload = payload_at, b"", b""
        for index, chunk in enumerate(self.chunks):
            crc = 0
            if self.checksum:
                owner = self.chunks[chunk.book] if chunk.kind == CODED and not self.installed else None
                crc = crc32c((owner.book_bytes if owner else b"") + chunk.body)
            directory += struct.pack(
                "<QII",
                get(("place", index), at + chunk.kind),
                get(("book", index), chunk.book),
                get(("crc", index), crc),
            )
            region = chunk.book_bytes + chunk.body
            at += len(region)
            payload += region
        header = get("magic", b"\x67\x57\x66\x1a") + struct.pack(
            "<BBBBHBBBBhQQ",
            get("version", 0),
            get("codec", 1),
            get("dtype", f.dtype.number),
            get("chunk_log2", self.chunk_log2),
            get("flags", self.flags()),
            get("ignorable_flags", 0),
            get("extension_units", extension // 8),
            get("step", f.step),
            get("cap", f.cap),
            get("drop_base", f.block_log2 if f.carried else f.drop_base),
            get("count", self.count),
            get("size", at),
        )
        if self.installed:
            header += struct.pack("<II", get("book_id", self.installed[0]), get("generation", self.installed[1]))
            header += struct.pack("<II", get("book_crc", crc32c(self.installed[2])), get("book_reserved", 0))
        if f.mapped:
            header += struct.pack("<QI", get("map_hash", self.map_hash()), get("wire_scale", self.wire_scale))
            header += struct.pack("<I", get("map_reserved", 0))
        meta_at = len(header)
        if self.checksum:
            header += struct.pack("<II", 0, get("reserved", 0))
        header += self.tail
        meta = header + directory + get("pad", bytes(payload_at - directory_end))
        if self.checksum:
            crc = get("meta_crc", crc32c(meta))
            meta = meta[:meta_at] + struct.pack("<I", crc) + meta[meta_at + 4 :]
        return meta + payload


# ---- encoder profile ------------------------------------------------------------------------------------------------


def power_below(x):
    """The largest power of two of at most x, at least 1."""
    return 1 << max(0, int(x).bit_length() - 1)


def lg(x):
    k = x.bit_length() - 1
    return 256 * k + ((x - (1 << k)) * 256 >> k)


def cost(counts):
    counts = [count for count in counts if count]
    if len(counts) <= 1:
        return 0
    total = lg(sum(counts))
    return sum(count * max(256, total - lg(count)) for count in counts)


def counts_of(items):
    counts = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts


class Group:
    """Consecutive chunks with one codebook: the rounded values with their drops and cuts."""

    def __init__(self, format_, values, drops, cuts, chunk_len, is_small):
        self.format, self.values, self.drops, self.cuts = format_, values, drops, cuts
        self.first_len = min(chunk_len, len(values))
        self.period = 64 if is_small else 64 * min(16, power_below(len(values) // 4096))

    def labels(self, period, base, relative=False):
        f = self.format
        return [
            f.label(self.values[i], self.drops[i], base, f.turn(self.cuts[i]) if relative else 0)
            for i in range(len(self.values))
            if i % period < 64
        ]

    def window(self):
        d = self.format.dtype
        if d is FP16 or self.format.fine:
            return 0
        exponents = [
            d.split(bits)[1]
            for i, bits in enumerate(self.values)
            if i % self.period < 64 and self.format.label(bits, 0, 0) != 0
        ]
        return min(191, max(0, max((e for e in exponents if 0 < e < 255), default=0) + 4 - 63))

    def is_relative(self):
        if not self.format.deep_cut or not (self.format.mapped or self.format.carried):
            return False
        if all(cut is None for cut in self.cuts):
            return False
        period = 64 * power_below(len(self.values) // 1024)
        plain, turned = (
            cost(counts_of(label for label in self.labels(period, 0, relative) if label).values())
            for relative in (False, True)
        )
        return turned < plain

    def book(self):
        relative = self.is_relative()
        base = 1 if relative else self.window()
        labels = self.labels(self.period, base, relative)
        counts = counts_of(labels)
        coded = [bits != 0 for i, bits in enumerate(self.values) if i % self.period < 64]
        classes = counts_of(CLASS_OF[byte] for byte in mask_bytes(coded))
        plain = cost(counts.values())
        masked = cost(count for label, count in counts.items() if label) + cost(classes.values())
        masked += sum(256 * (CLASS_SIZES[number].bit_length() - 1) * count for number, count in classes.items())
        masked += 114688 * len(labels) // self.first_len
        is_masked = 2 * counts.get(0, 0) >= len(labels) and masked < plain - plain // 32
        needed = (1,) if is_masked else (0, 1)
        if is_masked:
            counts.pop(0, None)
        if self.period > 64:
            counts.update((label, max(1, counts.get(label, 0))) for label in needed)
            classes = {number: max(1, classes.get(number, 0)) for number in range(10)}
        if not counts:  # nothing but zeros: no chunk is CODED
            return Book({1: 1}, base)
        return Book(package_merge(counts), base, package_merge(classes) if is_masked else None)


def quanta_of_chunk(quanta):
    """What the library writes for the quanta of a caller."""
    return bytes(quantum if quantum >= max(quanta) - 62 else 0 for quantum in quanta)


def cuts_of_frame(format_, count, chunk_log2, levels=b"", quanta=b""):
    """K + drop_base for each value of a frame, None where nothing is cut."""
    if format_.mapped:
        return [format_.cut(level) for level in levels]
    if not format_.carried:
        return [None] * count
    cuts = []
    for first in range(0, count, 1 << chunk_log2):
        length = min(1 << chunk_log2, count - first)
        for quantum in quanta_of_chunk(quanta_in(format_, quanta, first, length)):
            cuts += [format_.cut_of_quantum(quantum)] * min(1 << format_.block_log2, first + length - len(cuts))
    return cuts


def quanta_in(format_, quanta, first, length):
    log2 = format_.block_log2
    return quanta[first >> log2 : align(first + length, 1 << log2) >> log2]


def write_frame(
    format_,
    values,
    drops,
    preset="fast",
    chunk_log2=12,
    checksum=False,
    installed=None,
    levels=b"",
    wire_scale=WIRE_SCALE_ONE,
    quanta=b"",
):
    """Encoder profile 1: the frame of these rounded values. `installed` is (id, generation, Book)."""
    d = format_.dtype
    frame = Frame(
        format_,
        len(values),
        chunk_log2,
        checksum,
        installed and (installed[0], installed[1], installed[2].to_bytes()),
        levels,
        wire_scale,
    )
    cuts = cuts_of_frame(format_, len(values), chunk_log2, levels, quanta)
    chunk_len = 1 << chunk_log2
    group_len = 1 << 17 if preset == "fast" else chunk_len
    for start in range(0, len(values), group_len):
        end = min(len(values), start + group_len)
        group = Group(format_, values[start:end], drops[start:end], cuts[start:end], chunk_len, preset == "small")
        book = installed[2] if installed else group.book()
        owner = None
        for first in range(start, end, chunk_len):
            index = first // chunk_len
            part = slice(first, min(end, first + chunk_len))
            raw = raw_chunk(values[part], d)
            if not any(values[part]):
                frame.chunks.append(Chunk(ZERO))
                continue
            owns = not installed and owner is None
            own_quanta = quanta_of_chunk(quanta_in(format_, quanta, first, part.stop - first)) if quanta else b""
            coded = coded_chunk(
                format_, book, values[part], drops[part], index if owns else None, (), cuts[part], own_quanta
            )
            if not installed and not owns:
                coded.book = owner
            if len(coded.book_bytes) + len(coded.body) < len(raw.body):
                frame.chunks.append(coded)
                owner = index if owner is None else owner
            else:
                frame.chunks.append(raw)
    return frame
