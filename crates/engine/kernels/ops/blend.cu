// A mixture of up to eight rows, from the router's logits to what `mix` adds up, in one kernel.
//
// As in `several` a block a multiprocessor stays, two groups of eight warps take tiles by turns, and one more warp a group adds
// their ranges up. Its warps always have weights under way: those of gate and up, which are multiplied together, and after them,
// over the place where all blocks meet because hidden values are everybody's, those of down. A block has tiles of one expert, for
// all rows that chose it; which, every block finds out for itself. The bits are those of `split`.
//
// Most of this runs once, so it is kept short: an instruction of all warps that is asked for the first time costs more than ten
// that are not.

constexpr int BLEND_ROWS = 8;
constexpr int BLEND_SLOTS = LANES; // rows, times experts of a row

struct Blend {
    Weights weights[3];     // gate, up, down
    const u16* x;           // (rows, x_stride) f16
    const float* x_factors; // (rows, RANGES) powers of two
    const float* logits;    // (rows, experts)
    float* hidden;          // (slots, hidden_width)
    float* shares;          // (slots) as `mix` reads them
    u32* meeting;           // how many blocks are there, and how often all were
    int rows, used, x_stride, hidden_width, out_width, experts, normalize, clamped;
    int units[2], tiles[2]; // of gate and up, of down
};

// What a block has: an expert, its slots and their rows, and tiles of gate and up, of down.
struct BlendShare {
    int expert, count, begin[2], end[2];
    short slots[BLEND_ROWS], rows[BLEND_ROWS];

    // By one warp, a lane a slot. Experts are in the order of their first slots; their blocks are neighbours.
    __device__ void find(const Blend& p, const int* chosen) {
        const int lane = lane_id(), all = p.rows * p.used, own = lane < all ? chosen[lane] : -1;
        const u32 same = __match_any_sync(ALL_LANES, own), before = (1u << lane) - 1;
        const u32 firsts = __ballot_sync(ALL_LANES, lane < all && (same & before) == 0);
        const u32 experts = __popc(firsts), mine = blockIdx.x * experts / gridDim.x;
        const int place = __popc(same & before);
        if (lane < all && __popc(firsts & ((1u << (__ffs(same) - 1)) - 1)) == mine) {
            slots[place] = lane, rows[place] = lane / p.used;
            if (place == 0) expert = own, count = __popc(same);
        }
        const u32 first = div_up(mine * gridDim.x, experts), blocks = div_up((mine + 1) * gridDim.x, experts) - first;
        const u32 part = lane / 2, edge = p.tiles[part % 2] * (blockIdx.x - first + lane % 2) / blocks;
        if (part < 2) (lane % 2 ? end : begin)[part] = edge;
    }
};

template <class Format> struct BlendSize {
    static constexpr int HALF = Format::PIECES > 1 ? 1 : Format::SCALE_BYTES == 4 ? 3 : 2; // units of gate, and of up, in a stage
    static constexpr int UNITS = 2 * HALF, STAGES = 2;
    static constexpr int CODES = Format::PIECES * LANES;                                  // of a unit, pieces of 16 bytes
    static constexpr int SCALES = Format::SCALE_BYTES == 4 ? 4 : Format::SCALE_BYTES * 2; // the same, at most
    static constexpr int STAGE = UNITS * (CODES + SCALES);
    static constexpr int BYTES = STAGES * STAGE * 16; // of a warp
};

