//! Strict JSON, one character at a time: text that cannot become JSON is known at its first wrong character.

use crate::limits::JSON_DEPTH_MAX;

/// What a character did to the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    More,
    /// A key of the outermost object is complete.
    Key,
    /// A string, object or array in the outermost object is complete.
    Value,
    /// The outermost object is complete.
    Done,
    Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd, // of an array
    Key,
    KeyOrEnd, // of an object
    Colon,
    CommaOrEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    None,
    String { key: bool, escape: Escape },
    Number(Number),
    Literal(&'static str), // what is left of `true`, `false` or `null`
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    Backslash,
    Hex(u8), // digits left
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

#[derive(Debug)]
pub(super) struct JsonMachine {
    open: Vec<char>, // '{' and '[', at most `JSON_DEPTH_MAX`
    expect: Expect,
    token: Token,
}

impl JsonMachine {
    /// Expects an object, whose `{` is the first character to come.
    pub(super) fn new() -> Self {
        JsonMachine { open: Vec::new(), expect: Expect::Value, token: Token::None }
    }

    pub(super) fn in_string(&self) -> bool {
        matches!(self.token, Token::String { .. })
    }

    pub(super) fn step(&mut self, c: char) -> Step {
        match self.token {
            Token::String { key, escape } => self.string(c, key, escape),
            Token::Number(state) => self.number(c, state),
            Token::Literal(rest) => self.literal(c, rest),
            Token::None => self.between(c),
        }
    }

    fn string(&mut self, c: char, key: bool, escape: Escape) -> Step {
        let escape = match (escape, c) {
            (Escape::None, '"') => return self.end_string(key),
            (Escape::None, '\\') => Escape::Backslash,
            (Escape::None, c) if c < ' ' => return Step::Bad,
            (Escape::None, _) => Escape::None,
            (Escape::Backslash, 'u') => Escape::Hex(4),
            (Escape::Backslash, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => Escape::None,
            (Escape::Hex(1), c) if c.is_ascii_hexdigit() => Escape::None,
            (Escape::Hex(left), c) if c.is_ascii_hexdigit() => Escape::Hex(left - 1),
            (Escape::Backslash | Escape::Hex(_), _) => return Step::Bad,
        };
        self.token = Token::String { key, escape };
        Step::More
    }

    fn end_string(&mut self, key: bool) -> Step {
        self.token = Token::None;
        self.expect = if key { Expect::Colon } else { Expect::CommaOrEnd };
        match (self.open.len(), key) {
            (1, true) => Step::Key,
            (1, false) => Step::Value,
            _ => Step::More,
        }
    }

    fn number(&mut self, c: char, state: Number) -> Step {
        use Number::*;
        let next = match (state, c) {
            (Minus, '0') => Zero,
            (Minus, '1'..='9') | (Whole, '0'..='9') => Whole,
            (Zero | Whole, '.') => Point,
            (Point | Fraction, '0'..='9') => Fraction,
            (Zero | Whole | Fraction, 'e' | 'E') => Exponent,
            (Exponent, '+' | '-') => ExponentSign,
            (Exponent | ExponentSign | ExponentDigits, '0'..='9') => ExponentDigits,
            (Zero | Whole | Fraction | ExponentDigits, _) => {
                self.token = Token::None;
                return self.between(c);
            }
            (Minus | Point | Exponent | ExponentSign, _) => return Step::Bad,
        };
        self.token = Token::Number(next);
        Step::More
    }

    fn literal(&mut self, c: char, rest: &'static str) -> Step {
        match rest.strip_prefix(c) {
            Some("") => self.token = Token::None,
            Some(rest) => self.token = Token::Literal(rest),
            None => return Step::Bad,
        }
        Step::More
    }

    fn between(&mut self, c: char) -> Step {
        match (self.expect, c) {
            (_, ' ' | '\t' | '\r' | '\n') => Step::More,
            (Expect::Key | Expect::KeyOrEnd, '"') => {
                self.begin(Token::String { key: true, escape: Escape::None })
            }
            (Expect::Colon, ':') => self.then(Expect::Value),
            (Expect::CommaOrEnd, ',') if self.open.last() == Some(&'{') => self.then(Expect::Key),
            (Expect::CommaOrEnd, ',') => self.then(Expect::Value),
            (Expect::KeyOrEnd | Expect::CommaOrEnd, '}') => self.close('{'),
            (Expect::ValueOrEnd | Expect::CommaOrEnd, ']') => self.close('['),
            (Expect::Value | Expect::ValueOrEnd, c) => self.value(c),
            _ => Step::Bad,
        }
    }

    fn then(&mut self, expect: Expect) -> Step {
        self.expect = expect;
        Step::More
    }

    fn begin(&mut self, token: Token) -> Step {
        self.token = token;
        Step::More
    }

    fn value(&mut self, c: char) -> Step {
        if self.open.is_empty() && c != '{' {
            return Step::Bad;
        }
        self.expect = Expect::CommaOrEnd;
        match c {
            '"' => self.begin(Token::String { key: false, escape: Escape::None }),
            '-' => self.begin(Token::Number(Number::Minus)),
            '0' => self.begin(Token::Number(Number::Zero)),
            '1'..='9' => self.begin(Token::Number(Number::Whole)),
            't' => self.begin(Token::Literal("rue")),
            'f' => self.begin(Token::Literal("alse")),
            'n' => self.begin(Token::Literal("ull")),
            '{' => self.nest('{', Expect::KeyOrEnd),
            '[' => self.nest('[', Expect::ValueOrEnd),
            _ => Step::Bad,
        }
    }

    fn nest(&mut self, bracket: char, expect: Expect) -> Step {
        if self.open.len() >= JSON_DEPTH_MAX {
            return Step::Bad;
        }
        self.open.push(bracket);
        self.then(expect)
    }

    fn close(&mut self, bracket: char) -> Step {
        if self.open.pop() != Some(bracket) {
            return Step::Bad;
        }
        self.expect = Expect::CommaOrEnd;
        match self.open.len() {
            0 => Step::Done,
            1 => Step::Value,
            _ => Step::More,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many characters the machine takes before it is done or knows better.
    fn run(text: &str) -> (usize, Step) {
        let mut machine = JsonMachine::new();
        for (at, c) in text.chars().enumerate() {
            let step = machine.step(c);
            if matches!(step, Step::Done | Step::Bad) {
                return (at + 1, step);
            }
        }
        (text.chars().count(), Step::More)
    }

    #[test]
    fn knows_a_wrong_character_at_once() {
        for (text, expected) in [
            (r#"{"a":[1,-2.5e+3,true,null,{}],"b":"\u00e9\n"} rest"#, (45, Step::Done)),
            ("[1]", (1, Step::Bad)),
            ("{a", (2, Step::Bad)),
            (r#"{"a":01"#, (7, Step::Bad)),
            (r#"{"a":1.}"#, (8, Step::Bad)),
            (r#"{"a":tru}"#, (9, Step::Bad)),
            (r#"{"a":1]"#, (7, Step::Bad)),
            (r#"{"a":"\x"#, (8, Step::Bad)),
            ("{\"a\":\"\n", (7, Step::Bad)),
            (r#"{"a":1,}"#, (8, Step::Bad)),
            (r#"{"a":[1,]"#, (9, Step::Bad)),
            (r#"{"a" 1"#, (6, Step::Bad)),
            (r#"{"a":"#, (5, Step::More)),
        ] {
            assert_eq!(run(text), expected, "{text}");
        }
        assert_eq!(run(&format!("{{\"a\":{}", "[".repeat(1000))).1, Step::Bad);
    }

    proptest! {
        #[test]
        fn agrees_with_serde(text in r#"\{("a"|:|,|\[|\]|\{|\}|1|-|0|\.|e|true|nul|l|"\\u00e9"| |"){0,10}\}"#) {
            let (used, step) = run(&text);
            let whole = used == text.chars().count() && step == Step::Done;
            prop_assert_eq!(whole, serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        }
    }
}
