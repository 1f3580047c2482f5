"""Planners: which gradients to fuse, which to compress, and how to send them (plan.h, docs/planning.md).

    problem = Problem(read_model("data/traces/resnet50.csv"), methods)
    schedule = problem.solve()
    schedule.makespan_us, schedule.lower_bound_us, schedule.groups

Times are microseconds here and whole ticks of 2^-20 ns in the library, so a time is rounded once, to 10^-9 us.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from ctypes import POINTER, addressof, byref, c_int64, cast
from dataclasses import dataclass, field

import numpy as np

from gradwire import _constants as c
from gradwire import _structs as s
from gradwire import thc
from gradwire._fill import choose, fill, integer, numbers_of, real, whole
from gradwire._library import check, lib, plan_lib
from gradwire.errors import Error
from gradwire.frames import name_in

_TICKS_PER_US = c.GW_PLAN_TICKS_PER_US
_ERRORS_PER_UNIT = 1 << 30  # the library counts errors in whole numbers; as in the gradwire command
_KINDS = numbers_of("GW_PLAN_COST_", "affine", "maxlin", "hinge", "table")
_DEVICES = numbers_of("GW_PLAN_", "gpu", "cpu")
_DECODES = numbers_of("GW_PLAN_DECODE_", "serial", "parallel")
_LEVELS = numbers_of("GW_PLAN_LEVEL_", "serial", "pipelined", "event")
_COLLECTIVES = {
    **numbers_of("GW_PLAN_", "allreduce", "allgather", "alltoall", "gather"),
    **dict.fromkeys(("a2a-ag", "a2a_ag"), c.GW_PLAN_A2A_AG),
}
_RESOURCES = ("gpu", "cpu", "cpu-sum", "cpu-decode", "intra", "inter")
_SPAN_KINDS = ("backprop", "encode", "network", "decode", "sum", "copy")


def algorithms() -> tuple[str, ...]:
    """Names of the solvers and baselines, "auto" first."""
    return tuple(plan_lib.gw_plan_algorithm_name(i).decode() for i in range(c.GW_PLAN_ALGORITHM_COUNT))


def _ticks(us: float, what: str) -> int:
    ticks = real(us, what) * _TICKS_PER_US
    if not math.isfinite(ticks):
        raise ValueError(f"{what}={us}: no number, or too large")
    if not -(1 << 63) <= round(ticks) < 1 << 63:
        raise ValueError(f"{what}={us} does not fit 64 bits in ticks of 2^-20 ns: at most {2**63 / _TICKS_PER_US:.3g}")
    return round(ticks)


def _parts_per_million(gap: float) -> int:
    parts = real(gap, "gap") * 1e6
    if not 0 <= parts < 1 << 32:
        raise ValueError(f"gap={gap} is not in 0..4294")
    return round(parts)


def _known(given: dict, keys: Iterable[str], what: str) -> None:
    """ValueError for a key that is not read: a misspelt one must not count as missing."""
    unknown = sorted(given.keys() - set(keys))
    if unknown:
        raise ValueError(f"{what}: unknown key {unknown[0]!r}")


def _errors(error: float | None) -> int:
    """Rounded up, so that a bound stays a bound. 0 if it is not known."""
    if error is None:
        return 0
    if not math.isfinite(real(error, "error") * _ERRORS_PER_UNIT):
        raise ValueError(f"error={error}: no number, or too large")
    return math.ceil(real(error, "error") * _ERRORS_PER_UNIT)


@dataclass(frozen=True)
class Cost:
    """Cost of handling a number of elements, in ticks of 2^-20 ns; made by affine(), maxlin(), hinge(), table()."""

    kind: str
    a: int = 0
    b: int = 0
    t: int = 0
    rows: tuple[tuple[int, int], ...] = ()

    @classmethod
    def affine(cls, a_us: float, b_us: float) -> Cost:
        """a + b x: startup plus time per element."""
        return cls("affine", _ticks(a_us, "a_us"), _ticks(b_us, "b_us"))

    @classmethod
    def maxlin(cls, a_us: float, b_us: float) -> Cost:
        """max(a, b x): flat up to a knee, then proportional."""
        return cls("maxlin", _ticks(a_us, "a_us"), _ticks(b_us, "b_us"))

    @classmethod
    def hinge(cls, a_us: float, b_us: float, t: int) -> Cost:
        """a + b max(0, x - t): flat up to t elements, then a ramp."""
        return cls("hinge", _ticks(a_us, "a_us"), _ticks(b_us, "b_us"), t)

    @classmethod
    def table(cls, points: Iterable[tuple[int, float]]) -> Cost:
        """Straight lines between points (elements ascending, microseconds)."""
        return cls("table", rows=tuple((x, _ticks(us, "us")) for x, us in points))

    @classmethod
    def from_json(cls, curve: dict) -> Cost:
        """A curve as the cost files of the gradwire command hold it."""
        _known(curve, _CURVE_KEYS, "curve")
        if curve["kind"] == "table":
            return cls.table(curve["points"])
        a, knee = _ticks(curve.get("a_us", 0), "a_us"), curve.get("knee")
        b = _ticks(curve.get("b_us", 0), "b_us") if knee is None else (a + knee // 2) // knee  # where a = b x
        return cls(curve["kind"], a, b, curve["t"] if curve["kind"] == "hinge" else 0)

    def __call__(self, len: int) -> float:
        """Microseconds for len >= 0 elements. Raises Error for a curve that breaks a rule."""
        len = integer(len, "len", 0, (1 << 63) - 1)
        borrowed: list = []
        struct, fault = self._struct(borrowed), s.gw_plan_fault()
        _check(plan_lib.gw_plan_cost_check(struct, byref(fault)), fault)
        return plan_lib.gw_plan_cost_eval(struct, len) / _TICKS_PER_US

    def _struct(self, borrowed: list) -> s.gw_plan_cost:
        """The C struct; what it borrows from is appended to `borrowed`."""
        struct = fill(s.gw_plan_cost, kind=choose(_KINDS, self.kind, "kind of curve"), a=self.a, b=self.b, t=self.t)
        if self.rows:
            columns = [whole(column, "cost table") for column in zip(*self.rows)]
            borrowed += columns
            struct.table_x, struct.table_y = (addressof(column) for column in columns)
            struct.table_len = len(self.rows)
        return struct

    @classmethod
    def _from_struct(cls, struct: s.gw_plan_cost) -> Cost:
        rows: tuple[tuple[int, int], ...] = ()
        if struct.table_len:
            columns = [cast(x, POINTER(c_int64))[: struct.table_len] for x in (struct.table_x, struct.table_y)]
            rows = tuple(zip(*columns))
        return cls(name_in(_KINDS, struct.kind), struct.a, struct.b, struct.t, rows)


# The last three are what `gradwire plan fit` says of a curve.
_CURVE_KEYS = ("kind", "a_us", "b_us", "knee", "t", "points", "error_max", "error_mean", "r2")
ZERO = Cost("affine")


@dataclass(frozen=True)
class Fit:
    """A fitted curve; errors are relative, |fit - measured| / measured. Above 0.1 the plan may change with the
    curve."""

    cost: Cost
    error_max: float
    error_mean: float
    r2: float


def fit(points: Sequence[tuple[int, float]], kind: str | None = None) -> Fit:
    """Fits "affine", "maxlin" or "hinge" to measurements (elements, microseconds); None: the best of the three.

    At least two with different elements. Raises Error.
    """
    structs = (s.gw_plan_point * len(points))(
        *(fill(s.gw_plan_point, len=x, ticks=_ticks(us, "us")) for x, us in points)
    )
    result = s.gw_plan_fit()
    if kind is None:
        check(plan_lib.gw_plan_cost_fit_best(structs, len(points), result))
    else:
        check(plan_lib.gw_plan_cost_fit(structs, len(points), choose(_KINDS, kind, "kind of curve"), result))
    return Fit(Cost._from_struct(result.cost), result.error_max, result.error_mean, result.r2)


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A gradient, in the order in which backprop finishes them. bwd_us: backprop time since the one before.
    forbidden: names of methods that no group with this tensor may use."""

    len: int
    bwd_us: float
    name: str | None = None
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Method:
    """How a fused group may be sent: encode, occupy the network, decode, by number of elements. Made by method().

    device: of enc, sum and dec: "gpu" (encodes delay backprop) or "cpu" (a core encodes, one sums, one decodes).
    dec_more: added to dec, for further contributions of an all-gather. host: "cpu" only, copy of the dense group to
    the host before enc, and back after dec. owner_count: ranks that sum shares between two exchanges, net and gather;
    each decodes and adds what the others contribute to its share, sum, and encodes the share; 0: one exchange. error:
    of an element, in a unit of yours that adds up (Problem.error_max); None: not known, refused under a bound.
    """

    name: str
    net: Cost
    enc: Cost = ZERO
    dec: Cost = ZERO
    device: str = "gpu"
    dec_more: Cost = ZERO
    host: Cost = ZERO
    owner_count: int = 0
    sum: Cost = ZERO
    gather: Cost = ZERO
    error: float | None = 0.0


