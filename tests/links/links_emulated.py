"""bench/links/emulated.py against arithmetic, with a clock that only waiting moves."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from links.emulated import Link, Loopback  # noqa: E402
from links.link_spec import LinkSpec  # noqa: E402

SECOND = LinkSpec(10**8).goodput / 8  # bytes that 100 Mb/s carry in a second


class VirtualClock:
    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

    def wait(self, _condition, seconds):
        self.seconds += seconds


class Emulated(unittest.TestCase):
    def setUp(self):
        self.clock, self.arrived = VirtualClock(), {}

    def link(self, text):
        return Link(LinkSpec.parse(text), self.clock)

    def send(self, link, name, size, rounds=1):
        link.send(size, rounds, lambda: self.arrived.setdefault(name, self.clock.now() - 1000))

    def run_until(self, link, count):
        while len(self.arrived) < count:
            link.step()

    def test_transfers_wait_for_each_other(self):
        link = self.link("100mbit+20ms")
        self.send(link, "long", 3 * SECOND)
        self.send(link, "short", SECOND)
        self.run_until(link, 2)
        self.assertAlmostEqual(self.arrived["long"], 3.01, 6)
        self.assertAlmostEqual(self.arrived["short"], 4.01, 6)
        self.assertEqual(link.sent_bytes, 4 * SECOND)

    def test_an_idle_link_starts_when_it_is_asked(self):
        link = self.link("100mbit")
        self.send(link, "first", SECOND)
        self.run_until(link, 1)
        self.clock.seconds += 5
        self.send(link, "second", SECOND)
        self.run_until(link, 2)
        self.assertAlmostEqual(self.arrived["second"], 7.0, 6)

    def test_rounds_take_half_a_round_trip_each_and_leave_the_link_free(self):
        link = self.link("100mbit+20ms")
        self.send(link, "ring", SECOND, rounds=6)
        self.send(link, "message", SECOND)
        self.run_until(link, 2)
        self.assertAlmostEqual(self.arrived["ring"], 1.06, 6)
        self.assertAlmostEqual(self.arrived["message"], 2.01, 6)

    def test_a_late_answer_does_not_hold_up_what_arrives_before_it(self):
        link = self.link("unlimited+1000ms")
        self.send(link, "ring", 1, rounds=6)
        self.send(link, "message", 1)
        self.run_until(link, 2)
        self.assertEqual(list(self.arrived), ["message", "ring"])
        self.assertAlmostEqual(self.arrived["ring"], 3.0, 6)

    def test_without_limit_nothing_is_held_back(self):
        link = self.link("unlimited")
        self.send(link, "all", 10**9, rounds=6)
        self.run_until(link, 1)
        self.assertEqual(self.arrived["all"], 0)

    def test_ranks_on_loopback(self):
        with Loopback(2, LinkSpec.parse("1gbit")) as net:
            self.assertEqual(net.inside(1), [])
            self.assertEqual(net.settings()["GLOO_SOCKET_IFNAME"], "lo")
            self.assertAlmostEqual(net.expected()["duplex_mbit"][1], net.spec.goodput / 1e6)


if __name__ == "__main__":
    unittest.main()
