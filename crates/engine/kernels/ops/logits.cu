// What the host has to know of logits to choose a token, so that they need not travel.

constexpr int BEST_PARTS = 32; // of a row
constexpr int BEST_THREADS = 256;

// A logit as a number in the order of the floats, above all others if it is none; and a token so that the first of equals
// is the largest.
__device__ inline u64 rank_of(float logit, u32 token) {
    const u32 order = isnan(logit) ? 0xFFFFFFFFu : ordered(__fadd_rn(logit, 0.0f)); // the two zeros are equal
    return (u64)order << 32 | ~token;
}

__device__ inline u64 warp_max(u64 rank) {
    for (int step = 16; step > 0; step /= 2) rank = max(rank, __shfl_xor_sync(ALL_LANES, rank, step));
    return rank;
}

// The likeliest token of each part of a row, a block a part; the host is told in its own memory.
extern "C" __global__ void __launch_bounds__(BEST_THREADS) best(const float* logits, int vocab, u64* ranks, u64* host) {
    __shared__ u64 largest[BEST_THREADS / LANES];
    begin_kernel();
    const float* of = logits + (u64)blockIdx.y * vocab;
    const int begin = (u64)vocab * blockIdx.x / BEST_PARTS, end = (u64)vocab * (blockIdx.x + 1) / BEST_PARTS;
    u64 own = 0;
#pragma unroll 8
    for (int token = begin + threadIdx.x; token < end; token += BEST_THREADS) own = max(own, rank_of(of[token], token));
    own = warp_max(own);
    if (lane_id() == 0) largest[warp_id()] = own;
    __syncthreads();
    own = warp_max(lane_id() < BEST_THREADS / LANES ? largest[lane_id()] : 0);
    const int part = blockIdx.y * BEST_PARTS + blockIdx.x;
    if (threadIdx.x == 0) ranks[part] = own, host[part] = own;
}

// What the host wants of a row before a token is chosen by it, to the bit as it would do it itself (sample/change.rs). Both lists
// lie in its memory.

constexpr int CHANGE_THREADS = 128;
constexpr int WORD_TOKENS = 32;

// What penalties and biases do to one token's logit.
struct alignas(16) Shift {
    u32 token;
    float factor, less, bias;
};

// Strikes the tokens whose bits are 0, a thread a word of them: a warp reads its words at once, then goes through them together.
__device__ inline void strike(float* logits, int vocab, const u32* allowed, int words, int place) {
    const u32 own = place < words ? allowed[place] : 0;
    wait_for_the_one_before();
    for (int lane = 0; lane < LANES; lane++) {
        const u32 word = __shfl_sync(ALL_LANES, own, lane);
        const int token = (place - lane_id() + lane) * WORD_TOKENS + lane_id();
        if (token < vocab && !(word >> lane_id() & 1)) logits[token] = -INFINITY;
    }
}

// No logit that is struck is shifted, so the two need not wait for one another.
__device__ inline void shift_one(float* logits, int vocab, const u32* allowed, int words, const Shift& shift) {
    const u32 token = shift.token, word = token / WORD_TOKENS;
    if (token >= vocab) return;
    if (allowed && !(word < words && allowed[word] >> token % WORD_TOKENS & 1)) return;
    const float logit = logits[token];
    const float fair = logit > 0 ? __fdiv_rn(logit, shift.factor) : __fmul_rn(logit, shift.factor);
    logits[token] = __fadd_rn(__fsub_rn(fair, shift.less), shift.bias);
}

// One row. The first blocks strike, if anything is to be; the others shift, a thread a token.
extern "C" __global__ void __launch_bounds__(CHANGE_THREADS)
    change(float* logits, int vocab, const u32* allowed, int words, const Shift* shifts, int count) {
    let_the_next_begin();
    const int strikers = allowed ? div_up(div_up(vocab, WORD_TOKENS), CHANGE_THREADS) : 0;
    const int block = (int)blockIdx.x - strikers;
    if (block < 0) return strike(logits, vocab, allowed, words, blockIdx.x * CHANGE_THREADS + threadIdx.x);
    const int place = block * CHANGE_THREADS + threadIdx.x;
    const Shift shift = place < count ? shifts[place] : Shift{0xFFFFFFFFu};
    wait_for_the_one_before();
    shift_one(logits, vocab, allowed, words, shift);
}

// What logits weigh, to the bit as the host finds it (sample/weights.rs, sample/exp.rs): chunks of 64, whose weights are summed
// by 16 lanes, one after the other. No instruction may do two of the host's at once.

constexpr int WEIGH_THREADS = 256;
constexpr int CHUNK_LOGITS = 64;
constexpr int CHUNK_LANES = 16;

__device__ inline float exp_as_host(float x) {
    constexpr float LEAST = -87.0f, ROUND = 12582912.0f, LN2_HIGH = 0.6933594f, LN2_LOW = -2.1219444e-4f, LOG2_E_AS_HOST = 1.44269504088896340736f;
    constexpr float FACTORS[] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
    const float clamped = x > LEAST ? x : LEAST;
    const float rounded = __fadd_rn(__fmul_rn(clamped, LOG2_E_AS_HOST), ROUND), n = __fadd_rn(rounded, -ROUND);
    const float r = __fsub_rn(__fsub_rn(clamped, __fmul_rn(n, LN2_HIGH)), __fmul_rn(n, LN2_LOW));
    float series = 1.0f / 5040.0f;
#pragma unroll
    for (int i = 0; i < 7; i++) series = __fadd_rn(__fmul_rn(series, r), FACTORS[i]);
    const float power = __uint_as_float((__float_as_uint(rounded) << 23) + 0x3F800000u);
    return x > LEAST ? __fmul_rn(series, power) : 0.0f;
}

// The largest logit of a row, as `best` left it. Whole warps call it.
__device__ inline float largest_logit(const u64* ranks) {
    u64 rank = 0;
    for (int part = lane_id(); part < BEST_PARTS; part += LANES) rank = max(rank, ranks[part]);
    rank = warp_max(rank);
    const u32 order = rank >> 32;
    return __uint_as_float(order >> 31 ? order & 0x7FFFFFFFu : ~order);
}

// Sum and largest of each chunk of a row: half a warp a chunk.
extern "C" __global__ void __launch_bounds__(WEIGH_THREADS)
    weigh(const float* logits, int vocab, const u64* ranks, float scale, float2* chunks) {
    begin_kernel();
    const int count = div_up(vocab, CHUNK_LOGITS), chunk = blockIdx.x * (WEIGH_THREADS / CHUNK_LANES) + threadIdx.x / CHUNK_LANES;
    const int lane = threadIdx.x % CHUNK_LANES;
    const float* of = logits + (u64)blockIdx.y * vocab;
    const float largest = largest_logit(ranks + blockIdx.y * BEST_PARTS);
    float sum = 0, most = 0;
#pragma unroll
    for (int i = 0; i < CHUNK_LOGITS / CHUNK_LANES; i++) {
        const int token = chunk * CHUNK_LOGITS + i * CHUNK_LANES + lane;
        if (token >= vocab) break;
        const float weight = exp_as_host(__fmul_rn(__fsub_rn(of[token], largest), scale));
        sum = __fadd_rn(sum, weight), most = fmaxf(most, weight);
    }
    float total = 0;
#pragma unroll
    for (int i = 0; i < CHUNK_LANES; i++) total = __fadd_rn(total, __shfl_sync(ALL_LANES, sum, i, CHUNK_LANES));
    for (int step = CHUNK_LANES / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, step));
    if (lane == 0 && chunk < count) chunks[(u64)blockIdx.y * count + chunk] = {total, most};
}
