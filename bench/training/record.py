"""Runs in short form: what docs/results/training.tsv keeps of each, one line a run, and training.md is made from.

A column is a field of Record. Lists are joined by spaces. A run that has a line is not repeated; delete its line to
repeat it.
"""

import csv
import dataclasses
import json
import pathlib
import statistics

WARMUP = 3  # first steps of a run: connections, DDP's rebuilding of buckets
# Of gradwire's hooks: the automatic choice, and messages that follow the optimizer's state. With AdamW the GPT's shrink
# from 53 MB to 12 in ten steps and hardly afterwards.
WARMUP_HOOK = 14
TAIL = 0.1  # share of the steps whose mean is "the training loss at the end"
NAME = "training.tsv"
EMULATED = "-emulated"  # end of the names of runs over emulated links


@dataclasses.dataclass
class Record:
    name: str
    kind: str  # curve or time
    task: str
    optimizer: str  # as in the grid: "own" for the task's
    hook: str
    link: str
    compute: str
    seed: int  # of a curve; the round of a time
    steps: int
    commit: str  # of gradwire
    torch: str
    trained_by: str  # the optimizer's name
    parameters: int
    ranks: int
    cpus: int  # that all ranks of this machine share
    batch: int
    lr: float
    link_mbit: float  # slowest direction of the probe, all ranks at once
    rtt_ms: float
    seconds: float  # medians of the steps that count
    cpu: float  # seconds of all ranks
    sent: float | None  # bytes of a rank on its interface
    end_loss: float  # of training, mean over the last steps
    equal: int  # checks in which all ranks had the same parameters
    checks: int
    check_steps: list[float]
    check_loss: list[float]  # validation
    check_sent: list[float]  # bytes of a rank up to the check
    check_seconds: list[float]

    @property
    def emulated(self):
        return self.name.endswith(EMULATED)


def counted(job, steps):
    """Steps that count for times: after the warm-up."""
    return steps[min(warmup(job["hook"], job["compute"]), len(steps) - 1) :]


def warmup(hook, compute):
    """Steps of a run that do not count."""
    return (WARMUP_HOOK if hook.startswith("gradwire") else WARMUP) + (4 if compute == "replay" else 0)


def median(steps, key):
    values = [row[key] for row in steps if row.get(key) is not None]
    return statistics.median(values) if values else None


def of_run(path, commit):
    """The record of one merged run of grid.py."""
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    start, job = rows[0], rows[0]["job"]
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in ("step", "check", "end")}
    steps, checks = kinds["step"], kinds["check"]
    late, tail = counted(job, steps), max(1, int(TAIL * len(steps)))

    def spent(key):
        return [sum(row.get(key) or 0 for row in steps if row["step"] < check["step"]) for check in checks]

    return Record(
        name=path.stem,
        kind=job["kind"],
        task=job["task"],
        optimizer=job["optimizer"] or "own",
        hook=job["hook"],
        link=job["link"],
        compute=job["compute"],
        seed=job["seed"],
        steps=len(steps),
        commit=commit,
        torch=start["torch"],
        trained_by=start["optimizer"],
        parameters=start["parameters"],
        ranks=start["ranks"],
        cpus=start["cpus"],
        batch=start["batch"],
        lr=start["lr"],
        link_mbit=min(start["probe"]["duplex_mbit"]),
        rtt_ms=max(start["probe"]["rtt_ms"]),
        seconds=median(late, "seconds"),
        cpu=median(late, "cpu"),
        sent=median(late, "sent"),
        end_loss=statistics.fmean(row["loss"] for row in steps[-tail:]),
        equal=sum(row["equal"] for row in checks + kinds["end"]),
        checks=len(checks + kinds["end"]),
        check_steps=[check["step"] for check in checks],
        check_loss=[check["loss"] for check in checks],
        check_sent=spent("sent"),
        check_seconds=spent("seconds"),
    )


def text_of(value):
    if isinstance(value, list):
        return " ".join(map(text_of, value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def value_of(field, text):
    if field.type == list[float]:
        return [float(part) for part in text.split()]
    if field.type == float | None:
        return float(text) if text else None
    return field.type(text)


def load(path):
    """Records of a file, [] where there is none."""
    if not pathlib.Path(path).exists():
        return []
    fields = dataclasses.fields(Record)
    with open(path, encoding="utf-8", newline="") as f:
        return [
            Record(**{field.name: value_of(field, row[field.name]) for field in fields})
            for row in csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]


def save(path, records):
    """Writes the file whole, in the order of names."""
    fresh = pathlib.Path(f"{path}.new")
    with open(fresh, "w", encoding="utf-8", newline="") as f:
        names = [field.name for field in dataclasses.fields(Record)]
        f.write("\t".join(names) + "\n")
        for record in sorted(records, key=lambda r: r.name):
            f.write("\t".join(text_of(getattr(record, name)) for name in names) + "\n")
    fresh.rename(path)


def collect(folder, path, commit):
    """Adds the runs of a folder that the file does not have; returns all records."""
    records = {record.name: record for record in load(path)}
    for run in sorted(pathlib.Path(folder).glob("*.jsonl")):
        if run.stem not in records:
            records[run.stem] = of_run(run, commit)
    save(path, records.values())
    return list(records.values())
