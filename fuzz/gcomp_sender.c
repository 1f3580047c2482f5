/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_sender.h"

#include <string.h>

/* docs/format.md section 2, written down a second time on purpose. */
typedef struct dtype_facts {
    unsigned mantissa_bits, exponent_mask, explicit_step, explicit_cap, derived_cap;
    unsigned derived_steps[4], derived_step_count;
} dtype_facts;

static const dtype_facts facts_of[4] = {
    {0, 0, 0, 0, 0, {0, 0, 0, 0}, 0},
    {23, 255, 6, 18, 23, {1, 2, 3, 6}, 4},
    {7, 255, 2, 6, 7, {1, 2, 1, 2}, 2},
    {10, 31, 3, 9, 10, {1, 3, 1, 3}, 2},
};

uint32_t gw_fuzz_bits(const void *values, size_t index, size_t element)
{
    uint32_t bits = 0;
    /* the fuzz machines are little-endian */
    memcpy(&bits, (const uint8_t *)values + index * element, element);
    return bits;
}

static uint32_t random_value(gw_dtype dtype, uint64_t *state, unsigned kind, unsigned center, unsigned spread)
{
    const dtype_facts *facts = &facts_of[dtype];
    uint32_t sign_bit = dtype == GW_FP32 ? 31 : 15;
    uint64_t r = gw_fuzz_random(state);
    uint32_t sign = (uint32_t)(r & 1) << sign_bit;
    uint32_t mantissa = (uint32_t)(r >> 8) & ((1u << facts->mantissa_bits) - 1);
    uint32_t exponent;

    switch (kind) {
    case 0: /* a window of exponents, geometric below the center like gradients */
        exponent = center;
        for (unsigned i = 0; i < spread && (r >> (40 + i % 24) & 1); i++) {
            exponent -= exponent > 0;
        }
        break;
    case 1: /* any bits */
        return (uint32_t)(r >> 16) & (sign_bit == 31 ? 0xffffffffu : 0xffffu);
    case 2: /* mostly zero */
        if (r >> 40 & 15) {
            return r >> 44 & 15 ? 0 : sign;
        }
        exponent = center;
        break;
    case 3: /* the edges: zero, subnormals, smallest and largest normals, infinity, NaN of every kind */
        exponent = (r >> 40 & 1) ? (r >> 41 & 1) : facts->exponent_mask - (uint32_t)(r >> 41 & 1);
        if (r >> 42 & 1) {
            mantissa = r >> 43 & 1 ? 0 : (1u << facts->mantissa_bits) - 1;
        }
        break;
    default: /* few distinct values */
        mantissa = (uint32_t)(r >> 50 & 3) << (facts->mantissa_bits - 2);
        exponent = center;
        break;
    }
    return sign | (exponent & facts->exponent_mask) << facts->mantissa_bits | mantissa;
}

void *gw_fuzz_values(unsigned slot, gw_dtype dtype, uint64_t len, gw_fuzz_reader *reader)
{
    size_t element = gw_dtype_size(dtype);
    uint8_t *values = (uint8_t *)gw_fuzz_buffer(slot, (size_t)len * element, 0);
    uint8_t kind = gw_fuzz_u8(reader);
    uint8_t center = gw_fuzz_u8(reader);
    uint8_t spread = gw_fuzz_u8(reader);
    uint64_t state = gw_fuzz_u32(reader);

    /* Kind 7: the bytes of the input themselves, for as long as there are any. */
    if ((kind & 7) == 7) {
        size_t size = (size_t)len * element;
        size_t taken = reader->size < size ? reader->size : size;
        if (taken != 0) {
            memcpy(values, reader->data, taken);
        }
        reader->data += taken;
        reader->size -= taken;
        return values;
    }
    for (size_t i = 0; i < len; i++) {
        /* High bit: a new kind of data every 1000 values. */
        unsigned now = kind & 128 ? (unsigned)((kind + i / 1000) % 5) : kind & 7;
        uint32_t bits = random_value(dtype, &state, now, center, spread & 63);
        memcpy(values + i * element, &bits, element);
    }
    return values;
}

