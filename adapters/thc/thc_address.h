/*
 * Addresses of parameter servers: HOST:PORT, [IPv6]:PORT.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_ADDRESS_H
#define GW_THC_ADDRESS_H

#include <stddef.h>

struct addrinfo;

/*
 * Looks an address up. The caller frees *found with freeaddrinfo(). NULL on success, else what is wrong, in
 * static storage.
 *   - is_stream: TCP, else UDP
 *   - is_server: to bind to; else to connect to
 */
const char *gw_thc_address_find(const char *text, int is_stream, int is_server, struct addrinfo **found);

#endif
