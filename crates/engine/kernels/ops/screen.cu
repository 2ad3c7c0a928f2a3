// The likeliest token of some rows without reading all of the head: the head rounded to four bits says which tokens may be it, and
// of those alone the weights are multiplied, to the bit as a product does it.
//
// What rounding takes from a weight is as good as equally likely within half a step on either side. So a logit is off by 0.29 steps
// times the length of x (in the root mean square), and `SCREEN_REACH` is eight times that: by chance it is off by more once in 10^15
// tokens. No logit that is told is wrong; a token whose weights conspire with x could be passed over.

constexpr float SCREEN_MIDDLE = 7.5f; // the level that means 0
constexpr float SCREEN_REACH = 8.0f * 0.2887f;
constexpr int SCREEN_WARPS = BEST_THREADS / LANES;
constexpr int SCREEN_GROUPS = SCREEN_WARPS / RANGES; // of warps that multiply a range each
constexpr int SCREEN_TOKENS = 4096; // that are looked at between two barriers
constexpr int SCREEN_AT_ONCE = 5; // units of rounded rows that are asked for together: so many may be read past their end

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

// A row with one power of two for all of it, by one warp.
__device__ inline Reach stage_row(const Prepared& x, int row, u16* to) {
    const float factor = lane_id() < RANGES ? x.factors[row * RANGES + lane_id()] : 0;
    const float most = warp_max(factor);
    const u16* from = x.values + (u64)row * x.stride;
    float sum = 0, squares = 0;
#pragma unroll 1
    for (int range = 0; range < RANGES; range++) {
        const Columns columns(x.units, range);
        const float own = __shfl_sync(ALL_LANES, factor, range) / most;
#pragma unroll 6
        for (int c = columns.begin + 2 * lane_id(); c < columns.end; c += 2 * LANES) {
            const u32 both = __ldcg((const u32*)(from + c));
            const float a = f16_to_f32(both) * own, b = f16_to_f32(both >> 16) * own;
            sum += a + b, squares = fmaf(a, a, fmaf(b, b, squares));
            *(u32*)(to + c) = pack_f16(a, b);
        }
    }
    const float raised = 16777216.0f; // the bits of a level are 2^-24 of it
    return {most * raised, SCREEN_MIDDLE * most * warp_sum(sum), SCREEN_REACH * most * sqrtf(warp_sum(squares))};
}

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
                multiply_add(first[n], low & FIRST, high & FIRST, low >> 8 & FIRST, high >> 8 & FIRST, in.x, in.z);
                multiply_add(second[n], low & SECOND, high & SECOND, low >> 8 & SECOND, high >> 8 & SECOND, in.y, in.w);
            }
        }
    }
    __device__ float of(int n, int k) const { return first[n][k] + second[n][k] / 16; }
};

// Bounds of all logits. A warp has tiles that follow one another.
template <int N> __device__ void screen_rows(const Screen& s) {
    extern __shared__ u16 screen_memory[];
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
    wait_for_the_one_before();
    if (warp_id() < s.rows) {
        const Reach reach = stage_row(s.x, warp_id(), screen_memory + warp_id() * stride);
        if (lane_id() == 0) reaches[warp_id()] = reach;
    }
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
    constexpr int AT_ONCE = 3; // units that are asked for together
    const int range = warp_id() % RANGES, g = lane_id() / 4, t = lane_id() % 4;
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

// The tokens of a list by groups of warps, 16 at a time; the largest rank of what a lane has added up.
template <class Format> __device__ inline u64 look_at(const Screen& s, int row, const int* tokens, int count) {
    __shared__ float sums[SCREEN_GROUPS][RANGES][TILE_ROWS];
    const int group = warp_id() / RANGES, g = lane_id() / 4;
    u64 largest = 0;
#pragma unroll 1
    for (int first = group * TILE_ROWS; first < count; first += SCREEN_GROUPS * TILE_ROWS) {
        const int last = count - 1;
        multiply_gathered<Format>(s, row, {tokens[min(first + g, last)], tokens[min(first + g + 8, last)]}, sums[group][warp_id() % RANGES]);
        named_barrier(1 + group, RANGES * LANES);
        if (warp_id() % RANGES == 0 && lane_id() < min(TILE_ROWS, count - first)) {
            float total = 0;
            for (int range = 0; range < RANGES; range++) {
                total = fmaf(sums[group][range][lane_id()], s.x.factors[row * RANGES + range], total);
            }
            largest = max(largest, rank_of(total * s.head.factor, tokens[first + lane_id()]));
        }
        named_barrier(1 + group, RANGES * LANES);
    }
    return largest;
}

// The likeliest token of a part of a row.
template <class Format> __device__ void screen_look(const Screen& s) {
    __shared__ int tokens[SCREEN_TOKENS], count;
    __shared__ u64 of_warps[SCREEN_WARPS];
    begin_kernel();
    const int row = blockIdx.y, vocab = s.head.rows;
    const int first = (u64)vocab * blockIdx.x / BEST_PARTS, end = (u64)vocab * (blockIdx.x + 1) / BEST_PARTS;
    float bound = -INFINITY;
    for (int i = lane_id(); i < s.blocks; i += LANES) bound = fmaxf(bound, s.bounds[row * s.blocks + i]);
    bound = warp_max(bound);
    const float* uppers = s.uppers + (u64)row * vocab;
    u64 largest = 0;
    for (int begin = first; begin < end; begin += SCREEN_TOKENS) {
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SCREEN_TOKENS / BEST_THREADS; i++) {
            const int token = begin + i * BEST_THREADS + threadIdx.x;
            // What is no number is looked at too.
            if (token < end && !(uppers[token] < bound)) tokens[atomicAdd(&count, 1)] = token;
        }
        __syncthreads();
        largest = max(largest, look_at<Format>(s, row, tokens, count));
        __syncthreads();
    }
    for (int step = 16; step > 0; step /= 2) largest = max(largest, __shfl_xor_sync(ALL_LANES, largest, step));
    if (lane_id() == 0) of_warps[warp_id()] = largest;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 0; warp < SCREEN_WARPS; warp++) largest = max(largest, of_warps[warp]);
    const int part = row * BEST_PARTS + blockIdx.x;
    s.ranks[part] = largest, s.host[part] = largest;
}

extern "C" __device__ const int screen_at_once = SCREEN_AT_ONCE;

#define SCREEN(name, ...) \
    extern "C" __global__ void __launch_bounds__(BEST_THREADS, 1) screen_##name(const __grid_constant__ Screen s) { __VA_ARGS__(s); }

SCREEN(rows_8, screen_rows<1>)
SCREEN(rows_16, screen_rows<2>)
SCREEN(look_levels8, screen_look<Levels8>)
SCREEN(look_floats, screen_look<Floats>)
