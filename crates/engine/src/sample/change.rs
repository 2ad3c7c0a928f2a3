//! What is to become of a row of logits before a token is chosen by it: what a constraint forbids is struck, and what
//! penalties and biases weigh on is shifted. Any device may do it, with these operations in this order.

use super::Sampling;
use std::collections::HashMap;

/// Both in one, so that a device goes through a row once.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    pub allowed: Option<&'a [u32]>, // a bit for each token, 0 for those after the last word; none: all may come
    pub shifts: &'a [Shift],        // each of another token
}

/// What penalties and biases do to one token's logit.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)] // `Shift` in kernels/ops/logits.cu
pub struct Shift {
    pub token: u32,
    pub factor: f32, // the repetition penalty: what is above 0 is divided by it, all else multiplied
    pub less: f32,   // then the presence and frequency penalties are taken off
    pub bias: f32,   // and this is added
}

impl Change<'_> {
    pub fn is_empty(&self) -> bool {
        self.allowed.is_none() && self.shifts.is_empty()
    }

    pub fn apply(&self, logits: &mut [f32]) {
        if let Some(allowed) = self.allowed {
            strike(logits, allowed);
        }
        for shift in self.shifts {
            logits.get_mut(shift.token as usize).into_iter().for_each(|logit| *logit = shift.of(*logit));
        }
    }
}

impl Shift {
    fn of(&self, logit: f32) -> f32 {
        let logit = if logit > 0.0 { logit / self.factor } else { logit * self.factor };
        logit - self.less + self.bias
    }
}

/// Leaves the logits whose bits are set.
fn strike(logits: &mut [f32], allowed: &[u32]) {
    let words = allowed.iter().copied().chain(std::iter::repeat(0));
    for (logits, word) in logits.chunks_mut(u32::BITS as usize).zip(words) {
        match word {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            word => logits.iter_mut().enumerate().for_each(|(bit, logit)| {
                if word & (1 << bit) == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }),
        }
    }
}

/// The shifts of one generation, kept up to date token by token. Empty, and free of cost, where nothing is asked for.
#[derive(Default)]
pub struct Shifts {
    list: Vec<Shift>,
    known: HashMap<u32, Known>,
    repetition: f32,
    presence: f32,
    frequency: f32,
    counts: bool, // tokens have to be counted
}

/// What is known of a token in the list.
#[derive(Debug, Clone, Copy)]
struct Known {
    place: usize,
    count: u32, // generated how often
}

impl Shifts {
    /// For a history whose first `prompt` tokens were not generated, with room to grow to `len` tokens.
    pub fn new(sampling: &Sampling, history: &[u32], prompt: usize, len: usize) -> Shifts {
        let counts = sampling.has_penalties();
        let room = sampling.bias.len() + if counts { len } else { 0 };
        let mut shifts = Shifts {
            list: Vec::with_capacity(room),
            known: HashMap::with_capacity(room),
            repetition: sampling.repetition_penalty,
            presence: sampling.presence_penalty,
            frequency: sampling.frequency_penalty,
            counts,
        };
        sampling.bias.iter().for_each(|&(token, bias)| shifts.entry(token).0.bias += bias);
        let (prompt, generated) = history.split_at(prompt);
        if shifts.repetition != 1.0 {
            prompt.iter().for_each(|&token| shifts.repeated(token));
        }
        generated.iter().for_each(|&token| shifts.add(token));
        shifts
    }

    pub fn list(&self) -> &[Shift] {
        &self.list
    }

    /// A token was generated.
    pub fn add(&mut self, token: u32) {
        if self.counts {
            self.repeated(token);
            let (presence, frequency) = (self.presence, self.frequency);
            let (shift, known) = self.entry(token);
            known.count += 1;
            shift.less = presence + frequency * known.count as f32;
        }
    }

    /// The repetition penalty falls on the prompt's tokens too; presence and frequency on generated ones.
    fn repeated(&mut self, token: u32) {
        let factor = self.repetition;
        self.entry(token).0.factor = factor;
    }

    fn entry(&mut self, token: u32) -> (&mut Shift, &mut Known) {
        let list = &mut self.list;
        let known = self.known.entry(token).or_insert_with(|| {
            list.push(Shift { token, factor: 1.0, less: 0.0, bias: 0.0 });
            Known { place: list.len() - 1, count: 0 }
        });
        (&mut list[known.place], known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(logits: &[f32], change: Change<'_>) -> Vec<f32> {
        let mut logits = logits.to_vec();
        change.apply(&mut logits);
        logits
    }

    #[test]
    fn only_allowed_tokens_are_left() {
        let logits = vec![1.0; 70];
        let left = |allowed: &[u32]| -> Vec<usize> {
            let logits = changed(&logits, Change { allowed: Some(allowed), shifts: &[] });
            (0..70).filter(|&token| logits[token] == 1.0).collect()
        };
        assert_eq!(left(&[1 << 3 | 1 << 31, 0, 1 << 5]), [3, 31, 69]);
        assert_eq!(left(&[0, u32::MAX]), (32..64).collect::<Vec<_>>()); // the rest is in no word
        assert_eq!(left(&[u32::MAX; 9]).len(), 70);
        assert_eq!(changed(&logits, Change { allowed: None, shifts: &[] }), logits);
    }

    #[test]
    fn penalties_and_biases_come_in_their_order() {
        let sampling = Sampling {
            repetition_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            bias: vec![(1, 3.0), (4, -1.0), (4, -1.0), (900, 1.0)],
            ..Sampling::default()
        };
        let mut shifts = Shifts::new(&sampling, &[0, 0, 2], 2, 10);
        let logits = [4.0, -4.0, 4.0, -4.0, 4.0];
        let with = |shifts: &Shifts| changed(&logits, Change { allowed: None, shifts: shifts.list() });
        assert_eq!(with(&shifts), [2.0, -1.0, 1.25, -4.0, 2.0]);
        shifts.add(2);
        shifts.add(1);
        assert_eq!(with(&shifts), [2.0, -5.75, 1.0, -4.0, 2.0]);
        assert_eq!(shifts.list().len(), 5);
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_asked_for() {
        let mut shifts = Shifts::new(&Sampling::default(), &[1, 2, 3], 1, 10);
        shifts.add(4);
        assert!(shifts.list().is_empty());
        let biased = Sampling { bias: vec![(7, 1.0)], ..Sampling::default() };
        let mut shifts = Shifts::new(&biased, &[1, 2, 3], 1, 10);
        shifts.add(4);
        assert_eq!(shifts.list(), [Shift { token: 7, factor: 1.0, less: 0.0, bias: 1.0 }]);
    }
}
