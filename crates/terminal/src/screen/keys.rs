//! Keys to what they mean, here and now.

use super::{PageKind, Screen};
use crate::composer::Motion;
use crate::limits::QUIT_TIME;
use crate::outside::{Reply, Wish};
use crate::slash;
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use flint_agent::talk::{Decision, Order};

/// Rows that shift and an arrow move.
const SCROLL_ROWS: usize = 3;

impl Screen {
    /// What a person did, and what comes of it.
    pub fn input(&mut self, input: Input) -> Vec<Wish> {
        match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
            Input::Paste(text) => self.paste(&text),
            Input::Key(_) | Input::Resize(..) | Input::FocusGained | Input::FocusLost | Input::Mouse(_) => {
                Vec::new()
            }
        }
    }

    fn key(&mut self, key: KeyEvent) -> Vec<Wish> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        if !(control && matches!(key.code, KeyCode::Char('c' | 'd'))) {
            self.quit_asked = None;
        }
        match key.code {
            KeyCode::Char('c') if control => return self.control_c(),
            KeyCode::Char('z') if control => return vec![Wish::Suspend],
            KeyCode::Char('o') if control => self.full = !self.full,
            KeyCode::PageUp if self.page.is_none() => self.scroll_up(),
            KeyCode::PageDown if self.page.is_none() => self.scroll_down(),
            KeyCode::End if control => self.transcript.go_to_end(),
            KeyCode::Up if shift => self.transcript.scroll_up(SCROLL_ROWS, self.fit),
            KeyCode::Down if shift => self.transcript.scroll_down(SCROLL_ROWS, self.fit),
            // A question stands below a page, and can be answered there; the arrows are the page's.
            KeyCode::Up | KeyCode::Down if self.page.is_some() => return self.page_key(key.code),
            _ if self.panel_takes(key) => return self.panel_key(key.code),
            _ if self.page.is_some() => {
                self.panel.heard(self.now);
                return self.page_key(key.code);
            }
            _ => {
                self.panel.heard(self.now);
                return self.composer_key(key);
            }
        }
        Vec::new()
    }

    fn paste(&mut self, text: &str) -> Vec<Wish> {
        self.panel.heard(self.now);
        self.page = None;
        self.write(text)
    }

    /// Clears the composer; then interrupts; then, twice, ends the program.
    fn control_c(&mut self) -> Vec<Wish> {
        let twice = self.quit_asked.is_some_and(|at| self.now.saturating_sub(at) <= QUIT_TIME);
        if self.page.take().is_some() {
            return Vec::new();
        }
        if !self.composer.is_empty() || self.sent.editing.is_some() {
            let text = self.composer.take();
            self.history.add(text);
            self.stop_editing();
            return Vec::new();
        }
        if self.turn.as_ref().is_some_and(|turn| !turn.interrupted) {
            return self.interrupt();
        }
        if twice {
            return vec![Wish::Quit];
        }
        self.quit_asked = Some(self.now);
        self.remark("ctrl+c once more ends the program");
        Vec::new()
    }

    fn interrupt(&mut self) -> Vec<Wish> {
        let Some(turn) = &mut self.turn else { return Vec::new() };
        turn.interrupted = true;
        vec![Wish::Order(Order::Interrupt)]
    }

    fn scroll_up(&mut self) {
        self.transcript.scroll_up(self.transcript_rows.saturating_sub(1).max(1), self.fit);
    }

    fn scroll_down(&mut self) {
        self.transcript.scroll_down(self.transcript_rows.saturating_sub(1).max(1), self.fit);
    }

    /// Whether a key answers the question. Any other is for the composer, where the three verbs work as ever.
    fn panel_takes(&self, key: KeyEvent) -> bool {
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let answer = match key.code {
            KeyCode::Char('y' | 'n' | 'r') | KeyCode::Up | KeyCode::Down => true,
            KeyCode::Char('a') => self.panel.offered > Some(0),
            KeyCode::Char(digit @ '1'..='9') => {
                (digit as usize) - ('1' as usize) < self.panel.offered.unwrap_or(0)
            }
            _ => false,
        };
        plain && answer && !self.panel.reason && self.panel.listens(self.now)
    }

    fn panel_key(&mut self, code: KeyCode) -> Vec<Wish> {
        let now = self.now;
        let order = match code {
            KeyCode::Char('y') => self.panel.decide(Decision::Yes, now),
            KeyCode::Char('a') => self.panel.decide_always(0, now),
            KeyCode::Char(digit @ '1'..='9') => self.panel.decide_always(digit as usize - '1' as usize, now),
            KeyCode::Char('n') => self.panel.decide(Decision::No { why: None }, now),
            KeyCode::Char('r') => {
                self.panel.reason = true;
                None
            }
            KeyCode::Up => {
                self.panel.scrolled = self.panel.scrolled.saturating_sub(1);
                None
            }
            KeyCode::Down => {
                self.panel.scrolled += 1;
                None
            }
            _ => None,
        };
        order.into_iter().map(Wish::Order).collect()
    }

    fn composer_key(&mut self, key: KeyEvent) -> Vec<Wish> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Enter if alt || shift => return self.write("\n"),
            KeyCode::Char('j') if control => return self.write("\n"),
            KeyCode::Enter => return self.enter(),
            KeyCode::Tab => return self.tab(),
            KeyCode::Esc => return self.escape(),
            KeyCode::Up if alt => self.edit_waiting(),
            KeyCode::Char('x') if control => return self.withdraw(),
            KeyCode::Char('d') if control && self.composer.is_empty() => return self.control_c(),
            KeyCode::Up => self.up(),
            KeyCode::Down => self.down(),
            KeyCode::Char(char) if !control && !alt => return self.write(char.encode_utf8(&mut [0; 4])),
            code => self.edit_key(code, control, alt),
        }
        Vec::new()
    }

    /// Movement and deletion, by the keys of a shell and those of an editor.
    fn edit_key(&mut self, code: KeyCode, control: bool, alt: bool) {
        let words = control || alt;
        let (motion, deletes) = match code {
            KeyCode::Left if words => (Motion::WordLeft, false),
            KeyCode::Right if words => (Motion::WordRight, false),
            KeyCode::Left => (Motion::Left, false),
            KeyCode::Right => (Motion::Right, false),
            KeyCode::Home => (Motion::LineBegin, false),
            KeyCode::End => (Motion::LineEnd, false),
            KeyCode::Backspace if words => (Motion::WordLeft, true),
            KeyCode::Backspace => (Motion::Left, true),
            KeyCode::Delete if words => (Motion::WordRight, true),
            KeyCode::Delete => (Motion::Right, true),
            KeyCode::Char('a') if control => (Motion::LineBegin, false),
            KeyCode::Char('e') if control => (Motion::LineEnd, false),
            KeyCode::Char('b') if control => (Motion::Left, false),
            KeyCode::Char('f') if control => (Motion::Right, false),
            KeyCode::Char('b') if alt => (Motion::WordLeft, false),
            KeyCode::Char('f') if alt => (Motion::WordRight, false),
            KeyCode::Char('h') if control => (Motion::Left, true),
            KeyCode::Char('w') if control => (Motion::WordLeft, true),
            KeyCode::Char('d') if alt => (Motion::WordRight, true),
            KeyCode::Char('d') if control => (Motion::Right, true),
            KeyCode::Char('u') if control => (Motion::LineBegin, true),
            KeyCode::Char('k') if control => (Motion::LineEnd, true),
            _ => return,
        };
        match deletes {
            true => {
                self.composer.delete(motion);
                self.typed();
            }
            false => {
                self.composer.go(motion);
            }
        }
    }

    /// Text at the cursor. The first of it warms the prompt.
    fn write(&mut self, text: &str) -> Vec<Wish> {
        if !self.composer.insert(text) {
            self.remark("there is no room for that much text; nothing of it was taken");
            return Vec::new();
        }
        self.typed();
        if self.warmed || self.is_running() {
            return Vec::new();
        }
        self.warmed = true;
        vec![Wish::Order(Order::Warm)]
    }

    fn typed(&mut self) {
        self.history.leave();
        self.popup = 0;
        self.popup_closed = false;
    }

    /// Completions of what is in the composer, if they are shown.
    pub(crate) fn completions(&self) -> Vec<slash::Slash> {
        match self.popup_closed || self.panel.reason || self.sent.editing.is_some() {
            true => Vec::new(),
            false => slash::completions(self.composer.text()),
        }
    }

    fn up(&mut self) {
        if !self.completions().is_empty() {
            self.popup = self.popup.saturating_sub(1);
        } else if !self.composer.go(Motion::Up)
            && let Some(text) = self.history.earlier(self.composer.text())
        {
            self.composer.set(text);
            self.popup_closed = true;
        }
    }

    fn down(&mut self) {
        let completions = self.completions().len();
        if completions > 0 {
            self.popup = (self.popup + 1).min(completions - 1);
        } else if !self.composer.go(Motion::Down)
            && let Some(text) = self.history.later()
        {
            self.composer.set(text);
            self.popup_closed = true;
        }
    }

    /// Closes what is open; then interrupts.
    fn escape(&mut self) -> Vec<Wish> {
        if !self.completions().is_empty() {
            self.popup_closed = true;
        } else if self.panel.reason {
            self.panel.reason = false;
        } else if self.sent.editing.is_some() {
            self.stop_editing();
        } else {
            return self.interrupt();
        }
        Vec::new()
    }

    fn page_key(&mut self, code: KeyCode) -> Vec<Wish> {
        let rows = self.transcript_rows.saturating_sub(3).max(1);
        let Some(page) = &mut self.page else { return Vec::new() };
        match code {
            KeyCode::Esc | KeyCode::Char('q') => self.page = None,
            KeyCode::Up | KeyCode::Char('k') => page.up(1),
            KeyCode::Down | KeyCode::Char('j') => page.down(1),
            KeyCode::PageUp => page.up(rows),
            KeyCode::PageDown | KeyCode::Char(' ') => page.down(rows),
            KeyCode::Home => page.up(usize::MAX),
            KeyCode::End => page.down(usize::MAX / 2),
            KeyCode::Enter => return self.take_chosen(),
            _ => {}
        }
        Vec::new()
    }

    /// The chosen line of a list, or what a page asks about; any other page is closed.
    fn take_chosen(&mut self) -> Vec<Wish> {
        let Some(page) = self.page.take() else { return Vec::new() };
        match &page.kind {
            PageKind::Models => self.take_model(page.chosen),
            PageKind::Choose { choices, .. } => choices
                .get(page.chosen)
                .map(|choice| Wish::Action(choice.action.clone()))
                .into_iter()
                .collect(),
            PageKind::Rewind { undo, .. } => {
                vec![Wish::Order(if *undo { Order::Undo } else { Order::Redo })]
            }
            PageKind::Help | PageKind::Status | PageKind::Usage | PageKind::Diff | PageKind::Told { .. } => {
                Vec::new()
            }
        }
    }

    fn take_model(&mut self, chosen: usize) -> Vec<Wish> {
        let models = self.probe.as_ref().map(|probe| probe.models.as_slice()).unwrap_or_default();
        let Some(model) = models.get(chosen).cloned() else { return Vec::new() };
        match &model.refused {
            Some(why) => {
                self.remark(format!("{} cannot be used: {why}", model.name));
                self.open(PageKind::Models);
                Vec::new()
            }
            None => vec![Wish::Order(self.ask_for_model(&model.name))],
        }
    }

    /// What came of an action; none when nobody answered. `Leave` is not for the screen.
    pub fn reply(&mut self, reply: Option<Reply>) {
        match reply {
            Some(Reply::Notice(text)) => self.notice(text),
            Some(Reply::Page { title, text }) => self.open(PageKind::Told { title, text }),
            Some(Reply::Choose { title, choices }) => self.open(PageKind::Choose { title, choices }),
            Some(Reply::Leave(_)) => {}
            None => self.trouble("That could not be done: nobody answered.".to_owned()),
        }
    }
}
