"""THC: homomorphic compression. Whoever aggregates adds small integers and never decodes (thc.h).

One round of one tensor, over any all-reduce of integers:

    patterns = codec.norms(values)                      # then all-reduce: MAX of uint32
    lanes = codec.encode_lanes(values, patterns)        # then all-reduce: SUM of lanes.dtype
    mean = codec.decode_reduced(lanes, patterns, len)

or as frames, which carry everything that is needed to decode them: encode_frame(), sum_begin(), sum_add(),
decode_frame().
"""

from __future__ import annotations

from ctypes import byref, c_uint64
from dataclasses import dataclass, replace

import numpy as np

from gradwire import _constants as c
from gradwire import _structs as s
from gradwire import arrays
from gradwire._fill import choose, chosen, fill, instance, integer, numbers_of
from gradwire._library import check, lib
from gradwire.arrays import ArrayLike
from gradwire.frames import DTYPES, LEN_MAX, _fields_of, name_in
from gradwire.workspace import Output, scratch

_TRANSFORMS = numbers_of("GW_THC_", "plain", "rotated")
_NONFINITES = numbers_of("GW_THC_NONFINITE_", "error", "propagate", "zero")
_ENUMS = {"dtype": DTYPES, "transform": _TRANSFORMS, "nonfinite": _NONFINITES}
_MODES = numbers_of("GW_THC_", "sum", "mean")
_LANES: dict[int, np.dtype] = {8: np.dtype(np.uint8), 16: np.dtype("<u2"), 32: np.dtype("<u4")}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a job, equal on all workers and aggregators (gw_thc_options of thc.h). Made by options().

    table: grid points of the indices, ascending from 0 to the granularity: 2, 4, 8 or 16 of them. threshold_bits: t
    as fp32 bit pattern, 0 for transform "plain". worker_max: 1..65535. dtype: of inputs and outputs. nonfinite:
    "error", "propagate" or "zero". block_log2: 6..13. lane_bits: 8, 16 or 32. error_feedback: calls get an error
    array.
    """

    table: tuple[int, ...]
    threshold_bits: int
    worker_max: int
    lane_bits: int
    dtype: str = "fp32"
    seed: int = 0
    job: int = 0
    transform: str = "rotated"
    nonfinite: str = "error"
    block_log2: int = 10
    error_feedback: bool = False
    checksum: bool = False
    backends: int = c.GW_BACKEND_ALL

    @property
    def bits(self) -> int:
        """Bits of an index."""
        return len(self.table).bit_length() - 1

    @property
    def granularity(self) -> int:
        """What one worker adds to a lane at most."""
        return self.table[-1]

    def struct(self) -> s.gw_thc_options:
        """The C struct."""
        if not isinstance(self.table, (tuple, list)) or len(self.table) not in (2, 4, 8, 16):
            raise ValueError(f"a table has 2, 4, 8 or 16 grid points, ascending from 0, not {self.table!r}")
        points = [integer(point, "a grid point of the table", 0, 255) for point in self.table]
        table = s.gw_thc_table(self.bits, points[-1], tuple(points))
        return fill(s.gw_thc_options, **chosen(_ENUMS, {**vars(self), "table": table}))

    @classmethod
    def from_struct(cls, struct: s.gw_thc_options) -> Options:
        """The C struct as an object."""
        table = tuple(struct.table.value[: 1 << struct.table.bits])
        return cls(**{**_fields_of(cls, struct, _ENUMS, ("error_feedback", "checksum")), "table": table})


@dataclass(frozen=True)
class Design:
    """Recommended options and what to expect of them.

    error_one: squared error of one worker's contribution over its squared norm; error_mean: that of the mean of
    worker_max equal vectors; up_bits, down_bits: per element from and to a worker.
    """

    options: Options
    p: float
    error_one: float
    error_mean: float
    up_bits: float
    down_bits: float


def design(bits: int, worker_max: int, *, lane_bits: int = 0, error_feedback: bool = False, **changes) -> Design:
    """Recommended options for indices of 1 to 4 bits and up to worker_max workers, with predictions.

    lane_bits: 8, 16 or 32; 0: the narrowest that hold the sum. changes: fields of Options to differ from the
    recommended ones (dtype, seed, job, ...), which predictions do not take into account. Raises Error "option" or
    "overflow".
    """
    struct = s.gw_thc_design()
    goal = fill(
        s.gw_thc_goal, bits=bits, worker_max=worker_max, lane_bits=lane_bits, error_feedback=int(error_feedback)
    )
    check(lib.gw_thc_design_make(struct, goal, scratch(c.GW_THC_TABLE_WORKSPACE_SIZE)))
    recommended = replace(Options.from_struct(struct.options), **changes)
    return Design(recommended, struct.p, struct.error_one, struct.error_mean, struct.up_bits, struct.down_bits)


def options(bits: int, worker_max: int, **changes) -> Options:
    """The options of design()."""
    return design(bits, worker_max, **changes).options


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which blocks of a tensor a call works on, and who calls: block_first, block_count: None: to the end. len:
    elements of the whole tensor where the call gets a part of it, else None. round: modulo 2^32. rank: of the
    worker."""

    block_first: int = 0
    block_count: int | None = None
    len: int | None = None
    round: int = 0
    rank: int = 0


