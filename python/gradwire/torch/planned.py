"""Buckets of a plan: which gradients travel together, and how.

`gradwire plan solve` and `gradwire plan export` write them (docs/plan-file.md). DDP makes its buckets by size, and anew
after the first backward pass. So the gradients of DDP's buckets are put into those of the plan here, in the first pass
and in all others; a bucket of DDP that is one of the plan's is not copied. planned_ddp() makes DDP with such buckets.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .buckets import Bucket
from .failure import Gate
from .regroup import Regroup
from .transport import Start

log = logging.getLogger("gradwire")

SCHEMAS = ("gradwire-plan/1", "gradwire-buckets/1")
ALGORITHMS = {  # that run what a plan's method names
    "none": ("allreduce",),
    "fp16": ("allreduce",),
    "bf16": ("allreduce", "a2a-ag"),  # where Gloo does not add bf16 the same bytes go by the other way
    "gradwire": ("a2a-ag",),
    "thc": ("a2a-ag", "allreduce"),  # of plans that were made when lanes went through Gloo's all-reduce
    "classic": ("allgather", "allreduce"),  # all-reduce: RANDK
}


@dataclass(frozen=True)
class PlanBucket:
    """One message of a plan."""

    names: tuple[str, ...]  # of its parameters
    elems: int
    label: str  # the method as the plan names it
    kind: str  # of a codec: a key of ALGORITHMS
    options: Mapping[str, Any] = field(default_factory=dict)  # of the codec


def load(source: str | os.PathLike | Mapping[str, Any], ranks: int | None = None) -> list[PlanBucket]:
    """The buckets of a plan file, of what `plan export` wrote, or of such an object. ranks: those of the process group;
    None: any. ValueError says what is wrong, also with a plan that was made for another number of ranks."""
    if isinstance(source, Mapping):
        root: Any = source
    else:
        with open(source, encoding="utf-8-sig") as file:
            root = json.load(file)
    if not isinstance(root, Mapping) or root.get("schema") not in SCHEMAS:
        raise ValueError(f"not a plan: its schema must be one of {', '.join(SCHEMAS)}")
    machines, made_for = _ranks_of(root)
    if ranks is not None and made_for not in (None, ranks):
        again = f"--ranks {ranks}" if machines == 1 else f"a cluster file of {ranks} ranks, nodes times gpus"
        raise ValueError(f"the plan is for {made_for} ranks, the process group has {ranks}: solve it with {again}")
    groups = root.get("groups")
    if not isinstance(groups, list) or not groups:
        raise ValueError("the plan has no groups")
    buckets = [_bucket(number, entry) for number, entry in enumerate(groups)]
    names = [name for bucket in buckets for name in bucket.names]
    if len(set(names)) != len(names):
        raise ValueError("the plan has a parameter twice")
    return buckets


def _ranks_of(root: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """For how many machines and ranks a plan was made; None if it does not say."""
    problem = root.get("problem")
    if isinstance(problem, Mapping) and isinstance(problem.get("nodes"), int) and isinstance(problem.get("gpus"), int):
        return problem["nodes"], problem["nodes"] * problem["gpus"]
    ranks = root.get("ranks")  # of an exported plan
    return None, ranks if isinstance(ranks, int) else None


def _bucket(number: int, entry: Any) -> PlanBucket:
    where = f"plan, bucket {number}"
    names = entry.get("names") if isinstance(entry, Mapping) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where}: it has no names of parameters")
    if "option" in entry:
        raise ValueError(f"{where}: plans of option trees do not run")
    label = str(entry.get("codec", "fp32"))
    kind, options = _codec(where, label, entry.get("options") or {})
    algorithm = entry.get("algorithm")
    if algorithm is not None and algorithm not in ALGORITHMS[kind]:
        raise ValueError(f"{where}: {label} runs as {ALGORITHMS[kind][0]}, not as {algorithm}")
    return PlanBucket(tuple(names), int(entry.get("elems", -1)), str(entry.get("method", label)), kind, options)


def _codec(where: str, label: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Kind and options: `options` of the plan's codec, whose "codec" is the kind; by name where it does not say."""
    options = dict(given)
    kind = options.pop("codec", None)
    dial = re.fullmatch(r"gcomp-t(\d+)", label)
    if kind is None and label in ("fp32", "none", "plain"):
        kind = "none"
    elif kind is None and dial:
        kind = "gradwire"
        options.setdefault("tolerance_bits", int(dial[1]))
    elif kind is None and label == "gcomp":
        kind = "gradwire"
        options.setdefault("quantum_mode", "explicit")
    elif kind is None:
        kind = label
    if kind not in ALGORITHMS:
        raise ValueError(f"{where}: codec {label}: the hook has {', '.join(ALGORITHMS)}; name one in its options")
    return kind, options


