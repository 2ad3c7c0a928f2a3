// Weights made on the card, for measuring: the exact bytes of a shape, with random codes. And a plain read of memory, for
// comparison.

__device__ inline u32 hash(u64 value) {
    value ^= value >> 33;
    value *= 0xFF51AFD7ED558CCDull;
    value ^= value >> 33;
    value *= 0xC4CEB9FE1A85EC53ull;
    return (u32)(value ^ value >> 33);
}

__device__ inline u64 first_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 index_step() { return (u64)gridDim.x * blockDim.x; }

extern "C" __global__ void fill_codes(u32* out, u64 words, u64 seed) {
    begin_kernel();
    for (u64 i = first_index(); i < words; i += index_step()) out[i] = hash(seed + i);
}

// Every scale the same.
extern "C" __global__ void fill_scales(u32* out, u64 words, u32 both) {
    begin_kernel();
    for (u64 i = first_index(); i < words; i += index_step()) out[i] = both;
}

extern "C" __global__ void __launch_bounds__(1024) read_all(const uint4* from, u64 count, u32* out) {
    begin_kernel();
    u32 sum = 0;
    constexpr int AT_ONCE = 8;
    for (u64 i = first_index(); i < count; i += AT_ONCE * index_step()) {
        uint4 values[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const u64 at = i + j * index_step();
            values[j] = at < count ? __ldcs(&from[at]) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) sum ^= values[j].x ^ values[j].y ^ values[j].z ^ values[j].w;
    }
    if (sum == 0x12345678u) *out = sum;
}
