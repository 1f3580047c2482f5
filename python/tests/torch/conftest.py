"""Without torch there is nothing to test; scripts/test says so. (This folder's own name is found as an empty package.)"""

import importlib.util

_torch = importlib.util.find_spec("torch")
if _torch is None or _torch.origin is None:
    collect_ignore_glob = ["test_*.py"]
