/*
 * Hostile messages to the steps of an all-reduce: frames of all ranks for one piece, with damage, notices,
 * frames of other pieces and plain rubbish among them. Every backend must give the same status, failure and
 * bytes; nothing of the output depends on what was there before; an undamaged set of messages succeeds; whom
 * a failure is blamed on sent something damaged. Then the words and notices that say so.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "gradwire/collective.h"

#include <string.h>

enum { RANKS_MAX = 4, LEN_MAX = 20000, CHUNK_LOG2 = 12, STREAMS_MAX = 4, FILLS = 2 };

typedef enum step { STEP_REDUCE, STEP_SUM, STEP_HOP, STEP_DECODE, STEP_COUNT } step;

static const int fills[FILLS] = {0x11, 0xee};

/* One piece of an operation as its receiver sees it. */
typedef struct scene {
    gw_gcomp_options options;
    gw_gcomp codec;
    gw_workspace workspace;
    gw_collective_layout layout;
    gw_collective_map map;
    gw_gcomp_segment streams[STREAMS_MAX];
    gw_collective_bucket bucket; /* of the receiver */
    uint64_t values_seed;
    uint32_t index, hop;
    gw_collective_piece piece;
    step step;
    float scale;
    gw_gcomp_frame messages[RANKS_MAX];
    int is_damaged[RANKS_MAX];
    int has_notice;
} scene;

/* What a step did. */
typedef struct outcome {
    gw_status status;
    gw_collective_failure failure;
    uint64_t len, bad_chunk; /* of a target */
    size_t size;             /* of dst */
} outcome;

static void read_options(scene *s, gw_fuzz_reader *reader)
{
    static const gw_dtype dtypes[] = {GW_FP32, GW_BF16, GW_FP16, GW_FP32};
    const uint8_t kind = gw_fuzz_u8(reader), more = gw_fuzz_u8(reader);
    gw_gcomp_options_init(&s->options, dtypes[kind & 3]);
    s->options.quantum_mode = (gw_gcomp_quantum_mode)((kind >> 2) % 3);
    s->options.rounding = (gw_gcomp_rounding)((kind >> 4) % 3);
    s->options.preset = (gw_gcomp_preset)(kind >> 7);
    s->options.tolerance_bits = 1 + (more & 15);
    s->options.strict = more >> 4 & 1;
    s->options.checksum = more >> 5 & 1;
    s->options.dead_zone = (more >> 6 & 1) && s->options.quantum_mode != GW_GCOMP_EXPLICIT;
    s->options.quantum = s->options.quantum_mode == GW_GCOMP_CARRIED
                             ? gw_gcomp_quantum_of_nmse(more >> 7 ? 0.01f : 0.0f)
                             : gw_gcomp_quantum_of_drop(s->options.dtype == GW_FP32 ? 12 : 0);
    s->options.chunk_log2 = CHUNK_LOG2;
}

static void read_layout(scene *s, gw_fuzz_reader *reader)
{
    const uint8_t shape = gw_fuzz_u8(reader);
    gw_collective_shape in = {.len = gw_fuzz_u16(reader) % (LEN_MAX + 1),
                              .rank_count = 1 + (shape & 3),
                              .chunk_log2 = CHUNK_LOG2,
                              .piece_len = 4096 + (shape >> 2 & 3) * (uint64_t)2000};
    if (shape & 16) { /* shards of the caller, the last ones perhaps empty */
        in.shard_len = in.len / in.rank_count + 1 + (shape >> 5) * 200;
    }
    FUZZ_CHECK(gw_collective_layout_init(&s->layout, &in) == GW_OK);
    s->index = gw_fuzz_u8(reader) % s->layout.piece_count;
    FUZZ_CHECK(gw_collective_piece_at(&s->layout, s->index, &s->piece) == GW_OK);
    FUZZ_CHECK(s->piece.first + s->piece.len <= in.len && s->piece.owner < in.rank_count);
}

