"""Planners."""

import dataclasses
import json
import re

import gradwire
import numpy as np
import pytest
from conftest import ROOT
from gradwire import plan, thc
from gradwire.plan import Cost, Group, Method, Problem, Tensor

TRACE = str(ROOT / "data" / "traces" / "resnet50.csv")
CASES = ROOT / "planner" / "data"


@pytest.fixture
def small():
    tensors = [Tensor(name=f"t{i}", len=1000 * (i + 1), bwd_us=10.0) for i in range(6)]
    dense = Method(name="fp32", net=Cost.affine(30, 0.01))
    half = Method(name="fp16", net=Cost.affine(30, 0.005), enc=Cost.affine(2, 0.0005), dec=Cost.affine(2, 0.0005))
    return Problem(tensors, [dense, half])


def test_exact_solver_beats_every_baseline(small):
    best = small.solve()
    assert best.proven
    assert best.gap == 0
    assert best.makespan_us == small.evaluate(best.groups) == best.lower_bound_us
    assert sum(group.count for group in best.groups) == 6
    assert small.solve("brute").makespan == best.makespan
    for name in ("layerwise", "one-group", "ddp-buckets", "bucket-sweep"):
        assert small.solve(name, method="fp16").makespan >= best.makespan


def test_algorithms():
    names = plan.algorithms()
    assert names[0] == "auto"
    assert len(set(names)) == len(names)


def test_timeline(small):
    best = small.solve()
    makespan, spans = small.timeline(best.groups)
    assert makespan == best.makespan_us
    assert max(span.end_us for span in spans) == makespan
    network = [span for span in spans if span.kind == "network"]
    assert len(network) == len(best.groups)
    assert all(span.resource in ("intra", "inter") for span in network)
    event, _ = small.timeline(best.groups, "event")
    assert event > 0


def test_buckets(small):
    groups = small.buckets(5000, method="fp32")
    assert groups[0] == Group(0, 3, "fp32")
    assert small.buckets(5000, fill_up=False)[0].count == 2
    assert small.evaluate(groups) >= small.solve().makespan_us


def test_refusals(small):
    with pytest.raises(gradwire.Error) as caught:
        Problem([], small.methods)
    assert caught.value.name == "empty"
    with pytest.raises(gradwire.Error) as caught:
        Problem([Tensor(len=5, bwd_us=-1)], small.methods)
    assert caught.value.name == "negative"
    with pytest.raises(gradwire.Error, match="name"):
        Problem([Tensor(len=5, bwd_us=1, name="x")] * 2, small.methods)
    with pytest.raises(gradwire.Error, match="plan"):
        small.evaluate([Group(0, 3, "fp32")])
    with pytest.raises(ValueError, match="no method"):
        small.solve("ddp-buckets", method="zstd")
    with pytest.raises(ValueError, match="no algorithm"):
        small.solve("magic")
    with pytest.raises(ValueError, match="no method"):
        Problem([Tensor(len=5, bwd_us=1, forbidden=("zstd",))], small.methods)
    forced = Problem([Tensor(len=10**6, bwd_us=1, forbidden=("fp32",))], small.methods)
    assert forced.solve().groups[0].method == "fp16"


def test_costs():
    assert Cost.affine(5, 0.5)(10) == 10
    assert Cost.maxlin(5, 0.5)(4) == 5
    assert Cost.hinge(5, 0.5, 10)(12) == 6
    table = Cost.table([(0, 1.0), (10, 2.0), (20, 4.0)])
    assert [table(x) for x in (0, 5, 15, 30)] == [1, 1.5, 3, 6]
    with pytest.raises(gradwire.Error) as caught:
        Cost.table([(10, 1.0), (0, 2.0)])(5)
    assert caught.value.name == "curve"
    fitted = plan.fit([(0, 5.0), (10, 10.0), (100, 55.0)])
    assert fitted.cost.kind == "affine"
    assert fitted.cost(20) == pytest.approx(15)
    assert fitted.error_max < 1e-6
    assert plan.fit([(0, 5.0), (10, 10.0), (100, 55.0)], "maxlin").error_max > 0.01


def read(name):
    return json.loads((CASES / name).read_text())


