//! How tokens are chosen, from what a request says.

use crate::ids::random;
use flint_engine::sample::Sampling;
use flint_wire::Request;

/// Greedy where the request does not say: a coding model is asked for its best, not for variety.
pub fn sampling(request: &Request, seed: u64) -> Sampling {
    let asked = &request.sampling;
    let default = Sampling::default();
    let number = |value: Option<f64>, default: f32| value.map_or(default, |value| value as f32);
    Sampling {
        temperature: number(asked.temperature, default.temperature),
        top_p: number(asked.top_p, default.top_p),
        top_k: asked.top_k.unwrap_or(default.top_k),
        min_p: number(asked.min_p, default.min_p),
        repetition_penalty: number(asked.repetition_penalty, default.repetition_penalty),
        presence_penalty: number(asked.presence_penalty, default.presence_penalty),
        frequency_penalty: number(asked.frequency_penalty, default.frequency_penalty),
        bias: request.bias.clone(),
        seed,
        logprobs: request.top_logprobs.map(|count| count as u8),
    }
}

/// The client's seed, or one that is drawn once for the whole response: whoever makes it again needs the same.
pub fn seed(request: &Request) -> u64 {
    request.sampling.seed.map_or_else(|| u64::from_le_bytes(random()), |seed| seed as u64)
}
