// Products for a few rows, one token's mostly, together with what comes before and after them.
//
// Then a kernel is short and what counts is the way from one to the next: each prepares its inputs for itself, from f32
// that the one before left, instead of a kernel between the two. A block stays and goes through several tiles; its eight
// warps take a range of the columns each, and always have the next units of their weights under way, over the ends of
// tiles too. The first are asked for before the kernel waits for the one before. The bits are those of `split`.
//
// Most of this runs once a kernel and has to be fetched first: only the innermost loop is unrolled.

constexpr int FEW_ROWS = 8; // rows, or experts of one row, at most
constexpr int FEW_THREADS = RANGES * LANES;
constexpr int FEW_EXPERTS = 256;
constexpr int SUMS_STRIDE = TILE_ROWS + 4; // floats: lanes then write to different banks

struct Few {
    Weights weights[2];   // gate and up, else one
    const float* x;       // (rows, x_stride); of a mixture's last product (used, x_stride)
    const float* norm;    // (width) or none
    const float* largest; // (rows, tiles of 16 columns) magnitudes of x where they are known, or none
    const u16* ready;     // (rows, units * 64) x as products read it, where it is, or none
    const float* factors; // (rows, RANGES) of `ready`
    const int* list;      // row i is row list[i] of x, or none
    const float* logits;  // (experts) of the mixture's first product
    int* chosen;          // (used) written by a mixture's first product, read by its last
    float* shares;
    float* out_largest;   // (rows or used, tiles of 16) of what gate and up become
    float eps;
    int width, x_stride, out_stride, units, rows, add, clamped, experts, used, normalize;
};

// The shared memory of a block.
struct FewMemory {
    u16* inputs;       // (rows, units * 64 + 8): lanes then read from different banks
    float* norm;       // (units * 64), of a product with a norm
    float* sums;       // (2, matrices, ranges, rows, SUMS_STRIDE)
    uint4* stages;     // of all warps
    float (*factors)[RANGES]; // (rows)
    float (*squares)[RANGES]; // (rows)
    int stride;

    __device__ FewMemory(const Few& p, int matrices, uint4* memory, float (*of_factors)[RANGES], float (*of_squares)[RANGES])
        : factors(of_factors), squares(of_squares) {
        stride = p.units * UNIT_COLS + 8;
        inputs = (u16*)memory;
        norm = (float*)(inputs + p.rows * stride);
        sums = norm + (p.norm ? p.units * UNIT_COLS : 0);
        stages = (uint4*)(sums + 2 * matrices * RANGES * p.rows * SUMS_STRIDE);
    }
};

// Where inputs come from.
enum Source { NORMED, PLAIN, READY };

__device__ inline void ask_for_norm(const Few& p, const FewMemory& m) {
#pragma unroll 1
    for (int c = 4 * threadIdx.x; c < p.units * UNIT_COLS; c += 4 * FEW_THREADS) {
        copy_16(m.norm + c, c < p.width ? p.norm + c : p.norm, c < p.width);
    }
    end_of_copies();
}

// Calls `use` with four columns at a time of a warp's range: so many loads go before the first use.
template <int AT_ONCE, class Use> __device__ inline void for_columns(const float* x, Columns columns, int width, Use use) {
#pragma unroll 1
    for (int from = columns.begin + 4 * lane_id(); from < columns.end; from += 4 * LANES * AT_ONCE) {
        float4 v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int c = from + 4 * LANES * i;
            v[i] = c < min(columns.end, width) ? *(const float4*)(x + c) : float4{0, 0, 0, 0};
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (from + 4 * LANES * i < columns.end) use(from + 4 * LANES * i, v[i]);
        }
    }
}

// Input row n, whose range has this largest magnitude; `value` is made of four columns of x.
template <int AT_ONCE, class Value>
__device__ inline void stage_range(const Few& p, const FewMemory& m, const float* x, int n, float largest, Value value) {
    const int exponent = exponent_of(largest);
    const float factor = power_of_two(exponent);
    u16* to = m.inputs + n * m.stride;
    for_columns<AT_ONCE>(x, Columns(p.units, warp_id()), p.width, [&](int c, float4 of_x) {
        const float4 v = value(c, of_x);
        *(uint2*)(to + c) = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
    });
    if (lane_id() == 0) m.factors[n][warp_id()] = power_of_two(-exponent);
}

