// Attention to cached keys and values, for any number of rows. HEAD_DIM is given.
//
// The query heads of a KV head share its keys: a pair (row, head) is one row of the tensor cores' tiles, 16 a warp. Keys
// come in blocks of 32 through shared memory. A pair's result must not depend on the pairs beside it, so positions are
// cut into chunks of 128; each chunk is summed by itself, in order, and chunks are folded into one another in order:
// by one warp after the other's (`attend_whole`), or, where there are few pairs, by blocks that each take a chunk
// (`attend_split`) and `attend_fold` after them. A block of keys that a pair may not see changes nothing about it. Where
// each sequence has one row, `attend_one` takes the products as they are, four warps share the work of one, and the blocks of
// few chunks fold by themselves (fold.cu).

static_assert(HEAD_DIM % 16 == 0, "whole products");
constexpr int CHUNK_BLOCKS = 4;
constexpr int ATTEND_STAGES = 3;
constexpr int STEPS = HEAD_DIM / 16;     // products along a head
constexpr int KEY_STRIDE = HEAD_DIM + 16; // f16: lanes then read from different banks
constexpr int VALUE_STRIDE = HEAD_DIM + 8;
constexpr int BLOCK_VALUES = 32 * HEAD_DIM;
constexpr int QUERY_STRIDE = HEAD_DIM + 4; // f32
constexpr float LOG2_E = 1.4426950408889634f;

struct Attend {
    const float* qkv;  // (rows, qkv_stride), queries first
    const u16* cache;  // of this layer: (blocks, keys and values, kv_heads, 32, HEAD_DIM)
    const int4* spans; // first row, rows, position of the first, first block of the table
    const int* blocks;
    const int* positions; // (rows)
    const float* sinks;   // (heads) or none
    float* out;           // (rows, heads * HEAD_DIM)
    float* partial_values;   // (rows, heads, chunks, HEAD_DIM)
    float2* partial_weights; // (rows, heads, chunks) largest score, sum of powers
    int qkv_stride, span_count, rows, kv_heads, group, window, chunks;
};

struct KeyBlock {
    u16 keys[32][KEY_STRIDE];
    u16 values[32][VALUE_STRIDE];
};

extern "C" __device__ const int attend_bytes = sizeof(KeyBlock) * ATTEND_STAGES;

// Sums over some keys, of the two pairs that a lane has part of, for so many times 16 values of a head. Scores are in
// powers of two.
template <int steps> struct Sums {
    float largest[2], weight[2];
    float values[2 * steps][4];

    __device__ void clear() {
        largest[0] = largest[1] = -INFINITY, weight[0] = weight[1] = 0;
#pragma unroll
        for (int i = 0; i < 8 * steps; i++) values[i / 4][i % 4] = 0;
    }
};

__device__ inline float reference(float largest) { return largest == -INFINITY ? 0.0f : largest; }

// The factors of two sums when they become one.
struct Fold {
    float own, other;

    __device__ Fold(float& largest, float& weight, float2 partial) {
        const float both = fmaxf(largest, partial.x), at = reference(both);
        own = exp2f(largest - at), other = exp2f(partial.x - at);
        weight = fmaf(weight, own, __fmul_rn(partial.y, other));
        largest = both;
    }
    __device__ float operator()(float value, float partial) const { return fmaf(value, own, __fmul_rn(partial, other)); }
};

// The factor that makes the result of a sum, with the sink's share.
__device__ inline float last_factor(const float* sinks, int head, float largest, float weight) {
    const float sink = sinks ? __fmul_rn(sinks[head], LOG2_E) : -INFINITY;
    const float at = fmaxf(largest, sink);
    return __fdiv_rn(exp2f(largest - at), fmaf(weight, exp2f(largest - at), exp2f(sink - at)));
}

// The pairs of a block of threads, and the keys they see.
struct Tile {
    int row, first_pair, pairs; // the span's first row; of its pairs the tile's first, and all of them
    int position, table;
    int first, last; // positions seen

    __device__ Tile(const Attend& p) {
        int tile = blockIdx.x;
        const int size = blockDim.x / LANES * 16;
        pairs = 0;
        for (int i = 0; i < p.span_count; i++) {
            const int4 span = p.spans[i];
            const int tiles = div_up(span.y * p.group, size);
            if (tile < tiles) {
                row = span.x, position = span.z, table = span.w, pairs = span.y * p.group;
                break;
            }
            tile -= tiles;
        }
        first_pair = tile * size;
        if (pairs == 0) return;
        last = position + (min(first_pair + size, pairs) - 1) / p.group;
        first = p.window ? max(0, position + first_pair / p.group + 1 - p.window) : 0;
    }
};

