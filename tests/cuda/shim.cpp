/*
 * Scheduler of the shim: fibers, one for every thread of the blocks that are under way.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "shim.h"

#include "shim_context.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

gw_shim_index threadIdx, blockIdx, blockDim, gridDim;
unsigned char *gw_shim_shared_begin;
size_t gw_shim_shared_size;
volatile bool gw_shim_is_atomic;

namespace
{

enum { LANES = 32, STACK_SIZE = 256 * 1024, RESIDENT = 3 };

/* Threads that meet: a warp or a block. */
struct meeting {
    uint32_t live = 0; /* members that have not returned */
    uint32_t arrived = 0;
    uint32_t count = 0; /* of those that order accesses to memory: no shuffle does, and no vote of a warp */
    gw_shim_operation operation = GW_SHIM_SYNC;
    std::vector<uint64_t> value, result;
    std::vector<bool> here, result_of;  /* who has arrived; whose values the result holds */
    uint32_t lanes_here = 0, lanes = 0; /* the same as bits, of a warp */
    std::vector<uint32_t> waiting;      /* fibers */
};

/* What is known of a byte of shared memory, for gw_shim_note(): the writes and the reads since the block's
 * last barrier (several writes are those of one thread, atomic ones, and ones of the same value). */
enum { NO_THREAD = 0xffff, MANY = 0xfffe };
struct shadow {
    uint16_t writer = NO_THREAD, reader = NO_THREAD;             /* threads; MANY of one warp */
    uint16_t writing_warp = NO_THREAD, reading_warp = NO_THREAD; /* MANY: of several */
    bool is_atomic = false;                                      /* all writes that no barrier has ordered */
    uint32_t write_barriers = 0, write_syncs = 0, read_barriers = 0, read_syncs = 0;
};

struct block_state {
    uint32_t index = 0;
    std::vector<shadow> shadows;
    uint32_t live = 0;
    std::unique_ptr<unsigned char[]>
        memory; /* exactly as large as requested, so that a sanitizer detects its end */
    unsigned char *shared = nullptr;
    meeting all;
    std::vector<meeting> warp;
};

struct fiber {
    gw_shim_context context;
    std::unique_ptr<unsigned char[]> stack;
    void *fake_stack = nullptr;
    block_state *block = nullptr;
    uint32_t thread = 0;
    std::vector<std::pair<unsigned char *, const void *>> copies; /* not waited for */
};

uint64_t random_state = 0x9e3779b97f4a7c15u;

uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

gw_shim_run *kernel;
const void *kernel_params;
size_t shared_bytes;
std::vector<std::unique_ptr<fiber>> fibers;
std::vector<uint32_t> runnable; /* without the one that runs */
uint32_t current;
/* Switches since a collective was complete, a thread returned or a block started. */
uint32_t idle_turns;
gw_shim_context scheduler_context;
#if defined(__SANITIZE_ADDRESS__)
const void *scheduler_stack;
size_t scheduler_stack_size;
#endif

[[noreturn]] void fail(const char *message)
{
    if (gw_shim_on_error != nullptr) {
        gw_shim_on_error(message);
    }
    fprintf(stderr, "shim: %s (block %u, thread %u)\n", message, blockIdx.x, threadIdx.x);
    abort();
}

void enter(uint32_t index)
{
    current = index;
    const fiber &f = *fibers[index];
    threadIdx.x = f.thread;
    blockIdx.x = f.block->index;
    gw_shim_shared_begin = f.block->shared;
}

uint32_t draw()
{
    if (runnable.empty()) {
        fail("no thread can go on: some wait at a collective that the others do not reach");
    }
    const uint32_t at = random_below((uint32_t)runnable.size());
    const uint32_t index = runnable[at];
    runnable[at] = runnable.back();
    runnable.pop_back();
    return index;
}

/* Goes on with another fiber; returns when this one is drawn again. */
void switch_away()
{
    const uint32_t from = current;
    const uint32_t to = draw();
    if (to == from) {
        return;
    }
    enter(to);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fibers[from]->fake_stack, fibers[to]->stack.get(), STACK_SIZE);
