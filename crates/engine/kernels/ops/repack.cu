// Weights of the general path made what the decode step in one kernel reads (pack.cuh there says how it lies): run once,
// when a model is loaded.

// A matrix, or experts one after the other, as formats.cuh has them.
struct Source {
    const u8* codes;
    const u8* scales;
    float factor;
    int layout; // LEVELS4 ..
    int rows;   // of an expert, or of the whole
    int cols;
    int group;  // columns that share a scale
    int experts;
};

enum { LEVELS4, FP4, LEVELS8, FLOATS };

__device__ inline int pieces_of(int layout) { return layout == FLOATS ? 4 : layout == LEVELS8 ? 2 : 1; }
__device__ inline int scale_bytes_of(int layout) { return layout == FLOATS ? 0 : layout == FP4 ? 4 : 8; }
__device__ inline float half_at(const u8* at) { return f16_to_f32(*(const u16*)at); }

// Where one weight stands.
struct Spot {
    u64 unit;
    int g, second, t, c;
    const u8* codes;  // of the lane
    const u8* scale;

    __device__ Spot(const Source& s, int expert, int row, int col) {
        const int units = div_up(s.cols, UNIT_COLS), tiles = div_up(s.rows, TILE_ROWS);
        unit = ((u64)expert * tiles + row / TILE_ROWS) * units + col / UNIT_COLS;
        g = row % 8, second = row % TILE_ROWS / 8, t = col % UNIT_COLS / 16, c = col % 16;
        codes = s.codes + unit * pieces_of(s.layout) * LANES * 16 + (4 * g + t) * 16;
        const int groups = UNIT_COLS / s.group, both = scale_bytes_of(s.layout);
        scale = s.scales + unit * both * 8 * groups + both * (g * groups + t * 16 / s.group) + both / 2 * second;
    }
    __device__ u32 word() const { return ((const u32*)codes)[2 * second + c / 8]; } // of 8 codes of 4 bits
    __device__ u32 level() const { return word() >> (4 * (c % 8 / 2) + 16 * (c % 2)) & 15; }
    // Sign and the other three bits of a code lie apart: `Fp4` in formats.cuh.
    __device__ u32 code() const {
        const int pair = c % 8 / 2;
        const u32 half = word() >> 16 * (c % 2), sign = pair == 0 ? 15 : pair == 1 ? 12 : 16 - pair;
        return (half >> sign & 1) << 3 | (half >> (9 - 3 * pair) & 7);
    }
    __device__ u32 byte() const { return codes[second * LANES * 16 + c]; }
};

__device__ inline float e2m1(u32 code) {
    const float values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return code & 8 ? -values[code & 7] : values[code & 7];
}

__device__ inline float weight(const Source& s, int expert, int row, int col) {
    const Spot at(s, expert, row, col);
    const float raised = 1.0f / 16777216.0f; // levels are f16 of 2^-24
    float value;
    switch (s.layout) {
    case LEVELS4: value = at.level() * raised * half_at(at.scale) + half_at(at.scale + 2); break;
    case FP4: value = e2m1(at.code()) / 16384.0f * half_at(at.scale); break;
    case LEVELS8: value = at.byte() * raised * half_at(at.scale) + half_at(at.scale + 2); break;
    default: value = half_at(at.codes + (2 * at.second + at.c / 8) * LANES * 16 + at.c % 8 * 2);
    }
    return value * s.factor;
}

// The largest magnitude of a row, by a block; no number, if one of the row is none: their bits are in order.
__device__ inline float row_largest(const Source& s, int row) {
    __shared__ u32 of_warps[LANES];
    u32 largest = 0;
    for (int col = threadIdx.x; col < s.cols; col += blockDim.x) {
        largest = max(largest, __float_as_uint(fabsf(weight(s, 0, row, col))));
    }
    largest = __reduce_max_sync(ALL_LANES, largest);
    if (lane_id() == 0) of_warps[warp_id()] = largest;
    __syncthreads();
    return __uint_as_float(__reduce_max_sync(ALL_LANES, lane_id() < blockDim.x / LANES ? of_warps[lane_id()] : 0));
}

