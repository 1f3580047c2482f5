/*
 * Addresses of parameter servers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_address.h"

#include <limits.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { HOST_MAX = 256 };

const char *gw_thc_address_find(const char *text, int is_stream, int is_server, struct addrinfo **found)
{
    const char *port = strrchr(text, ':');
    const char *host = text;
    char copy[HOST_MAX];
    if (port == NULL || port == text || port[1] == '\0') {
        return "an address is HOST:PORT or [IPv6]:PORT";
    }
    size_t size = (size_t)(port - text);
    if (text[0] == '[' && size >= 2 && text[size - 1] == ']') {
        host++;
        size -= 2;
    } else if (memchr(text, ':', size) != NULL) {
        return "an IPv6 address needs brackets: [IPv6]:PORT";
    }
    const size_t digits = strspn(port + 1, "0123456789");
    const unsigned long number = digits <= 5 ? strtoul(port + 1, NULL, 10) : ULONG_MAX;
    if (size == 0 || size >= HOST_MAX || port[1 + digits] != '\0' || number > 65535 ||
        (number == 0 && !is_server)) {
        return "an address is HOST:PORT or [IPv6]:PORT";
    }
    memcpy(copy, host, size);
    copy[size] = '\0';
    const struct addrinfo hints = {
        .ai_flags = AI_NUMERICSERV | (is_server ? AI_PASSIVE : 0),
        .ai_family = AF_UNSPEC,
        .ai_socktype = is_stream ? SOCK_STREAM : SOCK_DGRAM,
    };
    const int error = getaddrinfo(copy, port + 1, &hints, found);
    return error == 0 ? NULL : gai_strerror(error);
}
