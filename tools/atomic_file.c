/*
 * Temporary file, fsync, rename.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "atomic_file.h"

#include "cli_common.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The signals that end the process by default and that a user, a pipe, a timer or a limit sends. */
static const int caught_signals[] = {
    SIGINT,    SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM, SIGXCPU, SIGPROF, SIGVTALRM, SIGUSR1, SIGUSR2,
#ifdef SIGIO
    SIGIO,
#endif
#ifdef SIGPWR
    SIGPWR,
#endif
#ifdef SIGSTKFLT
    SIGSTKFLT,
#endif
};
enum { CAUGHT_SIGNAL_COUNT = sizeof caught_signals / sizeof caught_signals[0] };

/* What a signal handler removes; empty when there is no temporary file. It changes only while the signals are
 * blocked, so a handler sees a complete name. */
static char pending_path[PATH_MAX];

void gw_atomic_file_discard_pending(void)
{
    if (pending_path[0] != '\0') {
        (void)unlink(pending_path);
    }
}

static void signal_handle(int signal_number)
{
    gw_atomic_file_discard_pending();
    /* SA_RESETHAND restored the default action; the raised signal takes effect when the handler returns. */
    (void)raise(signal_number);
}

static void signals_fill(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < CAUGHT_SIGNAL_COUNT; i++) {
        sigaddset(set, caught_signals[i]);
    }
}

static void signals_block(sigset_t *previous)
{
    sigset_t set;
    signals_fill(&set);
    (void)sigprocmask(SIG_BLOCK, &set, previous);
}

