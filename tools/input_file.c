/*
 * Maps or reads whole input files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "input_file.h"

#include "atomic_file.h"
#include "cli_common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BLOCK_SIZE ((size_t)1 << 20)

static int read_all(gw_input_file *input, int fd)
{
    uint8_t *data = NULL;
    size_t size = 0;
    size_t capacity = 0;
    for (;;) {
        if (capacity - size < READ_BLOCK_SIZE) {
            if (capacity > SIZE_MAX / 2 - READ_BLOCK_SIZE) {
                free(data);
                return gw_cli_error(GW_CLI_IO, input->name, "does not fit into memory");
            }
            capacity = 2 * capacity + READ_BLOCK_SIZE;
            uint8_t *grown = realloc(data, capacity);
            if (grown == NULL) {
                free(data);
                return gw_cli_error(GW_CLI_IO, input->name, "does not fit into memory");
            }
            data = grown;
        }
        const ssize_t got = read(fd, data + size, capacity - size);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            const int reason = errno;
            free(data);
            return gw_cli_error(GW_CLI_IO, input->name, "cannot read: %s", strerror(reason));
        }
        if (got == 0) {
            break;
        }
        size += (size_t)got;
    }
    input->data = data;
    input->size = size;
    return GW_CLI_OK;
}

int gw_input_file_open(gw_input_file *input, const char *path)
{
    memset(input, 0, sizeof *input);
    const int from_stdin = strcmp(path, "-") == 0;
    const char *name = from_stdin ? "standard input" : path;
    const int fd = from_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return gw_cli_error(GW_CLI_IO, name, "cannot open: %s", strerror(errno));
    }
    struct stat status;
    int result = GW_CLI_OK;
    input->name = name;
    if (fstat(fd, &status) != 0) {
        result = gw_cli_error(GW_CLI_IO, name, "cannot stat: %s", strerror(errno));
    } else if (S_ISDIR(status.st_mode)) {
        result = gw_cli_error(GW_CLI_IO, name, "is a directory");
    } else if (S_ISREG(status.st_mode)) {
        input->device = (uint64_t)status.st_dev;
        input->inode = (uint64_t)status.st_ino;
        /* A regular stdin may stand anywhere but at its start; read() respects that, a mapping would not. */
        if (!from_stdin && status.st_size > 0 && (uint64_t)status.st_size <= SIZE_MAX) {
            void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
            if (data != MAP_FAILED) {
                input->data = data;
                input->size = (size_t)status.st_size;
                input->mapped = 1;
            }
        }
    }
    if (result == GW_CLI_OK && !input->mapped) {
        result = read_all(input, fd);
    }
    if (!from_stdin) {
        (void)close(fd);
    }
    if (result != GW_CLI_OK) {
        memset(input, 0, sizeof *input);
    }
    return result;
}

void gw_input_file_close(gw_input_file *input)
{
    if (input->mapped) {
        (void)munmap((void *)(uintptr_t)input->data, input->size);
    } else {
        free((void *)(uintptr_t)input->data);
    }
    memset(input, 0, sizeof *input);
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