def fused(codec, collective, device):
    """The cluster of the documentation, and the codec's method there."""
    cluster = plan.Cluster.from_json(read("cluster-2x4-10gbe.json"))
    described = next(x for x in read("gradwire-codecs.json")["codecs"] if x["name"] == codec)
    codec = plan.Codec.from_json(described, ranks=cluster.ranks)
    return cluster, codec, plan.method(codec, cluster, collective, device=device)


def test_jobs_of_the_documentation():
    """The table of docs/planning.md: ResNet-50 on 2 machines of 4 GPUs over 10 Gb/s. Today's cost files."""
    cluster = plan.Cluster.from_json(read("cluster-2x4-10gbe.json"))
    assert cluster.ranks == 8
    methods = [plan.method(None, cluster)]
    bf16 = next(codec for codec in read("cases.json")["codecs"] if codec["name"] == "bf16")
    methods.append(plan.method(plan.Codec.from_json(bf16), cluster))
    for described in read("gradwire-codecs.json")["codecs"]:
        codec = plan.Codec.from_json(described, ranks=cluster.ranks)
        assert list(codec.costs) == ["cpu"]
        methods.append(plan.method(codec, cluster, codec.collectives[0], device="cpu"))
    page = (ROOT / "docs" / "planning.md").read_text()
    row = re.search(r"^\| 2, 10 Gb/s \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", page, re.M)
    tensors = plan.read_model(TRACE)
    choices = (["fp32"], ["fp32", "bf16"], ["fp32", "bf16", "gcomp", "thc"])
    for names, documented in zip(choices, row.groups()):
        problem = Problem(tensors, [method for method in methods if method.name in names])
        schedule = problem.solve()
        assert schedule.proven
        digits = len(documented.partition(".")[2])
        assert round(schedule.makespan_us / 1000, digits) == float(documented)
        assert schedule.makespan_us == problem.evaluate(schedule.groups) == problem.timeline(schedule.groups)[0]


