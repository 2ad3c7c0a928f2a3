// Small words that the operations use. NVRTC compiles this without any header, for sm_80 and later.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int LANES = 32;
constexpr u32 ALL_LANES = 0xFFFFFFFFu;

#define INFINITY __int_as_float(0x7F800000)
#define F16_MAX 65504.0f

__device__ inline int div_up(int a, int b) { return (a + b - 1) / b; }
__device__ inline int lane_id() { return threadIdx.x % LANES; }
__device__ inline int warp_id() { return threadIdx.x / LANES; }

// Pairs of f16 in one register, the first in the low half.

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

__device__ inline u32 pack_f16(float first, float second) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

__device__ inline u32 mul_f16x2(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

__device__ inline u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

__device__ inline u32 both_halves(u32 value, int half) { return __byte_perm(value, 0, half ? 0x3232 : 0x1010); }

// sums (16, 8) += a (16, 16) * b (16, 8). Lane 4 g + t has: of a, rows g and g + 8, of b and the sums, columns g and 2 t.
__device__ inline void multiply_add(float (&sums)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Copies to shared memory that go on by themselves.

__device__ inline u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// 16 bytes, or zeros.
__device__ inline void copy_16(void* to, const void* from, bool wanted) {
    const int bytes = wanted ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
}

__device__ inline void end_of_copies() { asm volatile("cp.async.commit_group;"); }

// Until at most `left` of the last groups are under way.
template <int left> __device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(left)); }

// A kernel may begin while the one before it still runs: it lets the next one do so too, and waits for the other before it
// touches anything but weights.

__device__ inline void let_the_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ inline void wait_for_the_one_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void begin_kernel() {
    let_the_next_begin();
    wait_for_the_one_before();
}

// Until so many threads of the block are here. Barrier 0 is that of the whole block.
__device__ inline void named_barrier(int which, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}

// Asks for a line that will be read soon.
__device__ inline void ask_for(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// The columns of a row are cut into ranges that are summed by themselves: see product.cu.
constexpr int RANGES = 8;

__device__ inline int range_begin(int units, int range) { return units * range / RANGES; }

// Weights are read once: they should not push activations out of the caches.
__device__ inline uint4 load_once(const uint4* at) {
    uint4 v;
    asm("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

__device__ inline float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}

__device__ inline float warp_max(float value) {
    for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}
