"""What a checkpoint keeps of DDP's hook, and how a resumed run begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .choice import Choice
from .codecs import Codecs
from .engine import Engine
from .planned import LEVELS
from .regroup import Replay
from .states import check_version, lost

KEPT = ("thc", "classic", LEVELS)  # codecs with a state
MEMORIES = ("errors", "sum_errors", "residual", "momentum", "memory")  # of them


def _has_some(memories: Mapping[Any, Any] | None) -> bool:
    """Those of trees are by bucket: a codec without memories has none of each."""
    return any(not isinstance(one, Mapping) or one for one in (memories or {}).values())


class Resume:
    def __init__(self, engine: Engine, choice: Choice, codecs: Codecs) -> None:
        self._engine, self._choice, self._codecs = engine, choice, codecs
        self._compared = False  # the ranks have loaded the same state

    def state_dict(self, step: int) -> dict[str, Any]:
        registry = self._engine.registry
        return {
            "version": 1,
            "step": step,
            "seed": registry.seed,
            "choice": self._choice.state_dict(),
            "rates": registry.rates.state_dict(),
            "layout": [list(bucket) for bucket in self._codecs.layout],
            **{kind: {key: one.state_dict() for key, one in self._codecs.made[kind].items()} for kind in KEPT},
        }

    def load(self, state: Mapping[str, Any]) -> int:
        """The step. ValueError for a state of another version, hook or model; nothing has changed then."""
        check_version(state, "gradwire", ("step", "seed", "choice", "layout"))
        codecs, engine, layout = self._codecs, self._engine, state["layout"]
        loads = [
            (one, state[kind][key])
            for kind in KEPT
            for key, one in codecs.made[kind].items()
            if key in state.get(kind, {})
        ]
        for kind in KEPT:
            for key, theirs in state.get(kind, {}).items():
                filled = [name for name in MEMORIES if _has_some(theirs.get(name))]
                if filled and key not in codecs.made[kind]:
                    entries = " and ".join(f"[{kind!r}][{key!r}][{name!r}]" for name in filled)
                    raise lost(f"memories of {kind}, options {key}", "the hook, or its plan,", entries)
        for one, theirs in loads:  # before anything changes
            one.check_state(theirs)
        engine.registry.seed = engine.seed = state["seed"]
        self._choice.load_state_dict(state["choice"])
        engine.registry.rates.load_state_dict(state.get("rates", ()))
        for one, theirs in loads:
            one.load_state_dict(theirs)
        if codecs.planned is None and layout and not any(None in bucket for bucket in layout):
            codecs.regroup = Replay(layout, codecs.start, engine.registry.label, engine.gate)
        self._compared = False
        return state["step"]

    def compare(self, step: int) -> None:
        """Once, before the first bucket: raises on all ranks where some have not loaded the state; they would wait for
        messages that are not sent."""
        if self._compared:
            return
        state = {
            "step": step,
            "seed": self._engine.registry.seed,
            "decision": self._choice.decision,
            "layout": getattr(self._codecs.regroup, "layout", None),
        }
        self._engine.call(lambda: self._engine.transport.agree_on_state("gradwire", **state))
        self._compared = True
