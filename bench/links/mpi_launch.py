"""MPI programs whose ranks live in the namespaces of a Network.

mpirun runs in the namespace of rank 0 and reaches the other "hosts", addresses of the subnet, through a launch
agent (mpi_agent) in place of ssh; the agent enters the namespace that belongs to the address.

- Open MPI: plm_rsh_agent; transports tcp and self on the subnet only. Shared memory (vader) must be off: the
namespaces are
  on one machine and share /dev/shm, so it would carry everything past the links. CMA and UCX likewise: pml ob1.
- MPICH (Debian's 4.0.2 is ch4:ucx): -launcher rsh -launcher-exec; UCX restricted to tcp on eth0, and
MPIR_CVAR_NOLOCAL, since ranks with one host name would use shared memory. The settings of ch4:ofi are given too.

check_bytes() proves after a run that the links carried the data.
"""

import os
import shutil
import subprocess
import tempfile
import time

from . import namespaces
from .network import SUBNET, address
from .ranks import RankResult, RanksFailed

LAUNCHERS = ("openmpi", "mpich")
_AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_agent")


def missing(mpi):
    """Why this MPI cannot be used here, None if it can."""
    program = f"mpirun.{mpi}"
    return None if shutil.which(program) else f"{program} not installed (Debian: openmpi-bin, mpich)"


def _open_mpi(ranks):
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": _AGENT,
        "oob_tcp_if_include": SUBNET,
        "routed": "direct",  # the default crashed orted once
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": SUBNET,
        "coll": "^hcoll",
        "mpi_yield_when_idle": "1",  # four ranks share the cores: a waiting one must not keep another from working
        "orte_keep_fqdn_hostnames": "1",
    }
    words = ["mpirun.openmpi", "--allow-run-as-root", "-np", str(ranks), "--bind-to", "none"]
    words += ["--host", ",".join(f"{address(rank)}:1" for rank in range(ranks))]
    for name, value in settings.items():
        words += ["--mca", name, value]
    return words, {}


def _mpich(ranks):
    words = ["mpirun.mpich", "-launcher", "rsh", "-launcher-exec", _AGENT, "-iface", "eth0"]
    words += ["-hosts", ",".join(f"{address(rank)}:1" for rank in range(ranks)), "-np", str(ranks)]
    return words, {
        "MPIR_CVAR_NOLOCAL": "1",
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "eth0",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "eth0",
    }


def run_mpi(net, mpi, words, limit, extra=None, last_line=None):
    """Runs the MPI program `words` on all ranks; returns its output. extra: environment of the program, not of mpirun.

    Raises RanksFailed when mpirun fails or `limit` seconds pass. last_line: the line that the program prints when all
    is done, and that is left out of the output; it then has 3 s to end and is stopped otherwise, without failure.
    MPI_Finalize of Debian's MPICH often waits for
    ever over tcp: a rank closes its UCX endpoints while the peer, already in a barrier of PMI, answers no more.
    """
    launch, environment = {"openmpi": _open_mpi, "mpich": _mpich}[mpi](net.ranks)
    program = ["env", *(f"{name}={value}" for name, value in (extra or {}).items()), *map(str, words)]
    environment = {**os.environ, **environment, "GW_LINK": str(net.spec), "GW_LINKS_PREFIX": net.prefix}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        child = subprocess.Popen(
            [*net.inside(0), *launch, *program],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            status = _wait(child, output, limit, last_line)
        finally:
            if child.poll() is None:
                child.terminate()
            for rank in range(net.ranks):
                namespaces.stop_processes(net.name(rank))
            child.wait()
        text = _text(output)
    if status != 0:
        what = f"not done after {limit} s" if status is None else f"status {status}"
        raise RanksFailed(f"{mpi}: {what}\n{text[-4000:]}", [RankResult(0, status, text)])
    if last_line is not None:  # after it come mpirun's messages about being stopped
        if last_line not in text.splitlines():
            raise RanksFailed(f"{mpi}: no line '{last_line}'\n{text[-4000:]}", [RankResult(0, status, text)])
        text = text[: text.index(last_line)]
    return text


def _text(output):
    """What was printed so far; the writers' position in the file stays as it is."""
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0).decode(errors="replace")


def _wait(child, output, limit, last_line):
    """Exit status; 0 also when the last line came and the program does not end; None at the time limit."""
    end, complete = time.monotonic() + limit, False
    while child.poll() is None:
        if not complete and last_line is not None and last_line in _text(output).splitlines():
            complete, end = True, min(end, time.monotonic() + 3)
        if time.monotonic() > end:
            return 0 if complete else None
        time.sleep(0.02)
    return child.returncode


def check_bytes(before, after, least):
    """Whether every rank's link sent at least `least` bytes between two Network.counters(): nothing went around it."""
    return all(b["sent_bytes"] - a["sent_bytes"] >= least for a, b in zip(before, after))