def test_thc_payload():
    """As thc.h describes it: a block of 1024 has a lane per element, a count and its patterns; multiples of 4 bytes."""
    described = next(x for x in read("gradwire-codecs.json")["codecs"] if x["name"] == "thc")
    assert described["payload"] == {"kind": "thc", "bits": 4}
    with pytest.raises(ValueError, match=r"codec thc: .* number of ranks; pass ranks="):
        plan.Codec.from_json(described)
    for ranks, lane_bytes in ((8, 1), (32, 2), (2000, 4)):
        codec = plan.Codec.from_json(described, ranks=ranks)
        wide = plan.Codec.from_json({**described, "payload": {"kind": "thc", "bits": 4, "lane_bits": 32}}, ranks=ranks)
        assert wide.payload == plan.thc_payload(4, ranks, 32) and wide.payload[1] >= 4 * 4096
        assert codec.rounds == wide.rounds == 2
        handle = thc.Codec(thc.options(4, ranks))
        assert handle.options.lane_bits == 8 * lane_bytes
        header, num, den = codec.payload
        assert den == 4096
        assert num == 4096 * lane_bytes + 4 * lane_bytes + 4 * 4 * handle.patterns_per_block
        for length in (1, 5, 1023, 1025, 4096, 4097, 100_000, 5_000_001):
            values = np.ones(length, np.float32)
            patterns = handle.norms(values)
            sent = handle.encode_lanes(values, patterns).nbytes + patterns.nbytes
            assert handle.reduced_size(length) == sent
            assert sent <= header + -(-length * num // den) <= sent + 1024 * lane_bytes + header
    with pytest.raises(ValueError, match="no payload of kind 'zstd'"):
        plan.Codec.from_json({**described, "payload": {"kind": "zstd"}}, ranks=8)
    with pytest.raises(gradwire.Error):
        plan.Codec.from_json(described, ranks=70000)


def test_rounds_pay_the_startup_again():
    link = plan.Link(50, 0.5)
    cluster = plan.Cluster(nodes=4, gpus=1, inter=link)
    once, twice = (
        plan.Codec(
            name="x", costs={"gpu": (plan.ZERO, plan.ZERO)}, payload=(0, 1, 1), collectives=("allreduce",), rounds=r
        )
        for r in (1, 2)
    )
    net = [plan.method(codec, cluster).net for codec in (once, twice)]
    assert [cost(0) for cost in net] == [50, 100]
    assert net[0](1 << 20) - 50 == net[1](1 << 20) - 100


def test_cost_files_are_read_as_a_whole():
    codec = {
        "name": "x",
        "payload": {"header": 8, "num": 1, "den": 2},
        "collectives": ["allgather"],
        "decode_peer_us_per_kib": 0.5,
        "error": 0.25,
        "gpu": {"enc": {"kind": "maxlin", "a_us": 10, "knee": 1000}, "dec": {"kind": "affine", "a_us": 1, "b_us": 0}},
    }
    made = plan.Codec.from_json(codec)
    assert (made.peer_us_per_kib, made.error, made.rounds, made.sums) == (0.5, 0.25, 1, {})
    assert made.costs["gpu"][0](500) == 10
    assert made.costs["gpu"][0](2000) == pytest.approx(20)
    cluster = plan.Cluster(nodes=3, gpus=1, inter=plan.Link(5, 1))
    method = plan.method(made, cluster, "allgather")
    # two further contributions of 8 + 1024 bytes
    assert method.dec_more(2048) == pytest.approx(2 * 0.5 * 1032 / 1024, rel=1e-6)
    for bad in ({"decode_peer": 1}, {"payload": {"num": 1, "header": 0, "denominator": 2}}, {"cpu": {"encode": {}}}):
        with pytest.raises(ValueError, match="codec x.*unknown key"):
            plan.Codec.from_json({**codec, **bad})


def test_links_and_clusters():
    assert plan.Link.from_json({"latency_us": 5, "gbit_per_s": 10}) == plan.Link(5, pytest.approx(0.8192))
    assert plan.Link.from_json({"latency_us": 5, "us_per_kib": 0.1}) == plan.Link(5, 0.1)
    for bad in ({"latency_us": 5}, {"latency_us": 5, "us_per_kib": 1, "gbit_per_s": 1}, {"latency_us": 5, "gbit": 1}):
        with pytest.raises(ValueError, match="link|unknown key"):
            plan.Link.from_json(bad)
    for rate in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="gbit_per_s"):
            plan.Link.from_json({"latency_us": 5, "gbit_per_s": rate})
    with pytest.raises(ValueError, match="flat_uses_both"):
        plan.Cluster.from_json({**read("cluster-2x4-10gbe.json"), "flat_uses_both": True})
    without = {key: value for key, value in read("cluster-2x4-10gbe.json").items() if key != "host"}
    assert plan.Cluster.from_json(without).host == plan.Link(10, 0.085)  # docs/planning.md
    link = {"latency_us": 5, "gbit_per_s": 10}
    flat = plan.Cluster.from_json({"ranks": 4, **link, "host": {"latency_us": 0, "us_per_kib": 0}})
    same = plan.Link.from_json(link)
    assert flat == plan.Cluster(nodes=1, gpus=4, inter=same, intra=same, host=plan.Link(0, 0))
    with pytest.raises(ValueError, match="nodes"):
        plan.Cluster.from_json({"ranks": 4, "nodes": 2, **link})


def test_misspelt_members_of_curves():
    """A misspelt one counted as missing, so the curve cost nothing."""
    for bad in ({"kind": "affine", "a": 5}, {"kind": "table", "points": [[0, 1]], "point": 1}):
        with pytest.raises(ValueError, match="curve: unknown key"):
            Cost.from_json(bad)
    fitted = {"kind": "affine", "a_us": 5, "b_us": 1, "error_max": 0.1, "error_mean": 0.1, "r2": 1.0}  # of plan fit
    assert Cost.from_json(fitted) == Cost.affine(5, 1)


