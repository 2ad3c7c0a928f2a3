// Products of up to eight rows with a matrix that the multiprocessors can hold among them, all of it at once.
//
// Then a block asks for all its weights before it waits for the kernel before, and what is left to do afterwards is short: to
// prepare the rows, to multiply from shared memory, to add the ranges up. A warp has a range of one tile. The bits are those of
// `split`. Weights are only there early where a block has room beside those of the kernel before: hence few registers, and rows
// that are ready do not go through shared memory.

constexpr int HELD_ROWS = 8;
constexpr int HELD_TILES = 3; // of a block, at most
constexpr int HELD_GROUP = RANGES * LANES;
constexpr int HELD_THREADS = HELD_TILES * HELD_GROUP;
constexpr int HELD_BESIDE = 128; // threads that there are registers for, too
constexpr int HELD_TOGETHER = 2; // rows that a warp normalises at a time
constexpr int HELD_AHEAD = 4;    // units of a ready row that a warp asks for at a time

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
    u16* inputs;    // (rows, stride), of rows that are normalised
    float* sums;    // (tiles_each, ranges, rows, SUMS_STRIDE)
    uint4* weights; // (tiles_each, units): of each range codes, then scales
    int stride;     // f16: lanes then read from different banks

    __device__ HeldMemory(const Held& p, bool normed, uint4* memory) {
        stride = p.units * UNIT_COLS + 8;
        inputs = (u16*)memory;
        sums = (float*)(inputs + (normed ? p.rows * stride : 0));
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
        const int range = warp_id() % RANGES, slot = warp_id() / RANGES;
        begin = range_begin(p.units, range), count = range_begin(p.units, range + 1) - begin;
        own = m.weights + (slot * p.units + begin) * (CODES + scale_bytes<Format>(p.weights) / 16);
        tile = blockIdx.x + slot * gridDim.x;
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
    // sums += unit i * `input`
    __device__ void multiply(const Held& p, int i, const Input (&input)[1], float (&sums)[1][4]) const {
        Raw<Format::PIECES> raw;
#pragma unroll
        for (int k = 0; k < Format::PIECES; k++) raw.pieces[k] = own[i * CODES + k * LANES + lane_id()];
        const u8* scales = (const u8*)(own + count * CODES) + scale_at<Format>(p.weights);
        if constexpr (Format::SCALE_BYTES > 0) raw.scales = read_scales<Format>(scales + i * scale_bytes<Format>(p.weights));
        multiply_inputs<Format, 1>(raw, input, sums);
    }
};

