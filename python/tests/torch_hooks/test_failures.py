"""What goes wrong: damaged messages, dead ranks, states and results that differ. All ranks learn of it in time."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta

import gradwire.torch
import pytest
import torch
from gradwire.torch import peers
from gradwire.torch.buckets import Bucket
from gradwire.torch.failure import Gate
from gradwire.torch.peers import Board, Finding
from ranks import run
from test_ddp import OPTIONS, batch, digest, model, train_step
from torch.nn.parallel import DistributedDataParallel as DDP

TIMEOUT_S = 5
# Where no rank may have to wait for its timeout: a test that does ends without a result (ranks.py).
NEVER_S = 600


def steps(rank, size, count, before, buckets=25, **options):
    """Trains; before(rank, step, net, optimizer, state) is called in each step. Returns what was raised and its step,
    or else what the model has become and how often states differed."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net, bucket_cap_mb=buckets)
    state, hook = gradwire.torch.ddp_hook(optimizer, **{**OPTIONS, **options})
    ddp.register_comm_hook(state, hook)
    for step in range(count):
        try:
            before(rank, step, net, optimizer, state)
            x, y = batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
        except RuntimeError as error:
            return str(state.error or error), step
    state.check()
    mismatches = state.report.totals()["mismatches"]
    state.close()
    return digest(net), mismatches


