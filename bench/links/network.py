"""Ranks in network namespaces, joined by a switch over limited links; always removed again."""

import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time

from . import namespaces
from .namespaces import command

SUBNET = "10.213.0.0/16"
PORT = 29500  # of MASTER_ADDR; the namespaces are new, so no other program has it
_HERE = os.path.dirname(os.path.abspath(__file__))


def address(rank):
    """IPv4 address of a rank; it exists inside the run's namespaces only."""
    return f"10.213.{(rank + 1) // 256}.{(rank + 1) % 256}"


def compile_c(name):
    """Builds a program of this folder with cc into build/links, if its source is newer; returns its path."""
    source = os.path.join(_HERE, f"{name}.c")
    folder = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "build", "links")
    if not os.access(os.path.dirname(os.path.dirname(_HERE)), os.W_OK):
        folder = os.path.join(tempfile.gettempdir(), f"gwlink-{os.getuid()}")
    os.makedirs(folder, exist_ok=True)
    program = os.path.join(folder, name)
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        made = f"{program}.{os.getpid()}"
        command(os.environ.get("CC", "cc"), "-std=c11", "-O2", source, "-o", made, timeout=120)
        os.replace(made, program)
    return program


class Network:
    """`with Network(ranks, spec) as net:` joins `ranks` namespaces by links of LinkSpec `spec`.

    Removed at the end of the block, also after an exception, SIGINT, SIGTERM and SIGHUP (those two become SystemExit
    inside the block; from the main thread only). What a killed run left is removed when the next one starts.
    """

    def __init__(self, ranks, spec):
        if not 1 <= ranks <= 64:
            raise ValueError("1 to 64 ranks")
        self.ranks, self.spec = ranks, spec
        self.prefix = namespaces.prefix()
        self.switch = f"{self.prefix}-sw"
        self._made, self._delay_switch, self._handlers = [], None, {}

    def name(self, rank):
        """Namespace of a rank."""
        return f"{self.prefix}-r{rank}"

    def inside(self, rank):
        return namespaces.inside(self.name(rank))

    def settings(self):
        """How the ranks find each other."""
        return {"MASTER_ADDR": address(0), "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": "eth0"}

    def __enter__(self):
        namespaces.remove(namespaces.leftovers())
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                self._handlers[number] = signal.signal(number, _leave)
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        ignored = {}
        if threading.current_thread() is threading.main_thread():  # a second Ctrl-C must not stop the removal
            ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *self._handlers)}
        try:
            names, self._made = self._made, []
            namespaces.remove(names)
            if self._delay_switch is not None:
                self._delay_switch.wait(10)
                self._delay_switch.stdout.close()
                self._delay_switch = None
        finally:
            for number, handler in {**ignored, **self._handlers}.items():
                signal.signal(number, handler)
            self._handlers = {}

    def _create(self, name):
        self._made.append(name)  # first: an interrupt between the two must not leave it behind
        namespaces.create(name)
        command("ip", "-n", name, "link", "set", "lo", "up")

    def _make(self):
        self._create(self.switch)
        # No address on the switch, and no IPv6: nothing but the ranks' own packets passes.
        quiet = "for f in all default; do echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done 2>/dev/null; "
        command(*namespaces.inside(self.switch), "sh", "-c", quiet + ":")
        if not self.spec.rtt:
            command("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
            command("ip", "-n", self.switch, "link", "set", "br0", "up")
        for rank in range(self.ranks):
            self._make_rank(rank, quiet)
        if self.spec.rtt:
            self._start_delay_switch()
        for rank in range(self.ranks):
            self._wait_for_carrier(rank)

    def _wait_for_carrier(self, rank):
        """The kernel reports a new link as running up to a second late, and UCX ignores links that are not."""
        end = time.monotonic() + 10
        while json.loads(command("ip", "-j", "-n", self.name(rank), "link", "show", "eth0"))[0]["operstate"] != "UP":
            if time.monotonic() > end:
                raise namespaces.CommandError(f"eth0 of rank {rank} does not come up")
            time.sleep(0.02)

    def _make_rank(self, rank, quiet):
        name, port = self.name(rank), f"p{rank}"
        self._create(name)
        size = self.spec.socket_buffer()
        buffers = "".join(
            f"read a b c < /proc/sys/net/ipv4/{f}; [ $c -ge {size} ] || echo $a $b {size} > /proc/sys/net/ipv4/{f}; "
            for f in ("tcp_rmem", "tcp_wmem")
        )
        # Connections of one run must not inherit what those of the run before learnt about the path.
        fresh = "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save; "
        command(*self.inside(rank), "sh", "-c", quiet + buffers + fresh)
        ip, packet = ["ip", "-n"], self.spec.largest_packet()
        station = f"02:67:77:00:00:{rank + 1:02x}"
        command(
            *ip,
            name,
            "link",
            "add",
            "eth0",
            "address",
            station,
            "type",
            "veth",
            "peer",
            "name",
            port,
            "netns",
            self.switch,
        )
        for where, device in ((name, "eth0"), (self.switch, port)):
            command(*ip, where, "link", "set", device, "gso_max_size", packet)
            if self.spec.rate is not None:
                command("tc", "-n", where, "qdisc", "add", "dev", device, "root", *self.spec.bucket())
        command(*ip, name, "address", "add", f"{address(rank)}/{SUBNET.split('/')[1]}", "dev", "eth0")
        if not self.spec.rtt:
            command(*ip, self.switch, "link", "set", port, "master", "br0")
        command(*ip, self.switch, "link", "set", port, "up")
        command(*ip, name, "link", "set", "eth0", "up")

    def _start_delay_switch(self):
        """One way takes half of the round trip."""
        words = [*namespaces.inside(self.switch), compile_c("delay_switch"), round(self.spec.rtt * 5e5)]
        words += [f"p{rank}" for rank in range(self.ranks)]
        self._delay_switch = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        readable, _, _ = select.select([self._delay_switch.stdout], [], [], 10)
        if not readable or self._delay_switch.stdout.readline() != "ready\n":
            raise namespaces.CommandError("delay_switch does not start")

    def counters(self):
        """Per rank: bytes and packets sent and received, and what its two token buckets dropped."""
        result = []
        for rank in range(self.ranks):
            link = json.loads(command("ip", "-j", "-s", "-n", self.name(rank), "link", "show", "eth0"))[0]["stats64"]
            sent, received = link["tx"], link["rx"]
            result.append(
                {
                    "sent_bytes": sent["bytes"],
                    "sent_packets": sent["packets"],
                    "received_bytes": received["bytes"],
                    "received_packets": received["packets"],
                    "drops_out": self._drops(self.name(rank), "eth0"),
                    "drops_in": self._drops(self.switch, f"p{rank}"),
                }
            )
        return result

    @staticmethod
    def _drops(name, device):
        return sum(
            q.get("drops", 0) for q in json.loads(command("tc", "-j", "-s", "-n", name, "qdisc", "show", "dev", device))
        )


def _leave(number, _frame):
    raise SystemExit(128 + number)
