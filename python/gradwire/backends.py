"""Instruction sets that the library uses. All give the same bytes, values and errors."""

from __future__ import annotations

from gradwire._library import lib


def available() -> tuple[str, ...]:
    """Names of the backends of this library that this machine can run: "scalar", "avx2", "avx512" or "neon"."""
    bits = lib.gw_backends_available()
    return tuple(lib.gw_backend_name(1 << i).decode() for i in range(32) if bits >> i & 1)


def mask(*names: str) -> int:
    """The mask for options that permit these backends only (scalar always is)."""
    result = 0
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"name={name!r} of a backend is no string")
        bit = lib.gw_backend_from_name(name.encode())
        if not bit:
            raise ValueError(f"no backend {name!r}")
        result |= bit
    return result
