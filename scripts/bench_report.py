#!/usr/bin/env python3
"""Makes tables and plots of what gradwire_bench measured.

    scripts/bench_report.py NAME.json                       NAME.md, NAME-calls.svg, NAME-small.svg
    scripts/bench_report.py --targets OUT.md JSON [JSON]    aims and what was reached, the better of two compilers

Without matplotlib the plots are left out, and the tables say so.
"""

import json
import os
import re
import statistics
import sys

BACKENDS = ("scalar", "avx2", "avx512", "neon")
COLORS = {"scalar": "#777777", "avx2": "#1f77b4", "avx512": "#d62728", "neon": "#2ca02c"}
LABELS = {"scalar": "scalar", "avx2": "AVX2", "avx512": "AVX-512", "neon": "NEON"}
# What is aimed at, as a share of memcpy.
TARGETS = (
    ("encode, fast preset", "gcomp_encode", "explicit_fast", {"avx512": 0.65, "avx2": 0.27, "scalar": 0.05}),
    ("encode, small preset", "gcomp_encode", "explicit_small", {"avx512": 0.40, "avx2": 0.22, "scalar": 0.04}),
    ("decode", "gcomp_decode", "explicit_fast", {"avx512": 0.80, "avx2": 0.38, "scalar": 0.06}),
    ("hop", "gcomp_hop", "explicit_fast", {"avx512": 0.38, "avx2": 0.17, "scalar": 0.025}),
    ("hop, stochastic", "gcomp_hop", "explicit_fast_stochastic", {"avx512": 0.28, "avx2": 0.12, "scalar": 0.02}),
    ("THC encode", "thc_encode", "b4n8u8", {"avx512": 0.35, "avx2": 0.20, "scalar": 0.03}),
    ("THC decode", "thc_decode", "b4n8u8", {"avx512": 0.60, "avx2": 0.35, "scalar": 0.05}),
)
SUM_TARGETS = {"avx512": 15, "avx2": 10, "scalar": 1}  # Gvalues/s of thc_sum
DERIVED_TARGET = 0.85
BUSY_LOAD = 0.5  # load average above which a machine was not alone
ONE_CORE_TEXT = (
    "One core, pinned. `vs memcpy` is the time of the C library's memcpy of the same fp32 bytes over the time of the "
    "work, the "
    "two timed in turns in one process on touched memory, on the thread's own clock: median and 10-90 % range of at "
    "least 9 "
    "pairs. Differences below 10 % are ties. GB are 10^9 bytes of fp32. Cold: everything a call reads or writes was "
    "flushed from "
    "the caches before."
)
THREADS_TEXT = (
    "Not pinned. The same work in one thread and in several, timed in turns in one process on touched memory, caches "
    "as the "
    "run before left them: median and 10-90 % range of at least 9 pairs. Differences below 10 % are ties. GB are "
    "10^9 bytes of "
    "fp32."
)


class Entry:
    """One benchmark: its name in parts, its counters."""

    def __init__(self, record):
        name = re.sub(r"/iterations:1(/manual_time)?$", "", record["name"])
        self.parts = name.split("/")
        self.error = record.get("error_message") if record.get("error_occurred") else None
        self.counters = record

    def __getitem__(self, key):
        return self.counters[key]

    def get(self, key):
        return self.counters.get(key)


def load(path):
    with open(path, encoding="utf-8") as f:
        report = json.load(f)
    return report["context"], [Entry(r) for r in report["benchmarks"]]


def backends_of(entries):
    present = {e.parts[1] for e in entries}
    return [b for b in BACKENDS if b in present]


def ratio(e, key="vs_memcpy"):
    digits = 3 if e[key] < 0.1 else 2
    return f"{e[key]:.{digits}f} ({e[key + '_p10']:.{digits}f}-{e[key + '_p90']:.{digits}f})"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def pivot(entries, key_of, cell_of, columns):
    """Rows in order of appearance, a column a backend."""
    rows = {}
    for e in entries:
        rows.setdefault(key_of(e), {})[e.parts[1]] = e.error or cell_of(e)
    return [list(key) + [cells.get(b, "") for b in columns] for key, cells in rows.items()]


def named(entries, call):
    return [e for e in entries if e.parts[0] == call]


def spread(values):
    low, high = min(values), max(values)
    digits = 3 if low < 0.1 else 2
    text = f"{low:.{digits}f}"
    return text if f"{high:.{digits}f}" == text else f"{text}-{high:.{digits}f}"