__device__ inline const float* input_row(const Few& p, int n) { return p.x + (u64)(p.list ? p.list[n] : n) * p.x_stride; }

__device__ inline void sum_squares(const Few& p, const FewMemory& m) {
#pragma unroll 1
    for (int n = 0; n < p.rows; n++) {
        float squares = 0;
        for_columns<4>(input_row(p, n), Columns(p.units, warp_id()), p.width, [&](int, float4 v) { add_squares(squares, v); });
        squares = warp_sum(squares);
        if (lane_id() == 0) m.squares[n][warp_id()] = squares;
    }
}

// After `sum_squares` and a barrier.
__device__ inline void stage_normed(const Few& p, const FewMemory& m) {
#pragma unroll 1
    for (int n = 0; n < p.rows; n++) {
        const float* x = input_row(p, n);
        const float scale = norm_scale(m.squares[n], p.width, p.eps);
        const auto value = [&](int c, float4 v) { return normed(v, scale, *(const float4*)(m.norm + c)); };
        float largest = 0;
        for_columns<4>(x, Columns(p.units, warp_id()), p.width, [&](int c, float4 v) { largest = fmaxf(largest, largest_of(value(c, v))); });
        stage_range<4>(p, m, x, n, warp_max(largest), value);
    }
}

__device__ inline void stage_plain(const Few& p, const FewMemory& m) {
    const Columns columns(p.units, warp_id());
    const int tiles = div_up(p.width, TILE_ROWS);
#pragma unroll 1
    for (int n = 0; n < p.rows; n++) {
        const float* x = input_row(p, n);
        float largest = 0;
        if (p.largest) {
            const int end = min(columns.end / TILE_ROWS, tiles);
#pragma unroll 4
            for (int tile = columns.begin / TILE_ROWS + lane_id(); tile < end; tile += LANES) {
                largest = fmaxf(largest, p.largest[n * tiles + tile]);
            }
        } else {
            for_columns<4>(x, columns, p.width, [&](int, float4 v) { largest = fmaxf(largest, largest_of(v)); });
        }
        stage_range<10>(p, m, x, n, warp_max(largest), [](int, float4 v) { return v; });
    }
}

// The hidden values of a mixture's slots: four slots at a time, so that their loads go together.
__device__ inline void stage_slots(const Few& p, const FewMemory& m) {
    const Columns columns(p.units, warp_id());
    constexpr int TOGETHER = 4;
#pragma unroll 1
    for (int first = 0; first < p.rows; first += TOGETHER) {
        const auto at = [&](int i, int c) {
            const bool there = first + i < p.rows && c < min(columns.end, p.width);
            return there ? *(const float4*)(p.x + (u64)(first + i) * p.x_stride + c) : float4{0, 0, 0, 0};
        };
        float factor[TOGETHER] = {};
#pragma unroll 2
        for (int c = columns.begin + 4 * lane_id(); c < columns.end; c += 4 * LANES) {
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) factor[i] = fmaxf(factor[i], largest_of(at(i, c)));
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int exponent = exponent_of(warp_max(factor[i]));
            factor[i] = power_of_two(exponent);
            if (lane_id() == 0 && first + i < p.rows) m.factors[first + i][warp_id()] = power_of_two(-exponent);
        }
#pragma unroll 1
        for (int c = columns.begin + 4 * lane_id(); c < columns.end; c += 4 * LANES) {
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                const float4 v = at(i, c);
                uint2* to = (uint2*)(m.inputs + (first + i) * m.stride + c);
                if (first + i < p.rows) *to = {pack_f16(v.x * factor[i], v.y * factor[i]), pack_f16(v.z * factor[i], v.w * factor[i])};
            }
        }
    }
}

__device__ inline void stage_ready(const Few& p, const FewMemory& m) {
    const int pieces = p.units * UNIT_COLS / 8;
#pragma unroll 1
    for (int n = 0; n < p.rows; n++) {
        const uint4* from = (const uint4*)(p.ready + (u64)n * p.units * UNIT_COLS);
        uint4* to = (uint4*)(m.inputs + n * m.stride);
#pragma unroll 2
        for (int i = threadIdx.x; i < pieces; i += FEW_THREADS) to[i] = from[i];
    }
    if (threadIdx.x < p.rows * RANGES) m.factors[threadIdx.x / RANGES][threadIdx.x % RANGES] = p.factors[threadIdx.x];
}

