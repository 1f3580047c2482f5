"""Signs and votes of the library against model_sign.py."""

import sys

import model_sign as model
import numpy as np
from classic_calls import Calls, Frame
from classic_numbers import F32, Check, arguments, data_sets, feedback_bound, flush, samples_of, to_dtype, widen


def check_scheme(check, calls, name, x, state, scheme, changes):
    options = calls.options(scheme, **changes)
    frame, residual, momentum = calls.encode(options, x, state, state)
    text, column_len, n = f"{scheme} {changes} {name}", options["block_len"], len(x)
    p = flush(x)
    if scheme == "signum":
        p = model.momentum_step(state, x, options["momentum"])
        check.same(momentum, p, text + ": momentum")
    elif options["error_feedback"]:
        p = flush(p + flush(state))
    if scheme == "onebit":
        scales = model.onebit_scales(p, column_len)
        flat = [scale for pair in scales for scale in pair]
    elif scheme == "efsignsgd":
        flat = [model.one_scale(p)]
        scales = [(flat[0], flat[0])]
    else:
        flat, scales = [], [(F32(1), F32(1))]
    check.that(Frame(frame).payload == model.payload(p, flat), text + ": payload")
    y = model.decoded(p, scales, column_len)
    check.same(calls.decode(frame), y, text + ": values")
    total = (state * F32(3)).astype(F32)
    check.same(calls.decode_add(frame, total), flush(flush(total) + y), text + ": sum")
    if options["error_feedback"]:
        check.same(residual, flush(p - y), text + ": residual")
    return n


def check_votes(check, calls, x, rng):
    n = len(x)
    for members in (1, 2, 3, 4, 7):
        options = calls.options("signsgd", seed=2**40 + 17)
        step = {"round": 9, "element_first": 1000003}
        tensors = [(x * rng.choice(np.array([-1, 1, 1], F32), n)).astype(F32) for _ in range(members)]
        frames = [calls.encode(options, t, rank=i, **step)[0] for i, t in enumerate(tensors)]
        lanes = sum(np.where(flush(t) < 0, -1, 1) for t in tensors)
        values, vote = calls.sum(frames, votes=True)
        check.same(values, lanes.astype(F32), f"{members} votes")
        ties = model.tie_bits(n, options["seed"], 9, 1000003)
        negative = np.where(lanes == 0, ties != 0, lanes < 0)
        check.same(calls.decode(vote), np.where(negative, F32(-1), F32(1)), f"majority of {members}")
        if members % 2 == 0:  # ties are fair: 5 sigma
            at = lanes == 0
            z = abs(np.sum(ties[at].astype(float)) - 0.5 * at.sum()) / np.sqrt(0.25 * at.sum())
            check.that(at.sum() > 500 and z < 5, f"ties of {members}: {z:.1f} sigma")


def check_feedback(check, calls, folder):
    x = samples_of(folder)
    n, steps = 1024, 60
    for scheme, changes in (("efsignsgd", {}), ("onebit", {}), ("onebit", {"block_len": 100})):
        options = calls.options(scheme, **changes)

        def one(step, residual, options=options):
            values = x[step * n : step * n + n]
            frame, after, _ = calls.encode(options, values, residual, round=step)
            return flush(values), calls.decode(frame), after

        feedback_bound(check, f"{scheme} {changes}", steps, n, one)


def main():
    program, folder = arguments()
    calls, check, rng = Calls(program), Check(), np.random.default_rng(3)
    schemes = [("signsgd", {}), ("signsgd", {"error_feedback": 1}), ("efsignsgd", {}), ("signum", {})]
    schemes += [("signum", {"momentum": F32(0.37)}), ("onebit", {})]
    schemes += [("onebit", {"block_len": length}) for length in (1, 7, 100, 4096, 5000)]
    for name, x in data_sets(folder, rng):
        state = (rng.normal(0, 1, len(x)) * np.mean(np.abs(x))).astype(F32)
        if name == "order of sums":
            state[:] = 0
        for scheme, changes in schemes:
            if changes.get("block_len") != 1 or len(x) < 10000:
                check_scheme(check, calls, name, x, state, scheme, changes)
    x = samples_of(folder)
    for dtype in (2, 3):
        stored = to_dtype(x[:10000], dtype)
        frame, _, _ = calls.encode(calls.options("efsignsgd", dtype=dtype), stored)
        exact = flush(widen(stored, dtype))
        scale = model.one_scale(exact)
        want = to_dtype(model.decoded(exact, [(scale, scale)], 0), dtype)
        check.same(calls.decode(frame), want, f"efsignsgd dtype {dtype}")
    check_votes(check, calls, x[:5000], rng)
    check_feedback(check, calls, folder)
    return check.end(calls, 500)


if __name__ == "__main__":
    sys.exit(main())
