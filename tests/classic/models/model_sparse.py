"""TOPK, DGC and RANDK, from the papers and docs/numerics-classic.md: sorts everything, keeps nothing packed."""

import numpy as np
from classic_numbers import F32, F64, U64, flush, lane_sums, narrow, philox, product, root


def largest(x, k):
    """Positions of the k largest magnitudes, equal ones by position, in ascending order."""
    order = np.lexsort((np.arange(len(x)), -np.abs(x.astype(F64))))
    return np.sort(order[:k])


def rounded(values, form):
    """What a decoder gets of sent values, fp32 or fp16."""
    if form == 0:
        return values
    limited = np.clip(values, F32(-65504), F32(65504))
    return limited.astype(np.float16).astype(F32) + F32(0)  # + 0: no -0


def with_residual(x, residual):
    return flush(x) if residual is None else flush(flush(x) + flush(residual))


def clip_factor(x, clip):
    x = x.astype(F64)
    total = F64(0)
    for lane in lane_sums(x * x):
        total += lane
    if not total > F64(clip) * F64(clip):
        return F32(1)
    return F32(narrow(F64(clip) / root(total)))


def dgc_step(x, u, v, momentum, nesterov, clip):
    """(u, v) before anything is sent."""
    factor = clip_factor(flush(x), clip) if clip > 0 else F32(1)
    y = product(factor, flush(x))
    u = flush(product(momentum, flush(u)) + y)
    if nesterov:
        return u, flush(flush(v) + flush(product(momentum, u) + y))
    return u, flush(flush(v) + u)


def random_positions(n, k, seed, element_first, round_):
    """docs/format-classic.md section 3.1."""
    wanted = k if k <= n // 2 else n - k
    mask = np.zeros(n, bool)
    high, low = element_first >> 32, element_first & 0xFFFFFFFF
    left, p = wanted, 0
    while left and p < min(2 * wanted + 4096, 2**32):
        words = philox(seed, np.array([p], U64), 0x60000000 + high % 2**29, round_, low)
        for half in (0, 1):
            number = int(words[2 * half][0]) | int(words[2 * half + 1][0]) << 32
            at = number * n >> 64
            if left and not mask[at]:
                mask[at] = True
                left -= 1
        p += 1
    mask[np.flatnonzero(~mask)[:left]] = True
    return np.flatnonzero(mask if k <= n // 2 else ~mask)


def unbiased_factor(n, k):
    return F32(F64(n) / F64(k))
