"""TOPK, DGC and RANDK of the library against model_sparse.py."""

import sys

import model_sparse as model
import numpy as np
from classic_calls import Calls, Frame
from classic_numbers import (
    F32,
    F64,
    Check,
    arguments,
    data_sets,
    feedback_bound,
    flush,
    product,
    samples_of,
    to_dtype,
    widen,
)


def spread(n, positions, values):
    out = np.zeros(n, F32)
    out[positions] = values
    return out


def keep_lens(n):
    return sorted({1, max(1, n // 100), max(1, n // 10), max(1, n // 2), max(1, n - n // 10), n})


def check_topk(check, calls, name, x, rng):
    n = len(x)
    residual = (rng.normal(0, 1, n) * np.mean(np.abs(x))).astype(F32)
    for k in keep_lens(n):
        for feedback in (0, 1):
            p = model.with_residual(x, residual if feedback else None)
            positions = model.largest(p, k)
            for form in (0, 1, 2):
                text = f"topk {name} k={k} feedback={feedback} values={form}"
                options = calls.options("topk", error_feedback=feedback, values=form)
                frame, after, _ = calls.encode(options, x, residual, keep_len=k)
                got = calls.decode(frame)
                if form == 2:  # six bits of a magnitude: docs/numerics-classic.md "Values"
                    sent = got[positions]
                    error = np.abs(sent.astype(F64) - p[positions].astype(F64))
                    bound = 2.0**-6 * np.abs(p[positions].astype(F64))
                    check.that(bool(np.all(error <= bound)), text + ": bound")
                else:
                    sent = model.rounded(p[positions], form)
                check.same(got, spread(n, positions, sent), text)
                if feedback:
                    kept = p.copy()
                    kept[positions] = flush(p[positions] - sent)
                    check.same(after, kept, text + " residual")


def check_dgc(check, calls, name, x, rng):
    n = len(x)
    scale = np.mean(np.abs(flush(x))) + F32(1e-30)
    for nesterov, mask, clip in ((0, 1, 0), (1, 1, 0), (0, 0, 0), (0, 1, 0.5), (1, 0, 1e-3), (0, 1, 1e30)):
        u = (rng.normal(0, 1, n) * scale).astype(F32)
        v = (rng.normal(0, 1, n) * scale).astype(F32)
        k = max(1, n // 50)
        momentum = F32(0.9)
        options = calls.options("dgc", nesterov=nesterov, momentum_mask=mask, clip=F32(clip))
        text = f"dgc {name} nesterov={nesterov} mask={mask} clip={clip}"
        frame, v_after, u_after = calls.encode(options, x, v, u, keep_len=k)
        u_new, v_new = model.dgc_step(x, u, v, momentum, nesterov, F32(clip))
        positions = model.largest(v_new, k)
        check.same(calls.decode(frame), spread(n, positions, v_new[positions]), text)
        v_new[positions] = 0
        if mask:
            u_new[positions] = 0
        check.same(v_after, v_new, text + " v")
        check.same(u_after, u_new, text + " u")


def check_randk(check, calls, name, x, rng):
    n = len(x)
    for k in keep_lens(n):
        seed, first, round_ = int(rng.integers(0, 2**63)), int(rng.integers(0, 2**50)), int(rng.integers(0, 2**32))
        positions = model.random_positions(n, k, seed, first, round_)
        text = f"randk {name} k={k}"
        step = {"keep_len": k, "element_first": first, "round": round_, "rank": 3}
        frame, _, _ = calls.encode(calls.options("randk", seed=seed), x, **step)
        sent = product(model.unbiased_factor(n, k), flush(x)[positions])
        if np.isfinite(sent).all():
            check.same(calls.decode(frame), spread(n, positions, sent), text)
        residual = (rng.normal(0, 1, n) * np.mean(np.abs(x))).astype(F32)
        options = calls.options("randk", seed=seed, unbiased=0, error_feedback=1)
        frame, after, _ = calls.encode(options, x, residual, **step)
        p = model.with_residual(x, residual)
        check.same(calls.decode(frame), spread(n, positions, p[positions]), text + " with feedback")
        kept = p.copy()
        kept[positions] = 0
        check.same(after, kept, text + " residual")


def check_dtypes(check, calls, x):
    for dtype in (2, 3):
        stored = to_dtype(x, dtype)
        exact = flush(widen(stored, dtype))
        positions = model.largest(exact, len(x) // 20)
        frame, _, _ = calls.encode(calls.options("topk", dtype=dtype, error_feedback=0), stored, keep_len=len(x) // 20)
        want = to_dtype(spread(len(x), positions, exact[positions]), dtype)
        check.same(calls.decode(frame), want, f"topk dtype {dtype}")


def check_sums(check, calls, x):
    """Shared-seed sums equal decode_add in turn."""
    options = calls.options("randk", seed=5)
    frames = [calls.encode(options, x * F32(f), keep_len=len(x) // 20, rank=f)[0] for f in (1, 2, 5)]
    total = np.zeros(len(x), F32)
    for frame in frames:
        total = calls.decode_add(frame, total)
    check.same(calls.sum(frames)[0], total, "sum of randk")


def check_bias(check, calls, x):
    """Unbiased RANDK: the mean of decoded values within 5 sigma of x; biased, the test must fail."""
    n, k, rounds = 256, 32, 6000
    x = x[:n].astype(F64)
    for unbiased in (1, 0):
        options = calls.options("randk", seed=77, unbiased=unbiased)
        total = np.zeros(n)
        for round_ in range(rounds):
            total += calls.decode(calls.encode(options, x.astype(F32), keep_len=k, round=round_)[0])
        # A value is sent with probability q = k / n: variance x^2 (1 - q) / q.
        sigma = np.abs(x) * np.sqrt((n - k) / k / rounds)
        z = np.abs(total / rounds - x) / np.where(sigma > 0, sigma, 1)
        check.that((z.max() < 5) == bool(unbiased), f"randk unbiased={unbiased}: {z.max():.1f} sigma")


def check_feedback(check, calls, folder):
    x = samples_of(folder)
    n, steps = 1024, 60
    for scheme, changes in (
        ("topk", {}),
        ("topk", {"values": 1}),
        ("topk", {"values": 2}),
        ("dgc", {"momentum": F32(0)}),
        ("dgc", {"momentum": F32(0), "values": 1}),
        ("randk", {"unbiased": 0, "error_feedback": 1}),
    ):
        options = calls.options(scheme, **changes)

        def one(step, residual, options=options):
            values = x[step * n : step * n + n]
            frame, after, _ = calls.encode(options, values, residual, keep_len=n // 50, round=step)
            return flush(values), calls.decode(frame), after

        feedback_bound(check, f"{scheme} {changes}", steps, n, one)


def main():
    program, folder = arguments()
    calls, check, rng = Calls(program), Check(), np.random.default_rng(1)
    for name, x in data_sets(folder, rng):
        check_topk(check, calls, name, x, rng)
        check_dgc(check, calls, name, x, rng)
        check_randk(check, calls, name, x[:8000], rng)
    x = samples_of(folder)
    check_dtypes(check, calls, x[:20000])
    check_sums(check, calls, x[:5000])
    check_bias(check, calls, x[1000:])
    check_feedback(check, calls, folder)
    frame = Frame(calls.encode(calls.options("topk"), x[:100], keep_len=7)[0])
    check.that(frame.keep_len == 7 and frame.len == 100, "header")
    return check.end(calls, 700)


if __name__ == "__main__":
    sys.exit(main())
