/*
 * Collectives, communicators, start and end: what is intercepted, and the plain functions of gradwire_mpi.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

/* Below this many values latency dominates: they are sent unrounded */
#define GW_MPI_EXACT_LEN 16384u
/* Least automatic threshold */
#define GW_MPI_AUTO_FLOOR (1u << 16)
/* The one on several nodes until a blocking call has measured, which nonblocking ones cannot do */
#define GW_MPI_AUTO_BEFORE (1u << 20)
/* Below this all counts of blocks and pieces fit MPI's ints */
#define GW_MPI_VALUES_MAX (UINT64_C(1) << 40)

/* ------------ one path for all collectives ------------ */

typedef struct gw_mpi_args {
    const void *sendbuf;
    void *recvbuf;
    int64_t count;
    MPI_Comm comm;
    gw_mpi_kind kind;
    const gw_mpi_options *options;
    MPI_Request *request; /* NULL: blocking */
} gw_mpi_args;

static int gw_mpi_is_float_sum(MPI_Datatype type, MPI_Op op)
{
    return op == MPI_SUM && (type == MPI_FLOAT || type == MPI_REAL || type == MPI_REAL4);
}

/* 1 if a call is large enough; all ranks decide alike. May measure. */
static int gw_mpi_is_large(gw_mpi_context *context, uint64_t size, int blocking, int *status)
{
    uint64_t threshold = gw_mpi_settings.threshold_size;
    if (threshold == GW_MPI_THRESHOLD_AUTO) {
        if (blocking && !context->measured && size >= GW_MPI_AUTO_FLOOR) {
            *status = gw_mpi_auto_measure(context);
        }
        threshold = context->measured              ? context->threshold_size
                    : gw_mpi_auto_on_node(context) ? UINT64_MAX
                                                   : GW_MPI_AUTO_BEFORE;
    }
    return size >= threshold;
}

static int gw_mpi_args_start(const gw_mpi_args *args, gw_mpi_context *context)
{
    const uint64_t blocks = args->kind == GW_MPI_REDUCE_SCATTER ? (uint64_t)context->size : 1;
    gw_mpi_call call = {
        .kind = args->kind,
        .values = args->sendbuf == MPI_IN_PLACE ? args->recvbuf : args->sendbuf,
        .result = args->recvbuf,
        .len = (uint64_t)args->count * blocks,
        .block_len = args->kind == GW_MPI_REDUCE_SCATTER ? (uint64_t)args->count : 0,
    };
    if (args->options != NULL) {
        call.options = *args->options;
    } else {
        call.options = gw_mpi_settings.options;
        if (call.len < GW_MPI_EXACT_LEN) {
            call.options.mode = GW_MPI_CONSTANT;
            call.options.constant_drop = 0;
        }
        call.may_be_exact = gw_mpi_settings.exact && gw_mpi_options_lossy(&call.options);
    }
    gw_mpi_operation *operation = gw_mpi_operation_start(context, &call, args->request);
    if (args->request == NULL) {
        return gw_mpi_operation_wait(operation);
    }
    gw_mpi_progress_wake();
    return MPI_SUCCESS;
}

/* What can be said of a call without its communicator. GW_MPI_REASONS: nothing that lets it pass. */
static gw_mpi_reason gw_mpi_args_pass(const gw_mpi_args *args, MPI_Datatype type, MPI_Op op)
{
    const int is_auto = gw_mpi_settings.threshold_size == GW_MPI_THRESHOLD_AUTO;
    if (!gw_mpi_is_float_sum(type, op) || args->count <= 0) {
        return GW_MPI_PASSED_KIND;
    }
    if (!atomic_load_explicit(&gw_mpi_enabled, memory_order_relaxed)) {
        return GW_MPI_PASSED_OFF;
    }
    if (args->kind == GW_MPI_ALLREDUCE && !is_auto &&
        (uint64_t)args->count * sizeof(float) < gw_mpi_settings.threshold_size) {
        return GW_MPI_PASSED_BELOW;
    }
    if (args->request != NULL && !atomic_load_explicit(&gw_mpi_nonblocking, memory_order_relaxed)) {
        return GW_MPI_PASSED_THREAD;
    }
    /* Left to MPI, which reports the error */
    if (args->comm == MPI_COMM_NULL || args->recvbuf == NULL || args->recvbuf == MPI_IN_PLACE ||
        args->sendbuf == NULL || args->sendbuf == args->recvbuf) {
        return GW_MPI_PASSED_KIND;
    }
    return (uint64_t)args->count > GW_MPI_VALUES_MAX ? GW_MPI_PASSED_ABOVE : GW_MPI_REASONS;
}

