"""The hook with a real `gradwire thc-serve`: equal to a model of gradwire.thc bit for bit, and every failure an error
that names the server. Needs the command: GRADWIRE_COMMAND, or build/*/gradwire of the tree."""

import contextlib
import json
import multiprocessing
import os
import random
import select
import signal
import socket
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path

import gradwire.thc
import gradwire.torch
import numpy as np
import pytest
import torch
from gradwire import _structs as s
from gradwire._library import check, lib
from gradwire.torch import thc_server
from gradwire.torch.peers import store_of_job
from gradwire.workspace import scratch
from ranks import run
from test_thc_sums import loads
from torch.nn.parallel import DistributedDataParallel as DDP

ROOT = Path(__file__).resolve().parents[3]
FOUND = [os.environ.get("GRADWIRE_COMMAND"), *map(str, sorted(ROOT.glob("build/*/gradwire")))]
COMMAND = next((one for one in FOUND if one and os.access(one, os.X_OK)), None)
LEN = 5000

pytestmark = pytest.mark.skipif(COMMAND is None, reason="the command gradwire is not built")


class Server:
    """A server process; statistics once it has ended."""

    def __init__(self, *options, address="127.0.0.1:0"):
        words = [COMMAND, "thc-serve", "--listen", address, "--json", *options]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[-1]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        return json.loads(out)

    def discard(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def serving(*options):
    server = Server(*options)
    try:
        yield server
    finally:
        server.discard()


def gradient(rank, step):
    return torch.randn(LEN, generator=torch.Generator().manual_seed(100 * step + rank))


def trained(rank, size, address, steps, options, pause=None):
    """Parameters after each step of SGD with rate 1 of a model whose gradient is given, and the hook's own numbers."""
    model = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.zeros(LEN))})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, given):
            return (self.inner["a"] * given).sum()

    ddp = DDP(Net())
    state, hook = gradwire.torch.thc_hook(optimizer, server=address, small_len=1, **options)
    ddp.register_comm_hook(state, hook)
    found = []
    for step in range(steps):
        if pause is not None:
            pause(rank, step)
        optimizer.zero_grad()
        ddp(gradient(rank, step)).backward()
        found.append(-model["a"].grad.clone().numpy())
        optimizer.step()
    state.check()
    saved = state.state_dict()["errors"][0].numpy() if 0 in state.state_dict()["errors"] else None
    numbers = {"left_out": state.left_out, "sizes": state.sizes(), "round": state.round, "job": state.codec.options.job}
    numbers["restarts"] = state._client.counts().restarts
    state.close()
    return found, saved, numbers


def mean_of(codec, indices, maxima, round):
    """By gradwire.thc: the sums of all workers, decoded."""
    lanes = [codec.expand(one, LEN).astype(np.uint64) for one in indices]
    total = sum(lanes).astype(codec.expand(indices[0], LEN).dtype)
    return codec.decode_reduced(total, maxima, LEN, gradwire.thc.Part(round=round))


@pytest.mark.parametrize("size,scheme,feedback", [(2, "", True), (3, "tcp://", True), (4, "udp://", False)])
def test_the_results_are_those_of_the_library(size, scheme, feedback):
    steps = 4
    with serving() as server:
        options = {"error_feedback": feedback, "seed": 5}
        results = run(trained, size, scheme + server.address, steps, options)
        counts = server.end()
    assert counts["partial"] == 0 and counts["results"] > 0 and counts["jobs"] == 1 and counts["now"] == []
    assert counts["connections"] == (size if scheme == "tcp://" else 0)
    job = results[0][2]["job"]
    chosen = gradwire.thc.options(4, size, job=job, seed=5, error_feedback=feedback, nonfinite="propagate")
    codec = gradwire.thc.Codec(chosen)
    errors = [np.zeros(LEN, np.float32) if feedback else None for _ in range(size)]
    for step in range(steps):
        values = [gradient(rank, step).numpy() for rank in range(size)]
        parts = [gradwire.thc.Part(round=step, rank=rank) for rank in range(size)]
        maxima = np.max([codec.norms(*pair, error=error) for *pair, error in zip(values, parts, errors)], axis=0)
        indices = [codec.encode(v, maxima, part, error=error) for v, part, error in zip(values, parts, errors)]
        wanted = mean_of(codec, indices, maxima, step)
        for rank in range(size):
            assert np.array_equal(-results[rank][0][step], wanted), (step, rank)
    for rank in range(size):
        assert results[rank][1] is None if not feedback else np.array_equal(results[rank][1], errors[rank])
        numbers = results[rank][2]
        assert numbers["left_out"] == 0 and numbers["round"] == steps
        assert numbers["sizes"][0] < 1.3 * steps * LEN / 2 + 2000  # half a byte a value, and headers
        assert numbers["sizes"][1] < 1.3 * steps * LEN + 2000


