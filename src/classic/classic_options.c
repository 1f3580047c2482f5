/*
 * Names, options and handles.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_handle.h"
#include "core/float_bits.h"

_Static_assert(sizeof(gw_classic_state) <= sizeof(gw_classic), "a handle holds its state");

/* ---- names ----------------------------------------------------------------------------------------------
 */

static const char *const names[] = {NULL,      "fp16",      "bf16",   "topk",   "dgc",  "randk",
                                    "signsgd", "efsignsgd", "signum", "onebit", "qsgd", "terngrad"};

enum { SCHEME_COUNT = sizeof names / sizeof names[0] };

static int is_scheme(gw_classic_scheme scheme)
{
    return (unsigned)scheme >= 1 && (unsigned)scheme < SCHEME_COUNT;
}

const char *gw_classic_scheme_name(gw_classic_scheme scheme)
{
    return is_scheme(scheme) ? names[scheme] : NULL;
}

static int is_equal(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

gw_classic_scheme gw_classic_scheme_from_name(const char *name)
{
    for (unsigned i = 1; name != NULL && i < SCHEME_COUNT; i++) {
        if (is_equal(name, names[i])) {
            return (gw_classic_scheme)i;
        }
    }
    return (gw_classic_scheme)0;
}

/* ---- options --------------------------------------------------------------------------------------------
 */

/* Fields that a scheme may change. dtype, seed, backends and checksum always may be. */
enum {
    HAS_ERROR_FEEDBACK = 1 << 0,
    HAS_MOMENTUM = 1 << 1,
    HAS_NESTEROV = 1 << 2, /* and momentum_mask */
    HAS_CLIP = 1 << 3,
    HAS_UNBIASED = 1 << 4,
    HAS_VALUES = 1 << 5,
    HAS_CODING = 1 << 6,
    HAS_NORM = 1 << 7, /* and level_max */
    HAS_BLOCKS = 1 << 8
};

static unsigned fields_of(gw_classic_scheme scheme)
{
    static const uint16_t fields[SCHEME_COUNT] = {
        [GW_CLASSIC_TOPK] = HAS_ERROR_FEEDBACK | HAS_VALUES,
        [GW_CLASSIC_DGC] = HAS_MOMENTUM | HAS_NESTEROV | HAS_CLIP | HAS_VALUES,
        [GW_CLASSIC_RANDK] = HAS_ERROR_FEEDBACK | HAS_UNBIASED | HAS_VALUES,
        [GW_CLASSIC_SIGNSGD] = HAS_ERROR_FEEDBACK,
        [GW_CLASSIC_SIGNUM] = HAS_MOMENTUM,
        [GW_CLASSIC_ONEBIT] = HAS_BLOCKS,
        [GW_CLASSIC_QSGD] = HAS_ERROR_FEEDBACK | HAS_CODING | HAS_NORM | HAS_BLOCKS,
        [GW_CLASSIC_TERNGRAD] = HAS_ERROR_FEEDBACK | HAS_CLIP | HAS_CODING | HAS_BLOCKS,
    };
    return fields[scheme];
}

gw_status gw_classic_options_init(gw_classic_options *options, gw_classic_scheme scheme)
{
    if (options == NULL) {
        return GW_ERR_ARG;
    }
    if (!is_scheme(scheme)) {
        return GW_ERR_OPTION;
    }
    GW_MEMSET(options, 0, sizeof *options);
    options->scheme = scheme;
    options->dtype = GW_FP32;
    options->backends = GW_BACKEND_ALL;
    options->error_feedback = scheme == GW_CLASSIC_TOPK || scheme == GW_CLASSIC_DGC ||
                              scheme == GW_CLASSIC_EFSIGNSGD || scheme == GW_CLASSIC_ONEBIT;
    options->momentum = scheme == GW_CLASSIC_DGC || scheme == GW_CLASSIC_SIGNUM ? 0.9f : 0.0f;
    options->momentum_mask = scheme == GW_CLASSIC_DGC;
    options->unbiased = scheme == GW_CLASSIC_RANDK;
    if (scheme == GW_CLASSIC_QSGD) {
        options->coding = GW_CLASSIC_CODING_MASK;
        options->level_max = 4;
        options->block_len = 512;
    } else if (scheme == GW_CLASSIC_TERNGRAD) {
        options->norm = GW_CLASSIC_NORM_MAX;
        options->clip = 2.5f;
        options->level_max = 1;
    }
    return GW_OK;
}

static int is_flag(int x)
{
    return x == 0 || x == 1;
}

/* +0, or a positive normal number. */
static int is_number(float x)
{
    const uint32_t bits = gw_bits_from_float(x);
    return bits == 0 || (bits >= GW_F32_MIN && bits < GW_F32_INF);
}

/* Ranges, whatever the scheme. */
static int is_in_range(const gw_classic_options *o)
{
    return gw_dtype_size(o->dtype) != 0 && is_flag(o->checksum) && is_flag(o->error_feedback) &&
           is_number(o->momentum) && gw_bits_from_float(o->momentum) < 0x3f800000u && is_flag(o->nesterov) &&
           is_flag(o->momentum_mask) && is_number(o->clip) && is_flag(o->unbiased) &&
           (unsigned)o->values <= GW_CLASSIC_VALUES_GCOMP && (unsigned)o->coding <= GW_CLASSIC_CODING_ELIAS &&
           (unsigned)o->norm <= GW_CLASSIC_NORM_MAX && o->block_len <= 1u << 30;
}

/* Fields that the scheme does not have are as gw_classic_options_init() leaves them. */
static int is_usual(const gw_classic_options *o, unsigned fields)
{
    gw_classic_options usual;
    if (gw_classic_options_init(&usual, o->scheme) != GW_OK) {
        return 0;
    }
    return ((fields & HAS_ERROR_FEEDBACK) != 0 || o->error_feedback == usual.error_feedback) &&
           ((fields & HAS_MOMENTUM) != 0 ||
            gw_bits_from_float(o->momentum) == gw_bits_from_float(usual.momentum)) &&
           ((fields & HAS_NESTEROV) != 0 ||
            (o->nesterov == usual.nesterov && o->momentum_mask == usual.momentum_mask)) &&
           ((fields & HAS_CLIP) != 0 || gw_bits_from_float(o->clip) == gw_bits_from_float(usual.clip)) &&
           ((fields & HAS_UNBIASED) != 0 || o->unbiased == usual.unbiased) &&
           ((fields & HAS_VALUES) != 0 || o->values == usual.values) &&
           ((fields & HAS_CODING) != 0 || o->coding == usual.coding) &&
           ((fields & HAS_NORM) != 0 || (o->norm == usual.norm && o->level_max == usual.level_max)) &&
           ((fields & HAS_BLOCKS) != 0 || o->block_len == usual.block_len);
}

static gw_status check(const gw_classic_options *o)
{
    if (!is_scheme(o->scheme)) {
        return GW_ERR_OPTION;
    }
    const unsigned fields = fields_of(o->scheme);
    if (!is_in_range(o) || !is_usual(o, fields)) {
        return GW_ERR_OPTION;
    }
    if (o->unbiased != 0 && o->error_feedback != 0) {
        return GW_ERR_OPTION;
    }
    if ((fields & HAS_NORM) != 0 && (o->level_max < 1 || o->level_max > 127)) {
        return GW_ERR_OPTION;
    }
    /* Blocks of levels are whole groups of 64. */
    if ((fields & HAS_CODING) != 0 && o->block_len % 64 != 0) {
        return GW_ERR_OPTION;
    }
    return GW_OK;
}

/* ---- handles --------------------------------------------------------------------------------------------
 */

gw_status gw_classic_init(gw_classic *classic, const gw_classic_options *options)
{
    gw_classic_state state;

    if (classic == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(&state, 0, sizeof state);
    if (options != NULL) {
        state.options = *options; /* before the handle is cleared: options may be those inside it */
    }
    GW_MEMSET(classic, 0, sizeof *classic);
    if (options == NULL) {
        return GW_ERR_ARG;
    }
    const gw_status status = check(&state.options);
    if (status != GW_OK) {
        return status;
    }
    state.tag = GW_CLASSIC_TAG;
    gw_kernels_init(&state.kernels, state.options.backends);
    GW_MEMCPY(classic, &state, sizeof state);
    return GW_OK;
}

const gw_classic_state *gw_classic_state_of(const gw_classic *classic)
{
    if (classic == NULL) {
        return NULL;
    }
    const gw_classic_state *state = (const gw_classic_state *)(const void *)classic;
    return state->tag == GW_CLASSIC_TAG ? state : NULL;
}

const gw_classic_options *gw_classic_options_of(const gw_classic *classic)
{
    const gw_classic_state *state = gw_classic_state_of(classic);
    return state != NULL ? &state->options : NULL;
}

uint32_t gw_classic_state_arrays(const gw_classic *classic)
{
    const gw_classic_options *options = gw_classic_options_of(classic);
    if (options == NULL) {
        return 0;
    }
    return (options->error_feedback != 0 ? GW_CLASSIC_RESIDUAL : 0u) |
           (options->scheme == GW_CLASSIC_DGC || options->scheme == GW_CLASSIC_SIGNUM ? GW_CLASSIC_MOMENTUM
                                                                                      : 0u);
}
