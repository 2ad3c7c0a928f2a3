//! Log-probabilities of the model's own distribution, before any penalty, bias or temperature, over the tokens that
//! its constraint allows: of the others nobody can ask which one might have come.

use crate::limits::TOP_LOGPROBS_MAX;
use crate::message::TokenLogprob;

/// Writes the `count` most likely tokens into `top`, best first; of equal ones the lower id is better.
pub(super) fn most_likely(logits: &[f32], log_sum: f32, count: usize, top: &mut Vec<TokenLogprob>) {
    top.clear();
    let count = count.min(TOP_LOGPROBS_MAX).min(logits.len());
    let mut worst = f32::NEG_INFINITY;
    for (token, &logit) in logits.iter().enumerate() {
        if count == 0 || logit == f32::NEG_INFINITY || (top.len() == count && logit <= worst) {
            continue;
        }
        top.truncate(count - 1);
        let place = top.partition_point(|better| better.logprob >= logit);
        top.insert(place, TokenLogprob { token: token as u32, logprob: logit });
        worst = top[top.len() - 1].logprob;
    }
    top.iter_mut().for_each(|entry| entry.logprob -= log_sum);
}
