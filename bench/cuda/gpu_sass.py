"""What the counters of instructions share: the tools, the regions of the sources, the basic blocks of machine code.

Callers name regions: (function, how a statement begins, name), None for all of the function. A
statement ends with the brace that it opens.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-lineinfo", f"-I{ROOT}/src", f"-I{ROOT}/include"]


def find_tool(name, *folders):
    for folder in folders:
        if folder and os.access(pathlib.Path(folder) / name, os.X_OK):
            return str(pathlib.Path(folder) / name)
    return shutil.which(name)


def find_tools():
    """nvcc and nvdisasm; None, with a line of why, where one is missing."""
    nvcc = find_tool("nvcc", "/usr/local/cuda/bin")
    disassembler = find_tool("nvdisasm", os.environ.get("CUDA_TOOLS"), "/usr/local/cuda/bin")
    if nvcc is None or disassembler is None:
        print(f"NO {'NVCC' if nvcc is None else 'NVDISASM'} ON THIS MACHINE: no instruction was counted")
        return None
    return nvcc, disassembler


def disassemble(tools, source, arch, folder):
    """The machine code of a .cu file, each instruction after the source lines that it comes from."""
    cubin = pathlib.Path(folder) / f"{pathlib.Path(source).stem}.{arch}.cubin"
    subprocess.run([tools[0], *FLAGS, f"-arch={arch}", "-cubin", "-o", cubin, source], check=True)
    return subprocess.run([tools[1], "-c", "-gi", cubin], check=True, capture_output=True, text=True).stdout


class Source:
    """Which function and region a line of a file belongs to."""

    def __init__(self, path, function=r"\b(gw_\w+)\("):
        self.lines = path.read_text().splitlines()
        self.function, self.region = {}, {}
        name = None
        for number, line in enumerate(self.lines, 1):
            if re.match(r"(template|GW_DEVICE|GW_DEVICE_MEMBER)\b", line) or name is None:
                found = re.search(function, line)
                name = found[1] if found else name
            self.function[number] = name
            if line.startswith("}"):
                name = None

    def mark(self, function, start, region):
        """Marks the statement; how many there are."""
        count = 0
        for number, line in enumerate(self.lines, 1):
            if self.function.get(number) != function or (start is not None and start not in line):
                continue
            if start is None:
                self.region[number] = region
                count = 1
                continue
            count += 1
            depth, end = 0, number
            for end in range(number, len(self.lines) + 1):
                text = self.lines[end - 1]
                if end == number and text.lstrip().startswith("}"):
                    text = text.replace("}", "", 1)
                depth += text.count("{") - text.count("}")
                if depth <= 0 and re.search(r"[;}]\s*$", text):
                    break
            for inside in range(number, end + 1):
                self.region[inside] = region
        return count


# What the unit for integers, logic, comparisons and selection takes: 64 lanes a cycle and multiprocessor, half of
# what is issued (CUDA C++ programming guide, table of arithmetic throughput; IMAD and dot products run elsewhere, at
# the same rate).
INTEGERS = re.compile(
    r"(@!?U?P\d\s+)?(LOP3|SHF|IADD3|VIADD|ISETP|SEL|VIMNMX|VIADDMNMX|IMNMX|PRMT|LEA|BMSK|PLOP3|R2P|P2R|SGXT|LOP|IABS|"
    r"VABSDIFF|MOV|FSETP|FSEL)\b"
)


def mark_sources(regions, **how):
    """The device sources by name, marked; ends the program where a region is not there any more."""
    sources = {p.name: Source(p, **how) for p in (ROOT / "src" / "cuda").iterdir() if p.suffix in (".cu", ".cuh")}
    for function, start, region in regions:
        if sum(s.mark(function, start, region) for s in sources.values()) == 0:
            sys.exit(
                f"{pathlib.Path(sys.argv[0]).name}: the sources have no {function}(): {start or 'whole'} any more; "
                "REGIONS is out of date"
            )
    return sources


def blocks_of(text, kernel, region_of):
    """Basic blocks of a kernel: (labels, operations, region, is a loop on itself). region_of(chain) names the region
    of an instruction; chain: (file, line), the innermost call first."""
    blocks, labels, ops, chain = [], [], [], []
    fresh, inside = True, False

    def close():
        nonlocal labels, ops
        if ops:
            votes = {}
            for _, region in ops:
                votes[region] = votes.get(region, 0) + 1
            target = re.search(r"BRA.*`\((\.L_x_\d+)\)", ops[-1][0])
            blocks.append((labels, ops, max(votes, key=votes.get), bool(target and target[1] in labels)))
            labels, ops = [], []

    for line in text.splitlines():
        if re.match(r"\s*\.section\s", line):
            inside = f".text.{kernel}," in line
        if not inside:
            continue
        if where := re.search(r'//## File "([^"]*)", line (\d+)', line):
            if fresh:
                chain, fresh = [], False
            chain.append((pathlib.PurePath(where[1]).name, int(where[2])))
        elif label := re.match(r"(\.L_x_\d+):", line):
            close()
            labels.append(label[1])
        elif op := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            fresh = True
            if re.match(r"NOP\b", op[1]):
                continue
            ops.append((op[1], region_of(chain)))
            if re.search(r"\b(BRA|EXIT|RET|BRX|JMP|WARPSYNC\.EXCLUSIVE)\b", op[1]):
                close()
    close()
    # At the end, after the last EXIT, is the code of shuffles and votes for diverged warps, which these
    # are not. On sm_80 only the branches to it identify it; where other code is among it, all
    # of it counts.
    size = sum(len(b[1]) for b in blocks)
    divergent = {m[1] for b in blocks for t, _ in b[1] if (m := re.search(r"BRA\.DIV.*`\((\.L_x_\d+)\)", t))}
    last = max((i for i, b in enumerate(blocks) if any(re.search(r"\bEXIT\b", t) for t, _ in b[1])), default=-1)
    apart = next((i for i, b in enumerate(blocks) if i > last and divergent & set(b[0])), len(blocks))
    if sum(len(b[1]) for b in blocks[apart:]) > 0.15 * size:
        apart = len(blocks)
    cold = next((i for i, b in enumerate(blocks) if any("WARPSYNC.COLLECTIVE" in t for t, _ in b[1])), apart)
    if sum(len(b[1]) for b in blocks[cold:]) > 0.15 * size:
        sys.exit(f"{kernel}: much code follows the code for diverged warps; the counter does not support that")
    return blocks[:cold]
