//! An earlier session, as whoever shows it would have seen it.

use crate::history::{Record, Saved, text_of};
use crate::rewind::saved_change;
use crate::talk::{Item, Progress, What};
use crate::tools::diffs;
use serde_json::Value;

/// What happened, in order. Turns that were taken back are not told.
pub fn items(records: &[Record]) -> Vec<Item> {
    let mut turns: Vec<Vec<Item>> = vec![Vec::new()];
    for (index, record) in records.iter().enumerate() {
        let what = match record {
            Record::Turn { text } => {
                turns.push(Vec::new());
                Some(What::Said { text: text.clone() })
            }
            Record::Item { item } => said(item),
            Record::Files { changes } => Some(files(changes)),
            Record::Report { name, task, report, done, .. } => Some(What::Agent {
                name: name.clone(),
                task: task.clone(),
                report: report.clone(),
                figures: Box::default(),
                progress: if *done { Progress::Done } else { Progress::Failed },
            }),
            Record::NotMade { .. } => {
                let turn = turns.last_mut();
                turn.and_then(|turn| turn.pop_if(|item| matches!(item.what, What::Files { .. })));
                None
            }
            Record::Undone { turns: undone, .. } => {
                turns.truncate(turns.len().saturating_sub(*undone).max(1));
                None
            }
            Record::Session { .. }
            | Record::Short { .. }
            | Record::Waiting { .. }
            | Record::Settled { .. }
            | Record::Redone { .. }
            | Record::Agent { .. }
            | Record::Fact { .. } => None,
        };
        let turn = turns.last_mut();
        if let (Some(what), Some(turn)) = (what, turn) {
            turn.push(Item { id: format!("past_{index}"), what });
        }
    }
    turns.concat()
}

fn said(item: &Value) -> Option<What> {
    match item["type"].as_str()? {
        "message" if item["role"] == "assistant" => Some(What::Message { text: text_of(item) }),
        "reasoning" => Some(What::Reasoning { text: text_of(item) }),
        "function_call" if item["name"] != "edit" && item["name"] != "patch" => Some(What::Look {
            tool: item["name"].as_str().unwrap_or_default().to_owned(),
            about: item["arguments"].as_str().unwrap_or_default().to_owned(),
            output: String::new(),
            progress: Progress::Done,
        }),
        _ => None,
    }
}

fn files(changes: &[Saved]) -> What {
    let changes: Vec<_> = changes.iter().filter_map(|saved| saved_change(saved).ok()).collect();
    What::Files { changes: diffs(&changes), progress: Progress::Done }
}
