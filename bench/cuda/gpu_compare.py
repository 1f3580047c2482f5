#!/usr/bin/env python3
"""Other people's codecs on the same GPU, for the report of bench/cuda/gpu: torch's cast to bf16, nvCOMP ANS.

    gpu_compare.py [--len N] [--repeats N]

N values of fp32 (default 2^26: 256 MiB, far above the cache) with the exponents of a normal distribution; medians of
events on one stream, which is nvCOMP's too; shares of torch's copy of the same values in the same process. nvCOMP's
ANS codes bytes: the exponents split off (the other 24 bits would be stored raw and are not counted),
and, if this nvCOMP has that type, fp32 values whole. What it encodes is decoded and compared. Its times include what
its Python calls do around the kernels, which is why each is given with memory that the call takes itself and, where
this nvCOMP can, with memory and configuration given.

Names what is not installed; exit 77 if nothing could be compared, 1 if nvCOMP's decode does not give its input back.
"""

import argparse
import statistics
import sys

WARM_UP = 3


class Bench:
    def __init__(self, torch, stream, repeats):
        self.torch, self.stream, self.repeats, self.copy_rate = torch, stream, repeats, None

    def median_ms(self, call):
        times = []
        for i in range(WARM_UP + self.repeats):
            start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(self.stream)
            call()
            stop.record(self.stream)
            stop.synchronize()
            if i >= WARM_UP:
                times.append(start.elapsed_time(stop))
        return statistics.median(times)

    def row(self, name, moved, call):
        ms = self.median_ms(call)
        rate = moved / ms / 1e6
        self.copy_rate = self.copy_rate or rate
        print(f"| {name} | {ms * 1e3:.1f} us | {rate:.0f} GB/s | {100 * rate / self.copy_rate:.0f} % |", flush=True)


def size_of(coded):
    """Bytes of an encoded array."""
    return coded.buffer_size if hasattr(coded, "buffer_size") else len(bytes(coded.cpu()))


def compare_ans(bench, nvcomp, name, values, data_type, value_count):
    """One type through ANS. Returns whether the decoded bytes are the encoded ones."""
    torch, handle = bench.torch, bench.stream.cuda_stream
    # Without cuda_stream a codec makes a stream of its own, which these events do not measure.
    codec = nvcomp.Codec(algorithm="ANS", data_type=data_type, cuda_stream=handle)
    array = nvcomp.as_array(values, cuda_stream=handle)
    coded = codec.encode(array)
    decoded = codec.decode(coded, data_type)
    bench.stream.synchronize()
    in_bytes = values.numel() * values.element_size()
    moved = in_bytes + size_of(coded)
    bits = 8 * size_of(coded) / value_count
    bench.row(f"nvCOMP ANS encode of {name}, {bits:.2f} bits a value", moved, lambda: codec.encode(array))
    bench.row(f"nvCOMP ANS decode of {name}", moved, lambda: codec.decode(coded, data_type))
    try:
        # Of 6.0 on; without a configuration a decode waits for the stream to read the header.
        encode_config, decode_config = codec.compression_config(in_bytes), codec.decompression_config(coded)
        room, place = codec.encode(array), codec.decode(coded, data_type)
        encode = lambda: codec.encode(array, out=room, compression_config=encode_config)  # noqa: E731
        decode = lambda: codec.decode(coded, data_type, out=place, decompression_config=decode_config)  # noqa: E731
        encode()
        decode()
    except Exception as e:  # whichever its versions raise for a call that they do not have
        print(f"nvCOMP {name}: no rows with given memory and configuration: {type(e).__name__}: {e}")
    else:
        bench.row(f"nvCOMP ANS encode of {name}, memory and configuration given", moved, encode)
        bench.row(f"nvCOMP ANS decode of {name}, memory and configuration given", moved, decode)
    same = torch.equal(torch.from_dlpack(decoded).reshape(-1).view(torch.uint8), values.reshape(-1).view(torch.uint8))
    if not same:
        print(f"nvCOMP ANS of {name}: WHAT IT DECODES IS NOT WHAT IT ENCODED")
    return same


def compare_nvcomp(bench, x):
    try:
        from nvidia import nvcomp
    except ImportError as e:
        print(f"nvCOMP is not installed ({e}): NOT compared")
        return True
    print(f"nvCOMP {getattr(nvcomp, '__version__', '?')} for CUDA {getattr(nvcomp, '__cuda_version__', '?')}")
    torch, count = bench.torch, x.numel()
    exponents = (x.view(torch.int32) >> 23).to(torch.uint8)
    bench.stream.synchronize()
    is_same = compare_ans(bench, nvcomp, "exponents", exponents, "|u1", count)
    try:
        is_same = compare_ans(bench, nvcomp, "fp32 values", x, "<f4", count) and is_same
    except Exception as e:  # whichever its versions raise for a type that they do not have
        print(f"nvCOMP ANS of fp32 values: NOT compared: {type(e).__name__}: {e}")
    return is_same


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--len", type=int, default=1 << 26)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args(argv)
    if args.len < 1 or args.repeats < 1:
        parser.error("at least one value and one repeat")
    try:
        import torch
    except ImportError:
        print("torch is not installed: neither torch's cast nor nvCOMP was compared")
        return 77
    if not torch.cuda.is_available():
        print("torch sees no GPU: nothing was compared")
        return 77
    torch.manual_seed(1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        bench = Bench(torch, stream, args.repeats)
        x = torch.randn(args.len, device="cuda") * 1e-3
        y = torch.empty_like(x)
        half = torch.empty(args.len, device="cuda", dtype=torch.bfloat16)
        stream.synchronize()
        print(f"torch {torch.__version__}, {args.len} values of fp32, {4 * args.len / 2**20:.0f} MiB")
        print("\n| work | time | moved | of copy |\n|---|---|---|---|")
        bench.row("torch copy", 8 * args.len, lambda: y.copy_(x))
        bench.row("torch cast to bf16", 6 * args.len, lambda: half.copy_(x))
        bench.row("torch cast from bf16", 6 * args.len, lambda: y.copy_(half))
        return 0 if compare_nvcomp(bench, x) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
