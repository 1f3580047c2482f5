/*
 * Batches of GCOMP against the CPU and against single calls: tensors of all lengths in one call, with
 * codebooks of every kind; wrong ones among good ones; too little room; codebooks of many histograms; graphs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <stdlib.h>
#include <string.h>

/* Nothing, one value, around a chunk, several chunks. All of it runs in fibers: no more than is needed. */
enum { ITEMS = 8 };
static const uint64_t lens[ITEMS] = {4097, 0, 1, 9000, 4095, 0, 63, 4096};

/* A frame that came in, and values that are added to it. */
typedef struct bucket_item {
    tensor in, local;
    uint8_t *frame, *device_frame;
    size_t frame_size, bound;
} bucket_item;

/* `codec` encodes the frames; the sources of item i begin at another element than those of item 0. */
static void make_bucket(bucket_item *items, const uint64_t *item_lens, int count, const gw_gcomp *codec,
                        gw_dtype dtype, uint32_t chunk_log2, uint64_t *random)
{
    for (int i = 0; i < count; i++) {
        bucket_item *b = &items[i];
        b->in = random_tensor(dtype, item_lens[i], chunk_log2, random);
        b->local = random_tensor(dtype, item_lens[i], chunk_log2, random);
        tensor_upload(&b->in);
        tensor_upload(&b->local);
        b->in.cpu.first_element = b->in.device.first_element = 1000 + 7 * (uint64_t)i;
        b->local.cpu.first_element = b->local.device.first_element = 3 + 5 * (uint64_t)i;
        b->bound = gw_gcomp_frame_bound(codec, item_lens[i]);
        b->frame_size = cpu_encode(codec, &b->in.cpu, &b->frame);
        b->device_frame = on_device(b->frame, b->frame_size);
    }
}

static void drop_bucket(bucket_item *items, int count)
{
    for (int i = 0; i < count; i++) {
        tensor_drop(&items[i].in);
        tensor_drop(&items[i].local);
        free(items[i].frame);
    }
}

static uint64_t sum_of(const uint64_t *numbers, int count)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += numbers[i];
    }
    return sum;
}

static gw_cuda_gcomp_hop make_hop(const bucket_item *b)
{
    gw_cuda_gcomp_hop hop;
    memset(&hop, 0, sizeof hop);
    hop.src = b->device_frame;
    hop.src_size = b->frame_size;
    hop.values = b->local.device.values;
    hop.len = b->local.len;
    hop.first_element = b->local.device.first_element;
    hop.dst = on_device(NULL, b->bound);
    hop.dst_capacity = b->bound;
    hop.src_map_bytes = b->in.device_map.bytes;
    hop.src_digest = b->in.device_map.digest;
    hop.src_map_len = b->in.device_map.len;
    hop.map_bytes = b->local.device_map.bytes;
    hop.digest = b->local.device_map.digest;
    hop.map_len = b->local.device_map.len;
    hop.result = new_result();
    memset(hop.dst, 0x5a, b->bound);
    return hop;
}

/* What the CPU makes of a hop, into dst (bound bytes). */
static gw_status cpu_hop(const gw_gcomp *codec, const bucket_item *b, const uint8_t *frame, size_t frame_size,
                         uint8_t *dst, size_t *size, uint64_t *bad)
{
    void *workspace = take(gw_gcomp_workspace_size(codec));
    gw_buffer out = {dst, b->bound, 0};
    const gw_status status = gw_gcomp_decode_add_encode(
        codec, &(gw_gcomp_frame){.data = frame, .size = frame_size, .map = &b->in.map}, &b->local.cpu, &out,
        bad, &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)});
    *size = out.size;
    free(workspace);
    return status;
}

static void expect_hop(const gw_gcomp *codec, const bucket_item *b, const gw_cuda_gcomp_hop *hop)
{
    uint8_t *expected = take(b->bound);
    size_t size;
    uint64_t bad;
    assert_int_equal(cpu_hop(codec, b, b->frame, b->frame_size, expected, &size, &bad), GW_OK);
    const gw_cuda_result r = fetch_result(hop->result);
    assert_int_equal(r.status, GW_OK);
    assert_int_equal(r.size, size);
    assert_int_equal(r.len, b->local.len);
    assert_true(r.bad_index == UINT64_MAX);
    assert_memory_equal(hop->dst, expected, size);
    free(expected);
}

/* Workspace of exactly its size. */
static void *room(size_t size)
{
    assert_true(size != 0);
    return on_device(NULL, size);
}

/* ---- every kind of codebook, every call ---------------------------------------------------------------- */

typedef enum codebook_kind { CODEBOOKS_IN_FRAMES, CODEBOOK_INSTALLED, CODEBOOK_ON_DEVICE } codebook_kind;

static void compare_encode_batch(const gw_gcomp *codec, const gw_cuda_gcomp_device *device,
                                 const bucket_item *bucket)
{
    gw_cuda_gcomp_item items[ITEMS];
    const uint64_t total = sum_of(lens, ITEMS);
    const size_t size = gw_cuda_gcomp_encode_workspace_size(codec, ITEMS, total);
    memset(items, 0, sizeof items);
    for (int i = 0; i < ITEMS; i++) {
        const tensor *t = &bucket[i].in;
        items[i].src = t->device.values;
        items[i].src_size = t->len;
        items[i].dst = on_device(NULL, bucket[i].bound);
        items[i].dst_capacity = bucket[i].bound;
        items[i].map_bytes = t->device_map.bytes;
        items[i].digest = t->device_map.digest;
        items[i].map_len = t->len;
        items[i].first_element = t->device.first_element;
        items[i].result = new_result();
    }
    assert_int_equal(
        gw_cuda_gcomp_encode_batch(&cuda, codec,
                                   &(gw_cuda_gcomp_batch){on_device(items, sizeof items), ITEMS, total,
                                                          &bucket[0].in.device_map, &case_key, 0},
                                   &(gw_cuda_gcomp_request){device, NULL, {room(size), size}, NULL}),
        GW_OK);
    for (int i = 0; i < ITEMS; i++) {
        const gw_cuda_result r = fetch_result(items[i].result);
        assert_int_equal(r.status, GW_OK);
        assert_int_equal(r.size, bucket[i].frame_size);
        assert_memory_equal(items[i].dst, bucket[i].frame, r.size);
    }
}

/* `cpu` has the codebook installed, wherever the device finds it. */
static void compare_decode_batch(const gw_gcomp *codec, const gw_gcomp *cpu,
                                 const gw_cuda_gcomp_device *device, const bucket_item *bucket, int is_add)
{
    gw_cuda_gcomp_item items[ITEMS];
    const uint64_t total = sum_of(lens, ITEMS);
    const size_t size = gw_cuda_gcomp_decode_workspace_size(codec, ITEMS, total);
    void *workspace = take(gw_gcomp_workspace_size(cpu));
    memset(items, 0, sizeof items);
    for (int i = 0; i < ITEMS; i++) {
        const tensor *t = &bucket[i].in;
        const size_t element = gw_dtype_size(t->dtype);
        items[i].src = bucket[i].device_frame;
        items[i].src_size = bucket[i].frame_size;
        items[i].dst = on_device_at(bucket[i].local.values, element * t->len, (size_t)i % 3 * element);
        items[i].dst_capacity = t->len;
        items[i].map_bytes = t->device_map.bytes;
        items[i].digest = t->device_map.digest;
        items[i].map_len = t->len;
        items[i].result = new_result();
    }
    const gw_cuda_gcomp_item *device_items = on_device(items, sizeof items);
    assert_int_equal(
        gw_cuda_gcomp_decode_batch(
            &cuda, codec,
            &(gw_cuda_gcomp_batch){device_items, ITEMS, total, &bucket[0].in.device_map, NULL, is_add},
            &(gw_cuda_gcomp_request){device, NULL, {room(size), size}, NULL}),
        GW_OK);
    for (int i = 0; i < ITEMS; i++) {
        const size_t value_size = gw_dtype_size(bucket[i].in.dtype) * (size_t)lens[i];
        uint8_t *values = take(value_size);
        const gw_gcomp_frame frame = {bucket[i].frame, bucket[i].frame_size, &bucket[i].in.map};
        gw_gcomp_target target = {.values = values, .capacity = lens[i]};
        memcpy(values, bucket[i].local.values, value_size);
        assert_int_equal((is_add ? gw_gcomp_decode_add : gw_gcomp_decode)(
                             cpu, &frame, &target, &(gw_workspace){workspace, gw_gcomp_workspace_size(cpu)}),
                         GW_OK);
        const gw_cuda_result r = fetch_result(items[i].result);
        assert_int_equal(r.status, GW_OK);
        assert_int_equal(r.len, lens[i]);
        assert_memory_equal(items[i].dst, values, value_size);
        free(values);
    }
    free(workspace);
}

