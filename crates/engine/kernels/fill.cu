// Weights made on the card, for measuring: exact shapes, random values.

__device__ inline u32 hash(u64 value) {
    value ^= value >> 33;
    value *= 0xFF51AFD7ED558CCDull;
    value ^= value >> 33;
    value *= 0xC4CEB9FE1A85EC53ull;
    return (u32)(value ^ value >> 33);
}

// Uniform in -1 .. 1.
__device__ inline float hash_unit(u64 value) { return (float)(int)hash(value) / 2147483648.f; }

__device__ inline size_t first_index() { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline size_t index_step() { return (size_t)gridDim.x * blockDim.x; }

extern "C" __global__ void fill_f32(float* out, size_t count, float middle, float spread, u64 seed) {
    for (size_t i = first_index(); i < count; i += index_step()) out[i] = middle + spread * hash_unit(seed + i);
}

extern "C" __global__ void fill_f16(u16* out, size_t count, float spread, u64 seed) {
    for (size_t i = first_index(); i < count; i += index_step()) out[i] = f32_to_f16(spread * hash_unit(seed + i));
}

extern "C" __global__ void fill_bf16(u16* out, size_t count, float spread, u64 seed) {
    for (size_t i = first_index(); i < count; i += index_step()) out[i] = f32_to_bf16(spread * hash_unit(seed + i));
}

// Cached keys and values: `scales` are two of f16.
extern "C" __global__ void fill_cache(u32* out, size_t words, u32 scales, u64 seed) {
    for (size_t i = first_index(); i < words; i += index_step()) {
        const int at = i % (UNIT_BYTES / 4) * 4, in_half = at < KEYS_BYTES ? at : at - KEYS_BYTES;
        out[i] = in_half < UNIT_LEVELS ? hash(seed + i) : scales;
    }
}

// Packed 8-bit matrices are bytes and nothing else.
extern "C" __global__ void fill_8bit(u32* out, size_t words, u64 seed) {
    for (size_t i = first_index(); i < words; i += index_step()) out[i] = hash(seed + i);
}

// Tiles of `blocks` blocks, whose words are so many codes and then scales. Codes are random; scales are `scales`, and random
// where `random` has bits.
extern "C" __global__ void fill_blocks(u32* out, size_t words, int blocks, int block_words, u32 scales, u32 random, u64 seed) {
    constexpr int CODE_WORDS = TILE_ROWS * 4;
    for (size_t i = first_index(); i < words; i += index_step()) {
        const int in_tile = i % (size_t)(blocks * block_words);
        const int group = in_tile / (GROUP_BLOCKS * block_words);
        const int group_blocks = min(GROUP_BLOCKS, blocks - group * GROUP_BLOCKS);
        const bool codes = in_tile - group * GROUP_BLOCKS * block_words < group_blocks * CODE_WORDS;
        const u32 bits = hash(seed + i);
        out[i] = codes ? bits : scales + (bits & random);
    }
}
