//! `/usage`: the ledger, a line for each turn and each agent.

use crate::screen::{Line, Screen};
use crate::style::{BOLD, DIM, LOUD, PLAIN};
use crate::words;
use crate::wrap::{Row, cut, row};
use flint_agent::talk::{Figures, Outcome};

pub fn rows(screen: &Screen, width: usize) -> Vec<Row> {
    if screen.ledger.is_empty() {
        return vec![row("No turn has ended yet.", DIM)];
    }
    let names = ["turn", "in", "cached", "out", "reasoning", "time", "tok/s", "model"].map(str::to_owned);
    let mut rows = vec![row(&cut(&columns(names), width), BOLD)];
    rows.extend(screen.ledger.iter().map(|line| line_row(line, width)));
    let sum = screen.ledger.iter().fold(Figures::default(), |sum, line| add(sum, &line.figures));
    rows.push(row(&cut(&columns(cells("all".to_owned(), &sum, String::new())), width), BOLD));
    rows
}

fn line_row(line: &Line, width: usize) -> Row {
    let name = match &line.who {
        Some(agent) => format!("{} {agent}", line.turn),
        None => line.turn.to_string(),
    };
    let (mut model, mut style) = (String::new(), PLAIN);
    if let Some(served) = &line.figures.served {
        model = served.model.clone();
        if let Some(tier) = &served.tier {
            model += &format!(" ({tier})");
        }
        if served.asked != served.model {
            model += &format!(", {} was asked", served.asked);
            style = LOUD;
        }
    }
    match &line.outcome {
        None | Some(Outcome::Done) => {}
        Some(Outcome::Interrupted) => model += " interrupted",
        Some(Outcome::Failed { .. }) => model += " failed",
    }
    row(&cut(&columns(cells(name, &line.figures, model)), width), style)
}

fn cells(name: String, figures: &Figures, model: String) -> [String; 8] {
    let rate = figures.tokens_a_second.filter(|rate| rate.is_finite());
    [
        name,
        words::count(figures.tokens_in),
        words::count(figures.tokens_cached),
        words::count(figures.tokens_out),
        words::count(figures.tokens_reasoning),
        words::time(figures.took),
        rate.map(|rate| format!("{rate:.0}")).unwrap_or_default(),
        model,
    ]
}

fn columns([name, sent, cached, out, reasoning, time, rate, model]: [String; 8]) -> String {
    format!("{name:<12} {sent:>9} {cached:>9} {out:>9} {reasoning:>9} {time:>10} {rate:>6}  {model}")
}

fn add(sum: Figures, figures: &Figures) -> Figures {
    Figures {
        tokens_in: sum.tokens_in.saturating_add(figures.tokens_in),
        tokens_cached: sum.tokens_cached.saturating_add(figures.tokens_cached),
        tokens_out: sum.tokens_out.saturating_add(figures.tokens_out),
        tokens_reasoning: sum.tokens_reasoning.saturating_add(figures.tokens_reasoning),
        took: sum.took.saturating_add(figures.took),
        ..sum
    }
}
