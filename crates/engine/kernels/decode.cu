// The decode step: one launch makes many tokens. What a model is stands in constants: ROUTED (experts, and a router that chooses
// of them; otherwise there is one, which all tokens go through), LEVELS (what its weights are: pack.cuh), and a few more.
//
// One block an SM, all there at once. Each stage computes what the stage before left in global memory, and waits for just
// that (tagged.cuh); all blocks meet once a token. Weights come through rings of shared memory that know
// nothing of waiting (ring.cuh).
// Read `make_tokens` at the end first.

constexpr int STAGED_COLS = HIDDEN > Q_ROWS ? HIDDEN : Q_ROWS;

union Scratch {
    StagedVectors<1, STAGED_COLS> vector;
    Screened<StagedVectors<1, STAGED_COLS>> head;
    StagedVectors<USED, FFN> inner;
    AttentionShared attention;
};

// Where a warp is. In shared memory: what stays in registers over a call of a stage is put in local memory there, and that
// is too far away.
struct Now {
    u32 step;
    int position;
    u32 token; // the input
    int layer;
    u32 layers; // counted on from token to token, with this one

    __device__ Tag tag() const { return Tag(layers); }
    __device__ Tag tag_before() const { return Tag(layers - 1); }
};

struct Shared {
    Supplied supplied;
    alignas(128) Scratch scratch;
    alignas(16) float x[HIDDEN]; // the residual stream, the same in every block
    float2 of_warps[WARPS];
    float weighed[WARPS]; // squares of what the head's input is staged from
    float2 turns[HALF_DIM]; // cosine and sine of this position
    Split splits[Split::KINDS];
    Plan plan;
    Now now[WARPS]; // the same, but for who is ahead
    TileSums sums;
    float routed[OUT_ROWS_MAX]; // this block's shares of the residual stream, for the router
    RouterSums router_sums;
    float norm_scale; // of the latest norm
    float unit;       // what is staged before the norm's scale is known has to be multiplied with this
    u64 best[WARPS + 1]; // of each warp, and of the grid
    u64 marked; // when the last mark was
};

static_assert(sizeof(Shared) <= 227 * 1024, "what a block can have");

extern __shared__ __align__(128) u8 shared_memory[];
// By name, so that its address is a constant in every function.
#define shared (*(Shared*)shared_memory)

__device__ inline const Now& now() { return shared.now[warp_id()]; }

template <class Change> __device__ inline void change_now(Change change) {
    __syncwarp();
    if (lane_id() == 0) change(shared.now[warp_id()]);
    __syncwarp();
}

extern "C" __device__ const int shared_bytes = sizeof(Shared);

// What the time between two marks went to, in the order in which it passes. The host knows the same names.
enum Mark {
    EMBED,
    QKV_INPUT, QKV_PRODUCT, QKV_FINISH,
    ATTEND,
    OUT_INPUT, OUT_PRODUCT, OUT_FINISH,
    GATE_UP_INPUT, GATE_UP_CHOOSE, GATE_UP_PRODUCT, GATE_UP_FINISH,
    DOWN_INPUT, DOWN_PRODUCT, DOWN_FINISH,
    HEAD_INPUT, HEAD_PRODUCT, HEAD_FINISH,
    MARKS,
};

// Adds the time since the last mark, for whoever wants to know where it goes.
__device__ inline void mark(Mark what) {
    if (MARKING == 0 || blockIdx.x != 0 || threadIdx.x != 0) return;
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (shared.marked != 0) params.clocks[what] += now - shared.marked;
    shared.marked = now;
}

// ---- Inputs

// norm(x) as it is in registers: not scaled yet. Needs `scale` of what it returns, and has its largest value.
struct Normed {
    float scale, most;
};

__device__ inline float norm_scale(float squares) { return inverse_root(squares * (1.f / HIDDEN) + params.norm_eps); }

__device__ inline Normed norm(NormInput& input) {
    const float squares = input.squares();
    input.weigh();
    const float2 sum_max = block_sum_max(shared.of_warps, squares, input.x.largest());
    return {norm_scale(sum_max.x), sum_max.y};
}

