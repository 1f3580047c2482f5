/*
 * gradwire rate: bits and errors of a snapshot's gradient at every tolerance or noise limit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "dtype_convert.h"
#include "optimizer_update.h"
#include "rate_plot.h"
#include "tensor_input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOISE_POINTS = 17,
    NOISE_TOLERANCE_BITS = 12 /* of the maps and codecs of noise limits: any would do */
};

typedef struct rate_arguments {
    gw_codec_request request;
    const char *plot;
    int is_noise;
    int dead_zone; /* -1: by the limit and the optimizer */
} rate_arguments;

/* One line of the table. */
typedef struct rate_line {
    gw_rate_point point;
    double limit; /* tolerance bits, or noise */
    double worst; /* deviation of a parameter; negative: unknown */
} rate_line;

static const gw_option rate_options[] = {
    {"noise", NULL, "The curve of the noise limit instead of that of the tolerance",
     GW_FLAG(rate_arguments, is_noise)},
    {"dead-zone", "on|off",
     "Whether a value below its quantum becomes 0 or one quantum (default: on with --noise and for "
     "optimizers "
     "without a second moment)",
     GW_CHOICE(rate_arguments, dead_zone, gw_switch_names)},
    {"plot", "FILE.svg", "Draw the curve; - is standard output", GW_OPTION_OUTPUT,
     GW_AT(rate_arguments, plot)},
    {"rounding", "MODE", "truncate, nearest or stochastic (default)",
     GW_CHOICE(gw_codec_request, options.rounding, gw_rounding_names)},
    GW_THREADS_ROW("Threads of all but the prediction (default 1; 0 = all CPUs)"),
    {0},
};

static const char *const encode_names[] = {"preset", "wire-scale", "seed", "convert", NULL};
static const char *const run_names[] = {"as", "backend", "json", NULL};

static const gw_command_line command_line = {
    "IN",
    "Print the size and the errors of the frame of IN, a snapshot (.json with its arrays), at every "
    "tolerance (or, "
    "with --noise, at every noise limit), as one pass over the gradient predicts them for derived quanta.\v"
    "Columns: bits a value; share of fp32 and of bf16; squared error over the sum of squares (NMSE); squared "
    "error over the sum of second moments; the most by which a parameter moves, as a share of |num| "
    "(tolerance, a bound) or of itself (noise, measured). Exit codes: 0 done, 1 bad input, 2 bad command "
    "line, 3 input or output failed.",
    GW_ONE_INPUT,
    {.options = rate_options},
    {{NULL, &gw_codec_encode_group, encode_names}, {NULL, &gw_codec_run_group, run_names}},
};

/* ---- errors -------------------------------------------------------------------------------------------- */

/* Sum of the second moments as the optimizer will use them, 0 if it has none (docs/numerics.md section
 * 2.6). */
static double second_moments(const gw_snapshot *snapshot)
{
    const gw_optimizer *o = &snapshot->optimizer;
    double scale = 1, sum = 0;
    if (o->kind == GW_OPTIMIZER_ADAM || o->kind == GW_OPTIMIZER_ADAMW) {
        scale = o->beta2 / (1 - pow(o->beta2, (double)o->step));
    } else if (o->kind == GW_OPTIMIZER_ADAGRAD) {
        scale = 1 / (double)o->step;
    } else if (o->kind == GW_OPTIMIZER_RMSPROP) {
        scale = o->alpha;
    }
    for (uint64_t i = 0; snapshot->state.v != NULL && i < snapshot->len; i++) {
        const double v = (double)snapshot->state.v[i];
        sum += isfinite(v) ? v : 0;
    }
    return scale * sum;
}

