"""Options of ByteComp's decision tree: a path of operations as stages that run one after the other.

planner/src/option_tree.c has the grammar, planner/src/option_price.c what an operation does to what a rank holds. Here
only the rules are kept that make a path a mean over all ranks: values are encoded before frames travel and decoded
after it, what was taken apart is put together again, and every rank is in exactly one sum.
"""

from __future__ import annotations

from dataclasses import dataclass

FLAT, INTRA, INTER = "flat", "intra", "inter"
OPS_MAX = 12

# Threads that a message passes, in this order. The links inside and between machines are busy at the same time.
ENCODE, FIRST, BETWEEN, SECOND, DECODE = range(5)

_CODEC = {"comp-gpu": "comp", "comp-cpu": "comp", "decomp-gpu": "decomp", "decomp-cpu": "decomp"}
_OF_VALUES = ("allreduce", "reduce-scatter", "reduce")
_OF_FRAMES = ("allgather-c", "alltoall", "gather")
_WHOLE = ("allreduce", "allgather-c")
# A first step and the second one that undoes it.
_SECOND = {"reduce-scatter": "allgather", "alltoall": "allgather", "reduce": "broadcast", "gather": "broadcast"}


@dataclass(frozen=True)
class Stage:
    """One operation. where: the ranks of a collective; of a codec the device.

    Of an encode, position: number of the encodes before it; splits: where the parts of each frame are taken apart
    before they are decoded, in this order; later: where what it encodes is averaged.
    """

    what: str
    where: str
    thread: int
    position: int = 0
    splits: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """A path and its stages."""

    path: str
    stages: tuple[Stage, ...]

    @property
    def encodes(self) -> int:
        return sum(stage.what == "comp" for stage in self.stages)

    @property
    def on_gpu(self) -> list[str]:
        """The operations that the plan has on a GPU."""
        return [f"{stage.what}-gpu" for stage in self.stages if stage.where == "gpu"]

    @property
    def is_plain(self) -> bool:
        """Whether it is an ordinary all-reduce."""
        return self.path == "flat-allreduce"


def parse(path: str) -> Option:
    """The option of a path, operations joined by '>'. ValueError says what is wrong with it."""
    ops = [_split(op) for op in path.split(">")]
    if len(ops) > OPS_MAX:
        raise ValueError(f"an option has at most {OPS_MAX} operations, not {len(ops)}")
    _check(ops)
    threads = _threads(ops)
    stages, position = [], 0
    for i, (what, where) in enumerate(ops):
        if what != "comp":
            stages.append(Stage(what, where, threads[i]))
            continue
        end = next(j for j in range(i, len(ops)) if ops[j][0] == "decomp")
        splits = tuple(place for kind, place in ops[i:end] if kind == "alltoall")
        later = tuple(place for kind, place in ops[i:] if kind in (*_WHOLE, *_SECOND))
        stages.append(Stage(what, where, threads[i], position, splits, later))
        position += 1
    return Option(path, tuple(stages))


def _split(op: str) -> tuple[str, str]:
    """What an operation does, and where."""
    if op in _CODEC:
        return _CODEC[op], op.rpartition("-")[2]
    where, _, what = op.partition("-")
    known = (*_WHOLE, *_SECOND, *_SECOND.values())
    if where not in (FLAT, INTRA, INTER) or what not in known or (where, what) in _NO_SUCH:
        raise ValueError(f"there is no operation {op!r}")
    return what, where


# Inside a machine nothing ends a sum: values go on to the other machines.
_NO_SUCH = {(INTRA, "allreduce"), (INTRA, "allgather-c")}


class _Reader:
    """What a path has done so far."""

    def __init__(self) -> None:
        self.encoded = False
        self.open: dict[str, str] = {}  # first steps that no second one has undone, by where they were
        self.summed: set[str] = set()  # where all ranks are in the sum

    def codec(self, what: str) -> None:
        if self.encoded == (what == "comp"):
            raise ValueError("values are encoded twice" if self.encoded else "a decode of what is not encoded")
        self.encoded = not self.encoded

    def collective(self, what: str, where: str) -> None:
        if what in _OF_VALUES and self.encoded:
            raise ValueError(f"{where}-{what} sums values, not frames: decode them before")
        if what in _OF_FRAMES and not self.encoded:
            raise ValueError(f"{where}-{what} takes frames: encode the values before")
        if what in _SECOND.values():
            self._second(what, where)
            return
        if where == FLAT and self.summed or where == INTRA and self.summed:
            raise ValueError(f"{where}-{what} sums what is summed already")
        if where == INTER and (INTRA not in self.open or INTER in self.summed):
            raise ValueError(f"{where}-{what} must follow a first step inside the machines, and come once")
        self.summed.add(where)
        if what in _SECOND:
            self.open[where] = what

    def _second(self, what: str, where: str) -> None:
        first = self.open.pop(where, None)
        if first is None or _SECOND[first] != what:
            raise ValueError(
                f"{where}-{what} does not undo the step {where}-{first}"
                if first
                else f"{where}-{what} without a first step"
            )
        if where == INTRA and (INTER in self.open or INTER not in self.summed):
            raise ValueError(f"{where}-{what} before the steps between the machines have ended")

    def end(self) -> None:
        if self.encoded or self.open:
            raise ValueError("frames are not decoded" if self.encoded else "a rank has no part or all of the sum")
        if self.summed not in ({FLAT}, {INTRA, INTER}):
            raise ValueError("it does not sum over all ranks")


def _check(ops: list[tuple[str, str]]) -> None:
    """ValueError unless the operations fit together."""
    reader = _Reader()
    for what, where in ops:
        if what in ("comp", "decomp"):
            reader.codec(what)
        else:
            reader.collective(what, where)
    reader.end()


def _threads(ops: list[tuple[str, str]]) -> list[int]:
    """The thread of each operation. Codec work between two threads belongs to the one that is not between machines,
    which is the one that others wait for."""
    threads: list[int] = []
    networks = [i for i, (what, _) in enumerate(ops) if what not in ("comp", "decomp")]
    between = False
    for i, (what, where) in enumerate(ops):
        if what not in ("comp", "decomp"):
            between |= where == INTER
            threads.append(BETWEEN if where == INTER else SECOND if between else FIRST)
        elif i < networks[0]:
            threads.append(ENCODE)
        elif i > networks[-1]:
            threads.append(DECODE)
        else:
            before, after = (ops[max(n for n in networks if n < i)][1], ops[min(n for n in networks if n > i)][1])
            threads.append(_thread_of_codec(before, after, between))
    return threads


def _thread_of_codec(before: str, after: str, between: bool) -> int:
    """Of codec work between collectives of these ranks."""
    if before == after:
        return BETWEEN if before == INTER else FIRST
    return SECOND if between else FIRST
