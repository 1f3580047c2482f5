/*
 * The environment. Rank 0's configuration counts for all ranks, so that they decide alike.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_config.h"

#include "gradwire/thc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GW_MPI_THREADS_MAX 256u
/* 4.5 to 5.6 bits a value on gradients, one more than with five times the error (docs/mpi.md) */
#define GW_MPI_NMSE_PRESET 1e-3f

gw_mpi_config gw_mpi_settings;
atomic_int gw_mpi_enabled, gw_mpi_nonblocking;

static pthread_once_t gw_mpi_config_once = PTHREAD_ONCE_INIT;
unsigned gw_mpi_threads = 1;
char gw_mpi_log[1024];
static const char *gw_mpi_bad; /* name of a variable, after GRADWIRE_MPI; NULL: none */

/* Mean bits a value at these targets over the four gradients of docs/results/gcomp-dial.md (carried,
 * stochastic, blocks of 2^9, preset small). */
static const struct {
    float bits, nmse;
} gw_mpi_rates[] = {
    {1.11f, 1.0f},    {1.52f, 0.32f},   {1.97f, 0.1f},    {2.51f, 0.032f}, {3.08f, 0.01f},
    {3.65f, 0.0032f}, {4.25f, 0.001f},  {4.84f, 3.2e-4f}, {5.44f, 1e-4f},  {6.04f, 3.2e-5f},
    {6.64f, 1e-5f},   {7.22f, 3.2e-6f}, {7.83f, 1e-6f},
};

float gw_mpi_nmse_of_bits(float bits)
{
    const size_t count = sizeof(gw_mpi_rates) / sizeof(gw_mpi_rates[0]);
    if (!(bits > gw_mpi_rates[0].bits)) {
        return gw_mpi_rates[0].nmse;
    }
    for (size_t i = 1; i < count; i++) {
        if (bits <= gw_mpi_rates[i].bits) {
            /* Linear between two points, which is a little more than the exponential that it is about: fewer
             * bits than asked for, by at most 0.1. Needs no libm, so that all machines agree */
            const float share =
                (bits - gw_mpi_rates[i - 1].bits) / (gw_mpi_rates[i].bits - gw_mpi_rates[i - 1].bits);
            return gw_mpi_rates[i - 1].nmse + share * (gw_mpi_rates[i].nmse - gw_mpi_rates[i - 1].nmse);
        }
    }
    return gw_mpi_rates[count - 1].nmse;
}

int gw_mpi_options_valid(const gw_mpi_options *options)
{
    if (options->algorithm != GW_MPI_A2A && options->algorithm != GW_MPI_RING) {
        return 0;
    }
    switch (options->mode) {
    case GW_MPI_CARRIED:
        return options->target_nmse >= 1e-12f && options->target_nmse <= 1.0f;
    case GW_MPI_CONSTANT:
        return options->constant_drop <= 23;
    case GW_MPI_THC:
        return options->thc_bits >= 1 && options->thc_bits <= GW_THC_BITS_MAX &&
               (uint32_t)options->thc_sums <= GW_MPI_THC_REQUANTIZED;
    default:
        return 0;
    }
}

int gw_mpi_options_lossy(const gw_mpi_options *options)
{
    return options->mode != GW_MPI_CONSTANT || options->constant_drop != 0;
}

/* ------------ parsing ------------ */

/* A number, with K, M or G for a power of two. 0: it is none. */
static int gw_mpi_parse_count(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 0);
    if (end == text || errno != 0 || text[0] == '-') {
        return 0;
    }
    const char *unit = *end == '\0' ? NULL : strchr("KkMmGg", *end);
    const unsigned shift = unit == NULL ? 0 : 10 * ((unsigned)(unit - "KkMmGg") / 2 + 1);
    end += unit != NULL;
    *value = (uint64_t)number << shift;
    return *end == '\0' && *value >> shift == number && *value < GW_MPI_THRESHOLD_AUTO;
}

static int gw_mpi_parse_float(const char *text, float *value)
{
    char *end;
    *value = strtof(text, &end);
    return end != text && *end == '\0';
}

