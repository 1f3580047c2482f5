/*
 * The small floats and MX blocks of docs/results/gcomp-dial.md, compared with tables of all values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <float.h>
#include <math.h>

#include "gcomp_support.h"
#include "small_floats.h"

/* Every value that is not negative, in order. */
static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
static const double e2m3[] = {0,     0.125, 0.25,  0.375, 0.5,   0.625, 0.75, 0.875, 1,    1.125, 1.25,
                              1.375, 1.5,   1.625, 1.75,  1.875, 2,     2.25, 2.5,   2.75, 3,     3.25,
                              3.5,   3.75,  4,     4.5,   5,     5.5,   6,    6.5,   7,    7.5};
static const double e3m2[] = {0,     0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375, 0.5, 0.625, 0.75,
                              0.875, 1,      1.25,  1.5,    1.75, 2,      2.5,   3,      3.5, 4,     5,
                              6,     7,      8,     10,     12,   14,     16,    20,     24,  28};

typedef struct value_table {
    double values[256];
    size_t count;
} value_table;

static void table_of(value_table *table, const double *values, size_t count)
{
    memcpy(table->values, values, count * sizeof *values);
    table->count = count;
}

/* All finite values of an 8-bit format from its codes: exponent field and mantissa field below the sign. Of
 * E4M3 the last code is NaN, of E5M2 the last exponent field is infinity and NaN. */
static void table_from_codes(value_table *table, uint32_t mantissa_bits, int bias, uint32_t finite)
{
    table->count = finite;
    for (uint32_t code = 0; code < finite; code++) {
        const uint32_t field = code >> mantissa_bits, mantissa = code & ((1u << mantissa_bits) - 1);
        const double share = mantissa / (double)(1u << mantissa_bits);
        table->values[code] = field == 0 ? ldexp(share, 1 - bias) : ldexp(1 + share, (int)field - bias);
    }
}

static void tables_make(value_table tables[SMALL_FLOAT_BF16])
{
    table_of(&tables[SMALL_FLOAT_E2M1], e2m1, TEST_ARRAY_LEN(e2m1));
    table_of(&tables[SMALL_FLOAT_E2M3], e2m3, TEST_ARRAY_LEN(e2m3));
    table_of(&tables[SMALL_FLOAT_E3M2], e3m2, TEST_ARRAY_LEN(e3m2));
    table_from_codes(&tables[SMALL_FLOAT_E4M3], 3, 7, 127);
    table_from_codes(&tables[SMALL_FLOAT_E5M2], 2, 15, 124);
}

/* By search: values alternate between even and odd mantissas in the order of the table. */
static double nearest(const value_table *table, double size)
{
    size_t best = 0;
    for (size_t i = 1; i < table->count; i++) {
        const double now = fabs(table->values[i] - size), before = fabs(table->values[best] - size);
        best = now < before || (now == before && i % 2 == 0) ? i : best;
    }
    return table->values[best];
}

static void check_round(const small_float *format, const value_table *table, double x)
{
    assert_true(small_float_round(format, x) == nearest(table, x));
    assert_true(small_float_round(format, -x) == -nearest(table, x));
}

static void rounds_to_the_nearest_of_all_values(void **state)
{
    (void)state;
    static value_table tables[SMALL_FLOAT_BF16];
    tables_make(tables);
    test_random random = {7};
    for (size_t kind = 0; kind < SMALL_FLOAT_BF16; kind++) {
        const small_float *format = &small_floats[kind];
        const value_table *table = &tables[kind];
        assert_true(table->values[table->count - 1] == format->largest);
        assert_int_equal(table->count, kind == SMALL_FLOAT_E4M3   ? 127
                                       : kind == SMALL_FLOAT_E5M2 ? 124
                                                                  : 1 << (format->bits - 1));
        for (size_t i = 0; i < table->count; i++) {
            const double value = table->values[i];
            check_round(format, table, value);
            if (i + 1 < table->count) {
                const double middle = 0.5 * (value + table->values[i + 1]);
                check_round(format, table, middle);
                check_round(format, table, nextafter(middle, 0));
                check_round(format, table, nextafter(middle, DBL_MAX));
            }
        }
        for (int i = 0; i < 20000; i++) {
            check_round(format, table, 1.2 * format->largest * pow(test_random_unit(&random), 8));
        }
        assert_true(small_float_round(format, 3 * format->largest) == format->largest);
    }
}

/* Known values of the 8-bit tables, from the OCP 8-bit floating point specification. */
static void tables_of_codes_are_right(void **state)
{
    (void)state;
    static value_table tables[SMALL_FLOAT_BF16];
    tables_make(tables);
    const double *e4m3 = tables[SMALL_FLOAT_E4M3].values, *e5m2 = tables[SMALL_FLOAT_E5M2].values;
    assert_true(e4m3[1] == 0x1p-9 && e4m3[7] == 0x1.cp-7 && e4m3[8] == 0x1p-6 && e4m3[0x7e] == 448);
    assert_true(e5m2[1] == 0x1p-16 && e5m2[3] == 0x1.8p-15 && e5m2[4] == 0x1p-14 && e5m2[0x7b] == 57344);
}

static void blocks_have_the_scale_of_their_largest(void **state)
{
    (void)state;
    const float values[4] = {1.0f, -1.9f, 0.26f, 0.01f};
    float decoded[4];
    /* floor(log2(1.9)) = 0: scale 2^(0 - 2). 1.9 * 4 = 7.6 saturates at 6. */
    mx_block_round(&small_floats[SMALL_FLOAT_E2M1], values, 4, decoded);
    assert_true(decoded[0] == 1.0f && decoded[1] == -1.5f && decoded[2] == 0.25f && decoded[3] == 0.0f);
    /* Scale 2^(0 - 8): 1.9 * 256 = 486.4 saturates at 448, 0.26 * 256 = 66.56 becomes 64. */
    mx_block_round(&small_floats[SMALL_FLOAT_E4M3], values, 4, decoded);
    assert_true(decoded[0] == 1.0f && decoded[1] == -1.75f && decoded[2] == 0.25f && decoded[3] == 0x1.4p-7f);
    /* No scale is below 2^-127. */
    const float small[2] = {0x1p-149f, 0x1p-126f}, zeros[2] = {0.0f, -0.0f};
    mx_block_round(&small_floats[SMALL_FLOAT_E2M1], small, 2, decoded);
    assert_true(decoded[0] == 0.0f && decoded[1] == 0x1p-126f);
    mx_block_round(&small_floats[SMALL_FLOAT_E5M2], zeros, 2, decoded);
    assert_true(decoded[0] == 0.0f && decoded[1] == 0.0f && signbit(decoded[1]));
    const float large[2] = {FLT_MAX, 0x1p127f};
    mx_block_round(&small_floats[SMALL_FLOAT_E3M2], large, 2, decoded);
    assert_true(decoded[0] == 0x1.cp127f && decoded[1] == 0x1p127f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_of_codes_are_right),
        cmocka_unit_test(rounds_to_the_nearest_of_all_values),
        cmocka_unit_test(blocks_have_the_scale_of_their_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
