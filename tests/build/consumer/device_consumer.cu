/* A kernel of a caller's own: every block encodes its chunk, decodes it again and adds. Only compiled. */
#include "cuda/gcomp_device.cuh"

struct consumer_params {
    gw_device_codec codec;
    const float *values;
    float *sums;
    uint8_t *slots;
    uint32_t *status;
    uint32_t slot_size, shared_size;
};

GW_KERNEL(device_consumer, consumer_params, 256, 2)
{
    unsigned char *const shared = &GW_SHARED(unsigned char);
    const uint32_t len = 1u << p.codec.codec.chunk_log2;
    const uint64_t first = (uint64_t)blockIdx.x * len;
    uint8_t *const slot = p.slots + (uint64_t)blockIdx.x * p.slot_size;
    uint32_t kind = 0, size = 0, status = GW_ERR_TABLE;
    if (gw_device_encode_begin<GW_FP32, false>(shared, p.shared_size, p.codec)) {
        size = gw_device_encode_chunk<GW_FP32, false>(shared, p.codec, p.values + first, nullptr, len, first,
                                                      slot, &kind);
    }
    if (gw_device_decode_begin<GW_FP32, false>(shared, p.codec)) {
        const gw_device_chunk chunk = {slot, kind, size, nullptr, len};
        status = gw_device_decode_chunk<GW_FP32, false>(shared, p.shared_size, p.codec, chunk, p.sums + first,
                                                        p.sums + first);
    }
    if (threadIdx.x == 0) {
        p.status[blockIdx.x] = status;
    }
}
