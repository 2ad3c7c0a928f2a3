// Attention of one token to the cached ones.
//
// The query heads of a KV head go through the tensor cores together: eight rows of queries, and in the other eight rows
// of the same instruction what rounding to f16 left over, so queries and shares keep f32's worth of precision for free.
//
// One warp takes a unit of cached tokens at a time (cache.cuh). Blocks of the grid that split a context merge what they found.

constexpr int HALF_DIM = HEAD_DIM / 2;
constexpr int OUTPUTS = GROUP_HEADS * HEAD_DIM;
constexpr int MERGED_OUTPUTS = 8; // of splits, by a warp at a time: 32 bytes
constexpr int LOTS = LANES / MERGED_OUTPUTS, LOT = div_up(SPLITS_MAX, LOTS); // of splits

constexpr int SOURCES = WARPS + 1; // of sums in a block: its warps, and the newest token

struct AttentionShared {
    u16 queries[2 * GROUP_HEADS][HEAD_DIM]; // rounded, then the remainders
    float key[HEAD_DIM];                    // of the newest token
    float values[SOURCES][GROUP_HEADS][HEAD_DIM];
    float2 weights[SOURCES][GROUP_HEADS]; // largest score, sum of powers
    float factors[SOURCES][GROUP_HEADS];
    float2 merged[GROUP_HEADS];
};

// Keys or values of a unit in registers, as cache.cuh has them: four runs of one lane.
struct UnitPart {
    uint4 runs[4];
    __device__ explicit UnitPart(const u8* part) {
#pragma unroll
        for (int i = 0; i < 4; i++) runs[i] = ((const uint4*)part)[i * LANES + lane_id()];
    }
};

// One warp's attention, over the blocks it has seen so far. Lane 4 * g + t has head g.
struct Attending {
    u32 q[2][8];     // (row half) dims 16 t .. 16 t + 15 of rows g and g + 8
    float sum[8][4]; // (8 dims each): dims 8 n + 2 t, + 1 of rows g and g + 8
    float most, total;

    __device__ explicit Attending(const AttentionShared& shared) : most(-INFINITY), total(0.f) {
        const Lane lane;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4* from = (const uint4*)&shared.queries[half * GROUP_HEADS + lane.g][lane.t * 16];
            *(uint4*)&q[half][0] = from[0];
            *(uint4*)&q[half][4] = from[1];
        }
#pragma unroll
        for (int n = 0; n < 8; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.f;
    }

    // Scores of token 4 t + 2 n + j in scores[n][j].
    __device__ void score(const UnitPart& keys, float (&scores)[2][2]) const {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            float d[4] = {0.f, 0.f, 0.f, 0.f};
            const uint4 low = keys.runs[2 * n], high = keys.runs[2 * n + 1];
            mma_f16(d, q[0][0], q[1][0], q[0][1], q[1][1], low.x, low.y);
            mma_f16(d, q[0][2], q[1][2], q[0][3], q[1][3], low.z, low.w);
            mma_f16(d, q[0][4], q[1][4], q[0][5], q[1][5], high.x, high.y);
            mma_f16(d, q[0][6], q[1][6], q[0][7], q[1][7], high.z, high.w);
            scores[n][0] = d[0] + d[2], scores[n][1] = d[1] + d[3];
        }
    }

    // Scores become powers, relative to the largest score so far. Tokens before `first` or from `end` on (positions in the
    // unit) are not seen.
    __device__ void weigh(float (&scores)[2][2], int first, int end) {
        const Lane lane;
        float larger = most;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int token = 4 * lane.t + i;
            float& score = scores[i / 2][i % 2];
            if (token < first || token >= end) score = -INFINITY;
            larger = fmaxf(larger, score);
        }
        larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 1));
        larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, 2));
        const float shrink = most == larger ? 1.f : __expf(most - larger);
        most = larger;
        total *= shrink;
#pragma unroll
        for (int n = 0; n < 8; n++)
            for (int i = 0; i < 4; i++) sum[n][i] *= shrink;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float& score = scores[i / 2][i % 2];
            score = most == -INFINITY ? 0.f : __expf(score - most);
            total += score;
        }
    }

    __device__ void add(const UnitPart& values, const float (&powers)[2][2]) {
        u32 high[2], low[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            high[n] = pack_f16(powers[n][0], powers[n][1]);
            low[n] = pack_f16(powers[n][0] - f16_to_f32((u16)high[n]), powers[n][1] - f16_to_f32((u16)(high[n] >> 16)));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            mma_f16(sum[2 * i], high[0], low[0], high[1], low[1], values.runs[i].x, values.runs[i].y);
            mma_f16(sum[2 * i + 1], high[0], low[0], high[1], low[1], values.runs[i].z, values.runs[i].w);
        }
    }

    __device__ void put(AttentionShared& shared) {
        const Lane lane;
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        const int warp = warp_id();
        if (lane.t == 0) shared.weights[warp][lane.g] = make_float2(most, total);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float2* at = (float2*)&shared.values[warp][lane.g][8 * n + 2 * lane.t];
            *at = make_float2(sum[n][0] + sum[n][2], sum[n][1] + sum[n][3]);
        }
    }
};

