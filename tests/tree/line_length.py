"""No line of C, C++, CUDA or assembly is longer than 110 columns (.clang-format, CONTRIBUTING.md).

line_length.py ROOT [--count]     --count: lines too long by file, longest first
"""

import collections
import pathlib
import sys

LIMIT = 110
FOLDERS = ("include", "src", "tools", "tests", "bench", "fuzz", "examples")
ENDINGS = {".c", ".h", ".cc", ".cu", ".cuh", ".S"}


def main():
    root = pathlib.Path(sys.argv[1])
    long_lines = []
    seen = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in ENDINGS:
                seen += 1
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    if len(line.expandtabs(4)) > LIMIT:
                        long_lines.append((path.relative_to(root), number, len(line)))
    if seen == 0:
        sys.exit(f"{root}: no sources")
    if "--count" in sys.argv:
        for path, count in collections.Counter(entry[0] for entry in long_lines).most_common():
            print(count, path)
    else:
        for path, number, length in long_lines:
            print(f"{path}:{number}: {length} columns")
    print(f"{len(long_lines)} lines of {seen} files are longer than {LIMIT} columns")
    return 1 if long_lines else 0


if __name__ == "__main__":
    sys.exit(main())
