"""Words stay what the glossary makes them.

    words.py ROOT

Fails if an identifier, option or file name that was retired comes back, or if the glossary of CONTRIBUTING.md defines a
term twice. CHANGELOG.md names the old words; golden vectors, inputs of fuzzers and recorded results keep what is stored
in them.

SPDX-License-Identifier: BSD-2-Clause
"""

import collections
import pathlib
import re
import subprocess
import sys

# What may contain retired words: history, stored data and what reads its keys, and this list.
KEEPS = re.compile(
    r"^CHANGELOG\.md$|^fuzz/corpus/|golden/|/test_golden\.py$|/cli_rejects\.py$|^data/|\.(svg|tsv|csv|npy|gz)$|^docs/results/|/words\.py$"
)

# Whole identifiers: what replaced them.
RETIRED = {
    r"gw_gcomp_(bound|peek|check|validate|info|chunk_info|install|uninstall)": "gw_gcomp_frame_*, gw_gcomp_codebook_*",
    r"gw_cuda_gcomp_validate(_batch)?": "gw_cuda_gcomp_frame_check*",
    r"gw_classic_frame_size_max": "gw_classic_frame_bound",
    r"gw_gcomp_levels": "gw_gcomp_quantum_mode",
    r"gw_map_level|levels_of|map_levels": "map_byte, map bytes",
    r"gw_exchange_slot|gw_mpi_slot": "gw_exchange_buffer_offset, gw_mpi_transfer",
    r"gw_thc_plan(_make)?": "gw_thc_design*",
    r"gw_cuda_plan\w*": "gw_cuda_launches*",
    r"gw_(round|random|philox|deep|positions)_plan\w*|split_plan": "params, layout: only the planner has plans",
    # but for the options `books` and `books_every` of gradwire.torch
    r"(?!books(?:_every)?(?!\w))(?:(\w*_)?books?(_\w+)?|\w*_BOOKS?(_\w+)?|BOOKS?_\w+)": "codebook",
    r"drop_base|DROP_BASE": "drop_offset",
    r"(\w*_)?deep_(cut|block|groups|round|values)\w*|\w*DEEP_CUT": "dead_zone",
    r"(\w*_)?blame(_\w+)?": "failure",
    r"gw_collective_(judge|verdict|word)": "gw_collective_word_outcome, *_outcome, *_word_write",
    r"GW_COLLECTIVE_LEVELS|GW_COLLECTIVE_LEVEL_LOW": "GW_COLLECTIVE_MAP_BYTES, GW_COLLECTIVE_MAP_BYTE_LOW",
    r"\w*thrift\w*": "refine",
    r"\w*hopeless\w*|\w*ask_plainly": "plain words of the field",
}
# Text anywhere, options and prose.
PHRASES = {
    r"--deep-cut|\b[Dd]eep cuts?\b": "dead zone",
    r"--levels[ =](explicit|derived|carried)|--level-step": "--quantum-mode, --drop-step",
    r"\b([Ee]xplicit|[Dd]erived|[Cc]arried) levels\b|\bkinds? of levels\b": "carried quanta; quantum mode",
    r"\blevel arrays?\b": "rank buffer",
    r"\bthc[- ]plan\b": "thc-design",
}


def glossary(text):
    """Terms that the glossary defines twice."""
    table = text.split("## Glossary", 1)[1]
    terms = collections.Counter()
    for row in re.findall(r"^\| ([^|]+) \|", table, re.M):
        terms.update(re.sub(r"[*`()]", "", term).strip() for term in row.split(","))
    del terms["term"]
    yield from (f"CONTRIBUTING.md: the glossary has {term!r} {n} times" for term, n in terms.items() if n > 1)


def retired(name, text):
    for number, line in enumerate(text.split("\n"), 1):
        for old, new in RETIRED.items():
            match = re.search(rf"(?<!\w)(?:{old})(?!\w)", line)
            if match:
                yield f"{name}:{number}: {match[0]}; now: {new}"
        for old, new in PHRASES.items():
            match = re.search(old, line)
            if match:
                yield f"{name}:{number}: {match[0]}; now: {new}"


def main():
    root = pathlib.Path(sys.argv[1])
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        print("SKIP: not a git checkout")
        return 77
    problems, count = list(glossary((root / "CONTRIBUTING.md").read_text())), 0
    for name in listed.stdout.split():
        path = root / name
        if KEEPS.search(name) or path.is_symlink() or not path.is_file():
            continue
        try:
            problems += retired(name, path.read_text())
        except UnicodeDecodeError:
            continue
        count += 1
    print("\n".join([*problems, f"{count} files, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
