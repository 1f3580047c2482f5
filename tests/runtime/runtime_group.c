/*
 * All ranks of a collective in one process: see runtime_group.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_group.h"

#include <sched.h>

enum { PIECE_LEN = 1 << 12 };

/* For checks in threads that cmocka does not know. */
static void must(int holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "%s\n", what);
        abort();
    }
}

/* ------------ making ------------ */

static void *allocate(size_t count, size_t size)
{
    void *data = calloc(count, size);
    must(data != NULL, "no memory");
    return data;
}

static float *random_floats(uint64_t len, uint64_t seed, double scale, int positive)
{
    float *x = allocate((size_t)len, sizeof *x);
    test_random random = {seed};
    for (size_t i = 0; i < len; i++) {
        double value = scale * test_random_normal(&random);
        x[i] = (float)(positive ? value * value : value);
    }
    return x;
}

static void make_state(group *g)
{
    const uint64_t len = g->setup.len;
    g->param = random_floats(len, 1, 0.1, 0);
    g->m = random_floats(len, 2, 1e-3, 0);
    g->v = random_floats(len, 3, 1e-3, 1);
    gw_optimizer optimizer = {.kind = GW_OPTIMIZER_ADAMW,
                              .step = 5,
                              .lr = 1e-3,
                              .weight_decay = 0.01,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8};
    gw_gcomp_map_limits limits = {.tolerance_bits = 12};
    assert_int_equal(gw_gcomp_map_rule_init(&optimizer, (float)g->setup.ranks, &limits, &g->rule), GW_OK);
    /* Three parameters with padding between them. */
    const uint64_t first[GROUP_PARAMS] = {0, len / 3, len / 2};
    const uint64_t lens[GROUP_PARAMS] = {len / 3 - 1, len / 10, len - len / 2};
    for (size_t i = 0; i < GROUP_PARAMS; i++) {
        g->segment[i] = (gw_collective_segment){
            .offset = first[i],
            .len = lens[i],
            .rule = &g->rule,
            .state = {.param = g->param + first[i], .m = g->m + first[i], .v = g->v + first[i]},
            .seed = 100 + i};
    }
    g->segments = (gw_collective_segments){g->segment, GROUP_PARAMS};
}

/* A buffer of the transport. */
typedef struct block {
    group_rank *rank;
    size_t size;
    atomic_uint users;
    _Alignas(16) uint8_t data[];
} block;

static void *block_make(group_rank *rank, uint32_t users, size_t size)
{
    block *made = malloc(sizeof *made + size);
    must(made != NULL, "no memory");
    made->rank = rank;
    made->size = size;
    atomic_init(&made->users, users);
    (void)atomic_fetch_add(&rank->blocks, 1);
    return made->data;
}

static void *take(void *context, gw_runtime_event_kind kind, size_t size)
{
    group_rank *rank = context;
    const group_setup *setup = &rank->group->setup;
    uint32_t number = atomic_fetch_add(&rank->takes, 1) + 1;
    if (rank->rank == setup->poor_rank && number == setup->poor_take) {
        return NULL;
    }
    return block_make(rank, kind == GW_RUNTIME_SHARE ? 2 : 1, size);
}

static void release(void *context, void *data)
{
    block *found = (block *)(void *)((uint8_t *)data - offsetof(block, data));
    must(found->rank == context, "a buffer of another rank is released");
    uint32_t users = atomic_fetch_sub(&found->users, 1);
    must(users > 0 && users < 3, "a buffer is released too often");
    if (users == 1) {
        memset(data, 0xee, found->size); /* who still reads it fails */
        (void)atomic_fetch_sub(&found->rank->blocks, 1);
        free(found);
    }
}

/* ------------ steps ------------ */

static int is_message(const gw_gcomp_frame *message, size_t size, gw_collective_failure *failure)
{
    if (message->size != size) {
        must(gw_collective_notice_read(message->data, message->size, failure), "neither values nor a notice");
    }
    return message->size == size;
}

/* Own values and those of the messages, in the order of the ranks. */
static int add_values(const group_rank *rank, const gw_collective_piece *piece, gw_exchange_step *step,
                      float *sums)
{
    size_t size = (size_t)piece->len * sizeof *sums;
    for (uint32_t r = 0; r < rank->group->setup.ranks; r++) {
        const float *values = rank->values + piece->first;
        if (r != rank->rank) {
            values = step->messages[r].data;
            if (!is_message(&step->messages[r], size, &step->failure)) {
                return 0;
            }
        }
        for (size_t i = 0; i < piece->len; i++) {
            sums[i] = r == 0 ? values[i] : sums[i] + values[i];
        }
    }
    return 1;
}

