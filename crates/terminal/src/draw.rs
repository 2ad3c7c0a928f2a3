//! The whole screen, from the transcript at the top to the status line at the bottom.

use crate::item::Fit;
use crate::limits::{PLAN_ROWS_MAX, POPUP_ROWS_MAX, SENT_ROWS_MAX};
use crate::screen::Screen;
use crate::view::{ask, input, pages, panes, status};
use crate::wrap::Row;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::Color;

/// What stands below the transcript, ready for one size.
#[derive(Debug, Default)]
pub struct Bottom {
    rows: Vec<Row>, // panes and rule
    input: input::Input,
    status: Option<Row>,
}

impl Screen {
    /// Makes the rows of all that a screen of this size shows. What has not changed since the last time is kept.
    pub fn lay_out(&mut self, size: Size) {
        let (width, height) = (usize::from(size.width), usize::from(size.height));
        self.fit = Fit { width, full: self.full };
        let mut room = height;
        let status = (height >= 2).then(|| status::line(self, width));
        room -= usize::from(status.is_some());
        let input = input::lay_out(&self.composer, width, (height / 3).max(1).min(room));
        room -= input.rows.len();
        let mut rows = Vec::new();
        if room >= 2 {
            rows.push(status::rule(self, width));
            room -= 1;
        }
        let question = ask::panel(self, width, room * 4 / 5);
        self.panel.offered = question.rules;
        let panes = self.panes(question.rows, width, room);
        self.transcript_rows = room - panes.len();
        rows.splice(0..0, panes);
        self.bottom = Bottom { rows, input, status };
        self.transcript.lay_out(self.fit, self.transcript_rows);
        self.lay_out_page();
    }

    /// Plan, sent texts, question and completions. The question has taken its room first.
    fn panes(&self, question: Vec<Row>, width: usize, room: usize) -> Vec<Row> {
        let left = room - question.len();
        let popup = panes::popup(self, width, POPUP_ROWS_MAX.min(left));
        let third = (left - popup.len()) / 3;
        let sent = panes::sent(self, width, SENT_ROWS_MAX.min(third));
        let plan = panes::plan(self, width, PLAN_ROWS_MAX.min(third));
        [plan, sent, question, popup].into_iter().flatten().collect()
    }

    fn lay_out_page(&mut self) {
        let Some(mut page) = self.page.take() else { return };
        page.keep_chosen_in(pages::choices(self, &page));
        if page.is_stale(self.fit, self.changed) {
            page.rows = pages::rows(self, &page);
        }
        page.keep_in(self.transcript_rows.saturating_sub(pages::HEAD_ROWS));
        self.page = Some(page);
    }
}

/// Paints what was laid out, and says where the cursor stands.
pub fn draw(screen: &Screen, buffer: &mut Buffer) -> Option<Position> {
    let mut painter = Painter { buffer, y: 0 };
    match &screen.page {
        Some(page) => painter.rows(pages::shown(page, screen.fit.width).iter(), screen.transcript_rows),
        None => painter.rows(screen.transcript.window(), screen.transcript_rows),
    }
    let bottom = &screen.bottom;
    painter.rows(bottom.rows.iter(), bottom.rows.len());
    let above = painter.y;
    painter.rows(bottom.input.rows.iter(), bottom.input.rows.len());
    painter.rows(bottom.status.iter(), 1);
    if !screen.colour {
        without_colours(buffer);
    }
    let (x, y) = bottom.input.cursor;
    let cursor = Position::new(buffer.area.x + x, buffer.area.y + above + y);
    buffer.area.contains(cursor).then_some(cursor)
}

struct Painter<'a> {
    buffer: &'a mut Buffer,
    y: u16, // of the next row
}

impl Painter<'_> {
    /// At most `room` rows; the room is taken in any case.
    fn rows<'r>(&mut self, rows: impl Iterator<Item = &'r Row>, room: usize) {
        let area = self.buffer.area;
        let end = self.y.saturating_add(u16::try_from(room).unwrap_or(u16::MAX)).min(area.height);
        for (y, row) in (self.y..end).zip(rows) {
            self.buffer.set_line(area.x, area.y + y, row, area.width);
        }
        self.y = end;
    }
}

fn without_colours(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.fg = Color::Reset;
        cell.bg = Color::Reset;
    }
}
