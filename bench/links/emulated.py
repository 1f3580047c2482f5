"""Links where namespaces are not permitted: ranks on loopback, and a queue in each that holds its transfers back.

What a rank sends leaves at the rate of the link, one after the other, and arrives half a round trip later. Sending and
receiving do not disturb each other; what several ranks send to one does not collide, as it does at the receiver's end
of a real link. So times are those of an ideal link: compare them with each other, not with measured ones.
"""

import heapq
import itertools
import socket
import threading
import time

from .computed import wire_seconds
from .link_spec import LinkSpec


class Loopback:
    """In place of a Network: no limits; the ranks' programs hold their transfers back when GW_EMULATED is set."""

    def __init__(self, ranks, spec):
        self.ranks, self.spec = ranks, spec

    def __enter__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        return self

    def __exit__(self, *_):
        pass

    def inside(self, _rank):
        return []

    def settings(self):
        return {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._port),
            "GLOO_SOCKET_IFNAME": "lo",
            "GW_EMULATED": "1",
        }

    def expected(self):
        """What probe.measure() finds on a Network."""
        goodput = float("inf") if self.spec.rate is None else self.spec.goodput / 1e6
        return {
            "link": str(self.spec),
            "duplex_mbit": [goodput] * self.ranks,
            "rtt_ms": [self.spec.rtt * 1e3] * self.ranks,
        }


class Clock:
    """Real time."""

    now = staticmethod(time.monotonic)

    @staticmethod
    def wait(condition, seconds):
        """Until then, or until the condition is notified; None: no limit."""
        condition.wait(seconds)


class Link:
    """A rank's queue, and what is to be done when a transfer has arrived. Any thread may call send()."""

    def __init__(self, spec, clock=None):
        self.spec, self.sent_bytes = spec, 0
        self._clock = clock or Clock()
        self._free = 0.0  # when the last byte will have left
        self._due, self._order = [], itertools.count()
        self._changed = threading.Condition()

    def start(self):
        threading.Thread(target=self._run, name="emulated-link", daemon=True).start()
        return self

    def send(self, size, rounds, then):
        """Calls then() on the link's thread when `size` bytes of `rounds` messages, each an answer to the one before,
        have arrived."""
        with self._changed:
            self.sent_bytes += size
            self._free = max(self._clock.now(), self._free) + wire_seconds(self.spec, size, 0)
            at = self._free + wire_seconds(LinkSpec(None, self.spec.rtt), 0, rounds)
            heapq.heappush(self._due, (at, next(self._order), then))
            self._changed.notify()

    def step(self):
        """Waits for the next arrival, or for a new transfer, and calls what is due."""
        with self._changed:
            left = self._due[0][0] - self._clock.now() if self._due else None
            if left is None or left > 0:
                self._clock.wait(self._changed, left)
                return
            then = heapq.heappop(self._due)[2]
        then()

    def _run(self):
        while True:
            self.step()