_METHOD_COSTS = ("net", "enc", "dec", "dec_more", "host", "sum", "gather")


@dataclass(frozen=True)
class Link:
    """latency_us: startup of one collective. us_per_kib: per 1024 bytes through the bottleneck link of one rank."""

    latency_us: float
    us_per_kib: float

    @classmethod
    def from_json(cls, link: dict) -> Link:
        """A link as the cluster files of the gradwire command hold it: latency_us, and us_per_kib or gbit_per_s."""
        _known(link, ("latency_us", "us_per_kib", "gbit_per_s"), "link")
        if ("us_per_kib" in link) == ("gbit_per_s" in link):
            raise ValueError("a link has us_per_kib or gbit_per_s")
        if not link.get("gbit_per_s", 1) > 0:
            raise ValueError("link: gbit_per_s must be positive")
        us_per_kib = link["us_per_kib"] if "us_per_kib" in link else 1024 * 8 / (link["gbit_per_s"] * 1e3)
        return cls(link["latency_us"], us_per_kib)

    def _struct(self) -> s.gw_plan_link:
        return fill(
            s.gw_plan_link, alpha=_ticks(self.latency_us, "latency_us"), beta_kib=_ticks(self.us_per_kib, "us_per_kib")
        )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """nodes machines with gpus GPUs each; per_step: latencies are those of one step of a collective. host: copies
    between a GPU and its host, which codecs on the CPU need; the default is PCIe 3."""

    nodes: int
    gpus: int
    inter: Link
    intra: Link = Link(0, 0)
    per_step: bool = False
    host: Link = Link(10, 0.085)

    @property
    def ranks(self) -> int:
        """GPUs of all machines."""
        return self.nodes * self.gpus

    @classmethod
    def from_json(cls, cluster: dict) -> Cluster:
        """A cluster as the cluster files of the gradwire command hold it; a flat network ("ranks") is one machine, as
        there. ValueError for "flat_uses_both", which is not offered here. "operations", of option trees, are not
        read."""
        if "ranks" in cluster:
            inside = ("latency_us", "us_per_kib", "gbit_per_s")
            _known(cluster, ("ranks", *inside, "host", "latency_per_step", "about"), "cluster")
            link = {key: cluster[key] for key in inside if key in cluster}
            rest = {key: value for key, value in cluster.items() if key not in ("ranks", *inside)}
            return cls.from_json({"nodes": 1, "gpus": cluster["ranks"], "intra": link, "inter": link, **rest})
        _known(
            cluster, ("nodes", "gpus", "intra", "inter", "host", "latency_per_step", "about", "operations"), "cluster"
        )
        links = {name: Link.from_json(cluster[name]) for name in ("intra", "inter", "host") if name in cluster}
        per_step = cluster.get("latency_per_step", False)
        return cls(nodes=cluster["nodes"], gpus=cluster["gpus"], per_step=per_step, **links)

    def _struct(self) -> s.gw_plan_cluster:
        return fill(
            s.gw_plan_cluster,
            nodes=self.nodes,
            gpus=self.gpus,
            intra=self.intra._struct(),
            inter=self.inter._struct(),
            host=self.host._struct(),
            flags=c.GW_PLAN_ALPHA_PER_STEP * self.per_step,
        )