#endif
    gw_shim_switch(&fibers[from]->context, &fibers[to]->context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fibers[from]->fake_stack, nullptr, nullptr);
#endif
}

void complete(meeting &m)
{
    m.count += m.operation == GW_SHIM_SYNC || m.operation == GW_SHIM_BLOCK_VOTE;
    m.result = m.value;
    m.result_of = m.here;
    m.here.assign(m.here.size(), false);
    m.lanes = m.lanes_here;
    m.lanes_here = 0;
    m.arrived = 0;
    for (const uint32_t index : m.waiting) {
        runnable.push_back(index);
    }
    m.waiting.clear();
    idle_turns = 0;
}

const uint64_t *meet(meeting &m, uint32_t member, gw_shim_operation operation, uint64_t value)
{
    if (m.arrived != 0 && m.operation != operation) {
        fail("two different collectives meet");
    }
    m.operation = operation;
    m.value[member] = value;
    m.here[member] = true;
    m.lanes_here |= 1u << member % LANES;
    m.waiting.push_back(current);
    if (++m.arrived == m.live) {
        complete(m);
    }
    switch_away();
    return m.result.data();
}

void retire(meeting &m)
{
    m.live--;
    if (m.live != 0 && m.arrived == m.live) {
        complete(m); /* as on the device, those who have returned are not waited for */
    }
}

void fiber_main()
{
#if defined(__SANITIZE_ADDRESS__)
    if (scheduler_stack == nullptr) {
        __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
    } else {
        __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    }
#endif
    kernel(kernel_params);
    fiber &f = *fibers[current];
    block_state &block = *f.block;
    block.live--;
    idle_turns = 0;
    retire(block.warp[f.thread / LANES]);
    retire(block.all);
    /* Back to the scheduler, which frees this stack or goes on with others. */
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, scheduler_stack, scheduler_stack_size);
#endif
    gw_shim_switch(&f.context, &scheduler_context);
}

void start_block(block_state &block, uint32_t index, uint32_t threads, uint32_t slot)
{
    block.index = index;
    block.live = threads;
    block.shadows.clear();
    block.memory.reset(new unsigned char[shared_bytes + 128]);
    block.shared = block.memory.get() + (128 - (uintptr_t)block.memory.get() % 128) % 128;
    memset(block.shared, 0xa5, shared_bytes);
    block.all = meeting();
    block.all.live = threads;
    block.all.value.assign(threads, 0);
    block.all.result.assign(threads, 0);
    block.all.here.assign(threads, false);
    block.all.result_of.assign(threads, false);
    block.warp.assign((threads + LANES - 1) / LANES, meeting());
    for (uint32_t w = 0; w < block.warp.size(); w++) {
        meeting &m = block.warp[w];
        m.live = threads - w * LANES < LANES ? threads - w * LANES : (uint32_t)LANES;
        m.value.assign(LANES, 0);
        m.result.assign(LANES, 0);
        m.here.assign(LANES, false);
        m.result_of.assign(LANES, false);
    }
    for (uint32_t t = 0; t < threads; t++) {
        const uint32_t at = slot * threads + t;
        fiber &f = *fibers[at];
        f.block = &block;
        f.thread = t;
        f.fake_stack = nullptr;
        f.copies.clear();
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(f.stack.get(),
                                      STACK_SIZE); /* of the frames that the last thread left */
#endif
        gw_shim_prepare(&f.context, f.stack.get(), STACK_SIZE, fiber_main);
        runnable.push_back(at);
    }
}

} // namespace

void (*gw_shim_on_error)(const char *message);
void (*gw_shim_on_add64)(const uint64_t *counter, uint64_t found, uint32_t block);

void gw_shim_seed(uint64_t seed)
{
    random_state = (seed + 1) * 0x9e3779b97f4a7c15u;
    random_state ^= random_state >> 29;
    random_state += random_state == 0;
}

const uint64_t *gw_shim_meet_warp(gw_shim_operation operation, uint32_t mask, uint64_t value)
{
    if (mask != 0xffffffffu) {
        fail("a warp collective of some lanes only");
    }
    fiber &f = *fibers[current];
    meeting &m = f.block->warp[f.thread / LANES];
    return meet(m, f.thread % LANES, operation, value);
}

