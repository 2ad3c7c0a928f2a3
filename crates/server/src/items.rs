//! What was said, item by item. A conversation only grows, so its beginnings are shared: a turn adds a part to it, and
//! neither copies what was said before nor looks at it again.

use flint_wire::{Item, Meaning};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Items {
    last: Option<Arc<Part>>,
    prints: Arc<Vec<u64>>,          // the n-th is of the first n + 1 items
    declaring: Arc<Vec<Arc<Item>>>, // those that declare tools
    first_thought: Option<usize>,
}

/// What came at once.
#[derive(Debug)]
struct Part {
    before: Option<Arc<Part>>,
    first: usize, // number of its first item
    own: Vec<Arc<Item>>,
}

impl Items {
    pub fn len(&self) -> usize {
        self.prints.len()
    }

    pub fn is_empty(&self) -> bool {
        self.prints.is_empty()
    }

    pub fn extend(&mut self, own: impl IntoIterator<Item = Arc<Item>>) {
        let own: Vec<Arc<Item>> = own.into_iter().collect();
        if own.is_empty() {
            return;
        }
        let first = self.len();
        let prints = Arc::make_mut(&mut self.prints);
        for (number, item) in (first..).zip(&own) {
            prints.push(print_after(prints.last().copied().unwrap_or_default(), item));
            match item.meaning {
                Meaning::AdditionalTools { .. } => Arc::make_mut(&mut self.declaring).push(item.clone()),
                Meaning::Reasoning { .. } => self.first_thought = self.first_thought.or(Some(number)),
                _ => {}
            }
        }
        self.last = Some(Arc::new(Part { before: self.last.take(), first, own }));
    }

    /// Fingerprints of the beginnings: the n-th is of the first n + 1 items.
    pub fn prints(&self) -> Arc<Vec<u64>> {
        self.prints.clone()
    }

    /// Those that declare tools, in order.
    pub fn declaring(&self) -> &[Arc<Item>] {
        &self.declaring
    }

    /// Whether one of the first `count` items is a thought.
    pub fn has_thought_before(&self, count: usize) -> bool {
        self.first_thought.is_some_and(|at| at < count)
    }

    pub fn last(&self) -> Option<&Arc<Item>> {
        self.backwards(self.len()).next()
    }

    /// The first `count` items, the last of them first.
    pub fn backwards(&self, count: usize) -> impl Iterator<Item = &Arc<Item>> {
        self.parts().flat_map(move |part| {
            part.own[..count.saturating_sub(part.first).min(part.own.len())].iter().rev()
        })
    }

    /// The items after the first `count`, in order.
    pub fn after(&self, count: usize) -> Vec<Arc<Item>> {
        let parts: Vec<&Part> = self.parts().take_while(|part| part.first + part.own.len() > count).collect();
        let own = |part: &Part| part.own[count.saturating_sub(part.first)..].to_vec();
        parts.into_iter().rev().flat_map(own).collect()
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::successors(self.last.as_deref(), |part| part.before.as_deref())
    }
}

impl From<Vec<Arc<Item>>> for Items {
    fn from(own: Vec<Arc<Item>>) -> Items {
        let mut items = Items::default();
        items.extend(own);
        items
    }
}

impl Drop for Part {
    /// One after the other: each in the end of the next would take more stack than there is.
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(mut part) = before.and_then(Arc::into_inner) {
            before = part.before.take();
        }
    }
}

fn print_after(before: u64, item: &Item) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, item.print).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(text: &str) -> Arc<Item> {
        Arc::new(Item::parse("input", &json!({"role": "user", "content": text})).unwrap())
    }

    fn texts<'a>(items: impl IntoIterator<Item = &'a Arc<Item>>) -> Vec<String> {
        items.into_iter().map(|item| item.json["content"].as_str().unwrap().to_owned()).collect()
    }

    /// In parts of 2, 1 and 3.
    fn six() -> Items {
        let mut items = Items::from(vec![said("0"), said("1")]);
        items.extend([said("2")]);
        items.extend([]);
        items.extend(["3", "4", "5"].map(said));
        items
    }

    #[test]
    fn every_beginning_and_end_is_found() {
        let items = six();
        assert_eq!(items.len(), 6);
        for count in 0..=6 {
            let numbers: Vec<String> = (0..6).map(|number: usize| number.to_string()).collect();
            assert_eq!(texts(&items.after(count)), numbers[count..]);
            let beginning: Vec<String> = numbers[..count].iter().rev().cloned().collect();
            assert_eq!(texts(items.backwards(count)), beginning);
        }
        assert_eq!(texts(items.last()), ["5"]);
    }

    #[test]
    fn prints_do_not_depend_on_the_parts() {
        let whole = Items::from(["0", "1", "2", "3", "4", "5"].map(said).to_vec());
        assert_eq!(six().prints(), whole.prints());
        let other = Items::from(["0", "1", "2", "x", "4", "5"].map(said).to_vec());
        assert_eq!(other.prints()[..3], whole.prints()[..3]);
        assert!(other.prints()[3..].iter().zip(&whole.prints()[3..]).all(|(one, two)| one != two));
    }

    #[test]
    fn what_one_adds_the_other_does_not_have() {
        let before = six();
        let [mut one, mut two] = [before.clone(), before.clone()];
        one.extend([said("6")]);
        two.extend([said("7")]);
        assert_eq!(
            (texts(&one.after(6)), texts(&two.after(6)), before.len()),
            (vec!["6".into()], vec!["7".into()], 6)
        );
    }

    #[test]
    fn thoughts_and_declarations_are_known_without_a_search() {
        let thought = json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "So."}]});
        let tools = json!({"type": "additional_tools", "role": "developer", "tools": []});
        let mut items = six();
        assert!(!items.has_thought_before(6) && items.declaring().is_empty());
        items.extend([thought, tools].map(|item| Arc::new(Item::parse("input", &item).unwrap())));
        assert!(items.has_thought_before(7) && !items.has_thought_before(6));
        assert_eq!(items.declaring().len(), 1);
    }

    #[test]
    fn a_conversation_of_very_many_turns_is_let_go_of() {
        let (mut items, item) = (Items::default(), said("again"));
        (0..100_000).for_each(|_| items.extend([item.clone()]));
        drop(items);
    }
}
