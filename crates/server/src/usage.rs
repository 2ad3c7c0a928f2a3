//! What was used, by whom, and what it costs: per key, model and day.
//!
//! A turn adds to a sum in memory; the sums are written together, about once a second and when the server ends.

use crate::database::{self, DatabaseError};
use flint_engine::message::Tenant;
use flint_models::Price;
use flint_text::day;
use flint_wire::{Tier, Usage};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub struct Books {
    connection: Mutex<Connection>,
    open: Mutex<HashMap<Line, Sum>>, // not written yet
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Line {
    tenant: Tenant,
    model: String,
    day: u64, // since 1970, UTC
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    pub requests: u64,
    pub input: u64, // tokens
    pub cached: u64,
    pub output: u64,
    pub reasoning: u64,
    pub price_nanos: u64,
}

/// One line as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: String, // its name
    pub model: String,
    pub day: String,
    pub sum: Sum,
}

const DAY_SECONDS: u64 = 86_400;

impl Sum {
    pub fn new(usage: Usage, price: &Price, tier: Tier) -> Sum {
        let Usage { input, cached, output, reasoning } = usage;
        let [input, cached, output, reasoning] = [input, cached, output, reasoning].map(u64::from);
        let once = input.saturating_sub(cached) * price.input_nanos()
            + cached * price.cached_nanos()
            + output * price.output_nanos();
        let times = match tier {
            Tier::Priority => 2,
            Tier::Default | Tier::Flex => 1,
        };
        Sum { requests: 1, input, cached, output, reasoning, price_nanos: times * once }
    }

    /// In whole units of the catalogue's prices.
    pub fn price(&self) -> f64 {
        self.price_nanos as f64 / 1e9
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.requests += other.requests;
        self.input += other.input;
        self.cached += other.cached;
        self.output += other.output;
        self.reasoning += other.reasoning;
        self.price_nanos += other.price_nanos;
    }
}

impl Row {
    pub fn json(&self) -> Value {
        json!({
            "key": self.key,
            "model": self.model,
            "day": self.day,
            "requests": self.sum.requests,
            "input_tokens": self.sum.input,
            "cached_tokens": self.sum.cached,
            "output_tokens": self.sum.output,
            "reasoning_tokens": self.sum.reasoning,
            "price": self.sum.price(),
        })
    }
}

impl Books {
    pub fn open(path: &Path) -> Result<Books, DatabaseError> {
        Ok(Books { connection: Mutex::new(database::open(path)?), open: Mutex::default() })
    }

    pub fn add(&self, tenant: Tenant, model: &str, now_s: u64, sum: Sum) {
        let line = Line { tenant, model: model.to_owned(), day: now_s / DAY_SECONDS };
        *lock(&self.open).entry(line).or_default() += sum;
    }

    /// Writes what was added. What cannot be written now is written the next time.
    pub fn write(&self) -> Result<(), DatabaseError> {
        let lines = std::mem::take(&mut *lock(&self.open));
        if lines.is_empty() {
            return Ok(());
        }
        let written = write(&mut lock(&self.connection), &lines);
        if written.is_err() {
            let mut open = lock(&self.open);
            lines.into_iter().for_each(|(line, sum)| *open.entry(line).or_default() += sum);
        }
        Ok(written?)
    }

    /// What was used by one key or all, the latest day first.
    pub fn rows(&self, tenant: Option<Tenant>) -> Result<Vec<Row>, DatabaseError> {
        self.write()?;
        let connection = lock(&self.connection);
        let mut statement = connection.prepare(
            "select keys.name, model, day, requests, input, cached, output, reasoning, price_nanos
             from usage join keys on keys.id = usage.key
             where ?1 is null or usage.key = ?1 order by day desc, keys.name, model, usage.key",
        )?;
        let rows = statement.query_map(params![tenant.map(|tenant| tenant.0 as i64)], |row| {
            let number = |column| row.get::<_, i64>(column).map(|number| number as u64);
            let sum = Sum {
                requests: number(3)?,
                input: number(4)?,
                cached: number(5)?,
                output: number(6)?,
                reasoning: number(7)?,
                price_nanos: number(8)?,
            };
            Ok(Row { key: row.get(0)?, model: row.get(1)?, day: row.get(2)?, sum })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn write(connection: &mut Connection, lines: &HashMap<Line, Sum>) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    for (line, sum) in lines {
        let day = day((line.day * DAY_SECONDS) as i64);
        let counts = [sum.requests, sum.input, sum.cached, sum.output, sum.reasoning, sum.price_nanos];
        let [requests, input, cached, output, reasoning, price] = counts.map(|count| count as i64);
        transaction.execute(
            "insert into usage values (?, ?, ?, ?, ?, ?, ?, ?, ?)
             on conflict do update set requests = requests + excluded.requests,
             input = input + excluded.input, cached = cached + excluded.cached,
             output = output + excluded.output, reasoning = reasoning + excluded.reasoning,
             price_nanos = price_nanos + excluded.price_nanos",
            params![line.tenant.0 as i64, line.model, day, requests, input, cached, output, reasoning, price],
        )?;
    }
    transaction.commit()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A sum is added in one go, and a transaction that was not committed is undone.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Table;

    const USAGE: Usage = Usage { input: 100, cached: 60, output: 10, reasoning: 4 };

    #[test]
    fn priority_costs_twice_as_much() {
        let price = Price { input: 1.0, cached: 0.1, output: 5.0 };
        let once = Sum::new(USAGE, &price, Tier::Default).price_nanos;
        // 40 at 1.0, 60 at 0.1 and 10 at 5.0 a million.
        assert_eq!(once, 40 * 1000 + 60 * 100 + 10 * 5000);
        assert_eq!(Sum::new(USAGE, &price, Tier::Priority).price_nanos, 2 * once);
    }

    #[test]
    fn sums_are_kept_by_key_model_and_day() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flint.db");
        let keys = Table::open(&path).unwrap();
        keys.add("ann").unwrap();
        keys.add("ben").unwrap();
        let books = Books::open(&path).unwrap();
        let sum = Sum::new(USAGE, &Price::default(), Tier::Default);
        let (ann, ben, day) = (Tenant(1), Tenant(2), 20_000 * DAY_SECONDS);
        books.add(ann, "m", day, sum);
        books.write().unwrap();
        books.add(ann, "m", day + 5, sum);
        books.add(ann, "n", day, sum);
        books.add(ann, "m", day + DAY_SECONDS, sum);
        books.add(ben, "m", day, sum);
        let rows = books.rows(Some(ann)).unwrap();
        let shown: Vec<_> =
            rows.iter().map(|row| (row.day.as_str(), row.model.as_str(), row.sum.requests)).collect();
        assert_eq!(shown, [("2024-10-05", "m", 1), ("2024-10-04", "m", 2), ("2024-10-04", "n", 1)]);
        assert_eq!((rows[1].sum.input, rows[1].sum.reasoning), (200, 8));
        assert_eq!(books.rows(None).unwrap().len(), 4);
        assert_eq!(Books::open(&path).unwrap().rows(Some(ben)).unwrap()[0].key, "ben");
    }
}
