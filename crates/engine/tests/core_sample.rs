//! Every sampling option against a naive one, and the draws against the distribution they should have.

mod common;

use common::{Given, Random};
use flint_engine::runner::Runner;
use flint_engine::sample::{BadLogits, Change, Sampler, Sampling, Shifts};
use std::collections::HashMap;

/// The distribution that these settings should draw from, by full sorts in double precision.
fn naive(logits: &[f32], sampling: &Sampling, prompt: &[u32], generated: &[u32]) -> Vec<f64> {
    let mut logits: Vec<f64> = logits.iter().map(|&logit| logit.into()).collect();
    for (token, logit) in logits.iter_mut().enumerate() {
        let token = token as u32;
        let count = generated.iter().filter(|&&other| other == token).count();
        if count > 0 || prompt.contains(&token) {
            let penalty = f64::from(sampling.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
        if count > 0 {
            *logit -= f64::from(sampling.presence_penalty);
            *logit -= f64::from(sampling.frequency_penalty) * count as f64;
        }
        *logit += sampling.bias.iter().filter(|(t, _)| *t == token).map(|(_, b)| f64::from(*b)).sum::<f64>();
    }
    let max = logits.iter().copied().fold(f64::MIN, f64::max);
    let mut weights: Vec<f64> =
        logits.iter().map(|logit| ((logit - max) / f64::from(sampling.temperature)).exp()).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
    if sampling.top_k > 0 {
        order.drain((sampling.top_k as usize).min(order.len())..).for_each(|token| weights[token] = 0.0);
    }
    let total: f64 = weights.iter().sum();
    let mut before = 0.0;
    for (place, token) in order.into_iter().enumerate() {
        let cut = place > 0 && before >= f64::from(sampling.top_p) * total && sampling.top_p < 1.0;
        before += weights[token];
        if cut || weights[token] < f64::from(sampling.min_p) {
            weights[token] = 0.0;
        }
    }
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

fn some_logits(vocab: usize, spread: f64, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    (0..vocab).map(|_| ((random.unit() + random.unit() + random.unit() - 1.5) * spread) as f32).collect()
}

fn draw(sampler: &mut Sampler, logits: &[f32], sampling: &Sampling, shifts: &Shifts, position: usize) -> u32 {
    let mut given = Given(logits.to_vec());
    given.change(0, &Change { allowed: None, shifts: shifts.list() });
    sampler.choose(&mut given, 0, sampling, position).unwrap()
}

fn unshifted() -> Shifts {
    Shifts::new(&Sampling::default(), &[], 0, 0)
}

/// Draws often and compares with the naive distribution by a chi-squared test at five sigma.
fn check_draws(name: &str, sampling: &Sampling, prompt: &[u32], generated: &[u32]) {
    let logits = some_logits(60, 4.0, 1);
    let expected = naive(&logits, sampling, prompt, generated);
    let history = [prompt, generated].concat();
    let shifts = Shifts::new(sampling, &history, prompt.len(), 100);
    let mut sampler = Sampler::new(logits.len());
    let draws = 40_000;
    let mut counts = vec![0u32; logits.len()];
    for position in 0..draws {
        counts[draw(&mut sampler, &logits, sampling, &shifts, position) as usize] += 1;
    }
    let (mut chi2, mut rare, mut bins) = (0.0, (0.0, 0.0), 0.0);
    for (&count, &probability) in counts.iter().zip(&expected) {
        assert!(count == 0 || probability > 0.0, "{name}: a token was drawn that is cut off");
        let mean = probability * draws as f64;
        if mean < 5.0 {
            rare = (rare.0 + f64::from(count), rare.1 + mean);
            continue;
        }
        chi2 += (f64::from(count) - mean).powi(2) / mean;
        bins += 1.0;
    }
    let (count, mean): (f64, f64) = rare;
    assert!((count - mean).abs() <= 5.0 * mean.sqrt() + 1.0, "{name}: {count} rare draws, not {mean}");
    let freedom: f64 = bins - 1.0;
    let sigmas = (chi2 - freedom) / (2.0 * freedom).sqrt().max(1.0);
    assert!(sigmas < 5.0, "{name}: chi-squared {chi2} with {freedom} degrees of freedom");
}

#[test]
fn draws_follow_the_naive_distribution() {
    let base = Sampling { temperature: 1.0, seed: 7, ..Sampling::default() };
    let cases = [
        ("plain", base.clone()),
        ("cold", Sampling { temperature: 0.5, ..base.clone() }),
        ("hot", Sampling { temperature: 3.0, ..base.clone() }),
        ("top-k", Sampling { top_k: 7, ..base.clone() }),
        ("top-k of one", Sampling { top_k: 1, ..base.clone() }),
        ("top-k of more than all", Sampling { top_k: 1000, ..base.clone() }),
        ("top-p", Sampling { top_p: 0.8, ..base.clone() }),
        ("top-p of nothing", Sampling { top_p: 0.0, ..base.clone() }),
        ("min-p", Sampling { min_p: 0.2, ..base.clone() }),
        ("all cuts", Sampling { top_k: 20, top_p: 0.9, min_p: 0.05, temperature: 1.5, ..base.clone() }),
        ("repetition", Sampling { repetition_penalty: 1.8, ..base.clone() }),
        ("presence", Sampling { presence_penalty: 1.5, ..base.clone() }),
        ("frequency", Sampling { frequency_penalty: 0.7, ..base.clone() }),
        ("bias", Sampling { bias: vec![(3, 2.5), (4, -100.0), (900, 5.0)], ..base.clone() }),
    ];
    for (name, sampling) in cases {
        sampling.validate().unwrap();
        check_draws(name, &sampling, &[1, 2, 3, 3], &[3, 4, 5, 5, 5, 5]);
    }
}

#[test]
fn cuts_are_exact_on_a_large_vocabulary_with_ties() {
    for (seed, spread) in (0..).zip([0.5, 4.0, 40.0]) {
        // Rounding makes many equal logits, also at the edge of each cut.
        let logits: Vec<f32> =
            some_logits(150_000, spread, seed).iter().map(|x| (x * 64.0).round() / 64.0).collect();
        for (top_k, top_p) in [(40, 1.0), (5000, 1.0), (0, 0.5), (0, 0.95), (300, 0.7)] {
            let sampling = Sampling { temperature: 1.0, top_k, top_p, seed, ..Sampling::default() };
            let expected = naive(&logits, &sampling, &[], &[]);
            let mut sampler = Sampler::new(logits.len());
            for position in 0..40 {
                let token = draw(&mut sampler, &logits, &sampling, &unshifted(), position);
                assert!(expected[token as usize] > 0.0, "token {token} at k {top_k}, p {top_p}, {spread}");
            }
        }
    }
}

#[test]
fn greedy_takes_the_lowest_of_equals_and_heeds_penalties_and_bias() {
    let mut sampler = Sampler::new(5);
    let logits = [1.0, 3.0, 2.0, 3.0, 2.9];
    let greedy = Sampling::default();
    assert_eq!(draw(&mut sampler, &logits, &greedy, &unshifted(), 0), 1);
    let biased = Sampling { bias: vec![(0, 2.5)], ..greedy.clone() };
    assert_eq!(draw(&mut sampler, &logits, &biased, &Shifts::new(&biased, &[], 0, 10), 0), 0);
    let penalized = Sampling { presence_penalty: 0.5, ..greedy };
    let shifts = Shifts::new(&penalized, &[1, 3], 0, 10);
    assert_eq!(draw(&mut sampler, &logits, &penalized, &shifts, 0), 4);
}

#[test]
fn greedy_finds_the_lowest_of_equals_wherever_it_stands() {
    let mut sampler = Sampler::new(200);
    for first in 0..200 {
        let mut logits = vec![-1.0; 200];
        for token in [first, 150.max(first), 199] {
            logits[token] = 2.0;
        }
        let token = draw(&mut sampler, &logits, &Sampling::default(), &unshifted(), 0);
        assert_eq!(token as usize, first);
    }
}

#[test]
fn the_draw_depends_on_seed_and_position_only() {
    let logits = some_logits(1000, 1.0, 3);
    let sampling = |seed| Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let mut used = Sampler::new(1000);
    let forwards: Vec<u32> =
        (0..50).map(|p| draw(&mut used, &logits, &sampling(1), &unshifted(), p)).collect();
    let backwards: Vec<u32> = (0..50)
        .rev()
        .map(|p| draw(&mut Sampler::new(1000), &logits, &sampling(1), &unshifted(), p))
        .collect();
    assert!(forwards.iter().eq(backwards.iter().rev()));
    let other: Vec<u32> = (0..50).map(|p| draw(&mut used, &logits, &sampling(2), &unshifted(), p)).collect();
    assert_ne!(forwards, other);
}

#[test]
fn logprobs_are_those_of_the_model_before_any_setting() {
    let logits = some_logits(500, 6.0, 9);
    let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    let logprob = |token: u32| f64::from(logits[token as usize]) - total.ln();
    let sampling =
        Sampling { temperature: 2.0, bias: vec![(17, 50.0)], logprobs: Some(5), ..Sampling::default() };
    let mut sampler = Sampler::new(500);
    sampler.remember(&logits, 5).unwrap();
    let shifts = Shifts::new(&sampling, &[], 0, 0);
    assert_eq!(draw(&mut sampler, &logits, &sampling, &shifts, 0), 17);
    assert!((f64::from(sampler.logprob(17).unwrap()) - logprob(17)).abs() < 1e-5);
    let mut order: Vec<u32> = (0..500).collect();
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    let top: Vec<u32> = sampler.top(&sampling).iter().map(|entry| entry.token).collect();
    assert_eq!(top, order[..5]);
    assert!(sampler.top(&sampling).iter().all(|e| (f64::from(e.logprob) - logprob(e.token)).abs() < 1e-5));
}

#[test]
fn bad_logits_are_errors() {
    let mut sampler = Sampler::new(40);
    let cases = [(f32::NAN, BadLogits::NotANumber), (f32::INFINITY, BadLogits::Infinite)];
    for temperature in [0.0, 1.0] {
        let sampling = Sampling { temperature, ..Sampling::default() };
        for (value, expected) in cases {
            for place in [0, 20, 39] {
                let mut logits = vec![0.0; 40];
                logits[place] = value;
                assert_eq!(sampler.remember(&logits, 1), Err(expected), "{value} at {place}");
                let found = sampler.choose(&mut Given(logits), 0, &sampling, 0);
                assert_eq!(found, Err(expected), "{value} at {place}");
            }
        }
        let found = sampler.choose(&mut Given(vec![f32::NEG_INFINITY; 40]), 0, &sampling, 0);
        assert_eq!(found, Err(BadLogits::NoneAllowed));
    }
}

#[test]
fn masked_tokens_are_never_drawn() {
    let mut sampler = Sampler::new(300);
    let mut logits = vec![f32::NEG_INFINITY; 300];
    [5, 100, 299].into_iter().for_each(|token| logits[token] = token as f32 / 100.0);
    let open = Sampling { temperature: 50.0, ..Sampling::default() };
    for sampling in [Sampling { top_k: 10, ..open.clone() }, Sampling { top_p: 0.9999, ..open.clone() }, open]
    {
        let mut counts = HashMap::new();
        for position in 0..500 {
            *counts.entry(draw(&mut sampler, &logits, &sampling, &unshifted(), position)).or_insert(0) += 1;
        }
        let mut drawn: Vec<u32> = counts.keys().copied().collect();
        drawn.sort_unstable();
        assert_eq!(drawn, [5, 100, 299]);
    }
}

#[test]
fn settings_out_of_range_are_refused_with_their_name() {
    let good = Sampling::default();
    let cases = [
        (Sampling { temperature: f32::NAN, ..good.clone() }, "temperature is NaN, it must be from 0 to 100"),
        (Sampling { top_p: 1.5, ..good.clone() }, "top_p is 1.5, it must be from 0 to 1"),
        (Sampling { min_p: -0.5, ..good.clone() }, "min_p is -0.5, it must be from 0 to 1"),
        (
            Sampling { repetition_penalty: 0.0, ..good.clone() },
            "repetition_penalty is 0, it must be from 0.01 to 100",
        ),
        (Sampling { logprobs: Some(21), ..good.clone() }, "logprobs is 21, it must be at most 20"),
        (
            Sampling { bias: vec![(1, f32::INFINITY)], ..good.clone() },
            "a logit bias is inf, it must be from -1000 to 1000",
        ),
        (
            Sampling { bias: vec![(1, 0.0); 1025], ..good.clone() },
            "the count of biased tokens is 1025, it must be at most 1024",
        ),
    ];
    for (sampling, words) in cases {
        assert_eq!(sampling.validate().unwrap_err().to_string(), words);
    }
    good.validate().unwrap();
}
