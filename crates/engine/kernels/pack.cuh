// How packed matrices lie in memory, and who multiplies which part of them.
//
// A *tile* is 16 rows. A *block* is 32 columns of a tile. A *group* is four blocks, what a few tensor-core instructions
// take: lane 4 * g + t of a warp holds block t of rows g and g + 8, so that it holds exactly one scale for each of its two
// rows. The last group of a row may have fewer blocks and is that much smaller.
//
//   rows of 8 bit:     [row half][16-byte half of the block][g][t] 16 bytes; one scale a row, elsewhere
//   the same, rounded to 4 bit: [row half][g][t] 16 bytes; of each word the low halves of its bytes are columns 0 to 3, the
//                      high ones 4 to 7
//   MXFP4:             [row half][g][t] 16 bytes of codes, then [g][t][row half] scales (e8m0)
//   levels of 4 bit:   [row half][g][t] 16 bytes of levels, then [g][t][row half] scale, and the level that means 0 in
//                      sixteenths, a byte each; one factor a row, elsewhere
//   levels of 8 bit:   [row half][16-byte half of the block][g][t] 16 bytes, then [g][t][row half] scale and minimum (f16)
//
// A word of codes has columns 0 2 4 6 in its low half and 1 3 5 7 in its high one. Levels of 4 bit lie there one after the
// other; MXFP4's four of a half have their signs at bits 15 12 14 13 and their other three bits at 11, 8, 5 and 2 and below:
// product.cuh says why.
//
// Groups of a tile follow one another, and tiles too, so a range of groups is a range of bytes. A *piece* is what one copy
// brings: one group of 8 bit; of 4 bit an even group and the one after it, or one of them where a warp's range begins or
// ends between the two.

constexpr int TILE_ROWS = 16;
constexpr int BLOCK_COLS = 32;
constexpr int GROUP_BLOCKS = 4;

struct Rows8 {
    static constexpr int ROW_BYTES = 32; // of a block's row
    static constexpr bool PAIRS = false; // two groups are a piece
};
struct Rows4 {
    static constexpr int ROW_BYTES = 16;
    static constexpr bool PAIRS = true;
};
struct Mxfp4 {
    static constexpr int ROW_BYTES = 17;
    static constexpr bool PAIRS = true;
};
struct Levels4 {
    static constexpr int ROW_BYTES = 18;
    static constexpr bool PAIRS = true;
};
struct Levels8 {
    static constexpr int ROW_BYTES = 36;
    static constexpr bool PAIRS = false;
};

template <int COLS_, class Format_> struct Packed {
    using Format = Format_;
    static constexpr bool PAIRS = Format::PAIRS;
    static constexpr int COLS = COLS_;
    static constexpr int BLOCKS = COLS / BLOCK_COLS;
    static constexpr int GROUPS = div_up(BLOCKS, GROUP_BLOCKS);
    static constexpr int TAIL_BLOCKS = BLOCKS - (GROUPS - 1) * GROUP_BLOCKS; // in the last group
    static constexpr int BLOCK_BYTES = TILE_ROWS * Format::ROW_BYTES;
    static constexpr int GROUP_BYTES = GROUP_BLOCKS * BLOCK_BYTES;
    static constexpr int PIECE_BYTES = (PAIRS ? 2 : 1) * GROUP_BYTES;
    static constexpr int TILE_BYTES = BLOCKS * BLOCK_BYTES;
    static constexpr int TAIL_MISSES = (GROUP_BLOCKS - TAIL_BLOCKS) * BLOCK_BYTES; // bytes of the last group
    static_assert(COLS % BLOCK_COLS == 0, "whole blocks only");

    // Groups of the piece that begins with `group` of a tile, when the warp has `left` from there on.
    static __device__ int piece_groups(int group, int left) {
        return PAIRS && group % 2 == 0 && group + 1 < GROUPS && left > 1 ? 2 : 1;
    }
};

// Of LEVELS, a layer's matrix has 4 bits, or 8 where those cannot hold it.
template <bool YES, class A, class B> struct Either { using Type = A; };
template <class A, class B> struct Either<false, A, B> { using Type = B; };
using AttentionFormat = Either<LEVELS, Levels4, Rows8>::Type;
using ExpertFormat = Either<LEVELS, Levels4, Mxfp4>::Type;

using QkvPack = Packed<HIDDEN, AttentionFormat>;
using OutPack = Packed<Q_ROWS, AttentionFormat>;
using GateUpPack = Packed<HIDDEN, ExpertFormat>;
using DownPack = Packed<FFN, ExpertFormat>;
using HeadPack = Packed<HIDDEN, Rows8>;
using CoarsePack = Packed<HIDDEN, Rows4>; // of the same rows
template <class P> using Wide = Packed<P::COLS, Levels8>;

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

