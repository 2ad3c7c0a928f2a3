//! A Codex set-up becomes one of Flint: what means the same is taken, all else is named with its line and why.

use flint_agent::config::{Config, Import, Layer, Left, Source, Value, import};
use proptest::prelude::*;
use std::path::Path;

const CODEX: &str = r#"
model = "qwen2.5-coder-1.5b"
model_provider = "work"
profile = "deep"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
model_reasoning_effort = "ultra"
web_search = "disabled"
notify = ["/usr/bin/notify-send", "done"]
developer_instructions = """
Say "why".
Be short."""

[model_providers.work]
name = "Work"
base_url = "https://models.example/v1"
model_catalog_url = "https://models.example/v1/models"
env_key = "WORK_KEY"
wire_api = "responses"
supports_websockets = true
experimental_bearer_token = "not-for-you"
http_headers = { x-api-key = "not-for-you", x-team = "a" }

[model_providers.old]
base_url = "https://old.example/v1"
wire_api = "chat"

[profiles.deep]
model = "gpt-oss-120b"
model_reasoning_effort = "high"

[profiles.cloud]
model_provider = "openai"
model = "gpt-5"

[projects."/srv/my app"]
trust_level = "trusted"

[sandbox_workspace_write]
network_access = true
writable_roots = ["/srv/cache"]

[features]
goals = false

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs"]
env = { DOCS_TOKEN = "not-for-you" }

[tui]
theme = "dark"
"#;

const FLINT: &str = r#"model = "qwen2.5-coder-1.5b"
model_provider = "work"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
developer_instructions = """
Say \"why\".
Be short."""

[sandbox_workspace_write]
network_access = true
writable_roots = ["/srv/cache"]

[model_providers.old]
base_url = "https://old.example/v1"

[model_providers.work]
name = "Work"
base_url = "https://models.example/v1"
env_key = "WORK_KEY"
wire_api = "responses"
supports_websockets = true

[projects."/srv/my app"]
trust_level = "trusted"

[profiles.deep]
model = "gpt-oss-120b"
model_reasoning_effort = "high"
"#;

const LEFT: &str = r#"c.toml:4: `profile` has no like: ask for the profile with `flint -p NAME`
c.toml:7: `model_reasoning_effort` is "ultra", expected one of none, minimal, low, medium, high, xhigh
c.toml:8: `web_search` means nothing to Flint
c.toml:9: `notify` names a program or a host, and Flint has no key for it
c.toml:17: `model_providers.work.model_catalog_url` names a program or a host, and Flint has no key for it
c.toml:21: `model_providers.work.experimental_bearer_token` is a secret or looks like one: put it in a variable and name that as the provider's env_key
c.toml:22: `model_providers.work.http_headers.x-api-key` is a secret or looks like one: put it in a variable and name that as the provider's env_key
c.toml:22: `model_providers.work.http_headers.x-team` names a program or a host, and Flint has no key for it
c.toml:26: `model_providers.old.wire_api` is "chat", expected one of responses
c.toml:33: `profiles.cloud.model_provider` needs the provider "openai", which Codex has built in: describe it as [model_providers.NAME] with a base_url, and import again
c.toml:34: `profiles.cloud.model` needs the provider "openai", which Codex has built in: describe it as [model_providers.NAME] with a base_url, and import again
c.toml:44: `features.goals` means nothing to Flint
c.toml:47: `mcp_servers.docs.command` names a program or a host, and Flint has no key for it
c.toml:48: `mcp_servers.docs.args` names a program or a host, and Flint has no key for it
c.toml:49: `mcp_servers.docs.env.DOCS_TOKEN` is a secret or looks like one: put it in a variable and name that as the provider's env_key
c.toml:52: `tui.theme` means nothing to Flint
"#;

fn brought(text: &str) -> Import {
    import(Path::new("c.toml"), text, None).unwrap()
}

fn left(import: &Import) -> String {
    import.left.iter().map(|left: &Left| format!("{left}\n")).collect()
}

