// Every block computes the inputs of its products itself, all blocks the same: it costs less than another barrier.

constexpr int VALUES = 8; // consecutive values that one thread stages
constexpr float LEVELS_MOST = 32512.f; // 127 * 256: the largest 16-bit value whose high byte fits

__host__ __device__ constexpr int staged_blocks(int cols) { return div_up(cols / BLOCK_COLS, GROUP_BLOCKS) * GROUP_BLOCKS; }
__host__ __device__ constexpr int staged_bytes(int cols) { return staged_blocks(cols) * 64; }

// `COUNT` staged vectors, and the sums of their blocks.
template <int COUNT, int COLS> struct StagedVectors {
    u8 values[COUNT][staged_bytes(COLS)];
    float sums[COUNT][LEVELS ? staged_blocks(COLS) : 1];
    __device__ Vector16 at(int index) const { return {values[index], sums[index]}; }
};

// What blocks add to the residual stream travels as f16, in parts of this: half of the bytes that every block asks for, and large
// enough for what some models have there.
constexpr float SHARE_UNIT = 16.f;

// Tells the values of this lane and of the next, if it is an even one. Whole warps call it.
__device__ inline void tell_share(u16* at, float value, bool real, Tag tag) {
    constexpr u32 NO_NUMBER = 0x7FFE; // of which the tag's rounding makes no zero
    const u32 half = value == value ? f32_to_f16(value / SHARE_UNIT) : NO_NUMBER, next = __shfl_down_sync(~0u, half, 1);
    if (real && lane_id() % 2 == 0) tell_word(at, tag.put_halves(half | next << 16));
}

// A run of other blocks' writing.
struct Asked {
    uint4 words;

    __device__ void ask(const u16* at) { words = ask_words(at); }
    __device__ void nothing(Tag tag) { words = make_uint4(tag.in_halves(), tag.in_halves(), tag.in_halves(), tag.in_halves()); }
    __device__ bool there(Tag tag) const { return tag.in_halves(words); }
};

struct Values {
    float v[VALUES];

    __device__ static Values zero() {
        Values values;
        for (int i = 0; i < VALUES; i++) values.v[i] = 0.f;
        return values;
    }
    __device__ static Values read(const float* at) {
        Values values;
        *(float4*)values.v = ((const float4*)at)[0];
        *(float4*)(values.v + 4) = ((const float4*)at)[1];
        return values;
    }
    __device__ static Values of_halves(uint4 halves) {
        const u32 words[4] = {halves.x, halves.y, halves.z, halves.w};
        Values values;
#pragma unroll
        for (int i = 0; i < VALUES; i++) values.v[i] = f16_to_f32((u16)(words[i / 2] >> 16 * (i % 2)));
        return values;
    }
    __device__ uint4 halves(float factor) const {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = pack_f16(v[2 * i] * factor, v[2 * i + 1] * factor);
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
    __device__ void write(float* at) const {
        ((float4*)at)[0] = *(const float4*)v;
        ((float4*)at)[1] = *(const float4*)(v + 4);
    }
    __device__ float largest() const {
        float most = 0.f;
        for (int i = 0; i < VALUES; i++) most = fmaxf(most, fabsf(v[i]));
        return most;
    }
    // Rounds to 16-bit integers and stores their high and low bytes at place `index * VALUES` of a staged vector.
    __device__ void stage(u8* vector, int index, float factor) const {
        constexpr u32 FIRST = 0x0040, SECOND = 0x0051, BOTH = 0x5410; // of two words their lowest bytes, or the next; two pairs
        u32 high[2], low[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 bits[4];
#pragma unroll
            for (int j = 0; j < 4; j++) bits[j] = integer_bits(v[4 * i + j] * factor);
            low[i] = __byte_perm(__byte_perm(bits[0], bits[1], FIRST), __byte_perm(bits[2], bits[3], FIRST), BOTH);
#pragma unroll
            for (int j = 0; j < 4; j++) bits[j] += 128;
            high[i] = __byte_perm(__byte_perm(bits[0], bits[1], SECOND), __byte_perm(bits[2], bits[3], SECOND), BOTH);
        }
        u8* at = vector + index / 4 * 64 + index % 4 * VALUES;
        *(uint2*)at = make_uint2(high[0], high[1]);
        *(uint2*)(at + 32) = make_uint2(low[0], low[1]);
    }
};

// Stores values as f16 at place `index * VALUES` of a staged vector, and the sum of each block's as they are stored. Whole
// warps call it, for consecutive places. Of levels' values the two middle pairs change places, so that an instruction's two
// registers are neighbours where they are loaded (product.cuh).
__device__ inline void stage_halves(u8* vector, float* sums, int index, uint4 halves, bool real) {
    if (real) ((uint4*)vector)[index] = LEVELS ? make_uint4(halves.x, halves.z, halves.y, halves.w) : halves;
    if constexpr (!LEVELS) return;
    const u32 words[4] = {halves.x, halves.y, halves.z, halves.w};
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 4; i++) sum += f16_to_f32((u16)words[i]) + f16_to_f32((u16)(words[i] >> 16));
    constexpr int RUNS = BLOCK_COLS / VALUES; // of a block
#pragma unroll
    for (int step = 1; step < RUNS; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (real && index % RUNS == 0) sums[index / RUNS] = sum;
}

// Sum and maximum over the block, the same in every thread.
__device__ inline float2 block_sum_max(float2 (&of_warps)[WARPS], float sum, float most) {
    sum = warp_sum(sum), most = warp_max(most);
    if (lane_id() == 0) of_warps[warp_id()] = make_float2(sum, most);
    block_sync();
    sum = 0.f, most = 0.f;
    for (int warp = 0; warp < WARPS; warp++) sum += of_warps[warp].x, most = fmaxf(most, of_warps[warp].y);
    return make_float2(sum, most);
}

__device__ inline float levels_factor(float most) { return most > 0.f ? quotient(LEVELS_MOST, most) : 0.f; }

// Runs of what other blocks tell as f16, eight values each.
struct ToldRun {
    const u16* from; // null: zeros
    int index;       // where it is staged
    bool real;       // whether it is
};

// Waits for this thread's runs, of which `locate` says what the i-th is, and stages them. Whole warps call it.
template <int COUNT, class Locate> __device__ inline void stage_told(u8* vector, float* sums, Tag tag, Locate locate) {
    ToldRun runs[COUNT];
    uint4 words[COUNT];
    bool missing[COUNT], some;
#pragma unroll
    for (int i = 0; i < COUNT; i++) runs[i] = locate(i), missing[i] = runs[i].from != nullptr, words[i] = make_uint4(0, 0, 0, 0);
    wait_gently(runs[0].from, [&](u32 word) { return tag.in_halves(word); });
    do {
        some = false;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (missing[i]) words[i] = ask_words(runs[i].from);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            missing[i] = missing[i] && !tag.in_halves(words[i]);
            some |= missing[i];
        }
    } while (some);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < COUNT; i++) stage_halves(vector, sums, runs[i].index, untagged_halves(words[i]), runs[i].real);
}

