// Packed matrix times vector on the tensor cores.
//
// An instruction takes 16 rows of weights and eight columns of "vectors". Here the columns are blocks of the one vector:
// lane 4 * g + t feeds block t of the weights, and column pair t is zero but for block t, so lane t gets the sum of its own
// block only, and can give it its own scale.
//
// Levels do not begin at 0: what they begin at meets the sum of the block's values, which is staged beside them.
//
// 8-bit rows meet a vector of 16-bit integers with one scale, split into two signed bytes: x = 256 * high + low, the two
// columns of a pair. They have one scale a row, and sum on from block to block.
//
// (Hopper has no fp8 `mma`: the compiler turns each into conversions and two f16 ones. Bytes run as they are.)

struct Lane {
    int g, t;
    __device__ Lane() : g(lane_id() / 4), t(lane_id() % 4) {}

    // Where this lane's 16 bytes lie among those of a group with so many blocks.
    __device__ int index(int blocks) const { return g * blocks + min(t, blocks - 1); }
};

// A staged vector in shared memory, 64 bytes a block, seen by one lane. Of integers these are 32 high bytes, then 32 low
// ones, for even and odd columns; of f16 they are the 32 values.
struct Staged {
    const u8* at;
    bool mine;

    __device__ Staged(const u8* vector, Lane lane, int odd_column)
        : at(vector + lane.t * 64 + lane.g % 2 * odd_column), mine(lane.t == lane.g / 2) {}

    // The lane's part of its block, if it has one: the others keep the zeros of `clear`, which would take as long to read.
    template <int WORDS4> __device__ void load(int group, uint4 (&x)[WORDS4]) const {
        const uint4* from = (const uint4*)(at + group * (GROUP_BLOCKS * 64));
#pragma unroll
        for (int i = 0; i < WORDS4; i++)
            if (mine) x[i] = from[i];
    }
    template <int WORDS4> static __device__ void clear(uint4 (&x)[WORDS4]) {
#pragma unroll
        for (int i = 0; i < WORDS4; i++) x[i] = make_uint4(0, 0, 0, 0);
    }
};

__device__ inline void mma(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- 8 bit

// Rows with one scale, as one lane holds them.
template <class Format> struct HeldRows;

// (row half, half of a block) of one lane
struct Weights8 {
    uint4 w[2][2];
    __device__ void load(const u8* group, Lane lane, int blocks) {
        const u8* at = group + lane.index(blocks) * 16;
#pragma unroll
        for (int i = 0; i < 4; i++) w[i / 2][i % 2] = *(const uint4*)(at + i * blocks * 128);
    }
    __device__ void times(const uint4 (&x)[2], int (&d)[4]) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            mma(d, w[0][i].x, w[1][i].x, w[0][i].y, w[1][i].y, x[i].x, x[i].y);
            mma(d, w[0][i].z, w[1][i].z, w[0][i].w, w[1][i].w, x[i].z, x[i].w);
        }
    }
};

template <> struct HeldRows<Rows8> : Weights8 {};

// The upper half of a byte is a sixteenth of it, rounded.
template <> struct HeldRows<Rows4> {
    uint4 w[2]; // (row half)
    __device__ void load(const u8* group, Lane lane, int blocks) {
        const u8* at = group + lane.index(blocks) * 16;
        w[0] = *(const uint4*)at, w[1] = *(const uint4*)(at + blocks * 128);
    }
    static __device__ void step(u32 top, u32 bottom, u32 x0, u32 x1, int (&d)[4]) {
        constexpr u32 UPPER = 0xF0F0F0F0u;
        mma(d, top << 4 & UPPER, bottom << 4 & UPPER, top & UPPER, bottom & UPPER, x0, x1);
    }
    __device__ void times(const uint4 (&x)[2], int (&d)[4]) const {
        step(w[0].x, w[1].x, x[0].x, x[0].y, d);
        step(w[0].y, w[1].y, x[0].z, x[0].w, d);
        step(w[0].z, w[1].z, x[1].x, x[1].y, d);
        step(w[0].w, w[1].w, x[1].z, x[1].w, d);
    }
};

// Sums over the four lanes of a row: rows g and g + 8.
__device__ inline float2 over_lanes(float2 sum) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        sum.x += __shfl_xor_sync(~0u, sum.x, step);
        sum.y += __shfl_xor_sync(~0u, sum.y, step);
    }
    return sum;
}

