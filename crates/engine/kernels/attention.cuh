// Attention of one token to the cached ones.
//
// The query heads of a KV head go through the tensor cores together: cached tokens are the rows of an instruction, and for the
// values their dims are; the eight columns are the heads. What rounding to f16 leaves of queries and shares goes through a second
// instruction, so they keep f32's worth of precision.
//
// One warp takes a unit of cached tokens at a time (cache.cuh). Blocks of the grid that split a context merge what they found.

constexpr int HALF_DIM = HEAD_DIM / 2;
constexpr int OUTPUTS = GROUP_HEADS * HEAD_DIM;
constexpr int COLUMNS = 8;        // heads, and zeros
constexpr int MERGED_OUTPUTS = 8; // of splits, by a warp at a time: 32 bytes
constexpr int LOTS = LANES / MERGED_OUTPUTS, LOT = div_up(SPLITS_MAX, LOTS); // of splits
constexpr float QUERY_SCALE = HEAD_DIM == 64 ? 0.125f : 0.0883883476f; // 1 / sqrt(HEAD_DIM)
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "the scale is known");

constexpr int SOURCES = WARPS + 1; // of sums in a block: its warps, and the newest token

struct AttentionShared {
    u16 queries[2][COLUMNS][HEAD_DIM]; // rounded, and the remainders
    float key[HEAD_DIM];               // of the newest token
    u16 values[SOURCES][GROUP_HEADS][HEAD_DIM + 8]; // means; rows begin in different banks
    float2 weights[SOURCES][COLUMNS]; // largest score, sum of powers
};

// A part of a unit's keys or values in registers, as cache.cuh has them: four runs of one lane.
struct UnitPart {
    uint4 runs[4];
    __device__ explicit UnitPart(const u8* part) {
#pragma unroll
        for (int i = 0; i < 4; i++) runs[i] = ((const uint4*)part)[i * LANES + lane_id()];
    }
};

// Rows and columns of 8 by 8 f16 change places: lane 4 * g + t has columns 2 t and 2 t + 1 of row g.
__device__ inline u32 transposed(u32 pair) {
    u32 out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
}

// One warp's attention, over the units it has seen so far. Lane 4 * g + t has heads 2 t and 2 t + 1.
struct Attending {
    const AttentionShared& shared;
    float sum[DIM_PARTS * 4][4]; // (16 dims each): dims g and g + 8 of these, of both heads
    float most[2], total[2];     // total: of this lane's tokens

    __device__ explicit Attending(const AttentionShared& shared) : shared(shared) {
        most[0] = most[1] = -INFINITY, total[0] = total[1] = 0.f;
#pragma unroll
        for (int n = 0; n < DIM_PARTS * 4; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.f;
    }

    // Adds a part's share to the scores. Token 4 (g / 2) + 2 n + g % 2 has its two heads' in scores[2 n] and [2 n + 1].
    __device__ void score(int part, const UnitPart& keys, float (&scores)[4]) const {
        const Lane lane;
#pragma unroll
        for (int rest = 0; rest < 2; rest++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 q = *(const uint4*)&shared.queries[rest][lane.g][part * PART_DIMS + lane.t * 16 + half * 8];
                const uint4 first = keys.runs[half], second = keys.runs[2 + half];
                mma_f16(scores, first.x, second.x, first.y, second.y, q.x, q.y);
                mma_f16(scores, first.z, second.z, first.w, second.w, q.z, q.w);
            }
        }
    }

    // Scores become powers, relative to the largest score so far. Tokens before `first` or from `end` on (positions in the
    // unit) are not seen.
    __device__ void weigh(float (&scores)[4], int first, int end) {
        const Lane lane;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int token = 4 * (lane.g / 2) + 2 * n + lane.g % 2;
            if (token < first || token >= end) scores[2 * n] = scores[2 * n + 1] = -INFINITY;
        }
#pragma unroll
        for (int head = 0; head < 2; head++) {
            float larger = fmaxf(most[head], fmaxf(scores[head], scores[2 + head]));
#pragma unroll
            for (int step = 4; step < LANES; step *= 2) larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, step));
            const float shrink = most[head] == larger ? 1.f : __expf(most[head] - larger);
            most[head] = larger;
            total[head] *= shrink;
