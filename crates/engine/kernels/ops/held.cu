// Products of up to eight rows with a matrix that the multiprocessors can hold among them, all of it at once.
//
// Then a block asks for all its weights before it waits for the kernel before, and what is left to do afterwards is short: to
// prepare the rows, to multiply from shared memory, to add the ranges up. A warp has a range of one tile. The bits are those of
// `split`.

constexpr int HELD_ROWS = 8;
constexpr int HELD_TILES = 3; // of a block, at most
constexpr int HELD_THREADS = HELD_TILES * RANGES * LANES;
constexpr int HELD_ROWS_EACH = (HELD_ROWS + HELD_TILES - 1) / HELD_TILES; // that a warp prepares a range of

struct Held {
    Weights weights;
    const float* x;       // (rows, width), to be normalised
    const float* norm;    // (width)
    const u16* ready;     // instead: (rows, units * 64) x as products read it
    const float* factors; // (rows, RANGES) of `ready`
    Prepared to;          // where normalised rows are left for others, or nowhere
    float eps;
    int width, units, rows, out_stride, add;
    int tiles_each; // of a block, at most: the other warps only prepare
};

// The shared memory of a block.
struct HeldMemory {
    u16* inputs;    // (rows, stride)
    float* sums;    // (tiles_each, ranges, rows, SUMS_STRIDE)
    uint4* weights; // of each warp that multiplies: codes, then scales
    int stride;     // f16: lanes then read from different banks

    __device__ HeldMemory(const Held& p, uint4* memory) {
        stride = p.units * UNIT_COLS + 8;
        inputs = (u16*)memory;
        sums = (float*)(inputs + p.rows * stride);
        weights = (uint4*)(sums + p.tiles_each * RANGES * p.rows * SUMS_STRIDE);
    }
};

// What a warp multiplies: a range of a tile, in its part of the shared memory.
template <class Format> struct HeldRange {
    static constexpr int CODES = Format::PIECES * LANES; // of a unit, pieces of 16 bytes
    uint4* own;
    int tile, begin, count;
    bool multiplies;

    __device__ HeldRange(const Held& p, const HeldMemory& m) {
        const int range = warp_id() % RANGES, units_most = div_up(p.units, RANGES);
        own = m.weights + warp_id() * units_most * (CODES + scale_bytes<Format>(p.weights) / 16);
        const int slot = warp_id() / RANGES;
        tile = blockIdx.x + slot * gridDim.x;
        begin = range_begin(p.units, range), count = range_begin(p.units, range + 1) - begin;
        multiplies = slot < p.tiles_each;
        if (!multiplies || tile >= div_up(p.weights.rows, TILE_ROWS)) count = 0;
    }
    __device__ void ask(const Held& p) const {
        const u64 first = (u64)tile * p.units + begin;
        const uint4* codes = p.weights.codes + first * CODES + lane_id();
#pragma unroll 4
        for (int i = 0; i < count * Format::PIECES; i++) copy_16(own + i * LANES + lane_id(), codes + i * LANES, true);
        if constexpr (Format::SCALE_BYTES > 0) {
            const int each = scale_bytes<Format>(p.weights) / 16;
            const uint4* scales = (const uint4*)p.weights.scales + first * each;
            for (int i = lane_id(); i < count * each; i += LANES) copy_16(own + count * CODES + i, scales + i, true);
        }
    }
    __device__ void multiply(const Held& p, const HeldMemory& m, float (&sums)[1][4]) const {
        const u8* scales = (const u8*)(own + count * CODES) + scale_at<Format>(p.weights);
        const int stride = scale_bytes<Format>(p.weights);
        const StagedInputs<1> inputs(m.inputs + min(lane_id() / 4, p.rows - 1) * m.stride + 16 * (lane_id() % 4), 0);
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            Raw<Format::PIECES> raw;
#pragma unroll
            for (int k = 0; k < Format::PIECES; k++) raw.pieces[k] = own[i * CODES + k * LANES + lane_id()];
            if constexpr (Format::SCALE_BYTES > 0) raw.scales = read_scales<Format>(scales + i * stride);
            multiply_unit<Format, 1>(raw, inputs, begin + i, sums);
        }
    }
};

