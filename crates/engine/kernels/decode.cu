// The decode step of gpt-oss: one launch makes many tokens.
//
// One block an SM, all there at once. Each stage computes what the stage before left in global memory, and ends at a grid
// barrier: five a layer. Weights come through rings of shared memory that know nothing of barriers (ring.cuh).
// Read `decode_steps` at the end first.

constexpr int MARKS = 16;

union Scratch {
    u8 vector[staged_bytes(HIDDEN) > staged_bytes(Q_ROWS) ? staged_bytes(HIDDEN) : staged_bytes(Q_ROWS)];
    u8 inner[USED][staged_bytes(FFN)];
    AttentionShared attention;
};

struct Shared {
    alignas(128) u8 slots[WARPS][SLOTS][SLOT_BYTES];
    alignas(16) Scratch scratch;
    alignas(16) float x[HIDDEN]; // the residual stream, the same in every block
    u64 barriers[WARPS][SLOTS];
    alignas(16) u8 zeros[32];
    float2 of_warps[WARPS];
    float2 turns[HALF_DIM]; // cosine and sine of this position
    Plan plan;
    Chosen chosen[WARPS]; // the same for every warp
    TileSums sums;
    float router_values[OUT_ROWS_MAX];
    float router_parts[THREADS];
    u64 best[WARPS];
};

extern "C" __device__ const int shared_bytes = sizeof(Shared);

struct Step {
    const Params& params;
    Shared& shared;
    Ring ring;
    GridBarrier barrier;
    u32 split_target;
    int layer;
    float unit; // value of one level of the staged vector

    __device__ Step(const Params& params, Shared& shared)
        : params(params), shared(shared), ring(params, shared.plan, shared.chosen[warp_id()], shared.slots[warp_id()][0], shared.barriers[warp_id()]),
          barrier{params.barrier, 0}, split_target(0), layer(0), unit(0.f) {}

    // ---- Inputs

    // x = embedding of the token, and the turns of its position
    __device__ void begin(u32 token, int position) {
        const u16* row = params.embedding + (size_t)token * HIDDEN;
        for (int i = threadIdx.x; i < HIDDEN; i += THREADS) shared.x[i] = bf16_to_f32(row[i]);
        if (threadIdx.x < HALF_DIM) {
            float sine, cosine;
            sincosf((float)position * params.frequencies[threadIdx.x], &sine, &cosine);
            shared.turns[threadIdx.x] = make_float2(cosine * params.rope_magnitude, sine * params.rope_magnitude);
        }
        __syncthreads();
    }

    // Stages norm(x + parts). `known(scale)` is called as soon as the norm's scale is known.
    template <class Known> __device__ void stage_norm(NormInput& input, const float* parts, Known known) {
        input.add(shared.x, parts);
        const float squares = input.squares();
        input.weigh();
        const float2 sum_max = block_sum_max(shared.of_warps, squares, input.x.largest());
        const float scale = rsqrtf(sum_max.x / HIDDEN + params.norm_eps);
        known(scale);
        if (threadIdx.x < staged_blocks(HIDDEN) * BLOCK_COLS / VALUES)
            input.x.stage(shared.scratch.vector, threadIdx.x, levels_factor(sum_max.y));
        unit = sum_max.y * scale / LEVELS;
        __syncthreads();
    }

    __device__ void stage_attended() {
        static_assert(Q_ROWS <= THREADS * VALUES && Q_ROWS % (GROUP_BLOCKS * BLOCK_COLS) == 0, "one run of values a thread");
        const bool real = threadIdx.x < Q_ROWS / VALUES;
        const Values values = real ? Values::read_shared_by_blocks(params.attended + threadIdx.x * VALUES) : Values::zero();
        const float most = block_sum_max(shared.of_warps, 0.f, values.largest()).y;
        if (real) values.stage(shared.scratch.vector, threadIdx.x, levels_factor(most));
        unit = most / LEVELS;
        __syncthreads();
    }

