"""Measures docs/results/collectives-ring.tsv: a ring and A2A+AG in alternating pairs within one run, over limited
links.

    collectives_ring.py BUILD GRADIENTS.npy OUT [--quick]

One row is one line of `allreduce_bench --ring`: 25 MiB in mode carried at the default target, with Open MPI, 2, 4, 8
and 17 ranks. Needs namespaces: without them nothing is measured, and the file stays as it is.
"""

import argparse
import pathlib
import sys
import time

from collectives_run import MIB, rows_of, write
from links import mpi_launch, permission, probe
from links.link_spec import LinkSpec
from links.network import Network

MPI = "openmpi"
NUMBERS = ("bytes", "pairs", "a2a_us", "ring_us", "ratio", "low", "high")
SENT = ("a2a_sent", "ring_sent", "a2a_nmse", "ring_nmse")
COLUMNS = ("ranks", "link", "goodput_mbit", "rtt_ms", *NUMBERS, *SENT)


def rows(build, gradients, quick):
    size = MIB if quick else 25 * MIB
    for ranks in (2, 4, 8, 17):
        for link in ("100mbit", "1gbit"):
            begin = time.monotonic()
            with Network(ranks, LinkSpec.parse(link)) as net:
                seen = probe.measure(net)
                program = build / "bench" / "mpi" / f"allreduce_bench_{MPI}"
                words = [program, "--ring", "--min", size, "--max", size, "--seconds", 1 if quick else 12, gradients]
                text = mpi_launch.run_mpi(net, MPI, words, 300, {"GRADWIRE_MPI_NOTICE": "off"}, "# end")
            for row in rows_of(text)[1]:
                goodput = f"{min(seen['duplex_mbit']):.1f}"
                yield {
                    "ranks": ranks,
                    "link": link,
                    "goodput_mbit": goodput,
                    "rtt_ms": f"{max(seen['rtt_ms']):.3f}",
                    **row,
                }
            print(f"== {ranks} ranks, {link}: {time.monotonic() - begin:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("gradients", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    why = permission.refusal() or mpi_launch.missing(MPI)
    if why:
        print(f"SKIP ring: {why}")
        return 77
    permission.enter()
    build, gradients = chosen.build.resolve(), chosen.gradients.resolve()
    write(chosen.out / "collectives-ring.tsv", COLUMNS, rows(build, gradients, chosen.quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