// A warp's weights on their way: of its group's tiles a range of gate and up, then of down, in stages.
template <class Format> struct BlendFlow : BlendSize<Format> {
    using Size = BlendSize<Format>;
    static constexpr int HALF = Size::HALF, UNITS = Size::UNITS, STAGES = Size::STAGES, CODES = Size::CODES, SCALES = Size::SCALES;

    const Blend& p;
    const BlendShare& share;
    uint4* stages; // of this warp, from this lane on
    int down, tile, end, from, begin, count, stage;
    u32 first; // unit of the tile

    __device__ BlendFlow(const Blend& p, const BlendShare& share, uint4* memory)
        : p(p), share(share), stages(memory + warp_id() * STAGES * Size::STAGE + lane_id()), from(0), stage(0) {
        enter(0);
        settle();
    }
    __device__ void enter(int part) {
        const int range = warp_id() % RANGES;
        down = part, begin = range_begin(p.units[part], range), count = range_begin(p.units[part], range + 1) - begin;
        tile = share.begin[part] + own_group(), end = count > 0 ? share.end[part] : 0;
    }
    // At the next tile that there is: after those of gate and up one of down.
    __device__ void settle() {
        if (tile >= end && !down) enter(1);
        first = (share.expert * p.tiles[down] + tile) * p.units[down] + begin;
    }
    template <int MOST> __device__ void copy(uint4* to, const Weights& w, int units, int slot) const {
        const u32 unit = first + from;
        const uint4* codes = w.codes + (u64)unit * CODES + lane_id();
#pragma unroll
        for (int i = 0; i < MOST * Format::PIECES; i++) {
            if (i / Format::PIECES < units) copy_16(to + slot * CODES + i * LANES, codes + i * LANES, true);
        }
        if constexpr (Format::SCALE_BYTES > 0) {
            const int each = scale_bytes<Format>(w) / 16;
            const uint4* scales = (const uint4*)w.scales + (u64)unit * each + lane_id();
#pragma unroll
            for (int i = 0; i < MOST * SCALES; i += LANES) {
                if (i + lane_id() < units * each) copy_16(to + UNITS * CODES + slot * SCALES + i, scales + i, true);
            }
        }
    }
    // Fills a stage with what comes next; with nothing, if there is nothing.
    __device__ void ask() {
        if (tile < end) {
            uint4* to = stages + stage * Size::STAGE;
            const int units = min(down ? UNITS : HALF, count - from);
            if (down) {
                copy<UNITS>(to, p.weights[2], units, 0);
            } else {
                copy<HALF>(to, p.weights[0], units, 0), copy<HALF>(to, p.weights[1], units, HALF);
            }
            from += units;
            if (from == count) from = 0, tile += SEVERAL_GROUPS, settle();
        }
        end_of_copies();
        stage ^= 1;
    }
    __device__ void wait() const {
        wait_for_copies<STAGES - 1>();
        __syncwarp();
    }
    __device__ void load(Raw<Format::PIECES>& raw, const uint4* codes, const Weights& w, int slot, int i) const {
#pragma unroll
        for (int k = 0; k < Format::PIECES; k++) raw.pieces[k] = codes[(slot + i) * CODES + k * LANES];
        const u8* scales = (const u8*)(codes - lane_id() + UNITS * CODES + slot * SCALES);
        if constexpr (Format::SCALE_BYTES > 0) raw.scales = read_scales<Format>(scales + scale_at<Format>(w) + i * scale_bytes<Format>(w));
    }
    // The units of the oldest stage, of gate and up by turns: neither waits for its own product before.
    __device__ void multiply(StagedInputs<1> x, int units, float (&sums)[2][4]) const {
        const uint4* codes = stages + stage * Size::STAGE;
#pragma unroll 1
        for (int i = 0; i < units; i++) {
            Raw<Format::PIECES> gate, up;
            load(gate, codes, p.weights[0], 0, i), load(up, codes, p.weights[1], HALF, i);
            Input input[1];
            x.load(input, i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const Operand a = Format::operand(gate, j), b = Format::operand(up, j);
                multiply_add(sums[0], a.a0, a.a1, a.a2, a.a3, input[0].first(j), input[0].second(j));
                multiply_add(sums[1], b.a0, b.a1, b.a2, b.a3, input[0].first(j), input[0].second(j));
            }
        }
    }
    __device__ void multiply(StagedInputs<1> x, int units, float (&sums)[1][4]) const {
        const uint4* codes = stages + stage * Size::STAGE;
#pragma unroll 1
        for (int i = 0; i < units; i += 2) {
            Raw<Format::PIECES> one, two;
            load(one, codes, p.weights[2], 0, i);
            if (i + 1 < units) load(two, codes, p.weights[2], 0, i + 1);
            multiply_unit<Format, 1>(one, x, i, sums);
            if (i + 1 < units) multiply_unit<Format, 1>(two, x, i + 1, sums);
        }
    }
};

