#!/usr/bin/env python3
"""Classic compressors written with torch, as training frameworks have them, beside memcpy of the same bytes.

    bench/classic_torch.py [--snapshot data/samples/resnet50-sgdm-step0400] [--mib 25] [--seconds 0.5]

Prints a table: call, way, median microseconds, and the median of time of memcpy / time of the call, both measured in
turn, one thread. Each pair works on other buffers than the one before, 8 in turn, so that little is left in caches.
What is written here follows the way of GRACE (tensor operations, bytes or int8 for signs and levels, int64 for
positions, no packing); the code is our own. Needs torch.
"""

import argparse
import ctypes
import statistics
import time

import numpy as np
import torch

BUFFERS = 8


def topk_encode(x, ratio):
    _, positions = torch.topk(x.abs(), int(x.numel() * ratio), sorted=False)
    return x[positions], positions


def sparse_decode(message, like):
    values, positions = message
    return torch.zeros_like(like).scatter_(0, positions, values)


def dgc_encode(x, ratio):
    """The momentum's steps, a threshold from a sample of 1 %, and all values above it."""
    u = torch.zeros_like(x).mul_(0.9).add_(x)
    v = torch.zeros_like(x).add_(u)
    size = v.abs()
    sample = size[torch.randint(0, x.numel(), (x.numel() // 100,))]
    threshold = torch.topk(sample, max(1, int(sample.numel() * ratio)), sorted=False)[0].min()
    mask = size >= threshold
    positions = torch.where(mask)[0]
    values = v[positions]
    v.mul_(~mask)
    u.mul_(~mask)
    return values, positions


def randk_encode(x, ratio):
    positions = torch.randperm(x.numel())[: int(x.numel() * ratio)]
    return x[positions], positions


def sign_encode(x):
    return (x >= 0).to(torch.uint8)


def sign_decode(signs, like):
    return signs.to(torch.float32).mul_(2).sub_(1)


def efsign_encode(x):
    p = x + torch.zeros_like(x)
    mean = p.abs().mean()
    signs = (p >= 0).to(torch.uint8)
    _ = p - (signs.to(torch.float32) * 2 - 1) * mean
    return signs, mean


def onebit_encode(x):
    p = x + torch.zeros_like(x)
    negative = p < 0
    count = negative.sum()
    low, high = p[negative].sum() / count, p[~negative].sum() / (p.numel() - count)
    _ = p - torch.where(negative, low, high)
    return negative.to(torch.uint8), low, high


def qsgd_encode(x, levels, bucket):
    rows = x.view(-1, bucket)
    norm = rows.norm(dim=1, keepdim=True)
    share = rows.abs() * (levels / norm)
    low = share.floor()
    level = low + (torch.rand_like(share) < share - low)
    return (level * rows.sign()).to(torch.int8), norm


def qsgd_decode(message, like):
    level, norm = message
    return (level.to(torch.float32) * (norm / 4)).view(-1)


def terngrad_encode(x):
    limit = 2.5 * x.std(unbiased=False)
    clipped = x.clamp(-limit, limit)
    largest = clipped.abs().max()
    chosen = torch.rand_like(x) * largest < clipped.abs()
    return (clipped.sign() * chosen).to(torch.int8), largest


def terngrad_decode(message, like):
    return message[0].to(torch.float32) * message[1]


# Name of the way as in bench_classic.cc, encode, decode.
WAYS = (
    ("fp16", lambda x: x.to(torch.float16), lambda m, x: m.to(torch.float32)),
    ("bf16", lambda x: x.to(torch.bfloat16), lambda m, x: m.to(torch.float32)),
    ("topk_1", lambda x: topk_encode(x, 0.01), sparse_decode),
    ("topk_10", lambda x: topk_encode(x, 0.1), sparse_decode),
    ("dgc_1", lambda x: dgc_encode(x, 0.01), sparse_decode),
    ("randk_1", lambda x: randk_encode(x, 0.01), sparse_decode),
    ("signsgd", sign_encode, sign_decode),
    ("efsignsgd", efsign_encode, lambda m, x: (m[0].to(torch.float32) * 2 - 1) * m[1]),
    ("onebit", onebit_encode, lambda m, x: torch.where(m[0].bool(), m[1], m[2])),
    ("qsgd4_packed", lambda x: qsgd_encode(x, 4, 512), qsgd_decode),
    ("terngrad", terngrad_encode, terngrad_decode),
)


def clock(body):
    start = time.thread_time_ns()
    body()
    return (time.thread_time_ns() - start) * 1e-3


def measure(body, copies, seconds):
    """Median microseconds and median share of memcpy of body(i), in turn with copies(i)."""
    body(0)
    times, shares = [], []
    end = time.monotonic() + seconds
    while len(times) < 5 or time.monotonic() < end:
        i = len(times) % BUFFERS
        if len(times) % 2:
            own, other = clock(lambda i=i: body(i)), clock(lambda i=i: copies(i))
        else:
            other, own = clock(lambda i=i: copies(i)), clock(lambda i=i: body(i))
        times.append(own)
        shares.append(other / own)
    return statistics.median(times), statistics.median(shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", default="data/samples/resnet50-sgdm-step0400")
    parser.add_argument("--mib", type=float, default=25)
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    length = int(args.mib * 2**18) // 512 * 512
    values = np.resize(np.load(args.snapshot + "-grad.npy").astype(np.float32), length)
    tensors = [torch.from_numpy(values.copy()) for _ in range(BUFFERS)]
    to = [np.ones(length, np.float32) for _ in range(2)]

    def copies(i):
        ctypes.memmove(to[i % 2].ctypes.data, tensors[i].data_ptr(), 4 * length)

    print("call\tway\tus\tvs_memcpy")
    for name, encode, decode in WAYS:
        message = encode(tensors[0])
        for call, body in (("encode", lambda i: encode(tensors[i])), ("decode", lambda i: decode(message, tensors[i]))):
            us, share = measure(body, copies, args.seconds)
            print(f"{call}\t{name}\t{us:.1f}\t{share:.5f}", flush=True)


if __name__ == "__main__":
    main()
