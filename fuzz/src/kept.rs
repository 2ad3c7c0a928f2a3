//! What must hold for the files that the agent keeps or is given. Settings: they are refused in words, or mean what they say;
//! what is brought over from Codex is a file without a warning. Sessions: what is whole before the damage is there.

use flint_agent::config::{Config, Layer, Source, import};
use flint_agent::sessions::records_of;
use std::path::Path;

/// A configuration file, of Flint or of Codex.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for source in [Source::User, Source::Profile, Source::Project] {
        match Layer::parse(source, Path::new("c.toml"), &text) {
            Ok(layer) => resolved(layer),
            Err(error) => in_words(&error.to_string()),
        }
    }
    brought_over(&text);
}

fn resolved(mut layer: Layer) {
    let profiles = layer.take_profiles();
    for layer in profiles.into_iter().map(|(_, layer)| layer).chain([layer]) {
        let keys = layer.entries.len();
        match Config::resolve(&[layer]) {
            Ok((config, warnings)) => {
                warnings.iter().for_each(|warning| in_words(&warning.to_string()));
                assert!(config.show().lines().count() + warnings.len() <= keys);
            }
            Err(error) => in_words(&error.to_string()),
        }
    }
}

fn brought_over(text: &str) {
    let import = match import(Path::new("c.toml"), text, None) {
        Ok(import) => import,
        Err(error) => return in_words(&error.to_string()),
    };
    import.left.iter().for_each(|left| in_words(&left.to_string()));
    import.taken.iter().for_each(|taken| in_words(&taken.key));
    let mut layer =
        Layer::parse(Source::User, Path::new("f.toml"), &import.text).expect("what is written is read");
    assert_eq!(layer.entries.len(), import.taken.len());
    let profiles = layer.take_profiles();
    for layer in profiles.into_iter().map(|(_, layer)| layer).chain([layer]) {
        let (_, warnings) = Config::resolve(&[layer]).expect("what is written is allowed");
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

fn in_words(text: &str) {
    assert!(!text.is_empty(), "no words");
    assert!(!text.contains('\u{1b}'), "an escape sequence: {text:?}");
}

/// A session's file.
pub fn sessions(bytes: &[u8]) {
    match records_of("a", bytes) {
        Ok(records) => {
            assert!(records.len() <= bytes.split(|byte| *byte == b'\n').count());
            // What a crash leaves of it is read too, and holds no more.
            let cut = &bytes[..bytes.len() / 2];
            let before = records_of("a", cut).expect("a beginning of what is sound is sound");
            assert!(records.starts_with(&before));
        }
        Err(error) => in_words(&error.to_string()),
    }
}