__device__ inline bool stages(int cols) { return threadIdx.x < staged_blocks(cols) * BLOCK_COLS / VALUES; }

// Stages norm(x) as integers. Returns the value of one of them.
__device__ inline float stage_norm(NormInput& input) {
    const Normed normed = norm(input);
    if (stages(HIDDEN)) input.x.stage(shared.scratch.vector.values[0], threadIdx.x, levels_factor(normed.most));
    if (threadIdx.x == 0) shared.norm_scale = normed.scale;
    const float weighed = warp_sum(input.squares());
    if (lane_id() == 0) shared.weighed[warp_id()] = weighed;
    block_sync();
    return normed.most * normed.scale / LEVELS_MOST;
}

// Stages norm(x) as f16 before the norm's scale is known, with a power of two near the latest one, and far enough from what f16
// cannot hold. Returns that.
__device__ inline float stage_unscaled(NormInput& input) {
    const float near = __uint_as_float(__float_as_uint(shared.norm_scale) & 0x7F800000u) / 64.f;
    const float squares = warp_sum(input.squares());
    input.weigh();
    stage_halves(shared.scratch.vector.values[0], shared.scratch.vector.sums[0], threadIdx.x, input.x.halves(near), stages(HIDDEN));
    if (lane_id() == 0) shared.of_warps[warp_id()].x = squares;
    block_sync();
    return near;
}

// The norm's scale, by one warp. Others know `unit` after the next barrier.
__device__ inline float find_unit(float near) {
    const float scale = norm_scale(warp_sum(lane_id() < WARPS ? shared.of_warps[lane_id()].x : 0.f));
    if (lane_id() == 0) shared.norm_scale = scale, shared.unit = quotient(scale, near);
    return scale;
}

// Runs of a group of columns, and of so many groups that a warp has: a lane's part.
constexpr int GROUP_RUNS = GROUP_BLOCKS * BLOCK_COLS / VALUES;
__host__ __device__ constexpr int warp_runs(Stage stage) { return div_up(div_up(block_groups_max(stage), WARPS) * GROUP_RUNS, LANES); }

// Stages attention's outputs. Returns the value of 1.
__device__ inline float stage_attended(Tag tag) {
    static_assert(Q_ROWS <= THREADS * VALUES && Q_ROWS % VALUES == 0, "one run of values a thread");
    const int first_of_warp = warp_id() * LANES * VALUES;
    if (first_of_warp < Q_ROWS) wait_gently(params.attended + first_of_warp, [&](u32 word) { return tag.in_halves(word); });
    uint4 words = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < Q_ROWS / VALUES) {
        do words = ask_words(params.attended + threadIdx.x * VALUES);
        while (!tag.in_halves(words));
    }
    const Values values = Values::of_halves(untagged_halves(words));
    const float most = block_sum_max(shared.of_warps, 0.f, values.largest()).y;
    if (stages(Q_ROWS)) values.stage(shared.scratch.vector.values[0], threadIdx.x, levels_factor(most));
    block_sync();
    return most / LEVELS_MOST;
}

// Those of this warp's groups alone: nobody waits for what others need. Several warps may stage the same.
__device__ inline void stage_attended_of_warp(Tag tag) {
    const Range range = shared.plan.warp(OUT);
    auto& to = shared.scratch.attention.attended;
    stage_told<warp_runs(OUT)>(to.values[0], to.sums[0], tag, [&](int i) {
        const int run = i * LANES + lane_id(), group = range.begin + run / GROUP_RUNS;
        const int index = group % OutPack::GROUPS * GROUP_RUNS + run % GROUP_RUNS;
        const bool real = group < range.end;
        return ToldRun{real && index * VALUES < Q_ROWS ? params.attended + index * VALUES : nullptr, index, real};
    });
    __syncwarp();
}

