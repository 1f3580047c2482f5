"""Output files: complete or not at all, never over an input, no temporary files left.

SPDX-License-Identifier: BSD-2-Clause
"""

import os
import resource
import signal
import stat
import subprocess
import time

from cli_harness import OPTIONS, CliTest, floats, gradient, main, npy, npy_header


class Files(CliTest):
    def source(self, count=5000):
        return self.write("a.npy", npy("<f4", floats(gradient(1, count))))

    def test_target_keeps_its_contents_on_failure(self):
        self.write("out.gw", b"precious")
        self.write("bad.npy", npy("<f4", floats([1, 2]))[:-1])
        self.fails(1, "compress", self.path("bad.npy"), "-o", self.path("out.gw"))
        self.write("bad.gw", b"gWf\x1a" + bytes(100))
        self.fails(1, "decompress", self.path("bad.gw"), "-o", self.path("out.gw"))
        self.assertEqual(self.read("out.gw"), b"precious")
        self.assert_only("out.gw", "bad.npy", "bad.gw")

    def test_target_is_replaced_and_keeps_its_mode(self):
        target = self.write("out.gw", b"old")
        os.chmod(target, 0o640)
        self.ok("compress", self.source(), "-o", target)
        self.assertEqual(self.read("out.gw")[:4], b"gWf\x1a")
        self.assertEqual(stat.S_IMODE(os.stat(target).st_mode), 0o640)
        self.assert_only("a.npy", "out.gw")

    def test_new_target_honours_the_umask(self):
        previous = os.umask(0o027)
        try:
            self.ok("compress", self.source(), "-o", self.path("out.gw"))
        finally:
            os.umask(previous)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out.gw")).st_mode), 0o640)

    def test_names_that_look_like_options(self):
        source = self.source()
        for name in ("-\u00e9.gw", "--\u00e9.gw", "-\x01.gw"):
            for option in ("-o", "--output", "--out"):
                self.ok("compress", source, option, name, cwd=self.dir)
                self.assertEqual(self.read(name)[:4], b"gWf\x1a")
                os.remove(self.path(name))
            self.fails(2, "compress", source, name, cwd=self.dir)
        self.assert_only("a.npy")

    def test_symbolic_link_to_the_target(self):
        self.write("real.gw", b"old")
        os.symlink("real.gw", self.path("link.gw"))
        self.ok("compress", self.source(), "-o", self.path("link.gw"))
        self.assertTrue(os.path.islink(self.path("link.gw")))
        self.assertEqual(self.read("real.gw")[:4], b"gWf\x1a")

    def test_input_is_not_overwritten(self):
        source = self.source()
        content = self.read("a.npy")
        os.link(source, self.path("hard.npy"))
        os.symlink("a.npy", self.path("soft.npy"))
        for target in ("a.npy", "hard.npy", "soft.npy", "./a.npy"):
            self.fails(2, "compress", source, "-o", os.path.join(self.dir, target), says="input file")
        self.assertEqual(self.read("a.npy"), content)
        snapshot = self.snapshot("s", "sgd", {"lr": 0.1}, {"grad": gradient(1, 10), "param": gradient(2, 10)})
        for target in ("s.json", "s-grad.npy", "s-param.npy"):
            self.fails(2, "compress", snapshot, "-o", self.path(target), says="input file")
        self.ok("compress", snapshot, "-o", self.path("s.gw"), "--levels", "derived")
        for target in ("s.json", "s-param.npy", "s.gw"):
            self.fails(
                2, "decompress", self.path("s.gw"), "-o", self.path(target), "--snapshot", snapshot, says="input file"
            )

    def test_places_that_cannot_be_written(self):
        source = self.source()
        self.ok("compress", source, "-o", self.path("a.gw"))
        os.mkdir(self.path("directory"))
        for command, name in (("compress", source), ("decompress", self.path("a.gw"))):
            self.fails(3, command, name, "-o", self.path("missing/out"), says="missing/out")
            self.fails(3, command, name, "-o", self.path("directory"), says="directory")
            self.fails(3, command, name, "-o", self.path("a.npy/out"), says="a.npy/out")
            self.fails(3, command, name, "-o", "/dev/full", says="No space left")
            self.fails(3, command, self.path("nothing"), "-o", self.path("out"), says="nothing")
            self.fails(3, command, self.dir, "-o", self.path("out"), says="Is a directory")
        self.ok("compress", source, "-o", "/dev/null")
        if os.geteuid() != 0:
            os.chmod(self.path("directory"), 0o500)
            self.fails(3, "compress", source, "-o", self.path("directory/out"), says="Permission denied")
            os.chmod(self.path("directory"), 0o700)
        self.assert_only("a.npy", "a.gw", "directory")
        self.assertEqual(os.listdir(self.path("directory")), [])

    def test_long_names(self):
        source = self.source(10)
        self.ok("compress", source, "-o", self.path("n" * 255))
        self.fails(3, "compress", source, "-o", self.path("n" * 256))
        self.fails(3, "compress", source, "-o", self.path("d/" * 3000 + "n"))
        self.assert_only("a.npy", "n" * 255)

    def test_full_disk(self):
        """A file size limit makes the write fail half way, as a full disk does."""
        source = self.source(100000)
        self.write("out.gw", b"precious")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))

        self.fails(3, "compress", source, "-o", self.path("out.gw"), says=("out.gw", "cannot write"), preexec_fn=limit)
        self.assertEqual(self.read("out.gw"), b"precious")
        self.assert_only("a.npy", "out.gw")

    def test_report_that_cannot_be_printed(self):
        """Standard output is full or closed: exit code 3 whatever was printed, --help and --version included."""
        command = [OPTIONS.gradwire]
        verify = ["verify", self.source(), "--json"]
        for args in (["info"], ["info", "--json"], ["--help"], ["compress", "--help"], ["--version"], verify):
            for redirection in (">/dev/full", ">&-"):
                done = subprocess.run(
                    ["sh", "-c", '"$@" ' + redirection, "sh"] + command + args, stderr=subprocess.PIPE, timeout=60
                )
                self.assertEqual(done.returncode, 3, (args, redirection))
                self.assertIn(b"gradwire: standard output: ", done.stderr)
                self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_finished_file_stays_if_the_report_is_lost(self):
        source = self.source()
        for redirection in (">/dev/full", ">&-"):
            shell = ["sh", "-c", '"$@" ' + redirection, "sh"]
            out = self.path("out.gw")
            done = subprocess.run(shell + [OPTIONS.gradwire, "compress", source, "-o", out], stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 3)
            self.ok("verify", out)
            os.remove(out)

    def test_file_names_in_messages_are_quoted(self):
        """Control characters and invalid UTF-8 of a name are escaped, other characters are not."""
        name = self.path("x\n\x1b[31m\u009b\u00e9.npy")
        error = self.fails(3, "compress", name, "-o", self.path("out.gw"))
        self.assertIn("x\\x0a\\x1b[31m\\xc2\\x9b\u00e9.npy: cannot open", error)
        error = self.fails(3, "verify", b"x\xff\xe0\x80\x9b\xe2\x82")
        self.assertIn("x\\xff\\xe0\\x80\\x9b\\xe2\\x82: cannot open", error)
        self.assertIn("x\\x0ay", self.fails(2, "info", "x\ny"))
        self.assertIn("--x\\x0ay", self.fails(2, "info", "--x\ny"))

    def test_signals_leave_nothing(self):
        """Signals that end the process while the temporary file exists."""
        count = 1 << 25
        source = self.path("a.npy")
        with open(source, "wb") as file:
            file.write(npy_header("<f4", "(%d,)" % count))
            file.truncate(128 + 4 * count)
        for name in ("TERM", "INT", "HUP", "QUIT", "PIPE", "XCPU", "ALRM", "IO", "PWR", "STKFLT"):
            number = getattr(signal, "SIG" + name, None)
            if number is None:  # not on this system, or not in this Python
                continue
            process = subprocess.Popen(
                [OPTIONS.gradwire, "compress", source, "-o", self.path("out.gw")],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
            )
            seen = False
            while process.poll() is None and not seen:
                seen = any(name.startswith(".out.gw.") for name in os.listdir(self.dir))
                if not seen:
                    time.sleep(0.0005)
            process.send_signal(number)
            code = process.wait(60)
            if seen and code == -number:
                self.assert_only("a.npy")
            else:  # it was faster than the signal
                self.assertEqual(code, 0)
                os.remove(self.path("out.gw"))
            self.assertIn(code, (0, -number))


if __name__ == "__main__":
    main()