__device__ inline void copy_block(KeyBlock& to, const Attend& p, int block) {
    const u16* keys = p.cache + ((u64)block * 2 * p.kv_heads + blockIdx.y) * BLOCK_VALUES;
    const u16* values = keys + (u64)p.kv_heads * BLOCK_VALUES;
    for (int i = threadIdx.x; i < BLOCK_VALUES / 8; i += blockDim.x) {
        const int token = i * 8 / HEAD_DIM, dim = i * 8 % HEAD_DIM;
        copy_16(&to.keys[token][dim], keys + i * 8, true);
        copy_16(&to.values[token][dim], values + i * 8, true);
    }
}

__device__ inline void load_transposed(u32 (&of)[4], const u16* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(of[0]), "=r"(of[1]), "=r"(of[2]), "=r"(of[3]) : "r"(shared_address(at)));
}

// What rounding to f16 left over.
__device__ inline u32 rest_of(float first, float second, u32 rounded) {
    return pack_f16(first - f16_to_f32((u16)rounded), second - f16_to_f32((u16)(rounded >> 16)));
}

// What a lane has of a warp's 16 pairs: pairs g and g + 8. Queries are the sum of two f16: keys are rounded, they are not.
struct Queries {
    u32 q[STEPS][4], rest[STEPS][4];
    int row[2], head[2], position[2], first[2]; // position -1: no pair

    __device__ Queries(const Attend& p, const Tile& tile) {
        const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int pair = tile.first_pair + warp_id() * 16 + g + 8 * i;
            const bool there = pair < tile.pairs;
            row[i] = tile.row + pair / p.group, head[i] = blockIdx.y * p.group + pair % p.group;
            position[i] = there ? tile.position + pair / p.group : -1;
            first[i] = p.window ? position[i] + 1 - p.window : 0;
            take(i, there ? p.qkv + (u64)row[i] * p.qkv_stride + head[i] * HEAD_DIM + 4 * t : nullptr);
        }
    }
    // The one row of a span; its turned heads are at `heads`, (16, QUERY_STRIDE).
    __device__ Queries(const Attend& p, int4 span, const float* heads) {
        const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool there = g + 8 * i < p.group;
            row[i] = span.x, head[i] = blockIdx.y * p.group + g + 8 * i;
            position[i] = there ? span.z : -1;
            first[i] = p.window ? position[i] + 1 - p.window : 0;
            take(i, there ? heads + (g + 8 * i) * QUERY_STRIDE + 4 * t : nullptr);
        }
    }
    __device__ void take(int i, const float* from) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const float4 v = from ? *(const float4*)(from + 16 * step) : float4{0, 0, 0, 0};
            q[step][i] = pack_f16(v.x, v.y), q[step][2 + i] = pack_f16(v.z, v.w);
            rest[step][i] = rest_of(v.x, v.y, q[step][i]), rest[step][2 + i] = rest_of(v.z, v.w, q[step][2 + i]);
        }
    }
    // A score, in powers of two, if the pair sees the key.
    __device__ float seen(int pair, int key, float score) const {
        return key <= position[pair] && key >= first[pair] ? __fmul_rn(score, LOG2_E) : -INFINITY;
    }
};

__device__ inline float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}

// Adds the values of 32 keys, times the powers of their scores, to the sums of a chunk: 16 * steps values of a head, from
// `first_step` on.
template <int steps>
__device__ inline void add_values(Sums<steps>& sums, float (&scores)[4][4], const KeyBlock& block, int first_step) {
    float largest[2] = {-INFINITY, -INFINITY}, factor[2], weight[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 16; i++) largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], scores[i / 4][i % 4]);
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        const float both = fmaxf(sums.largest[pair], quad_max(largest[pair]));
        factor[pair] = exp2f(sums.largest[pair] - reference(both));
        sums.largest[pair] = both;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float& score = scores[i / 4][i % 4];
        score = exp2f(score - reference(sums.largest[i % 4 / 2]));
        weight[i % 4 / 2] += score;
    }
#pragma unroll
    for (int pair = 0; pair < 2; pair++) sums.weight[pair] = fmaf(sums.weight[pair], factor[pair], weight[pair]);
