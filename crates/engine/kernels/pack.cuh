// How packed matrices lie in memory, and who multiplies which part of them.
//
// A *tile* is 16 rows. A *block* is 32 columns of a tile. A *group* is four blocks, what four tensor-core
// instructions take: lane 4 * g + t of a warp holds block t of rows g and g + 8, so that an MXFP4 lane holds exactly
// one scale for each of its two rows. The last group of a row may have fewer blocks and is that much smaller.
//
//   8 bit:  [row half][16-byte half of the block][g][t] 16 bytes
//   MXFP4:  [row half][g][t] 16 bytes of codes, then [g][t][row half] scales (e8m0)
//
// A word of codes has columns 0 2 4 6 in its low half and 1 3 5 7 in its high one. The four of a half have their signs at
// bits 15 12 14 13 and their other three bits at 11, 8, 5 and 2 and below: product.cuh says why.
//
// Groups of a tile follow one another, and tiles too, so a range of groups is a range of bytes. A *piece* is what one copy
// brings: one group of 8 bit; of MXFP4 an even group and the one after it, or one of them where a warp's range begins or
// ends between the two.

constexpr int TILE_ROWS = 16;
constexpr int BLOCK_COLS = 32;
constexpr int GROUP_BLOCKS = 4;

template <int COLS_, bool MXFP4_> struct Packed {
    static constexpr bool MXFP4 = MXFP4_;
    static constexpr int COLS = COLS_;
    static constexpr int BLOCKS = COLS / BLOCK_COLS;
    static constexpr int GROUPS = div_up(BLOCKS, GROUP_BLOCKS);
    static constexpr int TAIL_BLOCKS = BLOCKS - (GROUPS - 1) * GROUP_BLOCKS; // in the last group
    static constexpr int BLOCK_BYTES = MXFP4 ? TILE_ROWS * 17 : TILE_ROWS * 32;
    static constexpr int GROUP_BYTES = GROUP_BLOCKS * BLOCK_BYTES;
    static constexpr int TILE_BYTES = BLOCKS * BLOCK_BYTES;
    static constexpr int TAIL_MISSES = (GROUP_BLOCKS - TAIL_BLOCKS) * BLOCK_BYTES; // bytes of the last group
    static_assert(COLS % BLOCK_COLS == 0, "whole blocks only");

    // Groups of the piece that begins with `group` of a tile, when the warp has `left` from there on.
    static __device__ int piece_groups(int group, int left) {
        return MXFP4 && group % 2 == 0 && group + 1 < GROUPS && left > 1 ? 2 : 1;
    }
};

using QkvPack = Packed<HIDDEN, false>;
using OutPack = Packed<Q_ROWS, false>;
using GateUpPack = Packed<HIDDEN, true>;
using DownPack = Packed<FFN, true>;
using HeadPack = Packed<HIDDEN, false>;

constexpr int QKV_TILES = QKV_ROWS / TILE_ROWS;
constexpr int HIDDEN_TILES = HIDDEN / TILE_ROWS;
constexpr int GATE_UP_TILES = 2 * FFN / TILE_ROWS; // of one expert
constexpr int HEAD_TILES = VOCAB / TILE_ROWS;

// The five products of a step, in the order of their weights; and attention, which comes after QKV.
enum Stage { QKV, OUT, GATE_UP, DOWN, HEAD, STAGES, KV = STAGES };

struct Range {
    int begin, end;
    __device__ Range part(int parts, int index) const {
        const int count = end - begin;
        return {begin + share_begin(count, parts, index), begin + share_begin(count, parts, index + 1)};
    }
    __device__ Range times(int factor) const { return {begin * factor, end * factor}; }
};

// The groups that this block multiplies. Rows of QKV, OUT and DOWN may be shared with the next block. GATE_UP has whole
// tiles, because gate and up must meet; DOWN keeps all experts of a row together, because their sum is wanted.
__device__ inline Range block_groups(Stage stage) {
    constexpr int blocks = GRID;
    const int index = blockIdx.x;
    switch (stage) {
    case QKV: return Range{0, QKV_TILES * QkvPack::GROUPS}.part(blocks, index);
    case OUT: return Range{0, HIDDEN_TILES * OutPack::GROUPS}.part(blocks, index);
    case GATE_UP: return Range{0, USED * GATE_UP_TILES}.part(blocks, index).times(GateUpPack::GROUPS);
    case DOWN: return Range{0, HIDDEN_TILES * USED * DownPack::GROUPS}.part(blocks, index);
    default: return Range{0, HEAD_TILES}.part(blocks, index).times(HeadPack::GROUPS);
    }
}

