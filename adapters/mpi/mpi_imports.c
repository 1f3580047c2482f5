/*
 * Does the program call MPI_Iallreduce? Only then its operations need a thread, and MPI the level
 * MPI_THREAD_MULTIPLE, which costs locks in every call. MPI_Init() comes before the first such call, so what
 * is looked at are the symbols that the loaded objects import. MPI's own libraries import it too, for
 * Fortran.
 *
 * Objects that are loaded later, and calls through dlsym(), are not seen: their MPI_Iallreduce passes
 * through.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_config.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <strings.h>

typedef struct gw_mpi_object {
    const ElfW(Sym) * symbols;
    const char *names;
    size_t imports; /* the first ones; exported symbols follow */
} gw_mpi_object;

/* Some C libraries leave addresses of the dynamic section as they are in the file. */
static const void *gw_mpi_address(const struct dl_phdr_info *info, ElfW(Addr) address)
{
    const ElfW(Addr) place = address < info->dlpi_addr ? info->dlpi_addr + address : address;
    return (const void *)place; /* NOLINT(performance-no-int-to-ptr) */
}

static void gw_mpi_object_read(const struct dl_phdr_info *info, gw_mpi_object *object)
{
    const ElfW(Dyn) *at = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            const ElfW(Addr) place = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            at = (const ElfW(Dyn) *)place; /* NOLINT(performance-no-int-to-ptr) */
        }
    }
    *object = (gw_mpi_object){.symbols = NULL};
    for (; at != NULL && at->d_tag != DT_NULL; at++) {
        const void *data = gw_mpi_address(info, at->d_un.d_ptr);
        switch (at->d_tag) {
        case DT_SYMTAB:
            object->symbols = data;
            break;
        case DT_STRTAB:
            object->names = data;
            break;
        case DT_GNU_HASH: /* buckets, then the index of the first symbol that is exported */
            object->imports = ((const uint32_t *)data)[1];
            break;
        case DT_HASH: /* buckets, then the number of symbols */
            if (object->imports == 0) {
                object->imports = ((const uint32_t *)data)[1];
            }
            break;
        default:
            break;
        }
    }
}

/* In C and in Fortran; gw_mpi_iallreduce() too. */
static int gw_mpi_is_nonblocking(const char *name)
{
    return strncasecmp(name, "pmpi", 4) != 0 && strcasestr(name, "mpi_iallreduce") != NULL;
}

static int gw_mpi_object_imports(struct dl_phdr_info *info, size_t size, void *found)
{
    const char *slash = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
    gw_mpi_object object;
    (void)size;
    if (slash != NULL && (strncmp(slash, "/libmpi", 7) == 0 || strncmp(slash, "/libgradwire_", 13) == 0)) {
        return 0;
    }
    gw_mpi_object_read(info, &object);
    for (size_t i = 1; i < object.imports && object.symbols != NULL && object.names != NULL; i++) {
        const ElfW(Sym) *symbol = &object.symbols[i];
        if (symbol->st_shndx == SHN_UNDEF && gw_mpi_is_nonblocking(object.names + symbol->st_name)) {
            *(int *)found = 1;
        }
    }
    return *(int *)found;
}

int gw_mpi_imports_nonblocking(void)
{
    int found = 0;
    (void)dl_iterate_phdr(gw_mpi_object_imports, &found);
    return found;
}
