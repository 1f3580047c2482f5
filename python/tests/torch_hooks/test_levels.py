"""Options of ByteComp's tree: what runs, that every path is a mean, codecs at each level, who is on which machine."""

import itertools
import re
from ctypes import byref, c_uint32
from datetime import timedelta

import numpy as np
import pytest
import torch
from gradwire import _constants, _structs
from gradwire._library import check, plan_lib
from gradwire.torch import machines, planned
from gradwire.torch.buckets import Bucket
from gradwire.torch.failure import Gate
from gradwire.torch.level_codecs import LevelCodec
from gradwire.torch.levels import Levels, Work
from gradwire.torch.option_path import parse
from gradwire.torch.scopes import Message, bounds
from gradwire.torch.transport import new_transport
from ranks import run
from test_ddp import model

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


def test_lanes_leave_the_link_between_machines_to_messages():
    def lanes(path):
        return [stage.lane for stage in parse(path).stages]

    assert lanes("intra-reduce-scatter>comp-cpu>inter-allgather-c>decomp-cpu>intra-allgather") == [1, 1, 2, 3, 3]
    path = "comp-cpu>intra-alltoall>decomp-cpu>comp-cpu>inter-alltoall>decomp-cpu>comp-cpu>inter-allgather>decomp-cpu"
    assert lanes(path + ">intra-allgather") == [0, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    assert lanes("comp-cpu>flat-alltoall>decomp-cpu>comp-cpu>flat-allgather>decomp-cpu") == [0, 1, 1, 1, 1, 4]


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


def bytes_between(path, nodes, gpus, length, rank):
    """What a rank sends to other machines, by the formulas of the planner, for fp32 without a codec."""
    size = nodes * gpus
    if path.startswith("flat"):
        return 2 * (size - 1) / size * 4 * length if (rank + 1) % gpus == 0 else 0
    return 2 * (nodes - 1) / nodes * 4 * length / gpus


def counted(rank, size, path, length):
    sent = {"inside": 0, "between": 0}
    transport_of, group = new_transport, torch.distributed.group.WORLD
    transport = transport_of(group, None, TIMEOUT)
    send = transport.send

    def counting(message, peer, tag):
        sent["inside" if peer // 2 == rank // 2 else "between"] += message.numel() * message.element_size()
        return send(message, peer, tag)

    transport.send = counting
    made = Levels(transport, machines.Machines(machines.placed(None, 2, 2)), Gate(transport), lambda: 1.0, 0)
    reducer = made.add(Work(parse(path), None, "0"))
    sent["between"] -= sent["between"]
    values = gradient(rank, length, 0)
    reducer.start(Bucket(values, [], [], 0)).wait()
    made.close()
    return sent["between"], made.sizes()


@pytest.mark.parametrize(
    "path",
    ["flat-reduce-scatter>flat-allgather", "intra-reduce-scatter>inter-reduce-scatter>inter-allgather>intra-allgather"],
)
def test_bytes_between_machines_are_those_of_the_planner(path):
    length = 1 << 12
    for rank, (between, (sent, received)) in run(counted, 4, path, length).items():
        expected = bytes_between(path, 2, 2, length, rank)
        assert expected <= between <= expected + 4096  # and what the ranks compare before the first message
        assert sent == received