def test_numbers_beyond_64_bits():
    """Tables and points wrapped: 2^64 + 5 elements were 5, and 2^64 ticks cost nothing."""
    day = 2.0**64 / (1000 << 20)  # in us
    for bad in ([(0, 0), ((1 << 64) + 5, 1)], [(0, 0), (5, day)]):
        with pytest.raises(ValueError, match="64 bits"):
            Cost.table(bad)(5)
        with pytest.raises(ValueError, match="64 bits"):
            plan.fit([(1, 1), *bad])
    for elems in (-1, 1 << 63, (1 << 64) + 5):
        with pytest.raises(ValueError, match="len"):
            Cost.affine(1, 1)(elems)
    for us in (1e300, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="no number, or too large"):
            Cost.affine(us, 1)
        with pytest.raises(ValueError, match="no number, or too large"):
            Problem([Tensor(len=1, bwd_us=1)], [Method(name="x", net=Cost.affine(1, 1), error=us)])
        with pytest.raises(ValueError, match="no number, or too large"):
            Problem([Tensor(len=1, bwd_us=1)], [Method(name="x", net=Cost.affine(1, 1))], error_max=us)


def test_an_unknown_error_is_not_zero():
    cluster, codec, method = fused("classic-topk", "allgather", "cpu")
    assert codec.error is method.error is None
    tensors = [Tensor(len=100, bwd_us=1)]
    Problem(tensors, [method]).solve()
    with pytest.raises(ValueError, match="classic-topk.*not known"):
        Problem(tensors, [method, plan.method(None, cluster)], error_max=1e-6)


def test_faults_of_the_whole_problem_have_no_index():
    with pytest.raises(gradwire.Error, match=r"costs of the whole model are too large \(ticks\)$"):
        Problem([Tensor(len=1 << 40, bwd_us=1)], [Method(name="fp32", net=Cost.affine(0, 1))])


def test_host_copies_of_codecs_on_the_cpu():
    cluster, codec, method = fused("thc", "allreduce", "cpu")
    assert method.host(0) == 10
    assert method.host(256) == pytest.approx(10.085)
    slower = plan.Cluster(nodes=2, gpus=4, inter=cluster.inter, intra=cluster.intra, host=plan.Link(100, 0.085))
    costly = plan.method(codec, slower, device="cpu")
    assert costly.host(0) == 100
    assert costly.net == method.net
    tensors = [Tensor(len=100_000, bwd_us=100)]
    spans = [Problem(tensors, [m]).timeline([Group(0, 1, "thc")])[1] for m in (method, costly)]
    copies = [[span.end_us - span.start_us for span in kinds if span.kind == "copy"] for kinds in spans]
    assert [len(lengths) for lengths in copies] == [2, 2]
    assert copies[1] == pytest.approx([length + 90 for length in copies[0]])
    assert plan.method(None, cluster).host == plan.ZERO


def test_owners_sum_between_two_exchanges():
    cluster, codec, method = fused("gcomp", "a2a-ag", "cpu")
    assert plan.method(codec, cluster, "a2a_ag", device="cpu") == method
    assert method.owner_count == 8
    assert method.sum == codec.sums["cpu"]
    header, num, den = codec.payload
    elems = 800_000
    size = (header + elems * num / den) / 1024 * cluster.inter.us_per_kib
    assert method.net(elems) == pytest.approx(50 + 4 * 1 / 2 * size, rel=1e-3)  # k (n - 1) / n payloads
    assert method.gather(elems) == pytest.approx(50 + 7 / 8 * size, rel=1e-3)  # (r - 1) / r payloads
    problem = Problem([Tensor(len=elems, bwd_us=100)], [method])
    makespan, spans = problem.timeline([Group(0, 1, "gcomp")])
    found = [(span.kind, span.resource) for span in spans]
    assert found == [
        ("backprop", "gpu"),
        ("copy", "cpu"),
        ("encode", "cpu"),
        ("network", "inter"),
        ("sum", "cpu-sum"),
        ("network", "inter"),
        ("decode", "cpu-decode"),
        ("copy", "cpu-decode"),
    ]
    lengths = [span.end_us - span.start_us for span in spans]
    share = elems // 8
    owner = [codec.sums["cpu"](elems - share), codec.costs["cpu"][0](share)]
    assert lengths[4] == pytest.approx(sum(owner))
    assert makespan == pytest.approx(sum(lengths)) == problem.solve().makespan_us
    with pytest.raises(gradwire.Error) as caught:
        plan.method(codec, cluster, "allreduce", device="cpu")
    assert caught.value.name == "option"
    with pytest.raises(ValueError, match="needs a cost of sums"):
        plan.method(dataclasses.replace(codec, sums={}), cluster, "a2a-ag", device="cpu")


