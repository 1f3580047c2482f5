"""The probe: inputs of the planner from a running job."""

import json
import os
import time
import types

import gradwire.plan
import gradwire.torch
import pytest
import torch
import torch.distributed as dist
from gradwire.torch import probe
from gradwire.torch.buckets import Bucket
from ranks import run
from test_ddp import batch, digest, model


def measured(rank, size, folder, codecs):
    net = model(width=256)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(2):
        x, y = batch(0, step)  # equal state on all ranks
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    x, y = batch(rank, 2)
    torch.nn.functional.mse_loss(net(x), y).backward()
    before = digest(net), [param.grad.clone() for param in net.parameters()]
    found = gradwire.torch.probe.measure(optimizer, codecs, lens=(1 << 10, 1 << 17), repeats=1, compress="auto")
    found.write(folder)
    after = [param.grad for param in net.parameters()]
    return digest(net) == before[0] and all(map(torch.equal, before[1], after)), found.cluster


def test_costs_of_every_kind_of_codec(tmp_path):
    codecs = {"plain": {}, "fp16": {}, "bf16": {}, "gcomp-t12": {}, "thc": {}}
    codecs["mine"] = {"codec": "gradwire", "tolerance_bits": 20}
    found = run(measured, 3, str(tmp_path / "inputs"), codecs)
    assert all(untouched for untouched, _ in found.values())
    assert len({json.dumps(cluster) for _, cluster in found.values()}) == 1
    cluster = json.loads((tmp_path / "inputs" / "cluster.json").read_text())
    assert cluster["ranks"] == 3 and cluster["latency_us"] > 0 and cluster["us_per_kib"] > 0
    entries = {
        entry["name"]: entry for entry in json.loads((tmp_path / "inputs" / "codecs.json").read_text())["codecs"]
    }
    assert list(entries) == list(codecs)
    for entry in entries.values():
        curves = entry.get("gpu") or entry["cpu"]
        for curve in curves.values():
            times = [us for _, us in curve["points"]]
            assert len(times) == 2 and 0 < times[0] <= times[1]
    assert entries["plain"]["options"] == {"codec": "none"} and entries["plain"]["collectives"] == ["allreduce"]
    assert [entries[name]["payload"]["num"] for name in ("plain", "fp16", "bf16")] == [4, 2, 2]
    assert entries["gcomp-t12"]["collectives"] == ["a2a-ag"]
    assert entries["gcomp-t12"]["options"] == {"codec": "gradwire", "tolerance_bits": 12}
    assert entries["mine"]["options"] == {"codec": "gradwire", "tolerance_bits": 20}
    tight, loose = (entries[name]["payload"] for name in ("mine", "gcomp-t12"))
    assert 0.5 < loose["num"] / loose["den"] < tight["num"] / tight["den"] < 4.2  # bytes a value


def two_bytes(rank, size, dtypes, codecs):
    net = model(width=64)
    for param, dtype in zip(net.parameters(), dtypes):
        param.data = param.data.to(dtype)
        param.grad = torch.randn(param.shape).mul(rank + 1).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        found = gradwire.torch.probe.measure(optimizer, codecs, lens=(1 << 8, 1 << 12), repeats=1)
    except ValueError as error:
        return str(error)
    return {entry["name"]: entry["payload"] for entry in found.codecs}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_two_bytes(dtype):
    """Plain messages are half as large; what codecs send is counted."""
    adds = dtype == torch.float16 or hasattr(torch, "compile")  # torch 1.13's Gloo does not add bf16
    codecs = {**({"plain": {}} if adds else {}), "fp16": {}, "bf16": {}, "gcomp-t12": {}}
    for payloads in run(two_bytes, 2, 6 * [dtype], codecs).values():
        dial = payloads.pop("gcomp-t12")
        assert payloads == dict.fromkeys(payloads, {"header": 0, "num": 2, "den": 1})
        assert list(payloads) == list(codecs)[:-1] and 0.5 < dial["num"] / dial["den"] < 2.5
    for message in run(two_bytes, 2, 6 * [dtype], {"thc": {}}).values():
        assert message == f"thc: THC takes gradients of torch.float32, not of {dtype}"


def test_gradients_of_several_types_are_refused():
    for message in run(two_bytes, 2, [torch.float16, *5 * [torch.float32]], {"fp16": {}}).values():
        assert message == "gradients of several types: torch.float16, torch.float32"


