//! What runs unasked under each policy, for commands of all kinds.

#[path = "support/commands.rs"]
mod commands;
mod support;

use commands::{ASKS, LOOKS};
use flint_agent::approve::{Approvals, Opaque, Policy, Verdict, split};
use flint_agent::files::Change;
use flint_agent::root::Name;
use flint_agent::rules::{Rule, Rules, Scope, Word};
use flint_agent::tools::{Ran, ShellCall};
use flint_sandbox::Mode;
use proptest::prelude::*;
use std::process::Command;
use std::time::{Duration, SystemTime};
use support::{Place, call};

fn approvals(policy: Policy, mode: Mode) -> Approvals {
    Approvals { policy, mode, rules: Rules::default() }
}

fn unconfined(command: &str) -> ShellCall {
    ShellCall { unconfined: true, ..call(command) }
}

fn asks(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Ask { .. })
}

#[test]
fn what_only_looks_runs_and_all_else_is_asked_about() {
    assert!(LOOKS.len() >= 100 && ASKS.len() >= 280, "{} {}", LOOKS.len(), ASKS.len());
    for mode in [Mode::ReadOnly, Mode::WorkspaceWrite, Mode::DangerFullAccess] {
        let untrusted = approvals(Policy::Untrusted, mode);
        for command in LOOKS {
            // What a repository names runs in the sandbox only.
            let git = mode == Mode::DangerFullAccess && command.starts_with("git ");
            let verdict = untrusted.judge(&call(command));
            assert!(if git { asks(&verdict) } else { verdict == Verdict::Run }, "{command:?} {verdict:?}");
        }
        for command in ASKS {
            assert!(asks(&untrusted.judge(&call(command))), "{command:?}");
        }
    }
}

#[test]
fn each_policy_has_its_own_way() {
    for command in LOOKS.iter().chain(ASKS) {
        for mode in [Mode::ReadOnly, Mode::WorkspaceWrite] {
            for policy in [Policy::OnRequest, Policy::OnFailure, Policy::Never] {
                assert_eq!(approvals(policy, mode).judge(&call(command)), Verdict::Run, "{command:?}");
            }
            let never = approvals(Policy::Never, mode).judge(&unconfined(command));
            assert!(matches!(never, Verdict::Refuse { .. }), "{command:?}");
        }
        for policy in [Policy::OnRequest, Policy::OnFailure, Policy::Never] {
            let free = approvals(policy, Mode::DangerFullAccess);
            assert_eq!(free.judge(&unconfined(command)), Verdict::Run, "{command:?}");
        }
    }
}

/// Without the sandbox even a look reads what it should not.
#[test]
fn without_the_sandbox_nearly_all_is_asked_about() {
    let idle = ["pwd", "true", "false", "echo hello", "cd src && pwd", "cd src/deep"];
    for policy in [Policy::Untrusted, Policy::OnRequest, Policy::OnFailure] {
        let approvals = approvals(policy, Mode::WorkspaceWrite);
        for command in idle {
            assert_eq!(approvals.judge(&unconfined(command)), Verdict::Run, "{command:?}");
        }
        for command in ASKS.iter().chain(&[
            "ls",
            "cat a",
            "git status",
            "cd ..",
            "cd /",
            "cd ~",
            "cd -",
            "cd a/../..",
            "cd",
            "echo a*",
        ]) {
            assert!(asks(&approvals.judge(&unconfined(command))), "{command:?}");
        }
    }
}

fn rule(words: &[&str]) -> Rule {
    let word = |word: &&str| if *word == "…" { Word::Any } else { Word::Exactly((*word).to_owned()) };
    Rule { argv: words.iter().map(word).collect(), scope: Scope::Session, until: None, unconfined: true }
}

