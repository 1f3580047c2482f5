"""Codecs of the options of a tree: a part of a message as a frame, and frames added up.

An option encodes once or several times, at positions 0, 1, ...: first gradients, or their means inside a machine, then
means that other ranks' frames are in. Every position of every part has random numbers and error memory of its own. A
part with a value that a codec cannot encode (NaN, infinity) is an empty frame, which decodes to NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch

import gradwire.classic
import gradwire.gcomp
import gradwire.thc
from gradwire import _constants
from gradwire._library import lib
from gradwire.errors import Error

from .buckets import Bucket
from .casts import DTYPES
from .classic import check_optimizers
from .gcomp import known_of, places_of
from .level_maps import map_of
from .optimizers import ParamRegistry, Place
from .options import CodecOptions
from .states import Undo, check_nonfinite

_CLASSIC = ("ratio", "warmup_steps", "nonfinite")  # besides fields of gradwire.classic.Options
_THC = ("bits", "error_feedback", "nonfinite")
_WORD = (1 << 64) - 1


@dataclass
class Part:
    """What is encoded: values low to high of a bucket, for the position-th time. scale: of the wire, as in
    gradwire.maps.Rule. rank: for random numbers, another one for each of the frames that are added up; of a mean that
    several machines have, the same on all of them."""

    bucket: Bucket
    key: str  # of the bucket, the same in each step
    rank: int
    low: int
    high: int
    position: int
    scale: float
    undo: Undo = field(default_factory=Undo)

    @property
    def len(self) -> int:
        return self.high - self.low

    def seed(self, of_run: int) -> int:
        """Of random numbers: of this position of these values."""
        text = f"{self.key} {self.position} {self.low}".encode()
        return (of_run * 0x9E3779B97F4A7C15 + (lib.gw_crc32c(0, text, len(text)) << 20)) & _WORD


class LevelCodec:
    """A codec. memory: what error feedback keeps, by bucket, position and part; encode() leaves the next one with the
    part's Undo. For any thread, as long as each part is encoded by one."""

    def __init__(self) -> None:
        self.memory: dict[str, torch.Tensor] = {}

    @property
    def has_memory(self) -> bool:
        return False

    def bound(self, length: int) -> int:
        """Bytes that suffice for the frame of so many values."""
        raise NotImplementedError

    def encode(self, values: np.ndarray, part: Part) -> np.ndarray:
        """A frame of fp32 values."""
        raise NotImplementedError

    def add(self, frame: np.ndarray, out: np.ndarray, scale: float) -> None:
        """out += scale * the frame's values, as many as out has."""
        raise NotImplementedError

    def _memory(self, part: Part, name: str) -> np.ndarray:
        """To be changed in this step."""
        key = f"{part.key}/{part.position}/{part.low}/{name}"
        made = part.undo.draft(self.memory, key, part.len)
        if made.numel() != part.len:
            raise ValueError(f"gradwire: the state that was loaded has {made.numel()} values for {key}")
        return made.numpy()


