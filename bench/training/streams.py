"""Losses of the same runs with two versions of the library whose random words differ: `python3 -m training.streams
OUT NAME COMMIT=RUNS COMMIT=RUNS`, from bench/. Writes OUT/NAME.tsv and OUT/NAME.md.

RUNS are folders of grid.py. The first has the older library's runs and fp32's, the second the newer library's, by the
same bench and the same torch:

    PYTHONPATH=OLD/python GRADWIRE_LIBRARY_DIR=OLD/... python3 -m training.grid OLD_RUNS --seeds 6 --only REGEX
    PYTHONPATH=NEW/python GRADWIRE_LIBRARY_DIR=NEW/... python3 -m training.grid NEW_RUNS --seeds 6 --only REGEX
"""

import csv
import math
import pathlib
import statistics
import sys

from result_pages import table

from . import record, summary
from .page import hook_text
from .summary import select

COLUMNS = ("name", "commit", "task", "trained_by", "hook", "seed", "steps", "torch", "check_loss", "end_loss")


def runs_of(words):
    """(commit, its runs) of "COMMIT=FOLDER"."""
    commit, _, folder = words.partition("=")
    return commit, [record.of_run(path, commit) for path in sorted(pathlib.Path(folder).glob("*.jsonl"))]


def spread(values):
    return f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"


def p_value(differences):
    """Of a mean difference of 0, by Student's t; 1 where all differences are 0."""
    from scipy.stats import ttest_1samp

    p = ttest_1samp(differences, 0.0).pvalue
    return 1.0 if math.isnan(p) else p


def row(what, value, runs, plain):
    """Means and standard deviations over seeds, and the paired difference with its interval."""
    differences = summary.paired(runs, plain, value)
    mean, half = summary.interval(differences)
    return [what, len(differences), f"{mean:+.4f} ± {half:.4f}", f"{p_value(differences):.2f}"]


def part(task, optimizer, old, new):
    (old_commit, old_runs), (new_commit, new_runs) = old, new
    old_runs = select(old_runs, task=task, trained_by=optimizer)
    new_runs = select(new_runs, task=task, trained_by=optimizer)
    plain = select(old_runs, hook="none")
    hooks = [hook for hook in summary.hooks_of(old_runs + new_runs) if hook != "none"]
    text = ""
    for hook in hooks:
        before, after = select(old_runs, hook=hook), select(new_runs, hook=hook)
        if not before or not after:
            continue
        body = []
        for name, value in (("validation", summary.check_loss), ("training", summary.end_loss)):
            losses = [spread([value(run) for run in runs]) for runs in (plain, before, after)]
            for what, runs, others in (
                (f"{new_commit} − {old_commit}", after, before),
                (f"{old_commit} − fp32", before, plain),
                (f"{new_commit} − fp32", after, plain),
            ):
                body.append([name, *losses, *row(what, value, runs, others)])
        head = ["loss", "fp32", old_commit, new_commit, "paired difference", "seeds", "mean, 95 %", "p"]
        start = after[0]
        text += f"\n## {task}, {optimizer}, {hook_text(hook)}\n\n{start.parameters:,} parameters, {start.ranks} ranks, "
        text += f"{start.steps} steps, torch {start.torch}.\n\n{table(head, body)}"
    return text


def main():
    out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    old, new = map(runs_of, sys.argv[3:5])
    with open(out / f"{name}.tsv", "w", encoding="utf-8", newline="") as f:
        writer = csv.writer(f, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        for run in old[1] + new[1]:
            writer.writerow([record.text_of(getattr(run, column)) for column in COLUMNS])
    text = "# Losses before and after the change of random words\n\n"
    text += "Made by `python3 -m training.streams` (bench/training/streams.py, which has the commands) from "
    text += f"[{name}.tsv]({name}.tsv).\n"
    text += f"At {old[0]} every value had a word of Philox4x32-10 of its own; at {new[0]} a word serves two values\n"
    text += "([numerics.md](../numerics.md#4-random-bits-of-stochastic-rounding)). Seeds are of weights and batches; the "
    text += "hook's random stream has\nits default seed. Means and standard deviations over seeds.\n"
    for task, optimizer in sorted({(run.task, run.trained_by) for run in old[1]}):
        text += part(task, optimizer, old, new)
    (out / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
