"""Options of ByteComp's tree: what runs, that every path is a mean, codecs at each level, who is on which machine."""

import functools
import itertools
import json
import math
import os
import re
import threading
import zlib
from ctypes import byref, c_uint32
from datetime import timedelta

import gradwire.torch
import numpy as np
import pytest
import torch
from gradwire import _constants, _structs
from gradwire._library import check, plan_lib
from gradwire.torch import machines, planned, probe_levels
from gradwire.torch.buckets import Bucket
from gradwire.torch.failure import Gate
from gradwire.torch.level_codecs import Cast, Gcomp, LevelCodec, Part
from gradwire.torch.levels import Levels, Work
from gradwire.torch.optimizers import ParamRegistry
from gradwire.torch.option_path import parse
from gradwire.torch.options import CodecOptions
from gradwire.torch.scopes import Message, bounds
from gradwire.torch.transport import new_transport
from ranks import run
from test_ddp import OPTIMIZERS, batch, digest, model

ORDER = ["4.bias", "4.weight", "2.bias", "2.weight", "0.bias", "0.weight"]  # in which backprop finishes gradients
SIZES = {name: param.numel() for name, param in model().named_parameters()}
TIMEOUT = timedelta(seconds=20)


def options_of_the_planner(flags=0):
    """Paths of all options, by the planner's own list."""
    count = c_uint32()
    check(plan_lib.gw_plan_options_list(flags, 12, None, 0, byref(count)))
    options = (_structs.gw_plan_option * count.value)()
    check(plan_lib.gw_plan_options_list(flags, 12, options, count.value, byref(count)))
    names = [plan_lib.gw_plan_op_name(op).decode() for op in range(_constants.GW_PLAN_OP_COUNT)]
    return [">".join(names[op] for op in option.ops[: option.op_count]) for option in options]


def on_cpu(path):
    return path.replace("-gpu", "-cpu")


# ---- paths ----


def test_all_4341_options_run():
    """On a CPU all, those with codecs on a GPU if one says so."""
    paths = options_of_the_planner()
    assert len(paths) == 4341 == len(set(paths))
    options = [parse(path) for path in paths]
    assert sum(not option.on_gpu for option in options) == 174  # nine of them without a codec
    assert sum(bool(option.on_gpu) for option in options) == 4167
    assert len({on_cpu(path) for path in paths}) == 174
    assert max(option.encodes for option in options) == 4
    buckets = [planned.PlanBucket(("a",), 1, o.path, "levels", {}, planned.Way(o, "fp16", 2, 2)) for o in options]
    planned.check_device(buckets, "cpu")
    refusals = 0
    for bucket in buckets:
        try:
            planned.check_device([bucket], None)
        except ValueError as error:
            refusals += 1
            assert re.search(f"bucket 0: the option {bucket.label} has (de)?comp-gpu", str(error))
    assert refusals == 4167


def test_no_other_paths_run():
    """Every option with an operation less, twice, or two changed over is refused, or is another option."""
    known = {on_cpu(path) for path in options_of_the_planner()}
    taken, refused = 0, 0
    for path in sorted(known):
        ops = path.split(">")
        changed = [ops[:i] + ops[i + 1 :] for i in range(len(ops))]
        changed += [ops[: i + 1] + ops[i:] for i in range(len(ops))]
        changed += [ops[:i] + [ops[i + 1], ops[i]] + ops[i + 2 :] for i in range(len(ops) - 1)]
        for other in changed:
            try:
                parse(">".join(other))
            except ValueError:
                refused += 1
            else:
                taken += 1
                assert ">".join(other) in known or is_a_detour(other)
    assert taken > 50 and refused > 2000


def is_a_detour(ops):
    """An encode whose frames are decoded at once, which the tree does not have and which does no harm."""
    return any(pair == ("comp-cpu", "decomp-cpu") for pair in itertools.pairwise(ops))