class Cast(LevelCodec):
    """fp16 or bf16."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._dtype = DTYPES[kind]

    def bound(self, length: int) -> int:
        return 2 * length

    def encode(self, values: np.ndarray, part: Part) -> np.ndarray:
        return torch.from_numpy(values).to(self._dtype).view(torch.uint8).numpy()

    def add(self, frame: np.ndarray, out: np.ndarray, scale: float) -> None:
        if frame.size != 2 * out.size:
            raise ValueError(f"gradwire: a frame of {frame.size} bytes for {out.size} values")
        values = torch.from_numpy(frame.copy()).view(self._dtype)  # a frame may begin at any byte
        torch.from_numpy(out).add_(values.float(), alpha=scale)


class Gcomp(LevelCodec):
    """GCOMP with carried or explicit quanta: by the optimizer's state where maps are known for it, else by nmse."""

    def __init__(self, options: CodecOptions, owners: Sequence[torch.optim.Optimizer], registry: ParamRegistry) -> None:
        super().__init__()
        if options.quantum_mode not in ("auto", "carried", "explicit"):
            raise ValueError(
                f"quantum_mode={options.quantum_mode!r}: options of a tree have carried or explicit quanta, which "
                f"any rank decodes"
            )
        carried = replace(options, quantum_mode="carried" if options.quantum_mode == "auto" else options.quantum_mode)
        self._settings, self._registry = carried.settings(owners), registry
        self._codec = gradwire.gcomp.Codec(self._settings.codec)
        self._unknown = gradwire.gcomp.Codec(self._settings.unknown.codec) if self._settings.unknown else None
        self._places: dict[str, list[Place]] = {}
        self._step: int | None = None  # whose groups the registry has: their dicts are new after load_state_dict()

    def bound(self, length: int) -> int:
        return max(one.bound(length) for one in (self._codec, self._unknown) if one is not None)

    def encode(self, values: np.ndarray, part: Part) -> np.ndarray:
        bucket = part.bucket
        if self._step != bucket.step:
            self._step = bucket.step
            self._registry.refresh()
        stream = gradwire.gcomp.Stream(
            seed=part.seed(self._registry.seed),
            first_element=part.low,
            step_index=bucket.step & 0xFFFFFFFF,
            rank=part.rank,
            hop=part.position,
        )
        room = np.empty(self.bound(part.len), np.uint8)
        if not self._settings.maps or self._unknown and not all(known_of(self._registry, bucket.params)):
            made = (self._unknown or self._codec).encode(values, stream=stream, out=room)
        else:
            if part.key not in self._places:
                self._places[part.key] = places_of(self._registry, bucket)
            wanted = part.low, part.high
            made_map = map_of(self._registry, self._places[part.key], wanted, part.scale, self._settings.limits)
            made = self._codec.encode(values, map=made_map, stream=stream, out=room)
        return room[: len(made)]

    def add(self, frame: np.ndarray, out: np.ndarray, scale: float) -> None:
        self._codec.decode_add(frame, out, scale=scale)


class Thc(LevelCodec):
    """THC's frames, each with norms of its own: what is added up is decoded first."""

    def __init__(self, options: Mapping[str, Any], size: int, seed: Callable[[], int]) -> None:
        super().__init__()
        unknown = set(options) - set(_THC)
        if unknown:
            raise ValueError(f"thc has no option {', '.join(sorted(unknown))} in an option of a tree")
        self.nonfinite = options.get("nonfinite", "propagate")
        check_nonfinite(self.nonfinite)
        self._seed = seed
        self._codec = gradwire.thc.Codec(
            gradwire.thc.options(
                options.get("bits", 4),
                size,
                seed=seed(),
                error_feedback=options.get("error_feedback", True),
                nonfinite=self.nonfinite,
            )
        )

    @property
    def has_memory(self) -> bool:
        return self._codec.options.error_feedback

    def bound(self, length: int) -> int:
        codec = self._codec  # another thread may replace it
        return lib.gw_thc_frame_bound(codec.handle, length)

    def encode(self, values: np.ndarray, part: Part) -> np.ndarray:
        seed = self._seed()
        if self._codec.options.seed != seed:
            self._codec = gradwire.thc.Codec(replace(self._codec.options, seed=seed))
        codec = self._codec
        error = self._memory(part, "error") if codec.options.error_feedback else None
        # Ranks of one part, and positions, need other rotations no more than steps do. Other parts and messages may
        # have the same noise: no value of one is added to a value of another.
        about = gradwire.thc.Part(round=(part.bucket.step * 16 + part.position) & 0xFFFFFFFF, rank=part.rank)
        patterns = codec.norms(values, about, error=error)
        return np.frombuffer(codec.encode_frame(values, patterns, about, error=error), np.uint8)

    def add(self, frame: np.ndarray, out: np.ndarray, scale: float) -> None:
        torch.from_numpy(out).add_(torch.from_numpy(gradwire.thc.decode_frame(frame, len_max=out.size)), alpha=scale)


