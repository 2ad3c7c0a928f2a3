//! The vocabulary of the engine: what it can be asked, and what it tells.
//!
//! Both enums are closed, travel over the link as they are, and are all that a caller ever needs.

use crate::constrain::{BadConstraint, Constraint};
use crate::limits::{
    REFERENCE_TOKENS_MAX, REFERENCES_MAX, SEQUENCES_MAX, STEERS_WAITING_MAX, STOP_TOKENS_MAX,
};
use crate::runner::RunnerFacts;
use crate::sample::{BadLogits, BadSampling, Sampling};
use serde::{Deserialize, Serialize};

/// Names a sequence. The caller chooses it and does not use it twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SequenceId(pub u64);

/// Whose tokens they are. No KV is shared between two tenants, even for equal tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Tenant(pub u64);

/// Who waits: an editor for the next keystroke, a person for an answer, or nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Priority {
    Keystroke,
    Interactive,
    Background,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Begins a generation.
    Generate(Generate),
    /// Ends the running generation at this token boundary, appends and goes on as its successor. A constraint
    /// begins anew.
    Steer {
        sequence: SequenceId,
        tokens: Vec<u32>,
        max_tokens: u32,
    },
    /// Ends the running generation. The sequence stays, with its KV. Nothing happens when none runs.
    Cancel {
        sequence: SequenceId,
    },
    /// Keeps the first `len` tokens; ends the running generation first.
    Truncate {
        sequence: SequenceId,
        len: u32,
    },
    /// Makes an idle sequence of the first `at` tokens of another. They share KV until one writes.
    Fork {
        sequence: SequenceId,
        of: SequenceId,
        at: u32,
    },
    /// Forgets the sequence. Its full blocks stay findable until their memory is needed.
    Release {
        sequence: SequenceId,
    },
    /// Asks for `Event::Stats`.
    Stats,
    Shutdown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generate {
    pub sequence: SequenceId,
    pub base: Base,
    pub tokens: Vec<u32>, // what `base` does not hold yet
    pub resumed: u32,     // of these, the last that this generation has emitted before (in a lost worker)
    pub max_tokens: u32,  // generated tokens, `resumed` included; 0 only prefills
    pub stop_tokens: Vec<u32>,
    pub sampling: Sampling,
    pub constraint: Option<Constraint>, // what the generated tokens must spell
    pub references: Vec<Vec<u32>>,      // texts that the generated tokens may resemble, the likeliest first
    pub speculate: bool,                // guess tokens and check several at once: the same tokens, sooner
    pub priority: Priority,
    pub tenant: Tenant,
}

impl Generate {
    /// Whether the references are few and short enough.
    pub(crate) fn check_references(&self) -> Result<(), Failure> {
        let count = self.references.len();
        let tokens: usize = self.references.iter().map(Vec::len).sum();
        match () {
            () if count > REFERENCES_MAX => Err(Failure::TooManyReferences { count: count as u64 }),
            () if tokens > REFERENCE_TOKENS_MAX => Err(Failure::ReferencesTooLong { tokens: tokens as u64 }),
            () => Ok(()),
        }
    }
}

/// What a generation stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    /// A new sequence; `tokens` is all of it.
    New,
    /// The sequence as it is; `tokens` follow.
    Extend,
    /// The sequence, but `tokens` is all of it: what both begin with is kept.
    Rewrite,
    /// A new sequence that begins with the first `at` tokens of another; `tokens` follow.
    Fork { of: SequenceId, at: u32 },
}

/// What happened. A generation is `Started`, any number of `Token` and `Steered`, then `Finished` or
/// `Failed`; after a `Steered` there is another `Started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The model is loaded.
    Ready(RunnerFacts),
    /// A step was made that has nothing to tell, such as a part of a long prompt.
    Alive,
    /// The generation got its first rows.
    Started {
        sequence: SequenceId,
        cached: u32, // prompt tokens that need no work: their KV is there
        new: u32,    // prompt tokens to prefill
        broke: Option<Break>,
    },
    /// One sampled token, now part of the sequence. A stop token is told too, just before `Finished`.
    Token {
        sequence: SequenceId,
        token: u32,
        logprob: Option<f32>,
        top: Vec<TokenLogprob>,
    },
    /// The steer took hold after the first `kept` tokens of the sequence; `counts` close the predecessor.
    Steered {
        sequence: SequenceId,
        kept: u32,
        counts: Counts,
    },
    Finished {
        sequence: SequenceId,
        reason: FinishReason,
        counts: Counts,
    },
    /// The generation came to a bad end.
    Failed {
        sequence: SequenceId,
        failure: Failure,
    },
    /// A command on this sequence could not be obeyed: nothing has changed.
    Refused {
        sequence: SequenceId,
        verb: Verb,
        failure: Failure,
    },
    Stats(Stats),
    /// The worker's last words.
    Fatal {
        message: String,
    },
}

