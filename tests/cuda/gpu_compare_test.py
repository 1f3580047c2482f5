"""bench/cuda/gpu_compare.py without a GPU: gpu_compare_test.py SCRIPT

Its ways out when something is absent, and its calls of torch and nvCOMP, against stand-ins that know the arguments of
the real ones (nvCOMP 6.0's, by its documentation) and refuse others.
"""

import pathlib
import subprocess
import sys
import tempfile

ABSENT = "raise ImportError('not here')\n"

TORCH = """
import contextlib
uint8, int32, bfloat16, float32 = 1, 4, 2, -4
__version__ = "stand-in"
class Tensor:
    def __init__(self, n, kind=float32): self.n, self.kind = n, kind
    def __mul__(self, x): return self
    def __rshift__(self, n): return self
    def view(self, kind): return Tensor(self.n * abs(self.kind) // abs(kind), kind)
    def to(self, kind): return Tensor(self.n, kind)
    def reshape(self, shape): return self
    def numel(self): return self.n
    def element_size(self): return abs(self.kind)
    def copy_(self, other): assert other.n == self.n
def randn(n, device): return Tensor(n)
def empty_like(x): return Tensor(x.n, x.kind)
def empty(n, device, dtype): return Tensor(n, dtype)
def manual_seed(n): pass
def from_dlpack(array): return array.tensor
def equal(a, b): return a.n == b.n and a.kind == b.kind
class Stream:
    cuda_stream = 4711
    def synchronize(self): pass
class Event:
    clock = 0
    def __init__(self, enable_timing): assert enable_timing
    def record(self, stream):
        assert stream.cuda_stream == 4711
        Event.clock += 1
        self.at = Event.clock
    def synchronize(self): pass
    def elapsed_time(self, other): return float(other.at - self.at)
class cuda:
    Stream, Event = Stream, Event
    is_available = staticmethod(lambda: HAS_GPU)
    stream = staticmethod(lambda s: contextlib.nullcontext(s))
"""

NVCOMP = """
__version__, __cuda_version__ = "6.0.0", 13040
calls = []
class Array:
    def __init__(self, tensor, size): self.tensor, self.buffer_size = tensor, size
def as_array(source, cuda_stream=0):
    assert cuda_stream == 4711
    return Array(source, source.numel() * source.element_size())
class Codec:
    def __init__(self, **options):
        assert options.pop("algorithm") == "ANS" and options.pop("cuda_stream") == 4711, "the timed stream"
        self.data_type = options.pop("data_type")
        assert self.data_type in TYPES, "no such type"
        assert not options
    def encode(self, array, out=None, compression_config=None):
        assert isinstance(array, Array) and compression_config in (None, "c")
        assert (out is None) == (compression_config is None)
        return Array(array.tensor, array.buffer_size // 2)
    def decode(self, src, data_type="", out=None, decompression_config=None):
        assert isinstance(src, Array) and decompression_config in (None, "d") and data_type == self.data_type
        assert (out is None) == (decompression_config is None)
        return Array(RESULT, 0)
    def compression_config(self, uncompressed_size):
        assert type(uncompressed_size) is int and uncompressed_size > 0
        return "c"
    def decompression_config(self, src):
        assert isinstance(src, Array)
        return "d"
"""
SAME = "src.tensor"
OTHER = "__import__('torch').Tensor(1)"


def run(script, torch, nvcomp, *args):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "torch.py").write_text(torch)
        (path / "nvidia").mkdir()
        (path / "nvidia" / "__init__.py").write_text("")
        (path / "nvidia" / "nvcomp.py").write_text(nvcomp)
        # Found before a torch that is installed.
        done = subprocess.run(
            [sys.executable, script, *args],
            env={"PYTHONPATH": folder, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr


def main(script):
    failures = 0

    def check(name, result, status, *texts):
        nonlocal failures
        code, out = result
        missing = [t for t in texts if t not in out]
        if code != status or missing:
            failures += 1
            print(f"{name}: status {code}, wanted {status}; not said: {missing}\n{out}")

    gpu, no_gpu = TORCH.replace("HAS_GPU", "True"), TORCH.replace("HAS_GPU", "False")
    new = NVCOMP.replace("TYPES", '["|u1", "<f4"]')
    old = NVCOMP.replace("TYPES", '["|u1"]').replace("def compression_config", "def no_config")
    small = ["--len", "1000", "--repeats", "3"]
    check("no torch", run(script, ABSENT, ABSENT), 77, "torch is not installed", "nor nvCOMP")
    check("no GPU", run(script, no_gpu, ABSENT), 77, "torch sees no GPU")
    check(
        "no nvCOMP",
        run(script, gpu, ABSENT, *small),
        0,
        "| torch cast to bf16 |",
        "nvCOMP is not installed",
        "NOT compared",
    )
    check(
        "all",
        run(script, gpu, new.replace("RESULT", SAME), *small),
        0,
        "nvCOMP 6.0.0",
        "encode of exponents, 4.00 bits",
        "decode of exponents, memory and configuration given",
        "encode of fp32 values, 16.00 bits",
        "100 % |",
    )
    check(
        "an older nvCOMP",
        run(script, gpu, old.replace("RESULT", SAME), *small),
        0,
        "decode of exponents",
        "no rows with given memory",
        "fp32 values: NOT compared",
    )
    check("a wrong decode", run(script, gpu, new.replace("RESULT", OTHER), *small), 1, "IS NOT WHAT IT ENCODED")
    check("arguments", run(script, gpu, ABSENT, "--len", "0"), 2, "at least one value")
    check("unknown arguments", run(script, gpu, ABSENT, "--speed"), 2, "usage:")
    print(f"8 runs, {failures} failures")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
