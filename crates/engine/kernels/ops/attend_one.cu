// Attention of one row of a sequence, together with what comes before and after it.

// One row of a sequence, one chunk, four warps: each has a quarter of the keys' scores and of the heads' values. Old keys and
// values are asked for before the products of this token are there; its own are turned here, put beside the old ones, and
// cached by the chunk that they belong to. At most 16 query heads share a KV head.
constexpr int ONE_WARPS = 4;
constexpr int ONE_STEPS = (STEPS + ONE_WARPS - 1) / ONE_WARPS;
constexpr int SCORE_STRIDE = 32 * CHUNK_BLOCKS + 8; // f32: lanes then write to different banks

struct OneMemory {
    KeyBlock blocks[CHUNK_BLOCKS];
    float queries[16][QUERY_STRIDE];
    float scores[16][SCORE_STRIDE];
    u16 newest[2][HEAD_DIM]; // key and value
};

extern "C" __device__ const int attend_one_bytes = sizeof(OneMemory);

// The scores of keys 8 n .. 8 n + 7 of a block, of all pairs.
__device__ inline void score_keys(OneMemory& m, const Queries& queries, int block, int first_key, int n) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    float scores[4] = {}, rests[4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const uint2 k = *(const uint2*)&m.blocks[block].keys[8 * n + g][16 * step + 4 * t];
        const u32(&q)[4] = queries.q[step];
        const u32(&rest)[4] = queries.rest[step];
        multiply_add(scores, q[0], q[1], q[2], q[3], k.x, k.y);
        multiply_add(rests, rest[0], rest[1], rest[2], rest[3], k.x, k.y);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int key = 8 * n + 2 * t + i % 2;
        m.scores[g + 8 * (i / 2)][32 * block + key] = queries.seen(i / 2, first_key + key, scores[i] + rests[i]);
    }
}

// Turns the heads that the chunk needs; its own key and value only if it `has_newest`.
__device__ inline void turn_heads(OneMemory& m, const Attend& p, const Place& h, int row, bool has_newest) {
    const int all = p.group + (has_newest ? 2 : 0);
    for (int i = warp_id(); i < all; i += ONE_WARPS) {
        if (i < p.group) {
            turn_head(h, row, blockIdx.y * p.group + i, [&](int first, int second, float x, float y) {
                m.queries[i][first] = x, m.queries[i][second] = y;
            });
        } else {
            const int of = i - p.group, head = h.heads + of * h.kv_heads + blockIdx.y;
            u16* to = cache_place(h, row, head);
            turn_head(h, row, head, [&](int first, int second, float x, float y) {
                to[first] = m.newest[of][first] = cached(x), to[second] = m.newest[of][second] = cached(y);
            });
        }
    }
}

