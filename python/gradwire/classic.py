"""The classic compressors: casts, Top-k, DGC, Rand-k, SignSGD and its relatives, OneBit, QSGD, TernGrad (classic.h).

    codec = classic.Codec(classic.options("topk"))
    state = codec.state(gradient.size)                  # residual and momentum, zeros
    step = classic.Step(keep_len=classic.keep_len(gradient.size, 0.01), round=7, rank=3)
    frame = codec.encode(gradient, step, state=state)   # moves the state on by one step
    classic.decode_add(frame, total, scale=0.25)

Frames describe themselves: decoders need neither codec nor state.
"""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass, replace

import numpy as np

from gradwire import _constants as c
from gradwire import _structs as s
from gradwire import arrays
from gradwire._fill import choose, chosen, fill, instance, integer, numbers_of, real, scale_of
from gradwire._library import check, lib
from gradwire.arrays import ArrayLike
from gradwire.frames import DTYPES, _fields_of, name_in
from gradwire.workspace import Output, scratch

_NAMES = "fp16 bf16 topk dgc randk signsgd efsignsgd signum onebit qsgd terngrad"
_SCHEMES = numbers_of("GW_CLASSIC_", *_NAMES.split())
_VALUES = numbers_of("GW_CLASSIC_VALUES_", "fp32", "fp16", "gcomp")
_CODINGS = numbers_of("GW_CLASSIC_CODING_", "packed", "mask", "elias")
_NORMS = numbers_of("GW_CLASSIC_NORM_", "l2", "max")
_ENUMS = {"scheme": _SCHEMES, "dtype": DTYPES, "values": _VALUES, "coding": _CODINGS, "norm": _NORMS}
_FLAGS = ("checksum", "error_feedback", "nesterov", "momentum_mask", "unbiased")

#: Names of all schemes, in the order of their numbers.
SCHEMES = tuple(_SCHEMES)
#: Those of which a part of the values is sent: Step.keep_len says how many.
SPARSE = ("topk", "dgc", "randk")
#: Values that a frame may have at most.
LEN_MAX = 1 << 32
#: Frames in a sum at most.
MEMBERS_MAX = c.GW_CLASSIC_MEMBERS_MAX


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a codec (gw_classic_options of classic.h). Made by options(), which knows each scheme's usual values.

    scheme: one of SCHEMES. dtype: of values, encoded and decoded. seed: of all random bits. error_feedback: what was
    not sent stays in state.residual. momentum: DGC, SIGNUM. nesterov, momentum_mask: DGC. clip: DGC: limit of the L2
    norm; TERNGRAD: in standard deviations; 0: none. unbiased: RANDK. values: of sparse frames, "fp32", "fp16" or
    "gcomp". coding: QSGD, TERNGRAD: "packed", "mask" or "elias". norm: QSGD: "l2" or "max". level_max: QSGD: 1..127.
    block_len: values that share a norm (QSGD, TERNGRAD) or a column (ONEBIT), 0: all.
    """

    scheme: str
    dtype: str = "fp32"
    seed: int = 0
    backends: int = c.GW_BACKEND_ALL
    checksum: bool = False
    error_feedback: bool = False
    momentum: float = 0.0
    nesterov: bool = False
    momentum_mask: bool = False
    clip: float = 0.0
    unbiased: bool = False
    values: str = "fp32"
    coding: str = "packed"
    norm: str = "l2"
    level_max: int = 0
    block_len: int = 0

    def struct(self) -> s.gw_classic_options:
        """The C struct."""
        numbers = chosen(_ENUMS, vars(self))
        return fill(s.gw_classic_options, **numbers | {name: int(getattr(self, name)) for name in _FLAGS})

    @classmethod
    def from_struct(cls, struct: s.gw_classic_options) -> Options:
        """The C struct as an object."""
        return cls(**_fields_of(cls, struct, _ENUMS, _FLAGS))


def options(scheme: str, **changes) -> Options:
    """The usual options of a scheme, with changes to fields of Options.

    Raises ValueError for an unknown scheme, TypeError for an unknown field. Values that the scheme does not take are
    found by Codec(): Error "option".
    """
    struct = s.gw_classic_options()
    check(lib.gw_classic_options_init(struct, choose(_SCHEMES, scheme, "scheme")))
    return replace(Options.from_struct(struct), **changes)


def keep_len(len: int, ratio: float) -> int:
    """Values to send of `len`: ceil(len * ratio), at least 1 and at most len; 0 for len 0 or a ratio that is not in
    (0, 1]."""
    return lib.gw_classic_keep_len(integer(len, "len"), real(ratio, "ratio"))


def warmup_ratio(ratio: float, step: int, warmup_steps: int) -> float:
    """DGC's warm-up: a ratio that falls by equal factors from 1 to `ratio` over warmup_steps steps; 0 for a ratio that
    is not in (0, 1]."""
    steps = integer(step, "step"), integer(warmup_steps, "warmup_steps")
    return lib.gw_classic_warmup_ratio(real(ratio, "ratio"), *steps)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Which tensor and step a call works on.

    keep_len: TOPK, DGC, RANDK: values to send, 1..len (0 for an empty tensor). element_first: number of the first
    value, which with seed, round and (but for RANDK's positions) rank makes the random bits. round: modulo 2^32.
    """

    keep_len: int = 0
    element_first: int = 0
    round: int = 0
    rank: int = 0


