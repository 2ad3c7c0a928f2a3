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
    __device__ u32 word() const { return ((const u32*)codes)[2 * second + c / 8]; }
    __device__ u32 level() const { return word() >> (4 * (c % 8 / 2) + 16 * (c % 2)) & 15; }
    // Sign and the other three bits of a code lie apart: `Fp4` in formats.cuh.
    __device__ u32 code() const {
        const int pair = c % 8 / 2;
        const u32 half = word() >> 16 * (c % 2), sign = pair == 0 ? 15 : pair == 1 ? 12 : 16 - pair;
        return (half >> sign & 1) << 3 | (half >> (9 - 3 * pair) & 7);
    }
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
    case LEVELS8: value = at.codes[at.second * LANES * 16 + at.c] * raised * half_at(at.scale) + half_at(at.scale + 2); break;
    default: value = half_at(at.codes + (2 * at.second + at.c / 8) * LANES * 16 + at.c % 8 * 2);
    }
    return value * s.factor;
}

// 8-bit rows with a scale each: a block a row. `first` is the row of the whole matrix that this part begins with.
extern "C" __global__ void pack_rows(const __grid_constant__ Source s, int first, float* scales, u8* out) {
    __shared__ float largest_of[LANES];
    begin_kernel();
    const int row = blockIdx.x, blocks = s.cols / 32;
    float largest = 0;
    for (int col = threadIdx.x; col < s.cols; col += blockDim.x) largest = fmaxf(largest, fabsf(weight(s, 0, row, col)));
    largest = warp_max(largest);
    if (lane_id() == 0) largest_of[warp_id()] = largest;
    __syncthreads();
    largest = warp_max(lane_id() < blockDim.x / LANES ? largest_of[lane_id()] : 0.0f);
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