/* The same with it. May measure: *result is MPI's error of that. */
static gw_mpi_reason gw_mpi_args_compare(const gw_mpi_args *args, gw_mpi_context **context, int *result)
{
    int size = 1;
    if (PMPI_Comm_size(args->comm, &size) != MPI_SUCCESS || size == 1) {
        return GW_MPI_PASSED_COMM;
    }
    if ((uint64_t)args->count > GW_MPI_VALUES_MAX / (uint64_t)size) {
        return GW_MPI_PASSED_ABOVE;
    }
    const uint64_t bytes =
        (uint64_t)args->count * sizeof(float) * (args->kind == GW_MPI_REDUCE_SCATTER ? (uint64_t)size : 1);
    const int is_auto = gw_mpi_settings.threshold_size == GW_MPI_THRESHOLD_AUTO;
    if (bytes < (is_auto ? GW_MPI_AUTO_FLOOR : gw_mpi_settings.threshold_size)) {
        return GW_MPI_PASSED_BELOW;
    }
    if (bytes > gw_mpi_settings.size_max) {
        return GW_MPI_PASSED_ABOVE;
    }
    *context = gw_mpi_context_get(args->comm);
    if (*context == NULL) {
        return GW_MPI_PASSED_COMM;
    }
    if (gw_mpi_scope_is_off(args->comm)) {
        return GW_MPI_PASSED_SCOPE;
    }
    if (gw_mpi_is_large(*context, bytes, args->request == NULL, result)) {
        return GW_MPI_REASONS;
    }
    if (!is_auto) {
        return GW_MPI_PASSED_BELOW;
    }
    return (*context)->measured            ? GW_MPI_PASSED_SLOWER
           : gw_mpi_auto_on_node(*context) ? GW_MPI_PASSED_NODE
                                           : GW_MPI_PASSED_BELOW;
}

/* 0: the call passes on to MPI. Else *result is what it returns. */
static int gw_mpi_take(const gw_mpi_args *args, MPI_Datatype type, MPI_Op op, int *result)
{
    gw_mpi_context *context = NULL;
    gw_mpi_reason reason = gw_mpi_args_pass(args, type, op);
    *result = MPI_SUCCESS;
    if (reason == GW_MPI_REASONS) {
        reason = gw_mpi_args_compare(args, &context, result);
    }
    if (*result != MPI_SUCCESS) {
        return 1;
    }
    if (reason == GW_MPI_REASONS) {
        *result = gw_mpi_args_start(args, context);
        return 1;
    }
    (void)atomic_fetch_add_explicit(&gw_mpi_passed[reason], 1, memory_order_relaxed);
    if (args->request == NULL) {
        gw_mpi_drain(args->comm);
    }
    return 0;
}

/* ------------ interception ------------ */

/* Defines one function. `sums` is its kind, `wanted` where its request goes, and is_ours 0 if it cannot be.
 */
#define GW_MPI_COLLECTIVE(name, sums, wanted, is_ours, parameters, arguments)                                \
    GW_MPI_ENTRY(name, parameters)                                                                           \
    {                                                                                                        \
        const gw_mpi_args args = {.sendbuf = sendbuf,                                                        \
                                  .recvbuf = recvbuf,                                                        \
                                  .count = count,                                                            \
                                  .comm = comm,                                                              \
                                  .kind = (sums),                                                            \
                                  .request = (wanted)};                                                      \
        int result;                                                                                          \
        return (is_ours) && gw_mpi_take(&args, datatype, op, &result) ? result : PMPI_##name arguments;      \
    }