static void compare_hops(const gw_gcomp *codec, const gw_gcomp *cpu, const gw_cuda_gcomp_device *device,
                         const bucket_item *bucket)
{
    gw_cuda_gcomp_hop hops[ITEMS];
    const uint64_t total = sum_of(lens, ITEMS);
    const size_t size = gw_cuda_gcomp_hop_workspace_size(codec, ITEMS, total);
    for (int i = 0; i < ITEMS; i++) {
        hops[i] = make_hop(&bucket[i]);
    }
    assert_int_equal(
        gw_cuda_gcomp_decode_add_encode_batch(
            &cuda, codec,
            &(gw_cuda_gcomp_hop_batch){on_device(hops, sizeof hops), ITEMS, total, &bucket[0].in.device_map,
                                       &bucket[0].local.device_map, &case_key},
            &(gw_cuda_gcomp_request){device, NULL, {room(size), size}, NULL}),
        GW_OK);
    for (int i = 0; i < ITEMS; i++) {
        const bucket_item *b = &bucket[i];
        expect_hop(cpu, b, &hops[i]);
        if (TESTING_FEWER && i > 2) {
            continue;
        }
        /* the single call: the same bytes and the same result */
        const size_t single_size = gw_cuda_gcomp_hop_workspace_size(codec, 1, b->local.len);
        uint8_t *dst = on_device(NULL, b->bound);
        gw_cuda_result *result = new_result();
        assert_int_equal(
            gw_cuda_gcomp_decode_add_encode(
                &cuda, codec, &(gw_cuda_gcomp_frame){b->device_frame, b->frame_size, NULL, &b->in.device_map},
                &b->local.device, &(gw_cuda_buffer){dst, b->bound},
                &(gw_cuda_gcomp_request){device, result, {room(single_size), single_size}, NULL}),
            GW_OK);
        testing_sync();
        assert_memory_equal(result, hops[i].result, sizeof *result);
        assert_memory_equal(dst, hops[i].dst, result->size);
    }
}

static void compare_bucket(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, gw_gcomp_preset preset,
                           uint32_t chunk_log2, int checksum, codebook_kind kind, uint64_t *random)
{
    const gw_gcomp plain = make_codec(dtype, quantum_mode, preset, GW_GCOMP_STOCHASTIC, chunk_log2, checksum);
    gw_gcomp cpu = plain;
    bucket_item bucket[ITEMS];
    gw_cuda_gcomp_device device = {0};
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];

    if (kind != CODEBOOKS_IN_FRAMES) {
        tensor t = random_tensor(dtype, 9000, chunk_log2, random);
        tensor_upload(&t);
        const uint32_t size = (uint32_t)cpu_codebook(&plain, &t.cpu, 1, codebook);
        assert_int_equal(gw_gcomp_codebook_install(&cpu, 7, 8, codebook, size, 1), GW_OK);
        device.codebook = on_device_at(codebook, size, 1);
        device.codebook_size = on_device(&size, 4);
        device.codebook_id = 7;
        device.codebook_generation = 8;
        tensor_drop(&t);
    }
    make_bucket(bucket, lens, ITEMS, &cpu, dtype, chunk_log2, random);
    const gw_gcomp *codec = kind == CODEBOOK_ON_DEVICE ? &plain : &cpu;
    const gw_cuda_gcomp_device *from = kind == CODEBOOK_ON_DEVICE ? &device : NULL;
    compare_encode_batch(codec, from, bucket);
    compare_decode_batch(codec, &cpu, from, bucket, 0);
    compare_decode_batch(codec, &cpu, from, bucket, 1);
    compare_hops(codec, &cpu, from, bucket);
    drop_bucket(bucket, ITEMS);
    give_since(0);
}

static void equal_the_cpu_and_single_calls(void **state)
{
    (void)state;
    uint64_t random = 30;

    testing_open(&cuda);
    compare_bucket(GW_FP32, GW_GCOMP_DERIVED, GW_GCOMP_SMALL, 12, 1, CODEBOOKS_IN_FRAMES, &random);
    compare_bucket(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 12, 1, CODEBOOK_ON_DEVICE, &random);
    if (!TESTING_FEWER) {
        compare_bucket(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 12, 0, CODEBOOKS_IN_FRAMES, &random);
        compare_bucket(GW_FP16, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, 13, 0, CODEBOOKS_IN_FRAMES, &random);
        compare_bucket(GW_FP32, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 12, 0, CODEBOOK_INSTALLED, &random);
        compare_bucket(GW_FP16, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 12, 0, CODEBOOK_ON_DEVICE, &random);
    }
    gw_cuda_close(&cuda);
}

/* More items than the block that places them takes at a time, most of them tiny. */
static void many_hops(void **state)
{
    (void)state;
    enum { MANY = 260 };
    static bucket_item bucket[MANY];
    static gw_cuda_gcomp_hop hops[MANY];
    uint64_t many_lens[MANY];
    uint64_t random = 31;
    const gw_gcomp codec = make_codec(GW_FP16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 0);

    testing_open(&cuda);
    for (int i = 0; i < MANY; i++) {
        many_lens[i] = i == 257 ? 5000 : i % 5 == 0 ? 0 : next_random(&random) % 40;
    }
    make_bucket(bucket, many_lens, MANY, &codec, GW_FP16, 12, &random);
    for (int i = 0; i < MANY; i++) {
        hops[i] = make_hop(&bucket[i]);
    }
    const uint64_t total = sum_of(many_lens, MANY);
    const size_t size = gw_cuda_gcomp_hop_workspace_size(&codec, MANY, total);
    assert_int_equal(gw_cuda_gcomp_decode_add_encode_batch(
                         &cuda, &codec,
                         &(gw_cuda_gcomp_hop_batch){on_device(hops, sizeof hops), MANY, total, NULL,
                                                    &bucket[0].local.device_map, &case_key},
                         &(gw_cuda_gcomp_request){NULL, NULL, {room(size), size}, NULL}),
                     GW_OK);
    for (int i = 0; i < MANY; i++) {
        expect_hop(&codec, &bucket[i], &hops[i]);
    }
    drop_bucket(bucket, MANY);
    testing_close();
}

/* ---- wrong items among good ones ----------------------------------------------------------------------- */