/* The value of GRADWIRE_MPI_<name>; NULL if it is not set or empty. */
static const char *gw_mpi_variable(const char *name)
{
    char full[64];
    (void)snprintf(full, sizeof(full), "GRADWIRE_MPI%s%s", name[0] == '\0' ? "" : "_", name);
    const char *text = getenv(full);
    return text == NULL || text[0] == '\0' ? NULL : text;
}

/* Remembers the first variable that is set to something that is not valid. */
static void gw_mpi_check(const char *name, int is_valid)
{
    if (!is_valid && gw_mpi_bad == NULL) {
        gw_mpi_bad = name;
    }
}

/* Index of a variable's value among `names`, which end with NULL. The first one if it is not set. */
static uint32_t gw_mpi_read_name(const char *name, const char *const *names)
{
    const char *text = gw_mpi_variable(name);
    uint32_t i = 0;
    while (text != NULL && names[i] != NULL && strcmp(text, names[i]) != 0) {
        i++;
    }
    gw_mpi_check(name, names[i] != NULL);
    return names[i] != NULL ? i : 0;
}

static uint32_t gw_mpi_read_switch(const char *name)
{
    static const char *const names[] = {"on", "1", "off", "0", NULL};
    return gw_mpi_read_name(name, names) < 2;
}

static uint64_t gw_mpi_read_count(const char *name, uint64_t preset, uint64_t min, uint64_t max)
{
    const char *text = gw_mpi_variable(name);
    uint64_t value = preset;
    const int is_valid = text == NULL || (gw_mpi_parse_count(text, &value) && value >= min && value <= max);
    gw_mpi_check(name, is_valid);
    return is_valid ? value : preset;
}

static int gw_mpi_read_target(gw_mpi_config *config)
{
    const char *bits = gw_mpi_variable("BITS"), *nmse = gw_mpi_variable("NMSE");
    float value = 4.0f;
    if (bits != NULL && (!gw_mpi_parse_float(bits, &value) || !(value > 0.0f))) {
        return 0;
    }
    config->options.target_nmse = bits == NULL ? GW_MPI_NMSE_PRESET : gw_mpi_nmse_of_bits(value);
    if (config->options.mode == GW_MPI_THC) {
        config->options.thc_bits = bits == NULL ? 4 : value < 256.0f ? (uint32_t)value : 0;
    } else {
        config->options.thc_bits = 4;
    }
    return nmse == NULL || (bits == NULL && gw_mpi_parse_float(nmse, &config->options.target_nmse));
}

static void gw_mpi_config_read(void)
{
    static const char *const modes[] = {"carried", "constant", "thc", NULL};         /* gw_mpi_mode */
    static const char *const sums[] = {"lanes", "requantized", NULL};                /* gw_mpi_thc_sums */
    static const char *const progress[] = {"auto", "thread", "calls", "none", NULL}; /* GW_MPI_PROGRESS_* */
    static const char *const pcontrol[] = {"off", "on", NULL};
    static const char *const algorithms[] = {"a2a", "ring", NULL}; /* gw_mpi_algorithm */
    static const char target[] = "BITS or GRADWIRE_MPI_NMSE";
    gw_mpi_config *config = &gw_mpi_settings;
    config->enabled = gw_mpi_read_switch("");
    config->exact = gw_mpi_read_switch("EXACT");
    config->notice = gw_mpi_read_switch("NOTICE");
    config->options.mode = (gw_mpi_mode)gw_mpi_read_name("MODE", modes);
    config->options.thc_sums = (gw_mpi_thc_sums)gw_mpi_read_name("THC_SUMS", sums);
    gw_mpi_check(target, gw_mpi_read_target(config));
    config->options.constant_drop = (uint32_t)gw_mpi_read_count("DROP", 16, 0, 23);
    config->options.seed = gw_mpi_read_count("SEED", 0x6772616477697265u, 0, GW_MPI_THRESHOLD_AUTO - 1);
    config->piece_len = gw_mpi_read_count("PIECE", 0, 0, 1u << 30);
    config->options.algorithm = (gw_mpi_algorithm)gw_mpi_read_name("ALGORITHM", algorithms);
    gw_mpi_check("PIECE", config->piece_len == 0 || config->piece_len >= 4096);
    gw_mpi_threads = (unsigned)gw_mpi_read_count("THREADS", 1, 1, GW_MPI_THREADS_MAX);
    const char *threshold = gw_mpi_variable("THRESHOLD");
    config->threshold_size = GW_MPI_THRESHOLD_AUTO;
    if (threshold != NULL && strcmp(threshold, "auto") != 0) {
        config->threshold_size = gw_mpi_read_count("THRESHOLD", 0, 0, GW_MPI_THRESHOLD_AUTO - 1);
    }
    config->size_max = gw_mpi_read_count("MAX_SIZE", UINT64_MAX, 0, GW_MPI_THRESHOLD_AUTO - 1);
    config->pcontrol = gw_mpi_read_name("PCONTROL", pcontrol);
    config->progress = gw_mpi_read_name("PROGRESS", progress);
    gw_mpi_check(target, gw_mpi_options_valid(&config->options));
    if (gw_mpi_bad != NULL) {
        gw_mpi_log_write(
            "GRADWIRE_MPI%s%s has a value that is not valid (docs/mpi.md): nothing is compressed",
            gw_mpi_bad[0] == '\0' ? "" : "_", gw_mpi_bad);
        config->enabled = 0;
    }
    const char *log = gw_mpi_variable("LOG");
    (void)snprintf(gw_mpi_log, sizeof(gw_mpi_log), "%s", log == NULL ? "" : log);
    config->samples = gw_mpi_log[0] != '\0';
    atomic_store(&gw_mpi_enabled, (int)config->enabled);
}

