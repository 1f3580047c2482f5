"""bench/links without namespaces: what links are, names, computed times."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from links import computed, namespaces  # noqa: E402
from links.link_spec import LinkSpec  # noqa: E402
from links.network import address  # noqa: E402


class Spec(unittest.TestCase):
    def test_parses_and_prints(self):
        for text, rate, rtt in [
            ("100mbit", 10**8, 0),
            ("1gbit+20ms", 10**9, 0.02),
            ("2.5gbit", 2500 * 10**6, 0),
            ("unlimited", None, 0),
            ("unlimited+0.5ms", None, 0.0005),
            ("100kbit", 10**5, 0),
        ]:
            spec = LinkSpec.parse(text)
            self.assertEqual((spec.rate, spec.rtt), (rate, rtt))
            self.assertEqual(str(spec), text)

    def test_refuses(self):
        for text in [
            "",
            "100",
            "mbit",
            "-1gbit",
            "1gbit+20",
            "20ms",
            "1 gbit",
            "1gbit+3000ms",
            "1kbit",
            "1000gbit",
            "1gbit;x",
        ]:
            with self.assertRaises(ValueError, msg=text):
                LinkSpec.parse(text)

    def test_bucket_holds_a_segment(self):
        for text in ["100kbit", "100mbit", "500mbit", "1gbit", "2gbit+20ms", "10gbit"]:
            spec = LinkSpec.parse(text)
            words = dict(zip(spec.bucket()[1::2], spec.bucket()[2::2]))
            self.assertEqual(words["rate"], f"{spec.rate}bit")
            self.assertGreater(int(words["burst"][:-1]), spec.largest_packet())
            self.assertGreaterEqual(int(words["limit"][:-1]), 2 * int(words["burst"][:-1]))
            self.assertTrue(0.94 < spec.goodput / spec.rate < 0.96)
        self.assertIsNone(LinkSpec(None).bucket())

    def test_computed(self):
        spec = LinkSpec.parse("1gbit+20ms")
        self.assertAlmostEqual(computed.wire_seconds(spec, spec.goodput / 8, 2), 1.02)
        self.assertEqual(computed.wire_seconds(LinkSpec(None), 10**9, 2), 0)


class Names(unittest.TestCase):
    def test_own_process_lives(self):
        self.assertEqual(namespaces.prefix(), f"gwlink-{os.getpid()}-{namespaces.start_of(os.getpid())}")
        self.assertIsNone(namespaces.start_of(2**22 + 1))

    def test_addresses_differ(self):
        self.assertEqual(len({address(rank) for rank in range(64)}), 64)
        self.assertEqual(address(0), "10.213.0.1")


if __name__ == "__main__":
    unittest.main()
