// Products for some rows, up to 64, of a matrix or of the experts of a mixture.
//
// One block a multiprocessor stays, with its input rows in shared memory, and goes through tiles of the matrix: two groups of
// eight warps take a tile each by turns, a warp a range of the columns, and one more warp of a group adds the ranges up and
// writes the results while the others go on. What is computed is cut into passes: at most 16 rows,
// of a mixture those of one expert. The tiles of all passes, one after the other, are shared out evenly, so that a block
// meets few experts. A warp's weights are always under way, over the ends of tiles and passes. The bits are those of `split`.

constexpr int SEVERAL_ROWS = 16; // of a pass, at most
constexpr int SEVERAL_GROUPS = 2;
constexpr int SEVERAL_WARPS = SEVERAL_GROUPS * RANGES; // that multiply
constexpr int SEVERAL_THREADS = (SEVERAL_WARPS + SEVERAL_GROUPS) * LANES;
constexpr int SUM_BUFFERS = 2;
constexpr int SEVERAL_SLOTS = 512; // rows, times experts of a row
constexpr int SEVERAL_EXPERTS = 256;
constexpr int SEVERAL_PASSES = SEVERAL_EXPERTS + SEVERAL_SLOTS / 4;

struct Several {
    Weights weights[2];     // gate and up, else one
    const u16* x;           // (input rows, x_stride) f16, or none
    const float* x_factors; // (input rows, RANGES) powers of two
    const float* hidden;    // instead: (slots, width)
    const float* largest;   // (slots, tiles of 16 columns) its magnitudes
    const int* chosen;      // (slots) experts, or none
    float* out_largest;     // (slots, tiles of 16) of what gate and up become
    int slots, slots_a_row; // input row = slot / slots_a_row, of x
    int experts, width, x_stride, out_stride, units, add, clamped;
    int rows_most; // of a pass: what shared memory is for
};

// The group of this warp.
__device__ inline int own_group() { return warp_id() < SEVERAL_WARPS ? warp_id() / RANGES : warp_id() - SEVERAL_WARPS; }

struct Pass {
    short expert, first, count; // the first of its slots in the block's list
};

// Who goes where, as every block finds out for itself.
struct Passes {
    Pass of[SEVERAL_PASSES];
    short list[SEVERAL_SLOTS]; // slots by expert, and among those of one in their order: it must be the same in all blocks
    short firsts[SEVERAL_EXPERTS];
    u8 counts[SEVERAL_SLOTS / LANES][SEVERAL_EXPERTS]; // of the slots of each warp
    int count;

    // A matrix: rows as they are.
    __device__ void all(int rows, int rows_most) {
        for (int i = threadIdx.x; i < rows; i += SEVERAL_THREADS) list[i] = i;
        const int passes = div_up(rows, rows_most);
        if (threadIdx.x == 0) count = passes;
        for (int i = threadIdx.x; i < passes; i += SEVERAL_THREADS) {
            const int first = i * rows_most;
            of[i] = {0, (short)first, (short)min(rows_most, rows - first)};
        }
        __syncthreads();
    }

    __device__ void by_expert(const int* chosen, int slots, int experts, int rows_most) {
        static_assert(SEVERAL_SLOTS <= SEVERAL_THREADS, "a thread a slot");
        for (int i = threadIdx.x; i < (int)sizeof(counts) / 4; i += SEVERAL_THREADS) ((u32*)counts)[i] = 0;
        const int slot = threadIdx.x, expert = slot < slots ? __ldcg(chosen + slot) : -1;
        const u32 same = __match_any_sync(ALL_LANES, expert), before = same & ((1u << lane_id()) - 1);
        __syncthreads();
        if (slot < slots && before == 0) counts[warp_id()][expert] = __popc(same);
        __syncthreads();
        if (warp_id() == 0) number(experts, rows_most);
        __syncthreads();
        if (slot < slots) {
            int place = firsts[expert] + __popc(before);
            for (int warp = 0; warp < warp_id(); warp++) place += counts[warp][expert];
            list[place] = slot;
        }
        __syncthreads();
    }