// A lane's inputs; `multiply_unit` asks for those of a unit.
struct FewInputs {
    const u16* x;

    __device__ FewInputs(const u16* x) : x(x) {}
    __device__ FewInputs(const FewMemory& m, int row) : x(m.inputs + row * m.stride + 16 * (lane_id() % 4)) {}
    __device__ FewInputs from(int unit) const { return FewInputs(x + unit * UNIT_COLS); }
    __device__ void load(Input (&input)[1], int unit) const {
        const uint4* from = (const uint4*)(x + unit * UNIT_COLS);
        input[0].low = from[0], input[0].high = from[1];
    }
};

// The sums of a tile's row for input row n, in the order of the ranges.
__device__ inline float total_of(const FewMemory& m, int rows, const float* sums, int n, int row) {
    float total = 0;
    for (int range = 0; range < RANGES; range++) {
        total = fmaf(sums[(range * rows + n) * SUMS_STRIDE + row], m.factors[n][range], total);
    }
    return total;
}

__device__ inline float with_bias(const Weights& w, int expert, int row, float total) {
    float value = total * w.factor; // exact
    if (w.bias) value += w.bias[expert * w.rows + row];
    return value;
}

// Writes a tile: threads 16 n .. of the block, counted from `first`, have input row n.
template <int MATRICES>
__device__ inline void finish_tile(const Few& p, const FewMemory& m, const float* sums, int tile, int slot, int expert, int first) {
    const int worker = (threadIdx.x - first) & (FEW_THREADS - 1), n = worker / TILE_ROWS;
    if (worker / LANES * 2 >= p.rows) return; // whole warps stay
    const int row = tile * TILE_ROWS + worker % TILE_ROWS, out_row = n + slot;
    const bool there = n < p.rows && row < p.weights[0].rows;
    const int each = RANGES * p.rows * SUMS_STRIDE;
    float value = there ? with_bias(p.weights[0], expert, row, total_of(m, p.rows, sums, n, worker % TILE_ROWS)) : 0.0f;
    float* out = p.weights[0].out + (u64)out_row * p.out_stride + row;
    if constexpr (MATRICES == 1) {
        if (there) *out = p.add ? *out + value : value;
    } else {
        if (there) {
            const float up = with_bias(p.weights[1], expert, row, total_of(m, p.rows, sums + each, n, worker % TILE_ROWS));
            value = activated(p.clamped, value, up);
            *out = value;
        }
        float largest = fabsf(value);
        for (int step = 8; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, step));
        if (n < p.rows && worker % TILE_ROWS == 0) p.out_largest[out_row * div_up(p.weights[0].rows, TILE_ROWS) + tile] = largest;
    }
}

// What a warp of `few` goes through: of its block's items each matrix, of that its range, in stages.
template <class Format, int MATRICES, bool EXPERTS> struct FewCursor {
    const Few& p;
    const int* chosen;
    int item, matrix, from, begin, count, items, tiles;

    __device__ FewCursor(const Few& p, const int* chosen, int range) : p(p), chosen(chosen), item(blockIdx.x), matrix(0), from(0) {
        tiles = div_up(p.weights[0].rows, TILE_ROWS), items = EXPERTS ? p.used * tiles : tiles;
        begin = range_begin(p.units, range), count = range_begin(p.units, range + 1) - begin;
    }
    __device__ bool there() const { return item < items && count > 0; }
    __device__ Piece next() {
        const Weights& w = p.weights[matrix];
        const int slot = EXPERTS ? item / tiles : 0, units = Stream<Format, FewCursor>::units(w);
        const u64 tile = EXPERTS ? (u64)chosen[slot] * tiles + item - slot * tiles : item;
        const Piece piece = {&w, tile * p.units + begin + from, min(units, count - from)};
        from += units;
        if (from >= count) from = 0, matrix++;
        if (matrix == MATRICES) matrix = 0, item += gridDim.x;
        return piece;
    }
};

// The experts of the row, by one warp.
__device__ inline void choose_experts(const Few& p, int* chosen, float* shares) {
    constexpr int STEPS = FEW_EXPERTS / LANES;
    float logits[STEPS];
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const int e = lane_id() + i * LANES;
        logits[i] = e < p.experts ? p.logits[e] : -INFINITY;
    }
    choose_row<STEPS>([&](int i) { return logits[i]; }, STEPS, p.experts, p.used, p.normalize, chosen, shares);
    __syncwarp();
    if (blockIdx.x == 0 && lane_id() < p.used) p.chosen[lane_id()] = chosen[lane_id()], p.shares[lane_id()] = shares[lane_id()];
}

