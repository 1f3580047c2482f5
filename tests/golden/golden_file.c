/* SPDX-License-Identifier: BSD-2-Clause */
#include "golden_file.h"

#include <stdio.h>
#include <stdlib.h>

void *golden_take(size_t size)
{
    void *place = malloc(size != 0 ? size : 1);
    if (place == NULL) {
        fprintf(stderr, "vectors: out of memory\n");
        exit(2);
    }
    return place;
}

uint8_t *golden_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    long length = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        length = ftell(file);
        rewind(file);
    }
    uint8_t *data = golden_take(length > 0 ? (size_t)length : 0);
    if (length < 0 || fread(data, 1, (size_t)length, file) != (size_t)length) {
        fprintf(stderr, "vectors: cannot read %s\n", path);
        exit(2);
    }
    fclose(file);
    *size = (size_t)length;
    return data;
}
