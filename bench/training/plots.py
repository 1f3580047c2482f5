"""Validation loss over steps, bytes and time of one task; means over seeds."""

import statistics

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from .summary import distinct, select  # noqa: E402


def _mean_by_check(runs, of):
    return [statistics.fmean(of(run, i) for run in runs) for i in range(min(len(run["check"]) for run in runs))]


def _spent(run, index, key):
    """Sum of a step's quantity up to a check."""
    last = run["check"][index]["step"]
    return sum(row[key] or 0 for row in run["step"] if row["step"] < last)


def losses(runs, path, hook_text):
    """Three panels; time is that of the unlimited link on which the curves were taken."""
    matplotlib.rcParams["svg.hashsalt"] = "gradwire"
    picture, panels = pyplot.subplots(1, 3, figsize=(15, 4.5), sharey=True)
    for (hook,) in distinct(runs, "hook"):
        own = select(runs, hook=hook)
        loss = _mean_by_check(own, lambda run, i: run["check"][i]["loss"])
        steps = _mean_by_check(own, lambda run, i: run["check"][i]["step"])
        sent = _mean_by_check(own, lambda run, i: _spent(run, i, "sent") / 1e6)
        seconds = _mean_by_check(own, lambda run, i: _spent(run, i, "seconds"))
        for axes, x in zip(panels, (steps, sent, seconds)):
            axes.plot(x, loss, label=hook_text(hook), linewidth=1.2)
    for axes, label in zip(panels, ("steps", "MB sent by a rank", "seconds, no limit")):
        axes.set_xlabel(label)
    panels[1].set_xscale("log")
    panels[0].set_ylabel("validation loss")
    panels[2].legend(fontsize="small")
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})
    pyplot.close(picture)
