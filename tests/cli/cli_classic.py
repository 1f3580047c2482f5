"""gradwire classic: all schemes, the golden frames, state files, sums and votes, refusals, pipes.

SPDX-License-Identifier: BSD-2-Clause
"""

import array
import os
import subprocess
import sys

from cli_harness import OPTIONS, CliTest, floats, gradient, main, npy, npy_data

SCHEMES = "fp16 bf16 topk dgc randk signsgd efsignsgd signum onebit qsgd terngrad".split()
RESIDUALS = ("topk", "dgc", "randk", "signsgd", "efsignsgd", "onebit", "qsgd", "terngrad")


def fp32(content):
    data, descr = npy_data(content)
    assert descr == "<f4", descr
    return array.array("f", data)


def rounded(values):
    return array.array("f", floats(values))


class Classic(CliTest):
    def source(self, name="a.npy", seed=1, count=5000):
        values = gradient(seed, count)
        self.write(name, npy("<f4", floats(values)))
        return rounded(values)

    def compress(self, source, target, scheme, *options):
        files = [self.path(source), "-o", self.path(target)]
        return self.ok_json("classic", "compress", *files, "--scheme", scheme, *options)

    def decompress(self, source, *options):
        self.ok("classic", "decompress", self.path(source), "-o", self.path("out.npy"), *options)
        return self.read("out.npy")


class Golden(Classic):
    def test_frames_of_the_library(self):
        """Status and values of every golden frame; inspect agrees on which are valid."""
        sys.path[:0] = [
            os.path.join(OPTIONS.root, *path) for path in (("docs", "reference_decoder"), ("tests", "golden"))
        ]
        import golden_archive
        import gw_decode

        folder = golden_archive.unpacked() / "classic"
        schemes, rejected = set(), 0
        with open(os.path.join(folder, "index.tsv")) as index:
            rows = [line.split() for line in index if not line.startswith("#")]
        for name, status, crc in rows:
            frame = os.path.join(folder, name + ".gw")
            out = self.path("out.npy")
            if status == "ok":
                self.ok("decompress", frame, "-o", out, "--max-values", 50000)
                self.assertEqual("%08x" % gw_decode.crc32c(npy_data(self.read("out.npy"))[0]), crc, name)
                schemes.add(self.ok_json("inspect", frame)["scheme"])
                os.remove(out)
            else:
                says = "(%s)" % status
                self.fails(1, "classic", "decompress", frame, "-o", out, "--max-values", 50000, says=says)
                self.assert_only()
                rejected += 1
        self.assertEqual(schemes, set(SCHEMES))
        self.assertGreater(rejected, 100)


