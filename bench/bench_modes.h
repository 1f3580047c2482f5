/*
 * Calls and modes of GCOMP as in the names of benchmarks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_MODES_H
#define GW_BENCH_MODES_H

#include <utility>

#include "gradwire/gcomp.h"

struct Mode {
    const char *name;
    gw_gcomp_quantum_mode quantum_mode;
    gw_gcomp_preset preset;
    gw_gcomp_rounding rounding;
    uint32_t tolerance_bits;
    int dead_zone;
};

const Mode kModes[] = {
    {"explicit_fast", GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_NEAREST, 23, 0},
    {"derived1_fast", GW_GCOMP_DERIVED, GW_GCOMP_FAST, GW_GCOMP_NEAREST, 23, 0},
    {"explicit_small", GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, GW_GCOMP_NEAREST, 23, 0},
    {"derived1_small", GW_GCOMP_DERIVED, GW_GCOMP_SMALL, GW_GCOMP_NEAREST, 23, 0},
    {"explicit_fast_stochastic", GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 23, 0},
    {"derived1_fast_stochastic", GW_GCOMP_DERIVED, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 23, 0},
    {"derived1_fast_t16", GW_GCOMP_DERIVED, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 16, 1},
    {"derived1_fast_t12", GW_GCOMP_DERIVED, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 1},
    {"derived1_small_t12", GW_GCOMP_DERIVED, GW_GCOMP_SMALL, GW_GCOMP_STOCHASTIC, 12, 1},
};

inline gw_gcomp_options options_of(const Mode &mode)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum_mode = mode.quantum_mode;
    options.preset = mode.preset;
    options.rounding = mode.rounding;
    options.tolerance_bits = mode.tolerance_bits;
    options.dead_zone = mode.dead_zone;
    return options;
}

enum class Call { Encode, Decode, DecodeAdd, Hop };

const std::pair<Call, const char *> kCalls[] = {{Call::Encode, "gcomp_encode"},
                                                {Call::Decode, "gcomp_decode"},
                                                {Call::DecodeAdd, "gcomp_decode_add"},
                                                {Call::Hop, "gcomp_hop"}};

#endif