// Multiplies this warp's pieces of a matrix whose rows have one scale. Calls `finish(tile, sums)` where a tile's or the warp's
// pieces end.
template <class P, class Finish>
__device__ inline void product_rows(Pieces& pieces, Range range, const u8* vector, Finish finish) {
    using Rows = HeldRows<typename P::Format>;
    const Lane lane;
    const Staged staged(vector, lane, 32);
    uint4 x[2], y[2];
    Staged::clear(x), Staged::clear(y);
    int tile = range.begin / P::GROUPS, group = range.begin % P::GROUPS;
    int d[4] = {0, 0, 0, 0};
    for (int left = range.end - range.begin; left > 0;) {
        const int count = P::piece_groups(group, left);
        const bool last = group + count == P::GROUPS;
        const int blocks = last ? P::TAIL_BLOCKS : GROUP_BLOCKS; // in the piece's last group
        Rows first, second;
        staged.load(group, x);
        if (P::PAIRS && count == 2) {
            staged.load(group + 1, y);
            const u8* slot = pieces.use();
            first.load(slot, lane, GROUP_BLOCKS);
            second.load(slot + P::GROUP_BYTES, lane, blocks);
            pieces.release();
            first.times(x, d);
            second.times(y, d);
        } else {
            first.load(pieces.use(), lane, blocks);
            pieces.release();
            first.times(x, d);
        }
        left -= count;
        if (last || left == 0) {
            finish(tile, over_lanes({256.f * d[0] + d[1], 256.f * d[2] + d[3]}));
            d[0] = d[1] = d[2] = d[3] = 0;
        }
        group = last ? 0 : group + count;
        tile += last;
    }
}

// ---- Blocks with scales

__device__ inline void mma_f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Eight codes to eight f16 without arithmetic: sign at bit 15 and the rest at bits 11 to 9 is the value times 2^-14, below 1
// too. The word is packed so that two pairs need a shift and a mask, and two pairs another shift for their signs.
struct Halves {
    u32 pairs[4];
    __device__ explicit Halves(u32 word) {
        constexpr u32 SIGNS = 0x80008000u, REST = 0x0E000E00u;
        pairs[0] = word & (SIGNS | REST);
        pairs[1] = word << 3 & (SIGNS | REST);
        pairs[2] = (word << 6 & REST) | (word << 1 & SIGNS);
        pairs[3] = (word << 9 & REST) | (word << 2 & SIGNS);
    }
};

// What a lane holds of a group. `times` adds the two rows' products with its block, in units of 1 / UNIT.
template <class Format> struct Held;

template <> struct Held<Mxfp4> {
    static constexpr float UNIT = 16384.f; // 2^14: `Halves`
    uint4 w[2]; // (row half) codes of a block
    u32 scales; // (row half) one byte each
    __device__ void load(const u8* group, Lane lane, int blocks) {
        const int index = lane.index(blocks);
        w[0] = *(const uint4*)(group + index * 16);
        w[1] = *(const uint4*)(group + index * 16 + blocks * 128);
        scales = *(const u16*)(group + blocks * 256 + index * 2);
        if (lane.t >= blocks) scales = 0;
    }
    static __device__ void step(u32 top, u32 bottom, uint4 x, float (&d)[4]) {
        const Halves upper(top), lower(bottom);
        mma_f16(d, upper.pairs[0], lower.pairs[0], upper.pairs[1], lower.pairs[1], x.x, x.y);
        mma_f16(d, upper.pairs[2], lower.pairs[2], upper.pairs[3], lower.pairs[3], x.z, x.w);
    }
    __device__ void times(const uint4 (&x)[4], float, float2& sum) const {
        float d[4] = {0.f, 0.f, 0.f, 0.f};
        step(w[0].x, w[1].x, x[0], d);
        step(w[0].y, w[1].y, x[1], d);
        step(w[0].z, w[1].z, x[2], d);
        step(w[0].w, w[1].w, x[3], d);
        sum.x += __uint_as_float((scales & 0xFFu) << 23) * d[0];
        sum.y += __uint_as_float((scales >> 8) << 23) * d[2];
    }
};

// A level alone in 16 bits is an f16, 2^-24 times the level; scales in f16 are 2^24 times what they are.
struct LevelScales {
    uint2 of_rows; // (row half) scale, minimum
    __device__ void load(const u8* at, Lane lane, int blocks) {
        of_rows = *(const uint2*)(at + lane.index(blocks) * 8);
        if (lane.t >= blocks) of_rows = make_uint2(0, 0);
    }
    static __device__ float one(u32 both, float product, float block_sum) {
        return f16_to_f32((u16)both) * product + f16_to_f32((u16)(both >> 16)) * block_sum;
    }
    __device__ void add(float first, float second, float block_sum, float2& sum) const {
        sum.x += one(of_rows.x, first, block_sum);
        sum.y += one(of_rows.y, second, block_sum);
    }
};

