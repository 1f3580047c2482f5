"""Measures docs/results/collectives*.tsv: allreduce_bench of both MPIs over limited links, 4 ranks.

    collectives_run.py BUILD GRADIENTS.npy OUT [--quick] [--only REGEX]

One row is one line of allreduce_bench with what was run: figure, MPI, link. The links of each run are probed before
it, and the row carries what they did. Without namespaces the only rows are those of the unlimited link over the MPI's
usual transport, marked "computed" for other links: plain and compressed time, plus the bytes over the link's rate.
"""

import argparse
import csv
import io
import itertools
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from links import computed, mpi_launch, permission, probe  # noqa: E402
from links.link_spec import LinkSpec  # noqa: E402
from links.network import Network  # noqa: E402
from links.ranks import RanksFailed  # noqa: E402

MIB = 1 << 20
RANKS = 4
NUMBERS = ("bytes", "pairs", "plain_us", "gradwire_us", "ratio", "low", "high", "bits", "nmse")
COLUMNS = ("figure", "mpi", "link", "how", "goodput_mbit", "rtt_ms", "threshold", "mode", *NUMBERS)


def plan(quick):
    """(figure, mpi, link, environment, smallest, largest, seconds a size) of every run."""
    figure = {"GRADWIRE_MPI_THRESHOLD": str(MIB)}
    runs = []
    for mpi in mpi_launch.LAUNCHERS:
        for mode in ("carried", "thc"):
            environment = {**figure, "GRADWIRE_MPI_MODE": mode, "GRADWIRE_MPI_BITS": "4"}
            runs.append(("figure", mpi, "1gbit", environment, 25 * MIB, 25 * MIB, 3 if quick else 20))
    table = {"GRADWIRE_MPI_THRESHOLD": "auto", "GRADWIRE_MPI_BITS": "4"}
    links = ("100mbit", "1gbit") if quick else ("100mbit", "1gbit", "10gbit", "unlimited")
    for link in links:
        # A plain all-reduce of 256 MiB takes half a minute at 100 Mb/s.
        largest = MIB if quick else 64 * MIB if link == "100mbit" else 256 * MIB
        runs.append(("table", "openmpi", link, table, 4096, largest, 0.5 if quick else 3))
    return runs


def expected_seconds(run):
    """Rough duration: six pairs at least, plain time by the link's rate or by 1.5 GB/s of the machine."""
    _, _, link, _, smallest, largest, seconds = run
    rate, total, size = LinkSpec.parse(link).goodput, 12.0, smallest
    while size <= largest:
        plain = 8 * 1.5 * size / min(rate or 12e9, 12e9) * 1.5 + 1e-3
        total += max(seconds, 7 * plain * 1.7)
        size *= 4
    return total


def rows_of(text):
    """Header values and rows of one run's output."""
    lines = [line for line in text.splitlines() if line]
    note = next((line for line in lines if line.startswith("# ranks")), "")
    start = next(i for i, line in enumerate(lines) if line.startswith("bytes\t"))
    table = "\n".join(line for line in lines[start:] if not line.startswith("#"))
    return note.partition("threshold ")[2], list(csv.DictReader(io.StringIO(table), delimiter="\t"))


def words_of(build, gradients, run):
    figure, mpi, _, _, smallest, largest, seconds = run
    program = build / "bench" / "mpi" / f"allreduce_bench_{mpi}"
    return [program, "--min", smallest, "--max", largest, "--seconds", seconds, gradients]


def over_links(build, gradients, run):
    """Rows of a run in namespaces."""
    figure, mpi, link, environment, _, _, _ = run
    with Network(RANKS, LinkSpec.parse(link)) as net:
        seen = probe.measure(net)
        before = net.counters()
        text = mpi_launch.run_mpi(
            net, mpi, words_of(build, gradients, run), 3 * expected_seconds(run) + 60, environment, "# end"
        )
        after = net.counters()
    threshold, rows = rows_of(text)
    # A pair moves the plain sum at least: 2 (N - 1) / N of its bytes. Fewer: something went around the links.
    least = sum(int(row["pairs"]) * int(row["bytes"]) for row in rows)
    if not mpi_launch.check_bytes(before, after, least):
        raise RanksFailed(f"{mpi}: the links carried fewer bytes than the plain all-reduces have", [])
    for row in rows:
        row |= {
            "how": "measured",
            "goodput_mbit": f"{min(seen['duplex_mbit']):.1f}",
            "rtt_ms": f"{max(seen['rtt_ms']):.3f}",
        }
        yield {"figure": figure, "mpi": mpi, "link": link, "threshold": threshold, **row}