    // The experts' first slots and their passes, by one warp.
    __device__ void number(int experts, int rows_most) {
        int slots_before = 0, passes_before = 0;
        for (int base = 0; base < experts; base += LANES) {
            const int e = base + lane_id();
            int own = 0;
            for (int warp = 0; warp < SEVERAL_SLOTS / LANES && e < experts; warp++) own += counts[warp][e];
            const int own_passes = div_up(own, rows_most);
            int slots = own, passes = own_passes;
            for (int step = 1; step < LANES; step *= 2) {
                const int s = __shfl_up_sync(ALL_LANES, slots, step), q = __shfl_up_sync(ALL_LANES, passes, step);
                if (lane_id() >= step) slots += s, passes += q;
            }
            const int first = slots_before + slots - own;
            if (e < experts) firsts[e] = first;
            for (int i = 0; i < own_passes; i++) {
                const int from = i * rows_most;
                of[passes_before + passes - own_passes + i] = {(short)e, (short)(first + from), (short)min(rows_most, own - from)};
            }
            slots_before += __shfl_sync(ALL_LANES, slots, LANES - 1), passes_before += __shfl_sync(ALL_LANES, passes, LANES - 1);
        }
        if (lane_id() == 0) count = passes_before;
    }
};

// Tiles of one pass that a block has, and what it has after them.
struct Stretch {
    int pass, begin, end, left;

    Stretch() = default;

    __device__ Stretch(int passes, int tiles) {
        const u32 all = passes * tiles, first = all * blockIdx.x / gridDim.x, after = all * (blockIdx.x + 1) / gridDim.x;
        pass = first / tiles, begin = first % tiles;
        end = min(tiles, (int)(begin + after - first)), left = after - first - (end - begin);
    }
    __device__ bool there() const { return begin < end; }
    __device__ void next(int tiles) { pass++, begin = 0, end = min(tiles, left), left -= end; }
};

// What a warp's weights are: of its group's tiles each matrix, of that its range, in stages.
template <class Format, int MATRICES> struct SeveralCursor {
    const Several& p;
    const Pass* passes;
    Stretch stretch;
    int tile, matrix, from, begin, count, tiles, group;
    int before; // tiles of the experts before

    __device__ SeveralCursor(const Several& p, const Pass* passes, Stretch stretch, int tiles)
        : p(p), passes(passes), stretch(stretch), matrix(0), from(0), tiles(tiles), group(own_group()) {
        const int range = warp_id() % RANGES;
        begin = range_begin(p.units, range), count = range_begin(p.units, range + 1) - begin;
        tile = stretch.begin + group;
        before = stretch.there() ? passes[stretch.pass].expert * tiles : 0;
        skip();
    }
    __device__ void skip() {
        while (tile >= stretch.end && stretch.left > 0) {
            stretch.next(tiles), tile = group;
            before = passes[stretch.pass].expert * tiles;
        }
    }
    __device__ bool there() const { return tile < stretch.end && count > 0; }
    __device__ Piece next() {
        constexpr int UNITS = FlowSize<Format>::UNITS;
        const u32 first = (u32)(before + tile) * p.units + begin + from;
        const Piece piece = {&p.weights[matrix], first, min(UNITS, count - from)};
        from += UNITS;
        if (from >= count) from = 0, matrix++;
        if (matrix == MATRICES) matrix = 0, tile += SEVERAL_GROUPS, skip();
        return piece;
    }
};

// The shared memory of a block.
struct SeveralMemory {
    u16* inputs;   // (rows_most, stride)
    float* sums;   // of the group: (SUM_BUFFERS, ranges, rows_most, SUMS_STRIDE)
    uint4* stages; // of all warps
    int stride;    // f16: lanes then read from different banks
    int each;      // floats of a buffer of sums

    __device__ SeveralMemory(const Several& p, uint4* memory) {
        stride = p.units * UNIT_COLS + 8, each = RANGES * p.rows_most * SUMS_STRIDE;
        inputs = (u16*)memory;
        float* all = (float*)(inputs + p.rows_most * stride);
        sums = all + own_group() * SUM_BUFFERS * each;
        stages = (uint4*)(all + SEVERAL_GROUPS * SUM_BUFFERS * each);
    }
};

