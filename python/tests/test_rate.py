"""Rate curves against the frames that they predict."""

import gradwire
import pytest
from gradwire import rate


def test_curve_predicts_sizes(gradient, adam, state, map):
    curve = rate.tolerance_curve(gradient, adam, state, preset="small", dead_zone=True)
    points = curve.points
    assert [point.limit for point in points] == list(range(1, 24))
    assert [point.size for point in points] == sorted(point.size for point in points)
    assert curve.len == gradient.size
    for bits in (4, 12, 20):
        frame = gradwire.encode(
            gradient, map=map, quantum_mode="derived", dead_zone=True, preset="small", tolerance_bits=bits
        )
        assert len(frame) == points[bits - 1].size
        back = gradwire.decode(frame, map=map, tolerance_bits=bits)
        assert (back != 0).sum() == points[bits - 1].nonzeros
        assert points[bits - 1].nmse == pytest.approx(((back - gradient) ** 2).sum() / (gradient**2).sum(), rel=0.3)
    budget = points[11].size
    assert curve.tolerance_bits(budget) == 12
    assert curve.tolerance_bits(budget - 1) == 11
    with pytest.raises(gradwire.Error, match="limit"):
        curve.tolerance_bits(10)
    with pytest.raises(gradwire.Error, match="arg"):
        curve.noise(budget)


def test_pooling(gradient, adam, state):
    one = rate.tolerance_curve(gradient, adam, state)
    two = one + one
    assert two.len == 2 * one.len
    assert all(abs(a.size - 2 * b.size) <= 1 for a, b in zip(two.points, one.points))  # sizes are rounded
    assert two.points[5].nmse == one.points[5].nmse
    assert one.len == gradient.size
    with pytest.raises(ValueError, match="noise"):
        one + rate.Curve("noise")


def test_noise_curve(gradient, adam, state):
    curve = rate.noise_curve(gradient, adam, state, tolerance_bits=12)
    assert len(curve.points) == 17
    assert curve.points[0].limit == 1
    assert curve.points[16].limit == 2**-8
    assert curve.noise(curve.points[6].size) == pytest.approx(curve.points[6].limit)
    with pytest.raises(gradwire.Error, match="option"):
        rate.noise_curve(gradient, gradwire.Optimizer(kind="sgd", lr=0.1), state)