@dataclass(frozen=True, kw_only=True)
class Codec:
    """Costs of a codec. costs: by device, ("gpu", "cpu"): (encode over elements in, decode over elements out). Payload:
    header + ceil(len * num / den) bytes.

    collectives: of "allreduce", "allgather", "a2a-ag" (all-to-all, sum by the owner of each share, all-gather; also
    written "a2a_ag"), and "alltoall" and "gather", which alone leave no rank with the sum. peer_us_per_kib: extra
    decode time per 1024 payload bytes of every further contribution. sums: by device, decode and add over elements
    out; needed for "a2a-ag". rounds: all-reduces per message, which share the payload. error: of Method. overlap:
    messages of "a2a-ag" travel in pieces, so that owners sum while pieces are on their way: the step of the owners is
    not counted, and both exchanges are one.
    """

    name: str
    costs: dict[str, tuple[Cost, Cost]]
    payload: tuple[int, int, int]
    collectives: tuple[str, ...]
    peer_us_per_kib: float = 0.0
    sums: dict[str, Cost] = field(default_factory=dict)
    rounds: int = 1
    error: float | None = 0.0
    overlap: bool = False

    @classmethod
    def from_json(cls, codec: dict, *, ranks: int | None = None) -> Codec:
        """A codec as the cost files of the gradwire command hold it. ranks: of the cluster; a payload of kind "thc"
        depends on it and is refused (ValueError) without it."""
        what = f"codec {codec['name']}"
        _known(codec, _CODEC_KEYS, what)
        costs, sums = {}, {}
        for device in _DEVICES.keys() & codec.keys():
            _known(codec[device], ("enc", "dec", "sum"), f"{what}, {device}")
            curves = {name: Cost.from_json(curve) for name, curve in codec[device].items()}
            costs[device] = (curves["enc"], curves["dec"])
            if "sum" in curves:
                sums[device] = curves["sum"]
        payload, rounds = _payload(codec["payload"], what, ranks)
        return cls(
            name=codec["name"],
            costs=costs,
            payload=payload,
            collectives=tuple(codec["collectives"]),
            peer_us_per_kib=codec.get("decode_peer_us_per_kib", 0.0),
            sums=sums,
            rounds=rounds,
            error=codec.get("error"),
            overlap=codec.get("overlap", False),
        )

    def _struct(self, borrowed: list) -> s.gw_plan_codec:
        header, num, den = self.payload
        struct = fill(
            s.gw_plan_codec,
            name=self.name.encode(),
            dec_peer_kib=_ticks(self.peer_us_per_kib, "peer_us_per_kib"),
            payload_header=header,
            payload_num=num,
            payload_den=den,
            collectives=sum({choose(_COLLECTIVES, name, "collective") for name in self.collectives}),
            devices=sum(1 << choose(_DEVICES, device, "device") for device in self.costs),
            rounds=self.rounds,
            error=_errors(self.error),
        )
        if struct.collectives & c.GW_PLAN_A2A_AG and self.costs.keys() - self.sums.keys():
            raise ValueError(f"codec {self.name}: a2a-ag needs a cost of sums for each device")
        for device, (enc, dec) in self.costs.items():
            struct.enc[_DEVICES[device]] = enc._struct(borrowed)
            struct.dec[_DEVICES[device]] = dec._struct(borrowed)
            struct.sum[_DEVICES[device]] = self.sums.get(device, ZERO)._struct(borrowed)
        return struct


