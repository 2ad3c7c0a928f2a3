// Weights on their way to the lanes of a warp: stages of a few units in shared memory. Each lane asks for the pieces that it
// will read itself, and the warp for the scales, so there is nothing to arrive at.

template <class Format> struct FlowSize {
    static constexpr int UNITS = Format::PIECES == 4 ? 1 : Format::PIECES == 2 ? 2 : Format::SCALE_BYTES == 4 ? 6 : 4; // of a stage
    static constexpr int STAGES = 2;
    static constexpr int CODES = Format::PIECES * LANES; // of a unit, pieces of 16 bytes
    static constexpr int SCALES = Format::SCALE_BYTES == 4 ? 4 : Format::SCALE_BYTES * 2; // the same, at most
    static constexpr int STAGE = UNITS * (CODES + SCALES);
    static constexpr int BYTES = STAGES * STAGE * 16; // of a warp
};

// `Cursor` says what comes: `there` whether there is more, `next` the next piece.
template <class Format, class Cursor> struct Flow : FlowSize<Format> {
    using Size = FlowSize<Format>;
    static constexpr int UNITS = Size::UNITS, STAGES = Size::STAGES, CODES = Size::CODES, STAGE = Size::STAGE;

    Cursor cursor;
    uint4* stages; // of this warp
    int stage;     // that is read next

    __device__ Flow(const Cursor& cursor, uint4* memory) : cursor(cursor), stages(memory + warp_id() * STAGES * STAGE), stage(0) {}

    // Fills a stage with the next piece; with nothing, if there is none.
    __device__ void ask(int stage) {
        if (cursor.there()) {
            const Piece piece = cursor.next();
            uint4* to = stages + stage * STAGE + lane_id();
            const uint4* codes = piece.weights->codes + piece.unit * CODES + lane_id();
#pragma unroll
            for (int i = 0; i < UNITS * Format::PIECES; i++) {
                if (i / Format::PIECES < piece.count) copy_16(to + i * LANES, codes + i * LANES, true);
            }
            if constexpr (Format::SCALE_BYTES > 0) {
                const int each = scale_bytes<Format>(*piece.weights) / 16;
                const uint4* scales = (const uint4*)piece.weights->scales + piece.unit * each;
#pragma unroll
                for (int i = 0; i < UNITS * Size::SCALES; i += LANES) {
                    if (i + lane_id() < piece.count * each) copy_16(to + UNITS * CODES + i, scales + i + lane_id(), true);
                }
            }
        }
        end_of_copies();
    }
    __device__ void ask_first() {
#pragma unroll 1
        for (int i = 0; i < STAGES; i++) ask(i);
    }

    __device__ void wait() const {
        wait_for_copies<STAGES - 1>();
        __syncwarp();
    }
    // sums += the first `count` units of the oldest stage * the inputs from `x` on.
    template <class From, int N> __device__ void multiply(const Weights& w, int count, From x, float (&sums)[N][4]) const {
        const int stride = scale_bytes<Format>(w);
        const uint4* codes = stages + stage * STAGE + lane_id();
        const u8* scales = (const u8*)(stages + stage * STAGE + UNITS * CODES) + scale_at<Format>(w);
        const auto load = [&](Raw<Format::PIECES>& raw, int i) {
#pragma unroll
            for (int k = 0; k < Format::PIECES; k++) raw.pieces[k] = codes[i * CODES + k * LANES];
            if constexpr (Format::SCALE_BYTES > 0) raw.scales = read_scales<Format>(scales + i * stride);
        };
        // Two at a time without a question between them: the loads of one go while the other is multiplied.
        int i = 0;
#pragma unroll 1
        for (; i + 1 < count; i += 2) {
            Raw<Format::PIECES> first, second;
            load(first, i), load(second, i + 1);
            multiply_unit<Format, N>(first, x, i, sums);
            multiply_unit<Format, N>(second, x, i + 1, sums);
        }
        if (i < count) {
            Raw<Format::PIECES> last;
            load(last, i);
            multiply_unit<Format, N>(last, x, i, sums);
        }
    }
    // The oldest stage was read.
    __device__ void done() {
        __syncwarp();
        ask(stage);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
};
