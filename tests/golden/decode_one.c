/*
 * Decodes the vectors of an index that comes in on standard input and says what came out, one line each:
 *
 *   file <TAB> status name <TAB> bad chunk or - <TAB> CRC32C of the values or -
 *
 *   decode_one ROOT [BACKENDS] <ROOT/index.tsv    BACKENDS: name of one backend that may be used besides
 *                                                 scalar
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

static int decode(const vector *v, uint32_t backends)
{
    gw_gcomp codec;
    if (!vector_receiver(v, backends, &codec)) {
        return 0;
    }
    const size_t value_size = gw_dtype_size(v->dtype);
    const uint64_t capacity = vector_capacity(v);
    const size_t workspace_size = gw_gcomp_workspace_size(&codec);
    uint8_t *dst = (uint8_t *)golden_take((size_t)capacity * value_size);
    void *workspace = golden_take(workspace_size);
    memset(dst, 0x5a, (size_t)capacity * value_size);
    gw_gcomp_target target = {.values = dst, .capacity = capacity};
    gw_status status = gw_gcomp_decode(
        &codec, &(gw_gcomp_frame){.data = v->frame.data, .size = v->frame.size, .map = vector_map(v)},
        &target, &(gw_workspace){workspace, workspace_size});
    printf("%s\t%s\t", v->file, gw_status_name(status));
    if (target.bad_chunk == UINT64_MAX) {
        printf("-\t");
    } else {
        printf("%" PRIu64 "\t", target.bad_chunk);
        gw_gcomp_frame_info info;
        if (gw_gcomp_frame_parse(
                &codec, &(gw_gcomp_frame){.data = v->frame.data, .size = v->frame.size, .map = vector_map(v)},
                &info) != GW_OK) {
            printf("(accepted by decode, refused by check)");
        }
        target.len = info.len;
    }
    if (status == GW_OK || target.bad_chunk != UINT64_MAX) {
        printf("%08" PRIx32 "\n", gw_crc32c(0, dst, (size_t)target.len * value_size));
    } else {
        printf("-\n");
    }
    free(dst);
    free(workspace);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: decode_one ROOT [BACKEND] <index.tsv\n");
        return 2;
    }
    uint32_t backends = GW_BACKEND_ALL;
    if (argc == 3) {
        backends = gw_backend_from_name(argv[2]);
        if ((backends & gw_backends_available()) == 0) {
            fprintf(stderr, "decode_one: no backend %s here\n", argv[2]);
            return 2;
        }
    }
    vector v;
    int all_done = 1;
    while (vector_read(&v, stdin, argv[1])) {
        all_done = decode(&v, backends) && all_done;
        vector_free(&v);
    }
    return all_done ? 0 : 1;
}
