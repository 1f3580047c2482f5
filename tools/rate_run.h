/*
 * Rate control for snapshots: the curve of predicted sizes and errors, and the choice of a tolerance.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RATE_RUN_H
#define GW_RATE_RUN_H

#include "tensor_input.h"

/* The curve of one source. Both end the process with a message if they fail. */
void gw_rate_run(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind, const gw_gcomp *codec,
                 const gw_gcomp_source *source, const char *name);

/* Sets options.tolerance_bits and the handle of a tensor with a tolerance map to the largest tolerance with
 * at most target_bits bits a value by the prediction, and tensor->predicted_size. */
void gw_rate_choose(gw_tensor_input *tensor, double target_bits);

#endif
