// Where cached keys and values lie, and who reads them.
//
// The cache lies in blocks of 32 tokens, each two *units* of 16: a unit's keys, then its values, both in *parts* of 64
// dims, each in the order in which the lanes of a warp want them (attention.cuh). Long contexts are split over several blocks of
// the grid.

static_assert(HEAD_DIM % 64 == 0 && GROUP_HEADS <= 8 && KV_BLOCK_TOKENS == 32, "the shapes of the instructions");
constexpr int UNIT_TOKENS = 16;
constexpr int UNIT_VALUES = UNIT_TOKENS * HEAD_DIM; // of its keys, or of its values
constexpr int PART_DIMS = 64, DIM_PARTS = HEAD_DIM / PART_DIMS;
constexpr int PART_VALUES = UNIT_TOKENS * PART_DIMS;
constexpr int BLOCK_UNITS = KV_BLOCK_TOKENS / UNIT_TOKENS;
constexpr int SPLITS_MAX = GRID / KV_HEADS < 32 ? GRID / KV_HEADS : 32;
constexpr int SPLIT_UNITS_MIN = WARPS / DIM_PARTS; // fewer are not worth another split

// Lane 4 * g + t of a warp has, of the keys, dims 16 t .. of tokens 4 (g / 2) + 2 n + g % 2, in four runs of 16 bytes (n,
// half of the dims).
__device__ inline int key_place(int token, int dim) {
    const int g = 2 * (token / 4) + token % 2, n = token % 4 / 2, part = dim / PART_DIMS;
    dim %= PART_DIMS;
    return part * PART_VALUES + ((n * 2 + dim % 16 / 8) * LANES + 4 * g + dim / 16) * 8 + dim % 8;
}

// Of the values it has tokens 4 t .. of dims 8 n + g, two n in each of four runs.
__device__ inline int value_place(int token, int dim) {
    const int n = dim % PART_DIMS / 8, g = dim % 8, part = dim / PART_DIMS;
    return part * PART_VALUES + (n / 2 * LANES + 4 * g + token / 4) * 8 + n % 2 * 4 + token % 4;
}

// Of a layer and a KV head: the unit's keys, then its values.
__device__ inline u16* cached_unit(int layer, int head, int unit) {
    const size_t block = (size_t)layer * params.cache_blocks + params.blocks[unit / BLOCK_UNITS];
    return params.cache + ((block * KV_HEADS + head) * BLOCK_UNITS + unit % BLOCK_UNITS) * 2 * UNIT_VALUES;
}

// What is cached is finite: even a value that nobody looks at is multiplied with zero.
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

// A warp's units of its block's split, one after another. Every WARPS-th is its own.
struct CachedUnits {
    static constexpr int PARTS = 2 * DIM_PARTS, PART_BYTES = 2 * PART_VALUES;
    int layer, head;
    int unit;
    int count;
    const u16* next; // asked for one unit ahead

    __device__ CachedUnits() {}
    __device__ CachedUnits(int position, int layer, int warp) : layer(layer) {
        Split split;
        split.find(position, Split::kind(layer));
        head = split.head, unit = split.begin + warp, count = max(0, div_up(split.end - unit, WARPS));
        if (count > 0) next = cached_unit(layer, head, unit);
    }
    __device__ const u16* take() {
        const u16* taken = next;
        count--, unit += WARPS;
        if (count > 0) next = cached_unit(layer, head, unit);
        return taken;
    }
};

// Brings blocks over from the general path's cache: (blocks of the list, layers, KV_HEADS) blocks of the grid.
extern "C" __global__ void bring_blocks(const u32* list) {
    const u32 id = list[blockIdx.x];
    const size_t block = ((size_t)blockIdx.y * params.cache_blocks + id);
    const int head = blockIdx.z;
    for (int i = threadIdx.x; i < 2 * KV_BLOCK_TOKENS * HEAD_DIM; i += blockDim.x) {
        const int of = i / (KV_BLOCK_TOKENS * HEAD_DIM), token = i / HEAD_DIM % KV_BLOCK_TOKENS, dim = i % HEAD_DIM;
        const u16 value = params.paged[(((block * 2 + of) * KV_HEADS + head) * KV_BLOCK_TOKENS + token) * HEAD_DIM + dim];
        u16* unit = params.cache + ((block * KV_HEADS + head) * BLOCK_UNITS + token / UNIT_TOKENS) * 2 * UNIT_VALUES;
        const int slot = token % UNIT_TOKENS;
        unit[of == 0 ? key_place(slot, dim) : UNIT_VALUES + value_place(slot, dim)] = value;
    }
}
