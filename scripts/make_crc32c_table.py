#!/usr/bin/env python3
"""Writes src/scalar/crc32c_table.h; with --check compares it with the file instead."""

import sys
from pathlib import Path

POLYNOMIAL = 0x82F63B78


def tables():
    first = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
        first.append(crc)
    result = [first]
    for _ in range(3):
        result.append([crc >> 8 ^ first[crc & 255] for crc in result[-1]])
    return result


def text():
    lines = [
        "/* Made by scripts/make_crc32c_table.py. SPDX-License-Identifier: BSD-2-Clause */",
        "#ifndef GW_SCALAR_CRC32C_TABLE_H",
        "#define GW_SCALAR_CRC32C_TABLE_H",
        "",
        "#include <stdint.h>",
        "",
        "static const uint32_t gw_crc32c_table[4][256] = {",
    ]
    for table in tables():
        lines.append("    {")
        for i in range(0, 256, 8):
            lines.append("        " + " ".join(f"0x{crc:08x}," for crc in table[i : i + 8]))
        lines.append("    },")
    lines += ["};", "", "#endif", ""]
    return "\n".join(lines)


path = Path(__file__).resolve().parent.parent / "src/scalar/crc32c_table.h"
if "--check" in sys.argv[1:]:
    sys.exit(0 if path.read_text() == text() else f"{path} differs from what {sys.argv[0]} makes")
path.write_text(text())