/* Item i of a batch with something wrong; the others stay as they are. */
typedef enum wrong {
    NOTHING,
    CHUNK, /* as in the frame: the CPU's status */
    MAGIC,
    CUT,
    TRAILING,
    OTHER_MAP,
    SIZE_ABOVE_CAPACITY, /* what only the device looks at */
    OTHER_LEN,
    ROOM,
    SRC_MISALIGNED,
    SRC_NULL,
    SIZE_MISALIGNED,
    VALUES_MISALIGNED,
    VALUES_NULL,
    DST_MISALIGNED,
    DST_NULL,
    MAP_BYTES_NULL,
    DIGEST_MISALIGNED,
    SRC_DIGEST_MISALIGNED,
    MAP_LEN,
    LEN_OF_NO_FRAME,
    AFTER_FAILURE,
    AFTER_SUCCESS,
    WRONGS
} wrong;

typedef struct expectation {
    gw_status status;
    uint64_t bad_index;
    int is_untouched; /* dst */
} expectation;

static expectation break_hop(gw_cuda_gcomp_hop *hop, bucket_item *b, wrong what, const gw_gcomp *codec)
{
    static const gw_cuda_result failed = {GW_ERR_CORRUPT, 0, 0, 0, 17, 0}, fine = {GW_OK, 0, 9, 9, 9, 0};
    expectation e = {GW_ERR_ARG, UINT64_MAX, 1};
    uint64_t number = b->frame_size + 1;
    uint8_t *wrong_frame = take(b->frame_size + 16), *dst = take(b->bound);
    size_t size = b->frame_size;
    memset(wrong_frame, 0, b->frame_size + 16);
    memcpy(wrong_frame, b->frame, b->frame_size);
    switch (what) {
    case NOTHING:
        e.status = GW_OK;
        break;
    case CHUNK:
        wrong_frame[b->frame_size - 20] ^= 4;
        break;
    case MAGIC:
        wrong_frame[0] ^= 1;
        break;
    case CUT:
        size -= 16;
        break;
    case TRAILING:
        size += 16;
        break;
    case OTHER_MAP: /* the CPU gets the same map: NULL digests */
        hop->src_digest = b->local.device_map.digest;
        e = (expectation){GW_ERR_MAP, UINT64_MAX, 0};
        break;
    case SIZE_ABOVE_CAPACITY:
        hop->src_size_at = on_device(&number, 8);
        e = (expectation){GW_ERR_SHORT, UINT64_MAX, 0};
        break;
    case OTHER_LEN:
        hop->len--;
        hop->map_len--;
        e.is_untouched = 0;
        break;
    case ROOM:
        hop->dst_capacity--;
        e.status = GW_ERR_DST;
        break;
    case SRC_MISALIGNED:
        hop->src = (const char *)hop->src + 8;
        break;
    case SRC_NULL:
        hop->src = NULL;
        break;
    case SIZE_MISALIGNED:
        hop->src_size_at = (const uint64_t *)(const void *)((const char *)on_device(NULL, 16) + 4);
        break;
    case VALUES_MISALIGNED:
        hop->values = (const char *)hop->values + 1;
        break;
    case VALUES_NULL:
        hop->values = NULL;
        break;
    case DST_MISALIGNED:
        hop->dst = (char *)hop->dst + 8;
        break;
    case DST_NULL:
        hop->dst = NULL;
        break;
    case MAP_BYTES_NULL:
        hop->map_bytes = NULL;
        break;
    case DIGEST_MISALIGNED:
        hop->digest = (const uint32_t *)(const void *)((const char *)hop->digest + 2);
        break;
    case SRC_DIGEST_MISALIGNED:
        hop->src_digest = (const uint32_t *)(const void *)((const char *)hop->src_digest + 2);
        break;
    case MAP_LEN:
        hop->map_len++;
        break;
    case LEN_OF_NO_FRAME:
        hop->len = hop->map_len = (uint64_t)1 << 62;
        e.status = GW_ERR_LIMIT;
        break;
    case AFTER_FAILURE:
        hop->after = on_device(&failed, sizeof failed);
        e = (expectation){GW_ERR_CORRUPT, 17, 1};
        break;
    case AFTER_SUCCESS:
        hop->after = on_device(&fine, sizeof fine);
        e.status = GW_OK;
        break;
    case WRONGS:
        break;
    }
    if (what >= CHUNK && what <= TRAILING) {
        size_t made;
        e.status = cpu_hop(codec, b, wrong_frame, size, dst, &made, &e.bad_index);
        e.is_untouched = 0;
        assert_true(e.status != GW_OK);
        hop->src = on_device(wrong_frame, size);
        hop->src_size = size;
    }
    free(wrong_frame);
    free(dst);
    return e;
}

static void wrong_items_leave_others_alone(void **state)
{
    (void)state;
    static bucket_item bucket[WRONGS];
    gw_cuda_gcomp_hop hops[WRONGS];
    expectation e[WRONGS];
    uint8_t *dst[WRONGS];
    uint64_t item_lens[WRONGS];
    uint64_t random = 32;
    const gw_gcomp codec = make_codec(GW_FP32, GW_GCOMP_DERIVED, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 1);

    testing_open(&cuda);
    for (int i = 0; i < WRONGS; i++) {
        item_lens[i] = i == CHUNK || i % 4 == 0 ? 5000 : 10 + (uint64_t)i;
    }
    make_bucket(bucket, item_lens, WRONGS, &codec, GW_FP32, 12, &random);
    for (int i = 0; i < WRONGS; i++) {
        hops[i] = make_hop(&bucket[i]);
        dst[i] = hops[i].dst;
        e[i] = break_hop(&hops[i], &bucket[i], (wrong)i, &codec);
    }
    assert_int_equal(e[CHUNK].status, GW_ERR_CHECKSUM);
    assert_int_equal(e[CHUNK].bad_index, 1);
    const uint64_t total = sum_of(item_lens, WRONGS);
    const size_t size = gw_cuda_gcomp_hop_workspace_size(&codec, WRONGS, total);
    /* Twice: nothing of the first call may be left in what the second makes. */
    const gw_cuda_gcomp_hop *device_hops = on_device(hops, sizeof hops);
    void *workspace = room(size);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(gw_cuda_gcomp_decode_add_encode_batch(
                             &cuda, &codec,
                             &(gw_cuda_gcomp_hop_batch){device_hops, WRONGS, total, &bucket[0].in.device_map,
                                                        &bucket[0].local.device_map, &case_key},
                             &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL}),
                         GW_OK);
        for (int i = 0; i < WRONGS; i++) {
            const gw_cuda_result r = fetch_result(hops[i].result);
            assert_int_equal(r.status, e[i].status);
            if (e[i].status == GW_OK) {
                expect_hop(&codec, &bucket[i], &hops[i]);
                continue;
            }
            assert_true(r.bad_index == e[i].bad_index);
            assert_int_equal(r.size, 0);
            assert_int_equal(r.len, 0);
            for (size_t at = 0; e[i].is_untouched && at < bucket[i].bound; at++) {
                assert_int_equal(dst[i][at], 0x5a);
            }
        }
    }
    drop_bucket(bucket, WRONGS);
    testing_close();
}

