// Packed matrix times vector on the integer tensor cores.
//
// The vector is 16-bit integers with one scale, split into two signed bytes: x = 256 * high + low. An instruction takes 16
// rows and 32 columns of weights, and eight columns of "vectors". Here they are the high and low bytes of four blocks:
// lane 4 * g + t feeds block t of the weights, and column pair t is zero but for block t, so lane t gets the sum of its
// own block only, and can give it its own MXFP4 scale. 8-bit rows have one scale for all blocks, and sum on.
//
// (Hopper has no fp8 `mma`: the compiler turns each into conversions and two f16 ones. Integers run as they are.)

struct Lane {
    int g, t;
    __device__ Lane() : g(lane_id() / 4), t(lane_id() % 4) {}

    // Where this lane's 16 bytes lie among those of a group with so many blocks.
    __device__ int index(int blocks) const { return g * blocks + min(t, blocks - 1); }
};

// A staged vector in shared memory: for each block 32 high bytes, then 32 low ones. Seen by one lane.
struct Staged {
    const u8* at;
    int stride; // bytes from group to group

    __device__ Staged(const u8* vector, const u8* zeros, Lane lane) {
        const bool mine = lane.t == lane.g / 2;
        at = mine ? vector + lane.t * 64 + (lane.g & 1) * 32 : zeros;
        stride = mine ? GROUP_BLOCKS * 64 : 0;
    }
    // The 32 bytes of the lane's block.
    __device__ void load(int group, uint4 (&x)[2]) const {
        const uint4* from = (const uint4*)(at + group * stride);
        x[0] = from[0], x[1] = from[1];
    }
};

__device__ inline void mma(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- 8 bit

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

// Sums over the four lanes of a row: rows g and g + 8.
__device__ inline float2 over_lanes(float2 sum) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        sum.x += __shfl_xor_sync(~0u, sum.x, step);
        sum.y += __shfl_xor_sync(~0u, sum.y, step);
    }
    return sum;
}

// Multiplies this warp's pieces of an 8-bit matrix. Calls `finish(tile, sums)` where a tile's or the warp's pieces end.
template <class P, class Finish>
__device__ inline void product_8bit(Ring& ring, Range range, const u8* vector, const u8* zeros, Finish finish) {
    const Lane lane;
    const Staged staged(vector, zeros, lane);
    int tile = range.begin / P::PIECES, piece = range.begin % P::PIECES;
    int d[4] = {0, 0, 0, 0};
    for (int left = range.end - range.begin; left > 0; left--) {
        const bool last = piece + 1 == P::PIECES;
        Weights8 weights;
        uint4 x[2];
        staged.load(piece, x);
        weights.load(ring.use(), lane, last ? P::TAIL_BLOCKS : GROUP_BLOCKS);
        ring.release();
        weights.times(x, d);
        if (last || left == 1) {
            finish(tile, over_lanes({256.f * d[0] + d[1], 256.f * d[2] + d[3]}));
            d[0] = d[1] = d[2] = d[3] = 0;
        }
        piece = last ? 0 : piece + 1;
        tile += last;
    }
}

// ---- MXFP4

// Codes to bytes, twice their value: those above zero, and zero for the others (bit 3 of a selector copies the sign of the
// byte it names, and none of these has one).
struct Levels {
    u32 low, high;
    // Written so that the compiler keeps them in registers: it would make them anew for each use.
    __device__ Levels() {
        asm volatile("mov.b32 %0, 0x03020100;" : "=r"(low));
        asm volatile("mov.b32 %0, 0x0C080604;" : "=r"(high));
    }
    __device__ u32 positive(u32 codes) const {
        u32 bytes;
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(codes));
        return bytes;
    }
};

