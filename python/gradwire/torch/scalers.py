"""The loss scale of a backward pass: that of the GradScaler which has scaled its loss, though nobody passed it on."""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any

_DEPTH = 32  # frames


def on_stack(frame: FrameType | None) -> Any:
    """The enabled GradScaler that is calling optimizer.step(), or None."""
    for _ in range(_DEPTH):
        if frame is None:
            return None
        if frame.f_globals.get("__name__", "").endswith("grad_scaler"):
            scaler = frame.f_locals.get("self")
            if hasattr(scaler, "get_scale") and hasattr(scaler, "scale"):
                return scaler if getattr(scaler, "is_enabled", lambda: True)() else None
        frame = frame.f_back
    return None


class _Noted:
    """In place of a scaler's scale(): says that it was called."""

    def __init__(self, scaler: Any, scalers: weakref.ref[Scalers]) -> None:
        self._scaler, self._scale, self._scalers = weakref.ref(scaler), scaler.scale, scalers

    def __call__(self, outputs: Any) -> Any:
        scalers = self._scalers()
        if scalers is not None:
            scalers.called(self._scaler())
        return self._scale(outputs)


class Scalers:
    """Those that were found, and which of them has scaled the loss of a backward pass.

    A scaler that is found may be of another optimizer's loss, or no longer in use: so its scale counts in the backward
    passes before which its scale() was called, and in others there is none, which is safe: quanta are too fine then.
    """

    def __init__(self) -> None:
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._called: weakref.ref[Any] | None = None  # since the last backward pass
        self._last: weakref.ref[Any] | None = None  # of the last one

    def add(self, scaler: Any) -> bool:
        """Notes its calls from now on. False for one that is known."""
        if scaler in self._known:
            return False
        self._known.add(scaler)
        scaler.scale = _Noted(scaler, weakref.ref(self))
        self._last = self._last or weakref.ref(scaler)
        return True

    def called(self, scaler: Any) -> None:
        self._called = None if scaler is None else weakref.ref(scaler)

    def begin(self) -> None:
        """A backward pass begins."""
        self._last, self._called = self._called, None

    def scale(self) -> float:
        """Of the backward pass that has begun; before it that of the next one if its loss is scaled as the last."""
        scaler = None if self._last is None else self._last()
        return 1.0 if scaler is None else float(scaler.get_scale())