/* value_total below the sum: hops from the first that does not fit on are refused. */
static void too_few_values(void **state)
{
    (void)state;
    bucket_item bucket[ITEMS];
    gw_cuda_gcomp_hop hops[ITEMS];
    uint64_t random = 33;
    const gw_gcomp codec = make_codec(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 0);

    testing_open(&cuda);
    make_bucket(bucket, lens, ITEMS, &codec, GW_BF16, 12, &random);
    static const int known_counts[] = {0, 4, 7};
    for (size_t turn = 0; turn < sizeof known_counts / sizeof *known_counts; turn++) {
        const int known = known_counts[turn];
        const uint64_t total = sum_of(lens, known);
        const size_t size = gw_cuda_gcomp_hop_workspace_size(&codec, ITEMS, total);
        int refused = 0;
        for (int i = 0; i < ITEMS; i++) {
            hops[i] = make_hop(&bucket[i]);
        }
        assert_int_equal(gw_cuda_gcomp_decode_add_encode_batch(
                             &cuda, &codec,
                             &(gw_cuda_gcomp_hop_batch){on_device(hops, sizeof hops), ITEMS, total, NULL,
                                                        &bucket[0].local.device_map, &case_key},
                             &(gw_cuda_gcomp_request){NULL, NULL, {room(size), size}, NULL}),
                         GW_OK);
        for (int i = 0; i < ITEMS; i++) {
            const gw_cuda_result r = fetch_result(hops[i].result);
            if (i < known) {
                assert_int_equal(r.status, GW_OK);
            }
            refused = refused || r.status != GW_OK;
            if (refused) {
                assert_int_equal(r.status, GW_ERR_LIMIT);
                assert_int_equal(r.size, 0);
            } else {
                expect_hop(&codec, &bucket[i], &hops[i]);
            }
        }
        assert_true(refused); /* the last has a chunk */
    }
    drop_bucket(bucket, ITEMS);
    testing_close();
}

/* A batch of one with more values than value_total: it fits or not, but it stays in its workspace. */
static void one_item_stays_in_its_workspace(void **state)
{
    (void)state;
    enum { AFTER_END = 8192 };
    static const struct {
        uint64_t total, len;
        gw_status expected;
    } cases[] = {{0, 0, GW_OK},       {0, 4096, GW_OK},          {0, 4097, GW_ERR_LIMIT},
                 {4096, 4096, GW_OK}, {4096, 4097, GW_OK},       {4095, 4096, GW_OK},
                 {4096, 8192, GW_OK}, {4096, 8193, GW_ERR_LIMIT}};
    uint64_t random = 41;
    const gw_gcomp codec = make_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, GW_GCOMP_STOCHASTIC, 12, 0);

    testing_open(&cuda);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, cases[i].total);
        uint8_t *workspace = room(size + AFTER_END), *frame;
        tensor t = random_tensor(GW_FP32, cases[i].len, 12, &random);
        tensor_upload(&t);
        const size_t frame_size = cpu_encode(&codec, &t.cpu, &frame);
        const size_t bound = gw_gcomp_frame_bound(&codec, cases[i].len);
        const gw_cuda_gcomp_key key = {t.cpu.seed, t.cpu.step_index, t.cpu.rank, t.cpu.hop};
        gw_cuda_gcomp_item item;
        memset(&item, 0, sizeof item);
        item.src = t.device.values;
        item.src_size = t.len;
        item.dst = room(bound);
        item.dst_capacity = bound;
        item.map_bytes = t.device_map.bytes;
        item.digest = t.device_map.digest;
        item.map_len = t.len;
        item.first_element = t.cpu.first_element;
        item.result = new_result();
        memset(workspace, 0xa5, size + AFTER_END);
        assert_int_equal(
            gw_cuda_gcomp_encode_batch(&cuda, &codec,
                                       &(gw_cuda_gcomp_batch){on_device(&item, sizeof item), 1,
                                                              cases[i].total, &t.device_map, &key, 0},
                                       &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL}),
            GW_OK);
        const gw_cuda_result r = fetch_result(item.result);
        assert_int_equal(r.status, cases[i].expected);
        if (r.status == GW_OK) {
            assert_int_equal(r.size, frame_size);
            assert_memory_equal(item.dst, frame, frame_size);
        }
        for (size_t at = 0; at < AFTER_END; at++) {
            assert_int_equal(workspace[size + at], 0xa5);
        }
        tensor_drop(&t);
        free(frame);
    }
    testing_close();
}

/* What failed before is taken over by every call, with its chunk, and also by items that are wrong themselves
 * or that there is no room for. */
static void what_failed_before_is_taken_over(void **state)
{
    (void)state;
    enum { FIRST, SOUND, NO_SOURCE, LAST, COUNT };
    static const uint64_t item_lens[COUNT] = {20000, 100, 100, 100};
    static const gw_cuda_result failed = {GW_ERR_CORRUPT, 0, 0, 0, 17, 0};
    bucket_item bucket[COUNT];
    uint64_t random = 42;
    const gw_gcomp codec = make_codec(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 1);
    static const gw_cuda_gcomp_histogram none; /* zeros */
    enum { ENCODE, DECODE, VALIDATE, HISTOGRAM, HOP, CALLS };

    testing_open(&cuda);
    make_bucket(bucket, item_lens, COUNT, &codec, GW_BF16, 12, &random);
    const gw_cuda_result *after = on_device(&failed, sizeof failed);
    const gw_gcomp_map *map = &bucket[0].local.device_map;
    for (int turn = 0; turn < 2 * CALLS; turn++) {
        const int kind = turn / 2, has_room = turn % 2 == 0;
        const uint64_t total = has_room ? sum_of(item_lens, COUNT) : 0;
        gw_cuda_gcomp_item items[COUNT];
        gw_cuda_gcomp_hop hops[COUNT];
        uint8_t *dst[COUNT];
        const gw_cuda_result *results[COUNT];
        gw_status status;
        memset(items, 0, sizeof items);
        for (int i = 0; i < COUNT; i++) {
            bucket_item *b = &bucket[i];
            const size_t dst_size = kind == HISTOGRAM ? sizeof none : b->bound;
            const int is_frame = kind == DECODE || kind == VALIDATE;
            hops[i] = make_hop(b);
            dst[i] = kind == HOP ? hops[i].dst : room(dst_size);
            memset(dst[i], kind == HISTOGRAM ? 0 : 0x5a, dst_size);
            items[i].src = is_frame ? (const void *)b->device_frame : b->local.device.values;
            items[i].src_size = is_frame ? b->frame_size : b->local.len;
            items[i].dst = dst[i];
            items[i].dst_capacity = kind == DECODE ? b->local.len : b->bound;
            items[i].map_bytes = b->local.device_map.bytes;
            items[i].digest = b->local.device_map.digest;
            items[i].map_len = b->local.len;
            items[i].result = hops[i].result;
            results[i] = hops[i].result;
            items[i].after = hops[i].after = i == SOUND || i == NO_SOURCE ? after : NULL;
            if (i == NO_SOURCE) {
                items[i].src = NULL;
                hops[i].values = NULL;
            }
        }
        const gw_cuda_gcomp_item *device_items = on_device(items, sizeof items);
        const size_t sizes[CALLS] = {gw_cuda_gcomp_encode_workspace_size(&codec, COUNT, total),
                                     gw_cuda_gcomp_decode_workspace_size(&codec, COUNT, total),
                                     gw_cuda_gcomp_decode_workspace_size(&codec, COUNT, total),
                                     gw_cuda_gcomp_histogram_workspace_size(&codec, COUNT),
                                     gw_cuda_gcomp_hop_workspace_size(&codec, COUNT, total)};
        const size_t size = sizes[kind];
        void *workspace = room(size);
        switch (kind) {
        case ENCODE:
            status = gw_cuda_gcomp_encode_batch(
                &cuda, &codec, &(gw_cuda_gcomp_batch){device_items, COUNT, total, map, &case_key, 0},
                &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL});
            break;
        case DECODE:
            status = gw_cuda_gcomp_decode_batch(
                &cuda, &codec, &(gw_cuda_gcomp_batch){device_items, COUNT, total, NULL, NULL, 0},
                &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL});
            break;
        case VALIDATE:
            status = gw_cuda_gcomp_frame_check_batch(
                &cuda, &codec, &(gw_cuda_gcomp_batch){device_items, COUNT, total, NULL, NULL, 0},
                &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL});
            break;
        case HISTOGRAM:
            status = gw_cuda_gcomp_histogram_add_batch(
                &cuda, &codec, &(gw_cuda_gcomp_batch){device_items, COUNT, total, map, &case_key, 0},
                &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL});
            break;
        default:
            status = gw_cuda_gcomp_decode_add_encode_batch(
                &cuda, &codec,
                &(gw_cuda_gcomp_hop_batch){on_device(hops, sizeof hops), COUNT, total, NULL, map, &case_key},
                &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL});
            break;
        }
        assert_int_equal(status, GW_OK);
        for (int i = 0; i < COUNT; i++) {
            const gw_cuda_result r = fetch_result(results[i]);
            if (i == FIRST || i == LAST) {
                assert_true(r.status == GW_OK || (r.status == GW_ERR_LIMIT && !has_room));
                assert_true(r.bad_index == UINT64_MAX);
                continue;
            }
            assert_int_equal(r.status, GW_ERR_CORRUPT);
            assert_true(r.bad_index == 17);
            assert_int_equal(r.size, 0);
            assert_int_equal(r.len, 0);
            assert_int_equal(dst[i][0], kind == HISTOGRAM ? 0 : 0x5a);
        }
    }
    drop_bucket(bucket, COUNT);
    testing_close();
}

