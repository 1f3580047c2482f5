"""bench/links in real namespaces: the limits limit, ranks run, and nothing is left behind however a run ends.

Throughput is checked from above and round trips from below only: load on the machine cannot fail the test.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from links import mpi_launch, namespaces, permission, probe  # noqa: E402
from links.link_spec import LinkSpec  # noqa: E402
from links.network import Network, address  # noqa: E402
from links.ranks import RanksFailed, run_ranks  # noqa: E402
from links.shared_namespaces import Machines  # noqa: E402

CHILD = f"""
import sys, time
sys.path.insert(0, {str(BENCH)!r})
from links.link_spec import LinkSpec
from links.network import Network
from links.ranks import run_ranks
with Network(2, LinkSpec.parse("100mbit+2ms")) as net:
    print(net.prefix, flush=True)
    run_ranks(net, ["sleep", "60"], 60)
"""


def ours(prefix):
    return [name for name in namespaces.existing() if name.startswith(prefix)]


class Limits(unittest.TestCase):
    def check(self, text):
        spec = LinkSpec.parse(text)
        with Network(2, spec) as net:
            seen = probe.measure(net, 0.6)
            sent = [row["sent_bytes"] for row in net.counters()]
        # A full bucket, drained within the 0.3 s that count, comes on top of the rate.
        burst = 8 * int(spec.bucket()[4][:-1]) / 0.3 / 1e6
        for rate in [seen["alone_mbit"], *seen["duplex_mbit"]]:
            self.assertTrue(0 < rate < 1.05 * seen["expected_mbit"] + burst, seen)
        for rtt in seen["rtt_ms"]:
            self.assertGreaterEqual(rtt, seen["expected_rtt_ms"])
        self.assertGreater(min(sent), 10_000)

    def test_rate(self):
        self.check("100mbit")

    def test_rate_and_delay(self):
        self.check("100mbit+20ms")


class Ranks(unittest.TestCase):
    def test_environment_and_output(self):
        with Network(3, LinkSpec(None)) as net:
            results = run_ranks(net, ["sh", "-c", "echo $RANK $WORLD_SIZE $MASTER_ADDR; ip -o -4 address"], 20)
        for result in results:
            self.assertTrue(result.output.startswith(f"{result.rank} 3 10.213.0.1\n"), result.output)
            self.assertIn(address(result.rank) + "/", result.output)

    def test_machines_of_several_ranks(self):
        """Each pair has one namespace, and so one link."""
        with Network(2, LinkSpec.parse("100mbit")) as net:
            pairs = Machines(net, 2)
            words = ["sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE; ip -o -4 address"]
            results = run_ranks(pairs, words, 20, extra=pairs.local)
        self.assertEqual([result.rank for result in results], [0, 1, 2, 3])
        for result in results:
            self.assertTrue(result.output.startswith(f"{result.rank} 4 {result.rank % 2} 2\n"), result.output)
            self.assertIn(address(result.rank // 2) + "/", result.output)

    def test_failed_rank_ends_all(self):
        with Network(2, LinkSpec(None)) as net:
            begin = time.monotonic()
            with self.assertRaisesRegex(RanksFailed, "rank 1 failed with status 3"):
                run_ranks(net, lambda rank: ["sleep", "60"] if rank == 0 else ["sh", "-c", "exit 3"], 60, patience=0.2)
            self.assertLess(time.monotonic() - begin, 50)
            self.assertEqual(namespaces.processes(net.name(0)), [])

    def test_time_limit(self):
        with Network(2, LinkSpec(None)) as net:
            with self.assertRaisesRegex(RanksFailed, "not done after"):
                run_ranks(net, ["sh", "-c", "sleep 60 & sleep 60"], 0.3)
            self.assertEqual(namespaces.processes(net.name(0)), [])


class Removal(unittest.TestCase):
    def start(self):
        child = subprocess.Popen(
            [sys.executable, "-B", "-c", CHILD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        prefix = child.stdout.readline().strip()
        self.assertEqual(len(ours(prefix)), 3)
        return child, prefix

    def test_exception(self):
        with self.assertRaisesRegex(ZeroDivisionError, ""):
            with Network(2, LinkSpec.parse("1gbit")) as net:
                self.assertEqual(len(ours(net.prefix)), 3)
                raise ZeroDivisionError
        self.assertEqual(ours(net.prefix), [])

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            child, prefix = self.start()
            child.send_signal(number)
            child.wait(30)
            child.stdout.close()
            self.assertEqual(ours(prefix), [], number)

    def test_killed_run(self):
        child, prefix = self.start()
        child.kill()
        child.wait(30)
        child.stdout.close()
        self.assertEqual(len(ours(prefix)), 3)
        with Network(2, LinkSpec(None)):
            self.assertEqual(ours(prefix), [])


class Mpi(unittest.TestCase):
    def test_ranks_meet(self):
        tried = 0
        for mpi in mpi_launch.LAUNCHERS:
            if mpi_launch.missing(mpi):
                print("not tried:", mpi_launch.missing(mpi))
                continue
            tried += 1
            with Network(2, LinkSpec(None)) as net:
                text = mpi_launch.run_mpi(net, mpi, ["sh", "-c", "echo rank; ip -o -4 address"], 60)
            for rank in range(2):
                self.assertIn(address(rank) + "/", text)
        if not tried:
            self.skipTest("no MPI")


if __name__ == "__main__":
    reason = permission.refusal()
    if reason:
        print(f"SKIP limited links: {reason}")
        sys.exit(77)
    permission.enter()
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main()
