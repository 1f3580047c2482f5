"""Calls between files go one way, as includes do (structure.py).

    calls.py ROOT BUILD NM

Fails if there is a cycle among the C files outside tests, by the symbols that the object files in BUILD define and use,
or among the modules of python/gradwire, by their imports, wherever in a module they stand. A source without an object
file that is newer than it counts as not built, and is not checked.

SPDX-License-Identifier: BSD-2-Clause
"""

import ast
import collections
import pathlib
import subprocess
import sys

FOLDERS = ("src/", "planner/", "tools/", "adapters/", "python/")

# Modules that the build of the Python package makes from the headers: they import nothing of it.
MADE = {"_structs", "_constants", "_prototypes"}


def object_files(root, build, sources):
    """Object files by source; file names are unique in the tree."""
    by_name = {pathlib.PurePosixPath(name).name: name for name in sources}
    for path in build.rglob("*.o"):
        name = by_name.get(path.stem)
        if name is not None and path.stat().st_mtime >= (root / name).stat().st_mtime:
            yield path, name


def calls(root, build, nm, sources):
    """Graph: file -> file that it calls -> names."""
    source_of = {str(path): name for path, name in object_files(root, build, sources)}
    graph = {name: collections.defaultdict(set) for name in source_of.values()}
    if not source_of:
        return graph
    listed = subprocess.run([nm, "-A", "-g", *source_of], capture_output=True, text=True, check=True)
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    for line in listed.stdout.splitlines():
        path, symbol = line.rsplit(":", 1)
        *_, kind, name = symbol.split()
        (used if kind in "Uw" else defined)[name].add(source_of[path])
    for name, files in used.items():
        for user in files:
            for target in defined[name] - {user} if name in defined else ():
                graph[user][target].add(name)
    return graph


def module_file(name, files):
    """The file of a dotted name, None outside the package."""
    path = "python/" + name.replace(".", "/")
    return next((f for f in (path + ".py", path + "/__init__.py") if f in files), None)


def imports(root, files):
    """The same graph of Python modules."""
    graph = {}
    for name in files:
        parts = pathlib.PurePosixPath(name).with_suffix("").parts[1:]
        package = parts[:-1]
        targets = graph[name] = collections.defaultdict(set)
        for node in ast.walk(ast.parse((root / name).read_text())):
            if isinstance(node, ast.Import):
                wanted = [(alias.name, None) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                base = ".".join([*base, *([node.module] if node.module else [])])
                wanted = [(base + "." + alias.name, base) for alias in node.names]
            else:
                continue
            for full, base in wanted:
                if full.rpartition(".")[2] in MADE or base and base.rpartition(".")[2] in MADE:
                    continue
                target = module_file(full, files) or (base and module_file(base, files))
                if target and target != name:
                    targets[target].add(full.rpartition(".")[2])
    return graph


def cycles(graph):
    """Strongly connected parts of more than one file, by Tarjan's algorithm."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph.get(name, ()):
            if target not in index:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == index[name]:
            part = stack[stack.index(name) :]
            del stack[len(stack) - len(part) :]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def describe(graph, part):
    yield "call cycle of " + " ".join(part)
    for name in part:
        for target in part:
            if target in graph[name]:
                yield f"    {name} -> {target}: {' '.join(sorted(graph[name][target]))}"


def main():
    root, build, nm = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        print("SKIP: not a git checkout")
        return 77
    names = [n for n in listed.stdout.split() if (root / n).is_file()]
    sources = [n for n in names if n.startswith(FOLDERS) and n.endswith((".c", ".cpp"))]
    modules = {n for n in names if n.startswith("python/gradwire/") and n.endswith(".py")}
    graph = calls(root, build, nm, sources)
    built = len(graph)
    graph.update(imports(root, modules))
    problems = []
    for part in cycles(graph):
        problems += describe(graph, part)
    if not built:
        problems.append("no object files in " + str(build))
    print("\n".join([*problems, f"{built} of {len(sources)} sources built, {len(modules)} modules"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
