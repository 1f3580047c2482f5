/*
 * The ABI query (gradwire/abi.h): its numbers are those of the headers, and every byte of a struct belongs to
 * a field or to the padding before one, so that no field is missing. scripts/make_bindings --check
 * (tree.bindings) finds missing structs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gradwire/abi.h"
#include "gradwire/collective.h"

static const gw_abi_struct *struct_named(const char *name)
{
    size_t count = 0;
    const gw_abi_struct *structs = gw_abi_structs(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(structs[i].name, name) == 0) {
            return &structs[i];
        }
    }
    fail_msg("no struct %s", name);
    return NULL;
}

static void assert_field(const gw_abi_struct *of, uint32_t index, const char *name, size_t offset,
                         size_t size)
{
    assert_true(index < of->field_count);
    assert_string_equal(of->fields[index].name, name);
    assert_int_equal(of->fields[index].offset, offset);
    assert_int_equal(of->fields[index].size, size);
}

static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
    assert_int_equal(gw_abi_version(), GW_ABI_VERSION);
    const gw_abi_struct *buffer = struct_named("gw_buffer");
    assert_int_equal(buffer->size, sizeof(gw_buffer));
    assert_int_equal(buffer->field_count, 3);
    assert_field(buffer, 1, "capacity", offsetof(gw_buffer, capacity), sizeof(size_t));
    const gw_abi_struct *rate = struct_named("gw_gcomp_rate");
    assert_field(rate, 3, "nonzeros", offsetof(gw_gcomp_rate, nonzeros), 8 * GW_GCOMP_RATE_POINTS);
    assert_int_equal(struct_named("gw_gcomp")->size, sizeof(gw_gcomp));
    const gw_abi_struct *segment = struct_named("gw_collective_segment");
    assert_field(segment, 3, "state", offsetof(gw_collective_segment, state), sizeof(gw_optimizer_state));
}

/* No gap is as large as the alignment of what follows could explain: at most 7 bytes before a field of 8-byte
 * alignment, less than its own size before a smaller one, and less than 8 at the end. */
static void assert_no_field_is_missing(const gw_abi_struct *of)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < of->field_count; i++) {
        const gw_abi_field *field = &of->fields[i];
        const uint32_t align = field->size < 8 ? field->size : 8;
        assert_true(field->size > 0 && field->offset >= end);
        if (field->offset - end >= align) {
            fail_msg("%s: a gap before %s", of->name, field->name);
        }
        end = field->offset + field->size;
    }
    if (end > of->size || of->size - end >= 8) {
        fail_msg("%s: %u bytes, fields end at %u", of->name, of->size, end);
    }
}

static void every_struct_is_covered_by_its_fields(void **state)
{
    (void)state;
    size_t count = 0;
    const gw_abi_struct *structs = gw_abi_structs(&count);
    assert_true(count > 60);
    for (size_t i = 0; i < count; i++) {
        assert_no_field_is_missing(&structs[i]);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(structs[i].name, structs[j].name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_headers),
        cmocka_unit_test(every_struct_is_covered_by_its_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