static void values_step(void *context, gw_exchange_step *step, const gw_workspace *workspace)
{
    const group_rank *rank = context;
    const group_setup *setup = &rank->group->setup;
    gw_collective_piece piece;
    must(gw_collective_piece_at(&rank->group->layout, step->piece, &piece) == GW_OK, "a piece that is not");
    must(step->failure.rank == rank->rank && step->failure.piece == step->piece, "a failure of another step");
    size_t size = (size_t)piece.len * sizeof(float);
    uint64_t first = 0, len = 0;
    if (setup->flags & GW_EXCHANGE_SCATTER) {
        must(gw_collective_shard_at(&rank->group->layout, rank->rank, &first, &len) == GW_OK, "no shard");
    }
    if (setup->failing_rank_1 == rank->rank + 1 && setup->failing_kind == step->kind &&
        setup->failing_piece == step->piece) {
        step->failure.status = GW_ERR_NONFINITE;
        return;
    }
    float sums[PIECE_LEN];
    int is_good = 1;
    step->dst.size = size;
    if (step->kind == GW_EXCHANGE_ENCODE) {
        memcpy(step->dst.data, rank->values + piece.first, size);
    } else if (step->kind == GW_EXCHANGE_DECODE) {
        is_good = is_message(step->messages, size, &step->failure);
        memcpy(rank->result + piece.first, is_good ? step->messages->data : sums, is_good ? size : 0);
    } else {
        is_good = add_values(rank, &piece, step, sums);
        void *to = step->kind == GW_EXCHANGE_REDUCE ? step->dst.data : rank->result + piece.first - first;
        memcpy(to, sums, is_good ? size : 0);
    }
    step->failure.status = is_good ? GW_OK : step->failure.status;
    must(workspace->data != NULL, "no workspace");
}

gw_exchange_config group_config(const group *g, uint32_t rank)
{
    const group_setup *setup = &g->setup;
    gw_exchange_config config = {.shape = {.len = setup->len,
                                           .rank_count = setup->ranks,
                                           .chunk_log2 = setup->chunk_log2 ? setup->chunk_log2 : 12,
                                           .shard_len = setup->shard_len,
                                           .piece_len = PIECE_LEN},
                                 .rank = rank,
                                 .contribution_bits = setup->contribution_bits,
                                 .user = rank + 1,
                                 .seed = 7,
                                 .segment_max = setup->has_maps ? GROUP_PARAMS : 0,
                                 .algorithm = setup->algorithm};
    config.codebooks = (uint32_t)setup->has_codebooks;
    gw_gcomp_options_init(&config.codec, GW_FP32);
    config.codec.quantum_mode = setup->is_explicit ? GW_GCOMP_EXPLICIT
                                : setup->has_maps  ? GW_GCOMP_DERIVED
                                                   : GW_GCOMP_CARRIED;
    config.codec.rounding = GW_GCOMP_STOCHASTIC;
    config.codec.tolerance_bits = 12;
    config.codec.chunk_log2 = config.shape.chunk_log2;
    config.codec.checksum = 1;
    if (!setup->is_explicit) {
        config.codec.quantum = gw_gcomp_quantum_of_nmse(setup->has_maps ? 0 : 1e-3f);
    }
    config.fallback_codec = config.codec;
    config.fallback_codec.quantum_mode = GW_GCOMP_CARRIED;
    config.fallback_codec.dead_zone = 1;
    config.fallback_codec.quantum = gw_gcomp_quantum_of_nmse(setup->has_maps ? 0 : 1e-2f);
    if (setup->has_buffers) {
        config.buffers = (gw_exchange_buffers){take, release, (void *)(uintptr_t)&g->rank[rank]};
    }
    if (setup->has_steps) {
        config.steps = (gw_exchange_steps){
            .run = values_step, .context = (void *)(uintptr_t)&g->rank[rank], .message_bound = 4 * PIECE_LEN};
    }
    return config;
}

