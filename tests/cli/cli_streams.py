"""Input from pipes, peak memory, gzip input, the progress line.

SPDX-License-Identifier: BSD-2-Clause
"""

import gzip
import os
import pty
import subprocess
import sys
import time

from cli_harness import OPTIONS, CliTest, floats, gradient, main, npy, npy_header


class Endless(CliTest):
    """A stream is read no further than its header announces, and not at all if the header is invalid."""

    def consumed(self, head, filler, *args):
        """Bytes after `head` that the command takes from a pipe before it refuses the input with exit code 1."""
        process = subprocess.Popen(
            [OPTIONS.gradwire] + list(args), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        count = 0
        try:
            process.stdin.write(head)
            while count < 1 << 28:
                process.stdin.write(filler)
                count += len(filler)
        except BrokenPipeError:
            pass
        error = process.stderr.read()
        process.stderr.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        self.assertEqual(process.wait(60), 1, error)
        return count

    def test_input_without_an_end(self):
        source = self.write("a.npy", npy("<f4", floats(gradient(1, 5000))))
        self.ok("compress", source, "-o", self.path("a.gw"))
        frame, array = self.read("a.gw"), self.read("a.npy")
        # As far as frame_size: valid but for its frame_size of 2^62, more than its values can need.
        hostile = frame[:24] + (1 << 62).to_bytes(8, "little") + frame[32:]
        zeros, text = bytes(1 << 16), b"y\n" * (1 << 15)
        out = self.path("out")
        for head, filler in ((b"", zeros), (b"", text), (frame, zeros), (hostile, zeros)):
            for args in (["decompress", "-", "-o", out], ["verify", "-"], ["inspect", "-"]):
                self.assertLess(self.consumed(head, filler, *args), 1 << 20, args)
        for head, filler in ((b"", zeros), (b"", text), (array, zeros), (frame, zeros)):
            self.assertLess(self.consumed(head, filler, "compress", "-", "-o", out), 1 << 20)
        # A description in JSON has no size in front; 64 MiB are the limit.
        self.assertLess(self.consumed(b"{", b" " * (1 << 16), "compress", "-", "-o", out), 1 << 27)
        self.assert_only("a.npy", "a.gw")

    def test_max_values_holds_for_pipes(self):
        source = self.write("a.npy", npy("<f4", bytes(4 << 20)))
        self.ok("compress", source, "-o", self.path("a.gw"))
        frame = self.read("a.gw")
        self.fails(1, "decompress", "-", "-o", self.path("b.npy"), "--max-values", 1000, stdin=frame, says="rule 8")

    def test_standard_input_from_a_file(self):
        array = npy("<f4", floats(gradient(1, 5000)))
        for offset, content in ((0, array), (7, b"skipped" + array)):
            self.write("a.npy", content)
            with open(self.path("a.npy"), "rb") as file:
                os.lseek(file.fileno(), offset, os.SEEK_SET)
                command = [OPTIONS.gradwire, "compress", "-", "-o", self.path("a.gw")]
                subprocess.run(command, stdin=file, stdout=subprocess.DEVNULL, check=True)
            self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
            self.assertEqual(self.read("b.npy")[128:], array[128:])


class Gzip(CliTest):
    def test_gzip_input_has_a_limit(self):
        """64 KB of gzip must not expand to any size: --max-size, and 1G without it."""
        bomb = gzip.compress(b'{"traceEvents": [' + b"{}, " * (1 << 24))
        self.assertLess(len(bomb), 1 << 17)
        source = self.write("bomb.json.gz", bomb)
        self.fails(1, "plan", "import", source, "--max-size", "1M", says=("at byte 10", "--max-size"))
        self.fails(1, "plan", "import", source, "--max-size", "128M", says="truncated")
        for size in ("x", "1X", "", "G", "-1", "17179869184G"):
            self.fails(2, "plan", "import", source, "--max-size", size, says="--max-size")


class Memory(CliTest):
    SIZE = 1 << 26

    # Runs the command from a small process: the peak of a child includes that of its parent at the fork.
    MEASURE = (
        "import resource, subprocess, sys;"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )

    def peak(self, *args):
        """Peak resident memory in bytes."""
        command = [sys.executable, "-I", "-c", self.MEASURE, OPTIONS.gradwire] + list(args)
        return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def test_peak_memory(self):
        """Large arrays do not lie in memory twice: neither as input and frame, nor as frame and values."""
        with open(OPTIONS.gradwire, "rb") as file:
            if b"__asan_init" in file.read():
                self.skipTest("a sanitizer needs memory of its own")
        blocks = {"random": os.urandom(1 << 22), "gradient": floats(gradient(1, 1 << 18)) * 4}
        for name, block in blocks.items():
            source = self.path("a.npy")
            with open(source, "wb") as file:
                file.write(npy_header("<f4", "(%d,)" % (self.SIZE // 4)))
                for _ in range(self.SIZE // len(block)):
                    file.write(block)
            with self.subTest(name=name):
                rest = ["-T", "1" if name == "random" else "2"]
                packed = self.peak("compress", source, "-o", self.path("a.gw"), "--strict", *rest)
                size = os.path.getsize(self.path("a.gw"))
                self.assertLess(packed, 1.25 * size + (24 << 20))
                unpacked = self.peak("decompress", self.path("a.gw"), "-o", self.path("b.npy"), *rest)
                self.assertLess(unpacked, self.SIZE / 2 + (24 << 20))
                with open(source, "rb") as before, open(self.path("b.npy"), "rb") as after:
                    self.assertTrue(before.read() == after.read())


class Progress(CliTest):
    def run_slowly(self, stderr):
        """A frame through a pipe that takes 1.5 s."""
        source = self.write("a.npy", npy("<f4", floats(gradient(1, 5000))))
        self.ok("compress", source, "-o", self.path("a.gw"))
        command = [OPTIONS.gradwire, "verify", "-"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
        time.sleep(1.5)
        return process, self.read("a.gw")

    def test_terminal_shows_progress(self):
        leader, follower = pty.openpty()
        process, frame = self.run_slowly(follower)
        process.communicate(frame, timeout=60)
        os.close(follower)
        shown = b""
        while not shown.endswith(b"\x1b[K"):
            try:
                shown += os.read(leader, 10000)
            except OSError:  # all was read and nothing has the other end open
                break
        os.close(leader)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"\rread: ", shown)
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown)

    def test_no_terminal_shows_nothing(self):
        process, frame = self.run_slowly(subprocess.PIPE)
        self.assertEqual(process.communicate(frame, timeout=60)[1], b"")
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    main()
