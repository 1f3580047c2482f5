"""GCOMP: near-lossless compression of gradients (gcomp.h)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from ctypes import POINTER, byref, c_uint64, cast
from dataclasses import dataclass

import numpy as np

from gradwire import _constants as c
from gradwire import _structs as s
from gradwire import arrays, frames
from gradwire._fill import assign, choose, chosen, fill, instance, integer, numbers_of, real, scale_of
from gradwire._library import check, check_options, lib
from gradwire.arrays import ArrayLike
from gradwire.maps import Map, bytes_of, pointer_to
from gradwire.workspace import Output, scratch

_ENUMS = {
    "quantum_mode": frames.QUANTUM_MODES,
    "rounding": numbers_of("GW_GCOMP_", "truncate", "nearest", "stochastic"),
    "preset": numbers_of("GW_GCOMP_", "fast", "small"),
}
_RANGES = {"tolerance_bits": (1, 23), "block_log2": (6, 14), "target_nmse": (0, 1), "chunk_log2": (10, 15)}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a codec. None: the default of the library, which depends on the others (gw_gcomp_options of gcomp.h).

    dtype: "fp32", "bf16" or "fp16". quantum_mode: "explicit" (any receiver decodes), "derived" (the receiver needs an
    equal map) or "carried" (a quantum per block, any receiver decodes). rounding: "truncate", "nearest" or
    "stochastic". preset: "fast" or "small". tolerance_bits: 1..23, one encode moves no parameter by more than
    2^-tolerance_bits of it. dead_zone: a value below its quantum becomes 0 or one quantum. block_log2, target_nmse:
    carried quanta. chunk_log2: 10..15. strict: keep -0, subnormals and NaN payloads. checksum: CRC32C per chunk.
    backends: mask of permitted backends. len_max: frames of more values are refused.
    """

    dtype: str = "fp32"
    quantum_mode: str = "explicit"
    rounding: str = "nearest"
    preset: str = "fast"
    step: int | None = None
    cap: int | None = None
    constant_drop: int | None = None
    tolerance_bits: int | None = None
    dead_zone: bool = False
    block_log2: int | None = None
    target_nmse: float | None = None
    chunk_log2: int | None = None
    strict: bool = False
    checksum: bool = False
    backends: int | None = None
    len_max: int | None = None

    def struct(self) -> s.gw_gcomp_options:
        """The C struct with all defaults filled in."""
        options = s.gw_gcomp_options()
        lib.gw_gcomp_options_init(options, choose(frames.DTYPES, self.dtype, "dtype"))
        apart = {"dtype", "constant_drop", "target_nmse"}
        given = {
            name: value
            for name, value in vars(self).items()
            if name in _ENUMS or name not in apart and value is not None
        }
        assign(options, **chosen(_ENUMS, given))
        options.quantum = self._quantum()
        return options

    def _quantum(self) -> s.gw_gcomp_quantum:
        """What chooses the quanta of values that come without a map."""
        carried = self.quantum_mode == "carried"
        if self.constant_drop and carried:
            raise ValueError(f"constant_drop={self.constant_drop} is for explicit and derived quanta, not for carried")
        if self.target_nmse and not carried:
            raise ValueError(f"target_nmse={self.target_nmse} is for carried quanta, not for {self.quantum_mode}")
        if self.constant_drop is not None and not carried:
            drop = integer(self.constant_drop, "constant_drop", 0, (1 << 32) - 1)
            return fill(s.gw_gcomp_quantum, kind=c.GW_GCOMP_QUANTUM_DROP, drop=drop)
        if self.target_nmse:
            return fill(s.gw_gcomp_quantum, kind=c.GW_GCOMP_QUANTUM_NMSE, nmse=real(self.target_nmse, "target_nmse"))
        return s.gw_gcomp_quantum()


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Consecutive values of a source with a random stream of their own: a parameter in a bucket."""

    len: int
    seed: int
    first_element: int = 0


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Where the random numbers of stochastic rounding come from: equal streams and values give equal bytes.

    seed: key, any 64 bits. first_element: absolute index in the tensor of the first value. step_index: training step.
    rank, hop: 0..65535. segments: seeds and elements by segment, whose lengths add up to the number of values; seed and
    first_element are then not used.
    """

    seed: int = 0
    first_element: int = 0
    step_index: int = 0
    rank: int = 0
    hop: int = 0
    segments: tuple[Segment, ...] = ()


