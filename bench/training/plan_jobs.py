"""Planned training jobs: predicted and measured step times. `python3 -m training.plan_jobs --help`, from bench/.

For each job over its link, with four ranks on this machine:

 1. profile    after some steps, measured by gradwire.torch.probe: costs of link and codecs, alone and beside a backward
               pass; when gradients are ready if nothing is sent; seconds of a step of the job as it is, DDP's own
               buckets with gcomp-t14
 2. plan       gradwire plan import, then solve with these inputs. What the model does not explain of the steps of 1
               (its time for their buckets is that of ddp-buckets in plan compare) is added to its time for the plan.
 3. runs       the plan, recorded and checked; DDP's buckets of every size with every single codec. Runs alternate,
               round after round, without those that were a quarter slower than the fastest in the first. Steps
               follow each other without a barrier; the time of a step is the mean of all ranks.

Four ranks share the cores: the probe says so in its costs (codecs delay the backward pass), and gradients are ready
when they are with four ranks at work. Nothing is adjusted after a planned step was measured.

Writes FOLDER/plan-jobs.json and plan-jobs.md; what the planner read and wrote stays in FOLDER/JOB.
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

from .grid import BYTES, RANKS, SECONDS, rows_of

# Steps that are not counted: DDP's buckets, maps, and, with codecs whose messages depend on it, the optimizer's state.
# With AdamW the GPT's messages shrink from 53 MB to 12 in the first ten steps and hardly afterwards.
WARM, WARM_PLAIN = 12, 4
CAPS = (1, 5, 25, 100)
PROFILED = "gcomp-t14"
SLOW = 1.25  # over the fastest


@dataclasses.dataclass(frozen=True)
class PlannedJob:
    task: str
    link: str
    codecs: tuple[str, ...] = ("fp16", "gcomp-t14")
    caps: tuple[float, ...] = CAPS
    plain_caps: tuple[float, ...] = (5, 25)
    steps: int = 10  # counted
    rounds: int = 2

    @property
    def name(self):
        return f"{self.task}-{self.link}"


FULL = (
    PlannedJob("digits", "100mbit", caps=(1, 5, 25), plain_caps=(1, 5, 25), steps=20, rounds=3),
    PlannedJob("gpt10m", "100mbit"),
    PlannedJob("gpt10m", "500mbit"),
    PlannedJob("resnet18", "100mbit", steps=6),
)
QUICK = (PlannedJob("digits", "100mbit", caps=(1, 25), plain_caps=(25,), steps=6, rounds=1),)


def gradwire_hook(codec):
    """The hook for DDP's own buckets that runs what the codec of that name in a plan does."""
    if codec.startswith("gcomp-t"):
        return f"gradwire:compress=always,small_len=1,tolerance_bits={codec[7:]}"
    return "none" if codec == "fp32" else codec


