"""May this process make network namespaces? If only within a user namespace, it starts itself again inside one."""

import os
import shutil
import subprocess
import sys

_AGAIN = "GW_LINKS_IN_USER_NAMESPACE"
_PROBE = "ip netns add gwprobe$$ && ip netns delete gwprobe$$"
# ip keeps names of namespaces in /run/netns, which an ordinary user may not write: a private /run takes its place.
_USER = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--propagation", "private"]
_RUN = 'mount -t tmpfs tmpfs /run && exec "$@"'


def _works(words):
    try:
        return subprocess.run(words, capture_output=True, timeout=30, check=False).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def refusal():
    """Why limited links cannot be made here; None if they can, if need be by enter()."""
    missing = [name for name in ("ip", "tc", "unshare") if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: iproute2, util-linux)"
    if direct() or _works([*_USER, "sh", "-c", _RUN, "sh", "sh", "-c", _PROBE]):
        return None
    return "neither root's network namespaces nor user namespaces are permitted"


def direct():
    """Whether namespaces can be made without a user namespace."""
    return _works(["sh", "-c", _PROBE])


def enter():
    """Goes on inside a user namespace where the process has no right of its own; call it first thing after
    refusal()."""
    if not direct() and _AGAIN not in os.environ:
        os.environ[_AGAIN] = "1"
        os.execvp(_USER[0], [*_USER, "sh", "-c", _RUN, "sh", sys.executable, *sys.orig_argv[1:]])