_CODEC_KEYS = (
    *("name", "payload", "decode_peer_us_per_kib", "collectives", "error", "gpu", "cpu", "options", "about"),
    "overlap",
)


def _payload(payload: dict, what: str, ranks: int | None) -> tuple[tuple[int, int, int], int]:
    """Header, num, den of a cost file's payload, and the rounds that share it."""
    if "kind" not in payload:
        _known(payload, ("header", "num", "den"), f"{what}, payload")
        return (payload.get("header", 0), payload["num"], payload.get("den", 1)), 1
    _known(payload, ("kind", "bits", "lane_bits"), f"{what}, payload")
    if payload["kind"] != "thc":
        raise ValueError(f"{what}: no payload of kind {payload['kind']!r}; there is: thc")
    if ranks is None:
        raise ValueError(f"{what}: what THC sends depends on the number of ranks; pass ranks=cluster.ranks")
    return thc_payload(payload["bits"], ranks, payload.get("lane_bits", 0)), 2


def thc_payload(bits: int, ranks: int, lane_bits: int = 0) -> tuple[int, int, int]:
    """Codec.payload of THC with indices of 1 to 4 bits and thc.options(bits, ranks, lane_bits=lane_bits), for rounds=2:
    one all-reduce of norms and one of lanes and counts. lane_bits: 8, 16 or 32; 0: the narrowest that hold the sum.
    Never less than what is sent, at most a block more. Raises Error."""
    codec = thc.Codec(thc.options(bits, integer(ranks, "ranks", 0, (1 << 32) - 1), lane_bits=lane_bits))
    # Four blocks have no padding of their own. Within a block the rest is rounded up to a power of two, so the header
    # is the most by which that exceeds the slope.
    den = 4 << codec.options.block_log2
    num = codec.reduced_size(den)
    header = max(codec.reduced_size(length) - length * num // den for length in range(1, den + 1))
    return header, num, den


def method(
    codec: Codec | None,
    cluster: Cluster,
    collective: str = "allreduce",
    *,
    device: str = "gpu",
    name: str | None = None,
) -> Method:
    """Costs of one group sent flat over all ranks with one collective, "allreduce", "allgather" or "a2a-ag"; codec
    None: dense fp32. name: None: the codec's.

    Raises Error "option" if the codec lacks the collective or the device.
    """
    borrowed: list = []
    result = s.gw_plan_method()
    check(
        plan_lib.gw_plan_method_make(
            codec._struct(borrowed) if codec else None,
            cluster._struct(),
            choose(_COLLECTIVES, collective, "collective"),
            choose(_DEVICES, device, "device"),
            result,
        )
    )
    if codec and codec.overlap and result.owner_count:
        result.net.a, result.net.b = result.net.a + result.gather.a, result.net.b + result.gather.b
        result.gather = result.sum = s.gw_plan_cost()
        result.owner_count = 0
    return Method(
        name=name or (codec.name if codec else "fp32"),
        device=device,
        owner_count=result.owner_count,
        error=result.error / _ERRORS_PER_UNIT if codec is None or codec.error is not None else None,
        **{cost: Cost._from_struct(getattr(result, cost)) for cost in _METHOD_COSTS},
    )


@dataclass(frozen=True)
class Group:
    """Tensors [first, first + count) sent as one message by a method."""

    first: int
    count: int
    method: str


@dataclass(frozen=True)
class Schedule:
    """A plan and its certificate. makespan_us: length of the iteration. lower_bound_us: no plan is shorter. gap:
    makespan over lower bound, minus 1. proven: both are equal. The same times in ticks. stopped: a limit ended the
    search."""

    groups: tuple[Group, ...]
    makespan: int
    lower_bound: int
    proven: bool
    stopped: bool

    @property
    def makespan_us(self) -> float:
        return self.makespan / _TICKS_PER_US

    @property
    def lower_bound_us(self) -> float:
        return self.lower_bound / _TICKS_PER_US

    @property
    def gap(self) -> float:
        return self.makespan / self.lower_bound - 1 if self.lower_bound else 0.0


@dataclass(frozen=True)
class Span:
    """Something that occupies a resource. kind: "backprop", "encode", "network", "decode", "sum" (an owner's step, with
    its encode) or "copy" (between GPU and host). resource: "gpu", "cpu" (before the first network step), "cpu-sum"
    (between network steps), "cpu-decode" (after the last one), "intra" or "inter". group: index."""

    start_us: float
    end_us: float
    group: int
    kind: str
    resource: str


@dataclass(frozen=True)
class Problem:
    """One training step: its gradients, and how groups of them may be sent. Checked when made: Error names what is
    wrong.

    decode: "serial" (in order, on the GPU after backprop, on the CPU once messages are there) or "parallel".
    group_len_max: largest group, 0: no limit. error_max: bound of error_mean(), 0: no bound;
    with one that matters give solve() a work_max, as its search rarely ends by itself.
    """

    tensors: tuple[Tensor, ...]
    methods: tuple[Method, ...]
    decode: str = "serial"
    group_len_max: int = 0
    error_max: float = 0.0
    _borrowed: list = field(default_factory=list, init=False, repr=False, compare=False)
    struct: s.gw_plan_problem = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tuple(self.tensors))
        object.__setattr__(self, "methods", tuple(self.methods))
        object.__setattr__(self, "struct", self._struct())
        fault = s.gw_plan_fault()
        _check(plan_lib.gw_plan_problem_check(self.struct, byref(fault)), fault)

    def solve(
        self, algorithm: str = "auto", *, method: str | None = None, gap: float = 0.0, work_max: int = 0
    ) -> Schedule:
        """The shortest schedule, or that of a baseline (algorithms()). method: with which baselines send every group;
        None: the first. gap: stop once the gap to the bound is at most this. work_max: label extensions, 0: no limit.

        Raises Error: "option" if the algorithm does not cover the problem, "infeasible", "limit" ...
        """
        names = algorithms()
        if algorithm not in names:
            raise ValueError(f"no algorithm {algorithm!r}; there are: {', '.join(names)}")
        number = names.index(algorithm)
        limits = fill(s.gw_plan_limits, work_max=work_max, gap_ppm=_parts_per_million(gap))
        solver = fill(s.gw_plan_solver, algorithm=number, method=self._method(method), limits=limits)
        plan, area = self._plan()
        cert = s.gw_plan_cert()
        workspace = np.empty(plan_lib.gw_plan_workspace_size(self.struct, number), np.uint8)
        memory = s.gw_workspace(workspace.ctypes.data, workspace.size)
        check(plan_lib.gw_plan_solve(self.struct, solver, byref(plan), byref(cert), memory))
        groups = self._groups(area, plan.group_count)
        return Schedule(groups, cert.makespan, cert.lower_bound, bool(cert.proven), bool(cert.stopped))

    def buckets(self, cap: int, *, cap_first: int | None = None, method: str | None = None, fill_up: bool = True):
        """Groups of at least `cap` elements in order, the first of cap_first; fill_up: the tensor that crosses the
        cap stays in, as in PyTorch; else it opens the next bucket, as in Horovod."""
        rule = fill(
            s.gw_plan_bucket_rule,
            method=self._method(method),
            cap_first=cap if cap_first is None else cap_first,
            cap=cap,
            fill=int(not fill_up),
        )
        plan, area = self._plan()
        check(plan_lib.gw_plan_bucket(self.struct, rule, byref(plan)))
        return self._groups(area, plan.group_count)

    def evaluate(self, groups: Iterable[Group]) -> float:
        """Makespan of a plan in microseconds, computed from the definition. Raises Error "plan" if it does not fit."""
        plan, _area = self._plan(groups)
        makespan = c_int64()
        check(plan_lib.gw_plan_eval(self.struct, plan, byref(makespan)))
        return makespan.value / _TICKS_PER_US

    def error_mean(self, groups: Iterable[Group]) -> float:
        """Mean of the methods' errors over all elements of a plan; each was rounded up to a multiple of 2^-30. Raises
        Error "plan"."""
        plan, _area = self._plan(groups)
        check(plan_lib.gw_plan_eval(self.struct, plan, byref(c_int64())))
        total = 0
        for group in plan.groups[: plan.group_count]:
            count = sum(tensor.len for tensor in self.tensors[group.first : group.first + group.tensor_count])
            total += _errors(self.methods[group.method].error) * count
        return total / _ERRORS_PER_UNIT / max(1, self._len())

    def timeline(self, groups: Iterable[Group], level: str = "serial") -> tuple[float, tuple[Span, ...]]:
        """Makespan in microseconds and what happens when. level: "serial" (what solvers optimise), "pipelined",
        "event"."""
        plan, _area = self._plan(groups)
        jobs = (s.gw_plan_job * plan.group_count)()
        check(plan_lib.gw_plan_jobs(self.struct, plan, jobs, len(jobs)))
        number = choose(_LEVELS, level, "level")
        run = s.gw_plan_run(jobs=jobs, job_count=len(jobs), level=number, decode=self.struct.decode)
        items = (s.gw_plan_span * plan_lib.gw_plan_timeline_span_count_max(jobs, len(jobs)))()
        spans = s.gw_plan_spans(items=items, capacity=len(items))
        workspace = np.empty(plan_lib.gw_plan_timeline_workspace_size(len(jobs)), np.uint8)
        makespan = c_int64()
        memory = s.gw_workspace(workspace.ctypes.data, workspace.size)
        check(plan_lib.gw_plan_timeline(run, byref(spans), byref(makespan), memory))
        return makespan.value / _TICKS_PER_US, tuple(_span(items[i]) for i in range(spans.count))

    def _method(self, name: str | None) -> int:
        names = [method.name for method in self.methods]
        if name is not None and name not in names:
            raise ValueError(f"no method {name!r}; there are: {', '.join(names)}")
        return names.index(name) if name is not None else 0

    def _struct(self) -> s.gw_plan_problem:
        tensor_structs = [self._tensor(tensor) for tensor in self.tensors]
        method_structs = [self._method_struct(method) for method in self.methods]
        self._borrowed.extend((tensor_structs, method_structs))  # they own the names
        tensors = (s.gw_plan_tensor * len(tensor_structs))(*tensor_structs)
        methods = (s.gw_plan_method * len(method_structs))(*method_structs)
        return fill(
            s.gw_plan_problem,
            tensors=tensors,
            tensor_count=len(tensors),
            methods=methods,
            method_count=len(methods),
            decode=choose(_DECODES, self.decode, "decode"),
            group_len_max=self.group_len_max,
            error_max=self._error_max(),
        )

    def _len(self) -> int:
        return sum(tensor.len for tensor in self.tensors)

    def _error_max(self) -> int:
        """The bound of the sum over elements; positive if there is one."""
        if not math.isfinite(real(self.error_max, "error_max") * _ERRORS_PER_UNIT):
            raise ValueError(f"error_max={self.error_max}: no number, or too large")
        unknown = [method.name for method in self.methods if method.error is None]
        if self.error_max > 0 and unknown:
            raise ValueError(f"method {unknown[0]}: its error is not known, so a bound of the error may not hold")
        bound = math.floor(self.error_max * _ERRORS_PER_UNIT * self._len())
        return max(1, bound) if self.error_max > 0 else bound

    def _tensor(self, tensor: Tensor) -> s.gw_plan_tensor:
        return fill(
            s.gw_plan_tensor,
            name=tensor.name.encode() if tensor.name is not None else None,
            len=tensor.len,
            bwd=_ticks(tensor.bwd_us, "bwd_us"),
            forbidden=sum({1 << self._method(name) for name in tensor.forbidden}),
        )

    def _method_struct(self, method: Method) -> s.gw_plan_method:
        return fill(
            s.gw_plan_method,
            name=method.name.encode(),
            device=choose(_DEVICES, method.device, "device"),
            owner_count=method.owner_count,
            error=_errors(method.error),
            **{cost: getattr(method, cost)._struct(self._borrowed) for cost in _METHOD_COSTS},
        )

    def _plan(self, groups: Iterable[Group] | None = None):
        """The C struct of a plan and the array of its groups, empty with room for any plan if there are none."""
        given = [] if groups is None else [(g.first, g.count, self._method(g.method)) for g in groups]
        area = (s.gw_plan_group * max(len(self.tensors), len(given)))()
        for i, (first, count, number) in enumerate(given):
            area[i] = fill(s.gw_plan_group, first=first, tensor_count=count, method=number)
        return s.gw_plan(groups=area, capacity=len(area), group_count=len(given)), area

    def _groups(self, area, count: int) -> tuple[Group, ...]:
        return tuple(Group(g.first, g.tensor_count, self.methods[g.method].name) for g in area[:count])


