// Attention of one token to the cached ones.
//
// The query heads of a KV head go through the tensor cores together: cached tokens are the rows of an instruction, and for the
// values their dims are; the eight columns are the heads. Queries are 16-bit integers split into two bytes, as what 8-bit rows are
// multiplied with (product.cuh): they meet keys as they lie. Values become f16 by spreading their bytes, which lie above zero
// for that: a byte alone in 16 bits is 2^-24 of itself. What they are too large by is one more instruction's sum.
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
    union {
        struct {
            u8 queries[2][DIM_PARTS][COLUMNS][PART_DIMS]; // high bytes, low bytes, in the order of the keys'
            float factors[COLUMNS];                       // of the queries, and of scores
        };
        StagedVectors<1, LEVELS ? Q_ROWS : BLOCK_COLS> attended; // by warps that have merged, while others still do
    };
    float key[HEAD_DIM]; // of the newest token: kept last, when others may be staging
    u16 values[SOURCES][GROUP_HEADS][HEAD_DIM + 8]; // means; of the newest token one for all heads; rows begin in different banks
    float2 weights[SOURCES][COLUMNS]; // largest score, sum of powers
};

// Where a dim is among the queries' of a part.
__device__ inline int query_place(int dim) { return dim % 32 / 8 * 16 + dim % PART_DIMS / 32 * 8 + dim % 8; }

// A part of a unit's keys or values in registers, as cache.cuh has them: two runs of one lane.
struct UnitPart {
    uint4 runs[2];
    __device__ explicit UnitPart(const u8* part) {
#pragma unroll
        for (int i = 0; i < 2; i++) runs[i] = ((const uint4*)part)[i * LANES + lane_id()];
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
    float above[4];              // what each of both heads' sums is too large by, below zero (twice)
    float most[2], total[2];     // total: of this lane's tokens

    __device__ explicit Attending(const AttentionShared& shared) : shared(shared) {
        most[0] = most[1] = -INFINITY, total[0] = total[1] = 0.f;
        above[0] = above[1] = above[2] = above[3] = 0.f;
#pragma unroll
        for (int n = 0; n < DIM_PARTS * 4; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.f;
    }

    // Token 4 (g / 2) + 2 n + g % 2 has its two heads' in scores[2 n] and [2 n + 1].
    __device__ void score(const u8* keys, float (&scores)[4]) const {
        const Lane lane;
        u16 scales[2][KEY_SCALES];
#pragma unroll
        for (int i = 0; i < KEY_SCALES; i++) ((u32*)scales)[i] = ((const u32*)(keys + UNIT_LEVELS))[lane.g * KEY_SCALES + i];
#pragma unroll
        for (int part = 0; part < DIM_PARTS; part++) {
            const UnitPart levels(keys + part * PART_LEVELS);
            const uint4 high = *(const uint4*)&shared.queries[0][part][lane.g][lane.t * 16];
            const uint4 low = *(const uint4*)&shared.queries[1][part][lane.g][lane.t * 16];
            const uint4 a = levels.runs[0], b = levels.runs[1];
            add_scores(scores, a, high.x, high.y, low.x, low.y, scales[0][2 * part], scales[1][2 * part]);
            add_scores(scores, b, high.z, high.w, low.z, low.w, scales[0][2 * part + 1], scales[1][2 * part + 1]);
        }
        const float2 factor = *(const float2*)&shared.factors[2 * lane.t];
        scores[0] *= factor.x, scores[1] *= factor.y, scores[2] *= factor.x, scores[3] *= factor.y;
    }

    // Of 32 dims, which have one scale a token.
    static __device__ void add_scores(float (&scores)[4], uint4 a, u32 high0, u32 high1, u32 low0, u32 low1, u16 scale0, u16 scale1) {
        int high[4] = {0, 0, 0, 0}, low[4] = {0, 0, 0, 0};
        mma(high, a.x, a.y, a.z, a.w, high0, high1);
        mma(low, a.x, a.y, a.z, a.w, low0, low1);
        const float scales[2] = {f16_to_f32(scale0), f16_to_f32(scale1)};
#pragma unroll
        for (int i = 0; i < 4; i++) scores[i] += scales[i / 2] * (float)(256 * high[i] + low[i]);
    }

    // Scores become powers, relative to the largest score so far. Tokens before `first` or from `end` on (positions in the
    // unit) are not seen. Of the first unit (not `begun`) there is nothing yet to make smaller.
    __device__ void weigh(float (&scores)[4], int first, int end, bool begun) {
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
            const float shrink = most[head] == larger ? 1.f : exp_of(most[head] - larger);
            most[head] = larger;
            if (begun) {
                total[head] *= shrink, above[head] *= shrink;
#pragma unroll
                for (int n = 0; n < DIM_PARTS * 4; n++) sum[n][head] *= shrink, sum[n][2 + head] *= shrink;
            }
#pragma unroll
            for (int n = 0; n < 2; n++) {
                float& score = scores[2 * n + head];
                score = larger == -INFINITY ? 0.f : exp_of(score - larger);
                total[head] += score;
            }
        }
    }

    // Adds the values of tokens with these powers.
    __device__ void add(const u8* values, const float (&powers)[4]) {
        constexpr u32 FIRST = 0x4140, SECOND = 0x4342; // bytes with zeros between them
        constexpr u32 ZEROS = 0x80008000u | Rounding::VALUE_ZERO * 0x00010001u; // below zero
        const u32 both = ((const u32*)(values + UNIT_LEVELS))[Lane().g];
        const float scales[2] = {f16_to_f32((u16)both), f16_to_f32((u16)(both >> 16))};
        u32 shares[2]; // tokens 4 t .. of head g
#pragma unroll
        for (int n = 0; n < 2; n++) shares[n] = transposed(pack_f16(powers[2 * n] * scales[n], powers[2 * n + 1] * scales[n]));
        mma_f16(above, ZEROS, ZEROS, ZEROS, ZEROS, shares[0], shares[1]);
#pragma unroll
        for (int part = 0; part < DIM_PARTS; part++) {
            const UnitPart levels(values + part * PART_LEVELS);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint4 run = levels.runs[i / 2];
                const u32 low = i % 2 == 0 ? run.x : run.z, high = i % 2 == 0 ? run.y : run.w; // dims g and g + 8
                mma_f16(sum[4 * part + i], __byte_perm(low, 0, FIRST), __byte_perm(high, 0, FIRST), __byte_perm(low, 0, SECOND),
                        __byte_perm(high, 0, SECOND), shares[0], shares[1]);
            }
        }
    }

