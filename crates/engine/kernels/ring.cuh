// Weights on their way: each warp brings its own pieces into its own ring of shared memory, in the order in which it will
// use them, and as soon as a slot is free. Weights do not change, so the ring runs ahead over grid barriers, layers and
// tokens. Only experts' pieces must wait until the router has chosen.

constexpr int SLOT_BYTES = 2176; // one group of 8 bit (2048) or two of MXFP4
static_assert(SLOT_BYTES >= OutPack::PIECE_BYTES && SLOT_BYTES >= GateUpPack::PIECE_BYTES, "a slot holds any piece");

// The experts that a warp's ring brings, and their shares.
struct Chosen {
    int experts[USED];
    float shares[USED];
};

// One warp's ring. Between stages it rests in shared memory, one copy a warp: a copy in each thread's local memory would
// not fit in what the slots leave of the first-level cache.
struct Ring {
    int routed; // layers of this step whose experts are known

    // The next piece to bring.
    Stage stage;
    int layer;
    const u8* from;
    int run;        // pieces that follow in the same tile
    int until_last; // pieces before the tile's last one, which is smaller
    u32 bytes, last_bytes;
    int next, end;  // pieces of this warp in this stage, after the run
    int steps_left; // whole steps after the one of the next piece

    int fill_slot; // where it goes
    int waiting;   // pieces brought or on their way, and not used yet
    int use_slot;
    u32 use_parity;

    __device__ static u8* slot(int index);
    __device__ static u64* barrier(int index);
    __device__ static const Plan& plan();
    __device__ static const Chosen& chosen(); // in the layer `routed - 1`

    __device__ void begin() {
        routed = 0, steps_left = params.steps - 1;
        fill_slot = waiting = use_slot = 0, use_parity = 0;
        if (lane_id() == 0)
            for (int i = 0; i < SLOTS; i++) copy_barrier_init(barrier(i));
        copy_barriers_ready();
        __syncwarp();
        enter(QKV, 0);
    }

    __device__ void enter(Stage stage_, int layer_) {
        stage = stage_, layer = layer_;
        const Range range = plan().warp(stage);
        next = range.begin, end = range.end;
        run = 0;
    }

    // Goes on to the stage whose pieces come next. False if there is none, or its experts are not known yet.
    __device__ bool advance() {
        while (next == end) {
            if (stage == HEAD) {
                if (steps_left == 0) return false;
                steps_left--;
                routed = 0;
                enter(QKV, 0);
            } else if (stage == DOWN) {
                layer + 1 < LAYERS ? enter(QKV, layer + 1) : enter(HEAD, 0);
            } else {
                enter((Stage)(stage + 1), layer);
            }
        }
        return (stage != GATE_UP && stage != DOWN) || layer < routed;
    }

    template <class P> __device__ void locate(const u8* matrices, int tile) {
        const int piece = next % P::PIECES;
        from = matrices + (size_t)tile * P::TILE_BYTES + piece * P::PIECE_BYTES;
        run = min(P::PIECES - piece, end - next);
        until_last = P::PIECES - 1 - piece;
        bytes = P::PIECE_BYTES, last_bytes = P::piece_bytes(P::PIECES - 1);
        next += run;
    }

    // Finds the next run of pieces.
    __device__ bool locate() {
        if (!advance()) return false;
        if (stage == QKV) {
            locate<QkvPack>(params.qkv, layer * QKV_TILES + next / QkvPack::PIECES);
        } else if (stage == OUT) {
            locate<OutPack>(params.out, layer * HIDDEN_TILES + next / OutPack::PIECES);
        } else if (stage == GATE_UP) {
            const int row = next / GateUpPack::PIECES;
            const int expert = layer * EXPERTS + chosen().experts[row / GATE_UP_TILES];
            locate<GateUpPack>(params.gate_up, expert * GATE_UP_TILES + row % GATE_UP_TILES);
        } else if (stage == DOWN) {
            const int row = next / DownPack::PIECES;
            const int expert = layer * EXPERTS + chosen().experts[row % USED];
            locate<DownPack>(params.down, expert * HIDDEN_TILES + row / USED);
        } else {
            locate<HeadPack>(params.head, next / HeadPack::PIECES);
        }
        return true;
    }

    // Brings pieces while there is room and they are known.
    __device__ void fill() {
        while (waiting < SLOTS && (run > 0 || locate())) {
            const u32 size = until_last == 0 ? last_bytes : bytes;
            if (lane_id() == 0) copy_begin(slot(fill_slot), from, size, barrier(fill_slot));
            from += size;
            fill_slot = fill_slot + 1 < SLOTS ? fill_slot + 1 : 0;
            run--, until_last--, waiting++;
        }
    }

    // The oldest piece, once it is there.
    __device__ const u8* use() {
        copy_wait(barrier(use_slot), use_parity);
        return slot(use_slot);
    }

    __device__ void forget() {
        __syncwarp();
        waiting--;
        use_slot = use_slot + 1 < SLOTS ? use_slot + 1 : 0;
        use_parity ^= use_slot == 0;
    }

    // Its slot may be overwritten.
    __device__ void release() {
        forget();
        fill();
    }

    // Nothing may be on its way when the kernel ends.
    __device__ void drain() {
        while (waiting > 0) use(), forget();
    }
};
