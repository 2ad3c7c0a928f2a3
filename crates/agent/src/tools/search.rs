//! Lines that match a pattern, as ripgrep finds them.

use super::walk::{Found, Walked};
use super::{ToolError, Workshop};
use crate::limits::{
    FOUND_BYTES_MAX, FOUND_LINE_BYTES_MAX, FOUND_LINES_MAX, PATTERN_BYTES_MAX, PATTERN_COMPILED_BYTES_MAX,
};
use crate::root::{Kind, Name};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, sinks};
use ignore::overrides::{Override, OverrideBuilder};
use std::ops::ControlFlow;

/// A search at work.
struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    lines: Vec<String>,
    bytes: usize, // of the lines
    full: bool,   // there are more
}

impl Workshop {
    /// A line `path:number:text` for each that matches, in the files beneath a path, or in one. A pattern that is no
    /// regular expression is looked for as it is written. `glob` says which files, as in `*.rs` or `!*.lock`.
    pub fn search(&self, pattern: &str, path: Option<&str>, glob: Option<&str>) -> Result<String, ToolError> {
        if pattern.is_empty() || pattern.len().max(glob.map_or(0, str::len)) > PATTERN_BYTES_MAX {
            return Err(ToolError::Pattern(PATTERN_BYTES_MAX));
        }
        let (matcher, note) = matcher(pattern)?;
        let globs = self.globs(glob)?;
        let mut search = Search::new(matcher);
        let start = self.folder_name(path)?;
        let file = start.as_ref().and_then(|name| Some((name, self.root.read(name).ok()?.0)));
        let walked = match file {
            Some((name, content)) => {
                self.not_secret(name)?;
                search.look(name, &content);
                Walked::All
            }
            None => {
                let walked =
                    self.walk(start.clone(), usize::MAX, &mut |found| self.visit(found, &globs, &mut search));
                self.or_near(walked, start)?
            }
        };
        Ok(search.shown(note, walked))
    }

    fn globs(&self, glob: Option<&str>) -> Result<Override, ToolError> {
        let Some(glob) = glob.filter(|glob| !glob.is_empty()) else { return Ok(Override::empty()) };
        let mut globs = OverrideBuilder::new(&self.folder);
        let built = globs.add(glob).and_then(|globs| globs.build());
        built.map_err(|error| ToolError::Glob { glob: glob.to_owned(), reason: error.to_string() })
    }

    fn visit(&self, found: &Found, globs: &Override, search: &mut Search) -> ControlFlow<()> {
        let wanted = !globs.matched(self.folder.join(found.name.path()), false).is_ignore();
        if found.kind != Kind::File || !wanted || self.not_secret(&found.name).is_err() {
            return ControlFlow::Continue(());
        }
        // What cannot be read, or is too large to be written by hand, is passed over as ripgrep does.
        if let Ok((content, _)) = self.root.read(&found.name) {
            search.look(&found.name, &content);
        }
        if search.full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn matcher(pattern: &str) -> Result<(RegexMatcher, Option<String>), ToolError> {
    let mut builder = RegexMatcherBuilder::new();
    builder.size_limit(PATTERN_COMPILED_BYTES_MAX).dfa_size_limit(PATTERN_COMPILED_BYTES_MAX);
    builder.line_terminator(Some(b'\n'));
    match builder.build(pattern) {
        Ok(matcher) => Ok((matcher, None)),
        Err(error) => {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let note =
                format!("[the pattern is no regular expression ({why}): it was looked for as it is written]");
            let literal = builder.fixed_strings(true).build(pattern);
            Ok((literal.map_err(|_| ToolError::Pattern(PATTERN_BYTES_MAX))?, Some(note)))
        }
    }
}

impl Search {
    fn new(matcher: RegexMatcher) -> Search {
        let binary = BinaryDetection::quit(0);
        let searcher = SearcherBuilder::new().line_number(true).binary_detection(binary).build();
        Search { matcher, searcher, lines: Vec::new(), bytes: 0, full: false }
    }

    fn look(&mut self, name: &Name, content: &[u8]) {
        let Search { matcher, searcher, lines, bytes, full } = self;
        let sink = sinks::Lossy(|number, text| {
            *full = lines.len() >= FOUND_LINES_MAX || *bytes >= FOUND_BYTES_MAX;
            if !*full {
                let line = line(name, number, text);
                *bytes += line.len();
                lines.push(line);
            }
            Ok(!*full)
        });
        // Bytes in memory cannot fail to be read.
        let _ = searcher.search_slice(&*matcher, content, sink);
    }

    fn shown(mut self, note: Option<String>, walked: Walked) -> String {
        if self.lines.is_empty() {
            self.lines.push("[nothing matches]".to_owned());
        }
        if self.full {
            self.lines.push("[there are more: search beneath a folder, or for less]".to_owned());
        } else if walked == Walked::Cut {
            self.lines.push("[not all files were searched: search beneath a folder]".to_owned());
        }
        self.lines.extend(note);
        self.lines.join("\n") + "\n"
    }
}

fn line(name: &Name, number: u64, text: &str) -> String {
    let text = text.trim_end();
    match text.floor_char_boundary(FOUND_LINE_BYTES_MAX) {
        whole if whole == text.len() => format!("{name}:{number}:{text}"),
        shown => format!("{name}:{number}:{} [... {} more bytes]", &text[..shown], text.len() - shown),
    }
}
