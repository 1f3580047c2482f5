/*
 * The program that layout_decode.cu becomes without nvcc: decodes chunks of frames (arguments: files) with
 * the kernel and
 * compares with the plain C decoder.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LAYOUT_SHIM_MAIN_H
#define GW_LAYOUT_SHIM_MAIN_H

extern "C" {
#include "layout_chunk.h"
}

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

/* What a kernel per codebook would leave. */
static lay_gpu_book gpu_book(const lay_book &book)
{
    lay_gpu_book g;
    memset(&g, 0, sizeof g);
    g.node_count = book.node_count;
    g.inner_count = book.inner_count;
    for (uint32_t r = 0; r < book.label_count; r++) {
        const uint32_t label = book.label_of_rank[r];
        const uint32_t has[4] = {HAS1 | HAS2 | HAS3 | HAS4, HAS1 | HAS2 | HAS3, HAS1 | HAS2, HAS1};
        g.entry[r] = label == LAY_LABEL_ZERO     ? 0
                     : label == LAY_LABEL_ESCAPE ? (uint32_t)ESCAPE
                                                 : ((label >> 2) + book.base) << 23 | has[label & 3];
    }
    for (uint32_t i = 0; i < 256; i++) {
        g.selector[i] = selector_of(i);
    }
    uint32_t inner = 0;
    for (uint32_t n = 0; n < book.node_count; n++) {
        const lay_node &node = book.node[n];
        g.node[n].right = (uint8_t)node.right;
        g.node[n].width = node.width;
        g.node[n].depth = node.depth;
        g.node[n].first_rank = (uint8_t)node.first_rank;
        if (node.right != 0) {
            g.node[n].inner_index = (uint8_t)inner++;
            g.node[n + 1].parent = g.node[node.right].parent = (uint8_t)n;
            g.node[node.right].is_right = 1;
        }
        g.depth_max = g.depth_max < node.depth ? node.depth : g.depth_max;
    }
    uint32_t at = 0;
    for (uint32_t d = g.depth_max + 1; d-- > 0;) {
        for (uint32_t n = 0; n < book.node_count; n++) {
            if (book.node[n].depth == d) {
                g.by_depth[at++] = (uint8_t)n;
            }
        }
    }
    return g;
}

static bool check_file(const char *path)
{
    std::vector<uint8_t> bytes;
    FILE *f = fopen(path, "rb");
    for (int c; f != NULL && (c = fgetc(f)) != EOF;) {
        bytes.push_back((uint8_t)c);
    }
    if (f != NULL) {
        fclose(f);
    }
    const size_t size = bytes.size();
    bytes.resize(size + 64);
    lay_frame frame;
    if (!lay_frame_open(&frame, bytes.data(), size)) {
        fprintf(stderr, "%s: no frame\n", path);
        return false;
    }
    static lay_scratch scratch;
    uint32_t checked = 0;
    for (uint64_t i = 0; i < frame.chunk_count; i++) {
        const lay_place place = lay_frame_place(&frame, i);
        if (place.kind != 2 || place.len != CHUNK || frame.rule.derived) {
            continue;
        }
        const lay_place owner = lay_frame_place(&frame, place.book);
        lay_book book;
        size_t used;
        std::vector<uint32_t> expected(CHUNK), out(CHUNK, 1);
        lay_book_read(&book, frame.bytes + owner.offset, (size_t)owner.size, 0, &used);
        const size_t skip = place.book == i ? used : 0;
        const lay_gpu_chunk chunk = {place.offset + skip, (uint32_t)(place.size - skip), 0};
        if (!lay_parts_find(&scratch.parts, &book, frame.bytes + chunk.offset, chunk.size, CHUNK, 0) ||
            !lay_decode_plain(expected.data(), &book, &scratch.parts, NULL, &frame.rule)) {
            return false;
        }
        const lay_gpu_book g = gpu_book(book);
        uint32_t status = 9;
        memset(shim_shared, 0xa5, sizeof shim_shared);
        std::vector<std::thread> lanes;
        for (uint32_t t = 0; t < THREADS; t++) {
            lanes.emplace_back([&, t] {
                shim_tid = t;
                lay_decode(out.data(), frame.bytes, &chunk, &g, &status);
            });
        }
        for (std::thread &lane : lanes) {
            lane.join();
        }
        if (status != 0 || out != expected) {
            fprintf(stderr, "%s: chunk %llu differs, status %u\n", path, (unsigned long long)i, status);
            return false;
        }
        checked++;
    }
    printf("%s: %u chunks equal\n", path, checked);
    return checked != 0;
}

int main(int argc, char **argv)
{
    bool good = argc > 1;
    for (int i = 1; i < argc; i++) {
        good = check_file(argv[i]) && good;
    }
    return good ? 0 : 1;
}

#endif
