// Everything the kernel is given, in constant memory: every function reads it without carrying it in registers. The host
// fills the same struct (device/cuda/params.rs): keep both in step.

struct Params {
    // Weights beside the layers' matrices, below. Vectors are f32.
    const float* qkv_scale;  // (layers, QKV_ROWS) factors on the rows' products
    const float* qkv_bias;   // (layers, QKV_ROWS)
    const float* out_scale;  // (layers, HIDDEN)
    const float* out_bias;   // (layers, HIDDEN)
    const float* gate_up_scale; // (layers, 2 * FFN), if LEVELS
    const float* gate_up_bias;  // (layers, EXPERTS, 2 * FFN), if EXPERT_BIASES
    const float* down_scale;    // (layers, HIDDEN), if LEVELS
    const float* down_bias;     // (layers, EXPERTS, HIDDEN), if EXPERT_BIASES
    const u8* head;            // packed (VOCAB, HIDDEN), rows of 8 bit
    const u8* head_coarse;     // the same rounded to four bits, packed
    const float* head_scale;   // (VOCAB)
    const u16* embedding;      // (VOCAB, HIDDEN) f16
    const u16* router;         // (layers, HIDDEN, EXPERTS) bf16
    const float* router_bias;  // (layers, EXPERTS)
    const float* q_norm;       // (layers, HEAD_DIM), if HEAD_NORMS
    const float* k_norm;       // (layers, HEAD_DIM)
    const float* attention_norm; // (layers, HIDDEN)
    const float* mixture_norm;   // (layers, HIDDEN)
    const float* final_norm;     // (HIDDEN)
    const float* sinks;          // (layers, HEADS)
    const float* frequencies;    // (HEAD_DIM / 2) radians a position

    // The sequence.
    u8* cache;            // (layers, cache blocks, KV_HEADS, BLOCK_UNITS, UNIT_BYTES) 8 bits with scales: cache.cuh
    u16* paged;           // (layers, cache blocks, 2, KV_HEADS, KV_BLOCK_TOKENS, HEAD_DIM) f16: the general path's, or null
    const u32* blocks;    // block table

    // Activations on their way between blocks of the grid: tagged (tagged.cuh). None may have a tag of the layers to come.
    float* qkv_parts;     // (SHARERS_MAX, QKV_ROWS) sums of a row, by each of the blocks that share it
    u16* out_parts;       // (SHARERS_MAX, HIDDEN) f16, a part of SHARE_UNIT
    u16* down_parts;      // (SHARERS_MAX, HIDDEN), the same
    float* partial_values;  // (KV_HEADS, splits, GROUP_HEADS, HEAD_DIM) means of each split
    float* partial_weights; // (KV_HEADS, splits, GROUP_HEADS) logarithm of its powers' sum
    u16* attended;        // (Q_ROWS) f16
    u16* inner;           // (USED, FFN) f16, a part of INNER_UNIT
    u64* router_sums;     // (layers, EXPERTS, SUM_STRIDE) fixed point with a count, in the first; zero between uses
    u64* best;            // (grid) largest logit of each block's rows, with its token and the step's number
    u32* bounds;          // (2, BOUND_STRIDE) what the largest logit is not below, in the first; by turns of the steps

    // For the host.
    u32* told_tokens;     // (steps) mapped host memory: one more than the token, ODD_LOGIT if the largest is none
    const u32* stop;      // mapped host memory
    float* logits;        // (steps, VOCAB), or null
    u64* clocks;          // (MARKS) nanoseconds block 0 spent up to each mark, or null

    float norm_eps;
    float rope_magnitude;
    u32 cache_blocks;
    u32 unused;
};

constexpr u32 ODD_LOGIT = ~0u;

// The packed matrices of each layer (pack.cuh), in the order of the stages: where each lies, and in the lowest bit whether
// its levels have 8 bits.
constexpr int LAYER_MATRICES = 4; // qkv (QKV_ROWS, HIDDEN), out (HIDDEN, Q_ROWS); of each expert gate and up by turns
                                  // (2 * FFN, HIDDEN), and down (HIDDEN, FFN)

extern "C" {
__constant__ Params params;
__constant__ u64 matrices[LAYERS][LAYER_MATRICES];
}

__device__ inline const u8* matrix_of(int layer, int stage) { return (const u8*)(matrices[layer][stage] & ~1ull); }
// WIDE_STAGES has a bit for each that any layer has with 8 bits: no code is there for what a model does not have.
__host__ __device__ constexpr bool may_be_wide(int stage) { return WIDE_STAGES >> stage & 1; }
__device__ inline bool is_wide(int layer, int stage) { return may_be_wide(stage) && matrices[layer][stage] & 1ull; }

// What differs from launch to launch: the twin of `Start` in device/cuda/params.rs.
struct Start {
    const u32* forced; // (forced_count) input tokens that are given; after them the model's own
    u32 forced_count;
    u32 token;         // the first of them
    u32 position;      // of the first step
    u32 steps;
    u32 counted;       // steps of all launches before
    u32 screened;      // whether only the likeliest token is wanted, and no logits
};