// Sums on their way from the warps of a group to the one that adds them up: both sides count the turns.
struct HandOver {
    u64 full[SUM_BUFFERS], free[SUM_BUFFERS];

    __device__ void init() {
        for (int i = 0; i < SUM_BUFFERS; i++) barrier_init(full + i, RANGES), barrier_init(free + i, 1);
    }
    __device__ static void arrive(u64* barrier) {
        __syncwarp();
        if (lane_id() == 0) {
            asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier)) : "memory");
        }
    }
    __device__ void wait_free(int turn) { barrier_wait(free + turn % SUM_BUFFERS, turn / SUM_BUFFERS + 1 & 1); }
    __device__ void wait_full(int turn) { barrier_wait(full + turn % SUM_BUFFERS, turn / SUM_BUFFERS & 1); }
    __device__ void filled(int turn) { arrive(full + turn % SUM_BUFFERS); }
    __device__ void freed(int turn) { arrive(free + turn % SUM_BUFFERS); }
};

// The input rows of a pass, ready as they are.
__device__ inline void stage_rows(const Several& p, const SeveralMemory& m, const short* list, int count, float (*factors)[RANGES]) {
    const int pieces = p.units * UNIT_COLS / 8;
    for (int n = warp_id(); n < count; n += SEVERAL_WARPS + SEVERAL_GROUPS) {
        const int row = list[n] / p.slots_a_row;
        const u16* from = p.x + (u64)row * p.x_stride;
        u16* to = m.inputs + n * m.stride;
        for (int i = lane_id(); i < pieces; i += LANES) copy_16(to + 8 * i, from + 8 * i, true);
        if (lane_id() < RANGES) factors[n][lane_id()] = p.x_factors[(u64)row * RANGES + lane_id()];
    }
    end_of_copies();
    wait_for_copies<0>();
}

// The hidden values of a pass, whose ranges get their powers of two here. A warp takes a range of some rows, four at a time.
__device__ inline void stage_hidden(const Several& p, const SeveralMemory& m, const short* list, int count, float (*factors)[RANGES]) {
    constexpr int TOGETHER = 4;
    if (warp_id() >= SEVERAL_WARPS) return;
    const int range = warp_id() % RANGES, tiles = div_up(p.width, TILE_ROWS);
    const Columns columns(p.units, range);
    const int end = min(columns.end, p.width), tile_end = div_up(end, TILE_ROWS);
    for (int first = warp_id() / RANGES * TOGETHER; first < count; first += SEVERAL_GROUPS * TOGETHER) {
        float factor[TOGETHER] = {};
        const float* from[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int slot = list[min(first + i, count - 1)];
            from[i] = p.hidden + (u64)slot * p.x_stride;
            for (int tile = columns.begin / TILE_ROWS + lane_id(); tile < tile_end; tile += LANES) {
                factor[i] = fmaxf(factor[i], p.largest[slot * tiles + tile]);
            }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int exponent = exponent_of(warp_max(factor[i]));
            factor[i] = power_of_two(exponent);
            if (lane_id() == 0 && first + i < count) factors[first + i][range] = power_of_two(-exponent);
        }
#pragma unroll 3
        for (int c = columns.begin + 4 * lane_id(); c < columns.end; c += 4 * LANES) {
            float4 v[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) v[i] = c < end ? *(const float4*)(from[i] + c) : float4{0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                if (first + i >= count) break;
                uint2* to = (uint2*)(m.inputs + (first + i) * m.stride + c);
                *to = {pack_f16(v[i].x * factor[i], v[i].y * factor[i]), pack_f16(v[i].z * factor[i], v[i].w * factor[i])};
            }
        }
    }
}

