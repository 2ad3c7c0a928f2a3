//! Where things lie: the repository, and Flint's cache on this machine.

use crate::Outcome;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// `$FLINT_CACHE`, `$XDG_CACHE_HOME/flint`, or `~/.cache/flint`: the cache of `flint` itself.
pub fn cache() -> Outcome<PathBuf> {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(cache) = given("FLINT_CACHE") {
        return Ok(cache);
    }
    match (given("XDG_CACHE_HOME"), given("HOME")) {
        (Some(cache), _) => Ok(cache.join("flint")),
        (None, Some(home)) => Ok(home.join(".cache/flint")),
        (None, None) => Err("neither XDG_CACHE_HOME nor HOME is set: no place for the cache".into()),
    }
}