@dataclass(frozen=True)
class FrameInfo:
    """Header of a frame. is_sum: it has lanes and contributor sets, else one worker's indices. len: elements in it."""

    options: Options
    is_sum: bool
    round: int
    rank: int
    block_first: int
    block_count: int
    len: int
    frame_size: int


class Codec:
    """Encodes and decodes with fixed options. Any number of threads may share it; each has its own workspace.

    Values are arrays of options.dtype, of any shape, in C order (gradwire.arrays); those of a part of a tensor are the
    elements of its blocks. error: fp32 error memory of the same elements, given iff options.error_feedback; encode
    calls replace it. Patterns are uint32, patterns_per_block a block. Raises Error; `block` is counted from the
    tensor's start.
    """

    def __init__(self, options: Options) -> None:
        self.options = instance(options, Options, "options")
        self.handle = s.gw_thc()
        check(lib.gw_thc_init(self.handle, options.struct()))
        self.patterns_per_block: int = lib.gw_thc_patterns_per_block(self.handle)
        self.options_hash: int = lib.gw_thc_options_hash(self.handle)
        self._workspace_size = lib.gw_thc_workspace_size(self.handle)

    def block_count(self, len: int) -> int:
        """Blocks of a tensor of len elements."""
        return lib.gw_thc_block_count(self.handle, integer(len, "len"))

    def reduced_size(self, len: int) -> int:
        """Bytes of both all-reduces of a tensor of len elements: its patterns, and what expand() returns."""
        blocks = self.block_count(len)
        return lib.gw_thc_reduced_size(self.handle, len, 0, blocks) + blocks * self.patterns_per_block * 4

    def norms(self, values: ArrayLike, part: Part | None = None, *, error: ArrayLike | None = None) -> np.ndarray:
        """Phase one: the patterns of the blocks. Their integer maximum over the workers is what encode needs.

        Raises Error "nonfinite" with the block, by options.nonfinite.
        """
        call = _Call(self, values, part, error)
        patterns = np.empty(call.range.block_count * self.patterns_per_block, np.uint32)
        bad = c_uint64()
        status = lib.gw_thc_norms(
            self.handle, call.range, call.struct, patterns.ctypes.data, byref(bad), self._workspace()
        )
        check(status, block=bad.value)
        return patterns

    def encode(
        self, values: ArrayLike, patterns: ArrayLike, part: Part | None = None, *, error: ArrayLike | None = None
    ) -> np.ndarray:
        """Phase two: packed indices, uint8. patterns: maxima over all workers. On failure the error memory is
        untouched."""
        call = _Call(self, values, part, error, patterns)
        blocks = (call.range.len, call.range.block_first, call.range.block_count)
        return self._encode(lib.gw_thc_encode, call, lib.gw_thc_indices_size(self.handle, *blocks))

    def expand(self, indices: ArrayLike, len: int, part: Part | None = None) -> np.ndarray:
        """Packed indices of a tensor of len elements as lanes and counts, of uint8, uint16 or uint32: element-wise
        sums of such arrays are what decode_reduced() takes."""
        indices = arrays.read(indices, np.uint8, "indices")
        blocks = self._range(len, part)
        made = Output(lib.gw_thc_reduced_size(self.handle, blocks.len, blocks.block_first, blocks.block_count))
        packed = s.gw_thc_indices(indices.ctypes.data, indices.size)
        check(lib.gw_thc_expand(self.handle, blocks, packed, made.buffer))
        return made.area.view(_LANES[self.options.lane_bits])

    def encode_lanes(
        self, values: ArrayLike, patterns: ArrayLike, part: Part | None = None, *, error: ArrayLike | None = None
    ) -> np.ndarray:
        """encode() and expand() in one: what an all-reduce by SUM adds up."""
        count = arrays.look(values)[0].size
        return self.expand(
            self.encode(values, patterns, part, error=error), part.len if part and part.len else count, part
        )

    def decode_reduced(
        self,
        lanes: ArrayLike,
        patterns: ArrayLike,
        len: int,
        part: Part | None = None,
        *,
        mode: str = "mean",
        out: ArrayLike | None = None,
    ) -> ArrayLike:
        """Decodes the sum of expand() arrays: the mean over the contributors of each block, or with mode "sum" the sum.

        len: elements of the tensor. out: array to fill, which is returned. A block without a contributor decodes to
        +0. Raises Error "corrupt" or "overflow" with the lowest bad block, whose values are zeros; the others are
        decoded.
        """
        blocks = self._range(len, part)
        lanes = arrays.read(lanes, _LANES[self.options.lane_bits], "lanes")
        patterns = arrays.read(patterns, np.uint32, "patterns")
        self._check_patterns(patterns, blocks)
        count = self._elements(blocks)
        out = arrays.empty(self.options.dtype, count) if out is None else out
        values = arrays._place_of(out, self.options.dtype, count, "there are", lanes, patterns)
        target = s.gw_thc_target(values=values.ctypes.data, capacity=values.size)
        total = s.gw_thc_sum(data=lanes.ctypes.data, size=lanes.nbytes, patterns=patterns.ctypes.data)
        status = lib.gw_thc_decode_reduced(
            self.handle, blocks, total, choose(_MODES, mode, "mode"), byref(target), self._workspace()
        )
        check(status, block=target.bad_block)
        return out

    def encode_frame(
        self, values: ArrayLike, patterns: ArrayLike, part: Part | None = None, *, error: ArrayLike | None = None
    ) -> bytes:
        """One worker's contribution as a frame: header, patterns and indices."""
        call = _Call(self, values, part, error, patterns)
        bound = lib.gw_thc_frame_bound(self.handle, self._elements(call.range))
        return self._encode(lib.gw_thc_frame_encode, call, bound).tobytes()

    def _encode(self, function, call: _Call, capacity: int) -> np.ndarray:
        if call.patterns is None:
            raise TypeError("patterns=None: encoding needs the patterns of norms(), their maxima over the workers")
        self._check_patterns(call.patterns, call.range)
        made, bad = Output(capacity), c_uint64()
        status = function(self.handle, call.range, call.struct, made.buffer, byref(bad), self._workspace())
        check(status, block=bad.value)
        return made.area[: made.buffer.size]

    def _workspace(self):
        return scratch(self._workspace_size)

    def _range(self, len: int, part: Part | None) -> s.gw_thc_range:
        part = Part() if part is None else instance(part, Part, "part")
        count = part.block_count
        if count is None:
            count = max(0, self.block_count(len) - integer(part.block_first, "block_first"))
        return fill(
            s.gw_thc_range, len=len, block_first=part.block_first, block_count=count, round=part.round, rank=part.rank
        )

    def _elements(self, blocks: s.gw_thc_range) -> int:
        """Elements of the tensor in the blocks of a range."""
        size = 1 << self.options.block_log2
        first, end = blocks.block_first * size, (blocks.block_first + blocks.block_count) * size
        return max(0, min(end, blocks.len) - first)

    def _check_patterns(self, patterns: np.ndarray, blocks: s.gw_thc_range) -> None:
        if patterns.size != blocks.block_count * self.patterns_per_block:
            raise ValueError(f"{patterns.size} patterns for {blocks.block_count} blocks")