// 8-bit rows with a scale each: a block a row. `first` is the row of the whole matrix that this part begins with.
extern "C" __global__ void pack_rows(const __grid_constant__ Source s, int first, float* scales, u8* out) {
    begin_kernel();
    const int row = blockIdx.x, blocks = s.cols / 32;
    const float largest = row_largest(s, row);
    const float scale = largest / 127.0f, levels = scale > 0 ? 1.0f / scale : 0.0f;
    const int whole = first + row, r = whole % TILE_ROWS;
    if (threadIdx.x == 0) scales[whole] = scale;
    u8* tile = out + (u64)(whole / TILE_ROWS) * TILE_ROWS * s.cols;
    for (int col = threadIdx.x; col < s.cols; col += blockDim.x) {
        const int block = col / 32, group = block / 4, count = min(4, blocks - 4 * group), part = col % 32 / 16;
        const int at = (((r / 8 * 2 + part) * 8 + r % 8) * count + block % 4) * 16 + col % 16;
        const int level = __float2int_rn(weight(s, 0, row, col) * levels);
        tile[group * 4 * TILE_ROWS * 32 + at] = (u8)min(max(level, -127), 127);
    }
}

// Rows of levels of 4 bits, laid as those of `Levels4`, and their steps: a block a row. What is past the last column stays as it is.
extern "C" __global__ void round_rows(const __grid_constant__ Source s, float* steps, u32* out) {
    begin_kernel();
    const int row = blockIdx.x, g = row % 8, second = row % TILE_ROWS / 8;
    const float step = row_largest(s, row) / 8, levels = step > 0 ? 1.0f / step : 0.0f;
    if (threadIdx.x == 0) steps[row] = step;
    u32* tile = out + (u64)(row / TILE_ROWS) * div_up(s.cols, UNIT_COLS) * LANES * 4;
    for (int word = threadIdx.x; word < div_up(s.cols, 8); word += blockDim.x) {
        u32 codes = 0;
        for (int c = 0; c < min(8, s.cols - 8 * word); c++) {
            const int level = min(max(__float2int_rd(weight(s, 0, row, 8 * word + c) * levels) + 8, 0), 15);
            codes |= (u32)level << (4 * (c / 2) + 16 * (c % 2));
        }
        tile[(word / 8 * LANES + 4 * g + word % 8 / 2) * 4 + 2 * second + word % 2] = codes;
    }
}

// MXFP4, a thread a block of 32 columns. Row i of an expert becomes row `step * i + offset`.
extern "C" __global__ void pack_experts(const __grid_constant__ Source s, int step, int offset, u8* out) {
    begin_kernel();
    const int blocks = s.cols / 32;
    const u64 all = (u64)s.experts * s.rows * blocks, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
        const int block = i % blocks, row = i / blocks % s.rows, expert = i / blocks / s.rows;
        const int to_row = step * row + offset, r = to_row % TILE_ROWS;
        const int group = block / 4, count = min(4, blocks - 4 * group), t = block % 4;
        const u64 tiles = (u64)step * s.rows / TILE_ROWS;
        u8* at = out + (expert * tiles + to_row / TILE_ROWS) * blocks * TILE_ROWS * 17 + group * 4 * TILE_ROWS * 17;
        u32* codes = (u32*)(at + (r * count + t) * 16);
        // Words of eight codes are the same on both paths.
        for (int word = 0; word < 4; word++) codes[word] = Spot(s, expert, row, 32 * block + 8 * word).word();
        // A power of two: its exponent is the scale.
        const float scale = half_at(Spot(s, expert, row, 32 * block).scale) * s.factor / 16384.0f;
        at[16 * 16 * count + (r % 8 * count + t) * 2 + r / 8] = (u8)(__float_as_uint(scale) >> 23);
    }
}

// Where 32 columns of a row go: row r of a tile, block t of a group that has `count` blocks (pack.cuh there).
struct Place {
    u8* group;
    int r, t, count;