// The sink is a key that is always there and has no value.
__device__ inline float with_sink(float value, float2 weight, float sink) {
    const float larger = fmaxf(weight.x, sink);
    const float scale = __expf(weight.x - larger);
    return __fdividef(value * scale, weight.y * scale + __expf(sink - larger));
}

// Heads of the token at `position`, from `qkv_parts` to `attended`.
struct Attention {
    AttentionShared& shared;
    const float2* turns;
    const Split& split; // in shared memory
    int layer, position;
    Tag tag;

    __device__ float sink(int head) const { return params.sinks[layer * HEADS + split.head * GROUP_HEADS + head]; }

    // What one or two blocks summed up for so many rows, once it is there.
    template <int COUNT> __device__ void qkv(const int (&rows)[COUNT], float (&values)[COUNT]) const {
        u32 first[COUNT], second[COUNT];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                first[i] = ask_word(&params.qkv_parts[rows[i]]);
                second[i] = has_two_blocks<QKV>(rows[i] / TILE_ROWS) ? ask_word(&params.qkv_parts[QKV_ROWS + rows[i]]) : tag.bits;
            }
#pragma unroll
            for (int i = 0; i < COUNT; i++) all &= tag.in(first[i]) && tag.in(second[i]);
        } while (!all);
#pragma unroll
        for (int i = 0; i < COUNT; i++) values[i] = untagged(first[i]) + untagged(second[i]);
    }

    __device__ void run(Pieces& pieces) {
        prepare();
        block_sync();
        if (warp_id() < GROUP_HEADS) score_newest(warp_id());
        attend(pieces);
        block_sync();
        if (warp_id() < GROUP_HEADS) weigh_sources(warp_id());
        block_sync();
        merge_sources();
        if (split.count > 1) merge_splits();
    }

    // Queries and key, turned; key and value into the cache.
    __device__ void prepare() {
        constexpr int PAIRS = (GROUP_HEADS + 1) * HALF_DIM; // of the queries, then of the key
        static_assert(PAIRS + HEAD_DIM <= THREADS, "one pair or value a thread");
        const int i = threadIdx.x, slot = position % UNIT_TOKENS;
        const bool stores = split.newest() && i >= GROUP_HEADS * HALF_DIM && i < PAIRS + HEAD_DIM;
        u16* open = stores ? cached_unit(layer, split.head, position / UNIT_TOKENS) : nullptr;
        if (i < PAIRS) {
            turn(i / HALF_DIM, i % HALF_DIM, open, slot);
        } else if (i < PAIRS + HEAD_DIM) {
            const int dim = i - PAIRS, row[1] = {Q_ROWS + KV_ROWS + split.head * HEAD_DIM + dim};
            float values[1];
            qkv(row, values);
            const u16 value = cached(values[0]);
            if (open) {
                open[UNIT_VALUES + value_place(slot, dim)] = value;
                if (params.paged) paged_place(layer, split.head, position, 1)[dim] = value;
            }
            for (int head = 0; head < GROUP_HEADS; head++) shared.values[WARPS][head][dim] = f16_to_f32(value);
        }
    }

    // Two values of a query head, or of the key after them.
    __device__ void turn(int head, int dim, u16* open, int slot) {
        const bool query = head < GROUP_HEADS;
        const int row = query ? (split.head * GROUP_HEADS + head) * HEAD_DIM : Q_ROWS + split.head * HEAD_DIM;
        const int rows[2] = {row + dim, row + dim + HALF_DIM};
        float values[2];
        qkv(rows, values);
        const float a = values[0], b = values[1];
        const float2 turn = turns[dim];
        const float turned[2] = {a * turn.x - b * turn.y, b * turn.x + a * turn.y};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int at = dim + half * HALF_DIM;
            const float value = query ? turned[half] * 0.125f : turned[half]; // 1 / sqrt(HEAD_DIM)
            const u16 rounded = cached(value);
            if (query) {
                shared.queries[head][at] = rounded;
                shared.queries[GROUP_HEADS + head][at] = f32_to_f16(value - f16_to_f32(rounded));
            } else {
                shared.key[at] = f16_to_f32(rounded);
                if (open) {
                    open[key_place(slot, at)] = rounded;
                    if (params.paged) paged_place(layer, split.head, position, 0)[at] = rounded;
                }
            }
        }
    }

    __device__ void score_newest(int head) {
        float score = 0.f;
#pragma unroll
        for (int dim = lane_id(); dim < HEAD_DIM; dim += LANES) {
            const float query = f16_to_f32(shared.queries[head][dim]) + f16_to_f32(shared.queries[GROUP_HEADS + head][dim]);
            score += query * shared.key[dim];
        }
        score = warp_sum(score);
        if (lane_id() == 0) shared.weights[WARPS][head] = split.newest() ? make_float2(score, 1.f) : make_float2(-INFINITY, 0.f);
    }

    __device__ void attend(Pieces& pieces) {
        Attending attending(shared);
        // Registers are short: tokens relative to the unit, and one part of it at a time.
        int first = split.first - (split.begin + warp_id()) * UNIT_TOKENS, end = first + position - split.first;
#pragma unroll 1
        for (int left = div_up(split.end - split.begin - warp_id(), WARPS); left > 0; left--) {
            float scores[2][2];
            attending.score(UnitPart(pieces.use()), scores);
            pieces.release();
            attending.weigh(scores, first, end);
            attending.add(UnitPart(pieces.use()), scores);
            pieces.release();
            first -= WARPS * UNIT_TOKENS, end -= WARPS * UNIT_TOKENS;
        }
        attending.put(shared);
    }

    // Warps and newest token as one: lane i has source i.
    __device__ void weigh_sources(int head) {
        static_assert(SOURCES <= LANES, "a lane for each");
        const bool real = lane_id() < SOURCES;
        const float2 weight = real ? shared.weights[lane_id()][head] : make_float2(-INFINITY, 0.f);
        const float most = warp_max(weight.x);
        const float factor = weight.x == -INFINITY ? 0.f : __expf(weight.x - most);
        const float total = warp_sum(factor * weight.y);
        if (real) shared.factors[lane_id()][head] = factor;
        if (lane_id() == 0) shared.merged[head] = make_float2(most, total);
    }

    __device__ void merge_sources() {
        const int sources = min(WARPS, split.end - split.begin), at = split.head * SPLITS_MAX + split.index;
        for (int output = threadIdx.x; output < OUTPUTS; output += THREADS) {
            const int head = output / HEAD_DIM, dim = output % HEAD_DIM;
            float value = shared.values[WARPS][head][dim] * shared.factors[WARPS][head];
            for (int i = 0; i < sources; i++) value += shared.values[i][head][dim] * shared.factors[i][head];
            if (split.count == 1)
                tell_value(&params.attended[split.head * OUTPUTS + output], with_sink(value, shared.merged[head], sink(head)), tag);
            else
                tell_value(&params.partial_values[at * OUTPUTS + output], value, tag);
        }
        if (split.count > 1 && threadIdx.x < 2 * GROUP_HEADS)
            tell_value(&params.partial_weights[at * 2 * GROUP_HEADS + threadIdx.x], ((const float*)shared.merged)[threadIdx.x], tag);
    }

    // Each block of the KV head merges a part of the outputs: eight outputs and four lots of splits a warp.
    __device__ void merge_splits() {
        const Range outputs = Range{0, OUTPUTS}.part(split.count, split.index);
        const int lot = lane_id() / MERGED_OUTPUTS, in_warp = lane_id() % MERGED_OUTPUTS;
        for (int begin = outputs.begin + warp_id() * MERGED_OUTPUTS; begin < outputs.end; begin += WARPS * MERGED_OUTPUTS) {
            const int output = begin + in_warp;
            const float value = merged(min(output, outputs.end - 1), lot);
            if (lot == 0 && output < outputs.end) tell_value(&params.attended[split.head * OUTPUTS + output], value, tag);
        }
    }

    // Over the splits of this lane's lot, then over lots.
    __device__ float merged(int output, int lot) const {
        const int head = output / HEAD_DIM;
        u32 scores[LOT], powers[LOT], values[LOT];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < LOT; i++) {
                const int at = split.head * SPLITS_MAX + min(i * LOTS + lot, split.count - 1);
                const float* weight = params.partial_weights + (at * GROUP_HEADS + head) * 2;
                scores[i] = ask_word(weight), powers[i] = ask_word(weight + 1);
                values[i] = ask_word(params.partial_values + at * OUTPUTS + output);
            }
#pragma unroll
            for (int i = 0; i < LOT; i++) all &= tag.in(scores[i]) && tag.in(powers[i]) && tag.in(values[i]);
        } while (!all);
        float most = -INFINITY, value = 0.f, total = 0.f;
#pragma unroll
        for (int i = 0; i < LOT; i++) most = fmaxf(most, untagged(scores[i]));
        for (int step = MERGED_OUTPUTS; step < LANES; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
#pragma unroll
        for (int i = 0; i < LOT; i++) {
            const float factor = i * LOTS + lot < split.count ? __expf(untagged(scores[i]) - most) : 0.f;
            value += factor * untagged(values[i]), total += factor * untagged(powers[i]);
        }
        for (int step = MERGED_OUTPUTS; step < LANES; step *= 2) {
            value += __shfl_xor_sync(~0u, value, step);
            total += __shfl_xor_sync(~0u, total, step);
        }
        return with_sink(value, make_float2(most, total), sink(head));
    }
};
