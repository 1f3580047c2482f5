/*
 * Jobs of a parameter server: who takes part, within which limits, and when a job may begin.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_serve.h"

#include <stdlib.h>
#include <string.h>

#define COOKIE_S 60.0 /* a cookie is good for once to twice as long */
#define SHORT_S  60.0 /* without packets: for jobs that nobody can be waiting for */
#define LEFT_S   10.0 /* the same for a job that cannot go on; workers ask for a result at least every 3 s */
#define FILL_S   8.0  /* in which all of the memory may be given to new jobs once */

#define HOST_SHARE 64.0 /* so small a share of the replies is a host's own */

enum { JOB_LATER = 1000 }; /* beside the reasons of a refusal: no answer, a worker joins again */

/* ---- SipHash-2-4 (Aumasson and Bernstein), so that nobody can make up a cookie ---- */

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

/* Of whole words. */
static uint64_t sip_hash(const uint64_t key[2], const uint64_t *words, size_t len)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
                     key[1] ^ 0x7465646279746573u};
    for (size_t i = 0; i <= len; i++) {
        const uint64_t word =
            i < len ? words[i] : (uint64_t)len << 59; /* the size in bytes, modulo 256, on top */
        v[3] ^= word;
        sip_round(v);
        sip_round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

int thc_peer_equal(const thc_peer *a, const thc_peer *b)
{
    return a->connection == b->connection && a->size == b->size &&
           memcmp(a->address, b->address, sizeof a->address) == 0;
}

int thc_job_has(const thc_job *job, uint32_t rank, const thc_peer *peer)
{
    return job != NULL && rank < job->options.worker_max && job->workers[rank].has_joined &&
           thc_peer_equal(&job->workers[rank].peer, peer);
}

/* What only the sender at this address can know, and only once it was sent there in this time. Never 0. */
static uint64_t cookie_of(const thc_serve *serve, const thc_peer *peer, const gw_thc_message *m,
                          uint64_t period)
{
    uint64_t words[7] = {(uint64_t)m->job << 32 | (uint64_t)m->rank << 16 | peer->size, m->options_hash};
    memcpy(words + 2, peer->address, sizeof peer->address);
    words[6] = period;
    return sip_hash(serve->secret, words, 7) | 1u;
}

static int has_cookie(const thc_serve *serve, const thc_peer *peer, const gw_thc_message *m, uint64_t period)
{
    return m->cookie == cookie_of(serve, peer, m, period) ||
           (period > 0 && m->cookie == cookie_of(serve, peer, m, period - 1));
}

static uint64_t epoch_new(thc_serve *serve)
{
    const uint64_t words[2] = {0x65706f6368u, ++serve->epochs};
    return sip_hash(serve->secret, words, 2) | 1u;
}

/* ---- the server ---- */

thc_serve *thc_serve_create(const thc_serve_limits *limits, const uint64_t secret[2], thc_send *send,
                            void *context)
{
    thc_serve *serve = calloc(1, sizeof *serve);
    thc_job **jobs = calloc(limits->jobs_max, sizeof(thc_job *));
    if (serve == NULL || jobs == NULL) {
        free(serve);
        free(jobs);
        return NULL;
    }
    serve->limits = *limits;
    serve->secret[0] = secret[0];
    serve->secret[1] = secret[1];
    serve->send = send;
    serve->context = context;
    serve->jobs = jobs;
    serve->replies[0].credit = serve->replies[1].credit = limits->replies_max;
    serve->memory_credit = (double)limits->memory_max;
    return serve;
}

static void job_free(thc_job *job)
{
    for (int op = 0; op < 2; op++) {
        free(job->slots[op]);
        free(job->memory[op]);
    }
    free(job->workers);
    free(job);
}

static void job_remove(thc_serve *serve, thc_job *job)
{
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        if (serve->jobs[i] == job) {
            serve->jobs[i] = NULL;
        }
    }
    serve->memory_size -= job->memory_size;
    job_free(job);
}

void thc_serve_free(thc_serve *serve)
{
    if (serve != NULL) {
        for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
            if (serve->jobs[i] != NULL) {
                job_free(serve->jobs[i]);
            }
        }
        free(serve->jobs);
        free(serve);
    }
}

