/*
 * Replays inputs through a fuzz target without libFuzzer: every file named, and every file below every
 * directory named. Exit status 1 if there was none; a broken promise aborts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "fuzz_support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static unsigned long input_count;

static int replay(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)place;
    if (kind != FTW_F) {
        return kind == FTW_NS || kind == FTW_DNR;
    }
    size_t size = (size_t)status->st_size;
    uint8_t *data = (uint8_t *)malloc(size != 0 ? size : 1);
    FILE *file = fopen(path, "rb");
    if (data == NULL || file == NULL || fread(data, 1, size, file) != size) {
        perror(path);
        exit(2);
    }
    fclose(file);
    /* Flushed so that the last line names the input that aborted. */
    printf("%s (%zu bytes)\n", path, size);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    input_count++;
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (nftw(argv[i], replay, 16, FTW_PHYS) != 0) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 2;
        }
    }
    printf("%lu inputs\n", input_count);
    return input_count == 0;
}
