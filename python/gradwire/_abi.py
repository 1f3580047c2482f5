"""Compares the layout of the ctypes structs with that of a loaded library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradwire import _structs
from gradwire._constants import GW_ABI_VERSION
from gradwire._structs import gw_abi_struct

# Libraries beside it, by the prefix of their functions: how their structs begin, and no others.
BESIDE = {"gw_plan_": ("gw_plan",), "gw_runtime_": ("gw_runtime", "gw_exchange")}


def check(library: ctypes.CDLL, path: str, prefix: str = "gw_") -> None:
    """Raises ImportError, with every difference named, unless all structs of this package that are the library's fit
    it. prefix: of its functions and structs: "gw_", or one of BESIDE."""
    try:
        query_version = getattr(library, prefix + "abi_version")
        query_structs = getattr(library, prefix + "abi_structs")
    except AttributeError:
        raise ImportError(
            f"{path} is not a gradwire library that this package can use: no {prefix}abi_version()"
        ) from None
    query_version.restype, query_version.argtypes = ctypes.c_uint32, ()
    version = query_version()
    if version != GW_ABI_VERSION:
        raise ImportError(f"{path}: its ABI query has version {version}, this package reads {GW_ABI_VERSION}")
    query_structs.restype = ctypes.POINTER(gw_abi_struct)
    query_structs.argtypes = (ctypes.POINTER(ctypes.c_size_t),)
    wanted = BESIDE.get(prefix, "gw_")
    others = tuple(start for starts in BESIDE.values() for start in starts) if wanted == "gw_" else ()
    ours = {n: s for n, s in vars(_structs).items() if n.startswith(wanted) and not n.startswith(others)}
    compare(query_structs, ours, path)


def compare(query: Callable[..., Any], structs: Mapping[str, type[ctypes.Structure]], path: str) -> None:
    """Raises ImportError unless the library's query, such as gw_abi_structs(), describes these structs as they are."""
    count = ctypes.c_size_t()
    table = query(ctypes.byref(count))
    theirs = {_text(table[i].name): table[i] for i in range(count.value)}
    faults = list(_differences(theirs, structs))
    if faults:
        raise ImportError(f"{path} and this package were made from different headers: " + "; ".join(faults))


def _text(name: bytes) -> str:
    return name.decode("ascii", "replace")


def _differences(theirs: dict[str, gw_abi_struct], structs: Mapping[str, type[ctypes.Structure]]) -> Iterator[str]:
    for name, ours in structs.items():
        if name not in theirs:
            yield f"the library has no {name}"
            continue
        size = ctypes.sizeof(ours)
        if theirs[name].size != size:
            yield f"{name} has {theirs[name].size} bytes in the library, {size} here"
        fields = [theirs[name].fields[i] for i in range(theirs[name].field_count)]
        layout = [(_text(field.name), field.offset, field.size) for field in fields]
        mine = [(field, getattr(ours, field).offset, getattr(ours, field).size) for field, _ in ours._fields_]
        for there, here in zip(layout, mine):
            if there != here:
                yield (
                    "%s.%s is at byte %d with %d bytes in the library" % (name, *there)
                    + ", %s at %d with %d here" % here
                )
                break
        if len(layout) != len(mine):
            yield f"{name} has {len(layout)} fields in the library, {len(mine)} here"