// Tiles of one matrix, or of gate and up; of a mixture those of the chosen experts, one slot after the other.
template <class Format, int MATRICES, Source SOURCE, bool EXPERTS> __device__ void few(const Few& p) {
    extern __shared__ uint4 few_memory[];
    __shared__ u64 barriers[RANGES][STAGES_MAX];
    __shared__ float factors[FEW_ROWS][RANGES], squares[FEW_ROWS][RANGES], shares[FEW_ROWS];
    __shared__ int chosen[FEW_ROWS];
    const FewMemory m(p, MATRICES, few_memory, factors, squares);
    let_the_next_begin();
    using Cursor = FewCursor<Format, MATRICES, EXPERTS>;
    const Cursor cursor(p, chosen, warp_id());
    Stream<Format, Cursor> stream(cursor, m.stages, barriers);
    if (SOURCE == NORMED) ask_for_norm(p, m);
    if (!EXPERTS) stream.ask_first();
    wait_for_the_one_before();
    if constexpr (SOURCE == NORMED) {
        sum_squares(p, m);
        if (EXPERTS && warp_id() == 0) choose_experts(p, chosen, shares);
        wait_for_copies<0>();
        __syncthreads();
        if (EXPERTS) stream.ask_first();
        stage_normed(p, m);
    }
    if constexpr (SOURCE == PLAIN) stage_plain(p, m);
    if constexpr (SOURCE == READY) stage_ready(p, m);
    __syncthreads();
    const int g = lane_id() / 4, t = lane_id() % 4, each = RANGES * p.rows * SUMS_STRIDE;
    const FewInputs inputs = FewInputs(m, min(g, p.rows - 1)).from(cursor.begin);
    int round = 0;
#pragma unroll 1
    for (int item = blockIdx.x; item < cursor.items; item += gridDim.x, round++) {
        float* sums_of = m.sums + round % 2 * MATRICES * each;
#pragma unroll 1
        for (int matrix = 0; matrix < MATRICES; matrix++) {
            float sums[1][4] = {};
            const Weights& w = p.weights[matrix];
            const int units = stream.units(w);
#pragma unroll 1
            for (int from = 0; from < cursor.count; from += units) {
                stream.wait();
                stream.multiply(w, 0, min(units, cursor.count - from), inputs.from(from), sums);
                stream.done();
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int n = 2 * t + i % 2;
                if (n < p.rows) sums_of[matrix * each + (warp_id() * p.rows + n) * SUMS_STRIDE + g + 8 * (i / 2)] = sums[0][i];
            }
        }
        // The sums of an item are written while those before are read: the barrier of the next stands between.
        __syncthreads();
        const int slot = EXPERTS ? item / cursor.tiles : 0;
        finish_tile<MATRICES>(p, m, sums_of, item - slot * cursor.tiles, slot, EXPERTS ? chosen[slot] : 0, round % RANGES * LANES);
    }
}

// What a warp of `few_mix` goes through: the ranges of all slots are shared out, neighbours to one warp. Units are counted
// over all slots; a stage has units of one.
template <class Format> struct MixCursor {
    const Few& p;
    const int* chosen;
    int piece, begin, end; // the first (slot, range), the first unit and the last
    int slot, unit, left;

    __device__ MixCursor(const Few& p, const int* chosen, int warp)
        : p(p), chosen(chosen), piece(warp * p.used), begin(first_of(piece)), end(first_of(piece + p.used)) {
        slot = begin / p.units, unit = begin % p.units, left = end - begin;
    }
    __device__ int first_of(int piece) const { return piece / RANGES * p.units + range_begin(p.units, piece % RANGES); }
    __device__ bool there() const { return left > 0; }
    __device__ int units() const { return min(min(Stream<Format, MixCursor>::units(p.weights[0]), p.units - unit), left); }
    __device__ void advance(int count) {
        unit += count, left -= count;
        if (unit == p.units) unit = 0, slot++;
    }
    __device__ Piece next() {
        const int tiles = div_up(p.weights[0].rows, TILE_ROWS);
        const Piece piece = {&p.weights[0], ((u64)chosen[slot] * tiles + blockIdx.x) * p.units + unit, units()};
        advance(piece.count);
        return piece;
    }
};