/* Quantum mode, dead zone and tolerance. */
static void read_dial(gw_gcomp_options *options, gw_fuzz_reader *reader)
{
    uint8_t dial = gw_fuzz_u8(reader);
    if (dial & 1) {
        options->quantum_mode = dial & 2 ? GW_GCOMP_CARRIED : GW_GCOMP_DERIVED;
    }
    options->dead_zone = (dial >> 2 & 1) != 0 && options->quantum_mode != GW_GCOMP_EXPLICIT;
    if (dial >> 3 != 0) {
        options->tolerance_bits = 1 + (dial >> 3) % 23u;
    }
    if (options->quantum_mode == GW_GCOMP_CARRIED) {
        const uint32_t most = options->chunk_log2 < 14 ? options->chunk_log2 : 14;
        uint8_t block = gw_fuzz_u8(reader);
        options->block_log2 = 6 + (block & 15) % (most - 5);
        options->quantum = gw_gcomp_quantum_of_nmse(1.0f / (float)(1u << (block >> 4)));
    }
}

enum { BLOCKS_MAX = 1 << 10 }; /* 65535 values in blocks of 64 */

/* docs/encoder-profile.md: the quantum of the lower median of the map bytes of a block that are not 0. */
static uint8_t quantum_of_map(const gw_fuzz_sender *sender, size_t first, size_t end)
{
    const gw_gcomp_options *options = &sender->options;
    const long mantissa_bits = (long)facts_of[options->dtype].mantissa_bits;
    const long most = options->dtype == GW_FP16 ? 142 : 254;
    size_t count[256] = {0}, coded = 0, at_most = 0;
    for (size_t i = first; i < end; i++) {
        coded += sender->map.bytes[i] != 0;
        count[sender->map.bytes[i]]++;
    }
    long k = 0;
    while (2 * at_most < coded) {
        at_most += count[++k];
    }
    const long cut = k + (long)sender->map.base + 3 - 4 * ((long)options->tolerance_bits - mantissa_bits);
    /* Shifts of negative numbers are arithmetic on the fuzz machines. */
    const long q = k == 0 ? 0 : ((cut - 3) >> 2) - mantissa_bits;
    return (uint8_t)(q < 1 ? 0 : q > most ? most : q);
}

/* The quanta of a carried frame: from the map, given by the caller, or left to the target of the options. */
static void make_quanta(gw_fuzz_sender *sender, gw_fuzz_reader *reader)
{
    static uint8_t written[BLOCKS_MAX];
    const gw_gcomp_options *options = &sender->options;
    const int most = options->dtype == GW_FP16 ? 142 : 254;
    const size_t len = (size_t)sender->source.len, block_len = (size_t)1 << options->block_log2;
    const size_t chunk_blocks = (size_t)1 << (options->chunk_log2 - options->block_log2);
    const size_t count = (len + block_len - 1) >> options->block_log2;
    FUZZ_CHECK(count <= sizeof written);
    const uint8_t kind = gw_fuzz_u8(reader);
    uint64_t state = gw_fuzz_u16(reader);
    if (sender->source.quantum.map != NULL) {
        for (size_t i = 0; i < count; i++) {
            const size_t first = i * block_len;
            written[i] = quantum_of_map(sender, first, len - first < block_len ? len : first + block_len);
        }
    } else if (kind & 1) {
        uint8_t *quanta = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_QUANTA, count, 0);
        for (size_t i = 0; i < count; i++) {
            quanta[i] = (uint8_t)(kind + gw_fuzz_random(&state) % (kind & 2 ? 80 : 5));
            written[i] = quanta[i] > most ? (uint8_t)most : quanta[i];
        }
        sender->source.quantum = gw_gcomp_quantum_of_blocks(quanta);
    } else {
        return;
    }
    /* The window of docs/format.md section 5.4. */
    for (size_t first = 0; first < count; first += chunk_blocks) {
        const size_t end = count - first < chunk_blocks ? count : first + chunk_blocks;
        int largest = 0;
        for (size_t i = first; i < end; i++) {
            largest = written[i] > largest ? written[i] : largest;
        }
        for (size_t i = first; i < end; i++) {
            written[i] = written[i] + 62 < largest ? 0 : written[i];
        }
    }
    sender->quanta = written;
}