@pytest.mark.parametrize("ranks, lane_bits", [(2, 8), (17, 8), (18, 16), (1285, 16), (2000, 32)])
def test_what_thc_sends_to_many_ranks(ranks, lane_bits):
    """Indices of 4 bits to the owners, and lanes from them: those of 8 bits end at 17 ranks, those of 16 at 1285."""
    rows = [probe._Row(length, 1.0, 0.0, 0.0) for length in (1 << 10, 1 << 20)]
    bench = types.SimpleNamespace(
        size=ranks, dtype=torch.float32, adds_bf16=True, state=types.SimpleNamespace(engine=Engine)
    )
    entry = probe._entry(bench, probe._Costs("thc", "thc", {"bits": 4}, rows), (0.0, 1e-12), 8.0)
    planned = gradwire.plan.Codec.from_json(entry, ranks=ranks)
    header, num, den = planned.payload
    assert entry["collectives"] == ["a2a-ag"] and entry["overlap"] and header == 0
    assert (4 + lane_bits) / 2 < 8 * num / den < (4 + lane_bits) / 2 + 0.05  # of both ways the mean
    again = {"bits": 4, "sums": "requantized"}
    entry = probe._entry(bench, probe._Costs("thc", "thc", again, rows), (0.0, 1e-12), 8.0)
    header, num, den = gradwire.plan.Codec.from_json(entry, ranks=ranks).payload
    assert 4 < 8 * num / den < 4.05


class Engine:
    settings = types.SimpleNamespace(threads=2)


def hooked():
    """Model, DDP with the hook, optimizer, state of the hook."""
    net = model(width=256)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    state, hook = gradwire.torch.ddp_hook(optimizer, compress="always", small_len=1, model=net)
    ddp.register_comm_hook(state, hook)
    return net, ddp, optimizer, state


def recorded(rank, size, path):
    net, ddp, optimizer, state = hooked()

    def backward(step):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(x), y).backward()

    for step in range(3):
        backward(step)
        optimizer.step()
    state.check()
    sent, maps = state.engine.stats().sent_size, state.engine.stats().map_ns
    gradwire.torch.probe.record_backward(state, path, lambda: backward(3), steps=4)
    own = torch.cat([param.grad.flatten() for param in net.parameters()])
    silent = state.engine.stats().sent_size == sent and state.engine.stats().map_ns > maps
    backward(3)
    mean = torch.cat([param.grad.flatten() for param in net.parameters()])
    optimizer.step()
    state.check()
    state.close()
    return silent, own.tolist(), mean.tolist(), digest(net)


def test_backward_passes_that_send_nothing(tmp_path):
    path = tmp_path / "profile.json"
    found = run(recorded, 2, str(path))
    assert all(silent for silent, *_ in found.values())
    owns, means = ([torch.tensor(values[i]) for values in found.values()] for i in (1, 2))
    assert not torch.equal(*owns) and torch.equal(*means)  # each rank's, then those of all
    assert torch.allclose(sum(owns) / 2, means[0], atol=1e-3)
    assert len({digest for *_, digest in found.values()}) == 1
    events = json.loads(path.read_text())["traceEvents"]
    steps = [event for event in events if event["cat"] == "user_annotation"]
    assert len(steps) == 4 and not any(event["name"] == "message" for event in events)
    for step in steps:
        inside = [e for e in events if e["name"] == "gradient" and step["ts"] <= e["ts"] <= step["ts"] + step["dur"]]
        assert {e["args"]["name"] for e in inside} == {name for name, _ in model(width=256).named_parameters()}


def unwritable(rank, size):
    _, _, _, state = hooked()
    passes = []
    with pytest.raises(OSError) as caught:
        gradwire.torch.probe.record_backward(state, "/nowhere/run.json", lambda: passes.append(1))
    state.close()
    return str(caught.value), len(passes)


def test_a_recording_that_cannot_be_written_ends_before_it_begins():
    found = run(unwritable, 2)
    assert "/nowhere/run.json" in found[0][0] and "rank 0 cannot write /nowhere/run.json" in found[1][0]
    assert all(passes == 0 for _, passes in found.values())


def bound(rank, size, cores):
    os.sched_setaffinity(0, cores[rank])
    return gradwire.torch.probe._share(types.SimpleNamespace(size=size, group=dist.group.WORLD))


def test_cores_of_ranks_that_are_bound_to_some():
    """All to all cores; two to one core; each to its own; the rank with the fewest counts."""
    first, *others = sorted(os.sched_getaffinity(0))
    free = [first, *others]
    assert set(run(bound, 2, [free, free]).values()) == {(len(free) / 2, len(free), 2)}
    assert set(run(bound, 2, [[first], [first]]).values()) == {(0.5, 1, 2)}
    if others:
        assert set(run(bound, 2, [[first], others]).values()) == {(1.0, len(free), 2)}


class Counted(probe.Message):
    """Keeps those of backward passes: the probe also makes lone messages."""

    made: list = []
    in_backward = False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        if self.in_backward:
            self.made.append(self)


