/*
 * Message buffers and workspaces. Buffers are as large as the bound of a message, but only the part that a
 * message uses is ever touched; they are kept for the next operation, because fresh pages cost more than the
 * copy.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_system.h"

#include <stdlib.h>

#define GW_MPI_POOL_MAX 256u

static pthread_mutex_t gw_mpi_pool_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_mpi_block *gw_mpi_pool;
static unsigned gw_mpi_pool_len;

static pthread_once_t gw_mpi_workspace_once = PTHREAD_ONCE_INIT;
static pthread_key_t gw_mpi_workspace_key;

gw_mpi_block *gw_mpi_block_take(size_t capacity)
{
    gw_mpi_block *found = NULL;
    (void)pthread_mutex_lock(&gw_mpi_pool_lock);
    for (gw_mpi_block **at = &gw_mpi_pool; *at != NULL; at = &(*at)->next) {
        /* Buffers of one piece length have one capacity; much larger ones are for other operations */
        if ((*at)->capacity >= capacity && (*at)->capacity / 4 <= capacity) {
            found = *at;
            *at = found->next;
            gw_mpi_pool_len--;
            break;
        }
    }
    (void)pthread_mutex_unlock(&gw_mpi_pool_lock);
    if (found == NULL) {
        found = malloc(sizeof(*found) + capacity);
        if (found == NULL) {
            gw_mpi_out_of_memory();
        }
        found->capacity = capacity;
    }
    found->next = NULL;
    found->size = 0;
    found->worked = NULL;
    atomic_init(&found->references, 1);
    return found;
}

void gw_mpi_block_release(gw_mpi_block *block)
{
    if (block == NULL || atomic_fetch_sub(&block->references, 1) > 1) {
        return;
    }
    (void)pthread_mutex_lock(&gw_mpi_pool_lock);
    const int keep = gw_mpi_pool_len < GW_MPI_POOL_MAX;
    if (keep) {
        block->next = gw_mpi_pool;
        gw_mpi_pool = block;
        gw_mpi_pool_len++;
    }
    (void)pthread_mutex_unlock(&gw_mpi_pool_lock);
    if (!keep) {
        free(block);
    }
}

void gw_mpi_pool_clear(void)
{
    (void)pthread_mutex_lock(&gw_mpi_pool_lock);
    while (gw_mpi_pool != NULL) {
        gw_mpi_block *next = gw_mpi_pool->next;
        free(gw_mpi_pool);
        gw_mpi_pool = next;
    }
    gw_mpi_pool_len = 0;
    (void)pthread_mutex_unlock(&gw_mpi_pool_lock);
}

/* ------------ workspaces ------------ */

static void gw_mpi_workspace_key_make(void)
{
    (void)pthread_key_create(&gw_mpi_workspace_key, free);
}

gw_workspace gw_mpi_workspace(void)
{
    (void)pthread_once(&gw_mpi_workspace_once, gw_mpi_workspace_key_make);
    void *own = pthread_getspecific(gw_mpi_workspace_key);
    if (own == NULL) {
        own = malloc(GW_MPI_WORKSPACE_SIZE);
        if (own == NULL || pthread_setspecific(gw_mpi_workspace_key, own) != 0) {
            gw_mpi_out_of_memory();
        }
    }
    return (gw_workspace){.data = own, .size = GW_MPI_WORKSPACE_SIZE};
}
