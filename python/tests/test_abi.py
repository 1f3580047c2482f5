"""The package refuses a library whose structs differ, and its mirrors of the headers are complete."""

import os
import subprocess
import sys
from pathlib import Path

import gradwire
import pytest
from gradwire import _library, _structs

STUB = """
#include <stddef.h>
#include <stdint.h>
#define GW_API
typedef struct field { const char *name; uint32_t offset, size; } field;
typedef struct entry { const char *name; uint32_t size, field_count; const field *fields; } entry;
static const field workspace[] = {{"data", 0, 8}, {"%s", %d, 8}};
static const entry table[] = {{"gw_workspace", %d, 2, workspace}};
uint32_t gw_abi_version(void) { return %d; }
const entry *gw_abi_structs(size_t *count) { *count = 1; return table; }
"""


def import_with(folder: Path) -> str:
    """What `import gradwire` says with the libraries of another folder."""
    package = str(Path(gradwire.__file__).parents[1])
    for module in Path(_structs.__file__).parent.glob("_*.py"):
        (folder / module.name).write_bytes(module.read_bytes())
    run = subprocess.run(
        [sys.executable, "-c", "import gradwire"],
        env={**os.environ, "GRADWIRE_LIBRARY_DIR": str(folder), "PYTHONPATH": package},
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    return last


def build(folder: Path, source: str, name: str = "libgradwire.so") -> Path:
    (folder / "stub.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, folder / "stub.c"], check=True)
    return folder


def test_another_layout(tmp_path):
    message = import_with(build(tmp_path, STUB % ("size", 12, 24, 1)))
    assert "gw_workspace has 24 bytes in the library, 16 here" in message
    assert "gw_workspace.size is at byte 12 with 8 bytes in the library, size at 8 with 8 here" in message
    assert "the library has no gw_gcomp_options" in message


def test_another_field(tmp_path):
    assert "gw_workspace.length is at byte 8" in import_with(build(tmp_path, STUB % ("length", 8, 16, 1)))


def test_another_query(tmp_path):
    assert "ABI query has version 9" in import_with(build(tmp_path, STUB % ("size", 8, 16, 9)))


def test_no_query(tmp_path):
    assert "no gw_abi_version()" in import_with(build(tmp_path, "int x;"))


def test_no_library(tmp_path):
    assert "cannot be loaded" in import_with(tmp_path)


def test_another_planner(tmp_path):
    (tmp_path / "libgradwire.so").write_bytes(Path(_library.lib.path).read_bytes())
    plan = "libgradwire-plan.so"
    assert "no gw_plan_abi_version()" in import_with(build(tmp_path, "int x;", plan))
    other = STUB.replace("gw_abi_", "gw_plan_abi_") % ("size", 8, 16, 1)
    assert "the library has no gw_plan_problem" in import_with(build(tmp_path, other, plan))


def test_altered_library(tmp_path):
    """The real library with one number of its table changed: the size of gw_thc_packet_header."""
    real = Path(_library.lib.path)
    data = bytearray(real.read_bytes())
    structs = _structs.gw_thc_packet_header
    fields = b"".join(
        getattr(structs, name).offset.to_bytes(4, "little") + getattr(structs, name).size.to_bytes(4, "little")
        for name, _ in structs._fields_[:1]
    )
    assert fields  # offset and size of the first field
    count = len(structs._fields_)
    entry = _size_and_count(48, count)
    assert data.count(entry) >= 1
    data = data.replace(entry, _size_and_count(56, count))
    (tmp_path / "libgradwire.so").write_bytes(data)
    assert "has 56 bytes in the library, 48 here" in import_with(tmp_path)


def _size_and_count(size, count):
    return size.to_bytes(4, "little") + count.to_bytes(4, "little")


def test_every_declared_function_is_there():
    for library, prototypes in ((_library.lib, "GRADWIRE"), (_library.plan_lib, "GRADWIRE_PLAN")):
        missing = [name for name in getattr(_library._prototypes, prototypes) if not hasattr(library, name)]
        assert missing == []
    with pytest.raises(AttributeError, match="no public header"):
        _library.lib.gw_no_such_function  # noqa: B018