class _Call:
    """Range and source of one call, with the arrays that the structs borrow from."""

    def __init__(
        self,
        codec: Codec,
        values: ArrayLike,
        part: Part | None,
        error: ArrayLike | None,
        patterns: ArrayLike | None = None,
    ) -> None:
        self.values = arrays.source(values, codec.options.dtype)
        self.error = None if error is None else arrays.target(error, "fp32", "error")
        self.patterns = None if patterns is None else arrays.read(patterns, np.uint32, "patterns")
        part = None if part is None else instance(part, Part, "part")
        self.range = codec._range(part.len if part and part.len is not None else self.values.size, part)
        if self.values.size != codec._elements(self.range):
            raise ValueError(f"{self.values.size} values for a part of {codec._elements(self.range)} elements")
        if self.error is not None and self.error.size != self.values.size:
            raise ValueError(f"error memory of {self.error.size} elements for {self.values.size} values")
        if self.error is not None:
            arrays.apart(self.error, self.values, self.patterns)
        self.struct = s.gw_thc_source(
            values=self.values.ctypes.data, error=arrays.address(self.error), patterns=arrays.address(self.patterns)
        )


def _frame(data: np.ndarray, len_max: int) -> s.gw_thc_frame:
    return s.gw_thc_frame(data.ctypes.data, data.size, integer(len_max, "len_max"), c.GW_BACKEND_ALL)


