//! Stop strings: text ends before the first of them that is complete, however it is cut into deltas.

/// Watches a stream of text for stop strings, and holds back what may be the beginning of one.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String, // not given out yet: the beginning of a stop string, perhaps
    ended: bool,
}

impl StopStrings {
    /// Empty strings are dropped: they would end every text before it began.
    pub fn new(stops: &[String]) -> StopStrings {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        StopStrings { stops, held: String::new(), ended: false }
    }

    /// The text that is certain to stand before any stop string, and whether one was reached.
    pub fn push(&mut self, delta: &str) -> (String, bool) {
        if self.ended {
            return (String::new(), true);
        }
        self.held.push_str(delta);
        if let Some(start) = self.first_complete() {
            self.held.truncate(start);
            self.ended = true;
            return (std::mem::take(&mut self.held), true);
        }
        let kept = self.held.len() - self.longest_beginning();
        let rest = self.held.split_off(kept);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// No more text comes: what was held back is not a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the stop string that is complete first begins; of two that end together, the longer. One that ends later
    /// must not matter: in other deltas it would not have been seen.
    fn first_complete(&self) -> Option<usize> {
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop.len())));
        found.map(|(start, len)| (start + len, start)).min().map(|(_, start)| start)
    }

    /// Bytes at the end of the held text that a stop string begins with.
    fn longest_beginning(&self) -> usize {
        let beginning = |stop: &String| {
            let longest = (stop.len() - 1).min(self.held.len());
            (1..=longest).rev().find(|&len| self.held.as_bytes().ends_with(&stop.as_bytes()[..len]))
        };
        self.stops.iter().filter_map(beginning).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in deltas of `size` characters.
    fn run(stops: &[&str], text: &str, size: usize) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let mut watch = StopStrings::new(&stops);
        let chars: Vec<char> = text.chars().collect();
        let (mut out, mut ended) = (String::new(), false);
        for delta in chars.chunks(size) {
            let (part, end) = watch.push(&delta.iter().collect::<String>());
            out += &part;
            ended |= end;
        }
        if !ended {
            out += &watch.finish();
        }
        (out, ended)
    }

    #[test]
    fn any_cut_gives_the_same() {
        let cases: [(&[&str], &str, &str, bool); 9] = [
            (&["abc", "b"], "xabc", "xa", true),
            (&["b", "ab"], "xabc", "x", true),
            (&["\ndef "], "a\ndef b", "a", true),
            (&["\ndef ", "\n#"], "a\n#x\ndef b", "a", true),
            (&["abc"], "ababab", "ababab", false),
            (&["abc"], "abababc!", "abab", true),
            (&["ü!"], "für ü ü! x", "für ü ", true),
            (&[""], "kept", "kept", false),
            (&[], "kept", "kept", false),
        ];
        for (stops, text, want, ended) in cases {
            for size in 1..=text.chars().count() {
                assert_eq!(run(stops, text, size), (want.to_string(), ended), "{stops:?} {text:?} by {size}");
            }
        }
    }
}
