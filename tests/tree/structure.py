"""The shape of the sources, as CONTRIBUTING.md and src/README.md state it.

    structure.py ROOT

Fails if includes have a cycle or leave the layers of src, if two source files have the same name, if a function of src,
tools, adapters or the planner has more than 80 lines or a public function more than six parameters, if README.md has
120 lines or more, or if scripts has more than 15 files.

SPDX-License-Identifier: BSD-2-Clause
"""

import collections
import pathlib
import re
import subprocess
import sys

SOURCES = {".c", ".h", ".cc", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.M)

# What the files of a folder of src may include, besides their own folder.
BACKEND = {"gradwire", "core", "gcomp", "thc", "classic"}
LAYERS = {
    "core": {"gradwire"},
    "gcomp": {"gradwire", "core"},
    "thc": {"gradwire", "core"},
    "classic": {"gradwire", "core", "gcomp"},
    "collective": {"gradwire", "core", "gcomp", "thc"},
    "scalar": BACKEND,
    "avx2": BACKEND,
    "avx512": BACKEND,
    "neon": BACKEND,
    "cuda": {"gradwire", "core", "gcomp", "thc"},
    "runtime": {"gradwire"},
}
# A library of its own: nothing else in src may include it.
RUNTIME = ("include/gradwire/runtime.h", "include/gradwire/runtime_thc.h")
# The planner is a library of its own: what its source files may include, and who may include them.
PLANNER = ("planner/src/", "planner/include/", "include/gradwire/")
PLANNER_USERS = (
    "planner/",
    "bench/plan/",
    "fuzz/fuzz_plan_",
    "tests/build/consumer/consumer_plan.c",
    "tools/gradwire.c",
)
BASELINES = "planner/src/baselines/"
BASELINES_USERS = (BASELINES, "planner/src/plan_solve.c")


def resolve(name, included, files):
    for base in (pathlib.PurePosixPath(name).parent, "src", "include", "planner/include"):
        path = str(pathlib.PurePosixPath(base) / included)
        if path in files:
            return path
    named = [f for f in files if f.endswith("/" + included)]
    return named[0] if len(named) == 1 else None


def cycles(graph):
    state, path = {}, []

    def visit(name):
        state[name] = "open"
        path.append(name)
        for target in sorted(graph[name]):
            if state.get(target) == "open":
                yield "include cycle: " + " -> ".join([*path[path.index(target) :], target])
            elif target not in state:
                yield from visit(target)
        path.pop()
        state[name] = "done"

    for name in sorted(graph):
        if name not in state:
            yield from visit(name)


def layers(graph):
    for name, targets in graph.items():
        folder = name.split("/")[1]
        for target in targets if name.startswith("src/") else ():
            top, below = target.split("/")[:2]
            if top in ("src", "include") and below != folder and below not in LAYERS[folder]:
                yield f"{name}: includes {target}"
            if target in RUNTIME and folder != "runtime":
                yield f"{name}: includes {target}"


def planner(graph):
    for name, targets in graph.items():
        for target in targets:
            inside = name.startswith(("planner/src/", "planner/include/"))
            if (
                (inside and not target.startswith(PLANNER))
                or (target.startswith("planner/") and not name.startswith(PLANNER_USERS))
                or (target.startswith(BASELINES) and not name.startswith(BASELINES_USERS))
            ):
                yield f"{name}: includes {target}"


def long_functions(name, text):
    """By the layout of clang-format: a body starts with a brace in column 1, after its head."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if line == "{":
            start = i
            while start > 0 and lines[start - 1].strip() and not re.match(r"[}#]|/\*| \*|.*;$", lines[start - 1]):
                start -= 1
            end = next((j for j in range(i, len(lines)) if lines[j].startswith("}")), len(lines))
            if end - start + 1 > 80:
                yield f"{name}:{start + 1}: a function of {end - start + 1} lines"


def many_parameters(name, text):
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for match in re.finditer(r"GW_API\b[^;(]*?\b(gw_\w+)\(([^;]*?)\);", code):
        if match[2].count(",") >= 6:
            yield f"{name}: {match[1]} has {match[2].count(',') + 1} parameters"


def main():
    root = pathlib.Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        print("SKIP: not a git checkout")
        return 77
    names = [n for n in listed.stdout.split() if pathlib.Path(n).suffix in SOURCES and (root / n).is_file()]
    files, graph, same = set(names), {}, collections.defaultdict(list)
    problems = []
    for name in names:
        text = (root / name).read_text(errors="replace")
        graph[name] = {t for i in INCLUDE.findall(text) if (t := resolve(name, i, files)) is not None}
        same[pathlib.PurePosixPath(name).name].append(name)
        if name.startswith(("src/", "tools/", "adapters/", "planner/")):
            problems += long_functions(name, text)
        if name.startswith(("include/", "planner/include/")):
            problems += many_parameters(name, text)
    problems += cycles(graph)
    problems += layers(graph)
    problems += planner(graph)
    problems += [f"same name: {' '.join(paths)}" for paths in same.values() if len(paths) > 1]
    readme = len((root / "README.md").read_text().splitlines())
    if readme >= 120:
        problems.append(f"README.md: {readme} lines")
    scripts = sum(n.startswith("scripts/") for n in listed.stdout.split())
    if scripts > 15:
        problems.append(f"scripts: {scripts} files")
    print("\n".join([*problems, f"{len(names)} files, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