gw_runtime *group_open_runtime(uint32_t threads)
{
    gw_runtime *runtime = NULL;
    gw_runtime_options options = {.thread_count = threads};
    assert_int_equal(gw_runtime_open(&options, &runtime), GW_OK);
    assert_int_equal(gw_runtime_thread_count(runtime), threads);
    return runtime;
}

static void make_rank(group *g, uint32_t r)
{
    group_rank *rank = &g->rank[r];
    rank->group = g;
    rank->rank = r;
    gw_exchange_config config = group_config(g, r);
    assert_int_equal(gw_exchange_open(g->runtime, &config, &rank->exchange), GW_OK);
    gw_exchange_info info;
    gw_exchange_info_get(rank->exchange, &info);
    assert_int_equal(info.memory_size == 0, g->setup.has_buffers);
    g->layout = info.layout;
    rank->memory = allocate((size_t)info.memory_size + 1, 1);
    if (!g->setup.has_buffers) {
        gw_exchange_memory(rank->exchange, rank->memory);
    }
    rank->share_left = allocate(info.layout.piece_count, sizeof *rank->share_left);
    rank->values = random_floats(g->setup.len, 50 + r, 1e-3, 0);
    rank->apart = allocate((size_t)g->setup.len, sizeof *rank->apart);
    uint64_t first = 0, len = 0;
    assert_int_equal(gw_collective_shard_at(&g->layout, r, &first, &len), GW_OK);
    if (g->setup.place == PLACE_APART) {
        rank->result = rank->apart;
    } else if (g->setup.place == PLACE_FRONT || !(g->setup.flags & GW_EXCHANGE_SCATTER)) {
        rank->result = rank->values;
    } else {
        rank->result = rank->values + first;
    }
}

static void make_workspace(gw_workspace *workspace)
{
    *workspace = (gw_workspace){allocate(1, (size_t)9 << 17), (size_t)9 << 17};
}

static void *help(void *argument)
{
    group *g = argument;
    gw_workspace workspace;
    make_workspace(&workspace);
    while (!atomic_load(&g->helpers_end)) {
        if (!gw_runtime_work(g->runtime, &workspace)) {
            (void)sched_yield();
        }
    }
    free(workspace.data);
    return NULL;
}

void group_make(group *g, const group_setup *setup)
{
    memset(g, 0, sizeof *g);
    g->setup = *setup;
    g->random.state = setup->seed;
    g->runtime = group_open_runtime(setup->threads);
    make_workspace(&g->workspace);
    make_state(g);
    for (uint32_t r = 0; r < setup->ranks; r++) {
        make_rank(g, r);
    }
    g->parcels = allocate((size_t)2 * setup->ranks * g->layout.piece_count, sizeof *g->parcels);
    for (int i = 0; i < GROUP_HELPERS && setup->has_helpers; i++) {
        assert_int_equal(pthread_create(&g->helper[i], NULL, help, g), 0);
    }
}

void group_free(group *g)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        group_stop(g, r);
        gw_exchange_close(g->rank[r].exchange);
        assert_int_equal(atomic_load(&g->rank[r].blocks), 0);
        free(g->rank[r].memory);
        free(g->rank[r].values);
        free(g->rank[r].apart);
        free(g->rank[r].share_left);
    }
    atomic_store(&g->helpers_end, 1);
    for (int i = 0; i < GROUP_HELPERS && g->setup.has_helpers; i++) {
        assert_int_equal(pthread_join(g->helper[i], NULL), 0);
    }
    gw_runtime_close(g->runtime);
    free(g->workspace.data);
    free(g->parcels);
    free(g->param);
    free(g->m);
    free(g->v);
}

/* ------------ transport ------------ */

/* One receiver less waits for the message. */
static void parcel_end(group *g, const group_parcel *parcel)
{
    group_rank *from = &g->rank[parcel->from];
    int last = parcel->kind == GW_RUNTIME_SEND || --from->share_left[parcel->piece] == 0;
    if (last && g->setup.has_buffers && !parcel->is_notice) {
        release(from, parcel->data);
    }
}

/* The rank that has made a message. */
static uint32_t maker(const group *g, const group_parcel *parcel)
{
    return parcel->kind == GW_RUNTIME_SHARE ? parcel->piece / g->layout.shard_pieces : parcel->from;
}

