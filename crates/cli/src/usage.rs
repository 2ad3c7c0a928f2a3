//! `flint usage`: what was used, by whom, and what it costs.

use crate::args::UsageArgs;
use crate::config::Config;
use crate::error::CliError;
use flint_server::database;
use flint_server::usage::{Books, Row};
use serde_json::Value;

pub fn usage(config: &Config, args: &UsageArgs) -> Result<(), CliError> {
    let data = args.data.as_deref().unwrap_or(&config.data);
    let books = Books::open(&data.join(database::FILE))?;
    let rows = books.rows(None)?;
    match args.json {
        true => println!("{}", rows.iter().map(Row::json).collect::<Value>()),
        false => table(&rows),
    }
    Ok(())
}

fn table(rows: &[Row]) {
    let width =
        |of: fn(&Row) -> &str, least| rows.iter().map(|row| of(row).len()).max().unwrap_or(0).max(least);
    let (key, model) = (width(|row| &row.key, 3), width(|row| &row.model, 5));
    println!(
        "{:10}  {:key$}  {:model$}  {:>8}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}",
        "day", "key", "model", "requests", "input", "cached", "output", "reasoning", "price"
    );
    for Row { key: name, model: served, day, sum } in rows {
        println!(
            "{day:10}  {name:key$}  {served:model$}  {:>8}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10.4}",
            sum.requests,
            sum.input,
            sum.cached,
            sum.output,
            sum.reasoning,
            sum.price()
        );
    }
}