def digest(buckets: Iterable[PlanBucket]) -> int:
    """The same number on all ranks that have the same plan, as far as 64 bits can say."""
    text = "\n".join(f"{b.kind} {sorted(b.options.items())} {b.names}" for b in buckets).encode()
    return zlib.crc32(text) << 32 | zlib.adler32(text)


def names_of(params: Iterable[torch.Tensor], model: torch.nn.Module | None) -> dict[int, str]:
    """Name of each parameter by its id: that of the model, else parameter.N in the order of the optimizer."""
    names = {id(param): f"parameter.{number}" for number, param in enumerate(params)}
    if model is not None:
        names.update({id(param): name for name, param in model.named_parameters()})
    return names


class Planned(Regroup):
    """The buckets of a plan. run: (number of the bucket, bucket) -> future. names: of the parameters, by id."""

    def __init__(
        self,
        buckets: list[PlanBucket],
        run: Callable[[int, Bucket], torch.futures.Future],
        names: Callable[[], dict[int, str]],
        gate: Gate,
    ) -> None:
        super().__init__([bucket.names for bucket in buckets], run, lambda param: names().get(id(param)), gate)
        self.misfits: set[tuple[int, int]] = set()  # buckets of the plan that one of DDP's has gradients of
        self._buckets, self._passes, self._started = buckets, 0, 0

    def begin(self) -> None:
        super().begin()
        self._started = 0

    def finish(self) -> None:
        self._passes += 1
        super().finish()

    def _unknown(self, name: str | None) -> str:
        known = name is not None and not name.startswith("parameter.")
        hint = "" if known else "; with names of a model in the plan, give model="
        return f"gradwire: the plan has no bucket for the parameter {name or 'of no optimizer'}{hint}"

    def _absent(self, names: list[str]) -> str:
        return f"gradwire: the plan has parameters that DDP does not reduce: {_few(names)}"

    def _taken(self, groups: list[int]) -> None:
        """Says once where DDP's buckets do not cut as the plan does."""
        if self._passes == 0:  # DDP has not made its last buckets
            return
        for pair in zip(groups, groups[1:]):
            if pair in self.misfits:
                continue
            self.misfits.add(pair)
            log.warning(
                "gradwire: a bucket of DDP has gradients of the plan's buckets %d and %d: the first waits for the "
                "last of them; make the model with gradwire.torch.planned_ddp(module, plan), and where backprop has "
                "another order than the plan with find_unused_parameters=True",
                *pair,
            )

    def _complete(self, number: int, length: int) -> None:
        if self._buckets[number].elems not in (-1, length):
            raise ValueError(f"gradwire: bucket {number} of the plan is for {self._buckets[number].elems} values")
        if number != self._started and self._passes == 1:
            log.warning(
                "gradwire: bucket %d of the plan is complete before bucket %d: backprop has another order",
                number,
                self._started,
            )
        self._started += 1


def planned_ddp(
    module: torch.nn.Module, plan: str | os.PathLike | Mapping[str, Any] | None = None, **options: Any
) -> torch.nn.parallel.DistributedDataParallel:
    """DistributedDataParallel(module, **options) with the buckets of a plan; without a plan, one gradient in each.

    Parameters are those of the plan's names: of the module, or parameter.N in its order, which is that of the optimizer
    if that has one group of all parameters. Where backprop has another order than the plan, DDP may cut other buckets
    after its first pass, whose gradients are then copied; with find_unused_parameters=True the plan's stay.
    A collective call.
    """
    if plan is not None:
        mesh = options.get("device_mesh")  # torch 2
        group = mesh.get_group(mesh_dim=0) if mesh is not None else options.get("process_group") or dist.group.WORLD
        with Start("planned_ddp", group, None, None) as start:  # in DDP the others would wait for a rank
            buckets = load(plan, dist.get_world_size(group) if dist.is_initialized() else None)
            names = _names_in(module, buckets)
            start.options = {"plan": digest(buckets)}
        return _with_buckets(module, buckets, names, options)
    # bucket_cap_mb alone does not do it in torch 1.13, whose first bucket is 1 MiB.
    first = dist._DEFAULT_FIRST_BUCKET_BYTES
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1
    try:
        return torch.nn.parallel.DistributedDataParallel(module, **{"bucket_cap_mb": 2e-6, **options})
    finally:
        dist._DEFAULT_FIRST_BUCKET_BYTES = first