thc_job *thc_serve_job(thc_serve *serve, uint32_t number)
{
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        if (serve->jobs[i] != NULL && serve->jobs[i]->options.job == number) {
            return serve->jobs[i];
        }
    }
    return NULL;
}

void thc_serve_send(thc_serve *serve, const thc_peer *to, const uint8_t *packet, size_t packet_size)
{
    if (to->size != 0) {
        serve->counts.sent++;
        serve->counts.sent_size += packet_size;
        serve->send(serve->context, to, packet, packet_size);
    }
}

void thc_serve_refuse(thc_serve *serve, gw_status status)
{
    serve->counts.refused[(unsigned)status < THC_STATUS_MAX ? (unsigned)status : 0]++;
}

/* So many more replies a second, at most `most` at once. */
static void credit_fill(thc_credit *c, double most, double now)
{
    c->credit += (now - c->time) * most;
    c->credit = c->credit < most ? c->credit : most;
    c->time = now;
}

/* Where the host's own share is counted; it may be another's, too. Nobody can choose one to meet another's.
 */
static thc_credit *host_credit(thc_serve *serve, const thc_peer *peer)
{
    return &serve->hosts[sip_hash(serve->secret, &peer->host, 1) % THC_HOSTS];
}

/*
 * While more than half of the replies are left, all may have them. Then a host gets no more than its own
 * share, so that one host does not take those of others. Who forges senders' addresses may take all that are
 * for senders which have proved nothing: then a packet's chance is that of replies to packets.
 */
int thc_serve_may_reply(thc_serve *serve, const thc_peer *to, int has_proved, double now)
{
    const double most = serve->limits.replies_max;
    const double share = most > HOST_SHARE ? most / HOST_SHARE : 1;
    thc_credit *all = &serve->replies[has_proved], *own = host_credit(serve, to);
    credit_fill(all, most, now);
    credit_fill(own, share, now);
    if (all->credit < 1 || (all->credit <= most / 2 && own->credit < 1)) {
        serve->counts.limited++;
        return 0;
    }
    all->credit -= 1;
    own->credit -= own->credit < 1 ? 0 : 1;
    return 1;
}

void thc_serve_answer(thc_serve *serve, const thc_job *job, const thc_peer *to, const gw_thc_message *message)
{
    uint8_t bytes[GW_THC_MESSAGE_SIZE];
    gw_thc_message m = *message;
    if (m.type == GW_THC_MESSAGE_WELCOME) {
        m.reason = (uint16_t)job->joined;
        m.epoch = job->epoch;
        m.detail = job->blocks[THC_SUMS] | job->blocks[THC_NORMS] << 16;
    } else if (m.type == GW_THC_MESSAGE_REFUSED && thc_job_has(job, m.rank, to)) {
        m.epoch = job->epoch; /* so that it can leave the job, which it has not been welcomed to */
    }
    gw_thc_message_write(bytes, &m);
    thc_serve_send(serve, to, bytes, sizeof bytes);
}

/* ---- making a job ---- */

/* Blocks of a packet: as many as fit, and of norms a multiple of those of sums. */
static void packets_choose(thc_job *job, uint32_t packet_max)
{
    const gw_thc_message *o = &job->options;
    const uint64_t head = GW_THC_PACKET_HEADER_SIZE + GW_THC_SET_SIZE(o->worker_max);
    const uint64_t room = packet_max > head ? packet_max - head : 0;
    uint64_t sums = room / (((uint64_t)1 << o->block_log2) * o->lane_bits / 8);
    sums = sums < 1 ? 1 : sums;
    uint64_t norms = room / (4u * (uint64_t)o->patterns_per_block);
    norms = norms < 65535 ? norms : 65535;
    norms = norms < sums ? sums : norms / sums * sums;
    job->blocks[THC_SUMS] = (uint32_t)sums;
    job->blocks[THC_NORMS] = (uint32_t)norms;
}

