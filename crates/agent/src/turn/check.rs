//! After a change: the command that says whether it is right, if one is set.

use super::{FailedCheck, Stop, Turn};
use crate::agent::Agent;
use crate::facts::Fact;
use crate::history::user;
use crate::limits::CHECKS_A_TURN_MAX;
use crate::prompt;
use crate::talk::Failure;
use crate::tools::ShellCall;
use std::time::Duration;

const CHECK_TIME: Duration = Duration::from_secs(600);

/// Of what a check wrote: its end, which has the summary.
const TOLD_BYTES_MAX: usize = 4_000;

impl Agent {
    /// True: the turn is done. Else the model was told what is wrong, and goes on.
    pub(super) async fn check(&mut self, turn: &mut Turn) -> Result<bool, Stop> {
        let Some(command) = self.settings.verify.clone() else { return Ok(true) };
        let first = self.settings.always_verify && turn.failed_check.is_none();
        if !turn.changed && !first {
            // A model that was told what is wrong and changes nothing has given up.
            return match turn.failed_check.take() {
                Some(why) => Err(Stop::Failed(Failure::Verify(why))),
                None => Ok(true),
            };
        }
        let id = format!("check_{}", self.log.items().len());
        let wanted = ShellCall { command, workdir: None, timeout: CHECK_TIME, unconfined: false };
        let ran = self.run_command(&id, &wanted).await?;
        let (passed, command) = (ran.code == Some(0), wanted.command);
        let took_ms = u64::try_from(ran.took.as_millis()).ok();
        self.fact(Fact::Checked { command: command.clone(), passed, took_ms })?;
        if passed {
            turn.failed_check = None;
            return Ok(true);
        }
        turn.checks += 1;
        turn.changed = false;
        let end = ran.output.len().saturating_sub(TOLD_BYTES_MAX);
        let output = &ran.output[ran.output.ceil_char_boundary(end)..];
        let why = format!("`{command}`\n{output}");
        let failed = FailedCheck { command: command.clone(), code: ran.code, output: output.to_owned() };
        let code = failed.ended();
        turn.last_failed = Some(failed);
        if turn.checks >= CHECKS_A_TURN_MAX {
            return Err(Stop::Failed(Failure::Verify(why)));
        }
        turn.failed_check = Some(why);
        let asked = self.wants_change(turn);
        let said = format!("The check `{command}` failed with {code}:\n{output}\n{asked}");
        // As they are now: a model that believes its edits to be right looks at what it meant, not at what is there.
        self.log.push(user(&prompt::showing(&said, &self.shown, self.workshop.root())))?;
        self.boldness = turn.checks;
        Ok(false)
    }
}