// The shared memory of a block.
struct BlendMemory {
    u16* inputs;   // (rows, stride), of down the block's slots
    float* sums;   // of the group: (SUM_BUFFERS, matrices, ranges, rows, SUMS_STRIDE)
    uint4* stages; // of all warps
    int stride;    // f16: lanes then read from different banks
    int each;      // floats of a matrix in a buffer of sums

    __device__ BlendMemory(const Blend& p, uint4* memory) {
        stride = max(p.units[0], p.units[1]) * UNIT_COLS + 8, each = RANGES * p.rows * SUMS_STRIDE;
        inputs = (u16*)memory;
        float* all = (float*)(inputs + p.rows * stride);
        sums = all + own_group() * SUM_BUFFERS * 2 * each;
        stages = (uint4*)(all + SEVERAL_GROUPS * SUM_BUFFERS * 2 * each);
    }
};

// The experts of each row, a warp a row. There is room for the logits where weights will come.
__device__ inline void blend_choose(const Blend& p, const BlendMemory& m, int* chosen, float* shares) {
    const int row = warp_id(), steps = div_up(p.experts, LANES);
    if (row >= p.rows) return;
    float* logits = (float*)m.stages + row * SEVERAL_EXPERTS + lane_id();
    for (int i = 0; i < steps; i++) {
        const int e = i * LANES + lane_id();
        logits[i * LANES] = e < p.experts ? p.logits[row * p.experts + e] : -INFINITY;
    }
    choose_row([&](int i) { return logits[i * LANES]; }, steps, p.experts, p.used, p.normalize, chosen + row * p.used, shares + row * p.used);
    __syncwarp();
    if (blockIdx.x == 0 && lane_id() < p.used) p.shares[row * p.used + lane_id()] = shares[row * p.used + lane_id()];
}

// All rows, ready as they are, by the warps that multiply: a group a row.
__device__ inline void blend_rows(const Blend& p, const BlendMemory& m, float (*factors)[RANGES]) {
    const int pieces = p.units[0] * UNIT_COLS / 8;
    for (int row = own_group(); row < p.rows; row += SEVERAL_GROUPS) {
        const u16* from = p.x + (u64)row * p.x_stride;
        for (int i = threadIdx.x % (RANGES * LANES); i < pieces; i += RANGES * LANES) copy_16(m.inputs + row * m.stride + 8 * i, from + 8 * i, true);
    }
    if (threadIdx.x < p.rows * RANGES) factors[threadIdx.x / RANGES][threadIdx.x % RANGES] = p.x_factors[threadIdx.x];
}

// The hidden values of the block's slots, whose ranges get their powers of two here: a warp has a range of every second row, two at a time.
__device__ inline void blend_hidden(const Blend& p, const BlendMemory& m, const BlendShare& share, float (*factors)[RANGES]) {
    const int count = share.count;
    constexpr int TOGETHER = 2;
    const int range = warp_id() % RANGES;
    const Columns columns(p.units[1], range);
#pragma unroll 1
    for (int first = own_group(); first < count; first += TOGETHER * SEVERAL_GROUPS) {
        RangeOfRow x[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const float* from = p.hidden + (u64)share.slots[min(first + i * SEVERAL_GROUPS, count - 1)] * p.hidden_width;
            x[i].each(columns, [&](int c, float4& v, int) { v = c < p.hidden_width ? __ldcg((const float4*)(from + c)) : float4{0, 0, 0, 0}; });
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int n = first + i * SEVERAL_GROUPS;
            if (n >= count) break;
            float largest = 0;
            x[i].each(columns, [&](int, float4& v, int) { largest = fmaxf(largest, largest_of(v)); });
            const int exponent = exponent_of(warp_max(largest));
            const float factor = power_of_two(exponent);
            u16* to = m.inputs + n * m.stride;
            x[i].each(columns, [&](int c, float4& v, int) {
                *(uint2*)(to + c) = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
            });
            if (lane_id() == 0) factors[n][range] = power_of_two(-exponent);
        }
    }
}

