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

// Near enough, and two instructions each: what is too small for a normal f32 becomes zero.
__device__ inline float exp_of(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value * 1.44269504f));
    return power;
}

__device__ inline float log_of(float value) {
    float power;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power * 0.69314718f;
}

__device__ inline float quotient(float a, float b) {
    float found;
    asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
    return found;
}

__device__ inline float inverse_root(float value) {
    float found;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(value));
    return found;
}

__device__ inline float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

// Of what is not below zero: its bits have the same order.
__device__ inline float warp_most(float value) { return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(value))); }

// Order of the unsigned keys = order of the floats.
__device__ inline u32 ordered_key(float value) {
    const u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float of_ordered_key(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key); }

// Of any value that is a number, in fewer steps.
__device__ inline float warp_largest(float value) { return of_ordered_key(__reduce_max_sync(~0u, ordered_key(value))); }

__device__ inline float warp_max(float value) {
    for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

// The lowest 16 bits are the nearest integer, below 2^15 either way: conversions are a quarter as fast as additions.
__device__ inline u32 integer_bits(float value) { return __float_as_uint(value + 12582912.f); } // 1.5 * 2^23