/* Levels in a short pattern, and their digests. */
static void make_map(scene *s, gw_fuzz_reader *reader)
{
    const uint32_t pattern = gw_fuzz_u32(reader);
    const size_t len = (size_t)s->layout.shape.len;
    const size_t digest_len = (size_t)gw_collective_digest_len(&s->layout);
    s->map = (gw_collective_map){.bytes = gw_fuzz_buffer(GW_FUZZ_MAP_BYTES, len, 0),
                                 .digest = gw_fuzz_buffer(GW_FUZZ_DIGEST, digest_len * 4, 0),
                                 .base = 300 + gw_fuzz_u8(reader),
                                 .wire_scale = 1.0f};
    for (size_t i = 0; i < len; i++) {
        s->map.bytes[i] = (uint8_t)(pattern >> 8 * (i / 5 & 3));
    }
    for (uint32_t i = 0; i < s->layout.piece_count; i++) {
        gw_collective_piece piece;
        FUZZ_CHECK(gw_collective_piece_at(&s->layout, i, &piece) == GW_OK);
        FUZZ_CHECK(gw_gcomp_map_digest(s->map.bytes + piece.first, (size_t)piece.len, CHUNK_LOG2,
                                       s->map.digest + piece.digest_first) == GW_OK);
    }
}

static void make_streams(scene *s, gw_fuzz_reader *reader)
{
    uint64_t left = s->layout.shape.len;
    s->bucket.streams = s->streams;
    s->bucket.stream_count = gw_fuzz_u8(reader) % (STREAMS_MAX + 1);
    for (size_t i = 0; i < s->bucket.stream_count; i++) {
        const uint64_t len = i + 1 < s->bucket.stream_count ? gw_fuzz_u16(reader) % (left + 1) : left;
        s->streams[i] = (gw_gcomp_segment){gw_fuzz_u16(reader), gw_fuzz_u32(reader), len};
        left -= len;
    }
}

/* The values of a rank: ordinary ones, zeros and any bits. */
static void *make_values(const scene *s, unsigned slot, uint32_t rank)
{
    const size_t len = (size_t)s->layout.shape.len, element = gw_dtype_size(s->options.dtype);
    uint8_t *values = gw_fuzz_buffer(slot, len * element, 0);
    uint64_t state = s->values_seed + rank;
    for (size_t i = 0; i < len; i++) {
        const uint64_t x = gw_fuzz_random(&state);
        uint32_t bits = (uint32_t)x;
        if (x >> 32 & 1023) {
            const uint32_t exponent = 120 + (uint32_t)(x >> 48) % 6;
            bits = (bits & 0x807fffffu) | exponent << 23;
        }
        bits = x >> 42 & 3 ? bits : 0;
        bits = s->options.dtype == GW_FP32   ? bits
               : s->options.dtype == GW_BF16 ? bits >> 16
                                             : (bits >> 16 & 0x8fff) | 0x2000;
        for (size_t b = 0; b < element; b++) {
            values[i * element + b] = (uint8_t)(bits >> 8 * b);
        }
    }
    return values;
}

/* What rank `rank` sends: its contribution, or in decode and late hops what others made of theirs. */
static void make_message(scene *s, uint32_t rank)
{
    const size_t bound = gw_collective_message_bound(&s->layout, &s->codec);
    gw_buffer message = {gw_fuzz_buffer(GW_FUZZ_AREA + rank, bound + 64, 0), bound, 0};
    gw_collective_bucket sender = s->bucket;
    sender.rank = rank;
    sender.values = make_values(s, GW_FUZZ_LOCAL, rank);
    /* The finished piece has the quanta of the sum */
    sender.contribution_bits = s->step == STEP_DECODE ? 0 : s->bucket.contribution_bits;
    FUZZ_CHECK(gw_collective_encode(&sender, s->index, &message, &s->workspace) == GW_OK);
    FUZZ_CHECK((message.size == 0) == (s->piece.len == 0) && message.size <= bound);
    s->messages[rank] = (gw_gcomp_frame){.data = message.data, .size = message.size};
}