class Source:
    """What one call of encode reads, as a C struct, with what the struct borrows from."""

    def __init__(
        self,
        codec: Codec,
        values: ArrayLike,
        map: Map | None = None,
        stream: Stream | None = None,
        quanta: ArrayLike | None = None,
    ) -> None:
        stream = Stream() if stream is None else instance(stream, Stream, "stream")
        map = None if map is None else instance(map, Map, "map")
        self.values = arrays.source(values, codec.dtype)
        self.quanta = None if quanta is None else arrays.read(quanta, np.uint8, "quanta")
        blocks = -(-self.values.size >> codec.block_log2)
        if self.quanta is not None and self.quanta.size != blocks:
            raise ValueError(f"quanta has {self.quanta.size} bytes for {blocks} blocks")
        if self.quanta is not None and map is not None:
            raise ValueError("map and quanta are given: one of them chooses the quanta")
        if map is not None and len(map) != self.values.size:
            raise ValueError(f"the map has {len(map)} bytes for {self.values.size} values")
        self.map = map
        self.segments = (s.gw_gcomp_segment * len(stream.segments))(
            *(fill(s.gw_gcomp_segment, **vars(segment)) for segment in stream.segments)
        )
        self.struct = fill(
            s.gw_gcomp_source,
            values=self.values.ctypes.data,
            len=self.values.size,
            quantum=self._quantum(codec),
            seed=stream.seed,
            first_element=stream.first_element,
            step_index=stream.step_index,
            rank=stream.rank,
            hop=stream.hop,
            segments=cast(self.segments, POINTER(s.gw_gcomp_segment)),
            segment_count=len(self.segments),
        )

    def _quantum(self, codec: Codec) -> s.gw_gcomp_quantum:
        if self.map is not None:
            pointer = pointer_to(self.map, codec.chunk_log2 if codec.options.quantum_mode == "derived" else None)
            return s.gw_gcomp_quantum(kind=c.GW_GCOMP_QUANTUM_MAP, map=pointer)
        if self.quanta is not None:
            return s.gw_gcomp_quantum(kind=c.GW_GCOMP_QUANTUM_BLOCKS, blocks=arrays.address(self.quanta))
        return s.gw_gcomp_quantum()


class Frame:
    """A received frame as a C struct, with what the struct borrows from."""

    def __init__(self, data: ArrayLike, map: Map | None = None, len_max: int = frames.LEN_MAX) -> None:
        self.data = arrays.frame(data)
        self.info = s.gw_gcomp_frame_info()
        # A failure leaves zeros: the call that gets the frame finds it too, or something that comes before it.
        lib.gw_gcomp_frame_peek(self.data.ctypes.data, self.data.size, len_max, self.info)
        self.map = map
        map = None if map is None else instance(map, Map, "map")
        chunk_log2 = self.info.chunk_log2 if self.info.quantum_mode == c.GW_GCOMP_DERIVED else None
        self.struct = s.gw_gcomp_frame(data=self.data.ctypes.data, size=self.data.size, map=pointer_to(map, chunk_log2))


