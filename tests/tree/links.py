"""Links of the documentation resolve, and every page is reachable.

    links.py ROOT

Relative links of all *.md lead to files and headings that exist. Every *.md under docs can be reached by links from
docs/README.md, and every file of docs/results and docs/img is linked. Paths below docs that comments and code mention
exist.
"""

import os
import pathlib
import re
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
MENTION = re.compile(r"(?<![\w./])docs/[\w/.-]+\.(?:md|py|svg|tsv)\b")
SOURCES = {".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".py", ".md", ".txt", ".cmake", ""}
problems = []


def files_of(root):
    """All files but those of builds and hidden folders."""
    for folder, folders, names in os.walk(root):
        at_root = pathlib.Path(folder) == root
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build") if at_root else "."))
        yield from (pathlib.Path(folder, name) for name in sorted(names))


def prose(path):
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)


def anchors(path):
    """Names of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links_of(path):
    """Existing files that the page links."""
    found = set()
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", prose(path))):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            problems.append(f"{path}: no {link}")
            continue
        if anchor and target.suffix == ".md" and anchor not in anchors(target):
            problems.append(f"{path}: no heading {link}")
        found.add(target)
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = list(files_of(root))
    links = {path: links_of(path) for path in files if path.suffix == ".md"}
    docs, start = root / "docs", root / "docs" / "README.md"
    reached, waiting = {start}, [start]
    while waiting:
        for target in links.get(waiting.pop(), ()):
            if target not in reached and docs in target.parents:
                reached.add(target)
                waiting.append(target)
    pages = {path for path in links if docs in path.parents}
    problems.extend(f"{path}: cannot be reached from docs/README.md" for path in sorted(pages - reached))
    linked = set().union(*links.values())
    for path in files:
        if path.parent in (docs / "results", docs / "img") and path not in linked:
            problems.append(f"{path}: no page links it")
        if path.suffix in SOURCES:
            for mention in set(MENTION.findall(path.read_text(encoding="utf-8", errors="ignore"))):
                if not (root / mention).exists():
                    problems.append(f"{path}: mentions {mention}, which does not exist")
    for problem in problems:
        print(problem.replace(f"{root}/", ""))
    print(f"{len(links)} pages, {sum(map(len, links.values()))} links, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
