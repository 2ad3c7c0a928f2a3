// A mixture of up to eight rows, from the router's logits to what `mix` adds up, in one kernel.
//
// As in `several` a block a multiprocessor stays, two groups of eight warps take tiles by turns, and one more warp a group adds
// their ranges up; and another one brings their weights, those of gate and up and after them those of down, as far ahead as there
// is room. A block has tiles of one expert, for all rows that chose it; which, every block finds out for itself. Hidden values are
// everybody's: each is waited for by itself (`HiddenWord`), by the warps that multiply its range. The bits are those of `split`.
//
// Most of this runs once, so it is kept short: an instruction of all warps that is asked for the first time costs more than ten
// that are not.

constexpr int BLEND_ROWS = 8;
constexpr int BLEND_CHOSEN = LANES; // rows, times experts of a row
constexpr int BLEND_THREADS = (SEVERAL_WARPS + 2 * SEVERAL_GROUPS) * LANES; // that multiply, add up, bring
constexpr int BLEND_SLOTS_MAX = 8; // of a group's ring
constexpr int BLEND_TOGETHER = 3; // slots whose hidden values a warp has in registers

struct Blend {
    Weights weights[3];     // gate, up, down
    const u16* x;           // (rows, x_stride) f16
    const float* x_factors; // (rows, RANGES) powers of two
    const float* logits;    // (rows, experts)
    u32* hidden;            // two halves of `hidden_words`, by turns: (slots, hidden_width) words
    u32* halves;            // its highest bit says which half's turn it is
    float* shares;          // (slots) as `mix` reads them
    int rows, used, x_stride, hidden_width, out_width, experts, normalize, clamped;
    int units[2], tiles[2]; // of gate and up, of down
    int slots, slot_units;  // of a group's ring, and the most units in one of them
    int hidden_words;
};

// A hidden value on its way from one block to others: all its bits are turned over, so that zero says that there is none yet. (No
// operation has a result whose bits are all ones.)
struct HiddenWord {
    __device__ static void tell(u32* at, float value) {
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(~__float_as_uint(value)) : "memory");
    }
    __device__ static u32 ask(const u32* at) {
        u32 word;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
        return word;
    }
    // Four of them, as they are.
    __device__ static float4 ask_four(const u32* at) {
        float4 words;
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(words.x), "=f"(words.y), "=f"(words.z), "=f"(words.w) : "l"(at) : "memory");
        return words;
    }
    __device__ static bool there(float4 words) {
        const auto some = [](float word) { return __float_as_uint(word) != 0; };
        return some(words.x) && some(words.y) && some(words.z) && some(words.w);
    }
    __device__ static float4 values(float4 words) {
        const auto value = [](float word) { return __uint_as_float(~__float_as_uint(word)); };
        return {value(words.x), value(words.y), value(words.z), value(words.w)};
    }
};

// Hidden words have two places, by turns: while one is written and read, the other one is cleared for the next launch.
struct HiddenHalf {
    // Not before the last launch is over.
    __device__ static u32* own(const Blend& p) { return p.hidden + (HiddenWord::ask(p.halves) >> 31) * p.hidden_words; }
    // By one warp of so many of the block.
    __device__ static void clear_other(const Blend& p, const u32* own, int warp, int warps) {
        uint4* other = (uint4*)(own == p.hidden ? p.hidden + p.hidden_words : p.hidden);
        const int all = gridDim.x * warps * LANES;
        for (int i = (blockIdx.x * warps + warp) * LANES + lane_id(); i < p.hidden_words / 4; i += all) other[i] = {0, 0, 0, 0};
    }
    // By one thread of each block that will not ask again: when all were here the highest bit has changed, and nothing else.
    __device__ static void done(const Blend& p) { atomicAdd(p.halves, blockIdx.x > 0 ? 1 : 0x80000000u - (gridDim.x - 1)); }
};

// a / b, rounded down, of numbers whose quotient is far below 2^16 and b below 2^10: what is rounded here cannot reach the next one.
__device__ inline u32 small_quotient(u32 a, u32 b) { return (u32)__fdividef(a + 0.5f, b); }

// What a block has: an expert, its slots and their rows, and tiles of gate and up, of down.
struct BlendShare {
    int expert, count, begin[2], end[2];
    short slots[BLEND_ROWS], rows[BLEND_ROWS];
    u32* hidden; // this launch's half

