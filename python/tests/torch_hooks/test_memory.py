"""Tensors whose memory does not hold their values: torch's negative bit, which DLPack and data_ptr() ignore."""

import gradwire
import pytest
import torch
from gradwire.torch import communicator


def test_arrays_refuse_them():
    pending = torch.complex(torch.zeros(3), torch.tensor([5.0, 6.0, 7.0])).conj().imag
    assert pending.tolist() == [-5, -6, -7]
    with pytest.raises(TypeError, match=r"resolve_neg\(\)"):
        gradwire.encode(pending)
    frame = gradwire.encode(pending.resolve_neg())
    assert gradwire.decode(frame).tolist() == [-5, -6, -7]
    out = torch._neg_view(torch.zeros(3))
    with pytest.raises(TypeError, match=r"resolve_neg\(\)"):
        gradwire.decode(frame, out=out)
    assert out.tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match="memory"):
        gradwire.encode(torch._efficientzerotensor(3))


def test_a_communicator_resolves_them():
    plain = torch.arange(4.0)
    assert communicator._host(plain).data_ptr() == plain.data_ptr()
    host = communicator._host(torch._neg_view(plain))
    assert not host.is_neg()
    assert host.tolist() == [0, -1, -2, -3]
