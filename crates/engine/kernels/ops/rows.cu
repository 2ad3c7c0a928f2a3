// Row by row: from f32 activations to what products read, and back. A block takes one range of one row.

constexpr int ROW_THREADS = 256;
static_assert(ROW_THREADS == RANGES * LANES, "a warp a range");

__device__ inline float block_max(float value, float* scratch) {
    value = warp_max(value);
    if (lane_id() == 0) scratch[warp_id()] = value;
    __syncthreads();
    return warp_max(lane_id() < ROW_THREADS / LANES ? scratch[lane_id()] : 0.0f);
}

// Writes `value(column)` of the range, four at a time; `largest` is the thread's own largest magnitude.
template <class Value>
__device__ inline void write_prepared(const Prepared& to, Columns columns, float largest, float* scratch, Value value) {
    const int exponent = exponent_of(block_max(largest, scratch));
    const float factor = power_of_two(exponent);
    u16* values = to.values + (u64)blockIdx.x * to.stride;
    for (int c = columns.begin + 4 * threadIdx.x; c < columns.end; c += 4 * ROW_THREADS) {
        const float4 v = value(c);
        *(uint2*)(values + c) = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
    }
    if (threadIdx.x == 0) to.factors[blockIdx.x * RANGES + blockIdx.y] = power_of_two(-exponent);
}

// Rows of a table of f16, eight columns a thread: `width` is whole eights.
extern "C" __global__ void embed(const u32* tokens, const u16* table, int width, float* x) {
    begin_kernel();
    const int row = blockIdx.x, c = 8 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (c >= width) return;
    const uint4 eight = *(const uint4*)(table + (u64)tokens[row] * width + c);
    const u32 pairs[4] = {eight.x, eight.y, eight.z, eight.w};
    float2* out = (float2*)(x + (u64)row * width + c);
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = {f16_to_f32(pairs[i]), f16_to_f32(pairs[i] >> 16)};
}

// x or, with weights, x / rms(x) * weight. Row i is row `list[i]` of x where there is a list.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    prepare(const float* x, int x_stride, const int* list, const float* weight, float eps, int width, Prepared to) {
    __shared__ float squares[RANGES], largests[LANES];
    const Columns columns(to.units, blockIdx.y);
    let_the_next_begin();
    const int line = columns.begin + 32 * (int)threadIdx.x;
    if (weight && line < min(columns.end, width)) ask_for(weight + line);
    wait_for_the_one_before();
    const float* from = x + (u64)(list ? list[blockIdx.x] : blockIdx.x) * x_stride;
    float scale = 1;
    if (weight) {
        const float own = range_squares(from, Columns(to.units, warp_id()), width);
        if (lane_id() == 0) squares[warp_id()] = own;
        __syncthreads();
        scale = norm_scale(squares, width, eps);
    }
    const auto value = [&](int c) {
        const float4 v = four_columns(from, c, width);
        return weight ? normed(v, scale, four_columns(weight, c, width)) : v;
    };
    float largest = 0;
    for (int c = columns.begin + 4 * threadIdx.x; c < columns.end; c += 4 * ROW_THREADS) {
        largest = fmaxf(largest, largest_of(value(c)));
    }
    write_prepared(to, columns, largest, largests, value);
}

// gate (rows, width) becomes the hidden values, which products then read.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    activate(float* gate, const float* up, int clamped, int width, Prepared to) {
    __shared__ float largests[LANES];
    begin_kernel();
    const Columns columns(to.units, blockIdx.y);
    float* g = gate + (u64)blockIdx.x * width;
    const float* u = up + (u64)blockIdx.x * width;
    float largest = 0;
#pragma unroll 4
    for (int c = columns.begin + threadIdx.x; c < min(columns.end, width); c += ROW_THREADS) {
        const float hidden = activated(clamped, g[c], u[c]);
        g[c] = hidden;
        largest = fmaxf(largest, fabsf(hidden));
    }
    // Ends with a barrier before the values are read by other threads.
    write_prepared(to, columns, largest, largests, [&](int c) { return four_columns(g, c, width); });
}

// x[row] += sum of share * down over the row's experts, in their order.
extern "C" __global__ void mix(float* x, int width, const float* down, const float* shares, int used) {
    begin_kernel();
    const int row = blockIdx.x, c = blockIdx.y * blockDim.x + threadIdx.x;
    if (c >= width) return;
    float sum = x[(u64)row * width + c];
    for (int i = 0; i < used; i++) sum = fmaf(shares[row * used + i], down[(u64)(row * used + i) * width + c], sum);
    x[(u64)row * width + c] = sum;
}

// The same of rows that are whole fours, and what products read of the new rows, normalised. A block has a range of a row, a thread
// four of its columns, and the blocks of a row are a cluster. It is small: there is room for the next kernel beside it.
constexpr int MIXED_THREADS = 128;

extern "C" __global__ void __launch_bounds__(MIXED_THREADS)
    mix_normed(float* x, int width, const float* down, const float* shares, int used, const float* weight, float eps, Prepared to) {
    __shared__ float4 sums[MIXED_THREADS];
    __shared__ float squares[RANGES], largests[MIXED_THREADS / LANES];
    let_the_next_begin();
    begin_in_cluster();
    const int row = blockIdx.x, range = blockIdx.z, lane = lane_id();
    const Columns columns(to.units, range);
    const int c = columns.begin + 4 * threadIdx.x;
    const bool there = c < min(columns.end, width);
    const auto four = [&](const float* of_row) { return there ? *(const float4*)(of_row + c) : float4{0, 0, 0, 0}; };
    const float4 norm = four(weight);
    wait_for_the_one_before();
    float4 sum = four(x + (u64)row * width);
    shares += row * used, down += (u64)row * used * width;
#pragma unroll 4
    for (int i = 0; i < used; i++) add_scaled(sum, shares[i], four(down + (u64)i * width));
    sums[threadIdx.x] = sum;
    __syncthreads();
    wait_for_cluster(); // every block has begun
    if (warp_id() == 0) {
        float own = 0;
        for (int i = lane; columns.begin + 4 * i < columns.end; i += LANES) add_squares(own, sums[i]);
        own = warp_sum(own);
        if (lane < RANGES) write_block(shared_of_block(squares + range, lane), own);
    }
    arrive_in_cluster();
    wait_for_cluster();
    if (there) *(float4*)(x + (u64)row * width + c) = sum;
    const float4 v = normed(sum, norm_scale(squares, width, eps), norm);
    const float largest = warp_max(largest_of(v));
    if (lane == 0) largests[warp_id()] = largest;
    __syncthreads();
    const int exponent = exponent_of(warp_max(largests[lane % (MIXED_THREADS / LANES)]));
    const float factor = power_of_two(exponent);
    if (c < columns.end) {
        *(uint2*)(to.values + (u64)row * to.stride + c) = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
    }
    if (threadIdx.x == 0) to.factors[row * RANGES + range] = power_of_two(-exponent);
}

// Writes where nothing is: the error that a broken kernel would make, to see what follows from it.
extern "C" __global__ void write_outside(float* nowhere) {
    begin_kernel();
    nowhere[threadIdx.x] = 1.0f;
}