#[test]
fn rules_allow_what_they_say_and_nothing_else() {
    let rules = vec![rule(&["cargo", "test", "…"]), rule(&["rm", "a b"]), rule(&["make", "…", "x"])];
    let approvals =
        Approvals { rules: Rules::new(rules), ..approvals(Policy::OnRequest, Mode::WorkspaceWrite) };
    for command in [
        "cargo test",
        "cargo test --lib",
        "cargo 'test' x",
        "cargo test 2>&1",
        "cd src && cargo test",
        "rm 'a b'",
        "rm a\\ b",
        "cargo test; cargo test -q",
        "cargo test | cargo test",
        "make a x",
        "cargo test '; rm'",
        "echo begun && cargo test",
    ] {
        assert_eq!(approvals.judge(&unconfined(command)), Verdict::Run, "{command:?}");
    }
    for command in [
        "cargo",
        "cargo build",
        "cargo tests",
        "cargo +nightly test",
        "rm a b",
        "rm 'a b' c",
        "rm",
        "make x",
        "make a x b",
        "cargo test; rm x",
        "cargo test && rm x",
        "cargo test | sh",
        "cargo test\nrm x",
        "cargo test & rm x",
        "cargo test $(rm x)",
        "cargo test `rm x`",
        "cargo test > x",
        "A=b cargo test",
        "(cargo test)",
        "cargo test src/*",
        "cargo test ~",
        "cargo test {a,b}",
        "cd / && cargo test",
        "cd ../x && cargo test",
        "cargo test || sh",
        "cargo test <(rm x)",
        "! cargo test",
        "./cargo test",
        "cargo test # x",
        "if cargo test; then rm x; fi",
        "cargo\u{a0}test",
        "cargo test \"$(rm x)\"",
        "cargo test \\\n; rm x",
        "cargo test 'a",
        "env cargo test",
        "cargo test; ls",
    ] {
        assert!(asks(&approvals.judge(&unconfined(command))), "{command:?}");
    }
}

#[test]
fn rules_end_and_hold_where_they_were_given() {
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 3600);
    let until = Rule { until: Some(now + day), ..rule(&["cargo", "test"]) };
    let mut confined = approvals(Policy::Untrusted, Mode::WorkspaceWrite);
    confined.rules.add(Rule { unconfined: false, ..until.clone() });
    assert_eq!(confined.judge_at(&call("cargo test"), now), Verdict::Run);
    assert!(asks(&confined.judge_at(&call("cargo test"), now + day)));
    // A yes for the sandbox is none for what is outside of it.
    assert!(asks(&confined.judge_at(&unconfined("cargo test"), now)));
    let free = Approvals { mode: Mode::DangerFullAccess, ..confined.clone() };
    assert!(asks(&free.judge_at(&call("cargo test"), now)));
    // Given again, it replaces the older one.
    confined.rules.add(until);
    assert_eq!(confined.rules.iter().count(), 1);
    assert_eq!(confined.judge_at(&unconfined("cargo test"), now), Verdict::Run);
}

#[test]
fn rules_that_allow_everything_allow_nothing() {
    for words in [
        &["…"][..],
        &[],
        &["…", "test"],
        &["bash"],
        &["bash", "…"],
        &["bash", "-c", "…"],
        &["python3", "…"],
        &["python3", "-m", "…"],
        &["python3.11", "…"],
        &["/usr/bin/env", "…"],
        &["env", "FOO=1", "…"],
        &["sudo", "make", "…"],
        &["xargs", "…"],
        &["find", ".", "…"],
        &["git", "…"],
        &["git", "…", "log"],
        &["bash", "-m", "pytest", "…"],
        &["ssh", "host", "…"],
        &["npx", "…"],
        &["docker", "run", "…"],
    ] {
        let approvals = Approvals {
            rules: Rules::new(vec![rule(words)]),
            ..approvals(Policy::OnRequest, Mode::WorkspaceWrite)
        };
        assert!(rule(words).is_open(), "{words:?}");
        for command in
            ["bash", "bash -c x", "python3 -m http.server", "git log", "find . -delete", "sudo make x"]
        {
            assert!(asks(&approvals.judge(&unconfined(command))), "{words:?} {command}");
        }
    }
}

