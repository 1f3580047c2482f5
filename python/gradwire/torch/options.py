"""Options of the codec and the engine, which DDP's hook and Communicator share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

import gradwire.gcomp
import gradwire.maps
from gradwire.gcomp import Options

from . import given, optimizers
from ._pool import ALGORITHMS, THREADS_MAX
from .engine import Settings
from .rates import UPDATE_BITS, Rates, peaks_of

_NOISE = 0.125  # beside a tolerance: what rounding leaves in a second moment stays when the rate has risen
DEFAULT_TOLERANCE_BITS = 14
DEFAULT_NMSE = 1e-3


@dataclass(frozen=True, kw_only=True)
class CodecOptions:
    """How gradients are encoded and exchanged.

    tolerance_bits: 1..23, an encode moves no parameter by more than 2^-tolerance_bits of it, in this update and those
    that a momentum carries it to; "auto": 14 where the optimizer is known. One that is given is kept or refused:
    ValueError for an optimizer that maps are not known for. Carried quanta keep it for the median of a block of values,
    not for each parameter. noise: 0, or 2^-8..1, limit of the noise by the second moment (all but SGD); with
    tolerance_bits=None it alone counts, else the smaller quantum does; None: 1/8 beside a tolerance where there is a
    second moment. peak_lr: the largest learning rate of the training, one for all parameter groups or one for each;
    scheduler: of torch, or a list of them for several optimizers, whose rates to come are computed. Without both the
    largest rate seen counts, and the momentum limits quanta too. quantum_mode: "derived" (receivers know the quanta
    from their own optimizer state), "carried" or "explicit"; "auto": derived for parameters whose optimizer is known,
    else carried. dead_zone: values below their quantum become 0 or one quantum; None: where `noise` is given or there
    is no second moment. nmse: carried quanta of an unknown optimizer: share of error that a message adds, about; None:
    1e-3. Given together, tolerance_bits is for the known optimizers of a list and nmse for the others. rounding,
    checksum: as in gradwire.Options.
    contribution_bits: how much finer contributions are than their sum. algorithm: "a2a": each rank sends to the owners
    of pieces, and they send the sums to all; "ring": each rank sends to the next one alone, and every rank adds a
    rounding. fallback: quantum mode while the ranks' states differ, "carried" or "explicit". threads: of the native
    pool. piece_len: values of a message; None: 2^16 to 2^18, so that a rank's share of a bucket is four messages or
    more where possible. debug: results are compared across ranks.
    """

    tolerance_bits: int | str | None = "auto"
    noise: float | None = None
    peak_lr: float | Sequence[float] | None = None
    scheduler: Any = None
    quantum_mode: str = "auto"
    dead_zone: bool | None = None
    nmse: float | None = None
    rounding: str = "stochastic"
    checksum: bool = True
    contribution_bits: int = 0
    algorithm: str = "a2a"
    fallback: str = "carried"
    threads: int = 2
    piece_len: int | None = None
    debug: bool = False

    def settings(self, made: Sequence[torch.optim.Optimizer]) -> Settings:
        """Settings of an engine for gradients of these optimizers. ValueError says what is wrong."""
        others = [one for one in made if not optimizers.family(one)]
        made = [one for one in made if optimizers.family(one)]
        known = bool(made)
        moments = known and not others and all(optimizers.has_second_moment(one) for one in made)
        quantum_mode = self.quantum_mode if self.quantum_mode != "auto" else "derived" if known else "carried"
        self._check_ranges()
        self._check(quantum_mode, known, others, moments)
        self._check_groups(made)
        tolerance_bits = DEFAULT_TOLERANCE_BITS if self.tolerance_bits == "auto" else self.tolerance_bits
        limits = gradwire.maps.Limits(
            # without a tolerance: only where the bytes of maps begin
            tolerance_bits=23 if tolerance_bits is None else tolerance_bits,
            noise=(_NOISE if any(map(optimizers.has_second_moment, made)) else 0.0)
            if self.noise is None
            else self.noise,
            noise_only=tolerance_bits is None,
            update_bits=0 if tolerance_bits is None else UPDATE_BITS,
        )
        dead_zone = self.dead_zone
        if dead_zone is None:
            none_has_moments = known and not any(map(optimizers.has_second_moment, made))
            dead_zone = quantum_mode == "carried" or bool(self.noise) or none_has_moments

        def codec(name: str, known: bool = known) -> Options:
            return Options(
                quantum_mode=name,
                rounding=self.rounding,
                tolerance_bits=limits.tolerance_bits,
                dead_zone=dead_zone if name == "derived" else name == "carried",
                target_nmse=self._nmse if name == "carried" and not known else None,
                checksum=self.checksum,
            )

        for name in (quantum_mode, self.fallback):
            gradwire.gcomp.Codec(codec(name))  # raises what is out of range
        gradwire.maps.Rule(gradwire.maps.Optimizer(kind="adam" if limits.noise else "sgd", lr=1.0), limits=limits)
        settings = Settings(
            codec=codec(quantum_mode),
            fallback=codec(self.fallback),
            limits=limits,
            maps=known,
            agree=quantum_mode == "derived",
            contribution_bits=self.contribution_bits if quantum_mode != "explicit" else 0,
            algorithm=self.algorithm,
            piece_len=self.piece_len,
            threads=self.threads,
            debug=self.debug,
        )
        if not (known and others):
            return settings
        unknown = replace(
            settings, codec=codec("carried", False), fallback=codec(self.fallback, False), maps=False, agree=False
        )
        return replace(settings, unknown=unknown)

    def notice(self, made: Sequence[torch.optim.Optimizer]) -> str | None:
        """What is used for optimizers that no bound is known for, in words."""
        others = sorted({given.name_of(one) for one in made if not optimizers.family(one)})
        if not others:
            return None
        known = sorted({type(one).__name__ for one in made if optimizers.family(one)})
        kept = f" (those of {', '.join(known)} keep theirs)" if known else ""
        return (
            f"no bound for each parameter is known for {', '.join(others)}: its gradients travel with carried quanta "
            f"and an error of nmse={self._nmse:g} in each message{kept}"
        )

    def _check_ranges(self) -> None:
        """ValueError names option, value and range."""
        bits, noise = self.tolerance_bits, self.noise
        if not (bits is None or bits == "auto" or _is_int(bits) and 1 <= bits <= 23):
            raise ValueError(f"tolerance_bits={bits!r}; it is 1 to 23, 'auto' (14), or None for the noise limit alone")
        if noise and not (_is_number(noise) and 2**-8 <= noise <= 1):
            raise ValueError(f"noise={noise!r}; it is 0, or 2^-8 to 1")
        if not (self.nmse is None or _is_number(self.nmse) and 0 < self.nmse <= 1):
            raise ValueError(f"nmse={self.nmse!r}; it is above 0 and at most 1, or None (0.001)")
        if not (_is_int(self.threads) and 1 <= self.threads <= THREADS_MAX):
            raise ValueError(f"threads={self.threads!r}; it is 1 to {THREADS_MAX}")
        if not (_is_int(self.contribution_bits) and self.contribution_bits >= 0):
            raise ValueError(f"contribution_bits={self.contribution_bits!r}; it is an integer from 0")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"no algorithm {self.algorithm!r}; there are: {', '.join(ALGORITHMS)}")
        if not (self.piece_len is None or _is_int(self.piece_len) and self.piece_len > 0):
            raise ValueError(f"piece_len={self.piece_len!r}; it is an integer from 1, or None")

    @staticmethod
    def _check_groups(made: Sequence[torch.optim.Optimizer]) -> None:
        for one in made:
            for group in one.param_groups:
                wrong = optimizers.refusal(one, group)
                if wrong:
                    raise ValueError(f"gradwire: {wrong}")

    def _check(self, quantum_mode: str, known: bool, others: Sequence[torch.optim.Optimizer], moments: bool) -> None:
        names = ", ".join(given.name_of(one) for one in others) or "no optimizer"
        if quantum_mode not in ("derived", "carried", "explicit"):
            raise ValueError(f"no quantum mode {quantum_mode!r}; there are: auto, derived, carried, explicit")
        if self.fallback not in ("carried", "explicit"):
            raise ValueError(f"no fallback {self.fallback!r}; there are: carried, explicit")
        unknown = not known or bool(others)
        if unknown and self.quantum_mode not in ("auto", "carried"):
            raise ValueError(
                f"quantum_mode={self.quantum_mode!r} needs an optimizer that maps are known for, not {names}; "
                f"quantum_mode='auto' takes carried ones there"
            )
        if self.noise and not moments:
            raise ValueError(
                f"noise={self.noise:g}: a noise limit needs optimizers with a second moment (not SGD) "
                f"alone{f', not {names}' if unknown else ''}"
            )
        if self.tolerance_bits is None and not self.noise:
            raise ValueError("tolerance_bits=None needs a noise limit")
        if unknown and self.tolerance_bits != "auto" and not (known and self.nmse is not None):
            whom = f"for {names}" if others else "without an optimizer"
            had = (
                f"give nmse={DEFAULT_NMSE:g}, too: then its gradients travel with carried quanta and that error in "
                f"each message, and only those of other optimizers keep the tolerance"
                if known
                else f"leave it out: then gradients travel with carried quanta and an error of nmse={self._nmse:g} in "
                f"each message"
            )
            raise ValueError(
                f"tolerance_bits={self.tolerance_bits}: no bound for each parameter is known {whom}; {had}"
            )
        if not unknown and self.nmse is not None:
            raise ValueError(
                f"nmse={self.nmse:g}: it counts for optimizers that maps are not known for; the error of the others' "
                f"gradients follows from tolerance_bits and noise"
            )

    @property
    def _nmse(self) -> float:
        return DEFAULT_NMSE if self.nmse is None else self.nmse

    def rates(self, made: Sequence[torch.optim.Optimizer]) -> Rates:
        """What is known of the optimizers' learning rates. ValueError, TypeError say what is wrong."""
        bounded = [optimizers.family(one) is not None for one in made]
        return Rates(made, peaks_of(self.peak_lr), self.scheduler, bounded=bounded, unwrap=given.unwrapped)

    def agreed(self, settings: Settings) -> dict[str, Any]:
        """Those that must be equal on all ranks."""
        agreed = {**vars(self), "quantum_mode": settings.codec.quantum_mode, "unknown": settings.unknown is not None}
        given_ = self.scheduler if isinstance(self.scheduler, (list, tuple)) else [self.scheduler]
        agreed["scheduler"] = ", ".join(type(one).__name__ for one in given_ if one is not None)
        agreed["peak_lr"] = peaks_of(self.peak_lr)
        if self.tolerance_bits == "auto":
            agreed["tolerance_bits"] = DEFAULT_TOLERANCE_BITS
        agreed["nmse"] = self._nmse
        del agreed["threads"]
        return agreed


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_int(value)
