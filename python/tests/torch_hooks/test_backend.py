"""The backend "gradwire" of torch.distributed: sums, gathers, what is Gloo's, work objects, failures."""

import gc
import logging
import os
import threading
import time
from datetime import timedelta
from functools import partial

import gradwire.torch
import pytest
import ranks
import torch
import torch.distributed as dist
from gradwire.torch import backend, backend_choice, backend_gathers

NEW = hasattr(torch, "compile")
torch2 = pytest.mark.skipif(not NEW, reason="torch 1.13 has no such call of Gloo or torch.distributed")
run = partial(ranks.run, backend="gradwire")
SUM_LEN, GATHER_LEN = 40_000, 300_000
NMSE = 1e-3


def nmse(found, exact):
    found, exact = found.double(), exact.double()
    return ((found - exact).square().sum() / exact.square().sum()).item()


def values_of(rank, n=SUM_LEN, seed=1, dtype=torch.float32):
    return torch.randn(n, generator=torch.Generator().manual_seed(100 * seed + rank)).to(dtype)


def sum_of(size, n=SUM_LEN, dtype=torch.float32):
    return sum(values_of(rank, n, dtype=dtype).double() for rank in range(size))


def digest(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.dtype != torch.bool else tensor.tolist()


def scatter(output, values, **keywords):
    (dist.reduce_scatter_tensor if NEW else dist._reduce_scatter_base)(output, values, **keywords)


def gather(output, values, **keywords):
    return (dist.all_gather_into_tensor if NEW else dist._all_gather_base)(output, values, **keywords)


# ---- sums ----


def summing(rank, size):
    gradwire.torch.set_default_error(NMSE)
    found = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        values, exact = values_of(rank, dtype=dtype), sum_of(size, dtype=dtype)
        dist.all_reduce(values)
        found[f"sum {dtype}"] = nmse(values, exact), digest(values)
    values, exact = values_of(rank), sum_of(size)
    dist.all_reduce(values, dist.ReduceOp.AVG)
    found["mean"] = nmse(values, exact / size), digest(values)
    part = torch.empty(SUM_LEN // size)
    scatter(part, values_of(rank))
    found["scatter"] = nmse(part, exact.view(size, -1)[rank]), None
    dist.reduce_scatter(part, list(values_of(rank).chunk(size)))
    found["scatter of lists"] = nmse(part, exact.view(size, -1)[rank]), None
    turned = values_of(rank).view(100, -1).t()
    dist.all_reduce(turned)
    found["turned"] = nmse(turned, exact.view(100, -1).t()), None
    gaps = torch.zeros(SUM_LEN, 2)
    gaps[:, 0] = values_of(rank)
    dist.all_reduce(gaps[:, 0])
    found["gaps"] = nmse(gaps[:, 0], exact) + gaps[:, 1].abs().sum().item(), None
    wide = torch.nn.Parameter(values_of(rank))
    dist.all_reduce(wide)
    found["parameter"] = nmse(wide.detach(), exact), digest(wide.detach())
    return found, gradwire.torch.backend_totals()


@pytest.mark.parametrize("size", [2, 4])
def test_sums_are_compressed_within_the_error(size):
    found = run(summing, size)
    for results, totals in found.values():
        for name, (error, bits) in results.items():
            assert 0 < error < 3 * NMSE, name
            assert bits is None or bits == found[0][0][name][1], name  # all ranks have the same
        assert totals["compressed_count"] == len(results) and totals["exact_count"] == 0
        assert totals["sent_size"] < 0.45 * totals["full_size"]


def unset(rank, size):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("gradwire").addHandler(handler)
    gloo = dist.new_group(backend="gloo")
    equal = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        mine, theirs = values_of(rank), values_of(rank)
        dist.all_reduce(mine, op)
        dist.all_reduce(theirs, op, group=gloo)
        equal.append(digest(mine) == digest(theirs))
    outputs = [torch.empty(GATHER_LEN) for _ in range(size)]
    dist.all_gather(outputs, values_of(rank, GATHER_LEN))
    equal += [digest(outputs[r]) == digest(values_of(r, GATHER_LEN)) for r in range(size)]
    totals = gradwire.torch.backend_totals()
    return equal, lines, sum(totals.values())


def test_without_an_error_all_is_gloo_and_one_line_says_so():
    for rank, (equal, lines, total) in run(unset, 2).items():
        assert all(equal) and total == 0
        assert len(lines) == (rank == 0) and all("set_default_error" in line for line in lines)


def exact(rank, size):
    gradwire.torch.set_default_error(NMSE)
    found = {}
    counts = torch.arange(float(SUM_LEN)).fmod(1000.0)
    for name, make in {
        "counts": lambda r: counts + r,
        "counts of one rank": lambda r: counts if r == 0 else values_of(r),
        "parts": lambda r: torch.where(torch.arange(SUM_LEN) % size == r, values_of(r), torch.zeros(())),
        "blocks": lambda r: torch.cat([values_of(s, SUM_LEN // size) * (s == r) for s in range(size)]),
        "one rank": lambda r: values_of(r) * (r == 1),
        "zeros": lambda r: torch.zeros(SUM_LEN),
    }.items():
        mine, whole = make(rank), sum(make(r) for r in range(size))
        part = torch.empty(SUM_LEN // size)
        scatter(part, mine)
        dist.all_reduce(mine)
        same = torch.equal(mine, whole) and torch.equal(part, whole.view(size, -1)[rank])
        # The others' values are added in another order.
        found[name] = same or name == "counts of one rank" and nmse(mine, whole) < 1e-13
    before = gradwire.torch.backend_totals()["compressed_count"]
    sparse = values_of(rank) * (values_of(0) > 1)  # as of gradients: zeros at the same places
    dist.all_reduce(sparse)
    return found, before, gradwire.torch.backend_totals()["compressed_count"]


@pytest.mark.parametrize("size", [2, 4])
def test_data_that_look_exact_stay_exact(size):
    for found, before, after in run(exact, size).values():
        assert all(found.values()), found
        assert (before, after) == (0, 1)


def test_what_looks_exact():
    """The positions and words of adapters/mpi/mpi_exact.c."""
    n = 100_003
    stretch = n // 1024
    expected = [i * stretch + ((i * 2654435761 & 0xFFFFFFFF) >> 8) % stretch for i in range(1024)]
    assert backend_choice._positions(n).tolist() == expected
    assert backend_choice._positions(3).tolist() == [0, 1, 2]
    word = {name: backend_choice.look(values, 2)[0] for name, values in {
        "gradients": torch.randn(5000),
        "zeros": torch.zeros(5000),
        "counts": torch.arange(5000.0),
        "one that is none": torch.cat([torch.arange(4999.0), torch.tensor([0.5])]),
        "large": torch.full((5000,), 2.0**24 + 2),
        "infinite": torch.full((5000,), float("inf")),
        "not a number": torch.full((5000,), float("nan")),
        "half": torch.full((5000,), 4096.0, dtype=torch.float16),
        "half counts": torch.arange(5000).fmod(100).half(),
    }.items()}  # fmt: skip
    exact = {"counts", "half counts"}
    assert {name for name, one in word.items() if one == backend_choice.INTEGERS} == exact
    assert [name for name, one in word.items() if one == backend_choice.SPARSE] == ["zeros"]
    half = torch.arange(1024) < 512
    assert backend_choice.are_apart([half, ~half]) and not backend_choice.are_apart([half, half])


def orders(rank, size):
    """Each rank fills its rows of a matrix that lies in memory by columns on one rank."""
    gradwire.torch.set_default_error(NMSE)
    n = 200
    mine = torch.zeros(n, n)
    mine[rank * n // size : (rank + 1) * n // size] = values_of(rank, n * n // size).view(-1, n)
    if rank == 1:
        mine = mine.t().contiguous().t()
    dist.all_reduce(mine)
    whole = torch.cat([values_of(r, n * n // size).view(-1, n) for r in range(size)])
    return torch.equal(mine, whole), gradwire.torch.backend_totals()["exact_count"]


@pytest.mark.parametrize("size", [2, 4])
def test_exact_data_in_other_memory_orders(size):
    assert set(run(orders, size).values()) == {(True, 1)}


def inferring(rank, size, mode):
    options = gradwire.torch.BackendOptions(nmse=NMSE, gathers=mode)
    group = dist.new_group(backend="gradwire", pg_options=options)
    found = {}
    for turn in range(2):
        with torch.inference_mode(turn == 0):
            values = values_of(rank)
            dist.all_reduce(values, group=group)
            found[f"sum {turn}"] = nmse(values, sum_of(size)) < 3 * NMSE
            values = values_of(rank).bfloat16().view(100, -1).t()
            dist.all_reduce(values, dist.ReduceOp.AVG, group=group)
            found[f"mean {turn}"] = nmse(values, sum_of(size).view(100, -1).t() / size) < 3 * NMSE
            values, counts = torch.full((SUM_LEN,), rank + 1.0), torch.arange(float(SUM_LEN)).fmod(1000)
            dist.all_reduce(values, dist.ReduceOp.AVG, group=group)  # exact
            dist.all_reduce(counts, dist.ReduceOp.AVG, group=group)
            found[f"exact {turn}"] = torch.equal(values, torch.full((SUM_LEN,), (size + 1) / 2))
            part = torch.empty(SUM_LEN // size)
            scatter(part, values_of(rank), group=group)
            found[f"scatter {turn}"] = nmse(part, sum_of(size).view(size, -1)[rank]) < 3 * NMSE
            flat = torch.empty(size * GATHER_LEN)
            gather(flat, values_of(rank, GATHER_LEN), group=group)
            given = [values_of(r, GATHER_LEN) for r in range(size)]
            found[f"gather {turn}"] = torch.equal(flat, torch.cat(given))
            values = given[rank].clone()
            dist.broadcast(values, 1, group=group)
            found[f"broadcast {turn}"] = torch.equal(values, given[1])
    return found


@pytest.mark.parametrize("mode", ["frames", "auto"])
def test_inference_mode(mode):
    for found in run(inferring, 2, mode).values():
        assert all(found.values()), found


# ---- gathers ----


def strided(rank, size):
    """Outputs that lie in memory otherwise on one rank alone, and such as cannot be written."""
    gradwire.torch.set_default_error(NMSE)
    whole = torch.cat([values_of(r, GATHER_LEN) for r in range(size)])
    room = torch.zeros(size * GATHER_LEN, 2)
    output = room[:, 0] if rank else torch.empty(size * GATHER_LEN)
    gather(output, values_of(rank, GATHER_LEN))
    same = torch.equal(output, whole) and not room[:, 1].any()
    texts = []
    for call in (
        lambda: gather(torch.zeros(1).expand(size * GATHER_LEN) if rank else output, values_of(rank, GATHER_LEN)),
        lambda: dist.broadcast(torch.zeros(1).expand(GATHER_LEN) if rank else values_of(0, GATHER_LEN), 0),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        texts.append(str(caught.value))
    values = values_of(rank)
    dist.all_reduce(values)  # the group goes on
    return same, texts, nmse(values, sum_of(size))


def test_outputs_of_one_rank_that_differ():
    for same, texts, error in run(strided, 2).values():
        assert same and 0 < error < 3 * NMSE
        assert all("share memory" in text for text in texts)


def odd_values(rank, n, dtype):
    """With every kind of value that a lossy codec would change."""
    values = values_of(rank, n, dtype=dtype)
    bits = values.view(torch.int32 if dtype == torch.float32 else torch.int16)
    bits[:4] = torch.tensor(
        [-(2**31), 1, 0x7FC12345, -8388608] if dtype == torch.float32 else [-(2**15), 1, 0x7FE1, -128]
    )
    return values


def gathering(rank, size, mode, nmse_of_group):
    options = gradwire.torch.BackendOptions(nmse=NMSE, gathers=mode, gather_nmse=nmse_of_group)
    group = dist.new_group(backend="gradwire", pg_options=options)
    found = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        make = odd_values if nmse_of_group is None else values_of
        given = [make(r, GATHER_LEN, dtype=dtype) for r in range(size)]
        for turn in range(2):
            outputs = [torch.empty(GATHER_LEN, dtype=dtype) for _ in range(size)]
            dist.all_gather(outputs, given[rank], group=group)
            found[f"list {dtype} {turn}"] = outputs, given
        for root in range(size):
            values = given[rank].clone()
            dist.broadcast(values, root, group=group)
            found[f"broadcast {root} {dtype}"] = [values], [given[root]]
        flat = torch.empty(size * GATHER_LEN, dtype=dtype)
        flat.view(size, -1)[rank] = given[rank]
        gather(flat, flat.view(size, -1)[rank], group=group)  # as FSDP does, from a part of the output
        found[f"flat {dtype}"] = list(flat.view(size, -1)), given
    turned = given[rank].clone().view(100, -1).t()
    dist.broadcast(turned, 1, group=group)
    found["turned"] = [turned.t().reshape(-1)], [given[1]]
    same = {name: [digest(one) == digest(other) for one, other in zip(*pair)] for name, pair in found.items()}
    errors = {name: [nmse(one, other) for one, other in zip(*pair)] for name, pair in found.items()}
    return same, errors, {name: list(map(digest, pair[0])) for name, pair in found.items()}, backend_size(group)


def backend_size(group):
    return gradwire.torch.backend_totals(group)["gather_sent_size"]


@pytest.mark.parametrize("size", [2, 3])
def test_frames_are_lossless(size):
    for same, _, _, sent in run(gathering, size, "frames", None).values():
        assert all(all(one) for one in same.values()), same
        assert sent > 0


def test_gathers_with_an_error_are_equal_on_all_ranks():
    found = run(gathering, 3, "auto", 1e-4)
    for _, errors, results, _ in found.values():
        assert all(0 < one < 1e-3 for many in errors.values() for one in many)
        assert results == found[0][2]


def choosing(rank, size):
    gradwire.torch.set_default_error(NMSE)
    count = backend_gathers.WARM + 2 * backend_gathers.PAIRS + 2
    for _ in range(count):
        outputs = [torch.empty(GATHER_LEN) for _ in range(size)]
        dist.all_gather(outputs, values_of(rank, GATHER_LEN))
        assert all(torch.equal(outputs[r], values_of(r, GATHER_LEN)) for r in range(size))
    group = dist.group.WORLD._get_backend(torch.device("cpu")) if NEW else dist.group.WORLD
    return group._gathers._choices["all_gather"].decision, backend_size(None)


def test_what_is_faster_is_measured():
    found = run(choosing, 2)
    assert len({decision for decision, _ in found.values()}) == 1 and found[0][0] in (True, False)
    frames = (backend_gathers.WARM + 2 * backend_gathers.PAIRS) // 2 + 2 * found[0][0]
    assert all(sent > frames * 0.7 * 4 * GATHER_LEN for _, sent in found.values())


# ---- what is Gloo's ----


def passing(rank, size):
    """Every call with every type that it has with Gloo."""
    gradwire.torch.set_default_error(NMSE)
    gloo = dist.new_group(backend="gloo")
    differ = []

    def compare(name, call):
        results = []
        for group in (dist.group.WORLD, gloo):
            try:
                results.append([digest(one) for one in call(group)])
            except Exception as error:
                results.append(type(error).__name__)
        if results[0] != results[1]:
            differ.append((name, [str(one)[:100] for one in results]))

    for dtype in (torch.int32, torch.int64, torch.uint8, torch.float64, torch.float32):
        n = 100 if dtype == torch.float32 else SUM_LEN
        values = values_of(rank, n).mul(5).to(dtype)
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):

            def reduce(group, values=values, op=op):
                one = values.clone()
                dist.all_reduce(one, getattr(dist.ReduceOp, op), group=group)
                two = values.clone()
                dist.reduce(two, 1, getattr(dist.ReduceOp, op), group=group)
                return [one, two] if rank == 1 else [one]

            compare(f"{op} {dtype}", reduce)

        def move(group, values=values):
            outputs = [torch.zeros_like(values) for _ in range(size)]
            dist.all_gather(outputs, values, group=group)
            one = values.clone()
            dist.broadcast(one, 1, group=group)
            two = torch.zeros_like(values)
            dist.scatter(two, [values + r for r in range(size)] if rank == 0 else None, 0, group=group)
            three = [torch.zeros_like(values) for _ in range(size)]
            dist.gather(values, three if rank == 1 else None, 1, group=group)
            four = torch.zeros_like(values)
            dist.all_to_all_single(four, values, group=group)
            return [*outputs, one, two, *three, four]

        compare(f"moves {dtype}", move)
    for op in ("BAND", "BOR", "BXOR"):

        def bits(group, op=op):
            one = torch.arange(100, dtype=torch.int32) * (rank + 1)
            dist.all_reduce(one, getattr(dist.ReduceOp, op), group=group)
            return [one]

        compare(op, bits)

    def maximum(group):
        one = values_of(rank)
        dist.all_reduce(one, dist.ReduceOp.MAX, group=group)
        empty = torch.empty(0)
        dist.all_reduce(empty, group=group)
        return [one, empty]

    compare("MAX", maximum)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    told = [rank]
    dist.broadcast_object_list(told, 1)
    box = torch.zeros(3)
    if rank == 0:
        source = dist.recv(box)
    else:
        dist.send(torch.ones(3), 0)
        source = 1
    flag = torch.tensor([rank == 0, True]) if NEW else torch.tensor([0, 1])  # torch 1.13: Gloo takes no bool
    dist.broadcast(flag, 1)
    dist.barrier()
    if NEW:
        dist.monitored_barrier()
    compressed = gradwire.torch.backend_totals()["compressed_count"]
    return differ, objects, told, source, flag.tolist(), compressed


def test_all_else_is_gloos():
    for differ, objects, told, source, flag, compressed in run(passing, 2).values():
        assert not differ
        assert objects == [{"rank": 0}, {"rank": 1}] and told == [1] and source == 1 and flag == [0, 1]
        assert compressed == 0


def alone(rank, size):
    gradwire.torch.set_default_error(NMSE)
    values = values_of(0)
    dist.all_reduce(values)
    dist.barrier()
    return torch.equal(values, values_of(0))


def test_one_rank():
    assert run(alone, 1) == {0: True}


# ---- work objects ----


def working(rank, size):
    gradwire.torch.set_default_error(NMSE)
    given = [values_of(rank) + i for i in range(12)]
    works = [dist.all_reduce(one, async_op=True) for one in given]
    if rank == 0:
        time.sleep(0.2)
    dist.barrier()
    ended = [work.is_completed() for work in works]  # a barrier comes after them
    waited = [work.wait() for work in works]
    error = max(nmse(one, sum_of(size) + size * i) for i, one in enumerate(given))
    small = torch.ones(4)
    passed = dist.all_reduce(small, async_op=True)
    until = time.monotonic() + 10
    while not passed.is_completed() and time.monotonic() < until:
        time.sleep(0.001)
    late = values_of(rank)
    if rank == 1:
        time.sleep(0.5)
    work = dist.all_reduce(late, async_op=True)
    first = work.is_completed()
    done = []
    future = work.get_future().then(lambda one: done.append(one.value()[0].data_ptr() == late.data_ptr()))
    while not work.is_completed() and time.monotonic() < until:  # programs that poll
        time.sleep(0.001)
    future.wait()
    result = work.result()[0].data_ptr() == late.data_ptr()
    return ended, waited, error, passed.is_completed(), rank == 1 or not first, done, result, work.is_success()


def test_work_objects():
    for ended, waited, error, passed, pending, done, result, success in run(working, 2).values():
        assert all(ended) and all(waited) and 0 < error < 3 * NMSE
        assert passed and pending and done == [True] and result and success


def completing(rank, size):
    gradwire.torch.set_default_error(NMSE)
    for _ in range(100):
        work = dist.all_reduce(values_of(rank), async_op=True)
        future = work.get_future()
        work.wait()
        future.value()  # raises if it is not done
    return work.is_completed()


def test_the_future_is_done_after_wait():
    assert set(run(completing, 2).values()) == {True}


def late(rank, size):
    """A barrier of one rank does not pass while an earlier operation of another one has not ended."""
    gradwire.torch.set_default_error(NMSE)
    dist.all_reduce(values_of(rank))
    group = dist.group.WORLD._get_backend(torch.device("cpu")) if NEW else dist.group.WORLD
    ended = threading.Event()
    if rank == 1:
        group._worker.submit(lambda: (time.sleep(0.5), ended.set()))
    work = dist.barrier(async_op=True)
    small = torch.ones(3)
    dist.all_reduce(small)  # Gloo's calls go on in their order meanwhile
    polled = rank == 0 and work.is_completed()
    work.wait()
    objects = [None] * size
    dist.all_gather_object(objects, ended.is_set())
    return polled, objects[1], small.tolist()


def test_a_barrier_waits_for_operations_of_all_ranks():
    assert all(one == (False, True, [2.0] * 3) for one in run(late, 2).values())


def limited(rank, size):
    gradwire.torch.set_default_error(NMSE)
    values = values_of(rank)
    dist.all_reduce(values)
    if rank == 1:
        time.sleep(1.5)
    work = dist.all_reduce(values, async_op=True)
    raised = ""
    if rank == 0:
        with pytest.raises(RuntimeError) as caught:
            work.wait(timedelta(seconds=0.2))
        raised = str(caught.value)
    return raised, work.wait()


def test_wait_with_a_limit():
    found = run(limited, 2)
    assert "timed out waiting 0.2 s for all_reduce" in found[0][0] and all(waited for _, waited in found.values())


# ---- groups and options ----


def grouping(rank, size):
    gradwire.torch.set_default_error(NMSE)
    pairs = [dist.new_group(pair, backend="gradwire") for pair in ([0, 1], [2, 3])]
    across = [dist.new_group(pair, backend="gradwire") for pair in ([0, 2], [1, 3])]
    fine = dist.new_group(backend="gradwire", pg_options=gradwire.torch.BackendOptions(nmse=1e-6))
    plain = dist.new_group(backend="gloo")
    found = {}
    for name, group, members, limit in (
        ("pair", pairs[rank // 2], [rank // 2 * 2, rank // 2 * 2 + 1], 3 * NMSE),
        ("across", across[rank % 2], [rank % 2, rank % 2 + 2], 3 * NMSE),
        ("fine", fine, range(4), 3e-6),
        ("plain", plain, range(4), 1e-12),
        ("all", None, range(4), 3 * NMSE),
    ):
        values = values_of(rank)
        dist.all_reduce(values, group=group)
        found[name] = nmse(values, sum(values_of(r).double() for r in members)) < limit
    dist.destroy_process_group(pairs[rank // 2])
    values = values_of(rank)
    dist.all_reduce(values)
    found["after"] = nmse(values, sum_of(4)) < 3 * NMSE
    gradwire.torch.set_default_error(1e-5)
    values = values_of(rank)
    dist.all_reduce(values)
    found["finer"] = nmse(values, sum_of(4)) < 3e-5
    gradwire.torch.set_default_error(None)
    values, other = values_of(rank), values_of(rank)
    dist.all_reduce(values)
    dist.all_reduce(other, group=plain)
    found["unset"] = digest(values) == digest(other)
    return found


def test_groups_and_their_errors():
    for found in run(grouping, 4).values():
        assert all(found.values()), found


def twice(rank, size, folder):
    gradwire.torch.set_default_error(NMSE)
    errors, threads = [], []
    for turn in range(4):
        if turn:
            method = f"file://{folder}/store{turn}"
            dist.init_process_group("gradwire", init_method=method, rank=rank, world_size=size)
        values = values_of(rank)
        dist.all_reduce(values)
        errors.append(nmse(values, sum_of(size)))
        dist.destroy_process_group()
        gc.collect()
        threads.append(len(os.listdir("/proc/self/task")))
    return errors, dist.is_initialized(), threads


def test_destroyed_and_made_again(tmp_path):
    for errors, is_initialized, threads in run(twice, 2, tmp_path).values():
        assert all(0 < error < 3 * NMSE for error in errors) and not is_initialized
        assert threads[-1] <= threads[1]  # those of Gloo's connections, too


def destroying(rank, size):
    """While rank 0 waits for an operation that rank 1 never begins."""
    gradwire.torch.set_default_error(NMSE)
    dist.all_reduce(values_of(rank))
    if rank == 1:
        time.sleep(1.5)
        os._exit(0)
    work = dist.all_reduce(values_of(rank), async_op=True)
    backend._CLOSE_S = 0.1
    dist.destroy_process_group()
    with pytest.raises(RuntimeError) as caught:
        work.wait()
    return str(caught.value)


@pytest.mark.skipif(not NEW, reason="torch 1.13 tells a group nothing of its end")
def test_destroyed_with_an_operation_under_way():
    assert run(destroying, 2, may_die=(1,))[0] == "gradwire: this group has ended: it was destroyed"


@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan"), True, "small"])
def test_errors_that_are_none(value):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        gradwire.torch.set_default_error(value)
    with pytest.raises(ValueError, match="nmse="):
        gradwire.torch.BackendOptions(nmse=value)


@pytest.mark.parametrize(
    "option",
    [
        *({"gathers": "zip"}, {"small_len": 0}, {"gather_len": 1.5}, {"gather_nmse": 2}),
        {"gathers": "gloo", "gather_nmse": 1e-4},
    ],
)
def test_options_that_are_none(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        gradwire.torch.BackendOptions(**option)


def refused(rank, size):
    with pytest.raises(TypeError, match="BackendOptions"):
        dist.new_group(backend="gradwire", pg_options={"nmse": 1e-3})
    with pytest.raises(ValueError, match="ranks differ.*small_len"):
        dist.new_group(backend="gradwire", pg_options=gradwire.torch.BackendOptions(small_len=100 + rank))
    with pytest.raises(ValueError, match="not of the backend"):
        gradwire.torch.backend_totals(dist.new_group(backend="gloo"))
    return True


def test_other_options_are_refused():
    assert all(run(refused, 2).values())


# ---- failures ----


def different(rank, size):
    gradwire.torch.set_default_error(NMSE)
    with pytest.raises(ValueError) as caught:
        dist.all_reduce(torch.randn(SUM_LEN + rank))
    with pytest.raises(ValueError) as other:
        part = torch.randn(SUM_LEN)
        dist.all_reduce(part) if rank else scatter(part[: SUM_LEN // 2], part)
    gradwire.torch.set_default_error(NMSE * (1 + rank))
    with pytest.raises(ValueError) as third:
        dist.all_reduce(torch.randn(SUM_LEN))
    gradwire.torch.set_default_error(NMSE)
    values = values_of(rank)
    dist.all_reduce(values)  # it goes on
    return [str(one.value) for one in (caught, other, third)], nmse(values, sum_of(size))


def test_calls_that_differ_raise_on_all_ranks():
    for rank, (texts, error) in run(different, 2).items():
        assert all(f"rank {1 - rank} has" in text for text in texts) and "nmse=" in texts[2]
        assert 0 < error < 3 * NMSE


def one_sided(rank, size, kind):
    gradwire.torch.set_default_error(NMSE if rank else None)
    begin, texts = time.monotonic(), []
    rooms = [torch.empty(GATHER_LEN) for _ in range(size)]
    call = {
        "all_reduce": lambda: dist.all_reduce(values_of(rank)),
        "broadcast": lambda: dist.broadcast(rooms[0], 0),
        "all_gather": lambda: dist.all_gather(rooms, values_of(rank, GATHER_LEN)),
    }[kind]
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            for _ in range(50):
                call()
        texts.append(str(caught.value))
    return texts, time.monotonic() - begin


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "all_gather"])
def test_an_error_of_some_ranks_alone(kind):
    for rank, (texts, seconds) in run(one_sided, 3, kind, timeout_s=600).items():
        assert seconds < 30
        assert "set_default_error() differs between ranks" in texts[1], (rank, texts)


def large(rank, size, kind):
    """One call that a group with an error compresses, or puts into frames."""
    values = values_of(rank, GATHER_LEN)
    if kind == "all_reduce":
        dist.all_reduce(values)
    elif kind == "all_gather":
        dist.all_gather([torch.empty(GATHER_LEN) for _ in range(size)], values)
    elif kind == "broadcast":
        dist.broadcast(values, 0)
    else:
        scatter(torch.empty(GATHER_LEN // size), values)


def changed_on_one_rank(rank, size, kind, first, second):
    gradwire.torch.set_default_error(first)
    large(rank, size, "all_reduce")
    if rank == 1:
        gradwire.torch.set_default_error(second)
    texts = []
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            for _ in range(3):
                large(rank, size, kind)
                if kind == "broadcast":
                    dist.all_gather([torch.empty(2) for _ in range(size)], torch.ones(2))
        texts.append(str(caught.value))
    return texts


@pytest.mark.parametrize(
    "kind, first, second",
    [
        ("all_reduce", None, NMSE),
        ("all_reduce", NMSE, None),
        ("all_gather", None, NMSE),
        ("all_gather", NMSE, None),
        ("broadcast", NMSE, None),  # the other way: test_a_broadcast_waits_for_a_sum()
        pytest.param("scatter", None, NMSE, marks=torch2),
        pytest.param("scatter", NMSE, None, marks=torch2),
    ],
)
def test_an_error_changed_on_one_rank_alone(kind, first, second):
    """The group's timeout is longer than run() waits for results."""
    found = run(changed_on_one_rank, 3, kind, first, second, timeout_s=600)
    assert "set_default_error() differs between ranks" in found[1][1], found
    if first is not None:  # these compare it
        assert all("set_default_error() differs between ranks" in found[rank][0] for rank in (0, 2)), found


def changed_on_all(rank, size, late):
    gloo = dist.new_group(backend="gloo")
    found = []

    def total():
        mine, theirs = values_of(rank), values_of(rank)
        dist.all_reduce(mine)
        dist.all_reduce(theirs, group=gloo)
        found.append(digest(mine) == digest(theirs))

    for error in (None, NMSE, NMSE, None, NMSE, 1e-5, None, None):
        if late and rank == 1:
            time.sleep(0.05)
        gradwire.torch.set_default_error(error)
        large(rank, size, "broadcast")
        total()
    gradwire.torch.set_default_error(NMSE)
    given = [values_of(rank) for _ in range(3)]
    works = [dist.all_reduce(one, async_op=True) for one in given]  # the second before the first has ended
    [work.wait() for work in works]
    return found, [nmse(one, sum_of(size)) for one in given]


@pytest.mark.parametrize("late", [False, True])
def test_an_error_changed_on_all_ranks(late):
    for found, errors in run(changed_on_all, 3, late).values():
        assert found == [True, True, False, True, True, False, True, True]
        assert errors[0] < 1e-12 and all(1e-9 < one < 3 * NMSE for one in errors[1:])


def broadcasts(rank, size):
    """The root's ends before others have begun it: none is compared until a call that all must have begun."""
    gradwire.torch.set_default_error(None)
    large(rank, size, "all_reduce")
    if rank == 1:
        gradwire.torch.set_default_error(NMSE)
    for _ in range(3):
        large(rank, size, "broadcast")
    with pytest.raises((RuntimeError, ValueError)):
        for _ in range(3):
            large(rank, size, "all_reduce")
    return True


def test_a_broadcast_waits_for_a_sum():
    assert all(run(broadcasts, 3, timeout_s=600).values())


def dying(rank, size):
    gradwire.torch.set_default_error(NMSE)
    dist.all_reduce(values_of(rank))
    if rank == 1:
        os._exit(1)
    texts = []
    for call in (lambda: dist.all_reduce(values_of(rank)), lambda: dist.all_reduce(torch.ones(2)), dist.barrier):
        with pytest.raises(RuntimeError) as caught:
            call()
        texts.append(str(caught.value))
    return texts


def test_a_dead_rank():
    for texts in run(dying, 3, may_die=(1,), timeout_s=600).values():
        assert "rank 1" in texts[0]
        assert all("this group has ended" in text and "rank 1" in text for text in texts[1:])


def damaging(rank, size):
    gradwire.torch.set_default_error(NMSE)
    dist.all_reduce(values_of(rank))
    group = dist.group.WORLD._get_backend(torch.device("cpu")) if NEW else dist.group.WORLD

    def fault(stage, piece, message):
        message[message.numel() // 2] ^= 255

    if rank == 1:
        group._sums.engine.fault = fault
    texts = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(values_of(rank))
        texts.append(str(caught.value))
    with pytest.raises(RuntimeError, match="this group has ended"):  # before there is a work
        dist.all_reduce(values_of(rank), async_op=True)
    return texts


def test_a_damaged_message_raises_on_all_ranks():
    for first, second in run(damaging, 2).values():
        assert "checksum" in first or "corrupt" in first
        assert "this group has ended" in second


def failing_work(rank, size):
    gradwire.torch.set_default_error(NMSE)
    work = dist.all_reduce(torch.randn(SUM_LEN + rank), async_op=True)
    future = work.get_future()
    with pytest.raises(RuntimeError, match="ranks differ"):
        future.wait()
    with pytest.raises(ValueError, match="ranks differ"):
        work.wait()
    return work.is_completed(), work.is_success(), "ranks differ" in str(work.exception())


def test_a_work_that_has_failed():
    assert set(run(failing_work, 2).values()) == {(True, False, True)}


def chaining(rank, size):
    """Callbacks that wait for the group's next operations, as PowerSGD's do."""
    gradwire.torch.set_default_error(NMSE)
    ends = []
    for _ in range(4):
        first, second = values_of(rank), values_of(rank)

        def then(_, second=second):
            return dist.all_reduce(second, async_op=True).get_future().wait()[0]

        ends.append((dist.all_reduce(first, async_op=True).get_future().then(then), second))
        ends[-1][0].wait()
    return [nmse(second, sum_of(size)) for _, second in ends]


def test_callbacks_may_wait_for_later_operations():
    assert all(0 < one < 3 * NMSE for errors in run(chaining, 2).values() for one in errors)


def from_environment(rank, size):
    values = values_of(rank)
    dist.all_reduce(values)
    return nmse(values, sum_of(size))


def test_the_error_of_the_environment(monkeypatch):
    monkeypatch.setenv("GRADWIRE_TORCH_NMSE", "1e-5")
    assert all(0 < error < 3e-5 for error in run(from_environment, 2).values())
    monkeypatch.setenv("GRADWIRE_TORCH_NMSE", "much")
    with pytest.raises(ValueError, match="GRADWIRE_TORCH_NMSE=much"):
        backend._error_of_environment()


# ---- torch 2 ----


def newer(rank, size):
    """Calls that torch 1.13 lacks."""
    import torch.distributed._functional_collectives as functional

    gradwire.torch.set_default_error(NMSE)
    found = {}
    exact = sum_of(size)
    found["functional"] = nmse(functional.all_reduce(values_of(rank), "sum", dist.group.WORLD), exact)
    one, two = values_of(rank), values_of(rank, SUM_LEN // 2)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(one)
        dist.all_reduce(two)
    manager.wait()
    found["coalesced"] = max(nmse(one, exact), nmse(two, sum_of(size, SUM_LEN // 2)))
    parts = torch.empty(SUM_LEN // size), torch.empty(SUM_LEN // size)
    with dist._coalescing_manager(async_ops=True) as manager:
        for part in parts:
            dist.reduce_scatter_tensor(part, values_of(rank), op=dist.ReduceOp.AVG)
    manager.wait()
    found["coalesced scatter"] = max(nmse(part, exact.view(size, -1)[rank] / size) for part in parts)
    split = dist.split_group(dist.group.WORLD, [[0, 1]])
    values = values_of(rank)
    dist.all_reduce(values, group=split)
    found["split"] = nmse(values, exact)
    flat = torch.empty(size * GATHER_LEN)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_gather_into_tensor(flat, values_of(rank, GATHER_LEN))
    manager.wait()
    same = all(torch.equal(flat.view(size, -1)[r], values_of(r, GATHER_LEN)) for r in range(size))
    return found, same, dist.get_backend(split), gradwire.torch.backend_totals(split)["compressed_count"]


def splitting(rank, size):
    """Rank 0 is in no group, which torch cannot be told, and then in one of its own."""
    gradwire.torch.set_default_error(NMSE)
    if rank == 0:
        with pytest.raises(ValueError, match="in none of split_ranks"):
            dist.split_group(dist.group.WORLD, [[1, 2]])
        return dist.split_group(dist.group.WORLD, [[0], [1, 2]]).size() == 1
    dist.split_group(dist.group.WORLD, [[1, 2]])
    split = dist.split_group(dist.group.WORLD, [[0], [1, 2]])
    values = values_of(rank)
    dist.all_reduce(values, group=split)
    return 0 < nmse(values, values_of(1).double() + values_of(2)) < 3 * NMSE


@torch2
def test_ranks_of_no_split():
    assert all(run(splitting, 3).values())


@torch2
@pytest.mark.parametrize("name", ["gradwire", "cpu:gradwire", "cpu:gradwire,cuda:gloo"])
def test_calls_of_torch_2(name):
    for found, same, name_of_split, count in ranks.run(newer, 2, backend=name).values():
        assert all(0 < error < 3 * NMSE for error in found.values()), found
        assert same and name_of_split == name and count == 1


def in_detail(rank, size):
    gradwire.torch.set_default_error(NMSE)
    values = values_of(rank)
    work = dist.all_reduce(values, async_op=True)
    work.wait()
    with pytest.raises(RuntimeError):  # torch's wrapper compares shapes
        dist.all_reduce(torch.ones(10 + rank))
    return nmse(values, sum_of(size))


@torch2
def test_torchs_debug_level(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    dist.set_debug_level_from_env()
    try:
        assert all(0 < error < 3 * NMSE for error in run(in_detail, 2).values())
    finally:
        monkeypatch.undo()
        dist.set_debug_level_from_env()


def test_the_name_is_registered_once():
    first = dist.Backend._plugins["GRADWIRE"]
    backend.register()  # torch raises where it has the name already
    assert dist.Backend._plugins["GRADWIRE"] is first