static void damage(scene *s, gw_fuzz_reader *reader)
{
    const uint8_t what = gw_fuzz_u8(reader);
    const uint32_t rank = what & 3, where = gw_fuzz_u32(reader);
    const size_t bound = gw_collective_message_bound(&s->layout, &s->codec);
    if (rank >= s->layout.shape.rank_count) {
        return;
    }
    uint8_t *data = gw_fuzz_buffer(GW_FUZZ_MUTANT, bound + 64, 0);
    size_t size = s->messages[rank].size;
    memcpy(data, s->messages[rank].data, size);
    switch (what >> 2 & 7) {
    case 0: /* one bit */
        data[size != 0 ? (where >> 3) % size : 0] ^= (uint8_t)(1u << (where & 7));
        break;
    case 1: /* one of the first bytes: header, extension, directory */
        data[size != 0 ? (where & 127) % size : 0] = (uint8_t)(where >> 8);
        break;
    case 2: /* the end is missing */
        size -= size != 0 ? where % size + 1 : 0;
        break;
    case 3: /* something follows */
        size += 1 + (where & 31);
        break;
    case 4: { /* a notice, whose ranks and pieces need not exist */
        const gw_collective_failure failure = {.status = (gw_status)(1 + (where & 127)),
                                               .rank = where >> 8 & 7,
                                               .piece = where >> 12 & 15,
                                               .difference = where >> 16 & 7,
                                               .bad_chunk = where >> 20};
        gw_buffer notice = {data, GW_COLLECTIVE_NOTICE_SIZE, 0};
        FUZZ_CHECK(gw_collective_notice_write(&failure, &notice) == GW_OK);
        size = notice.size;
        data[(where >> 24) % 32] ^= where & 128 ? 1 : 0; /* perhaps a damaged one */
        s->has_notice = 1;
        break;
    }
    case 5: /* a frame of another rank, which is one of this piece too */
        memcpy(data, s->messages[0].data, s->messages[0].size);
        size = s->messages[0].size;
        break;
    default: /* rubbish of the input */
        size = reader->size < bound ? reader->size : bound;
        memcpy(data, reader->data, size);
        break;
    }
    /* Back to the rank's slot, of exact size */
    uint8_t *message = gw_fuzz_buffer(GW_FUZZ_AREA + rank, size, 0);
    memcpy(message, data, size);
    s->messages[rank] = (gw_gcomp_frame){.data = message, .size = size};
    s->is_damaged[rank] = 1;
}

/* The rank that the receiver's only message is from, in hop and decode. */
static uint32_t sender_of(const scene *s)
{
    const uint32_t ranks = s->layout.shape.rank_count;
    return s->step == STEP_HOP ? (s->bucket.rank + ranks - 1) % ranks : s->piece.owner;
}

/* Runs the step with output memory full of `fill`. */
static outcome run(const scene *s, uint32_t backends, unsigned slot, int fill, void **out)
{
    gw_gcomp_options options = s->options;
    gw_gcomp codec;
    outcome o;
    gw_collective_bucket bucket = s->bucket;
    options.backends = backends;
    FUZZ_CHECK(gw_gcomp_init(&codec, &options) == GW_OK);
    bucket.codec = &codec;
    const size_t bound = gw_gcomp_frame_bound(&codec, s->piece.len);
    const size_t values_size = (size_t)s->piece.len * gw_dtype_size(options.dtype);
    const int is_frame = s->step == STEP_REDUCE || s->step == STEP_HOP;
    *out = gw_fuzz_buffer(slot, is_frame ? bound : values_size, fill);
    gw_buffer dst = {*out, bound, 99};
    gw_gcomp_target target = {.values = *out, .capacity = s->piece.len, .len = 99, .scale = s->scale};
    /* Where only this rank's own values are read there need be no messages. */
    const uint32_t ranks = s->layout.shape.rank_count;
    const gw_gcomp_frame *all = ranks == 1 ? NULL : s->messages;
    const int is_first = (bucket.rank + ranks - 1 - s->piece.owner) % ranks == 0;
    const gw_gcomp_frame *left = is_first ? NULL : &s->messages[sender_of(s)];
    memset(&o, 0, sizeof o);
    memset(&o.failure, fill, sizeof o.failure);
    switch (s->step) {
    case STEP_REDUCE:
        o.status = gw_collective_reduce(&bucket, s->index, all, &dst, &o.failure, &s->workspace);
        break;
    case STEP_SUM:
        o.status = gw_collective_sum(&bucket, s->index, all, &target, &o.failure, &s->workspace);
        break;
    case STEP_HOP:
        o.status = gw_collective_hop(&bucket, s->index, left, &dst, &o.failure, &s->workspace);
        break;
    default:
        o.status = gw_collective_decode(&bucket, s->index, &s->messages[sender_of(s)], &target, &o.failure,
                                        &s->workspace);
        break;
    }
    o.size = is_frame ? dst.size : 0;
    o.len = is_frame ? 0 : target.len;
    o.bad_chunk = is_frame ? UINT64_MAX : target.bad_chunk;
    FUZZ_CHECK(o.size <= bound && o.len <= s->piece.len);
    FUZZ_CHECK(o.status == GW_OK || (o.size == 0 && o.len == 0));
    gw_fuzz_buffers_check();
    return o;
}