/* The largest share of itself by which a parameter moves, other than those that are 0. */
static double worst_deviation(const gw_tensor_input *tensor, const void *decoded, double wire_scale)
{
    const gw_snapshot *snapshot = &tensor->in.snapshot;
    gw_optimizer_update update;
    double worst = 0;
    gw_optimizer_update_init(&update, &snapshot->optimizer);
    for (uint64_t i = 0; i < tensor->in.len; i++) {
        const double x = gw_dtype_number(tensor->in.dtype, tensor->in.values, i);
        const double y = gw_dtype_number(tensor->in.dtype, decoded, i);
        const double theta = fabs((double)snapshot->state.param[i]);
        if (x != y && isfinite(x) && theta > 0) {
            const double exact = gw_optimizer_update_param(&update, &snapshot->state, i, x / wire_scale);
            const double moved = gw_optimizer_update_param(&update, &snapshot->state, i, y / wire_scale);
            worst = fmax(worst, fabs(moved - exact) / theta);
        }
    }
    return worst;
}

/* The same after an encode and a decode with the tensor's map. */
static double measure_worst(const gw_tensor_input *tensor, const gw_codec_request *request)
{
    gw_encode_run run;
    gw_decode_run decode;
    gw_gcomp_frame_info info;
    uint64_t bad_chunk = 0;
    gw_encode_run_init(&run, &tensor->codec, &tensor->source, request->threads);
    gw_status status = gw_encode_run_once(&run, 0);
    const gw_gcomp_frame frame = {run.frame, run.frame_size, tensor->source.quantum.map};
    if (status == GW_OK) {
        status = gw_gcomp_frame_parse(&tensor->codec, &frame, &info);
    }
    double worst = 0;
    if (status == GW_OK) {
        gw_decode_run_init(&decode, &tensor->codec, &frame, &info, request->threads);
        status = gw_decode_run_once(&decode, &bad_chunk, 0);
        worst = worst_deviation(tensor, decode.dst, (double)request->wire_scale);
        gw_decode_run_free(&decode);
    }
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, tensor->in.name, "%s", gw_status_message(status));
    }
    gw_encode_run_free(&run);
    return worst;
}

/* ---- the curve ----------------------------------------------------------------------------------------- */

/* Gives the tensor the map of a noise limit instead of the one that it has. */
static void use_noise_map(gw_tensor_input *tensor, const gw_codec_request *request, float noise)
{
    const gw_optimizer_kind kind = tensor->in.snapshot.optimizer.kind;
    if (!gw_optimizer_has_second_moment(kind)) {
        gw_cli_fail(GW_CLI_BAD_DATA, tensor->in.name, "noise limit of %s: %s", gw_optimizer_name(kind),
                    gw_status_message(GW_ERR_OPTION));
    }
    const gw_map_run_options options = {
        .limits = {NOISE_TOLERANCE_BITS, noise, 1, 0},
        .wire_scale = request->wire_scale,
        .chunk_log2 = tensor->options.chunk_log2,
        .backends = request->common.backends,
        .threads = request->threads,
        .is_once = 1,
    };
    gw_map_run_free(&tensor->map);
    gw_map_run_make(&tensor->map, &tensor->in.snapshot, &options);
    tensor->source.quantum = gw_gcomp_quantum_of_map(&tensor->map.map);
}

/* All but the deviations of noise limits. */
static void line_fill(rate_line *line, const gw_gcomp_rate *rate, uint32_t index, double moments)
{
    const int is_noise = rate->kind == GW_GCOMP_RATE_NOISE;
    memset(line, 0, sizeof *line);
    line->limit = is_noise ? exp2(-0.5 * index) : index + 1;
    line->worst = is_noise ? -1 : exp2(-(double)(index + 1));
    if (is_noise) {
        (void)snprintf(line->point.label, sizeof line->point.label, index == 0 ? "1" : "2^-%g", 0.5 * index);
    } else {
        (void)snprintf(line->point.label, sizeof line->point.label, "%u", index + 1);
    }
    line->point.bits = rate->len == 0 ? 0 : 8 * (double)gw_gcomp_rate_size(rate, index) / (double)rate->len;
    line->point.nmse = rate->square > 0 ? rate->error[index] / rate->square : 0;
    line->point.added = moments > 0 ? rate->error[index] / moments : -1;
}