def _names_in(module: torch.nn.Module, buckets: list[PlanBucket]) -> dict[int, str]:
    """Names of the module's parameters, by id, as the plan has them. ValueError if it is a plan of another module."""
    numbers = all(re.fullmatch(r"parameter\.\d+", name) for bucket in buckets for name in bucket.names)
    names = names_of(module.parameters(), None if numbers else module)
    sizes = {names[id(param)]: param.numel() for param in module.parameters() if param.requires_grad}
    odd = sizes.keys() ^ {name for bucket in buckets for name in bucket.names}
    if odd:
        raise ValueError(f"gradwire: parameters that only the plan or only the module has: {_few(sorted(odd))}")
    for number, bucket in enumerate(buckets):
        held = sum(sizes[name] for name in bucket.names)
        if bucket.elems not in (-1, held):
            hint = "; numbers are those of the optimizer: record with model=" if numbers else ""
            raise ValueError(f"gradwire: bucket {number} of the plan is for {bucket.elems} values, not {held}{hint}")
    return names


def _with_buckets(
    module: torch.nn.Module, buckets: list[PlanBucket], names: Mapping[int, str], options: Mapping[str, Any]
) -> torch.nn.parallel.DistributedDataParallel:
    """DDP takes no buckets: it asks a function for them, and makes others by size after the first backward pass, from
    gradients in the order in which they came. By sizes it makes the same again for most plans. For others it gets
    find_unused_parameters, with which it keeps what it has: then a small all-reduce more ends each backward pass, and
    its C++ code warns once, past Python's filters."""

    def assign(params: list[torch.Tensor], *_: Any) -> tuple[list[list[int]], list[int]]:
        places = {names[id(param)]: place for place, param in enumerate(params)}
        cuts = [[places[name] for name in bucket.names] for bucket in reversed(buckets)]  # DDP reverses them
        return cuts, [max(1, sum(params[i].numel() * params[i].element_size() for i in cut)) for cut in cuts]

    sizes = {names[id(param)]: param.numel() * param.element_size() for param in module.parameters()}
    kinds = {(param.dtype, param.device) for param in module.parameters() if param.requires_grad}
    by_size = _by_size([[sizes[name] for name in bucket.names] for bucket in buckets]) if len(kinds) == 1 else None
    first, more = by_size or (dist._DEFAULT_FIRST_BUCKET_BYTES, {"find_unused_parameters": True})
    options = {**options, **more}
    original = dist._compute_bucket_assignment_by_size, dist._DEFAULT_FIRST_BUCKET_BYTES
    dist._compute_bucket_assignment_by_size, dist._DEFAULT_FIRST_BUCKET_BYTES = assign, first
    try:
        return torch.nn.parallel.DistributedDataParallel(module, **options)
    finally:
        dist._compute_bucket_assignment_by_size, dist._DEFAULT_FIRST_BUCKET_BYTES = original


def _by_size(cuts: list[list[int]]) -> tuple[int, dict[str, Any]] | None:
    """Bytes of DDP's first bucket, and its options, with which it cuts parameters of these bytes so again. None if it
    does not."""
    if os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1":  # torch 2 then makes buckets from the last gradient on
        return None
    if "bucket_cap_mb_list" in inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters:
        limits = _limits(cuts)
        first = dist._DEFAULT_FIRST_BUCKET_BYTES  # not used
        return (first, {"bucket_cap_mb_list": [limit / (1 << 20) for limit in limits]}) if limits else None
    caps = _caps(cuts) if int(torch.__version__.split(".")[0]) == 1 else None  # torch 2 without a list takes one size
    return (caps[0], {"bucket_cap_mb": caps[1] / (1 << 20)}) if caps else None


def _limits(cuts: list[list[int]]) -> list[int] | None:
    """The size of each bucket with which DDP cuts parameters of these sizes so: it closes a bucket that has as many
    bytes. None if there are none."""
    if not all(cut[-1] for cut in cuts[:-1]):  # closed before its last parameter
        return None
    return [*map(sum, cuts[:-1]), sum(cuts[-1]) + 1]  # the last bucket ends with the model


def _caps(cuts: list[list[int]]) -> tuple[int, int] | None:
    """Sizes of the first bucket and of all others with which DDP cuts parameters of these sizes so: it closes a bucket
    that has as many bytes. None if there are none."""
    others = cuts[1:-1] or cuts[1:] or [[1]]  # the last bucket may be smaller
    caps = sum(cuts[0]), min(map(sum, others))
    if min(caps) < 1:
        return None
    for number, cut in enumerate(cuts):
        reached = [sum(cut[: i + 1]) >= caps[min(number, 1)] for i in range(len(cut))]
        if any(reached[:-1]) or not (reached[-1] or number == len(cuts) - 1):
            return None
    return caps


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
