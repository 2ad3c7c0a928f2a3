// Small words that every other file uses. NVRTC compiles this without any header.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

#define INFINITY __int_as_float(0x7F800000)

constexpr int LANES = 32;
constexpr int THREADS = WARPS * LANES;        // that compute
constexpr int BLOCK_THREADS = THREADS + BRINGERS * LANES; // and those that bring them weights

__host__ __device__ constexpr int div_up(int a, int b) { return (a + b - 1) / b; }

// The beginning of part `index` when `total` things are shared out evenly.
__device__ inline int share_begin(int total, int parts, int index) { return (int)((u32)total * (u32)index / (u32)parts); }

__device__ inline int lane_id() { return threadIdx.x % LANES; }
__device__ inline int warp_id() { return threadIdx.x / LANES; }

__device__ inline float bf16_to_f32(u16 bits) { return __uint_as_float((u32)bits << 16); }

__device__ inline u16 f32_to_bf16(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ inline u16 f32_to_f16(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ inline float f16_to_f32(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Two values in one register, the first in the low half.
__device__ inline u32 pack_f16(float first, float second) {
    u32 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}

__device__ inline float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

__device__ inline float warp_max(float value) {
    for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

// Order of the unsigned keys = order of the floats.
__device__ inline u32 ordered_key(float value) {
    const u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
