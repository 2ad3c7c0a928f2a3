// Matrix products: out[row] (+)= weights * x[row] + bias, for any number of rows, of a matrix or of the experts of a mixture.
//
// A value must have the same bits however many rows are computed together. So the columns are cut into eight ranges,
// whatever the number of rows; each range is one chain of the same instructions, and the eight sums are added in order.
// With few rows eight warps take a range each (`split`); with many, a warp goes through all of them (`wide`).

struct Product {
    Weights weights[2]; // blockIdx.z
    const u16* x;       // (input rows, x_stride) f16
    const float* x_factors; // (input rows, RANGES) powers of two
    const int4* tiles;      // of a mixture: expert, first of its slots, their count; else none
    const int* tile_count;
    const int* slots; // of a mixture, by expert
    int slots_a_row;  // input row = slot / slots_a_row
    int x_stride, out_stride;
    int units; // of a row of the matrix
    int rows;  // of a product that is not a mixture's
    int add;   // to what is there
    int staged; // `split` has room for its input rows in shared memory
};

// The rows that a block computes, at most `most`.
struct Rows {
    int expert, first, count;

    __device__ Rows(const Product& p, int most) {
        if (p.tiles) {
            const bool there = (int)blockIdx.y < *p.tile_count;
            const int4 tile = there ? p.tiles[blockIdx.y] : int4{0, 0, 0, 0};
            expert = tile.x, first = tile.y, count = tile.z;
        } else {
            expert = 0, first = blockIdx.y * most;
            count = min(p.rows - first, most);
        }
    }
    __device__ int slot(const Product& p, int n) const { return p.tiles ? p.slots[first + n] : first + n; }
    __device__ int input(const Product& p, int n) const { return p.tiles ? slot(p, n) / p.slots_a_row : first + n; }
};

__device__ inline void write(const Product& p, const Weights& w, const Rows& rows, int row, int n, float sum) {
    if (n >= rows.count || row >= w.rows) return;
    float value = sum * w.factor; // exact
    if (w.bias) value += w.bias[rows.expert * w.rows + row];
    float* out = w.out + (u64)rows.slot(p, n) * p.out_stride + row;
    *out = p.add ? *out + value : value;
}

// A lane's part of a unit of one input row: the second operand of four products.
struct Input {
    uint4 low, high;

    __device__ u32 first(int j) const { return j == 0 ? low.x : j == 1 ? low.z : j == 2 ? high.x : high.z; }
    __device__ u32 second(int j) const { return j == 0 ? low.y : j == 1 ? low.w : j == 2 ? high.y : high.w; }
};

// The input rows of a block: in shared memory where there is room for them, so that no warp waits for them unit by unit.
template <int N> struct Inputs {
    const u16* x[N]; // of this lane. What is multiplied with a row that is not there is not looked at: it may be any

    __device__ Inputs(const Product& p, const Rows& rows, u16* staged) {
        const int g = lane_id() / 4, t = lane_id() % 4;
        const int stride = p.units * UNIT_COLS + 8; // f16: lanes then read from different banks
        if (p.staged) {
            const int pieces = p.units * UNIT_COLS / 8;
            for (int n = 0; n < rows.count; n++) {
                const u16* from = p.x + (u64)rows.input(p, n) * p.x_stride;
                for (int i = threadIdx.x; i < pieces; i += RANGES * LANES) {
                    copy_16(staged + n * stride + 8 * i, from + 8 * i, true);
                }
            }
            end_of_copies();
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int row = min(8 * n + g, rows.count - 1);
            x[n] = p.staged ? staged + row * stride + 16 * t : p.x + (u64)rows.input(p, row) * p.x_stride + 16 * t;
        }
    }
    __device__ void load(Input (&input)[N], int unit) const {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint4* from = (const uint4*)(x[n] + unit * UNIT_COLS);
            input[n].low = from[0], input[n].high = from[1];
        }
    }
};

// sums += a unit of the tile * the unit of the inputs.
template <class Format, int N>
__device__ inline void multiply_inputs(const Raw<Format::PIECES>& raw, const Input (&input)[N], float (&sums)[N][4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const Operand a = Format::operand(raw, j);
#pragma unroll
        for (int n = 0; n < N; n++) {
            multiply_add(sums[n], a.a0, a.a1, a.a2, a.a3, input[n].first(j), input[n].second(j));
        }
    }
}

template <class Format, int N, class From>
__device__ inline void multiply_unit(const Raw<Format::PIECES>& raw, const From& inputs, int unit, float (&sums)[N][4]) {
    Input input[N];
    inputs.load(input, unit);
    multiply_inputs<Format>(raw, input, sums);
}

