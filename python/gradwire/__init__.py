"""gradwire: gradients on the wire.

    frame = gradwire.encode(gradient, tolerance_bits=12, map=map)
    gradient = gradwire.decode(frame)

Modules: gcomp (codec), maps (precision maps), frames (what frames say), rate (size and error by tolerance), codebooks
(codebooks that outlive a frame), parallel (one frame by several threads), thc (homomorphic compression), classic
(casts, Top-k, DGC, signs, QSGD and others), plan (planners), arrays (what counts as an array), backends, errors.
docs/python.md has a tutorial.

Importing the package loads the C library and compares the layout of all structs with it; ImportError if they differ.
"""

from gradwire import _bindings as _bindings  # first: the other modules need what it finds
from gradwire._library import lib as _lib
from gradwire.errors import Error
from gradwire.frames import Info, frame_size, inspect, peek
from gradwire.gcomp import Codec, Options, Segment, Stream, decode, decode_add, encode
from gradwire.maps import Limits, Map, Optimizer, Rule, State

__version__: str = _lib.gw_version_string().decode()

__all__ = [
    "Codec",
    "Error",
    "Info",
    "Limits",
    "Map",
    "Optimizer",
    "Options",
    "Rule",
    "Segment",
    "State",
    "Stream",
    "decode",
    "decode_add",
    "encode",
    "frame_size",
    "inspect",
    "peek",
]