/* 1 for the receiver alone; 2 if it passes the message on. */
static uint32_t users_of(const group *g, const group_parcel *parcel)
{
    const uint32_t right = (parcel->to + 1) % g->setup.ranks;
    const int passes_on = right != parcel->piece / g->layout.shard_pieces;
    return g->setup.algorithm == GW_EXCHANGE_RING && parcel->kind == GW_RUNTIME_SHARE && passes_on ? 2 : 1;
}

static int is_damaged(const group_setup *setup, const group_parcel *parcel)
{
    return parcel->kind == setup->damage_kind && parcel->piece == setup->damage_piece &&
           (setup->damage_from_1 == 0 || setup->damage_from_1 == parcel->from + 1);
}

/* Bytes that the receiver gets. */
static size_t size_received(const group *g, const group_parcel *parcel)
{
    gw_exchange_info info;
    if (!is_damaged(&g->setup, parcel) || g->setup.damage == DAMAGE_BIT) {
        return parcel->size;
    }
    gw_exchange_info_get(g->rank[parcel->to].exchange, &info);
    return g->setup.damage == DAMAGE_EMPTY ? 0 : (size_t)info.message_bound + 1;
}

/* gw_exchange_receive() of a copy. */
static gw_status receive_copy(group *g, const group_parcel *parcel)
{
    group_rank *to = &g->rank[parcel->to];
    const uint32_t from = maker(g, parcel), users = users_of(g, parcel);
    const size_t size = size_received(g, parcel);
    gw_status status;
    void *data;
    if (g->setup.has_buffers) {
        data = block_make(to, users, size > parcel->size ? size : parcel->size);
    } else {
        data = to->memory + gw_exchange_buffer_offset(to->exchange, parcel->piece, from);
    }
    memcpy(data, parcel->data, parcel->size);
    if (is_damaged(&g->setup, parcel) && g->setup.damage == DAMAGE_BIT) {
        ((uint8_t *)data)[parcel->size / 2] ^= 0x10;
    }
    if (g->setup.has_buffers) {
        status = gw_exchange_receive(to->exchange, parcel->piece, from, data, size);
        for (uint32_t i = 0; status != GW_OK && i < users; i++) {
            release(to, data);
        }
    } else {
        size_t told = test_random_below(&g->random, 2) ? parcel->size : 0;
        status = gw_exchange_receive(to->exchange, parcel->piece, from, NULL, told);
    }
    to->received_size += status == GW_OK ? size : 0;
    return status;
}

/* A message comes twice, or from nowhere: it is refused, whatever runs. */
static void receive_twice(group *g, const group_parcel *parcel)
{
    group_rank *to = &g->rank[parcel->to];
    const uint32_t own = parcel->to * g->layout.shard_pieces;
    uint8_t data[64] = {0};
    void *place = g->setup.has_buffers ? data : NULL;
    size_t size = g->setup.has_buffers ? sizeof data : 0;
    const uint32_t from = maker(g, parcel);
    assert_int_equal(gw_exchange_receive(to->exchange, parcel->piece, from, place, size), GW_ERR_STATE);
    assert_int_equal(gw_exchange_receive(to->exchange, own, parcel->to, place, size), GW_ERR_ARG);
    assert_int_equal(gw_exchange_receive(to->exchange, own, g->setup.ranks, place, size), GW_ERR_ARG);
    assert_int_equal(gw_exchange_receive(to->exchange, g->layout.piece_count, 0, place, size), GW_ERR_ARG);
    assert_int_equal(gw_exchange_receive(to->exchange, parcel->piece, from, place ? NULL : data, sizeof data),
                     GW_ERR_ARG);
}

static int is_lost(const group *g, uint32_t rank)
{
    return rank + 1 == g->setup.lost_rank_1;
}

static void deliver(group *g, size_t index)
{
    const group_parcel parcel = g->parcels[index];
    g->parcels[index] = g->parcels[--g->parcel_count];
    if (!is_lost(g, parcel.from) && !is_lost(g, parcel.to)) {
        const int is_stopped = g->rank[parcel.to].is_stopped;
        assert_int_equal(receive_copy(g, &parcel), is_stopped ? GW_ERR_STATE : GW_OK);
        if (test_random_below(&g->random, 4) == 0) {
            receive_twice(g, &parcel);
        }
    }
    parcel_end(g, &parcel);
}

