"""algorithm="ring": equal replicas, sums as exact as the quanta promise, and failures that all ranks learn."""

import os

import gradwire.torch
import pytest
import torch
from gradwire.torch import probe
from gradwire.torch.codecs import check_options
from gradwire.torch.messages import Messages
from ranks import run
from test_ddp import OPTIONS, train
from test_failures import NEVER_S, disagreeing, hang, losing, steps
from test_operations import nmse, values_of

RING = {**OPTIONS, "algorithm": "ring"}


@pytest.mark.parametrize(
    "size, name, options",
    [
        (1, "adamw", {}),
        (2, "adamw", {}),
        (3, "adamw", {"contribution_bits": 1, "threads": 1}),
        (4, "adamw", {"quantum_mode": "carried"}),
        (4, "momentum", {"quantum_mode": "explicit"}),
    ],
)
def test_replicas_are_equal_and_follow_plain_training(size, name, options):
    """Debug mode compares the results of all steps. A step has several pieces of each shard."""
    found = run(train, size, name, 6, {**RING, **options})
    assert len({digest for _, digest, _ in found.values()}) == 1
    plain = run(train, size, name, 6, None)
    for rank in range(size):
        assert found[rank][0] == pytest.approx(plain[rank][0], rel=0.02)
        assert found[rank][2]["mismatches"] == 0


def summing(rank, size, n, algorithm):
    """Errors of an all-reduce and of a reduce-scatter, the bytes that this rank sent, and to whom."""
    communicator = gradwire.torch.Communicator(small_len=1, piece_len=4096, nmse=1e-4, algorithm=algorithm)
    send, receivers = Messages.send, set()

    def record(messages, event, fault=None):
        send(messages, event, fault)
        receivers.update(peer for _, peer in messages._sends)

    Messages.send = record  # in this process of the test alone
    values, exact = values_of(rank, 3, n * size), sum(values_of(r, 3, n * size) for r in range(size))
    result, output = values.clone(), torch.zeros(n)
    communicator.all_reduce(result, mean=False)
    communicator.reduce_scatter(output, values)
    sent = communicator.engine.stats().sent_size
    communicator.close()
    return nmse(result, exact), nmse(output, exact.view(size, n)[rank]), sent, receivers


@pytest.mark.parametrize("size, n", [(2, 5000), (3, 20000), (4, 97)])
def test_sums(size, n):
    """Every rank sends to its right neighbour alone, and as much as in A2A+AG, about: 2 (size - 1) shards."""
    found = {algorithm: run(summing, size, n, algorithm) for algorithm in ("ring", "a2a")}
    for rank in range(size):
        reduced, scattered, sent, receivers = found["ring"][rank]
        assert receivers == {(rank + 1) % size}
        assert found["a2a"][rank][3] == set(range(size)) - {rank}
        assert 0 <= reduced < size * 1e-3 and 0 <= scattered < size * 1e-3
        assert sent == pytest.approx(found["a2a"][rank][2], rel=0.2)


def damaged(rank, size, stage):
    def damage(rank, step, net, optimizer, state):
        def flip(at, piece, message):
            if at == stage and piece == 0:
                message[len(message) // 2] ^= 0x55

        if rank == (2 if stage == 0 else 0) and step == 3:  # piece 0 is that of rank 0, to which rank 2 sends
            state.engine.fault = flip

    return steps(rank, size, 6, damage, algorithm="ring")


def damaged_on_its_way(rank, size):
    """The last rank of the ring alone gets a bad byte in a finished piece."""

    def damage(rank, step, net, optimizer, state):
        if rank != 2 or step != 3:
            return
        plan = next(iter(state.engine.plans.values()))
        receive = plan.exchange.receive

        def flip(piece, source):
            if piece == 0 and source == 0:
                plan.messages.memory[plan.exchange.buffer_offset(piece, source) + 40] ^= 0x55
            receive(piece, source)

        plan.exchange.receive = flip

    return steps(rank, size, 6, damage, algorithm="ring")


@pytest.mark.parametrize("body, arguments", [(damaged, (0,)), (damaged, (1,)), (damaged_on_its_way, ())])
def test_a_damaged_message_raises_on_all_ranks_in_that_step(body, arguments):
    found = run(body, 3, *arguments, timeout_s=NEVER_S)
    assert len(set(found.values())) == 1
    for message, step in found.values():
        assert "corrupt" in message or "checksum" in message
        assert step == 3


def diverging(rank, size):
    def change(rank, step, net, optimizer, state):
        if rank == 1 and step == 2:
            for one in optimizer.state.values():
                one["exp_avg_sq"].mul_(3.0)

    return steps(rank, size, 5, change, algorithm="ring", quantum_mode="derived")[1]


def test_states_that_differ_fall_back():
    """Debug mode compares the results of the other codec, too."""
    assert all(mismatches >= 1 for mismatches in run(diverging, 3).values())


def die(state):
    os._exit(1)


def stop(state):
    """The process hangs in its first message."""
    torch.distributed.distributed_c10d._get_default_store().add("stopped", os.getpid())
    state.engine.fault = lambda *_: hang()


@pytest.mark.parametrize("lose, text", [(die, "closed its connection"), (stop, "sent nothing for ")])
def test_a_lost_rank_has_a_name(lose, text, monkeypatch):
    """Though one rank waits for the other, which waits for the lost one."""
    monkeypatch.setitem(losing.__globals__["KINDS"], "gradwire", {**RING, "quantum_mode": "carried"})
    monkeypatch.setitem(losing.__globals__, "stop", stop)
    for found in run(losing, 3, "gradwire", lose, timeout_s=NEVER_S, may_die=(1,)).values():
        assert found[:2] == ("PeerError", 1) and text in found[2]


PLAN = {"schema": "gradwire-plan/1", "groups": [{"names": ["weight"], "codec": "fp32"}]}


def refused(rank, size):
    """What plans, and the probe for them, say to a ring."""
    net = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state, _ = gradwire.torch.ddp_hook(optimizer, compress="always", algorithm="ring")
    why = []
    for call in (
        lambda: gradwire.torch.ddp_hook(optimizer, plan=PLAN, model=net, algorithm="ring"),
        lambda: probe.measure(optimizer, {"fp16": {}}, algorithm="ring"),
        lambda: probe.measure(optimizer, {"fp16": {}}, state=state, backward=lambda: None),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        why.append(str(caught.value))
    state.close()
    return why


def test_plans_have_no_ring():
    for why in run(refused, 2).values():
        assert why[0] == "algorithm='ring'; with a plan it is 'a2a', which plans are solved for"
        assert set(why[1:]) == {"algorithm='ring'; the probe measures for plans, which run as 'a2a'"}
    with pytest.raises(ValueError, match="no option algorithm for a bucket"):
        check_options("gradwire", {"algorithm": "ring"})


def test_ranks_that_choose_differently_raise():
    found = run(disagreeing, 2, [{"algorithm": "ring"}, {}])
    assert all("algorithm" in message and threads == [] for message, threads in found.values())
    with pytest.raises(ValueError, match="no algorithm 'tree'; there are: a2a, ring"):
        gradwire.torch.CodecOptions(algorithm="tree").settings([])