def inspect(frame: ArrayLike, *, len_max: int = LEN_MAX) -> FrameInfo:
    """Header of a frame whose header and content were checked. Raises Error; block is relative to the frame."""
    data = arrays.frame(frame)
    info, bad = s.gw_thc_frame_info(), c_uint64()
    status = lib.gw_thc_frame_check(_frame(data, len_max), byref(info), byref(bad))
    check(status, block=bad.value)
    own = {"options": Options.from_struct(info.options), "is_sum": bool(info.flags & c.GW_THC_FLAG_SUM)}
    return FrameInfo(**{**_fields_of(FrameInfo, info, {}), **own})


def sum_begin(like: ArrayLike, *, checksum: bool = False, block_sets: bool = False) -> bytearray:
    """An empty sum that accepts frames like this one (of any worker). checksum: it ends with a CRC32C. block_sets:
    one set of contributors per block, so that frames of sums may lack blocks."""
    info = inspect(like)
    flags = c.GW_THC_FLAG_CHECKSUM if checksum else 0
    flags |= c.GW_THC_FLAG_BLOCK_SETS if block_sets else 0
    data = arrays.frame(like)
    codec = Codec(replace(info.options, error_feedback=False))
    total = bytearray(lib.gw_thc_frame_sum_bound(codec.handle, info.len, flags))
    check(lib.gw_thc_frame_sum_init(_frame(data, LEN_MAX), flags, Output(0, total).buffer))
    return total


def sum_add(total: bytearray, frame: ArrayLike) -> None:
    """total += frame, of a worker or a sum. total: of sum_begin(); trusted, as the frame is not. Raises Error ("round",
    "mismatch", "dup", ...), total is then unchanged."""
    data = arrays.frame(frame)
    area = arrays.write(total, np.uint8, "a sum")
    dst, bad = s.gw_buffer(area.ctypes.data, area.size, area.size), c_uint64()
    arrays.apart(area, data)
    received = _frame(data, LEN_MAX)
    status = lib.gw_thc_frame_sum_add(byref(dst), received, byref(bad))
    check(status, block=bad.value)


def decode_frame(
    frame: ArrayLike, *, mode: str = "mean", out: ArrayLike | None = None, len_max: int = LEN_MAX
) -> ArrayLike:
    """Decodes a frame of a worker or a sum. Options come from the frame. out: array of the frame's dtype to fill,
    which is returned. Raises Error; after "corrupt" and "dup" bad blocks are zeros, after "checksum" everything
    is."""
    data = arrays.frame(frame)
    info = s.gw_thc_frame_info()
    check(lib.gw_thc_frame_peek(data.ctypes.data, data.size, byref(info)))
    dtype = name_in(DTYPES, info.options.dtype)
    if out is None:
        inspect(data, len_max=len_max)  # before memory is taken because a header says so
        out = arrays.empty(dtype, info.len)
    values = arrays._place_of(out, dtype, info.len, "there are", data)
    target = s.gw_thc_target(values=values.ctypes.data, capacity=values.size)
    status = lib.gw_thc_frame_decode(
        _frame(data, len_max), choose(_MODES, mode, "mode"), byref(target), scratch(c.GW_THC_WORKSPACE_SIZE_MAX)
    )
    check(status, block=target.bad_block)
    return out