void gw_fuzz_sender_init(gw_fuzz_sender *sender, gw_fuzz_reader *reader, uint64_t len_max)
{
    static const gw_dtype dtypes[4] = {GW_FP32, GW_FP32, GW_BF16, GW_FP16};
    memset(sender, 0, sizeof *sender);
    gw_gcomp_options *options = &sender->options;

    uint8_t choice = gw_fuzz_u8(reader);
    uint8_t cut = gw_fuzz_u8(reader);
    uint8_t shape = gw_fuzz_u8(reader);
    gw_dtype dtype = dtypes[choice & 3];
    const dtype_facts *facts = &facts_of[dtype];
    gw_gcomp_options_init(options, dtype);
    options->quantum_mode = choice & 4 ? GW_GCOMP_DERIVED : GW_GCOMP_EXPLICIT;
    options->rounding = (gw_gcomp_rounding)((choice >> 3) % 3);
    options->preset = choice & 32 ? GW_GCOMP_SMALL : GW_GCOMP_FAST;
    options->strict = choice >> 6 & 1;
    options->checksum = choice >> 7;
    options->chunk_log2 = 12 + (shape & 3) - ((cut & 24) == 24 ? 2u : 0u);

    if (shape & 128) {
        read_dial(options, reader);
    }

    int derived = options->quantum_mode != GW_GCOMP_EXPLICIT;
    int only_one = options->dead_zone || options->quantum_mode == GW_GCOMP_CARRIED;
    sender->step = derived ? facts->derived_steps[only_one ? 0 : cut & 3] : facts->explicit_step;
    sender->cap = derived ? facts->derived_cap : facts->explicit_cap;
    if ((cut & 4) && !only_one) {
        sender->cap = (cut >> 5) * sender->step < sender->cap ? (cut >> 5) * sender->step : sender->cap;
    }
    sender->cap -= sender->cap % sender->step;
    options->step = sender->step;
    options->cap = sender->cap;

    /* Lengths: few, about a chunk, several chunks. */
    uint64_t len = gw_fuzz_u16(reader);
    switch (shape >> 2 & 3) {
    case 0:
        len &= 255;
        break;
    case 1:
        len = ((uint64_t)1 << options->chunk_log2) + (len & 63) - 32;
        break;
    case 2:
        len &= 8191;
        break;
    default:
        break;
    }
    if (len > len_max) {
        len %= len_max + 1;
    }
    sender->element = gw_dtype_size(dtype);
    sender->source.len = len;
    sender->source.seed = gw_fuzz_u32(reader) * 0x9e3779b97f4a7c15u;
    sender->source.first_element = shape & 16 ? ((uint64_t)1 << 40) + shape : shape;
    sender->source.step_index = cut;
    sender->source.rank = shape;
    sender->source.hop = cut;
    sender->source.values = gw_fuzz_values(GW_FUZZ_VALUES, dtype, len, reader);

    if (shape & 32) {
        /* A map around the exponents of the data: base, then bytes with a low and a high bound. */
        uint8_t low = gw_fuzz_u8(reader), high = gw_fuzz_u8(reader);
        uint64_t state = gw_fuzz_u16(reader);
        uint64_t chunk_count = (len + ((uint64_t)1 << options->chunk_log2) - 1) >> options->chunk_log2;
        uint8_t *map_bytes = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_MAP_BYTES, (size_t)len, 0);
        uint32_t *digest =
            (uint32_t *)gw_fuzz_buffer(GW_FUZZ_DIGEST, (size_t)chunk_count * sizeof(uint32_t), 0);
        for (size_t i = 0; i < len; i++) {
            map_bytes[i] = (uint8_t)(low + gw_fuzz_random(&state) % (1u + high));
        }
        FUZZ_CHECK(gw_gcomp_map_digest(map_bytes, (size_t)len, options->chunk_log2, digest) == GW_OK);
        sender->map.bytes = map_bytes;
        sender->map.digest = digest;
        sender->map.len = len;
        sender->map.chunk_log2 = options->chunk_log2;
        sender->map.base = 1u + 4u * gw_fuzz_u8(reader); /* 1..1021 of 1..1023 */
        sender->map.wire_scale = shape & 64 ? 8.0f : 1.0f;
        sender->source.quantum = gw_gcomp_quantum_of_map(&sender->map);
    } else if (options->quantum_mode != GW_GCOMP_CARRIED) {
        options->quantum = gw_gcomp_quantum_of_drop(cut >> 3);
    }
    if (options->quantum_mode == GW_GCOMP_CARRIED) {
        make_quanta(sender, reader);
    }
}

