/*
 * The layout of the structs of gradwire/runtime.h, as gradwire/abi.h has it for those of the codecs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/runtime.h"

#define FIELD(name, field)                                                                                   \
    {                                                                                                        \
#field, (uint32_t)offsetof(name, field), (uint32_t)sizeof(((name *)NULL)->field)                     \
    }
#define STRUCT(name)                                                                                         \
    {                                                                                                        \
#name, (uint32_t)sizeof(name), (uint32_t)(sizeof name##_fields / sizeof name##_fields[0]),           \
            name##_fields                                                                                    \
    }

static const gw_abi_field gw_runtime_options_fields[] = {FIELD(gw_runtime_options, thread_count),
                                                         FIELD(gw_runtime_options, workspace_size)};
static const gw_abi_field gw_runtime_event_fields[] = {
    FIELD(gw_runtime_event, user), FIELD(gw_runtime_event, kind),   FIELD(gw_runtime_event, piece),
    FIELD(gw_runtime_event, data), FIELD(gw_runtime_event, offset), FIELD(gw_runtime_event, size),
    FIELD(gw_runtime_event, word)};
static const gw_abi_field gw_exchange_buffers_fields[] = {FIELD(gw_exchange_buffers, take),
                                                          FIELD(gw_exchange_buffers, release),
                                                          FIELD(gw_exchange_buffers, context)};
static const gw_abi_field gw_exchange_config_fields[] = {FIELD(gw_exchange_config, shape),
                                                         FIELD(gw_exchange_config, rank),
                                                         FIELD(gw_exchange_config, contribution_bits),
                                                         FIELD(gw_exchange_config, codec),
                                                         FIELD(gw_exchange_config, fallback_codec),
                                                         FIELD(gw_exchange_config, user),
                                                         FIELD(gw_exchange_config, seed),
                                                         FIELD(gw_exchange_config, segment_max),
                                                         FIELD(gw_exchange_config, buffers)};
static const gw_abi_field gw_exchange_info_fields[] = {
    FIELD(gw_exchange_info, layout), FIELD(gw_exchange_info, memory_size),
    FIELD(gw_exchange_info, message_bound), FIELD(gw_exchange_info, digest_len)};
static const gw_abi_field gw_exchange_run_fields[] = {
    FIELD(gw_exchange_run, values), FIELD(gw_exchange_run, result), FIELD(gw_exchange_run, scale),
    FIELD(gw_exchange_run, step_index), FIELD(gw_exchange_run, flags)};
static const gw_abi_field gw_exchange_stats_fields[] = {
    FIELD(gw_exchange_stats, sent_size),   FIELD(gw_exchange_stats, received_size),
    FIELD(gw_exchange_stats, map_ns),      FIELD(gw_exchange_stats, encode_ns),
    FIELD(gw_exchange_stats, reduce_ns),   FIELD(gw_exchange_stats, decode_ns),
    FIELD(gw_exchange_stats, operations),  FIELD(gw_exchange_stats, sample_square),
    FIELD(gw_exchange_stats, sample_error)};

static const gw_abi_struct structs[] = {STRUCT(gw_runtime_options),  STRUCT(gw_runtime_event),
                                        STRUCT(gw_exchange_buffers), STRUCT(gw_exchange_config),
                                        STRUCT(gw_exchange_info),    STRUCT(gw_exchange_run),
                                        STRUCT(gw_exchange_stats)};

const gw_abi_struct *gw_runtime_structs(size_t *count)
{
    *count = sizeof structs / sizeof *structs;
    return structs;
}