// The rows, normalised: a warp has a range of some of them, in registers from the first look at it to the last.
__device__ inline void stage_normed_rows(const Held& p, const HeldMemory& m, float (*factors)[RANGES], float (*squares)[RANGES]) {
    const int range = warp_id() % RANGES;
    const Columns columns(p.units, range);
#pragma unroll 1
    for (int first = warp_id() / RANGES; first - warp_id() / RANGES < p.rows; first += HELD_TOGETHER * HELD_TILES) {
        RangeOfRow x[HELD_TOGETHER], norm;
#pragma unroll
        for (int i = 0; i < HELD_TOGETHER; i++) {
            const int row = first + i * HELD_TILES;
            if (row < p.rows) x[i].load(columns, p.x + (u64)row * p.width, p.width);
        }
        norm.load(columns, p.norm, p.width);
#pragma unroll
        for (int i = 0; i < HELD_TOGETHER; i++) {
            const int row = first + i * HELD_TILES;
            if (row >= p.rows) break;
            float own = 0;
            x[i].each(columns, [&](int, float4& v, int) { add_squares(own, v); });
            own = warp_sum(own);
            if (lane_id() == 0) squares[row][range] = own;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < HELD_TOGETHER; i++) {
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
}

// A lane's part of row g, as it was staged.
template <class Format> __device__ inline void multiply_staged(const Held& p, const HeldMemory& m, const HeldRange<Format>& own, float (&sums)[1][4]) {
    const StagedInputs<1> inputs(m.inputs + min(lane_id() / 4, p.rows - 1) * m.stride + 16 * (lane_id() % 4), 0);
#pragma unroll 1
    for (int i = 0; i < own.count; i++) {
        Input input[1];
        inputs.load(input, own.begin + i);
        own.multiply(p, i, input, sums);
    }
}

// The same of rows that are ready: nobody has to wait for what other warps bring.
template <class Format> __device__ inline void multiply_ready(const Held& p, const HeldRange<Format>& own, float (&sums)[1][4]) {
    const u16* row = p.ready + (u64)min(lane_id() / 4, p.rows - 1) * p.units * UNIT_COLS + own.begin * UNIT_COLS + 16 * (lane_id() % 4);
    const StagedInputs<1> inputs(row, 0);
    Input ahead[HELD_AHEAD][1];
#pragma unroll
    for (int i = 0; i < HELD_AHEAD; i++) {
        if (i < own.count) inputs.load(ahead[i], i);
    }
    wait_for_copies<0>();
    __syncwarp();
#pragma unroll 1
    for (int first = 0; first < own.count; first += HELD_AHEAD) {
#pragma unroll
        for (int i = 0; i < HELD_AHEAD; i++) {
            if (first + i >= own.count) break;
            own.multiply(p, first + i, ahead[i], sums);
            if (first + i + HELD_AHEAD < own.count) inputs.load(ahead[i], first + i + HELD_AHEAD);
        }
    }
}

// The value that a thread adds up and writes.
struct HeldValue {
    int slot, n, of_tile, row;
    bool there;
    float bias, before;

    __device__ HeldValue(const Held& p) {
        const int of_slot = TILE_ROWS * p.rows;
        slot = threadIdx.x / of_slot, n = threadIdx.x % of_slot / TILE_ROWS, of_tile = threadIdx.x % TILE_ROWS;
        row = (blockIdx.x + slot * gridDim.x) * TILE_ROWS + of_tile;
        there = slot < p.tiles_each && row < p.weights.rows;
        bias = there && p.weights.bias ? p.weights.bias[row] : 0.0f;
    }
    __device__ float* out(const Held& p) const { return p.weights.out + (u64)n * p.out_stride + row; }
    __device__ void ask(const Held& p) { before = there && p.add ? *out(p) : 0.0f; }
    __device__ void write(const Held& p, const HeldMemory& m, const float (*factors)[RANGES]) const {
        if (!there) return;
        const float* sums = m.sums + (slot * RANGES * p.rows + n) * SUMS_STRIDE + of_tile;
        float total = 0;
#pragma unroll
        for (int range = 0; range < RANGES; range++) total = fmaf(sums[range * p.rows * SUMS_STRIDE], factors[n][range], total);
        float value = total * p.weights.factor; // exact
        if (p.weights.bias) value += bias;
        *out(p) = p.add ? before + value : value;
    }
};

template <class Format, bool NORMED_ROWS> __device__ void held(const Held& p) {
    extern __shared__ uint4 held_memory[];
    __shared__ float factors[HELD_ROWS][RANGES], squares[NORMED_ROWS ? HELD_ROWS : 1][RANGES];
    const HeldMemory m(p, NORMED_ROWS, held_memory);
    let_the_next_begin();
    const HeldRange<Format> own(p, m);
    own.ask(p);
    end_of_copies();
    HeldValue value(p);
    if (NORMED_ROWS && threadIdx.x * 32 < p.width) ask_for(p.norm + threadIdx.x * 32);
    wait_for_the_one_before();
    float sums[1][4] = {};
    value.ask(p);
    if constexpr (NORMED_ROWS) {
        stage_normed_rows(p, m, factors, squares);
        wait_for_copies<0>();
        __syncthreads();
        multiply_staged(p, m, own, sums);
    } else {
        if (threadIdx.x < p.rows * RANGES) factors[threadIdx.x / RANGES][threadIdx.x % RANGES] = p.factors[threadIdx.x];
        multiply_ready(p, own, sums);
    }
    const int g = lane_id() / 4, t = lane_id() % 4;
    float* to = m.sums + warp_id() * p.rows * SUMS_STRIDE + g;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int n = 2 * t + k % 2;
        if (own.multiplies && n < p.rows) to[n * SUMS_STRIDE + 8 * (k / 2)] = sums[0][k];
    }
    __syncthreads();
    value.write(p, m, factors);
}

#define HELD(name, Format) \
    extern "C" __global__ void __launch_bounds__(HELD_THREADS + HELD_BESIDE, 1) held_normed_##name(const __grid_constant__ Held p) { held<Format, true>(p); } \
    extern "C" __global__ void __launch_bounds__(HELD_THREADS + HELD_BESIDE, 1) held_ready_##name(const __grid_constant__ Held p) { held<Format, false>(p); }

HELD(levels4, Levels4)
HELD(fp4, Fp4)
HELD(levels8, Levels8)
HELD(floats, Floats)