#pragma unroll
            for (int n = 0; n < DIM_PARTS * 4; n++) sum[n][head] *= shrink, sum[n][2 + head] *= shrink;
#pragma unroll
            for (int n = 0; n < 2; n++) {
                float& score = scores[2 * n + head];
                score = larger == -INFINITY ? 0.f : __expf(score - larger);
                total[head] += score;
            }
        }
    }

    // What `add` takes: powers as f16 and what that leaves, tokens 4 t .. of head g.
    struct Powers {
        u32 rounded[2], rest[2];
        __device__ explicit Powers(const float (&powers)[4]) {
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const float a = powers[2 * n], b = powers[2 * n + 1];
                const u32 pair = pack_f16(a, b);
                rounded[n] = transposed(pair);
                rest[n] = transposed(pack_f16(a - f16_to_f32((u16)pair), b - f16_to_f32((u16)(pair >> 16))));
            }
        }
    };

    __device__ void add(int part, const UnitPart& values, const Powers& powers) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 v = values.runs[i];
            mma_f16(sum[4 * part + i], v.x, v.z, v.y, v.w, powers.rounded[0], powers.rounded[1]);
            mma_f16(sum[4 * part + i], v.x, v.z, v.y, v.w, powers.rest[0], powers.rest[1]);
        }
    }

    __device__ void put(AttentionShared& shared) {
        const Lane lane;
        float mean[2]; // 1 / total
#pragma unroll
        for (int head = 0; head < 2; head++) {
#pragma unroll
            for (int step = 4; step < LANES; step *= 2) total[head] += __shfl_xor_sync(~0u, total[head], step);
            mean[head] = total[head] > 0.f ? __fdividef(1.f, total[head]) : 0.f;
            if (lane.g == 0) shared.weights[warp_id()][2 * lane.t + head] = make_float2(most[head], total[head]);
        }
#pragma unroll
        for (int n = 0; n < DIM_PARTS * 4; n++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 pair = transposed(pack_f16(sum[n][2 * half] * mean[0], sum[n][2 * half + 1] * mean[1]));
                if (lane.g < GROUP_HEADS) *(u32*)&shared.values[warp_id()][lane.g][16 * n + 8 * half + 2 * lane.t] = pair;
            }
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

    // What the blocks that share it summed up for each of some rows, once it is there.
    template <int COUNT> __device__ void qkv(const int (&rows)[COUNT], float (&values)[COUNT]) const {
        constexpr int SHARERS = sharers_max<QKV>();
        u32 found[COUNT][SHARERS];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                const int count = sharers<QKV>(rows[i] / TILE_ROWS);
#pragma unroll
                for (int part = 0; part < SHARERS; part++)
                    found[i][part] = part < count ? ask_word(&params.qkv_parts[part * QKV_ROWS + rows[i]]) : tag.bits;
            }
#pragma unroll
            for (int i = 0; i < COUNT * SHARERS; i++) all &= tag.in(found[i / SHARERS][i % SHARERS]);
        } while (!all);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            values[i] = 0.f;