static void send(group *g, const gw_runtime_event *event, uint32_t from, uint32_t to)
{
    gw_exchange_info info;
    gw_exchange_info_get(g->rank[from].exchange, &info);
    must(event->size > 0 && event->size <= info.message_bound, "a message of a size that none has");
    g->rank[from].sent_size += event->size;
    /* Without buffers as transports read it that send out of the memory; notices are made there, too. */
    void *data = g->setup.has_buffers ? event->data : g->rank[from].memory + event->offset;
    g->parcels[g->parcel_count++] = (group_parcel){.from = from,
                                                   .to = to,
                                                   .piece = event->piece,
                                                   .kind = event->kind,
                                                   .data = data,
                                                   .size = (size_t)event->size,
                                                   .is_notice = event->word != 0};
}

static void handle(group *g, const gw_runtime_event *event)
{
    group_rank *rank = &g->rank[event->user - 1];
    if (event->kind == GW_RUNTIME_SEND) {
        send(g, event, rank->rank, event->peer);
    } else if (event->kind == GW_RUNTIME_SHARE) {
        rank->share_left[event->piece] = event->peer == GW_RUNTIME_ALL ? g->setup.ranks - 1 : 1;
        for (uint32_t to = 0; to < g->setup.ranks; to++) {
            if (to != rank->rank && (event->peer == GW_RUNTIME_ALL || event->peer == to)) {
                send(g, event, rank->rank, to);
            }
        }
        if (g->setup.ranks == 1 && g->setup.has_buffers && event->word == 0) {
            release(rank, event->data);
        }
    } else if (event->kind == GW_RUNTIME_MAP || event->kind == GW_RUNTIME_CODEBOOKS) {
        rank->map_word = event->word;
        rank->maps++;
    } else {
        assert_int_equal(event->kind, GW_RUNTIME_DONE);
        rank->word = event->word;
        rank->done++;
    }
}

static int is_ended(const group *g, int of_maps)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        const group_rank *rank = &g->rank[r];
        if (of_maps ? !rank->maps : !rank->done && !rank->is_stopped && !is_lost(g, r)) {
            return 0;
        }
    }
    return of_maps || g->parcel_count == 0;
}

/* Whether something moved. May wait if nothing is on its way. */
static int pump_round(group *g, int timeout_ms)
{
    gw_runtime_event events[8];
    size_t capacity = 1 + test_random_below(&g->random, 8);
    size_t count = gw_runtime_wait(g->runtime, events, capacity, g->parcel_count > 0 ? 0 : timeout_ms);
    for (size_t i = 0; i < count; i++) {
        handle(g, &events[i]);
    }
    int moved = count > 0 || g->parcel_count > 0;
    if (g->parcel_count > 0 && test_random_below(&g->random, 3) > 0) {
        deliver(g, test_random_below(&g->random, (uint32_t)g->parcel_count));
    }
    if (g->setup.threads == 0 && !g->setup.has_helpers) {
        moved |= gw_runtime_work(g->runtime, &g->workspace);
    }
    return moved;
}

static int pump(group *g, uint32_t rounds, int of_maps)
{
    const int works_here = g->setup.threads == 0 && !g->setup.has_helpers;
    int may_end = g->setup.lost_rank_1 != 0; /* before all is done, as messages are missing */
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        may_end |= g->rank[r].is_stopped;
    }
    for (uint32_t i = 0; i < rounds || rounds == 0; i++) {
        if (is_ended(g, of_maps)) {
            return 1;
        }
        if (!pump_round(g, works_here ? 0 : may_end ? 200 : 60000)) {
            return 0;
        }
    }
    return 0;
}

int group_pump(group *g, uint32_t rounds)
{
    return pump(g, rounds, 0);
}

void group_build_maps(group *g)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        g->rank[r].maps = 0;
        assert_int_equal(gw_exchange_map_start(g->rank[r].exchange, &g->segments, (float)g->setup.ranks),
                         GW_OK);
    }
    assert_true(pump(g, 0, 1));
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        assert_int_equal(g->rank[r].map_word, 0);
    }
}

void group_build_other_map(group *g, uint32_t rank)
{
    const float param = g->param[0];
    g->param[0] = 4 * param + 1;
    g->rank[rank].maps = 0;
    assert_int_equal(gw_exchange_map_start(g->rank[rank].exchange, &g->segments, (float)g->setup.ranks),
                     GW_OK);
    assert_true(pump(g, 0, 1));
    assert_int_equal(g->rank[rank].map_word, 0);
    g->param[0] = param;
}