    // By one warp, a lane a slot. Experts are in the order of their first slots; their blocks are neighbours.
    __device__ void find(const Blend& p, const int* chosen) {
        const int lane = lane_id(), all = p.rows * p.used, own = lane < all ? chosen[lane] : -1;
        const u32 same = __match_any_sync(ALL_LANES, own), before = (1u << lane) - 1;
        const u32 firsts = __ballot_sync(ALL_LANES, lane < all && (same & before) == 0);
        const u32 experts = __popc(firsts), mine = small_quotient(blockIdx.x * experts, gridDim.x);
        // A row of no numbers may have chosen one expert several times: what does not fit is left out.
        const int place = __popc(same & before);
        if (lane < all && place < BLEND_ROWS && __popc(firsts & ((1u << (__ffs(same) - 1)) - 1)) == mine) {
            slots[place] = lane, rows[place] = small_quotient(lane, p.used);
            if (place == 0) expert = own, count = min(__popc(same), BLEND_ROWS);
        }
        // The first block of this expert and of the next, then edges of tiles: a lane each.
        const u32 first_of = small_quotient((mine + lane % 2) * gridDim.x + experts - 1, experts);
        const u32 first = __shfl_sync(ALL_LANES, first_of, 0), blocks = __shfl_sync(ALL_LANES, first_of, 1) - first;
        const u32 part = lane / 2, edge = small_quotient(p.tiles[part % 2] * (blockIdx.x - first + lane % 2), blocks);
        if (part < 2) (lane % 2 ? end : begin)[part] = edge;
    }
};

// A group's weights on their way: a ring of slots, each with a few ranges of a tile of one matrix, which lie together. The ring is whole
// tiles, so a slot is always used by the same warps.
template <class Format> struct BlendRing {
    static constexpr int RANGES_EACH = Format::PIECES == 4 ? 1 : Format::PIECES == 2 ? 2 : 4; // in a slot
    static constexpr int CODES = Format::PIECES * LANES;                                  // of a unit, pieces of 16 bytes
    static constexpr int SCALES = Format::SCALE_BYTES == 4 ? 4 : Format::SCALE_BYTES * 2; // the same, at most
    static constexpr int UNIT = CODES + SCALES;

    uint4* memory;
    u64 *full, *empty; // barriers of the slots
    int slots, slot_units;
    int slot, parity; // of what comes next

    __device__ BlendRing(const Blend& p, uint4* memory, u64 (*barriers)[BLEND_SLOTS_MAX])
        : memory(memory), full(barriers[0]), empty(barriers[1]), slots(p.slots), slot_units(p.slot_units), slot(0), parity(0) {}
    __device__ void make_barriers() const {
        if (lane_id() < slots) barrier_init(full + lane_id(), COPY_ARRIVALS), barrier_init(empty + lane_id(), RANGES_EACH);
        barriers_are_there();
    }
    __device__ void next(int count) {
        for (slot += count; slot >= slots; slot -= slots) parity ^= 1;
    }
    // By the warp that brings: a tile whose first unit is `unit`.
    __device__ void bring(const Weights& w, u64 unit, int units) {
        const int scales = scale_bytes<Format>(w);
#pragma unroll 1
        for (int range = 0; range < RANGES; range += RANGES_EACH, next(1)) {
            const int begin = range_begin(units, range), count = range_begin(units, range + RANGES_EACH) - begin;
            barrier_wait(empty + slot, parity ^ 1);
            if (!copies_here()) continue;
            uint4* to = memory + slot * slot_units * UNIT;
            copies_begin(full + slot, count * (CODES * 16 + scales));
            copy_part(to, w.codes + (unit + begin) * CODES, count * CODES * 16, full + slot);
            if constexpr (Format::SCALE_BYTES > 0) {
                copy_part(to + slot_units * CODES, w.scales + (unit + begin) * scales, count * scales, full + slot);
            }
            copies_asked(full + slot);
        }
    }
    // By the warps that multiply: sums += the warp's range of the next tile * the inputs from its first unit on.
    __device__ void multiply(const Weights& w, int units, StagedInputs<1> x, float (&sums)[1][4]) {
        const int range = warp_id() % RANGES, from = range_begin(units, range), count = range_begin(units, range + 1) - from;
        const int before = from - range_begin(units, range / RANGES_EACH * RANGES_EACH), stride = scale_bytes<Format>(w);
        const uint4* codes = memory + slot * slot_units * UNIT + before * CODES + lane_id();
        const u8* scales = (const u8*)(memory + slot * slot_units * UNIT + slot_units * CODES) + before * stride + scale_at<Format>(w);
        const auto load = [&](Raw<Format::PIECES>& raw, int i) {
#pragma unroll
            for (int k = 0; k < Format::PIECES; k++) raw.pieces[k] = codes[i * CODES + k * LANES];
            if constexpr (Format::SCALE_BYTES > 0) raw.scales = read_scales<Format>(scales + i * stride);
        };
        barrier_wait(full + slot, parity);
        // Two at a time without a question between them: the loads of one go while the other is multiplied.
        int i = 0;
#pragma unroll 1
        for (; i + 1 < count; i += 2) {
            Raw<Format::PIECES> first, second;
            load(first, i), load(second, i + 1);
            multiply_unit<Format, 1>(first, x, i, sums);
            multiply_unit<Format, 1>(second, x, i + 1, sums);
        }
        if (i < count) {
            Raw<Format::PIECES> last;
            load(last, i);
            multiply_unit<Format, 1>(last, x, i, sums);
        }
        HandOver::arrive(empty + slot);
        next(RANGES / RANGES_EACH);
    }
};

