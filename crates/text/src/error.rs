//! What can go wrong between text and tokens. Each variant is a decision the caller can take.

/// A failure that names the thing at fault, what was expected of it, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The model's tokenizer cannot be used: another model file is needed.
    #[error("tokenizer: {field}: {problem}")]
    Tokenizer { field: &'static str, problem: String },

    /// The model's chat template cannot be used: another model file or template is needed.
    #[error("chat template, line {line}: {problem}")]
    Template { line: usize, problem: String },

    /// The template itself refused the conversation (`raise_exception`).
    #[error("the model's chat template refuses this conversation: {0}")]
    Refused(String),

    /// The conversation cannot be rendered: the request has to change.
    #[error("{what}: {problem}")]
    Input { what: &'static str, problem: String },
}

impl TextError {
    pub(crate) fn tokenizer(field: &'static str, problem: impl Into<String>) -> Self {
        TextError::Tokenizer { field, problem: problem.into() }
    }

    pub(crate) fn input(what: &'static str, problem: impl Into<String>) -> Self {
        TextError::Input { what, problem: problem.into() }
    }
}