    // `row_bytes`: that 32 columns of a row take; `all_rows`: of the packed matrix of one expert.
    __device__ Place(u8* out, int row_bytes, int all_rows, int cols, int expert, int row, int block) {
        const int blocks = cols / 32;
        r = row % TILE_ROWS, t = block % 4, count = min(4, blocks - block / 4 * 4);
        const u64 tile = (u64)expert * (all_rows / TILE_ROWS) + row / TILE_ROWS;
        group = out + (tile * blocks + block / 4 * 4) * TILE_ROWS * row_bytes;
    }
    __device__ int half() const { return (r % 8 * count + t) * 2 + r / 8; } // of what lies as [g][t][row half]
};

struct Place4 : Place {
    __device__ Place4(u8* out, int all_rows, int cols, int expert, int row, int block)
        : Place(out, 18, all_rows, cols, expert, row, block) {}
    __device__ u32* codes() const { return (u32*)(group + (r * count + t) * 16); }
    __device__ u8* scale() const { return group + TILE_ROWS * 16 * count + half() * 2; }
};

struct Place8 : Place {
    __device__ Place8(u8* out, int all_rows, int cols, int expert, int row, int block)
        : Place(out, 36, all_rows, cols, expert, row, block) {}
    __device__ u8* level(int col) const { return group + (((r / 8 * 2 + col / 16) * 8 + r % 8) * count + t) * 16 + col % 16; }
    __device__ u32* scale() const { return (u32*)(group + TILE_ROWS * 32 * count + half() * 4); }
};

// Least and most of 32 weights, and of 0.
__device__ inline float2 range_of(const Source& s, int expert, int row, int block) {
    float2 range = {0.0f, 0.0f};
    for (int col = 0; col < 32; col++) {
        const float value = weight(s, expert, row, 32 * block + col);
        range.x = fminf(range.x, value), range.y = fmaxf(range.y, value);
    }
    return range;
}

// 32 weights as (level - zero) * scale. Levels stay as they are, or are turned around where the scale is below zero; where zero is
// none of 16 levels they are made anew.
struct Block4 {
    float scale, zero;
    bool turned, anew;

    __device__ Block4(const Source& s, int expert, int row, int block) : turned(false), anew(false) {
        const u8* both = Spot(s, expert, row, 32 * block).scale;
        float minimum = half_at(both + 2) * s.factor;
        scale = half_at(both) / 16777216.0f * s.factor;
        if (scale < 0) minimum += 15.0f * scale, scale = -scale, turned = true;
        zero = scale > 0 ? -minimum / scale : -1.0f;
        if (zero >= 0 && zero < 15.9f) return;
        const float2 range = range_of(s, expert, row, block);
        scale = (range.y - range.x) / 15.0f, zero = scale > 0 ? -range.x / scale : 0.0f;
        turned = false, anew = true;
    }
};

// Levels of 4 bits, a block for a row of all experts: their scales are parts of the row's largest. Row i of an expert becomes row
// `step * i + offset` of `all_rows`.
extern "C" __global__ void pack_levels4(const __grid_constant__ Source s, int step, int offset, int all_rows, float* scales, u8* out) {
    __shared__ float largest_of[LANES];
    begin_kernel();
    const int row = blockIdx.x, to_row = step * row + offset, blocks = s.cols / 32;
    float largest = 0;
    for (int i = threadIdx.x; i < s.experts * blocks; i += blockDim.x)
        largest = fmaxf(largest, Block4(s, i / blocks, row, i % blocks).scale);
    largest = warp_max(largest);
    if (lane_id() == 0) largest_of[warp_id()] = largest;
    __syncthreads();
    largest = warp_max(lane_id() < blockDim.x / LANES ? largest_of[lane_id()] : 0.0f);
    const float unit = largest / 255.0f;
    if (threadIdx.x == 0) scales[to_row] = unit;
    for (int i = threadIdx.x; i < s.experts * blocks; i += blockDim.x) {
        const int expert = i / blocks, block = i % blocks;
        const Block4 from(s, expert, row, block);
        const Place4 to(out, all_rows, s.cols, expert, to_row, block);
        const int scale = unit > 0 ? min(__float2int_rn(from.scale / unit), 255) : 0, zero = __float2int_rn(from.zero * 16.0f);
        to.scale()[0] = scale, to.scale()[1] = zero;
        for (int word = 0; word < 4; word++) {
            u32 bits = Spot(s, expert, row, 32 * block + 8 * word).word();
            if (from.turned) bits = ~bits;
            if (from.anew) {
                bits = 0;
                for (int col = 0; col < 8 && scale > 0; col++) {
                    const float level = weight(s, expert, row, 32 * block + 8 * word + col) / (scale * unit) + zero / 16.0f;
                    bits |= (u32)min(max(__float2int_rn(level), 0), 15) << (4 * (col / 2) + 16 * (col % 2));
                }
            }
            to.codes()[word] = bits;
        }
    }
}