/* The calls with counts of type int, and those of MPI 4 with MPI_Count. */
#define GW_MPI_COLLECTIVES(suffix, count_type)                                                               \
    GW_MPI_COLLECTIVE(Allreduce##suffix, GW_MPI_ALLREDUCE, NULL, 1,                                          \
                      (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,          \
                       MPI_Op op, MPI_Comm comm),                                                            \
                      (sendbuf, recvbuf, count, datatype, op, comm))                                         \
    GW_MPI_COLLECTIVE(Iallreduce##suffix, GW_MPI_ALLREDUCE, request, request != NULL,                        \
                      (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,          \
                       MPI_Op op, MPI_Comm comm, MPI_Request *request),                                      \
                      (sendbuf, recvbuf, count, datatype, op, comm, request))                                \
    GW_MPI_COLLECTIVE(Reduce_scatter_block##suffix, GW_MPI_REDUCE_SCATTER, NULL, 1,                          \
                      (const void *sendbuf, void *recvbuf, count_type count, MPI_Datatype datatype,          \
                       MPI_Op op, MPI_Comm comm),                                                            \
                      (sendbuf, recvbuf, count, datatype, op, comm))

GW_MPI_COLLECTIVES(, int)
#if MPI_VERSION >= 4
GW_MPI_COLLECTIVES(_c, MPI_Count)
#endif

/* ------------ start and end ------------ */

/* 1: all ranks have the library, and messages can be sent. */
static int gw_mpi_begin_together(void)
{
    if (!gw_mpi_presence_on_all()) {
        return 0;
    }
    gw_mpi_presence_watch();
    const int status = gw_mpi_transport_open();
    gw_mpi_presence_unwatch();
    if (status != MPI_SUCCESS) {
        gw_mpi_log_write("MPI has no communicator for its messages: nothing is compressed");
    }
    return status == MPI_SUCCESS;
}