/* Validations: the CPU's status and chunk, with chunks that fit no shared memory and a hint that is far too
 * small. */
static void validations(void **state)
{
    (void)state;
    enum { FRAMES = 4 };
    static const uint64_t frame_lens[FRAMES] = {33000, 0, 40000, 5};
    bucket_item bucket[FRAMES];
    uint64_t random = 34;
    const gw_gcomp codec = make_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 15, 0);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&codec));

    testing_open(&cuda);
    make_bucket(bucket, frame_lens, FRAMES, &codec, GW_FP32, 15, &random);
    for (int turn = 0; turn < 2; turn++) {
        const uint64_t hint = turn == 0 ? sum_of(frame_lens, FRAMES) : 0;
        const size_t size = gw_cuda_gcomp_decode_workspace_size(&codec, FRAMES, hint);
        gw_cuda_gcomp_item items[FRAMES];
        gw_status expected[FRAMES];
        uint64_t bad[FRAMES];
        memset(items, 0, sizeof items);
        for (int i = 0; i < FRAMES; i++) {
            uint8_t *frame = on_device(bucket[i].frame, bucket[i].frame_size);
            if (turn == 1 && i == 2) {
                frame[bucket[i].frame_size - 1 - (size_t)(next_random(&random) % 1000)] ^= 0x55;
            }
            expected[i] = gw_gcomp_frame_check(
                &codec, &(gw_gcomp_frame){.data = frame, .size = bucket[i].frame_size}, &bad[i],
                &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)});
            items[i].src = frame;
            items[i].src_size = bucket[i].frame_size;
            items[i].result = new_result();
        }
        assert_int_equal(
            gw_cuda_gcomp_frame_check_batch(
                &cuda, &codec,
                &(gw_cuda_gcomp_batch){on_device(items, sizeof items), FRAMES, hint, NULL, NULL, 0},
                &(gw_cuda_gcomp_request){NULL, NULL, {room(size), size}, NULL}),
            GW_OK);
        for (int i = 0; i < FRAMES; i++) {
            const gw_cuda_result r = fetch_result(items[i].result);
            assert_int_equal(r.status, expected[i]);
            assert_true(r.bad_index == bad[i]);
            assert_int_equal(r.len, expected[i] == GW_OK ? frame_lens[i] : 0);
        }
    }
    drop_bucket(bucket, FRAMES);
    free(cpu_workspace);
    testing_close();
}

/* ---- histograms and codebooks -------------------------------------------------------------------------- */

/* Which histogram item i is added to: one for all, one each, two in turns. */
static int histogram_of(int sharing, int i)
{
    return sharing == 0 ? 0 : sharing == 1 ? i : i % 2;
}

static void compare_codebooks(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, int sharing,
                              uint64_t *random)
{
    const gw_gcomp codec = make_codec(dtype, quantum_mode, GW_GCOMP_SMALL, GW_GCOMP_STOCHASTIC, 12, 0);
    const int histogram_count = sharing == 0 ? 1 : sharing == 1 ? ITEMS : 2;
    tensor t[ITEMS];
    gw_cuda_gcomp_item items[ITEMS];
    gw_gcomp_histogram cpu[ITEMS];
    void *workspace = take(gw_gcomp_workspace_size(&codec));
    gw_cuda_gcomp_histogram *histograms = on_device(NULL, (size_t)histogram_count * sizeof *histograms),
                            *singles = on_device(NULL, (size_t)histogram_count * sizeof *singles);
    uint8_t *codebooks = on_device_at(NULL, (size_t)histogram_count * GW_GCOMP_CODEBOOK_SIZE_MAX, 1);
    uint32_t *codebook_sizes = on_device(NULL, 4 * (size_t)histogram_count);
    gw_cuda_result *results = on_device(NULL, (size_t)histogram_count * sizeof *results);
    const size_t size = gw_cuda_gcomp_histogram_workspace_size(&codec, ITEMS);

    memset(histograms, 0, (size_t)histogram_count * sizeof *histograms);
    memset(singles, 0, (size_t)histogram_count * sizeof *singles);
    memset(items, 0, sizeof items);
    for (int i = 0; i < histogram_count; i++) {
        assert_int_equal(gw_gcomp_histogram_init(&cpu[i], &codec), GW_OK);
    }
    for (int i = 0; i < ITEMS; i++) {
        t[i] = random_tensor(dtype, lens[i], 12, random);
        /* The window is that of the first tensor with values: here zeros, then large ones, then small. */
        if (dtype != GW_FP16 && i < 4) {
            uint16_t *halves = (uint16_t *)(void *)t[i].values;
            for (size_t at = 0; at < lens[i] * gw_dtype_size(dtype) / 2; at++) {
                halves[at] = i < 3 ? 0 : (uint16_t)(0x6000 + at % 3 * 0x80);
            }
        }
        tensor_upload(&t[i]);
        items[i].src = t[i].device.values;
        items[i].src_size = t[i].len;
        items[i].dst = histograms + histogram_of(sharing, i);
        items[i].map_bytes = t[i].device_map.bytes;
        items[i].digest = t[i].device_map.digest;
        items[i].map_len = t[i].len;
        items[i].first_element = t[i].device.first_element;
        items[i].result = new_result();
    }
    gw_cuda_gcomp_item *device_items = on_device(items, sizeof items);
    gw_cuda_result *single_result = new_result();
    void *device_workspace = room(size), *single_workspace = room(GW_CUDA_HISTOGRAM_WORKSPACE_SIZE);
    /* Twice, so that there is something before. */
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(gw_cuda_gcomp_histogram_add_batch(
                             &cuda, &codec,
                             &(gw_cuda_gcomp_batch){device_items, ITEMS, turn == 0 ? sum_of(lens, ITEMS) : 0,
                                                    &t[0].device_map, &case_key, 0},
                             &(gw_cuda_gcomp_request){NULL, NULL, {device_workspace, size}, NULL}),
                         GW_OK);
        for (int i = 0; i < ITEMS; i++) {
            const int h = histogram_of(sharing, i);
            const gw_cuda_result r = fetch_result(items[i].result);
            assert_int_equal(r.status, GW_OK);
            assert_int_equal(r.len, lens[i]);
            assert_int_equal(
                gw_gcomp_histogram_add(&cpu[h], &codec, &t[i].cpu,
                                       &(gw_workspace){workspace, gw_gcomp_workspace_size(&codec)}),
                GW_OK);
            assert_int_equal(
                gw_cuda_gcomp_histogram_add(
                    &cuda, &codec, &t[i].device, &singles[h],
                    &(gw_cuda_gcomp_request){
                        NULL, single_result, {single_workspace, GW_CUDA_HISTOGRAM_WORKSPACE_SIZE}, NULL}),
                GW_OK);
        }
    }
    testing_sync();
    for (int i = 0; i < histogram_count; i++) {
        assert_memory_equal(histograms[i].bin, singles[i].bin, sizeof singles[i].bin);
        if (sharing == 0) {
            assert_memory_equal(&histograms[i], &singles[i], sizeof singles[i]);
        }
    }
    assert_int_equal(gw_cuda_gcomp_codebook_build(
                         &cuda, &codec, histograms,
                         &(gw_cuda_gcomp_codebooks){codebooks, codebook_sizes, (uint32_t)histogram_count},
                         &(gw_cuda_gcomp_request){NULL, results, {NULL, 0}, NULL}),
                     GW_OK);
    testing_sync();
    for (int i = 0; i < histogram_count; i++) {
        uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
        gw_buffer out = {codebook, sizeof codebook, 0};
        assert_int_equal(gw_gcomp_codebook_build(&cpu[i], &out), GW_OK);
        assert_int_equal(results[i].status, GW_OK);
        assert_int_equal(results[i].size, out.size);
        assert_int_equal(codebook_sizes[i], out.size);
        assert_memory_equal(codebooks + GW_GCOMP_CODEBOOK_SIZE_MAX * (size_t)i, codebook, out.size);
    }
    for (int i = 0; i < ITEMS; i++) {
        tensor_drop(&t[i]);
    }
    free(workspace);
    give_since(0);
}

