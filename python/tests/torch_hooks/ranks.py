"""Runs a function in several processes that form a Gloo group over loopback."""

import multiprocessing
import os
import queue
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

if hasattr(torch, "compile"):
    import torch._dynamo  # noqa: F401  optimizers of torch 2 import it when first used: once here, not in every process

TIMEOUT_S = 60


def _main(body, rank, size, store, timeout_s, backend, arguments, results):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
        )
        results.put((rank, "ok", body(rank, size, *arguments)))
    except BaseException:
        results.put((rank, "error", traceback.format_exc()))
    results.close()
    results.join_thread()
    os._exit(0)  # threads that wait for a dead peer must not keep the process


def run(body, size, *arguments, timeout_s=30, may_die=(), start="fork", backend="gloo"):
    """Results of body(rank, size, *arguments) by rank. Fails if a rank raises; ranks in may_die may also just end.

    Processes are forked: the parent has imported torch but computed nothing with it. start: "spawn" for CUDA, which
    does not work in a forked process.
    """
    context = multiprocessing.get_context(start)
    results = context.Queue()
    with tempfile.TemporaryDirectory(prefix="torch-test-") as folder:
        arguments = (size, os.path.join(folder, "store"), timeout_s, backend, arguments, results)
        processes = [context.Process(target=_main, args=(body, rank, *arguments), daemon=True) for rank in range(size)]
        for process in processes:
            process.start()
        found = {}
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < size - len(may_die) and time.monotonic() < deadline:
                try:
                    rank, kind, value = results.get(timeout=0.5)
                except queue.Empty:
                    continue
                assert kind == "ok", f"rank {rank}:\n{value}"
                found[rank] = value
        finally:
            for process in processes:
                process.join(5 if len(found) >= size - len(may_die) else 0.1)
                if process.is_alive():
                    process.kill()
    missing = set(range(size)) - set(found) - set(may_die)
    assert not missing, f"no result of ranks {sorted(missing)} within {TIMEOUT_S} s"
    return found
