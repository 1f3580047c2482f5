"""docs/results/collectives.md and collectives.svg from collectives.tsv, collectives-overhead.tsv and, where they are
there, collectives-ring.tsv and collectives-layer.csv (allreduce steps beside the codec calls that they consist of).

    collectives_page.py FOLDER
"""

import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from result_pages import table  # noqa: E402

RANKS = 4
GOALS = {"carried": 3.0, "thc": 2.0}


def read(path):
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as f:
        return list(csv.DictReader(f, delimiter="," if path.suffix == ".csv" else "\t"))


def layer_part(rows):
    """Google Benchmark's rows: name = step/backend/gradients/mode/size/..., speedup = codec calls / layer."""
    body = []
    for row in rows:
        step, backend, _, mode, size = row["name"].split("/")[:5]
        share = float(row["speedup"])
        cells = [step, backend, mode, size, f"{float(row['us']):.0f}", f"{100 * (1 / share - 1):+.1f}"]
        body.append([*cells, "yes" if 1 / share <= 1.1 else "**missed**"])
    return table(["step", "backend", "mode", "bucket", "us", "layer over its codec calls, %", "within 10 %"], body)


def size_text(size):
    size = int(size)
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def interval(row):
    return "-" if row["low"] == "-" else f"{float(row['low']):.3f} to {float(row['high']):.3f}"


def milliseconds(text):
    return f"{float(text) / 1e3:.3f}"


def never(threshold):
    return "never" if "never" in threshold else threshold


def ring_milliseconds(row):
    """What an fp32 ring would take if nothing but the link's rate counted."""
    if row["goodput_mbit"] == "-":
        return "-"
    return milliseconds(8 * 2 * (RANKS - 1) / RANKS * int(row["bytes"]) / float(row["goodput_mbit"]))


def figure_part(rows):
    body = []
    for row in rows:
        goal = GOALS[row["mode"]] if row["mode"] in GOALS else None
        reached = "-" if goal is None else f"{goal:g}: {'yes' if float(row['ratio']) >= goal else '**missed**'}"
        cells = [
            row["mpi"],
            row["mode"],
            row["bits"],
            row["pairs"],
            ring_milliseconds(row),
            milliseconds(row["plain_us"]),
            milliseconds(row["gradwire_us"]),
        ]
        body.append([*cells, f"{float(row['ratio']):.2f}", interval(row), reached, row["nmse"]])
    head = [
        "MPI",
        "mode",
        "bits a value",
        "pairs",
        "fp32 ring at the probed rate, ms",
        "plain, ms",
        "gradwire, ms",
        "plain / gradwire",
        "95 %",
        "goal",
        "NMSE",
    ]
    return table(head, body)


def slower(row):
    """Whether the interval speaks against "not slower than plain by more than 2 %"."""
    return row["high"] != "-" and float(row["high"]) < 0.98


def link_part(rows):
    first = rows[0]
    text = f"\n### {first['link']}\n\n"
    if first["how"] == "measured":
        text += (
            f"Probe: {first['goodput_mbit']} Mb/s of TCP payload each way at once, round trip {first['rtt_ms']} ms. "
        )
    else:
        text += "**Computed from bytes, not measured.** "
    text += f"Automatic threshold: {never(first['threshold'])}.\n\n"
    body = []
    for row in rows:
        note = "**slower**" if slower(row) else ""
        cells = [size_text(row["bytes"]), row["mode"], row["pairs"], milliseconds(row["plain_us"])]
        body.append(
            [*cells, milliseconds(row["gradwire_us"]), f"{float(row['ratio']):.3f}", interval(row), row["bits"], note]
        )
    return text + table(
        ["size", "sent", "pairs", "plain, ms", "gradwire, ms", "plain / gradwire", "95 %", "bits", ""], body
    )


