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
#include "gradwire/thc.h"

#include "core/abi_structs.def"

uint32_t gw_abi_version(void)
{
    return GW_ABI_VERSION;
}

const gw_abi_struct *gw_abi_structs(size_t *count)
{
    *count = sizeof structs / sizeof structs[0];
    return structs;
}
