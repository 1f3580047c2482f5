"""Codebooks that outlive a frame (gcomp.h, "Codebooks that outlive a frame")."""

from __future__ import annotations

import copy

import numpy as np

from gradwire import arrays
from gradwire._constants import GW_GCOMP_CODEBOOK_ID_END, GW_GCOMP_CODEBOOK_SIZE_MAX
from gradwire._fill import integer
from gradwire._library import check, lib
from gradwire._structs import gw_gcomp_histogram
from gradwire.arrays import ArrayLike
from gradwire.gcomp import Codec, Source, Stream
from gradwire.maps import Map
from gradwire.workspace import Output


class Histogram:
    """Counts labels of what a codec would encode, over many calls, and makes a codebook of them.

    Histograms of ranks are pooled by `+` if base and kind of exponents are equal (ValueError): equal counts give equal
    codebooks. Not safe to add to from several threads at once.
    """

    def __init__(self, codec: Codec) -> None:
        self.struct = gw_gcomp_histogram()
        check(lib.gw_gcomp_histogram_init(self.struct, codec.handle))

    def add(self, codec: Codec, values: ArrayLike, map: Map | None = None, stream: Stream | None = None) -> None:
        """Counts the labels of values. codec: of the dtype and quantum mode of the histogram, else Error "state"."""
        source = Source(codec, values, map, stream)
        check(lib.gw_gcomp_histogram_add(self.struct, codec.handle, source.struct, codec.workspace()))

    def __add__(self, other: Histogram) -> Histogram:
        for name in ("dtype", "quantum_mode", "window_start", "relative"):
            if getattr(self.struct, name) != getattr(other.struct, name):
                raise ValueError(f"histograms of another {name}")
        result = copy.copy(self)
        result.struct = copy.copy(self.struct)
        for name in ("count", "mask_count"):
            mine, theirs = getattr(result.struct, name), getattr(other.struct, name)
            for i in range(len(mine)):
                mine[i] += theirs[i]
        return result

    def codebook(self) -> bytes:
        """The codebook of the counts, serialised: at most 140 bytes."""
        made = Output(GW_GCOMP_CODEBOOK_SIZE_MAX)
        check(lib.gw_gcomp_codebook_build(self.struct, made.buffer))
        return made.written()


def install(codec: Codec, codebook: ArrayLike, id: int, generation: int, *, encode: bool = True) -> None:
    """Gives a codec a codebook under an id and a generation; the codec keeps the two most recent ones.

    id: below 0xffffff00. encode: the codec encodes with it from now on; False: for decoding only. Must not run while
    other threads use the codec. Raises Error "table" for a codebook that breaks a rule; the codec is then unchanged.
    """
    codebook = arrays.read(codebook, np.uint8, "a codebook")
    id = integer(id, "id", 0, GW_GCOMP_CODEBOOK_ID_END - 1)
    generation = integer(generation, "generation", 0, (1 << 32) - 1)
    check(lib.gw_gcomp_codebook_install(codec.handle, id, generation, codebook.ctypes.data, codebook.size, int(encode)))


def uninstall(codec: Codec) -> None:
    """The codec encodes with codebooks in its frames again; installed ones stay for decoding."""
    check(lib.gw_gcomp_codebook_uninstall(codec.handle))
