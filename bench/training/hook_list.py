"""DDP hooks by name.

none                 DDP's own all-reduce of fp32
bf16                 torch's bf16_compress_hook; where Gloo cannot reduce bf16 (torch 1.13), the same bytes by
                     baselines.Exchange
fp16                 torch's fp16_compress_hook, which every Gloo reduces: the same bytes as bf16 by its ring
powersgd[:RANK]      torch's powerSGD_hook with error feedback and warm start, from step 2 (default rank 4), on a
                         thread of its own
int8, int4           blocks of 512 (baselines.py)
gradwire[:K=V,...]   gradwire.torch.ddp_hook(optimizer, K=V, ...)
classic:SCHEME[,K=V,...]
                     gradwire.torch.ddp_hook(optimizer, codec=SCHEME, K=V, ...); CLASSIC_SGD says how SGD differs
thc[:K=V,...]        gradwire.torch.thc_hook(optimizer, K=V, ...)
thc_server[:K=V,...] the same with a parameter server, which grid.py starts (thc_serving.py)

Behind any of them @MB: bucket_cap_mb of DDP, "gradwire@4".
"""

import ast
import dataclasses
import os
import re
import typing

import torch
import torch.distributed as dist

from . import baselines, emulate, thc_serving


@dataclasses.dataclass
class Installed:
    what: str  # what really runs
    # Bytes given to the transport in so many steps; None: only the interface knows.
    payload: typing.Callable | None = None
    about: typing.Callable | None = None  # statistics of the hook at the end, a dictionary
    state: typing.Any = None  # of gradwire's hook


def _ring_bytes(model, element_size):
    """Payload of one ring all-reduce of all gradients: 2 (N - 1) / N of their bytes."""
    ranks = dist.get_world_size()
    values = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return 2 * (ranks - 1) / ranks * values * element_size


class _Counted:
    """Counts buckets that pass through a hook whose traffic is known by formula."""

    def __init__(self, hook, element_size):
        self.hook, self.element_size, self.sent_bytes = hook, element_size, 0.0

    def __call__(self, state, bucket):
        ranks = dist.get_world_size()
        self.sent_bytes += 2 * (ranks - 1) / ranks * bucket.buffer().numel() * self.element_size
        return self.hook(state, bucket)


def gloo_has_bf16():
    """Whether this torch's Gloo reduces bf16; asked by a reduction, the same answer on all ranks."""
    try:
        probe = torch.ones(4, dtype=torch.bfloat16)
        dist.all_reduce(probe)
        return bool((probe == dist.get_world_size()).all())
    except RuntimeError:
        return False


def options_of(text):
    """ "tolerance_bits=14,dead_zone=True" as a dictionary; values are Python literals or strings."""
    options = {}
    for part in filter(None, re.split(r",(?![^(]*\))", text)):  # not at the commas of a tuple
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"'{part}': write NAME=VALUE")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options


def _exchange(ddp, wire):
    exchange = baselines.Exchange(wire)
    ddp.register_comm_hook(None, baselines.BucketThread(exchange).hook)
    return Installed(f"all-to-all, sum, all-gather of {type(wire).__name__}", lambda _steps: exchange.sent_bytes)


def _bf16(ddp, _optimizer, _text):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    if not gloo_has_bf16():
        return _exchange(ddp, baselines.Bf16Wire())
    return _cast(ddp, bf16_compress_hook)


def _fp16(ddp, _optimizer, _text):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return _cast(ddp, fp16_compress_hook)


def _cast(ddp, torch_hook):
    counted = _Counted(torch_hook, 2)
    ddp.register_comm_hook(None, _named(counted))
    return Installed(f"torch's {torch_hook.__name__}", lambda _steps: counted.sent_bytes)


def _named(counted):
    """register_comm_hook wants a function with these names."""

    def hook(state, bucket):
        return counted(state, bucket)

    return hook


