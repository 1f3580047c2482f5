"""gradwire rate, and --target-bits: predicted sizes beside those of compress, the drawing, bad command lines.

SPDX-License-Identifier: BSD-2-Clause
"""

import os
import xml.etree.ElementTree

from cli_harness import CliTest, floats, gradient, main, npy

SAMPLES = ["resnet50-sgdm-step0400", "resnet50-adamw-step0400", "bertbase-adamw-step0050"]


class Rate(CliTest):
    def compressed(self, sample, *options):
        return self.ok_json("compress", sample, "-o", self.path("a.gw"), "--quantum-mode", "derived", *options)

    def test_tolerance_curve_is_what_compress_makes(self):
        for name in SAMPLES:
            sample = self.sample(name + ".json")
            for deep in ("on", "off"):
                report = self.ok_json("rate", sample, "--preset", "small", "--dead-zone", deep)
                self.assertEqual((report["limit"], report["values"]), ("tolerance", 65536))
                self.assertEqual([p["tolerance_bits"] for p in report["points"]], list(range(23, 0, -1)))
                for t in (23, 14, 8):
                    options = f"--preset small --rounding stochastic --dead-zone {deep} --tolerance-bits {t}"
                    made = self.compressed(sample, *options.split())
                    point = report["points"][23 - t]
                    self.assertAlmostEqual(point["bits_per_value"], made["bits_per_value"]["total"], places=9)
                    self.assertAlmostEqual(point["rate_fp32"], made["rate_fp32"], places=9)
                    self.assertAlmostEqual(point["deviation_bound"] * 2.0**t, 1)
                errors = [p["nmse"] for p in report["points"]]
                self.assertEqual(errors, sorted(errors))
                self.assertEqual(report["points"][0]["added_to_v"] is None, "sgdm" in name)

    def test_noise_curve(self):
        sample = self.sample(SAMPLES[2] + ".json")
        report = self.ok_json("rate", sample, "--noise", "--preset", "small")
        self.assertEqual((report["limit"], report["dead_zone"]), ("noise", True))
        self.assertEqual(len(report["points"]), 17)
        for i, point in enumerate(report["points"]):
            self.assertAlmostEqual(point["noise"], 2.0 ** (i / 2 - 8), places=9)
            self.assertLess(point["added_to_v"], point["noise"] ** 2 / 4)
            self.assertGreater(point["worst_deviation"], 0)
        for i in (0, 8, 12):
            made = self.compressed(sample, "--preset", "small", "--noise", report["points"][i]["noise"])
            self.assertAlmostEqual(
                report["points"][i]["bits_per_value"] / made["bits_per_value"]["total"], 1, delta=0.001
            )

    def test_other_options_and_table(self):
        sample = self.sample(SAMPLES[0] + ".json")
        fast = self.ok_json("rate", sample, "--as", "sgd", "--rounding", "nearest", "--convert", "fp16", "-T", 2)
        self.assertEqual((fast["dtype"], fast["optimizer"], fast["rounding"]), ("fp16", "sgd", "nearest"))
        self.assertAlmostEqual(fast["points"][0]["deviation_bound"] * 2.0**24, 1)
        table = self.ok("rate", sample).decode().splitlines()
        self.assertEqual(len(table), 25)
        self.assertEqual([line.split()[0] for line in table[2:]], [str(t) for t in range(23, 0, -1)])

    def test_plot(self):
        for options in ([], ["--noise"]):
            self.ok("rate", self.sample(SAMPLES[1] + ".json"), "--plot", self.path("a.svg"), *options)
            root = xml.etree.ElementTree.fromstring(self.read("a.svg"))
            texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
            for text in ("bits a value", "NMSE of the gradient", "noise added to v"):
                self.assertIn(text, texts)
            self.assertIn("2^-8" if options else "23", texts)
        out = self.ok("rate", self.sample(SAMPLES[0] + ".json"), "--plot", "-")
        self.assertTrue(out.startswith(b"<svg ") and out.endswith(b"</svg>\n"))
        self.assert_only("a.svg")

    def test_target_bits(self):
        sample = self.sample(SAMPLES[0] + ".json")
        before = 0
        for bits in (1, 2, 3.5, 8):
            made = self.compressed(sample, "--preset", "small", "--target-bits", bits)
            t = made["chosen_tolerance_bits"]
            self.assertGreater(t, before)
            before = t
            self.assertEqual(made["target_bits"], bits)
            self.assertEqual(made["predicted_bytes"], os.path.getsize(self.path("a.gw")))
            self.assertLessEqual(made["bits_per_value"]["total"], bits)
            self.assertEqual((made["dead_zone"], made["rounding"]), (True, "stochastic"))
            options = f"--preset small --rounding stochastic --dead-zone on --tolerance-bits {t + 1}"
            self.assertGreater(self.compressed(sample, *options.split())["bits_per_value"]["total"], bits)
        options = ["--quantum-mode", "derived", "--target-bits", 3]
        report = self.ok_json("verify", sample, "--runs", 1, *options)
        self.assertEqual((report["values_beyond_cut"], report["target_bits"]), (0, 3))
        self.assertIn(b"bits chosen", self.ok("verify", sample, "--runs", 1, *options))
        self.ok("compress", sample, "-o", self.path("a.gw"), *options)
        self.ok("decompress", self.path("a.gw"), "-o", self.path("a.npy"), "--snapshot", sample)

    def test_bad_command_lines(self):
        sample = self.sample(SAMPLES[0] + ".json")
        array = self.write("a.npy", npy("<f4", floats(gradient(1, 100))))
        self.fails(2, "rate", array, says="snapshot")
        self.fails(2, "rate", says="input")
        self.fails(2, "rate", sample, "--dead-zone", "maybe", says="--dead-zone")
        self.fails(2, "rate", sample, "--plot", self.sample(SAMPLES[0] + "-grad.npy"), says="input file")
        self.fails(1, "rate", sample, "--noise", says="momentum")
        self.fails(3, "rate", self.path("none.json"), says="none.json")
        for bits in ("0", "-1", "x", "65"):
            self.fails(2, "compress", sample, "-o", self.path("b.gw"), "--target-bits=" + bits, says="--target-bits")
        for options in ("", "--quantum-mode derived --drop 3", "--quantum-mode derived --tolerance-bits 9"):
            compress = ["compress", sample, "-o", self.path("b.gw"), "--target-bits", 3] + options.split()
            self.fails(2, *compress, says="--target-bits")
        compress = ["compress", sample, "-o", self.path("b.gw"), "--quantum-mode", "derived", "--target-bits", 0.01]
        self.fails(1, *compress, says="smallest frame")
        self.assert_only("a.npy")


if __name__ == "__main__":
    main()
