"""Loads the C libraries and gives their functions prototypes.

`lib.gw_gcomp_encode(...)` is the function of the header. ctypes releases the interpreter lock while it runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from gradwire import _abi, _prototypes
from gradwire._bindings import FOLDER
from gradwire._constants import GW_ERR_OPTION
from gradwire.errors import Error, index_or_none


def load(name: str) -> tuple[ctypes.CDLL, str]:
    """The shared library lib`name`.so of the package, and its path. ImportError if it cannot be loaded."""
    path = FOLDER / f"lib{name}.so"
    try:
        return ctypes.CDLL(str(path)), str(path)
    except OSError as error:
        raise ImportError(f"gradwire's library cannot be loaded: {error}") from None


class Library:
    """A loaded library. Attributes are its functions, each looked up and given its prototype on first use."""

    def __init__(self, cdll: ctypes.CDLL, path: str, prototypes: dict[str, Any]) -> None:
        self._cdll = cdll
        self._prototypes = prototypes
        self.path = path

    def __getattr__(self, name: str) -> Any:
        if name not in self._prototypes:
            raise AttributeError(f"no public header declares {name}")
        function = getattr(self._cdll, name, None)
        if function is None:
            raise AttributeError(f"{self.path} has no {name}")
        function.restype, function.argtypes = self._prototypes[name]
        setattr(self, name, function)
        return function


def _open() -> tuple[Library, Library]:
    core, core_path = load("gradwire")
    _abi.check(core, core_path)
    plan, plan_path = load("gradwire-plan")
    _abi.check(plan, plan_path, "gw_plan_")
    return Library(core, core_path, _prototypes.GRADWIRE), Library(plan, plan_path, _prototypes.GRADWIRE_PLAN)


lib, plan_lib = _open()


def check(status: int, **places: int | None) -> None:
    """Raises gradwire.Error unless status is GW_OK. `places`: chunk, block or frame at fault, as the C structs have it;
    None: none is."""
    if status != 0:
        at = {what: None if place is None else index_or_none(place) for what, place in places.items()}
        raise Error(status, lib.gw_status_message(status).decode(), **at)


def check_options(status: int, given: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]) -> None:
    """check() of a call that takes options: the Error names the one that is out of its range, if one is."""
    if status == GW_ERR_OPTION:
        for name, (low, high) in ranges.items():
            if given.get(name) is not None and not low <= given[name] <= high:
                message = lib.gw_status_message(status).decode()
                raise Error(status, f"{message}: {name}={given[name]} is not in {low}..{high}")
    check(status)
