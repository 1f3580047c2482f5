"""What the tests of the command share: running it, writing .npy files and snapshots.

SPDX-License-Identifier: BSD-2-Clause
"""

import argparse
import array
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = argparse.Namespace(gradwire=None, root=None)
STRIDE = int(os.environ.get("GW_TEST_STRIDE", "1"))  # damage: one position in so many. docs/testing.md


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gradwire", required=True)
    parser.add_argument("--root", required=True)
    options, rest = parser.parse_known_args()
    OPTIONS.gradwire = os.path.abspath(options.gradwire)
    OPTIONS.root = os.path.abspath(options.root)
    unittest.main(module="__main__", argv=[sys.argv[0]] + rest)


def npy_header(descr, shape, fortran=False, version=(1, 0)):
    text = "{'descr': %r, 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
    length_size = 2 if version[0] == 1 else 4
    prefix = 8 + length_size
    text += " " * (-(prefix + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(length_size, "little") + text.encode("latin1")


def npy(descr, data, shape=None, **rest):
    """A .npy file of `data`, bytes."""
    size = int(descr[-1])
    if shape is None:
        shape = "(%d,)" % (len(data) // size)
    return npy_header(descr, shape, **rest) + data


def npy_data(content):
    """The data part of a .npy file that gradwire wrote, and its descr."""
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:16]
    length = int.from_bytes(content[8:10], "little")
    assert (10 + length) % 64 == 0
    header = content[10 : 10 + length].decode("latin1")
    assert header.endswith("\n")
    fields = eval(header, {"__builtins__": {}})  # our own output: a dictionary literal
    assert fields["fortran_order"] is False
    data = content[10 + length :]
    assert fields["shape"] == (len(data) // int(fields["descr"][-1]),)
    return data, fields["descr"]


def floats(values):
    """fp32 bytes."""
    return array.array("f", values).tobytes()


def gradient(seed, count, scale=1e-3):
    """fp32 values that look like a gradient: two scales, some zeros."""
    rng = random.Random(seed)
    return [0.0 if rng.random() < 0.05 else rng.gauss(0, scale if i % 3 else scale / 50) for i in range(count)]


class CliTest(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="gradwire-cli-")

    def tearDown(self):
        shutil.rmtree(self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def sample(self, name):
        return os.path.join(OPTIONS.root, "data", "samples", name)

    def run_cli(self, *args, stdin=b"", **rest):
        """(exit code, stdout, stderr)."""
        done = subprocess.run(
            [OPTIONS.gradwire] + [a if isinstance(a, bytes) else str(a) for a in args],
            input=stdin,
            capture_output=True,
            timeout=300,
            **rest,
        )
        error = done.stderr.decode("utf-8", "replace")
        self.assertIn(done.returncode, (0, 1, 2, 3), "%s: ended with %d\n%s" % (args, done.returncode, error[-3000:]))
        return done.returncode, done.stdout, error

    def ok(self, *args, **rest):
        code, out, error = self.run_cli(*args, **rest)
        self.assertEqual(code, 0, "%s\n%s" % (args, error))
        return out

    def ok_json(self, *args, **rest):
        return json.loads(self.ok(*args, "--json", **rest))

    def fails(self, expected, *args, says=(), **rest):
        """The command exits with `expected`, prints one line with all of `says`, and nothing on stdout."""
        code, out, error = self.run_cli(*args, **rest)
        self.assertEqual(code, expected, "%s\n%s" % (args, error))
        self.assertEqual(out, b"", args)
        self.assertTrue(error.startswith("gradwire"), error)
        self.assertEqual(error.count("\n"), 1, error)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, error)
        return error

    def backends(self):
        return self.ok_json("info")["backends_available"]

    def snapshot(self, name, optimizer, hyper, arrays, step=10, **more):
        """Writes NAME.json and NAME-PART.npy; arrays: part -> list of floats."""
        for part, values in arrays.items():
            self.write("%s-%s.npy" % (name, part), npy("<f4", floats(values)))
        description = {"optimizer": optimizer, "step": step, "hyper": hyper}
        description.update(more)
        return self.write(name + ".json", json.dumps(description).encode())

    def assert_only(self, *names):
        """The test's directory holds these files and no temporary ones."""
        self.assertEqual(sorted(os.listdir(self.dir)), sorted(names))