    __device__ void put(AttentionShared& shared) {
        const Lane lane;
        constexpr float UNIT = 16777216.f / Rounding::SCALE_UNIT; // 2^24, of what a byte's f16 is
        float mean[2]; // 1 / total
#pragma unroll
        for (int head = 0; head < 2; head++) {
#pragma unroll
            for (int step = 4; step < LANES; step *= 2) total[head] += __shfl_xor_sync(~0u, total[head], step);
            mean[head] = total[head] > 0.f ? quotient(UNIT, total[head]) : 0.f;
            if (lane.g == 0) shared.weights[warp_id()][2 * lane.t + head] = make_float2(most[head], total[head]);
        }
#pragma unroll
        for (int n = 0; n < DIM_PARTS * 4; n++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float first = (sum[n][2 * half] + above[0]) * mean[0], second = (sum[n][2 * half + 1] + above[1]) * mean[1];
                const u32 pair = transposed(pack_f16(first, second));
                if (lane.g < GROUP_HEADS) *(u32*)&shared.values[warp_id()][lane.g][16 * n + 8 * half + 2 * lane.t] = pair;
            }
        }
    }
};

// A mean whose powers sum to exp(`weight`), with the sink: a key that is always there and has no value.
__device__ inline float with_sink(float mean, float weight, float sink) { return quotient(mean, 1.f + exp_of(sink - weight)); }

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
        if (warp_id() >= WARPS - GROUP_HEADS) score_newest(WARPS - 1 - warp_id()); // the last warps have the fewest units
        attend(pieces);
        block_sync();
        merge_sources();
        if (split.count > 1) merge_splits();
        if (split.newest() && warp_id() >= WARPS - 2) keep_newest(warp_id() - (WARPS - 2)); // nobody waits for it
    }

    // Queries and key, turned, and the value. A warp has a head, or the value.
    __device__ void prepare() {
        static_assert(GROUP_HEADS + 2 <= WARPS, "a warp for each");
        const int job = warp_id();
        if (job <= GROUP_HEADS) turn(job);
        else if (job == GROUP_HEADS + 1) take_value();
        if constexpr (GROUP_HEADS < COLUMNS)
            if (job == WARPS - 1) clear_columns();
    }

    // Those without a head.
    __device__ void clear_columns() {
        constexpr int WORDS = (COLUMNS - GROUP_HEADS) * PART_DIMS / 4;
        for (int i = lane_id(); i < 2 * DIM_PARTS * WORDS; i += LANES)
            ((u32*)shared.queries[i / WORDS / DIM_PARTS][i / WORDS % DIM_PARTS][GROUP_HEADS])[i % WORDS] = 0;
        if (lane_id() < COLUMNS - GROUP_HEADS) shared.factors[GROUP_HEADS + lane_id()] = 0.f;
    }

    __device__ void take_value() {
        constexpr int COUNT = HEAD_DIM / LANES;
        int rows[COUNT];
        float values[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) rows[i] = Q_ROWS + KV_ROWS + split.head * HEAD_DIM + i * LANES + lane_id();
        qkv(rows, values);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            shared.values[WARPS][0][i * LANES + lane_id()] = cached(values[i]);
        }
    }

    // A query head, or the key after them.
    __device__ void turn(int head) {
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
            const float scale = inverse_root(warp_sum(squares) / HEAD_DIM + params.norm_eps);
#pragma unroll
            for (int i = 0; i < 2 * PAIRS; i++) values[i] *= scale * weights[i];
        }
        float most = 0.f;
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
            const float2 turn = turns[pair * LANES + lane_id()];
            const float a = values[2 * pair], b = values[2 * pair + 1];
            values[2 * pair] = a * turn.x - b * turn.y, values[2 * pair + 1] = b * turn.x + a * turn.y;
            most = fmaxf(most, fmaxf(fabsf(values[2 * pair]), fabsf(values[2 * pair + 1])));
        }
        if (!query) {
#pragma unroll
            for (int i = 0; i < 2 * PAIRS; i++) shared.key[dim(i)] = f16_to_f32(cached(values[i]));
            return;
        }
        most = warp_most(most);
        const float factor = levels_factor(most);
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) {
            const int level = __float2int_rn(values[i] * factor), part = dim(i) / PART_DIMS, place = query_place(dim(i));
            shared.queries[0][part][head][place] = (level + 128) >> 8, shared.queries[1][part][head][place] = level;
        }
        if (lane_id() == 0) shared.factors[head] = most * (QUERY_SCALE / LEVELS_MOST / Rounding::SCALE_UNIT);
    }

    // The newest token's key (`of` 0) or value (1) into the caches.
    __device__ void keep_newest(int of) const {
        const int slot = position % UNIT_TOKENS;
        u8* unit = cached_unit(layer, split.head, position / UNIT_TOKENS);
        u16* paged = params.paged ? paged_place(layer, split.head, position, of) : nullptr;
        float values[KEY_SCALES], most[KEY_SCALES], largest = 0.f; // of 32 dims each
#pragma unroll
        for (int i = 0; i < KEY_SCALES; i++) {
            const int dim = i * SCALE_DIMS + lane_id();
            values[i] = of == 0 ? shared.key[dim] : f16_to_f32(shared.values[WARPS][0][dim]);
            most[i] = warp_most(fabsf(values[i]));
            largest = fmaxf(largest, most[i]);
            if (paged) paged[dim] = f32_to_f16(values[i]);
        }
#pragma unroll
        for (int i = 0; i < KEY_SCALES; i++) {
            const int dim = i * SCALE_DIMS + lane_id();
            const Rounding rounding(of == 0 ? most[i] : largest);
            const int level = rounding.level(values[i]);
            if (of == 0) unit[key_place(slot, dim)] = level;
            else unit[value_place(slot, dim)] = level + Rounding::VALUE_ZERO;
            if (lane_id() == 0) *(u16*)&unit[of == 0 ? key_scale_place(slot, i) : value_scale_place(slot)] = rounding.scale;
        }
    }

    __device__ void score_newest(int head) {
        float score = 0.f;
#pragma unroll
        for (int dim = lane_id(); dim < HEAD_DIM; dim += LANES) {
            const int part = dim / PART_DIMS, place = query_place(dim);
            const int level = 256 * (signed char)shared.queries[0][part][head][place] + (signed char)shared.queries[1][part][head][place];
            score += (float)level * shared.key[dim];
        }
        score = warp_sum(score) * (shared.factors[head] * Rounding::SCALE_UNIT);
        if (lane_id() == 0) shared.weights[WARPS][head] = split.newest() ? make_float2(score, 1.f) : make_float2(-INFINITY, 0.f);
    }

    __device__ void attend(Pieces& pieces) {
        Attending attending(shared);
        // Registers are short: tokens relative to the unit.
        int first = split.first - (split.begin + warp_id()) * UNIT_TOKENS, end = first + position - split.first;
        const int count = div_up(split.end - split.begin - warp_id(), WARPS);
#pragma unroll 1
        for (int left = count; left > 0; left--) {
            float scores[4] = {0.f, 0.f, 0.f, 0.f};
            const u8* keys = pieces.use();
            attending.score(keys, scores);
            if (!CachedUnits::WHOLE) pieces.release();
            attending.weigh(scores, first, end, left < count);
            attending.add(CachedUnits::WHOLE ? keys + KEYS_BYTES : pieces.use(), scores);
            pieces.release();
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
            const float most = warp_largest(weight.x);
            const float factor = weight.x == -INFINITY ? 0.f : exp_of(weight.x - most) * weight.y; // of its mean
            const float total = warp_sum(factor), weight_of_all = most + log_of(total);
            float2 value = make_float2(0.f, 0.f);
#pragma unroll
            for (int source = 0; source < SOURCES; source++) {
                const u32 pair = *(const u32*)&shared.values[source][source < WARPS ? head : 0][dim];
                const float share = __shfl_sync(~0u, factor, source);
                value.x += f16_to_f32((u16)pair) * share, value.y += f16_to_f32((u16)(pair >> 16)) * share;
            }
            const float mean = total > 0.f ? quotient(1.f, total) : 0.f;
            value.x *= mean, value.y *= mean;
            const int output = head * HEAD_DIM + dim;
            if (split.count == 1) {
                const float sinks = sink(head);
                tell_attended(output, with_sink(value.x, weight_of_all, sinks), with_sink(value.y, weight_of_all, sinks));
            } else {
                float* to = &params.partial_values[at * OUTPUTS + output];
                tell_value(to, value.x, tag), tell_value(to + 1, value.y, tag);
                if (dim == 0) tell_value(&params.partial_weights[at * GROUP_HEADS + head], weight_of_all, tag);
            }
        }
    }

    // Two of the KV head's.
    __device__ void tell_attended(int output, float first, float second) const {
        tell_word(&params.attended[split.head * OUTPUTS + output], tag.put_halves(pack_f16(first, second)));
    }

    // Each block of the KV head merges a part of the outputs: eight outputs and four lots of splits a warp.
    __device__ void merge_splits() {
        const Range outputs = Range{0, OUTPUTS / 2}.part(split.count, split.index).times(2);
        const int lot = lane_id() / MERGED_OUTPUTS, in_warp = lane_id() % MERGED_OUTPUTS;
#pragma unroll 1
        for (int begin = outputs.begin + warp_id() * MERGED_OUTPUTS; begin < outputs.end; begin += WARPS * MERGED_OUTPUTS) {
            const int output = begin + in_warp;
            const float value = merged(min(output, outputs.end - 1), lot);
            const float next = __shfl_down_sync(~0u, value, 1);
            if (lot == 0 && output < outputs.end && output % 2 == 0) tell_attended(output, value, next);
        }
    }

    // Over the splits of this lane's lot, then over lots.
    __device__ float merged(int output, int lot) const {
        const int head = output / HEAD_DIM;
        u32 weights[LOT], values[LOT];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < LOT; i++) {
                const int at = split.head * SPLITS_MAX + min(lot + i * LOTS, split.count - 1);
                weights[i] = ask_word(params.partial_weights + at * GROUP_HEADS + head);
                values[i] = ask_word(params.partial_values + at * OUTPUTS + output);
            }
#pragma unroll
            for (int i = 0; i < LOT; i++) all &= tag.in(weights[i]) && tag.in(values[i]);
        } while (!all);
        float most = -INFINITY, value = 0.f, total = 0.f;
#pragma unroll
        for (int i = 0; i < LOT; i++) {
            if (lot + i * LOTS >= split.count) weights[i] = __float_as_uint(-INFINITY); // was asked for twice
            most = fmaxf(most, untagged(weights[i]));
        }
        for (int step = MERGED_OUTPUTS; step < LANES; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
#pragma unroll
        for (int i = 0; i < LOT; i++) {
            const float factor = exp_of(untagged(weights[i]) - most);
            value += factor * untagged(values[i]), total += factor;
        }
        for (int step = MERGED_OUTPUTS; step < LANES; step *= 2) {
            value += __shfl_xor_sync(~0u, value, step);
            total += __shfl_xor_sync(~0u, total, step);
        }
        return with_sink(quotient(value, total), most + log_of(total), sink(head));
    }
};
