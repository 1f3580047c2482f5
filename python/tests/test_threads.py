"""One codec in several threads, and the interpreter lock."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import gradwire
import numpy as np


def test_threads_share_a_codec(gradient, map):
    codec = gradwire.Codec(levels="derived", tolerance_bits=12)
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
