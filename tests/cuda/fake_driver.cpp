/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fake_driver.h"
#include "shim.h"

#include "cuda/launch.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace
{

enum { OK = 0, INVALID = 1, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900 };

/* One thing on a stream. */
struct operation {
    gw_shim_run *run = nullptr;
    std::vector<uint64_t> params; /* words, for alignment */
    uint32_t grid = 0, block = 0, shared_size = 0;
    uint8_t *dst = nullptr;
    const uint8_t *src = nullptr; /* NULL: fill */
    size_t size = 0;
    uint32_t word = 0;
};

struct stream {
    bool is_capturing = false;
    std::vector<operation> queue;
};

struct graph {
    std::vector<operation> operations;
};

struct module {
    const char *image; /* NULL: it has all kernels */
};

gw_fake_control control = {0, 13000, 1, 1, 4, 80, 166912, 0, 0, nullptr, 0, 999, 0, 0, 0, 0, 0, ""};
stream default_stream;
std::vector<stream *> streams = {&default_stream};
std::map<uint64_t, size_t> allocations;
char context_object;

/* Counts the call; the code that it must fail with, or 0. */
int enter()
{
    control.calls++;
    return control.fail_at != 0 && control.calls == control.fail_at ? control.fail_code : OK;
}

#define ENTER()                                                                                              \
    if (const int code = enter()) {                                                                          \
        return code;                                                                                         \
    }

stream &stream_of(void *handle)
{
    return handle == nullptr ? default_stream : *static_cast<stream *>(handle);
}

bool is_any_capturing()
{
    bool any = false;
    for (const stream *s : streams) {
        any = any || s->is_capturing;
    }
    return any;
}

void run(const operation &o)
{
    /* The program's own share of a time that kernels on a CPU would hide. */
    static const bool skips_always = getenv("GW_FAKE_SKIP") != nullptr;
    if (control.skips_work) {
        return;
    }
    if (o.run != nullptr && skips_always) {
        return;
    }
    if (o.run != nullptr) {
        gw_shim_launch(o.run, o.params.data(), o.grid, o.block, o.shared_size, 0);
    } else if (o.src != nullptr) {
        memcpy(o.dst, o.src, o.size);
    } else {
        for (size_t i = 0; i < o.size; i += 4) {
            memcpy(o.dst + i, &o.word, 4);
        }
    }
}

void drain(stream &s)
{
    for (const operation &o : s.queue) {
        run(o);
    }
    s.queue.clear();
}

/* All streams, their queues taking turns. */
void drain_all()
{
    bool any = true;
    for (size_t turn = 0; any; turn++) {
        any = false;
        for (stream *s : streams) {
            if (!s->is_capturing && turn < s->queue.size()) {
                run(s->queue[turn]);
                any = true;
            }
        }
    }
    for (stream *s : streams) {
        if (!s->is_capturing) {
            s->queue.clear();
        }
    }
}

int forbidden_in_capture()
{
    return is_any_capturing() ? CAPTURE_UNSUPPORTED : OK;
}

} // namespace

EXPORT gw_fake_control *gw_fake_control_of(void)
{
    return &control;
}

/* ---- device, context, module --------------------------------------------------------------------------- */

EXPORT int cuInit(unsigned)
{
    ENTER();
    return control.init_result;
}

EXPORT int cuDriverGetVersion(int *version)
{
    ENTER();
    *version = control.version;
    return OK;
}

EXPORT int cuDeviceGetCount(int *count)
{
    ENTER();
    *count = control.device_count;
    return OK;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    ENTER();
    *device = ordinal;
    return ordinal >= 0 && ordinal < control.device_count ? OK : 101;
}

EXPORT int cuDeviceGetName(char *name, int size, int)
{
    ENTER();
    strncpy(name, "CPU shim", (size_t)size);
    return OK;
}

EXPORT int cuCtxGetCurrent(void **context)
{
    ENTER();
    *context = control.has_context ? &context_object : nullptr;
    return OK;
}

EXPORT int cuCtxSetCurrent(void *context)
{
    ENTER();
    control.has_context = context != nullptr;
    return OK;
}

EXPORT int cuCtxGetDevice(int *device)
{
    ENTER();
    *device = 0;
    return OK;
}

