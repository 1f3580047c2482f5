/*
 * Valid frames with chosen damage: header, extension, directory, codebook, quanta, chunk header, runs, a
 * chunk made shorter with everything after it moved, an end cut off or added. Half of the time the checksums
 * are recomputed, so that the damage gets past them. The decoder must keep its contract in all cases.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_contract.h"
#include "gcomp_sender.h"

#include <string.h>

/* Offsets of docs/format.md sections 2 and 4. */
enum {
    HEADER_SIZE = 32,
    ENTRY_SIZE = 16,
    FLAGS_AT = 8,
    IGNORABLE_AT = 10,
    UNITS_AT = 11,
    SIZE_AT = 24,
    FLAG_INSTALLED = 4,
    FLAG_CHECKSUM = 8
};

typedef struct frame {
    uint8_t *bytes;
    size_t size, capacity;
    size_t crc, directory, payload, chunk_count; /* crc: the CHECKSUM part of the extension */
    uint32_t flags;                              /* as encoded */
} frame;

static uint64_t load(const uint8_t *p, unsigned size)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < size; i++) {
        x |= (uint64_t)p[i] << 8 * i;
    }
    return x;
}

static void store(uint8_t *p, uint64_t x, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        p[i] = (uint8_t)(x >> 8 * i);
    }
}

static uint8_t *entry_of(const frame *f, size_t chunk)
{
    return f->bytes + f->directory + chunk * ENTRY_SIZE;
}

static size_t chunk_offset(const frame *f, size_t chunk)
{
    return chunk < f->chunk_count ? (size_t)load(entry_of(f, chunk), 8) & ~(size_t)15 : f->size;
}

/* A number that may be wrong in an interesting way. */
static uint64_t wrong_number(uint64_t was, gw_fuzz_reader *reader)
{
    uint8_t how = gw_fuzz_u8(reader);
    uint64_t amount = gw_fuzz_u8(reader);
    switch (how & 7) {
    case 0:
        return was + 1;
    case 1:
        return was - 1;
    case 2:
        return was + 16 * amount;
    case 3:
        return was - 16 * amount;
    case 4:
        return was ^ (uint64_t)1 << (amount & 63);
    case 5:
        return UINT64_MAX - amount;
    case 6:
        return (uint64_t)1 << (amount & 63);
    default:
        return amount;
    }
}

static void damage_number(frame *f, size_t at, unsigned size, gw_fuzz_reader *reader)
{
    if (at + size <= f->size) {
        store(f->bytes + at, wrong_number(load(f->bytes + at, size), reader), size);
    }
}

/* Bytes of the codebook at p, by its own words. */
static size_t codebook_size(const uint8_t *p, size_t available)
{
    if (available < 4) {
        return available;
    }
    size_t labels = p[1] != 0 && p[2] >= p[1] ? (size_t)p[2] - p[1] + 1 : 0;
    size_t size = (4 + (labels + 1) / 2 + 3) & ~(size_t)3;
    size += (p[3] & 15) == 15 ? 8 : 0; /* classes of the zero mask */
    return size < available ? size : available;
}

