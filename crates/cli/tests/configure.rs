//! `flint config` on the real binary.

mod support;

use std::path::Path;
use std::process::{Command, Output};
use support::{flint, stderr, stdout, succeeds};
use tempfile::TempDir;

/// A user with a Codex set-up.
struct User {
    folder: TempDir,
}

impl User {
    fn new(files: &[(&str, &str)]) -> User {
        let user = User { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(user.at(".codex/agents")).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(user.at(name), text).unwrap());
        user
    }

    fn at(&self, name: impl AsRef<Path>) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn flint(&self, args: &[&str]) -> Command {
        let mut command = flint();
        command.env("HOME", self.folder.path()).env("FLINT_HOME", self.at("flint"));
        command.current_dir(self.folder.path()).args(args);
        command
    }

    fn refused(&self, args: &[&str]) -> Output {
        let output = self.flint(args).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        output
    }

    fn says(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap()
    }
}

const CODEX: &str = "model = \"m\"\nmodel_provider = \"work\"\nweb_search = \"live\"\n\n[model_providers.work]\n\
                     base_url = \"https://models.example/v1\"\nexperimental_bearer_token = \"not-for-you\"\n";

fn codex() -> User {
    User::new(&[
        (".codex/config.toml", CODEX),
        (".codex/deep.config.toml", "model = \"large\"\n"),
        (".codex/agents/reviewer.toml", "name = \"reviewer\"\n"),
    ])
}

#[test]
fn a_codex_set_up_is_brought_over_and_shown() {
    let user = codex();
    let dry = succeeds(&mut user.flint(&["config", "import", "--dry-run"]));
    assert!(stdout(&dry).contains("base_url = \"https://models.example/v1\""), "{}", stdout(&dry));
    assert!(!user.at("flint/config.toml").exists());

    let output = succeeds(&mut user.flint(&["config", "import"]));
    let said = stderr(&output);
    for words in [
        "4 settings were taken, 2 were not",
        "config.toml:3: `web_search` means nothing to Flint",
        "config.toml:7: `model_providers.work.experimental_bearer_token` is a secret",
        "reviewer.toml: agents are not copied",
    ] {
        assert!(said.contains(words), "no {words:?} in:\n{said}");
    }
    assert!(!said.contains("not-for-you") && !user.says("flint/config.toml").contains("not-for-you"));

    let shown = succeeds(&mut user.flint(&["config", "show", "-p", "deep", "-c", "modle=x"]));
    let line = |start: &str| {
        let shown = stdout(&shown);
        let line = shown.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("no {start:?} in:\n{shown}")).to_owned()
    };
    assert!(line("model = ").starts_with("model = \"large\"  # "), "{}", line("model = "));
    assert!(line("model = ").ends_with("flint/deep.config.toml:3"), "{}", line("model = "));
    assert!(line("sandbox_mode = ").ends_with("# built in"));
    assert!(
        stderr(&shown).contains("nothing is called `modle`; did you mean `model`?"),
        "{}",
        stderr(&shown)
    );
}

#[test]
fn what_is_there_is_not_lost() {
    let user = codex();
    std::fs::create_dir(user.at("flint")).unwrap();
    std::fs::write(user.at("flint/config.toml"), "# mine\n").unwrap();
    let said = stderr(&user.refused(&["config", "import"]));
    assert!(said.contains("config.toml is there already") && said.contains("--force"), "{said}");
    assert_eq!(user.says("flint/config.toml"), "# mine\n");
    assert!(!user.at("flint/deep.config.toml").exists());

    succeeds(&mut user.flint(&["config", "import", "--force"]));
    assert!(user.says("flint/config.toml").contains("model = \"m\""));
    assert_eq!(user.says("flint/config.toml.before-import"), "# mine\n");
    let said = stderr(&user.refused(&["config", "import", "--force"]));
    assert!(said.contains("move it away first"), "{said}");
    assert_eq!(user.says("flint/config.toml.before-import"), "# mine\n");

    let said = stderr(&user.refused(&["config", "import", "flint"]));
    assert!(said.contains("is there already"), "{said}");
    let said = stderr(&user.refused(&["config", "import", ".codex/agents"]));
    assert!(said.contains("has no config.toml"), "{said}");
}

#[test]
fn the_schema_is_printed() {
    let output = succeeds(&mut User::new(&[]).flint(&["config", "schema"]));
    let schema: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(schema["properties"]["model"]["type"], "string");
}