def damage(rank, step, net, optimizer, state, stage):
    def flip(at, piece, message):
        if at == stage and piece == 0:
            message[len(message) // 2] ^= 0x55

    if rank == 1 - stage and step == 3:  # piece 0 belongs to rank 0: rank 1 sends to it, then it sends to all
        state.engine.fault = flip


def damage_result(rank, step, net, optimizer, state):
    """One rank alone gets a bad byte in a finished piece, of the first bucket if there are two."""
    if rank != 2 or step != 3:
        return
    plan = next(iter(state.engine.plans.values()))
    receive = plan.exchange.receive

    def flip(piece, source):
        if piece == 0:  # of rank 0
            plan.messages.memory[plan.exchange.buffer_offset(piece, source) + 40] ^= 0x55
        receive(piece, source)

    plan.exchange.receive = flip


@pytest.mark.parametrize("quantum_mode", ["derived", "carried", "explicit"])
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("buckets", [25, 0.01])
def test_a_damaged_message_raises_on_all_ranks_in_that_step(stage, quantum_mode, buckets):
    """The same on all of them, and without waiting for anything to run out of time."""
    found = run(damaged, 3, stage, quantum_mode, buckets, timeout_s=NEVER_S)
    assert len(set(found.values())) == 1
    for message, step in found.values():
        assert "corrupt" in message or "checksum" in message
        assert step == 3


def damaged(rank, size, stage, quantum_mode, buckets):
    if buckets < 1:
        torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 1  # torch 1.13 has 1 MiB whatever bucket_cap_mb says
    hurt = damage_result if stage == 1 else lambda *arguments: damage(*arguments, stage)
    return steps(rank, size, 6, hurt, buckets=buckets, quantum_mode=quantum_mode)


def breaking(rank, size):
    def fail(rank, step, net, optimizer, state):
        if rank == 1 and step == 3:
            state.fail(RuntimeError("out of order"))

    return together(rank, size, steps(rank, size, 6, fail))


def test_a_rank_that_fails_alone_breaks_the_connections():
    """The others need not wait for their timeout."""
    found = run(breaking, 3, timeout_s=NEVER_S)
    for message, step in found.values():
        assert isinstance(message, str) and step == 3


def together(rank, size, result):
    """No rank ends before all have raised, so it is not the end of a process that tells the others."""
    store = torch.distributed.distributed_c10d._get_default_store()
    store.set(f"raised {rank}", "yes")
    store.wait([f"raised {peer}" for peer in range(size)], timedelta(seconds=40))
    return result


class Breaks(torch.nn.Module):
    """Its backward pass raises when told to."""

    def __init__(self):
        super().__init__()
        self.broken = False

    def forward(self, x):
        x = x * 1.0
        if self.broken:
            x.register_hook(self.stop)
        return x

    def stop(self, _):
        raise MemoryError("no more memory")


def failing(rank, size, where, options):
    """Rank 1 raises by itself in step 3 and stays alive."""
    net = model()
    layers = list(net)
    breaks = Breaks()
    net = torch.nn.Sequential(*layers[:2], breaks, *layers[2:])  # the last bucket comes after it
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = gradwire.torch.planned_ddp(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **{**OPTIONS, **options})
    ddp.register_comm_hook(state, hook)
    found = None
    for step in range(6):
        try:
            if rank == 1 and step == 3:
                breaks.broken = where == "backward"
                if where == "hook":
                    state.codecs.start = lambda *_: breaks.stop(None)
                if where == "forward":
                    state.fail(MemoryError("no more memory"))
                    raise MemoryError("no more memory")
            x, y = batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
        except (RuntimeError, MemoryError):
            found = step
            break
    deadline = time.monotonic() + 5
    while state.error is None and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        state.check()
        refuses = False
    except RuntimeError:
        refuses = True
    return together(rank, size, (found, refuses, str(state.error)))


@pytest.mark.parametrize("options", [{}, {"compress": "never"}])
@pytest.mark.parametrize("where", ["backward", "hook", "forward"])
def test_a_rank_that_raises_and_lives_on_is_noticed_at_once(where, options):
    """Also where all buckets travel plain; and its own state refuses to go on."""
    found = run(failing, 3, where, options, timeout_s=NEVER_S)
    for step, refuses, _ in found.values():
        assert step == 3 and refuses
    assert ("before its last bucket" if where == "backward" else "no more memory") in found[1][2]


def nested(rank, size):
    """Checkpointing runs a backward pass within the pass; the watch must not take its end for that of the whole."""
    from torch.utils.checkpoint import checkpoint

    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = gradwire.torch.planned_ddp(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
    ddp.register_comm_hook(state, hook)
    layers = list(net)
    whole = net.forward

    def forward(x):
        x = torch.nn.Sequential(*layers[:2])(x)
        x = Slow.apply(x)
        return checkpoint(torch.nn.Sequential(*layers[2:]), x) if ddp.training else whole(x)

    net.forward = forward
    for step in range(3):
        train_step(ddp, optimizer, rank, step)
    state.check()
    state.close()
    return digest(net)


class Slow(torch.autograd.Function):
    """A backward pass that the watch looks at a few times."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.5)
        return gradient


def test_checkpointing_is_not_taken_for_the_end():
    found = run(nested, 2)
    assert found[0] == found[1]


TWO_CODECS = {
    "schema": "gradwire-buckets/1",
    "groups": [
        {"names": ["4.bias", "4.weight"], "codec": "topk", "options": {"codec": "classic", "scheme": "topk"}},
        {"names": ["2.bias", "2.weight", "0.bias", "0.weight"], "codec": "thc", "options": {"bits": 4}},
    ],
}


def differing_in_one(rank, size):
    """THC finds on all ranks that one has loaded another state, while one rank waits for a frame of topk."""
    net = model()
    ddp = gradwire.torch.planned_ddp(net, TWO_CODECS)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state, hook = gradwire.torch.ddp_hook(optimizer, plan=TWO_CODECS, model=net)
    ddp.register_comm_hook(state, hook)
    (key,), (topk,) = state.codecs.made["thc"], state.codecs.made["classic"].values()
    if rank == 0:
        saved = state.state_dict()
        saved["thc"][key]["round"] = 5
        state.load_state_dict(saved)
        exchange = topk._exchange

        def late(bucket):
            while topk.error is None:
                time.sleep(0.01)
            exchange(bucket)

        topk._exchange = late
    x, y = batch(rank, 0)
    with pytest.raises(RuntimeError):
        torch.nn.functional.mse_loss(ddp(x), y).backward()
    error = type(state.error).__name__
    state.close()
    return together(rank, size, (error, [name for name in left_threads() if name == "gradwire-exchange"]))


def test_a_difference_that_one_codec_of_a_plan_finds_ends_all_of_them():
    """Threads that wait for another rank end too, long before their timeout. A rank may find its connections broken
    before it has found the difference."""
    found = run(differing_in_one, 2, timeout_s=NEVER_S)
    assert "DifferentError" in {error for error, _ in found.values()}
    assert all(error in ("DifferentError", "RuntimeError") and left == [] for error, left in found.values())


def closed(rank, size):
    """What works and what raises after close(), in the middle of a step: maps are being built."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
    ddp.register_comm_hook(state, hook)
    for step in range(2):
        train_step(ddp, optimizer, rank, step)
    net(batch(rank, 2)[0])
    state.close()
    for step in range(3):  # of this rank alone
        train_step(net, optimizer, rank, step)
    communicator = gradwire.torch.Communicator(small_len=1)
    communicator.close()
    x, y = batch(rank, 0)
    backward = torch.nn.functional.mse_loss(ddp(x), y).backward
    raised = []
    for call in (state.check, lambda: communicator.all_reduce(torch.ones(4)), backward):
        with pytest.raises(RuntimeError) as caught:
            call()
        raised.append("closed" in str(caught.value) or "Unable to cast" in str(caught.value))
    state.close()
    return together(rank, size, raised)


def test_a_closed_hook_raises():
    assert run(closed, 2) == {rank: [True, True, True] for rank in range(2)}


def dying(rank, size):
    def die(rank, step, *_):
        if rank == 2 and step == 3:
            os._exit(1)

    return steps(rank, size, 6, die)


def test_a_dead_rank_raises_on_all_others():
    found = run(dying, 4, timeout_s=TIMEOUT_S, may_die=(2,))
    for message, step in found.values():
        assert message.startswith("rank 2 closed its connection") and step == 3


KINDS = {
    "gradwire": {"compress": "always", "small_len": 1, "quantum_mode": "carried"},
    "plain": {"compress": "never"},
    "thc": {"small_len": 1},
    "topk": {"codec": "topk"},
    "bf16": {"codec": "bf16"},
    "communicator": {"small_len": 1},
}


def losing(rank, size, kind, lose):
    """Rank 1 goes in step 3: lose(state) takes it away."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    timeout = timedelta(seconds=2 if lose is stop else NEVER_S)
    ddp = None if kind == "communicator" else DDP(net)
    if ddp is None:
        state = gradwire.torch.Communicator(timeout=timeout, **KINDS[kind])
    else:
        make = gradwire.torch.thc_hook if kind == "thc" else gradwire.torch.ddp_hook
        state, hook = make(optimizer, timeout=timeout, **KINDS[kind])
        ddp.register_comm_hook(state, hook)

    def work(step):
        if ddp is None:
            return state.all_reduce(torch.ones(5000))
        return train_step(ddp, optimizer, rank, step)

    for step in range(3):
        work(step)
    assert state.error is None
    state.check()
    totals = state.report.totals()
    assert (totals["sent_size"] > 0) == ("% of the bytes" in state.report.summary()) == (kind != "plain")
    assert totals["plain_size" if kind == "plain" else "full_size"] > 10000
    if rank == 1:
        lose(state)
    with pytest.raises(RuntimeError):
        work(3)
    deadline = time.monotonic() + 5
    while state.error is None and time.monotonic() < deadline:  # DDP may raise before the hook knows why
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="an earlier operation failed: rank 1"):
        state.check()
    return survivors(rank, size, (type(state.error).__name__, state.error.rank, str(state.error)))


def survivors(rank, size, result):
    """together(), without rank 1, which ends then."""
    store = torch.distributed.distributed_c10d._get_default_store()
    store.set(f"raised {rank}", "yes")
    store.wait([f"raised {peer}" for peer in range(size) if peer != 1], timedelta(seconds=40))
    if rank == 0 and store.add("stopped", 0):
        os.kill(store.add("stopped", 0), signal.SIGKILL)
    return result


def die(state):
    os._exit(1)


def hang():
    """Stops the process. The signal may reach another thread first: this one must not send on until then."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


def stop(state):
    """The process hangs: where there are pieces, after it has sent those for rank 0."""
    torch.distributed.distributed_c10d._get_default_store().add("stopped", os.getpid())

    def hang_at(stage, piece, message):
        if stage == 0 and piece == 2:
            hang()

    if isinstance(state, gradwire.torch.DdpState) and state.engine.plans:
        state.engine.fault = hang_at
    else:
        hang()


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"thc"}))
def test_a_dead_rank_has_a_name(kind):
    """error, check() and report are those of all codecs."""
    for found in run(losing, 3, kind, die, timeout_s=NEVER_S, may_die=(1,)).values():
        assert found[:2] == ("PeerError", 1)
        where = {"thc": "round", "communicator": "operation 3"}.get(kind, "step 3")
        assert found[2].startswith("rank 1 closed its connection") and (where in found[2] or "(" not in found[2])


