//! The store in one SQLite file.
//!
//! One connection writes and one reads; in WAL mode neither waits for the other. A commit is a write to the log
//! file without a sync: it survives the death of the process, though not that of the machine. Syncing each
//! token's event would cost more than computing the token.

use super::{Append, Ending, Kept, Progress, Record, Store, StoreError, Write};
use crate::database::{self, DatabaseError};
use crate::limits::STORE_PAGE_BYTES_MAX;
use crate::log::Frame;
use bytes::Bytes;
use flint_engine::message::Tenant;
use flint_wire::Status;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Sqlite {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    bytes_max: u64,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
            _ => StoreError::Failed(error.to_string()),
        }
    }
}

impl Sqlite {
    /// Opens or makes the file. Above `bytes_max` the oldest responses are deleted.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Sqlite, DatabaseError> {
        let writer = database::open(path)?;
        let reader = database::open(path)?;
        limit(&writer, bytes_max)
            .map_err(|source| DatabaseError::Sqlite { path: path.display().to_string(), source })?;
        Ok(Sqlite { writer: Mutex::new(writer), reader: Mutex::new(reader), bytes_max })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        // A transaction that was not committed is rolled back when it is dropped.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        // Reading changes nothing.
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Responses that run cannot be deleted to make room, so the file may grow past its size, but not without end.
fn limit(connection: &Connection, bytes_max: u64) -> rusqlite::Result<()> {
    let pages = (bytes_max + bytes_max / 4) / number(connection, "pragma page_size")?.max(1);
    // It answers with the new value.
    number(connection, &format!("pragma max_page_count = {pages}")).map(drop)
}

fn number(connection: &Connection, query: &str) -> rusqlite::Result<u64> {
    connection.query_row(query, [], |row| unsigned(row, 0))
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|value| value as u64)
}

fn bytes_used(connection: &Connection) -> rusqlite::Result<u64> {
    let pages = number(connection, "pragma page_count")?;
    let free = number(connection, "pragma freelist_count")?;
    Ok(pages.saturating_sub(free) * number(connection, "pragma page_size")?)
}