def lossy(server, port_of, seed):
    """Passes datagrams on between workers and the server, but loses, repeats and delays some. Does not end."""
    generator, held = random.Random(seed), []
    front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    front.bind(("127.0.0.1", 0))
    port_of.send(front.getsockname()[1])
    backs = {}
    while True:
        ready = select.select([front, *backs.values()], [], [], 0.01)[0]
        for one in ready:
            data, sender = one.recvfrom(65536)
            if one is front and sender not in backs:
                backs[sender] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                backs[sender].connect(server)
            worker = next((name for name, back in backs.items() if back is one), sender)
            held.append((data, worker, one is front))
        generator.shuffle(held)
        passed, held = held[: (len(held) + 1) // 2], held[(len(held) + 1) // 2 :]
        for data, worker, is_up in passed:
            for _ in range(generator.choice([0, 1, 1, 1, 1, 1, 1, 1, 1, 2])):
                if is_up:
                    backs[worker].send(data)
                else:
                    front.sendto(data, worker)


def test_a_network_that_loses_repeats_and_delays():
    """The same bits as without."""
    found = []
    with serving("--packet", "700") as server:
        found.append(run(trained, 2, server.address, 3, {"seed": 9}))
        mine, theirs = multiprocessing.Pipe()
        host, port = server.address.split(":")
        proxy = multiprocessing.Process(target=lossy, args=((host, int(port)), theirs, 4), daemon=True)
        proxy.start()
        try:
            found.append(run(trained, 2, f"{host}:{mine.recv()}", 3, {"seed": 9}))
        finally:
            proxy.kill()
            proxy.join()
        counts = server.end()
    assert counts["repeated"] > 0 and counts["partial"] == 0
    for rank in range(2):
        for a, b in zip(found[0][rank][0], found[1][rank][0]):
            assert np.array_equal(a, b)


def test_pieces_of_a_bucket(monkeypatch):
    monkeypatch.setattr(thc_server, "_PIECE_LEN", 2048)
    with serving("--packet", "700") as server:
        results = run(trained, 2, server.address, 2, {})
        server.end()
    for step in range(2):
        a, b = (results[rank][0][step] for rank in range(2))
        exact = -(gradient(0, step) + gradient(1, step)).numpy() / 2
        assert np.array_equal(a, b) and results[0][2]["round"] == 2 * 3
        assert np.square(a - exact).sum() < 0.05 * np.square(exact).sum()


class Net(torch.nn.Module):
    """Its parameter has what it is given as its gradient."""

    def __init__(self, parameter):
        super().__init__()
        self.inner = parameter

    def forward(self, given):
        return (self.inner * given).sum()


def resumed(rank, size, address):
    """Gradients of steps 0 to 3, then those of steps 2 and 3 again, other ones in between; and job numbers."""
    parameter = torch.nn.Parameter(torch.zeros(LEN))
    state, hook = gradwire.torch.thc_hook(torch.optim.SGD([parameter], lr=1.0), server=address, small_len=1)

    ddp, found, jobs = DDP(Net(parameter)), [], []
    ddp.register_comm_hook(state, hook)

    def train(step, given):
        parameter.grad = None
        ddp(gradient(rank, given)).backward()
        found.append(parameter.grad.clone().numpy())
        jobs.append(state.codec.options.job)
        return state.sizes()

    saved = None
    for step in (0, 1, 2, 3):
        saved = state.state_dict() if step == 2 else saved
        before = train(step, step)
    state.load_state_dict(saved)
    train(2, 9)  # the same round of other values: its old result would be wrong
    state.load_state_dict(saved)
    for step in (2, 3):
        after = train(step, step)
    state.check()
    state.close()
    assert after[0] > before[0] and after[1] > before[1]
    # Another run, whose hook was made with another seed, has that of the state.
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    state, hook = gradwire.torch.thc_hook(optimizer, server=address, small_len=1, seed=11)
    ddp = DDP(Net(parameter))
    ddp.register_comm_hook(state, hook)
    state.load_state_dict(saved)
    for step in (2, 3):
        train(step, step)
    state.close()
    return found, jobs[:-2]


@pytest.mark.parametrize("scheme", ["", "tcp://"])
def test_a_run_goes_back_to_a_state(scheme):
    """Rounds come again: with the same gradients they give the same bits, with others others."""
    with serving("--jobs", "1") as server:  # the earlier job has been left
        results = run(resumed, 2, scheme + server.address)
        counts = server.end()
    assert counts["jobs"] == 4 and counts["now"] == []
    for rank in range(2):
        found, jobs = results[rank]
        assert np.array_equal(found[7], found[2]) and np.array_equal(found[8], found[3])
        assert np.array_equal(found[5], found[2]) and np.array_equal(found[6], found[3])
        assert not np.array_equal(found[4], found[2]) and np.array_equal(found[4], results[0][0][4])
        assert len(set(jobs)) == 3 and jobs == results[0][1]


def test_a_state_with_error_memories_of_sums():
    def body(rank, size, address):
        parameter = torch.nn.Parameter(torch.zeros(LEN))
        state, _ = gradwire.torch.thc_hook(torch.optim.SGD([parameter], lr=1.0), server=address)
        saved = {**state.state_dict(), "sum_errors": {}}
        state.load_state_dict(saved)
        with pytest.raises(ValueError, match="requantized"):
            state.load_state_dict({**saved, "sum_errors": {(0,): torch.zeros(1)}})
        state.close()
        return True

    assert all(run(body, 2, "127.0.0.1:9").values())


def test_what_a_late_rank_sends_returns_by_error_feedback():
    """All ranks have the same results, though sums lack some. test_nothing_is_lost() has the error memories."""
    size, steps = 3, 6

    def pause(rank, step):
        time.sleep(0.4 if rank == 2 and step in (1, 3) else 0)

    with serving("--quorum", "2") as server:
        results = run(trained, size, server.address, steps, {}, pause)
        counts = server.end()
    left_out = [results[rank][2]["left_out"] for rank in range(size)]
    assert counts["partial"] > 0 and sum(left_out) > 0
    for step in range(steps):
        for rank in range(1, size):
            assert np.array_equal(results[rank][0][step], results[0][0][step]), (step, rank)
    assert left_out[2] == 0 or np.linalg.norm(results[2][1]) > 0
    # Each gradient counts once: in a mean of all ranks, or still in an error memory.
    arrived = -size * np.sum(np.stack(results[0][0]).astype(np.float64), axis=0)
    kept = sum(np.asarray(results[rank][1], np.float64) for rank in range(size))
    given = sum(gradient(rank, step).numpy().astype(np.float64) for rank in range(size) for step in range(steps))
    assert np.abs(arrived + kept - given).max() < 1e-4


def late_sums(values, left_out_of):
    """Contributions of a worker to rounds, with a server by hand: its rounds in `left_out_of` have no part of it."""
    codec = gradwire.thc.Codec(gradwire.thc.options(4, 2, error_feedback=True))
    error, sent = np.zeros(LEN, np.float32), np.zeros(LEN, np.float64)
    for round, given in enumerate(values):
        piece = thc_server._Piece(_Fake(codec), given, error, round)
        piece.own = piece.maxima = codec.norms(given, gradwire.thc.Part(round=round), error=error)
        piece.late = np.zeros(piece.blocks, np.bool_)
        kind = left_out_of.get(round)
        piece.late[1:3] = kind == "norms"
        indices = np.zeros(piece._indices_size(0, piece.blocks), np.uint8)
        piece.client.mask = piece.late.copy()
        piece.client.mask[2:4] |= kind == "indices"
        piece.client.sent = indices
        piece.sums()
        part = decoded(codec, piece.client.sent, piece.maxima, round)
        part[np.repeat(piece.client.mask, piece.block_len)[:LEN]] = 0
        sent += part
    return sent, error


def decoded(codec, indices, maxima, round):
    out = np.empty(LEN, np.float32)
    packed = s.gw_thc_indices(data=indices.ctypes.data, size=indices.size, patterns=maxima.ctypes.data)
    target = s.gw_thc_target(values=out.ctypes.data, capacity=LEN)
    where = s.gw_thc_range(len=LEN, block_first=0, block_count=codec.block_count(LEN), round=round, rank=0)
    room = scratch(lib.gw_thc_workspace_size(codec.handle))
    check(lib.gw_thc_decode_indices(codec.handle, where, packed, target, room))
    return out.astype(np.float64)


class _Fake:
    """What a round needs of the state and the client."""

    def __init__(self, codec):
        self.codec, self.rank, self.left_out = codec, 0, 0
        self._client = self
        self.sent = self.mask = None

    def indices(self, indices):
        self.sent = indices.copy()

    def run(self, where):
        pass

    def sums(self, blocks, size):
        return np.zeros(size, np.uint8), np.ones(blocks, np.uint32), self.mask


@pytest.mark.parametrize("kind", [None, "norms", "indices"])
def test_nothing_is_lost(kind):
    """What was sent plus what error memory holds is the sum of all gradients, to within roundings."""
    values = [gradient(0, step).numpy() for step in range(5)]
    sent, error = late_sums(values, {1: kind, 3: kind})
    exact = np.sum(np.stack(values).astype(np.float64), axis=0)
    assert np.abs(sent + error - exact).max() < 1e-5


def test_a_server_that_is_started_anew():
    """While a rank waits for the other, which sees to it. Nothing is lost, and the bits are the same."""
    steps, at = 8, (2, 4, 5)
    servers = [Server()]
    address = servers[0].address
    mine, theirs = multiprocessing.Pipe()

    def start_anew():
        for _ in at:
            mine.recv()
            servers[-1].discard()
            servers.append(Server(address=address))
            mine.send(None)

    def pause(rank, step):
        if rank == 1 and step in at:
            time.sleep(0.2)  # so that the other one has most likely sent something
            theirs.send(None)
            theirs.recv()

    helper = threading.Thread(target=start_anew, daemon=True)
    try:
        undisturbed = run(trained, 2, address, steps, {"seed": 3})
        helper.start()
        results = run(trained, 2, address, steps, {"seed": 3}, pause)
        helper.join(20)
    finally:
        for server in servers:
            server.discard()
    assert len(servers) == 1 + len(at)
    for rank in range(2):
        assert results[rank][2]["restarts"] == len(at)
        for a, b in zip(results[rank][0], undisturbed[rank][0]):
            assert np.array_equal(a, b)


def fails(rank, size, address, options):
    try:
        trained(rank, size, address, 3, options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def dies(rank, size, address, victim):
    def pause(number, step):
        if number == victim and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    begin = time.monotonic()
    try:
        trained(rank, size, address, 4, {"timeout": timedelta(seconds=40)}, pause)
    except Exception as error:
        return f"{error}", time.monotonic() - begin
    return "", 0.0


@pytest.mark.parametrize("scheme,options,victim", [("tcp://", ("--quorum", "2"), 0)])
def test_a_dead_rank(scheme, options, victim):
    """The others say which, and do not wait for the timeout, which the server's error would come after. With a quorum
    they have a round without it first."""
    with serving(*options) as server:
        found = run(dies, 3, scheme + server.address, victim, may_die=(victim,))
    assert len(found) == 2
    for text, _ in found.values():
        assert f"rank {victim} closed its connection (round" in text and "parameter server" not in text


def late_with_nan(rank, size, address, nonfinite):
    """Gradients of each step, and the error. Rank 2 has NaN in step 2, and begins that when the others have ended it;
    at the begin of step 1 DDP's ranks meet."""
    parameter = torch.nn.Parameter(torch.zeros(LEN))
    options = {"server": address, "small_len": 1, "nonfinite": nonfinite, "timeout": timedelta(seconds=20)}
    state, hook = gradwire.torch.thc_hook(torch.optim.SGD([parameter], lr=1.0), **options)

    ddp, grads, store = DDP(Net(parameter)), [], store_of_job()
    ddp.register_comm_hook(state, hook)
    try:
        for step in range(4):
            values = gradient(rank, step)
            if rank == 2 and step == 2:
                store.wait(["rank 0", "rank 1"])
                values[5] = float("nan")
            parameter.grad = None
            ddp(values).backward()
            grads.append(parameter.grad.clone().numpy())
            if step == 2:
                store.set(f"rank {rank}", "has ended step 2")
        state.check()
    except Exception as error:
        return grads, f"{error}", state.left_out
    return grads, "", state.left_out


def test_a_late_rank_with_nan_is_an_error_on_all():
    with serving("--quorum", "2") as server:
        found = run(late_with_nan, 3, server.address, "error")
    for _, text, _ in found.values():
        assert "rank 2, parameter 0" in text


def test_a_late_rank_drops_nan():
    """With nonfinite="propagate": it has no part in the sums, so they are finite, and equal on all ranks."""
    with serving("--quorum", "2") as server:
        found = run(late_with_nan, 3, server.address, "propagate")
    assert found[2][2] >= LEN
    for grads, text, _ in found.values():
        assert not text and len(grads) == 4
        for one, wanted in zip(grads, found[0][0]):
            assert np.array_equal(one, wanted) and np.isfinite(one).all()


def test_no_server():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = run(fails, 2, f"127.0.0.1:{port}", {"timeout": timedelta(seconds=2)})
    texts = list(found.values())
    assert all(texts) and any(f"the parameter server at udp://127.0.0.1:{port}: no answer" in text for text in texts)


@pytest.mark.parametrize(
    "address,text",
    [("nonsense", "HOST:PORT"), ("127.0.0.1:", "HOST:PORT"), ("::1:80", "brackets"), ("127.0.0.1:99999", "HOST:PORT")],
)
def test_addresses_that_are_none(address, text):
    for found in run(fails, 2, address, {}).values():
        assert found is not None and "parameter server at" in found and text in found


def test_a_server_that_refuses():
    with serving("--workers", "1") as server:
        found = run(fails, 2, server.address, {"timeout": timedelta(seconds=10)})
        counts = server.end()
    assert counts["refused_joins"] > 0
    assert any("refused: too many workers (1)" in text for text in found.values())


def test_by_ddp_hook():
    """codec="thc" is the same hook."""

    def body(rank, size, address):
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        states = [
            gradwire.torch.ddp_hook(optimizer, codec="thc", server=address)[0],
            gradwire.torch.ddp_hook(optimizer, codec="thc")[0],
        ]
        kinds = [type(state).__name__ for state in states]
        for state in states:
            state.close()
        return kinds

    assert set(map(tuple, run(body, 2, "127.0.0.1:9").values())) == {("ThcServerState", "ThcState")}


def test_memories_of_other_types_are_loaded_as_fp32():
    with serving() as server:
        assert set(run(loads, 2, server.address, timeout_s=30).values()) == {True}