class Codec:
    """A codec with fixed options. Encode and decode may run in any number of threads at once; each has its own
    workspace.

    Takes the fields of Options as keywords, or an Options object: `Codec(dtype="bf16", quantum_mode="derived")`. Raises
    Error "option" for options that do not go together.

    Values are NumPy arrays, DLPack tensors in CPU memory or buffers, of any shape, in C order (gradwire.arrays).
    While the C code runs the interpreter lock is released; arrays must not change meanwhile.
    """

    def __init__(self, options: Options | None = None, **fields) -> None:
        self.options = Options(**fields) if options is None else instance(options, Options, "options")
        if options is not None and fields:
            raise TypeError("either an Options object or keywords")
        struct = self.options.struct()
        self.handle = s.gw_gcomp()
        check_options(lib.gw_gcomp_init(self.handle, struct), vars(self.options), _RANGES)
        self.chunk_log2 = struct.chunk_log2
        self.block_log2 = struct.block_log2
        self.len_max = struct.len_max
        self.tolerance_bits = struct.tolerance_bits
        self._workspace_size = lib.gw_gcomp_workspace_size(self.handle)

    @property
    def dtype(self) -> str:
        """ "fp32", "bf16" or "fp16"."""
        return self.options.dtype

    def bound(self, len: int) -> int:
        """Bytes that suffice for a frame of len values; 0 if no frame can have so many."""
        return lib.gw_gcomp_frame_bound(self.handle, integer(len, "len"))

    def workspace(self):
        """Scratch memory of this thread for one call of the library."""
        return scratch(self._workspace_size)

    def encode(
        self,
        values: ArrayLike,
        *,
        map: Map | None = None,
        stream: Stream | None = None,
        quanta: ArrayLike | None = None,
        out: ArrayLike | None = None,
    ) -> bytes | memoryview:
        """Encodes values as one frame.

        map: how much of each value may be dropped; None: options.constant_drop, or for carried quanta target_nmse.
        quanta: carried quanta without a map: uint8 exponent field of the quantum of each block of 2^block_log2
        values. out: writable bytes, at least bound(number of values), which must not overlap the values; the result
        is then a memoryview of the part that was written, else bytes.

        Raises Error ("arg", "dst", "limit"); out is then untouched.
        """
        source = Source(self, values, map, stream, quanta)
        made = self._output(source, out)
        check(lib.gw_gcomp_encode(self.handle, source.struct, made.buffer, self.workspace()))
        return made.written()

    def decode(
        self, frame: ArrayLike, *, map: Map | None = None, out: ArrayLike | None = None, scale: float = 1.0
    ) -> ArrayLike:
        """Decodes a frame of the codec's dtype. The codec's other options do not matter (gw_gcomp_decode() of gcomp.h).

        map: of derived frames, equal to that of the sender. out: where the values go, as many as the frame has,
        contiguous and writable, and returned; None: a new one-dimensional array. scale: every value is multiplied by
        it.

        Raises Error. "corrupt" and "checksum" name the lowest bad `chunk`: its values in out are zeros, other chunks
        are decoded. After any other error out is untouched.
        """
        received = Frame(frame, map, self.len_max)
        if out is None:
            self._check(received)  # before memory is taken because a header says so
            out = arrays.empty(self.dtype, received.info.len)
        self._decode(lib.gw_gcomp_decode, received, out, scale)
        return out

    def decode_add(self, frame: ArrayLike, out: ArrayLike, *, map: Map | None = None, scale: float = 1.0) -> ArrayLike:
        """Adds the values of a frame, times scale, to out, and returns out. A bad chunk leaves its values as they were.
        Otherwise as decode()."""
        self._decode(lib.gw_gcomp_decode_add, Frame(frame, map, self.len_max), out, scale)
        return out

    def decode_add_frames(
        self,
        frame_list: Sequence[ArrayLike],
        out: ArrayLike,
        *,
        maps: Sequence[Map | None] | None = None,
        scale: float = 1.0,
    ) -> ArrayLike:
        """Adds several frames to out in one pass: out + frame_list[0] + frame_list[1] ..., each sum rounded.

        Frames have equal numbers of values and chunk_log2, else Error "mismatch". Error.frame is the frame at fault.
        A chunk that is bad in any frame leaves its values as they were.
        """
        maps = maps if maps is not None else [None] * len(frame_list)
        received = [Frame(frame, map, self.len_max) for frame, map in zip(frame_list, maps, strict=True)]
        if not received:
            return out
        target = self._target(received[0], out, scale)
        for frame in received[1:]:
            arrays.apart(target.values, frame.data, bytes_of(frame.map))
        structs = (s.gw_gcomp_frame * len(received))(*(frame.struct for frame in received))
        status = lib.gw_gcomp_decode_add_frames(
            self.handle, structs, len(received), None, byref(target.struct), self.workspace()
        )
        check(status, chunk=target.struct.bad_chunk, frame=target.struct.bad_frame)
        return out

    def decode_add_encode(
        self,
        frame: ArrayLike,
        values: ArrayLike,
        *,
        map: Map | None = None,
        frame_map: Map | None = None,
        stream: Stream | None = None,
        out: ArrayLike | None = None,
    ) -> bytes | memoryview:
        """One hop of a ring: frame + values -> frame, as decode, add and encode one after the other.

        map: of the sum. frame_map: of the frame, if it is derived; None: map. out as in encode(). If a chunk of the
        frame is bad, the contents of out are unspecified and Error.chunk names it.
        """
        received = Frame(frame, frame_map if frame_map is not None else map, self.len_max)
        source = Source(self, values, map, stream)
        made, bad_chunk = self._output(source, out, received.data, bytes_of(received.map)), c_uint64()
        status = lib.gw_gcomp_decode_add_encode(
            self.handle, received.struct, source.struct, made.buffer, byref(bad_chunk), self.workspace()
        )
        check(status, chunk=bad_chunk.value)
        return made.written()

    def check(self, frame: ArrayLike, *, map: Map | None = None) -> frames.Info:
        """Checks everything, the contents of the chunks included, without producing values. Raises Error; else the
        header."""
        received = Frame(frame, map, self.len_max)
        bad_chunk = c_uint64()
        status = lib.gw_gcomp_frame_check(self.handle, received.struct, byref(bad_chunk), self.workspace())
        check(status, chunk=bad_chunk.value)
        return frames.inspect(received.data, len_max=self.len_max)

    def _check(self, received: Frame) -> None:
        check(lib.gw_gcomp_frame_parse(self.handle, received.struct, s.gw_gcomp_frame_info()))

    def _target(self, received: Frame, out: ArrayLike, scale: float) -> Target:
        target = Target(arrays.target(out, self.dtype), scale)
        arrays.apart(target.values, received.data, bytes_of(received.map))
        if target.values.size != received.info.len:
            self._check(received)  # what is wrong with the frame comes first
            raise ValueError(f"out has {target.values.size} values, the frame {received.info.len}")
        return target

    def _decode(self, function, received: Frame, out: ArrayLike, scale: float) -> None:
        target = self._target(received, out, scale)
        status = function(self.handle, received.struct, byref(target.struct), self.workspace())
        check(status, chunk=target.struct.bad_chunk)

    def _output(self, source: Source, out: ArrayLike | None, *others: np.ndarray | None) -> Output:
        """For a frame of these values. others: what else the call reads."""
        inputs = (source.values, source.quanta, bytes_of(source.map))
        return Output(self.bound(source.values.size), out, *inputs, *others)


