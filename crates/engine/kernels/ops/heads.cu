// From the products of q, k and v to turned queries, and keys and values in the cache. HEAD_DIM is given.

struct Place {
    float* qkv; // (rows, (heads + 2 kv_heads) * HEAD_DIM)
    const float* q_norm; // (HEAD_DIM) or none
    const float* k_norm;
    const float2* angles; // (rows, HEAD_DIM / 2) cosine and sine
    const int* places;    // (rows) block * 32 + token
    u16* cache;           // of this layer: (blocks, keys and values, kv_heads, 32, HEAD_DIM) f16
    float q_eps, k_eps;
    int rows, heads, kv_heads;
    int adjacent; // values 2 i and 2 i + 1 turn together, else i and i + HEAD_DIM / 2
};

constexpr int HALF = HEAD_DIM / 2;
constexpr int PAIRS = (HALF + LANES - 1) / LANES; // of a lane
constexpr int BLOCK_TOKENS = 32;

// What is cached is finite: even a value that nobody looks at is multiplied with zero.
__device__ inline u16 cached(float value) { return f32_to_f16(fminf(fmaxf(value, -F16_MAX), F16_MAX)); }

// What the pairs of a lane are turned by.
struct Angles {
    float2 of[PAIRS];

    __device__ Angles(const Place& p, int row) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const int pair = lane_id() + i * LANES;
            if (pair < HALF) of[i] = p.angles[(u64)row * HALF + pair];
        }
    }
};

// A head of a row, normalised and turned, by one warp: what was asked for, and what becomes of it.
struct Head {
    bool query, key;
    float a[PAIRS], b[PAIRS];

    __device__ static int first(const Place& p, int pair) { return p.adjacent ? 2 * pair : pair; }
    __device__ static int second(const Place& p, int pair) { return p.adjacent ? 2 * pair + 1 : pair + HALF; }

    __device__ void load(const Place& p, int row, int head) {
        query = head < p.heads, key = !query && head < p.heads + p.kv_heads;
        const float* values = p.qkv + ((u64)row * (p.heads + 2 * p.kv_heads) + head) * HEAD_DIM;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const int pair = lane_id() + i * LANES;
            if (pair < HALF) a[i] = values[first(p, pair)], b[i] = values[second(p, pair)];
        }
    }
    // `write` has two places and their values.
    template <class Write> __device__ void turn(const Place& p, const Angles& angles, Write write) const {
        float squares = 0;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (lane_id() + i * LANES < HALF) squares = fmaf(b[i], b[i], fmaf(a[i], a[i], squares));
        }
        const float* norm = query ? p.q_norm : key ? p.k_norm : nullptr;
        const float scale = norm ? 1.0f / sqrtf(warp_sum(squares) / HEAD_DIM + (query ? p.q_eps : p.k_eps)) : 1.0f;
        const float size = query ? 1.0f / sqrtf((float)HEAD_DIM) : 1.0f;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const int pair = lane_id() + i * LANES;
            if (pair >= HALF) continue;
            float x = a[i], y = b[i];
            if (norm) x = x * scale * norm[first(p, pair)], y = y * scale * norm[second(p, pair)];
            if (query || key) {
                const float2 angle = angles.of[i];
                const float turned = fmaf(x, angle.x, -__fmul_rn(y, angle.y));
                y = fmaf(y, angle.x, __fmul_rn(x, angle.y)), x = turned;
            }
            write(first(p, pair), second(p, pair), x * size, y * size);
        }
    }
};

// Where a key or value is cached, of a row with this place.
__device__ inline u16* cache_place(const Place& p, int place, int head) {
    const int of = (head - p.heads) / p.kv_heads, kv_head = (head - p.heads) % p.kv_heads;
    const u64 block = ((u64)(place / BLOCK_TOKENS) * 2 + of) * p.kv_heads + kv_head;
    return p.cache + (block * BLOCK_TOKENS + place % BLOCK_TOKENS) * HEAD_DIM;
}

// A warp a head of a row.
extern "C" __global__ void place(const __grid_constant__ Place p) {
    begin_kernel();
    const int all = p.heads + 2 * p.kv_heads, unit = blockIdx.x * (blockDim.x / LANES) + warp_id();
    const int row = unit / all, head = unit % all;
    if (row >= p.rows) return;
    float* values = p.qkv + (u64)unit * HEAD_DIM;
    u16* to = head < p.heads ? nullptr : cache_place(p, p.places[row], head);
    Head of;
    of.load(p, row, head);
    of.turn(p, Angles(p, row), [&](int first, int second, float x, float y) {
        if (to) {
            to[first] = cached(x), to[second] = cached(y);
        } else {
            values[first] = x, values[second] = y;
        }
    });
}
