// Where cached keys and values lie, and who reads them.
//
// The cache lies in blocks of 32 tokens, each two *units* of 16. Keys and values are integers of 8 bits. A key has a scale for
// each 32 of its dims, because a few dims of some models' keys are a hundred times as large as the others; a value has one. A unit
// is its keys, their scales, its values, their scales; levels lie in *parts* of 64 dims, each in the order in which the lanes of a
// warp want them (attention.cuh). Long contexts are split over several blocks of the grid.

static_assert(HEAD_DIM % 64 == 0 && GROUP_HEADS <= 8 && KV_BLOCK_TOKENS == 32, "the shapes of the instructions");
constexpr int UNIT_TOKENS = 16;
constexpr int UNIT_LEVELS = UNIT_TOKENS * HEAD_DIM; // of its keys, or of its values
constexpr int PART_DIMS = 64, DIM_PARTS = HEAD_DIM / PART_DIMS;
constexpr int PART_LEVELS = UNIT_TOKENS * PART_DIMS;
constexpr int SCALE_DIMS = 32, KEY_SCALES = HEAD_DIM / SCALE_DIMS; // of a key
constexpr int KEYS_BYTES = UNIT_LEVELS + UNIT_TOKENS * KEY_SCALES * 2;
constexpr int VALUES_BYTES = UNIT_LEVELS + UNIT_TOKENS * 2;
static_assert(KEYS_BYTES + VALUES_BYTES <= UNIT_BYTES && KEYS_BYTES % 16 == 0 && VALUES_BYTES % 16 == 0 && UNIT_BYTES % 16 == 0,
              "the host has room for a unit, and it can be copied");
constexpr int BLOCK_UNITS = KV_BLOCK_TOKENS / UNIT_TOKENS;
constexpr int SPLITS_MAX = GRID / KV_HEADS < 32 ? GRID / KV_HEADS : 32;
constexpr int SPLIT_UNITS_MIN = WARPS / DIM_PARTS; // fewer are not worth another split

// Which row of an instruction a token is: lane 4 * g + t has rows g and g + 8, `n` 0 and 1.
struct UnitRow {
    int g, n;
    __device__ explicit UnitRow(int token) : g(2 * (token / 4) + token % 2), n(token % 4 / 2) {}
};

// Of a key, lane 4 * g + t has dims 8 t .. of each 32, in a run of 16 bytes: four dims of both rows, then the other four.
__device__ inline int key_place(int token, int dim) {
    const UnitRow row(token);
    const int run = dim % PART_DIMS / SCALE_DIMS * LANES + 4 * row.g + dim % SCALE_DIMS / 8;
    return dim / PART_DIMS * PART_LEVELS + run * 16 + dim % 8 / 4 * 8 + row.n * 4 + dim % 4;
}
__device__ inline int key_scale_place(int token, int scale) {
    const UnitRow row(token);
    return UNIT_LEVELS + ((row.g * 2 + row.n) * KEY_SCALES + scale) * 2;
}

// Of the values it has tokens 4 t .. of dims 8 n + g, four n in each of two runs.
__device__ inline int value_place(int token, int dim) {
    const int n = dim % PART_DIMS / 8, g = dim % 8;
    return KEYS_BYTES + dim / PART_DIMS * PART_LEVELS + (n / 4 * LANES + 4 * g + token / 4) * 16 + n % 4 * 4 + token % 4;
}
__device__ inline int value_scale_place(int token) {
    const UnitRow row(token);
    return KEYS_BYTES + UNIT_LEVELS + (row.g * 2 + row.n) * 2;
}

// How values are made integers whose largest is `most`. Scales are f16, 64 times what they are, so that none is too small for it.
struct Rounding {
    static constexpr float LEVELS = 127.f, SCALE_UNIT = 64.f;
    u16 scale;
    float factor;

    __device__ explicit Rounding(float most) : scale(f32_to_f16(most * (SCALE_UNIT / LEVELS))) {
        const float rounded = f16_to_f32(scale);
        factor = rounded > 0.f ? quotient(SCALE_UNIT, rounded) : 0.f;
    }
    __device__ int level(float value) const { return __float2int_rn(fminf(fmaxf(value * factor, -LEVELS), LEVELS)); }
    // Values lie as what is never below zero: attention.cuh says why.
    static constexpr int VALUE_ZERO = 128;
};

// Of a layer and a KV head.
__device__ inline u8* cached_unit(int layer, int head, int unit) {
    const size_t block = (size_t)layer * params.cache_blocks + params.blocks[unit / BLOCK_UNITS];
    return params.cache + ((block * KV_HEADS + head) * BLOCK_UNITS + unit % BLOCK_UNITS) * UNIT_BYTES;
}

// What the general path's cache has is finite: even a value that nobody looks at is multiplied with zero.
__device__ inline u16 cached(float value) { return f32_to_f16(fminf(fmaxf(value, -65504.f), 65504.f)); }

// The same key (`of` 0) or value (1) in the general path's cache, which has the same blocks.
__device__ inline u16* paged_place(int layer, int head, int position, int of) {
    const size_t block = (size_t)layer * params.cache_blocks + params.blocks[position / KV_BLOCK_TOKENS];
    return params.paged + (((block * 2 + of) * KV_HEADS + head) * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS) * HEAD_DIM;
}