/* The exponent E of a number in fp32's bias. */
static long exponent_of(const gw_fuzz_sender *sender, const dtype_facts *facts, uint32_t magnitude)
{
    long exponent = (long)(magnitude >> facts->mantissa_bits);
    return sender->options.dtype == GW_FP16 ? (exponent != 0 ? exponent : 1) + 112 : exponent;
}

/* Can anything be cut from the number? */
static int is_cut(const gw_fuzz_sender *sender, const dtype_facts *facts, uint32_t magnitude)
{
    uint32_t exponent = magnitude >> facts->mantissa_bits;
    return exponent != facts->exponent_mask && (exponent != 0 || sender->options.dtype == GW_FP16);
}

/* K + drop_offset of a value, from the texts of docs/format.md section 5.4 and docs/numerics.md section 2.5.
 * 0: there is no quantum. */
static int cut_of(const gw_fuzz_sender *sender, const dtype_facts *facts, size_t index, long *cut)
{
    const gw_gcomp_options *options = &sender->options;
    const long mantissa_bits = (long)facts->mantissa_bits;
    if (options->quantum_mode == GW_GCOMP_CARRIED) {
        const long quantum = sender->quanta[index >> options->block_log2];
        *cut = 4 * (quantum + mantissa_bits) + 3;
        return quantum != 0;
    }
    const long k = sender->map.bytes[index];
    *cut = k + (long)sender->map.base + (options->quantum_mode == GW_GCOMP_DERIVED ? 3 : -1);
    /* Tolerance t and a wire with M mantissa bits: the quantum is 2^(t - M) smaller. */
    *cut -= 4 * ((long)options->tolerance_bits - mantissa_bits);
    return k != 0;
}

/* The drop of a value, from the text of docs/format.md section 3. */
static unsigned drop_of(const gw_fuzz_sender *sender, const dtype_facts *facts, uint32_t magnitude,
                        size_t index)
{
    const gw_gcomp_options *options = &sender->options;
    if (!is_cut(sender, facts, magnitude)) {
        return 0;
    }
    long drop;
    if (sender->source.quantum.map == NULL && options->quantum_mode != GW_GCOMP_CARRIED) {
        drop = options->quantum.drop < sender->cap ? (long)options->quantum.drop : (long)sender->cap;
    } else {
        long cut;
        const int has_quantum = cut_of(sender, facts, index, &cut);
        long quarter = options->quantum_mode == GW_GCOMP_EXPLICIT
                           ? (long)(magnitude >> (facts->mantissa_bits - 2) & 3)
                           : 3;
        long room = cut - (4 * exponent_of(sender, facts, magnitude) + quarter);
        drop = !has_quantum || room < 4 ? 0 : room / 4;
        drop = drop < (long)sender->cap ? drop : (long)sender->cap;
    }
    return (unsigned)(drop - drop % (long)sender->step);
}

/* A value below its quantum: checks what it became. Returns 0 if it is not below, or nothing is cut deeply.
 */