static void codebooks(void **state)
{
    (void)state;
    uint64_t random = 35;

    testing_open(&cuda);
    compare_codebooks(GW_FP32, GW_GCOMP_EXPLICIT, 2, &random);
    if (!TESTING_FEWER) {
        compare_codebooks(GW_FP32, GW_GCOMP_EXPLICIT, 0, &random);
        compare_codebooks(GW_BF16, GW_GCOMP_EXPLICIT, 1, &random);
        compare_codebooks(GW_FP16, GW_GCOMP_DERIVED, 2, &random);
    }
    gw_cuda_close(&cuda);
}

/* Tensors that are refused leave their histogram as it was. */
static void wrong_tensors_are_not_counted(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    static const gw_cuda_result failed = {GW_ERR_SHORT, 0, 0, 0, 3, 0};
    static const gw_status expected[COUNT] = {GW_OK,      GW_ERR_ARG,   GW_ERR_ARG,   GW_ERR_ARG,
                                              GW_ERR_ARG, GW_ERR_LIMIT, GW_ERR_SHORT, GW_OK};
    uint64_t random = 36;
    const gw_gcomp codec = make_codec(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 0);
    tensor t = random_tensor(GW_BF16, 5000, 12, &random);
    static const gw_cuda_gcomp_histogram none; /* zeros */
    gw_cuda_gcomp_histogram *histograms[COUNT];
    gw_cuda_gcomp_item items[COUNT];
    const size_t size = gw_cuda_gcomp_histogram_workspace_size(&codec, COUNT);

    testing_open(&cuda);
    tensor_upload(&t);
    memset(items, 0, sizeof items);
    for (int i = 0; i < COUNT; i++) {
        histograms[i] = on_device(&none, sizeof none);
        items[i].src = t.device.values;
        items[i].src_size = t.len;
        items[i].dst = histograms[i];
        items[i].map_bytes = t.device_map.bytes;
        items[i].digest = t.device_map.digest;
        items[i].map_len = t.len;
        items[i].result = new_result();
    }
    items[1].src = NULL;
    items[2].src = (const char *)items[2].src + 1;
    items[3].dst = (char *)on_device(NULL, sizeof none + 8) + 4;
    items[4].map_len = 4999;
    items[5].src_size = items[5].map_len = (uint64_t)1 << 60;
    items[6].after = on_device(&failed, sizeof failed);
    assert_int_equal(
        gw_cuda_gcomp_histogram_add_batch(
            &cuda, &codec,
            &(gw_cuda_gcomp_batch){on_device(items, sizeof items), COUNT, 10000, &t.device_map, &case_key, 0},
            &(gw_cuda_gcomp_request){NULL, NULL, {room(size), size}, NULL}),
        GW_OK);
    for (int i = 0; i < COUNT; i++) {
        const gw_cuda_result r = fetch_result(items[i].result);
        uint64_t sum = 0;
        assert_int_equal(r.status, expected[i]);
        assert_int_equal(r.len, expected[i] == GW_OK ? 5000 : 0);
        assert_true(r.bad_index == (i == 6 ? 3 : UINT64_MAX));
        for (int bin = 0; bin < 1024; bin++) {
            sum += histograms[i]->bin[bin];
        }
        assert_int_equal(sum, r.len);
        if (expected[i] != GW_OK) {
            assert_memory_equal(histograms[i], &none, sizeof none);
        }
    }
    tensor_drop(&t);
    testing_close();
}

/* A codebook on the device under the id of an installed one takes its place, as gw_gcomp_codebook_install()
 * would; under a new id it takes the place of the older of two. */
static void a_codebook_on_the_device_replaces_one(void **state)
{
    (void)state;
    uint64_t random = 37;
    gw_gcomp codec = make_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 0);
    const gw_gcomp plain = codec;
    tensor t[3];
    uint8_t codebook[3][GW_GCOMP_CODEBOOK_SIZE_MAX];
    uint32_t codebook_size[3];
    gw_gcomp cpu[3]; /* with codebook i alone, under the ids 1, 2 and 1 */
    uint8_t *frame[3];
    size_t frame_size[3];

    testing_open(&cuda);
    for (int i = 0; i < 3; i++) {
        t[i] = random_tensor(GW_FP32, 6000, 12, &random);
        for (size_t at = 0; at < 6000; at += 1 + (size_t)i) {
            memset(t[i].values + 4 * at, 0, 4); /* codebooks that differ */
        }
        tensor_upload(&t[i]);
        codebook_size[i] = (uint32_t)cpu_codebook(&plain, &t[i].cpu, 1, codebook[i]);
        cpu[i] = plain;
        assert_int_equal(
            gw_gcomp_codebook_install(&cpu[i], i == 1 ? 2 : 1, 0, codebook[i], codebook_size[i], 1), GW_OK);
        frame_size[i] = cpu_encode(&cpu[i], &t[0].cpu, &frame[i]);
    }
    assert_memory_not_equal(codebook[0], codebook[2], codebook_size[2]);
    /* id 2 is the older of two, id 1 encodes; codebook 2 has id 1 in turn 0, a new one in turn 1 */
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(
            gw_gcomp_codebook_install(&codec, (uint32_t)i + 1, 0, codebook[i], codebook_size[i], i == 0),
            GW_OK);
    }
    gw_cuda_gcomp_device device = {
        NULL, NULL, on_device(codebook[2], codebook_size[2]), on_device(&codebook_size[2], 4), 1, 0};
    const size_t bound = gw_gcomp_frame_bound(&codec, 6000);
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, 6000);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, 1, 6000);
    void *encode_workspace = room(encode_size), *decode_workspace = room(decode_size);
    uint8_t *dst = on_device(NULL, bound);
    float *values = on_device(NULL, 4 * 6000), *expected = take(4 * 6000);
    gw_cuda_result *result = new_result();
    void *cpu_workspace = take(gw_gcomp_workspace_size(&codec));
    assert_int_equal(gw_cuda_gcomp_encode(
                         &cuda, &codec, &t[0].device, &(gw_cuda_buffer){dst, bound},
                         &(gw_cuda_gcomp_request){&device, result, {encode_workspace, encode_size}, NULL}),
                     GW_OK);
    assert_int_equal(fetch_result(result).size, frame_size[2]);
    assert_memory_equal(dst, frame[2], frame_size[2]);
    for (int turn = 0; turn < 2; turn++) {
        /* turn 0: id 1 is codebook 2; turn 1: id 1 is codebook 0, and id 2 is not installed */
        for (int id = 1; id <= 2; id++) {
            const int i = id == 2 ? 1 : turn == 0 ? 2 : 0;
            assert_int_equal(
                gw_cuda_gcomp_decode(
                    &cuda, &codec,
                    &(gw_cuda_gcomp_frame){on_device(frame[i], frame_size[i]), frame_size[i], NULL, NULL},
                    &(gw_cuda_gcomp_target){values, 6000, 0},
                    &(gw_cuda_gcomp_request){&device, result, {decode_workspace, decode_size}, NULL}),
                GW_OK);
            const gw_status status = turn == 1 && id == 2 ? GW_ERR_TABLE : GW_OK;
            assert_int_equal(fetch_result(result).status, status);
            if (status == GW_OK) {
                gw_gcomp_target target = {.values = expected, .capacity = 6000};
                assert_int_equal(
                    gw_gcomp_decode(&cpu[i], &(gw_gcomp_frame){.data = frame[i], .size = frame_size[i]},
                                    &target, &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)}),
                    GW_OK);
                assert_memory_equal(values, expected, 4 * 6000);
            }
        }
        device.codebook_id = 3;
    }
    for (int i = 0; i < 3; i++) {
        free(frame[i]);
        tensor_drop(&t[i]);
    }
    free(expected);
    free(cpu_workspace);
    testing_close();
}

