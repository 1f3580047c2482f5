/*
 * Opening a device: driver, context, modules, functions; and the launches.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/cuda_handle.h"

#include "core/bytes.h"

typedef struct kernel_entry {
    const char *name;
    const char *image;
} kernel_entry;

static const kernel_entry kernels[GW_CUDA_KERNEL_COUNT] = {
#define GW_CUDA_ENTRY(name, image, params) {#name, #image},
    GW_CUDA_KERNEL_LIST(GW_CUDA_ENTRY)
#undef GW_CUDA_ENTRY
};

static int is_equal(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

gw_cuda_state *gw_cuda_state_of(gw_cuda *cuda)
{
    gw_cuda_state *state = (gw_cuda_state *)(void *)cuda;
    return state != NULL && state->tag == GW_CUDA_TAG ? state : NULL;
}

int gw_cuda_is_built(void)
{
    return gw_cuda_images[0].name != NULL;
}

/* What the failure of a module's load means to a caller. */
static gw_status status_of_load(int code)
{
    switch (code) {
    case GW_CU_INVALID_IMAGE: /* made by a compiler that the driver is too old for */
    case GW_CU_NO_BINARY:
    case GW_CU_INVALID_PTX:
    case GW_CU_NO_JIT:
    case GW_CU_PTX_VERSION:
    case GW_CU_JIT_DISABLED:
        return GW_ERR_NO_IMAGE;
    default:
        return GW_ERR_DEVICE;
    }
}

static int read_info(gw_cuda_state *state)
{
    static const int attribute[] = {GW_CU_ATTRIBUTE_MAJOR, GW_CU_ATTRIBUTE_MINOR,
                                    GW_CU_ATTRIBUTE_MULTIPROCESSORS, GW_CU_ATTRIBUTE_SHARED_OPTIN};
    uint32_t *const field[] = {&state->info.arch_major, &state->info.arch_minor,
                               &state->info.multiprocessor_count, &state->info.shared_size_max};
    int device = 0;
    int code = state->driver.context_device(&device);

    for (size_t i = 0; code == GW_CU_SUCCESS && i < sizeof attribute / sizeof attribute[0]; i++) {
        int value = 0;
        code = state->driver.device_attribute(&value, attribute[i], device);
        *field[i] = (uint32_t)value;
    }
    return code;
}

/* Driver and context: everything before the kernels. */
static gw_status find_device(gw_cuda_state *state)
{
    const gw_driver *driver = &state->driver;
    int version = 0, count = 0;
    void *context = NULL;
    int code = driver->init(0);

    if (code == GW_CU_NO_DEVICE) {
        state->error = (uint32_t)code;
        return GW_ERR_NO_DEVICE;
    }
    if (code == GW_CU_SUCCESS) {
        code = driver->driver_version(&version);
    }
    if (code == GW_CU_SUCCESS && version < GW_CU_VERSION_MIN) {
        return GW_ERR_NO_DRIVER;
    }
    if (code == GW_CU_SUCCESS) {
        code = driver->device_count(&count);
    }
    if (code == GW_CU_SUCCESS && count == 0) {
        return GW_ERR_NO_DEVICE;
    }
    if (code == GW_CU_SUCCESS) {
        code = driver->context_current(&context);
    }
    if (code == GW_CU_SUCCESS && context == NULL) {
        return GW_ERR_STATE;
    }
    state->info.driver_version = (uint32_t)version;
    if (code == GW_CU_SUCCESS) {
        code = read_info(state);
    }
    state->error = (uint32_t)code;
    return code == GW_CU_SUCCESS ? GW_OK : GW_ERR_DEVICE;
}

static gw_status load_images(gw_cuda_state *state)
{
    for (size_t i = 0; i < GW_CUDA_IMAGES_MAX && gw_cuda_images[i].name != NULL; i++) {
        int code = state->driver.module_load(&state->module[i], gw_cuda_images[i].bytes);
        if (code != GW_CU_SUCCESS) {
            state->module[i] = NULL;
            state->error = (uint32_t)code;
            return status_of_load(code);
        }
    }
    return GW_OK;
}

static void *module_of(const gw_cuda_state *state, const char *image)
{
    for (size_t i = 0; i < GW_CUDA_IMAGES_MAX && gw_cuda_images[i].name != NULL; i++) {
        if (is_equal(gw_cuda_images[i].name, image)) {
            return state->module[i];
        }
    }
    return NULL;
}

