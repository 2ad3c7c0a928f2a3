// Weights, and cached keys and values, on their way. A few warps of a block do nothing but bring them: some lanes of each
// serve one of the other warps each, which has a ring of slots in shared memory. Pieces come in the order in which that warp
// will use them, and as soon as a slot is free. Weights do not change, so the rings run ahead over layers and tokens. Only
// experts' pieces must wait until the router has chosen, and cached tokens until the step has begun.

// What one group of 8 bit takes (2048, or 2304 with scales), two of 4 bit, or a unit of cached tokens or half of one (2176).
constexpr int SLOT_BYTES = GateUpPack::PIECE_BYTES;
static_assert(SLOT_BYTES >= HeadPack::PIECE_BYTES && SLOT_BYTES >= CoarsePack::PIECE_BYTES && SLOT_BYTES >= OutPack::PIECE_BYTES && SLOT_BYTES >= CachedUnits::PIECE_BYTES &&
                  SLOT_BYTES >= (LEVELS ? Wide<DownPack>::PIECE_BYTES : 0),
              "a slot holds any piece");
// Pieces in a ring up to which those of a later stage are brought: memory first serves whom the others wait for.
constexpr int AHEAD = LEVELS ? 4 : 3;
constexpr int SERVED = WARPS / BRINGERS; // warps, by one that brings
static_assert(SERVED <= LANES && SERVED * BRINGERS == WARPS, "a lane for each warp");

// The experts of a layer, and their shares.
struct Chosen {
    int experts[USED];
    float shares[USED];
};

// What the warps that bring and the others tell each other. Counts only grow.
struct Supplied {
    alignas(128) u8 slots[WARPS][SLOTS][SLOT_BYTES];
    u64 there[WARPS][SLOTS]; // barriers: the slot is filled
    u32 used[WARPS];         // pieces
    u32 routed;              // layers whose experts are known
    u32 begun;               // steps
    u32 over;                // nothing more is wanted
    Chosen chosen;           // in the layer routed last
    Start start;

    __device__ bool is_routed(u32 layers) const { return (int)(*(const volatile u32*)&routed - layers) >= 0; }
    __device__ void wait_for_routed(u32 layers) const {
        while (!is_routed(layers)) {}
        __syncwarp();
    }
};

__device__ inline u32 read_again(const u32& word) { return *(const volatile u32*)&word; }
__device__ inline void tell_warps(u32& word, u32 value) {
    __threadfence_block();
    *(volatile u32*)&word = value;
}

// What is brought for one warp, by one lane.
struct Supply {
    Supplied& at;
    const Plan& plan;
    int warp;

    // The next piece to bring.
    Stage stage;
    int layer;
    u32 step, layers; // layers: of all steps, with this one
    const u8* from;
    int run;            // groups that follow one another in memory
    int group, groups;  // the next one's place in its tile, of so many
    bool pairs;         // two may be one piece
    u32 bytes, missing; // of a group; that the tile's last one has less
    int next, end;      // groups of this warp in this stage, after the run
    static constexpr int NONE = -1;
    int chosen; // whose expert's run it is

    u32 filled;  // pieces
    u32 entered; // of them, before this stage
    int slot;    // where the next one goes
    CachedUnits units;

    __device__ Supply(Supplied& at, const Plan& plan, int warp)
        : at(at), plan(plan), warp(warp), step(0), layers(1), chosen(NONE), filled(0), slot(0) {
        enter(QKV, 0);
    }

    __device__ void enter(Stage stage_, int layer_) {
        stage = stage_, layer = layer_;
        run = 0, entered = filled;
        if (stage == KV) {
            units = CachedUnits(at.start.position + step, layer, warp);
            next = 0, end = CachedUnits::PIECES * units.count;
        } else {
            const Range range = plan.warps[stage][warp];
            next = range.begin, end = range.end;
        }
    }

    // Goes on to the stage whose pieces come next. False if there is none.
    __device__ bool advance() {
        while (next == end) {
            if (stage == HEAD) {
                if (step + 1 == at.start.steps) return false;
                step++, layers++;
                enter(QKV, 0);
            } else if (stage == DOWN) {
                if (layer + 1 < LAYERS) layers++, enter(QKV, layer + 1);
                else enter(HEAD, 0);
            } else {
                enter(stage == QKV ? KV : stage == KV ? OUT : (Stage)(stage + 1), layer);
            }
        }
        return true;
    }

    // Whether it is known what the located run is.
    __device__ bool known() const {
        if (ROUTED && (stage == GATE_UP || stage == DOWN)) return at.is_routed(layers);
        return stage != KV || read_again(at.begun) > step;
    }