/* lines: from the finest limit to the coarsest. Returns their number. */
static uint32_t curve_make(gw_tensor_input *tensor, const rate_arguments *arguments, rate_line *lines)
{
    const int is_noise = arguments->is_noise;
    const gw_codec_request *request = &arguments->request;
    const double scale = (double)request->wire_scale;
    const double moments = second_moments(&tensor->in.snapshot) * scale * scale;
    const uint32_t count = is_noise ? NOISE_POINTS : GW_GCOMP_RATE_POINTS;
    gw_gcomp_rate rate;
    if (is_noise) {
        use_noise_map(tensor, request, 1.0f);
    }
    gw_rate_run(&rate, is_noise ? GW_GCOMP_RATE_NOISE : GW_GCOMP_RATE_TOLERANCE, &tensor->codec,
                &tensor->source, tensor->in.name);
    for (uint32_t i = 0; i < count; i++) {
        rate_line *line = &lines[i];
        line_fill(line, &rate, count - 1 - i, moments);
        if (is_noise) {
            const float noise = (float)line->limit;
            use_noise_map(tensor, request, noise < 0x1p-8f ? 0x1p-8f : noise);
            line->worst = measure_worst(tensor, request);
        } else if (tensor->options.rounding == GW_GCOMP_NEAREST) {
            line->worst /= 2;
        }
    }
    return count;
}

/* ---- output -------------------------------------------------------------------------------------------- */

static void description_print(FILE *out, const gw_tensor_input *tensor)
{
    fprintf(out, "%llu values of %s, %s, %s, preset %s, dead zone %s", (unsigned long long)tensor->in.len,
            gw_dtype_name(tensor->in.dtype), gw_optimizer_name(tensor->in.snapshot.optimizer.kind),
            gw_rounding_names[tensor->options.rounding], gw_preset_names[tensor->options.preset],
            gw_switch_names[tensor->options.dead_zone]);
}

static void table_print(const gw_tensor_input *tensor, const rate_arguments *arguments,
                        const rate_line *lines, uint32_t count)
{
    gw_cli_puts(stdout, arguments->request.common.input);
    printf(": ");
    description_print(stdout, tensor);
    printf("\n%9s %11s %10s %10s %10s %11s %12s\n", arguments->is_noise ? "noise" : "tolerance", "bits/value",
           "of fp32", "of bf16", "NMSE", "added to v", arguments->is_noise ? "worst move" : "bound");
    for (uint32_t i = 0; i < count; i++) {
        const rate_line *line = &lines[i];
        printf("%9s %11.4f %8.2f %% %8.2f %% %10.2e ", line->point.label, line->point.bits,
               line->point.bits / 0.32, line->point.bits / 0.16, line->point.nmse);
        if (line->point.added >= 0) {
            printf("%11.2e", line->point.added);
        } else {
            printf("%11s", "-");
        }
        if (line->worst > 0) {
            printf("      2^%-6.2f", log2(line->worst));
        } else {
            printf("      0");
        }
        printf("\n");
    }
}

static void json_print(const gw_tensor_input *tensor, const rate_arguments *arguments, const rate_line *lines,
                       uint32_t count)
{
    json_t *object = json_object(), *points = json_array();
    gw_cli_json_text(object, "command", "rate");
    gw_cli_json_text(object, "status", "ok");
    gw_cli_json_count(object, "values", tensor->in.len);
    gw_cli_json_text(object, "dtype", gw_dtype_name(tensor->in.dtype));
    gw_cli_json_text(object, "limit", arguments->is_noise ? "noise" : "tolerance");
    gw_cli_json_text(object, "optimizer", gw_optimizer_name(tensor->in.snapshot.optimizer.kind));
    gw_cli_json_text(object, "rounding", gw_rounding_names[tensor->options.rounding]);
    gw_cli_json_text(object, "preset", gw_preset_names[tensor->options.preset]);
    gw_cli_json_flag(object, "dead_zone", tensor->options.dead_zone);
    for (uint32_t i = 0; i < count; i++) {
        const rate_line *line = &lines[i];
        json_t *point = json_object();
        if (arguments->is_noise) {
            gw_cli_json_number(point, "noise", line->limit);
        } else {
            gw_cli_json_count(point, "tolerance_bits", (uint64_t)line->limit);
        }
        gw_cli_json_number(point, "bits_per_value", line->point.bits);
        gw_cli_json_number(point, "rate_fp32", line->point.bits / 32);
        gw_cli_json_number(point, "rate_bf16", line->point.bits / 16);
        gw_cli_json_number(point, "nmse", line->point.nmse);
        gw_cli_json_number(point, "added_to_v", line->point.added >= 0 ? line->point.added : (double)NAN);
        gw_cli_json_number(point, arguments->is_noise ? "worst_deviation" : "deviation_bound", line->worst);
        json_array_append_new(points, point);
    }
    json_object_set_new(object, "points", points);
    gw_cli_must(gw_cli_json_print(object));
}

