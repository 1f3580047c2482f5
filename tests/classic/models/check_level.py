"""QSGD and TERNGRAD of the library against model_level.py; bias and error feedback."""

import sys

import model_level as model
import numpy as np
from classic_calls import Calls, Frame
from classic_numbers import F32, F64, Check, arguments, data_sets, feedback_bound, flush, samples_of, to_dtype, widen

CHUNK = 1 << 15


def check_frame(check, frame, levels, norms, s, text):
    """Norms, and where the coding is packed or Elias' the levels, byte by byte."""
    payload = Frame(frame).payload
    check.that(payload[: 4 * len(norms)] == norms.tobytes(), text + ": norms")
    if Frame(frame).coding == 0:
        check.that(payload[4 * len(norms) :] == model.packed(levels, s), text + ": packed levels")
    if Frame(frame).coding == 2:
        at = 4 * len(norms)
        chunks = [levels[i : i + CHUNK] for i in range(0, len(levels), CHUNK)]
        entries = np.frombuffer(payload, np.uint32, len(chunks), at)
        at += 4 * len(chunks)
        for chunk, entry in zip(chunks, entries.tolist()):
            size = entry & ~3
            plain = model.packed(chunk, s)
            coded = model.elias_run(chunk) if chunk.any() else b""
            want = coded if len(coded) < len(plain) else plain
            check.that(payload[at : at + size] == want and (entry & 1) == (want is coded), text + ": a chunk")
            at += size
        check.that(at == len(payload), text + ": size")


def check_one(check, calls, name, x, residual, scheme, changes):
    options = calls.options(scheme, seed=2**63 + 5, **changes)
    s, block_len = options["level_max"], options["block_len"]
    step = {"round": 4, "rank": 2, "element_first": 77777777777}
    text = f"{scheme} {changes} {name}"
    frame, after, _ = calls.encode(options, x, residual, **step)
    p = model.input_of(x, residual if options["error_feedback"] else None)
    norms = model.norms(p, options, scheme)
    levels = model.levels(p, norms, s, block_len, model.random16(len(x), options["seed"], 4, 2, step["element_first"]))
    values = model.decoded(levels, norms, s, block_len)
    check_frame(check, frame, levels, norms, s, text)
    check.same(calls.decode(frame), values, text)
    if options["error_feedback"]:
        check.same(after, flush(p - values), text + ": residual")


def check_dtypes(check, calls, x):
    for dtype in (2, 3):
        stored = to_dtype(x, dtype)
        exact = flush(widen(stored, dtype))
        for scheme in ("qsgd", "terngrad"):
            options = calls.options(scheme, dtype=dtype)
            s, block_len = options["level_max"], options["block_len"]
            norms = model.norms(exact, options, scheme)
            levels = model.levels(exact, norms, s, block_len, model.random16(len(x), 0, 0, 0, 0))
            frame, _, _ = calls.encode(options, stored)
            want = to_dtype(model.decoded(levels, norms, s, block_len), dtype)
            check.same(calls.decode(frame), want, f"{scheme} dtype {dtype}")


def check_sums(check, calls, x):
    """Sums of levels under shared norms: one rounding for all members."""
    for scheme, s in (("qsgd", 4), ("terngrad", 1)):
        options = calls.options(scheme, coding=0, block_len=512)
        tensors = [x, -x[::-1].copy(), (x * F32(0.5)).astype(F32)]
        shared = np.max([model.norms(flush(t), options, scheme) for t in tensors], axis=0)
        frames, total = [], np.zeros(len(x), np.int64)
        for rank, t in enumerate(tensors):
            frames.append(calls.encode(options, t, norms=shared, rank=rank, round=1)[0])
            total += model.levels(flush(t), shared, s, 512, model.random16(len(x), 0, 1, rank, 0))
        check.same(calls.sum(frames)[0], model.decoded(total, shared, s, 512), f"sum of {scheme}")