// The inputs of a lane, rows g and g + 8 and so on.
template <int N> struct StagedInputs {
    const u16* x;
    int next; // from one row to the one that is eight further

    __device__ StagedInputs(const u16* x, int next) : x(x), next(next) {}
    __device__ StagedInputs from(int unit) const { return StagedInputs(x + unit * UNIT_COLS, next); }
    __device__ void load(Input (&input)[N], int unit) const {
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint4* from = (const uint4*)(x + unit * UNIT_COLS + n * next);
            input[n].low = from[0], input[n].high = from[1];
        }
    }
};

// The tiles of a stretch, for 8 * N input rows.
template <int MATRICES, int N, class Flowing>
__device__ inline void multiply_stretch(const Several& p, const SeveralMemory& m, const Stretch& stretch, Flowing& flow,
                                        HandOver& hand_over, int& turn) {
    const int g = lane_id() / 4, t = lane_id() % 4, range = warp_id() % RANGES;
    const int begin = range_begin(p.units, range), count = range_begin(p.units, range + 1) - begin;
    // What is multiplied with a row that is not there is not looked at.
    const StagedInputs<N> inputs(m.inputs + min(g, p.rows_most - 1) * m.stride + 16 * t + begin * UNIT_COLS,
                                 g + 8 < p.rows_most ? 8 * m.stride : 0);
    const int tiles = div_up(stretch.end - stretch.begin - own_group(), SEVERAL_GROUPS);
#pragma unroll 1
    for (int i = 0; i < tiles * MATRICES; i++, turn++) {
        const Weights& w = p.weights[MATRICES == 2 ? i % 2 : 0];
        float sums[N][4] = {};
#pragma unroll 1
        for (int from = 0; from < count; from += flow.UNITS) {
            flow.wait();
            flow.multiply(w, min(flow.UNITS, count - from), inputs.from(from), sums);
            flow.done();
        }
        hand_over.wait_free(turn);
        float* to = m.sums + turn % SUM_BUFFERS * m.each + range * p.rows_most * SUMS_STRIDE + g;
#pragma unroll
        for (int k = 0; k < 4 * N; k++) {
            const int n = k / 4 * 8 + 2 * t + k % 2;
            if (n < p.rows_most) to[n * SUMS_STRIDE + 8 * (k % 4 / 2)] = sums[k / 4][k % 4];
        }
        hand_over.filled(turn);
    }
}

// Adds up and writes the tiles of a stretch, by one warp: lane 16 h + i has row i of a tile, for input rows h, h + 2 and so on.
template <int MATRICES>
__device__ inline void finish_stretch(const Several& p, const SeveralMemory& m, const Pass& pass, const short* list,
                                      const float (*factors)[RANGES], const Stretch& stretch, HandOver& hand_over, int& turn) {
    constexpr int ROUNDS = SEVERAL_ROWS / 2;
    const int i = lane_id() % TILE_ROWS, half = lane_id() / TILE_ROWS, tiles = div_up(p.weights[0].rows, TILE_ROWS);
#pragma unroll 1
    for (int tile = stretch.begin + own_group(); tile < stretch.end; tile += SEVERAL_GROUPS) {
        const int row = tile * TILE_ROWS + i;
        const bool there = row < p.weights[0].rows;
        float bias[MATRICES] = {}, gate[ROUNDS];
#pragma unroll
        for (int k = 0; k < MATRICES; k++) {
            const Weights& w = p.weights[k];
            if (w.bias && there) bias[k] = w.bias[pass.expert * w.rows + row];
        }
#pragma unroll
        for (int k = 0; k < MATRICES; k++, turn++) {
            hand_over.wait_full(turn);
            const float* sums = m.sums + turn % SUM_BUFFERS * m.each + i;
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                if (2 * round >= pass.count) break;
                const int n = min(2 * round + half, pass.count - 1), slot = list[n];
                float total = 0;
#pragma unroll
                for (int range = 0; range < RANGES; range++) {
                    total = fmaf(sums[(range * p.rows_most + n) * SUMS_STRIDE], factors[n][range], total);
                }
                float value = total * p.weights[k].factor; // exact
                if (p.weights[k].bias) value += bias[k];
                const bool own = there && 2 * round + half < pass.count;
                float* out = p.weights[0].out + (u64)slot * p.out_stride + row;
                if constexpr (MATRICES == 1) {
                    if (own) *out = p.add ? *out + value : value;
                } else if (k == 0) {
                    gate[round] = value;
                } else {
                    value = there ? activated(p.clamped, gate[round], value) : 0.0f;
                    if (own) *out = value;
                    float largest = fabsf(value);
                    for (int step = 8; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, step));
                    if (own && i == 0) p.out_largest[slot * tiles + tile] = largest;
                }
            }
            hand_over.freed(turn);
        }
    }
}