/* Options of the two servers; 0 if there are none. */
static int servers_choose(thc_job *job)
{
    const gw_thc_message *o = &job->options;
    const uint64_t blocks =
        (o->len_max >> o->block_log2) + ((o->len_max & ((1u << o->block_log2) - 1u)) != 0);
    uint64_t memory = sizeof *job + (uint64_t)o->worker_max * sizeof *job->workers;
    for (int op = 0; op < 2; op++) {
        const uint64_t slots = (blocks + job->blocks[op] - 1) / job->blocks[op];
        gw_thc_server_options *c = &job->server_options[op];
        *c = (gw_thc_server_options){
            .table = o->table,
            .worker_max = o->worker_max,
            .lane_bits = o->lane_bits,
            .block_log2 = o->block_log2,
            .options_hash = o->options_hash,
            .job = o->job,
            .round_window = 0x3fffffffu, /* rounds are checked before the server sees a packet */
            .quorum = o->worker_max,
            .slot_count = (uint32_t)slots,
            .slot_len = job->blocks[op] * (op == THC_SUMS ? 1u << o->block_log2 : o->patterns_per_block),
            .blocks_per_packet = job->blocks[op],
            .backends = GW_BACKEND_ALL,
            .op = op == THC_SUMS ? GW_THC_OP_SUM : GW_THC_OP_MAX,
        };
        const size_t size = slots <= UINT32_MAX ? gw_thc_server_memory_size(c) : 0;
        if (size == 0) {
            return 0;
        }
        memory += size + slots * sizeof(thc_slot);
    }
    job->memory_size = memory;
    return 1;
}

/* Whether the memory of a new job may be taken at this time: job_start() clears it, in which nobody else is
 * served. */
static int may_take(thc_serve *serve, uint64_t size, double now)
{
    const double most = (double)serve->limits.memory_max;
    serve->memory_credit += (now - serve->memory_time) * most / FILL_S;
    serve->memory_time = now;
    serve->memory_credit = serve->memory_credit < most ? serve->memory_credit : most;
    if (serve->memory_credit < (double)size) {
        return 0;
    }
    serve->memory_credit -= (double)size;
    return 1;
}

/* How long a job may be idle where its place is needed. If somebody has left it and sums are of all, no round
 * can be finished but one that has all of its contributions. The others ask for results that they lack. */
static double idle_allowed(const thc_serve *serve, const thc_job *job)
{
    const int all_needed = serve->limits.wait_s <= 0 &&
                           (serve->limits.quorum == 0 || serve->limits.quorum >= job->options.worker_max);
    return job->left > 0 && all_needed ? LEFT_S : SHORT_S;
}

/* How long a job has been idle beyond what it may; 0 or less: it stays. */
static double idle_beyond(const thc_serve *serve, const thc_job *job, double now)
{
    return job == NULL ? 0 : now - job->last_packet - idle_allowed(serve, job);
}

/* Ends the job that has been idle for longest beyond what it may. If its workers come again they find a
 * server that does not know them, as one that was started anew. */
static void job_evict(thc_serve *serve, double now)
{
    thc_job *found = NULL;
    double longest = 0;
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        const double beyond = idle_beyond(serve, serve->jobs[i], now);
        if (beyond > longest) {
            found = serve->jobs[i];
            longest = beyond;
        }
    }
    if (found != NULL) {
        serve->counts.forgotten++;
        job_remove(serve, found);
    }
}

/* Where a job has place; jobs_max: nowhere. */
static uint32_t place_find(const thc_serve *serve)
{
    uint32_t place = 0;
    while (place < serve->limits.jobs_max && serve->jobs[place] != NULL) {
        place++;
    }
    return place;
}

/* GW_THC_REFUSAL_*, or JOB_LATER; 0: there is room for a job of so many bytes. A JOIN that makes no job ends
 * no other. */
