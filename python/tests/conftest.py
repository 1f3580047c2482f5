"""What several tests use."""

import sys
from pathlib import Path

import gradwire
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs" / "reference_decoder"), str(ROOT / "tests" / "golden")]


@pytest.fixture
def rng():
    return np.random.default_rng(20261123)


@pytest.fixture
def gradient(rng):
    """Three chunks and a part of one, exponents spread as in a gradient."""
    size = 3 * 16384 + 1001
    return (rng.standard_normal(size) * np.exp2(rng.integers(-14, -4, size))).astype(np.float32)


@pytest.fixture
def state(rng, gradient):
    """Adam's parameters and moments of the gradient."""
    return gradwire.State(
        param=(rng.standard_normal(gradient.size) * 0.05).astype(np.float32),
        m=(rng.standard_normal(gradient.size) * 1e-4).astype(np.float32),
        v=np.square(gradient) + np.float32(1e-12),
    )


@pytest.fixture
def adam():
    return gradwire.Optimizer(kind="adamw", lr=1e-3, step=10, weight_decay=0.01)


@pytest.fixture
def map(adam, state):
    return gradwire.Map.of(gradwire.Rule(adam), state)


def same_bits(a, b):
    """Equal bytes, so that -0 and 0 differ and NaN equals itself."""
    return a.tobytes() == b.tobytes()
