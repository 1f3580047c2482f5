/*
 * The layout of the structs of plan.h, made from the header by scripts/make_bindings.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/plan.h"

#include "plan_abi_structs.def"

uint32_t gw_plan_abi_version(void)
{
    return GW_ABI_VERSION;
}

const gw_abi_struct *gw_plan_abi_structs(size_t *count)
{
    *count = sizeof structs / sizeof structs[0];
    return structs;
}
