//! Makes a conversation short: the model sums it up, and the facts, which it did not make up, go beside.

use crate::agent::Agent;
use crate::client::{Ask, ClientError, How, Incoming};
use crate::facts::told;
use crate::history::{text_of, user};
use crate::sessions::SessionError;
use crate::talk::{Event, Failure, Order};
use crate::turn::{Stop, Turn};
use serde_json::{Value, json};

const REQUEST: &str = "Sum this conversation up for whoever goes on with it and has not seen it: what the user wants, what was \
done, what was found out, what is left to do. Name files and functions. At most 300 words.";

/// Of what each side said last, where the model cannot sum it up.
const TAIL_BYTES_MAX: usize = 8_000;

/// Share of the window at which a conversation is made short, where the settings do not say.
const FULL: f64 = 0.85;

impl Agent {
    /// On a person's order.
    pub(crate) async fn compact(&mut self) -> Result<(), SessionError> {
        match self.shorten(None).await {
            Ok(()) => Ok(()),
            Err(Stop::Failed(error)) => {
                self.tell(Event::Notice { text: error.to_string() }).await;
                Ok(())
            }
            Err(Stop::Interrupted | Stop::Ended) => Ok(()),
        }
    }

    /// Before a request that would not fit.
    pub(crate) async fn keep_within_window(&mut self, turn: &Turn) -> Result<(), Stop> {
        let window = self.settings.window_tokens;
        let limit = self.settings.compact_at_tokens.or(window.map(|window| (window as f64 * FULL) as u64));
        let Some(limit) = limit.filter(|limit| turn.tokens() > *limit) else { return Ok(()) };
        if self.shortened_at == Some(self.log.items().len()) {
            let why = format!("the conversation has more than {limit} tokens right after it was made short");
            return Err(Stop::Failed(Failure::Turn(why)));
        }
        self.shorten(Some(turn)).await
    }

    async fn shorten(&mut self, turn: Option<&Turn>) -> Result<(), Stop> {
        let before = turn.map_or(0, Turn::tokens);
        let (summary, after) = match self.summary().await {
            Ok(summary) => summary,
            // It may be too long to be summed up: its end says what was last.
            Err(ClientError::Refused(_)) => (self.tail(), 0),
            Err(error) => return Err(Stop::Failed(Failure::Turn(error.to_string()))),
        };
        let mut items: Vec<Value> = self.log.items().first().cloned().into_iter().collect();
        let mut text = format!("This conversation is longer; here is what happened before.\n\n{summary}\n");
        if !self.facts.is_empty() {
            text += &format!("\nWhat was run and changed, as recorded:\n{}", told(&self.facts));
        }
        items.push(user(&text));
        if turn.is_some() {
            items.extend(self.rewind.last().map(|past| user(&format!("Go on with this: {}", past.text))));
        }
        self.log.make_short(items)?;
        self.shown.clear();
        self.shortened_at = Some(self.log.items().len());
        self.tell(Event::Compacted { tokens_before: before, tokens_after: after }).await;
        Ok(())
    }

    /// The model's words, and how many tokens they are.
    async fn summary(&mut self) -> Result<(String, u64), ClientError> {
        let mut fields = self.fields();
        fields.insert("tool_choice".to_owned(), "none".into());
        fields.insert("max_output_tokens".to_owned(), json!(1_024));
        let mut items = self.log.items().to_vec();
        items.push(user(REQUEST));
        self.client.connect().await?;
        let known = self.known();
        self.client.create(&Ask { fields, items: &items, known }).await?;
        loop {
            tokio::select! {
                incoming = self.client.next() => match incoming? {
                    Incoming::Ended(ended) => {
                        let text: String = ended.output.iter().map(text_of).collect();
                        return match ended.how {
                            How::Failed { why } => Err(ClientError::Lost { why }),
                            _ if text.is_empty() => Ok((self.tail(), 0)),
                            _ => Ok((text, ended.tokens.output)),
                        };
                    }
                    Incoming::Refused(refusal) => return Err(ClientError::Refused(refusal)),
                    _ => {}
                },
                order = self.orders.recv() => match order {
                    None | Some(Order::Interrupt | Order::End) => {
                        self.client.hang_up();
                        return Err(ClientError::Lost { why: "it was interrupted".to_owned() });
                    }
                    Some(order) => {
                        // What cannot be kept was told already.
                        let _ = self.at_any_time(order).await;
                    }
                },
            }
        }
    }

    /// What was said last, as it was.
    fn tail(&self) -> String {
        let mut text = String::new();
        for item in self.log.items().iter().skip(1).rev() {
            let said = text_of(item);
            if text.len() + said.len() > TAIL_BYTES_MAX {
                break;
            }
            if !said.is_empty() {
                let who = item["role"].as_str().unwrap_or("model");
                text = format!("{who}: {said}\n{text}");
            }
        }
        text
    }
}
