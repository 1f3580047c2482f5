"""Measures link and codecs of a running job, as inputs of `gradwire plan solve`.

    with ddp.no_sync():
        loss(ddp).backward()                    # gradients of each rank alone
    def backward():                             # forward and backward, of the next batch
        optimizer.zero_grad()
        loss(ddp).backward()
    found = gradwire.torch.probe.measure(optimizer, {"bf16": {}, "gcomp-t14": {}}, state=state, backward=backward)
    found.write("folder")                       # cluster.json and codecs.json, by rank 0

To be called by all ranks at once, after some steps: gradients and optimizer state are real, so sizes of messages are,
too. What is measured is what the hook runs. What the numbers mean:

- link: all-reduces of float32. A byte: the time of a lone large one. A startup: what one more small one takes while
  others are under way, as those of a step are. One of GCOMP's messages takes processor time, which its curves have, and
  nothing beyond that could be told from noise: with GCOMP among the codecs the startup is 0.5 us, for all of them.
- With fewer cores than a rank's backward pass and the codec's threads need, codecs work on the cores of the backward
  pass ("gpu" in the cost file, the device that computes gradients). Then enc and dec are all CPU time that a message
  takes of its process, by the share of a core that a rank has: enc what delays the message (the encoder, half of what
  is no stage of the codec: transport, hops between threads), dec the rest (sums, decoder, the other half).
- Beside a backward pass both take more CPU time than alone: caches are shared, threads wait for cores. With `backward`
  enc and dec are those of a lone message times the ratio of the two: the CPU time of a backward pass with these
  messages, without that of one that sends nothing, over that of the same messages alone (at least 0.5).
- With more cores codecs have their own ("cpu"): enc and dec are CPU time of these stages.
- payload: of GCOMP with `backward` the bytes that the job's own buckets send, mean over the passes; without it those of
  the largest of `lens`. Of the others what the codec says.
- The files are for the number of ranks that measured them: sums, and the lanes of THC, depend on it.
- Maps are built before the backward pass: record_backward() has them in its times.
- plain: the all-reduce of gradients as they are, as a codec that takes CPU time, too, which the planner's own fp32 does
  not.
- sum: what a lone message takes beyond that and its bytes: the owner's sums, as far as they are not hidden behind
  transport.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from . import planned, staging
from .backend_choice import exactly
from .buckets import Bucket
from .casts import DTYPES
from .ddp import DdpState
from .recording import Message, Recording, check_writable
from .sums import bits_a_value

LENS = (1 << 14, 1 << 18, 1 << 22, 1 << 24)
_MIN_US = 0.001
_HEADER = 64  # bytes of a message that do not grow with it


@dataclass
class Measured:
    """cluster, codecs: objects of a cluster file and a cost file. rank: of this process. beside: for each codec, CPU
    time of messages beside a backward pass over that of lone ones; 1 if not measured."""

    cluster: dict[str, Any]
    codecs: list[dict[str, Any]]
    rank: int
    beside: dict[str, float]
    about: list[str] = field(default_factory=list)

    def write(self, folder: str | os.PathLike) -> None:
        """cluster.json and codecs.json, by rank 0, which makes the folder."""
        if self.rank == 0:
            at = pathlib.Path(folder)
            at.mkdir(parents=True, exist_ok=True)
            (at / "cluster.json").write_text(json.dumps(self.cluster, indent=1) + "\n", encoding="utf-8")
            document = {"about": self.about, "codecs": self.codecs}
            (at / "codecs.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _check_algorithm(algorithm: str) -> None:
    """What is measured is for plans, and those have no ring."""
    if algorithm != "a2a":
        raise ValueError(f"algorithm={algorithm!r}; the probe measures for plans, which run as 'a2a'")


class _Bench:
    """The state of a hook that is called with buckets of our own."""

    def __init__(self, optimizer: Any, repeats: int, options: dict[str, Any]) -> None:
        self.state = DdpState(optimizer, **{**options, "compress": "always"})
        try:  # when all ranks have the same options
            _check_algorithm(self.state.engine.settings.algorithm)
        except ValueError:
            self.state.close()
            raise
        self.state.engine.timing = True
        self.state.codecs.compressing = True
        self.repeats, self.size = repeats, self.state.size
        self.cpu = 0.0  # seconds of all threads of the slowest rank's process, mean over the runs of the last time()
        self.params = self._params()
        self.dtype = self.params[0].grad.dtype

    def _params(self) -> list[torch.Tensor]:
        """Those with gradients that messages are made of, last first. ValueError if there are none, or of two types:
        what a value costs would depend on the message."""
        params = [param for param in self.state.engine.registry.params() if param.grad is not None and param.numel()]
        params = [param for param in params if param.grad.device.type == "cpu" and staging.takes(param.grad)]
        of_ranks: list[Any] = [None] * self.size  # they must agree, or one would raise and the others wait
        dist.all_gather_object(of_ranks, {str(param.grad.dtype) for param in params}, group=self.state.group)
        dtypes = set().union(*of_ranks)
        if len(dtypes) == 1 and all(of_ranks):
            return params[::-1]
        self.state.close()
        if len(dtypes) > 1:
            raise ValueError(f"gradients of several types: {', '.join(sorted(dtypes))}")
        raise ValueError(
            "no gradients of float32, float16 or bfloat16 on the CPU that are not sparse, on all ranks or on some: "
            "call this after a backward pass"
        )

    def bucket(self, length: int) -> Bucket:
        """Whole gradients, as the hook gets them, of about so many values: the largest that fit."""
        sizes = sorted({param.numel() for param in self.params})
        limit, held, taken = max(length, sizes[0]), 0, set()
        for param in sorted(self.params, key=lambda param: -param.numel()):
            if held + param.numel() <= limit:
                taken.add(id(param))
                held += param.numel()
        chosen = [param for param in self.params if id(param) in taken]
        flat, at, views = torch.empty(held, dtype=self.dtype), 0, []
        for param in chosen:
            part = flat[at : at + param.numel()]
            views.append(part.as_strided(param.grad.size(), param.stride()))
            views[-1].copy_(param.grad)
            at += param.numel()
        return Bucket(flat, chosen, views)

    @property
    def adds_bf16(self) -> bool:
        """Of casts, which have been measured."""
        return all(caster.adds for caster in self.state.codecs.made["bf16"].values())

    def largest(self, numbers: Sequence[float]) -> list[float]:
        return self.state._slowest(list(numbers))

    def time(self, run: Any, flat: torch.Tensor, more: int = 1, pick: Callable[[list[float]], Any] = min) -> Any:
        """Seconds of the slowest rank, the least of some runs (more times as many) after one that warms up, or what
        `pick` makes of them."""
        original, found, worked = flat.clone(), [], 0.0
        for turn in range(more * self.repeats + 1):
            flat.copy_(original)
            self.largest([0.0])  # all begin at the same time
            begin, cpu = time.perf_counter(), time.process_time()
            run()
            seconds, cpu = self.largest([time.perf_counter() - begin, time.process_time() - cpu])
            if turn:
                found.append(seconds)
                worked += cpu
        self.cpu = worked / len(found)
        return pick(found)


def measure(
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    codecs: Mapping[str, Mapping[str, Any]],
    *,
    lens: Sequence[int] = LENS,
    repeats: int = 3,
    state: DdpState | None = None,
    backward: Callable[[], Any] | None = None,
    **options: Any,
) -> Measured:
    """A collective call. codecs: options by name, as in a plan; a name like gcomp-t14 needs none.

    state, backward: as in record_backward(), to measure messages of the job's own buckets beside backward passes, too:
    their bytes and, where they share cores, processor time; both or none. backward sets gradients to zero first: passes
    follow each other, best each with a batch of its own. The gradients are of no use then.
    options: of DdpState; those that the run will have. ValueError for classic codecs, which
    bench/plan/results_plan_codecs measures, and for algorithm="ring", also that of the state's hook.
    """
    if (state is None) != (backward is None):
        raise ValueError("state and backward: both or none")
    if state is not None:
        _check_algorithm(state.engine.settings.algorithm)
    bench = _Bench(optimizer, repeats, options)
    try:
        buckets = {}
        for length in sorted(lens):
            made = bench.bucket(length)
            buckets[made.values.numel()] = made
        share, cores, local = _share(bench.state)
        alpha, beta = _link(bench, sorted(lens))
        found: list[_Costs] = []
        for name, given in codecs.items():
            kind, parsed = planned._codec("probe", name, given)
            if kind == "classic":
                raise ValueError(
                    f"{name}: the probe does not measure classic codecs; bench/plan/results_plan_codecs does"
                )
            if kind == "thc" and bench.dtype != torch.float32:
                raise ValueError(f"{name}: THC takes gradients of torch.float32, not of {bench.dtype}")
            run = bench.state.codecs.reducer(kind, parsed).start
            rows = [_row(bench, kind, run, made, share) for made in buckets.values()]
            if kind == "gradwire":
                _under_way(bench, run, rows[0])
                alpha = _NO_STARTUP
            found.append(_Costs(name, kind, dict(parsed), rows))
            if backward is not None and (kind == "gradwire" or _shared(bench, share)):
                _beside(bench, state, backward, run, found[-1], _shared(bench, share))
        entries = [_entry(bench, costs, (alpha, beta), share) for costs in found]
    finally:
        bench.state.close()
    nothing = {"latency_us": 0.0, "us_per_kib": 0.0}  # gradients are where the codec is
    link = {"latency_us": round(1e6 * alpha, 3), "us_per_kib": round(1024e6 * beta, 6)}
    cluster = {"ranks": bench.size, **link, "host": nothing}
    about = [
        f"Measured by gradwire.torch.probe: {bench.size} ranks, {local} on this machine, with {cores} cores: "
        f"{share:.2f} cores for a rank."
    ]
    return Measured(cluster, entries, bench.state.rank, {costs.name: costs.beside for costs in found}, about)


def record_backward(
    state: DdpState, path: str | os.PathLike, backward: Callable[[], Any], *, model: Any = None, steps: int = 5
) -> None:
    """Recording of backward passes that send nothing, for `gradwire plan import`: when gradients are there, with the
    forward pass, the maps of a hook that compresses, and DDP's copies into and out of its buckets, but without what
    messages take from the processor.

    A collective call. state: of the hook of the DDP model that `backward` runs, forward and backward; afterwards the
    gradients are those of each rank alone. model: for the names of parameters, as in DdpState. OSError on all ranks,
    before the first pass, if rank 0 cannot write the file.
    """
    _check_path(state, path)
    names = planned.names_of(state.engine.registry.params(), model or state.codecs.model)
    recording = Recording(os.fspath(path), range(steps), state.engine.registry.params(), state._slowest, state.rank)
    state.instead = _as_it_is
    try:
        for step in range(steps):
            state._after_step()  # maps are due, as after a step of the optimizer
            state._slowest([0.0])  # all begin at the same time
            recording.begin(step, names)
            backward()
            recording.step_ended()
    finally:
        state.instead = None
    recording.write()


def _check_path(state: DdpState, path: str | os.PathLike) -> None:
    problem = None
    try:
        if state.rank == 0:
            check_writable(os.fspath(path))
    except Exception as error:  # whatever it is, the others wait for this rank
        problem = error
    if state._slowest([float(problem is not None)])[0]:
        raise problem or OSError(f"gradwire: rank 0 cannot write {path}; its own error says why")


def _as_it_is(bucket: dist.GradBucket) -> torch.futures.Future:
    done = staging.future_of(bucket.buffer())
    done.set_result(bucket.buffer())
    return done


def _beside(bench: _Bench, state: DdpState, backward: Callable[[], Any], run: Any, costs: _Costs, shared: bool) -> None:
    """Sets what messages of the job's own buckets take beside backward passes: bytes, and processor time over that of
    lone messages where they share cores. The bytes are means of several passes: a batch's gradients differ from the
    next one's by several percent."""
    messages: list[Message] = []

    def reduce(bucket: dist.GradBucket) -> torch.futures.Future:
        values = bucket.buffer()
        if not bench.state.codecs.takes(values):
            return _as_it_is(bucket)
        messages.append(Message("", values.numel()))
        return run(Bucket(values, bucket.parameters(), bucket.gradients(), message=messages[-1]))

    more, sizes = [], []
    try:
        for turn in range(bench.repeats + 1):
            cpu = []
            for instead in (_as_it_is, reduce):
                state.instead = instead
                messages.clear()
                bench.largest([0.0])
                begin = time.process_time()
                backward()
                cpu.append(time.process_time() - begin)
            sizes.append(sum(message.stages.get("sent_size", 0.0) for message in messages))
            if turn:
                more.append(cpu[1] - cpu[0])
    finally:
        state.instead = None
    lone = _table([(row.length, row.cpu) for row in costs.rows])
    known = sum(_at(lone, message.elems) for message in messages) / 1e6
    values = sum(message.elems for message in messages)
    extra, sent = bench.largest([statistics.median(more), statistics.mean(sizes)])
    if shared and known > 0:
        costs.beside = max(extra / known, 0.5)
    if values:
        costs.value_size = max(0.0, sent / _sent_share(bench) - _HEADER * len(messages)) / values


