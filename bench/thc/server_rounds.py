"""Seconds of a round of THC by `gradwire thc-serve`, in ratio to Gloo's all-reduce of fp32, alternating in one run.

    PYTHONPATH=bench:python python3 bench/thc/server_rounds.py --command build/release/gradwire [--ranks 4]
        [--link 100mbit] [--len 1000000] [--repeats 9]

The server has a link of its own. Without --link all are on the loopback interface. Prints a line for each way: median
and least seconds of the slowest rank, and the ratio of the medians.

SPDX-License-Identifier: BSD-2-Clause
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PORT = 5610
WAYS = ("gloo fp32", "thc, all ranks", "thc-serve udp", "thc-serve tcp")


def rank_main(given):
    import gradwire.torch
    import torch
    import torch.distributed as dist
    from gradwire.torch.buckets import Bucket

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), given.ranks
    dist.init_process_group("gloo", rank=rank, world_size=size)
    param = torch.nn.Parameter(torch.zeros(given.len))
    states = {}
    for way in WAYS[1:]:
        server = f"{way[-3:]}://{given.server}" if "serve" in way else None
        states[way] = gradwire.torch.thc_hook(torch.optim.SGD([param], lr=1.0), server=server)[0]
    values = torch.randn(given.len, generator=torch.Generator().manual_seed(rank))
    times = {way: [] for way in WAYS}
    sizes = {}
    for _ in range(given.repeats + 1):
        for way in WAYS:
            work = values.clone()
            dist.barrier()
            begin = time.perf_counter()
            if way == WAYS[0]:
                dist.all_reduce(work)
            else:
                states[way].start(Bucket(work, [param], [work])).wait()
            seconds = torch.tensor(time.perf_counter() - begin)
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            times[way].append(seconds.item())
    for way, state in states.items():
        sizes[way] = [size / (given.repeats + 1) / given.len * 8 for size in state.sizes()]
        state.close()
    if rank == 0:
        print(json.dumps({"times": {way: one[1:] for way, one in times.items()}, "bits": sizes}))


def report(text, given):
    found = json.loads(text)
    base = statistics.median(found["times"][WAYS[0]])
    for way in WAYS:
        times = found["times"][way]
        median = statistics.median(times)
        bits = found["bits"].get(way)
        sent = f", {bits[0]:.2f} bits a value up, {bits[1]:.2f} down" if bits else ""
        print(f"{way:15} median {median:.4f} s, least {min(times):.4f} s, ratio {median / base:.2f}{sent}")
    print(f"{given.ranks} ranks, {given.len} values, {given.link or 'loopback'}, {given.repeats} repeats")


def own_words(given, server):
    words = [sys.executable, os.path.abspath(__file__), "--server", server]
    for name in ("ranks", "len", "repeats"):
        words += [f"--{name}", str(getattr(given, name))]
    return words


def on_loopback(given):
    serve = [given.command, "thc-serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server, tempfile.TemporaryFile("w+") as out:
        address = server.stdout.readline().split()[-1]
        ranks = []
        try:
            for rank in range(given.ranks):
                settings = {"RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
                environment = {**os.environ, **settings, "GLOO_SOCKET_IFNAME": "lo"}
                stdout = out if rank == 0 else None
                ranks.append(subprocess.Popen(own_words(given, address), env=environment, stdout=stdout))
            for rank in ranks:
                rank.wait(given.limit)
        finally:
            for process in (*ranks, server):
                process.terminate()
        out.seek(0)
        return out.read()


def on_links(given):
    from links import permission
    from links.link_spec import LinkSpec
    from links.network import Network, address
    from links.ranks import run_ranks

    why = permission.refusal()
    if why:
        sys.exit(f"SKIP limited links: {why}")
    permission.enter()
    with Network(given.ranks + 1, LinkSpec.parse(given.link)) as net:
        where = f"{address(given.ranks)}:{PORT}"
        serve = [*net.inside(given.ranks), given.command, "thc-serve", "--listen", where, *given.serve.split()]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                server.stdout.readline()
                net.ranks -= 1
                return run_ranks(net, own_words(given, where), given.limit)[0].output
            finally:
                net.ranks += 1
                server.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--command", default="build/release/gradwire")
    parser.add_argument("--serve", default="", help="more options of thc-serve")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--link", help="of bench/links, such as 100mbit")
    parser.add_argument("--len", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--server", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.command = os.path.abspath(given.command)
    if given.server:
        rank_main(given)
        return
    report((on_links if given.link else on_loopback)(given).strip().splitlines()[-1], given)


if __name__ == "__main__":
    main()
