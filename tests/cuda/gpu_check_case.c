/*
 * Cases of gpu_check: time limits, memory, comparison.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

enum { EXIT_HANGS = 70 };

cuda_device device;
gw_cuda cuda;
uint32_t cpu_backends = GW_BACKEND_ALL;
int differences;
unsigned long compared;
unsigned case_seconds; /* that a case may take; 0: as long as it likes */

/* What a program that fails or hangs prints: the case, and the last comparison. */
static char last_compared[256] = "nothing was compared\n";
static char current_case[200] = "no case had begun\n";

void say_last(void)
{
    fprintf(stderr, "gpu_check: in case: %sgpu_check: last compared: %s", current_case, last_compared);
}

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        _exit(1);
    }
}

/* `timeout` sends SIGTERM to a stage that takes too long, the alarm clock SIGALRM to a case that does. Only
 * async-signal-safe functions are called, and none of a driver that may hang. */
void on_signal(int number)
{
    write_text(number == SIGALRM ? "gpu_check: HANGS: a case took longer than --limit allows\n"
                                 : "gpu_check: stopped\n");
    write_text("gpu_check: in case: ");
    write_text(current_case);
    write_text("gpu_check: last compared: ");
    write_text(last_compared);
    _exit(number == SIGALRM ? EXIT_HANGS : 128 + number);
}

/* From here on it is this case's time. */
void begin_case(const char *name, const char *call)
{
    snprintf(current_case, sizeof current_case, "%.160s: %.30s\n", name, call);
    alarm(case_seconds);
}

void *take(size_t size)
{
    void *p = malloc(size + (size == 0));
    if (p == NULL) {
        fprintf(stderr, "gpu_check: out of memory\n");
        exit(1);
    }
    return p;
}

void *device_take(size_t size)
{
    void *p = cuda_device_take(&device, NULL, size);
    if (p == NULL) {
        fprintf(stderr, "gpu_check: the device has no %zu bytes left, or failed (%u)\n", size, device.error);
        say_last();
        exit(1);
    }
    return p;
}

void device_give(void *start)
{
    cuda_device_give(&device, start);
}

static void device_must(int code)
{
    if (code != 0) {
        fprintf(stderr, "gpu_check: the device failed (%u)\n", device.error);
        say_last();
        exit(1);
    }
}

void device_put(void *dst, const void *src, size_t size)
{
    device_must(cuda_device_put(&device, dst, src, size));
}

void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "gpu_check: %s: %s (driver %u)\n", what, gw_status_name(status),
                gw_cuda_driver_error(&cuda));
        say_last();
        exit(1);
    }
}

void fetch(void *dst, const void *src, size_t size)
{
    device_must(cuda_device_get(&device, dst, src, size));
}

void expect(int is_equal, const char *what, const char *case_name)
{
    compared++;
    alarm(case_seconds);
    snprintf(last_compared, sizeof last_compared, "%.160s: %.60s\n", case_name, what);
    if (!is_equal) {
        differences++;
        if (differences <= 20) {
            printf("DIFFERENT %s: %s\n", case_name, what);
        }
    }
}