// Levels at bit 4 are 2^-20 of themselves: they have a sum of their own.
template <> struct Held<Levels4> {
    static constexpr float UNIT = 1.f;
    uint4 w[2]; // (row half)
    u32 scales; // (row half) scale, sixteenths of the level that means 0
    __device__ void load(const u8* group, Lane lane, int blocks) {
        const int index = lane.index(blocks);
        w[0] = *(const uint4*)(group + index * 16);
        w[1] = *(const uint4*)(group + index * 16 + blocks * 128);
        scales = *(const u32*)(group + blocks * 256 + index * 4);
        if (lane.t >= blocks) scales = 0;
    }
    static __device__ void step(u32 top, u32 bottom, uint4 x, float (&d)[4], float (&e)[4]) {
        constexpr u32 LOW = 0x000F000Fu, HIGH = 0x00F000F0u;
        const u32 next_top = top >> 8, next_bottom = bottom >> 8;
        mma_f16(d, top & LOW, bottom & LOW, next_top & LOW, next_bottom & LOW, x.x, x.y);
        mma_f16(e, top & HIGH, bottom & HIGH, next_top & HIGH, next_bottom & HIGH, x.z, x.w);
    }
    __device__ void times(const uint4 (&x)[4], float block_sum, float2& sum) const {
        float d[4] = {0.f, 0.f, 0.f, 0.f}, e[4] = {0.f, 0.f, 0.f, 0.f};
        step(w[0].x, w[1].x, x[0], d, e);
        step(w[0].y, w[1].y, x[1], d, e);
        step(w[0].z, w[1].z, x[2], d, e);
        step(w[0].w, w[1].w, x[3], d, e);
        const float sixteenth = block_sum / 16.f;
        const auto byte = [&](int index) { return (float)(scales >> 8 * index & 0xFFu); };
        const auto product = [](float low, float high) { return 16777216.f * low + 1048576.f * high; };
        sum.x += byte(0) * (product(d[0], e[0]) - byte(1) * sixteenth);
        sum.y += byte(2) * (product(d[2], e[2]) - byte(3) * sixteenth);
    }
};

template <> struct Held<Levels8> {
    static constexpr float UNIT = 1.f;
    Weights8 levels;
    LevelScales scales;
    __device__ void load(const u8* group, Lane lane, int blocks) {
        levels.load(group, lane, blocks);
        scales.load(group + blocks * 512, lane, blocks);
    }
    static __device__ void step(u32 top, u32 bottom, u32 next_top, u32 next_bottom, uint4 x, float (&d)[4]) {
        const u32 first = 0x4140, second = 0x4342; // bytes with zeros between them
        mma_f16(d, __byte_perm(top, 0, first), __byte_perm(bottom, 0, first), __byte_perm(next_top, 0, first),
                __byte_perm(next_bottom, 0, first), x.x, x.y);
        mma_f16(d, __byte_perm(top, 0, second), __byte_perm(bottom, 0, second), __byte_perm(next_top, 0, second),
                __byte_perm(next_bottom, 0, second), x.z, x.w);
    }
    __device__ void times(const uint4 (&x)[4], float block_sum, float2& sum) const {
        float d[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 top = levels.w[0][i], bottom = levels.w[1][i];
            step(top.x, bottom.x, top.y, bottom.y, x[2 * i], d);
            step(top.z, bottom.z, top.w, bottom.w, x[2 * i + 1], d);
        }
        scales.add(d[0], d[2], block_sum, sum);
    }
};

// A staged f16 vector and the sums of its blocks.
struct Vector16 {
    const u8* values;
    const float* sums;
};

// Has a value worked out here, before the warp waits for its input, and not where it is used.
template <class T> __device__ inline void settle(T& value) { asm volatile("" : "+r"(value)); }

// What a warp multiplies of a matrix: its groups, and where the first of them lies.
struct Work {
    Range range;
    int row, group;
    Pieces pieces;

    template <class P> __device__ Work(P, Range range, Supplied& at)
        : range(range), row(range.begin / P::GROUPS), group(range.begin % P::GROUPS), pieces(at) {
        settle(row), settle(group), settle(pieces.used), settle(pieces.slot), settle(pieces.parity);
        settle(this->range.begin), settle(this->range.end);
    }
};