class Classic(LevelCodec):
    """A scheme of gradwire.classic. Momentum is that of gradients: means that others' frames are in are encoded without
    it, and signs of means by signs alone."""

    def __init__(
        self, options: Mapping[str, Any], owners: Sequence[torch.optim.Optimizer], seed: Callable[[], int]
    ) -> None:
        super().__init__()
        given = dict(options)
        scheme = given.pop("scheme")
        known = {*_CLASSIC, *(one.name for one in fields(gradwire.classic.Options))} - {"scheme", "dtype", "seed"}
        if set(given) - known:
            unknown = ", ".join(sorted(set(given) - known))
            raise ValueError(f"classic has no option {unknown} in an option of a tree")
        self._ratio, self._warmup_steps, self.nonfinite = (
            given.pop(name, default) for name, default in zip(_CLASSIC, (0.01, 0, "propagate"))
        )
        if not 0 < self._ratio <= 1:
            raise ValueError(f"a ratio is above 0 and at most 1, not {self._ratio}")
        check_nonfinite(self.nonfinite)
        check_optimizers(scheme, list(owners))
        self._options = gradwire.classic.options(scheme, **{"checksum": True, **given})
        self._again = self._options
        if scheme == "dgc":
            self._again = replace(self._options, momentum=0.0, nesterov=False, momentum_mask=False, clip=0.0)
        elif scheme == "signum":
            self._again = gradwire.classic.options("signsgd", checksum=self._options.checksum)
        self._seed = seed
        self._codecs: dict[tuple[str, int, int], gradwire.classic.Codec] = {}
        self._like = [gradwire.classic.Codec(one) for one in (self._options, self._again)]  # raises what is wrong

    @property
    def has_memory(self) -> bool:
        return any(one.has_residual or one.has_momentum for one in self._like)

    def bound(self, length: int) -> int:
        """In a warm-up every value is sent."""
        sparse = self._options.scheme in gradwire.classic.SPARSE
        step = gradwire.classic.Step(keep_len=self._keep_len(length, 0) if sparse else 0)
        return max(one.bound(length, step) for one in self._like) if length else 0

    def _keep_len(self, length: int, round: int) -> int:
        ratio = gradwire.classic.warmup_ratio(self._ratio, round, self._warmup_steps)
        return gradwire.classic.keep_len(length, ratio)

    def encode(self, values: np.ndarray, part: Part) -> np.ndarray:
        codec = self._codec(part)
        sparse = codec.options.scheme in gradwire.classic.SPARSE
        round = part.bucket.step
        step = gradwire.classic.Step(
            keep_len=self._keep_len(part.len, round) if sparse else 0, round=round & 0xFFFFFFFF, rank=part.rank
        )
        state = gradwire.classic.State(
            self._memory(part, "residual") if codec.has_residual else None,
            self._memory(part, "momentum") if codec.has_momentum else None,
        )
        room = np.empty(codec.bound(part.len, step), np.uint8)
        try:
            return room[: len(codec.encode(values, step, state=state, out=room))]
        except Error as error:
            if error.status != _constants.GW_ERR_NONFINITE or self.nonfinite == "error":
                raise
            return room[:0]

    def _codec(self, part: Part) -> gradwire.classic.Codec:
        seed = part.seed(self._seed())
        key = (part.key, part.position, seed)
        if key not in self._codecs:
            options = self._again if part.position else self._options
            self._codecs[key] = gradwire.classic.Codec(replace(options, seed=seed))
        return self._codecs[key]

    def add(self, frame: np.ndarray, out: np.ndarray, scale: float) -> None:
        gradwire.classic.decode_add(frame, out, scale=scale, len_max=out.size)


def make(
    kind: str,
    options: Mapping[str, Any],
    usual: Callable[[], CodecOptions],
    owners: Sequence[torch.optim.Optimizer],
    registry: ParamRegistry,
    size: int,
) -> LevelCodec:
    """The codec of a plan's kind and options. usual: of GCOMP the hook's options with those of the bucket. owners: the
    optimizers of its parameters. ValueError says what is wrong."""
    if kind in DTYPES:
        return Cast(kind)
    if kind == "gradwire":
        return Gcomp(usual(), owners, registry)
    if kind == "none":
        raise ValueError("values as they are have no codec")
    if kind == "thc":
        return Thc(options, size, lambda: registry.seed)  # a state that is loaded has one
    return Classic(options, owners, lambda: registry.seed)
