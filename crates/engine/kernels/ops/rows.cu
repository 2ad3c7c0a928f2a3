// Row by row: from f32 activations to what products read, and back.
//
// Products read f16. Each row is scaled by a power of two that brings its largest value to 2^14 .. 2^15, so that values
// down to a 2^29th of it keep eleven bits; the product multiplies its sums with the inverse, which is exact.

constexpr int ROW_THREADS = 1024;

// The same for every thread of the block; `scratch` has a value a warp.
__device__ inline float block_sum(float value, float* scratch) {
    value = warp_sum(value);
    if (lane_id() == 0) scratch[warp_id()] = value;
    __syncthreads();
    value = warp_sum(scratch[lane_id()]);
    __syncthreads();
    return value;
}

__device__ inline float block_max(float value, float* scratch) {
    value = warp_max(value);
    if (lane_id() == 0) scratch[warp_id()] = value;
    __syncthreads();
    value = warp_max(scratch[lane_id()]);
    __syncthreads();
    return value;
}

// The power of two for a row with this largest magnitude.
__device__ inline int exponent_of(float largest) {
    const int exponent = (int)(__float_as_uint(largest) >> 23 & 255) - 127;
    return largest > 0 && exponent < 128 ? max(-100, min(100, 14 - exponent)) : 0;
}

__device__ inline float power_of_two(int exponent) { return __uint_as_float((u32)(exponent + 127) << 23); }

// What a row becomes for products.
struct Prepared {
    u16* values; // (rows, stride), zero past the width
    float* factors; // (rows)
    int stride, padded;
};

// Writes `value(column)` of one row; `largest` is the thread's own largest magnitude.
template <class Value> __device__ inline void write_prepared(const Prepared& to, int row, int width, float largest, float* scratch, Value value) {
    const int exponent = exponent_of(block_max(largest, scratch));
    const float factor = power_of_two(exponent);
    for (int c = threadIdx.x; c < to.padded; c += ROW_THREADS) {
        to.values[(u64)row * to.stride + c] = f32_to_f16(c < width ? value(c) * factor : 0.0f);
    }
    if (threadIdx.x == 0) to.factors[row] = power_of_two(-exponent);
}

// x or, with weights, x / rms(x) * weight. Row i is row `list[i]` of x where there is a list.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) prepare(const float* x, int x_stride, const int* list, const float* weight, float eps, int width, Prepared to) {
    __shared__ float scratch[LANES];
    begin_kernel();
    const float* from = x + (u64)(list ? list[blockIdx.x] : blockIdx.x) * x_stride;
    float scale = 1;
    if (weight) {
        float squares = 0;
        for (int c = threadIdx.x; c < width; c += ROW_THREADS) squares += from[c] * from[c];
        scale = 1.0f / sqrtf(block_sum(squares, scratch) / width + eps);
    }
    const auto value = [&](int c) { return weight ? from[c] * scale * weight[c] : from[c]; };
    float largest = 0;
    for (int c = threadIdx.x; c < width; c += ROW_THREADS) largest = fmaxf(largest, fabsf(value(c)));
    write_prepared(to, blockIdx.x, width, largest, scratch, value);
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float activated(bool clamped, float gate, float up) {
    if (!clamped) return gate * sigmoid(gate) * up;
    gate = fminf(gate, 7.0f), up = fminf(fmaxf(up, -7.0f), 7.0f);
    return gate * sigmoid(1.702f * gate) * (up + 1.0f);
}

// gate (rows, width) becomes the hidden values, which products then read.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) activate(float* gate, const float* up, int clamped, int width, Prepared to) {
    __shared__ float scratch[LANES];
    begin_kernel();
    float* g = gate + (u64)blockIdx.x * width;
    const float* u = up + (u64)blockIdx.x * width;
    float largest = 0;
    for (int c = threadIdx.x; c < width; c += ROW_THREADS) {
        g[c] = activated(clamped, g[c], u[c]);
        largest = fmaxf(largest, fabsf(g[c]));
    }
    write_prepared(to, blockIdx.x, width, largest, scratch, [&](int c) { return g[c]; });
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
