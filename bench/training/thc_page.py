"""docs/results/thc-training.md from thc-training.tsv beside it, from bench/:

python3 -m training.thc_page            says whether the page is that of the table
python3 -m training.thc_page --write    writes it
"""

import dataclasses
import pathlib
import statistics
import sys

from result_pages import RESULTS, show, table, write_or_compare

from .thc_grid import COUNTS, EPOCH, NAME, RATE, SEEDS, STEPS, TABLES, Job, all_jobs, jobs_of, load, plain_of

TASKS = {
    "digits": "Digits: a convolutional network of 1.1 million parameters, SGD with momentum",
    "gpt1m": "GPT of 1 million parameters, AdamW",
}
VARIANTS = {
    "thc": "all of THC",
    "uniform": "uniform table",
    "no-feedback": "no error feedback",
    "plain": "no rotation, no error feedback",
    "plain-uniform": "no rotation, no error feedback, uniform table",
}
HEAD = ("seeds", "validation loss", "difference to fp32", "training loss", "accuracy, %", "error of means")
NOT_HERE = "not available here"

ABOUT = """# THC in training: lost packets, late workers, many workers, and its parts

Made by `bench/training/results_thc_training` from [{name}.tsv]({name}.tsv), which has {count} of the {all_count}
runs of `bench/training/results_thc_training --list`. It follows figures 10, 11, 14 and 16 of the paper (Li et al.,
"THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic Compression", NSDI 2024, arXiv 2302.08545).
**The paper's values are not available here**: only its abstract could be had when this page was made. It says that
THC is "scalable and tolerant for acceptable packet-loss rates", without numbers; hence the last column of each table.

All workers are in one process (`bench/training/thc_workers.py`). Each has the gradient of its own part of the
batch, an error memory and a rank. The library makes norms, indices, lanes and means; the maximum of the norms and
the sum of the lanes, which an all-reduce or a server makes in a job, are NumPy's. Losses of packets and late
workers depend on seed and step alone: all rows of a seed have the same. The learning rate falls linearly to zero.
Four real ranks train both tasks with THC in [training.md](training.md), at a constant rate.

{tasks}
- *difference to fp32*: validation loss less that of fp32 with the same batches, nothing lost and nobody late. ± is
  the standard deviation over seeds, of the differences where they are paired by seed. One seed has none: take
  differences no larger than that of "fp32, 3 late, dropped" for noise.
- *accuracy*: share of right classes, or of right next characters.
- *error of means*: squared distance between the decoded mean and the mean of all workers' gradients, over the
  squared length of the latter; the mean over all steps. It contains what error feedback adds from earlier steps,
  and what was not in the sums.
- Where replicas differ, losses and accuracy are means over the replicas.

What differs from the paper:

- The models and data are small, and training is short: what would take many epochs to show is not seen here.
- Tables are exact optima, each with the share of clamped values that the library recommends
  ([numerics-thc.md](../numerics-thc.md#10-tables)). Rotation and norm are those of a block of 1024 values.
- A worker that was left out of a sum, and learns it from the answer, puts its contribution back into its error
  memory.
- The text of the GPT has no epochs: {gpt_epoch} steps are called one.
- Nothing on this page is a time.

What is seen, with the few seeds that there are:

- Lost packets without synchronisation make replicas differ, and the worst replica is worse than the mean of all.
  With 1 % the digits lose accuracy. Synchronised, the loss is that of fp32 within noise. fp32 has the same losses
  with the same packets lost: they come from the packets, not from the codec.
- Late workers that are dropped cost the digits nothing. Returned contributions cost the digits more with each late
  worker, in fp32 too: what returns is a gradient at older parameters, and momentum does the rest. So returning is for
  packets that are lost now and then, not for workers that are always late.
- From 4 to 64 workers the digits lose nothing. On the GPT one seed has THC .11 to .18 behind fp32 with 4 to 64
  workers, another one .08 before it with 4 and .01 behind with 8; fp32 itself differs by .12 between the two. A cost
  is not told from noise by so few seeds. The error of means grows with their number, since the parts of the batch
  become smaller: at 64 workers the part of each is one image or sequence, and all parts are scaled by the largest
  norm.
- With 4 bits no part of THC shows in the losses. In the error of means a uniform table doubles it. Error feedback does
  not lower this error: it adds what earlier steps lost.
- The GPT has two seeds, which differ by .05 in fp32 with ten workers. No row with faults is further than .07 from THC
  with nothing lost: they rule out a large effect and show no small one.
- Times over limited links are in [training.md](training.md): over 100 Mb/s a step of the digits with THC is 3.3 times
  as fast as fp32, over 500 Mb/s 1.7 times. The abstract has 1.28 to 1.33 times against the best other systems, with a
  software server and to the same accuracy, of larger models.
"""

LOSS = """
## Lost packets

```
bench/training/results_thc_training loss
```

Ten workers. A packet is a block of 1024 values. Each is lost with the same probability on the way up, so that it is
missing in the sum, and on the way down, so that its worker takes zeros for it. From then on replicas differ. Norms,
one word a block, are not lost. *Synchronised*: at the end of every epoch all workers get the mean of their
parameters; the moments of their optimizers stay. *Worst replica*: the highest validation loss of a worker.
*Distance of replicas*: how far a worker's parameters are from the mean at most, over the length of the mean, at the
end of the last epoch and before synchronisation.
"""

