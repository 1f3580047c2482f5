"""`gradwire thc-serve` beside the ranks of a run: hooks "thc_server" of hook_list.py.

The server has a namespace and a link of its own in the ranks' Network, one behind the last rank; the link sends each
sum to all of them. The command is GRADWIRE_COMMAND, or the tree's build/release/gradwire.
"""

import contextlib
import os
import pathlib
import subprocess

from links.network import Network, address

VARIABLE = "GW_THC_SERVER"  # HOST:PORT of the server, for the ranks
_PORT = 5610


def is_for(hook):
    return hook.startswith("thc_server")


@contextlib.contextmanager
def network(ranks, spec):
    """A Network of so many ranks with one namespace more, which no rank is in."""
    with Network(ranks + 1, spec) as net:
        net.ranks = ranks
        try:
            yield net
        finally:
            net.ranks = ranks + 1  # all of them end


def command():
    built = pathlib.Path(__file__).resolve().parents[2] / "build/release/gradwire"
    found = os.environ.get("GRADWIRE_COMMAND", str(built))
    if not os.access(found, os.X_OK):
        raise SystemExit(f"{found} is not there: build gradwire, or set GRADWIRE_COMMAND")
    return found


@contextlib.contextmanager
def serving(net):
    """A new server in a network(); what the ranks need to know of it."""
    where = f"{address(net.ranks)}:{_PORT}"
    words = [*net.inside(net.ranks), command(), "thc-serve", "--listen", where]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            if not server.stdout.readline():
                raise RuntimeError(f"thc-serve does not listen on {where}")
            yield {VARIABLE: where}
        finally:
            server.terminate()
