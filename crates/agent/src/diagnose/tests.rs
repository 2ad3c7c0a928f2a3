use super::*;

fn found(output: &str) -> Found {
    Found::read(output, Path::new("/srv/here"))
}

fn told(output: &str) -> Vec<String> {
    found(output).all.iter().map(ToString::to_string).collect()
}

#[test]
fn lines_as_tools_write_them() {
    for (line, expected) in [
        // cargo check --message-format short
        ("src/a.rs:3:5: error[E0308]: mismatched types", "src/a.rs:3:5: error: [E0308]: mismatched types"),
        ("src/a.rs:3:5: warning: unused variable: `x`", "src/a.rs:3:5: warning: unused variable: `x`"),
        // gcc, clang
        (
            "./a.c:10:1: error: expected ';' before '}' token",
            "a.c:10:1: error: expected ';' before '}' token",
        ),
        ("a.c:1:10: fatal error: 'x.h' file not found", "a.c:1:10: error: 'x.h' file not found"),
        // tsc, plain and pretty
        (
            "src/a.ts(7,3): error TS2304: Cannot find name 'x'.",
            "src/a.ts:7:3: error: TS2304: Cannot find name 'x'.",
        ),
        (
            "src/a.ts:7:3 - error TS2304: Cannot find name 'x'.",
            "src/a.ts:7:3: error: TS2304: Cannot find name 'x'.",
        ),
        // pyright, mypy, ruff
        (
            "  /srv/here/a.py:2:5 - error: \"x\" is not defined (reportUndefinedVariable)",
            "a.py:2:5: error: \"x\" is not defined (reportUndefinedVariable)",
        ),
        (
            "a.py:2: error: Name \"x\" is not defined  [name-defined]",
            "a.py:2: error: Name \"x\" is not defined  [name-defined]",
        ),
        ("a.py:1:8: F401 [*] `os` imported but unused", "a.py:1:8: F401 [*] `os` imported but unused"),
        // eslint --format unix, go vet
        (
            "/srv/here/src/a.js:1:7: 'x' is never used. [Error/no-unused-vars]",
            "src/a.js:1:7: error: 'x' is never used. [Error/no-unused-vars]",
        ),
        ("./a.go:3:2: undefined: x", "a.go:3:2: undefined: x"),
        // rustc as it is
        (
            "error[E0425]: cannot find value `x`\n --> src/a.rs:2:5\n  |\n2 |     x\n",
            "src/a.rs:2:5: error: [E0425]: cannot find value `x`",
        ),
    ] {
        assert_eq!(told(line), [expected], "{line:?}");
    }
}

#[test]
fn other_lines_are_none() {
    for line in [
        "",
        "error: could not compile `a` (bin \"a\") due to 2 previous errors",
        "a.c:10:1: note: declared here",
        "src/a.rs:3:5: help: consider importing this",
        "12:30:45: begin",
        "2026-01-02T12:30:45: x.y: begin",
        "see https://example.org:80:1: error: no",
        "a.py: note: in function",
        "a.py:2: just words",
        "Found 3 errors in 2 files",
        " --> src/a.rs:2:5",
        ":1:2: error: x",
        "a.rs:99999999999999999999999: error: x",
        "a.rs:1:2:",
        "a.rs(1,2: error",
    ] {
        assert_eq!(told(line), Vec::<String>::new(), "{line:?}");
    }
}

#[test]
fn moved_lines_are_not_new_and_copies_are() {
    let before = found("a.rs:1:1: error: x\na.rs:9:1: warning: seen on line 4\nb.rs:1:1: error: y\n");
    let after = found(
        "a.rs:5:2: error: x\na.rs:13:1: warning: seen on line 8\na.rs:20:1: error: x\nc.rs:1:1: error: y\n",
    );
    let delta = after.since(&before);
    let new: Vec<String> = delta.new.iter().map(ToString::to_string).collect();
    assert_eq!((new, delta.gone), (vec!["a.rs:20:1: error: x".into(), "c.rs:1:1: error: y".into()], 1));
    assert_eq!(delta.to_string(), "new diagnostics:\na.rs:20:1: error: x\nc.rs:1:1: error: y\ngone: 1\n");
    assert_eq!(before.since(&before).to_string(), "no new diagnostics\n");
    assert_eq!(found("").since(&before).to_string(), "no new diagnostics\ngone: 3\n");
}

#[test]
fn much_is_told_in_short() {
    let many: String =
        (0..DIAGNOSTICS_MAX + 5).map(|index| format!("a.rs:{index}:1: error: e{index}\n")).collect();
    let found = found(&many);
    assert_eq!((found.all.len(), found.cut), (DIAGNOSTICS_MAX, true));
    let told = found.since(&Found::default()).to_string();
    assert_eq!(told.lines().count(), DIAGNOSTICS_TOLD_MAX + 2);
    assert!(told.ends_with(&format!("and {} more\n", DIAGNOSTICS_MAX - DIAGNOSTICS_TOLD_MAX)), "{told}");
}

#[test]
fn hostile_lines_take_no_long_time() {
    let began = std::time::Instant::now();
    for line in [
        ":".repeat(4 << 20),
        "a.b:1".repeat(1 << 20),
        "(".repeat(4 << 20),
        "é:1:1: error: \u{0}".repeat(1 << 18),
        "--> x\n".repeat(1 << 19),
    ] {
        found(&line);
    }
    let long = format!("a.rs:1:1: error: {}", "x".repeat(1 << 20));
    assert!(found(&long).all[0].message.len() <= DIAGNOSTIC_BYTES_MAX);
    assert!(began.elapsed() < std::time::Duration::from_secs(2));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read(text in "([a-z./é]{0,4}|[0-9]{1,3}|[:(),\\- \n\\[\\]]|error|warning|note|-->|TS){0,60}") {
        let found = found(&text);
        proptest::prop_assert_eq!(found.since(&found).new.len(), 0);
    }
}
