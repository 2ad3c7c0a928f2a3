//! A command line as the simple commands that a shell makes of it.
//!
//! Only what is certain is split. Whatever a shell would replace by something else, send elsewhere or run in another way
//! makes the whole line opaque: it may still run, but nothing is known about it.

use crate::limits::{COMMAND_BYTES_MAX, SIMPLE_COMMANDS_MAX};

/// One program with its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simple {
    pub argv: Vec<String>, // at least the program
    pub expands: bool,     // the shell makes names of files of some words
}

/// Why nothing is known about a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Opaque {
    #[error("it is empty")]
    Empty,
    #[error("it is too long")]
    Long,
    #[error("it replaces a part of itself by `$` or backquotes")]
    Substitution,
    #[error("it reads from or writes to files by `<` or `>`")]
    Redirection,
    #[error("it has brackets")]
    Brackets,
    #[error("it sets variables")]
    Assignment,
    #[error("it runs something in the background")]
    Background,
    #[error("it is a program for the shell")]
    Keyword,
    #[error("the shell makes other words of some of it")]
    Expansion,
    #[error("it has a comment")]
    Comment,
    #[error("it has characters that a shell may read in its own way")]
    Character,
    #[error("it does not end, or begins with an operator")]
    Syntax,
}

/// What shells do something else with than to run it.
const KEYWORDS: [&str; 25] = [
    "!", "{", "}", "[", "[[", "]]", "if", "then", "else", "elif", "fi", "do", "done", "case", "esac",
    "while", "until", "for", "in", "function", "select", "time", "coproc", "eval", ".",
];

pub fn split(command: &str) -> Result<Vec<Simple>, Opaque> {
    if command.len() > COMMAND_BYTES_MAX {
        return Err(Opaque::Long);
    }
    let mut line = Line { rest: command, ..Line::default() };
    while let Some(letter) = line.next() {
        line.take(letter)?;
    }
    line.end_command(Operator::End)?;
    if line.commands.is_empty() { Err(Opaque::Empty) } else { Ok(line.commands) }
}

#[derive(Default)]
struct Line<'a> {
    rest: &'a str,
    commands: Vec<Simple>,
    argv: Vec<String>,
    expands: bool,
    word: Option<Word>,
    joined: bool,     // the last operator needs one more command
    redirected: bool, // there must be something whose streams are
}

/// A word as far as it was read.
#[derive(Default)]
struct Word {
    text: String,
    quoted: bool, // some of it
}

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    /// `&&`, `||` or `|`.
    Join,
    Semicolon,
    Newline,
    End,
}