__device__ inline void put_newest(OneMemory& m, int block, int token) {
    for (int i = threadIdx.x; i < HEAD_DIM; i += blockDim.x) {
        m.blocks[block].keys[token][i] = m.newest[0][i], m.blocks[block].values[token][i] = m.newest[1][i];
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(ONE_WARPS* LANES)
    attend_one(const __grid_constant__ Attend p, const __grid_constant__ Place h) {
    extern __shared__ uint4 attend_memory[];
    OneMemory& m = *(OneMemory*)attend_memory;
    let_the_next_begin();
    const int4 span = p.spans[blockIdx.x];
    const int position = span.z, chunk = blockIdx.z, g = lane_id() / 4, t = lane_id() % 4;
    const int first = p.window ? max(0, position + 1 - p.window) : 0;
    const int begin = max(first / 32, chunk * CHUNK_BLOCKS), end = min(position / 32 + 1, (chunk + 1) * CHUNK_BLOCKS);
    if (begin >= end) return;
    for (int block = begin; block < end; block++) copy_block(m.blocks[block - begin], p, span.w, block);
    end_of_copies();
    wait_for_the_one_before();
    const bool has_newest = position / 32 < end;
    turn_heads(m, p, h, span.x, has_newest);
    wait_for_copies<0>();
    __syncthreads();
    if (has_newest) put_newest(m, position / 32 - begin, position % 32);
    const Queries queries(p, span, m.queries[0]);
#pragma unroll
    for (int block = 0; block < CHUNK_BLOCKS; block++) {
        if (begin + block < end) score_keys(m, queries, block, (begin + block) * 32, warp_id());
    }
    __syncthreads();
    Sums<ONE_STEPS> sums;
    sums.clear();
    const int first_step = min((int)warp_id() * ONE_STEPS, STEPS - ONE_STEPS); // two warps may have the same: no harm
    for (int block = 0; block < end - begin; block++) {
        float scores[4][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 two = *(const float2*)&m.scores[g + 8 * (i % 2)][32 * block + 8 * (i / 2) + 2 * t];
            scores[i / 2][2 * (i % 2)] = two.x, scores[i / 2][2 * (i % 2) + 1] = two.y;
        }
        add_values<ONE_STEPS>(sums, scores, m.blocks[block], first_step);
    }
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        const float2 weights = chunk_weights(sums, pair);
        if (queries.position[pair] < 0) continue;
        const u64 at = ((u64)queries.row[pair] * p.kv_heads * p.group + queries.head[pair]) * p.chunks + chunk;
        if (t == 0 && warp_id() == 0) p.partial_weights[at] = weights;
        float* out = p.partial_values + at * HEAD_DIM + 16 * first_step + 2 * t;
#pragma unroll
        for (int n = 0; n < 2 * ONE_STEPS; n++) *(float2*)(out + 8 * n) = {sums.values[n][2 * pair], sums.values[n][2 * pair + 1]};
    }
}

// As `attend_fold`, and makes of a range of the row what products read: a block a range, a thread a column.
constexpr int NEAR_CHUNKS = 64;
constexpr int NEAR_COLUMNS = HEAD_DIM < 32 ? 32 * HEAD_DIM : 1024; // of a range, at most
constexpr int NEAR_HEADS = NEAR_COLUMNS / HEAD_DIM + 2;
constexpr int NEAR_AHEAD = 32;

extern "C" __device__ const int attend_near_columns = NEAR_COLUMNS;

extern "C" __global__ void __launch_bounds__(NEAR_COLUMNS) attend_fold_near(const __grid_constant__ Attend p, Prepared to) {
    __shared__ float own[NEAR_HEADS][NEAR_CHUNKS], other[NEAR_HEADS][NEAR_CHUNKS], weights[NEAR_HEADS][NEAR_CHUNKS];
    __shared__ float last[NEAR_HEADS], largests[LANES];
    begin_kernel();
    const int heads = p.kv_heads * p.group, width = heads * HEAD_DIM, row = blockIdx.x;
    const Columns columns(to.units, blockIdx.y);
    const int column = columns.begin + threadIdx.x, first_head = columns.begin / HEAD_DIM;
    const int position = p.positions[row], first = p.window ? max(0, position + 1 - p.window) : 0;
    const int begin = first / 32 / CHUNK_BLOCKS, count = min(NEAR_CHUNKS, position / 32 / CHUNK_BLOCKS + 1 - begin);
    const bool there = column < min(columns.end, width);
    const int head = there ? column / HEAD_DIM : first_head;
    const float* partials = p.partial_values + (((u64)row * heads + head) * p.chunks + begin) * HEAD_DIM + column % HEAD_DIM;
    float ahead[NEAR_AHEAD];
#pragma unroll
    for (int i = 0; i < NEAR_AHEAD; i++) ahead[i] = there && i < count ? partials[i * HEAD_DIM] : 0.0f;
    for (int h = warp_id(); first_head + h < heads && (first_head + h) * HEAD_DIM < columns.end; h += blockDim.x / LANES) {
        const float2* of = p.partial_weights + ((u64)row * heads + first_head + h) * p.chunks + begin;
        running_largest(of, count, weights[h]);
        __syncwarp();
        float2 mine[NEAR_CHUNKS / LANES];
#pragma unroll
        for (int k = 0; k < NEAR_CHUNKS / LANES; k++) {
            const int i = lane_id() + k * LANES;
            if (i >= count) continue;
            const float2 partial = of[i];
            const float at = reference(weights[h][i]);
            own[h][i] = exp2f((i ? weights[h][i - 1] : -INFINITY) - at), other[h][i] = exp2f(partial.x - at);
            mine[k].x = __fmul_rn(partial.y, other[h][i]);
        }
        if (lane_id() == 0) last[h] = weights[h][count - 1];
        __syncwarp();
#pragma unroll
        for (int k = 0; k < NEAR_CHUNKS / LANES; k++) {
            if (lane_id() + k * LANES < count) weights[h][lane_id() + k * LANES] = mine[k].x;
        }
    }
    __syncthreads();
    const int h = head - first_head;
    float weight = 0, value = 0;
    const auto fold = [&](int i, float partial) {
        weight = fmaf(weight, own[h][i], weights[h][i]);
        value = fmaf(value, own[h][i], __fmul_rn(partial, other[h][i]));
    };
#pragma unroll
    for (int i = 0; i < NEAR_AHEAD; i++) {
        if (i < count) fold(i, ahead[i]);
    }
#pragma unroll 8
    for (int i = NEAR_AHEAD; i < count; i++) fold(i, there ? partials[i * HEAD_DIM] : 0.0f);
    value = there ? __fmul_rn(value, last_factor(p.sinks, head, last[h], weight)) : 0.0f;
    if (there) p.out[(u64)row * width + column] = value;
    const float largest = warp_max(fabsf(value));
    if (lane_id() == 0) largests[warp_id()] = largest;
    __syncthreads();
    const int exponent = exponent_of(warp_max(lane_id() < blockDim.x / LANES ? largests[lane_id()] : 0.0f));
    if (column < columns.end) to.values[(u64)row * to.stride + column] = f32_to_f16(value * power_of_two(exponent));
    if (threadIdx.x == 0) to.factors[row * RANGES + blockIdx.y] = power_of_two(-exponent);
}
