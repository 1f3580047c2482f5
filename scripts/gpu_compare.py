#!/usr/bin/env python3
"""Other people's codecs on the same GPU, for the report of scripts/gpu: nvCOMP ANS on split exponents, torch's cast to bf16.

Says what is not installed and ends with 77 if nothing is. 256 MiB of fp32 with gradient-like exponents; medians of 15.
"""
import statistics
import sys

LEN = 1 << 26


def median_ms(torch, call):
    times = []
    for i in range(18):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        if i >= 3:
            times.append(start.elapsed_time(stop))
    return statistics.median(times)


def row(name, ms, moved, copy_rate=None):
    rate = moved / ms / 1e6
    share = f"{100 * rate / copy_rate:.0f} %" if copy_rate else "100 %"
    print(f"| {name} | {ms * 1e3:.1f} us | {rate:.0f} GB/s | {share} |")
    return rate


def compare_nvcomp(torch, x, copy_rate):
    try:
        from nvidia import nvcomp
    except ImportError:
        print("nvCOMP is not installed: NOT compared")
        return
    # fp32 has no type of its own there: its exponents as bytes, the other 24 bits stay as they are (counted as moved).
    exponents = (x.view(torch.int32) >> 23).to(torch.uint8)
    codec = nvcomp.Codec(algorithm="ANS")
    array = nvcomp.as_array(exponents)
    coded = codec.encode(array)
    size = coded.buffer_size if hasattr(coded, "buffer_size") else len(bytes(coded.cpu()))
    row(f"nvCOMP ANS encode of exponents ({8 * size / LEN:.2f} bits a value)", median_ms(torch, lambda: codec.encode(array)),
        LEN + size, copy_rate)
    row("nvCOMP ANS decode of exponents", median_ms(torch, lambda: codec.decode(coded)), LEN + size, copy_rate)


def main():
    try:
        import torch
    except ImportError:
        print("torch is not installed: neither torch's cast nor nvCOMP was compared")
        return 77
    if not torch.cuda.is_available():
        print("torch sees no GPU: nothing was compared")
        return 77
    torch.manual_seed(1)
    x = torch.randn(LEN, device="cuda") * 1e-3
    y = torch.empty_like(x)
    half = torch.empty(LEN, device="cuda", dtype=torch.bfloat16)
    print("| work, 256 MiB of fp32 | time | moved | of copy |\n|---|---|---|---|")
    copy_rate = row("torch copy", median_ms(torch, lambda: y.copy_(x)), 8 * LEN)
    row("torch cast to bf16", median_ms(torch, lambda: half.copy_(x)), 6 * LEN, copy_rate)
    row("torch cast from bf16", median_ms(torch, lambda: y.copy_(half)), 6 * LEN, copy_rate)
    compare_nvcomp(torch, x, copy_rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
