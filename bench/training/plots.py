"""Validation loss over steps, bytes and time of one task; means over seeds."""

import statistics

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from .summary import hooks_of, select  # noqa: E402


def _mean_by_check(runs, key):
    return [statistics.fmean(values) for values in zip(*(getattr(run, key) for run in runs))]


def losses(runs, path, hook_text):
    """Three panels; time is that of the unlimited link on which the curves were taken."""
    matplotlib.rcParams["svg.hashsalt"] = "gradwire"
    picture, panels = pyplot.subplots(1, 3, figsize=(15, 4.5), sharey=True)
    for hook in hooks_of(runs):
        own = select(runs, hook=hook)
        loss = _mean_by_check(own, "check_loss")
        sent = [size / 1e6 for size in _mean_by_check(own, "check_sent")]
        for axes, x in zip(panels, (_mean_by_check(own, "check_steps"), sent, _mean_by_check(own, "check_seconds"))):
            axes.plot(x, loss, label=hook_text(hook), linewidth=1.2)
    for axes, label in zip(panels, ("steps", "MB sent by a rank", "seconds, no limit")):
        axes.set_xlabel(label)
    panels[1].set_xscale("log")
    panels[0].set_ylabel("validation loss")
    panels[2].legend(fontsize="small")
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})
    pyplot.close(picture)