def test_exchanges_that_overlap():
    """As gradwire plan reads cost files: the link has the bytes of both exchanges, the owner's step is not on it."""
    codec = next(codec for codec in read("gradwire-codecs.json")["codecs"] if codec["name"] == "gcomp")
    cluster, _, apart = fused("gcomp", "a2a-ag", "cpu")
    method = plan.method(plan.Codec.from_json({**codec, "overlap": True}), cluster, "a2a-ag", device="cpu")
    assert method.owner_count == 0 and method.sum == method.gather == plan.ZERO
    assert (method.enc, method.dec, method.host) == (apart.enc, apart.dec, apart.host)
    for elems in (1, 800_000):
        assert method.net(elems) == pytest.approx(apart.net(elems) + apart.gather(elems), abs=0.01)


def test_resources_of_the_gpu_and_one_machine():
    """A codec on the GPU copies nothing, and owners sum there; one machine has its intra link only."""
    free = (Cost.affine(1, 0.001), Cost.affine(2, 0.001))
    codec = plan.Codec(
        name="x", costs={"gpu": free}, sums={"gpu": Cost.affine(3, 0.001)}, payload=(0, 1, 1), collectives=("a2a-ag",)
    )
    cluster = plan.Cluster(nodes=1, gpus=4, inter=plan.Link(50, 1), intra=plan.Link(5, 0.1))
    problem = Problem([Tensor(len=4096, bwd_us=100)], [plan.method(codec, cluster, "a2a-ag")])
    for level in ("serial", "event"):
        found = [(span.kind, span.resource) for span in problem.timeline([Group(0, 1, "x")], level)[1]]
        assert {kind for kind, _ in found} == {"backprop", "encode", "network", "sum", "decode"}
        assert {resource for kind, resource in found if kind != "network"} == {"gpu"}


def test_a_bound_of_the_error():
    tensors = [Tensor(len=1000 * (i + 1), bwd_us=10.0) for i in range(6)]
    exact = Method(name="exact", net=Cost.affine(30, 0.01))
    coarse = Method(name="coarse", net=Cost.affine(30, 0.002), error=2e-3)
    errors = []
    makespans = []
    for bound in (1e-12, 5e-4, 1e-3, 2.1e-3, 0):
        problem = Problem(tensors, [exact, coarse], error_max=bound)
        schedule = problem.solve()
        assert problem.error_mean(schedule.groups) <= bound or not bound
        assert problem.solve("brute").makespan == schedule.makespan
        errors.append(problem.error_mean(schedule.groups))
        makespans.append(schedule.makespan)
    assert errors[0] == 0
    assert {group.method for group in problem.solve().groups} == {"coarse"}
    assert errors[-1] == pytest.approx(2e-3)
    assert makespans == sorted(makespans, reverse=True)
    assert makespans[0] > makespans[2] > makespans[-1]
    whole = [Group(0, 6, "coarse")]
    assert Problem(tensors, [exact, coarse]).error_mean(whole) == pytest.approx(2e-3)
    with pytest.raises(gradwire.Error, match="plan"):
        problem.error_mean([Group(0, 3, "coarse")])
    for methods, bound, name in (([coarse], 1e-3, "infeasible"), ([exact], -1.0, "negative")):
        with pytest.raises(gradwire.Error) as caught:
            Problem(tensors, methods, error_max=bound)
        assert caught.value.name == name
    assert fused("gcomp-t12", "a2a-ag", "cpu")[2].error == pytest.approx(0.000986, rel=1e-5)


def test_model_files(tmp_path):
    tensors = plan.read_model(TRACE)
    assert len(tensors) == 161
    assert tensors[0].name == "fc.bias"
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbfname,elems,bwd_us\na,5,1\n")  # as editors on Windows save it
    assert [tensor.name for tensor in plan.read_model(str(marked))] == ["a"]
    bad = tmp_path / "model.csv"
    for text in ("name,elems\na,5\n", "name,elems,bwd_us,flags\na,5,1,dense\n", "name,elems,bwd_us\na,0,1\n"):
        bad.write_text(text)
        with pytest.raises(ValueError, match="model.csv"):
            plan.read_model(str(bad))
