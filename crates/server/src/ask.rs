//! Asking the engine, for a turn that may have waited since it was prepared.

use crate::model::Model;
use flint_engine::message::{Base, Generate};
use flint_engine::supervise::{EngineError, Generation};

impl Model {
    /// What follows a prompt. The sequence that the turn was to be forked from may be gone by now, or say something
    /// else: then it is done without.
    pub fn generate(&self, mut request: Generate, prompt: &[u32]) -> Result<Generation, EngineError> {
        let Base::Fork { of, at } = request.base else { return self.engine.generate(request) };
        let shared = &prompt[..at as usize];
        self.sessions.while_resting(of, shared, |rests| {
            if !rests {
                request.base = Base::New;
                request.tokens.splice(0..0, shared.iter().copied());
            }
            self.engine.generate(request)
        })
    }
}