    // Of an expert's run only the place in its matrix was located.
    __device__ void find_expert() {
        const int expert = *(volatile const int*)&at.chosen.experts[chosen];
        from += expert * (stage == GATE_UP ? expert_bytes<GATE_UP, GateUpPack>(GATE_UP_TILES) : expert_bytes<DOWN, DownPack>(HIDDEN_TILES));
        chosen = NONE;
    }

    template <Stage STAGE, class P> __device__ size_t expert_bytes(int tiles) const {
        return (size_t)tiles * (is_wide(layer, STAGE) ? Wide<P>::TILE_BYTES : P::TILE_BYTES);
    }

    template <class P> __device__ void locate(const u8* matrix, int tile) {
        group = next % P::GROUPS, groups = P::GROUPS, pairs = P::PAIRS;
        from = matrix + (size_t)tile * P::TILE_BYTES + group * P::GROUP_BYTES;
        run = min(P::GROUPS - group, end - next);
        bytes = P::GROUP_BYTES, missing = P::TAIL_MISSES;
        next += run;
    }

    // In this layer's matrix.
    template <Stage STAGE, class P> __device__ void locate(int tile) {
        if (is_wide(layer, STAGE)) locate<Wide<P>>(matrix_of(layer, STAGE), tile);
        else locate<P>(matrix_of(layer, STAGE), tile);
    }

    // Finds the next run of groups.
    __device__ bool locate() {
        if (!advance()) return false;
        if (stage == QKV) {
            locate<QKV, QkvPack>(next / QkvPack::GROUPS);
        } else if (stage == KV) {
            from = units.take();
            run = groups = CachedUnits::PIECES, pairs = false, group = 0;
            bytes = CachedUnits::PIECE_BYTES, missing = CachedUnits::LAST_MISSES;
            next += run;
        } else if (stage == OUT) {
            locate<OUT, OutPack>(next / OutPack::GROUPS);
        } else if (stage == GATE_UP) {
            const int row = next / GateUpPack::GROUPS;
            if (ROUTED) chosen = row / GATE_UP_TILES;
            locate<GATE_UP, GateUpPack>(row % GATE_UP_TILES);
        } else if (stage == DOWN) {
            const int row = next / DownPack::GROUPS;
            if (ROUTED) chosen = row % USED;
            locate<DOWN, DownPack>(row / USED);
        } else if (at.start.screened) {
            locate<CoarsePack>(params.head_coarse, next / CoarsePack::GROUPS);
        } else {
            locate<HeadPack>(params.head, next / HeadPack::GROUPS);
        }
        return true;
    }

    // Brings one piece, if it is known and there is room. (One at a time: all warps then have their first ones soon.)
    __device__ bool bring() {
        if (run == 0 && !locate()) return false;
        const u32 used = read_again(at.used[warp]);
        const bool early = (int)(used - entered) < 0; // the warp is still in an earlier stage
        if (filled - used >= (early ? AHEAD : SLOTS) || !known()) return false;
        if (ROUTED && chosen != NONE) find_expert();
        const int count = pairs && group % 2 == 0 && run > 1 ? 2 : 1;
        group += count, run -= count;
        const u32 size = count * bytes - (group == groups ? missing : 0);
        copy_begin(at.slots[warp][slot], from, size, &at.there[warp][slot]);
        from += size;
        slot = slot + 1 < SLOTS ? slot + 1 : 0;
        filled++;
        return true;
    }

    __device__ bool finished() const { return step + 1 == at.start.steps && stage == HEAD && next == end && run == 0; }

    // Nothing may be on its way when the kernel ends.
    __device__ void drain() {
        for (u32 piece = filled < SLOTS ? 0 : filled - SLOTS; piece < filled; piece++)
            copy_wait(&at.there[warp][piece % SLOTS], piece / SLOTS % 2);
    }
};

// The pieces of one warp, one after another.
struct Pieces {
    Supplied& at;
    u32 used;
    int slot;
    u32 parity;

    __device__ explicit Pieces(Supplied& at) : at(at), used(at.used[warp_id()]) {
        slot = used % SLOTS, parity = used / SLOTS % 2;
    }

    __device__ bool there() const { return copy_done(&at.there[warp_id()][slot], parity); }

    // The oldest piece, once it is there.
    __device__ const u8* use() {
        copy_wait(&at.there[warp_id()][slot], parity);
        return at.slots[warp_id()][slot];
    }

    // Its slot may be overwritten.
    __device__ void release() {
        __syncwarp();
        used++;
        if (lane_id() == 0) *(volatile u32*)&at.used[warp_id()] = used;
        slot = slot + 1 < SLOTS ? slot + 1 : 0;
        parity ^= slot == 0;
    }
};