// One tile of 16 matrix rows, 8 * N input rows; each warp a range of the columns.
template <class Format, int N> __device__ void split(const Product& p) {
    constexpr int AT_ONCE = Format::PIECES == 1 ? 4 : 2; // units that are asked for together
    constexpr int STRIDE = TILE_ROWS + 4;                // floats: lanes then write to different banks
    extern __shared__ uint4 staged[];
    __shared__ float sums_of[RANGES][8 * N][STRIDE];
    const Weights& w = p.weights[blockIdx.z];
    let_the_next_begin();
    if (p.tiles) wait_for_the_one_before();
    const Rows rows(p, 8 * N);
    const int tile = blockIdx.x, range = warp_id(), g = lane_id() / 4, t = lane_id() % 4;
    if (rows.count <= 0 || tile * TILE_ROWS >= w.rows) return;

    const u64 first = ((u64)rows.expert * div_up(w.rows, TILE_ROWS) + tile) * p.units;
    const int end = range_begin(p.units, range + 1);
    Raw<Format::PIECES> raw[AT_ONCE];
    int begin = range_begin(p.units, range);
    // Past the end of the range its last unit is loaded again: no load has to be asked whether it is wanted.
    const auto load = [&](int from) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) load_unit<Format>(raw[i], w, first + min(from + i, end - 1));
    };
    if (begin < end) load(begin);
    if (!p.tiles) wait_for_the_one_before();
    const Inputs<N> inputs(p, rows, (u16*)staged);
    wait_for_copies<0>();
    __syncthreads();
    float sums[N][4] = {};
    for (; begin + AT_ONCE < end; begin += AT_ONCE) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) multiply_unit<Format>(raw[i], inputs, begin + i, sums);
        load(begin + AT_ONCE);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        if (begin + i < end) multiply_unit<Format>(raw[i], inputs, begin + i, sums);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums_of[range][8 * n + 2 * t + i % 2][g + 8 * (i / 2)] = sums[n][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_ROWS * 8 * N; i += blockDim.x) {
        const int row = i % TILE_ROWS, n = i / TILE_ROWS;
        if (n >= rows.count) break;
        const float* factors = p.x_factors + (u64)rows.input(p, n) * RANGES;
        float total = 0;
        for (int range = 0; range < RANGES; range++) total = fmaf(sums_of[range][n][row], factors[range], total);
        write(p, w, rows, tile * TILE_ROWS + row, n, total);
    }
}

// 128 matrix rows, 64 input rows: four warps of two tiles each. Weights and inputs come through shared memory in stages.
constexpr int WIDE_ROWS = 64;  // input rows
constexpr int WIDE_TILES = 8;  // of matrix rows
constexpr int WIDE_STAGES = 3;
constexpr int WIDE_THREADS = 128;
constexpr int INPUT_STRIDE = UNIT_COLS + 8; // f16: lanes then read from different banks

template <class Format> struct Stage {
    u16 x[WIDE_ROWS][INPUT_STRIDE];
    uint4 codes[WIDE_TILES][Format::PIECES][LANES];
    u8 scales[WIDE_TILES][Format::SCALE_BYTES == 0 ? 16 : Format::SCALE_BYTES * 8 * 4];
};

// What a thread copies of every unit.
template <class Format> struct Copies {
    const u16* x[WIDE_ROWS / 16]; // or none
    u64 first;                    // unit of the block's first tile
    int tiles;                    // that are there
    int scale_bytes;

    __device__ Copies(const Product& p, const Weights& w, const Rows& rows) {
        const int all = div_up(w.rows, TILE_ROWS), tile = blockIdx.x * WIDE_TILES;
        first = (u64)rows.expert * all + tile;
        tiles = min(WIDE_TILES, all - tile);
        scale_bytes = ::scale_bytes<Format>(w);
#pragma unroll
        for (int i = 0; i < WIDE_ROWS / 16; i++) {
            const int n = threadIdx.x / 8 + 16 * i;
            x[i] = n < rows.count ? p.x + (u64)rows.input(p, n) * p.x_stride + threadIdx.x % 8 * 8 : nullptr;
        }
    }
    __device__ void unit(Stage<Format>& to, const Product& p, const Weights& w, int unit) const {
#pragma unroll
        for (int i = 0; i < WIDE_ROWS / 16; i++) {
            const u16* from = x[i] ? x[i] + unit * UNIT_COLS : p.x;
            copy_16(&to.x[threadIdx.x / 8 + 16 * i][threadIdx.x % 8 * 8], from, x[i] != nullptr);
        }
#pragma unroll
        for (int i = 0; i < WIDE_TILES / 4 * Format::PIECES; i++) {
            const int tile = i / Format::PIECES * 4 + warp_id(), piece = i % Format::PIECES;
            const bool there = tile < tiles;
            const u64 at = ((first + tile) * p.units + unit) * Format::PIECES + piece;
            copy_16(&to.codes[tile][piece][lane_id()], there ? w.codes + at * LANES + lane_id() : w.codes, there);
        }
        if constexpr (Format::SCALE_BYTES > 0) {
            const int pieces = scale_bytes / 16, tile = threadIdx.x / pieces, piece = threadIdx.x % pieces;
            if (tile < WIDE_TILES) {
                const bool there = tile < tiles;
                const u8* from = w.scales + ((first + tile) * p.units + unit) * scale_bytes + piece * 16;
                copy_16(&to.scales[tile][piece * 16], there ? from : w.scales, there);
            }
        }
    }
};

