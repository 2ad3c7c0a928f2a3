// Attention of one token to the cached ones.
//
// The query heads of a KV head go through the tensor cores together: eight rows of queries, and in the other eight rows
// of the same instruction what rounding to bf16 left over, so queries and shares keep f32's worth of precision for free.
//
// The cache lies in blocks of 32 tokens. Keys are (token, dim), values (dim, token): a lane then reads 16 bytes at a time
// in the order in which the instructions want them. One warp takes one block at a time. Long contexts are split over
// several blocks of the grid, which merge what they found.

static_assert(HEAD_DIM == 64 && GROUP_HEADS == 8 && KV_BLOCK_TOKENS == 32, "the shapes of the instructions");
constexpr int HALF_DIM = HEAD_DIM / 2;
constexpr int HALF_BLOCK = KV_BLOCK_TOKENS * HEAD_DIM; // values of the keys, or of the values, in a block
constexpr int SPLITS_MAX = GRID / KV_HEADS;
constexpr int SPLIT_BLOCKS_MIN = 8; // fewer are not worth another split
constexpr int OUTPUTS = GROUP_HEADS * HEAD_DIM;

struct AttentionShared {
    u16 queries[2 * GROUP_HEADS][HEAD_DIM];   // rounded, then the remainders
    float values[WARPS][GROUP_HEADS][HEAD_DIM]; // sums of each warp
    float2 weights[WARPS][GROUP_HEADS];         // largest score, sum of powers
};

// Which cached blocks this block of the grid attends to.
struct Split {
    int head;       // KV head
    int index, count; // of the splits
    int first;      // position seen first
    int begin, end; // cache blocks of this split

    __device__ Split(int position, bool windowed) : head(blockIdx.x % KV_HEADS), index(blockIdx.x / KV_HEADS) {
        first = windowed ? max(0, position + 1 - WINDOW) : 0;
        const int from = first / KV_BLOCK_TOKENS, to = position / KV_BLOCK_TOKENS + 1;
        count = min(SPLITS_MAX, div_up(to - from, SPLIT_BLOCKS_MIN));
        if (windowed) count = 1;
        begin = from + share_begin(to - from, count, index);
        end = from + share_begin(to - from, count, index + 1);
    }
    __device__ bool idle() const { return index >= count; }
};

__device__ inline void mma_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline float qkv_value(const float* parts, int row) {
    return load_shared_by_blocks(&parts[row]) + load_shared_by_blocks(&parts[QKV_ROWS + row]);
}

// Turns queries and key of this block's heads; stores queries for the block, key and value in the cache.
__device__ inline void turn_heads(const Params& params, AttentionShared& shared, const float2* turns, const Split& split, u16* kv_block, int slot) {
    const int thread = threadIdx.x;
    constexpr int TURNS = (GROUP_HEADS + 1) * HALF_DIM; // pairs of the queries, then of the key
    const bool newest = kv_block != nullptr;
    for (int i = thread; i < TURNS + HEAD_DIM; i += THREADS) {
        if (i >= TURNS) {
            const int dim = i - TURNS;
            const float value = qkv_value(params.qkv_parts, Q_ROWS + KV_ROWS + split.head * HEAD_DIM + dim);
            if (newest) kv_block[HALF_BLOCK + dim * KV_BLOCK_TOKENS + slot] = f32_to_bf16(value);
            continue;
        }
        const int head = i / HALF_DIM, dim = i % HALF_DIM;
        const bool query = head < GROUP_HEADS;
        const int row = query ? (split.head * GROUP_HEADS + head) * HEAD_DIM : Q_ROWS + split.head * HEAD_DIM;
        const float a = qkv_value(params.qkv_parts, row + dim);
        const float b = qkv_value(params.qkv_parts, row + dim + HALF_DIM);
        const float2 turn = turns[dim];
        const float turned[2] = {a * turn.x - b * turn.y, b * turn.x + a * turn.y};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int at = dim + half * HALF_DIM;
            if (query) {
                const float value = turned[half] * 0.125f; // 1 / sqrt(HEAD_DIM)
                const u16 rounded = f32_to_bf16(value);
                shared.queries[head][at] = rounded;
                shared.queries[GROUP_HEADS + head][at] = f32_to_bf16(value - bf16_to_f32(rounded));
            } else if (newest) {
                kv_block[slot * HEAD_DIM + at] = f32_to_bf16(turned[half]);
            }
        }
    }
}