#pragma unroll
            for (int part = 0; part < SHARERS; part++) values[i] += untagged(found[i][part]);
        }
    }

    __device__ void run(Pieces& pieces) {
        prepare();
        block_sync();
        if (warp_id() < GROUP_HEADS) score_newest(warp_id());
        attend(pieces);
        block_sync();
        merge_sources();
        if (split.count > 1) merge_splits();
    }

    // Queries and key, turned; key and value into the cache. A warp has a head, or 32 values.
    __device__ void prepare() {
        constexpr int VALUE_WARPS = HEAD_DIM / LANES;
        static_assert(GROUP_HEADS + 1 + VALUE_WARPS <= WARPS, "a warp for each");
        const int job = warp_id(), slot = position % UNIT_TOKENS;
        u16* open = split.newest() && job >= GROUP_HEADS ? cached_unit(layer, split.head, position / UNIT_TOKENS) : nullptr;
        if (job <= GROUP_HEADS) {
            turn(job, open, slot);
        } else if (job <= GROUP_HEADS + VALUE_WARPS) {
            const int dim = (job - GROUP_HEADS - 1) * LANES + lane_id();
            const int row[1] = {Q_ROWS + KV_ROWS + split.head * HEAD_DIM + dim};
            float values[1];
            qkv(row, values);
            const u16 value = cached(values[0]);
            if (open) {
                open[UNIT_VALUES + value_place(slot, dim)] = value;
                if (params.paged) paged_place(layer, split.head, position, 1)[dim] = value;
            }
            for (int head = 0; head < GROUP_HEADS; head++) shared.values[WARPS][head][dim] = value;
        }
        if (GROUP_HEADS < COLUMNS && job == WARPS - 1) { // columns without a head
            constexpr int WORDS = (COLUMNS - GROUP_HEADS) * HEAD_DIM / 2;
            for (int i = lane_id(); i < 2 * WORDS; i += LANES) ((u32*)shared.queries[i / WORDS][GROUP_HEADS])[i % WORDS] = 0;
        }
    }

    // A query head, or the key after them.
    __device__ void turn(int head, u16* open, int slot) {
        constexpr int PAIRS = HALF_DIM / LANES; // of a lane
        const bool query = head < GROUP_HEADS;
        const int row = query ? (split.head * GROUP_HEADS + head) * HEAD_DIM : Q_ROWS + split.head * HEAD_DIM;
        const auto dim = [](int i) { // of the lane's i-th value: pairs turn together
            const int pair = i / 2 * LANES + lane_id();
            return ADJACENT ? 2 * pair + i % 2 : pair + i % 2 * HALF_DIM;
        };
        int rows[2 * PAIRS];
        float values[2 * PAIRS];
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) rows[i] = row + dim(i);
        const float* weight = (query ? params.q_norm : params.k_norm) + layer * HEAD_DIM;
        float weights[2 * PAIRS];
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) weights[i] = HEAD_NORMS ? weight[dim(i)] : 1.f;
        qkv(rows, values);
        if (HEAD_NORMS) {
            float squares = 0.f;
#pragma unroll
            for (int i = 0; i < 2 * PAIRS; i++) squares += values[i] * values[i];
            const float scale = rsqrtf(warp_sum(squares) / HEAD_DIM + params.norm_eps);
#pragma unroll
            for (int i = 0; i < 2 * PAIRS; i++) values[i] *= scale * weights[i];
        }
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
            const float2 turn = turns[pair * LANES + lane_id()];
            const float a = values[2 * pair], b = values[2 * pair + 1];
            put_turned(head, dim(2 * pair), a * turn.x - b * turn.y, open, slot);
            put_turned(head, dim(2 * pair + 1), b * turn.x + a * turn.y, open, slot);
        }
    }

    __device__ void put_turned(int head, int dim, float value, u16* open, int slot) {
        if (head < GROUP_HEADS) {
            value *= QUERY_SCALE;
            const u16 rounded = cached(value);
            shared.queries[0][head][dim] = rounded;
            shared.queries[1][head][dim] = f32_to_f16(value - f16_to_f32(rounded));
        } else {
            const u16 rounded = cached(value);
            shared.key[dim] = f16_to_f32(rounded);
            if (open) {
                open[key_place(slot, dim)] = rounded;
                if (params.paged) paged_place(layer, split.head, position, 0)[dim] = rounded;
            }
        }
    }

    __device__ void score_newest(int head) {
        float score = 0.f;
#pragma unroll
        for (int dim = lane_id(); dim < HEAD_DIM; dim += LANES) {
            const float query = f16_to_f32(shared.queries[0][head][dim]) + f16_to_f32(shared.queries[1][head][dim]);
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
            float scores[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
            for (int part = 0; part < DIM_PARTS; part++) {
                attending.score(part, UnitPart(pieces.use()), scores);
                pieces.release();
            }
            attending.weigh(scores, first, end);
            const Attending::Powers powers(scores);
#pragma unroll
            for (int part = 0; part < DIM_PARTS; part++) {
                attending.add(part, UnitPart(pieces.use()), powers);
                pieces.release();
            }
            first -= WARPS * UNIT_TOKENS, end -= WARPS * UNIT_TOKENS;
        }
        attending.put(shared);
    }

    // Warps and newest token as one: a warp has 64 outputs of a head, two a lane; and lane i has the weight of source i.
    __device__ void merge_sources() {
        static_assert(SOURCES <= LANES && HEAD_DIM % PART_DIMS == 0, "a lane for each, and one head a warp");
        const int at = split.head * SPLITS_MAX + split.index;
#pragma unroll 1
        for (int part = warp_id(); part < OUTPUTS / PART_DIMS; part += WARPS) {
            const int head = part / DIM_PARTS, dim = part % DIM_PARTS * PART_DIMS + 2 * lane_id();
            const float2 weight = lane_id() < SOURCES ? shared.weights[lane_id()][head] : make_float2(-INFINITY, 0.f);
            const float most = warp_max(weight.x);
            const float factor = weight.x == -INFINITY ? 0.f : __expf(weight.x - most) * weight.y; // of its mean
            const float2 merged = make_float2(most, warp_sum(factor));
            float2 value = make_float2(0.f, 0.f);
#pragma unroll
            for (int source = 0; source < SOURCES; source++) {
                const u32 pair = *(const u32*)&shared.values[source][head][dim];
                const float share = __shfl_sync(~0u, factor, source);
                value.x += f16_to_f32((u16)pair) * share, value.y += f16_to_f32((u16)(pair >> 16)) * share;
            }
            const int output = head * HEAD_DIM + dim;
            if (split.count == 1) {
                float* to = &params.attended[split.head * OUTPUTS + output];
                tell_value(to, with_sink(value.x, merged, sink(head)), tag);
                tell_value(to + 1, with_sink(value.y, merged, sink(head)), tag);
            } else {
                float* to = &params.partial_values[at * OUTPUTS + output];
                tell_value(to, value.x, tag), tell_value(to + 1, value.y, tag);
                float* weights = params.partial_weights + (at * GROUP_HEADS + head) * 2;
                if (dim == 0) tell_value(weights, merged.x, tag), tell_value(weights + 1, merged.y, tag);
            }
        }
    }

    // Each block of the KV head merges a part of the outputs: eight outputs and four lots of splits a warp.
    __device__ void merge_splits() {
        const Range outputs = Range{0, OUTPUTS}.part(split.count, split.index);
        const int lot = lane_id() / MERGED_OUTPUTS, in_warp = lane_id() % MERGED_OUTPUTS;
#pragma unroll 1
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
                const int at = split.head * SPLITS_MAX + lot + i * LOTS;
                const float* weight = params.partial_weights + (at * GROUP_HEADS + head) * 2;
                scores[i] = powers[i] = values[i] = tag.bits;
                if (i * LOTS + lot >= split.count) continue;
                scores[i] = ask_word(weight), powers[i] = ask_word(weight + 1);
                values[i] = ask_word(params.partial_values + at * OUTPUTS + output);
            }
#pragma unroll
            for (int i = 0; i < LOT; i++) all &= tag.in(scores[i]) && tag.in(powers[i]) && tag.in(values[i]);
        } while (!all);
        float most = -INFINITY, value = 0.f, total = 0.f;
#pragma unroll
        for (int i = 0; i < LOT; i++)
            if (i * LOTS + lot < split.count) most = fmaxf(most, untagged(scores[i]));
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
