"""Measures links and codecs of a running job for plans of option trees, as inputs of `gradwire plan solve --kind tree`.

    with ddp.no_sync():
        loss(ddp).backward()                    # gradients of each rank alone
    found = gradwire.torch.probe_levels.measure(optimizer, {"gcomp-t14": {}}, nodes=2, gpus=2)
    found.write("folder")                       # cluster.json and codecs.json, by rank 0

To be called by all ranks at once, after some steps. What is measured is what the hook runs:

- links: rings inside all machines at once, and between them with all ranks of a machine at once, as they share its
  link. A startup is that of one step of a ring.
- codecs: one frame of real gradients, encoded and decoded by all ranks at once. Where ranks have fewer than two cores
  each, codecs delay the backward pass: they have costs of the device that computes gradients ("gpu"), and the hook
  needs plan_device="cpu" to run the plan. Else they have costs of the CPU, and plans are solved with --cpu.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from . import planned
from .level_codecs import Part
from .machines import Given, Machines, agreed
from .option_path import INTER, INTRA
from .probe import _HEADER, Measured, _Bench, _share, _table
from .scopes import Peers, bounds
from .transport import Transport, new_transport

LENS = (1 << 12, 1 << 15, 1 << 18, 1 << 21)
_COLLECTIVES = ("alltoall", "gather", "allgather")
_FEW, _MANY = 1 << 8, 1 << 19  # values of a ring


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
    sharing = placed.gpus if where == INTER else 1
    sent = sharing * (count - 1) / count * 4 * (_MANY - _FEW)
    return _link_of(short / (count - 1), max(0.0, long - short) / sent)


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