#pragma unroll
    for (int i = 0; i < 8 * steps; i++) sums.values[i / 4][i % 4] = __fmul_rn(sums.values[i / 4][i % 4], factor[i % 4 / 2]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float(&low)[4] = scores[2 * half];
        const float(&high)[4] = scores[2 * half + 1];
        const u32 a0 = pack_f16(low[0], low[1]), a1 = pack_f16(low[2], low[3]);
        const u32 a2 = pack_f16(high[0], high[1]), a3 = pack_f16(high[2], high[3]);
#pragma unroll
        for (int step = 0; step < steps; step++) {
            u32 v[4];
            load_transposed(v, &block.values[16 * half + lane_id() % 16][16 * (first_step + step) + lane_id() / 16 * 8]);
            multiply_add(sums.values[2 * step], a0, a1, a2, a3, v[0], v[1]);
            multiply_add(sums.values[2 * step + 1], a0, a1, a2, a3, v[2], v[3]);
        }
    }
}

// Adds one block of 32 keys to the sums of a chunk.
__device__ inline void attend_block(Sums<STEPS>& sums, const Queries& queries, const KeyBlock& block, int first_key) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    float scores[4][4] = {}, rests[4][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const uint2 k = *(const uint2*)&block.keys[8 * n + g][16 * step + 4 * t];
            const u32(&q)[4] = queries.q[step];
            const u32(&rest)[4] = queries.rest[step];
            multiply_add(scores[n], q[0], q[1], q[2], q[3], k.x, k.y);
            multiply_add(rests[n], rest[0], rest[1], rest[2], rest[3], k.x, k.y);
        }
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int key = first_key + 8 * (i / 4) + 2 * t + i % 2;
        scores[i / 4][i % 4] = queries.seen(i % 4 / 2, key, scores[i / 4][i % 4] + rests[i / 4][i % 4]);
    }
    add_values<STEPS>(sums, scores, block, 0);
}

// The weights of a chunk's pairs, whose lanes had some keys each.
template <int steps> __device__ inline float2 chunk_weights(const Sums<steps>& chunk, int pair) {
    float weight = chunk.weight[pair];
    weight += __shfl_xor_sync(ALL_LANES, weight, 1);
    weight += __shfl_xor_sync(ALL_LANES, weight, 2);
    return {chunk.largest[pair], weight};
}