const uint64_t *gw_shim_meet_block(gw_shim_operation operation, uint64_t value)
{
    fiber &f = *fibers[current];
    return meet(f.block->all, f.thread, operation, value);
}

uint32_t gw_shim_lanes(void)
{
    const fiber &f = *fibers[current];
    return f.block->warp[f.thread / LANES].lanes;
}

uint32_t gw_shim_threads(void)
{
    return blockDim.x;
}

bool gw_shim_is_gone(uint32_t thread)
{
    return !fibers[current]->block->all.result_of[thread];
}

void gw_shim_yield(void)
{
    /* A loop that waits for another block gives way again and again; if nothing else ever happens, it
     * waits in vain. */
    if (++idle_turns > 20u * 1000 * 1000) {
        fail("a block waits for another one forever");
    }
    runnable.push_back(current);
    switch_away();
}

unsigned char *gw_shim_shared(void)
{
    return fibers[current]->block->shared;
}

unsigned char *gw_shim_shared_at(uint32_t place, size_t size)
{
    if (place > shared_bytes || size > shared_bytes - place) {
        fail("an access outside of the block's shared memory");
    }
    if (place % size != 0) {
        fail("a misaligned access to shared memory");
    }
    return gw_shim_shared() + place;
}

uint32_t gw_shim_place_of(const void *p)
{
    const size_t place = (size_t)((const unsigned char *)p - gw_shim_shared());
    if (place > shared_bytes) {
        fail("an address outside of the block's shared memory");
    }
    return (uint32_t)place;
}

void gw_shim_copy_begin(unsigned char *to, const void *from)
{
    fibers[current]->copies.emplace_back(to, from);
}

bool gw_shim_copy_next(unsigned char **to, const void **from)
{
    std::vector<std::pair<unsigned char *, const void *>> &copies = fibers[current]->copies;
    if (copies.empty()) {
        return false;
    }
    *to = copies.back().first;
    *from = copies.back().second;
    copies.pop_back();
    return true;
}

/* Says once for each place in the code what is wrong there, and ends the program unless it is to go on. */
static void tell_race(const char *what, const void *where, size_t size, size_t place)
{
    static std::vector<const void *> told;
    static const bool goes_on = getenv("GW_SHIM_RACES") != nullptr;
    Dl_info module = {};

    for (const void *other : told) {
        if (other == where) {
            return;
        }
    }
    told.push_back(where);
    if (gw_shim_on_error == nullptr) {
        dladdr(where, &module);
        fprintf(stderr,
                "shim: block %u, thread %u, %zu bytes at %zu of shared memory: %s; addr2line -ife %s %#zx\n",
                blockIdx.x, threadIdx.x, size, place, what, module.dli_fname,
                (size_t)((const char *)where - (const char *)module.dli_fbase) - 1);
    }
    if (!goes_on) {
        fail(what);
    }
}

/* A write beside another thread's write, until both are known to write the same value, which is not a
 * race. */
static struct {
    const unsigned char *p;
    size_t size, place;
    const void *where;
    unsigned char before[16];
} pending;

static void settle_pending(void)
{
    const unsigned char *const p = pending.p;
    pending.p = nullptr;
    if (p != nullptr && memcmp(p, pending.before, pending.size) != 0) {
        tell_race("a write beside another thread's write", pending.where, pending.size, pending.place);
    }
}

/*
 * Two accesses of different threads to a byte, one of them a write and not both atomic, are a race unless a
 * barrier of the block, or __syncwarp() for threads of a warp, is between them. Fibers run one after the
 * other, so the order follows from the counts of barriers, not from time.
 */