// A warp has consecutive groups, and of the head whole tiles: its sums need no other warp.
__device__ inline Range groups_of_warp(Stage stage, int warp) {
    const Range block = block_groups(stage);
    if (stage != HEAD) return block.part(WARPS, warp);
    return Range{block.begin / HeadPack::GROUPS, block.end / HeadPack::GROUPS}.part(WARPS, warp).times(HeadPack::GROUPS);
}

// Groups that add up to one tile of sums.
__host__ __device__ constexpr int tile_groups(Stage stage) {
    return stage == QKV ? QkvPack::GROUPS
         : stage == OUT ? OutPack::GROUPS
         : stage == GATE_UP ? GateUpPack::GROUPS
         : stage == DOWN ? USED * DownPack::GROUPS
                         : HeadPack::GROUPS;
}

// Of all blocks.
template <Stage STAGE> __host__ __device__ constexpr int stage_tiles() {
    static_assert(STAGE == QKV || STAGE == OUT || STAGE == DOWN, "stages whose tiles blocks share");
    return STAGE == QKV ? QKV_TILES : HIDDEN_TILES;
}

// Whether two blocks have groups of a tile: the one that has the first group does not have the last one.
template <Stage STAGE> __device__ inline bool has_two_blocks(int tile) {
    constexpr int GROUPS = tile_groups(STAGE), ALL = stage_tiles<STAGE>() * GROUPS;
    const auto block = [](int group) { return ((group + 1) * GRID - 1) / ALL; };
    return block(tile * GROUPS) != block((tile + 1) * GROUPS - 1);
}

// Which warps have groups of a tile: consecutive ones. All but the first of them begin with it.
struct TileWarps {
    u8 first, last;
    u8 second; // the first of them has another tile before this one
};

constexpr int TILES_MAX = WARPS + 2; // that a block's groups touch, but for the head

// All of it, worked out once.
struct Plan {
    Range block[STAGES];
    Range warps[STAGES][WARPS];
    TileWarps tiles[HEAD][TILES_MAX];

    // Needs a barrier after it.
    __device__ void make() {
        for (int i = threadIdx.x; i < STAGES * WARPS; i += THREADS)
            warps[i / WARPS][i % WARPS] = groups_of_warp((Stage)(i / WARPS), i % WARPS);
        if (threadIdx.x < STAGES) block[threadIdx.x] = block_groups((Stage)threadIdx.x);
        for (int i = threadIdx.x; i < HEAD * TILES_MAX; i += THREADS) {
            const Stage stage = (Stage)(i / TILES_MAX);
            const int groups = tile_groups(stage);
            const int tile = block_groups(stage).begin / groups + i % TILES_MAX;
            tiles[stage][i % TILES_MAX] = warps_of(stage, tile * groups, (tile + 1) * groups);
        }
    }

    static __device__ TileWarps warps_of(Stage stage, int begin, int end) {
        TileWarps found = {1, 0, 0}; // none
        bool any = false;
        for (int warp = 0; warp < WARPS; warp++) {
            const Range range = groups_of_warp(stage, warp);
            if (max(range.begin, begin) >= min(range.end, end)) continue;
            if (!any) found.first = warp, found.second = range.begin < begin;
            found.last = warp, any = true;
        }
        return found;
    }

    __device__ Range warp(Stage stage) const { return warps[stage][warp_id()]; }
};

// The row of a stage's output that this thread finishes.
struct Row {
    bool real;    // there is one
    int tile;     // of the stage
    int index;    // of the tiles this block has groups of
    int in_tile;
    bool first;   // this block has the tile's beginning

    template <Stage STAGE> static __device__ Row of(const Plan& plan) {
        constexpr int GROUPS = tile_groups(STAGE);
        const Range groups = plan.block[STAGE];
        Row row;
        row.index = threadIdx.x / TILE_ROWS, row.in_tile = threadIdx.x % TILE_ROWS;
        row.tile = groups.begin / GROUPS + row.index;
        row.real = row.tile * GROUPS < groups.end;
        row.first = row.tile * GROUPS >= groups.begin;
        return row;
    }
    __device__ int global() const { return tile * TILE_ROWS + in_tile; }
};
