"""The all-reduce of bench/gcomp/simulated_workers.py, whose workers are in one process."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench/gcomp"))

import simulated_workers as simulated  # noqa: E402


def gradients(workers, count=5003):
    rng = np.random.default_rng(5)
    return [rng.standard_normal(count).astype(np.float32) for _ in range(workers)]


@pytest.mark.parametrize("workers", (2, 3))
def test_frames_without_loss_are_plain_sums(workers):
    own, at = gradients(workers), types.SimpleNamespace(step=4)
    plain, all_sent = simulated.Plain().exchange(at, own)
    coded, sent = simulated.Coded(constant_drop=0).exchange(at, own)
    assert np.array_equal(plain, coded) and 0.5 < sent / all_sent < 1
    assert not np.array_equal(plain, simulated.Plain(-1).exchange(at, own)[0]) or workers == 2


def test_cut_and_exact_steps():
    own = gradients(4)
    plain, all_sent = simulated.Plain().exchange(None, own)
    way = simulated.Coded(8, constant_drop=18, rounding="truncate")
    for step in (6, 7):
        total, sent = way.exchange(types.SimpleNamespace(step=step), own)
        assert np.array_equal(total, plain) == (step == 7)
        assert (sent == all_sent) == (step == 7)
        assert np.allclose(total, plain, rtol=0, atol=0.5)
