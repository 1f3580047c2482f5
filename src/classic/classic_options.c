/*
 * Names, options and handles.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_handle.h"
#include "core/float_bits.h"

_Static_assert(sizeof(gw_classic_state) <= sizeof(gw_classic), "a handle holds its state");

/* ---- schemes ------------------------------------------------------------------------------------------- */

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

typedef struct scheme_row {
    const char *name;
    const gw_classic_family *family;
    unsigned fields;
    gw_classic_options usual; /* but for the fields that are the same for all schemes */
} scheme_row;

static const scheme_row schemes[] = {
    [GW_CLASSIC_FP16] = {"fp16", &gw_classic_cast, 0, {0}},
    [GW_CLASSIC_BF16] = {"bf16", &gw_classic_cast, 0, {0}},
    [GW_CLASSIC_TOPK] = {"topk", &gw_classic_sparse, HAS_ERROR_FEEDBACK | HAS_VALUES, {.error_feedback = 1}},
    [GW_CLASSIC_DGC] = {"dgc",
                        &gw_classic_sparse,
                        HAS_MOMENTUM | HAS_NESTEROV | HAS_CLIP | HAS_VALUES,
                        {.error_feedback = 1, .momentum = 0.9f, .momentum_mask = 1}},
    [GW_CLASSIC_RANDK] = {"randk",
                          &gw_classic_sparse,
                          HAS_ERROR_FEEDBACK | HAS_UNBIASED | HAS_VALUES,
                          {.unbiased = 1}},
    [GW_CLASSIC_SIGNSGD] = {"signsgd", &gw_classic_sign, HAS_ERROR_FEEDBACK, {0}},
    [GW_CLASSIC_EFSIGNSGD] = {"efsignsgd", &gw_classic_sign, 0, {.error_feedback = 1}},
    [GW_CLASSIC_SIGNUM] = {"signum", &gw_classic_sign, HAS_MOMENTUM, {.momentum = 0.9f}},
    [GW_CLASSIC_ONEBIT] = {"onebit", &gw_classic_sign, HAS_BLOCKS, {.error_feedback = 1}},
    [GW_CLASSIC_QSGD] = {"qsgd",
                         &gw_classic_level,
                         HAS_ERROR_FEEDBACK | HAS_CODING | HAS_NORM | HAS_BLOCKS,
                         {.coding = GW_CLASSIC_CODING_MASK, .level_max = 4, .block_len = 512}},
    [GW_CLASSIC_TERNGRAD] = {"terngrad",
                             &gw_classic_level,
                             HAS_ERROR_FEEDBACK | HAS_CLIP | HAS_CODING | HAS_BLOCKS,
                             {.norm = GW_CLASSIC_NORM_MAX, .clip = 2.5f, .level_max = 1}},
};

enum { SCHEME_COUNT = sizeof schemes / sizeof schemes[0] };

/* NULL for an unknown scheme. */
static const scheme_row *row_of(gw_classic_scheme scheme)
{
    return (unsigned)scheme >= 1 && (unsigned)scheme < SCHEME_COUNT ? &schemes[scheme] : NULL;
}

const gw_classic_family *gw_classic_family_of(gw_classic_scheme scheme)
{
    const scheme_row *row = row_of(scheme);
    return row != NULL ? row->family : NULL;
}

const char *gw_classic_scheme_name(gw_classic_scheme scheme)
{
    const scheme_row *row = row_of(scheme);
    return row != NULL ? row->name : NULL;
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
        if (is_equal(name, schemes[i].name)) {
            return (gw_classic_scheme)i;
        }
    }
    return (gw_classic_scheme)0;
}

/* ---- options ------------------------------------------------------------------------------------------- */

gw_status gw_classic_options_init(gw_classic_options *options, gw_classic_scheme scheme)
{
    const scheme_row *row = row_of(scheme);

    if (options == NULL) {
        return GW_ERR_ARG;
    }
    if (row == NULL) {
        return GW_ERR_OPTION;
    }
    *options = row->usual;
    options->scheme = scheme;
    options->dtype = GW_FP32;
    options->backends = GW_BACKEND_ALL;
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
static int is_usual(const gw_classic_options *o, const scheme_row *row)
{
    const gw_classic_options *usual = &row->usual;
    const unsigned fields = row->fields;
    return ((fields & HAS_ERROR_FEEDBACK) != 0 || o->error_feedback == usual->error_feedback) &&
           ((fields & HAS_MOMENTUM) != 0 ||
            gw_bits_from_float(o->momentum) == gw_bits_from_float(usual->momentum)) &&
           ((fields & HAS_NESTEROV) != 0 ||
            (o->nesterov == usual->nesterov && o->momentum_mask == usual->momentum_mask)) &&
           ((fields & HAS_CLIP) != 0 || gw_bits_from_float(o->clip) == gw_bits_from_float(usual->clip)) &&
           ((fields & HAS_UNBIASED) != 0 || o->unbiased == usual->unbiased) &&
           ((fields & HAS_VALUES) != 0 || o->values == usual->values) &&
           ((fields & HAS_CODING) != 0 || o->coding == usual->coding) &&
           ((fields & HAS_NORM) != 0 || (o->norm == usual->norm && o->level_max == usual->level_max)) &&
           ((fields & HAS_BLOCKS) != 0 || o->block_len == usual->block_len);
}

static gw_status check(const gw_classic_options *o)
{
    const scheme_row *row = row_of(o->scheme);
    if (row == NULL || !is_in_range(o) || !is_usual(o, row)) {
        return GW_ERR_OPTION;
    }
    const unsigned fields = row->fields;
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

/* ---- handles ------------------------------------------------------------------------------------------- */

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
           ((schemes[options->scheme].fields & HAS_MOMENTUM) != 0 ? GW_CLASSIC_MOMENTUM : 0u);
}
