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
    order = ("none", "bf16", "powersgd", "int8", "int4", "classic", "gradwire")

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
