//! Takes the last turn back, files and conversation, and makes it again.

use crate::agent::Agent;
use crate::files::{self, Change};
use crate::history::Saved;
use crate::rewind::{backwards, forwards};
use crate::root::NameError;
use crate::sessions::SessionError;
use crate::talk::Event;
use crate::tools::diffs;

impl Agent {
    /// What an undo or a redo would do.
    pub(crate) async fn preview(&self, undo: bool) {
        let (past, way, what): (_, Way, _) = match undo {
            true => (self.rewind.last(), backwards, "undo"),
            false => (self.rewind.last_undone().map(|undone| &undone.past), forwards, "redo"),
        };
        let event = match past.map(|past| (past, way(&past.changes))) {
            None => nothing(what),
            Some((past, Ok(changes))) => {
                Event::Previewed { undo, turn: past.text.clone(), changes: diffs(&changes) }
            }
            Some((_, Err(error))) => Event::Notice { text: format!("nothing can be changed: {error}") },
        };
        self.tell(event).await;
    }

    pub(crate) async fn undo(&mut self) -> Result<(), SessionError> {
        let Some(past) = self.rewind.last().cloned() else {
            self.tell(nothing("undo")).await;
            return Ok(());
        };
        let Some(files) = self.make(&past.changes, backwards).await else { return Ok(()) };
        let items = self.log.items().get(past.items..).unwrap_or_default().to_vec();
        self.log.truncate(1, past.items)?;
        self.rewind.undo(items);
        self.tell(Event::Rewound { undone: true, turn: past.text, files }).await;
        Ok(())
    }

    pub(crate) async fn redo(&mut self) -> Result<(), SessionError> {
        let Some(undone) = self.rewind.last_undone().cloned() else {
            self.tell(nothing("redo")).await;
            return Ok(());
        };
        let Some(files) = self.make(&undone.past.changes, forwards).await else { return Ok(()) };
        self.log.put_back(undone.items)?;
        self.rewind.redo();
        self.tell(Event::Rewound { undone: false, turn: undone.past.text, files }).await;
        Ok(())
    }

    /// Changes files, or says why not; then nothing else is done either.
    async fn make(&self, changes: &[Saved], way: Way) -> Option<Vec<String>> {
        let made = way(changes).map_err(|error| error.to_string()).and_then(|changes| {
            let names = changes.iter().map(|change| change.name.to_string()).collect();
            files::make(self.workshop.root(), &changes).map(|()| names).map_err(|error| error.to_string())
        });
        match made {
            Ok(names) => Some(names),
            Err(why) => {
                let text = format!("nothing was changed: {why}");
                self.tell(Event::Notice { text }).await;
                None
            }
        }
    }
}

/// Backwards or forwards.
type Way = fn(&[Saved]) -> Result<Vec<Change>, NameError>;

fn nothing(what: &str) -> Event {
    Event::Notice { text: format!("there is nothing to {what}") }
}
