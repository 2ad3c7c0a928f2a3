// Weights on their way to a warp: stages of a few units in shared memory, each filled again as soon as it is used.
//
// Loads to registers would be waited for several at a time: a warp can tell only six of them apart. From sm_90 on one lane
// asks for a whole stage; before, every lane asks for its pieces.

// Arrivals in shared memory.

__device__ inline void barrier_init(u64* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ inline void barrier_wait(u64* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
    u32 done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    } while (!done);
#else
    u32 done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    } while (!done);
#endif
}

// What is copied is read once: it should not push activations out of the second-level cache.
__device__ inline void copy_bulk(void* to, const void* from, u32 bytes, u64* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b64 once; createpolicy.fractional.L2::evict_first.b64 once, 1.0;"
                 " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], once; }" ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
#endif
}

// The copies of a stage that arrive at a barrier: from sm_90 on one lane asks for all of them, before, every lane for pieces of 16
// bytes. `copies_here` says whether this lane asks.

#if __CUDA_ARCH__ >= 900
constexpr int COPY_ARRIVALS = 1;
__device__ inline bool copies_here() { return lane_id() == 0; }
__device__ inline void copies_begin(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ inline void copy_part(void* to, const void* from, u32 bytes, u64* barrier) { copy_bulk(to, from, bytes, barrier); }
__device__ inline void copies_asked(u64*) {}
#else
constexpr int COPY_ARRIVALS = LANES;
__device__ inline bool copies_here() { return true; }
__device__ inline void copies_begin(u64*, u32) {}
__device__ inline void copy_part(void* to, const void* from, u32 bytes, u64*) {
    for (u32 at = 16 * lane_id(); at < bytes; at += 16 * LANES) copy_16((u8*)to + at, (const u8*)from + at, true);
}
__device__ inline void copies_asked(u64* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
#endif

// Copies may arrive at barriers that this thread made.
__device__ inline void barriers_are_there() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncwarp();
}

constexpr int STAGES_MAX = 4;

// Units that a warp gets next.
struct Piece {
    const Weights* weights;
    u64 unit;
    int count;
};

// `Cursor` says what comes: `there` whether there is more, `next` the next piece.
template <class Format, class Cursor> struct Stream {
    static constexpr int UNITS = Format::PIECES == 1 ? 4 : Format::PIECES == 2 ? 2 : 1; // of a stage, at most
    static constexpr int STAGES = Format::PIECES == 4 ? STAGES_MAX : 2;
    static constexpr int CODES = Format::PIECES * LANES; // of a unit, pieces of 16 bytes
    static constexpr int STAGE = 160;                    // pieces, with the scales

    Cursor cursor;
    uint4* stages; // of this warp
    u64* barriers;
    int stage, parity; // of what is read next

    __device__ Stream(const Cursor& cursor, uint4* memory, u64 (*of_warps)[STAGES_MAX])
        : cursor(cursor), stages(memory + warp_id() * STAGES * STAGE), barriers(of_warps[warp_id()]), stage(0), parity(0) {
        if (lane_id() < STAGES) barrier_init(barriers + lane_id(), COPY_ARRIVALS);
        barriers_are_there();
    }

    // Units that fit into a stage: one less of the smallest where 16 columns have a scale.
    __device__ static int units(const Weights& w) { return Format::PIECES == 1 && w.group_shift == 0 ? UNITS - 1 : UNITS; }

    // Fills a stage with the next piece, if there is one.
    __device__ void ask(int stage) {
        if (!cursor.there()) return;
        const Piece piece = cursor.next();
        const Weights& w = *piece.weights;
        uint4* to = stages + stage * STAGE;
        const uint4* codes = w.codes + piece.unit * CODES;
        const int scales = scale_bytes<Format>(w);
        if (!copies_here()) return;
        copies_begin(barriers + stage, piece.count * (CODES * 16 + scales));
        copy_part(to, codes, piece.count * CODES * 16, barriers + stage);
        if constexpr (Format::SCALE_BYTES > 0) {
            copy_part(to + units(w) * CODES, w.scales + piece.unit * scales, piece.count * scales, barriers + stage);
        }
        copies_asked(barriers + stage);
    }
    __device__ void ask_first() {
#pragma unroll 1
        for (int i = 0; i < STAGES; i++) ask(i);
    }

    __device__ void wait() const { barrier_wait(barriers + stage, parity); }
    // sums += units `from` .. of the oldest stage * the inputs from `x` on.
    template <class From, int N>
    __device__ void multiply(const Weights& w, int from, int count, From x, float (&sums)[N][4]) const {
        const int stride = scale_bytes<Format>(w);
        const uint4* codes = stages + stage * STAGE;
        const u8* scales = (const u8*)(codes + units(w) * CODES) + scale_at<Format>(w) + from * stride;
        codes += from * CODES + lane_id();
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            if (i >= count) break;
            Raw<Format::PIECES> raw;
#pragma unroll
            for (int p = 0; p < Format::PIECES; p++) raw.pieces[p] = codes[i * CODES + p * LANES];
            if constexpr (Format::SCALE_BYTES > 0) raw.scales = read_scales<Format>(scales + i * stride);
            multiply_unit<Format, N>(raw, x, i, sums);
        }
    }
    // The oldest stage was read.
    __device__ void done() {
        __syncwarp();
        ask(stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

// Of a block.
template <class Format> constexpr int STREAM_BYTES = RANGES * 160 * 16 * (Format::PIECES == 4 ? STAGES_MAX : 2);