// Which cached units this block of the grid attends to. The newest token is not among them: it goes straight to the last
// split, so that what is cached can be brought before the token's own key and value are known.
struct Split {
    int head;         // KV head
    int index, count; // of the splits
    int first;        // position seen first
    int begin, end;   // units of this split

    // Layers of a kind see the same.
    static constexpr int KINDS = 2;
    static __device__ int kind(int layer) { return layer % KINDS; }

    __device__ void find(int position, int kind) {
        const bool windowed = kind == 0 && WINDOW > 0;
        head = blockIdx.x % KV_HEADS, index = blockIdx.x / KV_HEADS;
        first = windowed ? max(0, position + 1 - WINDOW) : 0;
        const int from = first / UNIT_TOKENS, to = max(from, div_up(position, UNIT_TOKENS));
        count = windowed ? 1 : max(1, min(SPLITS_MAX, div_up(to - from, SPLIT_UNITS_MIN)));
        begin = from + share_begin(to - from, count, index);
        end = from + share_begin(to - from, count, index + 1);
        if (idle()) begin = end = 0;
    }
    __device__ bool idle() const { return index >= count; }
    __device__ bool newest() const { return index == count - 1; }
};

// A warp's units of its block's split, one after another. Every WARPS-th is its own. A unit is one piece, or one of its keys and
// one of its values.
struct CachedUnits {
    static constexpr bool WHOLE = DIM_PARTS == 1;
    static constexpr int PIECES = WHOLE ? 1 : 2;
    static constexpr int PIECE_BYTES = WHOLE ? KEYS_BYTES + VALUES_BYTES : KEYS_BYTES;
    static constexpr int LAST_MISSES = WHOLE ? 0 : KEYS_BYTES - VALUES_BYTES;
    int layer, head;
    int unit;
    int count;
    const u8* next; // asked for one unit ahead

    __device__ CachedUnits() {}
    __device__ CachedUnits(int position, int layer, int warp) : layer(layer) {
        Split split;
        split.find(position, Split::kind(layer));
        head = split.head, unit = split.begin + warp, count = max(0, div_up(split.end - unit, WARPS));
        if (count > 0) next = cached_unit(layer, head, unit);
    }
    __device__ const u8* take() {
        const u8* taken = next;
        count--, unit += WARPS;
        if (count > 0) next = cached_unit(layer, head, unit);
        return taken;
    }
};

constexpr int BRING_WARPS = 8;

// Brings blocks over from the general path's cache: (blocks of the list, layers, KV_HEADS) blocks of the grid. A warp has a token
// at a time, of which a lane has some consecutive dims.
extern "C" __global__ void __launch_bounds__(BRING_WARPS * LANES) bring_blocks(const u32* list) {
    constexpr int DIMS = HEAD_DIM / LANES, TOKENS = KV_BLOCK_TOKENS / BRING_WARPS, SCALE_LANES = SCALE_DIMS / DIMS;
    __shared__ __align__(16) u8 units[BLOCK_UNITS][UNIT_BYTES];
    const size_t block = ((size_t)blockIdx.y * params.cache_blocks + list[blockIdx.x]) * 2 * KV_HEADS + blockIdx.z;
    const u16* from = params.paged + block * KV_BLOCK_TOKENS * HEAD_DIM + lane_id() * DIMS;
    u32 words[2][TOKENS][DIMS / 2];
#pragma unroll
    for (int i = 0; i < 2 * TOKENS; i++) {
        const int of = i / TOKENS, token = i % TOKENS * BRING_WARPS + warp_id();
#pragma unroll
        for (int j = 0; j < DIMS / 2; j++)
            words[of][i % TOKENS][j] = ((const u32*)(from + (of * KV_HEADS * KV_BLOCK_TOKENS + token) * HEAD_DIM))[j];
    }
#pragma unroll
    for (int i = 0; i < 2 * TOKENS; i++) {
        const int of = i / TOKENS, token = i % TOKENS * BRING_WARPS + warp_id(), slot = token % UNIT_TOKENS;
        u8* unit = units[token / UNIT_TOKENS];
        float values[DIMS], most = 0.f;
#pragma unroll
        for (int j = 0; j < DIMS; j++) {
            values[j] = f16_to_f32((u16)(words[of][i % TOKENS][j / 2] >> 16 * (j % 2)));
            most = fmaxf(most, fabsf(values[j]));
        }
        const int shared_by = of == 0 ? SCALE_LANES : LANES;
        for (int step = 1; step < shared_by; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        const Rounding rounding(most);
        if (lane_id() % shared_by == 0)
            *(u16*)&unit[of == 0 ? key_scale_place(slot, lane_id() / SCALE_LANES) : value_scale_place(slot)] = rounding.scale;
#pragma unroll
        for (int j = 0; j < DIMS; j++) {
            const int dim = lane_id() * DIMS + j, level = rounding.level(values[j]);
            if (of == 0) unit[key_place(slot, dim)] = level;
            else unit[value_place(slot, dim)] = level + Rounding::VALUE_ZERO;
        }
    }
    __syncthreads();
    const size_t at = ((size_t)blockIdx.y * params.cache_blocks + list[blockIdx.x]) * KV_HEADS + blockIdx.z;
    uint4* to = (uint4*)(params.cache + at * BLOCK_UNITS * UNIT_BYTES);
    for (int i = threadIdx.x; i < BLOCK_UNITS * UNIT_BYTES / 16; i += blockDim.x) to[i] = ((const uint4*)units)[i];
}
