/*
 * gradwire info: version, backends, machine.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "cli_options.h"
#include "gradwire/gradwire.h"
#include "parallel_tasks.h"

#include <stdio.h>
#include <string.h>

/* The build system defines which backends are in the library; the library knows which of them run here. */
#ifndef GW_CLI_BACKENDS_BUILT
#define GW_CLI_BACKENDS_BUILT "scalar"
#endif

enum { FORMAT_VERSION = 0 };

static const gw_option info_options[] = {GW_JSON_ROW("Print one JSON object instead of a table"), {0}};

static const gw_command_line info_line = {
    "", "Print version, format version, backends and CPU.", GW_NO_INPUT, {.options = info_options}, {{0}},
};

/* "model name" of the first CPU; "unknown" if there is no such line. */
static void cpu_name_read(char *name, size_t capacity)
{
    (void)snprintf(name, capacity, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) {
        return;
    }
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(name, capacity, "%s", colon + 1 + strspn(colon + 1, " \t"));
            break;
        }
    }
    fclose(file);
}

static json_t *backends_available_json(void)
{
    json_t *list = json_array();
    for (int bit = 0; bit < 32; bit++) {
        const uint32_t mask = (uint32_t)1 << bit;
        if ((gw_backends_available() & mask) != 0 && gw_backend_name(mask) != NULL) {
            json_array_append_new(list, json_string(gw_backend_name(mask)));
        }
    }
    return list;
}

static json_t *backends_built_json(void)
{
    char names[] = GW_CLI_BACKENDS_BUILT;
    json_t *list = json_array();
    char *position = NULL;
    for (const char *name = strtok_r(names, ",", &position); name != NULL;
         name = strtok_r(NULL, ",", &position)) {
        json_array_append_new(list, json_string(name));
    }
    return list;
}

static void list_print(const char *label, json_t *list)
{
    printf("%-20s", label);
    for (size_t i = 0; i < json_array_size(list); i++) {
        printf("%s%s", i == 0 ? "" : ", ", json_string_value(json_array_get(list, i)));
    }
    putchar('\n');
    json_decref(list);
}

int gw_cmd_info(int argc, char **argv)
{
    gw_request request = {0};
    gw_command_line_parse(&info_line, argc, argv, &request);
    char cpu[256];
    cpu_name_read(cpu, sizeof cpu);
    if (request.json) {
        json_t *object = json_object();
        gw_cli_json_text(object, "command", "info");
        gw_cli_json_text(object, "status", "ok");
        gw_cli_json_text(object, "version", gw_version_string());
        gw_cli_json_count(object, "format_version", FORMAT_VERSION);
        json_object_set_new(object, "backends_built", backends_built_json());
        json_object_set_new(object, "backends_available", backends_available_json());
        gw_cli_json_text(object, "cpu", cpu);
        gw_cli_json_count(object, "cpus", gw_parallel_cpu_count());
        return gw_cli_json_print(object);
    }
    printf("%-20s%s\n", "gradwire", gw_version_string());
    printf("%-20s%d\n", "format version", FORMAT_VERSION);
    list_print("backends built", backends_built_json());
    list_print("backends available", backends_available_json());
    printf("%-20s%s, %u usable\n", "cpu", cpu, gw_parallel_cpu_count());
    return GW_CLI_OK;
}
