#!/usr/bin/env python3
"""Models of roundings that the encoder does not have, for docs/notes/carried-error.md. NumPy; no frame is written.

    bench/gcomp/rounding_models.py dither GRAD.npy...      bits a value at equal NMSE: stochastic, nearest, dither
    bench/gcomp/rounding_models.py correlated GRAD.npy...  variance of a sum over ranks, words of the ranks correlated

Bits are the entropy of the labels of a chunk plus sign and mantissa bits, without headers. Quanta are those of the
encoder (docs/numerics.md section 6). A rank's gradient is the file's plus normal noise, `noise` times the root mean
square of its block.
"""

import argparse
import pathlib

import numpy as np

BLOCK, CHUNK = 512, 1 << 14
TARGETS = 10.0 ** np.arange(-5, -0.5, 0.5)
AT = (1e-4, 1e-3, 1e-2, 1e-1)


def blocks_of(path, count):
    x = np.load(path).ravel()[:count].astype(np.float64)
    x = x[: len(x) // BLOCK * BLOCK].reshape(-1, BLOCK)
    return x[np.any(x != 0, axis=1)]


def quanta(x, factor):
    """Quanta of blocks, factor = c * target: rounded down, then the smallest of a chunk raised up to the target."""
    square = np.mean(x**2, axis=1)
    exponent = np.floor(np.log2(factor * np.maximum(square, 1e-300)) / 2)
    for at in range(0, len(x), CHUNK // BLOCK):
        part = slice(at, at + CHUNK // BLOCK)
        error, target = np.sum(4.0 ** exponent[part]), factor * np.sum(square[part])
        for i in at + np.argsort(exponent[part], kind="stable"):
            own = 4.0 ** exponent[i]
            if error + 1.5 * own > target:
                break
            error += 3 * own
            exponent[i] += 1
    return np.exp2(exponent)[:, None]


def bits(steps):
    size = np.abs(steps).ravel()
    label = np.where(size == 0, 0, np.floor(np.log2(np.maximum(size, 1))) + 1).astype(int)
    total = float(np.sum(label))  # sign and the mantissa bits below the first
    for at in range(0, len(label), CHUNK):
        count = np.bincount(label[at : at + CHUNK])
        count = count[count > 0]
        total -= np.sum(count * np.log2(count / np.sum(count)))
    return total / len(label)


def dither(path, random):
    x = blocks_of(path, 1 << 20)
    curves = {}
    for name, c in (("stochastic", 6), ("nearest", 12), ("dither", 12)):
        points = []
        for target in TARGETS:
            q = quanta(x, c * target)
            word = (
                random.random(x.shape) if name == "stochastic" else 0.5 if name == "nearest" else random.random(x.shape)
            )
            steps = np.floor(x / q + word)
            decoded = steps - (word - 0.5 if name == "dither" else 0)
            points.append((np.sum(((decoded - x / q) * q) ** 2) / np.sum(x**2), bits(steps)))
        curves[name] = np.array(sorted(points))
    for nmse in AT:
        row = [f"{np.interp(np.log(nmse), np.log(p[:, 0]), p[:, 1]):.2f}" for p in curves.values()]
        print(pathlib.Path(path).stem, f"{nmse:g}", *row, sep="\t")


def correlated(path, random):
    for ranks in (4, 8, 64):
        mean = blocks_of(path, 1 << (18 if ranks < 64 else 16))
        scale = np.sqrt(np.mean(mean**2, axis=1))[:, None]
        for noise in (0.5, 1, 3):
            x = [mean + noise * scale * random.standard_normal(mean.shape) for _ in range(ranks)]
            total = sum(x)
            q, shared = quanta(x[0], 6e-3), random.random(mean.shape)
            first, whole = [], []
            for how in ("independent", "magnitudes", "values"):
                error = np.zeros_like(mean)
                for rank in range(1, ranks):  # the owner adds its own values unrounded
                    word = random.random(mean.shape) if how == "independent" else (shared + rank / ranks) % 1
                    word = np.where(x[rank] < 0, 1 - word, word) if how == "values" else word
                    size = np.abs(x[rank]) / q
                    error += np.sign(x[rank]) * (np.floor(size + word) - size) * q
                last = quanta(total, 6e-3)
                size = np.abs(total + error) / last
                result = np.sign(total + error) * np.floor(size + random.random(mean.shape)) * last
                first.append(np.sum(error**2))
                whole.append(np.sum((result - total) ** 2) / np.sum(total**2) / 1e-3)
            print(
                pathlib.Path(path).stem,
                ranks,
                noise,
                *(f"{f / first[0]:.2f}" for f in first[1:]),
                *(f"{w:.2f}" for w in whole),
                sep="\t",
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", choices=("dither", "correlated"))
    parser.add_argument("files", nargs="+")
    chosen = parser.parse_args()
    head = ("nmse", "stochastic", "nearest", "dither")
    if chosen.model == "correlated":
        head = ("ranks", "noise", "magnitudes", "values", "nmse_independent", "nmse_magnitudes", "nmse_values")
    print("file", *head, sep="\t")
    for path in chosen.files:
        (dither if chosen.model == "dither" else correlated)(path, np.random.default_rng(1))


if __name__ == "__main__":
    main()
