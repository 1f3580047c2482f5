"""`gradwire thc-serve` as a process: sockets, limits, statistics, signals; a worker written from docs/format-thc.md.

    thc_serve_cli.py COMMAND

SPDX-License-Identifier: BSD-2-Clause
"""

import json
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time

JOIN, CHALLENGE, WELCOME, REFUSED, AGAIN, LEAVE = range(1, 7)
INDICES, RESULT, NORMS, MAXIMA = 1, 3, 5, 6
TABLE = bytes([0, 1, 2, 3] + [0] * 12)  # two bits
BLOCK, HASH, JOB = 64, 0x1234, 99
HEAD = struct.Struct("<IBBHIHHQQQII")
PACKET = struct.Struct("<IBBBBBBHIIIHHIQQ")


def message(kind, rank, n=2, cookie=0, epoch=0, body=b"", job=JOB):
    return HEAD.pack(0x1A6A5767, 0, kind, 0, job, rank, n, HASH, cookie, epoch, 0, 0) + body


def join(rank, cookie=0, n=2, values=4 * BLOCK, job=JOB, lanes=8):
    body = struct.pack("<BBBBBBxx16sQI12x", 2, 3, lanes, 6, 1, 0, TABLE, values, 0)
    return message(JOIN, rank, n, cookie, body=body, job=job)


def packet(kind, rank, payload, first=0, blocks=4, round=0, lanes=0, norms_hash=0, job=JOB):
    size = blocks if kind == NORMS else blocks * BLOCK
    head = (0x1A705767, 0, kind, 2, 3, lanes, 6, 2, job, round, first, blocks, rank, size, HASH, norms_hash)
    return PACKET.pack(*head) + payload


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class Datagrams:
    def __init__(self, address):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(address)
        self.socket.settimeout(5)

    def send(self, data):
        self.socket.send(data)

    def get(self):
        return self.socket.recv(65536)


class Stream:
    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=5)

    def send(self, data):
        framed = struct.pack("<I", len(data)) + data
        for i in range(0, len(framed), 50):  # in pieces
            self.socket.sendall(framed[i : i + 50])

    def get(self):
        (size,) = struct.unpack("<I", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


class Server:
    def __init__(self, command, *options, files=None):
        """files: soft and hard limit of open files."""
        words = [command, "thc-serve", "--listen", "127.0.0.1:0", *options]
        limit = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, preexec_fn=limit)
        host, port = self.process.stdout.readline().split()[-1].split(":")
        self.address = host, int(port)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=20)
        assert self.process.returncode == 0 and not errors, (self.process.returncode, errors)
        return out


def fields(data):
    names = ("magic", "version", "type", "reason", "job", "rank", "n", "hash", "cookie", "epoch", "round", "detail")
    return dict(zip(names, HEAD.unpack(data[:48])))


def joined(link, rank, **options):
    """By UDP with a cookie; TCP needs none."""
    link.send(join(rank, **options))
    answer = fields(link.get())
    if isinstance(link, Datagrams):
        assert answer["type"] == CHALLENGE and answer["cookie"] != 0
        link.send(join(rank, cookie=answer["cookie"], **options))
        answer = fields(link.get())
    return answer


def results(link, kind):
    """The next packet of this kind: whole header and the payload behind the set of 8 bytes."""
    while True:
        data = link.get()
        if data[:4] == b"gWp\x1a" and data[5] == kind:
            return PACKET.unpack(data[:48]), data[48:56], data[56:]