void group_start(group *g)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        group_rank *rank = &g->rank[r];
        gw_exchange_run run = {.values = rank->values,
                               .result = rank->result,
                               .scale = 1.0f / (float)g->setup.ranks,
                               .step_index = 5,
                               .flags = g->setup.flags};
        rank->done = 0;
        memset(rank->apart, 0xff, (size_t)g->setup.len * sizeof *rank->apart); /* not the last results */
        assert_int_equal(gw_exchange_start(rank->exchange, &run), GW_OK);
    }
}

void group_stop(group *g, uint32_t r)
{
    group_rank *rank = &g->rank[r];
    gw_exchange_stop(rank->exchange);
    rank->is_stopped = 1;
    for (size_t i = g->parcel_count; i-- > 0;) {
        if (g->parcels[i].from == r) {
            const group_parcel parcel = g->parcels[i];
            g->parcels[i] = g->parcels[--g->parcel_count];
            parcel_end(g, &parcel);
        }
    }
}

void group_count_codebooks(group *g)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        g->rank[r].maps = 0;
        assert_int_equal(gw_exchange_codebooks_count(g->rank[r].exchange), GW_OK);
    }
    assert_true(pump(g, 0, 1));
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        assert_int_equal(g->rank[r].map_word, 0);
    }
}

/* ------------ reference ------------ */

typedef struct reference {
    gw_exchange_config config;
    gw_collective_layout layout;
    gw_gcomp codec;
    gw_collective_map map;
    gw_gcomp_segment streams[2 * GROUP_PARAMS + 1];
    size_t stream_count;
    uint8_t *messages;
    size_t bound;
    float *result;
} reference;

static void reference_map(const group *g, reference *ref)
{
    uint32_t top = 0, map_byte = 0;
    for (uint32_t i = 0; i < ref->layout.piece_count; i++) {
        uint32_t piece_top = 0;
        assert_int_equal(gw_collective_map_scan(&ref->layout, i, &g->segments, GW_BACKEND_ALL, &piece_top),
                         GW_OK);
        top = piece_top > top ? piece_top : top;
    }
    ref->map.base = gw_gcomp_map_base(top);
    ref->map.wire_scale = (float)g->setup.ranks;
    ref->map.bytes = allocate((size_t)g->setup.len, 1);
    ref->map.digest = allocate((size_t)gw_collective_digest_len(&ref->layout), sizeof *ref->map.digest);
    for (uint32_t i = 0; i < ref->layout.piece_count; i++) {
        assert_int_equal(
            gw_collective_map_build(&ref->layout, i, &g->segments, GW_BACKEND_ALL, &ref->map, &map_byte),
            GW_OK);
    }
    assert_int_equal(gw_collective_streams(&ref->layout, &g->segments, ref->streams, 2 * GROUP_PARAMS + 1,
                                           &ref->stream_count),
                     GW_OK);
}

static gw_collective_bucket reference_bucket(const group *g, const reference *ref, uint32_t rank)
{
    return (gw_collective_bucket){.layout = &ref->layout,
                                  .codec = &ref->codec,
                                  .map = g->setup.has_maps ? &ref->map : NULL,
                                  .values = g->rank[rank].values,
                                  .rank = rank,
                                  .step_index = 5,
                                  .seed = ref->config.seed,
                                  .contribution_bits = g->setup.contribution_bits,
                                  .streams = ref->streams,
                                  .stream_count = ref->stream_count};
}

/* From the rank after the owner to the owner. */
static void reference_ring(const group *g, reference *ref, uint32_t index, const gw_collective_piece *piece)
{
    gw_gcomp_target target = {
        .values = ref->result + piece->first, .capacity = piece->len, .scale = 1.0f / (float)g->setup.ranks};
    gw_collective_failure failure;
    gw_gcomp_frame message = {0};
    for (uint32_t hop = 0; hop < g->setup.ranks; hop++) {
        const uint32_t rank = (piece->owner + 1 + hop) % g->setup.ranks;
        const gw_collective_bucket bucket = reference_bucket(g, ref, rank);
        gw_buffer dst = {ref->messages + rank * ref->bound, ref->bound, 0};
        if (rank == piece->owner && (g->setup.flags & GW_EXCHANGE_SCATTER)) {
            assert_int_equal(
                gw_collective_hop_sum(&bucket, index, &message, &target, &failure, &g->workspace), GW_OK);
            return;
        }
        assert_int_equal(gw_collective_hop(&bucket, index, &message, &dst, &failure, &g->workspace), GW_OK);
        message = (gw_gcomp_frame){.data = dst.data, .size = dst.size};
    }
    const gw_collective_bucket bucket = reference_bucket(g, ref, piece->owner);
    assert_int_equal(gw_collective_decode(&bucket, index, &message, &target, &failure, &g->workspace), GW_OK);
}

