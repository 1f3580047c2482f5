"""Losses of the same runs with two versions of the library whose random words differ: `python3 -m training.streams
OUT NAME COMMIT=RUNS COMMIT=RUNS`, from bench/. Writes OUT/NAME.tsv and OUT/NAME.md.

RUNS are folders of grid.py. The first has the older library's runs and fp32's, the second the newer library's, by the
same bench and the same torch. docs/results/training-streams.md was made of

    export PYTHONPATH=TREE/python GRADWIRE_LIBRARY_DIR=TREE/build/python-torch/package/gradwire/lib
    python3 -m training.grid RUNS --seeds 12 --only \\
        'curve-(digits-sgd|gpt1m-adamw)-(none|gradwire_compress_always_tolerance_bits_8)-unlimited-'

of either commit, with six seeds of gpt1m.
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

ABOUT = """# Losses before and after the change of random words

Made by `python3 -m training.streams` (bench/training/streams.py, which has the commands) from [{name}.tsv]({name}.tsv).
At {old} every value had a word of Philox4x32-10 of its own. At {new} two values share a word of eight rounds
([numerics.md](../numerics.md#4-random-bits-of-stochastic-rounding)). A seed is that of weights and batches; random
words have the same key throughout. The commits differ in other things, too. Four ranks; means and standard deviations
over seeds, mean differences between runs of the same seed with intervals of 95 %. *p*: of a difference of this size or
more if there is none (Student's t).

"""


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


def difference(runs, others, value):
    """Mean difference between runs of the same seed, with its interval."""
    mean, half = summary.interval(summary.paired(runs, others, value))
    return f"{mean:+.4f} ± {half:.4f}"


def rows_of(old, new, task, optimizer):
    old, new = select(old, task=task, trained_by=optimizer), select(new, task=task, trained_by=optimizer)
    plain = select(old, hook="none")
    for hook in summary.hooks_of(new):
        before, after = select(old, hook=hook), select(new, hook=hook)
        for name, value in (("validation", summary.check_loss), ("training", summary.end_loss)):
            changes = summary.paired(after, before, value)
            yield [
                f"{task}, {optimizer}",
                hook_text(hook),
                name,
                len(changes),
                *(spread([value(run) for run in runs]) for runs in (plain, before, after)),
                difference(after, before, value),
                f"{p_value(changes):.2f}",
                difference(before, plain, value),
                difference(after, plain, value),
            ]


def main():
    out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    old, new = map(runs_of, sys.argv[3:5])
    with open(out / f"{name}.tsv", "w", encoding="utf-8", newline="") as f:
        writer = csv.writer(f, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        for run in old[1] + new[1]:
            writer.writerow([record.text_of(getattr(run, column)) for column in COLUMNS])
    text = ABOUT.format(name=name, old=old[0], new=new[0])
    head = ["task", "hook", "loss", "seeds", "fp32", old[0], new[0], f"{new[0]} − {old[0]}", "p"]
    head += [f"{old[0]} − fp32", f"{new[0]} − fp32"]
    body = []
    for task, optimizer in sorted({(run.task, run.trained_by) for run in new[1]}):
        body += rows_of(old[1], new[1], task, optimizer)
    text += table(head, body)
    (out / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
