#!/usr/bin/env python3
"""Thread-instructions per value of layout_decode.cu, from its machine code and the statistics of real chunks.

usage: count_sass.py STATS SASS [--blocks] [--table NAME]
  STATS  output of `layout_bench stats`
  SASS   output of `nvdisasm -c -gi` for a cubin compiled with -lineinfo

Method. The code is cut into basic blocks at labels and after branches. Every instruction carries its source line and
the chain of calls it was inlined through; the innermost line that lies in a marked part of the source (comments of
the form /* @region */) gives its region, and the region that most instructions of a block have gives the block's. A
region has a weight: how many warps execute it per chunk, derived from the statistics (number of nodes, tasks of a
warp, words) as written in weights(). All instructions of an executed block count, also those whose predicate is off
and those of a warp with idle lanes: they take an issue slot. Instructions per value = 32 * sum(instructions * weight)
/ 16384.

Not in it: bank conflicts, replays, stalls, and what the compiler for a later GPU would do.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import gpu_sass

CHUNK = 16384
WARPS = 8


def source_regions(path):
    """Region by line number; None outside of marked functions."""
    regions, current = {}, None
    for number, line in enumerate(open(path), 1):
        mark = re.search(r"/\* @(\w+) \*/", line)
        if mark:
            current = None if mark.group(1) == "other" else mark.group(1)
        if line.startswith("}"):
            current = None
        regions[number] = current
    return regions


def blocks_of(path, regions):
    """Basic blocks: (labels, ops, region, loops on itself)."""

    def region_of(chain):
        names = [regions[n] for file, n in chain if file.endswith(".cu") and regions.get(n)]
        return "never" if "never" in names else names[0] if names else "setup"

    blocks = gpu_sass.blocks_of(pathlib.Path(path).read_text(), "lay_decode", region_of)
    # Behind the last EXIT lie the ways that shuffles and votes take in warps that are not converged, which here they
    # are, and padding.
    while blocks and not re.search(r"\bEXIT\b", blocks[-1][1][-1][0]):
        blocks.pop()
    return blocks


def weights(s):
    """Executions by warps per chunk of every region."""
    tasks = s["inner_tasks"] + s["flat_tasks"] + s["constant_tasks"]
    rounds = 2 * WARPS
    return {
        "copy": WARPS,
        "copy_loop": s["bytes"] / 16 / 32,
        "setup": WARPS,
        "once": WARPS,
        "parts": 1,  # one warp
        "parts_each": -(-s["nodes"] // 32),
        "parts_depth": s["height"],
        "parts_task": 13,  # as often as the largest node, a child of the root, has tasks
        "ones": WARPS,
        "ones_loop": -(-s["run_words"] // (4 * 256)) * WARPS,
        "depth": s["height"] * WARPS,
        "task": tasks,
        "merge": s["inner_tasks"],
        "flat": (s["flat_tasks"] + s["constant_tasks"])
        / 2,  # a tree of comparisons: a way through it is less than half of it
        "const": s["constant_tasks"],
        **{f"flat{k}": s[f"flat{k}"] for k in range(1, 8)},
        "root": rounds,
        "root_merge": rounds,
        "never": 0,
        "look_up": rounds,
        "scan": rounds,
        "join": rounds,
        # The loop runs as often as the lane with most of them; the code is there twice, once for each half.
        "rare": s["rare_any"] / 2,
        "rare_each": s["rare_most"] / 2,
    }


def read_stats(path):
    rows = []
    for line in open(path):
        words = line.split()
        numbers = words[2:]
        rows.append((words[0], words[1], dict(zip(numbers[::2], map(float, numbers[1::2])))))
    return rows


def main():
    stats, sass = sys.argv[1:3]
    source = __file__.replace("count_sass.py", "layout_decode.cu")
    blocks = blocks_of(sass, source_regions(source))
    if "--blocks" in sys.argv:
        for labels, ops, region, loops in blocks:
            print(f"{','.join(labels):>20} {len(ops):4} {region}{'_loop' if loops else ''}")
    print(f"{sum(len(b[1]) for b in blocks)} instructions in {len(blocks)} blocks")
    totals = []
    for name, mode, s in read_stats(stats):
        if mode not in ("explicit-fast", "explicit-small"):
            continue
        w = weights(s)
        by_region, loads = {}, 0
        for _, ops, region, loops in blocks:
            weight = w[region + "_loop"] if loops and region + "_loop" in w else w[region]
            by_region[region] = by_region.get(region, 0) + len(ops) * weight * 32 / CHUNK
            loads += sum(1 for t, _ in ops if re.search(r"\b(LDS|STS|SHFL|LDSM)\b", t)) * weight * 32 / CHUNK
        total = sum(by_region.values())
        totals.append(total)
        groups = {
            "copy, set-up": ("copy", "setup", "once", "parts", "parts_each", "parts_depth", "parts_task"),
            "set bits": ("ones", "ones_loop"),
            "nodes": ("depth", "task", "merge", "flat", "const", *(f"flat{k}" for k in range(1, 8))),
            "root": ("root", "root_merge", "never"),
            "look-up, scan": ("look_up", "scan"),
            "digits, join": ("join", "rare", "rare_each"),
        }
        parts = ", ".join(f"{g} {sum(by_region.get(r, 0) for r in rs):.1f}" for g, rs in groups.items())
        print(f"{name:36} {mode:15} {total:5.1f} instructions a value ({parts}); {loads:.1f} shared-memory or shuffle")
    print(f"largest {max(totals):.1f}")


if __name__ == "__main__":
    main()
