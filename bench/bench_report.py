#!/usr/bin/env python3
"""Reduces results of gradwire_bench to medians and makes docs/results/speed.md of them.

    bench/bench_report.py --medians BENCH.json OUT.tsv   from Google Benchmark's JSON to a table of medians
    bench/bench_report.py --write                        writes speed.md from bench-*.tsv
    bench/bench_report.py                                exit status 1 if speed.md differs from that

    --results DIRECTORY                                  instead of docs/results

A table of medians starts with lines `# key: value` about the machine and the run. Its columns: name of the benchmark;
us, median time of one run; GBps, fp32 bytes per second, so that 4 / GBps is ns per value; ratio, median of time of
memcpy / time of the work (in bench-threads.tsv: of one thread / of several); ratio_p10 and ratio_p90, its 10-90 %
range; bits per value.
"""

import argparse
import json
import os
import re
import statistics
import sys
import textwrap

from result_pages import RESULTS, backends, write_or_compare

COLUMNS = ("us", "GBps", "ratio", "ratio_p10", "ratio_p90", "bits")
LABELS = dict(backends.cpu())
BACKENDS = tuple(LABELS)
BUSY_LOAD = 0.5  # load average above which other programs were running
CALLS = (
    ("GCOMP encode", "gcomp_encode", "explicit_fast"),
    ("GCOMP encode, derived step 1", "gcomp_encode", "derived1_fast"),
    ("GCOMP encode, preset small", "gcomp_encode", "explicit_small"),
    ("GCOMP decode", "gcomp_decode", "explicit_fast"),
    ("GCOMP decode, derived step 1", "gcomp_decode", "derived1_fast"),
    ("GCOMP decode_add", "gcomp_decode_add", "explicit_fast"),
    ("GCOMP hop", "gcomp_hop", "explicit_fast"),
    ("GCOMP hop, stochastic rounding", "gcomp_hop", "explicit_fast_stochastic"),
    ("GCOMP encode, derived, t = 12", "gcomp_encode", "derived1_fast_t12"),
    ("GCOMP decode, derived, t = 12", "gcomp_decode", "derived1_fast_t12"),
    ("GCOMP decode_add, derived, t = 12", "gcomp_decode_add", "derived1_fast_t12"),
    ("GCOMP hop, derived, t = 12", "gcomp_hop", "derived1_fast_t12"),
    ("THC norms, 4 bits", "thc_norms", "b4n8u8"),
    ("THC encode, 4 bits", "thc_encode", "b4n8u8"),
    ("THC sum, 4 bits into bytes", "thc_sum", "b4n8u8"),
    ("THC decode", "thc_decode", "b4n8u8"),
)
# Design goals as a share of memcpy, in the order scalar, AVX2, AVX-512.
GOALS = {
    "GCOMP encode": (0.05, 0.27, 0.65),
    "GCOMP encode, preset small": (0.04, 0.22, 0.40),
    "GCOMP decode": (0.06, 0.38, 0.80),
    "GCOMP hop": (0.025, 0.17, 0.38),
    "GCOMP hop, stochastic rounding": (0.02, 0.12, 0.28),
    "GCOMP encode, derived, t = 12": (None, 0.22, 0.45),
    "GCOMP decode, derived, t = 12": (None, 0.50, 0.90),
    "GCOMP hop, derived, t = 12": (None, 0.15, 0.28),
    "THC encode, 4 bits": (0.03, 0.20, 0.35),
    "THC decode": (0.05, 0.35, 0.60),
}
SMALL_SIZES = ("1KiB", "2KiB", "4KiB", "8KiB", "16KiB", "32KiB", "64KiB")
PEERS = (
    ("zstd -1", r"zstd1"),
    ("lz4", r"lz4"),
    ("byte planes with Huffman", r"byte_split"),
    ("cast to bf16", r"bf16_cast(_\w+)?"),
    ("int8, a scale per 256 values", r"int8_blocks(_\w+)?"),
)


class Run:
    """One table of medians."""

    def __init__(self, path):
        self.name = os.path.basename(path).removesuffix(".tsv")
        self.about, self.rows = {}, {}
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
        for line in lines:
            if line.startswith("# "):
                key, _, value = line[2:].partition(": ")
                self.about[key] = value
            elif not line.startswith("name\t"):
                name, *cells = line.split("\t")
                self.rows[name] = {c: float(v) for c, v in zip(COLUMNS, cells) if v != ""}

    def select(self, pattern):
        """[(match, row)] of the names that match as a whole."""
        return [(m, row) for name, row in self.rows.items() if (m := re.fullmatch(pattern, name))]

    def machine(self):
        a = self.about
        busy = ", other programs were running" if float(a["load"]) > BUSY_LOAD else ""
        return (
            f"{a['date']}, {a['cpu']} ({a['cpus']} CPUs), {a['compiler']}, commit {a['commit']}, load average at the "
            f"start {a['load']}{busy}"
        )