/* Two runs over memory with different fills: every byte was computed, and is the same, or was not touched. */
static void check_not_stale(const uint8_t *a, const uint8_t *b, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        FUZZ_CHECK(a[i] == b[i] || (a[i] == fills[0] && b[i] == fills[1]));
    }
}

static void check_equal(const outcome *a, const outcome *b)
{
    FUZZ_CHECK(a->status == b->status && a->size == b->size && a->len == b->len);
    FUZZ_CHECK(a->bad_chunk == b->bad_chunk && a->failure.status == b->failure.status);
    FUZZ_CHECK(a->failure.rank == b->failure.rank && a->failure.piece == b->failure.piece);
    FUZZ_CHECK(a->failure.difference == b->failure.difference &&
               a->failure.bad_chunk == b->failure.bad_chunk);
}

/* Whether the scale of a target is one that the steps take: 0 or a normal number. */
static int is_scale_valid(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bits &= 0x7fffffffu;
    return bits == 0 || (bits >= 0x00800000u && bits < 0x7f800000u);
}

static void check_failure(const scene *s, const outcome *o)
{
    int is_read_damaged = 0;
    for (uint32_t r = 0; r < s->layout.shape.rank_count; r++) {
        const int is_read = s->step == STEP_REDUCE || s->step == STEP_SUM
                                ? r != s->bucket.rank
                                : r == sender_of(s) && (s->step == STEP_DECODE || s->hop != 0);
        is_read_damaged |= is_read && s->is_damaged[r];
    }
    FUZZ_CHECK(o->failure.status == o->status);
    const int has_target = s->step == STEP_SUM || s->step == STEP_DECODE;
    if (has_target && !is_scale_valid(s->scale) && s->piece.len != 0) {
        FUZZ_CHECK(o->status != GW_OK);
        return;
    }
    if (!is_read_damaged || s->piece.len == 0) {
        FUZZ_CHECK(o->status == GW_OK);
    }
    if (o->status == GW_OK) {
        FUZZ_CHECK(o->failure.bad_chunk == UINT64_MAX && o->failure.difference == 0);
        return;
    }
    FUZZ_CHECK(o->failure.rank < s->layout.shape.rank_count && o->failure.piece < s->layout.piece_count);
    if (!s->has_notice) {
        FUZZ_CHECK(s->is_damaged[o->failure.rank] && o->failure.piece == s->index);
        FUZZ_CHECK(o->status == GW_ERR_MAP || o->failure.difference == 0);
    }
}

/* The word and the notice of a failure say what it was. */
static void check_word(const gw_collective_failure *failure)
{
    gw_collective_failure read;
    const uint64_t word = gw_collective_word_write(failure);
    gw_collective_word_read(word, &read);
    FUZZ_CHECK((word == 0) == (failure->status == GW_OK) && word >> 63 == 0);
    FUZZ_CHECK((gw_collective_word_outcome(word) == GW_COLLECTIVE_DONE) == (failure->status == GW_OK));
    if (failure->status == GW_OK) {
        return;
    }
    FUZZ_CHECK(read.status == failure->status && read.rank == failure->rank && read.piece == failure->piece);
    uint8_t *bytes = gw_fuzz_buffer(GW_FUZZ_FRAME, GW_COLLECTIVE_NOTICE_SIZE, 0);
    gw_buffer notice = {bytes, GW_COLLECTIVE_NOTICE_SIZE, 0};
    FUZZ_CHECK(gw_collective_notice_write(failure, &notice) == GW_OK);
    FUZZ_CHECK(gw_collective_notice_read(bytes, notice.size, &read) == 1);
    FUZZ_CHECK(read.status == failure->status && read.rank == failure->rank && read.piece == failure->piece);
    FUZZ_CHECK(read.difference == failure->difference && read.bad_chunk == failure->bad_chunk);
}

