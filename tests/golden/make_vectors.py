#!/usr/bin/env python3
"""Makes the golden vectors, decode/ and reject/ and their index.tsv, or random ones.

    make_vectors.py                          the archives of this directory and index.tsv
    make_vectors.py DIR                      the same vectors, as files; old files are replaced
    make_vectors.py --random N --seed S DIR  N random frames, valid and mutated, with the reference decoder's verdict

index.tsv has one line per vector: the frame, what a decoder must say to it, and what the receiver knows. COLUMNS names
the fields; '-' stands for "none". The golden verdicts come from how each frame was built, not from any decoder.

SPDX-License-Identifier: BSD-2-Clause
"""

import argparse
import os
import shutil
import struct
import sys
import tempfile

import frame_writer as fw
import golden_archive
from frame_writer import BF16, CODED, DTYPES, FP16, FP32, RAW, ZERO, Book, Chunk, Coded, Format, Frame
from vector_values import (
    Rng,
    explicit_level,
    explicit_map_for,
    flat_map,
    map_for,
    plain_value,
    quanta_for,
    rounded,
    special_values,
)

HERE = os.path.dirname(os.path.abspath(__file__))

COLUMNS = (
    "file",  # the frame
    "status",  # OK or a name of docs/format.md section 8
    "bad_chunk",  # lowest bad chunk, if the content of one is bad
    "rule",  # the broken rule's number in section 8, 0 for valid frames
    "dtype",  # of the receiver's handle
    "levels",  # of the receiver's handle: explicit, derived or carried
    "count",  # values, where the frame gives any (bad chunks as +0)
    "values_crc",  # CRC32C of the values
    "values",  # file of the values, where it is kept
    "map",  # file of the receiver's map bytes
    "drop_base",  # of the receiver's map
    "wire_scale",  # of the receiver's map, bits of an fp32
    "book",  # file of the installed codebook
    "book_id",
    "generation",
    "count_limit",  # of the receiver
    "capacity",  # of the receiver's output, in values; none: large enough
    "tolerance_bits",  # of the receiver's handle
    "preset",  # fast or small: encoding the values by truncation with the header's options gives the frame
    "constant_drop",  # for that, in frames without a map
    "deep_cut",  # for that: 0 or 1
    "quanta",  # for that: file of one byte per block, in carried frames
    "source",  # for that: file of other values to start from
    "rounding",  # for that: truncate, nearest or stochastic
    "segments",  # for that: 1: the source is one segment
)
VALUES_FILE_MAX = 8192  # bytes; longer outputs are checked by their CRC only


class Receiver:
    """What the receiver knows."""

    def __init__(
        self,
        levels=None,
        drop_base=0,
        wire_scale=fw.WIRE_SCALE_ONE,
        book=None,
        book_id=0,
        generation=0,
        count_limit=None,
        capacity=None,
        dtype=None,
    ):
        self.levels, self.drop_base, self.wire_scale = levels, drop_base, wire_scale
        self.book, self.book_id, self.generation = book, book_id, generation
        self.count_limit, self.capacity = count_limit, capacity
        self.dtype = dtype  # None: that of the frame


def receiver_of(frame, **changes):
    receiver = Receiver()
    if frame.format.mapped:
        receiver.levels, receiver.drop_base, receiver.wire_scale = (
            frame.levels,
            frame.format.drop_base,
            frame.wire_scale,
        )
    if frame.installed:
        receiver.book_id, receiver.generation, receiver.book = frame.installed
    for name, value in changes.items():
        assert hasattr(receiver, name)
        setattr(receiver, name, value)
    return receiver


class Index:
    """Writes vectors and their lines of index.tsv."""

    def __init__(self, root):
        self.root, self.lines, self.support, self.names = root, [], {}, set()

    def _file(self, path, data):
        path_on_disk = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path_on_disk), exist_ok=True)
        with open(path_on_disk, "wb") as file:
            file.write(data)
        return path

    def _support(self, suffix, data):
        """Maps and books serve several vectors: one file per content."""
        if data is None:
            return None
        if (suffix, data) not in self.support:
            name = "receiver/%s-%08x.bin" % (suffix, fw.crc32c(data))
            self.support[suffix, data] = self._file(name, data)
        return self.support[suffix, data]

    def add(
        self,
        name,
        data,
        format_,
        receiver,
        status="OK",
        rule=0,
        bad_chunk=None,
        values=None,
        preset=None,
        constant_drop=None,
        quanta=None,
        source=None,
        rounding="truncate",
        segments=0,
    ):
        assert name not in self.names, name
        self.names.add(name)
        dtype = format_.dtype
        values_crc = values_file = None
        if values is not None:
            content = fw.values_bytes(values, dtype)
            values_crc = "%08x" % fw.crc32c(content)
            if status == "OK" and len(content) <= VALUES_FILE_MAX:
                values_file = self._file(name + ".bin", content)
        fields = (
            self._file(name + ".gw", data),
            status,
            bad_chunk,
            rule,
            (receiver.dtype or dtype).name,
            format_.levels_name,
            None if values is None else len(values),
            values_crc,
            values_file,
            self._support("map", receiver.levels),
            receiver.drop_base,
            "%08x" % receiver.wire_scale,
            self._support("book", receiver.book),
            receiver.book_id,
            receiver.generation,
            receiver.count_limit,
            receiver.capacity,
            format_.tolerance_bits,
            preset,
            constant_drop,
            int(format_.deep_cut),
            self._support("quanta", quanta),
            None if source is None else self._file(name + ".src", fw.values_bytes(source, dtype)),
            rounding,
            segments,
        )
        self.lines.append("\t".join("-" if field is None else str(field) for field in fields))

    def write(self):
        with open(os.path.join(self.root, "index.tsv"), "w", encoding="ascii") as file:
            file.write("#" + "\t".join(COLUMNS) + "\n")
            file.write("".join(line + "\n" for line in self.lines))


# ---------------------------------------------------------------------------------------------------------------------
# Valid frames
# ---------------------------------------------------------------------------------------------------------------------


