"""Compressed gradients in PyTorch, in one line:

    ddp.register_comm_hook(*gradwire.torch.ddp_hook(optimizer))

docs/pytorch.md describes options, limits and recipes.
"""

from .ddp import DdpState, ddp_hook
from .engine import ExchangeError, ReplicaError

__all__ = ["DdpState", "ExchangeError", "ReplicaError", "ddp_hook"]