@dataclass(frozen=True)
class State:
    """What a tensor keeps between steps: fp32 arrays of its length, or None where the scheme has none."""

    residual: ArrayLike | None = None
    momentum: ArrayLike | None = None


@dataclass(frozen=True)
class FrameInfo:
    """Header of a frame. len, keep_len, block_len: values; frame_size, payload_offset, payload_size: bytes. shared:
    norms came from the caller. vote: the outcome of a majority vote."""

    scheme: str
    dtype: str
    values: str
    coding: str
    norm: str
    checksum: bool
    unbiased: bool
    shared: bool
    vote: bool
    level_max: int
    block_len: int
    round: int
    rank: int
    seed: int
    element_first: int
    len: int
    keep_len: int
    frame_size: int
    payload_offset: int
    payload_size: int

    @property
    def bits_per_value(self) -> float:
        """Bits of the whole frame per value, 0 for an empty one."""
        return 8 * self.frame_size / self.len if self.len else 0.0

    @classmethod
    def from_struct(cls, struct: s.gw_classic_frame_info) -> FrameInfo:
        """The C struct as an object."""
        names = ("checksum", "unbiased", "shared", "vote")
        flags = {name: bool(struct.flags & getattr(c, f"GW_CLASSIC_FLAG_{name.upper()}")) for name in names}
        return cls(**_fields_of(cls, struct, _ENUMS), **flags)


class Codec:
    """Encodes with fixed options. Any number of threads may share it; each has its own workspace.

    Values are arrays of options.dtype, of any shape, in C order (gradwire.arrays).
    """

    def __init__(self, options: Options) -> None:
        self.options = instance(options, Options, "options")
        self.handle = s.gw_classic()
        check(lib.gw_classic_init(self.handle, options.struct()))
        arrays_of = lib.gw_classic_state_arrays(self.handle)
        self.has_residual = bool(arrays_of & c.GW_CLASSIC_RESIDUAL)
        self.has_momentum = bool(arrays_of & c.GW_CLASSIC_MOMENTUM)

    def state(self, len: int) -> State:
        """State of a new tensor of len values: the arrays that the scheme needs, zeros."""
        len = integer(len, "len", 0, LEN_MAX)
        new = lambda has: np.zeros(len, np.float32) if has else None  # noqa: E731
        return State(new(self.has_residual), new(self.has_momentum))

    def block_count(self, len: int) -> int:
        """Blocks of QSGD and TERNGRAD, columns of ONEBIT; 1 for the others; 0 if len is 0."""
        return lib.gw_classic_block_count(self.handle, integer(len, "len"))

    def bound(self, len: int, step: Step | None = None) -> int:
        """Bytes that a frame of len values never exceeds. ValueError where there is no such tensor or step."""
        size = lib.gw_classic_frame_bound(self.handle, _step(len, step))
        if size == 0:
            raise ValueError(f"no frame of {len} values with {step}")
        return size

    def norms(self, values: ArrayLike, step: Step | None = None, *, state: State | None = None) -> np.ndarray:
        """QSGD, TERNGRAD: the norm of every block, float32. The maximum over all ranks, given to encode(), makes frames
        that Sum adds. Raises Error ("option" for other schemes, "nonfinite")."""
        call = _Call(self, values, step, state, None)
        norms = np.empty(self.block_count(call.values.size), np.float32)
        check(lib.gw_classic_norms(self.handle, call.step, call.struct, norms.ctypes.data, call.workspace()))
        return norms

    def encode(
        self,
        values: ArrayLike,
        step: Step | None = None,
        *,
        state: State | None = None,
        norms: ArrayLike | None = None,
        out: ArrayLike | None = None,
    ) -> bytes | memoryview:
        """A tensor as a frame; its state moves on by one step.

        state: arrays as state() makes them, changed in place; None for schemes that have none. norms: float32, a norm
        for every block, at least its own. out: writable bytes, which must not overlap the inputs; the result is then a
        view of what was written. bound() bytes always suffice.

        Raises Error ("nonfinite", "dst", "option" for keep_len, "state" for a norm below the block's own); state is
        then what it was.
        """
        call = _Call(self, values, step, state, norms)
        bound = max(1, lib.gw_classic_frame_bound(self.handle, call.step))
        made = Output(bound, out, call.values, call.residual, call.momentum, call.norms)
        check(lib.gw_classic_encode(self.handle, call.step, call.struct, made.buffer, call.workspace()))
        return made.written()


