"""What both hooks of THC have in common: error memories by parameter, and which gradient is not finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import gradwire.thc
from gradwire import _constants
from gradwire._library import lib

from . import given
from .reducer import CodecHook, agreed_error
from .states import as_memory, check_memories, check_sizes, check_version, lost

NONFINITE = 0x7F800000  # patterns from here on, up to 2^31, mark a block (GW_THC_NORM_NONFINITE)


class ThcMemory(CodecHook):
    """A hook with an error memory for each parameter."""

    codec: gradwire.thc.Codec

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}  # of parameters, by id
        self._sizes: dict[int | None, int] = {}
        self._errors: dict[int, torch.Tensor] = {}  # by number of the parameter, in memory order

    def _number(self, optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer]) -> None:
        """Numbers the parameters of the optimizers."""
        made = given.optimizers_of(optimizer)
        params = [param for one in made for part in one.param_groups for param in part["params"]]
        self._numbers = {id(param): number for number, param in enumerate(params)}
        self._sizes = {number: param.numel() for number, param in enumerate(params)}

    def _number_of(self, param: torch.Tensor) -> int:
        """A parameter that the optimizer lacks gets a number of its own."""
        return self._numbers.setdefault(id(param), len(self._numbers))

    def _error_of(self, param: torch.Tensor) -> torch.Tensor:
        number = self._number_of(param)
        if number not in self._errors:
            self._errors[number] = torch.zeros(param.numel(), dtype=torch.float32, device="cpu")
        check_sizes({number: param.numel()}, {number: self._errors[number]})  # one that the optimizer lacks, loaded
        return self._errors[number]

    # ---- gradients that are not finite ----

    def _first_bad(
        self, patterns: np.ndarray, values: np.ndarray, params: Sequence[torch.Tensor], offset: int = 0
    ) -> int:
        """This rank and the number of its first parameter with a value that is not finite, as one word of which the
        largest is that of the first rank; 0: it has none. patterns: of these values, which begin at `offset` of the
        bucket."""
        marked = np.flatnonzero(patterns >= NONFINITE)
        if not marked.size:
            return 0
        size = 1 << self.codec.options.block_log2
        first = int(marked[0]) // self.codec.patterns_per_block * size
        odd = np.flatnonzero(~np.isfinite(values[first : first + size]))
        left = offset + first + int(odd[0] if odd.size else 0)  # else the norm, or the error memory, is too large
        for param in params:
            left -= param.numel()
            if left < 0:
                return (self.size - self.rank) << 32 | (self._number_of(param) + 1)
        return 0

    def _raise_nonfinite(self, word: int) -> None:
        """On all ranks. word: the largest of theirs."""
        rank, param = self.size - (word >> 32), (word & 0xFFFFFFFF) - 1
        text = lib.gw_status_message(_constants.GW_ERR_NONFINITE).decode()
        raise agreed_error(_constants.GW_ERR_NONFINITE, f"rank {rank}, parameter {param}: {text}")

    # ---- state ----

    def _saved_errors(self) -> dict[int, torch.Tensor]:
        return {number: error.clone() for number, error in self._errors.items()}

    def _check_errors(self, state: Mapping[str, Any]) -> None:
        """ValueError unless it is a state of THC, of a model with these parameters."""
        check_version(state, "thc", ("round", "errors"))
        known = {number: error for number, error in state["errors"].items() if number < len(self._sizes)}
        check_memories(state["errors"])
        if state["errors"] and not self.codec.options.error_feedback:
            raise lost("error memories", "a hook with error_feedback=False", "'errors'")
        check_sizes(self._sizes, known)

    def _load_errors(self, state: Mapping[str, Any]) -> None:
        self._errors = {number: as_memory(error) for number, error in state["errors"].items()}
