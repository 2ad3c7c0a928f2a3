//! Whether a person asks for an answer, or for something to be done.

/// First words of what wants to be answered in words.
const ASKING: [&str; 17] = [
    "what",
    "what's",
    "why",
    "how",
    "where",
    "when",
    "which",
    "who",
    "whose",
    "explain",
    "describe",
    "show",
    "tell",
    "list",
    "review",
    "compare",
    "summarize",
];

/// The same, where a question mark follows.
const ASKING_WITH_MARK: [&str; 15] = [
    "is", "are", "was", "were", "does", "do", "did", "has", "have", "should", "shall", "may", "would",
    "could", "can",
];

/// Words of courtesy before the one that counts: "Could you please ..".
const POLITE: [&str; 7] = ["please", "can", "could", "would", "will", "you", "kindly"];

pub fn is_question(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
    let mut words = words.map(str::to_lowercase).peekable();
    let mut first = words.next().unwrap_or_default();
    // "Can you fix it?" asks for a change, "Can it be fixed?" does not.
    while POLITE.contains(&first.as_str()) && (first == "please" || first == "you" || polite(words.peek())) {
        first = words.next().unwrap_or_default();
    }
    let first = first.as_str();
    ASKING.contains(&first) || ASKING_WITH_MARK.contains(&first) && text.trim_end().ends_with('?')
}

fn polite(next: Option<&String>) -> bool {
    next.is_some_and(|next| next == "you" || next == "please" || next == "kindly")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_and_who_orders() {
        for text in [
            "How would I rename it in a.py",
            "Explain a.py",
            "why?",
            "`show` me a.py",
            "Can it be fixed?",
            "Do they differ?",
            "Could you please explain what calc.py does?",
            "What's wrong here",
        ] {
            assert!(is_question(text), "{text}");
        }
        for text in [
            "",
            "Fix add in calc.py",
            "  - rename it.",
            "Make calc.py faster, could you?",
            "Can you fix the bug in calc.py?",
            "Would you please add a test",
            "Please rename it",
            "will you?",
            "Do: a, b, c",
        ] {
            assert!(!is_question(text), "{text}");
        }
    }
}