# ---- from JSON ------------------------------------------------------------------------------------------------------


def medians(source, target):
    with open(source, encoding="utf-8") as f:
        report = json.load(f)
    context, rows, copies = report["context"], [], []
    others = [r["others"] for r in report["benchmarks"] if "others" in r]
    for record in report["benchmarks"]:
        name = record["name"].split("/iterations:")[0]
        if record.get("error_occurred"):
            sys.exit(f"{name}: {record['error_message']}")
        kind = "speedup" if "speedup" in record else "vs_memcpy"
        keys = ("us", "GBps", kind, kind + "_p10", kind + "_p90", "bits_per_value")
        rows.append("\t".join([name] + [f"{record[k]:.5g}" if k in record else "" for k in keys]))
        if "/25MiB/cold" in name and "memcpy_GBps" in record:
            copies.append(record["memcpy_GBps"])
    vendor, *rest = context["compiler"].split()
    about = {
        "date": context["date"][:10],
        "cpu": context["cpu"],
        "cpus": context["num_cpus"],
        "governor": context["governor"],
        "compiler": " ".join([{"GNU": "gcc", "Clang": "clang"}.get(vendor, vendor)] + rest[:1]),
        "commit": context["commit"],
        "data": context["data"],
        "seconds": context["seconds"],
        "load": f"{context['load_avg'][0]:.2f}",
        "others": f"{max(0, statistics.fmean(others)):.2f}",
    }
    if len(copies) > 1:
        tenths = statistics.quantiles(copies, n=10)
        about["memcpy"] = f"{tenths[0]:.1f} to {tenths[-1]:.1f} GB/s"
    with open(target, "w", encoding="utf-8") as f:
        f.writelines(f"# {key}: {value}\n" for key, value in about.items())
        f.write("\t".join(("name",) + COLUMNS) + "\n" + "\n".join(rows) + "\n")


# ---- speed.md -------------------------------------------------------------------------------------------------------


def paragraph(text):
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False) + "\n"


def section(title, intro, head, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in [head] + rows]
    lines.insert(1, "|" + "---|" * len(head))
    return f"## {title}\n\n{paragraph(intro)}\n" + "\n".join(lines) + "\n"


def spread(values):
    """0.26-0.27: smallest and largest."""
    low, high = min(values), max(values)
    digits = 3 if low < 0.1 else 2
    text = f"{low:.{digits}f}"
    return text if f"{high:.{digits}f}" == text else f"{text}-{high:.{digits}f}"


def ratios(run, call, mode, backend):
    return [row["ratio"] for _, row in run.select(f"{call}/{backend}/[^/]+/{mode}/25MiB/cold")]


def better(runs, call, mode, backend):
    """Ratios by data set in the run with the larger geometric mean."""
    found = [values for run in runs if (values := ratios(run, call, mode, backend))]
    return max(found, key=statistics.geometric_mean) if found else []


def backends_of(runs):
    present = {m[1] for run in runs for m, _ in run.select(r"(?:threads\d+_)?gcomp_\w+/(\w+)/.*")}
    return [b for b in BACKENDS if b in present]


def calls_section(runs, columns, title="Calls on 25 MiB"):
    rows = []
    for label, call, mode in CALLS:
        cells = []
        for backend in columns:
            values = better(runs, call, mode, backend)
            cell = spread(values) if values else ""
            goals = dict(zip(BACKENDS, GOALS.get(label, ())))
            if values and goals.get(backend):
                met = min(values) >= goals[backend]
                missed = max(values) < goals[backend]
                cell += f" ({goals[backend]}: {'met' if met else 'missed' if missed else 'met on some data'})"
            cells.append(cell)
        if any(cells):
            rows.append([label] + cells)
    compilers = ", from the faster of the two compilers" if len(runs) > 1 else ""
    memcpy = runs[0].about.get("memcpy", "an unrecorded speed")
    intro = f"""Time of memcpy / time of the call: lowest and highest of the data sets{compilers}. Explicit quanta,
        nearest rounding and preset fast unless stated; t = 12 with stochastic rounding and dead zone. In parentheses
        the design goal. memcpy reached {memcpy}
        (10-90 %)."""
    return section(title, intro, ["memcpy = 1"] + [LABELS[b] for b in columns], rows)


