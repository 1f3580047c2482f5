"""One codec in several threads, and the interpreter lock."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import gradwire
import numpy as np
import pytest
from gradwire import parallel


def test_threads_share_a_codec(gradient, map):
    codec = gradwire.Codec(quantum_mode="derived", tolerance_bits=12)
    inputs = [gradient * np.float32(2.0**-i) for i in range(8)]
    alone = [codec.encode(x, map=map) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(lambda x: codec.encode(x, map=map), inputs)) == alone
            decoded = list(pool.map(lambda frame: codec.decode(frame, map=map), alone))
            assert len({x.tobytes() for x in decoded}) == len(inputs)


def test_the_interpreter_lock_is_released():
    """While one thread is inside the library, another one runs Python. The switch interval is so long that nothing else
    makes the encoding thread hand the lock over: with the lock held, the watcher would run after the call."""
    values = np.random.default_rng(5).standard_normal(1 << 22).astype(np.float32)
    codec = gradwire.Codec(preset="small")
    area = bytearray(codec.bound(values.size))
    inside, progress = threading.Event(), threading.Event()
    steps_during = []

    def count():
        inside.wait()
        progress.set()
        steps_during.append(running[0])

    running = [False]
    interval = sys.getswitchinterval()
    watcher = threading.Thread(target=count)
    watcher.start()
    sys.setswitchinterval(1000)
    try:
        running[0] = True
        inside.set()  # wakes the watcher, which can take the lock only when this thread lets go of it
        codec.encode(values, out=area)
        running[0] = False
    finally:
        sys.setswitchinterval(interval)
    watcher.join()
    assert progress.is_set()
    assert steps_during == [True]


@pytest.mark.parametrize("size", [0, 100, 300_000])
@pytest.mark.parametrize("parts", [1, 3])
def test_one_frame_by_several_threads(rng, size, parts):
    values = rng.standard_normal(size).astype(np.float32)
    codec = gradwire.Codec(checksum=True, chunk_log2=12)
    with ThreadPoolExecutor(2) as pool:
        frame = parallel.encode(codec, values, pool, parts)
        assert frame == codec.encode(values)
        assert parallel.decode(codec, frame, pool, parts).tobytes() == values.tobytes()
        out = np.empty_like(values)
        assert parallel.decode(codec, frame, pool, parts, out=out) is out
        assert out.tobytes() == values.tobytes()
        if size < 1000:
            return
        damaged = bytearray(frame)
        for index in (70, 30, 50):
            damaged[gradwire.inspect(frame).chunks[index].offset + 9] ^= 1
        with pytest.raises(gradwire.Error) as caught:
            parallel.decode(codec, damaged, pool, parts, out=out)
        assert caught.value.chunk == 30
        assert not out[30 * 4096 : 31 * 4096].any()
        assert np.array_equal(out[31 * 4096 : 50 * 4096], values[31 * 4096 : 50 * 4096])
        with pytest.raises(ValueError, match="300000"):
            parallel.decode(codec, frame, pool, parts, out=out[1:])
