// Row by row: from f32 activations to what products read, and back.
//
// Products read f16. Each range of a row is scaled by a power of two that brings its largest value to 2^14 .. 2^15, so that
// values down to a 2^29th of it keep eleven bits; the product multiplies its sums with the inverse, which is exact. A
// block takes one range of one row.

constexpr int ROW_THREADS = 256;

// The same for every thread of the block; `scratch` has a value a warp.
__device__ inline float block_sum(float value, float* scratch) {
    value = warp_sum(value);
    if (lane_id() == 0) scratch[warp_id()] = value;
    __syncthreads();
    return warp_sum(lane_id() < ROW_THREADS / LANES ? scratch[lane_id()] : 0.0f);
}

__device__ inline float block_max(float value, float* scratch) {
    value = warp_max(value);
    if (lane_id() == 0) scratch[warp_id()] = value;
    __syncthreads();
    return warp_max(lane_id() < ROW_THREADS / LANES ? scratch[lane_id()] : 0.0f);
}

// The power of two for a range with this largest magnitude.
__device__ inline int exponent_of(float largest) {
    const int exponent = (int)(__float_as_uint(largest) >> 23 & 255) - 127;
    return largest > 0 && exponent < 128 ? max(-100, min(100, 14 - exponent)) : 0;
}

__device__ inline float power_of_two(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

// What rows become for products.
struct Prepared {
    u16* values;    // (rows, stride), zero past the width
    float* factors; // (rows, RANGES)
    int stride, units;
};

// The columns of a block's range; past the width, zeros.
struct Columns {
    int begin, end;

    __device__ Columns(const Prepared& to) {
        begin = 64 * range_begin(to.units, blockIdx.y), end = 64 * range_begin(to.units, blockIdx.y + 1);
    }
};

// Writes `value(column)` of the range; `largest` is the thread's own largest magnitude.
template <class Value>
__device__ inline void write_prepared(const Prepared& to, Columns columns, int width, float largest, float* scratch, Value value) {
    const int exponent = exponent_of(block_max(largest, scratch));
    const float factor = power_of_two(exponent);
    u16* values = to.values + (u64)blockIdx.x * to.stride;
    for (int c = columns.begin + threadIdx.x; c < columns.end; c += ROW_THREADS) {
        values[c] = f32_to_f16(c < width ? value(c) * factor : 0.0f);
    }
    if (threadIdx.x == 0) to.factors[blockIdx.x * RANGES + blockIdx.y] = power_of_two(-exponent);
}

// x or, with weights, x / rms(x) * weight. Row i is row `list[i]` of x where there is a list.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    prepare(const float* x, int x_stride, const int* list, const float* weight, float eps, int width, Prepared to) {
    __shared__ float sums[LANES], largests[LANES];
    const Columns columns(to);
    let_the_next_begin();
    const int line = columns.begin + 32 * (int)threadIdx.x;
    if (weight && line < min(columns.end, width)) ask_for(weight + line);
    wait_for_the_one_before();
    const float* from = x + (u64)(list ? list[blockIdx.x] : blockIdx.x) * x_stride;
    float scale = 1;
    if (weight) {
        float squares = 0;
#pragma unroll 8
        for (int c = threadIdx.x; c < width; c += ROW_THREADS) squares = fmaf(from[c], from[c], squares);
        scale = 1.0f / sqrtf(block_sum(squares, sums) / width + eps);
    }
    const auto value = [&](int c) { return weight ? from[c] * scale * weight[c] : from[c]; };
    float largest = 0;
    for (int c = columns.begin + threadIdx.x; c < min(columns.end, width); c += ROW_THREADS) {
        largest = fmaxf(largest, fabsf(value(c)));
    }
    write_prepared(to, columns, width, largest, largests, value);
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float activated(bool clamped, float gate, float up) {
    if (!clamped) return gate * sigmoid(gate) * up;
    gate = fminf(gate, 7.0f), up = fminf(fmaxf(up, -7.0f), 7.0f);
    return gate * sigmoid(1.702f * gate) * (up + 1.0f);
}

// gate (rows, width) becomes the hidden values, which products then read.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    activate(float* gate, const float* up, int clamped, int width, Prepared to) {
    __shared__ float largests[LANES];
    begin_kernel();
    const Columns columns(to);
    float* g = gate + (u64)blockIdx.x * width;
    const float* u = up + (u64)blockIdx.x * width;
    float largest = 0;
#pragma unroll 4
    for (int c = columns.begin + threadIdx.x; c < min(columns.end, width); c += ROW_THREADS) {
        const float hidden = activated(clamped, g[c], u[c]);
        g[c] = hidden;
        largest = fmaxf(largest, fabsf(hidden));
    }
    write_prepared(to, columns, width, largest, largests, [&](int c) { return g[c]; });
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

// Writes where nothing is: the error that a broken kernel would make, to see what follows from it.
extern "C" __global__ void write_outside(float* nowhere) {
    begin_kernel();
    nowhere[threadIdx.x] = 1.0f;
}