void gw_mpi_config_load(void)
{
    (void)pthread_once(&gw_mpi_config_once, gw_mpi_config_read);
}

void gw_mpi_config_agree(void)
{
    gw_mpi_config_load();
    (void)PMPI_Bcast(&gw_mpi_settings, (int)sizeof(gw_mpi_settings), MPI_BYTE, 0, MPI_COMM_WORLD);
    atomic_store(&gw_mpi_enabled, (int)gw_mpi_settings.enabled);
    atomic_store(&gw_mpi_nonblocking, gw_mpi_settings.progress == GW_MPI_PROGRESS_CALLS);
}

void gw_mpi_config_notice(void)
{
    const gw_mpi_options *options = &gw_mpi_settings.options;
    const uint64_t size = gw_mpi_settings.threshold_size;
    char what[96], from[48];
    int rank, ranks;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank != 0 || ranks == 1 || !gw_mpi_settings.enabled || !gw_mpi_settings.notice ||
        !gw_mpi_options_lossy(options)) {
        return;
    }
    if (options->mode == GW_MPI_CARRIED) {
        (void)snprintf(what, sizeof(what), "to a relative squared error of %.2g",
                       (double)options->target_nmse);
    } else if (options->mode == GW_MPI_CONSTANT) {
        (void)snprintf(what, sizeof(what), "to %" PRIu32 " of 23 mantissa bits", 23 - options->constant_drop);
    } else {
        (void)snprintf(what, sizeof(what), "to THC with %" PRIu32 " bits", options->thc_bits);
    }
    if (size == GW_MPI_THRESHOLD_AUTO) {
        (void)snprintf(from, sizeof(from), "that it makes faster");
    } else {
        (void)snprintf(from, sizeof(from), "of %" PRIu64 " bytes and more", size);
    }
    gw_mpi_log_write(
        "sums of MPI_FLOAT %s are rounded %s%s (GRADWIRE_MPI=off turns it off, GRADWIRE_MPI_NOTICE=off "
        "this line; docs/mpi.md)",
        from, what, gw_mpi_settings.exact ? "; integers and parts that do not overlap are not" : "");
}

int gw_mpi_config_wants_thread(void)
{
    return gw_mpi_settings.enabled && (gw_mpi_settings.progress == GW_MPI_PROGRESS_AUTO ||
                                       gw_mpi_settings.progress == GW_MPI_PROGRESS_THREAD);
}

void gw_mpi_options_init(gw_mpi_options *options)
{
    gw_mpi_config_load();
    *options = gw_mpi_settings.options;
}

int gw_mpi_enable(int on)
{
    gw_mpi_config_load();
    return atomic_exchange(&gw_mpi_enabled, on != 0);
}
