"""training.tsv, training.md and its pictures from the runs of grid.py: `python3 -m training.page RUNS OUT COMMIT`, from
bench/."""

import pathlib
import statistics
import sys

from result_pages import table

from . import grid, hook_list, plots, record, summary, thc_serving
from .summary import select


def hook_text(hook):
    hook, cap = hook_list.bucket_of(hook)
    text = "fp32" if hook == "none" else hook.replace("compress=always,", "").replace(":compress=always", "")
    return text if cap is None else f"{text}, buckets of {cap:g} MB"


def number(value, form):
    return "-" if value is None else format(value, form)


def sent_share(runs, plain):
    """Bytes on the interface as a share of fp32's, medians; None where they were not counted."""
    own = [run.sent for run in runs]
    whole = [run.sent for run in plain]
    if None in own + whole or not own or not whole:
        return None
    return 100 * statistics.fmean(own) / statistics.fmean(whole)


def sgd_text(hooks):
    """Hooks under which SGD has another rate or momentum, in words."""
    differing = {}
    for hook in hooks:
        if hook_list.sgd_of(hook) != hook_list.sgd_of("none"):
            differing.setdefault(hook_list.sgd_of(hook), []).append(hook_text(hook))
    return "".join(
        f" SGD has momentum {momentum:g} and {factor:g} times this rate under {', '.join(names)}."
        for (factor, momentum), names in differing.items()
    )


def inside(plain, differences):
    """Whether the interval of the paired difference and the spread of fp32's seeds meet: "inside the seeds"."""
    values = [summary.check_loss(run) for run in plain]
    mean, half = summary.interval(differences)
    _, spread = summary.interval(values)
    return "-" if half is None or spread is None else "yes" if abs(mean) <= spread else "**no**"


def marked(emulated):
    return ", emulated" if emulated else ""


def picture_name(task, optimizer, emulated):
    return f"training-{task}-{optimizer}{record.EMULATED if emulated else ''}.svg"


def curve_part(runs, task, optimizer):
    own = select(runs, task=task, optimizer=optimizer)
    plain = select(own, hook="none")
    if not plain:
        return ""
    target, body = summary.target_of(plain), []
    for hook in summary.hooks_of(own):
        these = select(own, hook=hook)
        differences = summary.paired(these, plain, summary.check_loss)
        tails = summary.paired(these, plain, summary.end_loss)
        (mean, half), (tail, tail_half) = summary.interval(differences), summary.interval(tails)
        equal, all_checks = summary.replicas_equal(these)
        steps = [summary.steps_to(run, target) for run in these]
        body.append(
            [
                hook_text(hook),
                len(these),
                number(sent_share(these, plain), ".1f"),
                f"{statistics.fmean(map(summary.check_loss, these)):.4f}",
                f"{mean:+.4f} ± {number(half, '.4f')}",
                f"{tail:+.4f} ± {number(tail_half, '.4f')}",
                inside(plain, differences),
                "-" if None in steps else f"{statistics.fmean(steps):.0f}",
                f"{equal}/{all_checks}",
            ]
        )
    start = plain[0]
    head = ["hook", "seeds", "bytes, % of fp32", "validation loss", "difference to fp32", "of training loss"]
    head += ["within fp32's seeds", f"steps to {target:.3f}", "replicas equal"]
    about = f"{start.parameters:,} parameters, {start.ranks} ranks, batch {start.batch} each, lr {start.lr:g}, "
    about += f"{start.steps} steps, torch {start.torch}."
    about += sgd_text(summary.hooks_of(own)) if optimizer == "sgd" else ""
    name = picture_name(task, optimizer, start.emulated)
    heading = f"### {task}, {optimizer}{marked(start.emulated)}"
    return f"\n{heading}\n\n{about}\n\n{table(head, body)}\n![Losses of {task}]({name})\n"


def time_part(runs, task, compute, optimizer_steps):
    own = select(runs, task=task, compute=compute)
    links = list(dict.fromkeys(run.link for run in sorted(own, key=link_order)))
    text = ""
    for link in links:
        here = select(own, link=link)
        plain, body = select(here, hook="none"), []
        for hook in summary.hooks_of(here):
            these = select(here, hook=hook)
            row = [hook_text(hook), len(these), number(statistics.median(r.seconds for r in these), ".3f")]
            for against in (plain, select(here, hook="bf16"), select(here, hook="fp16")):
                ratio = summary.ratio_interval(these, against)
                mean, low, high = ratio or (None, None, None)
                row.append(number(mean, ".2f") + ("" if low is None else f" ({low:.2f} to {high:.2f})"))
            cpu = statistics.median(r.cpu for r in these)
            bytes_sent = [r.sent for r in these]
            wire = [summary.wire_seconds(r) for r in these]
            steps = optimizer_steps.get((task, hook_list.bucket_of(hook)[0]))
            seconds = statistics.median(r.seconds for r in these)
            row += [f"{cpu:.2f}", "-" if None in bytes_sent else f"{statistics.fmean(bytes_sent) / 1e6:.2f}"]
            row.append("-" if None in wire else f"{statistics.median(wire):.3f}")
            share = summary.allowed_share(these, plain) if link != "unlimited" else None
            row.append(number(share and 100 * share, ".0f"))
            more = [statistics.median(map(summary.seconds_with_cores, some)) for some in (these, plain) if some]
            row.append(f"{more[0]:.3f}" + (f" ({more[1] / more[0]:.2f})" if len(more) == 2 else ""))
            row.append("-" if steps is None or compute != "real" else f"{steps * seconds:.0f}")
            body.append(row)
        seen = [statistics.median(getattr(run, key) for run in here) for key in ("link_mbit", "rtt_ms")]
        emulated = here[0].emulated
        text += f"\n### {task}, {link}{marked(emulated)}\n\n{'Emulated' if emulated else 'Probe'}: "
        text += f"{seen[0]:.0f} Mb/s each way at once, round trip {seen[1]:.2f} ms.\n\n"
        head = [
            "hook",
            "rounds",
            "seconds a step",
            "fp32 / this",
            "bf16 / this",
            "fp16 / this",
            "CPU s a step, all ranks",
            "MB sent a rank",
            "s for these bytes at the probed rate",
            "% of what the bytes allow",
            "s with a core a rank (fp32 / this)",
        ]
        text += table([*head, "s to that loss (composed)"], body)
    return text


