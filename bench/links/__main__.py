"""Runs a command on every rank of a limited network, or probes the links.

    python3 -m links [--ranks N] [--link 1gbit+20ms] [--limit SECONDS] [--probe] [--] [COMMAND...]

Each rank finds RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME in its environment. --mpi openmpi or
mpich
starts COMMAND as an MPI program instead. Ends with 77 and a line that says why where namespaces are not permitted.
"""

import argparse
import json
import sys

from . import mpi_launch, permission, probe
from .link_spec import LinkSpec
from .network import Network
from .ranks import RanksFailed, run_ranks


def arguments():
    parser = argparse.ArgumentParser(prog="links", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--link", type=LinkSpec.parse, default=LinkSpec(None))
    parser.add_argument("--limit", type=float, default=600, help="seconds for the command")
    parser.add_argument("--probe", action="store_true", help="measure the links, print JSON")
    parser.add_argument("--mpi", choices=mpi_launch.LAUNCHERS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    chosen.command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if not chosen.command and not chosen.probe:
        parser.error("no command, and no --probe")
    return chosen


def main():
    chosen = arguments()
    why = permission.refusal()
    if why:
        print(f"SKIP limited links: {why}")
        return 77
    permission.enter()
    try:
        with Network(chosen.ranks, chosen.link) as net:
            if chosen.probe:
                print(json.dumps(probe.measure(net)))
            if chosen.command and chosen.mpi:
                print(mpi_launch.run_mpi(net, chosen.mpi, chosen.command, chosen.limit), end="")
            elif chosen.command:
                for result in run_ranks(net, chosen.command, chosen.limit):
                    print("".join(f"[{result.rank}] {line}\n" for line in result.output.splitlines()), end="")
    except RanksFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
