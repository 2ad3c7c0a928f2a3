// The likeliest token of some rows without reading all of the head: the head rounded to four bits says which tokens may be it, and
// of those alone the weights are multiplied, to the bit as a product does it.
//
// What rounding takes from a weight is as good as equally likely within half a step on either side. So a logit is off by 0.29 steps
// times the length of x (in the root mean square), and `SCREEN_REACH` is eight times that: by chance it is off by more once in 10^15
// tokens. No logit that is told is wrong; a token whose weights conspire with x could be passed over.

constexpr float SCREEN_MIDDLE = 7.5f; // the level that means 0
constexpr float SCREEN_REACH = 8.0f * 0.2887f;
constexpr int SCREEN_THREADS = 512;
constexpr int SCREEN_WARPS = SCREEN_THREADS / LANES;
constexpr int SCREEN_AT_ONCE = 5;                // units of rounded rows that a warp asks for together
constexpr int SCREEN_AHEAD = 5 * SCREEN_AT_ONCE; // that it asks for first: so many may be read past the end
constexpr int LOOK_TOKENS = 8192;                // that are looked at between two barriers

struct Screen {
    Weights head;        // as it is
    const uint4* coarse; // levels of 0 to 15, laid as `Levels4` has them
    const float* steps;  // (vocab) between the levels of a token
    Prepared x;
    float* uppers; // (rows, vocab) which the logits are not above
    float* bounds; // (rows, blocks) which the largest logit is not below
    u64* ranks;    // (rows, BEST_PARTS), as `best` leaves them
    u64* host;
    int rows, blocks;
};

// How sums of levels of a row become bounds, in steps.
struct Reach {
    float scale, middle, off;
};

// Rows with one power of two for all of each: their ranges are shared out among the warps. Of each eight columns the two middle pairs
// change places, so that what one instruction takes lies together.
struct Staging {
    float2 of_ranges[2 * 8][RANGES]; // sums, and of squares

    __device__ void bring(const Screen& s, u16* to, int stride) {
#pragma unroll 4
        for (int i = warp_id(); i < s.rows * RANGES; i += SCREEN_WARPS) {
            const int row = i / RANGES, range = i % RANGES;
            const Columns columns(s.x.units, range);
            const float factor = lane_id() < RANGES ? s.x.factors[row * RANGES + lane_id()] : 0;
            const float own = __shfl_sync(ALL_LANES, factor, range) / warp_max(factor);
            float sum = 0, squares = 0;
#pragma unroll 3
            for (int c = columns.begin + 4 * lane_id(); c < columns.end; c += 4 * LANES) {
                const uint2 four = *(const uint2*)(s.x.values + (u64)row * s.x.stride + c);
                const float a = f16_to_f32(four.x) * own, b = f16_to_f32(four.x >> 16) * own;
                const float d = f16_to_f32(four.y) * own, e = f16_to_f32(four.y >> 16) * own;
                sum += (a + b) + (d + e), squares = fmaf(a, a, fmaf(b, b, fmaf(d, d, fmaf(e, e, squares))));
                u32* eight = (u32*)(to + row * stride + c / 8 * 8);
                eight[c % 8 / 4] = pack_f16(a, b), eight[2 + c % 8 / 4] = pack_f16(d, e);
            }
            sum = warp_sum(sum), squares = warp_sum(squares);
            if (lane_id() == 0) of_ranges[row][range] = {sum, squares};
        }
    }
    // When all are there.
    __device__ Reach reach(const Screen& s, int row) const {
        constexpr float RAISED = 16777216.0f; // the bits of a level are 2^-24 of it
        float most = 0, sum = 0, squares = 0;
        for (int range = 0; range < RANGES; range++) {
            most = fmaxf(most, s.x.factors[row * RANGES + range]);
            sum += of_ranges[row][range].x, squares += of_ranges[row][range].y;
        }
        return {most * RAISED, SCREEN_MIDDLE * most * sum, SCREEN_REACH * most * sqrtf(squares)};
    }
};

// 16 rounded rows times 8 * N rows of x. The second of each two levels in a byte is 16 times itself, and summed apart.
template <int N> struct CoarseSums {
    float first[N][4], second[N][4];

    __device__ CoarseSums() : first(), second() {}
    __device__ void add(uint4 codes, const u16* x, int next) {
        constexpr u32 FIRST = 0x000F000Fu, SECOND = 0x00F000F0u;
        Input input[N];
        StagedInputs<N>(x, next).load(input, 0);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 low = half ? codes.y : codes.x, high = half ? codes.w : codes.z;
#pragma unroll
            for (int n = 0; n < N; n++) {
                const uint4 in = half ? input[n].high : input[n].low;
                multiply_add(first[n], low & FIRST, high & FIRST, low >> 8 & FIRST, high >> 8 & FIRST, in.x, in.y);
                multiply_add(second[n], low & SECOND, high & SECOND, low >> 8 & SECOND, high >> 8 & SECOND, in.z, in.w);
            }
        }
    }
    __device__ float of(int n, int k) const { return first[n][k] + second[n][k] / 16; }
};

