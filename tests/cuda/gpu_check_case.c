/*
 * Cases of gpu_check: time limits, memory, comparison, random values.
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
int clears_workspaces;

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

void *on_device(const void *src, size_t size)
{
    void *p = cuda_device_take(&device, src, size);
    if (p == NULL) {
        fprintf(stderr, "gpu_check: the device has no %zu bytes left, or failed (%u)\n", size, device.error);
        say_last();
        exit(1);
    }
    return p;
}

/* A workspace: unspecified bytes, or zeros where nothing but its end is of interest (--clear). */
void *workspace_on_device(size_t size)
{
    if (!clears_workspaces) {
        return on_device(NULL, size);
    }
    void *zeros = calloc(size + (size == 0), 1);
    if (zeros == NULL) {
        fprintf(stderr, "gpu_check: out of memory\n");
        exit(1);
    }
    void *p = on_device(zeros, size);
    free(zeros);
    return p;
}

void give(void *p)
{
    cuda_device_give(&device, p);
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
    if (cuda_device_get(&device, dst, src, size) != 0) {
        fprintf(stderr, "gpu_check: the device failed (%u)\n", device.error);
        say_last();
        exit(1);
    }
}

gw_cuda_result fetch_result(const gw_cuda_result *result)
{
    gw_cuda_result r;
    fetch(&r, result, sizeof r);
    return r;
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

/* Device memory equals host memory. */
void expect_bytes(const void *at, const void *expected, size_t size, const char *what, const char *case_name)
{
    void *copy = take(size);
    fetch(copy, at, size);
    expect(memcmp(copy, expected, size) == 0, what, case_name);
    free(copy);
}

uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Gradient-like bits: geometric exponents, some zeros and subnormals, `special` in 4096 not finite. */
void fill(void *dst, gw_dtype dtype, size_t len, unsigned special, uint64_t *random)
{
    const unsigned mantissa = dtype == GW_FP32 ? 23 : dtype == GW_BF16 ? 7 : 10;
    const uint32_t top = dtype == GW_FP16 ? 31 : 255, middle = dtype == GW_FP16 ? 12 : 118;

    for (size_t i = 0; i < len; i++) {
        const uint64_t r = next_random(random);
        uint32_t exponent = middle, field = (uint32_t)(r >> 8) & ((1u << mantissa) - 1);
        for (uint64_t bits = r; (bits & 1) == 0 && exponent > middle - 9; bits >>= 1) {
            exponent--;
        }
        if ((r >> 40 & 255) < 8) {
            exponent = 0;
            field = (r >> 40 & 255) == 0 ? field : 0;
        }
        if ((r >> 20 & 4095) < special) {
            exponent = top;
        }
        const uint32_t bits =
            (uint32_t)(r >> 63) << (dtype == GW_FP32 ? 31 : 15) | exponent << mantissa | field;
        if (dtype == GW_FP32) {
            memcpy((uint8_t *)dst + 4 * i, &bits, 4);
        } else {
            const uint16_t half = (uint16_t)bits;
            memcpy((uint8_t *)dst + 2 * i, &half, 2);
        }
    }
}