impl Event {
    /// The sequence it is about; none when it is about the whole engine.
    pub fn sequence(&self) -> Option<SequenceId> {
        match self {
            Event::Started { sequence, .. }
            | Event::Token { sequence, .. }
            | Event::Steered { sequence, .. }
            | Event::Finished { sequence, .. }
            | Event::Failed { sequence, .. }
            | Event::Refused { sequence, .. } => Some(*sequence),
            Event::Ready(_) | Event::Alive | Event::Stats(_) | Event::Fatal { .. } => None,
        }
    }
}

/// Which command it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    Generate,
    Steer,
    Cancel,
    Truncate,
    Fork,
    Release,
}

/// Why a sequence could not use all KV that it once had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    pub at: u32, // the first token that is computed again
    pub cause: BreakCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BreakCause {
    /// `Base::Rewrite` brought another token here.
    Differs,
    /// The pool was full and the KV from here on was given away.
    Evicted,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    pub token: u32,
    pub logprob: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// A stop token was sampled, or the constraint allows nothing more.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// The sequence is as long as the model (or the whole pool) allows.
    Context,
    Cancelled,
}

/// The tokens of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub cached: u32,     // prompt tokens whose KV was there
    pub new: u32,        // prompt tokens that were prefilled
    pub generated: u32,  // tokens emitted, those before a worker's death included
    pub recomputed: u32, // rows prefilled again because the pool was full
    pub drafted: u32,    // guessed rows
    pub accepted: u32,   // of these, the right ones: each saved a forward pass
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    pub steps: u64,
    pub rows_prefilled: u64,
    pub rows_decoded: u64,
    pub rows_drafted: u64,  // guessed
    pub rows_accepted: u64, // guessed right; these are among the decoded
    pub tokens_cached: u64, // prompt tokens that needed no row
    pub preemptions: u64,   // running sequences that lost their KV
    pub evictions: u64,     // idle sequences that lost their KV
    pub sequences: u64,
    pub sequences_running: u64,
    pub blocks: u64,
    pub blocks_running: u64, // held by a sequence that runs
    pub blocks_free: u64,
    pub blocks_cached: u64, // held by no sequence, but findable
}

/// Why a command or a generation failed. The engine itself is well.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    #[error("sequence {} is not known: it was released or never begun", .0.0)]
    Unknown(SequenceId),
    #[error("sequence {} exists already: choose a new id", .0.0)]
    Exists(SequenceId),
    #[error("sequence {} is generating: cancel or steer it first", .0.0)]
    Busy(SequenceId),
    #[error("sequence {} is not generating: there is nothing to steer", .0.0)]
    NotRunning(SequenceId),
    #[error("sequence {} has {STEERS_WAITING_MAX} steers waiting already", .0.0)]
    TooManySteers(SequenceId),
    #[error("sequence {} belongs to another tenant", .0.0)]
    Foreign(SequenceId),
    #[error("the prompt is empty: at least one token is needed")]
    Empty,
    #[error("the sequence would have {tokens} tokens, at most {limit} fit: shorten the prompt")]
    TooLong { tokens: u64, limit: u64 },
    #[error("position {at} is past the end of sequence {}, which has {len} tokens", sequence.0)]
    PastEnd { sequence: SequenceId, at: u32, len: u32 },
    #[error("token {token} is not in the vocabulary of {vocab} tokens")]
    NotInVocabulary { token: u32, vocab: u64 },
    #[error("{resumed} tokens are said to be resumed, but only {tokens} were given")]
    Resumed { resumed: u32, tokens: u64 },
    #[error("{count} stop tokens were given, at most {STOP_TOKENS_MAX} are allowed")]
    TooManyStopTokens { count: u64 },
    #[error("{count} references were given, at most {REFERENCES_MAX} are allowed")]
    TooManyReferences { count: u64 },
    #[error("the references have {tokens} tokens, at most {REFERENCE_TOKENS_MAX} are allowed")]
    ReferencesTooLong { tokens: u64 },
    #[error("the engine holds {SEQUENCES_MAX} sequences already: release some")]
    TooManySequences,
    #[error(transparent)]
    Sampling(#[from] BadSampling),
    #[error(transparent)]
    Logits(#[from] BadLogits),
    #[error(transparent)]
    Constraint(#[from] BadConstraint),
    #[error("the engine's worker process was lost and is not restarted: {0}")]
    WorkerLost(String),
}
