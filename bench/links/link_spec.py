"""What a link is: its rate and round-trip time, and the token bucket that makes the rate."""

import dataclasses
import re

_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_FRAME_OVERHEAD = 14 + 20 + 20 + 12  # Ethernet, IPv4, TCP, its time stamps: what the bucket counts beside the payload
_MTU = 1500


@dataclasses.dataclass(frozen=True)
class LinkSpec:
    """A full-duplex link of `rate` bit/s each way (None: no limit) and `rtt` seconds from rank to rank and back."""

    rate: int | None
    rtt: float = 0.0

    @classmethod
    def parse(cls, text):
        """ "100mbit", "2.5gbit+20ms" or "unlimited+5ms": rate, then the round-trip time if there is one."""
        match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)(kbit|mbit|gbit)|unlimited)(?:\+(\d+(?:\.\d+)?)ms)?", text)
        if not match:
            raise ValueError(f"'{text}' is no link: write 100mbit, 1gbit+20ms or unlimited")
        number, unit, delay = match.groups()
        rate = round(float(number) * _UNITS[unit]) if number else None
        if rate is not None and not 10**5 <= rate <= 10**11:
            raise ValueError(f"'{text}': rates from 100kbit to 100gbit")
        rtt = float(delay) / 1e3 if delay else 0.0
        if rtt > 2:
            raise ValueError(f"'{text}': round-trip times up to 2000ms")
        return cls(rate, rtt)

    def __str__(self):
        if self.rate is None:
            text = "unlimited"
        else:
            unit = next(u for u in ("gbit", "mbit", "kbit") if self.rate >= _UNITS[u])
            text = f"{self.rate / _UNITS[unit]:g}{unit}"
        return text + (f"+{self.rtt * 1e3:g}ms" if self.rtt else "")

    @property
    def goodput(self):
        """Most bit/s of TCP payload: the bucket counts Ethernet frames without preamble, checksum and gap."""
        return None if self.rate is None else self.rate * (_MTU - 52) / (_MTU - 52 + _FRAME_OVERHEAD)

    def largest_packet(self):
        """Bytes of the largest segment that TCP may hand to the link (gso_max_size).

        A segment leaves the bucket at once: kept to 250 us of the link, a message takes nearly the time that it would
        take in frames. Not below 8 KiB, where acknowledgements, one a segment, take a percent of the link and more.
        """
        if self.rate is None:
            return 65536
        return min(65536, max(8192, int(self.rate * 250e-6 / 8)))

    def bucket(self):
        """tc's arguments of the token bucket, None without a limit.

        burst: one segment, and what the link sends while a timer is late by 100 us; more would let messages through at
        once, less would lose rate. limit: 20 ms of the link and what a round trip holds, at least 256 KiB: the buffer
        of a switch port, large enough for three senders that start together.
        """
        if self.rate is None:
            return None
        burst = self.largest_packet() + 2048 + int(self.rate * 100e-6 / 8)
        limit = max(256 * 1024, int(self.rate * (0.02 + self.rtt) / 8))
        return ["tbf", "rate", f"{self.rate}bit", "burst", f"{burst}b", "limit", f"{limit}b"]

    def socket_buffer(self):
        """Bytes that a TCP socket may buffer at most: four times what a round trip holds, at least 4 MiB."""
        return max(4 << 20, int(4 * (self.rate or 10**10) * self.rtt / 8))
