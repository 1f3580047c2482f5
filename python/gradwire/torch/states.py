"""What a hook keeps besides threads: memories of a step that may turn out not to count, and copies of its state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

NONFINITE = ("propagate", "error")


def check_nonfinite(nonfinite: str) -> None:
    if nonfinite not in NONFINITE:
        raise ValueError(f"gradwire: nonfinite is one of: {', '.join(NONFINITE)}; not {nonfinite!r}")


class Undo:
    """Memories as they were before a step. One with a gradient that is not finite is a step that no optimizer makes
    (a GradScaler skips it on all ranks), so what ranks have sent in it does not count. Nor does one in which anything
    fails. So memories change in blocks of Gate.passing() alone: none does after a failure.

    whole: that of a step of a plan, which has more messages; it gets at the end of this part what is kept here. A
    GradScaler skips the steps of optimizers, not of models: so a part is undone if all optimizers of its parameters
    have gradients that are not finite, in whatever part, or if its own ones are not.
    """

    def __init__(self, whole: Undo | None = None) -> None:
        self.whole = whole
        self.spoilt = False  # a gradient of this step is not finite
        self._owners: set[Any] = set()  # optimizers with such gradients
        self._parts: list[tuple[Undo, frozenset[Any]]] = []  # that have ended, and whose parameters they have
        self._lock = threading.RLock()  # parts end on several threads
        self._before: list[tuple[dict[Any, torch.Tensor], Any, torch.Tensor | None]] = []
        self._drafts: list[tuple[dict[Any, torch.Tensor], Any, torch.Tensor]] = []

    def keep(self, memory: dict[Any, torch.Tensor], number: Any, before: torch.Tensor | None) -> None:
        """memory[number] is about to change, and was this; None: there was none."""
        self._before.append((memory, number, before))

    def draft(self, memory: dict[Any, torch.Tensor], number: Any, length: int) -> torch.Tensor:
        """A copy of memory[number] for an encoder, which changes it in place; zeros where there is none."""
        known = memory.get(number)
        made = torch.zeros(length, dtype=torch.float32, device="cpu") if known is None else known.clone()
        self._drafts.append((memory, number, made))
        return made

    def put(self) -> None:
        """The drafts become the memories. In a block of Gate.passing()."""
        for memory, number, made in self._drafts:
            self.keep(memory, number, memory.get(number))
            memory[number] = made
        self._drafts = []

    def spoil(self, owners: Iterable[Any]) -> None:
        """Of a whole: these optimizers have gradients that are not finite. For any thread."""
        with self._lock:
            self._owners.update(owners)

    def add(self, other: Undo) -> None:
        """What happened after this."""
        with self._lock:
            self._before += other._before
            self.spoilt |= other.spoilt

    def end_step(self, owners: frozenset[Any] = frozenset()) -> None:
        """Memories count, unless the step is spoilt; those of a part when the whole step ends. owners: of a part: the
        optimizers of its parameters."""
        with self._lock:
            if self.whole is not None:
                self.whole._take(self, owners)
            elif self.spoilt:
                self._restore()
            for part, theirs in self._parts:
                if part.spoilt or theirs and theirs <= self._owners:
                    part._restore()
            self._clear()

    def _take(self, part: Undo, owners: frozenset[Any]) -> None:
        ended = Undo()
        ended.add(part)
        with self._lock:
            self._parts.append((ended, owners))

    def cancel(self) -> None:
        """Memories are as they were before the step, or the part of it."""
        with self._lock:
            self._restore()
            for part, _ in self._parts:  # no two have the same memories
                part._restore()
            self._clear()

    def _clear(self) -> None:
        self._before, self.spoilt = [], False
        self._owners, self._parts = set(), []

    def _restore(self) -> None:
        for memory, number, before in reversed(self._before):
            if before is None:
                memory.pop(number, None)
            else:
                memory[number] = before


def is_finite(values: torch.Tensor) -> bool:
    """Whether all are. One pass, in fp32 without other memory: a sum with NaN or infinity is one of them. That of large
    values may be, too: then each value is looked at."""
    if not values.is_floating_point():
        return bool(torch.isfinite(values).all())
    with torch.no_grad():
        total = values.sum(dtype=torch.float64 if values.dtype == torch.float64 else torch.float32)
        return bool(torch.isfinite(total)) or bool(torch.isfinite(values).all())


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
                self._is_finite = result.is_sparse or is_finite(result)
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


def lost(what: str, who: str, entry: str) -> ValueError:
    """For a state with memories that whoever loads it does not have. entry: of the state, that has them."""
    return ValueError(
        f"gradwire: the state has {what}: {who} has none, and what they hold would be lost; to go on without them, "
        f"load it with an empty {entry}"
    )


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
