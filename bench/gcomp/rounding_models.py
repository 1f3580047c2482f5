#!/usr/bin/env python3
"""Models of roundings that the encoder does not have, for docs/notes/carried-error.md. NumPy; no frame is written.

    bench/gcomp/rounding_models.py dither GRAD.npy...      bits a value at equal NMSE: stochastic, nearest, dither
    bench/gcomp/rounding_models.py correlated GRAD.npy...  sums over ranks, words of the ranks correlated
    bench/gcomp/rounding_models.py ring GRAD.npy...        a ring whose hops have words in steps of the golden ratio
    bench/gcomp/rounding_models.py targets GRAD.npy...     bits and NMSE / target, the error known exactly
    bench/gcomp/rounding_models.py codebooks GRAD.npy...   label bits of codebooks without a count of the chunk

Bits are the entropy of the labels of a chunk plus sign and mantissa bits, without headers. Quanta are about those of
the encoder (docs/numerics.md section 6): blocks are raised once, with the error of values that are spread evenly. A
rank's gradient is the file's plus normal noise, `noise` times the root mean square of its block.

targets: stochastic; quanta of 2^(1/steps) from the error that rounding has, chosen for each chunk or for the frame,
that of no block above four times its share. octave: exponents of two, as frames have them.
codebooks: Huffman codes of at most 11 bits. own: of the labels of the chunk. scale: of a Laplace distribution with the
root mean square of its values against their quanta. best: the best of a normal, a Laplace and a Student t distribution
(3 degrees) with any scale in quarter-octaves. installed: of the first eighth of the file. Chunks of 2^14 and 2^9.
"""

import argparse
import functools
import math
import pathlib

import numpy as np

BLOCK, CHUNK = 512, 1 << 14
TARGETS = 10.0 ** np.arange(-5, -0.5, 0.5)
AT = (1e-4, 1e-3, 1e-2, 1e-1)


def blocks_of(path, count):
    """The first `count` values, the last -count if it is negative; blocks of zeros left out."""
    x = np.load(path).ravel()
    x = (x[count:] if count < 0 else x[:count]).astype(np.float64)
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


GOLDEN = (math.sqrt(5) - 1) / 2


def ring_sum(x, how, random):
    """The sum that a ring of the ranks ends with: every hop rounds the partial sum, the last one the whole sum."""
    shared, total = random.random(x[0].shape), np.zeros_like(x[0])
    for hop, own in enumerate(x):
        total = total + own
        word = random.random(total.shape) if how == "independent" else (shared + hop * GOLDEN) % 1
        word = np.where(total < 0, 1 - word, word) if how == "values" else word
        q = quanta(total, 6e-3)
        total = np.sign(total) * np.floor(np.abs(total) / q + word) * q
    return total


def ring(path, random):
    """NMSE / target, and how much of the squared error is the square of its mean."""
    mean = blocks_of(path, 1 << 15)
    scale = np.sqrt(np.mean(mean**2, axis=1))[:, None]
    for ranks, draws in ((4, 128), (8, 128), (64, 48)):
        x = [mean + scale * random.standard_normal(mean.shape) for _ in range(ranks)]
        total, row = sum(x), []
        for how in ("independent", "magnitudes", "values"):
            error, square = np.zeros_like(total), 0
            for _ in range(draws):
                own = ring_sum(x, how, random) - total
                error += own / draws
                square += np.sum(own**2) / draws
            bias = (np.sum(error**2) - square / draws) / square
            row += (f"{square / np.sum(total**2) / 1e-3:.2f}", f"{bias:.3f}")
        print(pathlib.Path(path).stem, ranks, *row, sep="\t")


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


def errors(x, exponent):
    """Expected squared error of the blocks with stochastic rounding."""
    q = np.exp2(exponent)[:, None]
    part = x / q
    part = part - np.floor(part)
    return np.sum(part * (1 - part) * q * q, axis=1)


def chosen(x, target, steps, scope):
    """Exponents in steps of 1 / steps: the largest that keep a block's share, then raised, the smallest first."""
    share = target * np.sum(x**2, axis=1)
    exponent = np.floor(steps * np.log2(6 * share / BLOCK) / 2) / steps
    for _ in range(3 * steps):
        exponent = exponent + (errors(x, exponent + 1 / steps) <= share) / steps
    for _ in range(3 * steps):
        exponent = exponent - (errors(x, exponent) > share) / steps
    table = [errors(x, exponent + k / steps) for k in range(2 * steps + 1)]
    raises = np.zeros(len(x), int)
    for at in range(0, len(x), scope):
        part = slice(at, at + scope)
        error, allowed, over = np.sum(table[0][part]), np.sum(share[part]), []
        order = at + np.argsort(exponent[part], kind="stable")
        for k in range(2 * steps):
            for i in order[raises[order] == k]:
                more = table[k + 1][i] - table[k][i]
                if table[k + 1][i] > 4 * share[i]:
                    continue
                if error + more <= allowed:
                    error += more
                    raises[i] += 1
                else:
                    over.append((more, i))
        if over and len(order) * min(over)[0] <= 8 * allowed and error + min(over)[0] / 2 <= allowed:
            raises[min(over)[1]] += 1
    return exponent + raises / steps


def targets(path, random):
    x = np.abs(blocks_of(path, -(1 << 21)))
    chunk, frame = CHUNK // BLOCK, len(x)
    for target in (1e-4, 1e-3, 1e-2):
        row = []
        for steps, scope in ((1, chunk), (1, frame), (2, chunk), (4, chunk), (4, frame)):
            exponent = chosen(x, target, steps, scope)
            size = bits(np.floor(x / np.exp2(exponent)[:, None] + random.random(x.shape)))
            row.append(f"{size:.2f}; {np.sum(errors(x, exponent)) / np.sum(x**2) / target:.2f}")
        print(pathlib.Path(path).stem, f"{target:g}", *row, sep="\t")


LABELS = 24


def code_lengths(weights, limit=11):
    """Lengths of a Huffman code of at most `limit` bits, by package-merge."""
    leaves = sorted((w, (i,)) for i, w in enumerate(weights) if w > 0)
    if len(leaves) == 1:
        return np.eye(LABELS, dtype=int)[leaves[0][1][0]]
    row = []
    for _ in range(limit):
        pairs = zip(row[0::2], row[1::2], strict=False)
        row = sorted(leaves + [(a[0] + b[0], a[1] + b[1]) for a, b in pairs], key=lambda item: item[0])
    lengths = np.zeros(LABELS, int)
    for _, members in row[: 2 * len(leaves) - 2]:
        for i in members:
            lengths[i] += 1
    return lengths


def below(kind, t):
    """P(|x| < t) of a distribution whose root mean square is 1."""
    if kind == "normal":
        return math.erf(t / math.sqrt(2))
    if kind == "laplace":
        return 1 - math.exp(-t * math.sqrt(2))
    return 2 / math.pi * (math.atan(t) + t / (1 + t * t))


@functools.cache
def model_lengths(kind, quarters):
    """Of labels of values whose root mean square is 2^(quarters / 4) quanta, rounded stochastically."""
    scale = 2.0 ** (quarters / 4)
    edges = [0] + [np.mean([below(kind, (2**j - 1 + u) / scale) for u in np.linspace(0, 1, 65)]) for j in range(LABELS)]
    return code_lengths((np.maximum(np.diff(edges), 1e-9) * 1e9).astype(int) + 1)


def codebooks(path, random):
    x = np.abs(blocks_of(path, -(1 << 21)))
    for target in (1e-3, 1e-2):
        square = np.mean(x**2, axis=1)
        q = np.exp2(np.floor(np.log2(6 * target * square) / 2))
        size = np.floor(x / q[:, None] + random.random(x.shape))
        label = np.where(size == 0, 0, np.floor(np.log2(np.maximum(size, 1))) + 1).astype(int)
        label = np.minimum(label, LABELS - 1)
        installed = code_lengths(np.bincount(label[: len(label) // 8].ravel(), minlength=LABELS) + 1)
        for rows in (CHUNK // BLOCK, 1):
            total = np.zeros(4)
            for at in range(0, len(x), rows):
                part = slice(at, at + rows)
                count = np.bincount(label[part].ravel(), minlength=LABELS)
                quarters = round(2 * math.log2(np.mean(square[part] / q[part] ** 2)))
                candidates = ((k, s) for k in ("normal", "laplace", "student") for s in range(-16, 33))
                total += (
                    np.sum(count * code_lengths(count)),
                    np.sum(count * model_lengths("laplace", quarters)),
                    min(np.sum(count * model_lengths(*c)) for c in candidates),
                    np.sum(count * installed),
                )
            print(
                pathlib.Path(path).stem,
                f"{target:g}",
                rows * BLOCK,
                *(f"{t / label.size:.2f}" for t in total),
                sep="\t",
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", choices=("dither", "correlated", "ring", "targets", "codebooks"))
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    head = ("nmse", "stochastic", "nearest", "dither")
    if arguments.model == "correlated":
        head = ("ranks", "noise", "magnitudes", "values", "nmse_independent", "nmse_magnitudes", "nmse_values")
    elif arguments.model == "ring":
        head = ("ranks", "independent", "bias", "magnitudes", "bias", "values", "bias")
    elif arguments.model == "targets":
        head = ("target", "octave", "octave, frame", "half", "quarter", "quarter, frame")
    elif arguments.model == "codebooks":
        head = ("target", "chunk", "own", "scale", "best", "installed")
    print("file", *head, sep="\t")
    model = {"dither": dither, "correlated": correlated, "ring": ring, "targets": targets, "codebooks": codebooks}[
        arguments.model
    ]
    for path in arguments.files:
        model(path, np.random.default_rng(1))


if __name__ == "__main__":
    main()