// The block's tiles of gate and up, or of down; this lane's inputs are at `x`.
template <int MATRICES, class Flowing>
__device__ inline void blend_tiles(const Blend& p, const BlendMemory& m, const BlendShare& share, const u16* x, Flowing& flow,
                                   HandOver& hand_over, int& turn) {
    constexpr int PART = MATRICES == 1;
    const int rows = share.count;
    const int g = lane_id() / 4, t = lane_id() % 4, range = warp_id() % RANGES, units = p.units[PART];
    const int begin = range_begin(units, range), count = range_begin(units, range + 1) - begin, step = MATRICES == 2 ? flow.HALF : flow.UNITS;
    const StagedInputs<1> inputs(x + 16 * t + begin * UNIT_COLS, 0);
#pragma unroll 1
    for (int tile = share.begin[PART] + own_group(); tile < share.end[PART]; tile += SEVERAL_GROUPS, turn++) {
        float sums[MATRICES][4] = {};
#pragma unroll 1
        for (int from = 0; from < count; from += step) {
            flow.wait();
            flow.multiply(inputs.from(from), min(step, count - from), sums);
            __syncwarp();
            flow.ask();
        }
        hand_over.wait_free(turn);
        float* to = m.sums + turn % SUM_BUFFERS * 2 * m.each + range * p.rows * SUMS_STRIDE + g;
#pragma unroll
        for (int k = 0; k < 4 * MATRICES; k++) {
            const int n = 2 * t + k % 2;
            if (n < rows) to[k / 4 * m.each + n * SUMS_STRIDE + 8 * (k % 4 / 2)] = sums[k / 4][k % 4];
        }
        hand_over.filled(turn);
    }
}

// A value of a tile: the ranges of one input row, in order.
__device__ inline float blend_total(const Blend& p, const float* sums, const float* factors) {
    float total = 0;
#pragma unroll
    for (int range = 0; range < RANGES; range++) total = fmaf(sums[range * p.rows * SUMS_STRIDE], factors[range], total);
    return total;
}

// Adds up and writes the block's tiles, by one warp: lane 16 h + i has row i of a tile, for rows h, h + 2 and so on.
template <int MATRICES>
__device__ inline void blend_finish(const Blend& p, const BlendMemory& m, const BlendShare& share, const float (*factors)[RANGES],
                                    HandOver& hand_over, int& turn) {
    constexpr int PART = MATRICES == 1;
    const Weights& first = p.weights[MATRICES == 2 ? 0 : 2];
    const Weights& up = p.weights[1];
    const int i = lane_id() % TILE_ROWS, half = lane_id() / TILE_ROWS;
#pragma unroll 1
    for (int tile = share.begin[PART] + own_group(); tile < share.end[PART]; tile += SEVERAL_GROUPS, turn++) {
        const int row = tile * TILE_ROWS + i, of_experts = share.expert * first.rows + row;
        const bool there = row < first.rows;
        const float bias = first.bias && there ? first.bias[of_experts] : 0.0f;
        const float up_bias = MATRICES == 2 && up.bias && there ? up.bias[of_experts] : 0.0f;
        hand_over.wait_full(turn);
        const float* sums = m.sums + turn % SUM_BUFFERS * 2 * m.each + i;
#pragma unroll 1
        for (int n = half; n < share.count; n += 2) {
            const int slot = share.slots[n];
            const float* factor = factors[MATRICES == 2 ? share.rows[n] : n];
            float value = blend_total(p, sums + n * SUMS_STRIDE, factor) * first.factor; // exact
            if (first.bias) value += bias;
            if constexpr (MATRICES == 1) {
                if (there) first.out[(u64)slot * p.out_width + row] = value;
            } else {
                float of_up = blend_total(p, sums + m.each + n * SUMS_STRIDE, factor) * up.factor;
                if (up.bias) of_up += up_bias;
                if (there) p.hidden[(u64)slot * p.hidden_width + row] = activated(p.clamped, value, of_up);
            }
        }
        hand_over.freed(turn);
    }
}

