/*
 * Parts of the extension that belong to flags which a decoder may ignore (docs/format.md section 2).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_IGNORABLE_H
#define GW_IGNORABLE_H

#include <stdint.h>

/* 1 if the list of such parts keeps its rules, so that a decoder which knows one of them can find it. src has
 * the header and an extension of `size` bytes, of which known_size are its known parts. Frames without such
 * flags have no list, and anything may follow the known parts. */
int gw_are_ignorable_parts_valid(const uint8_t *src, uint32_t known_size, uint32_t size);

#endif