template <class Format, int MATRICES, bool HIDDEN, bool EXPERTS> __device__ void several(const Several& p) {
    extern __shared__ uint4 several_memory[];
    __shared__ float factors[SEVERAL_ROWS][RANGES];
    __shared__ HandOver hand_overs[SEVERAL_GROUPS];
    __shared__ Passes passes;
    const SeveralMemory m(p, several_memory);
    const int tiles = div_up(p.weights[0].rows, TILE_ROWS);
    // The last product of a mixture begins after the first has seen the choice, so it can see it too.
    constexpr bool FIRST = EXPERTS && !HIDDEN;
    if (FIRST) wait_for_the_one_before();
    let_the_next_begin();
    if (threadIdx.x < SEVERAL_GROUPS) hand_overs[threadIdx.x].init(); // a block barrier follows
    if (EXPERTS) passes.by_expert(p.chosen, p.slots, p.experts, p.rows_most);
    if (!EXPERTS) passes.all(p.slots, p.rows_most);
    Stretch stretch(passes.count, tiles);
    using Cursor = SeveralCursor<Format, MATRICES>;
    Flow<Format, Cursor> flow(Cursor(p, passes.of, stretch, tiles), m.stages);
    const bool multiplies = warp_id() < SEVERAL_WARPS;
    if (multiplies) flow.ask_first();
    if (!FIRST) wait_for_the_one_before();
    HandOver& hand_over = hand_overs[own_group()];
    int turn = 0;
#pragma unroll 1
    for (; stretch.there(); stretch.next(tiles)) {
        const Pass pass = passes.of[stretch.pass];
        const short* list = passes.list + pass.first;
        if constexpr (HIDDEN) stage_hidden(p, m, list, pass.count, factors);
        if constexpr (!HIDDEN) stage_rows(p, m, list, pass.count, factors);
        __syncthreads();
        if (!multiplies) {
            finish_stretch<MATRICES>(p, m, pass, list, factors, stretch, hand_over, turn);
        } else if (pass.count > 8) {
            multiply_stretch<MATRICES, 2>(p, m, stretch, flow, hand_over, turn);
        } else {
            multiply_stretch<MATRICES, 1>(p, m, stretch, flow, hand_over, turn);
        }
        __syncthreads();
    }
}

extern "C" __device__ const int several_threads = SEVERAL_THREADS;
extern "C" __device__ const int several_row_bytes = SEVERAL_GROUPS * SUM_BUFFERS * RANGES * SUMS_STRIDE * 4; // beside its inputs
extern "C" __device__ const int several_groups = SEVERAL_GROUPS;

#define SEVERAL_KERNEL(name, ...) \
    extern "C" __global__ void __launch_bounds__(SEVERAL_THREADS, 1) name(const __grid_constant__ Several p) { __VA_ARGS__(p); }
#define SEVERAL(name, Format) \
    extern "C" __device__ const int several_##name##_stages = FlowSize<Format>::BYTES * SEVERAL_WARPS; \
    SEVERAL_KERNEL(several_matrix_##name, several<Format, 1, false, false>) \
    SEVERAL_KERNEL(several_gated_##name, several<Format, 2, false, false>) \
    SEVERAL_KERNEL(several_in_##name, several<Format, 2, false, true>) \
    SEVERAL_KERNEL(several_out_##name, several<Format, 1, true, true>)

SEVERAL(levels4, Levels4)
SEVERAL(fp4, Fp4)
SEVERAL(levels8, Levels8)
SEVERAL(floats, Floats)