// Until all blocks are here; what they wrote before can be read then. All are there at once: one fits on each multiprocessor.
__device__ inline void meet(u32* meeting) {
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 round, now;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(round) : "l"(meeting + 1) : "memory");
        __threadfence();
        if (atomicAdd(meeting, 1) == gridDim.x - 1) {
            *(volatile u32*)meeting = 0;
            __threadfence();
            atomicAdd(meeting + 1, 1);
        } else {
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(meeting + 1) : "memory");
            } while (now == round);
        }
        __threadfence();
    }
    __syncthreads();
}

template <class Format> __device__ void blend(const Blend& p) {
    extern __shared__ uint4 blend_memory[];
    __shared__ float factors[BLEND_ROWS][RANGES], shares[BLEND_SLOTS];
    __shared__ int chosen[BLEND_SLOTS];
    __shared__ HandOver hand_overs[SEVERAL_GROUPS];
    __shared__ BlendShare share;
    const BlendMemory m(p, blend_memory);
    const bool multiplies = warp_id() < SEVERAL_WARPS;
    if (threadIdx.x < SEVERAL_GROUPS) hand_overs[threadIdx.x].init();
    wait_for_the_one_before();
    let_the_next_begin();
    if (multiplies) blend_rows(p, m, factors);
    end_of_copies();
    blend_choose(p, m, chosen, shares);
    __syncthreads();
    if (warp_id() == 0) share.find(p, chosen);
    __syncthreads();
    BlendFlow<Format> flow(p, share, m.stages);
#pragma unroll 1
    for (int i = 0; multiplies && i < flow.STAGES; i++) flow.ask();
    wait_for_copies<BlendSize<Format>::STAGES>(); // for all but the weights
    __syncthreads();
    HandOver& hand_over = hand_overs[own_group()];
    const int n = min(lane_id() / 4, share.count - 1);
    int turn = 0;
    if (multiplies) {
        blend_tiles<2>(p, m, share, m.inputs + share.rows[n] * m.stride, flow, hand_over, turn);
    } else {
        blend_finish<2>(p, m, share, factors, hand_over, turn);
    }
    meet(p.meeting);
    if (multiplies) blend_hidden(p, m, share, factors);
    __syncthreads();
    if (multiplies) {
        blend_tiles<1>(p, m, share, m.inputs + n * m.stride, flow, hand_over, turn);
    } else {
        blend_finish<1>(p, m, share, factors, hand_over, turn);
    }
}

extern "C" __device__ const int blend_row_bytes = SEVERAL_GROUPS * SUM_BUFFERS * 2 * RANGES * SUMS_STRIDE * 4; // beside its inputs

#define BLEND(name, Format) \
    extern "C" __device__ const int blend_##name##_stages = BlendSize<Format>::BYTES * SEVERAL_WARPS; \
    extern "C" __global__ void __launch_bounds__(SEVERAL_THREADS, 1) blend_##name(const __grid_constant__ Blend p) { blend<Format>(p); }

BLEND(levels4, Levels4)
BLEND(fp4, Fp4)
BLEND(levels8, Levels8)
BLEND(floats, Floats)