// Inner values: by each warp those of its own groups, unless all of them together are much fewer. With a router, only where a
// block needs all of them: having seen them says that everyone has chosen, and the router's sums can be forgotten.
__device__ inline void stage_inner(Tag tag) {
    constexpr int EXPERT_RUNS = staged_blocks(FFN) * BLOCK_COLS / VALUES, ALL_GROUPS = USED * DownPack::GROUPS;
    constexpr bool NEEDS_ALL = stage_groups(DOWN) / GRID >= ALL_GROUPS;
    auto& to = shared.scratch.inner;
    if constexpr (2 * block_groups_max(DOWN) <= 3 * ALL_GROUPS && (NEEDS_ALL || !ROUTED)) {
        const Range range = shared.plan.warp(DOWN);
        stage_told<warp_runs(DOWN)>(to.values[0], to.sums[0], tag, [&](int i) {
            const int run = i * LANES + lane_id(), group = range.begin + run / GROUP_RUNS;
            const int expert = group / DownPack::GROUPS % USED, index = group % DownPack::GROUPS * GROUP_RUNS + run % GROUP_RUNS;
            const bool real = group < range.end;
            return ToldRun{real && index * VALUES < FFN ? params.inner + expert * FFN + index * VALUES : nullptr,
                           expert * EXPERT_RUNS + index, real};
        });
        __syncwarp();
    } else {
        stage_told<div_up(USED * EXPERT_RUNS, THREADS)>(to.values[0], to.sums[0], tag, [&](int i) {
            const int run = i * THREADS + threadIdx.x, expert = run / EXPERT_RUNS, at = run % EXPERT_RUNS * VALUES;
            const bool real = expert < USED;
            return ToldRun{real && at < FFN ? params.inner + expert * FFN + at : nullptr, run, real};
        });
        block_sync();
    }
}

// ---- Parts of stages

template <Stage STAGE, class P> __device__ inline void multiply_8bit() {
    const Range range = shared.plan.warp(STAGE);
    {
        Pieces pieces(shared.supplied);
        product_rows<P>(pieces, range, shared.scratch.vector.values[0],
                        [&](int tile, float2 sum) { shared.sums.put<STAGE>(range, tile, sum); });
    }
    if (range.begin == range.end) shared.sums.put_nothing<STAGE>();
    block_sync();
}

template <Stage STAGE, class P, int ROWS, class Vector, class Weight>
__device__ inline void multiply_scaled(Work& work, Vector vector, Weight weight) {
    const auto multiply = [&](auto pack) {
        constexpr bool PAIRS = decltype(pack)::PAIRS && block_groups_max(STAGE) > WARPS;
        product_scaled<decltype(pack), ROWS, PAIRS>(work, vector, weight,
                                                    [&](int tile, float2 sum) { shared.sums.put<STAGE>(work.range, tile, sum); });
    };
    bool wide = false;
    if constexpr (may_be_wide(STAGE)) {
        wide = is_wide(now().layer, STAGE);
        if (wide) multiply(Wide<P>());
    }
    if (!wide) multiply(P());
    if (work.range.begin == work.range.end) shared.sums.put_nothing<STAGE>();
    block_sync();
}

// With the one vector that is staged.
template <Stage STAGE, class P> __device__ inline void multiply_scaled(Work& work) {
    multiply_scaled<STAGE, P, 1>(work, [](int) { return shared.scratch.vector.at(0); }, [](int) { return 1.f; });
}

// Inner values are told as parts of this.
constexpr float INNER_UNIT = 4.f;

// gpt-oss keeps gate below 7, and up + 1 below 8.
__device__ inline float activate(float gate, float up) {
    if (!CLAMPED) return quotient(gate, 1.f + exp_of(-gate)) * up;
    gate = fminf(gate, 7.f);
    up = fminf(fmaxf(up, -7.f), 7.f);
    return quotient(gate, 1.f + exp_of(-1.702f * gate)) * (up + 1.f);
}

__device__ inline u32 inner_half(float value) {
    return f32_to_f16(fminf(fmaxf(value / INNER_UNIT, -HALF_MAX), HALF_MAX));
}

// ---- Stages
//
// Functions of their own, not inlined: the compiler then gives each all registers, instead of carrying what one stage could
// share with another through all of them. What is known before a stage's input is asked for before it.

// What depends on a token's position alone. By two warps or more, of which this is `thread`.
__device__ inline void prepare_position(int position, int thread) {
    if (thread < HALF_DIM) {
        float sine, cosine;
        sincosf((float)position * params.frequencies[thread], &sine, &cosine);
        shared.turns[thread] = make_float2(cosine * params.rope_magnitude, sine * params.rope_magnitude);
    }
    if (thread < Split::KINDS) shared.splits[thread].find(position, thread);
}

// x = embedding of the token
__noinline__ __device__ void begin() {
    if (threadIdx.x == 0) {
        written_for_copies();
        tell_warps(shared.supplied.begun, now().step + 1);
    }
    const u16* row = params.embedding + (size_t)now().token * HIDDEN;
    float squares = 0.f;
    for (int i = threadIdx.x; i < HIDDEN; i += THREADS) {
        const float value = f16_to_f32(row[i]);
        shared.x[i] = value, squares += value * value;
    }
    squares = block_sum_max(shared.of_warps, squares, 0.f).x;
    if (threadIdx.x == 0) shared.norm_scale = norm_scale(squares);
    block_sync();
    mark(EMBED);
}

// qkv_parts = qkv * norm(x) + bias
__noinline__ __device__ void qkv() {
    const int layer = now().layer;
    NormInput input(params.attention_norm + layer * HIDDEN);
    const Row row = Row::of<QKV>(shared.plan);
    const int at = layer * QKV_ROWS + row.global();
    const float scale = row.real ? params.qkv_scale[at] : 0.f;
    const float bias = row.real && row.part == 0 ? params.qkv_bias[at] : 0.f;
    const auto places = TileSums::places<QKV>(shared.plan, row);
    input.read(shared.x);
    Work work(QkvPack(), shared.plan.warp(QKV), shared.supplied);
    if (layer > 0) input.add<DOWN>(shared.x, params.down_parts, now().tag_before());
    float unit;
    if constexpr (LEVELS) {
        const float near = stage_unscaled(input);
        mark(QKV_INPUT);
        if (warp_id() == 0) find_unit(near); // which has the fewest groups
        multiply_scaled<QKV, QkvPack>(work);
        unit = shared.unit;
    } else {
        unit = stage_norm(input);
        mark(QKV_INPUT);
        multiply_8bit<QKV, QkvPack>();
    }
    mark(QKV_PRODUCT);
    if (row.real)
        tell_value(&params.qkv_parts[row.part * QKV_ROWS + row.global()],
                   shared.sums.row<QKV>(places, row) * unit * scale + bias, now().tag());
    mark(QKV_FINISH);
}

__noinline__ __device__ void attend() {
    const Split& split = shared.splits[Split::kind(now().layer)];
    if (!split.idle()) {
        Attention attention{shared.scratch.attention, shared.turns, split, now().layer, now().position, now().tag()};
        Pieces pieces(shared.supplied);
        attention.run(pieces);
    }
    mark(ATTEND);
}

// out_parts = out * attended + bias; router sums += this block's share
__noinline__ __device__ void out() {
    const int layer = now().layer;
    const Tag tag = now().tag();
    const Row row = Row::of<OUT>(shared.plan);
    const Range groups = shared.plan.block[OUT];
    const RouterWeights router(params.router + (size_t)layer * HIDDEN * EXPERTS, groups.begin / OutPack::GROUPS * TILE_ROWS,
                               div_up(groups.end, OutPack::GROUPS) * TILE_ROWS);
    const int at = layer * HIDDEN + row.global();
    const float scale = row.real ? params.out_scale[at] : 0.f;
    const float norm = ROUTED && row.real ? params.mixture_norm[at] : 0.f;
    const float bias = row.real && row.part == 0 ? params.out_bias[at] : 0.f;
    const auto places = TileSums::places<OUT>(shared.plan, row);
    float unit = 1.f;
    if constexpr (LEVELS) {
        Work work(OutPack(), shared.plan.warp(OUT), shared.supplied);
        stage_attended_of_warp(tag);
        mark(OUT_INPUT);
        multiply_scaled<OUT, OutPack, 1>(work, [](int) { return shared.scratch.attention.attended.at(0); }, [](int) { return 1.f; });
    } else {
        unit = stage_attended(tag);
        mark(OUT_INPUT);
        multiply_8bit<OUT, OutPack>();
    }
    mark(OUT_PRODUCT);
    const float value = row.real ? shared.sums.row<OUT>(places, row) * unit * scale + bias : 0.f;
    tell_share(&params.out_parts[row.part * HIDDEN + row.global()], value, row.real, tag);
    if constexpr (ROUTED) {
        if (row.real) {
            shared.routed[threadIdx.x] = (row.part == 0 ? value + shared.x[row.global()] : value) * norm;
        } else if (threadIdx.x < OUT_ROWS_MAX) {
            shared.routed[threadIdx.x] = 0.f;
        }
        block_sync();
        router.add(shared.routed, params.router_sums + layer * EXPERTS * SUM_STRIDE);
    }
    mark(OUT_FINISH);
}

// inner = activation(gate_up * norm(x) + bias) of the chosen experts
__noinline__ __device__ void gate_up() {
    const int layer = now().layer;
    const Tag tag = now().tag();
    NormInput input(params.mixture_norm + layer * HIDDEN);
    const Row row = Row::of<GATE_UP>(shared.plan);
    const int slot = min(row.tile / GATE_UP_TILES, USED - 1), at = row.global() % (2 * FFN);
    const float scale = LEVELS ? params.gate_up_scale[layer * 2 * FFN + at] : 1.f;
    const auto places = TileSums::places<GATE_UP>(shared.plan, row);
    Work work(GateUpPack(), shared.plan.warp(GATE_UP), shared.supplied);
    const bool chooses = warp_id() == (ROUTED ? WARPS - 1 : 0);
    Router router(params.router_bias + layer * EXPERTS);
    input.read(shared.x);
    input.add<OUT>(shared.x, params.out_parts, tag);
    if (ROUTED && chooses) shared.router_sums.wait_for(params.router_sums + layer * EXPERTS * SUM_STRIDE);
    const float near = stage_unscaled(input);
    mark(GATE_UP_INPUT);
    if (chooses) {
        const float norm = find_unit(near);
        if constexpr (ROUTED) {
            const float logit = router.choose(shared.router_sums, norm, shared.supplied.chosen);
            if (lane_id() == 0) tell_warps(shared.supplied.routed, now().layers);
            Router::share(logit, shared.supplied.chosen);
        }
    }
    if constexpr (ROUTED) shared.supplied.wait_for_routed(now().layers);
    mark(GATE_UP_CHOOSE);
    const size_t expert = (size_t)layer * EXPERTS + shared.supplied.chosen.experts[slot];
    const float bias = EXPERT_BIASES ? params.gate_up_bias[expert * 2 * FFN + at] : 0.f;
    multiply_scaled<GATE_UP, GateUpPack>(work);
    mark(GATE_UP_PRODUCT);
    const float value = row.real ? shared.sums.row<GATE_UP>(places, row) * shared.unit * scale + bias : 0.f;
    const float up = __shfl_down_sync(~0u, value, 1);
    const u32 inner = inner_half(activate(value, up)), next = __shfl_down_sync(~0u, inner, 2);
    if (row.real && at % 4 == 0) tell_word(&params.inner[slot * FFN + at / 2], tag.put_halves(inner | next << 16));
    mark(GATE_UP_FINISH);
}

// down_parts = sum of the chosen experts' shares of down * inner + bias
__noinline__ __device__ void down() {
    const int layer = now().layer;
    const Tag tag = now().tag();
    const Row row = Row::of<DOWN>(shared.plan);
    const Chosen& chosen = shared.supplied.chosen;
    float biases[USED];
#pragma unroll
    for (int i = 0; i < USED; i++) {
        const size_t expert = (size_t)layer * EXPERTS + chosen.experts[i];
        biases[i] = EXPERT_BIASES && row.real ? params.down_bias[expert * HIDDEN + row.global()] : 0.f;
    }
    const float scale = LEVELS && row.real ? params.down_scale[layer * HIDDEN + row.global()] : 1.f;
    const auto places = TileSums::places<DOWN>(shared.plan, row);
    Work work(DownPack(), shared.plan.warp(DOWN), shared.supplied);
    stage_inner(tag);
    mark(DOWN_INPUT);
    multiply_scaled<DOWN, DownPack, USED>(work, [](int row) { return shared.scratch.inner.at(row % USED); },
                                          [&](int row) { return ROUTED ? chosen.shares[row % USED] : 1.f; });
    mark(DOWN_PRODUCT);
    float sum = 0.f;
    if (row.real) {
        sum = shared.sums.row<DOWN>(places, row) * (INNER_UNIT * scale);
#pragma unroll
        for (int i = 0; i < USED; i++) sum += row.part == 0 ? chosen.shares[i] * biases[i] : 0.f;
    }
    tell_share(&params.down_parts[row.part * HIDDEN + row.global()], sum, row.real, tag);
    // Everyone has read them: zero for the next token.
    if (ROUTED && blockIdx.x == 0 && threadIdx.x < EXPERTS) params.router_sums[(layer * EXPERTS + threadIdx.x) * SUM_STRIDE] = 0;
    mark(DOWN_FINISH);
}

// ---- The token

// A block's largest logit, so that the largest word is the one that is wanted: logit, then the token (the first of equals),
// then whether the host asked this block to stop, then the step's number, counted on from launch to launch.
struct Best {
    u64 word;
    static constexpr int STEP_BITS = 13, TOKEN_BITS = 18;
    static_assert(VOCAB < 1 << TOKEN_BITS, "a token has so many bits");
    static constexpr u32 STEPS = (1u << STEP_BITS) - 1, LAST = (1u << TOKEN_BITS) - 1;

    __device__ Best() : word(0) {}
    __device__ explicit Best(u64 word) : word(word) {}
    __device__ Best(float logit, int token) : word((u64)ordered_key(logit) << 32 | (LAST - token) << (STEP_BITS + 1)) {}
    __device__ void take(Best other) { word = max(word, other.word); }
    __device__ void take_warps() { // the best of all lanes' in each
        for (int step = 16; step > 0; step /= 2) take(Best(__shfl_xor_sync(~0u, word, step)));
    }
    __device__ void finish(u32 step) { word |= step + 1 & STEPS; }
    __device__ void halt(bool wanted) { word |= (u64)wanted << STEP_BITS; }
    __device__ bool of(u32 step) const { return ((u32)word & STEPS) == (step + 1 & STEPS); }
    __device__ u32 token() const { return LAST - ((u32)word >> (STEP_BITS + 1)); }
    __device__ bool odd() const { return (u32)(word >> 32) >= ordered_key(INFINITY); } // infinite, or not a number
    __device__ bool halts() const { return (u32)word >> STEP_BITS & 1u; }
};

// This block's largest logit, in every warp that has some; and all logits, if they are wanted.
__device__ inline Best multiply_head(float unit, u32 step) {
    const Lane lane;
    const Range range = shared.plan.warp(HEAD);
    const int in_tile = lane.g + 8 * (lane.t % 2);
    float* logits = params.logits ? params.logits + (size_t)step * VOCAB : nullptr;
    float scale = params.head_scale[min(range.begin / HeadPack::GROUPS, HEAD_TILES - 1) * TILE_ROWS + in_tile];
    Best best;
    Pieces pieces(shared.supplied);
    product_rows<HeadPack>(pieces, range, shared.scratch.vector.values[0], [&](int tile, float2 sum) {
        const int row = tile * TILE_ROWS + in_tile;
        const float logit = (lane.t % 2 == 0 ? sum.x : sum.y) * unit * scale;
        scale = params.head_scale[min(tile + 1, HEAD_TILES - 1) * TILE_ROWS + in_tile]; // asked for a tile ahead
        if (logits && lane.t < 2) logits[row] = logit;
        best.take(Best(logit, row));
    });
    best.take_warps();
    return best;
}

// Asks for what the next token begins with if this is it, to be near by then.
__device__ inline void ask_for_embedding(int row) {
    constexpr int LINE = 128 / sizeof(u16);
    const u16* embedding = params.embedding + (size_t)row * HIDDEN;
    for (int i = lane_id() * LINE; i < HIDDEN; i += LANES * LINE) asm volatile("prefetch.global.L2 [%0];" ::"l"(embedding + i));
}

// The same, found among the few rows that the rounded levels leave, which are half of the bytes. By these a logit is off by
// `reach` times the row's scale at most.
__device__ inline Best screen_head(float unit, float reach, u32 counted) {
    const Lane lane;
    const Range range = shared.plan.warp(HEAD);
    const int first_row = shared.plan.block[HEAD].begin / HeadPack::GROUPS * TILE_ROWS;
    const int rows = shared.plan.block[HEAD].end / HeadPack::GROUPS * TILE_ROWS - first_row;
    const int in_tile = lane.g + 8 * (lane.t % 2);
    auto& found = shared.scratch.head;
    Bound bound(counted);
    if (threadIdx.x == 0) found.count = 0;
    float scale = params.head_scale[min(range.begin / HeadPack::GROUPS, HEAD_TILES - 1) * TILE_ROWS + in_tile];
    Pieces pieces(shared.supplied);
    product_rows<CoarsePack>(pieces, range, found.vector.values[0], [&](int tile, float2 sum) {
        const float logit = (lane.t % 2 == 0 ? sum.x : sum.y) * unit * scale, off = reach * fabsf(scale);
        scale = params.head_scale[min(tile + 1, HEAD_TILES - 1) * TILE_ROWS + in_tile];
        if (lane.t < 2) found.upper[tile * TILE_ROWS + in_tile - first_row] = logit + off;
        bound.raise(logit - off);
    });
    block_sync();
    const float least = bound.now();
    for (int row = threadIdx.x; row < rows; row += THREADS)
        if (!(found.upper[row] < least)) found.add(row); // what is no number is looked at too
    block_sync();
    Best best;
    for (u32 i = warp_id(); i < found.count; i += WARPS) {
        const int row = first_row + found.rows[i];
        ask_for_embedding(row);
        best.take(Best(row_product(row, found.vector.values[0]) * unit * params.head_scale[row], row));
    }
    return best;
}

// The best of all blocks. If one was asked to stop, all are.
__device__ inline Best wait_for_all(u32 step) {
    constexpr int BLOCKS = div_up(GRID, LANES);
    Best found[BLOCKS], best;
    bool all;
    do {
        all = true;
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) found[i] = Best(ask_two_words(&params.best[min(i * LANES + lane_id(), GRID - 1)]));
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) all &= found[i].of(step);
    } while (!all);
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) best.take(found[i]);
    bool halts = false;
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) halts |= found[i].halts();
    best.take_warps();
    best.halt(__any_sync(~0u, halts));
    return best;
}

// Tells the others this block's best and finds the best of all. Whoever has seen all of them knows that every block has
// finished this token, and sees what it wrote.
__device__ inline Best best_of_grid(Best best, u32 step, u32 stop) {
    if (lane_id() == 0) shared.best[warp_id()] = best.word;
    block_sync();
    if (warp_id() == 0) {
        best = Best(lane_id() < WARPS ? shared.best[lane_id()] : 0);
        best.take_warps();
        best.finish(step);
        best.halt(stop != 0);
        if (lane_id() == 0)
            asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(&params.best[blockIdx.x]), "l"(best.word) : "memory");
        best = wait_for_all(step);
        __threadfence();
        if (lane_id() == 0) shared.best[WARPS] = best.word;
    } else {
        prepare_position(now().position + 1, threadIdx.x - LANES); // while the first warp waits
    }
    block_sync();
    return Best(shared.best[WARPS]);
}

// One more than the token: what is still zero was not told yet. Logits are there when the launch is over, so nothing has to be waited
// for here.
__device__ inline void tell_host(u32 step, Best found) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
        asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(&params.told_tokens[step]),
                     "r"(found.odd() ? ODD_LOGIT : found.token() + 1)
                     : "memory");
}

// The token with the largest logit, and on to the next step. False if there is none.
__noinline__ __device__ bool head() {
    NormInput input(params.final_norm);
    const u32 stop = threadIdx.x == 0 && blockIdx.x == 0 ? *(volatile const u32*)params.stop : 0; // takes long
    const u32 step = now().step, next = step + 1;
    const Start& start = shared.supplied.start;
    const u32 forced = next < start.forced_count ? start.forced[next] : 0;
    input.read(shared.x);
    input.add<DOWN>(shared.x, params.down_parts, now().tag_before());
    const float unit = stage_norm(input);
    mark(HEAD_INPUT);
    Best best;
    if (start.screened) {
        const float squares = warp_sum(lane_id() < WARPS ? shared.weighed[lane_id()] : 0.f);
        best = screen_head(unit, SCREEN_REACH * shared.norm_scale * sqrtf(squares), start.counted + step);
    } else {
        best = multiply_head(unit, step);
    }
    mark(HEAD_PRODUCT);
    const Best found = best_of_grid(best, start.counted + step, stop);
    tell_host(step, found);
    if (start.screened && blockIdx.x == 0 && threadIdx.x == 0) Bound(start.counted + step).forget();
    change_now([&](Now& now) {
        now.step = next, now.position++, now.layer = 0;
        now.token = next < start.forced_count ? forced : found.token();
    });
    mark(HEAD_FINISH);
    return next < start.steps && !found.halts();
}

__device__ inline void prepare_block(const Start& start) {
    if (threadIdx.x < USED) shared.supplied.chosen.experts[threadIdx.x] = threadIdx.x, shared.supplied.chosen.shares[threadIdx.x] = 1.f;
    if (threadIdx.x == 0) shared.marked = 0, shared.supplied.routed = shared.supplied.begun = shared.supplied.over = 0, shared.supplied.start = start;
    if (threadIdx.x < WARPS) {
        shared.supplied.used[threadIdx.x] = 0;
        for (int i = 0; i < SLOTS; i++) copy_barrier_init(&shared.supplied.there[threadIdx.x][i]);
        copy_barriers_ready();
    }
    shared.plan.make();
    if (warp_id() < WARPS) prepare_position(start.position, threadIdx.x);
    __syncthreads();
}

// What the warps that bring do all the time.
__noinline__ __device__ void bring_pieces() {
    constexpr u32 LANES_THAT_SERVE = (u32)((1ull << SERVED) - 1);
    if (lane_id() >= SERVED) return;
    Supply supply(shared.supplied, shared.plan, (warp_id() - WARPS) * SERVED + lane_id());
    for (bool more = true; more;) {
        if (__any_sync(LANES_THAT_SERVE, supply.bring())) continue;
        more = __any_sync(LANES_THAT_SERVE, !supply.finished()) && !read_again(shared.supplied.over);
        more = __any_sync(LANES_THAT_SERVE, more);
        __nanosleep(20);
    }
    supply.drain();
}

__noinline__ __device__ void go_to_first_step() {
    change_now([](Now& now) { now = {0, (int)shared.supplied.start.position, shared.supplied.start.token, 0, 1}; });
}

__noinline__ __device__ bool go_to_next_layer() {
    const int next = now().layer + 1;
    change_now([&](Now& now) { now.layer = next, now.layers++; });
    return next < LAYERS;
}

__noinline__ __device__ void make_tokens() {
    go_to_first_step();
    do {
        begin();
        do {
            qkv();
            attend();
            out();
            gate_up();
            down();
        } while (go_to_next_layer());
    } while (head());
    if (threadIdx.x == 0) tell_warps(shared.supplied.over, 1);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) decode_steps(const __grid_constant__ Start start) {
    prepare_block(start);
    if (warp_id() >= WARPS) bring_pieces();
    else make_tokens();
}