// Sums of a warp: two tiles, eight times eight input rows.
struct WideSums {
    float of[2][8][4];
};

// Of the input rows only the first `rows` are there, unless all are.
template <class Format, bool all>
__device__ inline void multiply_stage(const Stage<Format>& stage, const Weights& w, int rows, WideSums& sums) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    Raw<Format::PIECES> raw[2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const int tile = 2 * warp_id() + m;
#pragma unroll
        for (int piece = 0; piece < Format::PIECES; piece++) raw[m].pieces[piece] = stage.codes[tile][piece][lane_id()];
        if constexpr (Format::SCALE_BYTES > 0) raw[m].scales = read_scales<Format>(stage.scales[tile] + scale_at<Format>(w));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        Operand a[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) a[i / 2][i % 2] = Format::operand(raw[i / 2], 2 * half + i % 2);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            if (!all && 8 * n >= rows) break;
            const uint4 b = *(const uint4*)&stage.x[8 * n + g][16 * t + 8 * half];
#pragma unroll
            for (int m = 0; m < 2; m++) {
                multiply_add(sums.of[m][n], a[m][0].a0, a[m][0].a1, a[m][0].a2, a[m][0].a3, b.x, b.y);
                multiply_add(sums.of[m][n], a[m][1].a0, a[m][1].a1, a[m][1].a2, a[m][1].a3, b.z, b.w);
            }
        }
    }
}

template <class Format> __device__ void wide(const Product& p) {
    extern __shared__ uint4 wide_memory[];
    __shared__ float factors[RANGES][WIDE_ROWS];
    Stage<Format>* stages = (Stage<Format>*)wide_memory;
    const Weights& w = p.weights[blockIdx.z];
    begin_kernel();
    const Rows rows(p, WIDE_ROWS);
    if (rows.count <= 0 || blockIdx.x * WIDE_TILES * TILE_ROWS >= w.rows) return;

    const Copies<Format> copies(p, w, rows);
    for (int i = threadIdx.x; i < RANGES * WIDE_ROWS; i += WIDE_THREADS) {
        const int n = i / RANGES;
        factors[i % RANGES][n] = n < rows.count ? p.x_factors[(u64)rows.input(p, n) * RANGES + i % RANGES] : 0.0f;
    }
    for (int unit = 0; unit < WIDE_STAGES - 1; unit++) {
        if (unit < p.units) copies.unit(stages[unit], p, w, unit);
        end_of_copies();
    }
    WideSums range = {}, total = {};
    int ranges = 0, range_end = 0;
    while (range_end == 0) range_end = range_begin(p.units, ++ranges);
    for (int unit = 0; unit < p.units; unit++) {
        wait_for_copies<WIDE_STAGES - 2>();
        __syncthreads();
        const int next = unit + WIDE_STAGES - 1;
        if (next < p.units) copies.unit(stages[next % WIDE_STAGES], p, w, next);
        end_of_copies();
        const Stage<Format>& stage = stages[unit % WIDE_STAGES];
        if (rows.count > WIDE_ROWS - 8) {
            multiply_stage<Format, true>(stage, w, rows.count, range);
        } else {
            multiply_stage<Format, false>(stage, w, rows.count, range);
        }
        if (unit + 1 == range_end) {
            const float* of_range = factors[ranges - 1] + 2 * (lane_id() % 4);
            while (range_end == unit + 1 && ranges < RANGES) range_end = range_begin(p.units, ++ranges);
#pragma unroll
            for (int i = 0; i < 64; i++) {
                float& sum = range.of[i / 32][i / 4 % 8][i % 4];
                float& all = total.of[i / 32][i / 4 % 8][i % 4];
                all = fmaf(sum, of_range[i / 4 % 8 * 8 + i % 2], all);
                sum = 0;
            }
        }
    }
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int row = (blockIdx.x * WIDE_TILES + 2 * warp_id() + i / 32) * TILE_ROWS + g + 8 * (i / 2 % 2);
        write(p, w, rows, row, i / 4 % 8 * 8 + 2 * t + i % 2, total.of[i / 32][i / 4 % 8][i % 4]);
    }
}

#define SPLIT(name, Format, N) \
    extern "C" __global__ void __launch_bounds__(RANGES* LANES) name(const __grid_constant__ Product p) { split<Format, N>(p); }
#define WIDE(name, Format) \
    extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 2) name(const __grid_constant__ Product p) { wide<Format>(p); } \
    extern "C" __device__ const int name##_bytes = sizeof(Stage<Format>) * WIDE_STAGES;
#define PRODUCTS(name, Format) \
    SPLIT(split_##name##_8, Format, 1) \
    SPLIT(split_##name##_16, Format, 2) \
    SPLIT(split_##name##_32, Format, 4) \
    SPLIT(split_##name##_64, Format, 8) \
    WIDE(wide_##name, Format)

PRODUCTS(levels4, Levels4)
PRODUCTS(fp4, Fp4)
PRODUCTS(levels8, Levels8)
PRODUCTS(floats, Floats)