def sigmas(x, mean, bound, variance, rounds):
    """Largest deviation beyond the proved bound, in sigma: of one value, and of the sum along the values' signs."""
    sigma = np.sqrt(variance / rounds)
    moves = sigma > 0
    each = (np.abs(mean - x) - bound)[moves] / sigma[moves]
    along = abs(np.sum((mean - x) * np.sign(x))) - np.sum(bound)
    return max(each.max(), along / np.sqrt(np.sum(sigma**2)))


def check_bias(check, calls, x):
    """Means of decoded values are within 5 sigma of x; rounded to nearest, the same test must fail."""
    n, rounds = 512, 3000
    x = flush(x[:n])
    exact = x.astype(F64)
    for scheme, changes in (
        ("qsgd", {}),
        ("qsgd", {"level_max": 16, "norm": 1, "block_len": 64}),
        ("qsgd", {"level_max": 127}),
        ("terngrad", {"clip": F32(0)}),
        ("terngrad", {"clip": F32(0), "block_len": 64}),
    ):
        options = calls.options(scheme, seed=31, coding=0, **changes)
        s, block_len = options["level_max"], options["block_len"]
        norms = model.norms(x, options, scheme)
        step = model.per_value(norms, n, block_len).astype(F64) / s
        bound = step * 2.0**-16 * (0.5 + s / 64) + np.abs(exact) * 2.0**-23
        share = np.modf(np.abs(exact) / step)[0]
        total = np.zeros(n)
        for round_ in range(rounds):
            total += calls.decode(calls.encode(options, x, round=round_)[0])
        z = sigmas(exact, total / rounds, bound, share * (1 - share) * step**2, rounds)
        check.that(z < 5, f"{scheme} {changes}: {z:.1f} sigma")
        nearest = np.sign(exact) * np.floor(np.abs(exact) / step + 0.5) * step
        z = sigmas(exact, nearest, bound, share * (1 - share) * step**2, rounds)
        check.that(z > 5, f"{scheme} {changes}: nearest rounding passes")


def check_feedback(check, calls, folder):
    x = samples_of(folder)
    n, steps = 1024, 60
    for scheme, changes in (
        ("qsgd", {"error_feedback": 1, "level_max": 16, "norm": 1}),
        ("qsgd", {"error_feedback": 1, "block_len": 64}),
        ("terngrad", {"error_feedback": 1}),
    ):
        options = calls.options(scheme, **changes)

        def one(step, residual, options=options):
            values = x[step * n : step * n + n]
            frame, after, _ = calls.encode(options, values, residual, round=step)
            return flush(values), calls.decode(frame), after

        feedback_bound(check, f"{scheme} {changes}", steps, n, one)


def main():
    program, folder = arguments()
    calls, check, rng = Calls(program), Check(), np.random.default_rng(4)
    ways = [("qsgd", {"coding": coding}) for coding in (0, 1, 2)]
    ways += [("qsgd", {"level_max": s, "norm": norm}) for s in (1, 2, 3, 16, 127) for norm in (0, 1)]
    ways += [("qsgd", {"coding": 0, "level_max": s, "block_len": 64}) for s in (1, 5, 127)]
    ways += [("qsgd", {"block_len": 0}), ("qsgd", {"block_len": 8192, "error_feedback": 1})]
    ways += [("terngrad", {"coding": coding}) for coding in (0, 1, 2)]
    ways += [("terngrad", {"clip": F32(c), "block_len": length}) for c in (0, 1, 2.5) for length in (0, 64, 4160)]
    ways += [("terngrad", {"error_feedback": 1})]
    for name, x in data_sets(folder, rng):
        residual = (rng.normal(0, 1, len(x)) * np.mean(np.abs(x))).astype(F32)
        for scheme, changes in ways:
            check_one(check, calls, name, x, residual, scheme, changes)
    x = samples_of(folder)
    check_dtypes(check, calls, x[:20000])
    check_sums(check, calls, x[:10000])
    check_bias(check, calls, x[3000:])
    check_feedback(check, calls, folder)
    return check.end(calls, 1000)


if __name__ == "__main__":
    sys.exit(main())
