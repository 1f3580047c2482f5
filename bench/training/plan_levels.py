"""Plans of option trees in training: predicted and measured. `python3 -m training.plan_levels --help`, from bench/.

Two "machines" of two ranks: namespaces with a limited link each, whose two ranks talk over its loopback. For each job:

 1. profile    after some steps gradwire.torch.probe_levels measures links and codecs, and backward passes are recorded
               that send nothing
 2. plan       gradwire plan import, then solve --kind tree, with one codec: with --fuse ("plan"), and without it, each
               gradient by itself ("alone")
 3. runs       the plans; plain DDP (fp32); the flat hook of the same codec over DDP's buckets. They alternate, round
               after round; the time of a step is the mean of all ranks, that of a round the median of its steps
 4. check      recordings of the plans' runs: gradwire plan check

Writes FOLDER/plan-levels.json and plan-levels.md; what the planner read and wrote stays in FOLDER/JOB.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

from links import permission
from links.link_spec import LinkSpec
from links.network import Network
from links.ranks import RanksFailed, run_ranks
from links.shared_namespaces import Machines

from .grid import SECONDS, rows_of

NODES, GPUS = 2, 2
WARM = 12  # steps that are not counted


@dataclasses.dataclass(frozen=True)
class Job:
    task: str
    link: str
    codec: str = "gcomp-t14"
    steps: int = 10  # counted
    rounds: int = 3

    @property
    def name(self):
        return f"{self.task}-{self.link}-{self.codec}"

    @property
    def flat(self):
        """The hook with the plan's codec for DDP's own buckets."""
        if self.codec.startswith("gcomp-t"):
            return f"gradwire:compress=always,small_len=1,tolerance_bits={self.codec[7:]}"
        return self.codec


JOBS = (
    Job("digits", "20mbit"),
    Job("digits", "100mbit"),
    Job("digits", "100mbit", "fp16"),
    Job("gpt1m", "20mbit"),
    Job("gpt1m", "100mbit"),
)


class Session:
    """One job on its machines."""

    def __init__(self, net, job, folder, gradwire):
        self.net, self.job, self.folder, self.gradwire = net, job, folder / job.name, gradwire
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, name):
        return str(self.folder / name)

    def run(self, name, hook, *more):
        """Rows of all ranks."""
        steps, out = WARM + self.job.steps, self.path(name)
        words = [sys.executable, "-B", "-m", "training.worker", "--out", out, "--task", self.job.task]
        words += ["--hook", hook, "--steps", steps, "--consecutive", *more]
        paths = [str(pathlib.Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
        common = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        limit = 120 + 6 * steps * (SECONDS[self.job.task] + 0.5)
        run_ranks(self.net, words, limit, extra=lambda rank: {**common, **self.net.local(rank)})
        rows = [rows_of(f"{out}.rank{rank}.jsonl") for rank in range(self.net.ranks)]
        for rank in range(self.net.ranks):
            os.unlink(f"{out}.rank{rank}.jsonl")
        return rows

    def milliseconds(self, rows):
        """Of a counted step."""
        steps = zip(*([row["seconds"] for row in own if row["kind"] == "step"] for own in rows))
        return 1e3 * statistics.median([statistics.mean(times) for times in steps][-self.job.steps :])

    def plan(self, *words):
        done = subprocess.run([self.gradwire, "plan", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RanksFailed(f"gradwire plan {words[0]}: {done.stderr.strip()}", [])
        return done.stdout

    def make_plan(self):
        shape = f"{NODES}x{GPUS}"
        profiled = "gradwire:compress=always,small_len=1,tolerance_bits=14"
        self.run("profile", profiled, "--probe", str(self.folder), "--codecs", self.job.codec, "--machines", shape)
        self.plan("import", self.path("profile.json"), "-o", self.path("model.csv"))
        inputs = ["--cluster", self.path("cluster.json"), "--codecs", self.path("codecs.json"), "--cpu"]
        inputs += ["--kind", "tree", "--methods", self.job.codec, "--time-limit-ms", "10000"]
        for name, more in (("plan", ["--fuse"]), ("alone", [])):
            self.plan("solve", self.path("model.csv"), *inputs, *more, "-o", self.path(f"{name}.json"))
        return json.loads((self.folder / "plan.json").read_text())

    def check(self, name, turn):
        """Prediction and recording of a run of a plan."""
        files = self.path(f"{name}.json"), self.path(f"run-{name}{turn}.json")
        (self.folder / f"check-{name}{turn}.txt").write_text(self.plan("check", *files))
        return json.loads(self.plan("check", *files, "--json"))

    def measure(self):
        plan = self.make_plan()
        steps = f"plan_device=cpu,record_steps=({WARM},{WARM + self.job.steps - 1})"
        plans = {name: f"gradwire:plan={self.path(f'{name}.json')},{steps}" for name in ("plan", "alone")}
        runs = {**plans, "fp32": "none", f"flat {self.job.codec}": self.job.flat}
        times, checks = {name: [] for name in runs}, {name: [] for name in plans}
        for turn in range(self.job.rounds):
            for name in list(runs) if turn % 2 == 0 else list(runs)[::-1]:
                more = ("--bucket-mb", 0) if name in plans else ()
                hook = f"{runs[name]},record={self.path(f'run-{name}{turn}.json')}" if name in plans else runs[name]
                times[name].append(self.milliseconds(self.run("run", hook, *more)))
                print(f"== {self.job.name}: {name}: {times[name][-1]:.1f} ms", flush=True)
                if name in plans:
                    checks[name].append(self.check(name, turn))
        options = {}
        for group in plan["groups"]:
            count, tensors, values = options.get(group["option"], (0, 0, 0))
            options[group["option"]] = count + 1, tensors + len(group["names"]), values + group["elems"]
        return {
            "job": dataclasses.asdict(self.job),
            "options": options,
            "proven": plan["proven"],
            "predicted_ms": {name: found[0]["predicted_us"] / 1e3 for name, found in checks.items()},
            "recorded_ms": {name: [one["recorded_us"] / 1e3 for one in found] for name, found in checks.items()},
            "rounds_ms": times,
            "median_ms": {name: statistics.median(found) for name, found in times.items()},
        }


def page(results):
    lines = ["| job | plan | all buckets done: predicted | recorded | prediction | step |", "|" + "---|" * 6]
    for found in results:
        job, times = found["job"], found["median_ms"]
        for name, step in times.items():
            row = [f"{job['task']}, {job['link']}, {job['codec']}", name]
            if name in found["recorded_ms"]:
                predicted, recorded = found["predicted_ms"][name], statistics.median(found["recorded_ms"][name])
                error = f"{100 * (predicted / recorded - 1):+.1f} %"
                row += [f"{predicted:.1f} ms", f"{recorded:.1f} ms", error]
            else:
                row += ["", "", ""]
            lines.append("| " + " | ".join([*row, f"{step:.1f} ms"]) + " |")
    for found in results:
        job = found["job"]
        lines += [
            "",
            f"{job['task']}, {job['link']}, {job['codec']}:",
            "",
            "| messages | tensors | values | option |",
            "|---|---|---|---|",
        ]
        for option, (count, tensors, values) in sorted(found["options"].items(), key=lambda item: -item[1][2]):
            lines.append(f"| {count} | {tensors} | {values} | `{option}` |")
        rounds = ", ".join(f"{name} {' '.join(f'{one:.0f}' for one in ms)}" for name, ms in found["rounds_ms"].items())
        done = "; ".join(f"{name} {' '.join(f'{one:.0f}' for one in ms)}" for name, ms in found["recorded_ms"].items())
        lines += ["", f"Rounds in ms: {rounds}; all buckets done: {done}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gradwire", required=True, help="the command")
    parser.add_argument("--only", default="", help="a regular expression: jobs whose name has a match")
    parser.add_argument("--rounds", type=int, help="default: the job's, 3")
    chosen = parser.parse_args()
    why = permission.refusal()
    if why:
        print(f"SKIP limited links: {why}. Nothing is measured.")
        return 77
    permission.enter()
    folder, results = chosen.folder.resolve(), []
    folder.mkdir(parents=True, exist_ok=True)
    for job in JOBS:
        if re.search(chosen.only, job.name):
            job = dataclasses.replace(job, rounds=chosen.rounds or job.rounds)
            with Network(NODES, LinkSpec.parse(job.link)) as net:
                results.append(Session(Machines(net, GPUS), job, folder, chosen.gradwire).measure())
            (folder / "plan-levels.json").write_text(json.dumps(results, indent=1) + "\n")
            (folder / "plan-levels.md").write_text(page(results))
    print(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