static void damage(frame *f, gw_fuzz_reader *reader)
{
    static const struct {
        uint8_t at, size;
    } fields[] = {{0, 4},  {4, 1},  {5, 1},  {6, 1},  {7, 1},  {8, 2},  {12, 1}, {13, 1},
                  {14, 2}, {16, 8}, {24, 8}, {32, 4}, {36, 4}, {40, 4}, {10, 1}, {11, 1},
                  {44, 4}, {48, 4}, {52, 4}, {56, 4}, {60, 4}, {64, 4}, {68, 4}};
    uint8_t what = gw_fuzz_u8(reader);
    size_t chunk = f->chunk_count != 0 ? gw_fuzz_u8(reader) % f->chunk_count : 0;
    size_t begin = chunk_offset(f, chunk), end = chunk_offset(f, chunk + 1);
    if (f->chunk_count == 0 || begin > f->size || end > f->size || begin >= end) {
        begin = end = f->size; /* earlier damage, or an empty chunk: only the header is left to hit */
    }

    if (what >= 248 && begin + 4 <= end && (f->bytes[begin] | f->bytes[begin + 3]) != 0) {
        /* the last nibbles of the codebook, the quanta after it, the first words of the chunk header */
        size_t at = begin + codebook_size(f->bytes + begin, end - begin) + (gw_fuzz_u8(reader) & 63);
        damage_number(f, at < begin + 8 ? at : at - 8, what & 1 ? 1 : 2, reader);
        return;
    }
    switch (what & 7) {
    case 0: { /* a field of header or extension */
        unsigned i = gw_fuzz_u8(reader) % (sizeof fields / sizeof fields[0]);
        damage_number(f, fields[i].at, fields[i].size, reader);
        break;
    }
    case 1: /* a field of the directory: place, codebook, crc */
        if (f->chunk_count != 0) {
            unsigned field = what >> 4 & 3;
            damage_number(f, f->directory + chunk * ENTRY_SIZE + (field == 0 ? 0 : 4 + 4 * field),
                          field == 0 ? 8 : 4, reader);
        }
        break;
    case 2: /* kind of a chunk */
        if (f->chunk_count != 0) {
            uint8_t *entry = entry_of(f, chunk);
            entry[0] = (uint8_t)((entry[0] & 0xf0) | (gw_fuzz_u8(reader) & 3));
        }
        break;
    case 3: /* codebook and chunk header: the first bytes of the chunk */
        damage_number(f, begin + 2 * (gw_fuzz_u8(reader) & 127), 2, reader);
        break;
    case 4: { /* a bit anywhere in the chunk */
        uint32_t at = gw_fuzz_u32(reader);
        if (begin < end) {
            f->bytes[begin + (at >> 3) % (end - begin)] ^= (uint8_t)(1u << (at & 7));
        }
        break;
    }
    case 5: { /* the last bytes of a chunk: escapes and padding */
        uint32_t at = gw_fuzz_u16(reader);
        if (begin < end) {
            f->bytes[end - 1 - (at & 31) % (end - begin)] ^= (uint8_t)(at >> 8);
        }
        break;
    }
    case 6: { /* 16 bytes of a chunk added or taken away; directory and size follow */
        size_t at = begin + gw_fuzz_u16(reader) / 16 * 16;
        int grow = what >> 3 & 1;
        if (at + 16 > end || (grow && f->size + 16 > f->capacity)) {
            break;
        }
        if (grow) {
            memmove(f->bytes + at + 16, f->bytes + at, f->size - at);
            memset(f->bytes + at, what >> 4, 16);
            f->size += 16;
        } else {
            memmove(f->bytes + at, f->bytes + at + 16, f->size - at - 16);
            f->size -= 16;
        }
        store(f->bytes + SIZE_AT, f->size, 8);
        for (size_t i = chunk + 1; i < f->chunk_count; i++) {
            uint8_t *entry = entry_of(f, i);
            store(entry, load(entry, 8) + (grow ? 16u : 0u - (uint64_t)16), 8);
        }
        break;
    }
    default: { /* end cut off, or bytes after it; the size field follows or not */
        size_t amount = gw_fuzz_u16(reader) & (what & 16 ? 15 : 4095);
        if (what & 8) {
            amount = amount < f->capacity - f->size ? amount : f->capacity - f->size;
            memset(f->bytes + f->size, what >> 5, amount);
            f->size += amount;
        } else {
            f->size -= amount < f->size ? amount : f->size;
        }
        if ((what & 64) && f->size >= HEADER_SIZE) {
            store(f->bytes + SIZE_AT, f->size, 8);
        }
        break;
    }
    }
}

/* Computes every checksum again (docs/format.md sections 2 and 4), as far as the damaged offsets make
 * sense. */
static void repair_checksums(frame *f)
{
    if (f->size < f->payload || !(load(f->bytes + FLAGS_AT, 2) & FLAG_CHECKSUM)) {
        return;
    }
    for (size_t i = 0; i < f->chunk_count; i++) {
        uint8_t *entry = entry_of(f, i);
        size_t begin = chunk_offset(f, i), end = chunk_offset(f, i + 1);
        if (begin < f->payload || end < begin || end > f->size) {
            continue;
        }
        uint32_t crc = 0;
        size_t own = begin;
        if ((entry[0] & 15) == GW_GCOMP_CHUNK_CODED && !(f->flags & FLAG_INSTALLED)) {
            size_t owner = (size_t)load(entry + 8, 4);
            size_t codebook = owner < f->chunk_count ? chunk_offset(f, owner) : f->size;
            if (codebook < f->size) {
                size_t size = codebook_size(f->bytes + codebook, f->size - codebook);
                crc = gw_crc32c(0, f->bytes + codebook, size);
                own = owner == i && begin + size <= end ? begin + size : begin;
            }
        }
        crc = gw_crc32c(crc, f->bytes + own, end - own);
        store(entry + 12, crc, 4);
    }
    store(f->bytes + f->crc, 0, 4);
    store(f->bytes + f->crc, gw_crc32c(0, f->bytes, f->payload), 4);
}

