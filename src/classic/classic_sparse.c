/*
 * The sparse family: TOPK, DGC, RANDK. Not written yet: no options and no frames of it are accepted.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_handle.h"

static size_t no_workspace(const gw_classic_options *options, const gw_classic_step *step)
{
    (void)options;
    (void)step;
    return 0;
}

static size_t no_decode_workspace(const gw_classic_frame_info *info)
{
    (void)info;
    return 0;
}

static gw_status refuse(gw_classic_encoding *encoding)
{
    (void)encoding;
    return GW_ERR_OPTION;
}

static gw_status refuse_header(const gw_classic_frame_info *info)
{
    (void)info;
    return GW_ERR_UNSUPPORTED;
}

static gw_status refuse_payload(const gw_classic_payload *payload)
{
    (void)payload;
    return GW_ERR_CORRUPT;
}

static void decode_nothing(const gw_classic_payload *payload, const gw_classic_sink *sink)
{
    (void)payload;
    (void)sink;
}

const gw_classic_family gw_classic_sparse = {
    .workspace_size = no_workspace,
    .payload_size_max = no_workspace,
    .decode_workspace_size = no_decode_workspace,
    .encode = refuse,
    .check_header = refuse_header,
    .check = refuse_payload,
    .decode = decode_nothing,
};
