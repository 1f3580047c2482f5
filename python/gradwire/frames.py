"""What a frame says about itself: header, directory, chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ctypes import Structure, byref, c_uint64
from dataclasses import dataclass, fields
from typing import Any

from gradwire import _constants as c
from gradwire import arrays
from gradwire._fill import integer
from gradwire._library import check, lib
from gradwire._structs import gw_gcomp, gw_gcomp_chunk, gw_gcomp_frame, gw_gcomp_frame_info, gw_gcomp_options
from gradwire.arrays import ArrayLike

DTYPES = {"fp32": c.GW_FP32, "bf16": c.GW_BF16, "fp16": c.GW_FP16}
QUANTUM_MODES = {"explicit": c.GW_GCOMP_EXPLICIT, "derived": c.GW_GCOMP_DERIVED, "carried": c.GW_GCOMP_CARRIED}
CHUNK_KINDS = {"zero": c.GW_GCOMP_CHUNK_ZERO, "raw": c.GW_GCOMP_CHUNK_RAW, "coded": c.GW_GCOMP_CHUNK_CODED}

#: Values that a frame may have at most, unless the caller allows fewer.
LEN_MAX = 1 << 48


def name_in(table: dict[str, int], number: int) -> str:
    """The name of a number that the library returned."""
    return next(name for name, value in table.items() if value == number)


def _fields_of(
    kind: type, struct: Structure, enums: Mapping[str, dict[str, int]], flags: Iterable[str] = ()
) -> dict[str, Any]:
    """What a C struct has of the fields of a dataclass, numbers of `enums` by their names and `flags` as bools."""
    found = {field.name: getattr(struct, field.name) for field in fields(kind) if hasattr(struct, field.name)}
    found |= {name: name_in(table, found[name]) for name, table in enums.items()}
    return found | {name: bool(found[name]) for name in flags}


@dataclass(frozen=True)
class Chunk:
    """One chunk: kind "zero", "raw" or "coded"; offset and size in bytes from the start of the frame; len in values;
    codebook: index of the chunk that owns its codebook; crc: CRC32C, 0 without checksums."""

    kind: str
    offset: int
    size: int
    len: int
    codebook: int
    crc: int


@dataclass(frozen=True)
class Info:
    """Header of a frame, field by field as gw_gcomp_frame_info; chunks only where the directory was asked for."""

    dtype: str
    quantum_mode: str
    step: int
    cap: int
    drop_offset: int
    strict: bool
    checksum: bool
    installed: bool
    constant: bool
    chunk_log2: int
    block_log2: int
    len: int
    chunk_count: int
    frame_size: int
    directory_offset: int
    payload_offset: int
    codebook_id: int
    codebook_generation: int
    codebook_crc: int
    map_hash: int
    wire_scale: float
    meta_crc: int
    chunks: tuple[Chunk, ...] = ()

    @property
    def needs_map(self) -> bool:
        """The receiver needs the map that the frame was made with."""
        return self.quantum_mode == "derived" and not self.constant

    @property
    def bits_per_value(self) -> float:
        """Bits of the whole frame per value, 0 for an empty one."""
        return 8 * self.frame_size / self.len if self.len else 0.0


_FLAGS = ("strict", "checksum", "installed", "constant")


def _info(struct: gw_gcomp_frame_info, chunks: tuple[Chunk, ...] = ()) -> Info:
    enums = {"dtype": DTYPES, "quantum_mode": QUANTUM_MODES}
    return Info(**_fields_of(Info, struct, enums, _FLAGS), chunks=chunks)


def dtype_of(data) -> str:
    """Type of the values of a frame in an array of bytes; "fp32" for other bytes: decoding says what is wrong."""
    info = gw_gcomp_frame_info()
    lib.gw_gcomp_frame_peek(data.ctypes.data, data.size, LEN_MAX, info)
    return name_in(DTYPES, info.dtype) if info.dtype else "fp32"


def frame_size(data: ArrayLike) -> int:
    """Bytes of the frame that begins here, of which at least the first 32 bytes are there.

    Knows no codec: it works for frames of all codecs and format versions, also for those that cannot be decoded.
    Frames may follow one another, each where the one before ends. Raises Error ("short", "magic", "header").
    """
    data, size = arrays.frame(data), c_uint64()
    check(lib.gw_frame_size(data.ctypes.data, data.size, byref(size)))
    return size.value


def peek(data: ArrayLike, *, len_max: int = LEN_MAX) -> Info:
    """Header of a frame of which at least the first 72 bytes are there: `frame_size` says how many to receive.

    Raises Error ("short", "magic", "version", "unsupported", "header", "limit").
    """
    data, info = arrays.frame(data), gw_gcomp_frame_info()
    check(lib.gw_gcomp_frame_peek(data.ctypes.data, data.size, integer(len_max, "len_max"), info))
    return _info(info)


def inspect(data: ArrayLike, *, len_max: int = LEN_MAX) -> Info:
    """Header and directory of a whole frame, checked except for the contents of the chunks (Codec.check()).

    Needs no map and no codebook: a derived frame, and one with an installed codebook, can be inspected by anyone.
    Raises Error with the status that docs/format.md section 8 gives the first broken rule.
    """
    data, len_max = arrays.frame(data), integer(len_max, "len_max")
    info = gw_gcomp_frame_info()
    peeked = lib.gw_gcomp_frame_peek(data.ctypes.data, data.size, len_max, info)
    frame = gw_gcomp_frame(data=arrays.address(data), size=data.size)
    options, codec = gw_gcomp_options(), gw_gcomp()
    lib.gw_gcomp_options_init(options, info.dtype or c.GW_FP32)
    options.len_max = len_max
    check(lib.gw_gcomp_init(codec, options))
    status = lib.gw_gcomp_frame_parse(codec, frame, gw_gcomp_frame_info())
    if status not in (c.GW_ERR_MAP, c.GW_ERR_TABLE):  # these come after everything that is shown here
        check(status)
    check(peeked)
    return _info(info, tuple(_chunk(frame, info, index) for index in range(info.chunk_count)))


def _chunk(frame: gw_gcomp_frame, info: gw_gcomp_frame_info, index: int) -> Chunk:
    chunk = gw_gcomp_chunk()
    check(lib.gw_gcomp_frame_chunk(frame, info, index, chunk))
    return Chunk(**_fields_of(Chunk, chunk, {"kind": CHUNK_KINDS}))
