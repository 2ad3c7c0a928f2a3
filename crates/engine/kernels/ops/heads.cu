// From the products of q, k and v to turned queries, and keys and values in the cache.

struct Place {
    float* qkv; // (rows, (heads + 2 kv_heads) * dim)
    const float* q_norm; // (dim) or none
    const float* k_norm;
    const float2* angles; // (rows, dim / 2) cosine and sine
    const int* places;    // (rows) block * 32 + token
    u16* cache;           // of this layer: (blocks, keys and values, kv_heads, 32, dim) f16
    float q_eps, k_eps;
    int rows, heads, kv_heads, dim;
    int adjacent; // values 2 i and 2 i + 1 turn together, else i and i + dim / 2
};

constexpr int PAIRS_MAX = 4; // of a lane: heads of at most 256 values
constexpr int BLOCK_TOKENS = 32;

// What is cached is finite: even a value that nobody looks at is multiplied with zero.
__device__ inline u16 cached(float value) { return f32_to_f16(fminf(fmaxf(value, -F16_MAX), F16_MAX)); }

// A warp a head of a row.
extern "C" __global__ void place(const __grid_constant__ Place p) {
    begin_kernel();
    const int all = p.heads + 2 * p.kv_heads, unit = blockIdx.x * (blockDim.x / LANES) + warp_id();
    const int row = unit / all, head = unit % all, half = p.dim / 2;
    if (row >= p.rows) return;
    const bool query = head < p.heads, key = !query && head < p.heads + p.kv_heads;
    float* values = p.qkv + ((u64)row * all + head) * p.dim;
    float a[PAIRS_MAX], b[PAIRS_MAX], squares = 0;
#pragma unroll
    for (int i = 0; i < PAIRS_MAX; i++) {
        const int pair = lane_id() + i * LANES;
        if (pair >= half) continue;
        a[i] = values[p.adjacent ? 2 * pair : pair], b[i] = values[p.adjacent ? 2 * pair + 1 : pair + half];
        squares += a[i] * a[i] + b[i] * b[i];
    }
    const float* norm = query ? p.q_norm : key ? p.k_norm : nullptr;
    const float scale = norm ? 1.0f / sqrtf(warp_sum(squares) / p.dim + (query ? p.q_eps : p.k_eps)) : 1.0f;
    const float size = query ? 1.0f / sqrtf((float)p.dim) : 1.0f;
    const int place = p.places[row], kv_head = (head - p.heads) % p.kv_heads;
    const u64 block = ((u64)(place / BLOCK_TOKENS) * 2 + (key ? 0 : 1)) * p.kv_heads + kv_head;
    u16* to = p.cache + (block * BLOCK_TOKENS + place % BLOCK_TOKENS) * p.dim;
#pragma unroll
    for (int i = 0; i < PAIRS_MAX; i++) {
        const int pair = lane_id() + i * LANES;
        if (pair >= half) continue;
        const int at = p.adjacent ? 2 * pair : pair, beside = p.adjacent ? 2 * pair + 1 : pair + half;
        if (norm) a[i] = a[i] * scale * norm[at], b[i] = b[i] * scale * norm[beside];
        float x = a[i], y = b[i];
        if (query || key) {
            const float2 angle = p.angles[(u64)row * half + pair];
            x = a[i] * angle.x - b[i] * angle.y, y = b[i] * angle.x + a[i] * angle.y;
        }
        if (query) {
            values[at] = x * size, values[beside] = y * size;
        } else {
            to[at] = cached(x), to[beside] = cached(y);
        }
    }
}
