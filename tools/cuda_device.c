/* SPDX-License-Identifier: BSD-2-Clause */
#include "cuda_device.h"

#include <dlfcn.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define CUDA_DEVICE_ROW(field, name, arguments) {name, offsetof(cuda_device, call.field)},
    CUDA_DEVICE_CALLS(CUDA_DEVICE_ROW)
#undef CUDA_DEVICE_ROW
};

gw_status cuda_device_open(cuda_device *device, int ordinal)
{
    int id = 0;

    memset(device, 0, sizeof *device);
    device->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (device->library == NULL) {
        return GW_ERR_NO_DRIVER;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(device->library, functions[i].name);
        if (address == NULL) {
            dlclose(device->library);
            device->library = NULL;
            return GW_ERR_NO_DRIVER;
        }
        memcpy((char *)device + functions[i].offset, &address, sizeof address);
    }
    int code = device->call.init(0);
    gw_status status = code == 0 ? GW_OK : GW_ERR_NO_DEVICE;
    if (status == GW_OK) {
        code = device->call.device_get(&id, ordinal);
        status = code == 0 ? GW_OK : GW_ERR_NO_DEVICE;
    }
    if (status == GW_OK) {
        code = device->call.retain(&device->context, id);
        status = code == 0 ? GW_OK : GW_ERR_DEVICE;
    }
    if (status == GW_OK) {
        code = device->call.set_current(device->context);
        (void)device->call.device_name(device->name, (int)sizeof device->name - 1, id);
        device->ordinal = id;
        status = code == 0 ? GW_OK : GW_ERR_DEVICE;
    }
    device->error = (uint32_t)code;
    if (status != GW_OK) {
        cuda_device_close(device);
    }
    return status;
}

void cuda_device_close(cuda_device *device)
{
    if (device->library != NULL) {
        if (device->context != NULL) {
            (void)device->call.release(device->ordinal);
        }
        dlclose(device->library);
    }
    device->library = NULL;
    device->context = NULL;
}

static int note(cuda_device *device, int code)
{
    device->error = code != 0 ? (uint32_t)code : device->error;
    return code;
}

int cuda_device_wait(cuda_device *device)
{
    return note(device, device->call.synchronize());
}

int cuda_device_put(cuda_device *device, void *dst, const void *src, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const int code = note(device, device->call.to_device((uint64_t)(uintptr_t)dst, src, size, NULL));
    return code != 0 ? code : cuda_device_wait(device);
}

int cuda_device_get(cuda_device *device, void *dst, const void *src, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const int code = note(device, device->call.to_host(dst, (uint64_t)(uintptr_t)src, size, NULL));
    return code != 0 ? code : cuda_device_wait(device);
}

void *cuda_device_take(cuda_device *device, const void *src, size_t size)
{
    uint64_t address = 0;

    if (note(device, device->call.alloc(&address, size == 0 ? 16 : size)) != 0) {
        return NULL;
    }
    void *memory = (void *)(uintptr_t)address;
    if (src != NULL && cuda_device_put(device, memory, src, size) != 0) {
        cuda_device_give(device, memory);
        return NULL;
    }
    return memory;
}

void cuda_device_give(cuda_device *device, void *memory)
{
    if (memory != NULL) {
        (void)note(device, device->call.free((uint64_t)(uintptr_t)memory));
    }
}