class RoundTrips(Classic):
    def test_all_schemes_on_all_backends(self):
        self.source()
        for scheme in SCHEMES:
            keys = ["--seed", 7, "--round", 3, "--rank", 2, "--checksum"]
            report = self.compress("a.npy", "a.gw", scheme, *keys)
            frame = self.read("a.gw")
            self.assertEqual((report["scheme"], report["values"], report["status"]), (scheme, 5000, "ok"))
            self.assertEqual(report["output_bytes"], len(frame))
            self.assertAlmostEqual(report["bits_per_value"], 8 * len(frame) / 5000)
            values = self.decompress("a.gw")
            seen = self.ok_json("inspect", self.path("a.gw"))
            self.assertEqual((seen["seed"], seen["round"], seen["rank"]), ("%016x" % 7, 3, 2))
            self.assertTrue(seen["checksum"])
            parts = [seen.get(part, 0) for part in ("position_bytes", "scale_bytes", "value_bytes", "overhead_bytes")]
            self.assertEqual(sum(parts), len(frame))
            self.assertIn(scheme, self.ok("classic", "inspect", self.path("a.gw")).decode())
            for backend in self.backends():
                self.compress("a.npy", "b.gw", scheme, *keys, "--backend", backend)
                self.assertEqual(self.read("b.gw"), frame, (scheme, backend))
                self.assertEqual(self.decompress("b.gw", "--backend", backend), values, (scheme, backend))

    def test_nmse_is_that_of_the_decoded_values(self):
        exact = self.source()
        for scheme in SCHEMES:
            nmse = self.compress("a.npy", "a.gw", scheme)["nmse"]
            decoded = fp32(self.decompress("a.gw"))
            error = sum((x - y) ** 2 for x, y in zip(exact, decoded)) / sum(x * x for x in exact)
            self.assertAlmostEqual(nmse / error, 1, 6, scheme)

    def test_types_empty_arrays_and_snapshots(self):
        for descr, dtype, size in (("<f4", "fp32", 4), ("<f2", "fp16", 2), ("<u2", "bf16", 2)):
            for count in (0, 1, 70):
                self.write("a.npy", npy(descr, bytes([0, 0x3C] * (count * size // 2))))
                for scheme in SCHEMES:
                    options = ["--dtype", "bf16"] if dtype == "bf16" else []
                    report = self.compress("a.npy", "a.gw", scheme, *options)
                    self.assertEqual((report["dtype"], report["values"]), (dtype, count))
                    data, out_descr = npy_data(self.decompress("a.gw"))
                    self.assertEqual((out_descr, len(data)), (descr, size * count), scheme)
        grad = gradient(3, 300)
        snapshot = self.snapshot("s", "sgd", {"lr": 0.1}, {"grad": grad, "param": gradient(4, 300)})
        self.write("g.npy", npy("<f4", floats(grad)))
        self.ok("classic", "compress", snapshot, "-o", self.path("s.gw"), "--scheme", "topk")
        self.compress("g.npy", "g.gw", "topk")
        self.assertEqual(self.read("s.gw"), self.read("g.gw"))

    def test_top_k_sends_the_largest_values_exactly(self):
        exact = self.source()
        for options, count in ((("--ratio", "0.02"), 100), (("--keep", 77), 77)):
            self.assertEqual(self.compress("a.npy", "a.gw", "topk", *options)["keep_len"], count)
            decoded = fp32(self.decompress("a.gw"))
            sent = sorted(range(5000), key=lambda i: (-abs(exact[i]), i))[:count]
            expected = array.array("f", bytes(20000))
            for i in sent:
                expected[i] = exact[i]
            self.assertEqual(decoded, expected)

    def test_options_reach_the_frame(self):
        self.source()
        for scheme, options, key, value in (
            ("topk", ["--values", "gcomp"], "value_kind", "gcomp"),
            ("randk", ["--values", "fp16"], "value_kind", "fp16"),
            ("randk", ["--values", "gcomp"], "value_kind", "gcomp"),
            ("randk", ["--biased"], "unbiased", False),
            ("randk", [], "unbiased", True),
            ("qsgd", ["--coding", "elias"], "coding", "elias"),
            ("qsgd", ["--norm", "max"], "norm", "max"),
            ("qsgd", ["--levels", "9"], "level_max", 9),
            ("terngrad", ["--block", "1024"], "scales", 5),
            ("onebit", ["--block", "100"], "scales", 100),
            ("signsgd", ["--first-element", "0x123"], "element_first", "%016x" % 0x123),
            ("dgc", ["--ratio", "0.01", "--warmup", "1", "--round", "0"], "keep_len", 500),
            ("dgc", ["--ratio", "0.01", "--warmup", "1", "--round", "1"], "keep_len", 50),
        ):
            self.compress("a.npy", "a.gw", scheme, *options)
            self.assertEqual(self.ok_json("inspect", self.path("a.gw"))[key], value, (scheme, options))
        frames = set()
        for options in ([], ["--clip", "0"], ["--clip", "1.5"], ["--seed", "9"], ["--round", "9"], ["--rank", "9"]):
            self.compress("a.npy", "a.gw", "terngrad", *options)
            frames.add(self.read("a.gw")[80:])
        self.assertEqual(len(frames), 6)


class State(Classic):
    def test_what_was_sent_and_the_residual_are_the_inputs(self):
        for scheme in RESIDUALS:
            options = ["--beta", "0", "--no-mask"] if scheme == "dgc" else []
            total, sent, largest = [0.0] * 1000, [0.0] * 1000, 0.0
            for step in range(4):
                exact = self.source(seed=step, count=1000)
                residual = ["--residual", self.path(scheme + ".npy"), "--round", step]
                self.compress("a.npy", "a.gw", scheme, *residual, *options)
                decoded = fp32(self.decompress("a.gw"))
                total = [t + x for t, x in zip(total, exact)]
                sent = [t + x for t, x in zip(sent, decoded)]
                largest = max(largest, *map(abs, total), *map(abs, decoded))
            left = fp32(self.read(scheme + ".npy"))
            for i in range(1000):
                self.assertLess(abs(sent[i] + left[i] - total[i]), 1e-6 * largest, (scheme, i))

    def test_momentum_is_kept_between_steps(self):
        for scheme in ("dgc", "signum"):
            self.source(seed=1)
            self.compress("a.npy", "a.gw", scheme, "--momentum", self.path(scheme + ".npy"))
            first = self.read(scheme + ".npy")
            self.source(seed=2)
            self.compress("a.npy", "b.gw", scheme, "--momentum", self.path(scheme + ".npy"))
            self.compress("a.npy", "c.gw", scheme)
            self.assertNotEqual(self.read(scheme + ".npy"), first)
            self.assertNotEqual(self.read("b.gw"), self.read("c.gw"))

    def test_failures_leave_state_and_output(self):
        self.source()
        self.write("bad.npy", npy("<f4", floats([1.0, float("nan")])))
        self.write("r.npy", npy("<f4", floats([1.0, 2.0])))
        before = self.read("r.npy")
        state = ["--residual", self.path("r.npy")]
        out = ["--scheme", "topk", "-o", self.path("x.gw")]
        self.fails(1, "classic", "compress", self.path("bad.npy"), *out, *state, says="(nonfinite)")
        self.fails(1, "classic", "compress", self.path("a.npy"), *out, *state, says="fp32 of 5000 values")
        self.assertEqual(self.read("r.npy"), before)
        before = self.read(os.path.basename(self.write("r.npy", npy("<f4", bytes(20000)))))
        for target in ("a.npy", "r.npy"):
            output = ["--scheme", "topk", "-o", self.path(target)]
            self.fails(2, "classic", "compress", self.path("a.npy"), *output, *state)
        for target, says in (("x.gw", "twice"), ("a.npy", "input file")):
            residual = ["--residual", self.path(target)]
            self.fails(2, "classic", "compress", self.path("a.npy"), *out, *residual, says=says)
        self.assertEqual(self.read("r.npy"), before)
        self.assert_only("a.npy", "bad.npy", "r.npy")


class Sums(Classic):
    def frames(self, scheme, *options, ranks=3):
        arrays = []
        for rank in range(ranks):
            self.source("%d.npy" % rank, seed=10 + rank)
            self.compress("%d.npy" % rank, "%d.gw" % rank, scheme, "--rank", rank, "--seed", 5, *options)
            arrays.append(fp32(self.decompress("%d.gw" % rank)))
        return arrays, [self.path("%d.gw" % rank) for rank in range(ranks)]

    def check_sum(self, arrays, frames):
        for options, divisor in ((["--sum"], 1), ([], len(arrays))):
            self.ok("classic", "aggregate", *frames, *options, "-o", self.path("sum.npy"))
            result = fp32(self.read("sum.npy"))
            largest = max(abs(x) for x in result)
            for i, values in enumerate(zip(*arrays)):
                self.assertLess(abs(result[i] - sum(values) / divisor), 1e-6 * largest)

    def test_sums_of_encoded_values(self):
        self.check_sum(*self.frames("signsgd"))
        self.check_sum(*self.frames("randk", "--ratio", "0.1"))

    def test_shared_norms(self):
        for scheme, options in (("qsgd", ["--levels", "8"]), ("terngrad", ["--block", "512", "--coding", "mask"])):
            for rank in range(3):
                self.source("%d.npy" % rank, seed=10 + rank)
                name = self.path("%d-norms.npy" % rank)
                self.ok("classic", "norms", self.path("%d.npy" % rank), "--scheme", scheme, *options, "-o", name)
            names = [self.path("%d-norms.npy" % rank) for rank in range(3)]
            self.ok("classic", "norms", "--max", *names, "-o", self.path("norms.npy"))
            columns = zip(*[fp32(self.read("%d-norms.npy" % rank)) for rank in range(3)])
            self.assertEqual(list(fp32(self.read("norms.npy"))), [max(column) for column in columns])
            self.check_sum(*self.frames(scheme, *options, "--norms", self.path("norms.npy")))
            # Norms of one rank alone do not cover the others; norms of its own cannot be added.
            out = ["--scheme", scheme, *options, "-o", self.path("x.gw")]
            self.fails(1, "classic", "compress", self.path("0.npy"), *out, "--norms", names[1], says="below")
            frames = self.frames(scheme, *options)[1]
            self.fails(1, "classic", "aggregate", *frames, "-o", self.path("x.npy"), says="no sum")

    def test_votes(self):
        arrays, frames = self.frames("signum")
        self.ok("classic", "aggregate", *frames, "--vote", "-o", self.path("vote.gw"))
        self.assertTrue(self.ok_json("inspect", self.path("vote.gw"))["vote"])
        votes = fp32(self.decompress("vote.gw"))
        self.assertEqual(list(votes), [1.0 if sum(column) > 0 else -1.0 for column in zip(*arrays)])

    def test_frames_that_cannot_be_added(self):
        _, frames = self.frames("randk", ranks=2)
        out = ["-o", self.path("x.npy")]
        self.compress("0.npy", "late.gw", "randk", "--seed", 5, "--round", 1)
        self.fails(1, "classic", "aggregate", *frames, self.path("late.gw"), *out, says=("late.gw", "(mismatch)"))
        self.fails(2, "classic", "aggregate", *frames, "--vote", *out, says="no votes")
        self.fails(2, "classic", "aggregate", *frames, "-o", frames[0], says="input file")
        self.compress("0.npy", "topk.gw", "topk")
        self.fails(1, "classic", "aggregate", self.path("topk.gw"), *out, says="no sum")
        self.write("empty.npy", npy("<f4", b""))
        self.compress("empty.npy", "empty.gw", "topk")
        self.fails(1, "classic", "aggregate", self.path("empty.gw"), *out, says="no sum")
        self.fails(2, "classic", "aggregate", *out, says="an input is missing")
        self.write("short.gw", self.read("0.gw")[:-1])
        self.fails(1, "classic", "aggregate", frames[0], self.path("short.gw"), *out, says=("short.gw", "(short)"))
        self.assertFalse(os.path.exists(self.path("x.npy")))


class Refusals(Classic):
    def test_command_lines(self):
        self.source(count=100)
        source, out = self.path("a.npy"), ["-o", self.path("x.gw")]
        for says, *options in (
            ("--scheme is missing",),
            ("'zip' is not a scheme", "--scheme", "zip"),
            ("signsgd does not have it", "--scheme", "signsgd", "--ratio", "0.1"),
            ("topk does not have it", "--levels", "4", "--scheme", "topk"),
            ("fp16 does not have it", "--scheme", "fp16", "--residual", "r.npy"),
            ("qsgd does not have it", "--scheme", "qsgd", "--momentum", "m.npy"),
            ("--ratio", "--scheme", "topk", "--ratio", "0"),
            ("--ratio", "--scheme", "topk", "--ratio", "1.5"),
            ("--keep excludes", "--scheme", "topk", "--ratio", "0.5", "--keep", "3"),
            ("only 100 values", "--scheme", "topk", "--keep", "101"),
            ("--levels", "--scheme", "qsgd", "--levels", "128"),
            ("(option)", "--scheme", "qsgd", "--block", "100"),
            ("(option)", "--scheme", "dgc", "--beta", "1"),
            ("--coding", "--scheme", "qsgd", "--coding", "huffman"),
            ("--norms", "--scheme", "topk", "--norms", "n.npy"),
            ("2^64", "--scheme", "topk", "--first-element", "0xffffffffffffffff"),
            ("not a backend", "--scheme", "topk", "--backend", "abacus"),
        ):
            self.fails(2, "classic", "compress", source, *out, *options, says=says)
        self.fails(2, "classic", "compress", source, "--scheme", "topk", says="-o is missing")
        self.fails(2, "classic", says="subcommand is missing")
        self.fails(2, "classic", "squeeze", says="no subcommand")
        self.fails(2, "classic", "norms", source, "--scheme", "topk", *out, says="only qsgd")
        self.assertIn(b"decompress", self.ok("classic", "--help"))
        self.assertIn(b"--residual", self.ok("classic", "compress", "--help"))
        self.assert_only("a.npy")

    def test_files(self):
        self.source()
        self.compress("a.npy", "a.gw", "topk")
        topk = ["--scheme", "topk", "-o", self.path("x.gw")]
        self.fails(3, "classic", "compress", self.path("nothing.npy"), *topk, says="nothing.npy")
        self.fails(1, "classic", "compress", self.path("a.gw"), *topk, says="is a gradwire frame")
        self.fails(3, "classic", "compress", self.path("a.npy"), "--scheme", "topk", "-o", "/dev/full", says="No space")
        out = ["-o", self.path("x.npy")]
        self.fails(1, "classic", "decompress", self.path("a.gw"), *out, "--max-values", 4999, says="(limit)")
        self.fails(2, "classic", "decompress", self.path("a.gw"), "-o", self.path("a.gw"), says="input file")
        self.ok("compress", self.path("a.npy"), "-o", self.path("gcomp.gw"))
        self.fails(1, "classic", "decompress", self.path("gcomp.gw"), *out, says="(unsupported)")
        self.fails(1, "classic", "inspect", self.path("gcomp.gw"), says="(unsupported)")
        self.fails(1, "verify", self.path("a.gw"), says="classic codec")
        self.write("long.gw", self.read("a.gw") + b"\0")
        self.fails(1, "classic", "inspect", self.path("long.gw"), says="(trailing)")
        self.assert_only("a.npy", "a.gw", "gcomp.gw", "long.gw")


class Pipes(Classic):
    def test_arrays_and_frames_from_pipes(self):
        self.source()
        self.compress("a.npy", "a.gw", "qsgd")
        frame = self.ok("classic", "compress", "-", "-o", "-", "--scheme", "qsgd", stdin=self.read("a.npy"))
        self.assertEqual(frame, self.read("a.gw"))
        values = self.decompress("a.gw")
        self.assertEqual(self.ok("classic", "decompress", "-", "-o", "-", stdin=frame), values)
        self.assertEqual(self.ok("decompress", "-", "-o", "-", "--codec", "classic", stdin=frame), values)
        self.assertEqual(self.ok_json("inspect", "-", "--codec", "classic", stdin=frame)["scheme"], "qsgd")
        self.fails(1, "decompress", "-", "-o", "-", stdin=frame, says="--codec classic")
        general = self.ok("compress", "--codec", "classic", "--scheme", "qsgd", self.path("a.npy"), "-o", "-")
        self.assertEqual(general, frame)

    def test_a_pipe_is_read_as_far_as_the_frame(self):
        self.source(count=100)
        self.compress("a.npy", "a.gw", "topk")
        command = [OPTIONS.gradwire, "classic", "decompress", "-", "-o", self.path("x.npy")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        count = 0
        try:
            process.stdin.write(self.read("a.gw"))
            while count < 1 << 26:
                process.stdin.write(bytes(1 << 16))
                count += 1 << 16
        except BrokenPipeError:
            pass
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"(trailing)", error)
        self.assertLess(count, 1 << 20)


class Completion(Classic):
    def complete(self, *words):
        """What bash completes after these words; the last one may be a part of a word."""
        os.symlink(OPTIONS.gradwire, self.path("gradwire"))
        script = os.path.join(OPTIONS.root, "tools", "gradwire.bash-completion")
        line = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gradwire; echo "${COMPREPLY[@]}"'
        path = self.dir + ":" + os.environ["PATH"]
        done = subprocess.run(
            ["bash", "-c", line, "bash", script, "gradwire", *words],
            capture_output=True,
            env=dict(os.environ, PATH=path),
            timeout=60,
        )
        os.remove(self.path("gradwire"))
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode().split()

    def test_commands_schemes_and_options(self):
        self.assertEqual(self.complete("cl"), ["classic"])
        self.assertEqual(self.complete("classic", ""), "compress decompress inspect norms aggregate --help".split())
        self.assertEqual(self.complete("classic", "compress", "--scheme", ""), SCHEMES)
        self.assertEqual(self.complete("classic", "compress", "--coding", "e"), ["elias"])
        self.assertEqual(self.complete("classic", "compress", "--resi"), ["--residual"])
        self.assertEqual(self.complete("classic", "aggregate", "--vo"), ["--vote"])
        self.assertEqual(self.complete("compress", "--codec", ""), ["gcomp", "thc", "classic"])
        self.assertEqual(self.complete("compress", "--drop-"), ["--drop-step"])


if __name__ == "__main__":
    main()