// Bounds of all logits. A warp has tiles that follow one another.
template <int N> __device__ void screen_rows(const Screen& s) {
    extern __shared__ u16 screen_memory[];
    __shared__ Staging staging;
    __shared__ Reach reaches[8 * N];
    __shared__ float of_warps[SCREEN_WARPS][8 * N];
    const int g = lane_id() / 4, t = lane_id() % 4, units = s.x.units, stride = units * UNIT_COLS + 8, vocab = s.head.rows;
    const u64 tiles = div_up(vocab, TILE_ROWS), warp = blockIdx.x * SCREEN_WARPS + warp_id(), warps = gridDim.x * SCREEN_WARPS;
    const int begin = tiles * warp / warps, end = tiles * (warp + 1) / warps;
    const uint4* from = s.coarse + (u64)begin * units * LANES + lane_id();
    uint4 codes[SCREEN_AT_ONCE];
    const auto ask = [&](uint4 (&to)[SCREEN_AT_ONCE]) {
#pragma unroll
        for (int i = 0; i < SCREEN_AT_ONCE; i++) to[i] = load_once(from + i * LANES);
    };
    let_the_next_begin();
    ask(codes);
    for (int line = lane_id(); line < 4 * SCREEN_AHEAD; line += LANES) ask_for(s.coarse + (u64)begin * units * LANES + 8 * line);
    wait_for_the_one_before();
    staging.bring(s, screen_memory, stride);
    __syncthreads();
    if (threadIdx.x < s.rows) reaches[threadIdx.x] = staging.reach(s, threadIdx.x);
    __syncthreads();
    const int last = s.rows - 1, next_row = g + 8 < s.rows ? 8 * stride : 0;
    const u16* x = screen_memory + min(g, last) * stride + 16 * t; // what is multiplied with a row that is not there is not looked at
    float most[N][2];
    for (int n = 0; n < 2 * N; n++) most[n / 2][n % 2] = -INFINITY;
#pragma unroll 1
    for (int tile = begin; tile < end; tile++) {
        const int token = tile * TILE_ROWS + g;
        const float steps[2] = {s.steps[min(token, vocab - 1)], s.steps[min(token + 8, vocab - 1)]};
        CoarseSums<N> sums;
#pragma unroll 1
        for (int unit = 0; unit < units; unit += SCREEN_AT_ONCE) {
            uint4 next[SCREEN_AT_ONCE];
            from += min(SCREEN_AT_ONCE, units - unit) * LANES;
            if (unit + SCREEN_AT_ONCE < units || tile + 1 < end) ask(next);
#pragma unroll
            for (int i = 0; i < SCREEN_AT_ONCE; i++) {
                if (unit + i < units) sums.add(codes[i], x + (unit + i) * UNIT_COLS, next_row);
            }
#pragma unroll
            for (int i = 0; i < SCREEN_AT_ONCE; i++) codes[i] = next[i];
        }
#pragma unroll
        for (int k = 0; k < 4 * N; k++) {
            const int n = k / 4 * 8 + 2 * t + k % 2, own = token + 8 * (k % 4 / 2);
            if (n > last || own >= vocab) continue;
            const Reach reach = reaches[n];
            const float sum = sums.of(k / 4, k % 4) * reach.scale - reach.middle, step = steps[k % 4 / 2];
            s.uppers[(u64)n * vocab + own] = step * (sum + reach.off);
            most[k / 4][k % 2] = fmaxf(most[k / 4][k % 2], step * (sum - reach.off));
        }
    }
#pragma unroll
    for (int k = 0; k < 2 * N; k++) {
        float& own = most[k / 2][k % 2];
        for (int lanes = 4; lanes < LANES; lanes *= 2) own = fmaxf(own, __shfl_xor_sync(ALL_LANES, own, lanes));
        if (g == 0) of_warps[warp_id()][k / 2 * 8 + 2 * t + k % 2] = own;
    }
    __syncthreads();
    if (threadIdx.x >= s.rows) return;
    float bound = -INFINITY;
    for (int warp = 0; warp < SCREEN_WARPS; warp++) bound = fmaxf(bound, of_warps[warp][threadIdx.x]);
    s.bounds[threadIdx.x * s.blocks + blockIdx.x] = bound;
}

