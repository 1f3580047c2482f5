"""Compares the layout of the ctypes structs with that of a loaded library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradwire import _structs
from gradwire._constants import GW_ABI_VERSION
from gradwire._structs import gw_abi_struct

# Libraries beside gradwire: the prefix of their queries, and how their structs begin
BESIDE = {"gw_plan_": ("gw_plan",), "gw_runtime_": ("gw_runtime", "gw_exchange", "gw_thc_steps")}


def check(library: ctypes.CDLL, path: str, prefix: str = "gw_") -> None:
    """Raises ImportError, with every difference named, unless all structs of this package that are the library's fit
    it. prefix: of its query: "gw_", or one of BESIDE."""
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
    ours = {name: struct for name, struct in vars(_structs).items() if _library_of(name) == prefix}
    compare(query_structs, ours, path)


def _library_of(name: str) -> str | None:
    """The prefix of the library that has a struct, None for what is no struct."""
    if not name.startswith("gw_"):
        return None
    return next((prefix for prefix, begins in BESIDE.items() if name.startswith(begins)), "gw_")


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
