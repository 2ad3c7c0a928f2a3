//! The variables that a command is given: those that are known to be harmless, and those that the policy names.

use std::ffi::OsString;

const HARMLESS: [&str; 22] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TZ",
    "EDITOR",
    "PAGER",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "NVM_DIR",
    "PYENV_ROOT",
    "CI",
];

pub fn kept(
    all: impl Iterator<Item = (OsString, OsString)>,
    more: &[String],
) -> impl Iterator<Item = (OsString, OsString)> {
    all.filter(move |(name, _)| {
        let Some(name) = name.to_str() else { return false };
        HARMLESS.contains(&name) || name.starts_with("LC_") || more.iter().any(|more| more == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_behind() {
        let all = ["PATH", "LC_ALL", "AWS_SECRET_ACCESS_KEY", "FLINT_API_KEY", "LD_PRELOAD", "MY_FLAG"];
        let all = all.map(|name| (OsString::from(name), OsString::from("x")));
        let names: Vec<_> = kept(all.into_iter(), &["MY_FLAG".into()]).map(|(name, _)| name).collect();
        assert_eq!(names, ["PATH", "LC_ALL", "MY_FLAG"]);
    }
}