/// What the text means, profiles included; no key of it is warned about.
fn sound(text: &str, source: Source) -> Vec<(Vec<String>, Value)> {
    let mut layer = Layer::parse(source, Path::new("f.toml"), text).unwrap();
    let mut entries: Vec<_> =
        layer.entries.iter().map(|entry| (entry.path.clone(), entry.value.clone())).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let profiles = match source {
        Source::User => layer.take_profiles(),
        _ => Vec::new(),
    };
    for layer in profiles.into_iter().map(|(_, layer)| layer).chain([layer]) {
        let (_, warnings) = Config::resolve(&[layer]).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}\n{text}");
    }
    entries
}

#[test]
fn a_whole_set_up_is_brought_over() {
    let import = brought(CODEX);
    assert_eq!(import.text, FLINT);
    assert_eq!(left(&import), LEFT);
    assert_eq!((import.taken.len(), import.left.len()), (16, 16));
    assert_eq!(import.taken[0].key, "model");
    assert_eq!(import.taken[0].place.to_string(), "c.toml:2");
    assert!(!format!("{import:?}").contains("not-for-you"));
    let meant = sound(&import.text, Source::User);
    let instructions = meant.iter().find(|(path, _)| path == &["developer_instructions"]).unwrap();
    assert_eq!(instructions.1, Value::Text("Say \"why\".\nBe short.".into()));
    // Once it is Flint's, it stays as it is.
    assert_eq!(brought(&import.text).text, import.text);
}

#[test]
fn a_model_comes_with_a_provider_that_can_be_known() {
    let openai = "the provider \"openai\"";
    let cases = [
        ("model = \"gpt-5\"", "", openai),
        ("model = \"gpt-5\"\nmodel_provider = \"ollama\"", "", "the provider \"ollama\""),
        ("model = \"m\"\nmodel_provider = \"flint\"", "model = \"m\"\nmodel_provider = \"flint\"\n", ""),
        // Without an address nobody can be asked.
        (
            "model = \"m\"\nmodel_provider = \"a\"\nmodel_providers.a.name = \"A\"",
            "[model_providers.a]\nname = \"A\"\n",
            "the provider \"a\"",
        ),
        (
            "model_provider = \"a\"\nmodel_providers.a.base_url = \"http://me:pass@a.example\"",
            "",
            "is a secret",
        ),
        ("model_verbosity = \"low\"", "model_verbosity = \"low\"\n", ""),
    ];
    for (codex, flint, why) in cases {
        let import = brought(codex);
        assert_eq!(import.text, flint, "{codex}");
        assert_eq!(import.left.is_empty(), why.is_empty(), "{codex}");
        assert!(left(&import).contains(why), "{codex}: {}", left(&import));
    }
}

#[test]
fn secrets_stay_where_they_are() {
    let key = "sk-proj-0123456789abcdef";
    let places = [
        format!("model_providers.a.env_key = \"{key}\""),
        format!("model_providers.a.base_url = \"https://a.example/v1?api-key={key}\""),
        "model_providers.a.base_url = \"https://a.example/v1?access_token=x\"".to_owned(),
        format!("developer_instructions = \"Use Authorization: Bearer {key}\""),
        format!("sandbox_workspace_write.writable_roots = [\"/tmp/{key}\"]"),
        format!("features.{key} = true"),
        format!("model_providers.a.query_params.x = \"{key}\""),
        "mcp_servers.a.bearer_token = \"x\"".to_owned(),
        "model_providers.a.env_key = \"0123-4567\"".to_owned(),
    ];
    for codex in &places {
        let import = brought(codex);
        assert_eq!(import.text, "", "{codex}");
        assert!(left(&import).contains("is a secret"), "{codex}: {}", left(&import));
        assert!(!format!("{import:?}").contains(key), "{codex}");
    }
    let named = "mcp_servers.a.bearer_token_env_var = \"A\"";
    assert!(left(&brought(named)).contains("a program or a host"));
}