impl Line<'_> {
    fn next(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        Some(letter)
    }

    /// Whether this comes next; then it is passed over.
    fn passes(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take(&mut self, letter: char) -> Result<(), Opaque> {
        match letter {
            ' ' | '\t' => self.end_word(),
            '\n' => self.end_command(Operator::Newline),
            ';' => self.end_command(Operator::Semicolon),
            '&' if self.passes("&") => self.end_command(Operator::Join),
            '&' if self.rest.starts_with('>') => Err(Opaque::Redirection),
            '&' => Err(Opaque::Background),
            '|' if self.rest.starts_with('&') => Err(Opaque::Redirection),
            '|' => {
                self.passes("|");
                self.end_command(Operator::Join)
            }
            '<' | '>' => self.redirection(letter),
            '(' | ')' => Err(Opaque::Brackets),
            '{' | '}' => Err(Opaque::Expansion),
            '$' | '`' => Err(Opaque::Substitution),
            '#' if self.word.is_none() => Err(Opaque::Comment),
            '\'' => self.single_quoted(),
            '"' => self.double_quoted(),
            '\\' => match self.next() {
                Some(letter) if letter.is_ascii_graphic() || letter == ' ' => self.add(letter, true),
                Some(_) | None => Err(Opaque::Character),
            },
            '*' | '?' | '[' => self.glob(letter),
            '~' => {
                self.expands = true;
                self.add(letter, false)
            }
            letter if letter.is_ascii_graphic() => self.add(letter, false),
            _ => Err(Opaque::Character),
        }
    }

    fn add(&mut self, letter: char, quoted: bool) -> Result<(), Opaque> {
        let word = self.word.get_or_insert_default();
        word.text.push(letter);
        word.quoted |= quoted;
        Ok(())
    }

    /// Names of files come in place of the word. They must not be able to look like an option.
    fn glob(&mut self, letter: char) -> Result<(), Opaque> {
        let begun = self.word.as_ref().map_or("", |word| word.text.as_str());
        if begun.is_empty() || begun.starts_with('-') {
            return Err(Opaque::Expansion);
        }
        self.expands = true;
        self.add(letter, false)
    }

    fn single_quoted(&mut self) -> Result<(), Opaque> {
        let (text, rest) = self.rest.split_once('\'').ok_or(Opaque::Syntax)?;
        self.rest = rest;
        self.quoted(text)
    }

    fn double_quoted(&mut self) -> Result<(), Opaque> {
        let (mut text, mut before) = (String::new(), '"');
        loop {
            let letter = self.next().ok_or(Opaque::Syntax)?;
            match letter {
                '"' => return self.quoted(&text),
                '$' | '`' => return Err(Opaque::Substitution),
                // In some encodings a backslash is the second half of a letter.
                '\\' if !before.is_ascii() => return Err(Opaque::Character),
                '\\' => match self.next().ok_or(Opaque::Syntax)? {
                    '\n' => return Err(Opaque::Character),
                    escaped @ ('$' | '`' | '"' | '\\') => text.push(escaped),
                    other => text.extend(['\\', other]),
                },
                letter => text.push(letter),
            }
            before = letter;
        }
    }

    fn quoted(&mut self, text: &str) -> Result<(), Opaque> {
        let word = self.word.get_or_insert_default();
        word.text.push_str(text);
        word.quoted = true;
        if text.contains('\0') { Err(Opaque::Character) } else { Ok(()) }
    }

    /// To and from nothing, and from one stream to the other, are no files.
    fn redirection(&mut self, letter: char) -> Result<(), Opaque> {
        match self.word.take() {
            Some(word) if !word.quoted && matches!(word.text.as_str(), "0" | "1" | "2") => {}
            Some(word) if word.text.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(Opaque::Redirection);
            }
            word => {
                self.word = word;
                self.end_word()?;
            }
        }
        self.redirected = true;
        let stream = letter == '>' && (self.passes("&1") || self.passes("&2"));
        if !stream {
            self.rest = self.rest.trim_start_matches([' ', '\t']);
            if !self.passes("/dev/null") {
                return Err(Opaque::Redirection);
            }
        }
        match self.rest.chars().next() {
            None | Some(' ' | '\t' | '\n' | ';' | '&' | '|') => Ok(()),
            Some(_) => Err(Opaque::Redirection),
        }
    }

    fn end_word(&mut self) -> Result<(), Opaque> {
        let Some(Word { text, .. }) = self.word.take() else { return Ok(()) };
        if self.argv.is_empty() {
            match text.as_str() {
                "" => return Err(Opaque::Syntax),
                word if KEYWORDS.contains(&word) => return Err(Opaque::Keyword),
                word if word.contains('=') => return Err(Opaque::Assignment),
                _ if self.expands => return Err(Opaque::Expansion),
                _ => {}
            }
        }
        self.argv.push(text);
        Ok(())
    }

    fn end_command(&mut self, operator: Operator) -> Result<(), Opaque> {
        self.end_word()?;
        let (argv, expands) = (std::mem::take(&mut self.argv), std::mem::take(&mut self.expands));
        let redirected = std::mem::take(&mut self.redirected);
        if argv.is_empty() {
            return match operator {
                _ if redirected => Err(Opaque::Syntax),
                Operator::Newline => Ok(()),
                Operator::End if !self.joined => Ok(()),
                Operator::End | Operator::Join | Operator::Semicolon => Err(Opaque::Syntax),
            };
        }
        if self.commands.len() >= SIMPLE_COMMANDS_MAX {
            return Err(Opaque::Long);
        }
        self.commands.push(Simple { argv, expands });
        self.joined = operator == Operator::Join;
        Ok(())
    }
}
