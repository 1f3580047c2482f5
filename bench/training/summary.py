"""Numbers of docs/results/training.md from records: paired differences and ratios with their intervals, time to a
loss."""

import math
import re
import statistics


def interval(values):
    """Mean and half the width of its 95 % interval (Student's t); None without two values."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    from scipy.stats import t

    return mean, t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def select(runs, **wanted):
    return [run for run in runs if all(getattr(run, key) == value for key, value in wanted.items())]


def hooks_of(runs):
    """Hooks by kind, then by name."""
    order = ("none", "bf16", "fp16", "powersgd", "int8", "int4", "classic", "thc", "thc_server", "gradwire")

    def place(hook):
        return order.index(re.split("[:@]", hook)[0]), hook

    return sorted({run.hook for run in runs}, key=place)


def end_loss(run):
    return run.end_loss


def check_loss(run):
    return run.check_loss[-1]


def paired(runs, plain, value):
    """Differences value(run) - value(plain run of the same seed)."""
    by_seed = {run.seed: run for run in plain}
    return [value(run) - value(by_seed[run.seed]) for run in runs if run.seed in by_seed]


def ratio_interval(runs, plain):
    """plain seconds / seconds, paired by round: geometric mean and its 95 % interval, (mean, low, high); low and high
    None with one round; None without a pair."""
    by_turn = {run.seed: run.seconds for run in plain}
    logs = [math.log(by_turn[run.seed] / run.seconds) for run in runs if run.seed in by_turn]
    if not logs:
        return None
    mean, half = interval(logs)
    if half is None:
        return math.exp(mean), None, None
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def wire_seconds(run):
    """Of the bytes that a rank sent in a step, at the probed rate; None where they were not counted."""
    return None if run.sent is None else 8e-6 * run.sent / run.link_mbit


def seconds_with_cores(run):
    """An estimate of a step where each rank has a core: the processor time of all ranks is spread over as many cores as
    there are ranks, the rest of the step stays; not less than a rank's own time, or that of its bytes."""
    spread = run.cpu * max(0.0, 1 / run.cpus - 1 / run.ranks)
    return max(run.seconds - spread, run.cpu / run.ranks, wire_seconds(run) or 0.0)


def allowed_share(runs, plain):
    """(fp32's seconds without those of its bytes + those of these bytes) / seconds; medians. 1: as fast as the link
    lets it be, if the rest cannot be hidden better than fp32 hides it. None where bytes were not counted."""
    if not plain or None in map(wire_seconds, [*runs, *plain]):
        return None
    rest = statistics.median(run.seconds - wire_seconds(run) for run in plain)
    return (rest + statistics.median(map(wire_seconds, runs))) / statistics.median(run.seconds for run in runs)


def steps_to(run, target):
    """Steps until the validation loss is at most `target`, interpolated between checks; None if it never is."""
    before = None
    for step, loss in zip(run.check_steps, run.check_loss):
        if loss <= target:
            if before is None or before[1] <= loss:
                return float(step)
            share = (before[1] - target) / (before[1] - loss)
            return before[0] + share * (step - before[0])
        before = step, loss
    return None


def target_of(plain):
    """The loss to reach: the worst of fp32's seeds after four fifths of the steps."""
    return max(run.check_loss[int(0.8 * len(run.check_loss)) - 1] for run in plain)


def replicas_equal(runs):
    """(checks with equal hashes on all ranks, all checks)."""
    return sum(run.equal for run in runs), sum(run.checks for run in runs)
