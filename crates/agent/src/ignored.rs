//! Settings that the model or the server that answered had no use for: each is told, with where it stands.

use crate::agent::Agent;
use crate::settings::{Said, Settings};
use crate::talk::{Event, Served};

impl Agent {
    /// After an answer: what is news of it, once in a session.
    pub(crate) async fn tell_ignored(&mut self, served: &Served) {
        for text in ignored(&self.settings, served) {
            if !self.ignored_told.contains(&text) {
                self.ignored_told.push(text.clone());
                self.tell(Event::Notice { text }).await;
            }
        }
    }

    /// What the last response said to have had no effect, settings or not.
    pub(crate) fn ignored(&self) -> Vec<String> {
        let Some(served) = &self.served else { return Vec::new() };
        let is_said = |field: &&String| self.settings.said.iter().any(|said| is_about(field, said));
        let fields = served.ignored.iter().filter(|field| !is_said(field));
        let fields = fields.map(|field| format!("{field}: this model or server has no use for it"));
        ignored(&self.settings, served).into_iter().chain(fields).collect()
    }
}

/// A line for each setting without effect.
fn ignored(settings: &Settings, served: &Served) -> Vec<String> {
    let line = |said: &Said| {
        let Said { key, place, .. } = said;
        if served.ignored.iter().any(|field| is_about(field, said)) {
            return Some(format!("{place}: `{key}` has no effect: {} has no use for it", served.model));
        }
        let (asked, granted) = (settings.tier.as_deref()?, served.tier.as_deref()?);
        let asked = if asked == "fast" { "priority" } else { asked };
        let declined = *key == "service_tier" && asked != granted;
        declined.then(|| {
            format!("{place}: `{key}` has no effect: {asked:?} was asked for, and {granted:?} granted")
        })
    };
    settings.said.iter().filter_map(line).collect()
}

/// A server may name a field, or all of which it is a part.
fn is_about(field: &str, said: &Said) -> bool {
    said.field.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Layer, Source};
    use std::path::Path;

    #[test]
    fn each_setting_without_effect_is_told_with_its_line() {
        let text =
            "model_reasoning_effort = \"high\"\nmodel_verbosity = \"low\"\n\nservice_tier = \"fast\"\n";
        let file = Layer::parse(Source::User, Path::new("c.toml"), text).unwrap();
        let flags = Layer::flags(["model_reasoning_summary=auto"]).unwrap();
        let settings = Settings::read(&Config::resolve(&[file, flags]).unwrap().0);
        let told = |fields: &[&str], tier: Option<&str>| {
            let fields = fields.iter().map(|field| (*field).to_owned()).collect();
            let (model, tier) = ("m".to_owned(), tier.map(str::to_owned));
            ignored(&settings, &Served { model, tier, ignored: fields, ..Served::default() })
        };
        let effort = "c.toml:1: `model_reasoning_effort` has no effect: m has no use for it";
        let summary = "the command line: `model_reasoning_summary` has no effect: m has no use for it";
        assert_eq!(told(&["reasoning.effort"], Some("priority")), [effort]);
        assert_eq!(told(&["reasoning"], None), [effort, summary]);
        assert_eq!(
            told(&["text.verbosity", "store"], None),
            ["c.toml:2: `model_verbosity` has no effect: m has no use for it"]
        );
        assert_eq!(
            told(&[], Some("default")),
            ["c.toml:4: `service_tier` has no effect: \"priority\" was asked for, and \"default\" granted"]
        );
        assert!(told(&["reason", "reasoning.eff", ""], None).is_empty());
    }
}
