"""Planners."""

import json
import re

import gradwire
import pytest
from conftest import ROOT
from gradwire import plan
from gradwire.plan import Cost, Group, Method, Problem, Tensor

TRACE = str(ROOT / "data" / "traces" / "resnet50.csv")
CASES = ROOT / "data" / "plan-cases"


@pytest.fixture
def small():
    tensors = [Tensor(name=f"t{i}", elems=1000 * (i + 1), bwd_us=10.0) for i in range(6)]
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
    for name in ("layerwise", "one-group", "ddp", "bucket-sweep"):
        if name in plan.algorithms():
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
        Problem([Tensor(elems=5, bwd_us=-1)], small.methods)
    assert caught.value.name == "negative"
    with pytest.raises(gradwire.Error, match="name"):
        Problem([Tensor(elems=5, bwd_us=1, name="x")] * 2, small.methods)
    with pytest.raises(gradwire.Error, match="plan"):
        small.evaluate([Group(0, 3, "fp32")])
    with pytest.raises(ValueError, match="no method"):
        small.solve("ddp", method="zstd")
    with pytest.raises(ValueError, match="no algorithm"):
        small.solve("magic")
    with pytest.raises(ValueError, match="no method"):
        Problem([Tensor(elems=5, bwd_us=1, forbidden=("zstd",))], small.methods)
    forced = Problem([Tensor(elems=10**6, bwd_us=1, forbidden=("fp32",))], small.methods)
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


def test_a_job_of_the_documentation():
    """docs/planning.md: ResNet-50 on 2 machines of 4 GPUs over 10 Gb/s takes 69.9 ms."""
    described = json.loads((CASES / "cluster-2x4-10gbe.json").read_text())
    links = {
        name: plan.Link(described[name]["latency_us"], described[name]["us_per_kib"]) for name in ("intra", "inter")
    }
    cluster = plan.Cluster(nodes=described["nodes"], gpus=described["gpus"], **links)
    codecs = [plan.Codec.from_json(x) for x in json.loads((CASES / "gradwire-codecs.json").read_text())["codecs"]]
    methods = [plan.method(None, cluster)]
    for codec in codecs:
        if codec.name in ("gcomp", "thc"):
            device = next(iter(codec.costs))
            methods.append(plan.method(codec, cluster, codec.collectives[0], device=device))
    schedule = Problem(plan.read_model(TRACE), methods).solve()
    page = (ROOT / "docs" / "planning.md").read_text()
    documented = float(re.search(r"takes ([\d.]+) ms an iteration instead of", page)[1])
    assert round(schedule.makespan_us / 1000, 1) == documented
    assert {group.method for group in schedule.groups} == {"fp32", "thc"}


def test_model_files(tmp_path):
    tensors = plan.read_model(TRACE)
    assert len(tensors) == 161
    assert tensors[0].name == "fc.bias"
    bad = tmp_path / "model.csv"
    for text in ("name,elems\na,5\n", "name,elems,bwd_us,flags\na,5,1,dense\n"):
        bad.write_text(text)
        with pytest.raises(ValueError, match="model.csv"):
            plan.read_model(str(bad))
