//! What is said, and what must be answered.

use super::Seed;

pub type Line = (String, String);

/// Sixteen answers of 30 to 80 words, in letters of one to four bytes.
pub fn lines(seed: &mut Seed) -> Vec<Line> {
    const WORDS: [&str; 12] =
        ["stream", "naïve", "数学", "🎉", "café", "token", "двадцать", "frame", "the", "\n", "zürich", "👩‍🚀"];
    let answer = |line: usize, seed: &mut Seed| {
        let count = 30 + seed.below(50);
        format!("{line}: {}.", words(&WORDS, count, seed))
    };
    (0..16).map(|line| (format!("Play number {line}."), answer(line, seed))).collect()
}

/// One answer of this many words, each of which is one token and one event.
pub fn long_line(words_max: usize, seed: &mut Seed) -> Line {
    const WORDS: [&str; 8] = ["the", "time", "people", "water", "house", "day", "world", "work"];
    ("Play the long one.".to_owned(), words(&WORDS, words_max, seed))
}

fn words(words: &[&str], count: usize, seed: &mut Seed) -> String {
    (0..count).map(|_| words[seed.below(words.len())]).collect::<Vec<_>>().join(" ")
}