// Two rows of the head as a unit of them would lie: a lane's pieces of either.
template <class Format> struct Gathered {
    static constexpr int HALF = Format::PIECES / 2; // pieces of a row
    const uint4* codes[2];
    const u8* scales[2];
    int scale_stride;

    __device__ Gathered(const Weights& w, int units, const int (&rows)[2]) : scale_stride(scale_bytes<Format>(w)) {
        const int t = lane_id() % 4;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const u64 first = (u64)(rows[i] / TILE_ROWS) * units;
            const int g = rows[i] % 8, second = rows[i] % TILE_ROWS / 8;
            codes[i] = w.codes + (first * Format::PIECES + second * HALF) * LANES + 4 * g + t;
            scales[i] = w.scales + first * scale_stride + Format::SCALE_BYTES / 2 * second +
                        Format::SCALE_BYTES * (g * (4 >> w.group_shift) + (t >> w.group_shift));
        }
    }
    __device__ void load(Raw<Format::PIECES>& raw, int unit) const {
#pragma unroll
        for (int p = 0; p < Format::PIECES; p++) raw.pieces[p] = __ldg(codes[p / HALF] + (unit * Format::PIECES + p % HALF) * LANES);
        if constexpr (Format::SCALE_BYTES > 0) {
            raw.scales = {__ldg((const u32*)(scales[0] + unit * scale_stride)), __ldg((const u32*)(scales[1] + unit * scale_stride))};
        }
    }
};

// The sums of a warp's range for 16 tokens of the head, of which the lane has `rows`, and one row of x.
template <class Format> __device__ inline void multiply_gathered(const Screen& s, int row, const int (&rows)[2], float* to) {
    constexpr int AT_ONCE = Format::PIECES == 4 ? 3 : 6; // units that are asked for together
    const int range = warp_id(), g = lane_id() / 4, t = lane_id() % 4;
    const int end = range_begin(s.x.units, range + 1);
    const Gathered<Format> weights(s.head, s.x.units, rows);
    const StagedInputs<1> inputs(s.x.values + (u64)row * s.x.stride + 16 * t, 0);
    float sums[1][4] = {};
#pragma unroll 1
    for (int unit = range_begin(s.x.units, range); unit < end; unit += AT_ONCE) {
        Raw<Format::PIECES> raw[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) weights.load(raw[i], min(unit + i, end - 1));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (unit + i < end) multiply_unit<Format, 1>(raw[i], inputs, unit + i, sums);
        }
    }
    if (t == 0) to[g] = sums[0][0], to[g + 8] = sums[0][2]; // all columns are the same
}

// The tokens of a list, 16 at a time; the largest rank of those that a thread has added up.
template <class Format> __device__ inline u64 look_at(const Screen& s, int row, int before, const u16* tokens, int count) {
    __shared__ float sums[RANGES][TILE_ROWS];
    const int g = lane_id() / 4, last = count - 1;
    u64 largest = 0;
#pragma unroll 1
    for (int first = 0; first < count; first += TILE_ROWS) {
        multiply_gathered<Format>(s, row, {before + tokens[min(first + g, last)], before + tokens[min(first + g + 8, last)]}, sums[warp_id()]);
        __syncthreads();
        if (threadIdx.x < min(TILE_ROWS, count - first)) {
            float total = 0;
            for (int range = 0; range < RANGES; range++) {
                total = fmaf(sums[range][threadIdx.x], s.x.factors[row * RANGES + range], total);
            }
            largest = max(largest, rank_of(total * s.head.factor, before + tokens[first + threadIdx.x]));
        }
        __syncthreads();
    }
    return largest;
}

// The likeliest token of a part of a row, by as many warps as there are ranges.
template <class Format> __device__ void screen_look(const Screen& s) {
    __shared__ u16 tokens[LOOK_TOKENS];
    __shared__ int count;
    begin_kernel();
    const int row = blockIdx.y, vocab = s.head.rows;
    const int begin = (u64)vocab * blockIdx.x / BEST_PARTS, end = (u64)vocab * (blockIdx.x + 1) / BEST_PARTS;
    float bound = -INFINITY;
    for (int i = lane_id(); i < s.blocks; i += LANES) bound = fmaxf(bound, s.bounds[row * s.blocks + i]);
    bound = warp_max(bound);
    const float* uppers = s.uppers + (u64)row * vocab;
    u64 largest = 0;
    for (int first = begin; first < end; first += LOOK_TOKENS) {
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
#pragma unroll 8
        for (int i = threadIdx.x; i < min(LOOK_TOKENS, end - first); i += RANGES * LANES) {
            if (!(uppers[first + i] < bound)) tokens[atomicAdd(&count, 1)] = i; // what is no number is looked at too
        }
        __syncthreads();
        largest = max(largest, look_at<Format>(s, row, first, tokens, count));
        __syncthreads();
    }
    largest = warp_max(largest); // the first warp has them all
    const int part = row * BEST_PARTS + blockIdx.x;
    if (threadIdx.x == 0) s.ranks[part] = largest, s.host[part] = largest;
}

extern "C" __device__ const int screen_ahead = SCREEN_AHEAD;
extern "C" __device__ const int screen_threads = SCREEN_THREADS;

#define SCREEN(name, threads, ...) \
    extern "C" __global__ void __launch_bounds__(threads) screen_##name(const __grid_constant__ Screen s) { __VA_ARGS__(s); }

SCREEN(rows_8, SCREEN_THREADS, screen_rows<1>)
SCREEN(rows_16, SCREEN_THREADS, screen_rows<2>)
SCREEN(look_levels8, RANGES * LANES, screen_look<Levels8>)
SCREEN(look_floats, RANGES * LANES, screen_look<Floats>)