// The shared memory of a block.
struct BlendMemory {
    u16* inputs;   // (rows, stride), of down the block's slots
    float* sums;   // of the group: (SUM_BUFFERS, matrices, ranges, rows, SUMS_STRIDE)
    float* logits; // (rows, SEVERAL_EXPERTS), before there are sums
    uint4* ring;   // of the group
    int stride;    // f16: lanes then read from different banks
    int each;      // floats of a matrix in a buffer of sums
    static_assert(SEVERAL_EXPERTS <= SEVERAL_GROUPS * SUM_BUFFERS * 2 * RANGES * SUMS_STRIDE, "a row's logits have room in its sums");

    __device__ BlendMemory(const Blend& p, uint4* memory, int group, int unit) {
        stride = max(p.units[0], p.units[1]) * UNIT_COLS + 8, each = RANGES * p.rows * SUMS_STRIDE;
        inputs = (u16*)memory;
        float* all = (float*)(inputs + p.rows * stride);
        sums = all + group * SUM_BUFFERS * 2 * each, logits = all;
        ring = (uint4*)(all + SEVERAL_GROUPS * SUM_BUFFERS * 2 * each) + group * p.slots * p.slot_units * unit;
    }
};

// The experts of a row, by one warp. There is room for its logits where sums will come.
__device__ inline void blend_choose(const Blend& p, float* logits, int row, int* chosen) {
    const int steps = div_up(p.experts, LANES);
#pragma unroll 1
    for (int e = lane_id(); e < steps * LANES; e += LANES) logits[e] = e < p.experts ? p.logits[row * p.experts + e] : -INFINITY;
    const auto logit = [&](int i) { return logits[i * LANES + lane_id()]; };
    pick_experts<1>(logit, steps, p.experts, p.used, [&](int i, int expert, float) {
        if (lane_id() == 0) chosen[row * p.used + i] = expert;
    });
}

// What `mix` adds them up with, by whoever has time.
__device__ inline void blend_share(const Blend& p, int row, int* chosen) {
    const auto logit = [&](int i) {
        const int e = i * LANES + lane_id();
        return e < p.experts ? p.logits[row * p.experts + e] : -INFINITY;
    };
    choose_row<1>(logit, div_up(p.experts, LANES), p.experts, p.used, p.normalize, chosen + row * p.used, p.shares + row * p.used);
}

// All rows, ready as they are, by one warp.
__device__ inline void blend_rows(const Blend& p, const BlendMemory& m, float (*factors)[RANGES], u64* there) {
    const int bytes = p.units[0] * UNIT_COLS * 2;
    if (copies_here()) {
        copies_begin(there, p.rows * bytes);
#pragma unroll 1
        for (int row = 0; row < p.rows; row++) copy_part(m.inputs + row * m.stride, p.x + (u64)row * p.x_stride, bytes, there);
        copies_asked(there);
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane_id(); i < p.rows * RANGES; i += LANES) factors[i / RANGES][i % RANGES] = p.x_factors[i];
}