EXPORT int cuCtxSynchronize(void)
{
    ENTER();
    control.syncs++;
    if (const int code = forbidden_in_capture()) {
        return code;
    }
    drain_all();
    return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int)
{
    ENTER();
    *context = &context_object;
    return OK;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int)
{
    ENTER();
    return OK;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int)
{
    ENTER();
    switch (attribute) {
    case 16:
        *value = control.multiprocessors;
        return OK;
    case 75:
        *value = control.arch / 10;
        return OK;
    case 76:
        *value = control.arch % 10;
        return OK;
    case 97:
        *value = control.shared_size_max;
        return OK;
    default:
        return INVALID;
    }
}

EXPORT int cuModuleLoadData(void **out, const void *bytes)
{
    ENTER();
    control.syncs++;
    if (const int code = forbidden_in_capture()) {
        return code;
    }
    if (control.load_result != OK) {
        return control.load_result;
    }
    static const unsigned char fat_binary[4] = {0x50, 0xed, 0x55, 0xba};
    if (memcmp(bytes, fat_binary, 4) == 0) {
        *out = new module{nullptr}; /* all images are the same here: every kernel is in it */
        control.modules++;
        return OK;
    }
    for (uint32_t i = 0; i < GW_CUDA_KERNEL_COUNT; i++) {
        const char *image = gw_shim_kernels[i].image;
        if (strcmp(static_cast<const char *>(bytes), image) == 0) {
            *out = new module{image};
            control.modules++;
            return OK;
        }
    }
    return 200;
}

EXPORT int cuModuleUnload(void *m)
{
    ENTER();
    delete static_cast<module *>(m);
    control.modules--;
    return OK;
}

EXPORT int cuModuleGetFunction(void **function, void *m, const char *name)
{
    ENTER();
    const char *image = static_cast<module *>(m)->image;
    for (uint32_t i = 0; i < GW_CUDA_KERNEL_COUNT; i++) {
        const gw_shim_kernel *k = &gw_shim_kernels[i];
        if (strcmp(k->name, name) == 0 && (image == nullptr || strcmp(k->image, image) == 0)) {
            *function = const_cast<gw_shim_kernel *>(k);
            return OK;
        }
    }
    return NOT_FOUND;
}

EXPORT int cuFuncGetAttribute(int *value, int attribute, void *)
{
    ENTER();
    *value = 0;
    return attribute == 1 ? OK : INVALID;
}

EXPORT int cuFuncSetAttribute(void *, int attribute, int value)
{
    ENTER();
    return attribute == 8 && value <= control.shared_size_max ? OK : INVALID;
}

/* ---- work ---------------------------------------------------------------------------------------------- */

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared_size, void *s, void **params, void **extra)
{
    ENTER();
    const gw_shim_kernel *k = static_cast<const gw_shim_kernel *>(function);
    if (gx == 0 || bx == 0 || bx > 1024 || gy != 1 || gz != 1 || by != 1 || bz != 1 || extra != nullptr ||
        shared_size > static_cast<unsigned>(control.shared_size_max) || k->params_size > 4096) {
        return INVALID;
    }
    operation o;
    o.run = k->run;
    o.params.resize((k->params_size + 7) / 8);
    memcpy(o.params.data(), params[0], k->params_size);
    o.grid = gx;
    o.block = bx;
    o.shared_size = shared_size;
    stream_of(s).queue.push_back(o);
    control.launches++;
    if (control.on_launch != nullptr) {
        control.on_launch(k->name, gx, bx, shared_size);
    }
    strncpy(control.last_kernel, k->name, sizeof control.last_kernel - 1);
    return OK;
}

EXPORT int cuMemsetD32Async(uint64_t dst, unsigned word, size_t words, void *s)
{
    ENTER();
    if (dst % 4 != 0) {
        return INVALID;
    }
    operation o;
    o.dst = reinterpret_cast<uint8_t *>(dst);
    o.size = 4 * words;
    o.word = word;
    stream_of(s).queue.push_back(o);
    return OK;
}

static int copy(uint8_t *dst, const uint8_t *src, size_t size, void *s)
{
    operation o;
    o.dst = dst;
    o.src = src;
    o.size = size;
    if (size != 0) {
        stream_of(s).queue.push_back(o);
    }
    return OK;
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t size, void *s)
{
    ENTER();
    return copy(reinterpret_cast<uint8_t *>(dst), static_cast<const uint8_t *>(src), size, s);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t size, void *s)
{
    ENTER();
    return copy(static_cast<uint8_t *>(dst), reinterpret_cast<const uint8_t *>(src), size, s);
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t size, void *s)
{
    ENTER();
    return copy(reinterpret_cast<uint8_t *>(dst), reinterpret_cast<const uint8_t *>(src), size, s);
}

