//! Ending well: nothing new begins, and what runs is given time to end.

use flint_wire::ApiError;
use tokio::sync::watch;

#[derive(Debug)]
pub struct Drain {
    begun: watch::Sender<bool>,
    guests: watch::Sender<usize>,
}

/// Somebody who is waited for. Dropping it says that they are done.
#[derive(Debug)]
pub struct Guest {
    guests: watch::Sender<usize>,
}

impl Default for Drain {
    fn default() -> Drain {
        Drain { begun: watch::Sender::new(false), guests: watch::Sender::new(0) }
    }
}

impl Drain {
    pub fn guest(&self) -> Guest {
        self.guests.send_modify(|guests| *guests += 1);
        Guest { guests: self.guests.clone() }
    }

    pub fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// 503 from the moment on at which the server is to end.
    pub fn check(&self) -> Result<(), ApiError> {
        match *self.begun.borrow() {
            false => Ok(()),
            true => Err(ApiError::overloaded("the server is ending: try again when it is back", 5)),
        }
    }

    /// Resolves when the server is to end.
    pub async fn begun(&self) {
        // The sender lives as long as this.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Resolves when nobody was there for so long.
    pub async fn idle(&self, long: std::time::Duration) {
        let mut guests = self.guests.subscribe();
        loop {
            let _ = guests.wait_for(|guests| *guests == 0).await;
            if tokio::time::timeout(long, guests.wait_for(|guests| *guests > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Resolves when nobody is left.
    pub async fn empty(&self) {
        let _ = self.guests.subscribe().wait_for(|guests| *guests == 0).await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.send_modify(|guests| *guests -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_idle_when_nobody_came_for_a_while() {
        let (drain, long) = (Drain::default(), std::time::Duration::from_millis(10));
        let guest = drain.guest();
        assert!(tokio::time::timeout(long * 5, drain.idle(long)).await.is_err());
        drop(guest);
        drain.idle(long).await;
    }

    #[tokio::test]
    async fn it_ends_when_the_last_guest_has_left() {
        let drain = Drain::default();
        let (first, second) = (drain.guest(), drain.guest());
        assert!(drain.check().is_ok());
        drain.begin();
        drain.begun().await;
        assert_eq!(drain.check().unwrap_err().status, 503);
        drop(first);
        assert!(futures_util::FutureExt::now_or_never(drain.empty()).is_none());
        drop(second);
        drain.empty().await;
    }
}
