// The likeliest token without reading all of the head: levels rounded to four bits say which rows can have the largest logit, and
// of those alone the levels are read.
//
// What rounding takes from a level is as good as equally likely between -8 and 7. So a logit is off by 4.6 times the length of x
// (in the root mean square), times the row's scale, and `SCREEN_REACH` is eight times that: by chance it is off by more once in
// 10^15 rows. No row's logit is wrong; one whose levels conspire with x could be passed over.

constexpr float SCREEN_REACH = 8.f * 4.61f;
constexpr int BOUND_STRIDE = 32; // words: a line of its own
constexpr int HEAD_ROWS_MAX = div_up(HEAD_TILES, GRID) * TILE_ROWS; // of a block

// A block's rows.
template <class Vector> struct Screened {
    Vector vector;              // x as integers, where it was staged
    float upper[HEAD_ROWS_MAX]; // what the rows' logits are not above
    u16 rows[HEAD_ROWS_MAX];    // those that may have the largest, in any order
    u32 count;

    __device__ void add(int row) { rows[atomicAdd(&count, 1u)] = row; }
};

// What the largest logit of all blocks is not below, as far as they have told: whoever sees little of it looks at more rows. There
// are two words, by turns, both zero between launches.
struct Bound {
    u32* word;
    u32 known; // when it was last looked at

    __device__ explicit Bound(u32 counted) : word(params.bounds + counted % 2 * BOUND_STRIDE), known(0) {}

    __device__ u32 look() const {
        u32 key;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(key) : "l"(word) : "memory");
        return key;
    }

    // Whole warps call it.
    __device__ void raise(float logit) {
        const u32 key = __reduce_max_sync(~0u, ordered_key(logit));
        if (lane_id() != 0) return;
        if (key > known) asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(word), "r"(key) : "memory");
        known = look(); // there before the next tile ends
    }

    __device__ float now() const { return of_ordered_key(look()); }

    // When every block has finished the step. Everyone knows of it before the word is used again, two steps later.
    __device__ void forget() { *word = 0; }
};

__device__ inline int dot4(u32 a, u32 b, int sum) {
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
}

__device__ inline int dot16(uint4 a, uint4 b, int sum) { return dot4(a.w, b.w, dot4(a.z, b.z, dot4(a.y, b.y, dot4(a.x, b.x, sum)))); }

// A row of the head times the staged x, added up as `product_rows` does. Whole warps call it: four lanes a group, a block each.
__device__ inline float row_product(int row, const u8* vector) {
    constexpr int AT_ONCE = LANES / GROUP_BLOCKS;
    const Lane lane;
    const u8* tile = params.head + (size_t)(row / TILE_ROWS) * HeadPack::TILE_BYTES;
    const int g = row % 8, half = row % TILE_ROWS / 8;
    int high = 0, low = 0;
#pragma unroll 2
    for (int group = lane.g; group < HeadPack::GROUPS; group += AT_ONCE) {
        const int blocks = group + 1 == HeadPack::GROUPS ? HeadPack::TAIL_BLOCKS : GROUP_BLOCKS;
        if (lane.t >= blocks) continue;
        const u8* at = tile + group * HeadPack::GROUP_BYTES + half * blocks * 256 + (g * blocks + lane.t) * 16;
        const uint4 first = __ldg((const uint4*)at), second = __ldg((const uint4*)(at + blocks * 128));
        const uint4* x = (const uint4*)(vector + (group * GROUP_BLOCKS + lane.t) * 64);
        high = dot16(second, x[1], dot16(first, x[0], high));
        low = dot16(second, x[3], dot16(first, x[2], low));
    }
    for (int step = 4; step < LANES; step *= 2) {
        high += __shfl_xor_sync(~0u, high, step);
        low += __shfl_xor_sync(~0u, low, step);
    }
    float sum = 256.f * high + low;
    for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

// Rounds packed rows of 8 bit to 4: 16 bytes a thread.
extern "C" __global__ void round_rows(const u8* head, u8* coarse) {
    constexpr size_t CHUNKS = (size_t)HEAD_TILES * CoarsePack::TILE_BYTES / 16;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < CHUNKS; i += (size_t)gridDim.x * blockDim.x) {
        const size_t tile = i / (CoarsePack::TILE_BYTES / 16);
        const int in_tile = i % (CoarsePack::TILE_BYTES / 16), group = in_tile / (CoarsePack::GROUP_BYTES / 16);
        const int blocks = group + 1 == CoarsePack::GROUPS ? CoarsePack::TAIL_BLOCKS : GROUP_BLOCKS;
        const int chunk = in_tile % (CoarsePack::GROUP_BYTES / 16), half = chunk / (blocks * 8), index = chunk % (blocks * 8);
        const uint4* from = (const uint4*)(head + tile * HeadPack::TILE_BYTES + group * HeadPack::GROUP_BYTES + half * blocks * 256) + index;
        const uint4 a = from[0], b = from[blocks * 8];
        const auto both = [](u32 low, u32 high) {
            return __vaddss4(low, 0x08080808u) >> 4 & 0x0F0F0F0Fu | __vaddss4(high, 0x08080808u) & 0xF0F0F0F0u;
        };
        ((uint4*)coarse)[i] = make_uint4(both(a.x, a.y), both(a.z, a.w), both(b.x, b.y), both(b.z, b.w));
    }
}