// One warp's attention, over the blocks it has seen so far. Lane 4 * g + t has head g.
struct Attending {
    u32 q[2][8];     // (row half) dims 16 t .. 16 t + 15 of rows g and g + 8
    float sum[8][4]; // (8 dims each): dims 8 n + 2 t, + 1 of rows g and g + 8
    float most, total;

    __device__ explicit Attending(const AttentionShared& shared) : most(-INFINITY), total(0.f) {
        const Lane lane;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4* from = (const uint4*)&shared.queries[half * GROUP_HEADS + lane.g][lane.t * 16];
            *(uint4*)&q[half][0] = from[0];
            *(uint4*)&q[half][4] = from[1];
        }
#pragma unroll
        for (int n = 0; n < 8; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.f;
    }

    // Scores of token 8 t + 2 n + j in scores[n][j].
    __device__ void score(const u16* keys, float (&scores)[4][2]) const {
        const Lane lane;
        uint4 k[4][2];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int token = 8 * (lane.g / 2) + 2 * n + lane.g % 2;
            const uint4* from = (const uint4*)(keys + token * HEAD_DIM + lane.t * 16);
            k[n][0] = load_shared_by_blocks(from), k[n][1] = load_shared_by_blocks(from + 1);
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float d[4] = {0.f, 0.f, 0.f, 0.f};
            mma_bf16(d, q[0][0], q[1][0], q[0][1], q[1][1], k[n][0].x, k[n][0].y);
            mma_bf16(d, q[0][2], q[1][2], q[0][3], q[1][3], k[n][0].z, k[n][0].w);
            mma_bf16(d, q[0][4], q[1][4], q[0][5], q[1][5], k[n][1].x, k[n][1].y);
            mma_bf16(d, q[0][6], q[1][6], q[0][7], q[1][7], k[n][1].z, k[n][1].w);
            scores[n][0] = d[0] + d[2], scores[n][1] = d[1] + d[3];
        }
    }

    // Scores become powers, relative to the largest score so far.
    __device__ void weigh(float (&scores)[4][2]) {
        float larger = most;
#pragma unroll
        for (int n = 0; n < 4; n++) larger = fmaxf(larger, fmaxf(scores[n][0], scores[n][1]));
        larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 1));
        larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 2));
        const float shrink = most == larger ? 1.f : __expf(most - larger);
        most = larger;
        total *= shrink;
#pragma unroll
        for (int n = 0; n < 8; n++)
            for (int i = 0; i < 4; i++) sum[n][i] *= shrink;
#pragma unroll
        for (int n = 0; n < 4; n++)
            for (int j = 0; j < 2; j++) total += scores[n][j] = most == -INFINITY ? 0.f : __expf(scores[n][j] - most);
    }

    __device__ void add(const uint4 (&values)[8], const float (&powers)[4][2]) {
        u32 high[4], low[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            high[n] = pack_bf16(powers[n][0], powers[n][1]);
            low[n] = pack_bf16(powers[n][0] - bf16_to_f32((u16)high[n]), powers[n][1] - bf16_to_f32((u16)(high[n] >> 16)));
        }
#pragma unroll
        for (int n = 0; n < 8; n++) {
            mma_bf16(sum[n], high[0], low[0], high[1], low[1], values[n].x, values[n].y);
            mma_bf16(sum[n], high[2], low[2], high[3], low[3], values[n].z, values[n].w);
        }
    }

    // Tokens before `first` or after `last` (positions in the block) are not seen.
    __device__ void block(const u16* kv_block, int first, int last) {
        const Lane lane;
        uint4 values[8];
#pragma unroll
        for (int n = 0; n < 8; n++)
            values[n] = load_shared_by_blocks(
                (const uint4*)(kv_block + HALF_BLOCK + (8 * n + lane.g) * KV_BLOCK_TOKENS + lane.t * 8));
        float scores[4][2];
        score(kv_block, scores);
#pragma unroll
        for (int n = 0; n < 4; n++)
            for (int j = 0; j < 2; j++) {
                const int token = 8 * lane.t + 2 * n + j;
                if (token < first || token > last) scores[n][j] = -INFINITY;
            }
        weigh(scores);
        add(values, scores);
    }

    __device__ void put(AttentionShared& shared) {
        const Lane lane;
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        const int warp = warp_id();
        if (lane.t == 0) shared.weights[warp][lane.g] = make_float2(most, total);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float2* at = (float2*)&shared.values[warp][lane.g][8 * n + 2 * lane.t];
            *at = make_float2(sum[n][0] + sum[n][2], sum[n][1] + sum[n][3]);
        }
    }
};