def one_round(a, b):
    """Two workers, a UDP and a TCP one, with 4 blocks of 64 values."""
    norms = [[0x3F800000, 0x40000000, 0x3F800001, 0], [0x3F900000, 0x3F800000, 0x3F800002, 0x3F800000]]
    for link, rank in ((a, 0), (b, 1)):
        link.send(packet(NORMS, rank, struct.pack("<4I", *norms[rank]), lanes=32))
    wanted = struct.pack("<4I", *map(max, *norms))
    for link in (a, b):
        head, members, maxima = results(link, MAXIMA)
        assert maxima == wanted and members == bytes([3] + 7 * [0]), (head, members, maxima)
    indices = [bytes(random.Random(rank).randbytes(4 * BLOCK // 4)) for rank in (0, 1)]
    for link, rank in ((a, 0), (b, 1)):
        link.send(packet(INDICES, rank, indices[rank], norms_hash=fnv(wanted)))
    sums = bytearray()
    for group in range(4):
        for i in range(64):
            where, shift = group * 16 + i % 16, 2 * (i // 16)
            sums.append(sum(one[where] >> shift & 3 for one in indices))
    for link in (a, b):
        head, members, lanes = results(link, RESULT)
        assert lanes == sums and members == bytes([3] + 7 * [0])
    a.send(packet(INDICES, 0, indices[0], norms_hash=fnv(wanted)))  # again: so is the answer
    head, members, lanes = results(a, RESULT)
    assert lanes == sums


def check_round(command):
    server = Server(command, "--json")
    a, b = Datagrams(server.address), Stream(server.address)
    stranger = Datagrams(server.address)
    stranger.send(packet(NORMS, 0, bytes(16), lanes=32))
    answer = stranger.get()
    assert fields(answer)["type"] == AGAIN and len(answer) <= 64
    first = joined(a, 0)
    assert first["type"] == WELCOME and first["reason"] == 1
    assert first["detail"] & 0xFFFF > 1 and (first["detail"] >> 16) % (first["detail"] & 0xFFFF) == 0
    last = joined(b, 1)
    assert last["type"] == WELCOME and last["reason"] == 2 and last["epoch"] == first["epoch"] != 0
    one_round(a, b)
    server.process.send_signal(signal.SIGUSR1)
    text = ""
    while not text.endswith("\n}\n"):
        text += server.process.stdout.readline()
    found = json.loads(text)
    assert found["results"] == 2 and found["partial"] == 0 and found["added"] == 4 and found["unknown"] == 1
    assert found["repeated"] == 1 and found["now"][0]["joined"] == 2 and found["now"][0]["job"] == JOB
    a.send(message(LEAVE, 0, epoch=first["epoch"]))
    b.send(message(LEAVE, 1, epoch=first["epoch"]))
    b.send(join(1, n=3, job=7))  # an answer says that the server has read all of this
    b.get()
    found = json.loads(server.end(signal.SIGINT))
    assert [job["job"] for job in found["now"]] == [7] and found["forgotten"] == 0, found


def check_garbage(command):
    """Nothing that is sent ends the server, and all of it is counted."""
    server = Server(command, "--json", "--memory", "1M", "--jobs", "2", "--connections", "3")
    generator = random.Random(5)
    link = Datagrams(server.address)
    good = [join(0), packet(NORMS, 0, bytes(16), lanes=32), packet(INDICES, 0, bytes(64))]
    count = 0
    for i in range(200):
        data = bytearray(generator.choice(good))
        kind = i % 4
        if kind == 0:
            data = data[: generator.randrange(len(data))]
        elif kind == 1:
            data += b"x"
        elif kind == 2:
            data[generator.randrange(6)] ^= 1 << generator.randrange(8)
        else:
            data = bytearray(generator.randbytes(generator.randrange(1, 200)))
        link.send(data)
        count += 1
    stream = Stream(server.address)
    stream.socket.sendall(struct.pack("<I", 1 << 30))
    try:
        assert stream.socket.recv(1) == b"", "a size that no packet has ends the connection"
    except ConnectionResetError:
        pass
    refused = joined(Stream(server.address), 0, values=1 << 30)
    assert refused["type"] == REFUSED and refused["reason"] == 5 and refused["detail"] == 1
    refused = joined(Stream(server.address), 0, lanes=9)
    assert refused["type"] == REFUSED and refused["reason"] == 1
    kept = [Stream(server.address) for _ in range(3)]
    assert joined(kept[0], 0)["type"] == WELCOME
    refused = joined(kept[1], 0)
    assert refused["type"] == REFUSED and refused["reason"] == 3
    assert joined(kept[1], 0, job=5)["type"] == WELCOME
    refused = joined(kept[2], 0, job=6)
    assert refused["type"] == REFUSED and refused["reason"] == 4 and refused["detail"] == 2
    more = Stream(server.address)
    try:
        more.get()
        raise AssertionError("more connections than allowed")
    except (EOFError, ConnectionResetError):
        pass
    found = json.loads(server.end())
    assert found["jobs"] == 2 and found["added"] == 0 and found["refused_connections"] == 1, found
    assert sum(found["refused"].values()) > 0.5 * count and "short" in found["refused"], found


def check_files(command):
    """More connections than files that may be open."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    server = Server(command, "--connections", "128", files=(64, hard))
    assert joined(Stream(server.address), 0)["type"] == WELCOME, "the soft limit is raised"
    server.end()
    words = [command, "thc-serve", "--listen", "127.0.0.1:0", "--connections", "128"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # noqa: E731
    found = subprocess.run(words, capture_output=True, text=True, timeout=20, preexec_fn=limit)
    assert found.returncode == 2 and "--connections 128" in found.stderr and "is 64" in found.stderr, found


def check_no_files_left(command):
    """A connection that cannot be accepted keeps the server neither from its workers nor from signals."""
    server = Server(command, "--json", "--connections", "4")
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (6, 6))  # as many as it waits for
    links = [Stream(server.address) for _ in range(4)]
    assert joined(Datagrams(server.address), 0)["type"] == WELCOME
    time.sleep(0.5)
    with open(f"/proc/{server.process.pid}/stat") as file:
        ticks = sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
    found = json.loads(server.end())
    assert found["connections"] < 4, found
    assert ticks < 30, "the server spins"  # of 50, at 100 a second
    for link in links:
        link.socket.close()


def check_signals_under_load(command):
    """They are taken while packets wait, and not after all of these."""
    server = Server(command, "--json")
    link = Datagrams(server.address)
    server.process.send_signal(signal.SIGSTOP)
    for _ in range(2000):
        link.send(bytes(64))
    server.process.send_signal(signal.SIGUSR1)
    server.process.send_signal(signal.SIGCONT)
    text = ""
    while not text.endswith("\n}\n"):
        text += server.process.stdout.readline()
    link.send(join(0))
    link.get()  # an answer says that the server has read all of this
    before, after = json.loads(text)["received"], json.loads(server.end())["received"]
    assert before < after - 1 or after < 600, (before, after)  # a small buffer of the socket holds few


def check_nobody_reads(command):
    """Statistics that nobody reads do not end the server."""
    server = Server(command)
    server.process.stdout.close()
    server.process.send_signal(signal.SIGUSR1)
    time.sleep(0.1)
    assert joined(Stream(server.address), 0)["type"] == WELCOME
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(20)
    assert code == 3, code  # the last ones could not be written: an error, but no signal
    server.process.stderr.close()


def check_strangers(command):
    """Connections of no worker give their places back, also those that send something."""
    server = Server(command, "--connections", "3", "--idle", "4")
    begin = time.monotonic()
    worker = Stream(server.address)
    assert joined(worker, 0)["type"] == WELCOME
    slow, loud = Stream(server.address), Stream(server.address)  # parts of a packet; whole ones that are wrong
    slow.socket.sendall(struct.pack("<I", 60000))
    ended = set()
    while len(ended) < 2:
        assert time.monotonic() - begin < 60
        for link in (slow, loud):
            if select.select([link.socket], [], [], 0.2)[0]:
                ended.add(link)
        try:
            slow.socket.sendall(b"x")
            loud.send(bytes(64))
        except OSError:
            pass
        worker.send(join(0))
        assert fields(worker.get())["type"] == WELCOME
    assert joined(Stream(server.address), 1)["reason"] == 2
    server.end()


def check_command_line(command):
    def fails(code, says, *words):
        found = subprocess.run([command, "thc-serve", *words], capture_output=True, text=True, timeout=20)
        assert found.returncode == code and says in found.stderr, found

    fails(2, "leave nothing", "--no-udp", "--no-tcp")
    fails(2, "quorum", "--quorum", "0")
    fails(2, "packet", "--packet", "100")
    fails(3, "HOST:PORT", "--listen", "nowhere")
    fails(3, "brackets", "--listen", "::1:80")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fails(3, "TCP socket", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--no-udp")
    text = Server(command).end()
    assert text.startswith("statistics\n  received 0"), text


def main():
    command = sys.argv[1]
    check_round(command)
    check_garbage(command)
    check_files(command)
    check_no_files_left(command)
    check_signals_under_load(command)
    check_nobody_reads(command)
    check_strangers(command)
    check_command_line(command)


if __name__ == "__main__":
    main()
