"""What the links of a Network really do: throughput and round-trip time, through plain sockets inside the namespaces.

    python3 -m links.probe PEER...      the part of one rank; started by measure()

Every rank sends to the next and receives from the one before, first one pair alone, then all at once: full duplex.
"""

import json
import os
import socket
import statistics
import sys
import threading
import time

from .network import address
from .ranks import run_ranks

_PORT = 29400
_BLOCK = 1 << 18


def measure(net, seconds=1.0):
    """A dictionary: round-trip times in ms, throughput in Mb/s of TCP payload alone (rank 0 to 1) and all at once,
    expectation."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    words = [sys.executable, "-B", "-m", "links.probe", seconds, *(address(rank) for rank in range(net.ranks))]
    results = run_ranks(net, words, limit=30 + 10 * seconds, extra={"PYTHONPATH": paths})
    rows = [json.loads(result.output) for result in results]
    goodput = net.spec.goodput
    return {
        "link": str(net.spec),
        "expected_mbit": None if goodput is None else goodput / 1e6,
        "alone_mbit": rows[1]["alone"] / 1e6,
        "duplex_mbit": [row["duplex"] / 1e6 for row in rows],
        "expected_rtt_ms": net.spec.rtt * 1e3,
        "rtt_ms": [row["rtt"] * 1e3 for row in rows],
        "drops": sum(c["drops_out"] + c["drops_in"] for c in net.counters()),
    }


class Ring:
    """Connections of one rank: to the next, and from the one before; for tokens, and a pair for each flow of data."""

    def __init__(self, rank, peers):
        self.rank, self.ranks = rank, len(peers)
        self.peer = peers[(rank + 1) % self.ranks]
        self.server = socket.create_server((peers[rank], _PORT), backlog=4)
        self.server.settimeout(20)
        self.next, self.before = self._connect()

    def _connect(self):
        end = time.monotonic() + 20
        while True:
            try:
                following = socket.create_connection((self.peer, _PORT), timeout=5)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
        before, _ = self.server.accept()
        for s in (following, before):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.settimeout(20)
        return following, before

    def barrier(self):
        """Two tokens around the ring: no rank leaves before all have arrived."""
        for _ in range(2):
            if self.rank == 0:
                self.next.sendall(b"b")
                assert self.before.recv(1) == b"b"
            else:
                assert self.before.recv(1) == b"b"
                self.next.sendall(b"b")

    def round_trip(self, repeats=20):
        """Median time of one byte to the next rank and back."""
        times = []
        for turn in range(self.ranks):
            self.barrier()
            for _ in range(repeats):
                if turn == self.rank:
                    begin = time.perf_counter()
                    self.next.sendall(b"p")
                    self.next.recv(1)
                    times.append(time.perf_counter() - begin)
                elif (turn + 1) % self.ranks == self.rank:
                    self.before.recv(1)
                    self.before.sendall(b"p")
        return statistics.median(times)

    @staticmethod
    def _send(following, seconds):
        block, end = b"d" * _BLOCK, time.monotonic() + seconds
        while time.monotonic() < end:
            following.sendall(block)
        following.shutdown(socket.SHUT_WR)

    @staticmethod
    def _receive(before, seconds):
        """Bit/s over the second half of the time, when slow start is over."""
        buffer, total, late, begin, last = memoryview(bytearray(_BLOCK)), 0, None, None, None
        while True:
            n = before.recv_into(buffer)
            t = time.monotonic()
            if n == 0:
                return 8 * (total - late[1]) / (last - late[0]) if late and last > late[0] else 0.0
            begin, last = begin or t, t
            total += n
            if late is None and t - begin > seconds / 2:
                late = (t, total)

    def flow(self, senders, seconds):
        """The ranks in `senders` send to their next rank; returns what this rank received, None if no rank sent to
        it."""
        self.barrier()
        following, before = self._connect()
        rate = None
        with following, before:
            sender = threading.Thread(target=self._send, args=(following, seconds), daemon=True)
            if self.rank in senders:
                sender.start()
            if (self.rank - 1) % self.ranks in senders:
                rate = self._receive(before, seconds)
            if self.rank in senders:
                sender.join()
        return rate


def main():
    seconds, peers = float(sys.argv[1]), sys.argv[2:]
    if len(peers) < 2:
        sys.exit("two ranks or more")
    ring = Ring(int(os.environ["RANK"]), peers)
    row = {"rtt": ring.round_trip(), "alone": ring.flow([0], seconds), "duplex": ring.flow(range(len(peers)), seconds)}
    ring.barrier()
    print(json.dumps(row))


if __name__ == "__main__":
    main()
