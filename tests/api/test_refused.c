/*
 * Calls that are refused for their arguments: what says how a call went (reply, failure, sizes, indices,
 * counts) is written all the same, so that no caller reads what an earlier call left there. Results
 * themselves stay what they were where the header says so.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gradwire/classic.h"
#include "gradwire/collective.h"
#include "gradwire/thc.h"

enum { STALE = 0xA5 };

/* The call, with `out` of this type full of STALE before, returns `status` and leaves `out` as `right`. */
#define LEAVES(type, right, status, call)                                                                    \
    do {                                                                                                     \
        type out;                                                                                            \
        const type expected = right;                                                                         \
        memset(&out, STALE, sizeof out);                                                                     \
        assert_int_equal(call, status);                                                                      \
        assert_memory_equal(&out, &expected, sizeof out);                                                    \
    } while (0)

/* The same for the size of a buffer that the call would write. */
#define LEAVES_EMPTY(call)                                                                                   \
    do {                                                                                                     \
        uint8_t bytes[64];                                                                                   \
        gw_buffer dst = {bytes, sizeof bytes, 33};                                                           \
        assert_int_equal(call, GW_ERR_ARG);                                                                  \
        assert_int_equal(dst.size, 0);                                                                       \
    } while (0)

#define ZERO(type) ((type){0})

static gw_thc_server_options server_options(void)
{
    return (gw_thc_server_options){.table = gw_thc_table_uniform(2),
                                   .worker_max = 2,
                                   .lane_bits = 8,
                                   .block_log2 = 6,
                                   .round_window = 1,
                                   .quorum = 2,
                                   .slot_count = 1,
                                   .slot_len = 64,
                                   .blocks_per_packet = 1};
}

static void assert_no_action(const gw_thc_reply *reply)
{
    assert_int_equal(reply->action, GW_THC_ACTION_NONE);
    assert_null(reply->packet);
    assert_int_equal(reply->packet_size, 0);
    assert_int_equal(reply->rank, 0);
}

/* A reply that another call left: "broadcast these 999 bytes". */
static gw_thc_reply stale_reply(void)
{
    gw_thc_reply reply;
    memset(&reply, STALE, sizeof reply);
    reply.action = GW_THC_ACTION_BROADCAST;
    reply.packet_size = 999;
    return reply;
}

