"""What a hook keeps besides threads: memories of a step that may turn out not to count, and copies of its state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

NONFINITE = ("propagate", "error")


def check_nonfinite(nonfinite: str) -> None:
    if nonfinite not in NONFINITE:
        raise ValueError(f"gradwire: nonfinite is one of: {', '.join(NONFINITE)}; not {nonfinite!r}")


class Undo:
    """Memories as they were before a step. One with a gradient that is not finite is a step that no optimizer makes
    (a GradScaler skips it on all ranks), so what ranks have sent in it does not count."""

    def __init__(self) -> None:
        self._before: list[tuple[dict[int, torch.Tensor], int, torch.Tensor]] = []
        self.spoilt = False  # a gradient of this step is not finite

    def keep(self, memory: dict[int, torch.Tensor], number: int, before: torch.Tensor) -> None:
        """memory[number] is about to change, and was this."""
        self._before.append((memory, number, before))

    def add(self, other: Undo) -> None:
        """What happened after this."""
        self._before += other._before
        self.spoilt |= other.spoilt

    def end_step(self) -> None:
        if self.spoilt:
            for memory, number, before in reversed(self._before):
                memory[number] = before
        self._before, self.spoilt = [], False


class Finite:
    """Whether the result of an all-reduce is finite, which its end says; the same on all ranks."""

    def __init__(self) -> None:
        self._is_known = threading.Event()
        self._is_finite = False

    def around(self, end: Callable[[Callable[[], torch.Tensor]], torch.Tensor]) -> Callable[..., torch.Tensor]:
        """For staging.all_reduce(): the given end, and the answer."""

        def checked(total: Callable[[], torch.Tensor]) -> torch.Tensor:
            try:
                result = end(total)
                self._is_finite = result.is_sparse or bool(torch.isfinite(result).all())
                return result
            finally:
                self._is_known.set()

        return checked

    def wait(self) -> bool:
        self._is_known.wait()
        return self._is_finite


def check_version(state: Mapping[str, Any], codec: str, names: tuple[str, ...]) -> None:
    """ValueError unless it is a state_dict() of this package for this codec, which has these entries."""
    if state.get("version") != 1:
        raise ValueError(f"a state of version {state.get('version')}; this package reads 1")
    if state.get("codec", codec) != codec or not all(name in state for name in names):
        raise ValueError(f"a state of {state.get('codec', 'another hook')}, not of {codec}")


def check_sizes(sizes: Mapping[int | None, int], *memories: Mapping[int, torch.Tensor]) -> None:
    """ValueError unless the memories are of parameters with these sizes."""
    if any(sizes.get(number) != one.numel() for kept in memories for number, one in kept.items()):
        raise ValueError("the state that was loaded is that of a model with other parameters")


def check_memories(memories: Mapping[Any, torch.Tensor]) -> None:
    """ValueError unless each is a dense tensor of real floating-point numbers: what as_memory() takes."""
    for one in memories.values():
        if not (isinstance(one, torch.Tensor) and one.is_floating_point() and one.layout == torch.strided):
            kind = f"{one.layout}, {one.dtype}" if isinstance(one, torch.Tensor) else type(one).__name__
            raise ValueError(f"an error memory is a dense tensor of floating-point numbers, not {kind}")


def as_memory(loaded: torch.Tensor) -> torch.Tensor:
    """A copy as the library reads it, by address: fp32 in the CPU's memory, one value after the other. What is loaded
    may be a checkpoint that was cast, or mapped to a device."""
    return loaded.detach().to("cpu", torch.float32, copy=True).contiguous().view(-1)


class CopiedState:
    """A copy of a hook's state, by copy(), deepcopy() or pickle, of itself or of a DDP module that has the hook: what
    its state_dict() had at that time. It has no ranks, optimizer or threads and cannot reduce gradients; a hook for the
    copy is made with the copy's own optimizer, and takes this state_dict()."""

    def __init__(self, kind: str, state: dict[str, Any]) -> None:
        self.kind = kind
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def reduce(self, *_: Any, **__: Any) -> Any:
        """Raises RuntimeError, as what else needs the hook's threads does."""
        raise RuntimeError(
            f"gradwire: this {self.kind} is a copy (deepcopy, AveragedModel, torch.save), which cannot reduce "
            "gradients: make a hook for the copied model with an optimizer of its own"
        )

    check = load_state_dict = fail = reduce

    def close(self) -> None:
        """There is nothing to end."""

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__.get("kind", "state")
        raise AttributeError(f"{name!r}: a copy of gradwire's {kind} has no more than its state_dict()")


class Copies:
    """A base class: copies of an object are a CopiedState."""

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return CopiedState, (type(self).__name__, self.state_dict())