def target_values(entries, backend):
    """What TARGETS, SUM_TARGETS and DERIVED_TARGET speak of: [(label, a value for each data set, target)]."""
    cold = [e for e in entries if e.error is None and e.parts[-2:] == ["25MiB", "cold"] and e.parts[1] == backend]
    rows = []
    for label, call, mode, targets in TARGETS:
        rows.append((label, [e["vs_memcpy"] for e in named(cold, call) if e.parts[3] == mode], targets.get(backend)))
    rows.append(("THC sum, Gvalues/s", [e["GBps"] / 4 for e in named(cold, "thc_sum")], SUM_TARGETS.get(backend)))
    for call in ("gcomp_encode", "gcomp_decode"):
        explicit = {e.parts[2]: e["vs_memcpy"] for e in named(cold, call) if e.parts[3] == "explicit_fast"}
        rows.append(
            (
                f"{call[6:]}, derived step 1 / explicit",
                [
                    e["vs_memcpy"] / explicit[e.parts[2]]
                    for e in named(cold, call)
                    if e.parts[3] == "derived1_fast" and e.parts[2] in explicit
                ],
                DERIVED_TARGET,
            )
        )
    return rows


def target_cell(values, target):
    if not values:
        return ""
    if target is None:
        return spread(values)
    verdict = "met" if min(values) >= target else "met on some data" if max(values) >= target else "missed"
    return f"{spread(values)} of {target}, {verdict}"


def targets_section(entries):
    columns = backends_of([e for e in entries if e.parts[0].startswith("gcomp_") and e.parts[-2:] == ["25MiB", "cold"]])
    if not columns:
        return ""
    by_backend = [target_values(entries, b) for b in columns]
    rows = [[cells[0][0]] + [target_cell(values, target) for _, values, target in cells] for cells in zip(*by_backend)]
    return (
        "## Targets\n\nShare of memcpy, 25 MiB, cold; lowest and highest of the data sets.\n\n"
        + table(["work"] + [LABELS[b] for b in columns], rows)
        + "\n"
    )


def compiler_name(context):
    """gcc 12.2.0"""
    words = context["compiler"].split()
    return " ".join([{"GNU": "gcc", "Clang": "clang"}.get(words[0], words[0])] + words[1:2])


def better_of(runs):
    """[(compiler, values)] -> the one with the larger geometric mean over the data sets."""
    runs = [run for run in runs if run[1]]
    return max(runs, key=lambda run: statistics.geometric_mean(run[1])) if runs else (None, [])


def better_targets(reports):
    """Targets with the better of the given runs in each cell; reports is [(context, entries)]."""
    columns = backends_of(
        [
            e
            for _, entries in reports
            for e in entries
            if e.parts[0].startswith("gcomp_") and e.parts[-2:] == ["25MiB", "cold"]
        ]
    )
    lines = {}
    for b in columns:
        for cells in zip(*(target_values(entries, b) for _, entries in reports)):
            compiler, values = better_of(
                [(compiler_name(context), cell[1]) for (context, _), cell in zip(reports, cells)]
            )
            text = target_cell(values, cells[0][2])
            if text and len(reports) > 1:
                others = [
                    f"{compiler_name(context)} {spread(cell[1])}"
                    for (context, _), cell in zip(reports, cells)
                    if compiler_name(context) != compiler and cell[1]
                ]
                text += f" ({compiler}; {', '.join(others)})" if others else f" ({compiler})"
            lines.setdefault(cells[0][0], []).append(text)
    return table(["work"] + [LABELS[b] for b in columns], [[label] + cells for label, cells in lines.items()])


def machine_text(context, entries):
    """What was measured on what, and whether it was alone."""
    load = context["load_avg"][0] if context.get("load_avg") else None
    text = (
        f"{context['date'][:10]}, {context.get('cpu', 'unknown processor')}, {context['num_cpus']} CPUs, governor "
        f"{context.get('governor', 'not recorded')}, compiled with {context['compiler']}, commit "
        f"{context.get('commit', 'not recorded')}, {context.get('seconds', 'an unrecorded number of')} s a benchmark. "
        f"Load average at the start: {'unknown' if load is None else f'{load:.2f}'}"
        f"{', a **busy machine**' if load is not None and load > BUSY_LOAD else ''}."
    )
    others = [e["others"] for e in entries if e.get("others") is not None]
    if others:
        stolen = [e["stolen"] for e in entries if e.get("stolen") is not None]
        share = statistics.fmean(others)
        text += (
            f" While it ran other programs used {max(0, share):.2f} processors on average, and the hypervisor took "
            f"{statistics.fmean(stolen):.2f} away."
        )
    return text


