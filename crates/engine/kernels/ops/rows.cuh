// From f32 activations to what products read.
//
// Products read f16. Each range of a row is scaled by a power of two that brings its largest value to 2^14 .. 2^15, so that
// values down to a 2^29th of it keep eleven bits; the product multiplies its sums with the inverse, which is exact.
//
// Whoever prepares a row (`prepare`, `activate`, a product of few rows for itself) goes through the same steps in the same
// order, so that a row's bits do not depend on it: a warp sums the squares of a range, ranges are added in order.

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

// The columns of a range; past the width, zeros.
struct Columns {
    int begin, end;

    __device__ Columns(int units, int range) : begin(64 * range_begin(units, range)), end(64 * range_begin(units, range + 1)) {}
};

// Four columns of a row, zeros past its width.
__device__ inline float4 four_columns(const float* x, int c, int width) {
    if (width % 4 == 0) return c < width ? *(const float4*)(x + c) : float4{0, 0, 0, 0};
    const auto at = [&](int c) { return c < width ? x[c] : 0.0f; };
    return {at(c), at(c + 1), at(c + 2), at(c + 3)};
}

__device__ inline float largest_of(float4 v) {
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

__device__ inline void add_squares(float& squares, float4 v) {
    squares = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, squares))));
}

__device__ inline void add_scaled(float4& sum, float share, float4 v) {
    sum = {fmaf(share, v.x, sum.x), fmaf(share, v.y, sum.y), fmaf(share, v.z, sum.z), fmaf(share, v.w, sum.w)};
}

// The squares of a range, by one warp.
__device__ inline float range_squares(const float* x, Columns columns, int width) {
    float squares = 0;
#pragma unroll 4
    for (int c = columns.begin + 4 * lane_id(); c < columns.end; c += 4 * LANES) {
        add_squares(squares, four_columns(x, c, width));
    }
    return warp_sum(squares);
}

// 1 / rms, from the squares of the ranges.
__device__ inline float norm_scale(const float* squares, int width, float eps) {
    float total = 0;
    for (int range = 0; range < RANGES; range++) total += squares[range];
    return 1.0f / sqrtf(total / width + eps);
}

__device__ inline float4 normed(float4 x, float scale, float4 weight) {
    return {x.x * scale * weight.x, x.y * scale * weight.y, x.z * scale * weight.z, x.w * scale * weight.w};
}

constexpr int RANGE_AHEAD = 4; // times four columns of a lane

// A range of a row in the registers of a warp: 512 columns at most.
struct RangeOfRow {
    float4 of[RANGE_AHEAD];

    // Calls `use` with each four columns of the range that this lane has.
    template <class Use> __device__ void each(Columns columns, Use use) {
#pragma unroll
        for (int i = 0; i < RANGE_AHEAD; i++) {
            const int c = columns.begin + 4 * (lane_id() + i * LANES);
            if (c < columns.end) use(c, of[i], i);
        }
    }
    __device__ void load(Columns columns, const float* x, int width) {
        each(columns, [&](int c, float4& v, int) { v = four_columns(x, c, width); });
    }
};

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float activated(bool clamped, float gate, float up) {
    if (!clamped) return gate * sigmoid(gate) * up;
    gate = fminf(gate, 7.0f), up = fminf(fmaxf(up, -7.0f), 7.0f);
    return gate * sigmoid(1.702f * gate) * (up + 1.0f);
}
