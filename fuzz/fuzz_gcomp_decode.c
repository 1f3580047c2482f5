/*
 * Any bytes to the decoder. The first six bytes of the input choose the receiver, the rest is the frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_contract.h"

enum { MAP_BYTES_LEN = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    gw_fuzz_receiver receiver = {.dtype = GW_FP32};
    uint8_t choice = gw_fuzz_u8(&reader);
    uint8_t extra = gw_fuzz_u8(&reader);
    uint32_t map_word = gw_fuzz_u32(&reader);

    static const gw_dtype dtypes[4] = {GW_FP32, GW_BF16, GW_FP16, GW_FP32};
    receiver.dtype = dtypes[choice & 3];
    /* Half of the time the receiver is the frame's: dtype byte at offset 6. */
    if ((choice & 4) && reader.size > 6 && reader.data[6] >= 1 && reader.data[6] <= 3) {
        receiver.dtype = (gw_dtype)reader.data[6];
    }
    receiver.strict = choice >> 3 & 1;
    receiver.chunk_log2 = 12 + (choice >> 2 & 2);
    /* Half of the time its chunks are as long as the frame's: byte 7. */
    if ((choice & 64) && reader.size > 7 && reader.data[7] >= 10 && reader.data[7] <= 15) {
        receiver.chunk_log2 = reader.data[7];
    }
    receiver.len_max = choice & 16 ? 5000 : (uint64_t)1 << 48;
    receiver.capacity_cut = extra & 15 ? 0 : (uint64_t)(extra >> 4) + 1;
    gw_fuzz_place_at_end(choice >> 6 & 1);

    /* A map whose bytes are a short pattern: the frame must carry its hash to get past rule 16. */
    if (choice & 32) {
        uint8_t *map_bytes = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_MAP_BYTES, MAP_BYTES_LEN, 0);
        for (size_t i = 0; i < MAP_BYTES_LEN; i++) {
            map_bytes[i] = (uint8_t)(map_word >> 8 * (i & 3));
        }
        receiver.map_bytes = map_bytes;
        receiver.map_bytes_len = MAP_BYTES_LEN;
        receiver.map_bytes_fit = choice >> 7;
        receiver.map_base = 400;
        receiver.wire_scale = 1.0f;
    }
    gw_fuzz_gcomp_contract(&receiver, reader.data, reader.size);
    return 0;
}
