/*
 * Golden classic frames on every backend of this machine, whatever its byte order and word size:
 *
 *   test_classic_vectors DIR MINIMUM    DIR holds index.tsv (make_classic_vectors.py) with at least MINIMUM
 * vectors
 *
 * Every vector is checked and decoded: status, CRC32C of the values, what must stay as it was. Valid frames
 * are also cut at many lengths.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_file.h"
#include "gradwire/classic.h"

enum { CANARY = 0xa5, CAPACITY = 50000 };

static int failures;

#define CHECK(name, condition, ...)                                                                          \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            failures++;                                                                                      \
            printf("%s: ", (name));                                                                          \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

static gw_workspace workspace_of(const uint8_t *data, size_t size)
{
    gw_classic_frame_info info;
    gw_workspace workspace = {NULL, 0};
    if (gw_classic_frame_peek(data, size, &info) == GW_OK) {
        workspace.size = gw_classic_decode_workspace_size(&info);
    }
    workspace.data = golden_take(workspace.size);
    return workspace;
}

static void test_frame(const char *name, const char *expected, uint32_t crc, const uint8_t *data, size_t size,
                       uint32_t backends)
{
    static uint8_t values[4 * CAPACITY];
    const gw_classic_frame frame = {data, size, CAPACITY, backends};
    gw_workspace workspace = workspace_of(data, size);
    gw_classic_frame_info info;
    const gw_status status = gw_classic_frame_check(&frame, &info, &workspace);
    gw_classic_target target = {values, CAPACITY, 0, 1.0f};
    memset(values, CANARY, sizeof values);
    CHECK(name, strcmp(gw_status_name(status), expected) == 0, "%s instead of %s", gw_status_name(status),
          expected);
    CHECK(name, gw_classic_decode(&frame, &target, &workspace) == status, "check and decode disagree");
    size_t written = (size_t)target.len * (status == GW_OK ? gw_dtype_size(info.dtype) : 0);
    if (status == GW_OK) {
        CHECK(name, gw_crc32c(0, values, written) == crc, "other values");
    } else if (status == GW_ERR_CORRUPT || status == GW_ERR_CHECKSUM) {
        written = gw_classic_frame_peek(data, size, &info) == GW_OK
                      ? (size_t)info.len * gw_dtype_size(info.dtype)
                      : 0;
        CHECK(name, gw_crc32c(0, values, written) == crc, "the values of a bad frame are not zeros");
    }
    for (size_t i = written; i < sizeof values; i++) {
        if (values[i] != CANARY) {
            CHECK(name, 0, "wrote past its values");
            break;
        }
    }
    free(workspace.data);
}

static void test_cuts(const char *name, const uint8_t *data, size_t size)
{
    for (size_t cut = 0; cut < size; cut += cut < 128 ? 1 : 61) {
        uint8_t *part = golden_take(cut); /* of its own size, for sanitizers */
        gw_classic_frame_info info;
        const gw_classic_frame frame = {part, cut, CAPACITY, GW_BACKEND_ALL};
        memcpy(part, data, cut);
        gw_workspace workspace = workspace_of(part, cut);
        const gw_status status = gw_classic_frame_check(&frame, &info, &workspace);
        CHECK(name, status == GW_ERR_SHORT, "%s for the first %zu bytes", gw_status_name(status), cut);
        free(workspace.data);
        free(part);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_classic_vectors DIR MINIMUM\n");
        return 2;
    }
    char path[1200], line[256];
    snprintf(path, sizeof path, "%s/index.tsv", argv[1]);
    FILE *index = fopen(path, "r");
    long count = 0;
    while (index != NULL && fgets(line, sizeof line, index) != NULL) {
        char name[128], status[32];
        unsigned crc;
        size_t size;
        if (sscanf(line, "%127[^\t]\t%31[^\t]\t%x", name, status, &crc) != 3) {
            continue; /* the head */
        }
        snprintf(path, sizeof path, "%s/%s.gw", argv[1], name);
        uint8_t *data = golden_read(path, &size);
        for (uint32_t bit = 1; bit <= gw_backends_available(); bit *= 2) {
            if ((gw_backends_available() & bit) != 0) {
                test_frame(name, status, crc, data, size, bit);
            }
        }
        test_frame(name, status, crc, data, size, GW_BACKEND_ALL);
        if (strcmp(status, "ok") == 0) {
            test_cuts(name, data, size);
        }
        free(data);
        count++;
    }
    CHECK("index.tsv", count >= strtol(argv[2], NULL, 10), "only %ld vectors", count);
    printf("%ld vectors, %d failures\n", count, failures);
    return failures == 0 ? 0 : 1;
}
