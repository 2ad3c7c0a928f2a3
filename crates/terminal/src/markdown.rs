//! Markdown to rows: headings, lists, emphasis, code, quotes, links, and tables as plain columns.

mod table;

use crate::code::{Language, Open, by_name, highlight};
use crate::style::{BOLD, DIM, HEADING, INLINE_CODE, ITALIC, PLAIN, STRUCK, UNDERLINED};
use crate::wrap::{Break, Margin, Piece, Row, piece, row, wrap};
use pulldown_cmark::{CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd};
use ratatui_core::style::Style;
use table::Table;

/// What stands before a line of code.
pub const CODE_MARGIN: &str = "  ";

/// Of lists and quotes within one another; deeper ones are not moved further to the right.
const LEVELS_MAX: usize = 8;

pub fn render(text: &str, width: usize) -> Vec<Row> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer { width, ..Writer::default() };
    for event in Parser::new_ext(text, options) {
        writer.take(event);
    }
    writer.flush();
    writer.rows
}

#[derive(Default)]
struct Writer {
    width: usize,
    rows: Vec<Row>,
    pieces: Vec<Piece>, // of the block that is being read
    styles: Vec<Style>, // around the next text, the innermost last
    levels: Vec<Level>,
    lists: Vec<Option<u64>>, // the next number of each
    links: Vec<String>,
    code: Option<Code>,
    table: Option<Table>,
    fresh: bool, // a quote has just begun: its first block needs no gap
}

/// A list or a quote: what stands before its rows.
struct Level {
    first: Option<String>, // until it has been written
    rest: String,
}

#[derive(Default)]
struct Code {
    language: Option<&'static Language>,
    text: String,
}

impl Writer {
    fn take(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.push(&text, INLINE_CODE)
            }
            Event::Html(text) | Event::InlineHtml(text) => self.push(&text, DIM),
            Event::FootnoteReference(name) => self.push(&format!("[{name}]"), DIM),
            Event::SoftBreak => self.push(" ", PLAIN),
            Event::HardBreak => self.push("\n", PLAIN),
            Event::Rule => {
                self.gap();
                self.rows.push(row(&"─".repeat(self.width.min(40)), DIM));
            }
            Event::TaskListMarker(done) => self.push(if done { "[x] " } else { "[ ] " }, PLAIN),
        }
    }

    fn start(&mut self, tag: Tag) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock | Tag::FootnoteDefinition(_) => self.gap(),
            Tag::Heading { .. } => {
                self.gap();
                self.styles.push(HEADING);
            }
            Tag::BlockQuote(_) => {
                self.gap();
                self.levels.push(Level { first: None, rest: "│ ".to_owned() });
                self.fresh = true;
            }
            Tag::CodeBlock(kind) => self.start_code(kind),
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.lists.push(first);
            }
            Tag::Item => self.start_item(),
            Tag::Table(_) => {
                self.gap();
                self.table = Some(Table::default());
            }
            Tag::Emphasis => self.styles.push(ITALIC),
            Tag::Strong => self.styles.push(BOLD),
            Tag::Strikethrough => self.styles.push(STRUCK),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.start_link(&dest_url),
            Tag::TableHead | Tag::TableRow => self.table.get_or_insert_default().begin_row(),
            Tag::TableCell
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock | TagEnd::FootnoteDefinition => self.flush(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.flush();
            }
            TagEnd::BlockQuote(_) | TagEnd::Item => {
                self.flush();
                self.levels.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::TableCell => {
                let pieces = std::mem::take(&mut self.pieces);
                self.table.get_or_insert_default().cell(pieces);
            }
            TagEnd::Table => self.end_table(),
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn text(&mut self, text: &CowStr) {
        match &mut self.code {
            Some(code) => code.text += text,
            None => self.push(text, PLAIN),
        }
    }

    fn push(&mut self, text: &str, style: Style) {
        let style = self.styles.iter().fold(PLAIN, |sum, style| sum.patch(*style)).patch(style);
        self.pieces.push(piece(text, style));
    }

    fn start_item(&mut self) {
        self.flush();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            Some(None) | None => "• ".to_owned(),
        };
        let rest = " ".repeat(mark.chars().count());
        self.levels.push(Level { first: Some(mark), rest });
    }

    fn start_link(&mut self, address: &str) {
        self.links.push(address.to_owned());
        self.styles.push(UNDERLINED);
    }

    /// The address stands behind the words, or nobody could know where a link leads.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some(address) = self.links.pop() else { return };
        let same = self.pieces.last().is_some_and(|last| last.content == address.as_str());
        if !same && !address.is_empty() {
            self.push(&format!(" ({address})"), DIM);
        }
    }

    fn start_code(&mut self, kind: CodeBlockKind) {
        self.flush();
        self.gap();
        let language = match &kind {
            CodeBlockKind::Fenced(info) => by_name(info.split([' ', ',', '{']).next().unwrap_or_default()),
            CodeBlockKind::Indented => None,
        };
        self.code = Some(Code { language, text: String::new() });
    }

    fn end_code(&mut self) {
        let Some(code) = self.code.take() else { return };
        let mut margin = self.margin();
        margin.first.push(piece(CODE_MARGIN, PLAIN));
        margin.rest.push(piece(CODE_MARGIN, PLAIN));
        let mut open = Open::Nothing;
        for line in code.text.lines() {
            let pieces = match code.language {
                Some(language) => {
                    let (pieces, now) = highlight(line, language, open);
                    open = now;
                    pieces
                }
                None => vec![piece(line, PLAIN)],
            };
            self.rows.extend(wrap(&pieces, self.width, &margin, Break::Anywhere));
            margin.first = margin.rest.clone();
        }
    }

    fn end_table(&mut self) {
        let margin = self.margin();
        if let Some(table) = self.table.take() {
            self.rows.extend(table.rows(self.width, &margin));
        }
    }

    /// An empty row between blocks, but not between a list's mark and its first block.
    fn gap(&mut self) {
        self.flush();
        let marked = self.levels.last().is_some_and(|level| level.first.is_some());
        if !self.rows.is_empty() && !marked && !std::mem::take(&mut self.fresh) {
            let margin = self.margin();
            self.rows.push(Row::from(margin.rest));
        }
    }

    fn flush(&mut self) {
        if self.pieces.is_empty() {
            return;
        }
        let pieces = std::mem::take(&mut self.pieces);
        let margin = self.margin();
        self.rows.extend(wrap(&pieces, self.width, &margin, Break::Words));
    }

    /// What stands before the next rows. Marks of lists are written once.
    fn margin(&mut self) -> Margin {
        let mut margin = Margin::default();
        for level in self.levels.iter_mut().take(LEVELS_MAX) {
            let first = level.first.take().unwrap_or_else(|| level.rest.clone());
            margin.first.push(piece(&first, DIM));
            margin.rest.push(piece(&level.rest, DIM));
        }
        margin
    }
}
