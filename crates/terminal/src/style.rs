//! How things look. The sixteen colours of the terminal, which its owner has chosen so that they can be read.

use ratatui_core::style::{Color, Modifier, Style};

pub const PLAIN: Style = Style::new();
pub const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub const ITALIC: Style = Style::new().add_modifier(Modifier::ITALIC);
pub const UNDERLINED: Style = Style::new().add_modifier(Modifier::UNDERLINED);
pub const STRUCK: Style = Style::new().add_modifier(Modifier::CROSSED_OUT);
pub const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

pub const PERSON: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
pub const HEADING: Style = Style::new().fg(Color::Magenta).add_modifier(Modifier::BOLD);
pub const INLINE_CODE: Style = Style::new().fg(Color::Cyan);
pub const GOOD: Style = Style::new().fg(Color::Green);
pub const BAD: Style = Style::new().fg(Color::Red);
pub const LOUD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub const WARNING: Style = Style::new().fg(Color::Yellow);
pub const PLACE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::DIM);

/// Of code.
pub const KEYWORD: Style = Style::new().fg(Color::Magenta);
pub const STRING: Style = Style::new().fg(Color::Green);
pub const NUMBER: Style = Style::new().fg(Color::Yellow);
pub const COMMENT: Style = Style::new().add_modifier(Modifier::DIM);
pub const TYPE: Style = Style::new().fg(Color::Yellow);
pub const CALL: Style = Style::new().fg(Color::Blue);
