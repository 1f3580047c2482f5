"""The golden vectors of tests/golden: frames, statuses, bad chunks and values are those of the specification."""

import golden_archive
import gradwire
import numpy as np
import pytest
import vector_index
from gradwire import _constants, codebooks
from gradwire._library import lib
from gradwire.arrays import ELEMENTS

GOLDEN = golden_archive.unpacked()
VECTORS = vector_index.read_index(str(GOLDEN))


def receiver(vector):
    """(codec, map) that a vector is decoded with."""
    fields = vector.fields
    limit = {} if vector.count_limit is None else {"len_max": vector.count_limit}
    quantum_mode = fields["levels"] if vector.installed else "explicit"
    bits = int(fields["tolerance_bits"])
    codec = gradwire.Codec(dtype=fields["dtype"], quantum_mode=quantum_mode, tolerance_bits=bits, **limit)
    for (id, generation), codebook in vector.installed.items():
        codebooks.install(codec, codebook, id, generation, encode=False)
    map = None
    if vector.map is not None:
        map = gradwire.Map(vector.map.bytes, base_of(fields), scale_of(fields))
    return codec, map


def scale_of(fields):
    return float(np.array(int(fields["wire_scale"], 16), np.uint32).view(np.float32))


def base_of(fields):
    """The base of a map from the drop offset of derived frames (docs/numerics.md section 2.5)."""
    mantissa_bits = {"fp32": 23, "bf16": 7, "fp16": 10}[fields["dtype"]]
    return int(fields["drop_base"]) - 3 + 4 * (int(fields["tolerance_bits"]) - mantissa_bits)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.file)
def test_decode(vector):
    codec, map = receiver(vector)
    count = vector.count or 0
    if vector.capacity is not None and vector.capacity < count or vector.status == "DST":
        return  # capacities are for C: here an array of another size is a ValueError
    out = np.full(count, 1, ELEMENTS[codec.dtype])
    before = out.tobytes()
    if map is not None and map.base < 0:  # of a frame whose drop offset no map has
        with pytest.raises(ValueError, match="base"):
            codec.decode(vector.data, map=map, out=out)
        return
    try:
        codec.decode(vector.data, map=map, out=out)
    except gradwire.Error as error:
        assert error.name.upper() == vector.status
        assert error.chunk == vector.bad_chunk
        assert error.status == getattr(_constants, "GW_ERR_" + vector.status)
        if vector.bad_chunk is None:
            assert out.tobytes() == before
    else:
        assert vector.status == "OK"
    if vector.status == "OK" or vector.bad_chunk is not None:
        assert "%08x" % lib.gw_crc32c(0, out.ctypes.data, out.nbytes) == vector.values_crc
