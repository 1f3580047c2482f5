/*
 * What a caller's first program does: packs a gradient, unpacks it, and looks at the result. Strict mode
 * without a cut must return every bit. An argument, if given, is the version that the build system claims to
 * have found.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/gcomp.h"
#include "gradwire/gradwire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_COUNT = 20000 };

static int fail(const char *what, gw_status status)
{
    fprintf(stderr, "consumer: %s: %s (%s)\n", what, gw_status_message(status), gw_status_name(status));
    return 1;
}

int main(int argc, char **argv)
{
    if (gw_version() != GW_VERSION_MAJOR * 10000u + GW_VERSION_MINOR * 100u + GW_VERSION_PATCH) {
        fprintf(stderr, "consumer: the library is not the one of the header\n");
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], gw_version_string()) != 0) {
        fprintf(stderr, "consumer: found version %s, got %s\n", argv[1], gw_version_string());
        return 1;
    }

    static float gradient[VALUE_COUNT], result[VALUE_COUNT];
    for (int i = 0; i < VALUE_COUNT; i++) {
        gradient[i] = (float)((i * 7919) % 2003 - 1001) * 1e-5f;
    }

    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.strict = 1;
    static gw_gcomp codec;
    gw_status status = gw_gcomp_init(&codec, &options);
    if (status != GW_OK) {
        return fail("init", status);
    }

    gw_workspace workspace = {.size = gw_gcomp_workspace_size(&codec)};
    gw_buffer dst = {.capacity = gw_gcomp_frame_bound(&codec, VALUE_COUNT)};
    workspace.data = malloc(workspace.size);
    dst.data = malloc(dst.capacity);
    if (workspace.data == NULL || dst.data == NULL) {
        return fail("memory", GW_ERR_WORKSPACE);
    }

    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = gradient;
    source.len = VALUE_COUNT;
    status = gw_gcomp_encode(&codec, &source, &dst, &workspace);
    if (status != GW_OK) {
        return fail("encode", status);
    }
    const gw_gcomp_frame frame = {.data = dst.data, .size = dst.size};
    gw_gcomp_target target = {.values = result, .capacity = VALUE_COUNT};
    status = gw_gcomp_decode(&codec, &frame, &target, &workspace);
    if (status != GW_OK) {
        return fail("decode", status);
    }
    free(workspace.data);
    free(dst.data);
    if (target.len != VALUE_COUNT || memcmp(gradient, result, sizeof gradient) != 0) {
        fprintf(stderr, "consumer: the values did not survive\n");
        return 1;
    }
    printf("gradwire %s: %zu bytes became %zu\n", gw_version_string(), sizeof gradient, dst.size);
    return 0;
}
