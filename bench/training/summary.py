"""Numbers of docs/results/training.md from the merged runs: medians, paired differences, time to a loss."""

import json
import math
import statistics

WARMUP = 3  # first steps of a run: connections, DDP's rebuilding of buckets
TAIL = 0.1  # share of the steps whose mean is "the training loss at the end"


def load(folder):
    """All runs of a folder: dictionaries with the start row, its steps, checks and end."""
    runs = []
    for path in sorted(folder.glob("*.jsonl")):
        with open(path, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        run = {"start": rows[0], "job": rows[0]["job"]}
        for kind in ("step", "check", "end"):
            run[kind] = [row for row in rows if row["kind"] == kind]
        runs.append(run)
    return runs


def interval(values):
    """Mean and half the width of its 95 % interval (Student's t); None without two values."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    from scipy.stats import t

    return mean, t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def select(runs, **wanted):
    return [run for run in runs if all(run["job"][key] == value for key, value in wanted.items())]


def distinct(runs, *keys):
    """Combinations of values in the order of first appearance in the grid: by kind of hook, not by name."""
    order = ("none", "bf16", "powersgd", "int8", "int4", "gradwire")
    found = {tuple(run["job"][key] for key in keys) for run in runs}

    def place(row):
        return [(order.index(str(v).partition(":")[0]) if k == "hook" else 0, str(v)) for k, v in zip(keys, row)]

    return sorted(found, key=place)


def late(run):
    """Steps that count for times: after the warm-up, and for the automatic choice after it has chosen."""
    skip = WARMUP + (8 if run["job"]["hook"] == "gradwire" else 0) + (4 if run["job"]["compute"] == "replay" else 0)
    return run["step"][min(skip, len(run["step"]) - 1) :]


def median_of(run, key):
    values = [row[key] for row in late(run) if row[key] is not None]
    return statistics.median(values) if values else None


def end_loss(run):
    count = max(1, int(TAIL * len(run["step"])))
    return statistics.fmean(row["loss"] for row in run["step"][-count:])


def check_loss(run):
    return run["check"][-1]["loss"]


def paired(runs, plain, value):
    """Differences value(run) - value(plain run of the same seed), and the plain runs' values."""
    by_seed = {run["job"]["seed"]: run for run in plain}
    both = [run for run in runs if run["job"]["seed"] in by_seed]
    return [value(run) - value(by_seed[run["job"]["seed"]]) for run in both]


def ratios(runs, plain):
    """Logarithms of plain time / time, round by round."""
    by_turn = {run["job"]["seed"]: median_of(run, "seconds") for run in plain}
    both = [run for run in runs if run["job"]["seed"] in by_turn]
    return [math.log(by_turn[run["job"]["seed"]] / median_of(run, "seconds")) for run in both]


def ratio_interval(runs, plain):
    """Geometric mean of the ratio and its 95 % interval, (mean, low, high); low and high None with one round."""
    logs = ratios(runs, plain)
    if not logs:
        return None
    mean, half = interval(logs)
    if half is None:
        return math.exp(mean), None, None
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def steps_to(run, target):
    """Steps until the validation loss is at most `target`, interpolated between checks; None if it never is."""
    before = None
    for row in run["check"]:
        if row["loss"] <= target:
            if before is None or before["loss"] <= row["loss"]:
                return float(row["step"])
            share = (before["loss"] - target) / (before["loss"] - row["loss"])
            return before["step"] + share * (row["step"] - before["step"])
        before = row
    return None


def target_of(plain):
    """The loss to reach: the worst of fp32's seeds after four fifths of the steps."""
    return max(run["check"][int(0.8 * len(run["check"])) - 1]["loss"] for run in plain)


def replicas_equal(runs):
    """(checks with equal hashes on all ranks, all checks)."""
    seen = [row["equal"] for run in runs for row in run["check"] + run["end"]]
    return sum(seen), len(seen)
