"""What docs/results/gcomp-paper.md counts: the published scheme in bits, its metric, and times of links by arithmetic
(bench/gcomp)."""

import sys
from pathlib import Path

import gradwire
import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
if not BENCH.is_dir():
    pytest.skip("no bench beside the tests", allow_module_level=True)
sys.path[:0] = [str(BENCH / "gcomp"), str(BENCH)]

import published_scheme as published  # noqa: E402


def test_huffman_bits():
    assert published.huffman_bits([0, 0]) == 0
    assert published.huffman_bits([0, 7]) == 7
    assert published.huffman_bits([1, 1, 2, 4]) == 3 + 3 + 2 * 2 + 4
    assert published.huffman_bits([5, 5, 5, 5]) == 40


def test_metric_drop():
    values = np.array([0.0, 1e-40, 1.0, -1.0, 1.0, -1.0, 1.0, 3.0], np.float32)
    ratio = np.array([9.0, 9.0, 2.0**6, 2.0**6 + 1, 2.0**12 + 1, 2.0**18, 2.0**18 + 1, 2.0**12])
    assert published.metric_drop(values, ratio).tolist() == [0, 0, 0, 6, 12, 12, 18, 6]


def test_bits_a_value():
    values = np.array([0.0, 0.0, 1.0, -1.5], np.float32)  # two exponents: one bit each
    drop = np.array([0, 0, 6, 18])
    assert published.bits_a_value(values, drop, levels=True, pruned=True) == (4 + 2 * 26 - 24) / 4
    assert published.bits_a_value(values, drop, levels=True, pruned=False) == (4 + 4 * 26 - 24) / 4
    assert published.bits_a_value(values, 18, levels=False, pruned=True) == (4 + 2 * 6) / 4
    assert published.bits_a_value(values, 18, levels=False, pruned=False) == (4 + 4 * 6) / 4


def test_ratios_are_those_of_the_updates(rng):
    """An update is num - lr c g; a gradient at num / (lr c) would move the parameter to 0."""
    param, m = (rng.standard_normal(200).astype(np.float32) for _ in range(2))
    gradient = (0.1 * rng.standard_normal(200)).astype(np.float32)
    v = np.square(0.1 * rng.standard_normal(200)).astype(np.float32)
    lr, decay, beta1, beta2, eps, step = 0.01, 0.1, 0.9, 0.99, 1e-8, 7
    slope = (1 - beta1) / (1 - beta1**step)
    slope = slope / (np.sqrt((beta2 * v.astype(float) + (1 - beta2) * gradient**2.0) / (1 - beta2**step)) + eps)
    num = param * (1 - lr * decay) - lr * slope * beta1 / (1 - beta1) * m
    hyper = {"lr": lr, "weight_decay": decay, "beta1": beta1, "beta2": beta2, "eps": eps, "step": step}
    ratio = published.adamw_ratio(param, m, v, gradient, **hyper)
    np.testing.assert_allclose(ratio, np.abs(num / (lr * slope)), rtol=1e-5)
    ratio = published.momentum_ratio(param, m, lr, 0.9)
    np.testing.assert_allclose(ratio, np.abs((param - lr * 0.9 * m.astype(float)) / lr), rtol=1e-6)


def test_frames_cut_no_deeper_than_the_metric(rng):
    """Explicit frames of t = 23 with truncation lose nothing that the metric, by exact quotients, would keep."""
    param = (0.05 * rng.standard_normal(20000)).astype(np.float32)
    buffer = (1e-3 * rng.standard_normal(20000)).astype(np.float32)
    gradient = (rng.standard_normal(20000) * np.exp2(rng.integers(-24, -6, 20000))).astype(np.float32)
    optimizer = gradwire.Optimizer(kind="momentum", lr=0.05, momentum=0.9, step=2)
    map = gradwire.Map.of(gradwire.Rule(optimizer), gradwire.State(param, buffer))
    codec = gradwire.Codec(rounding="truncate")
    kept = codec.decode(codec.encode(gradient, map=map)).view(np.uint32)
    drop = published.metric_drop(gradient, published.momentum_ratio(param, buffer, 0.05, 0.9))
    assert {0, 6, 12, 18} == set(drop.tolist())
    lost = gradient.view(np.uint32) ^ kept
    assert (lost >> drop.astype(np.uint32) == 0).all() and (lost != 0).mean() > 0.5