def without_links(build, gradients, run):
    """Rows on this machine's own transport, and the same with the link's time added: labelled, no measurement."""
    figure, mpi, link, environment, _, _, _ = run
    spec = LinkSpec.parse(link)
    words = [
        f"mpirun.{mpi}",
        "-np",
        RANKS,
        "env",
        *(f"{k}={v}" for k, v in environment.items()),
        *words_of(build, gradients, run),
    ]
    if mpi == "openmpi":
        words[1:1] = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    done = subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, timeout=3 * expected_seconds(run) + 60, check=True
    )
    threshold, rows = rows_of(done.stdout)
    for row in rows:
        payload = 2 * (RANKS - 1) / RANKS * int(row["bytes"])
        for key, bits in (("plain_us", 32), ("gradwire_us", float(row["bits"]))):
            row[key] = f"{1e6 * computed.step_seconds(spec, float(row[key]) / 1e6, payload * bits / 32, 2):.1f}"
        row["ratio"] = f"{float(row['plain_us']) / float(row['gradwire_us']):.4f}"
        row |= {"low": "-", "high": "-", "how": "computed", "goodput_mbit": "-", "rtt_ms": "-"}
        yield {"figure": figure, "mpi": mpi, "link": link, "threshold": threshold, **row}


def overhead(build):
    """Lines of allreduce_bench --overhead, both MPIs, ranks on one machine."""
    for mpi in mpi_launch.LAUNCHERS:
        words = [f"mpirun.{mpi}", *(["--allow-run-as-root", "--oversubscribe"] if mpi == "openmpi" else []), "-np", "2"]
        words.append(str(build / "bench" / "mpi" / f"allreduce_bench_{mpi}"))
        done = subprocess.run([*words, "--overhead"], capture_output=True, text=True, timeout=300, check=True)
        lines = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
        for row in csv.DictReader(lines, delimiter="\t"):
            yield {"mpi": mpi, **row}


def write(path, columns, rows):
    """Rows as they come, so that an interrupted run leaves what it has."""
    fresh = path.with_suffix(".tsv.new")
    with open(fresh, "w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, columns, delimiter="\t", lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            writer.writerow(row)
            f.flush()
    fresh.rename(path)


def rows_of_others(path, runs):
    """Rows of an earlier file that none of these runs measures."""
    names = {run[:3] for run in runs}
    with open(path, encoding="utf-8", newline="") as f:
        return [r for r in csv.DictReader(f, delimiter="\t") if (r["figure"], r["mpi"], r["link"]) not in names]


def in_order(rows):
    """Rows as a whole run would have written them."""
    order = [run[:3] for run in plan(False)]
    return sorted(rows, key=lambda row: order.index((row["figure"], row["mpi"], row["link"])))


def measured(measure, build, gradients, run):
    """All rows of a run. Open MPI's launcher crashes now and then: a run that fails is tried once more."""
    try:
        return list(measure(build, gradients, run))
    except RanksFailed as error:
        print(f"again, after: {error}", flush=True)
        return list(measure(build, gradients, run))


def all_rows(build, gradients, runs, refused):
    for number, run in enumerate(runs, 1):
        why = mpi_launch.missing(run[1])
        if why:
            print(f"SKIP {run[0]} with {run[1]}: {why}", flush=True)
            continue
        begin = time.monotonic()
        yield from measured(without_links if refused else over_links, build, gradients, run)
        print(f"== {number} of {len(runs)}: {run[0]}, {run[1]}, {run[2]}: {time.monotonic() - begin:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("gradients", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="runs named FIGURE-MPI-LINK that match; rows of the others stay")
    chosen = parser.parse_args()
    refused = permission.refusal()
    if refused:
        print(f"limited links are not possible here: {refused}. Times are COMPUTED from bytes, not measured.")
    else:
        permission.enter()
    runs = [run for run in plan(chosen.quick) if re.search(chosen.only, "-".join(run[:3]))]
    kept = rows_of_others(chosen.out / "collectives.tsv", runs) if chosen.only else []
    print(
        f"== {len(runs)} runs, about {sum(map(expected_seconds, runs)) / 60:.0f} minutes on an idle machine", flush=True
    )
    build, gradients = chosen.build.resolve(), chosen.gradients.resolve()
    write(
        chosen.out / "collectives-overhead.tsv",
        ("mpi", "call", "plain_ns", "gradwire_ns", "overhead_ns", "low", "high"),
        overhead(build),
    )
    rows = itertools.chain(kept, all_rows(build, gradients, runs, refused))
    write(chosen.out / "collectives.tsv", COLUMNS, in_order(rows) if chosen.only else rows)


if __name__ == "__main__":
    main()