// The power of two below which weights of a layout lie, but for the factor of the whole matrix; FP4's are up to 6 of them.
__device__ inline int top_exponent(int layout) {
    return layout == FLOATS ? 14 : layout == FP4 ? 4 : layout == LEVELS8 ? -3 : -6;
}

// 32 weights as 256 levels between the smallest and the largest of them. `unit`: what they are divided by first.
__device__ inline void quantize(const Source& s, int expert, int row, int block, float unit, const Place8& to) {
    const float2 range = range_of(s, expert, row, block);
    const u32 scale = f32_to_f16((range.y - range.x) / unit / 255.0f * 16777216.0f), minimum = f32_to_f16(range.x / unit);
    const float step = f16_to_f32(scale) / 16777216.0f, from = f16_to_f32(minimum);
    for (int col = 0; col < 32; col++) {
        const float value = weight(s, expert, row, 32 * block + col) / unit;
        const int level = step > 0 ? __float2int_rn((value - from) / step) : 0;
        *to.level(col) = (u8)min(max(level, 0), 255);
    }
    *to.scale() = scale | minimum << 16;
}

// Levels of 8 bits with scale and minimum for 32 columns, a thread for those of a row: as they are, or made anew where the source
// has other groups or none. Rows as above.
extern "C" __global__ void pack_levels8(const __grid_constant__ Source s, int step, int offset, int all_rows, float* scales, u8* out) {
    begin_kernel();
    const int blocks = s.cols / 32;
    const bool levels = s.group == 32 && (s.layout == LEVELS4 || s.layout == LEVELS8);
    const float unit = levels ? s.factor : s.factor * exp2f(top_exponent(s.layout) + 3.0f);
    const u64 all = (u64)s.experts * s.rows * blocks, stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
        const int block = i % blocks, row = i / blocks % s.rows, expert = i / blocks / s.rows, to_row = step * row + offset;
        const Place8 to(out, all_rows, s.cols, expert, to_row, block);
        if (block == 0 && expert == 0) scales[to_row] = unit;
        if (!levels) {
            quantize(s, expert, row, block, unit, to);
            continue;
        }
        *to.scale() = *(const u32*)Spot(s, expert, row, 32 * block).scale;
        for (int col = 0; col < 32; col++) {
            const Spot at(s, expert, row, 32 * block + col);
            *to.level(col) = s.layout == LEVELS4 ? at.level() : at.byte();
        }
    }
}

// (rows, cols) to (cols, rows) in bf16.
extern "C" __global__ void transpose_rows(const __grid_constant__ Source s, u16* out) {
    begin_kernel();
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (u64)s.rows * s.cols; i += (u64)gridDim.x * blockDim.x) {
        const int row = i % s.rows, col = i / s.rows;
        u16 bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(weight(s, 0, row, col)));
        out[i] = bits;
    }
}

// Two vectors by turns.
extern "C" __global__ void by_turns(const float* first, const float* second, u64 count, float* out) {
    begin_kernel();
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        out[2 * i] = first[i], out[2 * i + 1] = second[i];
    }
}
