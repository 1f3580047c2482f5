#!/usr/bin/env python3
"""Unpacks the golden vectors.

    golden_archive.py DIR    all of them: DIR/index.tsv, DIR/decode/..., DIR/classic/index.tsv, ...

The vectors of a codec are in archives next to their index.tsv: CODEC-VERSION-FOLDER.tar.xz has the files of one
folder, VERSION is that of the format. CMake unpacks them into the build tree (cmake/GradwireGolden.cmake), Python
programs call unpacked(), and those that make vectors pack().

SPDX-License-Identifier: BSD-2-Clause
"""

import atexit
import functools
import io
import pathlib
import shutil
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FORMAT_VERSION = 0


def unpack(folder):
    for index in HERE.rglob("index.tsv"):
        target = folder / index.parent.relative_to(HERE)
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(index, target / index.name)
        for archive in index.parent.glob("*.tar.xz"):
            for name, data in contents(archive).items():
                (target / name).parent.mkdir(exist_ok=True)
                (target / name).write_bytes(data)


@functools.cache
def unpacked():
    """A folder with the vectors of all codecs, as long as the process runs."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gradwire-golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    unpack(folder)
    return folder


def contents(archive):
    """{name: bytes}; empty without the archive."""
    if not archive.exists():
        return {}
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def pack(folder, codec):
    """Replaces the index and the archives of a codec by what is in a folder. An archive whose files are the same stays
    as it is: other versions of xz may write other bytes."""
    folder, target = pathlib.Path(folder), HERE if codec == "gcomp" else HERE / codec
    shutil.copyfile(folder / "index.tsv", target / "index.tsv")
    for part in (path for path in folder.iterdir() if path.is_dir()):
        archive = target / f"{codec}-{FORMAT_VERSION}-{part.name}.tar.xz"
        files = {f"{part.name}/{path.name}": path.read_bytes() for path in part.iterdir()}
        if files == contents(archive):
            continue
        with tarfile.open(archive, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as tar:
            for name, data in sorted(files.items()):
                member = tarfile.TarInfo(name)  # of no user, time 0
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    unpack(pathlib.Path(sys.argv[1]))
