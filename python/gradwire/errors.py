"""Failures of the library as exceptions."""

from __future__ import annotations

from gradwire import _constants

#: Value of `chunk` and `block` in the C structs when none is at fault.
NO_INDEX = 0xFFFFFFFFFFFFFFFF

_NAMES = {
    value: name.removeprefix("GW_ERR_").lower()
    for name, value in vars(_constants).items()
    if name.startswith("GW_ERR_") or name == "GW_OK"
}


class Error(RuntimeError):
    """A call of the library failed.

    Attributes:
        status: number of the status, a `gw_status` of gradwire.h
        name: its short name: "corrupt", "map", ...
        chunk: index of the lowest bad chunk of a GCOMP frame, None unless a chunk is at fault
        block: index of the lowest bad block of a THC range or frame, None unless a block is at fault
        frame: index of the frame at fault where a call takes several, else None
    """

    def __init__(
        self, status: int, message: str, *, chunk: int | None = None, block: int | None = None, frame: int | None = None
    ) -> None:
        places = [
            f"{what} {index}"
            for what, index in (("frame", frame), ("chunk", chunk), ("block", block))
            if index is not None
        ]
        super().__init__(f"{message} ({', '.join([status_name(status), *places])})")
        self.status = status
        self.name = status_name(status)
        self.chunk = chunk
        self.block = block
        self.frame = frame
        self._message = message

    def __reduce__(self):
        """Crosses process boundaries by pickle with all its attributes."""
        return _rebuild, (self.status, self._message, self.chunk, self.block, self.frame)


def _rebuild(status: int, message: str, chunk: int | None, block: int | None, frame: int | None) -> Error:
    return Error(status, message, chunk=chunk, block=block, frame=frame)


def status_name(status: int) -> str:
    """Short name of a status, "unknown" for a number that is none."""
    return "ok" if status == 0 else _NAMES.get(status, "unknown")


def index_or_none(index: int) -> int | None:
    """None for the number that stands for "none is at fault"."""
    return None if index == NO_INDEX else index