// Values with their weights, from several places, as one.
struct Merge {
    float most = -INFINITY, total = 0.f, value = 0.f;
    __device__ void add(float2 weight, float summed) {
        if (weight.x == -INFINITY) return;
        const float larger = fmaxf(most, weight.x);
        const float old = __expf(most - larger), fresh = __expf(weight.x - larger);
        total = total * old + weight.y * fresh;
        value = value * old + summed * fresh;
        most = larger;
    }
    // The sink is a key that is always there and has no value.
    __device__ float share(float sink) const {
        const float larger = fmaxf(most, sink);
        const float scale = __expf(most - larger);
        return value * scale / (total * scale + __expf(sink - larger));
    }
};

// Merges the splits of a KV head: each of its blocks a part of the outputs.
__device__ inline void merge_splits(const Params& params, const Split& split, const float* sinks) {
    const Range outputs = Range{0, OUTPUTS}.part(split.count, split.index);
    const int output = outputs.begin + threadIdx.x;
    if (output >= outputs.end) return;
    const int head = output / HEAD_DIM;
    float2 weights[SPLITS_MAX];
    float values[SPLITS_MAX];
#pragma unroll
    for (int i = 0; i < SPLITS_MAX; i++) {
        const int at = split.head * SPLITS_MAX + min(i, split.count - 1);
        weights[i] = load_shared_by_blocks((const float2*)params.partial_weights + at * GROUP_HEADS + head);
        values[i] = load_shared_by_blocks(params.partial_values + at * OUTPUTS + output);
    }
    Merge merge;
#pragma unroll
    for (int i = 0; i < SPLITS_MAX; i++)
        if (i < split.count) merge.add(weights[i], values[i]);
    params.attended[split.head * OUTPUTS + output] = merge.share(sinks[split.head * GROUP_HEADS + head]);
}

// Heads of the token at `position`, from `qkv_parts` to `attended`.
__device__ inline void attend(const Params& params, AttentionShared& shared, const float2* turns, int layer, int position, u32& split_target) {
    const Split split(position, layer % 2 == 0 && WINDOW > 0);
    if (split.count > 1) split_target += split.count;
    if (split.idle()) return;
    const float* sinks = params.sinks + layer * HEADS;
    u16* cache = params.cache + ((size_t)layer * params.cache_blocks * KV_HEADS + split.head) * 2 * HALF_BLOCK;
    auto cached = [&](int block) { return cache + (size_t)params.blocks[block] * KV_HEADS * 2 * HALF_BLOCK; };
    const int newest = position / KV_BLOCK_TOKENS;
    u16* open = newest >= split.begin && newest < split.end ? cached(newest) : nullptr;
    turn_heads(params, shared, turns, split, open, position % KV_BLOCK_TOKENS);
    __syncthreads();

    Attending attending(shared);
    for (int block = split.begin + warp_id(); block < split.end; block += WARPS) {
        const int start = block * KV_BLOCK_TOKENS;
        attending.block(cached(block), split.first - start, position - start);
    }
    attending.put(shared);
    __syncthreads();

    for (int output = threadIdx.x; output < OUTPUTS; output += THREADS) {
        const int head = output / HEAD_DIM, dim = output % HEAD_DIM;
        Merge merge;
        for (int warp = 0; warp < min(WARPS, split.end - split.begin); warp++)
            merge.add(shared.weights[warp][head], shared.values[warp][head][dim]);
        if (split.count == 1) {
            params.attended[split.head * OUTPUTS + output] = merge.share(sinks[split.head * GROUP_HEADS + head]);
            continue;
        }
        const int at = split.head * SPLITS_MAX + split.index;
        params.partial_values[at * OUTPUTS + output] = merge.value;
        if (dim == 0) ((float2*)params.partial_weights)[at * GROUP_HEADS + head] = make_float2(merge.most, merge.total);
    }
    if (split.count == 1) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32* count = &params.split_counts[split.head];
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
        GridBarrier::wait_for_count(count, split_target);
    }
    __syncthreads();
    merge_splits(params, split, sinks);
}