struct Weights4 {
    uint4 w[2]; // (row half) codes of a block
    u32 scales; // (row half) one byte each
    __device__ void load(const u8* group, Lane lane, int blocks) {
        const int index = lane.index(blocks);
        w[0] = *(const uint4*)(group + index * 16);
        w[1] = *(const uint4*)(group + index * 16 + blocks * 128);
        scales = *(const u16*)(group + blocks * 256 + index * 2);
    }
    static __device__ void step(const Levels& levels, u32 top, u32 bottom, u32 b0, u32 b1, int (&plus)[4], int (&minus)[4]) {
        const u32 top_signs = top ^ 0x88888888u, bottom_signs = bottom ^ 0x88888888u;
        mma(plus, levels.positive(top), levels.positive(bottom), levels.positive(top >> 16), levels.positive(bottom >> 16), b0, b1);
        mma(minus, levels.positive(top_signs), levels.positive(bottom_signs), levels.positive(top_signs >> 16),
            levels.positive(bottom_signs >> 16), b0, b1);
    }
    // Adds the two rows' products with the block, twice their value.
    __device__ void times(const Levels& levels, const uint4 (&x)[2], float2& sum) const {
        int plus[4] = {0, 0, 0, 0}, minus[4] = {0, 0, 0, 0};
        step(levels, w[0].x, w[1].x, x[0].x, x[0].y, plus, minus);
        step(levels, w[0].y, w[1].y, x[0].z, x[0].w, plus, minus);
        step(levels, w[0].z, w[1].z, x[1].x, x[1].y, plus, minus);
        step(levels, w[0].w, w[1].w, x[1].z, x[1].w, plus, minus);
        const int top = (plus[0] - minus[0]) * 256 + plus[1] - minus[1];
        const int bottom = (plus[2] - minus[2]) * 256 + plus[3] - minus[3];
        sum.x += __uint_as_float((scales & 0xFFu) << 23) * (float)top;
        sum.y += __uint_as_float((scales >> 8) << 23) * (float)bottom;
    }
};

// Multiplies this warp's pieces of MXFP4 matrices. `ROWS` rows of pieces, one an expert, make up a tile of sums;
// `vector(row)` is what a row of pieces is multiplied with, `weight(row)` its part in the sum.
template <class P, int ROWS, class Vector, class Weight, class Finish>
__device__ inline void product_mxfp4(Ring& ring, Range range, const u8* zeros, Vector vector, Weight weight, Finish finish) {
    const Lane lane;
    const Levels levels;
    int row = range.begin / P::PIECES, piece = range.begin % P::PIECES;
    float2 sum = {0.f, 0.f};
    for (int left = range.end - range.begin; left > 0; left--) {
        const bool last = piece + 1 == P::PIECES;
        const Staged staged(vector(row), zeros, lane);
        const u8* slot = ring.use();
        float2 part = {0.f, 0.f};
        if (!last) {
            Weights4 first, second;
            uint4 x[2], y[2];
            first.load(slot, lane, GROUP_BLOCKS);
            second.load(slot + P::GROUP_BYTES, lane, GROUP_BLOCKS);
            ring.release();
            staged.load(piece * 2, x);
            first.times(levels, x, part);
            staged.load(piece * 2 + 1, y);
            second.times(levels, y, part);
        } else {
            constexpr int GROUPS = P::GROUPS - (P::PIECES - 1) * P::PIECE_GROUPS; // in the last piece
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                const int blocks = i + 1 == GROUPS ? P::TAIL_BLOCKS : GROUP_BLOCKS;
                Weights4 weights;
                uint4 x[2];
                weights.load(slot + i * P::GROUP_BYTES, lane, blocks);
                if (lane.t >= blocks) weights.scales = 0;
                staged.load(piece * 2 + i, x);
                weights.times(levels, x, part);
            }
            ring.release();
        }
        const float w = weight(row);
        sum.x += w * part.x, sum.y += w * part.y;
        row += last;
        const bool ends = last && row % ROWS == 0;
        if (ends || left == 1) {
            finish((row - last) / ROWS, over_lanes({0.5f * sum.x, 0.5f * sum.y}));
            sum = {0.f, 0.f};
        }
        piece = last ? 0 : piece + 1;
    }
}

// ---- Sums of a tile over the warps of a block

// A warp's pieces touch at most two tiles.
struct TileSums {
    float sums[WARPS][2][TILE_ROWS];

    // Takes a warp's sums of a tile: the first one it touches, or the one after.
    template <Stage STAGE> __device__ void put(Range range, int tile, float2 sum) {
        const Lane lane;
        if (lane.t != 0) return;
        float* at = sums[warp_id()][tile != range.begin / tile_pieces(STAGE)];
        at[lane.g] = sum.x, at[lane.g + 8] = sum.y;
    }

    // A warp without pieces adds nothing, wherever it stands.
    __device__ void put_nothing() {
        if (lane_id() < TILE_ROWS) sums[warp_id()][0][lane_id()] = 0.f;
    }

    // A row's sum over all warps, in their order.
    template <Stage STAGE> __device__ float row(const Plan& plan, const Row& row) const {
        const TileWarps warps = plan.tiles[STAGE][row.index];
        float sum = sums[warps.first][warps.second][row.in_tile];
        for (int warp = warps.first + 1; warp <= warps.last; warp++) sum += sums[warp][0][row.in_tile];
        return sum;
    }
};