def link_order(run):
    from links.link_spec import LinkSpec

    spec = LinkSpec.parse(run.link)
    return spec.rtt, spec.rate or 1e15


def steps_by_hook(curves):
    """Mean steps to fp32's loss by (task, hook), under the task's first optimizer."""
    result = {}
    for task, optimizer in sorted({(run.task, run.optimizer) for run in curves}, reverse=True):
        own = select(curves, task=task, optimizer=optimizer)
        plain = select(own, hook="none")
        for hook in summary.hooks_of(own) if plain else []:
            steps = [summary.steps_to(run, summary.target_of(plain)) for run in select(own, hook=hook)]
            if None not in steps and own[0].trained_by == ("adamw" if task.startswith("gpt") else "sgd"):
                result[task, hook] = statistics.fmean(steps)
    return result


def main():
    folder, out, commit = *map(pathlib.Path, sys.argv[1:3]), sys.argv[3]
    out.mkdir(parents=True, exist_ok=True)
    runs = record.collect(folder, out / record.NAME, commit)
    measured, emulated = select(runs, emulated=False), select(runs, emulated=True)
    versions = ", ".join(sorted({run.torch for run in runs}))
    text = "# Training over limited links\n\nMade by `bench/training/results_training` with "
    text += f"torch {versions}; 4 ranks share the "
    text += "cores of one machine, in network namespaces. " if measured else "cores of one machine. "
    if select(runs, kind="curve"):
        text += "Losses were taken\nwithout a limit, since no link changes them; differences are paired by seed. "
    text += "Intervals are 95 %. "
    text += (
        f"This page has {len(runs)} of the {len(grid.full_jobs())} runs of `bench/training/results_training --list` "
    )
    text += "([training.tsv](training.tsv)). Of the papers' figures for speed only those of the abstracts are at hand, "
    text += "of larger models on GPUs. THC comes to its accuracy 1.28 to 1.33 times as fast as the best other systems "
    text += (
        "with a software server, 1.40 to 1.47 times with a switch. Training with GComp is up to 1.9 times as fast.\n"
    )
    text += body(measured, out)
    if emulated:
        text += "\n# Emulated links\n\nNothing below was measured over a link. Ranks ran on loopback, and each held "
        text += "its transfers back\nas long as an ideal link would take (bench/links/emulated.py): compare these "
        text += "figures with each other only.\nBytes are payload.\n"
        text += body(emulated, out)
    (out / "training.md").write_text(text, encoding="utf-8")


def body(runs, out):
    """Losses and times of runs that are all measured, or all emulated."""
    curves, times = select(runs, kind="curve"), select(runs, kind="time")
    text = "\n## Loss\n" if curves else ""
    for task, optimizer in sorted({(run.task, run.optimizer) for run in curves}):
        text += curve_part(curves, task, optimizer)
        own = select(curves, task=task, optimizer=optimizer)
        plots.losses(own, out / picture_name(task, optimizer, own[0].emulated), hook_text)
    if not times:
        return text
    text += (
        "\n## Seconds a step\n\nMedians; ratios are paired by round. The first three steps of a run do not count, nor "
    )
    text += "the first 14 of gradwire's hooks: with "
    text += "AdamW its messages shrink while the second moments settle. *Composed*: steps to the loss that "
    text += "fp32 has after 80 % of its steps, times seconds a step. *What the bytes allow*: the seconds of fp32 that "
    text += "its bytes do not explain, and the seconds for the bytes of this hook, over its seconds. Bytes are those "
    text += "of the steps that count; *Loss* has those of whole runs, which are more where messages grow later, as "
    text += "with a noise limit. *With a core a rank* is an estimate: the processor time of all ranks over as many "
    text += (
        "cores as there are ranks, the rest of the step as measured; not less than one rank's processor time, or the "
    )
    text += "time of its bytes. It takes all processor time to delay the step, also what overlaps with transfer, which "
    text += "is good for hooks that compute much.\n"
    if any(thc_serving.is_for(run.hook) for run in times):
        text += "*thc_server* is THC by `gradwire thc-serve` with a link of its own, which sends each sum to every "
        text += "rank and so is the narrowest place; the server's processor time is not counted.\n"
    tasks = sorted({run.task for run in times})
    for task in tasks:
        text += time_part(times, task, "real", steps_by_hook(curves))
    if select(times, compute="replay"):
        text += "\n## Seconds a step with replayed gradients\n\nNo forward or backward pass of the model: "
        text += "four recorded real gradients in turn (bench/training/worker.py); DDP, hook and optimizer are real. "
        text += "What a step costs where the model runs elsewhere. Messages are larger than in training.\n"
        for task in tasks:
            text += time_part(times, task, "replay", {})
    return text


if __name__ == "__main__":
    main()