void gw_mpi_begin(int provided)
{
    if (!gw_mpi_begin_together()) {
        gw_mpi_config_load();
        atomic_store(&gw_mpi_enabled, 0);
        return;
    }
    gw_mpi_config_agree();
    if (gw_mpi_settings.enabled && gw_mpi_settings.threshold_size == GW_MPI_THRESHOLD_AUTO) {
        gw_mpi_auto_begin();
    }
    gw_mpi_config_notice();
    if (gw_mpi_config_wants_thread()) {
        int can = provided == MPI_THREAD_MULTIPLE && gw_mpi_progress_start();
        (void)PMPI_Allreduce(MPI_IN_PLACE, &can, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        atomic_store(&gw_mpi_nonblocking, can);
        if (!can && gw_mpi_settings.progress == GW_MPI_PROGRESS_THREAD) {
            gw_mpi_log_write("no MPI_THREAD_MULTIPLE on all ranks: MPI_Iallreduce is not compressed");
        }
    }
}

int gw_mpi_begin_level(int required)
{
    gw_mpi_config_load();
    gw_mpi_entries_warn();
    gw_mpi_presence_announce();
    const int thread = gw_mpi_config_wants_thread() &&
                       (gw_mpi_settings.progress == GW_MPI_PROGRESS_THREAD || gw_mpi_imports_nonblocking());
    return thread ? MPI_THREAD_MULTIPLE : required;
}

GW_MPI_ENTRY(Init_thread, (int *argc, char ***argv, int required, int *provided))
{
    const int status = PMPI_Init_thread(argc, argv, gw_mpi_begin_level(required), provided);
    if (status == MPI_SUCCESS) {
        gw_mpi_begin(*provided);
    }
    return status;
}

GW_MPI_ENTRY(Init, (int *argc, char ***argv))
{
    int provided = MPI_THREAD_SINGLE;
    const int level = gw_mpi_begin_level(MPI_THREAD_SINGLE);
    const int status =
        level == MPI_THREAD_SINGLE ? PMPI_Init(argc, argv) : PMPI_Init_thread(argc, argv, level, &provided);
    if (status == MPI_SUCCESS) {
        gw_mpi_begin(provided);
    }
    return status;
}

void gw_mpi_end(void)
{
    while (atomic_load(&gw_mpi_active) > 0) {
        (void)gw_mpi_progress();
    }
    gw_mpi_progress_stop();
    gw_mpi_runtime_close();
    if (gw_mpi_transport_ready()) { /* so that all ranks are here */
        gw_mpi_statistics_log();
    }
    gw_mpi_contexts_close();
    gw_mpi_scope_close();
    gw_mpi_auto_end();
    gw_mpi_transport_close();
    gw_mpi_presence_close();
    gw_mpi_pool_clear();
    atomic_store(&gw_mpi_enabled, 0);
}

GW_MPI_ENTRY(Finalize, (void))
{
    gw_mpi_end();
    return PMPI_Finalize();
}

/* ------------ plain functions ------------ */

/* One rank, or an intercommunicator: nothing to compress. */
static int gw_mpi_plain(const gw_mpi_args *args)
{
    if (args->count > INT32_MAX) {
        return gw_mpi_error_raise(args->comm, MPI_ERR_COUNT);
    }
    const int count = (int)args->count;
    if (args->kind == GW_MPI_REDUCE_SCATTER) {
        return PMPI_Reduce_scatter_block(args->sendbuf, args->recvbuf, count, MPI_FLOAT, MPI_SUM, args->comm);
    }
    if (args->request != NULL) {
        return PMPI_Iallreduce(args->sendbuf, args->recvbuf, count, MPI_FLOAT, MPI_SUM, args->comm,
                               args->request);
    }
    return PMPI_Allreduce(args->sendbuf, args->recvbuf, count, MPI_FLOAT, MPI_SUM, args->comm);
}

static int gw_mpi_call_direct(const gw_mpi_args *args)
{
    gw_mpi_config_load();
    if (args->options != NULL && !gw_mpi_options_valid(args->options)) {
        return gw_mpi_error_raise(args->comm, MPI_ERR_ARG);
    }
    gw_mpi_context *context = gw_mpi_context_get(args->comm);
    if (context == NULL || (args->request != NULL && !atomic_load(&gw_mpi_nonblocking))) {
        return gw_mpi_plain(args);
    }
    const int size = context->size;
    if (args->count < 0 || (uint64_t)args->count > GW_MPI_VALUES_MAX / (uint64_t)size) {
        return gw_mpi_error_raise(args->comm, MPI_ERR_COUNT);
    }
    if (args->count == 0) {
        return gw_mpi_plain(args);
    }
    if (args->sendbuf == NULL || args->recvbuf == NULL) {
        return gw_mpi_error_raise(args->comm, MPI_ERR_BUFFER);
    }
    return gw_mpi_args_start(args, context);
}

int gw_mpi_allreduce(const float *sendbuf, float *recvbuf, int64_t count, MPI_Comm comm,
                     const gw_mpi_options *options)
{
    const gw_mpi_args args = {
        .sendbuf = sendbuf, .recvbuf = recvbuf, .count = count, .comm = comm, .options = options};
    return gw_mpi_call_direct(&args);
}

int gw_mpi_iallreduce(const float *sendbuf, float *recvbuf, int64_t count, MPI_Comm comm,
                      const gw_mpi_options *options, MPI_Request *request)
{
    const gw_mpi_args args = {.sendbuf = sendbuf,
                              .recvbuf = recvbuf,
                              .count = count,
                              .comm = comm,
                              .options = options,
                              .request = request};
    return request == NULL ? gw_mpi_error_raise(comm, MPI_ERR_ARG) : gw_mpi_call_direct(&args);
}

int gw_mpi_reduce_scatter_block(const float *sendbuf, float *recvbuf, int64_t count, MPI_Comm comm,
                                const gw_mpi_options *options)
{
    const gw_mpi_args args = {.sendbuf = sendbuf,
                              .recvbuf = recvbuf,
                              .count = count,
                              .comm = comm,
                              .kind = GW_MPI_REDUCE_SCATTER,
                              .options = options};
    return gw_mpi_call_direct(&args);
}

int gw_mpi_threshold(MPI_Comm comm, uint64_t *threshold_size)
{
    *threshold_size = UINT64_MAX;
    gw_mpi_context *context = gw_mpi_context_get(comm);
    if (context == NULL) {
        return MPI_SUCCESS;
    }
    if (gw_mpi_settings.threshold_size != GW_MPI_THRESHOLD_AUTO) {
        *threshold_size = gw_mpi_settings.threshold_size;
        return MPI_SUCCESS;
    }
    int status = MPI_SUCCESS;
    if (!context->measured) {
        status = gw_mpi_auto_measure(context);
    }
    *threshold_size = context->threshold_size;
    return status;
}
