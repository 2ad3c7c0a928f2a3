//! `/status`: what a look at the server found.

use crate::screen::Screen;
use crate::style::{BOLD, DIM, LOUD, PLAIN, WARNING};
use crate::words;
use crate::wrap::{Margin, Row, row, wrap_text};
use flint_agent::talk::{Connection, Limit, Probe, Served};
use ratatui_core::style::Style;

pub fn rows(screen: &Screen, width: usize) -> Vec<Row> {
    let mut facts = Facts { rows: Vec::new(), width };
    facts.add("session", screen.session.as_deref(), PLAIN);
    facts.add("folder", Some(&screen.folder), PLAIN);
    match &screen.probe {
        Some(probe) => facts.probe(probe),
        None => facts.rows.push(row("The server is being asked …", DIM)),
    }
    facts.rows
}

struct Facts {
    rows: Vec<Row>,
    width: usize,
}

impl Facts {
    fn add(&mut self, name: &str, value: Option<&str>, style: Style) {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return };
        let margin = Margin::new(&format!("{name:<14}"), "    ", BOLD);
        self.rows.extend(wrap_text(value, style, self.width, &margin));
    }

    fn probe(&mut self, probe: &Probe) {
        self.add("provider", Some(&probe.provider), PLAIN);
        self.add("address", Some(&probe.address), PLAIN);
        self.add("transport", Some(&transport(&probe.connection)), PLAIN);
        match &probe.served {
            Some(served) => self.served(served),
            None => self.add("served", Some("nothing yet in this session"), DIM),
        }
        self.add("sandbox", Some(&probe.sandbox), PLAIN);
        self.add("approvals", Some(&probe.approvals), PLAIN);
        for limit in &probe.limits {
            self.add("limit", Some(&limit_words(limit)), PLAIN);
        }
        for ignored in &probe.ignored {
            self.add("ignored", Some(ignored), WARNING);
        }
    }

    fn served(&mut self, served: &Served) {
        let style = if served.asked == served.model { PLAIN } else { LOUD };
        self.add("asked", Some(&served.asked), style);
        self.add("served", Some(&served.model), style);
        self.add("digest", served.digest.as_deref(), PLAIN);
        self.add("quantisation", served.quantisation.as_deref(), PLAIN);
        self.add("device", served.device.as_deref(), PLAIN);
        self.add("engine", served.engine.as_deref(), PLAIN);
        self.add("tier", served.tier.as_deref(), PLAIN);
        for field in &served.ignored {
            self.add("no effect", Some(field), WARNING);
        }
    }
}

fn transport(connection: &Connection) -> String {
    match connection {
        Connection::Connecting => "connecting".to_owned(),
        Connection::Open => "one WebSocket, open".to_owned(),
        Connection::Requests { why } => format!("a request for each turn: {why}"),
        Connection::Lost { why } => format!("lost: {why}"),
    }
}

fn limit_words(limit: &Limit) -> String {
    let resets = limit.resets.map(|time| format!(", anew in {}", words::time(time))).unwrap_or_default();
    format!("{}: {:.0}% used{resets}", limit.name, limit.used_percent)
}
