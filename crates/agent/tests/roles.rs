//! The files that say which other agents there are: those that are right, those that are not, and those that mean harm.

use flint_agent::approve::Policy;
use flint_agent::config::Places;
use flint_agent::hands::{Found, Role, find};
use flint_sandbox::Mode;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A user's home, a project, and what is around them.
struct Place {
    around: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { around: tempfile::tempdir().unwrap() };
        for folder in ["home/agents", "project/.git", "project/.flint/agents", "project/.codex/agents"] {
            fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        place
    }

    fn path(&self) -> &Path {
        self.around.path()
    }

    fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path().join(file), text).unwrap();
    }

    fn found(&self, trusted: bool, flags: &[&str]) -> Found {
        let (home, folder) = (self.path().join("home"), self.path().join("project").canonicalize().unwrap());
        let level = if trusted { "trusted" } else { "untrusted" };
        self.write("home/config.toml", format!("[projects.{folder:?}]\ntrust_level = \"{level}\"\n"));
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let places = Places { home: home.clone(), folder, flags, ..Places::default() };
        find(&home, &places.load().unwrap())
    }
}

fn names(found: &Found) -> Vec<&str> {
    found.roles.iter().map(|role| role.name.as_str()).collect()
}

#[track_caller]
fn told(found: &Found, words: &str) {
    assert!(found.told.iter().any(|told| told.contains(words)), "no {words:?} in {:#?}", found.told);
}

#[test]
fn a_file_says_what_an_agent_is() {
    let place = Place::new();
    let text = "name = 'reviewer'\ndescription = 'Looks.'\nmodel = 'gpt-5'\nmodel_provider = 'work'\n\
        model_reasoning_effort = 'high'\ndeveloper_instructions = '''\nLook.\n'''\nsandbox_mode = 'read-only'\n\
        approval_policy = 'untrusted'\n";
    place.write("home/agents/a.toml", text);
    place.write("home/agents/plain.toml", "");
    place.write("home/agents/.hidden.toml", "?");
    place.write("home/agents/readme.md", "?");
    let found = place.found(false, &[]);
    assert_eq!((names(&found), &found.told), (vec!["reviewer", "plain"], &Vec::new()));
    let said = |text: &str| Some(text.to_owned());
    let whole = Role {
        name: "reviewer".to_owned(),
        description: "Looks.".to_owned(),
        file: found.roles[0].file.clone(),
        model: said("gpt-5"),
        provider: said("work"),
        effort: said("high"),
        instructions: said("Look."),
        sandbox: Some(Mode::ReadOnly),
        approvals: Some(Policy::Untrusted),
    };
    assert_eq!(found.roles[0], whole);
}

#[test]
fn the_users_come_first_and_a_projects_only_if_it_is_trusted() {
    let place = Place::new();
    place.write("home/agents/a.toml", "description = 'the user'");
    place.write("project/.flint/agents/a.toml", "description = 'the project'");
    place
        .write("project/.flint/agents/b.toml", "description = 'Flint'\nmodel = 'x'\nmodel_provider = 'evil'");
    place.write("project/.codex/agents/b.toml", "description = 'Codex'");
    place.write("project/.codex/agents/c.toml", "nickname_candidates = ['Al']");
    let found = place.found(false, &[]);
    assert_eq!((names(&found), found.told.len()), (vec!["a"], 0));
    let found = place.found(true, &[]);
    let about: Vec<&str> = found.roles.iter().map(|role| role.description.as_str()).collect();
    assert_eq!((names(&found), about), (vec!["a", "b", "c"], vec!["the user", "Flint", ""]));
    assert_eq!(found.roles[1].provider, None);
    told(&found, "b.toml:3: `model_provider` is ignored: a project cannot set it");
    told(&found, ".flint/agents/a.toml: the agent `a` is that of ");
    told(&found, ".codex/agents/b.toml: the agent `b` is that of ");
    told(&found, "c.toml:1: `nickname_candidates` means nothing in an agent's file");
}