/* Every kernel may use all the shared memory that the device gives a block: launches contain how much they
 * use. Drivers with lazy loading load a kernel on first use: that is here, not in a launch that may be
 * captured. */
static gw_status find_functions(gw_cuda_state *state)
{
    const gw_driver *driver = &state->driver;

    for (size_t i = 0; i < GW_CUDA_KERNEL_COUNT; i++) {
        int shared_size = 0;
        void *module = module_of(state, kernels[i].image);
        if (module == NULL) {
            return GW_ERR_NO_IMAGE;
        }
        int code = driver->module_function(&state->function[i], module, kernels[i].name);
        if (code == GW_CU_SUCCESS) {
            code = driver->function_attribute(&shared_size, GW_CU_FUNCTION_SHARED_SIZE, state->function[i]);
        }
        if (code == GW_CU_SUCCESS) {
            code = driver->function_set(state->function[i], GW_CU_FUNCTION_DYNAMIC_SHARED_MAX,
                                        (int)state->info.shared_size_max - shared_size);
        }
        if (code != GW_CU_SUCCESS) {
            state->error = (uint32_t)code;
            return status_of_load(code);
        }
    }
    return GW_OK;
}

static void close_state(gw_cuda_state *state)
{
    const uint32_t error = state->error;

    for (size_t i = 0; i < GW_CUDA_IMAGES_MAX; i++) {
        if (state->module[i] != NULL) {
            /* fails only with the context, which took it along */
            (void)state->driver.module_unload(state->module[i]);
        }
    }
    gw_driver_close(&state->driver);
    GW_MEMSET(state, 0, sizeof *state);
    state->error = error;
}

gw_status gw_cuda_init(gw_cuda *cuda)
{
    gw_cuda_state *state = (gw_cuda_state *)(void *)cuda;

    if (cuda == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(cuda, 0, sizeof *cuda);
    gw_status status = gw_driver_open(&state->driver);
    if (status != GW_OK) {
        return status;
    }
    status = find_device(state);
    if (status == GW_OK) {
        status = load_images(state);
    }
    if (status == GW_OK) {
        status = find_functions(state);
    }
    if (status != GW_OK) {
        close_state(state);
        return status;
    }
    state->tag = GW_CUDA_TAG;
    return GW_OK;
}

void gw_cuda_close(gw_cuda *cuda)
{
    gw_cuda_state *state = gw_cuda_state_of(cuda);
    if (state != NULL) {
        close_state(state);
    }
}

gw_status gw_cuda_device_info(const gw_cuda *cuda, gw_cuda_info *info)
{
    const gw_cuda_state *state = (const gw_cuda_state *)(const void *)cuda;

    if (info == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(info, 0, sizeof *info);
    if (cuda == NULL) {
        return GW_ERR_ARG;
    }
    if (state->tag != GW_CUDA_TAG) {
        return GW_ERR_STATE;
    }
    *info = state->info;
    return GW_OK;
}

uint32_t gw_cuda_driver_error(const gw_cuda *cuda)
{
    return cuda != NULL ? ((const gw_cuda_state *)(const void *)cuda)->error : 0;
}

static gw_status note(gw_cuda_state *state, int code)
{
    if (code != GW_CU_SUCCESS) {
        state->error = (uint32_t)code;
        return GW_ERR_DEVICE;
    }
    return GW_OK;
}

gw_status gw_cuda_clear(gw_cuda_state *state, void *dst, size_t size, void *stream)
{
    return note(state, state->driver.clear((gw_cu_address)(uintptr_t)dst, 0, size / 4, stream));
}

gw_status gw_cuda_run(gw_cuda_state *state, const gw_cuda_launch *l, void *stream)
{
    void *params[1] = {(void *)(uintptr_t)l->params};

    return l->grid == 0
               ? GW_OK
               : note(state, state->driver.launch(state->function[l->kernel], l->grid, 1, 1, l->block, 1, 1,
                                                  l->shared_size, stream, params, NULL));
}

gw_status gw_cuda_submit(gw_cuda_state *state, const gw_cuda_launches *launches, void *workspace,
                         void *stream)
{
    gw_status status = GW_OK;

    if (launches->zero_size != 0) {
        status =
            gw_cuda_clear(state, (uint8_t *)workspace + launches->zero_offset, launches->zero_size, stream);
    }
    for (uint32_t i = 0; status == GW_OK && i < launches->launch_count; i++) {
        status = gw_cuda_run(state, &launches->launch[i], stream);
    }
    return status;
}