static void reference_piece(const group *g, reference *ref, uint32_t index)
{
    gw_collective_piece piece;
    assert_int_equal(gw_collective_piece_at(&ref->layout, index, &piece), GW_OK);
    if (piece.len == 0) {
        return;
    }
    if (g->setup.algorithm == GW_EXCHANGE_RING && g->setup.ranks > 1) {
        reference_ring(g, ref, index, &piece);
        return;
    }
    gw_gcomp_frame frames[GROUP_RANKS_MAX + 1] = {{0}};
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        gw_collective_bucket bucket = reference_bucket(g, ref, r);
        gw_buffer dst = {ref->messages + r * ref->bound, ref->bound, 0};
        if (r != piece.owner) {
            assert_int_equal(gw_collective_encode(&bucket, index, &dst, &g->workspace), GW_OK);
            frames[r] = (gw_gcomp_frame){.data = dst.data, .size = dst.size};
        }
    }
    gw_collective_bucket bucket = reference_bucket(g, ref, piece.owner);
    gw_buffer dst = {ref->messages + g->setup.ranks * ref->bound, ref->bound, 0};
    gw_gcomp_target target = {
        .values = ref->result + piece.first, .capacity = piece.len, .scale = 1.0f / (float)g->setup.ranks};
    gw_collective_failure failure;
    if (g->setup.flags & GW_EXCHANGE_SCATTER) {
        assert_int_equal(gw_collective_sum(&bucket, index, frames, &target, &failure, &g->workspace), GW_OK);
        return;
    }
    assert_int_equal(gw_collective_reduce(&bucket, index, frames, &dst, &failure, &g->workspace), GW_OK);
    gw_gcomp_frame finished = {.data = dst.data, .size = dst.size};
    assert_int_equal(gw_collective_decode(&bucket, index, &finished, &target, &failure, &g->workspace),
                     GW_OK);
}

float *group_reference(const group *g)
{
    reference ref = {.config = group_config(g, 0), .layout = g->layout};
    const int is_fallback = (g->setup.flags & GW_EXCHANGE_FALLBACK) != 0;
    assert_int_equal(gw_gcomp_init(&ref.codec, is_fallback ? &ref.config.fallback_codec : &ref.config.codec),
                     GW_OK);
    ref.result = allocate((size_t)g->setup.len, sizeof *ref.result);
    for (size_t i = 0; i < g->setup.len && g->setup.has_steps; i++) {
        ref.result[i] = g->rank[0].values[i];
        for (uint32_t r = 1; r < g->setup.ranks; r++) {
            ref.result[i] += g->rank[r].values[i];
        }
    }
    if (g->setup.has_steps) {
        return ref.result;
    }
    ref.bound = gw_collective_message_bound(&ref.layout, &ref.codec);
    ref.messages = allocate(g->setup.ranks + 1, ref.bound);
    if (g->setup.has_maps) {
        reference_map(g, &ref);
    }
    for (uint32_t i = 0; i < ref.layout.piece_count; i++) {
        reference_piece(g, &ref, i);
    }
    free(ref.messages);
    free(ref.map.bytes);
    free(ref.map.digest);
    return ref.result;
}

void group_check(const group *g, const float *expected)
{
    for (uint32_t r = 0; r < g->setup.ranks; r++) {
        uint64_t first = 0, len = g->setup.len;
        if (g->setup.flags & GW_EXCHANGE_SCATTER) {
            assert_int_equal(gw_collective_shard_at(&g->layout, r, &first, &len), GW_OK);
        }
        assert_int_equal(g->rank[r].word, 0);
        assert_memory_equal(g->rank[r].result, expected + first, (size_t)len * sizeof *expected);
    }
}
