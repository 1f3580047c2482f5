"""Which ranks are on which machine, for plans whose messages travel in two levels."""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from .option_path import FLAT, INTRA
from .transport import Transport

Given = int | Sequence[int] | None


class Machines:
    """nodes machines of gpus ranks each. places: ranks of each machine, in order."""

    def __init__(self, places: Sequence[Sequence[int]]) -> None:
        self.places = [list(ranks) for ranks in places]
        self.nodes, self.gpus = len(self.places), len(self.places[0])
        self._at = {rank: (node, local) for node, ranks in enumerate(self.places) for local, rank in enumerate(ranks)}

    def ranks(self, where: str, rank: int) -> list[int]:
        """Those that take part in a collective of this rank. flat: machine by machine, so that a ring enters and leaves
        each once; between machines: those with this one's number in their machine."""
        node, local = self._at[rank]
        if where == FLAT:
            return [rank for ranks in self.places for rank in ranks]
        return self.places[node] if where == INTRA else [ranks[local] for ranks in self.places]

    def count(self, where: str) -> int:
        return self.nodes * self.gpus if where == FLAT else self.gpus if where == INTRA else self.nodes


def placed(given: Given, nodes: int, gpus: int) -> list[list[int]]:
    """Ranks by machine. given: None: as many ranks as a machine of the plan has follow each other; a number: that many
    do; a list: the machine of each rank, by any numbers. ValueError where that is not what the plan was made for."""
    size = nodes * gpus
    if given is None or isinstance(given, int):
        each = gpus if given is None else given
        if each != gpus:
            raise ValueError(f"machines={given}: the plan is for {nodes} machines of {gpus} ranks")
        return [list(range(first, first + gpus)) for first in range(0, size, gpus)]
    numbers = list(given)
    if len(numbers) != size:
        raise ValueError(f"machines: it names the machine of {len(numbers)} ranks, the process group has {size}")
    found = [[rank for rank, at in enumerate(numbers) if at == number] for number in dict.fromkeys(numbers)]
    if len(found) != nodes or any(len(ranks) != gpus for ranks in found):
        sizes = ", ".join(str(len(ranks)) for ranks in found)
        raise ValueError(f"machines: it has {len(found)} machines of {sizes} ranks; the plan is for {nodes} of {gpus}")
    return found


def agreed(transport: Transport, given: Given, nodes: int, gpus: int) -> Machines:
    """The machines of the job. Collective. ValueError, on all ranks, where the job contradicts the plan: by the
    launcher's LOCAL_WORLD_SIZE, or by hosts; not where `machines` says which ranks are where."""
    made = Machines(placed(given, nodes, gpus))
    host = zlib.crc32(socket.gethostname().encode())
    mine = torch.tensor([host, _local_size(os.environ)], dtype=torch.int64)
    said = [room.tolist() for room in transport.gather(mine, "comparing machines")]
    if given is None:
        _check(made, [one[0] for one in said], [one[1] for one in said])
    return made


def _local_size(environment: Any) -> int:
    """What torchrun says; 0: nothing."""
    text = environment.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() else 0


def _check(made: Machines, hosts: Sequence[int], locals_: Sequence[int]) -> None:
    """ValueError. Hosts that are all the same one say nothing: machines may be tried on one."""
    hint = "give machines= (ranks of a machine, or the machine of each rank), or solve it for this job"
    for rank, size in enumerate(locals_):
        if size not in (0, made.gpus):
            raise ValueError(
                f"the plan has {made.gpus} ranks on a machine, rank {rank} is one of {size} (LOCAL_WORLD_SIZE): {hint}"
            )
    for ranks in made.places:
        for rank in ranks[1:]:
            if hosts[rank] != hosts[ranks[0]]:
                raise ValueError(
                    f"the plan has ranks {ranks[0]} and {rank} on one machine, they are on two hosts: {hint}"
                )
    firsts = [hosts[ranks[0]] for ranks in made.places]
    if 1 < len(set(firsts)) < len(firsts):
        raise ValueError(f"the plan has {made.nodes} machines, the ranks are on {len(set(firsts))} hosts: {hint}")
