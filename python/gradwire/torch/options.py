"""Options of the codec and the engine, which DDP's hook and Communicator share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import gradwire.gcomp
import gradwire.maps
from gradwire.gcomp import Options

from . import optimizers
from ._pool import THREADS_MAX
from .engine import Settings
from .rates import UPDATE_BITS, Rates

_NOISE = 0.125  # beside a tolerance: what rounding leaves in a second moment stays when the rate has risen


@dataclass(frozen=True, kw_only=True)
class CodecOptions:
    """How gradients are encoded and exchanged.

    tolerance_bits: 1..23, an encode moves no parameter by more than 2^-tolerance_bits of it, in this update and those
    that a momentum carries it to. noise: 0, or 2^-8..1, limit of the noise by the second moment (Adagrad, RMSprop,
    Adam, AdamW); with tolerance_bits=None it alone counts, else the smaller quantum does; None: 1/8 beside a tolerance
    where there is a second moment. peak_lr: the largest learning rate of the training, one for all parameter groups or
    one for each; scheduler: of torch, or a list of them for several optimizers, whose rates to come are computed.
    Without both the largest rate seen counts, and the momentum limits quanta too. levels: "derived" (receivers know the
    quanta from their own optimizer state), "carried" or "explicit"; "auto": derived where the optimizer is known, else
    carried. deep_cut: values below their quantum become 0 or one quantum; None: where `noise` is given or there is no
    second moment. nmse: carried levels of an unknown optimizer: share of error that a message may add. rounding,
    checksum: as in gradwire.Options.
    contribution_bits: how much finer contributions are than their sum. fallback: levels while the ranks' states differ,
    "carried" or "explicit". threads: of the native pool. piece_len: values of a message; None: 2^16 to 2^18, so that a
    rank's share of a bucket is four messages or more where possible. debug: results are compared across ranks.
    """

    tolerance_bits: int | None = 14
    noise: float | None = None
    peak_lr: float | Sequence[float] | None = None
    scheduler: Any = None
    levels: str = "auto"
    deep_cut: bool | None = None
    nmse: float = 1e-3
    rounding: str = "stochastic"
    checksum: bool = True
    contribution_bits: int = 0
    fallback: str = "carried"
    threads: int = 2
    piece_len: int | None = None
    debug: bool = False

    def settings(self, made: Sequence[torch.optim.Optimizer]) -> Settings:
        """Settings of an engine for gradients of these optimizers. ValueError says what is wrong."""
        known = bool(made) and all(optimizers.family(one) for one in made)
        moments = known and all(optimizers.has_second_moment(one) for one in made)
        levels = self.levels if self.levels != "auto" else "derived" if known else "carried"
        self._check(levels, known, moments)
        limits = gradwire.maps.Limits(
            # without a tolerance: only where levels begin
            tolerance_bits=23 if self.tolerance_bits is None else self.tolerance_bits,
            noise=(_NOISE if any(map(optimizers.has_second_moment, made)) else 0.0)
            if self.noise is None
            else self.noise,
            noise_only=self.tolerance_bits is None,
            update_bits=0 if self.tolerance_bits is None else UPDATE_BITS,
        )
        deep_cut = self.deep_cut
        if deep_cut is None:
            none_has_moments = known and not any(map(optimizers.has_second_moment, made))
            deep_cut = levels == "carried" or bool(self.noise) or none_has_moments

        def codec(name: str) -> Options:
            return Options(
                levels=name,
                rounding=self.rounding,
                tolerance_bits=limits.tolerance_bits,
                deep_cut=deep_cut if name == "derived" else name == "carried",
                target_nmse=self.nmse if name == "carried" and not known else None,
                checksum=self.checksum,
            )

        for name in (levels, self.fallback):
            gradwire.gcomp.Codec(codec(name))  # raises what is out of range
        gradwire.maps.Rule(gradwire.maps.Optimizer(kind="adam" if moments else "sgd", lr=1.0), limits=limits)
        return Settings(
            codec=codec(levels),
            spare=codec(self.fallback),
            limits=limits,
            maps=known,
            agree=levels == "derived",
            contribution_bits=self.contribution_bits if levels != "explicit" else 0,
            piece_len=self.piece_len,
            threads=self.threads,
            debug=self.debug,
        )

    def _check(self, levels: str, known: bool, moments: bool) -> None:
        if levels not in ("derived", "carried", "explicit"):
            raise ValueError(f"no levels {levels!r}; there are: auto, derived, carried, explicit")
        if self.fallback not in ("carried", "explicit"):
            raise ValueError(f"no fallback {self.fallback!r}; there are: carried, explicit")
        if not known and levels != "carried":
            raise ValueError(f"{levels} levels need an optimizer that maps are known for; use levels='carried'")
        if self.noise and not moments:
            raise ValueError("a noise limit needs an optimizer with a second moment")
        if self.tolerance_bits is None and not self.noise:
            raise ValueError("tolerance_bits=None needs a noise limit")
        if not 1 <= self.threads <= THREADS_MAX:
            raise ValueError(f"threads are 1 to {THREADS_MAX}, not {self.threads}")

    def rates(self, made: Sequence[torch.optim.Optimizer]) -> Rates:
        """What is known of the optimizers' learning rates. ValueError, TypeError say what is wrong."""
        return Rates(made, self.peak_lr, self.scheduler, self.tolerance_bits or 23)

    def agreed(self, settings: Settings) -> dict[str, Any]:
        """Those that must be equal on all ranks."""
        agreed = {**vars(self), "levels": settings.codec.levels, "scheduler": self.scheduler is not None}
        del agreed["threads"]
        return agreed