@pytest.mark.parametrize(
    "path, why",
    [
        ("", "no operation ''"),
        ("flat-broadcast", "without a first step"),
        ("comp-cpu>decomp-cpu", "does not sum over all ranks"),
        ("intra-reduce-scatter>intra-allgather", "before the steps between the machines"),
        ("intra-allreduce", "no operation 'intra-allreduce'"),
        ("comp-cpu>flat-allreduce", "decode them before"),
        ("flat-alltoall>flat-allgather", "encode the values before"),
        ("intra-reduce>inter-allreduce>intra-allgather", "does not undo the step intra-reduce"),
        ("comp-cpu>flat-allgather-c", "frames are not decoded"),
        ("flat-allreduce>flat-allreduce", "sums what is summed already"),
        ("inter-allreduce", "must follow a first step inside"),
        (">".join(13 * ["comp-cpu"]), "at most 12"),
    ],
)
def test_paths_that_are_no_option(path, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        parse(path)


def test_threads_leave_the_link_between_machines_to_messages():
    def threads(path):
        return [stage.thread for stage in parse(path).stages]

    assert threads("intra-reduce-scatter>comp-cpu>inter-allgather-c>decomp-cpu>intra-allgather") == [1, 1, 2, 3, 3]
    path = "comp-cpu>intra-alltoall>decomp-cpu>comp-cpu>inter-alltoall>decomp-cpu>comp-cpu>inter-allgather>decomp-cpu"
    assert threads(path + ">intra-allgather") == [0, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert threads("comp-cpu>flat-alltoall>decomp-cpu>comp-cpu>flat-allgather>decomp-cpu") == [0, 1, 1, 1, 1, 4]


# ---- machines ----


def test_ranks_of_machines():
    made = machines.Machines(machines.placed(None, 2, 3))
    assert made.ranks("intra", 4) == [3, 4, 5] and made.ranks("inter", 4) == [1, 4]
    assert made.ranks("flat", 4) == [0, 1, 2, 3, 4, 5] and made.count("flat") == 6
    mixed = machines.Machines(machines.placed(["a", "b", "a", "b"], 2, 2))
    assert mixed.ranks("intra", 1) == [1, 3] and mixed.ranks("inter", 1) == [0, 1]
    assert mixed.ranks("flat", 0) == [0, 2, 1, 3]  # a ring leaves each machine once
    assert machines.placed(2, 2, 2) == [[0, 1], [2, 3]]
    for given, why in ((4, "machines=4"), ([0, 0, 1], "of 3 ranks"), ([0, 0, 0, 1], "2 machines of 3, 1 ranks")):
        with pytest.raises(ValueError, match=why):
            machines.placed(given, 2, 2)


def test_jobs_that_contradict_the_plan():
    made = machines.Machines(machines.placed(None, 2, 2))
    machines._check(made, [7, 7, 7, 7], [0, 0, 0, 0])  # one host may play two
    machines._check(made, [7, 7, 8, 8], [2, 2, 2, 2])
    with pytest.raises(ValueError, match="2 ranks on a machine, rank 0 is one of 4"):
        machines._check(made, [7, 7, 7, 7], [4, 4, 4, 4])
    with pytest.raises(ValueError, match="ranks 0 and 1 on one machine, they are on two hosts"):
        machines._check(made, [7, 8, 7, 8], [0, 0, 0, 0])
    three = machines.Machines(machines.placed(None, 3, 1))
    with pytest.raises(ValueError, match="3 machines, the ranks are on 2 hosts"):
        machines._check(three, [7, 7, 8], [0, 0, 0])


# ---- messages ----


def test_messages_of_frames():
    frames = [np.arange(3, dtype=np.uint8), np.empty(0, np.uint8), np.full(5, 9, np.uint8)]
    sent = Message.of(frames)
    room = torch.cat([sent.bytes, torch.full((40,), 77, dtype=torch.uint8)])
    got = Message(room, 3)
    assert [frame.tolist() for frame in got.frames] == [frame.tolist() for frame in frames]
    assert got.bytes.numel() == sent.bytes.numel() == 32
    for size in (-1, 1 << 62, 50):
        room[:8] = torch.tensor([size]).view(torch.uint8)
        with pytest.raises(ValueError, match="sizes that do not fit"):
            Message(room, 3)


def test_parts_of_a_range():
    for length, count in itertools.product(range(40), range(1, 9)):
        parts = bounds(5, 5 + length, count)
        assert len(parts) == count and parts[0][0] == 5 and parts[-1][1] == 5 + length
        assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
        assert max(high - low for low, high in parts) == -(-length // count)


# ---- every path is a mean ----


class Whole(LevelCodec):
    """Frames of the values as they are, each with what it is: a number of a wrong place or length is found."""

    def bound(self, length):
        return 4 * length + 24

    def encode(self, values, part):
        assert values.size == part.len
        head = np.array([part.low, part.high, part.position], np.int64)
        return np.concatenate([head.view(np.uint8), values.view(np.uint8)])

    def add(self, frame, out, scale):
        low, high, _ = frame[:24].copy().view(np.int64)
        assert high - low == out.size
        out += np.float32(scale) * frame[24:].copy().view(np.float32)


def in_levels(rank, nodes, gpus, given, paths, length, codec, steps):
    """Results of buckets by these options, and what each rank has sent."""
    transport = new_transport(torch.distributed.group.WORLD, None, TIMEOUT)
    gate = Gate(transport)
    made = Levels(transport, machines.Machines(machines.placed(given, nodes, gpus)), gate, lambda: 1.0, 0)
    reducers = [made.add(Work(parse(on_cpu(path)), codec, str(i))) for i, path in enumerate(paths)]
    found = []
    for step in range(steps):
        started = []
        for i, reducer in enumerate(reducers):
            values = gradient(rank, length, i + step)
            started.append((values, reducer.start(Bucket(values, [], [], step))))
        for values, future in started:
            future.wait()
            found.append(values)
    sizes = made.sizes()
    made.close()
    return found, sizes


def gradient(rank, length, number):
    """Small integers: sums and means over powers of two are exact, in fp16, too."""
    generator = torch.Generator().manual_seed(1000 * number + rank)
    return torch.randint(-64, 64, (length,), generator=generator).float() * 4


def all_paths(rank, size, nodes, gpus, given, length):
    paths = options_of_the_planner(_constants.GW_PLAN_OPTIONS_GPU_ONLY)
    found, sizes = in_levels(rank, nodes, gpus, given, paths, length, Whole(), 1)
    wrong = []
    for i, (path, values) in enumerate(zip(paths, found)):
        mean = torch.stack([gradient(one, length, i).double() for one in range(size)]).mean(0)
        if not torch.allclose(values.double(), mean, rtol=0, atol=0 if size & (size - 1) == 0 else 1e-4):
            wrong.append(path)
    whole = torch.cat(found)
    return len(paths), wrong, int(whole.view(torch.int32).sum()), sizes


@pytest.mark.parametrize(
    "nodes, gpus, given, length",
    [(2, 2, None, 37), (2, 2, [0, 1, 0, 1], 1), (3, 2, None, 130), (1, 3, None, 20), (3, 1, None, 5)],
)
def test_every_path_is_the_mean_of_all_ranks(nodes, gpus, given, length):
    found = run(all_paths, nodes * gpus, nodes, gpus, given, length, timeout_s=50)
    for count, wrong, bits, _ in found.values():
        assert count == 174 and wrong == []
        assert bits == found[0][2]  # the same on all ranks


def random_codec(name):
    """One whose frames depend on random numbers."""
    if name == "gcomp":  # by nmse: stochastic rounding
        return Gcomp(CodecOptions(nmse=1e-2), [], ParamRegistry([], 0))
    return codec_of(name, {})


def bits_of_all_paths(rank, size, nodes, gpus, name):
    paths = options_of_the_planner(_constants.GW_PLAN_OPTIONS_GPU_ONLY)
    found, _ = in_levels(rank, nodes, gpus, None, paths, 130, random_codec(name), 1)
    return [(path, zlib.crc32(values.numpy().tobytes())) for path, values in zip(paths, found)]


@pytest.mark.parametrize("nodes, gpus, name", [(2, 2, "thc"), (2, 2, "qsgd"), (3, 2, "gcomp")])
def test_every_path_gives_all_ranks_the_same_bits(nodes, gpus, name):
    """Also where each machine encodes a mean that all machines have."""
    found = run(bits_of_all_paths, nodes * gpus, nodes, gpus, name, timeout_s=50)
    assert len(found[0]) == 174
    wrong = {path for bits in found.values() for (path, mine), (_, first) in zip(bits, found[0]) if mine != first}
    assert not wrong


def tags(rank, size):
    """Those of the threads of two messages with one number modulo 2^12, in operations with one number."""
    transport = new_transport(torch.distributed.group.WORLD, None, TIMEOUT)
    made = Levels(transport, machines.Machines([[0], [1]]), Gate(transport), lambda: 1.0, 0)
    send, found = transport.send, {}

    def noting(message, peer, tag):
        found.setdefault(tag, set()).add(threading.current_thread().name)
        return send(message, peer, tag)

    transport.send = noting
    for number, path in ((5, "comp-cpu>flat-allgather-c>decomp-cpu"), (5 + (1 << 12), DENSE)):
        made._started = number
        values = torch.full((8,), float(rank))
        made.add(Work(parse(path), Whole(), str(number))).start(Bucket(values, [], [], 0)).wait()
        assert (values == 0.5).all()
    made.close()
    return found


def test_more_messages_than_tags_have_numbers():
    """A tag belongs to one thread, where messages have one order on all ranks, and to no agreement."""
    for found in run(tags, 2).values():
        assert all(len(threads) == 1 for threads in found.values())
        assert set.union(*found.values()) == {"gradwire-level-first", "gradwire-level-between"}
        assert sum(tag >> 30 for tag in found) == 1


def bytes_between(path, nodes, gpus, length, rank):
    """What a rank sends to other machines, by the formulas of the planner, for fp32 without a codec. A binomial tree of
    four, for which those count one message: to the first rank and from it go two."""
    size = nodes * gpus
    if "broadcast" in path:
        return [2, 1, 2, 1][rank] * 4 * length
    if path.startswith("flat"):
        return 2 * (size - 1) / size * 4 * length if (rank + 1) % gpus == 0 else 0
    return 2 * (nodes - 1) / nodes * 4 * length / gpus


def counted(rank, size, path, nodes, gpus, length):
    """Bytes to other machines, without those of what the ranks compare; those that Levels counts, to all."""
    transport = new_transport(torch.distributed.group.WORLD, None, TIMEOUT)
    send, between = transport.send, []

    def counting(message, peer, tag):
        if not tag >> 30 and peer // gpus != rank // gpus:
            between.append(message.numel() * message.element_size())
        return send(message, peer, tag)

    transport.send = counting
    made = Levels(transport, machines.Machines(machines.placed(None, nodes, gpus)), Gate(transport), lambda: 1.0, 0)
    reducer = made.add(Work(parse(path), None, "0"))
    values = gradient(rank, length, 0)
    reducer.start(Bucket(values, [], [], 0)).wait()
    made.close()
    return sum(between), made.sizes()


@pytest.mark.parametrize(
    "path, nodes, gpus",
    [
        ("flat-reduce-scatter>flat-allgather", 2, 2),
        ("intra-reduce-scatter>inter-reduce-scatter>inter-allgather>intra-allgather", 2, 2),
        ("flat-reduce>flat-broadcast", 4, 1),
        ("intra-reduce-scatter>inter-reduce>inter-broadcast>intra-allgather", 4, 1),
    ],
)
def test_bytes_between_machines(path, nodes, gpus):
    """Those of the planner, but for trees."""
    length, found = 1 << 12, {}
    for rank, (between, (sent, received)) in run(counted, 4, path, nodes, gpus, length).items():
        assert between == bytes_between(path, nodes, gpus, length, rank)
        found[rank] = sent, received
    assert sum(sent for sent, _ in found.values()) == sum(received for _, received in found.values())
    if "broadcast" not in path:
        assert all(sent == received for sent, received in found.values())


# ---- in the hook ----

PATHS = [  # a kind of path for each of the model's gradients
    "flat-allreduce",
    "intra-reduce-scatter>comp-cpu>inter-allgather-c>decomp-cpu>intra-allgather",
    "comp-cpu>flat-allgather-c>decomp-cpu",
    "comp-cpu>flat-alltoall>decomp-cpu>comp-cpu>flat-allgather>decomp-cpu",
    "intra-reduce>comp-cpu>inter-alltoall>decomp-cpu>inter-allgather>intra-broadcast",
    "comp-cpu>intra-alltoall>decomp-cpu>comp-cpu>inter-alltoall>decomp-cpu>comp-cpu>inter-allgather>intra-allgather"
    ">decomp-cpu",
]
DENSE = "intra-reduce-scatter>inter-allreduce>intra-allgather"


def tree(paths, codec="fp16", options=None, **changes):
    """A plan of an option tree for two machines of two ranks: a path for each gradient."""
    groups = []
    for name, path in zip(ORDER, paths, strict=True):
        entry = {"names": [name], "elems": SIZES[name], "option": path}
        if "comp" in path:
            entry.update({"codec": codec, "options": options or {}})
        groups.append(entry)
    return {"schema": "gradwire-buckets/1", "ranks": 4, "nodes": 2, "gpus": 2, "groups": groups, **changes}


def train(rank, size, document, steps, name="adamw", options=None, seen=None):
    net = model()
    ddp = gradwire.torch.planned_ddp(net, document)
    optimizer = OPTIMIZERS[name](net.parameters())
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net, debug=True, **(options or {}))
    ddp.register_comm_hook(state, hook)
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state.check()
    totals = state.report.totals()
    state.close()
    return losses, digest(net), totals


CODECS = [
    ("fp16", {}, "adamw", 0.01),
    ("bf16", {}, "adamw", 0.02),
    ("gcomp-t14", {}, "adamw", 0.01),
    ("gcomp-t12", {"quantum_mode": "explicit"}, "sgd", 0.02),
    ("thc", {"bits": 4}, "sgd", 0.1),
    ("classic", {"scheme": "topk", "ratio": 0.3}, "sgd", 0.3),
    ("classic", {"scheme": "dgc", "ratio": 0.3, "warmup_steps": 2}, "sgd", 1.0),
    ("classic", {"scheme": "randk", "ratio": 0.5}, "sgd", 0.4),
    ("classic", {"scheme": "efsignsgd"}, "sgd", 0.4),
    ("classic", {"scheme": "onebit"}, "sgd", 0.4),
    ("classic", {"scheme": "qsgd"}, "sgd", 0.4),
    ("classic", {"scheme": "terngrad"}, "sgd", 1.0),
]


@functools.cache
def plain_losses(optimizer):
    """By rank."""
    found = run(train, 4, tree(6 * ["flat-allreduce"]), 5, optimizer)
    return {rank: losses for rank, (losses, _, _) in found.items()}


@pytest.mark.parametrize("codec, options, optimizer, difference", CODECS)
def test_every_codec_at_every_level(codec, options, optimizer, difference):
    """Replicas are equal bit by bit, and near to plain training."""
    found = run(train, 4, tree(PATHS, codec, options), 5, optimizer)
    assert len({digest for _, digest, _ in found.values()}) == 1
    for rank, (losses, _, totals) in found.items():
        assert losses == pytest.approx(plain_losses(optimizer)[rank], rel=difference)
        assert totals["sent_size"] > 0 and totals["received_size"] > 0
        assert totals["full_size"] == 5 * 4 * (sum(SIZES.values()) - SIZES["4.bias"])  # that one is plain


def test_signs_are_means_of_signs():
    """Numbers of one size at each level: not gradients, but between -1 and 1."""
    paths = 2 * PATHS[1:4]
    for scheme in ("signsgd", "signum"):
        document = tree(paths, "classic", {"scheme": scheme})
        found = run(train, 4, document, 3, "sgd")
        assert len({digest for _, digest, _ in found.values()}) == 1


def test_without_a_codec_two_levels_follow_plain_training():
    found = run(train, 4, tree(6 * [DENSE]), 4)
    plain = run(train, 4, tree(6 * ["flat-allreduce"]), 4)
    for rank in range(4):
        assert found[rank][0] == pytest.approx(plain[rank][0], rel=1e-4)
    assert len({digest for _, digest, _ in found.values()}) == 1


def test_quanta_follow_the_optimizer():
    """Its rate, after load_state_dict() too, which makes new groups."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    params = list(net.parameters())
    flat = torch.cat([param.detach().flatten() for param in params])
    for param in params:
        param.data.add_(1.0)

    def frame_size(codec, step):
        bucket = Bucket(
            flat, params, [part.view_as(p) for part, p in zip(flat.split([p.numel() for p in params]), params)]
        )
        bucket.step = step
        return codec.encode(flat.numpy(), Part(bucket, "0", 0, 0, flat.numel(), 0, 1.0)).size

    registry = ParamRegistry([optimizer], 0)
    codec = Gcomp(CodecOptions(tolerance_bits=12, peak_lr=None), [optimizer], registry)
    slow = frame_size(codec, 0)
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 10.0
    optimizer.load_state_dict(state)
    fast = frame_size(codec, 1)
    assert slow < 0.7 * fast
    assert fast == frame_size(Gcomp(CodecOptions(tolerance_bits=12), [optimizer], ParamRegistry([optimizer], 0)), 1)
    by_nmse = Gcomp(CodecOptions(nmse=1e-2), [], ParamRegistry([], 0))
    assert frame_size(by_nmse, 0) < 2 * flat.numel()


def narrow(rank, size, dtype):
    transport = new_transport(torch.distributed.group.WORLD, None, TIMEOUT)
    gate = Gate(transport)
    made = Levels(transport, machines.Machines(machines.placed(None, 2, 2)), gate, lambda: 1.0, 0)
    values = gradient(rank, 50, 0).to(dtype)
    made.add(Work(parse(PATHS[5]), Whole(), "0")).start(Bucket(values, [], [], 0)).wait()
    made.close()
    return str(values.dtype), values.float().numpy()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_two_bytes(dtype):
    """Means are made in fp32 and rounded once."""
    mean = torch.stack([gradient(rank, 50, 0).to(dtype).float() for rank in range(4)]).mean(0).to(dtype).float()
    for name, values in run(narrow, 4, dtype).values():
        assert name == str(dtype) and np.array_equal(values, mean.numpy())


# ---- error feedback ----


def fed_back(rank, size, path, scheme, options, steps):
    """The sum of a bucket's results over some steps, that of this rank's gradients, and what its memories hold."""
    transport = new_transport(torch.distributed.group.WORLD, None, TIMEOUT)
    gate = Gate(transport)
    made = Levels(transport, machines.Machines(machines.placed(None, 2, 2)), gate, lambda: 1.0, 0)
    codec = codec_of(scheme, options)
    reducer = made.add(Work(parse(path), codec, "0"))
    total, given = torch.zeros(100), torch.zeros(100)
    for step in range(steps):
        values = torch.randn(100, generator=torch.Generator().manual_seed(10 * step + rank))
        given += values
        reducer.start(Bucket(values, [], [], step)).wait()
        total += values
    kept = {name: memory.numpy().copy() for name, memory in codec.memory.items()}
    made.close()
    return total.numpy(), given.numpy(), kept


def codec_of(scheme, options):
    from gradwire.torch.level_codecs import Classic, Thc

    return Thc(options, 4, lambda: 0) if scheme == "thc" else Classic({"scheme": scheme, **options}, [], lambda: 0)


@pytest.mark.parametrize("path", PATHS[1:])
@pytest.mark.parametrize("scheme, options", [("topk", {"ratio": 0.1}), ("efsignsgd", {}), ("thc", {"bits": 3})])
def test_nothing_is_lost(path, scheme, options):
    """What all steps have given is in the results or in a memory, at any level: that of a mean counts less."""
    option = parse(path)
    encodes = [stage for stage in option.stages if stage.what == "comp"]
    weights = [math.prod({"flat": 4}.get(where, 2) for where in stage.later) for stage in encodes]
    found = run(fed_back, 4, path, scheme, options, 6)
    results = np.stack([total for total, _, _ in found.values()])
    assert (results == results[0]).all()
    left = np.mean([given for _, given, _ in found.values()], axis=0, dtype=np.float64) - results[0]
    kept = np.zeros(100)
    for _, _, memories in found.values():
        for name, memory in memories.items():
            _, position, low, _ = name.split("/")
            kept[int(low) : int(low) + memory.size] += memory / weights[int(position)]
    assert np.allclose(left, kept, atol=1e-4) and np.abs(left).max() > 1e-3


def test_top_k_of_all_ranks_by_a_model():
    """Bit by bit what flat all-gather of Top-k is: by a model in one process."""
    path, steps = "comp-cpu>flat-allgather-c>decomp-cpu", 4
    residual, total = np.zeros((4, 100), np.float32), np.zeros(100, np.float32)
    for step in range(steps):
        mean = np.zeros(100, np.float32)
        for rank in range(4):
            values = torch.randn(100, generator=torch.Generator().manual_seed(10 * step + rank)).numpy()
            residual[rank] += values
            chosen = np.argsort(-np.abs(residual[rank]), kind="stable")[:10]
            mean[chosen] += np.float32(0.25) * residual[rank][chosen]
            residual[rank][chosen] = 0
        total += mean
    for found, _, memories in run(fed_back, 4, path, "topk", {"ratio": 0.1}, steps).values():
        assert np.array_equal(found, total)
        assert len(memories) == 1


# ---- values that are not finite ----


def spoilt(rank, size, document, nonfinite):
    """Gradients after a step with NaN on rank 3, and whether the memories are those of the step before."""
    net = model()
    ddp = gradwire.torch.planned_ddp(net, document)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net)
    ddp.register_comm_hook(state, hook)
    memories = []
    for step in range(3):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        scale = float("nan") if step == 1 and rank == 3 else 1.0
        try:
            torch.nn.functional.mse_loss(ddp(x) * scale, y).backward()
        except RuntimeError:
            return str(state.error)
        finite = [bool(torch.isfinite(param.grad).all()) for param in net.parameters()]
        memories.append({key: dict(one) for key, one in state.state_dict()["levels"]["levels"]["memory"].items()})
        if step == 1:
            same = all(
                torch.equal(memories[0][key][name], memories[1][key][name])
                for key in memories[0]
                for name in memories[0][key]
            )
            found = finite, same, sum(map(len, memories[0].values()))
    state.close()
    return *found, all(finite)


@pytest.mark.parametrize(
    "codec, options",
    [("classic", {"scheme": "topk", "ratio": 0.3}), ("classic", {"scheme": "efsignsgd"}), ("thc", {"bits": 4})],
)
def test_nan_is_nan_on_all_ranks_and_leaves_memories_alone(codec, options):
    found = run(spoilt, 4, tree(3 * PATHS[1:3], codec, options), None)
    for finite, same, memories, after in found.values():
        assert not any(finite) and same and memories > 0 and after
    options = {**options, "nonfinite": "error"}
    for message in run(spoilt, 4, tree(3 * PATHS[1:3], codec, options), "error").values():
        assert "NaN or infinity" in message and re.search("rank [23], step 1, bucket", message), message


# ---- resuming ----


def resumed(rank, size, document, cut):
    """A run that is cut, saved and resumed with a new model, DDP and hook, whose own seed is another one."""
    saved = None
    for first, last in ((0, cut), (cut, 6)):
        net = model()
        optimizer = OPTIMIZERS["sgd"](net.parameters())
        if saved is not None:
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
        ddp = gradwire.torch.planned_ddp(net)
        seed = 3 if saved is None else 0
        state, hook = gradwire.torch.ddp_hook(optimizer, plan=document, model=net, seed=seed)
        if saved is not None:
            state.load_state_dict(saved["hook"])
        ddp.register_comm_hook(state, hook)
        for step in range(first, last):
            x, y = batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
        saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "hook": state.state_dict()}
        state.close()
    return digest(net)


@pytest.mark.parametrize(
    "codec, options",
    [
        ("gcomp-t12", {}),
        ("thc", {"bits": 4}),
        ("classic", {"scheme": "dgc", "ratio": 0.3}),
        ("classic", {"scheme": "terngrad"}),
    ],
)
def test_a_resumed_run_gives_the_same_bits(codec, options):
    document = tree(PATHS, codec, options)
    assert run(resumed, 4, document, 3)[0] == run(resumed, 4, document, 0)[0]


def other_state(rank, size, document, other, alone, given=None):
    """What a hook says of the state of another plan or of other machines, or of one that rank 2 alone loads."""
    made = []
    for one, machines_of in ((document, None), (other, given)):
        net = model()
        ddp = gradwire.torch.planned_ddp(net)
        optimizer = OPTIMIZERS["sgd"](net.parameters())
        state, hook = gradwire.torch.ddp_hook(optimizer, plan=one, model=net, machines=machines_of)
        ddp.register_comm_hook(state, hook)
        made.append((ddp, state))
    try:
        if not alone or rank == 2:
            made[1][1].load_state_dict({**made[0][1].state_dict(), "step": 7})
        x, y = batch(rank, 0)
        torch.nn.functional.mse_loss(made[1][0](x), y).backward()
    except (ValueError, RuntimeError) as error:
        return f"{error} {made[1][1].error}"
    return None


def test_states_of_other_plans_or_machines_and_of_one_rank_are_refused():
    one, other = tree(PATHS, "classic", {"scheme": "topk"}), tree(PATHS, "classic", {"scheme": "topk", "ratio": 0.5})
    for message in run(other_state, 4, one, other, False).values():
        assert "a run with another plan" in message
    for message in run(other_state, 4, one, one, False, [0, 1, 0, 1]).values():
        assert "a run with other ranks on its machines" in message
    for message in run(other_state, 4, one, one, True).values():
        assert "different states" in message and "step" in message


# ---- errors ----


class Broken(Cast):
    """Fails on rank 1, in the second step, at a position."""

    def __init__(self, rank, position, what):
        super().__init__("fp16")
        self._fails = rank == 1, position, what

    def encode(self, values, part):
        fails, position, what = self._fails
        if fails and part.bucket.step == 1 and part.position == position:
            if what == "dies":
                os._exit(1)
            raise RuntimeError("no more ink")
        return super().encode(values, part)


def broken(rank, size, path, position, what):
    """What the futures of two messages of two steps say."""
    transport = new_transport(torch.distributed.group.WORLD, None, TIMEOUT)
    gate = Gate(transport)
    transport.agree("test", {})
    made = Levels(transport, machines.Machines(machines.placed(None, 2, 2)), gate, lambda: 1.0, 0)
    reducers = [made.add(Work(parse(path), Broken(rank, position, what), str(i))) for i in range(2)]
    for step in range(2):
        try:
            started = [one.start(Bucket(gradient(rank, 50, 0), [], [], step)) for one in reducers]
            for future in started:
                future.wait()
        except RuntimeError as error:
            return step, str(error)
    return None


@pytest.mark.parametrize("path, position", [(PATHS[1], 0), (PATHS[3], 1), (PATHS[5], 2), (PATHS[2], 0)])
def test_an_error_on_one_rank_is_one_on_all(path, position):
    for rank, (step, message) in run(broken, 4, path, position, "raises", timeout_s=10).items():
        assert step == 1 and "no more ink" in message
        assert rank == 1 or "rank 1" in message


def test_a_rank_that_dies_is_an_error_on_the_others():
    found = run(broken, 4, PATHS[5], 1, "dies", timeout_s=10, may_die=(1,))
    for step, message in found.values():
        assert step == 1 and "rank 1" in message


def refused(rank, size, document, options, environment):
    """What making a hook says."""
    os.environ.update(environment)
    net = model()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    try:
        gradwire.torch.ddp_hook(optimizer, plan=document, model=net, **options)[0].close()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return None


GPU = [path.replace("comp-cpu", "comp-gpu", 1) for path in PATHS]


@pytest.mark.parametrize(
    "document, options, why",
    [
        (tree(GPU), {}, "bucket 1: the option intra-reduce-scatter>comp-gpu>.* has comp-gpu.*plan_device='cpu'"),
        (tree(PATHS), {"plan_device": "tpu"}, "plan_device='tpu'"),
        (tree(PATHS), {"machines": 4}, "machines=4: the plan is for 2 machines of 2 ranks"),
        (tree(PATHS), {"machines": [0, 1, 1, 1]}, "machines of 1, 3 ranks"),
        (tree(PATHS, "gcomp-t12"), {"quantum_mode": "derived"}, "carried or explicit quanta"),
        (tree(PATHS, "classic", {"scheme": "dgc"}), {}, "dgc needs torch.optim.SGD without momentum, not AdamW"),
        (tree(PATHS, "classic", {"scheme": "topk", "vote": True}), {}, "no option vote"),
        (tree(PATHS, "thc", {"small_len": 3}), {}, "thc has no option small_len"),
        (tree(PATHS, "classic", {"scheme": "topk", "ratio": 2}), {}, "at most 1, not 2"),
        (tree(PATHS, "dgc"), {}, "codec dgc: the hook has none, fp16, bf16"),
        (tree(PATHS, "fp32"), {}, "fp32 is no codec"),
        (tree(PATHS, nodes=None), {}, "how many machines and ranks"),
        (tree(["intra-reduce>flat-allreduce", *PATHS[1:]]), {}, "the option intra-reduce>flat-allreduce does not run"),
    ],
)
def test_plans_that_do_not_run_are_refused_on_all_ranks(document, options, why):
    for message in run(refused, 4, document, options, {}).values():
        assert re.search(why, message), message


def test_a_plan_without_the_name_of_its_codec():
    document = tree(PATHS)
    del document["groups"][1]["codec"]
    with pytest.raises(ValueError, match="bucket 1: the plan does not name the codec of its options"):
        planned.load(document)


def test_what_the_launcher_says_of_machines():
    for message in run(refused, 4, tree(PATHS), {}, {"LOCAL_WORLD_SIZE": "4"}).values():
        assert "rank 0 is one of 4 (LOCAL_WORLD_SIZE)" in message
    for options in ({"machines": 2}, {"machines": [5, 5, 1, 1]}, {"machines": [0, 1, 0, 1]}):
        assert set(run(refused, 4, tree(PATHS), options, {"LOCAL_WORLD_SIZE": "4"}).values()) == {None}
    assert set(run(refused, 4, tree(PATHS), {}, {"LOCAL_WORLD_SIZE": "2"}).values()) == {None}
    assert set(run(refused, 4, tree(GPU), {"plan_device": "cpu"}, {}).values()) == {None}


# ---- fused gradients ----

FUSED = [["4.bias", "4.weight"], ["2.bias", "2.weight", "0.bias"], ["0.weight"]]


def fused_tree(paths, codec="fp16", options=None):
    """A plan as `plan solve --fuse` makes it: messages of several gradients, each with an option of its own."""
    document = tree(6 * ["flat-allreduce"])
    document["groups"] = []
    for names, path in zip(FUSED, paths, strict=True):
        entry = {"names": names, "elems": sum(SIZES[name] for name in names), "option": path}
        if "comp" in path:
            entry.update({"codec": codec, "options": options or {}})
        document["groups"].append(entry)
    return document


def test_fused_gradients_follow_plain_training():
    """Values as they are: the mean, in two levels, and the same bits on all ranks."""
    found = run(train, 4, fused_tree(3 * [DENSE]), 5)
    assert len({digest for _, digest, _ in found.values()}) == 1
    for rank in range(4):
        assert found[rank][0] == pytest.approx(plain_losses("adamw")[rank], rel=1e-4)


@pytest.mark.parametrize("codec, options, optimizer, difference", [CODECS[2], CODECS[6]])
def test_fused_gradients_travel_by_the_option_of_their_group(tmp_path, codec, options, optimizer, difference):
    path = tmp_path / "run.json"
    recorded = {"record": str(path), "record_steps": (2, 4)}
    paths = [PATHS[4], PATHS[5], PATHS[1]]
    found = run(train, 4, fused_tree(paths, codec, options), 5, optimizer, recorded)
    assert len({digest for _, digest, _ in found.values()}) == 1
    for rank, (losses, _, totals) in found.items():
        assert losses == pytest.approx(plain_losses(optimizer)[rank], rel=difference)
        assert totals["full_size"] == 5 * 4 * sum(SIZES.values())
    messages = [one["args"] for one in json.loads(path.read_text())["traceEvents"] if one["name"] == "message"]
    elems = [sum(SIZES[name] for name in names) for names in FUSED]
    assert [(one["codec"], one["elems"]) for one in messages] == 2 * list(zip(paths, elems))


# ---- recordings ----


def test_a_recording_has_the_options(tmp_path):
    path = tmp_path / "run.json"
    options = {"record": str(path), "record_steps": (2, 5)}
    run(train, 4, tree(PATHS, "gcomp-t12"), 7, "adamw", options)
    events = json.loads(path.read_text())["traceEvents"]
    messages = [event for event in events if event["name"] == "message"]
    assert [event["args"]["codec"] for event in messages] == 3 * PATHS
    for event in messages:
        args, option = event["args"], parse(event["args"]["codec"])
        if option.is_plain:
            continue
        assert 0 <= args["started_us"] <= args["encoded_us"] <= event["dur"]
        assert args["encode_us"] > 0 and args["sent_size"] > 0 and args["received_size"] > 0
        assert ("between_us" in args) == any(stage.where == "inter" for stage in option.stages)
        assert ("inside_us" in args) == any(stage.where == "intra" for stage in option.stages)
        assert ("flat_us" in args) == any(stage.where == "flat" for stage in option.stages)


# ---- the probe ----


def probed(rank, size, folder):
    net = model()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    x, y = batch(rank, 0)
    torch.nn.functional.mse_loss(net(x), y).backward()
    codecs = (
        {"fp16": {}, "gcomp-t12": {}, "mine": {"codec": "classic", "scheme": "topk"}} if size == 4 else {"fp16": {}}
    )
    found = probe_levels.measure(optimizer, codecs, nodes=2, gpus=size // 2, lens=(100, 3000), repeats=1)
    found.write(folder)
    return found.cluster, found.codecs


def test_the_probe_writes_what_the_planner_reads(tmp_path):
    cluster, codecs = run(probed, 4, str(tmp_path))[0]
    assert cluster["nodes"] == 2 == cluster["gpus"] and cluster["latency_per_step"]
    assert all(cluster[where]["us_per_kib"] >= 0 and cluster[where]["latency_us"] > 0 for where in ("intra", "inter"))
    names = [probe_levels.OPERATIONS[i] for i in range(8)]
    inside = [name for name in names if name not in ("allreduce", "allgather-c")]
    known = [f"flat-{name}" for name in names] + [f"intra-{name}" for name in inside] + [f"inter-{n}" for n in names]
    assert list(cluster["operations"]) == known
    assert all(one["us_per_kib"] >= 0 and one["latency_us"] >= 0 for one in cluster["operations"].values())
    assert any(one["latency_us"] > 0 for one in cluster["operations"].values())
    assert [codec["name"] for codec in codecs] == ["fp16", "gcomp-t12", "mine"]
    for codec in codecs:
        assert codec["payload"]["den"] == 8000 and 0 < codec["payload"]["num"] < 8 * 4500
        costs = codec.get("gpu") or codec["cpu"]
        assert all(us > 0 for way in ("enc", "dec") for _, us in costs[way]["points"])
    assert codecs[0]["payload"]["num"] == pytest.approx(16000, rel=0.05) and codecs[2]["options"]["scheme"] == "topk"
    assert json.loads((tmp_path / "cluster.json").read_text()) == cluster
    assert json.loads((tmp_path / "codecs.json").read_text())["codecs"] == codecs
    alone, _ = run(probed, 2, str(tmp_path))[0]  # a rank on each machine
    assert alone["intra"] == {"latency_us": 0.0, "us_per_kib": 0.0} and alone["inter"]["latency_us"] > 0
    assert not any(name.startswith("intra") for name in alone["operations"])


@pytest.mark.parametrize("nodes, gpus", [(1, 4), (2, 2), (3, 4)])
def test_the_probe_counts_bytes_as_the_planner_does(nodes, gpus):
    """A link on which a byte takes a tick, and a codec whose frames have four bytes a value."""
    placed = machines.Machines(machines.placed(None, nodes, gpus))
    ops = {plan_lib.gw_plan_op_name(op).decode(): op for op in range(_constants.GW_PLAN_OP_COUNT)}
    free = _structs.gw_plan_link(0, 0)
    link = _structs.gw_plan_link(0, 1024)
    cluster = _structs.gw_plan_cluster(nodes=nodes, gpus=gpus, intra=link, inter=link, host=free)
    nothing = _structs.gw_plan_cost(kind=_constants.GW_PLAN_COST_AFFINE)
    codec = _structs.gw_plan_codec(payload_num=4, payload_den=1, collectives=31, devices=1)
    codec.enc[0] = codec.dec[0] = nothing
    length = 48 * nodes * gpus

    def last(path):
        """Of the last operation."""
        option = _structs.gw_plan_option(op_count=len(path))
        for i, op in enumerate(path):
            option.ops[i] = ops[op]
        job = _structs.gw_plan_job()
        check(plan_lib.gw_plan_option_price(byref(option), byref(codec), byref(cluster), length, byref(job)))
        return job.stages[job.stage_count - 1].duration

    for where in ("flat", "intra", "inter"):
        before = ["intra-reduce-scatter"] if where == "inter" else []
        held = 4 * length / (gpus if where == "inter" else 1)
        for what in probe_levels.OPERATIONS:
            if where == "intra" and what in ("allreduce", "allgather-c"):
                continue
            first = ["comp-gpu"] if what in ("alltoall", "gather", "allgather-c") else []
            here = held
            if what == "allgather":
                first, here = [f"{where}-reduce-scatter"], held / placed.count(where)
            counted = probe_levels.link_size(what, where, placed, here)
            assert counted == last([*before, *first, f"{where}-{what}"]), (where, what)


def misplaced(rank, size, nodes, given):
    net = model()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    x, y = batch(rank, 0)
    torch.nn.functional.mse_loss(net(x), y).backward()
    machines_of = given if rank == 1 else None
    try:
        probe_levels.measure(optimizer, {"fp16": {}}, nodes=nodes, gpus=1, machines=machines_of, lens=(100,), repeats=1)
    except ValueError as error:
        return str(error)
    return None


def test_the_probe_refuses_other_machines_on_all_ranks():
    for nodes in (1, 3):
        assert set(run(misplaced, 2, nodes, None).values()) == {f"nodes={nodes}, gpus=1: the process group has 2 ranks"}
    for message in run(misplaced, 2, 2, ["b", "a"]).values():
        assert "different options: machines" in message
