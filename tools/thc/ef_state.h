/*
 * Error-feedback state of the command: an fp32 .npy of the gradient's length.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_EF_STATE_H
#define GW_EF_STATE_H

#include <stdint.h>

/* A copy of the state, zeros if the file does not exist; NULL with a message printed (*code) otherwise. */
float *ef_state_read(const char *path, uint64_t len, int *code);
int ef_state_write(const char *path, const float *error, uint64_t len);

#endif