#[test]
fn a_profile_file_stands_on_the_file_beside_it() {
    let base = brought(CODEX);
    let profile = |text: &str| import(Path::new("deep.config.toml"), text, Some(&base)).unwrap();
    assert_eq!(profile("model = \"gpt-oss-20b\"").text, "model = \"gpt-oss-20b\"\n");
    assert_eq!(
        profile("model_provider = \"old\"\nmodel = \"m\"").text,
        "model = \"m\"\nmodel_provider = \"old\"\n"
    );
    assert_eq!(profile("model_provider = \"openai\"\nmodel = \"m\"").text, "");
    assert_eq!(
        left(&profile("[profiles.x]\nmodel = \"m\"")),
        "deep.config.toml:2: `profiles.x.model` means nothing to Flint\n"
    );
}

#[test]
fn what_cannot_be_read_is_an_error_and_the_rest_is_bounded() {
    let error = |text: &str| import(Path::new("c.toml"), text, None).unwrap_err().to_string();
    assert!(error("model =").starts_with("c.toml:1: "));
    let many: String = (0..5_000).map(|index| format!("features.a{index} = true\n")).collect();
    assert!(error(&many).ends_with(": there are more than 4096 keys"), "{}", error(&many));
    let long = format!("[profiles.{}]\nmodel = \"m\"", "x".repeat(9_000));
    assert!(error(&long).ends_with("a name has more than 8192 bytes"), "{}", error(&long));
    // Names that stand before each table make a file longer than it was.
    let name = "n".repeat(8_000);
    let inner: Vec<String> = (0..200).map(|index| format!("a{index} = {{ name = \"\" }}")).collect();
    let grown = format!("profiles.{name}.model_providers = {{ {} }}", inner.join(", "));
    assert!(error(&grown).contains("it would become a file of"), "{}", error(&grown));
    let odd = brought("\"\\u001b[31m\" = 1\n\"\\u009b\".x = 2");
    assert!(!left(&odd).contains(['\u{1b}', '\u{9b}']), "{}", left(&odd));
}

fn text() -> impl Strategy<Value = String> {
    let name = "(a|b|\"a\\.b\"|\"\"|'\"'|\"\\\\n\"|\"\\\\u007f\"|'/x y'|\"\\\\u0085\")";
    let value = "(true|3|1\\.5|\"a\"|\"flint\"|'\"\\\\'|\"\\\\u0000\\\\r\\\\n\\\\\"\"|\"\"\"\\n\\n\"\"\"|\\[\"a\", '\"'\\]|\\[\\]|\\{\\}|\"trusted\"|\"http://a\"|\"never\")";
    let key = format!(
        "(profiles\\.{name}\\.)?(model|model_provider|developer_instructions|approval_policy|model_context_window|\
         model_providers\\.{name}\\.(base_url|name|env_key)|projects\\.{name}\\.trust_level|features\\.{name}|\
         sandbox_workspace_write\\.writable_roots|limits\\.a|{name})"
    );
    prop_oneof![
        4 => proptest::string::string_regex(&format!("({key} = {value}\n){{0,6}}")).unwrap(),
        1 => proptest::string::string_regex("([a-z_.]{0,9}|\\[[a-z.]{0,9}\\]|[=\"\\[\\]{},#\n ]|model|true|1){0,40}").unwrap(),
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_text_is_a_sound_file_or_an_error(text in text(), profile in any::<bool>()) {
        let base = brought("");
        let (base, source) = if profile { (Some(&base), Source::Profile) } else { (None, Source::User) };
        if let Ok(import) = import(Path::new("c.toml"), &text, base) {
            let given = Layer::parse(Source::User, Path::new("c.toml"), &text).unwrap();
            prop_assert_eq!(import.taken.len() + import.left.len(), given.entries.len());
            let meant = sound(&import.text, source);
            prop_assert_eq!(meant.len(), import.taken.len());
            for (path, value) in meant {
                prop_assert!(given.entries.iter().any(|entry| entry.path == path && entry.value == value));
            }
        }
    }
}
