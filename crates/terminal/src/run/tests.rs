//! The loop, on paper instead of a terminal.

use super::{Driver, Signals};
use crate::draw::draw;
use crate::limits::FRAME_TIME_MIN;
use crate::outside::{Action, Ended, Reply, Request};
use crate::screen::{Screen, Setup};
use crate::tty::Face;
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use flint_agent::talk::{Event, Order};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use std::io;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

struct Paper {
    frames: u32,
    last: watch::Sender<String>,
}

impl Face for Paper {
    fn paint(&mut self, screen: &mut Screen) -> io::Result<()> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 60, 12));
        screen.lay_out(buffer.area.as_size());
        draw(screen, &mut buffer);
        self.frames += 1;
        self.last.send_replace(buffer.content.iter().map(|cell| cell.symbol()).collect());
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn resume(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A driver that runs, and all that goes to it and comes from it.
struct Desk {
    inputs: Sender<Input>,
    events: Sender<Event>,
    orders: Receiver<Order>,
    requests: Receiver<Request>,
    last: watch::Receiver<String>,
    driver: JoinHandle<(Ended, u32)>,
}

impl Desk {
    fn new() -> Desk {
        let (order, orders) = channel(1);
        let (events, mut happens) = channel(64);
        let (inputs, mut keys) = channel(64);
        let (outside, requests) = channel(1);
        let (paint, last) = watch::channel(String::new());
        let driver = tokio::spawn(async move {
            let mut signals = Signals::listen().expect("signals");
            let mut paper = Paper { frames: 0, last: paint };
            let mut driver = Driver::new(Screen::new(Setup::default()), order, outside, None);
            let ended = driver.drive(&mut paper, &mut keys, &mut happens, &mut signals).await;
            let ended = ended.expect("paper takes everything");
            driver.farewell(&ended).await;
            (ended, paper.frames)
        });
        Desk { inputs, events, orders, requests, last, driver }
    }

    async fn press(&self, code: KeyCode, modifiers: KeyModifiers) {
        let key = Input::Key(KeyEvent::new(code, modifiers));
        self.inputs.send(key).await.expect("the driver runs");
    }

    async fn write(&self, text: &str) {
        for char in text.chars() {
            let code = if char == '\n' { KeyCode::Enter } else { KeyCode::Char(char) };
            self.press(code, KeyModifiers::NONE).await;
        }
    }

    async fn quit(&self) {
        for _ in 0..2 {
            self.press(KeyCode::Char('c'), KeyModifiers::CONTROL).await;
        }
    }

    async fn sees(&mut self, text: &str) {
        self.last.wait_for(|frame| frame.contains(text)).await.expect("the driver paints");
    }
}

#[tokio::test]
async fn many_events_make_few_frames() {
    let mut desk = Desk::new();
    let began = Instant::now();
    for number in 0..5_000 {
        let text = format!("notice {number}.");
        desk.events.send(Event::Notice { text }).await.expect("the driver runs");
    }
    desk.sees("notice 4999.").await;
    desk.quit().await;
    assert_eq!(desk.orders.recv().await, Some(Order::End));
    let (ended, frames) = desk.driver.await.expect("no panic");
    assert_eq!(ended, Ended::Quit);
    // The first frame is painted at once.
    assert!(FRAME_TIME_MIN * (frames - 1) <= began.elapsed(), "{frames} frames in {:?}", began.elapsed());
}

#[tokio::test]
async fn orders_wait_for_a_busy_agent() {
    let mut desk = Desk::new();
    desk.write("a\nb\nc\nd").await;
    desk.sees("› d").await;
    desk.quit().await;
    desk.quit().await;
    let text = |text: &str| Order::Submit { text: text.to_owned() };
    for order in [Order::Warm, text("a"), text("b"), text("c"), Order::End] {
        assert_eq!(desk.orders.recv().await, Some(order));
    }
}

#[tokio::test]
async fn actions_are_done_outside() {
    let mut desk = Desk::new();
    desk.write("/agents\n").await;
    let request = desk.requests.recv().await.expect("a request");
    assert_eq!(request.action, Action::Agents);
    request.reply.send(Reply::Notice("there are none".to_owned())).expect("the driver waits");
    desk.sees("there are none").await;
    desk.write("/init\n").await;
    drop(desk.requests.recv().await);
    desk.sees("nobody answered").await;
    desk.write("/fork\n").await;
    let request = desk.requests.recv().await.expect("a request");
    request.reply.send(Reply::Leave(request.action)).expect("the driver waits");
    assert_eq!(desk.driver.await.expect("no panic").0, Ended::For(Action::Fork));
}

#[tokio::test]
async fn an_agent_that_ends_is_told() {
    let Desk { events, inputs, mut last, driver, .. } = Desk::new();
    drop(events);
    last.wait_for(|frame| frame.contains("The agent has ended")).await.expect("the driver paints");
    drop(inputs);
    assert_eq!(driver.await.expect("no panic").0, Ended::Signal);
}