// The hidden values of a range of some of the block's slots, of every second from `first` on, once they are there. The range gets its
// powers of two here.
__device__ inline void blend_hidden(const Blend& p, const BlendMemory& m, const BlendShare& share, int first, float (*factors)[RANGES]) {
    const int range = warp_id() % RANGES, count = share.count;
    const Columns columns(p.units[1], range);
    const int end = min(columns.end, p.hidden_width);
    RangeOfRow x[BLEND_TOGETHER]; // words, then values
    bool there;
    do {
        // All are asked for before any is looked at.
#pragma unroll
        for (int i = 0; i < BLEND_TOGETHER; i++) {
            const int n = min(first + i * SEVERAL_GROUPS, count - 1);
            const u32* from = share.hidden + (u64)share.slots[n] * p.hidden_width;
            x[i].each(columns, [&](int c, float4& words, int) { words = HiddenWord::ask_four(from + min(c, end - 4)); });
        }
        there = true;
#pragma unroll
        for (int i = 0; i < BLEND_TOGETHER; i++) {
            x[i].each(columns, [&](int, float4& words, int) { there &= HiddenWord::there(words); });
        }
    } while (!__all_sync(ALL_LANES, there));
#pragma unroll
    for (int i = 0; i < BLEND_TOGETHER; i++) {
        const int n = first + i * SEVERAL_GROUPS;
        if (n >= count) break;
        float largest = 0;
        x[i].each(columns, [&](int c, float4& v, int) {
            v = c < end ? HiddenWord::values(v) : float4{0, 0, 0, 0};
            largest = fmaxf(largest, largest_of(v));
        });
        const int exponent = exponent_of(warp_max(largest));
        const float factor = power_of_two(exponent);
        u16* to = m.inputs + n * m.stride;
        x[i].each(columns, [&](int c, float4& v, int) {
            *(uint2*)(to + c) = {pack_f16(v.x * factor, v.y * factor), pack_f16(v.z * factor, v.w * factor)};
        });
        if (lane_id() == 0) factors[n][range] = power_of_two(-exponent);
    }
}

// Until the hidden values of this warp's range are there, as far as can be told by one word a tile: its last slot is written last.
__device__ inline void blend_wait_for_hidden(const Blend& p, const BlendShare& share) {
    const Columns columns(p.units[1], warp_id() % RANGES);
    const int tile = columns.begin + lane_id() * TILE_ROWS;
    const u32* word = share.hidden + (u64)share.slots[share.count - 1] * p.hidden_width + tile;
    const bool asks = tile < min(columns.end, p.hidden_width);
    while (!__all_sync(ALL_LANES, !asks || HiddenWord::ask(word) != 0)) {}
}

// The hidden values of the block's slots, by the warps that multiply. They come where the rows were.
__device__ inline void blend_stage_hidden(const Blend& p, const BlendMemory& m, const BlendShare& share, float (*factors)[RANGES]) {
    named_barrier(1, SEVERAL_WARPS * LANES);
    blend_wait_for_hidden(p, share);
#pragma unroll 1
    for (int first = own_group(); first < share.count; first += BLEND_TOGETHER * SEVERAL_GROUPS) {
        blend_hidden(p, m, share, first, factors);
    }
    named_barrier(2 + warp_id() % RANGES, SEVERAL_GROUPS * LANES);
}

// The weights of the block's tiles, by the warp of a group that brings them.
template <class Ring> __device__ inline void blend_bring(const Blend& p, const BlendShare& share, int group, Ring& ring) {
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
#pragma unroll 1
        for (int tile = share.begin[part] + group; tile < share.end[part]; tile += SEVERAL_GROUPS) {
#pragma unroll 1
            for (int matrix = 2 * part; matrix < 2 + part; matrix++) {
                ring.bring(p.weights[matrix], (u64)(share.expert * p.tiles[part] + tile) * p.units[part], p.units[part]);
            }
        }
    }
}

// The block's tiles of gate and up, part 0, or of down; this lane's inputs are at `x`.
template <class Ring>
__device__ inline void blend_tiles(const Blend& p, const BlendMemory& m, const BlendShare& share, int part, const u16* x, Ring& ring,
                                   HandOver& hand_over, int& turn) {
    const int g = lane_id() / 4, t = lane_id() % 4, range = warp_id() % RANGES, units = p.units[part];
    const StagedInputs<1> inputs(x + 16 * t + range_begin(units, range) * UNIT_COLS, 0);
#pragma unroll 1
    for (int tile = share.begin[part] + own_group(); tile < share.end[part]; tile += SEVERAL_GROUPS, turn++) {
        float* to = m.sums + turn % SUM_BUFFERS * 2 * m.each + range * p.rows * SUMS_STRIDE + g;
#pragma unroll 1
        for (int matrix = 2 * part; matrix < 2 + part; matrix++, to += m.each) {
            float sums[1][4] = {};
            ring.multiply(p.weights[matrix], units, inputs, sums);
            if (matrix != 1) hand_over.wait_free(turn);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int n = 2 * t + k % 2;
                if (n < share.count) to[n * SUMS_STRIDE + 8 * (k / 2)] = sums[0][k];
            }
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
                                    int group, HandOver& hand_over, int& turn) {
    constexpr int PART = MATRICES == 1;
    const Weights& first = p.weights[MATRICES == 2 ? 0 : 2];
    const Weights& up = p.weights[1];
    const int i = lane_id() % TILE_ROWS, half = lane_id() / TILE_ROWS;
#pragma unroll 1
    for (int tile = share.begin[PART] + group; tile < share.end[PART]; tile += SEVERAL_GROUPS, turn++) {
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
                if (there) HiddenWord::tell(share.hidden + (u64)slot * p.hidden_width + row, activated(p.clamped, value, of_up));
            }
        }
        hand_over.freed(turn);
    }
}