static void signals_install(void)
{
    static int installed;
    if (installed) {
        return;
    }
    installed = 1;
    (void)atexit(gw_atomic_file_discard_pending);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = signal_handle;
    action.sa_flags = (int)SA_RESETHAND;
    signals_fill(&action.sa_mask);
    for (int i = 0; i < CAUGHT_SIGNAL_COUNT; i++) {
        struct sigaction previous;
        /* A signal that the parent process ignores (nohup) stays ignored. */
        if (sigaction(caught_signals[i], NULL, &previous) == 0 && previous.sa_handler != SIG_IGN) {
            (void)sigaction(caught_signals[i], &action, NULL);
        }
    }
    /* A write above the file size limit then fails with EFBIG instead of ending the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
}

static void file_forget(gw_atomic_file *file)
{
    free(file->path_final);
    free(file->path_temporary);
    file->path_final = NULL;
    file->path_temporary = NULL;
    file->fd = -1;
}

void gw_atomic_file_discard(gw_atomic_file *file)
{
    if (file->fd >= 0 && file->fd != STDOUT_FILENO) {
        (void)close(file->fd);
    }
    if (file->path_temporary != NULL) {
        sigset_t previous;
        signals_block(&previous);
        (void)unlink(file->path_temporary);
        pending_path[0] = '\0';
        (void)sigprocmask(SIG_SETMASK, &previous, NULL);
    }
    file_forget(file);
}

/* The own descriptor that a name stands for, such as 3 for /dev/fd/3; -1: none. */
static int descriptor_of(const char *path)
{
    static const char *const standard[3] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    static const char *const folders[3] = {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"};
    char own[64];
    (void)snprintf(own, sizeof own, "/proc/%ld/fd/", (long)getpid());
    for (int i = 0; i < 3; i++) {
        if (strcmp(path, standard[i]) == 0) {
            return i;
        }
    }
    for (int i = 0; i < 4; i++) {
        const char *folder = i < 3 ? folders[i] : own;
        const size_t size = strlen(folder);
        uint64_t number = 0;
        if (strncmp(path, folder, size) == 0 && gw_cli_parse_u64(path + size, 0, INT_MAX, &number) == 0) {
            return (int)number;
        }
    }
    return -1;
}

/* 1 if the link leads to what a process has open rather than to a name. */
static int is_link_of_process(const struct stat *link)
{
    struct stat processes;
    return stat("/proc", &processes) == 0 && link->st_dev == processes.st_dev;
}

/* Follows symbolic links to a name that is none, whether it exists or not; *descriptor: the own one that it
 * stands for, else -1. Returns 0 or an error number. */
static int links_follow(const char *path, char target[PATH_MAX], int *descriptor)
{
    enum { LINKS_MAX = 40 }; /* as Linux */
    if (strlen(path) >= PATH_MAX) {
        return ENAMETOOLONG;
    }
    memcpy(target, path, strlen(path) + 1);
    for (int i = 0; i <= LINKS_MAX; i++) {
        struct stat status;
        char next[PATH_MAX];
        *descriptor = descriptor_of(target);
        if (*descriptor >= 0 || lstat(target, &status) != 0 || !S_ISLNK(status.st_mode) ||
            is_link_of_process(&status)) {
            return 0;
        }
        const ssize_t got = readlink(target, next, sizeof next - 1);
        if (got < 0) {
            return errno;
        }
        next[got] = '\0';
        const char *slash = strrchr(target, '/');
        const size_t folder_size = next[0] == '/' || slash == NULL ? 0 : (size_t)(slash - target) + 1;
        if (folder_size + (size_t)got >= PATH_MAX) {
            return ENAMETOOLONG;
        }
        memcpy(target + folder_size, next, (size_t)got + 1);
    }
    return ELOOP;
}

int gw_atomic_file_is_stdout(const char *path)
{
    char target[PATH_MAX];
    int descriptor = -1;
    return strcmp(path, "-") == 0 ||
           (links_follow(path, target, &descriptor) == 0 && descriptor == STDOUT_FILENO);
}

/* Splits into the folder, which must exist, and the name in it. */
static const char *folder_find(char path[PATH_MAX], struct stat *folder)
{
    char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (slash == NULL) {
        return stat(".", folder) == 0 ? name : NULL;
    }
    char kept = slash[1]; /* "/name" is in "/" */
    slash[1] = '\0';
    const int found = stat(path, folder) == 0;
    slash[1] = kept;
    return found ? name : NULL;
}

int gw_atomic_file_is_same(const char *a, const char *b)
{
    char paths[2][PATH_MAX];
    struct stat status[2];
    int descriptors[2];
    if (gw_atomic_file_is_stdout(a) || gw_atomic_file_is_stdout(b) ||
        links_follow(a, paths[0], &descriptors[0]) != 0 || links_follow(b, paths[1], &descriptors[1]) != 0) {
        return 0;
    }
    const int found = stat(paths[0], &status[0]) == 0;
    if (found != (stat(paths[1], &status[1]) == 0)) {
        return 0;
    }
    if (!found) { /* neither: the same name in the same folder */
        const char *name = folder_find(paths[0], &status[0]);
        const char *other = folder_find(paths[1], &status[1]);
        if (name == NULL || other == NULL || strcmp(name, other) != 0) {
            return 0;
        }
    } else if (!S_ISREG(status[0].st_mode)) {
        return 0;
    }
    return status[0].st_dev == status[1].st_dev && status[0].st_ino == status[1].st_ino;
}

static int open_error(const char *path, int reason)
{
    return gw_cli_error(GW_CLI_IO, path, "cannot open for writing: %s", strerror(reason));
}

/* A descriptor of the caller's: what is written continues what is there. */
static int open_descriptor(gw_atomic_file *file, const char *path, int descriptor)
{
    const int mode = fcntl(descriptor, F_GETFL);
    file->direct = 1;
    if (descriptor == STDOUT_FILENO) {
        file->fd = STDOUT_FILENO;
        return GW_CLI_OK;
    }
    errno = EBADF;
    file->fd = mode >= 0 && (mode & O_ACCMODE) != O_RDONLY ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0) : -1;
    return file->fd < 0 ? open_error(path, errno) : GW_CLI_OK;
}

/* Creates DIRECTORY/.NAME.XXXXXX next to path_final. */
static int temporary_create(gw_atomic_file *file)
{
    const char *slash = strrchr(file->path_final, '/');
    const int directory_len = slash == NULL ? 0 : (int)(slash - file->path_final) + 1;
    const char *base = file->path_final + directory_len;
    const size_t size = strlen(file->path_final) + sizeof "..XXXXXX";
    file->path_temporary = malloc(size);
    if (file->path_temporary == NULL || size > sizeof pending_path) {
        const int result = gw_cli_error(GW_CLI_IO, file->name, "the name is too long");
        file_forget(file);
        return result;
    }
    /* At most 200 bytes of the base name, to stay within NAME_MAX. */
    (void)snprintf(file->path_temporary, size, "%.*s.%.200s.XXXXXX", directory_len, file->path_final, base);

    sigset_t previous;
    signals_block(&previous);
    file->fd = mkstemp(file->path_temporary);
    const int reason = errno;
    if (file->fd >= 0) {
        memcpy(pending_path, file->path_temporary, strlen(file->path_temporary) + 1);
    }
    (void)sigprocmask(SIG_SETMASK, &previous, NULL);
    if (file->fd < 0) {
        const int result = gw_cli_error(GW_CLI_IO, file->name, "cannot create a file in its directory: %s",
                                        strerror(reason));
        file_forget(file);
        return result;
    }
    return GW_CLI_OK;
}

/* What else goes on writing to an open file, NULL if nothing is known: a rename would leave it a file without
 * name. */
static const char *writer_find(const char *target, const struct stat *status)
{
    static const char *const names[2] = {"standard output", "standard error"};
    struct stat other;
    for (int i = 0; i < 2; i++) {
        if (fstat(STDOUT_FILENO + i, &other) == 0 && other.st_dev == status->st_dev &&
            other.st_ino == status->st_ino) {
            return names[i];
        }
    }
    return lstat(target, &other) == 0 && S_ISLNK(other.st_mode) && is_link_of_process(&other)
               ? "another process"
               : NULL;
}

int gw_atomic_file_open(gw_atomic_file *file, const char *path)
{
    memset(file, 0, sizeof *file);
    file->fd = -1;
    file->name = path;
    signals_install();
    if (strcmp(path, "-") == 0) {
        file->name = "standard output";
        file->direct = 1;
        file->fd = STDOUT_FILENO;
        return GW_CLI_OK;
    }
    char target[PATH_MAX];
    int descriptor = -1;
    const int reason = links_follow(path, target, &descriptor);
    if (reason == 0 && descriptor >= 0) {
        return open_descriptor(file, path, descriptor);
    }
    struct stat status;
    const int exists = reason == 0 && stat(path, &status) == 0;
    if (reason != 0 || (!exists && errno != ENOENT)) {
        return open_error(path, reason != 0 ? reason : errno);
    }
    if (exists && S_ISDIR(status.st_mode)) {
        return gw_cli_error(GW_CLI_IO, path, "is a directory");
    }
    if (exists && !S_ISREG(status.st_mode)) {
        file->direct = 1;
        file->fd = open(path, O_WRONLY | O_CLOEXEC);
        return file->fd < 0 ? open_error(path, errno) : GW_CLI_OK;
    }
    if (exists && access(path, W_OK) != 0) {
        return open_error(path, errno);
    }
    const char *writer = exists ? writer_find(target, &status) : NULL;
    if (writer != NULL) {
        return gw_cli_error(GW_CLI_IO, path, "%s writes to this file, too, and would lose it", writer);
    }
    file->path_final = exists ? realpath(path, NULL) : strdup(target);
    if (file->path_final == NULL) {
        return gw_cli_error(GW_CLI_IO, path, "cannot resolve: %s", strerror(errno));
    }
    const int result = temporary_create(file);
    if (result != GW_CLI_OK) {
        return result;
    }
    /* mkstemp() gives only the owner access; set the mode that the target has or would get from open(). */
    mode_t mode = 0;
    if (exists) {
        mode = status.st_mode & 0777;
    } else {
        const mode_t mask = umask(0);
        (void)umask(mask);
        mode = 0666 & ~mask;
    }
    (void)fchmod(file->fd, mode);
    return GW_CLI_OK;
}

int gw_atomic_file_write(gw_atomic_file *file, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    size_t done = 0;
    while (done < size) {
        const size_t left = size - done;
        const ssize_t put = write(file->fd, bytes + done, left < ((size_t)1 << 30) ? left : (size_t)1 << 30);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            const int reason = errno;
            gw_atomic_file_discard(file);
            return gw_cli_error(GW_CLI_IO, file->name, "cannot write: %s", strerror(reason));
        }
        done += (size_t)put;
    }
    return GW_CLI_OK;
}

