"""Measures links and codecs of a running job for plans of option trees, as inputs of `gradwire plan solve --kind tree`.

    with ddp.no_sync():
        loss(ddp).backward()                    # gradients of each rank alone
    found = gradwire.torch.probe_levels.measure(optimizer, {"gcomp-t14": {}}, nodes=2, gpus=2)
    found.write("folder")                       # cluster.json and codecs.json, by rank 0

To be called by all ranks at once, after some steps. What is measured is what the hook runs:

- links: rings inside all machines at once, and between them with all ranks of a machine at once, as they share its
  link. A startup is that of one step of a ring.
- operations: each collective of the options, by all ranks at once: its startup, and its time for a byte through the
  link. So what the planner would take from the links as a formula is as it runs, such as the messages of a tree that
  pass one after the other.
- codecs: one frame of real gradients, encoded and decoded by all ranks at once. Where ranks have fewer than two cores
  each, codecs delay the backward pass: they have costs of the device that computes gradients ("gpu"), and the hook
  needs plan_device="cpu" to run the plan. Else they have costs of the CPU, and plans are solved with --cpu.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from . import planned
from .level_codecs import Part
from .machines import Given, Machines, agreed
from .option_path import FLAT, INTER, INTRA
from .probe import _HEADER, Measured, _Bench, _share, _table
from .scopes import Message, Peers, bounds
from .transport import Transport, new_transport

LENS = (1 << 12, 1 << 15, 1 << 18, 1 << 21)
_COLLECTIVES = ("alltoall", "gather", "allgather")
_FEW, _MANY = 1 << 8, 1 << 19  # values of a ring
_OF_OPERATION = 1 << 17  # the same of an operation, of which there are 21
OPERATIONS = (  # between or inside machines, and over all ranks
    "allreduce",
    "reduce-scatter",
    "reduce",
    "alltoall",
    "gather",
    "allgather-c",
    "allgather",
    "broadcast",
)


def measure(
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    codecs: Mapping[str, Mapping[str, Any]],
    *,
    nodes: int,
    gpus: int,
    machines: Given = None,
    lens: Sequence[int] = LENS,
    repeats: int = 3,
    **options: Any,
) -> Measured:
    """A collective call. codecs: options by name, as in a plan. nodes, gpus: machines and ranks of each; machines: as
    in DdpState. options: of DdpState; those that the run will have."""
    bench = _Bench(optimizer, repeats, options)
    try:
        transport = new_transport(bench.state.group, None, bench.state.timeout)
        transport.agree("probe", {"nodes": nodes, "gpus": gpus, "machines": repr(machines)})
        if nodes * gpus != bench.size:
            raise ValueError(f"nodes={nodes}, gpus={gpus}: the process group has {bench.size} ranks")
        placed = agreed(transport, machines, nodes, gpus)
        links = {where: _link(bench, transport, placed, where) for where in (INTRA, INTER)}
        operations = {}
        for where in (FLAT, INTRA, INTER):
            operations.update(_operations(bench, transport, placed, where))
        share, cores, local = _share(bench.state)
        entries = []
        for name, given in codecs.items():
            kind, parsed = planned._codec("probe", name, given)
            entry = {
                "name": name,
                "options": {"codec": kind, **parsed},
                "collectives": ["alltoall", "gather", "allgather"],
            }
            entries.append({**entry, **_costs(bench, kind, parsed, sorted(lens), share < 2)})
    finally:
        bench.state.close()
    cluster = {"nodes": nodes, "gpus": gpus, **links, "host": _link_of(0.0, 0.0), "latency_per_step": True}
    cluster["operations"] = operations
    about = [
        f"Measured by gradwire.torch.probe_levels: {nodes} machines of {gpus} ranks, {local} ranks on this machine, "
        f"with {cores} cores: {share:.2f} cores for a rank."
    ]
    return Measured(cluster, entries, bench.state.rank, {}, about)


def _link_of(alpha: float, beta: float) -> dict[str, float]:
    return {"latency_us": round(1e6 * alpha, 3), "us_per_kib": round(1024e6 * beta, 6)}


def _link(bench: _Bench, transport: Transport, placed: Machines, where: str) -> dict[str, float]:
    """A startup, and a byte through the link of a rank (inside) or of a machine (between)."""
    count = placed.count(where)
    if count == 1:
        return _link_of(0.0, 0.0)
    ranks, number = placed.ranks(where, transport.rank), 0

    def ring(flat: torch.Tensor) -> None:
        nonlocal number
        number += 1
        parts = bounds(0, flat.numel(), count)
        Peers(transport, ranks, number, 0, "the probe").all_gather([flat[low:high] for low, high in parts])

    few, many = torch.ones(_FEW), torch.ones(_MANY)
    short, long = bench.time(lambda: ring(few), few, 5), bench.time(lambda: ring(many), many)
    sent = [link_size("allgather", where, placed, 4.0 * length / count) for length in (_FEW, _MANY)]
    startup, byte = _line(sent, [short, long])
    return _link_of(startup / (count - 1), byte)


def _line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Startup, and time of a byte, of a small and a large message."""
    byte = max(0.0, seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    return max(0.0, seconds[0] - byte * sizes[0]), byte


def link_size(what: str, where: str, machines: Machines, held: float) -> float:
    """Bytes of an operation through the link of a rank (inside) or of a machine, as the planner counts them
    (planner/src/option_price.c). held: bytes of a rank before it."""
    count = machines.count(where)
    if what == "alltoall" and where == FLAT and machines.nodes > 1:
        return held / count * machines.gpus * (machines.nodes - 1) * machines.gpus
    share = {"allreduce": 2 / count, "reduce-scatter": 1 / count, "alltoall": 1 / count}.get(what, 1)
    messages = 1 if what in ("reduce", "broadcast") else count - 1
    return held * share * messages * (machines.gpus if where == INTER else 1)


def _operations(bench: _Bench, transport: Transport, placed: Machines, where: str) -> dict[str, dict[str, float]]:
    """Costs of the collectives among these ranks, by their names in options. A byte takes what it does in the fastest
    runs, which other work disturbs least. A startup is that of the usual run: in training there is other work."""
    if placed.count(where) == 1:
        return {}
    found = {}
    for what in OPERATIONS:
        if where == INTRA and what in ("allreduce", "allgather-c"):
            continue
        sizes, fastest, usual = [], [], []
        for length, more in (
            (_FEW, 5),
            (_OF_OPERATION, 5 if where == INTRA else 1),
        ):  # there they are quick, and scatter
            flat = torch.ones(length)
            run = _Operation(bench, transport, placed, what, where, flat)
            times = bench.time(run, flat, more, list)
            fastest.append(min(times))
            usual.append(statistics.median(times))
            held = 4.0 * length / (run.peers.size if what == "allgather" else 1)
            sizes.append(link_size(what, where, placed, held))
        _, byte = _line(sizes, fastest)
        found[f"{where}-{what}"] = _link_of(max(0.0, usual[0] - byte * sizes[0]), byte)
    return found


class _Operation:
    """One operation as the hook runs it. Sums take values, the others bytes, as of frames."""

    def __init__(
        self, bench: _Bench, transport: Transport, placed: Machines, what: str, where: str, flat: torch.Tensor
    ) -> None:
        self.peers = Peers(transport, placed.ranks(where, transport.rank), 0, 0, "the probe")
        self._group, self._what, self._where, self._flat = bench.state.group, what, where, flat
        parts = bounds(0, flat.numel(), self.peers.size)
        self._values = [flat[low:high] for low, high in parts]
        self._frames = [part.numpy().view(np.uint8) for part in self._values]

    def __call__(self) -> None:
        peers, what = self.peers, self._what
        if what == "allreduce" and self._where == FLAT:
            dist.all_reduce(self._flat, group=self._group)  # an option of this alone is DDP's own
        elif what == "allreduce":
            peers.all_reduce(self._values)
        elif what == "reduce-scatter":
            peers.reduce_scatter(self._values)
        elif what == "reduce":
            peers.reduce(self._flat)
        elif what == "alltoall":
            peers.all_to_all([Message.of([frame]) for frame in self._frames], 1, self._room_size(self._frames[0]))
        elif what == "allgather":
            mine = Message.of([self._frames[peers.me]])
            peers.all_gather_frames(mine, peers.size * [1], peers.size * [self._room_size(self._frames[0])])
        else:
            self._whole(Message.of([self._flat.numpy().view(np.uint8)]))

    def _whole(self, mine: Message) -> None:
        """All of a message, as a frame."""
        peers, room_size = self.peers, mine.bytes.numel()
        if self._what == "gather":
            peers.gather(mine, 1, room_size)
        elif self._what == "broadcast":
            peers.broadcast_frames(None if peers.me else mine, 1, room_size)
        else:
            peers.all_gather_frames(mine, peers.size * [1], peers.size * [room_size])

    @staticmethod
    def _room_size(frame: np.ndarray) -> int:
        return 8 + frame.size  # the first part is the largest


def _costs(bench: _Bench, kind: str, options: Mapping[str, Any], lens: Sequence[int], shared: bool) -> dict[str, Any]:
    """Payload and curves of a codec."""
    codecs = bench.state.codecs
    codec = codecs.level_codec(kind, options, [])
    encode, decode, sizes = [], [], []
    for length in dict.fromkeys(bench.bucket(length).values.numel() for length in lens):
        made = bench.bucket(length)
        flat = made.values.float()
        part = Part(made, f"probe {length}", bench.state.rank, 0, flat.numel(), 0, float(bench.size))
        frames: list[np.ndarray] = []

        def encode_once() -> None:
            frames.append(codec.encode(flat.numpy(), part))
            part.undo.put()
            part.undo.end_step()

        encode.append((flat.numel(), bench.time(encode_once, flat)))
        total = np.zeros(flat.numel(), np.float32)
        decode.append((flat.numel(), bench.time(lambda: codec.add(frames[-1], total, 1.0), flat)))
        sizes.append(bench.largest([float(max(frame.size for frame in frames))])[0])
        codec.memory.clear()
    length, size = encode[-1][0], sizes[-1]
    bits = round(8000 * max(0.0, size - _HEADER) / length)  # thousandths of a bit a value
    return {
        "payload": {"header": _HEADER, "num": bits, "den": 8000},
        "decode_peer_us_per_kib": round(1e6 * decode[-1][1] / (size / 1024), 6),
        "gpu" if shared else "cpu": {"enc": _table(encode), "dec": _table(decode)},
    }
