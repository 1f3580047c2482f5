"""The runs behind docs/results/thc-training.md: `python3 -m training.thc_grid --help`, from bench/.

One run after the other, on one core; each leaves a line of the table. A run whose line is there is not repeated: delete
lines to repeat runs.
"""

import argparse
import csv
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

from .grid import blas_kernels

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "thc-training"
RESULTS = ("train_loss", "valid_loss", "valid_worst", "accuracy", "distance", "nmse")
SEEDS = {"digits": 3, "gpt1m": 2}
STEPS = {"digits": 96, "gpt1m": 144}
RATE = {"digits": 0.05, "gpt1m": 0.002}  # of the first step
EPOCH = {"digits": 24, "gpt1m": 36}  # digits: 1437 images, 60 a step; the text of the GPT has no epochs
BATCH = {"digits": {10: 60}, "gpt1m": {10: 20}}  # of ten workers
BATCH_ANY = 64  # of any other number, so that they share their batches
COUNTS = (4, 8, 16, 32, 64)  # of workers


@dataclasses.dataclass(frozen=True)
class Job:
    task: str
    seed: int
    variant: str = "thc"
    bits: int = 4
    workers: int = 10
    loss: float = 0.0
    synchronise: bool = False
    stragglers: int = 0
    dropped: bool = False

    @property
    def batch(self):
        return BATCH[self.task].get(self.workers, BATCH_ANY)

    @property
    def name(self):
        words = [self.task, self.variant] if self.variant == "fp32" else [self.task, self.variant, f"{self.bits}bits"]
        words += [f"{self.workers}workers"]
        words += [f"loss{self.loss:g}"] if self.loss else []
        words += [f"stragglers{self.stragglers}"] if self.stragglers else []
        words += ["synchronised"] if self.synchronise else []
        words += ["dropped"] if self.dropped else []
        return "-".join([*words, str(self.seed)])

    def words(self):
        words = ["--task", self.task, "--seed", self.seed, "--variant", self.variant, "--bits", self.bits]
        words += ["--workers", self.workers, "--batch", self.batch, "--loss", self.loss]
        words += ["--steps", STEPS[self.task], "--epoch", EPOCH[self.task], "--lr", RATE[self.task]]
        words += ["--stragglers", self.stragglers]
        words += ["--synchronise"] if self.synchronise else []
        words += ["--dropped"] if self.dropped else []
        return [str(word) for word in words]


COLUMNS = ("name", *(field.name for field in dataclasses.fields(Job)), "batch", "steps", *RESULTS, "torch", "commit")


def plain_of(job):
    """The run that a run is compared with: fp32, nothing lost, nobody late."""
    workers = 10 if job.workers in BATCH[job.task] else 4
    return Job(job.task, job.seed, "fp32", 4, workers)


def loss_jobs(base):
    """Losses, with and without synchronisation; fp32 with the higher one."""
    rows = [base]
    for variant, loss in (("thc", 0.001), ("thc", 0.01), ("fp32", 0.01)):
        rows += [dataclasses.replace(base, variant=variant, loss=loss, synchronise=on) for on in (False, True)]
    return rows


def straggler_jobs(base):
    rows = [dataclasses.replace(base, stragglers=count) for count in range(4)]
    most = rows[-1]
    rows += [dataclasses.replace(most, dropped=True)]
    return [*rows, *(dataclasses.replace(most, variant="fp32", dropped=dropped) for dropped in (False, True))]


def worker_jobs(base):
    return [dataclasses.replace(base, workers=count) for count in COUNTS]


def ablation_jobs(base):
    names = ("thc", "uniform", "no-feedback", "plain-uniform")
    rows = [dataclasses.replace(base, variant=name, bits=bits) for bits in (4, 2) for name in names]
    return [*rows, dataclasses.replace(base, variant="plain")]


TABLES = {"loss": loss_jobs, "stragglers": straggler_jobs, "workers": worker_jobs, "ablation": ablation_jobs}


def jobs_of(table, task, seed):
    """The rows of a table, those to compare with first."""
    rows = TABLES[table](Job(task, seed))
    return list(dict.fromkeys([*map(plain_of, rows), *rows]))


def all_jobs(tables, tasks):
    """In the order in which they run: first seeds first, what takes long or is no part of the paper's tables last."""
    jobs = []
    for seed in range(1, max(SEEDS.values()) + 1):
        for task in tasks:
            for table in tables if seed <= SEEDS[task] else ():
                jobs += jobs_of(table, task, seed)
    return sorted(dict.fromkeys(jobs), key=lambda job: (job.bits != 4, job.workers != 10))


def load(path):
    """Rows of the table by the names of their runs."""
    if not path.exists():
        return {}
    with open(path, encoding="utf-8", newline="") as f:
        return {row["name"]: row for row in csv.DictReader(f, delimiter="\t")}


def save(path, rows):
    fresh = path.with_suffix(".new")
    with open(fresh, "w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in sorted(rows))
    fresh.replace(path)


def commit():
    return subprocess.check_output(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], text=True).strip()


def run_job(job):
    """The line of one run."""
    import torch

    from . import task_list, thc_workers

    torch.set_num_threads(1)
    options = thc_workers.arguments(job.words())
    found = thc_workers.Simulation(task_list.make_task(job.task, job.seed), options).run()
    made = {**dataclasses.asdict(job), "name": job.name, "batch": job.batch, "steps": STEPS[job.task]}
    made |= {key: f"{found[key]:.6g}" for key in RESULTS}
    return {**made, "torch": torch.__version__, "commit": commit()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help=f"the folder of {NAME}.tsv")
    parser.add_argument("--table", choices=TABLES, action="append", help="default: all")
    parser.add_argument("--task", choices=SEEDS, action="append", help="default: all")
    parser.add_argument("--only", default="", help="a regular expression: runs whose name has a match")
    parser.add_argument("--list", action="store_true", help="print the names, run nothing")
    chosen = parser.parse_args()
    jobs = all_jobs(chosen.table or list(TABLES), chosen.task or list(SEEDS))
    jobs = [job for job in jobs if re.search(chosen.only, job.name)]
    if chosen.list:
        print("\n".join(job.name for job in jobs))
        return
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **blas_kernels()})  # before torch is loaded
    path = chosen.out / f"{NAME}.tsv"
    there = load(path)
    old = [row["name"] for row in there.values() if int(row["steps"]) != STEPS[row["task"]]]
    if old:
        sys.exit(f"{path}: {old[0]} and {len(old) - 1} more have another number of steps: delete these lines first")
    left = [job for job in jobs if job.name not in there]
    print(f"== {len(left)} of {len(jobs)} runs", flush=True)
    for number, job in enumerate(left, 1):
        begin = time.monotonic()
        row = run_job(job)
        save(path, {**load(path), job.name: row})
        print(f"== {number}, {time.monotonic() - begin:.0f} s: {job.name} {row['valid_loss']}", flush=True)


if __name__ == "__main__":
    main()