static int check_dead_zone(const gw_fuzz_sender *sender, const dtype_facts *facts, uint32_t sent,
                           uint32_t got, size_t index)
{
    const gw_gcomp_options *options = &sender->options;
    const uint32_t sign_mask = options->dtype == GW_FP32 ? 0x80000000u : 0x8000u;
    const uint32_t magnitude = sent & ~sign_mask;
    long cut;
    if (!options->dead_zone ||
        (sender->source.quantum.map == NULL && options->quantum_mode != GW_GCOMP_CARRIED) || magnitude == 0 ||
        !is_cut(sender, facts, magnitude) || !cut_of(sender, facts, index, &cut)) {
        return 0;
    }
    const long bias = options->dtype == GW_FP16 ? 112 : 0;
    const long most = (long)facts->exponent_mask - 1 + bias;
    /* Shifts of negative numbers are arithmetic on the fuzz machines. */
    long quantum = ((cut - 3) >> 2) - (long)facts->mantissa_bits;
    quantum = quantum < most ? quantum : most;
    const long exponent = exponent_of(sender, facts, magnitude);
    if (exponent >= quantum) {
        return 0;
    }
    const uint32_t one = (uint32_t)(quantum - bias) << facts->mantissa_bits | (sent & sign_mask);
    uint64_t significand = magnitude & ((1u << facts->mantissa_bits) - 1);
    significand |= magnitude >> facts->mantissa_bits != 0 ? (uint64_t)1 << facts->mantissa_bits : 0;
    /* |value| / quantum = significand / 2^shift */
    const long shift = (long)facts->mantissa_bits + quantum - exponent;
    const int above_half = shift < 40 && 2 * significand > (uint64_t)1 << shift;
    FUZZ_CHECK(got == 0 || got == one);
    FUZZ_CHECK(options->rounding != GW_GCOMP_TRUNCATE || got == 0);
    FUZZ_CHECK(options->rounding != GW_GCOMP_NEAREST || (got == one) == above_half);
    /* A random word of 32 bits: less than 2^-32 of the quantum is always 0. */
    FUZZ_CHECK(got == 0 || (shift < 64 && significand << 32 >> shift != 0));
    return 1;
}

void gw_fuzz_check_values(const gw_fuzz_sender *sender, const void *decoded)
{
    const gw_gcomp_options *options = &sender->options;
    const dtype_facts *facts = &facts_of[options->dtype];
    uint32_t sign_mask = options->dtype == GW_FP32 ? 0x80000000u : 0x8000u;

    for (size_t i = 0; i < sender->source.len; i++) {
        uint32_t sent = gw_fuzz_bits(sender->source.values, i, sender->element);
        uint32_t got = gw_fuzz_bits(decoded, i, sender->element);
        uint32_t sent_magnitude = sent & ~sign_mask, got_magnitude = got & ~sign_mask;
        int flushed =
            !options->strict &&
            (options->dtype == GW_FP16 ? sent_magnitude == 0 : sent_magnitude >> facts->mantissa_bits == 0);
        if (flushed) {
            FUZZ_CHECK(got == 0);
            continue;
        }
        if (options->quantum_mode == GW_GCOMP_CARRIED && sender->quanta == NULL) {
            FUZZ_CHECK(got == 0 || (got & sign_mask) == (sent & sign_mask));
            FUZZ_CHECK(got == sent || is_cut(sender, facts, sent_magnitude));
            FUZZ_CHECK(got == sent || got_magnitude >> facts->mantissa_bits < facts->exponent_mask);
            continue;
        }
        if (check_dead_zone(sender, facts, sent, got, i)) {
            continue;
        }
        unsigned drop = drop_of(sender, facts, sent_magnitude, i);
        if (drop == 0) {
            FUZZ_CHECK(got == sent);
            continue;
        }
        uint32_t unit = 1u << drop;
        FUZZ_CHECK(got_magnitude % unit == 0);
        FUZZ_CHECK((got & sign_mask) == (sent & sign_mask) || (got == 0 && !options->strict));
        FUZZ_CHECK(got_magnitude >> facts->mantissa_bits < facts->exponent_mask);
        if (got_magnitude > sent_magnitude) {
            FUZZ_CHECK(options->rounding != GW_GCOMP_TRUNCATE);
            FUZZ_CHECK(got_magnitude - sent_magnitude < unit);
            FUZZ_CHECK(options->rounding != GW_GCOMP_NEAREST || got_magnitude - sent_magnitude <= unit / 2);
        } else {
            FUZZ_CHECK(sent_magnitude - got_magnitude < unit);
            /* Nearest is farther than half a unit away only where the next value would be infinity. */
            FUZZ_CHECK(options->rounding != GW_GCOMP_NEAREST || sent_magnitude - got_magnitude <= unit / 2 ||
                       (got_magnitude + unit) >> facts->mantissa_bits == facts->exponent_mask);
        }
    }
}
