/*
 * Whether an operation's values must not be rounded. Programs sum other things than gradients: counts and ids
 * in floats, and arrays of which each rank fills its own part and leaves zeros elsewhere (a gather by a sum).
 *
 * A rank that holds nothing but integers of small range says so in the opening vote: one is enough. Zeros
 * alone prove nothing, gradients have many. If ranks fill parts that do not overlap, then at least one of P
 * ranks has 1 - 1/P zeros, in any choice of positions; if one has, the ranks count at the same positions how
 * many of them hold a value. Gradients have their zeros in the same places on all ranks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include <stdlib.h>

#define GW_MPI_SAMPLES 1024u
/* Larger ones are not exact in fp32, nor are their sums */
#define GW_MPI_INTEGER_MAX 16777216.0f
/* Positions with values of several ranks are at most this share of those with any: none where parts do not
 * overlap, 0.73 and more between gradients, 0.11 between a dense and a sparse one (docs/mpi.md) */
#define GW_MPI_OVERLAP_SHARE 64u
/* Values between two looks at whether to go on: 16 KiB */
#define GW_MPI_STRIDE_LEN 4096u

/* Words of the opening vote. */
enum { EXACT_NO, EXACT_SPARSE, EXACT_INTEGERS };

struct gw_mpi_exact {
    gw_mpi_operation *operation;
    uint64_t word;
    gw_mpi_vote *vote;
    gw_mpi_vote *overlaps; /* NULL: not begun */
    uint32_t count;        /* samples */
    uint8_t filled[GW_MPI_SAMPLES];
};

/* One position in each of count equal stretches, the same on all ranks, but at changing places inside: data
 * may have a period. */
static uint64_t gw_mpi_exact_position(uint32_t sample, uint32_t count, uint64_t len)
{
    const uint64_t stretch = len / count;
    return sample * stretch + (uint64_t)(sample * 2654435761u >> 8) % stretch;
}

/* NaN and infinity are none. Without a branch, so that loops of it are as fast as memory. */
static int gw_mpi_exact_is_integer(float value)
{
    const float bounded = value >= -GW_MPI_INTEGER_MAX && value <= GW_MPI_INTEGER_MAX ? value : 0.5f;
    return (float)(int32_t)bounded == bounded;
}

/* Stops early: gradients are left at the first value that is not zero. */
static int gw_mpi_exact_all_integers(const float *values, uint64_t len)
{
    for (uint64_t first = 0; first < len; first += GW_MPI_STRIDE_LEN) {
        const uint64_t end = len - first < GW_MPI_STRIDE_LEN ? len : first + GW_MPI_STRIDE_LEN;
        int others = 0;
        for (uint64_t i = first; i < end; i++) {
            others |= !gw_mpi_exact_is_integer(values[i]);
        }
        if (others) {
            return 0;
        }
    }
    return 1;
}

static uint64_t gw_mpi_exact_look(gw_mpi_exact *exact, const gw_mpi_call *call, uint32_t ranks)
{
    uint32_t filled = 0, integers = 0;
    exact->count = call->len < GW_MPI_SAMPLES ? (uint32_t)call->len : GW_MPI_SAMPLES;
    for (uint32_t i = 0; i < exact->count; i++) {
        const float value = call->values[gw_mpi_exact_position(i, exact->count, call->len)];
        exact->filled[i] = value != 0.0f;
        filled += exact->filled[i];
        integers += (uint32_t)gw_mpi_exact_is_integer(value);
    }
    /* A rank of zeros says nothing about the others */
    if (filled != 0 && integers == exact->count && gw_mpi_exact_all_integers(call->values, call->len)) {
        return EXACT_INTEGERS;
    }
    return (uint64_t)filled * ranks <= exact->count ? EXACT_SPARSE : EXACT_NO;
}

gw_mpi_exact *gw_mpi_exact_create(gw_mpi_operation *operation)
{
    gw_mpi_exact *exact = gw_mpi_allocate(1, sizeof(*exact));
    exact->operation = operation;
    exact->word = gw_mpi_exact_look(exact, &operation->call, (uint32_t)operation->context->size);
    return exact;
}

/* What a vote says of position i: the largest rank that has filled it, counted from 1, and the smallest one,
 * counted from the last. */
static void gw_mpi_exact_begin(gw_mpi_exact *exact)
{
    const gw_mpi_context *context = exact->operation->context;
    uint64_t words[2 * GW_MPI_SAMPLES] = {0};
    for (uint32_t i = 0; i < exact->count; i++) {
        words[2 * i] = exact->filled[i] ? (uint64_t)context->rank + 1 : 0;
        words[2 * i + 1] = exact->filled[i] ? (uint64_t)(context->size - context->rank) : 0;
    }
    exact->overlaps =
        gw_mpi_vote_start(exact->operation, GW_MPI_MESSAGE_OVERLAPS, words, 2 * (size_t)exact->count);
}

/* 1 if few of the positions that any rank has filled were filled by several. */
static int gw_mpi_exact_apart(const gw_mpi_exact *exact, const uint64_t *words)
{
    uint32_t any = 0, several = 0;
    for (uint32_t i = 0; i < exact->count; i++) {
        any += words[2 * i] != 0;
        several += words[2 * i] + words[2 * i + 1] > (uint64_t)exact->operation->context->size + 1;
    }
    return several * GW_MPI_OVERLAP_SHARE <= any;
}

int gw_mpi_exact_test(gw_mpi_exact *exact, int *is_exact)
{
    if (exact->overlaps == NULL) {
        if (exact->vote == NULL) {
            exact->vote = gw_mpi_vote_start(exact->operation, GW_MPI_MESSAGE_OPENING, &exact->word, 1);
        }
        const uint64_t *worst = gw_mpi_vote_test(exact->vote);
        if (worst == NULL) {
            return 0;
        }
        if (*worst != EXACT_SPARSE) {
            *is_exact = *worst >= EXACT_INTEGERS; /* after an error of MPI: lossless too */
            return 1;
        }
        gw_mpi_exact_begin(exact);
    }
    const uint64_t *words = gw_mpi_vote_test(exact->overlaps);
    *is_exact = words != NULL && gw_mpi_exact_apart(exact, words);
    return words != NULL;
}

void gw_mpi_exact_free(gw_mpi_exact *exact)
{
    /* After an error of MPI messages may still arrive */
    if (exact != NULL && exact->operation->mpi_error == MPI_SUCCESS) {
        gw_mpi_vote_free(exact->vote);
        gw_mpi_vote_free(exact->overlaps);
        free(exact);
    }
}