EXPORT int cuMemAlloc_v2(uint64_t *out, size_t size)
{
    ENTER();
    if (const int code = forbidden_in_capture()) {
        return code;
    }
    void *p = nullptr;
    if (size == 0 || posix_memalign(&p, 256, size) != 0) {
        return 2;
    }
    memset(p, 0xa5, size);
    *out = reinterpret_cast<uint64_t>(p);
    allocations[*out] = size;
    control.bytes += size;
    return OK;
}

EXPORT int cuMemFree_v2(uint64_t p)
{
    ENTER();
    control.syncs++;
    if (const int code = forbidden_in_capture()) {
        return code;
    }
    drain_all();
    const auto found = allocations.find(p);
    if (found == allocations.end()) {
        return INVALID;
    }
    control.bytes -= found->second;
    allocations.erase(found);
    free(reinterpret_cast<void *>(p));
    return OK;
}

EXPORT int cuMemGetInfo_v2(size_t *free_size, size_t *total)
{
    ENTER();
    *free_size = *total = (size_t)1 << 32;
    return OK;
}

EXPORT int cuStreamCreate(void **out, unsigned)
{
    ENTER();
    stream *s = new stream;
    streams.push_back(s);
    *out = s;
    return OK;
}

EXPORT int cuStreamDestroy_v2(void *s)
{
    ENTER();
    drain(stream_of(s));
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] == s) {
            streams.erase(streams.begin() + (long)i);
            delete static_cast<stream *>(s);
            return OK;
        }
    }
    return INVALID;
}

EXPORT int cuStreamSynchronize(void *s)
{
    ENTER();
    control.syncs++;
    if (const int code = forbidden_in_capture()) {
        return code;
    }
    drain(stream_of(s));
    return OK;
}

/* ---- graphs -------------------------------------------------------------------------------------------- */

EXPORT int cuStreamBeginCapture_v2(void *s, int)
{
    ENTER();
    if (s == nullptr || stream_of(s).is_capturing || !stream_of(s).queue.empty()) {
        return INVALID;
    }
    stream_of(s).is_capturing = true;
    return OK;
}

EXPORT int cuStreamEndCapture(void *s, void **out)
{
    ENTER();
    if (!stream_of(s).is_capturing) {
        return INVALID;
    }
    graph *g = new graph;
    g->operations.swap(stream_of(s).queue);
    stream_of(s).is_capturing = false;
    *out = g;
    return OK;
}

EXPORT int cuGraphInstantiateWithFlags(void **out, void *g, unsigned long long)
{
    ENTER();
    *out = new graph(*static_cast<graph *>(g));
    return OK;
}

EXPORT int cuGraphLaunch(void *g, void *s)
{
    ENTER();
    for (const operation &o : static_cast<graph *>(g)->operations) {
        stream_of(s).queue.push_back(o);
    }
    return OK;
}

EXPORT int cuGraphDestroy(void *g)
{
    ENTER();
    delete static_cast<graph *>(g);
    return OK;
}

EXPORT int cuGraphExecDestroy(void *g)
{
    ENTER();
    delete static_cast<graph *>(g);
    return OK;
}

/* ---- events: order is that of the queue, times are not meant ------------------------------------------- */

EXPORT int cuEventCreate(void **event, unsigned)
{
    ENTER();
    *event = &context_object;
    return OK;
}

EXPORT int cuEventRecord(void *, void *)
{
    ENTER();
    return OK;
}

EXPORT int cuEventSynchronize(void *)
{
    ENTER();
    control.syncs++;
    drain_all();
    return OK;
}

EXPORT int cuEventElapsedTime_v2(float *milliseconds, void *, void *)
{
    ENTER();
    *milliseconds = 1.0f;
    return OK;
}

EXPORT int cuEventElapsedTime(float *milliseconds, void *a, void *b)
{
    return cuEventElapsedTime_v2(milliseconds, a, b);
}

EXPORT int cuEventDestroy_v2(void *)
{
    ENTER();
    return OK;
}
