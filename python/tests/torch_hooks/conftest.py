"""Without torch nothing is collected, and scripts/test says so."""

import importlib.util

# This folder has the name of the package and is found as an empty one where torch is missing.
_torch = importlib.util.find_spec("torch")
if _torch is None or _torch.origin is None:
    collect_ignore_glob = ["test_*.py"]
