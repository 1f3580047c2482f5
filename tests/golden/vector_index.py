"""Reads index.tsv and asks the reference decoder about its vectors.

SPDX-License-Identifier: BSD-2-Clause
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "docs", "reference_decoder"))
sys.dont_write_bytecode = True

import gw_decode  # noqa: E402


class Vector:
    """A line of index.tsv, with its files read."""

    def __init__(self, root, names, line):
        fields = dict(zip(names, (None if field == "-" else field for field in line.split("\t"))))
        self.fields = fields
        self.file, self.status = fields["file"], fields["status"]

        def number(name):
            return None if fields[name] is None else int(fields[name])

        self.bad_chunk, self.count, self.capacity = number("bad_chunk"), number("count"), number("capacity")
        self.count_limit = number("count_limit")
        self.values_crc = fields["values_crc"]
        self.dtype = {d.name: d for d in gw_decode.DTYPES.values()}[fields["dtype"]]

        def read(path):
            return None if path is None else gw_decode.read_file(os.path.join(root, path))

        self.data, self.values, levels, book = (read(fields[name]) for name in ("file", "values", "map", "book"))
        self.map = None
        if levels is not None:
            self.map = gw_decode.Map(levels, number("drop_base"), int(fields["wire_scale"], 16))
        self.installed = {(number("book_id"), number("generation")): book} if book is not None else {}

    def decode(self, data=None):
        """(status, bad_chunk, values as bytes, or None if the status leaves the output untouched)."""
        more = {"dtype": self.dtype}
        if self.count_limit is not None:
            more["count_limit"] = self.count_limit
        status, bad_chunk, values = gw_decode.decode(
            self.data if data is None else data, self.map, self.installed, self.capacity, **more
        )
        if status != "OK" and bad_chunk is None:
            return status, bad_chunk, None
        return status, bad_chunk, gw_decode.values_to_bytes(values, self.dtype.size)


def read_index(root):
    with open(os.path.join(root, "index.tsv"), encoding="ascii") as file:
        names = file.readline().rstrip("\n").lstrip("#").split("\t")
        return [Vector(root, names, line.rstrip("\n")) for line in file]
