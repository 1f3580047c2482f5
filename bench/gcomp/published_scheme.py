"""The scheme of the GCOMP paper as it is published, counted in bits: no frame, no header, no codebook. Needs NumPy.

One Huffman code over the exponents of all values, without a limit of its lengths; a level of 2 bits where levels are
chosen by the metric; sign and kept mantissa bits. tests/gcomp/results_gcomp_size.c counts the same in C.
"""

import heapq

import numpy as np

LEVEL_STEP = 6  # mantissa bits that a level drops: 0, 6, 12, 18
LEVEL_BITS = 2
FIELD_BITS = 24  # sign and mantissa


def huffman_bits(counts):
    """Bits of all symbols in a Huffman code of their counts: the sum of the weights of its inner nodes."""
    weights = [int(count) for count in counts if count]
    if len(weights) == 1:
        return weights[0]
    heapq.heapify(weights)
    bits = 0
    while len(weights) > 1:
        pair = heapq.heappop(weights) + heapq.heappop(weights)
        bits += pair
        heapq.heappush(weights, pair)
    return bits


def exponents(values):
    """Exponent fields of fp32 values."""
    return np.ascontiguousarray(values, np.float32).view(np.uint32) >> 23 & 255


def momentum_ratio(param, buffer, lr, momentum):
    """|num / (lr c)| of SGD with a momentum and no weight decay: the update is num - lr c g."""
    return np.abs(param.astype(np.float64) / lr - momentum * buffer.astype(np.float64))


def adamw_ratio(param, m, v, gradient, *, lr, weight_decay, beta1, beta2, eps, step):
    """The same for AdamW. The second moment is that after the update, as in the paper: this gradient is in it."""
    param, m, v, gradient = (x.astype(np.float64) for x in (param, m, v, gradient))
    root = np.sqrt((beta2 * v + (1 - beta2) * gradient**2) / (1 - beta2**step)) + eps
    scale = (1 - beta1**step) * root / (1 - beta1)
    return np.abs(param * (1 - lr * weight_decay) * scale / lr - m * beta1 / (1 - beta1))


def metric_drop(values, ratio):
    """Mantissa bits that every value loses: level n where the ratio is above 2^(6n) times the value. 0 for zeros."""
    magnitude = np.abs(values.astype(np.float64))
    steps = sum((ratio > magnitude * 2.0 ** (LEVEL_STEP * n)).astype(np.int64) for n in (1, 2, 3))
    return np.where(exponents(values) == 0, 0, LEVEL_STEP * steps)


def bits_a_value(values, drop, *, levels, pruned):
    """Of the published scheme. drop: mantissa bits that are cut, of each value or of all. levels: each value says which
    level it has. pruned: zeros and subnormals have nothing but their code."""
    exponent = exponents(values)
    fields = np.broadcast_to(FIELD_BITS - np.asarray(drop) + (LEVEL_BITS if levels else 0), values.shape)
    coded = fields[exponent != 0].sum() if pruned else fields.sum()
    return (huffman_bits(np.bincount(exponent, minlength=256)) + int(coded)) / values.size