def peers_section(run):
    rows = []
    for label, pattern in PEERS:
        cells, bits = [], []
        for way in ("encode", "decode"):
            best = {}
            for match, row in run.select(f"peer/{pattern}_{way}/(?P<data>[^/]+)/25MiB/cold"):
                best[match["data"]] = max(row["ratio"], best.get(match["data"], 0))
                bits.append(row["bits"])
            cells.append(spread(best.values()) if best else "")
        if bits:
            rows.append([label] + cells + [spread(bits)])
    intro = f"""The same data and ratio, {run.about["compiler"]}. Cast, int8 and the byte split are loops of C,
        vectorised by the compiler for SSE2, AVX2 and AVX-512, the fastest per data set. Huffman is zstd's
        coder, a table per plane of 64 KiB."""
    return section("Other codecs", intro, ["codec", "encode", "decode", "bits per value"], rows)


def small_section(runs, backend):
    rows = []
    for label, call, mode in CALLS:
        cells = []
        for size in SMALL_SIZES:
            times = [row["us"] for run in runs for _, row in run.select(f"small_{call}/{backend}/[^/]+/{mode}/{size}")]
            cells.append("" if not times else f"{min(times):.2g}" if min(times) < 10 else f"{min(times):.0f}")
        if any(cells):
            rows.append([label] + cells)
    intro = f"Microseconds per call, {LABELS[backend]}, data in cache, by bytes of fp32."
    return section("Small messages", intro, ["call"] + [size.replace("KiB", " KiB") for size in SMALL_SIZES], rows)


def threads_section(run):
    columns, rows = backends_of([run]), {}
    for match, row in run.select(r"threads(\d+)_gcomp_(\w+)/(\w+)/[^/]+/(\w+)/(\w+)"):
        cell = f"{row['ratio']:.2f} ({row['ratio_p10']:.2f}-{row['ratio_p90']:.2f})"
        rows.setdefault((match[2], match[4], match[5]), {})[match[3]] = cell
        count = match[1]
    intro = f"""Chunk ranges in {count} threads against one thread, wall time, median and 10-90 %
        range; the time includes starting and joining the threads, and joining the parts of a frame."""
    cells = [[*key] + [found.get(b, "") for b in columns] for key, found in rows.items()]
    return section(f"{count} threads", intro, ["call", "mode", "size"] + [LABELS[b] for b in columns], cells)


def other_section(runs):
    """A machine without AVX-512: `bench/measure --name avx2-COMPILER`, perhaps of another commit."""
    title = f"The same on a machine without AVX-512, commit {runs[0].about['commit']}"
    return calls_section(runs, backends_of(runs), title)


def runs_of(folder, names):
    paths = {name: os.path.join(folder, f"bench-{name}.tsv") for name in names}
    return {name: Run(path) for name, path in paths.items() if os.path.exists(path)}


def speed_page(folder):
    runs = runs_of(folder, ("gcc", "clang", "threads"))
    other = runs_of(folder, ("avx2-gcc", "avx2-clang"))
    single = [run for name, run in runs.items() if name != "threads"]
    if not single:
        sys.exit(f"{folder}: neither bench-gcc.tsv nor bench-clang.tsv")
    columns = backends_of(single)
    intro = f"""One pinned core. Work and a memcpy of the same fp32 bytes are timed in turn, in one process, on the
        thread's CPU clock; figures are medians of at least 9 pairs. Everything a call reads or writes is flushed from
        the caches before each run. Data: real gradients ({single[0].about["data"]}), repeated to the size with other
        signs and low bits. Differences below 10 % are noise. Times of single kernels are in
        [kernels.md](../kernels.md). The picture in [README.md](../../README.md) has a run of its own,
        [bench-picture](bench-picture.tsv)."""
    text = "# Speed\n\nMade by `bench/bench_report.py` from the tables of medians that `bench/measure` wrote:\n\n"
    text += "".join(f"- [{run.name}]({run.name}.tsv): {run.machine()}\n" for run in (runs | other).values())
    text += f"\n{paragraph(intro)}\n"
    sections = [calls_section(single, columns)]
    if other:
        sections.append(other_section(list(other.values())))
    sections += [peers_section(single[0]), small_section(single, columns[-1])]
    if "threads" in runs:
        sections.append(threads_section(runs["threads"]))
    return text + "\n".join(sections)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--medians", nargs=2, metavar=("BENCH.json", "OUT.tsv"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--results", default=RESULTS)
    options = parser.parse_args()
    if options.medians:
        medians(*options.medians)
        return 0
    pages = {os.path.join(options.results, "speed.md"): speed_page(options.results)}
    return write_or_compare(pages, options.write, "bench/bench_report.py")


if __name__ == "__main__":
    sys.exit(main())
