//! Spans of requests, on their way to a collector by OTLP over HTTP.
//!
//! A request that is over leaves its record in a queue, which never waits; a thread of its own makes spans of
//! the records and sends them in batches. What finds the queue full, or no collector, is dropped and counted.

mod collector;
mod spans;

pub use collector::{Collector, CollectorError};

use crate::limits::{
    SPAN_BATCH_MS_MAX, SPAN_BATCH_REQUESTS_MAX, SPAN_FLUSH_SECONDS_MAX, SPAN_REQUESTS_WAITING_MAX,
};
use crate::metrics::{Page, label};
use crate::note::Said;
use crate::trace::Trace;
use collector::Post;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// A request that is over.
#[derive(Debug)]
pub struct Record {
    pub trace: Trace,
    pub began: Instant,
    pub took: Duration,
    pub ended_at: SystemTime,
    pub address: Option<SocketAddr>, // of the server
    pub said: Said,
}

/// Where records are put that are to be sent.
#[derive(Debug)]
pub struct Outbox {
    orders: SyncSender<Order>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
enum Order {
    Send(Box<Record>),
    /// Send what came before this, then say so.
    Flush(SyncSender<()>),
}

/// Of requests whose spans were wanted.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    crowded_out: AtomicU64,
    not_taken: AtomicU64, // by the collector
}

impl Outbox {
    /// Starts the thread that sends.
    pub fn start(collector: Collector) -> io::Result<Outbox> {
        let (orders, receiver) = sync_channel(SPAN_REQUESTS_WAITING_MAX);
        let counts = Arc::<Counts>::default();
        let counted = counts.clone();
        let send = move || send_all(&receiver, Post::new(collector), &counted);
        std::thread::Builder::new().name("otlp".to_owned()).spawn(send)?;
        Ok(Outbox { orders, counts })
    }

    /// Takes a record, or drops it if too many wait.
    pub fn put(&self, record: Record) {
        if self.orders.try_send(Order::Send(Box::new(record))).is_err() {
            self.counts.crowded_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what is here is sent, but not for long.
    pub fn flush(&self) {
        let (done, receiver) = sync_channel(1);
        // A full queue is that of a collector that takes nothing.
        if self.orders.try_send(Order::Flush(done)).is_ok() {
            let _ = receiver.recv_timeout(Duration::from_secs(SPAN_FLUSH_SECONDS_MAX));
        }
    }

    pub fn write(&self, page: &mut Page) {
        let Counts { sent, crowded_out, not_taken } = &*self.counts;
        page.family("flint_traces_sent_total", "counter", "Requests whose spans the collector has.");
        page.sample("flint_traces_sent_total", "", sent.load(Ordering::Relaxed));
        page.family("flint_traces_dropped_total", "counter", "Requests whose spans were given up.");
        for (why, count) in [("queue_full", crowded_out), ("not_taken", not_taken)] {
            page.sample("flint_traces_dropped_total", &label("reason", why), count.load(Ordering::Relaxed));
        }
    }
}

/// Sends batches until nobody can put anything into the outbox any more.
fn send_all(orders: &Receiver<Order>, mut post: Post, counts: &Counts) {
    while let Ok(first) = orders.recv() {
        let (records, asked) = gather(first, orders);
        if !records.is_empty() {
            let taken = post.send(&records);
            let count = if taken { &counts.sent } else { &counts.not_taken };
            count.fetch_add(records.len() as u64, Ordering::Relaxed);
        }
        if let Some(done) = asked {
            // Who asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

/// What comes together: up to a full batch, a moment's worth, or until somebody waits for it.
fn gather(first: Order, orders: &Receiver<Order>) -> (Vec<Record>, Option<SyncSender<()>>) {
    let until = Instant::now() + Duration::from_millis(SPAN_BATCH_MS_MAX);
    let (mut records, mut next) = (Vec::new(), Some(first));
    loop {
        match next {
            Some(Order::Send(record)) => records.push(*record),
            Some(Order::Flush(done)) => return (records, Some(done)),
            None => return (records, None),
        }
        if records.len() >= SPAN_BATCH_REQUESTS_MAX {
            return (records, None);
        }
        next = orders.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    }
}
