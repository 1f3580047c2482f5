/*
 * What the reports of several commands say about a frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FRAME_REPORT_H
#define GW_FRAME_REPORT_H

#include <jansson.h>

#include "frame_parts.h"
#include "tensor_input.h"

const char *gw_chunk_kind_name(gw_gcomp_chunk_kind kind); /* "zero", "raw", "coded" */

/* A report with command, status "ok", values, dtype, rate, quantum_mode, step, cap and chunks. */
json_t *gw_frame_report_json(const char *command, const gw_gcomp_frame_info *info,
                             const gw_frame_parts *parts);

/* Adds codebooks, escapes, bits_per_value. */
void gw_frame_report_add_parts(json_t *report, const gw_gcomp_frame_info *info, const gw_frame_parts *parts);

/* The counts of chunks, codebooks and escapes, and one line per part, on stdout. */
void gw_frame_report_print(const gw_gcomp_frame_info *info, const gw_frame_parts *parts);

/* The same for a tensor that was encoded: adds how, rates, backend, threads and the speed of the map. */
json_t *gw_tensor_report_json(const char *command, const gw_tensor_input *tensor,
                              const gw_codec_request *request, const gw_gcomp_frame_info *info,
                              const gw_frame_parts *parts);
void gw_tensor_report_print(const gw_tensor_input *tensor, const gw_gcomp_frame_info *info,
                            const gw_frame_parts *parts);

#endif
