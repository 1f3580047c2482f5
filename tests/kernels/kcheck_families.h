/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef GW_KCHECK_FAMILIES_H
#define GW_KCHECK_FAMILIES_H

#include "kcheck.h"

extern const kc_kernel kc_map_family[];
extern const kc_kernel kc_round_family[];
extern const kc_kernel kc_survey_family[];
extern const kc_kernel kc_tree_family[];
extern const kc_kernel kc_pack_family[];
extern const kc_kernel kc_split_family[];
extern const kc_kernel kc_labels_family[];
extern const kc_kernel kc_join_family[];
extern const kc_kernel kc_spread_family[];
extern const kc_kernel kc_add_family[];
extern const kc_kernel kc_crc32c_family[];
extern const kc_kernel kc_thc_convert_family[];
extern const kc_kernel kc_thc_rotate_family[];
extern const kc_kernel kc_thc_quantize_family[];
extern const kc_kernel kc_thc_sum_family[];
extern const kc_kernel kc_classic_level_family[];
extern const kc_kernel kc_classic_cast_family[];
extern const kc_kernel kc_classic_sign_family[];
extern const kc_kernel kc_classic_vote_family[];
extern const kc_kernel kc_classic_sparse_family[];

#endif