void gw_shim_note(const void *p, size_t size, bool is_write, const void *where)
{
    const fiber &f = *fibers[current];
    block_state &block = *f.block;
    const uint16_t thread = (uint16_t)f.thread, warp = (uint16_t)(f.thread / LANES);
    const uint32_t barriers = block.all.count, syncs = block.warp[warp].count;
    const size_t place = (size_t)((const unsigned char *)p - block.shared);
    bool beside_write = false, beside_read = false;

    settle_pending();
    if (block.shadows.empty()) {
        block.shadows.resize(shared_bytes);
    }
    for (size_t i = place; i < place + size && i < shared_bytes; i++) {
        shadow &s = block.shadows[i];
        const bool both_atomic = gw_shim_is_atomic && s.is_atomic;
        beside_write |= s.writer != NO_THREAD && s.write_barriers == barriers && !both_atomic &&
                        (s.writing_warp != warp || (s.write_syncs == syncs && s.writer != thread));
        beside_read |= is_write && s.reader != NO_THREAD && s.read_barriers == barriers &&
                       (s.reading_warp != warp || (s.read_syncs == syncs && s.reader != thread));
        if (is_write) {
            const bool is_first = s.writer == NO_THREAD || s.write_barriers != barriers;
            const bool is_later = s.writing_warp == warp && s.write_syncs != syncs;
            s.writer = is_first || is_later || s.writer == thread ? thread : (uint16_t)MANY;
            s.writing_warp = is_first || s.writing_warp == warp ? warp : (uint16_t)MANY;
            s.is_atomic = gw_shim_is_atomic && (is_first || is_later || s.is_atomic);
            s.write_barriers = barriers;
            s.write_syncs = syncs;
        } else if (!gw_shim_is_atomic) {
            const bool is_first = s.reader == NO_THREAD || s.read_barriers != barriers;
            const bool is_later = s.reading_warp == warp && s.read_syncs != syncs;
            s.reader = is_first || is_later || s.reader == thread ? thread : (uint16_t)MANY;
            s.reading_warp = is_first || s.reading_warp == warp ? warp : (uint16_t)MANY;
            s.read_barriers = barriers;
            s.read_syncs = syncs;
        }
    }
    if (beside_read) {
        tell_race("a write beside another thread's read", where, size, place);
    } else if (beside_write && !is_write) {
        tell_race("a read beside another thread's write", where, size, place);
    } else if (beside_write && size > sizeof pending.before) {
        tell_race("a write beside another thread's write", where, size, place);
    } else if (beside_write) {
        pending = {(const unsigned char *)p, size, place, where, {}};
        memcpy(pending.before, p, size);
    }
}

void gw_shim_launch(gw_shim_run *run, const void *params, uint32_t grid, uint32_t block, size_t shared_size,
                    uint32_t resident)
{
    kernel = run;
    kernel_params = params;
    shared_bytes = gw_shim_shared_size = shared_size;
    blockDim.x = block;
    gridDim.x = grid;
    resident = resident == 0 ? (uint32_t)RESIDENT : resident;
    resident = resident < grid ? resident : grid;
    idle_turns = 0;
    while (fibers.size() < (size_t)resident * block) {
        fibers.emplace_back(new fiber);
        fibers.back()->stack.reset(new unsigned char[STACK_SIZE]);
    }
    std::vector<uint32_t> order(grid);
    for (uint32_t i = 0; i < grid; i++) {
        const uint32_t j = random_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    std::vector<block_state> blocks(resident);
    runnable.clear();
    uint32_t started = 0, finished = 0;
    while (finished < grid) {
        for (uint32_t slot = 0; slot < resident; slot++) {
            block_state &b = blocks[slot];
            if (b.live == 0 && b.shared != nullptr) {
                settle_pending();
                b.shared = nullptr;
                finished++;
            }
            if (b.shared == nullptr && started < grid) {
                start_block(b, order[started++], block, slot);
            }
        }
        if (finished == grid) {
            break;
        }
        /* Comes back whenever a thread has returned. */
        const uint32_t to = draw();
        enter(to);
#if defined(__SANITIZE_ADDRESS__)
        void *fake_stack = nullptr;
        __sanitizer_start_switch_fiber(&fake_stack, fibers[to]->stack.get(), STACK_SIZE);
#endif
        gw_shim_switch(&scheduler_context, &fibers[to]->context);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
    }
}