/* What a writer of a later version may add: ignorable flags, a part of one of them and the end of the list in
 * 16 more bytes of extension, which move all that follows. The frame stays valid. */
static void lengthen_extension(frame *f)
{
    memmove(f->bytes + f->directory + 16, f->bytes + f->directory, f->size - f->directory);
    memset(f->bytes + f->directory, 0xb7, 16);
    f->bytes[f->directory] = 2; /* of bit 1 */
    f->bytes[f->directory + 1] = 1;
    f->bytes[f->directory + 8] = 0;
    f->bytes[IGNORABLE_AT] = 0x5a;
    f->bytes[UNITS_AT] = (uint8_t)(f->bytes[UNITS_AT] + 2);
    f->size += 16;
    f->directory += 16;
    f->payload += 16;
    store(f->bytes + SIZE_AT, f->size, 8);
    for (size_t i = 0; i < f->chunk_count; i++) {
        store(entry_of(f, i), load(entry_of(f, i), 8) + 16, 8);
    }
    repair_checksums(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    gw_fuzz_sender sender;
    uint8_t choice = gw_fuzz_u8(&reader);
    uint8_t damage_count = gw_fuzz_u8(&reader) % 5;
    gw_fuzz_reader recipe = {reader.data, reader.size < 40 ? reader.size : 40};
    reader.data += recipe.size;
    reader.size -= recipe.size;
    gw_fuzz_place_at_end(choice & 1);
    gw_fuzz_sender_init(&sender, &reader, choice & 128 ? 40000 : 8500);

    static gw_gcomp codec;
    FUZZ_CHECK(gw_gcomp_init(&codec, &sender.options) == GW_OK);
    size_t workspace_size = gw_gcomp_workspace_size(&codec);
    void *workspace = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace_size, 0x6b);

    gw_fuzz_receiver receiver = {.dtype = sender.options.dtype,
                                 .strict = sender.options.strict,
                                 .len_max = (uint64_t)1 << 48,
                                 .map_bytes = sender.map.bytes,
                                 .map_bytes_len = sender.source.len,
                                 .chunk_log2 = sender.options.chunk_log2,
                                 .map_base = sender.map.base,
                                 .wire_scale = sender.map.wire_scale,
                                 .tolerance_bits = sender.options.tolerance_bits,
                                 .quantum_mode = sender.options.quantum_mode};
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    if (choice & 2) {
        static gw_gcomp_histogram histogram;
        FUZZ_CHECK(gw_gcomp_histogram_init(&histogram, &codec) == GW_OK);
        if (choice & 4) { /* else a codebook with no label but zero and escape */
            FUZZ_CHECK(gw_gcomp_histogram_add(&histogram, &codec, &sender.source,
                                              &(gw_workspace){workspace, workspace_size}) == GW_OK);
        }
        gw_buffer out = {codebook, sizeof codebook, 0};
        FUZZ_CHECK(gw_gcomp_codebook_build(&histogram, &out) == GW_OK);
        FUZZ_CHECK(gw_gcomp_codebook_install(&codec, 3, 9, codebook, out.size, 1) == GW_OK);
        receiver.codebook = codebook;
        receiver.codebook_size = out.size;
        receiver.codebook_id = 3;
        receiver.codebook_generation = 9;
    }

    frame f = {.capacity = gw_gcomp_frame_bound(&codec, sender.source.len) + 4096};
    f.bytes = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_MUTANT, f.capacity, 0);
    gw_buffer out2 = {f.bytes, f.capacity, 0};
    FUZZ_CHECK(gw_gcomp_encode(&codec, &sender.source, &out2, &(gw_workspace){workspace, workspace_size}) ==
               GW_OK);
    f.size = out2.size;
    gw_gcomp_frame_info info;
    FUZZ_CHECK(gw_gcomp_frame_peek(f.bytes, f.size, receiver.len_max, &info) == GW_OK);
    f.directory = (size_t)info.directory_offset;
    f.crc = f.directory - 8;
    f.payload = (size_t)info.payload_offset;
    f.chunk_count = (size_t)info.chunk_count;
    f.flags = (uint32_t)load(f.bytes + FLAGS_AT, 2);

    if (choice & 16) {
        lengthen_extension(&f);
    }
    for (unsigned i = 0; i < damage_count; i++) {
        damage(&f, &recipe);
    }
    if (choice & 8) {
        repair_checksums(&f);
    }
    gw_status status = gw_fuzz_gcomp_contract(&receiver, f.bytes, f.size);
    FUZZ_CHECK(damage_count != 0 || status == GW_OK);
    return 0;
}
