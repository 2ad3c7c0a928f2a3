//! Every bound of the engine, with its unit in its name.

/// Tokens in one block of the KV pool.
pub const KV_BLOCK_TOKENS: usize = 32;

/// Rows (tokens of all sequences together) in one forward pass.
pub const BATCH_ROWS_MAX: usize = 512;

/// Sequences in one forward pass.
pub const BATCH_SEQUENCES_MAX: usize = 16;

/// Rows of one forward pass whose logits are wanted.
pub const BATCH_LOGIT_ROWS_MAX: usize = 64;

/// Steps that a card decodes ahead of the host, for a sequence alone: no further than the block that it writes to.
pub const ALONE_STEPS_AHEAD_MAX: usize = KV_BLOCK_TOKENS;

/// Tokens in a row that must be the likeliest ones before it does: a step too many costs more than some launches.
pub const ALONE_HITS_BEFORE_AHEAD: usize = 8;

/// Guessed rows of one sequence in one forward pass: all whose logits can be had, less the row that they follow.
pub const DRAFT_ROWS_MAX: usize = BATCH_LOGIT_ROWS_MAX - 1;

/// Tokens of a sequence's history, counted from its end, that guesses are taken from.
pub const DRAFT_HISTORY_TOKENS_MAX: usize = 1 << 16;

/// Earlier places that are compared for one guess.
pub const DRAFT_CANDIDATES_MAX: usize = 16;

/// Tokens that are compared at each of them.
pub const DRAFT_MATCH_TOKENS_MAX: usize = 32;

/// Texts that a generation may resemble, as its caller says.
pub const REFERENCES_MAX: usize = 16;

/// Tokens of all of them.
pub const REFERENCE_TOKENS_MAX: usize = 1 << 16;

/// CPUs of a machine, as the system numbers them.
pub const CPUS_MAX: usize = 1 << 13;

/// Key/value pairs of one GGUF file.
pub const GGUF_KEYS_MAX: u64 = 16_384;

/// Bytes of a key, or of a tensor's name.
pub const NAME_BYTES_MAX: u64 = 512;

/// Arrays within arrays in GGUF metadata.
pub const GGUF_ARRAY_DEPTH_MAX: usize = 4;

/// Values in one array of GGUF metadata; the longest are vocabularies and their merges.
pub const GGUF_ARRAY_LEN_MAX: u64 = 1 << 24;

/// Tensors of one model, over all its files; a large model with each expert apart has 60,000.
pub const MODEL_TENSORS_MAX: usize = 1 << 18;

/// Files that one model is split into.
pub const MODEL_FILES_MAX: usize = 1024;

/// Bytes of config.json and its like.
pub const CONFIG_JSON_BYTES_MAX: u64 = 4 << 20;

/// Bytes of the index that says which safetensors file holds which tensor.
pub const INDEX_JSON_BYTES_MAX: u64 = 32 << 20;

/// Bytes of tokenizer.json.
pub const TOKENIZER_JSON_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a safetensors header; a file of 60,000 tensors has 8 MB.
pub const SAFETENSORS_HEADER_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a chat template.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// Sizes of a model that are taken for real; well above any that exists.
pub const LAYERS_MAX: usize = 1024;
pub const HIDDEN_MAX: usize = 1 << 16;
pub const HEADS_MAX: usize = 1024;
pub const HEAD_DIM_MAX: usize = 1024;
pub const FFN_MAX: usize = 1 << 20;
pub const EXPERTS_MAX: usize = 4096;
pub const VOCAB_MAX: usize = 1 << 22;
pub const CONTEXT_TOKENS_MAX: usize = 1 << 26;

/// Rows of one forward pass while some sequence decodes: a long prompt may not stall the others for long.
pub const BATCH_ROWS_BESIDE_DECODE_MAX: usize = 128;

/// Steps that a running sequence may be passed over, between two of its tokens, before it goes first.
pub const STARVATION_STEPS: u32 = 128;

/// Sequences that a worker knows at once, running and idle.
pub const SEQUENCES_MAX: usize = 4096;

/// Stop tokens of one generation.
pub const STOP_TOKENS_MAX: usize = 64;

/// Tokens with a logit bias in one generation.
pub const LOGIT_BIAS_MAX: usize = 1024;

/// Most likely tokens reported beside the chosen one.
pub const TOP_LOGPROBS_MAX: usize = 20;

/// Bytes of one constraint's grammar. Large sets of tools have some hundred kilobytes of schemas.
pub const CONSTRAINT_BYTES_MAX: usize = 1 << 20;

/// Characters of llguidance's words about a constraint that are passed on.
pub const CONSTRAINT_MESSAGE_CHARS_MAX: usize = 600;

/// Regular expressions that one text has to match at once: compiling doubles with each.
pub const CONSTRAINT_INTERSECTIONS_MAX: usize = 8;

/// Patterns of properties of one schema, which are compared each with each.
pub const CONSTRAINT_PATTERN_PROPERTIES_MAX: usize = 64;

/// Work on a grammar before its first token, in llguidance's units: some 100 ns each.
pub const CONSTRAINT_FUEL_MAX: u64 = 1_000_000;

/// Symbols in the productions of a compiled grammar.
pub const CONSTRAINT_GRAMMAR_SYMBOLS_MAX: usize = 1_000_000;

/// Work of the lexer on one token's mask, in llguidance's units: some 70 ns each.
pub const CONSTRAINT_STEP_FUEL_MAX: u64 = 500_000;

/// Earley items of one token's mask: some 50 ns each.
pub const CONSTRAINT_STEP_ITEMS_MAX: usize = 200_000;

/// Earley items of one token: an object has a few for each property that may come next.
pub const CONSTRAINT_ROW_ITEMS_MAX: usize = 50_000;

/// States of one generation's lexer: some 2 KB each.
pub const CONSTRAINT_LEXER_STATES_MAX: usize = 50_000;

/// Bytes of stack for compiling; grammars nest.
pub const CONSTRAINT_STACK_BYTES: usize = 256 << 20;

/// Milliseconds that checking a constraint may take.
pub const CONSTRAINT_CHECK_MS_MAX: u64 = 30_000;

/// Checks of constraints at a time.
pub const CONSTRAINT_CHECKS_MAX: usize = 16;

/// Milliseconds that a generation waits for its constraint.
pub const CONSTRAINT_WAIT_MS_MAX: u64 = 30_000;

/// Milliseconds that an engine with nothing to do but wait for a constraint hears no command.
pub const CONSTRAINT_TICK_MS: u64 = 20;

/// Constraints that wait to be compiled.
pub const CONSTRAINTS_QUEUED_MAX: usize = 256;

/// Compiled constraints that are kept for the next generation that wants the same one.
pub const CONSTRAINTS_KEPT_MAX: usize = 4;

/// Steers of one generation that wait for a worker to take them up.
pub const STEERS_WAITING_MAX: usize = 64;

/// Bytes in one frame of the link, its length prefix not counted.
pub const LINK_FRAME_BYTES_MAX: usize = 16 << 20;

/// Commands that wait, on either side of the link, for the worker's next step.
pub const LINK_COMMANDS_QUEUED_MAX: usize = 8192;
