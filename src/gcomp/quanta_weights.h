/*
 * The error that a sample of values lets expect of a quantum (docs/numerics.md section 6). Shared with device
 * code.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_QUANTA_WEIGHTS_H
#define GW_QUANTA_WEIGHTS_H

enum {
    GW_QUANTA_RAISES = 2,       /* a block's quantum grows by at most as many octaves */
    GW_QUANTA_WEIGHT_LOG2 = 9,  /* weights count 1/512 */
    GW_QUANTA_NO_DEAD_ZONE = 3, /* row of weights */
    GW_QUANTA_NO_WEIGHT = 16,   /* place in a row of weights from which on they are 0 */
    GW_QUANTA_STEP_LOG2_MAX = 3 /* one value of eight is looked at, more in blocks below 512 values */
};

/* The sample has one of 2^step_log2 values that follow one another. Which of them, modulo 2^step_log2: spread
 * evenly, whatever powers of two the rows of a tensor have, for group j of the chunk. */
#define GW_QUANTA_JUMP(j) ((uint32_t)(j)*0x9e3779b9u >> 29)

/*
 * Expected squared error of a value against that of values that are spread evenly over their quantum Q: Q²/3
 * with truncation, Q²/12 with nearest, Q²/6 with stochastic rounding (one row each). Entry d + 2 is for
 * values whose exponent is d below that of Q, the logarithm of t = |value| / Q being spread evenly over the
 * octave. With d > 0 they become 0 or Q: the error is t², min(t, 1 - t)² or t·(1 - t), times 3, 12 or 6. The
 * last row is for encodes without dead zones: values below Q keep their exponent, so they are rounded as if
 * their quantum were d octaves smaller.
 */
#define GW_QUANTA_WEIGHTS                                                                                    \
    {                                                                                                        \
        {512, 512, 512, 831, 208, 52, 13, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},                               \
            {512, 512, 512, 604, 831, 208, 52, 13, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0},                         \
            {512, 512, 512, 554, 692, 450, 251, 132, 68, 34, 17, 9, 4, 2, 1, 1, 0, 0, 0},                    \
            {512, 512, 512, 128, 32, 8, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},                              \
    }

#endif