def ring_part(rows):
    body = []
    for row in rows:
        times = [milliseconds(row["a2a_us"]), milliseconds(row["ring_us"])]
        sent = [f"{int(row[key]) / (1 << 20):.2f}" for key in ("a2a_sent", "ring_sent")]
        cells = [row["ranks"], row["link"], row["goodput_mbit"], *sent, row["a2a_nmse"], row["ring_nmse"], row["pairs"]]
        body.append([*cells, *times, f"{float(row['ratio']):.2f}", interval(row)])
    head = ["ranks", "link", "Mb/s probed", "A2A+AG sends, MiB", "ring sends, MiB", "A2A+AG NMSE", "ring NMSE", "pairs"]
    return table([*head, "A2A+AG, ms", "ring, ms", "A2A+AG / ring", "95 %"], body)


def plot(rows, path):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "gradwire"
    picture, axes = pyplot.subplots(figsize=(7, 4))
    for link in dict.fromkeys(row["link"] for row in rows):
        line = [row for row in rows if row["link"] == link]
        axes.plot([int(r["bytes"]) for r in line], [float(r["ratio"]) for r in line], marker="o", label=link)
    axes.axhline(1, color="grey", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("bytes")
    axes.set_ylabel("plain time / gradwire time")
    axes.set_title("MPI_Allreduce, 4 ranks, automatic threshold")
    axes.legend()
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})


def page(rows, overhead, ring, layer):
    main = [row for row in rows if row["figure"] == "figure"]
    tables = [row for row in rows if row["figure"] == "table"]
    text = "# Collectives over limited links\n\nMade by `bench/mpi/results_collectives` (docs/testing.md "
    text += "says how links are made); 4 ranks on one machine, for the ring 2, 4 and 8.\n"
    text += "Times are medians of the slowest rank's; ratios are geometric means over pairs that alternate "
    text += "within one run.\n"
    text += "\n## 25 MiB of real gradients at 1 Gb/s\n\nAgainst the same MPI's fp32 `MPI_Allreduce`.\n\n" + figure_part(
        main
    )
    text += "\n## 4 KiB to 256 MiB, automatic threshold\n\n*sent* `plain`: the call passed through. A ratio "
    text += "whose interval lies below 0.98 is marked.\n"
    text += "\n![Ratio over size](collectives.svg)\n"
    for link in dict.fromkeys(row["link"] for row in tables):
        text += link_part([row for row in tables if row["link"] == link])
    if ring:
        text += "\n## A ring beside A2A+AG\n\nMade by `bench/mpi/results_collectives --ring`: 25 MiB of real "
        text += "gradients, mode carried at the default target 0.001, Open MPI. *Sends*: the mean over ranks. NMSE: "
        text += "against the sum in fp32. The two alternate within one run. Ranks share the cores, and the machine was "
        text += "loaded: ratios count, not times. GComp's paper adds in a ring (section 6.2); its figures are not "
        text += "available here.\n\n" + ring_part(ring)
    text += "\n## Calls that pass through\n\n"
    keys = ("mpi", "call", "plain_ns", "gradwire_ns", "overhead_ns")
    body = [[*(row[key] for key in keys), f"{row['low']} to {row['high']}"] for row in overhead]
    text += table(["MPI", "call", "plain, ns", "gradwire, ns", "overhead, ns (goal below 1000)", "95 %"], body)
    text += "\n## The layer's own cost\n\n"
    if layer:
        text += layer_part(layer)
    else:
        text += "Not in this run: no collectives-layer.csv.\n"
    text += "\n## Replica parity\n\nNot measured but tested: `ctest --test-dir build/release -R "
    text += "'collective|mpi'` compares bytes and values of all ranks.\n"
    return text


def main():
    folder = pathlib.Path(sys.argv[1])
    rows = read(folder / "collectives.tsv")
    ring = read(folder / "collectives-ring.tsv")
    text = page(rows, read(folder / "collectives-overhead.tsv"), ring, read(folder / "collectives-layer.csv"))
    data = (
        "collectives.tsv",
        "collectives-overhead.tsv",
        *(["collectives-ring.tsv"] if ring else []),
        "collectives-layer.csv",
    )
    text += "\nData: " + ", ".join(f"[{name}]({name})" for name in data) + ".\n"
    plot([row for row in rows if row["figure"] == "table"], folder / "collectives.svg")
    (folder / "collectives.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
