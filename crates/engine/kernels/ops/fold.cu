// Folding of chunks that are few, which also makes what products read.

// The sums of a chunk, for the block that folds.
struct Partial {
    float values[16][HEAD_DIM];
    float2 weights[16];
    u32 largest[RANGES]; // of what was folded, as the bits of floats that are not negative
};

// Where the blocks of all chunks are one cluster: the first one folds what the others left in their shared memory, and makes of
// it what products read. The heads' columns are whole ranges.

constexpr int CLUSTER_CHUNKS = 8; // at most
constexpr int FOLD_THREADS = 128; // of `attend_one`
constexpr int FOLD_TURNS = (16 * HEAD_DIM + 4 * FOLD_THREADS - 1) / (4 * FOLD_THREADS);

// Four columns of a head, of all chunks.
__device__ inline float4 fold_columns(const Attend& p, const Partial& partial, int column, int chunks) {
    const int head = column / HEAD_DIM;
    float2 weights[CLUSTER_CHUNKS];
    float4 values[CLUSTER_CHUNKS];
#pragma unroll
    for (int i = 0; i < CLUSTER_CHUNKS; i++) {
        if (i >= chunks) break;
        weights[i] = read_block_two(shared_of_block(&partial.weights[head], i));
        values[i] = read_block_four(shared_of_block(&partial.values[0][column], i));
    }
    float largest = -INFINITY, weight = 0;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < CLUSTER_CHUNKS; i++) {
        if (i >= chunks) break;
        const Fold fold(largest, weight, weights[i]);
        sum = {fold(sum.x, values[i].x), fold(sum.y, values[i].y), fold(sum.z, values[i].z), fold(sum.w, values[i].w)};
    }
    const float factor = last_factor(p.sinks, blockIdx.y * p.group + head, largest, weight);
    return {__fmul_rn(sum.x, factor), __fmul_rn(sum.y, factor), __fmul_rn(sum.z, factor), __fmul_rn(sum.w, factor)};
}

__device__ inline void fold_cluster(const Attend& p, const Prepared& to, Partial& partial, int row, int chunks) {
    const int columns = p.group * HEAD_DIM, first_column = blockIdx.y * columns, ranges = RANGES / p.kv_heads;
    const auto column = [](int turn) { return 4 * (turn * FOLD_THREADS + (int)threadIdx.x); };
    float4 values[FOLD_TURNS];
#pragma unroll
    for (int turn = 0; turn < FOLD_TURNS; turn++) {
        if (column(turn) >= columns) break; // half warps stay together, and have columns of one range
        values[turn] = fold_columns(p, partial, column(turn), chunks);
        *(float4*)(p.out + (u64)row * p.kv_heads * columns + first_column + column(turn)) = values[turn];
        float largest = fmaxf(largest_of(values[turn]), 0.0f);
        const u32 together = 0xFFFFu << (lane_id() & 16);
        for (int step = 8; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(together, largest, step));
        if (lane_id() % 16 == 0) atomicMax(&partial.largest[column(turn) * ranges / columns], __float_as_uint(largest));
    }
    __syncthreads();
    const auto exponent = [&](int range) { return exponent_of(__uint_as_float(partial.largest[range])); };
#pragma unroll
    for (int turn = 0; turn < FOLD_TURNS; turn++) {
        if (column(turn) >= columns) break;
        const float factor = power_of_two(exponent(column(turn) * ranges / columns));
        const float4 v = values[turn];
        u16* out = to.values + (u64)row * to.stride + first_column + column(turn);
        *(uint2*)out = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
    }
    if (threadIdx.x < ranges) to.factors[row * RANGES + blockIdx.y * ranges + threadIdx.x] = power_of_two(-exponent(threadIdx.x));
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
