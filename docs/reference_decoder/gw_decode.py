#!/usr/bin/env python3
"""Reference decoder of GCOMP frames, version 0.

Written from docs/format.md alone and laid out in its order, with the Python standard library and no code of the
gradwire library. It is meant to be read beside that page and to disagree with the library whenever one of the two is
wrong: it decodes a value at a time, with unbounded integers, and never touches floating point.

As a module:   status, bad_chunk, values = gw_decode.decode(frame, map=Map(map_bytes, drop_offset), installed=codebooks)
As a command:  gw_decode.py IN.gw [-o OUT.npy] [--map K.bin --drop-offset N ...] [--codebook B.bin --codebook-id N ...]
[--json]

SPDX-License-Identifier: BSD-2-Clause
"""

import argparse
import collections
import json
import os
import struct
import sys

# ---------------------------------------------------------------------------------------------------------------------
# Conventions: little-endian integers, bit strings filled from bit 0 of byte 0, padding is zero
# ---------------------------------------------------------------------------------------------------------------------


class Rejected(Exception):
    """A rule of section 8 is broken; the argument is the name of the status."""


def reject_if(broken, status):
    if broken:
        raise Rejected(status)


def round_up(x, multiple):
    return (x + multiple - 1) // multiple * multiple


def u16(data, offset):
    return int.from_bytes(data[offset : offset + 2], "little")


def u32(data, offset):
    return int.from_bytes(data[offset : offset + 4], "little")


def u64(data, offset):
    return int.from_bytes(data[offset : offset + 8], "little")


def has_padding(data, bits_used):
    """Is any bit from bits_used on set?"""
    return int.from_bytes(data, "little") >> bits_used != 0


