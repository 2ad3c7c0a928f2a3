//! Cells to bytes.
//!
//! By hand, because ratatui's own backend for crossterm brings more crates than this has functions.

use crossterm::style::{
    Attribute, Color as Ink, Print, SetAttribute, SetBackgroundColor, SetForegroundColor,
};
use crossterm::terminal::{self, BeginSynchronizedUpdate, Clear, ClearType as Erase, EndSynchronizedUpdate};
use crossterm::{cursor, queue};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use std::io::{self, BufWriter, Stdout, Write};

/// A frame rarely has more bytes, and then goes out in one write.
const BUFFER_BYTES: usize = 64 << 10;

pub struct Tty {
    out: BufWriter<Stdout>,
}

impl Tty {
    pub fn new() -> Tty {
        Tty { out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()) }
    }
}

pub fn queue_begin(tty: &mut Tty) -> io::Result<()> {
    queue!(tty.out, BeginSynchronizedUpdate)
}

pub fn queue_end(tty: &mut Tty) -> io::Result<()> {
    queue!(tty.out, EndSynchronizedUpdate)?;
    tty.out.flush()
}

type Look = (Color, Color, Modifier);

impl Backend for Tty {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        let mut place = None; // where the terminal will write next
        let mut look: Option<Look> = None;
        for (x, y, cell) in content {
            if place != Some((x, y)) {
                queue!(self.out, cursor::MoveTo(x, y))?;
            }
            let wanted = (cell.fg, cell.bg, cell.modifier);
            if look != Some(wanted) {
                self.set_look(wanted)?;
                look = Some(wanted);
            }
            queue!(self.out, Print(cell.symbol()))?;
            // How wide the terminal draws what is not ASCII is its own affair: it is told where to go on.
            place = cell.symbol().is_ascii().then_some((x.saturating_add(1), y));
        }
        queue!(self.out, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, cursor::Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, cursor::Show)
    }

    /// Nobody asks: the screen says where the cursor stands.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        queue!(self.out, cursor::MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        let erase = match region {
            ClearType::All => Erase::All,
            ClearType::AfterCursor => Erase::FromCursorDown,
            ClearType::BeforeCursor => Erase::FromCursorUp,
            ClearType::CurrentLine => Erase::CurrentLine,
            ClearType::UntilNewLine => Erase::UntilNewLine,
        };
        queue!(self.out, Clear(erase))
    }

    fn size(&self) -> io::Result<Size> {
        match terminal::size()? {
            // Some pseudo-terminals do not say: better a page of the old kind than none.
            (0, _) | (_, 0) => Ok(Size { width: 80, height: 24 }),
            (width, height) => Ok(Size { width, height }),
        }
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    /// `queue_end` flushes, once the frame is whole.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tty {
    fn set_look(&mut self, (fg, bg, modifier): Look) -> io::Result<()> {
        queue!(self.out, SetAttribute(Attribute::Reset))?;
        for (flag, attribute) in [
            (Modifier::BOLD, Attribute::Bold),
            (Modifier::DIM, Attribute::Dim),
            (Modifier::ITALIC, Attribute::Italic),
            (Modifier::UNDERLINED, Attribute::Underlined),
            (Modifier::REVERSED, Attribute::Reverse),
            (Modifier::CROSSED_OUT, Attribute::CrossedOut),
        ] {
            if modifier.contains(flag) {
                queue!(self.out, SetAttribute(attribute))?;
            }
        }
        if fg != Color::Reset {
            queue!(self.out, SetForegroundColor(ink(fg)))?;
        }
        if bg != Color::Reset {
            queue!(self.out, SetBackgroundColor(ink(bg)))?;
        }
        Ok(())
    }
}

fn ink(color: Color) -> Ink {
    match color {
        Color::Reset => Ink::Reset,
        Color::Black => Ink::Black,
        Color::Red => Ink::DarkRed,
        Color::Green => Ink::DarkGreen,
        Color::Yellow => Ink::DarkYellow,
        Color::Blue => Ink::DarkBlue,
        Color::Magenta => Ink::DarkMagenta,
        Color::Cyan => Ink::DarkCyan,
        Color::Gray => Ink::Grey,
        Color::DarkGray => Ink::DarkGrey,
        Color::LightRed => Ink::Red,
        Color::LightGreen => Ink::Green,
        Color::LightYellow => Ink::Yellow,
        Color::LightBlue => Ink::Blue,
        Color::LightMagenta => Ink::Magenta,
        Color::LightCyan => Ink::Cyan,
        Color::White => Ink::White,
        Color::Rgb(r, g, b) => Ink::Rgb { r, g, b },
        Color::Indexed(index) => Ink::AnsiValue(index),
    }
}
