/*
 * The one file that opens a library. Without GW_HAVE_CUDA it needs nothing from the system.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/driver.h"

#include "core/bytes.h"

#if defined(GW_HAVE_CUDA)

#include <dlfcn.h>

/* Names with a version suffix are the ones that cuda.h maps the plain names to: 64-bit addresses and
 * sizes. */
static const struct {
    const char *name;
    size_t offset;
} functions[] = {
    {"cuInit", offsetof(gw_driver, init)},
    {"cuDriverGetVersion", offsetof(gw_driver, driver_version)},
    {"cuDeviceGetCount", offsetof(gw_driver, device_count)},
    {"cuCtxGetCurrent", offsetof(gw_driver, context_current)},
    {"cuCtxGetDevice", offsetof(gw_driver, context_device)},
    {"cuDeviceGetAttribute", offsetof(gw_driver, device_attribute)},
    {"cuModuleLoadData", offsetof(gw_driver, module_load)},
    {"cuModuleUnload", offsetof(gw_driver, module_unload)},
    {"cuModuleGetFunction", offsetof(gw_driver, module_function)},
    {"cuFuncGetAttribute", offsetof(gw_driver, function_attribute)},
    {"cuFuncSetAttribute", offsetof(gw_driver, function_set)},
    {"cuMemsetD32Async", offsetof(gw_driver, clear)},
    {"cuLaunchKernel", offsetof(gw_driver, launch)},
};

gw_status gw_driver_open(gw_driver *driver)
{
    GW_MEMSET(driver, 0, sizeof *driver);
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver->library == NULL) {
        return GW_ERR_NO_DRIVER;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(driver->library, functions[i].name);
        if (address == NULL) {
            gw_driver_close(driver);
            return GW_ERR_NO_DRIVER;
        }
        /* POSIX makes a function pointer of the object pointer by its representation; ISO C has no cast for
         * it. */
        GW_MEMCPY((uint8_t *)(void *)driver + functions[i].offset, &address, sizeof address);
    }
    return GW_OK;
}

void gw_driver_close(gw_driver *driver)
{
    if (driver->library != NULL) {
        dlclose(driver->library);
    }
    GW_MEMSET(driver, 0, sizeof *driver);
}

#else

gw_status gw_driver_open(gw_driver *driver)
{
    GW_MEMSET(driver, 0, sizeof *driver);
    return GW_ERR_NO_CUDA_BUILD;
}

void gw_driver_close(gw_driver *driver)
{
    GW_MEMSET(driver, 0, sizeof *driver);
}

#endif