STRAGGLERS = """
## Late workers

```
bench/training/results_thc_training stragglers
```

Ten workers. One, two or three of them, others in every step, are not in the sum. *Returns*: they put their
contribution back into the error memory, and sums are divided by ten. *Dropped*: it is lost, and means are over the
contributors. (Contributions that return *and* means over the contributors would count every gradient 10/7 times
with three late workers.)
"""

MANY = """
## Number of workers

```
bench/training/results_thc_training workers
```

The same batches, cut into as many parts as there are workers. fp32 is that of four workers; with more it differs by
rounding only.
"""

ABLATION = """
## Parts of THC

```
bench/training/results_thc_training ablation
```

Ten workers, nothing lost, nobody late. In a uniform table the indices are the grid points. Blocks without rotation
have the range of their values over all workers, and the library has no error feedback for them; with a uniform
table they are the paper's Algorithms 1 and 2.
"""


def spread(values, form):
    text = format(statistics.fmean(values), form)
    return f"{text} ± {format(statistics.stdev(values), form.lstrip('+'))}" if len(values) > 1 else text


def numbers(rows, key):
    return [float(row[key]) for row in rows]


def error_text(values):
    """The mean of errors; rounding of fp32 counts as none."""
    mean = statistics.fmean(values)
    return show(mean) if mean > 1e-9 else "0"


def cells(rows, plains):
    """Of the columns of HEAD. rows: a run's over seeds; plains: those that it is compared with, by seed."""
    pairs = [(row, plains[row["seed"]]) for row in rows if row["seed"] in plains]
    changes = [float(row["valid_loss"]) - float(plain["valid_loss"]) for row, plain in pairs]
    return [
        len(rows),
        spread(numbers(rows, "valid_loss"), ".4f"),
        spread(changes, "+.4f") if changes else "-",
        spread(numbers(rows, "train_loss"), ".4f"),
        spread([100 * share for share in numbers(rows, "accuracy")], ".1f"),
        error_text(numbers(rows, "nmse")),
    ]


def replica_cells(rows):
    return [f"{statistics.fmean(numbers(rows, 'valid_worst')):.4f}", error_text(numbers(rows, "distance"))]


def over_seeds(known, job):
    """Lines of a job, one a seed."""
    names = [dataclasses.replace(job, seed=seed).name for seed in range(1, SEEDS[job.task] + 1)]
    return [known[name] for name in names if name in known]


def part(known, jobs, first, text_of, more=(), more_of=lambda rows: []):
    """A table of the jobs that were run, fp32 first. first: head of the first column; more: of further ones."""
    body = []
    for job in jobs:
        rows = over_seeds(known, job)
        if rows:
            plains = {row["seed"]: row for row in over_seeds(known, plain_of(job))}
            body.append([text_of(job), *cells(rows, plains), *more_of(rows), NOT_HERE])
    return table([first, *HEAD, *more, "paper"], body) if body else "No run is there yet.\n"


def loss_text(job):
    if not job.loss:
        return f"{job.variant}, nothing lost"
    return f"{job.variant}, {100 * job.loss:g} %, {'synchronised' if job.synchronise else 'not synchronised'}"


def straggler_text(job):
    if not job.stragglers:
        return f"{job.variant}, nobody late"
    return f"{job.variant}, {job.stragglers} late, {'dropped' if job.dropped else 'returns'}"


def worker_text(job):
    return "fp32" if job.variant == "fp32" else str(job.workers)


def variant_text(job):
    return "fp32" if job.variant == "fp32" else f"{job.bits} bits: {VARIANTS[job.variant]}"


SECTIONS = (
    ("loss", LOSS, "packets", loss_text, ("worst replica", "distance of replicas"), replica_cells),
    ("stragglers", STRAGGLERS, "workers", straggler_text, (), lambda rows: []),
    ("workers", MANY, "workers", worker_text, (), lambda rows: []),
    ("ablation", ABLATION, "parts", variant_text, (), lambda rows: []),
)


def task_row(task):
    batches = sorted({Job(task, 1, workers=count).batch for count in (10, *COUNTS)})
    return [task, TASKS[task], RATE[task], STEPS[task], f"{EPOCH[task]} steps", " or ".join(map(str, batches))]


def page(known):
    jobs = all_jobs(list(TABLES), list(TASKS))
    there = sum(job.name in known for job in jobs)
    head = ["task", "what", "rate", "steps", "an epoch", "images or sequences a step"]
    about = table(head, [task_row(task) for task in TASKS])
    text = ABOUT.format(name=NAME, count=there, all_count=len(jobs), tasks=about, gpt_epoch=EPOCH["gpt1m"])
    for name, words, first, text_of, more, more_of in SECTIONS:
        text += words
        for task in TASKS:
            text += f"\n### {task}\n\n"
            text += part(known, jobs_of(name, task, 1), first, text_of, more, more_of)
    return text


def main():
    folder = pathlib.Path(RESULTS)
    pages = {folder / f"{NAME}.md": page(load(folder / f"{NAME}.tsv"))}
    return write_or_compare(pages, sys.argv[1:] == ["--write"], "python3 -m training.thc_page")


if __name__ == "__main__":
    sys.exit(main())
