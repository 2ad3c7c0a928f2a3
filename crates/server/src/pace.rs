//! Times that clients notice.

use crate::limits::{HEARTBEAT_SECONDS, SOCKET_LAST_TURNS_SECONDS_MAX, SOCKET_SECONDS_MAX};
use std::time::Duration;

/// The default is what docs/WIRE.md says; whoever serves others may choose other times.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub heartbeat: Duration,         // without an event, until one is sent all the same
    pub socket_open: Duration,       // until a WebSocket takes no more turns
    pub socket_last_turns: Duration, // that those which run then have until it is closed
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            heartbeat: Duration::from_secs(HEARTBEAT_SECONDS),
            socket_open: Duration::from_secs(SOCKET_SECONDS_MAX),
            socket_last_turns: Duration::from_secs(SOCKET_LAST_TURNS_SECONDS_MAX),
        }
    }
}
