#!/usr/bin/env python3
"""Writes the golden THC frames into the archives of this directory: decode/ (valid frames with their values) and
reject/ (one defect each).

    make_thc_vectors.py path/to/gradwire

Valid frames come from the command; their values from the reference decoder, and check_thc_vectors.py compares both
with the files. Rejected frames are valid ones with one field edited, so a change of the format regenerates them.
index.tsv lists every file with the expected code and, for content errors, the lowest bad block.
"""

import os
import random
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../docs/reference_decoder"), os.path.join(HERE, "..")]
import golden_archive  # noqa: E402
import thc_decode  # noqa: E402

ROWS = []
VECTORS = tempfile.TemporaryDirectory()


def npy(path, values, dtype="<f4"):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (dtype, len(values))
    header += " " * (117 - len(header)) + "\n"
    code = {"<f4": "f", "<f2": "e", "<u2": "H"}[dtype]
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(struct.pack("<%d%s" % (len(values), code), *values))


def edit(data, at, new):
    return data[:at] + bytes(new) + data[at + len(new) :]


def order_code(bits):
    return ~bits & 0xFFFFFFFF if bits >> 31 else bits | 0x80000000


def save(kind, name, data, status, block=""):
    folder = os.path.join(VECTORS.name, kind)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".gw"), "wb") as f:
        f.write(data)
    ROWS.append((kind, name, status, str(block)))
    if kind == "decode":
        for mode, mean in (("mean", True), ("sum", False)):
            got, _, values, _ = thc_decode.decode(data, mean)
            assert got == "ok", (name, got)
            with open(os.path.join(folder, f"{name}.{mode}"), "wb") as f:
                f.write(values)


class Maker:
    def __init__(self, tool, folder):
        self.tool, self.folder = tool, folder
        self.random = random.Random(20240416)

    def run(self, *arguments):
        subprocess.run([self.tool, *arguments], check=True, cwd=self.folder, stdout=subprocess.DEVNULL)

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as f:
            return f.read()

    def job(self, workers, values, options, dtype="<f4"):
        """Frames of all workers and their sum; values(worker) gives an array."""
        options = [str(o) for o in options]
        flags = ["--bf16"] if dtype == "<u2" else []
        for w in range(workers):
            npy(os.path.join(self.folder, f"{w}.npy"), values(w), dtype)
            self.run("norm", f"{w}.npy", "-o", f"{w}.norm", *options, *flags)
        self.run("norm", "--max", *[f"{w}.norm" for w in range(workers)], "-o", "all.norm")
        for w in range(workers):
            job = f"--codec thc --norms all.norm --rank {w} --workers {workers}".split()
            self.run("compress", f"{w}.npy", *job, *options, *flags, "-o", f"{w}.gw")
        self.run("aggregate", *[f"{w}.gw" for w in range(workers)], "-o", "sum.gw")
        return [self.read(f"{w}.gw") for w in range(workers)], self.read("sum.gw")

    def normal(self, count, scale=1.0):
        return [self.random.gauss(0, scale) for _ in range(count)]


