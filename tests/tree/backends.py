"""src/core/backends.def is the only list of backends, and backends are independent of each other.

    backends.py ROOT

Fails if C, C++, Python or shell code outside the registry names three or more CPU backends in one statement, if a
source file outside src/<backend> includes one of its headers or names one of its functions, or if the registry, the
public enum and the folders disagree.

SPDX-License-Identifier: BSD-2-Clause
"""

import pathlib
import re
import subprocess
import sys

KINDS = {".c": "c", ".h": "c", ".cc": "c", ".cpp": "c", ".cu": "c", ".cuh": "c", ".py": "script", ".sh": "script"}


def kind_of(path, text):
    return KINDS.get(path.suffix) or ("script" if not path.suffix and text.startswith("#!") else None)


def without_comments(text, kind):
    """The text with the same lines, comments (and docstrings) blanked."""
    comment = r"/\*.*?\*/|//[^\n]*" if kind == "c" else r'"""(?:.|\n)*?"""|(?<!\S)#[^\n]*'
    return re.sub(comment, lambda m: "\n" * m.group().count("\n"), text, flags=re.S if kind == "c" else 0)


def statements(text, kind):
    """(line, text) of pieces between the ends of statements; in scripts, runs of lines without a blank one."""
    at = 1
    for piece in re.split(r"(;|\n\s*\n)" if kind == "c" else r"(\n\s*\n)", text):
        yield at, piece
        at += piece.count("\n")


def check_lists(name, text, kind, backends):
    for line, piece in statements(without_comments(text, kind), kind):
        for window in re.finditer(r"(?:.*\n?){1,3}", piece):
            named = {b for b in backends if re.search(rf"(?<![a-z0-9]){b}(?![a-z0-9])", window.group().lower())}
            if len(named) >= 3:
                yield f"{name}:{line + piece[: window.start()].count(chr(10))}: lists {', '.join(sorted(named))}"


def check_independence(name, text, backends):
    """For files of src/."""
    own = name.split("/")[1]
    code = without_comments(text, "c")
    for b in backends:
        if b != own:
            for m in re.finditer(rf'#include "{b}/[^"]*"|\bgw_\w+_{b}\b', code):
                yield f"{name}:{code[: m.start()].count(chr(10)) + 1}: {m.group()} belongs to {b}"


def check_registry(root, rows):
    header = (root / "include/gradwire/gradwire.h").read_text()
    public = dict(re.findall(r"GW_BACKEND_(\w+) = 1u << (\d)", header))
    if public != {upper: bit for _, bit, _, upper in rows}:
        yield f"include/gradwire/gradwire.h: enum gw_backend is {public}"
    for kind, _, name, _ in rows:
        if kind == "GW_CPU" and not (root / f"src/{name}/init_{name}.c").exists():
            yield f"src/core/backends.def: {name} has no src/{name}/init_{name}.c"


def check_slots(root, code):
    """Every slot has a kcheck family; fence only orders stores."""
    selected = set(re.findall(r"KC_SELECT(?:_THC|_CLASSIC)?\((\w+)|KC_SELECT_MEMBER\(\w+, (?:\w+\.)?(\w+)", code))
    selected = {name for pair in selected for name in pair}
    for codec in ("gcomp", "thc", "classic"):
        header = (root / f"src/core/{codec}_kernels.h").read_text()
        body = re.search(rf"typedef struct gw_{codec}_kernels {{(.*?)}}", header, re.S).group(1)
        for slot in re.findall(r"\*(\w+);", body):
            if slot not in selected | {"fence"}:
                yield f"src/core/{codec}_kernels.h: no family of tests/kernels has the slot {slot}"


def main():
    root = pathlib.Path(sys.argv[1])
    registry = (root / "src/core/backends.def").read_text()
    rows = re.findall(r"^(\w+)_BACKEND\((\d), (\w+), (\w+), ", registry, re.M)
    backends = [name for kind, _, name, _ in rows if kind == "GW_CPU"]
    problems = list(check_registry(root, rows))
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        print("SKIP: not a git checkout")
        return 77
    families = ""
    for name in listed.stdout.split():
        path = root / name
        text = path.read_text(errors="replace") if path.is_file() else ""
        kind = kind_of(path, text)
        if kind is None:
            continue
        if name != "tests/tree/backends.py":
            problems += check_lists(name, text, kind, backends)
        if name.startswith("tests/kernels/"):
            families += text
        if name.startswith("src/"):
            problems += check_independence(name, text, backends)
    problems += check_slots(root, families)
    print("\n".join(problems + [f"{len(rows)} backends, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