@pytest.mark.parametrize("kind", ["gradwire", "thc"])
def test_a_hanging_rank_has_a_name(kind):
    """Though rank 0 waits for rank 2, which waits for rank 1."""
    for found in run(losing, 3, kind, stop, timeout_s=NEVER_S, may_die=(1,)).values():
        assert found[:2] == ("PeerError", 1)
        where = "(round 3)" if kind == "thc" else "(step 3, "  # a bucket or the end, by the order of its pieces
        assert found[2].startswith("rank 1 sent nothing for ") and where in found[2]


def lacking(rank, size, what):
    """Rank 1 has no hook, or has not registered it."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    ddp = DDP(net)
    state, hook = None, None
    try:
        if rank != 1 or what == "registered":
            state, hook = gradwire.torch.ddp_hook(optimizer, compress="always", timeout=timedelta(seconds=1))
        if rank != 1:
            ddp.register_comm_hook(state, hook)
            train_step(ddp, optimizer, rank, 0)
    except RuntimeError as error:
        return survivors(rank, size, str(state.error if state else error))
    return survivors(rank, size, "")


@pytest.mark.parametrize("what", ["made", "registered"])
def test_a_rank_without_the_hook_has_a_name(what):
    found = run(lacking, 3, what)
    for rank in (0, 2):
        if what == "made":
            assert found[rank].startswith("gradwire: rank 1 has not called ddp_hook() within 1")
        else:
            assert found[rank].startswith("rank 1 sent nothing for 1") and "has its DDP the hook?" in found[rank]


def boards(*findings, size=4):
    """Boards of the ranks, in a store that has these findings: (rank, suspect, text), suspect -1: unknown."""
    store = torch.distributed.HashStore()
    made = [Board(store, "test", rank, size) for rank in range(size)]
    for rank, suspect, text in findings:
        unknown = suspect == -1
        made[rank].tell(Finding(None if unknown else suspect, text, unknown, " (here)"))
    return made


def test_the_rank_at_fault_is_the_one_that_blames_nobody(monkeypatch):
    monkeypatch.setattr(peers, "CLOSED_S", 0.05)
    name = "rank {}".format
    silent = [Finding(peer, f"rank {peer} is silent") for peer in range(4)]
    made = boards((0, 1, "rank 1 is silent"), (2, 0, "rank 0 is silent"), (3, 2, "rank 2 is silent"))
    for rank, peer in ((0, 1), (2, 0), (3, 2)):
        found = made[rank].resolve(silent[peer], name)
        assert (found.suspect, found.text) == (1, "rank 1 is silent")
    made = boards((0, 1, "rank 1 is silent"), (1, None, "no more memory"))
    found = made[2].resolve(silent[0], name)
    assert (found.suspect, found.text) == (1, "rank 1 failed: no more memory")
    made = boards((0, 2, "rank 2 is silent"), (2, 0, "rank 0 is silent"), size=3)
    assert made[0].resolve(silent[2], name).text == "rank 2 is silent"  # each other: as each has found it
    for given in ([(0, -1, "?"), (2, -1, "?"), (3, -1, "?")], [(0, -1, "?"), (2, -1, "?"), (3, 0, "?")]):
        found = boards(*given)[2].resolve(Finding(None, "?", True, " (here)"), name)
        assert (found.suspect, found.text) == (1, "rank 1 closed its connection (here)")


class BadStore:
    """That of a rank that is gone, or hangs."""

    def __init__(self, hangs):
        self.hangs, self.calls = hangs, 0

    def add(self, *_):
        self.calls += 1
        if self.hangs:
            time.sleep(0.5)
        raise RuntimeError("Connection reset by peer")

    set = add


@pytest.mark.parametrize("hangs", [False, True])
def test_a_store_that_is_gone_is_asked_once(hangs, monkeypatch):
    monkeypatch.setattr(peers, "_STORE_S", 0.1)
    store = BadStore(hangs)
    board = Board(store, "test", 0, 3)
    board.tell(Finding(1, "rank 1 is silent"))
    assert board.resolve(Finding(1, "rank 1 is silent"), str).text == "rank 1 is silent"
    assert store.calls == 1


def silent(rank, size):
    """Rank 1 hangs until rank 0 has raised."""
    store = torch.distributed.distributed_c10d._get_default_store()

    def hang(rank, step, *_):
        if rank == 1 and step == 3:
            store.wait(["raised 0"], timedelta(seconds=40))

    found = steps(rank, size, 4, hang)
    store.set(f"raised {rank}", "yes")
    return found


def test_a_rank_that_hangs_raises_within_the_timeout():
    found = run(silent, 2, timeout_s=TIMEOUT_S)
    message, step = found[0]
    assert message.startswith("rank 1 sent nothing for 5") and step == 3


@pytest.mark.parametrize("what", ["moment", "rate"])
@pytest.mark.parametrize("fallback", ["carried", "explicit"])
def test_states_that_differ_are_reported_and_gradients_stay_equal(what, fallback):
    """Debug mode compares the reduced gradients of every step, so an unequal fallback would raise."""
    found = run(diverging_with, 2, what, fallback)
    for _, mismatches in found.values():
        assert mismatches >= 3


def diverging_with(rank, size, what, fallback):
    def change(rank, step, net, optimizer, state):
        if rank == 1 and step == 3:
            if what == "moment":
                next(iter(optimizer.state.values()))["exp_avg_sq"].mul_(64.0)
            else:
                optimizer.param_groups[0]["lr"] *= 8

    return steps(rank, size, 6, change, fallback=fallback)


def unequal_results(rank, size, quantum_mode):
    def disturb(rank, step, net, optimizer, state):
        if rank == 1 and step == 3:
            finish = state.engine._finish

            def spoil(plan, word):
                plan.operation.result[5] += 1
                finish(plan, word)

            state.engine._finish = spoil

    return steps(rank, size, 6, disturb, quantum_mode=quantum_mode)


@pytest.mark.parametrize("quantum_mode", ["derived", "carried"])
def test_debug_mode_finds_results_that_differ_in_that_step(quantum_mode):
    found = run(unequal_results, 2, quantum_mode, timeout_s=TIMEOUT_S)
    for message, step in found.values():
        assert "results of the ranks differ" in message and step == 3


def test_gloo_takes_shorter_messages_than_were_posted():
    """The transport relies on it (transport.py)."""
    found = run(short_message, 2)
    assert found[0] == [7] * 10 + [0] * 90


def short_message(rank, size):
    import torch.distributed as dist

    group = dist.new_group(backend="gloo")
    if rank == 1:
        group.send([torch.full((10,), 7, dtype=torch.uint8)], 0, 5).wait()
        return None
    room = torch.zeros(100, dtype=torch.uint8)
    group.recv([room], 1, 5).wait()
    return room.tolist()


def diverging_late(rank, size, what):
    """One rank alone does something that makes it build other maps, or none, or more of them."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS)
    ddp.register_comm_hook(state, hook)
    for step in range(6):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        if rank == 1 and step == 3 and what == "rate":
            optimizer.param_groups[0]["lr"] *= 8
        loss.backward()
        if not (rank == 1 and step == 3 and what == "no step"):
            optimizer.step()
    state.check()
    mismatches = state.report.totals()["mismatches"]
    gradients = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).tolist()
    state.close()
    return mismatches, gradients


