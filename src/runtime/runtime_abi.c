/* The layout of the structs of pool.h, as gradwire/abi.h has it for those of the library. */
#include "pool.h"

#include <stddef.h>

#define FIELD(type, field)                                                                                   \
    {                                                                                                        \
#field, (uint32_t)offsetof(type, field), (uint32_t)sizeof(((type *)NULL)->field)                     \
    }
#define STRUCT(type, fields)                                                                                 \
    {                                                                                                        \
#type, (uint32_t)sizeof(type), (uint32_t)(sizeof(fields) / sizeof *(fields)), fields                 \
    }

static const gw_abi_field event_fields[] = {
    FIELD(gw_pool_event, cookie), FIELD(gw_pool_event, kind), FIELD(gw_pool_event, piece),
    FIELD(gw_pool_event, offset), FIELD(gw_pool_event, size), FIELD(gw_pool_event, word),
};

static const gw_abi_field config_fields[] = {
    FIELD(gw_exchange_config, shape),
    FIELD(gw_exchange_config, rank),
    FIELD(gw_exchange_config, contribution_bits),
    FIELD(gw_exchange_config, codec),
    FIELD(gw_exchange_config, spare),
    FIELD(gw_exchange_config, cookie),
    FIELD(gw_exchange_config, seed),
};

static const gw_abi_field info_fields[] = {
    FIELD(gw_exchange_info, layout),
    FIELD(gw_exchange_info, memory_size),
    FIELD(gw_exchange_info, message_bound),
    FIELD(gw_exchange_info, digest_len),
};

static const gw_abi_field run_fields[] = {
    FIELD(gw_exchange_run, values),     FIELD(gw_exchange_run, result), FIELD(gw_exchange_run, scale),
    FIELD(gw_exchange_run, step_index), FIELD(gw_exchange_run, flags),
};

static const gw_abi_field stats_fields[] = {
    FIELD(gw_exchange_stats, sent_size),    FIELD(gw_exchange_stats, received_size),
    FIELD(gw_exchange_stats, map_ns),       FIELD(gw_exchange_stats, encode_ns),
    FIELD(gw_exchange_stats, reduce_ns),    FIELD(gw_exchange_stats, decode_ns),
    FIELD(gw_exchange_stats, operations),   FIELD(gw_exchange_stats, sample_square),
    FIELD(gw_exchange_stats, sample_error),
};

static const gw_abi_struct structs[] = {
    STRUCT(gw_pool_event, event_fields),     STRUCT(gw_exchange_config, config_fields),
    STRUCT(gw_exchange_info, info_fields),   STRUCT(gw_exchange_run, run_fields),
    STRUCT(gw_exchange_stats, stats_fields),
};

const gw_abi_struct *gw_pool_structs(size_t *count)
{
    *count = sizeof structs / sizeof *structs;
    return structs;
}
