//! The loop: events and keys in, frames and orders out.
//!
//! Events are taken in batches and painted together; `pace` says when. A key does not wait for what streams.

mod inputs;
#[cfg(test)]
mod tests;

use crate::limits::{EVENTS_A_BATCH_MAX, ORDERS_WAITING_MAX, SPINNER_STEP_TIME};
use crate::outside::{Action, Ended, Reply, Request, Wish};
use crate::pace::Pace;
use crate::screen::{Screen, Setup};
use crate::tty::{Face, Taken};
use crossterm::event::Event as Input;
use flint_agent::talk::{Event, Order};
use inputs::{Inputs, Signals};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

/// How long the agent has to take the last orders.
const FAREWELL_TIME: Duration = Duration::from_millis(500);

/// When nothing on the screen depends on the time.
const IDLE_TIME: Duration = Duration::from_secs(3600);

/// Takes the terminal over until the person ends it. The runtime needs its timer and its IO.
pub async fn run(
    mut setup: Setup,
    orders: Sender<Order>,
    mut events: Receiver<Event>,
    outside: Sender<Request>,
) -> io::Result<Ended> {
    let painted = setup.painted.take();
    let mut signals = Signals::listen()?;
    let mut face = Taken::take()?;
    let mut inputs = Inputs::read();
    let mut driver = Driver::new(Screen::new(setup), orders, outside, painted);
    let ended = driver.drive(&mut face, &mut inputs.receiver, &mut events, &mut signals).await;
    drop(face);
    let ended = ended?;
    driver.farewell(&ended).await;
    Ok(ended)
}

struct Driver {
    screen: Screen,
    orders: Sender<Order>,
    outbox: VecDeque<Order>, // what the agent has not taken yet
    outside: Sender<Request>,
    reply: Option<oneshot::Receiver<Reply>>,
    painted: Option<Box<dyn FnMut(u64) + Send>>,
    folded: u64, // events
    began: Instant,
    pace: Pace,
    dirty: bool,
}

impl Driver {
    fn new(
        screen: Screen,
        orders: Sender<Order>,
        outside: Sender<Request>,
        painted: Option<Box<dyn FnMut(u64) + Send>>,
    ) -> Driver {
        Driver {
            screen,
            orders,
            outbox: VecDeque::new(),
            outside,
            reply: None,
            painted,
            folded: 0,
            began: Instant::now(),
            pace: Pace::default(),
            dirty: true,
        }
    }

    async fn drive(
        &mut self,
        face: &mut impl Face,
        inputs: &mut Receiver<Input>,
        events: &mut Receiver<Event>,
        signals: &mut Signals,
    ) -> io::Result<Ended> {
        let orders = self.orders.clone();
        let mut batch = Vec::with_capacity(EVENTS_A_BATCH_MAX);
        let (mut agent_lives, mut takes_orders) = (true, true);
        loop {
            let wake = self.wake();
            if wake <= Instant::now() {
                self.paint(face)?;
                continue;
            }
            tokio::select! {
                biased;
                () = signals.end() => return Ok(Ended::Signal),
                () = sleep_until(wake) => {}
                input = inputs.recv() => {
                    let Some(input) = input else { return Ok(Ended::Signal) };
                    if let Some(ended) = self.input(input, face, signals).await? {
                        return Ok(ended);
                    }
                }
                reply = next_reply(&mut self.reply) => {
                    if let Some(Reply::Leave(action)) = reply {
                        return Ok(Ended::For(action));
                    }
                    self.screen.reply(reply);
                    self.dirty = true;
                }
                permit = orders.reserve(), if takes_orders && !self.outbox.is_empty() => {
                    match (permit, self.outbox.pop_front()) {
                        (Ok(permit), Some(order)) => permit.send(order),
                        (Ok(_), None) => {}
                        (Err(_), _) => takes_orders = false,
                    }
                }
                count = events.recv_many(&mut batch, EVENTS_A_BATCH_MAX), if agent_lives => {
                    agent_lives = count > 0;
                    self.fold(&mut batch, agent_lives);
                }
            }
        }
    }

    /// When the next frame is due.
    fn wake(&self) -> Instant {
        let (Some(last), Some(due)) = (self.pace.last(), self.pace.due()) else { return Instant::now() };
        match (self.dirty, self.screen.moves()) {
            (true, _) => due,
            (false, true) => last + SPINNER_STEP_TIME,
            (false, false) => last + IDLE_TIME,
        }
    }

    fn paint(&mut self, face: &mut impl Face) -> io::Result<()> {
        self.screen.tick(self.began.elapsed());
        // Before the drawing: the next frame is due after the frame time, however long this one takes.
        self.pace.painted(Instant::now());
        self.dirty = false;
        face.paint(&mut self.screen)?;
        if let Some(painted) = &mut self.painted {
            painted(self.folded);
        }
        Ok(())
    }

    fn fold(&mut self, batch: &mut Vec<Event>, agent_lives: bool) {
        self.screen.tick(self.began.elapsed());
        self.folded += batch.len() as u64;
        for event in batch.drain(..) {
            self.screen.fold(event);
        }
        if !agent_lives {
            self.screen.agent_gone();
        }
        self.dirty = true;
    }

    async fn input(
        &mut self,
        input: Input,
        face: &mut impl Face,
        signals: &mut Signals,
    ) -> io::Result<Option<Ended>> {
        self.screen.tick(self.began.elapsed());
        self.pace.pressed();
        self.dirty = true;
        for wish in self.screen.input(input) {
            match wish {
                Wish::Order(order) => self.order(order),
                Wish::Action(action) => self.act(action),
                Wish::Quit => return Ok(Some(Ended::Quit)),
                Wish::Suspend => {
                    face.suspend()?;
                    signals.go_on().await;
                    face.resume()?;
                }
            }
        }
        Ok(None)
    }

    fn order(&mut self, order: Order) {
        if self.outbox.len() >= ORDERS_WAITING_MAX {
            return self.screen.trouble("The agent does not take orders; this one was dropped.".to_owned());
        }
        self.outbox.push_back(order);
        self.hand_over();
    }

    /// What the agent can take at once does not wait for the next frame.
    fn hand_over(&mut self) {
        while let Ok(permit) = self.orders.try_reserve()
            && let Some(order) = self.outbox.pop_front()
        {
            permit.send(order);
        }
    }

    fn act(&mut self, action: Action) {
        if self.reply.is_some() {
            return self.screen.remark("the last command is not done yet");
        }
        let (reply, answer) = oneshot::channel();
        match self.outside.try_send(Request { action, reply }) {
            Ok(()) => self.reply = Some(answer),
            Err(_) => self.screen.reply(None),
        }
    }

    /// The agent hears that it is over, if it still listens.
    async fn farewell(&mut self, ended: &Ended) {
        match ended {
            Ended::Quit | Ended::Signal => self.outbox.push_back(Order::End),
            Ended::For(_) => {}
        }
        let send_all = async {
            for order in self.outbox.drain(..) {
                if self.orders.send(order).await.is_err() {
                    return;
                }
            }
        };
        // An agent that hangs does not keep the person.
        let _ = timeout(FAREWELL_TIME, send_all).await;
    }
}

/// The answer to the action that is under way; none if it was dropped.
async fn next_reply(reply: &mut Option<oneshot::Receiver<Reply>>) -> Option<Reply> {
    let Some(receiver) = reply else { return std::future::pending().await };
    let answer = receiver.await.ok();
    *reply = None;
    answer
}