class Target:
    """Where decoded values go, as a C struct, with the array that it borrows from."""

    def __init__(self, values: np.ndarray, scale: float) -> None:
        self.values = values
        self.struct = s.gw_gcomp_target(values=values.ctypes.data, capacity=values.size, scale=scale_of(scale))


@functools.lru_cache(maxsize=32)
def _codec(options: Options) -> Codec:
    return Codec(options)


def encode(
    values: ArrayLike, *, map: Map | None = None, stream: Stream | None = None, out: ArrayLike | None = None, **options
) -> bytes | memoryview:
    """Codec.encode() by a codec of these options (fields of Options), which is kept. dtype: that of the values."""
    if "dtype" not in options:
        options["dtype"] = arrays.name_of(values)
    return _codec(Options(**options)).encode(values, map=map, stream=stream, out=out)


def decode(
    frame: ArrayLike, *, map: Map | None = None, out: ArrayLike | None = None, scale: float = 1.0, **options
) -> ArrayLike:
    """Codec.decode() by a codec of the frame's dtype. Derived frames need the map, and the tolerance_bits of their
    sender."""
    data = arrays.frame(frame)
    options.setdefault("dtype", frames.dtype_of(data))
    return _codec(Options(**options)).decode(data, map=map, out=out, scale=scale)


def decode_add(frame: ArrayLike, out: ArrayLike, *, map: Map | None = None, scale: float = 1.0, **options) -> ArrayLike:
    """Codec.decode_add() by a codec of the frame's dtype."""
    data = arrays.frame(frame)
    options.setdefault("dtype", frames.dtype_of(data))
    return _codec(Options(**options)).decode_add(data, out, map=map, scale=scale)