def make_valid(m):
    base = ("--seed", 0x0123456789ABCDEF, "--round", 4294967295, "--block", 64)
    for bits in (1, 2, 3, 4):
        frames, total = m.job(3, lambda w: m.normal(200), base + ("--bits", bits))
        save("decode", f"bits{bits}-index", frames[1], "ok")
        save("decode", f"bits{bits}-sum", total, "ok")
    for lane in (16, 32):
        _, total = m.job(2, lambda w: m.normal(150), base + ("--lane", lane))
        save("decode", f"lane{lane}-sum", total, "ok")
    frames, total = m.job(2, lambda w: m.normal(130), base + ("--plain",))
    save("decode", "plain-index", frames[0], "ok")
    save("decode", "plain-sum", total, "ok")
    _, total = m.job(2, lambda w: m.normal(130), base + ("--plain", "--uniform", "--bits", 3))
    save("decode", "plain-uniform-sum", total, "ok")
    _, total = m.job(2, lambda w: m.normal(3000), ("--seed", 9, "--job", 5))
    save("decode", "block1024-tail-sum", total, "ok")
    _, total = m.job(2, lambda w: [0.0] * 64 + m.normal(64) + [1e-40] * 64, base)
    save("decode", "zero-blocks-sum", total, "ok")
    _, total = m.job(2, lambda w: m.normal(64, 1e37) + m.normal(64, 1e-37) + m.normal(64), base)
    save("decode", "extreme-norms-sum", total, "ok")
    _, total = m.job(2, lambda w: m.normal(64) + [float("nan")] + m.normal(70), base + ("--nonfinite", "propagate"))
    save("decode", "nonfinite-sum", total, "ok")
    _, total = m.job(2, lambda w: m.normal(100), base, "<f2")
    save("decode", "fp16-sum", total, "ok")
    # -0 and the least fp16 numbers: what is decoded rounds to zeros of both signs, of which only +0 is written.
    tiny = [-0.0, 2.0**-24, -(2.0**-24), 0.0]
    frames, total = m.job(2, lambda w: [tiny[(i + w) % 4] for i in range(100)], base, "<f2")
    save("decode", "fp16-minus-zero-index", frames[1], "ok")
    save("decode", "fp16-minus-zero-sum", total, "ok")
    for name, dtype, zeros in (("fp32", "<f4", [-0.0]), ("fp16", "<f2", [-0.0]), ("bf16", "<u2", [0x8000])):
        frames, total = m.job(1, lambda w, zeros=zeros: zeros * 70, base, dtype)
        save("decode", f"minus-zero-{name}-index", frames[0], "ok")
        _, total = m.job(1, lambda w, zeros=zeros: zeros * 70, base + ("--plain",), dtype)
        save("decode", f"minus-zero-{name}-plain-sum", total, "ok")
    _, total = m.job(2, lambda w: [m.random.getrandbits(15) % 0x4100 & 0xFFFF for _ in range(100)], base, "<u2")
    save("decode", "bf16-sum", total, "ok")
    # Constant blocks: the mean is the fp32 pattern, the sum twice as much, and both are rounded. Ties, overflow by
    # rounding alone, and what rounds to -0.
    rounded = {
        "bf16": (
            "<u2",
            [0x3F808000, 0x3F818000, 0x3F808001, 0xBF817FFF, 0xBF818000, 0x7EFFFFFF, 0xFEFF7FFF, 0x00800000],
        ),
        "fp16": (
            "<f2",
            [0x3F801000, 0x3F803000, 0x3F801001, 0x33000000, 0xB3000000, 0xB3000001, 0x477FEFFF, 0xC77FF000],
        ),
    }
    for name, (dtype, values) in rounded.items():
        zeros = [0] * (64 * len(values))
        _, total = m.job(2, lambda w, zeros=zeros: zeros, base + ("--plain",), dtype)
        codes = [code for bits in values for code in (order_code(bits), order_code(bits ^ 0x80000000))]
        save("decode", f"rounding-{name}-sum", edit(total, 96, struct.pack(f"<{len(codes)}I", *codes)), "ok")
    mark = base + ("--nonfinite", "propagate")
    _, total = m.job(2, lambda w: m.normal(64) + [float("-inf")] + m.normal(70), mark, "<f2")
    save("decode", "nonfinite-fp16-sum", total, "ok")
    _, total = m.job(2, lambda w: [0x3F80] * 64 + [0xFFFF] + [0x3F80] * 70, mark, "<u2")
    save("decode", "nonfinite-bf16-sum", total, "ok")
    _, total = m.job(1, lambda w: [1.0], base)
    save("decode", "one-value-sum", total, "ok")
    frames, _ = m.job(1, lambda w: [1.0], base + ("--bits", 1))  # 96 + 4 + 8 bytes, and 4 of padding
    save("decode", "padding-index", frames[0], "ok")
    m.run("compress", "0.npy", "--codec", "thc", "--block", "64", "--bits", "3", "--checksum", "-o", "crc.gw")
    save("decode", "padding-checksum-index", m.read("crc.gw"), "ok")  # 96 + 4 + 24, and the checksum at 124
    # Frames in a row: each starts and ends on a multiple of 16.
    assert all(len(m.read(name)) % 16 == 0 for name in ("0.gw", "sum.gw", "crc.gw"))
    _, total = m.job(1, lambda w: [], base)
    save("decode", "empty-sum", total, "ok")
    _, total = m.job(70, lambda w: m.normal(10), base)
    save("decode", "workers70-sum", total, "ok")
    frames, total = m.job(2, lambda w: m.normal(100), base)
    save("decode", "later-index", later(frames[1]), "ok")
    save("decode", "later-sum", later(total), "ok")
    save("decode", "later-no-parts", later(total, b"\0" + b"\xa5" * 15), "ok")
    save("decode", "later-without-flags", later(total, b"\xa5" * 16, 0), "ok")


