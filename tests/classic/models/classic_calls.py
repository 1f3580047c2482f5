"""The calls of include/gradwire/classic.h, through the program classic_calls."""

import struct
import subprocess

import numpy as np

SCHEMES = ("fp16", "bf16", "topk", "dgc", "randk", "signsgd", "efsignsgd", "signum", "onebit", "qsgd", "terngrad")
FIELDS = (
    "scheme dtype seed backends checksum error_feedback momentum nesterov momentum_mask clip unbiased values coding "
    "norm level_max block_len"
).split()
FP32, BF16, FP16 = 1, 2, 3
ALL = 0xFFFFFFFF
# numpy has no bf16: its bits as uint16.
DTYPES = {FP32: np.float32, BF16: np.uint16, FP16: np.float16}
HEADER_SIZE = 80


def float_bits(x):
    return int(np.float32(x).view(np.uint32))


class Frame:
    """The fields of docs/format-classic.md section 1."""

    def __init__(self, data):
        self.data = data
        self.dtype = data[6]
        self.flags = struct.unpack_from("<H", data, 8)[0]
        self.scheme, self.values, self.coding, self.norm = data[12:16]
        self.len, self.size, self.seed, self.element_first, self.keep_len = struct.unpack_from("<5Q", data, 16)
        self.round, self.rank, self.block_len, self.level_max = struct.unpack_from("<4I", data, 56)
        (self.payload_size,) = struct.unpack_from("<Q", data, 72)
        self.payload = data[HEADER_SIZE : HEADER_SIZE + self.payload_size]


class Calls:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()

    def request(self, words, *data):
        self.process.stdin.write(struct.pack("<24Q", *words, *[0] * (24 - len(words))))
        for part in data:
            self.process.stdin.write(part)
        self.process.stdin.flush()
        return struct.unpack("<3Q", self.read(24))

    def read(self, size):
        data = self.process.stdout.read(size)
        if len(data) != size:
            raise RuntimeError("classic_calls has ended")
        return data

    def options(self, scheme, **changes):
        """The usual options of a scheme with changes, as a dictionary; momentum and clip are numbers."""
        number = SCHEMES.index(scheme) + 1
        status, size, _ = self.request([5, number])
        if status != 0:
            raise RuntimeError(f"options of {scheme}: status {status}")
        options = dict(zip(FIELDS, struct.unpack("<16Q", self.read(size))))
        for name in ("momentum", "clip"):
            options[name] = np.uint32(options[name]).view(np.float32)
        for name, value in changes.items():
            if name not in options:
                raise KeyError(name)
            options[name] = value
        return options

    def encode(self, options, values, residual=None, momentum=None, norms=None, **step):
        """(frame, residual, momentum); a call that fails raises RuntimeError with its status."""
        n = len(values)
        zeros = np.zeros(n, np.float32)
        residual = zeros if residual is None else residual
        momentum = zeros if momentum is None else momentum
        words = [1]
        for name in FIELDS:
            words.append(float_bits(options[name]) if name in ("momentum", "clip") else int(options[name]))
        words += [n, step.get("element_first", 0), step.get("keep_len", 0), step.get("round", 0), step.get("rank", 0)]
        words.append(norms is not None)
        parts = [values, residual, momentum] + ([] if norms is None else [norms])
        status, size, _ = self.request(words, *(np.ascontiguousarray(part).tobytes() for part in parts))
        frame = self.read(size)
        arrays = [np.frombuffer(self.read(4 * n), np.float32) for _ in range(2)]
        if status != 0:
            raise RuntimeError(f"encode: status {status}")
        return frame, *arrays

    def decode(self, frame, scale=0.0, backends=ALL):
        head = Frame(frame)
        dtype = DTYPES[head.dtype]
        words = [2, len(frame), backends, float_bits(scale), np.dtype(dtype).itemsize, head.len]
        status, size, _ = self.request(words, frame)
        values = np.frombuffer(self.read(size), dtype)
        if status != 0:
            raise RuntimeError(f"decode: status {status}")
        return values

    def decode_add(self, frame, total, scale=0.0, backends=ALL):
        words = [3, len(frame), backends, float_bits(scale), 4, len(total)]
        status, size, _ = self.request(words, frame, total.astype(np.float32).tobytes())
        values = np.frombuffer(self.read(size), np.float32)
        if status != 0:
            raise RuntimeError(f"decode_add: status {status}")
        return values

    def sum(self, frames, scale=0.0, votes=False):
        """(decoded sum, frame of the vote)."""
        words = [4, len(frames), len(frames[0]), float_bits(scale), int(votes), Frame(frames[0]).len]
        status, size, vote = self.request(words, *frames)
        values, frame = np.frombuffer(self.read(size), np.float32), self.read(vote)
        if status != 0:
            raise RuntimeError(f"sum: status {status}")
        return values, frame
