/*
 * The layout of the structs of runtime.h and runtime_thc.h, made from the headers by scripts/make_bindings.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/runtime_thc.h"

#include "runtime_abi_structs.def"

uint32_t gw_runtime_abi_version(void)
{
    return GW_ABI_VERSION;
}

const gw_abi_struct *gw_runtime_abi_structs(size_t *count)
{
    *count = sizeof structs / sizeof structs[0];
    return structs;
}
