//! Every bound of this crate, with its unit in its name.

/// Entries of a vocabulary.
pub const VOCAB_TOKENS_MAX: usize = 1 << 20;

/// Bytes of one vocabulary entry.
pub const TOKEN_BYTES_MAX: usize = 1 << 12;

/// Merge rules of a vocabulary.
pub const MERGES_MAX: usize = 1 << 21;

/// Bytes of a `tokenizer.json`.
pub const TOKENIZER_JSON_BYTES_MAX: usize = 64 << 20;

/// Bytes of a pre-tokenizer's pattern, and of the automaton compiled from it.
pub const PATTERN_BYTES_MAX: usize = 1 << 13;
pub const PATTERN_AUTOMATON_BYTES_MAX: usize = 4 << 20;

/// Bytes of the automaton that knows a pattern's ASCII alone, and of what making it takes.
pub const ASCII_AUTOMATON_BYTES_MAX: usize = 1 << 18;

/// Steps of a pre-tokenizer sequence.
pub const SPLIT_STAGES_MAX: usize = 8;

/// Bytes of text encoded in one call.
pub const ENCODE_BYTES_MAX: usize = 64 << 20;

/// Pieces of at most this many bytes are merged by scanning, longer ones with a heap.
pub const MERGE_SCAN_BYTES_MAX: usize = 48;

/// Bytes of a chat template's source.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 18;

/// Instructions that one render may execute: for any conversation, for each message and tool of it, and in all.
pub const TEMPLATE_FUEL_MIN: u64 = 100_000;
pub const TEMPLATE_FUEL_EACH: u64 = 2_000;
pub const TEMPLATE_FUEL_MAX: u64 = 2_000_000;

/// Nested blocks, loops and macro calls of one render (a macro call counts several).
pub const TEMPLATE_DEPTH_MAX: usize = 200;

/// Bytes of text and lists that one render may make, intermediate ones included.
pub const RENDER_BYTES_MAX: usize = 256 << 20;

/// Bytes of the template's own text that one render may emit.
pub const TEMPLATE_LITERAL_BYTES_MAX: usize = 1 << 30;

/// Bytes of stack for a render: reserved, and used only by programs that nest values hundreds of thousands
/// deep.
pub const RENDER_STACK_BYTES: usize = 256 << 20;

/// Bytes of a rendered prompt.
pub const PROMPT_BYTES_MAX: usize = 32 << 20;

/// Nested arrays and objects in tools, arguments and variables.
pub const JSON_DEPTH_MAX: usize = 64;

/// Characters of a `strftime_now` format.
pub const DATE_FORMAT_BYTES_MAX: usize = 256;

/// Bytes of a tool call; a longer one is text.
pub const CALL_BYTES_MAX: usize = 1 << 20;

/// `</tool_call>` inside the values of one XML call.
pub const XML_CLOSES_MAX: usize = 64;

/// Characters that the parser of one answer looks at twice, in search of calls; then it takes all for text.
pub const PARSE_STEPS_MAX: usize = 16 << 20;

/// Bytes of white space that may stand before reasoning.
pub const PARSE_SPACE_BYTES_MAX: usize = 1 << 10;

/// Bytes of a harmony message header.
pub const HARMONY_HEADER_BYTES_MAX: usize = 1 << 12;