#[test]
fn rights_are_narrowed_and_never_widened() {
    let place = Place::new();
    for (file, rights) in [
        ("all", "sandbox_mode = 'danger-full-access'\napproval_policy = 'never'"),
        ("same", "sandbox_mode = 'workspace-write'\napproval_policy = 'on-request'"),
        ("less", "sandbox_mode = 'read-only'\napproval_policy = 'untrusted'"),
    ] {
        place.write(&format!("home/agents/{file}.toml"), rights);
        place.write(&format!("project/.flint/agents/p-{file}.toml"), rights);
    }
    let rights = |flags: &[&str]| {
        let found = place.found(true, flags);
        let ignored = found.told.iter().filter(|told| told.contains("fewer rights than the session")).count();
        assert_eq!(ignored, found.told.len(), "{:?}", found.told);
        let rights = |role: &Role| (role.name.clone(), role.sandbox, role.approvals);
        (found.roles.iter().map(rights).collect::<Vec<_>>(), ignored)
    };
    let own =
        |name: &str, mode, policy| [name.to_owned(), format!("p-{name}")].map(|name| (name, mode, policy));
    let (less, same) = (
        own("less", Some(Mode::ReadOnly), Some(Policy::Untrusted)),
        own("same", Some(Mode::WorkspaceWrite), Some(Policy::OnRequest)),
    );
    let sorted = |mut all: Vec<(String, Option<Mode>, Option<Policy>)>| {
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    let (found, ignored) = rights(&[]);
    assert_eq!(sorted(found), sorted([own("all", None, None), less.clone(), same].concat()));
    assert_eq!(ignored, 4);
    let (found, ignored) = rights(&["sandbox_mode=read-only", "approval_policy=untrusted"]);
    assert_eq!(sorted(found), sorted([own("all", None, None), less, own("same", None, None)].concat()));
    assert_eq!(ignored, 8);
}

#[test]
fn what_is_no_role_is_told_and_left_out() {
    let place = Place::new();
    place.write("secret.toml", "developer_instructions = 'hush'");
    let agents = place.path().join("project/.flint/agents");
    symlink(place.path().join("secret.toml"), agents.join("link.toml")).unwrap();
    symlink("/dev/zero", agents.join("zero.toml")).unwrap();
    let pipe = agents.join("pipe.toml");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir(agents.join("folder.toml")).unwrap();
    for (file, text) in [
        ("bytes.toml", &b"name = '\xff'"[..]),
        ("large.toml", &[b'#'; 70_000]),
        ("broken.toml", b"a = 1\nb = = 2"),
        ("kind.toml", b"description = 'x'\nmodel = 3"),
        ("choice.toml", b"sandbox_mode = 'all'"),
        ("name.toml", b"name = 'a b\\u001b[2J'"),
        ("escape.toml", b"name = \"a\\u001b[2J\""),
        ("stop.toml", b""),
        ("long.toml", b"name = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"),
        ("half.toml", b"model_provider = 'x'"),
    ] {
        fs::write(agents.join(file), text).unwrap();
        if file == "half.toml" {
            // Of a project it would not count at all.
            fs::rename(agents.join(file), place.path().join("home/agents").join(file)).unwrap();
        }
    }
    let found = place.found(true, &[]);
    assert_eq!(names(&found), Vec::<&str>::new());
    for words in [
        "link.toml: it is a link",
        "zero.toml: it is a link",
        "pipe.toml: it is not a file",
        "bytes.toml: it is not UTF-8 text",
        "large.toml: it has more than 65536 bytes",
        "broken.toml:2: ",
        "kind.toml:2: `model` is 3, expected a text",
        "choice.toml:1: `sandbox_mode` is \"all\", expected one of read-only",
        "name.toml:1: `a b",
        "escape.toml:1: `a\\u{1b}[2J` is no agent's name",
        "stop.toml:1: `stop` is no agent's name",
        "long.toml:1: ",
        "half.toml:1: `model_provider` needs a `model`",
    ] {
        told(&found, words);
    }
    let all = found.told.concat();
    assert!(!all.contains("hush") && !all.contains('\x1b'), "{all}");
}

#[test]
fn a_folder_that_leads_out_of_the_project_is_not_read() {
    let place = Place::new();
    fs::create_dir(place.path().join("elsewhere")).unwrap();
    place.write("elsewhere/a.toml", "");
    fs::remove_dir(place.path().join("project/.flint/agents")).unwrap();
    symlink(place.path().join("elsewhere"), place.path().join("project/.flint/agents")).unwrap();
    let found = place.found(true, &[]);
    assert_eq!(names(&found), Vec::<&str>::new());
    told(&found, "/.flint/agents is no folder, or a link");
}

#[test]
fn there_are_only_so_many() {
    let place = Place::new();
    for number in 0..70 {
        place.write(&format!("home/agents/a{number:02}.toml"), "");
    }
    let found = place.found(false, &[]);
    assert_eq!((found.roles.len(), names(&found)[15]), (16, "a15"));
    told(&found, "agents: of 70 agents the first 64 are read");
    told(&found, "a16.toml: there are 16 agents already");
}
