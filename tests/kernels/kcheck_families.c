/* SPDX-License-Identifier: BSD-2-Clause */
#include "kcheck_families.h"

const kc_kernel *const kc_families[] = {
    kc_map_family,
    kc_round_family,
    kc_survey_family,
    kc_split_family,
    kc_labels_family,
    kc_tree_family,
    kc_pack_family,
    kc_join_family,
    kc_spread_family,
    kc_add_family,
    kc_crc32c_family,
    kc_thc_convert_family,
    kc_thc_rotate_family,
    kc_thc_quantize_family,
    kc_thc_sum_family,
    kc_classic_cast_family,
    kc_classic_sign_family,
    kc_classic_vote_family,
    kc_classic_sparse_family,
    kc_classic_level_family,
    NULL,
};
