/*
 * NumPy .npy files: a strict reader of little-endian floating-point arrays in C order, and a writer.
 * The format: numpy.lib.format, versions 1.0, 2.0 and 3.0.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_NPY_H
#define GW_NPY_H

#include "atomic_file.h"
#include "gradwire/gradwire.h"
#include "input_file.h"

/* How two-byte integers and opaque elements ('<u2', '<V2', '|V2') are read; NumPy has no bf16. */
typedef enum gw_npy_u2 { GW_NPY_U2_REFUSE = 0, GW_NPY_U2_BF16 = 1 } gw_npy_u2;

typedef struct gw_npy {
    const void *values; /* len elements in C order, aligned to the element size */
    uint64_t len;       /* product of the shape */
    gw_dtype dtype;
    uint64_t data_offset; /* bytes from the start of the file to the first element */
    gw_input_file input;
    void *aligned; /* copy of the values if the file has them at an unaligned offset; else NULL */
} gw_npy;

/*
 * Opens and checks a .npy file: '<f4' is fp32, '<f2' fp16, '<u2' and '<V2' bf16 if `u2` allows it; '=f4' and
 * so on have the byte order of this machine. Refused are other types, big-endian data, Fortran order where it
 * differs from C order, a header that is not the dictionary that NumPy writes, and data shorter or longer
 * than the shape needs.
 *
 * Ends the process with a message that names the file, the byte offset and the rule.
 */
void gw_npy_open(gw_npy *npy, const char *path, gw_npy_u2 u2);

/* The same for a file that is already open. *input moves into the array and is zeroed. */
void gw_npy_open_input(gw_npy *npy, gw_input_file *input, gw_npy_u2 u2);
void gw_npy_close(gw_npy *npy);

/* Gives pages of values[first, first + count) back. They are read again from the file on the next use;
 * nothing happens if the file is not mapped. */
void gw_npy_release(const gw_npy *npy, uint64_t first, uint64_t count);

/* 1 if the bytes begin like a .npy file. */
int gw_npy_is_npy(const gw_input_file *input);

/* Writes the version 1.0 header of a one-dimensional array; bf16 is declared as '<u2'. Like NumPy's, the
 * header's size is a multiple of 64. Returns an exit code. */
int gw_npy_write_header(gw_atomic_file *file, gw_dtype dtype, uint64_t len);

/* For commands: write a one-dimensional array to an open file, or to a new one. */
void gw_npy_write(gw_atomic_file *file, gw_dtype dtype, const void *values, uint64_t len);
void gw_npy_save(const char *path, gw_dtype dtype, const void *values, uint64_t len);

#endif
