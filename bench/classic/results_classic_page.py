# ruff: noqa: E501 (rows of tables)
"""The text of docs/results/classic.md. results_classic.py puts tables where there are names in braces."""

PAGE = """# Classic codecs: error, bits, speed

The compressors of [classic.h](../../include/gradwire/classic.h) on real gradients, beside GCOMP's dial and THC, and
their speed beside torch code that does the same. Made by `bench/classic/results_classic`: error and bits are
[classic.tsv](classic.tsv) (`bench/classic/results_classic.py --measure`, through the library), speed is
[classic-speed.tsv](classic-speed.tsv) (`bench/bench_classic.cc`, `bench/classic_torch.py`). Rows in italics are those
of [gcomp-dial.md](gcomp-dial.md), which has no cosines.

That the library computes what papers and [numerics-classic.md](../numerics-classic.md) say is checked by models in
NumPy (`tests/classic/models`, ctest `classic.model_*`): payloads, decoded values and state equal the models bit for
bit, but for values as GCOMP frames (a proved bound of 2^-6) and masks of levels (the decoded values; their bytes are
checked by the reference decoder). They also check the bias of RANDK, QSGD and TERNGRAD at 5 sigma, and that with
error feedback what was sent and the residual add up to the inputs.

## How to read it

- **bits a value**: every byte of the frame, header and norms too. A snapshot is one tensor. *of positions*: the part
  of them that says which values were sent.
- **NMSE**: squared error over the squared length, over the snapshot; *per tensor*: the median over its tensors.
  *cosine*: between gradient and decoded values.
- SIGNSGD and SIGNUM send no length. Their NMSE is that of the best scale, 1 - cosine^2.
- **One encode without state.** DGC is then Top-k, SIGNUM is SIGNSGD, EFSIGNSGD is the mean magnitude.

**What error feedback changes**: NMSE of one step says how much is late, not how much is lost. The residual is sent in
later steps, so that over many steps the sum of all that was sent differs from the sum of the inputs by one residual,
whatever the NMSE. How large the residual becomes depends on how much of it a step sends: for a compressor that leaves
a share of at most 1 - d of the squared length it stays below a multiple of 1 / d (Karimireddy et al.). Top-k and
scaled signs are such compressors; with an NMSE above 1 (unbiased RANDK, QSGD with few levels, TERNGRAD without
clipping) the residual may grow, and they are meant to be used without it. There, in turn, the error is noise that is
right in the mean: over n ranks it falls by n, and that of biased codecs does not.

## What it shows

- **Top-k is smallest over the model, and blind to small layers.** 1 % of the values have an NMSE of 0.04 to 0.31 at
  0.4 bit on three snapshots, 0.003 on the contiguous one; but the median tensor loses 22 to 100 % of its squared
  length. GCOMP's one quantum for everything is the same trade ([gcomp-dial.md](gcomp-dial.md)). Error feedback is
  made for that.
- **Values of Top-k need not be fp32.** As GCOMP levels 1 % needs 0.12 to 0.15 bit instead of 0.36 to 0.39, and NMSE
  grows by 1.3 % at most. Positions are then 34 to 48 % of a frame: 4 to 7.2 bits each at 1 % (evenly spread ones
  would need 8.1), where others send 32 or 64.
- **Masks or Elias codes**: up to 16 levels masks are 6 to 29 % smaller, from 64 levels on Elias' codes are 8 to 19 %
  smaller, because masks send magnitudes above 1 with a fixed number of bits. Packed levels need 5.5 to 6.8 times the
  bits of masks with 1 and 4 levels of the L2 norm. Elias' codes take three to four times the time of masks.
- **The norm of QSGD decides what s means, not how good the code is.** 4 levels of the maximum of a block of 512 have
  1.4 to 2.3 bits and an NMSE of 0.07 to 0.25, 16 levels of the L2 norm, as in the paper, 1.4 to 1.8 bits and 0.15 to
  0.32.
- **Clipping is what makes TernGrad usable**: on whole snapshots it divides NMSE by 7 to 31. With it blocks of 4096
  values halve NMSE on two snapshots and raise it on the other two, for 1.6 to 4.3 times the bits of one block.
- **Beside GCOMP**: at equal NMSE over the model, carried frames with nearest rounding need 13 to 67 % fewer bits than
  QSGD with the maximum norm and masks. With stochastic rounding, unbiased as QSGD is, they need 7 to 23 % less than
  127 levels, and between 5 % more and 18 % less than 4.
- **One bit a value** is worth little by NMSE with one scale for everything: 0.89 to 1, a cosine of 0.05 to 0.33.
  ONEBIT's columns of 512 values, for an eighth of a bit more, bring 0.35 to 0.73.
- **RANDK** unbiased has an expected NMSE of 99 at 1 %, and a single draw is far off it (53 to 433), since few values
  hold most of the squared length.

![NMSE against bits a value](classic.svg)

## Error

QSGD in blocks of 512 and TERNGRAD by block length, both with masks; other codings below. ONEBIT by length of a column
(0: one). GCOMP: derived, stochastic, dead zone, preset small, by tolerance and noise limit; carried frames by target
NMSE.

{errors}
## Codings

Bits a value of the same levels: packed, with masks, Elias.

{codings}
## Speed

Shares of memcpy of the same bytes, 25 MiB of fp32, resnet50-sgdm-step0400, cold, one thread: median of pairs in turn.
The torch column is `bench/classic_torch.py`: tensor operations as in GRACE, without packing or coding of positions
and levels, memcpy measured in turn in the same way; its buffers are not flushed, but used in turn, 8 of them.
Clearing the output has {memset} (memset): decoding a sparse frame cannot be faster. Ways: sparse ones by per cent
of values sent, *ef* with error feedback; QSGD by levels, with masks where nothing is said; TERNGRAD packed.
AVX-512 had kernels for all slots then; of those, the ones that AVX2 nearly equals are gone
([kernels.md](../kernels.md)).

Machine: {machine}

{speed}

Encoding with state reads values and state twice, because nothing of the state may change before everything that can
fail has passed.

### What was tried

| | result |
|---|---|
| positions from a mask: 64 at a time, set bits taken from a word (before: from each byte, with unpredictable branches) | kept: decoding of 10 % from 0.19 to 0.34 |
| check of a sparse frame's values, levels of eight bits: loops without branches and tables, which compilers turn into vector instructions | kept: decoding of 127 packed levels from 0.32 to 0.65 |
| check of a sparse frame: positions of a mask are counted, not written | kept: 7 % |
| one table entry for the bits of code and index, so that the next byte waits for a load and a shift | kept: 10 to 15 % |

Decoding of sparse frames is bound by clearing the output at 0.1 and 1 %. It is not at 10 %: 2.6 million bytes of
values, and the mask of positions, decoded twice, once to check it. There torch, which sends 64 bits a position and
checks nothing, is faster.

## Limits

One step of each of four snapshots, of which three have the first values of every tensor. NMSE does not decide whether
training converges; [training.md](training.md) has runs. Times are of one machine, and torch code could be written
better than it usually is.
"""