def _step(len: int, step: Step | None) -> s.gw_classic_step:
    step = Step() if step is None else instance(step, Step, "step")
    return fill(
        s.gw_classic_step,
        len=len,
        element_first=step.element_first,
        keep_len=step.keep_len,
        round=step.round,
        rank=step.rank,
    )


class _Call:
    """Step and source of one call, with the arrays that the structs borrow from."""

    def __init__(
        self, codec: Codec, values: ArrayLike, step: Step | None, state: State | None, norms: ArrayLike | None
    ) -> None:
        self._codec = codec
        self.values = arrays.source(values, codec.options.dtype)
        self.step = _step(self.values.size, step)
        state = State() if state is None else instance(state, State, "state")
        self.residual = self._memory(state.residual, codec.has_residual, "residual")
        self.momentum = self._memory(state.momentum, codec.has_momentum, "momentum")
        if self.residual is not None:
            arrays.apart(self.residual, self.values, self.momentum)
        if self.momentum is not None:
            arrays.apart(self.momentum, self.values)
        self.norms = None if norms is None else arrays.read(norms, np.float32, "norms")
        if self.norms is not None and self.norms.size != codec.block_count(self.values.size):
            raise ValueError(f"{self.norms.size} norms for {codec.block_count(self.values.size)} blocks")
        self.struct = s.gw_classic_source(
            self.values.ctypes.data,
            arrays.address(self.residual),
            arrays.address(self.momentum),
            arrays.address(self.norms),
        )

    def _memory(self, given: ArrayLike | None, needed: bool, what: str) -> np.ndarray | None:
        if (given is not None) != needed:
            scheme = self._codec.options.scheme
            raise ValueError(f"{scheme} needs state.{what}" if needed else f"{scheme} has no {what} with these options")
        if given is None:
            return None
        memory = arrays.target(given, "fp32", what)
        if memory.size != self.values.size:
            raise ValueError(f"{what} of {memory.size} elements for {self.values.size} values")
        return memory

    def workspace(self):
        return scratch(lib.gw_classic_workspace_size(self._codec.handle, self.step))


# ---- frames ----


def _frame(data: np.ndarray, len_max: int) -> s.gw_classic_frame:
    return s.gw_classic_frame(data.ctypes.data, data.size, integer(len_max, "len_max"), c.GW_BACKEND_ALL)


def _peek(data: np.ndarray) -> s.gw_classic_frame_info:
    info = s.gw_classic_frame_info()
    check(lib.gw_classic_frame_peek(data.ctypes.data, data.size, byref(info)))
    return info


def _workspace(info: s.gw_classic_frame_info):
    return scratch(lib.gw_classic_decode_workspace_size(info))


def peek(data: ArrayLike) -> FrameInfo:
    """Header of a frame of which at least the first 80 bytes are there: `frame_size` says how many to receive.

    Raises Error ("short", "magic", "version", "unsupported", "header").
    """
    return FrameInfo.from_struct(_peek(arrays.frame(data)))


def inspect(frame: ArrayLike, *, len_max: int = LEN_MAX) -> FrameInfo:
    """Header of a frame whose header, checksum and payload were checked: it decodes without an error.

    Raises Error with the status that docs/format-classic.md section 6 gives the first broken rule.
    """
    data = arrays.frame(frame)
    info = _peek(data)
    check(lib.gw_classic_frame_check(_frame(data, len_max), byref(info), _workspace(info)))
    return FrameInfo.from_struct(info)