static void plot_write(const gw_tensor_input *tensor, const rate_arguments *arguments, const rate_line *lines,
                       uint32_t count)
{
    gw_rate_point points[GW_GCOMP_RATE_POINTS];
    for (uint32_t i = 0; i < count; i++) {
        points[i] = lines[i].point;
    }
    char *title = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&title, &size);
    if (out != NULL) {
        description_print(out, tensor);
    }
    if (out == NULL || fclose(out) != 0) {
        gw_cli_fail(GW_CLI_IO, arguments->plot, "out of memory");
    }
    const gw_rate_plot plot = {title, arguments->is_noise ? "noise limit" : "tolerance in bits", points,
                               count};
    gw_rate_plot_write(&plot, arguments->plot);
    free(title);
}

/* ---- the command --------------------------------------------------------------------------------------- */

static void rate_report(gw_tensor_input *tensor, const rate_arguments *arguments)
{
    rate_line lines[GW_GCOMP_RATE_POINTS];
    const uint32_t count = curve_make(tensor, arguments, lines);
    if (arguments->plot != NULL) {
        plot_write(tensor, arguments, lines, count);
    }
    if (arguments->plot != NULL && strcmp(arguments->plot, "-") == 0) {
        return;
    }
    if (arguments->request.common.json) {
        json_print(tensor, arguments, lines, count);
    } else {
        table_print(tensor, arguments, lines, count);
    }
}

int gw_cmd_rate(int argc, char **argv)
{
    rate_arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    gw_codec_request_init(&arguments.request);
    arguments.request.options.quantum_mode = GW_GCOMP_DERIVED;
    arguments.request.options.rounding = GW_GCOMP_STOCHASTIC;
    arguments.request.has_rounding = 1;
    arguments.dead_zone = -1;
    gw_command_line_parse(&command_line, argc, argv, &arguments);
    const char *input = arguments.request.common.input;

    static gw_tensor_input tensor;
    gw_tensor_input_open(&tensor, &arguments.request);
    if (!tensor.in.is_snapshot) {
        gw_cli_fail(GW_CLI_USAGE, input, "is a plain array; rate needs a snapshot");
    }
    if (arguments.plot != NULL && gw_tensor_source_has_file(&tensor.in, arguments.plot)) {
        gw_cli_fail(GW_CLI_USAGE, arguments.plot, "is an input file; draw elsewhere");
    }
    tensor.options.dead_zone =
        arguments.dead_zone >= 0
            ? arguments.dead_zone
            : arguments.is_noise || !gw_optimizer_has_second_moment(tensor.in.snapshot.optimizer.kind);
    if (arguments.is_noise) {
        tensor.options.tolerance_bits = NOISE_TOLERANCE_BITS;
    }
    if (gw_gcomp_init(&tensor.codec, &tensor.options) != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, input, "these options do not go together");
    }
    gw_tensor_input_prepare(&tensor, &arguments.request);
    rate_report(&tensor, &arguments);
    gw_tensor_input_close(&tensor);
    return GW_CLI_OK;
}