/* Any 64 bits as a word, any bytes as a notice. */
static void check_any(gw_fuzz_reader *reader)
{
    gw_collective_failure failure;
    const uint64_t low = gw_fuzz_u32(reader), word = low | (uint64_t)gw_fuzz_u32(reader) << 32;
    gw_collective_word_read(word, &failure);
    const int is_word = gw_collective_word_write(&failure) == word;
    FUZZ_CHECK(is_word || (failure.status == GW_ERR_CORRUPT && failure.rank == UINT32_MAX));
    FUZZ_CHECK((gw_collective_word_outcome(word) == GW_COLLECTIVE_DONE) == (word == 0));

    const size_t size = reader->size < 40 ? reader->size : 40;
    uint8_t *bytes = gw_fuzz_buffer(GW_FUZZ_FRAME, size, 0);
    memcpy(bytes, reader->data, size);
    const int is_notice = gw_collective_notice_read(bytes, size, &failure);
    FUZZ_CHECK(is_notice == 1 ? failure.status != GW_OK : is_notice == 0 && failure.status == GW_OK);
    FUZZ_CHECK(!is_notice || size == GW_COLLECTIVE_NOTICE_SIZE || failure.status == GW_ERR_CORRUPT);
    gw_fuzz_buffers_check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const float scales[] = {0.0f, 1.0f, 0.25f, 1.0f / 3.0f, -2.0f, 0x1p-126f, 0x1p100f};
    static scene s;
    gw_fuzz_reader reader = {data, size};
    memset(&s, 0, sizeof s);
    const uint8_t choice = gw_fuzz_u8(&reader), damages = gw_fuzz_u8(&reader) % 4;
    s.step = (step)(choice % STEP_COUNT);
    gw_fuzz_place_at_end(choice >> 2 & 1);
    read_options(&s, &reader);
    FUZZ_CHECK(gw_gcomp_init(&s.codec, &s.options) == GW_OK);
    s.workspace.size = gw_gcomp_workspace_size(&s.codec);
    s.workspace.data = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, s.workspace.size, 0x6b);
    read_layout(&s, &reader);
    make_map(&s, &reader);
    const uint8_t scale = gw_fuzz_u8(&reader);
    const uint32_t scale_bits = gw_fuzz_u32(&reader);
    memcpy(&s.scale, &scale_bits, sizeof s.scale);
    s.scale = scale < 200 ? scales[scale % (sizeof scales / sizeof *scales)] : s.scale;
    s.values_seed = gw_fuzz_u16(&reader);
    make_streams(&s, &reader);

    const uint32_t ranks = s.layout.shape.rank_count;
    s.bucket.layout = &s.layout;
    s.bucket.codec = &s.codec;
    /* Carried quanta come from a map or from a target. */
    const int needs_map = s.options.quantum_mode == GW_GCOMP_DERIVED ||
                          (s.options.quantum_mode == GW_GCOMP_CARRIED && s.options.quantum.nmse == 0.0f);
    s.bucket.map = (choice & 8) || needs_map ? &s.map : NULL;
    s.bucket.contribution_bits = choice >> 4 & 3;
    s.bucket.step_index = 3;
    /* The owner, or in a ring whoever has the piece at this hop */
    s.hop = (uint32_t)(choice >> 6) % ranks;
    s.bucket.rank = s.step == STEP_HOP ? (s.piece.owner + 1 + s.hop) % ranks : s.piece.owner;
    for (uint32_t r = 0; r < ranks; r++) {
        make_message(&s, r);
    }
    for (unsigned i = 0; i < damages; i++) {
        damage(&s, &reader);
    }
    s.bucket.values = make_values(&s, GW_FUZZ_VALUES, s.bucket.rank);

    uint32_t masks[32];
    const unsigned backend_count = gw_fuzz_backends(masks);
    void *first, *again;
    const outcome expected = run(&s, masks[0], GW_FUZZ_DST, fills[0], &first);
    const int is_frame = s.step == STEP_REDUCE || s.step == STEP_HOP;
    const size_t out_size = is_frame ? gw_gcomp_frame_bound(&s.codec, s.piece.len)
                                     : (size_t)s.piece.len * gw_dtype_size(s.options.dtype);
    for (unsigned b = 0; b < backend_count; b++) {
        const outcome other = run(&s, masks[b], GW_FUZZ_DST2, fills[b == 0 ? 1 : 0], &again);
        check_equal(&expected, &other);
        if (b == 0) {
            check_not_stale(first, again, out_size);
        } else {
            FUZZ_CHECK(memcmp(first, again, is_frame ? expected.size : out_size) == 0);
        }
    }
    check_failure(&s, &expected);
    check_word(&expected.failure);
    check_any(&reader);
    return 0;
}