def calls_section(entries):
    text = ""
    for title, prefix in (("GCOMP", "gcomp_"), ("THC", "thc_")):
        chosen = [e for e in entries if e.parts[0].startswith(prefix)]
        if chosen:
            columns = backends_of(chosen)
            text += f"## {title}\n\nShare of memcpy (10-90 %), GB/s of fp32.\n\n"
            rows = pivot(
                chosen,
                lambda e: (
                    e.parts[0][len(prefix) :],
                    e.parts[2],
                    e.parts[3],
                    e.parts[4],
                    e.parts[5],
                    f"{e['bits_per_value']:.2f}" if e.get("bits_per_value") else "",
                ),
                lambda e: f"{ratio(e)}, {e['GBps']:.3g}",
                columns,
            )
            text += (
                table(["call", "data", "mode", "size", "caches", "bits/value"] + [LABELS[b] for b in columns], rows)
                + "\n"
            )
    return text


def peers_section(entries):
    peers = named(entries, "peer")
    if not peers:
        return ""
    rows = []
    for e in peers:
        rows.append(
            [e.parts[1], *e.parts[2:]]
            + ([e.error, "", ""] if e.error else [ratio(e), f"{e['GBps']:.3g}", f"{e['bits_per_value']:.2f}"])
        )
    return (
        "## Peers\n\n`huffman_exponents` is zstd's Huffman coder on the exponent bytes, already split off; the bits "
        "count the "
        "other 24. `bf16_cast` is a loop of C vectorised by the compiler, for SSE2, AVX2 and AVX-512.\n\n"
        + table(["peer", "data", "size", "caches", "vs memcpy (10-90 %)", "GB/s", "bits/value"], rows)
        + "\n"
    )


def kernels_section(entries):
    kernels = named(entries, "kernel")
    if not kernels:
        return ""
    slots = {}
    for e in kernels:
        slots.setdefault(e.parts[1], {})[e.parts[2]] = e
    columns = [b for b in BACKENDS if any(b in s for s in slots.values())]
    rows = []
    for slot, versions in slots.items():
        cells = []
        for b in columns:
            e = versions.get(b)
            if e is None:
                cells.append("")
            elif e.error:
                cells.append(e.error)
            else:
                gain = "" if b == "scalar" else f" ({versions['scalar']['us'] / e['us']:.1f}x)"
                cells.append(f"{e['ns_per_value']:.3g}{gain}")
        rows.append([slot] + cells)
    return (
        "## Kernels\n\nNanoseconds a value in the nearest cache, on the inputs of tests/kernels, and how many times "
        "as fast as "
        "scalar.\n\n" + table(["slot"] + [LABELS[b] for b in columns], rows) + "\n"
    )


def small_section(entries):
    small = [e for e in entries if e.parts[0].startswith("small_")]
    if not small:
        return ""
    sizes, rows = [], {}
    for e in small:
        if e.parts[4] not in sizes:
            sizes.append(e.parts[4])
        key = (e.parts[0][6:].replace("_", " "), e.parts[3], LABELS[e.parts[1]])
        rows.setdefault(key, {})[e.parts[4]] = e.error or f"{e['us']:.3g}"
    order = sorted(rows, key=lambda key: (key[0], key[1]))
    return (
        "## Small messages\n\nMicroseconds a call, hot, by bytes of fp32.\n\n"
        + table(["call", "mode", "backend"] + sizes, [[*key] + [rows[key].get(s, "") for s in sizes] for key in order])
        + "\n"
    )


def threads_section(entries):
    threaded = [e for e in entries if e.parts[0].startswith("threads")]
    if not threaded:
        return ""
    columns = backends_of(threaded)
    count = re.match(r"threads(\d+)_", threaded[0].parts[0]).group(1)
    rows = pivot(
        threaded,
        lambda e: (e.parts[0].split("_", 1)[1], e.parts[3], e.parts[4]),
        lambda e: f"{ratio(e, 'speedup')}, {e['GBps']:.3g}",
        columns,
    )
    return (
        f"## {count} threads\n\nSpeed of chunk ranges in {count} threads over one thread (10-90 %), wall time, and "
        "GB/s. "
        "Starting and joining the threads, and joining the parts of a frame, count.\n\n"
        + table(["call", "mode", "size"] + [LABELS[b] for b in columns], rows)
        + "\n"
    )