/* ---- a graph: counts, codebook, encode with it, hop, all by one launch --------------------------------- */

static void a_ring_step_in_a_graph(void **state)
{
    (void)state;
    uint64_t random = 38;
    const gw_gcomp plain = make_codec(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 1);
    const uint64_t total = sum_of(lens, ITEMS);
    bucket_item bucket[ITEMS];
    gw_cuda_gcomp_item count[ITEMS], encode[ITEMS];
    gw_cuda_gcomp_hop hops[ITEMS];
    gw_cuda_gcomp_key key = case_key;
    static const gw_cuda_gcomp_histogram none; /* zeros */
    testing_graph graph;

    testing_open(&cuda);
    make_bucket(bucket, lens, ITEMS, &plain, GW_BF16, 12, &random);
    gw_cuda_gcomp_histogram *histogram = on_device(&none, sizeof none);
    uint8_t *codebook = on_device(NULL, GW_GCOMP_CODEBOOK_SIZE_MAX);
    uint32_t *codebook_size = on_device(NULL, 4);
    gw_cuda_gcomp_key *key_at = on_device(&key, sizeof key);
    const gw_cuda_gcomp_device device = {
        on_device(&bucket[0].in.map.base, 4), key_at, codebook, codebook_size, 9, 1};
    memset(encode, 0, sizeof encode);
    for (int i = 0; i < ITEMS; i++) {
        const tensor *in = &bucket[i].in;
        encode[i].src = in->device.values;
        encode[i].src_size = in->len;
        encode[i].dst = on_device(NULL, bucket[i].bound);
        encode[i].dst_capacity = bucket[i].bound;
        encode[i].map_bytes = in->device_map.bytes;
        encode[i].map_len = in->len;
        encode[i].first_element = in->device.first_element;
        encode[i].result = new_result();
        count[i] = encode[i];
        count[i].dst = histogram;
        count[i].result = new_result();
        hops[i] = make_hop(&bucket[i]);
        hops[i].src = encode[i].dst;
        hops[i].src_size = bucket[i].bound;
        hops[i].src_size_at = &encode[i].result->size;
        hops[i].after = encode[i].result;
    }
    const gw_cuda_gcomp_item *device_count = on_device(count, sizeof count),
                             *device_encode = on_device(encode, sizeof encode);
    const gw_cuda_gcomp_hop *device_hops = on_device(hops, sizeof hops);
    gw_cuda_result *codebook_result = new_result();
    const size_t count_size = gw_cuda_gcomp_histogram_workspace_size(&plain, ITEMS);
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&plain, ITEMS, total);
    const size_t hop_size = gw_cuda_gcomp_hop_workspace_size(&plain, ITEMS, total);
    void *count_at = room(count_size), *encode_at = room(encode_size), *hop_at = room(hop_size);
    gw_gcomp_map in_map = bucket[0].in.device_map, local_map = bucket[0].local.device_map;
    in_map.base = local_map.base = 0; /* the device's counts */

    void *const stream = testing_graph_begin(&graph);
    assert_int_equal(gw_cuda_gcomp_histogram_add_batch(
                         &cuda, &plain, &(gw_cuda_gcomp_batch){device_count, ITEMS, total, &in_map, NULL, 0},
                         &(gw_cuda_gcomp_request){&device, NULL, {count_at, count_size}, stream}),
                     GW_OK);
    assert_int_equal(gw_cuda_gcomp_codebook_build(
                         &cuda, &plain, histogram, &(gw_cuda_gcomp_codebooks){codebook, codebook_size, 1},
                         &(gw_cuda_gcomp_request){NULL, codebook_result, {NULL, 0}, stream}),
                     GW_OK);
    assert_int_equal(gw_cuda_gcomp_encode_batch(
                         &cuda, &plain, &(gw_cuda_gcomp_batch){device_encode, ITEMS, total, &in_map, NULL, 0},
                         &(gw_cuda_gcomp_request){&device, NULL, {encode_at, encode_size}, stream}),
                     GW_OK);
    assert_int_equal(gw_cuda_gcomp_decode_add_encode_batch(
                         &cuda, &plain,
                         &(gw_cuda_gcomp_hop_batch){device_hops, ITEMS, total, &in_map, &local_map, NULL},
                         &(gw_cuda_gcomp_request){&device, NULL, {hop_at, hop_size}, stream}),
                     GW_OK);
    testing_graph_end(&graph);
    for (int turn = 0; turn < 2; turn++) {
        gw_gcomp_source sources[ITEMS];
        uint8_t host_codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
        gw_gcomp cpu = plain;
        key.seed += 100;
        key.step_index++;
        memcpy(key_at, &key, sizeof key);
        memset(histogram, 0, sizeof *histogram);
        for (int i = 0; i < ITEMS; i++) {
            tensor *in = &bucket[i].in, *local = &bucket[i].local;
            fill_widely(in->values, GW_BF16, (size_t)in->len, 10, &random);
            fill_widely(local->values, GW_BF16, (size_t)in->len, 10, &random);
            memcpy((void *)(uintptr_t)in->device.values, in->values, 2 * (size_t)in->len);
            memcpy((void *)(uintptr_t)local->device.values, local->values, 2 * (size_t)in->len);
            in->cpu.seed = local->cpu.seed = key.seed;
            in->cpu.step_index = local->cpu.step_index = key.step_index;
            sources[i] = in->cpu;
        }
        testing_graph_run(&graph);
        const size_t host_codebook_size = cpu_codebook(&plain, sources, ITEMS, host_codebook);
        assert_int_equal(*codebook_size, host_codebook_size);
        assert_memory_equal(codebook, host_codebook, host_codebook_size);
        assert_int_equal(gw_gcomp_codebook_install(&cpu, 9, 1, host_codebook, host_codebook_size, 1), GW_OK);
        for (int i = 0; i < ITEMS; i++) {
            free(bucket[i].frame);
            bucket[i].frame_size = cpu_encode(&cpu, &sources[i], &bucket[i].frame);
            assert_int_equal(encode[i].result->status, GW_OK);
            assert_int_equal(encode[i].result->size, bucket[i].frame_size);
            assert_memory_equal(encode[i].dst, bucket[i].frame, bucket[i].frame_size);
            expect_hop(&cpu, &bucket[i], &hops[i]);
        }
    }
    testing_graph_drop(&graph);
    drop_bucket(bucket, ITEMS);
    testing_close();
}