static void servers(void **state)
{
    (void)state;
    const gw_thc_server_options options = server_options();
    const size_t size = gw_thc_server_memory_size(&options);
    gw_thc_server made, empty = {0};
    void *memory = malloc(size);
    assert_non_null(memory);
    assert_int_equal(gw_thc_server_init(&made, &options, memory, size), GW_OK);
    const struct {
        gw_thc_server *server;
        uint32_t slot;
        gw_status status;
    } cases[] = {
        {&made, 0, GW_ERR_STATE}, /* no open version */
        {&made, 1, GW_ERR_ARG},    {&made, UINT32_MAX, GW_ERR_ARG},
        {&empty, 0, GW_ERR_STATE}, {NULL, 0, GW_ERR_ARG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_thc_reply reply = stale_reply();
        assert_int_equal(gw_thc_server_seal(cases[i].server, cases[i].slot, &reply), cases[i].status);
        assert_no_action(&reply);
        uint32_t round = 77, members = 77;
        assert_int_equal(gw_thc_server_slot_open(cases[i].server, cases[i].slot, &round, &members), 0);
        assert_int_equal(round, 0);
        assert_int_equal(members, 0);
    }
    assert_int_equal(gw_thc_server_seal(&made, 0, NULL), GW_ERR_ARG);
    const uint8_t byte = 0;
    for (int i = 0; i < 4; i++) {
        gw_thc_reply reply = stale_reply();
        gw_thc_server *server = i == 0 ? NULL : i == 1 ? &empty : &made;
        const gw_status status = i == 1 ? GW_ERR_STATE : i == 3 ? GW_ERR_SHORT : GW_ERR_ARG;
        assert_int_equal(gw_thc_server_receive(server, i == 2 ? NULL : &byte, 1, &reply), status);
        assert_no_action(&reply);
    }
    free(memory);
}

static void thc(void **state)
{
    (void)state;
    LEAVES(uint64_t, 0, GW_ERR_ARG, gw_thc_error_load(NULL, 0, NULL, 0, 5, &out));
    LEAVES(uint64_t, 0, GW_ERR_SHORT, gw_thc_error_load("abc", 3, NULL, 0, 0, &out));
    LEAVES(uint64_t, UINT64_MAX, GW_ERR_ARG, gw_thc_norms(NULL, NULL, NULL, NULL, &out, NULL));
    LEAVES(uint64_t, UINT64_MAX, GW_ERR_ARG, gw_thc_encode(NULL, NULL, NULL, NULL, &out, NULL));
    LEAVES(uint64_t, UINT64_MAX, GW_ERR_ARG, gw_thc_frame_sum_add(NULL, NULL, &out));
    LEAVES(gw_thc_frame_info, ZERO(gw_thc_frame_info), GW_ERR_ARG, gw_thc_frame_check(NULL, &out, NULL));
    LEAVES_EMPTY(gw_thc_encode(NULL, NULL, NULL, &dst, NULL, NULL));
    LEAVES_EMPTY(gw_thc_expand(NULL, NULL, NULL, &dst));
    LEAVES_EMPTY(gw_thc_error_save(NULL, 0, 5, &dst));
    LEAVES_EMPTY(gw_thc_frame_encode(NULL, NULL, NULL, &dst, NULL, NULL));
    LEAVES_EMPTY(gw_thc_frame_sum_init(NULL, 0, &dst));
    LEAVES_EMPTY(gw_collective_lanes_encode(NULL, NULL, NULL, &dst, NULL, NULL));
}

static void gcomp(void **state)
{
    (void)state;
    gw_gcomp_frame frame = {0};
    gw_gcomp_frame_info info = {0};
    LEAVES(gw_gcomp_frame_info, ZERO(gw_gcomp_frame_info), GW_ERR_ARG,
           gw_gcomp_frame_parse(NULL, &frame, &out));
    LEAVES(gw_gcomp_chunk, ZERO(gw_gcomp_chunk), GW_ERR_ARG, gw_gcomp_frame_chunk(&frame, &info, 7, &out));
    LEAVES(gw_gcomp_chunk, ZERO(gw_gcomp_chunk), GW_ERR_ARG, gw_gcomp_frame_chunk(NULL, &info, 0, &out));
    LEAVES(gw_gcomp_rate, ZERO(gw_gcomp_rate), GW_ERR_ARG, gw_gcomp_rate_init(&out, (gw_gcomp_rate_kind)99));
    LEAVES(uint64_t, UINT64_MAX, GW_ERR_ARG, gw_gcomp_frame_check(NULL, &frame, &out, NULL));
    LEAVES(uint32_t, 0, GW_ERR_ARG, gw_gcomp_rate_tolerance(NULL, 1, &out));
    LEAVES_EMPTY(gw_gcomp_encode(NULL, NULL, &dst, NULL));
    LEAVES_EMPTY(gw_gcomp_join(NULL, NULL, NULL, 0, &dst));
    LEAVES_EMPTY(gw_gcomp_codebook_build(NULL, &dst));
    LEAVES_EMPTY(gw_classic_encode(NULL, NULL, NULL, &dst, NULL));
    LEAVES_EMPTY(gw_classic_sum_vote(NULL, NULL, &dst, NULL));
}

static void assert_fails_itself(const gw_collective_failure *failure, uint32_t piece)
{
    assert_int_equal(failure->status, GW_ERR_ARG);
    assert_int_equal(failure->rank, 0);
    assert_int_equal(failure->piece, piece);
    assert_true(failure->bad_chunk == UINT64_MAX);
}

static void steps(void **state)
{
    (void)state;
    gw_collective_failure failure;
    uint8_t bytes[64];
    for (int step = 0; step < 10; step++) {
        gw_buffer dst = {bytes, sizeof bytes, 33};
        gw_gcomp_target target = {.len = 33, .bad_chunk = 5};
        /* The even ones have no place for the result, the odd ones none for the failure. */
        const int odd = step & 1;
        gw_collective_failure *said = odd ? NULL : &failure;
        gw_buffer *to = odd ? &dst : NULL;
        gw_gcomp_target *at = odd ? &target : NULL;
        memset(&failure, STALE, sizeof failure);
        const gw_status status = step < 2   ? gw_collective_reduce(NULL, 3, NULL, to, said, NULL)
                                 : step < 4 ? gw_collective_hop(NULL, 3, NULL, to, said, NULL)
                                 : step < 6 ? gw_collective_sum(NULL, 3, NULL, at, said, NULL)
                                 : step < 8 ? gw_collective_hop_sum(NULL, 3, NULL, at, said, NULL)
                                            : gw_collective_decode(NULL, 3, NULL, at, said, NULL);
        assert_int_equal(status, GW_ERR_ARG);
        if (!odd) {
            assert_fails_itself(&failure, 3);
        } else if (step < 4) {
            assert_int_equal(dst.size, 0);
        } else {
            assert_true(target.len == 0 && target.bad_chunk == UINT64_MAX);
        }
    }
}

static void layouts(void **state)
{
    (void)state;
    const gw_collective_shape shape = {.len = 100, .rank_count = 2};
    gw_collective_layout layout, empty = {0};
    assert_int_equal(gw_collective_layout_init(&layout, &shape), GW_OK);
    const gw_collective_piece none = {0};
    LEAVES(gw_collective_piece, none, GW_ERR_ARG, gw_collective_piece_at(NULL, 0, &out));
    LEAVES(gw_collective_piece, none, GW_ERR_ARG, gw_collective_piece_at(&empty, 0, &out));
    LEAVES(gw_collective_piece, none, GW_ERR_ARG, gw_collective_piece_at(&layout, layout.piece_count, &out));
    uint64_t first = 7, len = 7;
    assert_int_equal(gw_collective_shard_at(&layout, 2, &first, &len), GW_ERR_ARG);
    assert_true(first == 0 && len == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers), cmocka_unit_test(thc),     cmocka_unit_test(gcomp),
        cmocka_unit_test(steps),   cmocka_unit_test(layouts),
    };
    return cmocka_run_group_tests_name("refused calls", tests, NULL, NULL);
}
