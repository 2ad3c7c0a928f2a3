// Attention of one row of a sequence, together with what comes before and after it.

// One row of a sequence, one chunk, four warps: each has a quarter of the keys' scores and of the heads' values. Old keys and
// values are asked for before the products of this token are there; its own are turned here, put beside the old ones, and
// cached by the chunk that they belong to. At most 16 query heads share a KV head.
constexpr int ONE_WARPS = FOLD_THREADS / LANES;
constexpr int ONE_STEPS = (STEPS + ONE_WARPS - 1) / ONE_WARPS;
constexpr int SCORE_STRIDE = 32 * CHUNK_BLOCKS + 8; // f32: lanes then write to different banks

struct OneMemory {
    union {
        KeyBlock blocks[CHUNK_BLOCKS];
        Partial partial; // in the end
    };
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

// The heads of the row that a warp turns: queries, and the row's own key and value where they belong to the chunk.
struct OneHeads {
    static constexpr int MOST = (16 + 2 + ONE_WARPS - 1) / ONE_WARPS;
    Head of[MOST];
    int all;

    __device__ static int head(const Place& h, int group, int i) {
        return i < group ? blockIdx.y * group + i : h.heads + (i - group) * h.kv_heads + blockIdx.y;
    }
    // All are asked for before one is waited for.
    __device__ OneHeads(const Attend& p, const Place& h, int row, bool has_newest) : all(p.group + (has_newest ? 2 : 0)) {
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            const int i = warp_id() + k * ONE_WARPS;
            if (i < all) of[k].load(h, row, head(h, p.group, i));
        }
    }
    __device__ void turn(OneMemory& m, const Attend& p, const Place& h, const Angles& angles, int place) const {
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            const int i = warp_id() + k * ONE_WARPS;
            if (i >= all) break;
            u16* to = i < p.group ? nullptr : cache_place(h, place, head(h, p.group, i));
            of[k].turn(h, angles, [&](int first, int second, float x, float y) {
                if (to) {
                    u16* newest = m.newest[i - p.group];
                    to[first] = newest[first] = cached(x), to[second] = newest[second] = cached(y);
                } else {
                    m.queries[i][first] = x, m.queries[i][second] = y;
                }
            });
        }
    }
};

__device__ inline void put_newest(OneMemory& m, int block, int token) {
    for (int i = threadIdx.x; i < HEAD_DIM; i += blockDim.x) {
        m.blocks[block].keys[token][i] = m.newest[0][i], m.blocks[block].values[token][i] = m.newest[1][i];
    }
    __syncthreads();
}

// Blocks of a row and KV head have chunks from the first on that the row sees. If they are `together`, they are one cluster.
__device__ inline void attend_row(const Attend& p, const Place& h, const Prepared& to, int together) {
    extern __shared__ uint4 attend_memory[];
    OneMemory& m = *(OneMemory*)attend_memory;
    let_the_next_begin();
    const int row = blockIdx.x; // of its span the only one
    const int4 span = p.spans[row];
    const Angles angles(h, row);
    const int place = h.places[row], position = span.z, g = lane_id() / 4, t = lane_id() % 4;
    const int first = p.window ? max(0, position + 1 - p.window) : 0;
    const int first_chunk = first / 32 / CHUNK_BLOCKS, chunk = first_chunk + blockIdx.z;
    const int begin = max(first / 32, chunk * CHUNK_BLOCKS), end = min(position / 32 + 1, (chunk + 1) * CHUNK_BLOCKS);
    if (begin >= end) return;
    const int own = begin + lane_id() < end ? p.blocks[span.w + begin + lane_id()] : 0;
#pragma unroll 1
    for (int block = begin; block < end; block++) copy_block(m.blocks[block - begin], p, __shfl_sync(ALL_LANES, own, block - begin));
    end_of_copies();
    const bool has_newest = position / 32 < end;
    wait_for_the_one_before();
    OneHeads(p, h, row, has_newest).turn(m, p, h, angles, place);
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
    if (together) __syncthreads(); // the blocks' place is the sums' now
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        const float2 weights = chunk_weights(sums, pair);
        if (queries.position[pair] < 0) continue;
        const u64 at = ((u64)queries.row[pair] * p.kv_heads * p.group + queries.head[pair]) * p.chunks + chunk;
        const int of_group = g + 8 * pair;
        if (t == 0 && warp_id() == 0) *(together ? &m.partial.weights[of_group] : p.partial_weights + at) = weights;
        float* out = (together ? m.partial.values[of_group] : p.partial_values + at * HEAD_DIM) + 16 * first_step + 2 * t;
#pragma unroll
        for (int n = 0; n < 2 * ONE_STEPS; n++) *(float2*)(out + 8 * n) = {sums.values[n][2 * pair], sums.values[n][2 * pair + 1]};
    }
    if (!together) return;
    if (threadIdx.x < RANGES) m.partial.largest[threadIdx.x] = 0;
    arrive_in_cluster();
    wait_for_cluster();
    if (blockIdx.z == 0) fold_cluster(p, to, m.partial, row, position / 32 / CHUNK_BLOCKS - first_chunk + 1);
    arrive_in_cluster();
    if (blockIdx.z > 0) wait_for_cluster(); // nobody's memory goes while it is read
}

// Twice, because how memory is divided is a property of a kernel: beside products that are held, and otherwise.
#define ATTEND_ONE(name) \
    extern "C" __global__ void __launch_bounds__(FOLD_THREADS) \
        name(const __grid_constant__ Attend p, const __grid_constant__ Place h, const __grid_constant__ Prepared to, int together) { \
        attend_row(p, h, to, together); \
    }

ATTEND_ONE(attend_one)
ATTEND_ONE(attend_one_beside_held)