/* ---- what the host refuses ----------------------------------------------------------------------------- */

static void bad_arguments(void **state)
{
    (void)state;
    gw_gcomp none;
    const gw_gcomp codec = make_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 0);
    gw_cuda_gcomp_hop *hops = on_device(NULL, 2 * sizeof *hops);
    gw_cuda_gcomp_item *items = on_device(NULL, 2 * sizeof *items);
    gw_cuda_gcomp_histogram *histogram = on_device(NULL, sizeof *histogram + 8);
    gw_cuda_result *result = on_device(NULL, sizeof *result + 8);
    uint8_t *codebook = on_device(NULL, GW_GCOMP_CODEBOOK_SIZE_MAX);
    uint32_t *sizes = on_device(NULL, 8);
    const size_t size = gw_cuda_gcomp_hop_workspace_size(&codec, 2, 100);
    uint8_t *workspace = on_device(NULL, size + 256);
    gw_gcomp_map map = {NULL, NULL, 0, 1.0f, 0, 12};

    memset(&none, 0, sizeof none);
    testing_open(&cuda);
    gw_fake_control *control = testing_control();
    assert_int_equal(gw_cuda_gcomp_hop_workspace_size(&none, 2, 100), 0);
    assert_int_equal(gw_cuda_gcomp_hop_workspace_size(&codec, 0, 100), 0);
    assert_int_equal(gw_cuda_gcomp_hop_workspace_size(&codec, (1 << 20) + 1, 100), 0);
    assert_int_equal(gw_cuda_gcomp_hop_workspace_size(&codec, 1, ((uint64_t)1 << 48) + 1), 0);
    assert_int_equal(gw_cuda_gcomp_histogram_workspace_size(&none, 2), 0);
    assert_int_equal(gw_cuda_gcomp_histogram_workspace_size(&codec, 0), 0);
    assert_true(gw_cuda_gcomp_histogram_workspace_size(&codec, 1) > GW_CUDA_HISTOGRAM_WORKSPACE_SIZE);
#define HOPS(cuda_, codec_, hops_, count_, total_, src_map_, map_, workspace_, size_)                        \
    gw_cuda_gcomp_decode_add_encode_batch(                                                                   \
        cuda_, codec_, &(gw_cuda_gcomp_hop_batch){hops_, count_, total_, src_map_, map_, NULL},              \
        &(gw_cuda_gcomp_request){NULL, NULL, {workspace_, size_}, NULL})
    assert_int_equal(HOPS(NULL, &codec, hops, 2, 100, NULL, NULL, workspace, size), GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, NULL, hops, 2, 100, NULL, NULL, workspace, size), GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, &none, hops, 2, 100, NULL, NULL, workspace, size), GW_ERR_STATE);
    assert_int_equal(HOPS(&cuda, &codec, NULL, 2, 100, NULL, NULL, workspace, size), GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, &codec, (gw_cuda_gcomp_hop *)(void *)((char *)hops + 4), 1, 100, NULL, NULL,
                          workspace, size),
                     GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, &codec, hops, 0, 100, NULL, NULL, workspace, size), GW_ERR_LIMIT);
    assert_int_equal(HOPS(&cuda, &codec, hops, 2, (uint64_t)1 << 50, NULL, NULL, workspace, size),
                     GW_ERR_LIMIT);
    assert_int_equal(HOPS(&cuda, &codec, hops, 2, 100, &map, NULL, workspace, size), GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, &codec, hops, 2, 100, NULL, &map, workspace, size), GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, &codec, hops, 2, 100, NULL, NULL, NULL, size), GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, &codec, hops, 2, 100, NULL, NULL, workspace + 128, size), GW_ERR_ARG);
    assert_int_equal(HOPS(&cuda, &codec, hops, 2, 100, NULL, NULL, workspace, size - 1), GW_ERR_WORKSPACE);
#define COUNT(items_, count_, hint_, map_, size_)                                                            \
    gw_cuda_gcomp_histogram_add_batch(&cuda, &codec,                                                         \
                                      &(gw_cuda_gcomp_batch){items_, count_, hint_, map_, NULL, 0},          \
                                      &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size_}, NULL})
    const size_t count_size = gw_cuda_gcomp_histogram_workspace_size(&codec, 2);
    assert_int_equal(COUNT(NULL, 2, 100, NULL, count_size), GW_ERR_ARG);
    assert_int_equal(COUNT(items, 0, 100, NULL, count_size), GW_ERR_LIMIT);
    assert_int_equal(COUNT(items, 2, (uint64_t)1 << 50, NULL, count_size), GW_ERR_LIMIT);
    assert_int_equal(COUNT(items, 2, 100, &map, count_size), GW_ERR_ARG);
    assert_int_equal(COUNT(items, 2, 100, NULL, count_size - 1), GW_ERR_WORKSPACE);
    assert_int_equal(
        gw_cuda_gcomp_frame_check_batch(&cuda, &codec, &(gw_cuda_gcomp_batch){NULL, 2, 100, NULL, NULL, 0},
                                        &(gw_cuda_gcomp_request){NULL, NULL, {workspace, size}, NULL}),
        GW_ERR_ARG);
    assert_int_equal(
        gw_cuda_gcomp_frame_check_batch(&cuda, &codec, &(gw_cuda_gcomp_batch){items, 2, 100, NULL, NULL, 0},
                                        &(gw_cuda_gcomp_request){NULL, NULL, {workspace, 256}, NULL}),
        GW_ERR_WORKSPACE);
#define BUILD(codec_, histograms_, count_, codebooks_, sizes_, results_)                                     \
    gw_cuda_gcomp_codebook_build(&cuda, codec_, histograms_,                                                 \
                                 &(gw_cuda_gcomp_codebooks){codebooks_, sizes_, count_},                     \
                                 &(gw_cuda_gcomp_request){NULL, results_, {NULL, 0}, NULL})
    assert_int_equal(BUILD(&none, histogram, 1, codebook, sizes, result), GW_ERR_STATE);
    assert_int_equal(BUILD(&codec, NULL, 1, codebook, sizes, result), GW_ERR_ARG);
    assert_int_equal(BUILD(&codec, histogram, 1, NULL, sizes, result), GW_ERR_ARG);
    assert_int_equal(BUILD(&codec, histogram, 1, codebook, sizes, NULL), GW_ERR_ARG);
    assert_int_equal(BUILD(&codec, histogram, 0, codebook, sizes, result), GW_ERR_LIMIT);
    assert_int_equal(BUILD(&codec, histogram, (1 << 20) + 1, codebook, sizes, result), GW_ERR_LIMIT);
    assert_int_equal(control->calls, 0);
    testing_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_the_cpu_and_single_calls),
        cmocka_unit_test(many_hops),
        cmocka_unit_test(wrong_items_leave_others_alone),
        cmocka_unit_test(too_few_values),
        cmocka_unit_test(one_item_stays_in_its_workspace),
        cmocka_unit_test(what_failed_before_is_taken_over),
        cmocka_unit_test(validations),
        cmocka_unit_test(codebooks),
        cmocka_unit_test(wrong_tensors_are_not_counted),
        cmocka_unit_test(a_codebook_on_the_device_replaces_one),
        cmocka_unit_test(a_ring_step_in_a_graph),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
