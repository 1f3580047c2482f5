"""Round trips through the command: bytes, threads, backends, dtypes, reports, optimizers.

SPDX-License-Identifier: BSD-2-Clause
"""

import array
import json
import math
import os
import random
import struct
import sys

from cli_harness import CliTest, floats, gradient, main, npy, npy_data

SAMPLES = ["resnet50-sgdm-step0400", "resnet50-adamw-step0400", "bertbase-adamw-step0050"]


class Samples(CliTest):
    def sample_values(self, name):
        with open(self.sample(name), "rb") as file:
            return array.array("f", npy_data(file.read())[0])

    def test_every_mode_verifies(self):
        for name in SAMPLES:
            for mode in (
                ["--quantum-mode", "explicit"],
                ["--quantum-mode", "derived"],
                ["--quantum-mode", "derived", "--drop-step", 3],
                ["--quantum-mode", "derived", "--drop-step", 6, "--cap", 18],
                ["--cap", 12],
                ["--preset", "small", "--rounding", "truncate"],
                ["--rounding", "stochastic", "--seed", 7],
                ["--wire-scale", 16],
                ["--strict", "--checksum", "--chunk-log2", 12],
                ["--convert", "bf16"],
                ["--convert", "fp16", "--quantum-mode", "derived"],
                ["--tolerance-bits", 9],
                ["--quantum-mode", "derived", "--tolerance-bits", 12],
                ["--quantum-mode", "derived", "--tolerance-bits", 12, "--drop-step", 3],
                ["--quantum-mode", "derived", "--tolerance-bits", 8, "--dead-zone", "on", "--rounding", "nearest"],
                ["--quantum-mode", "derived", "--tolerance-bits", 8, "--dead-zone", "on", "--rounding", "truncate"],
                ["--quantum-mode", "derived", "--tolerance-bits", 10, "--dead-zone", "off", "--preset", "small"],
                [
                    "--quantum-mode",
                    "derived",
                    "--tolerance-bits",
                    7,
                    "--dead-zone",
                    "on",
                    "--convert",
                    "fp16",
                    "--strict",
                ],
                ["--quantum-mode", "carried", "--tolerance-bits", 10],
                ["--quantum-mode", "carried", "--tolerance-bits", 6, "--convert", "bf16", "--block-log2", 6],
                ["--quantum-mode", "carried", "--tolerance-bits", 14, "--dead-zone", "off", "--block-log2", 14],
                ["--quantum-mode", "carried", "--target-nmse", 1e-3, "--rounding", "nearest", "--convert", "fp16"],
                ["--quantum-mode", "carried", "--target-nmse", 0.01, "--rounding", "stochastic", "--preset", "small"],
                ["--convert", "bf16", "--tolerance-bits", 7],
            ):
                with self.subTest(name=name, mode=mode):
                    report = self.ok_json("verify", self.sample(name + ".json"), "--runs", 1, *mode)
                    self.assertEqual(report["status"], "ok")
                    self.assertEqual(report["values_beyond_cut"], 0)
                    self.assertEqual(report["values"], 65536)
                    self.assertLess(report["rate_fp32"], 0.55)

    def test_sgd_bound(self):
        """Plain SGD: no parameter moves by more than 2^-22 of itself, and dropping 18 bits of every value fails."""
        for name in SAMPLES:
            for quantum_mode in ("explicit", "derived"):
                for rounding in ("truncate", "nearest", "stochastic"):
                    options = (
                        f"--as sgd --quantum-mode {quantum_mode} --rounding {rounding} --runs 1 --max-deviation=-22"
                    )
                    self.ok("verify", self.sample(name + ".json"), *options.split())
            options = "--as sgd --drop 18 --runs 1 --max-deviation=-22 --json"
            code, out, error = self.run_cli("verify", self.sample(name + ".json"), *options.split())
            self.assertEqual(code, 1)
            self.assertEqual(json.loads(out)["status"], "failed")
            self.assertIn("max-deviation", error)

    def test_tolerance_and_dead_zone(self):
        """Plain SGD: no parameter moves by more than 2^-t of itself. Dead zones move some by more than 2^-(t + 1)."""
        for name in SAMPLES:
            for tolerance in (14, 9):
                options = ["--as", "sgd", "--quantum-mode", "derived", "--tolerance-bits", tolerance, "--runs", 1]
                report = self.ok_json("verify", self.sample(name + ".json"), *options)
                self.assertTrue(report["dead_zone"])
                self.assertEqual(report["rounding"], "stochastic")
                worst = report["parameter_deviation"]["max_log2"]
                self.assertTrue(-tolerance - 1 < worst <= -tolerance, worst)
                whole = self.ok_json("verify", self.sample(name + ".json"), *options, "--dead-zone", "off")
                self.assertLess(report["bits_per_value"]["total"], whole["bits_per_value"]["total"] - 0.5)

    def test_noise(self):
        """No value changes by more than the noise limit times the root of its second moment."""
        for name in SAMPLES[1:]:
            sample = self.sample(name + ".json")
            with open(sample, encoding="utf-8") as file:
                description = json.load(file)
            beta2 = description["hyper"]["betas"][1]
            correction = beta2 / (1 - beta2 ** description["step"])
            grad, v = (self.sample_values(name + part) for part in ("-grad.npy", "-exp_avg_sq.npy"))
            for noise, alpha in (("1/4", 0.25), ("0.125", 0.125)):
                packed = self.ok_json(
                    "compress", sample, "-o", self.path("a.gw"), "--quantum-mode", "derived", "--noise", noise
                )
                self.assertEqual(
                    (packed["noise"], packed["rounding"], packed["dead_zone"]), (alpha, "stochastic", True)
                )
                self.assertIsNone(packed["tolerance_bits"])
                self.assertLess(packed["bits_per_value"]["total"], 2)
                decompress = ["decompress", self.path("a.gw"), "-o", self.path("b.npy"), "--snapshot", sample]
                self.fails(1, *decompress, says=("rule 16", "--noise"))
                self.fails(1, *decompress, "--noise", alpha, "--tolerance-bits", 23, says="rule 16")
                self.fails(1, *decompress, "--noise", alpha / 2, says="rule 16")
                self.ok(*decompress, "--noise", alpha)
                back = array.array("f", npy_data(self.read("b.npy"))[0])
                worst = max(
                    abs(b - g) / math.sqrt(correction * w) for b, g, w in zip(back, grad, v) if w > 0 and abs(b - g) > 0
                )
                self.assertTrue(alpha / 2 < worst <= alpha, worst)
                # With a tolerance, too, the smaller quantum counts.
                both = ["--noise", noise, "--tolerance-bits", 12]
                tighter = self.ok_json("compress", sample, "-o", self.path("a.gw"), "--quantum-mode", "derived", *both)
                self.assertGreater(tighter["bits_per_value"]["total"], packed["bits_per_value"]["total"])
                self.fails(1, *decompress, "--noise", noise, says="rule 16")
                self.ok(*decompress, *both)

    def test_defaults_of_rounding_and_dead_zone(self):
        sgdm, adamw = (self.sample(name + ".json") for name in SAMPLES[:2])
        for sample, options, rounding, deep in (
            (sgdm, [], "nearest", False),
            (sgdm, ["--quantum-mode", "derived"], "nearest", False),
            (sgdm, ["--quantum-mode", "derived", "--tolerance-bits", 23], "nearest", False),
            (sgdm, ["--quantum-mode", "derived", "--tolerance-bits", 22], "stochastic", True),
            (sgdm, ["--tolerance-bits", 22], "stochastic", False),
            (sgdm, ["--quantum-mode", "derived", "--tolerance-bits", 9, "--dead-zone", "off"], "stochastic", False),
            (sgdm, ["--quantum-mode", "derived", "--tolerance-bits", 9, "--drop-step", 3], "stochastic", False),
            (sgdm, ["--quantum-mode", "derived", "--tolerance-bits", 9, "--cap", 12], "stochastic", False),
            (sgdm, ["--quantum-mode", "derived", "--tolerance-bits", 9, "--rounding", "nearest"], "nearest", True),
            (sgdm, ["--quantum-mode", "carried"], "nearest", True),
            (adamw, ["--quantum-mode", "derived", "--tolerance-bits", 9], "stochastic", False),
            (adamw, ["--quantum-mode", "derived", "--tolerance-bits", 9, "--as", "sgd"], "stochastic", True),
            (adamw, ["--quantum-mode", "derived", "--noise", "1"], "stochastic", True),
            (adamw, ["--noise", "1/4"], "stochastic", False),
        ):
            with self.subTest(options=options):
                report = self.ok_json("compress", sample, "-o", self.path("a.gw"), *options)
                self.assertEqual((report["rounding"], report["dead_zone"]), (rounding, deep))
                tolerance = None if "--noise" in options else 23
                if "--tolerance-bits" in options:
                    tolerance = options[options.index("--tolerance-bits") + 1]
                self.assertEqual(report["tolerance_bits"], tolerance)

    def test_carried_needs_no_snapshot(self):
        for name in SAMPLES:
            sample = self.sample(name + ".json")
            for more in (["--tolerance-bits", 10], ["--target-nmse", 1e-3, "--block-log2", 7, "--chunk-log2", 12]):
                packed = self.ok_json("compress", sample, "-o", self.path("a.gw"), "--quantum-mode", "carried", *more)
                seen = self.ok_json("inspect", self.path("a.gw"), "--chunks")
                self.assertEqual(seen["quantum_mode"], "carried")
                self.assertEqual(seen["header"]["block_log2"], 7 if len(more) > 2 else 9)
                self.assertEqual(packed["bits_per_value"], seen["bits_per_value"])
                bits = seen["bits_per_value"]
                self.assertAlmostEqual(sum(v for k, v in bits.items() if k != "total"), bits["total"], places=6)
                self.assertAlmostEqual(bits["quanta"], 8 / (1 << seen["header"]["block_log2"]), places=6)
                self.assertFalse([c for c in seen["chunk_list"] if "broken_rule" in c])
                self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
                self.assertIn(b"carried quanta", self.ok("inspect", self.path("a.gw")))

    def test_masked_and_relative_codebooks(self):
        sample = self.sample(SAMPLES[0] + ".json")
        for options, masked, relative in (
            (["--quantum-mode", "derived", "--tolerance-bits", 8], True, True),
            (["--quantum-mode", "carried", "--tolerance-bits", 8, "--preset", "small"], True, True),
            (["--quantum-mode", "derived", "--drop", 3], None, False),
            (["--quantum-mode", "explicit"], None, False),
        ):
            self.ok("compress", sample, "-o", self.path("a.gw"), *options)
            chunks = self.ok_json("inspect", self.path("a.gw"), "--chunks")["chunk_list"]
            for chunk in chunks:
                with self.subTest(options=options):
                    self.assertNotIn("broken_rule", chunk)
                    self.assertEqual(chunk["relative"], relative)
                    self.assertIn(masked, (None, chunk["masked"]))
                    self.assertEqual(chunk["coded_values"] < chunk["values"], chunk["masked"])
            shown = self.ok("inspect", self.path("a.gw"), "--chunks")
            self.assertEqual(b" masked relative\n" in shown, bool(masked))

    def test_files_and_reports(self):
        sample = self.sample(SAMPLES[1] + ".json")
        for quantum_mode in ("explicit", "derived", "carried"):
            with self.subTest(quantum_mode=quantum_mode):
                packed = self.ok_json("compress", sample, "-o", self.path("a.gw"), "--quantum-mode", quantum_mode)
                size = os.path.getsize(self.path("a.gw"))
                self.assertEqual(packed["values"], 65536)
                self.assertEqual(packed["input_bytes"], 4 * 65536)
                self.assertEqual(packed["output_bytes"], size)
                self.assertAlmostEqual(packed["rate"], size / (4 * 65536), places=6)
                self.assertEqual(packed["quantum_mode"], quantum_mode)
                self.assertEqual(packed["map"], "adamw")
                self.assertEqual(packed["backend"], self.backends()[-1])
                self.assertGreater(packed["encode_GBps"], 0)
                seen = self.ok_json("inspect", self.path("a.gw"), "--chunks")
                self.assertEqual(seen["frame_bytes"], size)
                self.assertEqual(seen["header"]["quantum_mode"], quantum_mode)
                self.assertEqual(seen["chunks"], packed["chunks"])
                self.assertEqual(len(seen["chunk_list"]), seen["header"]["chunk_count"])
                self.assertEqual(sum(c["values"] for c in seen["chunk_list"]), 65536)
                self.assertEqual(sum(c["size"] for c in seen["chunk_list"]) + seen["header"]["payload_offset"], size)
                bits = seen["bits_per_value"]
                self.assertAlmostEqual(sum(v for k, v in bits.items() if k != "total"), bits["total"], places=6)
                self.assertEqual(bits, packed["bits_per_value"])
                unpacked = self.ok_json("decompress", self.path("a.gw"), "-o", self.path("a.npy"), "--snapshot", sample)
                self.assertEqual(unpacked["values"], 65536)
                self.assertEqual(unpacked["input_bytes"], size)
                self.assertEqual(unpacked["output_bytes"], 4 * 65536)
                self.assertGreater(unpacked["decode_GBps"], 0)
                data, descr = npy_data(self.read("a.npy"))
                self.assertEqual((len(data), descr), (4 * 65536, "<f4"))
                self.assertEqual(self.ok_json("verify", self.path("a.gw"), "--snapshot", sample)["status"], "ok")
                for command in (
                    ["inspect", self.path("a.gw"), "--chunks"],
                    ["verify", self.path("a.gw"), "--snapshot", sample],
                ):
                    self.assertIn(b"65536 values", self.ok(*command))

    def test_threads_and_backends_do_not_change_bytes(self):
        sample = self.sample(SAMPLES[0] + ".json")
        for mode in (
            ["--chunk-log2", 12, "--checksum"],
            ["--quantum-mode", "derived", "--preset", "small"],
            ["--rounding", "stochastic", "--seed", 99, "--rank", 3, "--hop", 2, "--step-index", 5],
        ):
            frames = set()
            arrays = set()
            for backend in self.backends():
                for threads in (1, 2, 5):
                    self.ok("compress", sample, "-o", self.path("a.gw"), "-T", threads, "--backend", backend, *mode)
                    frames.add(self.read("a.gw"))
                    self.ok(
                        "decompress",
                        self.path("a.gw"),
                        "-o",
                        self.path("a.npy"),
                        "--snapshot",
                        sample,
                        "-T",
                        threads,
                        "--backend",
                        backend,
                    )
                    arrays.add(self.read("a.npy"))
            self.assertEqual((len(frames), len(arrays)), (1, 1), mode)

    def test_backends_do_not_change_bytes_of_thc(self):
        grad = self.sample(SAMPLES[0] + "-grad.npy")
        made = set()
        for backend in self.backends():
            job = ["--bits", 3, "--workers", 5, "--seed", 7, "--backend", backend]
            self.ok("norm", grad, "-o", self.path("a.norm"), *job)
            self.ok(
                "compress",
                "--codec",
                "thc",
                grad,
                "-o",
                self.path("a.gw"),
                "--norms",
                self.path("a.norm"),
                "--rank",
                4,
                *job,
            )
            made.add((self.read("a.norm"), self.read("a.gw")))
        self.assertEqual(len(made), 1)
        self.fails(2, "norm", grad, "-o", self.path("b.norm"), "--backend", "mmx", says=["mmx"])

    def test_stochastic_counters_matter(self):
        """Each part of the key and counter changes the bytes; the defaults are zeros."""
        sample = self.sample(SAMPLES[0] + ".json")
        frames = []
        for more in (
            [],
            ["--seed", 1],
            ["--step-index", 1],
            ["--rank", 1],
            ["--hop", 1],
            ["--first-element", 4],
            ["--seed", 0, "--rank", 0],
        ):
            self.ok("compress", sample, "-o", self.path("a.gw"), "--rounding", "stochastic", *more)
            frames.append(self.read("a.gw"))
        self.assertEqual(frames[0], frames[6])
        self.assertEqual(len(set(frames)), 6)

    def test_derived_needs_its_map(self):
        sample = self.sample(SAMPLES[1] + ".json")
        out = self.path("a.npy")
        self.ok("compress", sample, "-o", self.path("a.gw"), "--quantum-mode", "derived")
        self.fails(1, "decompress", self.path("a.gw"), "-o", out, says=("a.gw", "--snapshot", "rule 16"))
        other = self.sample(SAMPLES[0] + ".json")
        self.fails(1, "decompress", self.path("a.gw"), "-o", out, "--snapshot", other, says=("byte 32", "rule 16"))
        self.fails(1, "verify", self.path("a.gw"), "--snapshot", other, says="rule 16")
        self.fails(1, "decompress", self.path("a.gw"), "-o", out, "--snapshot", sample, "--as", "sgd", says="rule 16")
        self.fails(
            1, "decompress", self.path("a.gw"), "-o", out, "--snapshot", sample, "--tolerance-bits", 22, says="rule 16"
        )
        self.assert_only("a.gw")
        self.ok(
            "compress", sample, "-o", self.path("a.gw"), "--quantum-mode", "derived", "--as", "sgd", "--wire-scale", 3
        )
        self.ok("decompress", self.path("a.gw"), "-o", out, "--snapshot", sample, "--as", "sgd")

    def test_derived_tolerance_is_found(self):
        sample = self.sample(SAMPLES[1] + ".json")
        for convert in ([], ["--convert", "bf16"], ["--convert", "fp16"]):
            for tolerance in (23, 10, 1):
                options = ["--quantum-mode", "derived", "--tolerance-bits", tolerance, *convert]
                self.ok("compress", sample, "-o", self.path("a.gw"), *options)
                decompress = ["decompress", self.path("a.gw"), "-o", self.path("a.npy"), "--snapshot", sample]
                self.ok(*decompress)
                self.ok(*decompress, "--tolerance-bits", tolerance)
                self.fails(1, *decompress, "--tolerance-bits", 11, says="rule 16")
                # drop_offset that no tolerance gives
                frame = bytearray(self.read("a.gw"))
                frame[14] ^= 1
                bad = self.write("bad.gw", bytes(frame))
                self.fails(1, "verify", bad, "--snapshot", sample, says="rule 16")

    def test_constant_derived_needs_no_snapshot(self):
        self.ok(
            "compress",
            self.sample(SAMPLES[0] + ".json"),
            "-o",
            self.path("a.gw"),
            "--quantum-mode",
            "derived",
            "--drop",
            11,
        )
        self.assertTrue(self.ok_json("inspect", self.path("a.gw"))["header"]["constant"])
        self.ok("decompress", self.path("a.gw"), "-o", self.path("a.npy"))