    __device__ void stage_inner() {
        constexpr int EXPERT_RUNS = staged_blocks(FFN) * BLOCK_COLS / VALUES, RUNS = div_up(USED * EXPERT_RUNS, THREADS);
        Values values[RUNS];
        float most = 0.f;
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            const int run = i * THREADS + threadIdx.x, expert = run / EXPERT_RUNS, at = run % EXPERT_RUNS * VALUES;
            values[i] = Values::zero();
            if (expert >= USED || at >= FFN) continue;
            const uint4 bits = load_shared_by_blocks((const uint4*)(params.inner + expert * FFN + at));
            const u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
            for (int j = 0; j < VALUES; j++) values[i].v[j] = f16_to_f32((u16)(words[j / 2] >> (16 * (j % 2))));
            most = fmaxf(most, values[i].largest());
        }
        most = block_sum_max(shared.of_warps, 0.f, most).y;
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            const int run = i * THREADS + threadIdx.x, expert = run / EXPERT_RUNS;
            if (expert < USED) values[i].stage(shared.scratch.inner[expert], run % EXPERT_RUNS, levels_factor(most));
        }
        unit = most / LEVELS;
        __syncthreads();
    }

    // ---- Stages

    // The tiles that this block's pieces touch, and whether it has a tile's beginning.
    template <int TILE_PIECES> __device__ Range tiles(Stage stage) const {
        const Range pieces = shared.plan.block[stage];
        return {pieces.begin / TILE_PIECES, div_up(pieces.end, TILE_PIECES)};
    }
    template <int TILE_PIECES> __device__ bool begins(Stage stage, int tile) const {
        return tile * TILE_PIECES >= shared.plan.block[stage].begin;
    }

    // qkv_parts = qkv * norm(x) + bias
    __device__ void qkv(NormInput& input, const float* parts) {
        stage_norm(input, parts, [](float) {});
        const Range range = shared.plan.warp(QKV);
        product_8bit<QkvPack>(ring, range, shared.scratch.vector, shared.zeros,
                              [&](int tile, float2 sum) { shared.sums.put<QkvPack::PIECES>(range, tile, sum); });
        __syncthreads();
        const Range mine = tiles<QkvPack::PIECES>(QKV);
        for (int i = threadIdx.x; i < (mine.end - mine.begin) * TILE_ROWS; i += THREADS) {
            const int tile = mine.begin + i / TILE_ROWS, row = tile * TILE_ROWS + i % TILE_ROWS;
            const bool first = begins<QkvPack::PIECES>(QKV, tile);
            const float sum = shared.sums.row<QkvPack::PIECES>(shared.plan.warps[QKV], tile, i % TILE_ROWS);
            const float value = sum * unit * params.qkv_scale[layer * QKV_ROWS + row];
            params.qkv_parts[(first ? 0 : QKV_ROWS) + row] = value + (first ? params.qkv_bias[layer * QKV_ROWS + row] : 0.f);
        }
    }

    // out_parts = out * attended + bias; router sums += this block's share
    __device__ void out() {
        const Range mine = tiles<OutPack::PIECES>(OUT);
        const int rows = (mine.end - mine.begin) * TILE_ROWS;
        const RouterWeights router(params.router + (size_t)layer * HIDDEN * EXPERTS, mine.begin * TILE_ROWS, rows);
        stage_attended();
        const Range range = shared.plan.warp(OUT);
        product_8bit<OutPack>(ring, range, shared.scratch.vector, shared.zeros,
                              [&](int tile, float2 sum) { shared.sums.put<OutPack::PIECES>(range, tile, sum); });
        __syncthreads();
        if (threadIdx.x < OUT_ROWS_MAX) {
            const int i = threadIdx.x;
            float share = 0.f;
            if (i < rows) {
                const int tile = mine.begin + i / TILE_ROWS, row = tile * TILE_ROWS + i % TILE_ROWS;
                const bool first = begins<OutPack::PIECES>(OUT, tile);
                const float sum = shared.sums.row<OutPack::PIECES>(shared.plan.warps[OUT], tile, i % TILE_ROWS);
                float value = sum * unit * params.out_scale[layer * HIDDEN + row];
                if (first) value += params.out_bias[layer * HIDDEN + row];
                params.out_parts[(first ? 0 : HIDDEN) + row] = value;
                share = (first ? value + shared.x[row] : value) * params.mixture_norm[layer * HIDDEN + row];
            }
            shared.router_values[i] = share;
        }
        __syncthreads();
        router.add(shared.router_values, shared.router_parts, params.router_sums + layer * EXPERTS);
    }

    // inner = activation(gate_up * norm(x) + bias) of the chosen experts
    __device__ void gate_up(NormInput& input) {
        Router router(params.router_sums + layer * EXPERTS, params.router_bias + layer * EXPERTS);
        stage_norm(input, params.out_parts, [&](float scale) {
            router.choose(scale, ring.chosen);
            ring.routed = layer + 1;
            ring.fill();
        });
        const Range range = shared.plan.warp(GATE_UP);
        product_mxfp4<GateUpPack, 1>(
            ring, range, shared.zeros, [&](int) { return shared.scratch.vector; }, [](int) { return 1.f; },
            [&](int tile, float2 sum) { shared.sums.put<GateUpPack::PIECES>(range, tile, sum); });
        __syncthreads();
        const Range mine = tiles<GateUpPack::PIECES>(GATE_UP);
        const int rows = (mine.end - mine.begin) * TILE_ROWS; // whole warps, or the shuffle below would hang
        for (int i = threadIdx.x; i < div_up(rows, LANES) * LANES; i += THREADS) {
            const int tile = mine.begin + min(i, rows - 1) / TILE_ROWS;
            const int slot = tile / GATE_UP_TILES, row = tile % GATE_UP_TILES * TILE_ROWS + i % TILE_ROWS;
            const int expert = ring.chosen.experts[slot];
            const float bias = params.gate_up_bias[((size_t)layer * EXPERTS + expert) * 2 * FFN + row];
            const float value = shared.sums.row<GateUpPack::PIECES>(shared.plan.warps[GATE_UP], tile, i % TILE_ROWS) * unit + bias;
            const float up = __shfl_down_sync(~0u, value, 1);
            if (i % 2 == 0 && i < rows) params.inner[slot * FFN + row / 2] = f32_to_f16(activate(value, up));
        }
    }

    static __device__ float activate(float gate, float up) {
        gate = fminf(gate, 7.f);
        up = fminf(fmaxf(up, -7.f), 7.f);
        return gate / (1.f + __expf(-1.702f * gate)) * (up + 1.f);
    }

    // down_parts = sum of the chosen experts' shares of down * inner + bias
    __device__ void down() {
        stage_inner();
        constexpr int TILE_PIECES = USED * DownPack::PIECES;
        const Range range = shared.plan.warp(DOWN);
        product_mxfp4<DownPack, USED>(
            ring, range, shared.zeros, [&](int row) { return shared.scratch.inner[row % USED]; },
            [&](int row) { return ring.chosen.shares[row % USED]; },
            [&](int tile, float2 sum) { shared.sums.put<TILE_PIECES>(range, tile, sum); });
        __syncthreads();
        const Range mine = tiles<TILE_PIECES>(DOWN);
        for (int i = threadIdx.x; i < (mine.end - mine.begin) * TILE_ROWS; i += THREADS) {
            const int tile = mine.begin + i / TILE_ROWS, row = tile * TILE_ROWS + i % TILE_ROWS;
            const bool first = begins<TILE_PIECES>(DOWN, tile);
            float value = shared.sums.row<TILE_PIECES>(shared.plan.warps[DOWN], tile, i % TILE_ROWS) * unit;
            if (first)
#pragma unroll
                for (int j = 0; j < USED; j++)
                    value += ring.chosen.shares[j] * params.down_bias[((size_t)layer * EXPERTS + ring.chosen.experts[j]) * HIDDEN + row];
            params.down_parts[(first ? 0 : HIDDEN) + row] = value;
        }
        // Everyone has read them: zero for the next token.
        if (blockIdx.x == 0 && threadIdx.x < EXPERTS) params.router_sums[layer * EXPERTS + threadIdx.x] = 0;
    }

    // best = this block's largest logit
    __device__ void head(NormInput& input, u32 step) {
        stage_norm(input, params.down_parts, [](float) {});
        float* logits = params.logits ? params.logits + (size_t)step * VOCAB : nullptr;
        u64 best = 0;
        const Lane lane;
        product_8bit<HeadPack>(ring, shared.plan.warp(HEAD), shared.scratch.vector, shared.zeros, [&](int tile, float2 sum) {
            if (lane.t > 1) return;
            const int row = tile * TILE_ROWS + lane.g + 8 * lane.t;
            const float logit = (lane.t == 0 ? sum.x : sum.y) * unit * params.head_scale[row];
            if (logits) logits[row] = logit;
            best = max(best, (u64)ordered_key(logit) << 32 | (0xFFFFFFFFu - row));
        });
        for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(~0u, best, step));
        if (lane_id() == 0) shared.best[warp_id()] = best;
        __syncthreads();
        if (threadIdx.x != 0) return;
        for (int warp = 1; warp < WARPS; warp++) best = max(best, shared.best[warp]);
        params.best[blockIdx.x] = best;
        if (blockIdx.x == 0) *params.halt = *(volatile const u32*)params.stop;
    }

    // The token with the largest logit, the first of equals; every warp finds it for itself.
    __device__ u32 largest() const {
        u64 best = 0;
        for (int i = lane_id(); i < GRID; i += LANES) best = max(best, load_shared_by_blocks(&params.best[i]));
        for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(~0u, best, step));
        return 0xFFFFFFFFu - (u32)best;
    }

    __device__ void tell(u32 step, u32 token) const {
        if (blockIdx.x != 0 || threadIdx.x != 0) return;
        *(volatile u32*)&params.told_tokens[step] = token;
        __threadfence_system();
        *(volatile u32*)params.told_count = step + 1;
    }

    // Adds the time since the last mark, for whoever wants to know where it goes.
    u64 marked = 0;
    __device__ void mark(int what) {
        if (MARKING == 0 || params.clocks == nullptr || blockIdx.x != 0 || threadIdx.x != 0) return;
        u64 now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (marked != 0) params.clocks[what] += now - marked;
        marked = now;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) decode_steps(const __grid_constant__ Params params) {
    extern __shared__ __align__(128) u8 memory[];
    Shared& shared = *(Shared*)memory;
    if (threadIdx.x < sizeof(shared.zeros)) shared.zeros[threadIdx.x] = 0;
    shared.plan.make();
    __syncthreads();
    Step step(params, shared);
    step.ring.fill();
    u32 token = params.forced[0];
    for (u32 i = 0; i < params.steps; i++) {
        const int position = params.position + i;
        step.begin(token, position);
        for (step.layer = 0; step.layer < LAYERS; step.layer++) {
            const int layer = step.layer;
            {
                NormInput input(params.attention_norm + layer * HIDDEN);
                if (layer > 0) step.barrier.wait();
                step.mark(0);
                step.qkv(input, layer > 0 ? params.down_parts : nullptr);
            }
            step.barrier.arrive();
            step.mark(1);
            step.barrier.wait();
            step.mark(2);
            attend(params, shared.scratch.attention, shared.turns, layer, position, step.split_target);
            step.barrier.arrive();
            step.mark(3);
            step.barrier.wait();
            step.mark(4);
            step.out();
            step.barrier.arrive();
            step.mark(5);
            {
                NormInput input(params.mixture_norm + layer * HIDDEN);
                step.barrier.wait();
                step.mark(6);
                step.gate_up(input);
            }
            step.barrier.arrive();
            step.mark(7);
            step.barrier.wait();
            step.mark(8);
            step.down();
            step.barrier.arrive();
            step.mark(9);
        }
        NormInput input(params.final_norm);
        step.barrier.wait();
        step.mark(10);
        step.head(input, i);
        step.barrier.arrive();
        step.mark(11);
        step.barrier.wait();
        token = step.largest();
        step.tell(i, token);
        if (i + 1 < params.forced_count) token = params.forced[i + 1];
        if (load_shared_by_blocks(params.halt)) break;
        step.mark(12);
    }
    step.ring.drain();
}
