#!/usr/bin/env python3
"""What bench/cuda/gpu carries in addition to the program: recorded gradients with their optimizer states, and nvCOMP.

    gpu_carry.py list FOLDER                    FOLDER/states.tsv for the snapshots in FOLDER, for gpu_check states
    gpu_carry.py states FROM TO KIB             gzipped copies of the snapshots FROM/*.npy in TO and TO/states.tsv,
                                                at most KIB:
                                                gradients whole, of the parameters and states as many values as fit,
                                                the same of all, from where the gradient has the most that are not
                                                zero; if whole gradients leave too little, those values of them
    gpu_carry.py nvcomp CUDA FOLDER OUT.zip     nvCOMP's wheels for CUDA (cu13, cu12) and its Python binding, fetched
                                                by pip into FOLDER, without what a comparison does not need; exit 1
                                                if there are none

Says what was taken.
"""

import ast
import gzip
import pathlib
import struct
import subprocess
import sys
import zipfile

# Whole gradients take at most this share of the room.
GRADIENTS_SHARE = 0.7
STEP = 4096
STATES = ["param", "m", "v"]
# Names of the arrays in the snapshots, by their place in gw_optimizer_state.
FILES = {"param": ["param"], "m": ["exp_avg", "momentum_buffer"], "v": ["exp_avg_sq"]}
PYTHONS = ["310", "311", "312", "313"]


def read_npy(path):
    """The bytes of a one-dimensional array of fp32."""
    data = path.read_bytes()
    size = 10 + struct.unpack_from("<H", data, 8)[0]
    header = ast.literal_eval(data[10:size].decode("latin-1"))
    if data[:6] != b"\x93NUMPY" or header["descr"] != "<f4" or len(header["shape"]) != 1:
        sys.exit(f"{path}: not one-dimensional fp32")
    return data[size:]


def as_npy(values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(values) // 4},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


def snapshots(folder):
    """{name: {array: path}}"""
    found = {}
    for grad in sorted(pathlib.Path(folder).glob("*-grad.npy")):
        name = grad.name.removesuffix("-grad.npy")
        arrays = {"grad": grad}
        for array in STATES:
            for suffix in FILES[array]:
                path = grad.with_name(f"{name}-{suffix}.npy")
                if path.exists():
                    arrays[array] = path
        found[name] = arrays
    return found


def line_of(name, first, names):
    return "\t".join([name, str(first), *(names.get(a, "-") for a in ["grad", *STATES])]) + "\n"


def list_states(folder):
    lines = [
        line_of(name, 0, {a: p.name for a, p in arrays.items()})
        for name, arrays in snapshots(folder).items()
        if "param" in arrays
    ]
    (pathlib.Path(folder) / "states.tsv").write_text("".join(lines))


def busiest(grad, count):
    """The first of `count` values of the gradient among which the most are not zero, in steps of STEP."""
    words = memoryview(grad).cast("I")
    zeros = [0]
    for i in range(0, len(words), STEP):
        zeros.append(zeros[-1] + words[i : i + STEP].tolist().count(0))
    firsts = range(0, max(len(words) - count, 0) + 1, STEP)
    return min(firsts, key=lambda first: zeros[min((first + count) // STEP, len(zeros) - 1)] - zeros[first // STEP])


def zipped(values):
    return gzip.compress(as_npy(values), 6, mtime=0)


def take_states(source, target, room):
    arrays = {(name, a): read_npy(p) for name, found in snapshots(source).items() for a, p in found.items()}
    paths = {(name, a): p for name, found in snapshots(source).items() for a, p in found.items()}
    grads = {key: zipped(v) for key, v in arrays.items() if key[1] == "grad"}
    names = sorted(name for name, array in arrays if array == "grad")
    taken = dict(grads) if sum(map(len, grads.values())) <= GRADIENTS_SHARE * room else {}
    rest = {key: v for key, v in arrays.items() if key not in taken}
    left = room - sum(map(len, taken.values()))
    longest = max((len(v) // 4 for v in rest.values()), default=0)
    count, first = longest, dict.fromkeys(names, 0)
    while rest:
        first = {name: busiest(arrays[name, "grad"], count) for name in names}
        cut = {key: zipped(v[4 * first[key[0]] : 4 * (first[key[0]] + count)]) for key, v in rest.items()}
        size = sum(map(len, cut.values()))
        if size <= left:
            break
        count = int(count * min(0.97, left / size)) // 4096 * 4096
        if count == 0:
            sys.exit("no room for recorded states")
    lines = []
    for name in names:
        own = {a: paths[n, a].name for n, a in arrays if n == name}
        offset = first[name]
        is_whole = (name, "grad") in taken
        lines.append(line_of(name, offset if is_whole else 0, own))
        for n, a in arrays:
            if n == name:
                (target / (own[a] + ".gz")).write_bytes(taken.get((n, a)) or cut[n, a])
        values = min(count, len(arrays[name, "param"]) // 4)
        print(
            f"{name}: {'the whole gradient' if is_whole else 'of gradient'}{' and, of' if is_whole else ','} "
            f"parameters and states values {offset} to {offset + values - 1} of {len(arrays[name, 'grad']) // 4}"
        )
    (target / "states.tsv").write_text("".join(lines))


def fetch_nvcomp(cuda, folder, out):
    folder.mkdir(parents=True, exist_ok=True)
    for package in [f"nvidia-nvcomp-{cuda}", f"nvidia-libnvcomp-{cuda}"]:
        if list(folder.glob(package.replace("-", "_") + "-*.whl")):
            continue
        platforms = [f"--platform=manylinux_2_{n}_x86_64" for n in (24, 27, 28)]
        run = subprocess.run(
            [sys.executable, *"-m pip download -q --no-deps --only-binary=:all: --python-version=3.12".split()]
            + [*platforms, "-d", str(folder), package],
            capture_output=True,
            text=True,
        )
        if run.returncode != 0:
            print(f"pip download {package} failed: {(run.stderr or run.stdout).strip().splitlines()[-1:]}")
            return 1
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for wheel in sorted(folder.glob(f"nvidia_*nvcomp_{cuda}-*.whl")):
            with zipfile.ZipFile(wheel) as z:
                for name in z.namelist():
                    is_library = ".so" in name and "libnvcomp_cpu" not in name
                    is_binding = "nvcomp_impl" in name
                    if (
                        (is_library and not is_binding)
                        or name.endswith((".py", "LICENSE", "NOTICE"))
                        or (is_binding and any(f"cpython-{v}-" in name for v in PYTHONS))
                    ):
                        packed.writestr(name, z.read(name))
            print(f"{wheel.name}: taken")
    return 0


def main(argv):
    match argv:
        case ["list", folder]:
            list_states(folder)
        case ["states", source, target, room]:
            take_states(pathlib.Path(source), pathlib.Path(target), int(room) * 1024)
        case ["nvcomp", cuda, folder, out]:
            return fetch_nvcomp(cuda, pathlib.Path(folder), out)
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
