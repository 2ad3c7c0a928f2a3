// Weights on their way: each warp brings its own pieces into its own ring of shared memory, in the order in which it will
// use them, and as soon as a slot is free. Weights do not change, so the ring runs ahead over grid barriers, layers and
// tokens. Only experts' pieces must wait until the router has chosen.

constexpr int SLOT_BYTES = 2176; // one group of 8 bit (2048) or two of MXFP4
static_assert(SLOT_BYTES >= OutPack::PIECE_BYTES && SLOT_BYTES >= GateUpPack::PIECE_BYTES, "a slot holds any piece");

struct Ring {
    const Params& params;
    u8* slots;     // (SLOTS, SLOT_BYTES) of this warp
    u64* barriers; // (SLOTS)
    u64 policy;
    int experts[USED]; // chosen in the layer `routed - 1`
    int routed;        // layers of this step whose experts are known

    // The next piece to bring.
    Stage stage;
    int layer;
    int next, end; // pieces of this warp in this stage
    u32 steps_left; // whole steps after the one of the next piece

    int fill_slot; // where it goes
    int waiting;   // pieces brought or on their way, and not used yet
    int use_slot;
    u32 use_parity;

    __device__ Ring(const Params& params, u8* slots, u64* barriers)
        : params(params), slots(slots), barriers(barriers), policy(read_once_policy()), routed(0), stage(QKV), layer(0),
          steps_left(params.steps - 1), fill_slot(0), waiting(0), use_slot(0), use_parity(0) {
        if (lane_id() == 0)
            for (int i = 0; i < SLOTS; i++) copy_barrier_init(&barriers[i]);
        copy_barriers_ready();
        __syncwarp();
        enter(QKV, 0);
    }

    __device__ void enter(Stage stage_, int layer_) {
        stage = stage_, layer = layer_;
        const Range range = warp_pieces(stage, warp_id());
        next = range.begin, end = range.end;
    }

    // Goes on to the stage whose pieces come next. False after the last one.
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
        return true;
    }

    __device__ const u8* expert(const u8* all, size_t bytes, int slot) const {
        int chosen = experts[0];
#pragma unroll
        for (int i = 1; i < USED; i++) chosen = slot == i ? experts[i] : chosen;
        return all + ((size_t)layer * EXPERTS + chosen) * bytes;
    }

    template <class P> static __device__ const u8* piece_of(const u8* matrix, int tile, int piece, u32& bytes) {
        bytes = P::piece_bytes(piece);
        return matrix + (size_t)tile * P::TILE_BYTES + piece * P::PIECE_BYTES;
    }

    template <class P> static __device__ const u8* piece_of(const u8* matrix, int index, u32& bytes) {
        return piece_of<P>(matrix, index / P::PIECES, index % P::PIECES, bytes);
    }

    __device__ const u8* next_piece(u32& bytes) const {
        constexpr size_t QKV_BYTES = (size_t)QKV_TILES * QkvPack::TILE_BYTES;
        constexpr size_t OUT_BYTES = (size_t)HIDDEN_TILES * OutPack::TILE_BYTES;
        constexpr size_t GATE_UP_BYTES = (size_t)GATE_UP_TILES * GateUpPack::TILE_BYTES;
        constexpr size_t DOWN_BYTES = (size_t)HIDDEN_TILES * DownPack::TILE_BYTES;
        switch (stage) {
        case QKV: return piece_of<QkvPack>(params.qkv + layer * QKV_BYTES, next, bytes);
        case OUT: return piece_of<OutPack>(params.out + layer * OUT_BYTES, next, bytes);
        case GATE_UP: {
            const int tile = next / GateUpPack::PIECES;
            const u8* matrix = expert(params.gate_up, GATE_UP_BYTES, tile / GATE_UP_TILES);
            return piece_of<GateUpPack>(matrix, tile % GATE_UP_TILES, next % GateUpPack::PIECES, bytes);
        }
        case DOWN: {
            const int row = next / DownPack::PIECES;
            const u8* matrix = expert(params.down, DOWN_BYTES, row % USED);
            return piece_of<DownPack>(matrix, row / USED, next % DownPack::PIECES, bytes);
        }
        default: return piece_of<HeadPack>(params.head, next, bytes);
        }
    }

    // Brings pieces while there is room and they are known.
    __device__ void fill() {
        while (waiting < SLOTS && advance()) {
            if (stage == GATE_UP && layer >= routed) return;
            u32 bytes;
            const u8* from = next_piece(bytes);
            if (lane_id() == 0) copy_begin(slots + fill_slot * SLOT_BYTES, from, bytes, &barriers[fill_slot], policy);
            fill_slot = fill_slot + 1 < SLOTS ? fill_slot + 1 : 0;
            next++, waiting++;
        }
    }

    // The oldest piece, once it is there.
    __device__ const u8* use() {
        copy_wait(&barriers[use_slot], use_parity);
        return slots + use_slot * SLOT_BYTES;
    }

    // Its slot may be overwritten.
    __device__ void release() {
        __syncwarp();
        waiting--;
        use_slot = use_slot + 1 < SLOTS ? use_slot + 1 : 0;
        use_parity ^= use_slot == 0;
        fill();
    }

    // Nothing may be on its way when the kernel ends.
    __device__ void drain() {
        steps_left = 0;
        while (waiting > 0) {
            use();
            __syncwarp();
            waiting--;
            use_slot = use_slot + 1 < SLOTS ? use_slot + 1 : 0;
            use_parity ^= use_slot == 0;
        }
    }
};
