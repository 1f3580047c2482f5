"""The runs behind docs/results/training.md, over links made for them. `python3 -m training.grid --help`, from bench/.

Every run leaves FOLDER/NAME.jsonl, the four ranks merged; a run whose file is there, or whose line is in the file of
records (record.py), is not repeated. Runs of *times* alternate between hooks, round after round, so that what disturbs
the machine disturbs all of them.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import sys
import time

from links import permission, probe
from links.emulated import Loopback
from links.link_spec import LinkSpec
from links.network import Network
from links.ranks import RanksFailed, run_ranks

from . import record, thc_serving

RANKS = 4
SEEDS = 3  # of each curve of the page
GRADWIRE = "gradwire:compress=always,tolerance_bits="
NOISE = ",noise=0.125,tolerance_bits=None"
SMALL_BUCKETS = "@4"  # what docs/pytorch.md recommends: transfer starts early in the backward pass
SLOW = ("100mbit", "500mbit")
LINKS = (*SLOW, "1gbit", "2gbit", "10gbit", "100mbit+20ms", "1gbit+20ms", "unlimited")
SECONDS = {
    "digits": 0.06,
    "gpt1m": 0.2,
    "gpt10m": 0.8,
    "resnet18": 1.1,
}  # of a real step on two cores, for the estimate
BYTES = {"digits": 6.8e6, "gpt1m": 6.2e6, "gpt10m": 64.5e6, "resnet18": 67e6}  # that a rank sends in fp32


@dataclasses.dataclass(frozen=True)
class Job:
    kind: str  # curve or time
    task: str
    hook: str
    link: str
    seed: int  # of a curve; the round of a time
    steps: int
    check: int = 0
    compute: str = "real"
    optimizer: str | None = None
    emulated: bool = False

    @property
    def name(self):
        text = f"{self.kind}-{self.task}-{self.optimizer or 'own'}-{self.hook}-{self.link}-{self.compute}-{self.seed}"
        text += record.EMULATED if self.emulated else ""
        return "".join(c if c.isalnum() or c in "-+." else "_" for c in text)

    def words(self, out):
        words = [sys.executable, "-B", "-m", "training.worker", "--out", out, "--task", self.task, "--hook", self.hook]
        words += ["--seed", self.seed if self.kind == "curve" else 1, "--steps", self.steps, "--check", self.check]
        words += ["--compute", self.compute]
        return words + (["--optimizer", self.optimizer] if self.optimizer else [])

    def estimate(self):
        """Seconds on an idle machine with two cores; hooks that compress are taken to cost what fp32 costs."""
        spec = LinkSpec.parse(self.link)
        wire = 8 * BYTES[self.task] / spec.goodput if spec.rate else 0.1
        share = 1.0 if self.hook == "none" else 0.5
        return 10 + self.steps * ((SECONDS[self.task] if self.compute == "real" else 0.2) + share * wire)


CLASSIC = [
    f"classic:{text}"
    for text in (
        "fp16",
        "topk,ratio=0.01",
        "dgc,ratio=0.01",
        "randk,ratio=0.01,error_feedback=True,unbiased=False",
        "signsgd,vote=True",
        "efsignsgd",
        "onebit",
        "qsgd",
        "terngrad",
    )
]

#: THC, and what its paper times it against; GCOMP with levels sent with the values and in a ring, as its paper has it.
PAPER = ["thc:bits=4", *(f"classic:{text}" for text in ("dgc,ratio=0.01", "topk,ratio=0.01", "terngrad"))]
PAPER += ["gradwire:compress=always,quantum_mode=explicit", f"{GRADWIRE}12,algorithm=ring"]
SERVER = ["thc_server:bits=4"]  # THC by a parameter server with a link of its own


def curve_hooks(task, optimizer):
    """Everything on the small tasks; on the large ones what claims are made of."""
    noise = ["gradwire:compress=always" + NOISE] if optimizer == "adamw" else []
    if task in ("gpt10m", "resnet18"):
        return ["none", "bf16", "int8", GRADWIRE + "14", GRADWIRE + "12", *noise]
    hooks = ["none", "bf16", "powersgd:4", "int8", "int4", *(GRADWIRE + t for t in ("14", "12", "10", "8"))]
    classic = CLASSIC if (task, optimizer) == ("digits", "sgd") else []
    quantum_mode = [f"gradwire:compress=always,quantum_mode={name}" for name in ("carried", "explicit")]
    return [*hooks, *quantum_mode, "thc:bits=4", *classic, *noise]


def full_jobs(seeds=SEEDS):
    jobs = []
    for task, optimizer, steps in [
        ("digits", "sgd", 300),
        ("digits", "adamw", 300),
        ("gpt1m", "adamw", 200),
        ("gpt10m", "adamw", 200),
        ("resnet18", "sgd", 150),
        ("resnet18", "adamw", 150),
    ]:
        for seed in range(1, seeds + 1):
            for hook in curve_hooks(task, optimizer):
                jobs.append(Job("curve", task, hook, "unlimited", seed, steps, steps // 10, optimizer=optimizer))
    return jobs + time_jobs(("gpt10m", "digits"), LINKS, 3, 9, True) + time_jobs(("resnet18",), SLOW, 3, 5, False)


def time_jobs(tasks, links, rounds, counted, automatic):
    """Runs of so many counted steps."""
    jobs = []
    for task in tasks:
        noise = [] if task in ("digits", "resnet18") else ["gradwire:compress=always" + NOISE]
        hooks = ["none", "bf16", "fp16", "powersgd:4", "int8", "int4", GRADWIRE + "14", GRADWIRE + "12", *noise]
        hooks += ["gradwire"] if automatic else []
        hooks += PAPER if task == "digits" else []  # its SGD has the curves of all of them
        if task != "digits":  # one tensor has nearly all of its parameters
            hooks += [hook + SMALL_BUCKETS for hook in ("none", "bf16", GRADWIRE + "14", GRADWIRE + "12")]
        for link in links:
            here = hooks + (SERVER if task == "digits" and link in SLOW else [])
            for turn in range(rounds):
                for hook in here if turn % 2 == 0 else here[::-1]:
                    jobs.append(Job("time", task, hook, link, turn + 1, counted + record.warmup(hook, "real")))
            if task != "resnet18":
                for hook in here:
                    steps = counted + record.warmup(hook, "replay")
                    jobs.append(Job("time", task, hook, link, 1, steps, compute="replay"))
    return jobs


def quick_jobs():
    hooks = ["none", "bf16", "int8", GRADWIRE + "12"]
    jobs = [
        Job("curve", "digits", hook, "unlimited", seed, 60, 20, optimizer="sgd") for seed in (1, 2) for hook in hooks
    ]
    return jobs + [
        Job("time", "digits", hook, "100mbit", turn, 5 + record.warmup(hook, "real"))
        for turn in (1, 2)
        for hook in hooks
    ]


def rows_of(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def merge(ranks):
    """Rows of all ranks as one run: a step takes as long as its slowest rank, processor seconds add up."""
    yield {**ranks[0][0], "hooks_equal": len({rows[0]["runs"] for rows in ranks}) == 1}
    for rows in zip(*(rows[1:] for rows in ranks)):
        first = rows[0]
        if len({(row["kind"], row.get("step")) for row in rows}) != 1:
            raise RanksFailed("ranks did different steps", [])
        merged = {"kind": first["kind"], "step": first.get("step")}
        if first["kind"] == "step":
            merged["seconds"] = max(row["seconds"] for row in rows)
            merged["cpu"] = sum(row["cpu"] for row in rows)
            merged["loss"] = sum(row["loss"] for row in rows) / len(rows)
            for key in ("sent", "received", "payload"):
                values = [row.get(key) for row in rows]
                merged[key] = None if None in values else sum(values) / len(values)
        else:
            merged["equal"] = len({row["hash"] for row in rows}) == 1
            if first["kind"] == "check":
                samples = sum(row["samples"] for row in rows)
                merged["loss"] = sum(row["loss"] * row["samples"] for row in rows) / samples
            else:
                merged |= {
                    "hook_statistics": first["hook_statistics"],
                    "peak_memory": max(r["peak_memory"] for r in rows),
                }
        yield merged


def blas_kernels():
    """OpenBLAS takes its kernels by the model of the processor, and SSE3's for one that is newer than itself: 8 times
    as slow. So it is told by what the processor can do, on all models, unless the user has told it."""
    try:
        with open("/proc/cpuinfo", encoding="ascii") as f:
            flags = next((set(line.split()) for line in f if line.startswith("flags")), set())
    except OSError:
        return {}
    for kernels, needed in (
        ("SkylakeX", {"avx512f", "avx512dq", "avx512bw", "avx512vl"}),
        ("Haswell", {"avx2", "fma"}),
    ):
        if needed <= flags:
            return {"OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", kernels)}
    return {}


def run_job(net, job, folder, links):
    """One run in the Network; writes its file last, whole."""
    out = folder / "ranks" / job.name
    out.parent.mkdir(exist_ok=True)
    paths = [str(pathlib.Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
    extra = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    extra |= blas_kernels()
    with thc_serving.serving(net) if thc_serving.is_for(job.hook) else contextlib.nullcontext({}) as server:
        run_ranks(net, job.words(out), 12 * job.estimate() + 300, extra=extra | server)
    files = [pathlib.Path(f"{out}.rank{rank}.jsonl") for rank in range(RANKS)]
    merged = list(merge([rows_of(file) for file in files]))
    merged[0] |= {"job": dataclasses.asdict(job), "probe": links}
    fresh = folder / f"{job.name}.new"
    fresh.write_text("".join(json.dumps(row) + "\n" for row in merged), encoding="utf-8")
    fresh.rename(folder / f"{job.name}.jsonl")
    for file in files:
        file.unlink()


def run_jobs(jobs, folder, known):
    """All runs that are not there yet; returns names of those that failed. A network is kept while the link stays."""
    folder.mkdir(parents=True, exist_ok=True)
    left = [job for job in jobs if job.name not in known and not (folder / f"{job.name}.jsonl").exists()]
    hours = sum(job.estimate() for job in left) / 3600
    print(f"== {len(left)} of {len(jobs)} runs, about {hours:.1f} hours on an idle machine", flush=True)
    failed, begin, done = [], time.monotonic(), 0
    while left:
        link = left[0].link
        count = next((i for i, job in enumerate(left) if job.link != link), len(left))
        now, left = left[:count], left[count:]
        own = any(thc_serving.is_for(job.hook) for job in now)
        make = Loopback if now[0].emulated else thc_serving.network if own else Network
        with make(RANKS, LinkSpec.parse(link)) as net:
            seen = net.expected() if now[0].emulated else probe.measure(net)
            for job in now:
                try:
                    run_job(net, job, folder, seen)
                except RanksFailed as error:
                    failed.append(job.name)
                    print(f"FAILED {job.name}: {error}", flush=True)
                done += 1
                print(f"== {done} after {time.monotonic() - begin:.0f} s: {job.name}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--records", type=pathlib.Path, help="runs that are known")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="a regular expression: runs whose name has a match")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each curve; the page has those of the default")
    parser.add_argument("--list", action="store_true", help="print the names and the estimate, run nothing")
    parser.add_argument("--emulate", action="store_true", help="emulated links, also where limited ones are permitted")
    chosen = parser.parse_args()
    why = "--emulate" if chosen.emulate else None if chosen.list else permission.refusal()
    jobs = quick_jobs() if chosen.quick else full_jobs(chosen.seeds)
    jobs = [dataclasses.replace(job, emulated=bool(why)) for job in jobs]
    jobs = [job for job in jobs if re.search(chosen.only, job.name)]
    jobs = [job for job in jobs if not (job.emulated and thc_serving.is_for(job.hook))]  # its packets are not emulated
    if chosen.list:
        print("\n".join(job.name for job in jobs))
        print(f"{len(jobs)} runs, about {sum(job.estimate() for job in jobs) / 3600:.1f} hours")
        return 0
    if why:
        print(f"Links are emulated, over loopback: {why}", flush=True)
    else:
        permission.enter()
    known = {one.name for one in record.load(chosen.records)} if chosen.records else set()
    failed = run_jobs(jobs, chosen.folder.resolve(), known)
    print(f"{len(jobs) - len(failed)} runs there, {len(failed)} failed" + "".join(f"\n  {name}" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