class Session:
    """One job in one network."""

    def __init__(self, net, job, folder, gradwire):
        self.net, self.job, self.folder, self.gradwire = net, job, folder / job.name, gradwire
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, name):
        return str(self.folder / name)

    def limit(self, steps):
        spec = LinkSpec.parse(self.job.link)
        wire = 8 * BYTES[self.job.task] / spec.goodput if spec.rate else 0.1
        return 180 + 6 * steps * (SECONDS[self.job.task] + wire)

    def run(self, name, hook, *more):
        """Rows of all ranks."""
        steps = (WARM if hook.startswith("gradwire") else WARM_PLAIN) + self.job.steps
        out = self.path(name)
        words = [sys.executable, "-B", "-m", "training.worker", "--out", out, "--task", self.job.task]
        words += ["--hook", hook, "--steps", steps, "--consecutive", *more]
        paths = [str(pathlib.Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
        extra = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        run_ranks(self.net, words, self.limit(steps), extra={**extra, "OPENBLAS_NUM_THREADS": "1"})
        rows = [rows_of(f"{out}.rank{rank}.jsonl") for rank in range(RANKS)]
        for rank in range(RANKS):
            os.unlink(f"{out}.rank{rank}.jsonl")
        return rows

    def seconds(self, rows):
        """Of each counted step, the last ones: the mean of the ranks', which begin and end it at slightly different
        times."""
        steps = zip(*([row["seconds"] for row in own if row["kind"] == "step"] for own in rows))
        return [statistics.mean(times) for times in steps][-self.job.steps :]

    def plan(self, *words):
        done = subprocess.run([self.gradwire, "plan", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RanksFailed(f"gradwire plan {words[0]}: {done.stderr.strip()}", [])
        return done.stdout

    def make_plan(self):
        """Profile, import, solve; the plan, the ms of a step of the profile, and the model's time for its buckets."""
        codecs = ",".join(("plain", *self.job.codecs))
        rows = self.run("profile", gradwire_hook(PROFILED), "--probe", str(self.folder), "--codecs", codecs)
        self.plan("import", self.path("profile.json"), "-o", self.path("model.csv"))
        inputs = [self.path("model.csv"), "--cluster", self.path("cluster.json")]
        inputs += ["--codecs", self.path("codecs.json"), "--time-limit-ms", "10000"]
        self.plan("solve", *inputs, "--methods", codecs, "-o", self.path("plan.json"))
        own = json.loads(self.plan("compare", *inputs, "--methods", PROFILED, "--method", PROFILED, "--json"))
        (modelled,) = [row["makespan_us"] / 1e3 for row in own["rows"] if row["plan"] == "ddp-buckets"]
        profiled = 1e3 * statistics.median(self.seconds(rows))
        return json.loads((self.folder / "plan.json").read_text()), profiled, modelled

    def alternatives(self):
        """(name, hook, bucket_cap_mb): every size with every codec; large models with fp32 and fp16 in some only."""
        for cap in self.job.caps:
            for codec in ("fp32", *self.job.codecs):
                if cap in self.job.plain_caps or codec == PROFILED:
                    yield f"{codec}, {cap:g} MB", gradwire_hook(codec), cap

    def measure(self):
        plan, profiled, modelled = self.make_plan()
        record = f"record={self.path('run.json')},record_steps=({WARM},{WARM + self.job.steps - 1})"
        planned = f"gradwire:plan={self.path('plan.json')}"
        runs = [("plan", planned, 0), *self.alternatives()]
        times = {name: [] for name, _, _ in runs}
        for turn in range(self.job.rounds):
            for name, hook, cap in runs if turn % 2 == 0 else runs[::-1]:
                rows = self.run("run", hook, "--bucket-mb", cap)
                times[name].append(1e3 * statistics.median(self.seconds(rows)))
                print(f"== {self.job.name}: {name}: {times[name][-1]:.1f} ms", flush=True)
            fastest = min(found[0] for found in times.values())
            runs = [run for run in runs if run[0] == "plan" or times[run[0]][0] < SLOW * fastest]
        self.run("recorded", f"{planned},{record}", "--bucket-mb", 0)
        check = json.loads(self.plan("check", self.path("plan.json"), self.path("run.json"), "--json"))
        (self.folder / "check.txt").write_text(self.plan("check", self.path("plan.json"), self.path("run.json")))
        return {
            "job": dataclasses.asdict(self.job),
            "buckets": [[group["method"], group["elems"]] for group in plan["groups"]],
            "proven": plan["proven"],
            "profiled_ms": profiled,
            "modelled_ms": modelled,
            "predicted_ms": plan["makespan_us"] / 1e3 + profiled - modelled,
            "done_error": check["prediction_error"],
            "rounds_ms": times,
            "measured_ms": statistics.median(times["plan"]),
            "others_ms": {name: statistics.median(times[name]) for name in times if name != "plan"},
        }


def page(results):
    lines = ["| job | plan | predicted | measured | prediction | fastest other | plan is |", "|" + "---|" * 7]
    for found in results:
        name, best = min(found["others_ms"].items(), key=lambda item: item[1])
        counts = {}
        for method, _ in found["buckets"]:
            counts[method] = counts.get(method, 0) + 1
        what = ", ".join(f"{count} {method}" for method, count in counts.items())
        error = 100 * (found["predicted_ms"] / found["measured_ms"] - 1)
        job = f"{found['job']['task']}, {found['job']['link']}"
        row = [job, what, f"{found['predicted_ms']:.1f} ms", f"{found['measured_ms']:.1f} ms", f"{error:+.1f} %"]
        row += [f"{name}: {best:.1f} ms", f"{best / found['measured_ms']:.3f}x"]
        lines.append("| " + " | ".join(row) + " |")
    for found in results:
        lines += ["", f"{found['job']['task']}, {found['job']['link']}: step time over that of the plan", ""]
        caps = [f"{cap:g} MB" for cap in found["job"]["caps"]]
        lines += ["| | " + " | ".join(caps) + " |", "|" + "---|" * (len(caps) + 1)]
        for codec in ("fp32", *found["job"]["codecs"]):
            times = [found["others_ms"].get(f"{codec}, {cap}") for cap in caps]
            cells = ["-" if time is None else f"{time / found['measured_ms']:.3f}" for time in times]
            lines.append(f"| {codec} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gradwire", required=True, help="the command")
    parser.add_argument("--quick", action="store_true", help="one small job, few steps")
    parser.add_argument("--only", default="", help="a regular expression: jobs whose name has a match")
    parser.add_argument("--rounds", type=int, help="default: the job's, 2 or 3")
    chosen = parser.parse_args()
    why = permission.refusal()
    if why:
        print(f"SKIP limited links: {why}. Nothing is measured.")
        return 77
    permission.enter()
    folder, results = chosen.folder.resolve(), []
    for job in QUICK if chosen.quick else FULL:
        if re.search(chosen.only, job.name):
            job = dataclasses.replace(job, rounds=chosen.rounds or job.rounds)
            with Network(RANKS, LinkSpec.parse(job.link)) as net:
                results.append(Session(net, job, folder, chosen.gradwire).measure())
            (folder / "plan-jobs.json").write_text(json.dumps(results, indent=1) + "\n")
            (folder / "plan-jobs.md").write_text(page(results))
    print(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