def numbers_of(data, width, length):
    """The first `length` numbers of `width` bits of a bit string. Eight numbers fill `width` bytes."""
    mask = (1 << width) - 1
    shifts = range(0, 8 * width, width)
    numbers = []
    for start in range(0, (length * width + 7) // 8, width):
        group = int.from_bytes(data[start : start + width], "little")
        numbers.extend([group >> shift & mask for shift in shifts])
    del numbers[length:]
    return numbers


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C_TABLE = _crc32c_table()


def crc32c(data, crc=0):
    """CRC32C (Castagnoli) of data, continuing from the CRC of the bytes before it."""
    crc ^= 0xFFFFFFFF
    table = CRC32C_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


# ---------------------------------------------------------------------------------------------------------------------
# 2. Header
# ---------------------------------------------------------------------------------------------------------------------

MAGIC = b"\x67\x57\x66\x1a"
READER_VERSION = 0  # the largest that this decoder reads
CODEC_GCOMP = 1
STRICT, DERIVED, INSTALLED, CHECKSUM, CONSTANT, CARRIED = 1, 2, 4, 8, 16, 32
COUNT_MAX = 1 << 48
CHUNKS_MAX = 1 << 32

# One column of the table of section 2.
Dtype = collections.namedtuple(
    "Dtype", "number name size mantissa_bits largest_exponent widths step derived_steps explicit_cap derived_cap"
)
FP32 = Dtype(1, "fp32", 4, 23, 254, (6, 6, 6, 6), 6, (1, 2, 3, 6), 18, 23)
BF16 = Dtype(2, "bf16", 2, 7, 254, (2, 2, 2, 2), 2, (1, 2), 6, 7)
FP16 = Dtype(3, "fp16", 2, 10, 30, (2, 3, 3, 3), 3, (1, 3), 9, 10)
DTYPES = {d.number: d for d in (FP32, BF16, FP16)}


class Header:
    """The 32 bytes of the header and the extension after them, not yet checked."""

    def __init__(self, data):
        self.magic = data[0:4]
        version, self.codec, dtype, self.chunk_log2 = data[4:8]
        self.reader_version, self.writer_version = version & 15, version >> 4
        self.dtype = DTYPES.get(dtype)
        self.flags = u16(data, 8)
        self.ignorable = data[10]
        extension_size = 8 * data[11]
        self.step, self.cap = data[12], data[13]
        self.drop_offset = int.from_bytes(data[14:16], "little", signed=True)
        self.count = u64(data, 16)
        self.size = u64(data, 24)

        self.strict = bool(self.flags & STRICT)
        self.derived = bool(self.flags & DERIVED)
        self.installed = bool(self.flags & INSTALLED)
        self.checksum = bool(self.flags & CHECKSUM)
        self.constant = bool(self.flags & CONSTANT)
        self.carried = bool(self.flags & CARRIED)
        self.mapped = self.derived and not self.constant
        self.fine = self.derived or self.carried  # labels without drop steps, and drops of any number of bits
        self.block_log2 = u16(data, 14)  # CARRIED; drop_offset otherwise

        # Where the parts of the extension are, and how long everything before chunk 0 is.
        end = 32
        self.codebook_at = end
        end += 16 if self.installed else 0
        self.map_at = end
        end += 16 if self.mapped else 0
        self.checksum_at = end
        end += 8 if self.checksum else 0
        self.parts_end = end
        self.directory_at = 32 + extension_size

    def measure(self):
        """What depends on chunk_log2 and count being in range."""
        self.chunk_len = 1 << self.chunk_log2
        self.chunk_count = (self.count + self.chunk_len - 1) // self.chunk_len
        self.directory_end = self.directory_at + 16 * self.chunk_count
        self.payload_at = round_up(self.directory_end, 16)
        # With all chunks RAW; only the last one may need padding.
        self.size_max = self.payload_at + round_up(self.count * self.dtype.size, 16)

    def read_extension(self, data):
        self.codebook_id, self.generation = u32(data, self.codebook_at), u32(data, self.codebook_at + 4)
        self.codebook_crc = u32(data, self.codebook_at + 8)
        self.map_hash, self.wire_scale = u64(data, self.map_at), u32(data, self.map_at + 8)
        self.meta_crc = u32(data, self.checksum_at)
        self.reserved = [u32(data, self.codebook_at + 12)] if self.installed else []
        self.reserved += [u32(data, self.map_at + 12)] if self.mapped else []
        self.reserved += [u32(data, self.checksum_at + 4)] if self.checksum else []


def ignorable_parts(flags, data):
    """{bit: its part} of the ignorable flags; `data` is the extension after the known parts. Rejected: HEADER."""
    parts, at, last = {}, 0, 0
    while flags != 0:
        reject_if(at >= len(data), "HEADER")
        number, size = data[at], 8 * data[at + 1]
        if number == 0:
            break
        reject_if(not last < number <= 8 or not flags >> (number - 1) & 1, "HEADER")
        reject_if(size == 0 or at + size > len(data), "HEADER")
        parts[number - 1] = data[at : at + size]
        at, last = at + size, number
    return parts


# ---------------------------------------------------------------------------------------------------------------------
# 3. From values to labels, fields and digits
# ---------------------------------------------------------------------------------------------------------------------


def drop_of(header, exponent, cut):
    """The drop of a value of a DERIVED or CARRIED frame; explicit frames carry it in the label.

    `cut` is K + drop_offset, None if K is 0.
    """
    dtype = header.dtype
    if exponent > dtype.largest_exponent or (dtype is not FP16 and exponent == 0):
        return 0
    if header.constant:
        return header.cap
    if cut is None:
        return 0
    t = cut - (4 * (max(exponent, 1) + 112 if dtype is FP16 else exponent) + 3)
    if t < 4:
        return 0
    drop = min(header.cap, t // 4)
    return drop - drop % header.step


def first_exponent(dtype):
    """The smallest exponent field of an ordinary value."""
    return 0 if dtype is FP16 else 1


def turn_of(dtype, cut):
    """By how much relative exponents are turned; `cut` as in drop_of()."""
    if cut is None:
        return 0
    quantum = (cut - 3) // 4 - dtype.mantissa_bits - (112 if dtype is FP16 else 0)
    first = first_exponent(dtype)
    return 0 if quantum < first else min(quantum, dtype.largest_exponent) - first


def turned(dtype, exponent, turn):
    """An exponent `turn` places back in the circle of the ordinary ones."""
    first = first_exponent(dtype)
    return first + (exponent - first - turn) % (dtype.largest_exponent - first + 1)


ZERO_LABEL, ESCAPE_LABEL = 0, 1


def is_label(header, label):
    """Can an ordinary label occur in frames of this kind?"""
    if header.fine:
        return 2 <= label <= (32 if header.dtype is FP16 else 255)
    return 4 <= label <= (4 * 31 + 3 if header.dtype is FP16 else 255)


def exponent_of(header, codebook, label, cut):
    """Exponent field of an ordinary label."""
    dtype = header.dtype
    if header.fine:
        exponent = label - (2 if dtype is FP16 else 1)
        return turned(dtype, exponent, -turn_of(dtype, cut)) if codebook.relative else exponent
    x = label // 4
    return x - 1 if dtype is FP16 else x + codebook.base


def labels_allowed(header, codebook, bits, cut):
    """All labels under which a value could have been sent without an escape; empty if it has none."""
    dtype = header.dtype
    magnitude = bits & (1 << 8 * dtype.size - 1) - 1
    exponent = magnitude >> dtype.mantissa_bits
    if bits == 0:
        return [ZERO_LABEL]
    if magnitude == 0 or exponent > dtype.largest_exponent or (dtype is not FP16 and exponent == 0):
        return []  # -0, infinities and NaN, subnormals of fp32 and bf16
    if header.fine:
        exponent = turned(dtype, exponent, turn_of(dtype, cut)) if codebook.relative else exponent
        return [exponent + (2 if dtype is FP16 else 1)]
    x = exponent + 1 if dtype is FP16 else exponent - codebook.base
    if not 1 <= x <= 63:
        return []
    # The low bits of z are those of the value as long as they are mantissa bits, and 3 * step <= M.
    return [4 * x + steps for steps in range(4) if bits % (1 << steps * dtype.step) == 0]


def digits_of(header, drop):
    """Which planes a value with this drop reads, from the top of z: a list of (plane, width).

    Planes are numbered from 0: four planes of whole digits, then R4, R2, R1.
    """
    left = header.dtype.mantissa_bits + 1 - drop
    digits = []
    for plane, width in enumerate(header.dtype.widths):
        if left < width:
            break
        digits.append((plane, width))
        left -= width
    for plane, width in ((4, 4), (5, 2), (6, 1)):
        if left & width:
            digits.append((plane, width))
    return digits


def plane_width(header, plane):
    return header.dtype.widths[plane] if plane < 4 else (4, 2, 1)[plane - 4]


# ---------------------------------------------------------------------------------------------------------------------
# 4. Directory
# ---------------------------------------------------------------------------------------------------------------------

ZERO, RAW, CODED = 0, 1, 2


class Chunk:
    """A directory entry."""

    def __init__(self, header, data, index):
        at = header.directory_at + 16 * index
        place = u64(data, at)
        self.index = index
        self.kind = place % 16
        self.offset = place - self.kind
        self.codebook = u32(data, at + 8)
        self.crc = u32(data, at + 12)
        self.first = index * header.chunk_len
        self.length = min(header.chunk_len, header.count - self.first)
        self.end = None  # where the next one starts

    def owns_codebook(self, header):
        return self.kind == CODED and not header.installed and self.codebook == self.index


# ---------------------------------------------------------------------------------------------------------------------
# 5.1 Codebook
# ---------------------------------------------------------------------------------------------------------------------

LENGTH_MAX = 11
LEAF_WIDTH_MAX = 7
MASKED = 15  # in place of the code length of label 0: zeros are masked


def codebook_size(data, start, end):
    """Bytes of the codebook at `start`; a codebook that does not end before `end` is truncated."""
    reject_if(end - start < 4, "CORRUPT")
    first, last = data[start + 1], data[start + 2]
    reject_if(first > last, "CORRUPT")
    length_count = last - first + 1 if first else 0
    size = round_up(4 + (length_count + 1) // 2, 4)
    if data[start + 3] & 15 == MASKED:
        size += 8
    reject_if(size > end - start, "CORRUPT")
    return size


Leaf = collections.namedtuple("Leaf", "depth width symbols")  # symbols: labels, or bytes of the zero mask


class Node:
    """Inner node (left and right are nodes) or leaf of the code tree."""

    def __init__(self, leaf=None, left=None, right=None, first_rank=0):
        self.leaf, self.left, self.right, self.first_rank = leaf, left, right, first_rank


class Tree:
    """The code tree of some leaves, which are in the order of their codes."""

    def __init__(self, leaves):
        """Canonical codes put the leaves from left to right at their depths."""
        waiting = list(reversed(leaves))
        self.symbol_of_rank = [symbol for leaf in leaves for symbol in leaf.symbols]
        self.preorder = []
        rank = 0

        def grow(depth):
            nonlocal rank
            node = Node(first_rank=rank)
            self.preorder.append(node)
            if waiting[-1].depth == depth:
                node.leaf = waiting.pop()
                rank += len(node.leaf.symbols)
            else:
                node.left, node.right = grow(depth + 1), grow(depth + 1)
            return node

        self.root = grow(0)
        assert not waiting  # the sum of 2^-length is 1
        self.inner_nodes = [node for node in self.preorder if not node.leaf]


def check_lengths(length_of):
    """{symbol: length} of those that have a code: lengths up to 11 that make a complete code."""
    lengths = list(length_of.values())
    reject_if(any(length > LENGTH_MAX for length in lengths), "CORRUPT")
    if len(lengths) == 1:
        reject_if(lengths != [1], "CORRUPT")
    else:
        reject_if(sum(1 << LENGTH_MAX - length for length in lengths) != 1 << LENGTH_MAX, "CORRUPT")


class Codebook:
    def __init__(self, header, data):
        """Reads a serialised codebook that has the size of codebook_size(). Rejected: CORRUPT."""
        self.base, first, last, special = data[0:4]
        self.relative = header.fine and self.base == 1
        if header.mapped or header.carried:
            reject_if(self.base > 1, "CORRUPT")
        elif header.fine or header.dtype is FP16:
            reject_if(self.base != 0, "CORRUPT")
        reject_if(self.base > 191, "CORRUPT")
        self.masked = special & 15 == MASKED
        data, class_lengths = (data[:-8], data[-8:]) if self.masked else (data, None)

        lengths = {ZERO_LABEL: 0 if self.masked else special & 15, ESCAPE_LABEL: special >> 4}
        nibbles_end = 32
        if first == 0:
            reject_if(last != 0, "CORRUPT")
        else:
            reject_if(first <= ESCAPE_LABEL, "CORRUPT")
            lengths.update(zip(range(first, last + 1), numbers_of(data[4:], 4, last - first + 1)))
            reject_if(lengths[first] == 0 or lengths[last] == 0, "CORRUPT")
            nibbles_end += 4 * (last - first + 1)
        reject_if(has_padding(data, nibbles_end), "CORRUPT")

        self.length = {label: length for label, length in lengths.items() if length}
        for label in self.length:
            reject_if(label > ESCAPE_LABEL and not is_label(header, label), "CORRUPT")
        check_lengths(self.length)
        self.tree = Tree(self._leaves())
        if self.masked:
            self.mask_tree = Tree(mask_leaves(class_lengths))

    def _leaves(self):
        if len(self.length) == 1:
            return [Leaf(0, 0, list(self.length))]
        leaves = []
        for length in range(1, LENGTH_MAX + 1):
            labels = sorted(label for label in self.length if self.length[label] == length)
            while labels:
                width = min(LEAF_WIDTH_MAX, len(labels).bit_length() - 1)
                leaves.append(Leaf(length - width, width, labels[: 1 << width]))
                del labels[: 1 << width]
        leaves.sort(key=lambda leaf: leaf.depth)  # stable
        return leaves

    def can_be_installed(self):
        """Has it codes for all that may occur?"""
        if self.masked:
            return ESCAPE_LABEL in self.length and len(self.mask_tree.symbol_of_rank) == 256
        return {ZERO_LABEL, ESCAPE_LABEL} <= set(self.length)


# ---------------------------------------------------------------------------------------------------------------------
# 5.2 Chunk header and runs
# ---------------------------------------------------------------------------------------------------------------------


class Cursor:
    """Reads the parts of a chunk one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        reject_if(size > len(self.data) - self.at, "CORRUPT")
        self.at += size
        return self.data[self.at - size : self.at]

    def take_run(self, length, width):
        """A run, padded to 4 bytes."""
        run = self.take(round_up((length * width + 7) // 8, 4))
        reject_if(has_padding(run, length * width), "CORRUPT")
        return run


def share_out(tree, length, right_lens):
    """Numbers of values of all nodes, from those of the root and of the right children."""
    tree.root.values = length
    for node in tree.inner_nodes:
        right_len = next(right_lens)
        reject_if(right_len > node.values, "CORRUPT")
        node.right.values = right_len
        node.left.values = node.values - right_len


def decode_coded(header, chunk, codebook, data, cuts):
    """Values of a CODED chunk. `data` is its region after codebook and quanta."""
    dtype = header.dtype
    plane_count = 7 if header.fine else 4
    trees = [codebook.mask_tree, codebook.tree] if codebook.masked else [codebook.tree]
    cursor = Cursor(data)

    # Chunk header.
    word_count = plane_count + 1 + codebook.masked + sum(len(tree.inner_nodes) for tree in trees)
    words = cursor.take(round_up(2 * word_count, 4))
    reject_if(has_padding(words, 16 * word_count), "CORRUPT")
    words = numbers_of(words, 16, word_count)
    plane_len, escape_len = words[:plane_count], words[plane_count]
    coded_len = words[plane_count + 1] if codebook.masked else chunk.length
    reject_if(max(plane_len + [escape_len, coded_len]) > chunk.length, "CORRUPT")
    right_lens = iter(words[plane_count + 1 + codebook.masked :])
    if codebook.masked:
        share_out(codebook.mask_tree, (chunk.length + 7) // 8, right_lens)
    share_out(codebook.tree, coded_len, right_lens)

    # Runs, planes, escapes, padding.
    for tree in trees:
        for node in tree.preorder:
            node.run = cursor.take_run(node.values, node.leaf.width if node.leaf else 1)
    planes = []
    for plane in range(plane_count):
        width = plane_width(header, plane)
        planes.append(numbers_of(cursor.take_run(plane_len[plane], width), width, plane_len[plane]))
    escapes = numbers_of(cursor.take_run(escape_len, 8 * dtype.size), 8 * dtype.size, escape_len)
    padding = data[cursor.at :]
    reject_if(len(padding) >= 16 or any(padding), "CORRUPT")

    labels = symbols_of(codebook.tree)
    if codebook.masked:
        labels = unmask(codebook, chunk.length, coded_len, labels)
    return join(header, codebook, labels, [iter(plane) for plane in planes], iter(escapes), cuts)


def symbols_of(tree):
    return [tree.symbol_of_rank[rank] for rank in ranks_of(tree.root)]


def ranks_of(node):
    """Ranks of the values of a node, in their order: merges those of its children."""
    if node.leaf:
        if node.leaf.width == 0:
            return [node.first_rank] * node.values
        return [node.first_rank + number for number in numbers_of(node.run, node.leaf.width, node.values)]
    goes_right = numbers_of(node.run, 1, node.values)
    reject_if(sum(goes_right) != node.right.values, "CORRUPT")
    left, right = iter(ranks_of(node.left)), iter(ranks_of(node.right))
    return [next(right) if bit else next(left) for bit in goes_right]


def join(header, codebook, labels, planes, escapes, cuts):
    """Values from labels, digits (one iterator per plane) and escapes (one iterator)."""
    dtype = header.dtype
    mantissa_bits = dtype.mantissa_bits
    sign_shift = 8 * dtype.size - 1
    mantissa_mask = (1 << mantissa_bits) - 1
    digits_by_drop = [digits_of(header, drop) for drop in range(mantissa_bits + 1)]
    values = []
    for label, cut in zip(labels, cuts):
        if label == ZERO_LABEL:
            values.append(0)
            continue
        if label == ESCAPE_LABEL:
            bits = next(escapes, None)
            reject_if(bits is None, "CORRUPT")
            check_escape(header, codebook, bits, cut)
            values.append(bits)
            continue
        exponent = exponent_of(header, codebook, label, cut)
        drop = drop_of(header, exponent, cut) if header.fine else label % 4 * dtype.step
        z = 0
        for plane, width in digits_by_drop[drop]:
            digit = next(planes[plane], None)
            reject_if(digit is None, "CORRUPT")
            z = z << width | digit
        z <<= drop
        mantissa = z & mantissa_mask
        reject_if(dtype is FP16 and exponent == 0 and mantissa == 0, "CORRUPT")
        values.append(z >> mantissa_bits << sign_shift | exponent << mantissa_bits | mantissa)
    for plane in planes + [escapes]:
        reject_if(next(plane, None) is not None, "CORRUPT")
    return values


def check_escape(header, codebook, bits, cut):
    """Rule 26: was this escape needed, and is it a value that an encoder may send?"""
    dtype = header.dtype
    reject_if(bits == 0 and codebook.masked, "CORRUPT")
    allowed = labels_allowed(header, codebook, bits, cut)
    reject_if(allowed and all(label in codebook.length for label in allowed), "CORRUPT")
    magnitude = bits & (1 << 8 * dtype.size - 1) - 1
    exponent = magnitude >> dtype.mantissa_bits
    if not header.strict and bits != 0:
        reject_if(magnitude == 0, "CORRUPT")
        reject_if(dtype is not FP16 and exponent == 0, "CORRUPT")
    if header.fine:
        reject_if(bits % (1 << drop_of(header, exponent, cut)) != 0, "CORRUPT")


# ---------------------------------------------------------------------------------------------------------------------
# 5.3 Zero mask
# ---------------------------------------------------------------------------------------------------------------------

CLASS_WIDTHS = (0, 3, 5, 6, 6, 6, 4, 2, 1, 0)
MASK_BYTES = sorted(range(256), key=lambda byte: (byte.bit_count(), byte))


def mask_leaves(data):
    """Leaves of the mask's tree from the last eight bytes of a codebook."""
    reject_if(has_padding(data, 4 * len(CLASS_WIDTHS)), "CORRUPT")
    lengths = numbers_of(data, 4, len(CLASS_WIDTHS))
    length_of = {number: length for number, length in enumerate(lengths) if length}
    check_lengths(length_of)
    leaves = []
    first = 0
    for number, width in enumerate(CLASS_WIDTHS):
        if number in length_of:
            depth = length_of[number] if len(length_of) > 1 else 0
            leaves.append(Leaf(depth, width, MASK_BYTES[first : first + (1 << width)]))
        first += 1 << width
    leaves.sort(key=lambda leaf: leaf.depth)  # stable
    return leaves


def unmask(codebook, length, coded_len, labels):
    """Labels of all values from the zero mask and the labels of the others."""
    mask = bytes(symbols_of(codebook.mask_tree))
    reject_if(has_padding(mask, length), "CORRUPT")
    is_coded = numbers_of(mask, 1, length)
    reject_if(sum(is_coded) != coded_len, "CORRUPT")
    rest = iter(labels)
    return [next(rest) if coded else ZERO_LABEL for coded in is_coded]


# ---------------------------------------------------------------------------------------------------------------------
# 5.4 Quanta
# ---------------------------------------------------------------------------------------------------------------------


def read_quanta(header, chunk, data):
    """Quanta of the chunk's blocks and the bytes after them."""
    block_count = (chunk.length + (1 << header.block_log2) - 1) >> header.block_log2
    size = round_up(block_count, 4)
    reject_if(size > len(data), "CORRUPT")
    quanta = data[:block_count]
    reject_if(any(data[block_count:size]), "CORRUPT")
    largest = max(quanta)
    reject_if(largest > header.dtype.largest_exponent + (112 if header.dtype is FP16 else 0), "CORRUPT")
    reject_if(any(0 < quantum < largest - 62 for quantum in quanta), "CORRUPT")
    return quanta, data[size:]


def cuts_of_quanta(header, chunk, quanta):
    """K + drop_offset for every value, None where K is 0."""
    largest = max(quanta)
    drop_offset = 4 * (largest + header.dtype.mantissa_bits) - 252
    cuts = []
    for quantum in quanta:
        cut = None if quantum == 0 else 255 - 4 * (largest - quantum) + drop_offset
        cuts.extend([cut] * (1 << header.block_log2))
    return cuts[: chunk.length]


# ---------------------------------------------------------------------------------------------------------------------
# 7. Map hash
# ---------------------------------------------------------------------------------------------------------------------

# The receiver's map: one byte per value, the base that is in drop_offset, the bits of wire_scale as an fp32.
Map = collections.namedtuple("Map", "bytes drop_offset wire_scale", defaults=(0, 0x3F800000))


def map_hash(header, map_bytes, drop_offset, wire_scale):
    head = struct.pack(
        "<hBBBBHIIQ",
        drop_offset,
        header.step,
        header.cap,
        header.dtype.number,
        header.chunk_log2,
        0,
        wire_scale,
        0,
        header.count,
    )
    low = high = crc32c(head)
    for first in range(0, header.count, header.chunk_len):
        digest = crc32c(map_bytes[first : first + header.chunk_len])
        low = crc32c(struct.pack("<I", digest), low)
        high = crc32c(struct.pack("<I", digest * 0x9E3779B1 % (1 << 32)), high)
    return high << 32 | low


# ---------------------------------------------------------------------------------------------------------------------
# 8. What a decoder rejects
# ---------------------------------------------------------------------------------------------------------------------


def check_header(data, count_limit, size_t_bits):
    """Rules 1 to 13."""
    reject_if(len(data) < 32, "SHORT")
    header = Header(data)
    dtype = header.dtype
    reject_if(header.magic != MAGIC, "MAGIC")
    reject_if(header.writer_version < header.reader_version, "HEADER")
    reject_if(header.reader_version > READER_VERSION, "VERSION")
    known_flags = STRICT | DERIVED | INSTALLED | CHECKSUM | CONSTANT | CARRIED
    reject_if(header.codec != CODEC_GCOMP or dtype is None or header.flags & ~known_flags, "UNSUPPORTED")
    reject_if(not 10 <= header.chunk_log2 <= 15, "HEADER")
    reject_if(header.constant and not header.derived, "HEADER")
    reject_if(header.carried and (header.derived or header.constant), "HEADER")
    steps = (1,) if header.constant or header.carried else dtype.derived_steps if header.derived else (dtype.step,)
    reject_if(header.step not in steps, "HEADER")
    reject_if(header.cap > (dtype.derived_cap if header.fine else dtype.explicit_cap), "HEADER")
    reject_if(header.cap % header.step != 0, "HEADER")
    if header.carried:
        reject_if(header.cap != dtype.derived_cap, "HEADER")
        reject_if(not 6 <= header.block_log2 <= min(14, header.chunk_log2), "HEADER")
    else:
        reject_if(header.drop_offset != 0 and not header.mapped, "HEADER")
    reject_if(header.directory_at < header.parts_end, "HEADER")
    reject_if(header.count > min(COUNT_MAX, count_limit), "LIMIT")
    header.measure()
    reject_if(header.chunk_count > CHUNKS_MAX, "LIMIT")
    reject_if(header.size > len(data), "SHORT")
    reject_if(not header.payload_at <= header.size <= header.size_max, "HEADER")
    reject_if(header.count * dtype.size >= 1 << size_t_bits, "LIMIT")
    reject_if(header.size < len(data), "TRAILING")
    header.read_extension(data)
    reject_if(any(header.reserved), "HEADER")
    ignorable_parts(header.ignorable, data[header.parts_end : header.directory_at])  # this decoder knows none
    reject_if(any(data[header.directory_end : header.payload_at]), "HEADER")
    if header.checksum:
        meta = data[: header.checksum_at] + bytes(4) + data[header.checksum_at + 4 : header.payload_at]
        reject_if(crc32c(meta) != header.meta_crc, "CHECKSUM")
    return header


def check_directory(header, data):
    """Rule 14."""
    chunks = [Chunk(header, data, index) for index in range(header.chunk_count)]
    reject_if((chunks[0].offset if chunks else header.size) != header.payload_at, "HEADER")
    for chunk, following in zip(chunks, chunks[1:] + [None]):
        reject_if(chunk.kind > CODED, "HEADER")
        chunk.end = following.offset if following else header.size
        reject_if(chunk.end < chunk.offset or chunk.end > header.size or chunk.end % 16 != 0, "HEADER")
        if chunk.kind == CODED and not header.installed:
            reject_if(chunk.codebook > chunk.index or not chunks[chunk.codebook].owns_codebook(header), "HEADER")
        else:
            reject_if(chunk.codebook != 0, "HEADER")
        reject_if(not header.checksum and chunk.crc != 0, "HEADER")
    return chunks


def check_receiver(header, map, installed, dtype):
    """Rules 14a to 16. Returns the installed codebook, if the frame needs one."""
    reject_if(dtype is not None and header.dtype is not dtype, "OPTION")
    codebook = None
    if header.installed:
        codebook = installed.get((header.codebook_id, header.generation))
        reject_if(codebook is None or crc32c(codebook) != header.codebook_crc, "TABLE")
        try:
            reject_if(codebook_size(codebook, 0, len(codebook)) != len(codebook), "CORRUPT")
            codebook = Codebook(header, codebook)
            reject_if(not codebook.can_be_installed(), "CORRUPT")
        except Rejected:
            raise Rejected("TABLE") from None
    if header.mapped:
        reject_if(map is None or len(map.bytes) != header.count, "MAP")
        reject_if(header.drop_offset != map.drop_offset or header.wire_scale != map.wire_scale, "MAP")
        reject_if(header.map_hash != map_hash(header, map.bytes, map.drop_offset, map.wire_scale), "MAP")
    return codebook


def read_codebook(header, owner, data, codebooks):
    """The codebook that a chunk owns, and its bytes. `codebooks` remembers those already read, by owner."""
    if owner.index not in codebooks:
        size = codebook_size(data, owner.offset, owner.end)
        codebook_bytes = data[owner.offset : owner.offset + size]
        codebooks[owner.index] = Codebook(header, codebook_bytes), codebook_bytes
    return codebooks[owner.index]


def decode_chunk(header, chunks, chunk, data, codebooks, map_bytes):
    """Rules 18 to 26 and the values of one chunk. codebooks[None] is the installed one."""
    region = data[chunk.offset : chunk.end]
    codebook, codebook_bytes, body = codebooks[None], b"", region

    # Rule 18. An owner's region starts with its codebook, so its crc needs no knowledge of that; the crc of other
    # users starts with the bytes of a codebook that must be read first.
    if chunk.kind == CODED and not header.installed and chunk.codebook != chunk.index:
        codebook, codebook_bytes = read_codebook(header, chunks[chunk.codebook], data, codebooks)
    if header.checksum:
        reject_if(crc32c(region, crc32c(codebook_bytes)) != chunk.crc, "CHECKSUM")

    raw_size = round_up(chunk.length * header.dtype.size, 16)
    if chunk.kind == ZERO:
        reject_if(len(region) != 0, "CORRUPT")
        return [0] * chunk.length
    if chunk.kind == RAW:
        reject_if(len(region) != raw_size, "CORRUPT")
        value_bits = 8 * header.dtype.size
        reject_if(has_padding(region, chunk.length * value_bits), "CORRUPT")
        return numbers_of(region, value_bits, chunk.length)
    reject_if(len(region) >= raw_size, "CORRUPT")
    if chunk.owns_codebook(header):
        codebook, codebook_bytes = read_codebook(header, chunk, data, codebooks)
        body = region[len(codebook_bytes) :]
    if header.carried:
        quanta, body = read_quanta(header, chunk, body)
        cuts = cuts_of_quanta(header, chunk, quanta)
    elif header.mapped:
        cuts = [k + header.drop_offset if k else None for k in map_bytes]
    else:
        cuts = [None] * chunk.length
    return decode_coded(header, chunk, codebook, body, cuts)


def decode(data, map=None, installed=None, capacity=None, count_limit=COUNT_MAX, size_t_bits=64, dtype=None):
    """Decodes a frame.

    data         the bytes at hand
    map          the receiver's Map, for derived frames
    installed    {(codebook_id, generation): serialised codebook}
    capacity     values that the output can hold; None: as many as there are
    count_limit  the caller's limit for rule 8
    size_t_bits  rule 8 for another machine than this one
    dtype        the only one that the receiver decodes, of DTYPES; None: that of the frame

    Returns (status, bad_chunk, values). Status is a name of section 8 or "OK". Values are bit patterns of the dtype;
    they are empty unless status is OK or the content of a chunk is bad. In that case the values of all bad chunks are
    0 and bad_chunk is the index of the first; else it is None.
    """
    data = bytes(data)
    try:
        header = check_header(data, count_limit, size_t_bits)
        chunks = check_directory(header, data)
        codebook = check_receiver(header, map, installed or {}, dtype)
        reject_if(capacity is not None and header.count > capacity, "DST")
    except Rejected as rejection:
        return rejection.args[0], None, []

    status, bad_chunk, values = "OK", None, []
    codebooks = {None: codebook}
    for chunk in chunks:
        map_bytes = map.bytes[chunk.first : chunk.first + chunk.length] if header.mapped else b""
        try:
            values.extend(decode_chunk(header, chunks, chunk, data, codebooks, map_bytes))
        except Rejected as rejection:
            values.extend([0] * chunk.length)
            if status == "OK":
                status, bad_chunk = rejection.args[0], chunk.index
    return status, bad_chunk, values


# ---------------------------------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------------------------------


def values_to_bytes(values, size):
    return struct.pack("<%d%s" % (len(values), "I" if size == 4 else "H"), *values)


def npy_of(values, dtype):
    """A NumPy .npy file, version 1.0. fp32 and fp16 get their own types, bf16 becomes unsigned 16-bit integers."""
    descr = {"fp32": "<f4", "fp16": "<f2", "bf16": "<u2"}[dtype.name]
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (descr, len(values))
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return (
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii") + values_to_bytes(values, dtype.size)
    )


def wire_scale_bits(text):
    """A finite fp32 above 0 as decimal number, or its bits as 0x........"""
    if text.lower().startswith("0x"):
        bits = int(text, 16)
    else:
        bits = u32(struct.pack("<f", float(text)), 0)
    if not 0 < bits < 0x7F800000:
        raise argparse.ArgumentTypeError("not a positive finite fp32: " + text)
    return bits


def integer(text):
    return int(text, 0)


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def write_file(path, content):
    """Through a temporary file, so that no half-written output is left."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description="Decode a GCOMP frame of gradwire by docs/format.md. Exit status: 0 decoded, 1 rejected, 2 usage."
    )
    parser.add_argument("frame", metavar="IN.gw")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT.npy",
        help="write the values (bf16 as unsigned 16-bit integers); nothing is written on rejection",
    )
    parser.add_argument("--map", metavar="K.bin", help="the receiver's map, one byte per value, for derived frames")
    parser.add_argument(
        "--drop-offset", type=integer, default=0, metavar="N", help="drop_offset of the map (default 0)"
    )
    parser.add_argument(
        "--wire-scale",
        type=wire_scale_bits,
        default=0x3F800000,
        metavar="S",
        help="wire scale of the map, decimal or the bits of an fp32 as 0x... (default 1)",
    )
    parser.add_argument("--codebook", metavar="CODEBOOK.bin", help="an installed codebook")
    parser.add_argument("--codebook-id", type=integer, default=0, metavar="N")
    parser.add_argument("--generation", type=integer, default=0, metavar="N")
    parser.add_argument(
        "--count-limit",
        type=integer,
        default=COUNT_MAX,
        metavar="N",
        help="refuse frames with more values (default 2^48)",
    )
    parser.add_argument(
        "--dtype", choices=[dtype.name for dtype in DTYPES.values()], help="refuse frames of other dtypes"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    try:
        data = read_file(options.frame)
        receiver_map = Map(read_file(options.map), options.drop_offset, options.wire_scale) if options.map else None
        installed = {(options.codebook_id, options.generation): read_file(options.codebook)} if options.codebook else {}
    except OSError as error:
        parser.exit(2, "gw_decode: %s: %s\n" % (error.filename, error.strerror))

    receiver_dtype = {dtype.name: dtype for dtype in DTYPES.values()}.get(options.dtype)
    status, bad_chunk, values = decode(
        data, receiver_map, installed, count_limit=options.count_limit, dtype=receiver_dtype
    )
    report = {
        "file": options.frame,
        "status": status,
        "bad_chunk": bad_chunk,
        "values": len(values),
        "input_bytes": len(data),
    }
    if status == "OK":
        dtype = DTYPES[data[6]]
        report["dtype"] = dtype.name
        report["values_crc32c"] = "%08x" % crc32c(values_to_bytes(values, dtype.size))
        if values:
            report["bits_per_value"] = round(8 * len(data) / len(values), 4)
        if options.output:
            try:
                write_file(options.output, npy_of(values, dtype))
            except OSError as error:
                parser.exit(2, "gw_decode: %s: %s\n" % (options.output, error.strerror))
    if options.json:
        print(json.dumps(report))
    elif status == "OK":
        print("%(file)s: ok, %(values)d %(dtype)s values, CRC32C %(values_crc32c)s" % report)
    else:
        place = "" if bad_chunk is None else ", chunk %d" % bad_chunk
        print("gw_decode: %s: %s%s" % (options.frame, status, place), file=sys.stderr)
    return 0 if status == "OK" else 1


if __name__ == "__main__":
    sys.exit(main())
