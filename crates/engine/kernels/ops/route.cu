// Where the rows of a mixture go, a block a row: its norm, what products read of it, the router's logits, the choice.

constexpr int ROUTE_WARPS = 16;
constexpr int ROUTE_TILES = SEVERAL_EXPERTS / TILE_ROWS;

struct Route {
    Weights router;
    const float* x;    // (rows, width)
    const float* norm; // (width)
    Prepared to;
    int* chosen; // (rows, used)
    float* shares;
    float eps;
    int width, used, normalize;
};

// A range of the row, normalised, to shared memory and to where products read it, by one warp.
__device__ inline void prepare_range(const Route& p, const float* x, float scale, int range, u16* staged, float* factors) {
    const Columns columns(p.to.units, range);
    const auto value = [&](int c) { return normed(four_columns(x, c, p.width), scale, four_columns(p.norm, c, p.width)); };
    float largest = 0;
#pragma unroll 3
    for (int c = columns.begin + 4 * lane_id(); c < columns.end; c += 4 * LANES) largest = fmaxf(largest, largest_of(value(c)));
    const int exponent = exponent_of(warp_max(largest));
    const float factor = power_of_two(exponent);
    u16* values = p.to.values + (u64)blockIdx.x * p.to.stride;
#pragma unroll 3
    for (int c = columns.begin + 4 * lane_id(); c < columns.end; c += 4 * LANES) {
        const float4 v = value(c);
        const uint2 both = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
        *(uint2*)(values + c) = both, *(uint2*)(staged + c) = both;
    }
    if (lane_id() == 0) p.to.factors[blockIdx.x * RANGES + range] = factors[range] = power_of_two(-exponent);
}

// The sums of a range of a tile of 16 experts, by one warp. The first units may be there already.
template <class Format, int AT_ONCE>
__device__ inline void route_range(const Route& p, int tile, int range, Raw<Format::PIECES> (&raw)[AT_ONCE], const u16* staged, float* sums) {
    const int end = range_begin(p.to.units, range + 1);
    const StagedInputs<1> inputs(staged + 16 * (lane_id() % 4), 0);
    float of[1][4] = {};
#pragma unroll 1
    for (int begin = range_begin(p.to.units, range); begin < end; begin += AT_ONCE) {
        Raw<Format::PIECES> next[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) load_unit<Format>(next[i], p.router, (u64)tile * p.to.units + min(begin + AT_ONCE + i, end - 1));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (begin + i < end) multiply_unit<Format, 1>(raw[i], inputs, begin + i, of);
            raw[i] = next[i];
        }
    }
    if (lane_id() % 4 == 0) sums[lane_id() / 4] = of[0][0], sums[lane_id() / 4 + 8] = of[0][2];
}

template <class Format> __device__ void route(const Route& p) {
    constexpr int AT_ONCE = 2;
    extern __shared__ uint4 route_memory[]; // (units * 64) f16
    __shared__ float squares[RANGES], factors[RANGES], sums[ROUTE_TILES][RANGES][TILE_ROWS], logits[SEVERAL_EXPERTS];
    u16* staged = (u16*)route_memory;
    const int range = warp_id() % RANGES, experts = p.router.rows, tiles = div_up(experts, TILE_ROWS);
    const float* x = p.x + (u64)blockIdx.x * p.width;
    let_the_next_begin();
    Raw<Format::PIECES> raw[AT_ONCE];
    const auto load_first = [&](int tile) {
        const int begin = range_begin(p.to.units, range), last = max(begin, range_begin(p.to.units, range + 1) - 1);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) load_unit<Format>(raw[i], p.router, (u64)min(tile, tiles - 1) * p.to.units + min(begin + i, last));
    };
    load_first(warp_id() / RANGES);
    // All blocks read all of it soon.
    const u64 bytes = (u64)tiles * p.to.units * Format::PIECES * LANES * 16;
    if (32 * threadIdx.x < p.width) ask_for(p.norm + 32 * threadIdx.x);
    if (p.router.bias && threadIdx.x == 0) ask_for(p.router.bias);
    for (u64 at = 128 * threadIdx.x; at < bytes; at += 128 * ROUTE_WARPS * LANES) ask_for((const u8*)p.router.codes + at);
    wait_for_the_one_before();
    if (warp_id() < RANGES) {
        const float own = range_squares(x, Columns(p.to.units, range), p.width);
        if (lane_id() == 0) squares[range] = own;
    }
    __syncthreads();
    if (warp_id() < RANGES) prepare_range(p, x, norm_scale(squares, p.width, p.eps), range, staged, factors);
    __syncthreads();
    for (int tile = warp_id() / RANGES; tile < tiles; tile += ROUTE_WARPS / RANGES) {
        route_range<Format, AT_ONCE>(p, tile, range, raw, staged, sums[tile][range]);
        load_first(tile + ROUTE_WARPS / RANGES);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < SEVERAL_EXPERTS; e += ROUTE_WARPS * LANES) {
        float total = 0;
        for (int range = 0; range < RANGES; range++) total = fmaf(sums[e / TILE_ROWS][range][e % TILE_ROWS], factors[range], total);
        logits[e] = e < experts ? with_bias(p.router, 0, e, total) : -INFINITY;
    }
    __syncthreads();
    if (warp_id() > 0) return;
    const auto logit = [&](int i) { return logits[i * LANES + lane_id()]; };
    const u64 first = (u64)blockIdx.x * p.used;
    choose_row<1>(logit, div_up(experts, LANES), experts, p.used, p.normalize, p.chosen + first, p.shares + first);
}

#define ROUTE(name, Format) \
    extern "C" __global__ void __launch_bounds__(ROUTE_WARPS* LANES) route_##name(const __grid_constant__ Route p) { route<Format>(p); }

ROUTE(levels4, Levels4)
ROUTE(fp4, Fp4)
ROUTE(levels8, Levels8)
ROUTE(floats, Floats)
