//! Generated tokens as bytes, with what the engine told about each: enough to hear them again.

use crate::decode::Sampled;
use flint_engine::message::TokenLogprob;

/// Stands for the count of alternatives where not even the token's own log-probability was told.
const UNTOLD: u8 = u8::MAX;

/// A token that was generated before.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    pub token: u32,
    pub logprob: Option<f32>,
    pub top: Vec<TokenLogprob>,
}

impl Heard {
    pub fn sampled(&self) -> Sampled<'_> {
        Sampled { token: self.token, logprob: self.logprob, top: &self.top }
    }
}

/// Appends one token: its id, how many alternatives, its log-probability, and the alternatives.
pub fn record(sampled: &Sampled<'_>, tape: &mut Vec<u8>) {
    tape.extend(sampled.token.to_le_bytes());
    let Some(logprob) = sampled.logprob else { return tape.push(UNTOLD) };
    let top = &sampled.top[..sampled.top.len().min(usize::from(UNTOLD) - 1)];
    tape.push(top.len() as u8);
    tape.extend(logprob.to_le_bytes());
    for alternative in top {
        tape.extend(alternative.token.to_le_bytes());
        tape.extend(alternative.logprob.to_le_bytes());
    }
}

/// All tokens of a tape; none if it is not one.
pub fn play(mut tape: &[u8]) -> Option<Vec<Heard>> {
    let mut tokens = Vec::new();
    while !tape.is_empty() {
        let token = u32::from_le_bytes(take(&mut tape)?);
        let [count] = take(&mut tape)?;
        let mut heard = Heard { token, logprob: None, top: Vec::new() };
        if count != UNTOLD {
            heard.logprob = Some(f32::from_le_bytes(take(&mut tape)?));
            for _ in 0..count {
                let token = u32::from_le_bytes(take(&mut tape)?);
                heard.top.push(TokenLogprob { token, logprob: f32::from_le_bytes(take(&mut tape)?) });
            }
        }
        tokens.push(heard);
    }
    Some(tokens)
}

fn take<const N: usize>(tape: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = tape.split_first_chunk()?;
    *tape = rest;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(token: u32, logprob: Option<f32>, top: &[(u32, f32)]) -> Heard {
        let top = top.iter().map(|&(token, logprob)| TokenLogprob { token, logprob }).collect();
        Heard { token, logprob, top }
    }

    #[test]
    fn a_tape_plays_what_was_recorded() {
        let tokens = [
            heard(7, None, &[]),
            heard(u32::MAX, Some(-0.25), &[]),
            heard(9, Some(0.0), &[(1, -1.5), (2, -2.5)]),
        ];
        let mut tape = Vec::new();
        tokens.iter().for_each(|heard| record(&heard.sampled(), &mut tape));
        assert_eq!(play(&tape).as_deref(), Some(&tokens[..]));
        assert_eq!(play(&[]), Some(vec![]));
    }

    #[test]
    fn a_torn_tape_is_refused() {
        let mut tape = Vec::new();
        record(&heard(9, Some(0.5), &[(1, -1.5)]).sampled(), &mut tape);
        for length in 1..tape.len() {
            assert_eq!(play(&tape[..length]), None, "{length}");
        }
    }
}
