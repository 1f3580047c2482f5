/*
 * The layout of every public struct (gradwire/abi.h). The list is made from the headers by
 * scripts/make_bindings; the numbers come from this compiler.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/abi.h"

#include "gradwire/classic.h"
#include "gradwire/collective.h"
#include "gradwire/cuda.h"
#include "gradwire/gcomp.h"
#include "gradwire/plan.h"
#include "gradwire/thc.h"

#define GW_ABI_STRUCT(name) static const gw_abi_field name##_fields[] = {
#define GW_ABI_FIELD(name, field)                                                                            \
    {#field, (uint32_t)offsetof(name, field), (uint32_t)sizeof(((name *)NULL)->field)},
#define GW_ABI_END(name)                                                                                     \
    }                                                                                                        \
    ;
#include "core/abi_structs.def"
#undef GW_ABI_STRUCT
#undef GW_ABI_FIELD
#undef GW_ABI_END

static const gw_abi_struct structs[] = {
#define GW_ABI_STRUCT(name)
#define GW_ABI_FIELD(name, field)
#define GW_ABI_END(name)                                                                                     \
    {#name, (uint32_t)sizeof(name), (uint32_t)(sizeof name##_fields / sizeof name##_fields[0]),              \
     name##_fields},
#include "core/abi_structs.def"
#undef GW_ABI_STRUCT
#undef GW_ABI_FIELD
#undef GW_ABI_END
};

uint32_t gw_abi_version(void)
{
    return GW_ABI_VERSION;
}

const gw_abi_struct *gw_abi_structs(size_t *count)
{
    *count = sizeof structs / sizeof structs[0];
    return structs;
}