def read_model(path: str) -> tuple[Tensor, ...]:
    """Tensors of a model file of the gradwire command: a CSV with name, elems and bwd_us or gap_us. ValueError for
    one without sizes, and for one with `flags`: which methods a tensor may not use is for the caller to say
    (Tensor.forbidden)."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    if not rows or not {"elems", "bwd_us"} <= rows[0].keys() and not {"elems", "gap_us"} <= rows[0].keys():
        raise ValueError(f"{path}: no columns elems and bwd_us or gap_us")
    if any(row.get("flags") for row in rows):
        raise ValueError(f"{path}: flags are not read here")
    time = "bwd_us" if "bwd_us" in rows[0] else "gap_us"
    tensors = tuple(Tensor(name=row.get("name"), len=int(row["elems"]), bwd_us=float(row[time])) for row in rows)
    if not any(tensor.len for tensor in tensors):
        raise ValueError(f"{path}: no tensor has a size")
    return tensors


def _span(span: s.gw_plan_span) -> Span:
    start, end = span.start / _TICKS_PER_US, span.end / _TICKS_PER_US
    return Span(start, end, span.job, _SPAN_KINDS[span.kind], _RESOURCES[span.resource])


def _check(status: int, fault: s.gw_plan_fault) -> None:
    """Raises Error with the place and the reason that a check gave."""
    if status != 0:
        where = f" ({fault.index})" if fault.index != c.GW_PLAN_NO_INDEX else ""
        what = f": {fault.what.decode()}{where}" if fault.what else ""
        raise Error(status, lib.gw_status_message(status).decode() + what)