// Multiplies this warp's pieces of matrices whose blocks have scales. `ROWS` rows of groups, one an expert, make up a tile of
// sums; `vector(row)` is what a row of groups is multiplied with, `weight(row)` its part in the sum. `PAIRS`: pieces may be two groups.
template <class P, int ROWS, bool PAIRS, class Vector, class Weight, class Finish>
__device__ inline void product_scaled(Work& work, Vector vector, Weight weight, Finish finish) {
    using Lanes = Held<typename P::Format>;
    const Lane lane;
    Pieces& pieces = work.pieces;
    int row = work.row, group = work.group;
    float2 sum = {0.f, 0.f};
    uint4 x[4];
    Staged::clear(x);
    for (int left = work.range.end - work.range.begin; left > 0;) {
        const int count = PAIRS ? P::piece_groups(group, left) : 1;
        const bool last = group + count == P::GROUPS;
        const int blocks = last ? P::TAIL_BLOCKS : GROUP_BLOCKS; // in the piece's last group
        const Vector16 input = vector(row);
        const Staged staged(input.values, lane, 0);
        const float* block_sums = input.sums + group * GROUP_BLOCKS + lane.t;
        const u8* slot = pieces.use();
        float2 part = {0.f, 0.f};
        Lanes first;
        if (PAIRS && count == 2) {
            constexpr bool WHOLE = P::GROUPS % 2 != 0; // the tail is never the second of two
            Lanes second;
            first.load(slot, lane, GROUP_BLOCKS);
            second.load(slot + P::GROUP_BYTES, lane, WHOLE ? GROUP_BLOCKS : blocks);
            pieces.release();
            staged.load(group, x);
            first.times(x, block_sums[0], part);
            staged.load(group + 1, x);
            second.times(x, block_sums[GROUP_BLOCKS], part);
        } else {
            first.load(slot, lane, blocks);
            pieces.release();
            staged.load(group, x);
            first.times(x, block_sums[0], part);
        }
        const float w = weight(row);
        sum.x += w * part.x, sum.y += w * part.y;
        left -= count;
        row += last;
        if (left == 0 || (last && row % ROWS == 0)) {
            finish((row - last) / ROWS, over_lanes({Lanes::UNIT * sum.x, Lanes::UNIT * sum.y}));
            sum = {0.f, 0.f};
        }
        group = last ? 0 : group + count;
    }
}

// ---- Sums of a tile over the warps of a block

struct TileSums {
    static constexpr int TILES = most_of_stages(warp_tiles_max);
    float sums[2][WARPS][TILES][TILE_ROWS]; // by turns: a warp may be in the next stage while others still read

    // Takes a warp's sums of a tile: the first one it touches, or one after.
    template <Stage STAGE> __device__ void put(Range range, int tile, float2 sum) {
        const Lane lane;
        if (lane.t != 0) return;
        float* at = sums[STAGE % 2][warp_id()][tile - range.begin / tile_groups(STAGE)];
        at[lane.g] = sum.x, at[lane.g + 8] = sum.y;
    }

    // A warp without pieces adds nothing, wherever it stands.
    template <Stage STAGE> __device__ void put_nothing() {
        if (lane_id() < TILE_ROWS) sums[STAGE % 2][warp_id()][0][lane_id()] = 0.f;
    }

    // Where a row's sums will be: that of the first warp, and which warps have others.
    struct Places {
        int own, first, last;
        u32 wanted;
    };
    template <Stage STAGE> __device__ static Places places(const Plan& plan, const Row& row) {
        const TileWarps warps = plan.tiles[STAGE][row.index];
        Places places = {(warps.first * TILES + warps.place) * TILE_ROWS + row.in_tile, warps.first, warps.last,
                         (2u << warps.last) - (2u << warps.first)};
        settle(places.own), settle(places.first), settle(places.last), settle(places.wanted);
        return places;
    }

    // A row's sum over all warps, in their order.
    template <Stage STAGE> __device__ float row(const Places& warps, const Row& row) const {
        const auto& of_warps = sums[STAGE % 2];
        float sum = of_warps[0][0][warps.own];
        // All are asked for at once. Where there may be many, each warp has a fixed place and a bit.
        constexpr int MOST = tile_warps_max(STAGE);
        constexpr bool FEW = MOST <= WARPS / 3;
        constexpr int OTHERS = (FEW ? MOST : WARPS) - 1;
        float others[OTHERS];
#pragma unroll
        for (int i = 0; i < OTHERS; i++) others[i] = of_warps[FEW ? min(warps.first + 1 + i, WARPS - 1) : 1 + i][0][row.in_tile];
#pragma unroll
        for (int i = 0; i < OTHERS; i++) {
            const bool has = FEW ? warps.first + 1 + i <= warps.last : warps.wanted >> (1 + i) & 1u;
            sum += has ? others[i] : 0.f;
        }
        return sum;
    }
};