@pytest.mark.parametrize("what", ["rate", "no step"])
def test_a_rank_that_alone_builds_other_maps_leads_to_the_fallback(what):
    found = run(diverging_late, 2, what)
    for mismatches, gradients in found.values():
        assert mismatches >= 2 and gradients == found[0][1]


def leaving(rank, size, folder):
    """A program as people write it: no os._exit(), no close()."""

    def die(rank, step, *_):
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    message, step = steps(rank, size, 6, die)
    (folder / f"{rank}").write_text(f"{step} {message}")


def test_after_a_kill_the_other_processes_end(tmp_path):
    script = tmp_path / "program.py"
    here = os.path.dirname(os.path.abspath(__file__))
    script.write_text(
        f"import sys, pathlib, datetime\nsys.path.insert(0, {here!r})\n"
        "import torch.distributed as dist, test_failures\n"
        "rank, size = int(sys.argv[1]), int(sys.argv[2])\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=rank, world_size=size,"
        " timeout=datetime.timedelta(seconds=10))\n"
        f"test_failures.leaving(rank, size, pathlib.Path({str(tmp_path)!r}))\n"
    )
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    programs = [subprocess.Popen([sys.executable, script, str(rank), "3"], env=environment) for rank in range(3)]
    try:
        codes = [program.wait(90) for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert codes[1] < 0
    for rank in (0, 2):
        assert (tmp_path / str(rank)).read_text().startswith("3 ")


def disagreeing(rank, size, given):
    """given[rank]: options of this rank's hook; None: it makes a THC hook."""
    optimizer = torch.optim.AdamW(model().parameters(), lr=1e-3)
    with pytest.raises(ValueError, match="the ranks have different") as caught:
        if given[rank] is None:
            gradwire.torch.thc_hook(optimizer)
        else:
            gradwire.torch.ddp_hook(optimizer, **given[rank])
    return together(rank, size, (str(caught.value), left_threads()))


def left_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gradwire")]


ONE_BUCKET = {"schema": "gradwire-plan/1", "groups": [{"names": [f"parameter.{i}" for i in range(6)], "codec": "fp32"}]}


@pytest.mark.parametrize(
    "given, why",
    [
        ([{}, {}, {"plan": ONE_BUCKET}], "options: plan"),
        ([{"tolerance_bits": 12}, {}, {"noise": 0.5, "piece_len": 4096}], "options: noise, piece_len, tolerance_bits"),
        ([{}, {"record": "nowhere.json"}, {}], "options: record"),
        ([{}, {"codec": "topk"}, None], "different hooks"),
    ],
)
def test_ranks_with_other_options_raise_at_once(given, why):
    for message, left in run(disagreeing, 3, given, timeout_s=NEVER_S).values():
        assert why in message and not left


MAKERS = {
    "csv": lambda optimizer, bad: gradwire.torch.ddp_hook(optimizer, csv="/nowhere/a.csv" if bad else None),
    "plan": lambda optimizer, bad: gradwire.torch.ddp_hook(optimizer, plan="nowhere.json" if bad else ONE_BUCKET),
    "record": lambda optimizer, bad: gradwire.torch.ddp_hook(
        optimizer, record="/nowhere/run.json" if bad else os.path.join(tempfile.gettempdir(), "unused.json")
    ),
    "threads": lambda optimizer, bad: gradwire.torch.ddp_hook(optimizer, threads=257 if bad else 2),
    "compress": lambda optimizer, bad: gradwire.torch.ddp_hook(optimizer, compress="maybe" if bad else "auto"),
    "thc": lambda optimizer, bad: gradwire.torch.thc_hook(optimizer, bits=5 if bad else 4),
    "topk": lambda optimizer, bad: gradwire.torch.ddp_hook(optimizer, codec="topk", ratio=2 if bad else 0.5),
    "communicator": lambda optimizer, bad: gradwire.torch.Communicator(optimizer=None, threads=0 if bad else 1),
    "planned_ddp": lambda _, bad: gradwire.torch.planned_ddp(model(), "nowhere.json" if bad else ONE_BUCKET),
}


LOADERS = {
    "gradwire": ({}, {"step": 5, "choice": {"decision": True}}, "decision, step"),
    "record": ({"record": os.path.join(tempfile.gettempdir(), "unused.json")}, {"step": 20}, "step"),
    "thc": (None, {"round": 5}, "round"),
    "randk": ({"codec": "randk", "ratio": 0.5}, {"step": 5}, "step"),
    "qsgd": ({"codec": "qsgd"}, {"seed": 5}, "seed"),
}


def loading_alone(rank, size, options, change):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    ddp = DDP(net)
    make = gradwire.torch.ddp_hook if options is not None else gradwire.torch.thc_hook
    state, hook = make(optimizer, small_len=0, **(options or {}))
    ddp.register_comm_hook(state, hook)
    if rank == 0:
        state.load_state_dict({**state.state_dict(), **change})
    x, y = batch(rank, 0)
    with pytest.raises((RuntimeError, ValueError)) as caught:  # torch 1.13 wraps it
        torch.nn.functional.mse_loss(ddp(x), y).backward()
    return together(rank, size, str(caught.value))


@pytest.mark.parametrize("kind", LOADERS)
def test_a_state_that_one_rank_alone_has_loaded_raises_on_all(kind):
    options, change, why = LOADERS[kind]
    for message in run(loading_alone, 2, options, change, timeout_s=NEVER_S).values():
        assert f"the ranks have different states, which all ranks must load: {why}" in message


def failing_slowly(rank, size):
    fail = Gate.fail
    Gate.fail = lambda self, error: (time.sleep(0.3), fail(self, error))
    communicator = gradwire.torch.Communicator()
    with pytest.raises(ZeroDivisionError):
        communicator.engine.call(lambda: 1 // 0)
    communicator.close()


def test_a_call_raises_what_its_job_raised():
    """Not, where the caller was faster than the thread of the job, that something failed on this rank alone."""
    run(failing_slowly, 1)


def failing_alone(rank, size, kind):
    """The hook of rank 0 cannot be made; one that all ranks make afterwards can."""
    optimizer = torch.optim.AdamW(model().parameters(), lr=1e-3)
    with pytest.raises(Exception) as caught:
        MAKERS[kind](optimizer, rank == 0)
    told = "rank 0 failed to make its hook" in str(caught.value)
    left = left_threads()
    gradwire.torch.ddp_hook(optimizer)[0].close()
    return told, left


@pytest.mark.parametrize("kind", MAKERS)
def test_a_rank_that_fails_alone_keeps_nobody_waiting(kind):
    for rank, (told, left) in run(failing_alone, 3, kind, timeout_s=NEVER_S).items():
        assert told == (rank != 0) and not left


class Mute:
    """A transport of a rank alone."""

    def tell(self, error):
        return None

    def resolve(self, error, finding):
        return error


def future_at(gate):
    future = torch.futures.Future()
    gate.add(future)
    return future


def test_a_failure_waits_for_what_is_being_handed_out_and_lets_nothing_follow():
    gate, stopped, order = Gate(Mute()), threading.Event(), []
    gate.on_shut.append(lambda: order.append("stopped"))
    handed, waiting = future_at(gate), future_at(gate)
    waiting.then(lambda _: order.append("failed"))

    def hand_out():
        with gate.passing(handed):
            stopped.wait(10)
            order.append("written")
            handed.set_result(1)

    threads = [threading.Thread(target=hand_out), threading.Thread(target=gate.fail, args=(ValueError("no"),))]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    assert gate.shut and gate.error is None and not waiting.done()
    stopped.set()
    for thread in threads:
        thread.join(10)
    assert order == ["written", "stopped", "failed"] and handed.value() == 1 and str(gate.error) == "no"
    for late in (waiting, future_at(gate)):
        with pytest.raises(RuntimeError, match="gradwire: no"):
            late.wait()
    with pytest.raises(RuntimeError, match="an earlier operation failed: no"), gate.passing():
        pytest.fail("a block after the failure")


def test_callbacks_of_results_may_fail_at_the_same_time():
    gate, together = Gate(Mute()), threading.Barrier(2, timeout=10)

    def hand_out(number):
        future = future_at(gate)
        future.then(lambda _: (together.wait(), gate.fail(ValueError(str(number)))))
        with gate.passing(future):
            future.set_result(None)

    threads = [threading.Thread(target=hand_out, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads) and str(gate.error) in ("0", "1")


def test_no_result_is_handed_out_once_the_error_is_known():
    for seed in range(8):
        gate, late = Gate(Mute()), []

        def hand_out(gate=gate, late=late):
            while True:
                future = future_at(gate)
                future.then(lambda done: late.append(1) if gate.error is not None and not failed(done) else None)
                try:
                    with gate.passing(future):
                        future.set_result(None)
                except RuntimeError:
                    return

        threads = [threading.Thread(target=hand_out) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.001 * seed)
        gate.fail(ValueError("no"))
        for thread in threads:
            thread.join(10)
        assert not late and not any(thread.is_alive() for thread in threads)


def failed(future):
    try:
        future.wait()
    except RuntimeError:
        return True
    return False


def written_late(rank, size):
    """Whether a bucket that has been handed back with an error is written to, at several moments of its exchange."""
    changed, net, whole = [], torch.nn.Linear(2000, 2000), 0.0
    for share in (None, 0.4, 0.6, 0.7, 0.8, 0.9):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        state, _ = gradwire.torch.ddp_hook(optimizer, compress="always", threads=1)
        state.codecs.compressing = True
        values = torch.randn(net.weight.numel())
        begin = time.monotonic()
        future = state.codecs.start(Bucket(values, [net.weight], [values.view_as(net.weight)]))
        if rank == 0 and share is not None:
            time.sleep(share * whole)
            state.gate._transport = Mute()  # no time goes by while the others are told
            state.gate.on_break.clear()
            state.fail(RuntimeError("enough"))
        if failed(future):
            before = values.clone()
            time.sleep(0.2)
            changed.append(not torch.equal(values, before))
        whole = whole or time.monotonic() - begin
        if share is not None:
            state.engine.transport.abort()
        state.close()
    return changed


def test_a_call_from_a_callback_does_not_hold_up_the_error():
    """The callback of a result asks for the error while another thread, which waits for the callback, is finding it."""
    gate, inside, raised = Gate(Mute()), threading.Event(), []

    def callback():
        with contextlib.suppress(RuntimeError), gate.passing():
            inside.set()
            while not gate.shut:
                time.sleep(0.001)
            with pytest.raises(RuntimeError, match="an earlier operation failed: no"):
                gate.raise_error()
            raised.append(True)

    threads = [threading.Thread(target=callback), threading.Thread(target=lambda: gate.fail(RuntimeError("no")))]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(10)
    assert raised == [True]
    assert not any(thread.is_alive() for thread in threads)


def test_nothing_is_written_to_a_bucket_that_was_handed_back():
    found = run(written_late, 2, timeout_s=NEVER_S)
    assert not any(found[0]) and not any(found[1])


class FullDisk:
    def __init__(self):
        self.calls = []

    def write(self, text):
        self.calls.append("write")
        raise OSError("no space left")

    def close(self):
        self.calls.append("close")


def full(rank, size):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    ddp = DDP(net)
    state, hook = gradwire.torch.ddp_hook(optimizer, **OPTIONS, csv=os.devnull, report_every=1)
    if rank == 0:
        state.report._file = disk = FullDisk()
    ddp.register_comm_hook(state, hook)
    for step in range(3):
        train_step(ddp, optimizer, rank, step)
    state.close()
    return digest(net), disk.calls if rank == 0 else []


def test_a_full_disk_ends_the_statistics_alone():
    found = run(full, 2)
    assert found == {0: (found[1][0], ["write", "close"]), 1: (found[1][0], [])}


def test_ranks_may_differ_in_what_concerns_them_alone(tmp_path):
    found = run(concerned, 2, str(tmp_path / "a.csv"))
    assert found[0] == found[1]


def concerned(rank, size, path):
    own = {"csv": path, "report_every": 2} if rank == 0 else {"threads": 1}
    return steps(rank, size, 3, lambda *_: None, **own)


def dropped(rank, size, kind):
    """A hook that goes away without close(), in the middle of a run."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    ddp = DDP(net)
    options = {"classic": {"codec": "topk"}, "thc": {"small_len": 256}}.get(kind, OPTIONS)
    if kind == "recording":
        options = {**options, "record": "never-written.json"}
    if kind == "model":  # of which DDP keeps the hook
        options = {**options, "model": ddp}
    made = gradwire.torch.thc_hook if kind == "thc" else gradwire.torch.ddp_hook
    state, hook = made(optimizer, **options)
    ddp.register_comm_hook(state, hook)
    for step in range(2):
        train_step(ddp, optimizer, rank, step)
    before, pool = left_threads(), state.engine.pool if hasattr(state, "engine") else None
    del ddp, state, hook, options
    gc.collect()
    net(batch(rank, 0)[0])
    deadline = time.monotonic() + 20
    while left_threads() and time.monotonic() < deadline:
        time.sleep(0.05)
        gc.collect()  # a thread may have been busy with the last job
    closed = pool is None or not pool.handle
    hooks = len(torch.nn.modules.module._global_forward_pre_hooks)
    return together(rank, size, (before, left_threads(), closed, hooks))


@pytest.mark.parametrize("kind", ["ddp", "recording", "model", "classic", "thc"])
def test_a_hook_that_is_dropped_leaves_no_threads(kind):
    for before, after, closed, hooks in run(dropped, 2, kind).values():
        assert before and not after and closed and not hooks


EXIT = """
import datetime, time
import torch.distributed as dist
from gradwire.torch.workers import Worker

class Slow:
    def __init__(self):
        self.sleep = time.sleep
    def __del__(self):
        self.sleep(1)

class Owner:
    def fail(self, error):
        pass

slow, owner = Slow(), Owner()
worker = Worker("gradwire-test", owner.fail)
worker.submit(lambda: dist.HashStore().wait(["never"], datetime.timedelta(seconds=0.3)))
time.sleep(0.1)
"""


def test_a_program_may_end_while_a_thread_is_in_torch():
    """An interpreter that ends takes its time over an object; the thread comes back meanwhile."""
    ended = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
