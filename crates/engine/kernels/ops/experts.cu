// Which rows go through which experts.

constexpr int GROUP_THREADS = 1024;
constexpr int EXPERTS_MAX = 4096;

// Numbers in the order of the floats.
__device__ inline u32 ordered(float value) {
    const u32 bits = __float_as_uint(value);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Calls `chose(i, expert, logit)` for the experts with the largest logits (the first of equals) of one row, by one warp. `logit(i)` is
// that of expert 32 i + lane, minus infinity where there is none, for i below `steps`, which are unrolled if they are many.
template <int UNROLLED, class Logit, class Chose>
__device__ inline void pick_experts(Logit logit, int steps, int experts, int used, Chose chose) {
    float last = INFINITY;
    int last_index = -1;
#pragma unroll 1
    for (int i = 0; i < used; i++) {
        float best = -INFINITY;
        int index = EXPERTS_MAX;
#pragma unroll UNROLLED
        for (int step = 0; step < steps; step++) {
            const float of = logit(step);
            const int e = step * LANES + lane_id();
            const bool after = of < last || (of == last && e > last_index);
            if (after && of > best) best = of, index = e;
        }
        const u32 most = __reduce_max_sync(ALL_LANES, ordered(best));
        index = __reduce_min_sync(ALL_LANES, ordered(best) == most ? index : EXPERTS_MAX);
        best = __uint_as_float(most >> 31 ? most & 0x7FFFFFFFu : ~most);
        last = best, last_index = index;
        // What is not a number is larger than nothing: the place must be one all the same.
        chose(i, min(index, experts - 1), best);
    }
}

// The chosen experts and their shares.
template <int UNROLLED, class Logit>
__device__ inline void choose_row(Logit logit, int steps, int experts, int used, int normalize, int* chosen, float* shares) {
    float largest = 0, total = 0, chosen_total = 0;
    pick_experts<UNROLLED>(logit, steps, experts, used, [&](int i, int expert, float best) {
        if (i == 0) {
            largest = best;
#pragma unroll UNROLLED
            for (int step = 0; step < steps; step++) total += expf(logit(step) - largest);
            total = warp_sum(total);
        }
        const float power = expf(best - largest);
        chosen_total += power;
        if (lane_id() == 0) chosen[i] = expert, shares[i] = power;
    });
    __syncwarp();
    const float whole = normalize ? chosen_total : total;
#pragma unroll 1
    for (int i = lane_id(); i < used; i += LANES) shares[i] /= whole;
}

// A warp a row.
extern "C" __global__ void
    choose(const float* logits, int rows, int experts, int used, int normalize, int* chosen, float* shares) {
    begin_kernel();
    const int row = blockIdx.x * (blockDim.x / LANES) + warp_id();
    if (row >= rows) return;
    const float* of = logits + (u64)row * experts;
    const auto logit = [&](int i) { return i * LANES + lane_id() < experts ? of[i * LANES + lane_id()] : -INFINITY; };
    choose_row<1>(logit, div_up(experts, LANES), experts, used, normalize, chosen + row * used, shares + row * used);
}

// Running sums over the experts of how many slots and tiles they have, by one warp.
__device__ inline void scan(const int* counts, int experts, int tile_rows, int* first_slot, int* first_tile, int* tile_count) {
    int slots = 0, tiles = 0;
    for (int base = 0; base < experts; base += LANES) {
        const int e = base + lane_id();
        const int own = e < experts ? counts[e] : 0, own_tiles = div_up(own, tile_rows);
        int slots_to = own, tiles_to = own_tiles;
        for (int step = 1; step < LANES; step *= 2) {
            const int s = __shfl_up_sync(ALL_LANES, slots_to, step), t = __shfl_up_sync(ALL_LANES, tiles_to, step);
            if (lane_id() >= step) slots_to += s, tiles_to += t;
        }
        if (e < experts) first_slot[e] = slots + slots_to - own, first_tile[e] = tiles + tiles_to - own_tiles;
        slots += __shfl_sync(ALL_LANES, slots_to, LANES - 1), tiles += __shfl_sync(ALL_LANES, tiles_to, LANES - 1);
    }
    if (lane_id() == 0) *tile_count = tiles;
}

// Slots (row * used + i) by expert, cut into tiles of at most `tile_rows` slots of one expert. One block.
extern "C" __global__ void __launch_bounds__(GROUP_THREADS)
    group(const int* chosen, int slot_count, int experts, int tile_rows, int* slots, int4* tiles, int* tile_count) {
    __shared__ int counts[EXPERTS_MAX], first_slot[EXPERTS_MAX];
    begin_kernel();
    int* first_tile = counts; // takes the counts' place once they are summed
    for (int e = threadIdx.x; e < experts; e += GROUP_THREADS) counts[e] = 0;
    __syncthreads();
    for (int slot = threadIdx.x; slot < slot_count; slot += GROUP_THREADS) atomicAdd(&counts[chosen[slot]], 1);
    __syncthreads();
    int own[EXPERTS_MAX / GROUP_THREADS];
    for (int i = 0; i < EXPERTS_MAX / GROUP_THREADS; i++) {
        const int e = threadIdx.x + i * GROUP_THREADS;
        own[i] = e < experts ? counts[e] : 0;
    }
    __syncthreads();
    if (warp_id() == 0) scan(counts, experts, tile_rows, first_slot, first_tile, tile_count);
    __syncthreads();
    for (int i = 0; i < EXPERTS_MAX / GROUP_THREADS; i++) {
        const int e = threadIdx.x + i * GROUP_THREADS;
        for (int from = 0; from < own[i]; from += tile_rows) {
            tiles[first_tile[e] + from / tile_rows] = {e, first_slot[e] + from, min(tile_rows, own[i] - from), 0};
        }
    }
    __syncthreads();
    for (int slot = threadIdx.x; slot < slot_count; slot += GROUP_THREADS) {
        slots[atomicAdd(&first_slot[chosen[slot]], 1)] = slot;
    }
}