static unsigned room_make(thc_serve *serve, uint64_t size, double now)
{
    uint64_t idle_size = 0;
    uint32_t idle = 0;
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        if (idle_beyond(serve, serve->jobs[i], now) > 0) {
            idle_size += serve->jobs[i]->memory_size;
            idle++;
        }
    }
    if (place_find(serve) == serve->limits.jobs_max && idle == 0) {
        return GW_THC_REFUSAL_JOBS;
    }
    if (size > serve->limits.memory_max - (serve->memory_size - idle_size)) {
        return GW_THC_REFUSAL_MEMORY;
    }
    if (!may_take(serve, size, now)) {
        return JOB_LATER;
    }
    while (place_find(serve) == serve->limits.jobs_max ||
           size > serve->limits.memory_max - serve->memory_size) {
        job_evict(serve, now);
    }
    return 0;
}

/* As room_make(). Memory that calloc() and malloc() give is not touched. */
static unsigned job_allocate(thc_serve *serve, thc_job *job, double now)
{
    const unsigned reason = room_make(serve, job->memory_size, now);
    if (reason != 0) {
        return reason;
    }
    job->workers = calloc(job->options.worker_max, sizeof *job->workers);
    for (int op = 0; op < 2; op++) {
        const gw_thc_server_options *c = &job->server_options[op];
        const size_t size = gw_thc_server_memory_size(c);
        job->memory[op] = malloc(size);
        job->slots[op] = calloc(c->slot_count, sizeof *job->slots[op]);
        if (job->workers == NULL || job->memory[op] == NULL || job->slots[op] == NULL) {
            return GW_THC_REFUSAL_MEMORY;
        }
    }
    return 0;
}

/* Makes the job of a JOIN; NULL with a reason, or JOB_LATER. */
static thc_job *job_create(thc_serve *serve, const gw_thc_message *m, double now, unsigned *reason)
{
    *reason = m->worker_max > serve->limits.workers_max                       ? GW_THC_REFUSAL_WORKERS
              : gw_thc_table_check(&m->table) != GW_OK                        ? GW_THC_REFUSAL_OPTIONS
              : m->block_log2 < GW_THC_BLOCK_LOG2_MIN                         ? GW_THC_REFUSAL_OPTIONS
              : m->block_log2 > GW_THC_BLOCK_LOG2_MAX                         ? GW_THC_REFUSAL_OPTIONS
              : m->lane_bits != 8 && m->lane_bits != 16 && m->lane_bits != 32 ? GW_THC_REFUSAL_OPTIONS
              : m->len_max >> 42 != 0                                         ? GW_THC_REFUSAL_MEMORY
                                                                              : 0;
    if (*reason != 0) {
        return NULL;
    }
    thc_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        *reason = GW_THC_REFUSAL_MEMORY;
        return NULL;
    }
    job->options = *m;
    job->epoch = epoch_new(serve);
    job->last_packet = now;
    packets_choose(job, serve->limits.packet_max);
    *reason = servers_choose(job) ? job_allocate(serve, job, now) : GW_THC_REFUSAL_OPTIONS;
    if (*reason != 0) {
        job_free(job);
        return NULL;
    }
    serve->memory_size += job->memory_size;
    serve->jobs[place_find(serve)] = job;
    serve->counts.jobs++;
    return job;
}

/* ---- beginning ---- */

/*
 * All workers are there. In a job that another server had before, a worker may have a result that others
 * still need. If it is a sum of all workers, they make it again, equal bit for bit, of the packets that they
 * have kept: so sums of those rounds must be of all. If it is a partial one, nobody can make it again, and
 * the job fails.
 */
