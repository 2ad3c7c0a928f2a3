// Values between blocks of the grid. Each word carries, in two of its bits, the number of the layer that wrote it: whoever
// needs it asks until the number is right. So a value takes one trip to the second-level cache and one back, and there is
// no barrier. A place is written once a layer, by one block, and everyone has read it before its next writing, because
// that depends on what all of them made of it.

// The layer's number, counted on from token to token.
struct Tag {
    u32 bits; // the lowest two

    __device__ explicit Tag(u32 layers) : bits(layers & 3u) {}

    // In f32 the two lowest bits.
    __device__ u32 put(float value) const { return __float_as_uint(value) + 2u & ~3u | bits; }
    __device__ bool in(u32 word) const { return (word & 3u) == bits; }
    __device__ bool in(uint4 words) const { return in(words.x) && in(words.y) && in(words.z) && in(words.w); }

    // In two f16 the lowest bit of each.
    static constexpr u32 HALVES_MASK = 0x00010001u;
    __device__ u32 in_halves() const { return bits & 1u | bits << 15 & 0x10000u; }
    __device__ u32 put_halves(u32 halves) const { return halves + HALVES_MASK & ~HALVES_MASK | in_halves(); }
    __device__ bool in_halves(u32 word) const { return ((word ^ in_halves()) & HALVES_MASK) == 0; }
    __device__ bool in_halves(uint4 words) const {
        const u32 mine = in_halves();
        return (((words.x ^ mine) | (words.y ^ mine) | (words.z ^ mine) | (words.w ^ mine)) & HALVES_MASK) == 0;
    }
};

// The largest f16 that the tag's rounding does not make infinite.
constexpr float HALF_MAX = 65472.f;

// Without its tag.
__device__ inline float untagged(u32 word) { return __uint_as_float(word & ~3u); }
__device__ inline uint4 untagged_halves(uint4 words) {
    constexpr u32 REST = ~Tag::HALVES_MASK;
    return make_uint4(words.x & REST, words.y & REST, words.z & REST, words.w & REST);
}

__device__ inline void tell_word(void* at, u32 word) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
}

__device__ inline void tell_value(float* at, float value, Tag tag) { tell_word(at, tag.put(value)); }

__device__ inline u32 ask_word(const void* at) {
    u32 word;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
    return word;
}

// One lane asks for one word of what its warp needs, if there is any, until it is there. All blocks asking for everything would
// keep the second-level cache busy while others still need it.
template <class There> __device__ inline void wait_gently(const void* at, There there) {
    if (lane_id() == 0 && at != nullptr)
        while (!there(ask_word(at))) {}
    __syncwarp();
}

__device__ inline u64 ask_two_words(const void* at) {
    u64 words;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(words) : "l"(at) : "memory");
    return words;
}

__device__ inline uint4 ask_words(const void* at) {
    uint4 words;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(at)
                 : "memory");
    return words;
}