def _sent_share(bench: _Bench) -> float:
    """Bytes that a rank sends for each of a payload."""
    return 2 * (bench.size - 1) / bench.size


def _share(state: DdpState) -> tuple[float, int, int]:
    """Cores for a rank, the fewest that one has; cores of this machine's ranks, and their number. Ranks may be bound to
    cores, each to its own or several to the same."""
    host = socket.gethostname() if "GW_LINK" not in os.environ else ""
    ranks: list[Any] = [None] * state.size
    dist.all_gather_object(ranks, (host, sorted(os.sched_getaffinity(0))), group=state.group)
    users = Counter((name, core) for name, cores in ranks for core in cores)
    share = min(sum(1 / users[name, core] for core in cores) for name, cores in ranks)
    return share, sum(name == host for name, _ in users), sum(name == host for name, _ in ranks)


_UNDER_WAY = 8  # small messages at once
_NO_STARTUP = 5e-7


def _link(bench: _Bench, lens: Sequence[int]) -> tuple[float, float]:
    """Seconds of a startup and of a byte through a rank's link."""
    size, group = bench.size, bench.state.group

    def sent(length: int) -> float:
        return 2 * (size - 1) / size * 4 * length

    def some(flats: Sequence[torch.Tensor]) -> None:
        with exactly():
            works = [dist.all_reduce(flat, group=group, async_op=True) for flat in flats]
        for work in works:
            work.wait()

    few, many = max(1, lens[0] // 16), min(lens[-1], 1 << 22)
    flats = torch.ones(_UNDER_WAY, few)
    lone = bench.time(lambda: some(flats[:1]), flats, 10)  # startups are short and easily disturbed
    together = bench.time(lambda: some(flats), flats, 10)
    large = torch.ones(many)
    long = bench.time(lambda: some([large]), large)
    beta = max((long - lone) / (sent(many) - sent(few)) if many > few else long / sent(many), 1e-12)
    return max((together - lone) / (_UNDER_WAY - 1) - beta * sent(few), 1e-6), beta


def _under_way(bench: _Bench, run: Any, row: _Row) -> None:
    """Takes from the row of the smallest size what a lone small message takes of the processor beyond one more of
    several that are under way. Nothing if the model has too few small gradients."""
    params = [param for param in bench.params if param.numel() <= row.length][:_UNDER_WAY]
    if len(params) < 2 or row.cpu <= 0:
        return
    whole = torch.cat([param.grad.detach().flatten() for param in params])
    flats = whole.split([param.numel() for param in params])

    def some(count: int) -> None:
        futures = []
        for param, flat in list(zip(params, flats))[:count]:
            views = [flat.as_strided(param.grad.size(), param.stride())]
            futures.append(run(Bucket(flat, [param], views)))
        for future in futures:
            future.wait()

    bench.time(lambda: some(1), whole, 10)
    lone = bench.cpu
    bench.time(lambda: some(len(params)), whole, 10)
    more = (bench.cpu - lone) / (len(params) - 1)
    left = min(1.0, max(row.cpu - lone + more, 0.05 * row.cpu) / row.cpu)
    row.enc, row.dec, row.cpu = left * row.enc, left * row.dec, left * row.cpu


@dataclass
class _Row:
    """One size: seconds of everything, of encode and decode; bytes of a payload; CPU seconds of its process."""

    length: int
    whole: float
    enc: float
    dec: float
    payload: float = 0.0
    cpu: float = 0.0


@dataclass
class _Costs:
    """What was measured of a codec. beside: factor of its processor time beside a backward pass. value_size: bytes of
    a payload for each value, in the job's own buckets; 0: not measured, or fixed by the codec."""

    name: str
    kind: str
    options: dict[str, Any]
    rows: list[_Row]
    beside: float = 1.0
    value_size: float = 0.0


def _row(bench: _Bench, kind: str, run: Any, made: Bucket, share: float) -> _Row:
    if kind == "gradwire":
        return _codec_row(bench, run, made, share)
    flat = made.values
    enc = dec = payload = 0.0
    if kind != "thc":
        narrow = DTYPES.get(kind, bench.dtype)
        enc = bench.time(lambda: flat.div(bench.size).to(narrow), flat)
        small = flat.to(narrow, copy=True)
        dec = bench.time(lambda: flat.copy_(small), flat)
        payload = _size_of(narrow) * flat.numel()
    whole = bench.time(lambda: run(made).wait(), flat)
    if _shared(bench, share):
        dec = max(dec, bench.cpu / share - enc)
    return _Row(flat.numel(), whole, enc, dec, payload, bench.cpu)


def _codec_row(bench: _Bench, run: Any, made: Bucket, share: float) -> _Row:
    flat = made.values
    messages: list[Message] = []

    def once() -> None:
        messages.append(Message("", flat.numel()))
        run(replace(made, message=messages[-1])).wait()

    whole = bench.time(once, flat)
    names = ("encode_s", "reduce_s", "decode_s", "sent_size")
    medians = [statistics.median(message.stages[name] for message in messages[1:]) for name in names]
    encode, reduce, decode, sent = bench.largest(medians)
    payload = sent / _sent_share(bench)
    if not _shared(bench, share):
        width = min(bench.state.engine.settings.threads, share)
        return _Row(flat.numel(), whole, encode / width, decode / width, payload, bench.cpu)
    other = max(0.0, bench.cpu - encode - reduce - decode)
    enc, dec = encode + other / 2, reduce + decode + other / 2
    return _Row(flat.numel(), whole, enc / share, dec / share, payload, bench.cpu)


def _size_of(dtype: torch.dtype) -> int:
    return torch.empty(0, dtype=dtype).element_size()


def _shared(bench: _Bench, share: float) -> bool:
    """Whether the codec's threads work on the cores of the backward pass."""
    return share < 1 + bench.state.engine.settings.threads


def _entry(bench: _Bench, costs: _Costs, link: tuple[float, float], share: float) -> dict[str, Any]:
    """A codec of a cost file."""
    kind, options, rows, (alpha, beta) = costs.kind, costs.options, costs.rows, link
    ranks = bench.size
    part = (ranks - 1) / ranks
    shared = _shared(bench, share)
    entry: dict[str, Any] = {"name": costs.name, "options": {"codec": kind, **options}}
    adds = kind in ("gradwire", "thc") or (kind == "bf16" and not bench.adds_bf16)
    value_bits = 0.0
    if kind == "thc":  # half of what goes up and comes back: the planner's messages are as long in both
        value_bits = bits_a_value(int(options.get("bits", 4)), ranks, options.get("sums", "lanes")) / 2
        entry["payload"] = {"header": 0, "num": round(1000 * value_bits), "den": 8000}
        entry["overlap"] = True
    elif kind == "gradwire":
        value_size = costs.value_size or max(0.0, rows[-1].payload - _HEADER) / rows[-1].length
        bits = round(8000 * value_size)  # thousandths of a bit a value
        entry["payload"] = {"header": _HEADER, "num": bits, "den": 8000}
        entry["overlap"] = True
    else:
        entry["payload"] = {"header": 0, "num": _size_of(DTYPES.get(kind, bench.dtype)), "den": 1}
    entry["collectives"] = ["a2a-ag" if adds else "allreduce"]
    alone = _table([(row.length, row.enc) for row in rows])
    left = []
    for row in rows:
        payload = row.payload if kind != "thc" else row.length * value_bits / 8
        startups = 4 if kind == "thc" else 2 if adds else 1  # THC: norms and sums, both ways
        known = row.enc + row.dec + startups * alpha + 2 * part * payload * beta
        known += _at(alone, row.length / ranks) / 1e6 if kind == "bf16" and adds else 0.0
        left.append((row.length, max(0.0, row.whole - known)))
    curves = {way: _table([(row.length, costs.beside * getattr(row, way)) for row in rows]) for way in ("enc", "dec")}
    if adds:
        curves["sum"] = _table([(max(1, int(length * part)), seconds) for length, seconds in left])
    elif not shared:  # an all-reduce has no place for it but before: the ranks' work on its way counts as the encoder's
        curves["enc"] = _table([(row.length, row.enc + more) for row, (_, more) in zip(rows, left)])
    entry["gpu" if shared else "cpu"] = curves
    return entry


def _table(points: list[tuple[int, float]]) -> dict[str, Any]:
    """Seconds as a table of microseconds, never falling."""
    rows: list[list[float]] = []
    for length, seconds in points:
        us = max(round(1e6 * seconds, 3), rows[-1][1] if rows else _MIN_US)
        rows.append([length, us])
    if len(rows) == 1:
        rows.append([2 * rows[0][0], 2 * rows[0][1]])
    return {"kind": "table", "points": rows}


def _at(table: Mapping[str, Any], length: float) -> float:
    """As the planner does: constant before the first point, linear between points and after them."""
    points = table["points"]
    if length <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if length <= x1 or x1 == points[-1][0]:
            return y0 + (y1 - y0) * (length - x0) / (x1 - x0)
    return points[-1][1]
