/*
 * Memory of `gradwire plan`. Where there is none, the process ends with a message.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_MEMORY_H
#define GW_PLAN_MEMORY_H

#include "gradwire/gradwire.h"

/* An array of zeros; len 0 gives a valid pointer. */
void *plan_alloc(size_t len, size_t element_size);

/* Room for one element more in an array of `len`, that has always been grown by this: NULL at first. */
void *plan_grow(void *array, size_t len, size_t element_size);

/* A copy of a text. */
char *plan_text(const char *text);

/* The solvers' workspace: grown on demand and kept until the program ends. */
gw_workspace plan_workspace(size_t size);

#endif