impl Store for Sqlite {
    fn write(&self, writes: &[&Write]) -> Result<(), StoreError> {
        let mut connection = self.writer();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for write in writes {
            match write {
                Write::Begin(record) => begin(&transaction, record)?,
                Write::Append(batch) => append(&transaction, batch)?,
                Write::Delete { id } => {
                    transaction.prepare_cached("delete from responses where id = ?")?.execute([id])?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    /// Goes down to seven eighths, so that it has nothing to do for a while.
    fn trim(&self) -> Result<(), StoreError> {
        let mut connection = self.writer();
        if bytes_used(&connection)? <= self.bytes_max {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        while bytes_used(&transaction)? > self.bytes_max / 8 * 7 && delete_oldest(&transaction)? {}
        transaction.commit()?;
        vacuum(&connection)?;
        Ok(())
    }

    fn kept(&self, id: &str, tenant: Tenant) -> Result<Option<Kept>, StoreError> {
        let connection = self.reader();
        let query =
            "select status, previous, history, input, response from responses where id = ? and tenant = ?";
        let mut statement = connection.prepare_cached(query)?;
        let found = statement.query_row(params![id, tenant.0 as i64], |row| {
            Ok(Kept {
                // A word that is none of ours cannot be a response that runs.
                status: Status::parse(&row.get::<_, String>(0)?).unwrap_or(Status::Failed),
                previous: row.get(1)?,
                history: row.get(2)?,
                input: row.get(3)?,
                response: row.get(4)?,
            })
        });
        Ok(found.optional()?)
    }

    fn events(&self, id: &str, from: u64) -> Result<Vec<Frame>, StoreError> {
        let connection = self.reader();
        let query = "select number, last, json from events \
            where response = (select key from responses where id = ?) and number >= ? order by number";
        let mut statement = connection.prepare_cached(query)?;
        let mut rows = statement.query(params![id, from as i64])?;
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while bytes < STORE_PAGE_BYTES_MAX
            && let Some(row) = rows.next()?
        {
            let json = Bytes::from(row.get::<_, Vec<u8>>(2)?);
            bytes += json.len();
            frames.push(Frame { number: unsigned(row, 0)?, json, last: row.get(1)?, token_at: None });
        }
        Ok(frames)
    }

    fn unfinished(&self) -> Result<Vec<String>, StoreError> {
        let connection = self.reader();
        let query = "select id from responses where status in ('queued', 'in_progress') order by key";
        let mut statement = connection.prepare(query)?;
        let ids = statement.query_map([], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    fn record(&self, id: &str) -> Result<Option<(Record, Progress)>, StoreError> {
        let connection = self.reader();
        let query = "select key, id, tenant, model, weights, created_at, seed, previous, history, input, request, \
            prompt, response from responses where id = ?";
        let found = connection.query_row(query, [id], |row| Ok((row.get::<_, i64>(0)?, record(row)?)));
        let Some((key, record)) = found.optional()? else { return Ok(None) };
        Ok(Some((record, progress(&connection, key)?)))
    }
}

fn begin(transaction: &Transaction<'_>, record: &Record) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "insert into responses (id, tenant, status, model, weights, created_at, seed, previous, history, input, \
         response, request, prompt) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    let prompt: Vec<u8> = record.prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
    let changed = statement.execute(params![
        record.id,
        record.tenant.0 as i64,
        Status::InProgress.name(),
        record.model,
        record.weights,
        record.created_at as i64,
        record.seed as i64,
        record.previous,
        record.history,
        record.input,
        record.response,
        record.request,
        prompt,
    ]);
    changed.map(drop)
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let prompt: Vec<u8> = row.get(11)?;
    Ok(Record {
        id: row.get(1)?,
        tenant: Tenant(unsigned(row, 2)?),
        model: row.get(3)?,
        weights: row.get(4)?,
        created_at: unsigned(row, 5)?,
        seed: unsigned(row, 6)?,
        previous: row.get(7)?,
        history: row.get(8)?,
        input: row.get(9)?,
        request: row.get(10)?,
        prompt: prompt.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
        response: row.get(12)?,
    })
}

fn progress(connection: &Connection, key: i64) -> rusqlite::Result<Progress> {
    let mut statement =
        connection.prepare("select number, tape from events where response = ? order by number")?;
    let mut rows = statement.query([key])?;
    let mut progress = Progress { next: 0, tape: Vec::new() };
    while let Some(row) = rows.next()? {
        progress.next = unsigned(row, 0)? + 1;
        progress.tape.extend(row.get::<_, Option<Vec<u8>>>(1)?.unwrap_or_default());
    }
    Ok(progress)
}

/// The tape goes with the last of its events: they are stored together or not at all.
fn append(transaction: &Transaction<'_>, batch: &Append) -> rusqlite::Result<()> {
    let key = transaction
        .prepare_cached("select key from responses where id = ?")?
        .query_row([&batch.id], |row| row.get::<_, i64>(0))
        .optional()?;
    // A response that was deleted while it ran has no place for more.
    let Some(key) = key else { return Ok(()) };
    let query = "insert into events (response, number, last, json, tape) values (?, ?, ?, ?, ?)";
    let mut statement = transaction.prepare_cached(query)?;
    for (index, frame) in batch.frames.iter().enumerate() {
        let whole = index + 1 == batch.frames.len() && !batch.tape.is_empty();
        let tape = whole.then_some(&batch.tape);
        statement.execute(params![key, frame.number as i64, frame.last, &frame.json[..], tape])?;
    }
    if let Some(Ending { status, response }) = &batch.ending {
        let mut statement =
            transaction.prepare_cached("update responses set status = ?, response = ? where key = ?")?;
        statement.execute(params![status.name(), response, key])?;
    }
    Ok(())
}

/// Whether there was one.
fn delete_oldest(transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
    let oldest = "delete from responses where key = \
        (select min(key) from responses where status not in ('queued', 'in_progress'))";
    Ok(transaction.prepare_cached(oldest)?.execute([])? > 0)
}

/// Gives free pages back to the file system: out of the file, then the log into the file.
fn vacuum(connection: &Connection) -> rusqlite::Result<()> {
    for query in ["pragma incremental_vacuum", "pragma wal_checkpoint(truncate)"] {
        // Each row is a step of the work.
        let mut statement = connection.prepare(query)?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}
