// Which experts a token goes to. Logits are linear in the residual stream but for the norm's scale, which is one number:
// so each block of the attention's output adds its own rows' share, and nobody has to read the whole router.
// Shares are added in fixed point: integers have the same sum in any order. The lowest byte of a sum counts the blocks
// that have added theirs.

constexpr float ROUTER_UNIT = 16777216.f; // 2^24
constexpr int COUNT_BITS = 8;
constexpr int SUM_STRIDE = 16; // sums of one line would wait for one another
static_assert(GRID < 1 << COUNT_BITS, "the blocks can be counted");
constexpr int EXPERTS_OF_LANE = div_up(EXPERTS, LANES);
constexpr int OUT_ROWS_MAX = block_tiles_max(OUT) * TILE_ROWS; // that a block has some groups of

// Consecutive lanes share the rows of a block for one expert.
__host__ __device__ constexpr int router_parts() {
    int parts = LANES;
    while (parts * EXPERTS > THREADS) parts /= 2;
    return parts;
}
constexpr int ROUTER_PARTS = router_parts();
constexpr int ROUTER_PART_ROWS = div_up(OUT_ROWS_MAX, ROUTER_PARTS);

// One thread's router weights, asked for long before they are needed.
struct RouterWeights {
    u16 weights[ROUTER_PART_ROWS];

    // Rows from `first_row` up to `end_row` are the block's.
    __device__ RouterWeights(const u16* router, int first_row, int end_row) {
        if constexpr (!ROUTED) return;
        const int expert = threadIdx.x / ROUTER_PARTS, part = threadIdx.x % ROUTER_PARTS;
#pragma unroll
        for (int i = 0; i < ROUTER_PART_ROWS; i++) {
            const int row = i * ROUTER_PARTS + part;
            // Past the end anything will do: it meets a zero, and nobody reads what has no expert.
            weights[i] = router[(size_t)min(first_row + row, end_row - 1) * EXPERTS + min(expert, EXPERTS - 1)];
        }
    }

    // `values`: (OUT_ROWS_MAX) this block's shares of the residual stream, times the norm's weight.
    __device__ void add(const float* values, u64* sums) const {
        if constexpr (!ROUTED) return;
        const int expert = threadIdx.x / ROUTER_PARTS, part = threadIdx.x % ROUTER_PARTS;
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < ROUTER_PART_ROWS; i++) {
            const int row = i * ROUTER_PARTS + part;
            if (row < OUT_ROWS_MAX) sum += values[row] * bf16_to_f32(weights[i]);
        }
        for (int step = ROUTER_PARTS / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (part != 0 || expert >= EXPERTS) return;
        const u64 units = (u64)__float2ll_rn(sum * ROUTER_UNIT) << COUNT_BITS | 1u;
        asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(&sums[expert * SUM_STRIDE]), "l"(units) : "memory");
    }
};

// The sums, waited for by one warp of a block: more would all ask for the same lines.
struct RouterSums {
    float logits[EXPERTS]; // before the norm's scale

    __device__ void wait_for(const u64* sums) {
        constexpr u32 COUNT = (1u << COUNT_BITS) - 1;
        u64 found[EXPERTS_OF_LANE];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < EXPERTS_OF_LANE; i++) {
                const int expert = min(i * LANES + lane_id(), EXPERTS - 1);
                found[i] = ask_two_words(&sums[expert * SUM_STRIDE]);
                all &= (found[i] & COUNT) == GRID;
            }
        } while (!all);
#pragma unroll
        for (int i = 0; i < EXPERTS_OF_LANE; i++)
            logits[min(i * LANES + lane_id(), EXPERTS - 1)] = __ll2float_rn((long long)found[i] >> COUNT_BITS) / ROUTER_UNIT;
    }
};

// What one warp makes of them.
struct Router {
    float bias[EXPERTS_OF_LANE]; // expert i * LANES + lane
    // The lowest bits of a key say whose logit it is.
    static constexpr u32 EXPERT_MASK = 511;

    // What never changes is asked for before the sums are known.
    __device__ explicit Router(const float* router_bias) {
        if constexpr (!ROUTED) return;
#pragma unroll
        for (int i = 0; i < EXPERTS_OF_LANE; i++) {
            const int expert = i * LANES + lane_id();
            bias[i] = expert < EXPERTS ? router_bias[expert] : -INFINITY;
        }
    }

    // The experts with the largest logits, the first of equals. Lane i keeps the logit of the i-th.
    __device__ float choose(const RouterSums& sums, float scale, Chosen& chosen) const {
        u32 keys[EXPERTS_OF_LANE];
#pragma unroll
        for (int i = 0; i < EXPERTS_OF_LANE; i++) {
            const int expert = i * LANES + lane_id();
            const float logit = (expert < EXPERTS ? sums.logits[expert] : 0.f) * scale + bias[i];
            keys[i] = ordered_key(logit) & ~EXPERT_MASK | (EXPERT_MASK - expert);
        }
        u32 mine = 0;
#pragma unroll
        for (int used = 0; used < USED; used++) {
            u32 key = keys[0];
#pragma unroll
            for (int i = 1; i < EXPERTS_OF_LANE; i++) key = max(key, keys[i]);
            key = __reduce_max_sync(~0u, key);
#pragma unroll
            for (int i = 0; i < EXPERTS_OF_LANE; i++) keys[i] = keys[i] == key ? 0 : keys[i];
            if (lane_id() == used) mine = key;
        }
        if (lane_id() < USED) chosen.experts[lane_id()] = EXPERT_MASK - (mine & EXPERT_MASK);
        __syncwarp();
        return of_ordered_key(mine & ~EXPERT_MASK);
    }

    // Their shares, when nobody waits for them yet.
    __device__ static void share(float logit, Chosen& chosen) {
        const float largest = __shfl_sync(~0u, logit, 0), power = lane_id() < USED ? exp_of(logit - largest) : 0.f;
        const float total = warp_sum(power);
        if (lane_id() < USED) chosen.shares[lane_id()] = quotient(power, total);
    }
};
