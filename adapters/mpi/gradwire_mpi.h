/*
 * gradwire_mpi.h: compressed sums of floats over MPI, as plain functions. The same library, loaded with
 * LD_PRELOAD, gives unmodified programs compressed MPI_Allreduce, MPI_Iallreduce and
 * MPI_Reduce_scatter_block; docs/mpi.md says how, which errors to expect, and what it does not do.
 *
 * Every function here is called like its MPI counterpart: by all ranks of the communicator, in the same
 * order, with the same count and options. Results are equal bit for bit on all ranks. Return values are MPI
 * error codes, after the error handler of the communicator was called: damaged data gives the same error on
 * all ranks. Link with libgradwire_ompi or libgradwire_mpich before MPI itself.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_MPI_H
#define GRADWIRE_MPI_H

#include <mpi.h>
#include <stdint.h>

#include "gradwire/gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gw_mpi_mode {
    /* One quantum per block, chosen by an error target; two roundings for any number of ranks */
    GW_MPI_CARRIED = 0,
    GW_MPI_CONSTANT =
        1,         /* all values lose the same number of mantissa bits; 0: none, exact but for the sum */
    GW_MPI_THC = 2 /* small integers that are added as they are */
} gw_mpi_mode;

/* What the owners of pieces send to all, as gw_thc_sums (gradwire/runtime_thc.h). */
typedef enum gw_mpi_thc_sums {
    GW_MPI_THC_LANES = 0,      /* the sums as they are: lanes of 8 bits (16 or 32 for many ranks) */
    GW_MPI_THC_REQUANTIZED = 1 /* rounded to indices again */
} gw_mpi_thc_sums;

/* How the frames of GW_MPI_CARRIED and GW_MPI_CONSTANT travel (docs/collectives.md). */
typedef enum gw_mpi_algorithm {
    GW_MPI_A2A = 0, /* to the owners of pieces, and from them to all */
    GW_MPI_RING = 1 /* to the next rank, with a rounding for each rank */
} gw_mpi_algorithm;

/* How one operation is compressed. Equal on all ranks. */
typedef struct gw_mpi_options {
    gw_mpi_mode mode;
    float target_nmse;        /* GW_MPI_CARRIED: of every rounding, 0 < target_nmse <= 1 */
    uint32_t constant_drop;   /* GW_MPI_CONSTANT: mantissa bits, 0..23 */
    uint32_t thc_bits;        /* GW_MPI_THC: bits of an index, 1..4 */
    uint64_t seed;            /* of stochastic rounding */
    gw_mpi_thc_sums thc_sums; /* GW_MPI_THC, all-reduce */
    gw_mpi_algorithm algorithm;
} gw_mpi_options;

/* The options that the environment names (docs/mpi.md), or the defaults: carried, a target NMSE of 0.001. */
GW_API void gw_mpi_options_init(gw_mpi_options *options);

/* The target NMSE with which gradients took about this many bits a value (1.5..8) in
 * docs/results/gcomp-dial.md. Values outside are clipped. */
GW_API float gw_mpi_nmse_of_bits(float bits);

/*
 * As MPI_Allreduce, MPI_Iallreduce and MPI_Reduce_scatter_block of MPI_FLOAT and MPI_SUM, whatever the
 * threshold and the switch say.
 *
 *   - sendbuf: count values (gw_mpi_reduce_scatter_block(): count times the number of ranks), or MPI_IN_PLACE
 *   - count: up to 2^40 values in all; MPI_ERR_COUNT if it is negative or larger
 *   - options: NULL: gw_mpi_options_init(), and data that look exact are not rounded (docs/mpi.md).
 *     MPI_ERR_ARG for a field out of range
 *   - *request may be passed to all calls that complete requests; they make progress with it
 *   - on communicators whose sums pass through (docs/mpi.md) they are MPI's own functions, and so is
 *     gw_mpi_iallreduce() where nothing drives a request outside of these calls
 *   - on an error recvbuf is unspecified
 */
GW_API int gw_mpi_allreduce(const float *sendbuf, float *recvbuf, int64_t count, MPI_Comm comm,
                            const gw_mpi_options *options);
GW_API int gw_mpi_iallreduce(const float *sendbuf, float *recvbuf, int64_t count, MPI_Comm comm,
                             const gw_mpi_options *options, MPI_Request *request);
GW_API int gw_mpi_reduce_scatter_block(const float *sendbuf, float *recvbuf, int64_t count, MPI_Comm comm,
                                       const gw_mpi_options *options);

/* Switches interception on (1) and off (0), equally on all ranks. Returns what it was. */
GW_API int gw_mpi_enable(int on);

/* Bytes from which MPI_Allreduce on this communicator is compressed; UINT64_MAX: never. With an automatic
 * threshold the first blocking call that is large enough measures it; this call does so too, and is then
 * collective. */
GW_API int gw_mpi_threshold(MPI_Comm comm, uint64_t *threshold_size);

/* What this process has done so far. */
typedef struct gw_mpi_statistics {
    uint64_t operations;  /* compressed, complete */
    uint64_t failures;    /* of them with an error */
    uint64_t passed;      /* collectives of the three kinds that went to MPI as they were */
    uint64_t value_count; /* values of the operations: of Reduce_scatter_block those of all blocks */
    uint64_t wire_values; /* values inside the frames and lanes that this rank sent */
    uint64_t wire_size;   /* their bytes: 8 * wire_size / wire_values is bits a value */
    uint64_t encode_ns;   /* processor time in the codec, summed over threads */
    uint64_t reduce_ns;
    uint64_t decode_ns;
} gw_mpi_statistics;
GW_API void gw_mpi_statistics_read(gw_mpi_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif
