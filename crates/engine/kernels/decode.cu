// The decode step of gpt-oss: one launch makes many tokens.
//
// One block an SM, all there at once. Each stage computes what the stage before left in global memory, and waits for just
// that (tagged.cuh); a barrier of all blocks comes once a token. Weights come through rings of shared memory that know
// nothing of waiting (ring.cuh).
// Read `decode_steps` at the end first.

union Scratch {
    u8 vector[staged_bytes(HIDDEN) > staged_bytes(Q_ROWS) ? staged_bytes(HIDDEN) : staged_bytes(Q_ROWS)];
    u8 inner[USED][staged_bytes(FFN)];
    AttentionShared attention;
    struct {
        float values[OUT_ROWS_MAX];
        float parts[THREADS];
    } router;
};

struct Shared {
    alignas(128) u8 slots[WARPS][SLOTS][SLOT_BYTES];
    alignas(16) Scratch scratch;
    alignas(16) float x[HIDDEN]; // the residual stream, the same in every block
    u64 barriers[WARPS][SLOTS];
    Ring rings[WARPS];
    alignas(16) u8 zeros[64];
    float2 of_warps[WARPS];
    float2 turns[HALF_DIM]; // cosine and sine of this position
    Plan plan;
    Chosen chosen[WARPS]; // the same for every warp
    TileSums sums;
    RouterSums router_sums;
    u64 best[WARPS];
    u64 marked; // when the last mark was
};

static_assert(sizeof(Shared) <= 227 * 1024, "what a block can have");

extern __shared__ __align__(128) u8 shared_memory[];
// By name, so that its address is a constant in every function.
#define shared (*(Shared*)shared_memory)

__device__ inline u8* Ring::slot(int index) { return shared.slots[warp_id()][index]; }
__device__ inline u64* Ring::barrier(int index) { return &shared.barriers[warp_id()][index]; }
__device__ inline const Plan& Ring::plan() { return shared.plan; }
__device__ inline const Chosen& Ring::chosen() { return shared.chosen[warp_id()]; }

// A warp's ring, in registers for as long as it is worked with.
struct RingInUse {
    Ring ring;
    __device__ RingInUse() : ring(shared.rings[warp_id()]) {}
    __device__ ~RingInUse() {
        __syncwarp();
        if (lane_id() == 0) shared.rings[warp_id()] = ring;
        __syncwarp();
    }
};

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

__device__ inline Normed norm(NormInput& input) {
    const float squares = input.squares();
    input.weigh();
    const float2 sum_max = block_sum_max(shared.of_warps, squares, input.x.largest());
    return {rsqrtf(sum_max.x / HIDDEN + params.norm_eps), sum_max.y};
}

__device__ inline bool stages_hidden() { return threadIdx.x < staged_blocks(HIDDEN) * BLOCK_COLS / VALUES; }

// Stages norm(x) as integers. Returns the value of one of them.
__device__ inline float stage_norm(NormInput& input) {
    const Normed normed = norm(input);
    if (stages_hidden()) input.x.stage(shared.scratch.vector, threadIdx.x, levels_factor(normed.most));
    __syncthreads();
    return normed.most * normed.scale / LEVELS;
}

// Likewise.
__device__ inline float stage_attended(Tag tag) {
    static_assert(Q_ROWS <= THREADS * VALUES && Q_ROWS % (GROUP_BLOCKS * BLOCK_COLS) == 0, "one run of values a thread");
    const bool real = threadIdx.x < Q_ROWS / VALUES;
    const Values values = real ? Values::wait_for(params.attended + threadIdx.x * VALUES, tag) : Values::zero();
    const float most = block_sum_max(shared.of_warps, 0.f, values.largest()).y;
    if (real) values.stage(shared.scratch.vector, threadIdx.x, levels_factor(most));
    __syncthreads();
    return most / LEVELS;
}

__device__ inline void stage_inner(Tag tag) {
    constexpr int EXPERT_RUNS = staged_blocks(FFN) * BLOCK_COLS / VALUES, RUNS = div_up(USED * EXPERT_RUNS, THREADS);
    uint4 words[RUNS];
    bool all;
    do {
        all = true;
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            const int run = i * THREADS + threadIdx.x, expert = run / EXPERT_RUNS, at = run % EXPERT_RUNS * VALUES;
            const u32 none = tag.in_halves();
            words[i] = expert < USED && at < FFN ? ask_words(params.inner + expert * FFN + at) : make_uint4(none, none, none, none);
        }
#pragma unroll
        for (int i = 0; i < RUNS; i++) all &= tag.in_halves(words[i]);
    } while (!all);
#pragma unroll
    for (int i = 0; i < RUNS; i++) {
        const int run = i * THREADS + threadIdx.x;
        if (run < USED * EXPERT_RUNS) ((uint4*)shared.scratch.inner)[run] = untagged_halves(words[i]);
    }
    __syncthreads();
}

// ---- Parts of stages

template <Stage STAGE, class P> __device__ inline void multiply_8bit() {
    const Range range = shared.plan.warp(STAGE);
    {
        RingInUse use;
        product_8bit<P>(use.ring, range, shared.scratch.vector, shared.zeros,
                        [&](int tile, float2 sum) { shared.sums.put<STAGE>(range, tile, sum); });
    }
    if (range.begin == range.end) shared.sums.put_nothing();
    __syncthreads();
}

template <Stage STAGE, class P, int ROWS, class Vector, class Weight>
__device__ inline void multiply_mxfp4(Vector vector, Weight weight) {
    const Range range = shared.plan.warp(STAGE);
    {
        RingInUse use;
        product_mxfp4<P, ROWS>(use.ring, range, shared.zeros, vector, weight,
                               [&](int tile, float2 sum) { shared.sums.put<STAGE>(range, tile, sum); });
    }
    if (range.begin == range.end) shared.sums.put_nothing();
    __syncthreads();
}

// Inner values stay below this: gate is at most 7, up + 1 at most 8.
constexpr float INNER_UNIT = 64.f;

__device__ inline float activate(float gate, float up) {
    gate = fminf(gate, 7.f);
    up = fminf(fmaxf(up, -7.f), 7.f);
    return gate / (1.f + __expf(-1.702f * gate)) * (up + 1.f);
}

// ---- Stages
//
// Functions of their own, not inlined: the compiler then gives each all registers, instead of carrying what one stage could
// share with another through all of them. What is known before a stage's input is asked for before it. `layers`
// counts on from token to token: the stage's tag.

// x = embedding of the token, and the turns of its position
__noinline__ __device__ void begin(u32 token, int position) {
    const u16* row = params.embedding + (size_t)token * HIDDEN;
    for (int i = threadIdx.x; i < HIDDEN; i += THREADS) shared.x[i] = bf16_to_f32(row[i]);
    if (threadIdx.x < HALF_DIM) {
        float sine, cosine;
        sincosf((float)position * params.frequencies[threadIdx.x], &sine, &cosine);
        shared.turns[threadIdx.x] = make_float2(cosine * params.rope_magnitude, sine * params.rope_magnitude);
    }
    __syncthreads();
    mark(EMBED);
}

// qkv_parts = qkv * norm(x) + bias
__noinline__ __device__ void qkv(int layer, u32 layers) {
    NormInput input(params.attention_norm + layer * HIDDEN);
    const Row row = Row::of<QKV>(shared.plan);
    const int at = layer * QKV_ROWS + row.global();
    const float scale = row.real ? params.qkv_scale[at] : 0.f;
    const float bias = row.real && row.first ? params.qkv_bias[at] : 0.f;
    input.read(shared.x);
    if (layer > 0) input.add<DOWN>(shared.x, params.down_parts, Tag(layers - 1));
    const float unit = stage_norm(input);
    mark(QKV_INPUT);
    multiply_8bit<QKV, QkvPack>();
    mark(QKV_PRODUCT);
    if (row.real)
        tell_value(&params.qkv_parts[(row.first ? 0 : QKV_ROWS) + row.global()],
                   shared.sums.row<QKV>(shared.plan, row) * unit * scale + bias, Tag(layers));
    mark(QKV_FINISH);
}

__noinline__ __device__ void attend(int layer, u32 layers, int position) {
    const Split split(position, layer % 2 == 0 && WINDOW > 0);
    Attention attention(shared.scratch.attention, shared.turns, split, layer, position, Tag(layers));
    if (!split.idle()) attention.run();
    mark(ATTEND);
}

// out_parts = out * attended + bias; router sums += this block's share
__noinline__ __device__ void out(int layer, u32 layers) {
    const Tag tag(layers);
    const Row row = Row::of<OUT>(shared.plan);
    const Range pieces = shared.plan.block[OUT];
    const RouterWeights router(params.router + (size_t)layer * HIDDEN * EXPERTS, pieces.begin / OutPack::PIECES * TILE_ROWS,
                               div_up(pieces.end, OutPack::PIECES) * TILE_ROWS);
    const int at = layer * HIDDEN + row.global();
    const float scale = row.real ? params.out_scale[at] : 0.f;
    const float norm = row.real ? params.mixture_norm[at] : 0.f;
    const float bias = row.real && row.first ? params.out_bias[at] : 0.f;
    const float unit = stage_attended(tag);
    mark(OUT_INPUT);
    multiply_8bit<OUT, OutPack>();
    mark(OUT_PRODUCT);
    if (row.real) {
        const float value = shared.sums.row<OUT>(shared.plan, row) * unit * scale + bias;
        tell_value(&params.out_parts[(row.first ? 0 : HIDDEN) + row.global()], value, tag);
        shared.scratch.router.values[threadIdx.x] = (row.first ? value + shared.x[row.global()] : value) * norm;
    } else if (threadIdx.x < OUT_ROWS_MAX) {
        shared.scratch.router.values[threadIdx.x] = 0.f;
    }
    __syncthreads();
    router.add(shared.scratch.router.values, shared.scratch.router.parts, params.router_sums + layer * EXPERTS);
    mark(OUT_FINISH);
}

// inner = activation(gate_up * norm(x) + bias) of the chosen experts
__noinline__ __device__ void gate_up(int layer, u32 layers) {
    const Tag tag(layers);
    NormInput input(params.mixture_norm + layer * HIDDEN);
    Router router(params.router_bias + layer * EXPERTS);
    Chosen& chosen = shared.chosen[warp_id()];
    input.read(shared.x);
    input.add<OUT>(shared.x, params.out_parts, tag);
    if (warp_id() == WARPS - 1) shared.router_sums.wait_for(params.router_sums + layer * EXPERTS);
    const float scale = norm(input).scale;
    mark(GATE_UP_INPUT);
    router.choose(shared.router_sums, scale, chosen);
    {
        RingInUse use;
        use.ring.routed = layer + 1;
        use.ring.fill();
    }
    if (stages_hidden()) input.x.stage_f16(shared.scratch.vector, threadIdx.x, scale);
    __syncthreads();
    mark(GATE_UP_CHOOSE);
    const Row row = Row::of<GATE_UP>(shared.plan);
    const int slot = min(row.tile / GATE_UP_TILES, USED - 1), at = row.global() % (2 * FFN);
    const float bias = params.gate_up_bias[((size_t)layer * EXPERTS + chosen.experts[slot]) * 2 * FFN + at];
    multiply_mxfp4<GATE_UP, GateUpPack, 1>([&](int) { return shared.scratch.vector; }, [](int) { return 1.f; });
    mark(GATE_UP_PRODUCT);
    const float value = row.real ? shared.sums.row<GATE_UP>(shared.plan, row) + bias : 0.f;
    const float up = __shfl_down_sync(~0u, value, 1);
    const u32 inner = f32_to_f16(activate(value, up) / INNER_UNIT), next = __shfl_down_sync(~0u, inner, 2);
    if (row.real && at % 4 == 0) tell_word(&params.inner[slot * FFN + at / 2], tag.put_halves(inner | next << 16));
    mark(GATE_UP_FINISH);
}

