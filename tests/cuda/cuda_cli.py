#!/usr/bin/env python3
"""`gradwire --backend cuda`: cuda_cli.py GRADWIRE FOLDER_OF_THE_STAND_IN IS_BUILT SAMPLE.npy

With kernels in the library, under the fake driver: the same frame as the scalar backend, decoded alike.
Without them, or without a driver: refused with exit code 2 and a reason.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

gradwire, stand_in, is_built, sample = sys.argv[1:5]


def run(*args, with_driver):
    env = dict(os.environ)
    env.pop("LD_LIBRARY_PATH", None)
    if with_driver:
        env["LD_LIBRARY_PATH"] = stand_in
    return subprocess.run([gradwire, *args], capture_output=True, text=True, env=env)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    by_cuda, by_scalar, back = folder / "cuda.gw", folder / "scalar.gw", folder / "back.npy"
    refused = run("compress", sample, "-o", str(by_cuda), "--backend", "cuda", with_driver=False)
    reasons = ["without CUDA"] if is_built != "1" else ["no CUDA driver", "no CUDA device"]
    if refused.returncode == 2:
        assert any(reason in refused.stderr for reason in reasons), refused.stderr
        assert not by_cuda.exists()
    else:
        assert refused.returncode == 0 and is_built == "1", refused  # this machine has a GPU
    if is_built == "1":
        for command in (
            ["compress", sample, "-o", str(by_cuda), "--backend", "cuda", "--force"],
            ["compress", sample, "-o", str(by_scalar), "--backend", "scalar"],
        ):
            done = run(*command, with_driver=True)
            if done.returncode == 2 and "--force" in done.stderr:
                by_cuda.unlink(missing_ok=True)
                done = run(*[c for c in command if c != "--force"], with_driver=True)
            assert done.returncode == 0, done
        assert by_cuda.read_bytes() == by_scalar.read_bytes(), "frames differ"
        done = run("decompress", str(by_cuda), "-o", str(back), "--backend", "cuda", with_driver=True)
        assert done.returncode == 0, done
        by_cpu = folder / "cpu.npy"
        done = run("decompress", str(by_cuda), "-o", str(by_cpu), "--backend", "scalar", with_driver=True)
        assert done.returncode == 0 and back.read_bytes() == by_cpu.read_bytes(), done
        done = run("verify", sample, "--backend", "cuda", with_driver=True)
        assert done.returncode == 0, done
print("ok")