static void job_start(thc_serve *serve, thc_job *job)
{
    const uint32_t origin = job->workers[0].round;
    int32_t low = 0, high = 0;
    for (uint32_t w = 0; w < job->options.worker_max; w++) {
        const int32_t ahead = (int32_t)(job->workers[w].round - origin);
        low = ahead < low ? ahead : low;
        high = ahead > high ? ahead : high;
        job->is_back |= job->workers[w].is_back;
    }
    job->full_until = origin + (uint32_t)high;
    if ((int64_t)high - low > 1) {
        job->failure = GW_THC_REFUSAL_ROUND;
    }
    for (uint32_t w = 0; w < job->options.worker_max; w++) {
        const thc_worker *worker = &job->workers[w];
        if (worker->has_partial && (int32_t)(worker->partial_round - (origin + (uint32_t)low)) >= 0) {
            job->failure = GW_THC_REFUSAL_RESTARTED;
        }
    }
    for (int op = 0; op < 2; op++) {
        gw_thc_server_options *c = &job->server_options[op];
        c->round_first = origin + (uint32_t)low - 1u; /* that of versions which do not exist yet */
        if (gw_thc_server_init(&job->servers[op], c, job->memory[op], gw_thc_server_memory_size(c)) !=
            GW_OK) {
            job->failure = GW_THC_REFUSAL_OPTIONS;
        }
        for (uint32_t slot = 0; slot < c->slot_count; slot++) {
            job->slots[op][slot].opened = -1;
        }
    }
    job->has_started = 1;
    for (uint32_t w = 0; w < job->options.worker_max; w++) {
        gw_thc_message m = job->options;
        m.type = job->failure != 0 ? GW_THC_MESSAGE_REFUSED : GW_THC_MESSAGE_WELCOME;
        m.reason = (uint16_t)job->failure;
        m.rank = (uint16_t)w;
        m.cookie = m.epoch = 0;
        m.round = m.detail = 0;
        thc_serve_answer(serve, job, &job->workers[w].peer, &m);
    }
}

/* ---- messages ---- */

static int is_same_job(const gw_thc_message *a, const gw_thc_message *b)
{
    return a->options_hash == b->options_hash && a->worker_max == b->worker_max &&
           a->lane_bits == b->lane_bits && a->block_log2 == b->block_log2 &&
           a->patterns_per_block == b->patterns_per_block && a->len_max == b->len_max &&
           memcmp(&a->table, &b->table, sizeof a->table) == 0;
}

static uint32_t limit_of(const thc_serve *serve, unsigned reason)
{
    return reason == GW_THC_REFUSAL_JOBS      ? serve->limits.jobs_max
           : reason == GW_THC_REFUSAL_WORKERS ? serve->limits.workers_max
           : reason == GW_THC_REFUSAL_MEMORY  ? (uint32_t)(serve->limits.memory_max >> 20)
                                              : 0;
}

/* Whether a worker may take part; a reason if not. Who has joined, and comes from elsewhere or by another
 * connection, knows the epoch. */
static unsigned check_join(const thc_job *job, const thc_peer *from, const gw_thc_message *m)
{
    if (!is_same_job(&job->options, m)) {
        return GW_THC_REFUSAL_DIFFERENT;
    }
    const thc_worker *worker = &job->workers[m->rank];
    if (worker->has_joined && !thc_peer_equal(&worker->peer, from) && m->epoch != job->epoch) {
        return GW_THC_REFUSAL_RANK;
    }
    return job->failure;
}

static void on_join(thc_serve *serve, const thc_peer *from, const gw_thc_message *m, double now)
{
    gw_thc_message answer = *m;
    unsigned reason = 0;
    answer.epoch = answer.cookie = 0;
    answer.round = answer.detail = 0;
    answer.reason = 0;
    const uint64_t period = (uint64_t)(now / COOKIE_S);
    if (from->connection == 0 && !has_cookie(serve, from, m, period)) {
        answer.type = GW_THC_MESSAGE_CHALLENGE;
        answer.cookie = cookie_of(serve, from, m, period);
        if (thc_serve_may_reply(serve, from, 0, now)) {
            serve->counts.challenged++;
            thc_serve_answer(serve, NULL, from, &answer);
        }
        return;
    }
    thc_job *job = thc_serve_job(serve, m->job);
    if (job == NULL) {
        job = job_create(serve, m, now, &reason);
    }
    if (job != NULL) {
        reason = check_join(job, from, m);
    }
    if (reason == JOB_LATER) {
        serve->counts.limited++; /* a worker asks again */
        return;
    }
    if (reason != 0) {
        answer.type = GW_THC_MESSAGE_REFUSED;
        answer.reason = (uint16_t)reason;
        answer.detail = limit_of(serve, reason);
        serve->counts.refused_joins++;
        if (thc_job_has(job, m->rank, from) || thc_serve_may_reply(serve, from, 1, now)) {
            thc_serve_answer(serve, job, from, &answer);
        }
        return;
    }
    thc_worker *worker = &job->workers[m->rank];
    job->last_packet = now;
    worker->peer = *from;
    job->left -= worker->has_left;
    worker->has_left = 0;
    if (!job->has_started) {
        job->joined += !worker->has_joined;
        worker->has_joined = 1;
        worker->round = m->round;
        worker->has_partial = m->has_partial;
        worker->partial_round = m->partial_round;
        worker->is_back = m->epoch != 0 && m->epoch != job->epoch;
    }
    serve->counts.welcomed++;
    if (!job->has_started && job->joined == job->options.worker_max) {
        job_start(serve, job);
        return;
    }
    answer.type = GW_THC_MESSAGE_WELCOME;
    thc_serve_answer(serve, job, from, &answer);
}

