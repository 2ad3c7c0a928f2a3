//! No trouble but their number.

use super::script::lines;
use super::stage::Stage;
use super::stream::{Crowd, many};
use super::{Row, Seed};
use crate::Outcome;

pub fn run(stage: &Stage<'_>, seed: &mut Seed) -> Outcome<Row> {
    let lines = lines(seed);
    let served = stage.serve(&lines, None)?;
    let crowd = Crowd { clients: stage.plan.streams, lasting: stage.plan.lasting };
    let row = many(&served, &lines, crowd, seed, |_| Ok(()))?;
    let note = match crowd.lasting.as_secs() {
        0 => format!("{} sockets", crowd.clients),
        seconds => format!("{} sockets for {seconds} s", crowd.clients),
    };
    Ok(Row { note, ..row })
}