// A thread's part of the residual stream and of the norm's weight. Threads past the end have zeros.
struct NormInput {
    Values x, weight;
    bool real;

    // The weight never changes and can be asked for before a barrier.
    __device__ explicit NormInput(const float* norm) : x(Values::zero()), weight(Values::zero()) {
        static_assert(HIDDEN <= THREADS * VALUES && HIDDEN % VALUES == 0, "each thread stages one run of values");
        real = threadIdx.x < HIDDEN / VALUES;
        if (real) weight = Values::read(norm + threadIdx.x * VALUES);
    }

    __device__ void read(const float* residual) {
        if (real) x = Values::read(residual + threadIdx.x * VALUES);
    }

    // x += what the blocks that share it summed up for each row of a stage
    template <Stage STAGE> __device__ void add(float* residual, const u16* parts, Tag tag) {
        static_assert(TILE_ROWS % VALUES == 0, "a run is of one tile");
        constexpr int SHARERS = sharers_max<STAGE>();
        const int at = threadIdx.x * VALUES, first_of_warp = warp_id() * LANES * VALUES;
        // Beside experts, whose weights nobody can ask for yet, asking for all at once is faster.
        if (!ROUTED && first_of_warp < HIDDEN) wait_gently(parts + first_of_warp, [&](u32 word) { return tag.in_halves(word); });
        if (!real) return;
        const int count = sharers<STAGE>(at / TILE_ROWS);
        Asked asked[SHARERS];
        bool missing[SHARERS], some;
#pragma unroll
        for (int i = 0; i < SHARERS; i++) asked[i].nothing(tag), missing[i] = i < count;
        do {
            some = false;
#pragma unroll
            for (int i = 0; i < SHARERS; i++)
                if (missing[i]) asked[i].ask(parts + i * HIDDEN + at);
#pragma unroll
            for (int i = 0; i < SHARERS; i++) {
                missing[i] = missing[i] && !asked[i].there(tag);
                some |= missing[i];
            }
        } while (some);
#pragma unroll
        for (int part = 0; part < SHARERS; part++) {
            const Values share = Values::of_halves(untagged_halves(asked[part].words));
            for (int i = 0; i < VALUES; i++) x.v[i] += SHARE_UNIT * share.v[i];
        }
        x.write(residual + at);
    }

    __device__ float squares() const {
        float sum = 0.f;
        for (int i = 0; i < VALUES; i++) sum += x.v[i] * x.v[i];
        return sum;
    }

    __device__ void weigh() {
        for (int i = 0; i < VALUES; i++) x.v[i] *= weight.v[i];
    }
};