template <class Format> __device__ void blend(const Blend& p) {
    using Ring = BlendRing<Format>;
    extern __shared__ uint4 blend_memory[];
    __shared__ float factors[BLEND_ROWS][RANGES], hidden_factors[BLEND_ROWS][RANGES];
    __shared__ int chosen[BLEND_CHOSEN];
    __shared__ u64 rows_there, ring_barriers[SEVERAL_GROUPS][2][BLEND_SLOTS_MAX];
    __shared__ HandOver hand_overs[SEVERAL_GROUPS];
    __shared__ BlendShare share;
    const int extra = warp_id() - SEVERAL_WARPS, group = extra < 0 ? warp_id() / RANGES : extra % SEVERAL_GROUPS;
    const bool multiplies = extra < 0, brings = extra >= SEVERAL_GROUPS;
    const BlendMemory m(p, blend_memory, group, Ring::UNIT);
    Ring ring(p, m.ring, ring_barriers[group]);
    HandOver& hand_over = hand_overs[group];
    if (brings) {
        ring.make_barriers();
        if (lane_id() == 0) hand_over.init();
    }
    if (extra == 0 && lane_id() == 0) barrier_init(&rows_there, COPY_ARRIVALS);
    if (extra == 0) barriers_are_there();
    wait_for_the_one_before();
    let_the_next_begin();
    if (warp_id() < p.rows) blend_choose(p, m.logits + warp_id() * SEVERAL_EXPERTS, warp_id(), chosen);
    if (extra == 0) blend_rows(p, m, factors, &rows_there);
    if (extra == 1 && lane_id() == 0) share.hidden = HiddenHalf::own(p);
    __syncthreads();
    if (warp_id() == 0) share.find(p, chosen);
    __syncthreads();
    if (brings) return blend_bring(p, share, group, ring);
    int turn = 0;
    if (multiplies) {
        const int n = min(lane_id() / 4, share.count - 1);
        ring.next(warp_id() % RANGES / Ring::RANGES_EACH);
        barrier_wait(&rows_there, 0);
        blend_tiles(p, m, share, 0, m.inputs + share.rows[n] * m.stride, ring, hand_over, turn);
        blend_stage_hidden(p, m, share, hidden_factors);
        blend_tiles(p, m, share, 1, m.inputs + n * m.stride, ring, hand_over, turn);
    } else {
        HiddenHalf::clear_other(p, share.hidden, group, SEVERAL_GROUPS);
        blend_finish<2>(p, m, share, factors, group, hand_over, turn);
        for (int row = group; blockIdx.x == 0 && row < p.rows; row += SEVERAL_GROUPS) blend_share(p, row, chosen);
        blend_finish<1>(p, m, share, hidden_factors, group, hand_over, turn);
        if (extra == 1 && lane_id() == 0) HiddenHalf::done(p);
    }
}

extern "C" __device__ const int blend_threads = BLEND_THREADS;
extern "C" __device__ const int blend_slots_max = BLEND_SLOTS_MAX;
extern "C" __device__ const int blend_row_bytes = SEVERAL_GROUPS * SUM_BUFFERS * 2 * RANGES * SUMS_STRIDE * 4; // beside its inputs

#define BLEND(name, Format) \
    extern "C" __device__ const int blend_##name##_ranges = BlendRing<Format>::RANGES_EACH; \
    extern "C" __device__ const int blend_##name##_unit = BlendRing<Format>::UNIT * 16; \
    extern "C" __global__ void __launch_bounds__(BLEND_THREADS, 1) blend_##name(const __grid_constant__ Blend p) { blend<Format>(p); }

BLEND(levels4, Levels4)
BLEND(fp4, Fp4)
BLEND(levels8, Levels8)
BLEND(floats, Floats)
