"""Precision maps."""

import zlib

import gradwire
import gw_decode
import numpy as np
import pytest
from gradwire import maps


def test_parts_make_the_same_map(gradient, adam, state, map):
    rule = gradwire.Rule(adam)
    cut = 20000
    parts = [gradwire.State(**{k: a[s] for k, a in state.arrays.items()}) for s in (slice(cut), slice(cut, None))]
    base = maps.base(max(maps.scan(rule, part) for part in parts))
    map_bytes = np.concatenate([maps.build(rule, part, base) for part in parts])
    assert base == map.base
    assert np.array_equal(map_bytes, map.bytes)
    assert len(set(map_bytes)) > 10
    out = np.zeros(state.len, np.uint8)
    assert maps.build(rule, state, base, out=out) is not None
    assert np.array_equal(out, map_bytes)
    assert len(map[:cut]) == cut
    assert np.array_equal(map[cut:].bytes, map_bytes[cut:])


def test_digest(map):
    words = maps.digest(map.bytes, 14)
    assert len(words) == 4
    assert words[3] == gw_decode.crc32c(map.bytes[3 * 16384 :].tobytes())
    assert words[0] != zlib.crc32(map.bytes[:16384].tobytes())


def test_rule_and_state(adam):
    assert gradwire.Rule(adam).uses == ("m", "v")
    assert gradwire.Rule(adam, 4.0).wire_scale == 4
    with pytest.raises(ValueError, match="no optimizer"):
        gradwire.Rule(gradwire.Optimizer(kind="lion", lr=1))
    for bad in ({"lr": 1, "beta1": 2.0}, {"lr": 1, "step": 0}):
        with pytest.raises(gradwire.Error):
            gradwire.Rule(gradwire.Optimizer(kind="adam", **bad))
    with pytest.raises(gradwire.Error, match="option"):
        gradwire.Rule(gradwire.Optimizer(kind="sgd", lr=0.1), limits=gradwire.Limits(noise=0.5))
    with pytest.raises(ValueError, match="lengths"):
        gradwire.State(param=np.zeros(3, np.float32), m=np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="no array"):
        gradwire.State()
    with pytest.raises(TypeError, match="float64"):
        gradwire.State(param=np.zeros(3))
    with pytest.raises(gradwire.Error, match="arg"):  # Adam reads v
        gradwire.Map.of(gradwire.Rule(adam), gradwire.State(param=np.zeros(3, np.float32)))


def test_a_map_of_another_length_is_refused(gradient, map):
    with pytest.raises(ValueError, match="the map has"):
        gradwire.encode(gradient[:100], map=map)
    with pytest.raises(TypeError):
        map[::2]