def beside(rank, size, cores):
    probe.Message = Counted
    if cores is not None:
        probe._share = lambda state: (cores, size, size)
    _, ddp, optimizer, state = hooked()
    calls = []

    def backward():
        calls.append(state.instead)
        x, y = batch(rank, 3)
        optimizer.zero_grad()
        Counted.in_backward = True
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        Counted.in_backward = False

    backward()
    with pytest.raises(ValueError, match="both or none"):
        gradwire.torch.probe.measure(optimizer, {}, state=state)
    sent = state.engine.stats().sent_size
    found = gradwire.torch.probe.measure(
        optimizer,
        {"plain": {}, "fp16": {}, "gcomp-t12": {}, "thc": {}},
        lens=(1 << 10, 1 << 17),
        repeats=1,
        state=state,
        backward=backward,
    )
    untouched = state.engine.stats().sent_size == sent and state.instead is None
    backward()
    again = state.engine.stats().sent_size > sent
    state.close()
    (payload,) = (entry["payload"] for entry in found.codecs if entry["name"] == "gcomp-t12")
    sent = [(message.elems, message.stages["sent_size"]) for message in Counted.made if "sent_size" in message.stages]
    return found.beside, len(calls), payload, untouched and again, sent


@pytest.mark.parametrize("cores", [1.0, 4.0])
def test_messages_beside_a_backward_pass(cores):
    """Equal factors on all ranks; bytes are those of the job's buckets; the hook is as before."""
    found = run(beside, 3, cores)
    factors, calls, payload, _, _ = found[0]
    assert list(factors) == ["plain", "fp16", "gcomp-t12", "thc"]
    assert all(one[0] == factors and one[2] == payload and one[3] for one in found.values())
    if cores < 3:  # two passes, one that sends and one that does not, for each codec twice
        assert calls == 2 + 4 * 4 and all(0.5 <= factor < 100 for factor in factors.values())
    else:  # of GCOMP the bytes
        assert calls == 2 + 4 and set(factors.values()) == {1.0}
    sums = [[sum(column) for column in zip(*one[4])] for one in found.values()]  # over the passes
    (elems,), most = {values for values, _ in sums}, max(size for _, size in sums)
    half = len(found[0][4]) / 2  # messages of a pass
    expected = (most / 2 / (2 * 2 / 3) - 64 * half) / (elems / 2)
    assert payload["header"] == 64 and payload["num"] / payload["den"] == pytest.approx(expected, rel=1e-3)


def no_path(rank, size):
    _, ddp, optimizer, state = hooked()
    try:
        for path in (None, "a\0b"):
            with pytest.raises((TypeError, ValueError) if rank == 0 else OSError):
                probe.record_backward(state, path, lambda: None)
    finally:
        state.close()


def test_paths_that_are_none():
    """Rank 0 alone looks at it, and the others do not wait for it."""
    run(no_path, 2)


def one_type_each(rank, size, dtypes):
    net = model(width=64)
    for param in net.parameters():
        if dtypes[rank] is not None:
            param.data = param.data.to(dtypes[rank])
            param.grad = torch.ones_like(param)
    with pytest.raises(ValueError) as caught:
        probe.measure(torch.optim.SGD(net.parameters(), lr=0.1), {"fp16": {}})
    return str(caught.value)


def test_ranks_agree_on_types():
    several = run(one_type_each, 2, [torch.float32, torch.float16])
    assert set(several.values()) == {"gradients of several types: torch.float16, torch.float32"}
    assert all("no gradients" in one for one in run(one_type_each, 2, [torch.float32, None]).values())


def chained(rank, size):
    """An operation that begins in the callback of the one before it on the same bucket."""
    net = model(width=64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state, _ = gradwire.torch.ddp_hook(optimizer, compress="always", small_len=1)
    state.codecs.compressing = True
    start, param = state.codecs.reducer("gradwire", {}).start, next(net.parameters())
    values = torch.full((param.numel(),), rank + 1.0)
    bucket = Bucket(values, [param], [values.view_as(param)])
    later = []

    def again(_):
        later.append(start(bucket))
        time.sleep(0.3)  # it begins, and is over perhaps, before the first one is taken off the list

    start(bucket).then(again)
    deadline = time.monotonic() + 20
    while not (later and later[0].done()) and time.monotonic() < deadline:
        time.sleep(0.01)
    ended = later[0].done()
    state.close()
    return ended, len(state.engine._active)


def test_operations_that_begin_in_a_callback():
    assert set(run(chained, 2).values()) == {(True, 0)}


def without_gradients(rank, size):
    optimizer = torch.optim.SGD(model().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="after a backward pass"):
        gradwire.torch.probe.measure(optimizer, {"bf16": {}})


def test_it_needs_gradients():
    run(without_gradients, 2)


def with_embedding(rank, size):
    net = torch.nn.Sequential(torch.nn.Embedding(50, 20, sparse=True), model(width=64))
    net(torch.arange(10) + rank).square().sum().backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = gradwire.torch.probe.measure(optimizer, {"gcomp-t12": {}}, lens=(1 << 8, 1 << 12), repeats=1)
    return [entry["name"] for entry in found.codecs], net[0].weight.grad.is_sparse


def test_sparse_gradients_are_left_out():
    assert set(map(str, run(with_embedding, 2).values())) == {"(['gcomp-t12'], True)"}