/* Makes the rename durable. A failure is ignored: some file systems cannot synchronise directories. */
static void directory_sync(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int len = slash == NULL ? 1 : (slash == path ? 1 : (int)(slash - path));
    (void)snprintf(directory, sizeof directory, "%.*s", len, slash == NULL ? "." : path);
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
}

int gw_atomic_file_commit(gw_atomic_file *file)
{
    if (file->direct) {
        const int failed = file->fd != STDOUT_FILENO && close(file->fd) != 0;
        const int reason = errno;
        file_forget(file);
        return failed ? gw_cli_error(GW_CLI_IO, file->name, "cannot write: %s", strerror(reason)) : GW_CLI_OK;
    }
    const char *what = "cannot write";
    int failed = fsync(file->fd) != 0;
    int reason = errno;
    if (close(file->fd) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    file->fd = -1;
    if (!failed) {
        sigset_t previous;
        signals_block(&previous);
        failed = rename(file->path_temporary, file->path_final) != 0;
        reason = errno;
        what = "cannot rename the finished file";
        if (!failed) {
            pending_path[0] = '\0';
        }
        (void)sigprocmask(SIG_SETMASK, &previous, NULL);
    }
    if (failed) {
        gw_atomic_file_discard(file);
        return gw_cli_error(GW_CLI_IO, file->name, "%s: %s", what, strerror(reason));
    }
    directory_sync(file->path_final);
    file_forget(file);
    return GW_CLI_OK;
}

int gw_atomic_file_is_input(const char *path, const gw_input_file *input)
{
    struct stat status;
    return input->inode != 0 && strcmp(path, "-") != 0 && stat(path, &status) == 0 &&
           (uint64_t)status.st_dev == input->device && (uint64_t)status.st_ino == input->inode;
}
