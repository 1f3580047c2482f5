/*
 * Files of golden vectors. A broken index is no test result: what fails here ends the program with status 2.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GOLDEN_FILE_H
#define GW_GOLDEN_FILE_H

#include <stddef.h>
#include <stdint.h>

void *golden_take(size_t size);
uint8_t *golden_read(const char *path, size_t *size);

#endif