// The products of a warp's pieces, to the block's sums (used, ranges).
template <class Format>
__device__ inline void mix_pieces(const Few& p, const FewMemory& m, MixCursor<Format> cursor, Stream<Format, MixCursor<Format>>& stream) {
    float sums[1][4] = {};
    int piece_end = cursor.first_of(cursor.piece + 1);
    const auto put = [&] {
        float* of = m.sums + cursor.piece * SUMS_STRIDE + lane_id() / 4;
        if (lane_id() % 4 == 0) of[0] = sums[0][0], of[8] = sums[0][2];
        sums[0][0] = sums[0][1] = sums[0][2] = sums[0][3] = 0;
        piece_end = cursor.first_of(++cursor.piece + 1);
    };
#pragma unroll 1
    while (cursor.there()) {
        const int count = cursor.units(), at = cursor.end - cursor.left;
        const FewInputs inputs = FewInputs(m, cursor.slot).from(cursor.unit);
        stream.wait();
#pragma unroll 1
        for (int i = 0; i < count;) {
            while (piece_end <= at + i) put();                // a range may be without units
            const int units = min(count, piece_end - at) - i; // of this range
            stream.multiply(p.weights[0], i, units, inputs.from(i), sums);
            i += units;
        }
        stream.done();
        cursor.advance(count);
    }
    while (cursor.piece < (warp_id() + 1) * p.used) put();
}

// x += sum of share * (down * hidden + bias) over the experts of one row, in their order.
template <class Format> __device__ void few_mix(const Few& p) {
    extern __shared__ uint4 few_memory[];
    __shared__ u64 barriers[RANGES][STAGES_MAX];
    __shared__ float factors[FEW_ROWS][RANGES], values[FEW_ROWS][TILE_ROWS];
    __shared__ int chosen[FEW_ROWS];
    const FewMemory m(p, 1, few_memory, factors, nullptr); // `rows` is `used`
    const Weights& w = p.weights[0];
    begin_kernel();
    if (threadIdx.x < p.used) chosen[threadIdx.x] = p.chosen[threadIdx.x];
    __syncthreads();
    const MixCursor<Format> cursor(p, chosen, warp_id());
    Stream<Format, MixCursor<Format>> stream(cursor, m.stages, barriers);
    stream.ask_first();
    stage_slots(p, m);
    __syncthreads();
    mix_pieces(p, m, cursor, stream);
    __syncthreads();
    const int slot = threadIdx.x / TILE_ROWS, of_tile = threadIdx.x % TILE_ROWS, row = blockIdx.x * TILE_ROWS + of_tile;
    if (slot < p.used && row < w.rows) {
        float total = 0;
        for (int range = 0; range < RANGES; range++) {
            total = fmaf(m.sums[(slot * RANGES + range) * SUMS_STRIDE + of_tile], m.factors[slot][range], total);
        }
        values[slot][of_tile] = with_bias(w, chosen[slot], row, total);
    }
    __syncthreads();
    if (slot > 0 || row >= w.rows) return;
    float sum = w.out[row];
    for (int i = 0; i < p.used; i++) sum = fmaf(p.shares[i], values[i][of_tile], sum);
    w.out[row] = sum;
}

#define FEW_KERNEL(name, ...) \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 4) name(const __grid_constant__ Few p) { __VA_ARGS__(p); }
#define FEW(name, Format) \
    extern "C" __device__ const int few_##name##_stages = STREAM_BYTES<Format>; \
    FEW_KERNEL(few_normed_##name, few<Format, 1, NORMED, false>) \
    FEW_KERNEL(few_plain_##name, few<Format, 1, PLAIN, false>) \
    FEW_KERNEL(few_ready_##name, few<Format, 1, READY, false>) \
    FEW_KERNEL(few_gated_##name, few<Format, 2, NORMED, false>) \
    FEW_KERNEL(few_experts_##name, few<Format, 2, NORMED, true>) \
    FEW_KERNEL(few_mix_##name, few_mix<Format>)

FEW(levels4, Levels4)
FEW(fp4, Fp4)
FEW(levels8, Levels8)
FEW(floats, Floats)
