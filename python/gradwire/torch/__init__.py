"""Compressed gradients in PyTorch, in one line:

    ddp.register_comm_hook(*gradwire.torch.ddp_hook(optimizer))

docs/pytorch.md describes options, limits and recipes.
"""

from . import probe, probe_levels
from .classic import ClassicState
from .communicator import Communicator, all_reduce
from .ddp import DdpState, ddp_hook
from .engine import ExchangeError, ReplicaError
from .options import CodecOptions
from .peers import PeerError
from .planned import planned_ddp
from .thc import ThcState, thc_hook
from .thc_server import ThcServerState

__all__ = [
    "ClassicState",
    "CodecOptions",
    "Communicator",
    "DdpState",
    "ExchangeError",
    "PeerError",
    "ReplicaError",
    "ThcServerState",
    "ThcState",
    "all_reduce",
    "ddp_hook",
    "planned_ddp",
    "probe",
    "probe_levels",
    "thc_hook",
]
