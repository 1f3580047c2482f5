"""Tasks by name."""

import functools


def _gpt(**shape):
    def make(seed):
        from .task_gpt import GptTask

        return GptTask(seed, **shape)

    return make


def _digits(seed):
    from .task_digits import DigitsTask

    return DigitsTask(seed)


def _resnet(seed):
    from .task_resnet import ResnetTask

    return ResnetTask(seed)


TASKS = {
    "digits": _digits,
    "gpt1m": _gpt(layers=5, width=128, heads=4, context=64, batch=8, lr=1e-3),
    "gpt10m": _gpt(layers=6, width=384, heads=6, context=64, batch=4, lr=6e-4),
    "resnet18": _resnet,
}


@functools.lru_cache
def make_task(name, seed):
    if name not in TASKS:
        raise ValueError(f"no task '{name}' ({', '.join(TASKS)})")
    return TASKS[name](seed)
