//! Random numbers without a state: the number for a token depends on the seed and its position alone, so
//! neither the rest of the batch nor a restart changes what is drawn.

/// Uniform in `0.0..1.0`.
pub(super) fn uniform(seed: u64, position: usize) -> f64 {
    let bits = mix(mix(seed) ^ (position as u64));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The output step of SplitMix64 over its Weyl increment: every input bit reaches every output bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_over_positions_and_over_seeds() {
        let count = 100_000;
        let by_position = (0..count).map(|i| uniform(42, i));
        let by_seed = (0..count).map(|i| uniform(i as u64, 42));
        for numbers in [by_position.collect::<Vec<_>>(), by_seed.collect()] {
            let mut bins = [0usize; 20];
            numbers.iter().for_each(|u| bins[(u * 20.0) as usize] += 1);
            let expected = count as f64 / 20.0;
            let chi2: f64 = bins.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
            assert!(chi2 < 43.8, "chi-squared {chi2} is beyond the 0.1% point of 19 degrees");
            let lag: f64 = numbers.windows(2).map(|w| (w[0] - 0.5) * (w[1] - 0.5)).sum::<f64>();
            assert!((lag / count as f64).abs() < 0.001, "neighbours are correlated: {lag}");
        }
    }
}
