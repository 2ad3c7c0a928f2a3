//! The corpus of the exactness tests: made, not stored.
//!
//! `golden/corpus.py` makes the same bytes; the seeds in ten languages and the generator's steps are all there is.

use std::fmt::Write;

pub(crate) const CODE_CHUNKS: u64 = 72;
pub(crate) const UNICODE_CHUNKS: u64 = 16;
const CHUNK_BYTES: usize = 16 << 10;

const LANGUAGES: [&str; 10] =
    ["rust", "python", "javascript", "typescript", "c", "cpp", "go", "java", "shell", "sql"];

/// Inclusive ranges of characters, of which each is as likely.
const BLOCKS: [(u32, u32); 18] = [
    (0x00, 0x7F),
    (0x80, 0x24F),
    (0x250, 0x36F),
    (0x370, 0x52F),
    (0x531, 0x5F4),
    (0x600, 0x6FF),
    (0x900, 0x97F),
    (0xE01, 0xE5B),
    (0x1E00, 0x1FFF),
    (0x2000, 0x22FF),
    (0x2460, 0x27BF),
    (0x3000, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFFEF),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1F64F),
    (0x0, 0x10FFFF),
];

const SNIPPETS: [&str; 16] = [
    " ",
    "  ",
    "\n",
    "\t",
    "\r\n",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "'s",
    "'LL",
    "'\u{17f}",
    "e\u{301}",
    "\u{1f469}\u{200d}\u{1f4bb}",
    "1\u{fe0f}\u{20e3}",
    "\u{1e9b}\u{323}",
    "ﬁ½Ⅷ",
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn character(&mut self) -> char {
        let (low, high) = BLOCKS[self.below(BLOCKS.len())];
        let number = low + self.below((high - low + 1) as usize) as u32;
        char::from_u32(number).unwrap_or('\u{fffd}')
    }

    fn word(&mut self) -> String {
        (0..1 + self.below(12)).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}

pub(crate) fn chunks() -> impl Iterator<Item = String> {
    let seeds: Vec<Vec<String>> = LANGUAGES.iter().map(|name| seed_lines(name)).collect();
    let code = (0..CODE_CHUNKS).map(move |i| code_chunk(&seeds, &mut Random(i)));
    code.chain((0..UNICODE_CHUNKS).map(|i| unicode_chunk(&mut Random(1000 + i))))
}

fn seed_lines(name: &str) -> Vec<String> {
    let seed = std::fs::read_to_string(super::golden(&format!("seeds/{name}.txt"))).unwrap();
    seed.split('\n').map(str::to_owned).collect()
}

fn code_chunk(seeds: &[Vec<String>], random: &mut Random) -> String {
    let mut text = String::new();
    while text.len() < CHUNK_BYTES {
        let lines = &seeds[random.below(seeds.len())];
        let start = random.below(lines.len());
        let count = 1 + random.below(12);
        for line in lines.iter().skip(start).take(count) {
            push_mutated(&mut text, line, random);
        }
    }
    text
}

fn push_mutated(text: &mut String, line: &str, random: &mut Random) {
    match random.below(16) {
        0 => {
            for c in line.chars() {
                text.push(if c.is_ascii_digit() { char::from(b'0' + random.below(10) as u8) } else { c });
            }
            text.push('\n');
        }
        1 => writeln!(text, "{}{line}", " ".repeat(random.below(9))).unwrap(),
        2 => writeln!(text, "{}{line}", "\t".repeat(random.below(4))).unwrap(),
        3 => writeln!(text, "{line}{}", random.word()).unwrap(),
        4 => {
            text.push_str(line);
            for _ in 0..1 + random.below(4) {
                text.push(random.character());
            }
            text.push('\n');
        }
        5 => writeln!(text, "{}", line.to_ascii_uppercase()).unwrap(),
        6 => text.push_str(line),
        7 => write!(text, "{line}\r\n").unwrap(),
        8 => writeln!(text, "{line}{}", " ".repeat(random.below(20))).unwrap(),
        9 => write!(text, "{line}\n{line}\n").unwrap(),
        _ => writeln!(text, "{line}").unwrap(),
    }
}

fn unicode_chunk(random: &mut Random) -> String {
    let mut text = String::new();
    while text.len() < CHUNK_BYTES {
        match random.below(8) {
            0 => text.push_str(SNIPPETS[random.below(SNIPPETS.len())]),
            1 => text.push_str(&random.word()),
            _ => text.push(random.character()),
        }
    }
    text
}