def decode(frame: ArrayLike, *, out: ArrayLike | None = None, scale: float = 1.0, len_max: int = LEN_MAX) -> ArrayLike:
    """Values of a frame, times scale, in the frame's dtype.

    out: array to fill, of that type and length, which is returned; None: a new one. A sparse frame of a few bytes may
    say that it has up to len_max values: give `out`, or a limit, for frames from strangers. scale: a normal fp32
    number.

    Raises Error. After "corrupt" and "checksum" out is zeros, after other errors untouched.
    """
    data, len_max = arrays.frame(frame), integer(len_max, "len_max")
    info = _peek(data)
    dtype = name_in(DTYPES, info.dtype)
    if out is None:
        if info.len > len_max or info.frame_size != data.size:
            inspect(data, len_max=len_max)  # before memory is taken because a header says so
        out = arrays.empty(dtype, info.len)
    return _into(lib.gw_classic_decode, data, info, out, dtype, scale, len_max)


def decode_add(frame: ArrayLike, out: ArrayLike, *, scale: float = 1.0, len_max: int = LEN_MAX) -> ArrayLike:
    """Adds the values of a frame, times scale, to out, an fp32 array of its length, and returns out. Values that a
    sparse frame does not have are not touched. On failure out is untouched."""
    data = arrays.frame(frame)
    return _into(lib.gw_classic_decode_add, data, _peek(data), out, "fp32", scale, len_max)


def _into(function, data: np.ndarray, info, out: ArrayLike, dtype: str, scale: float, len_max: int) -> ArrayLike:
    values = arrays._place_of(out, dtype, info.len, "the frame", data)
    target = s.gw_classic_target(values=values.ctypes.data, capacity=values.size, scale=scale_of(scale))
    check(function(_frame(data, len_max), byref(target), _workspace(info)))
    return out


# ---- sums of encoded values ----


class Sum:
    """A sum of frames that are never decoded: votes of SIGNSGD and SIGNUM, values of RANDK with one seed and round,
    levels of QSGD and TERNGRAD with shared norms. For one thread at a time.

    like: any frame of the sum, which says what the others must agree with; it is not added. Raises Error "option" if
    such frames have no sum.
    """

    def __init__(self, like: ArrayLike, *, len_max: int = LEN_MAX) -> None:
        self._first = np.array(arrays.frame(like), copy=True)
        self._len_max = len_max
        self._info = _peek(self._first)
        self.info = inspect(self._first, len_max=len_max)
        self._like = _frame(self._first, len_max)
        size = lib.gw_classic_sum_size(self._info)
        if size == 0 and self.info.len > 0:
            check(c.GW_ERR_OPTION)
        self.lanes = np.zeros(size // 4, np.uint32)
        self._struct = s.gw_classic_sum(self.lanes.ctypes.data, self.lanes.nbytes, 0)

    @property
    def members(self) -> int:
        """Frames that were added."""
        return self._struct.members

    def add(self, frame: ArrayLike) -> None:
        """Adds a frame. Any order gives the same sum, but for RANDK. Raises Error ("mismatch", "overflow", and those of
        inspect()); the sum is then unchanged."""
        data = arrays.frame(frame)
        received = _frame(data, self._len_max)
        check(lib.gw_classic_sum_add(byref(self._struct), self._like, received, _workspace(self._info)))

    def vote(self) -> bytes:
        """SIGNSGD, SIGNUM: the majority of each sign, as a frame; ties by a random bit of seed, round and element.
        Raises Error ("option", "state" without a member)."""
        made = Output(self._first.size + 64)
        check(lib.gw_classic_sum_vote(self._struct, self._like, made.buffer, _workspace(self._info)))
        return made.written()

    def decode(self, *, scale: float = 1.0, out: ArrayLike | None = None) -> ArrayLike:
        """The sum over the members, times scale: 1 / members makes it the mean. out: fp32 array to fill."""
        out = np.empty(self.info.len, np.float32) if out is None else out
        values = arrays._place_of(out, "fp32", self.info.len, "the sum")
        target = s.gw_classic_target(values=values.ctypes.data, capacity=values.size, scale=scale_of(scale))
        check(lib.gw_classic_sum_decode(self._struct, self._like, byref(target), _workspace(self._info)))
        return out
