//! Commands in the real sandbox, and what is left of them.

mod support;

use flint_agent::tools::ToolError;
use flint_sandbox::Mode;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Place, call, can_confine, output, run};

#[test]
fn a_command_writes_to_a_terminal_and_its_code_is_told() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let shop = place.open();
    let ran = output(&shop, "test -t 1 && test -t 2 && echo terminal; pwd; echo gone >&2; exit 3");
    assert_eq!(ran.output, format!("terminal\n{}\ngone\n", place.work.display()));
    assert_eq!((ran.code, ran.timed_out, ran.stopped, ran.denied), (Some(3), false, false, false));
    assert_eq!(output(&shop, "echo $TERM $NO_COLOR $PAGER $GIT_PAGER").output, "dumb 1 cat cat\n");
    assert_eq!(output(&shop, "[[ a == a ]] && echo bash").output, "bash\n");
    assert_eq!(output(&shop, "kill -9 $$").code, Some(137));
}

#[test]
fn output_streams_in_order_as_it_comes() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let (mut pieces, stop) = (Vec::new(), AtomicBool::new(false));
    // Each line is written only when the one before was seen: otherwise this would take until the time limit.
    let line = "echo one; while [ ! -e seen-one ]; do :; done; printf t; printf 'wo\\r\\n'; echo three >&2; \
                while [ ! -e seen-three ]; do :; done; printf 'f\\xc3'; printf '\\xbcnf'";
    let ran = place.open().shell(
        &call(line),
        &mut |piece| {
            pieces.push(piece.to_owned());
            for word in ["one", "three"].iter().filter(|word| pieces.concat().contains(**word)) {
                place.write(&format!("seen-{word}"), "");
            }
        },
        &stop,
    );
    let ran = ran.unwrap();
    assert_eq!(ran.output, "one\ntwo\nthree\nfünf");
    assert_eq!(pieces.concat(), ran.output);
    assert!(!ran.timed_out && pieces.len() > 2, "{pieces:?}");
}

#[test]
fn what_reads_gets_the_end_of_the_input() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let shop = place.open();
    for command in [
        "cat; cat; echo end",
        "read line; echo end",
        "python3 -c 'import sys; sys.stdin.read(); print(\"end\")'",
        "python3 -c 'input()' >/dev/null 2>&1; echo end",
        "python3 -ic '' >/dev/null 2>&1; echo end",
        "bash -i >/dev/null 2>&1; echo end",
        "(cat </dev/tty) >/dev/null 2>&1; echo end",
        "git init -q . && touch a && git add a && git commit -q >/dev/null 2>&1; echo end",
    ] {
        let ran = output(&shop, command);
        assert_eq!((ran.output.as_str(), ran.timed_out), ("end\n", false), "{command}");
    }
}

#[test]
fn a_time_limit_ends_the_whole_tree() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let mut call =
        call("trap '' TERM HUP; (setsid sh -c 'echo $$ > pid; exec sleep 1000' &); echo begun; sleep 1000");
    call.timeout = Duration::from_millis(700);
    let begun = Instant::now();
    let ran = place.open().shell(&call, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert_eq!((ran.code, ran.timed_out, ran.output.as_str()), (None, true, "begun\n"));
    assert!(begun.elapsed() < Duration::from_secs(30) && ran.took >= call.timeout);
    assert!(ran.notes[0].starts_with("it was ended after"), "{:?}", ran.notes);
    let daemon = place.says("pid");
    assert!(!Path::new("/proc").join(daemon.trim()).exists(), "{daemon}");
}

#[test]
fn a_command_can_be_stopped() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let stop = AtomicBool::new(false);
    let seen = &mut |_: &str| stop.store(true, Ordering::Relaxed);
    let ran = place.open().shell(&call("echo begun; sleep 1000"), seen, &stop).unwrap();
    assert_eq!((ran.code, ran.stopped, ran.timed_out), (None, true, false));
    assert_eq!(ran.output, "begun\n");
}

#[test]
fn long_output_loses_its_middle() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let shop = place.open();
    let ran = output(&shop, "seq 1 100000");
    assert!(ran.output.starts_with("1\n2\n") && ran.output.ends_with("\n99999\n100000\n"));
    assert!(ran.output.contains("[... 564319 bytes are left out here ...]"), "{}", &ran.output[8000..8400]);
    assert!(ran.output.len() < 26 << 10);
    let binary = output(
        &shop,
        r"printf 'a\xff\x00\xfeb\x1b[31mc\x1b]0;x\x07d\n'; head -c 300000 /dev/urandom; echo; echo end",
    );
    assert!(binary.output.starts_with("a\u{fffd}\u{fffd}bcd\n") && binary.output.ends_with("\nend\n"));
    assert!(!binary.output.contains(['\u{1b}', '\0', '\u{7}']));
}

#[test]
fn a_flood_is_ended() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let mut streamed = 0;
    let count = &mut |piece: &str| streamed += piece.len();
    let ran = place.open().shell(&call("yes"), count, &AtomicBool::new(false)).unwrap();
    assert_eq!((ran.code, ran.timed_out, ran.stopped), (None, false, false));
    assert_eq!(ran.notes, ["it was ended: it wrote more than 67108864 bytes"]);
    assert!(streamed < 5 << 20 && ran.output.len() < 26 << 10, "{streamed}");
}

#[test]
fn what_the_sandbox_refuses_is_seen() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let shop = place.open();
    let denied = format!("echo x > {}/new", place.outside.display());
    let ran = output(&shop, &denied);
    assert!(ran.denied && ran.code != Some(0), "{ran:?}");
    assert!(output(&shop, "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'").denied);
    assert!(output(&shop, &format!("cat {}/.ssh/key", place.home.display())).denied);
    assert!(!output(&shop, "echo Permission denied").denied);
    assert!(!output(&shop, "ls nothing").denied);
    // With a yes it may.
    let mut call = call(&denied);
    call.unconfined = true;
    let ran = shop.shell(&call, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert_eq!((ran.code, ran.denied), (Some(0), false));
    assert!(place.outside.join("new").exists());
    let ran = output(&place.shop(Mode::ReadOnly), "echo x > new");
    assert!(ran.denied && !place.work.join("new").exists());
}

#[test]
fn commands_begin_beneath_the_workspace() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    place.write("inner/deep/file", "");
    place.link(&place.outside, "out");
    let shop = place.open();
    let at = |folder: &str| {
        let mut call = call("pwd");
        call.workdir = Some(folder.to_owned());
        shop.shell(&call, &mut |_| {}, &AtomicBool::new(false))
    };
    let inner = format!("{}\n", place.work.join("inner/deep").display());
    assert_eq!(at("inner/deep").unwrap().output, inner);
    assert_eq!(at(inner.trim()).unwrap().output, inner);
    assert_eq!(at("./").unwrap().output.trim(), place.work.to_str().unwrap());
    for folder in ["..", "/", "inner/../..", "out", "/etc"] {
        assert!(matches!(at(folder), Err(ToolError::Outside { .. })), "{folder}");
    }
    assert!(matches!(at("inner/dep"), Err(ToolError::Missing { near, .. }) if near[0] == "inner/deep"));
    assert!(matches!(run(&shop, "echo \0"), Err(ToolError::NotRun(_))));
}