class Arrays(CliTest):
    def bit_patterns(self, size):
        """Elements of 2 or 4 bytes with every kind of float, and many ordinary ones."""
        rng = random.Random(5)
        if size == 2:
            patterns = list(range(65536))
            rng.shuffle(patterns)
            return struct.pack("<65536H", *patterns)
        # fmt: off
        special = [0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
                   0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7FBFFFFF]
        # fmt: on
        patterns = special * 20 + [rng.getrandbits(32) for _ in range(5000)]
        patterns += [struct.unpack("<I", struct.pack("<f", v))[0] for v in gradient(1, 20000)]
        return struct.pack("<%dI" % len(patterns), *patterns)

    def test_strict_is_exact(self):
        for descr, more in (("<f4", []), ("<f2", []), ("<u2", ["--dtype", "bf16"]), ("<V2", ["--dtype", "bf16"])):
            data = self.bit_patterns(int(descr[-1]))
            source = self.write("a.npy", npy(descr, data))
            for quantum_mode in ("explicit", "derived"):
                with self.subTest(descr=descr, quantum_mode=quantum_mode):
                    self.ok(
                        "compress", source, "-o", self.path("a.gw"), "--strict", "--quantum-mode", quantum_mode, *more
                    )
                    self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
                    back, back_descr = npy_data(self.read("b.npy"))
                    self.assertEqual(back_descr, descr.replace("V", "u"))
                    self.assertEqual(back, data)
                    self.assertEqual(
                        self.ok_json("verify", source, "--strict", "--quantum-mode", quantum_mode, "--runs", 1, *more)[
                            "values_changed"
                        ],
                        0,
                    )

    def test_default_flushes_only(self):
        data = self.bit_patterns(4)
        source = self.write("a.npy", npy("<f4", data))
        report = self.ok_json("verify", source, "--runs", 1)
        words = struct.unpack("<%dI" % (len(data) // 4), data)
        flushed = sum(1 for w in words if w & 0x7F800000 == 0 and w != 0)
        self.assertEqual(report["values_flushed"], flushed)
        self.ok("compress", source, "-o", self.path("a.gw"))
        self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
        back, _ = npy_data(self.read("b.npy"))
        for before, after in zip(words, struct.unpack("<%dI" % len(words), back)):
            self.assertEqual(after, 0 if before & 0x7F800000 == 0 else before)

    def test_constant_drop(self):
        values = gradient(3, 30000)
        source = self.write("a.npy", npy("<f4", floats(values)))
        for quantum_mode, drop, effective in (("explicit", 18, 18), ("explicit", 17, 12), ("derived", 17, 17)):
            self.ok(
                "compress",
                source,
                "-o",
                self.path("a.gw"),
                "--quantum-mode",
                quantum_mode,
                "--drop",
                drop,
                "--rounding",
                "truncate",
            )
            self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
            back, _ = npy_data(self.read("b.npy"))
            mask = 0xFFFFFFFF << effective & 0xFFFFFFFF
            words = array.array("I", floats(values))
            expected = [w & mask if w & 0x7F800000 else 0 for w in words]
            self.assertEqual(list(array.array("I", back)), expected, (quantum_mode, drop))

    def test_target_nmse(self):
        """The error is near the target; in a chunk of a few blocks it may be above it."""
        values = array.array("f", gradient(3, 60000))
        source = self.write("a.npy", npy("<f4", values.tobytes()))
        rates = []
        for target in (1e-5, 1e-3, 1e-2):
            for rounding in ("nearest", "stochastic"):
                options = ["--quantum-mode", "carried", "--target-nmse", target, "--rounding", rounding]
                report = self.ok_json("verify", source, "--runs", 1, *options)
                self.assertEqual((report["values_beyond_cut"], report["map"]), (0, "nmse"))
                rates.append(self.ok_json("compress", source, "-o", self.path("a.gw"), *options)["rate"])
                self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
                back = array.array("f", npy_data(self.read("b.npy"))[0])
                nmse = sum((b - a) ** 2 for a, b in zip(values, back)) / sum(a * a for a in values)
                self.assertTrue(target / 8 < nmse < 1.1 * target, (target, rounding, nmse))
        self.assertGreater(rates[0], 1.5 * rates[-1])

    def test_sizes(self):
        for count in (0, 1, 2, 63, 64, 65, 4095, 4096, 4097):
            source = self.write("a.npy", npy("<f4", floats(gradient(count, count))))
            packed = self.ok_json("compress", source, "-o", self.path("a.gw"), "--chunk-log2", 12, "--strict", "-T", 3)
            self.assertEqual(packed["values"], count)
            self.assertEqual(packed["rate"] is None, count == 0)
            self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"), "-T", 3)
            self.assertEqual(npy_data(self.read("b.npy"))[0], floats(gradient(count, count)))
            self.ok("verify", source, "--runs", 1)
            self.ok("inspect", self.path("a.gw"), "--chunks")

    def test_shapes_and_versions(self):
        data = floats(gradient(1, 24))
        for shape, kind in (
            ("(24,)", {}),
            ("(2, 3, 4)", {}),
            ("(24, 1)", {}),
            ("(24,)", {"version": (2, 0)}),
            ("(4,6)", {"version": (3, 0)}),
            ("(24,)", {"fortran": True}),
            ("(24, 1)", {"fortran": True}),
            ("(1, 24)", {"fortran": True}),
            ("(1, 24, 1, 1)", {"fortran": True}),
            ("(24L,)", {}),  # Python 2
            ("(4L, 6L)", {}),
        ):
            source = self.write("a.npy", npy("<f4", data, shape=shape, **kind))
            self.ok("compress", source, "-o", self.path("a.gw"), "--strict")
            self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
            self.assertEqual(npy_data(self.read("b.npy"))[0], data)
        native = "=f4" if sys.byteorder == "little" else "<f4"
        self.assertEqual(
            self.ok("compress", self.write("a.npy", npy(native, data)), "-o", "-"),
            self.ok("compress", self.write("b.npy", npy("<f4", data)), "-o", "-"),
        )
        source = self.write("a.npy", npy("<f4", b"", shape="(0, 24, 2)", fortran=True))
        self.assertEqual(self.ok_json("compress", source, "-o", self.path("a.gw"))["values"], 0)
        source = self.write("a.npy", npy("<f4", data[:4], shape="()"))
        self.assertEqual(self.ok_json("compress", source, "-o", self.path("a.gw"))["values"], 1)

    def test_byte_order_mark_of_a_snapshot(self):
        path = self.snapshot("s", "sgd", {"lr": 0.1}, {"grad": gradient(1, 99), "param": gradient(2, 99)})
        expected = self.ok("compress", path, "-o", "-")
        text = self.read("s.json")
        self.write("s.json", b"\xef\xbb\xbf" + text)
        self.assertEqual(self.ok("compress", path, "-o", "-"), expected)
        self.write("s.json", b"\xef\xbb\xbf" + text[:-1])
        self.fails(1, "compress", path, "-o", self.path("a.gw"), says="JSON, line 1")
        self.write("s.json", b"\xef\xbb\xbf")
        self.fails(1, "compress", path, "-o", self.path("a.gw"), says="not a snapshot")

    def test_odd_header_length(self):
        """Values at an address that is not a multiple of their size."""
        text = b"{'descr':'<f4','fortran_order':False,'shape':(5,)}\n"
        data = floats([1, 2, 3, 4, 5])
        for pad in range(4):
            header = text + b" " * pad
            source = self.write("a.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)
            self.ok("compress", source, "-o", self.path("a.gw"))
            self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
            self.assertEqual(npy_data(self.read("b.npy"))[0], data)

    def test_pipes(self):
        data = floats(gradient(9, 5000))
        frame = self.ok("compress", "-", "-o", "-", "--strict", "--json", stdin=npy("<f4", data))
        self.assertEqual(frame[:4], b"gWf\x1a")
        self.assertEqual(npy_data(self.ok("decompress", "-", "-o", "-", stdin=frame))[0], data)
        self.assertIn(b"5000 values", self.ok("inspect", "-", stdin=frame))
        self.assertIn(b"ok", self.ok("verify", "-", stdin=frame))

    def test_convert(self):
        # fmt: off
        special = [65504.0, -65519.0, 65520.0, 1e9, -1e9, 2.0**-24, 2.0**-25, 3 * 2.0**-26, 2.0**-14, 6.1e-5, 0.0, -0.0,
                   1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4028234e38, math.inf, -math.inf]
        # fmt: on
        values = gradient(4, 3000) + special
        rng = random.Random(8)
        values += [math.ldexp(rng.uniform(-1, 1), rng.randrange(-30, 16)) for _ in range(3000)]
        words = array.array("f", values)
        source = self.write("a.npy", npy("<f4", words.tobytes()))

        def half(value):
            try:
                return struct.unpack("<H", struct.pack("<e", value))[0]
            except OverflowError:
                return 0xFC00 if value < 0 else 0x7C00

        def brain(value):
            bits = struct.unpack("<I", struct.pack("<f", value))[0]
            return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16

        for dtype, convert in (("fp16", half), ("bf16", brain)):
            self.ok("compress", source, "-o", self.path("a.gw"), "--convert", dtype, "--strict")
            self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
            back = array.array("H", npy_data(self.read("b.npy"))[0])
            self.assertEqual(list(back), [convert(v) for v in words], dtype)


def updated(kind, h, state, i, g):
    """PyTorch's update of parameter i, in Python: independent of the command."""
    theta = state["param"][i]
    step = h["step"]
    g = -g if h.get("maximize") else g
    decay = h.get("weight_decay", 0)
    if kind == "adamw":
        theta *= 1 - h["lr"] * decay
    else:
        g += decay * theta
    if kind == "sgd":
        return theta - h["lr"] * g
    if kind in ("momentum", "nesterov"):
        m = state.get("momentum_buffer")
        m = g if m is None else h["momentum"] * m[i] + (1 - h.get("dampening", 0)) * g
        return theta - h["lr"] * (g + h["momentum"] * m if kind == "nesterov" else m)
    if kind == "adagrad":
        total = state["sum"][i] + g * g
        return theta - h["lr"] / (1 + (step - 1) * h.get("lr_decay", 0)) * g / (math.sqrt(total) + h["eps"])
    if kind == "rmsprop":
        v = h["alpha"] * state["square_avg"][i] + (1 - h["alpha"]) * g * g
        if h.get("centered"):
            v -= (h["alpha"] * state["grad_avg"][i] + (1 - h["alpha"]) * g) ** 2
        move = g / (math.sqrt(v) + h["eps"])
        if h.get("momentum"):
            move += h["momentum"] * state["momentum_buffer"][i]
        return theta - h["lr"] * move
    b1, b2 = h["betas"]
    m = b1 * state["exp_avg"][i] + (1 - b1) * g
    v = b2 * state["exp_avg_sq"][i] + (1 - b2) * g * g
    if h.get("amsgrad"):
        v = max(v, state["max_exp_avg_sq"][i])
    return theta - h["lr"] / (1 - b1**step) * m / (math.sqrt(v) / math.sqrt(1 - b2**step) + h["eps"])


class Optimizers(CliTest):
    CASES = [
        ("sgd", "sgd", {"lr": 0.1, "weight_decay": 1e-4, "momentum": 0}, []),
        ("sgd", "momentum", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}, ["momentum_buffer"]),
        ("sgd", "nesterov", {"lr": 0.1, "momentum": 0.9, "nesterov": True}, ["momentum_buffer"]),
        ("momentum", "momentum", {"lr": 0.1, "momentum": 0.9, "maximize": True}, ["momentum_buffer"]),
        ("adagrad", "adagrad", {"lr": 0.01, "lr_decay": 0.01, "eps": 1e-10}, ["sum"]),
        ("rmsprop", "rmsprop", {"lr": 0.01, "alpha": 0.99, "eps": 1e-8}, ["square_avg"]),
        (
            "rmsprop",
            "rmsprop",
            {"lr": 0.01, "alpha": 0.9, "eps": 1e-8, "momentum": 0.5, "centered": True},
            ["square_avg", "grad_avg", "momentum_buffer"],
        ),
        (
            "adam",
            "adam",
            {"lr": 0.001, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.01},
            ["exp_avg", "exp_avg_sq"],
        ),
        (
            "adam",
            "adam",
            {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "amsgrad": True},
            ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
        ),
        (
            "adamw",
            "adamw",
            {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1},
            ["exp_avg", "exp_avg_sq"],
        ),
    ]

    def state_arrays(self, parts, count):
        rng = random.Random(17)

        def narrow(values):
            return list(array.array("f", values))

        state = {"grad": narrow(gradient(2, count)), "param": narrow([rng.gauss(0, 0.05) for _ in range(count)])}
        for part in parts:
            if part in ("momentum_buffer", "exp_avg", "grad_avg"):
                state[part] = narrow([rng.gauss(0, 1e-4) for _ in range(count)])
            else:
                state[part] = narrow([1e-6 * (0.5 + rng.random()) for _ in range(count)])
        return state

    def test_deviation_is_that_of_pytorch(self):
        count = 3000
        for name, kind, hyper, parts in self.CASES:
            for step in (1, 400):
                with self.subTest(kind=kind, hyper=hyper, step=step):
                    state = self.state_arrays(parts, count)
                    path = self.snapshot("s", name, hyper, state, step=step)
                    report = self.ok_json("verify", path, "--runs", 1, "--wire-scale", 2)
                    self.assertEqual(report["optimizer"], kind)
                    self.ok("compress", path, "-o", self.path("a.gw"), "--wire-scale", 2)
                    self.ok("decompress", self.path("a.gw"), "-o", self.path("b.npy"))
                    back = array.array("f", npy_data(self.read("b.npy"))[0])
                    rule = dict(hyper, step=step)
                    worst = 0
                    for i in range(count):
                        exact = updated(kind, rule, state, i, state["grad"][i] / 2)
                        other = updated(kind, rule, state, i, back[i] / 2)
                        worst = max(worst, abs(other - exact) / abs(state["param"][i]))
                    self.assertGreater(worst, 0)
                    self.assertAlmostEqual(report["parameter_deviation"]["max"] / worst, 1, places=3)
                    self.assertLess(worst, report["parameter_deviation_truncated"]["max"] / 8)

    def test_first_step_of_momentum_has_no_buffer(self):
        state = self.state_arrays([], 2000)
        path = self.snapshot("s", "momentum", {"lr": 0.1, "momentum": 0.9}, state, step=1)
        self.assertEqual(self.ok_json("verify", path, "--runs", 1)["optimizer"], "momentum")
        self.snapshot("s", "momentum", {"lr": 0.1, "momentum": 0.9}, state, step=2)
        self.fails(3, "verify", path, says="s-momentum_buffer.npy")


class Info(CliTest):
    def test_info(self):
        info = self.ok_json("info")
        self.assertEqual(info["format_version"], 0)
        self.assertIn("scalar", info["backends_available"])
        for backend in info["backends_available"]:
            self.assertIn(backend, info["backends_built"])
        self.assertIn(info["version"].encode(), self.ok("info"))
        self.assertIn(info["version"].encode(), self.ok("--version"))

    def test_help(self):
        self.assertIn(b"compress", self.ok("--help"))
        for command in ("compress", "decompress", "inspect", "verify", "info"):
            self.assertIn(("gradwire " + command).encode(), self.ok(command, "--help"))


if __name__ == "__main__":
    main()