def _powersgd(ddp, _optimizer, text):
    """torch's hook starts its second all-reduce in a callback of the first. Over Gloo callbacks run on several threads,
    in an order that differs between ranks when there are several buckets, and ranks reduce unequal things. On a thread
    that waits for each bucket the order is the same everywhere."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    rank = int(text or 4)
    state = powerSGD_hook.PowerSGDState(
        process_group=dist.new_group(),
        matrix_approximation_rank=rank,
        start_powerSGD_iter=2,
        use_error_feedback=True,
        warm_start=True,
    )
    ddp.register_comm_hook(
        None, baselines.BucketThread(lambda bucket: powerSGD_hook.powerSGD_hook(state, bucket).wait()).hook
    )
    return Installed(f"torch's powerSGD_hook, rank {rank}")


def _gradwire(ddp, optimizer, text):
    import gradwire.torch

    state, hook = gradwire.torch.ddp_hook(optimizer, **options_of(text))
    ddp.register_comm_hook(state, hook)
    statistics = getattr(state, "statistics", None)
    return Installed(f"gradwire {gradwire.__version__}", None, statistics if callable(statistics) else None, state)


#: (factor of the learning rate, momentum) of SGD where a scheme needs others than the task's. DGC and SIGNUM have the
#: momentum themselves. SIGNSGD and SIGNUM return signs, or means of signs: the rate is the length of a step.
CLASSIC_SGD = {"dgc": (1.0, 0.0), "signsgd": (0.025, 0.0), "signum": (0.025, 0.0)}


def sgd_of(text):
    """(factor of the learning rate, momentum) with which SGD trains under a hook."""
    name, _, options = bucket_of(text)[0].partition(":")
    return CLASSIC_SGD.get(options.partition(",")[0], (1.0, 0.9)) if name == "classic" else (1.0, 0.9)


def _classic(ddp, optimizer, text):
    import gradwire.torch

    scheme, _, options = text.partition(",")
    state, hook = gradwire.torch.ddp_hook(optimizer, codec=scheme, **options_of(options))
    ddp.register_comm_hook(state, hook)
    # Casts go by torch's all-reduce, which only the interface counts.
    payload = None if scheme in ("fp16", "bf16") else lambda _steps: state.sent_size
    return Installed(f"gradwire {gradwire.__version__}, {scheme}", payload)


def _thc(ddp, optimizer, text):
    import gradwire.torch

    ddp.register_comm_hook(*gradwire.torch.thc_hook(optimizer, **options_of(text)))
    return Installed(f"gradwire {gradwire.__version__}, THC")


def _thc_server(ddp, optimizer, text):
    import gradwire.torch

    state, hook = gradwire.torch.thc_hook(optimizer, server=os.environ[thc_serving.VARIABLE], **options_of(text))
    ddp.register_comm_hook(state, hook)
    return Installed(f"gradwire {gradwire.__version__}, THC by a parameter server", None, None, state)


def _none(ddp, _optimizer, _text):
    per_step = _ring_bytes(ddp.module, 4)
    if "GW_EMULATED" in os.environ:
        ddp.register_comm_hook(None, emulate.plain_hook)
    return Installed("DDP's all-reduce", lambda steps: steps * per_step)


_HOOKS = {
    "none": _none,
    "bf16": _bf16,
    "fp16": _fp16,
    "powersgd": _powersgd,
    "int8": lambda ddp, _optimizer, _text: _exchange(ddp, baselines.Int8Blocks()),
    "int4": lambda ddp, _optimizer, _text: _exchange(ddp, baselines.Int4Blocks()),
    "gradwire": _gradwire,
    "classic": _classic,
    "thc": _thc,
    "thc_server": _thc_server,
}


def bucket_of(text):
    """(hook, bucket_cap_mb of DDP or None) of NAME or NAME@MB."""
    hook, _, cap = text.partition("@")
    return hook, float(cap) if cap else None


def check(text):
    """Raises ValueError unless the name is known and options can be read."""
    name, _, options = bucket_of(text)[0].partition(":")
    if name not in _HOOKS:
        raise ValueError(f"no hook '{name}' ({', '.join(_HOOKS)})")
    if name in ("gradwire", "thc", "thc_server"):
        options_of(options)
    if name == "classic":
        if not options.partition(",")[0]:
            raise ValueError("classic:SCHEME[,NAME=VALUE,...]")
        options_of(options.partition(",")[2])
    return text


def plan_of(text):
    """The plan that the hook `text` names will follow, None without one."""
    name, _, options = bucket_of(text)[0].partition(":")
    return options_of(options).get("plan") if name == "gradwire" else None


def install(ddp, optimizer, text):
    """Registers the hook `text` names; returns what it is. Collective: all ranks call it."""
    name, _, options = bucket_of(check(text))[0].partition(":")
    return _HOOKS[name](ddp, optimizer, options)