/* In a job that has not begun. */
static void worker_unjoin(thc_job *job, thc_worker *worker)
{
    job->joined -= worker->has_joined;
    memset(worker, 0, sizeof *worker);
}

static void on_leave(thc_serve *serve, const thc_peer *from, const gw_thc_message *m)
{
    thc_job *job = thc_serve_job(serve, m->job);
    if (job == NULL || m->rank >= job->options.worker_max || m->epoch != job->epoch ||
        !thc_peer_equal(&job->workers[m->rank].peer, from)) {
        serve->counts.unknown++;
        return;
    }
    thc_worker *worker = &job->workers[m->rank];
    if (!job->has_started) {
        worker_unjoin(job, worker); /* another one may take the rank */
    } else {
        job->left += !worker->has_left;
        worker->has_left = 1;
    }
    if (job->left == job->joined) {
        job_remove(serve, job);
    }
}

void thc_serve_on_message(thc_serve *serve, const thc_peer *from, const gw_thc_message *message, double now)
{
    if (message->type == GW_THC_MESSAGE_JOIN) {
        on_join(serve, from, message, now);
    } else if (message->type == GW_THC_MESSAGE_LEAVE) {
        on_leave(serve, from, message);
    } else {
        thc_serve_refuse(serve, GW_ERR_UNSUPPORTED);
    }
}

void thc_serve_ended(thc_serve *serve, const thc_peer *peer)
{
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        thc_job *job = serve->jobs[i];
        for (uint32_t w = 0; job != NULL && w < job->options.worker_max; w++) {
            thc_worker *worker = &job->workers[w];
            if (!thc_peer_equal(&worker->peer, peer)) {
                continue;
            }
            if (job->has_started) {
                memset(&worker->peer, 0, sizeof worker->peer);
            } else {
                worker_unjoin(job, worker); /* it may not even know the epoch */
            }
        }
        if (job != NULL && job->joined == 0) {
            job_remove(serve, job);
        }
    }
}

int thc_serve_takes_part(const thc_serve *serve, const thc_peer *peer)
{
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        const thc_job *job = serve->jobs[i];
        for (uint32_t w = 0; job != NULL && w < job->options.worker_max; w++) {
            if (thc_job_has(job, w, peer)) {
                return 1;
            }
        }
    }
    return 0;
}

/* How long a job may be without packets: less if it never began or has failed, or if no worker is connected.
 * Who waits for others to join sends a JOIN each second. */
static double idle_max(const thc_serve *serve, const thc_job *job)
{
    int may_come = 0;
    for (uint32_t w = 0; w < job->options.worker_max; w++) {
        may_come |= job->workers[w].peer.size != 0 && !job->workers[w].has_left;
    }
    return job->has_started && job->failure == 0 && may_come ? serve->limits.idle_s
           : serve->limits.idle_s < SHORT_S                  ? serve->limits.idle_s
                                                             : SHORT_S;
}

void thc_serve_forget(thc_serve *serve, double now)
{
    for (uint32_t i = 0; i < serve->limits.jobs_max; i++) {
        thc_job *job = serve->jobs[i];
        if (job != NULL && now - job->last_packet > idle_max(serve, job)) {
            serve->counts.forgotten++;
            job_remove(serve, job);
        }
    }
}
