/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/traits.h"
#include "gradwire/gradwire.h"

#define GW_TEXT2(x) #x
#define GW_TEXT(x)  GW_TEXT2(x)

typedef struct status_text {
    gw_status status;
    const char *name;
    const char *message;
} status_text;

static const status_text texts[] = {
    {GW_OK, "ok", "no error"},
    {GW_ERR_ARG, "arg", "an argument is NULL, out of range, or buffers overlap"},
    {GW_ERR_OPTION, "option", "an option or a combination of options is not supported"},
    {GW_ERR_DST, "dst", "the output buffer is too small"},
    {GW_ERR_WORKSPACE, "workspace", "the workspace is too small"},
    {GW_ERR_STATE, "state", "the object was not initialised or does not fit this call"},
    {GW_ERR_SHORT, "short", "the input ends before the structure that it announces"},
    {GW_ERR_MAGIC, "magic", "not a gradwire frame"},
    {GW_ERR_VERSION, "version", "a format version that this library does not read"},
    {GW_ERR_UNSUPPORTED, "unsupported", "unknown codec, dtype or flag"},
    {GW_ERR_HEADER, "header", "a header or directory field breaks a rule of the format"},
    {GW_ERR_LIMIT, "limit", "a count exceeds the limit"},
    {GW_ERR_TABLE, "table", "the codebook or table is invalid or not installed"},
    {GW_ERR_MAP, "map", "the frame was made with another precision map"},
    {GW_ERR_TRAILING, "trailing", "bytes follow the frame"},
    {GW_ERR_CORRUPT, "corrupt", "a chunk breaks a rule of the format"},
    {GW_ERR_CHECKSUM, "checksum", "CRC32C mismatch"},
    {GW_ERR_NONFINITE, "nonfinite", "NaN or infinity where the policy refuses it"},
    {GW_ERR_ROUND, "round", "a packet of a past or unknown round, or of another job"},
    {GW_ERR_DUP, "dup", "a contributor is already part of the sum"},
    {GW_ERR_OVERFLOW, "overflow", "the sum could exceed its lanes"},
    {GW_ERR_MISMATCH, "mismatch", "other options, blocks or norms than the sum"},
    {GW_ERR_NO_CUDA_BUILD, "no_cuda_build", "the library was built without CUDA"},
    {GW_ERR_NO_DRIVER, "no_driver", "no CUDA driver on this machine"},
    {GW_ERR_NO_DEVICE, "no_device", "no CUDA device on this machine"},
    {GW_ERR_NO_IMAGE, "no_image", "no kernel image for this device's architecture"},
    {GW_ERR_DEVICE, "device", "the CUDA driver reported an error"},
    {GW_ERR_EMPTY, "empty", "there is no tensor, method or message to plan"},
    {GW_ERR_NEGATIVE, "negative", "a time, size or slope is negative"},
    {GW_ERR_TICKS, "ticks", "a time or size is too large: a schedule could exceed 2^58 ticks (275 s)"},
    {GW_ERR_CURVE, "curve", "a cost table does not ascend"},
    {GW_ERR_NAME, "name", "two tensors have the same name"},
    {GW_ERR_PLAN, "plan", "the plan does not fit the problem"},
    {GW_ERR_INFEASIBLE, "infeasible", "the constraints leave no plan"},
};

static const status_text *find(gw_status status)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].status == status) {
            return &texts[i];
        }
    }
    return NULL;
}

const char *gw_status_name(gw_status status)
{
    const status_text *text = find(status);
    return text != NULL ? text->name : "unknown";
}

const char *gw_status_message(gw_status status)
{
    const status_text *text = find(status);
    return text != NULL ? text->message : "unknown status";
}

uint32_t gw_version(void)
{
    return GW_VERSION_MAJOR * 10000u + GW_VERSION_MINOR * 100u + GW_VERSION_PATCH;
}

const char *gw_version_string(void)
{
    return GW_TEXT(GW_VERSION_MAJOR) "." GW_TEXT(GW_VERSION_MINOR) "." GW_TEXT(GW_VERSION_PATCH);
}

size_t gw_dtype_size(gw_dtype dtype)
{
    return gw_traits_of((uint32_t)dtype)->size;
}