// down_parts = sum of the chosen experts' shares of down * inner + bias
__noinline__ __device__ void down(int layer, u32 layers) {
    const Tag tag(layers);
    const Row row = Row::of<DOWN>(shared.plan);
    const Chosen& chosen = shared.chosen[warp_id()];
    float bias = 0.f;
    if (row.real && row.first)
#pragma unroll
        for (int i = 0; i < USED; i++) {
            const size_t expert = (size_t)layer * EXPERTS + chosen.experts[i];
            bias += chosen.shares[i] * params.down_bias[expert * HIDDEN + row.global()];
        }
    stage_inner(tag);
    mark(DOWN_INPUT);
    multiply_mxfp4<DOWN, DownPack, USED>([&](int row) { return shared.scratch.inner[row % USED]; },
                                         [&](int row) { return chosen.shares[row % USED]; });
    mark(DOWN_PRODUCT);
    if (row.real)
        tell_value(&params.down_parts[(row.first ? 0 : HIDDEN) + row.global()],
                   shared.sums.row<DOWN>(shared.plan, row) * INNER_UNIT + bias, tag);
    // Everyone has read them: zero for the next token.
    if (blockIdx.x == 0 && threadIdx.x < EXPERTS) params.router_sums[layer * EXPERTS + threadIdx.x] = 0;
    mark(DOWN_FINISH);
}

// best = this block's largest logit
__noinline__ __device__ void head(u32 step, u32 layers) {
    NormInput input(params.final_norm);
    input.read(shared.x);
    input.add<DOWN>(shared.x, params.down_parts, Tag(layers));
    const float unit = stage_norm(input);
    mark(HEAD_INPUT);
    float* logits = params.logits ? params.logits + (size_t)step * VOCAB : nullptr;
    u64 best = 0;
    const Lane lane;
    {
        RingInUse use;
        product_8bit<HeadPack>(use.ring, shared.plan.warp(HEAD), shared.scratch.vector, shared.zeros, [&](int tile, float2 sum) {
            if (lane.t > 1) return;
            const int row = tile * TILE_ROWS + lane.g + 8 * lane.t;
            const float logit = (lane.t == 0 ? sum.x : sum.y) * unit * params.head_scale[row];
            if (logits) logits[row] = logit;
            best = max(best, (u64)ordered_key(logit) << 32 | (0xFFFFFFFFu - row));
        });
    }
    mark(HEAD_PRODUCT);
    for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(~0u, best, step));
    if (lane_id() == 0) shared.best[warp_id()] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < WARPS; warp++) best = max(best, shared.best[warp]);
        params.best[blockIdx.x] = best;
        if (blockIdx.x == 0) *params.halt = *(volatile const u32*)params.stop;
    }
    grid_arrive();
    grid_wait(step + 1);
    mark(HEAD_FINISH);
}

// The token with the largest logit, the first of equals; every warp finds it for itself.
__device__ inline u32 largest() {
    u64 best = 0;
    for (int i = lane_id(); i < GRID; i += LANES) best = max(best, load_shared_by_blocks(&params.best[i]));
    for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(~0u, best, step));
    return 0xFFFFFFFFu - (u32)best;
}

__device__ inline void tell(u32 step, u32 token) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    *(volatile u32*)&params.told_tokens[step] = token;
    __threadfence_system();
    *(volatile u32*)params.told_count = step + 1;
}

__device__ inline void prepare_block() {
    if (threadIdx.x < sizeof(shared.zeros)) shared.zeros[threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.marked = 0;
    shared.plan.make();
    __syncthreads();
    Ring ring;
    ring.begin();
    ring.fill();
    if (lane_id() == 0) shared.rings[warp_id()] = ring;
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) decode_steps() {
    prepare_block();
    u32 token = params.forced[0], layers = 0;
    for (u32 step = 0; step < params.steps; step++) {
        const int position = params.position + step;
        begin(token, position);
#pragma unroll 1 // the calls, once
        for (int layer = 0; layer < LAYERS; layer++) {
            layers++;
            qkv(layer, layers);
            attend(layer, layers, position);
            out(layer, layers);
            gate_up(layer, layers);
            down(layer, layers);
        }
        head(step, layers);
        token = largest();
        tell(step, token);
        if (step + 1 < params.forced_count) token = params.forced[step + 1];
        if (load_shared_by_blocks(params.halt)) break;
    }
    RingInUse use;
    use.ring.drain();
}
