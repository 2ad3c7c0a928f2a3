//! Names that may have been meant by one that is not there.

use super::Workshop;
use crate::root::{Kind, Name};
use std::ops::ControlFlow;

const NEAR_MAX: usize = 3;
const LOOKED_AT_MAX: usize = 50_000;
const COMPARED_MAX: usize = 5_000;
const ALIKE: f32 = 0.7;

impl Workshop {
    /// Files of the same name elsewhere, else those whose paths are written much alike.
    pub(super) fn near(&self, missing: &Name) -> Vec<String> {
        let file = missing.path().file_name();
        let (mut same, mut all, mut left) = (Vec::new(), Vec::new(), LOOKED_AT_MAX);
        // Nothing near is found where nothing can be listed.
        let _ = self.walk(None, usize::MAX, &mut |found| {
            left = left.saturating_sub(1);
            if found.kind == Kind::Link || found.kind == Kind::Other {
                return ControlFlow::Continue(());
            }
            if found.name.path().file_name() == file {
                same.push(found.name.to_string());
            } else if all.len() < COMPARED_MAX {
                all.push(found.name.to_string());
            }
            if left > 0 && same.len() < NEAR_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if !same.is_empty() {
            return same;
        }
        let missing = missing.to_string();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let near = similar::get_close_matches(missing.as_str(), &all, NEAR_MAX, ALIKE);
        near.into_iter().map(str::to_owned).collect()
    }
}