// Goes through the key blocks `begin .. end`, and calls `done` at the end of every chunk.
template <class Done>
__device__ inline void attend_blocks(const Attend& p, const Tile& tile, const Queries& queries, int begin, int end, Done done) {
    extern __shared__ uint4 attend_memory[];
    KeyBlock* stages = (KeyBlock*)attend_memory;
    for (int i = 0; i < ATTEND_STAGES - 1; i++) {
        if (begin + i < end) copy_block(stages[i], p, p.blocks[tile.table + begin + i]);
        end_of_copies();
    }
    Sums<STEPS> chunk;
    chunk.clear();
    for (int block = begin; block < end; block++) {
        wait_for_copies<ATTEND_STAGES - 2>();
        __syncthreads();
        const int next = block + ATTEND_STAGES - 1;
        if (next < end) copy_block(stages[(next - begin) % ATTEND_STAGES], p, p.blocks[tile.table + next]);
        end_of_copies();
        attend_block(chunk, queries, stages[(block - begin) % ATTEND_STAGES], block * 32);
        if (block % CHUNK_BLOCKS == CHUNK_BLOCKS - 1 || block + 1 == end) {
            done(chunk);
            chunk.clear();
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) attend_whole(const __grid_constant__ Attend p) {
    begin_kernel();
    const Tile tile(p);
    if (tile.pairs == 0) return;
    const Queries queries(p, tile);
    Sums<STEPS> sums;
    sums.clear();
    attend_blocks(p, tile, queries, tile.first / 32, tile.last / 32 + 1, [&](const Sums<STEPS>& chunk) {
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const Fold fold(sums.largest[pair], sums.weight[pair], chunk_weights(chunk, pair));
#pragma unroll
            for (int i = 0; i < 4 * STEPS; i++) {
                const int n = i / 2, at = 2 * pair + i % 2;
                sums.values[n][at] = fold(sums.values[n][at], chunk.values[n][at]);
            }
        }
    });
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        if (queries.position[pair] < 0) continue;
        const float factor = last_factor(p.sinks, queries.head[pair], sums.largest[pair], sums.weight[pair]);
        float* out = p.out + ((u64)queries.row[pair] * p.kv_heads * p.group + queries.head[pair]) * HEAD_DIM + 2 * (lane_id() % 4);
#pragma unroll
        for (int n = 0; n < 2 * STEPS; n++) {
            *(float2*)(out + 8 * n) = {__fmul_rn(sums.values[n][2 * pair], factor), __fmul_rn(sums.values[n][2 * pair + 1], factor)};
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) attend_split(const __grid_constant__ Attend p) {
    begin_kernel();
    const Tile tile(p);
    if (tile.pairs == 0) return;
    const int begin = max(tile.first / 32, (int)blockIdx.z * CHUNK_BLOCKS);
    const int end = min(tile.last / 32 + 1, (int)(blockIdx.z + 1) * CHUNK_BLOCKS);
    if (begin >= end) return;
    const Queries queries(p, tile);
    attend_blocks(p, tile, queries, begin, end, [&](const Sums<STEPS>& chunk) {
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const float2 weights = chunk_weights(chunk, pair);
            if (queries.position[pair] < 0) continue;
            const u64 at = ((u64)queries.row[pair] * p.kv_heads * p.group + queries.head[pair]) * p.chunks + blockIdx.z;
            if (lane_id() % 4 == 0) p.partial_weights[at] = weights;
            float* out = p.partial_values + at * HEAD_DIM + 2 * (lane_id() % 4);
#pragma unroll
            for (int n = 0; n < 2 * STEPS; n++) *(float2*)(out + 8 * n) = {chunk.values[n][2 * pair], chunk.values[n][2 * pair + 1]};
        }
    });
}

// The largest score up to each chunk, by one warp.
__device__ inline void running_largest(const float2* weights, int count, float* largest) {
    float before = -INFINITY;
    for (int base = 0; base < count; base += LANES) {
        float own = base + lane_id() < count ? weights[base + lane_id()].x : -INFINITY;
        for (int step = 1; step < LANES; step *= 2) {
            const float other = __shfl_up_sync(ALL_LANES, own, step);
            if (lane_id() >= step) own = fmaxf(own, other);
        }
        own = fmaxf(own, before);
        if (base + lane_id() < count) largest[base + lane_id()] = own;
        before = __shfl_sync(ALL_LANES, own, LANES - 1);
    }
}

// A block a pair, a thread a dimension: as `Fold` does, chunk after chunk, but for the factors, which are all known
// beforehand.
constexpr int FOLD_CHUNKS = 1024; // at a time

extern "C" __global__ void __launch_bounds__(256) attend_fold(const __grid_constant__ Attend p) {
    __shared__ float largest[FOLD_CHUNKS], own[FOLD_CHUNKS], other[FOLD_CHUNKS], weights[FOLD_CHUNKS];
    begin_kernel();
    const int heads = p.kv_heads * p.group, pair = blockIdx.x, row = pair / heads, dim = threadIdx.x;
    const int position = p.positions[row], first = p.window ? max(0, position + 1 - p.window) : 0;
    const int begin = first / 32 / CHUNK_BLOCKS, count = min(FOLD_CHUNKS, position / 32 / CHUNK_BLOCKS + 1 - begin);
    const float2* partial_weights = p.partial_weights + (u64)pair * p.chunks + begin;
    const float* partial_values = p.partial_values + ((u64)pair * p.chunks + begin) * HEAD_DIM + dim;
    if (warp_id() == 0) running_largest(partial_weights, count, largest);
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const float2 partial = partial_weights[i];
        const float at = reference(largest[i]);
        own[i] = exp2f((i ? largest[i - 1] : -INFINITY) - at), other[i] = exp2f(partial.x - at);
        weights[i] = __fmul_rn(partial.y, other[i]);
    }
    __syncthreads();
    if (dim >= HEAD_DIM) return;
    float weight = 0, value = 0;
#pragma unroll 8
    for (int i = 0; i < count; i++) {
        weight = fmaf(weight, own[i], weights[i]);
        value = fmaf(value, own[i], __fmul_rn(partial_values[i * HEAD_DIM], other[i]));
    }
    const float factor = last_factor(p.sinks, pair % heads, largest[count - 1], weight);
    p.out[(u64)pair * HEAD_DIM + dim] = __fmul_rn(value, factor);
}
