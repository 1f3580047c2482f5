"""FP16 and BF16 casts of the library against NumPy: all exponents, ties, NaN, infinity, subnormals."""

import sys

import numpy as np
from classic_calls import Calls, Frame
from classic_numbers import F32, F64, U32, Check, arguments, bf16_bits, data_sets, flush, narrow, to_dtype, widen


def patterns(rng):
    """Every sign and exponent with mantissas at and beside ties of both formats, and random bits."""
    high = np.arange(512, dtype=U32) << U32(23)
    low = np.array([0, 1, 0x7FFFFF, 0x8000, 0x7FFF, 0x8001, 0x18000, 0x1000, 0xFFF, 0x1001, 0x3000, 0x400000], U32)
    fixed = (high[:, None] | low[None, :]).reshape(-1)
    return np.concatenate([fixed, rng.integers(0, 2**32, 40000, dtype=np.uint64).astype(U32)]).view(F32)


def cast(x, scheme):
    """The bits of the wire's 16-bit type, NaN canonical."""
    nan = np.isnan(x)
    finite = np.where(nan, F32(0), x)
    if scheme == "bf16":
        return np.where(nan, np.uint16(0x7FC0), bf16_bits(finite))
    with np.errstate(over="ignore"):
        return np.where(nan, np.uint16(0x7E00), finite.astype(np.float16).view(np.uint16))


def numbers(bits, scheme):
    x = widen(bits if scheme == "bf16" else bits.view(np.float16), 2 if scheme == "bf16" else 3)
    x[np.isnan(x)] = np.uint32(0x7FC00000).view(F32)
    return x


def check_values(check, calls, name, x):
    for scheme in ("fp16", "bf16"):
        frame, _, _ = calls.encode(calls.options(scheme), x)
        want = cast(x, scheme)
        check.same(np.frombuffer(Frame(frame).payload, np.uint16), want, f"{scheme} {name}: payload")
        y = numbers(want, scheme)
        check.same(calls.decode(frame), y, f"{scheme} {name}: values")
        if np.isfinite(y).all():
            total = np.resize(np.array([1, -0.0, 2.5e-39, -3e-5], F32), len(x))
            with np.errstate(over="ignore"):
                check.same(calls.decode_add(frame, total), flush(flush(total) + flush(y)), f"{scheme} {name}: sum")
                scaled = narrow(flush(y).astype(F64) * F64(F32(0.3)))
            check.same(calls.decode(frame, scale=0.3), scaled, f"{scheme} {name}: scale")


def main():
    program, folder = arguments()
    calls, check, rng = Calls(program), Check(), np.random.default_rng(2)
    check_values(check, calls, "patterns", patterns(rng))
    for name, x in data_sets(folder, rng):
        check_values(check, calls, name, x)
        for dtype in (2, 3):  # tensors of 16 bits: from the exact number
            stored = to_dtype(np.clip(x, -6e4, 6e4).astype(F32), dtype)
            exact = widen(stored, dtype)
            for scheme in ("fp16", "bf16"):
                frame, _, _ = calls.encode(calls.options(scheme, dtype=dtype), stored)
                payload = np.frombuffer(Frame(frame).payload, np.uint16)
                check.same(payload, cast(exact, scheme), f"{scheme} of dtype {dtype}, {name}")
    return check.end(calls, 200)


if __name__ == "__main__":
    sys.exit(main())
