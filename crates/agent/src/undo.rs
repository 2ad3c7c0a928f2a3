//! Takes the last turn back, files and conversation, and makes it again.

use crate::agent::Agent;
use crate::files::{self, Change};
use crate::history::Saved;
use crate::rewind::{backwards, forwards};
use crate::root::NameError;
use crate::sessions::SessionError;
use crate::talk::Event;

impl Agent {
    pub(crate) async fn undo(&mut self) -> Result<(), SessionError> {
        let Some(past) = self.rewind.last().cloned() else { return self.nothing("undo").await };
        let Some(files) = self.make(&past.changes, backwards).await else { return Ok(()) };
        let items = self.log.items().get(past.items..).unwrap_or_default().to_vec();
        self.log.truncate(1, past.items)?;
        self.rewind.undo(items);
        self.tell(Event::Rewound { undone: true, turn: past.text, files }).await;
        Ok(())
    }

    pub(crate) async fn redo(&mut self) -> Result<(), SessionError> {
        let Some(undone) = self.rewind.last_undone().cloned() else { return self.nothing("redo").await };
        let Some(files) = self.make(&undone.past.changes, forwards).await else { return Ok(()) };
        self.log.put_back(undone.items)?;
        self.rewind.redo();
        self.tell(Event::Rewound { undone: false, turn: undone.past.text, files }).await;
        Ok(())
    }

    /// Changes files, or says why not; then nothing else is done either.
    async fn make(
        &self,
        changes: &[Saved],
        way: fn(&[Saved]) -> Result<Vec<Change>, NameError>,
    ) -> Option<Vec<String>> {
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

    async fn nothing(&self, what: &str) -> Result<(), SessionError> {
        self.tell(Event::Notice { text: format!("there is nothing to {what}") }).await;
        Ok(())
    }
}
