// How weights lie on the card, and how they become operands of the tensor cores.
//
// A matrix is tiles of 16 rows, a tile is units of 64 columns. Of a unit, lane 4 g + t has columns 16 t .. 16 t + 15 of rows
// g and g + 8, in pieces of 16 bytes, so a warp reads whole lines. The unit is four products of 16 columns; product j takes
// columns 16 t + 4 j .. + 3 of each lane. Inputs are taken apart the same way, so which columns share a product does not
// matter. The lane's 16 columns lie in one group of columns that share a scale.

constexpr int TILE_ROWS = 16;
constexpr int UNIT_COLS = 64;

// The operand of one product: 16 rows, 16 columns.
struct Operand {
    u32 a0, a1, a2, a3;
};

// One unit of a lane, as it lies in memory, in pieces of 16 bytes and with what scales it.
template <int count> struct Raw {
    uint4 pieces[count];
    uint2 scales;
};

// level * scale + minimum, levels of 0 to 15. Pair i of a word: bits 4 i .. and 16 + 4 i ... The bits of a level are an f16
// by themselves, 2^-24 times the level, so one mask makes two of them; the scale takes the power of two back.
struct Levels4 {
    static constexpr int PIECES = 1, SCALE_BYTES = 8; // scale and minimum, of two rows

    struct Scales {
        u32 low, high, minimum; // for levels at bit 0 and at bit 4

        __device__ Scales(u32 both) : low(both_halves(both, 0)), minimum(both_halves(both, 1)) {
            high = mul_f16x2(low, 0x2C002C00u); // a sixteenth
        }
        __device__ u32 first(u32 word) const { return fma_f16x2(word & 0x000F000Fu, low, minimum); }
        __device__ u32 second(u32 word) const { return fma_f16x2(word & 0x00F000F0u, high, minimum); }
    };
    __device__ static Operand operand(const Raw<1>& raw, int j) {
        const Scales s0(raw.scales.x), s1(raw.scales.y);
        const u32 w0 = j < 2 ? raw.pieces[0].x : raw.pieces[0].y, w1 = j < 2 ? raw.pieces[0].z : raw.pieces[0].w;
        const u32 low = j % 2 ? w0 >> 8 : w0, high = j % 2 ? w1 >> 8 : w1;
        return {s0.first(low), s1.first(high), s0.second(low), s1.second(high)};
    }
};

// e2m1 * scale: its sign at bit 15 and its other bits at 11 to 9 are the value times 2^-14 in f16, below 1 too. The bits of
// the four codes in half a word are apart, so that a mask finds the first, a shift and a mask the second. Signs of pairs 0 to
// 3 stand at bits 15, 12, 14 and 13, the others at 9, 6, 3 and 0.
struct Fp4 {
    static constexpr int PIECES = 1, SCALE_BYTES = 4; // scales of two rows

    template <int i> __device__ static u32 pair(u32 word, u32 scale) {
        constexpr u32 SIGNS = 0x80008000u, OTHERS = 0x0E000E00u;
        const u32 top = word << 3 * i;
        u32 value;
        if constexpr (i < 2) value = top & (SIGNS | OTHERS);
        if constexpr (i >= 2) value = (top & OTHERS) | (word << (i - 1) & SIGNS);
        return mul_f16x2(value, scale);
    }
    __device__ static Operand operand(const Raw<1>& raw, int j) {
        const u32 low = j < 2 ? raw.pieces[0].x : raw.pieces[0].y, high = j < 2 ? raw.pieces[0].z : raw.pieces[0].w;
        const u32 s0 = both_halves(raw.scales.x, 0), s1 = both_halves(raw.scales.x, 1);
        if (j % 2 == 0) return {pair<0>(low, s0), pair<0>(high, s1), pair<1>(low, s0), pair<1>(high, s1)};
        return {pair<2>(low, s0), pair<2>(high, s1), pair<3>(low, s0), pair<3>(high, s1)};
    }
};

// level * scale + minimum, levels of 0 to 255, whose bits are an f16 too.
struct Levels8 {
    static constexpr int PIECES = 2, SCALE_BYTES = 8;

    __device__ static u32 pair(u32 word, int i, u32 scale, u32 minimum) {
        return fma_f16x2(__byte_perm(word, 0, i ? 0x4342 : 0x4140), scale, minimum);
    }
    __device__ static Operand operand(const Raw<2>& raw, int j) {
        const u32 low = (&raw.pieces[0].x)[j], high = (&raw.pieces[1].x)[j];
        const u32 s0 = both_halves(raw.scales.x, 0), m0 = both_halves(raw.scales.x, 1);
        const u32 s1 = both_halves(raw.scales.y, 0), m1 = both_halves(raw.scales.y, 1);
        return {pair(low, 0, s0, m0), pair(high, 0, s1, m1), pair(low, 1, s0, m0), pair(high, 1, s1, m1)};
    }
};

// f16 as it is.
struct Floats {
    static constexpr int PIECES = 4, SCALE_BYTES = 0;

    __device__ static Operand operand(const Raw<4>& raw, int j) {
        const uint4 low = raw.pieces[j / 2], high = raw.pieces[2 + j / 2];
        return j % 2 == 0 ? Operand{low.x, high.x, low.y, high.y} : Operand{low.z, high.z, low.w, high.w};
    }
};

// The weights of a matrix. Of each unit, scales lie as (g, group, two rows).
struct Weights {
    const uint4* codes;
    const u8* scales;
    const float* bias; // or none
    float* out;        // (rows, out_stride)
    float factor;      // on every product: a power of two
    int rows;          // of an expert, or of the whole
    int group_shift;   // a lane's group of a unit is t >> group_shift: 1 for groups of 32 columns, 0 for 16
};

template <class Format> __device__ inline int scale_bytes(const Weights& w) {
    return Format::SCALE_BYTES * 8 * (4 >> w.group_shift);
}

// Where the scales of a lane stand in those of a unit.
template <class Format> __device__ inline int scale_at(const Weights& w) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    return Format::SCALE_BYTES * (g * (4 >> w.group_shift) + (t >> w.group_shift));
}

template <class Format> __device__ inline uint2 read_scales(const u8* at) {
    if constexpr (Format::SCALE_BYTES == 8) return *(const uint2*)at;
    if constexpr (Format::SCALE_BYTES == 4) return {*(const u32*)at, 0};
    return {0, 0};
}

template <class Format> __device__ inline void load_unit(Raw<Format::PIECES>& raw, const Weights& w, u64 unit) {
#pragma unroll
    for (int p = 0; p < Format::PIECES; p++) {
        raw.pieces[p] = load_once(w.codes + (unit * Format::PIECES + p) * LANES + lane_id());
    }
    if constexpr (Format::SCALE_BYTES > 0) {
        raw.scales = read_scales<Format>(w.scales + unit * scale_bytes<Format>(w) + scale_at<Format>(w));
    }
}