fn offered(approvals: &Approvals, call: &ShellCall, now: SystemTime) -> Vec<String> {
    match approvals.judge_at(call, now) {
        Verdict::Ask { rules, .. } => rules.iter().map(|rule| rule.told(now)).collect(),
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn the_narrowest_rule_is_offered_first() {
    let now = SystemTime::now();
    let approvals = approvals(Policy::OnRequest, Mode::WorkspaceWrite);
    let all = |command: &str| offered(&approvals, &unconfined(command), now);
    assert_eq!(
        all("cd src && cargo test --lib 'a b'"),
        [
            "`cargo test --lib 'a b'` without the sandbox, in this session",
            "`cargo test --lib 'a b'` without the sandbox, in this project, for 30 days",
            "`cargo test …` without the sandbox, in this session",
            "`cargo test …` without the sandbox, in this project, for 30 days",
        ]
    );
    assert_eq!(all("npm run lint -- --fix")[2], "`npm run lint …` without the sandbox, in this session");
    assert_eq!(all("python3 -m pytest -q")[2], "`python3 -m pytest …` without the sandbox, in this session");
    assert_eq!(all("make test")[2], "`make test …` without the sandbox, in this session");
    // Exactly this, and nothing like it.
    for command in [
        "python3 a.py",
        "bash -c ls",
        "sudo make",
        "find . -delete",
        "rm a",
        "git push",
        "cargo run",
        "make -f x",
        "npm run -s",
    ] {
        let rules = all(command);
        assert_eq!(rules.len(), 2, "{rules:?}");
        assert!(!rules[0].contains('…'), "{rules:?}");
    }
    // Nothing that a rule could say.
    for command in ["bash", "env", "ls > a", "ls *", "rm a && rm b", "A=b ls", "git add src/*"] {
        assert_eq!(all(command), [""; 0], "{command}");
    }
    let confined = offered(
        &Approvals { policy: Policy::Untrusted, ..approvals.clone() },
        &call("ls && cargo test"),
        now,
    );
    assert_eq!(confined[0], "`cargo test`, in this session");
    // What is offered is enough.
    for command in
        ["cargo test -q", "npm run lint", "python3 -m pytest", "rm 'a\u{1b}b'", "grep \"a\\\"b\" 'c'"]
    {
        let Verdict::Ask { rules, .. } = approvals.judge(&unconfined(command)) else { panic!("{command}") };
        for rule in rules {
            assert!(!rule.to_string().contains('\u{1b}'));
            let approvals = Approvals { rules: Rules::new(vec![rule]), ..approvals.clone() };
            assert_eq!(approvals.judge(&unconfined(command)), Verdict::Run, "{command}");
        }
    }
}

#[test]
fn what_was_refused_may_be_asked_for_again() {
    let ran = |denied| Ran {
        code: Some(1),
        output: String::new(),
        took: Duration::ZERO,
        timed_out: false,
        stopped: false,
        denied,
        notes: Vec::new(),
    };
    let on_failure = approvals(Policy::OnFailure, Mode::WorkspaceWrite);
    assert!(on_failure.judge_again(&call("cargo test"), &ran(true)).is_some_and(|verdict| asks(&verdict)));
    assert_eq!(on_failure.judge_again(&call("cargo test"), &ran(false)), None);
    assert_eq!(on_failure.judge_again(&unconfined("cargo test"), &ran(true)), None);
    let allowed = Approvals { rules: Rules::new(vec![rule(&["cargo", "test"])]), ..on_failure };
    assert_eq!(allowed.judge_again(&call("cargo test"), &ran(true)), Some(Verdict::Run));
    for policy in [Policy::Untrusted, Policy::OnRequest, Policy::Never] {
        let approvals = approvals(policy, Mode::WorkspaceWrite);
        assert_eq!(approvals.judge_again(&call("cargo test"), &ran(true)), None);
    }
}

#[test]
fn edits_are_judged() {
    let place = Place::new();
    place.write(".flint/config.toml", "");
    place.write("src/a.rs", "");
    place.link(&place.work.join(".flint"), "link");
    place.write(".git/hooks/x", "");
    place.link(std::path::Path::new("../.git/hooks"), "src/inner");
    let judge = |policy, mode, path: &str| {
        let changes =
            [Change { name: Name::new(path).unwrap(), before: None, after: Some((Vec::new(), 0o644)) }];
        approvals(policy, mode).judge_files(&changes, &place.work)
    };
    let guarded = [
        "AGENTS.md",
        "sub/agents.md",
        ".flint/config.toml",
        ".FLINT/new/x",
        ".codex/config.toml",
        "link/config.toml",
        "link/new/deep",
        "src/inner/pre-commit",
        "CLAUDE.md",
        ".mcp.json",
        ".gitmodules",
    ];
    for path in guarded {
        for policy in [Policy::Untrusted, Policy::OnRequest, Policy::OnFailure] {
            assert!(asks(&judge(policy, Mode::WorkspaceWrite, path)), "{path}");
        }
        assert!(matches!(judge(Policy::Never, Mode::WorkspaceWrite, path), Verdict::Refuse { .. }), "{path}");
        assert_eq!(judge(Policy::Never, Mode::DangerFullAccess, path), Verdict::Run);
    }
    for path in ["src/a.rs", "new/file", "agents.rs", "src/flint/x"] {
        assert!(asks(&judge(Policy::Untrusted, Mode::WorkspaceWrite, path)), "{path}");
        for policy in [Policy::OnRequest, Policy::OnFailure, Policy::Never] {
            assert_eq!(judge(policy, Mode::WorkspaceWrite, path), Verdict::Run, "{path}");
        }
        assert!(asks(&judge(Policy::OnRequest, Mode::ReadOnly, path)));
        assert!(matches!(judge(Policy::Never, Mode::ReadOnly, path), Verdict::Refuse { .. }));
    }
}

#[test]
fn policies_have_names() {
    let names = ["untrusted", "on-request", "on-failure", "never"];
    let policies = [Policy::Untrusted, Policy::OnRequest, Policy::OnFailure, Policy::Never];
    assert_eq!(names.map(|name| name.parse::<Policy>().unwrap()), policies);
    assert!("always".parse::<Policy>().is_err());
}

#[test]
fn why_a_line_is_opaque_is_told() {
    for (command, why) in [
        ("ls $x", Opaque::Substitution),
        ("ls > a", Opaque::Redirection),
        ("ls &", Opaque::Background),
        ("(ls)", Opaque::Brackets),
        ("A=b ls", Opaque::Assignment),
        ("if a", Opaque::Keyword),
        ("ls *", Opaque::Expansion),
        ("ls # a", Opaque::Comment),
        ("ls é", Opaque::Character),
        ("ls 'a", Opaque::Syntax),
        ("", Opaque::Empty),
    ] {
        assert_eq!(split(command).unwrap_err(), why, "{command}");
        let Verdict::Ask { why: said, .. } =
            approvals(Policy::Untrusted, Mode::ReadOnly).judge(&call(command))
        else {
            panic!()
        };
        assert_eq!(said, format!("it may do more than look: {why}"));
    }
    assert_eq!(split(&"a ".repeat(40_000)).unwrap_err(), Opaque::Long);
    assert_eq!(split(&"a;".repeat(100)).unwrap_err(), Opaque::Long);
}

/// The commands that bash runs, with every program replaced by one that tells its words, and succeeds or fails.
fn bash_runs(command: &str, folder: &std::path::Path, code: u8) -> Vec<Vec<String>> {
    // In one piece: what stands on both sides of a `|` runs at once.
    let tell = "command_not_found_handle() { printf '%s\\0' \"$@\" $'\\1' >&3; return ";
    let script = format!("exec 3>&1 >/dev/null 2>&1\n{tell}{code}; }}\nPATH=/nonexistent\n{command}");
    let output = Command::new("bash").args(["--norc", "-c", &script]).current_dir(folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut commands = vec![Vec::new()];
    for word in text.split_terminator('\0') {
        match word {
            "\u{1}" => commands.push(Vec::new()),
            word => commands.last_mut().unwrap().push(word.to_owned()),
        }
    }
    commands.pop();
    commands
}

/// What makes a line opaque, or does not belong there.
const ROUGH: &str = "\\ > < & &1 &2 2> $ $x ` ( ) { } # * ? [ ! = if then fi é \r \u{a0} $(bb) ;; |& &> << >> x=1 {aa,bb} \\\n time ' \" ~";

/// What is split.
const SMOOTH: &str = "aa bb cc -x 1 2 \t \n ; && || | ''  'de' \"vw\" 'h;i' \"j|k\" \\; \\' \\\" 2>&1 >/dev/null 2>/dev/null ] , % ^ - + @ \
    '\"' \"'\" \"\\\"\" \"\\\\\" \\\\ '$x' '`' '(bb)' \"\\$x\" '#' 'é' \"*\"";

fn pieces() -> impl Strategy<Value = Vec<String>> {
    let smooth = SMOOTH
        .split(' ')
        .chain(["\\ ", "'d e'", "\"v w\"", "aa ", " bb", " && cc"])
        .map(|piece| format!("{piece} "));
    let tight = SMOOTH.split(' ').map(str::to_owned);
    let smooth: Vec<String> = smooth.chain(tight).collect();
    let rough: Vec<String> = ROUGH.split(' ').map(str::to_owned).collect();
    let piece = prop_oneof![12 => proptest::sample::select(smooth), 1 => proptest::sample::select(rough)];
    proptest::collection::vec(piece, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Whatever is split, bash runs nothing that was not seen.
    #[test]
    fn bash_sees_no_other_commands(pieces in pieces()) {
        let command = pieces.concat();
        if let Ok(commands) = split(&command) {
            let folder = tempfile::tempdir().unwrap();
            let seen: Vec<&Vec<String>> = commands.iter().map(|simple| &simple.argv).collect();
            let tilde = commands.iter().any(|simple| simple.expands && simple.argv.iter().any(|word| word.contains('~')));
            let mut ran = Vec::new();
            for code in [0, 1] {
                ran.extend(bash_runs(&command, folder.path(), code));
            }
            for argv in &ran {
                prop_assert!(tilde || seen.contains(&argv), "{:?}: {:?} is not in {:?}", command, argv, seen);
            }
            prop_assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "{:?} wrote a file", command);
            // The first one runs in any case, so it must have been seen as it is.
            let plain = !seen[0][0].contains('/') && !seen[0][0].starts_with(['%', ':']);
            prop_assert!(tilde || !plain || ran.contains(seen[0]), "{:?}: {:?} did not run", command, seen[0]);
        }
    }

    /// Words that are quoted come back as they were, and nothing in them counts.
    #[test]
    fn quoted_words_are_words(words in proptest::collection::vec("[^\0]{0,8}", 1..5)) {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let command = format!("aa {}", quoted.join(" "));
        let commands = split(&command).unwrap();
        prop_assert_eq!(commands.len(), 1);
        prop_assert_eq!(&commands[0].argv[1..], &words[..]);
    }

    #[test]
    fn any_text_is_judged(text in "\\PC{0,60}") {
        for policy in [Policy::Untrusted, Policy::OnRequest, Policy::OnFailure, Policy::Never] {
            approvals(policy, Mode::WorkspaceWrite).judge(&unconfined(&text));
        }
    }
}