class Decode:
    """The vectors of decode/."""

    def __init__(self, index):
        self.index = index
        self.rng = Rng(1)

    def add(self, name, frame, values, data=None, **more):
        receiver = more.pop("receiver", None) or receiver_of(frame)
        self.index.add("decode/" + name, data or frame.to_bytes(), frame.format, receiver, values=values, **more)

    def data(self, dtype, count, zeros=4, **more):
        """One value in `zeros` is 0."""
        return [0 if self.rng.one_in(zeros) else plain_value(self.rng, dtype, **more) for _ in range(count)]

    def encoded(self, name, format_, source, preset="small", constant_level=None, rounding=None, **more):
        """A frame as the library's encoder makes it, by map, quanta or constant. With a rounding, the vector keeps the
        values before it."""
        levels, cuts = more.pop("levels", b""), None
        if format_.mapped and not levels:
            levels, format_.drop_base = map_for(self.rng, format_, source)
        if format_.carried:
            quanta = more.setdefault("quanta", quanta_for(self.rng, format_, source))
            cuts = fw.cuts_of_frame(format_, len(source), more.get("chunk_log2", 12), b"", quanta)
        level = constant_level or 0
        values, drops = rounded(format_, source, levels, lambda i: level, cuts, rounding or "truncate")
        frame = fw.write_frame(format_, values, drops, preset, levels=levels, **more)
        drop = None
        if not format_.mapped and not format_.carried:
            drop = format_.cap if format_.derived else level * format_.dtype.step
        extra = {"source": source, "rounding": rounding} if rounding else {}
        self.add(name, frame, values, preset=preset, constant_drop=drop, quanta=more.get("quanta"), **extra)
        return frame

    def all(self):
        self.tiny()
        self.modes()
        self.values()
        self.codebooks()
        self.chunks()
        self.later()
        self.rng = Rng(4)  # of its own: the vectors above stay as they are
        self.masked()
        self.relative()
        self.carried()
        self.deep()
        self.rng = Rng(5)
        self.explicit_maps()
        self.rng = Rng(6)
        self.small_chunks()

    def small_chunks(self):
        """Chunks of 2^10 and 2^11 values."""
        for log2 in (10, 11):
            for preset in ("fast", "small"):
                for dtype, checksum in ((FP32, True), (BF16, False)):
                    name = "chunk-log2-%d-%s-%s" % (log2, preset, dtype.name)
                    source = self.sparse(dtype, 1024, 3) + [0] * 2048 + self.sparse(dtype, 2000, 20)
                    self.encoded(name, Format(dtype), source, preset, 2, chunk_log2=log2, checksum=checksum)
            format_ = Format(FP16, derived=True)
            self.encoded("chunk-log2-%d-derived" % log2, format_, self.data(FP16, 3000), "fast", chunk_log2=log2)
            format_ = Format(FP32, block_log2=log2, deep_cut=True)
            self.encoded("chunk-log2-%d-carried" % log2, format_, self.sparse(FP32, 5000, 9), chunk_log2=log2)

    def explicit_maps(self):
        """Explicit frames with a map: the drop of a value is found before it is rounded, or again afterwards."""
        tolerance = {FP32: 23, BF16: 7, FP16: 10}
        for dtype in DTYPES:
            format_ = Format(dtype, tolerance_bits=tolerance[dtype])
            top = 12 if dtype is FP16 else 100
            # Half of the values are just below a quarter-octave, and rounding up takes them over it.
            source = [plain_value(self.rng, dtype, top=top, spread=3) for _ in range(400)]
            low = (1 << dtype.mantissa_bits - 2) - 1
            source = [bits | low if i % 2 else bits for i, bits in enumerate(source)]
            base = 4 * (top + dtype.bias) - 60
            levels = explicit_map_for(self.rng, format_, source, base)
            receiver = Receiver(levels, base + 3 - 4 * (format_.tolerance_bits - dtype.mantissa_bits))
            written = {}
            for rounding in ("truncate", "nearest", "stochastic"):
                steps = [explicit_level(format_, bits, k, base) for bits, k in zip(source, levels)]
                values, drops = rounded(format_, source, None, lambda i: steps[i], None, rounding)
                again = [explicit_level(format_, bits, k, base) for bits, k in zip(values, levels)]
                assert rounding == "truncate" or again != steps  # so that the rule shows
                for segments in (0, 1):
                    if segments and rounding == "stochastic":
                        drops = [dtype.step * level for level in again]
                    frame = fw.write_frame(format_, values, drops, "small")
                    name = "explicit-map-%s-%s%s" % (dtype.name, rounding, "-segments" if segments else "")
                    written[name] = frame.to_bytes()
                    self.add(
                        name,
                        frame,
                        values,
                        receiver=receiver,
                        preset="small",
                        source=source,
                        rounding=rounding,
                        segments=segments,
                    )

            one = written["explicit-map-%s-stochastic" % dtype.name]
            assert one != written["explicit-map-%s-stochastic-segments" % dtype.name]

    def later(self):
        """What a writer of a later version may add and this decoder skips."""
        book = Book({0: 1, 1: 2, 200: 2}, 60)
        for name, format_, more in (
            ("explicit", Format(FP32), {}),
            ("checksum", Format(BF16), {"checksum": True}),
            ("derived", Format(FP16, derived=True), {}),
            ("installed", Format(FP32), {"installed": (7, 1, book)}),
            ("all", Format(FP32, derived=True), {"installed": (7, 1, Book({0: 1, 1: 2, 127: 2})), "checksum": True}),
        ):
            for parts in ((), ((0, 1),), ((0, 1), (7, 3))):
                source = self.data(format_.dtype, 50)
                levels = b""
                if format_.mapped:
                    levels, format_.drop_base = map_for(self.rng, format_, source)
                values, drops = rounded(format_, source, levels, lambda i: 0)
                frame = fw.write_frame(format_, values, drops, "small", levels=levels, **more)
                frame.tail = fw.ignorable_parts(parts)
                frame.force.update(version=0x10, ignorable_flags=0x81)
                self.add("later-%s-%d" % (name, len(frame.tail)), frame, values)
        last = fw.ignorable_parts(((7, 1),))
        for name, tail, force in (
            ("writer-15", b"", {"version": 0xF0}),
            ("without-flags", bytes(0xA0 + i for i in range(24)), {}),
            ("all-flags", fw.ignorable_parts((), rest=last), {"ignorable_flags": 0xFF}),
            ("all-parts", fw.ignorable_parts([(bit, 1 + bit % 3) for bit in range(8)]), {"ignorable_flags": 0xFF}),
            ("largest-part", fw.ignorable_parts(((3, 254),)), {"ignorable_flags": 8}),
        ):
            values = self.data(FP32, 20)
            frame = fw.write_frame(Format(FP32), values, [0] * 20, "small")
            frame.tail = tail
            frame.force.update(force)
            self.add("later-" + name, frame, values)
        frame = Frame(Format(FP32), 0)
        frame.tail = bytes(range(255)) * 8
        self.add("later-largest-extension", frame, [])

    def tiny(self):
        for dtype in DTYPES:
            self.encoded("empty-" + dtype.name, Format(dtype), [])
            self.encoded("one-value-" + dtype.name, Format(dtype), self.data(dtype, 1, zeros=1000))
        self.encoded("empty-checksum", Format(FP32), [], checksum=True)
        self.encoded("empty-derived", Format(FP32, derived=True), [])
        self.encoded("empty-constant", Format(BF16, derived=True, constant=True, step=1, cap=3), [])
        book = Book({0: 1, 1: 2, 200: 2}, 60)
        self.encoded("empty-installed-checksum", Format(FP32), [], installed=(7, 1, book), checksum=True)
        self.encoded("one-zero", Format(FP32), [0])
        self.encoded(
            "one-value-derived-checksum", Format(FP16, derived=True), self.data(FP16, 1, zeros=1000), checksum=True
        )
        # Around every padding unit: 4 bytes of a run, 16 of a chunk.
        for count in (31, 32, 33, 63, 64, 65, 127):
            self.encoded("count-%d" % count, Format(BF16), self.data(BF16, count, zeros=2, spread=2), constant_level=3)

    def modes(self):
        count = 400
        for dtype in DTYPES:
            for level in range(4):
                self.encoded(
                    "explicit-%s-level%d" % (dtype.name, level),
                    Format(dtype),
                    self.data(dtype, count),
                    constant_level=level,
                )
            format_ = Format(dtype)
            source = self.data(dtype, count)
            picks = [self.rng.below(4) for _ in source]
            values, drops = rounded(format_, source, None, lambda i: picks[i])
            self.add("explicit-%s-mixed" % dtype.name, fw.write_frame(format_, values, drops, "small"), values)
            for step in dtype.derived_steps:
                self.encoded(
                    "derived-%s-step%d" % (dtype.name, step),
                    Format(dtype, derived=True, step=step),
                    self.data(dtype, count),
                )
                self.encoded(
                    "derived-%s-step%d-cap" % (dtype.name, step),
                    Format(dtype, derived=True, step=step, cap=step),
                    self.data(dtype, count),
                )
            for cap in sorted({0, 1, dtype.mantissa_bits // 2, dtype.mantissa_bits}):
                self.encoded(
                    "constant-%s-drop%d" % (dtype.name, cap),
                    Format(dtype, derived=True, constant=True, step=1, cap=cap),
                    self.data(dtype, count),
                )
            self.encoded("checksum-explicit-" + dtype.name, Format(dtype), self.data(dtype, count), checksum=True)
            self.encoded(
                "checksum-derived-" + dtype.name, Format(dtype, derived=True), self.data(dtype, count), checksum=True
            )
        # A cap of 0: the map calls for cuts and none is made.
        self.encoded("derived-fp32-cap0", Format(FP32, derived=True, step=3, cap=0), self.data(FP32, count))
        self.encoded("explicit-fp32-cap0", Format(FP32, cap=0), self.data(FP32, count))
        self.encoded("derived-wire-scale", Format(FP32, derived=True), self.data(FP32, count), wire_scale=0x41000000)
        self.encoded(
            "checksum-constant",
            Format(FP16, derived=True, constant=True, step=1, cap=4),
            self.data(FP16, count),
            checksum=True,
        )

    def values(self):
        count = 300
        for dtype in DTYPES:
            specials = special_values(dtype)
            for derived in (False, True):
                kind = "derived" if derived else "explicit"
                source = self.data(dtype, count)
                for i, bits in enumerate(specials * 2):
                    source[7 * i + 3] = bits
                self.encoded("strict-%s-%s" % (kind, dtype.name), Format(dtype, strict=True, derived=derived), source)
                # The same input flushed: -0 and subnormals become +0, infinities and NaN stay escapes.
                self.encoded("default-%s-%s" % (kind, dtype.name), Format(dtype, derived=derived), source)
        source = [bits | self.rng.below(2) << 15 for bits in range(1, 1024, 3)] + self.data(FP16, 60, top=2, spread=2)
        self.encoded("fp16-subnormals-explicit", Format(FP16), source)
        self.encoded("fp16-subnormals-level2", Format(FP16), source, constant_level=2)
        self.encoded("fp16-subnormals-derived", Format(FP16, derived=True), source)
        self.encoded("fp16-subnormals-constant", Format(FP16, derived=True, constant=True, step=1, cap=7), source)
        edge = [FP32.bits(s, e, m) for s in (0, 1) for e in (1, 2, 253, 254) for m in (0, 1, (1 << 23) - 1)] * 20
        self.encoded("fp32-edge-exponents-derived", Format(FP32, derived=True, constant=True, step=1, cap=0), edge)
        self.encoded("bf16-largest-window", Format(BF16), [BF16.bits(i & 1, 254 - i % 63, i & 127) for i in range(500)])
        # Outside the window of 63 exponents: too small ones, and in a frame with another base too large ones.
        source = self.data(FP32, count)
        for i in range(0, count, 37):
            source[i] = FP32.bits(i & 1, 1 + i // 37, i << 5)
        self.encoded("escapes-below-window", Format(FP32), source)
        format_ = Format(FP32)
        values, drops = rounded(format_, source)
        labels = [format_.label(bits, 0, 58) for bits in values]
        assert 1 in labels and all(e < 122 for e in (FP32.split(bits)[1] for bits in values))
        frame = Frame(format_, count)
        frame.chunks = [coded_with_counts(format_, 40, values, drops, more=[FP32.bits(0, 100, 0)])]
        self.add("escapes-above-window", frame, values)

    def codebooks(self):
        count = 400
        # Installed: a book made for other data, so that some labels have no code.
        for dtype in DTYPES:
            for derived in (False, True):
                format_ = Format(dtype, derived=derived)
                other = self.data(dtype, 200, spread=3)
                counts = {0: 5, 1: 1}
                base = 0 if derived or dtype is FP16 else 70
                for bits in other:
                    label = format_.label(bits, 0, base)
                    counts[label] = counts.get(label, 0) + 1
                book = Book(fw.package_merge(counts), base)
                name = "installed-%s-%s" % ("derived" if derived else "explicit", dtype.name)
                self.encoded(
                    name, format_, self.data(dtype, count), installed=(0x01020304, 9, book), checksum=dtype is BF16
                )
        # Installed and constant; a book whose labels never occur, so that all but zeros are escapes.
        book = Book({0: 1, 1: 2, 200: 2})
        self.encoded(
            "installed-constant",
            Format(FP32, derived=True, constant=True, step=1, cap=12),
            self.data(FP32, count, zeros=2),
            installed=(1, 0xFFFFFFFF, book),
        )

        # One label: zero, and an ordinary one with digits in all planes.
        format_ = Format(FP32)
        frame = Frame(format_, 70)
        frame.chunks = [fw.coded_chunk(format_, Book({0: 1}, 5), [0] * 70, [0] * 70, 0)]
        self.add("single-label-zero", frame, [0] * 70)
        source = [FP32.bits(self.rng.below(2), 120, self.rng.below(1 << 23)) for _ in range(count)]
        self.encoded("single-label", Format(FP32), source)
        self.encoded("single-label-derived", Format(FP32, derived=True), source)
        # Zeros without a code of their own are escapes, and have to be.
        values = [0 if i % 50 == 0 else bits for i, bits in enumerate(source)]
        frame = Frame(format_, count)
        book = Book({1: 1, 4 * 63: 1}, 57)
        frame.chunks = [fw.coded_chunk(format_, book, values, [0] * count, 0)]
        self.add("zero-as-escape", frame, values)
        # One level of an exponent has a code, the other has not: the escape is needed for the value with that level.
        values = [bits & ~63 for bits in source]
        drops = [6 if i % 10 == 0 else 0 for i in range(count)]
        frame = Frame(format_, count)
        frame.chunks = [fw.coded_chunk(format_, book, values, drops, 0)]
        self.add("level-as-escape", frame, values)
        # A value may be sent with a smaller level than its zeros would allow.
        frame = Frame(format_, count)
        frame.chunks = [
            fw.coded_chunk(format_, Book({4 * 63: 1}, 57), [bits & ~0x3FFFF for bits in source], [0] * count, 0)
        ]
        self.add("smaller-level", frame, [bits & ~0x3FFFF for bits in source])

        # `cap` is no limit for the labels of explicit frames.
        format_ = Format(FP32, cap=6)
        frame = Frame(format_, count)
        frame.chunks = [
            fw.coded_chunk(format_, Book({4 * 63 + 3: 1}, 57), [bits & ~0x3FFFF for bits in source], [18] * count, 0)
        ]
        self.add("level-above-cap", frame, [bits & ~0x3FFFF for bits in source])

        # Full-width leaves: one of 128 labels, two of 128 (all 256 labels, and the largest codebook), mixed widths.
        format_ = Format(FP32, derived=True, constant=True, step=1, cap=12)
        wide = [FP32.bits(i & 1, 1 + 37 * i % 128, (i * 0x9E3779 & 0x7FF) << 12) for i in range(count)]
        self.forced("leaf-width7", format_, Book(dict.fromkeys(range(2, 130), 7)), wide)
        full = [0 if i == 9 else FP32.bits(i & 1, 1 + 37 * i % 254, (i * 0x9E3779 & 0x7FF) << 12) for i in range(count)]
        self.forced("all-256-labels", format_, Book(dict.fromkeys(range(256), 8)), full)
        lengths = {0: 2, 1: 2, **dict.fromkeys(range(2, 130), 8)}
        self.forced("leaf-width7-deep", format_, Book(lengths), wide)
        # Codes of 11 bits: a chain, and a full level of them.
        chain = {1: 11, 0: 11, **{2 + i: 10 - i for i in range(10)}}
        few = [FP32.bits(i & 1, 1 + (i % 11 if i % 11 < 10 else 0), (i & 0x7FF) << 12) for i in range(count)]
        self.forced("code-length11-chain", format_, Book(chain), few)
        lengths = {2: 1, 3: 2, 4: 3, **dict.fromkeys(range(5, 255), 11), 0: 10, 255: 10, 1: 10}
        kraft = sum(2 ** (11 - length) for length in lengths.values())
        assert kraft == 2048, kraft
        skew = [bits if i % 4 == 0 else FP32.bits(0, 1 + i % 3, 0x5000) for i, bits in enumerate(full)]
        self.forced("code-length11-wide", format_, Book(lengths), skew)
        # By package-merge itself: counts that grow like Fibonacci numbers would ask for longer codes than 11.
        fibonacci, values = [1, 1], []
        while len(fibonacci) < 16:
            fibonacci.append(fibonacci[-1] + fibonacci[-2])
        for i, repeat in enumerate(fibonacci):
            values += [FP32.bits(0, 100 + i, 0x123400)] * repeat
        frame = self.encoded("code-length11-merged", Format(FP32), values)
        assert max(frame_lengths(frame, 0)) == 11
        # Windows: base 191, base 1, base 0 with e = 63.
        for base in (191, 1, 0):
            values = [FP32.bits(i & 1, base + 1 + i % 63, i << 12 & 0x7FFFFF) for i in range(count)]
            frame = Frame(Format(FP32), count)
            frame.chunks = [coded_with_counts(Format(FP32), base, values, [12] * count)]
            self.add("base-%d" % base, frame, values)

    def forced(self, name, format_, book, source):
        values, drops = rounded(format_, source)
        frame = Frame(format_, len(values))
        frame.chunks = [fw.coded_chunk(format_, book, values, drops, 0)]
        assert len(frame.chunks[0].book_bytes + frame.chunks[0].body) < fw.align(len(values) * format_.dtype.size, 16)
        self.add(name, frame, values)

    def chunks(self):
        # Mostly zeros, so that several chunks stay small.
        def sparse(count):
            return (
                self.data(FP32, count, zeros=1)
                if count == 0
                else [0 if not self.rng.one_in(64) else plain_value(self.rng, FP32, spread=2) for _ in range(count)]
            )

        self.encoded("short-last-chunk", Format(FP32), sparse(4096 + 100), constant_level=2)
        self.encoded("last-chunk-one-value", Format(FP32), sparse(4096) + [FP32.bits(1, 110, 0)], constant_level=3)
        self.encoded("exactly-one-chunk", Format(FP32), sparse(4096), constant_level=3)
        source = sparse(4096) + [0] * 4096 + [plain_value(self.rng, FP32, spread=60) for _ in range(8)]
        self.encoded("coded-zero-raw", Format(FP32), source, constant_level=3)
        self.encoded("coded-zero-raw-checksum", Format(FP32), source, constant_level=3, checksum=True)
        self.encoded("all-zero", Format(BF16), [0] * 9000, checksum=True)
        self.encoded("shared-codebook", Format(FP32), sparse(3 * 4096 + 50), preset="fast", constant_level=3)
        self.encoded(
            "shared-codebook-checksum",
            Format(FP32, derived=True, constant=True, step=1, cap=20),
            [0] * 4096 + sparse(2 * 4096 + 50),
            preset="fast",
            checksum=True,
        )
        self.encoded(
            "shared-codebook-derived",
            Format(BF16, derived=True),
            [0 if not self.rng.one_in(64) else plain_value(self.rng, BF16) for _ in range(2 * 4096 + 9)],
            preset="fast",
        )
        for log2 in (13, 14, 15):
            self.encoded(
                "chunk-log2-%d" % log2,
                Format(BF16),
                [0] * (1 << log2) + self.data(BF16, 200),
                chunk_log2=log2,
                preset="fast",
            )
        # Counts of 32768 in a chunk header, of one label and of two.
        values = [BF16.bits(i & 1, 120, 0) for i in range(1 << 15)]
        frame = Frame(Format(BF16), 1 << 15, 15)
        frame.chunks = [fw.coded_chunk(Format(BF16), Book({4 * 63 + 3: 1}, 57), values, [6] * len(values), 0)]
        self.add("chunk-of-32768", frame, values)
        values = [0 if i % 3 == 0 else bits for i, bits in enumerate(values)]
        self.encoded("chunk-of-32768-tree", Format(BF16), values, chunk_log2=15, constant_level=3)
        # Owners need not be the nearest: chunks 2 and 3 use the codebooks of chunks 0 and 1.
        format_ = Format(FP32)
        values, drops = rounded(format_, sparse(3 * 4096 + 200), None, lambda i: 3)
        books = [
            Book(fw.package_merge(counts), 61) for counts in ({0: 60, 1: 1, 239: 2, 235: 2}, {0: 60, 1: 9, 231: 1})
        ]
        frame = Frame(format_, len(values))
        for i in range(4):
            part = frame.chunk_range(i)
            chunk = fw.coded_chunk(format_, books[i % 2], values[part], drops[part], i if i < 2 else None)
            chunk.book = i % 2
            frame.chunks.append(chunk)
        self.add("two-owners", frame, values)
        # RAW by force where coding would be smaller; CODED by force where all is zero.
        frame = Frame(format_, 50)
        frame.chunks = [fw.raw_chunk([FP32.bits(0, 100, 0)] * 50, FP32)]
        self.add("raw-by-force", frame, [FP32.bits(0, 100, 0)] * 50)
        frame = Frame(Format(FP16), 3)
        frame.chunks = [fw.raw_chunk([1, 0x8001, 0x7BFF], FP16)]
        self.add("raw-fp16", frame, [1, 0x8001, 0x7BFF])
        self.add("capacity-exact", frame, [1, 0x8001, 0x7BFF], receiver=receiver_of(frame, capacity=3, count_limit=3))

    # ---- zero masks ----

    def sparse(self, dtype, count, one_in, **more):
        """One value in `one_in` is not 0."""
        return [plain_value(self.rng, dtype, **more) if self.rng.one_in(one_in) else 0 for _ in range(count)]

    def masked(self):
        for dtype in DTYPES:
            for one_in, count in ((3, 901), (10, 1200), (80, 3000)):
                frame = self.encoded(
                    "masked-explicit-%s-%d" % (dtype.name, one_in),
                    Format(dtype),
                    self.sparse(dtype, count, one_in),
                    constant_level=2,
                )
                assert frame.chunks[0].book_bytes[3] & 15 == (15 if one_in > 3 else 1), one_in
            source = self.sparse(dtype, 1001, 12)
            for i, bits in enumerate(special_values(dtype)):
                source[90 * i + 5] = bits
            self.encoded("masked-derived-" + dtype.name, Format(dtype, derived=True), self.sparse(dtype, 1001, 12))
            self.encoded("masked-specials-" + dtype.name, Format(dtype), source, checksum=True)
            self.encoded("masked-strict-" + dtype.name, Format(dtype, strict=True, derived=True), source)
        constant = Format(FP32, derived=True, constant=True, step=1, cap=13)
        self.encoded("masked-constant", constant, self.sparse(FP32, 999, 12), checksum=True)
        # Around the bytes of the mask and the words of its runs.
        for count in (249, 255, 256, 257, 263):
            frame = self.forced_book("masked-count-%d" % count, Format(BF16), self.sparse(BF16, count, 5), masked=True)
        # Several chunks with one codebook: sampled, so that all classes have codes; and one chunk of zeros.
        source = self.sparse(FP32, 2 * 4096, 40) + [0] * 4096 + self.sparse(FP32, 999, 5)
        self.encoded("masked-shared", Format(FP32), source, preset="fast", constant_level=3, checksum=True)
        self.encoded(
            "masked-shared-bf16", Format(BF16, derived=True), self.sparse(BF16, 2 * 4096 + 77, 60), preset="fast"
        )
        # One class: no byte of the mask takes a bit, or the bytes of one class take their number in it.
        value = FP32.bits(1, 120, 0x700000)
        patterns = {
            0: [0],
            1: [1, 128, 16],
            2: [3, 129, 0x0E],
            3: [0x16, 0x35],
            4: [0x39, 0x3E],
            5: [0x57, 0xCF],
            6: [0xFC, 0x7F],
            7: [0xDF, 0xFB],
            8: [0xFD, 0xFE],
            9: [255],
        }
        for number, members in patterns.items():
            source = []
            for i in range(50):
                byte = members[i % len(members)]
                source += [value if byte >> bit & 1 else 0 for bit in range(8)]
            self.forced_book("masked-class-%d" % number, constant, source, classes={number: 1})
        # A chain of ten classes, and two classes of which one does not occur.
        source = [value if self.rng.below(8) < i // 200 else 0 for i in range(1601)]
        chain = {i: min(i + 1, 9) for i in range(10)}
        for name, classes in (("chain", chain), ("chain-back", {9 - i: length for i, length in chain.items()})):
            self.forced_book("masked-" + name, constant, source, classes=classes)
        lengths = {0: 9, 9: 9, **{i: i for i in range(1, 9)}}
        self.forced_book("masked-chain-mixed", constant, source, classes=lengths)
        self.forced_book("masked-two-classes", constant, [value] * 400, classes={2: 1, 9: 1})
        # Fewer zeros than half of the values, by force; no zero at all; the only value is an escape.
        self.forced_book("masked-dense", Format(BF16), self.data(BF16, 500, zeros=9), masked=True)
        self.forced_book("masked-no-zero", Format(FP16), self.data(FP16, 300, zeros=10**9), masked=True)
        only = [0] * 300
        only[299] = FP32.bits(1, 255, 3)
        self.forced_book("masked-only-escape", Format(FP32), only, masked=True)
        self.forced_book("masked-only-minus-zero", Format(FP32, strict=True), [0] * 299 + [1 << 31], masked=True)
        everything = dict(enumerate((1, 2, 4, 4, 5, 5, 5, 6, 7, 7)))
        assert sum(2.0**-length for length in everything.values()) == 1
        for dtype in DTYPES:
            other = self.data(dtype, 200, spread=3, zeros=10**9)
            base = 0 if dtype is FP16 else 70
            counts = {1: 1, **fw.counts_of(Format(dtype).label(bits, 0, base) for bits in other)}
            book = Book(fw.package_merge(counts), base, everything)
            self.encoded(
                "masked-installed-" + dtype.name, Format(dtype), self.sparse(dtype, 700, 9), installed=(8, 2, book)
            )

    def forced_book(
        self, name, format_, source, relative=False, masked=False, classes=None, quanta=b"", levels=b"", **more
    ):
        """A frame of one chunk, with a codebook of the given kind."""
        if format_.mapped and not levels:
            levels, format_.drop_base = map_for(self.rng, format_, source)
        cuts = fw.cuts_of_frame(format_, len(source), 12, levels, quanta)
        values, drops = rounded(format_, source, levels, None, cuts)
        group = fw.Group(format_, values, drops, cuts, 4096, True)
        base = 1 if relative else group.window()
        counts = fw.counts_of(group.labels(64, base, relative))
        if masked or classes:
            counts.pop(0, None)
            found = fw.counts_of(fw.CLASS_OF[byte] for byte in fw.mask_bytes([bits != 0 for bits in values]))
            classes = classes or fw.package_merge(found)
        book = Book(fw.package_merge(counts or {1: 1}), base, classes)
        frame = Frame(format_, len(values), levels=levels, **more)
        own = fw.quanta_of_chunk(quanta) if quanta else b""
        frame.chunks = [fw.coded_chunk(format_, book, values, drops, 0, (), cuts, own)]
        assert len(frame.chunks[0].book_bytes + frame.chunks[0].body) < fw.align(len(values) * format_.dtype.size, 16)
        self.add(name, frame, values)
        return frame

    # ---- relative exponents ----

    def relative(self):
        count = 500
        for dtype in DTYPES:
            for masked in (False, True):
                name = "relative-%s%s" % ("masked-" if masked else "", dtype.name)
                source = self.sparse(dtype, count, 3) if masked else self.data(dtype, count)
                self.forced_book(name, Format(dtype, derived=True), source, True, masked, checksum=masked)
            for step in dtype.derived_steps[1:]:
                self.forced_book(
                    "relative-%s-step%d" % (dtype.name, step),
                    Format(dtype, derived=True, step=step),
                    self.data(dtype, count),
                    True,
                )
            # Every exponent against quanta at both ends and beyond them: K = 0, K = 1, K = 255.
            exponents = range(dtype.exponent_min, dtype.exponent_max + 1)
            for place, quantum in (
                ("low", 1 - 30),
                ("first", 1),
                ("middle", (dtype.exponent_max + 1) // 2),
                ("last", dtype.exponent_max),
                ("high", dtype.exponent_max + 9),
            ):
                format_ = Format(dtype, derived=True)
                byte = {"low": 1, "high": 255}.get(place, 128)
                byte, format_.drop_base = flat_map(format_, quantum + dtype.bias, byte)
                source = [
                    dtype.bits(e & 1, e, (1 << dtype.mantissa_bits) - 1) if i % 3 else 0
                    for e in exponents
                    for i in range(9)
                ]
                levels = bytes(0 if i % 11 == 0 else byte for i in range(len(source)))
                self.forced_book("relative-%s-quantum-%s" % (dtype.name, place), format_, source, True, levels=levels)
        format_ = Format(FP32, derived=True, tolerance_bits=10)
        self.forced_book("relative-tolerance-10", format_, self.data(FP32, count), True)
        self.encoded("derived-tolerance-7", Format(BF16, derived=True, tolerance_bits=7), self.data(BF16, count))
        self.encoded("derived-tolerance-1", Format(FP16, derived=True, tolerance_bits=1), self.data(FP16, count))
        book = Book({0: 1, 1: 3, **dict.fromkeys(range(2, 14), 5)}, 1)
        self.encoded(
            "relative-installed",
            Format(BF16, derived=True, deep_cut=True),
            self.data(BF16, count),
            installed=(3, 4, book),
        )
        classes = dict(enumerate((1, 2, 4, 4, 5, 5, 5, 6, 7, 7)))
        book = Book({1: 3, 2: 1, 3: 2, 4: 3}, 1, classes)
        source = self.sparse(FP32, count, 6)
        self.encoded(
            "relative-masked-installed",
            Format(FP32, derived=True, deep_cut=True),
            source,
            installed=(3, 4, book),
            checksum=True,
        )

    # ---- carried frames ----

    def carried(self):
        for dtype in DTYPES:
            for log2, count in ((6, 640), (7, 1001), (9, 2048), (9, 2049), (12, 4096), (12, 700)):
                format_ = Format(dtype, block_log2=log2)
                self.encoded(
                    "carried-%s-block%d-%d" % (dtype.name, log2, count),
                    format_,
                    self.data(dtype, count),
                    rounding="nearest",
                )
            for relative, masked in ((True, False), (False, True), (True, True)):
                name = "carried-%s%s%s" % ("relative-" * relative, "masked-" * masked, dtype.name)
                source = self.sparse(dtype, 900, 4) if masked else self.data(dtype, 900)
                format_ = Format(dtype, block_log2=7)
                self.forced_book(name, format_, source, relative, masked, quanta=quanta_for(self.rng, format_, source))
            self.encoded(
                "carried-strict-" + dtype.name,
                Format(dtype, strict=True, block_log2=6),
                [b for b in special_values(dtype) for _ in range(20)] + self.data(dtype, 400),
            )
            format_ = Format(dtype, block_log2=6)
            largest = dtype.exponent_max + dtype.bias
            for name, quanta in (
                ("exact", [0] * 6),
                ("largest", [largest] * 6),
                ("window", [largest, largest - 62, max(1, largest - 63), 0, 1, largest - 61]),
                ("one", [1] * 6),
            ):
                source = self.data(dtype, 370, top=dtype.exponent_max, spread=20)
                self.encoded("carried-%s-quanta-%s" % (dtype.name, name), format_, source, quanta=bytes(quanta))
        format_ = Format(FP32, block_log2=14)
        self.encoded("carried-chunk-log2-14", format_, self.sparse(FP32, (1 << 14) + 99, 300), chunk_log2=14)
        format_ = Format(BF16, block_log2=13)
        self.encoded(
            "carried-chunk-log2-15", format_, self.sparse(BF16, (1 << 15) + 8200, 300), chunk_log2=15, preset="fast"
        )
        source = self.sparse(FP32, 4096, 60) + [0] * 4096 + self.sparse(FP32, 4096, 60)
        source += [plain_value(self.rng, FP32, spread=100) for _ in range(9)]
        self.encoded("carried-coded-zero-raw", Format(FP32, block_log2=10), source, preset="fast", checksum=True)
        book = Book({0: 1, 1: 3, **dict.fromkeys(range(100, 148), 7)})
        self.encoded(
            "carried-installed", Format(FP32, block_log2=8), self.data(FP32, 900), installed=(1, 2, book), checksum=True
        )
        self.encoded("carried-empty", Format(FP16, block_log2=9), [])
        self.encoded("carried-one-value", Format(FP32, block_log2=9), [FP32.bits(0, 120, 5)])

    # ---- deep cut ----

    def deep(self):
        for dtype in DTYPES:
            for rounding in ("truncate", "nearest", "stochastic"):
                for strict in (False, True):
                    name = "deep-%s-%s%s" % (rounding, "strict-" * strict, dtype.name)
                    source = self.data(dtype, 900)
                    for i, bits in enumerate(special_values(dtype) * 2):
                        source[40 * i + 7] = bits
                    if dtype is FP16:
                        for i in range(0, 900, 4):
                            source[i] = self.rng.below(1024) | self.rng.below(2) << 15
                    derived = Format(dtype, strict=strict, derived=True, deep_cut=True)
                    self.encoded(name, derived, source, rounding=rounding, checksum=strict)
                    carried = Format(dtype, strict=strict, block_log2=6, deep_cut=True)
                    self.encoded("carried-" + name, carried, source, rounding=rounding)
                self.deep_edges(dtype, rounding)
                # Sparse after the cut: masks and relative exponents.
                format_ = Format(dtype, derived=True, deep_cut=True, tolerance_bits=8)
                source = self.data(dtype, 1500)
                byte, format_.drop_base = flat_map(format_, (14 if dtype is FP16 else 120) + dtype.bias + 4)
                frame = self.encoded(
                    "deep-sparse-%s-%s" % (rounding, dtype.name),
                    format_,
                    source,
                    rounding=rounding,
                    levels=bytes([byte - self.rng.below(9) for _ in source]),
                )
                if rounding == "stochastic":
                    assert frame.chunks[0].book_bytes[3] & 15 == 15
            source = self.data(dtype, 2 * 4096 + 55)
            format_ = Format(dtype, derived=True, deep_cut=True, tolerance_bits=9)
            byte, format_.drop_base = flat_map(format_, (14 if dtype is FP16 else 120) + dtype.bias + 4)
            levels = bytes([byte + 8 - self.rng.below(17) for _ in source])
            frame = self.encoded(
                "deep-shared-" + dtype.name, format_, source, "fast", rounding="stochastic", levels=levels
            )
            assert frame.chunks[0].book_bytes[0] == 1 and frame.chunks[0].book_bytes[3] & 15 == 15

    def deep_edges(self, dtype, rounding):
        """Quanta at both ends of the exponents; values of one half of them, the next ones, and one unit below them."""
        m = dtype.mantissa_bits
        full = (1 << m) - 1
        top = dtype.exponent_max + dtype.bias
        values = []
        format_ = Format(dtype, strict=True, block_log2=6, deep_cut=True)
        blocks = []
        for quantum in (1 + dtype.bias, 2 + dtype.bias, 12 + dtype.bias, top - 1, top):
            q = quantum - dtype.bias
            block = [0, 1 << dtype.sign_bit]
            for exponent in (q, q - 1, q - 2, q - 3, q - 8, q - 30, q - 31, q - 32, q - 33, q - 40, 1, 0):
                for mantissa in (0, 1, full, 1 << m - 1):
                    if 0 <= exponent <= dtype.exponent_max:
                        block.append(dtype.bits(exponent + mantissa & 1, exponent, mantissa))
            block += [dtype.bits(0, dtype.exponent_max, full), dtype.bits(1, dtype.exponent_max + 1, 0)]
            values += (block * 3)[:64]
            blocks.append(quantum)
        self.encoded(
            "deep-edges-%s-%s" % (rounding, dtype.name), format_, values, rounding=rounding, quanta=bytes(blocks)
        )
        # Derived: the same values against quanta above the largest exponent and below the smallest one.
        format_ = Format(dtype, derived=True, deep_cut=True)
        byte, format_.drop_base = flat_map(format_, top)
        levels = bytes(min(255, byte + 9 * (i % 8)) if i % 7 else 0 for i in range(len(values)))
        self.encoded("deep-above-%s-%s" % (rounding, dtype.name), format_, values, rounding=rounding, levels=levels)
        format_ = Format(dtype, derived=True, deep_cut=True)
        byte, format_.drop_base = flat_map(format_, dtype.bias + 1)
        levels = bytes(max(1, byte - 4 * (i % 12)) for i in range(len(values)))
        self.encoded("deep-below-%s-%s" % (rounding, dtype.name), format_, values, rounding=rounding, levels=levels)


def coded_with_counts(format_, base, values, drops, index=0, more=()):
    """A chunk with an exact codebook for a given base; `more` values are only counted."""
    counts = {}
    for bits, drop in list(zip(values, drops)) + [(bits, 0) for bits in more]:
        label = format_.label(bits, drop, base)
        counts[label] = counts.get(label, 0) + 1
    return fw.coded_chunk(format_, Book(fw.package_merge(counts), base), values, drops, index)


def frame_lengths(frame, index):
    """Code lengths of the ordinary labels in the codebook of a chunk."""
    return [nibble for byte in frame.chunks[index].book_bytes[4:] for nibble in (byte & 15, byte >> 4)]


# ---------------------------------------------------------------------------------------------------------------------
# Frames that must be refused: one defect each
# ---------------------------------------------------------------------------------------------------------------------


def padded_to_16(data):
    return data + bytes(-len(data) % 16)


class Reject:
    """The vectors of reject/."""

    def __init__(self, index):
        self.index = index
        self.rng = Rng(2)

    def add(self, rule, name, status, frame, data=None, receiver=None, **more):
        self.index.add(
            "reject/%s-%s" % (rule if isinstance(rule, str) else "%02d" % rule, name),
            frame.to_bytes() if data is None else data,
            frame.format,
            receiver or receiver_of(frame),
            status,
            rule,
            **more,
        )

    def all(self):
        self.header()
        self.sizes()
        self.directory()
        self.receiver()
        self.checksums()
        self.regions()
        self.codebooks()
        self.chunk_headers()
        self.runs()
        self.labels()
        self.several()
        self.limits()
        self.carried_header()
        self.carried_receiver()
        self.quanta()
        self.mask_lengths()
        self.masks()
        self.fine_escapes()
        self.foreign_dtype()

    # ---- bases ----

    def values(self, format_, count, levels=b"", spread=6):
        source = [
            0 if self.rng.one_in(4) else plain_value(self.rng, format_.dtype, spread=spread) for _ in range(count)
        ]
        if format_.mapped and not levels:
            levels, format_.drop_base = map_for(self.rng, format_, source)
        values, drops = rounded(format_, source, levels, lambda i: i % 4)
        return values, drops, levels

    def small(self, format_=None, count=200, **more):
        """A frame of one CODED chunk."""
        format_ = format_ or Format(FP32)
        values, drops, levels = self.values(format_, count)
        return fw.write_frame(format_, values, drops, "small", levels=levels, **more)

    def three(self, **more):
        """CODED with a codebook, ZERO, CODED with the codebook of chunk 0; the values."""
        format_ = Format(FP32)
        values = [plain_value(self.rng, FP32, spread=2) if self.rng.one_in(64) else 0 for _ in range(4096)]
        values += [0] * 4096 + [plain_value(self.rng, FP32, spread=2) if self.rng.one_in(3) else 0 for _ in range(150)]
        values, drops = rounded(format_, values, None, lambda i: 3)
        frame = fw.write_frame(format_, values, drops, "fast", **more)
        assert [chunk.kind for chunk in frame.chunks] == [CODED, ZERO, CODED] and frame.chunks[2].book == 0
        return frame, values

    def forced(self, rule, name, status, frame, receiver=None, **fields):
        """Header fields replaced, checksums made for them."""
        frame.force.update(fields)
        self.add(rule, name, status, frame, receiver=receiver)

    # ---- rules 1 to 8 ----

    def header(self):
        small = self.small

        def derived(dtype=FP32, step=1, cap=None):
            return small(Format(dtype, derived=True, step=step, cap=cap))

        def constant(dtype=FP32, cap=6):
            return small(Format(dtype, derived=True, constant=True, step=1, cap=cap))

        frame = Frame(Format(FP32), 0)
        for size in (0, 1, 31):
            self.add(1, "short-%d" % size, "SHORT", frame, frame.to_bytes()[:size])
        self.forced(2, "magic-first", "MAGIC", small(), magic=b"\x66\x57\x66\x1a")
        self.forced(2, "magic-last", "MAGIC", small(), magic=b"\x67\x57\x66\x1b")
        self.forced(2, "magic-swapped", "MAGIC", small(), magic=b"\x1a\x66\x57\x67")
        # High nibble: the writer's version. Low nibble: the one that a reader needs.
        for version in (0x11, 0x21, 0xFF):
            self.forced(3, "version-%02x" % version, "VERSION", small(), version=version)
        for version in (0x01, 0x12, 0xEF):
            self.forced(3, "version-%02x-contradicts" % version, "HEADER", small(), version=version)
        for codec in (0, 2, 3, 255):
            self.forced(4, "codec-%d" % codec, "UNSUPPORTED", small(), codec=codec)
        for dtype in (0, 4, 5, 6, 255):
            self.forced(4, "dtype-%d" % dtype, "UNSUPPORTED", small(), dtype=dtype)
        for bit in (6, 8, 15):
            self.forced(4, "flag-bit%d" % bit, "UNSUPPORTED", small(), flags=1 << bit)
        for log2 in (0, 9, 16, 76, 255):
            self.forced(5, "chunk-log2-%d" % log2, "HEADER", small(), chunk_log2=log2)
        self.forced(6, "constant-without-derived", "HEADER", small(), flags=fw.CONSTANT)
        self.forced(6, "constant-without-derived-step1", "HEADER", small(), flags=fw.CONSTANT, step=1, cap=6)

        for dtype, steps in ((FP32, (0, 1, 3, 12)), (BF16, (0, 1, 6)), (FP16, (0, 1, 6))):
            for step in steps:
                self.forced(
                    7, "explicit-%s-step%d" % (dtype.name, step), "HEADER", small(Format(dtype)), step=step, cap=0
                )
        for dtype, caps in ((FP32, (5, 24, 254)), (BF16, (1, 8)), (FP16, (4, 12))):
            for cap in caps:
                self.forced(7, "explicit-%s-cap%d" % (dtype.name, cap), "HEADER", small(Format(dtype)), cap=cap)
        for dtype, steps in ((FP32, (0, 4, 5, 7, 8, 129)), (BF16, (0, 3, 6)), (FP16, (0, 2, 6))):
            for step in steps:
                self.forced(7, "derived-%s-step%d" % (dtype.name, step), "HEADER", derived(dtype), step=step, cap=0)
        for dtype, cap in ((FP32, 24), (BF16, 8), (FP16, 11)):
            self.forced(7, "derived-%s-cap%d" % (dtype.name, cap), "HEADER", derived(dtype), cap=cap)
            self.forced(7, "constant-%s-cap%d" % (dtype.name, cap), "HEADER", constant(dtype), cap=cap)
        self.forced(7, "derived-cap-not-multiple", "HEADER", derived(step=6), cap=20)
        for step in (0, 2, 6):
            self.forced(7, "constant-step%d" % step, "HEADER", constant(), step=step)
        self.forced(7, "explicit-drop-base", "HEADER", small(), drop_base=1)
        self.forced(7, "constant-drop-base", "HEADER", constant(), drop_base=-1)
        book = Book({0: 1, 1: 2, 232: 2}, 62)
        everything = {"checksum": True, "installed": (1, 1, Book({0: 1, 1: 2, 122: 2}))}
        self.forced(7, "extension-none-checksum", "HEADER", small(checksum=True), extension_units=0)
        self.forced(7, "extension-short-installed", "HEADER", small(installed=(1, 1, book)), extension_units=1)
        self.forced(7, "extension-short-derived", "HEADER", derived(), extension_units=1)
        self.forced(
            7, "extension-short-all", "HEADER", small(Format(FP32, derived=True), **everything), extension_units=4
        )

        for name, count in (
            ("above-2-48", (1 << 48) + 1),
            ("wraps-32-bits", 1 << 62 | 200),
            ("wraps-64-bits", (1 << 64) - 1),
            ("sign", 1 << 63),
        ):
            self.forced(8, "count-" + name, "LIMIT", small(), count=count)
        frame = small()
        self.add(8, "count-limit", "LIMIT", frame, receiver=receiver_of(frame, count_limit=199))
        # A bomb: a few bytes that announce 2^31 zeros are refused before anything else is looked at.
        frame = Frame(Format(FP32), 0)
        self.forced(8, "count-limit-bomb", "LIMIT", frame, receiver_of(frame, count_limit=1 << 30), count=1 << 31)

    # ---- rules 9 to 13 ----

    def sizes(self):
        frame = self.small()
        data = frame.to_bytes()
        self.add(9, "one-byte-missing", "SHORT", frame, data[:-1])
        self.add(9, "header-only", "SHORT", frame, data[:32])
        self.add(9, "extension-cut", "SHORT", self.small(checksum=True), self.small(checksum=True).to_bytes()[:36])
        self.forced(9, "size-one-more", "SHORT", self.small(), size=len(data) + 1)
        for name, size in (("2-63", 1 << 63), ("all-ones", (1 << 64) - 1), ("2-32-more", len(data) + (1 << 32))):
            self.forced(9, "size-" + name, "SHORT", self.small(), size=size)

        frame = self.small()
        for size in (0, 1, 31, 32, 47):
            frame.force["size"] = size
            self.add(10, "size-%d" % size, "HEADER", frame, frame.to_bytes()[: max(size, 32)])
        frame = self.small(checksum=True)
        frame.force["size"] = 55
        self.add(10, "size-before-directory-end", "HEADER", frame, frame.to_bytes()[:55])
        frame = self.small(installed=(1, 1, Book({0: 1, 1: 2, 232: 2}, 62)), checksum=True)
        frame.force["size"] = 72
        self.add(10, "size-before-padding-end", "HEADER", frame, frame.to_bytes()[:72])
        # The largest extension, of which the frame has nothing: 2040 bytes have to be there.
        frame = self.small()
        frame.force["extension_units"] = 255
        self.add(10, "extension-after-end", "HEADER", frame)
        for name, count in (("2-31", 1 << 31), ("2-40", 1 << 40), ("2-44", 1 << 44)):  # the last makes 2^32 chunks
            self.forced(10, "count-" + name, "HEADER", self.small(), count=count)
        frame = self.small()
        for name, tail in (("zero", bytes(1)), ("16-zeros", bytes(16)), ("frame", frame.to_bytes())):
            self.add(11, "trailing-" + name, "TRAILING", frame, frame.to_bytes() + tail)
        frame = Frame(Format(FP32), 0)
        self.add(11, "trailing-empty-frame", "TRAILING", frame, frame.to_bytes() * 2)

        self.forced(12, "checksum-reserved", "HEADER", self.small(checksum=True), reserved=1)
        self.forced(12, "checksum-reserved-high", "HEADER", self.small(checksum=True), reserved=1 << 31)
        book = Book({0: 1, 1: 2, 232: 2}, 62)
        self.forced(12, "installed-reserved", "HEADER", self.small(installed=(1, 1, book)), book_reserved=1)
        self.forced(12, "derived-reserved", "HEADER", self.small(Format(FP32, derived=True)), map_reserved=1 << 31)
        derived = Book({0: 1, 1: 2, 122: 2})
        frame = self.small(Format(FP32, derived=True), installed=(1, 1, derived), checksum=True)
        self.forced(12, "all-parts-reserved", "HEADER", frame, map_reserved=1)
        for name, pad in (("first", b"\1" + bytes(7)), ("last", bytes(7) + b"\x80")):
            self.forced(12, "padding-" + name, "HEADER", self.small(checksum=True), pad=pad)
        frame = self.small()
        frame.tail = bytes(8)
        self.forced(12, "padding-after-unknown", "HEADER", frame, pad=bytes(4) + b"\1" + bytes(3))
        self.ignorable_parts()

    def ignorable_parts(self):
        """Rule 12: the list of parts. Two of the flags are set, bits 1 and 6."""
        one, other, end = fw.ignorable_parts(((1, 2),), end=False), b"\7\1......", fw.ignorable_parts(())
        bad = {
            "no-list": b"",
            "no-end": one,
            "no-end-after-two": one + other,
            "size-0": b"\2\0......" + end,
            "past-extension": b"\2\3......" + end,
            "past-extension-largest": b"\2\xff......" + end,
            "flag-not-set": b"\1\1......" + end,
            "flag-not-set-second": one + b"\3\1......" + end,
            "number-9": b"\x09\1......" + end,
            "number-255": b"\xff\1......" + end,
            "twice": other + other + end,
            "descending": other + one + end,
        }
        for name, tail in bad.items():
            frame = self.small()
            frame.tail = tail
            self.forced(12, "ignorable-" + name, "HEADER", frame, ignorable_flags=0x42)
        derived = Book({0: 1, 1: 2, 122: 2})
        frame = self.small(Format(FP32, derived=True), installed=(1, 1, derived), checksum=True)
        frame.tail = one + b"\2" + bytes(7)
        self.forced(12, "ignorable-after-all-parts", "HEADER", frame, ignorable_flags=0x42, meta_crc=0)
        # One flag alone, and no values.
        frame = Frame(Format(FP32), 0)
        self.forced(12, "ignorable-no-values", "HEADER", frame, ignorable_flags=0x80)

        frame = self.small(checksum=True)
        good = struct.unpack("<I", frame.to_bytes()[32:36])[0]
        self.forced(13, "meta-crc", "CHECKSUM", frame, meta_crc=good ^ 1)
        self.forced(13, "meta-crc-zero", "CHECKSUM", self.small(checksum=True), meta_crc=0)
        frame = self.small(checksum=True)
        listed = self.small(checksum=True)
        listed.tail = fw.ignorable_parts(())  # so that a flipped flag breaks no other rule
        for name, at in (("cap", 13), ("ignorable-flags", 10), ("directory-crc", 52)):
            data = bytearray((listed if at == 10 else frame).to_bytes())
            data[at] ^= 18 ^ 12
            self.add(13, "flipped-" + name, "CHECKSUM", frame, bytes(data))
        # Unknown bytes of the extension are skipped, but meta_crc covers them.
        frame = self.small(checksum=True)
        frame.tail = b"later..."
        data = bytearray(frame.to_bytes())
        data[47] ^= 1
        self.add(13, "flipped-unknown-extension", "CHECKSUM", frame, bytes(data))

    # ---- rule 14 ----

    def directory(self):
        header_size = 32 + 3 * 16

        def place(frame, index):
            return (
                header_size + sum(len(c.book_bytes + c.body) for c in frame.chunks[:index]) + frame.chunks[index].kind
            )

        def forced(name, key, change):
            frame, _ = self.three()
            index = key[1]
            frame.force[key] = change(frame, place(frame, index)) if callable(change) else change
            self.add(14, name, "HEADER", frame)

        forced("kind-3", ("place", 1), lambda f, p: p + 3)
        forced("kind-15", ("place", 0), lambda f, p: p + 13)
        forced("offset-not-aligned", ("place", 2), lambda f, p: p + 8)
        forced("first-offset-late", ("place", 0), lambda f, p: p + 16)
        forced("first-offset-early", ("place", 0), lambda f, p: p - 16)
        forced("first-offset-zero", ("place", 0), CODED)
        forced("offset-in-header", ("place", 1), 16)
        forced("offset-in-directory", ("place", 2), header_size - 16 + CODED)
        forced(
            "offset-decreasing",
            ("place", 1),
            lambda f, p: header_size + len(f.chunks[0].book_bytes + f.chunks[0].body) + len(f.chunks[2].body) + 16,
        )
        forced("offset-above-size", ("place", 2), lambda f, p: p + 4096)
        forced("offset-wraps", ("place", 2), (1 << 64) - 16 + CODED)
        forced("offset-sign", ("place", 2), lambda f, p: p + (1 << 63))
        forced("offset-2-32", ("place", 2), lambda f, p: p + (1 << 32))
        forced("aliased-chunk", ("place", 2), lambda f, p: header_size + CODED)

        forced("book-of-zero-chunk", ("book", 1), 1)
        forced("book-after-chunk", ("book", 0), 2)
        forced("book-above-count", ("book", 2), 3)
        forced("book-huge", ("book", 2), (1 << 32) - 1)
        forced("book-names-zero-chunk", ("book", 2), 1)
        forced("crc-without-checksum", ("crc", 0), 1)
        forced("crc-without-checksum-zero-chunk", ("crc", 1), 1 << 31)

        format_ = Format(FP32)
        values, drops, _ = self.values(format_, 200)
        frame = Frame(format_, 4096 + 200)
        frame.chunks = [Chunk(ZERO), fw.raw_chunk(values, FP32)]
        frame.force["book", 1] = 1
        self.add(14, "book-of-raw-chunk", "HEADER", frame)
        # A RAW chunk named as owner; a CODED chunk named that is a user itself.
        frame = Frame(format_, 4096 + 200)
        frame.chunks = [fw.raw_chunk([0] * 4096, FP32), coded_with_counts(format_, 60, values, drops, 1)]
        frame.chunks[0].body = frame.chunks[0].body[:16]  # would break rule 19 later; keeps the file small
        frame.force["book", 1] = 0
        self.add(14, "book-names-raw-chunk", "HEADER", frame)
        book = Book({0: 1, 1: 2, 232: 2}, 61)
        frame = Frame(format_, 2 * 4096 + 200)
        frame.chunks = [
            fw.coded_chunk(format_, book, [0] * 4096, [0] * 4096, 0),
            fw.coded_chunk(format_, book, [0] * 4096, [0] * 4096),
            fw.coded_chunk(format_, book, [0] * 200, [0] * 200),
        ]
        frame.force["book", 2] = 1
        self.add(14, "book-names-user", "HEADER", frame)
        frame = Frame(format_, 4096 + 200, installed=(1, 1, book.to_bytes()))
        frame.chunks = [Chunk(ZERO), fw.coded_chunk(format_, book, [0] * 200, [0] * 200)]
        frame.force["book", 1] = 1
        self.add(14, "book-in-installed-frame", "HEADER", frame)

        # The end: not a multiple of 16, and bytes that belong to no chunk.
        frame, _ = self.three()
        data = frame.to_bytes() + bytes(8)
        frame.force["size"] = len(data)
        self.add(14, "size-not-aligned", "HEADER", frame, frame.to_bytes() + bytes(8))
        for dtype in DTYPES:
            frame = Frame(Format(dtype), 0)
            frame.force["size"] = 48
            self.add(10, "empty-%s-with-payload" % dtype.name, "HEADER", frame, frame.to_bytes() + bytes(16))
        frame = Frame(Format(FP32), 0)
        frame.force["size"] = 33
        self.add(10, "empty-with-byte", "HEADER", frame, frame.to_bytes() + bytes(1))
        # More or fewer chunks than the directory has.
        frame, _ = self.three()
        self.forced(14, "count-one-chunk-more", "HEADER", frame, count=3 * 4096 + 1)
        frame, _ = self.three()
        self.forced(14, "count-one-chunk-less", "HEADER", frame, count=2 * 4096)
        frame, _ = self.three()
        self.forced(14, "chunk-log2-13", "HEADER", frame, chunk_log2=13)

    # ---- rules 15 to 17 ----

    def receiver(self):
        book = Book({0: 1, 1: 2, 232: 2}, 62)
        frame = self.small(installed=(5, 9, book))
        self.add(15, "nothing-installed", "TABLE", frame, receiver=Receiver())
        for name, book_id, generation in (
            ("id", 4, 9),
            ("generation-older", 5, 8),
            ("generation-newer", 5, 10),
            ("id-and-generation-swapped", 9, 5),
        ):
            self.add(
                15, "other-" + name, "TABLE", frame, receiver=receiver_of(frame, book_id=book_id, generation=generation)
            )

        # Another codebook under the same id and generation.
        other = Book({0: 2, 1: 2, 232: 1}, 62).to_bytes()
        self.add(15, "other-content", "TABLE", frame, receiver=receiver_of(frame, book=other))
        self.forced(15, "book-crc", "TABLE", self.small(installed=(5, 9, book)), book_crc=fw.crc32c(other))

        frame = self.small(Format(FP32, derived=True, step=3))
        self.add(16, "no-map", "MAP", frame, receiver=Receiver())
        for name, at in (("first", 0), ("last", 199)):
            levels = bytearray(frame.levels)
            levels[at] ^= 1
            self.add(16, "map-byte-%s" % name, "MAP", frame, receiver=receiver_of(frame, levels=bytes(levels)))
        # The length is checked by itself: a CRC could be forged.
        self.add(16, "map-longer", "MAP", frame, receiver=receiver_of(frame, levels=bytes(frame.levels) + bytes(1)))
        self.add(16, "map-shorter", "MAP", frame, receiver=receiver_of(frame, levels=bytes(frame.levels)[:-1]))
        self.add(16, "map-drop-base", "MAP", frame, receiver=receiver_of(frame, drop_base=frame.format.drop_base + 1))
        self.add(16, "map-wire-scale", "MAP", frame, receiver=receiver_of(frame, wire_scale=0x40000000))
        good = struct.unpack("<Q", frame.to_bytes()[32:40])[0]
        for name, bit in (("low", 8), ("high", 40), ("top", 63)):
            changed = Frame(frame.format, frame.count, levels=frame.levels)
            changed.chunks = frame.chunks
            self.forced(16, "map-hash-" + name, "MAP", changed, map_hash=good ^ 1 << bit)
        for name, value in (
            ("step", 1),
            ("cap", 18),
            ("drop_base", frame.format.drop_base - 1),
            ("chunk_log2", 13),  # there is one chunk, and its digest, either way
        ):
            changed = Frame(frame.format, frame.count, levels=frame.levels)
            changed.chunks = frame.chunks
            self.forced(16, "header-" + name.replace("_", "-"), "MAP", changed, map_hash=good, **{name: value})
        changed = Frame(frame.format, frame.count, levels=frame.levels)
        changed.chunks = frame.chunks
        self.forced(16, "header-wire-scale", "MAP", changed, wire_scale=0x7F800001, map_hash=good)
        frame = Frame(Format(FP32, derived=True), 0)
        self.forced(16, "empty-map-hash", "MAP", frame, map_hash=0)

        frame = self.small()
        for capacity in (0, 1, 199):
            self.add(17, "capacity-%d" % capacity, "DST", frame, receiver=receiver_of(frame, capacity=capacity))

    # ---- rules 18 and 19 ----

    def checksums(self):
        format_ = Format(FP32)

        def flip(data, at, bits=1):
            return data[:at] + bytes((data[at] ^ bits,)) + data[at + 1 :]

        frame, values = self.three(checksum=True)

        def without(*bad):
            return [0 if i // 4096 in bad else bits for i, bits in enumerate(values)]

        start = [len(frame.to_bytes()) - sum(len(c.book_bytes + c.body) for c in frame.chunks[i:]) for i in range(3)]
        data = frame.to_bytes()

        def bad(name, data, chunk, *zeroed):
            return self.add(18, name, "CHECKSUM", frame, data, bad_chunk=chunk, values=without(*zeroed))

        bad("flipped-body-first-chunk", flip(data, start[0] + 100), 0, 0)
        bad("flipped-body-last-chunk", flip(data, start[2] + 40, 0x80), 2, 2)
        bad("flipped-last-byte", flip(data, len(data) - 1, 0x80), 2, 2)
        # A codebook counts for all chunks that use it.
        bad("flipped-shared-codebook", flip(data, start[0] + 3, 0x11), 0, 0, 2)
        for index, name in ((0, "owner"), (1, "zero-chunk"), (2, "user")):
            spoiled, same = self.three(checksum=True)
            good = struct.unpack("<I", spoiled.to_bytes()[40 + 16 * index + 12 : 40 + 16 * index + 16])[0]
            spoiled.force["crc", index] = good ^ 0x80000000
            self.add(
                18,
                "crc-of-" + name,
                "CHECKSUM",
                spoiled,
                bad_chunk=index,
                values=[0 if i // 4096 == index else bits for i, bits in enumerate(same)],
            )
        values, drops, _ = self.values(format_, 10)
        frame = Frame(format_, 10, checksum=True)
        frame.chunks = [fw.raw_chunk(values, FP32)]
        data = frame.to_bytes()
        self.add(18, "flipped-raw", "CHECKSUM", frame, flip(data, len(data) - 20), bad_chunk=0, values=[0] * 10)
        self.add(18, "flipped-raw-padding", "CHECKSUM", frame, flip(data, len(data) - 1), bad_chunk=0, values=[0] * 10)
        frame = self.small(installed=(1, 2, Book({0: 1, 1: 2, 232: 2}, 62)), checksum=True)
        data = frame.to_bytes()
        self.add(18, "flipped-installed", "CHECKSUM", frame, flip(data, len(data) - 60), bad_chunk=0, values=[0] * 200)

    def second(self, rule, name, chunk, format_=None, count=200, status="CORRUPT", **more):
        """Chunk 0 is ZERO, chunk 1 the bad one."""
        format_ = format_ or Format(FP32)
        frame = Frame(format_, 4096 + count, **more)
        frame.chunks = [Chunk(ZERO), chunk]
        if chunk.kind == CODED and chunk.book_bytes:
            chunk.book = 1
        self.add(rule, name, status, frame, bad_chunk=1, values=[0] * (4096 + count))

    def regions(self):
        format_ = Format(FP32)
        self.second(19, "zero-with-bytes", Chunk(ZERO, body=bytes(16)))
        values, drops, _ = self.values(format_, 201)
        raw = fw.raw_chunk(values, FP32).body
        self.second(19, "raw-short", Chunk(RAW, body=raw[:-16]), count=201)
        self.second(19, "raw-long", Chunk(RAW, body=raw + bytes(16)), count=201)
        self.second(19, "raw-empty", Chunk(RAW), count=201)
        for name, tail in (("first", raw[:-12] + b"\1" + bytes(11)), ("last", raw[:-1] + b"\x80")):
            self.second(19, "raw-padding-" + name, Chunk(RAW, body=tail), count=201)
        raw = fw.raw_chunk([BF16.bits(0, 100, 1)] * 9, BF16).body
        self.second(19, "raw-padding-bf16", Chunk(RAW, body=raw[:18] + b"\1" + bytes(13)), Format(BF16), 9)

        # CODED as large as RAW, and larger, with nothing else wrong.
        found = {}
        for count in range(4, 200):
            values = [
                FP32.bits(self.rng.below(2), 100 + self.rng.below(1 + count % 60), self.rng.below(1 << 23))
                for _ in range(count)
            ]
            chunk = coded_with_counts(format_, 80, values, [0] * count, 1)
            excess = len(chunk.book_bytes + chunk.body) - fw.align(4 * count, 16)
            found.setdefault(
                "coded-as-large-as-raw" if excess == 0 else "coded-larger-than-raw" if excess > 0 else "",
                (chunk, count),
            )
        for name in ("coded-as-large-as-raw", "coded-larger-than-raw"):
            self.second(19, name, found[name][0], count=found[name][1])
        self.second(19, "coded-one-value", coded_with_counts(format_, 80, [FP32.bits(0, 100, 0)], [0], 1), count=1)

    # ---- rule 20 ----

    def codebooks(self):
        def book(name, data, format_=None, lengths=None, base=0, body=None):
            """`data` replaces the codebook; or it is made of `lengths` that no encoder would make."""
            format_ = format_ or Format(FP32, derived=True, constant=True, step=1, cap=12)
            if data is None:
                data = Book(lengths, base).to_bytes()
            body = body if body is not None else bytes(-len(data) % 16 + 32)
            self.second(20, name, Chunk(CODED, 1, data, body), format_)

        explicit, constant = Format(FP32), Format(FP32, derived=True, constant=True, step=1, cap=12)
        fp16, fp16_constant = Format(FP16), Format(FP16, derived=True, constant=True, step=1, cap=4)
        values = [0 if i % 2 else FP32.bits(0, 100 + i % 3, 0) for i in range(200)]

        def spoiled(name, change, format_=constant, lengths=None, base=0, source=None):
            """A chunk that fits its codebook, whose bytes are then changed."""
            source = values if source is None else source
            good = Book(lengths or {0: 1, 101: 2, 102: 3, 103: 3}, base)
            parts = Coded(format_, good, source, self.drops(format_, source))
            parts.book_bytes = bytes(change(bytearray(good.to_bytes())))
            self.second(20, name, Chunk(CODED, 1, parts.book_bytes, parts.to_bytes()), format_, len(source))

        def put(at, value):
            def change(data):
                data[at] = value
                return data

            return change

        lengths = {0: 1, 4 * 40: 2, 4 * 41: 3, 4 * 42: 3}
        spoiled("base-192", put(0, 192), explicit, lengths, 60)
        spoiled("base-255", put(0, 255), explicit, lengths, 60)
        spoiled("base-derived", put(0, 1))
        fp16_values = [0 if i % 2 else FP16.bits(0, 10 + i % 3, 0) for i in range(200)]
        spoiled("base-fp16", put(0, 1), fp16, {0: 1, 44: 2, 48: 3, 52: 3}, 0, fp16_values)
        spoiled("base-fp16-derived", put(0, 191), fp16_constant, {0: 1, 12: 2, 13: 3, 14: 3}, 0, fp16_values)

        # Lengths. The Kraft sum would be right for most of these if 12 and 15 were lengths.
        book("length-12", None, lengths={0: 12, 1: 12, **{100 + i: 11 - i for i in range(11)}})
        book("length-12-ordinary", None, lengths={100: 12, 101: 12, 0: 11, **{102 + i: 10 - i for i in range(10)}})
        book("length-15", None, lengths={0: 15, 1: 1, 100: 1})
        book("kraft-over", None, lengths={0: 1, 1: 1, 100: 1})
        book("kraft-over-by-least", None, lengths={0: 1, 1: 1, 100: 11})
        book("kraft-over-256-of-7", None, lengths=dict.fromkeys(range(256), 7))
        book("kraft-over-all-1", None, lengths=dict.fromkeys(range(256), 1))
        book("kraft-under", None, lengths={0: 1, 1: 2})
        book("kraft-under-by-least", None, lengths={0: 1, **{1 + i: 2 + i for i in range(10)}})
        book("kraft-wraps", None, lengths={**dict.fromkeys(range(256), 1), 0: 11})
        book("no-label", bytes(4))
        book("no-label-base", bytes((7, 0, 0, 0)), explicit)
        for length in (2, 11):
            spoiled("single-zero-length-%d" % length, put(3, length), lengths={0: 1}, source=[0] * 200)
        one = [FP32.bits(i & 1, 100, 0) for i in range(200)]
        spoiled("single-label-length-2", put(4, 2), lengths={101: 1}, source=one)

        # Labels that no frame of the kind has get a code that no value uses.
        def same(data):
            return data

        spoiled("reserved-label-2", same, explicit, {0: 1, 2: 3, 4 * 40: 3, 4 * 41: 3, 4 * 42: 3}, 60)
        spoiled("reserved-label-3", same, explicit, {0: 1, 3: 3, 4 * 40: 3, 4 * 41: 3, 4 * 42: 3}, 60)
        spoiled("fp16-label-128", same, fp16, {0: 1, 44: 3, 48: 3, 52: 3, 128: 3}, 0, fp16_values)
        spoiled("fp16-label-255", same, fp16, {0: 1, 44: 3, 48: 3, 52: 3, 255: 3}, 0, fp16_values)
        spoiled("fp16-derived-label-33", same, fp16_constant, {0: 1, 12: 3, 13: 3, 14: 3, 33: 3}, 0, fp16_values)

        # first and last.
        # The length of label 1 among the ordinary ones: in both places, and in one.
        with_escape = {0: 1, 1: 3, 101: 3, 102: 3, 103: 3}
        spoiled("first-is-1", lambda data: bytearray(Book(with_escape).to_bytes(first=1)), lengths=with_escape)
        spoiled(
            "first-is-1-alone",
            lambda data: put(3, 1)(bytearray(Book(with_escape).to_bytes(first=1))),
            lengths=with_escape,
        )
        spoiled("first-not-tight", lambda data: bytearray(Book({0: 1, 101: 2, 102: 3, 103: 3}).to_bytes(first=100)))
        spoiled("last-not-tight", lambda data: bytearray(Book({0: 1, 101: 2, 102: 3, 103: 3}).to_bytes(last=104)))
        spoiled("first-2-not-tight", lambda data: bytearray(Book({0: 1, 101: 2, 102: 3, 103: 3}).to_bytes(first=2)))
        book("first-0-last-not", bytes((0, 0, 100, 0x11)))
        book("last-0-first-not", bytes((0, 100, 0, 0x11)))
        book("first-above-last", bytes((0, 101, 100, 0x11, 0, 0, 0, 0)))
        book("empty-range", bytes((0, 100, 101, 0x11, 0, 0, 0, 0)))

        def or_into(at, bits):
            def change(data):
                data[at] |= bits
                return data

            return change

        spoiled("padding-nibble", or_into(5, 0x20), lengths={0: 1, 101: 3, 102: 3, 103: 2})
        spoiled("padding-byte", or_into(6, 1))
        spoiled("padding-last-byte", or_into(7, 0x80))
        # Cut off by the end of the region: in its first four bytes (an empty region), and in its lengths.
        book("truncated-empty", b"", body=b"")
        big = Book(dict.fromkeys(range(256), 8)).to_bytes()
        book("truncated", big[:16], body=b"")
        book("truncated-by-4", big[:128], body=b"")

        # Cut off where the bytes that follow, of other chunks, would complete it for those that use it.
        format_ = Format(FP32)
        frame = Frame(format_, 2 * 4096 + 200)
        lengths = {0: 1, **{4 * label: 6 for label in range(20, 51)}, 4 * 51: 6}
        whole = Book(lengths, 60).to_bytes()
        user = [0 if i % 2 else FP32.bits(0, 80 + i % 31, 0) for i in range(200)]
        frame.chunks = [
            Chunk(CODED, 0, whole[:16]),
            Chunk(ZERO, body=padded_to_16(whole[16:])),
            fw.coded_chunk(format_, Book(lengths, 60), user, [0] * 200),
        ]
        self.add(20, "truncated-shared", "CORRUPT", frame, bad_chunk=0, values=[0] * (2 * 4096 + 200))

        # A bad codebook of a chunk that is fine otherwise makes its users bad too; others are decoded.
        frame, same = self.three()
        owner = frame.chunks[0]
        owner.book_bytes = owner.book_bytes[:3] + bytes((owner.book_bytes[3] ^ 0x10,)) + owner.book_bytes[4:]
        values = [0 if i // 4096 in (0, 2) else bits for i, bits in enumerate(same)]
        self.add(20, "shared", "CORRUPT", frame, bad_chunk=0, values=values)

    # ---- rules 21 to 23 ----

    def spoiled(
        self,
        rule,
        name,
        change,
        format_=None,
        count=200,
        book=None,
        escape_at=(),
        values=None,
        drops=None,
        quanta=b"",
        after=(),
    ):
        """A good chunk whose parts are changed before they are put together; padded to 16 anew."""
        format_ = format_ or Format(FP32)
        if values is None:
            values = [self.tree_value(format_, i) for i in range(count)]
            drops = self.drops(format_, values)
        cuts = fw.cuts_of_frame(format_, count, 12, b"", quanta) if format_.carried else None
        parts = Coded(format_, book or self.tree_book(format_), values, drops, escape_at, cuts, quanta, after)
        parts.book_bytes = (book or self.tree_book(format_)).to_bytes()
        change(parts)
        chunk = Chunk(CODED, 1, parts.book_bytes, parts.to_bytes())
        assert len(chunk.body + chunk.book_bytes) % 16 == 0, name
        assert len(chunk.body + chunk.book_bytes) < fw.align(count * format_.dtype.size, 16), name
        self.second(rule, name, chunk, format_, count)

    def drops(self, format_, values):
        """The drops that a receiver computes in a frame without a map; the smallest in explicit frames."""
        return [format_.derived_drop(format_.dtype.split(bits)[1], 0) if format_.derived else 0 for bits in values]

    def tree_value(self, format_, i):
        """+0, seven ordinary labels of few digits, and every 40th value an infinity, which is an escape."""
        d = format_.dtype
        top = 20 if d is FP16 else 120
        if i % 40 == 39:
            return d.bits(i // 40 & 1, d.exponent_max + 1, 0)
        return 0 if i % 8 == 0 else d.bits(i >> 3 & 1, top + i % 8, (i >> 2 & 1) << d.mantissa_bits - 1)

    def tree_book(self, format_):
        """Zero and escape: leaves of depth 1 and 3. Seven ordinary labels: leaves of width 2, 0 and 1. An odd number of
        words in the header of an explicit chunk."""
        d = format_.dtype
        top = 20 if d is FP16 else 120
        base = 0 if d is FP16 or format_.derived else 90
        lengths = {0: 1, 1: 3}
        for i in range(1, 8):
            lengths[format_.label(d.bits(0, top + i, 0), 0, base)] = 4 if i < 6 else 5
        return Book(lengths, base)

    def chunk_headers(self):
        derived = Format(FP32, derived=True, constant=True, step=1, cap=16)  # 8 bits kept: one digit and an R2 digit
        fp16 = Format(FP16)

        def longer(plane, width, count=200):
            """One digit more than there are values, and room for it."""

            def change(parts):
                parts.plane_len[plane] = count + 1
                parts.planes[plane] = fw.pack([0] * (count + 1), width)

            return change

        self.spoiled(21, "plane1-len-above-values", longer(0, 6))
        self.spoiled(21, "plane4-len-above-values", longer(3, 6))
        self.spoiled(21, "planeR4-len-above-values", longer(4, 4), derived)
        self.spoiled(21, "planeR1-len-above-values", longer(6, 1), derived)
        self.spoiled(21, "plane3-len-above-values-fp16", longer(2, 3, 400), fp16, 400)

        # 201 escapes alone are as large as RAW: the smallest frame that breaks this rule breaks rule 19 too, but for
        # fields that announce more than there is, which breaks rule 22 as well.
        self.spoiled(21, "plane-len-65535", lambda parts: parts.plane_len.__setitem__(3, 65535))
        self.spoiled(21, "escape-len-65535", lambda parts: setattr(parts, "escape_len", 65535))
        self.spoiled(21, "escape-len-above-values", lambda parts: setattr(parts, "escape_len", 201))
        self.spoiled(21, "right-len-65535", lambda parts: parts.right_len.__setitem__(0, 65535))
        self.spoiled(21, "right-len-above-root", lambda parts: parts.right_len.__setitem__(0, 201))

        # Below the root: one more than the node has. Its children are leaves of width 0, so no size changes but that of
        # nodes below; the last inner node has none.
        def last_node(parts):
            parts.right_len[-1] = 200

        self.spoiled(21, "right-len-above-node", last_node)
        self.spoiled(21, "header-padding", lambda parts: setattr(parts, "header_padding", 1))
        self.spoiled(21, "header-padding-high", lambda parts: setattr(parts, "header_padding", 0x8000))

        # Sizes.
        def resized(by):
            def change(parts):
                natural = parts.to_bytes()
                parts.to_bytes = lambda: natural + bytes(by) if by > 0 else natural[:by]

            return change

        for by in (16, 48):
            self.spoiled(22, "%d-bytes-more" % by, resized(by))
            self.spoiled(22, "%d-bytes-less" % by, resized(-by))
        self.spoiled(
            22,
            "plane-more-than-chunk",
            lambda parts: parts.plane_len.__setitem__(3, 199),
            values=[FP32.bits(0, 121 + i % 7, 0) if i < 20 else 0 for i in range(200)],
            drops=[0] * 200,
        )
        self.spoiled(22, "escapes-more-than-chunk", lambda parts: setattr(parts, "escape_len", 150))

        def header_cut(parts):
            natural = parts.to_bytes()
            parts.to_bytes = lambda: natural[: -len(parts.book_bytes) % 16]

        self.spoiled(22, "header-cut", header_cut)

        self.spoiled(22, "planes-missing", lambda parts: setattr(parts, "planes", [b""] * len(parts.planes)))
        self.spoiled(22, "escapes-missing", lambda parts: setattr(parts, "escapes", b""))
        self.spoiled(22, "runs-missing", lambda parts: setattr(parts, "runs", []))

    def runs(self):
        def in_run(node, change):
            def apply(parts):
                data = bytearray(parts.runs[node])
                change(data)
                parts.runs[node] = bytes(data)

            return apply

        def flip(at, bit):
            def change(data):
                data[at] ^= 1 << bit

            return change

        self.spoiled(23, "root-bit-flipped", in_run(0, flip(0, 0)))
        self.spoiled(23, "root-last-bit-flipped", in_run(0, flip(24, 7)))

        plain = [0 if i % 2 else FP32.bits(0, 120, 0) for i in range(200)]
        root = Book({0: 1, 120: 2, 124: 2}, 90)  # a root with a leaf of width 0 and one of width 1: 100 values each
        for name, change in (
            ("right-len-less", lambda parts: parts.right_len.__setitem__(0, 99)),
            ("right-len-more", lambda parts: parts.right_len.__setitem__(0, 101)),
            ("bits-over-right-len", in_run(0, flip(3, 0))),
        ):
            self.spoiled(23, name, change, book=root, values=plain, drops=[0] * 200)

        self.spoiled(23, "root-padding-first", in_run(0, flip(25, 0)))
        self.spoiled(23, "root-padding-last", in_run(0, flip(27, 7)))
        # A leaf of width 2 with 197 values fills 394 bits of 416.
        wide = Book(dict.fromkeys((120, 124, 128, 132), 2), 90)
        values = [FP32.bits(0, 120 + i % 4, 0) for i in range(197)]
        for name, at, bit in (("first", 49, 2), ("last", 51, 7)):
            self.spoiled(
                23,
                "leaf-padding-" + name,
                in_run(0, flip(at, bit)),
                book=wide,
                values=values,
                drops=[0] * 197,
                count=197,
            )

        def in_plane(plane, at, bit):
            def change(parts):
                data = bytearray(parts.planes[plane])
                data[at] ^= 1 << bit
                parts.planes[plane] = bytes(data)

            return change

        # 197 digits of 6 bits fill 1182 bits of 1184.
        values = [FP32.bits(0, 120, 0)] * 197
        for plane, drop in ((0, 18), (1, 12), (3, 0)):
            self.spoiled(
                23,
                "plane%d-padding" % (plane + 1),
                in_plane(plane, 147, 6),
                book=Book({120 + drop // 6: 1}, 90),
                values=values,
                drops=[drop] * 197,
                count=197,
            )
        derived = Format(FP32, derived=True, constant=True, step=1, cap=17)  # 7 bits kept: one digit and one R1 bit
        self.spoiled(
            23,
            "planeR1-padding",
            in_plane(6, 27, 7),
            derived,
            count=197,
            book=Book({121: 1}),
            values=values,
            drops=[17] * 197,
        )
        derived = Format(FP32, derived=True, constant=True, step=1, cap=14)  # 10 bits: one digit and four R4 bits
        self.spoiled(
            23,
            "planeR4-padding",
            in_plane(4, 98, 4),
            derived,
            count=197,
            book=Book({121: 1}),
            values=values,
            drops=[14] * 197,
        )

        def escapes(parts):
            parts.escapes = parts.escapes[:-1] + b"\1"

        values = [BF16.bits(0, 120, 0) if i else BF16.bits(0, 255, 0) for i in range(200)]
        self.spoiled(
            23, "escape-padding", escapes, Format(BF16), book=Book({1: 1, 120: 1}, 90), values=values, drops=[0] * 200
        )

        # One digit of 6 bits each: by their number the chunk ends with 8 bytes of padding.
        values = [FP32.bits(1, 120, 0) if i < 32 else 0 for i in range(200)]

        def chunk_padding(at):
            def change(parts):
                natural = parts.to_bytes()
                parts.padding = b""
                assert len(natural) - len(parts.to_bytes()) == 8
                spoiled = bytearray(natural)
                spoiled[at] ^= 0x40
                parts.to_bytes = lambda: bytes(spoiled)

            return change

        for name, at in (("first", -8), ("last", -1)):
            self.spoiled(
                23,
                "chunk-padding-" + name,
                chunk_padding(at),
                book=Book({0: 1, 123: 1}, 90),
                values=values,
                drops=[18 if bits else 0 for bits in values],
            )

    # ---- rules 24 to 26 ----

    def labels(self):
        plain = [0 if i % 2 else FP32.bits(0, 120, 0) for i in range(198)]
        book = Book({0: 1, 120: 1}, 90)

        def count(plane, by):
            def change(parts):
                parts.plane_len[plane] += by

            return change

        # 99 digits of 6 bits fill 594 of 608 bits: room for one more that no value uses, and none is missing.
        for plane in range(4):
            for name, by in (("more", 1), ("less", -1)):
                self.spoiled(
                    24,
                    "plane%d-one-%s" % (plane + 1, name),
                    count(plane, by),
                    book=book,
                    values=plain,
                    drops=[0] * 198,
                    count=198,
                )
        remainders = {4: 14, 5: 16, 6: 17}  # plane: drop that leaves a digit of 6 bits and this remainder
        for plane, drop in remainders.items():
            format_ = Format(FP32, derived=True, constant=True, step=1, cap=drop)
            for name, by in (("more", 1), ("less", -1)):
                self.spoiled(
                    24,
                    "planeR%d-one-%s" % ((4, 2, 1)[plane - 4], name),
                    count(plane, by),
                    format_,
                    198,
                    Book({0: 1, 121: 1}),
                    values=plain,
                    drops=[drop] * 198,
                )

        def escapes(by):
            def change(parts):
                parts.escape_len += by
                one = struct.pack("<I", 0x7FC00000)
                parts.escapes = parts.escapes + one if by > 0 else parts.escapes[:-4]

            return change

        escaped = Book({0: 1, 1: 2, 120: 2}, 90)
        values = [FP32.bits(0, 255, 1) if i % 20 == 19 else bits for i, bits in enumerate(plain)]
        for name, by in (("more", 1), ("less", -1)):
            self.spoiled(24, "escape-one-" + name, escapes(by), book=escaped, values=values, drops=[0] * 198, count=198)

        def none(parts):
            return (setattr(parts, "escape_len", 0), setattr(parts, "escapes", b""))

        self.spoiled(24, "escapes-none", none, book=escaped, values=values, drops=[0] * 198, count=198)

        def one(parts):
            return (setattr(parts, "escape_len", 1), setattr(parts, "escapes", struct.pack("<I", 0x7F800000)))

        self.spoiled(24, "escape-without-label", one, book=book, values=plain, drops=[0] * 198, count=198)

        # fp16: an ordinary label with neither exponent nor mantissa.
        self.zero_mantissa("explicit", Format(FP16), 4, 0, 0)
        self.zero_mantissa("explicit-minus", Format(FP16), 4, 0, 1)
        self.zero_mantissa("explicit-level3", Format(FP16), 7, 9, 1)
        self.zero_mantissa("constant", Format(FP16, derived=True, constant=True, step=1, cap=9), 2, 9, 0)

        self.escapes()

    def zero_mantissa(self, name, format_, label, drop, sign):
        """Values 1 << drop but for one, which loses its mantissa in the digit planes."""
        book = Book({label: 1})
        kept = 11 - drop
        good = [FP16.bits(0, 0, 1 << drop)] * 100
        parts = Coded(format_, book, good, [drop] * 100)
        values = list(good)
        values[50] = sign << 15
        # The same digits as a value of the label, so written as if the exponent were not 0.
        d = FP16
        fake = Coded.__new__(Coded)
        fake.__dict__.update(parts.__dict__)
        at = kept
        cuts = []
        for plane, width in enumerate(d.widths):
            if width > at:
                break
            cuts.append((plane, width))
            at -= width
        cuts += [(plane, width) for plane, width in ((4, 4), (5, 2), (6, 1)) if at & width]
        left = kept
        for plane, width in cuts:
            left -= width
            zs = [((1 << drop if i != 50 else sign << 10) >> drop) >> left & (1 << width) - 1 for i in range(100)]
            parts.planes[plane] = fw.pack(zs, width)
        parts.book_bytes = book.to_bytes()
        self.second(25, name, Chunk(CODED, 1, parts.book_bytes, parts.to_bytes()), format_, 100)

    def escapes(self):
        def forced(name, format_, lengths, base, bits, others, drop=0, levels=None):
            """Value 10 is escaped; the others are zeros and `others`."""
            values = [bits if i == 10 else others if i % 2 else 0 for i in range(200)]
            if 0 not in lengths:
                values = [bits if i == 10 else others for i in range(200)]
            book = Book(lengths, base)
            parts = Coded(format_, book, values, [drop] * 200, escape_at=(10,))
            parts.book_bytes = book.to_bytes()
            chunk = Chunk(CODED, 0, parts.book_bytes, parts.to_bytes())
            assert parts.escape_len == 1, name
            if format_.mapped:
                frame = Frame(format_, 200, levels=levels)
                frame.chunks = [chunk]
                self.add(26, name, "CORRUPT", frame, bad_chunk=0, values=[0] * 200)
            else:
                self.second(26, name, chunk, format_)

        one = FP32.bits(0, 120, 0)
        explicit, strict = Format(FP32), Format(FP32, strict=True)
        constant = Format(FP32, derived=True, constant=True, step=1, cap=6)
        lengths = {0: 1, 1: 2, 120: 2}
        forced("plus-zero", explicit, lengths, 90, 0, one)
        forced("plus-zero-strict", strict, lengths, 90, 0, one)
        forced("plus-zero-derived", constant, {0: 1, 1: 2, 121: 2}, 0, 0, one, 6)
        forced("plus-zero-fp16", Format(FP16), {0: 1, 1: 2, 60: 2}, 0, 0, FP16.bits(0, 14, 0))
        forced("has-label", explicit, lengths, 90, FP32.bits(1, 120, 1), one)
        forced("has-label-strict", strict, lengths, 90, FP32.bits(1, 120, 1), one)
        forced(
            "has-labels-of-all-levels",
            explicit,
            {0: 1, 1: 2, 120: 3, 121: 4, 122: 5, 123: 5},
            90,
            FP32.bits(1, 120, 0),
            one,
        )
        forced("has-labels-of-two-levels", explicit, {0: 1, 1: 2, 120: 3, 121: 3}, 90, FP32.bits(1, 120, 64), one)
        forced("has-label-derived", constant, {0: 1, 1: 2, 121: 2}, 0, FP32.bits(1, 120, 64), one, 6)
        forced("has-label-bf16", Format(BF16), lengths, 90, BF16.bits(1, 120, 1), BF16.bits(0, 120, 0))
        forced("has-label-fp16-subnormal", Format(FP16), {0: 1, 1: 2, 4: 2}, 0, FP16.bits(1, 0, 1), FP16.bits(0, 0, 7))
        for dtype in DTYPES:
            label, base = (60, 0) if dtype is FP16 else (120, 90)
            other = dtype.bits(0, 14 if dtype is FP16 else 120, 0)
            forced("minus-zero-" + dtype.name, Format(dtype), {0: 1, 1: 2, label: 2}, base, dtype.bits(1, 0, 0), other)
            if dtype is not FP16:
                for name, bits in (
                    ("first", dtype.bits(0, 0, 1)),
                    ("last", dtype.bits(1, 0, (1 << dtype.mantissa_bits) - 1)),
                ):
                    forced(
                        "subnormal-%s-%s" % (name, dtype.name), Format(dtype), {0: 1, 1: 2, label: 2}, base, bits, other
                    )
        forced("minus-zero-constant", constant, {0: 1, 1: 2, 121: 2}, 0, FP32.bits(1, 0, 0), one, 6)
        forced("minus-zero-no-zero-label", explicit, {1: 1, 120: 1}, 90, FP32.bits(1, 0, 0), one)
        # Derived: the bits that the receiver's map would cut must be zero.
        forced("dropped-bits-constant", constant, {0: 1, 1: 2, 121: 2}, 0, FP32.bits(0, 121, 32), one, 6)
        mapped = Format(FP32, derived=True, drop_base=4 * 120 + 3 - 100)
        levels = bytes([100 + 4 * 4 + 40] * 200)
        drop = mapped.derived_drop(121, levels[0])
        assert drop == 13
        others = FP32.bits(0, 121, 0)
        forced(
            "dropped-bits-map",
            mapped,
            {0: 1, 1: 2, 122: 2},
            0,
            FP32.bits(0, 122, 1 << mapped.derived_drop(122, levels[0]) - 1),
            others,
            drop,
            levels,
        )
        fp16 = Format(FP16, derived=True, constant=True, step=1, cap=3)
        forced("dropped-bits-fp16-subnormal", fp16, {0: 1, 1: 2, 20: 2}, 0, FP16.bits(0, 0, 4), FP16.bits(0, 18, 0), 3)

    # ---- rules 8 and 10: what a header may announce ----

    def limits(self):
        self.rng = Rng(3)  # of its own: the other vectors stay as they are
        # A directory names chunks in 32 bits.
        for log2 in (12, 14):
            self.forced(
                8,
                "chunks-above-2-32-log2-%d" % log2,
                "LIMIT",
                self.small(),
                count=(1 << 32 + log2) + 1,
                chunk_log2=log2,
            )
        self.forced(8, "chunks-2-36", "LIMIT", self.small(), count=1 << 48)
        # More than RAW chunks would need: the zeros are there, but no chunk could use them.
        for name, dtype, count in (("fp32", FP32, 200), ("bf16", BF16, 201), ("fp16", FP16, 207), ("none", FP32, 0)):
            frame = self.small(Format(dtype), count) if count else Frame(Format(dtype), 0)
            self.too_large(name, frame, 32 + 16 * len(frame.chunks) + fw.align(count * dtype.size, 16))
        self.too_large("checksum", self.small(checksum=True), 40 + 16 + 8 + 800)
        self.too_large("three-chunks", self.three()[0], 32 + 3 * 16 + 2 * 4 * 4096 + 608)

    def too_large(self, name, frame, raw_end):
        frame.force["size"] = raw_end + 16
        data = frame.to_bytes()
        self.add(10, "size-above-raw-" + name, "HEADER", frame, data + bytes(raw_end + 16 - len(data)))
        frame.force["size"] = raw_end + 16 + (1 << 40)
        self.add(9, "size-above-raw-" + name, "SHORT", frame)

    # ---- carried frames ----

    def carried_frame(self, dtype=FP32, count=200, **more):
        """One CODED chunk of blocks of 64."""
        self.rng = Rng(5)
        format_ = Format(dtype, block_log2=6)
        source = [0 if self.rng.one_in(4) else plain_value(self.rng, dtype, spread=6) for _ in range(count)]
        quanta = quanta_for(self.rng, format_, source)
        values, drops = rounded(format_, source, None, None, fw.cuts_of_frame(format_, count, 12, b"", quanta))
        return fw.write_frame(format_, values, drops, "small", quanta=quanta, **more)

    def carried_header(self):
        def forced(rule, name, dtype=FP32, **fields):
            self.forced(rule, "carried-" + name, "HEADER", self.carried_frame(dtype), **fields)

        forced(6, "derived", flags=fw.CARRIED | fw.DERIVED)
        forced(6, "constant", flags=fw.CARRIED | fw.CONSTANT)
        forced(6, "derived-constant", flags=fw.CARRIED | fw.DERIVED | fw.CONSTANT)
        forced(6, "of-derived", flags=fw.CARRIED | fw.DERIVED, extension_units=2)
        for dtype in DTYPES:
            for step in (0, *dtype.derived_steps[1:]):
                forced(7, "%s-step%d" % (dtype.name, step), dtype, step=step)
            for cap in (0, dtype.derived_cap - 1, dtype.derived_cap + 1, 255):
                forced(7, "%s-cap%d" % (dtype.name, cap), dtype, cap=cap)
        for block_log2 in (0, 5, 13, 14, 15, -1, 0x100 + 9, -0x8000):
            forced(7, "block-log2-%d" % block_log2, drop_base=block_log2)
        for block_log2 in (15, 16):
            forced(7, "chunk-log2-15-block-log2-%d" % block_log2, chunk_log2=15, drop_base=block_log2)
        forced(7, "extension-short", flags=fw.CARRIED | fw.CHECKSUM)

    def carried_receiver(self):
        frame = self.carried_frame(installed=(5, 9, Book({0: 1, 1: 3, **dict.fromkeys(range(110, 122), 5)})))
        self.add(15, "carried-nothing-installed", "TABLE", frame, receiver=Receiver())
        other = Book({0: 2, 1: 1, 100: 2}).to_bytes()
        self.add(15, "carried-other-content", "TABLE", frame, receiver=receiver_of(frame, book=other))
        # Relative exponents need quanta: the same codebook serves derived frames with a map.
        book = Book({0: 1, 1: 2, 122: 2}, 1)
        frame = self.small(Format(FP32, derived=True), installed=(1, 1, book))
        data = self.small(Format(FP32, derived=True, constant=True, step=1, cap=6), installed=(1, 1, book))
        self.add(15, "relative-for-constant", "TABLE", data, receiver=receiver_of(data, book=book.to_bytes()))

    def quanta(self):
        """Rule 20, after the codebook."""
        for dtype in DTYPES:
            format_ = Format(dtype, block_log2=6)
            value = dtype.bits(0, 20, 0)
            values = [value if i % 3 else 0 for i in range(200)]
            book = Book({0: 1, 1: 2, format_.label(value, 0, 0): 2})
            low = dtype.bias + 1
            largest = dtype.exponent_max + dtype.bias

            def spoiled(name, bad):
                """Blocks with a quantum are zero: it cuts nothing, so nothing else is wrong."""

                def change(parts):
                    parts.quanta = bytes(bad)

                part = [0 if bad[i // 64] else bits for i, bits in enumerate(values)]
                name = "quanta-%s-%s" % (name, dtype.name)
                self.spoiled(20, name, change, format_, 200, book, (), part, [0] * 200, bytes(4))

            spoiled("too-large", [0, 0, largest + 1, 0])
            spoiled("255", [255, 0, 0, 0])
            spoiled("below-window", [1, 0, 0, 64])
            spoiled("below-window-first", [low, 0, low + 63, 0] if dtype is not FP16 else [largest - 63, 0, 0, largest])
            # Three blocks have a byte of padding, five blocks three.
            for count, at in ((190, 3), (300, 5), (300, 7)):
                part = values[:190] if count == 190 else values + values[:100]
                size = fw.align((count + 63) // 64, 4)

                def padded(parts):
                    parts.quanta = bytes(1 if i == at else 0 for i in range(size))

                name = "quanta-padding-%s-%d" % (dtype.name, at)
                self.spoiled(20, name, padded, format_, count, book, (), part, [0] * count, bytes(size))
        # Cut off: the region ends after the codebook, or within the quanta of 40 blocks.
        format_ = Format(FP32, block_log2=6)
        for name, size in (("nothing", 0), ("16", 16), ("32", 32)):
            book = Book({0: 1, 1: 3, **dict.fromkeys(range(100, 196), 8)}).to_bytes()
            chunk = Chunk(CODED, 1, book, bytes(-len(book) % 16 + size))
            self.second(20, "quanta-truncated-" + name, chunk, format_, 64 * 60)
        # A user of another chunk's codebook: its crc comes before its quanta.
        value = FP32.bits(0, 120, 0)
        book = Book({0: 1, 1: 2, 121: 2})
        for checksum in (False, True):
            frame = Frame(format_, 4096 + 200, checksum=checksum)
            source = [value if i % 5 == 0 else 0 for i in range(4096 + 200)]
            chunks = []
            for index, part in enumerate((source[:4096], source[4096:])):
                parts = Coded(format_, book, part, [0] * len(part), (), [None] * len(part), bytes(len(part) + 63 >> 6))
                if index == 0:
                    parts.book_bytes = book.to_bytes()
                else:
                    parts.quanta = b"\xff" + parts.quanta[1:]
                chunks.append(Chunk(CODED, 0, parts.book_bytes, parts.to_bytes()))
            frame.chunks = chunks
            if checksum:
                frame.force["crc", 1] = 0x12345678
            rule, status = (18, "CHECKSUM") if checksum else (20, "CORRUPT")
            self.add(rule, "quanta-of-user", status, frame, bad_chunk=1, values=source[:4096] + [0] * 200)
        # The same for its size: as large as RAW.
        frame = Frame(format_, 4096 + 200, checksum=True)
        frame.chunks = [chunks[0], Chunk(CODED, 0, b"", bytes(800))]
        frame.force["crc", 1] = 0x12345678
        self.add(18, "size-of-user", "CHECKSUM", frame, bad_chunk=1, values=source[:4096] + [0] * 200)

    # ---- zero masks ----

    def mask_lengths(self):
        """Rule 20, the end of a codebook."""
        constant = Format(FP32, derived=True, constant=True, step=1, cap=12)
        values = [0 if i % 2 else FP32.bits(0, 100 + i % 3, 0) for i in range(200)]
        labels = {101: 1, 102: 2, 103: 2}

        def spoiled(name, change, classes=None, format_=constant, source=values, lengths=labels, base=0):
            """A chunk that fits its codebook, whose bytes are then changed. All its mask bytes are 0x55: class 4."""
            good = Book(lengths, base, classes or {4: 1})
            parts = Coded(format_, good, source, self.drops(format_, source), (), [None] * len(source))
            data = bytearray(good.to_bytes())
            change(data)
            parts.book_bytes = bytes(data)
            self.second(20, "mask-" + name, Chunk(CODED, 1, parts.book_bytes, parts.to_bytes()), format_, len(source))

        def put(at, value):
            return lambda data: data.__setitem__(at, value)

        # The last eight bytes are the classes: class 4 is the low nibble of the third of them.
        spoiled("no-class", put(-6, 0))
        spoiled("single-length-2", put(-6, 2))
        spoiled("single-length-11", put(-6, 11))
        spoiled("single-length-12", put(-6, 12))
        spoiled("single-length-15", put(-6, 15))
        spoiled("kraft-over", put(-8, 0x11))
        spoiled("kraft-under", put(-8, 2))
        spoiled("kraft-under-two", lambda data: (put(-6, 2)(data), put(-8, 2)(data)))
        ten = {i: min(i + 1, 9) for i in range(10)}
        spoiled("kraft-under-least", put(-4, 0xA9), ten)
        spoiled("length-12", put(-4, 0xC9), ten)
        for at in (-3, -2, -1):
            for bits in (1, 0x80):
                spoiled("class-padding%d-%02x" % (at, bits), put(at, bits))
        # No label with a code, and too many: label 0 has none.
        book = Book({1: 1}, 0, {4: 1}).to_bytes()
        self.second(20, "mask-no-label", Chunk(CODED, 1, book[:3] + b"\x0f" + book[4:], bytes(36)), constant)
        spoiled("labels-kraft-under", put(4, 0x22))
        spoiled("labels-kraft-over", put(3, 0x1F))
        for length in (12, 13, 14):
            spoiled("zero-length-%d" % length, put(3, length))
        # Cut off by the end of the region: within and before the classes.
        book = Book({101: 1, 102: 2, 103: 2}, 0, {4: 1}).to_bytes()
        assert len(book) == 16
        wide = Book({101: 1, **{102 + i: 4 for i in range(8)}}, 0, {4: 1}).to_bytes()
        assert len(wide) == 20
        self.second(20, "mask-truncated", Chunk(CODED, 1, wide[:16], b""), constant)
        frame = Frame(constant, 2 * 4096 + 200)
        user = fw.coded_chunk(constant, Book({101: 1, **{102 + i: 4 for i in range(8)}}, 0, {4: 1}), values, [12] * 200)
        frame.chunks = [Chunk(CODED, 0, wide[:16]), Chunk(ZERO, body=padded_to_16(wide[16:])), user]
        self.add(20, "mask-truncated-shared", "CORRUPT", frame, bad_chunk=0, values=[0] * (2 * 4096 + 200))
        # Base: relative exponents where there are quanta only, and no other value in frames with them.
        spoiled("relative-constant", put(0, 1))
        explicit = {4 * 40: 1, 4 * 41: 2, 4 * 42: 2}
        spoiled("base-192", put(0, 192), None, Format(FP32), values, explicit, 60)
        for base in (2, 64, 191, 255):
            value = FP32.bits(0, 120, 0)
            format_ = Format(FP32, block_log2=6)

            def change(parts):
                parts.book_bytes = bytes((base,)) + parts.book_bytes[1:]

            self.spoiled(
                20,
                "carried-base-%d" % base,
                change,
                format_,
                200,
                Book({0: 1, 121: 1}),
                (),
                [value, 0] * 100,
                [0] * 200,
                bytes(4),
            )
            format_ = Format(FP32, derived=True, drop_base=100)
            frame = Frame(format_, 200, levels=bytes(200))
            parts = Coded(format_, Book({0: 1, 121: 1}), [value, 0] * 100, [0] * 200)
            parts.book_bytes = Book({0: 1, 121: 1}, base).to_bytes()
            frame.chunks = [Chunk(CODED, 0, parts.book_bytes, parts.to_bytes())]
            self.add(20, "derived-base-%d" % base, "CORRUPT", frame, bad_chunk=0, values=[0] * 200)

    def masks(self):
        """Rules 21 to 24."""
        value = FP32.bits(0, 120, 0)
        one = Book({120: 1}, 90, {3: 2, 4: 2, 5: 1})  # one label, which takes no bits: runs of the mask alone
        many = Book({120: 1, 124: 2, 128: 3, 132: 3}, 90, {0: 2, 1: 2, 2: 1})
        count = 197
        values = [0 if i % 8 in (0, 3, 5) or i % 16 == 7 else value for i in range(count)]
        sparse = [FP32.bits(0, 120 + i % 4, 0) if i % 8 == 5 or i % 24 == 2 else 0 for i in range(count)]

        def spoiled(rule, name, change, book=one, source=values, **more):
            self.spoiled(rule, "mask-" + name, change, Format(FP32), count, book, (), source, [0] * count, **more)

        def coded(by):
            return lambda parts: setattr(parts, "coded_len", parts.coded_len + by)

        spoiled(21, "coded-len-198", lambda parts: setattr(parts, "coded_len", 198))
        spoiled(21, "coded-len-65535", lambda parts: setattr(parts, "coded_len", 65535))
        spoiled(21, "coded-len-above-tree", lambda parts: setattr(parts, "coded_len", 198), many, sparse)
        spoiled(21, "right-len-65535", lambda parts: parts.right_len.__setitem__(0, 65535))
        spoiled(21, "right-len-above-root", lambda parts: parts.right_len.__setitem__(0, 26))
        spoiled(21, "right-len-above-node", lambda parts: parts.right_len.__setitem__(1, 25), many, sparse)
        # The label tree has as many values as coded_len says, fewer than the chunk.
        spoiled(
            21,
            "right-len-above-coded-len",
            lambda parts: parts.right_len.__setitem__(2, parts.coded_len + 1),
            many,
            sparse,
        )
        spoiled(
            21,
            "header-padding",
            lambda parts: setattr(parts, "header_padding", 1),
            Book({120: 1}, 90, {4: 1, 5: 1}),
            values[:192] + [value] * 5,
        )
        # Set bits: the same runs, digits and sizes, one number changed.
        for by in (-1, 1):
            spoiled(23, "coded-len%+d" % by, coded(by))
        # coded_len and digits agree with each other, not with the mask: of one value more or less.
        for by in (-1, 1):

            def both(parts, by=by):
                parts.coded_len += by
                for plane in range(4):
                    parts.plane_len[plane] += by

            spoiled(23, "coded-len-and-digits%+d" % by, both)
        # Bits after the last value: the last byte of the mask has five. Counted in coded_len, and not.
        for bit in (0, 2):
            after = [False] * bit + [True]
            spoiled(23, "after-last-%d" % bit, lambda parts: None, after=after)
            spoiled(23, "after-last-%d-not-counted" % bit, coded(-1), after=after)

        def in_run(node, at, bits):
            def change(parts):
                data = bytearray(parts.runs[node])
                data[at] ^= bits
                parts.runs[node] = bytes(data)

            return change

        # Preorder of the mask's tree: its root, the leaf of class 5, an inner node, the leaves of classes 3 and 4.
        spoiled(23, "root-bit", in_run(0, 0, 1))
        spoiled(23, "root-padding", in_run(0, 3, 2))
        spoiled(23, "root-padding-last", in_run(0, 3, 0x80))
        spoiled(
            23,
            "root-right-len-less",
            lambda parts: parts.right_len.__setitem__(0, parts.right_len[0] - 1),
            Book({120: 1}, 90, {0: 1, 9: 1}),
            [value] * 96 + [0] * 101,
        )
        spoiled(
            23,
            "leaf-padding",
            lambda parts: parts.runs.__setitem__(1, parts.runs[1][:-1] + bytes((parts.runs[1][-1] | 0x80,))),
        )
        # Classes of one byte take no bits: a mask of 0x00 and 0xff is its root's run alone.
        spoiled(
            23, "zero-and-full-flipped", in_run(0, 0, 3), Book({120: 1}, 90, {0: 1, 9: 1}), [value] * 96 + [0] * 101
        )
        for name, by in (("more", 1), ("less", -1)):

            def digits(parts, by=by):
                parts.plane_len[1] += by

            spoiled(24, "digits-one-" + name, digits)

        def size(parts):
            natural = parts.to_bytes()
            parts.to_bytes = lambda: natural[: 16 * (len(natural) // 32) - len(parts.book_bytes) % 16]

        spoiled(22, "cut", size)
        spoiled(22, "runs-missing", lambda parts: setattr(parts, "runs", []))

    # ---- escapes where labels are turned or zeros masked ----

    def fine_escapes(self):
        def forced(name, format_, book, values, quanta, at=10, levels=None):
            """Value 10 is escaped without need."""
            count = len(values)
            cuts = fw.cuts_of_frame(format_, count, 12, levels or b"", quanta)
            drops = [
                format_.drop_at(format_.dtype.split(bits)[1], cut) if format_.fine else 0
                for bits, cut in zip(values, cuts)
            ]
            for bits, drop in zip(values[:at] + values[at + 1 :], drops[:at] + drops[at + 1 :]):
                assert bits % (1 << drop) == 0
            parts = Coded(format_, book, values, drops, (at,), cuts, quanta)
            assert parts.escape_len == 1
            parts.book_bytes = book.to_bytes()
            chunk = Chunk(CODED, 0, parts.book_bytes, parts.to_bytes())
            if format_.mapped:
                frame = Frame(format_, count, levels=levels)
                frame.chunks = [chunk]
                self.add(26, name, "CORRUPT", frame, bad_chunk=0, values=[0] * count)
            else:
                self.second(26, name, chunk, format_, count)

        def with_classes(book, values, at=10):
            coded = [bits != 0 or i == at for i, bits in enumerate(values)]
            book.classes = fw.package_merge(fw.counts_of(fw.CLASS_OF[byte] for byte in fw.mask_bytes(coded)))
            return book

        one = FP32.bits(0, 120, 0)
        values = [one if i % 2 else 0 for i in range(200)]
        carried = Format(FP32, block_log2=6)
        forced("masked-plus-zero", Format(FP32), with_classes(Book({1: 1, 120: 1}, 90), values), values, b"")
        forced(
            "masked-plus-zero-strict",
            Format(FP32, strict=True),
            with_classes(Book({1: 1, 120: 1}, 90), values),
            values,
            b"",
        )
        forced("masked-plus-zero-carried", carried, with_classes(Book({1: 1, 121: 1}), values), values, bytes(4))
        values[10] = FP32.bits(1, 120, 1)
        forced("masked-has-label", Format(FP32), with_classes(Book({1: 1, 120: 1}, 90), values), values, b"")
        values[10] = 1 << 31
        forced("masked-minus-zero", Format(FP32), with_classes(Book({1: 1, 120: 1}, 90), values), values, b"")
        # A quantum of 110: 120 is the label of 11, 2 + 10; the largest below it, 109, the last one.
        quanta = bytes([110] * 4)
        turn = carried.turn(carried.cut_of_quantum(110))
        assert turn == 109 and carried.label(one, 0, 0, turn) == 12
        values[10] = FP32.bits(1, 120, 1 << 22)
        forced("relative-has-label", carried, Book({0: 1, 1: 2, 12: 2}, 1), values, quanta)
        values[10] = FP32.bits(1, 109, 0)
        assert carried.label(values[10], 0, 0, turn) == 255
        forced("relative-has-label-below", carried, Book({0: 1, 1: 3, 12: 2, 255: 3}, 1), values, quanta)
        # The bits that the quantum of the block cuts: of this block, not of the next one.
        values[10] = FP32.bits(0, 121, 1 << 11)
        forced("dropped-bits-carried", carried, Book({0: 1, 1: 2, 121: 2}), values, bytes([110, 0, 0, 0]))
        values[10], values[190] = one, FP32.bits(0, 121, 1)
        forced("dropped-bits-carried-last", carried, Book({0: 1, 1: 2, 121: 2}), values, bytes([0, 0, 110, 99]), 190)
        fp16 = Format(FP16, block_log2=6)
        half = FP16.bits(0, 14, 0)
        values = [half if i % 2 else 0 for i in range(200)]
        values[10] = FP16.bits(1, 0, 3)
        forced("dropped-bits-carried-fp16", fp16, Book({0: 1, 1: 2, 16: 2}), values, bytes([112, 0, 0, 0]))
        # fp16: neither exponent nor mantissa under an ordinary label: in the planes, and where the quantum leaves the
        # sign alone. The first chunk is one of subnormals without their digits, the second one of e = 1 whose codebook
        # names the label of e = 0 instead.
        for name, quantum, label, value in (("carried", 0, 2, 1023), ("relative", 126, 19, FP16.bits(1, 1, 0))):
            cuts = [fp16.cut_of_quantum(quantum)] * 100
            drops = [fp16.drop_at(value >> 10 & 31, cut) for cut in cuts]
            written = Book({fp16.label(value, 0, 0, fp16.turn(cuts[0])): 1}, int(quantum > 0))
            parts = Coded(fp16, written, [value] * 100, drops, (), cuts, bytes([quantum] * 2))
            if quantum == 0:
                parts.planes = [bytes(len(plane)) for plane in parts.planes]
            else:
                assert drops == [10] * 100 and written.lengths == {label + 1: 1}
            parts.book_bytes = Book({label: 1}, written.base).to_bytes()
            chunk = Chunk(CODED, 1, parts.book_bytes, parts.to_bytes())
            self.second(25, "zero-mantissa-" + name, chunk, fp16, 100)

    # ---- which chunk and which rule decides ----

    def several(self):
        """More than one defect, on purpose: the precedence between them."""
        frame, same = self.three(checksum=True)
        data = bytearray(frame.to_bytes())
        data[-1] ^= 0x80
        data[-len(frame.chunks[2].body) - 1] ^= 0x80
        self.add(18, "two-bad-chunks", "CHECKSUM", frame, bytes(data), bad_chunk=0, values=[0] * len(same))

        frame, same = self.three()
        body = frame.chunks[0].body
        frame.chunks[0].body = body[:-16]
        frame.chunks[1].body = bytes(16)
        self.add(
            19,
            "lowest-bad-chunk",
            "CORRUPT",
            frame,
            bad_chunk=0,
            values=[0 if i < 8192 else bits for i, bits in enumerate(same)],
        )

        # crc of chunk 1 wrong, content of chunk 0 bad with a right crc: the lowest chunk decides, not the lowest rule.
        frame, same = self.three(checksum=True)
        frame.chunks[1].body = bytes(16)
        frame.force["crc", 2] = 1
        self.add(19, "corrupt-before-checksum", "CORRUPT", frame, bad_chunk=1, values=same[:8192] + [0] * 150)
        # Both in one chunk: the crc comes first.
        frame, same = self.three(checksum=True)
        frame.chunks[1].body = bytes(16)
        frame.force["crc", 1] = 1
        self.add(18, "checksum-before-corrupt", "CHECKSUM", frame, bad_chunk=1, values=same)

        frame = self.small()
        frame.force.update(version=0x99, dtype=9, size=1 << 60)
        self.add(3, "version-first", "VERSION", frame)
        frame = self.small()
        frame.force.update(chunk_log2=3, flags=1 << 14)
        self.add(4, "flag-before-chunk-log2", "UNSUPPORTED", frame)
        frame = self.small()
        frame.force.update(count=1 << 50, step=99)
        self.add(7, "step-before-count", "HEADER", frame)
        frame = self.small(checksum=True)
        frame.force.update(count=1 << 50, extension_units=0)
        self.add(7, "extension-before-count", "HEADER", frame)
        frame = self.small()
        frame.force.update(count=1 << 50, size=1 << 50)
        self.add(8, "count-before-size", "LIMIT", frame)
        frame = self.small()
        frame.force.update(size=1)
        self.add(10, "size-before-trailing", "HEADER", frame)
        frame = self.small(checksum=True)
        frame.force.update(reserved=1, meta_crc=0)
        self.add(12, "reserved-before-meta-crc", "HEADER", frame)
        frame = self.small(checksum=True)
        frame.force.update({("place", 0): 3, "meta_crc": 0})
        self.add(13, "meta-crc-before-directory", "CHECKSUM", frame)
        frame = self.small(Format(FP32, derived=True), installed=(1, 1, Book({0: 1, 1: 2, 122: 2})))
        self.add(15, "table-before-map", "TABLE", frame, receiver=Receiver())
        frame = self.small(Format(FP32, derived=True))
        self.add(16, "map-before-capacity", "MAP", frame, receiver=Receiver(capacity=0))
        frame = self.small()
        frame.chunks[0].body = bytes(len(frame.chunks[0].body))
        self.add(17, "capacity-before-content", "DST", frame, receiver=receiver_of(frame, capacity=199))

    # ---- rule 14a ----

    def foreign_dtype(self):
        """Frames that are valid but for the receiver's dtype; then others that break one more rule."""
        for dtype in DTYPES:
            for other in DTYPES:
                if other is not dtype:
                    frame = self.small(Format(dtype))
                    name = "%s-at-%s" % (dtype.name, other.name)
                    self.add("14a", name, "OPTION", frame, receiver=receiver_of(frame, dtype=other))
        frame = Frame(Format(BF16), 0)
        self.add("14a", "empty", "OPTION", frame, receiver=receiver_of(frame, dtype=FP16))
        frame = Frame(Format(FP32, block_log2=6), 4096)
        frame.chunks = [Chunk(ZERO)]
        self.add("14a", "carried", "OPTION", frame, receiver=receiver_of(frame, dtype=FP16))
        book = Book({0: 1, 1: 2, 232: 2}, 62)
        for name, format_, more in (
            ("before-table", Format(FP32), {"installed": (5, 9, book)}),
            ("before-map", Format(FP32, derived=True, step=3), {}),
        ):
            self.add("14a", name, "OPTION", self.small(format_, **more), receiver=Receiver(dtype=BF16))
        frame = self.small()
        self.add("14a", "before-capacity", "OPTION", frame, receiver=receiver_of(frame, dtype=FP16, capacity=199))
        frame, _ = self.three(checksum=True)
        data = frame.to_bytes()
        data = data[:-20] + bytes((data[-20] ^ 1,)) + data[-19:]
        self.add("14a", "before-chunk-crc", "OPTION", frame, data, receiver=receiver_of(frame, dtype=BF16))
        frame, _ = self.three()
        frame.force["crc", 2] = 1
        self.add(14, "directory-before-dtype", "HEADER", frame, receiver=receiver_of(frame, dtype=BF16))


# ---------------------------------------------------------------------------------------------------------------------
# Random frames
# ---------------------------------------------------------------------------------------------------------------------


def random_format(rng):
    dtype = rng.pick(DTYPES)
    kind = rng.pick(("explicit", "constant", "derived", "derived", "carried", "carried"))
    strict, deep_cut = rng.one_in(3), rng.one_in(2)
    if kind == "constant":
        return Format(dtype, strict, True, True, 1, rng.below(dtype.mantissa_bits + 1))
    if kind == "carried":
        return Format(dtype, strict, block_log2=rng.between(6, 12), deep_cut=deep_cut)
    if kind == "derived":
        more = {"tolerance_bits": rng.pick((23, 23, dtype.mantissa_bits, rng.between(1, 23)))}
        if deep_cut:
            return Format(dtype, strict, True, deep_cut=True, **more)
        step = rng.pick(dtype.derived_steps)
        return Format(dtype, strict, True, False, step, rng.below(dtype.derived_cap // step + 1) * step, **more)
    return Format(dtype, strict, cap=rng.below(4) * dtype.step)


def random_quanta(rng, format_, values):
    """Levels, cuts and quanta of a frame of the given values; sets drop_base."""
    levels, quanta = b"", b""
    if format_.mapped:
        levels, format_.drop_base = map_for(rng, format_, values)
        if rng.one_in(3):  # all parameters alike: relative exponents pay
            byte = rng.between(1, 255)
            levels = bytes(byte if not rng.one_in(30) else level for level in levels)
    if format_.carried:
        quanta = quanta_for(rng, format_, values)
    return levels, quanta


def random_values(rng, format_, count):
    d = format_.dtype
    top = rng.between(1, d.exponent_max)
    spread = rng.pick((0, 1, 3, 8, 30, 250))
    zeros, odd, flat = rng.pick((1, 2, 3, 16, 1000)), rng.pick((5, 40, 400, 10**9)), rng.one_in(4)
    specials = special_values(d) + ([] if d is not FP16 else [1, 0x8001, 0x3FF, 0x83FE])
    values = []
    for _ in range(count):
        if rng.one_in(odd):
            values.append(rng.pick(specials))
        elif rng.one_in(zeros):
            values.append(0)
        elif flat:
            values.append(d.bits(rng.below(2), max(1, top - rng.below(spread + 1)), rng.below(1 << d.mantissa_bits)))
        else:
            values.append(plain_value(rng, d, top, spread))
    return values


def random_frame(rng):
    """A frame as the library's encoder makes it but for explicit levels that change from value to value; its values;
    the fields of the index with which the encoder makes it, if it does."""
    format_ = random_format(rng)
    chunk_log2 = 12 if not rng.one_in(8) else rng.pick((10, 11, 13, 14, 15))
    if format_.carried:
        format_.block_log2 = min(format_.block_log2, chunk_log2)
    count = rng.pick((rng.below(40), rng.below(600), 4000 + rng.below(200), rng.below(13000)))
    source = random_values(rng, format_, count)
    if rng.one_in(4) and count > 4096:
        source[:4096] = [0] * 4096
    levels, quanta = random_quanta(rng, format_, source)
    cuts = fw.cuts_of_frame(format_, count, chunk_log2, levels, quanta)
    level = rng.below(format_.cap // format_.dtype.step + 1)
    picks = [level] if rng.one_in(2) else [rng.below(4) for _ in range(16)]
    rounding = rng.pick(("truncate", "nearest", "stochastic")) if format_.fine else "truncate"
    values, drops = rounded(format_, source, levels, lambda i: picks[i * 7 % len(picks)], cuts, rounding)
    installed = None
    if rng.one_in(4):
        base, relative = random_base(rng, format_)
        turns = [format_.turn(cut) if relative else 0 for cut in cuts]
        labels = [format_.label(bits, drop, base, turn) for bits, drop, turn in zip(values, drops, turns)]
        counts = {0: 1 + rng.below(50), 1: 1 + rng.below(5), **fw.counts_of(labels[::3])}
        book = Book(fw.package_merge(counts), base)
        if rng.one_in(2):
            del counts[0]
            counts[1] = counts.get(1, 1)
            book = Book(fw.package_merge(counts), base, random_classes(rng, range(10)))
        installed = (rng.below(1 << 32), rng.below(1 << 32), book)
    wire_scale = rng.pick((fw.WIRE_SCALE_ONE, 0x41000000, 0x3DCCCCCD))
    preset = rng.pick(("fast", "small"))
    checksum = rng.one_in(3)
    frame = fw.write_frame(format_, values, drops, preset, chunk_log2, checksum, installed, levels, wire_scale, quanta)
    if rng.one_in(6):  # a frame of a later version: no encoder of this one makes it
        flags = rng.below(256)
        parts = [(bit, 1 + rng.below(3)) for bit in range(8) if flags >> bit & 1 and rng.one_in(2)]
        frame.tail = fw.ignorable_parts(parts, rest=rng.bytes(8 * rng.below(4)))
        frame.force["ignorable_flags"] = flags
        preset = None
    encoder = {"preset": preset, "rounding": rounding}
    if format_.fine:
        encoder["source"], encoder["quanta"] = source, quanta if format_.carried else None
    if format_.constant:
        encoder["constant_drop"] = format_.cap
    if not format_.fine:
        encoder["constant_drop"] = level * format_.dtype.step
        if len(picks) > 1:
            preset = None
    return frame, values, encoder if preset else {}


def random_base(rng, format_):
    """Base of a codebook, and whether that means relative exponents."""
    if format_.mapped or format_.carried:
        relative = rng.one_in(2)
        return int(relative), relative
    return 0 if format_.derived or format_.dtype is FP16 else rng.below(192), False


def random_classes(rng, needed):
    """Code lengths of at least these classes."""
    classes = sorted(set(needed) | {number for number in range(10) if rng.one_in(4)})
    return dict(zip(classes, random_lengths(rng, len(classes))))


def random_book(rng, format_, labels):
    """Any complete codebook for these labels and some more."""
    possible = (
        range(2, 33 if format_.dtype is FP16 else 256)
        if format_.fine
        else range(4, 128 if format_.dtype is FP16 else 256)
    )
    labels = sorted(set(labels) | {rng.pick(possible) for _ in range(rng.pick((0, 1, 3, 30, 200)))})
    return dict(zip(labels, random_lengths(rng, len(labels))))


def random_lengths(rng, count):
    """Lengths of any complete code."""
    lengths = [0]
    while len(lengths) < count:
        # Splitting the newest makes deep trees, any other one flat ones.
        at = len(lengths) - 1 if rng.one_in(2) else rng.below(len(lengths))
        if lengths[at] < 11:
            lengths[at] += 1
            lengths.append(lengths[at])
    for i in range(len(lengths) - 1, 0, -1):
        j = rng.below(i + 1)
        lengths[i], lengths[j] = lengths[j], lengths[i]
    return lengths if count > 1 else [1]


def random_structure(rng):
    """A frame that no encoder makes: any codebook, escapes that are not needed, counts that are wrong by one, flipped
    bits in the runs. Sizes and checksums fit, so that the deep rules decide. Often valid."""
    format_ = random_format(rng)
    d = format_.dtype
    count = 4096 + rng.below(300) if rng.one_in(3) else 1 + rng.below(600)
    source = random_values(rng, format_, count)
    levels, quanta = random_quanta(rng, format_, source)
    cuts = fw.cuts_of_frame(format_, count, 12, levels, quanta)
    picks = [rng.below(4) for _ in range(16)]
    values, drops = rounded(format_, source, levels, lambda i: picks[i * 7 % 16], cuts)
    frame = Frame(format_, count, checksum=rng.one_in(4), levels=levels)
    base, relative = random_base(rng, format_)
    if not format_.fine and d is not FP16:
        base = max(0, min(191, max(d.split(bits)[1] for bits in values) - rng.below(70)))
    turns = [format_.turn(cut) if relative else 0 for cut in cuts]
    for index in range((count + 4095) // 4096):
        part = frame.chunk_range(index)
        labels = {
            format_.label(*of_value, base, turn) for *of_value, turn in zip(values[part], drops[part], turns[part])
        }
        labels.add(1)
        escape_at = {rng.below(4096) for _ in range(2)} if rng.one_in(6) else ()
        classes = None
        if rng.one_in(2):
            labels.discard(0)
            coded = [bits != 0 or i in escape_at for i, bits in enumerate(values[part])]
            classes = random_classes(rng, {fw.CLASS_OF[byte] for byte in fw.mask_bytes(coded)})
        if rng.one_in(3) and len(labels) > 2:
            labels.discard(rng.pick(sorted(labels - {1})))
        book = Book(random_book(rng, format_, labels), base, classes)
        own = fw.quanta_of_chunk(fw.quanta_in(format_, quanta, part.start, part.stop - part.start)) if quanta else b""
        parts = Coded(format_, book, values[part], drops[part], escape_at, cuts[part], own)
        parts.book_bytes = bytearray(book.to_bytes())
        if rng.one_in(2):
            spoil(rng, parts, d)
        frame.chunks.append(Chunk(CODED, index, bytes(parts.book_bytes), parts.to_bytes()))
    return frame


def spoil(rng, parts, dtype):
    """One change to a chunk before it is serialised."""

    def flipped(data):
        data = bytearray(data)
        if data:
            data[rng.below(len(data))] ^= 1 << rng.below(8)
        return bytes(data)

    by = rng.pick((-1, 1))
    what = rng.below(9)
    if what == 0:
        plane = rng.below(len(parts.plane_len))
        parts.plane_len[plane] = max(0, parts.plane_len[plane] + by)
    elif what == 1:
        parts.escape_len = max(0, parts.escape_len + by)
        parts.escapes = parts.escapes[:-4] if by < 0 else parts.escapes + struct.pack("<I", rng.below(1 << 32))
    elif what == 2 and parts.right_len:
        node = rng.below(len(parts.right_len))
        parts.right_len[node] = max(0, parts.right_len[node] + by)
    elif what == 3:
        node = rng.below(len(parts.runs))
        parts.runs[node] = flipped(parts.runs[node])
    elif what == 4:
        plane = rng.below(len(parts.planes))
        parts.planes[plane] = flipped(parts.planes[plane])
    elif what == 5:
        parts.escapes = flipped(parts.escapes)
    elif what == 6 and parts.coded_len is not None:
        parts.coded_len = max(0, parts.coded_len + by)
    elif what == 7:
        parts.quanta = flipped(parts.quanta)
    else:
        parts.book_bytes[rng.below(len(parts.book_bytes))] ^= 1 << rng.below(8)


def mutated(rng, frame):
    """A frame with one to three changed bytes, or one that was cut or extended. Most changes go where a parser has to
    think: the codebook and counts at the start of a chunk. Checksums are not made anew."""
    data = bytearray(frame.to_bytes())
    sizes = [len(chunk.book_bytes + chunk.body) for chunk in frame.chunks]
    payload = len(data) - sum(sizes)
    where = rng.below(16)
    if where == 0:
        return bytes(data[: rng.below(len(data))])
    if where == 1:
        return bytes(data) + rng.bytes(1 + rng.below(20))
    for _ in range(rng.pick((1, 1, 1, 2, 3))):
        if where < 4:
            at = rng.below(payload)
        elif where == 4 or payload == len(data):
            at = rng.below(32)
        else:
            index = rng.below(len(sizes))
            start = payload + sum(sizes[:index])
            at = start + rng.below(max(1, min(sizes[index], rng.pick((4, 32, 200, 1 << 20)))))
        if at < len(data):
            data[at] = rng.pick((data[at] ^ 1 << rng.below(8), rng.below(256), data[at] + 1 & 255, data[at] - 1 & 255))
    return bytes(data)


def make_random(root, count, seed):
    """Verdicts are the reference decoder's; frames known to be valid must be so for it too."""
    sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "reference_decoder"))
    import gw_decode

    index = Index(root)
    for number in range(count):
        rng = Rng(seed * 1000003 + number)
        kind = ("valid", "mutated", "structure")[number % 3]
        values, encoder = None, {}
        if kind == "structure":
            frame = random_structure(rng)
        else:
            frame, values, encoder = random_frame(rng)
        data = frame.to_bytes() if kind != "mutated" else mutated(rng, frame)
        receiver = receiver_of(frame)
        if rng.one_in(6):
            receiver.capacity = rng.pick((frame.count, max(0, frame.count - 1), frame.count + 9))
        receiver_map = None
        if receiver.levels is not None:
            receiver_map = gw_decode.Map(receiver.levels, receiver.drop_base, receiver.wire_scale)
        installed = {(receiver.book_id, receiver.generation): receiver.book} if receiver.book else {}
        dtype = gw_decode.DTYPES[frame.format.dtype.number]
        status, bad_chunk, decoded = gw_decode.decode(data, receiver_map, installed, receiver.capacity, dtype=dtype)
        name = "%06d-%s" % (number, kind)
        if kind == "valid" and status != "DST" and (status != "OK" or decoded != values):
            raise SystemExit("%s: writer and reference decoder disagree: %s, chunk %s" % (name, status, bad_chunk))
        if kind != "valid" or status != "OK":
            encoder = {}
        has_values = status == "OK" or bad_chunk is not None
        index.add(
            "random/" + name,
            data,
            frame.format,
            receiver,
            status,
            "-",
            bad_chunk,
            decoded if has_values else None,
            **encoder,
        )
    index.write()
    return index


def make_golden(root):
    for name in ("decode", "reject", "receiver"):
        shutil.rmtree(os.path.join(root, name), ignore_errors=True)
    index = Index(root)
    Decode(index).all()
    Reject(index).all()
    index.write()
    return index


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--random", type=int, metavar="N", help="N random vectors instead of the golden ones")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    options = parser.parse_args()
    if options.random is not None:
        if options.directory is None:
            parser.error("--random needs a directory")
        index = make_random(options.directory, options.random, options.seed)
    elif options.directory is not None:
        index = make_golden(options.directory)
    else:
        with tempfile.TemporaryDirectory() as folder:
            index = make_golden(folder)
            golden_archive.pack(folder, "gcomp")
    print("%d vectors in %s" % (len(index.lines), options.directory or HERE))


if __name__ == "__main__":
    main()
