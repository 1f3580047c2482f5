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

    def test_symbolic_links_to_what_is_not_there(self):
        """The target appears and the link stays, for every command that writes a file."""
        source = self.source()
        snapshot = self.snapshot("s", "sgd", {"lr": 0.1}, {"grad": gradient(1, 99), "param": gradient(2, 99)})
        frame = self.path("a.gw")
        self.ok("compress", source, "-o", frame)
        os.mkdir(self.path("sub"))
        os.symlink("sub", self.path("folder"))
        kept = sorted(os.listdir(self.dir))
        commands = [
            ("compress", source, "-o"),
            ("decompress", frame, "-o"),
            ("rate", snapshot, "--plot"),
            ("norm", source, "-o"),
            ("classic", "compress", source, "--scheme", "topk", "-o"),
            ("plan", "export", os.path.join(OPTIONS.root, "data/traces/resnet50.csv"), "-o"),
            ("plan", "import", os.path.join(OPTIONS.root, "data/traces/kineto/resnet50-ddp-2xa100.json.gz"), "-o"),
        ]
        for command in commands:
            os.symlink("folder/second", self.path("first"))
            os.symlink("target", self.path("sub/second"))
            self.ok(*command, self.path("first"))
            self.assertEqual(os.readlink(self.path("first")), "folder/second")
            self.assertEqual(os.readlink(self.path("sub/second")), "target")
            self.assertGreater(os.stat(self.path("sub/target")).st_size, 0, command)
            self.assertEqual(sorted(os.listdir(self.path("sub"))), ["second", "target"])
            for name in ("first", "sub/second", "sub/target"):
                os.remove(self.path(name))
            self.assert_only(*kept)

    def test_symbolic_links_that_lead_nowhere(self):
        source = self.source()
        os.symlink("b", self.path("a"))
        os.symlink("a", self.path("b"))
        os.symlink("missing/target", self.path("c"))
        for name, reason in (("a", "symbolic links"), ("c", "No such file")):
            self.fails(3, "compress", source, "-o", self.path(name), says=(name, reason))
            self.assertTrue(os.path.islink(self.path(name)))
        self.assert_only("a", "a.npy", "b", "c")

    def redirected(self, *args, fd=1):
        """What a file has after `before`, the command with descriptor fd there, and `after`."""
        with open(self.path("all"), "wb") as file:
            file.write(b"before")
            file.flush()
            numbers = {"stdout": file} if fd == 1 else {"stdout": subprocess.DEVNULL, "pass_fds": [fd]}
            if fd != 1:
                os.dup2(file.fileno(), fd)
            done = subprocess.run([OPTIONS.gradwire, *args], stderr=subprocess.PIPE, timeout=60, **numbers)
            self.assertEqual(done.returncode, 0, done.stderr)
            file.seek(0, os.SEEK_END)
            file.write(b"after")
            if fd != 1:
                os.close(fd)
        return self.read("all")

    def test_standard_output_by_other_names(self):
        """What is in the file that standard output goes to stays, and there is no report."""
        source = self.source()
        os.symlink("/dev/stdout", self.path("link"))
        expected = b"before" + self.ok("compress", source, "-o", "-") + b"after"
        for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "//dev//stdout", self.path("link")):
            self.assertEqual(self.redirected("compress", source, "-o", name), expected, name)
        self.assertEqual(self.redirected("norm", source, "-o", "/dev/stdout")[:6], b"before")
        snapshot = self.snapshot("s", "sgd", {"lr": 0.1}, {"grad": gradient(1, 99), "param": gradient(2, 99)})
        self.assertEqual(self.redirected("rate", snapshot, "--plot", "/dev/stdout")[:10], b"before<svg")
        self.assertTrue(os.path.islink(self.path("link")))

    def test_other_descriptors(self):
        source = self.source()
        expected = b"before" + self.ok("compress", source, "-o", "-") + b"after"
        self.assertEqual(self.redirected("compress", source, "-o", "/dev/fd/9", fd=9), expected)
        self.fails(3, "compress", source, "-o", "/dev/fd/77", says="Bad file descriptor")
        self.fails(3, "compress", source, "-o", "/dev/stdin", says="Bad file descriptor", stdin=b"")

    def test_a_file_that_the_report_goes_to(self):
        source = self.source()
        for stream in ("stdout", "stderr"):
            with open(self.path("log"), "w") as log:
                log.write("precious\n")
                log.flush()
                done = subprocess.run(
                    [OPTIONS.gradwire, "compress", source, "-o", self.path("log")],
                    **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: log},
                )
            self.assertEqual(done.returncode, 3)
            self.assertTrue(self.read("log").startswith(b"precious\n"))
        self.assert_only("a.npy", "log")

    def test_outputs_with_one_name(self):
        source = self.source()
        os.symlink("new", self.path("link"))
        for name in ("new", "./new", "link"):
            self.fails(
                2,
                "classic",
                "compress",
                source,
                "--scheme",
                "topk",
                "-o",
                self.path("new"),
                "--residual",
                os.path.join(self.dir, name),
                says="twice",
            )
        self.assert_only("a.npy", "link")

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
        self.ok("compress", snapshot, "-o", self.path("s.gw"), "--quantum-mode", "derived")
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
        for mark in ("\ufeff", "\u202e", "\u200b", "\u2028", "\u2066"):  # invisible, or they turn what follows
            self.assertNotIn(mark, self.fails(3, "verify", "a%sb" % mark))
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