def calls_plot(plt, entries, path):
    bars = []
    for e in entries:
        if e.error is None and e.parts[-2:] == ["25MiB", "cold"] and e.parts[2] == "resnet50-sgdm-step0400":
            if e.parts[0].startswith(("gcomp_", "thc_")):
                bars.append((f"{e.parts[0]} {e.parts[3]}".replace("_", " "), e.parts[1], e))
            elif e.parts[0] == "peer":
                bars.append((f"peer {e.parts[1]}".replace("_", " "), "peer", e))
    groups = []
    for label, _, _ in bars:
        if label not in groups:
            groups.append(label)
    figure, axes = plt.subplots(figsize=(9, 0.34 * len(groups) + 1.6))
    for y, group in enumerate(groups):
        members = [b for b in bars if b[0] == group]
        height = 0.8 / len(members)
        for i, (_, backend, e) in enumerate(members):
            at = y - 0.4 + (i + 0.5) * height
            axes.barh(
                at,
                e["vs_memcpy"],
                height,
                color=COLORS.get(backend, "#b8860b"),
                xerr=[[max(0, e["vs_memcpy"] - e["vs_memcpy_p10"])], [max(0, e["vs_memcpy_p90"] - e["vs_memcpy"])]],
                error_kw={"linewidth": 0.6},
            )
    axes.set_yticks(range(len(groups)), groups, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.6)
    axes.set_xlabel("speed / speed of memcpy of the same fp32 bytes (25 MiB, cold, median and 10-90 %)", fontsize=8)
    used = [b for b in BACKENDS if any(bar[1] == b for bar in bars)]
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[b]) for b in used] + [
        plt.Rectangle((0, 0), 1, 1, color="#b8860b")
    ]
    axes.legend(handles, [LABELS[b] for b in used] + ["peer"], fontsize=7, loc="upper right")
    axes.grid(axis="x", linewidth=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def small_plot(plt, entries, path):
    panels = [
        ("small_gcomp_encode", "explicit_fast"),
        ("small_gcomp_decode", "explicit_fast"),
        ("small_thc_encode", "b4n8u8"),
        ("small_thc_decode", "b4n8u8"),
    ]
    figure, all_axes = plt.subplots(1, len(panels), figsize=(10, 3), sharey=True)
    for axes, (call, mode) in zip(all_axes, panels):
        for b in BACKENDS:
            points = [
                (int(e.parts[4].removesuffix("KiB")), e["us"])
                for e in named(entries, call)
                if e.error is None and e.parts[1] == b and e.parts[3] == mode
            ]
            if points:
                axes.plot(*zip(*points), marker="o", markersize=3, color=COLORS[b], label=LABELS[b], linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_title(f"{call[6:]}\n{mode}".replace("_", " "), fontsize=8)
        axes.set_xlabel("KiB of fp32", fontsize=7)
        axes.tick_params(labelsize=7)
        axes.grid(linewidth=0.3)
    all_axes[0].set_ylabel("microseconds a call", fontsize=8)
    all_axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def write_targets(out_path, paths):
    reports = [load(path) for path in paths]
    kinds = {context["data"] for context, _ in reports}
    text = (
        f"# gradwire_bench: {os.path.basename(out_path).removesuffix('.md')}\n\n"
        "What is aimed at and what was reached: share of memcpy, 25 MiB, cold, one core, lowest and highest of the "
        "data sets"
        f" ({', '.join(sorted(kinds))})."
        + (
            " Of the runs below each cell has the one that is faster on average over the data sets and names its "
            "compiler; "
            "the other's figures follow it. Differences below 10 % are ties.\n\n"
            if len(reports) > 1
            else "\n\n"
        )
    )
    for path, (context, entries) in zip(paths, reports):
        name = os.path.basename(path).removesuffix(".json")
        text += f"- [{name}]({name}.md): {machine_text(context, entries)}\n"
    with open(out_path, "w", encoding="utf-8") as out:
        out.write(text + "\n" + better_targets(reports))


def write_report(path):
    stem = path.removesuffix(".json")
    context, entries = load(path)
    plots = []
    try:
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams["svg.hashsalt"] = "gradwire"
        import matplotlib.pyplot as plt

        if any(e.parts[0].startswith("gcomp_") and e.parts[-2:] == ["25MiB", "cold"] for e in entries):
            calls_plot(plt, entries, stem + "-calls.svg")
            plots.append("-calls.svg")
        if any(e.parts[0].startswith("small_") for e in entries):
            small_plot(plt, entries, stem + "-small.svg")
            plots.append("-small.svg")
    except ImportError:
        print("no matplotlib: no plots", file=sys.stderr)
    with open(stem + ".md", "w", encoding="utf-8") as out:
        out.write(
            f"# gradwire_bench: {os.path.basename(stem)}\n\n"
            f"{machine_text(context, entries)} Gradients of {context['data']}, repeated to the size with other signs "
            "and "
            "low bits.\n\n"
            + (THREADS_TEXT if all(e.parts[0].startswith("threads") for e in entries) else ONE_CORE_TEXT)
            + "\n\n"
        )
        for suffix in plots:
            out.write(f"![{suffix[1:-4]}]({os.path.basename(stem)}{suffix})\n")
        out.write("\n" if plots else "")
        for section in (targets_section, calls_section, peers_section, kernels_section, small_section, threads_section):
            out.write(section(entries))


def main():
    if len(sys.argv) in (4, 5) and sys.argv[1] == "--targets":
        write_targets(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        write_report(sys.argv[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