def later(data, more=b"\3\1......\0" + b"\xa5" * 7, flags=0xFF):
    """The frame with what a writer of a later version may add: its version, ignorable flags, a longer extension."""
    size = struct.unpack("<Q", data[24:32])[0] + len(more)
    units = 8 + len(more) // 8
    data = edit(edit(edit(data, 4, b"\x10"), 10, bytes((flags, units))), 24, struct.pack("<Q", size))
    return data[:96] + more + data[96:]


def make_ignorable_rejects(index):
    """The list of parts of ignorable flags, bits 1 and 6."""
    end = bytes(8)
    for name, more in (
        ("no-end", b"\2\2" + b"\xa5" * 14),
        ("size-0", b"\2\0......" + end),
        ("past-extension", b"\2\3......" + end),
        ("flag-not-set", b"\1\1......" + end),
        ("number-9", b"\x09\1......" + end),
        ("twice", b"\2\1......" * 2 + end * 2),
        ("descending", b"\7\1......\2\1......" + end * 2),
    ):
        save("reject", "ignorable-" + name, later(index, more, 0x42), "header")
    save("reject", "ignorable-no-list", edit(index, 10, b"\1"), "header")


def make_rejects(m):
    base = ("--seed", 1, "--block", 64, "--job", 3, "--round", 8)
    frames, total = m.job(3, lambda w: m.normal(200), base)
    index = frames[1]
    m.run("compress", "0.npy", "--codec", "thc", "--block", "64", "--checksum", "-o", "crc.gw")
    crc = m.read("crc.gw")
    for size in (0, 3, 31, 32, 95, 96, len(index) - 1):
        save("reject", f"short-{size}", index[:size], "short")
    save("reject", "trailing", index + b"\0", "trailing")
    save("reject", "trailing-16", index + bytes(16), "trailing")
    fields = [
        ("magic", 0, b"GWf\x1a", "magic"),
        ("magic-swapped", 0, b"\x1afWg", "magic"),
        ("version", 4, b"\x11", "version"),
        ("version-contradicts", 4, b"\1", "header"),
        ("codec", 5, b"\3", "unsupported"),
        ("dtype-0", 6, b"\0", "unsupported"),
        ("dtype-4", 6, b"\4", "unsupported"),
        ("block-5", 7, b"\5", "header"),
        ("block-14", 7, b"\x0e", "header"),
        ("flag-32", 8, b"\x22", "unsupported"),
        ("flag-top", 9, b"\x80", "unsupported"),
        ("extension-none", 11, b"\0", "header"),
        ("extension-short", 11, b"\7", "header"),
        ("extension-after-end", 11, b"\xff", "header"),
        ("block-sets-without-sum", 8, b"\x12", "header"),
        ("block-count-low", 12, b"\3", "header"),
        ("block-count-high", 12, b"\5", "header"),
        ("block-count-huge", 12, b"\xff\xff\xff\xff", "header"),
        ("count-huge", 16, b"\xff" * 8, "header"),
        ("count-zero", 16, bytes(8), "header"),
        ("frame-size", 24, b"\1", "header"),
        ("frame-size-huge", 24, b"\xff" * 8, "header"),
        ("bits-0", 32, b"\0", "header"),
        ("bits-5", 32, b"\5", "header"),
        ("table-bits", 32, b"\3", "table"),
        ("granularity", 33, b"\x1e", "table"),
        ("overflow-g", 33, b"\xff", "overflow"),
        ("lane-0", 34, b"\0", "header"),
        ("lane-24", 34, b"\x18", "header"),
        ("reserved-35", 35, b"\1", "header"),
        ("workers-0", 36, b"\0\0", "header"),
        ("overflow-n", 36, b"\x09\0", "overflow"),
        ("rank", 38, b"\3\0", "dup"),
        ("threshold-nan", 40, b"\0\0\xc0\x7f", "header"),
        ("threshold-negative", 43, b"\xc0", "header"),
        ("threshold-5", 40, b"\0\0\xa0\x40", "header"),
        ("first-block", 44, b"\xfd\xff\xff\xff", "header"),
        ("table-first", 64, b"\1", "table"),
        ("table-equal", 65, index[66:67], "table"),
        ("table-last", 79, b"\x1e", "table"),
        ("reserved-80", 80, b"\1", "header"),
        ("reserved-95", 95, b"\1", "header"),
    ]
    for name, at, new, status in fields:
        save("reject", name, edit(index, at, new), status)
    save("reject", "sum-rank", edit(total, 38, b"\1"), "header")
    save("reject", "checksum", edit(crc, len(crc) - 20, bytes([crc[-20] ^ 1])), "checksum")
    save("reject", "checksum-itself", edit(crc, len(crc) - 1, bytes([crc[-1] ^ 1])), "checksum")
    make_ignorable_rejects(index)
    norms = [
        ("nan", 0x7FC00000),
        ("inf", 0x7F800000),
        ("negative", 0xBF800000),
        ("minus-zero", 0x80000000),
        ("subnormal", 0x007FFFFF),
        ("zero", 0),
    ]
    for name, bits in norms:
        save("reject", f"norm-{name}", edit(index, 96 + 8, struct.pack("<I", bits)), "corrupt", 2)
        save("reject", f"sum-norm-{name}", edit(total, 96 + 4, struct.pack("<I", bits)), "corrupt", 1)
    payload = 96 + 16 + 8
    save("reject", "lane-above-kg", edit(total, payload + 64 * 3 + 5, b"\x5e"), "corrupt", 3)
    save("reject", "lane-twice", edit(edit(total, payload + 200, b"\xff"), payload + 70, b"\xff"), "corrupt", 1)
    save("reject", "set-beyond-n", edit(total, 112, b"\x0f"), "dup", 0)
    save("reject", "set-padding", edit(total, 119, b"\x80"), "dup", 0)
    save("reject", "k0-with-lanes", edit(total, 112, b"\0"), "corrupt", 0)
    _, plain = m.job(2, lambda w: m.normal(130), base + ("--plain",))
    save("reject", "plain-crossed", edit(plain, 96, struct.pack("<I", 0x00800001)), "corrupt", 0)
    # The maximum is 2^-126, minus the minimum -2^-126 (1 + 2^-23): the width is a subnormal below zero. No lanes.
    empty = edit(plain, 96 + 24, bytes(len(plain) - 96 - 24))
    least = struct.pack("<I", 0x80800000)
    save("reject", "plain-crossed-subnormal", edit(empty, 96, least + struct.pack("<I", 0x7F7FFFFE)), "corrupt", 0)
    save("decode", "plain-least-missing-sum", edit(empty, 96, least + struct.pack("<I", 0x7F7FFFFF)), "ok")
    frames, _ = m.job(2, lambda w: [0.0] * 130, base + ("--plain",))
    save(
        "reject",
        "plain-crossed-subnormal-index",
        edit(frames[0], 96 + 8, least + struct.pack("<I", 0x7F7FFFFE)),
        "corrupt",
        1,
    )
    _, empty = m.job(2, lambda w: [], base)
    save("reject", "empty-set-beyond-n", edit(empty, 96, b"\x07"), "dup")
    save("reject", "empty-set-padding", edit(empty, 103, b"\x80"), "dup")
    save("reject", "padding-empty", edit(empty, 104, b"\1"), "header")
    _, total = m.job(3, lambda w: m.normal(200), base)
    save("reject", "padding", edit(total, len(total) - 1, b"\1"), "header")
    save("reject", "not-padded", edit(total, 24, struct.pack("<Q", len(total) - 8))[:-8], "header")
    save("reject", "padded-twice", edit(total, 24, struct.pack("<Q", len(total) + 16)) + bytes(16), "header")
    m.run("compress", "0.npy", "--codec", "thc", "--block", "64", "--checksum", "-o", "crc.gw")
    crc = bytearray(m.read("crc.gw"))
    crc[-5] = 1
    crc[-4:] = struct.pack("<I", thc_decode.crc32c(crc[:-4]))
    save("reject", "padding-before-checksum", bytes(crc), "header")
    save("reject", "plain-mark", edit(plain, 96 + 8, b"\xff" * 8), "corrupt", 1)
    save("reject", "plain-minus-zero", edit(plain, 96 + 16, struct.pack("<I", 0x7FFFFFFF)), "corrupt", 2)


def main():
    with tempfile.TemporaryDirectory() as folder:
        m = Maker(os.path.abspath(sys.argv[1]), folder)
        make_valid(m)
        make_rejects(m)
    with open(os.path.join(VECTORS.name, "index.tsv"), "w", encoding="ascii") as f:
        f.write("folder\tname\tstatus\tblock\n")
        for row in ROWS:
            f.write("\t".join(row) + "\n")
    golden_archive.pack(VECTORS.name, "thc")
    print(len(ROWS), "vectors")


if __name__ == "__main__":
    main()