// The rows, normalised: a warp has a range of every third row, in registers from the first look at it to the last.
__device__ inline void stage_normed_rows(const Held& p, const HeldMemory& m, RangeOfRow& norm, float (*factors)[RANGES], float (*squares)[RANGES]) {
    const int range = warp_id() % RANGES, first = warp_id() / RANGES;
    const Columns columns(p.units, range);
    RangeOfRow x[HELD_ROWS_EACH];
#pragma unroll
    for (int i = 0; i < HELD_ROWS_EACH; i++) {
        const int row = first + i * HELD_TILES;
        if (row < p.rows) x[i].load(columns, p.x + (u64)row * p.width, p.width);
    }
#pragma unroll
    for (int i = 0; i < HELD_ROWS_EACH; i++) {
        const int row = first + i * HELD_TILES;
        if (row >= p.rows) break;
        float own = 0;
        x[i].each(columns, [&](int, float4& v, int) { add_squares(own, v); });
        own = warp_sum(own);
        if (lane_id() == 0) squares[row][range] = own;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < HELD_ROWS_EACH; i++) {
        const int row = first + i * HELD_TILES;
        if (row >= p.rows) break;
        const float scale = norm_scale(squares[row], p.width, p.eps);
        float largest = 0;
        x[i].each(columns, [&](int, float4& v, int k) { v = normed(v, scale, norm.of[k]), largest = fmaxf(largest, largest_of(v)); });
        const int exponent = exponent_of(warp_max(largest));
        const float factor = power_of_two(exponent);
        u16 *to = m.inputs + row * m.stride, *others = p.to.values + (u64)row * p.to.stride;
        const bool leaves = p.to.values && blockIdx.x == 0;
        x[i].each(columns, [&](int c, float4& v, int) {
            const uint2 both = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
            *(uint2*)(to + c) = both;
            if (leaves) *(uint2*)(others + c) = both;
        });
        if (lane_id() == 0) factors[row][range] = power_of_two(-exponent);
        if (lane_id() == 0 && leaves) p.to.factors[row * RANGES + range] = power_of_two(-exponent);
    }
}

__device__ inline void stage_ready_rows(const Held& p, const HeldMemory& m, float (*factors)[RANGES]) {
    const int pieces = p.units * UNIT_COLS / 8;
    for (int i = threadIdx.x; i < p.rows * pieces; i += HELD_THREADS) {
        const int row = i / pieces, piece = i - row * pieces;
        copy_16(m.inputs + row * m.stride + 8 * piece, p.ready + ((u64)row * pieces + piece) * 8, true);
    }
    if (threadIdx.x < p.rows * RANGES) factors[threadIdx.x / RANGES][threadIdx.x % RANGES] = p.factors[threadIdx.x];
}

// Adds up and writes the block's tiles: a thread has one value.
__device__ inline void finish_held(const Held& p, const HeldMemory& m, const float (*factors)[RANGES]) {
    const int of_tile = TILE_ROWS * p.rows;
    for (int i = threadIdx.x; i < p.tiles_each * of_tile; i += HELD_THREADS) {
        const int slot = i / of_tile, n = i % of_tile / TILE_ROWS, row = (blockIdx.x + slot * gridDim.x) * TILE_ROWS + i % TILE_ROWS;
        if (row >= p.weights.rows) continue;
        const float* sums = m.sums + (slot * RANGES * p.rows + n) * SUMS_STRIDE + i % TILE_ROWS;
        float* out = p.weights.out + (u64)n * p.out_stride + row;
        const float before = p.add ? *out : 0.0f;
        float total = 0;
#pragma unroll
        for (int range = 0; range < RANGES; range++) total = fmaf(sums[range * p.rows * SUMS_STRIDE], factors[n][range], total);
        const float value = with_bias(p.weights, 0, row, total);
        *out = p.add ? before + value : value;
    }
}

template <class Format, bool NORMED_ROWS> __device__ void held(const Held& p) {
    extern __shared__ uint4 held_memory[];
    __shared__ float factors[HELD_ROWS][RANGES], squares[HELD_ROWS][RANGES];
    const HeldMemory m(p, held_memory);
    let_the_next_begin();
    const HeldRange<Format> own(p, m);
    own.ask(p);
    end_of_copies();
    RangeOfRow norm;
    if (NORMED_ROWS) norm.load(Columns(p.units, warp_id() % RANGES), p.norm, p.width);
    if (p.weights.bias && threadIdx.x % LANES == 0 && own.count > 0) ask_for(p.weights.bias + own.tile * TILE_ROWS);
    wait_for_the_one_before();
    if constexpr (NORMED_ROWS) stage_normed_rows(p, m, norm, factors, squares);
    if constexpr (!NORMED_ROWS) stage_ready_rows(p, m, factors);
    end_of_copies();
    wait_for_copies<0>();
    __syncthreads();
    float sums[1][4] = {};
    own.multiply(p, m, sums);
    const int g = lane_id() / 4, t = lane_id() % 4;
    float* to = m.sums + warp_id() * p.rows * SUMS_STRIDE + g;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int n = 2 * t + k % 2;
        if (own.multiplies && n < p.rows) to[n * SUMS_STRIDE + 8 * (k / 2)] = sums[0][k];
    }
    __syncthreads();
    finish_held(p, m, factors);
}

extern "C" __device__ const int held_tiles = HELD_TILES;

#define HELD(name, Format) \
    extern "C" __global__ void __launch_bounds__(HELD_THREADS, 1) held_normed_##name(const __grid_constant__ Held p) { held<Format, true>(p); } \
    extern "C" __global__ void __launch_bounds__(HELD_THREADS, 1) held_ready_##name(const __grid_constant__ Held p) { held<Format, false>(p); }

HELD(levels4, Levels4)
HELD(fp4, Fp4)
HELD(levels8, Levels8)
HELD(floats, Floats)