// The groups that this block multiplies. Rows of QKV, OUT and DOWN may be shared with other blocks. GATE_UP has whole
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
__host__ __device__ constexpr int stage_tiles(Stage stage) {
    return stage == QKV ? QKV_TILES : stage == GATE_UP ? USED * GATE_UP_TILES : stage == HEAD ? HEAD_TILES : HIDDEN_TILES;
}
__host__ __device__ constexpr int stage_groups(Stage stage) { return stage_tiles(stage) * tile_groups(stage); }

// Tiles that so many consecutive groups touch at most.
__host__ __device__ constexpr int touched(int groups, int of_tile) { return div_up(groups - 1, of_tile) + 1; }

__host__ __device__ constexpr int block_groups_max(Stage stage) {
    return stage == GATE_UP ? div_up(stage_tiles(stage), GRID) * tile_groups(stage) : div_up(stage_groups(stage), GRID);
}
__host__ __device__ constexpr int block_tiles_max(Stage stage) { return touched(block_groups_max(stage), tile_groups(stage)); }
__host__ __device__ constexpr int warp_tiles_max(Stage stage) {
    return touched(div_up(block_groups_max(stage), WARPS), tile_groups(stage));
}
// Warps of a block that have groups of one tile at most.
__host__ __device__ constexpr int tile_warps_max(Stage stage) {
    const int of_block = stage == GATE_UP ? stage_tiles(stage) / GRID * tile_groups(stage) : stage_groups(stage) / GRID;
    const int of_warp = of_block / WARPS; // at least
    const int most = of_warp == 0 ? WARPS : touched(tile_groups(stage), of_warp);
    return most < 2 ? 2 : most < WARPS ? most : WARPS;
}
template <class Of> __host__ __device__ constexpr int most_of_stages(Of of) {
    int most = 0;
    for (int stage = QKV; stage < HEAD; stage++) most = of((Stage)stage) > most ? of((Stage)stage) : most;
    return most;
}

// The block that has a group of a stage whose tiles are shared.
template <Stage STAGE> __device__ inline int block_of(int group) { return ((group + 1) * GRID - 1) / stage_groups(STAGE); }
template <Stage STAGE> __device__ inline int first_block(int tile) { return block_of<STAGE>(tile * tile_groups(STAGE)); }
// How many blocks have groups of a tile, and the most that there can be.
template <Stage STAGE> __device__ inline int sharers(int tile) {
    return block_of<STAGE>((tile + 1) * tile_groups(STAGE) - 1) - first_block<STAGE>(tile) + 1;
}
template <Stage STAGE> __host__ __device__ constexpr int sharers_max() {
    static_assert(STAGE == QKV || STAGE == OUT || STAGE == DOWN, "stages whose tiles blocks share");
    static_assert(stage_groups(STAGE) >= GRID, "every block has a group");
    return touched(tile_groups(STAGE), stage_groups(STAGE) / GRID);
}
static_assert(sharers_max<QKV>() <= SHARERS_MAX && sharers_max<OUT>() <= SHARERS_MAX && sharers_max<DOWN>() <= SHARERS_MAX,
              "the host has room for the sums of so many");

// Which warps have groups of a tile: consecutive ones. All but the first of them begin with it.
struct TileWarps {
    u8 first, last;
    u8 place; // of the tile among those of the first of them
};

constexpr int TILES_MAX = most_of_stages(block_tiles_max);
static_assert(TILES_MAX * TILE_ROWS <= THREADS, "a thread for each row");

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
            tiles[stage][i % TILES_MAX] = warps_of(stage, tile, groups);
        }
    }

    static __device__ TileWarps warps_of(Stage stage, int tile, int groups) {
        TileWarps found = {1, 0, 0}; // none
        bool any = false;
        for (int warp = 0; warp < WARPS; warp++) {
            const Range range = groups_of_warp(stage, warp);
            if (max(range.begin, tile * groups) >= min(range.end, (tile + 1) * groups)) continue;
            if (!any) found.first = warp, found.place = tile - range.begin / groups;
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
    int part;     // of the blocks that have groups of the tile, this is which

    template <Stage STAGE> static __device__ Row of(const Plan& plan) {
        constexpr int GROUPS = tile_groups(STAGE);
        const Range groups = plan.block[STAGE];
        Row row;
        row.index = threadIdx.x / TILE_ROWS, row.in_tile = threadIdx.x % TILE_ROWS;
        row.tile = groups.begin / GROUPS + row.index;
        row.real = row.tile * GROUPS < groups.end;
        row.part = 0;
        if constexpr (STAGE != GATE_UP) row.part = (int)blockIdx.x - first_block<STAGE>(row.tile);
        return row;
    }
    __device__ int global() const { return tile * TILE_ROWS + in_tile; }
};
