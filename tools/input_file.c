/*
 * Maps input files, or reads them step by step.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "input_file.h"

#include "atomic_file.h"
#include "cli_common.h"
#include "gradwire/classic.h"
#include "gradwire/gcomp.h"
#include "gradwire/thc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BLOCK_SIZE ((size_t)1 << 20)

/* What headers take at most (section 2 of docs/format.md and docs/format-thc.md, section 1 of
 * docs/format-classic.md). */
#define FRAME_HEADER_SIZE 96

static void descriptor_close(gw_input_file *input)
{
    if (input->is_open && input->fd != STDIN_FILENO) {
        (void)close(input->fd);
    }
    input->is_open = 0;
}

static int open_error(gw_input_file *input, const char *what, int reason)
{
    const int result = gw_cli_error(GW_CLI_IO, input->name, "%s: %s", what, strerror(reason));
    gw_input_file_close(input);
    return result;
}

int gw_input_file_open(gw_input_file *input, const char *path)
{
    memset(input, 0, sizeof *input);
    const int from_stdin = strcmp(path, "-") == 0;
    input->name = from_stdin ? "standard input" : path;
    input->fd = from_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    input->is_open = input->fd >= 0;
    struct stat status;
    if (!input->is_open) {
        return open_error(input, "cannot open", errno);
    }
    if (fstat(input->fd, &status) != 0) {
        return open_error(input, "cannot stat", errno);
    }
    if (S_ISDIR(status.st_mode)) {
        return open_error(input, "cannot read", EISDIR);
    }
    if (!S_ISREG(status.st_mode)) {
        return GW_CLI_OK;
    }
    input->device = (uint64_t)status.st_dev;
    input->inode = (uint64_t)status.st_ino;
    /* Standard input may be positioned after its start; read() respects that, a mapping would not. */
    if (status.st_size > 0 && (uint64_t)status.st_size <= SIZE_MAX && lseek(input->fd, 0, SEEK_CUR) == 0) {
        void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, input->fd, 0);
        if (data != MAP_FAILED) {
            input->data = data;
            input->size = (size_t)status.st_size;
            input->mapped = 1;
            descriptor_close(input);
        }
    }
    return GW_CLI_OK;
}

/* Makes room for more than input->size bytes, at most for `size`. */
static int grow(gw_input_file *input, size_t size)
{
    if (input->capacity > input->size || input->size >= size) {
        return GW_CLI_OK;
    }
    const size_t doubled = input->capacity < SIZE_MAX / 4 ? 2 * input->capacity + READ_BLOCK_SIZE : SIZE_MAX;
    const size_t capacity = doubled < size ? doubled : size;
    void *data = realloc((void *)(uintptr_t)input->data, capacity);
    if (data == NULL) {
        return open_error(input, "does not fit into memory", ENOMEM);
    }
    input->data = data;
    input->capacity = capacity;
    return GW_CLI_OK;
}

int gw_input_file_fill(gw_input_file *input, uint64_t size)
{
    const size_t wanted = size < SIZE_MAX ? (size_t)size : SIZE_MAX;
    if (!input->is_open || input->size >= wanted) {
        return GW_CLI_OK;
    }
    int result = grow(input, wanted);
    gw_cli_progress_begin("read");
    while (result == GW_CLI_OK && input->is_open && input->size < wanted) {
        uint8_t *end = (uint8_t *)(uintptr_t)input->data + input->size;
        const ssize_t got = read(input->fd, end, input->capacity - input->size);
        if (got > 0) {
            input->size += (size_t)got;
        } else if (got == 0) {
            descriptor_close(input);
        } else if (errno != EINTR) {
            result = open_error(input, "cannot read", errno);
        }
        gw_cli_progress_set(input->size, wanted);
        result = result == GW_CLI_OK ? grow(input, wanted) : result;
    }
    gw_cli_progress_end();
    return result;
}

int gw_input_file_open_frame(gw_input_file *input, const char *path, uint64_t len_max)
{
    int result = gw_input_file_open(input, path);
    if (result == GW_CLI_OK) {
        result = gw_input_file_fill(input, FRAME_HEADER_SIZE);
    }
    gw_gcomp_frame_info gcomp;
    gw_thc_frame_info thc;
    gw_classic_frame_info classic;
    if (result == GW_CLI_OK && gw_gcomp_frame_peek(input->data, input->size, len_max, &gcomp) == GW_OK) {
        result = gw_input_file_fill(input, gcomp.frame_size + 1);
    } else if (result == GW_CLI_OK && gw_thc_frame_peek(input->data, input->size, &thc) == GW_OK &&
               thc.len <= len_max) {
        result = gw_input_file_fill(input, thc.frame_size + 1);
    } else if (result == GW_CLI_OK && gw_classic_frame_peek(input->data, input->size, &classic) == GW_OK &&
               classic.len <= len_max) {
        result = gw_input_file_fill(input, classic.frame_size + 1);
    }
    return result;
}

static const uint8_t frame_magic[4] = {0x67, 0x57, 0x66, 0x1a};

int gw_input_file_is_frame(const gw_input_file *input)
{
    return input->size >= sizeof frame_magic && memcmp(input->data, frame_magic, sizeof frame_magic) == 0;
}

unsigned gw_frame_file_codec(const char *path)
{
    uint8_t head[6];
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        return 0;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, head, sizeof head) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    return got == (ssize_t)sizeof head && memcmp(head, frame_magic, sizeof frame_magic) == 0 ? head[5] : 0;
}

void gw_input_file_close(gw_input_file *input)
{
    if (input->mapped) {
        (void)munmap((void *)(uintptr_t)input->data, input->size);
    } else {
        free((void *)(uintptr_t)input->data);
    }
    descriptor_close(input);
    memset(input, 0, sizeof *input);
}

void gw_memory_release(const void *start, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)start + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)start + size) / page * page;
    if (first < end) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
    }
}

static void bus_error_handle(int signal_number)
{
    static const char text[] = "gradwire: an input file became shorter while it was read\n";
    (void)signal_number;
    gw_atomic_file_discard_pending();
    const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(GW_CLI_IO);
}

void gw_input_file_guard(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = bus_error_handle;
    (void)sigaction(SIGBUS, &action, NULL);
}
