"""Hooks and backend on more ranks than the other tests have: equal bits, errors within their bounds, bytes.

GRADWIRE_TEST_RANKS: other numbers of ranks than 8, as nightly has them ("17").
"""

import os

import pytest
from many_ranks import CALLS, COMMAND, HOOKS, mean_bits, measure

SIZES = [int(one) for one in os.environ.get("GRADWIRE_TEST_RANKS", "8").split(",")]

# Of the bytes of fp32. Gathers are lossless, and to a server messages go again where it is late.
LIMITS = {"backend, sharded step": 0.7, "backend, all_gather": 1, "THC, server": 2}


@pytest.mark.parametrize("size", SIZES)
def test_all_algorithms(size):
    found = measure(size)
    assert len(found) == len(HOOKS) + len(CALLS) - (COMMAND is None)
    for name, ranks in found.items():
        assert len({one.digest for one in ranks}) == 1, name
        assert all(one.error <= one.bound for one in ranks), (name, ranks[0])
        assert ranks[0].error > 0 or name == "backend, all_gather", name
        assert 0 < mean_bits(ranks) / ranks[0].full_bits < LIMITS.get(name, 0.4), name
        if ranks[0].expected_bits is not None:
            assert mean_bits(ranks) == pytest.approx(ranks[0].expected_bits, rel=0.03), name
    assert found["hook, A2A+AG, codebooks renewed"][0].digest == found["hook, A2A+AG"][0].digest
